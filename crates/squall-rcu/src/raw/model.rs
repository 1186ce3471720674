//! Model checks of the shipped protocol, and twins that prove the checks sharp.
//!
//! Each model is a small program over [`Domain`] with two or three threads. Loom tries every interleaving (up
//! to the preemption bound) and every value that a load may return. Miri samples them by random seeds. Each
//! fence and ordering that the proof names is then weakened, and its model must fail (`twins!` below). A
//! finding of Miri ends the process; there `SQUALL_WEAKEN` names the sites, and the caller expects the
//! failure.

use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::thread;
use std::time::Duration;

use super::defer::{Deferred, Kind, Queue};
use super::domain::Domain;
use super::grace::{Haste, Limits};
use super::outcome::Outcome;
#[cfg(loom)]
use super::sites;
use super::switch::Switch;
use super::tour::Tour;
use super::work::Work;
#[cfg(loom)]
use squall_machine::park::sites as park;

const LIMITS: Limits =
    Limits { haste: Haste::Normal, deadline: None, stall_timeout: Duration::from_secs(3600) };

/// A value that a reader reads within an operation. A writer replaces it and then overwrites the old slot, as
/// if freed.
struct Shared {
    domain: Domain,
    current: AtomicUsize,
    slots: [UnsafeCell<usize>; 2],
}

// SAFETY: the protocol under test keeps writer and readers of a slot apart; the checker reports a violation.
unsafe impl Sync for Shared {}
// SAFETY: as for `Sync`: the protocol under test keeps the threads apart.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            domain: Domain::new(),
            current: AtomicUsize::new(0),
            slots: [UnsafeCell::new(1), UnsafeCell::new(2)],
        })
    }

    fn read(&self, fenced: bool) {
        let record = self.domain.register(1, fenced);
        let token = self.domain.enter(record);
        self.look();
        let _ = self.domain.leave(record, token);
        self.domain.unregister(record);
    }

    fn look(&self) {
        self.look_at(self.slot());
    }

    fn slot(&self) -> usize {
        // Relaxed: both slots were filled before the threads began.
        self.current.load(Ordering::Relaxed)
    }

    fn look_at(&self, slot: usize) {
        // SAFETY: the protocol under test keeps writer and readers of a slot apart (see `Sync` above).
        let value = self.slots[slot].with(|value| unsafe { *value });
        assert_ne!(value, 0, "a reader saw what was freed");
    }

    fn unlink(&self) {
        self.current.store(1, Ordering::Relaxed);
    }

    fn free(&self) {
        // SAFETY: the protocol under test keeps writer and readers of a slot apart (see `Sync` above).
        self.slots[0].with_mut(|value| unsafe { *value = 0 });
    }

    /// Unlinks, and frees if another thread's verdict says that it may.
    fn unlink_and_believe(&self) {
        self.unlink();
        let moment = self.domain.grace.mark();
        if self.domain.grace.elapsed(moment) {
            self.free();
        }
    }

    fn wait(&self) {
        let moment = self.domain.grace.mark();
        self.domain.grace.wait(&self.domain.registry, moment, LIMITS).expect("nothing limits this wait");
    }
}

/// Runs a thread that unlinks, waits and frees, beside `reader`, which runs on the model's main thread.
///
/// The reader must come first in the execution from which loom branches. Loom remembers only the last access
/// to an atomic. So a thread that loads and then stores a word hides an earlier load by another thread.
fn wait_beside(shared: &Arc<Shared>, reader: impl FnOnce(&Shared)) {
    let writer = {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.unlink();
            shared.wait();
            shared.free();
        })
    };
    reader(shared);
    writer.join().unwrap();
}

/// One reader enters and leaves while a writer unlinks, waits and frees. Covers enter, leave, register, exit,
/// mark and wait.
fn read_against_wait(fenced: bool) {
    wait_beside(&Shared::new(), |shared| shared.read(fenced));
}

fn wait_light() {
    read_against_wait(false);
}

fn wait_fenced() {
    read_against_wait(true);
}

