//! Read-mostly values: everybody reads, somebody changes it now and then. A configuration, a routing table, a set of keys.
//!
//! Not for what changes as often as it is read, and not for one field of a few that must change together: put those in one value.
//! An update copies nothing of its own accord, but makes a whole new value; of a large map change an entry at a time in a map.
//!
//! | made by | reading | changing | memory |
//! |---|---|---|---|
//! | [`shared`] | one load of one line for all; after a change each processor fetches it | an allocation, and stores to one line | a block, a representative, the value |
//! | [`distributed`] | the same, of a line for each cluster | stores to a line for each cluster that reads | 256 bytes for each cluster that reads |
//! | [`copied`] | the same, and the value itself lies in its cluster's memory | the same; then the first reader of each cluster copies the value | the same, and a value for each such cluster |
//! | [`adaptive`] | begins as shared, is copied where many processors of several clusters read what changes, and goes back | as the form that it has | as the form that it has |
//!
//! All are the same to those who call them, a `Handle<dyn ReadMostly<T>>`, on which [`ReadMostlyExt`] has what readers do; and of all it
//! is true that who has seen a value, or heard of it from somebody who has, sees no earlier one, and that a read waits for nobody,
//! changes under way included. [`ReadMostly`] owns one. To have such a value among others in an object of your own, see
//! `squall_replica`, of which these are made.
//!
//! ```
//! use squall_objects::read_mostly::{self, ReadMostlyExt};
//!
//! let limits = read_mostly::shared(vec![10, 20]);
//! let handle = limits.handle(); // `Copy`, for any thread or task
//! let mut changes = handle.subscribe();
//! assert_eq!(handle.read(|limits| limits[1]), 20);
//! handle.update(|old| old.iter().map(|limit| limit * 2).collect());
//! assert_eq!(changes.wait().unwrap(), 2); // the version
//! assert_eq!(handle.get(), [20, 40]);
//! ```
//!
//! No poisoning: no closure of a user's runs under a lock, and where one panics the value is what it was; but a waker that panics
//! does so when it is changed already. Signal handlers shall neither read nor change it: the first read of a cluster takes a lock
//! for a moment, and may allocate; of what is [`copied`], the first after each change does, and runs `T::clone`. In the child of a
//! fork calls err.
//!
//! Of several who change the value at once one waits for the other; there is no order among them, and no limit to how many
//! values wait for their readers but that of [`squall_rcu::retire`].

mod policy;
mod distributed;
mod subscription;

use squall_adapt::{engine, family};
use squall_core::__macro::{Act, Checked, Hit, Lends, Panic};
use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{CallError, Handle, Owned, Root};
use squall_machine::ClusterSize;
use squall_macros::interface;
use squall_rcu::Guard;
pub use squall_parts::replica::{Conflict, Versioned, Watch};
use squall_parts::replica::{Master, Replica};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::sizes;
pub use policy::{SHARED, COPIED};
use distributed::Distributed;
pub use subscription::{Changed, Subscription};

/// A value that is read mostly.
///
/// Progress: what reads is wait-free but for swaps; what changes it blocks others that change it, for as long as a store to each replica
/// takes. A thread that stalls in a change, or in the few instructions in which the first read of a cluster takes the lock, holds
/// up changes, and no reader. Of what is [`copied`] that is the first read after each change, and before it takes the lock it allocates
/// and runs `T::clone`, which is as wait-free as those are.
/// # Source
/// TO-04, TO-05, HU-04, HU-16, HU-17.
#[interface(crate = squall_core, lends)]
pub trait ReadMostly<T: Send + Sync + 'static>: Send + Sync {
    /// Finds the value, for the rest of the operation. [`ReadMostlyExt`] has this in handier forms.
    fn find<'o>(&self, guard: &'o Guard) -> &'o Versioned<T>;

    /// The version of the value: 1 at first, and one more with each change, across hot-swaps too.
    fn version(&self) -> u64;

    /// Replaces the value. Returns the version of the new one. When it returns, every read that begins sees it or a later one.
    ///
    /// # Panics
    /// If a waker does that was left by somebody who waits: the value is changed then, and all others were woken.
    #[blocking]
    fn set(&self, value: T) -> u64;

    /// Replaces the value if it is of this version still. Returns the version of the new one.
    ///
    /// # Errors
    /// [`Conflict`], with the value: another change was first.
    /// # Panics
    /// As [`set`](Published::set).
    #[blocking]
    fn compare_and_update(&self, version: u64, value: T) -> Result<u64, Conflict<T>>;

    /// Where those wait who want to know of changes. [`ReadMostlyExt::subscribe`] is the handy form.
    fn watch(&self) -> Arc<Watch>;

    /// How large the clusters are of which each has a replica.
    fn cluster_size(&self) -> ClusterSize;

    /// An implementation of the same kind for clusters of this size, to take this one's place by a swap.
    /// [`ReadMostlyExt::set_cluster_size`] is the handy form.
    fn resized(&self, size: ClusterSize) -> Replacement<dyn ReadMostly<T>>;

    /// What its sensors read. For policies; of an implementation that has none, zeros.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }

    /// Has its sensor trip after about so many changes; zero: never. For policies.
    fn arm(&self, after: u32) {
        let _ = after;
    }
}

