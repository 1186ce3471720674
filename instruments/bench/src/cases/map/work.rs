//! The subjects of the map cases: the operations of the threads, and the check of the map's final content.
//!
//! - I1. Every value is 1 when its key is inserted, and each update adds 1. So a map that is only read
//!   returns one per lookup. In any other map, the sum of the values less the entries is the number of
//!   updates.

use std::hint::black_box;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam_utils::CachePadded;

use super::keys::Key;
use super::plan::{Kind, Plan, RING_MIN, Ring};
use super::shape::Shape;
use crate::case::{Make, Missing, Setting, Subject, Worker};
use crate::rivals::maps::{Family, Job, Mapping, with_map};

/// Makes the subject with threads that only look up present keys.
pub(super) const fn getting<F: Family>() -> Make {
    |setting| {
        let shape = Shape::of(setting.variant);
        with_map::<F, _>(&shape, Making { shape, threads: setting.threads, way: Way::Get })
    }
}

/// Makes the subject with threads that read and write.
pub(super) const fn mixing<F: Family>() -> Make {
    |setting| {
        let shape = Shape::of(setting.variant);
        with_map::<F, _>(&shape, Making { shape, threads: setting.threads, way: Way::Mix })
    }
}

/// Makes the subject with threads that insert and remove.
pub(super) const fn churning<F: Family>() -> Make {
    |setting: &Setting| {
        let shape = Shape::of(setting.variant);
        with_map::<F, _>(&shape, Making { shape, threads: setting.threads, way: Way::Churn })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Get,
    Mix,
    Churn,
}

struct Making {
    shape: Shape,
    threads: usize,
    way: Way,
}

impl Job for Making {
    type Result = Result<Box<dyn Subject>, Missing>;

    fn run<K: Key, M: Mapping<K>>(self) -> Self::Result {
        let plan = if self.way == Way::Churn { Plan::churning(&self.shape) } else { Plan::of(&self.shape) };
        if self.way != Way::Get && plan.ring_count / self.threads < RING_MIN {
            return Err(Missing(format!("{} threads are too many for this size", self.threads)));
        }
        let load = Load::<K, M>::new(plan, self.threads);
        Ok(match self.way {
            Way::Get => Box::new(Getting(load)),
            Way::Mix => Box::new(Mixing(load)),
            Way::Churn => Box::new(Churning(load)),
        })
    }
}

/// A map, its operations, and each thread's progress.
struct Load<K: Key, M> {
    map: M,
    plan: Arc<Plan<K>>,
    threads: Vec<CachePadded<Mutex<Place>>>,
}

/// A thread's place in the plan; only the thread uses it while it works.
struct Place {
    at: usize,
    ring: Ring,
    updates: u64,
    /// Operations with a wrong result.
    failed: u64,
    /// Whether it has looked up every key, for a map that learns from lookups.
    looked: bool,
}

impl<K: Key, M: Mapping<K>> Load<K, M> {
    fn new(plan: Arc<Plan<K>>, threads: usize) -> Load<K, M> {
        let map = M::new();
        for number in &plan.stay {
            map.insert(K::of(*number), 1);
        }
        let place = |thread: usize| {
            let ring = plan.ring_of(thread, threads);
            for i in ring.at_first() {
                map.insert(K::at(&plan.ring, i).to_owned(), 1);
            }
            let at = thread * plan.drawn_count / threads;
            CachePadded::new(Mutex::new(Place { at, ring, updates: 0, failed: 0, looked: false }))
        };
        let threads = (0..threads).map(place).collect();
        Load { map, plan, threads }
    }

    fn place(&self, thread: usize) -> MutexGuard<'_, Place> {
        self.threads[thread].lock().expect("a thread panicked under the lock")
    }

    /// Triggers the map's work that it does once per thread.
    fn touch(&self, key: &K::Query) {
        black_box(self.map.get(key));
    }

    /// Looks up all keys, for a map that learns from a first lookup. Each key is looked up twice, because a
    /// lookup may have no effect while other threads look up too.
    fn look_at_all(&self, thread: usize) {
        if !M::LEARNS || mem::replace(&mut self.place(thread).looked, true) {
            return;
        }
        for number in self.plan.stay.iter().chain(&self.plan.stay) {
            self.touch(K::of(*number).borrow());
        }
    }

    /// Checks that the present keys are those inserted and not removed, and that every update is in the
    /// values.
    fn check(&self) -> Result<(), String> {
        let (mut expected, mut updates) = (self.plan.stay.len(), 0);
        for thread in 0..self.threads.len() {
            let place = self.place(thread);
            if place.failed != 0 {
                return Err(format!("{} operations of thread {thread} had a wrong result", place.failed));
            }
            (expected, updates) = (expected + place.ring.there(), updates + place.updates);
        }
        let (entries, sum) = (self.map.len(), self.map.sum());
        if entries != expected {
            return Err(format!("the map has {entries} entries, not {expected}"));
        }
        if sum != entries as u64 + updates {
            let found = sum.wrapping_sub(entries as u64) as i64;
            return Err(format!("{updates} updates were made, but the values hold {found}"));
        }
        Ok(())
    }
}

