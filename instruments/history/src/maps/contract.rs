//! The contract of a map under check: its trait, its maker, the load, and the result of a check.

use std::fmt;

use super::value::Held;

/// Decision of the function passed to [`ConcurrentMap::compute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<V> {
    /// Keep the entry.
    Keep,
    /// Insert or replace the value.
    Put(V),
    /// Remove the key, if present.
    Remove,
}

/// A map from numbers, used by many threads at once. Each method on one key takes effect atomically.
///
/// A method may call its function several times; the last call counts. If the function panics, the map is
/// unchanged.
pub trait ConcurrentMap<V: Held>: Send + Sync {
    /// Returns the value of the key.
    fn get(&self, key: u64) -> Option<V>;
    /// Sets the value of the key. Returns the old value.
    fn insert(&self, key: u64, value: V) -> Option<V>;
    /// Sets the value of the key. Returns whether the key was present.
    fn set(&self, key: u64, value: V) -> bool;
    /// Sets the value of the key if it is absent.
    ///
    /// # Errors
    ///
    /// The new value, if the key is present.
    fn try_insert(&self, key: u64, value: V) -> Result<(), V>;
    /// Returns the value of the key, or inserts a new one. Concurrent calls receive the same value.
    fn get_or_insert_with(&self, key: u64, make: &mut dyn FnMut() -> V) -> V;
    /// Removes the key. Returns its value.
    fn remove(&self, key: u64) -> Option<V>;
    /// Removes the key. Returns whether it was present.
    fn discard(&self, key: u64) -> bool;
    /// Removes the key if the function returns true for its value. Returns whether it was removed.
    fn remove_if(&self, key: u64, goes: &mut dyn FnMut(&V) -> bool) -> bool;
    /// Replaces the value of the key by the function's result. Returns whether the key is present.
    fn update(&self, key: u64, change: &mut dyn FnMut(&V) -> V) -> bool;
    /// Keeps, replaces or removes the entry, as the function decides.
    fn compute(&self, key: u64, step: &mut dyn FnMut(Option<&V>) -> Step<V>);
    /// Visits each key once that stays present during the call. Keys that come or go meanwhile may be
    /// visited.
    fn for_each(&self, visit: &mut dyn FnMut(u64, &V));
    /// Removes each entry that the function rejects, if its value is unchanged. Entries inserted meanwhile
    /// may stay.
    fn retain(&self, keep: &mut dyn FnMut(u64, &V) -> bool);
    /// Removes each entry that stays present during the call. Entries inserted meanwhile may stay.
    fn clear(&self);
    /// Number of entries; exact if no thread writes.
    fn len(&self) -> usize;
    /// Whether the map is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Reserves room for more entries, if the map supports it.
    fn reserve(&self, _more: usize) {}
    /// Releases unneeded room, if the map supports it.
    fn shrink(&self) {}
}

/// Creates the maps to check: small ones, so that they grow under the load.
pub trait Maker: Sync {
    /// Map type for values of type `V`.
    type Map<V: Held>: ConcurrentMap<V>;

    /// Creates an empty map.
    fn make<V: Held>(&self) -> Self::Map<V>;

    /// Waits until all replaced or removed values have been dropped, if the map defers drops.
    fn settle(&self) {}
}

/// Size of a check.
#[derive(Clone, Debug)]
pub struct Load {
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
    /// Keys, or rounds over them, per thread.
    pub many: u64,
    /// Rounds of a random history, with some calls by each thread in each.
    pub rounds: usize,
    /// Whether the map promises one order of all keys, and not only an order per key. With it, of two threads
    /// that each write a key and then read the other's, at least one sees the other's write. A map whose
    /// writes end with a plain store does not promise this.
    pub one_order: bool,
}

/// Environment variable with the seed, to repeat a failure.
pub const SEED: &str = "SQUALL_HISTORY_SEED";
/// Environment variable with the emulator that tests use to restart themselves.
pub const EMULATOR: &str = "SQUALL_TEST_RUNNER";

impl Default for Load {
    /// Size for one or two seconds for all checks of a map; smaller under Miri, sanitizers and emulators
    /// ([`EMULATOR`]). The seed comes from the environment, else it is 1.
    fn default() -> Load {
        let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        let (many, rounds) = if cfg!(miri) {
            (12, 2)
        } else if cfg!(any(squall_asan, squall_tsan)) || std::env::var_os(EMULATOR).is_some() {
            (250, 20)
        } else {
            (1_500, 120)
        };
        Load { seed, threads: if cfg!(miri) { 3 } else { 4 }, many, rounds, one_order: true }
    }
}

/// A failed check.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Name of the check.
    pub check: &'static str,
    /// Seed of the load.
    pub seed: u64,
    /// Description of the failure.
    pub what: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}\n(the same calls, if not the same schedule: {SEED}={})",
            self.check, self.what, self.seed
        )
    }
}

impl std::error::Error for Failed {}

/// All failed checks of one load.
#[derive(Clone, Debug)]
pub struct Failures(pub Vec<Failed>);

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|failed| writeln!(f, "{failed}\n"))
    }
}

impl std::error::Error for Failures {}

/// Result of a check; the error describes the failure.
pub type Outcome = Result<(), String>;

/// Sets all these keys.
pub(super) fn fill(
    map: &impl ConcurrentMap<u64>,
    keys: impl IntoIterator<Item = u64>,
    value: impl Fn(u64) -> u64,
) {
    for key in keys {
        map.set(key, value(key));
    }
}

/// Removes all these keys.
pub(super) fn empty(map: &impl ConcurrentMap<u64>, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        map.discard(key);
    }
}

/// Returns an error from a check unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(format!($($what)+));
        }
    };
}
pub(super) use ensure;
