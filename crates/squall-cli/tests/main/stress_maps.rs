//! `squall stress maps` as scripts run it: it passes in every mode and catches every planned break.

use crate::common::stress::StressTest;

const MAPS: StressTest = StressTest {
    name: "maps",
    threads: "8",
    // Counts that are positive even on the slowest machine.
    done: &[
        "writes of keys of one's own",
        "looks at others' keys",
        "additions",
        "walks judged",
        "panics in closures",
        "maps made",
        "cached ones of them",
        "maps destroyed",
        "swaps",
        "threads started",
    ],
};

#[test]
fn it_passes_on_64_virtual_processors() {
    assert_eq!(MAPS.passes(&[], &[]).of("virtual processors"), 64);
}

#[test]
fn it_passes_on_the_real_machine() {
    MAPS.passes(&["--real", "--threads", "3"], &[]);
}

#[test]
fn it_passes_without_restartable_sequences_and_membarrier() {
    MAPS.passes(&[], &[("SQUALL_RSEQ", "off"), ("SQUALL_MEMBARRIER", "off")]);
}

// The violation is found by the first visitor of the key: its writer, another thread, or a walk.

#[test]
fn a_write_that_is_lost_is_caught() {
    MAPS.fails("lose-write", "60", "key ");
}

#[test]
fn an_addition_that_is_made_twice_is_caught() {
    MAPS.fails("double-add", "60", "the sum is");
}

#[test]
fn a_look_that_is_stale_is_caught() {
    MAPS.fails("stale-look", "60", "was done before it");
}

#[test]
fn an_entry_that_a_walk_leaves_out_is_caught() {
    MAPS.fails("skip-entry", "60", "that are there all the time");
}

#[test]
fn a_panic_that_changed_something_is_caught() {
    MAPS.fails("dirty-panic", "60", "key ");
}

#[test]
fn a_call_after_the_end_is_caught() {
    MAPS.fails("early-mark", "60", "destroy had returned before it");
}

#[test]
fn a_value_that_is_never_dropped_is_caught() {
    MAPS.fails("leak-value", "3", "were not dropped");
}

#[test]
fn an_unknown_break_is_refused() {
    MAPS.refuses_an_unknown_break("stale-look");
}
