//! Ring of records from one writer to one reader, stored as atomic words, so that it needs no `unsafe`.
//!
//! `tail` counts all records written, `head` all records read. Record n is at index n modulo the capacity.
//!
//! - I1. One thread writes at a time (the buffer's owner), and one reads at a time (the thread that holds the
//!   centre's lock). `push` calls no other function, so the owner does not enter it twice.
//! - I2. No record is torn. The writer stores to a place only if `tail - head` is below the capacity, with a
//!   `head` that it acquired. So the reader has finished with the old record in that place. The reader reads
//!   only places below a `tail` that it acquired, so all words of the record are there.
//! - I3. No record is lost silently: each `push` either advances `tail` or counts one dropped record.
//!
//! Progress: both sides are wait-free. Cost of a `push`: five stores of words and one of `tail`, on lines
//! that the reader touches only when it reads. `head` is loaded only if the ring looks full by the cached
//! value. If I1 were broken (by a signal handler that interrupts a `push` of its own thread), a record could
//! mix two. Memory stays safe even then.
//! Source: Lamport's queue for one producer and one consumer, 1983, with a cached index as in FastForward's
//! successors.

use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{Record, WORDS};

/// Keeps a value on cache lines of its own. Two lines, because some processors prefetch pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

#[derive(Debug)]
pub(super) struct Ring {
    places: Box<[[AtomicU64; WORDS]]>,
    writer: Padded<Writer>,
    reader: Padded<Reader>,
}

/// Fields that the writer stores.
#[derive(Debug, Default)]
struct Writer {
    tail: AtomicU64,
    /// `head` as the writer saw it last; never ahead of the real one.
    head_seen: AtomicU64,
    dropped: AtomicU64,
}

/// Fields that the reader stores.
#[derive(Debug, Default)]
struct Reader {
    head: AtomicU64,
    /// Part of `dropped` that was reported already.
    dropped_told: AtomicU64,
}

/// Result of a `push`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Pushed {
    Kept,
    /// Kept, and it fills one half of the ring: a good moment to call the reader.
    KeptHalf,
    Dropped,
}

impl Ring {
    /// Creates a ring with this capacity, a power of two.
    pub(super) fn new(capacity: usize) -> Ring {
        assert!(
            capacity.is_power_of_two() && capacity > 1,
            "a ring of {capacity} records was requested; the capacity must be a power of two above 1"
        );
        let place = || [const { AtomicU64::new(0) }; WORDS];
        Ring {
            places: (0..capacity).map(|_| place()).collect(),
            writer: Padded::default(),
            reader: Padded::default(),
        }
    }

    fn place(&self, n: u64) -> &[AtomicU64; WORDS] {
        // The capacity is a power of two, so the mask is the modulo.
        &self.places[n as usize & (self.places.len() - 1)]
    }

