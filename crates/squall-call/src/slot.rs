//! One call slot: a caller hands a call to a worker of another process, and gets its reply.
//!
//! Problem: caller and worker share only memory, and each may be killed, or lie, at any instruction. A call
//! must cost no more than two wake-ups. A caller must know whether a worker is in its slot, and whether a
//! call that it gives up can still run.
//!
//! Idea: two words. The word `call` holds the number of the last call and a [`State`]. The word `reply` holds
//! the number of the last call that was answered. Every change is an exchange of the whole word, so that the
//! side that changes it learns the state of the other in the same step.
//!
//! | state | meaning | written by |
//! |---|---|---|
//! | `Absent` | no worker is in the slot; so are all new slots | worker, or caller that withdraws |
//! | `Issued` | the call waits for a worker | caller |
//! | `Runs` | a worker is awake in the slot, and has begun the call | worker |
//! | `Sleeps` | a worker sleeps in the slot | worker |
//! | `Withdrawn` | the caller took the call back; a worker is in the slot, or on its way | caller |
//! | `Look` | a worker in the slot must look at the state of the server again | server |
//!
//! - I1. A caller that issues a call finds `Sleeps`, and wakes the worker; or `Absent`, and asks the server
//!   for one; or another state, and a worker looks at the word again before it sleeps or leaves.
//! - I2. A worker begins a call by exchanging `Issued` for `Runs`. A caller takes it back by exchanging
//!   `Issued` for `Withdrawn` or `Absent`. One of the two succeeds. So a call that was taken back never
//!   runs.
//! - I3. At most one worker is in a slot ([`Desk`]). This holds for all values that the caller writes,
//!   because the desk is private memory of the server.
//! - I4. Arguments are written before `Issued`, and read after `Runs`. The result is written before the
//!   answer, and read after it.
//! - I5. A worker looks at the state of the server while the word says `Runs`, and sleeps or leaves only if
//!   the word did not change since. The thread that changes that state exchanges the word afterwards
//!   ([`Words::make_look`]). So the worker looks again, or it finds the change when the call has run.
//!
//! Progress: each exchange is lock-free. A killed worker leaves the caller asleep until its watcher wakes it.
//! Source: Gamsa et al. 1999, §6 (TO-15 to TO-17): a call is a hand-off to a worker that waits at the port.

use squall_sys::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use squall_sys::sync::weaken::Site;
use std::time::Duration;

/// Sites of this protocol. Each model twin weakens one of them and must fail.
pub(crate) mod sites {
    use super::Site;
    /// The Release of [`Words::issue`](super::Words::issue). Partner: [`ARGUMENTS`].
    pub(crate) const ISSUE: Site = Site(224);
    /// The Acquire of [`Words::begin`](super::Words::begin). Partners: [`ISSUE`] and [`TOLD`].
    pub(crate) const ARGUMENTS: Site = Site(225);
    /// The Release of [`Words::answer`](super::Words::answer). Partner: [`RESULT`].
    pub(crate) const ANSWER: Site = Site(226);
    /// The Acquire of [`Words::answered`](super::Words::answered). Partner: [`ANSWER`].
    pub(crate) const RESULT: Site = Site(227);
    /// The state by which a worker tells the caller that it sleeps.
    pub(crate) const WORKER_SLEEPS: Site = Site(228);
    /// The flag by which a caller tells the worker that it sleeps.
    pub(crate) const CALLER_SLEEPS: Site = Site(229);
    /// The state by which a worker tells the caller that it has left.
    pub(crate) const LEFT: Site = Site(230);
    /// The mark of [`Desk::ask`](super::Desk::ask) for a worker that is about to leave.
    pub(crate) const AGAIN: Site = Site(231);
    /// The Release of [`Desk::leave`](super::Desk::leave). Partner: the Acquire of
    /// [`Desk::ask`](super::Desk::ask).
    pub(crate) const LEAVE: Site = Site(232);
    /// The exchange by which a worker begins a call (I2).
    pub(crate) const CLAIM: Site = Site(236);
    /// The change of the word by [`Words::make_look`](super::Words::make_look) (I5).
    pub(crate) const LOOK: Site = Site(237);
    /// The exchange by which a worker says that it is awake (I5).
    pub(crate) const AWAKE: Site = Site(239);
    /// The Release of [`Words::make_look`](super::Words::make_look). Partners: the Acquires of the worker's
    /// exchanges.
    pub(crate) const TOLD: Site = Site(240);
}

