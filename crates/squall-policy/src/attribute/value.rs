//! Types that an attribute can have. Each value fits 64 bits, and its text can be parsed back.
//!
//! - I1. `from_bits(to_bits(v))` is `v`, for each regular `v`.
//! - I2. `parse(show(v))` is `v`, for each regular `v`.

use squall_machine::ClusterSize;
use std::fmt;
use std::num::IntErrorKind;
use std::time::Duration;

/// Type of an attribute. `Display` prints one word, such as `u64`, or `choice` for a [`Choice`].
///
/// ```
/// use squall::policy::attribute::{AnyAttribute, Attribute, Kind};
///
/// static OPEN: Attribute<bool> = Attribute::new("open", true);
/// assert_eq!(OPEN.kind(), Kind::Bool);
/// assert_eq!(Kind::U64.to_string(), "u64");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// `bool`.
    Bool,
    /// `u32`.
    U32,
    /// `u64`.
    U64,
    /// `i64`.
    I64,
    /// `f64`; always finite.
    F64,
    /// [`Duration`], in whole nanoseconds and below 585 years.
    Duration,
    /// [`ClusterSize`].
    ClusterSize,
    /// One of these names (see [`Choice`]).
    Choice(&'static [&'static str]),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Bool => "bool",
            Kind::U32 => "u32",
            Kind::U64 => "u64",
            Kind::I64 => "i64",
            Kind::F64 => "f64",
            Kind::Duration => "duration",
            Kind::ClusterSize => "cluster size",
            Kind::Choice(_) => "choice",
        })
    }
}

/// Reason why a text is not a value of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoValue {
    /// The text does not have the form of a value.
    WrongType,
    /// The text has the form of a value, but the type cannot hold that value.
    Beyond,
}

pub(super) mod sealed {
    pub trait Sealed {}
}

/// A type that an attribute can have: `bool`, `u32`, `u64`, `i64`, `f64`, [`Duration`], [`ClusterSize`], and
/// each [`Choice`].
///
/// ```
/// use squall::policy::attribute::Value;
/// use std::time::Duration;
///
/// let wait = Duration::parse("1.5ms").unwrap();
/// assert_eq!(wait, Duration::from_micros(1500));
/// assert_eq!(Duration::from_bits(wait.to_bits()), wait);
/// assert_eq!(wait.show(), "1.5ms");
/// ```
pub trait Value: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The type, as a [`Kind`].
    const KIND: Kind;

    /// Returns the value as a word. For a value that is not [regular](Self::is_regular) the word is
    /// arbitrary.
    fn to_bits(self) -> u64;

    /// Inverse of [`to_bits`](Self::to_bits).
    ///
    /// # Panics
    /// May panic if `bits` did not come from [`to_bits`](Self::to_bits) of this type.
    fn from_bits(bits: u64) -> Self;

    /// Returns `true` if an attribute without a range accepts the value: a finite number, a duration below
    /// 585 years.
    fn is_regular(self) -> bool;

    /// Returns `true` if the value equals `other` or comes before it.
    fn at_most(self, other: Self) -> bool;

    /// Returns the text, which [`parse`](Self::parse) reads back.
    fn show(self) -> String;

    /// Parses a text. White space around it is ignored.
    ///
    /// # Errors
    /// [`NoValue`] if the text is not a value of this type.
    fn parse(text: &str) -> Result<Self, NoValue>;

    /// Returns the least and the greatest value, where an error message should name them.
    fn bounds() -> Option<(Self, Self)>;
}

impl sealed::Sealed for bool {}

impl Value for bool {
    const KIND: Kind = Kind::Bool;

    #[inline]
    fn to_bits(self) -> u64 {
        self.into()
    }

    #[inline]
    fn from_bits(bits: u64) -> bool {
        bits != 0
    }

    #[inline]
    fn is_regular(self) -> bool {
        true
    }

    #[inline]
    fn at_most(self, other: bool) -> bool {
        self <= other
    }

    fn show(self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Result<bool, NoValue> {
        text.trim().parse().map_err(|_| NoValue::WrongType)
    }

    fn bounds() -> Option<(bool, bool)> {
        None
    }
}

macro_rules! whole_number {
    ($($type:ident $kind:ident),+) => {$(
        impl sealed::Sealed for $type {}

        impl Value for $type {
            const KIND: Kind = Kind::$kind;

            #[inline]
            fn to_bits(self) -> u64 {
                self as u64
            }

            #[inline]
            fn from_bits(bits: u64) -> $type {
                bits as $type
            }

            #[inline]
            fn is_regular(self) -> bool {
                true
            }

            #[inline]
            fn at_most(self, other: $type) -> bool {
                self <= other
            }

            fn show(self) -> String {
                self.to_string()
            }

            fn parse(text: &str) -> Result<$type, NoValue> {
                let number = text.trim().parse::<i128>().map_err(|error| match error.kind() {
                    IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => NoValue::Beyond,
                    _ => NoValue::WrongType,
                })?;
                number.try_into().map_err(|_| NoValue::Beyond)
            }

            fn bounds() -> Option<($type, $type)> {
                Some(($type::MIN, $type::MAX))
            }
        }
    )+};
}
whole_number!(u32 U32, u64 U64, i64 I64);

impl sealed::Sealed for f64 {}

impl Value for f64 {
    const KIND: Kind = Kind::F64;

