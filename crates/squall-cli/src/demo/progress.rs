//! A progress bar on stderr.

use indicatif::ProgressBar;

use crate::progress::bar;

/// A progress bar on a terminal; invisible elsewhere.
pub(super) struct Progress(pub(super) ProgressBar);

impl Progress {
    pub(super) fn new(length: u64, what: &'static str) -> Progress {
        Progress(bar(length, "{msg:22} {wide_bar} {percent} %").with_message(what))
    }

    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
