//! Tests of the public interface, in one program.
//!
//! Tests that need a process of their own start this program again (see `support::again`), because a process
//! sets its machine once and gives restartable sequences up for good. `tests/memory.rs` is a program of its
//! own, because it checks figures of the whole process.
#![cfg(not(loom))]

mod biased;
mod current_vp;
mod downgrade;
mod gated;
#[cfg(not(miri))]
mod litmus;
mod pervp;
mod sequences;
mod support;
mod this_program;
mod topology_changes;
mod topology_clusters;
mod topology_process;
mod topology_trees;
mod topology_vpset;
mod trees;
