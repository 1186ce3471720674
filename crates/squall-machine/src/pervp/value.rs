//! One value of any type per VP, made on the VP at first use.
//!
//! Each part has a slot: a pointer to the VP's value, a claim on the room behind it, and that room. A maker
//! first makes the value, then claims the room by an exchange. A maker that finds the room claimed uses the
//! heap. Then the maker sets the pointer by compare-exchange. A maker that loses this race drops its own
//! value.
//!
//! - I1. A slot's pointer goes from null to a fully built value, once, and back only in `drop`.
//! - I2. The room is written by the one thread that won the claim, before it publishes. A published value of
//!   that thread is at the room's address; every other published value is in a `Box`.
//! - I3. No thread ever waits: a stalled maker delays only its own value.
//!
//! Not promised: a value may be used on other VPs than its own. Values are shared, so `T: Sync`.
//! Source: lazily made representatives (Tornado §3.3), with the winner chosen by compare-exchange.

use super::alloc::{self, ALIGN_MAX, OutOfMemory, SHIFT};
use crate::vp::Vp;
use squall_sys::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

/// Size limit for values in the parts, in bytes. Larger values go to the heap.
const ROOM_BYTES_MAX: usize = 4096;

/// A part's slot. The allocator's zeros are its empty state.
#[repr(C)]
struct Slot<T> {
    value: AtomicPtr<T>,
    claimed: AtomicBool,
    /// Used by the thread that claimed it. Absent (see `PerVp::SLOT_BYTES`) if values go to the heap.
    room: MaybeUninit<T>,
}

/// One `T` per VP, made at first use on that VP.
///
/// # Cost
/// If `T` has at most 4 KiB, one slot in the part of each VP, near that VP; untouched slots use no memory.
/// Otherwise one pointer per VP, and one block of the heap for each value. [`here`](PerVp::here) is three
/// loads. Progress: wait-free; making a value is lock-free.
/// # Example
/// ```
/// use squall::{Vp, pervp::PerVp};
/// let names = PerVp::new(|vp: Vp| format!("value of {vp}"));
/// assert!(names.here().starts_with("value of VP"));
/// assert_eq!(names.iter().count(), 1);
/// ```
///
/// Values are shared among threads, so `T` must be `Sync`:
/// ```compile_fail,E0277
/// let cells = squall::pervp::PerVp::new(|_| std::cell::Cell::new(0));
/// ```
pub struct PerVp<T: Send + Sync> {
    home: NonNull<u8>,
    init: Box<dyn Fn(Vp) -> T + Send + Sync>,
    values: PhantomData<T>,
}

// SAFETY: 1. values are shared among threads and dropped by the thread that drops us: `T: Send + Sync`. 2.
// `init` is both. 3. The slots are accessed atomically, the rooms as value/I2 says.
unsafe impl<T: Send + Sync> Send for PerVp<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send + Sync> Sync for PerVp<T> {}

impl<T: Send + Sync> PerVp<T> {
    const HAS_ROOM: bool = size_of::<T>() <= ROOM_BYTES_MAX && align_of::<T>() <= ALIGN_MAX;
    const SLOT_BYTES: usize =
        if Self::HAS_ROOM { size_of::<Slot<T>>() } else { 2 * size_of::<AtomicPtr<T>>() };
    const SLOT_ALIGN: usize = if Self::HAS_ROOM { align_of::<Slot<T>>() } else { align_of::<AtomicPtr<T>>() };

    /// Creates an object without values. `init` makes a VP's value at the first use on that VP.
    ///
    /// `init` may run twice for a VP, on two threads at once; one of the two values is then dropped.
    ///
    /// # Panics
    /// If there is no address space or memory left. [`try_new`](PerVp::try_new) returns an error instead.
    pub fn new(init: impl Fn(Vp) -> T + Send + Sync + 'static) -> PerVp<T> {
        Self::try_new(init).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates an object without values, like [`new`](PerVp::new), but reports lack of memory as an error.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no address space or memory left; `init` is dropped.
    pub fn try_new(init: impl Fn(Vp) -> T + Send + Sync + 'static) -> Result<PerVp<T>, OutOfMemory> {
        let init = alloc::boxed(init)?;
        let home = alloc::allocate(Self::SLOT_BYTES, Self::SLOT_ALIGN.max(8))?;
        Ok(PerVp { home, init, values: PhantomData })
    }

    #[inline(always)]
    fn slot(&self, vp: Vp) -> NonNull<Slot<T>> {
        // SAFETY: the caller passes a `vp` below the limit, so the chunk has a part for it.
        unsafe { self.home.byte_add(vp.index() << SHIFT) }.cast()
    }

    /// Returns the pointer of a slot, and no reference to the whole slot: its room may be absent, or being
    /// written.
    #[inline(always)]
    fn pointer(&self, vp: Vp) -> &AtomicPtr<T> {
        // SAFETY: the slot's first field; zeros are a null pointer. It is accessed atomically only, and lives
        // as long as we do.
        unsafe { &(*self.slot(vp).as_ptr()).value }
    }

    /// Returns the value of the VP where the thread is, and makes it first if it is absent.
    ///
    /// # Panics
    /// If `init` panics. The slot then stays empty.
    ///
    /// # Example
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let hits = squall::pervp::PerVp::new(|_vp| AtomicU64::new(0));
    /// hits.here().fetch_add(1, Ordering::Relaxed);
    /// assert_eq!(hits.iter().map(|(_, count)| count.load(Ordering::Relaxed)).sum::<u64>(), 1);
    /// ```
    #[inline]
    pub fn here(&self) -> &T {
        let vp = Vp::current();
        // Acquire: pairs with the Release exchange in `make`. A reader of the pointer sees the value fully
        // built.
        match NonNull::new(self.pointer(vp).load(Ordering::Acquire)) {
            // SAFETY: a published value, valid and only shared until we are dropped (value/I1).
            Some(value) => unsafe { value.as_ref() },
            None => self.make(vp),
        }
    }

    /// Returns the value of `vp`, or `None` if it has not been made or the machine has no such VP.
    ///
    /// # Example
    /// ```
    /// let names = squall::pervp::PerVp::new(|vp| vp.to_string());
    /// names.here();
    /// let made = names.iter().next().unwrap().0;
    /// assert_eq!(names.get(made), Some(&made.to_string()));
    /// ```
    #[inline]
    pub fn get(&self, vp: Vp) -> Option<&T> {
        if vp.index() >= alloc::parts() {
            return None;
        }
        // Acquire: as in `here`.
        let value = NonNull::new(self.pointer(vp).load(Ordering::Acquire))?;
        // SAFETY: a published value, valid and only shared until we are dropped (value/I1).
        Some(unsafe { value.as_ref() })
    }

    /// Iterates over the values made so far, in the order of their VPs.
    pub fn iter(&self) -> impl Iterator<Item = (Vp, &T)> + '_ {
        (0..alloc::parts() as u32).map(Vp::new).filter_map(|vp| Some((vp, self.get(vp)?)))
    }

