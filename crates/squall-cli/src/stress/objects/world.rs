//! What all threads of the torture share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

use super::board::Board;
use super::breaks::Break;
use super::classes::CLASSES;
use super::ledger::{Ledger, Verdict};
use super::lives::Post;
use super::tally::Tally;
use crate::stress::ballast::Ballast;

pub(super) struct World {
    pub(super) ledger: Ledger,
    pub(super) board: Board,
    pub(super) ballast: Ballast,
    pub(super) tally: Tally,
    pub(super) broken: Option<Break>,
    /// Where the threads live.
    pub(super) posts: Vec<Post>,
    /// Farewells that are to come of dying threads (`lives`).
    pub(super) farewells_due: AtomicUsize,
    /// Panics that the library has to catch itself: those of drops.
    pub(super) drop_panics: AtomicU64,
    stop: AtomicBool,
    accusation: Mutex<Option<String>>,
    paused: AtomicBool,
    pause: Mutex<bool>,
    resumed: Condvar,
}

/// A lock that nobody panics under on purpose; what it guards is whole in any case.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

impl World {
    pub(super) fn make(broken: Option<Break>, threads: usize) -> &'static World {
        /// Keeps what is leaked in sight of leak checkers.
        static WORLDS: Mutex<Vec<&'static World>> = Mutex::new(Vec::new());
        let world: &'static World = Box::leak(Box::new(World {
            ledger: Ledger::new(CLASSES),
            board: Board::new(),
            ballast: Ballast::new(),
            tally: Tally::default(),
            broken,
            posts: (0..threads).map(|_| Post::default()).collect(),
            farewells_due: AtomicUsize::new(0),
            drop_panics: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            accusation: Mutex::new(None),
            paused: AtomicBool::new(false),
            pause: Mutex::new(false),
            resumed: Condvar::new(),
        }));
        lock(&WORLDS).push(world);
        world
    }

    pub(super) fn is_broken(&self, how: Break) -> bool {
        self.broken == Some(how)
    }

    /// Ends the run with this accusation, if it is the first.
    pub(super) fn accuse(&self, what: String) {
        let thread = thread::current();
        let name = thread.name().unwrap_or("without a name");
        lock(&self.accusation).get_or_insert_with(|| format!("thread {name}: {what}"));
        self.stop();
    }

    /// Accuses if the verdict says so.
    pub(super) fn judge(&self, verdict: Verdict) {
        if let Err(what) = verdict {
            self.accuse(what);
        }
    }

    pub(super) fn accusation(&self) -> Option<String> {
        lock(&self.accusation).clone()
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.set_paused(false);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// All threads stop before their next step and go on together.
    pub(super) fn set_paused(&self, paused: bool) {
        *lock(&self.pause) = paused;
        self.paused.store(paused, Ordering::Relaxed);
        self.resumed.notify_all();
    }

    /// Waits while all pause. Returns whether the run goes on.
    pub(super) fn gate(&self) -> bool {
        if self.paused.load(Ordering::Relaxed) {
            let paused = lock(&self.pause);
            drop(
                self.resumed
                    .wait_while(paused, |paused| *paused)
                    .unwrap_or_else(|poison| poison.into_inner()),
            );
        }
        !self.is_stopped()
    }
}
