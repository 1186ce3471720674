//! What methods do inside.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use squall::rcu::in_operation;
use squall::swap::SwapFailure;

use super::breaks::Break;
use super::interfaces::{Act, Ask, Mark, Relay, Station, Told};
use super::marks::Sums;
use super::meddler;
use super::stations::{Body, Leaf, Single};
use super::swaps;
use super::tally::{What, count};
use super::via::{Via, put_back, take_via};
use crate::delay::spin;
use crate::planned::panic_as_planned;

/// Of so many calls one goes wrong where the torture is broken on purpose.
const BREAK_ONE_IN: u64 = 512;

/// Accuses if this is memory that was freed.
fn check(body: &impl Body, doing: &str) {
    if let Err(what) = body.own().check() {
        let (number, serial) = (body.chassis().number, body.chassis().serial());
        body.chassis().world.trial.accuse(format!(
            "{doing}: a representative of implementation {number} of object #{serial} {what}"
        ));
    }
}

/// Leaves a mark.
fn leave<B: Body>(body: &B, mark: Mark<'_>) {
    let chassis = body.chassis();
    chassis.adopt(mark.life);
    let mut left = body.own().leave(mark.lane, mark.number, B::EXACT);
    if chassis.world.is_broken(Break::DoubleCall) && mark.number.is_multiple_of(BREAK_ONE_IN) {
        left = left.and(body.own().leave(mark.lane, mark.number, B::EXACT));
    }
    if let Err(what) = left {
        let (lane, serial) = (mark.lane, mark.life.serial);
        chassis.world.trial.accuse(format!("object #{serial}, lane {lane}: {what}"));
    }
}

/// Something on the way of a call that is to leave its trace at the end.
fn begin<B: Body>(body: &B, ask: Ask<'_>) -> Via {
    let via = take_via();
    check(body, "a call that begins");
    if ask.act == Act::PanicFirst {
        put_back(via);
        panic_as_planned();
    }
    leave(body, ask.mark);
    if ask.act == Act::PanicLast {
        put_back(via);
        panic_as_planned();
    }
    via
}

fn end<B: Body>(body: &B, ask: Ask<'_>, via: Via) -> Told {
    check(body, "a call that ends");
    let Mark { life, lane, .. } = ask.mark;
    leave(body, Mark { life, lane, number: life.issue(lane) });
    Told { serial: body.chassis().serial(), via, left: true }
}

/// What it was asked for.
fn act(body: &impl Body, ask: Ask<'_>) {
    let Ask { cast, mark, depth, .. } = ask;
    let world = cast.world;
    match ask.act {
        Act::Nothing | Act::PanicFirst | Act::PanicLast => {}
        Act::Spin(count) => spin(count),
        Act::Yield => thread::yield_now(),
        Act::Sleep(us) => thread::sleep(Duration::from_micros(us)),
        Act::Next => cast.call_next(mark.life, depth.saturating_sub(1)),
        Act::Create => {
            // The generator is lent for that alone: the calls below draw, too.
            let made = world.create_apart(&mut cast.rng());
            if let Some((owned, entry)) = made {
                (0..3).for_each(|_| cast.mark(&entry));
                cast.audit(&entry);
                world.destroy_apart(owned, &entry);
                count(What::CreatedInside);
            }
        }
        Act::Destroy => {
            let place = cast.rng().below(world.places.len() as u64) as usize;
            world.destroy(place);
        }
        Act::Discard => {
            if let Some(co) = mark.life.co.get() {
                meddler::discard(*co, &mut cast.rng());
            }
        }
        Act::Wake => body.wake(),
        Act::SwapOwn => {
            let failure = if in_operation() { SwapFailure::InOperation } else { SwapFailure::InMethod };
            swaps::refused(world, mark.life, &[failure]);
        }
        Act::SwapOther => {
            let other = cast.entries.iter().flatten().find(|entry| !Arc::ptr_eq(&entry.life, mark.life));
            match other {
                Some(other) if in_operation() => {
                    swaps::refused(world, &other.life, &[SwapFailure::InOperation])
                }
                Some(other) => swaps::one(world, other, true, &mut cast.rng()),
                None => {}
            }
        }
    }
}

/// The interfaces, for anything with a body.
macro_rules! answers {
    ([$($generics:tt)*] $name:ty) => {
        impl<$($generics)*> Station for $name {
            fn mark(&self, mark: Mark<'_>) -> Told {
                let via = take_via();
                check(self, "a call");
                leave(self, mark);
                Told { serial: self.chassis().serial(), via, left: true }
            }

            fn audit(&self, lane: usize) -> (Told, Sums) {
                let via = take_via();
                check(self, "an audit");
                let sums = self.sums(lane);
                (Told { serial: self.chassis().serial(), via, left: true }, sums)
            }
        }

        impl<$($generics)*> Relay for $name {
            fn pass(&self, ask: Ask<'_>) -> Told {
                let via = begin(self, ask);
                act(self, ask);
                end(self, ask, via)
            }

            fn rest(&self, mark: Mark<'_>) -> Told {
                let via = take_via();
                check(self, "a call that is to sleep");
                let left = self.sleep();
                check(self, "a call that has slept");
                if left {
                    leave(self, mark);
                } else if via.number != 0 {
                    // It may be made again, and its caller will not hear of this.
                    self.chassis().world.note_met();
                }
                Told { serial: self.chassis().serial(), via, left }
            }

            fn linger(&self, ask: Ask<'_>) -> Told {
                let via = begin(self, ask);
                act(self, ask);
                end(self, ask, via)
            }
        }
    };
}

answers!([const KIND: u8] Single<KIND>);
answers!([const F: bool, const EAGER: bool] Leaf<F, EAGER>);
