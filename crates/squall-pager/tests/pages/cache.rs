//! Tests of file caches, in each form.

use crate::memory::{End, State, zeros};
use proptest::prelude::*;
use squall_core::Owned;
use squall_core::swap::swap;
use squall_machine::ClusterSize;
use squall_objects::pages::{self, PagePool, Supply};
use squall_pager::PageFault;
use squall_pager::cache::{self, Attribute, FileCache, FileCacheExt, Form, PAGE_BYTES};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;

const FORMS: [Form; 4] = [
    Form::Shared,
    Form::Distributed(ClusterSize::Cpu),
    Form::Distributed(ClusterSize::Machine),
    Form::Partitioned { partitions: 3, shift: 1 },
];

fn pool(pages: usize) -> Owned<dyn PagePool> {
    let pool = pages::distributed(Supply::system(pages));
    pool.set_attribute(pages::Attribute::Chunk, 1);
    pool
}

/// Waits until `pages` pages of a pool are in use. Deferred calls and the threads that end objects return
/// pages.
fn await_used(memory: &Owned<dyn PagePool>, pages: usize) {
    while memory.used() - memory.free() != pages {
        squall_rcu::barrier().unwrap();
        thread::yield_now();
    }
}

#[test]
fn co_53_of_many_threads_that_need_a_page_one_fills_it() {
    for form in FORMS {
        let state = State::with_pages(4);
        let memory = pool(16);
        let cache = cache::with_form(form, state.source(), memory.handle());
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    for page in 0..4 {
                        assert_eq!(cache.pin(page).unwrap().len(), PAGE_BYTES);
                    }
                });
            }
        });
        assert_eq!((state.fills.load(Relaxed), cache.sensors().resident), (4, 4), "{form:?}");
    }
}

#[test]
fn errors_name_the_page_and_the_reason() {
    for form in FORMS {
        let state = State::with_pages(3);
        state.bad_reads.lock().unwrap().insert(1, "the disk is gone");
        let memory = pool(2);
        let cache = cache::with_form(form, state.source(), memory.handle()).named("ledger");
        let beyond = cache.pin(3).unwrap_err();
        assert_eq!(beyond.to_string(), "page 3 lies beyond the end of ledger, which has 3 pages");
        let failed = cache.pin(1).unwrap_err();
        assert!(matches!(failed, PageFault::Source(_)), "{failed:?}");
        assert_eq!(failed.to_string(), "source memory, page 1: the disk is gone");
        // The page stays absent, and its memory went back.
        assert_eq!(cache.sensors().resident, 0);
        state.bad_reads.lock().unwrap().clear();
        let two = (cache.pin(0).unwrap(), cache.pin(1).unwrap());
        cache.set_attribute(Attribute::PatienceMs, 0);
        let full = cache.pin(2).unwrap_err();
        assert!(matches!(full, PageFault::NoMemory { page: 2, max_pages: 2, .. }), "{full}");
        drop(two);
        assert!(cache.pin(2).is_ok(), "a page is evicted");
        let handle = cache.handle();
        Owned::destroy(cache).wait().unwrap();
        assert!(matches!(handle.pin(0).unwrap_err(), PageFault::Call(_)));
    }
}

#[test]
fn a_page_that_cannot_be_written_stays_and_the_others_are_written() {
    for form in FORMS {
        let state = State::with_pages(4);
        state.bad_writes.lock().unwrap().insert(1, "no space left");
        let memory = pool(3);
        let cache = cache::with_form(form, state.source(), memory.handle());
        for page in 0..3 {
            cache.pin_mut(page).unwrap()[0] = page as u8 + 1;
        }
        assert_eq!(cache.sensors().dirty, 3);
        assert_eq!(cache.sync().unwrap_err().to_string(), "source memory, page 1: no space left");
        assert_eq!((state.first(0), state.first(1), state.first(2), cache.sensors().dirty), (1, 0, 3, 1));
        // Other pages are evicted instead of it.
        for page in [3, 0, 2, 3] {
            assert!(cache.pin(page).is_ok());
        }
        assert_eq!(cache.pin(1).unwrap()[0], 2);
        state.bad_writes.lock().unwrap().clear();
        assert_eq!((cache.sync().unwrap(), state.first(1), cache.sensors().dirty), (1, 2, 0));
    }
}

