//! A value of any type for each VP, made where and when it is first needed.
//!
//! Each part has a slot: a pointer to the VP's value, a claim on the room behind it, and that room. A maker first makes
//! the value, then claims the room by an exchange; a maker that comes too late for the room uses the heap. Then the
//! pointer is set by compare-exchange, and the one whose exchange fails drops its own value.
//!
//! - I1. A slot's pointer goes from null to a fully built value, once, and back only in `drop`.
//! - I2. The room is written by the one thread that won the claim, before it publishes; its value, if published, is at
//!   the room's address, every other published value in a `Box`.
//! - I3. Nobody ever waits: a maker that stalls holds up nothing but its own value.
//!
//! Not promised: that a value is only used on its VP. Values are shared: `T: Sync`.
//! Source: lazily made representatives (Tornado §3.3; PR-02), with the winner chosen by compare-exchange.

use super::alloc::{self, ALIGN_MAX, OutOfMemory, SHIFT};
use crate::vp::Vp;
use squall_sys::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

/// Values above this many bytes go to the heap, with no room in the parts.
const ROOM_BYTES_MAX: usize = 4096;

/// A part's slot, of which the allocator's zeros are the empty state.
#[repr(C)]
struct Slot<T> {
    value: AtomicPtr<T>,
    claimed: AtomicBool,
    /// Used by whoever claimed it; absent (see `PerVp::SLOT_BYTES`) where values go to the heap.
    room: MaybeUninit<T>,
}

/// A `T` for each VP that asked for one.
///
/// # Cost
/// The room of a slot in each VP's part if `T` has at most 4 KiB, with memory only where it was touched, near its VP;
/// otherwise a pointer, and the heap. [`here`](PerVp::here) is three loads. Progress: wait-free; making is lock-free.
/// # Example
/// ```
/// use squall_machine::{Vp, pervp::PerVp};
/// let names = PerVp::new(|vp: Vp| format!("the one of {vp}"));
/// assert!(names.here().starts_with("the one of VP"));
/// assert_eq!(names.iter().count(), 1);
/// ```
///
/// Values are shared among threads:
/// ```compile_fail,E0277
/// let cells = squall_machine::pervp::PerVp::new(|_| std::cell::Cell::new(0));
/// ```
pub struct PerVp<T: Send + Sync> {
    home: NonNull<u8>,
    init: Box<dyn Fn(Vp) -> T + Send + Sync>,
    values: PhantomData<T>,
}

// SAFETY: 1. values are shared among threads and dropped by whichever drops us: `T: Send + Sync`. 2. `init` is both.
// 3. The slots are accessed atomically, the rooms as value/I2 says.
unsafe impl<T: Send + Sync> Send for PerVp<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for PerVp<T> {}

impl<T: Send + Sync> PerVp<T> {
    const HAS_ROOM: bool = size_of::<T>() <= ROOM_BYTES_MAX && align_of::<T>() <= ALIGN_MAX;
    const SLOT_BYTES: usize =
        if Self::HAS_ROOM { size_of::<Slot<T>>() } else { 2 * size_of::<AtomicPtr<T>>() };
    const SLOT_ALIGN: usize = if Self::HAS_ROOM { align_of::<Slot<T>>() } else { align_of::<AtomicPtr<T>>() };

    /// No values yet; `init` makes that of a VP when it is first asked for there.
    ///
    /// `init` may run twice for a VP, by two threads at once; one of the two values is then dropped.
    ///
    /// # Panics
    /// If there is no address space left; see [`try_new`](PerVp::try_new).
    pub fn new(init: impl Fn(Vp) -> T + Send + Sync + 'static) -> PerVp<T> {
        Self::try_new(init).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`new`](PerVp::new).
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no address space left.
    pub fn try_new(init: impl Fn(Vp) -> T + Send + Sync + 'static) -> Result<PerVp<T>, OutOfMemory> {
        let home = alloc::allocate(Self::SLOT_BYTES, Self::SLOT_ALIGN.max(8))?;
        Ok(PerVp { home, init: Box::new(init), values: PhantomData })
    }

    #[inline(always)]
    fn slot(&self, vp: Vp) -> NonNull<Slot<T>> {
        // SAFETY: `vp` is below the limit (callers see to it), so there is a part for it in the chunk.
        unsafe { self.home.byte_add(vp.index() << SHIFT) }.cast()
    }

    /// The pointer of a slot. Not a reference to the whole slot: its room may be absent, or being written.
    #[inline(always)]
    fn pointer(&self, vp: Vp) -> &AtomicPtr<T> {
        // SAFETY: the slot's first field; zeros are a null pointer; accessed atomically only, and live as long as we.
        unsafe { &(*self.slot(vp).as_ptr()).value }
    }

    /// The value of the VP where the thread is, made now if there is none.
    ///
    /// # Panics
    /// If `init` does; nothing is then stored.
    #[inline]
    pub fn here(&self) -> &T {
        let vp = Vp::current();
        // Acquire: pairs with the Release exchange in `make`. If we see the pointer, the value is fully built.
        match NonNull::new(self.pointer(vp).load(Ordering::Acquire)) {
            // SAFETY: a published value, good and only shared until we are dropped (value/I1).
            Some(value) => unsafe { value.as_ref() },
            None => self.make(vp),
        }
    }

    /// The value of `vp`, if it has been made.
    #[inline]
    pub fn get(&self, vp: Vp) -> Option<&T> {
        if vp.index() >= alloc::parts() {
            return None;
        }
        // Acquire: as in `here`.
        let value = NonNull::new(self.pointer(vp).load(Ordering::Acquire))?;
        // SAFETY: a published value, good and only shared until we are dropped (value/I1).
        Some(unsafe { value.as_ref() })
    }

    /// The values that have been made, by VP.
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
        // Release: pairs with the Acquire loads of readers. Acquire: the other's value, if it was first.
        match self.pointer(vp).compare_exchange(
            ptr::null_mut(),
            value.as_ptr(),
            Ordering::Release,
            Ordering::Acquire,
        ) {
            // SAFETY: the value we have just published (value/I1).
            Ok(_) => unsafe { value.as_ref() },
            Err(winner) => {
                // SAFETY: 1. our own value was not published, so it is ours to drop, and lies where we put it. 2. The
                // winner's is published; a failed exchange with null saw something else.
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
        // Relaxed: the claim only chooses one owner; the value is published by the pointer.
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

/// Gives the extent back when it goes, also if dropping a value panicked (the values after it are then leaked, and the
/// extent with them).
impl<T: Send + Sync> Drop for PerVp<T> {
    fn drop(&mut self) {
        for vp in (0..alloc::parts() as u32).map(Vp::new) {
            let slot = self.slot(vp).as_ptr();
            // Relaxed, both: we are alone.
            let value = self.pointer(vp).load(Ordering::Relaxed);
            // SAFETY: the slot has this field if there is room; accessed atomically only.
            let claimed = Self::HAS_ROOM && unsafe { &(*slot).claimed }.load(Ordering::Relaxed);
            // SAFETY: 1. we are alone. 2. A published value lies in the room exactly if it has the room's address,
            // else in a `Box` (value/I2). 3. An unpublished one was dropped by its maker. 4. The slot is then cleared
            // by writes alone: parts of a room may never have been initialised.
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
        // SAFETY: all slots are cleared, and nobody else has the extent.
        unsafe { alloc::release(self.home, Self::SLOT_BYTES) };
    }
}
