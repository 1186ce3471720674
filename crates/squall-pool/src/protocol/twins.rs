//! Twins of the protocol without one safeguard each: the simulator must find the violation.

use super::guard::Guard;
use super::sim;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Safeguards, and for each a seed that fails without it. After a change of the protocol or of the simulator,
/// the ignored test `survey_of_twins` finds other ones.
const TWINS: &[(Guard, u64)] = &[
    (Guard::OnceInOrder, 0),
    (Guard::MembersOnly, 534),
    (Guard::ViewFirst, 48),
    (Guard::Welcome, 1),
    (Guard::CommitFirst, 0),
    (Guard::TakeBack, 2),
    (Guard::KeepAccepted, 7),
    (Guard::CountGiven, 8),
    (Guard::CountOffered, 8),
    (Guard::CountHeld, 67),
    (Guard::SecondWave, 0),
    (Guard::AllAnswer, 7),
    (Guard::EqualArrivals, 275),
    (Guard::BeganBefore, 21),
    (Guard::Drained, 2),
    (Guard::MarkFirst, 48),
    (Guard::HoldWhileFinding, 538),
    (Guard::SureToUnmark, 48),
    (Guard::AllMarked, 13),
    (Guard::SilentLeaver, 20),
    (Guard::CopyFirst, sim::COPIES),
    (Guard::LeaveByEpoch, sim::COPIES + 204),
];

/// Safeguards without such a seed yet. Tests in `host.rs` miss them.
const UNSEEN: &[Guard] = &[Guard::HeirLast, Guard::InheritedGive];

/// Returns the message of a panic.
pub(super) fn text(panic: &Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Runs a schedule, perhaps without a safeguard. Returns the message of the violation that the simulator
/// finds.
fn violation(removed: Option<Guard>, seed: u64) -> Option<String> {
    let run = || Guard::without(removed, || sim::run(seed));
    catch_unwind(AssertUnwindSafe(run)).err().map(|panic| text(&panic))
}

/// Prints, for each safeguard, the first seed that fails without it. `SQUALL_TWIN` names one safeguard.
#[test]
#[ignore = "a search, run by hand"]
fn survey_of_twins() {
    let count = std::env::var("SQUALL_SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(1500);
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var("SQUALL_TWIN").unwrap_or_default();
    let twins = TWINS.iter().map(|(guard, _)| guard).chain(UNSEEN);
    for guard in twins.filter(|guard| format!("{guard:?}").contains(&only)) {
        let seeds = (0..count).chain(sim::COPIES..sim::COPIES + count);
        let found = seeds.into_iter().find_map(|seed| Some((seed, violation(Some(*guard), seed)?)));
        match found {
            Some((seed, text)) => {
                println!("    (Guard::{guard:?}, {seed}), // {}", text.chars().take(100).collect::<String>());
            }
            None => println!("    Guard::{guard:?}, // unseen"),
        }
    }
}

/// Each safeguard is needed, and the simulator sees that it is missing.
#[test]
fn each_safeguard_is_missed() {
    for (guard, seed) in TWINS {
        assert_eq!(violation(None, *seed), None, "seed {seed} fails with all safeguards");
        assert!(
            violation(Some(*guard), *seed).is_some(),
            "seed {seed} holds without {guard:?}: run survey_of_twins"
        );
    }
}
