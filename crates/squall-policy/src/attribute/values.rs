//! Where attributes are set: for a class, for an object, for one operation of an object.
//!
//! Problem: a value is read by calls on every VP and set seldom; a reader must not wait, and must see a whole value of the
//! right type; an object on which nothing is set must be small.
//!
//! Idea: each level is a word whose bits say which attributes are set there, and an array of words with the values, made
//! when the first is set.
//!
//! - I1. A value's word holds bits of its attribute's type that are in its range, from before its bit is first set, and for
//!   ever: unsetting clears the bit alone. So a reader that saw the bit may read the word at any later time.
//!
//! Not promised: that two attributes which are set together are seen together.
//! Cost: two loads where nothing is set. Where something is, a comparison for each attribute of the class as well.

use squall_core::Id;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::call::Received;
use super::error::{AttributeError, Holder, Refusal};
use super::schema::Schema;
use super::value::{Kind, Value};
use super::{AnyAttribute, Attribute, Head};

/// Where a value comes from, the outermost first. The innermost that is set counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The attribute's declaration.
    Default,
    /// Set for the class.
    Class,
    /// Set for the object.
    Instance,
    /// Set for this operation of the object.
    Operation,
    /// Given to this call.
    Call,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Default => "default",
            Scope::Class => "class",
            Scope::Instance => "instance",
            Scope::Operation => "operation",
            Scope::Call => "call",
        })
    }
}

/// An attribute as it is at one moment, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttributeInfo {
    /// Its name.
    pub name: &'static str,
    /// The operation for which this value is; none, if it is for the whole object or class.
    pub operation: Option<&'static str>,
    /// Its type.
    pub kind: Kind,
    /// Its value, as it can be set.
    pub value: String,
    /// Its unit, or nothing.
    pub unit: &'static str,
    /// What it is where it is set nowhere.
    pub default: String,
    /// From where to where, or which values.
    pub range: String,
    /// What it changes, or nothing.
    pub about: &'static str,
    /// Where the value comes from.
    pub from: Scope,
}

impl AttributeInfo {
    /// By which name this value is set: `name`, or `operation.name`.
    pub fn path(&self) -> String {
        self.operation.map_or_else(|| self.name.to_owned(), |operation| format!("{operation}.{}", self.name))
    }

    #[doc(hidden)]
    pub fn new(
        attribute: &dyn AnyAttribute,
        operation: Option<&'static str>,
        set: Option<(u64, Scope)>,
    ) -> Self {
        let (value, from) = match set {
            Some((bits, from)) => (attribute.show(bits), from),
            None => (attribute.default_text(), Scope::Default),
        };
        AttributeInfo {
            name: attribute.name(),
            operation,
            kind: attribute.kind(),
            value,
            unit: attribute.unit(),
            default: attribute.default_text(),
            range: attribute.range_text(),
            about: attribute.about(),
            from,
        }
    }
}

/// The values at one level, by the places of their attributes in the schema.
struct Level {
    /// Which are set.
    set: AtomicU64,
    /// Made when the first is set.
    words: OnceLock<Box<[AtomicU64]>>,
}

impl Level {
    const fn new() -> Level {
        Level { set: AtomicU64::new(0), words: OnceLock::new() }
    }

