//! Tests of the public interface, in one program.
//!
//! The library's domain, reclaimer and statistics belong to the whole process. So the tests of this process
//! run one at a time ([`alone`]). Tests that need a process of their own start this program again (see
//! `process`).
#![cfg(not(loom))]

mod deferral;
#[cfg(all(target_os = "linux", not(miri)))]
#[path = "../forked/mod.rs"]
mod forked;
mod operations;
#[cfg(all(target_os = "linux", not(miri)))]
mod process;
#[cfg(not(miri))]
mod reclaimer;

use std::sync::{Mutex, MutexGuard};

/// Waits until no other test of this process runs and no deferred call is pending. The result is the
/// permission to use the library alone.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    let alone = LOCK.lock().unwrap_or_else(|poison| poison.into_inner());
    // Several times: a deferred call may have deferred another.
    while squall_rcu::stats().pending_calls > 0 {
        squall_rcu::barrier().unwrap();
    }
    alone
}
