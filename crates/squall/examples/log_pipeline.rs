//! A log pipeline of plain threads. Workers make records, a filter selects some, and a writer thread writes
//! those.
//!
//! The operator replaces the filter 2000 times a second and destroys the old one, while workers hold handles
//! to it. Workers need no lock and no reference count. A call through a handle to a destroyed filter gets an
//! error, and the worker looks up the current filter. The counters have a representative for each processor.
//! The outlet has one representative and a `#[blocking]` method.
//!
//! `cargo run --release -p squall --example log_pipeline`

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use squall::pervp::BiasedWord;
use squall::prelude::*;

const LEVELS: [&str; 4] = ["error", "warning", "info", "debug"];
const WORKERS: u64 = 4;

/// One line of a log.
struct Record {
    level: usize,
    text: String,
}

// --- the filter: immutable, changed by replacing it ---

#[squall::interface]
trait Filter: Send + Sync {
    /// Returns true if the record is to be written.
    fn keeps(&self, record: &Record) -> bool;
}

/// Selects records up to a level.
struct UpTo(usize);

impl Filter for UpTo {
    fn keeps(&self, record: &Record) -> bool {
        record.level <= self.0
    }
}

/// Selects records that contain a text.
struct Mentions(String);

impl Filter for Mentions {
    fn keeps(&self, record: &Record) -> bool {
        record.text.contains(&self.0)
    }
}

fn filter(number: u64) -> Owned<dyn Filter> {
    match number % 2 {
        0 => squall::shared(UpTo(number as usize / 2 % LEVELS.len())),
        _ => squall::shared(Mentions(format!("worker {}", number % WORKERS))),
    }
}

// --- the counters: a representative for each processor ---

#[squall::interface]
trait Counters: Send + Sync {
    fn count(&self, level: usize, kept: bool);
    /// Returns the numbers of kept and dropped records by level.
    fn totals(&self) -> [(u64, u64); LEVELS.len()];
}

struct PerCpu;

struct Part {
    kept: [BiasedWord; LEVELS.len()],
    dropped: [BiasedWord; LEVELS.len()],
    context: RepContext<PerCpu>,
}

impl Root for PerCpu {
    type Interface = dyn Counters;
    type Rep = Part;

    fn make_rep(&self, context: RepContext<PerCpu>) -> Part {
        let words = || std::array::from_fn(|_| BiasedWord::new(context.vp()));
        Part { kept: words(), dropped: words(), context }
    }
}

impl Counters for Part {
    fn count(&self, level: usize, kept: bool) {
        let words = if kept { &self.kept } else { &self.dropped };
        words[level].add(1);
    }

    fn totals(&self) -> [(u64, u64); LEVELS.len()] {
        let own =
            |part: &Part| std::array::from_fn(|level| (part.kept[level].load(), part.dropped[level].load()));
        let plus = |a: [(u64, u64); 4], b: [(u64, u64); 4]| {
            std::array::from_fn(|level| (a[level].0 + b[level].0, a[level].1 + b[level].1))
        };
        self.context.gather(own, plus).unwrap_or_default()
    }
}

// --- the outlet: kept records wait here for the writer ---

#[squall::interface]
trait Outlet: Send + Sync {
    fn put(&self, record: Record);
    /// Waits for records and returns all of them, or an empty vector once the outlet is closed and empty.
    #[blocking]
    fn take(&self) -> Vec<Record>;
    fn close(&self);
}

#[derive(Default)]
struct Buffer {
    /// Waiting records, and whether the outlet is closed.
    state: Mutex<(VecDeque<Record>, bool)>,
    filled: Condvar,
}

impl Outlet for Buffer {
    fn put(&self, record: Record) {
        self.state.lock().unwrap().0.push_back(record);
        self.filled.notify_one();
    }

    fn take(&self) -> Vec<Record> {
        let waits = |(records, closed): &mut (VecDeque<Record>, bool)| records.is_empty() && !*closed;
        let mut state = self.filled.wait_while(self.state.lock().unwrap(), waits).unwrap();
        state.0.drain(..).collect()
    }

