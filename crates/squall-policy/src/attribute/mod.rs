//! Attributes: typed, named values that steer how an object works, and that can be set while the program
//! runs.
//!
//! An [`Attribute`] is a `static` with a default, an optional range and an optional unit. A class lists its
//! attributes in a [`Schema`] and has one [`ClassValues`]. Each object that can be steered has an
//! [`InstanceValues`].
//!
//! A lookup goes from the innermost scope to the outermost. The order is: this call ([`with`]), this
//! operation of the object, the object, its class, the default. Values are set typed or as text. A rejected
//! value returns an error that names the values allowed. A policy can fix a value when it creates the object:
//! then no scope changes it, and a call with that attribute is refused.
//!
//! # Attributes of one call
//!
//! The caller addresses the attributes to an object: `with(handle, (&PRIORITY, 3), |handle|
//! handle.put(item))`. The object fetches them with [`receive`], either in the method or, for all methods, in
//! the policy around the object. They apply to that call alone:
//!
//! * A call of another object in the same closure does not have them.
//! * Calls that the callee makes after it received do not have them. The callee passes them on with
//!   `with(other, call, …)`.
//! * Another thread does not have them.
//! * An inner `with` hides them until it ends. A panic restores the previous state.
//! * An object that never receives ignores them.
//!
//! Each call of that object in the closure has them. So a method that is repeated after a swap still has
//! them. Make one call in the closure.
//!
//! # Cost
//!
//! An object without values stores no word for them. An object with an empty [`InstanceValues`] pays 80
//! bytes, and one load per scope for each lookup. Words for the values are allocated when the first value is
//! set. Lookups are wait-free. An attribute given to a call costs one write of two words, and one comparison
//! in each lookup of the callee.
//!
//! # Example
//!
//! ```
//! use squall::policy::attribute::{
//!     Attribute, ClassValues, InstanceValues, Schema, Scope, choices, receive, with,
//! };
//! use squall::{Handle, shared_with};
//! use std::sync::Arc;
//!
//! choices! {
//!     /// At which end a line joins.
//!     pub enum End {
//!         Front = "front",
//!         Back = "back",
//!     }
//! }
//!
//! static JOIN: Attribute<End> = Attribute::new("join", End::Back).about("at which end a line joins");
//! static LINES_MAX: Attribute<u64> =
//!     Attribute::<u64>::new("lines-max", 100).between(1, 1_000).in_unit("lines").about("older lines are dropped");
//! static SCHEMA: Schema = Schema::new("log", &[&JOIN, &LINES_MAX]).with_operations(&["write", "read"]);
//! static CLASS: ClassValues = ClassValues::new(&SCHEMA);
//!
//! #[squall::interface]
//! trait Log: Send + Sync {
//!     fn write(&self, line: &str);
//!     fn read(&self) -> Vec<String>;
//! }
//!
//! struct Lines {
//!     handle: Handle<dyn Log>,
//!     values: Arc<InstanceValues>,
//!     lines: std::sync::Mutex<Vec<String>>,
//! }
//!
//! impl Log for Lines {
//!     fn write(&self, line: &str) {
//!         receive(self.handle, |call| {
//!             let values = self.values.view(Some(0), call);
//!             let mut lines = self.lines.lock().unwrap();
//!             let at = match values.get(&JOIN) {
//!                 End::Front => 0,
//!                 End::Back => lines.len(),
//!             };
//!             lines.insert(at, line.to_owned());
//!             let surplus = lines.len().saturating_sub(values.get(&LINES_MAX) as usize);
//!             lines.drain(..surplus);
//!         })
//!     }
//!
//!     fn read(&self) -> Vec<String> {
//!         self.lines.lock().unwrap().clone()
//!     }
//! }
//!
//! let values = Arc::new(InstanceValues::of_class(&CLASS));
//! let for_log = values.clone();
//! let owner = shared_with(|handle| Lines { handle, values: for_log, lines: Default::default() }).unwrap();
//! let log: Handle<dyn Log> = owner.handle();
//! squall::policy::attribute::attach(Handle::id(log), values.clone());
//!
//! // For one call, which is checked.
//! log.write("first");
//! with(log, (&JOIN, End::Front), |log| log.write("before it"))?;
//! log.write("last");
//! assert_eq!(log.read(), ["before it", "first", "last"]);
//!
//! // For the object, for one of its operations, as text: by whoever knows its id.
//! let found = squall::policy::attribute::values_of(Handle::id(log)).unwrap();
//! found.set_text("lines-max", "2")?;
//! found.set_text("write.join", "front")?;
//! log.write("now");
//! assert_eq!(log.read(), ["first", "last"]);
//! let error = found.set_text("lines-max", "0").unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     format!(
//!         "attribute `lines-max` of object {} of class log: 0 is out of range; \
//!          it takes a whole number from 1 to 1000, in lines",
//!         Handle::id(log)
//!     )
//! );
//! # Ok::<(), squall::policy::attribute::AttributeError>(())
//! ```
//!
//! # Source
//! KTK §2.1: attributes of classes, instances, operations and invocations (KT-01). KTK also has attributes of
//! state variables. Here they are attributes of the instance, because the fields of a representative are
//! private.

