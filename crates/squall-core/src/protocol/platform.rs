//! The platform of the protocol: the tables and grace periods it stands on, which a model replaces by small ones.

use squall_machine::park::EventCount;
use squall_sys::sync::atomic::AtomicPtr;
use std::ptr::NonNull;

use super::header::Header;
use super::object::Object;
use super::slot::Slot;

/// What follows a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Look whether calls still hold the object ([`is_held`](super::object::is_held)).
    Quiet,
    /// Drop its representatives ([`Class::more`](super::class::Class)).
    Finish,
}

/// What the protocol stands on: tables and grace periods.
pub(crate) trait Platform {
    /// The entry of `slot` in the table of `vp`.
    fn entry(&self, vp: usize, slot: u32) -> &AtomicPtr<Header>;
    /// The global slot.
    fn slot(&self, slot: u32) -> &Slot;
    /// VPs are below it.
    fn vp_limit(&self) -> usize;
    /// Does `stage` with the object after a grace period that begins after this call.
    fn after_grace_period(&self, object: NonNull<Object>, stage: Stage);
    /// Where those sleep who wait for a swap of the object in this slot, and the swap itself. Others may sleep there too.
    fn sleepers(&self, slot: u32) -> &EventCount;
}
