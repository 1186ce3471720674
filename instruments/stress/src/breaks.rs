//! Ways to break a torture itself: a torture that has never failed proves nothing.
//!
//! `SQUALL_STRESS_BREAK=NAME` makes a torture do what a broken library would do to it; each torture lists its ways. Each
//! such run must end with a violation, which the tests of this crate see to.

use std::ffi::OsStr;

use super::Violation;

/// The way that the environment asks for, if any, of those that the torture knows.
///
/// # Errors
/// It asks for something unknown; the text lists what is known.
pub(crate) fn asked<B: Copy>(known: &[(&str, B)]) -> Result<Option<B>, Violation> {
    chosen(std::env::var_os("SQUALL_STRESS_BREAK").as_deref(), known)
}

fn chosen<B: Copy>(name: Option<&OsStr>, known: &[(&str, B)]) -> Result<Option<B>, Violation> {
    let Some(name) = name else { return Ok(None) };
    let way = known.iter().find(|(known, _)| name == *known);
    way.map(|(_, way)| Some(*way)).ok_or_else(|| {
        let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        Violation(format!("SQUALL_STRESS_BREAK is none of: {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_way_is_chosen_and_an_unknown_one_refused() {
        let known = [("skip", 1), ("lose", 2)];
        let ask = |name: &str| chosen(Some(OsStr::new(name)), &known);
        assert!(matches!(chosen(None, &known), Ok(None)));
        assert!(matches!(ask("lose"), Ok(Some(2))));
        for unknown in ["", "los", "Lose", "skip,lose"] {
            let refusal = ask(unknown).expect_err("it is unknown");
            assert!(refusal.0.ends_with("is none of: skip, lose"), "{refusal:?}");
        }
    }
}
