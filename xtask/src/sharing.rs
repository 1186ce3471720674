//! `cargo run -p xtask -- sharing`: counts accesses to cache lines that several threads write, and compares
//! them with the promises of the documentation.
//!
//! Idea: the cache lines that an operation touches decide how it scales, and they can be counted exactly on
//! any machine. `squall locality` runs `squall loop` under emulation, on a virtual topology of [`VPS`]
//! processors. It fails by itself if more is shared than `--fail-above` allows.
//!
//! - I1. A claim in [`CLAIMS`] is checked at every number of threads on the command line. All are at most
//!   [`VPS`], so each thread has its own virtual processor.
//! - I2. Some claims demand sharing, so an instrument that always reads zero fails.
//! - I3. With `--both`, each run is counted a second time by a cross-check: `profiler/sharing`, a small
//!   plugin in C that shares no code with the profiler. Each of its figures must equal the profiler's to the
//!   last printed place. An access that crosses into the next line counts twice in the profiler and once in
//!   the cross-check; the profiler reports the number of these, and they are subtracted. The programs of
//!   [`KNOWN`] are compared in the same way, and so are the cross-checks named by `--cross-check`.
//!   Cross-checks speak version 1 of the emulator's plugin interface. Emulators from [`FIRST_WITHOUT_V1`] on
//!   refuse that version: the cross-checks are then skipped with a message, and only the profiler counts.
//!
//! Not promised: anything about restartable sequences. Emulation lacks them, so the count is that of the
//! atomic fallback, which touches the same words. Effects of the emulator are not promised either. It runs
//! slow threads in turns on few processors, so threads that finish early sleep while others work, and the
//! reclaimer runs in between. glibc's allocator would give several threads one arena.
//! [`AS_ON_A_LARGE_MACHINE`] switches off both effects. A claim that depends on the emulator's turns is
//! counted again if it fails, and all counts are printed ([`Claim::tries`]).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::shell::{self, Outcome};

/// The virtual topology of the runs, and its number of virtual processors.
const TOPOLOGY: &str = "nodes:2,caches:2,cores:8,threads:2";
const VPS: u32 = 64;

/// Settings that make emulation resemble a machine of [`VPS`] processors. Each thread has its own malloc
/// arena, and each thread reclaims the memory that it retired.
pub(crate) const AS_ON_A_LARGE_MACHINE: &[(&str, &str)] =
    &[("GLIBC_TUNABLES", "glibc.malloc.arena_max=512"), ("SQUALL_RECLAIMER", "off")];

/// Options of `sharing`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "2,8,32,64")]
    threads: Vec<u32>,
    /// Operations of each thread
    #[arg(long, default_value_t = 50_000)]
    ops: u64,
    /// Count this `squall` binary instead of building one
    #[arg(long)]
    squall: Option<PathBuf>,
    /// Count each run and the known programs by the cross-check too, and fail if the two disagree
    #[arg(long)]
    both: bool,
    /// A further cross-check: the C source of a plugin that takes `ops=N` and prints a line of the same form
    #[arg(long, value_name = "FILE", requires = "both")]
    cross_check: Vec<PathBuf>,
    /// Count only this case; `known` counts the known programs
    #[arg(long)]
    case: Option<String>,
}

/// The promise for one subject of one case.
#[derive(Debug)]
struct Claim {
    case: &'static str,
    /// The variant; the case's first one if absent.
    variant: Option<&'static str>,
    subject: &'static str,
    promise: Promise,
    /// The factor on the number of operations, for a case with a long set-up.
    times: u64,
    /// The divisor of the number of operations, for a case with long operations.
    parts: u64,
    /// The most threads at which the claim is counted.
    most_threads: u32,
}

const fn claim(case: &'static str, subject: &'static str, promise: Promise) -> Claim {
    Claim { case, variant: None, subject, promise, times: 1, parts: 1, most_threads: VPS }
}

impl Claim {
    const fn with_variant(self, variant: &'static str, times: u64, most_threads: u32) -> Claim {
        Claim { variant: Some(variant), times, most_threads, ..self }
    }

    const fn with_parts(self, parts: u64) -> Claim {
        Claim { parts, ..self }
    }

    /// The name of the case and its variant.
    fn name(&self) -> String {
        self.variant.map_or(self.case.to_owned(), |variant| format!("{} {variant}", self.case))
    }

    fn is_adaptive(&self) -> bool {
        // The subject `squall` of a bag is its adaptive form.
        self.subject == "squall-adaptive" || (self.case, self.subject) == ("bag", "squall")
    }

    /// The number of counts allowed. The emulator decides when the engine's thread runs and the form grows,
    /// so an adaptive subject gets several.
    fn tries(&self) -> u32 {
        if self.is_adaptive() { 4 } else { self.promise.tries() }
    }
}

