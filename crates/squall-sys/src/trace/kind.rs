//! Kinds of events: a name, and the names and roles of the two values.
//!
//! Problem: a record of an event has no room for its kind's name. Idea: it carries the number of its kind,
//! assigned with the first record of that kind.
//!
//! - I1. A number always leads to the same kind. A thread that holds a record finds the kind of its number.
//!
//! Cost: one load for a kind that has its number.
//! Limits: kinds beyond [`KINDS_MAX`] share one number.

use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Largest number of kinds with a number of their own. Further ones are shown as `other`.
pub const KINDS_MAX: usize = 255;

/// Kind of an event. Declared as a `static` by the code that emits the events.
///
/// ```
/// use squall_sys::trace::{Kind, Role};
///
/// static REFILL: Kind = Kind::new("pool.refill", ["from", "waited_ns"]).with_codes(0, &["cache", "disk"]);
/// assert_eq!((REFILL.name(), REFILL.value_names()[1]), ("pool.refill", "waited_ns"));
/// assert_eq!(REFILL.role(1), Role::Quantity);
/// assert_eq!((REFILL.code_name(0, 1), REFILL.code_name(0, 2)), (Some("disk"), None));
/// ```
pub struct Kind {
    name: &'static str,
    values: [&'static str; 2],
    roles: [Role; 2],
    /// Index in [`TABLE`]; [`NONE`] until the first record.
    number: AtomicU16,
}

/// Role of a value.
///
/// ```
/// use squall_sys::trace::{Kind, Role};
///
/// static REFILL: Kind = Kind::new("pool.refill", ["from", "items"]).with_codes(0, &["cache", "disk"]);
/// assert!(matches!(REFILL.role(0), Role::Code(names) if names.len() == 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// An amount: sums and maxima have a meaning.
    Quantity,
    /// A code: the value n stands for the name at index n. Aggregates are kept apart by it.
    Code(&'static [&'static str]),
}

const NONE: u16 = 0;
/// Number of all kinds beyond the limit.
const OTHER: u16 = KINDS_MAX as u16 + 1;

/// Entry n is the kind with number n. Entries are filled in order.
static TABLE: [OnceLock<&'static Kind>; KINDS_MAX + 1] = [const { OnceLock::new() }; KINDS_MAX + 1];
static OTHER_KIND: Kind = Kind::new("other", ["a", "b"]);
/// Number assigned last.
static LAST: Mutex<u16> = Mutex::new(NONE);

impl Kind {
    /// Declares a kind with this name and these names of its two values. A value with an empty name is not
    /// shown.
    ///
    /// Names should be unique in the program. By convention they begin with the name of the component that
    /// writes them.
    ///
    /// # Panics
    /// If `name` is empty, or a name has characters other than ASCII letters, digits, `.`, `_` and `-`. For a
    /// `static` that is a compile error.
    ///
    /// ```compile_fail
    /// static KIND: squall_sys::trace::Kind = squall_sys::trace::Kind::new("two words", ["", ""]);
    /// ```
    pub const fn new(name: &'static str, values: [&'static str; 2]) -> Kind {
        assert!(!name.is_empty(), "the name of a kind of records is empty");
        assert!(
            is_plain(name) && is_plain(values[0]) && is_plain(values[1]),
            "a name has a character other than a-z A-Z 0-9 . _ -"
        );
        Kind { name, values, roles: [Role::Quantity; 2], number: AtomicU16::new(NONE) }
    }

    /// Declares that the value at `index` is a code with these names. For an example see [`Kind`].
    ///
    /// # Panics
    /// If `index` is above 1, or a name has a character that [`new`](Kind::new) refuses. For a `static` that
    /// is a compile error.
    #[must_use]
    pub const fn with_codes(mut self, index: usize, names: &'static [&'static str]) -> Kind {
        let mut n = 0;
        while n < names.len() {
            assert!(is_plain(names[n]), "a code's name has a character other than a-z A-Z 0-9 . _ -");
            n += 1;
        }
        self.roles[index] = Role::Code(names);
        self
    }

    /// Returns the role of the value at `index`, 0 or 1. For an example see [`Kind`].
    pub const fn role(&self, index: usize) -> Role {
        self.roles[index]
    }

    /// Returns the name that the value at `index` stands for, if it is a code with a name.
    pub fn code_name(&self, index: usize, value: u64) -> Option<&'static str> {
        match self.roles[index] {
            Role::Quantity => None,
            Role::Code(names) => names.get(usize::try_from(value).ok()?).copied(),
        }
    }

    /// Returns the name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the names of the values.
    pub const fn value_names(&self) -> [&'static str; 2] {
        self.values
    }

    /// Returns the number of the kind.
    #[doc(hidden)]
    #[inline]
    pub fn number(&'static self) -> u16 {
        // Acquire: pairs with the Release in `register`. So a record that carries the number is published
        // after the table entry was filled (I1).
        match self.number.load(Ordering::Acquire) {
            NONE => self.register(),
            number => number,
        }
    }

    #[cold]
    fn register(&'static self) -> u16 {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: written only under this lock.
        let number = self.number.load(Ordering::Relaxed);
        if number != NONE {
            return number;
        }
        let number = if *last < KINDS_MAX as u16 { *last + 1 } else { OTHER };
        if number != OTHER {
            // Cannot fail: the number is new.
            let _ = TABLE[usize::from(number)].set(self);
            *last = number;
        }
        // Release: pairs with the Acquire in `number`.
        self.number.store(number, Ordering::Release);
        number
    }

    /// Returns the kind of a record's number.
    #[doc(hidden)]
    pub fn of(number: u16) -> &'static Kind {
        TABLE.get(usize::from(number)).and_then(|place| place.get().copied()).unwrap_or(&OTHER_KIND)
    }
}

/// Returns `true` if the name can stand in a line of text and in JSON without escapes.
const fn is_plain(name: &str) -> bool {
    let (bytes, mut n) = (name.as_bytes(), 0);
    while n < bytes.len() {
        if !(bytes[n].is_ascii_alphanumeric() || matches!(bytes[n], b'.' | b'_' | b'-')) {
            return false;
        }
        n += 1;
    }
    true
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind").field("name", &self.name).field("values", &self.values).finish_non_exhaustive()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_gets_one_number_under_contention() {
        static KIND: Kind = Kind::new("kind.test", ["", ""]);
        let numbers: Vec<u16> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(|| KIND.number())).collect();
            all.into_iter().map(|one| one.join().expect("it does not panic")).collect()
        });
        assert!(numbers.iter().all(|&number| number == numbers[0] && number != NONE));
        assert!(std::ptr::eq(Kind::of(numbers[0]), &KIND));
    }

    #[test]
    #[should_panic(expected = "a name has a character other than")]
    fn a_name_that_would_break_a_line_is_refused() {
        let _ = Kind::new("kind.test", ["n", "a\n"]);
    }

    #[test]
    fn unknown_numbers_belong_to_the_other_kind() {
        assert_eq!(Kind::of(NONE).name(), "other");
        assert_eq!(Kind::of(OTHER).name(), "other");
        assert_eq!(Kind::of(u16::MAX).name(), "other");
    }
}
