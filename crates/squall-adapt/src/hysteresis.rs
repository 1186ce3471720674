//! Hysteresis: when an object may change its form, and the effect of an unsteady load.
//!
//! Problem: under an alternating load an object would be swapped back and forth, each time too late.
//! Averaging over a long time avoids that but delays every decision. Idea: decide at once if the load was
//! steady before, and not at all while it alternates. The measure is the time at which the *preference*
//! changed, with or without a swap.
//!
//! - I1. Two swaps of one object to different forms by its policy are at least a cool-down apart. A swap to
//!   the same form, which only changes its bias, does not count. It has a limit of its own
//!   (`engine/decide.rs`).
//! - I2. The engine follows a change of preference at once if the old preference was constant for a
//!   cool-down. Otherwise the engine follows it once the new preference has lasted for a cool-down. So a load
//!   that alternates faster causes no swap from its second change on.
//! - I3. A preference that changes twice within a cool-down doubles the cool-down, up to 32 fold. A
//!   preference that lasts for four cool-downs restores it.
//!
//! Times count from the start of the engine, so that tests can use a clock of their own.

use std::time::Duration;

use crate::decision::Held;

/// Largest number of times that a cool-down is doubled.
const DOUBLINGS_MAX: u32 = 5;
/// Number of cool-downs after which a preference counts as steady.
const STEADY: u32 = 4;

/// Decides when one object may change its form. Forms are numbers here.
///
/// A custom policy reports the best form at each sample ([`prefer`](Hysteresis::prefer)). It changes the form
/// if it [may](Hysteresis::may_swap), and then reports the change ([`swapped`](Hysteresis::swapped)).
///
/// ```
/// use squall::adapt::hysteresis::Hysteresis;
/// use std::time::Duration;
///
/// let cooldown = Duration::from_millis(200);
/// let at = Duration::from_millis;
/// let mut hysteresis = Hysteresis::new(0);
/// hysteresis.prefer(at(1000), 1, cooldown);
/// assert!(hysteresis.may_swap(at(1000), cooldown).is_ok(), "the load was steady before");
/// hysteresis.swapped(at(1000), 1);
/// hysteresis.prefer(at(1050), 0, cooldown);
/// assert!(hysteresis.may_swap(at(1050), cooldown).is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Hysteresis {
    /// Form that was last judged best.
    preferred: usize,
    /// Time at which it became the preferred form.
    since: Duration,
    /// Time of the previous change of the preferred form.
    before: Option<Duration>,
    swapped: Option<Duration>,
    doublings: u32,
}

impl Hysteresis {
    /// Creates the hysteresis of an object with this form, which counts as steady so far.
    pub fn new(form: usize) -> Hysteresis {
        Hysteresis { preferred: form, since: Duration::ZERO, before: None, swapped: None, doublings: 0 }
    }

    /// Returns the present cool-down.
    pub fn cooldown(&self, base: Duration) -> Duration {
        base * 2u32.pow(self.doublings)
    }

    /// Reports the form judged best now.
    pub fn prefer(&mut self, now: Duration, form: usize, base: Duration) {
        if form == self.preferred {
            return;
        }
        let lasted = now.saturating_sub(self.since);
        // The first preference counts as steady.
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

    /// Checks whether the object may be swapped for the preferred form.
    ///
    /// # Errors
    /// [`Held::Unsteady`] or [`Held::CoolingDown`].
    pub fn may_swap(&self, now: Duration, base: Duration) -> Result<(), Held> {
        let cooldown = self.cooldown(base);
        let within = |moment: Duration| now.saturating_sub(moment) < cooldown;
        // Checks how long the preference before the present one lasted.
        let was_unsteady = self.before.is_some_and(|before| self.since.saturating_sub(before) < cooldown);
        if was_unsteady && within(self.since) {
            return Err(Held::Unsteady);
        }
        if self.swapped.is_some_and(within) {
            return Err(if self.doublings > 0 { Held::Unsteady } else { Held::CoolingDown });
        }
        Ok(())
    }

    /// Reports a swap to another form, by the policy or by hand.
    pub fn swapped(&mut self, now: Duration, form: usize) {
        self.swapped = Some(now);
        if form != self.preferred {
            self.before = Some(self.since);
            self.preferred = form;
            self.since = now;
        }
    }
}

/// Rate limit: so many per second, with a bounded burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    left: f64,
    at: Duration,
}

