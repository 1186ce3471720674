//! `map-adapt`: a map that changes its form, compared with its fixed forms and with rivals, after a change of
//! load.
//!
//! - A turn makes a map and runs another load for a while. Then it runs the variant's load: first for the
//!   time that a policy may take, then timed. Both times are shorter for maps that never change their form.
//!   Growing and shrinking alternate, and one of them is timed.
//! - `squall-adaptive/best-fixed` is the median over the rounds of the ratio to the form of ours that was
//!   fastest in that round.
//! - `adapt_ms`: from the phase's start to the end of the last swap; zero if the form could stay.
//!
//! - I1. The final content of the map matches the operations (`hand.rs`).
//! - I2. The case tells the policy nothing. The policy's actions are read from its history afterwards.

mod hand;
mod play;

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use crossbeam_utils::CachePadded;
use squall::adapt::control::{self, Verdict};
use squall::objects::map::{REPLICATED, SHARED};

use crate::case::{Case, Make, Missing, Role, Scale, Setting, Spec, Subject, Worker, variant};
use crate::cases::swap::crew::fit;
use crate::env;
use crate::harness::Step as Progress;
use crate::harness::{CLEAN_ROUNDS_MIN, Plan, RoundWatch, RunError, SubjectResult, Table, median};
use crate::ours_map::{Adaptive, OneLock, Partitioned, Replicated, Shared};
use crate::rivals::maps::{Dash, Family, Job, Locked, Mapping, Papaya, SccHashIndex, SccHashMap, with_words};
use hand::{Deck, Hand, Load};
use play::{Step, Stepped, play};

use super::keys::Key;

pub(in crate::cases) static CASE: Case = Case {
    name: "map-adapt",
    about: "one operation on a map after a change of load: adaptive, and in each fixed form",
    variants: &[
        variant("read-mostly", "all threads, 1 % writes; before, 90 % writes"),
        variant("write-heavy", "all threads, 90 % writes; before, 1 % writes"),
        variant("one-thread", "the first thread reads and writes by halves; before, all threads"),
        variant("all-threads", "all threads read and write by halves; before, the first alone"),
        variant("growing", "all threads grow the map from 1,000 entries by 65,536, repeatedly"),
        variant("shrinking", "all threads remove the 65,536 entries again"),
    ],
    subjects: SUBJECTS,
    scale: Scale::Own(run),
    slice_ms: (0, 0),
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2, 8],
};

const SUBJECTS: &[Spec] = &[
    Spec::ours(ADAPTIVE, looping::<Adaptive>()),
    Spec::ours("squall-central", looping::<Shared>()),
    Spec::ours("squall-locked", looping::<OneLock>()),
    Spec::ours("squall-replicated", looping::<Replicated>()),
    Spec::ours("squall-partitioned", looping::<Partitioned>()),
    Spec::rival("dashmap", looping::<Dash>()),
    Spec::rival("papaya", looping::<Papaya>()),
    Spec::rival("scc-hashmap", looping::<SccHashMap>()),
    Spec::rival("scc-hashindex", looping::<SccHashIndex>()),
    #[cfg(feature = "rivals")]
    Spec::rival("flurry", looping::<crate::rivals::maps::Flurry>()),
    #[cfg(not(feature = "rivals"))]
    Spec::rival("flurry", super::flurry_is_missing),
    Spec::rival("std-rwlock", looping::<Locked>()),
];
const ADAPTIVE: &str = "squall-adaptive";

/// Plays a turn with a new map of a subject.
type Turns = fn(&Turning<'_>) -> Result<Turn, String>;

/// The subjects that can run here, in the order of their names.
const TURNS: &[(&str, Turns)] = &[
    (ADAPTIVE, turn::<Adaptive>),
    ("squall-central", turn::<Shared>),
    ("squall-locked", turn::<OneLock>),
    ("squall-replicated", turn::<Replicated>),
    ("squall-partitioned", turn::<Partitioned>),
    ("dashmap", turn::<Dash>),
    ("papaya", turn::<Papaya>),
    ("scc-hashmap", turn::<SccHashMap>),
    ("scc-hashindex", turn::<SccHashIndex>),
    #[cfg(feature = "rivals")]
    ("flurry", turn::<crate::rivals::maps::Flurry>),
    ("std-rwlock", turn::<Locked>),
];

// --- a turn ---

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Time of the first load: longer than a cool-down, so that a policy must follow the change at once.
const BEFORE: Duration = ms(300);
/// Time allowed to the policy: with a processor per thread, and with fewer.
const MAY_TAKE: (Duration, Duration) = (ms(150), ms(300));
/// Both times for maps that never change.
const FIXED: Duration = ms(20);
/// Timed part, in a full and in a quick run; number of timed growths.
const TIMED: (Duration, Duration) = (ms(200), ms(80));
const CYCLES: (usize, usize) = (8, 3);
/// Growths before the timed ones, in the time allowed to the policy.
const CYCLES_BEFORE: usize = 8;

#[derive(Clone, Copy)]
struct Turning<'a> {
    setting: &'a Setting,
    quick: bool,
    adapts: bool,
}

