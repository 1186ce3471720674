//! Calls through possibly stale handles, and the checks of their answers.
//!
//! Rules for an object whose number the caller knows:
//!
//! - The answer comes from that object and from that interface.
//! - A call that begins after `destroy` returned fails, and no code of the object runs.
//! - An error names the object, the interface and the method, and its reason is true. `Destroyed` needs a
//!   begun destruction. `Refused` needs a root that refuses.
//! - A panic of the method reaches its caller unchanged.

use std::panic::{self, AssertUnwindSafe, catch_unwind};

use squall::rcu::pin;
use squall::{CallError, CallErrorKind, Handle, Id};

use super::board::Entry;
use super::breaks::Break;
use super::counts::{Stat, count};
use super::interfaces::{AnyHandle, Deep, Fault, Kind, Mark, Pair, Probe, Reply, Request};
use super::world::World;
use crate::run::Rng;
use crate::skeleton::expected_panic::{ExpectedPanic, catch_silently, panic_message};

/// Maximum depth of nested calls. Calls in drops and exit hooks nest less deeply.
pub(super) const DEPTH: u32 = 3;
/// Maximum number of spins of a short call.
const SPINS_MAX: u64 = 64;
/// With a planned break, one call in this many goes wrong.
const BREAK_ONE_IN: u64 = 512;

/// The reply recorded for a wrong value.
const WRONG_REPLY: Reply = Reply { serial: 0, kind: Kind::Pair };

/// The expected object and method of a call.
#[derive(Clone, Copy)]
struct Target {
    interface: &'static str,
    id: Id,
    method: &'static str,
}

/// The outcome of a call.
enum Outcome {
    /// A reply that names the object.
    Reply(Reply),
    /// An answer that does not name the object.
    Done,
    /// An error.
    Error(CallError),
    /// A panic of the panicking form, with this message.
    Message(String),
    /// The call was not made.
    Skipped,
}

pub(super) struct Caller<'a> {
    pub(super) world: &'static World,
    pub(super) rng: &'a mut Rng,
    /// Remaining depth of nested calls.
    pub(super) depth: u32,
}

