//! Model tests of the shipped reader-writer lock, and their twins with one weakened site.

use super::marks::Registry;
use super::raw::{Entry, Raw};
#[cfg(loom)]
use super::sites;
use crate::steps::NoSteps;
use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::thread;
use squall_sys::trace::Subject;
use std::time::Instant;

struct Shared {
    raw: Raw<NoSteps>,
    registry: Registry,
    value: UnsafeCell<u32>,
    done: AtomicBool,
}

// SAFETY: the protocol under test keeps writer and readers apart, and the model checker verifies that.
unsafe impl Sync for Shared {}
// SAFETY: the protocol under test keeps writer and readers apart, and the model checker verifies that.
unsafe impl Send for Shared {}

impl Shared {
    fn new(fenced: bool) -> Arc<Shared> {
        #[cfg(loom)]
        let raw = Raw::new(fenced);
        #[cfg(not(loom))]
        let raw = {
            let _ = fenced;
            Raw::new()
        };
        let (registry, value, done) = (Registry::new(), UnsafeCell::new(0), AtomicBool::new(false));
        Arc::new(Shared { raw, registry, value, done })
    }

    /// Reads once, like a thread that reads for the first time. Returns whether it got in.
    fn read(&self, deadline: Option<Instant>) -> bool {
        let record = self.registry.take();
        let slot = record.claim(&self.registry);
        let inside = self.raw.mark(slot) || self.raw.enter(slot, deadline, Subject::NONE) == Entry::Inside;
        if inside {
            // SAFETY: see `Shared`.
            let value = self.value.with(|value| unsafe { *value });
            assert_ne!(value, 1, "half of a write was seen");
            self.done.store(true, Ordering::Relaxed);
            self.raw.leave(slot);
        }
        self.registry.give_back(record);
        inside
    }

    fn lock(&self) {
        assert_eq!(self.raw.lock(&self.registry, None, Subject::NONE), Entry::Inside);
    }

    /// Writes in two steps; a reader must not see the value between them.
    fn overwrite(&self) {
        // SAFETY: see `Shared`.
        self.value.with_mut(|value| unsafe { *value = 1 });
        thread::yield_now();
        // SAFETY: see `Shared`.
        self.value.with_mut(|value| unsafe { *value = 2 });
    }
}

fn reader(shared: &Arc<Shared>, deadline: Option<Instant>) -> thread::JoinHandle<bool> {
    let shared = shared.clone();
    thread::spawn(move || shared.read(deadline))
}

/// A reader on its first read, and a writer.
fn reader_and_writer(fenced: bool) {
    let shared = Shared::new(fenced);
    let reader = reader(&shared, None);
    shared.lock();
    shared.overwrite();
    shared.raw.unlock();
    assert!(reader.join().unwrap());
}

fn light() {
    reader_and_writer(false);
}

fn full() {
    reader_and_writer(true);
}

/// One slot is marked, cleared and marked again, as by a thread that reads twice.
fn reads_twice() {
    let shared = Shared::new(false);
    let twice = {
        let shared = shared.clone();
        thread::spawn(move || {
            let record = shared.registry.take();
            for _ in 0..2 {
                let slot = record.first();
                if shared.raw.mark(slot)
                    || shared.raw.enter(slot, Some(Instant::now()), Subject::NONE) == Entry::Inside
                {
                    // SAFETY: see `Shared`.
                    shared.value.with(|value| unsafe { *value });
                    shared.raw.leave(slot);
                }
            }
        })
    };
    shared.lock();
    shared.overwrite();
    shared.raw.unlock();
    twice.join().unwrap();
}

/// Another lock's mark stands in the slot where the writer looks for ours. The writes released with our mark
/// are not lost.
fn reads_another() {
    let shared = Shared::new(false);
    let other: Arc<Raw<NoSteps>> = Arc::new(
        #[cfg(loom)]
        Raw::new(false),
        #[cfg(not(loom))]
        Raw::new(),
    );
    let both = {
        let (shared, other) = (shared.clone(), other.clone());
        thread::spawn(move || {
            let slot = shared.registry.take().first();
            if shared.raw.mark(slot) {
                // SAFETY: see `Shared`.
                shared.value.with(|value| unsafe { *value });
                shared.raw.leave(slot);
                assert!(other.mark(slot), "the other lock has no writer");
                other.leave(slot);
            } else {
                shared.raw.leave(slot);
            }
        })
    };
    // The writer does not sleep. So the model holds without the fences that wake it, which would hide the
    // release.
    if shared.raw.lock(&shared.registry, Some(Instant::now()), Subject::NONE) == Entry::Inside {
        shared.overwrite();
        shared.raw.unlock();
    }
    both.join().unwrap();
}

/// A writer that gives up leaves the lock as it was. Afterwards readers do not wait for that writer.
fn writer_gives_up() {
    let shared = Shared::new(false);
    let reader = reader(&shared, None);
    if shared.raw.lock(&shared.registry, Some(Instant::now()), Subject::NONE) == Entry::Inside {
        shared.overwrite();
        shared.raw.unlock();
    }
    assert!(!shared.raw.has_writer());
    assert!(reader.join().unwrap());
}

/// A reader that gives up leaves no mark: later writers proceed.
fn reader_gives_up() {
    let shared = Shared::new(false);
    let reader = reader(&shared, Some(Instant::now()));
    for _ in 0..2 {
        shared.lock();
        shared.overwrite();
        shared.raw.unlock();
    }
    reader.join().unwrap();
}

/// A reader delayed by a writer goes in before the next writer.
fn readers_first() {
    let shared = Shared::new(false);
    shared.lock();
    let reader = reader(&shared, None);
    thread::yield_now();
    let waits = shared.raw.is_queued();
    shared.overwrite();
    shared.raw.unlock();
    shared.lock();
    assert!(!waits || shared.done.load(Ordering::Relaxed), "a writer overtook a reader that had waited");
    shared.raw.unlock();
    assert!(reader.join().unwrap());
}

use squall_sys::models;
models!(light, full, reads_twice, reads_another, writer_gives_up, reader_gives_up, readers_first);

#[cfg(loom)]
#[test]
fn twins() {
    use sites as s;
    let light = "rw::model::light::holds";
    let full = "rw::model::full::holds";
    for (site, masks, test) in [
        (s::ENTER_LIGHT, &[][..], light),
        (s::HEAVY, &[], light),
        (s::ENTER_ACQUIRE, &[], light),
        (s::UNLOCK_RELEASE, &[], light),
        (s::LEAVE_RELEASE, &[], light),
        (s::SCAN_ACQUIRE, &[], light),
        (s::LEAVE_LIGHT, &[s::LEAVE_FULL], light),
        (s::ENTER_FULL, &[s::ENTER_LIGHT], full),
        (s::LEAVE_FULL, &[s::LEAVE_LIGHT], full),
        (s::MARK_RELEASE, &[s::LEAVE_LIGHT, s::LEAVE_FULL], "rw::model::reads_another::holds"),
        (s::READERS_FIRST, &[], "rw::model::readers_first::holds"),
    ] {
        squall_sys::sync::weaken::twin(site, masks, test);
    }
}
