//! Texts that the table and the page share.

use squall_locality_plugin::format::window;

use super::{Report, Request};
use crate::lines::Lines;
use crate::read::{Event, Log, Losses};
use crate::run::Outcome;
use crate::shown::shown;

/// A figure of the run.
pub(super) struct Row {
    /// Name of the figure.
    pub(super) name: &'static str,
    /// Whether it is a part of the previous figure.
    pub(super) part: bool,
    /// Total.
    pub(super) total: u64,
    /// Value per operation.
    pub(super) per_op: Option<f64>,
}

/// Heading: threads, operations, window, emulator.
pub(super) fn heading(report: &Report) -> String {
    let ops = match report.ops_per_thread {
        Some(ops) => format!(", {ops} operations each"),
        None => String::new(),
    };
    let window = match report.window.as_str() {
        "all" => "all accesses".to_owned(),
        "marks" => "accesses between marks".to_owned(),
        "signals" => "accesses between signals".to_owned(),
        other => format!("accesses in {other}"),
    };
    let (threads, seen) = (report.threads, report.thread_list.len());
    format!("{threads} of {seen} threads{ops}; {window}; {}", report.emulator)
}

/// Warns that lines were sampled and sums are estimates.
pub(super) fn estimate(report: &Report) -> Option<String> {
    (report.one_line_in > 1).then(|| {
        format!(
            "ESTIMATES: one line in {0} was kept, and sums over lines are multiplied by {0}; figures of a single line are exact",
            report.one_line_in
        )
    })
}

/// Warns that the counts are incomplete, with the reasons.
pub(super) fn incomplete_text(report: &Report) -> Option<String> {
    let why = &report.incomplete;
    (!why.is_empty()).then(|| format!("INCOMPLETE: not everything was counted: {}", why.join("; ")))
}

/// Figures of the run.
pub(super) fn rows(report: &Report) -> Vec<Row> {
    let row = |name, part, total, per_op| Row { name, part, total, per_op };
    let shared = if report.steady {
        ("steadily write-shared accesses", "steadily write-shared")
    } else {
        ("accesses to write-shared lines", "write-shared")
    };
    let mut rows = vec![
        row("accesses", false, report.accesses, report.accesses_per_op),
        row(shared.0, false, report.write_shared_accesses, report.write_shared_accesses_per_op),
        row("of these, false sharing", true, report.falsely_shared_accesses, None),
        row(
            "transfers at most, over all interleavings",
            false,
            report.transfers_at_most,
            report.transfers_per_op_at_most,
        ),
        row("lines touched", false, report.lines_touched, None),
        row("read by several threads, never written", true, report.lines_read_only, None),
        row(shared.1, true, report.write_shared_lines, None),
    ];
    if !report.steady {
        rows.push(row("shared at once, by the clock", true, report.phases.at_once, None));
    }
    rows.extend([
        row("shared occasionally", true, report.phases.occasional, None),
        row("shared at start-up", true, report.phases.start_up, None),
        row("handed over from thread to thread", true, report.phases.handed_over, None),
    ]);
    rows
}

/// Caption of the curve.
pub(super) fn curve(report: &Report) -> String {
    format!(
        "Modelled on {} (not measured), throughput of all threads over that of one thread:",
        report.model.name
    )
}

/// Reasons why the counts of all processes are incomplete.
pub(super) fn incomplete(processes: &[(Lines, &Log)], lost: Losses, request: &Request) -> Vec<String> {
    let mut why = losses(lost);
    match &request.outcome {
        Outcome::TimedOut => why.push("the program did not end in time and was killed".to_owned()),
        Outcome::Signal(number) => why.push(format!("the program died of signal {number}")),
        Outcome::Interrupted(number) => why.push(format!("the run was ended by signal {number}")),
        Outcome::Exited(_) | Outcome::Stopped(_) => {}
    }
    for (lines, log) in processes {
        let pid = log.pid;
        if lines.sample > 0 {
            why.push(format!(
                "process {pid} touched too many lines for --memory, and one in {} was kept",
                lines.one_in()
            ));
        }
        if lines.lost > 0 {
            why.push(format!("{} accesses of process {pid} found no room", lines.lost));
        }
        let became = log.events.iter().rev().find_map(|event| match event {
            Event::Exec { path } => Some(path),
            _ => None,
        });
        let ended = log.events.iter().any(|event| matches!(event, Event::Exit { .. }));
        if let Some(path) = became {
            let path = shown(path);
            why.push(format!("process {pid} became {path}, which ran outside the emulator"));
        } else if pid != request.pid && !ended {
            why.push(format!("child process {pid} did not exit before the program"));
        }
    }
    why
}

