//! `arc-swap`: a shared pointer to a reference-counted value, read through a debt list.

use std::hint::black_box;

use arc_swap::ArcSwap;

use crate::case::{Missing, Setting, Subject, Worker};

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
