//! Tests of the read-biased reader-writer lock through its public interface.

use squall_lock::ReadBiasedRwLock;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than any test: a wait of this length has lost its wake-up.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(1);
/// The most reads that make any lock biased.
const READS_MAX: usize = 4096;

/// Reads until the lock is biased. Returns the number of reads.
fn bias<T>(lock: &ReadBiasedRwLock<T>) -> usize {
    let reads = (0..=READS_MAX).find(|_| {
        let is_biased = lock.is_biased();
        drop(lock.read());
        is_biased
    });
    reads.expect("the lock does not become biased")
}

/// Runs `f` on another thread.
fn elsewhere<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|threads| threads.spawn(f).join().unwrap())
}

#[test]
fn many_read_and_two_write() {
    let lock = ReadBiasedRwLock::new((0u64, 0u64));
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                for round in 0..rounds {
                    let mut both = lock.write();
                    both.0 += 1;
                    both.1 += 1;
                    drop(both);
                    // Some writes find the bias. A write of the other thread begins the count of reads again.
                    while round % 64 == 0 && !lock.is_biased() {
                        drop(lock.read());
                    }
                }
            });
        }
        for _ in 0..3 {
            threads.spawn(|| {
                let mut last = 0;
                while last < 2 * rounds {
                    let both = lock.read();
                    assert_eq!(both.0, both.1, "half of a write was seen");
                    assert!(both.0 >= last, "a write was undone");
                    last = both.0;
                    drop(both);
                    std::thread::yield_now();
                }
            });
        }
    });
    assert_eq!(lock.into_inner(), (2 * rounds, 2 * rounds));
}

#[test]
fn readers_share_and_writers_do_not_with_and_without_the_bias() {
    for is_biased in [false, true] {
        let lock = ReadBiasedRwLock::new(1);
        if is_biased {
            bias(&lock);
        }
        let (first, second) = (lock.read(), lock.try_read().expect("no thread writes"));
        assert_eq!(*first + *second, 2);
        elsewhere(|| {
            assert!(lock.try_write().is_none() && lock.try_write_for(SHORT).is_none());
            assert!(!lock.has_writer(), "a writer that gave up has left");
            assert_eq!(lock.is_biased(), is_biased, "a writer that gave up keeps the bias");
            assert_eq!(*lock.try_read_for(LONG).expect("a writer that gave up does not block readers"), 1);
        });
        drop((first, second));
        let mut writing = lock.try_write().expect("no thread is inside");
        *writing = 2;
        elsewhere(|| {
            assert!(lock.try_read().is_none() && lock.try_read_for(SHORT).is_none());
            assert!(lock.try_write().is_none() && lock.try_write_for(SHORT).is_none());
            assert_eq!(format!("{lock:?}"), "ReadBiasedRwLock { value: <locked> }");
        });
        drop(writing);
        assert!(!lock.is_biased(), "a write ends the bias");
        assert_eq!(format!("{lock:?}"), "ReadBiasedRwLock { value: 2 }");
        assert_eq!(*lock.read(), 2);
    }
}

#[test]
fn the_bias_is_earned_by_reads_and_ended_by_a_write() {
    let lock = ReadBiasedRwLock::new(0);
    *lock.write() += 1;
    let first = bias(&lock);
    assert!(first <= READS_MAX / 8);
    let mut last = first;
    for _ in 0..6 {
        *lock.write() += 1;
        assert!(!lock.is_biased());
        let reads = bias(&lock);
        assert!(reads == 2 * last || (reads == last && reads == first << 4), "{reads} reads after {last}");
        last = reads;
    }
    *lock.write() += 1;
    for _ in 0..3 {
        (1..last).for_each(|_| drop(lock.read()));
        assert!(!lock.is_biased());
        // A write to an unbiased lock begins the count again.
        *lock.write() += 1;
    }
    assert_eq!(bias(&lock), last);
    assert_eq!(*lock.read(), 11);
}

