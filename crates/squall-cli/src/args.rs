//! Options that several commands share.

/// Parses a thread count. The upper limit only catches typing errors.
pub(crate) fn parse_count(text: &str) -> Result<usize, String> {
    const THREADS_MAX: usize = 65_536;
    match text.parse() {
        Ok(count) if (1..=THREADS_MAX).contains(&count) => Ok(count),
        _ => Err(format!("expected a number from 1 to {THREADS_MAX}")),
    }
}
