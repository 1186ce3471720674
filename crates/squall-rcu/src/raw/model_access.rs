//! Access to the protocol for the models of the crates above. They run over the shipped grace periods, in a
//! domain of their own. Exists only in model builds; not part of the public interface.

use squall_sys::sync::weaken::Site;
use std::ptr::NonNull;

use super::domain::Domain;
use super::moment::Moment;
use super::record::Record;
use super::sites;

/// The fence at the entry of an operation. Weakened, an operation protects no memory, so a model that frees
/// objects must fail.
pub const ENTER_FENCE: Site = sites::ENTER_FENCE;

/// A domain that belongs to one model.
pub struct Quiescence(Domain);

/// The record of one thread of the domain.
#[derive(Clone, Copy, Debug)]
pub struct Reader(NonNull<Record>);

// SAFETY: `Record` is `Sync`, and the contract of `Quiescence::op` says which thread may use it.
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
    /// Creates a domain without threads.
    pub fn new() -> Quiescence {
        Quiescence(Domain::new())
    }

    /// Creates a record for a thread.
    pub fn register(&self) -> Reader {
        Reader(NonNull::from(self.0.register(1, false)))
    }

    /// Runs `f` as an operation.
    ///
    /// # Safety
    /// The reader belongs to this domain, and one thread uses it at a time.
    pub unsafe fn in_operation<R>(&self, reader: Reader, f: impl FnOnce() -> R) -> R {
        // SAFETY: a record of this domain, which outlives this borrow (`registry/I1`).
        let record = unsafe { reader.0.as_ref() };
        let token = self.0.enter(record);
        let result = f();
        if record.leave(token) {
            let _ = self.0.leave_slow(record, token);
        }
        result
    }

    /// Returns the moment after which no operation can reach the objects that the caller has unlinked so far.
    pub fn mark(&self) -> u64 {
        self.0.grace.mark().0
    }

    /// Returns whether that moment has passed, after doing all work towards it that is possible without
    /// waiting.
    pub fn poll(&self, moment: u64) -> bool {
        self.0.grace.poll(&self.0.registry, Moment(moment)) == Ok(true)
    }
}
