//! Values set for a class, for an object, and for one operation of an object.
//!
//! Problem: calls on every VP read a value, and it is seldom set. A reader must not wait, and must see a
//! whole value of the right type. An object without values must stay small.
//!
//! Idea: each level is a word with one bit per attribute that is set there, and an array of words with the
//! values. The array is allocated when the first value is set.
//!
//! - I1. Once the bit of a value has been set, the value's word always holds bits of the attribute's type
//!   that are in its range. Unsetting clears only the bit. So a reader that saw the bit may read the word at
//!   any later time.
//!
//! - I2. A fixed value has a level of its own, and readers look there first. Nothing is removed from that
//!   level, and each value of it is stored once. So later writes to other levels have no effect on readers.
//!
//! Not promised: two attributes set one after the other may be seen one without the other.
//! Cost: two loads if no value is set. Otherwise one comparison for each attribute of the class as well.

use squall_core::Id;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::call::Received;
use super::error::{AttributeError, Holder, Refusal};
use super::schema::Schema;
use super::value::{Kind, Value};
use super::{AnyAttribute, Attribute, Head};

/// Origin of a value, the outermost scope first. The innermost scope that sets a value wins. A fixed value
/// wins over all.
///
/// ```
/// use squall::policy::attribute::{Attribute, ClassValues, InstanceValues, Received, Schema, Scope};
///
/// static OPEN: Attribute<bool> = Attribute::new("open", true);
/// static SCHEMA: Schema = Schema::new("door", &[&OPEN]);
/// static CLASS: ClassValues = ClassValues::new(&SCHEMA);
///
/// let values = InstanceValues::of_class(&CLASS);
/// assert_eq!(values.view(None, Received::NONE).scope_of(&OPEN), Scope::Default);
/// values.set(&OPEN, false)?;
/// assert_eq!(values.view(None, Received::NONE).scope_of(&OPEN), Scope::Instance);
/// # Ok::<(), squall::policy::attribute::AttributeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The declaration of the attribute.
    Default,
    /// Set for the class.
    Class,
    /// Set for the object.
    Instance,
    /// Set for this operation of the object.
    Operation,
    /// Given to this call.
    Call,
    /// Fixed when the object was created.
    Fixed,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Default => "default",
            Scope::Class => "class",
            Scope::Instance => "instance",
            Scope::Operation => "operation",
            Scope::Call => "call",
            Scope::Fixed => "fixed",
        })
    }
}

/// Text form of an attribute and its value at one moment.
///
/// ```
/// use squall::policy::attribute::{Attribute, ClassValues, Schema};
///
/// static SPINS: Attribute<u64> = Attribute::<u64>::new("spins", 100).between(0, 1_000).in_unit("rounds");
/// static SCHEMA: Schema = Schema::new("lock", &[&SPINS]);
/// static CLASS: ClassValues = ClassValues::new(&SCHEMA);
///
/// let info = &CLASS.list()[0];
/// assert_eq!((info.name, info.value.as_str(), info.unit), ("spins", "100", "rounds"));
/// assert_eq!(info.range, "0 to 1000");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttributeInfo {
    /// Name of the attribute.
    pub name: &'static str,
    /// Operation that the value applies to; absent if it applies to the whole object or class.
    pub operation: Option<&'static str>,
    /// Type of the attribute.
    pub kind: Kind,
    /// Value, in the form that `set_text` accepts.
    pub value: String,
    /// Unit, or an empty string.
    pub unit: &'static str,
    /// Default value.
    pub default: String,
    /// Range, or the list of values.
    pub range: String,
    /// Description, or an empty string.
    pub about: &'static str,
    /// Scope that the value comes from.
    pub from: Scope,
}

impl AttributeInfo {
    /// Returns the path that sets this value: `name`, or `operation.name`.
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

/// Values at one level, by the position of their attributes in the schema.
struct Level {
    /// One bit for each attribute that is set.
    set: AtomicU64,
    /// Allocated when the first value is set.
    words: OnceLock<Box<[AtomicU64]>>,
}

impl Level {
    const fn new() -> Level {
        Level { set: AtomicU64::new(0), words: OnceLock::new() }
    }

