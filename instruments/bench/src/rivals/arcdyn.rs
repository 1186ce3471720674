//! `arc-dyn`: std's reference-counted pointer to a `dyn` trait. Each clone keeps the object alive, and it
//! cannot be replaced.

use std::sync::Arc;

use crate::case::Make;
use crate::objects::{Field, Mortal, Probe};
use crate::work::call::{Reach, calling};
use crate::work::lifecycle::{Live, living};

pub(crate) struct Held(Arc<dyn Probe>);

pub(crate) const CALL: Make = calling::<Held>();

impl Reach for Held {
    fn new(object: Field) -> Held {
        Held(Arc::new(object))
    }

    #[inline(always)]
    fn get(&self, n: u64) -> u64 {
        self.0.get(n)
    }
}

struct Lives;

pub(crate) const LIFECYCLE: Make = living::<Lives>();

impl Live for Lives {
    fn new(_: usize) -> Lives {
        Lives
    }

    fn register(&self) {}

    #[inline(always)]
    fn live(&self, _: usize, object: Mortal, n: u64) -> u64 {
        let object: Arc<dyn Probe> = std::hint::black_box(Arc::new(object));
        object.get(n)
    }

    fn flush(&self) {}
}