/// One thread unlinks and frees, and a second one drives, while a third reads.
fn mark_here_drive_there() {
    let shared = Shared::new();
    let reader = {
        let shared = shared.clone();
        thread::spawn(move || shared.read(false))
    };
    let driver = {
        let shared = shared.clone();
        thread::spawn(move || {
            let moment = shared.domain.grace.mark_unfenced();
            let _ = shared.domain.grace.poll(&shared.domain.registry, moment);
        })
    };
    shared.unlink_and_believe();
    driver.join().unwrap();
    reader.join().unwrap();
}

/// A driver finds its own operation over and publishes the verdict. It reads between its own fence and its
/// verdict, so that only the verdict's ordering covers the read.
fn drive_own_operation(shared: &Shared) {
    let record = shared.domain.register(1, false);
    let token = shared.domain.enter(record);
    let slot = shared.slot();
    let moment = shared.domain.grace.mark_unfenced();
    let _ = shared.domain.grace.poll(&shared.domain.registry, moment);
    shared.look_at(slot);
    let _ = record.leave(token);
    let _ = shared.domain.grace.poll(&shared.domain.registry, moment);
}

/// A driver publishes its verdict; another thread believes it and frees.
fn verdict_travels() {
    let shared = Shared::new();
    let driver = {
        let shared = shared.clone();
        thread::spawn(move || drive_own_operation(&shared))
    };
    shared.unlink_and_believe();
    driver.join().unwrap();
}

/// A driver publishes its verdict and begins the next grace period. Another thread may see only that, and
/// believes the verdict.
fn next_start_travels() {
    let shared = Shared::new();
    let driver = {
        let shared = shared.clone();
        thread::spawn(move || {
            drive_own_operation(&shared);
            let next = shared.domain.grace.mark_unfenced();
            let _ = shared.domain.grace.poll(&shared.domain.registry, next);
        })
    };
    shared.unlink_and_believe();
    driver.join().unwrap();
}

/// A reader's last reads happen before the steps of a poller that finds the operation over. The threads do
/// not sleep.
fn leave_is_seen() {
    let shared = Shared::new();
    let reader = {
        let shared = shared.clone();
        let _ = shared.domain.register(1, false);
        thread::spawn(move || {
            shared.domain.registry.for_each(|record| {
                let token = shared.domain.enter(record);
                shared.look();
                let _ = record.leave(token);
            });
        })
    };
    shared.unlink();
    let moment = shared.domain.grace.mark();
    for _ in 0..2 {
        if shared.domain.grace.poll(&shared.domain.registry, moment) == Ok(true) {
            shared.free();
            break;
        }
    }
    reader.join().unwrap();
}

/// Runs a thread that unlinks, polls twice, and frees if the reader's operation is over, beside `reader`. The
/// reader runs on the main thread, as in `wait_beside`. The threads do not sleep.
fn poll_beside(shared: &Arc<Shared>, reader: impl FnOnce(&Shared)) {
    let poller = {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.unlink();
            let moment = shared.domain.grace.mark();
            let _ = shared.domain.grace.poll(&shared.domain.registry, moment);
            if shared.domain.grace.poll(&shared.domain.registry, moment) == Ok(true) {
                shared.free();
            }
        })
    };
    reader(shared);
    poller.join().unwrap();
}

/// A reader leaves one operation and enters the next. The poller may see the second one in place of the end
/// of the first.
fn two_operations() {
    let shared = Shared::new();
    let owner = shared.clone();
    let record = owner.domain.register(1, false);
    poll_beside(&shared, |shared| {
        for _ in 0..2 {
            let token = shared.domain.enter(record);
            shared.look();
            let _ = record.leave(token);
        }
    });
}

/// A reader ends, and another thread takes over its record. The poller may see the record as the new owner
/// took it.
fn record_taken_over() {
    let shared = Shared::new();
    let owner = shared.clone();
    let record = owner.domain.register(1, false);
    poll_beside(&shared, |shared| {
        let token = shared.domain.enter(record);
        shared.look();
        let _ = record.leave(token);
        shared.domain.unregister(record);
        let heir = owner.clone();
        let heir = thread::spawn(move || {
            let _ = heir.domain.register(2, false);
        });
        heir.join().unwrap();
    });
}

