//! The interfaces of the objects: two, one that extends both, and an unrelated one with parameters.

use squall::{CallError, Handle};

use super::board::Entry;

/// The answering object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) serial: u64,
    pub(super) kind: Kind,
}

/// The interface that a representative was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Probe,
    Deep,
    Pair,
}

/// The side actions that a call requests.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    /// Seed of the choices inside.
    pub(super) seed: u64,
    /// Remaining depth of nested calls.
    pub(super) depth: u32,
    /// The object that the caller calls.
    pub(super) entry: &'a Entry,
}

/// The error of a method with its own error type.
#[derive(Debug)]
pub(super) enum Fault {
    /// The object is gone.
    Gone(CallError),
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Fault {
        Fault::Gone(error)
    }
}

/// The interface of most objects.
#[squall::interface]
pub(super) trait Probe: Send + Sync {
    /// Checks the representative for `spins` spins and writes no data.
    fn look(&self, spins: u64) -> Reply;
    /// Adds to the sum that `total` returns.
    fn add(&self, n: u64) -> Reply;
    /// Returns the sum of all additions.
    fn total(&self) -> u64;
    /// Reports the object number of each representative.
    fn each(&self, tell: &mut dyn FnMut(u64));
    /// Runs any action: other calls, its own destruction, a panic.
    fn touch(&self, request: Request<'_>) -> Reply;
    /// Stays for a while, asleep or waiting for grace periods.
    #[blocking]
    fn linger(&self, request: Request<'_>) -> Reply;
    /// Checks the representative, and returns an error of its own type if the object is gone.
    fn checked(&self) -> Result<Reply, Fault>;
}

/// The interface of few objects. As the second super-interface, its methods have another offset than the
/// first's.
#[squall::interface]
pub(super) trait Mark: Send + Sync {
    /// Returns the complement of `n`.
    fn mark(&self, n: u64) -> (Reply, u64);
    /// Like `Probe::linger`.
    #[blocking]
    fn dwell(&self, request: Request<'_>) -> Reply;
}

/// The extended interface.
#[squall::interface]
pub(super) trait Deep: Probe + Mark {
    /// Like `look`.
    fn depth(&self) -> Reply;
    /// Like `linger`.
    #[blocking]
    fn rest(&self, request: Request<'_>) -> Reply;
}

/// An interface with parameters.
#[squall::interface]
pub(super) trait Pair<T: Copy + Send + Sync + 'static, const N: usize>: Send + Sync {
    /// Returns the values in the opposite order.
    fn turn(&self, values: [T; N]) -> (Reply, [T; N]);
    /// Like `Probe::touch`.
    fn stir(&self, request: Request<'_>) -> Reply;
}

/// A handle of one of the interfaces.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnyHandle {
    Probe(Handle<dyn Probe>),
    Deep(Handle<dyn Deep>),
    Pair(Handle<dyn Pair<u64, 3>>),
}

impl AnyHandle {
    pub(super) fn kind(&self) -> Kind {
        match self {
            AnyHandle::Probe(_) => Kind::Probe,
            AnyHandle::Deep(_) => Kind::Deep,
            AnyHandle::Pair(_) => Kind::Pair,
        }
    }
}
