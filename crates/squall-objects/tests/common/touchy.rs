//! A key with a hash that panics on demand.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A key that panics after a given number of hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Touchy(pub(crate) u64);

thread_local!(static HASHES_LEFT: Cell<Option<u32>> = const { Cell::new(None) });

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Some(left) = HASHES_LEFT.get() {
            HASHES_LEFT.set(left.checked_sub(1));
            assert!(left > 0, "a touchy key");
        }
        self.0.hash(state);
    }
}

/// Runs `f`, with a panic in the hash after this many calls. Returns whether `f` completed.
pub(crate) fn ends(hashes: u32, f: impl FnOnce()) -> bool {
    HASHES_LEFT.set(Some(hashes));
    let ended = catch_unwind(AssertUnwindSafe(f)).is_ok();
    HASHES_LEFT.set(None);
    ended
}
