//! What a word is, and which words a text has how often.
//!
//! A word is a longest run of letters, digits and underscores, in lower case: of any script, where the text is UTF-8; bytes that are
//! not end a word. What asks for a word goes through the same function, so it asks for what is kept.

use std::collections::HashMap;

/// The hasher of all maps here: ours, the rivals' and the plain ones.
pub(crate) type Hasher = foldhash::fast::RandomState;

/// Words that are longer are left out, for they are data: so many bytes.
pub(crate) const WORD_BYTES_MAX: usize = 255;

/// A text in lower case.
pub(super) fn lower(text: &[u8]) -> String {
    String::from_utf8_lossy(text).to_lowercase()
}

/// The words of a text that is in lower case, in their order.
fn words(lower: &str, bytes_max: usize) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    lower.split(move |c| !is_part(c)).filter(move |word| (1..=bytes_max).contains(&word.len()))
}

/// How often each word is in a text that is in lower case, and how many words it has.
pub(super) fn frequencies(lower: &str, bytes_max: usize) -> (HashMap<&str, u32, Hasher>, u64) {
    let mut found = HashMap::with_capacity_and_hasher(lower.len() / 32, Hasher::default());
    let mut count = 0;
    for word in words(lower, bytes_max) {
        *found.entry(word).or_insert(0) += 1;
        count += 1;
    }
    (found, count)
}

/// The one word that is asked for.
///
/// # Errors
/// It is none, or several.
pub(crate) fn parse(asked: &str) -> Result<String, String> {
    let lower = lower(asked.as_bytes());
    let found: Vec<&str> = words(&lower, usize::MAX).collect();
    match found[..] {
        [] => Err("a word has a letter, a digit or an underscore at least".to_owned()),
        [word] if word.len() > WORD_BYTES_MAX => {
            Err(format!("words of more than {WORD_BYTES_MAX} bytes are left out"))
        }
        [word] => Ok(word.to_owned()),
        _ => Err(format!("these are {} words to the index ({}): ask for one", found.len(), found.join(", "))),
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
    fn what_is_asked_for_is_one_word_as_it_is_kept() {
        assert_eq!(parse("  Über! ").as_deref(), Ok("über"));
        assert_eq!(parse("x86").as_deref(), Ok("x86"));
        assert!(parse("hash map").is_err_and(|why| why.contains("2 words") && why.contains("hash, map")));
        assert!(parse("--").is_err() && parse("").is_err() && parse(&"a".repeat(256)).is_err());
    }
}
