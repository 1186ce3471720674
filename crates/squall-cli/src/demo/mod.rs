//! `squall demo`, and `squall` without a command: a story of one minute about a service under changing load.
//! `squall demo index` builds an index of texts in each map and answers queries. `squall demo count` counts
//! texts in objects of each kind. `squall demo tsp` proves the shortest tour of a travelling salesman.
//!
//! - I1. The content of the objects is compared with the truth: the work of the threads, or the result of one
//!   thread with plain variables. A difference makes the demo fail.
//! - I2. Results go to stdout. Only colours and the wait for a key depend on its kind. A progress bar appears
//!   only on a terminal. Complaints go to stderr.

mod collect;
mod count;
mod index;
mod laps;
mod progress;
mod story;
mod tell;
mod tsp;

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

#[derive(Args, Default)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DemoArgs {
    #[command(subcommand)]
    what: Option<Part>,
    #[command(flatten)]
    story: story::StoryArgs,
}

/// A demo on texts, or on a problem.
#[derive(Subcommand)]
enum Part {
    /// Build the word index. With --query, answer queries; otherwise compare the maps.
    ///
    /// A word is a maximal run of letters, digits and underscores. Upper and lower case are the same.
    Index(IndexArgs),
    /// Count the words with one call per word, in shared, distributed and adaptive objects, and compare.
    Count(TextArgs),
    /// Prove the shortest tour of a travelling salesman, over the queue in a form, and compare the forms.
    Tsp(tsp::TspArgs),
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
        match (collected.texts.len(), collected.bytes) {
            (0, _) => Err(Failure::new("there is no text to read below the named paths")),
            (1, 0) => Err(Failure::new("there is no text to read: the only file is empty")),
            (count, 0) => Err(Failure::new(format!("there is no text to read: all {count} files are empty"))),
            _ => Ok(collected),
        }
    }
}

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    match &args.what {
        None => story::run(&args.story),
        Some(Part::Index(args)) => run_index(args),
        Some(Part::Count(args)) => {
            let collected = args.read()?;
            line(env::summary())?;
            count::run(collected, args.threads())
        }
        Some(Part::Tsp(args)) => tsp::run(args),
    }
}

/// Runs the index alone. If a named path contributed no text, the other paths are answered and the command
/// fails.
fn run_index(args: &IndexArgs) -> Result<(), Failure> {
    let IndexArgs { texts, queries } = args;
    let mut collected = texts.read()?;
    let fruitless = std::mem::take(&mut collected.fruitless);
    if queries.is_empty() {
        line(env::summary())?;
        index::show(collected, texts.threads())?;
    } else {
        index::answer(collected, texts.threads(), queries)?;
    }
    match fruitless.first() {
        Some(path) if !texts.paths.is_empty() => Err(Failure::new(format!(
            "{} of the paths contributed no text, such as {path:?}; name files that have text",
            fruitless.len()
        ))),
        _ => Ok(()),
    }
}
