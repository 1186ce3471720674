//! Attributes: typed, named values with a default, a range and a unit, that say *how* an object does what it does.
//!
//! An [`Attribute`] is a `static`. A class lists those that it understands in a [`Schema`], and has a [`ClassValues`]; each
//! object that can be steered has an [`InstanceValues`]. A value is looked up from the inside to the outside: given to
//! this call ([`with`]), set for this operation of the object, for the object, for its class, the default. It can be set
//! while the program runs, typed or as text; what is wrong is refused with an error that says what would be right.
//!
//! # Attributes of one call
//!
//! The caller addresses them to an object: `with(co, (&PRIORITY, 3), |co| co.put(item))`. The object fetches them with
//! [`receive`]: in the method itself, or, for every method, in the policy around the object. They are for that call alone:
//!
//! * a call of another object in the same closure does not have them;
//! * what the callee calls does not have them, once it received; it passes them on by giving them again,
//!   `with(other, call, …)`;
//! * another thread does not have them;
//! * an inner `with` hides them until it ends, and a panic restores what was there before;
//! * an object that does not receive ignores them.
//!
//! Each call of that object which the closure makes has them, so that a method that is made again, since the object was
//! swapped meanwhile, still has them. Make one call in the closure.
//!
//! # Cost
//!
//! An object without values has no word for them. One with [`InstanceValues`] of which none is set pays 80 bytes, and for
//! each look-up a load for each scope; words for values appear when the first is set. Every look-up is wait-free. Each
//! attribute given to a call is one write of two words, and one comparison for each look-up of the callee.
//!
//! # Example
//!
//! ```
//! use squall_policy::attribute::{
//!     Attribute, ClassValues, InstanceValues, Schema, Scope, choices, receive, with,
//! };
//! use squall_core::{Handle, shared_with};
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
//! #[squall_macros::interface(crate = squall_core)]
//! trait Log: Send + Sync {
//!     fn write(&self, line: &str);
//!     fn read(&self) -> Vec<String>;
//! }
//!
//! struct Lines {
//!     co: Handle<dyn Log>,
//!     values: Arc<InstanceValues>,
//!     lines: std::sync::Mutex<Vec<String>>,
//! }
//!
//! impl Log for Lines {
//!     fn write(&self, line: &str) {
//!         receive(self.co, |call| {
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
//! let owner = shared_with(|co| Lines { co, values: for_log, lines: Default::default() }).unwrap();
//! let log: Handle<dyn Log> = owner.co();
//! squall_policy::attribute::attach(Handle::id(log), values.clone());
//!
//! // For one call, which is checked.
//! log.write("first");
//! with(log, (&JOIN, End::Front), |log| log.write("before it"))?;
//! log.write("last");
//! assert_eq!(log.read(), ["before it", "first", "last"]);
//!
//! // For the object, for one of its operations, as text: by whoever knows its id.
//! let found = squall_policy::attribute::of(Handle::id(log)).unwrap();
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
//! # Ok::<(), squall_policy::attribute::AttributeError>(())
//! ```
//!
//! # Source
//! KTK §2.1: attributes of classes, instances, operations and invocations (KT-01). KTK's attributes of state variables are
//! attributes of the instance here: a representative's fields are nobody's business but its own.

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
pub use registry::{attach, attached, detach, of};
pub use schema::{ATTRIBUTES_MAX, Schema};
#[doc(hidden)]
pub use value::check_names;
pub use value::{Choice, Kind, NoValue, Value};
pub use values::{AttributeInfo, ClassValues, InstanceValues, Scope, AttributeView};

#[doc(inline)]
pub use crate::choices;

/// What every attribute has, whatever its type. Its address is the attribute's identity.
#[doc(hidden)]
pub struct Head {
    name: &'static str,
    unit: &'static str,
    about: &'static str,
    /// The place that it has in the schema in which it was first looked for, from 1: most are in one only, and need not be
    /// searched there. It also keeps a `const` from being an attribute: a reference to it is not `'static`, as only a
    /// `static` has one address.
    place: AtomicU8,
}

