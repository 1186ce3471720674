//! Operators: they freeze, thaw, set attributes, swap by hand, count and arbitrate calls, and discard tables,
//! at random.
//!
//! - I1. A refusal has a valid reason and changes nothing.
//! - I2. After a freeze has returned, the policy swaps the object at most once until it is thawed: in the
//!   decision that was under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use squall::adapt::control::{self, ControlError, Verdict};
use squall::adapt::{calls, engine};
use squall::policy::attribute::{AttributeInfo, Scope};
use squall::swap::arbitrate_object;
use squall::{Id, Vp, machine, tables};

use super::breaks::Break;
use super::counts::{Stat, count};
use super::tracked_counter::TrackedCounter;
use super::world::{PLACES, PLAIN, SEESAW, World};
use crate::run::Rng;

/// Valid settings. The last setting of each name is its default or close to it.
const RIGHT: [(&str, &str); 24] = [
    ("margin", "1"),
    ("margin", "3.5"),
    ("margin", "1.3"),
    ("gain", "0ns"),
    ("gain", "20ms"),
    ("gain", "100us"),
    ("quiet", "100ms"),
    ("quiet", "1s"),
    ("sample", "10us"),
    ("sample", "2ms"),
    ("sample", "300us"),
    ("byte", "0"),
    ("byte", "1000000"),
    ("byte", "10"),
    ("transfer", "1"),
    ("transfer", "400"),
    ("transfer", "25"),
    ("deadline", "1ms"),
    ("deadline", "100ms"),
    ("dry-run", "true"),
    ("dry-run", "false"),
    ("dry-run", "false"),
    ("swaps", "3"),
    ("bytes", "1000"),
];
/// Invalid settings: unknown names, wrong types and wrong values.
const WRONG: [(&str, &str); 14] = [
    ("colour", "blue"),
    ("", ""),
    ("Freeze", "true"),
    ("freeze", "maybe"),
    ("freeze", ""),
    ("cooldown", "soon"),
    ("cooldown", "0ms"),
    ("cooldown", "7200s"),
    ("margin", "0.9"),
    ("margin", "NaN"),
    ("gain", "-1s"),
    ("quiet", "99999999999999999999s"),
    ("byte", "1e300"),
    ("bytes", "-5"),
];
/// Maximum cool-down to set, in milliseconds.
const COOLDOWN_MS_MAX: u64 = 300;
/// One step of each kind (`steer`).
const FIRST_STEPS: [u64; 8] = [0, 28, 4, 20, 38, 40, 44, 48];
const SLEEP_US: u64 = 4_000;
/// Maximum number of consecutive swaps of the seesaw by hand.
const SWAPS_MAX: u64 = 20;
const SHORT: Duration = Duration::from_micros(200);
/// Maximum times of a freeze: of an object, of the seesaw, and of all objects.
const FROZEN_MS: u64 = 40;
const SEESAW_FROZEN_MS: u64 = 900;
const SEESAW_DEAF_MS: u64 = 3_000;
const ALL_FROZEN_MS: u64 = 60;
/// Maximum time that calls are arbitrated, or that the engine's thread is off.
const ARBITRATED_US: u64 = 8_000;
const OFF_MS: u64 = 30;

#[derive(Clone, Copy)]
pub(super) struct Operator {
    pub(super) world: &'static World,
}

/// The fields of an attribute that a setting can change.
fn values_of(attributes: &[AttributeInfo]) -> Vec<(String, String, Scope)> {
    attributes.iter().map(|info| (info.path(), info.value.clone(), info.from)).collect()
}

/// Sets an attribute of an object.
pub(super) type Set<'a> = dyn FnMut(Id, &str, &str) -> Result<(), String> + 'a;

impl Operator {
    fn fail(self, tracked: &TrackedCounter, what: &str) {
        self.world.run_state.fail(format!("counter #{}, {}: {what}", tracked.serial, tracked.id()));
    }

    /// Records a violation because a required action was refused, unless the object is ending.
    pub(super) fn refused(self, tracked: &TrackedCounter, doing: &str, error: &str) {
        if !tracked.lifecycle.is_ending() {
            self.fail(tracked, &format!("{doing} was refused: {error}"));
        }
    }

