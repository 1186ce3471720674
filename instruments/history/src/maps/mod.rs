//! Checks for concurrent maps: one trait, and generic checks that every map must pass.
//!
//! Idea: each check is written once, for numbers as keys. A [`Maker`] creates an implementation in each of
//! its states and passes it through all checks. A check is useful only if some wrong map fails it;
//! `tests/main/maps` has such a map for each check.
//!
//! - I1. Random choices come from the seed of the [`Load`]. The schedule does not.
//! - I2. A check decides by counts and orders, never by time. A check that does not end has found a thread
//!   that waits forever.
//! - I3. A panic in a thread of a check is a failure of the check, which returns the message.
//!
//! The checks with several threads cover those of papaya, flurry, scc and libcuckoo: ranges per thread, keys
//! shared by all, moved sums, updates during growth, iteration and retention during insertion, counted drops.
//! Their checks with one thread are covered by the comparison with std's map ([`acts`]).

pub mod acts;
mod contract;
pub mod crowd;
mod drops;
mod growth;
mod keys;
mod panics;
pub mod random;
pub mod value;
mod whole;

pub use acts::Act;
pub use contract::{ConcurrentMap, EMULATOR, Failed, Failures, Load, Maker, Outcome, SEED, Step};
pub use value::{Counted, Held, Ledger, Value, Wide};

/// A check.
pub struct Check<M> {
    /// Name of the check.
    pub name: &'static str,
    /// Function that runs the check.
    pub run: fn(&M, &Load) -> Outcome,
    /// Whether the check requires one order of all keys ([`Load::one_order`]), at least in part.
    pub needs_one_order: bool,
}

/// All checks.
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
        whole::retain_keeps_changed_values,
        whole::clear,
        whole::len_at_rest,
        whole::each_sees_the_other,
        drops::counted,
        drops::no_reads_after_drop,
    ]
}

/// Runs all checks on the maps of a maker.
///
/// # Errors
///
/// The failed checks.
pub fn all_checks<M: Maker>(maker: &M, load: &Load) -> Result<(), Failures> {
    let run = |check: Check<M>| {
        let what = (check.run)(maker, load).err()?;
        Some(Failed { check: check.name, seed: load.seed, what })
    };
    let failures: Vec<_> = checks::<M>().into_iter().filter_map(run).collect();
    if failures.is_empty() { Ok(()) } else { Err(Failures(failures)) }
}
