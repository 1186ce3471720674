//! The report: what a run showed, as one object, from which the table and the page are made.

mod page;
mod terminal;

use std::path::PathBuf;

use serde::Serialize;
use squall_locality_plugin::format::window;

use crate::lines::{Line, Lines, Phase, Rules, Sharing, Thread, Touch};
use crate::model::{Model, Point};
use crate::objects::{Object, Objects};
use crate::read::{self, Event, Log, Source};
use crate::run::Outcome;
use crate::symbols::{Frame, Symbols};

pub use page::page;
pub use terminal::table;

/// What a run showed.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
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
    /// Lines that were touched, that several threads read and nobody wrote.
    pub lines_touched: u64,
    /// Lines that several threads read and nobody wrote.
    pub lines_read_only: u64,
    /// Lines that are steadily write-shared.
    pub write_shared_lines: u64,
    /// Accesses to them.
    pub write_shared_accesses: u64,
    /// The same for one operation.
    pub write_shared_accesses_per_op: Option<f64>,
    /// The part of them that is false sharing.
    pub falsely_shared_accesses: u64,
    /// Transfers of lines that any interleaving of this run can cause.
    pub transfers_at_most: u64,
    /// The same for one operation.
    pub transfers_per_op_at_most: Option<f64>,
    /// Lines by when they are shared.
    pub phases: Phases,
    /// One line in so many was kept; 1 is all, and then all counts are exact.
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
    /// What a reader has to know.
    pub notes: Vec<String>,
}

/// How many lines are shared when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "as `Phase`")]
pub struct Phases {
    pub steady: u64,
    pub occasional: u64,
    pub start_up: u64,
    pub handed_over: u64,
}

/// One process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessReport {
    /// Its number.
    pub pid: u32,
    /// Who made it.
    pub parent: u32,
    /// Threads that were seen.
    pub threads: usize,
    /// Accesses that count.
    pub accesses: u64,
    /// Accesses to lines that are steadily write-shared.
    pub write_shared_accesses: u64,
    /// The program that it became, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub became: Option<String>,
}

/// One thread.
#[derive(Clone, Debug, Serialize)]
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
pub struct LineReport {
    /// Its address, in hexadecimal.
    pub address: String,
    /// When it is shared.
    pub phase: Phase,
    /// What of it.
    pub sharing: Sharing,
    /// `lock`, `atomic` or `data`, or several.
    pub content: String,
    /// Whose it is.
    pub object: Object,
    /// Its words.
    pub words: Vec<WordReport>,
    /// Reads of all threads.
    pub reads: u64,
    /// Writes of all threads.
    pub writes: u64,
    /// Accesses to bytes that nobody shares.
    pub falsely_shared: u64,
    /// Transfers that any interleaving can cause.
    pub transfers_at_most: u64,
    /// Transfers that the model expects.
    pub transfers_by_model: f64,
    /// Milliseconds that they would take, by the model.
    pub cost_ms_by_model: f64,
    /// Who touches it.
    pub threads: Vec<TouchReport>,
    /// From where.
    pub code: Vec<CodeReport>,
}

/// One word of a line.
#[derive(Clone, Debug, Serialize)]
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

/// Places of the code that are listed of a line at most.
const PLACES_MAX: usize = 12;

/// Reads what the plugin left, and judges it.
#[must_use]
pub fn report(sources: &[Source], request: &Request) -> Report {
    let logs = read::logs(sources);
    let mut folded: Vec<(Lines, &Log)> =
        logs.iter().map(|log| (Lines::fold(sources, log.pid, request.rules), log)).collect();
    let accesses = |lines: &Lines| lines.threads.iter().map(|thread| thread.accesses).sum::<u64>();
    let processes: Vec<ProcessReport> =
        folded.iter().map(|(lines, log)| process(lines, log, accesses(lines))).collect();
    // The process that was started; where it counted nothing (a shell that forks), the one that did most.
    let chosen = folded
        .iter()
        .position(|(lines, log)| log.pid == request.pid && accesses(lines) > 0)
        .or_else(|| (0..folded.len()).max_by_key(|at| accesses(&folded[*at].0)));
    let nothing = Log::default();
    let (lines, log) = match chosen {
        Some(at) => folded.swap_remove(at),
        None => (Lines::default(), &nothing),
    };
    build(&lines, log, processes, request)
}

fn process(lines: &Lines, log: &Log, accesses: u64) -> ProcessReport {
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
        accesses,
        write_shared_accesses: lines.shared.iter().map(|line| line.steady_accesses).sum(),
        became,
    }
}