/// A reader leaves while a waiter goes to sleep for it. Only the reader can wake the waiter.
fn leave_wakes() {
    let shared = Shared::new();
    let owner = shared.clone();
    let record = owner.domain.register(1, false);
    wait_beside(&shared, |shared| {
        let token = shared.domain.enter(record);
        let _ = shared.domain.leave(record, token);
    });
}

/// Two threads poll a marker together. The thread that gets the role goes on where the other stopped.
fn two_poll() {
    let shared = Shared::new();
    let record = shared.domain.register(1, false);
    let token = shared.domain.enter(record);
    let other = {
        let shared = shared.clone();
        thread::spawn(move || {
            let moment = shared.domain.grace.mark();
            let _ = shared.domain.grace.poll(&shared.domain.registry, moment);
        })
    };
    let moment = shared.domain.grace.mark();
    let early = shared.domain.grace.poll(&shared.domain.registry, moment);
    assert_eq!(early, Ok(false), "a marker elapsed inside an operation that was open before it");
    let _ = shared.domain.leave(record, token);
    other.join().unwrap();
    assert_eq!(shared.domain.grace.poll(&shared.domain.registry, moment), Ok(true));
    shared.domain.unregister(record);
}

/// Two threads wait while a third is inside an operation.
fn two_wait() {
    let shared = Shared::new();
    let record = shared.domain.register(1, false);
    let token = shared.domain.enter(record);
    let other = {
        let shared = shared.clone();
        thread::spawn(move || shared.wait())
    };
    let another = {
        let shared = shared.clone();
        thread::spawn(move || shared.wait())
    };
    let _ = shared.domain.leave(record, token);
    other.join().unwrap();
    another.join().unwrap();
    shared.domain.unregister(record);
}

/// A thread ends inside an operation that another thread waits for.
fn exit_inside() {
    wait_beside(&Shared::new(), |shared| {
        let record = shared.domain.register(1, false);
        let _ = shared.domain.enter(record);
        let _ = shared.domain.enter(record);
        shared.look();
        shared.domain.unregister(record);
    });
}

/// A record passes from one thread to the next while a writer waits for its first owner.
fn record_reused() {
    wait_beside(&Shared::new(), |shared| {
        shared.read(false);
        shared.read(false);
    });
}

fn count(counter: &Arc<AtomicUsize>) -> Deferred {
    counting(Arc::into_raw(counter.clone()).cast_mut().cast())
}

fn counting(counter: *mut ()) -> Deferred {
    unsafe fn run(data: *mut ()) {
        // SAFETY: made by `Arc::into_raw`, and run once.
        let counter = unsafe { Arc::from_raw(data.cast::<AtomicUsize>().cast_const()) };
        counter.fetch_add(1, Ordering::Relaxed);
    }
    Deferred::new(run, counter, 8)
}

fn run(batches: Vec<super::defer::Batch>) {
    for call in batches.into_iter().flat_map(|batch| batch.calls) {
        // SAFETY: each call is taken from a list once.
        unsafe { call.run() };
    }
}

/// Spawns a thread that takes all lists and runs their calls.
fn take_elsewhere(domain: &Arc<Domain>) -> thread::JoinHandle<()> {
    let domain = domain.clone();
    thread::spawn(move || {
        let mut taken = Vec::new();
        let records = domain.choose(|_| true);
        let take = |queue: &mut Queue| taken.extend(queue.take_all(|| domain.grace.mark()));
        domain.visit(&records, take, || ()).expect("the checker's fence does not fail");
        run(taken);
    })
}

