//! Model tests of the shipped lock, and their twins with one weakened site.

use super::RawLock;
use super::slow::{self, Sleepable};
use crate::records::{LockType, Wait};
use squall_sys::sync::Arc;
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::thread;
use squall_sys::trace::Subject;
use std::time::Instant;

/// A wait without events: the trace is off in models.
const UNTRACED: Wait = Wait::later(LockType::Plain, Subject::NONE);

struct Shared {
    lock: RawLock,
    value: UnsafeCell<usize>,
}

// SAFETY: the protocol under test keeps the threads apart, and the model checker verifies that.
unsafe impl Sync for Shared {}
// SAFETY: the protocol under test keeps the threads apart, and the model checker verifies that.
unsafe impl Send for Shared {}

impl Shared {
    fn new(lock: RawLock) -> Arc<Shared> {
        Arc::new(Shared { lock, value: UnsafeCell::new(0) })
    }

    fn count(&self) {
        // SAFETY: the pointer is valid in the closure. The model checks that no other thread writes at the
        // same time.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn add(&self) {
        if !self.lock.take() {
            self.lock.sleep(None, &UNTRACED);
        }
        self.count();
        self.lock.release();
    }

    /// Like [`Shared::add`], but gives up as soon as other threads had a turn. Returns whether it took the
    /// lock.
    fn add_or_leave(&self, deadline: Instant) -> bool {
        let taken = self.lock.take() || self.lock.sleep(Some(deadline), &UNTRACED);
        if taken {
            self.count();
            self.lock.release();
        }
        taken
    }

    fn total(&self) -> usize {
        // SAFETY: the pointer is valid in the closure, and all other threads have ended.
        self.value.with(|value| unsafe { *value })
    }
}

fn far() -> Instant {
    Instant::now() + std::time::Duration::from_secs(3600)
}

/// Two threads on a quick lock: the first sleeper makes the lock careful while the other thread releases it.
fn quick() {
    let shared = Shared::new(RawLock::new_quick());
    let other = {
        let shared = shared.clone();
        thread::spawn(move || shared.add())
    };
    shared.add();
    other.join().unwrap();
    assert_eq!(shared.total(), 2);
}

/// Two threads on a careful lock, which may become quick and careful again.
fn careful() {
    let shared = Shared::new(RawLock::new());
    let other = {
        let shared = shared.clone();
        thread::spawn(move || shared.add())
    };
    shared.add();
    shared.add();
    other.join().unwrap();
    assert_eq!(shared.total(), 3);
}

/// Two possible sleepers on a quick lock. The second relies on the CAREFUL bit before the first has made its
/// heavy fence.
fn relying() {
    let shared = Shared::new(RawLock::new_quick());
    let others: Vec<_> = (0..2)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || shared.add())
        })
        .collect();
    shared.add();
    others.into_iter().for_each(|other| other.join().unwrap());
    assert_eq!(shared.total(), 3);
}

/// One possible sleeper relies on the CAREFUL bit set by a thread that gives up.
fn giving_up() {
    let shared = Shared::new(RawLock::new_quick());
    let leaver = {
        let shared = shared.clone();
        thread::spawn(move || usize::from(shared.add_or_leave(far())))
    };
    let sleeper = {
        let shared = shared.clone();
        thread::spawn(move || shared.add())
    };
    shared.add();
    sleeper.join().unwrap();
    let left = leaver.join().unwrap();
    assert_eq!(shared.total(), 2 + left);
}

/// A thread that was woken and found the lock held gets the lock, by a hand-over or otherwise. Only one
/// thread holds the lock at a time.
fn handed() {
    let shared = Shared::new(RawLock::new());
    let other = {
        let shared = shared.clone();
        thread::spawn(move || shared.add())
    };
    assert!(shared.lock.take() || shared.lock.sleep(None, &UNTRACED));
    if shared.lock.is_announced() {
        // The woken thread finds the lock held.
        slow::wake::<RawLock, crate::NoSteps>(&shared.lock);
    }
    shared.count();
    shared.lock.release();
    other.join().unwrap();
    assert_eq!(shared.total(), 2);
}

/// Makes a test of each model, which must hold.
use squall_sys::models;
models! { quick careful relying giving_up handed }

#[cfg(loom)]
#[test]
fn twins() {
    use super::raw::sites::*;
    // Loom treats the light fence as a full fence, which hides the careful lock's own ordering. A lock that
    // stays careful does not need the light fence.
    let stays_careful: &[_] = &[LIGHT, QUICKEN];
    for (site, masks, model) in [
        (TAKE, &[][..], "quick"),
        (RELEASE, &[], "quick"),
        (LIGHT, &[], "quick"),
        (HEAVY, &[], "quick"),
        (LOOK, &[], "quick"),
        (ANNOUNCE, stays_careful, "careful"),
        (CARE, stays_careful, "careful"),
        (MODIFY, stays_careful, "careful"),
        // The models also hold where the heavy fence is refused, because the sleeper then does not rely on
        // it.
        (TAKE, &[REFUSE], "quick"),
        (TAKE, &[REFUSE], "relying"),
    ] {
        squall_sys::sync::weaken::twin(site, masks, &format!("lock::model::{model}::holds"));
    }
}
