//! Blocks of pages that one fault brings in.

use crate::{FORMS, Program, program};
use squall_objects::pages::PagePool;
use squall_pager::cache::{self, FileCache, FileCacheExt, PAGE_BYTES};
use squall_pager::region::Region;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

/// Returns whether a page is mapped: a system call may then read it.
fn is_mapped(program: &Program, page: usize) -> bool {
    let (_from, to) = std::io::pipe().unwrap();
    // SAFETY: write(2) of a word of the mapping.
    (unsafe { libc::write(to.as_raw_fd(), program.word(page, 0).as_ptr().cast(), 8) }) == 8
}

fn mapped(program: &Program, pages: usize) -> Vec<usize> {
    (0..pages).filter(|page| is_mapped(program, *page)).collect()
}

#[test]
fn a_fault_brings_in_the_block_around_its_page() {
    for form in FORMS {
        let Some(program) = program(form, 22, 32) else { return };
        program.mapped.set_read_ahead(8);
        assert_eq!(program.word(11, 0).load(Relaxed), 0);
        assert_eq!((program.fills().0, mapped(&program, 22)), (8, (8..16).collect()), "{form:?}");
        // A page that is there is not filled again, and the last block ends with the file.
        drop(program.cache.pin(17).unwrap());
        program.word(20, 0).store(1, Relaxed);
        assert_eq!((program.fills().0, mapped(&program, 22)), (14, (8..22).collect()), "{form:?}");
        let sensors = program.cache.sensors();
        assert_eq!(sensors.dirty, 1, "the other pages of the block are clean");
        assert_eq!((sensors.fills, sensors.read_ahead, sensors.mappings), (14, 11, 1));
        program.word(21, 0).store(2, Relaxed);
        assert_eq!(program.cache.sync().unwrap(), 2);
        assert_eq!((program.state.first(20), program.state.first(21)), (1, 2));
        program.mapped.set_read_ahead(1);
        assert_eq!(program.word(3, 0).load(Relaxed), 0);
        assert!(!is_mapped(&program, 2) && !is_mapped(&program, 4));
    }
}

#[test]
fn a_page_of_a_block_that_cannot_be_read_fails_alone() {
    let Some(program) = program(cache::Form::Partitioned { partitions: 4, shift: 0 }, 8, 16) else { return };
    program.mapped.set_read_ahead(8);
    program.state.bad_reads.lock().unwrap().insert(5, "the disk is gone");
    program.region.truncate(7 * PAGE_BYTES as u64).unwrap();
    assert_eq!(program.word(0, 0).load(Relaxed), 0);
    assert_eq!(mapped(&program, 8), [0, 1, 2, 3, 4, 6]);
    program.state.bad_reads.lock().unwrap().clear();
    assert_eq!((program.word(5, 0).load(Relaxed), program.fills().0), (0, 8));
}

#[test]
fn blocks_larger_than_memory_lose_no_store() {
    const PAGES: usize = 32;
    const ROUNDS: usize = 200;
    for form in FORMS {
        let Some(program) = program(form, PAGES, 6) else { return };
        thread::scope(|scope| {
            for worker in 0..3 {
                let program = &program;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        program.mapped.set_read_ahead(1 << (round % 5));
                        let page = (worker * 11 + round * 5) % PAGES;
                        let word = program.word(page, 0);
                        match round % 3 {
                            0 => _ = squall_rcu::pin(|_| word.fetch_add(1, Relaxed)),
                            1 => program.cache.pin_mut(page as u64).unwrap()[8] += 1,
                            _ => _ = word.fetch_add(1, Relaxed),
                        }
                    }
                });
            }
        });
        let stores = 3 * (0..ROUNDS).filter(|round| round % 3 != 1).count() as u64;
        assert_eq!(
            (0..PAGES).map(|page| program.word(page, 0).load(Relaxed)).sum::<u64>(),
            stores,
            "{form:?}"
        );
        assert!(program.memory.used() <= 6, "{form:?}");
    }
}

#[test]
fn a_number_of_pages_that_is_no_power_of_two_is_refused() {
    let Some(program) = program(cache::Form::Shared, 8, 8) else { return };
    for pages in [0, 3, 128] {
        let refused =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| program.mapped.set_read_ahead(pages)));
        let text = *refused.unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains(&format!("cannot bring in {pages} pages")), "{text}");
    }
}
