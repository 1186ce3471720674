//! The owner's side: creating, publishing, destroying, and the exact comparison at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use squall::rcu::in_operation;
use squall::{Destruction, CallErrorKind};

use super::board::{Entry, OwnedEntry};
use super::breaks::Break;
use super::caller::Caller;
use super::classes;
use super::interfaces::{AnyHandle, Probe};
use super::counts::{Stat, count};
use super::world::World;
use crate::run::Rng;
use crate::skeleton::expected_panic::ExpectedPanic;

/// An object that lies in no vault.
pub(super) const NO_SLOT: usize = usize::MAX;
/// Times that a total is asked for: a representative that panics while it is made, or a root that refuses, is no answer.
const TRIES: u32 = 1_000;
/// Of so many objects one goes wrong where the torture is broken on purpose.
const BREAK_ONE_IN: u64 = 64;

/// Creates an object of a random class, for this slot or for none. `None` if the creation panicked or failed as
/// planned, or too many objects are not accounted for yet.
pub(super) fn create(world: &'static World, rng: &mut Rng, slot: usize) -> Option<OwnedEntry> {
    let class = rng.below(classes::CLASSES.len() as u64) as usize;
    let key = world.ledger.open(class)?;
    let behavior = classes::Behavior::draw(rng, world.run_state.is_stopped());
    let made = catch_unwind(AssertUnwindSafe(|| classes::make(class, world, key, behavior, rng)));
    let failed = match made {
        Ok(Ok(owner)) => {
            let handle = owner.handle();
            world.ledger.set_handle(key, handle);
            count(Stat::Creates);
            let counted = !matches!(handle, AnyHandle::Pair(_)) && rng.one_in(2);
            let entry = Entry { handle, key, counted, refuses: classes::refuses(class), slot };
            return Some(OwnedEntry { owner, entry });
        }
        Ok(Err(error)) if classes::may_fail(class, &error) => Ok(()),
        Ok(Err(error)) => Err(format!("an object could not be made: {error}")),
        Err(payload) if payload.is::<ExpectedPanic>() => {
            if classes::drops_here(class) {
                // Its panic came to this thread, whose value it still was; the library has not seen it.
                world.drop_panics.fetch_sub(1, Ordering::Relaxed);
            }
            Ok(())
        }
        Err(_) => Err("the making of an object panicked, and was not to".to_owned()),
    };
    world.expect(failed);
    count(Stat::CreatesFailed);
    world.ledger.begin_destroy(key);
    world.expect(world.ledger.end(key));
    None
}

/// Creates an object, shows it in a random slot, and destroys the one whose place it takes.
pub(super) fn publish(world: &'static World, rng: &mut Rng) {
    let slot = world.board.any_slot(rng);
    let Some(held) = create(world, rng, slot) else { return };
    if let Some(old) = world.board.publish(held) {
        end(world, rng, old);
    }
}

/// Destroys what a random slot's owner holds, if there is one.
pub(super) fn destroy_any(world: &'static World, rng: &mut Rng) {
    let slot = world.board.any_slot(rng);
    if let Some(held) = world.board.take(slot, None) {
        end(world, rng, held);
    }
}

/// Destroys this object, if its owner still lies in its vault.
pub(super) fn destroy(world: &'static World, rng: &mut Rng, entry: &Entry) {
    if let Some(held) = world.board.take(entry.slot, Some(entry.key)) {
        end(world, rng, held);
    }
}

/// Destroys an object. Returns how to learn that it is complete.
pub(super) fn end(world: &'static World, rng: &mut Rng, held: OwnedEntry) -> Option<Destruction> {
    let OwnedEntry { owner, entry } = held;
    let inside = in_operation();
    if entry.counted && !inside {
        audit(world, rng, &entry);
    }
    world.ledger.begin_destroy(entry.key);
    if world.is_broken(Break::EarlyMark) {
        world.ledger.mark_destroyed(entry.key);
        (0..8).for_each(|_| Caller { world, rng, depth: 0 }.glance(&entry));
        thread::yield_now();
    }
    if world.is_broken(Break::LoseObject) && entry.key.serial.is_multiple_of(BREAK_ONE_IN) {
        std::mem::forget(owner);
        return None;
    }
    let destruction = owner.destroy();
    world.expect(world.ledger.end(entry.key));
    count(if inside { Stat::DestroysInside } else { Stat::Destroys });
    // From here on it must err, on this VP too where it may have been called a moment ago.
    Caller { world, rng, depth: 0 }.glance(&entry);
    Some(destruction)
}

/// Waits until a destruction is complete; then everything of the object has been dropped. Outside every operation and
/// every hold, lest two wait for each other.
pub(super) fn await_end(world: &'static World, entry: &Entry, destruction: Destruction) {
    if let Err(error) = destruction.wait() {
        return world.run_state.fail(format!("waiting for a destruction outside every operation: {error}"));
    }
    count(Stat::EndsAwaited);
    if !destruction.is_complete() || !world.ledger.is_over(entry.key) {
        world.run_state.fail(format!(
            "the destruction of object #{} is complete, and not all of it was dropped",
            entry.key.serial
        ));
    }
}

/// When the callers are out, the object has exactly what they added.
fn audit(world: &'static World, rng: &mut Rng, entry: &Entry) {
    world.expect(world.ledger.close(entry.key));
    while !world.ledger.is_empty(entry.key) {
        if world.run_state.is_stopped() {
            return;
        }
        thread::sleep(Duration::from_micros(50));
    }
    let added = world.ledger.added(entry.key);
    for _ in 0..TRIES {
        let total = catch_unwind(AssertUnwindSafe(|| match entry.handle {
            AnyHandle::Probe(handle) => handle.try_total(),
            AnyHandle::Deep(handle) => handle.try_total(),
            AnyHandle::Pair(_) => Ok(added),
        }));
        match total {
            Ok(Ok(total)) if total == added => return count(Stat::Audits),
            Ok(Ok(total)) => {
                return world.run_state.fail(format!(
                    "object #{} ({:?}) has a total of {total}, and its callers have added {added}",
                    entry.key.serial, entry.handle
                ));
            }
            Ok(Err(error)) if matches!(error.reason(), CallErrorKind::Refused(_)) => {}
            Ok(Err(error)) => return world.run_state.fail(format!("its own owner's call erred: {error}")),
            Err(payload) if payload.is::<ExpectedPanic>() => {}
            Err(_) => return world.run_state.fail("total panicked, and was not to".to_owned()),
        }
        if rng.one_in(4) {
            thread::yield_now();
        }
    }
    world.run_state.fail(format!("object #{} did not answer in {TRIES} tries", entry.key.serial));
}
