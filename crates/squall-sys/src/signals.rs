//! Signal masks.

/// Runs `f` while no signal is delivered to the calling thread. A thread that `f` starts gets no signals
/// either.
///
/// On platforms other than Linux, and under Miri, `f` runs with the mask as it is.
pub fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    let _restore = imp::Mask::block_all();
    f()
}

#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use std::mem::MaybeUninit;

    /// The thread's mask from before. Restored on drop.
    pub(super) struct Mask(libc::sigset_t);

    impl Mask {
        pub(super) fn block_all() -> Mask {
            let mut all = MaybeUninit::uninit();
            let mut before = MaybeUninit::uninit();
            // SAFETY: 1. `sigfillset` initialises the set, and cannot fail. 2. `pthread_sigmask` with a valid
            // command cannot fail, and writes the old mask.
            unsafe {
                libc::sigfillset(all.as_mut_ptr());
                libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
                Mask(before.assume_init())
            }
        }
    }

    impl Drop for Mask {
        fn drop(&mut self) {
            // SAFETY: the mask that the thread had.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod imp {
    pub(super) struct Mask;

    impl Mask {
        pub(super) fn block_all() -> Mask {
            Mask
        }
    }
}