    /// The first steps of a thread are one of each kind, so that a short run covers all. The others are
    /// random.
    pub(super) fn steer(self, step: u64, rng: &mut Rng) {
        let kind = FIRST_STEPS.get(step as usize).copied().unwrap_or_else(|| rng.below(64));
        match rng.below(256) {
            0..2 => return self.freeze_all(rng),
            2 => return self.switch_thread(rng),
            3..12 => {
                count(Stat::Turns);
                engine::turn();
            }
            _ => {}
        }
        let place = if rng.one_in(3) { rng.below(PLACES as u64) as usize } else { self.world.any_place(rng) };
        let Some(steering) = self.world.steer(place) else { return thread::sleep(SHORT) };
        if let Some(tracked) = self.world.shown(place).filter(|tracked| !tracked.lifecycle.is_ending()) {
            let tracked = &*tracked;
            match kind {
                0..4 => self.freeze(tracked, place, &mut control_freeze, rng),
                4..20 if place < PLACES => self.set_right(tracked, &mut control_set, rng),
                4..28 => self.set_wrong(tracked, &mut control_set, rng),
                28..38 => {
                    // Many swaps in a row, while the policy may decide at the same moment.
                    let times = if place == SEESAW { 1 + rng.below(SWAPS_MAX) } else { 1 };
                    (0..times).for_each(|_| self.swap(tracked, rng));
                }
                38..40 if place < PLACES => self.swap_out_and_back(tracked),
                40..44 => self.sample(tracked, rng),
                44..48 => self.arbitrate(tracked, rng),
                48..54 => self.discard(tracked, rng),
                54..58 => {
                    count(Stat::Posts);
                    engine::post(tracked.id());
                }
                _ => self.look(tracked),
            }
        }
        drop(steering);
        thread::sleep(Duration::from_micros(rng.below(SLEEP_US)));
    }

    /// Returns the swaps of an object by its policy, from the log, after `moment`.
    fn swaps_after(self, id: Id, moment: Option<SystemTime>) -> Vec<SystemTime> {
        let by_policy =
            control::history(id).into_iter().filter(|decision| decision.verdict == Verdict::Swapped);
        by_policy.map(|decision| decision.at).filter(|at| moment.is_none_or(|moment| *at > moment)).collect()
    }

    /// Checks I2 for one object. `freeze` freezes and thaws it.
    pub(super) fn freeze(
        self,
        tracked: &TrackedCounter,
        place: usize,
        freeze: &mut dyn FnMut(Id, bool) -> Result<(), String>,
        rng: &mut Rng,
    ) {
        let id = tracked.id();
        let deaf = self.world.is_broken(Break::DeafFreeze);
        let frozen = if deaf { Ok(()) } else { freeze(id, true) };
        if let Err(error) = frozen {
            return self.refused(tracked, "a freeze", &error);
        }
        count(Stat::Freezes);
        let last = self.swaps_after(id, None).last().copied();
        let long = match place {
            // Long enough for two visible swaps by the policy.
            SEESAW if deaf => SEESAW_DEAF_MS,
            SEESAW => rng.below(SEESAW_FROZEN_MS),
            _ => rng.below(FROZEN_MS),
        };
        self.pass(Duration::from_millis(long));
        let later = self.swaps_after(id, last).len();
        if later > 1 {
            self.fail(tracked, &format!("its policy swapped it {later} times while it was frozen"));
        }
        (0..later).for_each(|_| count(Stat::LateSwaps));
        let said = control::status(id);
        if !deaf && said.as_ref().is_some_and(|status| !status.frozen) && !tracked.lifecycle.is_ending() {
            self.fail(tracked, "it is frozen, but its status does not say so");
        }
        if !deaf && let Err(error) = freeze(id, false) {
            self.refused(tracked, "a thaw", &error);
        }
    }

    /// Sleeps for `span`, or until the run ends.
    fn pass(self, span: Duration) {
        const STEP: Duration = Duration::from_millis(20);
        let mut left = span;
        while !left.is_zero() && !self.world.run_state.is_stopped() {
            let step = left.min(STEP);
            thread::sleep(step);
            left -= step;
        }
    }

