//! The interfaces of the torture: two, one that extends both, and one with parameters that is unrelated to them.

use squall::{CallError, Handle};

use super::board::Entry;

/// Who answered a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) serial: u64,
    pub(super) kind: Kind,
}

/// Which interface a representative was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Probe,
    Deep,
    Pair,
}

/// What a method is asked to do besides.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    /// Of the choices that are made inside.
    pub(super) seed: u64,
    /// How many calls may still be made one inside the other.
    pub(super) depth: u32,
    /// Whom the caller calls.
    pub(super) entry: &'a Entry,
}

/// The error of a method that has errors of its own.
#[derive(Debug)]
pub(super) enum Fault {
    /// The object is not there.
    Gone(CallError),
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Fault {
        Fault::Gone(error)
    }
}

/// What most objects of the torture can do.
#[squall::interface]
pub(super) trait Probe: Send + Sync {
    /// Looks at the representative, for so long, and touches nothing.
    fn look(&self, spins: u64) -> Reply;
    /// Adds to what `total` returns.
    fn add(&self, n: u64) -> Reply;
    /// All that was added.
    fn total(&self) -> u64;
    /// Tells the number of the object that each representative belongs to.
    fn each(&self, tell: &mut dyn FnMut(u64));
    /// Anything: other calls, its own destruction, a panic.
    fn touch(&self, request: Request<'_>) -> Reply;
    /// Stays for a while, asleep or waiting for grace periods.
    #[blocking]
    fn linger(&self, request: Request<'_>) -> Reply;
    /// Looks, and can say by itself that the object is gone.
    fn checked(&self) -> Result<Reply, Fault>;
}

/// What few objects can do. As the second super of an interface, its methods lie elsewhere than the first's do.
#[squall::interface]
pub(super) trait Mark: Send + Sync {
    /// Returns the complement of `n`.
    fn mark(&self, n: u64) -> (Reply, u64);
    /// As `Probe::linger`.
    #[blocking]
    fn dwell(&self, request: Request<'_>) -> Reply;
}

/// What some objects can do besides.
#[squall::interface]
pub(super) trait Deep: Probe + Mark {
    /// As `look`.
    fn depth(&self) -> Reply;
    /// As `linger`.
    #[blocking]
    fn rest(&self, request: Request<'_>) -> Reply;
}

/// An interface with parameters.
#[squall::interface]
pub(super) trait Pair<T: Copy + Send + Sync + 'static, const N: usize>: Send + Sync {
    /// Returns the values in the opposite order.
    fn turn(&self, values: [T; N]) -> (Reply, [T; N]);
    /// As `Probe::touch`.
    fn stir(&self, request: Request<'_>) -> Reply;
}

/// A reference to an object, as one of its interfaces.
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