impl Caller<'_> {
    /// Calls the object of a random slot, sometimes inside an operation that is already open.
    pub(super) fn call_any(&mut self) {
        if self.rng.one_in(8) {
            let slot = self.world.board.any_slot(self.rng);
            pin(|o| {
                if let Some(entry) = self.world.board.shown(o, slot) {
                    self.call(entry);
                }
            });
        } else if let Some(entry) = self.world.board.any(self.rng) {
            self.call(&entry);
        }
    }

    /// Calls a random method in a random form.
    pub(super) fn call(&mut self, entry: &Entry) {
        let choice = self.rng.below(64);
        self.make(entry, |me| me.of_any_kind(entry, choice));
    }

    /// Makes the cheapest call. It writes no shared data, so it hides no missing fence.
    pub(super) fn glance(&mut self, entry: &Entry) {
        let spins = self.rng.below(SPINS_MAX);
        self.glance_for(entry, spins);
    }

    /// Makes the cheapest call with a given number of spins.
    pub(super) fn glance_for(&mut self, entry: &Entry, spins: u64) {
        self.make(entry, |_| match entry.handle {
            AnyHandle::Probe(handle) => probe_look(handle, "Probe", spins),
            AnyHandle::Deep(handle) => probe_look(handle, "Deep", spins),
            AnyHandle::Pair(handle) => turn(handle, spins),
        });
    }

    /// Adds to the object. Passes the gate if its additions are counted.
    pub(super) fn add(&mut self, entry: &Entry) {
        let n = 1 + self.rng.below(1000);
        self.make(entry, |me| match entry.handle {
            AnyHandle::Probe(handle) => me.add_to(entry, handle, "Probe", n),
            AnyHandle::Deep(handle) => me.add_to(entry, handle, "Deep", n),
            AnyHandle::Pair(handle) => turn(handle, n),
        });
    }

    /// Makes a call and checks its outcome.
    fn make(&mut self, entry: &Entry, f: impl FnOnce(&mut Self) -> (Target, Outcome)) {
        // Read before the call begins.
        let was_gone = self.world.ledger.is_destroyed(entry.key);
        match catch_unwind(AssertUnwindSafe(|| f(self))) {
            Ok((target, outcome)) => self.judge(entry, was_gone, target, outcome),
            Err(payload) if payload.is::<ExpectedPanic>() => count(Stat::Panics),
            Err(payload) => {
                let text = panic_message(&*payload);
                self.world
                    .run_state
                    .fail(format!("a call on {:?} panicked with an unplanned payload: {text}", entry.handle));
            }
        }
    }

    fn of_any_kind(&mut self, entry: &Entry, choice: u64) -> (Target, Outcome) {
        match entry.handle {
            AnyHandle::Probe(handle) => self.probe(entry, handle, "Probe", choice),
            AnyHandle::Pair(handle) => self.pair(entry, handle, choice),
            AnyHandle::Deep(handle) => match choice {
                0..8 => said(target(handle, "Deep", "depth"), handle.try_depth()),
                8..10 => {
                    let request = self.request(entry);
                    count(Stat::Blocking);
                    said(target(handle, "Deep", "rest"), handle.try_rest(request))
                }
                10..20 => {
                    count(Stat::Upcast);
                    self.mark(entry, Handle::upcast::<dyn Mark>(handle), "Mark")
                }
                20..24 => self.mark(entry, handle, "Deep"),
                24..44 => {
                    count(Stat::Upcast);
                    let choice = self.rng.below(64);
                    self.probe(entry, Handle::upcast::<dyn Probe>(handle), "Probe", choice)
                }
                _ => {
                    let choice = self.rng.below(64);
                    self.probe(entry, handle, "Deep", choice)
                }
            },
        }
    }

    fn probe<I>(
        &mut self,
        entry: &Entry,
        handle: Handle<I>,
        interface: &'static str,
        choice: u64,
    ) -> (Target, Outcome)
    where
        I: ?Sized + squall::Interface,
        Handle<I>: Probe,
    {
        let to = |method| target(handle, interface, method);
        match choice {
            0..14 => probe_look(handle, interface, self.rng.below(SPINS_MAX)),
            14..20 => {
                let spins = self.rng.below(SPINS_MAX);
                (to("look"), call_or_panic(|| handle.look(spins)))
            }
            20..30 => {
                let n = 1 + self.rng.below(1000);
                self.add_to(entry, handle, interface, n)
            }
            30..34 => (to("total"), handle.try_total().map_or_else(Outcome::Error, |_| Outcome::Done)),
            34..40 => {
                let (serial, world) = (entry.key.serial, self.world);
                let mut tell = |other| {
                    if other != serial {
                        world
                            .run_state
                            .fail(format!("object #{serial} has a representative of object #{other}"));
                    }
                };
                (to("each"), handle.try_each(&mut tell).map_or_else(Outcome::Error, |()| Outcome::Done))
            }
            40..46 => match handle.checked() {
                Ok(reply) => (to("checked"), Outcome::Reply(reply)),
                Err(Fault::Gone(error)) => (to("checked"), Outcome::Error(error)),
            },
            46..48 => {
                let request = self.request(entry);
                count(Stat::Blocking);
                said(to("linger"), handle.try_linger(request))
            }
            48..50 => {
                let request = self.request(entry);
                (to("touch"), call_or_panic(|| handle.touch(request)))
            }
            _ => {
                let request = self.request(entry);
                said(to("touch"), handle.try_touch(request))
            }
        }
    }

    fn mark<I>(&mut self, entry: &Entry, handle: Handle<I>, interface: &'static str) -> (Target, Outcome)
    where
        I: ?Sized + squall::Interface,
        Handle<I>: Mark,
    {
        if self.rng.one_in(8) {
            let request = self.request(entry);
            count(Stat::Blocking);
            return said(target(handle, interface, "dwell"), handle.try_dwell(request));
        }
        let n = self.rng.next();
        let reply =
            handle.try_mark(n).map(|(reply, complement)| if complement == !n { reply } else { WRONG_REPLY });
        said(target(handle, interface, "mark"), reply)
    }

    fn pair(&mut self, entry: &Entry, handle: Handle<dyn Pair<u64, 3>>, choice: u64) -> (Target, Outcome) {
        match choice {
            0..40 => turn(handle, self.rng.next()),
            _ => {
                let request = self.request(entry);
                said(target(handle, "Pair", "stir"), handle.try_stir(request))
            }
        }
    }

    fn request<'a>(&mut self, entry: &'a Entry) -> Request<'a> {
        Request { seed: self.rng.next(), depth: self.depth, entry }
    }

    fn add_to<I>(
        &mut self,
        entry: &Entry,
        handle: Handle<I>,
        interface: &'static str,
        n: u64,
    ) -> (Target, Outcome)
    where
        I: ?Sized + squall::Interface,
        Handle<I>: Probe,
    {
        let to = target(handle, interface, "add");
        if !entry.counted {
            return said(to, handle.try_add(n));
        }
        let (ledger, key) = (&self.world.ledger, entry.key);
        if !ledger.come_in(key) {
            return (to, Outcome::Skipped);
        }
        // Leaves the gate also if the call panics.
        struct GoOut(&'static World, super::ledger::ObjectKey);
        impl Drop for GoOut {
            fn drop(&mut self) {
                self.0.expect(self.0.ledger.go_out(self.1));
            }
        }
        let _out = GoOut(self.world, key);
        let lost = self.world.breaks(Break::LoseAdd, BREAK_ONE_IN, self.rng);
        // A failed lost addition falls back to the real one, so its error is still an error of `add`.
        let look = if lost { handle.try_look(0).ok() } else { None };
        let outcome = look.map_or_else(|| handle.try_add(n), Ok);
        if outcome.is_ok() {
            ledger.acknowledge(key, n);
            count(Stat::Additions);
        }
        said(to, outcome)
    }

    fn judge(&mut self, entry: &Entry, was_gone: bool, target: Target, outcome: Outcome) {
        match outcome {
            Outcome::Skipped => {}
            Outcome::Done => self.judge_answer(entry, was_gone, target, None),
            Outcome::Reply(reply) => self.judge_answer(entry, was_gone, target, Some(reply)),
            Outcome::Error(error) => self.judge_error(entry, target, &error),
            Outcome::Message(text) => {
                let Target { interface, id, method } = target;
                let names = [format!("{interface}#{id}"), method.to_owned()];
                if !names.iter().all(|name| text.contains(name)) {
                    self.world.run_state.fail(format!(
                        "the panic of a call of {method} on {interface}#{id} does not name them: {text}"
                    ));
                }
                if !entry.refuses {
                    self.expect_begun(entry, target, &text);
                }
                count(Stat::StalePanics);
                count(Stat::StaleErrors);
            }
        }
    }

    fn judge_answer(&mut self, entry: &Entry, was_gone: bool, target: Target, reply: Option<Reply>) {
        count(Stat::Calls);
        let Target { interface, id, method } = target;
        let serial = entry.key.serial;
        if was_gone {
            self.world.run_state.fail(format!(
                "{interface}#{id}.{method} of object #{serial} was answered after destroy had returned"
            ));
        }
        let world = self.world;
        let mut broken = |how| world.breaks(how, BREAK_ONE_IN, self.rng);
        if broken(Break::RefuseLive) {
            return self.expect_begun(entry, target, "as planned");
        }
        let Some(mut reply) = reply else { return };
        if broken(Break::WrongObject) {
            reply.serial += 1;
        }
        if broken(Break::WrongType) {
            reply.kind = if reply.kind == Kind::Pair { Kind::Deep } else { Kind::Pair };
        }
        if reply.serial != serial {
            let other = reply.serial;
            world
                .run_state
                .fail(format!("{interface}#{id}.{method} of object #{serial} was answered by #{other}"));
        }
        if reply.kind != entry.handle.kind() {
            let (wanted, other) = (entry.handle.kind(), reply.kind);
            world
                .run_state
                .fail(format!("{interface}#{id}.{method} of a {wanted:?} was answered by a {other:?}"));
        }
    }

    fn judge_error(&mut self, entry: &Entry, target: Target, error: &CallError) {
        let Target { interface, id, method } = target;
        if error.id() != id || error.interface() != interface || error.method() != method {
            self.world.run_state.fail(format!(
                "the error of a call of {method} on {interface}#{id} names another call: {error}"
            ));
        }
        match error.reason() {
            CallErrorKind::Refused(_) if entry.refuses => count(Stat::Refusals),
            CallErrorKind::Destroyed => {
                count(Stat::StaleErrors);
                self.expect_begun(entry, target, &error.to_string());
            }
            _ => self.world.run_state.fail(format!("a call failed without a valid reason: {error}")),
        }
    }

    /// Checks that the destruction of the object has begun, because the call was refused.
    fn expect_begun(&self, entry: &Entry, target: Target, said: &str) {
        if !self.world.ledger.destroy_begun(entry.key) {
            let Target { interface, id, method } = target;
            self.world.run_state.fail(format!(
                "{method} on {interface}#{id} was refused ({said}), but no thread has begun to destroy object #{}",
                entry.key.serial
            ));
        }
    }
}

