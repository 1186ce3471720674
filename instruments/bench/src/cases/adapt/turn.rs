//! One object's way through a script, and its results.

use std::time::{Duration, Instant, SystemTime};

use squall::objects::counter::Counter;
use squall::{Handle, Vp};

use super::play::{Caller, Load, Step, Stepped, play, policy_ms_per_s};
use super::script::{self, Script};
use crate::cases::swap::crew::fit;
use crate::ours_adapt::{Counted, Kind, Shape, Swapped, add, checked, mostly_total};

/// Calls between two checks of the step.
pub(super) const BATCH: u64 = 200;

/// Calls of one counter.
pub(super) struct One(Handle<dyn Counter>);

impl One {
    pub(super) fn new(co: Handle<dyn Counter>) -> One {
        // Registers the thread, and misses.
        co.add(0);
        One(co)
    }
}

impl Caller for One {
    #[inline]
    fn batch(&mut self, load: Load) -> (u64, u64) {
        (BATCH, call(self.0, load, BATCH))
    }
}

/// Makes `calls` calls. Returns how many of them added one.
pub(super) fn call(co: Handle<dyn Counter>, load: Load, calls: u64) -> u64 {
    match load {
        Load::MostlyTotal => mostly_total(co, calls),
        _ => add(co, calls),
    }
}

/// Nanoseconds per call in one part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Took {
    /// In the steady steps: the mean over the loads, each alone.
    pub(super) steady: f64,
    /// In all steps.
    pub(super) whole: f64,
}

/// Result of a turn.
pub(super) struct Turn {
    pub(super) parts: Vec<Took>,
    /// Start of each part.
    pub(super) began: Vec<SystemTime>,
    pub(super) ended: SystemTime,
    pub(super) swaps: Vec<Swapped>,
    pub(super) bytes: usize,
    /// Processor time of the engine's thread.
    pub(super) policy_ms_per_s: f64,
    /// Time after the end until a distributed adaptive counter shrank, and its bytes then.
    pub(super) folded: Option<(Duration, usize)>,
}

/// An object shrinks within this time, or it never does.
const FOLDS_WITHIN: Duration = Duration::from_secs(5);

/// Makes a counter and plays the script with it.
pub(super) fn turn(kind: Kind, script: Script, threads: usize, quick: bool) -> Result<Turn, String> {
    let made = kind.make(1)?;
    let counter = made.first().ok_or("no counter was made")?;
    let steps = script::steps(script, fit(threads), quick);
    let co = counter.handle();
    let played = play(threads, &steps, |_| One::new(co));
    let ended = SystemTime::now();
    checked(counter.total(), played.added)?;
    let parts = 0..script.len();
    if tells_why() {
        tell(kind, counter, &steps, &played.steps);
    }
    Ok(Turn {
        parts: parts.clone().map(|part| took(part, &steps, &played.steps)).collect(),
        began: parts.filter_map(|part| began(part, &steps, &played.steps)).collect(),
        ended,
        swaps: counter.swaps(),
        bytes: counter.bytes(),
        policy_ms_per_s: policy_ms_per_s(steps.iter().zip(&played.steps)),
        folded: if script::is_steady(script) { folded(counter) } else { None },
    })
}

/// Whether each step and each decision is reported on stderr.
pub(super) fn tells_why() -> bool {
    std::env::var_os("SQUALL_BENCH_WHY").is_some()
}

fn tell(kind: Kind, counter: &Counted, steps: &[Step], played: &[Stepped]) {
    for (step, stepped) in steps.iter().zip(played) {
        let ns = stepped.cpu_ns as f64 / stepped.calls.max(1) as f64;
        eprintln!("{} {:?} {:?}: {ns:.2} ns", kind.name(), step.load, step.length);
    }
    counter.story().iter().for_each(|line| eprintln!("  {line}"));
}

fn began(part: usize, steps: &[Step], played: &[Stepped]) -> Option<SystemTime> {
    steps.iter().zip(played).find(|(step, _)| step.part == part).map(|(_, stepped)| stepped.began)
}

fn took(part: usize, steps: &[Step], played: &[Stepped]) -> Took {
    let of_part = || steps.iter().zip(played).filter(move |(step, _)| step.part == part);
    let mean = |only_steady: bool| {
        let mut loads: Vec<(Load, u64, u64)> = Vec::new();
        for (step, stepped) in of_part().filter(|(step, _)| step.steady || !only_steady) {
            match loads.iter_mut().find(|(load, ..)| *load == step.load) {
                Some((_, calls, cpu_ns)) => {
                    *calls += stepped.calls;
                    *cpu_ns += stepped.cpu_ns;
                }
                None => loads.push((step.load, stepped.calls, stepped.cpu_ns)),
            }
        }
        let count = loads.len().max(1) as f64;
        loads.iter().map(|(_, calls, cpu_ns)| *cpu_ns as f64 / (*calls).max(1) as f64).sum::<f64>() / count
    };
    Took { steady: mean(true), whole: mean(false) }
}

/// Waits until the counter shrinks.
fn folded(counter: &Counted) -> Option<(Duration, usize)> {
    let began = Instant::now();
    if !counter.is_grown() {
        return None;
    }
    while counter.is_grown() && began.elapsed() < FOLDS_WITHIN {
        std::thread::sleep(Duration::from_millis(10));
    }
    Some((began.elapsed(), counter.bytes()))
}

impl Turn {
    /// End of a part.
    fn end(&self, part: usize) -> SystemTime {
        self.began.get(part + 1).copied().unwrap_or(self.ended)
    }

    /// The swaps of a part, with their time after its start.
    pub(super) fn swaps_in(&self, part: usize) -> impl Iterator<Item = (f64, Shape)> {
        let (began, end) = (self.began[part], self.end(part));
        let of_part = self.swaps.iter().filter(move |swap| began <= swap.at && swap.at < end);
        of_part.map(move |swap| {
            let after = swap.at.duration_since(began).unwrap_or_default();
            (after.as_secs_f64() * 1e3, swap.to)
        })
    }

    /// The form in which an adaptive counter began a part, if it was at home with `home` at first.
    pub(super) fn shape_at(&self, part: usize, home: Option<Vp>) -> Shape {
        let before = self.swaps.iter().rfind(|swap| swap.at < self.began[part]);
        before.map_or(Shape::Shared(home), |swap| swap.to)
    }
}
