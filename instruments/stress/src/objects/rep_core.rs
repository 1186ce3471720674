//! The common part of all representatives: the object they belong to, and whether they are alive.
//!
//! - I1. `alive` is `ALIVE` mixed with the object's number while the representative lives, and `DEAD`
//!   afterwards. A call that finds another value runs in freed memory.
//! - I2. `inside` counts the calls inside the representative. A drop that finds one came too early.
//!
//! `look` and `add` do not count their calls and write no shared data: an atomic addition is a fence and
//! would hide a missing one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::breaks::Break;
use super::interfaces::{Kind, Reply};
use super::ledger::ObjectKey;
use super::world::World;
use crate::skeleton::delay::spin;

const ALIVE: u64 = 0xA11F_E000_A11F_E000;
const DEAD: u64 = 0xDEAD_DEAD_DEAD_DEAD;
/// With a planned break, one call or drop in this many goes wrong.
const BREAK_ONE_IN: u64 = 64;

pub(super) struct RepCore {
    pub(super) world: &'static World,
    pub(super) key: ObjectKey,
    number: u64,
    kind: Kind,
    alive: AtomicU64,
    inside: AtomicU32,
}

impl RepCore {
    /// Records the representative in the ledger.
    pub(super) fn new(world: &'static World, key: ObjectKey, kind: Kind) -> RepCore {
        let number = world.ledger.rep_made(key).unwrap_or_else(|what| {
            world.run_state.fail(what);
            0
        });
        let alive = AtomicU64::new(ALIVE ^ key.serial);
        RepCore { world, key, number, kind, alive, inside: AtomicU32::new(0) }
    }

    pub(super) fn reply(&self) -> Reply {
        Reply { serial: self.key.serial, kind: self.kind }
    }

    /// Records a violation if the representative is not alive (I1).
    pub(super) fn check(&self, doing: &str) {
        let alive = self.alive.load(Ordering::Relaxed);
        if alive != ALIVE ^ self.key.serial {
            let state = if alive == DEAD { "was dropped" } else { "was overwritten" };
            let RepCore { key, number, .. } = self;
            self.world.run_state.fail(format!(
                "{doing}: representative {number} of object #{} {state} ({alive:#x})",
                key.serial
            ));
        }
    }

    /// Checks at the begin and after `spins` spins, and writes no data.
    pub(super) fn look(&self, spins: u64) -> Reply {
        self.check("a call that begins");
        spin(spins);
        self.check("a call that ends");
        self.reply()
    }

    /// Enters a call that may take long.
    pub(super) fn enter(&self) -> Inside<'_> {
        self.check("a call that enters");
        self.inside.fetch_add(1, Ordering::Relaxed);
        if self.world.is_broken(Break::EarlyDeath) && self.key.serial.is_multiple_of(BREAK_ONE_IN) {
            self.alive.store(DEAD, Ordering::Relaxed);
        }
        Inside(self)
    }
}

/// A call inside the representative.
pub(super) struct Inside<'a>(&'a RepCore);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let Inside(core) = self;
        core.check("a call that leaves");
        if core.world.is_broken(Break::StayInside) && core.key.serial.is_multiple_of(BREAK_ONE_IN) {
            return;
        }
        // Relaxed: the library must make this visible to the drop.
        core.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for RepCore {
    fn drop(&mut self) {
        self.check("a drop");
        let inside = *self.inside.get_mut();
        if inside != 0 {
            let RepCore { key, number, .. } = self;
            self.world.run_state.fail(format!(
                "representative {number} of object #{} was dropped while {inside} calls were inside it",
                key.serial
            ));
        }
        *self.alive.get_mut() = DEAD;
        let RepCore { world, key, number, .. } = *self;
        let chosen = key.serial.is_multiple_of(BREAK_ONE_IN);
        if world.is_broken(Break::LoseDrop) && chosen {
            return;
        }
        world.expect(world.ledger.rep_dropped(key, number));
        if world.is_broken(Break::DoubleDrop) && chosen {
            world.expect(world.ledger.rep_dropped(key, number));
        }
    }
}
