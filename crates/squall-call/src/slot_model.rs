//! Models of a slot, and their twins with one weakened site.

use super::*;
use squall_sys::sync::{Arc, Condvar, Mutex, thread};
use std::cell::Cell;

/// Sleeping as in the kernel: a wake comes before the comparison, or after the thread sleeps.
pub(crate) struct Kernel {
    lock: Mutex<()>,
    woken: Condvar,
}

impl Kernel {
    pub(crate) fn new() -> Kernel {
        Kernel { lock: Mutex::new(()), woken: Condvar::new() }
    }
}

impl Sleep for Kernel {
    fn sleep(&self, word: &AtomicU32, expected: u32, _limit: Option<Duration>) {
        let guard = self.lock.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    fn wake(&self, _word: &AtomicU32) {
        drop(self.lock.lock().unwrap());
        self.woken.notify_all();
    }
}

/// A slot, its desk, and the data of the call.
struct Slot {
    call: AtomicU32,
    reply: AtomicU32,
    argument: AtomicU32,
    result: AtomicU32,
    /// Number of calls that ran.
    ran: AtomicU32,
    desk: Desk,
    /// How much the server wants its workers to leave.
    wanted: AtomicU32,
    callers: Kernel,
    worker: Kernel,
}

/// How long a worker stays in the slot.
#[derive(Clone, Copy)]
enum Patience {
    /// The worker leaves when it finds no call.
    None,
    /// The worker sleeps until something happens, as long as no call ran.
    OneSleep,
    /// The worker wakes up for no reason, between the sign that it sleeps and the sleep, and leaves.
    Wakes,
    /// The worker stays until the server wants it to leave by so much.
    Until(u32),
}

impl Slot {
    fn new() -> Arc<Slot> {
        Arc::new(Slot {
            call: AtomicU32::new(0),
            reply: AtomicU32::new(0),
            argument: AtomicU32::new(0),
            result: AtomicU32::new(0),
            ran: AtomicU32::new(0),
            desk: Desk::new(),
            wanted: AtomicU32::new(0),
            callers: Kernel::new(),
            worker: Kernel::new(),
        })
    }

    fn words(&self) -> Words<'_> {
        Words { call: &self.call, reply: &self.reply }
    }

    /// A caller issues a call. If no worker is there, one comes: here, in the caller's thread.
    fn issue(&self, number: Number, argument: u32) {
        self.argument.store(argument, Ordering::Relaxed);
        if self.words().issue(number, &self.worker) == Issued::Absent && self.desk.ask() {
            self.work(Patience::None);
        }
    }

    /// The server wants its worker to leave, a little more than before.
    fn want(&self) {
        self.wanted.fetch_add(1, Ordering::Relaxed);
        self.words().make_look(&self.worker);
    }

    fn await_answer(&self, number: Number) -> u32 {
        while !self.words().answered(number) {
            self.words().sleep_for_answer(number, None, || false, &self.callers);
        }
        self.result.load(Ordering::Relaxed)
    }

    /// A worker that has taken the slot.
    fn work(&self, patience: Patience) {
        let work = Work { slot: self, patience, has_slept: Cell::new(false) };
        assert!(!serve(self.words(), &self.desk, &work, false));
    }
}

/// A worker comes to the slot.
fn worker(slot: &Arc<Slot>, patience: Patience) -> thread::JoinHandle<()> {
    assert!(slot.desk.ask());
    let slot = slot.clone();
    thread::spawn(move || slot.work(patience))
}

struct Work<'a> {
    slot: &'a Slot,
    patience: Patience,
    has_slept: Cell<bool>,
}

/// A sleep of no time.
struct Passed;

impl Sleep for Passed {
    fn sleep(&self, _word: &AtomicU32, _expected: u32, _limit: Option<Duration>) {}
    fn wake(&self, _word: &AtomicU32) {}
}

