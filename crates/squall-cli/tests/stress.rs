//! `squall stress rcu` as scripts run it: it passes in every mode, and it fails in every way in which it can be broken.

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

fn stress(seconds: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
    command.args(["stress", "rcu", "--seconds", seconds, "--seed", "11", "--threads", "5"]);
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
fn passes(variables: &[(&str, &str)]) {
    let output = stress("2", variables);
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complaint}");
    assert!(said.ends_with("  no violation\n"), "{said}");
    let counts = counts(&said);
    // It did what it is for: a run that does nothing passes as well.
    let done = [
        "operations",
        "grace periods",
        "by wait",
        "by wait_expedited",
        "by wait_until",
        "by a marker polled",
        "by a marker waited for",
        "by a marker met later",
        "by deferred calls",
        "by reclaim",
        "by barrier",
        "by quiescent-do, each",
        "by quiescent-do, any",
        "deferred calls",
        "blocks reused",
        "threads started",
        "seen in place (age 0)",
    ];
    for name in done {
        assert!(counts.get(name).is_some_and(|&count| count > 0), "{name}: none in\n{said}");
    }
    assert_eq!(counts.get("seen older"), Some(&0), "{said}");
}

/// A run that is broken so is caught, by a violation of which `clue` is a part.
#[track_caller]
fn fails(how: &str, seconds: &str, clue: &str) {
    let output = stress(seconds, &[("SQUALL_STRESS_BREAK", how)]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{how} was not caught: {}", String::from_utf8_lossy(&output.stdout));
    assert!(complaint.contains("VIOLATION in stress rcu: ") && complaint.contains(clue), "{complaint}");
    let replay = format!(
        "replay: SQUALL_STRESS_BREAK={how} squall stress rcu --seconds {seconds} --seed 11 --threads 5"
    );
    assert!(complaint.contains(&replay), "{complaint}");
}

#[test]
fn it_passes() {
    passes(&[]);
}

#[test]
fn it_passes_without_membarrier() {
    passes(&[("SQUALL_MEMBARRIER", "off")]);
}

#[test]
fn it_passes_without_restartable_sequences() {
    passes(&[("SQUALL_RSEQ", "off")]);
}

#[test]
fn it_passes_in_a_virtual_topology() {
    passes(&[("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:4,threads:2")]);
}

#[test]
fn it_passes_without_the_reclaimer() {
    passes(&[("SQUALL_RECLAIMER", "off")]);
}

#[test]
fn a_grace_period_not_waited_for_is_caught() {
    fails("skip-wait", "10", "at age 2");
}

#[test]
fn a_block_aged_before_its_deferred_call_ran_is_caught() {
    fails("early-age", "10", "at age 2");
}

#[test]
fn a_block_reused_at_once_is_caught() {
    fails("early-reuse", "10", "was poisoned or serves anew");
}

#[test]
fn a_reader_outside_every_operation_is_caught() {
    fails("no-operation", "10", "a reader may see");
}

#[test]
fn a_lost_deferred_call_is_caught() {
    fails("lose-callback", "10", "that were deferred before it");
}

#[test]
fn a_deferred_call_that_counts_twice_is_caught() {
    fails("double-callback", "2", "calls were deferred and");
}

#[test]
fn a_lost_block_is_caught() {
    fails("lose-block", "4", "blocks are free or in place, of");
}

#[test]
fn an_unknown_way_to_break_it_is_refused() {
    let output = stress("1", &[("SQUALL_STRESS_BREAK", "everything")]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("skip-wait"));
}
