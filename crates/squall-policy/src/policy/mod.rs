//! Policies: code around an object that decides how each call is made, chosen when the object is created.
//!
//! The callers of an object see its interface. Its [`Policy`] sees each call as a [`Block`]: the object, the
//! operation, the attributes given to the call, and a way to [`proceed`](Block::proceed). The policy lets the
//! call go on, refuses it with a reason, has another thread run it, or makes it wait. Neither the
//! implementation nor its callers change for that.
//!
//! A policy is bound to an object at its creation ([`governed`], [`Binding`]) and stays. A swap to another
//! implementation made by the same binding ([`Binding::next`]) keeps the policy with its state, for example
//! its lock or its queue. Attributes, which the policy interprets, can change while the program runs.
//!
//! A policy can add [modes](crate::invoke#modes-of-policies) in which callers invoke the object. Attributes
//! that should not change are [fixed](Creation::fix) when the object is created, or by the type of the policy
//! (see [`Setting`]).
//!
//! The object can call its own policy, because the author's value gets the [`Binding`] before the object
//! exists. The [`Condition`]s of a [`Monitor`] work that way.
//!
//! # The kinds
//!
//! | kind | a call runs on | calls at once |
//! |---|---|---|
//! | [`Adt`] | its caller's thread | any number |
//! | [`ThreadedAdt`] | a new thread of its own | any number |
//! | [`Monitor`] | its caller's thread | one, apart from those that wait for a condition |
//! | [`Task`] | the object's own thread | one, in order of arrival |
//!
//! The last three make callers wait. So they require interfaces with all methods marked `#[blocking]`;
//! others do not compile:
//!
//! ```compile_fail
//! use squall::policy::{Monitor, governed};
//! # #[squall::interface]
//! trait Hits: Send + Sync {
//!     fn add(&self);
//! }
//! struct Count;
//! impl Hits for Count {
//!     fn add(&self) {}
//! }
//! let hits: squall::Owned<dyn Hits> = governed(Monitor::new(), |_| Count);
//! ```
//! # Example
//!
//! A policy that lets calls through while an attribute of the object is set, and counts the others:
//! ```
//! use squall::policy::attribute::{Attribute, AttributeError, ClassValues, Schema};
//! use squall::policy::{Binding, Block, Creation, Policy};
//! use squall::{CallError, Owned};
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//!
//! static OPEN: Attribute<bool> = Attribute::new("open", true).about("whether calls are let through");
//! static SCHEMA: Schema = Schema::new("gate", &[&OPEN]);
//! static CLASS: ClassValues = ClassValues::new(&SCHEMA);
//!
//! #[derive(Default)]
//! struct Gate {
//!     turned_away: AtomicU64,
//! }
//!
//! impl Policy for Gate {
//!     fn class(&self) -> Option<&'static ClassValues> {
//!         Some(&CLASS)
//!     }
//!     fn set_objects_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
//!         creation.set(&OPEN, false)
//!     }
//!     fn invoke(&self, block: &mut Block<'_>) {
//!         if !block.get(&OPEN) {
//!             self.turned_away.fetch_add(1, Relaxed);
//!             block.refuse("the gate is shut");
//!         }
//!     }
//! }
//!
//! #[squall::interface]
//! trait Shop: Send + Sync {
//!     fn buy(&self) -> Result<u64, CallError>;
//! }
//! struct Bakery;
//! impl Shop for Bakery {
//!     fn buy(&self) -> Result<u64, CallError> {
//!         Ok(7)
//!     }
//! }
//!
//! let gate = Binding::new(Gate::default());
//! let shop: Owned<dyn Shop> = gate.govern(|_| Bakery)?;
//! let refused = shop.buy().unwrap_err();
//! assert!(refused.to_string().ends_with("refused: the gate is shut"), "{refused}");
//! gate.values().unwrap().set(&OPEN, true)?;
//! assert_eq!(shop.buy()?, 7);
//! assert_eq!(gate.turned_away.load(Relaxed), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Cost
//!
//! An object without a policy has no extra cost. An intercepted call costs a few nanoseconds more than a
//! plain call, plus the time that the policy takes.
//!
//! # Source
//! KTK §2.2 and §4 (KT-02 to KT-10).

