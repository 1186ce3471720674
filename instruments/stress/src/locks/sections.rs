//! What is done inside, and what must be true there.
//!
//! - I1. The word that the lock guards, and the two counts of its book, are one and the same number whenever somebody goes
//!   in. They are changed one after the other, with time between, and with plain loads and stores.
//! - I2. One who is inside alone says so, and finds nobody else who does.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::breaks::Break;
use super::lives::Life;
use super::slots::{Inside, Limit, Wait};
use super::tally::{What, count};
use super::world::Book;
use crate::delay::delay;
use crate::planned::panic_as_planned;

/// One holder in so many stays until all whose waits have another end have given up.
const STUBBORN_ONE_IN: u64 = 24;
/// One in so many sleeps inside, so that those who wait do, too.
const SLEEPS_ONE_IN: u64 = 4;
const SLEEP_US: u64 = 300;
const PANICS_ONE_IN: u64 = 512;
const NESTED_ONE_IN: u64 = 32;
const SHORT: Duration = Duration::from_micros(100);

/// Says that nobody is inside, at the end, in a panic too.
struct Owner<'a>(&'a Book);

impl Drop for Owner<'_> {
    fn drop(&mut self) {
        self.0.owner.store(0, Ordering::Relaxed);
    }
}

impl Life {
    /// The life is inside alone.
    pub(super) fn section(&mut self, place: usize, word: &mut u64, depth: u32) {
        let world = self.world;
        world.slots[self.post].wait_no_more();
        let book = &world.places[place].book;
        let me = self.post as u64 + 1;
        let owner = book.owner.load(Ordering::Relaxed);
        if owner != 0 {
            return world.accuse(place, &format!("posts {} and {} are inside at once", owner - 1, self.post));
        }
        book.owner.store(me, Ordering::Relaxed);
        let inside = Owner(book);
        if world.slots.iter().any(|slot| slot.is_inside(place)) {
            world.accuse(place, "a writer is inside, and so is a reader");
        }
        let (begun, ended) = book.seen();
        if begun != ended || begun != *word {
            let what =
                format!("{begun} sections were begun, {ended} ended, and {word} counted under the lock");
            world.accuse(place, &what);
        }
        book.begun.store(begun + 1, Ordering::Relaxed);
        delay(&mut self.rng);
        if self.rng.one_in(SLEEPS_ONE_IN) {
            thread::sleep(Duration::from_micros(self.rng.below(SLEEP_US)));
        }
        if self.rng.one_in(STUBBORN_ONE_IN) {
            self.be_stubborn(place);
        }
        if depth == 0 && self.rng.one_in(NESTED_ONE_IN) {
            self.go_further(place);
        }
        if !world.breaks(Break::HalfSection, 1_000, &mut self.rng) {
            book.ended.store(begun + 1, Ordering::Relaxed);
        }
        *word = begun + 1;
        if book.owner.load(Ordering::Relaxed) != me {
            world.accuse(place, &format!("post {} was inside, and somebody else says so too", self.post));
        }
        count(What::Sections);
        self.told[place] += 1;
        if self.rng.one_in(4) {
            world.ballast.fill_store_buffer(&mut self.rng);
        }
        drop(inside);
        world.slots[self.post].come_out(place);
        self.leave(place, depth);
    }

    /// Out of a section, with the lock still held.
    fn leave(&mut self, place: usize, depth: u32) {
        let world = self.world;
        if world.breaks(Break::TellTwice, 1_000, &mut self.rng) {
            self.told[place] += 1;
        }
        if world.breaks(Break::HoldOn, 1_000, &mut self.rng) {
            while !world.trial.is_stopped() {
                thread::sleep(SHORT);
            }
        }
        self.panic_now_and_then(depth);
    }

    /// Not within another section, which would be left half done.
    fn panic_now_and_then(&mut self, depth: u32) {
        if depth == 0 && self.rng.one_in(PANICS_ONE_IN) {
            count(What::Panics);
            panic_as_planned();
        }
    }

    /// Says that it is inside alone, and is not.
    pub(super) fn stray(&mut self, place: usize) {
        let _inside = Owner(&self.world.places[place].book);
        self.world.places[place].book.owner.store(self.post as u64 + 1, Ordering::Relaxed);
        thread::sleep(SHORT);
    }

    /// Stays until nobody waits for this place any more whose wait has another end than that the place is free.
    fn be_stubborn(&mut self, place: usize) {
        count(What::Stubborn);
        let world = self.world;
        let waiting: Vec<(usize, Wait)> = world
            .slots
            .iter()
            .enumerate()
            .filter_map(|(slot, at)| Some((slot, at.waits()?)))
            .filter(|(_, wait)| wait.place() == place && wait.limit() != Limit::None)
            .collect();
        for (slot, wait) in &waiting {
            if wait.limit() == Limit::Cancel {
                let deaf = world.breaks(Break::DeafCancel, 4, &mut self.rng);
                world.slots[*slot].cancel(*wait, deaf);
            }
        }
        let goes_on = |(slot, wait): &(usize, Wait)| world.slots[*slot].waits() == Some(*wait);
        while waiting.iter().any(goes_on) && !world.trial.is_stopped() {
            thread::sleep(SHORT);
        }
    }

    /// Takes another lock on top, of those that come later: so that nobody waits in a circle.
    fn go_further(&mut self, place: usize) {
        let later = self.world.places.len() - place - 1;
        if later > 0 {
            count(What::Nested);
            let further = place + 1 + self.rng.below(later as u64) as usize;
            self.visit(further, 1);
        }
    }

    /// The life is inside with others.
    pub(super) fn reading(&mut self, place: usize, word: u64, depth: u32) {
        let world = self.world;
        let slot = &world.slots[self.post];
        slot.wait_no_more();
        slot.go_inside(Inside::Reader(place));
        let book = &world.places[place].book;
        let judge = |(begun, ended)| {
            if book.owner.load(Ordering::Relaxed) != 0 {
                world.accuse(place, "a reader is inside, and so is a writer");
            }
            if begun != ended || begun != word {
                let what =
                    format!("a reader sees {begun} sections begun, {ended} ended, and {word} under the lock");
                world.accuse(place, &what);
            }
        };
        judge(book.seen());
        delay(&mut self.rng);
        judge(book.seen());
        count(What::Readings);
        slot.come_out(place);
        if self.rng.one_in(4) {
            world.ballast.fill_store_buffer(&mut self.rng);
        }
        self.panic_now_and_then(depth);
    }
}
