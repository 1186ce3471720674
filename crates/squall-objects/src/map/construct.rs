//! Construction of values, one thread at a time for each key.

use squall_core::Handle;
use squall_parts::turns::{Turn, Turns};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::LazyLock;

use super::Map;

/// The turns of all maps, and the hasher of their keys.
static TURNS: LazyLock<(Turns, RandomState)> = LazyLock::new(Default::default);

/// Takes the turn to construct a value for this key of the map, after the turns of other threads. Empty if
/// the caller is in an operation, or has the turn already: then it must not wait for a thread that may wait
/// for it.
///
/// # Panics
/// In the child of a fork.
pub(super) fn take_turn<K, V, S>(map: Handle<dyn Map<K, V, S>>, key: &K) -> Option<Turn<'static>>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    if squall_rcu::in_operation() {
        return None;
    }
    let (turns, hasher) = &*TURNS;
    turns.take(hasher.hash_one((Handle::id(map), key)))
}
