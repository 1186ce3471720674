//! Construction of values, one thread at a time for each key.

use squall_core::Handle;
use squall_parts::turns::Turns;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::LazyLock;

use super::Map;

/// The turns of all maps, and the hasher of their keys.
static TURNS: LazyLock<(Turns, RandomState)> = LazyLock::new(Default::default);

/// Calls `f` in the turn of this key of the map. In an operation, and in a turn of the same key, it does not
/// wait: there the thread that has the turn could wait for this one.
#[track_caller]
pub(super) fn with_turn<K, V, S, R>(map: Handle<dyn Map<K, V, S>>, key: K, f: impl FnOnce(K) -> R) -> R
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let (turns, hasher) = &*TURNS;
    let hash = hasher.hash_one((Handle::id(map), &key));
    let _turn = if squall_rcu::in_operation() { None } else { turns.take(hash) };
    f(key)
}
