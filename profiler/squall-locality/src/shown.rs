//! Escapes text of the profiled program for a terminal. Names of functions, paths and threads come from the
//! program; they must not move the cursor, change colours or forge a line.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether the character can act on a terminal: control characters, and characters that change the text
/// direction.
fn is_active(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Replaces such characters by Rust escapes, for example `\u{1b}`.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(is_active) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if is_active(letter) {
            // Writing to a `String` cannot fail.
            let _ = write!(safe, "{}", letter.escape_unicode());
        } else {
            safe.push(letter);
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(shown("a::b<ü>"), "a::b<ü>");
        assert_eq!(shown("\u{1b}[2Jx\r\ny\u{9b}"), "\\u{1b}[2Jx\\u{d}\\u{a}y\\u{9b}");
        assert_eq!(shown("a\u{202e}b"), "a\\u{202e}b");
    }
}
