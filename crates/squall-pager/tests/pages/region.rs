//! Tests of regions and processes, in each form: the seven rules of K42 (CO-48).

use crate::memory::{End, State, zeros};
use squall_core::Owned;
use squall_core::swap::swap;
use squall_machine::ClusterSize;
use squall_objects::cached;
use squall_objects::pages::{self, PagePool, PagePoolExt, PageUser, Supply};
use squall_pager::PageFault;
use squall_pager::cache::{self, FileCache, FileCacheExt, PAGE_BYTES};
use squall_pager::process::{Process, WorkingSet};
use squall_pager::region::{self, Form, Mapping, Region, RegionExt, Rights, SharedCache};
use squall_pager::source::{Filled, Source, SourceError, SourceStatistics};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

const FORMS: [Form; 4] = [Form::Shared, Form::Distributed, Form::Quiescent, Form::Adaptive];
const PAGE: u64 = PAGE_BYTES as u64;

fn memory() -> Owned<dyn PagePool> {
    pages::shared(Supply::system(4096))
}

fn mapped(form: Form, pages: u64, memory: &Owned<dyn PagePool>) -> Owned<dyn Region> {
    let cache = cache::partitioned(zeros(pages), memory.handle());
    region::with_form(form, 0x1000, Mapping::new(Arc::new(cache)))
}

/// A source with a gate: a fill tells that it has begun, and waits for a word.
struct Slow {
    begun: mpsc::SyncSender<u64>,
    go: Mutex<mpsc::Receiver<()>>,
}

impl Source for Slow {
    fn len(&self) -> u64 {
        16 * PAGE
    }

    fn fill(&self, page: u64, _: &mut [u8]) -> Result<Filled, SourceError> {
        self.begun.send(page).unwrap();
        self.go.lock().unwrap().recv().unwrap();
        Ok(Filled::Zeros)
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), SourceError> {
        Ok(())
    }

    fn set_len(&self, _: u64) -> Result<(), SourceError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn statistics(&self) -> SourceStatistics {
        SourceStatistics::default()
    }
}

/// A region with a slow source, the pages of which fills have begun, and the words that let them end.
fn slow(
    form: Form,
    memory: &Owned<dyn PagePool>,
) -> (Owned<dyn Region>, mpsc::Receiver<u64>, mpsc::SyncSender<()>) {
    let ((begun, has_begun), (go, word)) = (mpsc::sync_channel(16), mpsc::sync_channel(16));
    let source: Owned<dyn Source> = squall_core::shared(Slow { begun, go: Mutex::new(word) });
    let cache = cache::shared(source, memory.handle());
    (region::with_form(form, 0, Mapping::new(Arc::new(cache))), has_begun, go)
}

#[test]
fn co_48_an_unmap_lets_running_faults_end_and_refuses_new_ones() {
    for form in FORMS {
        let memory = memory();
        let (region, has_begun, go) = slow(form, &memory);
        let is_unmapped = AtomicBool::new(false);
        go.send(()).unwrap();
        assert_eq!((region.pin(5 * PAGE).unwrap().page(), has_begun.recv().unwrap()), (5, 5));
        thread::scope(|scope| {
            let fault = scope.spawn(|| region.pin(0).map(|frame| frame.page()));
            assert_eq!(has_begun.recv().unwrap(), 0);
            let unmap = scope.spawn(|| {
                let result = region.unmap();
                is_unmapped.store(true, Relaxed);
                result
            });
            // Once the unmap has begun, faults are refused, and so is another unmap.
            let refused = loop {
                if let Err(error) = region.fault(5 * PAGE, cache::Access::Read) {
                    break error;
                }
                thread::yield_now();
            };
            assert!(matches!(refused, PageFault::Unmapped { .. }), "{refused}");
            let second = region.unmap();
            assert!(matches!(second, Err(PageFault::Unmapped { .. })), "{second:?}");
            assert!(!is_unmapped.load(Relaxed), "a fault is inside");
            go.send(()).unwrap();
            assert_eq!(fault.join().unwrap().unwrap(), 0);
            unmap.join().unwrap().unwrap();
        });
        assert!(matches!(region.pin(0), Err(PageFault::Unmapped { start: 0 })));
    }
}

