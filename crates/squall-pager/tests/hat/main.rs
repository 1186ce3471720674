//! Tests of mapped regions: plain loads and stores bring pages in. A program of its own, since the handler of
//! faults belongs to the process.
#![cfg(all(target_os = "linux", not(any(loom, miri))))]

#[path = "../pages/memory.rs"]
#[allow(dead_code)]
mod memory;

mod ahead;
mod private;
mod remote;
mod rules;

use memory::State;
use squall_core::Owned;
use squall_machine::ClusterSize;
use squall_objects::pages::{self, PagePool, Supply};
use squall_pager::cache::{self, FileCache, FileCacheExt, PAGE_BYTES};
use squall_pager::hat::{self, MapError, Mapped};
use squall_pager::region::{self, Form, Mapping, Region, SharedCache};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

/// A mapped file of some pages, with memory for a few of them.
struct Program {
    mapped: Mapped,
    region: Owned<dyn Region>,
    cache: SharedCache,
    state: Arc<State>,
    memory: Owned<dyn PagePool>,
}

/// Maps a file. Prints the reason if the system refuses it.
fn program(form: cache::Form, pages: usize, resident: usize) -> Option<Program> {
    let state = State::with_pages(pages);
    let memory = pages::distributed(Supply::system(resident));
    memory.set_attribute(pages::Attribute::Chunk, 1);
    let cache = Arc::new(cache::mappable(form, state.source(), memory.handle()).unwrap());
    let region = region::with_form(Form::Distributed, 0, Mapping::new(cache.clone()));
    // SAFETY: these tests hold no lock of the pager while they touch the memory.
    match unsafe { hat::map(region.handle()) } {
        Ok(mapped) => Some(Program { mapped, region, cache, state, memory }),
        Err(error @ MapError::Refused(_)) => {
            println!("SKIP: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

impl Program {
    /// Returns the number of fills, and of those by the service thread.
    fn fills(&self) -> (u64, u64) {
        (self.state.fills.load(Relaxed), self.state.fills_by_service.load(Relaxed))
    }

    /// Returns a word of the mapped memory.
    fn word(&self, page: usize, index: usize) -> &AtomicU64 {
        assert!(page * PAGE_BYTES + index * 8 < self.mapped.len());
        // SAFETY: an aligned word of the mapping, which other threads access as a word too.
        unsafe {
            AtomicU64::from_ptr(self.mapped.as_ptr().as_ptr().add(page * PAGE_BYTES + index * 8).cast())
        }
    }
}

const FORMS: [cache::Form; 3] = [
    cache::Form::Shared,
    cache::Form::Distributed(ClusterSize::Cpu),
    cache::Form::Partitioned { partitions: 4, shift: 0 },
];

#[test]
fn co_42_loads_and_stores_bring_pages_in() {
    for form in FORMS {
        let Some(program) = program(form, 8, 16) else { return };
        program.state.bytes.lock().unwrap()[2 * PAGE_BYTES] = 7;
        assert_eq!(program.word(2, 0).load(Relaxed), 7);
        assert_eq!((program.state.fills.load(Relaxed), program.cache.sensors().dirty), (1, 0));
        program.word(2, 1).store(9, Relaxed);
        program.word(5, 0).store(8, Relaxed);
        assert_eq!(program.cache.sensors().dirty, 2);
        assert_eq!((program.word(2, 0).load(Relaxed), program.word(2, 1).load(Relaxed)), (7, 9));
        // Pins and mappings see the same bytes.
        assert_eq!(program.cache.pin(5).unwrap()[0], 8);
        program.word(5, 0).store(10, Relaxed);
        assert_eq!(program.cache.pin(5).unwrap()[0], 10);
        program.cache.pin_mut(5).unwrap()[0] = 11;
        assert_eq!(program.word(5, 0).load(Relaxed), 11);
        assert_eq!(program.cache.sync().unwrap(), 2);
        assert_eq!((program.state.first(5), program.cache.sensors().dirty), (11, 0));
        program.word(5, 0).store(12, Relaxed);
        assert_eq!(program.cache.sensors().dirty, 1, "a store after a sync makes the page dirty again");
        program.cache.sync().unwrap();
        assert_eq!(program.state.first(5), 12);
    }
}

#[test]
fn a_mapped_file_is_larger_than_memory() {
    const PAGES: usize = 64;
    for form in FORMS {
        let Some(program) = program(form, PAGES, 8) else { return };
        for round in 1..4 {
            for page in 0..PAGES {
                let word = program.word(page, page % 512);
                assert_eq!(word.fetch_add(1, Relaxed), round - 1, "page {page} in round {round}");
            }
        }
        assert!(program.memory.used() <= 8 && program.cache.sensors().evictions > 0);
    }
}

#[test]
fn no_store_is_lost_while_threads_and_evictions_contend() {
    const PAGES: usize = 24;
    const ROUNDS: u64 = 300;
    for form in FORMS {
        let Some(program) = program(form, PAGES, 8) else { return };
        thread::scope(|scope| {
            for worker in 0..4 {
                let program = &program;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let page = (worker * 7 + round as usize * 5) % PAGES;
                        program.word(page, 0).fetch_add(1, Relaxed);
                    }
                });
            }
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let page = round % PAGES as u64;
                    drop(program.cache.pin(page).unwrap());
                    if round % 16 == 0 {
                        program.cache.pin_mut(page).unwrap()[8] += 1;
                        program.cache.sync().unwrap();
                    }
                }
            });
        });
        let sum: u64 = (0..PAGES).map(|page| program.word(page, 0).load(Relaxed)).sum();
        assert_eq!(sum, 4 * ROUNDS, "{form:?}");
    }
}

