//! Errors of attributes: the owner, the reason, and the values allowed.

use squall_core::Id;
use std::fmt;

/// Largest number of characters of foreign text that an error repeats.
const TEXT_CHARS_MAX: usize = 80;

/// Owner of the attribute that an error is about. `Display` prints for instance `object 17.3 of class lock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    place: Place,
    class: Option<&'static str>,
    id: Option<Id>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Class,
    Instance,
    Operation(&'static str),
    Call,
}

impl Holder {
    pub(super) const fn class(class: &'static str) -> Holder {
        Holder { place: Place::Class, class: Some(class), id: None }
    }

    #[doc(hidden)]
    pub const fn instance(class: &'static str, id: Option<Id>) -> Holder {
        Holder { place: Place::Instance, class: Some(class), id }
    }

    /// Returns one operation of this instance as the owner.
    pub(super) const fn operation(self, name: &'static str) -> Holder {
        Holder { place: Place::Operation(name), ..self }
    }

    pub(super) const fn call(class: Option<&'static str>) -> Holder {
        Holder { place: Place::Call, class, id: None }
    }

    /// Returns the class, if it is known. The callee of a call is unknown until it receives.
    pub fn class_name(&self) -> Option<&'static str> {
        self.class
    }

    /// Returns the object, if it is known.
    pub fn id(&self) -> Option<Id> {
        self.id
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Class => return write!(f, "class {}", self.class.unwrap_or_default()),
            Place::Instance => {}
            Place::Operation(name) => write!(f, "operation `{name}` of ")?,
            Place::Call if self.class.is_none() => return f.write_str("a call"),
            Place::Call => f.write_str("a call of ")?,
        }
        match self.id {
            Some(id) => write!(f, "object {id}")?,
            None => f.write_str("an object")?,
        }
        write!(f, " of class {}", self.class.unwrap_or_default())
    }
}

/// Reason why an attribute was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The owner has no attribute of this name.
    Unknown {
        /// Names of its attributes.
        names: Vec<&'static str>,
    },
    /// The object has no operation of this name.
    UnknownOperation {
        /// Names of its operations.
        operations: &'static [&'static str],
    },
    /// The text is not a value of the attribute's type.
    WrongType {
        /// The text, with control characters escaped, truncated if it is long.
        text: String,
        /// Description of the values that the attribute accepts.
        takes: String,
    },
    /// The value has the right type, but the attribute does not accept it.
    OutOfRange {
        /// The value, as text.
        value: String,
        /// Description of the values that the attribute accepts.
        takes: String,
    },
    /// The value was fixed when the object was created.
    Fixed {
        /// The fixed value, as text.
        value: String,
    },
    /// The call would have more attributes than it can.
    TooMany {
        /// Largest number of attributes of one call.
        max: usize,
    },
}

/// Error: an attribute was rejected. Its value stays. Names the owner, the reason, and the values allowed.
///
/// ```
/// use squall::policy::attribute::{Attribute, ClassValues, Refusal, Schema};
///
/// static SPINS: Attribute<u64> = Attribute::<u64>::new("spins", 100).between(0, 1_000);
/// static SCHEMA: Schema = Schema::new("lock", &[&SPINS]);
/// static CLASS: ClassValues = ClassValues::new(&SCHEMA);
///
/// let error = CLASS.set(&SPINS, 2_000).unwrap_err();
/// assert!(matches!(error.refusal(), Refusal::OutOfRange { .. }));
/// assert_eq!(
///     error.to_string(),
///     "attribute `spins` of class lock: 2000 is out of range; it takes a whole number from 0 to 1000"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeError(Box<Refused>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Refused {
    holder: Holder,
    name: String,
    refusal: Refusal,
}

impl AttributeError {
    #[cold]
    #[doc(hidden)]
    pub fn new(holder: Holder, name: &str, refusal: Refusal) -> AttributeError {
        AttributeError(Box::new(Refused { holder, name: quotable(name), refusal }))
    }

    /// Returns the owner that the attribute was meant for.
    pub fn holder(&self) -> Holder {
        self.0.holder
    }

    /// Returns the name that was asked for: of an attribute, or of an operation for
    /// [`Refusal::UnknownOperation`]. Control characters are escaped, and a long name is truncated.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the reason.
    pub fn refusal(&self) -> &Refusal {
        &self.0.refusal
    }
}

impl fmt::Display for AttributeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { holder, name, refusal } = &*self.0;
        match refusal {
            Refusal::Unknown { names } => {
                write!(f, "{holder} has no attribute `{name}`; ")?;
                list(f, "attributes", names)
            }
            Refusal::UnknownOperation { operations } => {
                write!(f, "{holder} has no operation `{name}`; ")?;
                list(f, "operations", operations)
            }
            Refusal::WrongType { text, takes } => {
                write!(f, "attribute `{name}` of {holder}: `{text}` is of the wrong type; it takes {takes}")
            }
            Refusal::OutOfRange { value, takes } => {
                write!(f, "attribute `{name}` of {holder}: {value} is out of range; it takes {takes}")
            }
            Refusal::Fixed { value } => write!(
                f,
                "attribute `{name}` of {holder}: it was fixed to {value} when the object was created; \
                 create another object for another value"
            ),
            Refusal::TooMany { max } => {
                write!(f, "attribute `{name}` of {holder}: a call can have at most {max} attributes")
            }
        }
    }
}

impl std::error::Error for AttributeError {}

/// Writes a list of names, after a semicolon.
pub(crate) fn list(f: &mut fmt::Formatter<'_>, what: &str, names: &[&str]) -> fmt::Result {
    match names {
        [] => f.write_str("it has none"),
        [first, rest @ ..] => {
            write!(f, "its {what} are `{first}`")?;
            rest.iter().try_for_each(|name| write!(f, ", `{name}`"))
        }
    }
}

/// Makes text of unknown origin fit for display: truncated, with control characters escaped.
pub(crate) fn quotable(text: &str) -> String {
    let mut shown: String =
        text.chars().take(TEXT_CHARS_MAX).flat_map(|c| c.escape_debug()).collect::<String>();
    if text.chars().nth(TEXT_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}
