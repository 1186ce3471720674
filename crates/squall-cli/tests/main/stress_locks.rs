//! `squall stress locks` as scripts run it: it passes in every mode and catches every planned break.

use crate::common::stress::StressTest;

const LOCKS: StressTest = StressTest {
    name: "locks",
    threads: "12",
    // Counts that are positive even on the slowest machine.
    done: &[
        "sections",
        "waits without a limit",
        "tries",
        "attributes changed",
        "requests",
        "rounds of duels",
        "threads started",
    ],
};

/// Passes, and returns the number of virtual processors.
#[track_caller]
fn passes(more: &[&str], variables: &[(&str, &str)]) -> u64 {
    LOCKS.passes(more, variables).of("virtual processors")
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
fn it_passes_with_few_threads() {
    passes(&["--real", "--threads", "4"], &[]);
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
fn a_section_without_its_lock_is_caught() {
    LOCKS.fails("no-lock", "20", "inside");
}

#[test]
fn a_section_that_is_half_done_is_caught() {
    LOCKS.fails("half-section", "20", "counted under the lock");
}

#[test]
fn a_section_reported_twice_is_caught() {
    LOCKS.fails("tell-twice", "3", "sections counted");
}

#[test]
fn a_kept_lock_is_caught() {
    LOCKS.fails("hold-on", "120", "a wake-up was lost");
}

#[test]
fn a_lost_wake_up_is_caught() {
    LOCKS.fails("lose-wakeup", "120", "the forgetful lock: nobody is inside");
}

#[test]
fn a_wake_up_that_is_lost_in_a_duel_is_caught() {
    LOCKS.fails("lose-in-duel", "300", "the forgetful lock: in a duel [Have");
}

#[test]
fn a_wait_that_is_deaf_to_its_cancellation_is_caught() {
    LOCKS.fails("deaf-cancel", "120", "a wait goes on that was cancelled");
}

#[test]
fn a_wait_that_outlasts_its_time_is_caught() {
    LOCKS.fails("no-deadline", "120", "a wait goes on whose time is long over");
}

#[test]
fn a_wait_that_gives_up_before_its_time_is_caught() {
    LOCKS.fails("early-timeout", "20", "before its time");
}

#[test]
fn a_reader_beside_a_writer_is_caught() {
    LOCKS.fails("stray-reader", "20", "is inside, and so is a");
}

#[test]
fn a_request_that_enters_although_it_was_refused_is_caught() {
    LOCKS.fails("enter-anyway", "20", "it is stopped");
}

#[test]
fn a_request_that_does_not_leave_is_caught() {
    LOCKS.fails("keep-request", "120", "request counter: nobody is inside");
}

#[test]
fn an_unknown_break_is_refused() {
    LOCKS.refuses_an_unknown_break("lose-wakeup");
}