#[test]
fn faults_check_bounds_and_rights() {
    for form in FORMS {
        let memory = memory();
        let cache: SharedCache = Arc::new(cache::shared(zeros(8), memory.handle()));
        let mapping = Mapping::new(cache).part(2, 3 * PAGE).with_rights(Rights::Read);
        let region = region::with_form(form, 0x5000, mapping);
        assert_eq!((region.pin(PAGE).unwrap().page(), region.len()), (3, 3 * PAGE));
        let write = region.pin_mut(0).unwrap_err();
        assert_eq!(write.to_string(), "the region at 0x5000 may only be read");
        let beyond = region.pin(3 * PAGE).unwrap_err();
        assert_eq!(
            beyond.to_string(),
            "offset 12288 lies beyond the end of the region at 0x5000, which has 12288 bytes"
        );
    }
}

#[test]
fn co_48_a_truncation_holds_faults_and_cuts() {
    for form in FORMS {
        let memory = memory();
        let region = mapped(form, 8, &memory);
        let kept = region.pin(7 * PAGE).unwrap();
        region.truncate(2 * PAGE).unwrap();
        assert_eq!(kept.page(), 7, "a pin outlives the change");
        assert!(matches!(region.pin(7 * PAGE), Err(PageFault::BeyondRegion { .. })));
        assert!(region.pin(PAGE).is_ok());
        assert!(matches!(region.truncate(3 * PAGE), Err(PageFault::BeyondRegion { .. })));
        assert!(region.pin(PAGE).is_ok(), "a failed truncation lets faults go on");
        region.unmap().unwrap();
        assert!(matches!(region.truncate(0), Err(PageFault::Unmapped { .. })));
    }
}

#[test]
fn co_48_a_copy_waits_for_pins_and_lets_their_threads_fault() {
    for form in FORMS {
        let memory = memory();
        let region = mapped(form, 8, &memory);
        let (pinned, has_begun) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut first = region.pin_mut(0).unwrap();
                assert!(matches!(region.copy(&mut |_| unreachable!()), Err(PageFault::Pinned { .. })));
                pinned.wait();
                while !has_begun.load(Relaxed) {
                    thread::yield_now();
                }
                // The copy waits for the first page, and this thread for no copy.
                for page in 1..8 {
                    region.pin_mut(page * PAGE).unwrap()[0] = 1;
                }
                first[0] = 1;
            });
            pinned.wait();
            let copy = region.copy(&mut |parent| {
                has_begun.store(true, Relaxed);
                copies(8, &memory)(parent)
            });
            let copy = copy.unwrap();
            assert!((0..8).all(|page| copy.pin(page).unwrap()[0] == 1), "{form:?}");
            writer.join().unwrap();
        });
    }
}

/// Makes two copies of a cache of `pages` pages.
fn copies(
    pages: u64,
    memory: &Owned<dyn PagePool>,
) -> impl FnMut(SharedCache) -> [Owned<dyn FileCache>; 2] + use<'_> {
    move |parent| {
        [(), ()].map(|()| {
            let source = State::with_pages(pages as usize).source();
            cache::copy_of(parent.clone(), cache::Form::Shared, source, memory.handle())
        })
    }
}

#[test]
fn co_48_a_copy_is_taken_at_one_moment() {
    for form in FORMS {
        let memory = memory();
        let region = mapped(form, 2, &memory);
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            // Both pages always have the same number, except while the first one is ahead by one.
            scope.spawn(|| {
                for round in 1_u64.. {
                    for page in 0..2 {
                        region.pin_mut(page * PAGE).unwrap()[..8].copy_from_slice(&round.to_le_bytes());
                    }
                    if ends.load(Relaxed) {
                        break;
                    }
                }
            });
            let _end = End(&ends);
            for _ in 0..if cfg!(miri) { 2 } else { 20 } {
                let copy = region.copy(&mut copies(2, &memory)).unwrap();
                let number = |page| u64::from_le_bytes(copy.pin(page).unwrap()[..8].try_into().unwrap());
                let (first, second) = (number(0), number(1));
                assert!(first == second || first == second + 1, "{first} {second}");
                assert_eq!((number(0), number(1)), (first, second), "the copy does not change");
            }
            ends.store(true, Relaxed);
        });
    }
}