    #[inline]
    fn to_bits(self) -> u64 {
        f64::to_bits(self)
    }

    #[inline]
    fn from_bits(bits: u64) -> f64 {
        f64::from_bits(bits)
    }

    #[inline]
    fn is_regular(self) -> bool {
        self.is_finite()
    }

    #[inline]
    fn at_most(self, other: f64) -> bool {
        self <= other
    }

    fn show(self) -> String {
        format!("{self:?}")
    }

    fn parse(text: &str) -> Result<f64, NoValue> {
        let text = text.trim();
        let number: f64 = text.parse().map_err(|_| NoValue::WrongType)?;
        match number.is_finite() {
            true => Ok(number),
            // A number too large for the type has digits. Words such as `inf` and `nan` have not.
            false if text.contains(|c: char| c.is_ascii_digit()) => Err(NoValue::Beyond),
            false => Err(NoValue::WrongType),
        }
    }

    fn bounds() -> Option<(f64, f64)> {
        None
    }
}

/// Units of a duration in nanoseconds, the largest first. The last field is the number of digits that a
/// fraction may have.
const UNITS: [(&str, u64, usize); 4] =
    [("s", 1_000_000_000, 9), ("ms", 1_000_000, 6), ("us", 1_000, 3), ("ns", 1, 0)];

impl sealed::Sealed for Duration {}

impl Value for Duration {
    const KIND: Kind = Kind::Duration;

    #[inline]
    fn to_bits(self) -> u64 {
        self.as_secs().wrapping_mul(1_000_000_000).wrapping_add(self.subsec_nanos().into())
    }

    #[inline]
    fn from_bits(bits: u64) -> Duration {
        Duration::from_nanos(bits)
    }

    #[inline]
    fn is_regular(self) -> bool {
        self <= Duration::from_nanos(u64::MAX)
    }

    #[inline]
    fn at_most(self, other: Duration) -> bool {
        self <= other
    }

    fn show(self) -> String {
        let ns = self.as_nanos();
        let is_whole = |&&(_, unit, _): &&(&str, u64, usize)| ns >= u128::from(unit);
        let &(name, unit, digits) = UNITS.iter().find(is_whole).unwrap_or(&UNITS[3]);
        let (whole, rest) = (ns / u128::from(unit), ns % u128::from(unit));
        match rest {
            0 => format!("{whole}{name}"),
            _ => format!("{whole}.{}{name}", format!("{rest:0digits$}").trim_end_matches('0')),
        }
    }

    fn parse(text: &str) -> Result<Duration, NoValue> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(NoValue::WrongType)?;
        let (number, unit) = text.split_at(end);
        let unit = match unit.trim_start() {
            // The micro sign, and the Greek letter mu.
            "\u{b5}s" | "\u{3bc}s" => "us",
            unit => unit,
        };
        let &(_, unit, digits) = UNITS.iter().find(|(name, ..)| *name == unit).ok_or(NoValue::WrongType)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let fraction = match fraction.trim_end_matches('0') {
            _ if whole.is_empty() || fraction.is_empty() || fraction.contains('.') => {
                return Err(NoValue::WrongType);
            }
            // A fraction of a nanosecond.
            fine if fine.len() > digits => return Err(NoValue::WrongType),
            "" => 0,
            coarse => format!("{coarse:0<digits$}").parse::<u64>().map_err(|_| NoValue::WrongType)?,
        };
        // Only digits are left here, so a failed parse means that the number is too large.
        let whole: u64 = whole.parse().map_err(|_| NoValue::Beyond)?;
        let ns = whole.checked_mul(unit).and_then(|ns| ns.checked_add(fraction));
        ns.map(Duration::from_nanos).ok_or(NoValue::Beyond)
    }

    fn bounds() -> Option<(Duration, Duration)> {
        Some((Duration::ZERO, Duration::from_nanos(u64::MAX)))
    }
}

impl sealed::Sealed for ClusterSize {}

/// Order: the levels of the machine from small to large, then groups of a fixed number of VPs.
impl Value for ClusterSize {
    const KIND: Kind = Kind::ClusterSize;

    #[inline]
    fn to_bits(self) -> u64 {
        match self {
            ClusterSize::Fixed(vps) => u64::from(vps.get()) << 8,
            level => ClusterSize::LEVELS.iter().position(|known| *known == level).unwrap_or_default() as u64,
        }
    }

