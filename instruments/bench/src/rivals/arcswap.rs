//! `arc-swap`: a shared pointer to a reference-counted value, read through a debt list.

use std::hint::black_box;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::case::{Make, Missing, Setting, Subject, Worker};
use crate::objects::{Field, Probe};
use crate::work::call::{Reach, calling};
use crate::work::replace::{Replace, Replaced, checked};

struct Read {
    cell: ArcSwap<u64>,
}

pub(crate) fn read(_: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(Box::new(Read { cell: ArcSwap::from_pointee(1) }))
}

impl Subject for Read {
    fn worker(&self, _: usize) -> Worker<'_> {
        drop(self.cell.load());
        Box::new(|ops| {
            let mut sum = 0u64;
            for _ in 0..ops {
                sum = sum.wrapping_add(**self.cell.load());
            }
            black_box(sum);
        })
    }
}

/// In a box, since the value of an `ArcSwap` must be sized.
pub(crate) struct Swapped(ArcSwap<Box<dyn Probe>>);

pub(crate) const CALL: Make = calling::<Swapped>();

impl Reach for Swapped {
    fn new(object: Field) -> Swapped {
        Swapped(ArcSwap::from_pointee(Box::new(object)))
    }

    #[inline(always)]
    fn get(&self, n: u64) -> u64 {
        self.0.load().get(n)
    }
}

impl Replace for Swapped {
    #[inline]
    fn calls(&self, count: u64) {
        checked(count, |n| black_box(self).get(n));
    }

    fn replace(&self) -> Result<Replaced, String> {
        // Never blocks: guards of the old object pay its debt, and the last of them drops it.
        self.0.store(Arc::new(Box::new(Field::new())));
        Ok(Replaced::PLAIN)
    }
}
