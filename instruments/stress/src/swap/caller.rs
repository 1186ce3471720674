//! Calls, and the checks of their answers.
//!
//! - An answered call has left its mark. The object has the marks of all calls of its thread, each once and
//!   in order, in any implementation.
//! - A failed call has left no mark. `Destroyed` needs a begun destruction, and only an arbiter refuses.
//! - A call that begins after `destroy` returned fails.
//! - A panic of the method reaches its caller unchanged.

use std::cell::{RefCell, RefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use squall::{CallError, CallErrorKind, Handle};

use super::arbiters::{ArbiterTrace, REFUSAL, take_trace};
use super::breaks::Break;
use super::counts::{Stat, count};
use super::faults::MakePanicked;
use super::interfaces::{Act, Mark, Relay, Reply, Request, Station};
use super::marks::Sums;
use super::record::{Entry, ObjectRecord};
use super::world::World;
use crate::run::Rng;
use crate::skeleton::expected_panic::{ExpectedPanic, panic_message};

/// Maximum depth of nested calls: twice around the longest chain.
pub(super) const DEPTH: u32 = 6;
/// With a planned break, one call in this many goes wrong.
const BREAK_ONE_IN: u64 = 512;
const SPIN_MAX: u64 = 2_000;
const SLEEP_US_MAX: u64 = 400;

/// Numbers of the methods, as in `arbiters::METHODS`.
const MARK: usize = 1;
const AUDIT: usize = 2;
const PASS: usize = 3;
const LINGER: usize = 4;
const REST: usize = 5;

/// A calling thread.
pub(super) struct CallContext<'a> {
    pub(super) world: &'static World,
    pub(super) lane: usize,
    /// The objects it calls, by place.
    pub(super) entries: &'a [Option<Entry>],
    pub(super) rng: &'a RefCell<Rng>,
}

/// The plan of a call, for its check.
#[derive(Clone, Copy)]
struct Target {
    method: usize,
    /// The number of its mark, if it leaves one.
    number: Option<u64>,
    act: Act,
}