    fn close(&self) {
        self.state.lock().unwrap().1 = true;
        self.filled.notify_all();
    }
}

// --- the pipeline ---

/// Shared by all threads: handles, and the place of the current filter.
struct Pipeline {
    filter: RwLock<Handle<dyn Filter>>,
    counters: Handle<dyn Counters>,
    outlet: Handle<dyn Outlet>,
    stop: AtomicBool,
    stale: AtomicU64,
}

/// Makes records until `stop` is set. Returns their number.
fn work(pipeline: &Pipeline, worker: u64) -> u64 {
    let mut filter = *pipeline.filter.read().unwrap();
    let (mut made, mut stale) = (0, 0);
    while !pipeline.stop.load(Ordering::Relaxed) {
        let level = (made % LEVELS.len() as u64) as usize;
        let record = Record { level, text: format!("worker {worker}: record {made}") };
        let kept = loop {
            match filter.try_keeps(&record) {
                Ok(kept) => break kept,
                // The filter was destroyed. The operator published the next one before that.
                Err(_gone) => {
                    stale += 1;
                    filter = *pipeline.filter.read().unwrap();
                }
            }
        };
        pipeline.counters.count(level, kept);
        // Writes one in a hundred, so that the writer keeps up.
        if kept && made % 100 == 0 {
            pipeline.outlet.put(record);
        }
        made += 1;
    }
    pipeline.stale.fetch_add(stale, Ordering::Relaxed);
    made
}

/// Replaces the filter for a second. Returns the number of replacements, and the last filter.
fn operate(pipeline: &Pipeline, mut present: Owned<dyn Filter>) -> (u64, Owned<dyn Filter>) {
    let end = Instant::now() + Duration::from_secs(1);
    let mut number = 0;
    while Instant::now() < end {
        number += 1;
        let next = filter(number);
        *pipeline.filter.write().unwrap() = next.handle();
        // Destroys the filter before, although workers may be calling it.
        present = next;
        thread::sleep(Duration::from_micros(500));
    }
    (number, present)
}

fn main() {
    let counters = PerCpu.create(ClusterSize::Cpu);
    let outlet: Owned<dyn Outlet> = squall::shared(Buffer::default());
    let first = filter(0);
    let pipeline = Pipeline {
        filter: RwLock::new(first.handle()),
        counters: counters.handle(),
        outlet: outlet.handle(),
        stop: AtomicBool::new(false),
        stale: AtomicU64::new(0),
    };
    let (made, written, replaced) = thread::scope(|scope| {
        let pipeline = &pipeline;
        let writer = scope.spawn(|| {
            let mut bytes = 0;
            loop {
                let records = pipeline.outlet.take();
                if records.is_empty() {
                    return bytes;
                }
                bytes += records.iter().map(|record| record.text.len() + 1).sum::<usize>();
            }
        });
        let workers: Vec<_> =
            (0..WORKERS).map(|worker| scope.spawn(move || work(pipeline, worker))).collect();
        // Keeps the last filter alive until the workers have stopped, since they retry until a filter
        // answers.
        let (replaced, _last) = operate(pipeline, first);
        pipeline.stop.store(true, Ordering::Relaxed);
        let made: u64 = workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).sum();
        pipeline.outlet.close();
        (made, writer.join().expect("the writer panicked"), replaced)
    });
    println!("{made} records of {WORKERS} workers passed {replaced} filters");
    println!("{} calls met a destroyed filter; {written} bytes were written", pipeline.stale.into_inner());
    let totals = counters.totals();
    for (level, (kept, dropped)) in LEVELS.iter().zip(totals) {
        println!("{level:>8}: kept {kept:>10}, dropped {dropped:>10}");
    }
    let counted: u64 = totals.iter().map(|(kept, dropped)| kept + dropped).sum();
    assert_eq!(counted, made, "each record is counted once");
}
