//! Binding of a policy to the object that it governs.
//!
//! - I1. A binding belongs to at most one object, from the object's creation on, through all its
//!   implementations. The object is never replaced by another one (KT-03).
//! - I2. `governors` counts the implementations that the policy governs: those that serve or served, and
//!   those that wait to be swapped in. The drop of the last one tells the policy that it has ended.

use squall_core::swap::{Replacement, State};
use squall_core::wrap::{self, Around, Invoked, Refusal, Wrap, all_blocking};
use squall_core::{Handle, Id, Interface, InterfaceOf, Owned, Root, class_of, interfaces_count};
use squall_machine::ClusterSize;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::Policy;
use super::block::{self, Block, Parameters};
use super::creation::{Creation, GovernError, Shape};
use crate::attribute::{self, Callee, InstanceValues, Received, receive};
use crate::invoke::context::{self, FIXED};
use crate::invoke::governed::{self, Governed};
use crate::invoke::{Dispatch, Mode, check_modes};

/// A policy together with the object that it governs or will govern.
///
/// The object's author calls the policy through it, and makes further implementations for swaps with it. It
/// derefs to the policy. Cloning is cheap.
///
/// ```
/// use squall::policy::{Binding, Monitor};
/// # #[squall::interface]
/// # trait Hits: Send + Sync {
/// #     #[blocking]
/// #     fn add(&self);
/// # }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) {} }
/// let binding = Binding::new(Monitor::new());
/// let hits: squall::Owned<dyn Hits> = binding.govern(|_| Count)?;
/// hits.add();
/// assert_eq!(binding.id(), Some(squall::Handle::id(hits.handle())));
/// assert!(!binding.policy().is_entered());
/// # Ok::<(), squall::policy::GovernError>(())
/// ```
pub struct Binding<P: Policy>(Arc<Bound<P>>);

struct Bound<P> {
    policy: P,
    values: Option<Arc<InstanceValues>>,
    /// The governed object (I1).
    object: OnceLock<Object>,
    governors: AtomicUsize,
}

/// Identity of the governed object.
#[derive(Clone, Copy)]
struct Object {
    id: Id,
    callee: Callee,
    /// Number of consecutive ids of the object, from `id` on.
    interfaces: u32,
}

/// Wrapper around a representative that sends each method call through the policy.
pub struct Governor<P: Policy>(Arc<Bound<P>>);

/// Creates an object with one representative, `make`'s value, governed by `policy`.
///
/// To swap the object later, keep a clone of the binding that `make` gets.
///
/// # Panics
/// If [`Binding::govern`] returns an error.
/// # Example
/// ```
/// use squall::policy::{Monitor, governed};
/// #[squall::interface]
/// trait Hits: Send + Sync {
///     #[blocking]
///     fn add(&self) -> u32;
/// }
/// struct Count;
/// impl Hits for Count {
///     fn add(&self) -> u32 { 1 }
/// }
///
/// // One call at a time.
/// let hits: squall::Owned<dyn Hits> = governed(Monitor::new(), |_| Count);
/// assert_eq!(hits.add(), 1);
/// ```
#[track_caller]
pub fn governed<I, P, T>(policy: P, make: impl FnOnce(&Binding<P>) -> T) -> Owned<I>
where
    I: ?Sized + InterfaceOf<Around<Governor<P>, T>>,
    P: Policy,
    T: Send + Sync + 'static,
{
    match Binding::new(policy).govern(make) {
        Ok(owned) => owned,
        Err(error) => panic!("cannot create an object of interface {}: {error}", I::NAME),
    }
}

/// Rejects at compile time a policy that waits around methods that must not block.
fn check_kind<I: ?Sized + Interface, P: Policy>() {
    const {
        assert!(
            !P::WAITS || all_blocking::<I>(),
            "this policy makes callers wait: mark every method of the interface, and of the interfaces it extends, `#[blocking]`"
        );
    }
}

impl<P: Policy> Binding<P> {
    /// Creates a binding that governs no object yet.
    pub fn new(policy: P) -> Binding<P> {
        const { check_modes(P::MODES) };
        let values = policy.class().map(|class| Arc::new(InstanceValues::of_class(class)));
        Binding(Arc::new(Bound { policy, values, object: OnceLock::new(), governors: AtomicUsize::new(0) }))
    }

    /// Returns the policy.
    pub fn policy(&self) -> &P {
        &self.0.policy
    }

    /// Returns the governed object, once it exists.
    pub fn id(&self) -> Option<Id> {
        self.0.id()
    }