#[test]
fn changed_pages_are_written_at_a_limit() {
    let state = State::with_pages(32);
    let memory = pool(64);
    let cache = cache::distributed(state.source(), memory.handle());
    cache.set_attribute(Attribute::DirtyMax, 8);
    for page in 0..32 {
        cache.pin_mut(page).unwrap()[0] = 1;
        assert!(cache.sensors().dirty <= 8, "{:?}", cache.sensors());
    }
    assert!(state.writes.load(Relaxed) >= 24);
    cache.sync().unwrap();
    assert!((0..32).all(|page| state.first(page) == 1));
}

#[test]
fn a_fault_at_the_limit_of_changed_pages_returns_no_error_of_another_page() {
    let state = State::with_pages(8);
    let memory = pool(16);
    let cache = cache::distributed(state.source(), memory.handle());
    cache.set_attribute(Attribute::DirtyMax, 2);
    state.bad_writes.lock().unwrap().insert(0, "the disk is full");
    for page in 0..8 {
        cache.pin_mut(page).unwrap()[0] = 1;
    }
    // All others are written, until one more page may be changed.
    assert_eq!((cache.sensors().dirty, (0..8).filter(|page| state.first(*page) == 1).count()), (2, 6));
    assert_eq!(cache.sync().unwrap_err().to_string(), "source memory, page 0: the disk is full");
    state.bad_writes.lock().unwrap().clear();
    assert_eq!((cache.sync().unwrap(), state.first(0), state.first(7)), (1, 1, 1));
}

#[test]
fn a_pin_keeps_its_bytes_when_its_page_is_cut_off_or_its_cache_ends() {
    for form in FORMS {
        let state = State::with_pages(4);
        let memory = pool(8);
        let cache = cache::with_form(form, state.source(), memory.handle());
        cache.pin_mut(2).unwrap().fill(7);
        cache.pin_mut(3).unwrap().fill(8);
        let (cut, kept) = (cache.pin(3).unwrap(), cache.pin(2).unwrap());
        cache.set_len(3 * PAGE_BYTES as u64).unwrap();
        assert!(cache.pin(3).is_err() && cut.iter().all(|byte| *byte == 8));
        cache.set_len(4 * PAGE_BYTES as u64).unwrap();
        assert_eq!(cache.pin(3).unwrap()[0], 0, "bytes that were cut off are zero");
        drop(cut);
        Owned::destroy(cache).wait().unwrap();
        await_used(&memory, 1);
        assert!(kept.iter().all(|byte| *byte == 7));
        drop(kept);
        await_used(&memory, 0);
        assert_eq!(state.first(3), 0, "a page that was cut off is not written");
    }
}