/// A write waits for readers that came by the count and for readers that came by a mark.
#[test]
fn a_writer_waits_for_readers_of_both_kinds() {
    for leaves_first in [0, 1] {
        let lock = ReadBiasedRwLock::new(0);
        let counted = lock.read();
        elsewhere(|| bias(&lock));
        let marked = lock.read();
        let mut guards = vec![counted, marked];
        std::thread::scope(|threads| {
            let writer = threads.spawn(|| lock.try_write_for(LONG).map(|mut value| *value += 1).is_some());
            while !lock.has_writer() {
                std::thread::yield_now();
            }
            drop(guards.remove(leaves_first));
            assert!(!writer.is_finished(), "a reader is inside");
            drop(guards);
            assert!(writer.join().unwrap(), "the last reader did not wake the writer");
        });
        assert_eq!(*lock.read(), 1);
    }
}

/// Reads more locks at once than a thread's record has slots, and leaves them in another order.
#[test]
fn a_thread_reads_many_locks_at_once() {
    let locks: Vec<ReadBiasedRwLock<usize>> =
        (0..if cfg!(miri) { 12 } else { 40 }).map(ReadBiasedRwLock::new).collect();
    // Every third lock stays unbiased.
    for (_, lock) in locks.iter().enumerate().filter(|(at, _)| at % 3 != 0) {
        bias(lock);
    }
    let mut guards: Vec<_> = locks.iter().map(|lock| lock.read()).collect();
    let writable = || elsewhere(|| locks.iter().filter(|lock| lock.try_write().is_some()).count());
    assert_eq!(writable(), 0);
    for (left, at) in [39, 0, 20, 3, 17].into_iter().enumerate() {
        drop(guards.swap_remove(at % guards.len()));
        assert_eq!(writable(), left + 1);
    }
    drop(guards);
    assert_eq!(writable(), locks.len());
}

#[test]
fn a_reader_that_comes_after_a_waiting_writer_waits_for_it() {
    for is_biased in [false, true] {
        let lock = ReadBiasedRwLock::new(0);
        if is_biased {
            bias(&lock);
        }
        let order = Mutex::new(Vec::new());
        std::thread::scope(|threads| {
            let inside = lock.read();
            threads.spawn(|| {
                let mut value = lock.write();
                *value = 1;
                order.lock().unwrap().push("writer");
            });
            while !lock.has_writer() {
                std::thread::yield_now();
            }
            assert!(lock.try_read().is_none(), "a later reader overtook the writer");
            threads.spawn(|| {
                let value = lock.read();
                order.lock().unwrap().push(if *value == 1 { "reader" } else { "reader too early" });
            });
            drop(inside);
        });
        assert_eq!(*order.lock().unwrap(), ["writer", "reader"]);
    }
}

#[test]
fn a_panic_unlocks() {
    for is_biased in [false, true] {
        let lock = ReadBiasedRwLock::new(0);
        let prepare = || {
            if is_biased {
                bias(&lock);
            }
        };
        prepare();
        let dies_reading = || {
            let _inside = lock.read();
            panic!("intended");
        };
        assert!(elsewhere(|| catch_unwind(AssertUnwindSafe(dies_reading)).is_err()));
        prepare();
        let dies_writing = || {
            *lock.write() = 5;
            panic!("intended");
        };
        assert!(elsewhere(|| catch_unwind(AssertUnwindSafe(dies_writing)).is_err()));
        assert_eq!(*lock.write(), 5);
        assert_eq!(*lock.read(), 5);
    }
}

