//! Logs of the case `monitor`: their interface, and rivals that use one bounded buffer for all threads.
//!
//! A record has 40 bytes and is handed to a later reader.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use squall::policy::monitor::BUFFER_RECORDS;

/// Operations of a thread between two rounds of emptying buffers.
pub(crate) const CHUNK: usize = BUFFER_RECORDS;

/// A place to note facts.
pub(crate) trait Log: Send + Sync {
    /// Most facts a thread notes before it reads; absent if no buffer fills up.
    const CHUNK: Option<usize> = Some(CHUNK);

    /// Makes a log for `threads` threads.
    fn new(threads: usize) -> Self
    where
        Self: Sized;

    /// A slice of operations begins.
    fn begin(&self) {}

    /// Notes fact `n` of a thread.
    fn note(&self, thread: usize, n: u64);

    /// Reads all available facts and returns their number.
    fn read(&self) -> u64 {
        0
    }

    /// Ends the slice and reads the remaining facts.
    fn end(&self) -> u64 {
        self.read()
    }

    /// Number of facts lost or doubled, after `read` of `ops` facts were read.
    fn wrong(&self, ops: u64, read: u64) -> u64 {
        ops.abs_diff(read)
    }
}

/// As large as a record of Squall: place, time, object, two values.
type Record = [u64; 5];

/// Reads the time, as Squall does. The place is the thread's number, because that costs no time.
#[inline(always)]
fn record(began: Instant, thread: usize, n: u64) -> Record {
    [thread as u64, began.elapsed().as_nanos() as u64, 1, n, 0]
}

/// `std-mutex`: a ring under one lock.
pub(crate) struct Locked {
    began: Instant,
    ring: Mutex<VecDeque<Record>>,
}

impl Log for Locked {
    fn new(threads: usize) -> Locked {
        Locked { began: Instant::now(), ring: Mutex::new(VecDeque::with_capacity(threads * CHUNK)) }
    }

    #[inline(always)]
    fn note(&self, thread: usize, n: u64) {
        let record = record(self.began, thread, n);
        let mut ring = self.ring.lock().expect("a thread panicked under the lock");
        // The buffer is bounded: a record that does not fit is lost, and the count then shows it.
        if ring.len() < ring.capacity() {
            ring.push_back(record);
        }
    }

    fn read(&self) -> u64 {
        let mut ring = self.ring.lock().expect("a thread panicked under the lock");
        ring.drain(..).count() as u64
    }
}

/// `std-mpsc`: std's bounded channel.
pub(crate) struct Channel {
    began: Instant,
    sender: SyncSender<Record>,
    receiver: Mutex<Receiver<Record>>,
}

impl Log for Channel {
    fn new(threads: usize) -> Channel {
        let (sender, receiver) = sync_channel(threads * CHUNK);
        Channel { began: Instant::now(), sender, receiver: Mutex::new(receiver) }
    }

    #[inline(always)]
    fn note(&self, thread: usize, n: u64) {
        // A record that does not fit is lost, and the count then shows it.
        let _ = self.sender.try_send(record(self.began, thread, n));
    }

    fn read(&self) -> u64 {
        self.receiver.lock().expect("a thread panicked under the lock").try_iter().count() as u64
    }
}
