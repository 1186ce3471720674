//! Small programs with known sharing: `known NAME THREADS OPS`. The tests profile them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Barrier, Mutex, RwLock};

use squall_locality_plugin::mark;

#[repr(align(128))]
#[derive(Default)]
struct Padded(AtomicU64);

/// A value on its own lines.
#[repr(align(128))]
struct Apart<T>(T);

#[repr(align(64))]
#[derive(Default)]
struct Pair {
    left: AtomicU64,
    right: AtomicU64,
}

/// A queue for one writer and one reader.
#[derive(Default)]
struct Ring {
    /// Next position to take.
    head: Padded,
    /// Next position to put.
    tail: Padded,
    slots: Line,
}

/// Number of words in a line.
const SLOTS: usize = 8;

#[repr(align(128))]
#[derive(Default)]
struct Line([AtomicU64; SLOTS]);

impl Ring {
    /// Puts a value. Returns whether there was room.
    fn put(&self, value: u64) -> bool {
        // Acquire: pairs with the Release in `take`, so that the slot is free.
        let (tail, head) = (self.tail.0.load(Relaxed), self.head.0.load(Acquire));
        if tail - head == SLOTS as u64 {
            return false;
        }
        self.slots.0[tail as usize % SLOTS].store(value, Relaxed);
        // Release: pairs with the Acquire in `take`, which then finds the value.
        self.tail.0.store(tail + 1, Release);
        true
    }

    fn take(&self) -> Option<u64> {
        // Acquire: pairs with the Release in `put`, so that the value is present.
        let (head, tail) = (self.head.0.load(Relaxed), self.tail.0.load(Acquire));
        if head == tail {
            return None;
        }
        let value = self.slots.0[head as usize % SLOTS].load(Relaxed);
        // Release: pairs with the Acquire in `put`, which may then reuse the slot.
        self.head.0.store(head + 1, Release);
        Some(value)
    }
}

static SHARED: AtomicU64 = AtomicU64::new(0);

/// Operations of one thread. A separate function, so that it can be a window.
#[inline(never)]
fn work(thread: usize, ops: u64, op: &impl Fn(usize, u64)) {
    for i in 0..ops {
        op(thread, i);
    }
}

/// Runs `op(thread, i)` for each i below `ops` in each thread, all at once, between marks.
fn at_once(threads: usize, ops: u64, op: impl Fn(usize, u64) + Sync) {
    at_once_after(threads, ops, || {}, op);
}

/// Runs `first` in each thread without counting it, then the operations as in [`at_once`].
fn at_once_after(threads: usize, ops: u64, first: impl Fn() + Sync, op: impl Fn(usize, u64) + Sync) {
    let barrier = Barrier::new(threads);
    // The closures are on lines of their own, because the first thread writes nearby stack words meanwhile.
    let calls = Apart((first, op));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let ((first, op), barrier) = (&calls.0, &barrier);
            scope.spawn(move || {
                first();
                barrier.wait();
                mark::begin();
                work(thread, ops, op);
                mark::end();
                barrier.wait();
            });
        }
    });
}

/// Runs the operations of [`at_once`] one at a time, in turns. Waiting for the turn is not counted.
fn in_turns(threads: usize, ops: u64, op: impl Fn(usize, u64) + Sync) {
    let turn = AtomicUsize::new(0);
    at_once(threads, ops, |thread, i| {
        mark::end();
        // Acquire: pairs with the Release by the previous thread.
        while turn.load(Acquire) % threads != thread {
            std::thread::yield_now();
        }
        mark::begin();
        op(thread, i);
        mark::end();
        // Release: pairs with the Acquire by the next thread.
        turn.fetch_add(1, Release);
        mark::begin();
    });
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, name, threads, ops] = &words[..] else {
        eprintln!("usage: known NAME THREADS OPS");
        std::process::exit(2);
    };
    let (threads, ops): (usize, u64) = (threads.parse().expect("a number"), ops.parse().expect("a number"));
    run(name, threads, ops);
}

