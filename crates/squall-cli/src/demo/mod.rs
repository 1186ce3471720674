//! `squall demo`, and `squall` without a command: an index of real texts, built by many threads in a map, and counters that adapt
//! while their load changes. `squall demo index` builds and asks the index alone, `squall demo count` counts the texts in objects of
//! every kind.
//!
//! - I1. What is kept in objects is compared with what one thread finds in plain variables; what differs makes the demo fail.
//! - I2. What is asked for goes to stdout and is the same wherever that leads; a bar shows the progress on a terminal, and complaints
//!   go to stderr.

mod adapt;
mod collect;
mod count;
mod index;
mod tell;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use squall_bench::env;

use crate::output::{Failure, line};
use collect::Collected;

/// Text that is kept in memory, unless told.
const MIB: u64 = 64;
/// What is read when no path is named.
const DEFAULT_PATHS: [&str; 2] = [".", "/usr/share"];
/// Laps of each row, at least; fewer only where they take too long.
const ROUNDS_MIN: usize = 3;
/// Laps of each row, at most; short ones are repeated so often, unless that takes long.
const ROUNDS_MAX: usize = 15;
/// No round but the least begins after so long.
const LAPS_TIME: Duration = Duration::from_secs(2);
/// No round at all begins after so long.
const LAPS_TIME_MAX: Duration = Duration::from_secs(20);
/// How long counters are shown that adapt, in seconds, unless told; and if others look on.
const SHOWN: u64 = 4;
const PIPED: u64 = 10;
const ON_TERMINAL: u64 = 30;
const SERVED: u64 = 60;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DemoArgs {
    #[command(subcommand)]
    what: Option<Part>,
    #[command(flatten)]
    texts: TextArgs,
    /// How long objects are shown that adapt, in seconds, unless told: 10, 30 on a terminal, 60 with --serve; 0: not at all.
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Take the time to look at the objects with `squall top`.
    #[arg(long)]
    serve: bool,
    /// Let nobody look at the objects meanwhile.
    #[arg(long, conflicts_with = "serve")]
    private: bool,
}

/// A part of the demo by itself. (A folder of such a name is read as `./index`.)
#[derive(Subcommand)]
enum Part {
    /// Build the index of all words, and answer which texts have a word; without a question, compare who builds it how fast.
    ///
    /// A word is a longest run of letters, digits and underscores; capital letters are as small ones.
    Index(IndexArgs),
    /// Count the words of the texts, with a call for each, in shared, distributed and adaptive objects, and compare.
    Count(TextArgs),
}

#[derive(Args)]
struct IndexArgs {
    #[command(flatten)]
    texts: TextArgs,
    /// Say which texts have this word, and how often; may be given several times.
    #[arg(long = "query", value_name = "WORD", value_parser = index::parse)]
    queries: Vec<String>,
}

#[derive(Args)]
struct TextArgs {
    /// Files and folders to read; this folder and /usr/share if there is none.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Threads that read; one for each processor, but two at least, unless told.
    #[arg(long, value_name = "N", value_parser = crate::parse_count)]
    threads: Option<usize>,
    /// Text that is kept in memory, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = MIB, value_parser = clap::value_parser!(u64).range(1..=4096))]
    mib: u64,
}

impl Default for DemoArgs {
    /// What is shown where nothing is asked for: soon over, and for nobody else to look at.
    fn default() -> DemoArgs {
        let texts = TextArgs { paths: Vec::new(), threads: None, mib: MIB };
        DemoArgs { what: None, texts, seconds: Some(SHOWN), serve: false, private: true }
    }
}

impl TextArgs {
    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| env::processors().len().max(2))
    }

    /// Reads the texts, and complains of what could not be read.
    fn read(&self) -> Result<Collected, Failure> {
        let defaults = || DEFAULT_PATHS.iter().map(PathBuf::from).collect();
        let paths: Vec<PathBuf> = if self.paths.is_empty() { defaults() } else { self.paths.clone() };
        let bar = Progress::new(self.mib << 20, "reading");
        let collected = collect::collect(&paths, self.mib << 20, &mut |bytes| bar.0.set_position(bytes));
        bar.clear();
        collected.complaints().iter().for_each(|complaint| eprintln!("squall: {complaint}"));
        match collected.texts.is_empty() {
            true => Err(Failure::new("there is no text to read in what was named")),
            false => Ok(collected),
        }
    }
}

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    match &args.what {
        None => run_all(args),
        Some(Part::Index(args)) => run_index(args),
        Some(Part::Count(args)) => {
            line(env::summary())?;
            count::run(args.read()?, args.threads())
        }
    }
}

