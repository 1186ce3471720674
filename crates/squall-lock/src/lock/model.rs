//! Model checks of the lock in the form that ships, and the tests of those tests.

use super::RawLock;
use super::slow::{self, Sleepable};
use squall_sync::cell::UnsafeCell;
use squall_sync::sync::Arc;
use squall_sync::thread;
use std::time::Instant;

struct Shared {
    lock: RawLock,
    value: UnsafeCell<usize>,
}

// SAFETY: the protocol under test is what keeps the threads apart; the checker watches.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new(lock: RawLock) -> Arc<Shared> {
        Arc::new(Shared { lock, value: UnsafeCell::new(0) })
    }

    fn count(&self) {
        // SAFETY: the pointer is valid in the closure; that nobody else writes is what is checked.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn add(&self) {
        if !self.lock.take() {
            self.lock.sleep(None);
        }
        self.count();
        self.lock.release();
    }

    /// As [`Shared::add`], with a limit that is over as soon as others had a turn. Whether it had the lock.
    fn add_or_leave(&self, deadline: Instant) -> bool {
        let taken = self.lock.take() || self.lock.sleep(Some(deadline));
        if taken {
            self.count();
            self.lock.release();
        }
        taken
    }

    fn total(&self) -> usize {
        // SAFETY: the pointer is valid in the closure; all other threads have ended.
        self.value.with(|value| unsafe { *value })
    }
}

fn far() -> Instant {
    Instant::now() + std::time::Duration::from_secs(3600)
}

/// Two threads on a quick lock: the first that sleeps makes it careful, while the other releases.
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

/// The same on a careful lock, which may become quick and careful again.
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

/// Two that may sleep, on a quick lock: the second relies on the care that the first has not yet made sure of.
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

/// One that may sleep relies on one that gives up.
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

/// A thread that was woken in vain is handed the lock, or gets it otherwise, and nobody has it with it.
fn handed() {
    let shared = Shared::new(RawLock::new());
    let other = {
        let shared = shared.clone();
        thread::spawn(move || shared.add())
    };
    assert!(shared.lock.take() || shared.lock.sleep(None));
    if shared.lock.is_announced() {
        // A wake-up in vain: the lock is held.
        slow::wake::<RawLock, crate::Undisturbed>(&shared.lock);
    }
    shared.count();
    shared.lock.release();
    other.join().unwrap();
    assert_eq!(shared.total(), 2);
}

/// Each model as a test: it holds.
macro_rules! models {
    ($($model:ident)*) => { $(
        mod $model {
            #[test]
            fn holds() {
                squall_sync::weaken::check(super::$model);
            }
        }
    )* };
}

models! { quick careful relying giving_up handed }

#[cfg(loom)]
#[test]
fn twins() {
    use super::raw::sites::*;
    // The light fence, which loom sees as a full one, hides the careful lock's own ordering; and a lock that stays careful
    // does not need it.
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
        // Where the heavy fence is refused, the models hold too, as the sleeper does not rely on it.
        (TAKE, &[REFUSE], "quick"),
        (TAKE, &[REFUSE], "relying"),
    ] {
        squall_sync::weaken::twin(site, masks, &format!("lock::model::{model}::holds"));
    }
}
