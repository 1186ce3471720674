//! `squall` without a command, and `squall demo`: the load of a service changes in phases. The same code
//! keeps its hits under two locks, in two crates, and in Squall objects. Each phase shows the cost for each
//! of them, and says when and why the Squall objects changed their form.
//!
//! - I1. The stores take turns in short slices, round after round, with the same threads. Each round begins
//!   with the next store. A figure is the median of the slices.
//! - I2. At the end, each store must have counted exactly the hits that the threads made. A difference makes
//!   the demo fail.
//! - I3. The demo waits for a key only if its input and its output are terminals.

mod changes;
mod crew;
mod plot;
mod stores;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, CommandFactory};
use squall::adapt::engine::{EngineState, thread_state};
use squall_bench::{env, process_cpu_ns};

use super::laps::new_table;
use super::progress::Progress;
use crate::Cli;
use crate::output::{Failure, line};
use changes::Changes;
use crew::Crew;
use plot::Row;
use stores::{Adaptive, Hits, PAGES, SERIES, UnderMutex, UnderRwLock, WithAtomic};

#[derive(Args, Default)]
pub(crate) struct StoryArgs {
    /// Run for ten seconds. Without it, the demo takes about a minute.
    #[arg(long)]
    quick: bool,
    /// Number of threads. The default is one per processor, but at least 2.
    #[arg(long, value_name = "N", value_parser = crate::args::parse_count)]
    threads: Option<usize>,
    /// Let other processes inspect the objects while the demo runs. This is the default on a terminal.
    #[arg(long)]
    serve: bool,
    /// Do not let other processes inspect the objects.
    #[arg(long, conflicts_with = "serve")]
    private: bool,
}

/// A phase of the service's load.
struct Phase {
    title: &'static str,
    load: &'static str,
    /// All threads work, or only the first.
    all_work: bool,
    /// Operations of a series that record a hit.
    writes: u32,
}

const PHASES: [Phase; 3] = [
    Phase { title: "one writer", load: "One thread records hits.", all_work: false, writes: SERIES },
    Phase { title: "many writers", load: "All threads record hits.", all_work: true, writes: SERIES },
    Phase {
        title: "mostly reads",
        load: "All threads look up the hits of a page. One operation in 20 records a hit.",
        all_work: true,
        writes: 1,
    },
];
/// The last phase. It has no load, and so no slices.
const IDLE: &str = "idle";

/// Durations of the demo.
struct Pace {
    slice: Duration,
    rounds: usize,
    /// Longer than the time after which an object counts as quiet.
    idle: Duration,
}

const MINUTE: Pace =
    Pace { slice: Duration::from_millis(100), rounds: 31, idle: Duration::from_millis(3_000) };
const QUICK: Pace = Pace { slice: Duration::from_millis(40), rounds: 11, idle: Duration::from_millis(1_500) };
/// Duration of a phase of the load that runs until a key is pressed.
const STAY: Duration = Duration::from_secs(3);

/// With fewer processors, the demo says that a lock is hard to beat.
const FEW: usize = 8;

/// A store, its name, and the hits that the threads made.
struct Subject {
    name: &'static str,
    is_ours: bool,
    store: Arc<dyn Hits>,
    hits: u64,
}

/// All that takes part.
struct Stage {
    crew: Crew,
    threads: usize,
    subjects: Vec<Subject>,
    changes: Changes,
}

impl Stage {
    fn new(threads: usize) -> Stage {
        let ours = Adaptive::new();
        let changes = Changes::new(ours.objects());
        let rival = |name, store| Subject { name, is_ours: false, store, hits: 0 };
        let subjects = vec![
            rival("Mutex<HashMap>", Arc::new(UnderMutex::new()) as Arc<dyn Hits>),
            rival("RwLock<HashMap>", Arc::new(UnderRwLock::new())),
            rival("dashmap, AtomicU64", Arc::new(WithAtomic::dashmap())),
            rival("scc::HashMap, AtomicU64", Arc::new(WithAtomic::scc())),
            Subject { name: "Squall, adaptive", is_ours: true, store: Arc::new(ours), hits: 0 },
        ];
        Stage { crew: Crew::new(threads), threads, subjects, changes }
    }

    /// Runs a slice of a phase on one store. Returns the nanoseconds of an operation.
    fn slice(&mut self, subject: usize, phase: &Phase, time: Duration) -> f64 {
        let subject = &mut self.subjects[subject];
        let threads = if phase.all_work { self.threads } else { 1 };
        let work = self.crew.slice(&subject.store, threads, phase.writes, time);
        subject.hits += work.hits;
        work.ns()
    }

