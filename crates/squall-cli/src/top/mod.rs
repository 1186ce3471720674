//! `squall top PID`: shows and controls the objects of a running program through its inspection server.
//!
//! On a terminal it opens a screen (`screen.rs`; `state.rs` and `draw.rs` do not depend on a terminal). With
//! `--once` or without a terminal it prints a table. With `--json` it prints lines for scripts. With an
//! option that names an object it runs one command and ends (`deed.rs`).

mod deed;
mod draw;
mod keys;
mod print;
mod screen;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod watch;

use std::io::IsTerminal;
use std::time::Duration;

use clap::{Args, ValueEnum};
use squall::browse::protocol::{OBJECTS_MAX, SAMPLE_MS_MAX, Sort};
use squall::browse::{Client, ClientError, Target};

use crate::output::Failure;
use watch::Watch;

/// Maximum time to wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct TopArgs {
    /// The process, by its number or by the path of its socket. The program must call
    /// `squall::browse::serve()`.
    #[arg(value_name = "PID", value_parser = |text: &str| text.parse::<Target>())]
    target: Target,
    /// Print the objects once, as a table, and exit.
    #[arg(long)]
    once: bool,
    /// Print one JSON object per line, and no other text, to stdout: once with --once, else at every
    /// interval.
    #[arg(long)]
    json: bool,
    /// The sort key.
    #[arg(long, value_enum, default_value = "contention")]
    sort: Key,
    /// Polling interval in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    interval: u64,
    /// Maximum number of objects.
    #[arg(long, value_name = "N", default_value_t = OBJECTS_MAX as u64, value_parser = clap::value_parser!(u64).range(1..=OBJECTS_MAX as u64))]
    limit: u64,
    /// Show only objects whose interface name contains this text.
    #[arg(long, value_name = "TEXT")]
    interface: Option<String>,
    /// Count the calls of each shown object for this many milliseconds. Counted calls are slower.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=SAMPLE_MS_MAX))]
    sample: Option<u64>,
    #[command(flatten)]
    deed: DeedArgs,
}

/// A single command.
#[derive(Args)]
#[group(multiple = false)]
struct DeedArgs {
    /// Show one object in detail, with the decisions about it.
    #[arg(long, value_name = "ID")]
    detail: Option<String>,
    /// Show the decisions about an object, or about all objects, with their reasons.
    #[arg(long, value_name = "ID|all")]
    history: Option<String>,
    /// Show the state of the program's locality allocator, per processor and size.
    #[arg(long)]
    memory: bool,
    /// Set an attribute of an object.
    #[arg(long, num_args = 3, value_names = ["ID", "NAME", "VALUE"], allow_hyphen_values = true)]
    set: Option<Vec<String>>,
    /// Freeze the policy of an object, or of all objects: it changes nothing.
    #[arg(long, value_name = "ID|all")]
    freeze: Option<String>,
    /// Thaw the policy of an object, or of all objects.
    #[arg(long, value_name = "ID|all")]
    thaw: Option<String>,
    /// Swap an object to an implementation that the program registered.
    #[arg(long, num_args = 2, value_names = ["ID", "IMPLEMENTATION"])]
    swap: Option<Vec<String>>,
}

/// The sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Key {
    /// Calls per second, where they were counted.
    Calls,
    /// Contended steps per second.
    Contention,
    /// Bytes.
    Memory,
    /// Misses.
    Misses,
    /// Swaps.
    Swaps,
    /// Representatives.
    Reps,
    /// The id.
    Id,
}

impl Key {
    /// Returns the order to request from the program. The program does not know call rates; for them, misses
    /// are the best guess.
    fn asked(self) -> Sort {
        match self {
            Key::Calls | Key::Misses => Sort::Misses,
            Key::Contention => Sort::Contended,
            Key::Memory => Sort::Bytes,
            Key::Swaps => Sort::Swaps,
            Key::Reps => Sort::Reps,
            Key::Id => Sort::Id,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Key::Calls => "calls",
            Key::Contention => "contention",
            Key::Memory => "memory",
            Key::Misses => "misses",
            Key::Swaps => "swaps",
            Key::Reps => "representatives",
            Key::Id => "id",
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::new(error.to_string())
    }
}

pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    let mut client = Client::connect_within(&args.target, TIMEOUT)?;
    if let Some(deed) = deed::of(&args.deed)? {
        return deed::run(&mut client, &deed, args.json);
    }
    let mut watch = Watch::new(args.limit as usize, args.interface.clone());
    if args.json && !args.once {
        return print::stream(&mut client, &mut watch, args);
    }
    if args.json || args.once || !std::io::stdout().is_terminal() {
        return print::once(&mut client, &mut watch, args);
    }
    screen::run(client, watch, args)
}
