//! The two kinds of maps under stress, behind one type: maps with tables of their own, and cached maps.

use std::hash::RandomState;
use std::time::Duration;

use squall::objects::cached::{self, CachedMap, CachedMapExt as _, Form};
use squall::objects::map::{self, Compute, Computed, Map, MapExt as _, OwnedMap};
use squall::swap::{Replacement, Swap, SwapError, SwapReport};
use squall::{ClusterSize, Handle, Id, Owned, Vp, machine};

use super::token::Token;
use crate::run::Rng;

/// One map in this many is adaptive; the others have no policy.
const ADAPTIVE_ONE_IN: u64 = 3;
/// One map in this many is cached.
const CACHED_ONE_IN: u64 = 4;
/// Number of parts of a partitioned map.
const PARTS: usize = 3;
/// Cluster sizes of maps with several representatives.
const SIZES: [ClusterSize; 3] = [ClusterSize::Cpu, ClusterSize::Core, ClusterSize::Machine];
/// Maximum limit of a cluster's cached entries: fewer than there are keys.
const KEPT: u64 = 64;
/// Maximum number of lookups until a thin representative is full.
const LOOKUPS: u64 = 400;

/// A handle of a map of either kind.
#[derive(Clone, Copy)]
pub(super) enum AnyMap {
    Uncached(Handle<dyn Map<u64, Token, RandomState>>),
    Cached(Handle<dyn CachedMap<u64, Token, RandomState>>),
}

/// An owned map of either kind.
pub(super) enum AnyOwnedMap {
    Uncached(OwnedMap<u64, Token>),
    Cached(cached::OwnedCachedMap<u64, Token>),
}

/// Makes a map of a random kind and form. Returns whether it is adaptive.
pub(super) fn any(rng: &mut Rng) -> (AnyOwnedMap, bool) {
    if rng.one_in(CACHED_ONE_IN) {
        return (AnyOwnedMap::Cached(cached::map(any_form(rng))), false);
    }
    if rng.one_in(ADAPTIVE_ONE_IN) {
        return (AnyOwnedMap::Uncached(map::adaptive()), true);
    }
    let map = match rng.below(4) {
        0 => map::shared(),
        1 => map::locked(),
        2 => map::partitioned(PARTS, home),
        _ => map::replicated(any_size(rng)),
    };
    (AnyOwnedMap::Uncached(map), false)
}

/// Returns the part of a key.
fn home(hash: u64) -> usize {
    (hash >> 1) as usize % PARTS
}

fn any_size(rng: &mut Rng) -> ClusterSize {
    SIZES[rng.below(SIZES.len() as u64) as usize]
}

/// Returns a random form of a cached map.
fn any_form(rng: &mut Rng) -> Form {
    let size = any_size(rng);
    let form = match rng.below(5) {
        0 => Form::shared(),
        1 => Form::on(size, [Vp::new(rng.below(machine().vp_limit() as u64) as u32)]),
        2 => Form::where_threads_are(size, 1 + rng.below(LOOKUPS) as u32),
        _ => Form::distributed(size),
    };
    let form = if rng.one_in(2) { form.updated() } else { form };
    if rng.one_in(3) { form.keeping(1 + rng.below(KEPT) as usize) } else { form }
}

fn any_uncached(rng: &mut Rng) -> Replacement<dyn Map<u64, Token, RandomState>> {
    match rng.below(4) {
        0 => map::new_shared(),
        1 => map::new_locked(),
        2 => map::new_partitioned(PARTS, home, any_size(rng)),
        _ => map::new_replicated(any_size(rng)),
    }
}

impl AnyOwnedMap {
    pub(super) fn handle(&self) -> AnyMap {
        match self {
            AnyOwnedMap::Uncached(map) => AnyMap::Uncached(map.handle()),
            AnyOwnedMap::Cached(map) => AnyMap::Cached(map.handle()),
        }
    }

    pub(super) fn destroy(self) {
        match self {
            AnyOwnedMap::Uncached(map) => drop(Owned::destroy(map.into_owned())),
            AnyOwnedMap::Cached(map) => drop(Owned::destroy(map.into_owned())),
        }
    }
}

/// Runs an expression on either kind.
macro_rules! either {
    ($self:expr, $map:ident => $do:expr) => {
        match $self {
            AnyMap::Uncached($map) => $do,
            AnyMap::Cached($map) => $do,
        }
    };
}

impl AnyMap {
    pub(super) fn id(self) -> Id {
        either!(self, map => Handle::id(map))
    }

    /// Swaps the map to another form of its kind.
    pub(super) fn swap(self, patience: Duration, rng: &mut Rng) -> Result<SwapReport, SwapError> {
        match self {
            AnyMap::Uncached(map) => Swap::new(map).drain_timeout(patience).run(any_uncached(rng)),
            AnyMap::Cached(map) => Swap::new(map).drain_timeout(patience).run(cached::new_map(any_form(rng))),
        }
    }

    /// Returns whether the cluster size was changed.
    pub(super) fn set_cluster_size(self, size: ClusterSize) -> bool {
        either!(self, map => map.set_cluster_size(size).is_ok())
    }

    pub(super) fn read<R>(self, key: &u64, f: impl FnOnce(&Token) -> R) -> Option<R> {
        either!(self, map => map.with(key, f))
    }

    pub(super) fn set(self, key: u64, value: Token) -> bool {
        either!(self, map => map.set(key, value))
    }

    pub(super) fn insert(self, key: u64, value: Token) -> Option<Token> {
        either!(self, map => map.insert(key, value))
    }

    pub(super) fn try_insert(self, key: u64, value: Token) -> Result<(), (u64, Token)> {
        either!(self, map => map.try_insert(key, value))
    }

    pub(super) fn get_or_insert_with(self, key: u64, value: impl FnOnce() -> Token) -> Token {
        either!(self, map => map.get_or_insert_with(key, value))
    }

    pub(super) fn update(self, key: &u64, f: impl FnMut(&Token) -> Token) -> bool {
        either!(self, map => map.update(key, f))
    }

    pub(super) fn compute(self, key: u64, f: impl FnMut(Option<&Token>) -> Compute<Token>) -> Computed {
        either!(self, map => map.compute(key, f))
    }

    pub(super) fn remove(self, key: &u64) -> Option<Token> {
        either!(self, map => map.remove(key))
    }

    pub(super) fn discard(self, key: &u64) -> bool {
        either!(self, map => map.delete(key))
    }

    pub(super) fn remove_if(self, key: &u64, f: impl FnMut(&Token) -> bool) -> bool {
        either!(self, map => map.remove_if(key, f))
    }

    pub(super) fn retain(self, f: impl FnMut(&u64, &Token) -> bool) {
        either!(self, map => map.retain(f));
    }

    pub(super) fn for_each(self, f: impl FnMut(&u64, &Token)) {
        either!(self, map => map.for_each(f));
    }

    pub(super) fn len(self) -> usize {
        either!(self, map => map.len())
    }

    /// Reserves room. A cached map cannot reserve; its form is read instead.
    pub(super) fn try_reserve(self, more: usize) -> bool {
        match self {
            AnyMap::Uncached(map) => map.try_reserve(more),
            AnyMap::Cached(map) => map.form().most() > 0,
        }
    }

    pub(super) fn shrink_to_fit(self) {
        match self {
            AnyMap::Uncached(map) => map.shrink_to_fit(),
            AnyMap::Cached(map) => drop(map.sensors()),
        }
    }
}
