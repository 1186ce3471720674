//! `rwlock`: one word under a reader-writer lock that all threads use.
//!
//! - `read`: lock to read, read the word, unlock.
//! - `one-percent`: one operation in a hundred locks to write and adds one. `squall` loses here: its writers
//!   pay for the cheap readers. `squall-biased` stays unbiased here.
//! - `write`: no subjects, only metrics of a write beside active or past readers. A thread that has read
//!   leaves a record of marks, which every later write checks. So this variant runs last.
//!
//! A metric of `read`, for every thread count: `read_over_operation` divides the time of a read lock and
//! unlock by that of an operation's enter and leave (`squall_rcu::pin`). Both read a word inside. The result
//! is the median over pairs of short runs.
//!
//! Metrics of `write`:
//!
//! - `write_us_beside_a_reader`: microseconds of a write lock and unlock while another thread reads that lock
//!   all the time, on a processor that the writer has to interrupt.
//! - `write_us_at_N`: microseconds of a write lock and unlock without a reader, while N threads have records
//!   of marks; all but the writer sleep. N is 2, 8, 64 and 512 if this variant runs alone. The first N may be
//!   larger if threads of other variants have read before.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::Instant;

use arc_swap::ArcSwap;
use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::ShardedLock;
use squall::lock::{DistributedRwLock, ReadBiasedRwLock};

use crate::case::{Case, Make, Missing, PLAIN, Scale, Setting, Spec, Subject, Variant};
use crate::rivals::rwlocks::{Guarded, READ, guarded};

pub(super) static CASE: Case = Case {
    name: "rwlock",
    about: "one word under a reader-writer lock that all threads use: mostly read, sometimes written",
    variants: &[
        Variant { name: READ, about: "all threads only read", ..PLAIN },
        Variant { name: "one-percent", about: "one operation in a hundred is a write", ..PLAIN },
        Variant {
            name: WRITE,
            about: "a write beside active or past readers; metrics only",
            threads: Some(1),
            ..PLAIN
        },
    ],
    subjects: &[
        Spec::ours("squall", mixing::<DistributedRwLock<u64>>()),
        Spec::ours("squall-biased", mixing::<ReadBiasedRwLock<u64>>()),
        Spec::rival("std-rwlock", mixing::<std::sync::RwLock<u64>>()),
        Spec::rival("parking-lot", mixing::<parking_lot::RwLock<u64>>()),
        Spec::rival("crossbeam-sharded", mixing::<ShardedLock<u64>>()),
        Spec::rival("arc-swap", mixing::<ArcSwap<u64>>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[1, 2, 8],
};

const WRITE: &str = "write";

/// Makes the subject that reads and writes `G`, in variants with subjects.
const fn mixing<G: Guarded + 'static>() -> Make {
    fn make<G: Guarded + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        if setting.variant.name == WRITE { Err(Missing::no_part()) } else { guarded::<G>()(setting) }
    }
    make::<G>
}

impl Guarded for DistributedRwLock<u64> {
    fn new() -> Self {
        DistributedRwLock::new(0)
    }

    #[inline(always)]
    fn read(&self) -> u64 {
        *self.read()
    }

    fn increment(&self) {
        *self.write() += 1;
    }
}

impl Guarded for ReadBiasedRwLock<u64> {
    /// Makes a biased lock.
    fn new() -> Self {
        let lock = ReadBiasedRwLock::new(0);
        while !lock.is_biased() {
            drop(lock.read());
        }
        lock
    }

    #[inline(always)]
    fn read(&self) -> u64 {
        *self.read()
    }

    fn increment(&self) {
        *self.write() += 1;
    }
}

/// A reader has read this many times again when the next write is timed.
const READS_BEFORE_A_WRITE: u64 = 100;

/// Places for which a write is timed.
const READERS: [usize; 4] = [2, 8, 64, 512];

fn measure(setting: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    match setting.variant.name {
        READ => Ok(vec![("read_over_operation".to_owned(), read_over_operation(quick))]),
        WRITE => writes(quick),
        _ => Ok(Vec::new()),
    }
}

