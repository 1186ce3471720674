//! Readers: they take blocks inside operations, let time pass in every way, and check the held blocks again
//! and again.
//!
//! Rules that a reader checks while the outermost operation is open in which it got a block:
//!
//! - The block's age is 0 (in place) or 1 (removed, and no grace period that began after the removal has
//!   ended).
//! - It is the same block: its serial number and its words do not change.
//! - A marker set inside the operation does not elapse, and a call deferred inside it does not run.
//! - Waiting of any kind is refused. A panic ends the operations that it unwinds, and no other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use squall_rcu::{
    Guard, Marker, MarkerState, WaitError, in_operation, pin, quiescent_do, reclaim, wait, wait_until,
};

use super::breaks::Break;
use super::calls::{self, BatchCount};
use super::world::{AGES, Held, World, Wrong, any_place};
use crate::run::Rng;
use crate::skeleton::delay::{delay, spin};
use crate::skeleton::expected_panic::{ExpectedPanic, raise_expected_panic};

/// Maximum number of consecutive operations without delay.
const BURST_MAX: u64 = 4_000;
/// Spins in an operation with a full store buffer.
const SPIN_LATE: u64 = 32;
/// Maximum number of consecutive operations with a full store buffer.
const BURST_LATE_MAX: u64 = 1_000;
/// Maximum nesting depth.
const DEPTH_MAX: u64 = 5;

/// The observations of a thread, kept by the thread until it ends.
#[derive(Default, Clone, Copy)]
pub(super) struct Seen {
    pub(super) operations: u64,
    pub(super) nested: u64,
    pub(super) panics: u64,
    pub(super) refused: u64,
    /// Number of blocks seen at each age.
    pub(super) ages: [u64; AGES],
}

impl Seen {
    pub(super) fn add(&mut self, more: &Seen) {
        self.operations += more.operations;
        self.nested += more.nested;
        self.panics += more.panics;
        self.refused += more.refused;
        for (all, more) in self.ages.iter_mut().zip(more.ages) {
            *all += more;
        }
    }
}

pub(super) struct Reader<'a> {
    pub(super) world: &'static World,
    pub(super) rng: &'a mut Rng,
    pub(super) seen: &'a mut Seen,
}

