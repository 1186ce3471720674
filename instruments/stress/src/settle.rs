//! The end of a torture: all that is pending runs, until nothing is left.

/// Settles, and asks what is left, until nothing is: `rounds` times at most.
///
/// # Errors
/// What is left after the last time, or the error of a time.
pub(crate) fn until_nothing_is_left(
    rounds: u32,
    mut settle: impl FnMut() -> Result<(), String>,
    mut left: impl FnMut() -> Option<String>,
) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..rounds {
        settle()?;
        match left() {
            Some(left) => last = left,
            None => return Ok(()),
        }
    }
    Err(format!("after {rounds} barriers at the end: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn it_ends_when_nothing_is_left_or_says_what_is() {
        let things = Cell::new(3);
        let settle = || {
            things.set(things.get() - 1);
            Ok(())
        };
        let left = || (things.get() > 0).then(|| format!("{} of 3", things.get()));
        let says = until_nothing_is_left(2, settle, left);
        assert_eq!(says, Err("after 2 barriers at the end: 1 of 3".to_owned()));
        assert_eq!(until_nothing_is_left(400, settle, left), Ok(()));
        assert_eq!(things.get(), 0, "no oftener than needed");
        let fails = until_nothing_is_left(3, || Err("at the end: refused".to_owned()), || None);
        assert_eq!(fails, Err("at the end: refused".to_owned()));
    }
}
