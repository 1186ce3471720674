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

/// Writes one line to stdout and flushes it.
pub(crate) fn line(text: impl fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}
