//! Programs that use the pager badly: sources that panic or stall, forgotten frames, pins at odd moments.

use crate::memory::State;
use squall_core::swap::swap;
use squall_core::{Handle, Owned};
use squall_machine::ClusterSize;
use squall_objects::pages::{self, PagePool, Supply};
use squall_pager::cache::{self, Access, Attribute, FileCache, FileCacheExt, Form, PAGE_BYTES};
use squall_pager::source::{Filled, Source, SourceError, SourceStatistics};
use squall_pager::{Frame, PageFault};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

const FORMS: [Form; 3] =
    [Form::Shared, Form::Distributed(ClusterSize::Cpu), Form::Partitioned { partitions: 3, shift: 1 }];

fn pool(pages: usize) -> Owned<dyn PagePool> {
    let pool = pages::distributed(Supply::system(pages));
    pool.set_attribute(pages::Attribute::Chunk, 1);
    pool
}

fn in_use(pool: &Owned<dyn PagePool>) -> usize {
    squall_rcu::barrier().unwrap();
    squall_rcu::barrier().unwrap();
    pool.used() - pool.free()
}

/// Returns whether `f` panics.
fn panics<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

/// Calls that the source is to spoil.
#[derive(Default)]
struct Spoils {
    fill: AtomicBool,
    write: AtomicBool,
    set_len: AtomicBool,
}

impl Spoils {
    fn set(&self, panics: bool) {
        [&self.fill, &self.write, &self.set_len].iter().for_each(|spoil| spoil.store(panics, Relaxed));
    }
}

/// A source that panics on demand.
struct Panicking {
    spoils: Arc<Spoils>,
    inner: Owned<dyn Source>,
}

impl Source for Panicking {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn fill(&self, page: u64, into: &mut [u8]) -> Result<Filled, SourceError> {
        assert!(!self.spoils.fill.load(Relaxed), "a planned panic of a fill");
        self.inner.fill(page, into)
    }

    fn write(&self, page: u64, from: &[u8]) -> Result<(), SourceError> {
        assert!(!self.spoils.write.load(Relaxed), "a planned panic of a write");
        self.inner.write(page, from)
    }

    fn set_len(&self, bytes: u64) -> Result<(), SourceError> {
        assert!(!self.spoils.set_len.load(Relaxed), "a planned panic of a change of the length");
        self.inner.set_len(bytes)
    }

    fn sync(&self) -> Result<(), SourceError> {
        self.inner.sync()
    }

    fn statistics(&self) -> SourceStatistics {
        self.inner.statistics()
    }
}

/// Returns a source of `pages` pages that panics on demand, and its state.
fn panicking(pages: usize) -> (Owned<dyn Source>, Arc<Spoils>, Arc<State>) {
    let (spoils, state) = (Arc::<Spoils>::default(), State::with_pages(pages));
    let source = Panicking { spoils: spoils.clone(), inner: state.source() };
    (squall_core::shared(source), spoils, state)
}

#[test]
fn a_source_that_panics_in_a_fill_harms_the_calling_thread_alone() {
    for form in FORMS {
        let (source, spoils, _) = panicking(4);
        let memory = pool(8);
        let cache = cache::with_form(form, source, memory.handle());
        spoils.set(true);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| panics(|| cache.pin(1)))).collect();
            assert!(threads.into_iter().all(|thread| thread.join().unwrap()), "{form:?}");
        });
        assert!(panics(|| cache.pin_mut(1)));
        assert_eq!((cache.sensors().resident, in_use(&memory)), (0, 0), "{form:?}");
        spoils.set(false);
        assert_eq!(cache.pin(1).unwrap().len(), PAGE_BYTES);
        swap(cache.handle(), cache::new_cache(Form::Shared)).unwrap();
        assert_eq!(cache.pin(1).unwrap()[0], 0);
    }
}

