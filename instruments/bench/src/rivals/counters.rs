//! Ways to count: one word shared by all threads, or one per thread.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use contatori::counters::Observable;
use contatori::counters::unsigned::Unsigned;
use crossbeam_utils::CachePadded;
use fast_counter::ConcurrentCounter;

use crate::case::{Make, Missing, Setting, Subject, Worker};

/// A counter as a subject of `percpu` and `percpu-paced`.
pub(crate) trait Count: Send + Sync {
    fn new(threads: usize) -> Self
    where
        Self: Sized;

    /// Adds one `ops` times for `thread`, and calls `between` after each. A thread passes only its own index.
    fn add(&self, thread: usize, ops: u64, between: impl FnMut())
    where
        Self: Sized;

    fn sum(&self) -> u64;
}

/// `Pace` is the pause between two additions.
pub(crate) struct Counting<C, P> {
    counter: C,
    pace: std::marker::PhantomData<fn() -> P>,
}

pub(crate) trait Pace {
    fn pause();
}

/// No pause at all.
pub(crate) struct Tight;

impl Pace for Tight {
    #[inline(always)]
    fn pause() {}
}

/// A pause so long that two threads rarely meet at the counter: a chain of dependent multiplications that
/// touches no memory.
pub(crate) struct Paced;

/// Multiplications in a pause, each three or four cycles after the one before.
const PAUSE_STEPS: u32 = 256;

impl Pace for Paced {
    #[inline(always)]
    fn pause() {
        let mut x = black_box(3u64);
        for _ in 0..PAUSE_STEPS {
            x = x.wrapping_mul(x | 5);
        }
        black_box(x);
    }
}

impl<C: Count, P: Pace> Subject for Counting<C, P> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        // First touch of the counter's state for this thread; it adds zero to the checked sum.
        self.counter.add(thread, 0, || ());
        Box::new(move |ops| self.counter.add(thread, ops, P::pause))
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        let sum = self.counter.sum();
        if sum == ops { Ok(()) } else { Err(format!("{ops} were added, but the sum is {sum}")) }
    }
}

/// Makes the subject that counts with `C` at pace `P`.
pub(crate) const fn counting<C: Count + 'static, P: Pace + 'static>() -> Make {
    fn make<C: Count + 'static, P: Pace + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        let pace = std::marker::PhantomData;
        Ok(Box::new(Counting::<C, P> { counter: C::new(setting.threads), pace }))
    }
    make::<C, P>
}

/// Only the pause and the loop.
pub(crate) struct PauseOnly(CachePadded<AtomicU64>);

impl Count for PauseOnly {
    fn new(_: usize) -> PauseOnly {
        PauseOnly(CachePadded::new(AtomicU64::new(0)))
    }

    fn add(&self, _: usize, ops: u64, mut between: impl FnMut()) {
        for _ in 0..ops {
            between();
        }
        self.0.fetch_add(ops, Ordering::Relaxed);
    }

