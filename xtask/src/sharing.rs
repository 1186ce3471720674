//! `cargo run -p xtask -- sharing`: counts accesses to lines that several threads write, and holds them against what
//! the documentation promises.
//!
//! Idea: that an operation scales is a fact about which lines it touches, and that can be counted exactly on any
//! machine. `squall locality` runs `squall loop` under emulation, on a virtual topology of [`VPS`] processors, and fails by
//! itself where more is shared than was allowed (`--fail-above`).
//!
//! - I1. A claim in [`CLAIMS`] is checked at every number of threads asked for, none above [`VPS`], so that each thread
//!   has a virtual processor of its own.
//! - I2. Some claims are that sharing *is* there: an instrument that always reads zero fails.
//! - I3. With `--both`, a cross-check (`tools/sharing`, a few hundred lines of C that share nothing with the profiler)
//!   is loaded into the same run, and each of its figures has to be the profiler's, to the last place that it prints. An access that crosses
//!   from line to line is two to the profiler, which says how many it has of them, and one to the cross-check: these are taken off.
//!   So it is for the programs of [`KNOWN`], too, and for every other instrument that is named (`--cross-check`). Cross-checks speak version 1 of
//!   the emulator's interface: from [`REFUSES_1`] on they are skipped, which is said, and the profiler counts alone.
//!
//! Not promised: anything about restartable sequences themselves. Emulation has none, so the count is of the atomic
//! fallback, which touches the same words. Nor about what is the emulation's: its threads are slow and take turns on
//! few processors, so that those who are done early sleep while others work and the reclaimer clears up behind them, and
//! glibc's allocator would give several of them one arena. Both are told otherwise ([`AS_ON_A_LARGE_MACHINE`]).
//! What depends on the emulator's turns is counted again, and all counts are printed ([`Claim::tries`]).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::shell::{self, Outcome};

/// The virtual machine, and its processors.
const TOPOLOGY: &str = "nodes:2,caches:2,cores:8,threads:2";
const VPS: u32 = 64;

/// What a machine of [`VPS`] processors would bring by itself: an arena for each thread, and threads that run at once, so
/// that each reclaims what it retired.
pub(crate) const AS_ON_A_LARGE_MACHINE: &[(&str, &str)] =
    &[("GLIBC_TUNABLES", "glibc.malloc.arena_max=512"), ("SQUALL_RECLAIMER", "off")];

/// What `sharing` can be asked for.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "2,8,32,64")]
    threads: Vec<u32>,
    /// Operations of each thread
    #[arg(long, default_value_t = 50_000)]
    ops: u64,
    /// A binary to count in place of the `squall` that is built
    #[arg(long)]
    squall: Option<PathBuf>,
    /// Counts each run by the cross-check, too, those of the known programs among them, and fails where the two disagree
    #[arg(long)]
    both: bool,
    /// One more cross-check: the source of a plugin in C that takes `ops=N` and prints a line of the same form
    #[arg(long, value_name = "FILE", requires = "both")]
    cross_check: Vec<PathBuf>,
    /// Only this case; `known` for the known programs
    #[arg(long)]
    case: Option<String>,
}

/// What is promised of one subject of one case.
#[derive(Debug)]
struct Claim {
    case: &'static str,
    /// Of its variants the first, if none is named.
    variant: Option<&'static str>,
    subject: &'static str,
    promise: Promise,
    /// So many times the operations that are asked for: where set-up is long.
    times: u64,
    /// With more threads it is not counted.
    most_threads: u32,
}

const fn claim(case: &'static str, subject: &'static str, promise: Promise) -> Claim {
    Claim { case, variant: None, subject, promise, times: 1, most_threads: VPS }
}

impl Claim {
    const fn of(self, variant: &'static str, times: u64, most_threads: u32) -> Claim {
        Claim { variant: Some(variant), times, most_threads, ..self }
    }

    /// The case, and its variant.
    fn name(&self) -> String {
        self.variant.map_or(self.case.to_owned(), |variant| format!("{} {variant}", self.case))
    }