/// Bits of the word `call` below the number.
const BITS: u32 = 3;

/// The state of a slot. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    Absent = 0,
    Issued = 1,
    Runs = 2,
    Sleeps = 3,
    Withdrawn = 4,
    Look = 5,
    /// A value of a hostile caller.
    Other = 6,
}

/// The number of a call in its slot. It wraps at 2^29.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(u32);

impl Number {
    /// The number of a word that was never written.
    #[cfg(test)]
    pub(crate) const FIRST: Number = Number(0);

    pub(crate) fn next(self) -> Number {
        Number::from(self.0 + 1)
    }

    pub(crate) fn get(self) -> u32 {
        self.0
    }

    pub(crate) fn from(number: u32) -> Number {
        Number(number & (u32::MAX >> BITS))
    }

    fn with(self, state: State) -> u32 {
        self.0 << BITS | state as u32
    }
}

/// A value of the word `call`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u32);

impl Seen {
    pub(crate) fn state(self) -> State {
        match self.0 & ((1 << BITS) - 1) {
            0 => State::Absent,
            1 => State::Issued,
            2 => State::Runs,
            3 => State::Sleeps,
            4 => State::Withdrawn,
            5 => State::Look,
            _ => State::Other,
        }
    }

    fn number(self) -> Number {
        Number(self.0 >> BITS)
    }

    fn with(self, state: State) -> u32 {
        self.number().with(state)
    }
}

/// Flag of `reply`, beside the number in the same place as in `call`: the caller sleeps.
const CALLER_SLEEPS: u32 = 1;

/// The way to sleep on a word, and to wake its sleeper.
pub(crate) trait Sleep {
    /// Sleeps while `word` holds `expected`, for `limit` at most. May return early.
    fn sleep(&self, word: &AtomicU32, expected: u32, limit: Option<Duration>);
    /// Wakes the sleeper of `word`.
    fn wake(&self, word: &AtomicU32);
}

/// The task of a caller after [`Words::issue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Issued {
    /// A worker is in the slot, or on its way.
    Served,
    /// A worker is in the slot, or on its way, or the slot still waits for one: its last call was taken back.
    Queued,
    /// No worker is in the slot. Ask the server for one.
    Absent,
}

/// The two words of a slot.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    pub(crate) call: &'a AtomicU32,
    pub(crate) reply: &'a AtomicU32,
}

