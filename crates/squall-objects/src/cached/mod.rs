//! Cached lists and maps: what is in them lies in one place, and each cluster that looks something up keeps it at hand.
//!
//! Not for what is changed as often as it is looked up, nor for what is mostly looked up in vain: a lookup that finds nothing has asked
//! the one place, and a removal visits every cluster that has what goes. And not for what one cluster uses alone: all that is kept at
//! hand is kept twice. For such loads, and for most, take a [`map`](mod@crate::map); for one value, a [`cell`](crate::read_mostly).
//!
//! - [`list`]: items that are found by a relation ([`Items::find`]): the regions of an address space, the rules that a request may match.
//! - [`map`]: values by key, which can be changed, too.
//!
//! Both come in any [`Form`], and each can be swapped into each other while it is used:
//!
//! | form | a lookup that was made before | another | a change | memory |
//! |---|---|---|---|---|
//! | [`shared`](Form::shared) | looks into the one place | the same | the same | once |
//! | [`distributed`](Form::distributed) | looks into its cluster's own | asks the one place, and keeps what it finds | the one place, and each cluster that has it | and once for each cluster that has it |
//! | [`where_threads_are`](Form::where_threads_are), [`on`](Form::on) | the same in a cluster that is full; another one looks into a full one's | the same | the same | the same, of full clusters |
//!
//! What a cluster keeps grows with what it looks up, up to all that is there; [`keeping`](Form::keeping) sets a limit to that.
//!
//! It is true of all forms that each operation takes effect at one moment, hot-swaps included; so when a removal has returned, nobody
//! anywhere finds what was removed. A lookup of what its cluster keeps writes to nothing that others read, and waits for nobody. One that asks
//! the one place counts that; if it keeps what it found, it may wait for a moment for others who keep or remove something in the same cluster.
//! Whoever meets a hot-swap waits for that.
//!
//! ```
//! use squall_machine::ClusterSize;
//! use squall_objects::cached::{self, MapExt, Form, Items};
//!
//! let regions = cached::list(Form::distributed(ClusterSize::Core));
//! regions.insert((0x1000..0x3000, "heap"));
//! let hit = |address| regions.find(|(range, _)| range.contains(&address), |(_, name)| *name);
//! assert_eq!((hit(0x2000), hit(0x4000)), (Some("heap"), None));
//! regions.remove(|(_, name)| *name == "heap");
//! assert_eq!(hit(0x2000), None); // wherever it is asked
//!
//! let routes = cached::map::<String, u32>(Form::distributed(ClusterSize::Cache).updated());
//! routes.insert("home".into(), 1);
//! assert_eq!(routes.read("home", |to| *to), Some(1));
//! ```
//!
//! No poisoning: closures of the user's run under no lock, in an operation, and may use the object; one that panics has changed nothing.
//! (What says what becomes of a key must not change that key each time: it would be asked again for ever. `Eq` and `Hash` of a map's keys
//! run under locks, and must not use it; a change in which one panics is done or not, for all.) Keep them short, for nothing that was removed is
//! freed meanwhile. Signal handlers shall not use these objects: a lookup may allocate, and takes a lock for a moment, where it
//! keeps what it found. In the child of a fork calls err.

mod items;
mod lines;
mod list;
mod mapping;
mod owner;
mod distributed;

use squall_machine::{ClusterSize, Vp};

pub use crate::walk::Walk;
pub use items::Item;
pub use list::{CachedList, Items, List, ListView, ListWriter, list, new_list};
pub use mapping::{CachedMap, CachedMapExt, MapView, MapWriter, map, map_with, new_map};
pub use owner::OwnedCachedMap;
pub use squall_parts::table::{Compute, Computed};

/// What a list or a map keeps where: made for an object, or for one that is to take its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    size: ClusterSize,
    full: Full,
    coherence: Coherence,
    /// What a cluster keeps at most.
    most: usize,
}

/// Which clusters keep what they look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Nowhere,
    Everywhere,
    /// Those of these VPs.
    On(Box<[Vp]>),
    /// That in which it was made, and each other one after so many lookups, until it is left.
    After(u32),
}

/// What becomes of the copies of a map's value that is changed: TO-04.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Coherence {
    /// They are taken away; each cluster copies the new value when it looks for it. The value itself lies in the cluster's memory.
    Invalidate,
    /// Each is given the new value, which lies where it was made.
    Update,
}

impl Form {
    /// Nothing is kept anywhere but in the one place: to begin with, and for what one thread uses.
    pub fn shared() -> Form {
        Form {
            size: ClusterSize::Machine,
            full: Full::Nowhere,
            coherence: Coherence::Invalidate,
            most: usize::MAX,
        }
    }

