//! A round: from posts and due times to samples, decisions and swaps.

use std::time::Duration;

use squall_core::Id;

use super::clock::now;
use super::decide::estimate;
use super::record::{ALARM, Wish};
use super::sample::{Sample, count_calls, find_busy, post_again, take_sample};
use super::shrink::sample_grown;
use super::state::{State, state};
use super::swap::{SwapPlan, swap_all};
use crate::family;

/// Largest number of objects sampled in one round. The others wait for the next round.
const ROUND_MAX: usize = 256;

/// Runs a round: samples the objects that posted and those that are due, and swaps those that another form
/// serves better. Returns the number of objects sampled.
pub(super) fn run(mut posted: Vec<Id>) -> usize {
    for later in posted.split_off(posted.len().min(ROUND_MAX)) {
        post_again(later);
    }
    prune();
    let due = {
        let mut state = state();
        posted.retain(|id| !state.is_held(*id) && !state.put_off(*id));
        state.take_due()
    };
    let mut samples: Vec<Sample> = Vec::new();
    for id in &posted {
        samples.extend(take_sample(*id, true));
    }
    for (id, held) in due {
        if !posted.contains(&id) {
            samples.extend(take_sample(id, held));
        }
    }
    let count = samples.len();
    let (asked, watched): (Vec<Sample>, Vec<Sample>) = samples.into_iter().partition(|sample| sample.asked);
    let mut swaps: Vec<SwapPlan> = watched.iter().filter_map(sample_grown).collect();
    let hot = find_busy(asked);
    swaps.extend(count_calls(hot).into_iter().filter_map(|(busy, calls)| estimate(busy, &calls)));
    swap_all(swaps);
    count
}

impl State {
    /// Takes the objects that are due. The flag is `true` if the object is held.
    fn take_due(&mut self) -> Vec<(Id, bool)> {
        let now = now();
        let due =
            self.records.iter().filter_map(|(id, record)| Some((record.due.filter(|due| *due <= now)?, *id)));
        let mut due: Vec<(Duration, Id)> = due.collect();
        // The object that has waited longest comes first. Otherwise a large number of objects due in each
        // round would starve the others.
        due.sort_unstable();
        due.truncate(ROUND_MAX);
        let taken = due.into_iter().filter_map(|(_, id)| {
            let record = self.records.get_mut(&id)?;
            record.due = None;
            Some((id, record.is_held_from(Wish::Cheaper)))
        });
        taken.collect()
    }

    /// Returns `true` if an object is held, so that it is sampled when it is due.
    fn is_held(&self, id: Id) -> bool {
        self.records.get(&id).is_some_and(|record| record.is_held_until(now()))
    }

    /// Puts the post of an object without sensors off, if its calls were counted a short time ago.
    fn put_off(&mut self, id: Id) -> bool {
        self.records.get_mut(&id).is_some_and(|record| record.put_off(now()))
    }

    /// Returns the ids of all records, if it is time to check which of their objects were destroyed.
    fn to_prune(&self) -> Vec<Id> {
        if self.records.len() < self.prune_at { Vec::new() } else { self.records.keys().copied().collect() }
    }
}

/// Removes the records of destroyed objects, once there are twice as many records as after the last time.
fn prune() {
    let ids = state().to_prune();
    if ids.is_empty() {
        return;
    }
    let gone: Vec<Id> = ids.into_iter().filter(|id| family::of(*id).is_none()).collect();
    let mut state = state();
    gone.iter().for_each(|id| _ = state.records.remove(id));
    state.prune_at = (state.records.len() * 2).max(64);
}

/// Has an object sampled again without the effect of earlier decisions.
pub(crate) fn wake(id: Id) {
    if let Some((family, _)) = family::of(id) {
        if let Some(record) = state().records.get_mut(&id) {
            record.sample_now();
        }
        family.arm(id, ALARM);
        post_again(id);
    }
}
