//! Decisions of policies, with their reasons.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use squall_core::swap::SwapReport;
use squall_core::{Id, Name, name_of};
use squall_machine::Vp;

/// A decision about an object, with its reason.
///
/// ```
/// use squall::Id;
/// use squall::adapt::decision::{Decision, Held, Verdict, history, note};
///
/// let id = Id::from_parts(17, 3).unwrap();
/// let verdict = Verdict::Held(Held::CoolingDown);
/// note(Decision::new(id, "counter", "shared", "distributed", verdict, "2 VPs".to_owned()));
/// assert_eq!(
///     history(id)[0].to_string(),
///     "counter#17.3: shared to distributed: held: it was swapped too recently; 2 VPs"
/// );
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Decision {
    /// Time of the decision.
    pub at: SystemTime,
    /// The object, as the interface that it was created with.
    pub id: Id,
    /// The name that the program gave the object, if any.
    pub name: Option<Name>,
    /// Family of the object. For a swap by hand to an implementation without a family: its interface.
    pub family: &'static str,
    /// Form that served; or its class, if the family has no such form.
    pub from: &'static str,
    /// Form that was judged better.
    pub to: &'static str,
    /// VP that the new form would be biased to, if it is a biased form.
    pub place: Option<Vp>,
    /// Action taken on the decision.
    pub verdict: Verdict,
    /// Reason of the decision, as a sentence. [`readings`](Decision::readings) has the numbers.
    pub why: String,
    pub(crate) readings: String,
    /// Time from the first sample until the decision was made, or until its swap was over.
    pub took: Duration,
    /// Report of the swap, if there was one.
    pub report: Option<SwapReport>,
}

/// Action taken on a decision.
///
/// ```
/// use squall::adapt::decision::{Held, Verdict};
///
/// assert_eq!(Verdict::Held(Held::Frozen).to_string(), "held: it is frozen");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The policy swapped the object.
    Swapped,
    /// A person or the program swapped the object by hand.
    ByHand,
    /// The policy would have swapped the object, but it is in a dry run.
    DryRun,
    /// The object stays as it is, for this reason.
    Held(Held),
    /// The swap failed, for this reason. The object keeps serving as before.
    Failed(String),
}

/// Reason why an object stays as it is, although another form would be better.
///
/// ```
/// use squall::adapt::decision::Held;
///
/// assert_eq!(Held::CoolingDown.to_string(), "it was swapped too recently");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Held {
    /// The object, or all objects, are frozen.
    Frozen,
    /// The last swap of the object is less than a cool-down ago.
    CoolingDown,
    /// The load of the object changes faster than the cool-down.
    Unsteady,
    /// The program has used up its swaps per second.
    Budget,
    /// Grown forms would exceed the memory limit.
    Memory,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Held::Frozen => "it is frozen",
            Held::CoolingDown => "it was swapped too recently",
            Held::Unsteady => "its load changes faster than the cool-down",
            Held::Budget => "the program has used up its swaps per second",
            Held::Memory => "grown forms would exceed the memory limit",
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
        write!(f, "{family}#{id}")?;
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        write!(f, ": {from} to {to}")?;
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

/// Number of decisions kept for the whole process.
const RECENT_MAX: usize = 1024;

static RECENT: Mutex<VecDeque<Decision>> = Mutex::new(VecDeque::new());

fn lock() -> MutexGuard<'static, VecDeque<Decision>> {
    // Only a failed allocation panics under this lock, and it leaves the list intact.
    RECENT.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Returns the latest decisions of this process, the newest last: at most 1,024.
///
/// ```
/// use squall::Id;
/// use squall::adapt::decision::{Decision, Verdict, note, recent};
///
/// assert!(recent().is_empty());
/// let id = Id::from_parts(17, 3).unwrap();
/// note(Decision::new(id, "counter", "shared", "distributed", Verdict::DryRun, String::new()));
/// assert_eq!(recent()[0].to, "distributed");
/// ```
pub fn recent() -> Vec<Decision> {
    if squall_sys::fork::forked() { Vec::new() } else { lock().iter().cloned().collect() }
}

