//! Read-mostly values: all threads read, and a thread changes the value now and then. Examples are a
//! configuration, a routing table, a set of keys.
//!
//! | form | a read loads | a change stores to | memory |
//! |---|---|---|---|
//! | [`shared`] | one cache line for all | that line | the value |
//! | [`distributed`] | a line of its cluster | a line per reading cluster | 256 bytes per cluster |
//! | [`copied`] | that line, and a value in local memory | those lines | and a value per cluster |
//! | [`adaptive`] | as its present form | as its present form | as its present form |
//!
//! A change also allocates the new value. In the form [`copied`], the next reader of each cluster clones it.
//! An [`adaptive`] value starts as [`shared`]. It becomes [`copied`] while processors of several clusters
//! read a changing value, and goes back afterwards.
//!
//! All forms have one interface, [`ReadMostly`], and are called through a `Handle<dyn ReadMostly<T>>`.
//! [`ReadMostlyExt`] has the methods for readers and writers. [`OwnedReadMostly`] owns a value.
//!
//! ```
//! use squall::objects::read_mostly::{self, ReadMostlyExt};
//!
//! let limits = read_mostly::shared(vec![10, 20]);
//! let handle = limits.handle(); // `Copy`, for any thread or task
//! let mut changes = handle.subscribe();
//! assert_eq!(handle.read(|limits| limits[1]), 20);
//! handle.update(|old| old.iter().map(|limit| limit * 2).collect());
//! assert_eq!(changes.wait().unwrap(), 2); // the version
//! assert_eq!(handle.get_cloned(), [20, 40]);
//! ```
//!
//! # When not
//! Use a lock if the value changes as often as it is read. An update builds a whole new value, so use a map
//! for many entries that change one at a time.
//!
//! # Guarantees
//! - Versions are monotonic: a thread that has seen a value, or has synchronized with such a thread, never
//!   sees an earlier one.
//! - A read never waits, even while a change is under way.
//! - There is no poisoning. User closures run under no lock. If one panics, the value is unchanged. A panic
//!   of a waker comes after the change.
//! - Concurrent changes block each other in no particular order. Replaced values are freed after a grace
//!   period; see [`squall::rcu::retire`](squall_rcu::retire) for the limit of values that await it.
//!
//! # Limits
//! Signal handlers must not read or change a value. The first read of a cluster takes a lock briefly and may
//! allocate. In the form [`copied`], so does the first read after each change, which also runs `T::clone`.
//! In the child of a fork, calls return an error or panic: see
//! [forked children](squall_core#forked-children).
//!
//! [`squall::parts::replica`](squall_parts::replica) has the replicas of these objects, for an object of your
//! own.

mod distributed;
mod policy;
mod subscription;

use squall_adapt::{engine, family};
use squall_core::__macro::{Action, Answer, Hit};
use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{CallError, Handle, Interface, Owned, Root};
use squall_machine::ClusterSize;
use squall_macros::interface;
pub use squall_parts::replica::{Conflict, Versioned, Watch};
use squall_parts::replica::{Master, Replica};
use squall_rcu::Guard;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::answers::{panics_in, returns_in};
use crate::sizes;
use distributed::Distributed;
pub use policy::{COPIED, SHARED};
pub use subscription::{Changed, Subscription};

