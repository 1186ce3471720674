//! Descriptions of cases, variants and subjects.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::env;
use crate::harness::{Plan, RunError, Step, Table};
use crate::uncounted::uncounted;

/// One piece of work that several subjects do in their own ways.
#[derive(Debug)]
pub struct Case {
    /// Name on the command line and in every row.
    pub name: &'static str,
    /// One line for people: the meaning of one operation.
    pub about: &'static str,
    /// Forms of the case; a single unnamed variant if the case has only one form.
    pub variants: &'static [Variant],
    /// The participants.
    pub(crate) subjects: &'static [Spec],
    /// Conversion of a thread's time into the figure.
    pub(crate) scale: Scale,
    /// Length of a slice in milliseconds, in a full and in a quick run.
    pub(crate) slice_ms: (u64, u64),
    /// Whether the range over the threads of each subject is printed as a metric.
    pub(crate) thread_range: bool,
    /// Makes the metrics of the case itself; a case without subjects has only these.
    pub(crate) metrics: Option<MetricsRun>,
    /// Thread counts if the user asks for no others; empty: one, two, and the number of processors.
    pub(crate) default_threads: &'static [usize],
}

impl Case {
    /// The names of all subjects, including those that cannot run on this machine.
    pub fn subject_names(&self) -> Vec<&'static str> {
        self.subjects.iter().map(|spec| spec.name).collect()
    }
}

/// Makes the metrics of a case that belong to no subject.
pub(crate) type MetricsRun = fn(&Setting, quick: bool) -> Result<Vec<(String, f64)>, String>;

/// One form of a case.
#[derive(Debug)]
pub struct Variant {
    /// Name for `--variant`; empty if the case has only one form.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Number of background readers beside the measured threads, for a number of processors.
    pub(crate) background: fn(usize) -> usize,
    /// Load of the background readers.
    pub(crate) reading: Reading,
    /// Whether a measured thread sleeps briefly before each operation; the sleep is not counted.
    pub(crate) spaced: bool,
    /// Fixed number of measured threads, for a variant about that number. Overrides the command line.
    pub(crate) threads: Option<usize>,
    /// Like `threads`, for each processor.
    pub(crate) threads_per_processor: Option<usize>,
    /// Whether a quick run leaves the variant out unless it is asked for by name.
    pub(crate) thorough: bool,
    /// Whether every run leaves the variant out unless it is asked for by name.
    pub(crate) on_request: bool,
    /// The noun for one of the threads, in text. Simulated clients are no threads.
    pub(crate) threads_are: &'static str,
}

impl Variant {
    /// The fixed number of threads on this machine, if any.
    pub(crate) fn fixed_threads(&self) -> Option<usize> {
        self.threads.or_else(|| Some(self.threads_per_processor? * env::processors().len()))
    }

    /// The number after the last dash of the name; one if there is none.
    pub(crate) fn number(&self) -> u32 {
        self.name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(1)
    }
}

/// A variant that differs in its name alone.
pub(crate) const fn variant(name: &'static str, about: &'static str) -> Variant {
    Variant { name, about, ..PLAIN }
}

/// The variant of a case that has no variants.
pub(crate) const PLAIN: Variant = Variant {
    name: "",
    about: "",
    background: |_| 0,
    reading: Reading::Busy,
    spaced: false,
    threads: None,
    threads_per_processor: None,
    thorough: false,
    on_request: false,
    threads_are: "thread",
};

/// Conversion of time into nanoseconds per operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scale {
    /// Processor time: with more threads than processors, the time of the other threads is removed.
    Work,
    /// Time until done, as seen by the caller.
    Latency,
    /// Own rounds of the case, for a load that changes with time and has no slices of a fixed number of
    /// operations.
    Own(OwnRounds),
}

/// Makes the rounds of a case at one variant and thread count.
pub(crate) type OwnRounds =
    fn(&Setting, &Plan, progress: &mut dyn FnMut(Step<'_>)) -> Result<Table, RunError>;

/// Role of a subject in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Squall.
    Ours,
    /// Another library, or a plain implementation.
    Rival,
    /// Work that surrounds the operation; its time is subtracted from the others' in each round.
    Baseline,
}

/// Reason why a subject cannot run here; empty if it takes no part in the variant, which is not reported.
#[derive(Clone, Debug)]
pub struct Missing(pub String);

impl Missing {
    /// The subject takes no part in this variant.
    pub(crate) fn no_part() -> Missing {
        Missing(String::new())
    }

    /// The case is counted, and this run is timed.
    pub(crate) fn only_counted() -> Missing {
        Missing("its rounds are counted, not timed: use `squall loop`".to_owned())
    }

    pub(crate) fn is_no_part(&self) -> bool {
        self.0.is_empty()
    }
}

/// A subject's name, role and maker.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    pub(crate) make: fn(&Setting) -> Result<Box<dyn Subject>, Missing>,
}

