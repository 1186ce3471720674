//! Actions inside methods.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use squall::rcu::in_operation;
use squall::swap::SwapFailure;

use super::arbiters::{ArbiterTrace, restore_trace, take_trace};
use super::breaks::Break;
use super::counts::{Stat, count};
use super::disturb;
use super::interfaces::{Act, Mark, Relay, Reply, Request, Station};
use super::marks::Sums;
use super::swaps;
use super::variants::{self, Body, Leaf, Single};
use crate::skeleton::delay::spin;
use crate::skeleton::expected_panic::raise_expected_panic;

/// With a planned break, one call in this many goes wrong.
const BREAK_ONE_IN: u64 = 512;

/// Records a violation if this is freed memory.
fn check(body: &impl Body, doing: &str) {
    if let Err(what) = body.own().check() {
        let (number, serial) = (body.implementation().number, body.implementation().serial());
        body.implementation()
            .world
            .run_state
            .fail(format!("{doing}: a representative of implementation {number} of object #{serial} {what}"));
    }
}

/// Leaves a mark.
fn leave<B: Body>(body: &B, mark: Mark<'_>) {
    let implementation = body.implementation();
    implementation.adopt(mark.record);
    let mut left = body.own().leave(mark.lane, mark.number, B::EXACT);
    if implementation.world.is_broken(Break::DoubleCall) && mark.number.is_multiple_of(BREAK_ONE_IN) {
        left = left.and(body.own().leave(mark.lane, mark.number, B::EXACT));
    }
    if let Err(what) = left {
        let (lane, serial) = (mark.lane, mark.record.serial);
        implementation.world.run_state.fail(format!("object #{serial}, lane {lane}: {what}"));
    }
}

/// Begins a call that leaves a mark at its end too.
fn begin<B: Body>(body: &B, request: Request<'_>) -> ArbiterTrace {
    let trace = take_trace();
    check(body, "a call that begins");
    if request.act == Act::PanicFirst {
        restore_trace(trace);
        raise_expected_panic();
    }
    leave(body, request.mark);
    if request.act == Act::PanicLast {
        restore_trace(trace);
        raise_expected_panic();
    }
    trace
}

fn end<B: Body>(body: &B, request: Request<'_>, trace: ArbiterTrace) -> Reply {
    check(body, "a call that ends");
    let Mark { record, lane, .. } = request.mark;
    leave(body, Mark { record, lane, number: record.issue(lane) });
    Reply { serial: body.implementation().serial(), trace, left: true }
}

/// Runs the side action.
fn act(body: &impl Body, request: Request<'_>) {
    let Request { context, mark, depth, .. } = request;
    let world = context.world;
    match request.act {
        Act::Nothing | Act::PanicFirst | Act::PanicLast => {}
        Act::Spin(count) => spin(count),
        Act::Yield => thread::yield_now(),
        Act::Sleep(us) => thread::sleep(Duration::from_micros(us)),
        Act::Next => context.call_next(mark.record, depth.saturating_sub(1)),
        Act::Create => {
            // The generator is borrowed only for this statement, because the calls below draw too.
            let made = world.create_apart(&mut context.rng());
            if let Some((owned, entry)) = made {
                (0..3).for_each(|_| context.mark(&entry));
                context.audit(&entry);
                world.destroy_apart(owned, &entry);
                count(Stat::CreatedInside);
            }
        }
        Act::Destroy => {
            let place = context.rng().below(world.places.len() as u64) as usize;
            world.destroy(place);
        }
        Act::Discard => {
            if let Some(handle) = mark.record.handle.get() {
                disturb::discard(*handle, &mut context.rng());
            }
        }
        Act::Wake => body.wake(),
        Act::SwapOwn => {
            let failure = if in_operation() { SwapFailure::InOperation } else { SwapFailure::InMethod };
            variants::refused(world, mark.record, &[failure]);
        }
        Act::SwapOther => {
            let other =
                context.entries.iter().flatten().find(|entry| !Arc::ptr_eq(&entry.record, mark.record));
            match other {
                Some(other) if in_operation() => {
                    variants::refused(world, &other.record, &[SwapFailure::InOperation])
                }
                Some(other) => swaps::one(world, other, true, &mut context.rng()),
                None => {}
            }
        }
    }
}

/// Implements the interfaces for a type with `Body`.
macro_rules! answers {
    ([$($generics:tt)*] $name:ty) => {
        impl<$($generics)*> Station for $name {
            fn mark(&self, mark: Mark<'_>) -> Reply {
                let trace = take_trace();
                check(self, "a call");
                leave(self, mark);
                Reply { serial: self.implementation().serial(), trace, left: true }
            }

            fn audit(&self, lane: usize) -> (Reply, Sums) {
                let trace = take_trace();
                check(self, "an audit");
                let sums = self.sums(lane);
                (Reply { serial: self.implementation().serial(), trace, left: true }, sums)
            }
        }

        impl<$($generics)*> Relay for $name {
            fn pass(&self, request: Request<'_>) -> Reply {
                let trace = begin(self, request);
                act(self, request);
                end(self, request, trace)
            }

            fn rest(&self, mark: Mark<'_>) -> Reply {
                let trace = take_trace();
                check(self, "a call that is to sleep");
                let left = self.sleep();
                check(self, "a call that has slept");
                if left {
                    leave(self, mark);
                } else if trace.number != 0 {
                    // The call may be made again, and its caller will not see this trace.
                    self.implementation().world.note_met();
                }
                Reply { serial: self.implementation().serial(), trace, left }
            }

            fn linger(&self, request: Request<'_>) -> Reply {
                let trace = begin(self, request);
                act(self, request);
                end(self, request, trace)
            }
        }
    };
}

answers!([const KIND: u8] Single<KIND>);
answers!([const F: bool, const EAGER: bool] Leaf<F, EAGER>);