    #[inline]
    fn any(&self) -> bool {
        // Relaxed: a caller that goes on reads the word again in `get`.
        self.set.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn get(&self, index: usize) -> Option<u64> {
        // Acquire: pairs with the Release in `put`. A reader that sees the bit sees a value in the word (I1).
        if self.set.load(Ordering::Acquire) & 1 << index == 0 {
            return None;
        }
        // Relaxed: a value is one word and does not announce other memory.
        self.words.get().map(|words| words[index].load(Ordering::Relaxed))
    }

    fn put(&self, schema: &Schema, index: usize, bits: u64) {
        let words =
            self.words.get_or_init(|| schema.attributes().iter().map(|_| AtomicU64::new(0)).collect());
        words[index].store(bits, Ordering::Relaxed);
        // Release: pairs with the Acquire in `get`.
        self.set.fetch_or(1 << index, Ordering::Release);
    }

    /// Clears the bit. Returns `true` if it was set.
    fn clear(&self, index: usize) -> bool {
        // Relaxed: a cleared bit gives no reader a reason to read other memory.
        self.set.fetch_and(!(1 << index), Ordering::Relaxed) & 1 << index != 0
    }
}

/// Stores a value of `attribute`, if the attribute accepts it.
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

/// Values set for a class. They apply to each object of the class that has no value of its own. Declared as a
/// `static`.
///
/// ```
/// use squall::policy::attribute::{Attribute, ClassValues, InstanceValues, Schema};
///
/// static SPINS: Attribute<u64> = Attribute::<u64>::new("spins", 100).between(0, 1_000);
/// static SCHEMA: Schema = Schema::new("lock", &[&SPINS]);
/// static CLASS: ClassValues = ClassValues::new(&SCHEMA);
///
/// let one_lock = InstanceValues::of_class(&CLASS);
/// CLASS.set(&SPINS, 200)?;
/// assert_eq!((CLASS.get(&SPINS), one_lock.get(&SPINS)), (200, 200));
/// assert!(CLASS.unset("spins")?);
/// assert_eq!(CLASS.get_text("spins")?, "100");
/// # Ok::<(), squall::policy::attribute::AttributeError>(())
/// ```
pub struct ClassValues {
    schema: &'static Schema,
    level: Level,
}

impl ClassValues {
    /// Creates the values of the class with this schema. All attributes start unset.
    pub const fn new(schema: &'static Schema) -> ClassValues {
        ClassValues { schema, level: Level::new() }
    }

    /// Returns the schema.
    pub const fn schema(&self) -> &'static Schema {
        self.schema
    }

    fn holder(&self) -> Holder {
        Holder::class(self.schema.class())
    }

    /// Returns the value set for the class, or the default.
    ///
    /// # Panics
    /// With debug assertions, if the class does not have the attribute. Without them the result is the
    /// attribute's default.
    /// # Cost
    /// Wait-free. See the [module](super).
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
    /// [`Refusal::Unknown`] and [`Refusal::OutOfRange`]. The previous value stays.
    pub fn set<T: Value>(&self, attribute: &'static Attribute<T>, value: T) -> Result<(), AttributeError> {
        put_value(self.schema, &self.level, attribute, value, || self.holder())
    }

    /// Sets a value by name, from text.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], [`Refusal::WrongType`] and [`Refusal::OutOfRange`]. The previous value stays.
    ///
    /// ```
    /// use squall::policy::attribute::{Attribute, ClassValues, Schema};
    ///
    /// static SPINS: Attribute<u64> = Attribute::<u64>::new("spins", 100).between(0, 1_000);
    /// static SCHEMA: Schema = Schema::new("lock", &[&SPINS]);
    /// static CLASS: ClassValues = ClassValues::new(&SCHEMA);
    ///
    /// CLASS.set_text("spins", "7")?;
    /// assert_eq!(CLASS.get(&SPINS), 7);
    /// assert!(CLASS.set_text("spins", "many").is_err());
    /// # Ok::<(), squall::policy::attribute::AttributeError>(())
    /// ```
    pub fn set_text(&self, name: &str, text: &str) -> Result<(), AttributeError> {
        put_text(self.schema, &self.level, name, text, || self.holder())
    }

    /// Returns the value in the text form that [`set_text`](Self::set_text) accepts.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] if the class has no such attribute.
    pub fn get_text(&self, name: &str) -> Result<String, AttributeError> {
        let (index, attribute) = self.schema.by_name(name, || self.holder())?;
        Ok(self.info(index, attribute).value)
    }

