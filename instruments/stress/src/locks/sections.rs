//! The critical sections and their checks.
//!
//! - I1. At each entry, the word that the lock guards and the two counts of its record are the same number.
//!   They are changed one after another, with time in between, and with plain loads and stores.
//! - I2. A thread that is inside alone announces that, and finds no other announcement.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::breaks::Break;
use super::counts::{Stat, count};
use super::slots::{Inside, Limit, Wait};
use super::threads::LockThread;
use super::world::SectionCounts;
use crate::skeleton::delay::delay;
use crate::skeleton::expected_panic::raise_expected_panic;

/// One holder in this many stays until all waits with another end have given up.
const STUBBORN_ONE_IN: u64 = 24;
/// One holder in this many sleeps inside, so that waiters sleep too.
const SLEEPS_ONE_IN: u64 = 4;
const SLEEP_US: u64 = 300;
const PANICS_ONE_IN: u64 = 512;
const NESTED_ONE_IN: u64 = 32;
const SHORT: Duration = Duration::from_micros(100);

/// Withdraws the announcement of being inside, also after a panic.
struct Owner<'a>(&'a SectionCounts);

impl Drop for Owner<'_> {
    fn drop(&mut self) {
        self.0.owner.store(0, Ordering::Relaxed);
    }
}

impl LockThread {
    /// Runs the section of a thread that is inside alone.
    pub(super) fn section(&mut self, place: usize, word: &mut u64, depth: u32) {
        let world = self.world;
        world.slots[self.worker].wait_no_more();
        let sections = &world.places[place].sections;
        let me = self.worker as u64 + 1;
        let owner = sections.owner.load(Ordering::Relaxed);
        if owner != 0 {
            return world
                .fail(place, &format!("workers {} and {} are inside at once", owner - 1, self.worker));
        }
        sections.owner.store(me, Ordering::Relaxed);
        let inside = Owner(sections);
        if world.slots.iter().any(|slot| slot.is_inside(place)) {
            world.fail(place, "a writer and a reader are inside at once");
        }
        let (begun, ended) = sections.seen();
        if begun != ended || begun != *word {
            let what =
                format!("{begun} sections are begun, {ended} ended, and {word} counted under the lock");
            world.fail(place, &what);
        }
        sections.begun.store(begun + 1, Ordering::Relaxed);
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
            sections.ended.store(begun + 1, Ordering::Relaxed);
        }
        *word = begun + 1;
        if sections.owner.load(Ordering::Relaxed) != me {
            world.fail(
                place,
                &format!("another thread was inside during the section of worker {}", self.worker),
            );
        }
        count(Stat::Sections);
        self.reported[place] += 1;
        if self.rng.one_in(4) {
            world.store_buffer.fill(&mut self.rng);
        }
        drop(inside);
        world.slots[self.worker].come_out(place);
        self.leave(place, depth);
    }

    /// Runs at the end of a section, while the lock is still held.
    fn leave(&mut self, place: usize, depth: u32) {
        let world = self.world;
        if world.breaks(Break::TellTwice, 1_000, &mut self.rng) {
            self.reported[place] += 1;
        }
        if world.breaks(Break::HoldOn, 1_000, &mut self.rng) {
            while !world.run_state.is_stopped() {
                thread::sleep(SHORT);
            }
        }
        self.panic_now_and_then(depth);
    }

    /// Panics sometimes, but not within another section, which would be left half done.
    fn panic_now_and_then(&mut self, depth: u32) {
        if depth == 0 && self.rng.one_in(PANICS_ONE_IN) {
            count(Stat::Panics);
            raise_expected_panic();
        }
    }

    /// Announces being inside alone without the lock (planned break).
    pub(super) fn stray(&mut self, place: usize) {
        let _inside = Owner(&self.world.places[place].sections);
        self.world.places[place].sections.owner.store(self.worker as u64 + 1, Ordering::Relaxed);
        thread::sleep(SHORT);
    }

    /// Stays until all waits for this place with a deadline or a cancellation have ended.
    fn be_stubborn(&mut self, place: usize) {
        count(Stat::Stubborn);
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
        while waiting.iter().any(goes_on) && !world.run_state.is_stopped() {
            thread::sleep(SHORT);
        }
    }

    /// Takes another lock of a later place, so that no cycle of waits arises.
    fn go_further(&mut self, place: usize) {
        let later = self.world.places.len() - place - 1;
        if later > 0 {
            count(Stat::Nested);
            let further = place + 1 + self.rng.below(later as u64) as usize;
            self.visit(further, 1);
        }
    }

    /// Runs the section of a reader.
    pub(super) fn reading(&mut self, place: usize, word: u64, depth: u32) {
        let world = self.world;
        let slot = &world.slots[self.worker];
        slot.wait_no_more();
        slot.go_inside(Inside::Reader(place));
        let sections = &world.places[place].sections;
        let judge = |(begun, ended)| {
            if sections.owner.load(Ordering::Relaxed) != 0 {
                world.fail(place, "a writer and a reader are inside at once");
            }
            if begun != ended || begun != word {
                let what = format!(
                    "a reader sees {begun} sections begun, {ended} ended, and {word} counted under the lock"
                );
                world.fail(place, &what);
            }
        };
        judge(sections.seen());
        delay(&mut self.rng);
        judge(sections.seen());
        count(Stat::Readings);
        slot.come_out(place);
        if self.rng.one_in(4) {
            world.store_buffer.fill(&mut self.rng);
        }
        self.panic_now_and_then(depth);
    }
}