#[test]
fn a_source_that_panics_in_a_write_loses_no_page_and_harms_no_other_cache() {
    for form in FORMS {
        let (source, spoils, state) = panicking(2);
        let memory = pool(3);
        let cache = cache::with_form(form, source, memory.handle());
        for page in 0..2 {
            cache.pin_mut(page).unwrap().fill(page as u8 + 1);
        }
        spoils.set(true);
        assert!(panics(|| cache.sync()));
        // The other cache has one page for all of its own, and asks this one in vain.
        let other = cache::with_form(form, State::with_pages(6).source(), memory.handle());
        for page in 0..6 {
            assert!(other.pin(page).is_ok(), "{form:?}");
        }
        assert_eq!(cache.sensors().dirty, 2);
        assert!(panics(|| cache.set_len(PAGE_BYTES as u64)));
        assert_eq!((cache.len(), cache.pin(1).unwrap()[7]), (2 * PAGE_BYTES as u64, 2), "{form:?}");
        spoils.set(false);
        assert_eq!(cache.sync().unwrap(), 2);
        assert_eq!((state.first(0), state.first(1)), (1, 2));
        cache.set_len(PAGE_BYTES as u64).unwrap();
        assert!(matches!(cache.pin(1), Err(PageFault::BeyondEnd { .. })));
    }
}

/// A source in which a fill of page 0 reads the page, tells that, and waits for a word.
struct Slow {
    begun: mpsc::SyncSender<()>,
    go: Mutex<mpsc::Receiver<()>>,
    inner: Owned<dyn Source>,
}

impl Source for Slow {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn fill(&self, page: u64, into: &mut [u8]) -> Result<Filled, SourceError> {
        let filled = self.inner.fill(page, into);
        if page == 0 {
            self.begun.send(()).unwrap();
            self.go.lock().unwrap().recv().unwrap();
        }
        filled
    }

    fn write(&self, page: u64, from: &[u8]) -> Result<(), SourceError> {
        self.inner.write(page, from)
    }

    fn set_len(&self, bytes: u64) -> Result<(), SourceError> {
        self.inner.set_len(bytes)
    }

    fn sync(&self) -> Result<(), SourceError> {
        self.inner.sync()
    }

    fn statistics(&self) -> SourceStatistics {
        self.inner.statistics()
    }
}

fn slow(state: &Arc<State>) -> (Owned<dyn Source>, mpsc::Receiver<()>, mpsc::SyncSender<()>) {
    let ((begun, has_begun), (go, word)) = (mpsc::sync_channel(16), mpsc::sync_channel(16));
    let source = Slow { begun, go: Mutex::new(word), inner: state.source() };
    (squall_core::shared(source), has_begun, go)
}

#[test]
fn a_slow_fill_holds_up_its_own_page_alone() {
    for form in FORMS {
        let state = State::with_pages(8);
        let (source, has_begun, go) = slow(&state);
        let memory = pool(4);
        let cache = cache::with_form(form, source, memory.handle());
        thread::scope(|scope| {
            let fault = scope.spawn(|| cache.pin(0).map(|frame| frame.page()));
            has_begun.recv().unwrap();
            for page in 1..8 {
                cache.pin_mut(page).unwrap()[0] = page as u8;
            }
            cache.sync().unwrap();
            assert_eq!(state.first(7), 7);
            cache.set_len(9 * PAGE_BYTES as u64).unwrap();
            while cache.evict(9) == 0 {}
            go.send(()).unwrap();
            assert_eq!(fault.join().unwrap().unwrap(), 0);
        });
    }
}

#[test]
fn a_page_that_was_read_before_its_file_was_cut_is_read_again() {
    for form in FORMS {
        for grows in [false, true] {
            let state = State::with_pages(2);
            state.bytes.lock().unwrap().fill(9);
            let (source, has_begun, go) = slow(&state);
            let memory = pool(4);
            let cache = cache::with_form(form, source, memory.handle());
            thread::scope(|scope| {
                let fault = scope.spawn(|| cache.pin(0).map(|frame| frame[0]));
                has_begun.recv().unwrap();
                cache.set_len(0).unwrap();
                if grows {
                    cache.set_len(2 * PAGE_BYTES as u64).unwrap();
                    go.send(()).unwrap();
                }
                go.send(()).unwrap();
                match fault.join().unwrap() {
                    Ok(byte) => assert!(grows && byte == 0, "{form:?}: bytes that were cut off came back"),
                    Err(error) => assert!(!grows && matches!(error, PageFault::BeyondEnd { page: 0, .. })),
                }
            });
            assert_eq!((cache.sensors().resident, in_use(&memory)), (usize::from(grows), usize::from(grows)));
        }
    }
}

