//! Test hooks: the system refuses memory from a chosen request on; the machine seems to have several nodes;
//! every slow path gives idle memory back.
//!
//! Cost: one load before each request to the system, and for each pass.

use squall_sys::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Requests that still succeed; negative: all of them.
static LEFT: AtomicI64 = AtomicI64::new(-1);

/// Returns whether the system may be asked for memory.
pub(crate) fn allowed() -> Option<()> {
    // Relaxed, all: only the number matters.
    if LEFT.load(Ordering::Relaxed) < 0 {
        return Some(());
    }
    let left = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| (left > 0).then_some(left - 1));
    left.is_ok().then_some(())
}

/// For tests: lets `requests` requests for memory through and refuses all later ones. `None` refuses no
/// request.
#[doc(hidden)]
pub fn refuse_after(requests: Option<u32>) {
    LEFT.store(requests.map_or(-1, i64::from), Ordering::Relaxed);
}

static NODES: AtomicUsize = AtomicUsize::new(0);

/// The number of memory nodes of the machine.
pub(crate) fn nodes() -> usize {
    match NODES.load(Ordering::Relaxed) {
        0 => squall_sys::nodes::limit().unwrap_or(1),
        pretended => pretended,
    }
}

/// For tests, before the first allocation: pretends that the machine has `count` nodes, and binds pages to
/// them.
#[doc(hidden)]
pub fn pretend_nodes(count: usize) {
    NODES.store(count, Ordering::Relaxed);
}

/// See [`pretend_alternating_nodes`].
static ALTERNATING: AtomicBool = AtomicBool::new(false);

/// Returns whether VPs alternate between two pretended nodes.
pub(crate) fn alternate_nodes() -> bool {
    ALTERNATING.load(Ordering::Relaxed)
}

/// For tests, before the first allocation: pretends that the machine has two nodes, between which its
/// processors alternate.
#[doc(hidden)]
pub fn pretend_alternating_nodes() {
    pretend_nodes(2);
    ALTERNATING.store(true, Ordering::Relaxed);
}

/// The time between passes (`decay/I1`).
static PASS_MS: AtomicU64 = AtomicU64::new(250);

/// See [`PASS_MS`].
pub(crate) fn pass_ms() -> u64 {
    PASS_MS.load(Ordering::Relaxed)
}

/// For tests: every slow path gives some idle memory back, as if a quarter of a second had passed. It takes
/// effect with the second slow path of the process, or with the next pass.
#[doc(hidden)]
pub fn decay_always() {
    PASS_MS.store(0, Ordering::Relaxed);
}
