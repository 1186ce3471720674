//! Tests of the public interface, in one program.
//!
//! Tests that need a process of their own start this program again (`support::alone`). `tests/recycle.rs` and
//! `tests/leaks.rs` are programs of their own, for the reasons given there.
#![cfg(not(loom))]

#[cfg(all(target_os = "linux", not(miri)))]
mod bounds;
mod by_hand;
#[cfg(all(target_os = "linux", not(miri)))]
#[path = "../../../squall-rcu/tests/forked/mod.rs"]
mod forked;
mod links;
mod names;
#[cfg(not(any(miri, squall_asan, squall_tsan)))]
mod placement;
#[cfg(all(target_os = "linux", not(miri)))]
mod process;
#[cfg(all(target_os = "linux", not(miri)))]
mod stalls;
#[cfg(not(miri))]
mod support;
#[cfg(all(target_os = "linux", not(miri)))]
mod swap_process;
mod swap_tasks;
mod tasks;
#[cfg(not(miri))]
#[path = "../../../squall-machine/tests/main/this_program.rs"]
mod this_program;
