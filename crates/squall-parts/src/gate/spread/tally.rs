//! What counts for a request counter that is spread over processors.
//!
//! A count may have a *gate*, which the control opens and closes, and at which counting and asking whether one may are one step.
//! Without one, who counts looks at a state afterwards. What must be kept is in the contract of [`Tally`].

use squall_machine::asym::Unavailable;
use squall_sys::sync::atomic::Ordering;

/// Something that counts up. A new one has a closed gate, or none.
pub trait Tally: Send + Sync + Sized {
    /// Adds one, whether the gate is open or not. No order is asked for.
    fn count(&self);

    /// Adds one if the gate is open, and it is cheap here; else does nothing, and says so. Who comes through sees what was done
    /// before the gate was opened.
    #[must_use = "nothing was added"]
    #[inline(always)]
    fn count_at_gate(&self) -> bool {
        false
    }

    /// Opens the gate, if there is one.
    fn open(&self) {}

    /// Closes it. Who is about to count there may still do so, until [`finish_closing`](Tally::finish_closing) has returned.
    fn close(&self) {}

    /// When this returns, nobody counts at the gates of these any more, which were closed before and are not opened meanwhile;
    /// what was counted there is in what the caller reads.
    ///
    /// # Errors
    /// [`Unavailable`] if that can no longer be had.
    fn finish_closing<'a>(closed: impl Iterator<Item = &'a Self>) -> Result<(), Unavailable>
    where
        Self: 'a,
    {
        let _ = closed;
        Ok(())
    }

    /// What was added by now: at least what happened before.
    fn read(&self) -> u64;
}

#[cfg(not(loom))]
impl Tally for squall_machine::pervp::GatedWord {
    fn count(&self) {
        self.count();
    }

    #[inline(always)]
    fn count_at_gate(&self) -> bool {
        self.count_at_gate()
    }

    fn open(&self) {
        self.open();
    }

    fn close(&self) {
        self.close();
    }

    fn finish_closing<'a>(_: impl Iterator<Item = &'a Self>) -> Result<(), Unavailable> {
        Self::finish_closing()
    }

    fn read(&self) -> u64 {
        self.load()
    }
}

/// Without a gate.
impl Tally for squall_sys::sync::atomic::AtomicU64 {
    fn count(&self) {
        // Relaxed: by contract.
        self.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }
}
