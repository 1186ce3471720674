//! The flag by which whoever defers tells the reclaimer that there is work, at no cost while it is known already.
//!
//! - I1. If something is pending once an owner has announced it and the reclaimer has gone to rest, the flag is set: it
//!   was set already, or the owner was told to set it, or the reclaimer has set it again.
//!
//! Argument: owner: make it pending, fence, look at the flag; reclaimer: clear the flag, heavy fence, look at what is
//! pending. By `asym/I1` at least one sees the other's store. (In fence mode the owner's fence is a full one.)
//!
//! Cost: announcing is a compiler fence and a load. Source: as of the driver's sleep, `README.md` beside this file.

use squall_machine::asym::{self, Unavailable};
use squall_sys::sync::atomic::{AtomicBool, Ordering};

use super::sites;

/// See the module.
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

    /// Something is pending now. Returns whether the caller must [`Work::claim`] and wake the reclaimer.
    #[must_use]
    pub(crate) fn announce(&self, fenced: bool) -> bool {
        if !sites::ANNOUNCE_FENCE.is_weak() {
            // Partner: the heavy fence in `rest` (I1).
            asym::light_or_full(fenced);
        }
        !self.set.load(Ordering::Relaxed)
    }

    /// Sets the flag. Returns whether it was not set: of several threads that come here, one wakes the reclaimer.
    pub(crate) fn claim(&self) -> bool {
        // AcqRel: pairs with itself, and with the acquire in `is_set`.
        !self.set.swap(true, Ordering::AcqRel)
    }

    /// Whether there may be work.
    pub(crate) fn is_set(&self) -> bool {
        // Acquire: pairs with the release in `claim`.
        self.set.load(Ordering::Acquire)
    }

    /// Clears the flag though something may be pending: nothing can be done about it now.
    pub(crate) fn give_up(&self) {
        self.set.store(false, Ordering::Relaxed);
    }

    /// Clears the flag unless something is pending.
    ///
    /// # Errors
    /// The heavy fence cannot be made; the flag is cleared, since nothing can be reclaimed any more either.
    pub(crate) fn rest(&self, pending: impl Fn() -> bool) -> Result<(), Unavailable> {
        if pending() {
            return Ok(());
        }
        self.set.store(false, Ordering::Relaxed);
        if !sites::REST_FENCE.is_weak() {
            // Partner: the fence in `announce` (I1).
            asym::heavy()?;
        }
        if pending() {
            self.set.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}