    fn sum(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// `mutex`: std's.
pub(crate) struct Locked(Mutex<u64>);

impl Count for Locked {
    fn new(_: usize) -> Locked {
        Locked(Mutex::new(0))
    }

    fn add(&self, _: usize, ops: u64, mut between: impl FnMut()) {
        for _ in 0..ops {
            *self.0.lock().expect("a thread panicked under the lock") += 1;
            between();
        }
    }

    fn sum(&self) -> u64 {
        *self.0.lock().expect("a thread panicked under the lock")
    }
}

/// `atomic`: one word for all.
pub(crate) struct Atomic(CachePadded<AtomicU64>);

impl Count for Atomic {
    fn new(_: usize) -> Atomic {
        Atomic(CachePadded::new(AtomicU64::new(0)))
    }

    fn add(&self, _: usize, ops: u64, mut between: impl FnMut()) {
        for _ in 0..ops {
            self.0.fetch_add(1, Ordering::Relaxed);
            between();
        }
    }

    fn sum(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Adds to a word that only the calling thread writes.
#[inline(always)]
fn add_owned(slot: &AtomicU64) {
    slot.store(slot.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// `unpadded`: a word for each thread, side by side in one array.
pub(crate) struct Unpadded(Vec<AtomicU64>);

impl Count for Unpadded {
    fn new(threads: usize) -> Unpadded {
        Unpadded((0..threads).map(|_| AtomicU64::new(0)).collect())
    }

    fn add(&self, thread: usize, ops: u64, mut between: impl FnMut()) {
        let slot = &self.0[thread];
        for _ in 0..ops {
            add_owned(slot);
            between();
        }
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|slot| slot.load(Ordering::Relaxed)).sum()
    }
}

/// `padded`: a word per thread, each on a line of its own; the thread knows its own.
pub(crate) struct Padded(Vec<CachePadded<AtomicU64>>);

impl Count for Padded {
    fn new(threads: usize) -> Padded {
        Padded((0..threads).map(|_| CachePadded::new(AtomicU64::new(0))).collect())
    }

    fn add(&self, thread: usize, ops: u64, mut between: impl FnMut()) {
        let slot = &self.0[thread];
        for _ in 0..ops {
            add_owned(slot);
            between();
        }
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|slot| slot.load(Ordering::Relaxed)).sum()
    }
}

/// `locked-add`: like `padded`, but with an atomic addition, needed if the thread may migrate in between.
pub(crate) struct LockedAdd(Vec<CachePadded<AtomicU64>>);

impl Count for LockedAdd {
    fn new(threads: usize) -> LockedAdd {
        LockedAdd((0..threads).map(|_| CachePadded::new(AtomicU64::new(0))).collect())
    }

    fn add(&self, thread: usize, ops: u64, mut between: impl FnMut()) {
        let slot = &self.0[thread];
        for _ in 0..ops {
            slot.fetch_add(1, Ordering::Relaxed);
            between();
        }
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|slot| slot.load(Ordering::Relaxed)).sum()
    }
}

thread_local! {
    static LOCAL: Cell<u64> = const { Cell::new(0) };
}

/// `thread-local`: std's, a plain cell, looked up at each addition, as by a caller.
pub(crate) struct ThreadLocal(CachePadded<AtomicU64>);

impl Count for ThreadLocal {
    fn new(_: usize) -> ThreadLocal {
        ThreadLocal(CachePadded::new(AtomicU64::new(0)))
    }

    fn add(&self, _: usize, ops: u64, mut between: impl FnMut()) {
        for _ in 0..ops {
            LOCAL.with(|cell| cell.set(cell.get().wrapping_add(1)));
            // Otherwise the compiler merges the whole loop into one addition. The fence acts on the compiler
            // only: it emits no instruction and pairs with no other fence.
            compiler_fence(Ordering::SeqCst);
            between();
        }
        // A thread hands in its count at the end of its slice.
        self.0.fetch_add(LOCAL.take(), Ordering::Relaxed);
    }

    fn sum(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// `contatori`: 64 padded words, each thread assigned to one.
pub(crate) struct Contatori(Unsigned);

impl Count for Contatori {
    fn new(_: usize) -> Contatori {
        Contatori(Unsigned::new())
    }

    fn add(&self, _: usize, ops: u64, mut between: impl FnMut()) {
        self.0.add(0);
        for _ in 0..ops {
            self.0.add(1);
            between();
        }
    }

    fn sum(&self) -> u64 {
        self.0.value().as_u64()
    }
}

/// `fast-counter`: as many padded words as threads, each thread hashed to one; its docs advise a surplus of
/// cells.
pub(crate) struct FastCounter(ConcurrentCounter);

impl Count for FastCounter {
    fn new(threads: usize) -> FastCounter {
        FastCounter(ConcurrentCounter::new(2 * threads))
    }

    fn add(&self, _: usize, ops: u64, mut between: impl FnMut()) {
        self.0.add(0);
        for _ in 0..ops {
            self.0.add(1);
            between();
        }
    }

    fn sum(&self) -> u64 {
        u64::try_from(self.0.sum()).unwrap_or(0)
    }
}