/// The last reader wakes a sleeping writer, and the writer wakes sleeping readers. The writer ends the bias
/// on which the readers inside rely.
#[test]
fn sleepers_are_woken() {
    let lock = ReadBiasedRwLock::new(0);
    for round in 0..if cfg!(miri) { 2 } else { 50 } {
        if round % 2 == 0 {
            bias(&lock);
        }
        let writes = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let (inside, told) = mpsc::channel();
            let reading = lock.read();
            threads.spawn(|| {
                let written = lock.try_write_for(LONG);
                writes.store(true, Ordering::Relaxed);
                assert!(written.is_some(), "the last reader did not wake the writer");
            });
            while !lock.has_writer() {
                std::thread::yield_now();
            }
            for _ in 0..3 {
                let inside = inside.clone();
                let (lock, writes) = (&lock, &writes);
                threads.spawn(move || {
                    let read = lock.try_read_for(LONG).is_some();
                    inside.send(read && writes.load(Ordering::Relaxed)).unwrap();
                });
            }
            drop(reading);
            assert!((0..3).all(|_| told.recv().unwrap()), "the writer did not wake the readers");
        });
    }
}

/// A thread-local value that is dropped after the thread has given its record back.
#[test]
fn a_destructor_of_a_thread_local_value_may_read() {
    static LOCK: ReadBiasedRwLock<u32> = ReadBiasedRwLock::new(7);
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    struct ReadsInItsDrop;
    impl Drop for ReadsInItsDrop {
        fn drop(&mut self) {
            let (one, two) = (LOCK.read(), LOCK.read());
            assert!(elsewhere(|| LOCK.try_write().is_none()));
            SEEN.fetch_add((*one + *two) as usize, Ordering::Relaxed);
        }
    }
    thread_local! {
        static LAST: RefCell<Option<ReadsInItsDrop>> = const { RefCell::new(None) };
    }
    bias(&LOCK);
    for _ in 0..3 {
        std::thread::spawn(|| {
            // Set before the first read registers the thread, so that it is dropped after the registration.
            LAST.with(|last| *last.borrow_mut() = Some(ReadsInItsDrop));
            drop(LOCK.read());
        })
        .join()
        .unwrap();
    }
    assert_eq!(SEEN.load(Ordering::Relaxed), 3 * 14);
    assert!(LOCK.try_write().is_some(), "all marks are gone");
}

#[test]
#[cfg_attr(any(not(debug_assertions), miri), ignore = "release builds and Miri do not check")]
fn a_thread_that_waits_for_itself_panics() {
    for is_biased in [false, true] {
        let lock = ReadBiasedRwLock::new(0);
        if is_biased {
            bias(&lock);
        }
        let reading = lock.read();
        let said = catch_unwind(|| drop(lock.write())).expect_err("the thread would wait for itself");
        assert!(said.downcast_ref::<&str>().is_some_and(|said| said.contains("already reads")), "{said:?}");
        std::thread::scope(|threads| {
            let writer = threads.spawn(|| drop(lock.write()));
            while !lock.has_writer() {
                std::thread::yield_now();
            }
            let twice = catch_unwind(|| drop(lock.read()));
            assert!(twice.is_err(), "a second read with a writer between did not panic");
            drop(reading);
            writer.join().unwrap();
        });
        let writing = lock.write();
        assert!(catch_unwind(|| drop(lock.write())).is_err(), "a second write did not panic");
        assert!(catch_unwind(|| drop(lock.read())).is_err(), "a read inside a write did not panic");
        drop(writing);
        assert_eq!(*lock.read(), 0);
    }
}

#[test]
fn constructors_and_unsized_values() {
    static LOCK: ReadBiasedRwLock<u8> = ReadBiasedRwLock::new(3);
    LOCK.set_name("a lock");
    assert_eq!(*LOCK.read(), 3);
    assert_eq!(*ReadBiasedRwLock::from(3).read(), 3);
    assert_eq!(*ReadBiasedRwLock::<u8>::default().read(), 0);
    let mut lock = Box::new(ReadBiasedRwLock::new([1, 2, 3]));
    lock.get_mut()[0] = 4;
    let unsized_lock: Box<ReadBiasedRwLock<[i32]>> = lock;
    assert_eq!(unsized_lock.read().len(), 3);
    assert_eq!(unsized_lock.read()[0], 4);
    if !cfg!(miri) && cfg!(target_os = "linux") {
        assert_eq!(size_of::<ReadBiasedRwLock<()>>(), 28, "as the documentation says");
    }
}