fn target<I: ?Sized>(handle: Handle<I>, interface: &'static str, method: &'static str) -> Target {
    Target { interface, id: Handle::id(handle), method }
}

fn said(target: Target, outcome: Result<Reply, CallError>) -> (Target, Outcome) {
    (target, outcome.map_or_else(Outcome::Error, Outcome::Reply))
}

fn probe_look<I>(handle: Handle<I>, interface: &'static str, spins: u64) -> (Target, Outcome)
where
    I: ?Sized + squall::Interface,
    Handle<I>: Probe,
{
    said(target(handle, interface, "look"), handle.try_look(spins))
}

fn turn(handle: Handle<dyn Pair<u64, 3>>, seed: u64) -> (Target, Outcome) {
    let to = target(handle, "Pair", "turn");
    let reply = handle.try_turn([seed, !seed, 0]);
    said(to, reply.map(|(reply, turned)| if turned == [0, !seed, seed] { reply } else { WRONG_REPLY }))
}

/// Uses the panicking form, which panics if the object is gone.
fn call_or_panic(f: impl FnOnce() -> Reply) -> Outcome {
    match catch_silently(f) {
        Ok(reply) => Outcome::Reply(reply),
        Err(payload) if payload.is::<ExpectedPanic>() => panic::resume_unwind(payload),
        Err(payload) => Outcome::Message(panic_message(&*payload)),
    }
}
