//! The report: what a run showed, as one object, from which the table and the page are made.

mod line;
mod page;
mod summary;
mod terminal;

use serde::Serialize;

use crate::lines::{Line, Lines, Phase, Rules, Sharing, Thread};
use crate::model::{Model, Point};
use crate::objects::{Object, Objects};
use crate::read::{self, Event, Log, Losses, Source};
use crate::run::Outcome;
use crate::symbols::{Frame, Symbols};

pub use page::page;
pub use terminal::table;

/// The form of the object that a report is in JSON: another number where a key goes or means something else; keys may come without one.
pub const FORMAT: u32 = 1;

/// What a run showed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What the emulator says of itself.
    pub emulator: String,
    /// How the program ended.
    pub outcome: Outcome,
    /// Seconds that the run took, emulated.
    pub seconds: f64,
    /// Which accesses count: `all`, `marks`, or `function NAME`.
    pub window: String,
    /// The process that is reported: the one that was started, unless it did nothing.
    pub pid: u32,
    /// All processes that left something.
    pub processes: Vec<ProcessReport>,
    /// Threads whose operations count.
    pub threads: usize,
    /// All threads that were seen.
    pub thread_list: Vec<ThreadReport>,
    /// Operations of each thread, if they were given.
    pub ops_per_thread: Option<u64>,
    /// Accesses of the threads whose operations count.
    pub accesses: u64,
    /// The same for one operation.
    pub accesses_per_op: Option<f64>,
    /// Accesses that are counted twice, as one of each of the two lines that they touch: without these, `accesses` is how often something was
    /// loaded or stored. With a sample (`one_line_in`), of the lines that were kept.
    pub accesses_crossing: u64,
    /// Lines that were touched.
    pub lines_touched: u64,
    /// Lines that several threads read and nobody wrote.
    pub lines_read_only: u64,
    /// Whether write-shared means steadily so, which it does where the operations are given; else each line counts that two threads touch
    /// and one writes, with all accesses to it.
    pub steady: bool,
    /// Lines that are write-shared.
    pub write_shared_lines: u64,
    /// Accesses to them.
    pub write_shared_accesses: u64,
    /// The same for one operation: steadily write-shared accesses.
    pub write_shared_accesses_per_op: Option<f64>,
    /// The part of them that is false sharing.
    pub falsely_shared_accesses: u64,
    /// Transfers of lines that any interleaving of this run can cause.
    pub transfers_at_most: u64,
    /// The same for one operation.
    pub transfers_per_op_at_most: Option<f64>,
    /// Lines by when they are shared.
    pub phases: Phases,
    /// One line in so many was kept; 1 is all, and then all counts are exact. Else sums over lines are those of the lines that were kept,
    /// so many times, while what is said of one line is what was counted of it.
    pub one_line_in: u64,
    /// Accesses that found no room.
    pub accesses_lost: u64,
    /// The lines, dearest first.
    pub lines: Vec<LineReport>,
    /// Lines that are not listed.
    pub lines_not_listed: usize,
    /// The machine of the estimates, which are a model's.
    pub model: Model,
    /// How it would go with other numbers of processors, by the model.
    pub curve: Vec<Point>,
    /// Why the figures are not those of a whole run, exactly; nothing, if they are.
    pub incomplete: Vec<String>,
    /// What happened in the run and is not recorded.
    pub losses: Losses,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

impl Report {
    /// What a limit is held against: write-shared accesses of all processes together, for one operation where the operations are given.
    /// None where no thread worked.
    #[must_use]
    pub fn write_shared_of_all_processes(&self) -> Option<f64> {
        let sum = |f: fn(&ProcessReport) -> u64| {
            self.processes.iter().fold(0u64, |sum, it| sum.saturating_add(f(it)))
        };
        let threads = sum(|process| process.threads_working as u64);
        let accesses = sum(|process| process.write_shared_accesses) as f64;
        match self.ops_per_thread {
            _ if threads == 0 => None,
            Some(ops) => Some(accesses / (ops as f64 * threads as f64)),
            None => Some(accesses),
        }
    }
}

/// How many lines are shared when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "as `Phase`")]
#[non_exhaustive]
pub struct Phases {
    pub steady: u64,
    pub at_once: u64,
    pub occasional: u64,
    pub start_up: u64,
    pub handed_over: u64,
}

/// One process.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ProcessReport {
    /// Its number.
    pub pid: u32,
    /// Who made it.
    pub parent: u32,
    /// Threads that were seen.
    pub threads: usize,
    /// Those of them whose operations count.
    pub threads_working: usize,
    /// Accesses that count.
    pub accesses: u64,
    /// Accesses to lines that are write-shared.
    pub write_shared_accesses: u64,
    /// The program that it became, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub became: Option<String>,
}

/// One thread.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ThreadReport {
    /// Its number here.
    pub number: u32,
    /// Its number in the kernel.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Whether its operations count.
    pub works: bool,
    /// Whether it ended before the process did.
    pub ended: bool,
    /// Accesses that count.
    pub accesses: u64,
}

