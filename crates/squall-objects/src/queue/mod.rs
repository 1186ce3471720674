//! Priority queues that change form, order and balancing while they are used. Feature: `queues`.
//!
//! | form | a get returns | heaps | use it for |
//! |---|---|---|---|
//! | [`strict`] | the first element of all | one | an order that must be exact |
//! | [`relaxed`] | one of the first elements | two per calling VP | many clients that need a good order |
//! | [`local`] | the first one of the caller's own heap | one per calling VP | work that should stay near |
//! | [`adaptive`] | as its present form | as its present form | a load that changes |
//!
//! A VP is a processor, as Squall numbers it. A priority is a `u64`, and the lowest one comes first. Elements
//! of equal priority have no order. An adaptive queue starts as [`strict`], becomes [`relaxed`] while several
//! VPs use it, and goes back afterwards. So it promises the order of the relaxed form. It becomes [`local`]
//! only if the program [allows](Queue::allow_local) that.
//!
//! [`Attributes`] say how elements are placed and moved: `topology`, `insertion`, `balance-every` and
//! `stickiness`. With `which-priority` and `allow-local` they can be set by name, in `squall top`, in a
//! browser, or by [`control::set_attribute`](squall_adapt::control::set_attribute). A single put may have an
//! [`INSERTION`] of its own. The form is no attribute: a [swap](squall_core::swap) changes it.
//!
//! All forms have one interface, [`Queue`], and are called through a `Handle<dyn Queue<T>>`. [`QueueExt`] has
//! the methods that put, get, take and wait.
//!
//! ```
//! use squall::objects::queue::{self, Queue, QueueExt};
//!
//! let jobs = queue::adaptive::<&str>();
//! jobs.put(20, "later")?;
//! jobs.put(10, "soon")?;
//! assert_eq!(jobs.first_priority(), Some(10));
//! assert_eq!(jobs.get(), Some((10, "soon")));
//! # Ok::<(), queue::Rejected<&str>>(())
//! ```
//!
//! # Searches
//! In a search an empty queue is not the end, since a worker with an element may put others. So workers
//! [take](QueueExt::take_wait) elements. An element that was taken is unfinished until it is dropped.
//! [`End::Done`] says that the queue is empty and each element is finished. The first elements are put before
//! the first worker waits.
//!
//! ```
//! use squall::objects::counter::{self, Counter};
//! use squall::objects::queue::{self, End, QueueExt};
//!
//! let (work, leaves) = (queue::relaxed::<u32>(), counter::adaptive());
//! work.put(0, 5)?;
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             let end = loop {
//!                 match work.take_wait() {
//!                     Ok(n) if *n == 0 => leaves.inc(),
//!                     // Each element leads to two others, which are put before it is dropped.
//!                     Ok(n) => (0..2).for_each(|_| work.put(n.priority() + 1, *n - 1).unwrap()),
//!                     Err(end) => break end,
//!                 }
//!             };
//!             assert_eq!(end, End::Done);
//!         });
//!     }
//! });
//! assert_eq!(leaves.total(), 32);
//! # Ok::<(), queue::Rejected<u32>>(())
//! ```
//!
//! # When not
//! Use a bag if the order does not matter. Use a heap without locks if one thread puts and gets.
//!
//! # Guarantees
//! - Each element is got once. Swaps between forms keep all elements, and the threads that wait.
//! - [`get`](QueueExt::get) returns `None` only if at one moment of the call the queue was empty.
//! - [`End::Done`] is exact, in each form and across swaps.
//! - A put never loses its element: a closed queue gives it back, and so does [`try_put`](QueueExt::try_put)
//!   if the object was destroyed.
//!
//! # Limits
//! - A swap to another form moves all elements after it has ended the wait of other calls. Those that put or
//!   get then wait for the move.
//! - Each VP that puts, gets or finishes an element is a neighbour in the local form from then on.
//! - The relaxed form may return an element behind the first one. The local form returns the first one of
//!   another VP only if the caller's heap is empty.
//! - The policy of adaptive queues runs on a thread, `squall-adapt`, which the first one starts.
//! - The wakers of tasks that wait run inside the call that puts or finishes. They must not wait.
//! - An unfinished element that is leaked keeps the work from being done.
//! - Signal handlers must not use a queue. In the child of a fork, calls fail: see
//!   [forked children](squall_core#forked-children).
//!
//! [`squall::parts::queue`](squall_parts::queue) has the queue without an object.

mod actions;
mod classes;
mod error;
mod ext;
mod forms;
mod policy;
mod settings;
mod taken;

use squall_adapt::{engine, family};
use squall_core::swap::Replacement;
use squall_core::{Owned, Root};
use squall_machine::{ClusterSize, Vp};
use squall_macros::interface;
use squall_parts::queue::Client;

pub use error::{End, PutError, WaitError};
pub use ext::QueueExt;
pub use policy::{LOCAL, RELAXED, STRICT};
pub use settings::{INSERTION, InsertionType};
pub use squall_parts::queue::{Attributes, Counts, Form, Insertion, Rejected, Topology, WhichPriority};
pub use taken::Taken;

use forms::{Contents, Forms};

/// A priority queue, as implementations provide it. [`QueueExt`] has the methods that put, get, take and
/// wait.
///
/// Progress: see [`squall_parts::queue`]. Calls wait for the holders of heaps' locks.
///
/// ```
/// use squall::objects::queue::{self, Form, Queue};
///
/// let jobs = queue::strict::<u32>();
/// jobs.put_batch(vec![(3, 30), (1, 10), (2, 20)]).unwrap();
/// assert_eq!((jobs.len(), jobs.form()), (3, Form::Strict));
/// assert_eq!(jobs.get_batch(2), [(1, 10), (2, 20)]);
/// ```
///
/// # Source
/// KTK §2.2 and §3: a queue of fragments with attributes (KT-06, KT-11 to KT-13 in `docs/mechanisms.md`).
#[interface(crate = squall_core, view = QueueView)]
pub trait Queue<T: Send + 'static>: Send + Sync {
    /// Puts an element. [`QueueExt::put`] does the same without a virtual call.
    ///
    /// # Errors
    /// [`Rejected`], with the element, if the queue is closed.
    fn put_one(&self, priority: u64, value: T) -> Result<(), Rejected<T>>;

    /// Removes an element. [`QueueExt::get`] does the same without a virtual call.
    fn get_one(&self) -> Option<(u64, T)>;

    /// Puts several elements with their priorities, one after the other.
    ///
    /// # Errors
    /// The elements that were not put, if the queue is closed.
    fn put_batch(&self, elements: Vec<(u64, T)>) -> Result<(), Vec<(u64, T)>>;

    /// Removes up to `max` elements, one after the other. It returns fewer only if the queue was empty at one
    /// moment of the call.
    fn get_batch(&self, max: usize) -> Vec<(u64, T)>;

    /// Returns the number of elements: an estimate while others put and get.
    fn len(&self) -> usize;

    /// Returns whether the queue was empty at one moment of the call. Exact.
    fn is_empty(&self) -> bool;

    /// Returns the priority of the first element of all: an estimate while others put and get.
    fn first_priority(&self) -> Option<u64>;

    /// Returns the form. A swap changes it.
    fn form(&self) -> Form;

    /// Returns the priorities that come first. The default is [`WhichPriority::Lowest`].
    fn which_priority(&self) -> WhichPriority;

    /// Changes the priorities that come first, for all elements. Swaps keep it.
    ///
    /// # Cost
    /// All heaps are locked meanwhile: time in proportion to the number of elements.
    fn set_which_priority(&self, which: WhichPriority);

    /// Returns whether an adaptive queue may become [`local`]. The default is false.
    fn allows_local(&self) -> bool;

    /// Says whether an adaptive queue may become [`local`], if that costs less than the other forms. Swaps
    /// keep it. A queue that is local already stays so until its load ends.
    fn allow_local(&self, allow: bool);

    /// Returns the sums of the queue's counts since it was created, across swaps too.
    fn counts(&self) -> Counts;

    /// Closes the queue: it rejects puts from now on. Gets take the elements that are left, and then waits
    /// end. Swaps keep it closed.
    fn close(&self);

    /// Returns whether the queue was [closed](Queue::close).
    fn is_closed(&self) -> bool;

    /// Returns whether the work was done at one moment of the call: each element was got, or
    /// [taken](QueueExt::take) and finished. Exact, and stable if only clients with an unfinished element
    /// put.
    fn is_done(&self) -> bool;

    /// Removes an element that counts as unfinished, and returns the number of its contents too.
    #[doc(hidden)]
    fn take_one(&self) -> Option<(u64, T, u64)>;

    /// Finishes an element that was taken from the contents of this number.
    #[doc(hidden)]
    fn finish_one_unarbitrated(&self, number: u64);

    /// Returns the elements, which all forms of the object share, and the place whose heaps all callers use
    /// in the strict form.
    #[doc(hidden)]
    fn contents_unarbitrated(&self) -> (Contents<T>, Option<usize>);

    /// Reads the sensors, for policies. An implementation without sensors returns zeros.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }

    /// Sets the sensor to trip after about `after` steps, for policies. Zero switches it off.
    fn arm(&self, after: u32) {
        let _ = after;
    }
}