#[test]
fn co_48_regions_do_not_overlap_until_an_unmap_is_over() {
    for list in [
        cached::Form::shared(),
        cached::Form::distributed(ClusterSize::Cpu),
        cached::Form::where_threads_are(ClusterSize::Cpu, 2),
    ] {
        let all = memory();
        let process = Process::new(list, all.handle(), 64);
        let file = || Mapping::new(Arc::new(cache::shared(zeros(4), process.page_manager())));
        let first = process.map(Form::Shared, file()).unwrap();
        let second = process.map(Form::Distributed, file()).unwrap();
        assert!(second.start() >= first.start() + 5 * PAGE, "an unmapped page lies between");
        let overlap = process.map_at(first.start() + 3 * PAGE, Form::Shared, file()).unwrap_err();
        assert!(matches!(overlap, PageFault::Overlap { .. }), "{overlap}");
        process.pin_mut(first.start() + PAGE + 5).unwrap()[5] = 9;
        assert_eq!(process.pin(first.start() + PAGE).unwrap()[5], 9);
        let nowhere = process.pin(first.start() + 4 * PAGE).unwrap_err();
        assert_eq!(nowhere.to_string(), format!("no region is mapped at {:#x}", first.start() + 4 * PAGE));
        process.unmap(first.start()).unwrap();
        assert!(matches!(process.unmap(first.start()), Err(PageFault::NoRegion { .. })));
        assert!(matches!(process.pin(first.start()), Err(PageFault::NoRegion { .. })));
        let third = process.map_at(first.start(), Form::Quiescent, file()).unwrap();
        // An unmap by the handle leaves the region in the list, and the process removes it from there.
        third.handle().unmap().unwrap();
        let overlap = process.map_at(third.start(), Form::Shared, file()).unwrap_err();
        assert!(matches!(overlap, PageFault::Overlap { .. }), "{overlap}");
        process.unmap(third.start()).unwrap();
        assert!(matches!(process.unmap(third.start()), Err(PageFault::NoRegion { .. })));
        let third = process.map_at(third.start(), Form::Quiescent, file()).unwrap();
        assert_eq!(process.region(third.start() + 1), Some(third));
        let too_long = process.map(Form::Shared, file().part(0, 1 << 60)).unwrap_err();
        assert!(matches!(too_long, PageFault::NoAddresses { .. }), "{too_long}");
        let copy = process.copy(second.start(), Form::Shared, &mut copies(4, &all)).unwrap();
        process.pin_mut(copy.start()).unwrap()[0] = 1;
        assert_eq!([second, copy].map(|region| process.pin(region.start()).unwrap()[0]), [0, 1]);
    }
}

#[test]
fn co_44_the_page_manager_of_a_process_has_a_limit_of_its_own() {
    let all = memory();
    let (one, other) = (
        Process::new(cached::Form::shared(), all.handle(), 2),
        Process::new(cached::Form::shared(), all.handle(), 64),
    );
    let region = |process: &Process| {
        let cache = cache::shared(State::with_pages(8).source(), process.page_manager());
        process.map(Form::Shared, Mapping::new(Arc::new(cache))).unwrap().start()
    };
    let (first, second) = (region(&one), region(&other));
    for page in 0..8 {
        one.pin_mut(first + page * PAGE).unwrap()[0] = page as u8 + 1;
        assert!(other.pin(second + page * PAGE).is_ok());
    }
    let used = |process: &Process| process.page_manager().used() - process.page_manager().free();
    assert_eq!((used(&one), used(&other)), (2, 8));
    assert!((0..8).all(|page| one.pin(first + page * PAGE).unwrap()[0] == page as u8 + 1));
}

#[test]
fn a_process_with_few_pages_keeps_most_of_them_while_others_come() {
    let all = memory();
    for max in [1, 5, 16] {
        let process = Process::new(cached::Form::shared(), all.handle(), max);
        let cache = Arc::new(cache::shared(State::with_pages(100).source(), process.page_manager()));
        let start = process.map(Form::Shared, Mapping::new(cache.clone())).unwrap().start();
        for page in 0..100 {
            process.pin_mut(start + page * PAGE).unwrap()[0] = 1;
            let least = (page as usize + 1).min(max - max / 4);
            assert!(cache.sensors().resident >= least, "{:?} of {max} pages", cache.sensors());
        }
    }
}