    #[inline]
    fn any(&self) -> bool {
        // Relaxed: who goes on reads again, in `get`.
        self.set.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn get(&self, index: usize) -> Option<u64> {
        // Acquire: pairs with the Release in `put`. Who sees the bit sees a value in the word (I1).
        if self.set.load(Ordering::Acquire) & 1 << index == 0 {
            return None;
        }
        // Relaxed: a value is one word, and says nothing of any other.
        self.words.get().map(|words| words[index].load(Ordering::Relaxed))
    }

    fn put(&self, schema: &Schema, index: usize, bits: u64) {
        let words =
            self.words.get_or_init(|| schema.attributes().iter().map(|_| AtomicU64::new(0)).collect());
        words[index].store(bits, Ordering::Relaxed);
        // Release: pairs with the Acquire in `get`.
        self.set.fetch_or(1 << index, Ordering::Release);
    }

    /// Whether it was set.
    fn clear(&self, index: usize) -> bool {
        // Relaxed: nothing is read on account of a bit that is not set.
        self.set.fetch_and(!(1 << index), Ordering::Relaxed) & 1 << index != 0
    }
}

/// Stores a value of the attribute at `index`, if it takes it.
fn put_value<T: Value>(
    schema: &Schema,
    level: &Level,
    attribute: &'static Attribute<T>,
    value: T,
    holder: impl Fn() -> Holder,
) -> Result<(), AttributeError> {
    let index = index_of(schema, attribute.identity(), &holder)?;
    let refused = |refusal| AttributeError::new(holder(), attribute.name(), refusal);
    level.put(schema, index, attribute.encode(value).map_err(refused)?);
    Ok(())
}

fn put_text(
    schema: &Schema,
    level: &Level,
    name: &str,
    text: &str,
    holder: impl Fn() -> Holder,
) -> Result<(), AttributeError> {
    let (index, attribute) = schema.by_name(name, &holder)?;
    let refused = |refusal| AttributeError::new(holder(), attribute.name(), refusal);
    level.put(schema, index, attribute.parse(text).map_err(refused)?);
    Ok(())
}

fn index_of(
    schema: &Schema,
    head: &'static Head,
    holder: impl Fn() -> Holder,
) -> Result<usize, AttributeError> {
    schema.index_of(head).ok_or_else(|| schema.unknown(head.name, holder()))
}

/// What is set for a class: it holds for each of its objects that has no value of its own. Declared as a `static`.
pub struct ClassValues {
    schema: &'static Schema,
    level: Level,
}

impl ClassValues {
    /// Of the class with this schema; nothing is set.
    pub const fn new(schema: &'static Schema) -> ClassValues {
        ClassValues { schema, level: Level::new() }
    }

    /// The schema.
    pub const fn schema(&self) -> &'static Schema {
        self.schema
    }

    fn holder(&self) -> Holder {
        Holder::class(self.schema.class())
    }

    /// The value for the class: the default, if none is set.
    ///
    /// # Panics
    /// As [`InstanceValues::get`].
    /// # Cost
    /// See the [module](super). Wait-free.
    #[track_caller]
    pub fn get<T: Value>(&self, attribute: &'static Attribute<T>) -> T {
        let index = self.schema.index_of(attribute.identity());
        debug_assert!(
            index.is_some(),
            "class {} has no attribute `{}`",
            self.schema.class(),
            attribute.name()
        );
        index.and_then(|index| self.level.get(index)).map_or(attribute.default(), T::from_bits)
    }

    /// Sets a value.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] and [`Refusal::OutOfRange`]; nothing was changed.
    pub fn set<T: Value>(&self, attribute: &'static Attribute<T>, value: T) -> Result<(), AttributeError> {
        put_value(self.schema, &self.level, attribute, value, || self.holder())
    }

    /// Sets a value, by name and as text.
    ///
    /// # Errors
    /// As [`set`](Self::set), and [`Refusal::WrongType`].
    pub fn set_text(&self, name: &str, text: &str) -> Result<(), AttributeError> {
        put_text(self.schema, &self.level, name, text, || self.holder())
    }

    /// The value as text, as [`set_text`](Self::set_text) takes it.
    ///
    /// # Errors
    /// [`Refusal::Unknown`].
    pub fn get_text(&self, name: &str) -> Result<String, AttributeError> {
        let (index, attribute) = self.schema.by_name(name, || self.holder())?;
        Ok(self.info(index, attribute).value)
    }

    /// Takes a setting back; `true` if there was one.
    ///
    /// # Errors
    /// [`Refusal::Unknown`].
    pub fn unset(&self, name: &str) -> Result<bool, AttributeError> {
        let (index, _) = self.schema.by_name(name, || self.holder())?;
        Ok(self.level.clear(index))
    }

    /// Every attribute and its value.
    pub fn list(&self) -> Vec<AttributeInfo> {
        let attributes = self.schema.attributes().iter().enumerate();
        attributes.map(|(index, attribute)| self.info(index, *attribute)).collect()
    }

    fn info(&self, index: usize, attribute: &dyn AnyAttribute) -> AttributeInfo {
        AttributeInfo::new(attribute, None, self.bits(index))
    }

    #[inline]
    fn bits(&self, index: usize) -> Option<(u64, Scope)> {
        self.level.get(index).map(|bits| (bits, Scope::Class))
    }
}

impl fmt::Debug for ClassValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_list(f, self.list())
    }
}

/// What is set for one object, and for its operations.
///
/// As text, an attribute of the object is `name`, that of one of its operations `operation.name`.
pub struct InstanceValues {
    class: &'static ClassValues,
    level: Level,
    /// By operation; made when the first is set.
    operations: OnceLock<Box<[Level]>>,
    /// The object to which this was attached, for the text of errors.
    id: OnceLock<Id>,
}

