//! The interfaces of the objects: one, and one that it extends, so that an object has two slots.

use super::arbiters::ArbiterTrace;
use super::caller::CallContext;
use super::marks::Sums;
use super::record::ObjectRecord;

/// The answering object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// The number of the object; 0 while the implementation does not know it.
    pub(super) serial: u64,
    /// The arbiter that the call passed.
    pub(super) trace: ArbiterTrace,
    /// Whether the call left its mark. A call that slept until the object ended did not.
    pub(super) left: bool,
}

/// The mark of a call: its object, its thread and its number.
#[derive(Clone, Copy)]
pub(super) struct Mark<'a> {
    pub(super) record: &'a std::sync::Arc<ObjectRecord>,
    pub(super) lane: usize,
    pub(super) number: u64,
}

/// The side action that a call requests.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) mark: Mark<'a>,
    pub(super) context: &'a CallContext<'a>,
    pub(super) act: Act,
    /// Remaining depth of nested calls.
    pub(super) depth: u32,
}

/// A side action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    Spin(u64),
    Yield,
    /// Sleeps for this many microseconds.
    Sleep(u64),
    /// Calls the next object of the chain.
    Next,
    /// Panics before it leaves its mark.
    PanicFirst,
    /// Panics after it left its mark.
    PanicLast,
    /// Creates an object, calls it on several VPs, and destroys it.
    Create,
    /// Destroys an object, perhaps its own.
    Destroy,
    /// Discards tables.
    Discard,
    /// Wakes the sleepers in the object.
    Wake,
    /// Asks for a swap of its own object, which must be refused.
    SwapOwn,
    /// Asks for a swap of another object, which is refused inside an operation.
    SwapOther,
}

/// The super-interface.
#[squall::interface]
pub(super) trait Station: Send + Sync {
    /// Leaves a mark.
    fn mark(&self, mark: Mark<'_>) -> Reply;
    /// Returns the count, the last number and the sum of a lane's marks.
    fn audit(&self, lane: usize) -> (Reply, Sums);
}

/// The interface of the objects.
#[squall::interface]
pub(super) trait Relay: Station {
    /// Leaves a mark, runs the side action, and leaves another mark.
    fn pass(&self, request: Request<'_>) -> Reply;
    /// Like `pass`, but outside every operation.
    #[blocking]
    fn linger(&self, request: Request<'_>) -> Reply;
    /// Sleeps, in objects with several representatives, until it is woken or the object ends, and then leaves
    /// a mark. After a swap the call is made again.
    #[blocking]
    fn rest(&self, mark: Mark<'_>) -> Reply;
}
