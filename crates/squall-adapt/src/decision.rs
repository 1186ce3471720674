//! Decisions of policies, with their reasons.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use squall_core::swap::SwapReport;
use squall_core::{Id, Name, name_of};
use squall_machine::Vp;

use crate::records::decided;

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
    /// Author of a swap by hand, if the author is known.
    pub author: Option<Author>,
    /// Reason of the decision, as a sentence. [`readings`](Decision::readings) has the numbers.
    pub why: String,
    pub(crate) readings: String,
    /// Time from the first sample until the decision was made, or until its swap was over.
    pub took: Duration,
    /// Report of the swap, if there was one.
    pub report: Option<SwapReport>,
}

/// Author of a change by hand.
///
/// The name is for people. It is at most 128 characters long. Control characters in it, and characters that
/// change the direction of writing, are escaped.
///
/// ```
/// use squall::adapt::decision::Author;
///
/// let author = Author::new("ann, with a debugger\n").with_peer(1000, Some(4711));
/// assert_eq!(author.to_string(), "ann, with a debugger\\n");
/// assert_eq!((author.uid, author.pid), (Some(1000), Some(4711)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Author {
    name: Arc<str>,
    /// User of the client that asked for the change, as the kernel reports it.
    pub uid: Option<u32>,
    /// Process of that client, as the kernel reports it.
    pub pid: Option<u32>,
}

impl Author {
    /// Creates an author with this name.
    pub fn new(name: &str) -> Author {
        const CHARS_MAX: usize = 128;
        let mut shown = String::new();
        for letter in name.chars().take(CHARS_MAX) {
            if letter.is_control() || is_format(letter) {
                shown.extend(letter.escape_default());
            } else {
                shown.push(letter);
            }
        }
        Author { name: shown.into(), uid: None, pid: None }
    }

    /// Adds the user and the process that the kernel reports for the author's connection.
    pub fn with_peer(self, uid: u32, pid: Option<u32>) -> Author {
        Author { uid: Some(uid), pid, ..self }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Returns `true` for a character that changes the direction of writing or ends a line.
fn is_format(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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

/// The latest decisions, oldest first.
#[derive(Debug)]
struct Recent {
    list: VecDeque<Arc<Decision>>,
    /// Number of the first decision in the list. Each further one has the next number.
    first: u64,
    /// Number of the latest decision about each object. All of them are in the list.
    latest: BTreeMap<Id, u64>,
}

impl Recent {
    const fn new() -> Recent {
        Recent { list: VecDeque::new(), first: 0, latest: BTreeMap::new() }
    }

    /// Adds a decision. Returns the one that it pushes out.
    fn push(&mut self, decision: Arc<Decision>) -> Option<Arc<Decision>> {
        let forgotten = if self.list.len() >= RECENT_MAX { self.list.pop_front() } else { None };
        if let Some(forgotten) = &forgotten {
            if self.latest.get(&forgotten.id) == Some(&self.first) {
                self.latest.remove(&forgotten.id);
            }
            self.first += 1;
        }
        self.latest.insert(decision.id, self.first + self.list.len() as u64);
        self.list.push_back(decision);
        forgotten
    }

    fn latest(&self, id: Id) -> Option<&Arc<Decision>> {
        self.list.get((self.latest.get(&id)? - self.first) as usize)
    }
}

static RECENT: Mutex<Recent> = Mutex::new(Recent::new());

fn lock() -> MutexGuard<'static, Recent> {
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
    if squall_sys::fork::forked() {
        return Vec::new();
    }
    let recent: Vec<Arc<Decision>> = lock().list.iter().cloned().collect();
    recent.into_iter().map(Arc::unwrap_or_clone).collect()
}

/// Returns the latest decisions about one object, the newest last. A swap is recorded when it is complete, so
/// the new form may be visible a little earlier. For an example see [`Decision`].
pub fn history(id: Id) -> Vec<Decision> {
    if squall_sys::fork::forked() {
        return Vec::new();
    }
    let about: Vec<Arc<Decision>> =
        lock().list.iter().filter(|decision| decision.id == id).cloned().collect();
    about.into_iter().map(Arc::unwrap_or_clone).collect()
}

/// Returns the latest decision about one object, without a search.
pub(crate) fn latest(id: Id) -> Option<Arc<Decision>> {
    if squall_sys::fork::forked() { None } else { lock().latest(id).cloned() }
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
        let (place, author, took, report) = (None, None, Duration::ZERO, None);
        Decision { at, id, name, family, from, to, place, verdict, author, why, readings, took, report }
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
    let decision = Arc::new(decision);
    let forgotten = lock().push(Arc::clone(&decision));
    // Dropped outside the lock.
    drop(forgotten);
    decided(decision.id, &decision.verdict, decision.took);
}

#[cfg(feature = "tracing")]
fn announce(decision: &Decision) {
    let Decision { id, family, from, to, verdict, author, why, readings, took, report, .. } = decision;
    let author = author.as_ref().map(Author::name);
    let name = decision.name.as_ref().map(ToString::to_string);
    let pause_us = report.as_ref().map(|report| report.longest_pause.as_micros() as u64);
    let took_us = took.as_micros() as u64;
    tracing::info!(target: "squall::adapt", %id, name, family, from, to, %verdict, author, why, readings, took_us, pause_us, "{decision}");
}

#[cfg(not(feature = "tracing"))]
fn announce(_: &Decision) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_decision_about_an_object_is_found_until_it_is_pushed_out() {
        let id = |slot| Id::from_parts(slot, 1).expect("an id");
        let decision = |slot, to| {
            Arc::new(Decision::new(id(slot), "counter", "shared", to, Verdict::DryRun, String::new()))
        };
        let mut recent = Recent::new();
        recent.push(decision(1, "first"));
        recent.push(decision(2, "second"));
        recent.push(decision(1, "third"));
        let found = |recent: &Recent, slot| recent.latest(id(slot)).map(|decision| decision.to);
        assert_eq!((found(&recent, 1), found(&recent, 2)), (Some("third"), Some("second")));
        for slot in 3..RECENT_MAX as u32 {
            assert!(recent.push(decision(slot, "more")).is_none());
        }
        let oldest = recent.push(decision(5000, "more")).expect("the list is full");
        assert_eq!((oldest.to, found(&recent, 1)), ("first", Some("third")), "a later decision is kept");
        recent.push(decision(5001, "more"));
        recent.push(decision(5002, "more"));
        assert_eq!((found(&recent, 1), found(&recent, 2), found(&recent, 3)), (None, None, Some("more")));
        assert_eq!((recent.list.len(), recent.latest.len()), (RECENT_MAX, RECENT_MAX));
    }

    #[test]
    fn an_author_cannot_control_a_terminal() {
        let author = Author::new("O'Brien \u{1b}[2J\u{202e}");
        assert_eq!(author.to_string(), "O'Brien \\u{1b}[2J\\u{202e}");
        assert_eq!(Author::new(&"ä".repeat(500)).name().chars().count(), 128);
    }
}
