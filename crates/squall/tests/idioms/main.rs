//! Code that is written for other libraries and read here: each idiom has the same result with Squall.
//!
//! One module for each library. A macro runs the same lines on the other library's object and on Squall's
//! forms. Idioms that Squall rejects are in `tests/ui/idioms`: one program for each library, with the
//! compiler's messages. `tests/ui/accepted` has the control: the nearest code that compiles.

#[cfg(squall_global_alloc)]
use squall as _;

mod arc_swap_cells;
mod dash_maps;
mod papaya_maps;
mod std_maps;
mod tokio_gates;
mod tokio_waits;
mod tokio_watch;
