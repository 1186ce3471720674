//! The pool of measured threads, for one number of threads. The threads are made once and then run one slice
//! after another. They are pinned if each has a processor of its own.
//!
//! In a slice each thread makes its worker, warms up and passes a gate. It then reads the clock, does the
//! operations and reads the clock again. After a second gate, one thread asks the subject for its report.
//! After a third gate, the workers are dropped. So only the operations lie between the clock readings, and
//! all workers exist while any thread measures.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use super::foreign::{Lost, SliceWatch, preemptions};
use crate::case::{Background, Reading, Scale, SliceEnd, Subject};
use crate::env;
use crate::gate::{Gate, NoUnwind};
use crate::uncounted::{Uncounted, take_uncounted, thread_cpu_ns};

/// Placement of the measured threads and the background readers.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    pub(super) processors: Vec<usize>,
    pub(super) threads: usize,
    pub(super) background: usize,
    reading: Reading,
    /// Whether every measured thread and busy reader has its own processor.
    fits: bool,
    pub(super) pinned: bool,
}

impl Placement {
    pub(super) fn new(
        processors: Vec<usize>,
        threads: usize,
        background: usize,
        reading: Reading,
    ) -> Placement {
        let running = threads + if reading == Reading::Busy { background } else { 0 };
        let fits = running <= processors.len();
        let pinned = fits && !crate::ours_machine::is_virtual();
        Placement { processors, threads, background, reading, fits, pinned }
    }

    /// Pins thread `index` to its processor; the measured threads come first. A sleeping reader needs no
    /// processor.
    fn pin(&self, index: usize) {
        if self.pinned && index < self.processors.len() {
            env::pin(&self.processors[index..=index]);
        }
    }

    /// The processors in use.
    pub(super) fn used(&self) -> &[usize] {
        if self.pinned {
            &self.processors[..self.processors.len().min(self.threads + self.background)]
        } else {
            &self.processors
        }
    }
}

struct Job<'env> {
    subject: &'env dyn Subject,
    ops: u64,
    warm: u64,
}

struct Sample {
    start: Instant,
    end: Instant,
    uncounted: Uncounted,
    lost: Lost,
}

/// One slice of one subject, measured.
pub(super) struct Slice {
    /// Nanoseconds per operation.
    pub(super) ns: f64,
    /// Wall-clock time of the slice, in nanoseconds.
    pub(super) wall_ns: f64,
    /// Slowest less fastest thread, divided by the mean.
    pub(super) range: f64,
    /// Operations done, warm-up included, by all threads.
    pub(super) total_ops: u64,
    pub(super) disturbed: bool,
    pub(super) metrics: Vec<(&'static str, f64)>,
}

pub(super) struct Pool<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    place: &'env Placement,
    jobs: Vec<Sender<Job<'env>>>,
    samples: Receiver<Sample>,
    end: &'env Mutex<SliceEnd>,
}

/// Shared state of the threads of a pool; outlives the scope they run in.
pub(super) struct Shared {
    pub(super) place: Placement,
    gate: Gate,
    end: Mutex<SliceEnd>,
}

impl Shared {
    pub(super) fn new(place: Placement) -> Shared {
        Shared { gate: Gate::new(place.threads), place, end: Mutex::new(SliceEnd::default()) }
    }
}

