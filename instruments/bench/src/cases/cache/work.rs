//! The timed operations.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam_utils::CachePadded;

use super::plan::Plan;
use super::value_of;
use crate::case::{Make, Missing, Setting, SliceEnd, Subject, Worker};
use crate::cases::map::Key;
use crate::rivals::caches::{BoundedCache, SingleFlight};

/// Makes the subject with a cache that has no single flight.
pub(super) const fn without_loads<C: BoundedCache>() -> Make {
    |setting| match setting.variant.name {
        "load" => Err(Missing::no_part()),
        _ => make::<C>(setting),
    }
}

/// Makes the subject with a cache that has a single flight.
pub(super) const fn with_loads<C: SingleFlight>() -> Make {
    |setting| match setting.variant.name {
        "load" => Ok(Box::new(Working::<C, Load>::new(setting)?)),
        _ => make::<C>(setting),
    }
}

fn make<C: BoundedCache>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(match setting.variant.name {
        "churn" => Box::new(Working::<C, Churn>::new(setting)?),
        "mixed-95" => Box::new(Working::<C, Mix>::new(setting)?),
        _ => Box::new(Working::<C, Hit>::new(setting)?),
    })
}

/// The outcome of one operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    Hit,
    Miss,
    /// A value is not that of its key, or a present key was not found.
    Wrong,
}

impl Done {
    /// The outcome of a lookup that may miss.
    #[inline(always)]
    fn of(key: u64, found: Option<u64>) -> Done {
        match found {
            None => Done::Miss,
            Some(value) if value == value_of(key) => Done::Hit,
            Some(_) => Done::Wrong,
        }
    }
}

/// A kind of operations.
trait Operation<C>: Send + Sync + 'static {
    /// Whether a key may be absent.
    const MISSES: bool;

    fn run(cache: &C, plan: &Plan, at: usize) -> Done;
}

/// Looks up a present key.
struct Hit;

impl<C: BoundedCache> Operation<C> for Hit {
    const MISSES: bool = false;

    #[inline(always)]
    fn run(cache: &C, plan: &Plan, at: usize) -> Done {
        let key = *u64::at(&plan.drawn, at);
        Done::of(key, cache.get(key))
    }
}

/// Looks up a present key, or replaces its value.
struct Mix;

impl<C: BoundedCache> Operation<C> for Mix {
    const MISSES: bool = false;

    #[inline(always)]
    fn run(cache: &C, plan: &Plan, at: usize) -> Done {
        let key = *u64::at(&plan.drawn, at);
        if plan.inserts[at] {
            cache.insert(key, value_of(key));
            return Done::Hit;
        }
        Done::of(key, cache.get(key))
    }
}

/// Looks up a key, and inserts it if it is absent.
struct Churn;

impl<C: BoundedCache> Operation<C> for Churn {
    const MISSES: bool = true;

    #[inline(always)]
    fn run(cache: &C, plan: &Plan, at: usize) -> Done {
        let key = *u64::at(&plan.drawn, at);
        let done = Done::of(key, cache.get(key));
        if done == Done::Miss {
            cache.insert(key, value_of(key));
        }
        done
    }
}

/// Looks up a key, and loads it if it is absent.
struct Load;

impl<C: SingleFlight> Operation<C> for Load {
    const MISSES: bool = true;

    #[inline(always)]
    fn run(cache: &C, plan: &Plan, at: usize) -> Done {
        let (key, loaded) = (*u64::at(&plan.drawn, at), Cell::new(false));
        let value = cache.get_with(key, || {
            loaded.set(true);
            value_of(key)
        });
        if value == value_of(key) && loaded.get() { Done::Miss } else { Done::of(key, Some(value)) }
    }
}

/// A cache, its operations, and the progress of each thread.
struct Working<C, O> {
    cache: CachePadded<C>,
    plan: Arc<Plan>,
    threads: Vec<CachePadded<Mutex<Progress>>>,
    operation: PhantomData<O>,
}

/// The progress of a thread; only the thread uses it while it works.
#[derive(Default)]
struct Progress {
    at: usize,
    /// Hits of the slice.
    hits: u64,
    /// Misses of the slice.
    misses: u64,
    /// Wrong outcomes of all slices.
    wrong: u64,
}

