//! Tests that choose the VP of each call, on a virtual machine of 32 VPs in 16 cores, 4 caches and 2 nodes.
#![cfg(not(miri))]

#[path = "../common/mod.rs"]
mod common;

mod objects;
mod swap;

use squall::{Machine, Vp, VpSet, machine};
use std::sync::Once;

/// Sets the machine of this process, once.
fn machine_of_32() {
    static MADE: Once = Once::new();
    MADE.call_once(|| {
        Machine::set_virtual("nodes:2,caches:2,cores:4,threads:2".parse().unwrap()).unwrap();
    });
    assert_eq!(machine().vps().len(), 32);
}

/// Runs `f` on this VP.
fn on<T>(vp: u32, f: impl FnOnce() -> T) -> T {
    Vp::with_vp(Vp::new(vp), f).unwrap()
}

fn vps(set: &VpSet) -> Vec<usize> {
    set.iter().map(Vp::index).collect()
}

#[test]
fn the_tests_pass_under_each_fallback() {
    if common::is_child() {
        return;
    }
    for environment in [
        &[("SQUALL_MEMBARRIER", "off")][..],
        &[("SQUALL_RECLAIMER", "off")],
        &[("SQUALL_RECLAIMER", "off"), ("SQUALL_RSEQ", "off")],
        &[("SQUALL_RSEQ", "off"), ("SQUALL_MEMBARRIER", "off"), ("SQUALL_RECLAIMER", "off")],
    ] {
        common::again(&["--test-threads=2"], environment);
    }
}
