//! What is wrong with an attribute, whose it is, and what would be right.

use squall_core::Id;
use std::fmt;

/// The most characters of somebody's text that an error repeats.
const TEXT_CHARS_MAX: usize = 80;

/// Who was to have an attribute. Its `Display` is `object 17.3 of class lock`, for instance.
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

    /// An operation of this instance.
    pub(super) const fn operation(self, name: &'static str) -> Holder {
        Holder { place: Place::Operation(name), ..self }
    }

    pub(super) const fn call(class: Option<&'static str>) -> Holder {
        Holder { place: Place::Call, class, id: None }
    }

    /// The class, where it is known: the callee of a call is not, before it receives.
    pub fn class_name(&self) -> Option<&'static str> {
        self.class
    }

    /// The object, where it is known.
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

/// Why an attribute was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no attribute of this name.
    Unknown {
        /// Those there are.
        names: Vec<&'static str>,
    },
    /// There is no operation of this name.
    UnknownOperation {
        /// Those there are.
        operations: &'static [&'static str],
    },
    /// The text is no value of the attribute's type.
    WrongType {
        /// The text, its control characters escaped, and cut where it is long.
        text: String,
        /// What the attribute takes.
        takes: String,
    },
    /// A value of the right type, but one that the attribute does not take.
    OutOfRange {
        /// The value.
        value: String,
        /// What the attribute takes.
        takes: String,
    },
    /// More attributes than one call can have.
    TooMany {
        /// How many it can have.
        max: usize,
    },
}

/// An attribute was refused; nothing was changed. Says for whom it was, why, and what would be right.
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

    /// Who was to have the attribute.
    pub fn holder(&self) -> Holder {
        self.0.holder
    }

    /// The name that was asked for: of an attribute, or with [`Refusal::UnknownOperation`] of an operation. Control
    /// characters are escaped, and a long one is cut.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Why it was refused.
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
            Refusal::TooMany { max } => {
                write!(f, "attribute `{name}` of {holder}: a call can have {max} at most")
            }
        }
    }
}

impl std::error::Error for AttributeError {}

fn list(f: &mut fmt::Formatter<'_>, what: &str, names: &[&str]) -> fmt::Result {
    match names {
        [] => f.write_str("it has none"),
        [first, rest @ ..] => {
            write!(f, "its {what} are `{first}`")?;
            rest.iter().try_for_each(|name| write!(f, ", `{name}`"))
        }
    }
}

/// Text of unknown origin, fit to be shown: short, and without control characters.
pub(super) fn quotable(text: &str) -> String {
    let mut shown: String =
        text.chars().take(TEXT_CHARS_MAX).flat_map(|c| c.escape_debug()).collect::<String>();
    if text.chars().nth(TEXT_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}
