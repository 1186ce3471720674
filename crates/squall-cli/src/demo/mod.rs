//! `squall demo`, and `squall` without a command: many threads build an index of real texts in a map, and
//! counters adapt while their load changes. `squall demo index` builds and queries only the index. `squall
//! demo count` counts the texts in objects of each kind.
//!
//! - I1. The content of the objects is compared with the result of one thread with plain variables. A
//!   difference makes the demo fail.
//! - I2. Results go to stdout and do not depend on its kind. A progress bar appears only on a terminal.
//!   Complaints go to stderr.

mod adapt;
mod collect;
mod count;
mod index;
mod laps;
mod progress;
mod tell;

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use squall_bench::env;

use crate::output::{Failure, line};
use collect::Collected;
use progress::Progress;

/// Default limit of the text kept in memory, in MiB.
const MIB: u64 = 64;
/// The paths that are read if no path is named.
const DEFAULT_PATHS: [&str; 2] = [".", "/usr/share"];
/// Default durations of the adaptive part in seconds: without a command, without a terminal, on a terminal,
/// and with `--serve`.
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
    /// Duration of the adaptive part in seconds; 0 skips it. The default is 10, or 30 on a terminal, or 60
    /// with --serve.
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Leave enough time to watch the objects with `squall top`.
    #[arg(long)]
    serve: bool,
    /// Do not let other processes inspect the objects.
    #[arg(long, conflicts_with = "serve")]
    private: bool,
}

/// A part of the demo on its own. (A folder with the same name is read as `./index`.)
#[derive(Subcommand)]
enum Part {
    /// Build the word index. With --query, answer queries; otherwise compare the maps.
    ///
    /// A word is a maximal run of letters, digits and underscores. Upper and lower case are the same.
    Index(IndexArgs),
    /// Count the words with one call per word, in shared, distributed and adaptive objects, and compare.
    Count(TextArgs),
}

#[derive(Args)]
struct IndexArgs {
    #[command(flatten)]
    texts: TextArgs,
    /// Print the texts that contain this word, with the number of occurrences. May be repeated.
    #[arg(long = "query", value_name = "WORD", value_parser = index::parse)]
    queries: Vec<String>,
}

#[derive(Args)]
struct TextArgs {
    /// Files and folders to read. The default is the current folder and /usr/share.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Number of threads. The default is one per processor, but at least 2.
    #[arg(long, value_name = "N", value_parser = crate::args::parse_count)]
    threads: Option<usize>,
    /// Maximum size of the text kept in memory, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = MIB, value_parser = clap::value_parser!(u64).range(1..=4096))]
    mib: u64,
}

impl Default for DemoArgs {
    /// The demo without a command: short, and without inspection by other processes.
    fn default() -> DemoArgs {
        let texts = TextArgs { paths: Vec::new(), threads: None, mib: MIB };
        DemoArgs { what: None, texts, seconds: Some(SHOWN), serve: false, private: true }
    }
}

impl TextArgs {
    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| env::processors().len().max(2))
    }

    /// Reads the texts and prints the skipped paths to stderr.
    fn read(&self) -> Result<Collected, Failure> {
        let defaults = || DEFAULT_PATHS.iter().map(PathBuf::from).collect();
        let paths: Vec<PathBuf> = if self.paths.is_empty() { defaults() } else { self.paths.clone() };
        let bar = Progress::new(self.mib << 20, "reading");
        let collected = collect::collect(&paths, self.mib << 20, &mut |bytes| bar.0.set_position(bytes));
        bar.clear();
        collected.complaints().iter().for_each(|complaint| eprintln!("squall: {complaint}"));
        match collected.texts.is_empty() {
            true => Err(Failure::new("there is no text to read below the named paths")),
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

/// Runs the whole demo.
fn run_all(args: &DemoArgs) -> Result<(), Failure> {
    line("Squall: shared objects for servers that scale with the number of processors.")?;
    line(env::summary())?;
    // Served while the demo runs.
    let _server = if args.private { None } else { Some(serve()?) };
    let threads = args.texts.threads();
    let (texts, wrong) = index::show(args.texts.read()?, threads)?;
    let adapted = adapt::show(&texts, threads, args.seconds.unwrap_or_else(|| seconds(args)))?;
    print_more()?;
    wrong.or(adapted).map_or(Ok(()), |wrong| Err(Failure::new(wrong)))
}

/// Runs the index alone. If a named path contributed no text, the other paths are answered and the command
/// fails.
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
            "{} of the paths contributed no text, such as {path:?}",
            fruitless.len()
        ))),
        _ => Ok(()),
    }
}

/// Returns the default duration of the adaptive part.
fn seconds(args: &DemoArgs) -> u64 {
    match args.serve {
        true => SERVED,
        false if std::io::stdout().is_terminal() => ON_TERMINAL,
        false => PIPED,
    }
}

/// Lets other processes inspect the objects.
fn serve() -> Result<squall::browse::Server, Failure> {
    let server = squall::browse::serve().map_err(|error| {
        Failure::new(format!("cannot serve inspection of the objects: {error}; --private runs without it"))
    })?;
    line(format_args!(
        "To watch and control the objects, run in another terminal: squall top {}",
        std::process::id()
    ))?;
    Ok(server)
}

fn print_more() -> Result<(), Failure> {
    const MORE: [(&str, &str); 8] = [
        ("squall demo PATH...", "this demo with your own texts"),
        ("squall demo index PATH --query WORD", "the texts that contain a word"),
        ("squall demo count PATH...", "one call per word, in each kind of object"),
        ("squall demo --serve", "one minute to try `squall top` in another terminal"),
        ("squall tour", "the cost of per-processor data and of protected reads (RCU)"),
        ("squall bench --list", "all benchmark cases; options --json, --threads 1,2, --quick"),
        ("squall info", "the detected machine and the mode of each primitive"),
        ("squall stress objects", "a stress test of the objects; --seconds sets its duration"),
    ];
    line("\nMore commands:")?;
    MORE.iter().try_for_each(|(command, what)| line(format_args!("  {command:<37} {what}")))
}
