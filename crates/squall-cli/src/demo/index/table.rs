//! The printed results of the comparison of maps.

use comfy_table::Table;

use super::form::Form;
use super::job::Job;
use super::race::{Keeper, Row};
use crate::demo::laps::new_table;
use crate::output::{Failure, line};

pub(super) fn print(rows: &[Row], job: &Job) -> Result<(), Failure> {
    line("")?;
    line(results(rows, job))?;
    let differ = rows.iter().filter(|row| row.wrong.is_some()).count();
    match differ {
        0 => line(format_args!(
            "Every build of every row is identical to that of one thread with plain variables (hash {:016x}).",
            job.truth.hash()
        ))?,
        _ => line(format_args!("{differ} rows DIFFER from the index of one thread with plain variables."))?,
    }
    explain(rows, job)
}

fn results(rows: &[Row], job: &Job) -> Table {
    let header = ["index in", "ms", "MiB/s", "M entries/s", "speed-up", "laps", "swaps", "index"];
    let mut table = new_table(&header);
    let alone = rows.iter().find(|row| row.keeper == Keeper::Alone).map(seconds);
    for row in rows {
        let taken = seconds(row);
        let keeps = row.keeper != Keeper::Nobody;
        let index = match row.wrong {
            Some(_) => "DIFFERS",
            None if keeps => "identical",
            None => "none",
        };
        let entries = job.totals.postings as f64 / taken / 1e6;
        table.add_row([
            row.name.to_owned(),
            format!("{:.1}", taken * 1e3),
            format!("{:.0}", job.totals.bytes as f64 / f64::from(1 << 20) / taken),
            if keeps { format!("{entries:.1}") } else { "-".to_owned() },
            alone.map_or("-".to_owned(), |alone| format!("{:.2} x", alone / taken)),
            row.laps().to_string(),
            row.form.map_or("-".to_owned(), |form| format!("{} ({form})", row.swaps)),
            index.to_owned(),
        ]);
    }
    table
}

fn seconds(row: &Row) -> f64 {
    row.time().as_secs_f64().max(1e-9)
}

/// Explains the measured times in words.
fn explain(rows: &[Row], job: &Job) -> Result<(), Failure> {
    line(format_args!(
        "\nEach time is the median of the laps, from the first of {} threads to start to the last to end. An entry is a word\n\
         in a text, with its number of occurrences. The speed-up is relative to one thread.\n\
         Times relative to the others (below 1 is faster):",
        job.threads
    ))?;
    let fastest =
        |of: &dyn Fn(Keeper) -> bool| rows.iter().filter(|row| of(row.keeper)).min_by_key(|row| row.time());
    let is_rival = |keeper| matches!(keeper, Keeper::Mutex | Keeper::Dash | Keeper::Scc);
    let is_ours = |keeper| matches!(keeper, Keeper::Ours(_));
    let is_fixed = |keeper| is_ours(keeper) && keeper != Keeper::Ours(Form::Adaptive);
    let (Some(rival), Some(fixed)) = (fastest(&is_rival), fastest(&is_fixed)) else { return Ok(()) };
    for row in rows.iter().filter(|row| is_ours(row.keeper)) {
        let of = |other: &Row| seconds(row) / seconds(other);
        let best = match is_fixed(row.keeper) {
            true => String::new(),
            false => format!(", {:.2} of that of the best fixed form, {}", of(fixed), fixed.name),
        };
        line(format_args!(
            "  {:<22} {:>5.2} of the time of the best rival, {}{best}",
            row.name,
            of(rival),
            rival.name
        ))?;
    }
    Ok(())
}