/// An owner defers while another thread takes its list. Each call runs once, on one of the two threads.
fn defer_against_take() {
    let domain = Arc::new(Domain::new());
    let counter = Arc::new(AtomicUsize::new(0));
    let record_of = domain.clone();
    let record = record_of.register(1, false);
    let taker = take_elsewhere(&domain);
    let _ = domain.defer(record, Kind::Memory, count(&counter)).expect("not a handler");
    let _ = domain.defer(record, Kind::Code, count(&counter)).expect("not a handler");
    run(domain.take_own(record, || ()));
    taker.join().unwrap();
    assert_eq!(counter.load(Ordering::Relaxed), 2);
    domain.unregister(record);
}

/// An owner defers on the fast path while another thread takes its list. All calls of a batch but the first
/// and the last take this path.
fn defer_fast_against_take() {
    let domain = Arc::new(Domain::new());
    let counter = Arc::new(AtomicUsize::new(0));
    let record_of = domain.clone();
    let record = record_of.register(1, false);
    let _ = domain.defer(record, Kind::Memory, count(&counter)).expect("not a handler");
    let taker = take_elsewhere(&domain);
    let another = Arc::into_raw(counter.clone()).cast_mut().cast();
    // Refused if the taker holds the list, or has emptied it and so left no room. A refused call is left
    // untouched.
    if !domain.defer_fast(record, Kind::Memory, counting(another)) {
        let _ = domain.defer(record, Kind::Memory, counting(another)).expect("not a handler");
    }
    run(domain.take_own(record, || ()));
    taker.join().unwrap();
    assert_eq!(counter.load(Ordering::Relaxed), 2);
    domain.unregister(record);
}

/// A call deferred after unlinking runs only after every reader that could see the object has left.
fn defer_runs_late() {
    struct Free(Arc<Shared>);
    unsafe fn run_free(data: *mut ()) {
        // SAFETY: made by `Box::into_raw` below, and run once.
        let free = unsafe { Box::from_raw(data.cast::<Free>()) };
        free.0.free();
    }
    let shared = Shared::new();
    let reader = {
        let shared = shared.clone();
        thread::spawn(move || shared.read(false))
    };
    let record = shared.domain.register(2, false);
    shared.unlink();
    let data = Box::into_raw(Box::new(Free(shared.clone()))).cast();
    let call = Deferred::new(run_free, data, 8);
    let _ = shared.domain.defer(record, Kind::Code, call).expect("not a handler");
    for batch in shared.domain.take_own(record, || ()) {
        shared.domain.grace.wait(&shared.domain.registry, batch.moment, LIMITS).expect("no limit");
        run(vec![batch]);
    }
    reader.join().unwrap();
    shared.domain.unregister(record);
}

/// An owner announces work while the reclaimer goes to rest: the flag is set in the end. `owner_first`
/// selects the thread that runs on the main thread, since loom branches from its execution (see
/// `wait_beside`).
fn announce_against_rest(owner_first: bool) {
    let shared = Arc::new((Work::new(), AtomicUsize::new(0)));
    let _ = shared.0.claim();
    let owner = |shared: &(Work, AtomicUsize)| {
        shared.1.store(1, Ordering::Relaxed);
        if shared.0.announce(false) {
            let _ = shared.0.claim();
        }
    };
    let reclaimer = |shared: &(Work, AtomicUsize)| {
        shared.0.rest(|| shared.1.load(Ordering::Relaxed) > 0).expect("the checker's fence does not fail");
    };
    let other = shared.clone();
    let other = thread::spawn(move || if owner_first { reclaimer(&other) } else { owner(&other) });
    if owner_first {
        owner(&shared)
    } else {
        reclaimer(&shared)
    }
    other.join().unwrap();
    assert!(shared.0.is_set(), "a call is pending and the flag is clear");
}

fn announce_first() {
    announce_against_rest(true);
}

fn rest_first() {
    announce_against_rest(false);
}