impl Words<'_> {
    /// Caller: publishes the call `number`. Its arguments are written.
    pub(crate) fn issue(self, number: Number, sleep: &impl Sleep) -> Issued {
        // Release: the arguments, for `begin` (I4). The state comes in the same step (I1).
        let old = self.call.swap(number.with(State::Issued), sites::ISSUE.order(Ordering::Release));
        match Seen(old).state() {
            State::Absent => return Issued::Absent,
            State::Withdrawn => return Issued::Queued,
            State::Sleeps => sleep.wake(self.call),
            State::Issued | State::Runs | State::Look | State::Other => {}
        }
        Issued::Served
    }

    /// Caller: takes the call `number` back. Returns whether it succeeded: then the call never runs, and
    /// the slot is free for the next call. `asked` tells whether a worker is in the slot, or on its way.
    pub(crate) fn withdraw(self, number: Number, asked: bool) -> bool {
        let state = if asked { State::Withdrawn } else { State::Absent };
        // Relaxed: nothing is read after it that the worker wrote.
        self.call
            .compare_exchange(
                number.with(State::Issued),
                number.with(state),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Caller: returns whether the answer to the call `number` is there.
    pub(crate) fn answered(self, number: Number) -> bool {
        // Acquire: the result, from `answer` (I4).
        self.reply.load(sites::RESULT.order(Ordering::Acquire)) >> BITS == number.0
    }

    /// Caller: sleeps until the answer to the call `number` may be there, or until `limit` passes. `must_go`
    /// tells whether the caller gives up, and is asked after the flag is set.
    pub(crate) fn sleep_for_answer(
        self,
        number: Number,
        limit: Option<Duration>,
        must_go: impl FnOnce() -> bool,
        sleep: &impl Sleep,
    ) {
        // Relaxed: `answered` reads the word again, and orders it.
        let seen = self.reply.load(Ordering::Relaxed);
        if seen >> BITS == number.0 {
            return;
        }
        let marked = if sites::CALLER_SLEEPS.is_weak() { seen } else { seen | CALLER_SLEEPS };
        // SeqCst: partner of the fence of the watcher (`connection/I2`). Against `answer`, the exchange alone
        // matters.
        if self.reply.compare_exchange(seen, marked, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            && !must_go()
        {
            sleep.sleep(self.reply, marked, limit);
        }
    }

    /// Worker: looks at the slot.
    pub(crate) fn look(self) -> Seen {
        // Relaxed: `begin` and `awake` exchange the word, and order it.
        Seen(self.call.load(Ordering::Relaxed))
    }

    /// Worker: begins the call that it has seen. Returns whether it succeeded (I2).
    pub(crate) fn begin(self, seen: Seen) -> bool {
        if sites::CLAIM.is_weak() {
            self.call.store(seen.with(State::Runs), Ordering::Relaxed);
            return true;
        }
        // Acquire: the arguments, from `issue` (I4). It also pairs with the Release of `make_look` (I5).
        let order = sites::ARGUMENTS.order(Ordering::Acquire);
        self.call.compare_exchange(seen.0, seen.with(State::Runs), order, Ordering::Relaxed).is_ok()
    }

    /// Worker: says that it is awake, and about to look at the state of the server (I5). Returns the word, or
    /// `None` if it has changed.
    pub(crate) fn awake(self, seen: Seen) -> Option<Seen> {
        if seen.state() == State::Runs || sites::AWAKE.is_weak() {
            return Some(seen);
        }
        let runs = seen.with(State::Runs);
        // Acquire: pairs with the Release of `make_look`.
        let done = self.call.compare_exchange(seen.0, runs, Ordering::Acquire, Ordering::Relaxed);
        done.is_ok().then_some(Seen(runs))
    }

    /// Worker: publishes the answer to the call that it has begun. The result is written.
    pub(crate) fn answer(self, seen: Seen, sleep: &impl Sleep) {
        // Release: the result, for `answered` (I4). The flag comes in the same step.
        let old = self.reply.swap(seen.number().0 << BITS, sites::ANSWER.order(Ordering::Release));
        if old & CALLER_SLEEPS != 0 {
            sleep.wake(self.reply);
        }
    }

    /// Worker: sleeps until the word is another than `seen`. There is no time limit: the server wakes a
    /// worker without calls ([`Words::rouse`]).
    pub(crate) fn sleep_for_call(self, seen: Seen, sleep: &impl Sleep) {
        let marked = if sites::WORKER_SLEEPS.is_weak() { seen.0 } else { seen.with(State::Sleeps) };
        // Relaxed: the state orders no data. The next exchange of the word sees it, or came first.
        if self.call.compare_exchange(seen.0, marked, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            sleep.sleep(self.call, marked, None);
        }
    }

    /// Worker: marks the slot as left, if the word is still `seen`. Returns whether it did so.
    pub(crate) fn mark_absent(self, seen: Seen) -> bool {
        let marked = if sites::LEFT.is_weak() { seen.0 } else { seen.with(State::Absent) };
        // Relaxed: a caller that finds the state sends a message, and the kernel orders the rest.
        self.call.compare_exchange(seen.0, marked, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Server: lets the worker of the slot look at the state of the server, which has changed (I5).
    pub(crate) fn make_look(self, sleep: &impl Sleep) {
        loop {
            let seen = Seen(self.call.load(Ordering::Relaxed));
            let (looks, sleeps) = match seen.state() {
                State::Sleeps | State::Withdrawn | State::Other => (seen.with(State::Look), true),
                State::Runs => (seen.with(State::Look), false),
                // The worker will exchange the word, or there is none. This exchange is for the order alone.
                State::Issued | State::Look | State::Absent => (seen.0, false),
            };
            if sites::LOOK.is_weak() {
                return sleep.wake(self.call);
            }
            // Release: pairs with the Acquire of the worker's next exchange (`begin`, `awake`).
            let order = sites::TOLD.order(Ordering::Release);
            if self.call.compare_exchange(seen.0, looks, order, Ordering::Relaxed).is_ok() {
                if sleeps {
                    sleep.wake(self.call);
                }
                return;
            }
        }
    }

    /// Server: as [`make_look`](Self::make_look), and wakes the worker also if the peer has changed the word
    /// without a wake-up.
    pub(crate) fn rouse(self, sleep: &impl Sleep) {
        self.make_look(sleep);
        sleep.wake(self.call);
    }
}

/// The worker of a slot: private memory of the server.
#[derive(Debug)]
pub(crate) struct Desk {
    state: AtomicU8,
    /// Number of calls served. Only the worker of the slot writes it.
    served: AtomicU32,
    /// The number of calls at the last [`Desk::tick`].
    ticked: AtomicU32,
    /// Whether the worker has served no call for a while.
    is_idle: AtomicBool,
}

/// No worker has the slot.
const FREE: u8 = 0;
/// A worker has the slot, or is on its way.
const TAKEN: u8 = 1;
/// A worker has the slot, and the caller has asked for a worker since.
const ASKED: u8 = 2;

impl Desk {
    pub(crate) fn new() -> Desk {
        Desk {
            state: AtomicU8::new(FREE),
            served: AtomicU32::new(0),
            ticked: AtomicU32::new(0),
            is_idle: AtomicBool::new(false),
        }
    }

    /// Notes that the caller asks for a worker. Returns true if one must be sent, for which the slot is then
    /// taken.
    pub(crate) fn ask(&self) -> bool {
        loop {
            // Acquire: pairs with the Release of `leave`. The acts of the last worker are before those of
            // the next.
            match self.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(ASKED) => return false,
                Err(_) if sites::AGAIN.is_weak() => return false,
                Err(_) => {
                    // Release: pairs with the Acquire of `leave`, which then looks at the slot again.
                    let marked =
                        self.state.compare_exchange(TAKEN, ASKED, Ordering::Release, Ordering::Relaxed);
                    if marked.is_ok() {
                        return false;
                    }
                }
            }
        }
    }

    /// Worker: leaves the slot. Returns false if the caller has asked for a worker since; this one then
    /// stays.
    pub(crate) fn leave(&self) -> bool {
        // Release: pairs with the Acquire of `ask`.
        let order = sites::LEAVE.order(Ordering::Release);
        if self.state.compare_exchange(TAKEN, FREE, order, Ordering::Relaxed).is_ok() {
            return true;
        }
        // Acquire: pairs with the Release of `ask`, so that this worker finds the call.
        let _ = self.state.compare_exchange(ASKED, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        false
    }

    /// Returns whether a worker is in the slot, or on its way.
    #[cfg(test)]
    pub(crate) fn is_taken(&self) -> bool {
        self.state.load(Ordering::Relaxed) != FREE
    }

    /// Number of calls served. It wraps.
    pub(crate) fn served(&self) -> u32 {
        self.served.load(Ordering::Relaxed)
    }

    fn count(&self) {
        // Relaxed: the worker alone writes the count, and a late look at the flag costs a wake-up.
        self.served.store(self.served().wrapping_add(1), Ordering::Relaxed);
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// Server, in one thread: returns whether the worker has ended no call since the last tick. Then wake it
    /// by [`Words::rouse`], and it leaves if there is still no call.
    pub(crate) fn tick(&self) -> bool {
        let served = self.served();
        let is_idle = self.ticked.swap(served, Ordering::Relaxed) == served;
        // Relaxed: `rouse` tells the worker (I5).
        self.is_idle.store(is_idle, Ordering::Relaxed);
        is_idle
    }

    /// Worker: returns whether it has served no call for a while.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
    }
}

/// The acts of a worker in a slot.
pub(crate) trait Service {
    /// Runs the call with the arguments in the slot, and writes its result.
    fn run(&self);
    /// Returns the next step of the worker. Called after each call, and after each look that found none.
    fn next(&self) -> Next;
    /// Waits while the word is `seen`. May return early.
    fn wait(&self, words: Words<'_>, seen: Seen);
    /// The way to wake the caller.
    fn sleep(&self) -> &impl Sleep;
}

/// The answer of [`Service::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for the next call.
    Wait,
    /// Leave, unless a call comes first.
    Leave,
    /// Leave at once: the caller's process is gone, or the connection has ended.
    End,
}

/// Worker: serves the calls of a slot that this worker has taken (see [`Desk::ask`]) until it leaves. If
/// `once`, it returns after each call, and does not wait for one. Returns whether the worker is still in the
/// slot.
pub(crate) fn serve(words: Words<'_>, desk: &Desk, service: &impl Service, once: bool) -> bool {
    loop {
        let seen = words.look();
        if seen.state() == State::Issued {
            if words.begin(seen) {
                service.run();
                desk.count();
                words.answer(seen, service.sleep());
                // A caller that issues calls all the time keeps no worker beyond its connection.
                if service.next() == Next::End {
                    while !desk.leave() {}
                    return false;
                }
                if once {
                    let seen = words.look();
                    return !(seen.state() != State::Issued && words.mark_absent(seen) && desk.leave());
                }
            }
            continue;
        }
        let Some(seen) = words.awake(seen) else { continue };
        match service.next() {
            Next::Wait if !once => service.wait(words, seen),
            Next::Wait | Next::Leave if words.mark_absent(seen) && desk.leave() => return false,
            Next::Wait | Next::Leave => {}
            Next::End => {
                while !desk.leave() {}
                return false;
            }
        }
    }
}

/// Looks of a server at a slot that it refuses. An honest caller changes the slot a few times meanwhile.
const REFUSE_LOOKS: u32 = 1_000;

/// Server: answers the calls of a slot that it has taken without running them, and leaves the slot. `answer`
/// writes the status. Returns false, and has left the slot, if the caller changed it all the time.
#[cold]
pub(crate) fn refuse(words: Words<'_>, desk: &Desk, answer: impl Fn(), sleep: &impl Sleep) -> bool {
    for _ in 0..REFUSE_LOOKS {
        let seen = words.look();
        if seen.state() == State::Issued {
            if words.begin(seen) {
                answer();
                words.answer(seen, sleep);
            }
        } else if words.mark_absent(seen) && desk.leave() {
            return true;
        }
    }
    while !desk.leave() {}
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Returns at once from each sleep.
    struct Awake;

    impl Sleep for Awake {
        fn sleep(&self, _: &AtomicU32, _: u32, _: Option<Duration>) {}
        fn wake(&self, _: &AtomicU32) {}
    }

    /// The service of an ended connection. Its caller issues the next call while one runs.
    struct Ended<'a> {
        words: Words<'a>,
        calls: Cell<u32>,
    }

    impl Service for Ended<'_> {
        fn run(&self) {
            self.calls.set(self.calls.get() + 1);
            assert!(self.calls.get() == 1, "a call ran after the end");
            self.words.issue(Number::from(2), &Awake);
        }

        fn next(&self) -> Next {
            Next::End
        }

        fn wait(&self, _: Words<'_>, _: Seen) {}

        fn sleep(&self) -> &impl Sleep {
            &Awake
        }
    }

    #[test]
    fn a_worker_leaves_an_ended_connection_although_the_next_call_is_there() {
        let (call, reply, desk) = (AtomicU32::new(0), AtomicU32::new(0), Desk::new());
        let words = Words { call: &call, reply: &reply };
        assert!(desk.ask());
        words.issue(Number::from(1), &Awake);
        assert!(!serve(words, &desk, &Ended { words, calls: Cell::new(0) }, false));
        assert!(!desk.is_taken());
    }

    #[test]
    fn a_caller_that_calls_all_the_time_is_refused_a_bounded_number_of_times() {
        let (call, reply, desk) = (AtomicU32::new(0), AtomicU32::new(0), Desk::new());
        let words = Words { call: &call, reply: &reply };
        let issue = |number| _ = words.issue(Number::from(number), &Awake);
        assert!(desk.ask());
        issue(1);
        assert!(refuse(words, &desk, || (), &Awake), "one call is refused");
        assert!(words.answered(Number::from(1)) && !desk.is_taken());
        assert!(desk.ask());
        let calls = Cell::new(1);
        let again = || {
            calls.set(calls.get() + 1);
            issue(calls.get());
        };
        again();
        assert!(!refuse(words, &desk, again, &Awake));
        assert!(!desk.is_taken(), "the worker has left the slot");
    }
}

#[cfg(test)]
#[path = "slot_model.rs"]
pub(crate) mod model;
