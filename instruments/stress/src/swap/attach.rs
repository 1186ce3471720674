//! Attaches arbiters to objects, with a random method and random behavior.
//!
//! An arbiter leaves its trace (`arbiters`), and sometimes it refuses a call or panics before the method.

use std::sync::atomic::{AtomicU64, Ordering};

use squall::swap::{SwapFailure, arbitrate, arbitrate_method};

use super::arbiters::{AttachError, Attached, METHODS, PANICS, REFUSAL, REFUSES, leave_trace};
use super::record::Entry;
use super::world::World;
use crate::run::Rng;
use crate::skeleton::expected_panic::raise_expected_panic;

/// One call in this many is refused or panics.
const ODD_ONE_IN: u64 = 16;

/// Attaches an arbiter to this object, if it has none.
pub(super) fn attach(world: &'static World, entry: &Entry, rng: &mut Rng) -> Option<Attached> {
    let method = if rng.one_in(2) { 0 } else { 1 + rng.below(METHODS.len() as u64 - 1) };
    let odd = [0, 0, REFUSES, PANICS][rng.below(4) as usize];
    let proceeds = rng.one_in(2);
    let calls = AtomicU64::new(0);
    let outcome = entry.record.arbiters.attach(odd + method, |number| {
        let function = move |call: &mut squall::swap::Call<'_>| {
            leave_trace(number);
            world.arbitrated.fetch_add(1, Ordering::Relaxed);
            if odd != 0 && calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(ODD_ONE_IN) {
                if odd == PANICS {
                    raise_expected_panic();
                }
                return call.refuse(REFUSAL);
            }
            if proceeds {
                call.proceed();
            }
        };
        match method {
            0 => arbitrate(entry.handle, function),
            _ => arbitrate_method(entry.handle, METHODS[method as usize], function),
        }
    });
    let AttachError { error, is_arbitrated } = match outcome {
        Ok(attached) => return Some(attached),
        Err(error) => error,
    };
    let may = match error.failure() {
        SwapFailure::Destroyed | SwapFailure::NotThere => entry.record.destroy_begun(),
        SwapFailure::Arbitrated => is_arbitrated,
        // A swap is under way, or was until just now.
        failure => failure == SwapFailure::Busy,
    };
    if !may {
        world.run_state.fail(format!("an arbiter of object #{}: {error}", entry.record.serial));
    }
    None
}

/// Checks that an arbiter of an unknown method is refused.
pub(super) fn ask_for_no_method(world: &World, entry: &Entry) {
    let outcome = arbitrate_method(entry.handle, "no_such_method", |_| {});
    if outcome.map(|_| ()).map_err(|error| error.failure()) != Err(SwapFailure::NoSuchMethod) {
        world.run_state.fail("an arbiter of an unknown method was not refused as such".to_owned());
    }
}