/// The replica, which has the value most of the time.
impl<T: Send + Sync + 'static> Lends for dyn ReadMostly<T> {
    type First = Replica<T>;
    type Beside = ();
    type Second = ();
    type Third = ();
}

/// What a read does: where the replica has a value, without asking the representative for it.
struct Read<F>(F);

impl<T: Send + Sync + 'static, R, F: FnOnce(&Versioned<T>) -> R> Act<dyn ReadMostly<T>, R> for Read<F> {
    #[inline(always)]
    fn act<'o>(self, guard: &'o Guard, hit: Hit<'o, dyn ReadMostly<T>>) -> R {
        (self.0)(hit.target().find(guard))
    }

    #[inline(always)]
    fn act_briefly<'o>(self, guard: &'o Guard, hit: Hit<'o, dyn ReadMostly<T>>) -> Result<R, Self> {
        match hit.first().and_then(|replica| replica.find(guard)) {
            Some(value) => Ok((self.0)(value)),
            None => Err(self),
        }
    }
}

/// What the sensors of a read-mostly value read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sensors {
    /// Changes since the value was made, across hot-swaps too.
    pub changes: u64,
    /// Replicas.
    pub reps: usize,
}

/// What readers and writers do with a read-mostly value. Comes with the reference.
///
/// Each panics as every call does if the object was destroyed; those named `try_` return the error.
pub trait ReadMostlyExt<T: Send + Sync + 'static>: Copy {
    /// Calls `f` with the value. It is not changed meanwhile; `f` may use this object, too, and change it.
    ///
    /// `f` runs in an operation: keep it short, since nothing that was replaced is freed meanwhile.
    fn read<R>(self, f: impl FnOnce(&T) -> R) -> R;

    /// As [`read`](ReadMostlyExt::read).
    ///
    /// # Errors
    /// [`CallError`]: the object is gone, and `f` was not called.
    fn try_read<R>(self, f: impl FnOnce(&T) -> R) -> Result<R, CallError>;

    /// As [`read`](ReadMostlyExt::read), with the version of the value.
    fn read_versioned<R>(self, f: impl FnOnce(&T, u64) -> R) -> R;

    /// A copy of the value.
    fn get(self) -> T
    where
        T: Clone,
    {
        self.read(T::clone)
    }

    /// Replaces the value by what `f` makes of it; calls `f` again when another change was faster. Returns the version of the new one.
    ///
    /// `f` runs in an operation, and under no lock.
    ///
    /// # Panics
    /// If `f` does: nothing has changed then. As [`set`](Published::set).
    fn update(self, f: impl FnMut(&T) -> T) -> u64;

    /// Tells of changes from now on.
    fn subscribe(self) -> Subscription<T>;

    /// Changes the size of the clusters of which each has a replica, while the object is used: by a swap. An
    /// [`adaptive`] value is then copied for each of them, but for the whole machine, and its policy goes on.
    ///
    /// # Errors
    /// [`SwapError`]: everything is as it was.
    /// # Cost
    /// That of a [`Swap`]; each cluster makes its replica when it reads next.
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError>;
}

impl<T: Send + Sync + 'static> ReadMostlyExt<T> for Handle<dyn ReadMostly<T>> {
    #[inline]
    #[track_caller]
    fn read<R>(self, f: impl FnOnce(&T) -> R) -> R {
        self.__call_act("find", Read(|value: &Versioned<T>| f(value)), Panic)
    }

    #[inline]
    fn try_read<R>(self, f: impl FnOnce(&T) -> R) -> Result<R, CallError> {
        self.__call_act("find", Read(|value: &Versioned<T>| Ok(f(value))), Checked)
    }

    #[inline]
    #[track_caller]
    fn read_versioned<R>(self, f: impl FnOnce(&T, u64) -> R) -> R {
        let read = |value: &Versioned<T>| f(value, Versioned::version(value));
        self.__call_act("find", Read(read), Panic)
    }

    #[track_caller]
    fn update(self, mut f: impl FnMut(&T) -> T) -> u64 {
        loop {
            let (value, version) = self.read_versioned(|value, version| (f(value), version));
            if let Ok(version) = self.compare_and_update(version, value) {
                return version;
            }
        }
    }

    #[track_caller]
    fn subscribe(self) -> Subscription<T> {
        Subscription::new(self, self.watch(), self.version())
    }

    #[track_caller]
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError> {
        Swap::new(self).run(self.resized(size))
    }
}

/// The owner of a read-mostly value: its drop ends the object. It derefs to the reference.
pub struct OwnedReadMostly<T: Send + Sync + 'static>(Owned<dyn ReadMostly<T>>);

impl<T: Send + Sync + 'static> OwnedReadMostly<T> {
    /// As an owner of any object.
    pub fn into_owned(self) -> Owned<dyn ReadMostly<T>> {
        self.0
    }
}

