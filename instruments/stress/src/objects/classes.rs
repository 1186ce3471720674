//! The classes of the torture: shared and distributed, eager and lazy, roots that answer misses in their own ways, and
//! what the parts of an object do besides, while they are made and dropped.

use squall::{CallError, ClusterSize, CreateError, Root, WellKnown};

use super::board::Owner;
use super::interfaces::{Kind, Probe, Reply};
use super::ledger::ObjectKey;
use super::reps::{Eager, Fickle, OwnCleanup, Redirecting, Single, Spread, SpreadDeep, SpreadPair, RootCore};
use super::world::World;
use crate::run::Rng;

/// The classes by name; `make` makes them by index.
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
/// One object at a time, in a place that all know.
static KNOWN: WellKnown<dyn Probe> = WellKnown::new(400);

/// Whether the class's root refuses calls now and then.
pub(super) fn refuses(class: usize) -> bool {
    class == FICKLE
}

/// Makes an object. What it is made of has been entered in the ledger, also if this fails or panics.
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

/// Whether this is how the making of an object of the class may fail.
pub(super) fn may_fail(class: usize, error: &CreateError) -> bool {
    class == WELL_KNOWN && matches!(error, CreateError::Taken(_))
}

/// Whether a planned panic out of the making of such an object is that of the drop of what it was to be made of.
pub(super) fn drops_here(class: usize) -> bool {
    class == WELL_KNOWN
}

/// Whoever is there now, or will be: a call through it is answered or errs.
pub(super) fn call_known() -> Result<Reply, CallError> {
    KNOWN.handle().try_look(0)
}

/// What an object does besides, all its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Behavior {
    pub(super) on_make: OnMake,
    pub(super) on_drop: OnDrop,
}

/// What the making of a representative does besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnMake {
    Nothing,
    /// Sometimes panics.
    Panics,
    /// Takes its time, so that several are made for one cluster.
    Dawdles,
    /// Calls other objects.
    Calls,
}

/// What the drops of an object's parts do besides.
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
    /// Most objects have none. When the torture ends, none has: what a drop creates would be dropped in turn.
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
