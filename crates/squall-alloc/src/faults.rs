//! Hooks for tests: the system refuses memory from a chosen question on; the machine has several nodes; what
//! is idle goes back at every slow path.
//!
//! Cost: one load before each question to the system, and for each turn.

use squall_sys::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Questions that are still answered; negative: all are.
static LEFT: AtomicI64 = AtomicI64::new(-1);

/// Whether the system may be asked for memory.
pub(crate) fn allowed() -> Option<()> {
    // Relaxed, all: the number is all there is.
    if LEFT.load(Ordering::Relaxed) < 0 {
        return Some(());
    }
    let left = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| (left > 0).then_some(left - 1));
    left.is_ok().then_some(())
}

/// For tests: lets so many questions to the system for memory through and refuses all that come then; `None`: none is refused.
#[doc(hidden)]
pub fn refuse_after(questions: Option<u32>) {
    LEFT.store(questions.map_or(-1, i64::from), Ordering::Relaxed);
}

static NODES: AtomicUsize = AtomicUsize::new(0);

/// How many nodes of memory the machine has.
pub(crate) fn nodes() -> usize {
    match NODES.load(Ordering::Relaxed) {
        0 => squall_sys::nodes::limit().unwrap_or(1),
        pretended => pretended,
    }
}

/// For tests, before the first allocation: the machine is taken for one of so many nodes, and pages are bound to theirs.
#[doc(hidden)]
pub fn pretend_nodes(count: usize) {
    NODES.store(count, Ordering::Relaxed);
}

/// See [`pretend_apart`].
static APART: AtomicBool = AtomicBool::new(false);

/// Whether VPs are to be taken for ones of two nodes, in turns.
pub(crate) fn are_apart() -> bool {
    APART.load(Ordering::Relaxed)
}

/// For tests, before the first allocation: the machine is taken for one of two nodes, to which its processors belong in turns.
#[doc(hidden)]
pub fn pretend_apart() {
    pretend_nodes(2);
    APART.store(true, Ordering::Relaxed);
}

/// The time from one turn to the next (`decay/I1`).
static TURN_MS: AtomicU64 = AtomicU64::new(250);

/// See [`TURN_MS`].
pub(crate) fn turn_ms() -> u64 {
    TURN_MS.load(Ordering::Relaxed)
}

/// For tests: every slow path from the second on, or from the next turn on, gives back some of what is idle, as if a quarter of a second
/// had passed.
#[doc(hidden)]
pub fn turn_always() {
    TURN_MS.store(0, Ordering::Relaxed);
}