/// A read-mostly value, as implementations provide it. [`ReadMostlyExt`] has the methods for readers and
/// writers.
///
/// Progress: reads are wait-free except for swaps. A change blocks other changes while it stores to each
/// replica. A thread that stalls in a change, or in the locked part of a cluster's first read, delays changes
/// but no reader. In the form [`copied`] the first read after each change allocates and runs `T::clone`
/// before it takes the lock.
///
/// ```
/// use squall::objects::read_mostly::{self, ReadMostly};
///
/// let mode = read_mostly::shared("day");
/// assert_eq!(mode.version(), 1);
/// assert_eq!(mode.set("night"), 2);
/// assert_eq!(mode.compare_and_update(2, "dawn").unwrap(), 3);
/// assert!(mode.compare_and_update(2, "noon").is_err());
/// ```
///
/// # Source
/// Gamsa et al. 1999, Tornado (TO-04, TO-05); Unrau et al. 1995, Hurricane (HU-04, HU-16, HU-17).
#[interface(crate = squall_core, view = ReadMostlyView)]
pub trait ReadMostly<T: Send + Sync + 'static>: Send + Sync {
    /// Returns the value, valid for the rest of the operation. [`ReadMostlyExt`] has more convenient methods.
    fn find<'o>(&self, guard: &'o Guard) -> &'o Versioned<T>;

    /// Returns the version of the value: initially 1, and incremented by each change, across hot-swaps too.
    fn version(&self) -> u64;

    /// Replaces the value and returns the new version. Every read that begins after the return sees this
    /// value or a later one.
    ///
    /// # Panics
    /// If the waker of a waiting task panics. The value is changed by then, and all other tasks have been
    /// woken.
    #[blocking]
    fn set(&self, value: T) -> u64;

    /// Replaces the value if it still has version `version`. Returns the new version.
    ///
    /// # Errors
    /// [`Conflict`] with `value`, if another change was faster.
    /// # Panics
    /// If the waker of a waiting task panics, like [`set`](ReadMostly::set).
    #[blocking]
    fn compare_and_update(&self, version: u64, value: T) -> Result<u64, Conflict<T>>;

    /// Returns the wait list for changes. [`ReadMostlyExt::subscribe`] is more convenient.
    fn watch(&self) -> Arc<Watch>;

    /// Returns the size of the clusters that have a replica each.
    fn cluster_size(&self) -> ClusterSize;

    /// Returns an implementation of the same kind for clusters of this size, to replace this one by a swap.
    /// [`ReadMostlyExt::set_cluster_size`] is more convenient.
    fn resized(&self, size: ClusterSize) -> Replacement<dyn ReadMostly<T>>;

    /// Reads the sensors, for policies. An implementation without sensors returns zeros.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }

    /// Sets the sensor to trip after about `after` changes, for policies. Zero switches it off.
    fn arm(&self, after: u32) {
        let _ = after;
    }
}

/// The view of a read-mostly value: the replica, which holds the value most of the time.
pub struct ReadMostlyView<'rep, T: Send + Sync + 'static> {
    replica: Option<&'rep Replica<T>>,
}

impl<T: Send + Sync + 'static> Clone for ReadMostlyView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + Sync + 'static> Copy for ReadMostlyView<'_, T> {}

impl<T: Send + Sync + 'static> Default for ReadMostlyView<'_, T> {
    fn default() -> Self {
        ReadMostlyView { replica: None }
    }
}

/// A read. It uses the replica directly if that holds the value, and calls the representative otherwise.
struct Read<F>(F);

impl<T: Send + Sync + 'static, R, F: FnOnce(&Versioned<T>) -> R> Action<dyn ReadMostly<T>, R> for Read<F> {
    #[inline(always)]
    fn try_fast<'o>(self, guard: &'o Guard, hit: Hit<'o, dyn ReadMostly<T>>) -> Result<R, Self> {
        match hit.view().replica.and_then(|replica| replica.find(guard)) {
            Some(value) => Ok((self.0)(value)),
            None => Err(self),
        }
    }

    fn run_slow<'o>(self, guard: &'o Guard, hit: Hit<'o, dyn ReadMostly<T>>) -> R {
        (self.0)(hit.target().find(guard))
    }
}

/// Readings of the sensors of a read-mostly value.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::read_mostly::{self, ReadMostly};
///
/// let value = read_mostly::distributed(1, ClusterSize::Cpu);
/// value.set(2);
/// assert_eq!(value.sensors().changes, 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sensors {
    /// Number of changes since the value was created, across hot-swaps too.
    pub changes: u64,
    /// Number of replicas.
    pub reps: usize,
}