    /// Returns the values of the object's attributes, if the policy has a [class](Policy::class).
    pub fn values(&self) -> Option<&Arc<InstanceValues>> {
        self.0.values.as_ref()
    }

    /// Creates an object with one representative, like [`shared_with`](squall_core::shared_with()).
    ///
    /// The policy's methods are called in this order: `set_state_attributes`, `set_objects_attributes`,
    /// `set_operation_attributes`, and `create`, which calls `make`.
    ///
    /// # Errors
    /// [`GovernError`]: no object was created, or the policy refused after the creation and the object was
    /// dropped. In the second case the binding cannot be used again.
    /// # Panics
    /// If `make` panics.
    ///
    /// ```
    /// use squall::policy::{Adt, Binding};
    /// # #[squall::interface]
    /// # trait Hits: Send + Sync { fn add(&self) -> u32; }
    /// # struct Count;
    /// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
    /// let hits: squall::Owned<dyn Hits> = Binding::new(Adt::new()).govern(|_| Count)?;
    /// assert_eq!(hits.add(), 1);
    /// # Ok::<(), squall::policy::GovernError>(())
    /// ```
    #[track_caller]
    pub fn govern<I, T>(&self, make: impl FnOnce(&Binding<P>) -> T) -> Result<Owned<I>, GovernError>
    where
        I: ?Sized + InterfaceOf<Around<Governor<P>, T>>,
        T: Send + Sync + 'static,
    {
        check_kind::<I, P>();
        self.make(|| wrap::wrapped(|handle: Handle<I>| self.bound_around(handle, make)))
    }

    /// Creates an object with a state that can move in a swap, like
    /// [`swappable_with`](squall_core::swappable_with).
    ///
    /// # Errors
    /// [`GovernError`]: no object was created, or the policy refused after the creation and the object was
    /// dropped. In the second case the binding cannot be used again.
    /// # Panics
    /// If `make` panics.
    #[track_caller]
    pub fn govern_swappable<I, T>(&self, make: impl FnOnce(&Binding<P>) -> T) -> Result<Owned<I>, GovernError>
    where
        I: ?Sized + InterfaceOf<Around<Governor<P>, T>>,
        T: State,
    {
        check_kind::<I, P>();
        self.make(|| wrap::wrapped_swappable(|handle: Handle<I>| self.bound_around(handle, make)))
    }

    /// Creates a distributed object with the root that `make` returns. The root's `make_rep` wraps each
    /// representative by [`around`](Binding::around). If the policy makes callers wait, the root also
    /// forwards [`Root::wake`] to [`Policy::wake`].
    ///
    /// # Errors
    /// [`GovernError`]: no object was created, or the policy refused after the creation and the object was
    /// dropped. In the second case the binding cannot be used again.
    /// # Panics
    /// If `make` panics. With [`Root::EAGER`], if `make_rep` panics.
    /// # Example
    /// ```
    /// use squall::policy::{Adt, Binding, Governor};
    /// use squall::prelude::*;
    /// use squall_core::wrap::Around;
    /// # #[squall::interface]
    /// trait Where: Send + Sync {
    ///     fn cluster(&self) -> usize;
    /// }
    /// struct Map(Binding<Adt>);
    /// struct Here(RepContext<Map>);
    /// impl Root for Map {
    ///     type Interface = dyn Where;
    ///     type Rep = Around<Governor<Adt>, Here>;
    ///     fn make_rep(&self, at: RepContext<Map>) -> Self::Rep {
    ///         self.0.around(Here(at))
    ///     }
    /// }
    /// impl Where for Here {
    ///     fn cluster(&self) -> usize {
    ///         self.0.cluster().index()
    ///     }
    /// }
    /// let binding = Binding::new(Adt::new());
    /// let map: Owned<dyn Where> = binding.govern_root(|binding| Map(binding.clone()), ClusterSize::Machine)?;
    /// assert_eq!(map.cluster(), 0);
    /// # Ok::<(), squall::policy::GovernError>(())
    /// ```
    #[track_caller]
    pub fn govern_root<R: Root>(
        &self,
        make: impl FnOnce(&Binding<P>) -> R,
        size: ClusterSize,
    ) -> Result<Owned<R::Interface>, GovernError> {
        check_kind::<R::Interface, P>();
        self.make(|| {
            let owned = make(self).try_create(size)?;
            self.bind(owned.handle());
            Ok(owned)
        })
    }

