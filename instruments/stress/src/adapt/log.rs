//! The program's log of decisions, collected and checked during the run.
//!
//! - I1. Every decision has a reason. A decision that swapped also has the readings, and the report of a swap
//!   between the two forms that it names.
//! - I2. Every swap of an adaptive counter to a form of its family is in the log of decisions. Every decision
//!   that swapped is in the log of swaps.
//! - I3. Two swaps of one object to other forms by its policy are a cool-down apart, from the end of one to
//!   the beginning of the next. A swap to the same form is a move to another VP. Two moves are ten cool-downs
//!   apart.
//! - I4. In no time span did the policy make more swaps than the budget allows in it.
//!
//! Times are those in the reports. They are only compared with minimum distances, which a slow machine
//! lengthens. Both logs are rings. If more entries than a ring holds arrived between two collections, I2 is
//! not checked any more (`gaps`). If the system's clock was set meanwhile, I3 and I4 are not checked across
//! that moment (`Clock`).

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use squall::Id;
use squall::adapt::control::{self, Decision, Verdict};
use squall::swap::{SwapOutcome, SwapReport};

use super::breaks::Break;
use super::world::{PLAIN, World};

/// Sizes of the rings, as documented.
const DECISIONS_MAX: usize = 1024;
const SWAPS_MAX: usize = 256;
/// Maximum number of earlier swaps to compare with.
const LOOK_BACK: usize = 256;
/// Minimum distance of two moves, in cool-downs.
const MOVES_APART: u32 = 10;
/// Maximum error factor of a slewed clock.
const SLEW: f64 = 1.01;
/// Maximum error of a clock that was not set.
const SET: Duration = Duration::from_millis(5);

/// Identifies a swap: its object and its beginning.
type Key = (Id, SystemTime);

fn key(report: &SwapReport) -> Key {
    (report.id, report.began)
}

/// One of the two logs.
struct Ring<K> {
    last: Option<K>,
    max: usize,
    gaps: u64,
}

impl<K: PartialEq> Ring<K> {
    /// Returns the number of keys that were seen before. The latest key is last.
    fn known(&mut self, keys: &[K]) -> usize {
        let Some(last) = &self.last else { return 0 };
        match keys.iter().rposition(|key| key == last) {
            Some(at) => at + 1,
            None => {
                self.gaps += 1;
                0
            }
        }
    }
}

/// Detects changes of the system's clock.
struct Clock {
    system: SystemTime,
    steady: Instant,
}

impl Clock {
    fn now() -> Clock {
        Clock { system: SystemTime::now(), steady: Instant::now() }
    }

    /// Returns whether the clock was set since the last call.
    fn was_set(&mut self) -> bool {
        let (before, steady) = (self.steady, Instant::now());
        let now = Clock::now();
        let (least, most) = (steady - before, now.steady - before);
        let went = now.system.duration_since(self.system);
        *self = now;
        // An error means that the clock went backwards.
        went.is_err() || went.is_ok_and(|went| went + SET < least || went > most + SET)
    }
}

/// A swap by a policy.
struct Swapped {
    id: Id,
    began: SystemTime,
}

pub(super) struct DecisionLog {
    decisions: Ring<(Id, SystemTime, Duration)>,
    swaps: Ring<(Key, Duration)>,
    clock: Clock,
    /// Swaps that were seen in one log and not yet in the other.
    unexplained: HashSet<Key>,
    unmade: HashSet<Key>,
    last: HashMap<(Id, bool), SystemTime>,
    by_policy: VecDeque<Swapped>,
    /// Whether I4 is checked.
    pub(super) judges_budget: bool,
    pub(super) by_policy_count: u64,
    by_hand_count: u64,
    others: HashMap<&'static str, u64>,
    pub(super) longest_pause: Duration,
    pub(super) of_wave: u64,
    left_out: bool,
}

/// Returns the form's name for a class, or `None` for a class outside the forms.
fn form_of(class: &str) -> Option<&'static str> {
    match class {
        _ if class.contains("Shared<false>") => Some(PLAIN),
        _ if class.contains("<false>") => None,
        _ if class.contains("Shared<") => Some("shared"),
        _ if class.contains("Distributed<") => Some("distributed"),
        _ => None,
    }
}

fn decision_key(decision: &Decision) -> (Id, SystemTime, Duration) {
    (decision.id, decision.at, decision.took)
}

fn swap_key(report: &SwapReport) -> (Key, Duration) {
    (key(report), report.total())
}

impl DecisionLog {
    /// Starts the collection; earlier entries are not checked.
    pub(super) fn begin() -> DecisionLog {
        DecisionLog {
            decisions: Ring { last: control::recent().last().map(decision_key), max: DECISIONS_MAX, gaps: 0 },
            swaps: Ring { last: squall::swap::recent().last().map(swap_key), max: SWAPS_MAX, gaps: 0 },
            clock: Clock::now(),
            unexplained: HashSet::new(),
            unmade: HashSet::new(),
            last: HashMap::new(),
            by_policy: VecDeque::new(),
            judges_budget: true,
            by_policy_count: 0,
            by_hand_count: 0,
            others: HashMap::new(),
            longest_pause: Duration::ZERO,
            of_wave: 0,
            left_out: false,
        }
    }