    #[cold]
    #[inline(never)]
    fn make(&self, vp: Vp) -> &T {
        let value = (self.init)(vp);
        let (value, in_room) = match self.claim_room(vp) {
            // SAFETY: the room is ours alone until we publish (value/I2), and is aligned for a `T`.
            Some(room) => unsafe {
                room.write(value);
                (room, true)
            },
            None => (NonNull::from(Box::leak(Box::new(value))), false),
        };
        // Release: pairs with the Acquire loads of readers. Acquire on failure: makes the winner's value
        // visible.
        match self.pointer(vp).compare_exchange(
            ptr::null_mut(),
            value.as_ptr(),
            Ordering::Release,
            Ordering::Acquire,
        ) {
            // SAFETY: the value just published by us (value/I1).
            Ok(_) => unsafe { value.as_ref() },
            Err(winner) => {
                // SAFETY: 1. our own value was not published, so it is ours to drop, and is still where we
                // put it. 2. The winner's value is published: the failed exchange with null read another
                // pointer.
                unsafe {
                    if in_room {
                        value.drop_in_place();
                    } else {
                        drop(Box::from_raw(value.as_ptr()));
                    }
                    &*winner
                }
            }
        }
    }

    fn claim_room(&self, vp: Vp) -> Option<NonNull<T>> {
        if !Self::HAS_ROOM {
            return None;
        }
        let slot = self.slot(vp).as_ptr();
        // SAFETY: the slot has all its fields; zero is `false`; the claim is accessed atomically only.
        let claimed = unsafe { &(*slot).claimed };
        // Relaxed: the claim only chooses one owner; the pointer publishes the value.
        if claimed.swap(true, Ordering::Relaxed) {
            return None;
        }
        // SAFETY: a field of the slot, so not null.
        Some(unsafe { NonNull::new_unchecked((&raw mut (*slot).room).cast()) })
    }
}

impl<T: Send + Sync> fmt::Debug for PerVp<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerVp").field("made_count", &self.iter().count()).finish_non_exhaustive()
    }
}

/// Drops all values, then returns the extent. If dropping a value panics, the later values and the extent are
/// leaked.
impl<T: Send + Sync> Drop for PerVp<T> {
    fn drop(&mut self) {
        for vp in (0..alloc::parts() as u32).map(Vp::new) {
            let slot = self.slot(vp).as_ptr();
            // Relaxed, both: we are alone.
            let value = self.pointer(vp).load(Ordering::Relaxed);
            // SAFETY: the slot has this field if there is room; it is accessed atomically only.
            let claimed = Self::HAS_ROOM && unsafe { &(*slot).claimed }.load(Ordering::Relaxed);
            // SAFETY: 1. we are alone. 2. A published value is in the room exactly if it has the room's
            // address, else in a `Box` (value/I2). 3. An unpublished value was dropped by its maker. 4. The
            // slot is then cleared by writes alone, because parts of a room may never have been initialised.
            unsafe {
                if let Some(value) = NonNull::new(value) {
                    if claimed && ptr::eq(value.as_ptr(), (&raw const (*slot).room).cast()) {
                        value.drop_in_place();
                    } else {
                        drop(Box::from_raw(value.as_ptr()));
                    }
                }
                if claimed || !value.is_null() {
                    slot.cast::<u8>().write_bytes(0, Self::SLOT_BYTES);
                }
            }
        }
        // SAFETY: all slots are cleared, and no other thread has the extent.
        unsafe { alloc::release(self.home, Self::SLOT_BYTES) };
    }
}
