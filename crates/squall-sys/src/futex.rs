//! Futex: sleeping on a word of memory. Linux only; `squall-machine` has the portable form.
#![cfg(all(target_os = "linux", not(miri)))]

use crate::system::quietly;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Flag of a futex that only this process uses. Without it, a futex works between processes.
const PRIVATE: libc::c_int = libc::FUTEX_PRIVATE_FLAG;

/// Sleeps while `word` holds `expected`, until woken, interrupted or timed out.
///
/// The kernel compares and sleeps in one atomic step against [`wake`]. Returns at once if the word differs.
/// Wake-ups may be spurious, so the caller must check its condition again.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    sleep(word, expected, timeout, PRIVATE);
}

/// Wakes up to `count` threads of this process that sleep on `word`.
pub fn wake(word: &AtomicU32, count: u32) {
    let _ = rouse(word, count, PRIVATE);
}

/// Like [`wait`], for a word in memory that processes share, such as [`SharedMemory`](crate::shared).
///
/// [`wake_shared`] wakes the thread, from any process and through any mapping of the same memory. [`wake`]
/// does not. The kernel may set up its table of private futexes while a private wait is armed through
/// io_uring. That wait then misses its wake-up (Linux 6.16 and later). A shared wait never does.
pub fn wait_shared(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    sleep(word, expected, timeout, 0);
}

/// Wakes up to `count` threads, of any process, that sleep on `word` by [`wait_shared`]. Returns the number
/// woken.
pub fn wake_shared(word: &AtomicU32, count: u32) -> u32 {
    rouse(word, count, 0)
}

fn sleep(word: &AtomicU32, expected: u32, timeout: Option<Duration>, flags: libc::c_int) {
    let timeout = timeout.map(|limit| libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos() as _,
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // All outcomes (woken, changed, interrupted, timed out) have the same consequence: the caller checks
    // again.
    // SAFETY: futex(2) with a word that lives during the call, and a null pointer or a time of our own.
    quietly(|| unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | flags, expected, timeout)
    });
}

fn rouse(word: &AtomicU32, count: u32, flags: libc::c_int) -> u32 {
    // The kernel takes the number as signed, and treats a negative one as one.
    let count = count.min(i32::MAX.cast_unsigned());
    // The only possible error is a bad address, which a reference excludes.
    // SAFETY: futex(2) with a word that lives during the call.
    let woken =
        quietly(|| unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | flags, count) });
    u32::try_from(woken).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_at_its_timeout_or_if_the_word_differs() {
        wait(&AtomicU32::new(7), 7, Some(Duration::from_millis(1)));
        wait(&AtomicU32::new(7), 8, None);
    }

    #[test]
    fn a_shared_wait_ends_at_its_timeout_or_if_the_word_differs() {
        wait_shared(&AtomicU32::new(7), 7, Some(Duration::from_millis(1)));
        wait_shared(&AtomicU32::new(7), 8, None);
    }

    #[test]
    fn a_shared_wake_reaches_a_sleeper_through_another_mapping() {
        let (memory, file) = crate::shared::SharedMemory::create(4096).unwrap();
        let again = crate::shared::SharedMemory::open(std::os::fd::AsFd::as_fd(&file), 4096).unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| wait_shared(memory.word(64), 0, None));
            // The word never changes, so that only the wake-up ends the wait.
            let mut woken = 0;
            while !sleeper.is_finished() {
                woken += wake_shared(again.word(64), u32::MAX);
                std::thread::yield_now();
            }
            assert_eq!(woken, 1);
        });
        assert_eq!(wake_shared(again.word(64), u32::MAX), 0);
    }
}
