//! Futex: sleeping on a word of memory. Linux only; `squall-machine` has the portable form.
#![cfg(all(target_os = "linux", not(miri)))]

use rustix::thread::futex;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` holds `expected`, until woken, interrupted or timed out.
///
/// The kernel compares and sleeps in one atomic step against [`wake`]. Returns at once if the word differs.
/// Wake-ups may be spurious, so the caller must check its condition again.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|limit| rustix::thread::Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    // All outcomes (woken, changed, interrupted, timed out) have the same consequence: the caller checks
    // again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, expected, timeout.as_ref());
}

/// Wakes up to `count` threads that sleep on `word`.
pub fn wake(word: &AtomicU32, count: u32) {
    // The kernel takes the number as signed, and treats a negative one as one.
    let count = count.min(i32::MAX.cast_unsigned());
    // The only possible error is a bad address, which a reference excludes.
    let _ = futex::wake(word, futex::Flags::PRIVATE, count);
}
