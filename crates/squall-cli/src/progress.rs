//! Progress bars on stderr.

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar on a terminal; invisible elsewhere.
pub(crate) fn bar(length: u64, template: &str) -> ProgressBar {
    // Indicatif draws on stderr, and only if stderr is a terminal.
    let bar = ProgressBar::new(length);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