struct Getting<K: Key, M>(Load<K, M>);

impl<K: Key, M: Mapping<K>> Subject for Getting<K, M> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let Load { map, plan, .. } = &self.0;
        self.0.touch(K::at(&plan.drawn, 0));
        self.0.look_at_all(thread);
        Box::new(move |ops| {
            let (mut place, last) = (self.0.place(thread), plan.drawn_count - 1);
            let (mut at, mut sum) = (place.at, 0u64);
            for _ in 0..ops {
                sum = sum.wrapping_add(map.get(K::at(&plan.drawn, at & last)).unwrap_or(0));
                at += 1;
            }
            place.at = at;
            place.failed += ops.wrapping_sub(sum);
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        self.0.check()
    }
}

struct Mixing<K: Key, M>(Load<K, M>);

impl<K: Key, M: Mapping<K>> Subject for Mixing<K, M> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let Load { map, plan, .. } = &self.0;
        self.0.touch(K::at(&plan.drawn, 0));
        Box::new(move |ops| {
            let mut place = self.0.place(thread);
            let (last_drawn, last_kind) = (plan.drawn_count - 1, plan.kinds.len() - 1);
            let Place { at, ring, updates, failed, .. } = &mut *place;
            let (mut sum, mut failures, mut updated) = (0u64, 0u64, 0u64);
            for _ in 0..ops {
                let drawn = K::at(&plan.drawn, *at & last_drawn);
                let done = match plan.kinds[*at & last_kind] {
                    Kind::Read => {
                        sum = sum.wrapping_add(map.get(drawn).unwrap_or(0));
                        true
                    }
                    Kind::Update => {
                        updated += 1;
                        map.increment(drawn)
                    }
                    Kind::Insert => map.insert(K::at(&plan.ring, ring.put_in()).to_owned(), 1),
                    Kind::Remove => map.remove(K::at(&plan.ring, ring.take_out())),
                };
                failures += u64::from(!done);
                *at += 1;
            }
            black_box(sum);
            (*updates, *failed) = (*updates + updated, *failed + failures);
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        self.0.check()
    }
}

struct Churning<K: Key, M>(Load<K, M>);

impl<K: Key, M: Mapping<K>> Subject for Churning<K, M> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let Load { map, plan, .. } = &self.0;
        self.0.touch(K::at(&plan.ring, 0));
        Box::new(move |ops| {
            let mut place = self.0.place(thread);
            let Place { at, ring, failed, .. } = &mut *place;
            let mut failures = 0u64;
            for _ in 0..ops {
                // By turns, also from one slice to the next.
                let done = if (*at).is_multiple_of(2) {
                    map.insert(K::at(&plan.ring, ring.put_in()).to_owned(), 1)
                } else {
                    map.remove(K::at(&plan.ring, ring.take_out()))
                };
                failures += u64::from(!done);
                *at += 1;
            }
            *failed += failures;
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        self.0.check()
    }
}
