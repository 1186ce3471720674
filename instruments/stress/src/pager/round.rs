//! One round: its world, its threads, and the comparison at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use squall::objects::cached;
use squall::objects::pages::{self, Attribute, PagePool, Supply};
use squall::pager::PageFault;
use squall::pager::cache::{self, FileCache, FileCacheExt, PAGE_BYTES};
use squall::pager::process::Process;
use squall::{CallErrorKind, ClusterSize, Handle, Owned};

use super::books::{Family, File, Place};
use super::breaks::Break;
use super::counts::Counts;
use super::pattern::Content;
use super::store::{Store, Stress};
use super::worker::{HELD_MAX, Worker};
use crate::run::{Rng, Run, Violation, lock};
use crate::skeleton::cleanup::drain_values;
use crate::skeleton::expected_panic::panic_message;
use crate::skeleton::placement::AllowedCpus;
use crate::violations::Violations;

/// Distance between the random streams of two rounds.
const STREAMS: u64 = 1 << 20;
/// Number of regions of a round.
const PLACES: usize = 6;
/// Maximum number of pages of a file.
pub(super) const PAGES_MAX: u64 = 24;
/// Pages of the pool beyond those that threads may pin.
const SPARE_PAGES: u64 = 24;
/// Number of files that threads still call after their regions have gone.
const FORMER_MAX: usize = 6;
/// A planned break happens once in this many chances.
const BREAK_ONE_IN: u64 = 32;

/// A slot for a region.
#[derive(Default)]
pub(super) struct Slot {
    place: Option<Arc<Place>>,
    /// A thread changes the slot.
    is_taken: bool,
}

impl Slot {
    /// Takes a slot, unless another thread has it. Returns its region too.
    pub(super) fn take(slot: &Mutex<Slot>) -> Option<TakenSlot<'_>> {
        let mut inner = lock(slot);
        if inner.is_taken {
            return None;
        }
        inner.is_taken = true;
        Some(TakenSlot { slot, place: inner.place.take() })
    }

    pub(super) fn place(slot: &Mutex<Slot>) -> Option<Arc<Place>> {
        lock(slot).place.clone()
    }
}

/// A slot that a thread changes. Dropping it gives the slot back.
pub(super) struct TakenSlot<'a> {
    slot: &'a Mutex<Slot>,
    place: Option<Arc<Place>>,
}

impl TakenSlot<'_> {
    pub(super) fn place(&self) -> Option<Arc<Place>> {
        self.place.clone()
    }

    /// Sets the region, and gives the slot back.
    pub(super) fn set(mut self, place: Option<Arc<Place>>) {
        self.place = place;
    }
}

impl Drop for TakenSlot<'_> {
    fn drop(&mut self) {
        *lock(self.slot) = Slot { place: self.place.take(), is_taken: false };
    }
}

/// The data that all threads of a round share.
pub(super) struct World<'a> {
    pub(super) pool: Owned<dyn PagePool>,
    pub(super) processes: Vec<Process>,
    pub(super) slots: Vec<Mutex<Slot>>,
    /// Files without a region, and parents of copies.
    pub(super) former: Mutex<Vec<Arc<File>>>,
    pub(super) violations: Arc<Violations>,
    families: AtomicU64,
    serials: AtomicU64,
    addresses: AtomicU64,
    seed: u64,
    fails_one_in: u64,
    pub(super) broken: Option<Break>,
    pub(super) home: &'a AllowedCpus,
}