/// The sharing that the documentation promises.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Promise {
    /// After set-up, an operation touches no line that another thread writes.
    Local,
    /// Like `Local`, except for memory that comes and goes with the objects: the allocator, the tables and
    /// the grace periods share a little. The thread that advances a grace period reads the records of all
    /// other threads.
    LocalButForMemory,
    /// Like `Local`, but now and then elements move between processors, with lines that each writes often.
    /// So the upper bound for transfers says nothing.
    LocalButForMoves,
    /// Each operation accesses a line that another thread writes at least once.
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
    claim("rwlock", "squall-biased", Promise::Local),
    claim("rwlock", "std-rwlock", Promise::Shared),
    claim("bag", "squall", Promise::Local),
    claim("bag", "squall-distributed", Promise::Local),
    claim("bag", "squall-part", Promise::Local),
    claim("bag", "segqueue", Promise::Shared),
    claim("queue", "squall-part-unbalanced", Promise::Local).with_variant("local-10k", 1, VPS),
    claim("queue", "std-mutex-heap", Promise::Shared).with_variant("strict-10k", 1, VPS),
    claim("object-pool", "squall-distributed", Promise::LocalButForMoves),
    claim("object-pool", "locked-vec", Promise::Shared),
    // The distributed forms: the policy of the adaptive ones counts their calls now and then.
    claim("id-pool", "squall-distributed", Promise::LocalButForMoves),
    claim("id-pool", "locked-vec", Promise::Shared),
    claim("page-pool", "squall-distributed", Promise::Local),
    claim("page-pool", "locked-vec", Promise::Shared),
    claim("pin", "squall-cache-shared", Promise::Shared).with_parts(5),
    claim("pin", "squall-cache-distributed", Promise::Local).with_parts(5),
    claim("pin", "squall-cache-partitioned", Promise::Local).with_parts(5),
    claim("pin", "squall-region-shared", Promise::Shared).with_parts(5),
    claim("pin", "squall-region-distributed", Promise::Local).with_parts(5),
    claim("pin", "squall-region-quiescent", Promise::Local).with_parts(5),
    claim("pin", "squall-process-shared", Promise::Local).with_parts(5),
    claim("pin", "squall-process-distributed", Promise::Local).with_parts(5),
    claim("request-counter", "squall-distributed", Promise::Local),
    claim("request-counter", "squall-shared", Promise::Shared),
    // Hits, within an epoch.
    claim("cache", "squall", Promise::Local),
    claim("cache", "squall-lru", Promise::Local),
    claim("cache", "lru-mutex", Promise::Shared),
    claim("cell", "squall-shared", Promise::Local),
    claim("cell", "squall-distributed", Promise::Local),
    claim("cell", "squall-embedded", Promise::Local),
    claim("cell", "std-rwlock", Promise::Shared),
    claim("map-get", "squall-table", Promise::Local),
    claim("map-get", "squall-central", Promise::Local),
    claim("map-get", "squall-replicated", Promise::Local),
    claim("map-get", "squall-locked", Promise::Shared),
    claim("alloc", "squall", Promise::Local),
    // Slabs become empty and are filled again. With more threads, the emulator runs each thread so rarely
    // that the allocator takes its VP for idle and gives its memory back.
    claim("alloc", "squall", Promise::Local).with_variant("burst-256", 5, 8),
    claim("ship", "squall-ship", Promise::Local).with_variant("own", 1, VPS),
    // Client and server map the same memory at two places, so lines of their slots do not count. An operation
    // has four calls of the kernel.
    claim("call-process", "squall", Promise::Local).with_variant("same-core", 1, 32).with_parts(100),
    claim("percpu", "squall", Promise::Local),
    claim("percpu", "padded", Promise::Local),
    claim("percpu", "atomic", Promise::Shared),
    claim("percpu", "unpadded", Promise::Shared),
];

/// The known programs of the profiler's tests (`examples/known.rs`), each with its maximum of threads.
/// Programs that end before their threads are left out. So is `many`, which starts its threads one after
/// another: the cross-check takes threads with the same number for one.
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
const FIRST_WITHOUT_V1: (u32, u32) = (9, 0);

/// The figures of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Count {
    threads: u32,
    accesses: f64,
    /// Second parts of accesses that cross into the next line, which `accesses` includes.
    crossing: f64,
    steady: f64,
    transfers: f64,
}

impl Promise {
    /// Figures are printed with four places. Less than half of the last place counts as zero.
    const ZERO: f64 = 0.000_05;
    /// The transfers per operation allowed for set-up and the two barriers.
    const SETUP: f64 = 0.02;
    /// The transfers per operation allowed where memory comes and goes.
    const MEMORY: f64 = 0.1;
    /// The accesses per operation allowed for advancing grace periods.
    const GRACE: f64 = 0.01;
    /// The accesses per operation allowed where elements move.
    const MOVES: f64 = 0.001;
    /// The least accesses per operation of a shared operation: a little below one, because a thread may run
    /// alone for a while.
    const ONCE: f64 = 0.9;

