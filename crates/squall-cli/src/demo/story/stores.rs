//! The service: hits by page, and their total. It is kept under a lock, in two crates, and in Squall objects.
//!
//! - I1. All maps have the same keys, values and hasher. Their values are plain numbers.
//! - I2. Each total has a cache line of its own, except under a lock. There it is beside the map.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use squall::objects::counter::{self, Counter};
use squall::objects::map::{self, MapExt, MapHandle, OwnedMap};
use squall::{Handle, Id, Owned};

/// The hasher of all maps.
type Hasher = foldhash::fast::RandomState;

/// Number of pages.
pub(super) const PAGES: u64 = 10_000;
/// Number of operations in a series. A phase says how many of them record a hit.
pub(super) const SERIES: u32 = 20;
/// Number of series between two looks at the stop flag.
const BATCH: u32 = 16;

/// The hits by page and their total.
pub(super) trait Hits: Send + Sync {
    /// Records a hit of a page.
    fn hit(&self, page: u64);
    /// Returns the hits of a page.
    fn hits(&self, page: u64) -> u64;
    /// Returns the hits of all pages, as counted beside the map.
    fn total(&self) -> u64;

    /// Runs series of operations until `stop` is set, and at least one batch. `writes` operations of each
    /// series record a hit, and the others look up a page. Compiled once for each store, so that no operation
    /// is a virtual call.
    fn work(&self, writes: u32, random: &mut u64, stop: &AtomicBool) -> Work {
        let began = Instant::now();
        let mut series = 0;
        loop {
            for _ in 0..BATCH {
                for operation in 0..SERIES {
                    let page = next_page(random);
                    if operation < writes {
                        self.hit(page);
                    } else {
                        std::hint::black_box(self.hits(page));
                    }
                }
            }
            series += u64::from(BATCH);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Work {
            operations: series * u64::from(SERIES),
            hits: series * u64::from(writes),
            time: began.elapsed(),
        }
    }

    /// Returns a description of the difference if the store has not counted exactly `made` hits.
    fn difference(&self, made: u64) -> Option<String> {
        let (total, sum) = (self.total(), (0..PAGES).map(|page| self.hits(page)).sum::<u64>());
        let is_right = total == made && sum == made;
        (!is_right).then(|| format!("{made} hits were made, its total is {total}, and its pages have {sum}"))
    }
}

/// Returns a random page: xorshift, without division.
fn next_page(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    ((*random >> 32) * PAGES) >> 32
}

/// The work of one thread, or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) operations: u64,
    /// Operations that recorded a hit.
    pub(super) hits: u64,
    /// Sum of the threads' times.
    pub(super) time: Duration,
}

impl Work {
    pub(super) fn plus(self, other: Work) -> Work {
        Work {
            operations: self.operations + other.operations,
            hits: self.hits + other.hits,
            time: self.time + other.time,
        }
    }

    /// Returns the time of one operation as one thread sees it, in nanoseconds.
    pub(super) fn ns(self) -> f64 {
        self.time.as_secs_f64() * 1e9 / self.operations.max(1) as f64
    }
}

/// std's map and a total, for one lock.
struct Plain {
    by_page: HashMap<u64, u64, Hasher>,
    total: u64,
}

impl Plain {
    fn new() -> Plain {
        Plain { by_page: (0..PAGES).map(|page| (page, 0)).collect(), total: 0 }
    }

    fn hit(&mut self, page: u64) {
        if let Some(hits) = self.by_page.get_mut(&page) {
            *hits += 1;
            self.total += 1;
        }
    }

    fn hits(&self, page: u64) -> u64 {
        self.by_page.get(&page).copied().unwrap_or_default()
    }
}

/// One std mutex around everything.
pub(super) struct UnderMutex(Mutex<Plain>);

impl UnderMutex {
    pub(super) fn new() -> UnderMutex {
        UnderMutex(Mutex::new(Plain::new()))
    }

    /// Ignores poison: a panicking thread leaves the numbers consistent.
    fn lock(&self) -> MutexGuard<'_, Plain> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

impl Hits for UnderMutex {
    fn hit(&self, page: u64) {
        self.lock().hit(page);
    }

    fn hits(&self, page: u64) -> u64 {
        self.lock().hits(page)
    }

