//! The classes of objects: shared and distributed, eager and lazy, and roots that answer misses in their own
//! ways. Also the side actions of their parts at creation and drop.

use squall::{CallError, ClusterSize, CreateError, Root, WellKnown};

use super::board::Owner;
use super::interfaces::{Kind, Probe, Reply};
use super::ledger::ObjectKey;
use super::reps::{Eager, Fickle, OwnCleanup, Redirecting, RootCore, Single, Spread, SpreadDeep, SpreadPair};
use super::world::World;
use crate::run::Rng;

/// Names of the classes, by index.
pub(super) const CLASSES: &[&str] = &[
    "shared",
    "shared deep",
    "shared pair",
    "spread",
    "spread deep",
    "spread pair",
    "eager",
    "redirecting",
    "fickle",
    "own cleanup",
    "well-known",
];
const FICKLE: usize = 8;
const WELL_KNOWN: usize = 10;
/// A well-known object, of which at most one exists.
static KNOWN: WellKnown<dyn Probe> = WellKnown::new(400);

/// Returns whether the root of the class sometimes refuses calls.
pub(super) fn refuses(class: usize) -> bool {
    class == FICKLE
}

/// Makes an object. Its parts are recorded in the ledger, also if this fails or panics.
pub(super) fn make(
    class: usize,
    world: &'static World,
    key: ObjectKey,
    behavior: Behavior,
    rng: &mut Rng,
) -> Result<Owner, CreateError> {
    let single = |kind| Single::new(world, key, behavior, kind);
    let size = |rng: &mut Rng| match rng.below(7) {
        level @ 0..5 => ClusterSize::LEVELS[level as usize],
        _ => ClusterSize::fixed(1 + rng.below(9) as u32),
    };
    let root_core = || RootCore::new(world, key, behavior);
    Ok(match class {
        0 => Owner::Probe(squall::try_shared(single(Kind::Probe))?),
        1 => Owner::Deep(squall::try_shared(single(Kind::Deep))?),
        2 => Owner::Pair(squall::try_shared(single(Kind::Pair))?),
        3 => Owner::Probe(Spread(root_core()).try_create(size(rng))?),
        4 => Owner::Deep(SpreadDeep(root_core()).try_create(size(rng))?),
        5 => Owner::Pair(SpreadPair(root_core()).try_create(size(rng))?),
        6 => Owner::Probe(Eager(root_core()).try_create(size(rng))?),
        7 => Owner::Probe(Redirecting(root_core()).try_create(size(rng))?),
        FICKLE => Owner::Probe(Fickle(root_core()).try_create(size(rng))?),
        WELL_KNOWN if rng.one_in(2) => Owner::Probe(KNOWN.install_shared(single(Kind::Probe))?),
        WELL_KNOWN => Owner::Probe(KNOWN.install(Spread(root_core()), size(rng))?),
        _ => Owner::Probe(OwnCleanup(root_core()).try_create(size(rng))?),
    })
}

/// Returns whether creating an object of the class may fail with this error.
pub(super) fn may_fail(class: usize, error: &CreateError) -> bool {
    class == WELL_KNOWN && matches!(error, CreateError::Taken(_))
}

/// Returns whether a planned panic during creation comes from the drop of the value in this thread.
pub(super) fn drops_here(class: usize) -> bool {
    class == WELL_KNOWN
}

/// Calls the well-known object: it answers, or the call fails.
pub(super) fn call_known() -> Result<Reply, CallError> {
    KNOWN.handle().try_look(0)
}

/// The side actions of an object's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Behavior {
    pub(super) on_make: OnMake,
    pub(super) on_drop: OnDrop,
}

/// The side action when a representative is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnMake {
    Nothing,
    /// Sometimes panics.
    Panics,
    /// Delays, so that several are made for one cluster.
    Dawdles,
    /// Calls other objects.
    Calls,
}

/// The side action when a part is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnDrop {
    Nothing,
    Panic,
    /// Calls other objects, and the object itself.
    Call,
    /// Creates, calls and destroys another object.
    Create,
    /// Destroys another object.
    Destroy,
}

impl Behavior {
    /// Draws the side actions; mostly none. While the run ends there are none, because created objects would
    /// be dropped in turn.
    pub(super) fn draw(rng: &mut Rng, ends: bool) -> Behavior {
        let none = Behavior { on_make: OnMake::Nothing, on_drop: OnDrop::Nothing };
        if ends {
            return none;
        }
        let on_make = match rng.below(16) {
            0 => OnMake::Panics,
            1 => OnMake::Dawdles,
            2 => OnMake::Calls,
            _ => OnMake::Nothing,
        };
        let on_drop = match rng.below(32) {
            0 | 1 => OnDrop::Panic,
            2..5 => OnDrop::Call,
            5 => OnDrop::Create,
            6 => OnDrop::Destroy,
            _ => OnDrop::Nothing,
        };
        Behavior { on_make, on_drop }
    }
}