    /// Runs all slices of a phase (I1).
    fn measure(&mut self, phase: &Phase, pace: &Pace) -> Vec<Row> {
        let count = self.subjects.len();
        let row =
            |subject: &Subject| Row { name: subject.name, is_ours: subject.is_ours, slices: Vec::new() };
        let mut rows: Vec<Row> = self.subjects.iter().map(row).collect();
        let bar = Progress::new((pace.rounds * count) as u64, phase.title);
        for round in 0..pace.rounds {
            for turn in 0..count {
                let subject = (round + turn) % count;
                let ns = self.slice(subject, phase, pace.slice);
                rows[subject].slices.push(ns);
                bar.0.inc(1);
            }
        }
        bar.clear();
        rows
    }

    /// Says what the Squall objects did in the phase that has ended.
    fn tell_changes(&mut self) -> Result<bool, Failure> {
        let news = self.changes.news();
        news.iter().chain(&self.changes.kept()).try_for_each(line)?;
        Ok(!news.is_empty())
    }

    /// Returns a description of the first store that lost or invented a hit (I2).
    fn difference(&self) -> Option<String> {
        self.subjects.iter().find_map(|subject| {
            Some(format!("{}: {}", subject.name, subject.store.difference(subject.hits)?))
        })
    }
}

pub(super) fn run(args: &StoryArgs) -> Result<(), Failure> {
    let is_terminal = io::stdout().is_terminal();
    let has_colours = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let pace = if args.quick { &QUICK } else { &MINUTE };
    let threads = args.threads.unwrap_or_else(|| env::processors().len().max(2));
    let stays = is_terminal && io::stdin().is_terminal() && !args.private;
    let mut stage = Stage::new(threads);
    introduce(threads, pace)?;
    // Served while the demo runs.
    let _server = if args.private || !(args.serve || is_terminal) { None } else { serve(args.serve)? };
    let mut all = Vec::new();
    for (number, phase) in (1..).zip(&PHASES) {
        line(format_args!("\nPhase {number} of {}: {}. {}", PHASES.len() + 1, phase.title, phase.load))?;
        let rows = stage.measure(phase, pace);
        plot::chart(&rows, has_colours).iter().try_for_each(line)?;
        plot::verdict(&rows)
            .iter()
            .chain(&plot::doubt(&rows))
            .try_for_each(|said| line(format_args!("  {said}")))?;
        let slices = rows.iter().find(|row| row.is_ours).map(|row| plot::sparkline(&row.slices));
        if let (true, Some(slices)) = (stage.tell_changes()?, slices) {
            line(format_args!(
                "  Squall's slices in this phase, first to last (higher is slower): {slices}"
            ))?;
        }
        all.push(rows);
    }
    line(format_args!("\nPhase {0} of {0}: {IDLE}. No thread calls.", PHASES.len() + 1))?;
    let used = idle(pace.idle);
    line(format_args!(
        "  The whole program used {:.1} ms of processor time in {:.1} s. The locks and the two crates run no code here;\n  \
         Squall's thread wakes up only if it has to look at an object.",
        used.as_secs_f64() * 1e3,
        pace.idle.as_secs_f64()
    ))?;
    stage.tell_changes()?;
    sum_up(&all)?;
    if let Some(wrong) = stage.difference() {
        return Err(Failure::new(format!("{wrong}; please report this")));
    }
    line("Each row counted every hit: its total, and the sum over its pages, are exact.")?;
    try_next(stays)?;
    if stays { stay(&mut stage, pace) } else { Ok(()) }
}

fn introduce(threads: usize, pace: &Pace) -> Result<(), Failure> {
    let processors = env::processors().len();
    line("Squall: shared objects for servers that scale with the number of processors.")?;
    line(env::summary())?;
    line(format_args!(
        "\nA service counts the hits of {PAGES} pages in a map, and their total. Its load changes in {} phases.\n\
         The same code runs with two locks, with two crates, and with a map and a counter of Squall. The last two\n\
         begin in their simplest form. Squall's engine, a thread in the background, changes the form when the load\n\
         makes another one cheaper. {threads} threads run on {processors} processors.\n\
         The five stores take turns in slices of {} ms, {} rounds in each phase. A figure is the median\n\
         time of one operation, as its thread sees it. Shorter is better.",
        PHASES.len() + 1,
        pace.slice.as_millis(),
        pace.rounds
    ))?;
    if cfg!(debug_assertions) {
        line("(This is a debug build, which slows Squall most. Use --release for the figures.)")?;
    }
    match thread_state() {
        EngineState::Off => line("(SQUALL_ADAPT switches the engine off, so the objects keep their form.)"),
        _ => Ok(()),
    }
}