#[test]
fn a_region_that_is_mapped_has_no_copies_and_its_file_does_not_grow() {
    let Some(program) = program(cache::Form::Shared, 4, 8) else { return };
    let refused = program.region.copy(&mut |_| unreachable!()).unwrap_err();
    assert!(refused.to_string().contains("is mapped at addresses"), "{refused}");
    let too_long = program.cache.set_len(5 * PAGE_BYTES as u64).unwrap_err();
    assert!(too_long.to_string().contains("cannot grow"), "{too_long}");
    program.word(3, 0).store(1, Relaxed);
    program.cache.set_len(2 * PAGE_BYTES as u64).unwrap();
    program.cache.set_len(4 * PAGE_BYTES as u64).unwrap();
    assert_eq!(program.word(3, 0).load(Relaxed), 0, "bytes that were cut off are zero");
    let pool = cache::shared(State::with_pages(1).source(), program.memory.handle());
    let region = region::with_form(Form::Shared, 0, Mapping::new(Arc::new(pool)));
    // SAFETY: it fails.
    assert!(matches!(unsafe { hat::map(region.handle()) }, Err(MapError::NotMappable)));
}

/// A value that touches mapped memory when it is dropped.
struct Touches<'a>(&'a Program, usize);

impl Drop for Touches<'_> {
    fn drop(&mut self) {
        self.0.word(self.1, 0).fetch_add(1, Relaxed);
    }
}

#[test]
fn pages_come_in_inside_operations_and_drops_and_while_a_panic_unwinds() {
    let Some(program) = program(cache::Form::Partitioned { partitions: 4, shift: 0 }, 64, 8) else { return };
    for page in 0..16 {
        squall_rcu::pin(|_| program.word(page, 0).store(page as u64 + 1, Relaxed));
        drop(Touches(&program, page));
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _touches = Touches(&program, page);
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(unwound.is_err());
    }
    for page in 0..16 {
        let read = squall_rcu::pin(|_| program.word(page, 0).load(Relaxed));
        assert_eq!(read, page as u64 + 3);
    }
    // Many threads at once, more than can wait for the service thread.
    thread::scope(|scope| {
        for worker in 0..80 {
            let program = &program;
            scope.spawn(move || squall_rcu::pin(|_| program.word(worker % 64, 1).fetch_add(1, Relaxed)));
        }
    });
    assert_eq!((0..64).map(|page| program.word(page, 1).load(Relaxed)).sum::<u64>(), 80);
}
