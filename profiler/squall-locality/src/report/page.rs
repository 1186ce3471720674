//! Writes the report as one self-contained HTML page with a heat map and a curve.

use std::fmt::Write;

use super::line::{object_text, place};
use super::summary::{self, Row};
use super::{LineReport, Report, terminal};
use crate::lines::Sharing;

/// Maximum number of lines in the heat map.
const ROWS_MAX: usize = 64;
/// Maximum number of columns in the heat map. With more threads, neighbours share a column.
const COLUMNS_MAX: usize = 128;

/// Approximate width of all columns, limits for the width of one, and height of a row, in pixels.
const COLUMNS_WIDTH: usize = 900;
const COLUMN_WIDTHS: (usize, usize) = (6, 14);
const ROW_HEIGHT: usize = 14;

/// Style for light and dark browsers. The heat map has a light background in both, because darker means more.
const STYLE: &str = ":root{color-scheme:light dark;--ink:#222;--paper:#fff;--rule:#ddd;--faint:#666;--bad:#a00;--curve:#c22}\
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#16181b;--rule:#3a3e44;--faint:#9aa0a6;--bad:#ff8a80;--curve:#ff6b5e}}\
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:var(--ink);background:var(--paper)}\
table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}\
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}code{font-size:.9em;overflow-wrap:anywhere}\
p{overflow-wrap:anywhere}.false{color:var(--bad);font-weight:600}svg{max-width:100%;height:auto;display:block}svg text{fill:var(--ink)}\
.ground{fill:#f4f4f4}.perfect,.curve{fill:none}.perfect{stroke:var(--faint)}.curve{stroke:var(--curve);stroke-width:2}\
small{color:var(--faint)}details{margin:.4em 0}pre{overflow:auto;font-size:.85em}";

/// Formats the report as HTML.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = write(&mut text, report);
    text
}

fn write(text: &mut String, report: &Report) -> std::fmt::Result {
    let title = escape(&report.command.join(" "));
    write!(
        text,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Locality of {title}</title>"
    )?;
    writeln!(text, "<style>{STYLE}</style></head><body>\n<h1>Locality of <code>{title}</code></h1>")?;
    writeln!(text, "<p>{}</p>", escape(&summary::heading(report)))?;
    for said in [summary::estimate(report), summary::incomplete_text(report)].into_iter().flatten() {
        writeln!(text, "<p class=\"false\">{}</p>", escape(&said))?;
    }
    writeln!(text, "<table>")?;
    for Row { name, part, total, per_op } in summary::rows(report) {
        let per_op = per_op.map(|n| format!("{n:.4} per operation")).unwrap_or_default();
        let indent = if part { " style=\"padding-left:2em\"" } else { "" };
        writeln!(
            text,
            "<tr><td{indent}>{name}</td><td class=\"n\">{total}</td><td class=\"n\">{per_op}</td></tr>"
        )?;
    }
    writeln!(text, "</table>")?;
    if !report.lines.is_empty() {
        let columns = match threads_together(report) {
            1 => "each thread".to_owned(),
            threads => format!("each {threads} threads"),
        };
        writeln!(
            text,
            "<h2>Threads by lines</h2>\n<p><small>One row per shared line, most expensive first; one column for {columns}. Blue: reads only; red: also writes; darker: more accesses, by powers of ten.</small></p>"
        )?;
        heat_map(text, report)?;
    }
    if !report.curve.is_empty() {
        writeln!(
            text,
            "<h2>With more processors, by the model</h2>\n<p><small>{} thick line. Thin line: perfect scaling. The manual lists the assumptions of the model.</small></p>",
            escape(&summary::curve(report))
        )?;
        curve(text, report)?;
    }
    if !report.lines.is_empty() {
        writeln!(text, "<h2>The lines</h2>")?;
    }
    for (rank, line) in report.lines.iter().enumerate() {
        write_line(text, rank + 1, line)?;
    }
    writeln!(text, "<h2>Notes</h2><ul>")?;
    for note in &report.notes {
        writeln!(text, "<li>{}</li>", escape(note))?;
    }
    writeln!(
        text,
        "</ul><details><summary>As text</summary><pre>{}</pre></details></body></html>",
        escape(&terminal::table(report))
    )
}

fn write_line(text: &mut String, rank: usize, line: &LineReport) -> std::fmt::Result {
    let (class, sharing) = match line.sharing {
        Sharing::True => ("", "true sharing"),
        Sharing::False => (" class=\"false\"", "false sharing"),
        Sharing::Mixed => (" class=\"false\"", "true and false sharing"),
    };
    writeln!(
        text,
        "<h3>{rank}. <code>{}</code> <span{class}>{sharing}</span> of {}</h3><p>{}<br>{} reads, {} writes, {} threads; by the model {:.3} ms</p><table>",
        line.address,
        escape(&line.content),
        escape(&object_text(&line.object, &line.address)),
        line.reads,
        line.writes,
        line.threads.len(),
        line.cost_ms_by_model
    )?;
    for code in &line.code {
        let (at, name) = match code.source_frame() {
            Some(frame) => (place(frame), frame.function.clone()),
            None => (code.address.clone(), String::new()),
        };
        writeln!(
            text,
            "<tr><td><code>{}</code></td><td><code>{}</code></td><td class=\"n\">{} reads</td><td class=\"n\">{} writes</td></tr>",
            escape(&at),
            escape(&name),
            code.reads,
            code.writes
        )?;
    }
    writeln!(text, "</table>")
}

/// One more than the highest thread number.
fn numbers(report: &Report) -> usize {
    report.thread_list.iter().map(|thread| thread.number as usize + 1).max().unwrap_or(1)
}