impl Turning<'_> {
    fn steps(&self) -> Vec<Step> {
        let (before, load) = loads(self.setting.variant.name);
        let may_take = if fit(self.setting.threads) { MAY_TAKE.0 } else { MAY_TAKE.1 };
        let (before_for, may_take) = if self.adapts { (BEFORE, may_take) } else { (FIXED, FIXED) };
        let step = |load, of_phase, timed, length| Step { load, of_phase, timed, length };
        let mut steps = vec![step(before, false, false, before_for)];
        if !load.ends() {
            let timed = if self.quick { TIMED.1 } else { TIMED.0 };
            steps.push(step(load, true, false, may_take));
            steps.push(step(load, true, true, timed));
            return steps;
        }
        let untimed = if self.adapts { CYCLES_BEFORE } else { 1 };
        let timed = if self.quick { CYCLES.1 } else { CYCLES.0 };
        for cycle in 0..untimed + timed {
            for half in [Load::Grow, Load::Shrink] {
                steps.push(step(half, true, cycle >= untimed && half == load, Duration::ZERO));
            }
        }
        steps
    }
}

/// The first load, and the variant's.
fn loads(variant: &str) -> (Load, Load) {
    match variant {
        "read-mostly" => (Load::WriteHeavy, Load::ReadMostly),
        "write-heavy" => (Load::ReadMostly, Load::WriteHeavy),
        "one-thread" => (Load::AllThreads, Load::OneThread),
        "all-threads" => (Load::OneThread, Load::AllThreads),
        "growing" => (Load::OneThread, Load::Grow),
        _ => (Load::OneThread, Load::Shrink),
    }
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    ns: f64,
    adapt_ms: f64,
    swaps: usize,
    /// Final form: 0 small, 1 shared, 2 replicated.
    form: usize,
    policy_ms_per_s: f64,
}

fn turn<F: Family>(turning: &Turning<'_>) -> Result<Turn, String> {
    with_words::<F, _>(*turning)
}

impl Job for Turning<'_> {
    type Result = Result<Turn, String>;

    fn run<K: Key, M: Mapping<K>>(self) -> Self::Result {
        let steps = self.steps();
        let deck = Deck::<K>::new(loads(self.setting.variant.name).1.ends());
        let map = M::new();
        let mut hands = deck.deal(&map, self.setting.threads);
        let played = play(&map, &deck, &mut hands, &steps);
        deck.check(&map, hands.iter())?;
        let both = || steps.iter().zip(&played);
        let (calls, ns) = sum(both().filter(|(step, _)| step.timed).map(|(_, stepped)| stepped));
        let mut turn = Turn { ns: ns / calls.max(1) as f64, ..Turn::default() };
        if let Some(id) = map.object().filter(|_| self.adapts) {
            let began = both().find(|(step, _)| step.of_phase).map(|(_, stepped)| stepped.began);
            let policy_ns: u64 = played.iter().map(|stepped| stepped.policy_ns).sum();
            let length: Duration = played.iter().map(|stepped| stepped.length).sum();
            turn.policy_ms_per_s = policy_ns as f64 / 1e6 / length.as_secs_f64();
            tell(&mut turn, id, began.ok_or("the turn has no timed phase")?);
            if std::env::var_os("SQUALL_BENCH_WHY").is_some() {
                both().for_each(|(step, s)| {
                    eprintln!("{:?}: {:.1} ns", step.load, s.ns / s.calls.max(1) as f64)
                });
                control::history(id).iter().for_each(|decision| eprintln!("  {decision}"));
            }
        }
        Ok(turn)
    }
}

