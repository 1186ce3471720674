//! Tests of the distributed reader-writer lock through its public interface.

use squall_lock::DistributedRwLock;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than any test: a wait of this length has lost its wake-up.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(1);

#[test]
fn many_read_and_one_writes() {
    let lock = DistributedRwLock::new((0u64, 0u64));
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                for _ in 0..rounds {
                    let mut both = lock.write();
                    both.0 += 1;
                    both.1 += 1;
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
fn readers_share_and_writers_do_not() {
    let lock = DistributedRwLock::new(1);
    let (first, second) = (lock.read(), lock.try_read().expect("no thread writes"));
    assert_eq!(*first + *second, 2);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            assert!(lock.try_write().is_none() && lock.try_write_for(SHORT).is_none());
            assert!(!lock.has_writer(), "a writer that gave up has left");
            assert_eq!(*lock.try_read_for(LONG).expect("a writer that gave up does not block readers"), 1);
        });
    });
    drop((first, second));
    let mut writing = lock.try_write().expect("no thread is inside");
    *writing = 2;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            assert!(lock.try_read().is_none() && lock.try_read_for(SHORT).is_none());
            assert!(lock.try_write().is_none() && lock.try_write_for(SHORT).is_none());
            assert_eq!(format!("{lock:?}"), "DistributedRwLock { value: <locked> }");
        });
    });
    drop(writing);
    assert_eq!(format!("{lock:?}"), "DistributedRwLock { value: 2 }");
    assert_eq!(*lock.read(), 2);
}

