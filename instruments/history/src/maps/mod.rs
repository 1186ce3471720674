//! What every concurrent map of ours must pass, and any other may be put through: one trait, and checks that are generic over it.
//!
//! Idea: what is checked is said once, for numbers as keys, and each implementation, in each of its states, is led through all of it by a
//! [`Maker`]. A check is worth something if a map that is wrong in its way fails it: `tests/mutants.rs` has such a map for each.
//!
//! - I1. What a check draws at random comes from the seed of its [`Load`]; what the scheduler does, does not.
//! - I2. A check decides by counts and orders, never by a time. One that does not end has found a thread that waits for ever.
//! - I3. A thread of a check that panics is a failure, not an end: its message is what the check returns.
//!
//! What the test suites of papaya, flurry, scc and libcuckoo check of several threads is here in our words: ranges of each thread's own,
//! the same keys for all, sums that are moved about, updates while the table grows, iteration and retention against insertion, counted
//! drops. What they check of one thread is the comparison with std's map ([`acts`]).

pub mod acts;
pub mod crowd;
mod drops;
mod growth;
mod keys;
mod panics;
pub mod random;
pub mod value;
mod whole;

use std::fmt;

pub use acts::Act;
pub use value::{Counted, Held, Ledger, Value, Wide};

/// What [`ConcurrentMap::compute`]'s function wants to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<V> {
    /// Nothing.
    Keep,
    /// This is the key's value.
    Put(V),
    /// The key goes, if it is there.
    Remove,
}

/// A map from numbers that many threads use at once. Each method but those of the whole map takes effect at one moment.
///
/// Functions that are handed in may be called again; the last call is the one that counts. They may panic, and have then changed
/// nothing.
pub trait ConcurrentMap<V: Held>: Send + Sync {
    /// The key's value.
    fn get(&self, key: u64) -> Option<V>;
    /// Sets the key's value; returns the old one.
    fn insert(&self, key: u64, value: V) -> Option<V>;
    /// Sets the key's value, and says whether there was another.
    fn set(&self, key: u64, value: V) -> bool;
    /// Sets the key's value if it has none.
    ///
    /// # Errors
    ///
    /// It has one: what was to be put comes back.
    fn try_insert(&self, key: u64, value: V) -> Result<(), V>;
    /// The key's value; if it has none, it is made, and all who come at once get the same.
    fn get_or_insert_with(&self, key: u64, make: &mut dyn FnMut() -> V) -> V;
    /// Takes the key out; returns its value.
    fn remove(&self, key: u64) -> Option<V>;
    /// Takes the key out, and says whether it was there.
    fn discard(&self, key: u64) -> bool;
    /// Takes the key out if the function says so of the value that goes; says whether it did.
    fn remove_if(&self, key: u64, goes: &mut dyn FnMut(&V) -> bool) -> bool;
    /// Replaces the key's value by what the function makes of it, and says whether there is one.
    fn update(&self, key: u64, change: &mut dyn FnMut(&V) -> V) -> bool;
    /// Does with the key what the function says.
    fn compute(&self, key: u64, step: &mut dyn FnMut(Option<&V>) -> Step<V>);
    /// Visits each key that is there all the time once; those that come or go meanwhile, perhaps.
    fn for_each(&self, visit: &mut dyn FnMut(u64, &V));
    /// Takes out the entries of which the function says no, if they are still what it was told; others that come meanwhile, perhaps.
    fn retain(&self, keep: &mut dyn FnMut(u64, &V) -> bool);
    /// Takes out all that is there from the beginning to the end; others that come meanwhile, perhaps.
    fn clear(&self);
    /// How many entries there are: exactly if nobody writes.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Makes room for so many more, if the map can.
    fn reserve(&self, _more: usize) {}
    /// Gives up room that is not needed, if the map can.
    fn shrink(&self) {}
}

/// Makes the maps that are checked: small ones, so that they grow under the load.
pub trait Maker: Sync {
    /// The map of values of a type.
    type Map<V: Held>: ConcurrentMap<V>;

    /// An empty map.
    fn make<V: Held>(&self) -> Self::Map<V>;

