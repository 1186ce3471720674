//! Model tests of the shipped read-biased lock, and their twins with one weakened site.

use super::bias::{ReadBias, Reader};
use super::marks::Registry;
#[cfg(loom)]
use super::sites;
use crate::lock::LockGuard;
use crate::records::LockType;
use crate::steps::NoSteps;
use squall_sys::sync::Arc;
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::thread;
use squall_sys::trace::Subject;
use std::time::Instant;

struct Shared {
    bias: ReadBias<NoSteps>,
    registry: Registry,
    value: UnsafeCell<u32>,
}

// SAFETY: the protocol under test keeps writer and readers apart, and the model checker verifies that.
unsafe impl Sync for Shared {}
// SAFETY: the protocol under test keeps writer and readers apart, and the model checker verifies that.
unsafe impl Send for Shared {}

impl Shared {
    fn new(fenced: bool, biased: bool) -> Arc<Shared> {
        #[cfg(loom)]
        let bias = ReadBias::new(fenced, biased);
        #[cfg(not(loom))]
        let bias = {
            let _ = (fenced, biased);
            ReadBias::new()
        };
        let shared = Arc::new(Shared { bias, registry: Registry::new(), value: UnsafeCell::new(0) });
        while biased && !shared.bias.is_biased() {
            assert!(shared.read(None).is_some());
        }
        shared
    }

    /// Reads once, like a thread that reads for the first time. Returns the value, if it got in.
    fn read(&self, deadline: Option<Instant>) -> Option<u32> {
        let record = self.registry.take();
        let reader = match self.bias.mark_first(record) {
            Ok(reader) => Some(reader),
            Err(false) if self.bias.count_first() => Some(Reader::Counted),
            Err(marked) => self.bias.enter(marked, record, &self.registry, deadline, Subject::NONE),
        };
        let value = reader.map(|reader| self.see(reader));
        self.registry.give_back(record);
        value
    }

    /// Reads the value as a reader that is inside, and leaves.
    fn see(&self, reader: Reader<'_>) -> u32 {
        // SAFETY: see `Shared`.
        let value = self.value.with(|value| unsafe { *value });
        assert_eq!(value % 2, 0, "half of a write was seen");
        self.bias.leave(reader);
        value
    }

    /// Writes once. Returns whether it got in.
    fn write(&self, deadline: Option<Instant>) -> bool {
        self.write_in_turn(deadline).is_some()
    }

    /// Writes in two steps, between which a reader must not see the value. Returns the turn. Loom finds the
    /// reader without a yield between the steps, and with one would always run the reader there.
    fn write_in_turn(&self, deadline: Option<Instant>) -> Option<LockGuard<'_, (), NoSteps>> {
        let turn = self.bias.writers().lock_in(LockType::RwTurn, self);
        let turn = self.bias.lock(turn, &self.registry, deadline, Subject::NONE)?;
        for _ in 0..2 {
            // SAFETY: see `Shared`.
            self.value.with_mut(|value| unsafe { *value += 1 });
            #[cfg(not(loom))]
            thread::yield_now();
        }
        assert!(!self.bias.is_biased());
        self.bias.unlock();
        Some(turn)
    }
}

fn reader(shared: &Arc<Shared>, deadline: Option<Instant>) -> thread::JoinHandle<Option<u32>> {
    let shared = shared.clone();
    thread::spawn(move || shared.read(deadline))
}

/// A counted reader, which makes the lock biased, and a writer.
fn counted() {
    let shared = Shared::new(false, false);
    let reader = reader(&shared, None);
    assert!(shared.write(None));
    assert!(reader.join().unwrap().is_some());
}

/// A reader that finds the bias, a write that ends it, and a write that reads no marks.
fn revoked(fenced: bool) {
    let shared = Shared::new(fenced, true);
    let reader = reader(&shared, None);
    assert!(shared.write(None) && shared.write(None));
    assert!(reader.join().unwrap().is_some());
}

fn light() {
    revoked(false);
}

fn full() {
    revoked(true);
}

/// A reader by its mark sees the writes before the bias, which another reader set. No thread waits.
fn biased_again() {
    let shared = Shared::new(false, false);
    let spawn = |read: fn(&Shared)| {
        let shared = shared.clone();
        thread::spawn(move || read(&shared))
    };
    let counts = spawn(|shared| {
        if shared.bias.count_first() {
            shared.see(Reader::Counted);
        }
    });
    let marks = spawn(|shared| {
        let record = shared.registry.take();
        match shared.bias.mark_first(record) {
            Ok(reader) => _ = shared.see(reader),
            Err(true) => shared.bias.unmark(record.first()),
            Err(false) => {}
        }
    });
    // The release of the turn has a fence, which would hide the orderings of the word.
    let _turn = shared.write_in_turn(Some(Instant::now()));
    counts.join().unwrap();
    marks.join().unwrap();
}

/// A thread that counts itself, and then marks itself in the biased lock.
fn reads_twice() {
    let shared = Shared::new(false, false);
    let twice = {
        let shared = shared.clone();
        thread::spawn(move || (shared.read(None), shared.read(None)))
    };
    assert!(shared.write(None));
    let (first, second) = twice.join().unwrap();
    assert!(first.is_some() && first <= second);
}

/// A writer that gives up keeps the bias, and waits for the marks at its next attempt.
fn writer_gives_up() {
    let shared = Shared::new(false, true);
    let reader = reader(&shared, None);
    if !shared.write(Some(Instant::now())) {
        assert!(!shared.bias.has_writer() && shared.bias.is_biased());
        assert!(shared.write(None));
    }
    assert!(reader.join().unwrap().is_some());
}

/// A reader that gives up leaves neither a mark nor a count: later writers proceed.
fn reader_gives_up() {
    let shared = Shared::new(false, true);
    let reader = reader(&shared, Some(Instant::now()));
    assert!(shared.write(None) && shared.write(None));
    reader.join().unwrap();
}

use squall_sys::models;
models!(counted, light, full, biased_again, reads_twice, writer_gives_up, reader_gives_up);

#[cfg(loom)]
#[test]
fn twins() {
    use sites as s;
    let twin = |site, masks: &[_], model: &str| {
        squall_sys::sync::weaken::twin(site, masks, &format!("rw::bias_model::{model}::holds"));
    };
    for (site, masks, model) in [
        (s::COUNT_ACQUIRE, &[][..], "counted"),
        (s::COUNT_RELEASE, &[], "counted"),
        (s::COUNT_SEEN, &[], "counted"),
        (s::COUNT_SIGNAL, &[], "counted"),
        (s::ANNOUNCE, &[], "counted"),
        (s::UNLOCK_RELEASE, &[], "counted"),
        (s::REVOKE, &[], "light"),
        (s::UNBIASED_SEEN, &[], "light"),
        (s::ENTER_LIGHT, &[], "light"),
        (s::HEAVY, &[], "light"),
        (s::ENTER_FULL, &[s::ENTER_LIGHT], "full"),
        (s::UNLOCK_RELEASE, &[], "biased_again"),
        (s::COUNT_ACQUIRE, &[], "biased_again"),
    ] {
        twin(site, masks, model);
    }
}
