//! Reports of a run to its caller: its progress, and the reason for its failure.

/// Current activity of the harness, for a display of progress.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The case.
    pub case: &'a str,
    /// The variant, or empty.
    pub variant: &'a str,
    /// Measured threads.
    pub threads: usize,
    /// Rounds done.
    pub round: usize,
    /// Rounds wanted.
    pub rounds: usize,
}

/// Reason why a run gave no figures.
#[derive(Debug)]
pub struct RunError(pub String);

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RunError {}