impl Service for Work<'_> {
    fn run(&self) {
        let argument = self.slot.argument.load(Ordering::Relaxed);
        self.slot.result.store(argument + 1, Ordering::Relaxed);
        self.slot.ran.fetch_add(1, Ordering::Relaxed);
    }

    fn next(&self) -> Next {
        let leaves = match self.patience {
            Patience::None => true,
            Patience::OneSleep => self.slot.ran.load(Ordering::Relaxed) > 0,
            Patience::Wakes => self.has_slept.get(),
            Patience::Until(wanted) => self.slot.wanted.load(Ordering::Relaxed) >= wanted,
        };
        if leaves { Next::Leave } else { Next::Wait }
    }

    fn wait(&self, words: Words<'_>, seen: Seen) {
        self.has_slept.set(true);
        match self.patience {
            Patience::Wakes => words.sleep_for_call(seen, &Passed),
            _ => words.sleep_for_call(seen, &self.slot.worker),
        }
    }

    fn sleep(&self) -> &impl Sleep {
        &self.slot.callers
    }
}

const FIRST: Number = Number(1);
const SECOND: Number = Number(2);

/// A worker waits in the slot. A caller calls, and neither sleeps for ever.
fn hand_off() {
    let slot = Slot::new();
    let worker = worker(&slot, Patience::OneSleep);
    slot.issue(FIRST, 6);
    assert_eq!(slot.await_answer(FIRST), 7);
    worker.join().unwrap();
}

/// A worker is about to leave. A caller calls twice, and asks for a worker if it must.
fn leaves() {
    let slot = Slot::new();
    // As after a call: the caller knows that a worker is there.
    slot.call.store(Number::FIRST.with(State::Runs), Ordering::Relaxed);
    let worker = worker(&slot, Patience::None);
    slot.issue(FIRST, 6);
    assert_eq!(slot.await_answer(FIRST), 7);
    slot.issue(SECOND, 8);
    assert_eq!(slot.await_answer(SECOND), 9);
    worker.join().unwrap();
    assert!(!slot.desk.is_taken());
    assert_eq!(slot.ran.load(Ordering::Relaxed), 2);
}

/// A worker wakes up for no reason when it has just said that it sleeps.
fn wakes() {
    let slot = Slot::new();
    slot.call.store(Number::FIRST.with(State::Runs), Ordering::Relaxed);
    let worker = worker(&slot, Patience::Wakes);
    slot.issue(FIRST, 6);
    assert_eq!(slot.await_answer(FIRST), 7);
    worker.join().unwrap();
    assert!(!slot.desk.is_taken());
}

/// A worker leaves. The next worker knows its acts.
fn follows() {
    let slot = Slot::new();
    slot.words().issue(FIRST, &slot.worker);
    let worker = worker(&slot, Patience::None);
    if slot.desk.ask() {
        assert_eq!(slot.desk.served(), 1, "the next worker does not know the acts of the last one");
        slot.work(Patience::None);
    }
    worker.join().unwrap();
}

/// A caller takes its call back while a worker looks at it, and calls again. A call that was taken back never
/// runs.
fn is_withdrawn() {
    let slot = Slot::new();
    slot.call.store(Number::FIRST.with(State::Runs), Ordering::Relaxed);
    let worker = worker(&slot, Patience::OneSleep);
    slot.issue(FIRST, 6);
    let expected = if slot.words().withdraw(FIRST, true) {
        1
    } else {
        assert_eq!(slot.await_answer(FIRST), 7);
        2
    };
    slot.issue(SECOND, 8);
    assert_eq!(slot.await_answer(SECOND), 9);
    worker.join().unwrap();
    assert_eq!(slot.ran.load(Ordering::Relaxed), expected);
}

/// The server wants its worker to leave, and the worker is about to sleep.
fn looks() {
    let slot = Slot::new();
    slot.call.store(Number::FIRST.with(State::Runs), Ordering::Relaxed);
    let worker = worker(&slot, Patience::Until(1));
    slot.want();
    worker.join().unwrap();
}