impl InstanceValues {
    /// Of an object of this class; nothing is set. Allocates nothing.
    pub const fn of_class(class: &'static ClassValues) -> InstanceValues {
        InstanceValues { class, level: Level::new(), operations: OnceLock::new(), id: OnceLock::new() }
    }

    /// The class.
    pub const fn class(&self) -> &'static ClassValues {
        self.class
    }

    /// The schema of the class.
    pub const fn schema(&self) -> &'static Schema {
        self.class.schema
    }

    /// The object to which this was attached first, if any.
    pub fn id(&self) -> Option<Id> {
        self.id.get().copied()
    }

    pub(super) fn belongs_to(&self, id: Id) {
        self.id.get_or_init(|| id);
    }

    fn holder(&self) -> Holder {
        Holder::instance(self.schema().class(), self.id())
    }

    fn holder_of(&self, operation: Option<usize>) -> Holder {
        match operation {
            Some(operation) => self.holder().operation(self.schema().operations()[operation]),
            None => self.holder(),
        }
    }

    /// The value for the object: its own, the class's, or the default.
    ///
    /// # Panics
    /// If the class has no such attribute, in builds with debug assertions. In others that is its default: it can be set
    /// nowhere.
    /// # Cost
    /// See the [module](super). Wait-free.
    #[inline]
    #[track_caller]
    pub fn get<T: Value>(&self, attribute: &'static Attribute<T>) -> T {
        self.view(None, Received::NONE).get(attribute)
    }

    /// The values for one call: those given to it, then those of its operation, by its place in the schema's list, then
    /// those of the object.
    #[inline]
    pub fn view<'a>(&'a self, operation: Option<usize>, call: Received<'a>) -> AttributeView<'a> {
        let level = match operation {
            // Nobody set anything for any operation, or not for this one.
            Some(operation) => self.operations.get().and_then(|levels| levels.get(operation)),
            None => None,
        };
        AttributeView { values: self, operation: level, call }
    }

    /// Sets a value for the object.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] and [`Refusal::OutOfRange`]; nothing was changed.
    pub fn set<T: Value>(&self, attribute: &'static Attribute<T>, value: T) -> Result<(), AttributeError> {
        put_value(self.schema(), &self.level, attribute, value, || self.holder())
    }

    /// Sets a value for one operation of the object.
    ///
    /// # Errors
    /// As [`set`](Self::set), and [`Refusal::UnknownOperation`].
    pub fn set_for<T: Value>(
        &self,
        operation: &str,
        attribute: &'static Attribute<T>,
        value: T,
    ) -> Result<(), AttributeError> {
        let operation = self.operation(operation)?;
        // First, so that nothing is made for what is refused.
        index_of(self.schema(), attribute.identity(), || self.holder_of(Some(operation)))?;
        put_value(self.schema(), self.level_of(Some(operation)), attribute, value, || {
            self.holder_of(Some(operation))
        })
    }

    /// Sets a value for the object (`name`) or one of its operations (`operation.name`), as text.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], [`Refusal::UnknownOperation`], [`Refusal::WrongType`] and [`Refusal::OutOfRange`]; nothing
    /// was changed.
    pub fn set_text(&self, path: &str, text: &str) -> Result<(), AttributeError> {
        let (operation, name) = self.split(path)?;
        put_text(self.schema(), self.level_of(operation), name, text, || self.holder_of(operation))
    }

    /// The value for the object (`name`) or one of its operations (`operation.name`), as [`set_text`](Self::set_text)
    /// takes it.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] and [`Refusal::UnknownOperation`].
    pub fn get_text(&self, path: &str) -> Result<String, AttributeError> {
        let (operation, name) = self.split(path)?;
        let (index, attribute) = self.schema().by_name(name, || self.holder_of(operation))?;
        Ok(AttributeInfo::new(attribute, None, self.bits(operation, index)).value)
    }

    /// Takes a setting back, so that the next scope counts; `true` if there was one.
    ///
    /// # Errors
    /// As [`get_text`](Self::get_text).
    pub fn unset(&self, path: &str) -> Result<bool, AttributeError> {
        let (operation, name) = self.split(path)?;
        let (index, _) = self.schema().by_name(name, || self.holder_of(operation))?;
        Ok(match operation {
            Some(operation) => self.operations.get().is_some_and(|levels| levels[operation].clear(index)),
            None => self.level.clear(index),
        })
    }

    /// Every attribute and its value for the object, then what is set for its operations.
    pub fn list(&self) -> Vec<AttributeInfo> {
        let attributes = || self.schema().attributes().iter().enumerate();
        let whole = attributes().map(|(index, one)| AttributeInfo::new(*one, None, self.bits(None, index)));
        let levels = self.operations.get().map_or(&[][..], |levels| levels).iter();
        let apart = levels.zip(self.schema().operations()).flat_map(|(level, operation)| {
            attributes().filter_map(move |(index, one)| {
                let bits = level.get(index)?;
                Some(AttributeInfo::new(*one, Some(operation), Some((bits, Scope::Operation))))
            })
        });
        whole.chain(apart).collect()
    }

    fn operation(&self, name: &str) -> Result<usize, AttributeError> {
        let operations = self.schema().operations();
        operations
            .iter()
            .position(|one| *one == name)
            .ok_or_else(|| AttributeError::new(self.holder(), name, Refusal::UnknownOperation { operations }))
    }

    fn split<'a>(&self, path: &'a str) -> Result<(Option<usize>, &'a str), AttributeError> {
        match path.rsplit_once('.') {
            Some((operation, name)) => Ok((Some(self.operation(operation)?), name)),
            None => Ok((None, path)),
        }
    }

    fn level_of(&self, operation: Option<usize>) -> &Level {
        let Some(operation) = operation else { return &self.level };
        let count = self.schema().operations().len();
        &self.operations.get_or_init(|| (0..count).map(|_| Level::new()).collect())[operation]
    }

    fn bits(&self, operation: Option<usize>, index: usize) -> Option<(u64, Scope)> {
        AttributeView {
            operation: operation.and_then(|at| self.operations.get()?.get(at)),
            ..self.view(None, Received::NONE)
        }
        .bits(index)
    }
}

