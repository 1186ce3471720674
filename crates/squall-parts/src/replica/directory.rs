//! Directories: the places with copies of an object that a latch protects, such as a page.
//!
//! Problem: readers of a large object use a copy near them. Yet no reader may have a copy while a writer
//! changes the object, or a copy that is older than the last change. Idea: object and copies have a
//! reader-writer latch each. A copy is made under the object's latch for reading. A writer takes the object's
//! latch for writing, and takes all copies away before it writes. The directory, beside the object, has the
//! places with copies.
//!
//! - I1. A copy is made, latched for writing, and published ([`Directory::publish`]) while its maker holds
//!   the object's latch for reading. A thread with the object's latch for writing thus excludes makers. It
//!   finds each copy at a place in the directory.
//! - I2. A thread with the object's latch for writing takes the copies away, each under the copy's latch for
//!   writing ([`Directory::recall`]). So a reader of a copy excludes writers of the object, and a copy has
//!   the object's contents while it is read.
//! - I3. An object ends without its latch, for example when its page is cut off a file ([`Directory::end`]).
//!   After that, no reader gets a copy. *Argument.* A copy at a place in the directory is unlinked by the
//!   ending thread. Otherwise its maker sees the end (places/I2), and takes the copy away before it releases
//!   the copy's latch. If a recall has cleared the directory, it had taken the copies away before, under
//!   their latches. A reader that got a copy before the end keeps it.
//! - I4. Any thread may take a copy away under the copy's latch for writing, without the object's latch. Its
//!   place stays in the directory.
//!
//! Required of the places: insertions and removals are atomic, and a thread that finds a copy sees the writes
//! before its insertion.
//!
//! Progress: a recall waits for the readers of copies, as a writer waits for the object's readers. Other
//! operations wait for no thread.
//! Cost: a copy costs a read-modify-write of the directory, and a fence. A read of a copy runs no code here.
//! A recall without copies is one load.
//! Source: HU-15 and HU-16 (Hurricane, §4.3): the page directory, and page copies in clusters; the protocol
//! of latches is ours.

use std::fmt;

use super::places::{Places, Presence};
use super::sites;

/// The result of [`Directory::publish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a copy that was not published is to be taken away"]
pub enum Published {
    /// Readers find the copy when its latch is released.
    Stays,
    /// The place has another copy.
    Occupied,
    /// The object has ended. The maker takes the copy away from its place before it releases the copy's
    /// latch.
    Ended,
}

/// The places with copies of an object that a latch protects. See the module header of `directory.rs`.
///
/// ```
/// use squall::lock::ReadBiasedRwLock;
/// use squall::parts::replica::{Directory, Published};
/// use squall::parts::table::Table;
/// use std::sync::Arc;
///
/// let (object, directory) = (ReadBiasedRwLock::new(7), Directory::new());
/// let places: [Table<u64, Arc<ReadBiasedRwLock<Option<i32>>>>; 2] = Default::default();
/// // A reader makes a copy at place 1.
/// let original = object.read();
/// let copy = Arc::new(ReadBiasedRwLock::new(Some(*original)));
/// let latch = copy.write();
/// let published = directory.publish(1, || places[1].try_insert(0, copy.clone()).is_ok());
/// assert_eq!(published, Published::Stays);
/// drop((latch, original));
/// // A writer takes it away.
/// let mut changed = object.write();
/// let gone = directory.recall(2, |place| {
///     places[place].read(&0, |copy| *copy.write() = None);
///     places[place].delete(&0)
/// });
/// *changed = 8;
/// assert!(gone && *copy.read() == None && directory.places().is_empty());
/// ```
#[derive(Default)]
pub struct Directory(Presence);

impl Directory {
    /// Returns an empty directory.
    pub fn new() -> Directory {
        Directory::default()
    }

    /// Returns the places that may have copies.
    pub fn places(&self) -> Places {
        self.0.all()
    }

    /// Adds a copy at a place. `insert` stores it there, and returns false if the place has another copy.
    ///
    /// The caller holds the object's latch for reading and the copy's latch for writing (I1).
    pub fn publish(&self, place: usize, insert: impl FnOnce() -> bool) -> Published {
        self.0.announce(place);
        if !insert() {
            Published::Occupied
        } else if self.0.is_here_still() {
            Published::Stays
        } else {
            Published::Ended
        }
    }

    /// Takes the copies away, of places below `count`. `take` does so at one place: it takes the copy away
    /// under the copy's latch for writing, and then removes it from the place. The place may have no copy.
    /// If `take` returns false, a copy stays, and so do the places. Returns whether all copies are gone.
    ///
    /// The caller holds the object's latch for writing (I2).
    pub fn recall(&self, count: usize, mut take: impl FnMut(usize) -> bool) -> bool {
        let places = self.places();
        if places.is_empty() {
            return true;
        }
        if sites::CLEAR_LAST.is_weak() {
            self.0.clear();
        }
        let forgotten = usize::from(sites::RECALL_ALL.is_weak());
        if !places.below(count).skip(forgotten).all(&mut take) {
            return false;
        }
        self.0.clear();
        true
    }

    /// Ends the object, once. `unlink` removes the copy from a place, without its latch.
    pub fn end(&self, count: usize, unlink: impl FnMut(usize)) {
        if let Some(places) = self.0.end() {
            places.below(count).for_each(unlink);
        }
    }

    /// Returns whether the object has ended.
    pub fn has_ended(&self) -> bool {
        self.0.is_gone()
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("places", &self.places()).finish_non_exhaustive()
    }
}