impl<'scope, 'env> Pool<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>, shared: &'env Shared) -> Pool<'scope, 'env> {
        let (sample_to, samples) = channel();
        let jobs = (0..shared.place.threads)
            .map(|index| {
                let (job_to, jobs) = channel();
                let sample_to = sample_to.clone();
                scope.spawn(move || serve(shared, index, &jobs, &sample_to));
                job_to
            })
            .collect();
        Pool { scope, place: &shared.place, jobs, samples, end: &shared.end }
    }

    pub(super) fn place(&self) -> &'env Placement {
        self.place
    }

    /// Runs `ops` operations of `subject` in each thread.
    pub(super) fn slice(&self, subject: &'env dyn Subject, scale: Scale, ops: u64, warm: u64) -> Slice {
        let background = Arc::new(Background::new(self.place.reading));
        let readers = self.start_background(subject, &background);
        let (watch, elsewhere_ns) = (SliceWatch::begin(), subject.busy_elsewhere_ns());
        for job in &self.jobs {
            job.send(Job { subject, ops, warm }).expect("a measured thread has panicked");
        }
        let samples: Vec<Sample> =
            self.jobs.iter().map(|_| self.samples.recv().expect("a measured thread has panicked")).collect();
        let lost: Vec<Lost> = samples.iter().map(|s| s.lost).collect();
        let elsewhere_ns = subject.busy_elsewhere_ns().saturating_sub(elsewhere_ns);
        let disturbed = self.place.fits && watch.disturbed(&lost, elsewhere_ns);
        background.stop();
        for reader in readers {
            reader.join().expect("a background reader has panicked");
        }
        self.evaluate(&samples, scale, ops, warm, disturbed)
    }

    fn start_background(
        &self,
        subject: &'env dyn Subject,
        run: &Arc<Background>,
    ) -> Vec<ScopedJoinHandle<'scope, ()>> {
        let place = self.place;
        let readers: Vec<_> = (0..place.background)
            .map(|i| {
                let run = Arc::clone(run);
                self.scope.spawn(move || {
                    place.pin(place.threads + i);
                    subject.background(&run);
                })
            })
            .collect();
        run.await_ready(readers.len());
        readers
    }

    fn evaluate(&self, samples: &[Sample], scale: Scale, ops: u64, warm: u64, disturbed: bool) -> Slice {
        let threads = samples.len() as f64;
        let walls: Vec<f64> = samples
            .iter()
            .map(|s| ((s.end - s.start).as_nanos() as f64 - s.uncounted.wall_ns as f64).max(0.0))
            .collect();
        let mean = walls.iter().sum::<f64>() / threads;
        let start = samples.iter().map(|s| s.start).min().expect("no thread was measured");
        let end = samples.iter().map(|s| s.end).max().expect("no thread was measured");
        let wall_ns = (end - start).as_nanos() as f64;
        let processors = self.place.processors.len() as f64;
        let per_thread = match scale {
            Scale::Work if threads > processors => {
                let uncounted: f64 = samples.iter().map(|s| s.uncounted.cpu_ns as f64).sum();
                (wall_ns * processors - uncounted).max(0.0) / threads
            }
            _ => mean,
        };
        let said = std::mem::take(&mut *self.end.lock().expect("a thread panicked under the lock"));
        let begun = ops as f64 * threads;
        let done = said.done.map_or(begun, |done| (done as f64).clamp(1.0, begun));
        let (slow, fast) = walls.iter().fold((0.0f64, f64::MAX), |(s, f), w| (s.max(*w), f.min(*w)));
        Slice {
            ns: per_thread * threads / done,
            wall_ns,
            range: (slow - fast) / mean,
            total_ops: (ops + warm) * samples.len() as u64,
            disturbed,
            metrics: said.metrics,
        }
    }
}

/// Runs one measured thread from start to end.
fn serve(shared: &Shared, index: usize, jobs: &Receiver<Job<'_>>, samples: &Sender<Sample>) {
    let _guard = NoUnwind;
    shared.place.pin(index);
    crate::ours_machine::assign_vp(index);
    while let Ok(job) = jobs.recv() {
        let sample = run(shared, index, &job);
        if samples.send(sample).is_err() {
            return;
        }
    }
}

fn run(shared: &Shared, index: usize, job: &Job<'_>) -> Sample {
    let cpu_at_first = thread_cpu_ns();
    let mut worker = job.subject.worker(index);
    if job.warm > 0 {
        worker(job.warm);
    }
    // Discards the uncounted time of the warm-up.
    take_uncounted();
    let preempted_before = preemptions();
    shared.gate.wait();
    let (start, cpu_before) = (Instant::now(), thread_cpu_ns());
    worker(job.ops);
    let (end, cpu_after) = (Instant::now(), thread_cpu_ns());
    let uncounted = take_uncounted();
    shared.gate.wait();
    if index == 0 {
        *shared.end.lock().expect("a thread panicked under the lock") =
            job.subject.end_slice(job.ops * shared.place.threads as u64);
    }
    shared.gate.wait();
    let preempted = preemptions() > preempted_before;
    drop(worker);
    let lost = Lost {
        wall_ns: (end - start).as_nanos() as f64,
        cpu_ns: (cpu_after - cpu_before) as f64,
        slice_cpu_ns: (thread_cpu_ns() - cpu_at_first) as f64,
        preempted,
    };
    Sample { start, end, uncounted, lost }
}
