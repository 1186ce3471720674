//! Writing to stdout without a panic when the reader has gone, and the one error type of the binary.

use std::fmt;
use std::io::{self, Write};

use squall_bench::RunError;

/// Why the exit status is not 0.
#[derive(Debug)]
pub(crate) enum Failure {
    /// With a message for stderr.
    Message(String),
    /// What was asked cannot be said: neither that it holds nor that it does not.
    Undecided(String),
    /// The reader of stdout has gone; nobody is there to be told.
    ReaderGone,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure::Message(message.into())
    }

    /// The exit status: 1, but 3 where nothing can be said. 2 is for command lines that make no sense.
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
            Failure::ReaderGone => f.write_str("the reader of the output has gone"),
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

/// Writes one line to stdout, at once.
pub(crate) fn line(text: impl fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}