/// Lets other processes inspect the objects. Without `must`, the demo also runs if that is impossible.
fn serve(must: bool) -> Result<Option<squall::browse::Server>, Failure> {
    match squall::browse::serve() {
        Ok(server) => {
            line(format_args!(
                "To watch the objects, run in another terminal: {} top {}",
                program(),
                std::process::id()
            ))?;
            Ok(Some(server))
        }
        Err(error) if must => Err(Failure::new(format!(
            "cannot serve inspection of the objects: {error}; the demo runs without --serve"
        ))),
        Err(error) => {
            line(format_args!("(Other processes cannot watch the objects: {error}.)"))?;
            Ok(None)
        }
    }
}

/// Waits, and returns the processor time that the process used meanwhile.
fn idle(time: Duration) -> Duration {
    let before = process_cpu_ns();
    thread::sleep(time);
    Duration::from_nanos(process_cpu_ns().saturating_sub(before))
}

/// Prints the medians of all phases.
fn sum_up(all: &[Vec<Row>]) -> Result<(), Failure> {
    let titles = PHASES.iter().map(|phase| phase.title);
    let mut table = new_table(&["ns per operation"].into_iter().chain(titles).collect::<Vec<_>>());
    for (index, row) in all.first().into_iter().flatten().enumerate() {
        let figures = all.iter().map(|rows| plot::figure(rows[index].ns()));
        table.add_row([row.name.to_owned()].into_iter().chain(figures));
    }
    let first = all.iter().map(|rows| plot::fastest(rows).map_or("", |row| row.name).to_owned());
    table.add_row(["fastest".to_owned()].into_iter().chain(first));
    line(format_args!("\n{table}"))?;
    match env::processors().len() {
        ..FEW => {
            line("A lock is often the fastest on so few processors. README.md has figures for 16 processors.")
        }
        _ => Ok(()),
    }
}

/// Returns the command of this program, as it was started.
fn program() -> String {
    let name = std::env::args_os().next().unwrap_or_default();
    if name.is_empty() { "squall".to_owned() } else { Path::new(&name).display().to_string() }
}

/// Prints the commands to try next, as far as this build has them.
fn try_next(stays: bool) -> Result<(), Failure> {
    let cli = Cli::command();
    let pid = if stays { std::process::id().to_string() } else { "PID".to_owned() };
    let whose =
        if stays { "these objects" } else { "the objects of a program, such as this one on a terminal" };
    let next = [
        ("top", &*pid, format!("watch {whose}")),
        ("browse", &*pid, "the same in a web browser".to_owned()),
        (
            "report",
            "--quick",
            "experiments of the literature, with plots (a few minutes; counts need QEMU)".to_owned(),
        ),
        ("demo", "index PATH", "a word index of your own texts, in each kind of map".to_owned()),
        ("bench", "--list", "all benchmark cases, with more rivals".to_owned()),
    ];
    line(format_args!("\nWhat to try next (squall is {}):", program()))?;
    for (command, rest, what) in next {
        if cli.find_subcommand(command).is_some() {
            line(format_args!("  {:<24} {what}", format!("squall {command} {rest}")))?;
        }
    }
    line(format_args!("  {:<24} a counter, a map and an object of your own, step by step", "GUIDE.md"))
}

/// Runs the load with Squall's objects alone until a line is entered. Prints their changes.
fn stay(stage: &mut Stage, pace: &Pace) -> Result<(), Failure> {
    line("\nThe load goes on with Squall's objects. Press Enter to end it.")?;
    let is_over = Arc::new(AtomicBool::new(false));
    let entered = is_over.clone();
    thread::spawn(move || {
        // An error ends the demo, as a line does.
        let _ = io::stdin().read_line(&mut String::new());
        entered.store(true, Ordering::Relaxed);
    });
    let ours = stage.subjects.iter().position(|subject| subject.is_ours).unwrap_or_default();
    for phase in PHASES.iter().cycle() {
        let began = Instant::now();
        while began.elapsed() < STAY {
            if is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            stage.slice(ours, phase, pace.slice);
            stage.changes.news().iter().try_for_each(line)?;
        }
    }
    Ok(())
}
