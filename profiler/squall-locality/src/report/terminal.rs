//! Formats the report as text.

use std::fmt::Display;

use super::line::{object_text, place};
use super::summary::{self, Row};
use super::{CodeReport, LineReport, Report};
use crate::lines::{Phase, Sharing};
use crate::shown::shown;

/// Maximum number of code locations shown per line.
const PLACES_MAX: usize = 6;
/// Maximum number of threads named in a list.
const NAMES_MAX: usize = 12;

/// Formats the whole report for a terminal.
#[must_use]
pub fn table(report: &Report) -> String {
    let mut text = Text(String::new());
    write(&mut text, report);
    text.0
}

/// Lines of text. Names from the program are escaped, so they cannot act on the terminal or add a line.
struct Text(String);

impl Text {
    fn line(&mut self, said: impl Display) {
        self.0.push_str(&shown(&said.to_string()));
        self.0.push('\n');
    }
}

fn write(text: &mut Text, report: &Report) {
    text.line(report.command.join(" "));
    text.line(summary::heading(report));
    for said in [summary::estimate(report), summary::incomplete_text(report)].into_iter().flatten() {
        text.line(said);
    }
    text.line("");
    for Row { name, part, total, per_op } in summary::rows(report) {
        let name = format!("{}{name}", if part { "  " } else { "" });
        match per_op {
            Some(per_op) => text.line(format_args!("{name:46} {total:>15} {per_op:>12.4} per operation")),
            None => text.line(format_args!("{name:46} {total:>15}")),
        }
    }
    for (rank, line) in report.lines.iter().enumerate() {
        text.line("");
        write_line(text, rank + 1, line);
    }
    if report.lines_not_listed > 0 {
        text.line("");
        text.line(format_args!("{} more shared lines are not listed", report.lines_not_listed));
    }
    write_rest(text, report);
    text.line("");
    for note in &report.notes {
        text.line(format_args!("note: {note}"));
    }
}

/// Writes the model's curve and the list of processes.
fn write_rest(text: &mut Text, report: &Report) {
    if let (Some(first), Some(last)) = (report.curve.first(), report.curve.last()) {
        text.line("");
        text.line(summary::curve(report));
        let points: Vec<String> =
            report.curve.iter().map(|point| format!("{}: {:.2}", point.processors, point.speed_up)).collect();
        text.line(format_args!("  {}", points.join("  ")));
        text.line(format_args!(
            "  an operation takes {:.1} ns with {}, {:.1} ns with {} processors",
            first.ns_per_op, first.processors, last.ns_per_op, last.processors
        ));
    }
    if report.processes.len() > 1 {
        text.line("");
        text.line(format_args!("Processes:"));
        for process in &report.processes {
            let became = process.became.as_ref().map(|path| format!(", became {path}")).unwrap_or_default();
            let here = if process.pid == report.pid { " (above)" } else { "" };
            text.line(format_args!(
                "  {}{here}: {} threads, {} accesses, {} write-shared{became}",
                process.pid, process.threads, process.accesses, process.write_shared_accesses
            ));
        }
    }
}

fn write_line(text: &mut Text, rank: usize, line: &LineReport) {
    let sharing = match line.sharing {
        Sharing::True => "true sharing",
        Sharing::False => "FALSE SHARING",
        Sharing::Mixed => "true and false sharing",
    };
    let phase = match line.phase {
        Phase::Steady => "steady",
        Phase::AtOnce => "at once",
        Phase::Occasional => "occasionally",
        Phase::StartUp => "at start-up",
        Phase::HandedOver => "handed over",
    };
    text.line(format_args!(
        "#{rank} {}  {sharing} of {}, {phase}: {} threads, {} reads, {} writes; {:.3} ms by the model",
        line.address,
        line.content,
        line.threads.len(),
        line.reads,
        line.writes,
        line.cost_ms_by_model
    ));
    text.line(format_args!("   {}", object_text(&line.object, &line.address)));
    for word in &line.words {
        let names = |threads: &[u32]| names(threads);
        let written = if word.written_by.is_empty() {
            "not written".to_owned()
        } else if word.written_by == word.touched_by {
            format!("written by {}", names(&word.written_by))
        } else {
            format!("written by {}, touched by {}", names(&word.written_by), names(&word.touched_by))
        };
        text.line(format_args!(
            "   bytes {:>3} to {:<3} {:6} {written}",
            word.offset,
            word.offset + 7,
            word.role
        ));
    }
    let places = merged(&line.code);
    for code in places.iter().take(PLACES_MAX) {
        let Some(frame) = code.source_frame() else {
            text.line(format_args!(
                "   at {} (unknown): {} reads, {} writes",
                code.address, code.reads, code.writes
            ));
            continue;
        };
        let inner = code.frames.first().filter(|first| *first != frame);
        let by = inner.map(|inner| format!(" by {}", short(&inner.function))).unwrap_or_default();
        text.line(format_args!(
            "   at {}{by}: {} reads, {} writes, threads {}",
            format!("{} {}", place(frame), short(&frame.function)).trim(),
            code.reads,
            code.writes,
            names(&code.threads)
        ));
    }
    let more = places.len().saturating_sub(PLACES_MAX) + line.code_not_listed;
    if more > 0 {
        text.line(format_args!("   and {more} more places"));
    }
}

/// Merges instructions of the same source line.
fn merged(code: &[CodeReport]) -> Vec<CodeReport> {
    let mut merged: Vec<CodeReport> = Vec::new();
    for place in code {
        let same = |known: &&mut CodeReport| {
            place.source_frame().is_some() && known.source_frame() == place.source_frame()
        };
        match merged.iter_mut().find(same) {
            Some(known) => {
                known.reads = known.reads.saturating_add(place.reads);
                known.writes = known.writes.saturating_add(place.writes);
                known.threads.extend(&place.threads);
                known.threads.sort_unstable();
                known.threads.dedup();
            }
            None => merged.push(place.clone()),
        }
    }
    merged.sort_by_key(|place| std::cmp::Reverse(place.reads.saturating_add(place.writes)));
    merged
}

/// Formats thread numbers: consecutive numbers become a range, and a long list is cut.
fn names(threads: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut at = 0;
    while at < threads.len() {
        let first = threads[at];
        let mut last = first;
        while at + 1 < threads.len() && last.checked_add(1) == Some(threads[at + 1]) {
            at += 1;
            last = threads[at];
        }
        parts.push(if first == last { first.to_string() } else { format!("{first}-{last}") });
        at += 1;
    }
    if parts.len() > NAMES_MAX {
        let more = parts.len() - NAMES_MAX;
        parts.truncate(NAMES_MAX);
        parts.push(format!("and {more} more"));
    }
    parts.join(" ")
}

/// Cuts a long function name.
fn short(name: &str) -> String {
    const MAX: usize = 90;
    if name.chars().count() <= MAX {
        return name.to_owned();
    }
    let kept: String = name.chars().take(MAX).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn runs_of_threads_are_ranges() {
        assert_eq!(names(&[1, 2, 3, 5, 7, 8]), "1-3 5 7-8");
        assert_eq!(names(&[]), "");
        assert_eq!(names(&[u32::MAX, 0]), "4294967295 0");
        let many: Vec<u32> = (0..40).map(|n| n * 2).collect();
        assert!(names(&many).ends_with("and 28 more"));
    }
}
