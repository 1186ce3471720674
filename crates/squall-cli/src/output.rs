//! Output to stdout that does not panic when the reader is gone, and the error type of the binary.

use std::fmt;
use std::io::{self, Write};

use squall_bench::RunError;

/// The reason for a non-zero exit status.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error with a message for stderr.
    Message(String),
    /// The check could not be decided: too little was measured to say yes or no. The message goes to stderr.
    Undecided(String),
    /// The reader of stdout is gone. The binary ends without a message.
    ReaderGone,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure::Message(message.into())
    }

    /// Returns the exit status: 3 for an undecided check, else 1. Clap uses 2 for invalid command lines.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Failure::Undecided(_) => 3,
            Failure::Message(_) | Failure::ReaderGone => 1,
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self, Failure::ReaderGone)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Message(message) | Failure::Undecided(message) => f.write_str(message),
            Failure::ReaderGone => f.write_str("the reader of the output is gone"),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        Failure::Message(error.0)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::Message(format!("cannot write to stdout: {error}")),
        }
    }
}

/// Returns `true` for a control character, and for a character that changes the direction of writing.
pub(crate) fn controls_terminal(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes all characters but newlines that control a terminal. A message may contain texts of another
/// program.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => shown.push(letter),
            _ if controls_terminal(letter) => shown.extend(letter.escape_default()),
            _ => shown.push(letter),
        }
    }
    shown
}

/// Escapes the characters of JSON in one line that control a terminal. They are inside of its texts.
pub(crate) fn printable_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            // All of them have four digits.
            _ if controls_terminal(letter) => shown += &format!("\\u{:04x}", u32::from(letter)),
            _ => shown.push(letter),
        }
    }
    shown
}

/// Writes one line to stdout and flushes it.
pub(crate) fn line(text: impl fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_other_programs_cannot_control_a_terminal() {
        assert_eq!(printable("a\u{1b}]0;x\u{7}\n\u{202e}ä"), "a\\u{1b}]0;x\\u{7}\n\\u{202e}ä");
        let text = "a\u{9b}2J\u{202e}ä\n";
        let json = serde_json::to_string(text).expect("text");
        let shown = printable_json(&json);
        assert_eq!(shown, r#""a\u009b2J\u202eä\n""#);
        assert_eq!(serde_json::from_str::<String>(&shown).expect("the same"), text);
    }
}
