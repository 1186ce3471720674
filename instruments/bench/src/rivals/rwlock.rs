//! `std-rwlock`: std's reader-writer lock around every call, so that the object can be replaced under it.

use std::sync::RwLock;

use crate::objects::{Field, Probe};
use crate::work::call::Reach;
use crate::work::replace::{Replace, Replaced, checked};

pub(crate) struct Locked(RwLock<Box<dyn Probe>>);

impl Reach for Locked {
    fn new(object: Field) -> Locked {
        Locked(RwLock::new(Box::new(object)))
    }

    #[inline(always)]
    fn get(&self, n: u64) -> u64 {
        self.0.read().expect("a thread panicked under the lock").get(n)
    }
}

impl Replace for Locked {
    #[inline]
    fn calls(&self, count: u64) {
        checked(count, |n| std::hint::black_box(self).get(n));
    }

    fn replace(&self) -> Result<Replaced, String> {
        let new: Box<dyn Probe> = Box::new(Field::new());
        let old = std::mem::replace(&mut *self.0.write().expect("a thread panicked under the lock"), new);
        // Drops outside the lock.
        drop(old);
        Ok(Replaced::PLAIN)
    }
}
