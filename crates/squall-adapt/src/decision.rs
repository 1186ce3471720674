//! Decisions, and why they were taken.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use squall_core::Id;
use squall_core::swap::SwapReport;
use squall_machine::Vp;

/// What was decided of an object, and why.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Decision {
    /// When.
    pub at: SystemTime,
    /// The object, as the interface it was made for.
    pub id: Id,
    /// Its family; of a swap by hand to an implementation of none, its interface.
    pub family: &'static str,
    /// The form that served; the class, if that is of no form of the family.
    pub from: &'static str,
    /// The form that was thought better.
    pub to: &'static str,
    /// The VP to which that would be biased, if it is of one.
    pub place: Option<Vp>,
    /// What was done about it.
    pub verdict: Verdict,
    /// The readings that led to it, in words.
    pub why: String,
    /// From the first look at the object, of those that led to it, to the end.
    pub took: Duration,
    /// How the swap went, if there was one.
    pub report: Option<SwapReport>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The object was swapped.
    Swapped,
    /// Somebody had it swapped by hand.
    ByHand,
    /// It would have been swapped, but the policy only says what it would do.
    DryRun,
    /// It was left as it is, for this reason.
    Held(Held),
    /// The swap failed, for this reason; the object serves on as it was.
    Failed(String),
}

/// Why an object is left as it is, although another form would be better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Held {
    /// It, or everything, is frozen.
    Frozen,
    /// It was swapped too short a time ago.
    CoolingDown,
    /// Its load changes faster than it may be swapped.
    Unsteady,
    /// The program has had as many swaps in the last second as it may.
    Budget,
    /// Grown forms would take more memory than they may.
    Memory,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Held::Frozen => "it is frozen",
            Held::CoolingDown => "it was swapped too short a time ago",
            Held::Unsteady => "its load changes faster than it may be swapped",
            Held::Budget => "the program has had as many swaps as it may",
            Held::Memory => "grown forms would take more memory than they may",
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Swapped => f.write_str("swapped"),
            Verdict::ByHand => f.write_str("swapped by hand"),
            Verdict::DryRun => f.write_str("would be swapped"),
            Verdict::Held(held) => write!(f, "held: {held}"),
            Verdict::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { id, family, from, to, verdict, why, .. } = self;
        write!(f, "{family}#{id}: {from} to {to}")?;
        if let Some(place) = self.place {
            write!(f, " at {place}")?;
        }
        write!(f, ": {verdict}; {why}")?;
        if let Some(report) = &self.report {
            write!(f, "; the swap took {:?}, the longest pause {:?}", report.total(), report.longest_pause)?;
        }
        Ok(())
    }
}

/// So many decisions are remembered for the whole program.
const RECENT_MAX: usize = 1024;

static RECENT: Mutex<VecDeque<Decision>> = Mutex::new(VecDeque::new());

fn lock() -> MutexGuard<'static, VecDeque<Decision>> {
    // Nothing panics under this lock but a failed allocation, which leaves the list whole.
    RECENT.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// The last decisions of this process, the latest last: at most 1,024.
pub fn recent() -> Vec<Decision> {
    if squall_sys::fork::forked() { Vec::new() } else { lock().iter().cloned().collect() }
}

/// Those of them about one object. A swap is told when it is over: its form may be seen a little earlier.
pub fn history(id: Id) -> Vec<Decision> {
    if squall_sys::fork::forked() {
        return Vec::new();
    }
    lock().iter().filter(|decision| decision.id == id).cloned().collect()
}

impl Decision {
    /// What a policy of one's own decided of an object, to be [noted](note): now, with nothing swapped by the engine.
    pub fn of(
        id: Id,
        family: &'static str,
        from: &'static str,
        to: &'static str,
        verdict: Verdict,
        why: String,
    ) -> Decision {
        let at = SystemTime::now();
        Decision { at, id, family, from, to, place: None, verdict, why, took: Duration::ZERO, report: None }
    }
}

/// Remembers what a policy of one's own decided, with those of the engine: for [`recent`] and [`history`], and those who listen.
pub fn note(decision: Decision) {
    if !squall_sys::fork::forked() {
        remember(decision);
    }
}

/// Remembers a decision, and tells those who listen.
pub(crate) fn remember(decision: Decision) {
    announce(&decision);
    let mut recent = lock();
    let forgotten = if recent.len() >= RECENT_MAX { recent.pop_front() } else { None };
    recent.push_back(decision);
    drop(recent);
    drop(forgotten);
}

#[cfg(feature = "tracing")]
fn announce(decision: &Decision) {
    let Decision { id, family, from, to, verdict, why, took, report, .. } = decision;
    let pause_us = report.as_ref().map(|report| report.longest_pause.as_micros() as u64);
    let took_us = took.as_micros() as u64;
    tracing::info!(target: "squall::adapt", %id, family, from, to, %verdict, why, took_us, pause_us);
}

#[cfg(not(feature = "tracing"))]
fn announce(_: &Decision) {}
