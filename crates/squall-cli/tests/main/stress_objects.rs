//! `squall stress objects` as scripts run it: it passes in every mode and catches every planned break.

use crate::common::stress::StressTest;

const OBJECTS: StressTest = StressTest {
    name: "objects",
    threads: "70",
    done: &[
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
    ],
};

/// Passes, and returns the number of virtual processors.
#[track_caller]
fn passes(more: &[&str], variables: &[(&str, &str)]) -> u64 {
    OBJECTS.passes(more, variables).of("virtual processors")
}

#[test]
fn it_passes_on_64_virtual_processors() {
    assert_eq!(passes(&[], &[]), 64);
}

#[test]
fn it_passes_on_the_real_machine() {
    passes(&["--real"], &[]);
}

/// With few threads, calls overlap on different processors; with many, threads are preempted.
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
    OBJECTS.fails("double-drop", "20", "object #");
}

#[test]
fn a_drop_that_never_runs_is_caught() {
    OBJECTS.fails("lose-drop", "20", "object #");
}

#[test]
fn an_object_that_is_never_destroyed_is_caught() {
    OBJECTS.fails("lose-object", "2", "objects are not accounted for");
}

#[test]
fn a_call_answered_after_destroy_returned_is_caught() {
    OBJECTS.fails("early-mark", "20", "destroy had returned before the call");
}

#[test]
fn an_answer_of_another_object_is_caught() {
    OBJECTS.fails("wrong-object", "20", "was answered by #");
}

#[test]
fn an_answer_of_another_interface_is_caught() {
    OBJECTS.fails("wrong-type", "20", "was answered by a ");
}

#[test]
fn a_representative_that_dies_under_a_call_is_caught() {
    OBJECTS.fails("early-death", "20", "was dropped (0xdead");
}

#[test]
fn a_drop_while_a_call_is_inside_is_caught() {
    OBJECTS.fails("stay-inside", "20", "calls were inside it");
}

#[test]
fn a_root_that_goes_first_is_caught() {
    OBJECTS.fails("root-first", "20", "before 1 of its representatives");
}

#[test]
fn a_lost_addition_is_caught() {
    OBJECTS.fails("lose-add", "20", "its callers have added");
}

#[test]
fn a_live_object_that_refuses_is_caught() {
    OBJECTS.fails("refuse-live", "20", "nobody has begun to destroy");
}

#[test]
fn an_unknown_break_is_refused() {
    OBJECTS.refuses_an_unknown_break("double-drop");
}