    /// The number of counts allowed. A promise that involves grace periods or locks of other threads gets a
    /// second count. The emulator may keep one thread inside an operation for long, and another thread then
    /// polls its line again and again.
    fn tries(self) -> u32 {
        match self {
            Promise::Local | Promise::Shared => 1,
            Promise::LocalButForMemory | Promise::LocalButForMoves => 2,
        }
    }

    fn kept(self, count: &Count) -> bool {
        match self {
            Promise::Local => count.steady < Promise::ZERO && count.transfers <= Promise::SETUP,
            Promise::LocalButForMemory => {
                count.steady <= Promise::GRACE && count.transfers <= Promise::MEMORY
            }
            Promise::LocalButForMoves => count.steady <= Promise::MOVES,
            Promise::Shared => count.steady >= Promise::ONCE,
        }
    }
}

/// Counts all claims and prints a table.
///
/// # Errors
/// If a promise is broken, or if a count fails although the emulator is installed.
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
        "--threads must be at most {VPS}, one thread on each virtual processor"
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
                    broken.push(format!(
                        "{case} {subject} at {threads} threads breaks its promise {:?}",
                        claim.promise
                    ));
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

/// The environment variable that names another emulator.
const EMULATOR: &str = "SQUALL_EMULATOR";

/// Whether an emulator for `squall locality` is installed.
pub(crate) fn has_emulator() -> bool {
    shell::which(&emulator()).is_some() || std::env::var_os(EMULATOR).is_some()
}

/// The version that the emulator reports.
fn emulator_version() -> Result<String> {
    let program = std::env::var_os(EMULATOR).unwrap_or_else(|| emulator().into());
    let output = Command::new(&program).arg("--version").output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let version =
        version(&said).with_context(|| format!("{} prints no version: {said}", program.display()))?;
    Ok(version.to_owned())
}

/// The version in a text like `qemu-x86_64 version 7.2.22 (Debian …)`.
fn version(said: &str) -> Option<&str> {
    said.split_once("version ")?.1.split_whitespace().next()
}

/// Whether an emulator of this version loads plugins of version 1.
fn supports_plugin_v1(version: &str) -> bool {
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < FIRST_WITHOUT_V1
}

/// Builds `squall`, with the features that all checks use, so that one build serves them.
pub(crate) fn build() -> Result<PathBuf> {
    shell::run(shell::cargo().args([
        "build",
        "--quiet",
        "--release",
        "-p",
        "squall-cli",
        "--features",
        "hosts",
    ]))?;
    Ok(shell::target_dir().join("release").join("squall"))
}

