//! Planned breaks: faults that a stress commits on purpose. A stress that has never failed proves nothing.
//!
//! `SQUALL_STRESS_BREAK=NAME` makes a stress behave as if the library were broken. Each stress declares its
//! breaks with [`breaks!`]. A run with a break must end with a violation; the tests of the binary `squall`
//! check that.

use std::ffi::OsStr;

use crate::run::Violation;

/// The planned breaks of a stress.
pub(crate) trait Breaks: Copy + 'static {
    /// The breaks, by name.
    const ALL: &'static [(&'static str, Self)];
}

/// Declares `Break`, the planned breaks of a stress, as `Variant = "name"`.
macro_rules! breaks {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// A planned break of this stress, for `SQUALL_STRESS_BREAK`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Break {
            $($(#[$doc])* $variant),+
        }

        impl $crate::skeleton::breaks::Breaks for Break {
            const ALL: &'static [(&'static str, Break)] = &[$(($name, Break::$variant)),+];
        }
    };
}
pub(crate) use breaks;

/// Returns the break that the environment asks for, if any.
///
/// # Errors
/// The stress does not know the break. The error lists the known ones.
pub(crate) fn asked<B: Copy>(known: &[(&str, B)]) -> Result<Option<B>, Violation> {
    chosen(std::env::var_os("SQUALL_STRESS_BREAK").as_deref(), known)
}

fn chosen<B: Copy>(name: Option<&OsStr>, known: &[(&str, B)]) -> Result<Option<B>, Violation> {
    let Some(name) = name else { return Ok(None) };
    let found = known.iter().find(|(known, _)| name == *known);
    found.map(|(_, found)| Some(*found)).ok_or_else(|| {
        let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        Violation(format!("SQUALL_STRESS_BREAK must be one of: {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_break_is_chosen_and_an_unknown_one_refused() {
        let known = [("skip", 1), ("lose", 2)];
        let ask = |name: &str| chosen(Some(OsStr::new(name)), &known);
        assert!(matches!(chosen(None, &known), Ok(None)));
        assert!(matches!(ask("lose"), Ok(Some(2))));
        for unknown in ["", "los", "Lose", "skip,lose"] {
            let refusal = ask(unknown).expect_err("an unknown name is refused");
            assert!(refusal.0.ends_with("must be one of: skip, lose"), "{refusal:?}");
        }
    }
}