#[test]
fn co_76_the_working_set_of_a_process_is_set_while_it_runs() {
    let all = memory();
    let process = Process::new(cached::Form::shared(), all.handle(), 32);
    process.page_manager().set_attribute(pages::Attribute::Chunk, 1);
    let states = [State::with_pages(32), State::with_pages(32)];
    let starts = [0, 1].map(|at| {
        let cache = cache::shared(states[at].source(), process.page_manager());
        process.map(Form::Shared, Mapping::new(Arc::new(cache))).unwrap().start()
    });
    let write = |page: u64| {
        for start in starts {
            process.pin_mut(start + page * PAGE).unwrap()[0] = page as u8 + 1;
        }
    };
    assert_eq!(process.working_set(), WorkingSet::Limit { pages_max: 32 });
    (0..16).for_each(write);
    assert_eq!(process.page_manager().used(), 32);
    // A smaller limit takes pages from the caches at once, and each page keeps its bytes.
    process.set_working_set(WorkingSet::Limit { pages_max: 6 }).unwrap();
    assert_eq!((process.page_manager().used(), process.page_manager().max_pages()), (6, 6));
    (16..32).for_each(write);
    assert!(process.page_manager().used() <= 6);
    for (start, page) in starts.iter().flat_map(|start| (0..32).map(move |page| (start, page))) {
        assert_eq!(process.pin(start + page * PAGE).unwrap()[0], page as u8 + 1);
    }
    // A pinned page stays, beyond the limit.
    let frames = [0, 1, 2].map(|page| process.pin(starts[0] + page * PAGE).unwrap());
    process.set_working_set(WorkingSet::Limit { pages_max: 2 }).unwrap();
    assert_eq!((process.page_manager().used(), frames[2][0]), (3, 3));
    drop(frames);
    assert_eq!(process.pin(starts[1]).unwrap()[0], 1);
}

#[test]
fn to_01_the_limit_of_a_process_follows_its_own_rate_of_faults() {
    let all = memory();
    let (rated, other) = (
        Process::new(cached::Form::shared(), all.handle(), 64),
        Process::new(cached::Form::shared(), all.handle(), 64),
    );
    let region = |process: &Process| {
        process.page_manager().set_attribute(pages::Attribute::Chunk, 1);
        let cache = cache::shared(State::with_pages(256).source(), process.page_manager());
        process.map(Form::Shared, Mapping::new(Arc::new(cache))).unwrap().start()
    };
    let (start, beside) = (region(&rated), region(&other));
    let touch =
        |process: &Process, start| (0..256).for_each(|page| _ = process.pin(start + page * PAGE).unwrap());
    let band = |faults_per_s_min, faults_per_s_max| {
        let setting =
            WorkingSet::FaultRate { pages_min: 9, pages_max: 48, faults_per_s_min, faults_per_s_max };
        rated.set_working_set(setting).unwrap();
    };
    touch(&other, beside);
    // No process has so many faults, so the limit falls to the smallest.
    band(u32::MAX - 1, u32::MAX);
    assert_eq!(rated.page_manager().max_pages(), 48);
    while rated.page_manager().max_pages() > 9 {
        touch(&rated, start);
        assert!((9..=48).contains(&rated.page_manager().max_pages()));
    }
    assert!(rated.page_manager().used() <= 9);
    // One fault per second is soon exceeded.
    band(0, 1);
    while rated.page_manager().max_pages() < 48 {
        touch(&rated, start);
    }
    // Without faults, an adjustment alone lowers it.
    band(1, u32::MAX);
    while rated.page_manager().max_pages() > 9 {
        rated.adjust_working_set();
    }
    assert!(rated.page_manager().used() <= 9);
    // The other process kept its pages.
    assert_eq!((other.page_manager().max_pages(), other.page_manager().used()), (64, 64));
}

/// A user of a page manager, with code of the program.
struct Asks {
    process: Arc<Process>,
    /// The policies that it saw.
    seen: Arc<Mutex<Vec<WorkingSet>>>,
    panics: Arc<AtomicBool>,
}

impl PageUser for Asks {
    fn give_back(&self, _: usize) -> usize {
        self.seen.lock().unwrap().push(self.process.working_set());
        assert!(!self.panics.load(Relaxed), "the user has a bug");
        0
    }
}

