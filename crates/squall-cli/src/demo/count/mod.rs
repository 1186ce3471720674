//! `squall demo count`: many threads keep statistics of real texts in shared, distributed and adaptive
//! objects.
//!
//! - I1. A row is printed as right only if three numbers equal a single-threaded count in plain variables.
//!   They are its totals, the sum over its threads, and its number of calls. A difference makes the demo
//!   fail.
//! - I2. All rows read the same texts from memory, in turns, round after round. Each lap has a new object.
//!
//! Units: one call per word, per line and per file. Most programs would choose larger units. The small units
//! show the cost of a call.

mod race;
mod row;
mod scan;
mod stats;
mod table;

use std::sync::Arc;
use std::time::{Duration, Instant};

use squall::{ClusterSize, Handle, Owned, Root};

use super::collect::{Collected, Text};
use super::laps::{LAPS_TIME, LAPS_TIME_MAX, ROUNDS_MAX, ROUNDS_MIN};
use super::progress::Progress;
use crate::output::{Failure, line};
use race::lap;
use row::{Anatomy, KEEPERS, Keeper, Row};
use scan::plainly;
use stats::{Adaptive, Atomics, Locked, Nothing, Spread, TextStats, Totals};

/// Texts beyond this time of a single-threaded count are left out.
const PLAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// Counts the texts, all rows in turns, and prints the results.
pub(super) fn run(mut collected: Collected, threads: usize) -> Result<(), Failure> {
    let truth = count_plainly(&mut collected);
    // Longest first, so that no thread begins a long text when the other threads are done.
    let mut texts = collected.texts;
    texts.sort_by_key(|text| std::cmp::Reverse(text.bytes.len()));
    line(format_args!(
        "{threads} threads read {} texts ({:.1} MiB) from memory and report every word, line and file to the statistics,\n\
         with one call each.",
        truth.files,
        truth.bytes as f64 / f64::from(1 << 20)
    ))?;
    collected.limits.iter().try_for_each(|limit| line(format_args!("  ({limit}.)")))?;
    let rows = race(&texts, threads, &truth)?;
    table::print(&rows, &truth, threads)?;
    match rows.iter().find_map(|row| Some((row.name, row.wrong.as_ref()?))) {
        Some((name, wrong)) => Err(Failure::new(format!("{name}: {wrong}"))),
        None => Ok(()),
    }
}

/// Returns the truth: the count of one thread in plain variables. Texts that it does not reach in time are
/// left out.
fn count_plainly(collected: &mut Collected) -> Totals {
    let began = Instant::now();
    let mut truth = Totals::default();
    let mut counted = 0;
    for text in &collected.texts {
        truth = truth.plus(&plainly(&text.bytes));
        counted += 1;
        if began.elapsed() > PLAIN_TIME_MAX && counted < collected.texts.len() {
            let left = collected.texts.len() - counted;
            collected.limits.push(format!("{left} texts were left out to keep the demo short"));
            break;
        }
    }
    collected.texts.truncate(counted);
    truth
}

/// Runs round after round, one lap per row (I2).
fn race(texts: &[Text], threads: usize, truth: &Totals) -> Result<Vec<Row>, Failure> {
    let began = Instant::now();
    let mut rows: Vec<Row> = KEEPERS
        .iter()
        .map(|&(keeper, name)| Row {
            keeper,
            name,
            laps: Vec::new(),
            anatomy: None,
            by_thread: Vec::new(),
            wrong: None,
        })
        .collect();
    let bar = Progress::new((ROUNDS_MIN * KEEPERS.len() * texts.len()) as u64, "counting");
    for round in 0..ROUNDS_MAX {
        let time_max = if round < ROUNDS_MIN { LAPS_TIME_MAX } else { LAPS_TIME };
        if round > 0 && began.elapsed() > time_max {
            break;
        }
        for (index, row) in rows.iter_mut().enumerate() {
            bar.0.set_message(row.name);
            let before = ((round * KEEPERS.len() + index) * texts.len()) as u64;
            run_lap(row, texts, threads, truth, &mut |done| bar.0.set_position(before + done as u64))?;
        }
    }
    bar.clear();
    Ok(rows)
}

/// Runs one lap of one row with a new keeper.
fn run_lap(
    row: &mut Row,
    texts: &[Text],
    threads: usize,
    truth: &Totals,
    watch: &mut dyn FnMut(usize),
) -> Result<(), Failure> {
    let plain: Arc<dyn TextStats> = match row.keeper {
        Keeper::Nobody => return finish(row, &Nothing::default(), texts, threads, truth, watch),
        Keeper::Mutex => Arc::new(Locked::default()),
        Keeper::Atomic => Arc::new(Atomics::default()),
        Keeper::Shared => {
            return run_object(row, squall::shared(Atomics::default()), texts, threads, truth, watch);
        }
        Keeper::Distributed => {
            let object = Spread.create(ClusterSize::Cpu);
            return run_object(row, object, texts, threads, truth, watch);
        }
        Keeper::Adaptive => {
            let counters = Adaptive::new();
            finish(row, &counters, texts, threads, truth, watch)?;
            row.anatomy = Some(counters.ids().into_iter().try_fold(Anatomy::default(), Anatomy::plus)?);
            return Ok(());
        }
    };
    // Hidden from the compiler, which could otherwise devirtualize the call.
    let plain = std::hint::black_box(plain);
    finish(row, &*plain, texts, threads, truth, watch)
}

/// Runs one lap with a Squall object and destroys it afterwards.
fn run_object(
    row: &mut Row,
    object: Owned<dyn TextStats>,
    texts: &[Text],
    threads: usize,
    truth: &Totals,
    watch: &mut dyn FnMut(usize),
) -> Result<(), Failure> {
    let reference: Handle<dyn TextStats> = object.handle();
    finish(row, &reference, texts, threads, truth, watch)?;
    row.anatomy = Some(Anatomy::default().plus(Handle::id(reference))?);
    drop(object);
    match reference.try_totals() {
        Err(_) => Ok(()),
        Ok(_) => Err(Failure::new(format!("{reference} still answers after it was destroyed"))),
    }
}

fn finish<S: TextStats + ?Sized>(
    row: &mut Row,
    stats: &S,
    texts: &[Text],
    threads: usize,
    truth: &Totals,
    watch: &mut dyn FnMut(usize),
) -> Result<(), Failure> {
    let lap = lap(stats, texts, threads, watch);
    let by_thread = stats.by_thread();
    row.judge(&lap, &stats.totals(), &by_thread, truth);
    row.laps.push(lap);
    row.by_thread = by_thread;
    Ok(())
}
