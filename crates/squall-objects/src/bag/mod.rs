//! Bags: unordered pools of buffers, connections, ids or work items. Feature: `bags`.
//!
//! | form | put and get | get, if the caller's shard is empty | memory |
//! |---|---|---|---|
//! | [`shared`] | a lock that is biased to one VP, the home | answers at once | one shard |
//! | [`distributed`] | a lock that is biased to the caller's VP | looks at every shard | one per calling VP |
//! | [`adaptive`] | as its present form | as its present form | as its present form |
//!
//! A VP is a processor, as Squall numbers it. A lock biased to a VP costs that VP a few plain instructions.
//! The home of a shared bag is the VP that created it. Other VPs contend for its cache lines. In a
//! distributed bag, a VP that mostly gets takes elements of the others, usually fifty at a time. An adaptive
//! bag starts as [`shared`], becomes [`distributed`] while several VPs use it, and goes back afterwards.
//!
//! [`Attributes`] are the strategy of the distributed form and its constants. They can be set by name, with a
//! dash for each underscore: in `squall top`, in a browser, or by
//! [`control::set_attribute`](squall_adapt::control::set_attribute).
//!
//! All forms have one interface, [`Bag`], and are called through a `Handle<dyn Bag<T>>`. [`BagExt`] has the
//! methods that put, get and wait. [`BoundedBag`] has a limit, at which puts fail or wait.
//!
//! ```
//! use squall::objects::bag::{self, Bag, BagExt};
//!
//! let buffers = bag::adaptive::<Vec<u8>>();
//! buffers.put_batch((0..8).map(|_| vec![0; 4096]).collect());
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             let mut buffer = buffers.get().unwrap_or_default();
//!             buffer.clear();
//!             buffers.put(buffer);
//!         });
//!     }
//! });
//! assert_eq!(buffers.len(), 8);
//! ```
//!
//! # Workers
//! A worker takes jobs until its bag is destroyed. The owner of the bag waits until no thread puts any more,
//! takes part in the rest, and destroys the bag. Elements that are left at that moment are dropped.
//!
//! ```
//! use squall::objects::bag::{self, BagExt};
//! use squall::objects::counter::{self, Counter};
//!
//! let (jobs, sum) = (bag::adaptive::<u64>(), counter::adaptive());
//! let (bag, total) = (jobs.handle(), sum.handle());
//! let worker = std::thread::spawn(move || {
//!     while let Ok(job) = bag.get_wait() {
//!         total.add(job);
//!     }
//! });
//! (1..=100).for_each(|job| jobs.put(job));
//! while let Some(job) = jobs.get() {
//!     total.add(job);
//! }
//! drop(jobs); // ends the worker, after the job that it has
//! worker.join().unwrap();
//! assert_eq!(sum.total(), 5050);
//! ```
//!
//! # When not
//! Use a queue if the order matters. Use a vector if one thread puts and gets. A bag whose elements are all
//! put by one VP and got by another one moves every element between their caches, in each form.
//!
//! # Guarantees
//! - Each element is got once. Swaps keep all elements.
//! - [`get`](BagExt::get) returns `None` only if at one moment of the call the bag was empty, also while
//!   elements move between shards, and across swaps and changes of the strategy.
//! - The drop of an element runs in the program's own code, or after the bag was destroyed.
//!
//! # Limits
//! - The policy of adaptive bags runs on a thread, `squall-adapt`, which the first one starts.
//! - The wakers of tasks that wait run inside the call that puts. They must not wait for room or elements.
//!
//! - Signal handlers must not use a bag. In the child of a fork, calls fail: see
//!   [forked children](squall_core#forked-children).
//!
//! [`squall::parts::bag`](squall_parts::bag) has the bag without an object.

mod bounded;
mod classes;
mod ext;
mod forms;
mod idle;
mod policy;
mod settings;

use squall_adapt::{engine, family};
use squall_core::swap::Replacement;
use squall_core::{Owned, Root};
use squall_machine::{ClusterSize, Vp};
use squall_macros::interface;
use squall_parts::bag::{self as parts, Client};
use std::sync::Arc;

