//! The table's environment: grace periods and per-VP counts. Loom builds use stand-ins.

#[cfg(loom)]
pub(crate) use loom_stubs::*;
/// Lets another thread run, for which the caller waits.
///
/// # Panics
/// In the child of a fork, where that thread does not exist.
pub(crate) fn yield_to_writer() {
    assert!(
        !squall_sys::fork::forked(),
        "squall-parts: a table is being resized, and the process is the child of a fork, where the resizing thread may \
         not exist; such a child may only exec"
    );
    squall_sys::sync::thread::yield_now();
}

/// Stores the value that makes a user's write visible, and goes on only when every processor sees it. So if
/// two threads each write one entry and then read the other's, at least one sees the other's write. The store
/// is a Release, or has ordering `$order` in models.
///
/// On x86-64 an exchange is a full barrier; on other architectures a fence follows the store.
macro_rules! store_with_barrier {
    ($word:expr, $value:expr, $order:expr) => {{
        #[cfg(loom)]
        $word.swap($value, $order);
        #[cfg(all(not(loom), target_arch = "x86_64"))]
        {
            let _ = $order;
            // SeqCst: pairs with itself in any thread that stores to another word and then loads this one.
            $word.swap($value, Ordering::SeqCst);
        }
        #[cfg(all(not(loom), not(target_arch = "x86_64")))]
        {
            $word.store($value, $order);
            // SeqCst: pairs with itself in any thread that stores to another word and then loads this one.
            squall_sys::sync::atomic::fence(Ordering::SeqCst);
        }
    }};
}
pub(crate) use store_with_barrier;

#[cfg(not(loom))]
pub(crate) use real::*;

#[cfg(not(loom))]
mod real {
    use crate::table::word::{Owned, Words, owned};
    use squall_sys::sync::Arc;
    use std::cell::Cell;

    /// Whether this call of the thread is one in sixteen: for writers that meet the late part of a resize.
    pub(crate) fn is_late_turn() -> bool {
        thread_local!(static CALLS: Cell<u8> = const { Cell::new(0) });
        let calls = CALLS.get();
        CALLS.set(calls.wrapping_add(1));
        calls.is_multiple_of(16)
    }

    /// The number of entries: one word per VP.
    pub(crate) struct Count(squall_machine::pervp::PerVpWord);

    impl Count {
        pub(crate) fn new() -> Count {
            Count(squall_machine::pervp::PerVpWord::new())
        }

        #[inline(always)]
        pub(crate) fn add(&self, n: u64) {
            self.0.add(n);
        }

        pub(crate) fn sum(&self) -> usize {
            // The words are read one by one, so a removal may be counted before its insertion.
            let sum = self.0.sum();
            if sum.cast_signed() < 0 { 0 } else { usize::try_from(sum).unwrap_or(usize::MAX) }
        }
    }

    /// Frees a box after a grace period. `memory`: dropping it only frees memory.
    ///
    /// # Safety
    /// The contract of [`squall_rcu::retire_raw`].
    #[inline]
    pub(crate) unsafe fn retire<T: Send + 'static>(value: *mut T, memory: bool) {
        // SAFETY: the caller.
        unsafe { if memory { squall_rcu::__retire_memory(value) } else { squall_rcu::retire_raw(value) } };
    }

    /// Frees the memory owned by a key with these bits, after a grace period.
    ///
    /// # Safety
    /// [`to_words`](crate::table::word::to_words) made them from a `K`, and only this call frees that memory.
    /// Besides, as for [`squall_rcu::retire_raw`].
    #[inline]
    pub(crate) unsafe fn retire_words<K: Send + 'static>(words: &Words) {
        // SAFETY: the caller. Freed once, by the function for this kind of memory.
        unsafe {
            match owned::<K>(words) {
                Owned::Nothing => {}
                Owned::Bytes(data, bytes) => squall_rcu::__defer_memory(free_bytes, data, bytes),
                Owned::Arc(data, bytes) => squall_rcu::__defer_memory(free_arc, data, bytes),
                Owned::Other => {
                    let key = Box::new(words.as_ptr().cast::<K>().read());
                    squall_rcu::__retire_memory(Box::into_raw(key));
                }
            }
        }
    }

    /// Frees the buffer of a `Vec<u8>` of this capacity.
    unsafe fn free_bytes(data: *mut (), bytes: u32) {
        // SAFETY: from `owned`, freed once.
        drop(unsafe { Vec::<u8>::from_raw_parts(data.cast(), 0, bytes as usize) });
    }

    /// Drops one count of an `Arc<[u8]>` of this length.
    unsafe fn free_arc(data: *mut (), bytes: u32) {
        let bytes = std::ptr::slice_from_raw_parts(data.cast::<u8>(), bytes as usize);
        // SAFETY: from `owned`, freed once.
        drop(unsafe { Arc::from_raw(bytes) });
    }

    /// Frees a box after a grace period. The reclaimer accounts for `bytes` bytes, of which the box keeps
    /// most behind pointers.
    ///
    /// # Safety
    /// The contract of [`squall_rcu::retire_raw`].
    pub(crate) unsafe fn retire_sized<T: Send + 'static>(value: *mut T, bytes: usize) {
        unsafe fn free<T>(value: *mut ()) {
            // SAFETY: called once, after the grace period, with the box passed to `retire_sized`.
            drop(unsafe { Box::from_raw(value.cast::<T>()) });
        }
        // SAFETY: the caller.
        unsafe { squall_rcu::defer_raw(free::<T>, value.cast(), bytes) };
    }
}

#[cfg(loom)]
mod loom_stubs {
    use squall_sys::sync::atomic::{AtomicU64, Ordering};

    pub(crate) struct Count(AtomicU64);

    impl Count {
        pub(crate) fn new() -> Count {
            Count(AtomicU64::new(0))
        }

        pub(crate) fn add(&self, n: u64) {
            self.0.fetch_add(n, Ordering::Relaxed);
        }

        pub(crate) fn sum(&self) -> usize {
            self.0.load(Ordering::Relaxed) as usize
        }
    }

    pub(crate) fn is_late_turn() -> bool {
        true
    }

    /// An operation in a model lasts as long as the model, so retired memory is never freed.
    pub(crate) unsafe fn retire<T: Send + 'static>(_value: *mut T, _memory: bool) {}

    pub(crate) unsafe fn retire_words<K: Send + 'static>(_words: &crate::table::word::Words) {}

    pub(crate) unsafe fn retire_sized<T: Send + 'static>(_value: *mut T, _bytes: usize) {}
}
