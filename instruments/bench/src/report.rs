//! Printed output: rows for programs, tables for people.
//!
//! The rows are a contract (`docs/benchmarks.md`): extend them, but do not change them.

use std::fmt::Write;

use serde::Serialize;

use crate::case::Role;
use crate::harness::{SubjectResult, Table, median, paired_ratio, spread};

/// One object of `--json`.
#[derive(Clone, Debug, Serialize, PartialEq)]
#[serde(untagged)]
pub enum Row {
    /// A time per operation.
    Time {
        /// The case.
        case: &'static str,
        /// The variant, if the case has any.
        #[serde(skip_serializing_if = "str::is_empty")]
        variant: &'static str,
        /// The subject.
        subject: &'static str,
        /// Measured threads.
        threads: usize,
        /// Median.
        ns_per_op: f64,
        /// Interquartile range divided by the median.
        spread: f64,
    },
    /// A time of ours divided by a rival's; below 1, Squall is faster.
    Ratio {
        /// The case.
        case: &'static str,
        /// The variant, if the case has any.
        #[serde(skip_serializing_if = "str::is_empty")]
        variant: &'static str,
        /// `ours/rival` or `ours/best`.
        ratio: String,
        /// Measured threads.
        threads: usize,
        /// Median over rounds of the ratio within a round.
        value: f64,
        /// Name of the best rival.
        #[serde(skip_serializing_if = "str::is_empty")]
        best: &'static str,
    },
    /// A figure other than a time per operation.
    Metric {
        /// The case.
        case: &'static str,
        /// The variant, if the case has any.
        #[serde(skip_serializing_if = "str::is_empty")]
        variant: &'static str,
        /// Name of the metric.
        metric: String,
        /// Measured threads.
        threads: usize,
        /// Median over rounds.
        value: f64,
    },
}

/// The rows of a table: times, then ratios, then metrics.
pub fn rows(table: &Table) -> Vec<Row> {
    let (case, variant, threads) = (table.case.name, table.variant.name, table.threads);
    let mut rows: Vec<Row> = table
        .subjects
        .iter()
        .map(|s| Row::Time {
            case,
            variant,
            subject: s.name,
            threads,
            ns_per_op: round(median(&s.ns)),
            spread: round(spread(&s.ns)),
        })
        .collect();
    let best = best(table);
    for ours in table.subjects.iter().filter(|s| s.role == Role::Ours) {
        for rival in rivals(table) {
            let ratio = format!("{}/{}", ours.name, rival.name);
            let value = round(paired_ratio(&ours.ns, &rival.ns));
            rows.push(Row::Ratio { case, variant, ratio, threads, value, best: "" });
        }
        if let Some(best) = best {
            let ratio = format!("{}/best", ours.name);
            let value = round(paired_ratio(&ours.ns, &best.ns));
            rows.push(Row::Ratio { case, variant, ratio, threads, value, best: best.name });
        }
    }
    for (ratio, value, best) in &table.ratios {
        let (ratio, value) = (ratio.clone(), round(*value));
        rows.push(Row::Ratio { case, variant, ratio, threads, value, best });
    }
    for subject in &table.subjects {
        for (name, values) in &subject.metrics {
            let metric = format!("{}_{name}", subject.name);
            rows.push(Row::Metric { case, variant, metric, threads, value: round(median(values)) });
        }
    }
    for (name, value) in &table.metrics {
        rows.push(Row::Metric { case, variant, metric: name.clone(), threads, value: round(*value) });
    }
    rows
}

fn rivals(table: &Table) -> impl Iterator<Item = &SubjectResult> {
    table.subjects.iter().filter(|s| s.role == Role::Rival)
}

/// The rival with the lowest median.
pub(crate) fn best(table: &Table) -> Option<&SubjectResult> {
    rivals(table).min_by(|a, b| median(&a.ns).total_cmp(&median(&b.ns)))
}

/// Rounds to four digits after the point. A smaller value keeps four significant digits, so that it does not
/// print as zero.
fn round(value: f64) -> f64 {
    let rounded = (value * 1e4).round() / 1e4;
    if rounded.abs() < 1e-3 && value.is_finite() {
        return format!("{value:.3e}").parse().unwrap_or(rounded);
    }
    rounded
}

/// Stands between the name of a histogram and the upper bound of a bin, in the name of a metric.
pub(crate) const HISTOGRAM: &str = "_hist_us_lt_";

/// Stands between the row and the column of a cell, in the name of a metric. Such metrics are one table.
pub(crate) const CELL: char = '/';

