//! `cell`: a value of 64 bytes, read by many threads and rarely replaced.
//!
//! A row is one read of one word of the value. Each read loads the way to the value anew. No thread writes
//! during the reads.
//!
//! Metrics: `SUBJECT_update_ns` is one replacement of the whole value by one thread, while all others read
//! without a pause. With one thread there are no readers. It is wall time, and the median over rounds that go
//! through all subjects. `update_ns` is the time of the adaptive subject.
//!
//! - I1. Replacements count up, and no reader ever sees a lower count than before.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::case::{Case, Make, Missing, PLAIN, Scale, Setting, Spec, Subject, Worker};
use crate::harness::median;
use crate::ours_read_mostly::{Adaptive, Distributed, Embedded, Object, Replicated, Shared};
use crate::rivals::cells::{
    Cached, Evmap, HazarcCached, HazarcLoaded, Kept, LeftRight, Loaded, Value, value,
};

type StdRwLock = std::sync::RwLock<std::sync::Arc<Value>>;
type TokioWatch = tokio::sync::watch::Sender<Value>;

pub(super) static CASE: Case = Case {
    name: "cell",
    about: "one read of a value that all threads read; and the cost of its replacement",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall-shared", reading::<Object<Shared>>()),
        Spec::ours("squall-distributed", reading::<Object<Distributed>>()),
        Spec::ours("squall-adaptive", reading::<Object<Adaptive>>()),
        Spec::ours("squall-embedded", reading::<Embedded>()),
        Spec::ours("squall-replicas", reading::<Replicated>()),
        Spec::rival("arc-swap", reading::<Loaded>()),
        Spec::rival("arc-swap-cache", reading::<Cached>()),
        Spec::rival("hazarc", reading::<HazarcLoaded>()),
        Spec::rival("hazarc-cache", reading::<HazarcCached>()),
        Spec::rival("left-right", reading::<LeftRight>()),
        Spec::rival("evmap", reading::<Evmap>()),
        Spec::rival("std-rwlock", reading::<StdRwLock>()),
        Spec::rival("tokio-watch", reading::<TokioWatch>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[1, 2, 8],
};

/// Measurements of a replacement, by the subjects' names.
const UPDATED: &[(&str, Update)] = &[
    ("squall-shared", update_ns::<Object<Shared>>),
    ("squall-distributed", update_ns::<Object<Distributed>>),
    (ADAPTIVE, update_ns::<Object<Adaptive>>),
    ("squall-embedded", update_ns::<Embedded>),
    ("squall-replicas", update_ns::<Replicated>),
    ("arc-swap", update_ns::<Loaded>),
    ("hazarc", update_ns::<HazarcLoaded>),
    ("left-right", update_ns::<LeftRight>),
    ("evmap", update_ns::<Evmap>),
    ("std-rwlock", update_ns::<StdRwLock>),
    ("tokio-watch", update_ns::<TokioWatch>),
];

/// The adaptive subject: its metric has no prefix.
const ADAPTIVE: &str = "squall-adaptive";

struct Reading<C> {
    kept: CachePadded<C>,
    /// Sums of the numbers read by each thread; each thread writes its own.
    sums: Vec<CachePadded<AtomicU64>>,
}

/// Makes the subject with threads that read `C`.
const fn reading<C: Kept>() -> Make {
    fn make<C: Kept>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        let sums = (0..setting.threads).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Ok(Box::new(Reading { kept: CachePadded::new(C::new(setting.threads)), sums }))
    }
    make::<C>
}

impl<C: Kept> Subject for Reading<C> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let mut reader = self.kept.reader();
        black_box(self.kept.read(&mut reader));
        let own = &self.sums[thread];
        Box::new(move |ops| {
            let mut sum = own.load(Ordering::Relaxed);
            for _ in 0..ops {
                // Both come from memory, as for a real caller. Otherwise the compiler may keep an earlier
                // result.
                sum = sum.wrapping_add(black_box(&*self.kept).read(black_box(&mut reader)));
            }
            own.store(sum, Ordering::Relaxed);
        })
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        let sum: u64 = self.sums.iter().map(|sum| sum.load(Ordering::Relaxed)).sum();
        if sum == ops { Ok(()) } else { Err(format!("{ops} reads of 1 came to {sum}")) }
    }
}

/// Nanoseconds of one replacement, by one of the given threads, in about the given time.
type Update = fn(usize, Duration) -> Result<f64, String>;

fn measure(setting: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    let (rounds, length) =
        if quick { (5, Duration::from_millis(5)) } else { (15, Duration::from_millis(20)) };
    let mut times = vec![Vec::new(); UPDATED.len()];
    for round in 0..rounds {
        for place in 0..UPDATED.len() {
            let subject = (place + round) % UPDATED.len();
            let (name, update) = UPDATED[subject];
            let ns = update(setting.threads, length).map_err(|why| format!("subject {name}: {why}"))?;
            times[subject].push(ns);
        }
    }
    let mut metrics = Vec::new();
    for ((name, _), times) in UPDATED.iter().zip(&times) {
        if *name == ADAPTIVE {
            metrics.push(("update_ns".to_owned(), median(times)));
        }
        metrics.push((format!("{name}_update_ns"), median(times)));
    }
    Ok(metrics)
}

/// Replacements before the first that counts, and between two readings of the clock.
const BATCH: u64 = 16;

fn update_ns<C: Kept>(threads: usize, length: Duration) -> Result<f64, String> {
    let kept = CachePadded::new(C::new(threads));
    let (reading, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let readers = threads - 1;
    let read = || {
        let mut reader = kept.reader();
        let mut last = kept.read(&mut reader);
        reading.fetch_add(1, Ordering::Relaxed);
        while !done.load(Ordering::Relaxed) {
            for _ in 0..64 {
                let seen = kept.read(&mut reader);
                // I1.
                if seen < last {
                    return Err(format!("a reader saw {seen} after {last}"));
                }
                last = seen;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..readers).map(|_| scope.spawn(read)).collect();
        while reading.load(Ordering::Relaxed) < readers.len() {
            std::thread::yield_now();
        }
        let mut number = 1u64;
        let mut batch = || {
            for _ in 0..BATCH {
                number += 1;
                kept.set(value(number));
            }
        };
        batch();
        let began = Instant::now();
        let mut batches = 0;
        let ns = loop {
            batch();
            batches += 1;
            let elapsed = began.elapsed();
            if elapsed >= length {
                break elapsed.as_nanos() as f64 / (batches * BATCH) as f64;
            }
        };
        done.store(true, Ordering::Relaxed);
        readers.into_iter().try_for_each(|reader| reader.join().expect("a reader panicked"))?;
        let seen = kept.read(&mut kept.reader());
        if seen == number {
            Ok(ns)
        } else {
            Err(format!("value {number} was installed, but value {seen} was read"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_keeps_the_last_value() {
        for (name, update) in UPDATED {
            for threads in [1, 3] {
                let result = update(threads, Duration::from_micros(1));
                assert!(result.is_ok(), "{name}: {result:?}");
            }
        }
    }
}