impl Reader<'_> {
    /// Reads in one random way.
    pub(super) fn step(&mut self) {
        match self.rng.below(64) {
            0..8 => (0..self.rng.below(BURST_MAX)).for_each(|_| self.glance()),
            8..24 => (0..self.rng.below(BURST_LATE_MAX)).for_each(|_| self.glance_late()),
            24..40 => self.linger(),
            40..52 => self.nest(),
            52..56 => self.panic_inside(),
            56..58 => self.be_refused(),
            58..61 => self.hold_up_marker(),
            61..63 => self.hold_up_call(),
            _ => self.flood_inside(),
        }
        if in_operation() {
            self.world
                .run_state
                .fail("the thread is inside an operation after the last one ended".to_owned());
        }
    }

    /// Runs `f` inside an operation, or outside with the planned break.
    fn inside(&mut self, f: impl FnOnce(&mut Self, Option<&Guard>)) {
        self.seen.operations += 1;
        if self.world.breaks(Break::NoOperation, 16, self.rng) {
            return f(self, None);
        }
        pin(|o| f(self, Some(o)));
    }

    fn take(&mut self, o: Option<&Guard>) -> Held {
        self.world.take(o, any_place(self.rng))
    }

    /// Checks the held blocks and records a violation.
    fn check(&mut self, held: &[Held], doing: &str) {
        for held in held {
            match self.world.examine(held) {
                Ok(age) => self.seen.ages[age as usize] += 1,
                Err(wrong) => {
                    if let Wrong::Aged(age) = wrong {
                        self.seen.ages[(age as usize).min(AGES - 1)] += 1;
                    }
                    self.world.run_state.fail(describe(held, wrong, doing));
                    return;
                }
            }
        }
    }

    /// Runs the shortest operation.
    fn glance(&mut self) {
        self.inside(|me, o| {
            let held = me.take(o);
            me.check(&[held], "an immediate read");
        });
    }

    /// Opens an operation while the store buffer is full, and keeps it open as long as a grace period.
    fn glance_late(&mut self) {
        let place = any_place(self.rng);
        let spins = self.rng.below(SPIN_LATE);
        self.world.fill_store_buffer(self.rng);
        self.inside(|me, o| {
            let held = me.world.take(o, place);
            spin(spins);
            me.check(&[held], "a read with a full store buffer");
        });
    }

    /// Runs one operation with delays, and reads values that are really freed.
    fn linger(&mut self) {
        self.inside(|me, o| {
            let leaf = o.map(|o| (me.world.leaf.load(o), me.world.words.load(o)));
            let mut held = Vec::new();
            for _ in 0..1 + me.rng.below(3) {
                held.push(me.take(o));
                delay(me.rng);
                me.check(&held, "a long read");
            }
            if let Some((leaf, words)) = leaf
                && !(leaf.is_sound() && words.iter().all(|word| *word == words[0]))
            {
                me.world
                    .run_state
                    .fail("a value loaded from an Rcu was dropped while the operation was open".to_owned());
            }
        });
    }

    fn nest(&mut self) {
        let depth = 1 + self.rng.below(DEPTH_MAX);
        let mut held = Vec::new();
        self.inside(|me, o| {
            me.descend(o, depth, &mut held);
            me.check(&held, "the end of nested operations");
        });
    }

    /// Takes a block at each level, and holds all until the outermost operation ends.
    fn descend(&mut self, o: Option<&Guard>, depth: u64, held: &mut Vec<Held>) {
        held.push(self.take(o));
        delay(self.rng);
        self.check(held, "the begin of nested operations");
        if depth > 0 {
            self.seen.nested += 1;
            pin(|o| self.descend(Some(o), depth - 1, held));
            delay(self.rng);
            self.check(held, "a read between nested operations");
        }
    }

    /// Raises a panic through some operations and catches it inside another.
    fn panic_inside(&mut self) {
        let depth = self.rng.below(DEPTH_MAX);
        let mut held = Vec::new();
        self.inside(|me, o| {
            held.push(me.take(o));
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pin(|o| {
                    me.descend(Some(o), depth, &mut held);
                    raise_expected_panic()
                })
            }));
            me.seen.panics += 1;
            match outcome {
                Err(payload) if payload.is::<ExpectedPanic>() => {}
                _ => me.world.run_state.fail("an operation swallowed a panic".to_owned()),
            }
            delay(me.rng);
            me.check(&held, "a read after a panic in a nested operation");
        });
    }

    /// Checks that waiting inside an operation is an error without an effect.
    fn be_refused(&mut self) {
        self.inside(|me, o| {
            if o.is_none() {
                return;
            }
            let held = me.take(o);
            let soon = Instant::now();
            let answers = [
                wait().err(),
                wait_until(soon).err(),
                Marker::set().wait().err(),
                reclaim().err(),
                squall_rcu::barrier().err(),
            ];
            me.seen.refused += answers.len() as u64;
            if answers.iter().any(|answer| *answer != Some(WaitError::InOperation)) {
                me.world.run_state.fail(format!("a wait inside an operation was not refused: {answers:?}"));
            }
            me.check(&[held], "after refused waits");
        });
    }

    /// Checks that a marker set inside an operation is active until it ends.
    fn hold_up_marker(&mut self) {
        self.inside(|me, o| {
            if o.is_none() {
                return;
            }
            let held = me.take(o);
            let marker = Marker::set();
            for _ in 0..1 + me.rng.below(8) {
                delay(me.rng);
                let state = marker.update_and_check();
                if state != Ok(MarkerState::Active) {
                    me.world
                        .run_state
                        .fail(format!("a marker set inside an open operation is {state:?}, not active"));
                }
                me.check(&[held], "a read that delays a marker");
            }
        });
    }

    /// Checks that a call deferred inside an operation does not run before it ends.
    fn hold_up_call(&mut self) {
        let world = self.world;
        let open = Arc::new(AtomicBool::new(true));
        self.inside(|me, o| {
            if o.is_none() {
                return;
            }
            let held = me.take(o);
            let tell = |open: Arc<AtomicBool>, what: &'static str| {
                move || {
                    if open.load(Ordering::Relaxed) {
                        world
                            .run_state
                            .fail(format!("{what} before the end of the operation that requested it"));
                    }
                }
            };
            if me.rng.one_in(4) {
                let ran = tell(open.clone(), "quiescent-do ran its function");
                let vps = squall_machine::machine().vps();
                if let Err(error) = quiescent_do(vps, squall_rcu::RunOn::Any, move |_| ran()) {
                    me.world.run_state.fail(format!("quiescent-do inside an operation failed: {error}"));
                }
            } else {
                squall_rcu::defer(tell(open.clone(), "a deferred call ran"));
            }
            for _ in 0..1 + me.rng.below(8) {
                delay(me.rng);
                me.check(&[held], "a read that delays a deferred call");
            }
            open.store(false, Ordering::Relaxed);
        });
    }

    /// Defers many calls inside one operation. The thread must work them off when it leaves.
    fn flood_inside(&mut self) {
        if !self.rng.one_in(8) {
            return self.linger();
        }
        self.inside(|me, o| {
            let held = me.take(o);
            calls::flood(me.world, calls::FLOOD_CALLS_INSIDE, &BatchCount::default(), || me.rng.next());
            me.check(&[held], "after many deferred calls");
        });
    }
}

fn describe(held: &Held, wrong: Wrong, doing: &str) -> String {
    let Held { block, age, .. } = held;
    let what = match wrong {
        Wrong::Aged(now) => format!(
            "is now at age {now}: {} grace period(s) that began after its removal have ended while the operation was \
             open",
            now - 1
        ),
        Wrong::Reused => "was poisoned or reused while the operation was open".to_owned(),
        Wrong::Torn => "has words of different writes".to_owned(),
    };
    format!("{doing}: block {block}, got at age {age}, {what}; a reader may see ages 0 and 1 of one block")
}