/// The whole demo.
fn run_all(args: &DemoArgs) -> Result<(), Failure> {
    line("Squall: objects of a server that spread over the processors while they run.")?;
    line(env::summary())?;
    // For as long as the demo runs.
    let _server = if args.private { None } else { Some(serve()?) };
    let threads = args.texts.threads();
    let (texts, wrong) = index::show(args.texts.read()?, threads)?;
    let adapted = adapt::show(&texts, threads, args.seconds.unwrap_or_else(|| seconds(args)))?;
    print_more()?;
    wrong.or(adapted).map_or(Ok(()), |wrong| Err(Failure::new(wrong)))
}

/// The index alone. All that was named is asked for: a path without a text makes it fail, though the others are answered for.
fn run_index(args: &IndexArgs) -> Result<(), Failure> {
    let IndexArgs { texts, queries } = args;
    let mut collected = texts.read()?;
    let fruitless = std::mem::take(&mut collected.fruitless);
    if queries.is_empty() {
        line(env::summary())?;
        let (_, wrong) = index::show_all(collected, texts.threads())?;
        wrong.map_or(Ok(()), |wrong| Err(Failure::new(wrong)))?;
    } else {
        index::answer(collected, texts.threads(), queries)?;
    }
    match fruitless.first() {
        Some(path) if !texts.paths.is_empty() => Err(Failure::new(format!(
            "{} of the paths have no text that was read: {path:?}",
            fruitless.len()
        ))),
        _ => Ok(()),
    }
}

/// How long objects are shown that adapt, if nobody says.
fn seconds(args: &DemoArgs) -> u64 {
    match args.serve {
        true => SERVED,
        false if std::io::stdout().is_terminal() => ON_TERMINAL,
        false => PIPED,
    }
}

/// Lets others look at the objects.
fn serve() -> Result<squall::browse::Server, Failure> {
    let server = squall::browse::serve()
        .map_err(|error| Failure::new(format!("nobody can be let in to look at the objects: {error}")))?;
    line(format_args!(
        "Look at the objects, and steer them, in another terminal: squall top {}",
        std::process::id()
    ))?;
    Ok(server)
}

fn print_more() -> Result<(), Failure> {
    const MORE: [(&str, &str); 8] = [
        ("squall demo PATH...", "the same with texts of yours"),
        ("squall demo index PATH --query WORD", "which texts have a word, and how often"),
        ("squall demo count PATH...", "a call for every word, in objects of every kind"),
        ("squall demo --serve", "a minute to try `squall top` on it, in another terminal"),
        ("squall tour", "what the ground costs: per-processor data and read-copy-update"),
        ("squall bench --list", "the benchmark's cases; --json, --threads 1,2, --quick"),
        ("squall info", "the machine that was found, and in which mode each primitive runs"),
        ("squall stress objects", "tries to break what is promised, for as long as you like"),
    ];
    line("\nThere is more:")?;
    MORE.iter().try_for_each(|(command, what)| line(format_args!("  {command:<37} {what}")))
}

/// A table with numbers to the right, names to the left.
fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Progress on a terminal; nothing elsewhere.
struct Progress(ProgressBar);

impl Progress {
    fn new(length: u64, what: &'static str) -> Progress {
        // Drawn on stderr, and not at all where that is no terminal.
        let bar = ProgressBar::new(length).with_message(what);
        match ProgressStyle::with_template("{msg:22} {wide_bar} {percent} %") {
            Ok(style) => Progress(bar.with_style(style)),
            Err(_) => Progress(bar),
        }
    }

    fn clear(&self) {
        self.0.finish_and_clear();
    }
}
