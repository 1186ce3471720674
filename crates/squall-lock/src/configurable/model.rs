//! Model tests of the shipped lock, with attributes that change while threads wait, and their twins with one
//! weakened site.

use std::time::{Duration, Instant};

use squall_sys::sync::Arc;
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::thread::{self, JoinHandle};

use super::cancel::Cancel;
use super::raw::RawLock;
use super::request::{Ask, LockError};
use super::scheduling::{Order, Release, Scheduling};
use super::waiting::{Method, Waiting};
use crate::steps::NoSteps;

const EAGER: Scheduling = Scheduling::FREE_FOR_ALL.patience(Duration::ZERO);
const PATIENT: Scheduling = Scheduling::FREE_FOR_ALL.patience(Duration::from_secs(60));
const REGISTERED: Scheduling = PATIENT.order(Order::FirstCome);
const SPIN_THEN_BLOCK: Waiting = Waiting::new(&[Method::Spin(1), Method::Block]);

/// A lock around a number that the model checker watches.
struct Shared {
    lock: RawLock<NoSteps>,
    value: UnsafeCell<u32>,
}

// SAFETY: the lock under test keeps the threads apart, and the model checker verifies that.
unsafe impl Sync for Shared {}
// SAFETY: the lock under test keeps the threads apart, and the model checker verifies that.
unsafe impl Send for Shared {}

impl Shared {
    fn new(waiting: Waiting, scheduling: Scheduling) -> Arc<Shared> {
        Arc::new(Shared { lock: RawLock::new(waiting, scheduling), value: UnsafeCell::new(0) })
    }

    fn lock(&self, ask: &Ask<'_>) -> Result<(), LockError> {
        if self.lock.try_fast() { Ok(()) } else { self.lock.acquire(ask) }
    }

    /// Adds one under the lock. Returns false if the lock was not acquired.
    fn add(&self, ask: &Ask<'_>) -> bool {
        if self.lock(ask).is_err() {
            return false;
        }
        self.add_and_unlock();
        true
    }

    fn add_and_unlock(&self) {
        // SAFETY: see `Shared`.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.lock.unlock();
    }

    /// Adds one in another thread, without a limit to its wait.
    fn adds(shared: &Arc<Shared>) -> JoinHandle<()> {
        let shared = shared.clone();
        thread::spawn(move || assert!(shared.add(&Ask::default())))
    }

    fn is(&self, expected: u32) {
        assert!(self.lock(&Ask::default()).is_ok());
        // SAFETY: see `Shared`.
        assert_eq!(self.value.with(|value| unsafe { *value }), expected);
        self.lock.unlock();
        assert!(!self.lock.is_held());
    }
}

fn soon<'a>() -> Ask<'a> {
    Ask { deadline: Some(Instant::now()), ..Ask::default() }
}

/// Two threads wait for the first thread's lock. The value must equal the number of additions.
fn three(waiting: Waiting, scheduling: Scheduling) {
    let shared = Shared::new(waiting, scheduling);
    assert!(shared.lock(&Ask::default()).is_ok());
    let others = [Shared::adds(&shared), Shared::adds(&shared)];
    shared.add_and_unlock();
    for other in others {
        other.join().unwrap();
    }
    shared.is(3);
}

fn two(waiting: Waiting, scheduling: Scheduling) {
    let shared = Shared::new(waiting, scheduling);
    let other = Shared::adds(&shared);
    assert!(shared.add(&Ask::default()));
    other.join().unwrap();
    shared.is(2);
}

fn sleepers() {
    two(Waiting::BLOCK, PATIENT);
}

fn three_sleepers() {
    three(Waiting::BLOCK, PATIENT);
}

fn one_awake() {
    three(SPIN_THEN_BLOCK, PATIENT.awake_max(1));
}

/// Each release ends a turn: the lock is reserved for awake waiters, and given to sleepers.
fn turns() {
    three(SPIN_THEN_BLOCK, EAGER.awake_max(1));
}

fn hand_off_unregistered() {
    three(SPIN_THEN_BLOCK, PATIENT.release(Release::HandOff));
}

fn hand_off() {
    two(SPIN_THEN_BLOCK, REGISTERED.release(Release::HandOff));
}

fn registered_free_for_all() {
    two(SPIN_THEN_BLOCK, REGISTERED);
}

/// A counted thread times out while another sleeps. Its promise must still be fulfilled.
fn one_times_out(scheduling: Scheduling) {
    let shared = Shared::new(SPIN_THEN_BLOCK, scheduling);
    assert!(shared.lock(&Ask::default()).is_ok());
    let sleeper = Shared::adds(&shared);
    let hurried = {
        let shared = shared.clone();
        thread::spawn(move || u32::from(shared.add(&soon())))
    };
    shared.add_and_unlock();
    let added = hurried.join().unwrap();
    sleeper.join().unwrap();
    shared.is(2 + added);
}

fn a_spinner_times_out() {
    one_times_out(PATIENT.awake_max(1));
}