#[test]
fn the_tail_of_the_last_page_is_cut_too() {
    for form in FORMS {
        let state = State::with_pages(2);
        let memory = pool(8);
        let cache = cache::with_form(form, state.source(), memory.handle());
        cache.pin_mut(0).unwrap().fill(5);
        cache.set_len(10).unwrap();
        cache.set_len(PAGE_BYTES as u64).unwrap();
        let page = cache.pin(0).unwrap();
        assert!(page[..10].iter().all(|byte| *byte == 5) && page[10..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_copy_shares_pages_until_they_are_written() {
    for form in FORMS {
        let state = State::with_pages(4);
        state.bytes.lock().unwrap().fill(1);
        let memory = pool(64);
        let parent = Arc::new(cache::with_form(form, state.source(), memory.handle()));
        parent.pin_mut(0).unwrap().fill(2);
        let copies: Vec<_> = (0..3)
            .map(|_| cache::copy_of(parent.clone(), form, State::with_pages(4).source(), memory.handle()))
            .collect();
        assert!(parent.pin_mut(1).unwrap_err().to_string().contains("copies of it were made"));
        let before = memory.used() - memory.free();
        for copy in &copies {
            assert_eq!((copy.pin(0).unwrap()[9], copy.pin(3).unwrap()[9]), (2, 1));
        }
        // Page 3 came into the parent's memory. No page was copied.
        assert_eq!(memory.used() - memory.free(), before + 1, "{form:?}");
        copies[0].pin_mut(0).unwrap()[9] = 3;
        copies[1].pin_mut(1).unwrap()[9] = 4;
        let seen = |page| copies.iter().map(|copy| copy.pin(page).unwrap()[9]).collect::<Vec<_>>();
        assert_eq!((seen(0), seen(1)), (vec![3, 2, 2], vec![1, 4, 1]));
        assert_eq!(memory.used() - memory.free(), before + 4, "two copies, and page 1 of the parent");
        // A copy of a copy.
        let again = Arc::new(copies.into_iter().next().unwrap());
        let last = cache::copy_of(again.clone(), form, State::with_pages(4).source(), memory.handle());
        last.pin_mut(3).unwrap()[9] = 6;
        assert_eq!([0, 1, 2, 3].map(|page| last.pin(page).unwrap()[9]), [3, 1, 1, 6]);
        assert_eq!([0, 1, 2, 3].map(|page| again.pin(page).unwrap()[9]), [3, 1, 1, 1]);
        drop((last, again, parent));
        await_used(&memory, 0);
    }
}

/// Copies of copies. Each level is frozen, but for the last one.
const CHAIN: usize = if cfg!(miri) { 8 } else { 1000 };

#[test]
fn a_copy_that_was_not_changed_is_no_part_of_a_chain() {
    let (state, memory) = (State::with_pages(4), pool(64));
    state.bytes.lock().unwrap()[2 * PAGE_BYTES] = 7;
    let mut last = Arc::new(cache::shared(state.source(), memory.handle()));
    let root = last.clone();
    for form in FORMS.iter().cycle().take(CHAIN) {
        let copy = Arc::new(cache::copy_of(last.clone(), *form, zeros(4), memory.handle()));
        let before = Arc::downgrade(&std::mem::replace(&mut last, copy));
        assert!(before.upgrade().is_none_or(|before| Arc::ptr_eq(&before, &root)));
    }
    assert_eq!(last.pin(2).unwrap()[0], 7);
    assert_eq!((root.sensors().resident, root.sensors().fills), (1, 1));
    // A change of a page, or of the length, keeps a copy in the chain.
    let [changed, shorter, longer] =
        [(); 3].map(|()| Arc::new(cache::copy_of(last.clone(), Form::Shared, zeros(4), memory.handle())));
    changed.pin_mut(2).unwrap()[0] = 8;
    shorter.set_len(2 * PAGE_BYTES as u64).unwrap();
    longer.set_len(5 * PAGE_BYTES as u64).unwrap();
    let copy =
        |of: &Arc<_>, pages| cache::copy_of(Arc::clone(of), Form::Shared, zeros(pages), memory.handle());
    assert_eq!(copy(&changed, 4).pin(2).unwrap()[0], 8);
    assert!(copy(&shorter, 2).pin(2).is_err());
    assert_eq!(copy(&longer, 5).pin(4).unwrap()[0], 0);
}

#[test]
fn a_long_chain_of_changed_copies_needs_no_stack_and_no_entries_between() {
    const PAGES: usize = 64;
    let (state, memory) = (State::with_pages(PAGES), pool(4096));
    for (page, bytes) in state.bytes.lock().unwrap().chunks_mut(PAGE_BYTES).enumerate() {
        bytes[0] = page as u8;
    }
    let mut chain = vec![Arc::new(cache::shared(state.source(), memory.handle()))];
    let mut expected: Vec<_> = (0..PAGES as u64).collect();
    for level in 1..=CHAIN {
        let last = chain[level - 1].clone();
        let copy = cache::copy_of(last, FORMS[level % 4], zeros(PAGES as u64), memory.handle());
        // The last pages are changed by no level.
        let page = level * 7 % (PAGES - 4);
        copy.pin_mut(page as u64).unwrap()[..8].copy_from_slice(&(level as u64).to_le_bytes());
        expected[page] = level as u64;
        chain.push(Arc::new(copy));
    }
    let last = &chain[CHAIN];
    let read = || {
        for (page, expected) in expected.iter().enumerate() {
            assert_eq!(last.pin(page as u64).unwrap()[..8], expected.to_le_bytes(), "page {page}");
        }
        last.pin_mut(PAGES as u64 - 1).unwrap()[0] = 1;
    };
    thread::scope(|scope| {
        let reader = thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, read).unwrap();
        reader.join().unwrap();
    });
    let resident = |level: usize| chain[level].sensors().resident;
    assert!((1..CHAIN).all(|level| resident(level) == 1), "a level has its own page alone");
    assert_eq!(resident(CHAIN), PAGES);
    drop(chain);
    await_used(&memory, 0);
}

#[test]
fn a_copy_does_not_find_its_own_evicted_page_in_its_parent() {
    let memory = pool(64);
    let parent = Arc::new(cache::shared(zeros(2), memory.handle()));
    parent.pin_mut(0).unwrap()[0] = 1;
    let state = State::with_pages(2);
    let copy = cache::copy_of(parent.clone(), Form::Shared, state.source(), memory.handle());
    assert_eq!(copy.pin(0).unwrap()[0], 1);
    copy.pin_mut(0).unwrap()[0] = 0;
    assert_eq!((copy.evict(9), copy.sensors().resident), (1, 0));
    assert_eq!(copy.pin(0).unwrap()[0], 0);
}

#[test]
fn co_53_a_fill_ends_on_another_thread_than_it_began_on() {
    for form in FORMS {
        let state = State::with_pages(4);
        state.bytes.lock().unwrap()[PAGE_BYTES] = 6;
        let memory = pool(8);
        let cache = cache::with_form(form, state.source(), memory.handle());
        let fill = cache.begin(1).unwrap().unwrap();
        assert!(cache.begin(1).unwrap().is_none(), "it is being filled");
        thread::scope(|scope| {
            let waits = scope.spawn(|| cache.pin(1).unwrap()[0]);
            scope.spawn(move || fill.run().unwrap());
            assert_eq!(waits.join().unwrap(), 6);
        });
        assert!(cache.begin(1).unwrap().is_none(), "it is resident");
        // A fill that is dropped, fails, or comes after the end of its page.
        drop(cache.begin(2).unwrap());
        state.bad_reads.lock().unwrap().insert(2, "not now");
        assert!(cache.begin(2).unwrap().unwrap().run().is_err());
        state.bad_reads.lock().unwrap().clear();
        let late = cache.begin(3).unwrap().unwrap();
        cache.set_len(3 * PAGE_BYTES as u64).unwrap();
        assert!(matches!(late.run(), Err(PageFault::BeyondEnd { page: 3, .. })));
        assert_eq!((state.fills.load(Relaxed), cache.sensors().resident), (2, 1), "{form:?}");
        // A swap does not wait for a fill, and no page has two slots.
        let fill = cache.begin(0).unwrap().unwrap();
        swap(cache.handle(), cache::new_cache(Form::Shared)).unwrap();
        cache.pin_mut(0).unwrap()[0] = 9;
        fill.run().unwrap();
        assert_eq!(cache.pin(0).unwrap()[0], 9);
    }
}

/// Marks a page as a whole: a torn page has different words.
fn mark(bytes: &mut [u8], value: u64) {
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&value.to_le_bytes());
    }
}

fn marked(bytes: &[u8]) -> u64 {
    let first = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes.chunks_exact(8).all(|word| word == first.to_le_bytes()), "a torn page");
    first
}

