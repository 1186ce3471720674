//! The types that an attribute can have: each value fits 64 bits, and its text can be read back.
//!
//! - I1. `from_bits(to_bits(v))` is `v`, for each `v` that is regular.
//! - I2. `parse(show(v))` is `v`, for each `v` that is regular.

use squall_machine::ClusterSize;
use std::fmt;
use std::num::IntErrorKind;
use std::time::Duration;

/// What type an attribute has. Its `Display` is a word, as in `u64`; of a choice, `choice`.
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
    /// One of these ([`Choice`]).
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

/// Why a text is no value of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoValue {
    /// It is not one at all.
    WrongType,
    /// It would be one, but the type does not reach so far.
    Beyond,
}

pub(super) mod sealed {
    pub trait Sealed {}
}

/// A type that an attribute can have: `bool`, `u32`, `u64`, `i64`, `f64`, [`Duration`], [`ClusterSize`], and each [`Choice`].
pub trait Value: sealed::Sealed + Copy + Send + Sync + 'static {
    /// Which it is.
    const KIND: Kind;

    /// The value as a word. Of one that is not [regular](Self::is_regular), any.
    fn to_bits(self) -> u64;

    /// The inverse of [`to_bits`](Self::to_bits).
    ///
    /// # Panics
    /// If `bits` came from elsewhere, perhaps.
    fn from_bits(bits: u64) -> Self;

    /// Whether an attribute without a range takes it: a finite number, a duration below 585 years.
    fn is_regular(self) -> bool;

    /// Whether it is `other`, or comes before it.
    fn at_most(self, other: Self) -> bool;

    /// Its text, which [`parse`](Self::parse) reads back.
    fn show(self) -> String;

    /// Reads a text, without regard to white space around it.
    ///
    /// # Errors
    /// [`NoValue`].
    fn parse(text: &str) -> Result<Self, NoValue>;

    /// The least and the greatest, where an error should name them.
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
            // A number too great to be one, or a word for what is none.
            false if text.contains(|c: char| c.is_ascii_digit()) => Err(NoValue::Beyond),
            false => Err(NoValue::WrongType),
        }
    }

    fn bounds() -> Option<(f64, f64)> {
        None
    }
}

/// The units of a duration, in nanoseconds, the greatest first, each with how many digits a fraction of it can have.
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
            // The micro sign, and the Greek letter.
            "\u{b5}s" | "\u{3bc}s" => "us",
            unit => unit,
        };
        let &(_, unit, digits) = UNITS.iter().find(|(name, ..)| *name == unit).ok_or(NoValue::WrongType)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let fraction = match fraction.trim_end_matches('0') {
            _ if whole.is_empty() || fraction.is_empty() || fraction.contains('.') => {
                return Err(NoValue::WrongType);
            }
            // Parts of a nanosecond.
            fine if fine.len() > digits => return Err(NoValue::WrongType),
            "" => 0,
            coarse => format!("{coarse:0<digits$}").parse::<u64>().map_err(|_| NoValue::WrongType)?,
        };
        // Nothing but digits: if it is not read, it is too great.
        let whole: u64 = whole.parse().map_err(|_| NoValue::Beyond)?;
        let ns = whole.checked_mul(unit).and_then(|ns| ns.checked_add(fraction));
        ns.map(Duration::from_nanos).ok_or(NoValue::Beyond)
    }

    fn bounds() -> Option<(Duration, Duration)> {
        Some((Duration::ZERO, Duration::from_nanos(u64::MAX)))
    }
}

impl sealed::Sealed for ClusterSize {}

/// Larger ones come later; groups of so many VPs after the levels of the machine.
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

/// A type of a few named values. [`choices!`](crate::choices) writes one.
pub trait Choice: Copy + Send + Sync + 'static {
    /// The values, in order.
    const ALL: &'static [Self];
    /// Their names, in the same order: each is different.
    const NAMES: &'static [&'static str];

    /// Which of `ALL` it is. One that is not below its length is no value that an attribute takes.
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
        const { assert!(T::ALL.len() == T::NAMES.len(), "each choice has one name") };
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

/// Refuses names that are not different, or not of lower-case letters, digits, `-` and `_`.
#[doc(hidden)]
pub const fn check_names(names: &[&str]) {
    let mut at = 0;
    while at < names.len() {
        check_name(names[at]);
        let mut other = 0;
        while other < at {
            assert!(!are_equal(names[at].as_bytes(), names[other].as_bytes()), "two choices have one name");
            other += 1;
        }
        at += 1;
    }
}

/// Refuses a name that is not of lower-case letters, digits, `-` and `_`.
pub(super) const fn check_name(name: &str) {
    assert!(!name.is_empty(), "an attribute or a choice has a name");
    let mut at = 0;
    while at < name.len() {
        assert!(
            matches!(name.as_bytes()[at], b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'),
            "the name of an attribute or a choice is of lower-case letters, digits, `-` and `_`"
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

/// Declares an enumeration that an attribute can have: its values, each with the name by which it is known as text.
///
/// It is `Copy`, `Debug`, `PartialEq`, `Eq` and `Hash`, and a [`Choice`](crate::attribute::Choice). The names are of
/// lower-case letters, digits, `-` and `_`, and all different, or it does not compile.
///
/// ```
/// use squall_policy::attribute::{Choice, choices};
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
