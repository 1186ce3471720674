//! The claims of well-known numbers: which interface a number means, and which objects are being installed.
//!
//! - I1. Only code of this crate runs while the lock of the claims is held.

use squall_sys::sync::{Mutex, MutexGuard};
use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};

/// Who has which numbers. No code but ours runs under this lock.
static CLAIMS: Mutex<Claims> = Mutex::new(Claims { meanings: BTreeMap::new(), installing: BTreeSet::new() });

pub(crate) struct Claims {
    /// What each number means (I1).
    pub(crate) meanings: BTreeMap<u32, Claim>,
    /// The first numbers of objects that are being built.
    pub(crate) installing: BTreeSet<u32>,
}

/// The meaning of a number: the interface that was asked for at `first`, this one or one before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) interface: TypeId,
    pub(crate) name: &'static str,
    pub(crate) first: u32,
}

/// Runs `f`, which ends an object, while nobody looks at what is there.
pub(crate) fn exclude_lookups(f: impl FnOnce()) {
    let _claims = lock();
    f();
}

pub(crate) fn lock() -> MutexGuard<'static, Claims> {
    // Nothing is left half done under this lock.
    CLAIMS.lock().unwrap_or_else(|poison| poison.into_inner())
}
