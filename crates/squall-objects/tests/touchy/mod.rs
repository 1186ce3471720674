//! A key whose hash panics when it is told to.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A key that panics when it is hashed so many times more.
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

/// Runs this, with a panic in the hash after so many; whether it came to its end.
pub(crate) fn ends(hashes: u32, f: impl FnOnce()) -> bool {
    HASHES_LEFT.set(Some(hashes));
    let ended = catch_unwind(AssertUnwindSafe(f)).is_ok();
    HASHES_LEFT.set(None);
    ended
}
