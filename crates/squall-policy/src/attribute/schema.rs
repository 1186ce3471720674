//! What a class understands: its name, its attributes, and the operations for which they can be set apart.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::error::{AttributeError, Holder, Refusal};
use super::{AnyAttribute, Head};

/// The most attributes that a class can have: one bit each says which are set.
pub const ATTRIBUTES_MAX: usize = 64;

/// The attributes of a class; declared as a `static`.
///
/// An attribute may be in several: a policy's own, say, in that of each class that is used with the policy.
pub struct Schema {
    class: &'static str,
    attributes: &'static [&'static dyn AnyAttribute],
    operations: &'static [&'static str],
    /// That no two attributes have one name, once that was looked at.
    names_differ: OnceLock<()>,
}

impl Schema {
    /// Of a class of this name.
    ///
    /// # Panics
    /// If there are more than [`ATTRIBUTES_MAX`]: at compile time, of a `static`. Two of one name panic when one is first
    /// set, listed, or looked up by name.
    pub const fn new(class: &'static str, attributes: &'static [&'static dyn AnyAttribute]) -> Schema {
        assert!(attributes.len() <= ATTRIBUTES_MAX, "a class can have 64 attributes");
        Schema { class, attributes, operations: &[], names_differ: OnceLock::new() }
    }

    /// With these operations, for which the attributes of an object can be set apart: an interface's `METHODS`, or other
    /// names of the author's choice.
    pub const fn with_operations(mut self, operations: &'static [&'static str]) -> Schema {
        self.operations = operations;
        self
    }

    /// The name of the class.
    pub const fn class(&self) -> &'static str {
        self.class
    }

    /// The names of the operations.
    pub const fn operations(&self) -> &'static [&'static str] {
        self.operations
    }

    /// The attributes.
    ///
    /// # Panics
    /// If two have one name.
    pub fn attributes(&self) -> &'static [&'static dyn AnyAttribute] {
        self.names_differ.get_or_init(|| {
            for (at, one) in self.attributes.iter().enumerate() {
                let is_new = self.attributes[..at].iter().all(|other| other.name() != one.name());
                assert!(is_new, "class {} has two attributes `{}`", self.class, one.name());
            }
        });
        self.attributes
    }

    /// The place of an attribute, by its identity.
    #[inline]
    pub(super) fn index_of(&self, head: &'static Head) -> Option<usize> {
        // An attribute begins with its head.
        let is_it =
            |one: &&dyn AnyAttribute| std::ptr::from_ref(*one).addr() == std::ptr::from_ref(head).addr();
        // Relaxed: a hint, which is checked.
        let hint = usize::from(head.place.load(Ordering::Relaxed)).wrapping_sub(1);
        if self.attributes.get(hint).is_some_and(is_it) {
            return Some(hint);
        }
        let index = self.attributes.iter().position(is_it)?;
        // Once only: what is in two schemas would be written by their readers in turn.
        let _ = head.place.compare_exchange(0, index as u8 + 1, Ordering::Relaxed, Ordering::Relaxed);
        Some(index)
    }

    /// An attribute by its name, and its place.
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