/// One line.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LineReport {
    /// Its address, in hexadecimal.
    pub address: String,
    /// When it is shared.
    pub phase: Phase,
    /// What of it.
    pub sharing: Sharing,
    /// `lock`, `atomic` or `data`, or several; `unknown` where no access says which bytes it touched.
    pub content: String,
    /// Whose it is.
    pub object: Object,
    /// Its words.
    pub words: Vec<WordReport>,
    /// Reads of all threads.
    pub reads: u64,
    /// Writes of all threads.
    pub writes: u64,
    /// What the run's figure has of it.
    pub write_shared: u64,
    /// Of these, accesses to bytes that nobody shares.
    pub falsely_shared: u64,
    /// Transfers that any interleaving can cause.
    pub transfers_at_most: u64,
    /// Transfers that the model expects.
    pub transfers_by_model: f64,
    /// Writes that find the line there, but not alone, as the model expects them.
    pub upgrades_by_model: f64,
    /// Milliseconds that both would take, by the model.
    pub cost_ms_by_model: f64,
    /// Who touches it.
    pub threads: Vec<TouchReport>,
    /// From where, most first.
    pub code: Vec<CodeReport>,
    /// Instructions that are not listed.
    pub code_not_listed: usize,
}

/// One word of a line.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WordReport {
    /// Its place in the line.
    pub offset: u32,
    /// `lock`, `atomic` or `data`.
    pub role: &'static str,
    /// Numbers of the threads that touch it.
    pub touched_by: Vec<u32>,
    /// Numbers of those that write it.
    pub written_by: Vec<u32>,
}

/// What one thread does to one line.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TouchReport {
    /// The thread's number here.
    pub thread: u32,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// What one place of the code does to one line.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CodeReport {
    /// The instruction's address, in hexadecimal.
    pub address: String,
    /// `atomic`, `exchange` or `plain`.
    pub instruction: &'static str,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Numbers of the threads that run it.
    pub threads: Vec<u32>,
    /// The functions there, what was inlined first.
    pub frames: Vec<Frame>,
}

impl CodeReport {
    /// The first frame that is not of a library.
    #[must_use]
    pub fn shown(&self) -> Option<&Frame> {
        self.frames.iter().find(|frame| !frame.is_library()).or(self.frames.first())
    }
}

/// What to report, of what.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What the emulator says of itself.
    pub emulator: String,
    /// How the program ended.
    pub outcome: Outcome,
    /// Seconds that it took.
    pub seconds: f64,
    /// The process that was started.
    pub pid: u32,
    /// The name of the function that was the window, if one was.
    pub function: Option<String>,
    /// How lines are judged.
    pub rules: Rules,
    /// The machine of the estimates.
    pub model: Model,
    /// The processors of the curve.
    pub processors: Vec<u32>,
    /// Lines that are listed at most.
    pub lines_max: usize,
}

impl Request {
    /// To judge a process by these rules and this model; the rest is to be set: nothing is known of the run but that it ended with 0, ten lines
    /// are listed, and there is no curve.
    #[must_use]
    pub fn new(rules: Rules, model: Model) -> Request {
        Request {
            command: Vec::new(),
            emulator: String::new(),
            outcome: Outcome::Exited(0),
            seconds: 0.0,
            pid: 0,
            function: None,
            rules,
            model,
            processors: Vec::new(),
            lines_max: 10,
        }
    }
}

/// Reads what the plugin left, and judges it.
#[must_use]
pub fn report(sources: &[Source], request: &Request) -> Report {
    let logs = read::logs(sources);
    // Each process's files are read for it alone: there may be thousands.
    let own = read::by_process(sources);
    let fold =
        |log: &Log| Lines::fold(own.get(&log.process).map_or(&[], Vec::as_slice), log.pid, request.rules);
    let mut folded: Vec<(Lines, &Log)> = logs.iter().map(|log| (fold(log), log)).collect();
    let losses = read::losses(sources);
    let processes: Vec<ProcessReport> = folded.iter().map(|(lines, log)| process(lines, log)).collect();
    let incomplete = summary::incomplete(&folded, losses, request);
    // The process that was started; where it counted nothing (a shell that forks), the one that did most.
    let chosen = folded
        .iter()
        .position(|(lines, log)| log.pid == request.pid && lines.accesses() > 0)
        .or_else(|| (0..folded.len()).max_by_key(|at| folded[*at].0.accesses()));
    let nothing = Log::default();
    let (lines, log) = match chosen {
        Some(at) => folded.swap_remove(at),
        None => (Lines::default(), &nothing),
    };
    let inherited = read::inherited(log, &own);
    let mut report = Report { processes, incomplete, losses, ..build(&lines, log, &inherited, request) };
    report.notes.extend(summary::losses(losses).into_iter().map(|loss| format!("Not recorded: {loss}.")));
    report
}

