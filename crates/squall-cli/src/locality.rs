//! `squall locality`: which cache lines a program's threads share, counted under emulation.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use squall_locality::emulator::INSTALL;
use squall_locality::lines::Rules;
use squall_locality::model::Model;
use squall_locality::report::{self, Report, Request};
use squall_locality::run::{self, Outcome};
use squall_locality::{MEMORY_MIB, Options, Window, entries_of, read};

use crate::output::{self, Failure};

#[derive(Args)]
pub(crate) struct LocalityArgs {
    /// Operations that each working thread does; figures are then given per operation, and what is steadily shared is told from what is
    /// not. Without, they are plain totals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    ops: Option<u64>,
    /// Which accesses count: `auto` (between marks, if the program has any, else all), `all`, `marks`, or a function's name, of
    /// whose calls those inside count.
    #[arg(long, value_name = "WINDOW", default_value = "auto")]
    window: String,
    /// With --ops and without a window: the first thread's operations count, too.
    #[arg(long)]
    with_main: bool,
    /// One JSON object on stdout, and nothing else.
    #[arg(long)]
    json: bool,
    /// Write a page with a heat map and the model's curve.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Exit with 1 if more than X accesses per operation are steadily write-shared (without --ops: if more than X in all go to
    /// write-shared lines), of all processes together; with 3 if that cannot be said, since not everything was counted.
    #[arg(long, value_name = "X")]
    fail_above: Option<f64>,
    /// Kill the program after so many seconds, report what it did until then, and exit with 1 (with 3 if --fail-above is given).
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Lines that are listed at most.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Bytes of a cache line: 64 or 128; the model's if not given.
    #[arg(long, value_name = "BYTES", value_parser = ["64", "128"])]
    line: Option<String>,
    /// The machine of the model.
    #[arg(long, value_name = "PRESET", default_value = "server", value_parser = PossibleValuesParser::new(Model::names()))]
    model: String,
    /// Nanoseconds of a transfer within a cluster.
    #[arg(long, value_name = "NS")]
    near: Option<f64>,
    /// Nanoseconds of a transfer between clusters.
    #[arg(long, value_name = "NS")]
    far: Option<f64>,
    /// Clusters from a topology, such as nodes:2,caches:2,cores:8,threads:2; from SQUALL_TOPOLOGY if that is set.
    #[arg(long, value_name = "LEVELS")]
    topology: Option<String>,
    /// Processors of the model's curve.
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2,4,8,16,32,64,128,256",
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    processors: Vec<u32>,
    /// Memory for the counts, in MiB; above that lines are sampled, and the report says so. Up to twice as much is taken, logs of mappings and
    /// blocks included.
    #[arg(long, value_name = "MIB", default_value_t = MEMORY_MIB, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    memory: u64,
    /// Do not preload the library that tells of heap blocks.
    #[arg(long)]
    no_preload: bool,
    /// The emulator; SQUALL_EMULATOR, or qemu-x86_64 or qemu-aarch64 on the path, if not given.
    #[arg(long, value_name = "PATH")]
    emulator: Option<PathBuf>,
    /// One more argument for the emulator.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    emulator_arg: Vec<OsString>,
    /// One more plugin for the emulator, with its arguments.
    #[arg(long, value_name = "PLUGIN", hide = true)]
    also: Vec<OsString>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(crate) fn run(args: &LocalityArgs) -> Result<(), Failure> {
    let model = model(args)?;
    if args.fail_above.is_some_and(f64::is_nan) {
        return Err(Failure::new("--fail-above: NaN is no limit"));
    }
    let (program, arguments) = args.program.split_first().ok_or_else(|| Failure::new("no program"))?;
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
    options.entries_max = entries_of(args.memory);
    options.timeout = timeout;
    options.stop = Some(Arc::clone(&told));
    options.alone = true;
    options.preload = !args.no_preload;
    options.emulator = args.emulator.clone();
    options.emulator_arguments = args.emulator_arg.clone();
    options.plugins = args.also.clone();
    // Stdout is for what was asked for.
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
    request.processors = args.processors.clone();
    request.lines_max = args.top;
    let report = report::report(&sources, &request);
    if report.processes.is_empty() {
        let path = run.emulator.path.display();
        return Err(Failure::new(format!(
            "{path} did not load the plugin, or ended before it could; what it said is above. Where that is that it cannot load: {INSTALL}"
        )));
    }
    give(args, &report)?;
    judge(args, &report)
}

/// Gives the report in the form that was asked for.
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

/// What becomes the number of the signal by which we are told to end: the program is ended then, and the report is of what it did until then.
/// A signal that is ignored (`nohup`) stays so, here and in the program.
fn told_to_end() -> Result<Arc<AtomicUsize>, Failure> {
    let told = Arc::new(AtomicUsize::new(0));
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for signal in [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(&status, *signal)) {
        signal_hook::flag::register_usize(signal, Arc::clone(&told), signal.unsigned_abs() as usize)
            .map_err(|error| Failure::new(format!("signal {signal}: {error}")))?;
    }
    Ok(told)
}

/// Whether a process whose `/proc/PID/status` this is ignores a signal: a bit for each, from 1 on, in hexadecimal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// The program is over, and what is left is to report: whoever tells us to end from now on ends us, as by default, once the run's files are
/// gone.
fn end_if_told(told: Arc<AtomicUsize>, folder: PathBuf) {
    told.store(0, Ordering::Relaxed);
    std::thread::spawn(move || {
        loop {
            if let Ok(signal @ 1..) = i32::try_from(told.load(Ordering::Relaxed)) {
                // What cannot be removed is left to whoever cleans up temporary files.
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

/// The exit status: that everything asked for ran, and shares no more than was allowed.
fn judge(args: &LocalityArgs, report: &Report) -> Result<(), Failure> {
    if let Some(limit) = args.fail_above {
        if !report.incomplete.is_empty() {
            let why = report.incomplete.join("; ");
            return Err(Failure::Undecided(format!(
                "whether more than {limit} is shared cannot be said: {why}"
            )));
        }
        let Some(found) = report.write_shared_of_all_processes() else {
            let why = "no thread worked, so that nothing is known of what they share";
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
        Outcome::Exited(0) => Ok(()),
        Outcome::TimedOut => Err(Failure::new("the program did not end in time, and was killed (--timeout)")),
        Outcome::Exited(status) => Err(Failure::new(format!("the program ended with status {status}"))),
        Outcome::Signal(signal) => Err(Failure::new(format!("the program died of signal {signal}"))),
        Outcome::Interrupted(signal) => {
            Err(Failure::new(format!("signal {signal} ended the run before the program did")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_off_the_mask() {
        let status = "Name:\tsquall\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(is_ignored(status, SIGHUP) && is_ignored(status, 13));
        assert!(!is_ignored(status, SIGINT) && !is_ignored(status, SIGTERM));
        assert!(!is_ignored("", SIGHUP) && !is_ignored("SigIgn:\tnone", SIGHUP));
    }
}