impl World<'_> {
    pub(super) fn fail(&self, what: impl Into<String>) {
        self.violations.fail(what);
    }

    pub(super) fn breaks(&self, planned: Break, rng: &mut Rng) -> bool {
        self.broken == Some(planned) && rng.one_in(BREAK_ONE_IN)
    }

    /// Returns the contents of a new write.
    pub(super) fn content(&self, family: u64, words: u64) -> Content {
        Content::new(1 + self.serials.fetch_add(1, Ordering::Relaxed), family, words)
    }

    /// Returns the start of addresses that no region had before.
    pub(super) fn addresses(&self) -> u64 {
        self.addresses.fetch_add((PAGES_MAX + 1) * PAGE_BYTES as u64, Ordering::Relaxed)
    }

    /// Makes a source.
    pub(super) fn store(&self, bytes: u64, rng: &mut Rng) -> Arc<Store> {
        let seed = self.seed ^ rng.next();
        Arc::new(Store::new(bytes, self.fails_one_in, self.broken, &self.violations, seed))
    }

    /// Makes a file of a family of its own. Its pages come from the pool, or from a page manager.
    pub(super) fn file(&self, process: usize, rng: &mut Rng) -> Arc<File> {
        let number = self.families.fetch_add(1, Ordering::Relaxed) % (1 << 16);
        let family = Arc::new(Family { number, control: Mutex::default() });
        let store = self.store((1 + rng.below(PAGES_MAX)) * PAGE_BYTES as u64, rng);
        let pool = if rng.one_in(2) { self.pool.handle() } else { self.processes[process].page_manager() };
        let cache = cache::with_form(cache_form(rng), squall::shared(Stress(store.clone())), pool);
        File::new(&family, Arc::new(cache), store, None)
    }

    /// Adds a file to those that threads call although no place has them. Lets go of the oldest one.
    pub(super) fn let_go(&self, file: Arc<File>, rng: &mut Rng) {
        let oldest = {
            let mut former = lock(&self.former);
            if !former.iter().any(|known| Arc::ptr_eq(known, &file)) {
                former.push(file);
            }
            if former.len() <= FORMER_MAX { None } else { Some(former.remove(0)) }
        };
        let Some(oldest) = oldest else { return };
        let is_mapped =
            self.slots.iter().filter_map(Slot::place).any(|place| Arc::ptr_eq(&place.look().0, &oldest));
        if is_mapped {
            return;
        }
        // Release: pairs with the Acquire of a thread that checks an error of the file.
        oldest.is_ending.store(true, Ordering::Release);
        let cache = lock(&oldest.cache).take();
        if self.breaks(Break::LeakCache, rng) {
            std::mem::forget(cache);
        }
    }
}

/// Returns a random form of a cache.
pub(super) fn cache_form(rng: &mut Rng) -> cache::Form {
    match rng.below(4) {
        0 => cache::Form::Shared,
        1 => cache::Form::Distributed(ClusterSize::Cpu),
        2 => cache::Form::Distributed(ClusterSize::Machine),
        _ => cache::Form::Partitioned { partitions: 1 + rng.below(5) as usize, shift: rng.below(3) as u32 },
    }
}

/// Returns a random form of a list of regions.
pub(super) fn list_form(rng: &mut Rng) -> cached::Form {
    match rng.below(3) {
        0 => cached::Form::shared(),
        1 => cached::Form::distributed(ClusterSize::Cpu),
        _ => cached::Form::where_threads_are(ClusterSize::Cpu, 1 + rng.below(4) as u32),
    }
}

/// Lets a pool get pages one by one, so that its limit holds all pages.
fn in_small_batches(pool: Handle<dyn PagePool>) {
    for attribute in [Attribute::Chunk, Attribute::Batch] {
        pool.set_attribute(attribute, 1);
    }
    pool.set_attribute(Attribute::Threshold, 4);
}

fn new_world<'a>(
    run: &Run,
    broken: Option<Break>,
    home: &'a AllowedCpus,
    violations: &Arc<Violations>,
    rng: &mut Rng,
) -> World<'a> {
    let pinned = (run.threads * (HELD_MAX + 2)) as u64;
    let pool = pages::distributed(Supply::system((pinned + 1 + rng.below(SPARE_PAGES)) as usize));
    in_small_batches(pool.handle());
    let processes = (0..2)
        .map(|_| {
            let most = pinned + rng.below(SPARE_PAGES);
            let process = Process::new(list_form(rng), pool.handle(), most as usize);
            in_small_batches(process.page_manager());
            process
        })
        .collect();
    World {
        pool,
        processes,
        slots: (0..PLACES).map(|_| Mutex::default()).collect(),
        former: Mutex::default(),
        violations: violations.clone(),
        families: AtomicU64::new(0),
        serials: AtomicU64::new(0),
        // Far above those that processes choose.
        addresses: AtomicU64::new(1 << 40),
        seed: rng.next(),
        fails_one_in: if rng.one_in(3) { 0 } else { 8 + rng.below(64) },
        broken,
        home,
    }
}