    /// Each cluster of this size keeps what it looks up. (K42's process object: CO-43.)
    pub fn distributed(size: ClusterSize) -> Form {
        Form { size, full: Full::Everywhere, coherence: Coherence::Invalidate, most: usize::MAX }
    }

    /// Each cluster of this size keeps what it looks up once it has looked so many things up; until then it is thin, and looks into what the
    /// cluster keeps in which the object was made. (Tornado's process object: TO-05.)
    ///
    /// A thread that moves on to another cluster makes that one full by and by, and takes along what was kept where it was, up to 256 entries: one
    /// into which nobody looked while another one made the second half of its lookups, becomes thin again when that becomes full. So let `after` be
    /// twice as many lookups as leave time for one to each thread that is at work: some hundreds, and not a few. One that was made thin needs twice as
    /// many the next time.
    /// The cluster in which the object was made stays full.
    pub fn where_threads_are(size: ClusterSize, after: u32) -> Form {
        Form { size, full: Full::After(after), coherence: Coherence::Invalidate, most: usize::MAX }
    }

    /// The clusters of this size in which these VPs are keep what they look up; others look into what that of the first VP keeps. (The
    /// same, where it is known beforehand.)
    pub fn on(size: ClusterSize, vps: impl IntoIterator<Item = Vp>) -> Form {
        Form {
            size,
            full: Full::On(vps.into_iter().collect()),
            coherence: Coherence::Invalidate,
            most: usize::MAX,
        }
    }

    /// The same, whose map gives its copies the new value, as [`Coherence::Update`] says. Lists have items that do not change.
    #[must_use]
    pub fn updated(self) -> Form {
        Form { coherence: Coherence::Update, ..self }
    }

    /// The same, whose clusters keep so many entries or items each at most, and perhaps a few more while several threads look up at once. What
    /// is looked up beyond takes another's place: of a map any's, of a list that which was kept first. What went is asked for again, and memory
    /// comes back after a grace period.
    ///
    /// ```
    /// use squall_machine::ClusterSize;
    /// use squall_objects::cached::{self, CachedMap, MapExt, Form};
    /// let names = cached::map::<u32, String>(Form::distributed(ClusterSize::Core).keeping(100));
    /// (0..1000).for_each(|id| _ = names.insert(id, format!("name {id}")));
    /// (0..1000).for_each(|id| assert!(names.contains_key(&id)));
    /// assert!(names.len() == 1000 && names.sensors().copies <= 100 * names.sensors().full);
    /// ```
    ///
    /// # Panics
    /// If it shall keep none: that is [`Form::shared`].
    #[must_use]
    pub fn keeping(self, most: usize) -> Form {
        assert!(most > 0, "a cluster keeps one at least; the form that keeps none is `Form::shared()`");
        Form { most, ..self }
    }

    /// How many entries or items a cluster keeps at most.
    pub fn most(&self) -> usize {
        self.most
    }

    /// What becomes of the copies of a map's value that is changed.
    pub fn coherence(&self) -> Coherence {
        self.coherence
    }

    /// The same, if it has clusters whose size is to be chosen.
    pub(crate) fn chosen_size(&self) -> Option<ClusterSize> {
        (self.full != Full::Nowhere).then_some(self.size)
    }

    /// How large the clusters are.
    pub fn cluster_size(&self) -> ClusterSize {
        self.size
    }

    /// The same, for clusters of this size. Of a [`shared`](Form::shared) form nothing changes by that.
    #[must_use]
    pub fn resized(self, size: ClusterSize) -> Form {
        Form { size, ..self }
    }
}

/// What the sensors of a cached object read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sensors {
    /// MapExt, or items.
    pub entries: usize,
    /// Representatives.
    pub reps: usize,
    /// Those of them that keep what they look up.
    pub full: usize,
    /// How many times one that did was made thin, as its threads had left for another. Since it was made, or since a hot-swap.
    pub thinned: u64,
    /// Entries or items that they keep; of a map that takes copies away, some of them may be without a copy.
    pub copies: usize,
    /// Lookups that asked the one place, since it was made, or since a hot-swap that copied it: for what its cluster did not have, or had a copy of that a change had
    /// taken away. What clusters asked that are thin by now is counted. About, where several ask at once.
    pub asked: u64,
    /// Values that were changed, and what was inserted or removed, across hot-swaps.
    pub changes: u64,
    /// Copies that were taken away, or given a new value, by changes; across hot-swaps.
    pub reached: u64,
}