fn build(lines: &Lines, log: &Log, processes: Vec<ProcessReport>, request: &Request) -> Report {
    let working = lines.threads.iter().filter(|thread| thread.works);
    let threads = working.clone().count();
    let accesses: u64 = working.map(|thread| thread.accesses).sum();
    let kept = 1u64 << lines.sample.min(40);
    let sum = |f: fn(&Line) -> u64| lines.shared.iter().map(f).sum::<u64>().saturating_mul(kept);
    let steady = sum(|line| line.steady_accesses);
    let transfers = sum(|line| line.transfers_at_most);
    let falsely = sum(|line| if line.phase == Phase::Steady { line.false_accesses } else { 0 });
    let per_op = |count: u64| {
        let ops = request.rules.ops? as f64 * threads as f64;
        (ops > 0.0).then(|| count as f64 / ops)
    };
    let phase = |phase| lines.shared.iter().filter(|line| line.phase == phase).count() as u64 * kept;
    let dearest = dearest(lines, &request.model);
    let objects = Objects::new(log);
    let mut symbols = Symbols::default();
    let listed: Vec<LineReport> = dearest
        .iter()
        .take(request.lines_max)
        .map(|line| describe(line, lines, &objects, &mut symbols, request))
        .collect();
    Report {
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
        processes,
        threads,
        thread_list: thread_list(lines),
        ops_per_thread: request.rules.ops,
        accesses,
        accesses_per_op: per_op(accesses),
        lines_touched: lines.touched * kept,
        lines_read_only: lines.read_only * kept,
        write_shared_lines: phase(Phase::Steady),
        write_shared_accesses: steady,
        write_shared_accesses_per_op: per_op(steady),
        falsely_shared_accesses: falsely,
        transfers_at_most: transfers,
        transfers_per_op_at_most: per_op(transfers),
        phases: Phases {
            steady: phase(Phase::Steady),
            occasional: phase(Phase::Occasional),
            start_up: phase(Phase::StartUp),
            handed_over: phase(Phase::HandedOver),
        },
        one_line_in: kept,
        accesses_lost: lines.lost,
        lines_not_listed: dearest.len() - listed.len(),
        lines: listed,
        curve: request.model.curve(lines, request.rules.ops.unwrap_or(1), &request.processors),
        model: request.model.clone(),
        notes: notes(lines, log, request),
    }
}

/// The shared lines, those that are shared all the time first, and of each kind the dearest first.
fn dearest<'a>(lines: &'a Lines, model: &Model) -> Vec<&'a Line> {
    let mut dearest: Vec<&Line> = lines.shared.iter().collect();
    let rank = |line: &Line| (line.phase == Phase::Steady, model.cost_ns(line));
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

fn notes(lines: &Lines, log: &Log, request: &Request) -> Vec<String> {
    let mut notes = vec![
        "Under emulation no program has restartable sequences (rseq): what was counted is the fallback of programs that use them."
            .to_owned(),
    ];
    match &request.outcome {
        Outcome::TimedOut => notes.push(
            "The program did not end in time and was killed; what it did until then is counted.".into(),
        ),
        Outcome::Signal(number) => {
            notes.push(format!("The program died of signal {number}; what it did until then is counted."))
        }
        Outcome::Exited(_) => {}
    }
    for event in &log.events {
        match event {
            Event::Exec { path } => notes.push(format!(
                "The process became {path}: from there on it ran outside the emulator, and nothing was counted."
            )),
            Event::BlocksCut => notes.push("So many heap blocks came and went that the later ones are not known.".into()),
            _ => {}
        }
    }
    if !log.events.contains(&Event::Preloaded) {
        notes.push("Heap blocks are not told apart: the program could not be preloaded (it is static, or was not to be).".into());
    }
    if lines.sample > 0 {
        notes.push(format!(
            "There were more lines than fit: one line in {} was kept, with all its accesses; sums are scaled up.",
            1u64 << lines.sample.min(40)
        ));
    }
    if lines.lost > 0 {
        notes.push(format!("{} accesses found no room and are not counted.", lines.lost));
    }
    let works = lines.threads.iter().any(|thread| thread.works);
    if lines.threads.iter().all(|thread| thread.head.window == window::WHOLE) && request.function.is_some() {
        notes.push("The window's function was never called.".into());
    } else if request.rules.ops.is_some() && !works {
        notes.push("No thread did as many accesses as the operations that were said.".into());
    }
    notes
}

fn describe(
    line: &Line,
    lines: &Lines,
    objects: &Objects,
    symbols: &mut Symbols,
    request: &Request,
) -> LineReport {
    let number = |thread: &usize| lines.threads[*thread].head.number;
    let code: Vec<CodeReport> = line
        .places
        .iter()
        .take(PLACES_MAX)
        .map(|place| CodeReport {
            address: format!("{:#x}", place.pc),
            instruction: match place.kind {
                1 => "atomic",
                2 => "exchange",
                _ => "plain",
            },
            reads: place.reads,
            writes: place.writes,
            threads: place.threads.iter().map(number).collect(),
            frames: objects.frames(place.pc, symbols),
        })
        .collect();
    let span = line
        .touches
        .iter()
        .fold((u32::MAX, 0), |span, touch| (span.0.min(touch.span.0), span.1.max(touch.span.1)));
    let words = words(line, lines, objects, &code, request.rules.line_bytes);
    let mut content: Vec<&str> = words.iter().map(|word| word.role).collect();
    content.sort_unstable_by_key(|role| ["lock", "atomic", "data"].iter().position(|known| known == role));
    content.dedup();
    LineReport {
        address: format!("{:#x}", line.address),
        phase: line.phase,
        sharing: line.sharing,
        content: content.join(" and "),
        object: {
            let (first, bytes) = touched(line);
            objects.at(line.address + first, bytes, span, symbols)
        },
        words,
        reads: line.touches.iter().map(|touch| touch.reads).sum(),
        writes: line.touches.iter().map(|touch| touch.writes).sum(),
        falsely_shared: line.false_accesses,
        transfers_at_most: line.transfers_at_most,
        transfers_by_model: request.model.transfers(line),
        cost_ms_by_model: request.model.cost_ns(line) / 1e6,
        threads: line
            .touches
            .iter()
            .map(|touch| TouchReport {
                thread: number(&touch.thread),
                reads: touch.reads,
                writes: touch.writes,
            })
            .collect(),
        code,
    }
}