#[test]
fn a_copied_page_is_kept_although_no_thread_has_changed_it() {
    for form in FORMS {
        let state = State::with_pages(2);
        state.bytes.lock().unwrap().fill(3);
        let memory = pool(8);
        let parent = Arc::new(cache::with_form(form, state.source(), memory.handle()));
        let own = State::with_pages(2);
        let copy = cache::copy_of(parent, form, own.source(), memory.handle());
        let located = copy.fault(0, Access::Write).unwrap();
        while copy.evict(1) == 0 {}
        drop(located);
        assert_eq!((copy.pin(0).unwrap()[5], own.first(0)), (3, 3), "{form:?}");
    }
}

#[test]
fn a_fault_for_writing_that_a_copy_overtakes_is_refused() {
    for form in FORMS {
        let state = State::with_pages(2);
        let (source, has_begun, go) = slow(&state);
        let memory = pool(8);
        let parent = Arc::new(cache::with_form(form, source, memory.handle()));
        thread::scope(|scope| {
            let late = scope.spawn(|| parent.pin_mut(0).map(|mut frame| frame.fill(7)));
            has_begun.recv().unwrap();
            let copy = cache::copy_of(parent.clone(), form, State::with_pages(2).source(), memory.handle());
            go.send(()).unwrap();
            assert!(matches!(late.join().unwrap(), Err(PageFault::Frozen { .. })), "{form:?}");
            assert_eq!(copy.pin(0).unwrap()[0], 0, "{form:?}");
        });
    }
}

#[test]
fn a_forgotten_frame_keeps_its_page_and_nothing_else() {
    for form in FORMS {
        let memory = pool(3);
        let cache = cache::with_form(form, State::with_pages(8).source(), memory.handle());
        cache.pin_mut(0).unwrap().fill(5);
        std::mem::forget(cache.pin(0).unwrap());
        for page in 1..8 {
            cache.pin_mut(page).unwrap()[0] = 1;
        }
        assert_eq!((cache.pin(0).unwrap()[9], cache.sync().is_ok()), (5, true));
        while cache.sensors().resident > 1 {
            cache.evict(9);
        }
        cache.set_len(0).unwrap();
        drop(cache);
        assert_eq!(in_use(&memory), 1, "{form:?}");
    }
}

thread_local! {
    static KEPT: RefCell<Option<Frame>> = const { RefCell::new(None) };
}

#[test]
fn a_pin_of_a_thread_that_ends_goes_with_the_thread() {
    for form in FORMS {
        let memory = pool(3);
        let cache = cache::with_form(form, State::with_pages(8).source(), memory.handle());
        thread::scope(|scope| {
            // A thread-local value that is used first is dropped last, after those of Squall.
            scope.spawn(|| KEPT.with(|kept| *kept.borrow_mut() = Some(cache.pin(0).unwrap())));
        });
        // The scope may end before the thread has dropped its values.
        let handle = cache.handle();
        thread::spawn(move || KEPT.with(|kept| *kept.borrow_mut() = Some(handle.pin(1).unwrap())))
            .join()
            .unwrap();
        while cache.sensors().resident > 0 {
            cache.evict(9);
            thread::yield_now();
        }
        drop(cache);
        assert_eq!(in_use(&memory), 0, "{form:?}");
    }
}

/// An object that pins a page of a cache in its drop.
struct PinsAtItsEnd {
    cache: Handle<dyn FileCache>,
    seen: Arc<Mutex<Option<Result<u8, PageFault>>>>,
}

impl Drop for PinsAtItsEnd {
    fn drop(&mut self) {
        let seen = self.cache.pin_mut(3).map(|mut frame| {
            frame[0] += 1;
            frame[0]
        });
        *self.seen.lock().unwrap() = Some(seen);
    }
}

impl pages::PageUser for PinsAtItsEnd {
    fn give_back(&self, _: usize) -> usize {
        0
    }
}