#[test]
fn no_page_is_torn_or_lost_while_the_cache_is_swapped() {
    const PAGES: u64 = 48;
    let rounds = if cfg!(miri) { 20 } else { 400 };
    let state = State::with_pages(PAGES as usize);
    let memory = pool(16);
    let cache = cache::shared(state.source(), memory.handle());
    let ends = AtomicBool::new(false);
    let sums = thread::scope(|scope| {
        let workers: Vec<_> = (0..3_u64)
            .map(|worker| {
                let cache = &cache;
                scope.spawn(move || {
                    let mut added = 0;
                    let mut random = worker + 1;
                    for _ in 0..rounds {
                        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        let page = (random >> 33) % PAGES;
                        if random & 3 == 0 {
                            let mut frame = cache.pin_mut(page).unwrap();
                            let value = marked(&frame);
                            mark(&mut frame, value + 1);
                            added += 1;
                        } else {
                            marked(&cache.pin(page).unwrap());
                        }
                    }
                    added
                })
            })
            .collect();
        let swapper = scope.spawn(|| {
            let mut swaps = 0;
            while !ends.load(Relaxed) {
                for form in FORMS {
                    swaps += u64::from(swap(cache.handle(), cache::new_cache(form)).is_ok());
                }
            }
            swaps
        });
        let end = End(&ends);
        let sums: Vec<u64> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        drop(end);
        swapper.join().unwrap();
        sums
    });
    let total: u64 = (0..PAGES).map(|page| marked(&cache.pin(page).unwrap())).sum();
    assert_eq!(total, sums.iter().sum::<u64>());
    cache.sync().unwrap();
    let bytes = state.bytes.lock().unwrap();
    assert_eq!(bytes.chunks_exact(PAGE_BYTES).map(marked).sum::<u64>(), total);
}

