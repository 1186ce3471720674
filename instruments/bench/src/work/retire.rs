//! The subject of `rcu-retire`: exchanges items in slots through any reclaiming library, and tallies their
//! drops.
//!
//! - I1. A drop is counted on a line that only the dropping thread writes. Samples are so rare that the
//!   counting disturbs no subject.
//! - I2. Each item knows the tally of its subject: a late drop of one subject never counts for another.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::case::{Missing, Setting, SliceEnd, Subject, Worker};

/// Operations between two samples of a thread.
pub(crate) const SAMPLE_EVERY: u64 = 256;
/// Attempts to reclaim everything after a slice.
const DRAIN_ATTEMPTS_MAX: u32 = 1_000;
/// Number of threads that count drops on lines of their own.
const DROPPERS_MAX: usize = 512;

/// An item that is retired.
pub(crate) struct Item {
    pub(crate) value: u64,
    tally: &'static Tally,
    _rest: [u64; 6],
}

const _: () = assert!(size_of::<Item>() == 64);

impl Item {
    pub(crate) fn new(value: u64, tally: &'static Tally) -> Box<Item> {
        Box::new(Item { value, tally, _rest: [value; 6] })
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        self.tally.count_drops(1);
    }
}

/// Counts the items of one subject that were made and dropped.
pub(crate) struct Tally {
    made: Box<[CachePadded<AtomicU64>]>,
    dropped: Box<[CachePadded<AtomicU64>]>,
    /// Reads the number of drops counted elsewhere.
    dropped_elsewhere: fn() -> u64,
    elsewhere_before: u64,
    /// Items that are in a slot, and so not retired.
    installed: u64,
    item_bytes: u64,
    peak: CachePadded<AtomicU64>,
}

impl Tally {
    /// A tally for `threads` threads. Items may be dropped at any later time, so it lives for ever.
    pub(crate) fn new(threads: usize) -> &'static Tally {
        Tally::counted_elsewhere(threads, size_of::<Item>() as u64, || 0)
    }

    /// A tally for items with drops counted by `dropped`.
    pub(crate) fn counted_elsewhere(threads: usize, item_bytes: u64, dropped: fn() -> u64) -> &'static Tally {
        let zeros = |n: usize| (0..n).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Box::leak(Box::new(Tally {
            made: zeros(threads),
            // One more line, for threads beyond the limit and for drops in a thread's last moments.
            dropped: zeros(DROPPERS_MAX + 1),
            dropped_elsewhere: dropped,
            elsewhere_before: dropped(),
            installed: threads as u64,
            item_bytes,
            peak: CachePadded::new(AtomicU64::new(0)),
        }))
    }

    pub(crate) fn count_drops(&self, drops: u64) {
        match DROPPER.try_with(|dropper| dropper.0) {
            Ok(own) if own < DROPPERS_MAX => {
                let count = &self.dropped[own];
                count.store(count.load(Ordering::Relaxed) + drops, Ordering::Relaxed);
            }
            _ => {
                self.dropped[DROPPERS_MAX].fetch_add(drops, Ordering::Relaxed);
            }
        }
    }

    /// Items retired and not yet dropped, as far as the threads have reported them.
    pub(crate) fn waiting(&self) -> u64 {
        let sum = |counts: &[CachePadded<AtomicU64>]| -> u64 {
            counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
        };
        let made = sum(&self.made);
        let used = DROPPERS_USED.load(Ordering::Relaxed).min(DROPPERS_MAX as u64) as usize;
        let dropped = sum(&self.dropped[..used]) + self.dropped[DROPPERS_MAX].load(Ordering::Relaxed);
        let elsewhere = (self.dropped_elsewhere)() - self.elsewhere_before;
        made.saturating_sub(dropped + elsewhere)
    }

    /// Records that `thread` has retired `more` items since its last report; then samples the waiting items.
    pub(crate) fn publish(&self, thread: usize, more: u64) {
        self.note(thread, more);
        self.sample();
    }

    /// Records that `thread` has retired `more` items since its last report.
    pub(crate) fn note(&self, thread: usize, more: u64) {
        let made = &self.made[thread];
        made.store(made.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// Samples the number of waiting items: reads a line of each thread.
    pub(crate) fn sample(&self) {
        let waiting = self.waiting();
        if waiting > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(waiting, Ordering::Relaxed);
        }
    }

    /// Report about a slice of `ops` operations.
    pub(crate) fn end_slice(&self, ops: u64) -> SliceEnd {
        let peak = self.peak.swap(0, Ordering::Relaxed);
        SliceEnd {
            done: Some(ops.saturating_sub(self.waiting())),
            metrics: vec![("peak_items", peak as f64), ("peak_bytes", (peak * self.item_bytes) as f64)],
        }
    }

    /// Calls `flush` until no item waits, or until the attempts are used up.
    pub(crate) fn drain(&self, mut flush: impl FnMut()) {
        for attempt in 0..DRAIN_ATTEMPTS_MAX {
            if self.waiting() == 0 {
                return;
            }
            flush();
            if attempt > 16 {
                std::thread::yield_now();
            }
        }
    }

    pub(crate) fn check(&self, ops: u64) -> Result<(), String> {
        let made: u64 = self.made.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        if made != ops {
            return Err(format!("{ops} items should have been retired, but {made} were"));
        }
        Ok(())
    }

    pub(crate) fn installed(&self) -> usize {
        self.installed as usize
    }
}

