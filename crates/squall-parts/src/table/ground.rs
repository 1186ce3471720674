//! What the table stands on: grace periods and per-VP counts; under a model checker, what stands for them.

#[cfg(loom)]
pub(crate) use in_models::*;
/// Stores what a write of the table's users becomes visible by, and does not go on before every processor sees it: so that of two
/// threads that each write one entry and then look at the other's, one at least sees it. The store is a Release, or what `$order` says,
/// where there are models.
///
/// Where an exchange is a full barrier it is that, and elsewhere a fence follows.
macro_rules! show {
    ($word:expr, $value:expr, $order:expr) => {{
        #[cfg(loom)]
        $word.swap($value, $order);
        #[cfg(all(not(loom), target_arch = "x86_64"))]
        {
            let _ = $order;
            // SeqCst: partner of itself, in whichever thread stores to another word and loads this one after.
            $word.swap($value, Ordering::SeqCst);
        }
        #[cfg(all(not(loom), not(target_arch = "x86_64")))]
        {
            $word.store($value, $order);
            // SeqCst: partner of itself, in whichever thread stores to another word and loads this one after.
            squall_sys::sync::atomic::fence(Ordering::SeqCst);
        }
    }};
}
pub(crate) use show;

#[cfg(not(loom))]
pub(crate) use on_linux::*;

#[cfg(not(loom))]
mod on_linux {
    use crate::table::word::{Owned, Words, owned};
    use squall_sys::sync::Arc;

    /// How many entries there are: a word of each VP.
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
            // Read VP by VP: a removal may be counted and the insertion before it not.
            let sum = self.0.sum();
            if sum.cast_signed() < 0 { 0 } else { usize::try_from(sum).unwrap_or(usize::MAX) }
        }
    }

    /// Frees a box once no operation that is open now is. `memory`: whether its drop does nothing but give memory back.
    ///
    /// # Safety
    /// As [`squall_rcu::retire_raw`].
    #[inline]
    pub(crate) unsafe fn retire<T: Send + 'static>(value: *mut T, memory: bool) {
        // SAFETY: the caller.
        unsafe { if memory { squall_rcu::__retire_memory(value) } else { squall_rcu::retire_raw(value) } };
    }

    /// Gives back what a key owns whose bits are these, once no operation that is open now is.
    ///
    /// # Safety
    /// [`to_words`](crate::table::word::to_words) made them of a `K`, which nobody else gives back; and as [`squall_rcu::retire_raw`].
    #[inline]
    pub(crate) unsafe fn retire_words<K: Send + 'static>(words: &Words) {
        // SAFETY: the caller. Given back once, by what knows how.
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

    /// The bytes of a `Vec` of this capacity.
    unsafe fn free_bytes(data: *mut (), bytes: u32) {
        // SAFETY: of `owned`, given back once.
        drop(unsafe { Vec::<u8>::from_raw_parts(data.cast(), 0, bytes as usize) });
    }

    /// A share in an `Arc` of so many bytes.
    unsafe fn free_arc(data: *mut (), bytes: u32) {
        let bytes = std::ptr::slice_from_raw_parts(data.cast::<u8>(), bytes as usize);
        // SAFETY: of `owned`, given back once.
        drop(unsafe { Arc::from_raw(bytes) });
    }

    /// As [`retire`], of a box that holds on to so many bytes.
    ///
    /// # Safety
    /// As [`squall_rcu::retire_raw`].
    pub(crate) unsafe fn retire_much<T: Send + 'static>(value: *mut T, bytes: usize) {
        unsafe fn free<T>(value: *mut ()) {
            // SAFETY: called once, after the grace period, with the box that `retire_much` was given.
            drop(unsafe { Box::from_raw(value.cast::<T>()) });
        }
        // SAFETY: the caller.
        unsafe { squall_rcu::defer_raw(free::<T>, value.cast(), bytes) };
    }
}

#[cfg(loom)]
mod in_models {
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

    /// A model's operations last as long as the model: what is retired is never freed there.
    pub(crate) unsafe fn retire<T: Send + 'static>(_value: *mut T, _memory: bool) {}

    pub(crate) unsafe fn retire_words<K: Send + 'static>(_words: &crate::table::word::Words) {}

    pub(crate) unsafe fn retire_much<T: Send + 'static>(_value: *mut T, _bytes: usize) {}
}
