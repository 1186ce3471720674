//! Rounds of turns, and their figures.
//!
//! - I1. In each round every lock has one turn, in an order rotated from round to round. Ratios are taken
//!   only between turns of one round.
//! - I2. The locks live through all rounds, so that an adaptive lock need not adapt again in each.

use super::play::Stepped;
use super::subjects::{Contender, ENTRIES, Entry};
use super::waits::Waits;
use crate::case::Role;
use crate::cases::swap::crew::fit;
use crate::env;
use crate::harness::{CLEAN_ROUNDS_MIN, RoundWatch, SubjectResult, Table, median, paired_ratio};
use crate::ours_machine::is_virtual;

/// A rival is as fair as ours if its share is at least ours less this.
const FAIR_WITHIN: f64 = 0.1;
/// The subject of ours that must not lose to a rival of equal fairness.
const ADAPTIVE: &str = "squall-adaptive";

/// Result of a phase in one turn.
pub(super) struct Phase {
    /// Nanoseconds per acquisition, by any thread.
    pub(super) ns: f64,
    /// Acquisitions of the least served thread divided by those of the most served.
    pub(super) min_share: f64,
    /// The acquisitions of each thread.
    served: Vec<u64>,
    pub(super) waits: Waits,
}

impl Phase {
    /// Combines passes of one phase.
    pub(super) fn of(passes: &[Stepped]) -> Phase {
        let wall_ns: f64 = passes.iter().map(|step| step.wall_ns).sum();
        let all: u64 = passes.iter().flat_map(|step| &step.served).sum();
        let mut waits = Waits::new();
        passes.iter().for_each(|step| waits.merge(&step.waits));
        let shares: Vec<f64> = passes.iter().map(|step| min_share(&step.served)).collect();
        let served = sums(passes.iter().map(|step| &step.served[..]));
        Phase { ns: wall_ns / all.max(1) as f64, min_share: median(&shares), served, waits }
    }
}

/// Sums per thread.
fn sums<'a>(served: impl Iterator<Item = &'a [u64]>) -> Vec<u64> {
    let mut sums = Vec::new();
    for served in served {
        sums.resize(served.len().max(sums.len()), 0);
        sums.iter_mut().zip(served).for_each(|(sum, served)| *sum += served);
    }
    sums
}

fn min_share(served: &[u64]) -> f64 {
    let most = served.iter().max().copied().unwrap_or(0).max(1);
    served.iter().min().copied().unwrap_or(0) as f64 / most as f64
}

/// Result of a turn: its phases.
pub(super) struct Turn {
    pub(super) phases: Vec<Phase>,
}

/// Load of each lock.
pub(super) trait Script {
    /// Runs before the first round, unmeasured.
    fn first(&self, lock: &dyn Contender) -> Result<(), String>;

    fn turn(&self, lock: &dyn Contender) -> Result<Turn, String>;
}

/// The rounds so far, and which of them other load disturbed.
pub(super) struct Rounds {
    threads: usize,
    locks: Vec<(&'static Entry, Box<dyn Contender>)>,
    /// By lock, then by round.
    turns: Vec<Vec<Turn>>,
    disturbed: Vec<bool>,
}

fn is_pinned(threads: usize) -> bool {
    fit(threads) && !is_virtual()
}

impl Rounds {
    pub(super) fn begin(threads: usize, script: &dyn Script) -> Result<Rounds, String> {
        let locks: Vec<_> = ENTRIES.iter().map(|entry| (entry, (entry.make)(threads))).collect();
        for (entry, lock) in &locks {
            script.first(&**lock).map_err(|why| format!("{}: {why}", entry.name))?;
        }
        let turns = locks.iter().map(|_| Vec::new()).collect();
        Ok(Rounds { threads, locks, turns, disturbed: Vec::new() })
    }

    pub(super) fn round(&mut self, script: &dyn Script) -> Result<(), String> {
        let mut processors = env::processors();
        if is_pinned(self.threads) {
            processors.truncate(self.threads);
        }
        let watch = RoundWatch::begin(&processors);
        let (round, count) = (self.disturbed.len(), self.locks.len());
        for place in 0..count {
            let at = (place + round) % count;
            let (entry, lock) = &self.locks[at];
            let turn = script.turn(&**lock).map_err(|why| format!("{}: {why}", entry.name))?;
            self.turns[at].push(turn);
        }
        self.disturbed.push(watch.disturbed());
        Ok(())
    }

    /// Fills the table. Several phases are named.
    pub(super) fn fill_table(self, phases: &[&str], table: &mut Table) {
        let disturbed = self.disturbed.iter().filter(|&&foreign| foreign).count();
        table.pinned = is_pinned(self.threads);
        table.rounds = self.disturbed.len();
        table.disturbed = disturbed;
        table.kept_disturbed = table.rounds - disturbed < CLEAN_ROUNDS_MIN;
        let keep = |round: &usize| table.kept_disturbed || !self.disturbed[*round];
        let kept: Vec<usize> = (0..table.rounds).filter(keep).collect();
        let seen: Vec<Seen<'_>> = self
            .locks
            .iter()
            .zip(&self.turns)
            .map(|((entry, _), turns)| Seen {
                entry,
                turns: kept.iter().map(|round| &turns[*round]).collect(),
            })
            .collect();
        let fought = self.threads > 1;
        table.subjects = seen.iter().map(|seen| seen.subject(phases, fought)).collect();
        if fought {
            against_best_fair(&seen, phases, table);
        }
    }
}

/// The turns of one lock that count.
struct Seen<'a> {
    entry: &'a Entry,
    turns: Vec<&'a Turn>,
}

