//! The report: one object with the results of a run, printed as JSON, as a table or as an HTML page.

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

/// Version of the JSON object. It increases when a key is removed or changes its meaning; new keys do not
/// change it.
pub const FORMAT: u32 = 1;

/// Results of a run.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Version of the object, [`FORMAT`].
    pub format: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The emulator's version line.
    pub emulator: String,
    /// How the program ended.
    pub outcome: Outcome,
    /// Duration of the emulated run, in seconds.
    pub seconds: f64,
    /// Accesses that count: `all`, `marks`, `signals`, or `function NAME`.
    pub window: String,
    /// Id of the reported process: the started one, or the busiest one if the started process counted
    /// nothing.
    pub pid: u32,
    /// All processes that left files.
    pub processes: Vec<ProcessReport>,
    /// Number of working threads.
    pub threads: usize,
    /// All threads of the process.
    pub thread_list: Vec<ThreadReport>,
    /// Operations per thread, if given.
    pub ops_per_thread: Option<u64>,
    /// Accesses of the working threads.
    pub accesses: u64,
    /// `accesses` per operation.
    pub accesses_per_op: Option<f64>,
    /// Second halves in `accesses`: an access across a line boundary counts once for each line. `accesses`
    /// minus this is the number of loads and stores. If lines were sampled (`one_line_in`), it covers only
    /// kept lines.
    pub accesses_crossing: u64,
    /// Number of touched lines.
    pub lines_touched: u64,
    /// Number of lines that several threads read and none writes.
    pub lines_read_only: u64,
    /// Whether write-shared means steadily write-shared, which requires known operations. Otherwise every
    /// line that two threads touch and one writes is write-shared, with all its accesses.
    pub steady: bool,
    /// Number of write-shared lines.
    pub write_shared_lines: u64,
    /// Accesses to write-shared lines.
    pub write_shared_accesses: u64,
    /// Steadily write-shared accesses per operation.
    pub write_shared_accesses_per_op: Option<f64>,
    /// Falsely shared part of `write_shared_accesses`.
    pub falsely_shared_accesses: u64,
    /// Upper bound for line transfers over all interleavings of this run.
    pub transfers_at_most: u64,
    /// `transfers_at_most` per operation.
    pub transfers_per_op_at_most: Option<f64>,
    /// Transfers and upgrades per operation within a cluster, as the model expects them. Lines that are
    /// shared rarely count, too.
    pub near_misses_per_op_by_model: Option<f64>,
    /// Transfers and upgrades per operation between clusters, as the model expects them.
    pub far_misses_per_op_by_model: Option<f64>,
    /// Number of lines in each phase.
    pub phases: Phases,
    /// Sampling: one line in this many was kept. If 1, all counts are exact. Otherwise sums over lines are
    /// scaled up, while the figures of a listed line are exact.
    pub one_line_in: u64,
    /// Accesses that found no room.
    pub accesses_lost: u64,
    /// Lines, most expensive first.
    pub lines: Vec<LineReport>,
    /// Number of shared lines that are not listed.
    pub lines_not_listed: usize,
    /// The modelled machine of the estimates.
    pub model: Model,
    /// Modelled speed-up over numbers of processors.
    pub curve: Vec<Point>,
    /// Reasons why the counts do not cover the whole run; empty if they do.
    pub incomplete: Vec<String>,
    /// Accesses and events that were not recorded.
    pub losses: Losses,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

impl Report {
    /// Returns the figure that a limit is compared with: write-shared accesses of all processes, per
    /// operation if the operations are known. `None` if no thread worked.
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

/// Number of lines in each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented by `Phase`")]
#[non_exhaustive]
pub struct Phases {
    pub steady: u64,
    pub at_once: u64,
    pub occasional: u64,
    pub start_up: u64,
    pub handed_over: u64,
}

/// A process of the run.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ProcessReport {
    /// Id of the process.
    pub pid: u32,
    /// Id of the parent process.
    pub parent: u32,
    /// Number of threads.
    pub threads: usize,
    /// Number of working threads.
    pub threads_working: usize,
    /// Counted accesses.
    pub accesses: u64,
    /// Accesses to write-shared lines.
    pub write_shared_accesses: u64,
    /// Program that the process executed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub became: Option<String>,
}

/// A thread of the reported process.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ThreadReport {
    /// Number of the thread in its process.
    pub number: u32,
    /// Kernel id of the thread.
    pub tid: u32,
    /// Name of the thread.
    pub name: String,
    /// Whether the operations of the thread count.
    pub works: bool,
    /// Whether the thread ended before the process.
    pub ended: bool,
    /// Counted accesses.
    pub accesses: u64,
}

