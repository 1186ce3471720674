//! `squall top PID`: the objects of a running program, as its inspection shows them, and what can be done to them.
//!
//! On a terminal it is a screen (`screen.rs`, of which `state.rs` and `draw.rs` know no terminal). With `--once` or without
//! a terminal it is a table, with `--json` lines for scripts, and with one of the options that name an object it does one
//! thing and ends (`deed.rs`).

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

/// How long an answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct TopArgs {
    /// The process to look at, or the path of its socket. Its program enables that with `squall::browse::serve()`.
    #[arg(value_name = "PID", value_parser = |text: &str| text.parse::<Target>())]
    target: Target,
    /// Print the objects once, as a table, and end.
    #[arg(long)]
    once: bool,
    /// One JSON object per line, and nothing else on stdout: once with --once, else at every interval.
    #[arg(long)]
    json: bool,
    /// What comes first.
    #[arg(long, value_enum, default_value = "contention")]
    sort: Key,
    /// How often to look, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    interval: u64,
    /// At most so many objects.
    #[arg(long, value_name = "N", default_value_t = OBJECTS_MAX as u64, value_parser = clap::value_parser!(u64).range(1..=OBJECTS_MAX as u64))]
    limit: u64,
    /// Only objects whose interface's name contains this.
    #[arg(long, value_name = "TEXT")]
    interface: Option<String>,
    /// Count the calls of each object shown for so many milliseconds. Meanwhile each of its calls costs more.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=SAMPLE_MS_MAX))]
    sample: Option<u64>,
    #[command(flatten)]
    deed: DeedArgs,
}

/// One thing to do, instead of looking at all.
#[derive(Args)]
#[group(multiple = false)]
struct DeedArgs {
    /// Show one object in detail, and what was decided about it.
    #[arg(long, value_name = "ID")]
    detail: Option<String>,
    /// Show what was decided about an object, or about all, and why.
    #[arg(long, value_name = "ID|all")]
    history: Option<String>,
    /// Show what the program's locality allocator has, by processors and sizes.
    #[arg(long)]
    memory: bool,
    /// Set an attribute of an object.
    #[arg(long, num_args = 3, value_names = ["ID", "NAME", "VALUE"], allow_hyphen_values = true)]
    set: Option<Vec<String>>,
    /// Keep the policy of an object, or all, from changing anything.
    #[arg(long, value_name = "ID|all")]
    freeze: Option<String>,
    /// Let the policy of an object, or all, change it again.
    #[arg(long, value_name = "ID|all")]
    thaw: Option<String>,
    /// Swap an object for an implementation that its program registered.
    #[arg(long, num_args = 2, value_names = ["ID", "IMPLEMENTATION"])]
    swap: Option<Vec<String>>,
}

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Key {
    /// Calls a second, as far as they were counted.
    Calls,
    /// Contended steps a second.
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
    /// The order in which the program is asked for its objects. It does not know calls; what misses is called.
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
