//! One call slot: how a caller hands a call to a worker of another process, and gets its reply.
//!
//! Problem: caller and worker share only memory, and each may be killed, or lie, at any instruction. A call
//! must cost no more than two wake-ups, and a caller must know whether a worker waits in its slot.
//! Idea: two words. The caller writes `call`, the worker writes `reply`; each holds the number of a call and
//! two flags. Who wants to sleep sets a flag in the word that it waits for. Who writes the next number
//! exchanges the whole word, and so learns the flags in the same step.
//!
//! - I1. A caller that exchanges `call` finds one of three states: a worker sleeps there ([`SLEEPS`]) and the
//!   caller wakes it; no worker is there ([`ABSENT`]) and the caller asks for one; neither flag is set, and a
//!   worker is awake that looks at the word again before it sleeps or leaves.
//! - I2. A worker leaves only by exchanging the number that it waits after, with [`SLEEPS`] or nothing, for
//!   the same number with [`ABSENT`]. If a call came first, that fails, and the worker serves it.
//! - I3. At most one worker is in a slot ([`Desk`]). That holds whatever the caller writes, because the desk
//!   is private memory of the server.
//! - I4. Arguments are written before `call`, and read after it (Release, Acquire); the result likewise with
//!   `reply`.
//! - I5. A peer that writes other values harms its own calls only: each side keeps the number that it expects
//!   in private memory.
//!
//! Progress: each exchange is wait-free. A killed worker leaves the caller asleep until its watcher wakes it.
//! Source: Gamsa et al. 1999, §6 (TO-15 to TO-17): a call is a hand-off, with a worker that waits at the port.

use squall_sys::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use squall_sys::sync::weaken::Site;
use std::time::Duration;

/// Sites of this protocol. Each model twin weakens one of them and must fail.
pub(crate) mod sites {
    use super::Site;
    /// The Release of `call` in [`Words::issue`](super::Words::issue). Partner: [`ARGUMENTS`].
    pub(crate) const ISSUE: Site = Site(224);
    /// The Acquire of `call` in [`Words::arrived`](super::Words::arrived). Partner: [`ISSUE`].
    pub(crate) const ARGUMENTS: Site = Site(225);
    /// The Release of `reply` in [`Words::answer`](super::Words::answer). Partner: [`RESULT`].
    pub(crate) const ANSWER: Site = Site(226);
    /// The Acquire of `reply` in [`Words::answered`](super::Words::answered). Partner: [`ANSWER`].
    pub(crate) const RESULT: Site = Site(227);
    /// The flag by which a worker tells the caller that it sleeps.
    pub(crate) const WORKER_FLAG: Site = Site(228);
    /// The flag by which a caller tells the worker that it sleeps.
    pub(crate) const CALLER_FLAG: Site = Site(229);
    /// The flag by which a worker tells the caller that it is gone.
    pub(crate) const ABSENT_FLAG: Site = Site(230);
    /// The mark of [`Desk::ask`](super::Desk::ask) for a worker that is about to leave.
    pub(crate) const AGAIN: Site = Site(231);
    /// The Release of the desk in [`Desk::leave`](super::Desk::leave). Partner: the Acquire in
    /// [`Desk::ask`](super::Desk::ask).
    pub(crate) const LEAVE: Site = Site(232);
}

/// Flag: the reader of the word sleeps on it.
pub(crate) const SLEEPS: u32 = 1;
/// Flag of `call`: no worker is in the slot.
pub(crate) const ABSENT: u32 = 2;
const FLAGS: u32 = 3;

/// The number of a call in its slot. It wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(u32);

impl Number {
    /// The number of a word that was never written.
    pub(crate) const FIRST: Number = Number(0);

    pub(crate) fn next(self) -> Number {
        Number((self.0 + 1) & (u32::MAX >> 2))
    }

    pub(crate) fn of(word: u32) -> Number {
        Number(word >> 2)
    }

    pub(crate) fn get(self) -> u32 {
        self.0
    }

    pub(crate) fn from(number: u32) -> Number {
        Number(number & (u32::MAX >> 2))
    }

    fn word(self) -> u32 {
        self.0 << 2
    }
}

