//! The printed results of `squall demo count`.

use comfy_table::Table;

use super::row::{Keeper, Row};
use super::stats::Totals;
use crate::demo::laps::new_table;
use crate::output::{Failure, line};

/// Maximum number of threads to list.
const THREADS_LISTED_MAX: usize = 16;

pub(super) fn print(rows: &[Row], truth: &Totals, threads: usize) -> Result<(), Failure> {
    line("")?;
    line(results(rows, truth))?;
    line(format_args!(
        "Totals: files {}, lines {}, words {}, bytes {}, longest line {}.",
        truth.files, truth.lines, truth.words, truth.bytes, truth.longest_line
    ))?;
    let differ = rows.iter().filter(|row| row.wrong.is_some()).count();
    match differ {
        0 => line("All totals agree exactly with a single-threaded count in plain variables.")?,
        _ => line(format_args!("{differ} rows DIFFER from a single-threaded count in plain variables."))?,
    }
    let row_of = |keeper| rows.iter().find(|row| row.keeper == keeper);
    if let Some(distributed) = row_of(Keeper::Distributed) {
        line("\nCounts per thread, from the distributed object in the last lap:")?;
        line(by_thread(&distributed.by_thread))?;
        if threads > THREADS_LISTED_MAX {
            line(format_args!("  and {} more threads.", threads - THREADS_LISTED_MAX))?;
        }
    }
    explain(row_of)
}

fn results(rows: &[Row], truth: &Totals) -> Table {
    let header = ["statistics in", "ms", "MiB/s", "M calls/s", "calls", "misses", "reps", "bytes", "totals"];
    let mut table = new_table(&header);
    for row in rows {
        let seconds = row.time().as_secs_f64().max(1e-9);
        let mib = truth.bytes as f64 / f64::from(1 << 20);
        let of = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
        let is_object = row.keeper != Keeper::Nobody;
        table.add_row([
            row.name.to_owned(),
            format!("{:.1}", seconds * 1e3),
            format!("{:.0}", mib / seconds),
            if is_object { format!("{:.1}", row.calls_per_second() / 1e6) } else { "-".to_owned() },
            if is_object { row.calls().to_string() } else { "-".to_owned() },
            of(row.anatomy.map(|anatomy| anatomy.misses)),
            of(row.anatomy.map(|anatomy| anatomy.reps as u64)),
            of(row.anatomy.map(|anatomy| anatomy.bytes as u64)),
            if row.wrong.is_some() { "DIFFER" } else { "agree" }.to_owned(),
        ]);
    }
    table
}

fn by_thread(threads: &[Totals]) -> Table {
    let mut table = new_table(&["thread", "files", "lines", "words", "bytes"]);
    for (thread, totals) in threads.iter().enumerate().take(THREADS_LISTED_MAX) {
        table.add_row([
            thread.to_string(),
            totals.files.to_string(),
            totals.lines.to_string(),
            totals.words.to_string(),
            totals.bytes.to_string(),
        ]);
    }
    table
}

/// Explains the measured times in words.
fn explain<'a>(row_of: impl Fn(Keeper) -> Option<&'a Row>) -> Result<(), Failure> {
    let (Some(alone), Some(shared), Some(distributed)) =
        (row_of(Keeper::Nobody), row_of(Keeper::Shared), row_of(Keeper::Distributed))
    else {
        return Ok(());
    };
    // Time added to reading alone. A lap may even be shorter than one without statistics; then it is zero.
    let added = |row: &Row| row.time().saturating_sub(alone.time()).as_secs_f64() * 1e3;
    line(
        "\nEach time is the median of the laps and includes the whole cost of the calls. Time added to reading only:",
    )?;
    for keeper in [Keeper::Mutex, Keeper::Atomic, Keeper::Shared, Keeper::Distributed, Keeper::Adaptive] {
        if let Some(row) = row_of(keeper) {
            line(format_args!("  {:<22} {:>8.1} ms", row.name, added(row)))?;
        }
    }
    let reps = distributed.anatomy.map_or(0, |anatomy| anatomy.reps);
    line(format_args!(
        "In all Squall rows, clients hold 8-byte handles. The shared object has one representative, which all threads\nwrite. \
         The distributed object has {reps}, one for each VP that called it, {}.",
        match distributed.time() < shared.time() {
            true => "and each is written only on its VP",
            false => "which was not faster here",
        }
    ))
}
