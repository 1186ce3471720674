//! `squall stress rcu` as scripts run it: it passes in every mode and catches every planned break.

use crate::common::stress::StressTest;

const RCU: StressTest = StressTest {
    name: "rcu",
    threads: "5",
    done: &[
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
    ],
};

#[track_caller]
fn passes(variables: &[(&str, &str)]) {
    assert_eq!(RCU.passes(&[], variables).of("seen older"), 0);
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
    RCU.fails("skip-wait", "10", "at age 2");
}

#[test]
fn a_block_aged_before_its_deferred_call_ran_is_caught() {
    RCU.fails("early-age", "10", "at age 2");
}

#[test]
fn a_block_reused_at_once_is_caught() {
    RCU.fails("early-reuse", "10", "was poisoned or serves anew");
}

#[test]
fn a_reader_outside_every_operation_is_caught() {
    RCU.fails("no-operation", "10", "a reader may see");
}

#[test]
fn a_lost_deferred_call_is_caught() {
    RCU.fails("lose-callback", "10", "that were deferred before it");
}

#[test]
fn a_deferred_call_that_counts_twice_is_caught() {
    RCU.fails("double-callback", "2", "calls were deferred and");
}

#[test]
fn a_lost_block_is_caught() {
    RCU.fails("lose-block", "4", "blocks are free or in place, of");
}

#[test]
fn an_unknown_break_is_refused() {
    RCU.refuses_an_unknown_break("skip-wait");
}
