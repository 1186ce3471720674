//! Numbers of a dispatcher.

use std::cell::Cell;

/// Numbers of a dispatcher.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatcherStats {
    /// Requests that have no reply yet.
    pub requests: usize,
    /// Tasks, with those of the requests.
    pub tasks: usize,
    /// Calls of tasks that wait for their results.
    pub calls: usize,
    /// Tasks that ended by a panic.
    pub panics: u64,
    /// Messages that were dropped since they were not well formed.
    pub malformed: u64,
    /// Replies that were dropped since the mailboxes of their callers stayed full.
    pub unsent: u64,
    /// Steps of tasks that took longer than the limit of [`watch_steps`](crate::Dispatcher::watch_steps).
    pub long_steps: u64,
}

/// The numbers, as a dispatcher and its tasks count them.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) tasks: Cell<usize>,
    /// Tasks of requests, by class.
    pub(crate) handlers: [Cell<usize>; 4],
    /// Requests without a reply, by class.
    pub(crate) requests: [Cell<usize>; 4],
    /// Replies that were given up, since their mailboxes stayed full.
    pub(crate) unsent: Cell<u64>,
    /// Tasks that ended by a panic.
    pub(crate) panics: Cell<u64>,
    /// Messages that were not well formed.
    pub(crate) malformed: Cell<u64>,
    pub(crate) long_steps: Cell<u64>,
}

/// Adds 1 to a number.
pub(crate) fn count(number: &Cell<u64>) {
    number.set(number.get() + 1);
}
