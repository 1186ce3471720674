//! The hand-over from one writer to one reader: a ring of records in words, so that it needs no `unsafe`.
//!
//! `tail` counts the records ever written, `head` those ever read; record n lies at place n modulo the capacity.
//!
//! - I1. One thread writes at a time (the buffer's owner), and one reads at a time (whoever holds the centre's lock). The
//!   owner's `push` does not call itself: it calls nobody.
//! - I2. No record is torn: the writer stores to a place only if `tail - head` is below the capacity, by a `head` that it
//!   acquired, so the reader has read the place's last record; the reader reads only places below a `tail` that it
//!   acquired, so all words of the record are there.
//! - I3. Nothing is lost silently: each `push` either moves `tail` or counts one dropped.
//!
//! Progress: both sides are wait-free; neither loops for the other. Cost of a `push`: five stores of words and one of
//! `tail`, on lines that the reader touches only when it reads; `head` is loaded only when the ring looks full by what the
//! writer saw last. If I1 were broken (a signal handler that interrupts its own thread's `push`), a record could be mixed
//! from two; memory is safe all the same.
//! Source: Lamport's queue for one producer and one consumer, 1983, with the cached index of FastForward's successors.

use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{Record, WORDS};

/// Apart from other data that somebody else writes. Two lines, for processors that fetch pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

#[derive(Debug)]
pub(super) struct Ring {
    places: Box<[[AtomicU64; WORDS]]>,
    writer: Apart<Writer>,
    reader: Apart<Reader>,
}

/// Stored to by the writer.
#[derive(Debug, Default)]
struct Writer {
    tail: AtomicU64,
    /// `head` as the writer saw it last. Never more than it is.
    head_seen: AtomicU64,
    dropped: AtomicU64,
}

/// Stored to by the reader.
#[derive(Debug, Default)]
struct Reader {
    head: AtomicU64,
    /// Of `dropped`, what was told already.
    dropped_told: AtomicU64,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Pushed {
    Kept,
    /// Kept, and it is the last of a half of the ring: a good moment to call the reader.
    KeptHalf,
    Dropped,
}

impl Ring {
    /// A ring for so many records, a power of two.
    pub(super) fn new(capacity: usize) -> Ring {
        assert!(capacity.is_power_of_two() && capacity > 1, "a ring has a power of two of places");
        let place = || [const { AtomicU64::new(0) }; WORDS];
        Ring {
            places: (0..capacity).map(|_| place()).collect(),
            writer: Apart::default(),
            reader: Apart::default(),
        }
    }

    fn place(&self, n: u64) -> &[AtomicU64; WORDS] {
        // The capacity is a power of two.
        &self.places[n as usize & (self.places.len() - 1)]
    }

    /// Writes a record. By the owner only (I1).
    #[inline]
    pub(super) fn push(&self, record: &Record) -> Pushed {
        let writer = &self.writer.0;
        let capacity = self.places.len() as u64;
        let tail = writer.tail.load(Ordering::Relaxed);
        if tail - writer.head_seen.load(Ordering::Relaxed) == capacity {
            // Acquire: pairs with the Release in `take`, whose loads of the place are then over (I2).
            let head = self.reader.0.head.load(Ordering::Acquire);
            writer.head_seen.store(head, Ordering::Relaxed);
            if tail - head == capacity {
                // Only this thread stores here, so a load and a store lose nothing.
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

    /// Reads all records that are there now, in order. By one thread at a time (I1).
    pub(super) fn take(&self, mut each: impl FnMut(Record)) -> usize {
        // Relaxed: stored under the lock that the caller holds.
        let head = self.reader.0.head.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `push`.
        let tail = self.writer.0.tail.load(Ordering::Acquire);
        for n in head..tail {
            each(Record::from_words(std::array::from_fn(|word| self.place(n)[word].load(Ordering::Relaxed))));
        }
        // Release: pairs with the Acquire in `push`: the places may be written again.
        self.reader.0.head.store(tail, Ordering::Release);
        (tail - head) as usize
    }

    /// Records dropped since this was last asked. By one thread at a time (I1).
    pub(super) fn take_dropped(&self) -> u64 {
        let dropped = self.writer.0.dropped.load(Ordering::Relaxed);
        let told = self.reader.0.dropped_told.load(Ordering::Relaxed);
        self.reader.0.dropped_told.store(dropped, Ordering::Relaxed);
        dropped - told
    }

    /// Whether nothing is there to read.
    pub(super) fn is_empty(&self) -> bool {
        // Relaxed: whoever asks has made its own order, by a fence (`centre/I3`).
        self.writer.0.tail.load(Ordering::Relaxed) == self.reader.0.head.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of which every word follows from `n`.
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
    fn nothing_is_lost_up_to_the_capacity_and_then_all_is_counted() {
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

    /// One thread writes, and `insist`s on each record or lets it be dropped; this one reads. What was kept.
    fn hand_over(capacity: usize, records: u64, insist: bool) -> usize {
        let ring = Ring::new(capacity);
        // Looked at in the end: a writer that insists would wait for ever for a reader that has panicked.
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
        // That it was finished did not say that all it wrote is seen; that it was joined does.
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

    /// Both sides wait for each other all the time, so that a checker sees each order that matters.
    #[test]
    fn each_record_comes_over_if_the_writer_insists() {
        for capacity in [2, 4] {
            let records = RECORDS.min(20_000);
            assert_eq!(hand_over(capacity, records, true) as u64, records);
        }
    }
}
