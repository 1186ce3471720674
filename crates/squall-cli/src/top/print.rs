//! Output without a screen: a table, or one JSON object per line.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use squall::browse::protocol::ObjectView;
use squall::browse::{Client, ClientError};

use super::args::{Key, TopArgs};
use super::watch::{Look, Row, Watch};
use super::{fit, nodes, text};
use crate::output::{Failure, line, printable_json};

/// The columns of the table and of the screen.
pub(super) const COLUMNS: [&str; 12] = [
    "name",
    "id",
    "class",
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
/// The columns with texts of any length.
pub(super) const NAME: usize = 0;
pub(super) const CLASS: usize = 2;
/// Columns from this one to the last but one are numbers, and right-aligned.
const FIRST_NUMBER: usize = 4;
/// The columns that a narrow table leaves out, the least important first.
pub(super) const DROPPED_FIRST: [usize; 9] = [3, 5, 4, 7, 8, 10, 11, 6, 9];
/// The greatest number of objects for which a table says why they keep their form.
const REASONS_MAX: usize = 10;

/// Returns whether a column is right-aligned.
pub(super) fn is_number(column: usize) -> bool {
    column >= FIRST_NUMBER
}

/// Formats one object, column by column.
pub(super) fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let object = &row.object;
    let frozen = match (object.frozen, object.dry_run, &object.family) {
        (true, ..) => "yes",
        (_, _, Some(_)) if object.frozen_all => "with all",
        (_, true, _) => "dry run",
        (_, _, Some(_)) => "no",
        (_, _, None) => "-",
    };
    [
        object.name.as_deref().map_or("-".to_owned(), text::escaped),
        object.id.clone(),
        class(object),
        state(object),
        object.reps.to_string(),
        object.vps.to_string(),
        text::bytes(object.bytes),
        text::rate(row.misses_per_s),
        text::rate(row.calls_per_s),
        text::rate(object.contended_per_s),
        object.swaps.to_string(),
        frozen.to_owned(),
    ]
}

/// Formats the state of an object, with its place if it is called between processes.
fn state(object: &ObjectView) -> String {
    let place = match (&object.imported_as, object.exported_as.is_empty()) {
        (Some(_), _) => ", imported",
        (None, false) => ", exported",
        (None, true) => "",
    };
    format!("{}{place}", object.state)
}

/// Formats the class of an object: family and form if it adapts, else interface and class.
fn class(object: &ObjectView) -> String {
    text::clean(&match (&object.family, &object.form) {
        (Some(family), Some(form)) => format!("{family} ({form})"),
        _ => format!("{} ({})", object.interface, object.class),
    })
}

/// Prints all objects once.
pub(super) fn once(client: &mut Client, watch: &mut Watch, args: &TopArgs) -> Result<(), Failure> {
    let look = look(client, watch, args)?;
    if args.json {
        rows_as_json(&look)?;
    } else {
        let width = terminal_width();
        table(&look, width).into_iter().chain(reasons(&look, width)).try_for_each(line)?;
        if look.all_frozen {
            line("Every policy is frozen.")?;
        }
        nodes::summary(client)?.into_iter().try_for_each(line)?;
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
    let json = serde_json::to_string(payload).map_err(|error| Failure::new(error.to_string()))?;
    line(printable_json(&json))
}

/// Returns the width of the terminal, if stdout is one.
fn terminal_width() -> Option<usize> {
    let size = std::io::stdout().is_terminal().then(ratatui::crossterm::terminal::size)?;
    size.ok().map(|(width, _)| usize::from(width)).filter(|width| *width > 0)
}

fn table(look: &Look, width: Option<usize>) -> Vec<String> {
    let rows: Vec<_> = look.rows.iter().map(cells).collect();
    let shown = fit::columns(&rows, width);
    let header = fit::row(&COLUMNS.map(str::to_owned), &shown, width);
    let mut lines = vec![header.clone(), "─".repeat(fit::width_of(&header))];
    lines.extend(rows.iter().map(|cells| fit::row(cells, &shown, width)));
    lines
}

/// Says of the objects with contended calls why they keep their form.
fn reasons(look: &Look, width: Option<usize>) -> Vec<String> {
    const INDENT: &str = "  ";
    let contended = |row: &&Row| row.object.contended_per_s.is_some_and(|rate| rate > 0.0);
    let mut lines = Vec::new();
    for row in look.rows.iter().filter(contended).take(REASONS_MAX) {
        let object = &row.object;
        let (Some(stays), Some(form)) = (&object.stays, &object.form) else { continue };
        let name = object.name.as_deref().map_or(String::new(), |name| format!(" {}", text::escaped(name)));
        let reason = text::clean(&format!("{}{name} stays {form}: {stays}", object.id));
        match width {
            None => lines.push(reason),
            Some(width) => {
                for (number, part) in
                    fit::wrap(&reason, width.saturating_sub(INDENT.len())).into_iter().enumerate()
                {
                    lines.push(if number == 0 { part } else { format!("{INDENT}{part}") });
                }
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::watch::object;

    fn look() -> Look {
        let mut contended = object("17.3", 96, 7);
        (contended.name, contended.interface) =
            (Some("GET /login requests\u{1b}[2J".into()), "Counter".into());
        (contended.family, contended.form) = (Some("counter".into()), Some("shared".into()));
        contended.contended_per_s = Some(77_000.0);
        contended.stays = Some(
            "one representative per processor would save an estimated 12 %, too little for a change".into(),
        );
        let mut plain = object("18.3", 96, 7);
        (plain.interface, plain.class) = ("Counter".into(), "Central".into());
        let row = |object| Row { object, misses_per_s: None, calls_per_s: None };
        Look { rows: vec![row(contended), row(plain)], total: 2, all_frozen: false }
    }

    #[test]
    fn a_table_begins_with_names_and_fits_the_terminal() {
        for width in [Some(40), Some(80), Some(132), None] {
            let lines: Vec<String> =
                table(&look(), width).into_iter().chain(reasons(&look(), width)).collect();
            assert!(lines[0].starts_with("name "), "{lines:#?}");
            assert!(
                width.is_none_or(|width| lines.iter().all(|line| fit::width_of(line) <= width)),
                "{lines:#?}"
            );
        }
        let lines = table(&look(), Some(80));
        assert!(lines[2].starts_with("GET /login") && lines[2].contains("counter (shared)"), "{lines:#?}");
        assert!(lines[3].starts_with("- ") && lines[3].contains("Counter (Central)"), "{lines:#?}");
        assert!(table(&look(), None)[2].starts_with("GET /login requests\\u{1b}[2J  17.3"), "{lines:#?}");
    }

    #[test]
    fn a_contended_object_says_why_it_stays() {
        let lines = reasons(&look(), None);
        let begin =
            "17.3 GET /login requests\\u{1b}[2J stays shared: one representative per processor would save";
        assert!(lines.len() == 1 && lines[0].starts_with(begin), "{lines:#?}");
        assert!(reasons(&look(), Some(40)).len() > 2);
    }
}