mod call;
mod error;
mod registry;
mod schema;
mod value;
mod values;
mod waiting;

use std::fmt;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

pub use call::{CALL_ATTRIBUTES_MAX, CallAttributes, Callee, Given, Received, receive, with};
pub use error::{AttributeError, Holder, Refusal};
#[cfg(feature = "policies")]
pub(crate) use error::{list, quotable};
pub use registry::{attach, attached, detach, values_of};
pub use schema::{ATTRIBUTES_MAX, Schema};
#[doc(hidden)]
pub use value::check_names;
pub use value::{Choice, Kind, NoValue, Value};
pub use values::{AttributeInfo, AttributeView, ClassValues, InstanceValues, Scope};

#[doc(inline)]
pub use crate::choices;

/// The part of an attribute that is independent of its type. Its address is the attribute's identity.
#[doc(hidden)]
pub struct Head {
    name: &'static str,
    unit: &'static str,
    about: &'static str,
    /// Position in the schema that looked the attribute up first, counted from 1; 0 if unknown. Most
    /// attributes are in one schema only, and this hint saves the search. The atomic also prevents the use of
    /// a `const` attribute: a reference to it is not `'static`, because only a `static` has one address.
    place: AtomicU8,
}

/// A typed, named value that can be set from outside; declared as a `static`.
///
/// ```
/// use squall::policy::attribute::Attribute;
///
/// static SPINS: Attribute<u64> =
///     Attribute::<u64>::new("spins", 100).between(0, 10_000).in_unit("rounds").about("before a waiter sleeps");
/// assert_eq!((SPINS.name(), SPINS.default()), ("spins", 100));
/// ```
///
/// A default outside the range does not compile. Neither does a name with characters other than lower-case
/// letters, digits, `-` and `_`:
///
/// ```compile_fail,E0080
/// # use squall::policy::attribute::Attribute;
/// static SPINS: Attribute<u64> = Attribute::<u64>::new("spins", 100).between(0, 10);
/// ```
///
/// A `const` attribute has no identity, so its use does not compile either:
///
/// ```compile_fail,E0716
/// # use squall::policy::attribute::{Attribute, CallAttributes};
/// const SPINS: Attribute<u64> = Attribute::new("spins", 100);
/// let mut call = CallAttributes::new();
/// let _ = call.set(&SPINS, 3);
/// ```
#[repr(C)]
pub struct Attribute<T: Value> {
    /// First field, so that the address of the attribute is the address of its head, for every type.
    head: Head,
    default: T,
    range: Option<(T, T)>,
}

impl<T: Value> Attribute<T> {
    /// Declares an attribute with this default and without a range.
    ///
    /// # Panics
    /// If the name is empty or has characters other than lower-case letters, digits, `-` and `_`. For a
    /// `static` that is a compile error.
    pub const fn new(name: &'static str, default: T) -> Attribute<T> {
        value::check_name(name);
        Attribute { head: Head { name, unit: "", about: "", place: AtomicU8::new(0) }, default, range: None }
    }

