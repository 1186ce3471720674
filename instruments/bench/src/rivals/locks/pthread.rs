//! `pthread-adaptive`: glibc's mutex of type `PTHREAD_MUTEX_ADAPTIVE_NP`, which spins as long as recent waits
//! took, and then sleeps.

use std::cell::UnsafeCell;

use super::Exclusive;

/// The mutex is boxed: it must stay where it was first locked.
pub(crate) struct Adaptive(Box<Inner>);

struct Inner {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    word: UnsafeCell<u64>,
}

// SAFETY: the mutex may be used by any thread, and the word is touched only by its holder.
unsafe impl Send for Inner {}
// SAFETY: the mutex may be used by any thread, and the word is touched only by its holder.
unsafe impl Sync for Inner {}

/// Unlocks, also during a panic.
struct Held<'a>(&'a Inner);

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the mutex is initialised, lives as long as `Inner`, and `with` made this after the calling
        // thread had locked it.
        let error = unsafe { libc::pthread_mutex_unlock(self.0.mutex.get()) };
        debug_assert_eq!(error, 0);
    }
}

impl Exclusive for Adaptive {
    fn new() -> Self {
        let mutex = UnsafeCell::new(libc::PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP);
        Adaptive(Box::new(Inner { mutex, word: UnsafeCell::new(0) }))
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R {
        // SAFETY: the mutex was initialised in `new`, does not move since it is boxed, and lives as long as
        // `self`.
        let error = unsafe { libc::pthread_mutex_lock(self.0.mutex.get()) };
        assert_eq!(error, 0, "pthread_mutex_lock");
        let held = Held(&self.0);
        // SAFETY: the word lives as long as `held`, and there is no other reference to it. Only the holder of
        // the mutex makes one, here, and it ends before `held` unlocks.
        section(unsafe { &mut *held.0.word.get() })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the mutex is initialised. By `&mut self` no thread holds it or waits for it.
        unsafe { libc::pthread_mutex_destroy(self.mutex.get()) };
    }
}