fn writes(quick: bool) -> Result<Vec<(String, f64)>, String> {
    // First, while there are few places.
    let mut metrics = vec![("write_us_beside_a_reader".to_owned(), write_us_beside_a_reader(quick))];
    let mut asleep = Sleepers::default();
    let mut measured = 0;
    for readers in READERS {
        asleep.grow_to(readers)?;
        // More places than asked for if there were more before; once only.
        let places = squall::lock::readers_known();
        if places > measured {
            metrics.push((format!("write_us_at_{places}"), write_us(quick)));
            measured = places;
        }
    }
    asleep.end();
    Ok(metrics)
}

fn write_us_beside_a_reader(quick: bool) -> f64 {
    let (lock, done) = (DistributedRwLock::new(0u64), AtomicBool::new(false));
    let reads = CachePadded::new(AtomicU64::new(0));
    let reader = || {
        while !done.load(Ordering::Relaxed) {
            black_box(*lock.read());
            reads.fetch_add(1, Ordering::Relaxed);
        }
    };
    // A write puts the reader to sleep. The next write is timed once the reader reads again.
    let it_reads = || {
        let seen = reads.load(Ordering::Relaxed);
        while reads.load(Ordering::Relaxed) < seen + READS_BEFORE_A_WRITE {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(reader);
        let median = write_us_of(&lock, quick, it_reads);
        done.store(true, Ordering::Relaxed);
        median
    })
}

/// The median over pairs of short runs of each.
fn read_over_operation(quick: bool) -> f64 {
    let (pairs, ops) = if quick { (9, 200_000) } else { (41, 1_000_000) };
    let (lock, cell) = (DistributedRwLock::new(1u64), squall_rcu::Rcu::new(Box::new(1u64)));
    let timed = |run: &dyn Fn()| {
        let began = Instant::now();
        run();
        began.elapsed().as_secs_f64()
    };
    let read = || {
        let lock = black_box(&lock);
        black_box((0..ops).fold(0u64, |sum, _| sum.wrapping_add(*lock.read())));
    };
    let operation = || {
        let cell = black_box(&cell);
        black_box((0..ops).fold(0u64, |sum, _| sum.wrapping_add(squall_rcu::pin(|o| *cell.load(o)))));
    };
    read();
    operation();
    median((0..pairs).map(|_| timed(&read) / timed(&operation)).collect())
}

/// The median over writes of a lock without readers.
fn write_us(quick: bool) -> f64 {
    let lock = DistributedRwLock::new(0u64);
    drop(lock.read());
    write_us_of(&lock, quick, || ())
}

fn write_us_of(lock: &DistributedRwLock<u64>, quick: bool, before_each: impl Fn()) -> f64 {
    let timed = |_| {
        before_each();
        let began = Instant::now();
        *lock.write() += 1;
        began.elapsed().as_secs_f64() * 1e6
    };
    median((0..if quick { 101 } else { 1001 }).map(timed).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Threads that have read once and sleep.
#[derive(Default)]
struct Sleepers {
    threads: Vec<std::thread::JoinHandle<()>>,
    bed: Arc<Bed>,
}

#[derive(Default)]
struct Bed {
    morning: Mutex<bool>,
    bell: Condvar,
}

impl Sleepers {
    /// Makes threads until `readers` threads have a place for marks, the caller among them.
    fn grow_to(&mut self, readers: usize) -> Result<(), String> {
        let own = DistributedRwLock::new(());
        drop(own.read());
        // One by one: a thread may get a place that an earlier one left.
        while squall::lock::readers_known() < readers {
            let ready = Arc::new(Barrier::new(2));
            let (bed, told) = (self.bed.clone(), ready.clone());
            let sleeps = move || {
                let lock = DistributedRwLock::new(());
                drop(lock.read());
                told.wait();
                let mut morning = bed.morning.lock().expect("a thread panicked under the lock");
                while !*morning {
                    morning = bed.bell.wait(morning).expect("a thread panicked under the lock");
                }
            };
            let small = std::thread::Builder::new().stack_size(64 << 10);
            self.threads.push(small.spawn(sleeps).map_err(|error| error.to_string())?);
            ready.wait();
        }
        Ok(())
    }

    fn end(self) {
        *self.bed.morning.lock().expect("a thread panicked under the lock") = true;
        self.bed.bell.notify_all();
        for thread in self.threads {
            thread.join().expect("a sleeping thread panicked");
        }
    }
}
