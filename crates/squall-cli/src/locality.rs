//! `squall locality`: counts under emulation which cache lines the threads of a program share.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use squall_locality::emulator::INSTALL;
use squall_locality::lines::Rules;
use squall_locality::model::Model;
use squall_locality::report::{self, Report, Request};
use squall_locality::run::{self, Outcome};
use squall_locality::{MEMORY_MIB, Options, Switch, Window, entries_of, read};

use crate::output::{self, Failure};

#[derive(Args)]
pub(crate) struct LocalityArgs {
    /// Operations of each worker thread. Figures are then per operation, and steady sharing is separated from
    /// setup. Without it, figures are totals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    ops: Option<u64>,
    /// Accesses to count: `auto` (between marks if the program has marks, else all), `all`, `marks`, or the
    /// name of a function (accesses inside its calls).
    #[arg(long, value_name = "WINDOW", default_value = "auto")]
    window: String,
    /// Count from this signal on. Send it to this command, not to the program. Each further one begins
    /// another window.
    #[arg(long, value_name = "SIGNAL", conflicts_with = "window", value_parser = ["USR1", "USR2"])]
    from_signal: Option<String>,
    /// Count until this signal, which is sent to this command, too. If it is the signal that begins a window,
    /// each one turns counting on or off.
    #[arg(long, value_name = "SIGNAL", conflicts_with = "window", value_parser = ["USR1", "USR2"])]
    to_signal: Option<String>,
    /// With --ops and without a window: also count the operations of the first thread.
    #[arg(long)]
    with_main: bool,
    /// Print one JSON object, and no other text, to stdout.
    #[arg(long)]
    json: bool,
    /// Write an HTML page with a heat map and the curve of the model.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Exit with 1 if more than X accesses per operation are steadily write-shared, summed over all
    /// processes. Without --ops, X limits the total of accesses to write-shared lines. Exit with 3 if not
    /// everything was counted.
    #[arg(long, value_name = "X")]
    fail_above: Option<f64>,
    /// Kill the program after this many seconds, report what was counted, and exit with 1 (with 3 if
    /// --fail-above is given).
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Maximum number of lines to list.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Cache line size in bytes: 64 or 128. The default is that of the model.
    #[arg(long, value_name = "BYTES", value_parser = ["64", "128"])]
    line: Option<String>,
    /// The machine that the model assumes.
    #[arg(long, value_name = "PRESET", default_value = "server", value_parser = PossibleValuesParser::new(Model::names()))]
    model: String,
    /// Nanoseconds per transfer within a cluster.
    #[arg(long, value_name = "NS")]
    near: Option<f64>,
    /// Nanoseconds per transfer between clusters.
    #[arg(long, value_name = "NS")]
    far: Option<f64>,
    /// Clusters as a topology, such as nodes:2,caches:2,cores:8,threads:2. The default is SQUALL_TOPOLOGY, if
    /// set.
    #[arg(long, value_name = "LEVELS")]
    topology: Option<String>,
    /// Processor counts of the model's curve.
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2,4,8,16,32,64,128,256",
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    processors: Vec<u32>,
    /// Memory for the counts in MiB. Above it, lines are sampled, and the report says so. With logs of
    /// mappings and blocks, up to twice as much memory is used.
    #[arg(long, value_name = "MIB", default_value_t = MEMORY_MIB, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    memory: u64,
    /// Do not preload the library that records heap blocks.
    #[arg(long)]
    no_preload: bool,
    /// The emulator. The default is SQUALL_EMULATOR, else qemu-x86_64 or qemu-aarch64 from the path.
    #[arg(long, value_name = "PATH")]
    emulator: Option<PathBuf>,
    /// An additional argument for the emulator.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    emulator_arg: Vec<OsString>,
    /// An additional plugin for the emulator, with its arguments.
    #[arg(long, value_name = "PLUGIN", hide = true)]
    also: Vec<OsString>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(crate) fn run(args: &LocalityArgs) -> Result<(), Failure> {
    let model = model(args)?;
    if args.fail_above.is_some_and(f64::is_nan) {
        return Err(Failure::new("--fail-above: NaN is not a limit; give a number"));
    }
    let (program, arguments) = args
        .program
        .split_first()
        .ok_or_else(|| Failure::new("no program was given; name one after `--`"))?;
    let timeout = args.timeout.map(Duration::try_from_secs_f64).transpose();
    let timeout = timeout.map_err(|error| Failure::new(format!("--timeout: {error}")))?;
    let told = told_to_end()?;
    let mut options = Options::new(program);
    options.arguments = arguments.to_vec();
    options.window = match args.window.as_str() {
        "auto" => Window::Auto,
        "all" => Window::Whole,
        "marks" => Window::Marks,
        function => Window::Function(function.to_owned()),
    };
    let switch = switch(args)?;
    if let Some(switch) = &switch {
        options.window = Window::Switch(Arc::clone(switch));
    }
    options.entries_max = entries_of(args.memory);
    options.timeout = timeout;
    options.stop = Some(Arc::clone(&told));
    options.no_other_children = true;
    options.preload = !args.no_preload;
    options.emulator = args.emulator.clone();
    options.emulator_arguments = args.emulator_arg.clone();
    options.plugins = args.also.clone();
    // Stdout is reserved for the report.
    options.stdout_to_stderr = true;
    let run = run::run(&options).map_err(|error| Failure::new(error.to_string()))?;
    end_if_told(told, run.folder.clone());
    let sources = read::sources(&run.folder).map_err(|error| Failure::new(error.to_string()))?;
    let mut rules = Rules::new(args.ops, model.line_bytes);
    rules.with_main = args.with_main;
    let mut request = Request::new(rules, model);
    request.command = args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    request.emulator = run.emulator.version.clone();
    request.outcome = run.outcome.clone();
    request.seconds = run.seconds;
    request.pid = run.pid;
    if let Window::Function(name) = &options.window {
        request.function = Some(name.clone());
    }
    request.switched = switch.is_some();
    request.processors = args.processors.clone();
    request.lines_max = args.top;
    let report = report::report(&sources, &request);
    if report.processes.is_empty() {
        let path = run.emulator.path.display();
        return Err(Failure::new(format!(
            "{path} did not load the plugin or ended too early; its messages are above. If it cannot load plugins: {INSTALL}"
        )));
    }
    give(args, &report)?;
    judge(args, &report)
}

/// Prints the report in the requested form, and writes the HTML page if requested.
fn give(args: &LocalityArgs, report: &Report) -> Result<(), Failure> {
    if let Some(path) = &args.html {
        fs::write(path, report::page(report))
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    if args.json {
        output::line(serde_json::to_string(report).map_err(|error| Failure::new(error.to_string()))?)
    } else {
        output::line(report::table(report).trim_end())
    }
}

/// Installs handlers for SIGHUP, SIGINT and SIGTERM. Each stores the number of its signal in the returned
/// word. The run then ends the program and reports the counts so far. An ignored signal (`nohup`) stays
/// ignored, in this process and in the program.
fn told_to_end() -> Result<Arc<AtomicUsize>, Failure> {
    let told = Arc::new(AtomicUsize::new(0));
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for signal in [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(&status, *signal)) {
        signal_hook::flag::register_usize(signal, Arc::clone(&told), signal.unsigned_abs() as usize)
            .map_err(|error| Failure::new(format!("cannot handle signal {signal}: {error}")))?;
    }
    Ok(told)
}

/// Returns the switch that the signals of `--from-signal` and `--to-signal` turn, if there are any. The
/// thread that turns it ends with this process.
fn switch(args: &LocalityArgs) -> Result<Option<Arc<Switch>>, Failure> {
    let number =
        |name: &Option<String>| name.as_deref().map(|name| if name == "USR1" { SIGUSR1 } else { SIGUSR2 });
    let (from, to) = (number(&args.from_signal), number(&args.to_signal));
    if from.is_none() && to.is_none() {
        return Ok(None);
    }
    let switch = Arc::new(Switch::new(from.is_none()));
    let told: BTreeSet<i32> = [from, to].into_iter().flatten().collect();
    let mut signals = Signals::new(&told)
        .map_err(|error| Failure::new(format!("cannot handle the signals of a window: {error}")))?;
    let turned = Arc::clone(&switch);
    std::thread::spawn(move || {
        let mut on = from.is_none();
        for signal in signals.forever() {
            on = if from == to { !on } else { Some(signal) == from };
            turned.set(on);
        }
    });
    Ok(Some(switch))
}

/// Returns whether a process ignores `signal`. `status` is the text of its `/proc/PID/status`. The line
/// `SigIgn` has a hexadecimal mask. Its lowest bit stands for signal 1.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Starts a thread that handles signals after the program's end. On a signal the thread removes the run's
/// files and ends this process as the signal does by default.
fn end_if_told(told: Arc<AtomicUsize>, folder: PathBuf) {
    told.store(0, Ordering::Relaxed);
    std::thread::spawn(move || {
        loop {
            if let Ok(signal @ 1..) = i32::try_from(told.load(Ordering::Relaxed)) {
                // Files that cannot be removed are left to the cleanup of temporary files.
                let _ = fs::remove_dir_all(&folder);
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

fn model(args: &LocalityArgs) -> Result<Model, Failure> {
    let mut model = Model::preset(&args.model).map_err(|error| Failure::new(error.to_string()))?;
    let given = args.topology.clone().or_else(|| std::env::var("SQUALL_TOPOLOGY").ok());
    if let Some(topology) = given {
        model = model.with_topology(&topology).map_err(|error| Failure::new(error.to_string()))?;
    }
    model = model.with_latencies(args.near, args.far).map_err(|error| Failure::new(error.to_string()))?;
    if let Some(line) = &args.line {
        model.line_bytes = if line == "128" { 128 } else { 64 };
    }
    Ok(model)
}

/// Checks the report against `--fail-above` and the outcome of the program.
fn judge(args: &LocalityArgs, report: &Report) -> Result<(), Failure> {
    if let Some(limit) = args.fail_above {
        if !report.incomplete.is_empty() {
            let why = report.incomplete.join("; ");
            return Err(Failure::Undecided(format!("the check against {limit} is undecided: {why}")));
        }
        let Some(found) = report.write_shared_of_all_processes() else {
            let why = "no worker thread was counted";
            return Err(Failure::Undecided(why.to_owned()));
        };
        if found > limit {
            let of = if report.processes.len() > 1 { " of all processes" } else { "" };
            let what = if report.steady {
                format!("{found:.4} accesses per operation{of} are steadily write-shared")
            } else {
                format!("{found} accesses{of} go to write-shared lines")
            };
            return Err(Failure::new(format!("{what}, more than {limit}")));
        }
    }
    match report.outcome {
        Outcome::Exited(0) | Outcome::Stopped(_) => Ok(()),
        Outcome::TimedOut => Err(Failure::new("the program did not end in time and was killed (--timeout)")),
        Outcome::Exited(status) => Err(Failure::new(format!("the program ended with status {status}"))),
        Outcome::Signal(signal) => Err(Failure::new(format!("the program died of signal {signal}"))),
        Outcome::Interrupted(signal) => Err(Failure::new(format!(
            "signal {signal} ended the run before the program did, which was killed"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tsquall\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(is_ignored(status, SIGHUP) && is_ignored(status, 13));
        assert!(!is_ignored(status, SIGINT) && !is_ignored(status, SIGTERM));
        assert!(!is_ignored("", SIGHUP) && !is_ignored("SigIgn:\tnone", SIGHUP));
    }
}
