//! The lives of the torture's threads: each goes from lock to lock, asks for it in one way or another, and dies in the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use squall::lock::Cancel;

use super::breaks::Break;
use super::disturbed;
use super::kinds::{Came, How, any_waiting};
use super::slots::Limit;
use super::tally::{What, count};
use super::world::{Guard, World};
use crate::Rng;
use crate::delay::delay;
use crate::places::hop;
use crate::planned::panic_as_planned;

/// The longest life is shorter than two to this power, in steps.
const LIFE_STEPS_LOG: u64 = 11;
/// The longest time that a wait with a deadline may take.
const PATIENCE_US: u64 = 3_000;
/// One wait in so many that ended before its lock was had is its thread's last deed.
const DIES_ONE_IN: u64 = 64;
const MEDDLES_ONE_IN: u64 = 8;
/// One visit of a reader-writer lock in so many writes.
const WRITES_ONE_IN: u64 = 6;

/// One of them.
pub(super) struct Life {
    pub(super) world: &'static World,
    pub(super) post: usize,
    pub(super) rng: Rng,
    /// Sections of each place.
    pub(super) told: Vec<u64>,
}

/// Starts a life.
pub(super) fn start(world: &'static World, post: usize, rng: Rng) -> std::io::Result<JoinHandle<()>> {
    let life = move || Life { world, post, rng, told: vec![0; world.places.len()] }.live();
    thread::Builder::new().name(format!("locks-{post}")).spawn(life)
}

/// However it ends.
impl Drop for Life {
    fn drop(&mut self) {
        self.world.slots[self.post].wait_no_more();
        self.world.slots[self.post].stay_out();
        for (place, told) in self.world.places.iter().zip(&self.told) {
            place.told.fetch_add(*told, Ordering::Relaxed);
        }
        self.world.tally.hand_in();
        self.world.posts[self.post].move_out();
    }
}

impl Life {
    fn live(mut self) {
        if !self.world.trial.gate() {
            return;
        }
        let post = &self.world.posts[self.post];
        post.move_in();
        disturbed::seed(&mut self.rng);
        let longest = 1 << self.rng.below(LIFE_STEPS_LOG + 1);
        for _ in 0..1 + self.rng.below(longest) {
            post.beat();
            if !self.world.trial.gate() {
                break;
            }
            if self.rng.one_in(64) {
                hop(&mut self.rng);
            }
            let place = self.world.any_place(&mut self.rng);
            self.visit(place, 0);
            delay(&mut self.rng);
        }
    }

    /// Asks for a lock in some way, and does what is to be done inside.
    pub(super) fn visit(&mut self, place: usize, depth: u32) {
        let world = self.world;
        let Some(_pass) = world.places[place].come() else { return count(What::TurnedAway) };
        match &world.places[place].guard {
            Guard::One(lock) => {
                if self.rng.one_in(MEDDLES_ONE_IN) && lock.meddle(&mut self.rng) {
                    count(What::Meddled);
                }
                if depth == 0 && world.breaks(Break::NoLock, 200, &mut self.rng) {
                    return self.stray(place);
                }
                let how = self.any_how(lock.can_cancel());
                let enter = |how: &How, life: &mut Life| {
                    lock.enter(how, &mut |word| life.section(place, word, depth))
                };
                self.ask(place, how, depth, enter);
            }
            Guard::Gate(gate) => self.pass(place, gate),
            Guard::Several(lock) => {
                let how = self.any_how(false);
                if self.rng.one_in(WRITES_ONE_IN) {
                    let enter = |how: &How, life: &mut Life| {
                        lock.write(how, &mut |word| life.section(place, word, depth))
                    };
                    return self.ask(place, how, depth, enter);
                }
                if depth == 0 && world.breaks(Break::StrayReader, 100, &mut self.rng) {
                    let word = world.places[place].book.ended.load(Ordering::Relaxed);
                    return self.reading(place, word, depth);
                }
                let enter =
                    |how: &How, life: &mut Life| lock.read(how, &mut |word| life.reading(place, word, depth));
                self.ask(place, how, depth, enter);
            }
        }
    }

    fn any_how(&mut self, can_cancel: bool) -> How {
        let kinds = if can_cancel { 18 } else { 12 };
        match self.rng.below(kinds) {
            0..6 => How::Wait,
            6..8 => How::Try,
            8..12 => How::Until(Instant::now() + Duration::from_micros(self.rng.below(PATIENCE_US))),
            12..16 => How::Cancel(Arc::new(Cancel::new())),
            _ => {
                let waiting = self.rng.one_in(2).then(|| any_waiting(&mut self.rng));
                How::As(self.rng.below(5) as i32 - 2, waiting)
            }
        }
    }

    fn ask(&mut self, place: usize, mut how: How, depth: u32, enter: impl FnOnce(&How, &mut Life) -> Came) {
        let world = self.world;
        let slot = &world.slots[self.post];
        // What it says of itself, and what it does.
        let said = how.clone();
        match &said {
            How::Wait | How::As(..) => slot.wait(place, Limit::None),
            How::Until(_) => slot.wait(place, Limit::Deadline),
            How::Cancel(cancel) => slot.wait_for_cancel(place, cancel),
            How::Try => {}
        }
        if let How::Until(deadline) = &mut how {
            if world.breaks(Break::NoDeadline, 4, &mut self.rng) {
                how = How::Wait;
            } else if world.breaks(Break::EarlyTimeout, 4, &mut self.rng) {
                *deadline = Instant::now();
            }
        }
        let came = enter(&how, self);
        slot.wait_no_more();
        self.judge(place, &said, came);
        if depth == 0 && matches!(came, Came::TimedOut | Came::Cancelled) && self.rng.one_in(DIES_ONE_IN) {
            count(What::Deaths);
            panic_as_planned();
        }
    }

    /// Whether the wait may have ended so.
    fn judge(&self, place: usize, how: &How, came: Came) {
        match how {
            How::Try => count(What::Tries),
            How::Wait => count(What::Waits),
            How::As(..) => count(What::Prioritized),
            How::Until(_) | How::Cancel(_) => {}
        }
        match (came, how) {
            (Came::Inside | Came::Over, _) => {}
            (Came::Busy, How::Try) => count(What::Busy),
            (Came::TimedOut, How::Until(deadline)) if Instant::now() >= *deadline => count(What::TimedOut),
            (Came::TimedOut, How::Until(_)) => {
                self.world.accuse(place, "a wait has timed out before its time")
            }
            (Came::Cancelled, How::Cancel(cancel)) if cancel.is_cancelled() => count(What::Cancelled),
            (Came::NotRegistered, How::As(..)) => count(What::Refused),
            (came, _) => self.world.accuse(place, &format!("a wait has ended by {came:?}, which cannot be")),
        }
    }
}
