//! `hazarc`: a shared pointer to a reference-counted value, protected by hazard pointers.

use std::hint::black_box;

use hazarc::AtomicArc;

use crate::case::Make;
use crate::objects::{Field, Probe};
use crate::work::call::{Reach, calling};
use crate::work::replace::{Replace, Replaced, checked};

/// In a box, since the value of an `AtomicArc` must be sized.
pub(crate) struct Swapped(AtomicArc<Box<dyn Probe>>);

pub(crate) const CALL: Make = calling::<Swapped>();

impl Reach for Swapped {
    fn new(object: Field) -> Swapped {
        Swapped(AtomicArc::from(Box::new(object) as Box<dyn Probe>))
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
        // Never blocks: a guard of the old object gets a reference count, and the last of them drops it.
        let object: Box<dyn Probe> = Box::new(Field::new());
        self.0.store(object.into());
        Ok(Replaced::PLAIN)
    }
}
