//! Events of a queue's slow paths, for the trace of the process.
//!
//! Problem: the monitor of a program should show the queues at which clients wait. Idea: a wait that
//! slept reports how long, and a close reports itself. Puts, gets, and waits that find an element emit no
//! event.
//!
//! - I1. `queue.wait` comes when a wait leaves the list of waiters, under no lock of the queue: the sink may
//!   allocate. The time begins with the first sleep that the trace saw. A wait without such a sleep has no
//!   event.
//! - I2. `queue.close` comes once, after the state was set and the waiters were woken.
//!
//! Cost: off, one load and a branch for each sleep and each close.
//! Source: KT-18 (Gheith, Mukherjee, Silva and Schwan, "KTK", 1994, §5.2).

use squall_sys::trace::{Kind, Since, Subject, emit, is_on};

static WAIT: Kind = Kind::new("queue.wait", ["end", "waited_ns"]).with_codes(0, &["answered", "given-up"]);
static CLOSE: Kind = Kind::new("queue.close", ["elements", ""]);

/// The way in which a wait ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    /// The wait has an element, or the reason why no more elements come.
    Answered,
    /// Its time was up, or its client dropped it.
    GivenUp,
}

/// Emits that a client waited for an element since then (I1).
pub(super) fn waited<Q>(queue: &Q, since: Since, ended: Ended) {
    if let Some(ns) = since.ns() {
        emit(&WAIT, Subject::at(queue), [ended as u64, ns]);
    }
}

/// Emits that the queue was closed, with that many elements left (I2).
pub(super) fn closed<Q>(queue: &Q, elements: impl FnOnce() -> usize) {
    if is_on() {
        emit(&CLOSE, Subject::at(queue), [elements() as u64, 0]);
    }
}