    /// Makes another implementation for the object, to be swapped in. The same policy governs it.
    ///
    /// ```
    /// # use squall::Owned;
    /// # use squall::policy::{Adt, Binding};
    /// # use squall::swap::Swap;
    /// # #[squall::interface]
    /// # trait Version: Send + Sync { fn version(&self) -> u32; }
    /// # struct Is(u32);
    /// # impl Version for Is { fn version(&self) -> u32 { self.0 } }
    /// let binding = Binding::new(Adt::new());
    /// let object: Owned<dyn Version> = binding.govern(|_| Is(1))?;
    /// Swap::new(object.handle()).without_state().run(binding.next(|_| Is(2)))?;
    /// assert_eq!(object.version(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn next<I, T>(&self, make: impl FnOnce(&Binding<P>) -> T) -> Replacement<I>
    where
        I: ?Sized + InterfaceOf<Around<Governor<P>, T>>,
        T: Send + Sync + 'static,
    {
        check_kind::<I, P>();
        Replacement::wrapped(self.around(make(self)))
    }

    /// Makes another implementation for the object, with the formats of its state.
    #[track_caller]
    pub fn next_swappable<I, T>(&self, make: impl FnOnce(&Binding<P>) -> T) -> Replacement<I>
    where
        I: ?Sized + InterfaceOf<Around<Governor<P>, T>>,
        T: State,
    {
        check_kind::<I, P>();
        Replacement::wrapped_swappable(self.around(make(self)))
    }

    /// Wraps a representative, so that its calls go through the policy. A root returns the result from
    /// `make_rep`.
    pub fn around<T>(&self, rep: T) -> Around<Governor<P>, T> {
        Around::new(Governor::new(self), rep)
    }

    fn bound_around<I, T>(
        &self,
        handle: Handle<I>,
        make: impl FnOnce(&Binding<P>) -> T,
    ) -> Around<Governor<P>, T>
    where
        I: ?Sized + Interface,
    {
        let value = make(self);
        self.bind(handle);
        self.around(value)
    }

    fn bind<I: ?Sized + Interface>(&self, handle: Handle<I>) {
        // `make` has checked that the binding is free. If two threads bind at once, `make` detects the loser
        // afterwards.
        let interfaces = interfaces_count::<I>();
        let _ =
            self.0.object.set(Object { id: Handle::id(handle), callee: Callee::from(handle), interfaces });
    }

    /// Asks the policy to create an object.
    fn make<I: ?Sized + Interface>(
        &self,
        make: impl FnOnce() -> Result<Owned<I>, squall_core::CreateError>,
    ) -> Result<Owned<I>, GovernError> {
        if let Some(id) = self.id() {
            return Err(GovernError::Bound(id));
        }
        let (policy, values) = (&self.0.policy, self.values());
        let (mut make, mut owned) = (Some(make), None);
        let mut object_create = || {
            owned = make.take().map(|make| make()).transpose()?;
            Ok(())
        };
        let creation = Creation::new(Shape::of::<I>(), values, &mut object_create);
        policy.set_state_attributes(&creation)?;
        policy.set_objects_attributes(&creation)?;
        policy.set_operation_attributes(&creation)?;
        policy.create(creation)?;
        let Some(owned) = owned else { return Err(GovernError::Refused("its policy created no object")) };
        let id = Handle::id(owned.handle());
        match self.id() {
            Some(bound) if bound != id => return Err(GovernError::Bound(bound)),
            _ => {}
        }
        if let Some(values) = values {
            attribute::attach(id, Arc::clone(values));
        }
        let governed = Arc::downgrade(&self.0) as Weak<dyn Governed>;
        governed::register(&governed, (id, interfaces_count::<I>()));
        Ok(owned)
    }
}

impl<P: Policy> Clone for Binding<P> {
    fn clone(&self) -> Binding<P> {
        Binding(Arc::clone(&self.0))
    }
}

impl<P: Policy> Deref for Binding<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.0.policy
    }
}

impl<P: Policy> fmt::Debug for Binding<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl<P: Policy> Governor<P> {
    fn new(binding: &Binding<P>) -> Governor<P> {
        binding.0.governors.fetch_add(1, Ordering::Relaxed);
        Governor(Arc::clone(&binding.0))
    }

    /// Returns the policy.
    pub fn policy(&self) -> &P {
        &self.0.policy
    }

    /// Refusal of a call without a result: the method panicked, and the policy caught the panic.
    #[cold]
    fn no_result(&self) -> Refusal {
        self.refusal("its method panicked before, and its policy caught the panic")
    }

