//! How an object with a policy is made: the policy is asked first.

use squall_core::{CreateError, Id, Interface};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::attribute::{Attribute, AttributeError, InstanceValues, Value};

/// An object that is about to be made, as its policy sees it.
pub struct Creation<'a> {
    shape: Shape,
    values: Option<&'a Arc<InstanceValues>>,
    make: &'a mut dyn FnMut() -> Result<(), CreateError>,
    made: &'a Cell<bool>,
}

/// What is known of an interface.
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

/// An object was made.
#[derive(Debug)]
pub struct Created(());

impl<'a> Creation<'a> {
    pub(super) fn new(
        shape: Shape,
        values: Option<&'a Arc<InstanceValues>>,
        make: &'a mut dyn FnMut() -> Result<(), CreateError>,
        made: &'a Cell<bool>,
    ) -> Creation<'a> {
        Creation { shape, values, make, made }
    }

    /// The interface that it will have.
    pub fn interface(&self) -> &'static str {
        self.shape.interface
    }

    /// Its operations: the methods of that interface, each with whether it may block.
    pub fn operations(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.shape.methods.iter().copied().zip(self.shape.blocking.iter().copied())
    }

    /// The values of its attributes, if the policy has a [class](super::Policy::class).
    pub fn values(&self) -> Option<&Arc<InstanceValues>> {
        self.values
    }

    /// Sets an attribute of the object. Nothing happens if the policy has no class.
    ///
    /// # Errors
    /// As [`InstanceValues::set`].
    pub fn set<T: Value>(&self, attribute: &'static Attribute<T>, value: T) -> Result<(), AttributeError> {
        self.values.map_or(Ok(()), |values| values.set(attribute, value))
    }

    /// Sets an attribute of one of its operations.
    ///
    /// # Errors
    /// As [`InstanceValues::set_for`].
    pub fn set_for<T: Value>(
        &self,
        operation: &str,
        attribute: &'static Attribute<T>,
        value: T,
    ) -> Result<(), AttributeError> {
        self.values.map_or(Ok(()), |values| values.set_for(operation, attribute, value))
    }

    /// Makes the object: what every [`create`](super::Policy::create) ends in.
    ///
    /// # Errors
    /// [`GovernError::Create`].
    /// # Panics
    /// As the author's function that makes the value does.
    pub fn object_create(self) -> Result<Created, GovernError> {
        (self.make)().map_err(GovernError::Create)?;
        self.made.set(true);
        Ok(Created(()))
    }
}

impl fmt::Debug for Creation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Creation of {}", self.shape.interface)
    }
}

/// Why an object with a policy was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum GovernError {
    /// There is no room for it, as for any object.
    Create(CreateError),
    /// Its policy set an attribute that is none, or to what it cannot be.
    Attribute(AttributeError),
    /// Its policy refused, for this reason.
    Refused(&'static str),
    /// The policy is that of this object already.
    Bound(Id),
}

impl fmt::Display for GovernError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GovernError::Create(error) => error.fmt(f),
            GovernError::Attribute(error) => error.fmt(f),
            GovernError::Refused(why) => write!(f, "its policy did not make the object: {why}"),
            GovernError::Bound(id) => {
                write!(f, "the policy is that of object {id} already; make another one for another object")
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
