//! Policies: what a call means, chosen when the object is made.
//!
//! An object has two views. Who calls it sees its interface. Its [`Policy`] sees each call as a [`Block`]: the object, the
//! operation, the parameters as something to [`proceed`](Block::proceed) with, and the attributes given to the call. It lets
//! the call go on, refuses it with a reason, has another thread make it, or makes it wait for its turn. Neither the
//! implementation nor its callers are written differently for that.
//!
//! A policy is bound to an object when that is made ([`governed`], [`Binding`]), and stays: a swap to another implementation
//! that the same binding made ([`Binding::next`]) keeps the policy and all that it knows, its lock or its queue among it. What
//! may change while the program runs are attributes, which the policy interprets.
//!
//! The object can call its own policy: the author's value gets the [`Binding`] before it is made. So a policy has services of
//! its own, as the [`Condition`]s of a [`Monitor`] are.
//!
//! # The kinds
//!
//! | kind | who runs a call | how many at once |
//! |---|---|---|
//! | [`Adt`] | its caller | any |
//! | [`ThreadedAdt`] | a new thread for each | any |
//! | [`Monitor`] | its caller | one, less those that wait for a condition |
//! | [`Task`] | the object's own thread | one, in the order of their arrival |
//!
//! The last three wait, so they are for interfaces all of whose methods are marked `#[blocking]`; others do not compile:
//!
//! ```compile_fail
//! use squall_policy::{Monitor, governed};
//! # #[squall_macros::interface(crate = squall_core)]
//! trait Hits: Send + Sync {
//!     fn add(&self);
//! }
//! struct Count;
//! impl Hits for Count {
//!     fn add(&self) {}
//! }
//! let hits: squall_core::Owned<dyn Hits> = governed(Monitor::new(), |_| Count);
//! ```
//!
//! # Example
//!
//! A policy that lets a call through while the object has an attribute set, and counts the others:
//!
//! ```
//! use squall_policy::attribute::{Attribute, AttributeError, ClassValues, Schema};
//! use squall_policy::{Binding, Block, Creation, Policy};
//! use squall_core::{CallError, Owned};
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
//! #[squall_macros::interface(crate = squall_core)]
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
//! assert!(refused.to_string().ends_with("it was refused: the gate is shut"), "{refused}");
//! gate.values().unwrap().set(&OPEN, true)?;
//! assert_eq!(shop.buy()?, 7);
//! assert_eq!(gate.turned_away.load(Relaxed), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Cost
//!
//! An object without a policy has nothing of all this. An intercepted call costs a few nanoseconds over the call, and what the
//! policy does. Source: KTK §2.2 and §4 (KT-02 to KT-10).

mod binding;
mod block;
mod creation;
mod kinds;

pub use binding::{Binding, Governor, governed};
pub use block::Block;
pub(crate) use block::LATE;
pub use creation::{Created, Creation, GovernError};
pub use kinds::{Adt, Condition, Monitor, Task, ThreadedAdt};

use crate::attribute::{AttributeError, ClassValues};

/// What a call of an object means.
///
/// All its methods have a default: a policy says only what it does otherwise.
pub trait Policy: Sized + Send + Sync + 'static {
    /// Whether it makes callers wait: then it can govern only interfaces all of whose methods are marked `#[blocking]`, which
    /// the compiler checks.
    const WAITS: bool = false;

    /// The attributes that it interprets. Each object gets values of its own, which [`attribute::of`](crate::attribute::of)
    /// finds.
    fn class(&self) -> Option<&'static ClassValues> {
        None
    }

    /// When an object is made, first: sets attributes of what will be its state, before there is any.
    ///
    /// # Errors
    /// The object is not made.
    fn set_state_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
        let _ = creation;
        Ok(())
    }

    /// Second: sets attributes of the object.
    ///
    /// # Errors
    /// As above.
    fn set_objects_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
        let _ = creation;
        Ok(())
    }

    /// Third: sets attributes of its operations.
    ///
    /// # Errors
    /// As above.
    fn set_operation_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
        let _ = creation;
        Ok(())
    }

    /// Last: makes the object, which ends in [`object_create`](Creation::object_create), or refuses to.
    ///
    /// # Errors
    /// [`GovernError`]: the object is not made.
    fn create(&self, creation: Creation<'_>) -> Result<Created, GovernError> {
        creation.object_create()
    }

    /// A call. If this neither lets it proceed nor refuses it, it goes on when this returns.
    ///
    /// Runs where the method would: inside an operation, in which it must not wait, unless the method is marked `#[blocking]`.
    fn invoke(&self, block: &mut Block<'_>) {
        block.proceed();
    }

    /// The object ends, or a swap waits for its calls: calls that wait in this policy shall ask
    /// [`shall_leave`](squall_core::wrap::shall_leave). As [`Wrap::wake`](squall_core::wrap::Wrap::wake).
    fn wake(&self) {}

    /// Nothing is left that it governs: the object was destroyed, and no call is in it. An object whose root made a
    /// representative in vain may tell so early; calls may then still come.
    ///
    /// Runs where the object's drop does, outside every operation, and must not wait for anybody.
    fn ended(&self) {}
}