/// Returns the latest decisions about one object, the newest last. A swap is recorded when it is complete, so
/// the new form may be visible a little earlier. For an example see [`Decision`].
pub fn history(id: Id) -> Vec<Decision> {
    if squall_sys::fork::forked() {
        return Vec::new();
    }
    lock().iter().filter(|decision| decision.id == id).cloned().collect()
}

/// Returns the latest decision about each of these objects, if there is one. Looks at each decision once.
pub(crate) fn latest(ids: &[Id]) -> HashMap<Id, Decision> {
    if squall_sys::fork::forked() {
        return HashMap::new();
    }
    let wanted: HashSet<Id> = ids.iter().copied().collect();
    let mut found: HashMap<Id, Decision> = HashMap::new();
    for decision in lock().iter().rev() {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        if wanted.contains(&decision.id) {
            found.entry(decision.id).or_insert_with(|| decision.clone());
        }
    }
    found
}

impl Decision {
    /// Creates a decision of a custom policy, to be [recorded](note). Its time is now, without a swap by the
    /// engine. For an example see [`Decision`].
    pub fn new(
        id: Id,
        family: &'static str,
        from: &'static str,
        to: &'static str,
        verdict: Verdict,
        why: String,
    ) -> Decision {
        let (at, name, readings) = (SystemTime::now(), name_of(id), String::new());
        let (place, took, report) = (None, Duration::ZERO, None);
        Decision { at, id, name, family, from, to, place, verdict, why, readings, took, report }
    }

    /// Returns the sensor readings, call counts and cost estimates that the decision rests on, as text. Empty
    /// if it rests on none.
    pub fn readings(&self) -> &str {
        &self.readings
    }

    /// Adds the readings of a decision of a custom policy.
    pub fn with_readings(self, readings: String) -> Decision {
        Decision { readings, ..self }
    }
}

/// Records the decision of a custom policy together with those of the engine: for [`recent`], [`history`] and
/// listeners. For an example see [`Decision`].
pub fn note(decision: Decision) {
    if !squall_sys::fork::forked() {
        remember(decision);
    }
}

/// Records a decision and announces it to listeners.
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
    let Decision { id, family, from, to, verdict, why, readings, took, report, .. } = decision;
    let name = decision.name.as_ref().map(ToString::to_string);
    let pause_us = report.as_ref().map(|report| report.longest_pause.as_micros() as u64);
    let took_us = took.as_micros() as u64;
    tracing::info!(target: "squall::adapt", %id, name, family, from, to, %verdict, why, readings, took_us, pause_us, "{decision}");
}

#[cfg(not(feature = "tracing"))]
fn announce(_: &Decision) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Number of decisions that `latest` has looked at.
        pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn the_latest_decisions_about_all_objects_take_one_pass() {
        // Slots that no other test uses.
        let ids: Vec<Id> = (0..100).map(|slot| Id::from_parts(900_000 + slot, 1).expect("an id")).collect();
        for to in ["first", "second"] {
            for id in &ids[..50] {
                note(Decision::new(*id, "counter", "shared", to, Verdict::DryRun, String::new()));
            }
        }
        LOOKS.set(0);
        let found = latest(&ids);
        assert!((100..=RECENT_MAX).contains(&LOOKS.get()), "{} looks", LOOKS.get());
        assert!(found.len() == 50 && found.values().all(|decision| decision.to == "second"), "{found:?}");
        LOOKS.set(0);
        let statuses = crate::control::statuses_of(&ids);
        assert!(
            statuses.len() == ids.len() && statuses.iter().all(Option::is_none),
            "no object has these ids"
        );
        assert!(LOOKS.get() <= RECENT_MAX, "{} looks", LOOKS.get());
    }
}
