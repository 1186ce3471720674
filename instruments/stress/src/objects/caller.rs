//! Calls through references that may be stale, and what each answer must be.
//!
//! The rules, for an object whose number the caller knows:
//!
//! - the answer comes from that object, and from that interface;
//! - a call that begins after `destroy` returned errs, and nothing of the object runs;
//! - an error names the object, the interface and the method, and its reason is true: only an object whose destruction
//!   was begun is destroyed, and only a root that refuses has refused;
//! - a panic of the method reaches its caller as it was raised.

use std::panic::{self, AssertUnwindSafe, catch_unwind};

use squall::rcu::pin;
use squall::{CallError, Handle, Id, CallErrorKind};

use super::board::Entry;
use super::breaks::Break;
use super::interfaces::{Ask, Deep, Face, Fault, Kind, Mark, Pair, Probe, Told};
use super::tally::{What, count};
use super::world::World;
use crate::Rng;
use crate::planned::{Planned, quietly, text_of};

/// How deep calls of a thread of the torture lead into calls; those of drops and of dying threads lead less far.
pub(super) const DEPTH: u32 = 3;
/// Spins of a call that looks, at most.
const SPINS_MAX: u64 = 64;
/// Of so many calls one goes wrong where the torture is broken on purpose.
const BREAK_ONE_IN: u64 = 512;

/// Whoever it was that gave an answer that makes no sense.
const NOBODY: Told = Told { serial: 0, kind: Kind::Pair };

/// What a call is expected to be about.
#[derive(Clone, Copy)]
struct Target {
    interface: &'static str,
    id: Id,
    method: &'static str,
}

/// What came of a call.
enum Outcome {
    /// Somebody answered.
    Told(Told),
    /// It was answered, and does not say by whom.
    Done,
    /// It errs.
    Error(CallError),
    /// The plain form panicked with this message.
    Message(String),
    /// It was not made.
    Skipped,
}

pub(super) struct Caller<'a> {
    pub(super) world: &'static World,
    pub(super) rng: &'a mut Rng,
    /// How many calls may still be made one inside the other.
    pub(super) depth: u32,
}