pub use bounded::{BoundedBag, BoundedHandle, Room};
pub use ext::BagExt;
pub(crate) use ext::{get_in_turn, put_back};
pub use idle::{has_thread, set_thread};
pub use policy::{DISTRIBUTED, SHARED};
pub use squall_parts::bag::{Attributes, Counts, Strategy};

use forms::Forms;
use idle::Round;

/// An unordered pool, as implementations provide it. [`BagExt`] has the methods that put, get and wait.
///
/// Progress: see [`squall_parts::bag`]. A call waits only for the holder of a shard's lock, and
/// [`get`](BagExt::get) also for transfers in progress.
///
/// ```
/// use squall::objects::bag::{self, Bag};
///
/// let ids = bag::shared::<u32>();
/// ids.put_batch(vec![1, 2, 3]);
/// assert_eq!(ids.len(), 3);
/// assert_eq!(ids.get_batch(10).len(), 3);
/// assert_eq!(ids.get_one(), None);
/// ```
///
/// # Source
/// Wentzlaff et al., fos: dPool (DP-01 to DP-17 in `docs/mechanisms.md`).
#[interface(crate = squall_core, view = BagView)]
pub trait Bag<T: Send + 'static>: Send + Sync {
    /// Puts an element. [`BagExt::put`] does the same without a virtual call.
    fn put_one(&self, value: T);

    /// Takes an element. [`BagExt::get`] does the same without a virtual call.
    fn get_one(&self) -> Option<T>;

    /// Puts several elements, in blocks: others may see a part of them.
    fn put_batch(&self, values: Vec<T>);

    /// Takes up to `max` elements. It returns fewer only if the bag was empty at one moment of the call.
    fn get_batch(&self, max: usize) -> Vec<T>;

    /// Returns the sum of the shards' sizes, read one after the other: an estimate.
    fn len(&self) -> usize;

    /// Returns whether [`len`](Bag::len) is 0. Only [`BagExt::get`] is exact.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of the shard that calls of this thread use. It may be out of date.
    fn local_len(&self) -> usize;

    /// Tells the bag that the calling VP is idle. Once per [`Attributes::idle_events`] calls it may move
    /// elements between shards, as the strategy says. An executor calls it when it has no task to run.
    /// Otherwise a thread can do this work: see [`set_thread`].
    fn idle(&self);

    /// Returns the strategy of the distributed form. The default is [`Strategy::EstimatedPush`].
    fn strategy(&self) -> Strategy;

    /// Sets the strategy. Elements stay where they are, and all calls still find them. Swaps keep it.
    fn set_strategy(&self, strategy: Strategy);

    /// Returns the sums of the bag's counts since it was created, across swaps too.
    fn counts(&self) -> Counts;

    /// Does the idle work of all shards once, if there are several.
    #[doc(hidden)]
    fn balance(&self) -> Option<Round> {
        None
    }

    /// Takes an element, but overtakes no wait: returns `None` also if others wait. With `spare` it leaves at
    /// least one element in each other shard.
    #[doc(hidden)]
    fn get_in_turn(&self, spare: bool) -> Option<T>;

    /// Returns the elements, which all forms of the object share, and the place of the one shard in the
    /// shared form.
    #[doc(hidden)]
    fn contents_unarbitrated(&self) -> (Arc<parts::Bag<T>>, Option<usize>);

    /// Reads the sensors, for policies. An implementation without sensors returns zeros.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }

    /// Sets the sensor to trip after about `after` steps, for policies. Zero switches it off.
    fn arm(&self, after: u32) {
        let _ = after;
    }
}

/// One of `1 << SAMPLE_LOG2` calls on the home VP of an adaptive bag is counted.
const SAMPLE_LOG2: u32 = 6;

/// The view of a bag: the client that calls use directly.
pub struct BagView<'rep, T: Send + 'static> {
    client: Option<Client<'rep, T>>,
    /// VP whose calls may use the client. If empty, all calls may.
    only: Option<Vp>,
}

impl<T: Send + 'static> Clone for BagView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + 'static> Copy for BagView<'_, T> {}

impl<T: Send + 'static> Default for BagView<'_, T> {
    fn default() -> Self {
        BagView { client: None, only: None }
    }
}