fn sum<'a>(stepped: impl Iterator<Item = &'a Stepped>) -> (u64, f64) {
    stepped.fold((0, 0.0), |(calls, ns), stepped| (calls + stepped.calls, ns + stepped.ns))
}

/// Adds the policy's actions since the phase began.
fn tell(turn: &mut Turn, id: squall::Id, began: SystemTime) {
    let decisions = control::history(id);
    let swaps = || decisions.iter().filter(|decision| decision.verdict == Verdict::Swapped);
    let last = swaps().filter_map(|swap| swap.at.duration_since(began).ok()).max();
    turn.adapt_ms = last.map_or(0.0, |last| last.as_secs_f64() * 1e3);
    turn.swaps = swaps().count();
    turn.form = match control::status(id).map(|status| status.form) {
        Some(SHARED) => 1,
        Some(REPLICATED) => 2,
        _ => 0,
    };
}

// --- rounds ---

/// Rounds, in a full and in a quick run.
const ROUNDS: (usize, usize) = (9, 3);
/// Rounds for growing and shrinking maps. Their turns are short, and their entries exceed a processor's own
/// caches. So the state of the shared caches decides the cost of a single turn.
const ROUNDS_WHERE_IT_GROWS: (usize, usize) = (15, 9);

fn run(setting: &Setting, plan: &Plan, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Table, RunError> {
    let Setting { threads, variant, .. } = *setting;
    let rounds = if loads(variant.name).1.ends() { ROUNDS_WHERE_IT_GROWS } else { ROUNDS };
    let rounds = if plan.quick { rounds.1 } else { rounds.0 };
    let is_pinned = fit(threads) && !crate::ours_machine::is_virtual();
    let mut processors = env::processors();
    if is_pinned {
        processors.truncate(threads);
    }
    let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); TURNS.len()];
    let mut disturbed = Vec::new();
    for round in 0..rounds {
        let watch = RoundWatch::begin(&processors);
        for place in 0..TURNS.len() {
            let which = (place + round) % TURNS.len();
            let (name, turn) = TURNS[which];
            let turning = Turning { setting, quick: plan.quick, adapts: name == ADAPTIVE };
            let failed = |why| RunError(format!("case {} {}, {name}: {why}", CASE.name, variant.name));
            turns[which].push(turn(&turning).map_err(failed)?);
        }
        disturbed.push(watch.disturbed());
        progress(Progress { case: CASE.name, variant: variant.name, threads, round: round + 1, rounds });
    }
    let spoiled = disturbed.iter().filter(|&&foreign| foreign).count();
    let kept_disturbed = rounds - spoiled < CLEAN_ROUNDS_MIN;
    let kept: Vec<usize> = (0..rounds).filter(|&round| kept_disturbed || !disturbed[round]).collect();
    let of = |which: usize| kept.iter().map(|&round| turns[which][round]).collect::<Vec<Turn>>();
    let subjects: Vec<SubjectResult> =
        (0..TURNS.len()).map(|which| subject(TURNS[which].0, &of(which))).collect();
    Ok(Table {
        case: &CASE,
        variant,
        threads,
        pinned: is_pinned,
        ratios: vec![(format!("{ADAPTIVE}/best-fixed"), over_best_fixed(&subjects), "")],
        subjects,
        metrics: metrics(&of(0)),
        rounds,
        disturbed: spoiled,
        kept_disturbed,
    })
}

fn subject(name: &'static str, turns: &[Turn]) -> SubjectResult {
    let spec = SUBJECTS.iter().find(|spec| spec.name == name);
    let role = spec.map_or(Role::Rival, |spec| spec.role);
    SubjectResult { name, role, ns: turns.iter().map(|turn| turn.ns).collect(), metrics: Vec::new() }
}

/// The median over the rounds of the ratio to the best of our fixed maps in that round.
fn over_best_fixed(subjects: &[SubjectResult]) -> f64 {
    let fixed = || subjects.iter().filter(|subject| subject.role == Role::Ours && subject.name != ADAPTIVE);
    let adaptive = subjects.iter().find(|subject| subject.name == ADAPTIVE);
    let ratio = |(round, own): (usize, &f64)| {
        own / fixed().map(|subject| subject.ns[round]).fold(f64::INFINITY, f64::min)
    };
    let ratios: Vec<f64> =
        adaptive.into_iter().flat_map(|own| own.ns.iter().enumerate().map(ratio)).collect();
    median(&ratios)
}

