//! The interface between the skeleton and a stress.

use std::time::Duration;

use super::breaks::Breaks;
use super::cleanup::ProcessSnapshot;
use super::run_state::RunState;
use super::supervisor::Supervised;
use super::worker::Worker;
use crate::run::{Run, Violation};

/// A stress, as the skeleton sees it: its world and its checks. [`Supervised`] supplies the threads.
pub(crate) trait Workload: Supervised + Sized {
    /// The stress never simulates a virtual machine.
    const REAL_MACHINE: bool = false;
    /// The planned breaks of the stress.
    type Break: Breaks;

    /// Makes the world of a run. The library has not been used yet.
    ///
    /// # Errors
    /// The system lacks something that the stress needs.
    fn new(run: &Run, broken: Option<Self::Break>) -> Result<Self, Violation>;

    /// Returns the state of the run.
    fn run_state(&self) -> &'static RunState;

    /// Returns the workers.
    fn workers(&self) -> &'static [Worker];

    /// Runs after the first threads exist and before they pass their first checkpoint.
    ///
    /// # Errors
    /// The stress cannot start.
    fn begin(&mut self, _run: &Run) -> Result<(), Violation> {
        Ok(())
    }

    /// Checks the world and the process after all threads have ended.
    ///
    /// # Errors
    /// A description of the first violation.
    fn check(&mut self, before: &ProcessSnapshot) -> Result<(), String>;

    /// Returns the counts of the run.
    fn report(&self, elapsed: Duration) -> Vec<(&'static str, u64)>;
}
