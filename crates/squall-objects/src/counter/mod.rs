//! Statistics counters: many threads add, few ask for the sum.
//!
//! | form | adding | asking for the sum | memory |
//! |---|---|---|---|
//! | [`shared`] | plain instructions on its home VP, else a locked addition | one cache line | one block |
//! | [`distributed`] | plain instructions on every VP | a line per adding VP | 256 bytes per adding VP |
//! | [`adaptive`] | as its present form | as its present form | as its present form |
//!
//! A VP is a processor, as Squall numbers it. The home VP of a shared counter is the one that created it.
//!
//! VPs that add to a shared counter at once contend for its cache line. An [`adaptive`] counter starts as
//! [`shared`], becomes [`distributed`] while several VPs add, and goes back afterwards.
//!
//! All three have one interface, [`Counter`], and are called through a `Handle<dyn Counter>`.
//!
//! ```
//! use squall::objects::counter::{self, Counter};
//!
//! let requests = counter::adaptive();
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| (0..1000).for_each(|_| requests.inc()));
//!     }
//! });
//! assert_eq!(requests.total(), 4000);
//! ```
//!
//! [`squall::adapt::control::history`](squall_adapt::control::history) lists the decisions about an adaptive
//! counter with their reasons. [`squall::adapt::control`](squall_adapt::control) and
//! [`squall::adapt::settings`](squall_adapt::settings) configure, freeze or query its policy.

mod distributed;
mod policy;
mod shared;

use squall_adapt::{engine, family};
use squall_core::swap::Replacement;
use squall_core::{CreateError, Handle, Owned, Root, swappable_with};
use squall_machine::{ClusterSize, Vp};
use squall_macros::interface;
use std::sync::Once;

use distributed::Distributed;
pub use policy::{DISTRIBUTED, SHARED};
use shared::Shared;

/// A counter of 64 bits. Additions wrap around on overflow.
///
/// Every form keeps all additions, across hot-swaps too.
///
/// Progress: wait-free, except that the kernel may restart a sequence and that a call waits for a swap. See
/// [`squall_machine::pervp::BiasedWord`].
///
/// ```
/// use squall::objects::counter::{self, Counter};
///
/// let bytes = counter::distributed();
/// bytes.add(100);
/// bytes.sub(30);
/// bytes.inc();
/// assert_eq!(bytes.total(), 71);
/// ```
#[interface(crate = squall_core)]
pub trait Counter: Send + Sync {
    /// Adds `n`.
    fn add(&self, n: u64);

    /// Adds one.
    fn inc(&self) {
        self.add(1);
    }

    /// Subtracts `n`.
    fn sub(&self, n: u64) {
        self.add(n.wrapping_neg());
    }

    /// Returns the sum of all additions that happened before this call, including the calling thread's own.
    ///
    /// Concurrent additions may or may not be included. A later one can be included while an earlier one is
    /// not.
    fn total(&self) -> u64;

    /// Reads the sensors, for policies. An implementation without sensors returns zeros.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }

    /// Sets the sensor to trip after about `after` steps, for policies. Zero switches it off.
    fn arm(&self, after: u32) {
        let _ = after;
    }
}

/// Readings of a counter's sensors.
///
/// ```
/// use squall::objects::counter::{self, Counter};
///
/// let counter = counter::shared();
/// counter.add(5);
/// let sensors = counter.sensors();
/// assert_eq!((sensors.here + sensors.elsewhere, sensors.reps), (5, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sensors {
    /// Sum of the additions made on the VP at which the counter, or the representative, is at home.
    pub here: u64,
    /// Sum of the additions made on other VPs.
    pub elsewhere: u64,
    /// Approximate number of calls of [`Counter::total`], counted by forms in which that call is expensive.
    pub totals: u64,
    /// VP at which the counter is at home; in the distributed form, the VP with the largest sum.
    pub place: Option<Vp>,
    /// Number of representatives.
    pub reps: usize,
}

