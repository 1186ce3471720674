//! Policies: the choice of the entry that leaves a full cache. Each is an object, which
//! [`Cache::swap_policy`](crate::Cache::swap_policy) replaces while the cache serves.
//!
//! A cache tells its policy about each absent key that is inserted. If the cache is full, it draws about five
//! entries at random, and the policy chooses one of them. Hits call no policy. They leave a [`Mark`] in their
//! entry, at most one in an epoch. An *epoch* is a number of such insertions, which the policy sets.
//!
//! | policy | in a full cache | use |
//! |---|---|---|
//! | [`frequency`], the default | evicts the least used entry, or refuses the new one | most loads |
//! | [`frequency_admitting_all`] | evicts the least used entry | values must be found once inserted |
//! | [`lru`] | evicts the entry that was unused for longest | keys that are used soon again, or never |
//! | your own | as your [`Eviction`] decides | you know the load |
//!
//! `frequency` and the others make a policy for the builder; `new_frequency` and so on make one for
//! [`swap_policy`](crate::Cache::swap_policy).

mod frequency;
mod lru;
mod sketch;

use squall_core::swap::Format;
use squall_macros::interface;

pub use crate::stored::{Mark, Now};
pub use frequency::{frequency, frequency_admitting_all, new_frequency, new_frequency_admitting_all};
pub use lru::{lru, new_lru};

/// An entry that may leave the cache, or a new one that may be refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// The hash of its key.
    pub hash: u64,
    /// The part of the bound that it takes: 1, its weight, or bytes.
    pub weight: u32,
    /// The mark of its hits.
    pub mark: Mark,
}

impl Candidate {
    /// Returns a candidate.
    pub fn new(hash: u64, weight: u32, mark: Mark) -> Candidate {
        Candidate { hash, weight, mark }
    }
}

/// The decision of a policy about a full cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The drawn entry with this index leaves. An index beyond the last one means the last.
    Evict(usize),
    /// The new entry is not inserted.
    Refuse,
}

/// The changes with which an epoch begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// The number of times that the counts of uses are halved now.
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

/// The state that the policies of this module pass on in a hot-swap. A policy of your own can export and
/// import it, so that a [`Swap`](squall_core::swap::Swap), or `squall top`, can replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Number of entries that the cache expects: see [`Eviction::resize`].
    pub entries: u64,
}

impl Format for Expected {}

/// The interface of policies.
///
/// The threads that insert call it, several at once, and [`choose`](Eviction::choose) within an operation. So
/// the methods must be short, and must not use the cache. If the object of the policy was destroyed, the
/// cache evicts the first entry that it draws.
///
/// ```
/// use squall::cache::Cache;
/// use squall::cache::policy::{Candidate, Eviction, Mark, Now, Turn, Verdict};
///
/// /// Evicts the largest entry, and refuses none.
/// struct Largest;
///
/// impl Eviction for Largest {
///     fn resize(&self, _: u64) {}
///
///     fn epoch_length(&self) -> u64 {
///         1000
///     }
///
///     fn begin_epoch(&self) -> Turn {
///         Turn::default()
///     }
///
///     fn arrived(&self, _: u64, now: Now) -> Mark {
///         Mark::new(now, 0)
///     }
///
///     fn choose(&self, _: Option<Candidate>, drawn: &[Candidate], _: Now) -> Verdict {
///         let largest = (0..drawn.len()).max_by_key(|index| drawn[*index].weight);
///         largest.map_or(Verdict::Refuse, Verdict::Evict)
///     }
/// }
///
/// let texts: Cache<u64, String> = Cache::builder()
///     .max_capacity(100)
///     .weigher(|_, text: &String| text.len() as u32)
///     .eviction_policy(squall::shared(Largest))
///     .build();
/// (1..50).for_each(|n| texts.insert(n, "x".repeat(n as usize)));
/// assert!(texts.weighted_size() <= 100);
/// ```
///
/// [`swap_policy`](crate::Cache::swap_policy) takes it as `Replacement::shared(Largest)`.
#[interface(crate = squall_core)]
pub trait Eviction: Send + Sync {
    /// Tells about how many entries fit into the cache. Called when it is made, and before each epoch.
    fn resize(&self, entries: u64);

    /// Returns the number of insertions of absent keys in the coming epoch. Refused ones count.
    fn epoch_length(&self) -> u64;

    /// Begins an epoch. Called after [`Eviction::resize`] and before
    /// [`Eviction::epoch_length`].
    fn begin_epoch(&self) -> Turn;

    /// Notes that an absent key is about to be inserted, also while the cache has room. Returns its first
    /// mark.
    fn arrived(&self, hash: u64, now: Now) -> Mark;

    /// Chooses one of the drawn entries (one at least), or refuses the newcomer. Called if there is no room.
    ///
    /// `newcomer` is `None` if a present entry grows, or if the bound became lower. A refusal then evicts the
    /// first drawn entry.
    fn choose(&self, newcomer: Option<Candidate>, drawn: &[Candidate], now: Now) -> Verdict;
}