impl Caller<'_> {
    /// Calls whatever a random slot of the board shows; now and then inside an operation that is already open.
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

    /// One call of a random method, in a random form.
    pub(super) fn call(&mut self, entry: &Entry) {
        let choice = self.rng.below(64);
        self.make(entry, |me| me.of_any_kind(entry, choice));
    }

    /// The cheapest calls, which touch nothing that others write; so they hide no missing fence.
    pub(super) fn glance(&mut self, entry: &Entry) {
        let spins = self.rng.below(SPINS_MAX);
        self.glance_for(entry, spins);
    }

    /// As `glance`, of a length that is given.
    pub(super) fn glance_for(&mut self, entry: &Entry, spins: u64) {
        self.make(entry, |_| match entry.face {
            Face::Probe(co) => probe_look(co, "Probe", spins),
            Face::Deep(co) => probe_look(co, "Deep", spins),
            Face::Pair(co) => turn(co, spins),
        });
    }

    /// One addition; through the gate if the object's additions are counted.
    pub(super) fn add(&mut self, entry: &Entry) {
        let n = 1 + self.rng.below(1000);
        self.make(entry, |me| match entry.face {
            Face::Probe(co) => me.add_to(entry, co, "Probe", n),
            Face::Deep(co) => me.add_to(entry, co, "Deep", n),
            Face::Pair(co) => turn(co, n),
        });
    }

    /// Makes a call and judges what comes of it.
    fn make(&mut self, entry: &Entry, f: impl FnOnce(&mut Self) -> (Target, Outcome)) {
        // Before the call begins.
        let was_gone = self.world.ledger.is_gone(entry.life);
        match catch_unwind(AssertUnwindSafe(|| f(self))) {
            Ok((target, outcome)) => self.judge(entry, was_gone, target, outcome),
            Err(payload) if payload.is::<Planned>() => count(What::Panics),
            Err(payload) => {
                let text = text_of(&*payload);
                self.world.trial.accuse(format!(
                    "a call on {:?} panicked with a payload not its own: {text}",
                    entry.face
                ));
            }
        }
    }

    fn of_any_kind(&mut self, entry: &Entry, choice: u64) -> (Target, Outcome) {
        match entry.face {
            Face::Probe(co) => self.probe(entry, co, "Probe", choice),
            Face::Pair(co) => self.pair(entry, co, choice),
            Face::Deep(co) => match choice {
                0..8 => said(target(co, "Deep", "depth"), co.try_depth()),
                8..10 => {
                    let ask = self.ask(entry);
                    count(What::Blocking);
                    said(target(co, "Deep", "rest"), co.try_rest(ask))
                }
                10..20 => {
                    count(What::Upcast);
                    self.mark(entry, Handle::upcast::<dyn Mark>(co), "Mark")
                }
                20..24 => self.mark(entry, co, "Deep"),
                24..44 => {
                    count(What::Upcast);
                    let choice = self.rng.below(64);
                    self.probe(entry, Handle::upcast::<dyn Probe>(co), "Probe", choice)
                }
                _ => {
                    let choice = self.rng.below(64);
                    self.probe(entry, co, "Deep", choice)
                }
            },
        }
    }

    fn probe<I>(
        &mut self,
        entry: &Entry,
        co: Handle<I>,
        interface: &'static str,
        choice: u64,
    ) -> (Target, Outcome)
    where
        I: ?Sized + squall::Interface,
        Handle<I>: Probe,
    {
        let to = |method| target(co, interface, method);
        match choice {
            0..14 => probe_look(co, interface, self.rng.below(SPINS_MAX)),
            14..20 => {
                let spins = self.rng.below(SPINS_MAX);
                (to("look"), plainly(|| co.look(spins)))
            }
            20..30 => {
                let n = 1 + self.rng.below(1000);
                self.add_to(entry, co, interface, n)
            }
            30..34 => (to("total"), co.try_total().map_or_else(Outcome::Error, |_| Outcome::Done)),
            34..40 => {
                let (serial, world) = (entry.life.serial, self.world);
                let mut tell = |other| {
                    if other != serial {
                        world
                            .trial
                            .accuse(format!("object #{serial} has a representative of object #{other}"));
                    }
                };
                (to("each"), co.try_each(&mut tell).map_or_else(Outcome::Error, |()| Outcome::Done))
            }
            40..46 => match co.checked() {
                Ok(told) => (to("checked"), Outcome::Told(told)),
                Err(Fault::Gone(error)) => (to("checked"), Outcome::Error(error)),
            },
            46..48 => {
                let ask = self.ask(entry);
                count(What::Blocking);
                said(to("linger"), co.try_linger(ask))
            }
            48..50 => {
                let ask = self.ask(entry);
                (to("touch"), plainly(|| co.touch(ask)))
            }
            _ => {
                let ask = self.ask(entry);
                said(to("touch"), co.try_touch(ask))
            }
        }
    }

    fn mark<I>(&mut self, entry: &Entry, co: Handle<I>, interface: &'static str) -> (Target, Outcome)
    where
        I: ?Sized + squall::Interface,
        Handle<I>: Mark,
    {
        if self.rng.one_in(8) {
            let ask = self.ask(entry);
            count(What::Blocking);
            return said(target(co, interface, "dwell"), co.try_dwell(ask));
        }
        let n = self.rng.next();
        let told = co.try_mark(n).map(|(told, complement)| if complement == !n { told } else { NOBODY });
        said(target(co, interface, "mark"), told)
    }

    fn pair(&mut self, entry: &Entry, co: Handle<dyn Pair<u64, 3>>, choice: u64) -> (Target, Outcome) {
        match choice {
            0..40 => turn(co, self.rng.next()),
            _ => {
                let ask = self.ask(entry);
                said(target(co, "Pair", "stir"), co.try_stir(ask))
            }
        }
    }

    fn ask<'a>(&mut self, entry: &'a Entry) -> Ask<'a> {
        Ask { seed: self.rng.next(), depth: self.depth, entry }
    }

    fn add_to<I>(&mut self, entry: &Entry, co: Handle<I>, interface: &'static str, n: u64) -> (Target, Outcome)
    where
        I: ?Sized + squall::Interface,
        Handle<I>: Probe,
    {
        let to = target(co, interface, "add");
        if !entry.counted {
            return said(to, co.try_add(n));
        }
        let (ledger, life) = (&self.world.ledger, entry.life);
        if !ledger.come_in(life) {
            return (to, Outcome::Skipped);
        }
        // Also if the call panics.
        struct GoOut(&'static World, super::ledger::Life);
        impl Drop for GoOut {
            fn drop(&mut self) {
                self.0.judge(self.0.ledger.go_out(self.1));
            }
        }
        let _out = GoOut(self.world, life);
        let lost = self.world.is_broken(Break::LoseAdd) && self.rng.one_in(BREAK_ONE_IN);
        // An error is that of the addition, also where that is to be lost.
        let look = if lost { co.try_look(0).ok() } else { None };
        let outcome = look.map_or_else(|| co.try_add(n), Ok);
        if outcome.is_ok() {
            ledger.acknowledge(life, n);
            count(What::Additions);
        }
        said(to, outcome)
    }

    fn judge(&mut self, entry: &Entry, was_gone: bool, target: Target, outcome: Outcome) {
        match outcome {
            Outcome::Skipped => {}
            Outcome::Done => self.judge_answer(entry, was_gone, target, None),
            Outcome::Told(told) => self.judge_answer(entry, was_gone, target, Some(told)),
            Outcome::Error(error) => self.judge_error(entry, target, &error),
            Outcome::Message(text) => {
                let Target { interface, id, method } = target;
                let names = [format!("{interface}#{id}"), method.to_owned()];
                if !names.iter().all(|name| text.contains(name)) {
                    self.world
                        .trial
                        .accuse(format!("a plain call of {method} on {interface}#{id} panicked: {text}"));
                }
                if !entry.refuses {
                    self.expect_begun(entry, target, &text);
                }
                count(What::StalePanics);
                count(What::StaleErrors);
            }
        }
    }

    fn judge_answer(&mut self, entry: &Entry, was_gone: bool, target: Target, told: Option<Told>) {
        count(What::Calls);
        let Target { interface, id, method } = target;
        let serial = entry.life.serial;
        if was_gone {
            self.world.trial.accuse(format!(
                "{interface}#{id}.{method} of object #{serial} was answered, and destroy had returned before the call"
            ));
        }
        let world = self.world;
        let mut broken = |how| world.is_broken(how) && self.rng.one_in(BREAK_ONE_IN);
        if broken(Break::RefuseLive) {
            return self.expect_begun(entry, target, "by order");
        }
        let Some(mut told) = told else { return };
        if broken(Break::WrongObject) {
            told.serial += 1;
        }
        if broken(Break::WrongType) {
            told.kind = if told.kind == Kind::Pair { Kind::Deep } else { Kind::Pair };
        }
        if told.serial != serial {
            let other = told.serial;
            world
                .trial
                .accuse(format!("{interface}#{id}.{method} of object #{serial} was answered by #{other}"));
        }
        if told.kind != entry.face.kind() {
            let (wanted, other) = (entry.face.kind(), told.kind);
            world
                .trial
                .accuse(format!("{interface}#{id}.{method} of a {wanted:?} was answered by a {other:?}"));
        }
    }

    fn judge_error(&mut self, entry: &Entry, target: Target, error: &CallError) {
        let Target { interface, id, method } = target;
        if error.id() != id || error.interface() != interface || error.method() != method {
            self.world
                .trial
                .accuse(format!("a call of {method} on {interface}#{id} erred of another: {error}"));
        }
        match error.reason() {
            CallErrorKind::Refused(_) if entry.refuses => count(What::Refusals),
            CallErrorKind::Destroyed => {
                count(What::StaleErrors);
                self.expect_begun(entry, target, &error.to_string());
            }
            _ => self.world.trial.accuse(format!("a call erred that must not: {error}")),
        }
    }

    /// Only what somebody began to destroy is refused.
    fn expect_begun(&self, entry: &Entry, target: Target, said: &str) {
        if !self.world.ledger.has_begun_to_end(entry.life) {
            let Target { interface, id, method } = target;
            self.world.trial.accuse(format!(
                "{method} on {interface}#{id} was refused ({said}), and nobody has begun to destroy object #{}",
                entry.life.serial
            ));
        }
    }
}

fn target<I: ?Sized>(co: Handle<I>, interface: &'static str, method: &'static str) -> Target {
    Target { interface, id: Handle::id(co), method }
}

fn said(target: Target, outcome: Result<Told, CallError>) -> (Target, Outcome) {
    (target, outcome.map_or_else(Outcome::Error, Outcome::Told))
}

fn probe_look<I>(co: Handle<I>, interface: &'static str, spins: u64) -> (Target, Outcome)
where
    I: ?Sized + squall::Interface,
    Handle<I>: Probe,
{
    said(target(co, interface, "look"), co.try_look(spins))
}

fn turn(co: Handle<dyn Pair<u64, 3>>, seed: u64) -> (Target, Outcome) {
    let to = target(co, "Pair", "turn");
    let told = co.try_turn([seed, !seed, 0]);
    said(to, told.map(|(told, turned)| if turned == [0, !seed, seed] { told } else { NOBODY }))
}

/// The plain form, which panics if there is no object.
fn plainly(f: impl FnOnce() -> Told) -> Outcome {
    match quietly(f) {
        Ok(told) => Outcome::Told(told),
        Err(payload) if payload.is::<Planned>() => panic::resume_unwind(payload),
        Err(payload) => Outcome::Message(text_of(&*payload)),
    }
}