#[test]
fn a_user_of_pages_may_ask_for_the_working_set_and_may_panic() {
    let all = memory();
    let process = Arc::new(Process::new(cached::Form::shared(), all.handle(), 16));
    process.page_manager().set_attribute(pages::Attribute::Chunk, 1);
    let cache = cache::shared(State::with_pages(16).source(), process.page_manager());
    let start = process.map(Form::Shared, Mapping::new(Arc::new(cache))).unwrap().start();
    let (seen, panics) = (Arc::<Mutex<Vec<_>>>::default(), Arc::new(AtomicBool::new(true)));
    let asks = Asks { process: process.clone(), seen: seen.clone(), panics: panics.clone() };
    let asks = squall_core::shared::<dyn PageUser, _>(asks);
    let _attached = process.page_manager().attach(asks.handle());
    // The cache cannot give a page back.
    let frames = Vec::from_iter((0..16).map(|page| process.pin(start + page * PAGE).unwrap()));
    let rated =
        WorkingSet::FaultRate { pages_min: 2, pages_max: 8, faults_per_s_min: 1, faults_per_s_max: u32::MAX };
    let panicked = catch_unwind(AssertUnwindSafe(|| process.set_working_set(rated)));
    assert!(panicked.is_err() && *seen.lock().unwrap() == [rated]);
    // The policy is in force, and the limit falls without faults.
    panics.store(false, Relaxed);
    process.adjust_working_set();
    assert_eq!((process.working_set(), process.page_manager().max_pages()), (rated, 7));
    drop(frames);
    process.adjust_working_set();
    assert!(process.page_manager().used() <= 6);
}

#[test]
fn bad_working_sets_are_refused_with_the_name_of_the_page_manager() {
    let all = memory();
    let process = Process::new(cached::Form::shared(), all.handle(), 5);
    let refused = |setting| process.set_working_set(setting).unwrap_err().to_string();
    let rated = |pages_min, pages_max, faults_per_s_min, faults_per_s_max| WorkingSet::FaultRate {
        pages_min,
        pages_max,
        faults_per_s_min,
        faults_per_s_max,
    };
    let manager = format!("the page manager {}", squall_core::Handle::id(process.page_manager()));
    let none = refused(WorkingSet::Limit { pages_max: 0 });
    assert_eq!(none, format!("a working set of {manager} without pages was refused; allow at least 1 page"));
    assert_eq!(refused(rated(0, 5, 1, 2)), none);
    let reversed = refused(rated(6, 5, 1, 2));
    assert!(
        reversed.contains(&manager) && reversed.contains("6 pages is above its largest of 5"),
        "{reversed}"
    );
    let rates = refused(rated(1, 5, 2, 2));
    assert!(rates.contains(&manager) && rates.contains("2 faults per second is not below"), "{rates}");
    assert_eq!(process.working_set(), WorkingSet::Limit { pages_max: 5 });
    assert_eq!(process.page_manager().max_pages(), 5);
}

#[test]
fn faults_go_on_while_everything_is_swapped() {
    const PAGES: u64 = 16;
    let rounds = if cfg!(miri) { 10 } else { 300 };
    let all = memory();
    let process = Process::new(cached::Form::shared(), all.handle(), 12);
    let cache: SharedCache =
        Arc::new(cache::shared(State::with_pages(PAGES as usize).source(), process.page_manager()));
    let mapped = process.map(Form::Shared, Mapping::new(cache.clone())).unwrap();
    let (ends, start, writes) = (AtomicBool::new(false), Barrier::new(4), AtomicU64::new(0));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker: u64| {
                let (process, start, writes) = (&process, &start, &writes);
                scope.spawn(move || {
                    start.wait();
                    for round in 0..rounds {
                        let address = mapped.start() + (worker * 7 + round * 3) % PAGES * PAGE;
                        if round % 4 == 0 {
                            let mut frame = process.pin_mut(address).unwrap();
                            let count = u64::from_le_bytes(frame[..8].try_into().unwrap());
                            frame[..8].copy_from_slice(&(count + 1).to_le_bytes());
                            writes.fetch_add(1, Relaxed);
                        } else {
                            assert_eq!(process.pin(address).unwrap().len(), PAGE_BYTES);
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            start.wait();
            while !ends.load(Relaxed) {
                for form in FORMS {
                    // A swap may give up while calls are inside.
                    let _ = swap(mapped.handle(), region::new_region(form));
                    let _ = process.regions().set_form(cached::Form::distributed(ClusterSize::Cpu));
                    let _ = swap(
                        cache.handle(),
                        cache::new_cache(cache::Form::Partitioned { partitions: 2, shift: 0 }),
                    );
                    let _ = process.regions().set_form(cached::Form::shared());
                    let _ =
                        swap(cache.handle(), cache::new_cache(cache::Form::Distributed(ClusterSize::Cpu)));
                }
            }
        });
        let _end = End(&ends);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    let sum: u64 = (0..PAGES)
        .map(|page| {
            u64::from_le_bytes(process.pin(mapped.start() + page * PAGE).unwrap()[..8].try_into().unwrap())
        })
        .sum();
    assert_eq!(sum, writes.load(Relaxed));
}
