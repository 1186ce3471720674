//! The watch: finds forgotten waiters.
//!
//! - I1. A lock has lost a wake-up if no thread is inside, no section has finished for [`LOOKS`] looks, and
//!   the same thread has waited for it without a limit all the time.
//! - I2. A wait that was cancelled, or that has a deadline, must have ended after as many looks. All
//!   deadlines are near.
//!
//! The watch counts looks instead of time, so it is slow on a slow machine. While other threads come and go,
//! a forgotten waiter is not found. It is found when the crowd has moved to another lock, or when the run is
//! over.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::slots::{Limit, Wait};
use super::world::World;

/// Number of looks without a change that proves a violation.
const LOOKS: u32 = 400;
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Watch {
    world: &'static World,
    last: Instant,
    /// Per place: finished sections, and looks since they changed or a thread was inside.
    quiet: Vec<(u64, u32)>,
    /// Per slot: the wait, and looks since it began.
    same: Vec<(Option<Wait>, u32)>,
}

impl Watch {
    pub(super) fn new(world: &'static World) -> Watch {
        let (quiet, same) = (vec![(0, 0); world.places.len()], vec![(None, 0); world.slots.len()]);
        Watch { world, last: Instant::now(), quiet, same }
    }

    /// Looks, if the last look is long enough ago.
    pub(super) fn look(&mut self) {
        if self.last.elapsed() >= PAUSE {
            self.look_now();
            self.last = Instant::now();
        }
    }

    fn look_now(&mut self) {
        let world = self.world;
        for (place, (done, looks)) in self.quiet.iter_mut().enumerate() {
            let now = world.slots.iter().map(|slot| slot.done(place)).sum();
            let empty = world.places[place].sections.owner.load(Ordering::Relaxed) == 0
                && !world.slots.iter().any(|slot| slot.is_inside(place));
            *looks = if empty && now == *done { *looks + 1 } else { 0 };
            *done = now;
        }
        for (slot, (wait, looks)) in world.slots.iter().zip(&mut self.same) {
            let now = slot.waits();
            *looks = if now.is_some() && now == *wait { *looks + 1 } else { 0 };
            *wait = now;
        }
        if let Some((place, what)) = self.judge() {
            self.world.fail(place, &what);
            self.world.has_lost.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the place and a description of a violation, if any.
    fn judge(&self) -> Option<(usize, String)> {
        let is_long = |(wait, looks): &&(Option<Wait>, u32)| wait.is_some() && *looks >= LOOKS;
        let long: Vec<Wait> = self.same.iter().filter(is_long).filter_map(|(wait, _)| *wait).collect();
        for (slot, (wait, looks)) in self.world.slots.iter().zip(&self.same) {
            let Some(wait) = wait.filter(|_| *looks >= LOOKS) else { continue };
            let place = wait.place();
            if wait.limit() == Limit::Deadline {
                return Some((place, "a wait goes on long after its deadline".to_owned()));
            }
            if slot.is_cancelled(wait) {
                return Some((place, "a wait goes on long after its cancellation".to_owned()));
            }
            if self.quiet[place].1 >= LOOKS {
                let count = long.iter().filter(|other| other.place() == place).count();
                let what =
                    format!("no thread is inside, but a wait goes on (waits: {count}): a wake-up was lost");
                return Some((place, what));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(watch: &mut Watch, count: u32) -> Option<String> {
        (0..count).for_each(|_| watch.look_now());
        watch.world.run_state.violation()
    }

    #[test]
    fn who_waits_for_a_lock_that_nobody_has_is_found() {
        let world = World::make(None, 2);
        let mut watch = Watch::new(world);
        world.slots[1].wait(0, Limit::None);
        world.places[0].sections.owner.store(1, Ordering::Relaxed);
        assert_eq!(looks(&mut watch, 2 * LOOKS), None, "a thread is inside");
        world.places[0].sections.owner.store(0, Ordering::Relaxed);
        assert_eq!(looks(&mut watch, LOOKS - 1), None);
        world.slots[0].come_out(0);
        assert_eq!(looks(&mut watch, LOOKS), None, "a thread was inside");
        let found = looks(&mut watch, 1).expect("no thread entered since");
        assert!(found.ends_with("a wait goes on (waits: 1): a wake-up was lost"), "{found}");
    }

    #[test]
    fn who_waits_anew_each_time_is_not_forgotten() {
        let world = World::make(None, 1);
        let mut watch = Watch::new(world);
        for _ in 0..2 * LOOKS {
            world.slots[0].wait(3, Limit::None);
            assert_eq!(looks(&mut watch, 1), None);
        }
    }

    #[test]
    fn waits_that_should_have_ended_are_found() {
        for (limit, clue) in
            [(Limit::Deadline, "after its deadline"), (Limit::Cancel, "after its cancellation")]
        {
            let world = World::make(None, 1);
            let mut watch = Watch::new(world);
            let cancel = std::sync::Arc::new(squall::lock::Cancel::new());
            match limit {
                Limit::Cancel => world.slots[0].wait_for_cancel(0, &cancel),
                _ => world.slots[0].wait(0, limit),
            }
            // A thread is inside all the time.
            world.places[0].sections.owner.store(1, Ordering::Relaxed);
            if limit == Limit::Cancel {
                assert_eq!(looks(&mut watch, 2 * LOOKS), None, "it was not cancelled");
                world.slots[0].cancel(world.slots[0].waits().expect("it waits"), false);
            }
            let found = looks(&mut watch, LOOKS + 1).expect("it should have ended");
            assert!(found.ends_with(clue), "{found}");
        }
    }
}
