//! What a case, a variant and a subject are.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::harness::{Plan, RunError, Step, Table};
use crate::uncounted::uncounted;

/// One piece of work that several subjects do in their own ways.
#[derive(Debug)]
pub struct Case {
    /// Name on the command line and in every row.
    pub name: &'static str,
    /// One line for people: what one operation is.
    pub about: &'static str,
    /// Forms of the case; a single unnamed one where there is nothing to choose.
    pub variants: &'static [Variant],
    /// Who takes part.
    pub(crate) subjects: &'static [Spec],
    /// How a thread's time becomes the figure.
    pub(crate) scale: Scale,
    /// Length of a slice in milliseconds, in a full and in a quick run.
    pub(crate) slice_ms: (u64, u64),
    /// Whether the range over the threads of each subject is printed as a metric.
    pub(crate) thread_range: bool,
    /// Makes the metrics of the case itself; all there is where nobody takes part.
    pub(crate) metrics: Option<MetricsRun>,
    /// Thread counts when none are asked for; empty: one, two and as many as there are processors.
    pub(crate) default_threads: &'static [usize],
}

impl Case {
    /// The names of all who take part, whether or not they can run here.
    pub fn subject_names(&self) -> Vec<&'static str> {
        self.subjects.iter().map(|spec| spec.name).collect()
    }
}

/// Makes the metrics of a case that are no subject's.
pub(crate) type MetricsRun = fn(&Setting, quick: bool) -> Result<Vec<(String, f64)>, String>;

/// One form of a case.
#[derive(Debug)]
pub struct Variant {
    /// Name for `--variant`, or empty where the case has only one form.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// How many background readers run beside the measured threads, for so many processors.
    pub(crate) background: fn(usize) -> usize,
    /// What they do.
    pub(crate) reading: Reading,
    /// Whether a measured thread sleeps a little before each operation; that time is not counted.
    pub(crate) spaced: bool,
    /// So many threads are measured whatever is asked for, where the number is what the variant is about.
    pub(crate) threads: Option<usize>,
    /// Whether a quick run leaves it out, unless it is asked for by name.
    pub(crate) thorough: bool,
}

/// The variant of a case that has no variants.
pub(crate) const PLAIN: Variant = Variant {
    name: "",
    about: "",
    background: |_| 0,
    reading: Reading::Busy,
    spaced: false,
    threads: None,
    thorough: false,
};

/// How time becomes nanoseconds per operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scale {
    /// Processor time: with more threads than processors, the time that the others ran is taken out.
    Work,
    /// Time until done, as the caller sees it.
    Latency,
    /// As the case does it, which makes its own rounds: of loads that change with time, where a slice of so many operations
    /// would be none.
    Own(OwnRounds),
}

/// Makes the rounds of a case at one variant and thread count.
pub(crate) type OwnRounds =
    fn(&Setting, &Plan, progress: &mut dyn FnMut(Step<'_>)) -> Result<Table, RunError>;

/// What a subject is in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Squall.
    Ours,
    /// Somebody else's, or a plain way to do it.
    Rival,
    /// Work that is not the point; its time is subtracted from the others' in each round.
    Baseline,
}

/// Why a subject cannot run here; empty where it takes no part in the variant, which nobody is told.
#[derive(Clone, Debug)]
pub struct Missing(pub String);

impl Missing {
    /// The subject takes no part in this variant.
    pub(crate) fn no_part() -> Missing {
        Missing(String::new())
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

/// What a subject is made for.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Measured threads.
    pub(crate) threads: usize,
    /// The variant.
    pub(crate) variant: &'static Variant,
    /// Whether an instrument counts from outside: what adapts is in its form for so many threads from the beginning.
    pub(crate) counted: bool,
}

/// A pause before each operation, which does not count.
///
/// Some operations, repeated without a pause, measure only the moments in which they go well: whoever waits for
/// readers, and is lucky, waits again and again while the same readers stay off their processors. A short sleep in
/// between lets the scheduler deal anew; it is clocked and taken out.
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
    /// To be called before each operation.
    #[inline]
    pub(crate) fn before(self) {
        if self.0 {
            uncounted(|| std::thread::sleep(SPACING));
        }
    }
}

/// The body of one measured thread: does so many operations.
pub(crate) type Worker<'a> = Box<dyn FnMut(u64) + 'a>;

/// One way to do the work of a case. The loop over the operations is inside the worker, so that nothing of the
/// harness is in it.
pub(crate) trait Subject: Send + Sync {
    /// Makes the body of measured thread `thread`, on that thread. Whatever a thread does once (registering, making
    /// a handle) happens here and not in the first operation.
    fn worker(&self, thread: usize) -> Worker<'_>;

    /// The body of one background reader: hands its reads to `run.read`.
    fn background(&self, run: &Background) {
        run.read(std::thread::yield_now);
    }

    /// Called by one thread when all have done their operations, before any worker is dropped.
    fn end_slice(&self, _ops: u64) -> SliceEnd {
        SliceEnd::default()
    }

    /// Checks the result after `ops` operations in all. An error means that the figures are worth nothing.
    fn check(&self, _ops: u64) -> Result<(), String> {
        Ok(())
    }
}

/// What a subject has to say about a slice.
#[derive(Clone, Debug, Default)]
pub(crate) struct SliceEnd {
    /// Operations that are really done, where that can be less than were begun.
    pub(crate) done: Option<u64>,
    /// Figures that are not times: name and value.
    pub(crate) metrics: Vec<(&'static str, f64)>,
}

/// What the background readers of a variant do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// One read section after the other.
    Busy,
    /// One at first, then the thread sleeps: it is known to the library, and idle.
    Once,
}

/// How the harness and the background readers talk.
#[derive(Debug)]
pub(crate) struct Background {
    reading: Reading,
    stop: AtomicBool,
    running: AtomicUsize,
    /// Who sleeps until told to stop.
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
            let mut asleep = self.sleepers.lock().expect("nobody panics holding it");
            while !self.is_stopped() {
                asleep = self.stopped.wait(asleep).expect("nobody panics holding it");
            }
        }
        while !self.is_stopped() {
            reads();
        }
    }

    fn is_stopped(&self) -> bool {
        // Relaxed: the flag is all there is to see.
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        let _asleep = self.sleepers.lock().expect("nobody panics holding it");
        self.stop.store(true, Ordering::Relaxed);
        self.stopped.notify_all();
    }

    /// Waits until `readers` of them have read.
    pub(crate) fn await_ready(&self, readers: usize) {
        // Acquire: pairs with the Release in `read`.
        while self.running.load(Ordering::Acquire) < readers {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}