/// The value of `call` in a new slot.
pub(crate) const NEW: u32 = ABSENT;

/// The way to sleep on a word, and to wake its sleeper.
pub(crate) trait Sleep {
    /// Sleeps while `word` holds `expected`. May return early.
    fn sleep(&self, word: &AtomicU32, expected: u32, limit: Option<Duration>);
    /// Wakes the sleeper of `word`.
    fn wake(&self, word: &AtomicU32);
}

/// What a caller must do after [`Words::issue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Issued {
    /// A worker is awake in the slot. There is nothing to do.
    Awake,
    /// A worker slept, and was woken.
    Woken,
    /// No worker is in the slot. Ask the server for one.
    Absent,
}

/// What a worker finds in the word `call`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The expected call.
    Call,
    /// No new call.
    Nothing,
    /// A number that is neither the last nor the next.
    Broken,
}

/// The two words of a slot.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    pub(crate) call: &'a AtomicU32,
    pub(crate) reply: &'a AtomicU32,
}

impl Words<'_> {
    /// Caller: publishes the call `number`, whose arguments are written.
    pub(crate) fn issue(self, number: Number, sleep: &impl Sleep) -> Issued {
        // Release: the arguments, for `arrived` (I4). The flags come in the same step (I1).
        let old = self.call.swap(number.word(), sites::ISSUE.order(Ordering::Release));
        if old & ABSENT != 0 {
            Issued::Absent
        } else if old & SLEEPS != 0 {
            sleep.wake(self.call);
            Issued::Woken
        } else {
            Issued::Awake
        }
    }

    /// Caller: returns whether the reply to the call `number` is there.
    pub(crate) fn answered(self, number: Number) -> bool {
        // Acquire: the result, from `answer` (I4).
        Number::of(self.reply.load(sites::RESULT.order(Ordering::Acquire))) == number
    }

    /// Caller: sleeps until the reply to the call `number` may be there, or until `limit` passes.
    pub(crate) fn sleep_for_answer(self, number: Number, limit: Option<Duration>, sleep: &impl Sleep) {
        // Relaxed: `answered` reads the word again, and orders it.
        let seen = self.reply.load(Ordering::Relaxed);
        if Number::of(seen) == number {
            return;
        }
        let marked = if sites::CALLER_FLAG.is_weak() { seen } else { seen | SLEEPS };
        // Relaxed: the flag orders nothing. `answer` exchanges the word, and so sees it or comes first.
        if self.reply.compare_exchange(seen, marked, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            sleep.sleep(self.reply, marked, limit);
        }
    }

    /// Worker: looks for the call after `last`.
    pub(crate) fn arrived(self, last: Number) -> Arrived {
        // Acquire: the arguments, from `issue` (I4).
        let found = Number::of(self.call.load(sites::ARGUMENTS.order(Ordering::Acquire)));
        if found == last.next() {
            Arrived::Call
        } else if found == last {
            Arrived::Nothing
        } else {
            Arrived::Broken
        }
    }

    /// Worker: publishes the reply to the call `number`, whose result is written.
    pub(crate) fn answer(self, number: Number, sleep: &impl Sleep) {
        // Release: the result, for `answered` (I4). The flag comes in the same step.
        let old = self.reply.swap(number.word(), sites::ANSWER.order(Ordering::Release));
        if old & SLEEPS != 0 {
            sleep.wake(self.reply);
        }
    }

    /// Worker: sleeps until the call after `last` may be there, or until `limit` passes.
    pub(crate) fn sleep_for_call(self, last: Number, limit: Option<Duration>, sleep: &impl Sleep) {
        // Relaxed: `arrived` reads the word again, and orders it.
        let seen = self.call.load(Ordering::Relaxed);
        if Number::of(seen) != last {
            return;
        }
        let marked = if sites::WORKER_FLAG.is_weak() { seen } else { last.word() | SLEEPS };
        // Relaxed: the flag orders nothing. `issue` exchanges the word, and so sees it or comes first.
        if self.call.compare_exchange(seen, marked, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            sleep.sleep(self.call, marked, limit);
        }
    }

    /// Worker: marks the slot as left, unless the call after `last` came. Returns whether it did so (I2).
    pub(crate) fn mark_absent(self, last: Number) -> bool {
        // Relaxed: a caller that finds the flag sends a message, and the kernel orders what follows.
        let seen = self.call.load(Ordering::Relaxed);
        let marked = if sites::ABSENT_FLAG.is_weak() { seen } else { last.word() | ABSENT };
        Number::of(seen) == last
            && self.call.compare_exchange(seen, marked, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Who serves a slot: private memory of the server.
#[derive(Debug)]
pub(crate) struct Desk {
    state: AtomicU8,
    /// Number of the last call that was served. Only the worker of the slot uses it.
    last: AtomicU32,
}

const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// Taken, and a caller has asked for a worker since.
const ASKED: u8 = 2;

impl Desk {
    pub(crate) fn new() -> Desk {
        Desk { state: AtomicU8::new(FREE), last: AtomicU32::new(0) }
    }

    /// Notes that a caller asks for a worker. Returns whether one must be sent: then the slot is taken.
    pub(crate) fn ask(&self) -> bool {
        loop {
            // Acquire: pairs with `leave`. What the last worker did is before what the next one does.
            // Release: what the caller did before it asked is before what the worker does that finds the mark.
            match self.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(ASKED) => return false,
                Err(_) if sites::AGAIN.is_weak() => return false,
                Err(_) => {
                    // Release: pairs with the Acquire of `leave`, which then looks at the slot again.
                    if self.state.compare_exchange(TAKEN, ASKED, Ordering::Release, Ordering::Relaxed).is_ok()
                    {
                        return false;
                    }
                }
            }
        }
    }

    /// The worker leaves the slot. Returns false if a caller has asked for one since: then it stays.
    pub(crate) fn leave(&self) -> bool {
        // Release: pairs with the Acquire of `ask`.
        if self
            .state
            .compare_exchange(TAKEN, FREE, sites::LEAVE.order(Ordering::Release), Ordering::Relaxed)
            .is_ok()
        {
            return true;
        }
        // Acquire: pairs with the Release of `ask`.
        let _ = self.state.compare_exchange(ASKED, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        false
    }

    /// Returns whether a worker is in the slot, or on its way.
    pub(crate) fn is_taken(&self) -> bool {
        self.state.load(Ordering::Relaxed) != FREE
    }

    /// Number of the last call that was served.
    pub(crate) fn last(&self) -> Number {
        Number::from(self.last.load(Ordering::Relaxed))
    }

    /// Notes that this call was served. For the worker of the slot.
    pub(crate) fn set_last(&self, number: Number) {
        self.last.store(number.get(), Ordering::Relaxed);
    }
}

/// What a worker does in a slot.
pub(crate) trait Service {
    /// Runs the call whose arguments are in the slot, writes its result, and calls nothing of this module.
    fn run(&self);
    /// Waits for the call after `last` for a while. Returns whether the worker stays if none came.
    fn wait(&self, words: Words<'_>, last: Number) -> bool;
    /// Returns whether the worker must leave at once, because the caller's process is gone.
    fn is_over(&self) -> bool;
    /// The way to wake the caller.
    fn sleep(&self) -> &impl Sleep;
}

/// Why a worker left its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// No call came for a while.
    Idle,
    /// The caller wrote a number that no caller writes.
    Broken,
    /// [`Service::is_over`] said so.
    Over,
}

/// Worker: serves the calls of a slot that this worker has taken (see [`Desk::ask`]) until it leaves.
pub(crate) fn serve(words: Words<'_>, desk: &Desk, service: &impl Service) -> Left {
    loop {
        let last = desk.last();
        match words.arrived(last) {
            Arrived::Call => {
                desk.set_last(last.next());
                service.run();
                words.answer(last.next(), service.sleep());
                continue;
            }
            Arrived::Broken => {
                desk.leave();
                return Left::Broken;
            }
            Arrived::Nothing => {}
        }
        if service.is_over() {
            desk.leave();
            return Left::Over;
        }
        if !service.wait(words, last) && words.mark_absent(last) && desk.leave() {
            return Left::Idle;
        }
    }
}

#[cfg(test)]
#[path = "slot_model.rs"]
mod model;