/// One of `1 << SAMPLE_LOG2` calls on the home VP of an adaptive queue is counted.
const SAMPLE_LOG2: u32 = 6;

/// The view of a queue: the client that calls use directly.
pub struct QueueView<'rep, T: Send + 'static> {
    client: Option<Client<'rep, T>>,
    /// Only calls on this VP may use the client. If empty, all calls may.
    only: Option<Vp>,
    /// Number of the contents.
    number: u64,
    /// The form is local, so a put may have an insertion of its own.
    is_local: bool,
}

impl<T: Send + 'static> Clone for QueueView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + 'static> Copy for QueueView<'_, T> {}

impl<T: Send + 'static> Default for QueueView<'_, T> {
    fn default() -> Self {
        QueueView { client: None, only: None, number: 0, is_local: false }
    }
}

/// Readings of a queue's sensors.
///
/// ```
/// use squall::objects::queue::{self, Queue};
///
/// let jobs = queue::strict::<u32>();
/// assert_eq!(jobs.get_one(), None);
/// let sensors = jobs.sensors();
/// assert_eq!((sensors.reps, sensors.dry), (1, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sensors {
    /// Number of calls on the home VP of the queue or of the representative, estimated from one in 64. Zero
    /// in queues that do not adapt.
    pub local: u64,
    /// Number of calls from other VPs. Zero in queues that do not adapt.
    pub foreign: u64,
    /// Number of gets that found the queue empty.
    pub dry: u64,
    /// Home VP in the strict form; empty in the others.
    pub home: Option<Vp>,
    /// Number of representatives.
    pub reps: usize,
}