    /// Unsets a value. Returns `true` if it was set.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] if the class has no such attribute.
    pub fn unset(&self, name: &str) -> Result<bool, AttributeError> {
        let (index, _) = self.schema.by_name(name, || self.holder())?;
        Ok(self.level.clear(index))
    }

    /// Lists every attribute with its value.
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

/// Position of the level of the fixed values among the levels inside an object.
const FIXED: usize = 0;

/// Values set for one object and for its operations.
///
/// In text form, an attribute of the object is `name`, and an attribute of one operation is `operation.name`.
///
/// ```
/// use squall::policy::attribute::{Attribute, ClassValues, InstanceValues, Schema};
///
/// static JOIN: Attribute<bool> = Attribute::new("join", true);
/// static SCHEMA: Schema = Schema::new("log", &[&JOIN]).with_operations(&["write"]);
/// static CLASS: ClassValues = ClassValues::new(&SCHEMA);
///
/// let values = InstanceValues::of_class(&CLASS);
/// values.set(&JOIN, false)?;
/// values.set_for("write", &JOIN, true)?;
/// assert_eq!((values.get_text("join")?, values.get_text("write.join")?), ("false".into(), "true".into()));
/// # Ok::<(), squall::policy::attribute::AttributeError>(())
/// ```
pub struct InstanceValues {
    class: &'static ClassValues,
    level: Level,
    /// The level of the fixed values, then one for each operation. Allocated when the first value of one of
    /// them is set.
    inner: OnceLock<Box<[Level]>>,
    /// Object that these values were attached to; used in error messages.
    id: OnceLock<Id>,
}

impl InstanceValues {
    /// Creates the values of an object of this class. All attributes start unset. Does not allocate.
    pub const fn of_class(class: &'static ClassValues) -> InstanceValues {
        InstanceValues { class, level: Level::new(), inner: OnceLock::new(), id: OnceLock::new() }
    }

    /// Returns the class values.
    pub const fn class(&self) -> &'static ClassValues {
        self.class
    }

    /// Returns the schema of the class.
    pub const fn schema(&self) -> &'static Schema {
        self.class.schema
    }

    /// Returns the object that these values were attached to first.
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

    /// Returns the value for the object: its own, the value of the class, or the default.
    ///
    /// # Panics
    /// With debug assertions, if the class does not have the attribute. Without them the result is the
    /// attribute's default.
    /// # Cost
    /// Wait-free. See the [module](super).
    #[inline]
    #[track_caller]
    pub fn get<T: Value>(&self, attribute: &'static Attribute<T>) -> T {
        self.view(None, Received::NONE).get(attribute)
    }

    /// Returns the values that one call sees. Values given to the call come first, then those of its
    /// operation, then those of the object. `operation` is an index into the schema's list of operations.
    ///
    /// ```
    /// use squall::policy::attribute::{Attribute, ClassValues, InstanceValues, Received, Schema};
    ///
    /// static JOIN: Attribute<bool> = Attribute::new("join", true);
    /// static SCHEMA: Schema = Schema::new("log", &[&JOIN]).with_operations(&["write", "read"]);
    /// static CLASS: ClassValues = ClassValues::new(&SCHEMA);
    ///
    /// let values = InstanceValues::of_class(&CLASS);
    /// values.set_for("write", &JOIN, false)?;
    /// assert!(!values.view(Some(0), Received::NONE).get(&JOIN));
    /// assert!(values.view(Some(1), Received::NONE).get(&JOIN));
    /// # Ok::<(), squall::policy::attribute::AttributeError>(())
    /// ```
    #[inline]
    pub fn view<'a>(&'a self, operation: Option<usize>, call: Received<'a>) -> AttributeView<'a> {
        // Absent if no operation has a value yet, and no value is fixed.
        let Some((fixed, operations)) = self.inner() else {
            return AttributeView { values: self, fixed: None, operation: None, call };
        };
        let operation = operation.and_then(|operation| operations.get(operation));
        AttributeView { values: self, fixed: Some(fixed), operation, call }
    }

    /// Sets a value for the object.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], [`Refusal::OutOfRange`] and [`Refusal::Fixed`]. The previous value stays.
    pub fn set<T: Value>(&self, attribute: &'static Attribute<T>, value: T) -> Result<(), AttributeError> {
        self.refuse_fixed(None, attribute)?;
        put_value(self.schema(), &self.level, attribute, value, || self.holder())
    }