impl<T: Send + Sync + 'static> Deref for OwnedReadMostly<T> {
    type Target = Owned<dyn ReadMostly<T>>;

    #[inline(always)]
    fn deref(&self) -> &Owned<dyn ReadMostly<T>> {
        &self.0
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for OwnedReadMostly<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.handle().read_versioned(|value, version| {
            f.debug_struct("ReadMostly")
                .field("version", &version)
                .field("value", value)
                .finish_non_exhaustive()
        })
    }
}

impl<T: Send + Sync + 'static> From<T> for OwnedReadMostly<T> {
    /// As [`shared`].
    #[track_caller]
    fn from(value: T) -> OwnedReadMostly<T> {
        shared(value)
    }
}

impl<T: Send + Sync + Default + 'static> Default for OwnedReadMostly<T> {
    #[track_caller]
    fn default() -> OwnedReadMostly<T> {
        shared(T::default())
    }
}

#[cfg(feature = "serde")]
impl<T: Send + Sync + serde::Serialize + 'static> serde::Serialize for OwnedReadMostly<T> {
    /// As the value.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.handle().read(|value| value.serialize(serializer))
    }
}

#[cfg(feature = "serde")]
impl<'de, T: Send + Sync + serde::Deserialize<'de> + 'static> serde::Deserialize<'de> for OwnedReadMostly<T> {
    /// As [`shared`], of the value.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<OwnedReadMostly<T>, D::Error> {
        T::deserialize(deserializer).map(shared)
    }
}

/// Makes a value with one replica, for everybody.
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
#[track_caller]
pub fn shared<T: Send + Sync + 'static>(value: T) -> OwnedReadMostly<T> {
    have_sizes::<T>();
    OwnedReadMostly(Distributed::<T, FIXED, false>::new(Master::new(value)).create(ClusterSize::Machine))
}

/// Makes a value with a replica for each cluster of this size that reads. A change reaches them all before it returns.
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
#[track_caller]
pub fn distributed<T: Send + Sync + 'static>(value: T, size: ClusterSize) -> OwnedReadMostly<T> {
    have_sizes::<T>();
    OwnedReadMostly(Distributed::<T, FIXED, true>::new(Master::new(value)).create(size))
}

/// Makes a value with a copy for each cluster of this size that reads. A change only takes the old copies away; each cluster makes
/// a new one when it reads (invalidation instead of update: TO-04).
///
/// What copies do not share, as atomics within them, differs from cluster to cluster. Of a cluster several may make a copy at
/// once after a change; one is kept. `T::clone` runs in the operation of a read, so it must not wait, and if it panics, that read does.
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
#[track_caller]
pub fn copied<T: Clone + Send + Sync + 'static>(value: T, size: ClusterSize) -> OwnedReadMostly<T> {
    have_sizes::<T>();
    OwnedReadMostly(Distributed::<T, FIXED, true>::new(Master::copied(value)).create(size))
}

/// Makes a value that is as [`shared`] makes it, and is [`copied`] for each cache while its load asks for that.
///
/// Makes the policy known and starts its thread, `squall-adapt`, with the first: see [`squall_adapt::engine`].
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
/// # Cost
/// As [`shared`], and a look at the list of families.
#[track_caller]
pub fn adaptive<T: Clone + Send + Sync + 'static>(value: T) -> OwnedReadMostly<T> {
    have_sizes::<T>();
    family::register(policy::family::<T>());
    engine::start();
    OwnedReadMostly(Distributed::<T, ADAPTS, false>::with_copies(Master::new(value)).create(ClusterSize::Machine))
}

/// Has values of this type have the attribute of their clusters' size.
fn have_sizes<T: Send + Sync + 'static>() {
    sizes::have::<dyn ReadMostly<T>>(
        |handle| handle.try_cluster_size().ok(),
        |handle, size| Some((handle, handle.try_resized(size).ok()?)),
    );
}

/// Whether an implementation posts to the policy: the forms of adaptive values are classes of their own.
const FIXED: bool = false;
const ADAPTS: bool = true;

/// An implementation, to take the place of a read-mostly value: as [`shared`] makes it. It takes the value over; swapped
/// in [without state](Swap::without_state) it has none, and every call errs.
pub fn new_shared<T: Send + Sync + 'static>() -> Replacement<dyn ReadMostly<T>> {
    Replacement::root(Distributed::<T, FIXED, false>::new(Master::vacant_updated()), ClusterSize::Machine)
}

/// An implementation, to take the place of a read-mostly value: as [`distributed`] makes it. It takes the value over; swapped
/// in [without state](Swap::without_state) it has none, and every call errs.
pub fn new_distributed<T: Send + Sync + 'static>(size: ClusterSize) -> Replacement<dyn ReadMostly<T>> {
    Replacement::root(Distributed::<T, FIXED, true>::new(Master::vacant_updated()), size)
}

/// An implementation, to take the place of a read-mostly value: as [`copied`] makes it. It takes the value over; swapped
/// in [without state](Swap::without_state) it has none, and every call errs.
pub fn new_copied<T: Clone + Send + Sync + 'static>(size: ClusterSize) -> Replacement<dyn ReadMostly<T>> {
    Replacement::root(Distributed::<T, FIXED, true>::new(Master::vacant_copied()), size)
}