/// Creates a queue with one heap. A get returns the first element of all.
///
/// ```
/// use squall::objects::queue::{self, QueueExt};
///
/// let jobs = queue::strict();
/// jobs.put(7, "a job")?;
/// assert_eq!((jobs.get(), jobs.get()), (Some((7, "a job")), None));
/// # Ok::<(), queue::Rejected<&str>>(())
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn strict<T: Send + 'static>() -> Owned<dyn Queue<T>> {
    settings::have::<T>();
    Forms::<T, FIXED, STRICT_FORM>::new(Vp::current()).create(ClusterSize::Machine)
}

/// Creates a queue with two heaps for each VP that calls. A get returns one of the first elements.
///
/// ```
/// use squall::objects::queue::{self, QueueExt};
///
/// let jobs = queue::relaxed();
/// std::thread::scope(|scope| {
///     scope.spawn(|| jobs.put(7, "a job"));
/// });
/// assert_eq!(jobs.get(), Some((7, "a job"))); // wherever it is
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn relaxed<T: Send + 'static>() -> Owned<dyn Queue<T>> {
    settings::have::<T>();
    Forms::<T, FIXED, RELAXED_FORM>::new(Vp::current()).create(ClusterSize::Cpu)
}

/// Creates a queue with a heap for each VP that calls. A get returns the first element of the caller's heap,
/// or an element of another heap if that one is empty. [`Attributes`] say how elements move between heaps.
///
/// ```
/// use squall::objects::queue::{self, QueueExt, Topology};
///
/// let work = queue::local();
/// work.attributes(|attributes| attributes.set_topology(Topology::All));
/// work.put(7, "a node")?;
/// assert_eq!(work.get(), Some((7, "a node")));
/// # Ok::<(), queue::Rejected<&str>>(())
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn local<T: Send + 'static>() -> Owned<dyn Queue<T>> {
    settings::have::<T>();
    Forms::<T, FIXED, LOCAL_FORM>::new(Vp::current()).create(ClusterSize::Cpu)
}

