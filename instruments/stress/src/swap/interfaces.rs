//! The interfaces of the torture: one, and one that it extends, so that an object lies in two slots.

use super::caller::CallContext;
use super::record::ObjectRecord;
use super::marks::Sums;
use super::arbiters::ArbiterTrace;

/// Who answered a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// The number of the object; 0 while it does not know it.
    pub(super) serial: u64,
    /// The arbiter that the call met.
    pub(super) trace: ArbiterTrace,
    /// Whether it has left its mark. A call that slept until the object ended has not.
    pub(super) left: bool,
}

/// A call that leaves a mark: whose it is, and which of theirs.
#[derive(Clone, Copy)]
pub(super) struct Mark<'a> {
    pub(super) record: &'a std::sync::Arc<ObjectRecord>,
    pub(super) lane: usize,
    pub(super) number: u64,
}

/// What a method does besides.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) mark: Mark<'a>,
    pub(super) context: &'a CallContext<'a>,
    pub(super) act: Act,
    /// How many calls may still be made one inside the other.
    pub(super) depth: u32,
}

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    Spin(u64),
    Yield,
    /// Sleeps for so many microseconds.
    Sleep(u64),
    /// Calls the next object of the chain.
    Next,
    /// Panics before it leaves its mark.
    PanicFirst,
    /// Panics after.
    PanicLast,
    /// Creates an object, calls it on several VPs, and destroys it.
    Create,
    /// Destroys an object, perhaps its own.
    Destroy,
    /// Throws tables away.
    Discard,
    /// Wakes those that sleep in the object.
    Wake,
    /// Asks for a swap of its own object, which must be refused.
    SwapOwn,
    /// Asks for a swap of another object: refused inside an operation.
    SwapOther,
}

/// What the objects of the torture can do.
#[squall::interface]
pub(super) trait Station: Send + Sync {
    /// Leaves a mark.
    fn mark(&self, mark: Mark<'_>) -> Reply;
    /// What is known of a lane: how many marks, the last number, their sum.
    fn audit(&self, lane: usize) -> (Reply, Sums);
}

/// What they can do besides.
#[squall::interface]
pub(super) trait Relay: Station {
    /// Leaves a mark, does something, and leaves another one at the end.
    fn pass(&self, request: Request<'_>) -> Reply;
    /// The same, outside every operation.
    #[blocking]
    fn linger(&self, request: Request<'_>) -> Reply;
    /// Sleeps until it is woken or the object ends, where there are representatives; then leaves a mark. It is made again
    /// where a swap comes.
    #[blocking]
    fn rest(&self, mark: Mark<'_>) -> Reply;
}