/// Methods for readers and writers of a read-mostly value, on a handle or an owner.
///
/// Each method panics if the object was destroyed. Methods named `try_` return an error instead.
pub trait ReadMostlyExt<T: Send + Sync + 'static>: Copy {
    /// Calls `f` with the value and returns its result. `f` sees one version throughout, and may use or
    /// change this object.
    ///
    /// `f` runs in an operation. Keep it short, since replaced values are freed only after it.
    ///
    /// ```
    /// use squall::objects::read_mostly::{self, ReadMostlyExt};
    ///
    /// let routes = read_mostly::shared(vec!["a", "b"]);
    /// assert_eq!(routes.read(|routes| routes.len()), 2);
    /// ```
    fn read<R>(self, f: impl FnOnce(&T) -> R) -> R;

    /// Like [`read`](ReadMostlyExt::read), but returns an error if the object was destroyed.
    ///
    /// ```
    /// use squall::objects::read_mostly::{self, ReadMostlyExt};
    ///
    /// let value = read_mostly::shared(5);
    /// let handle = value.handle();
    /// assert_eq!(handle.try_read(|value| value + 1), Ok(6));
    /// drop(value);
    /// assert!(handle.try_read(|value| value + 1).is_err());
    /// ```
    ///
    /// # Errors
    /// [`CallError`] if the object was destroyed. `f` was not called.
    fn try_read<R>(self, f: impl FnOnce(&T) -> R) -> Result<R, CallError>;

    /// Like [`read`](ReadMostlyExt::read), but also passes the version of the value.
    ///
    /// ```
    /// use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
    ///
    /// let value = read_mostly::shared('a');
    /// value.set('b');
    /// assert_eq!(value.read_versioned(|value, version| (*value, version)), ('b', 2));
    /// ```
    fn read_versioned<R>(self, f: impl FnOnce(&T, u64) -> R) -> R;

    /// Returns a copy of the value. For types that are not `Copy`, see
    /// [`get_cloned`](ReadMostlyExt::get_cloned) and [`read`](ReadMostlyExt::read).
    ///
    /// ```
    /// use squall::objects::read_mostly::{self, ReadMostlyExt};
    ///
    /// assert_eq!(read_mostly::shared(5).get(), 5);
    /// ```
    fn get(self) -> T
    where
        T: Copy;

    /// Returns a clone of the value. A change of the clone does not change the object.
    ///
    /// ```
    /// use squall::objects::read_mostly::{self, ReadMostlyExt};
    ///
    /// assert_eq!(read_mostly::shared(vec![5]).get_cloned(), [5]);
    /// ```
    fn get_cloned(self) -> T
    where
        T: Clone;

    /// Replaces the value by the result of `f`, and returns the new version. Calls `f` again if another
    /// change was faster.
    ///
    /// `f` runs in an operation and under no lock.
    ///
    /// ```
    /// use squall::objects::read_mostly::{self, ReadMostlyExt};
    ///
    /// let value = read_mostly::shared(5);
    /// assert_eq!((value.update(|old| old * 2), value.get()), (2, 10));
    /// ```
    ///
    /// # Panics
    /// If `f` panics: the value is unchanged. Also if the waker of a waiting task panics, like
    /// [`set`](ReadMostly::set).
    fn update(self, f: impl FnMut(&T) -> T) -> u64;

    /// Subscribes to changes from now on.
    ///
    /// ```
    /// use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
    ///
    /// let value = read_mostly::shared(5);
    /// let mut changes = value.subscribe();
    /// value.set(6);
    /// assert_eq!(changes.wait().unwrap(), 2);
    /// ```
    fn subscribe(self) -> Subscription<T>;

    /// Changes the size of the clusters that have a replica each, by a hot-swap.
    ///
    /// An [`adaptive`] value becomes copied for each cluster of this size. For [`ClusterSize::Machine`] it
    /// becomes shared. Its policy continues.
    ///
    /// ```
    /// use squall::ClusterSize;
    /// use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
    ///
    /// let value = read_mostly::distributed(5, ClusterSize::Node);
    /// value.set_cluster_size(ClusterSize::Core).unwrap();
    /// assert_eq!((value.cluster_size(), value.get()), (ClusterSize::Core, 5));
    /// ```
    ///
    /// # Errors
    /// [`SwapError`]: the object is unchanged.
    /// # Cost
    /// The cost of a [`Swap`]. Each cluster creates its replica at its next read.
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError>;
}

