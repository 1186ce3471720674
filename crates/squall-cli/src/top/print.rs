//! Output without a screen: a table, or one JSON object per line.

use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use squall::browse::{Client, ClientError};

use super::args::{Key, TopArgs};
use super::text;
use super::watch::{Look, Row, Watch};
use crate::output::{Failure, line};

/// The columns of the table and of the screen.
pub(super) const COLUMNS: [&str; 13] = [
    "id",
    "interface",
    "class",
    "form",
    "state",
    "reps",
    "VPs",
    "bytes",
    "misses/s",
    "calls/s",
    "contended/s",
    "swaps",
    "frozen",
];
/// Columns before this one are text and left-aligned.
pub(super) const FIRST_NUMBER: usize = 5;

/// Formats one object, column by column.
pub(super) fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let object = &row.object;
    // The first poll has no rate yet; it shows the number of misses in parentheses.
    let misses =
        row.misses_per_s.map_or_else(|| format!("({})", text::count(object.misses as f64)), text::count);
    let frozen = match (object.frozen, object.dry_run, &object.family) {
        (true, ..) => "yes",
        (_, true, _) => "dry run",
        (_, _, Some(_)) => "no",
        (_, _, None) => "-",
    };
    [
        object.id.clone(),
        text::clean(&object.interface),
        text::clean(&object.class),
        object.form.as_deref().map_or("-".to_owned(), text::clean),
        object.state.clone(),
        object.reps.to_string(),
        object.vps.to_string(),
        text::bytes(object.bytes),
        misses,
        text::rate(row.calls_per_s),
        text::rate(object.contended_per_s),
        object.swaps.to_string(),
        frozen.to_owned(),
    ]
}

/// Prints all objects once.
pub(super) fn once(client: &mut Client, watch: &mut Watch, args: &TopArgs) -> Result<(), Failure> {
    let look = look(client, watch, args)?;
    if args.json {
        rows_as_json(&look)?;
    } else {
        line(table(&look))?;
        if look.all_frozen {
            line("Every policy is frozen.")?;
        }
    }
    let left_out = look.total - look.rows.len().min(look.total);
    if left_out > 0 {
        eprintln!("squall: {left_out} more objects are not shown; see --limit, --interface and --sort");
    }
    Ok(())
}

/// Prints all objects at every interval, until the program ends or the reader of stdout is gone.
pub(super) fn stream(client: &mut Client, watch: &mut Watch, args: &TopArgs) -> Result<(), Failure> {
    let interval = Duration::from_millis(args.interval);
    let mut was_there = false;
    loop {
        let began = Instant::now();
        match look(client, watch, args) {
            Ok(look) => rows_as_json(&look)?,
            // The program ended while it was watched. That is a success.
            Err(ClientError::Gone) if was_there => {
                eprintln!("squall: {} has ended or has stopped its inspection server", args.target);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        was_there = true;
        std::thread::sleep(interval.saturating_sub(began.elapsed()));
    }
}

fn look(client: &mut Client, watch: &mut Watch, args: &TopArgs) -> Result<Look, ClientError> {
    let mut look = watch.look(client, args.sort)?;
    if let Some(span_ms) = args.sample {
        watch.count(client, &mut look.rows, span_ms, usize::MAX)?;
        if args.sort == Key::Calls {
            super::watch::order(&mut look.rows, Key::Calls);
        }
    }
    Ok(look)
}

fn rows_as_json(look: &Look) -> Result<(), Failure> {
    look.rows.iter().try_for_each(json)
}

/// Prints one JSON object on a line.
pub(super) fn json(payload: &impl serde::Serialize) -> Result<(), Failure> {
    line(serde_json::to_string(payload).map_err(|error| Failure::new(error.to_string()))?)
}

fn table(look: &Look) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(COLUMNS);
    table.add_rows(look.rows.iter().map(cells));
    for column in table.column_iter_mut().skip(FIRST_NUMBER) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