/// The state of the server changes again before the worker has looked at the first change.
fn looks_again() {
    let slot = Slot::new();
    slot.call.store(Number::FIRST.with(State::Runs), Ordering::Relaxed);
    let worker = worker(&slot, Patience::Until(2));
    slot.want();
    slot.want();
    worker.join().unwrap();
}

/// The server wants its worker to leave while a call comes.
fn looks_after_a_call() {
    let slot = Slot::new();
    slot.call.store(Number::FIRST.with(State::Runs), Ordering::Relaxed);
    let worker = worker(&slot, Patience::Until(1));
    let server = thread::spawn({
        let slot = slot.clone();
        move || slot.want()
    });
    // If the worker has left, the server does not want it any more.
    if slot.words().issue(FIRST, &slot.worker) == Issued::Absent && slot.desk.ask() {
        slot.work(Patience::None);
    }
    assert_eq!(slot.await_answer(FIRST), 1);
    worker.join().unwrap();
    server.join().unwrap();
}

/// A server refuses the call of a slot. The caller calls again, and that call is answered too.
fn is_refused() {
    let slot = Slot::new();
    assert_eq!(slot.words().issue(FIRST, &slot.worker), Issued::Absent);
    assert!(slot.desk.ask());
    let server = {
        let slot = slot.clone();
        thread::spawn(move || {
            let answer = || slot.result.store(0, Ordering::Relaxed);
            assert!(refuse(slot.words(), &slot.desk, answer, &slot.callers));
        })
    };
    assert_eq!(slot.await_answer(FIRST), 0);
    slot.issue(SECOND, 8);
    let second = slot.await_answer(SECOND);
    server.join().unwrap();
    let ran = slot.ran.load(Ordering::Relaxed);
    assert!((second, ran) == (0, 0) || (second, ran) == (9, 1), "{second} after {ran} calls");
    assert!(!slot.desk.is_taken());
}

use squall_sys::models;
models! { "slot::model":
    hand_off: ISSUE, ARGUMENTS, ANSWER, RESULT, WORKER_SLEEPS, CALLER_SLEEPS;
    leaves: LEFT, AGAIN;
    wakes: LEFT;
    follows: LEAVE;
    is_withdrawn: CLAIM;
    looks: LOOK;
    looks_again: AWAKE;
    looks_after_a_call: TOLD;
    is_refused: LEFT, AGAIN;
}

#[test]
fn a_number_wraps_and_never_touches_the_state() {
    let largest = Number::from(u32::MAX);
    assert_eq!(largest.next(), Number::FIRST);
    for state in [State::Absent, State::Issued, State::Runs, State::Sleeps, State::Withdrawn, State::Look] {
        let seen = Seen(largest.with(state));
        assert_eq!((seen.number(), seen.state()), (largest, state));
    }
}

#[cfg(not(loom))]
#[test]
fn a_caller_that_writes_any_value_harms_its_own_slot_only() {
    for value in 0..64 {
        let slot = Slot::new();
        assert!(slot.desk.ask());
        slot.call.store(value, Ordering::Relaxed);
        slot.work(Patience::None);
        assert!(!slot.desk.is_taken());
        assert_eq!(Seen(slot.call.load(Ordering::Relaxed)).state(), State::Absent);
        // A server that refuses has an end, too.
        assert!(slot.desk.ask());
        slot.call.store(value, Ordering::Relaxed);
        assert!(refuse(slot.words(), &slot.desk, || (), &slot.callers));
        let changes = || slot.call.store(value << 3 | 1, Ordering::Relaxed);
        assert!(slot.desk.ask());
        changes();
        assert!(!refuse(slot.words(), &slot.desk, changes, &slot.callers), "a caller calls all the time");
        assert!(!slot.desk.is_taken());
    }
}