    #[cold]
    fn refusal(&self, why: &'static str) -> Refusal {
        Refusal::new(self.0.id().unwrap_or(Id::NULL), why)
    }

    /// Sends a call through the policy.
    #[inline]
    fn invoke(&self, call: &'static Invoked, parameters: Parameters<'_>) -> Result<(), Refusal> {
        let bound = &*self.0;
        let Some(object) = bound.object.get() else {
            // A representative that serves belongs to an object, unless its root was created without the
            // binding.
            return Err(self
                .refusal("its object was created without its policy; create it with Binding::govern_root"));
        };
        receive(object.callee, |attributes| {
            if !attributes.is_empty()
                && let Some(why) = bound.objection(attributes)
            {
                return Err(self.refusal(why));
            }
            let context = context::of(object.id, object.interfaces);
            // Shortens the lifetime to that of the received attributes.
            #[expect(clippy::needless_match, reason = "each arm shortens the life of what it holds")]
            let parameters = match parameters {
                Parameters::Kept(run) => Parameters::Kept(run),
                Parameters::Sent(run) => Parameters::Sent(run),
            };
            let mut block =
                Block::new(object.id, call, attributes, bound.values.as_ref(), context, parameters);
            bound.policy.invoke(&mut block);
            match block.end() {
                block::State::Refused(why) => Err(self.refusal(why)),
                _ => Ok(()),
            }
        })
    }
}

impl<P: Policy> Bound<P> {
    fn id(&self) -> Option<Id> {
        self.object.get().map(|object| object.id)
    }

    /// Returns the reason why a call cannot have these attributes.
    #[inline]
    fn objection(&self, attributes: Received<'_>) -> Option<&'static str> {
        let values = self.values.as_ref()?;
        if attributes.check(values.schema()).is_err() {
            return Some("it was given an attribute that its policy does not have");
        }
        attributes.contradicts(values).then_some(FIXED)
    }
}

impl<P: Policy> Governed for Bound<P> {
    fn ids(&self) -> (Id, u32) {
        self.object.get().map_or((Id::NULL, 0), |object| (object.id, object.interfaces))
    }
    fn callee(&self) -> Callee {
        self.object.get().map_or_else(|| Callee::from(Id::NULL), |object| object.callee)
    }
    fn modes(&self) -> &'static [&'static Mode] {
        P::MODES
    }
    fn values(&self) -> Option<&Arc<InstanceValues>> {
        self.values.as_ref()
    }
    fn invoke_mode(&self, mode: &'static Mode, call: Dispatch) {
        self.policy.invoke_mode(mode, call);
    }
}

impl<P> Drop for Bound<P> {
    fn drop(&mut self) {
        // The object can outlive its policy's last governor for a while, so this removes the entry too.
        if let Some(object) = self.object.get() {
            governed::unregister((object.id, object.interfaces));
        }
    }
}

impl<P: Policy> Wrap for Governor<P> {
    #[inline]
    fn around<R>(&self, call: &'static Invoked, f: impl FnOnce() -> R) -> Result<R, Refusal> {
        let (mut f, mut result) = (Some(f), None);
        let mut run = || {
            if let Some(f) = f.take() {
                result = Some(f());
            }
        };
        self.invoke(call, Parameters::Kept(&mut run))?;
        result.ok_or_else(|| self.no_result())
    }

    #[inline]
    fn around_sent<R: Send>(
        &self,
        call: &'static Invoked,
        f: impl FnOnce() -> R + Send,
    ) -> Result<R, Refusal> {
        let (mut f, mut result) = (Some(f), None);
        let mut run = || {
            if let Some(f) = f.take() {
                result = Some(f());
            }
        };
        self.invoke(call, Parameters::Sent(&mut run))?;
        result.ok_or_else(|| self.no_result())
    }

    fn wake(&self) {
        self.0.policy.wake();
    }
}

impl<P: Policy> Drop for Governor<P> {
    fn drop(&mut self) {
        // AcqRel: pairs with the other drops. The last drop happens after everything that calls through the
        // other governors have done.
        if self.0.governors.fetch_sub(1, Ordering::AcqRel) == 1 {
            if let Some(object) = self.0.object.get()
                && class_of(object.id).is_none()
            {
                attribute::detach(object.id);
                governed::unregister((object.id, object.interfaces));
            }
            self.0.policy.ended();
        }
    }
}

impl<P: Policy> fmt::Debug for Governor<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Governor").finish_non_exhaustive()
    }
}