fn metrics(turns: &[Turn]) -> Vec<(String, f64)> {
    let all = |of: fn(&Turn) -> f64| turns.iter().map(of).collect::<Vec<f64>>();
    let most = |of: fn(&Turn) -> f64| all(of).into_iter().fold(0.0, f64::max);
    let metric = |name: &str, value| (name.to_owned(), value);
    vec![
        metric("adapt_ms", median(&all(|turn| turn.adapt_ms))),
        metric("adapt_ms_max", most(|turn| turn.adapt_ms)),
        metric("swaps", most(|turn| turn.swaps as f64)),
        metric("form", median(&all(|turn| turn.form as f64))),
        metric("policy_ms_per_s", median(&all(|turn| turn.policy_ms_per_s))),
    ]
}

// --- `loop` ---

/// Makes the subject for an instrument that counts operations.
const fn looping<F: Family>() -> Make {
    |setting| with_words::<F, _>(Looped { setting })
}

struct Looped<'a> {
    setting: &'a Setting,
}

impl Job for Looped<'_> {
    type Result = Result<Box<dyn Subject>, Missing>;

    fn run<K: Key, M: Mapping<K>>(self) -> Self::Result {
        let load = loads(self.setting.variant.name).1;
        let (map, deck) = (M::new(), Deck::<K>::new(load.ends()));
        let hands = deck.deal(&map, self.setting.threads);
        let hands = hands.into_iter().map(|hand| CachePadded::new(Mutex::new(hand))).collect();
        Ok(Box::new(Looping { map, deck, hands, load }))
    }
}

struct Looping<K: Key, M> {
    map: M,
    deck: Deck<K>,
    hands: Vec<CachePadded<Mutex<Hand>>>,
    load: Load,
}

impl<K: Key, M> Looping<K, M> {
    fn hand(&self, thread: usize) -> MutexGuard<'_, Hand> {
        self.hands[thread].lock().expect("a thread panicked under the lock")
    }
}

impl<K: Key, M: Mapping<K>> Subject for Looping<K, M> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let mut way = if self.load.ends() { Load::Grow } else { self.load };
        Box::new(move |ops| {
            let mut hand = self.hand(thread);
            let mut left = if self.load.is_for(thread) { ops } else { 0 };
            while left > 0 {
                left -= match hand.some(way, &self.map, &self.deck, left) {
                    0 => {
                        way = if way == Load::Grow { Load::Shrink } else { Load::Grow };
                        0
                    }
                    calls => calls,
                };
            }
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        let hands: Vec<_> = (0..self.hands.len()).map(|thread| self.hand(thread)).collect();
        self.deck.check(&self.map, hands.iter().map(|hand| &**hand))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject_of(name: &'static str, role: Role, ns: &[f64]) -> SubjectResult {
        SubjectResult { name, role, ns: ns.into(), metrics: Vec::new() }
    }

    #[test]
    fn the_best_fixed_form_is_ours_and_chosen_per_round() {
        let subjects = [
            subject_of(ADAPTIVE, Role::Ours, &[2.0, 2.0, 6.0]),
            subject_of("squall-central", Role::Ours, &[1.0, 4.0, 2.0]),
            subject_of("squall-locked", Role::Ours, &[2.0, 2.0, 4.0]),
            subject_of("dashmap", Role::Rival, &[0.1, 0.1, 0.1]),
        ];
        assert_eq!(over_best_fixed(&subjects), 2.0);
    }

    #[test]
    fn every_available_subject_has_turns() {
        for spec in SUBJECTS {
            let missing = spec.name == "flurry" && cfg!(not(feature = "rivals"));
            assert_eq!(TURNS.iter().any(|(name, _)| *name == spec.name), !missing, "{}", spec.name);
        }
        assert_eq!(TURNS[0].0, ADAPTIVE, "of which the metrics are");
    }

    #[test]
    fn a_turn_of_each_variant_loses_nothing() {
        for variant in CASE.variants {
            for threads in [1, 3] {
                let setting = Setting { threads, variant, counted: false };
                for (name, turn) in &TURNS[..5] {
                    let turned = turn(&Turning { setting: &setting, quick: true, adapts: false });
                    let turned = turned.unwrap_or_else(|why| panic!("{name}, {}: {why}", variant.name));
                    assert!(turned.ns > 0.0, "{name}, {}", variant.name);
                }
            }
        }
    }
}
