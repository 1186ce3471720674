//! When an object may change: hysteresis, cool-down, and what an unsteady load does to both.
//!
//! Problem: a load that alternates would have its object swapped back and forth, each time too late. Averaging over a long
//! time avoids that, and makes every decision late. Idea: decide at once where the load was steady before, and not at all
//! while it alternates. What counts is when the *preference* changed, whether or not a swap followed.
//!
//! - I1. Two swaps of one object to other forms by its policy are at least a cool-down apart. One to the same form, which only makes
//!   it at home on another VP, does not count: it has a limit of its own (`look`).
//! - I2. A change of preference is followed at once if the preference was the same for a cool-down before it; else after it
//!   has lasted for one. So a load that alternates faster than the cool-down changes nothing, from its second change on.
//! - I3. A preference that changes twice within a cool-down doubles it, up to thirty-two fold; one that lasts for four of them makes
//!   it what it was.
//!
//! Times are those since the engine began, so that tests have clocks of their own.

use std::time::Duration;

use crate::decision::Held;

/// How often a cool-down is doubled.
const DOUBLINGS_MAX: u32 = 5;
/// A preference that lasted for so many cool-downs is steady.
const STEADY: u32 = 4;

/// The temper of one thing that changes among forms, which are numbers here. For policies of one's own: tell it what is thought best at
/// each look ([`prefer`](Hysteresis::prefer)), change if it [may](Hysteresis::may_swap), and tell it then ([`swapped`](Hysteresis::swapped)).
#[derive(Clone, Copy, Debug)]
pub struct Hysteresis {
    /// The form that was thought best last, and since when.
    preferred: usize,
    since: Duration,
    /// When the preference changed before that.
    before: Option<Duration>,
    swapped: Option<Duration>,
    doublings: u32,
}

impl Hysteresis {
    /// That of an object which has had this form for as long as anybody knows.
    pub fn new(form: usize) -> Hysteresis {
        Hysteresis { preferred: form, since: Duration::ZERO, before: None, swapped: None, doublings: 0 }
    }

    /// The cool-down now.
    pub fn cooldown(&self, base: Duration) -> Duration {
        base * 2u32.pow(self.doublings)
    }

    /// Notes what is thought best now.
    pub fn prefer(&mut self, now: Duration, form: usize, base: Duration) {
        if form == self.preferred {
            return;
        }
        let lasted = now.saturating_sub(self.since);
        // The first preference has lasted for as long as anybody knows.
        let first = self.before.is_none() && self.since == Duration::ZERO;
        if !first && lasted < self.cooldown(base) {
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        } else if lasted >= self.cooldown(base) * STEADY {
            self.doublings = 0;
        }
        self.before = (!first).then_some(self.since);
        self.preferred = form;
        self.since = now;
    }

    /// Whether the object may be swapped for what is preferred.
    ///
    /// # Errors
    /// Why not: [`Held::Unsteady`] or [`Held::CoolingDown`].
    pub fn may_swap(&self, now: Duration, base: Duration) -> Result<(), Held> {
        let cooldown = self.cooldown(base);
        let within = |moment: Duration| now.saturating_sub(moment) < cooldown;
        // Before the present preference there was another, for this long.
        let was_unsteady = self.before.is_some_and(|before| self.since.saturating_sub(before) < cooldown);
        if was_unsteady && within(self.since) {
            return Err(Held::Unsteady);
        }
        if self.swapped.is_some_and(within) {
            return Err(if self.doublings > 0 { Held::Unsteady } else { Held::CoolingDown });
        }
        Ok(())
    }

    /// Notes a swap to another form, by the policy or by hand.
    pub fn swapped(&mut self, now: Duration, form: usize) {
        self.swapped = Some(now);
        if form != self.preferred {
            self.before = Some(self.since);
            self.preferred = form;
            self.since = now;
        }
    }
}

/// So many of something in each second, and no more than that at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    left: f64,
    at: Duration,
}

impl Allowance {
    pub(crate) const fn full(count: f64) -> Allowance {
        Allowance { left: count, at: Duration::ZERO }
    }

