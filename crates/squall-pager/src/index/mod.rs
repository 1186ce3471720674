//! The index of a file cache: from the number of a page to its slot. The forms of the cache differ in it
//! alone.
//!
//! - I1. A number has one slot at a time, or one reservation. The holder of the reservation fills the page,
//!   and other callers wait for it.
//! - I2. A lookup of a resident page writes no memory that another representative writes, except in the form
//!   `one_lock`.
//!
//! Source: Appavoo 2005, §4.1.4.

mod dhash;
mod one_lock;

pub(crate) use dhash::{Partitioned, Replicated};
pub(crate) use one_lock::OneLock;

use squall_rcu::Guard;
use std::sync::Arc;

use crate::error::PageFault;
use crate::slot::{Entry, Slot};

/// The answer of [`Index::reserve`].
pub(crate) enum Lookup {
    Found(Arc<Slot>),
    /// The caller fills the page.
    Reserved(Box<dyn Reservation>),
    /// Another caller fills the page.
    Busy,
}

/// A page that its holder fills. Dropping it leaves the page absent.
pub(crate) trait Reservation: Send {
    /// Makes the page present. Returns the entry if the index was dropped meanwhile.
    fn fill(self: Box<Self>, entry: Entry) -> Result<(), Entry>;
    /// Leaves the page absent, and passes the error to the callers that wait.
    fn fail(self: Box<Self>, error: PageFault);
}

/// A position in a walk over an index.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    /// The partition.
    pub(crate) part: usize,
    /// The position in it.
    pub(crate) within: u64,
}

/// An index, in the root of a cache.
pub(crate) trait Index: Send + Sync + 'static {
    /// The part in a representative.
    type Local: Send + Sync + 'static;
    /// Whether the index is for several processors.
    const IS_WIDE: bool;

    fn local(&self) -> Self::Local;

    /// Returns the slot of a resident page for the rest of the operation.
    fn find<'o>(&self, local: &Self::Local, guard: &'o Guard, number: u64) -> Option<&'o Slot>;

    /// Returns the slot of a page, or reserves the page. Waits if another caller fills it and `wait` is true.
    fn reserve(&self, local: &Self::Local, number: u64, wait: bool) -> Result<Lookup, PageFault>;

    /// Adds an entry before the index is in use.
    fn insert(&self, number: u64, entry: Entry);

    /// Removes this slot. Returns false if the page has another one, or is absent. Waits for no fill.
    fn remove(&self, slot: &Slot) -> bool;

    /// Visits some entries, from this position on. Returns the position of the next ones.
    fn visit(&self, from: Position, f: &mut dyn FnMut(u64, &Entry)) -> Option<Position>;

    /// Returns the approximate number of entries.
    fn len(&self) -> usize;
}