    /// Sets a value for one operation of the object.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], [`Refusal::UnknownOperation`], [`Refusal::OutOfRange`] and [`Refusal::Fixed`].
    /// The previous value stays.
    pub fn set_for<T: Value>(
        &self,
        operation: &str,
        attribute: &'static Attribute<T>,
        value: T,
    ) -> Result<(), AttributeError> {
        let operation = self.operation(operation)?;
        // Checked first, so that a rejected call does not allocate the levels.
        index_of(self.schema(), attribute.identity(), || self.holder_of(Some(operation)))?;
        self.refuse_fixed(Some(operation), attribute)?;
        put_value(self.schema(), self.level_of(Some(operation)), attribute, value, || {
            self.holder_of(Some(operation))
        })
    }

    /// Sets a value for the object (`name`) or for one of its operations (`operation.name`), from text.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], [`Refusal::UnknownOperation`], [`Refusal::WrongType`], [`Refusal::OutOfRange`]
    /// and [`Refusal::Fixed`]. The previous value stays.
    ///
    /// ```
    /// use squall::policy::attribute::{Attribute, ClassValues, InstanceValues, Schema};
    ///
    /// static JOIN: Attribute<bool> = Attribute::new("join", true);
    /// static SCHEMA: Schema = Schema::new("log", &[&JOIN]).with_operations(&["write"]);
    /// static CLASS: ClassValues = ClassValues::new(&SCHEMA);
    ///
    /// let values = InstanceValues::of_class(&CLASS);
    /// values.set_text("write.join", "false")?;
    /// assert_eq!(values.get_text("write.join")?, "false");
    /// assert!(values.unset("write.join")?);
    /// assert_eq!(values.get_text("write.join")?, "true");
    /// # Ok::<(), squall::policy::attribute::AttributeError>(())
    /// ```
    pub fn set_text(&self, path: &str, text: &str) -> Result<(), AttributeError> {
        let (operation, name) = self.split(path)?;
        let (_, attribute) = self.schema().by_name(name, || self.holder_of(operation))?;
        self.refuse_fixed(operation, attribute)?;
        put_text(self.schema(), self.level_of(operation), name, text, || self.holder_of(operation))
    }

    /// Returns the value for the object (`name`) or for one of its operations (`operation.name`), in the text
    /// form that [`set_text`](Self::set_text) accepts.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] and [`Refusal::UnknownOperation`].
    pub fn get_text(&self, path: &str) -> Result<String, AttributeError> {
        let (operation, name) = self.split(path)?;
        let (index, attribute) = self.schema().by_name(name, || self.holder_of(operation))?;
        Ok(AttributeInfo::new(attribute, None, self.bits(operation, index)).value)
    }

    /// Unsets a value, so that the next outer scope applies. Returns `true` if it was set.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], [`Refusal::UnknownOperation`] and [`Refusal::Fixed`].
    pub fn unset(&self, path: &str) -> Result<bool, AttributeError> {
        let (operation, name) = self.split(path)?;
        let (index, attribute) = self.schema().by_name(name, || self.holder_of(operation))?;
        self.refuse_fixed(operation, attribute)?;
        Ok(match operation {
            Some(operation) => self.inner().is_some_and(|(_, levels)| levels[operation].clear(index)),
            None => self.level.clear(index),
        })
    }

    /// Fixes a value for the object and all its operations.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] and [`Refusal::OutOfRange`]. [`Refusal::Fixed`] if it was fixed to another value.
    #[cfg(feature = "policies")]
    pub(crate) fn fix<T: Value>(
        &self,
        attribute: &'static Attribute<T>,
        value: T,
    ) -> Result<(), AttributeError> {
        use std::sync::{Mutex, PoisonError};
        /// Serialises the threads that fix values, so that each is stored once (I2).
        static FIXING: Mutex<()> = Mutex::new(());
        let index = index_of(self.schema(), attribute.identity(), || self.holder())?;
        let refused = |refusal| AttributeError::new(self.holder(), attribute.name(), refusal);
        let bits = attribute.encode(value).map_err(refused)?;
        if squall_sys::fork::forked() {
            // The lock may be held for ever. No object can be created.
            return Ok(());
        }
        let level = &self.levels()[FIXED];
        let _fixing = FIXING.lock().unwrap_or_else(PoisonError::into_inner);
        match level.get(index) {
            None => level.put(self.schema(), index, bits),
            Some(before) if before == bits => {}
            Some(before) => {
                return Err(refused(Refusal::Fixed { value: AnyAttribute::show(attribute, before) }));
            }
        }
        Ok(())
    }

