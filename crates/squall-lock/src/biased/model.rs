//! Model tests of the shipped biased lock, and their twins with one weakened site.

use super::BiasedLock;
#[cfg(loom)]
use super::sites;
use squall_sys::sync::Arc;
use squall_sys::sync::thread;

/// The numbers of the threads.
const ONE: usize = 0x100;
const OTHER: usize = 0x200;
const THIRD: usize = 0x300;

fn add(lock: &BiasedLock<usize>, me: usize) {
    *lock.lock_as(me) += 1;
}

fn total(lock: &BiasedLock<usize>) -> usize {
    // SAFETY: the pointer is valid in the closure, and all other threads have ended.
    lock.value.with(|value| unsafe { *value })
}

/// The owner goes in while another thread takes the lock from it.
fn dismissed() {
    let lock = Arc::new(BiasedLock::new(0));
    // In models, one acquisition makes a thread the owner.
    add(&lock, ONE);
    let other = {
        let lock = lock.clone();
        thread::spawn(move || add(&lock, OTHER))
    };
    add(&lock, ONE);
    other.join().unwrap();
    assert_eq!(total(&lock), 3);
}

/// The owner goes in late, in the term of a second owner, and a third thread takes the lock from that one.
fn late() {
    let lock = Arc::new(BiasedLock::new(0));
    add(&lock, ONE);
    let beside = |me| {
        let lock = lock.clone();
        thread::spawn(move || add(&lock, me))
    };
    let one = beside(ONE);
    add(&lock, OTHER);
    let third = beside(THIRD);
    add(&lock, OTHER);
    one.join().unwrap();
    third.join().unwrap();
    assert_eq!(total(&lock), 5);
}

/// Another thread tries the lock while the owner is inside, and tries again.
fn tried() {
    let lock = Arc::new(BiasedLock::new(0));
    add(&lock, ONE);
    let other = {
        let lock = lock.clone();
        thread::spawn(move || {
            (0..2).filter(|_| lock.try_lock_as(OTHER).map(|mut guard| *guard += 1).is_some()).count()
        })
    };
    add(&lock, ONE);
    let added = other.join().unwrap();
    assert_eq!(total(&lock), 2 + added);
}

/// Makes a test of each model, which must hold.
use squall_sys::models;
models! { dismissed late tried }

#[cfg(loom)]
#[test]
fn twins() {
    use sites::*;
    for (site, model) in [
        (LIGHT, "dismissed"),
        (HEAVY, "dismissed"),
        (LEAVE, "dismissed"),
        (SEEN, "dismissed"),
        (LOOK, "dismissed"),
        (TIME, "late"),
        (LEAVING, "tried"),
    ] {
        squall_sys::sync::weaken::twin(site, &[], &format!("biased::model::{model}::holds"));
    }
}
