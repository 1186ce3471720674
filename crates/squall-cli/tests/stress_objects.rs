//! `squall stress objects` as scripts run it: it passes in every mode, and it fails in every way in which it can be broken.

use std::collections::HashMap;
use std::process::{Command, Output};

/// The environment that changes what is tested.
const VARIABLES: [&str; 6] = [
    "SQUALL_RSEQ",
    "SQUALL_MEMBARRIER",
    "SQUALL_TOPOLOGY",
    "SQUALL_RECLAIMER",
    "SQUALL_STALL_MS",
    "SQUALL_STRESS_BREAK",
];

fn stress(seconds: &str, more: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
    command.args(["stress", "objects", "--seconds", seconds, "--seed", "11"]);
    command.args(if more.contains(&"--threads") { &[][..] } else { &["--threads", "70"] });
    command.args(more);
    VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.envs(variables.iter().copied()).output().expect("the binary was built with this test")
}

/// The lines `name count` of what it printed.
fn counts(text: &str) -> HashMap<&str, u64> {
    let pairs = text.lines().filter_map(|line| line.trim().rsplit_once(' '));
    pairs.filter_map(|(name, count)| Some((name.trim(), count.parse().ok()?))).collect()
}

#[track_caller]
fn passes(more: &[&str], variables: &[(&str, &str)]) -> u64 {
    let output = stress("2", more, variables);
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complaint}");
    assert!(said.ends_with("  no violation\n"), "{said}");
    let counts = counts(&said);
    // It did what it is for: a run that does nothing passes as well.
    let done = [
        "calls answered",
        "of these blocking",
        "of these upcast",
        "stale calls that erred",
        "of these by a panic",
        "calls refused by roots",
        "additions counted",
        "exact comparisons",
        "calls of a known place",
        "objects created",
        "objects destroyed",
        "of these inside methods",
        "destructions awaited",
        "misses met by roots",
        "tables discarded",
        "panics caught",
        "snapshots taken",
        "drops that did something",
        "drops that panicked",
        "calls by dying threads",
        "threads started",
    ];
    for name in done {
        assert!(counts.get(name).is_some_and(|&count| count > 0), "{name}: none in\n{said}");
    }
    counts["virtual processors"]
}

/// A run that is broken so is caught, by a violation of which `clue` is a part.
#[track_caller]
fn fails(how: &str, seconds: &str, clue: &str) {
    let output = stress(seconds, &[], &[("SQUALL_STRESS_BREAK", how)]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{how} was not caught: {}", String::from_utf8_lossy(&output.stdout));
    assert!(complaint.contains("VIOLATION in stress objects: ") && complaint.contains(clue), "{complaint}");
    let replay = format!(
        "replay: SQUALL_STRESS_BREAK={how} squall stress objects --seconds {seconds} --seed 11 --threads 70"
    );
    assert!(complaint.contains(&replay), "{complaint}");
}

#[test]
fn it_passes_on_64_virtual_processors() {
    assert_eq!(passes(&[], &[]), 64);
}

#[test]
fn it_passes_on_the_real_machine() {
    passes(&["--real"], &[]);
}

/// With a processor for almost each of them, threads meet in the middle of calls; with many they wait for their turn.
#[test]
fn it_passes_with_few_threads() {
    passes(&["--threads", "3"], &[]);
    passes(&["--threads", "4", "--real"], &[]);
}

#[test]
fn it_passes_without_membarrier() {
    passes(&[], &[("SQUALL_MEMBARRIER", "off")]);
}

#[test]
fn it_passes_without_restartable_sequences() {
    passes(&["--real"], &[("SQUALL_RSEQ", "off")]);
}

#[test]
fn it_passes_in_a_topology_that_was_asked_for() {
    assert_eq!(passes(&[], &[("SQUALL_TOPOLOGY", "caches:2,cores:2,threads:2")]), 8);
}

#[test]
fn it_passes_without_the_reclaimer() {
    passes(&[], &[("SQUALL_RECLAIMER", "off")]);
}

#[test]
fn a_drop_that_runs_twice_is_caught() {
    fails("double-drop", "20", "object #");
}

#[test]
fn a_drop_that_never_runs_is_caught() {
    fails("lose-drop", "20", "object #");
}

#[test]
fn an_object_that_is_never_destroyed_is_caught() {
    fails("lose-object", "2", "objects are not accounted for");
}

#[test]
fn a_call_answered_after_destroy_returned_is_caught() {
    fails("early-mark", "20", "destroy had returned before the call");
}

#[test]
fn an_answer_of_another_object_is_caught() {
    fails("wrong-object", "20", "was answered by #");
}

#[test]
fn an_answer_of_another_interface_is_caught() {
    fails("wrong-type", "20", "was answered by a ");
}

#[test]
fn a_representative_that_dies_under_a_call_is_caught() {
    fails("early-death", "20", "was dropped (0xdead");
}

#[test]
fn a_drop_while_a_call_is_inside_is_caught() {
    fails("stay-inside", "20", "calls were inside it");
}

#[test]
fn a_root_that_goes_first_is_caught() {
    fails("root-first", "20", "before 1 of its representatives");
}

#[test]
fn a_lost_addition_is_caught() {
    fails("lose-add", "20", "its callers have added");
}

#[test]
fn a_live_object_that_refuses_is_caught() {
    fails("refuse-live", "20", "nobody has begun to destroy");
}

#[test]
fn an_unknown_way_to_break_it_is_refused() {
    let output = stress("1", &[], &[("SQUALL_STRESS_BREAK", "everything")]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("double-drop"));
}
