//! `crossbeam-epoch`, with its default collector, pinned once per operation.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_epoch::{self as epoch, Atomic, Guard, Owned, Shared as Pointer};
use crossbeam_utils::CachePadded;

use super::spin_or_yield;
use crate::case::{Background, Make, Missing, Setting, Spacing, Subject, Worker};
use crate::objects::{Field, Mortal, Probe};
use crate::work::call::{Reach, calling};
use crate::work::lifecycle::{Live, living};
use crate::work::retire::{Item, Reclaim, retiring};

struct Shared {
    cell: CachePadded<Atomic<u64>>,
}

impl Shared {
    fn new() -> Shared {
        Shared { cell: CachePadded::new(Atomic::new(1)) }
    }

    #[inline(always)]
    fn read(&self, guard: &Guard) -> u64 {
        // Acquire: would pair with the Release of a writer; a reader of a live structure needs it.
        let shared = self.cell.load(Ordering::Acquire, guard);
        // SAFETY: `deref` requires a pointer that is not null and an object that lives as long as `guard`.
        // The cell is made with an object and is never replaced before `Shared` is dropped.
        unsafe { *shared.deref() }
    }

    fn read_times(&self, ops: u64) {
        let mut sum = 0u64;
        for _ in 0..ops {
            sum = sum.wrapping_add(self.read(&epoch::pin()));
        }
        black_box(sum);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let cell = std::mem::replace(&mut *self.cell, Atomic::null());
        // SAFETY: `into_owned` requires sole ownership: by `&mut self` no other thread can load the pointer,
        // and no guard borrows from it.
        drop(unsafe { cell.into_owned() });
    }
}

struct Read(Shared);

pub(crate) fn read(_: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(Box::new(Read(Shared::new())))
}

impl Subject for Read {
    fn worker(&self, _: usize) -> Worker<'_> {
        // Registers the thread.
        drop(epoch::pin());
        Box::new(|ops| self.0.read_times(ops))
    }
}

struct Wait(Shared, Spacing);

pub(crate) fn wait(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(Box::new(Wait(Shared::new(), setting.spacing())))
}

impl Subject for Wait {
    fn worker(&self, _: usize) -> Worker<'_> {
        drop(epoch::pin());
        let ran = Arc::new(AtomicBool::new(false));
        Box::new(move |ops| {
            for _ in 0..ops {
                self.1.before();
                ran.store(false, Ordering::Relaxed);
                let guard = epoch::pin();
                let told = Arc::clone(&ran);
                // Release: pairs with the Acquire below.
                guard.defer(move || told.store(true, Ordering::Release));
                guard.flush();
                drop(guard);
                let mut tries = 0;
                // Acquire: pairs with the Release in the deferred call.
                while !ran.load(Ordering::Acquire) {
                    // The docs of `flush` advise it for garbage that should be collected soon.
                    epoch::pin().flush();
                    spin_or_yield(&mut tries);
                }
            }
        })
    }

    fn background(&self, run: &Background) {
        run.read(|| self.0.read_times(64));
    }
}

/// The slots of `rcu-retire`.
struct Slots(Vec<CachePadded<Atomic<Item>>>);

pub(crate) const RETIRE: Make = retiring::<Slots>;

pub(crate) fn retire(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    RETIRE(setting)
}

impl Reclaim for Slots {
    type Handle<'a> = ();

    fn new(slots: usize, mut fill: impl FnMut() -> Box<Item>) -> Slots {
        Slots((0..slots).map(|_| CachePadded::new(Atomic::from(fill()))).collect())
    }

    fn handle(&self) {
        drop(epoch::pin());
    }

    #[inline]
    fn exchange(&self, _: &mut (), own: usize, other: usize, fresh: Box<Item>) -> u64 {
        let guard = epoch::pin();
        // Acquire: pairs with the release half of the swap below, of the other thread.
        let seen = self.0[other].load(Ordering::Acquire, &guard);
        // SAFETY: `deref` requires two things.
        // 1. Not null: a slot always holds an item.
        // 2. Live while `guard` is: an item that leaves its slot is destroyed by `defer_destroy` only, after
        //   every guard of that time is gone.
        let value = unsafe { seen.deref() }.value;
        // AcqRel: pairs with the Acquire load above, and with the previous swap on this slot.
        let old = self.0[own].swap(Owned::from(fresh), Ordering::AcqRel, &guard);
        // SAFETY: `defer_destroy` requires that no thread can load the pointer any more and that it is
        // destroyed once. The swap took it out of its only place, and one swap returns it.
        unsafe { guard.defer_destroy(old) };
        value
    }

    fn flush(&self, _: &mut ()) {
        epoch::pin().flush();
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for slot in &mut self.0 {
            let slot = std::mem::replace(&mut **slot, Atomic::null());
            // SAFETY: as in `Shared::drop`: sole ownership by `&mut self`.
            drop(unsafe { slot.into_owned() });
        }
    }
}

/// The object of `call`, in a box, since the target of an epoch's pointer must be sized.
struct Called(Atomic<Box<dyn Probe>>);

pub(crate) const CALL: Make = calling::<Called>();

impl Reach for Called {
    fn new(object: Field) -> Called {
        Called(Atomic::new(Box::new(object)))
    }

    #[inline(always)]
    fn get(&self, n: u64) -> u64 {
        let guard = epoch::pin();
        // Acquire: would pair with the Release of a writer, as in `Shared::read`.
        let shared = self.0.load(Ordering::Acquire, &guard);
        // SAFETY: `deref` requires a pointer that is not null and an object that lives as long as `guard`.
        // The pointer is made with an object and is never replaced before `Called` is dropped.
        unsafe { shared.deref() }.get(n)
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        let object = std::mem::replace(&mut self.0, Atomic::null());
        // SAFETY: as in `Shared::drop`: sole ownership by `&mut self`.
        drop(unsafe { object.into_owned() });
    }
}

/// A place per thread that holds its current object.
struct Places(Vec<CachePadded<Atomic<Mortal>>>);

pub(crate) const LIFECYCLE: Make = living::<Places>();

impl Live for Places {
    fn new(threads: usize) -> Places {
        Places((0..threads).map(|_| CachePadded::new(Atomic::null())).collect())
    }

    fn register(&self) {
        drop(epoch::pin());
    }

    #[inline(always)]
    fn live(&self, thread: usize, object: Mortal, n: u64) -> u64 {
        let place = &self.0[thread];
        // Release: would pair with the Acquire of another thread that calls the object.
        place.store(Owned::new(object), Ordering::Release);
        let guard = epoch::pin();
        // Acquire: would pair with the Release of a writer, as in `Shared::read`.
        let found = place.load(Ordering::Acquire, &guard);
        // SAFETY: `deref` requires a pointer that is not null and an object that lives as long as `guard`.
        // This thread stored it above, and defers its drop below, within the guard.
        let object: &dyn Probe = black_box(unsafe { found.deref() });
        let result = object.get(n);
        // AcqRel: pairs with the Acquire loads of the object's callers.
        let gone = place.swap(Pointer::null(), Ordering::AcqRel, &guard);
        // SAFETY: `defer_destroy` requires that no thread can load the pointer any more and that it is
        // destroyed once. The swap took it out of its only place, and one swap returns it.
        unsafe { guard.defer_destroy(gone) };
        result
    }

    fn flush(&self) {
        epoch::pin().flush();
    }
}
