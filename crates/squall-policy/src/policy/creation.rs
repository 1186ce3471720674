//! Creation of an object with a policy: the policy's methods run first.

use squall_core::{CreateError, Id, Interface};
use std::fmt;
use std::sync::Arc;

use crate::attribute::{Attribute, AttributeError, InstanceValues, Value};

/// An object that is about to be created, as its policy sees it.
///
/// ```
/// use squall::policy::{Created, Creation, GovernError, Policy, governed};
///
/// /// Governs only interfaces whose methods may all block.
/// struct Patient;
/// impl Policy for Patient {
///     fn create(&self, creation: Creation<'_>) -> Result<Created, GovernError> {
///         if creation.operations().any(|(_, blocking)| !blocking) {
///             return Err(GovernError::Refused("one of its methods must not block"));
///         }
///         creation.object_create()
///     }
/// }
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self) -> u32; }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
/// let refused = squall::policy::Binding::new(Patient).govern::<dyn Hits, _>(|_| Count);
/// assert!(matches!(refused, Err(GovernError::Refused(_))));
/// ```
pub struct Creation<'a> {
    shape: Shape,
    values: Option<&'a Arc<InstanceValues>>,
    make: &'a mut dyn FnMut() -> Result<(), CreateError>,
}

/// Names of an interface and its methods.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) interface: &'static str,
    methods: &'static [&'static str],
    blocking: &'static [bool],
}

impl Shape {
    pub(super) fn of<I: ?Sized + Interface>() -> Shape {
        Shape { interface: I::NAME, methods: I::METHODS, blocking: I::BLOCKING }
    }
}

/// Proof that the object was created. Returned by [`Creation::object_create`].
#[derive(Debug)]
pub struct Created(());

impl<'a> Creation<'a> {
    pub(super) fn new(
        shape: Shape,
        values: Option<&'a Arc<InstanceValues>>,
        make: &'a mut dyn FnMut() -> Result<(), CreateError>,
    ) -> Creation<'a> {
        Creation { shape, values, make }
    }

    /// Returns the name of the interface of the object.
    pub fn interface(&self) -> &'static str {
        self.shape.interface
    }

    /// Returns the methods of the interface, each with `true` if it is marked `#[blocking]`.
    pub fn operations(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.shape.methods.iter().copied().zip(self.shape.blocking.iter().copied())
    }

    /// Returns the values of the object's attributes, if the policy has a [class](super::Policy::class).
    pub fn values(&self) -> Option<&Arc<InstanceValues>> {
        self.values
    }

    /// Sets an attribute of the object. Has no effect if the policy has no class.
    ///
    /// # Errors
    /// The errors of [`InstanceValues::set`].
    pub fn set<T: Value>(&self, attribute: &'static Attribute<T>, value: T) -> Result<(), AttributeError> {
        self.values.map_or(Ok(()), |values| values.set(attribute, value))
    }

    /// Sets an attribute of one operation of the object. Has no effect if the policy has no class.
    ///
    /// # Errors
    /// The errors of [`InstanceValues::set_for`].
    pub fn set_for<T: Value>(
        &self,
        operation: &str,
        attribute: &'static Attribute<T>,
        value: T,
    ) -> Result<(), AttributeError> {
        self.values.map_or(Ok(()), |values| values.set_for(operation, attribute, value))
    }

    /// Fixes an attribute of the object and its operations for ever. Has no effect if the policy has no
    /// class.
    ///
    /// Later attempts to set or unset it on the object are errors, even with this value. A call to which it
    /// is given is refused.
    ///
    /// # Errors
    /// The errors of [`InstanceValues::set`]. [`Refusal::Fixed`](crate::attribute::Refusal::Fixed) if it was
    /// fixed to another value.
    /// # Cost
    /// Later lookups are shorter. They search neither the call's attributes nor other scopes.
    /// # Source
    /// KTK §2.1 (AD-02).
    ///
    /// ```
    /// use squall::policy::attribute::{Attribute, AttributeError, ClassValues, Schema};
    /// use squall::policy::{Binding, Creation, Policy};
    ///
    /// static LIMIT: Attribute<u64> = Attribute::new("limit", 100);
    /// static SCHEMA: Schema = Schema::new("limited", &[&LIMIT]);
    /// static CLASS: ClassValues = ClassValues::new(&SCHEMA);
    ///
    /// struct Limited;
    /// impl Policy for Limited {
    ///     fn class(&self) -> Option<&'static ClassValues> {
    ///         Some(&CLASS)
    ///     }
    ///     fn set_objects_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
    ///         creation.fix(&LIMIT, 7)
    ///     }
    /// }
    /// # #[squall::interface]
    /// # trait Hits: Send + Sync { fn add(&self) -> u32; }
    /// # struct Count;
    /// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
    /// let binding = Binding::new(Limited);
    /// let hits: squall::Owned<dyn Hits> = binding.govern(|_| Count)?;
    /// let values = binding.values().unwrap();
    /// let error = values.set(&LIMIT, 8).unwrap_err();
    /// assert!(error.to_string().contains("it was fixed to 7 when the object was created"));
    /// assert_eq!((values.get(&LIMIT), values.fixed(&LIMIT)), (7, Some(7)));
    /// # Ok::<(), squall::policy::GovernError>(())
    /// ```
    pub fn fix<T: Value>(&self, attribute: &'static Attribute<T>, value: T) -> Result<(), AttributeError> {
        self.values.map_or(Ok(()), |values| values.fix(attribute, value))
    }

    /// Creates the object. Each [`create`](super::Policy::create) that succeeds ends with this call.
    ///
    /// # Errors
    /// [`GovernError::Create`].
    /// # Panics
    /// If the author's function that makes the value panics.
    pub fn object_create(self) -> Result<Created, GovernError> {
        (self.make)().map_err(GovernError::Create)?;
        Ok(Created(()))
    }
}

impl fmt::Debug for Creation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Creation of {}", self.shape.interface)
    }
}

/// Reason why an object with a policy was not created.
///
/// ```
/// use squall::policy::{Adt, Binding, GovernError};
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self) -> u32; }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
/// let binding = Binding::new(Adt::new());
/// let first: squall::Owned<dyn Hits> = binding.govern(|_| Count)?;
/// let second = binding.govern::<dyn Hits, _>(|_| Count);
/// assert!(matches!(second, Err(GovernError::Bound(_))));
/// # Ok::<(), GovernError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum GovernError {
    /// The object could not be created, for the reason that applies to every object.
    Create(CreateError),
    /// The policy set an attribute that does not exist, or to a value that is not allowed.
    Attribute(AttributeError),
    /// The policy refused, for this reason.
    Refused(&'static str),
    /// The binding belongs to this object already.
    Bound(Id),
}

impl fmt::Display for GovernError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GovernError::Create(error) => error.fmt(f),
            GovernError::Attribute(error) => error.fmt(f),
            GovernError::Refused(why) => {
                write!(f, "the policy of the new object refused to create it: {why}")
            }
            GovernError::Bound(id) => {
                write!(f, "the policy governs object {id} already; create a binding for each object")
            }
        }
    }
}

impl std::error::Error for GovernError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            GovernError::Create(error) => Some(error),
            GovernError::Attribute(error) => Some(error),
            _ => None,
        }
    }
}

impl From<AttributeError> for GovernError {
    fn from(error: AttributeError) -> GovernError {
        GovernError::Attribute(error)
    }
}

impl From<CreateError> for GovernError {
    fn from(error: CreateError) -> GovernError {
        GovernError::Create(error)
    }
}
