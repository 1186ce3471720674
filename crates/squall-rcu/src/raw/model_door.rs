//! The protocol, opened to the models of the floors above: they run over the grace periods that ship, in a domain of
//! their own. Only in model builds; no part of the public interface.

use squall_sys::sync::weaken::Site;
use std::ptr::NonNull;

use super::domain::Domain;
use super::grace::Moment;
use super::record::Record;
use super::sites;

/// Weakened, an operation protects nothing: a model of objects that are freed must then fail.
pub const ENTER_FENCE: Site = sites::ENTER_FENCE;

/// A domain of a model's own.
pub struct Quiescence(Domain);

/// The record of one of its threads.
#[derive(Clone, Copy, Debug)]
pub struct Reader(NonNull<Record>);

// SAFETY: `Record` is `Sync`, and who may use it is said where it is used (`Quiescence::op`).
unsafe impl Send for Reader {}

impl std::fmt::Debug for Quiescence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quiescence").finish_non_exhaustive()
    }
}

impl Default for Quiescence {
    fn default() -> Quiescence {
        Quiescence::new()
    }
}

impl Quiescence {
    /// A domain without threads.
    pub fn new() -> Quiescence {
        Quiescence(Domain::new())
    }

    /// Makes a record for a thread.
    pub fn register(&self) -> Reader {
        Reader(NonNull::from(self.0.register(1, false)))
    }

    /// Runs `f` as an operation.
    ///
    /// # Safety
    /// The reader is of this domain, and one thread uses it at a time.
    pub unsafe fn op<R>(&self, reader: Reader, f: impl FnOnce() -> R) -> R {
        // SAFETY: a record of this domain, which outlives this borrow (`registry/I1`).
        let record = unsafe { reader.0.as_ref() };
        let token = self.0.enter(record);
        let result = f();
        if record.leave(token) {
            let _ = self.0.leave_slow(record, token);
        }
        result
    }

    /// The moment after which what the caller unlinked so far is out of every operation's reach.
    pub fn mark(&self) -> u64 {
        self.0.grace.mark().0
    }

    /// Whether that moment has passed; moves the work on as far as that is possible without waiting.
    pub fn poll(&self, moment: u64) -> bool {
        self.0.grace.poll(&self.0.registry, Moment(moment)) == Ok(true)
    }
}