impl Seen<'_> {
    fn phases(&self) -> usize {
        self.turns.first().map_or(0, |turn| turn.phases.len())
    }

    fn ns(&self, phase: usize) -> Vec<f64> {
        self.turns.iter().map(|turn| turn.phases[phase].ns).collect()
    }

    /// Over all turns together, so that a lucky round does not decide.
    fn min_share(&self, phase: usize) -> f64 {
        min_share(&sums(self.turns.iter().map(|turn| &turn.phases[phase].served[..])))
    }

    /// Per turn, the geometric mean over the phases, so that each phase has equal weight.
    fn mean_ns(&self) -> Vec<f64> {
        let mean = |turn: &&Turn| {
            let sum: f64 = turn.phases.iter().map(|phase| phase.ns.ln()).sum();
            (sum / turn.phases.len().max(1) as f64).exp()
        };
        self.turns.iter().map(mean).collect()
    }

    fn subject(&self, phases: &[&str], fought: bool) -> SubjectResult {
        let mut metrics = Vec::new();
        if fought {
            let least = |turn: &&Turn| turn.phases.iter().map(|phase| phase.min_share).fold(1.0, f64::min);
            metrics.push(("min_share".to_owned(), self.turns.iter().map(least).collect()));
            let p99 = |turn: &&Turn| {
                let mut all = Waits::new();
                turn.phases.iter().for_each(|phase| all.merge(&phase.waits));
                all.quantile_ns(0.99).unwrap_or(0.0) / 1e3
            };
            metrics.push(("wait_p99_us".to_owned(), self.turns.iter().map(p99).collect()));
        }
        if phases.len() > 1 {
            let of_phase = |(phase, name): (usize, &&str)| (format!("ns_{name}"), self.ns(phase));
            metrics.extend(phases.iter().enumerate().map(of_phase));
        }
        SubjectResult { name: self.entry.name, role: self.entry.role, ns: self.mean_ns(), metrics }
    }
}

/// Divides ours by the fastest rival of equal fairness, in each phase. Of several phases the worst counts,
/// with its rival.
fn against_best_fair(seen: &[Seen<'_>], phases: &[&str], table: &mut Table) {
    for ours in seen.iter().filter(|seen| seen.entry.role == Role::Ours) {
        let ratios: Vec<(f64, &'static str)> =
            (0..ours.phases()).map(|phase| over_best_fair(ours, seen, phase)).collect();
        let (worst, rival) = *ratios.iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("a turn has no phase");
        table.ratios.push((format!("{}/best-fair", ours.entry.name), worst, rival));
        if ours.entry.name != ADAPTIVE {
            continue;
        }
        table.metrics.push(("adaptive_over_best_fair".to_owned(), worst));
        if phases.len() > 1 {
            let of_phase = |(name, ratio): (&&str, &(f64, &str))| (format!("ratio_{name}"), ratio.0);
            table.metrics.extend(phases.iter().zip(&ratios).map(of_phase));
        }
    }
}

/// Divides ours by the fairest rival if all are less fair. Returns the rival's name too.
fn over_best_fair(ours: &Seen<'_>, all: &[Seen<'_>], phase: usize) -> (f64, &'static str) {
    let rivals = || all.iter().filter(|seen| seen.entry.role == Role::Rival);
    let fairest = rivals().map(|seen| seen.min_share(phase)).fold(0.0, f64::max);
    let fair = fairest.min(ours.min_share(phase) - FAIR_WITHIN);
    let best = rivals()
        .filter(|seen| seen.min_share(phase) >= fair)
        .min_by(|a, b| median(&a.ns(phase)).total_cmp(&median(&b.ns(phase))))
        .expect("no rival is about as fair");
    (paired_ratio(&ours.ns(phase), &best.ns(phase)), best.entry.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of a lock that took `ns` nanoseconds and served its threads so, in each of two rounds.
    fn turns(ns: f64, served: [[u64; 2]; 2]) -> Vec<Turn> {
        let turn = |served: [u64; 2]| {
            let (min_share, served) = (min_share(&served), served.to_vec());
            Turn { phases: vec![Phase { ns, min_share, served, waits: Waits::new() }] }
        };
        served.map(turn).into()
    }

    #[test]
    fn the_best_fair_rival_is_always_named() {
        let entry = |role: Role| ENTRIES.iter().filter(move |entry| entry.role == role);
        let (ours, mut rivals) = (entry(Role::Ours).next().expect("there are"), entry(Role::Rival));
        let (fast, slow) = (rivals.next().expect("there are"), rivals.next().expect("and another"));
        let against = |fast_serves, slow_serves, ours_serves| {
            let turns = [
                (ours, turns(30.0, ours_serves)),
                (fast, turns(10.0, fast_serves)),
                (slow, turns(20.0, slow_serves)),
            ];
            let seen: Vec<Seen<'_>> =
                turns.iter().map(|(entry, turns)| Seen { entry, turns: turns.iter().collect() }).collect();
            over_best_fair(&seen[0], &seen, 0)
        };
        let (even, uneven, worse) = ([[5, 5], [5, 5]], [[6, 4], [6, 4]], [[9, 1], [9, 1]]);
        assert_eq!(against(even, even, even), (3.0, fast.name));
        assert_eq!(against(worse, even, even), (1.5, slow.name));
        assert_eq!(against([[9, 1], [1, 9]], even, even), (3.0, fast.name), "of all rounds together");
        assert_eq!(against(worse, uneven, even), (1.5, slow.name), "the fairest where none is as fair");
    }
}