    /// Takes one, of so many in a second and at most `burst` at once. Returns how long until there is one, if there is none.
    pub(crate) fn take(&mut self, now: Duration, per_s: f64, burst: f64) -> Result<(), Duration> {
        let earned = now.saturating_sub(self.at).as_secs_f64() * per_s;
        self.left = (self.left + earned).min(burst);
        self.at = now;
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        let missing = (1.0 - self.left) / per_s;
        // Never, if there are none at all.
        Err(Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX))
    }

    /// Gives one back that was not used.
    pub(crate) fn give_back(&mut self) {
        self.left += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOLDOWN: Duration = Duration::from_millis(200);
    const SMALL: usize = 0;
    const LARGE: usize = 1;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(1000 + ms)
    }

    /// Prefers, and swaps where that is allowed. Returns whether it was.
    fn step(temper: &mut Hysteresis, now: Duration, form: usize, current: &mut usize) -> bool {
        temper.prefer(now, form, COOLDOWN);
        let may = form != *current && temper.may_swap(now, COOLDOWN).is_ok();
        if may {
            temper.swapped(now, form);
            *current = form;
        }
        may
    }

    #[test]
    fn co_71_a_change_after_steady_times_is_followed_at_once() {
        let (mut temper, mut current) = (Hysteresis::new(SMALL), SMALL);
        assert!(step(&mut temper, at(0), LARGE, &mut current));
        for (ms, form) in [(300, SMALL), (600, LARGE), (5000, SMALL)] {
            assert!(step(&mut temper, at(ms), form, &mut current), "{ms}");
        }
    }

    /// Swaps under a load whose preference changes each `half` for `total`, seen each `look`, all in ms.
    fn square_wave(half: u64, total: u64, look: u64) -> u32 {
        let (mut temper, mut current) = (Hysteresis::new(SMALL), SMALL);
        let swaps = (0..total).step_by(look as usize).map(|ms| {
            let form = if (ms / half).is_multiple_of(2) { LARGE } else { SMALL };
            u32::from(step(&mut temper, at(ms), form, &mut current))
        });
        swaps.sum()
    }

    #[test]
    fn co_71_a_load_that_alternates_faster_than_the_cool_down_leaves_the_object_where_it_is() {
        // What is seen of a change is late by up to a look.
        for half in [1, 7, 20, 50, 99, 150, 186] {
            for look in [1, 5, 13] {
                assert_eq!(square_wave(half, 60_000, look), 1, "half {half}, look {look}");
            }
        }
    }

    #[test]
    fn co_71_one_that_alternates_more_slowly_is_followed() {
        assert_eq!(square_wave(1000, 10_000, 10), 10);
    }

    #[test]
    fn swaps_are_never_closer_than_the_cool_down() {
        let mut state = 9u64;
        let (mut temper, mut current, mut last) = (Hysteresis::new(SMALL), SMALL, None::<u64>);
        for ms in 0..200_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if !(state >> 33).is_multiple_of(90) {
                continue;
            }
            let form = if state >> 63 == 0 { LARGE } else { SMALL };
            if step(&mut temper, at(ms), form, &mut current) {
                assert!(last.is_none_or(|last| ms - last >= 200), "{last:?} {ms}");
                last = Some(ms);
            }
        }
        assert!(last.is_some());
    }

    #[test]
    fn a_steady_preference_makes_the_cool_down_what_it_was() {
        let mut temper = Hysteresis::new(SMALL);
        for ms in 0..20 {
            temper.prefer(at(ms), if ms % 2 == 0 { LARGE } else { SMALL }, COOLDOWN);
        }
        assert_eq!(temper.cooldown(COOLDOWN), COOLDOWN * 32);
        temper.prefer(at(20), LARGE, COOLDOWN);
        assert_eq!(temper.may_swap(at(300), COOLDOWN), Err(Held::Unsteady));
        assert_eq!(temper.may_swap(at(6500), COOLDOWN), Ok(()));
        temper.prefer(at(20 + 4 * 6400), SMALL, COOLDOWN);
        assert_eq!(temper.cooldown(COOLDOWN), COOLDOWN);
    }

    #[test]
    fn an_allowance_is_so_many_in_a_second_and_no_more() {
        let mut allowance = Allowance::full(4.0);
        let taken = (0..2000).filter(|ms| allowance.take(at(*ms), 16.0, 4.0).is_ok()).count();
        assert!((32..=36).contains(&taken), "{taken}");
        let refused = std::iter::repeat_with(|| allowance.take(at(2000), 16.0, 4.0)).find_map(Result::err);
        let wait = refused.expect("it holds four");
        assert!(wait <= Duration::from_secs_f64(1.0 / 16.0));
        assert_eq!(Allowance::full(0.0).take(at(0), 0.0, 0.0), Err(Duration::MAX));
    }
}