/// Readings of a bag's sensors.
///
/// ```
/// use squall::objects::bag::{self, Bag};
///
/// let ids = bag::shared::<u32>();
/// assert_eq!(ids.get_one(), None);
/// let sensors = ids.sensors();
/// assert_eq!((sensors.reps, sensors.visits), (1, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sensors {
    /// Number of calls on the home VP of the bag or of the representative, estimated from one in 64. Zero in
    /// bags that do not adapt.
    pub local: u64,
    /// Number of calls from other VPs. Zero in bags that do not adapt.
    pub foreign: u64,
    /// Number of gets that visited several shards: demand transfers, and gets that found the bag empty.
    pub visits: u64,
    /// Home VP; empty in the distributed form.
    pub home: Option<Vp>,
    /// Number of representatives.
    pub reps: usize,
}

/// Creates a bag with one shard, at home on the calling thread's VP.
///
/// ```
/// use squall::objects::bag::{self, BagExt};
///
/// let ids = bag::shared();
/// ids.put(7);
/// assert_eq!((ids.get(), ids.get()), (Some(7), None));
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn shared<T: Send + 'static>() -> Owned<dyn Bag<T>> {
    settings::have::<T>();
    Forms::<T, FIXED, false>::new(Vp::current()).create(ClusterSize::Machine)
}

/// Creates a bag with a shard for each VP that calls.
///
/// ```
/// use squall::objects::bag::{self, BagExt};
///
/// let jobs = bag::distributed();
/// std::thread::scope(|scope| {
///     scope.spawn(|| jobs.put("a job"));
/// });
/// assert_eq!(jobs.get(), Some("a job")); // wherever it is
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn distributed<T: Send + 'static>() -> Owned<dyn Bag<T>> {
    idle::start();
    settings::have::<T>();
    Forms::<T, FIXED, true>::new(Vp::current()).create(ClusterSize::Cpu)
}

/// Creates an adaptive bag: it starts in the form of [`shared`] and changes form with its load.
///
/// The first call registers the policy and starts its thread, `squall-adapt`. See
/// [`squall::adapt::engine`](squall_adapt::engine).
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control;
/// use squall::objects::bag;
///
/// let buffers = bag::adaptive::<Vec<u8>>();
/// let status = control::status(Handle::id(buffers.handle())).unwrap();
/// assert_eq!((status.family, status.form), ("bag", bag::SHARED));
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
/// # Cost
/// The cost of [`shared`], and a lookup in the list of families. Calls compare their VP with the home.
#[track_caller]
pub fn adaptive<T: Send + 'static>() -> Owned<dyn Bag<T>> {
    family::register(policy::family::<T>());
    engine::start();
    idle::start();
    settings::have::<T>();
    Forms::<T, ADAPTS, false>::new(Vp::current()).create(ClusterSize::Machine)
}

/// Values of the parameter `ADAPTS`: whether an implementation posts to the policy. Adaptive bags have
/// classes of their own.
const FIXED: bool = false;
const ADAPTS: bool = true;

/// Returns a replacement in the form of [`shared`], for a hot-swap. It takes over the elements and the
/// threads that wait. Its home is the calling thread's VP.
///
/// ```
/// use squall::objects::bag::{self, BagExt};
/// use squall::swap::swap;
///
/// let ids = bag::distributed();
/// ids.put(7);
/// swap(ids.handle(), bag::new_shared()).unwrap();
/// assert_eq!(ids.get(), Some(7));
/// ```
pub fn new_shared<T: Send + 'static>() -> Replacement<dyn Bag<T>> {
    Replacement::root(Forms::<T, FIXED, false>::new(Vp::current()), ClusterSize::Machine)
}

/// Returns a replacement in the form of [`distributed`], for a hot-swap. It takes over the elements and the
/// threads that wait.
///
/// ```
/// use squall::objects::bag::{self, BagExt};
/// use squall::swap::swap;
///
/// let ids = bag::shared();
/// ids.put(7);
/// swap(ids.handle(), bag::new_distributed()).unwrap();
/// assert_eq!(ids.get(), Some(7));
/// ```
pub fn new_distributed<T: Send + 'static>() -> Replacement<dyn Bag<T>> {
    Replacement::root(Forms::<T, FIXED, true>::new(Vp::current()), ClusterSize::Cpu)
}