impl<C: BoundedCache, O: Operation<C>> Working<C, O> {
    fn new(setting: &Setting) -> Result<Working<C, O>, Missing> {
        let plan = Plan::of(setting.variant).ok_or_else(Missing::no_part)?;
        let cache = C::new(plan.capacity);
        for key in &plan.present {
            cache.insert(*key, value_of(*key));
        }
        cache.settle();
        // The first hit of an entry may leave a mark in it.
        for key in &plan.present {
            cache.get(*key);
        }
        cache.settle();
        let start = |thread| thread * plan.drawn.len() / setting.threads;
        let progress = |thread| Progress { at: start(thread), ..Progress::default() };
        let threads = (0..setting.threads).map(|thread| CachePadded::new(Mutex::new(progress(thread))));
        let threads = threads.collect();
        Ok(Working { cache: CachePadded::new(cache), plan, threads, operation: PhantomData })
    }

    fn progress(&self, thread: usize) -> MutexGuard<'_, Progress> {
        self.threads[thread].lock().expect("a thread panicked under the lock")
    }
}

impl<C: BoundedCache, O: Operation<C>> Subject for Working<C, O> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        // Triggers the work that a cache does once for each thread.
        self.cache.get(self.plan.drawn[0]);
        Box::new(move |ops| {
            let (mut progress, last) = (self.progress(thread), self.plan.drawn.len() - 1);
            let (mut hits, mut misses, first) = (0, 0, progress.at);
            for at in first..first + ops as usize {
                match O::run(&self.cache, &self.plan, at & last) {
                    Done::Hit => hits += 1,
                    Done::Miss => misses += 1,
                    Done::Wrong => {}
                }
            }
            progress.at += ops as usize;
            (progress.hits, progress.misses) = (progress.hits + hits, progress.misses + misses);
            progress.wrong += ops - hits - if O::MISSES { misses } else { 0 };
        })
    }

    fn end_slice(&self, _: u64) -> SliceEnd {
        let (mut hits, mut misses) = (0, 0);
        for thread in 0..self.threads.len() {
            let mut progress = self.progress(thread);
            hits += mem::take(&mut progress.hits);
            misses += mem::take(&mut progress.misses);
        }
        if !O::MISSES {
            return SliceEnd::default();
        }
        let ratio = hits as f64 / (hits + misses).max(1) as f64;
        SliceEnd { done: None, metrics: vec![("hit_ratio", ratio)] }
    }

    fn check(&self, _: u64) -> Result<(), String> {
        let wrong: u64 = (0..self.threads.len()).map(|thread| self.progress(thread).wrong).sum();
        match wrong {
            0 => Ok(()),
            _ => Err(format!("{wrong} lookups found a wrong value, or missed a present key")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::cache::CASE;

    /// A cache that forgets each key, or returns the value of another one.
    struct Broken<const FORGETS: bool>;

    impl<const FORGETS: bool> BoundedCache for Broken<FORGETS> {
        fn new(_: usize) -> Self {
            Broken
        }

        fn get(&self, key: u64) -> Option<u64> {
            (!FORGETS).then(|| value_of(key) + 1)
        }

        fn insert(&self, _: u64, _: u64) {}

        fn len(&self) -> usize {
            0
        }
    }

    fn fails<C: BoundedCache>(name: &str) -> bool {
        let variant = CASE.variants.iter().find(|variant| variant.name == name).expect("it is there");
        let setting = Setting { threads: 1, variant, counted: false };
        let subject = make::<C>(&setting).unwrap_or_else(|why| panic!("{name}: {why:?}"));
        subject.worker(0)(100);
        subject.check(100).is_err()
    }

    #[test]
    fn a_wrong_value_or_a_lost_key_fails_the_check() {
        for name in ["hit-10k", "hit-1m", "mixed-95"] {
            assert!(fails::<Broken<true>>(name) && fails::<Broken<false>>(name), "{name}");
        }
        assert!(!fails::<Broken<true>>("churn") && fails::<Broken<false>>("churn"));
    }

    #[test]
    fn the_hit_ratio_of_a_slice_counts_its_own_operations() {
        let variant = CASE.variants.iter().find(|variant| variant.name == "churn").expect("it is there");
        let setting = Setting { threads: 1, variant, counted: false };
        let subject = make::<crate::rivals::caches::LockedLru>(&setting).expect("it takes part");
        let ops = 5_000;
        for _ in 0..2 {
            subject.worker(0)(ops);
            let metrics = subject.end_slice(ops).metrics;
            assert!(metrics.iter().all(|(name, value)| *name == "hit_ratio" && (0.3..1.0).contains(value)));
            assert_eq!(metrics.len(), 1);
        }
        assert_eq!(subject.check(2 * ops), Ok(()));
    }
}
