//! Allocations of the handler of faults, and faults inside the allocator. A program of its own, since it
//! counts all allocations of a thread.
#![cfg(all(target_os = "linux", not(any(loom, miri, squall_global_alloc))))]

#[path = "pages/memory.rs"]
#[allow(dead_code, reason = "other test programs use all of it")]
mod memory;

use memory::State;
use squall_core::Owned;
use squall_machine::ClusterSize;
use squall_objects::pages::{self, PagePool, Supply};
use squall_pager::cache::{self, FileCache, FileCacheExt, Form, PAGE_BYTES};
use squall_pager::hat::{self, MapError, Mapped};
use squall_pager::region::{self, Mapping, Region};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

thread_local! {
    /// Number of allocations of this thread.
    static COUNT: Cell<usize> = const { Cell::new(0) };
    /// A word that the next call of the allocator changes.
    static TOUCHED: Cell<*const AtomicU64> = const { Cell::new(ptr::null()) };
}

/// The system's allocator, with a count. It touches a word of the test if there is one.
struct Touching;

impl Touching {
    fn touch() {
        // The handler allocates too. It finds no word.
        let word = TOUCHED.replace(ptr::null());
        // SAFETY: null, or a word of a mapping that the test keeps.
        if let Some(word) = unsafe { word.as_ref() } {
            word.fetch_add(1, Relaxed);
        }
    }
}

// SAFETY: the system's allocator, with a count.
unsafe impl GlobalAlloc for Touching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        Touching::touch();
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        Touching::touch();
        // SAFETY: passed on.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Touching = Touching;

/// A mapped file of some pages, all of which fit into memory.
struct Program {
    mapped: Mapped,
    cache: Arc<Owned<dyn FileCache>>,
    _region: Owned<dyn Region>,
    _memory: Owned<dyn PagePool>,
}

/// Keeps the thread on its processor, which has representatives of its own.
fn stay() {
    // SAFETY: the calls read and write a set of our own.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
    }
}

/// Maps a file. Prints the reason if the system refuses it.
fn program(form: Form) -> Option<Program> {
    stay();
    let memory = pages::distributed(Supply::system(PAGES));
    let cache = Arc::new(cache::mappable(form, State::with_pages(PAGES).source(), memory.handle()).unwrap());
    let region = region::with_form(region::Form::Distributed, 0, Mapping::new(cache.clone()));
    // SAFETY: these tests hold no lock while they touch the memory. Their allocator touches it outside of its
    // own code, and may be called again there.
    match unsafe { hat::map(region.handle()) } {
        Ok(mapped) => Some(Program { mapped, cache, _region: region, _memory: memory }),
        Err(error @ MapError::Refused(_)) => {
            println!("SKIP: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const PAGES: usize = 64;
const FORMS: [Form; 3] =
    [Form::Shared, Form::Distributed(ClusterSize::Cpu), Form::Partitioned { partitions: 4, shift: 0 }];

impl Program {
    /// Returns the first word of a page.
    fn word(&self, page: usize) -> &AtomicU64 {
        assert!(page * PAGE_BYTES < self.mapped.len());
        // SAFETY: an aligned word of the mapping, which other threads access as a word too.
        unsafe { AtomicU64::from_ptr(self.mapped.as_ptr().as_ptr().add(page * PAGE_BYTES).cast()) }
    }

    /// Returns the number of allocations during a touch of a page.
    fn touch(&self, page: usize, touch: impl FnOnce(&AtomicU64)) -> usize {
        let before = COUNT.get();
        touch(self.word(page));
        COUNT.get() - before
    }
}

#[test]
fn a_fault_on_a_resident_page_allocates_nothing() {
    for form in FORMS {
        let Some(program) = program(form) else { return };
        for page in 0..PAGES {
            // The pins bring the page in, and make the replica of this processor. The first fault makes
            // the state of the thread.
            (0..2).for_each(|_| drop(program.cache.pin_mut(page as u64).unwrap()));
            drop(program.cache.pin(page as u64).unwrap());
            if page == 0 {
                program.word(page).fetch_add(1, Relaxed);
            }
        }
        for page in 1..PAGES {
            let shown = program.touch(page, |word| _ = word.load(Relaxed));
            let opened = program.touch(page, |word| word.store(1, Relaxed));
            assert_eq!((shown, opened), (0, 0), "{form:?}, page {page}");
        }
        // A sync write-protects the pages.
        assert!(program.cache.sync().unwrap() > 0);
        for page in 1..PAGES {
            assert_eq!(program.touch(page, |word| word.store(2, Relaxed)), 0, "{form:?}, page {page}");
        }
    }
}

#[test]
fn a_fault_on_an_absent_page_allocates_its_descriptor_and_its_place_in_the_index() {
    for form in FORMS {
        let Some(program) = program(form) else { return };
        let counts: Vec<usize> =
            (0..PAGES).map(|page| program.touch(page, |word| _ = word.load(Relaxed))).collect();
        // Now and then a table grows, or the pool takes a chunk.
        let most = counts.iter().filter(|count| (3..=4).contains(*count)).count();
        assert!(most > PAGES / 2, "{form:?}: {counts:?}");
    }
}

#[test]
fn pages_come_in_inside_the_allocator() {
    for form in FORMS {
        let Some(program) = program(form) else { return };
        for page in 0..PAGES {
            TOUCHED.set(program.word(page));
            let block = Box::new(page);
            assert!(TOUCHED.replace(ptr::null()).is_null(), "the allocation touched no page");
            // By now the page may be write-protected.
            program.cache.sync().unwrap();
            TOUCHED.set(program.word(page));
            drop(std::hint::black_box(block));
            assert!(TOUCHED.replace(ptr::null()).is_null(), "the deallocation touched no page");
            assert_eq!(program.word(page).load(Relaxed), 2, "{form:?}, page {page}");
        }
    }
}
