//! Holding the set of representatives still.
//!
//! A gather that must see exactly the current representatives freezes membership; a miss that has made a representative
//! publishes it only while nobody does. Making it is not held up, only showing it. The wait itself is the caller's:
//! this word only says whether one may go on.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | `PUBLISHING` | publishing | misses between `try_publish` and `published` |
//! | `FROZEN` | frozen | those who hold it still |
//!
//! - I1. While somebody has frozen it and has seen `settled`, no representative is added.
//!
//! Source: K42's `lockReps` (CO-15), with misses and gathers in the roles of readers that exclude each other.

use squall_sys::sync::atomic::{AtomicU32, Ordering};

use super::sites;

const PUBLISHING_ONE: u32 = 1;
const PUBLISHING: u32 = (1 << 16) - 1;
const FROZEN_ONE: u32 = 1 << 16;
const FROZEN: u32 = u32::MAX << 16;

const _: () = assert!(PUBLISHING | FROZEN == u32::MAX && PUBLISHING & FROZEN == 0);

/// See the module.
#[derive(Debug)]
pub(crate) struct Membership(AtomicU32);

impl Membership {
    pub(crate) fn new() -> Membership {
        Membership(AtomicU32::new(0))
    }

    /// Begins to publish, unless it is frozen.
    pub(crate) fn try_publish(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & FROZEN == 0 && word & PUBLISHING != PUBLISHING {
            // Acquire: pairs with the release in `thaw`: who finds what is added now sees what was done while it was frozen.
            let order = sites::PUBLISH.order(Ordering::Acquire);
            match self.0.compare_exchange_weak(word, word + PUBLISHING_ONE, order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Has published, or failed to.
    pub(crate) fn published(&self) {
        // Release: pairs with the acquire in `settled`: who holds it still sees what was added.
        self.0.fetch_sub(PUBLISHING_ONE, sites::PUBLISHED.order(Ordering::Release));
    }

    /// Holds it still, once `settled`. At most 2^16 - 1 at a time.
    pub(crate) fn freeze(&self) {
        let before = self.0.fetch_add(FROZEN_ONE, Ordering::Relaxed);
        assert!(before & FROZEN != FROZEN, "too many gathers hold the representatives of one object still");
    }

    /// Whether those who were publishing are done.
    pub(crate) fn settled(&self) -> bool {
        // Acquire: pairs with the release in `published`.
        self.0.load(sites::SETTLED.order(Ordering::Acquire)) & PUBLISHING == 0
    }

    /// Lets it go.
    pub(crate) fn thaw(&self) {
        // Release: pairs with the acquire in `try_publish`.
        self.0.fetch_sub(FROZEN_ONE, sites::THAW.order(Ordering::Release));
    }
}
