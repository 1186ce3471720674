//! The owner's side: creation, publication, destruction, and the exact comparison at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use squall::rcu::in_operation;
use squall::{CallErrorKind, Destruction};

use super::board::{Entry, OwnedEntry};
use super::breaks::Break;
use super::caller::Caller;
use super::classes;
use super::counts::{Stat, count};
use super::interfaces::{AnyHandle, Probe};
use super::world::World;
use crate::run::Rng;
use crate::skeleton::expected_panic::ExpectedPanic;

/// The slot of an object outside all vaults.
pub(super) const NO_SLOT: usize = usize::MAX;
/// Maximum number of attempts to get a total. An attempt fails if a representative panics while it is made,
/// or if the root refuses.
const TRIES: u32 = 1_000;
/// With a planned break, one object in this many goes wrong.
const BREAK_ONE_IN: u64 = 64;

/// Creates an object of a random class, for a slot or for none. Returns `None` if the creation failed as
/// planned, or if the ledger is full.
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
        Ok(Err(error)) => Err(format!("the creation of an object failed: {error}")),
        Err(payload) if payload.is::<ExpectedPanic>() => {
            if classes::drops_here(class) {
                // The panic reached this thread, which still owned the value; the library has not counted it.
                world.drop_panics.fetch_sub(1, Ordering::Relaxed);
            }
            Ok(())
        }
        Err(_) => Err("the creation of an object panicked without a planned panic".to_owned()),
    };
    world.expect(failed);
    count(Stat::CreatesFailed);
    world.ledger.begin_destroy(key);
    world.expect(world.ledger.end(key));
    None
}

/// Creates an object, shows it in a random slot, and destroys the previous object of that slot.
pub(super) fn publish(world: &'static World, rng: &mut Rng) {
    let slot = world.board.any_slot(rng);
    let Some(held) = create(world, rng, slot) else { return };
    if let Some(old) = world.board.publish(held) {
        end(world, rng, old);
    }
}

/// Destroys the object of a random slot's vault, if any.
pub(super) fn destroy_any(world: &'static World, rng: &mut Rng) {
    let slot = world.board.any_slot(rng);
    if let Some(held) = world.board.take(slot, None) {
        end(world, rng, held);
    }
}

/// Destroys this object, if its owner is still in its vault.
pub(super) fn destroy(world: &'static World, rng: &mut Rng, entry: &Entry) {
    if let Some(held) = world.board.take(entry.slot, Some(entry.key)) {
        end(world, rng, held);
    }
}

/// Destroys an object. Returns its destruction, to await its completion.
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
    // The call must fail from now on, also on this VP, which may have called the object just before.
    Caller { world, rng, depth: 0 }.glance(&entry);
    Some(destruction)
}

/// Waits until a destruction is complete, and checks that all parts were dropped. Called outside every
/// operation and hold, so that two threads do not wait for each other.
pub(super) fn await_end(world: &'static World, entry: &Entry, destruction: Destruction) {
    if let Err(error) = destruction.wait() {
        return world
            .run_state
            .fail(format!("waiting for a destruction outside every operation failed: {error}"));
    }
    count(Stat::EndsAwaited);
    if !destruction.is_complete() || !world.ledger.is_over(entry.key) {
        world.run_state.fail(format!(
            "the destruction of object #{} is complete, but not all its parts were dropped",
            entry.key.serial
        ));
    }
}

/// Drains the callers and checks that the total equals their additions.
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
                    "object #{} ({:?}) has a total of {total}, but its callers have added {added}",
                    entry.key.serial, entry.handle
                ));
            }
            Ok(Err(error)) if matches!(error.reason(), CallErrorKind::Refused(_)) => {}
            Ok(Err(error)) => {
                return world.run_state.fail(format!("a call of total by the owner failed: {error}"));
            }
            Err(payload) if payload.is::<ExpectedPanic>() => {}
            Err(_) => {
                return world
                    .run_state
                    .fail("a call of total by the owner panicked without a planned panic".to_owned());
            }
        }
        if rng.one_in(4) {
            thread::yield_now();
        }
    }
    world.run_state.fail(format!("object #{} did not answer in {TRIES} tries", entry.key.serial));
}
