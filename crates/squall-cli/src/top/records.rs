//! `squall top PID --records`: the records of a span, summed by kind, object and codes.

use std::time::Duration;

use squall::browse::Client;
use squall::browse::protocol::{RecordsView, SumValueView, SumView};

use super::args::LATE_MS;
use super::print::json;
use super::text;
use crate::output::{Failure, line};

/// Operation of the program that this command needs.
const OPERATION: &str = "records";
const HEADER: [&str; 6] = ["kind", "object", "count", "count/s", "mean", "max"];

/// Lets the program record for a span, and prints the sums.
pub(super) fn run(client: &mut Client, seconds: u64, as_json: bool) -> Result<(), Failure> {
    let hello = client.hello()?;
    if !hello.operations.iter().any(|known| known == OPERATION) {
        let message = format!(
            "{} ({}) has an older version of squall, which does not send records; build it with this version",
            text::clean(&hello.program),
            hello.pid
        );
        return Err(Failure::new(message));
    }
    client.records(seconds * 1000 + LATE_MS)?;
    std::thread::sleep(Duration::from_secs(seconds));
    let records = client.records(LATE_MS)?;
    if records.begins {
        return Err(Failure::new(
            "the program ended the recording, since this process was stopped for too long",
        ));
    }
    if as_json {
        records.sums.iter().try_for_each(json)?;
        let RecordsView { span_us, dropped, missed, .. } = records;
        return json(&serde_json::json!({ "span_us": span_us, "dropped": dropped, "missed": missed }));
    }
    lines(&records).into_iter().try_for_each(line)
}

/// Formats the sums as a table, and the losses below it.
pub(super) fn lines(records: &RecordsView) -> Vec<String> {
    let mut rows = vec![HEADER.map(str::to_owned)];
    rows.extend(records.sums.iter().map(|sum| cells(sum, records.span_us)));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; HEADER.len()] = std::array::from_fn(width);
    let shown = |row: &[String; HEADER.len()]| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines: Vec<String> = rows.iter().map(shown).collect();
    if records.sums.is_empty() {
        lines = vec!["There were no records.".to_owned()];
    }
    lines.push(format!("{} records dropped, {} missed", records.dropped, records.missed));
    lines
}

fn cells(sum: &SumView, span_us: u64) -> [String; HEADER.len()] {
    let codes = sum.values.iter().filter_map(|value| value.code.as_ref().map(|code| (&value.name, code)));
    let kind = codes.fold(sum.kind.clone(), |kind, (name, code)| format!("{kind} {name}={code}"));
    let object = sum.object.as_deref().unwrap_or("-");
    let name = sum.name.as_deref().map_or(String::new(), |name| format!(" \"{}\"", text::escaped(name)));
    let quantities = |of: fn(&SumValueView) -> Option<u64>, divisor: u64| {
        let quantity = |value: &SumValueView| Some(format!("{}={}", value.name, of(value)? / divisor));
        sum.values.iter().filter_map(quantity).collect::<Vec<_>>().join(" ")
    };
    let per_s = sum.count as f64 * 1e6 / span_us.max(1) as f64;
    [
        text::clean(&kind),
        format!("{}{name}", text::clean(object)),
        sum.count.to_string(),
        format!("{per_s:.1}"),
        text::clean(&quantities(|value| value.sum, sum.count.max(1))),
        text::clean(&quantities(|value| value.max, 1)),
    ]
}