/// Where the bytes that are touched begin, and how many it is to the last of them.
fn touched(line: &Line) -> (u64, u64) {
    let all = line.touches.iter().fold(0, |all, touch| all | touch.read_bytes | touch.written_bytes);
    if all == 0 {
        return (0, 1);
    }
    let first = u64::from(all.trailing_zeros());
    (first, 128 - u64::from(all.leading_zeros()) - first)
}

/// The words of a line that are touched, and what each is.
fn words(
    line: &Line,
    lines: &Lines,
    objects: &Objects,
    code: &[CodeReport],
    line_bytes: u32,
) -> Vec<WordReport> {
    const WORD: u32 = 8;
    let mut words = Vec::new();
    for offset in (0..line_bytes).step_by(WORD as usize) {
        let mask = 0xffu128 << offset;
        let who = |bytes: fn(&Touch) -> u128| -> Vec<u32> {
            let touches = line.touches.iter().filter(|touch| bytes(touch) & mask != 0);
            touches.map(|touch| lines.threads[touch.thread].head.number).collect()
        };
        let touched_by = who(|touch| touch.read_bytes | touch.written_bytes);
        if touched_by.is_empty() {
            continue;
        }
        // A word by whose exchange a function that is called for locking decides, or on which threads sleep.
        let locks =
            |code: &CodeReport| code.instruction == "exchange" && code.frames.iter().any(is_of_a_lock);
        let places = line.places.iter().zip(code);
        let by_name = places.filter(|(place, _)| place.bytes & mask != 0).any(|(_, code)| locks(code));
        let sleepers = objects.has_sleepers(line.address + u64::from(offset), u64::from(WORD));
        let role = if sleepers && line.atomic_bytes & mask != 0 || by_name {
            "lock"
        } else if line.atomic_bytes & mask != 0 {
            "atomic"
        } else {
            "data"
        };
        words.push(WordReport { offset, role, touched_by, written_by: who(|touch| touch.written_bytes) });
    }
    words
}

/// Whether this function's name, or its file's, says that it is part of a lock.
fn is_of_a_lock(frame: &Frame) -> bool {
    const WORDS: &[&str] = &["lock", "mutex", "semaphore", "futex", "once", "sem_"];
    let name = frame.function.to_lowercase();
    let file = frame.file.as_deref().and_then(|file| file.rsplit('/').next()).unwrap_or("").to_lowercase();
    WORDS.iter().any(|word| name.contains(word) || file.contains(word))
}

/// The path that a terminal is shown.
fn place(frame: &Frame) -> String {
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{}:{line}", Objects::shown(file)),
        (Some(file), None) => Objects::shown(file),
        _ => String::new(),
    }
}

/// One phrase for an object.
fn object_text(object: &Object, address: &str) -> String {
    let line = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap_or(0);
    let file =
        |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match object {
        Object::Heap { blocks } => {
            let each = blocks.iter().map(|block| {
                let at = block.address.saturating_sub(line);
                let place_in = if block.address >= line {
                    format!("from the line's byte {at} on")
                } else {
                    format!("the line is at its byte {}", line - block.address)
                };
                let asked = block.asked_by().map_or_else(String::new, |frame| {
                    format!(", asked for by thread {} at {} {}", block.thread, place(frame), frame.function)
                });
                format!("heap block of {} bytes ({place_in}){asked}", block.bytes)
            });
            each.collect::<Vec<_>>().join("; ")
        }
        Object::Static { file: path, names } if names.is_empty() => format!("static data of {}", file(path)),
        Object::Static { file: path, names } => format!("static {} in {}", names.join(", "), file(path)),
        Object::Stack { tid } => format!("stack of thread {tid}"),
        Object::ThreadLocal { tid } => format!("thread-local data of thread {tid}"),
        Object::File { path, offset } => format!("mapped file {} at {offset:#x}", path.display()),
        Object::Anonymous { start, bytes } => format!("anonymous mapping of {bytes} bytes at {start:#x}"),
        Object::Unknown => "unknown memory".to_owned(),
    }
}