/// A thread forbids the reclaimer, waits, uses the data of its calls, and allows it again. `reclaimer_first`
/// selects the thread that runs on the main thread, as above.
fn forbid_against_turns(reclaimer_first: bool) {
    struct Calls(Switch, UnsafeCell<usize>);
    // SAFETY: the protocol under test keeps the calls and the thread that forbids them apart; the checker
    // reports a violation.
    unsafe impl Sync for Calls {}
    // SAFETY: as for `Sync`.
    unsafe impl Send for Calls {}
    impl Calls {
        fn touch(&self) {
            // SAFETY: as for `Sync`.
            self.1.with_mut(|data| unsafe { *data += 1 });
        }
        fn reclaim(&self) {
            for _ in 0..2 {
                if let Some(turn) = self.0.begin_turn() {
                    self.touch();
                    drop(turn);
                }
            }
        }
        fn forbid(&self) {
            let _ = self.0.set(false);
            self.0.wait_turn_end();
            self.touch();
            let _ = self.0.set(true);
        }
    }
    let shared = Arc::new(Calls(Switch::new(), UnsafeCell::new(0)));
    shared.0.decide(true);
    assert!(shared.0.start());
    let other = shared.clone();
    let other = thread::spawn(move || if reclaimer_first { other.forbid() } else { other.reclaim() });
    if reclaimer_first {
        shared.reclaim()
    } else {
        shared.forbid()
    }
    other.join().unwrap();
    assert_eq!(shared.0.state(), super::switch::RUNNING);
}

fn reclaim_then_forbid() {
    forbid_against_turns(true);
}

fn forbid_then_reclaim() {
    forbid_against_turns(false);
}

/// A runner and the guide run at the stops of a tour. Each stop has one run, and the guide sees its effects.
/// Without `sleeps` the guide looks once, without the fences of a sleep, which hide weak orderings from loom.
fn tour_against_take_over(guide_first: bool, sleeps: bool) {
    struct Runs(Tour, [UnsafeCell<u32>; 2]);
    // SAFETY: the protocol under test gives each stop to one thread, and then to the guide; the checker
    // reports a violation.
    unsafe impl Sync for Runs {}
    // SAFETY: as for `Sync`.
    unsafe impl Send for Runs {}
    impl Runs {
        fn run(&self, stop: usize) {
            // SAFETY: as for `Sync`.
            self.1[stop].with_mut(|runs| unsafe { *runs += 1 });
            self.0.end();
        }
        fn visit(&self) {
            while let Some(stop) = self.0.claim() {
                if self.0.arrive(stop) {
                    self.run(stop);
                }
            }
        }
        fn guide(&self, sleeps: bool) {
            // Only the second stop is taken over: the end of the first one wakes the guide.
            if self.0.take_over(1) {
                self.run(1);
            }
            while sleeps && !self.0.wait(None) {}
            if !self.0.is_over() {
                return;
            }
            for stop in &self.1 {
                // SAFETY: as for `Sync`.
                assert_eq!(stop.with(|runs| unsafe { *runs }), 1, "a stop needs one run");
            }
        }
    }
    let runs = Arc::new(Runs(Tour::new(2), [UnsafeCell::new(0), UnsafeCell::new(0)]));
    let other = runs.clone();
    let other = thread::spawn(move || if guide_first { other.visit() } else { other.guide(sleeps) });
    if guide_first {
        runs.guide(sleeps)
    } else {
        runs.visit()
    }
    other.join().unwrap();
}

fn guide_first() {
    tour_against_take_over(true, true);
}

fn runner_first() {
    tour_against_take_over(false, true);
}

fn guide_looks_once() {
    tour_against_take_over(true, false);
}

struct Bell(squall_sys::sync::atomic::AtomicBool);

