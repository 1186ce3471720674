//! `memclone`: each thread touches new memory, page after page. A touch is a fault: the page is found absent,
//! gets memory filled with zeros, is pinned for writing, and its first byte is written.
//!
//! - Variant `own`: each thread has a region with a cache of its own, in one process.
//! - Variant `one`: all threads touch one region with one cache, each its own pages.
//!
//! The subject `squall-LRMC` has four letters for the forms of four objects: the list of regions of the
//! process (L), the region (R), the page manager (M), and the file cache (C). `s` is shared, `d` distributed,
//! `q` quiescent, and `p` partitioned. `l` is a shared list with a lock around each lookup, as in K42.
//! Squall's own shared list is read without a lock.
//!
//! The rival `kernel-anon` maps anonymous memory, and touches it.
//!
//! - I1. After a run or a slice, as many pages are resident as were touched.
//!
//! Source: Appavoo 2005, figures 4.3, 4.5, 4.11 and 4.18.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use crossbeam_utils::CachePadded;
use squall::objects::pages::PagePool;
use squall::pager::cache::{FileCache, PAGE_BYTES};
use squall::pager::region::SharedCache;
use squall::{Handle, Owned};

use crate::case::{Case, Missing, Scale, Setting, SliceEnd, Spec, Subject, Worker, variant};
use crate::ours_pager::{Forms, Space};
use crate::rivals::kernel_pages::Anonymous;

/// Subjects, each named by its forms.
macro_rules! forms {
    ($($name:literal)*) => {
        &[$(Spec::ours($name, cloning::<{ Forms::code($name) }>),)* Spec::rival("kernel-anon", kernel)]
    };
}

pub(in super::super) static CASE: Case = Case {
    name: "memclone",
    about: "the first touch of a page of new memory",
    variants: &[
        variant("own", "each thread has a region and a cache of its own"),
        variant("one", "all threads touch one region with one cache"),
    ],
    subjects: forms!(
        "squall-sssp" "squall-ssdp" "squall-sdsp" "squall-sddp" "squall-dssp" "squall-dsdp" "squall-ddsp"
        "squall-dddp" "squall-ssss" "squall-ssds" "squall-sdss" "squall-sdds" "squall-dsss" "squall-dsds"
        "squall-ddss" "squall-ddds" "squall-dqdp" "squall-dddd" "squall-ldsp"
        "squall-lddp"
    ),
    scale: Scale::Work,
    slice_ms: (10, 4),
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2],
};

/// The logarithm of the pages of each thread, and of a partition. A slice touches far fewer.
const SHIFT: u32 = 20;
const PAGES: u64 = 1 << SHIFT;

/// The memory of a slice.
struct Memory {
    space: Space,
    /// The address and the cache of the region of all, or the caches of all threads.
    start: u64,
    caches: Mutex<Vec<SharedCache>>,
}

impl Memory {
    fn new(forms: &Forms, pool: Handle<dyn PagePool>, one_of: Option<usize>) -> Memory {
        let space = Space::new(forms, pool);
        let one = one_of.map(|threads| space.map(PAGES * threads as u64, pool));
        let (start, caches) = one.map_or((0, Vec::new()), |(start, cache)| (start, vec![cache]));
        Memory { space, start, caches: Mutex::new(caches) }
    }

    fn resident(&self) -> u64 {
        let caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.iter().map(|cache| cache.sensors().resident as u64).sum()
    }
}

struct Cloning {
    forms: Forms,
    /// The number of threads, if they touch one region.
    one_of: Option<usize>,
    memory: CachePadded<RwLock<Memory>>,
    /// The pages that were touched.
    touched: CachePadded<AtomicU64>,
    wrong: Mutex<Option<String>>,
    /// Dropped last.
    pool: Owned<dyn PagePool>,
}

fn cloning<const FORMS: u32>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    let is_own = setting.variant.name == "own";
    let [_, region, _, cache] = FORMS.to_be_bytes();
    if is_own && (region, cache) != (b'd', b'p') {
        return Err(Missing::no_part());
    }
    let forms = Forms::of(FORMS, SHIFT);
    let (pool, one_of) = (forms.page_manager(), (!is_own).then_some(setting.threads));
    let memory = Memory::new(&forms, pool.handle(), one_of);
    Ok(Box::new(Cloning {
        forms,
        one_of,
        memory: CachePadded::new(RwLock::new(memory)),
        touched: CachePadded::default(),
        wrong: Mutex::default(),
        pool,
    }))
}

impl Cloning {
    fn check_pages(&self, memory: &Memory) -> Result<(), String> {
        let (touched, resident) = (self.touched.load(Ordering::Relaxed), memory.resident());
        if touched == resident {
            Ok(())
        } else {
            Err(format!("{touched} pages were touched, and {resident} are resident"))
        }
    }
}

impl Subject for Cloning {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let memory = self.memory.read().unwrap_or_else(PoisonError::into_inner);
        let start = if self.one_of.is_some() {
            memory.start + thread as u64 * PAGES * PAGE_BYTES as u64
        } else {
            let (start, cache) = memory.space.map(PAGES, self.pool.handle());
            memory.caches.lock().unwrap_or_else(PoisonError::into_inner).push(cache);
            start
        };
        // Makes the representatives of the thread.
        memory.space.touch(start);
        self.touched.fetch_add(1, Ordering::Relaxed);
        drop(memory);
        let mut next = start;
        Box::new(move |ops| {
            let memory = self.memory.read().unwrap_or_else(PoisonError::into_inner);
            // In a register, since the memory of the closure may share a line with another thread's.
            let mut here = next;
            for _ in 0..ops {
                here += PAGE_BYTES as u64;
                memory.space.touch(here);
            }
            next = here;
            drop(memory);
            self.touched.fetch_add(ops, Ordering::Relaxed);
        })
    }

    fn end_slice(&self, _: u64) -> SliceEnd {
        let mut memory = self.memory.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(why) = self.check_pages(&memory) {
            *self.wrong.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
        *memory = Memory::new(&self.forms, self.pool.handle(), self.one_of);
        self.touched.store(0, Ordering::Relaxed);
        drop(memory);
        // The pages return to the pool before the next slice.
        squall_rcu::barrier().expect("the grace period failed");
        SliceEnd::default()
    }

    fn check(&self, _: u64) -> Result<(), String> {
        if let Some(why) = self.wrong.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(why);
        }
        self.check_pages(&self.memory.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// `kernel-anon`. A thread maps as many pages as it touches.
struct Kernel;

fn kernel(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    if setting.counted {
        return Err(Missing("an emulator does not count the kernel".to_owned()));
    }
    Ok(Box::new(Kernel))
}

impl Subject for Kernel {
    fn worker(&self, _: usize) -> Worker<'_> {
        let mut kept = Vec::new();
        Box::new(move |ops| {
            let mut memory = Anonymous::new(ops as usize * PAGE_BYTES).expect("the kernel maps memory");
            memory.bytes().chunks_exact_mut(PAGE_BYTES).for_each(|page| page[0] = 1);
            // The memory is unmapped after the slice, when the worker is dropped.
            kept.push(memory);
        })
    }
}