    fn total(&self) -> u64 {
        self.lock().total
    }
}

/// One std reader-writer lock around everything.
pub(super) struct UnderRwLock(RwLock<Plain>);

impl UnderRwLock {
    pub(super) fn new() -> UnderRwLock {
        UnderRwLock(RwLock::new(Plain::new()))
    }
}

impl Hits for UnderRwLock {
    fn hit(&self, page: u64) {
        self.0.write().unwrap_or_else(|poison| poison.into_inner()).hit(page);
    }

    fn hits(&self, page: u64) -> u64 {
        self.0.read().unwrap_or_else(|poison| poison.into_inner()).hits(page)
    }

    fn total(&self) -> u64 {
        self.0.read().unwrap_or_else(|poison| poison.into_inner()).total
    }
}

/// An atomic total, on cache lines of its own (I2).
#[derive(Default)]
#[repr(align(128))]
struct Total(AtomicU64);

/// A map of a crate, and an atomic total.
pub(super) struct WithAtomic<M> {
    by_page: M,
    total: Total,
}

impl WithAtomic<DashMap<u64, u64, Hasher>> {
    pub(super) fn dashmap() -> Self {
        WithAtomic { by_page: (0..PAGES).map(|page| (page, 0)).collect(), total: Total::default() }
    }
}

impl Hits for WithAtomic<DashMap<u64, u64, Hasher>> {
    fn hit(&self, page: u64) {
        if let Some(mut hits) = self.by_page.get_mut(&page) {
            *hits += 1;
        }
        self.total.0.fetch_add(1, Ordering::Relaxed);
    }

    fn hits(&self, page: u64) -> u64 {
        self.by_page.get(&page).map_or(0, |hits| *hits)
    }

    fn total(&self) -> u64 {
        self.total.0.load(Ordering::Relaxed)
    }
}

impl WithAtomic<scc::HashMap<u64, u64, Hasher>> {
    pub(super) fn scc() -> Self {
        let by_page = scc::HashMap::default();
        for page in 0..PAGES {
            let _ = by_page.insert_sync(page, 0);
        }
        WithAtomic { by_page, total: Total::default() }
    }
}

impl Hits for WithAtomic<scc::HashMap<u64, u64, Hasher>> {
    fn hit(&self, page: u64) {
        self.by_page.update_sync(&page, |_, hits| *hits += 1);
        self.total.0.fetch_add(1, Ordering::Relaxed);
    }

    fn hits(&self, page: u64) -> u64 {
        self.by_page.read_sync(&page, |_, hits| *hits).unwrap_or_default()
    }

    fn total(&self) -> u64 {
        self.total.0.load(Ordering::Relaxed)
    }
}

/// An adaptive map and an adaptive counter of Squall.
pub(super) struct Adaptive {
    by_page: MapHandle<u64, u64, Hasher>,
    total: Handle<dyn Counter>,
    // The owners keep the objects alive.
    _map: OwnedMap<u64, u64, Hasher>,
    _counter: Owned<dyn Counter>,
}

impl Adaptive {
    pub(super) fn new() -> Adaptive {
        let mut map = map::adaptive_with(0, Hasher::default()).named("hits by page");
        map.extend((0..PAGES).map(|page| (page, 0)));
        let counter = counter::adaptive().named("total hits");
        Adaptive { by_page: map.handle(), total: counter.handle(), _map: map, _counter: counter }
    }

    /// Returns the objects, with the words for each.
    pub(super) fn objects(&self) -> [(&'static str, Id); 2] {
        [
            ("map \"hits by page\"", Handle::id(self.by_page)),
            ("counter \"total hits\"", Handle::id(self.total)),
        ]
    }
}

impl Hits for Adaptive {
    fn hit(&self, page: u64) {
        self.by_page.update(&page, |hits| hits + 1);
        self.total.inc();
    }

    fn hits(&self, page: u64) -> u64 {
        self.by_page.get(&page).unwrap_or_default()
    }

    fn total(&self) -> u64 {
        self.total.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_drawn() {
        let mut random = 1;
        let mut is_drawn = vec![false; PAGES as usize];
        (0..PAGES * 20).for_each(|_| is_drawn[next_page(&mut random) as usize] = true);
        assert!(is_drawn.iter().all(|is_drawn| *is_drawn));
    }

    #[test]
    fn a_missing_hit_is_a_difference() {
        let store = UnderMutex::new();
        store.hit(3);
        assert_eq!((store.hits(3), store.difference(1)), (1, None));
        assert!(store.difference(2).is_some_and(|why| why.starts_with("2 hits were made, its total is 1")));
    }
}