fn a_registered_one_times_out() {
    let shared = Shared::new(Waiting::BLOCK, REGISTERED.release(Release::HandOff));
    assert!(shared.lock(&Ask::default()).is_ok());
    let hurried = {
        let shared = shared.clone();
        thread::spawn(move || u32::from(shared.add(&soon())))
    };
    shared.add_and_unlock();
    let added = hurried.join().unwrap();
    shared.is(1 + added);
}

/// The other thread gives up before the lock is freed. Either it is cancelled, or a change of attributes
/// wakes it and it finds a silent cancellation.
fn gives_up(scheduling: Scheduling, end: fn(&Shared, &Cancel)) {
    let shared = Shared::new(Waiting::BLOCK, scheduling);
    let cancel = Arc::new(Cancel::new());
    assert!(shared.lock(&Ask::default()).is_ok());
    let other = {
        let (shared, cancel) = (shared.clone(), cancel.clone());
        thread::spawn(move || {
            let ask = Ask { cancel: Some(&cancel), ..Ask::default() };
            assert_eq!(shared.lock(&ask), Err(LockError::Cancelled));
        })
    };
    end(&shared, &cancel);
    other.join().unwrap();
    shared.add_and_unlock();
    shared.is(1);
}

fn cancels(_: &Shared, cancel: &Cancel) {
    cancel.cancel();
}

fn changes_something(shared: &Shared, cancel: &Cancel) {
    cancel.cancel_silently();
    shared.lock.waiting.set(SPIN_THEN_BLOCK);
    shared.lock.wake_all();
}

/// Attributes are set while another thread is about to sleep. It must wait by the new ones, although the lock
/// is not freed.
fn waits_by_what_was_set(scheduling: Scheduling) {
    let shared = Shared::new(Waiting::BLOCK, scheduling);
    assert!(shared.lock(&Ask::default()).is_ok());
    let other = Shared::adds(&shared);
    shared.lock.waiting.set(SPIN_THEN_BLOCK);
    shared.lock.wake_all();
    // The thread spun before it slept.
    while shared.lock.monitor.read().spins_wasted == 0 {
        thread::yield_now();
    }
    shared.add_and_unlock();
    other.join().unwrap();
    shared.is(2);
}

fn it_waits_by_what_was_set_in_the_table() {
    waits_by_what_was_set(PATIENT.awake_max(1));
}

fn it_waits_by_what_was_set_in_the_list() {
    waits_by_what_was_set(REGISTERED);
}

fn cancelled_in_the_table() {
    gives_up(PATIENT, cancels);
}

fn cancelled_in_the_list() {
    gives_up(REGISTERED, cancels);
}

fn a_change_wakes_in_the_table() {
    gives_up(PATIENT, changes_something);
}

fn a_change_wakes_in_the_list() {
    gives_up(REGISTERED, changes_something);
}

/// The attributes change from `from` to `to` while another thread waits.
fn changes(from: Scheduling, to: Scheduling) {
    let shared = Shared::new(Waiting::BLOCK, from);
    let other = Shared::adds(&shared);
    let changer = {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.lock.scheduling.set(to);
            shared.lock.wake_all();
        })
    };
    assert!(shared.add(&Ask::default()));
    other.join().unwrap();
    changer.join().unwrap();
    shared.is(2);
}

fn it_becomes_registered() {
    changes(PATIENT, REGISTERED.release(Release::HandOff));
}

fn it_becomes_unregistered() {
    changes(REGISTERED.release(Release::HandOff), PATIENT);
}

use squall_sys::models;
models! {
    within 4: sleepers hand_off registered_free_for_all a_registered_one_times_out cancelled_in_the_table cancelled_in_the_list
    it_becomes_registered it_becomes_unregistered a_change_wakes_in_the_table a_change_wakes_in_the_list
}
// Models with three threads.
models! { within 2: three_sleepers one_awake turns hand_off_unregistered a_spinner_times_out
it_waits_by_what_was_set_in_the_table it_waits_by_what_was_set_in_the_list }

#[cfg(loom)]
mod twins {
    use crate::configurable::sites;
    use squall_sys::sync::weaken::{Site, twin};

    fn fails(site: Site, model: &str) {
        twin(site, &[], &format!("configurable::model::{model}::holds"));
    }

    #[test]
    fn of_the_word() {
        fails(sites::ACQUIRE, "sleepers");
        fails(sites::RELEASE, "sleepers");
        fails(sites::LAST_LOOK, "sleepers");
        fails(sites::DUTY, "a_spinner_times_out");
    }

    #[test]
    fn of_the_list() {
        fails(sites::GRANT_RELEASE, "hand_off");
        fails(sites::GRANT_ACQUIRE, "hand_off");
        fails(sites::REGISTERED_LOOK, "hand_off");
        fails(sites::LATE_GRANT, "a_registered_one_times_out");
    }

    #[test]
    fn of_changes() {
        fails(sites::CHANGE_WAKES, "a_change_wakes_in_the_table");
        fails(sites::CHANGE_WAKES, "a_change_wakes_in_the_list");
        fails(sites::CANCEL_LOOK, "cancelled_in_the_table");
        fails(sites::CHANGE_LOOK, "it_waits_by_what_was_set_in_the_table");
        fails(sites::CHANGE_LOOK, "it_waits_by_what_was_set_in_the_list");
    }
}
