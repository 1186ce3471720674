//! `squall stress swap` as scripts run it: it passes in every mode and catches every planned break. Memory
//! stays flat over a hundred thousand swaps.

use crate::common::stress::StressTest;
use crate::common::{run, squall, stderr, stdout};

const SWAP: StressTest = StressTest {
    name: "swap",
    threads: "8",
    done: &[
        "calls",
        "of these inside others",
        "of these blocking",
        "exact comparisons",
        "calls that panicked",
        "stale calls that erred",
        "calls refused by arbiters",
        "swapped",
        "cancelled",
        "transfers that failed",
        "transfers that panicked",
        "destroyed meanwhile",
        "busy",
        "swaps refused where asked",
        "undisturbed swaps",
        "calls forwarded",
        "calls blocked",
        "factories upgraded",
        "arbiters attached",
        "objects of methods",
        "objects created",
        "objects destroyed",
        "tables discarded",
        "threads started",
    ],
};

/// Passes, and returns the number of virtual processors.
#[track_caller]
fn passes(more: &[&str], variables: &[(&str, &str)]) -> u64 {
    SWAP.passes(more, variables).of("virtual processors")
}

#[test]
fn it_passes_on_64_virtual_processors() {
    assert_eq!(passes(&[], &[]), 64);
}

#[test]
fn it_passes_on_the_real_machine() {
    passes(&["--real"], &[]);
}

/// A single caller is rarely blocked, so this test only checks that the run passes.
#[test]
fn it_passes_with_one_thread_that_calls() {
    let output = run(squall().args(["stress", "swap", "--seconds", "2", "--seed", "11", "--threads", "1"]));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).ends_with("  no violation\n"), "{}", stdout(&output));
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
fn memory_is_flat_after_a_hundred_thousand_swaps() {
    let output = run(squall().args(["stress", "swap-memory", "--seconds", "1", "--seed", "11"]));
    let (said, complaint) = (stdout(&output), stderr(&output));
    assert!(output.status.success() && said.ends_with("  no violation\n"), "{said}\n{complaint}");
    let swapped = said.lines().find_map(|line| line.trim().strip_prefix("swapped"));
    let swapped = swapped.and_then(|count| count.trim().parse::<u64>().ok());
    assert!(swapped.is_some_and(|count| count >= 100_000), "{said}");
}

#[test]
fn memory_that_grows_is_caught() {
    let mut command = squall();
    command.args(["stress", "swap-memory", "--seconds", "1", "--seed", "11"]);
    let output = run(command.env("SQUALL_STRESS_BREAK", "leak-value"));
    let complaint = stderr(&output);
    assert!(!output.status.success() && complaint.contains("memory grew from"), "{complaint}");
}

#[test]
fn a_call_that_counts_twice_is_caught() {
    SWAP.fails("double-call", "20", "a call ran twice, or out of order");
}

#[test]
fn a_lost_call_is_caught() {
    SWAP.fails("lose-call", "20", "lane ");
}

#[test]
fn calls_out_of_order_are_caught() {
    SWAP.fails("disorder", "20", "lane ");
}

#[test]
fn a_lost_part_of_the_state_is_caught() {
    SWAP.fails("lose-state", "20", "lane ");
}

#[test]
fn a_value_that_is_never_dropped_is_caught() {
    SWAP.fails("leak-value", "2", "objects are not accounted for");
}

#[test]
fn a_drop_that_runs_twice_is_caught() {
    SWAP.fails("double-drop", "20", "implementations had its state last");
}

#[test]
fn a_call_answered_after_destroy_returned_is_caught() {
    SWAP.fails("early-mark", "20", "destroy had returned before it");
}

#[test]
fn a_swap_that_fails_without_a_reason_is_caught() {
    SWAP.fails("wrong-failure", "20", "had no reason to");
}

#[test]
fn a_swap_that_succeeds_and_must_not_is_caught() {
    SWAP.fails("wrong-success", "20", "has succeeded in spite of");
}

#[test]
fn a_call_that_misses_its_arbiter_is_caught() {
    SWAP.fails("miss-arbiter", "20", "met no arbiter");
}

#[test]
fn a_live_object_that_refuses_is_caught() {
    SWAP.fails("refuse-live", "20", "nobody has begun to destroy");
}

#[test]
fn an_unknown_break_is_refused() {
    SWAP.refuses_an_unknown_break("lose-state");
}