/// Number of threads per column of the heat map.
fn threads_together(report: &Report) -> usize {
    numbers(report).div_ceil(COLUMNS_MAX).max(1)
}

/// Draws the heat map of threads by lines.
fn heat_map(text: &mut String, report: &Report) -> std::fmt::Result {
    let (count, together) = (numbers(report), threads_together(report));
    let columns = count.div_ceil(together);
    let rows = report.lines.len().min(ROWS_MAX);
    let cell = (COLUMNS_WIDTH / columns).clamp(COLUMN_WIDTHS.0, COLUMN_WIDTHS.1);
    let (left, top) = (120, 20);
    // A digit is 6 pixels wide; 12 pixels separate labels.
    let label = 6 * count.to_string().len() + 12;
    let (width, height) = (left + columns * cell + label, top + rows * ROW_HEIGHT + 10);
    writeln!(
        text,
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\" aria-label=\"threads by lines\" font-family=\"monospace\" font-size=\"10\">"
    )?;
    writeln!(
        text,
        "<rect class=\"ground\" x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{}\"/>",
        columns * cell,
        rows * ROW_HEIGHT
    )?;
    for column in (0..columns).step_by(label.div_ceil(cell)) {
        writeln!(text, "<text x=\"{}\" y=\"14\">{}</text>", left + column * cell, column * together)?;
    }
    for (row, line) in report.lines.iter().take(rows).enumerate() {
        let y = top + row * ROW_HEIGHT;
        writeln!(text, "<text x=\"0\" y=\"{}\">{}</text>", y + 11, line.address)?;
        for (column, (reads, writes)) in sums(line, columns, together) {
            let hue = if writes > 0 { 5 } else { 215 };
            let light = 88u32.saturating_sub(reads.saturating_add(writes).ilog10() * 9).max(16);
            let last = ((column + 1) * together).min(count) - 1;
            let of = match column * together {
                first if first == last => format!("thread {first}"),
                first => format!("threads {first} to {last}"),
            };
            writeln!(
                text,
                "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"hsl({hue} 70% {light}%)\"><title>{of}: {reads} reads, {writes} writes</title></rect>",
                left + column * cell,
                cell - 1,
                ROW_HEIGHT - 1,
            )?;
        }
    }
    writeln!(text, "</svg>")?;
    if report.lines.len() > rows {
        writeln!(text, "<p><small>The first {rows} of {} lines.</small></p>", report.lines.len())?;
    }
    Ok(())
}

/// Reads and writes of a line in each touched column.
fn sums(
    line: &LineReport,
    columns: usize,
    together: usize,
) -> impl Iterator<Item = (usize, (u64, u64))> + use<> {
    let mut sums = vec![(0u64, 0u64); columns];
    for touch in &line.threads {
        if let Some(sum) = sums.get_mut(touch.thread as usize / together) {
            *sum = (sum.0.saturating_add(touch.reads), sum.1.saturating_add(touch.writes));
        }
    }
    sums.into_iter().enumerate().filter(|(_, sums)| *sums != (0, 0))
}

/// Draws the modelled speed-up with logarithmic axes.
fn curve(text: &mut String, report: &Report) -> std::fmt::Result {
    let (width, height, margin) = (520.0, 360.0, 46.0);
    let of = |f: fn(&crate::model::Point) -> f64| report.curve.iter().map(f);
    let most = of(|point| f64::from(point.processors)).fold(2.0, f64::max).log2();
    let speed_ups = || of(|point| point.speed_up).filter(|speed_up| *speed_up > 0.0).map(f64::log2);
    // The axis starts at a quarter or lower, limited by the room for labels.
    let low = speed_ups().fold(-2.0, f64::min).floor().max(-16.0);
    let high = speed_ups().fold(most, f64::max);
    let x = |processors: f64| margin + processors.log2() / most * (width - 2.0 * margin);
    let y = |speed_up: f64| {
        let at = speed_up.log2().max(low) - low;
        height - margin - at / (high - low) * (height - 2.0 * margin)
    };
    writeln!(
        text,
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\" aria-label=\"speed-up by processors\" font-family=\"sans-serif\" font-size=\"11\">"
    )?;
    writeln!(text, "<text x=\"0\" y=\"14\">speed-up</text>")?;
    writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">processors</text>",
        width / 2.0,
        height - 6.0
    )?;
    let mut free = 0.0;
    for processors in of(|point| f64::from(point.processors)).filter(|at| x(*at).is_finite()) {
        // Skips labels that would overlap the previous one.
        if x(processors) >= free {
            let (at, y) = (x(processors), height - margin + 16.0);
            writeln!(text, "<text x=\"{at:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{processors}</text>")?;
            free = x(processors) + 30.0;
        }
    }
    let (lowest, highest) = (low as i32, high as i32);
    let every = usize::try_from((highest - lowest) / 16 + 1).unwrap_or(1);
    for power in (lowest..=highest).step_by(every) {
        let label = if power < 0 { format!("1/{}", 1u64 << -power) } else { (1u64 << power).to_string() };
        let (at, y) = (margin - 6.0, y(f64::from(power).exp2()) + 4.0);
        writeln!(text, "<text x=\"{at:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>")?;
    }
    let path = |f: fn(&crate::model::Point) -> f64| {
        let points = report
            .curve
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(f64::from(point.processors)), y(f(point))));
        points.collect::<Vec<_>>().join(" ")
    };
    let (perfect, found) = (path(|point| f64::from(point.processors)), path(|point| point.speed_up));
    writeln!(text, "<polyline class=\"perfect\" points=\"{perfect}\"/>")?;
    writeln!(text, "<polyline class=\"curve\" points=\"{found}\"/>\n</svg>")
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            letter => safe.push(letter),
        }
    }
    safe
}
