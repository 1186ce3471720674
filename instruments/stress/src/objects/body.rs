//! What every representative of the torture carries: whose it is, and whether it is still alive.
//!
//! - I1. `alive` is `ALIVE` mixed with the object's number from the making to the drop, and `DEAD` afterwards. A call that
//!   finds anything else is in memory that was given back.
//! - I2. `inside` counts the calls that are in the representative. A drop that finds one has come too early.
//!
//! `look` and `add` count no call and write nothing that others write: an atomic addition is a fence, and would hide a
//! missing one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::breaks::Break;
use super::interfaces::{Kind, Told};
use super::ledger::Life;
use super::world::World;
use crate::delay::spin;

const ALIVE: u64 = 0xA11F_E000_A11F_E000;
const DEAD: u64 = 0xDEAD_DEAD_DEAD_DEAD;
/// Of so many calls or drops one goes wrong where the torture is broken on purpose.
const BREAK_ONE_IN: u64 = 64;

pub(super) struct Body {
    pub(super) world: &'static World,
    pub(super) life: Life,
    number: u64,
    kind: Kind,
    alive: AtomicU64,
    inside: AtomicU32,
}

impl Body {
    /// Enters the representative in the ledger.
    pub(super) fn new(world: &'static World, life: Life, kind: Kind) -> Body {
        let number = world.ledger.rep_made(life).unwrap_or_else(|what| {
            world.trial.accuse(what);
            0
        });
        let alive = AtomicU64::new(ALIVE ^ life.serial);
        Body { world, life, number, kind, alive, inside: AtomicU32::new(0) }
    }

    pub(super) fn told(&self) -> Told {
        Told { serial: self.life.serial, kind: self.kind }
    }

    /// Accuses if this is no longer alive (I1).
    pub(super) fn check(&self, doing: &str) {
        let alive = self.alive.load(Ordering::Relaxed);
        if alive != ALIVE ^ self.life.serial {
            let state = if alive == DEAD { "was dropped" } else { "is other memory by now" };
            let Body { life, number, .. } = self;
            self.world.trial.accuse(format!(
                "{doing}: representative {number} of object #{} {state} ({alive:#x})",
                life.serial
            ));
        }
    }

    /// Looks, for so long, and writes nothing.
    pub(super) fn look(&self, spins: u64) -> Told {
        self.check("a call that begins");
        spin(spins);
        self.check("a call that ends");
        self.told()
    }

    /// A call that may take long.
    pub(super) fn enter(&self) -> Inside<'_> {
        self.check("a call that enters");
        self.inside.fetch_add(1, Ordering::Relaxed);
        if self.world.is_broken(Break::EarlyDeath) && self.life.serial.is_multiple_of(BREAK_ONE_IN) {
            self.alive.store(DEAD, Ordering::Relaxed);
        }
        Inside(self)
    }
}

/// A call that is inside.
pub(super) struct Inside<'a>(&'a Body);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let Inside(body) = self;
        body.check("a call that leaves");
        if body.world.is_broken(Break::StayInside) && body.life.serial.is_multiple_of(BREAK_ONE_IN) {
            return;
        }
        // Relaxed: that the drop sees it is for the library to bring about.
        body.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.check("a drop");
        let inside = *self.inside.get_mut();
        if inside != 0 {
            let Body { life, number, .. } = self;
            self.world.trial.accuse(format!(
                "representative {number} of object #{} was dropped while {inside} calls were inside it",
                life.serial
            ));
        }
        *self.alive.get_mut() = DEAD;
        let Body { world, life, number, .. } = *self;
        let chosen = life.serial.is_multiple_of(BREAK_ONE_IN);
        if world.is_broken(Break::LoseDrop) && chosen {
            return;
        }
        world.judge(world.ledger.rep_dropped(life, number));
        if world.is_broken(Break::DoubleDrop) && chosen {
            world.judge(world.ledger.rep_dropped(life, number));
        }
    }
}