/// Text for people.
#[derive(Debug)]
pub struct Text;

impl Text {
    /// Prints the head of a case.
    pub fn case(table: &Table) -> String {
        let mut text = format!("{}: {}", table.case.name, table.case.about);
        if !table.variant.name.is_empty() {
            let _ = write!(text, "\nvariant {}: {}", table.variant.name, table.variant.about);
        }
        text
    }

    /// Prints one table: subjects by their medians, fastest first, then the metrics.
    pub fn table(table: &Table) -> String {
        let mut text = String::new();
        let (noun, plural) = (table.variant.threads_are, if table.threads == 1 { "" } else { "s" });
        let place = if table.subjects.is_empty() || table.pinned { "" } else { ", not pinned" };
        let _ = writeln!(text, "  {} {noun}{plural}{place}", table.threads);
        let ours: Vec<&SubjectResult> = table.subjects.iter().filter(|s| s.role == Role::Ours).collect();
        let mut subjects: Vec<&SubjectResult> = table.subjects.iter().collect();
        subjects.sort_by(|a, b| median(&a.ns).total_cmp(&median(&b.ns)));
        if !subjects.is_empty() {
            let against = if rivals(table).next().is_some() { ours.as_slice() } else { &[] };
            let heads: Vec<String> = against.iter().map(|o| format!("{} / it", o.name)).collect();
            let _ = write!(text, "    {:<18} {:>12} {:>8}", "subject", "ns per op", "spread");
            for head in &heads {
                let _ = write!(text, " {head:>22}");
            }
            text.push('\n');
        }
        for subject in subjects {
            let (ns, part) = (median(&subject.ns), 100.0 * spread(&subject.ns));
            let _ = write!(text, "    {:<18} {:>12} {part:>7.0}%", subject.name, digits(ns));
            if subject.role == Role::Rival {
                for ours in &ours {
                    let _ = write!(text, " {:>22.3}", paired_ratio(&ours.ns, &subject.ns));
                }
            }
            text.push('\n');
        }
        for (ratio, value, best) in &table.ratios {
            let space = if best.is_empty() { "" } else { "  " };
            let _ = writeln!(text, "    {ratio:<40} {value:>14.3}{space}{best}");
        }
        let (mut histogram, mut histograms) = (String::new(), String::new());
        let mut grid = Grid::default();
        for row in rows(table) {
            let Row::Metric { metric, value, .. } = row else { continue };
            if let Some((row, column)) = metric.rsplit_once(CELL) {
                grid.add(row, column, digits(value));
                continue;
            }
            match metric.split_once(HISTOGRAM) {
                // A histogram takes one line.
                Some((name, below)) => {
                    if histogram != name {
                        let separator = if histogram.is_empty() { "" } else { "\n" };
                        let _ = write!(histograms, "{separator}    {:<11}", format!("{name}, us:"));
                        histogram = name.to_owned();
                    }
                    let _ = write!(histograms, " <{below}: {}", digits(value));
                }
                None => {
                    let _ = writeln!(text, "    {metric:<40} {:>14}", digits(value));
                }
            }
        }
        text + &grid.text() + &histograms
    }

    /// Warns about foreign load, if any was seen.
    pub fn warning(table: &Table) -> Option<String> {
        if table.disturbed == 0 {
            return None;
        }
        let what = if table.kept_disturbed {
            "too few were clean, so the figures include them"
        } else {
            "they are not in the figures"
        };
        let variant =
            if table.variant.name.is_empty() { String::new() } else { format!(" {}", table.variant.name) };
        Some(format!(
            "warning: {}{variant}, {} threads: other load ran on this machine in {} of {} rounds; {what}",
            table.case.name, table.threads, table.disturbed, table.rounds
        ))
    }
}

/// Metrics that are the cells of one table.
#[derive(Default)]
struct Grid {
    columns: Vec<String>,
    rows: Vec<(String, Vec<(usize, String)>)>,
}

impl Grid {
    fn add(&mut self, row: &str, column: &str, value: String) {
        let known = self.columns.iter().position(|known| known == column);
        let at = known.unwrap_or_else(|| {
            self.columns.push(column.to_owned());
            self.columns.len() - 1
        });
        match self.rows.last_mut().filter(|(known, _)| known == row) {
            Some((_, cells)) => cells.push((at, value)),
            None => self.rows.push((row.to_owned(), vec![(at, value)])),
        }
    }