    /// Checks I2 for all objects.
    fn freeze_all(self, rng: &mut Rng) {
        let Some(alone) = self.world.alone() else { return };
        let dry = rng.one_in(4);
        if dry {
            control::dry_run_all(true)
        } else {
            control::freeze_all(true)
        }
        count(Stat::FreezesAll);
        let tracked_by_id = self.world.all();
        let last = control::recent().last().map(|decision| decision.at);
        self.pass(Duration::from_millis(rng.below(ALL_FROZEN_MS)));
        for tracked in &tracked_by_id {
            let later = self.swaps_after(tracked.id(), last).len();
            if later > 1 {
                self.fail(
                    tracked,
                    &format!("its policy swapped it {later} times while all objects were frozen"),
                );
            }
            (0..later).for_each(|_| count(Stat::LateSwaps));
        }
        if dry {
            control::dry_run_all(false)
        } else {
            control::freeze_all(false)
        }
        drop(alone);
    }

    /// Switches the engine's thread off for a moment. Other threads may run the engine meanwhile.
    fn switch_thread(self, rng: &mut Rng) {
        let Some(alone) = self.world.alone() else { return };
        if engine::thread_state() == engine::EngineState::Running {
            count(Stat::ThreadSwitches);
            engine::set_thread(false);
            self.pass(Duration::from_millis(rng.below(OFF_MS)));
            engine::turn();
            engine::set_thread(true);
        }
        drop(alone);
    }

    pub(super) fn set_right(self, tracked: &TrackedCounter, set: &mut Set<'_>, rng: &mut Rng) {
        let (name, text) = if rng.one_in(3) {
            let ms = 1 + rng.below(COOLDOWN_MS_MAX);
            // Recorded before it takes effect.
            tracked.cooldown_us.fetch_min(ms * 1000, Ordering::Relaxed);
            ("cooldown", format!("{ms}ms"))
        } else {
            let (name, text) = RIGHT[rng.below(RIGHT.len() as u64) as usize];
            (name, text.to_owned())
        };
        let is_right = !(self.world.breaks(Break::WrongSetting, 16, rng));
        match set(tracked.id(), name, &text) {
            Ok(()) if !is_right => {
                self.fail(tracked, &format!("the invalid setting {name} = {text:?} was accepted"))
            }
            Ok(()) => {
                count(Stat::Settings);
                let attributes = control::attributes(tracked.id()).unwrap_or_default();
                let is = |info: &AttributeInfo| info.name == name && info.from == Scope::Instance;
                if !attributes.iter().any(is) && !tracked.lifecycle.is_ending() {
                    self.fail(
                        tracked,
                        &format!("{name} was set for it, but is not among its attributes: {attributes:?}"),
                    );
                }
            }
            Err(error) => self.refused(tracked, &format!("{name} = {text:?}"), &error),
        }
    }

    /// Checks I1.
    pub(super) fn set_wrong(self, tracked: &TrackedCounter, set: &mut Set<'_>, rng: &mut Rng) {
        let (name, text) = WRONG[rng.below(WRONG.len() as u64) as usize];
        let before = control::attributes(tracked.id()).map(|attributes| values_of(&attributes));
        let Err(error) = set(tracked.id(), name, text) else {
            return self.fail(tracked, &format!("the invalid setting {name} = {text:?} was accepted"));
        };
        count(Stat::SettingsRefused);
        let after = control::attributes(tracked.id()).map(|attributes| values_of(&attributes));
        if tracked.lifecycle.is_ending() {
            return;
        }
        match (before, after) {
            (Ok(before), Ok(after)) if before == after => {}
            (before, after) => {
                self.fail(
                    tracked,
                    &format!(
                        "a refused setting of {name} changed its attributes from {before:?} to {after:?}"
                    ),
                );
            }
        }
        if !error.contains(name) {
            self.fail(
                tracked,
                &format!("the error of the setting {name} = {text:?} does not name it: {error}"),
            );
        }
        let is_known =
            RIGHT.iter().any(|(known, _)| *known == name) || ["freeze", "cooldown"].contains(&name);
        if !is_known && !error.contains("cooldown") {
            self.fail(
                tracked,
                &format!("the error of the unknown setting {name} does not list the known ones: {error}"),
            );
        }
    }

