//! The report as a page: one file, with two drawings, that needs nothing from outside.

use std::fmt::Write;

use super::line::{object_text, place};
use super::summary::{self, Row};
use super::{LineReport, Report, terminal};
use crate::lines::Sharing;

/// Lines in the heat map at most.
const ROWS_MAX: usize = 64;
/// Threads in it at most; above that, neighbours share a column.
const COLUMNS_MAX: usize = 128;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#222;background:#fff}\
table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:left;vertical-align:top;border-bottom:1px solid #ddd}\
td.n{text-align:right;font-variant-numeric:tabular-nums}code{font-size:.9em}.false{color:#a00;font-weight:600}\
svg{max-width:100%;height:auto}small{color:#666}details{margin:.4em 0}pre{overflow:auto;font-size:.85em}";

/// The whole report, as HTML.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut text = String::new();
    // A String takes all that is written to it.
    let _ = write(&mut text, report);
    text
}

fn write(text: &mut String, report: &Report) -> std::fmt::Result {
    let title = escape(&report.command.join(" "));
    write!(
        text,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Locality of {title}</title>"
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
        writeln!(
            text,
            "<h2>Who touches which line</h2>\n<p><small>A row for each shared line, dearest first; a column for each thread. Blue: reads; red: writes; darker: more, by powers of ten.</small></p>"
        )?;
        heat_map(text, report)?;
    }
    writeln!(
        text,
        "<h2>With more processors, by the model</h2>\n<p><small>{} the thick line; the thin one is perfect. See the manual for what the model assumes.</small></p>",
        escape(&summary::curve(report))
    )?;
    curve(text, report)?;
    writeln!(text, "<h2>The lines</h2>")?;
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
        let (at, name) = match code.shown() {
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

/// Threads by lines, a cell for each pair.
fn heat_map(text: &mut String, report: &Report) -> std::fmt::Result {
    let count = report.thread_list.iter().map(|thread| thread.number as usize + 1).max().unwrap_or(1);
    let together = count.div_ceil(COLUMNS_MAX).max(1);
    let columns = count.div_ceil(together);
    let rows = report.lines.len().min(ROWS_MAX);
    let (cell, left, top) = (14, 150, 20);
    let (width, height) = (left + columns * cell + 10, top + rows * cell + 10);
    writeln!(
        text,
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\" aria-label=\"threads by lines\" font-family=\"monospace\" font-size=\"10\">"
    )?;
    for column in (0..columns).step_by((columns / 16).max(1)) {
        writeln!(text, "<text x=\"{}\" y=\"14\">{}</text>", left + column * cell, column * together)?;
    }
    for (row, line) in report.lines.iter().take(rows).enumerate() {
        let y = top + row * cell;
        writeln!(text, "<text x=\"0\" y=\"{}\">{}</text>", y + 11, line.address)?;
        let mut sums = vec![(0u64, 0u64); columns];
        for touch in &line.threads {
            if let Some(sum) = sums.get_mut(touch.thread as usize / together) {
                *sum = (sum.0.saturating_add(touch.reads), sum.1.saturating_add(touch.writes));
            }
        }
        for (column, (reads, writes)) in sums.iter().enumerate().filter(|(_, sums)| **sums != (0, 0)) {
            let hue = if *writes > 0 { 5 } else { 215 };
            let light = 88u32.saturating_sub(reads.saturating_add(*writes).ilog10() * 9);
            writeln!(
                text,
                "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"hsl({hue} 70% {light}%)\"><title>thread {}: {reads} reads, {writes} writes</title></rect>",
                left + column * cell,
                cell - 1,
                cell - 1,
                column * together
            )?;
        }
    }
    writeln!(text, "</svg>")
}

/// The speed-up by the model, both axes by powers of two.
fn curve(text: &mut String, report: &Report) -> std::fmt::Result {
    let (width, height, margin) = (480.0, 320.0, 40.0);
    let most = report.curve.iter().map(|point| f64::from(point.processors)).fold(2.0, f64::max).log2();
    let x = |processors: f64| margin + processors.log2() / most * (width - 2.0 * margin);
    let y = |speed_up: f64| {
        let at = speed_up.max(0.25).log2() + 2.0;
        height - margin - at / (most + 2.0) * (height - 2.0 * margin)
    };
    writeln!(
        text,
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\" aria-label=\"speed-up by processors\" font-family=\"sans-serif\" font-size=\"11\">"
    )?;
    for point in &report.curve {
        let processors = f64::from(point.processors);
        writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(processors),
            height - margin + 16.0,
            point.processors
        )?;
        writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            margin - 6.0,
            y(processors) + 4.0,
            point.processors
        )?;
    }
    let path = |f: &dyn Fn(&crate::model::Point) -> f64| {
        let points = report
            .curve
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(f64::from(point.processors)), y(f(point))));
        points.collect::<Vec<_>>().join(" ")
    };
    writeln!(
        text,
        "<polyline fill=\"none\" stroke=\"#bbb\" points=\"{}\"/>",
        path(&|point| f64::from(point.processors))
    )?;
    writeln!(
        text,
        "<polyline fill=\"none\" stroke=\"#c22\" stroke-width=\"2\" points=\"{}\"/>",
        path(&|point| point.speed_up)
    )?;
    writeln!(text, "</svg>")
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
