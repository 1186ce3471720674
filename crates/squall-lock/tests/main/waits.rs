//! Each lock counts its sleeps, so that they are not taken for sleeps of the operation around them.

use squall_lock::{ConfigurableLock, DistributedRwLock, Lock, ReadBiasedRwLock, TwoBits};
use squall_sys::waits::sleeps;
use std::sync::atomic::AtomicU8;
use std::thread;
use std::time::Duration;

/// Tries to take a lock that another thread holds, until the thread has slept for it.
fn until_counted(try_for: impl Fn(Duration) -> bool + Send + Sync) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let before = sleeps();
            let mut limit = Duration::from_millis(1);
            while sleeps() == before {
                // A thread that is delayed may reach the limit before it sleeps.
                assert!(limit < Duration::from_secs(8), "no sleep was counted");
                assert!(!try_for(limit), "the lock is held");
                limit *= 2;
            }
        });
    });
}

#[test]
fn locks_count_their_sleeps() {
    let lock = Lock::new(());
    let held = lock.lock();
    until_counted(|limit| lock.try_lock_for(limit).is_some());
    drop(held);

    const BITS: TwoBits<AtomicU8> = TwoBits::low();
    let word = AtomicU8::new(0);
    let held = BITS.lock(&word);
    until_counted(|limit| BITS.try_lock_for(&word, limit).is_some());
    drop(held);

    let lock = ConfigurableLock::new(());
    let held = lock.lock();
    until_counted(|limit| lock.try_lock_for(limit).is_some());
    drop(held);

    let lock = DistributedRwLock::new(());
    let held = lock.write();
    until_counted(|limit| lock.try_read_for(limit).is_some());
    drop(held);
    let held = lock.read();
    until_counted(|limit| lock.try_write_for(limit).is_some());
    drop(held);

    let lock = ReadBiasedRwLock::new(());
    let held = lock.write();
    until_counted(|limit| lock.try_read_for(limit).is_some());
    drop(held);
    let held = lock.read();
    until_counted(|limit| lock.try_write_for(limit).is_some());
    drop(held);
}
