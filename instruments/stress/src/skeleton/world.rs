//! The shared part of every stress's world.

use std::ops::Deref;

use super::run_state::RunState;
use super::worker::Worker;
use crate::run::{Rng, leak};

/// The data that all threads of a stress share. `S` is the part of the stress, to which the world
/// dereferences.
pub(crate) struct World<B, C, S> {
    broken: Option<B>,
    pub(crate) run_state: &'static RunState,
    pub(crate) workers: Vec<Worker>,
    pub(crate) counts: C,
    own: S,
}

impl<B, C, S> World<B, C, S>
where
    B: Copy + PartialEq + Sync + 'static,
    C: Default + Sync + 'static,
    S: Sync + 'static,
{
    /// Makes a world for so many workers and leaks it, because deferred calls may refer to it after the run.
    pub(crate) fn leaked(
        broken: Option<B>,
        workers: usize,
        own: impl FnOnce(&'static RunState) -> S,
    ) -> &'static World<B, C, S> {
        let run_state = leak(RunState::default());
        let workers = (0..workers).map(|_| Worker::default()).collect();
        leak(World { broken, run_state, workers, counts: C::default(), own: own(run_state) })
    }

    /// Returns whether the run has this planned break.
    pub(crate) fn is_broken(&self, by: B) -> bool {
        self.broken == Some(by)
    }

    /// Returns whether the run has a planned break other than this one.
    pub(crate) fn is_broken_otherwise(&self, by: B) -> bool {
        self.broken.is_some_and(|broken| broken != by)
    }

    /// Returns true once in `one_in` times if the run has this planned break.
    pub(crate) fn breaks(&self, by: B, one_in: u64, rng: &mut Rng) -> bool {
        self.is_broken(by) && rng.one_in(one_in)
    }

    /// Records a violation if the check failed.
    pub(crate) fn expect(&self, check: Result<(), String>) {
        if let Err(violation) = check {
            self.run_state.fail(violation);
        }
    }
}

impl<B, C, S> Deref for World<B, C, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.own
    }
}
