//! `squall stress alloc` as scripts run it: it passes in every mode and catches every planned break.

use crate::common::stress::StressTest;

const ALLOC: StressTest = StressTest {
    name: "alloc",
    threads: "5",
    done: &["rounds", "blocks allocated", "freed by who had them", "freed by others"],
};

#[test]
fn it_passes() {
    ALLOC.passes(&[], &[]);
}

#[test]
fn it_passes_without_restartable_sequences() {
    ALLOC.passes(&[], &[("SQUALL_RSEQ", "off")]);
}

#[test]
fn it_passes_on_64_virtual_processors() {
    ALLOC.passes(&[], &[("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:8,threads:2")]);
}

#[test]
fn it_passes_in_debug_mode() {
    ALLOC.passes(&[], &[("SQUALL_ALLOC_DEBUG", "1")]);
}

#[test]
fn a_block_that_another_wrote_to_is_caught() {
    ALLOC.fails("alloc-scribble", "5", "of");
}

#[test]
#[cfg_attr(
    squall_global_alloc,
    ignore = "the program's own blocks are counted, too, and are more or fewer by then"
)]
fn a_block_that_is_lost_is_caught() {
    ALLOC.fails("alloc-lose", "5", "are missing");
}

#[test]
fn an_unknown_break_is_refused() {
    ALLOC.refuses_an_unknown_break("alloc-lose");
}