fn run(name: &str, threads: usize, ops: u64) {
    match name {
        "shared" => at_once(threads, ops, |_, _| {
            SHARED.fetch_add(1, Relaxed);
        }),
        "padded" => {
            let counters: Vec<Padded> = (0..threads).map(|_| Padded::default()).collect();
            at_once(threads, ops, |thread, _| {
                counters[thread].0.fetch_add(1, Relaxed);
            });
        }
        "unpadded" => {
            let counters: Vec<Pair> = (0..threads.div_ceil(2)).map(|_| Pair::default()).collect();
            at_once(threads, ops, |thread, _| {
                let pair = &counters[thread / 2];
                let own = if thread % 2 == 0 { &pair.left } else { &pair.right };
                own.fetch_add(1, Relaxed);
            });
        }
        "fields" => {
            let pair = Pair::default();
            at_once(threads, ops, |thread, i| {
                if thread == 0 {
                    pair.left.store(i, Relaxed);
                } else {
                    let _ = pair.right.load(Relaxed);
                }
            });
        }
        "rwlock" => {
            // Only readers of constant data. They take turns, so that no reader has to retry.
            let lock = Apart(RwLock::new(Apart(7)));
            in_turns(threads, ops, |_, _| {
                assert_eq!(lock.0.read().expect("not poisoned").0, 7);
            });
        }
        "queue" => {
            let ring = Ring::default();
            // The first thread puts, the second takes.
            in_turns(threads, ops, |thread, i| {
                if thread == 0 {
                    assert!(ring.put(i), "it was emptied");
                } else {
                    assert_eq!(ring.take(), Some(i));
                }
            });
        }
        "mutex-map" => {
            // A hasher without a random seed, so that a lookup makes the same accesses in every run.
            let map = Mutex::new(HashMap::<u64, u64, BuildHasherDefault<DefaultHasher>>::default());
            map.lock().expect("not poisoned").insert(1, 1);
            in_turns(threads, ops, |_, i| {
                *map.lock().expect("not poisoned").entry(1).or_default() += i;
            });
        }
        "arc" => {
            let shared = Arc::new(1);
            at_once(threads, ops, |_, _| drop(Arc::clone(&shared)));
        }
        "malloc" => {
            // One uncounted allocation first: the allocator and the preloaded library initialise themselves.
            at_once_after(threads, ops, || drop(boxed(0)), |_, i| drop(boxed(i)));
        }
        other => run_in_turns(other, threads, ops),
    }
}

/// Allocates a block.
#[inline(never)]
fn boxed(n: u64) -> Box<[u64; 6]> {
    std::hint::black_box(Box::new([n; 6]))
}

/// Programs with threads that take turns on one word.
fn run_in_turns(name: &str, threads: usize, ops: u64) {
    let word = Padded::default();
    match name {
        "spin" => in_turns(threads, ops, |_, _| {
            // Acquire: pairs with the Release by the previous holder.
            while word.0.swap(1, Acquire) != 0 {}
            word.0.store(0, Release);
        }),
        "clock" => in_turns(threads, ops, |_, _| block_clock(&word.0)),
        other => run_to_the_end(other, threads, ops),
    }
}

/// Counts by compare-and-exchange; not a lock despite its name.
#[inline(never)]
fn block_clock(word: &AtomicU64) {
    let _ = word.fetch_update(Relaxed, Relaxed, |n| Some(n + 1));
}

/// Programs that use much memory or many threads, or do not end normally.
fn run_to_the_end(name: &str, threads: usize, ops: u64) {
    match name {
        "memory" => {
            // Each operation touches a line of its own.
            let blocks: Vec<Vec<Pair>> =
                (0..threads).map(|_| (0..ops).map(|_| Pair::default()).collect()).collect();
            at_once(threads, ops, |thread, i| {
                blocks[thread][i as usize].left.fetch_add(1, Relaxed);
            });
        }
        "many" => {
            for _ in 0..threads {
                let thread = std::thread::spawn(move || {
                    for _ in 0..ops {
                        SHARED.fetch_add(1, Relaxed);
                    }
                });
                thread.join().expect("no panic");
            }
        }
        "abort" => {
            let last = Barrier::new(threads);
            at_once(threads, ops, |_, i| {
                SHARED.fetch_add(1, Relaxed);
                if i == ops - 1 {
                    // Waits until all threads have counted.
                    last.wait();
                    std::process::abort();
                }
            });
        }
        "forever" => at_once(threads, u64::MAX, |_, _| {
            SHARED.fetch_add(1, Relaxed);
        }),
        other => {
            eprintln!("no program {other}");
            std::process::exit(2);
        }
    }
}
