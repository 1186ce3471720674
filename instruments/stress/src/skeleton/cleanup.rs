//! The end of a run: pending work runs until no trace of the run is left in the process.

use std::thread;
use std::time::Duration;

use squall::rcu::{barrier, stats};
use squall::{ObjectInfo, snapshot, tables};

use super::run_state::RunState;

/// Maximum number of drain rounds. Destroyed objects need a few grace periods and a run on their VP. A drop
/// may destroy another object in turn.
const ROUNDS: u32 = 400;
/// Sleep before each round, so that the library's own threads can run.
const PAUSE: Duration = Duration::from_millis(2);
/// Maximum number of remaining objects to name.
const NAMED_MAX: usize = 4;

/// Counts of the process before the run.
pub(crate) struct ProcessSnapshot {
    objects: usize,
    panicked_drops: u64,
    panicked_calls: u64,
    leaked: u64,
}

impl ProcessSnapshot {
    pub(crate) fn take() -> ProcessSnapshot {
        ProcessSnapshot {
            objects: snapshot().len(),
            panicked_drops: tables::stats().panicked_drops,
            panicked_calls: stats().panicked,
            leaked: stats().leaked,
        }
    }

    /// Describes the objects and deferred calls that remain from the run, if any.
    fn remaining(&self) -> Option<String> {
        let objects = snapshot();
        if objects.len() != self.objects {
            let name = |object: &ObjectInfo| format!("{}#{}", object.interface, object.id);
            let named: Vec<String> = objects.iter().take(NAMED_MAX).map(name).collect();
            let (now, before) = (objects.len(), self.objects);
            return Some(format!("{now} objects exist, {before} existed before: {}", named.join(", ")));
        }
        let pending = stats().pending_calls;
        (pending != 0).then(|| format!("{pending} deferred calls are pending"))
    }

    /// Runs everything that is pending, until neither `remaining` nor the process has a trace of the run.
    /// Calls `release` before each round.
    ///
    /// # Errors
    /// Describes the first remaining trace, or the error of a round.
    pub(crate) fn drain(
        &self,
        run_state: &RunState,
        mut release: impl FnMut(),
        mut remaining: impl FnMut() -> Option<String>,
    ) -> Result<(), String> {
        let round = || {
            thread::sleep(PAUSE);
            release();
            barrier().and_then(|_| barrier()).map_err(|error| format!("at the end: {error}"))?;
            run_state.violation().map_or(Ok(()), Err)
        };
        drain_until_clean(ROUNDS, round, || remaining().or_else(|| self.remaining()))
    }

    /// Checks the panics and leaks of the run. `drop_panics` is the number of planned panics in drops.
    ///
    /// # Errors
    /// Describes the first unexpected count.
    pub(crate) fn check_failures(&self, drop_panics: u64) -> Result<(), String> {
        let now = stats();
        let counts = [
            ("deferred calls panicked", now.panicked - self.panicked_calls, 0),
            ("deferred calls were leaked", now.leaked - self.leaked, 0),
            ("drops panicked", tables::stats().panicked_drops - self.panicked_drops, drop_panics),
        ];
        match counts.into_iter().find(|(_, count, planned)| count != planned) {
            Some((what, count, planned)) => Err(format!("{count} {what}, {planned} were planned")),
            None => Ok(()),
        }
    }
}

/// Runs barriers until no value is alive. Representatives are dropped on their VP, by the next thread that
/// runs there, so each barrier comes after a sleep.
///
/// # Errors
/// The number of values that remain, with `remain` for the rest of the sentence, or the error of a barrier.
pub(crate) fn drain_values(alive: impl Fn() -> i64, remain: &str) -> Result<(), String> {
    const ROUNDS: u32 = 1_000;
    const PAUSE: Duration = Duration::from_millis(5);
    let round = || {
        thread::sleep(PAUSE);
        barrier().map(drop).map_err(|error| format!("a barrier at the end failed: {error}"))
    };
    drain_until_clean(ROUNDS, round, || match alive() {
        0 => None,
        alive => Some(format!("{alive} {remain}")),
    })
}

/// Runs `round` until `remaining` returns `None`, at most `rounds` times.
///
/// # Errors
/// The last result of `remaining`, or the error of a round.
pub(crate) fn drain_until_clean(
    rounds: u32,
    mut round: impl FnMut() -> Result<(), String>,
    mut remaining: impl FnMut() -> Option<String>,
) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..rounds {
        round()?;
        match remaining() {
            Some(remaining) => last = remaining,
            None => return Ok(()),
        }
    }
    Err(format!("after {rounds} barriers at the end: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn draining_ends_when_clean_or_reports_the_rest() {
        let things = Cell::new(3);
        let round = || {
            things.set(things.get() - 1);
            Ok(())
        };
        let remaining = || (things.get() > 0).then(|| format!("{} of 3", things.get()));
        let report = drain_until_clean(2, round, remaining);
        assert_eq!(report, Err("after 2 barriers at the end: 1 of 3".to_owned()));
        assert_eq!(drain_until_clean(400, round, remaining), Ok(()));
        assert_eq!(things.get(), 0, "no more rounds than needed");
        let fails = drain_until_clean(3, || Err("at the end: refused".to_owned()), || None);
        assert_eq!(fails, Err("at the end: refused".to_owned()));
    }
}
