//! The platform under the protocol: its tables and grace periods. A model implements it with small ones.

use squall_machine::park::EventCount;
use squall_sys::sync::atomic::AtomicPtr;
use std::ptr::NonNull;

use super::header::Header;
use super::object::Object;
use super::slot::Slot;

/// The next stage of a destruction, after a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Check whether calls still hold the object ([`is_held`](super::object::is_held)).
    Quiet,
    /// Drop the representatives ([`Class::more`](super::class::Class)).
    Finish,
}

/// The tables and grace periods under the protocol.
pub(crate) trait Platform {
    /// Returns the entry of `slot` in the table of `vp`.
    fn entry(&self, vp: usize, slot: u32) -> &AtomicPtr<Header>;
    /// Returns the slot of the global table.
    fn slot(&self, slot: u32) -> &Slot;
    /// Returns the exclusive upper bound of VP numbers.
    fn vp_limit(&self) -> usize;
    /// Runs `stage` on the object after a grace period that begins after this call.
    fn after_grace_period(&self, object: NonNull<Object>, stage: Stage);
    /// Returns the event count on which the swap of the object in this slot sleeps, and the calls that wait
    /// for the swap. Threads that wait for other slots may sleep there too.
    fn sleepers(&self, slot: u32) -> &EventCount;
}
