//! `clone-memory`: a copy of a gibibyte of memory that is changed already, and its end. No byte is copied
//! until it is written.
//!
//! | subject | an operation |
//! |---|---|
//! | `squall-mapped` | `hat::map_private` of a frozen file, and the unmapping |
//! | `squall-pinned` | `cache::copy_of` that file, and its drop |
//! | `fork` | a child of the process, which ends at once |
//!
//! `fork` copies the page tables of the memory. Huge pages are refused there, since a page of 4 KiB is the
//! unit of all subjects.
//!
//! - I1. After the operations, a clone has the bytes of its parent, and a change of it does not reach the
//!   parent.

use crate::case::{Case, Make, Scale, Spec, Subject, Worker, variant};
use crate::rivals::clones::{Clones, Fork, Mapped, Pinned};

pub(in super::super) static CASE: Case = Case {
    name: "clone-memory",
    about: "a clone of a gibibyte of memory, and its end",
    variants: &[variant("", "")],
    subjects: &[
        Spec::ours("squall-mapped", cloning::<Mapped>()),
        Spec::ours("squall-pinned", cloning::<Pinned>()),
        Spec::rival("fork", cloning::<Fork>()),
    ],
    scale: Scale::Latency,
    slice_ms: (100, 20),
    thread_range: false,
    metrics: None,
    default_threads: &[1],
};

/// The number of pages. A test has few.
const PAGES: usize = if cfg!(test) { 64 } else { 1 << 18 };

struct Cloning<C>(C);

const fn cloning<C: Clones + 'static>() -> Make {
    |_| Ok(Box::new(Cloning(C::new(PAGES)?)))
}

impl<C: Clones> Subject for Cloning<C> {
    fn worker(&self, _: usize) -> Worker<'_> {
        Box::new(|ops| (0..ops).for_each(|_| self.0.clone_once()))
    }

    fn check(&self, _: u64) -> Result<(), String> {
        let Cloning(clones) = self;
        for page in [0, PAGES / 2, PAGES - 1] {
            let (seen, after) = clones.change(page);
            let expected = page as u64 + 1;
            if (seen, after) != (expected, expected) {
                return Err(format!(
                    "page {page} has the number {expected}; a clone had {seen}, and the parent has {after} after a change of it"
                ));
            }
        }
        Ok(())
    }
}