/// A typed, named value that can be set from outside; declared as a `static`.
///
/// ```
/// use squall_policy::attribute::Attribute;
///
/// static SPINS: Attribute<u64> =
///     Attribute::<u64>::new("spins", 100).between(0, 10_000).in_unit("rounds").about("before a waiter sleeps");
/// assert_eq!((SPINS.name(), SPINS.default()), ("spins", 100));
/// ```
///
/// A default outside the range, or a name that is not of lower-case letters, digits, `-` and `_`, does not compile:
///
/// ```compile_fail,E0080
/// # use squall_policy::attribute::Attribute;
/// static SPINS: Attribute<u64> = Attribute::<u64>::new("spins", 100).between(0, 10);
/// ```
///
/// Nor can it be used where it is a `const`, which has no identity:
///
/// ```compile_fail,E0716
/// # use squall_policy::attribute::{Attribute, CallAttributes};
/// const SPINS: Attribute<u64> = Attribute::new("spins", 100);
/// let mut call = CallAttributes::new();
/// let _ = call.set(&SPINS, 3);
/// ```
#[repr(C)]
pub struct Attribute<T: Value> {
    /// First, so that the attribute's address is its head's, whatever its type.
    head: Head,
    default: T,
    range: Option<(T, T)>,
}

impl<T: Value> Attribute<T> {
    /// An attribute with this default, that takes every value of its type.
    ///
    /// # Panics
    /// Where the name is not of lower-case letters, digits, `-` and `_`: at compile time, of a `static`.
    pub const fn new(name: &'static str, default: T) -> Attribute<T> {
        value::check_name(name);
        Attribute { head: Head { name, unit: "", about: "", place: AtomicU8::new(0) }, default, range: None }
    }

    /// With a unit, as a word: `rounds`. A duration needs none.
    pub const fn in_unit(mut self, unit: &'static str) -> Attribute<T> {
        self.head.unit = unit;
        self
    }

    /// With a sentence on what it changes.
    pub const fn about(mut self, about: &'static str) -> Attribute<T> {
        self.head.about = about;
        self
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.head.name
    }

    /// What it is where it is set nowhere.
    pub const fn default(&self) -> T {
        self.default
    }

    /// Its least and greatest value, if it was declared with a range.
    pub const fn range(&self) -> Option<(T, T)> {
        self.range
    }

    #[inline(always)]
    fn identity(&'static self) -> &'static Head {
        &self.head
    }

    /// Whether it takes this value.
    #[inline]
    pub fn accepts(&self, value: T) -> bool {
        let in_range = |(min, max): (T, T)| min.at_most(value) && value.at_most(max);
        value.is_regular() && self.range.is_none_or(in_range)
    }

    /// The bits of a value that it takes.
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
            /// With a range: from `min` to `max`, both included.
            ///
            /// # Panics
            /// If the default is not in it, or an end is no value that an attribute can have: at compile time, of a
            /// `static`.
            pub const fn between(mut self, min: $type, max: $type) -> Attribute<$type> {
                const fn order($value: $type) -> $measure {
                    $order
                }
                let default = order(self.default);
                assert!(order(min) <= default && default <= order(max), "the default is not in the range");
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
        assert!(value.is_finite(), "an attribute is a finite number");
        value
    };
    Duration => u128, |value| {
        assert!(value.as_nanos() <= u64::MAX as u128, "an attribute is a duration below 585 years");
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

/// An attribute of any type, as text.
pub trait AnyAttribute: sealed::Sealed + Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Its type.
    fn kind(&self) -> Kind;
    /// Its unit, or nothing.
    fn unit(&self) -> &'static str;
    /// What it changes, or nothing.
    fn about(&self) -> &'static str;
    /// What it is where it is set nowhere.
    fn default_text(&self) -> String;
    /// From where to where, or which values.
    fn range_text(&self) -> String;
    /// What it takes, in a few words.
    fn takes(&self) -> String;
    /// The text of a value.
    ///
    /// # Panics
    /// If these are not the bits of a value of its type, perhaps.
    fn show(&self, bits: u64) -> String;
    /// The bits of a value.
    ///
    /// # Errors
    /// [`Refusal::WrongType`] and [`Refusal::OutOfRange`].
    fn parse(&self, text: &str) -> Result<u64, Refusal>;
    /// Its identity.
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