/// Index of the line on which a thread counts its drops; returned when the thread ends.
struct Dropper(usize);

static DROPPERS_USED: AtomicU64 = AtomicU64::new(0);
static DROPPERS_FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

thread_local! {
    static DROPPER: Dropper = Dropper::take();
}

impl Dropper {
    fn take() -> Dropper {
        let reused = DROPPERS_FREE.lock().expect("a thread panicked under the lock").pop();
        Dropper(reused.unwrap_or_else(|| DROPPERS_USED.fetch_add(1, Ordering::Relaxed) as usize))
    }
}

impl Drop for Dropper {
    fn drop(&mut self) {
        DROPPERS_FREE.lock().expect("a thread panicked under the lock").push(self.0);
    }
}

/// A reclaiming library as a subject of this case.
pub(crate) trait Reclaim: Send + Sync {
    /// State that a thread keeps between operations.
    type Handle<'a>
    where
        Self: 'a;

    /// Makes `slots` slots, each with an item from `fill`.
    fn new(slots: usize, fill: impl FnMut() -> Box<Item>) -> Self
    where
        Self: Sized;

    fn handle(&self) -> Self::Handle<'_>;

    /// Reads the value in slot `other`, puts `fresh` into slot `own`, and retires the old item.
    fn exchange(&self, handle: &mut Self::Handle<'_>, own: usize, other: usize, fresh: Box<Item>) -> u64;

    /// Pushes the library to reclaim the items retired by this thread.
    fn flush(&self, handle: &mut Self::Handle<'_>);
}

struct Retiring<R> {
    reclaim: R,
    tally: &'static Tally,
}

/// Makes the subject that reclaims with `R`.
pub(crate) fn retiring<R: Reclaim + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    let tally = Tally::new(setting.threads);
    let reclaim = R::new(setting.threads, || Item::new(0, tally));
    Ok(Box::new(Retiring { reclaim, tally }))
}

impl<R: Reclaim> Subject for Retiring<R> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let mut body = Body { handle: self.reclaim.handle(), retiring: self };
        let (own, other) = (thread, (thread + 1) % self.tally.installed());
        Box::new(move |ops| {
            let mut sum = 0u64;
            let mut left = ops;
            while left > 0 {
                let chunk = left.min(SAMPLE_EVERY);
                for i in 0..chunk {
                    let fresh = Item::new(left - i, self.tally);
                    sum = sum.wrapping_add(self.reclaim.exchange(&mut body.handle, own, other, fresh));
                }
                left -= chunk;
                self.tally.publish(thread, chunk);
            }
            black_box(sum);
        })
    }

    fn end_slice(&self, ops: u64) -> SliceEnd {
        self.tally.end_slice(ops)
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        self.tally.check(ops)
    }
}

/// A worker's handle; its drop reclaims the items that the worker left.
struct Body<'a, R: Reclaim + 'a> {
    handle: R::Handle<'a>,
    retiring: &'a Retiring<R>,
}

impl<'a, R: Reclaim + 'a> Drop for Body<'a, R> {
    fn drop(&mut self) {
        let reclaim = &self.retiring.reclaim;
        self.retiring.tally.drain(|| reclaim.flush(&mut self.handle));
    }
}