/// A write-shared line.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LineReport {
    /// Address in hexadecimal.
    pub address: String,
    /// Time of the sharing.
    pub phase: Phase,
    /// Kind of sharing.
    pub sharing: Sharing,
    /// Roles of its words: `lock`, `atomic`, `data` or several of them; `unknown` if the touched bytes are
    /// unknown.
    pub content: String,
    /// Object that contains the line.
    pub object: Object,
    /// Touched words.
    pub words: Vec<WordReport>,
    /// Reads of all threads.
    pub reads: u64,
    /// Writes of all threads.
    pub writes: u64,
    /// Part of the run's `write_shared_accesses`.
    pub write_shared: u64,
    /// Falsely shared part of `write_shared`.
    pub falsely_shared: u64,
    /// Upper bound for transfers of the line over all interleavings.
    pub transfers_at_most: u64,
    /// Transfers that the model expects.
    pub transfers_by_model: f64,
    /// Upgrades that the model expects: writes that find the line present but shared.
    pub upgrades_by_model: f64,
    /// Modelled time of transfers and upgrades, in milliseconds.
    pub cost_ms_by_model: f64,
    /// Accesses of each thread.
    pub threads: Vec<TouchReport>,
    /// Instructions that access the line, most frequent first.
    pub code: Vec<CodeReport>,
    /// Number of instructions that are not listed.
    pub code_not_listed: usize,
}

/// A word of 8 bytes in a line.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WordReport {
    /// Offset in the line.
    pub offset: u32,
    /// Role: `lock`, `atomic` or `data`.
    pub role: &'static str,
    /// Numbers of the threads that touch the word.
    pub touched_by: Vec<u32>,
    /// Numbers of the threads that write the word.
    pub written_by: Vec<u32>,
}

/// Accesses of one thread to one line.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TouchReport {
    /// Number of the thread in its process.
    pub thread: u32,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
}

/// Accesses of one instruction to one line.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CodeReport {
    /// Address of the instruction in hexadecimal.
    pub address: String,
    /// Kind: `atomic`, `exchange` or `plain`.
    pub instruction: &'static str,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Numbers of the threads that run the instruction.
    pub threads: Vec<u32>,
    /// Frames of the instruction, innermost first.
    pub frames: Vec<Frame>,
}

impl CodeReport {
    /// First frame outside the standard library and the allocator.
    #[must_use]
    pub fn source_frame(&self) -> Option<&Frame> {
        self.frames.iter().find(|frame| !frame.is_library()).or(self.frames.first())
    }
}

/// Input of a report besides the plugin's files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The emulator's version line.
    pub emulator: String,
    /// How the program ended.
    pub outcome: Outcome,
    /// Duration of the run, in seconds.
    pub seconds: f64,
    /// Id of the started process.
    pub pid: u32,
    /// Name of the window function, if there was one.
    pub function: Option<String>,
    /// Whether a switch turned counting on and off.
    pub switched: bool,
    /// Rules of counting.
    pub rules: Rules,
    /// The modelled machine.
    pub model: Model,
    /// Numbers of processors for the curve.
    pub processors: Vec<u32>,
    /// Maximum number of listed lines.
    pub lines_max: usize,
}

impl Request {
    /// Request with these rules and this model. Defaults: outcome exit 0, ten listed lines, no curve, other
    /// fields empty.
    #[must_use]
    pub fn new(rules: Rules, model: Model) -> Request {
        Request {
            command: Vec::new(),
            emulator: String::new(),
            outcome: Outcome::Exited(0),
            seconds: 0.0,
            pid: 0,
            function: None,
            switched: false,
            rules,
            model,
            processors: Vec::new(),
            lines_max: 10,
        }
    }
}

/// Reads the plugin's files and builds the report.
#[must_use]
pub fn report(sources: &[Source], request: &Request) -> Report {
    let logs = read::logs(sources);
    // Groups files by process: a run may have thousands of processes, and each reads only its own files.
    let own = read::by_process(sources);
    let fold =
        |log: &Log| Lines::fold(own.get(&log.process).map_or(&[], Vec::as_slice), log.pid, request.rules);
    let mut folded: Vec<(Lines, &Log)> = logs.iter().map(|log| (fold(log), log)).collect();
    let losses = read::losses(sources);
    let processes: Vec<ProcessReport> = folded.iter().map(|(lines, log)| process(lines, log)).collect();
    let incomplete = summary::incomplete(&folded, losses, request);
    // Reports the started process. If it counted nothing (a shell that forks), reports the busiest one.
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

/// Builds the report of one process. `inherited` has the logs of its ancestors.
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
    let misses_per_op = |count: f64| {
        let ops = request.rules.ops? as f64 * threads as f64;
        (ops > 0.0).then(|| count / ops)
    };
    let per_op = |count: u64| misses_per_op(count as f64);
    let misses = request.model.misses_by_distance(lines, request.rules.ops);
    let dearest = by_cost(lines, request);
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
            (None, _) if request.switched => "signals".to_owned(),
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
        near_misses_per_op_by_model: misses_per_op(misses.near),
        far_misses_per_op_by_model: misses_per_op(misses.far),
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

/// Sorts the shared lines: those shared as long as the threads work come first, each group by modelled cost.
fn by_cost<'a>(lines: &'a Lines, request: &Request) -> Vec<&'a Line> {
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