    fn swap(self, tracked: &TrackedCounter, rng: &mut Rng) {
        let id = tracked.id();
        let form = ["shared", "distributed", "distributed", "round"][rng.below(4) as usize];
        match control::swap(id, form) {
            Ok(report) if form == "round" => {
                self.fail(tracked, &format!("a swap to the unknown form {form:?} succeeded: {report:?}"));
            }
            Ok(report) if report.id != id => {
                self.fail(tracked, &format!("the report of its swap names another object: {report:?}"))
            }
            Ok(_) => count(Stat::ByHand),
            Err(ControlError::NoImplementation { known, .. }) if form == "round" => {
                count(Stat::Unknown);
                if !["shared", "distributed", PLAIN].iter().all(|form| known.contains(form))
                    && !tracked.lifecycle.is_ending()
                {
                    self.fail(
                        tracked,
                        &format!("the error of a swap to an unknown form lists only {known:?}"),
                    );
                }
            }
            // The policy swaps it, its calls are being counted, or a caller does not end.
            Err(ControlError::Swap(_)) => count(Stat::ByHandFailed),
            Err(error) => self.refused(tracked, "a swap", &error.to_string()),
        }
    }

    /// Swaps the object out of its family, where its policy does not see it, and back.
    fn swap_out_and_back(self, tracked: &TrackedCounter) {
        let id = tracked.id();
        if control::swap(id, PLAIN).is_err() {
            return;
        }
        count(Stat::Plain);
        if let Ok(()) = control::freeze(id, false)
            && !tracked.lifecycle.is_ending()
        {
            self.fail(tracked, "it is outside its family, but its policy accepted a setting");
        }
        while !self.world.run_state.is_stopped() {
            match control::swap(id, "shared") {
                Ok(_) => return,
                Err(ControlError::Swap(_)) if !tracked.lifecycle.is_ending() => thread::yield_now(),
                Err(error) => {
                    return self.refused(tracked, "the swap back into its family", &error.to_string());
                }
            }
        }
        // The run ends, and the final checks require the first form.
        let _ = control::swap(id, "shared");
    }

    fn sample(self, tracked: &TrackedCounter, rng: &mut Rng) {
        let calls: calls::Calls = match control::sample(tracked.id(), Duration::from_micros(rng.below(2_000)))
        {
            Ok(calls) => calls,
            Err(ControlError::Swap(_)) => return,
            Err(error) => return self.refused(tracked, "a sample of its calls", &error.to_string()),
        };
        count(Stat::Samples);
        let by_method: u64 = calls.by_method.iter().map(|(_, count)| count).sum();
        if by_method != calls.count() {
            self.fail(
                tracked,
                &format!("the sums of its calls by method and by processor differ: {calls:?}"),
            );
        }
    }

    fn arbitrate(self, tracked: &TrackedCounter, rng: &mut Rng) {
        let ran = Arc::new(AtomicU64::new(0));
        let counting = Arc::clone(&ran);
        let arbiter = arbitrate_object(tracked.id(), move |_| {
            counting.fetch_add(1, Ordering::Relaxed);
        });
        if let Ok(arbiter) = arbiter {
            count(Stat::Arbitrated);
            thread::sleep(Duration::from_micros(rng.below(ARBITRATED_US)));
            arbiter.detach();
        }
    }

    fn discard(self, tracked: &TrackedCounter, rng: &mut Rng) {
        let vp = machine().vps().iter().nth(rng.below(machine().vps().len() as u64) as usize);
        let vp = vp.unwrap_or_else(Vp::current);
        match rng.below(16) {
            0 => tables::discard_all(),
            1..4 => tables::discard(vp),
            4..8 => tables::forget(tracked.id()),
            _ => tables::discard_page_of(vp, tracked.id()),
        }
        count(Stat::Discards);
    }

    /// Checks the status of an object.
    fn look(self, tracked: &TrackedCounter) {
        let Some(status) = control::status(tracked.id()) else {
            return self.refused(tracked, "its status", "there is none");
        };
        if status.id != tracked.id() || !status.forms.contains(&status.form) {
            self.fail(tracked, &format!("its status belongs to another object: {status:?}"));
        }
    }
}

fn control_set(id: Id, name: &str, text: &str) -> Result<(), String> {
    control::set_attribute(id, name, text).map_err(|error| error.to_string())
}

fn control_freeze(id: Id, frozen: bool) -> Result<(), String> {
    control::freeze(id, frozen).map_err(|error| error.to_string())
}
