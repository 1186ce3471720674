//! Statistics counters: many add, few ask for the sum.
//!
//! | made by | adding | asking for the sum | memory |
//! |---|---|---|---|
//! | [`shared`] | plain instructions on one VP, a locked one elsewhere; where several VPs add, they fight for a line | one line | one block |
//! | [`distributed`] | plain instructions, on every VP | a line for each VP that ever added | a block, and 256 bytes for each such VP |
//! | [`adaptive`] | begins as shared, is distributed where several VPs are seen adding, and goes back when that is over | as the form that it has | as the form that it has |
//!
//! All three are the same to those who call them: a `Handle<dyn Counter>`.
//!
//! ```
//! use squall_core::{Handle, Owned};
//! use squall_objects::counter::{self, Counter};
//!
//! let requests: Owned<dyn Counter> = counter::adaptive();
//! let reference: Handle<dyn Counter> = requests.handle(); // `Copy`, for any thread or task
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(move || (0..1000).for_each(|_| reference.inc()));
//!     }
//! });
//! assert_eq!(reference.total(), 4000);
//! ```
//!
//! What an adaptive counter did, and why, is in [`squall_adapt::control::history`]; its policy can be set, frozen, or asked
//! what it would do by [`squall_adapt::control`] and [`squall_adapt::settings`].

mod shared;
mod policy;
mod distributed;

use squall_adapt::{engine, family};
use squall_core::swap::Replacement;
use squall_core::{Handle, CreateError, Owned, Root, swappable_with};
use squall_machine::{ClusterSize, Vp};
use squall_macros::interface;
use std::sync::Once;

use shared::Shared;
pub use policy::{SHARED, DISTRIBUTED};
use distributed::Distributed;

/// A counter.
///
/// Every form of it keeps all additions, across hot-swaps too. Additions wrap. Progress: wait-free but for restarts of the
/// kernel's sequences and swaps; see [`squall_machine::pervp::BiasedWord`].
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

    /// The sum of all additions that happened before, the calling thread's own among them; of those that run meanwhile it
    /// may have any, a later one without an earlier one too.
    fn total(&self) -> u64;

    /// What its sensors read. For policies; of an implementation that has none, zeros.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }

    /// Has its sensor trip after about so many steps; zero: never. For policies.
    fn arm(&self, after: u32) {
        let _ = after;
    }
}

/// What the sensors of a counter read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sensors {
    /// What was added by those for whom the counter, or the representative, is at home.
    pub here: u64,
    /// What was added by others.
    pub elsewhere: u64,
    /// Sums that were asked for, about, where that is the dear operation.
    pub totals: u64,
    /// Where it is at home: in a distributed form, where most was added.
    pub place: Option<Vp>,
    /// Representatives.
    pub reps: usize,
}

/// Makes a counter with one representative, at home on the calling thread's VP.
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
#[track_caller]
pub fn shared() -> Owned<dyn Counter> {
    made(swappable_with(|handle| Shared::<FIXED>::new(handle, Vp::current())))
}

/// Makes a counter with a representative for each VP that adds.
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
#[track_caller]
pub fn distributed() -> Owned<dyn Counter> {
    made(Distributed::<FIXED>::new().try_create(ClusterSize::Cpu))
}

/// Makes a counter that is as [`shared`] makes it, and changes when its load does.
///
/// Makes the policy known and starts its thread, `squall-adapt`, with the first: see [`squall_adapt::engine`].
///
/// # Panics
/// As [`try_adaptive`] errs.
#[track_caller]
pub fn adaptive() -> Owned<dyn Counter> {
    made(try_adaptive())
}

/// As [`adaptive`], with an error in place of the panic.
///
/// # Errors
/// [`CreateError`].
/// # Cost
/// As [`shared`]: the policy keeps nothing of a counter that nobody shares.
#[track_caller]
pub fn try_adaptive() -> Result<Owned<dyn Counter>, CreateError> {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| family::register(&policy::COUNTERS));
    engine::start();
    swappable_with(|handle| Shared::<ADAPTS>::new(handle, Vp::current()))
}

/// Whether an implementation posts to the policy: the forms of adaptive counters are classes of their own.
const FIXED: bool = false;
const ADAPTS: bool = true;

/// An implementation, to take the place of a counter: as [`shared`] makes it.
pub fn new_shared(handle: Handle<dyn Counter>) -> Replacement<dyn Counter> {
    Replacement::swappable(Shared::<FIXED>::new(handle, Vp::current()))
}

/// An implementation, to take the place of a counter: as [`distributed`] makes it.
pub fn new_distributed() -> Replacement<dyn Counter> {
    Replacement::root(Distributed::<FIXED>::new(), ClusterSize::Cpu)
}

#[track_caller]
fn made(made: Result<Owned<dyn Counter>, CreateError>) -> Owned<dyn Counter> {
    made.unwrap_or_else(|error| panic!("cannot make a counter: {error}"))
}