/// Creates a counter with one representative, at home on the calling thread's VP.
///
/// ```
/// use squall::objects::counter::{self, Counter};
///
/// let jobs = counter::shared();
/// jobs.inc();
/// assert_eq!(jobs.total(), 1);
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`].
#[track_caller]
pub fn shared() -> Owned<dyn Counter> {
    made(swappable_with(|handle| Shared::<FIXED>::new(handle, Vp::current())))
}

/// Creates a counter with a representative for each VP that adds.
///
/// ```
/// use squall::objects::counter::{self, Counter};
///
/// let jobs = counter::distributed();
/// std::thread::scope(|scope| {
///     scope.spawn(|| jobs.add(2));
///     scope.spawn(|| jobs.add(3));
/// });
/// assert_eq!(jobs.total(), 5);
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`].
#[track_caller]
pub fn distributed() -> Owned<dyn Counter> {
    made(Distributed::<FIXED>::new().try_create(ClusterSize::Cpu))
}

/// Creates an adaptive counter: it starts in the form of [`shared`] and changes form with its load.
///
/// The first call registers the policy and starts its thread, `squall-adapt`. See
/// [`squall::adapt::engine`](squall_adapt::engine).
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control;
/// use squall::objects::counter;
///
/// let requests = counter::adaptive();
/// let status = control::status(Handle::id(requests.handle())).unwrap();
/// assert_eq!((status.family, status.form), ("counter", counter::SHARED));
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`].
#[track_caller]
pub fn adaptive() -> Owned<dyn Counter> {
    made(try_adaptive())
}

/// Like [`adaptive`], but returns an error instead of panicking.
///
/// ```
/// use squall::objects::counter::{self, Counter};
///
/// let counter = counter::try_adaptive()?;
/// assert_eq!(counter.total(), 0);
/// # Ok::<(), squall::CreateError>(())
/// ```
///
/// # Errors
/// [`CreateError`] if the object cannot be created.
/// # Cost
/// The cost of [`shared`]. The policy uses memory for a counter only after several VPs have used it.
#[track_caller]
pub fn try_adaptive() -> Result<Owned<dyn Counter>, CreateError> {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| family::register(&policy::COUNTERS));
    engine::start();
    swappable_with(|handle| Shared::<ADAPTS>::new(handle, Vp::current()))
}

/// Values of the parameter `ADAPTS`: whether an implementation posts to the policy. Adaptive counters have
/// classes of their own.
const FIXED: bool = false;
const ADAPTS: bool = true;

/// Returns a replacement in the form of [`shared`], for a hot-swap of the counter `handle`.
///
/// ```
/// use squall::objects::counter::{self, Counter};
/// use squall::swap::swap;
///
/// let counter = counter::distributed();
/// counter.add(7);
/// swap(counter.handle(), counter::new_shared(counter.handle())).unwrap();
/// assert_eq!((counter.total(), counter.sensors().reps), (7, 1));
/// ```
pub fn new_shared(handle: Handle<dyn Counter>) -> Replacement<dyn Counter> {
    Replacement::swappable(Shared::<FIXED>::new(handle, Vp::current()))
}

/// Returns a replacement in the form of [`distributed`], for a hot-swap of a counter.
///
/// ```
/// use squall::objects::counter::{self, Counter};
/// use squall::swap::swap;
///
/// let counter = counter::shared();
/// counter.add(7);
/// swap(counter.handle(), counter::new_distributed()).unwrap();
/// assert_eq!(counter.total(), 7);
/// ```
pub fn new_distributed() -> Replacement<dyn Counter> {
    Replacement::root(Distributed::<FIXED>::new(), ClusterSize::Cpu)
}

#[track_caller]
fn made(made: Result<Owned<dyn Counter>, CreateError>) -> Owned<dyn Counter> {
    made.unwrap_or_else(|error| panic!("cannot make a counter: {error}"))
}