impl fmt::Debug for InstanceValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_list(f, self.list())
    }
}

fn debug_list(f: &mut fmt::Formatter<'_>, list: Vec<AttributeInfo>) -> fmt::Result {
    f.debug_map().entries(list.iter().map(|info| (info.path(), &info.value))).finish()
}

/// The values as one call sees them ([`InstanceValues::view`]).
#[derive(Clone, Copy)]
pub struct AttributeView<'a> {
    values: &'a InstanceValues,
    /// Of its operation, if anything was set for one.
    operation: Option<&'a Level>,
    call: Received<'a>,
}

impl fmt::Debug for AttributeView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("values", self.values).field("call", &self.call).finish_non_exhaustive()
    }
}

impl AttributeView<'_> {
    /// The value: given to the call, or set for its operation, the object or the class, or the default.
    ///
    /// # Panics
    /// As [`InstanceValues::get`].
    /// # Cost
    /// See the [module](super). Wait-free.
    #[inline]
    #[track_caller]
    pub fn get<T: Value>(&self, attribute: &'static Attribute<T>) -> T {
        debug_assert!(
            self.values.schema().index_of(attribute.identity()).is_some(),
            "class {} has no attribute `{}`",
            self.values.schema().class(),
            attribute.name()
        );
        let head = attribute.identity();
        let bits = match self.call.find(head) {
            None if !self.is_any_set() => None,
            None => self.find_set(head).map(|(bits, _)| bits),
            given => given,
        };
        bits.map_or(attribute.default(), T::from_bits)
    }

    /// Where [`get`](Self::get) finds the value.
    pub fn scope_of<T: Value>(&self, attribute: &'static Attribute<T>) -> Scope {
        match self.call.find(attribute.identity()) {
            Some(_) => Scope::Call,
            None => self.find_set(attribute.identity()).map_or(Scope::Default, |(_, scope)| scope),
        }
    }

    #[inline]
    fn is_any_set(&self) -> bool {
        self.values.level.any() || self.values.class.level.any() || self.operation.is_some()
    }

    #[inline(never)]
    fn find_set(&self, head: &'static Head) -> Option<(u64, Scope)> {
        self.bits(self.values.schema().index_of(head)?)
    }

    fn bits(&self, index: usize) -> Option<(u64, Scope)> {
        let of = |level: &Level, scope| level.get(index).map(|bits| (bits, scope));
        let own = self.operation.and_then(|level| of(level, Scope::Operation));
        own.or_else(|| of(&self.values.level, Scope::Instance)).or_else(|| self.values.class.bits(index))
    }
}