    #[inline]
    fn from_bits(bits: u64) -> ClusterSize {
        match bits >> 8 {
            0 => ClusterSize::LEVELS[bits as usize],
            vps => ClusterSize::fixed(vps as u32),
        }
    }

    #[inline]
    fn is_regular(self) -> bool {
        true
    }

    #[inline]
    fn at_most(self, other: ClusterSize) -> bool {
        self.to_bits() <= other.to_bits()
    }

    fn show(self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Result<ClusterSize, NoValue> {
        text.trim().parse().map_err(|_| NoValue::WrongType)
    }

    fn bounds() -> Option<(ClusterSize, ClusterSize)> {
        None
    }
}

/// A type with a few named values. [`choices!`](crate::choices) declares one.
///
/// ```
/// use squall::policy::attribute::{Choice, choices};
///
/// choices! {
///     pub enum End {
///         Front = "front",
///         Back = "back",
///     }
/// }
/// assert_eq!((End::NAMES, End::Back.index()), (&["front", "back"][..], 1));
/// ```
pub trait Choice: Copy + Send + Sync + 'static {
    /// The values, in order.
    const ALL: &'static [Self];
    /// The names, in the order of `ALL`, all different.
    const NAMES: &'static [&'static str];

    /// Returns the position in `ALL`. A value with an index outside `ALL` is rejected by every attribute.
    fn index(self) -> usize;
}

impl<T: Choice> sealed::Sealed for T {}

impl<T: Choice> Value for T {
    const KIND: Kind = Kind::Choice(T::NAMES);

    #[inline]
    fn to_bits(self) -> u64 {
        self.index() as u64
    }

    #[inline]
    fn from_bits(bits: u64) -> T {
        T::ALL[bits as usize]
    }

    #[inline]
    fn is_regular(self) -> bool {
        const { assert!(T::ALL.len() == T::NAMES.len(), "the choices and their names differ in number") };
        self.index() < T::ALL.len()
    }

    #[inline]
    fn at_most(self, other: T) -> bool {
        self.index() <= other.index()
    }

    fn show(self) -> String {
        T::NAMES.get(self.index()).map_or_else(|| self.index().to_string(), |name| (*name).to_owned())
    }

    fn parse(text: &str) -> Result<T, NoValue> {
        let at = T::NAMES.iter().position(|name| *name == text.trim()).ok_or(NoValue::WrongType)?;
        T::ALL.get(at).copied().ok_or(NoValue::WrongType)
    }

    fn bounds() -> Option<(T, T)> {
        None
    }
}

/// Rejects names that are not unique, and names with characters other than lower-case letters, digits, `-`
/// and `_`.
#[doc(hidden)]
pub const fn check_names(names: &[&str]) {
    let mut at = 0;
    while at < names.len() {
        check_name(names[at]);
        let mut other = 0;
        while other < at {
            assert!(
                !are_equal(names[at].as_bytes(), names[other].as_bytes()),
                "two choices or two modes have the same name"
            );
            other += 1;
        }
        at += 1;
    }
}

/// Rejects an empty name and characters other than lower-case letters, digits, `-` and `_`.
pub(super) const fn check_name(name: &str) {
    assert!(!name.is_empty(), "the name of an attribute, a choice or a mode is empty");
    let mut at = 0;
    while at < name.len() {
        assert!(
            matches!(name.as_bytes()[at], b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'),
            "the name of an attribute, a choice or a mode has a character other than lower-case letters, digits, `-` and `_`"
        );
        at += 1;
    }
}

const fn are_equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Declares an enumeration for attributes: its values, each with its name in text form.
///
/// The type is `Copy`, `Debug`, `PartialEq`, `Eq` and `Hash`, and implements
/// [`Choice`](crate::attribute::Choice). Names must be unique and consist of lower-case letters, digits, `-`
/// and `_`; other names do not compile.
///
/// ```
/// use squall::policy::attribute::{Choice, choices};
///
/// choices! {
///     /// How a waiter waits.
///     pub enum Wait {
///         /// It reads the word again and again.
///         Spin = "spin",
///         /// It sleeps until it is woken.
///         Block = "block",
///     }
/// }
/// assert_eq!(Wait::NAMES[Wait::Block.index()], "block");
/// ```
#[macro_export]
macro_rules! choices {
    ($(#[$meta:meta])* $visible:vis enum $name:ident {
        $($(#[$choice_meta:meta])* $choice:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visible enum $name {
            $($(#[$choice_meta])* $choice),+
        }

        impl $crate::attribute::Choice for $name {
            const ALL: &'static [$name] = &[$($name::$choice),+];
            const NAMES: &'static [&'static str] = {
                let names: &'static [&'static str] = &[$($text),+];
                $crate::attribute::check_names(names);
                names
            };

            #[inline]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
