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
mod quiet;
#[cfg(not(miri))]
mod reclaimer;

use std::sync::{Mutex, MutexGuard};

/// Permission to use the library alone. Allows the reclaimer again when dropped.
pub(crate) struct Alone {
    _lock: MutexGuard<'static, ()>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        squall_rcu::set_reclaimer(true);
    }
}

/// Waits until no other test of this process runs and no deferred call is pending. The reclaimer is allowed.
pub(crate) fn alone() -> Alone {
    alone_with(true)
}

/// Does the work of [`alone`], and forbids the reclaimer.
pub(crate) fn alone_without_reclaimer() -> Alone {
    alone_with(false)
}

fn alone_with(reclaimer: bool) -> Alone {
    static LOCK: Mutex<()> = Mutex::new(());
    let alone = Alone { _lock: LOCK.lock().unwrap_or_else(|poison| poison.into_inner()) };
    squall_rcu::set_reclaimer(reclaimer);
    // A deferred call may have deferred another.
    while squall_rcu::stats().pending_calls > 0 {
        squall_rcu::barrier().unwrap();
    }
    alone
}