/// Describes the lost accesses and records, one phrase for each kind of loss. Lost records of mappings and
/// blocks affect only the description of lines. If the record of a child's exit is lost, it is unknown how
/// the child ended.
pub(super) fn losses(losses: Losses) -> Vec<String> {
    let of = |count: u64, what: &str| (count > 0).then(|| format!("{count} {what}"));
    let all = [
        of(losses.accesses, "accesses of threads without a table: no room (--memory), or too many threads"),
        of(losses.threads, "threads or windows without a table: no room (--memory), or no file"),
        of(losses.processes, "processes that could not create a file"),
        of(losses.records, "records of mappings, blocks and exits: no room (--memory)"),
    ];
    all.into_iter().flatten().collect()
}

/// Remarks for the reader.
pub(super) fn notes(lines: &Lines, log: &Log, inherited: &[Log], request: &Request) -> Vec<String> {
    let mut notes = vec![
        "Restartable sequences (rseq) do not exist under emulation: programs that use them ran their fallback."
            .to_owned(),
    ];
    match &request.outcome {
        Outcome::TimedOut => notes.push(
            "The program did not end in time and was killed; its accesses until then are counted.".into(),
        ),
        Outcome::Signal(number) => {
            notes.push(format!("The program died of signal {number}; its accesses until then are counted."))
        }
        Outcome::Interrupted(number) => notes.push(format!(
            "The run was ended by signal {number}; the program's accesses until then are counted."
        )),
        Outcome::Stopped(number) => {
            notes.push(format!("The program was stopped by signal {number}, and ended."))
        }
        Outcome::Exited(_) => {}
    }
    if request.switched {
        notes.push(
            "Accesses before and between the windows were not counted: a signal began each window.".into(),
        );
        if lines.threads.iter().all(|thread| thread.accesses == 0) {
            notes.push(
                "No access was counted: no signal began a window, or the program made no system call in it."
                    .into(),
            );
        }
    }
    if request.rules.ops.is_none() {
        notes.push(
            "Without --ops, start-up counts as well, and no sharing is called steady. The time of sharing comes from a coarse clock and may differ between runs."
                .into(),
        );
    }
    for event in &log.events {
        if let Event::Exec { path } = event {
            let path = shown(path);
            notes.push(format!(
                "The process became {path}, which ran outside the emulator and was not counted."
            ));
        }
    }
    let has = |wanted: &Event| inherited.iter().chain([log]).any(|log| log.events.contains(wanted));
    if has(&Event::BlocksCut) {
        notes.push("Later heap blocks are unknown, because too many were allocated.".into());
    }
    if !has(&Event::Preloaded) {
        notes.push("Heap blocks are unknown: the program allocated none, or the library could not be preloaded (static program, or --no-preload).".into());
    }
    if lines.sample > 0 {
        notes.push(format!(
            "The lines exceeded --memory: one line in {} was kept, with all its accesses; sums are scaled up.",
            lines.one_in()
        ));
    }
    if lines.lost > 0 {
        notes.push(format!("{} accesses found no room and are not counted.", lines.lost));
    }
    let works = lines.threads.iter().any(|thread| thread.works);
    if lines.threads.iter().all(|thread| thread.head.window == window::WHOLE) && request.function.is_some() {
        notes.push("The window's function was never called.".into());
    } else if request.rules.ops.is_some() && !works {
        notes.push("No thread made as many accesses as --ops says.".into());
    }
    notes
}
