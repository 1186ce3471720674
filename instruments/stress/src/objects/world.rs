//! What all threads of the torture share.

use std::sync::atomic::AtomicU64;

use super::board::Board;
use super::breaks::Break;
use super::classes::CLASSES;
use super::ledger::{Ledger, Verdict};
use super::tally::Tally;
use crate::ballast::Ballast;
use crate::leak;
use crate::post::Post;
use crate::trial::Trial;

pub(super) struct World {
    pub(super) ledger: Ledger,
    pub(super) board: Board,
    pub(super) ballast: Ballast,
    pub(super) tally: Tally,
    pub(super) broken: Option<Break>,
    pub(super) trial: Trial,
    /// Where the threads live.
    pub(super) posts: Vec<Post>,
    /// Panics that the library has to catch itself: those of drops.
    pub(super) drop_panics: AtomicU64,
}

impl World {
    pub(super) fn make(broken: Option<Break>, threads: usize) -> &'static World {
        leak(World {
            ledger: Ledger::new(CLASSES),
            board: Board::new(),
            ballast: Ballast::new(),
            tally: Tally::default(),
            broken,
            trial: Trial::default(),
            posts: (0..threads).map(|_| Post::default()).collect(),
            drop_panics: AtomicU64::new(0),
        })
    }

    pub(super) fn is_broken(&self, how: Break) -> bool {
        self.broken == Some(how)
    }

    /// Accuses if the verdict says so.
    pub(super) fn judge(&self, verdict: Verdict) {
        if let Err(what) = verdict {
            self.trial.accuse(what);
        }
    }
}
