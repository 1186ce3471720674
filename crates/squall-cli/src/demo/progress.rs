//! A progress bar on stderr.

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar on a terminal; invisible elsewhere.
pub(super) struct Progress(pub(super) ProgressBar);

impl Progress {
    pub(super) fn new(length: u64, what: &'static str) -> Progress {
        // Indicatif draws on stderr, and only if stderr is a terminal.
        let bar = ProgressBar::new(length).with_message(what);
        match ProgressStyle::with_template("{msg:22} {wide_bar} {percent} %") {
            Ok(style) => Progress(bar.with_style(style)),
            Err(_) => Progress(bar),
        }
    }

    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