/// Creates an adaptive queue: it starts in the form of [`strict`] and changes form with its load. It promises
/// the order of the form [`relaxed`]; with [`Queue::allow_local`], that of [`local`].
///
/// The first call registers the policy and starts its thread, `squall-adapt`. See
/// [`squall::adapt::engine`](squall_adapt::engine).
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control;
/// use squall::objects::queue;
///
/// let jobs = queue::adaptive::<u32>();
/// let status = control::status(Handle::id(jobs.handle())).unwrap();
/// assert_eq!((status.family, status.form), ("queue", queue::STRICT));
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
/// # Cost
/// The cost of [`strict`], and a lookup in the list of families. Calls compare their VP with the home.
#[track_caller]
pub fn adaptive<T: Send + 'static>() -> Owned<dyn Queue<T>> {
    family::register(policy::family::<T>());
    engine::start();
    settings::have::<T>();
    Forms::<T, ADAPTS, STRICT_FORM>::new(Vp::current()).create(ClusterSize::Machine)
}

/// Values of the parameter `ADAPTS`: whether an implementation posts to the policy. Adaptive queues have
/// classes of their own.
const FIXED: bool = false;
const ADAPTS: bool = true;

/// Values of the parameter `FORM`: indices in [`Form::ALL`], and in the family's forms.
const STRICT_FORM: usize = 0;
const RELAXED_FORM: usize = 1;
const LOCAL_FORM: usize = 2;

/// Returns a replacement in the form of [`strict`], for a hot-swap. It takes over the elements and the
/// threads that wait.
///
/// ```
/// use squall::objects::queue::{self, QueueExt};
/// use squall::swap::swap;
///
/// let jobs = queue::local();
/// jobs.put(7, "a job")?;
/// swap(jobs.handle(), queue::new_strict()).unwrap();
/// assert_eq!(jobs.get(), Some((7, "a job")));
/// # Ok::<(), queue::Rejected<&str>>(())
/// ```
pub fn new_strict<T: Send + 'static>() -> Replacement<dyn Queue<T>> {
    Replacement::root(Forms::<T, FIXED, STRICT_FORM>::new(Vp::current()), ClusterSize::Machine)
}

/// Returns a replacement in the form of [`relaxed`], for a hot-swap. It takes over the elements and the
/// threads that wait.
///
/// ```
/// use squall::objects::queue::{self, Form, Queue};
/// use squall::swap::swap;
///
/// let jobs = queue::strict::<u32>();
/// swap(jobs.handle(), queue::new_relaxed()).unwrap();
/// assert_eq!(jobs.form(), Form::Relaxed);
/// ```
pub fn new_relaxed<T: Send + 'static>() -> Replacement<dyn Queue<T>> {
    Replacement::root(Forms::<T, FIXED, RELAXED_FORM>::new(Vp::current()), ClusterSize::Cpu)
}

/// Returns a replacement in the form of [`local`], for a hot-swap. It takes over the elements and the threads
/// that wait.
///
/// ```
/// use squall::objects::queue::{self, Form, Queue};
/// use squall::swap::swap;
///
/// let work = queue::strict::<u32>();
/// swap(work.handle(), queue::new_local()).unwrap();
/// assert_eq!(work.form(), Form::Local);
/// ```
pub fn new_local<T: Send + 'static>() -> Replacement<dyn Queue<T>> {
    Replacement::root(Forms::<T, FIXED, LOCAL_FORM>::new(Vp::current()), ClusterSize::Cpu)
}
