//! Schema of a class: its name, its attributes, and the operations that can have values of their own.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

#[cfg(feature = "policies")]
use super::Attribute;
use super::error::{AttributeError, Holder, Refusal};
#[cfg(feature = "policies")]
use super::value::Value;
use super::{AnyAttribute, Head};

/// Largest number of attributes of a class: a set of attributes is one word, with one bit each.
pub const ATTRIBUTES_MAX: usize = 64;

/// The attributes of a class; declared as a `static`.
///
/// An attribute may be in several schemas. For example, the attribute of a policy is in the schema of each
/// class that uses the policy.
///
/// ```
/// use squall::policy::attribute::{Attribute, Schema};
///
/// static SPINS: Attribute<u64> = Attribute::new("spins", 100);
/// static SCHEMA: Schema = Schema::new("lock", &[&SPINS]).with_operations(&["acquire"]);
/// assert_eq!((SCHEMA.class(), SCHEMA.operations()), ("lock", &["acquire"][..]));
/// assert_eq!(SCHEMA.attributes().len(), 1);
/// ```
pub struct Schema {
    class: &'static str,
    attributes: &'static [&'static dyn AnyAttribute],
    operations: &'static [&'static str],
    /// Filled once the names were found to be unique.
    names_differ: OnceLock<()>,
}

impl Schema {
    /// Creates the schema of the class with this name.
    ///
    /// # Panics
    /// If there are more than [`ATTRIBUTES_MAX`]; for a `static` that is a compile error. Duplicate names
    /// panic later, when an attribute is first set, listed, or looked up by name.
    pub const fn new(class: &'static str, attributes: &'static [&'static dyn AnyAttribute]) -> Schema {
        assert!(attributes.len() <= ATTRIBUTES_MAX, "the class has more than 64 attributes");
        Schema { class, attributes, operations: &[], names_differ: OnceLock::new() }
    }

    /// Sets the operations that can have attribute values of their own: the `METHODS` of an interface, or
    /// other names that the author chooses.
    pub const fn with_operations(mut self, operations: &'static [&'static str]) -> Schema {
        self.operations = operations;
        self
    }

    /// Returns the name of the class.
    pub const fn class(&self) -> &'static str {
        self.class
    }

    /// Returns the names of the operations.
    pub const fn operations(&self) -> &'static [&'static str] {
        self.operations
    }

    /// Returns the attributes.
    ///
    /// # Panics
    /// If two attributes have the same name.
    pub fn attributes(&self) -> &'static [&'static dyn AnyAttribute] {
        self.names_differ.get_or_init(|| {
            for (at, one) in self.attributes.iter().enumerate() {
                let is_new = self.attributes[..at].iter().all(|other| other.name() != one.name());
                assert!(is_new, "class {} has two attributes `{}`", self.class, one.name());
            }
        });
        self.attributes
    }

    /// Returns the position of an attribute, by its identity.
    #[inline]
    pub(super) fn index_of(&self, head: &'static Head) -> Option<usize> {
        // An attribute begins with its head, so the addresses are equal.
        let is_it =
            |one: &&dyn AnyAttribute| std::ptr::from_ref(*one).addr() == std::ptr::from_ref(head).addr();
        // Relaxed: a hint, checked before use.
        let hint = usize::from(head.place.load(Ordering::Relaxed)).wrapping_sub(1);
        if self.attributes.get(hint).is_some_and(is_it) {
            return Some(hint);
        }
        let index = self.attributes.iter().position(is_it)?;
        // Written only once: otherwise the readers of an attribute in two schemas would overwrite it in turn.
        let _ = head.place.compare_exchange(0, index as u8 + 1, Ordering::Relaxed, Ordering::Relaxed);
        Some(index)
    }

    /// Returns `true` if the class has this attribute.
    #[cfg(feature = "policies")]
    #[inline]
    pub(crate) fn has<T: Value>(&self, attribute: &'static Attribute<T>) -> bool {
        self.index_of(attribute.identity()).is_some()
    }

    /// Returns the position of the operation with this name.
    #[cfg(feature = "policies")]
    #[inline]
    pub(crate) fn operation(&self, name: &str) -> Option<usize> {
        self.operations.iter().position(|one| *one == name)
    }

    /// Finds an attribute by its name. Returns its position, too.
    pub(super) fn by_name(
        &self,
        name: &str,
        holder: impl FnOnce() -> Holder,
    ) -> Result<(usize, &'static dyn AnyAttribute), AttributeError> {
        let attributes = self.attributes();
        match attributes.iter().position(|one| one.name() == name) {
            Some(index) => Ok((index, attributes[index])),
            None => Err(self.unknown(name, holder())),
        }
    }

    #[cold]
    pub(super) fn unknown(&self, name: &str, holder: Holder) -> AttributeError {
        let names = self.attributes.iter().map(|one| one.name()).collect();
        AttributeError::new(holder, name, Refusal::Unknown { names })
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.attributes.iter().map(|one| one.name()).collect();
        f.debug_struct("Schema")
            .field("class", &self.class)
            .field("attributes", &names)
            .finish_non_exhaustive()
    }
}
