//! The options of `squall top`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use squall::browse::protocol::{OBJECTS_MAX, RECORDS_MS_MAX, SAMPLE_MS_MAX, Sort};
use squall::browse::{ClientError, Target};

use crate::output::Failure;

/// Maximum time to wait for an answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Time by which the second request for records may be late, in milliseconds.
pub(super) const LATE_MS: u64 = 5_000;
/// Longest span of records, in seconds.
const SECONDS_MAX: u64 = (RECORDS_MS_MAX - LATE_MS) / 1000;

#[derive(Args)]
pub(crate) struct TopArgs {
    /// The process, by its number or by the path of its socket. The program must call
    /// `squall::browse::serve()`.
    #[arg(value_name = "PID", value_parser = |text: &str| text.parse::<Target>())]
    pub(super) target: Target,
    /// Print the objects once, as a table, and exit. On a terminal the table is as wide as the terminal: less
    /// important columns are left out, and long names are cut. Elsewhere it has its full width.
    #[arg(long)]
    pub(super) once: bool,
    /// Print one JSON object per line, and no other text, to stdout: once with --once, else at every
    /// interval.
    #[arg(long)]
    pub(super) json: bool,
    /// The sort key.
    #[arg(long, value_enum, default_value = "contention")]
    pub(super) sort: Key,
    /// Polling interval in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    pub(super) interval: u64,
    /// Maximum number of objects.
    #[arg(long, value_name = "N", default_value_t = OBJECTS_MAX as u64, value_parser = clap::value_parser!(u64).range(1..=OBJECTS_MAX as u64))]
    pub(super) limit: u64,
    /// Show only objects whose interface name contains this text.
    #[arg(long, value_name = "TEXT")]
    pub(super) interface: Option<String>,
    /// Show only objects with a name that contains this text.
    #[arg(long, value_name = "TEXT")]
    pub(super) name: Option<String>,
    /// With --detail or --history: add the readings, counts and costs that each decision rests on.
    #[arg(long)]
    pub(super) readings: bool,
    /// Count the calls of each shown object for this many milliseconds. Counted calls are slower.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=SAMPLE_MS_MAX))]
    pub(super) sample: Option<u64>,
    /// With --records: the number of seconds for which the program records.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 1, requires = "records", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    pub(super) seconds: u64,
    #[command(flatten)]
    pub(super) command: CommandArgs,
}

/// A single command.
#[derive(Args)]
#[group(multiple = false)]
pub(super) struct CommandArgs {
    /// Show one object in detail, with the decisions about it.
    #[arg(long, value_name = "ID")]
    pub(super) detail: Option<String>,
    /// Show the decisions about an object, or about all objects, with their reasons.
    #[arg(long, value_name = "ID|all")]
    pub(super) history: Option<String>,
    /// Show the state of the program's locality allocator, per processor and size.
    #[arg(long)]
    pub(super) memory: bool,
    /// Show the nodes of the program, their figures, and the members and names of their groups.
    #[arg(long)]
    pub(super) nodes: bool,
    /// Show the members of pools in the program, with their state, elements and operations.
    #[arg(long)]
    pub(super) pools: bool,
    /// Let the program record for a while the waits for locks, the changes of gates, swaps, decisions and its
    /// own events, and show their sums. The program needs the feature `monitors` of squall.
    #[arg(long)]
    pub(super) records: bool,
    /// Set an attribute of an object.
    #[arg(long, num_args = 3, value_names = ["ID", "NAME", "VALUE"], allow_hyphen_values = true)]
    pub(super) set: Option<Vec<String>>,
    /// Unset an attribute of an object: the value of its class, or the default, applies again.
    #[arg(long, num_args = 2, value_names = ["ID", "NAME"])]
    pub(super) unset: Option<Vec<String>>,
    /// Freeze the policy of an object, or of all objects: it changes nothing.
    #[arg(long, value_name = "ID|all")]
    pub(super) freeze: Option<String>,
    /// Thaw the policy of an object, or of all objects.
    #[arg(long, value_name = "ID|all")]
    pub(super) thaw: Option<String>,
    /// Swap an object to an implementation that the program registered.
    #[arg(long, num_args = 2, value_names = ["ID", "IMPLEMENTATION"])]
    pub(super) swap: Option<Vec<String>>,
    /// Deny other processes a method of an exported object. Calls that run go on.
    #[arg(long, num_args = 2, value_names = ["ID", "METHOD"])]
    pub(super) deny: Option<Vec<String>>,
    /// Allow other processes a method of an exported object again.
    #[arg(long, num_args = 2, value_names = ["ID", "METHOD"])]
    pub(super) allow: Option<Vec<String>>,
    /// End a connection of another process to an exported object. --detail lists them with their numbers.
    #[arg(long, num_args = 2, value_names = ["ID", "CALLER"])]
    pub(super) disconnect: Option<Vec<String>>,
}

/// The sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Key {
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
    pub(super) fn asked(self) -> Sort {
        match self {
            Key::Calls | Key::Misses => Sort::Misses,
            Key::Contention => Sort::Contended,
            Key::Memory => Sort::Bytes,
            Key::Swaps => Sort::Swaps,
            Key::Reps => Sort::Reps,
            Key::Id => Sort::Id,
        }
    }

    pub(super) fn name(self) -> &'static str {
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