impl<T: Send + Sync + 'static> ReadMostlyExt<T> for Handle<dyn ReadMostly<T>> {
    #[inline]
    #[track_caller]
    fn read<R>(self, f: impl FnOnce(&T) -> R) -> R {
        self.__call_action("find", Read(|value: &Versioned<T>| f(value)), panics_in!("read"))
    }

    #[inline]
    fn try_read<R>(self, f: impl FnOnce(&T) -> R) -> Result<R, CallError> {
        self.__call_action("find", Read(|value: &Versioned<T>| Ok(f(value))), returns_in!("read"))
    }

    #[inline]
    #[track_caller]
    fn read_versioned<R>(self, f: impl FnOnce(&T, u64) -> R) -> R {
        let read = |value: &Versioned<T>| f(value, Versioned::version(value));
        self.__call_action("find", Read(read), panics_in!("read_versioned"))
    }

    #[inline]
    #[track_caller]
    fn get(self) -> T
    where
        T: Copy,
    {
        self.__call_action("find", Read(|value: &Versioned<T>| **value), panics_in!("get"))
    }

    #[inline]
    #[track_caller]
    fn get_cloned(self) -> T
    where
        T: Clone,
    {
        self.__call_action("find", Read(|value: &Versioned<T>| T::clone(value)), panics_in!("get_cloned"))
    }

    #[track_caller]
    fn update(self, mut f: impl FnMut(&T) -> T) -> u64 {
        loop {
            let read = |value: &Versioned<T>| (f(value), Versioned::version(value));
            let (value, version) = self.__call_action("find", Read(read), panics_in!("update"));
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
        let new = self.try_resized(size).unwrap_or_else(|error| panics_in!("set_cluster_size").answer(error));
        Swap::new(self).run(new)
    }
}

/// Owner of a read-mostly value. Dropping it destroys the object. It dereferences to the handle.
///
/// ```
/// use squall::objects::read_mostly::{OwnedReadMostly, ReadMostlyExt};
///
/// let limit: OwnedReadMostly<u32> = 7.into();
/// assert_eq!(limit.get(), 7);
/// assert_eq!(OwnedReadMostly::<u32>::default().get(), 0);
/// ```
pub struct OwnedReadMostly<T: Send + Sync + 'static>(Owned<dyn ReadMostly<T>>);

impl<T: Send + Sync + 'static> OwnedReadMostly<T> {
    /// Gives the object a name for people, and returns its owner: see [`Owned::named`].
    pub fn named(self, name: impl Into<Arc<str>>) -> OwnedReadMostly<T> {
        OwnedReadMostly(self.0.named(name))
    }

    /// Declares the object to be a part of another one, for people, and returns its owner: see
    /// [`Owned::part_of`].
    pub fn part_of<W: ?Sized + Interface>(self, whole: Handle<W>) -> OwnedReadMostly<T> {
        OwnedReadMostly(self.0.part_of(whole))
    }

    /// Converts to the general owner type.
    ///
    /// ```
    /// use squall::Owned;
    /// use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
    ///
    /// let owned: Owned<dyn ReadMostly<u32>> = read_mostly::shared(7).into_owned();
    /// assert_eq!(owned.get(), 7);
    /// ```
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
    /// Creates a value in the form of [`shared`].
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
    /// Serializes the value alone.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.handle().read(|value| value.serialize(serializer))
    }
}

#[cfg(feature = "serde")]
impl<'de, T: Send + Sync + serde::Deserialize<'de> + 'static> serde::Deserialize<'de> for OwnedReadMostly<T> {
    /// Deserializes a value into the form of [`shared`].
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<OwnedReadMostly<T>, D::Error> {
        T::deserialize(deserializer).map(shared)
    }
}

/// Creates a value with one replica.
///
/// ```
/// use squall::objects::read_mostly::{self, ReadMostlyExt};
///
/// let config = read_mostly::shared(String::from("a = 1"));
/// assert!(config.read(|config| config.starts_with('a')));
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn shared<T: Send + Sync + 'static>(value: T) -> OwnedReadMostly<T> {
    have_sizes::<T>();
    OwnedReadMostly(Distributed::<T, FIXED, false>::new(Master::new(value)).create(ClusterSize::Machine))
}

/// Creates a value with a replica for each cluster of size `size` that reads. A change updates all replicas
/// before it returns.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::read_mostly::{self, ReadMostlyExt};
///
/// let config = read_mostly::distributed(1, ClusterSize::Core);
/// config.update(|old| old + 1);
/// assert_eq!(config.get(), 2);
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn distributed<T: Send + Sync + 'static>(value: T, size: ClusterSize) -> OwnedReadMostly<T> {
    have_sizes::<T>();
    OwnedReadMostly(Distributed::<T, FIXED, true>::new(Master::new(value)).create(size))
}