impl CallContext<'_> {
    /// Borrows the thread's generator. The borrow must be short, because nested calls draw too.
    pub(super) fn rng(&self) -> RefMut<'_, Rng> {
        self.rng.borrow_mut()
    }

    fn draw(&self, below: u64) -> u64 {
        self.rng().below(below)
    }

    fn is_broken(&self, how: Break) -> bool {
        self.world.is_broken(how) && self.draw(BREAK_ONE_IN) == 0
    }

    /// Calls the next object of the chain.
    pub(super) fn call_next(&self, record: &Arc<ObjectRecord>, depth: u32) {
        let here = self
            .entries
            .iter()
            .position(|entry| entry.as_ref().is_some_and(|entry| Arc::ptr_eq(&entry.record, record)));
        let Some(next) = here.map(|here| self.world.places[here].next) else { return };
        if let Some(entry) = &self.entries[next] {
            count(Stat::Nested);
            match depth {
                0 => self.mark(entry),
                _ => self.pass(entry, self.act(), depth),
            }
        }
    }

    /// Draws the action of a method.
    pub(super) fn act(&self) -> Act {
        let mut rng = self.rng();
        match rng.below(2048) {
            0..900 => Act::Next,
            900..1400 => Act::Nothing,
            1400..1700 => Act::Spin(rng.below(SPIN_MAX)),
            1700..1880 => Act::Yield,
            1880..1940 => Act::Sleep(rng.below(SLEEP_US_MAX)),
            1940..1970 => Act::PanicFirst,
            1970..2000 => Act::PanicLast,
            2000..2020 => Act::SwapOwn,
            2020..2030 => Act::SwapOther,
            2030..2038 => Act::Create,
            2038..2042 => Act::Discard,
            2042..2047 => Act::Wake,
            _ => Act::Destroy,
        }
    }

    /// Leaves a mark, sometimes through the super-interface.
    pub(super) fn mark(&self, entry: &Entry) {
        let (record, lane) = (&entry.record, self.lane);
        let mut number = record.issue(lane);
        if self.is_broken(Break::LoseCall) {
            number = record.issue(lane);
        }
        if self.is_broken(Break::Disorder) {
            let later = record.issue(lane);
            self.mark_by(entry, later);
        }
        self.mark_by(entry, number);
    }

    fn mark_by(&self, entry: &Entry, number: u64) {
        let (record, lane) = (&entry.record, self.lane);
        let target = Target { method: MARK, number: Some(number), act: Act::Nothing };
        let mark = Mark { record, lane, number };
        self.make(entry, target, || match number % 4 {
            0 => Handle::upcast::<dyn Station>(entry.handle).try_mark(mark),
            _ => entry.handle.try_mark(mark),
        });
    }

    /// Compares the marks in the object with those of this thread.
    pub(super) fn audit(&self, entry: &Entry) {
        let target = Target { method: AUDIT, number: None, act: Act::Nothing };
        self.make(entry, target, || {
            let (reply, sums) = entry.handle.try_audit(self.lane)?;
            let wanted = Sums::after(entry.record.issued(self.lane));
            if sums != wanted {
                let (serial, lane) = (entry.record.serial, self.lane);
                self.world.run_state.fail(format!(
                    "object #{serial} has {sums:?} in lane {lane}, but the calls of the lane left {wanted:?}"
                ));
            }
            count(Stat::Audits);
            Ok(reply)
        });
    }

    pub(super) fn pass(&self, entry: &Entry, act: Act, depth: u32) {
        self.request(entry, PASS, act, depth);
    }

    pub(super) fn linger(&self, entry: &Entry, act: Act, depth: u32) {
        count(Stat::Blocking);
        self.request(entry, LINGER, act, depth);
    }

    /// Sleeps in the object. Called outside every operation, by a thread that no other thread waits for.
    pub(super) fn rest(&self, entry: &Entry) {
        count(Stat::Rests);
        let (record, lane) = (&entry.record, self.lane);
        let number = record.issue(lane);
        let target = Target { method: REST, number: Some(number), act: Act::Nothing };
        self.make(entry, target, || entry.handle.try_rest(Mark { record, lane, number }));
    }

    fn request(&self, entry: &Entry, method: usize, act: Act, depth: u32) {
        let (record, lane) = (&entry.record, self.lane);
        let number = record.issue(lane);
        let request = Request { mark: Mark { record, lane, number }, context: self, act, depth };
        let target = Target { method, number: Some(number), act };
        self.make(entry, target, || match method {
            PASS => entry.handle.try_pass(request),
            _ => entry.handle.try_linger(request),
        });
    }

    /// Makes a call and checks its outcome.
    fn make(&self, entry: &Entry, target: Target, f: impl FnOnce() -> Result<Reply, CallError>) {
        let record = &entry.record;
        // Read before the call begins.
        let was_gone = record.is_destroyed();
        let known = record.arbiters.known();
        take_trace();
        let outcome = catch_unwind(AssertUnwindSafe(f));
        count(Stat::Calls);
        let verdict = match outcome {
            Ok(Ok(reply)) if !reply.left => self
                .expect_begun(entry, "a sleeper was told that the object ends")
                .and_then(|()| self.take_back(entry, target)),
            Ok(Ok(mut reply)) => {
                self.note(reply.trace);
                if self.is_broken(Break::MissArbiter) {
                    reply.trace = ArbiterTrace::default();
                }
                self.judge_answer(entry, was_gone, reply)
                    .and_then(|()| record.arbiters.judge(known, target.method, reply.trace))
            }
            Ok(Err(error)) => {
                let trace = take_trace();
                self.note(trace);
                self.judge_error(entry, &error, trace).and_then(|()| self.take_back(entry, target))
            }
            Err(payload) => {
                let trace = take_trace();
                self.note(trace);
                count(Stat::Panics);
                match target.act {
                    _ if payload.is::<MakePanicked>()
                        || (payload.is::<ExpectedPanic>() && trace.may_panic()) =>
                    {
                        self.take_back(entry, target)
                    }
                    Act::PanicFirst if payload.is::<ExpectedPanic>() => self
                        .take_back(entry, target)
                        .and_then(|()| record.arbiters.judge(known, target.method, trace)),
                    Act::PanicLast if payload.is::<ExpectedPanic>() => {
                        record.arbiters.judge(known, target.method, trace)
                    }
                    act => {
                        Err(format!("a call with the action {act:?} panicked: {}", panic_message(&*payload)))
                    }
                }
            }
        };
        if let Err(what) = verdict {
            self.world.run_state.fail(format!("object #{}, lane {}: {what}", record.serial, self.lane));
        }
    }

    fn note(&self, trace: ArbiterTrace) {
        if trace.number != 0 {
            self.world.note_met();
        }
    }

    /// Takes back the mark of a call that did not happen.
    fn take_back(&self, entry: &Entry, target: Target) -> Result<(), String> {
        match target.number {
            Some(number) => entry.record.take_back(self.lane, number),
            None => Ok(()),
        }
    }

    fn judge_answer(&self, entry: &Entry, was_gone: bool, reply: Reply) -> Result<(), String> {
        if was_gone {
            return Err("a call was answered after destroy had returned".to_owned());
        }
        if reply.serial != entry.record.serial && reply.serial != 0 {
            return Err(format!("a call was answered by object #{}", reply.serial));
        }
        if self.is_broken(Break::RefuseLive) {
            return self.expect_begun(entry, "as planned");
        }
        Ok(())
    }

    fn judge_error(&self, entry: &Entry, error: &CallError, trace: ArbiterTrace) -> Result<(), String> {
        match error.reason() {
            CallErrorKind::Destroyed => {
                count(Stat::Stale);
                self.expect_begun(entry, &error.to_string())
            }
            CallErrorKind::Refused(REFUSAL) if trace.may_refuse() => {
                count(Stat::Refused);
                Ok(())
            }
            _ => Err(format!("a call failed without a valid reason: {error}")),
        }
    }

    /// Checks that the destruction of the object has begun, because the call was refused.
    fn expect_begun(&self, entry: &Entry, said: &str) -> Result<(), String> {
        match entry.record.destroy_begun() {
            true => Ok(()),
            false => {
                Err(format!("a call was refused ({said}), but no thread has begun to destroy the object"))
            }
        }
    }
}
