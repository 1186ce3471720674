//! Policies: the choice of the entry that leaves a full cache. Each is an object, which
//! [`Cache::swap_policy`](crate::Cache::swap_policy) replaces while the cache serves.
//!
//! A cache tells its policy about new keys, and lets it compare some entries that it drew at random. Hits
//! call no policy. They leave a [`Mark`] in their entry, at most one in an epoch.
//!
//! | policy | evicts | use |
//! |---|---|---|
//! | [`lru`] | the entry that was unused for longest | keys that are used soon again, or never |
//! | [`frequency`] | the entry that was used least often, and new keys that are used less | most loads |
//! | [`frequency_admitting_all`] | the entry that was used least often | values must be found once inserted |
//! | your own | [`Eviction`] | you know the load |

mod frequency;
mod lru;
mod sketch;

use squall_core::swap::Format;
use squall_macros::interface;

pub use crate::stored::{Mark, Now};
pub use frequency::{frequency, frequency_admitting_all, new_frequency, new_frequency_admitting_all};
pub use lru::{lru, new_lru};

/// An entry that may leave the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// The hash of its key.
    pub hash: u64,
    /// The part of the bound that it has.
    pub weight: u32,
    /// The marks of its hits.
    pub mark: Mark,
}

impl Candidate {
    /// Returns a candidate.
    pub fn new(hash: u64, weight: u32, mark: Mark) -> Candidate {
        Candidate { hash, weight, mark }
    }
}

/// The decision of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The drawn entry with this index leaves.
    Evict(usize),
    /// The new entry is not inserted.
    Refuse,
}

/// The changes with which an epoch begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// The number of times that the counts of uses are halved.
    pub halvings: u16,
    /// The new value of [`Now::late`].
    pub late: u16,
}

impl Turn {
    /// Returns the changes.
    pub fn new(halvings: u16, late: u16) -> Turn {
        Turn { halvings, late }
    }
}

/// The state that policies pass on in a hot-swap by [`Swap`](squall_core::swap::Swap) or by hand. A policy of
/// your own can export and import it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Number of entries that the cache expects: see [`Eviction::resize`].
    pub entries: u64,
}

impl Format for Expected {}

/// A policy of evictions, as implementations provide it.
///
/// Several threads call it at once. It must not use its cache. Without a policy, since that was destroyed, a
/// cache evicts the first entry that it draws.
#[interface(crate = squall_core)]
pub trait Eviction: Send + Sync {
    /// Tells the number of entries that the cache holds about, at the beginning and with each epoch.
    fn resize(&self, entries: u64);

    /// Returns the number of insertions of an epoch. Hits mark an entry once in an epoch.
    fn epoch_length(&self) -> u64;

    /// Begins an epoch.
    fn begin_epoch(&self) -> Turn;

    /// Notes that a key was absent and is about to be inserted. Returns its first mark.
    fn arrived(&self, hash: u64, now: Now) -> Mark;

    /// Chooses one of the entries that were drawn, of which there is one at least, or refuses the new one.
    /// Without a newcomer a refusal counts as the first entry.
    fn choose(&self, newcomer: Option<Candidate>, drawn: &[Candidate], now: Now) -> Verdict;
}
