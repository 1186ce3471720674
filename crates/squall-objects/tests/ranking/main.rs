//! Tests that rank structures and cluster sizes by counted remote accesses, on a virtual machine of four nodes.
#![cfg(not(miri))]

mod cluster_size;
mod map_ranking;
