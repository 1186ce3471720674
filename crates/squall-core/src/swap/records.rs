//! Events of swaps, for the trace of the process.
//!
//! Problem: a report tells of a swap only to its author. Idea: a swap also emits its begin, and at its end
//! the time of each phase.
//!
//! - I1. `swap.begin` comes once the mediator is installed. The other events come when the outcome is certain
//!   and the waiting calls were woken. Each begin has one end, unless the process forks meanwhile.
//!
//! Cost: off, one load and a branch for each event of a swap.
//! Source: KT-18 (Gheith, Mukherjee, Silva and Schwan, "KTK", 1994, §5.2).

use squall_sys::trace::{Kind, Subject, emit, is_on};
use std::time::Duration;

use crate::protocol::id::Id;
use crate::swap::report::{SwapOutcome, SwapPhase, SwapReport};

static BEGIN: Kind = Kind::new("swap.begin", ["", ""]);
static PHASE: Kind = Kind::new("swap.phase", ["phase", "took_ns"])
    .with_codes(0, &["attach", "forward", "block", "transfer", "complete"]);
static END: Kind = Kind::new("swap.end", ["outcome", "took_ns"]).with_codes(0, &["swapped", "rolled-back"]);

fn subject(id: Id) -> Subject {
    Subject::id(id.slot(), id.generation())
}

/// Emits that the swap of this object has begun.
pub(super) fn begun(id: Id) {
    emit(&BEGIN, subject(id), [0; 2]);
}

/// Emits the phases that the swap reached, and its end.
pub(super) fn ended(report: &SwapReport) {
    if !is_on() {
        return;
    }
    let subject = subject(report.id);
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let phases = [
        (SwapPhase::Attach, report.attach),
        (SwapPhase::Forward, report.forward),
        (SwapPhase::Block, report.block),
        (SwapPhase::Transfer, report.transfer),
        (SwapPhase::Complete, report.complete),
    ];
    for (phase, took) in phases.into_iter().filter(|(_, took)| !took.is_zero()) {
        emit(&PHASE, subject, [phase as u64, ns(took)]);
    }
    let outcome = u64::from(report.outcome != SwapOutcome::Swapped);
    emit(&END, subject, [outcome, ns(report.total())]);
}