    /// Sets the unit, as a word such as `rounds`. Durations carry their own unit.
    ///
    /// ```
    /// use squall::policy::attribute::Attribute;
    ///
    /// static SPINS: Attribute<u64> = Attribute::<u64>::new("spins", 100).in_unit("rounds");
    /// assert_eq!(SPINS.name(), "spins");
    /// ```
    pub const fn in_unit(mut self, unit: &'static str) -> Attribute<T> {
        self.head.unit = unit;
        self
    }

    /// Sets the description: a phrase that says how the attribute changes the object.
    ///
    /// ```
    /// use squall::policy::attribute::Attribute;
    ///
    /// static DEPTH: Attribute<u32> = Attribute::<u32>::new("depth", 2).about("levels searched at most");
    /// assert_eq!(DEPTH.default(), 2);
    /// ```
    pub const fn about(mut self, about: &'static str) -> Attribute<T> {
        self.head.about = about;
        self
    }

    /// Returns the name.
    pub const fn name(&self) -> &'static str {
        self.head.name
    }

    /// Returns the value that applies where no scope sets one.
    pub const fn default(&self) -> T {
        self.default
    }

    /// Returns the least and the greatest value, if a range was declared.
    ///
    /// ```
    /// use squall::policy::attribute::Attribute;
    ///
    /// static SPINS: Attribute<u64> = Attribute::<u64>::new("spins", 100).between(0, 10_000);
    /// assert_eq!(SPINS.range(), Some((0, 10_000)));
    /// ```
    pub const fn range(&self) -> Option<(T, T)> {
        self.range
    }

    #[inline(always)]
    fn identity(&'static self) -> &'static Head {
        &self.head
    }

    /// Returns `true` if the attribute accepts this value.
    ///
    /// ```
    /// use squall::policy::attribute::Attribute;
    ///
    /// static SPINS: Attribute<u64> = Attribute::<u64>::new("spins", 100).between(0, 10_000);
    /// assert!(SPINS.accepts(10_000) && !SPINS.accepts(10_001));
    /// ```
    #[inline]
    pub fn accepts(&self, value: T) -> bool {
        let in_range = |(min, max): (T, T)| min.at_most(value) && value.at_most(max);
        value.is_regular() && self.range.is_none_or(in_range)
    }

    /// Returns the bits of an accepted value.
    #[inline]
    fn encode(&self, value: T) -> Result<u64, Refusal> {
        match self.accepts(value) {
            true => Ok(value.to_bits()),
            false => Err(self.beyond(value.show())),
        }
    }

    #[cold]
    fn beyond(&self, value: String) -> Refusal {
        Refusal::OutOfRange { value, takes: self.takes() }
    }
}

macro_rules! ranges {
    ($($type:ident => $measure:ident, |$value:ident| $order:expr;)+) => {$(
        impl Attribute<$type> {
            /// Sets the range, from `min` to `max` inclusive.
            ///
            /// # Panics
            /// If the default is outside the range, or if `min` or `max` is not a valid attribute value. For
            /// a `static` that is a compile error.
            ///
            /// ```
            /// use squall::policy::attribute::Attribute;
            ///
            /// static SPINS: Attribute<u64> = Attribute::<u64>::new("spins", 100).between(0, 10_000);
            /// assert_eq!(SPINS.range(), Some((0, 10_000)));
            /// ```
            pub const fn between(mut self, min: $type, max: $type) -> Attribute<$type> {
                const fn order($value: $type) -> $measure {
                    $order
                }
                let default = order(self.default);
                assert!(order(min) <= default && default <= order(max), "the default of the attribute is outside its range");
                self.range = Some((min, max));
                self
            }
        }
    )+};
}
ranges! {
    u32 => u32, |value| value;
    u64 => u64, |value| value;
    i64 => i64, |value| value;
    f64 => f64, |value| {
        assert!(value.is_finite(), "the default or a bound of the attribute is not finite");
        value
    };
    Duration => u128, |value| {
        assert!(value.as_nanos() <= u64::MAX as u128, "the default or a bound of the attribute is a duration above 585 years");
        value.as_nanos()
    };
}

impl<T: Value> fmt::Debug for Attribute<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attribute")
            .field("name", &self.head.name)
            .field("kind", &T::KIND)
            .finish_non_exhaustive()
    }
}