    fn adapts(&self) -> bool {
        self.subject == "squall-adaptive"
    }

    /// How often it may be counted. When the thread of the policies has its turn, and the form grows, is the emulator's doing.
    fn tries(&self) -> u32 {
        if self.adapts() { 4 } else { self.promise.tries() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Promise {
    /// No line that another thread writes is touched, set-up aside.
    Local,
    /// The same, but for memory that comes and goes with the objects: allocator, tables and grace periods now and then. Whoever moves grace
    /// periods on looks at what the others write, for all of them.
    LocalButForMemory,
    /// At least one access of each operation goes to a line that another thread writes.
    Shared,
}

const CLAIMS: &[Claim] = &[
    claim("call", "squall", Promise::Local),
    claim("counter", "squall-distributed", Promise::Local),
    claim("counter", "squall-adaptive", Promise::Local),
    claim("counter", "squall-shared", Promise::Shared),
    claim("counter", "atomic", Promise::Shared),
    claim("lifecycle", "squall", Promise::LocalButForMemory),
    claim("rcu-read", "squall", Promise::Local),
    claim("rwlock", "squall", Promise::Local),
    claim("rwlock", "std-rwlock", Promise::Shared),
    claim("request-counter", "squall-distributed", Promise::Local),
    claim("request-counter", "squall-shared", Promise::Shared),
    claim("cell", "squall-shared", Promise::Local),
    claim("cell", "squall-distributed", Promise::Local),
    claim("cell", "squall-embedded", Promise::Local),
    claim("cell", "std-rwlock", Promise::Shared),
    claim("map-get", "squall-table", Promise::Local),
    claim("map-get", "squall-central", Promise::Local),
    claim("map-get", "squall-replicated", Promise::Local),
    claim("map-get", "squall-locked", Promise::Shared),
    claim("alloc", "squall", Promise::Local),
    // Slabs that are empty and filled again in turn. With more threads the emulator's few processors run each so seldom that its VP is taken for
    // an idle one, and what that keeps is given back.
    claim("alloc", "squall", Promise::Local).of("burst-256", 5, 8),
    claim("percpu", "squall", Promise::Local),
    claim("percpu", "padded", Promise::Local),
    claim("percpu", "atomic", Promise::Shared),
    claim("percpu", "unpadded", Promise::Shared),
];

/// The known programs of the profiler's tests (`examples/known.rs`), and the most threads that each is for. Not those that end before their
/// threads do, and not `many`, whose threads come one after another: there the cross-check takes those of one number for one.
const KNOWN: &[(&str, u32)] = &[
    ("shared", VPS),
    ("padded", VPS),
    ("unpadded", VPS),
    ("fields", 2),
    ("rwlock", 4),
    ("queue", 2),
    ("mutex-map", 4),
    ("arc", VPS),
    ("malloc", VPS),
    ("spin", 4),
    ("clock", 4),
    ("memory", VPS),
];

/// The first version of the emulator that refuses plugins of version 1 of its interface.
const REFUSES_1: (u32, u32) = (9, 0);

/// What the instrument counted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Count {
    threads: u32,
    accesses: f64,
    /// Those of them that are the second of one that crosses from line to line.
    crossing: f64,
    steady: f64,
    transfers: f64,
}

impl Promise {
    /// The figures are printed with four places; less than half of the last is zero.
    const ZERO: f64 = 0.000_05;
    /// Set-up and the two barriers, in transfers per operation.
    const SETUP: f64 = 0.02;
    /// The same where memory comes and goes.
    const MEMORY: f64 = 0.1;
    /// And what moving grace periods on takes, in accesses per operation.
    const GRACE: f64 = 0.01;
    /// What a shared operation shares, a little less than once for the odd thread that runs alone.
    const ONCE: f64 = 0.9;

    /// How often it may be counted. Where grace periods come in, the emulator's few processors do: it may keep one thread
    /// inside an operation for so long that another looks at its line again and again.
    fn tries(self) -> u32 {
        match self {
            Promise::Local | Promise::Shared => 1,
            Promise::LocalButForMemory => 2,
        }
    }

    fn kept(self, count: &Count) -> bool {
        match self {
            Promise::Local => count.steady < Promise::ZERO && count.transfers <= Promise::SETUP,
            Promise::LocalButForMemory => {
                count.steady <= Promise::GRACE && count.transfers <= Promise::MEMORY
            }
            Promise::Shared => count.steady >= Promise::ONCE,
        }
    }
}

/// Counts, and prints a table.
///
/// # Errors
/// When a promise is not kept, or a count cannot be made though the instrument is here.
pub(crate) fn command(options: &Options) -> Result<()> {
    match count_all(options)? {
        Outcome::Passed => Ok(()),
        Outcome::Skipped(why) => {
            println!("SKIP: sharing: {why}");
            Ok(())
        }
    }
}

fn count_all(options: &Options) -> Result<Outcome> {
    if !has_emulator() {
        return Ok(Outcome::Skipped(format!("{} is not installed", emulator())));
    }
    let checks = cross_checks(options)?;
    ensure!(
        options.threads.iter().all(|threads| *threads <= VPS),
        "at most {VPS} threads: one on each processor"
    );
    let squall = match &options.squall {
        Some(path) => path.clone(),
        None => build()?,
    };
    println!(
        "{:15} {:18} {:>7} {:>11} {:>16} {:>16}",
        "case", "subject", "threads", "accesses", "write-shared", "transfers <="
    );
    let is_wanted = |name: &str| options.case.as_deref().is_none_or(|case| case == name);
    if options.both && is_wanted("known") {
        count_known(&squall, options, &checks)?;
    }
    let mut broken = Vec::new();
    for claim in CLAIMS.iter().filter(|claim| is_wanted(claim.case)) {
        for threads in options.threads.iter().filter(|threads| **threads <= claim.most_threads) {
            let (case, subject) = (&claim.name(), claim.subject);
            let mut tries = claim.tries();
            loop {
                let (count, kept) = count(&squall, claim, *threads, options.ops, &checks)?;
                tries -= 1;
                let mark = match (kept, tries) {
                    (true, _) => "",
                    (false, 0) => "  BROKEN",
                    (false, _) => "  again",
                };
                print(&count, case, subject, mark);
                if kept {
                    break;
                }
                if tries == 0 {
                    broken.push(format!("{case} {subject} at {threads} threads is not {:?}", claim.promise));
                    break;
                }
            }
        }
    }
    if !broken.is_empty() {
        bail!("{}", broken.join("; "));
    }
    Ok(Outcome::Passed)
}

fn emulator() -> String {
    format!("qemu-{}", std::env::consts::ARCH)
}

/// The variable that names another.
const EMULATOR: &str = "SQUALL_EMULATOR";

/// Whether there is an emulator to run `squall locality` with.
pub(crate) fn has_emulator() -> bool {
    shell::which(&emulator()).is_some() || std::env::var_os(EMULATOR).is_some()
}

/// What the emulator says its version is.
fn emulators_version() -> Result<String> {
    let program = std::env::var_os(EMULATOR).unwrap_or_else(|| emulator().into());
    let output = Command::new(&program).arg("--version").output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let version = version(&said).with_context(|| format!("{} says no version: {said}", program.display()))?;
    Ok(version.to_owned())
}

/// The version in a text like `qemu-x86_64 version 7.2.22 (Debian …)`.
fn version(said: &str) -> Option<&str> {
    said.split_once("version ")?.1.split_whitespace().next()
}

/// Whether an emulator of this version loads plugins of version 1.
fn loads_version_1(version: &str) -> bool {
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < REFUSES_1
}

/// Builds `squall` as users do.
pub(crate) fn build() -> Result<PathBuf> {
    shell::run(shell::cargo().args(["build", "--quiet", "--release", "-p", "squall-cli"]))?;
    Ok(shell::target_dir().join("release").join("squall"))
}

/// Counts the known programs by all instruments, and prints what they agree on.
fn count_known(squall: &Path, options: &Options, checks: &[PathBuf]) -> Result<()> {
    let mut build = shell::cargo();
    build.args(["build", "--quiet", "--release", "-p", "squall-locality", "--example", "known"]);
    shell::run(&mut build)?;
    let program = shell::target_dir().join("release").join("examples").join("known");
    // Those that take turns take long for it.
    let ops = options.ops.min(2_000);
    for (name, most) in KNOWN {
        let mut counts: Vec<u32> = options.threads.iter().map(|threads| *threads.min(most)).collect();
        counts.dedup();
        for threads in &counts {
            let mut command = locality(squall, ops, checks);
            command.arg("--").arg(&program).args([*name, &threads.to_string(), &ops.to_string()]);
            let (count, others) = figures(&mut command, checks.len())?.0;
            agree(&command, &count, &others, *threads, *threads)?;
            print(&count, "known", name, "");
        }
    }
    Ok(())
}

fn print(count: &Count, case: &str, subject: &str, mark: &str) {
    let Count { threads, accesses, steady, transfers, .. } = count;
    println!("{case:15} {subject:18} {threads:7} {accesses:11.2} {steady:16.4} {transfers:16.4}{mark}");
}

/// Compiles the cross-checks that are asked for; where they lie. None, and a line that says so, where the emulator loads none.
fn cross_checks(options: &Options) -> Result<Vec<PathBuf>> {
    if options.both {
        let version = emulators_version()?;
        if !loads_version_1(&version) {
            println!("SKIP sharing: the cross-checks speak version 1, which QEMU {version} refuses");
            return Ok(Vec::new());
        }
    }
    let ours = options.both.then(|| shell::root().join("tools").join("sharing").join("sharing.c"));
    ours.into_iter().chain(options.cross_check.iter().cloned()).enumerate().map(cross_check).collect()
}

fn cross_check((at, source): (usize, PathBuf)) -> Result<PathBuf> {
    let folder = shell::target_dir().join("sharing");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let library = folder.join(format!("libsharing-{at}.so"));
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-std=gnu11", "-O2", "-shared", "-fPIC", "-o"]).arg(&library);
    if at == 0 {
        // Our own.
        command.args(["-Wall", "-Wextra", "-Werror"]);
    }
    shell::run(command.arg(source))?;
    Ok(library)
}

/// To count what follows. With cross-checks, all instruments count all accesses of all threads but the main one; else those between the
/// program's marks count.
fn locality(squall: &Path, ops: u64, checks: &[PathBuf]) -> Command {
    let mut command = Command::new(squall);
    command.args(["locality", "--json", "--no-preload", "--top", "0", "--ops", &ops.to_string()]);
    // What many threads make and end is on many lines.
    command.args(["--memory", "3072"]);
    if !checks.is_empty() {
        command.args(["--window", "all"]);
    }
    for check in checks {
        command.args(["--also", &format!("{},ops={ops}", check.display())]);
    }
    command.envs(AS_ON_A_LARGE_MACHINE.iter().copied()).env("SQUALL_TOPOLOGY", TOPOLOGY);
    command
}

/// What a run counted, by the profiler and by so many cross-checks.
type Figures = (Count, Vec<Count>);

/// The figures of a run, and how it ended.
fn figures(command: &mut Command, checks: usize) -> Result<(Figures, std::process::Output)> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = serde_json::from_slice(&output.stdout)
        .ok()
        .and_then(|report| counted(&report))
        .with_context(|| format!("no count from {command:?}:\n{said}"))?;
    let others: Vec<Count> = said.lines().filter_map(parse).collect();
    ensure!(
        others.len() == checks,
        "{} counts by {checks} cross-checks from {command:?}:\n{said}",
        others.len()
    );
    Ok(((count, others), output))
}

/// Checks that so many threads worked, and that every cross-check counted the same.
fn agree(command: &Command, count: &Count, others: &[Count], least: u32, most: u32) -> Result<()> {
    ensure!(
        (least..=most).contains(&count.threads),
        "{} threads ran the loop, not {least}: {command:?}",
        count.threads
    );
    for other in others {
        ensure!(count.is_as(other), "{command:?}: counted {count:?}, and by a cross-check {other:?}");
    }
    Ok(())
}

/// Counts one loop, and says whether the claim is kept.
fn count(squall: &Path, claim: &Claim, threads: u32, ops: u64, checks: &[PathBuf]) -> Result<(Count, bool)> {
    let ops = ops * claim.times;
    let mut command = locality(squall, ops, checks);
    let limit = match claim.promise {
        Promise::Local => Some(0.0),
        Promise::LocalButForMemory => Some(Promise::GRACE),
        Promise::Shared => None,
    };
    if let Some(limit) = limit.filter(|_| checks.is_empty()) {
        command.args(["--fail-above", &limit.to_string()]);
    }
    command.arg("--").arg(squall).args(["loop", claim.case, "--subject", claim.subject]);
    if let Some(variant) = claim.variant {
        command.args(["--variant", variant]);
    }
    command.args(["--threads", &threads.to_string(), "--ops", &ops.to_string()]);
    let ((count, others), output) = figures(&mut command, checks.len())?;
    // Its thread of the policies may do as much as one of the loop's: without marks it is taken for one.
    let besides = u32::from(!checks.is_empty() && claim.adapts());
    agree(&command, &count, &others, threads, threads + besides)?;
    if !checks.is_empty() {
        // What is counted in whole runs, starting included, is no measure of the promise.
        return Ok((count, true));
    }
    let kept = claim.promise.kept(&count);
    // The instrument's own verdict, and what it printed, must not part.
    ensure!(
        output.status.success() || !kept,
        "{} from {command:?} though the promise is kept:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok((count, kept && output.status.success()))
}

/// The figures in the report of `squall locality`.
fn counted(report: &serde_json::Value) -> Option<Count> {
    let threads: u32 = report.get("threads")?.as_u64()?.try_into().ok()?;
    let ops = report.get("ops_per_thread")?.as_u64()? as f64 * f64::from(threads);
    Some(Count {
        threads,
        accesses: report.get("accesses_per_op")?.as_f64()?,
        crossing: report.get("accesses_crossing")?.as_u64()? as f64 / ops,
        steady: report.get("write_shared_accesses_per_op")?.as_f64()?,
        transfers: report.get("transfers_per_op_at_most")?.as_f64()?,
    })
}

impl Count {
    /// Whether these are the same figures, as far as the cross-check prints them.
    fn is_as(&self, printed: &Count) -> bool {
        let same = |ours: f64, theirs: f64, unit: f64| (ours - theirs).abs() <= unit * 0.51;
        self.threads == printed.threads
            // An access that crosses into the next line is one of each to the profiler, and one of the first line to the other.
            && same(self.accesses - self.crossing, printed.accesses, 0.01)
            && same(self.steady, printed.steady, 0.0001)
            && same(self.transfers, printed.transfers, 0.0001)
    }
}

/// The figures in a cross-check's line.
fn parse(line: &str) -> Option<Count> {
    let line = line.strip_prefix("sharing: ")?;
    let figure =
        |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Some(Count {
        threads: figure("threads")?.parse().ok()?,
        accesses: figure("accesses_per_op")?.parse().ok()?,
        crossing: 0.0,
        steady: figure("write_shared_accesses_per_op")?.parse().ok()?,
        transfers: figure("transfers_per_op_at_most")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{CLAIMS, Count, Promise, TOPOLOGY, VPS, counted, loads_version_1, parse, version};

    #[test]
    fn the_profilers_report_is_read() {
        let mut report = serde_json::json!({
            "threads": 8, "ops_per_thread": 10, "accesses_per_op": 3.01, "accesses_crossing": 20,
            "write_shared_accesses_per_op": 1.0, "transfers_per_op_at_most": 0.9,
        });
        let expected = Count { threads: 8, accesses: 3.01, crossing: 0.25, steady: 1.0, transfers: 0.9 };
        assert_eq!(counted(&report), Some(expected));
        report["accesses_per_op"] = serde_json::Value::Null;
        assert_eq!(counted(&report), None);
    }

    #[test]
    fn the_instruments_agree_to_the_last_place_that_is_printed() {
        let printed = Count { threads: 8, accesses: 3.01, crossing: 0.0, steady: 1.0, transfers: 0.9001 };
        assert!(Count { accesses: 3.0149, transfers: 0.900_14, ..printed }.is_as(&printed));
        assert!(!Count { transfers: 0.900_16, ..printed }.is_as(&printed));
        assert!(!Count { threads: 7, ..printed }.is_as(&printed));
        // What crosses is counted twice by one alone, and no more may be.
        assert!(Count { accesses: 3.51, crossing: 0.5, ..printed }.is_as(&printed));
        assert!(!Count { accesses: 3.0201, ..printed }.is_as(&printed));
        assert!(!Count { accesses: 3.01, crossing: 0.5, ..printed }.is_as(&printed));
    }

    #[test]
    fn emulators_that_load_no_cross_check_are_known_by_their_version() {
        assert_eq!(version("qemu-x86_64 version 7.2.22 (Debian 1:7.2+dfsg)\nCopyright"), Some("7.2.22"));
        assert_eq!(version("bash"), None);
        assert!(["7.2.22", "8.2.0", "8.0.50"].iter().all(|version| loads_version_1(version)));
        assert!(["9.0.0", "9.0", "10.2.50", "11.1.0"].iter().all(|version| !loads_version_1(version)));
    }

    #[test]
    fn the_cross_checks_line_is_read() {
        let text = "sharing: threads=8 ops_per_thread=20000 accesses_per_op=3.01 write_shared_lines=1 \
                    write_shared_accesses_per_op=1.0000 transfers_per_op_at_most=0.9001 hottest=4000a40\n";
        let expected = Count { threads: 8, accesses: 3.01, crossing: 0.0, steady: 1.0, transfers: 0.9001 };
        assert_eq!(parse(text.trim_end()), Some(expected));
        assert_eq!(parse("warning"), None);
        assert_eq!(parse("sharing: threads=8\n"), None);
    }

    #[test]
    fn a_promise_is_broken_by_either_figure() {
        let count = |steady, transfers| Count { threads: 2, accesses: 9.0, crossing: 0.0, steady, transfers };
        assert!(Promise::Local.kept(&count(0.0, 0.02)));
        assert!(!Promise::Local.kept(&count(0.0001, 0.0)));
        assert!(!Promise::Local.kept(&count(0.0, 0.0201)));
        assert!(Promise::LocalButForMemory.kept(&count(0.0, 0.1)));
        assert!(Promise::LocalButForMemory.kept(&count(0.01, 0.0)));
        assert!(!Promise::LocalButForMemory.kept(&count(0.0101, 0.0)));
        assert!(!Promise::LocalButForMemory.kept(&count(0.0, 0.1001)));
        assert!(Promise::Shared.kept(&count(1.0, 1.0)));
        assert!(!Promise::Shared.kept(&count(0.0, 0.0)));
    }

    #[test]
    fn both_promises_are_claimed_of_something() {
        assert!(CLAIMS.iter().any(|claim| claim.promise == Promise::Local));
        assert!(CLAIMS.iter().any(|claim| claim.promise == Promise::Shared));
    }

    #[test]
    fn the_topology_has_a_processor_for_each_thread() {
        let product: u32 = TOPOLOGY
            .split(',')
            .map(|level| level.split_once(':').unwrap().1.parse::<u32>().unwrap())
            .product();
        assert_eq!(product, VPS);
    }
}
