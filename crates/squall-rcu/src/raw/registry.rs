//! The registry: all records, and their assignment to threads.
//!
//! Problem: threads come and go by the thousand. At the same time the driver reads all records. Neither the
//! driver nor the threads may stop the other.
//!
//! - I1. A record, once made, is never freed or moved. A free record has no owner and shows no open
//!   operation.
//! - I2. A record is given to one thread at a time: a lock guards the free records. A thread never waits or
//!   runs user code while it holds that lock.
//! - I3. `for_each` visits every record whose chunk was published before it read the head of the list. The
//!   owner of a record in a later chunk had not entered an operation before that read. Its entry follows the
//!   heavy fence that the driver made first (`README.md` beside this file, step S2).
//!
//! Cost: registering and unregistering take the lock for a few instructions. Each thread costs one record.
//! The registry never shrinks: its size is the largest number of threads registered at once. `for_each` reads
//! one cache line per record.

use squall_sys::sync::Mutex;
use squall_sys::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::ptr;

use super::record::Record;
use super::sites;

/// Records allocated at a time.
const CHUNK_RECORDS: usize = if cfg!(loom) {
    1
} else if cfg!(miri) {
    2
} else {
    16
};

struct Chunk {
    records: [Record; CHUNK_RECORDS],
    next: *const Chunk,
}

/// All records of a domain.
pub(crate) struct Registry {
    newest: AtomicPtr<Chunk>,
    made: AtomicUsize,
    taken: AtomicUsize,
    free: Mutex<Vec<RecordRef>>,
}

/// A record that lives as long as the registry, which for the process-wide one is forever.
#[derive(Clone, Copy)]
struct RecordRef(*const Record);

// SAFETY: the pointer is a shared reference in disguise (I1), and `Record` is `Sync`.
unsafe impl Send for RecordRef {}

impl Registry {
    /// Creates a registry without records.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Registry {
        Registry {
            newest: AtomicPtr::new(ptr::null_mut()),
            made: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            free: Mutex::new(Vec::new()),
        }
    }

    /// Creates a registry without records.
    #[cfg(loom)]
    pub(crate) fn new() -> Registry {
        Registry {
            newest: AtomicPtr::new(ptr::null_mut()),
            made: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            free: Mutex::new(Vec::new()),
        }
    }

    /// Takes a record for the calling thread.
    pub(crate) fn take(&self, thread: u32, fenced: bool) -> &Record {
        let mut free = self.free.lock().unwrap_or_else(|poison| poison.into_inner());
        if free.is_empty() {
            self.grow(&mut free);
        }
        let record = free.pop().expect("the registry has no free record after it grew");
        self.taken.fetch_add(1, Ordering::Relaxed);
        drop(free);
        // SAFETY: records are never freed or moved (I1), and the registry outlives the borrow.
        let record = unsafe { &*record.0 };
        record.adopt(thread, fenced);
        record
    }

    /// Gives a record back. The caller has ended its operation and emptied its deferrals.
    pub(crate) fn give_back(&self, record: &Record) {
        record.release();
        self.taken.fetch_sub(1, Ordering::Relaxed);
        let mut free = self.free.lock().unwrap_or_else(|poison| poison.into_inner());
        free.push(RecordRef(record));
    }

    fn grow(&self, free: &mut Vec<RecordRef>) {
        let chunk = Box::new(Chunk {
            records: std::array::from_fn(|_| Record::new()),
            // Relaxed: only `grow` stores here, and the caller holds the lock.
            next: self.newest.load(Ordering::Relaxed),
        });
        let chunk = Box::into_raw(chunk);
        // SAFETY: just made, and freed only when the registry is dropped.
        let records = unsafe { &(*chunk).records };
        free.reserve(records.len());
        free.extend(records.iter().rev().map(|record| RecordRef(record)));
        self.made.fetch_add(CHUNK_RECORDS, Ordering::Relaxed);
        // Release: pairs with the acquire in `for_each`: a thread that sees the chunk sees its records fully
        // initialised.
        self.newest.store(chunk, sites::CHUNK_RELEASE.order(Ordering::Release));
    }

    /// Calls `f` with every record (I3).
    pub(crate) fn for_each<'a>(&'a self, mut f: impl FnMut(&'a Record)) {
        // Acquire: pairs with the release in `grow`.
        let mut chunk: *const Chunk = self.newest.load(Ordering::Acquire);
        // SAFETY: chunks are fully initialised when published, and live as long as the registry (I1).
        while let Some(this) = unsafe { chunk.as_ref() } {
            this.records.iter().for_each(&mut f);
            chunk = this.next;
        }
    }

    /// Returns the number of records made so far, and the number that belong to a thread now.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.made.load(Ordering::Relaxed), self.taken.load(Ordering::Relaxed))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let mut chunk = self.newest.load(Ordering::Relaxed).cast_const();
        while !chunk.is_null() {
            // SAFETY: made by `Box::into_raw` in `grow`, and visited once. `&mut self` proves that the chunk
            // is not borrowed.
            let this = unsafe { Box::from_raw(chunk.cast_mut()) };
            chunk = this.next;
        }
    }
}
