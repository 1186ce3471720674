//! `squall stress adapt` as scripts run it: it passes in every mode and catches every planned break.

use crate::common::stress::StressTest;

const ADAPT: StressTest = StressTest {
    name: "adapt",
    threads: "8",
    done: &[
        "additions",
        "sums judged",
        "exact comparisons",
        "objects made",
        "objects destroyed",
        "calls in other modes",
        "calls of these",
        "threads started",
    ],
};

/// Passes, and returns the number of virtual processors.
#[track_caller]
fn passes(more: &[&str], variables: &[(&str, &str)]) -> u64 {
    ADAPT.passes(more, variables).of("virtual processors")
}

#[test]
fn it_passes_on_64_virtual_processors() {
    assert_eq!(passes(&[], &[]), 64);
}

#[test]
fn it_passes_on_the_real_machine() {
    passes(&["--real"], &[]);
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
fn it_passes_without_a_thread_of_the_engine() {
    passes(&[], &[("SQUALL_ADAPT", "off")]);
}

#[test]
fn it_passes_without_the_reclaimer() {
    passes(&[], &[("SQUALL_RECLAIMER", "off")]);
}

#[test]
fn a_lost_addition_is_caught() {
    ADAPT.fails("lose-add", "20", "its sum is ");
}

#[test]
fn an_addition_made_twice_is_caught() {
    ADAPT.fails("double-add", "20", "its sum is ");
}

#[test]
fn a_call_answered_after_destroy_returned_is_caught() {
    ADAPT.fails("early-mark", "300", "destroy had returned before it");
}

#[test]
fn a_swap_that_is_not_in_the_log_is_caught() {
    ADAPT.fails("unlogged", "3", "are not in the log of decisions");
}

#[test]
fn a_decision_without_a_reason_is_caught() {
    ADAPT.fails("unexplained", "20", "a decision without a reason");
}

#[test]
fn a_frozen_object_that_is_swapped_is_caught() {
    ADAPT.fails("deaf-freeze", "300", "since it is frozen");
}

#[test]
fn two_swaps_within_a_cool_down_are_caught() {
    ADAPT.fails("short-cooldown", "300", "and the cool-down is 5s");
}

#[test]
fn more_swaps_than_the_budget_allows_are_caught() {
    ADAPT.fails("over-budget", "300", "in a second are allowed");
}

#[test]
fn a_setting_that_is_not_refused_is_caught() {
    ADAPT.fails("wrong-setting", "20", "was not refused");
}

#[test]
fn a_payload_that_is_never_dropped_is_caught() {
    ADAPT.fails("leak-payload", "1", "payloads of asynchronous calls are alive");
}

#[test]
fn a_lost_call_of_an_object_of_some_kind_is_caught() {
    ADAPT.fails("lose-call", "20", "before it, not");
}

#[test]
fn an_object_that_does_not_go_back_is_caught() {
    ADAPT.fails("keep-grown", "1", "do not go back although nobody calls them");
}

#[test]
fn an_engine_that_does_not_sleep_is_caught() {
    ADAPT.fails("insomnia", "1", "was woken in each of");
}

#[test]
fn an_unknown_break_is_refused() {
    ADAPT.refuses_an_unknown_break("keep-grown");
}