    /// One line for each row, below the names of the columns.
    fn text(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let widths: Vec<usize> = self.columns.iter().map(|column| column.len().max(10) + 2).collect();
        let first = self.rows.iter().map(|(row, _)| row.len()).max().unwrap_or(0);
        let mut text = format!("    {:first$}", "");
        for (column, width) in self.columns.iter().zip(&widths) {
            let _ = write!(text, "{column:>width$}");
        }
        text.push('\n');
        for (row, cells) in &self.rows {
            let _ = write!(text, "    {row:<first$}");
            for (at, width) in widths.iter().enumerate() {
                let cell = cells.iter().find(|(cell, _)| *cell == at).map_or("", |(_, value)| value);
                let _ = write!(text, "{cell:>width$}");
            }
            text.push('\n');
        }
        text
    }
}

/// Formats a number with a useful number of digits.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 || v.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(name: &'static str, role: Role, ns: &[f64]) -> SubjectResult {
        SubjectResult {
            name,
            role,
            ns: ns.to_vec(),
            metrics: vec![("peak_items".to_owned(), vec![3.0, 5.0, 4.0])],
        }
    }

    fn table() -> Table {
        let case = crate::find("rcu-wait").expect("the case is there");
        Table {
            case,
            variant: &case.variants[0],
            threads: 2,
            pinned: true,
            subjects: vec![
                subject("squall", Role::Ours, &[1.0, 2.0, 1.0]),
                subject("slow", Role::Rival, &[10.0, 20.0, 10.0]),
                subject("fast", Role::Rival, &[2.0, 4.0, 2.0]),
            ],
            ratios: vec![("squall/everybody".to_owned(), 0.7, "")],
            metrics: vec![("idle_wakeups".to_owned(), 0.0)],
            rounds: 3,
            disturbed: 0,
            kept_disturbed: false,
        }
    }

    #[test]
    fn small_values_do_not_round_to_zero() {
        let rounded = [0.0, 1.0 / 3.0, 12.345_678, 0.001_234_56, 0.000_012_345_6, -0.000_02].map(round);
        assert_eq!(rounded, [0.0, 0.3333, 12.3457, 0.0012, 0.000_012_35, -0.000_02]);
    }

    #[test]
    fn rows_have_the_shapes_of_the_contract() {
        let lines: Vec<String> =
            rows(&table()).iter().map(|row| serde_json::to_string(row).expect("plain data")).collect();
        assert_eq!(
            lines[0],
            r#"{"case":"rcu-wait","variant":"busy-reader","subject":"squall","threads":2,"ns_per_op":1.0,"spread":0.5}"#
        );
        assert_eq!(
            lines[3],
            r#"{"case":"rcu-wait","variant":"busy-reader","ratio":"squall/slow","threads":2,"value":0.1}"#
        );
        assert_eq!(
            lines[5],
            r#"{"case":"rcu-wait","variant":"busy-reader","ratio":"squall/best","threads":2,"value":0.5,"best":"fast"}"#
        );
        assert_eq!(
            lines[6],
            r#"{"case":"rcu-wait","variant":"busy-reader","ratio":"squall/everybody","threads":2,"value":0.7}"#
        );
        assert_eq!(
            lines[7],
            r#"{"case":"rcu-wait","variant":"busy-reader","metric":"squall_peak_items","threads":2,"value":4.0}"#
        );
        assert_eq!(
            lines[10],
            r#"{"case":"rcu-wait","variant":"busy-reader","metric":"idle_wakeups","threads":2,"value":0.0}"#
        );
        assert_eq!(lines.len(), 11);
    }

    #[test]
    fn cells_of_a_table_take_a_line_per_row() {
        let cells = [("push/2/messages", 12.0), ("push/2/gets", 3.5), ("pull/16/gets", 1.0)];
        let metrics = cells.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let text = Text::table(&Table { subjects: Vec::new(), ratios: Vec::new(), metrics, ..table() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "  2 threads",
                "               messages        gets",
                "    push/2           12        3.50",
                "    pull/16                       1",
            ]
        );
    }

    #[test]
    fn a_case_without_variants_prints_no_variant() {
        let case = crate::find("rcu-read").expect("the case is there");
        let plain = Table { case, variant: &case.variants[0], ..table() };
        let line = serde_json::to_string(&rows(&plain)[0]).expect("plain data");
        assert_eq!(
            line,
            r#"{"case":"rcu-read","subject":"squall","threads":2,"ns_per_op":1.0,"spread":0.5}"#
        );
    }

    #[test]
    fn best_is_the_rival_with_the_lowest_median() {
        assert_eq!(best(&table()).map(|s| s.name), Some("fast"));
    }
}
