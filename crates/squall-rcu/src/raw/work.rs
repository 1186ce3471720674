//! The flag by which a thread that defers a call tells the reclaimer about work. Free while the flag is
//! already set.
//!
//! - I1. If a call is pending after its owner has announced it and the reclaimer has gone to rest, the flag
//!   is set. Either it was set already, or `announce` told the owner to set it, or the reclaimer has set it
//!   again.
//!
//! Argument: the owner makes the call pending, makes a fence, and looks at the flag. The reclaimer clears the
//! flag, makes a heavy fence, and looks for pending calls. By `asym/I1` at least one sees the other's store.
//! (In fence mode the owner's fence is a full one.)
//!
//! Cost: an announcement is a compiler fence and a load.
//! Source: the scheme of the driver's sleep, `README.md` beside this file.

use squall_machine::asym::{self, Unavailable};
use squall_sys::sync::atomic::{AtomicBool, Ordering};

use super::sites;

/// The reclaimer's work flag.
pub(crate) struct Work {
    set: AtomicBool,
}

impl Work {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Work {
        Work { set: AtomicBool::new(false) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Work {
        Work { set: AtomicBool::new(false) }
    }

    /// Announces a pending call. Returns whether the caller must [`Work::claim`] and wake the reclaimer.
    #[must_use]
    pub(crate) fn announce(&self, fenced: bool) -> bool {
        if !sites::ANNOUNCE_FENCE.is_weak() {
            // Pairs with the heavy fence in `rest` (I1).
            asym::light_or_full(fenced);
        }
        !self.set.load(Ordering::Relaxed)
    }

    /// Sets the flag. Returns whether it was clear: of several threads that call this, exactly one wakes the
    /// reclaimer.
    pub(crate) fn claim(&self) -> bool {
        // AcqRel: pairs with itself, and with the acquire in `is_set`.
        !self.set.swap(true, Ordering::AcqRel)
    }

    /// Returns whether there may be work.
    pub(crate) fn is_set(&self) -> bool {
        // Acquire: pairs with the release in `claim`.
        self.set.load(Ordering::Acquire)
    }

    /// Clears the flag even though calls may be pending: they cannot be run now.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn clear(&self) {
        self.set.store(false, Ordering::Relaxed);
    }

    /// Clears the flag unless a call is pending.
    ///
    /// # Errors
    /// The heavy fence cannot be made. The flag is then clear, since memory can no longer be reclaimed
    /// either.
    pub(crate) fn rest(&self, pending: impl Fn() -> bool) -> Result<(), Unavailable> {
        if pending() {
            return Ok(());
        }
        self.set.store(false, Ordering::Relaxed);
        if !sites::REST_FENCE.is_weak() {
            // Pairs with the fence in `announce` (I1).
            asym::heavy()?;
        }
        if pending() {
            self.set.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}