    /// Comes back when all that was replaced or removed before has been dropped, where the map does that later.
    fn settle(&self) {}
}

/// How much a check does.
#[derive(Clone, Debug)]
pub struct Load {
    /// From what all that is drawn at random is drawn.
    pub seed: u64,
    /// Threads of a check.
    pub threads: usize,
    /// Keys, or rounds over them, of each thread.
    pub many: u64,
    /// Rounds of a random history, of some calls by each thread.
    pub rounds: usize,
    /// Whether the map promises one order of all keys, and not one of each key only: who has put something and then looks at another
    /// key finds all that was put before by those who then look at his. A map whose writes end with a plain store does not keep it.
    pub one_order: bool,
}

/// The variable from which a seed is taken, to repeat what failed.
pub const SEED: &str = "SQUALL_HISTORY_SEED";
/// The variable that names the emulator by which tests start themselves again.
pub const EMULATOR: &str = "SQUALL_TEST_RUNNER";

impl Default for Load {
    /// A second or two for all checks of a map; less under Miri and the sanitizers, and where an emulator runs the tests ([`EMULATOR`]). The seed is
    /// that of the environment, or 1.
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

/// A check that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Which.
    pub check: &'static str,
    /// Under which seed.
    pub seed: u64,
    /// What was wrong.
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

/// All checks that failed, of one load.
#[derive(Clone, Debug)]
pub struct Failures(pub Vec<Failed>);

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|failed| writeln!(f, "{failed}\n"))
    }
}

impl std::error::Error for Failures {}

/// What a check returns: what was wrong, in words.
pub type Outcome = Result<(), String>;

/// A check.
pub struct Check<M> {
    /// What it is called.
    pub name: &'static str,
    /// What it does.
    pub run: fn(&M, &Load) -> Outcome,
    /// Whether it checks that there is one order of all keys, or that too ([`Load::one_order`]).
    pub needs_one_order: bool,
}

/// All of them.
pub fn checks<M: Maker>() -> Vec<Check<M>> {
    const ONE_ORDER: [&str; 3] =
        ["random::histories", "random::histories_of_wide_values", "whole::each_sees_the_other"];
    macro_rules! list {
        ($($file:ident::$name:ident),+ $(,)?) => {
            vec![$({
                let name = concat!(stringify!($file), "::", stringify!($name));
                Check { name, run: $file::$name::<M>, needs_one_order: ONE_ORDER.contains(&name) }
            }),+]
        };
    }
    list![
        acts::sequential,
        random::histories,
        random::histories_of_wide_values,
        keys::own_ranges,
        keys::one_winner,
        keys::one_value_for_all,
        keys::overwritten_once,
        keys::counted_updates,
        keys::balanced,
        keys::moved_sums,
        panics::change_nothing,
        growth::readers,
        growth::updates,
        whole::iteration,
        whole::retain_own,
        whole::retain_spares_what_was_changed,
        whole::clear,
        whole::len_at_rest,
        whole::each_sees_the_other,
        drops::counted,
        drops::nobody_reads_what_was_dropped,
    ]
}

/// Leads the maps of a maker through all checks.
///
/// # Errors
///
/// The checks that failed.
pub fn all_checks<M: Maker>(maker: &M, load: &Load) -> Result<(), Failures> {
    let run = |check: Check<M>| {
        let what = (check.run)(maker, load).err()?;
        Some(Failed { check: check.name, seed: load.seed, what })
    };
    let failures: Vec<_> = checks::<M>().into_iter().filter_map(run).collect();
    if failures.is_empty() { Ok(()) } else { Err(Failures(failures)) }
}

/// Sets all of these keys.
fn fill(map: &impl ConcurrentMap<u64>, keys: impl IntoIterator<Item = u64>, value: impl Fn(u64) -> u64) {
    for key in keys {
        map.set(key, value(key));
    }
}

/// Takes all of these keys out.
fn empty(map: &impl ConcurrentMap<u64>, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        map.discard(key);
    }
}

/// Returns from a check with this, unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(format!($($what)+));
        }
    };
}
use ensure;