mod sealed {
    pub trait Sealed {}
}

impl<T: Value> sealed::Sealed for Attribute<T> {}

/// An attribute of any type, seen as text.
///
/// ```
/// use squall::policy::attribute::{AnyAttribute, Attribute};
///
/// static SPINS: Attribute<u64> = Attribute::<u64>::new("spins", 100).between(0, 1_000).in_unit("rounds");
/// let any: &dyn AnyAttribute = &SPINS;
/// assert_eq!(any.default_text(), "100");
/// assert_eq!(any.takes(), "a whole number from 0 to 1000, in rounds");
/// ```
pub trait AnyAttribute: sealed::Sealed + Sync {
    /// Returns the name.
    fn name(&self) -> &'static str;
    /// Returns the type.
    fn kind(&self) -> Kind;
    /// Returns the unit, or an empty string.
    fn unit(&self) -> &'static str;
    /// Returns the description, or an empty string.
    fn about(&self) -> &'static str;
    /// Returns the default as text.
    fn default_text(&self) -> String;
    /// Returns the range as text, or the list of values.
    fn range_text(&self) -> String;
    /// Describes the accepted values in a few words.
    fn takes(&self) -> String;
    /// Returns the text of a value, given as bits.
    ///
    /// # Panics
    /// May panic if `bits` are not a value of this type.
    fn show(&self, bits: u64) -> String;
    /// Parses a text and returns the bits of the value.
    ///
    /// # Errors
    /// [`Refusal::WrongType`] and [`Refusal::OutOfRange`].
    fn parse(&self, text: &str) -> Result<u64, Refusal>;
    /// Returns the identity.
    #[doc(hidden)]
    fn head(&'static self) -> &'static Head;
}

impl<T: Value> AnyAttribute for Attribute<T> {
    fn name(&self) -> &'static str {
        self.head.name
    }

    fn kind(&self) -> Kind {
        T::KIND
    }

    fn unit(&self) -> &'static str {
        self.head.unit
    }

    fn about(&self) -> &'static str {
        self.head.about
    }

    fn default_text(&self) -> String {
        self.default.show()
    }

    fn range_text(&self) -> String {
        match (T::KIND, self.range.or_else(T::bounds)) {
            (Kind::Choice(names), _) => names.join(", "),
            (Kind::Bool, _) => "true, false".to_owned(),
            (Kind::ClusterSize, None) => "cpu, core, cache, node, machine, fixed:N".to_owned(),
            (_, Some((min, max))) => format!("{} to {}", min.show(), max.show()),
            (_, None) => "finite".to_owned(),
        }
    }

    fn takes(&self) -> String {
        let range = || match self.range.or_else(T::bounds) {
            Some((min, max)) => format!(" from {} to {}", min.show(), max.show()),
            None => String::new(),
        };
        let what = match T::KIND {
            Kind::Choice(names) => format!("one of `{}`", names.join("`, `")),
            Kind::Bool => "`true` or `false`".to_owned(),
            Kind::ClusterSize => {
                "`cpu`, `core`, `cache`, `node`, `machine`, or `fixed:` and how many processors".to_owned()
            }
            Kind::F64 if self.range.is_none() => "a finite number".to_owned(),
            Kind::F64 => format!("a number{}", range()),
            Kind::Duration => format!("a duration{}", range()),
            Kind::U32 | Kind::U64 | Kind::I64 => format!("a whole number{}", range()),
        };
        match self.head.unit {
            "" => what,
            unit => format!("{what}, in {unit}"),
        }
    }

    fn show(&self, bits: u64) -> String {
        T::from_bits(bits).show()
    }

    fn parse(&self, text: &str) -> Result<u64, Refusal> {
        match T::parse(text) {
            Ok(value) => self.encode(value),
            Err(NoValue::WrongType) => {
                Err(Refusal::WrongType { text: error::quotable(text), takes: self.takes() })
            }
            Err(NoValue::Beyond) => Err(self.beyond(error::quotable(text.trim()))),
        }
    }

    fn head(&'static self) -> &'static Head {
        &self.head
    }
}
