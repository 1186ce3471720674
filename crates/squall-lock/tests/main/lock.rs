//! Tests of `Lock` through its public interface. The models in `src/lock/model.rs` check the protocol.

use squall_lock::Lock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn it_is_two_bytes() {
    assert_eq!(size_of::<Lock<()>>(), 2);
    assert_eq!(size_of::<Lock<[u8; 6]>>(), 8);
}

#[test]
fn one_at_a_time() {
    let lock = Lock::new((0u64, 0u64));
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..ROUNDS {
                    let mut pair = lock.lock();
                    pair.0 += 1;
                    assert_eq!(pair.0, pair.1 + 1);
                    pair.1 += 1;
                }
            });
        }
    });
    let expected = 4 * ROUNDS as u64;
    assert_eq!(lock.into_inner(), (expected, expected));
}

#[test]
fn sleepers_are_woken() {
    // Sections are long enough that the others sleep. Quiet stretches between them let the lock change its
    // mode.
    let lock = Lock::new(0usize);
    let together = Barrier::new(3);
    let rounds = if cfg!(miri) { 2 } else { 30 };
    thread::scope(|threads| {
        for which in 0..3 {
            let (lock, together) = (&lock, &together);
            threads.spawn(move || {
                for round in 0..rounds {
                    together.wait();
                    let mut value = lock.lock();
                    *value += 1;
                    thread::sleep(Duration::from_millis(1));
                    drop(value);
                    together.wait();
                    if round % 3 == which {
                        (0..100).for_each(|_| *lock.lock() += 1);
                    }
                }
            });
        }
    });
    assert_eq!(lock.into_inner(), 3 * rounds + 100 * rounds);
}

#[test]
fn try_lock_fails_while_the_lock_is_held() {
    let lock = Lock::new(1);
    let guard = lock.lock();
    assert!(lock.is_locked());
    assert_eq!(format!("{lock:?}"), "Lock { value: <locked> }");
    thread::scope(|threads| {
        threads.spawn(|| {
            assert!(lock.try_lock().is_none());
            assert!(lock.try_lock_for(Duration::from_millis(1)).is_none());
            assert!(lock.try_lock_until(Instant::now()).is_none());
        });
    });
    drop(guard);
    assert!(!lock.is_locked());
    assert_eq!(lock.try_lock().as_deref(), Some(&1));
    // A past deadline still takes a free lock, and a limit beyond the end of the clock means no limit.
    assert!(lock.try_lock_until(Instant::now() - Duration::from_secs(1)).is_some());
    assert!(lock.try_lock_for(Duration::MAX).is_some());
    assert_eq!(format!("{lock:?}"), "Lock { value: 1 }");
}

#[test]
fn giving_up_loses_no_wake_up() {
    let lock = Lock::new(());
    let (had, left) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|threads| {
        for which in 0..4 {
            let (lock, had, left) = (&lock, &had, &left);
            threads.spawn(move || {
                for _ in 0..ROUNDS / 20 {
                    let guard = match which {
                        0 | 1 => lock.try_lock_for(Duration::from_micros(20)),
                        _ => Some(lock.lock()),
                    };
                    if guard.is_some() {
                        thread::yield_now();
                        had.fetch_add(1, Ordering::Relaxed);
                    } else {
                        left.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(had.into_inner() + left.into_inner(), 4 * (ROUNDS / 20));
    assert!(!lock.is_locked());
}

#[test]
fn a_panic_releases_it() {
    let lock = Arc::new(Lock::new(0));
    let other = lock.clone();
    let panicked = thread::spawn(move || {
        let mut value = other.lock();
        *value = 7;
        panic!("with the lock held");
    });
    assert!(panicked.join().is_err());
    assert_eq!(*lock.lock(), 7);
}

#[test]
fn values_of_unknown_size() {
    let slice: &Lock<[u32]> = &Lock::new([1, 2, 3]);
    slice.lock()[1] = 5;
    assert_eq!(*slice.lock(), [1, 5, 3]);
    let any: Box<Lock<dyn Send>> = Box::new(Lock::new(String::from("text")));
    assert!(any.try_lock().is_some());
}

#[test]
fn exclusive_access_needs_no_lock() {
    let mut lock: Lock<String> = Lock::from(String::from("a"));
    lock.get_mut().push('b');
    assert_eq!(lock.lock().to_string(), "ab");
    assert_eq!(format!("{:?}", lock.lock()), "\"ab\"");
    assert_eq!(Lock::<u8>::default().into_inner(), 0);
}

/// Runs tests again without `membarrier`, where releases make a full fence. The mode is chosen once per
/// process, so a child process runs them.
#[test]
#[cfg(not(miri))]
fn the_lock_works_without_membarrier() {
    const TESTS: [&str; 4] = [
        "lock::one_at_a_time",
        "lock::sleepers_are_woken",
        "lock::giving_up_loses_no_wake_up",
        "lock::a_panic_releases_it",
    ];
    // Under user-mode emulation the kernel cannot start this program by itself. The variable names the
    // emulator.
    let runner = std::env::var("SQUALL_TEST_RUNNER").unwrap_or_default();
    let program = std::env::current_exe().unwrap().into_os_string();
    let mut words = runner.split_whitespace().map(std::ffi::OsString::from).chain([program]);
    let output = std::process::Command::new(words.next().unwrap())
        .args(words)
        .arg("--exact")
        .args(TESTS)
        .env("SQUALL_MEMBARRIER", "off")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("4 passed"), "{text}{said}");
}
