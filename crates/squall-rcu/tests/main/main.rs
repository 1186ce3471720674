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
mod tasks;

use std::sync::{Mutex, MutexGuard};

/// Returns whether the reclaimer thread sleeps until it is woken: it waits on a futex without a timeout. On a
/// kernel that does not report the waits of threads, the answer is missing.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn reclaimer_rests() -> Option<bool> {
    let is_reclaimer = |task: &std::path::Path| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim_end() == "squall-reclaim")
    };
    let mut tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    // A new thread has no name yet.
    let Some(task) = tasks.find(|task| is_reclaimer(task)) else { return Some(false) };
    // An emulator of another processor makes system calls with other numbers.
    let own = std::fs::read_to_string("/proc/thread-self/syscall").ok()?;
    if own.split_whitespace().next()? != libc::SYS_read.to_string() {
        return None;
    }
    // The number of the system call and its arguments, or `running`.
    let call = std::fs::read_to_string(task.join("syscall")).ok()?;
    let words: Vec<&str> = call.split_whitespace().collect();
    // The fourth argument of a futex call is the timeout.
    Some(words[0] == libc::SYS_futex.to_string() && words[4] == "0x0")
}

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
