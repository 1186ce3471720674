//! Modes that policies add.

use std::fmt;

use crate::attribute::check_names;

/// A way to make a call that a policy adds, like KTK's `INVOKE$mode`; declared as a `static`.
///
/// A policy lists its modes in [`Policy::MODES`](crate::Policy::MODES), and handles them in
/// [`Policy::invoke_mode`](crate::Policy::invoke_mode). A caller names the mode in
/// [`in_mode`](super::in_mode) or [`in_mode_named`](super::in_mode_named). Two modes with one name are equal,
/// so that policies can share a mode.
///
/// ```
/// use squall::policy::invoke::Mode;
///
/// static TRY: Mode = Mode::new("try").about("refuses a call that would wait");
/// assert_eq!((TRY.name(), TRY.description()), ("try", "refuses a call that would wait"));
/// ```
pub struct Mode {
    name: &'static str,
    about: &'static str,
}

impl Mode {
    /// Declares a mode.
    ///
    /// # Panics
    /// If the name is empty or has characters other than lower-case letters, digits, `-` and `_`. For a
    /// `static` that is a compile error.
    pub const fn new(name: &'static str) -> Mode {
        check_names(&[name]);
        Mode { name, about: "" }
    }

    /// Sets the description: a phrase that says how the mode makes a call.
    pub const fn about(mut self, about: &'static str) -> Mode {
        self.about = about;
        self
    }

    /// Returns the name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the description, or an empty string.
    pub const fn description(&self) -> &'static str {
        self.about
    }
}

impl PartialEq for Mode {
    /// Compares the names.
    #[inline]
    fn eq(&self, other: &Mode) -> bool {
        self.name == other.name
    }
}

impl Eq for Mode {}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mode({})", self.name)
    }
}

/// Mode of asynchronous calls, for policies that have a thread for them.
///
/// A policy that lists it in [`Policy::MODES`](crate::Policy::MODES) makes the calls for which
/// [`INVOCATION`](super::INVOCATION) is `asynchronous`. Without it, the program's executor makes them.
pub static ASYNCHRONOUS: Mode = Mode::new("asynchronous").about("runs on a thread of the policy");

/// Mode of calls that do not wait: a call that cannot begin at once is refused.
pub static TRY: Mode = Mode::new("try").about("refuses a call that would wait");

/// Rejects two modes of one policy with the same name. For a constant list that is a compile error.
pub(crate) const fn check_modes(modes: &[&'static Mode]) {
    let mut at = 0;
    while at < modes.len() {
        let mut other = 0;
        while other < at {
            check_names(&[modes[other].name, modes[at].name]);
            other += 1;
        }
        at += 1;
    }
}