#[test]
fn many_threads_share_a_memory_of_few_pages() {
    for form in FORMS {
        let state = State::with_pages(40);
        let memory = pool(4);
        let cache = cache::with_form(form, state.source(), memory.handle());
        thread::scope(|scope| {
            for worker in 0..8 {
                let cache = &cache;
                scope.spawn(move || {
                    for round in 0..if cfg!(miri) { 3 } else { 50 } {
                        let page = (worker * 5 + round * 7) % 40;
                        cache.pin_mut(page).unwrap()[worker as usize] += 1;
                    }
                });
            }
        });
        assert!(memory.used() <= 4);
        cache.sync().unwrap();
        let sum: u64 = state.bytes.lock().unwrap().iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(sum, 8 * if cfg!(miri) { 3 } else { 50 });
    }
}

/// An act of a random sequence.
#[derive(Clone, Debug)]
enum Act {
    Read(u64),
    Write(u64, u8),
    Evict(usize),
    Sync,
    SetLen(u64),
    Swap(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..12_u64).prop_map(Act::Read),
        4 => (0..12_u64, any::<u8>()).prop_map(|(page, byte)| Act::Write(page, byte)),
        1 => (0..5_usize).prop_map(Act::Evict),
        1 => Just(Act::Sync),
        1 => (0..11 * PAGE_BYTES as u64).prop_map(Act::SetLen),
        1 => (0..FORMS.len()).prop_map(Act::Swap),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 64 }, ..ProptestConfig::default() })]
    #[test]
    fn any_acts_agree_with_a_file_in_memory(acts in proptest::collection::vec(act(), 1..60)) {
        let state = State::with_pages(8);
        let memory = pool(4);
        let cache = cache::shared(state.source(), memory.handle());
        let mut model = vec![0_u8; 8 * PAGE_BYTES];
        for act in acts {
            let pages = model.len().div_ceil(PAGE_BYTES) as u64;
            match act {
                Act::Read(page) => match cache.pin(page) {
                    Ok(frame) => {
                        let from = page as usize * PAGE_BYTES;
                        let to = model.len().min(from + PAGE_BYTES);
                        prop_assert_eq!(&frame[..to - from], &model[from..to]);
                        prop_assert!(frame[to - from..].iter().all(|byte| *byte == 0));
                    }
                    Err(_) => prop_assert!(page >= pages),
                },
                Act::Write(page, byte) => match cache.pin_mut(page) {
                    Ok(mut frame) => {
                        let from = page as usize * PAGE_BYTES;
                        let to = model.len().min(from + PAGE_BYTES);
                        frame[..to - from].fill(byte);
                        model[from..to].fill(byte);
                    }
                    Err(_) => prop_assert!(page >= pages),
                },
                Act::Evict(wanted) => prop_assert!(cache.evict(wanted) <= wanted),
                Act::Sync => {
                    cache.sync().unwrap();
                    prop_assert_eq!(&*state.bytes.lock().unwrap(), &model);
                }
                Act::SetLen(bytes) => {
                    cache.set_len(bytes).unwrap();
                    model.resize(bytes as usize, 0);
                }
                Act::Swap(form) => _ = swap(cache.handle(), cache::new_cache(FORMS[form])).unwrap(),
            }
        }
    }
}