mod binding;
mod block;
mod creation;
mod kinds;
mod setting;

pub use binding::{Binding, Governor, governed};
pub use block::Block;
pub use creation::{Created, Creation, GovernError};
pub use kinds::{Adt, Condition, Monitor, Task, ThreadedAdt};
pub use setting::{Constant, Fixed, Setting, Steered};

use crate::attribute::{AttributeError, ClassValues};
use crate::invoke::{Dispatch, Mode};

/// Decides how the calls of an object are made.
///
/// All methods have defaults, so a policy implements only those in which it differs.
///
/// ```
/// use squall::policy::{Binding, Block, Policy};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// /// Counts the calls of an object.
/// #[derive(Default)]
/// struct Counted(AtomicU64);
/// impl Policy for Counted {
///     fn invoke(&self, _block: &mut Block<'_>) {
///         self.0.fetch_add(1, Relaxed);
///         // The call runs when this returns.
///     }
/// }
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self) -> u32; }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
/// let binding = Binding::new(Counted::default());
/// let hits: squall::Owned<dyn Hits> = binding.govern(|_| Count)?;
/// assert_eq!((hits.add(), binding.policy().0.load(Relaxed)), (1, 1));
/// # Ok::<(), squall::policy::GovernError>(())
/// ```
pub trait Policy: Sized + Send + Sync + 'static {
    /// `true` if the policy makes callers wait. Then it can govern only interfaces with all methods
    /// marked `#[blocking]`, which the compiler checks.
    const WAITS: bool = false;

    /// Modes that the policy adds, with names of their own.
    const MODES: &'static [&'static Mode] = &[];

    /// Returns the attributes that the policy interprets. Each object gets values of its own, registered for
    /// [`attribute::values_of`](crate::attribute::values_of).
    fn class(&self) -> Option<&'static ClassValues> {
        None
    }

    /// Called first when an object is created: sets attributes of its future state, before the state exists.
    ///
    /// # Errors
    /// [`AttributeError`]: the object is not created.
    fn set_state_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
        let _ = creation;
        Ok(())
    }

    /// Called second: sets attributes of the object.
    ///
    /// # Errors
    /// [`AttributeError`]: the object is not created.
    fn set_objects_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
        let _ = creation;
        Ok(())
    }

    /// Called third: sets attributes of the object's operations.
    ///
    /// # Errors
    /// [`AttributeError`]: the object is not created.
    fn set_operation_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
        let _ = creation;
        Ok(())
    }

    /// Called last: creates the object with [`object_create`](Creation::object_create), or refuses.
    ///
    /// # Errors
    /// [`GovernError`]: the object is not created.
    fn create(&self, creation: Creation<'_>) -> Result<Created, GovernError> {
        creation.object_create()
    }

    /// Handles a call. If the method neither proceeds with the call nor refuses it, the call runs when the
    /// method returns.
    ///
    /// Runs where the method would: inside an operation, in which it must not wait, unless the method is
    /// marked `#[blocking]`.
    fn invoke(&self, block: &mut Block<'_>) {
        block.proceed();
    }

    /// Makes a call in one of the policy's [`MODES`](Policy::MODES): runs it, passes it to a thread, keeps it
    /// for later, or refuses it.
    ///
    /// Runs on the caller's thread, inside an operation if the caller is in one. A panic goes to the caller,
    /// and ends this call alone. For an example see [`Dispatch`].
    fn invoke_mode(&self, mode: &'static Mode, call: Dispatch) {
        let _ = mode;
        call.refuse("its policy lists the mode, but does not make calls in it");
    }

    /// Called when the object ends, or when a swap waits for its calls. Calls that wait in this policy must
    /// then check [`shall_leave`](squall_core::wrap::shall_leave). See
    /// [`Wrap::wake`](squall_core::wrap::Wrap::wake).
    fn wake(&self) {}

    /// Called when the policy governs no object any more: the object was destroyed and its calls have
    /// returned. There is one exception. If two threads race to make a representative, the root drops the
    /// loser. This function may then run although the object still lives and calls follow.
    ///
    /// Runs on the thread that drops the object, outside every operation, and must not block.
    fn ended(&self) {}
}