/// Runs a round.
pub(super) fn run(
    run: &Run,
    round: u64,
    broken: Option<Break>,
    home: &AllowedCpus,
    counts: &Counts,
) -> Result<(), Violation> {
    let stream = round * STREAMS;
    let mut rng = run.rng(stream + STREAMS - 1);
    let violations = Arc::new(Violations::default());
    let objects = squall::snapshot().len();
    let world = new_world(run, broken, home, &violations, &mut rng);
    let pool = world.pool.handle();
    // A thread that waits to write a page needs the frames of threads that have ended their steps.
    let (steps_end, pins_end) = (Barrier::new(run.threads), Barrier::new(run.threads + 1));
    let world_ends = Barrier::new(run.threads + 1);
    let mut rest = None;
    thread::scope(|scope| {
        let shared = Arc::new(world);
        for index in 0..run.threads {
            let rng = run.rng(stream + index as u64);
            let (world, violations) = (shared.clone(), violations.clone());
            let (steps_end, pins_end, world_ends) = (&steps_end, &pins_end, &world_ends);
            scope.spawn(move || {
                let mut worker = Worker::new(rng);
                let guarded = |body: &mut dyn FnMut()| {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
                        violations.fail(format!("a thread panicked: {}", panic_message(&*panic)));
                    }
                };
                guarded(&mut || worker.live(&world));
                guarded(&mut || worker.drop_all(&violations));
                steps_end.wait();
                guarded(&mut || worker.pin_late(&world));
                drop(world);
                pins_end.wait();
                world_ends.wait();
                guarded(&mut || worker.drop_all(&violations));
                counts.flush();
            });
        }
        pins_end.wait();
        let world = Arc::into_inner(shared);
        let ended = world.map(|world| end(world, &mut rng));
        world_ends.wait();
        rest = ended;
    });
    counts.flush();
    let Some(pool_owner) = rest else {
        return Err(Violation("a thread kept the world of its round".to_owned()));
    };
    let check = |alive: &dyn Fn() -> i64, what: &str| {
        if !violations.is_over()
            && let Err(what) = drain_values(alive, what)
        {
            violations.fail(what);
        }
    };
    check(&|| pool.used() as i64 - pool.free() as i64, "pages of the pool are in use after all was dropped");
    drop(pool_owner);
    check(&|| squall::snapshot().len() as i64 - objects as i64, "objects remain after all was dropped");
    violations.first().map_or(Ok(()), |what| Err(Violation(what)))
}

/// Compares all files with their books, and drops everything but the pool, while threads have frames.
fn end(world: World<'_>, rng: &mut Rng) -> Owned<dyn PagePool> {
    let places: Vec<Arc<Place>> = world.slots.iter().filter_map(Slot::place).collect();
    // Pages of each file may have to be written before another one can be read.
    let files: Vec<_> =
        places.iter().map(|place| place.look().0).chain(lock(&world.former).iter().cloned()).collect();
    files.iter().flat_map(File::lineage).for_each(|file| file.store.heal());
    for place in &places {
        if !world.violations.is_over() {
            compare(&world, &place.look().0, rng);
        }
    }
    let World { pool, processes, slots, former, .. } = world;
    let let_go = || files.iter().for_each(|file| drop(lock(&file.cache).take()));
    if rng.one_in(2) {
        let_go();
        drop(processes);
    } else {
        drop(processes);
        let_go();
    }
    drop((slots, places, former));
    pool
}

/// Syncs a file and its parents, and compares each page with its book, in the source and in memory.
fn compare(world: &World<'_>, file: &Arc<File>, rng: &mut Rng) {
    for ancestor in file.lineage() {
        if world.breaks(Break::SkipSync, rng) {
            continue;
        }
        match ancestor.handle.sync() {
            Ok(_) => {}
            // A copy without changes leaves the chain when it is copied, and ends with its owner.
            Err(PageFault::Call(error))
                if error.reason() == CallErrorKind::Destroyed && ancestor.is_unchanged_copy() => {}
            Err(error) => return world.fail(format!("a sync of a sound source failed: {error}")),
        }
    }
    file.handle.set_attribute(cache::Attribute::PatienceMs, 60_000);
    for page in 0..file.pages() {
        let said = file.book(page).0.content();
        let stored = file.stored(page);
        if stored != said {
            return world.fail(format!(
                "the source has {stored:?} of page {page} after a sync, although the books say {said:?}"
            ));
        }
        match file.handle.pin(page).map(|frame| Content::read(page, &frame)) {
            Ok(Ok(found)) if found == said => {}
            Ok(Ok(found)) => {
                return world.fail(format!(
                    "page {page} shows {found:?} at the end, although the books say {said:?}"
                ));
            }
            Ok(Err(what)) => return world.fail(what),
            Err(error) => return world.fail(format!("page {page} cannot be pinned at the end: {error}")),
        }
    }
}
