//! Splits a text into words and counts them.
//!
//! A word is a maximal run of letters, digits and underscores of any script, in lower case. Invalid UTF-8
//! ends a word. Queries are split by the same functions as the texts.

use std::collections::HashMap;

/// The hasher of all maps in the comparison.
pub(crate) type Hasher = foldhash::fast::RandomState;

/// Maximum length of a word in bytes. Longer words are left out, because they are data.
pub(crate) const WORD_BYTES_MAX: usize = 255;

/// Returns a text in lower case.
pub(super) fn lower(text: &[u8]) -> String {
    String::from_utf8_lossy(text).to_lowercase()
}

/// Iterates over the words of a text in lower case, in order.
fn words(lower: &str, bytes_max: usize) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    lower.split(move |c| !is_part(c)).filter(move |word| (1..=bytes_max).contains(&word.len()))
}

/// Returns the number of occurrences of each word in a text in lower case, and the number of words.
pub(super) fn frequencies(lower: &str, bytes_max: usize) -> (HashMap<&str, u32, Hasher>, u64) {
    let mut found = HashMap::with_capacity_and_hasher(lower.len() / 32, Hasher::default());
    let mut count = 0;
    for word in words(lower, bytes_max) {
        *found.entry(word).or_insert(0) += 1;
        count += 1;
    }
    (found, count)
}

/// Parses a query for a single word.
///
/// # Errors
/// The query contains no word, several words, or a word longer than `WORD_BYTES_MAX`.
pub(crate) fn parse(asked: &str) -> Result<String, String> {
    let lower = lower(asked.as_bytes());
    let found: Vec<&str> = words(&lower, usize::MAX).collect();
    match found[..] {
        [] => Err("a word needs at least one letter, digit or underscore".to_owned()),
        [word] if word.len() > WORD_BYTES_MAX => {
            Err(format!("words of more than {WORD_BYTES_MAX} bytes are not indexed"))
        }
        [word] => Ok(word.to_owned()),
        _ => Err(format!("the query has {} words ({}); give one word", found.len(), found.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8]) -> Vec<(String, u32)> {
        let lower = lower(text);
        let (found, count) = frequencies(&lower, WORD_BYTES_MAX);
        assert_eq!(count, found.values().map(|count| u64::from(*count)).sum::<u64>());
        let mut found: Vec<_> = found.into_iter().map(|(word, count)| (word.to_owned(), count)).collect();
        found.sort();
        found
    }

    #[test]
    fn a_word_is_a_run_of_letters_digits_and_underscores() {
        let pair = |word: &str, count| (word.to_owned(), count);
        assert_eq!(of(b""), []);
        assert_eq!(of(b" \n--,"), []);
        assert_eq!(
            of(b"One, two; ONE\tsnake_case x86-64"),
            [pair("64", 1), pair("one", 2), pair("snake_case", 1), pair("two", 1), pair("x86", 1)]
        );
        assert_eq!(of("Über — ÜBER été".as_bytes()), [pair("été", 1), pair("über", 2)]);
        assert_eq!(of(b"caf\xe9 cr\xe8me\xff"), [pair("caf", 1), pair("cr", 1), pair("me", 1)]);
        assert_eq!(of("a".repeat(256).as_bytes()), []);
        assert_eq!(of("a".repeat(255).as_bytes()).len(), 1);
    }

    #[test]
    fn a_query_is_one_word_in_its_indexed_form() {
        assert_eq!(parse("  Über! ").as_deref(), Ok("über"));
        assert_eq!(parse("x86").as_deref(), Ok("x86"));
        assert!(parse("hash map").is_err_and(|why| why.contains("2 words") && why.contains("hash, map")));
        assert!(parse("--").is_err() && parse("").is_err() && parse(&"a".repeat(256)).is_err());
    }
}
