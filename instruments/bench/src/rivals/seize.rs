//! `seize`: one collector per structure, one guard per operation, and a full batch of objects if one is to be
//! reclaimed soon.

use std::hint::black_box;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use seize::{Collector, Guard, LocalGuard, reclaim};

use super::spin_or_yield;
use crate::case::{Background, Make, Missing, Setting, Spacing, Subject, Worker};
use crate::env;
use crate::objects::{Field, Probe};
use crate::work::call::{Reach, calling};
use crate::work::retire::{Item, Reclaim, retiring};

struct Shared {
    collector: Collector,
    cell: CachePadded<AtomicPtr<u64>>,
}

impl Shared {
    fn new() -> Shared {
        let cell = CachePadded::new(AtomicPtr::new(Box::into_raw(Box::new(1))));
        Shared { collector: Collector::new(), cell }
    }

    #[inline(always)]
    fn read(&self, guard: &LocalGuard<'_>) -> u64 {
        // Acquire: would pair with the Release of a writer; a reader of a live structure needs it.
        let word = guard.protect(&self.cell, Ordering::Acquire);
        // SAFETY: the dereference requires a live, aligned word. The cell is made from a box and is never
        // replaced before `Shared` is dropped.
        unsafe { *word }
    }

    fn read_times(&self, ops: u64) {
        let mut sum = 0u64;
        for _ in 0..ops {
            sum = sum.wrapping_add(self.read(&self.collector.enter()));
        }
        black_box(sum);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `from_raw` requires a pointer from `into_raw` that is freed once. `new` made it so, and by
        // `&mut self` no other thread can load it.
        drop(unsafe { Box::from_raw(*self.cell.get_mut()) });
    }
}

struct Read(Shared);

pub(crate) fn read(_: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(Box::new(Read(Shared::new())))
}

impl Subject for Read {
    fn worker(&self, _: usize) -> Worker<'_> {
        drop(self.0.collector.enter());
        Box::new(|ops| self.0.read_times(ops))
    }
}

struct Wait {
    shared: Shared,
    /// Objects retired for one wait: at least as many as threads can be active, or the batch stays.
    batch: u64,
    /// For each waiter, the number of its reclaimed objects.
    reclaimed: Vec<CachePadded<AtomicU64>>,
    spacing: Spacing,
}

pub(crate) fn wait(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    let readers_max = 2 * env::processors().len();
    let reclaimed = (0..setting.threads).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
    Ok(Box::new(Wait {
        shared: Shared::new(),
        batch: (setting.threads + readers_max) as u64,
        reclaimed,
        spacing: setting.spacing(),
    }))
}

/// Reclaims an object that is only a counter.
///
/// # Safety
/// `count` points to a live word.
unsafe fn count_one(count: *mut AtomicU64, _: &Collector) {
    // Release: pairs with the Acquire of the waiter. SAFETY: the dereference requires a live word, which is
    // this function's own condition.
    unsafe { &*count }.fetch_add(1, Ordering::Release);
}

impl Subject for Wait {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let collector = &self.shared.collector;
        drop(collector.enter());
        let count: &AtomicU64 = &self.reclaimed[thread];
        Box::new(move |ops| {
            for _ in 0..ops {
                self.spacing.before();
                let target = count.load(Ordering::Relaxed) + self.batch;
                for _ in 0..self.batch {
                    // SAFETY: `retire` requires three things. The object is unreachable, this thread does not
                    // use it afterwards, and the reclaimer may run on it at any later time. The object is the
                    // word `count`. The reclaimer only adds to it, and the loop below waits for that before
                    // the word can be dropped.
                    unsafe { collector.retire(std::ptr::from_ref(count).cast_mut(), count_one) };
                }
                collector.enter().flush();
                let mut tries = 0;
                // Acquire: pairs with the Release in `count_one`.
                while count.load(Ordering::Acquire) < target {
                    spin_or_yield(&mut tries);
                }
            }
        })
    }

    fn background(&self, run: &Background) {
        run.read(|| self.shared.read_times(64));
    }
}

struct Slots {
    collector: Collector,
    slots: Vec<CachePadded<AtomicPtr<Item>>>,
}

pub(crate) fn retire(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    retiring::<Slots>(setting)
}

impl Reclaim for Slots {
    type Handle<'a> = ();

    fn new(slots: usize, mut fill: impl FnMut() -> Box<Item>) -> Slots {
        let slots = (0..slots).map(|_| CachePadded::new(AtomicPtr::new(Box::into_raw(fill())))).collect();
        Slots { collector: Collector::new(), slots }
    }

    fn handle(&self) {
        drop(self.collector.enter());
    }

    #[inline]
    fn exchange(&self, _: &mut (), own: usize, other: usize, fresh: Box<Item>) -> u64 {
        let guard = self.collector.enter();
        // Acquire: pairs with the release half of the swap below, of the other thread.
        let seen = guard.protect(&self.slots[other], Ordering::Acquire);
        // SAFETY: a slot always holds an item from a box. An item that leaves its slot is retired to this
        // collector, which frees it only after every guard of that time is gone.
        let value = unsafe { (*seen).value };
        // AcqRel: pairs with the Acquire load above, and with the previous swap on this slot.
        let old = guard.swap(&self.slots[own], Box::into_raw(fresh), Ordering::AcqRel);
        // SAFETY: `retire` requires three things. The object is unreachable: the swap took it out of its only
        // place, and one swap returns it. This thread does not use it afterwards. `boxed` is the right
        // reclaimer: the object is from a box.
        unsafe { self.collector.retire(old, reclaim::boxed) };
        value
    }

    fn flush(&self, _: &mut ()) {
        self.collector.enter().flush();
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            // SAFETY: as in `Shared::drop`: from a box, and no other thread can load it.
            drop(unsafe { Box::from_raw(*slot.get_mut()) });
        }
    }
}

/// The object of `call`, in a box, since an atomic pointer is one word.
struct Called {
    collector: Collector,
    object: AtomicPtr<Box<dyn Probe>>,
}

pub(crate) const CALL: Make = calling::<Called>();

impl Reach for Called {
    fn new(object: Field) -> Called {
        let object: Box<dyn Probe> = Box::new(object);
        Called { collector: Collector::new(), object: AtomicPtr::new(Box::into_raw(Box::new(object))) }
    }

    #[inline(always)]
    fn get(&self, n: u64) -> u64 {
        let guard = self.collector.enter();
        // Acquire: would pair with the Release of a writer, as in `Shared::read`.
        let object = guard.protect(&self.object, Ordering::Acquire);
        // SAFETY: the dereference requires a live object. The pointer is made from a box and is never
        // replaced before `Called` is dropped.
        unsafe { &*object }.get(n)
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        // SAFETY: as in `Shared::drop`: from a box, and no other thread can load it.
        drop(unsafe { Box::from_raw(*self.object.get_mut()) });
    }
}