    /// Collects the new entries of both logs and checks them.
    ///
    /// # Errors
    /// Describes the first violation.
    pub(super) fn collect(&mut self, world: &World, wave: Option<Id>) -> Result<(), String> {
        let decisions = control::recent();
        let keys: Vec<_> = decisions.iter().map(decision_key).collect();
        let known = self.decisions.known(&keys);
        check_ring("decisions", &self.decisions, keys.len())?;
        self.decisions.last = keys.last().copied().or(self.decisions.last);
        if self.clock.was_set() {
            self.last.clear();
            self.by_policy.clear();
        }
        for decision in &decisions[known..] {
            self.judge(decision, world, wave)?;
        }
        let swaps = squall::swap::recent();
        let keys: Vec<_> = swaps.iter().map(swap_key).collect();
        let known = self.swaps.known(&keys);
        check_ring("swaps", &self.swaps, keys.len())?;
        self.swaps.last = keys.last().copied().or(self.swaps.last);
        for report in &swaps[known..] {
            self.note(report, world);
        }
        Ok(())
    }

    fn judge(&mut self, decision: &Decision, world: &World, wave: Option<Id>) -> Result<(), String> {
        let Some(tracked) = world.tracked(decision.id) else { return Ok(()) };
        let wrong = |what: &str| Err(format!("{what}: {decision}"));
        if decision.why.trim().is_empty() || world.is_broken(Break::Unexplained) {
            return wrong("a decision without a reason");
        }
        let by_policy = match &decision.verdict {
            Verdict::Swapped => true,
            Verdict::ByHand => false,
            Verdict::Failed(why) if why.trim().is_empty() => return wrong("a failure without a reason"),
            Verdict::Failed(_) => return self.other("decisions that failed"),
            Verdict::DryRun => return self.other("decisions of dry runs"),
            Verdict::Held(held) => return self.other(held_name(*held)),
            _ => return wrong("an unknown verdict"),
        };
        let Some(report) = &decision.report else { return wrong("a swap without a report") };
        if report.outcome != SwapOutcome::Swapped || report.id != decision.id {
            return wrong("the report is not of a completed swap of the object");
        }
        let (from, to) = (form_of(report.from), form_of(report.to));
        if to != Some(decision.to)
            || from
                .is_some_and(|from| from != decision.from && (from != PLAIN || report.from != decision.from))
        {
            let (from, to) = (report.from, report.to);
            return wrong(&format!("the swap was from {from} to {to}, but the decision names other forms"));
        }
        if by_policy && from.is_none() {
            return wrong("a policy swapped an object outside its family");
        }
        self.longest_pause = self.longest_pause.max(report.longest_pause);
        if world.is_broken(Break::Unlogged) && !self.left_out {
            self.left_out = true;
        } else if !self.unexplained.remove(&key(report)) {
            self.unmade.insert(key(report));
        }
        if !by_policy {
            self.by_hand_count += 1;
            if from.is_none() {
                // The object was outside its family for a while, and the engine forgot its history.
                self.last.retain(|(id, _), _| *id != decision.id);
            }
            return Ok(());
        }
        self.by_policy_count += 1;
        if !decision.why.contains(|c: char| c.is_ascii_digit()) {
            return wrong("the reason for a policy's swap contains no reading");
        }
        if wave == Some(decision.id) && from != to {
            self.of_wave += 1;
        }
        let cooldown = Duration::from_micros(tracked.cooldown_us.load(std::sync::atomic::Ordering::Relaxed));
        self.judge_distance(decision, report, from == to, cooldown)?;
        self.judge_budget(decision, report, world)
    }

    fn other(&mut self, what: &'static str) -> Result<(), String> {
        *self.others.entry(what).or_default() += 1;
        Ok(())
    }

    /// Checks I3.
    fn judge_distance(
        &mut self,
        decision: &Decision,
        report: &SwapReport,
        moves: bool,
        cooldown: Duration,
    ) -> Result<(), String> {
        let (what, least) = if moves { ("moves", cooldown * MOVES_APART) } else { ("swaps", cooldown) };
        let last = self.last.insert((decision.id, moves), report.began + report.total());
        let Some(last) = last else { return Ok(()) };
        let since = report.began.duration_since(last).unwrap_or(Duration::ZERO);
        if since.mul_f64(SLEW) + Duration::from_micros(1) < least {
            return Err(format!(
                "two {what} by a policy are {since:?} apart, but the cool-down is {cooldown:?}: {decision}"
            ));
        }
        Ok(())
    }

