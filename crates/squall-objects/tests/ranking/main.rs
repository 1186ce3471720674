//! Rankings of structures and of cluster sizes by counted remote accesses, on a virtual machine.
#![cfg(not(miri))]

mod cluster_size;
mod map_ranking;