fn process(lines: &Lines, log: &Log) -> ProcessReport {
    let parent = log.events.iter().find_map(|event| match event {
        Event::Info { parent, .. } => Some(*parent),
        _ => None,
    });
    let became = log.events.iter().rev().find_map(|event| match event {
        Event::Exec { path } => Some(path.clone()),
        _ => None,
    });
    ProcessReport {
        pid: log.pid,
        parent: parent.unwrap_or(0),
        threads: lines.threads.len(),
        threads_working: lines.working(),
        accesses: lines.accesses(),
        write_shared_accesses: lines.write_shared_accesses().saturating_mul(lines.one_in()),
        became,
    }
}

/// The report of one process, which has the logs of those that it was forked from.
fn build(lines: &Lines, log: &Log, inherited: &[Log], request: &Request) -> Report {
    let working = lines.threads.iter().filter(|thread| thread.works);
    let threads = working.clone().count();
    let of_working = |f: fn(&Thread) -> u64| working.clone().fold(0u64, |sum, it| sum.saturating_add(f(it)));
    let accesses = of_working(|thread| thread.accesses);
    let kept = lines.one_in();
    let sum = |f: fn(&Line) -> u64| {
        lines.shared.iter().fold(0u64, |sum, line| sum.saturating_add(f(line))).saturating_mul(kept)
    };
    let (shared, transfers) = (sum(|line| line.write_shared_accesses), sum(|line| line.transfers_at_most));
    let per_op = |count: u64| {
        let ops = request.rules.ops? as f64 * threads as f64;
        (ops > 0.0).then(|| count as f64 / ops)
    };
    let dearest = dearest(lines, request);
    let objects = Objects::new(log, inherited);
    let mut symbols = Symbols::default();
    let listed: Vec<LineReport> = dearest
        .iter()
        .take(request.lines_max)
        .map(|line| line::describe(line, lines, &objects, &mut symbols, request))
        .collect();
    Report {
        format: FORMAT,
        command: request.command.clone(),
        emulator: request.emulator.clone(),
        outcome: request.outcome.clone(),
        seconds: request.seconds,
        window: match (&request.function, lines.windows) {
            (Some(name), _) => format!("function {name}"),
            (None, true) => "marks".to_owned(),
            (None, false) => "all".to_owned(),
        },
        pid: log.pid,
        processes: Vec::new(),
        threads,
        thread_list: thread_list(lines),
        ops_per_thread: request.rules.ops,
        accesses,
        accesses_per_op: per_op(accesses),
        accesses_crossing: of_working(|thread| thread.crossing),
        lines_touched: lines.touched.saturating_mul(kept),
        lines_read_only: lines.read_only.saturating_mul(kept),
        steady: request.rules.ops.is_some(),
        write_shared_lines: sum(|line| u64::from(line.write_shared_accesses > 0)),
        write_shared_accesses: shared,
        write_shared_accesses_per_op: per_op(shared),
        falsely_shared_accesses: sum(|line| line.false_accesses),
        transfers_at_most: transfers,
        transfers_per_op_at_most: per_op(transfers),
        phases: phases(lines),
        one_line_in: kept,
        accesses_lost: lines.lost,
        lines_not_listed: dearest.len() - listed.len(),
        lines: listed,
        curve: request.model.curve(lines, request.rules.ops, &request.processors),
        model: request.model.clone(),
        incomplete: Vec::new(),
        losses: Losses::default(),
        notes: summary::notes(lines, log, inherited, request),
    }
}

fn phases(lines: &Lines) -> Phases {
    let of = |phase| {
        let count = lines.shared.iter().filter(|line| line.phase == phase).count() as u64;
        count.saturating_mul(lines.one_in())
    };
    Phases {
        steady: of(Phase::Steady),
        at_once: of(Phase::AtOnce),
        occasional: of(Phase::Occasional),
        start_up: of(Phase::StartUp),
        handed_over: of(Phase::HandedOver),
    }
}

/// The shared lines, those that are shared for as long as the threads work first, and of each kind the dearest first.
fn dearest<'a>(lines: &'a Lines, request: &Request) -> Vec<&'a Line> {
    let mut dearest: Vec<&Line> = lines.shared.iter().collect();
    let rank = |line: &Line| (line.phase.lasts(), request.model.cost_ns(line, request.rules.ops));
    dearest.sort_by(|a, b| {
        let (a_rank, b_rank) = (rank(a), rank(b));
        b_rank.partial_cmp(&a_rank).unwrap_or(std::cmp::Ordering::Equal).then(a.address.cmp(&b.address))
    });
    dearest
}

fn thread_list(lines: &Lines) -> Vec<ThreadReport> {
    let report = |thread: &Thread| ThreadReport {
        number: thread.head.number,
        tid: thread.head.tid,
        name: thread.head.name.clone(),
        works: thread.works,
        ended: thread.head.ended.is_some(),
        accesses: thread.accesses,
    };
    lines.threads.iter().map(report).collect()
}
