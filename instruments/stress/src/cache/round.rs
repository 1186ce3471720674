//! One round: its cache, its threads, and the comparison at the end.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use squall::cache::{Cache, ManualClock, RemovalCause};

use super::books::{Books, Fate};
use super::breaks::Break;
use super::counts::{Counts, Stat, count};
use super::value::Value;
use super::worker::{STEPS_MAX, Worker, swap};
use super::{mood, policy};
use crate::run::{Rng, Run, Violation, lock};
use crate::skeleton::cleanup::drain_values;
use crate::skeleton::delay::delay;
use crate::skeleton::expected_panic::{catch_silently, panic_message};
use crate::skeleton::placement::AllowedCpus;

/// Distance between the random streams of two rounds.
const STREAMS: u64 = 1 << 20;
/// Number of keys that all threads insert.
pub(super) const SHARED: u64 = 48;
/// Number of keys that one thread alone inserts, for each thread.
pub(super) const OWN: u64 = 16;
/// Values that a thread makes at most in a step.
const VALUES_EACH: u64 = 2;
/// The largest weight that is common.
const WEIGHT_MAX: u64 = 8;
/// A call of the listener panics once in so many times.
const PANIC_ONE_IN: u64 = 64;
/// A call of the listener uses the cache once in so many times.
const NESTED_ONE_IN: u64 = 16;
/// A planned break happens once in so many chances.
const BREAK_ONE_IN: u64 = 64;

type StressedCache = Cache<u64, Value>;

/// Returns whether a planned break happens now. It never does on a thread without choices.
pub(super) fn breaks(broken: Option<Break>, planned: Break) -> bool {
    broken == Some(planned) && mood::one_in(BREAK_ONE_IN)
}

/// The clock of a cache, with bounds of its time.
#[derive(Default)]
pub(super) struct Clock {
    clock: ManualClock,
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Clock {
    pub(super) fn advance(&self, by: u64) {
        // SeqCst, both: pairs with `latest` and `earliest`. The two counts enclose the time of the clock.
        self.begun.fetch_add(by, Ordering::SeqCst);
        self.clock.advance(Duration::from_nanos(by));
        self.ended.fetch_add(by, Ordering::SeqCst);
    }

    /// Returns a time at which the clock has arrived.
    pub(super) fn earliest(&self) -> u64 {
        // SeqCst: pairs with the second addition in `advance`.
        self.ended.load(Ordering::SeqCst)
    }

    /// Returns a time that the clock has not exceeded. An addition reads the newest one.
    pub(super) fn latest(&self) -> u64 {
        // SeqCst: pairs with the first addition in `advance`.
        self.begun.fetch_add(0, Ordering::SeqCst)
    }
}

/// The measure of the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Unbounded,
    Entries,
    Weights,
    Memory,
}

/// The data that all threads of a round share.
pub(super) struct World<'a> {
    pub(super) cache: StressedCache,
    pub(super) books: Arc<Books>,
    pub(super) clock: Clock,
    /// The time after which an entry has expired, in nanoseconds.
    pub(super) to_live: Option<u64>,
    measure: Measure,
    has_listener: bool,
    pub(super) keys: u64,
    pub(super) broken: Option<Break>,
    pub(super) home: &'a AllowedCpus,
    /// The cache, for the listener.
    again: Arc<Mutex<Option<StressedCache>>>,
}

