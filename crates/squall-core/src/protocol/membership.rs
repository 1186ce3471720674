//! Membership: freezes the set of representatives.
//!
//! A gather that must see exactly the current representatives freezes membership. A miss publishes a new
//! representative only while no gather has frozen it. Making the representative is not delayed, only
//! publishing it. The caller does the waiting; this word only says whether it may go on.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | `PUBLISHING` | publishing | misses between `try_publish` and `published` |
//! | `FROZEN` | frozen | gathers that freeze the set |
//!
//! - I1. While a gather has frozen membership and has seen `settled`, no representative is added.
//!
//! Source: Appavoo 2005, *Clustered Objects*, §5.4.2: K42's `lockReps` (CO-15). Misses and gathers are like
//! readers that exclude each other.

use squall_sys::sync::atomic::{AtomicU32, Ordering};

use super::sites;

const PUBLISHING_ONE: u32 = 1;
const PUBLISHING: u32 = (1 << 16) - 1;
const FROZEN_ONE: u32 = 1 << 16;
const FROZEN: u32 = u32::MAX << 16;

const _: () = assert!(PUBLISHING | FROZEN == u32::MAX && PUBLISHING & FROZEN == 0);

/// Misses and gathers that exclude each other. See the module.
#[derive(Debug)]
pub(crate) struct Membership(AtomicU32);

impl Membership {
    pub(crate) fn new() -> Membership {
        Membership(AtomicU32::new(0))
    }

    /// Begins to publish, unless membership is frozen. Returns whether it did.
    pub(crate) fn try_publish(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & FROZEN == 0 && word & PUBLISHING != PUBLISHING {
            // Acquire: pairs with the release in `thaw`: a thread that finds a representative added now sees
            // the gather's work while membership was frozen.
            let order = sites::PUBLISH.order(Ordering::Acquire);
            match self.0.compare_exchange_weak(word, word + PUBLISHING_ONE, order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Ends a publication, whether it succeeded or not.
    pub(crate) fn published(&self) {
        // Release: pairs with the acquire in `settled`: the gather sees the added representative.
        self.0.fetch_sub(PUBLISHING_ONE, sites::PUBLISHED.order(Ordering::Release));
    }

    /// Freezes membership, effective once `settled` returns true. At most 2^16 - 1 gathers can do so at a
    /// time.
    pub(crate) fn freeze(&self) {
        let before = self.0.fetch_add(FROZEN_ONE, Ordering::Relaxed);
        assert!(
            before & FROZEN != FROZEN,
            "too many gathers freeze the representatives of one object: at most 65535 can at a time"
        );
    }

    /// Returns whether no miss is publishing.
    pub(crate) fn settled(&self) -> bool {
        // Acquire: pairs with the release in `published`.
        self.0.load(sites::SETTLED.order(Ordering::Acquire)) & PUBLISHING == 0
    }

    /// Ends a freeze.
    pub(crate) fn thaw(&self) {
        // Release: pairs with the acquire in `try_publish`.
        self.0.fetch_sub(FROZEN_ONE, sites::THAW.order(Ordering::Release));
    }
}
