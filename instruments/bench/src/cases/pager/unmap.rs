//! `unmap`: the end of a region that each thread has looked up. Each thread unmaps regions of its own.
//!
//! The subjects differ in the list of regions of the process: one representative for all threads, or one for
//! each. All have one region form. Its representatives play no part, since the lookups end in the list.
//!
//! The case is counted alone. Between two unmaps the regions must be mapped and looked up again, which takes
//! longer than an unmap.
//!
//! Source: Gamsa et al. 1999, figure 5.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use squall::Owned;
use squall::objects::pages::PagePool;

use crate::case::{Case, Missing, PLAIN, Scale, Setting, Spec, Subject, Worker};
use crate::ours_pager::{Forms, Space, resident_file};

pub(in super::super) static CASE: Case = Case {
    name: "unmap",
    about: "the end of a region that each thread has looked up",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall-process-shared", unmapping::<{ Forms::code("sddp") }>),
        Spec::ours("squall-process-distributed", unmapping::<{ Forms::code("dddp") }>),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};

/// The regions of each thread.
const REGIONS: usize = 40;

struct Unmapping {
    /// The addresses of the regions of each thread.
    starts: Vec<Vec<u64>>,
    space: CachePadded<Space>,
    failed: CachePadded<AtomicU64>,
    /// Dropped last.
    _pool: Owned<dyn PagePool>,
}

fn unmapping<const FORMS: u32>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    if !setting.counted {
        return Err(Missing::only_counted());
    }
    let forms = Forms::of(FORMS, 0);
    let pool = forms.page_manager();
    let space = Space::new(&forms, pool.handle());
    let file = resident_file(&forms, 1, pool.handle());
    let of_thread = |_| (0..REGIONS).map(|_| space.map_file(&file)).collect();
    let starts = (0..setting.threads).map(of_thread).collect();
    let (space, failed) = (CachePadded::new(space), CachePadded::default());
    Ok(Box::new(Unmapping { starts, space, failed, _pool: pool }))
}

impl Subject for Unmapping {
    fn worker(&self, thread: usize) -> Worker<'_> {
        self.starts.iter().flatten().for_each(|start| self.space.look_up(*start));
        let mut own = self.starts[thread].iter();
        Box::new(move |ops| {
            let unmapped = own.by_ref().take(ops as usize).filter(|start| self.space.unmap(**start)).count();
            let failed = ops - unmapped as u64;
            if failed > 0 {
                self.failed.fetch_add(failed, Ordering::Relaxed);
            }
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        match self.failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            failed => Err(format!("{failed} unmaps failed; a thread has {REGIONS} regions")),
        }
    }
}