    /// Checks I4. The swaps between the beginnings of two swaps were allowed in that span, and so was the
    /// later one. The span does not begin at the end of a swap, because the policy allows all swaps of a
    /// round before it makes the first.
    fn judge_budget(
        &mut self,
        decision: &Decision,
        report: &SwapReport,
        world: &World,
    ) -> Result<(), String> {
        let per_s = world.swaps_per_s;
        let this = Swapped { id: decision.id, began: report.began };
        if self.judges_budget {
            for (back, before) in self.by_policy.iter().rev().enumerate() {
                let span = this.began.duration_since(before.began).unwrap_or(Duration::ZERO).as_secs_f64();
                // The bucket holds one second's worth. Budget returned by failed swaps is not included.
                let allowed = per_s.max(1.0) + span * SLEW * per_s + 1.0;
                let made = back as f64 + 1.0;
                if made > allowed {
                    return Err(format!(
                        "{made} swaps in {span:.3} s since the swap of {}, but {per_s} per second are allowed: {decision}",
                        before.id
                    ));
                }
            }
        }
        self.by_policy.push_back(this);
        if self.by_policy.len() > LOOK_BACK {
            self.by_policy.pop_front();
        }
        Ok(())
    }

    /// Records a swap from the log of swaps.
    fn note(&mut self, report: &SwapReport, world: &World) {
        let is_ours = world.tracked(report.id).is_some() && form_of(report.to).is_some();
        if is_ours && report.outcome == SwapOutcome::Swapped && !self.unmade.remove(&key(report)) {
            self.unexplained.insert(key(report));
        }
    }

    /// Checks I2, after all activity has ended and both logs are collected.
    pub(super) fn compare(&self) -> Result<(), String> {
        // A gap excuses no swap that the planned break left out.
        if self.gaps() > 0 && !self.left_out {
            return Ok(());
        }
        let named = |set: &HashSet<Key>| {
            let some: Vec<String> = set.iter().take(4).map(|(id, _)| id.to_string()).collect();
            format!("{} of {}", set.len(), some.join(", "))
        };
        match (self.unexplained.is_empty(), self.unmade.is_empty()) {
            (false, _) => Err(format!(
                "swaps of adaptive counters are not in the log of decisions: {}",
                named(&self.unexplained)
            )),
            (_, false) => {
                Err(format!("decisions that swapped are not in the log of swaps: {}", named(&self.unmade)))
            }
            _ => Ok(()),
        }
    }

    fn gaps(&self) -> u64 {
        self.decisions.gaps + self.swaps.gaps
    }

    pub(super) fn lines(&self) -> Vec<(&'static str, u64)> {
        let mut lines = vec![
            ("swaps by policy", self.by_policy_count),
            ("swaps by hand logged", self.by_hand_count),
            ("swaps of the wave", self.of_wave),
            ("longest pause, us", self.longest_pause.as_micros() as u64),
            ("gaps in the logs", self.gaps()),
        ];
        let mut others: Vec<_> = self.others.iter().map(|(name, count)| (*name, *count)).collect();
        others.sort_unstable();
        lines.extend(others);
        lines
    }
}

fn held_name(held: control::Held) -> &'static str {
    match held {
        control::Held::Frozen => "held: frozen",
        control::Held::CoolingDown => "held: cooling down",
        control::Held::Unsteady => "held: unsteady",
        control::Held::Budget => "held: budget",
        control::Held::Memory => "held: memory",
        _ => "held: other reason",
    }
}

/// Checks that the ring holds all known entries unless it is full.
fn check_ring<K>(what: &str, ring: &Ring<K>, len: usize) -> Result<(), String> {
    match ring.gaps > 0 && len < ring.max {
        true => Err(format!("the log of {what} lost entries although it holds only {len}")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_in_a_ring_is_behind_what_was_last_seen() {
        let mut ring = Ring { last: None, max: 4, gaps: 0 };
        assert_eq!(ring.known(&[1, 2]), 0);
        ring.last = Some(2);
        assert_eq!(ring.known(&[1, 2, 3]), 2);
        assert_eq!((ring.known(&[2]), ring.gaps), (1, 0));
        assert_eq!((ring.known(&[5, 6, 7, 8]), ring.gaps), (0, 1));
        assert!(check_ring("things", &ring, 4).is_ok());
        assert!(check_ring("things", &ring, 3).is_err());
    }

    #[test]
    fn a_clock_that_was_set_is_noticed() {
        let mut clock = Clock::now();
        assert!(!clock.was_set());
        clock.system += Duration::from_secs(1);
        assert!(clock.was_set(), "it went back by a second");
        clock.system -= Duration::from_secs(1);
        assert!(clock.was_set(), "it went forward by a second");
    }

    #[test]
    fn classes_are_of_forms() {
        assert_eq!(form_of("squall_objects::counter::shared::Shared<true>"), Some("shared"));
        assert_eq!(form_of("squall_objects::counter::distributed::Distributed<true>"), Some("distributed"));
        assert_eq!(form_of("squall_objects::counter::shared::Shared<false>"), Some(PLAIN));
        assert_eq!(form_of("squall_objects::counter::distributed::Distributed<false>"), None);
    }
}