#[test]
fn a_page_can_be_pinned_in_the_drop_of_an_object() {
    for form in FORMS {
        let memory = pool(3);
        let cache = cache::with_form(form, State::with_pages(8).source(), memory.handle());
        let seen = Arc::new(Mutex::new(None));
        let object = PinsAtItsEnd { cache: cache.handle(), seen: seen.clone() };
        let object: Owned<dyn pages::PageUser> = squall_core::shared(object);
        Owned::destroy(object).wait().unwrap();
        squall_rcu::barrier().unwrap();
        assert_eq!(seen.lock().unwrap().take().unwrap().unwrap(), 1, "{form:?}");
        assert_eq!(cache.pin(3).unwrap()[0], 1);
    }
}

#[test]
fn a_pin_inside_an_operation_finds_pages_and_fills_them_while_memory_is_free() {
    for form in FORMS {
        let memory = pool(2);
        let cache = cache::with_form(form, State::with_pages(8).source(), memory.handle());
        cache.set_attribute(Attribute::PatienceMs, 0);
        squall_rcu::pin(|_| {
            assert_eq!(cache.pin(0).unwrap()[0], 0);
            cache.pin_mut(0).unwrap()[0] = 1;
            assert_eq!((cache.pin(0).unwrap()[0], cache.pin(1).unwrap()[0]), (1, 0));
            // No page is evicted inside an operation.
            assert!(matches!(cache.pin(2), Err(PageFault::NoMemory { page: 2, .. })), "{form:?}");
        });
        assert_eq!(cache.pin(2).unwrap()[0], 0);
    }
}

#[test]
fn a_thread_can_pin_a_page_again_while_no_thread_writes_it() {
    for form in FORMS {
        let memory = pool(3);
        let cache = cache::with_form(form, State::with_pages(8).source(), memory.handle());
        cache.pin_mut(0).unwrap().fill(4);
        let mut frames: Vec<Frame> = (0..40).map(|_| cache.pin(0).unwrap()).collect();
        while let Some(frame) = frames.pop() {
            assert_eq!(cache.evict(9), 0, "{form:?}");
            assert_eq!(frame[17], 4);
        }
        while cache.evict(9) == 0 {}
        assert_eq!(cache.sensors().resident, 0);
    }
}

#[test]
fn a_fault_that_runs_while_its_cache_is_destroyed_ends_and_leaks_nothing() {
    for form in FORMS {
        let state = State::with_pages(8);
        let (source, has_begun, go) = slow(&state);
        let memory = pool(4);
        let cache = cache::with_form(form, source, memory.handle());
        let handle = cache.handle();
        thread::scope(|scope| {
            let fault = scope.spawn(move || handle.fault(0, Access::Read).map(drop));
            let pin = scope.spawn(move || handle.pin(0).map(|frame| frame[0]));
            has_begun.recv().unwrap();
            let cleanup = Owned::destroy(cache);
            let refused = handle.pin(1);
            assert!(matches!(refused, Err(PageFault::Call(_))), "{form:?}");
            go.send(()).unwrap();
            // The other one of the two faults may find the cache gone.
            go.send(()).unwrap();
            let located = fault.join().unwrap();
            assert!(matches!(located, Ok(_) | Err(PageFault::Call(_))), "{located:?}");
            let pinned = pin.join().unwrap();
            assert!(matches!(pinned, Ok(0) | Err(PageFault::Call(_))), "{pinned:?}");
            drop(located);
            cleanup.wait().unwrap();
        });
        assert_eq!(in_use(&memory), 0, "{form:?}");
    }
}

#[test]
fn a_frozen_file_keeps_its_length_for_its_copies() {
    for form in FORMS {
        let (state, memory) = (State::with_pages(4), pages::distributed(Supply::system(64)));
        state.bytes.lock().unwrap()[3 * PAGE_BYTES] = 7;
        let parent = Arc::new(cache::with_form(form, state.source(), memory.handle()));
        let copy = cache::copy_of(parent.clone(), form, State::with_pages(4).source(), memory.handle());
        for pages in [0, 2, 8] {
            let error = parent.set_len(pages * PAGE_BYTES as u64).unwrap_err();
            assert!(matches!(error, PageFault::Frozen { .. }), "{error}");
        }
        assert_eq!((parent.len(), copy.pin(3).unwrap()[0]), (4 * PAGE_BYTES as u64, 7));
    }
}
