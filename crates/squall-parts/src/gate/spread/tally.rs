//! The counts of a request counter that is spread over processors.
//!
//! A count may have a *gate*, which the control opens and closes. At a gate, adding one and checking for
//! permission are a single step. Without a gate, a request adds one and then reads a state. The contract of
//! [`Tally`] lists the requirements.

use squall_machine::asym::Unavailable;
use squall_sys::sync::atomic::Ordering;

/// A count that only grows. A new one has a closed gate, or no gate.
///
/// # Example
/// ```
/// use squall::parts::gate::Tally;
/// use std::sync::atomic::AtomicU64;
///
/// let tally = AtomicU64::new(0); // a count without a gate
/// tally.count();
/// assert!(!tally.count_at_gate());
/// assert_eq!(tally.read(), 1);
/// ```
pub trait Tally: Send + Sync + Sized {
    /// Adds one, whether the gate is open or closed. Needs no memory ordering.
    fn count(&self);

    /// Adds one and returns true, if the gate is open and counting there is cheap on this processor.
    /// Otherwise returns false without adding. On success the caller sees all writes made before the gate
    /// was opened.
    #[must_use = "if false, nothing was added, and the caller must count otherwise"]
    #[inline(always)]
    fn count_at_gate(&self) -> bool {
        false
    }

    /// Opens the gate, if there is one.
    fn open(&self) {}

    /// Closes the gate, if there is one. A thread may still add to the count at the gate until
    /// [`finish_closing`](Tally::finish_closing) has returned.
    fn close(&self) {}

    /// Waits until no thread counts at the gates in `closed` any more. The caller has closed these gates
    /// before, and no thread opens them meanwhile. Afterwards the caller's reads include everything counted
    /// there.
    ///
    /// # Errors
    /// [`Unavailable`] if the system can no longer guarantee this.
    fn finish_closing<'a>(closed: impl Iterator<Item = &'a Self>) -> Result<(), Unavailable>
    where
        Self: 'a,
    {
        let _ = closed;
        Ok(())
    }

    /// Returns the count. It includes at least the additions that happened before this call.
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

/// A count without a gate.
impl Tally for squall_sys::sync::atomic::AtomicU64 {
    fn count(&self) {
        // Relaxed: the contract of `Tally` asks for no ordering.
        self.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }
}
