//! The first difference of two signatures, for people.

use std::fmt;

/// Longest part that is shown, in characters.
const SHOWN: usize = 200;

/// A part of a signature. Control characters of a hostile server are escaped.
#[derive(Debug, PartialEq, Eq)]
pub struct Part<'a>(Option<&'a str>);

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(text) = self.0 else { return f.write_str("no method there") };
        f.write_str("`")?;
        text.chars().take(SHOWN).try_for_each(|letter| match letter {
            ' '..='~' => write!(f, "{letter}"),
            other => write!(f, "{}", other.escape_unicode()),
        })?;
        f.write_str(if text.chars().nth(SHOWN).is_some() { "…`" } else { "`" })
    }
}

/// Returns the first parts of two signatures that differ: the name of the trait, a method, or the version.
pub fn first_difference<'a>(one: &'a str, other: &'a str) -> (Part<'a>, Part<'a>) {
    let (mut ones, mut others) = (parts(one).into_iter(), parts(other).into_iter());
    loop {
        match (ones.next(), others.next()) {
            // Equal texts with different hashes, of a hostile server.
            (None, None) => return (Part(Some(one)), Part(Some(other))),
            (one, other) if one == other => {}
            (one, other) => return (Part(one), Part(other)),
        }
    }
}

/// Splits a signature into the version, the name of the trait, and the methods.
fn parts(signature: &str) -> Vec<&str> {
    let Some((name, rest)) = signature.split_once('{') else { return vec![signature] };
    let Some((methods, version)) = rest.rsplit_once("};") else { return vec![signature] };
    let mut depth = 0_usize;
    let split = methods.split(|letter| {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ';' && depth == 0
    });
    [version, name].into_iter().chain(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn differ(one: &str, other: &str, texts: [&str; 2]) {
        let (one, other) = first_difference(one, other);
        assert_eq!([one.to_string(), other.to_string()], texts);
    }

    #[test]
    fn the_first_difference_of_each_kind_is_found() {
        let one = "Kv{get([u8;4])->u64;put(u64)->()};version=1";
        differ(
            one,
            "Kv{get([u8;5])->u64;put(u64)->()};version=1",
            ["`get([u8;4])->u64`", "`get([u8;5])->u64`"],
        );
        differ(one, "Kv{get([u8;4])->u64;put(u32)->()};version=1", ["`put(u64)->()`", "`put(u32)->()`"]);
        differ(one, "Kv{get([u8;4])->u64};version=1", ["`put(u64)->()`", "no method there"]);
        differ(one, "Map{get([u8;4])->u64;put(u64)->()};version=1", ["`Kv`", "`Map`"]);
        differ(one, "Kv{get([u8;4])->u64;put(u64)->()};version=2", ["`version=1`", "`version=2`"]);
        differ("A{};version=1", "A{};version=1", ["`A{};version=1`", "`A{};version=1`"]);
    }

    #[test]
    fn a_hostile_text_is_short_and_without_control_characters() {
        let long = "x".repeat(1_000);
        let (_, other) = first_difference("Kv{};version=1", &long);
        assert_eq!(other.to_string().chars().count(), SHOWN + 3);
        differ("Kv{};version=1", "\u{1b}[31m", ["`version=1`", "`\\u{1b}[31m`"]);
    }
}
