//! Reader-writer locks around one word, each used as its documentation advises, and the subject that reads
//! and writes it.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::ShardedLock;

use crate::case::{Make, Missing, Setting, Subject, Variant, Worker};

/// The variant without writes.
pub(crate) const READ: &str = "read";

/// Reads per write in a variant; 0 if there are only reads.
fn reads_per_write(variant: &Variant) -> u64 {
    if variant.name == READ { 0 } else { 99 }
}

/// A word under a lock.
pub(crate) trait Guarded: Send + Sync {
    fn new() -> Self
    where
        Self: Sized;

    fn read(&self) -> u64;

    fn increment(&self);
}

/// Load of the threads: one write after each `reads_per_write` reads; 0 means reads only.
struct Mixed<G> {
    lock: CachePadded<G>,
    reads_per_write: u64,
    /// Number of writes.
    writes: CachePadded<AtomicU64>,
}

/// Makes the subject that uses `G`.
pub(crate) const fn guarded<G: Guarded + 'static>() -> Make {
    fn make<G: Guarded + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        Ok(Box::new(Mixed {
            lock: CachePadded::new(G::new()),
            reads_per_write: reads_per_write(setting.variant),
            writes: CachePadded::new(AtomicU64::new(0)),
        }))
    }
    make::<G>
}

impl<G: Guarded> Mixed<G> {
    #[inline]
    fn reads(&self, count: u64) {
        let mut sum = 0u64;
        for _ in 0..count {
            sum = sum.wrapping_add(self.lock.read());
        }
        black_box(sum);
    }
}

impl<G: Guarded> Subject for Mixed<G> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        // Triggers the lock's work that it does once per thread.
        self.reads(1);
        let each = self.reads_per_write;
        // Threads write at different times.
        let mut until_write = if each == 0 { 0 } else { each / 2 + thread as u64 % each.div_ceil(2) };
        Box::new(move |mut ops| {
            if each == 0 {
                return self.reads(ops);
            }
            let mut writes = 0;
            while ops > 0 {
                let reads = until_write.min(ops);
                self.reads(reads);
                until_write -= reads;
                ops -= reads;
                if ops > 0 {
                    self.lock.increment();
                    (writes, ops, until_write) = (writes + 1, ops - 1, each);
                }
            }
            self.writes.fetch_add(writes, Ordering::Relaxed);
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        let (expected, found) = (self.writes.load(Ordering::Relaxed), self.lock.read());
        if expected == found {
            Ok(())
        } else {
            Err(format!("{expected} were written, but the sum is {found}"))
        }
    }
}

const NO_PANIC: &str = "nobody panics holding it";

/// `std-rwlock`.
impl Guarded for std::sync::RwLock<u64> {
    fn new() -> Self {
        std::sync::RwLock::new(0)
    }

    #[inline(always)]
    fn read(&self) -> u64 {
        *self.read().expect(NO_PANIC)
    }

    fn increment(&self) {
        *self.write().expect(NO_PANIC) += 1;
    }
}

/// `parking-lot`.
impl Guarded for parking_lot::RwLock<u64> {
    fn new() -> Self {
        parking_lot::RwLock::new(0)
    }

    #[inline(always)]
    fn read(&self) -> u64 {
        *self.read()
    }

    fn increment(&self) {
        *self.write() += 1;
    }
}

/// `crossbeam-sharded`: eight locks on lines of their own; a reader takes its thread's, a writer takes all.
impl Guarded for ShardedLock<u64> {
    fn new() -> Self {
        ShardedLock::new(0)
    }

    #[inline(always)]
    fn read(&self) -> u64 {
        *self.read().expect(NO_PANIC)
    }

    fn increment(&self) {
        *self.write().expect(NO_PANIC) += 1;
    }
}

/// `arc-swap`: no lock; a writer makes a new word, and retries if another thread was faster.
impl Guarded for ArcSwap<u64> {
    fn new() -> Self {
        ArcSwap::from_pointee(0)
    }

    #[inline(always)]
    fn read(&self) -> u64 {
        **self.load()
    }

    fn increment(&self) {
        self.rcu(|value| **value + 1);
    }
}
