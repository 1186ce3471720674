//! Settings of policies: steered by an attribute, or fixed at compile time.
//!
//! Problem: a policy should be written once, whether a setting can change at run time or not.
//! Idea: the policy has a type parameter for the setting. A fixed setting is a constant, so the compiler
//! removes the lookup.
//!
//! Cost: a fixed setting has no size, and reading it takes no load.
//! Source: KTK §2.1 (AD-02): objects are configured on-line and off-line.

use std::fmt;
use std::marker::PhantomData;

use super::{Block, Creation};
use crate::attribute::{Attribute, AttributeError, Value};

/// A setting of a policy: [`Steered`] by an attribute, or [`Fixed`] at compile time.
///
/// ```
/// use squall::policy::attribute::{Attribute, AttributeError, ClassValues, Schema};
/// use squall::policy::{Binding, Block, Constant, Creation, Fixed, Policy, Setting, Steered};
///
/// static SHUT: Attribute<bool> = Attribute::new("shut", false);
/// static SCHEMA: Schema = Schema::new("gate", &[&SHUT]);
/// static CLASS: ClassValues = ClassValues::new(&SCHEMA);
///
/// /// Written once for both settings.
/// struct Gate<S>(S);
/// impl<S: Setting<bool>> Policy for Gate<S> {
///     fn class(&self) -> Option<&'static ClassValues> {
///         Some(&CLASS)
///     }
///     fn set_objects_attributes(&self, creation: &Creation<'_>) -> Result<(), AttributeError> {
///         self.0.declare(creation, &SHUT)
///     }
///     fn invoke(&self, block: &mut Block<'_>) {
///         if self.0.get(block, &SHUT) {
///             block.refuse("the gate is shut");
///         }
///     }
/// }
/// struct Open;
/// impl Constant for Open {
///     type Value = bool;
///     const VALUE: bool = false;
/// }
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self) -> u32; }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
/// let steered = Binding::new(Gate(Steered));
/// let hits: squall::Owned<dyn Hits> = steered.govern(|_| Count)?;
/// steered.values().unwrap().set(&SHUT, true)?;
/// assert!(hits.try_add().is_err());
///
/// let fixed = Binding::new(Gate(Fixed::<Open>::new()));
/// let hits: squall::Owned<dyn Hits> = fixed.govern(|_| Count)?;
/// assert!(fixed.values().unwrap().set(&SHUT, true).is_err());
/// assert_eq!(hits.add(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Setting<T: Value>: Send + Sync + 'static {
    /// Fixes the attribute of the new object, if the setting is fixed. A policy calls it from
    /// [`set_objects_attributes`](super::Policy::set_objects_attributes).
    ///
    /// # Errors
    /// Those of [`Creation::fix`].
    fn declare(
        &self,
        creation: &Creation<'_>,
        attribute: &'static Attribute<T>,
    ) -> Result<(), AttributeError>;

    /// Returns the value for a call.
    fn get(&self, block: &Block<'_>, attribute: &'static Attribute<T>) -> T;
}

/// Setting with the value that its attribute has for the call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steered;

impl<T: Value> Setting<T> for Steered {
    fn declare(&self, _: &Creation<'_>, _: &'static Attribute<T>) -> Result<(), AttributeError> {
        Ok(())
    }

    #[inline]
    #[track_caller]
    fn get(&self, block: &Block<'_>, attribute: &'static Attribute<T>) -> T {
        block.get(attribute)
    }
}

/// Value of a [`Fixed`] setting.
pub trait Constant: 'static {
    /// Type of the value.
    type Value: Value;
    /// The value.
    const VALUE: Self::Value;
}

/// Setting with a constant value. The object's attribute is fixed to it, so that people see the value and
/// cannot change it.
///
/// ```
/// use squall::policy::{Constant, Fixed};
///
/// struct Ten;
/// impl Constant for Ten {
///     type Value = u64;
///     const VALUE: u64 = 10;
/// }
/// assert_eq!(size_of_val(&Fixed::<Ten>::new()), 0);
/// ```
pub struct Fixed<C: Constant>(PhantomData<fn() -> C>);

impl<C: Constant> Fixed<C> {
    /// Creates the setting.
    pub const fn new() -> Fixed<C> {
        Fixed(PhantomData)
    }
}

impl<C: Constant> Setting<C::Value> for Fixed<C> {
    fn declare(
        &self,
        creation: &Creation<'_>,
        attribute: &'static Attribute<C::Value>,
    ) -> Result<(), AttributeError> {
        creation.fix(attribute, C::VALUE)
    }

    #[inline(always)]
    fn get(&self, _: &Block<'_>, _: &'static Attribute<C::Value>) -> C::Value {
        C::VALUE
    }
}

impl<C: Constant> Clone for Fixed<C> {
    fn clone(&self) -> Fixed<C> {
        *self
    }
}

impl<C: Constant> Copy for Fixed<C> {}

impl<C: Constant> Default for Fixed<C> {
    fn default() -> Fixed<C> {
        Fixed::new()
    }
}

impl<C: Constant> fmt::Debug for Fixed<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fixed({})", C::VALUE.show())
    }
}
