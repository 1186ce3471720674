//! Claims of well-known numbers: the interface that a number means, and the objects that are being installed.
//!
//! - I1. Only code of this crate runs while the lock of the claims is held.

use squall_sys::sync::{Mutex, MutexGuard};
use std::any::TypeId;

/// All claims. Only our own code runs under this lock (I1).
static CLAIMS: Mutex<Claims> = Mutex::new(Claims { meanings: Vec::new(), installing: Vec::new() });

pub(crate) struct Claims {
    /// The meaning of each claimed number, in no order.
    pub(crate) meanings: Vec<(u32, Claim)>,
    /// The first numbers of objects that are being built.
    pub(crate) installing: Vec<u32>,
}

/// The meaning of a number. An object takes one number for each interface, from `first` on. `interface` and
/// `name` belong to the interface that was claimed at `first`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) interface: TypeId,
    pub(crate) name: &'static str,
    pub(crate) first: u32,
}

/// Runs `f`, which ends an object, while no lookup of a well-known object is in progress.
pub(crate) fn exclude_lookups(f: impl FnOnce()) {
    let _claims = lock();
    f();
}

pub(crate) fn lock() -> MutexGuard<'static, Claims> {
    // The claims are never half changed under this lock.
    CLAIMS.lock().unwrap_or_else(|poison| poison.into_inner())
}
