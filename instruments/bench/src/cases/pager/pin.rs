//! `pin`: a resident page is pinned for reading, its number read, and unpinned.
//!
//! | subject | a pin goes through |
//! |---|---|
//! | `squall-cache-*` | a file cache in this form |
//! | `squall-region-*` | a region in this form, and a distributed cache |
//! | `squall-process-*` | a list of four regions in this form, and all else distributed |
//! | `squall-process-locked` | likewise, with a shared list and a lock around each lookup, as in K42 |
//! | `squall-probe-*` | a distributed region, and a trivial or a shared cache; in the variant `own` alone |
//! | `squall-map-get` | no page: a lookup of the number in a map of as many entries |
//!
//! No byte of a page is read. Its cache misses would be those of the page alone, equal for all subjects.
//!
//! In the variant `own` each thread pins pages of its own, in the other one all threads pin all pages.
//!
//! - I1. Each pin returns the number of the page that was wanted.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::case::{Case, Make, Missing, Scale, Setting, Spec, Subject, Worker, variant};
use crate::ours_pager::{CachePins, MapGet, ProbePins, ProcessPins, RegionPins};
use crate::rivals::frames::{LockedFrames, PageDb};

pub(in super::super) static CASE: Case = Case {
    name: "pin",
    about: "a resident page pinned for reading and unpinned, in a cache that all threads use",
    variants: &[
        variant("10k", "10,000 pages, of which each thread pins all"),
        variant("own", "100 pages for each thread, which it alone pins"),
    ],
    subjects: &[
        Spec::ours("squall-cache-shared", pinning::<CachePins<b's'>>()),
        Spec::ours("squall-cache-distributed", pinning::<CachePins<b'd'>>()),
        Spec::ours("squall-cache-partitioned", pinning::<CachePins<b'p'>>()),
        Spec::ours("squall-region-shared", pinning::<RegionPins<b's'>>()),
        Spec::ours("squall-region-distributed", pinning::<RegionPins<b'd'>>()),
        Spec::ours("squall-region-quiescent", pinning::<RegionPins<b'q'>>()),
        Spec::ours("squall-process-locked", pinning::<ProcessPins<b'l'>>()),
        Spec::ours("squall-process-shared", pinning::<ProcessPins<b's'>>()),
        Spec::ours("squall-process-distributed", pinning::<ProcessPins<b'd'>>()),
        Spec::ours("squall-probe-shared", probing::<ProbePins<false>>()),
        Spec::ours("squall-probe-trivial", probing::<ProbePins<true>>()),
        Spec::ours("squall-map-get", pinning::<MapGet>()),
        Spec::rival("locked-frames", pinning::<LockedFrames>()),
        Spec::rival("page-db", pinning::<PageDb>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2, 8],
};

/// The pages of a subject.
pub(crate) struct Scope {
    pub(crate) pages: u64,
    /// Whether each thread has its own.
    is_own: bool,
}

impl Scope {
    /// The pages of a thread in the variant `own`.
    pub(crate) const PART: u64 = 100;
    /// The pages of a subject. Fewer are counted, since an emulator makes them resident.
    const PAGES: (u64, u64) = if cfg!(test) { (400, 400) } else { (10_000, 1_000) };

    fn of(setting: &Setting) -> Scope {
        let is_own = setting.variant.name == "own";
        let own = Scope::PART * (setting.threads as u64).next_multiple_of(4);
        let all = if setting.counted { Scope::PAGES.1 } else { Scope::PAGES.0 };
        Scope { pages: if is_own { own } else { all }, is_own }
    }

    /// The first page of a thread, and the number of its pages.
    fn of_thread(&self, thread: usize) -> (u64, u64) {
        if self.is_own { (thread as u64 * Scope::PART, Scope::PART) } else { (0, self.pages) }
    }
}

/// Resident pages.
pub(crate) trait Pinned: Send + Sync {
    fn new(scope: &Scope) -> Self
    where
        Self: Sized;

    /// The address under which a page is pinned.
    fn address(&self, page: u64) -> u64 {
        page
    }

    /// Pins the page at this address, and returns its number.
    fn pin(&self, address: u64) -> u64;
}

/// Pins of a round, each of a page and the number that it must return.
const DRAWN: usize = if cfg!(test) { 1 << 9 } else { 1 << 15 };

struct Pinning<P> {
    pinned: CachePadded<P>,
    rows: Vec<Vec<(u64, u64)>>,
    scope: Scope,
    wrong: CachePadded<AtomicU64>,
}

/// Makes the subject that pins pages of `P`.
const fn pinning<P: Pinned + 'static>() -> Make {
    |setting| Ok(Box::new(Pinning::<P>::new(setting)))
}

/// Like [`pinning`], for the variant `own` alone.
const fn probing<P: Pinned + 'static>() -> Make {
    |setting| {
        if setting.variant.name != "own" {
            return Err(Missing::no_part());
        }
        Ok(Box::new(Pinning::<P>::new(setting)))
    }
}

impl<P: Pinned> Pinning<P> {
    fn new(setting: &Setting) -> Pinning<P> {
        let scope = Scope::of(setting);
        let pinned = P::new(&scope);
        let row = |thread: usize| {
            let (first, pages) = scope.of_thread(thread);
            let mut state = thread as u64;
            let draw = |_| {
                // The upper bits of a linear congruence, which are good enough to draw pages.
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let page = first + (state >> 33) % pages;
                (pinned.address(page), page)
            };
            (0..DRAWN).map(draw).collect()
        };
        let rows = (0..setting.threads).map(row).collect();
        Pinning { pinned: CachePadded::new(pinned), rows, scope, wrong: CachePadded::default() }
    }
}

impl<P: Pinned> Subject for Pinning<P> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let (first, pages) = self.scope.of_thread(thread);
        // A representative learns at the first lookup. It may give way to a thread that looks up too, so each
        // page is looked up twice.
        for page in (first..first + pages).chain(first..first + pages) {
            self.pinned.pin(self.pinned.address(page));
        }
        let (row, mut at) = (&self.rows[thread], 0);
        Box::new(move |ops| {
            // In a register, since the memory of the closure may share a line with another thread's.
            let (mut here, mut wrong) = (at, 0);
            for _ in 0..ops {
                let (address, page) = row[here & (DRAWN - 1)];
                wrong += u64::from(self.pinned.pin(address) != page);
                here += 1;
            }
            at = here;
            if wrong > 0 {
                self.wrong.fetch_add(wrong, Ordering::Relaxed);
            }
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        match self.wrong.load(Ordering::Relaxed) {
            0 => Ok(()),
            wrong => Err(format!("{wrong} pins had another page than the wanted one")),
        }
    }
}