impl Spec {
    pub(crate) const fn ours(name: &'static str, make: Make) -> Spec {
        Spec { name, role: Role::Ours, make }
    }

    pub(crate) const fn rival(name: &'static str, make: Make) -> Spec {
        Spec { name, role: Role::Rival, make }
    }

    pub(crate) const fn baseline(name: &'static str, make: Make) -> Spec {
        Spec { name, role: Role::Baseline, make }
    }
}

pub(crate) type Make = fn(&Setting) -> Result<Box<dyn Subject>, Missing>;

/// Parameters of a subject.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Measured threads.
    pub(crate) threads: usize,
    /// The variant.
    pub(crate) variant: &'static Variant,
    /// Whether an external instrument counts accesses. If so, an adaptive subject starts in its form for
    /// `threads`.
    pub(crate) counted: bool,
}

/// A pause before each operation, excluded from the figure.
///
/// Without a pause, some operations would be measured only at favourable moments. For example, a thread that
/// waits for readers may find that none of them runs. It could then repeat its short wait many times before
/// they run again. The sleep lets the scheduler change the situation; it is timed and subtracted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spacing(bool);

/// Length of the sleep before a spaced operation.
const SPACING: Duration = Duration::from_millis(1);

impl Setting {
    pub(crate) fn spacing(&self) -> Spacing {
        Spacing(self.variant.spaced)
    }
}

impl Spacing {
    /// Called before each operation.
    #[inline]
    pub(crate) fn before(self) {
        if self.0 {
            uncounted(|| std::thread::sleep(SPACING));
        }
    }
}

/// The body of one measured thread: does the given number of operations.
pub(crate) type Worker<'a> = Box<dyn FnMut(u64) + 'a>;

/// One way to do the work of a case. The loop over the operations is inside the worker, so that it contains
/// no harness code.
pub(crate) trait Subject: Send + Sync {
    /// Makes the body of measured thread `thread`, on that thread. Work done once per thread (registering,
    /// making a handle) happens here, before the first operation.
    fn worker(&self, thread: usize) -> Worker<'_>;

    /// The body of one background reader: passes its reads to `run.read`.
    fn background(&self, run: &Background) {
        run.read(std::thread::yield_now);
    }

    /// Called by one thread after all have done their operations, before any worker is dropped.
    fn end_slice(&self, _ops: u64) -> SliceEnd {
        SliceEnd::default()
    }

    /// Processor time so far of the subject's own child processes, in nanoseconds. It is no foreign load.
    fn busy_elsewhere_ns(&self) -> u64 {
        0
    }

    /// Checks the result after `ops` operations in all. After an error the figures are discarded.
    fn check(&self, _ops: u64) -> Result<(), String> {
        Ok(())
    }
}

/// A subject's report about a slice.
#[derive(Clone, Debug, Default)]
pub(crate) struct SliceEnd {
    /// Operations completed, if this may be fewer than were started.
    pub(crate) done: Option<u64>,
    /// Figures other than times: name and value.
    pub(crate) metrics: Vec<(&'static str, f64)>,
}

/// Load of the background readers of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// One read section after the other.
    Busy,
    /// One read section at first; then the thread sleeps, registered with the library and idle.
    Once,
}

/// Communication between the harness and the background readers.
#[derive(Debug)]
pub(crate) struct Background {
    reading: Reading,
    stop: AtomicBool,
    running: AtomicUsize,
    /// The readers of [`Reading::Once`] sleep on this until the harness stops them.
    sleepers: Mutex<()>,
    stopped: Condvar,
}

impl Background {
    pub(crate) fn new(reading: Reading) -> Background {
        Background {
            reading,
            stop: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            sleepers: Mutex::new(()),
            stopped: Condvar::new(),
        }
    }

    /// The loop of one background reader; `reads` does a few dozen read sections.
    pub(crate) fn read(&self, mut reads: impl FnMut()) {
        reads();
        // Release: pairs with the Acquire in `await_ready`.
        self.running.fetch_add(1, Ordering::Release);
        if self.reading == Reading::Once {
            let mut asleep = self.sleepers.lock().expect("a thread panicked under the lock");
            while !self.is_stopped() {
                asleep = self.stopped.wait(asleep).expect("a thread panicked under the lock");
            }
        }
        while !self.is_stopped() {
            reads();
        }
    }

    fn is_stopped(&self) -> bool {
        // Relaxed: the flag publishes no other data.
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        let _asleep = self.sleepers.lock().expect("a thread panicked under the lock");
        self.stop.store(true, Ordering::Relaxed);
        self.stopped.notify_all();
    }

    /// Waits until `readers` background readers have read.
    pub(crate) fn await_ready(&self, readers: usize) {
        // Acquire: pairs with the Release in `read`.
        while self.running.load(Ordering::Acquire) < readers {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}