/// Creates a value with a copy for each cluster of size `size` that reads. A change only invalidates the
/// copies. Each cluster creates a new copy at its next read.
///
/// Interior state of the copies, such as atomics, differs from cluster to cluster. Several threads of a
/// cluster may clone the value at once after a change; one clone is kept. `T::clone` runs in the operation of
/// a read, so it must not wait. If it panics, that read panics.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::read_mostly::{self, ReadMostlyExt};
///
/// let table = read_mostly::copied(vec![1, 2, 3], ClusterSize::Cache);
/// assert_eq!(table.read(|table| table.iter().sum::<i32>()), 6);
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
/// # Source
/// Invalidation instead of update: Gamsa et al. 1999, Tornado (TO-04).
#[track_caller]
pub fn copied<T: Clone + Send + Sync + 'static>(value: T, size: ClusterSize) -> OwnedReadMostly<T> {
    have_sizes::<T>();
    OwnedReadMostly(Distributed::<T, FIXED, true>::new(Master::copied(value)).create(size))
}

/// Creates an adaptive value: it starts in the form of [`shared`] and becomes [`copied`] for each cache while
/// its load asks for that.
///
/// The first call registers the policy and starts its thread, `squall-adapt`. See
/// [`squall::adapt::engine`](squall_adapt::engine).
///
/// ```
/// use squall::objects::read_mostly::{self, ReadMostlyExt};
///
/// let config = read_mostly::adaptive(vec![1, 2, 3]);
/// assert_eq!(config.get_cloned(), [1, 2, 3]);
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
/// # Cost
/// The cost of [`shared`], and a lookup in the list of families.
#[track_caller]
pub fn adaptive<T: Clone + Send + Sync + 'static>(value: T) -> OwnedReadMostly<T> {
    have_sizes::<T>();
    family::register(policy::family::<T>());
    engine::start();
    OwnedReadMostly(
        Distributed::<T, ADAPTS, false>::with_copies(Master::new(value)).create(ClusterSize::Machine),
    )
}

/// Registers the attribute [`CLUSTER_SIZE`](crate::CLUSTER_SIZE) for values of this type.
fn have_sizes<T: Send + Sync + 'static>() {
    sizes::have::<dyn ReadMostly<T>>(
        |handle| handle.try_cluster_size().ok(),
        |handle, size| Some((handle, handle.try_resized(size).ok()?)),
    );
}

/// Values of the parameter `ADAPTS`: whether an implementation posts to the policy. Adaptive values have
/// classes of their own.
const FIXED: bool = false;
const ADAPTS: bool = true;

/// Returns a replacement in the form of [`shared`], for a hot-swap. It takes over the value.
///
/// If a swap moves no state into it ([`Swap::without_state`]), every call of the value fails.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::read_mostly::{self, ReadMostlyExt};
/// use squall::swap::swap;
///
/// let value = read_mostly::copied(5, ClusterSize::Cpu);
/// swap(value.handle(), read_mostly::new_shared()).unwrap();
/// assert_eq!(value.get(), 5);
/// ```
pub fn new_shared<T: Send + Sync + 'static>() -> Replacement<dyn ReadMostly<T>> {
    Replacement::root(Distributed::<T, FIXED, false>::new(Master::vacant_updated()), ClusterSize::Machine)
}

/// Returns a replacement in the form of [`distributed`], for a hot-swap. It takes over the value.
///
/// If a swap moves no state into it ([`Swap::without_state`]), every call of the value fails.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::read_mostly::{self, ReadMostlyExt};
/// use squall::swap::swap;
///
/// let value = read_mostly::shared(5);
/// swap(value.handle(), read_mostly::new_distributed(ClusterSize::Cpu)).unwrap();
/// assert_eq!(value.get(), 5);
/// ```
pub fn new_distributed<T: Send + Sync + 'static>(size: ClusterSize) -> Replacement<dyn ReadMostly<T>> {
    Replacement::root(Distributed::<T, FIXED, true>::new(Master::vacant_updated()), size)
}

/// Returns a replacement in the form of [`copied`], for a hot-swap. It takes over the value.
///
/// If a swap moves no state into it ([`Swap::without_state`]), every call of the value fails.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::read_mostly::{self, ReadMostlyExt};
/// use squall::swap::swap;
///
/// let value = read_mostly::shared(5);
/// swap(value.handle(), read_mostly::new_copied(ClusterSize::Cpu)).unwrap();
/// assert_eq!(value.get(), 5);
/// ```
pub fn new_copied<T: Clone + Send + Sync + 'static>(size: ClusterSize) -> Replacement<dyn ReadMostly<T>> {
    Replacement::root(Distributed::<T, FIXED, true>::new(Master::vacant_copied()), size)
}
