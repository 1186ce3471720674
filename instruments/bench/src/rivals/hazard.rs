//! `haphazard`: hazard pointers in the global domain. A thread makes its hazard pointer once and reuses it,
//! as in the crate's example.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_utils::CachePadded;
use haphazard::{AtomicPtr, Domain, HazardPointer};

use super::spin_or_yield;
use crate::case::{Background, Missing, Setting, Spacing, Subject, Worker};
use crate::work::retire::{Item, Reclaim, retiring};

struct Read {
    cell: CachePadded<AtomicPtr<u64>>,
}

pub(crate) fn read(_: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(Box::new(Read { cell: CachePadded::new(AtomicPtr::from(Box::new(1))) }))
}

impl Subject for Read {
    fn worker(&self, _: usize) -> Worker<'_> {
        let mut hazard = HazardPointer::new();
        Box::new(move |ops| {
            let mut sum = 0u64;
            for _ in 0..ops {
                sum = sum
                    .wrapping_add(*self.cell.safe_load(&mut hazard).expect("the pointer of a cell is null"));
                hazard.reset_protection();
            }
            black_box(sum);
        })
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        retire_last(&mut self.cell);
    }
}

/// Retires the content of a cell that is being dropped.
fn retire_last<T: Send>(cell: &mut CachePadded<AtomicPtr<T>>) {
    // SAFETY: `swap_ptr` requires a valid pointer or null; this one is null.
    if let Some(last) = unsafe { cell.swap_ptr(std::ptr::null_mut()) } {
        // SAFETY: `retire` requires that the object is never loaded again and was not retired before. The
        // cell is null and is being dropped. Only objects that leave a cell are retired, and this one was in
        // it.
        unsafe { last.retire() };
    }
}

/// An object that reports its drop.
struct Node {
    value: u64,
    gone: Arc<AtomicBool>,
}

impl Node {
    fn new() -> Box<Node> {
        Box::new(Node { value: 1, gone: Arc::new(AtomicBool::new(false)) })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `worker`.
        self.gone.store(true, Ordering::Release);
    }
}

struct Wait {
    cell: CachePadded<AtomicPtr<Node>>,
    spacing: Spacing,
}

pub(crate) fn wait(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    let cell = CachePadded::new(AtomicPtr::from(Node::new()));
    Ok(Box::new(Wait { cell, spacing: setting.spacing() }))
}

impl Subject for Wait {
    fn worker(&self, _: usize) -> Worker<'_> {
        Box::new(move |ops| {
            for _ in 0..ops {
                self.spacing.before();
                let old = self.cell.swap(Node::new()).expect("the pointer of a cell is null");
                // SAFETY: the dereference requires a live object. It is freed only after it is retired, which
                // is done below, and only by this thread, since one swap returns it.
                let gone = Arc::clone(unsafe { &old.as_ref().as_ref().gone });
                // SAFETY: `retire` requires two things. The object is never loaded again: the swap took it
                // out of the cell. It was not retired before: one swap returns it.
                unsafe { old.retire() };
                let mut tries = 0;
                // Acquire: pairs with the Release in `Node::drop`.
                while !gone.load(Ordering::Acquire) {
                    Domain::global().eager_reclaim();
                    spin_or_yield(&mut tries);
                }
            }
        })
    }

    fn background(&self, run: &Background) {
        let mut hazard = HazardPointer::new();
        let mut sum = 0u64;
        run.read(|| {
            for _ in 0..64 {
                sum = sum.wrapping_add(
                    self.cell.safe_load(&mut hazard).expect("the pointer of a cell is null").value,
                );
                hazard.reset_protection();
            }
        });
        black_box(sum);
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        retire_last(&mut self.cell);
    }
}

struct Slots(Vec<CachePadded<AtomicPtr<Item>>>);

pub(crate) fn retire(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    retiring::<Slots>(setting)
}

impl Reclaim for Slots {
    type Handle<'a> = HazardPointer<'static>;

    fn new(slots: usize, mut fill: impl FnMut() -> Box<Item>) -> Slots {
        Slots((0..slots).map(|_| CachePadded::new(AtomicPtr::from(fill()))).collect())
    }

    fn handle(&self) -> HazardPointer<'static> {
        HazardPointer::new()
    }

    #[inline]
    fn exchange(
        &self,
        hazard: &mut HazardPointer<'static>,
        own: usize,
        other: usize,
        fresh: Box<Item>,
    ) -> u64 {
        let value = self.0[other].safe_load(hazard).expect("the pointer of a cell is null").value;
        hazard.reset_protection();
        let old = self.0[own].swap(fresh).expect("the pointer of a cell is null");
        // SAFETY: as in `Wait::worker`: the object left its only cell, and one swap returned it.
        unsafe { old.retire() };
        value
    }

    fn flush(&self, _: &mut HazardPointer<'static>) {
        Domain::global().eager_reclaim();
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for slot in &mut self.0 {
            retire_last(slot);
        }
    }
}
