//! A log pipeline of plain threads: workers make records, a filter says which are kept, counters count them by level, and
//! a writer thread takes what is kept. An operator replaces the filter all the time.
//!
//! What it shows: the filter is destroyed and replaced while workers hold references to it, without a lock, a count or a
//! pause on their side. A worker whose reference is stale gets an error, looks up the present filter, and asks that one.
//! The counters have one part for each processor, the outlet is one part with a `#[blocking]` method.
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

// --- the filter: read by all, changed only by replacing it ---

#[squall::interface]
trait Filter: Send + Sync {
    /// Whether the record is kept.
    fn keeps(&self, record: &Record) -> bool;
}

/// Keeps records up to a level.
struct UpTo(usize);

impl Filter for UpTo {
    fn keeps(&self, record: &Record) -> bool {
        record.level <= self.0
    }
}

/// Keeps records that mention a word.
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

// --- the counters: a part for each processor ---

#[squall::interface]
trait Counters: Send + Sync {
    fn count(&self, level: usize, kept: bool);
    /// By level: kept and dropped.
    fn totals(&self) -> [(u64, u64); LEVELS.len()];
}

struct PerCpu;

struct Part {
    kept: [BiasedWord; LEVELS.len()],
    dropped: [BiasedWord; LEVELS.len()],
    at: RepContext<PerCpu>,
}

impl Root for PerCpu {
    type Interface = dyn Counters;
    type Rep = Part;

    fn make_rep(&self, at: RepContext<PerCpu>) -> Part {
        let words = || std::array::from_fn(|_| BiasedWord::new(at.vp()));
        Part { kept: words(), dropped: words(), at }
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
        self.at.gather(own, plus).unwrap_or_default()
    }
}

// --- the outlet: what is kept waits here for the writer ---

#[squall::interface]
trait Outlet: Send + Sync {
    fn put(&self, record: Record);
    /// The next records, all that there are; none once it is closed and empty.
    #[blocking]
    fn take(&self) -> Vec<Record>;
    fn close(&self);
}

#[derive(Default)]
struct Buffer {
    /// What waits, and whether more may come.
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

/// What all threads share: references, and where the present filter is found.
struct Pipeline {
    filter: RwLock<Handle<dyn Filter>>,
    counters: Handle<dyn Counters>,
    outlet: Handle<dyn Outlet>,
    stop: AtomicBool,
    stale: AtomicU64,
}

/// Makes records until told to stop. Returns how many.
fn work(pipeline: &Pipeline, worker: u64) -> u64 {
    let mut filter = *pipeline.filter.read().unwrap();
    let (mut made, mut stale) = (0, 0);
    while !pipeline.stop.load(Ordering::Relaxed) {
        let level = (made % LEVELS.len() as u64) as usize;
        let record = Record { level, text: format!("worker {worker}: record {made}") };
        let kept = loop {
            match filter.try_keeps(&record) {
                Ok(kept) => break kept,
                // It was destroyed since; nothing of it was touched. The next one is there already.
                Err(_gone) => {
                    stale += 1;
                    filter = *pipeline.filter.read().unwrap();
                }
            }
        };
        pipeline.counters.count(level, kept);
        // One in a hundred, so that the writer keeps up.
        if kept && made % 100 == 0 {
            pipeline.outlet.put(record);
        }
        made += 1;
    }
    pipeline.stale.fetch_add(stale, Ordering::Relaxed);
    made
}

/// Replaces the filter until the time is up. Returns how often, and the last one.
fn operate(pipeline: &Pipeline, mut present: Owned<dyn Filter>) -> (u64, Owned<dyn Filter>) {
    let end = Instant::now() + Duration::from_secs(1);
    let mut number = 0;
    while Instant::now() < end {
        number += 1;
        let next = filter(number);
        *pipeline.filter.write().unwrap() = next.handle();
        // Destroys the one before, whoever is in the midst of a call of it.
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
        // The last one is kept until the workers have stopped: they ask on until a filter answers.
        let (replaced, _last) = operate(pipeline, first);
        pipeline.stop.store(true, Ordering::Relaxed);
        let made: u64 = workers.into_iter().map(|worker| worker.join().expect("no worker panics")).sum();
        pipeline.outlet.close();
        (made, writer.join().expect("the writer does not panic"), replaced)
    });
    println!("{made} records of {WORKERS} workers, through {replaced} filters one after the other");
    println!(
        "{} calls met a filter that was gone; {written} bytes were written",
        pipeline.stale.into_inner()
    );
    let totals = counters.totals();
    for (level, (kept, dropped)) in LEVELS.iter().zip(totals) {
        println!("{level:>8}: kept {kept:>10}, dropped {dropped:>10}");
    }
    let counted: u64 = totals.iter().map(|(kept, dropped)| kept + dropped).sum();
    assert_eq!(counted, made, "every record was counted once");
}