impl Allowance {
    pub(crate) const fn full(count: f64) -> Allowance {
        Allowance { left: count, at: Duration::ZERO }
    }

    /// Takes one, at a rate of `per_s` per second and a burst of at most `burst`. If the allowance is used
    /// up, returns the time until the next one.
    pub(crate) fn take(&mut self, now: Duration, per_s: f64, burst: f64) -> Result<(), Duration> {
        let earned = now.saturating_sub(self.at).as_secs_f64() * per_s;
        self.left = (self.left + earned).min(burst);
        self.at = now;
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        let missing = (1.0 - self.left) / per_s;
        // With a rate of zero the next one never comes. Rounded up, because a wait of zero would not end on a
        // virtual clock.
        Err(Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX).max(Duration::from_nanos(1)))
    }

    /// Returns one that was taken but not used.
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

    /// Reports a preference, and swaps if that is allowed. Returns `true` if it swapped.
    fn step(hysteresis: &mut Hysteresis, now: Duration, form: usize, current: &mut usize) -> bool {
        hysteresis.prefer(now, form, COOLDOWN);
        let may = form != *current && hysteresis.may_swap(now, COOLDOWN).is_ok();
        if may {
            hysteresis.swapped(now, form);
            *current = form;
        }
        may
    }

    #[test]
    fn co_71_a_change_after_steady_times_is_followed_at_once() {
        let (mut hysteresis, mut current) = (Hysteresis::new(SMALL), SMALL);
        assert!(step(&mut hysteresis, at(0), LARGE, &mut current));
        for (ms, form) in [(300, SMALL), (600, LARGE), (5000, SMALL)] {
            assert!(step(&mut hysteresis, at(ms), form, &mut current), "{ms}");
        }
    }

    /// Counts swaps under a load with a preference that changes every `half`, for `total`, sampled every
    /// `look`, all in ms.
    fn square_wave(half: u64, total: u64, look: u64) -> u32 {
        let (mut hysteresis, mut current) = (Hysteresis::new(SMALL), SMALL);
        let swaps = (0..total).step_by(look as usize).map(|ms| {
            let form = if (ms / half).is_multiple_of(2) { LARGE } else { SMALL };
            u32::from(step(&mut hysteresis, at(ms), form, &mut current))
        });
        swaps.sum()
    }

    #[test]
    fn co_71_a_load_that_alternates_faster_than_the_cool_down_leaves_the_object_where_it_is() {
        // A change is seen up to one sample late.
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
        let (mut hysteresis, mut current, mut last) = (Hysteresis::new(SMALL), SMALL, None::<u64>);
        for ms in 0..200_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if !(state >> 33).is_multiple_of(90) {
                continue;
            }
            let form = if state >> 63 == 0 { LARGE } else { SMALL };
            if step(&mut hysteresis, at(ms), form, &mut current) {
                assert!(last.is_none_or(|last| ms - last >= 200), "{last:?} {ms}");
                last = Some(ms);
            }
        }
        assert!(last.is_some());
    }

    #[test]
    fn a_steady_preference_makes_the_cool_down_what_it_was() {
        let mut hysteresis = Hysteresis::new(SMALL);
        for ms in 0..20 {
            hysteresis.prefer(at(ms), if ms % 2 == 0 { LARGE } else { SMALL }, COOLDOWN);
        }
        assert_eq!(hysteresis.cooldown(COOLDOWN), COOLDOWN * 32);
        hysteresis.prefer(at(20), LARGE, COOLDOWN);
        assert_eq!(hysteresis.may_swap(at(300), COOLDOWN), Err(Held::Unsteady));
        assert_eq!(hysteresis.may_swap(at(6500), COOLDOWN), Ok(()));
        hysteresis.prefer(at(20 + 4 * 6400), SMALL, COOLDOWN);
        assert_eq!(hysteresis.cooldown(COOLDOWN), COOLDOWN);
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
