//! Small programs whose sharing is known: `known NAME THREADS OPS`. The tests count them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Barrier, Mutex, RwLock};

use squall_locality_plugin::mark;

#[repr(align(128))]
#[derive(Default)]
struct Padded(AtomicU64);

/// What has its lines to itself.
#[repr(align(128))]
struct Apart<T>(T);

#[repr(align(64))]
#[derive(Default)]
struct Pair {
    left: AtomicU64,
    right: AtomicU64,
}

/// A queue of one writer and one reader.
#[derive(Default)]
struct Ring {
    /// The next to be taken.
    head: Padded,
    /// The next to be put.
    tail: Padded,
    slots: Line,
}

/// As many as a line has.
const SLOTS: usize = 8;

#[repr(align(128))]
#[derive(Default)]
struct Line([AtomicU64; SLOTS]);

impl Ring {
    /// Whether there was room.
    fn put(&self, value: u64) -> bool {
        // Acquire: pairs with the Release in `take`; the slot is free then.
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
        // Acquire: pairs with the Release in `put`; the value is there then.
        let (head, tail) = (self.head.0.load(Relaxed), self.tail.0.load(Acquire));
        if head == tail {
            return None;
        }
        let value = self.slots.0[head as usize % SLOTS].load(Relaxed);
        // Release: pairs with the Acquire in `put`, which then may use the slot again.
        self.head.0.store(head + 1, Release);
        Some(value)
    }
}

static SHARED: AtomicU64 = AtomicU64::new(0);

/// The operations of one thread. A function of its own, so that it can be a window.
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

/// The same, after `first` in each thread, which does not count.
fn at_once_after(threads: usize, ops: u64, first: impl Fn() + Sync, op: impl Fn(usize, u64) + Sync) {
    let barrier = Barrier::new(threads);
    // What the threads read of them is on lines of its own, wherever the stack begins: the first thread writes beside them meanwhile.
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

/// The same, one operation at a time, in turns; waiting for the turn does not count.
fn in_turns(threads: usize, ops: u64, op: impl Fn(usize, u64) + Sync) {
    let turn = AtomicUsize::new(0);
    at_once(threads, ops, |thread, i| {
        mark::end();
        // Acquire: pairs with the Release of whoever had the turn before.
        while turn.load(Acquire) % threads != thread {
            std::thread::yield_now();
        }
        mark::begin();
        op(thread, i);
        mark::end();
        // Release: pairs with the Acquire of whoever has the turn next.
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
            // Readers alone, whose data nobody writes; in turns, so that none finds the word changed and tries again.
            let lock = Apart(RwLock::new(Apart(7)));
            in_turns(threads, ops, |_, _| {
                assert_eq!(lock.0.read().expect("nobody panics").0, 7);
            });
        }
        "queue" => {
            let ring = Ring::default();
            // The first puts, the second takes.
            in_turns(threads, ops, |thread, i| {
                if thread == 0 {
                    assert!(ring.put(i), "it was emptied");
                } else {
                    assert_eq!(ring.take(), Some(i));
                }
            });
        }
        "mutex-map" => {
            // Without a random seed, so that a look takes the same accesses in every run.
            let map = Mutex::new(HashMap::<u64, u64, BuildHasherDefault<DefaultHasher>>::default());
            map.lock().expect("nobody panics").insert(1, 1);
            in_turns(threads, ops, |_, i| {
                *map.lock().expect("nobody panics").entry(1).or_default() += i;
            });
        }
        "arc" => {
            let shared = Arc::new(1);
            at_once(threads, ops, |_, _| drop(Arc::clone(&shared)));
        }
        "malloc" => {
            // Once before it counts: the allocator and who tells of its blocks begin by themselves.
            at_once_after(threads, ops, || drop(boxed(0)), |_, i| drop(boxed(i)));
        }
        other => run_in_turns(other, threads, ops),
    }
}

/// A block of the allocator's.
#[inline(never)]
fn boxed(n: u64) -> Box<[u64; 6]> {
    std::hint::black_box(Box::new([n; 6]))
}

/// Programs whose threads take turns at one word.
fn run_in_turns(name: &str, threads: usize, ops: u64) {
    let word = Padded::default();
    match name {
        "spin" => in_turns(threads, ops, |_, _| {
            // Acquire: pairs with the Release of whoever had it before, as in any lock.
            while word.0.swap(1, Acquire) != 0 {}
            word.0.store(0, Release);
        }),
        "clock" => in_turns(threads, ops, |_, _| block_clock(&word.0)),
        other => run_to_the_end(other, threads, ops),
    }
}

/// Counts by compare-and-exchange, which is no lock, whatever its name has in it.
#[inline(never)]
fn block_clock(word: &AtomicU64) {
    let _ = word.fetch_update(Relaxed, Relaxed, |n| Some(n + 1));
}

/// Programs that take much memory, or many threads, or do not end as they should.
fn run_to_the_end(name: &str, threads: usize, ops: u64) {
    match name {
        "memory" => {
            // A line for each operation, and only its own.
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
                thread.join().expect("it adds");
            }
        }
        "abort" => {
            let last = Barrier::new(threads);
            at_once(threads, ops, |_, i| {
                SHARED.fetch_add(1, Relaxed);
                if i == ops - 1 {
                    // All have counted by then, however late they came.
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