    /// Writes a record. Only the owner calls this (I1).
    #[inline]
    pub(super) fn push(&self, record: &Record) -> Pushed {
        let writer = &self.writer.0;
        let capacity = self.places.len() as u64;
        let tail = writer.tail.load(Ordering::Relaxed);
        if tail - writer.head_seen.load(Ordering::Relaxed) == capacity {
            // Acquire: pairs with the Release in `take`. The reader's loads of the place are over (I2).
            let head = self.reader.0.head.load(Ordering::Acquire);
            writer.head_seen.store(head, Ordering::Relaxed);
            if tail - head == capacity {
                // Only this thread stores here, so a load and a store lose no count.
                writer.dropped.store(writer.dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                return Pushed::Dropped;
            }
        }
        for (word, value) in self.place(tail).iter().zip(record.words()) {
            word.store(*value, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `take`, which then sees the words (I2).
        writer.tail.store(tail + 1, Ordering::Release);
        if (tail + 1).is_multiple_of(capacity / 2) { Pushed::KeptHalf } else { Pushed::Kept }
    }

    /// Reads all records that are there now, in order. One thread at a time (I1).
    pub(super) fn take(&self, mut each: impl FnMut(Record)) -> usize {
        // Relaxed: stored under the lock that the caller holds.
        let head = self.reader.0.head.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `push`.
        let tail = self.writer.0.tail.load(Ordering::Acquire);
        for n in head..tail {
            each(Record::from_words(std::array::from_fn(|word| self.place(n)[word].load(Ordering::Relaxed))));
        }
        // Release: pairs with the Acquire in `push`. The places may be written again.
        self.reader.0.head.store(tail, Ordering::Release);
        (tail - head) as usize
    }

    /// Returns the number of records dropped since the last call. One thread at a time (I1).
    pub(super) fn take_dropped(&self) -> u64 {
        let dropped = self.writer.0.dropped.load(Ordering::Relaxed);
        let told = self.reader.0.dropped_told.load(Ordering::Relaxed);
        self.reader.0.dropped_told.store(dropped, Ordering::Relaxed);
        dropped - told
    }

    /// Returns `true` if there is no record to read.
    pub(super) fn is_empty(&self) -> bool {
        // Relaxed: the caller has ordered this load by a fence (`centre/I3`).
        self.writer.0.tail.load(Ordering::Relaxed) == self.reader.0.head.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a record with all words computed from `n`.
    fn record(n: u64) -> Record {
        Record::from_words(std::array::from_fn(|word| mix(n, word)))
    }

    fn mix(n: u64, word: usize) -> u64 {
        if word == 0 {
            n
        } else {
            (n ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(word as u32 * 7)
        }
    }

    #[test]
    fn records_within_the_capacity_are_kept_and_surplus_ones_counted() {
        let ring = Ring::new(8);
        let pushed: Vec<_> = (0..10).map(|n| ring.push(&record(n))).collect();
        let halves = pushed.iter().filter(|&&one| one == Pushed::KeptHalf).count();
        assert_eq!((halves, &pushed[8..]), (2, &[Pushed::Dropped, Pushed::Dropped][..]));
        let mut read = Vec::new();
        assert_eq!(ring.take(|one| read.push(one)), 8);
        assert_eq!(read, (0..8).map(record).collect::<Vec<_>>());
        assert_eq!((ring.take_dropped(), ring.take_dropped()), (2, 0));
        assert!(ring.is_empty());
        assert_eq!(ring.push(&record(11)), Pushed::Kept);
        assert_eq!(ring.take(|one| assert_eq!(one, record(11))), 1);
    }

    /// Moves records from a writer thread to this one. With `insist` the writer repeats a dropped record.
    /// Returns the number kept.
    fn hand_over(capacity: usize, records: u64, insist: bool) -> usize {
        let ring = Ring::new(capacity);
        // Checked at the end: an insisting writer would wait for ever for a reader that panicked.
        let (mut read, mut next, mut torn, mut disordered) = (0, 0, 0, 0);
        let mut take = || {
            let taken = ring.take(|one| {
                let n = one.words()[0];
                torn += u32::from(one != record(n));
                disordered += u32::from(n < next);
                next = n.wrapping_add(1);
            });
            read += taken;
            if taken == 0 {
                std::thread::yield_now();
            }
        };
        let put = |n| {
            while ring.push(&record(n)) == Pushed::Dropped {
                if !insist {
                    return false;
                }
                std::thread::yield_now();
            }
            true
        };
        let kept = std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..records).filter(|&n| put(n)).count());
            while !writer.is_finished() {
                take();
            }
            writer.join().expect("it does not panic")
        });
        // `is_finished` does not order memory, but `join` does. So the last records are taken after it.
        take();
        assert_eq!((kept, torn, disordered), (read, 0, 0));
        let dropped = ring.take_dropped();
        assert!(insist || kept as u64 + dropped == records, "{kept} kept and {dropped} dropped of {records}");
        kept
    }

    const RECORDS: u64 = if cfg!(miri) { 100 } else { 300_000 };

    #[test]
    fn kt_18_no_record_is_torn_lost_or_out_of_order_while_the_ring_wraps() {
        for capacity in [2, 8, 64] {
            hand_over(capacity, RECORDS, false);
        }
    }

    /// Both sides wait for each other all the time, so that a checker sees each relevant order.
    #[test]
    fn each_record_comes_over_if_the_writer_insists() {
        for capacity in [2, 4] {
            let records = RECORDS.min(20_000);
            assert_eq!(hand_over(capacity, records, true) as u64, records);
        }
    }
}
