//! Side actions of drops: calls, creations, destructions and panics.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::board::Entry;
use super::breaks::Break;
use super::caller::Caller;
use super::classes::{Behavior, OnDrop};
use super::counts::{Stat, count};
use super::ledger::ObjectKey;
use super::owner::{self, NO_SLOT};
use super::reps::RootCore;
use super::world::World;
use crate::run::Rng;
use crate::skeleton::expected_panic::raise_expected_panic;

/// One drop in this many of those that may panic does so, because unwinding is slow.
const PANIC_ONE_IN: u64 = 4;
/// With the planned break, one root in this many is dropped first.
const BREAK_ONE_IN: u64 = 64;

thread_local! {
    /// Nesting depth of drops on this thread.
    static NESTED: Cell<u32> = const { Cell::new(0) };
}

/// Records the drop of a root.
pub(super) fn root(root_core: &RootCore) {
    let (world, key) = (root_core.world, root_core.key);
    if world.is_broken(Break::RootFirst) && key.serial.is_multiple_of(BREAK_ONE_IN) {
        // Pretends that a representative remains.
        world.expect(world.ledger.rep_made(key).map(|_| ()));
    }
    world.expect(world.ledger.root_dropped(key));
}

/// Runs the side action of a drop. Called last in the drop of a part.
pub(super) fn busy(world: &'static World, key: ObjectKey, behavior: Behavior) {
    // Limits the nesting, because a drop may destroy objects whose drops do the same.
    if behavior.on_drop == OnDrop::Nothing || world.run_state.is_stopped() || NESTED.get() > 1 {
        return;
    }
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            NESTED.set(NESTED.get() - 1);
        }
    }
    NESTED.set(NESTED.get() + 1);
    let leave = Leave;
    let mut rng = Rng::new(key.serial, u64::from(NESTED.get()));
    match behavior.on_drop {
        OnDrop::Nothing => {}
        OnDrop::Panic if rng.one_in(PANIC_ONE_IN) && !std::thread::panicking() => {
            drop(leave);
            world.drop_panics.fetch_add(1, Ordering::Relaxed);
            raise_expected_panic();
        }
        OnDrop::Panic => {}
        OnDrop::Call => {
            let mut caller = Caller { world, rng: &mut rng, depth: 1 };
            if let Some(handle) = world.ledger.handle(key) {
                // The object is gone. It is alive if this is the surplus representative of two made for one
                // cluster.
                caller.call(&Entry { handle, key, counted: true, refuses: true, slot: NO_SLOT });
            }
            caller.call_any();
        }
        OnDrop::Create => {
            if let Some(held) = owner::create(world, &mut rng, NO_SLOT) {
                Caller { world, rng: &mut rng, depth: 0 }.call(&held.entry);
                owner::end(world, &mut rng, held);
            }
        }
        OnDrop::Destroy => owner::destroy_any(world, &mut rng),
    }
    count(Stat::DropsBusy);
    // The dropping thread may be foreign to the stress and would never flush its counts.
    world.counts.flush();
}