/// Counts the known programs by all instruments and prints the common figures.
fn count_known(squall: &Path, options: &Options, checks: &[PathBuf]) -> Result<()> {
    let mut build = shell::cargo();
    // Both packages, for the same features as in `build`.
    build.args(["build", "--quiet", "--release", "-p", "squall-cli", "--features", "squall-cli/hosts"]);
    build.args(["-p", "squall-locality", "--example", "known"]);
    shell::run(&mut build)?;
    let program = shell::target_dir().join("release").join("examples").join("known");
    // Programs with threads that take turns are slow, so the number of operations is limited.
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

/// Compiles the requested cross-checks and returns their paths. If the emulator refuses them, prints a SKIP
/// line and returns an empty list.
fn cross_checks(options: &Options) -> Result<Vec<PathBuf>> {
    if options.both {
        let version = emulator_version()?;
        if !supports_plugin_v1(&version) {
            println!("SKIP sharing: the cross-checks need plugin version 1, which QEMU {version} refuses");
            return Ok(Vec::new());
        }
    }
    let ours = options.both.then(|| shell::root().join("profiler/sharing/sharing.c"));
    ours.into_iter().chain(options.cross_check.iter().cloned()).enumerate().map(cross_check).collect()
}

fn cross_check((at, source): (usize, PathBuf)) -> Result<PathBuf> {
    let folder = shell::target_dir().join("sharing");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let library = folder.join(format!("libsharing-{at}.so"));
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-std=gnu11", "-O2", "-shared", "-fPIC", "-o"]).arg(&library);
    if at == 0 {
        // The repository's own cross-check must compile without warnings.
        command.args(["-Wall", "-Wextra", "-Werror"]);
    }
    shell::run(command.arg(source))?;
    Ok(library)
}

/// The command `squall locality`, to which the program is added. With cross-checks, all instruments count all
/// accesses of all threads except the main one. Without them, only the accesses between the program's marks
/// count.
fn locality(squall: &Path, ops: u64, checks: &[PathBuf]) -> Command {
    let mut command = Command::new(squall);
    command.args(["locality", "--json", "--no-preload", "--top", "0", "--ops", &ops.to_string()]);
    // Many threads touch many lines.
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

/// The figures of the profiler, and those of each cross-check.
type Figures = (Count, Vec<Count>);

/// Runs the command; returns its figures and its output.
fn figures(command: &mut Command, checks: usize) -> Result<(Figures, std::process::Output)> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = serde_json::from_slice(&output.stdout)
        .ok()
        .and_then(|report| counted(&report))
        .with_context(|| format!("{command:?} printed no figures:\n{said}"))?;
    let others: Vec<Count> = said.lines().filter_map(parse).collect();
    ensure!(
        others.len() == checks,
        "{} of {checks} cross-checks printed figures: {command:?}:\n{said}",
        others.len()
    );
    Ok(((count, others), output))
}

/// Checks the number of threads, and that every cross-check counted the same.
fn agree(command: &Command, count: &Count, others: &[Count], least: u32, most: u32) -> Result<()> {
    ensure!(
        (least..=most).contains(&count.threads),
        "{} threads ran the loop instead of {least}: {command:?}",
        count.threads
    );
    for other in others {
        ensure!(
            count.equals_printed(other),
            "{command:?}: the profiler counted {count:?}, a cross-check {other:?}"
        );
    }
    Ok(())
}

/// Counts one loop and returns whether the claim is kept.
fn count(squall: &Path, claim: &Claim, threads: u32, ops: u64, checks: &[PathBuf]) -> Result<(Count, bool)> {
    let ops = ops * claim.times / claim.parts;
    let mut command = locality(squall, ops, checks);
    let limit = match claim.promise {
        Promise::Local => Some(0.0),
        Promise::LocalButForMemory => Some(Promise::GRACE),
        Promise::LocalButForMoves => Some(Promise::MOVES),
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
    // Without marks, a busy engine thread counts as a thread of the loop.
    let besides = u32::from(!checks.is_empty() && claim.is_adaptive());
    agree(&command, &count, &others, threads, threads + besides)?;
    if !checks.is_empty() {
        // These figures include start-up, so they do not measure the promise.
        return Ok((count, true));
    }
    let kept = claim.promise.kept(&count);
    // The exit status of the profiler must agree with its figures.
    ensure!(
        output.status.success() || !kept,
        "{} from {command:?} although its figures keep the promise:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok((count, kept && output.status.success()))
}

/// Reads the figures from the report of `squall locality`.
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
    /// Whether these figures equal those of a cross-check, to the last place that it prints.
    fn equals_printed(&self, printed: &Count) -> bool {
        let same = |ours: f64, theirs: f64, unit: f64| (ours - theirs).abs() <= unit * 0.51;
        self.threads == printed.threads
            // The profiler counts an access that crosses into the next line twice, the cross-check once.
            && same(self.accesses - self.crossing, printed.accesses, 0.01)
            && same(self.steady, printed.steady, 0.0001)
            && same(self.transfers, printed.transfers, 0.0001)
    }
}

/// Reads the figures from a cross-check's line.
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
    use super::{CLAIMS, Count, Promise, TOPOLOGY, VPS, counted, parse, supports_plugin_v1, version};

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
        assert!(Count { accesses: 3.0149, transfers: 0.900_14, ..printed }.equals_printed(&printed));
        assert!(!Count { transfers: 0.900_16, ..printed }.equals_printed(&printed));
        assert!(!Count { threads: 7, ..printed }.equals_printed(&printed));
        // Only the profiler counts a crossing access twice, and the tolerance covers no more than that.
        assert!(Count { accesses: 3.51, crossing: 0.5, ..printed }.equals_printed(&printed));
        assert!(!Count { accesses: 3.0201, ..printed }.equals_printed(&printed));
        assert!(!Count { accesses: 3.01, crossing: 0.5, ..printed }.equals_printed(&printed));
    }

    #[test]
    fn emulators_that_refuse_cross_checks_are_known_by_their_version() {
        assert_eq!(version("qemu-x86_64 version 7.2.22 (Debian 1:7.2+dfsg)\nCopyright"), Some("7.2.22"));
        assert_eq!(version("bash"), None);
        assert!(["7.2.22", "8.2.0", "8.0.50"].iter().all(|version| supports_plugin_v1(version)));
        assert!(["9.0.0", "9.0", "10.2.50", "11.1.0"].iter().all(|version| !supports_plugin_v1(version)));
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
        assert!(Promise::LocalButForMoves.kept(&count(0.001, 5.0)));
        assert!(!Promise::LocalButForMoves.kept(&count(0.0011, 0.0)));
        assert!(Promise::Shared.kept(&count(1.0, 1.0)));
        assert!(!Promise::Shared.kept(&count(0.0, 0.0)));
    }

    #[test]
    fn each_promise_has_a_claim() {
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