impl std::task::Wake for Bell {
    fn wake(self: std::sync::Arc<Bell>) {
        // Relaxed: the model reads it after a join.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A task finds the outcome, or is woken once it is there.
fn outcome_of_a_task() {
    let outcome = Arc::new(Outcome::new());
    let bell = std::sync::Arc::new(Bell(squall_sys::sync::atomic::AtomicBool::new(false)));
    let worker = {
        let outcome = outcome.clone();
        thread::spawn(move || outcome.fill(7))
    };
    let waker = bell.clone().into();
    let first = outcome.poll(&waker);
    worker.join().unwrap();
    assert!(first == Some(7) || bell.0.load(Ordering::Relaxed), "a task was not woken");
    assert_eq!(outcome.poll(&waker), Some(7));
}

use squall_sys::models;
models!(
    wait_light,
    wait_fenced,
    mark_here_drive_there,
    verdict_travels,
    next_start_travels,
    leave_is_seen,
    two_operations,
    record_taken_over,
    leave_wakes,
    two_poll,
    two_wait,
    exit_inside,
    record_reused,
    defer_against_take,
    defer_fast_against_take,
    defer_runs_late,
    announce_first,
    rest_first,
    reclaim_then_forbid,
    forbid_then_reclaim,
    guide_first,
    runner_first,
    guide_looks_once,
    outcome_of_a_task,
);

macro_rules! twins {
    ($($name:ident: $site:ident breaks $model:ident $(behind $($mask:path)|+)?),* $(,)?) => { $(
        #[cfg(loom)]
        #[test]
        fn $name() {
            let test = concat!("raw::model::", stringify!($model), "::holds");
            squall_sys::sync::weaken::twin(sites::$site, &[$($($mask),+)?], test);
        }
    )* };
}
twins! {
    twin_enter_fence: ENTER_FENCE breaks wait_light,
    twin_leave_waker_locked: LEAVE_WAKER_LOCKED breaks outcome_of_a_task,
    twin_enter_fence_in_fence_mode: ENTER_FENCE breaks wait_fenced,
    twin_start_fence: START_FENCE breaks mark_here_drive_there,
    twin_leave_release: LEAVE_RELEASE breaks leave_is_seen behind park::SIGNAL_FENCE,
    twin_scan_acquire: SCAN_ACQUIRE breaks leave_is_seen behind park::SIGNAL_FENCE,
    twin_enter_release: ENTER_RELEASE breaks two_operations
        behind sites::LEAVE_FENCE | park::SIGNAL_FENCE,
    twin_adopt_release: ADOPT_RELEASE breaks record_taken_over
        behind sites::LEAVE_FENCE | park::SIGNAL_FENCE,
    twin_start_release: START_RELEASE breaks next_start_travels
        behind sites::LEAVE_FENCE | park::SIGNAL_FENCE,
    twin_leave_fence: LEAVE_FENCE breaks leave_wakes,
    twin_sleep_fence: SLEEP_FENCE breaks leave_wakes,
    twin_mark_fence: MARK_FENCE breaks mark_here_drive_there,
    twin_finish_release: FINISH_RELEASE breaks verdict_travels behind sites::LEAVE_FENCE,
    twin_elapsed_acquire: ELAPSED_ACQUIRE breaks verdict_travels,
    twin_drive_release: DRIVE_RELEASE breaks two_poll,
    twin_drive_acquire: DRIVE_ACQUIRE breaks two_poll,
    twin_owner_fence: OWNER_FENCE breaks defer_against_take,
    twin_owner_fence_fast: OWNER_FENCE breaks defer_fast_against_take,
    twin_owner_release_fast: OWNER_RELEASE breaks defer_fast_against_take,
    twin_take_fence: TAKE_FENCE breaks defer_against_take,
    twin_owner_release: OWNER_RELEASE breaks defer_against_take,
    twin_take_release: TAKE_RELEASE breaks defer_against_take,
    twin_chunk_release: CHUNK_RELEASE breaks wait_light,
    twin_announce_fence: ANNOUNCE_FENCE breaks announce_first,
    twin_rest_fence: REST_FENCE breaks announce_first,
    twin_turn_acquire: TURN_ACQUIRE breaks forbid_then_reclaim,
    twin_turn_release: TURN_RELEASE breaks forbid_then_reclaim,
    twin_tour_enter: TOUR_ENTER breaks guide_first,
    twin_tour_end: TOUR_END breaks guide_looks_once,
    twin_tour_over: TOUR_OVER breaks guide_looks_once,
}
