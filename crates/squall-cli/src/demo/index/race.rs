//! The comparison: each map builds the same index, and its time and its result are checked.
//!
//! - I1. A row is printed as right only if each of its laps built exactly the index of one thread in plain
//!   variables. A difference makes the demo fail.
//! - I2. All rows read the same texts from memory, in turns, round after round. Each lap begins with an empty
//!   map, after the memory of the previous lap was freed.

use std::time::{Duration, Instant};

use dashmap::DashMap;
use squall::adapt::control;
use squall::{Handle, Owned, rcu};

use super::build::Build;
use super::form::Form;
use super::job::Job;
use super::keep::{Keep, List, Locked, Nothing};
use super::plain::Plain;
use super::words::Hasher;
use crate::demo::laps::{LAPS_TIME, LAPS_TIME_MAX, ROUNDS_MAX, ROUNDS_MIN};
use crate::demo::progress::Progress;
use crate::output::Failure;

/// Interval between two calls of the watcher.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// The keeper of the index in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeper {
    /// One thread with std's map.
    Alone,
    Nobody,
    Mutex,
    Dash,
    Scc,
    Ours(Form),
}

pub(super) const KEEPERS: [(Keeper, &str); 10] = [
    (Keeper::Alone, "one thread, std's HashMap"),
    (Keeper::Nobody, "none: reading only"),
    (Keeper::Mutex, "Mutex<HashMap>"),
    (Keeper::Dash, "dashmap"),
    (Keeper::Scc, "scc::HashMap"),
    (Keeper::Ours(Form::Locked), "Squall, one lock"),
    (Keeper::Ours(Form::Shared), "Squall, shared"),
    (Keeper::Ours(Form::Partitioned), "Squall, partitioned"),
    (Keeper::Ours(Form::Replicated), "Squall, replicated"),
    (Keeper::Ours(Form::Adaptive), "Squall, adaptive"),
];

/// All laps of one row.
pub(super) struct Row {
    pub(super) keeper: Keeper,
    pub(super) name: &'static str,
    laps: Vec<Duration>,
    /// Swaps of all laps.
    pub(super) swaps: u64,
    /// Final form of the adaptive map in the last lap.
    pub(super) form: Option<&'static str>,
    /// Description of the first difference in a lap, if any.
    pub(super) wrong: Option<String>,
}

impl Row {
    /// Returns the median of the laps.
    pub(super) fn time(&self) -> Duration {
        let mut times = self.laps.clone();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }

    pub(super) fn laps(&self) -> usize {
        self.laps.len()
    }
}

/// Runs round after round, one lap per row (I2).
pub(super) fn race(job: &Job) -> Result<Vec<Row>, Failure> {
    let began = Instant::now();
    let row = |(keeper, name)| Row { keeper, name, laps: Vec::new(), swaps: 0, form: None, wrong: None };
    let mut rows: Vec<Row> = KEEPERS.map(row).into();
    let bar = Progress::new(ROUNDS_MIN as u64 * KEEPERS.len() as u64 * job.totals.bytes, "comparing");
    for round in 0..ROUNDS_MAX {
        let time_max = if round < ROUNDS_MIN { LAPS_TIME_MAX } else { LAPS_TIME };
        if round > 0 && began.elapsed() > time_max {
            break;
        }
        for (index, row) in rows.iter_mut().enumerate() {
            bar.0.set_message(row.name);
            let before = (round * KEEPERS.len() + index) as u64 * job.totals.bytes;
            lap(row, job, &|bytes| bar.0.set_position(before + bytes))?;
            rcu::barrier().map_err(not_freed)?;
        }
    }
    bar.clear();
    Ok(rows)
}

/// Runs one lap of one row.
fn lap(row: &mut Row, job: &Job, watch: &dyn Fn(u64)) -> Result<(), Failure> {
    match row.keeper {
        Keeper::Alone => {
            let began = Instant::now();
            let plain = Plain::build(&job.texts);
            row.laps.push(began.elapsed());
            let difference =
                (plain.totals != job.totals).then(|| format!("the totals are {:?}", plain.totals));
            row.wrong = row.wrong.take().or(difference);
            Ok(())
        }
        Keeper::Nobody => run(row, &Nothing, job, watch),
        Keeper::Mutex => run(row, &Locked::default(), job, watch),
        Keeper::Dash => run(row, &DashMap::<Box<str>, List, Hasher>::default(), job, watch),
        Keeper::Scc => run(row, &scc::HashMap::<Box<str>, List, Hasher>::default(), job, watch),
        Keeper::Ours(form) => {
            let map = form.make();
            run(row, &map.handle(), job, watch)?;
            if let Some(status) = control::status(Handle::id(map.handle())) {
                row.swaps += status.swaps_count;
                row.form = Some(status.form);
            }
            Owned::destroy(map.into_owned()).wait().map_err(not_freed)
        }
    }
}

fn not_freed(error: rcu::WaitError) -> Failure {
    Failure::new(format!("the memory of a lap was not freed: {error}"))
}

/// Runs one lap with all threads and checks its result (I1).
fn run<K: Keep>(row: &mut Row, kept: &K, job: &Job, watch: &dyn Fn(u64)) -> Result<(), Failure> {
    let build = Build::new(job, job.threads);
    let time = build.run(kept, WATCH_INTERVAL, &mut |build| {
        watch(build.statistics.totals().bytes);
        Ok(())
    })?;
    row.laps.push(time);
    let totals = build.statistics.totals();
    let difference = match row.keeper {
        _ if totals != job.totals => Some(format!("the statistics are {totals:?}, not {:?}", job.totals)),
        Keeper::Nobody => None,
        _ => job.truth.difference(kept),
    };
    row.wrong = row.wrong.take().or(difference);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::demo::collect::{Collected, Text};

    #[test]
    fn a_row_that_built_another_index_is_wrong() {
        let _serial = crate::serial::lock();
        let text = |n: usize| Text { path: PathBuf::new(), bytes: "one two ".repeat(n).into_bytes() };
        let mut collected = Collected::default();
        collected.texts.extend((0..20).map(text));
        let job = Job::new(collected, 3).expect("it has words");
        let of = |keeper| Row { keeper, name: "", laps: Vec::new(), swaps: 0, form: None, wrong: None };
        for (keeper, is_wrong) in [(Keeper::Mutex, true), (Keeper::Nobody, false)] {
            let mut row = of(keeper);
            run(&mut row, &Nothing, &job, &|_| ()).expect("nothing is printed");
            assert_eq!(row.wrong.is_some(), is_wrong, "{keeper:?}: {:?}", row.wrong);
        }
        for (keeper, _) in KEEPERS {
            let mut row = of(keeper);
            lap(&mut row, &job, &|_| ()).expect("nothing is printed");
            assert_eq!((row.wrong, row.laps.len()), (None, 1), "{keeper:?}");
        }
    }
}