    /// Returns the value of an attribute, if it was fixed when the object was created.
    ///
    /// # Cost
    /// One load if no attribute is fixed. Wait-free.
    #[inline]
    pub fn fixed<T: Value>(&self, attribute: &'static Attribute<T>) -> Option<T> {
        self.fixed_bits(attribute.identity()).map(T::from_bits)
    }

    #[inline]
    pub(super) fn fixed_bits(&self, head: &'static Head) -> Option<u64> {
        let (fixed, _) = self.inner()?;
        fixed.get(self.schema().index_of(head)?)
    }

    #[inline]
    fn inner(&self) -> Option<(&Level, &[Level])> {
        self.inner.get().and_then(|levels| levels.split_first())
    }

    fn refuse_fixed(
        &self,
        operation: Option<usize>,
        attribute: &'static dyn AnyAttribute,
    ) -> Result<(), AttributeError> {
        let Some(bits) = self.fixed_bits(attribute.head()) else { return Ok(()) };
        let refusal = Refusal::Fixed { value: attribute.show(bits) };
        Err(AttributeError::new(self.holder_of(operation), attribute.name(), refusal))
    }

    /// Lists every attribute of the object with its value, then the values set for its operations.
    pub fn list(&self) -> Vec<AttributeInfo> {
        let attributes = || self.schema().attributes().iter().enumerate();
        let whole = attributes().map(|(index, one)| AttributeInfo::new(*one, None, self.bits(None, index)));
        let levels = self.inner().map_or(&[][..], |(_, levels)| levels).iter();
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
        match operation {
            Some(operation) => &self.levels()[FIXED + 1 + operation],
            None => &self.level,
        }
    }

    fn levels(&self) -> &[Level] {
        let count = FIXED + 1 + self.schema().operations().len();
        self.inner.get_or_init(|| (0..count).map(|_| Level::new()).collect())
    }

    fn bits(&self, operation: Option<usize>, index: usize) -> Option<(u64, Scope)> {
        self.view(operation, Received::NONE).bits(index)
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

/// Values as one call sees them. Created by [`InstanceValues::view`].
#[derive(Clone, Copy)]
pub struct AttributeView<'a> {
    values: &'a InstanceValues,
    /// Level of the fixed values, if a value is fixed or an operation has a value.
    fixed: Option<&'a Level>,
    /// Level of the operation, under the same condition.
    operation: Option<&'a Level>,
    call: Received<'a>,
}

impl fmt::Debug for AttributeView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttributeView")
            .field("values", self.values)
            .field("call", &self.call)
            .finish_non_exhaustive()
    }
}

impl AttributeView<'_> {
    /// Returns the value: fixed, or given to the call, or set for its operation, the object or the class, or
    /// the default.
    ///
    /// # Panics
    /// With debug assertions, if the class does not have the attribute. Without them the result is the
    /// attribute's default.
    /// # Cost
    /// Wait-free. See the [module](super). A fixed value is found without a look at the attributes of the
    /// call.
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
        if let Some(bits) = self.fixed_bits(head) {
            return T::from_bits(bits);
        }
        let bits = match self.call.find(head) {
            None if !self.is_any_set() => None,
            None => self.find_set(head).map(|(bits, _)| bits),
            given => given,
        };
        bits.map_or(attribute.default(), T::from_bits)
    }

    /// Returns the scope in which [`get`](Self::get) finds the value.
    pub fn scope_of<T: Value>(&self, attribute: &'static Attribute<T>) -> Scope {
        match self.call.find(attribute.identity()) {
            _ if self.fixed_bits(attribute.identity()).is_some() => Scope::Fixed,
            Some(_) => Scope::Call,
            None => self.find_set(attribute.identity()).map_or(Scope::Default, |(_, scope)| scope),
        }
    }

    #[inline]
    fn fixed_bits(&self, head: &'static Head) -> Option<u64> {
        self.fixed?.get(self.values.schema().index_of(head)?)
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
        let fixed = self.fixed.and_then(|level| of(level, Scope::Fixed));
        let own = fixed.or_else(|| self.operation.and_then(|level| of(level, Scope::Operation)));
        own.or_else(|| of(&self.values.level, Scope::Instance)).or_else(|| self.values.class.bits(index))
    }
}
