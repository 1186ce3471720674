//! What drops do besides dropping: call, create, destroy and panic.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::board::Entry;
use super::breaks::Break;
use super::caller::Caller;
use super::classes::{OnDrop, Whims};
use super::ledger::Life;
use super::owner::{self, NO_SLOT};
use super::parts::Stem;
use super::tally::{What, count};
use super::world::World;
use crate::Rng;
use crate::planned::panic_as_planned;

/// Of so many drops that are to panic one does: a panic's unwinding is slow.
const PANIC_ONE_IN: u64 = 4;
/// Of so many roots one goes first where the torture is broken on purpose.
const BREAK_ONE_IN: u64 = 64;

thread_local! {
    /// Drops that are under way on this thread, one inside the other.
    static NESTED: Cell<u32> = const { Cell::new(0) };
}

/// A root is dropped.
pub(super) fn root(stem: &Stem) {
    let (world, life) = (stem.world, stem.life);
    if world.is_broken(Break::RootFirst) && life.serial.is_multiple_of(BREAK_ONE_IN) {
        // As if a representative were left.
        world.judge(world.ledger.rep_made(life).map(|_| ()));
    }
    world.judge(world.ledger.root_dropped(life));
}

/// Called last in the drop of a part of an object.
pub(super) fn busy(world: &'static World, life: Life, whims: Whims) {
    // A drop that ends others' lives and is called from it in turn goes no deeper.
    if whims.on_drop == OnDrop::Nothing || world.trial.is_stopped() || NESTED.get() > 1 {
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
    let mut rng = Rng::new(life.serial, u64::from(NESTED.get()));
    match whims.on_drop {
        OnDrop::Nothing => {}
        OnDrop::Panic if rng.one_in(PANIC_ONE_IN) && !std::thread::panicking() => {
            drop(leave);
            world.drop_panics.fetch_add(1, Ordering::Relaxed);
            panic_as_planned();
        }
        OnDrop::Panic => {}
        OnDrop::Call => {
            let mut caller = Caller { world, rng: &mut rng, depth: 1 };
            if let Some(face) = world.ledger.face(life) {
                // Dead by now; or alive, where this is the loser of two that were made for one cluster.
                caller.call(&Entry { face, life, counted: true, refuses: true, slot: NO_SLOT });
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
    count(What::DropsBusy);
    // Whoever drops may be a thread that is not the torture's and never hands in.
    world.tally.hand_in();
}