impl<'a> World<'a> {
    fn new(run: &Run, broken: Option<Break>, home: &'a AllowedCpus, rng: &mut Rng) -> World<'a> {
        let keys = SHARED + run.threads as u64 * OWN;
        let values = run.threads as u64 * STEPS_MAX * VALUES_EACH;
        let (books, again) = (Books::new(values, keys, run.threads), Arc::default());
        let clock = Clock::default();
        let mut builder = Cache::builder().eviction_policy(policy::any(rng)).clock(clock.clock.clone());
        let measure = match rng.below(8) {
            0 => Measure::Unbounded,
            1..4 => Measure::Entries,
            4..6 => Measure::Weights,
            _ => Measure::Memory,
        };
        let entries = 1 + rng.below(keys);
        let weigher = |_: &u64, value: &Value| value.weight;
        builder = match measure {
            Measure::Unbounded => builder,
            Measure::Entries => builder.max_capacity(entries),
            Measure::Weights => builder.max_capacity(entries * WEIGHT_MAX / 2).weigher(weigher),
            Measure::Memory => builder.max_memory(entries * 128).weigher(weigher),
        };
        let to_live = rng.one_in(3).then(|| 100 + rng.below(1000));
        if let Some(to_live) = to_live {
            builder = builder.time_to_live(Duration::from_nanos(to_live));
        } else if rng.one_in(4) {
            builder = builder.time_to_idle(Duration::from_nanos(100 + rng.below(1000)));
        }
        if rng.one_in(2) {
            builder = builder.initial_capacity(rng.below(2 * keys) as usize);
        }
        if rng.one_in(2) {
            builder = builder.record_statistics();
        }
        let has_listener = !rng.one_in(4);
        if has_listener {
            builder = builder.eviction_listener(listener(&books, &again, keys, broken));
        }
        let cache = builder.build();
        *lock(&again) = Some(cache.clone());
        World { cache, books, clock, to_live, measure, has_listener, keys, broken, home, again }
    }

    pub(super) fn fail(&self, what: impl Into<String>) {
        self.books.violations.fail(what);
    }

    pub(super) fn breaks(&self, planned: Break) -> bool {
        breaks(self.broken, planned)
    }

    /// Returns a random weight. A few exceed the bound.
    pub(super) fn weight(&self, rng: &mut Rng) -> u32 {
        match self.cache.max_capacity() {
            Some(bound) if rng.one_in(64) => bound as u32 + 1,
            _ => 1 + rng.below(WEIGHT_MAX) as u32,
        }
    }

    /// Checks that the entries need no more than the bound.
    pub(super) fn check_bound(&self) {
        let Some(bound) = self.cache.max_capacity() else { return };
        let excess = if self.breaks(Break::ExceedBound) { bound } else { 0 };
        let taken = self.cache.weighted_size() + excess;
        count(Stat::Bounds);
        if taken > bound {
            self.fail(format!("the entries need {taken}, and the bound is {bound}"));
        }
    }

    /// Compares the entries that are left with the books. No other thread uses the cache.
    fn check_rest(&self) {
        let cache = &self.cache;
        // Expired entries leave.
        cache.run_pending_tasks();
        let left: Vec<(Arc<u64>, Value)> = cache.iter().collect();
        let mut serials = HashSet::new();
        for (key, value) in &left {
            if let Err(what) = value.check(**key) {
                self.fail(what);
            }
            if !serials.insert(value.serial) {
                self.fail(format!("a walk at the end has value {} twice", value.serial));
            }
        }
        let mut sum: u64 = left.iter().map(|(_, value)| u64::from(value.weight)).sum();
        if self.broken == Some(Break::Undercount) {
            sum += 1;
        }
        let (taken, entries) = (cache.weighted_size(), left.len() as u64);
        let is_exact = match self.measure {
            Measure::Unbounded | Measure::Entries if self.broken == Some(Break::Undercount) => false,
            Measure::Unbounded | Measure::Entries => taken == entries,
            Measure::Weights => taken == sum,
            // Each entry needs as many bytes beyond its weight.
            Measure::Memory if entries == 0 => taken == 0,
            Measure::Memory => taken > sum && (taken - sum).is_multiple_of(entries),
        };
        if !is_exact || cache.entry_count() != entries {
            let counted = cache.entry_count();
            self.fail(format!(
                "the cache counts {taken} for {counted} entries ({:?}), and has {entries} of weight {sum}",
                self.measure
            ));
        }
        self.check_bound();
        if !self.has_listener {
            return;
        }
        for serial in self.books.serials() {
            let (fate, is_left) = (self.books.fate(serial), serials.contains(&serial));
            count(if fate == Fate::Lost && !is_left { Stat::Lost } else { Stat::Exact });
            if is_left && fate == Fate::Told {
                self.fail(format!("the listener got value {serial}, which is still in the cache"));
            } else if !is_left && fate == Fate::Unknown {
                self.fail(format!(
                    "value {serial} was inserted, is not in the cache, and the listener lacks it"
                ));
            }
        }
    }
}

/// Returns the listener of a round.
fn listener(
    books: &Arc<Books>,
    again: &Arc<Mutex<Option<StressedCache>>>,
    keys: u64,
    broken: Option<Break>,
) -> impl Fn(Arc<u64>, Value, RemovalCause) + Send + Sync + 'static {
    let (books, again) = (books.clone(), again.clone());
    move |key, value, cause| {
        if let Err(what) = value.check(*key) {
            books.violations.fail(what);
        }
        count(match cause {
            RemovalCause::Size => Stat::Evicted,
            RemovalCause::Expired => Stat::Expired,
            RemovalCause::Replaced => Stat::Replaced,
            _ => Stat::Removed,
        });
        if !breaks(broken, Break::LoseNotice) {
            books.note_told(&value);
        }
        if breaks(broken, Break::TellTwice) {
            books.note_told(&value);
        }
        if mood::one_in(NESTED_ONE_IN) {
            mood::nested(|| {
                count(Stat::Nested);
                let Some(cache) = lock(&again).clone() else { return };
                let key = mood::below(keys);
                if mood::one_in(2) {
                    drop(cache.get(&key));
                } else {
                    drop(cache.remove(&key));
                }
            });
        }
        mood::panic_one_in(PANIC_ONE_IN);
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
    let objects = squall::snapshot().len();
    let world = World::new(run, broken, home, &mut rng);
    let working = AtomicUsize::new(run.threads);
    thread::scope(|scope| {
        let crew = |index: usize, body: &dyn Fn(Rng)| {
            mood::set(Some(run.rng(stream + STREAMS / 2 + index as u64)));
            if let Err(panic) = catch_silently(|| body(run.rng(stream + index as u64))) {
                world.fail(format!("a thread panicked: {}", panic_message(&*panic)));
            }
            mood::set(None);
            counts.flush();
        };
        let (world, working) = (&world, &working);
        for index in 0..run.threads {
            scope.spawn(move || {
                crew(index, &|rng| Worker::new(world, index, rng).live());
                working.fetch_sub(1, Ordering::Relaxed);
            });
        }
        scope.spawn(move || {
            crew(run.threads, &|mut rng| {
                while working.load(Ordering::Relaxed) > 0 {
                    swap(world, &mut rng);
                    delay(&mut rng);
                }
            });
        });
    });
    world.check_rest();
    let World { cache, books, again, .. } = world;
    drop(lock(&again).take());
    drop(cache);
    counts.flush();
    let check = |alive: &dyn Fn() -> i64, what: &str| {
        if !books.violations.is_over()
            && let Err(what) = drain_values(alive, what)
        {
            books.violations.fail(what);
        }
    };
    check(&|| books.alive(), "values were not dropped although the cache was");
    check(&|| squall::snapshot().len() as i64 - objects as i64, "objects remain after the cache was dropped");
    books.violations.first().map_or(Ok(()), |what| Err(Violation(what)))
}
