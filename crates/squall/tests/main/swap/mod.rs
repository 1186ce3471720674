//! Hot-swap on the real machine. The tests of `virtual_32` choose the VP of each call.

mod arbiters;
mod chains;
mod class;
mod phases;
mod races;
mod sleep;
mod state;
