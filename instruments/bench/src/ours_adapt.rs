//! Subjects `squall-*` of the cases `adapt` and `counter`: the counters of `squall-objects`, used as an
//! application would.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::process::{Pid, setpriority_process};
use squall::adapt::control::{self, Verdict};
use squall::adapt::engine;
use squall::objects::counter::{self, Counter};
use squall::{Handle, Id, Owned, Vp};

use crate::case::{Make, Missing, Setting, Subject, Worker};
use crate::ours_machine::on_processor;

/// Form in which a counter is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Shared,
    Distributed,
    Adaptive,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Shared, Kind::Distributed, Kind::Adaptive];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Shared => "squall-shared",
            Kind::Distributed => "squall-distributed",
            Kind::Adaptive => "squall-adaptive",
        }
    }

    /// Makes `count` counters on the processor of the first thread. A counter with a home has its home there.
    pub(crate) fn make(self, count: usize) -> Result<Vec<Counted>, String> {
        let make = match self {
            Kind::Shared => counter::shared,
            Kind::Distributed => counter::distributed,
            Kind::Adaptive => counter::adaptive,
        };
        if self == Kind::Adaptive {
            // Before this thread is pinned, since the engine's thread inherits the processors of its creator.
            engine::start();
        }
        on_processor(0, || (0..count).map(|_| Counted(make())).collect()).map_err(|Missing(why)| why)
    }
}

/// A counter that this benchmark owns.
pub(crate) struct Counted(Owned<dyn Counter>);

impl Counted {
    pub(crate) fn handle(&self) -> Handle<dyn Counter> {
        self.0.handle()
    }

    pub(crate) fn id(&self) -> Id {
        Handle::id(self.0.handle())
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.total()
    }

    /// Size of all its parts, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        squall::info_of(self.id()).map_or(0, |info| info.bytes)
    }

    /// Name of the class that serves it now.
    pub(crate) fn class(&self) -> &'static str {
        squall::info_of(self.id()).map_or("", |info| info.class)
    }

    /// Whether it is adaptive and distributed now.
    pub(crate) fn is_grown(&self) -> bool {
        control::status(self.id()).is_some_and(|status| status.form == counter::DISTRIBUTED)
    }

    /// Distributes an adaptive counter for good.
    fn grow(&self) -> Result<(), Missing> {
        let told = |error: control::ControlError| Missing(error.to_string());
        control::swap(self.id(), counter::DISTRIBUTED).map_err(told)?;
        control::freeze(self.id(), true).map_err(told)
    }

    /// The swaps made by its policy, oldest first.
    pub(crate) fn swaps(&self) -> Vec<Swapped> {
        let swapped = |verdict: &Verdict| *verdict == Verdict::Swapped;
        let decisions = control::history(self.id()).into_iter().filter(|decision| swapped(&decision.verdict));
        let shape =
            |form, place| if form == counter::SHARED { Shape::Shared(place) } else { Shape::Distributed };
        decisions
            .map(|decision| Swapped { at: decision.at, to: shape(decision.to, decision.place) })
            .collect()
    }

    /// The decisions of its policy, one line each, for `SQUALL_BENCH_WHY`.
    pub(crate) fn story(&self) -> Vec<String> {
        let line = |decision: &control::Decision| format!("{decision}; decided in {:?}", decision.took);
        control::history(self.id()).iter().map(line).collect()
    }
}

/// The directory of the engine's thread in `/proc`.
fn policy_task() -> Option<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    tasks.flatten().map(|task| task.path()).find(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "squall-adapt")
    })
}

/// Sets the priority of the engine's thread: 19 is the lowest, 0 the usual one.
pub(crate) fn set_policy_nice(nice: i32) -> Result<(), String> {
    let thread = policy_task().and_then(|task| task.file_name()?.to_str()?.parse().ok());
    let thread = thread.and_then(Pid::from_raw).ok_or("the engine has no thread")?;
    // The system takes the id of a thread, too.
    setpriority_process(Some(thread), nice).map_err(|error| format!("the engine's priority: {error}"))
}

/// Processor time of the engine's thread so far, in nanoseconds; zero if the kernel does not count it.
pub(crate) fn policy_cpu_ns() -> u64 {
    let times = policy_task().and_then(|task| std::fs::read_to_string(task.join("schedstat")).ok());
    times.and_then(|times| times.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// A swap that a policy made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swapped {
    pub(crate) at: SystemTime,
    pub(crate) to: Shape,
}

/// Form of an adaptive counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One representative, at home on the given VP.
    Shared(Option<Vp>),
    Distributed,
}

/// A counter as a subject of the case `counter`.
struct Adding(Counted);

pub(crate) const SHARED: Make = |_| adding(Kind::Shared, false);
pub(crate) const DISTRIBUTED: Make = |_| adding(Kind::Distributed, false);
pub(crate) const ADAPTIVE: Make = |setting| adding(Kind::Adaptive, is_grown_for(setting));

/// Whether an adaptive counter starts distributed because every thread adds to it.
fn is_grown_for(setting: &Setting) -> bool {
    setting.counted && setting.threads > 1
}

fn adding(kind: Kind, grown: bool) -> Result<Box<dyn Subject>, Missing> {
    let made = one(kind)?;
    if grown {
        made.grow()?;
    }
    Ok(Box::new(Adding(made)))
}

fn one(kind: Kind) -> Result<Counted, Missing> {
    let mut made = kind.make(1).map_err(Missing)?;
    made.pop().ok_or_else(|| Missing("no counter was made".to_owned()))
}

impl Subject for Adding {
    fn worker(&self, _: usize) -> Worker<'_> {
        let co = self.0.handle();
        // Causes the miss without changing the sum.
        co.add(0);
        Box::new(move |ops| {
            for _ in 0..ops {
                co.add(1);
            }
        })
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        checked(self.0.total(), ops)
    }
}

/// Compares the counter's sum with the number of additions.
pub(crate) fn checked(sum: u64, added: u64) -> Result<(), String> {
    if sum == added { Ok(()) } else { Err(format!("{added} were added, but the sum is {sum}")) }
}

/// Makes the counters for a variant of `adapt` that an instrument counts from outside. Counters with many
/// adders start distributed.
pub(crate) fn for_counting(
    kind: Kind,
    setting: &Setting,
    count: usize,
    grown: usize,
) -> Result<Vec<Counted>, Missing> {
    let made = kind.make(count).map_err(Missing)?;
    if kind == Kind::Adaptive && is_grown_for(setting) {
        made.iter().take(grown).try_for_each(Counted::grow)?;
    }
    Ok(made)
}

/// Calls that ask for the sum, per call that adds.
pub(crate) const TOTALS_PER_ADD: u64 = 99;

/// Adds one, `calls` times.
#[inline]
pub(crate) fn add(co: Handle<dyn Counter>, calls: u64) -> u64 {
    for _ in 0..calls {
        black_box(&co).add(1);
    }
    calls
}

/// Makes `calls` calls: one in a hundred adds one, the others ask for the sum. Returns the number of
/// additions.
#[inline]
pub(crate) fn mostly_total(co: Handle<dyn Counter>, calls: u64) -> u64 {
    let (mut left, mut added) = (calls, 0);
    while left > 0 {
        black_box(&co).add(1);
        added += 1;
        let totals = TOTALS_PER_ADD.min(left - 1);
        for _ in 0..totals {
            black_box(black_box(&co).total());
        }
        left -= 1 + totals;
    }
    added
}