/// Reads more locks at once than a thread's record has slots, and leaves them in another order.
#[test]
fn a_thread_reads_many_locks_at_once() {
    let locks: Vec<DistributedRwLock<usize>> = (0..40).map(DistributedRwLock::new).collect();
    let mut guards: Vec<_> = locks.iter().map(|lock| lock.read()).collect();
    let writable = || {
        std::thread::scope(|threads| {
            let try_all = || locks.iter().filter(|lock| lock.try_write().is_some()).count();
            threads.spawn(try_all).join().unwrap()
        })
    };
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
    let lock = DistributedRwLock::new(0);
    let order = std::sync::Mutex::new(Vec::new());
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

#[test]
fn a_panic_unlocks() {
    let lock = DistributedRwLock::new(0);
    std::thread::scope(|threads| {
        let dies_reading = threads.spawn(|| {
            let _inside = lock.read();
            panic!("intended");
        });
        assert!(dies_reading.join().is_err());
        let dies_writing = threads.spawn(|| {
            *lock.write() = 5;
            panic!("intended");
        });
        assert!(dies_writing.join().is_err());
    });
    assert_eq!(*lock.write(), 5);
}

/// A thread-local value that is dropped after the thread has given its record back.
#[test]
fn a_destructor_of_a_thread_local_value_may_read() {
    static LOCK: DistributedRwLock<u32> = DistributedRwLock::new(7);
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    struct ReadsInItsDrop;
    impl Drop for ReadsInItsDrop {
        fn drop(&mut self) {
            let (one, two) = (LOCK.read(), LOCK.read());
            assert!(std::thread::scope(|threads| threads
                .spawn(|| LOCK.try_write().is_none())
                .join()
                .unwrap()));
            SEEN.fetch_add((*one + *two) as usize, Ordering::Relaxed);
        }
    }
    thread_local! {
        static LAST: RefCell<Option<ReadsInItsDrop>> = const { RefCell::new(None) };
    }
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

/// Two such destructors on two threads, with a writer between. The mark of one must not count for the other.
#[test]
fn destructors_of_two_threads_may_read_one_lock() {
    static LOCK: DistributedRwLock<u32> = DistributedRwLock::new(7);
    static STAGE: AtomicUsize = AtomicUsize::new(0);
    const READS: usize = 1;
    const WRITER_WAITS: usize = 2;
    const SECOND_COMES: usize = 3;
    fn await_stage(stage: usize) {
        while STAGE.load(Ordering::Acquire) < stage {
            std::thread::yield_now();
        }
    }
    struct ReadsInItsDrop {
        is_first: bool,
    }
    impl Drop for ReadsInItsDrop {
        fn drop(&mut self) {
            if self.is_first {
                let reading = LOCK.read();
                STAGE.store(READS, Ordering::Release);
                await_stage(SECOND_COMES);
                // Gives the second thread time to reach the lock while this one reads. A correct lock also
                // passes if that thread comes later.
                std::thread::sleep(2 * SHORT);
                drop(reading);
            } else {
                await_stage(WRITER_WAITS);
                STAGE.store(SECOND_COMES, Ordering::Release);
                // A panic here would end the process.
                assert_eq!(*LOCK.read(), 8, "this read comes after the writer");
            }
        }
    }
    thread_local! {
        static LAST: RefCell<Option<ReadsInItsDrop>> = const { RefCell::new(None) };
    }
    let dying = [true, false].map(|is_first| {
        std::thread::spawn(move || {
            LAST.with(|last| *last.borrow_mut() = Some(ReadsInItsDrop { is_first }));
            // A different lock, because the writer of `LOCK` may wait already.
            drop(DistributedRwLock::new(()).read());
        })
    });
    await_stage(READS);
    let writer = std::thread::spawn(|| *LOCK.write() += 1);
    while !LOCK.has_writer() {
        std::thread::yield_now();
    }
    STAGE.store(WRITER_WAITS, Ordering::Release);
    dying.into_iter().for_each(|thread| thread.join().unwrap());
    writer.join().unwrap();
}

/// Threads that come and go reuse records.
#[test]
fn records_are_reused() {
    let lock = DistributedRwLock::new(0);
    let read_on_a_thread = || std::thread::scope(|threads| threads.spawn(|| *lock.read()).join().unwrap());
    // More than all threads of the other tests, which may run meanwhile.
    let threads = if cfg!(miri) { 50 } else { 500 };
    for _ in 0..threads {
        read_on_a_thread();
    }
    assert!(squall_lock::readers_known() < threads, "{} records", squall_lock::readers_known());
}

/// The last reader wakes a sleeping writer, and the writer wakes sleeping readers.
#[test]
fn sleepers_are_woken() {
    let lock = DistributedRwLock::new(0);
    for _ in 0..if cfg!(miri) { 2 } else { 50 } {
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

#[test]
#[cfg_attr(not(debug_assertions), ignore = "release builds do not check")]
fn a_thread_that_waits_for_itself_panics() {
    static LOCK: DistributedRwLock<u32> = DistributedRwLock::new(0);
    let dies = std::thread::spawn(|| {
        let _reading = LOCK.read();
        let _writing = LOCK.write();
    });
    let said = dies.join().expect_err("the thread would wait for itself");
    assert!(said.downcast_ref::<&str>().is_some_and(|said| said.contains("already reads")), "{said:?}");
    let twice = std::thread::spawn(|| {
        let _reading = LOCK.read();
        let writer = std::thread::spawn(|| drop(LOCK.write()));
        while !LOCK.has_writer() {
            std::thread::yield_now();
        }
        let outcome = std::panic::catch_unwind(|| drop(LOCK.read()));
        (outcome.is_err(), writer)
    });
    let (panicked, writer) = twice.join().unwrap();
    assert!(panicked, "a second read with a writer between did not panic");
    writer.join().unwrap();
}

#[test]
fn constructors_and_unsized_values() {
    assert_eq!(*DistributedRwLock::from(3).read(), 3);
    assert_eq!(*DistributedRwLock::<u8>::default().read(), 0);
    let mut lock = Box::new(DistributedRwLock::new([1, 2, 3]));
    lock.get_mut()[0] = 4;
    let unsized_lock: Box<DistributedRwLock<[i32]>> = lock;
    assert_eq!(unsized_lock.read().len(), 3);
    assert_eq!(unsized_lock.read()[0], 4);
    if !cfg!(miri) && cfg!(target_os = "linux") {
        assert_eq!(size_of::<DistributedRwLock<()>>(), 28, "as the documentation says");
    }
}
