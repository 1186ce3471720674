//! Futex: sleeping on a word of memory. Linux only; `squall-machine` has the portable form.
#![cfg(all(target_os = "linux", not(miri)))]

use crate::system::quietly;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

const PRIVATE: libc::c_int = libc::FUTEX_PRIVATE_FLAG;

/// Sleeps while `word` holds `expected`, until woken, interrupted or timed out.
///
/// The kernel compares and sleeps in one atomic step against [`wake`]. Returns at once if the word differs.
/// Wake-ups may be spurious, so the caller must check its condition again.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|limit| libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos() as _,
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // All outcomes (woken, changed, interrupted, timed out) have the same consequence: the caller checks
    // again.
    // SAFETY: futex(2) with a word that lives during the call, and a null pointer or a time of our own.
    quietly(|| unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | PRIVATE, expected, timeout)
    });
}

/// Wakes up to `count` threads that sleep on `word`.
pub fn wake(word: &AtomicU32, count: u32) {
    // The kernel takes the number as signed, and treats a negative one as one.
    let count = count.min(i32::MAX.cast_unsigned());
    // The only possible error is a bad address, which a reference excludes.
    // SAFETY: futex(2) with a word that lives during the call.
    quietly(|| unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | PRIVATE, count) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_at_its_timeout_or_if_the_word_differs() {
        wait(&AtomicU32::new(7), 7, Some(Duration::from_millis(1)));
        wait(&AtomicU32::new(7), 8, None);
    }
}
