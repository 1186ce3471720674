//! `cargo run -p xtask -- sharing`: counts accesses to lines that several threads write, and holds them against what
//! the documentation promises.
//!
//! Idea: that an operation scales is a fact about which lines it touches, and that can be counted exactly on any
//! machine. `tools/sharing` runs `squall loop` under emulation, on a virtual topology of [`VPS`] processors.
//!
//! - I1. A claim in [`CLAIMS`] is checked at every number of threads asked for, none above [`VPS`], so that each thread
//!   has a virtual processor of its own.
//! - I2. Some claims are that sharing *is* there: an instrument that always reads zero fails.
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
const AS_ON_A_LARGE_MACHINE: &[(&str, &str)] =
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
}

/// What is promised of one subject of one case.
#[derive(Debug)]
struct Claim {
    case: &'static str,
    subject: &'static str,
    promise: Promise,
}

const fn claim(case: &'static str, subject: &'static str, promise: Promise) -> Claim {
    Claim { case, subject, promise }
}

impl Claim {
    /// Threads that the instrument may take for some of the loop's: that of the policies looks at what is in a grown form.
    fn besides(&self) -> u32 {
        u32::from(self.adapts())
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
    /// The same, but for memory that comes and goes with the objects: allocator, tables and grace periods now and then.
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
    claim("map-get", "squall-locked", Promise::Shared),
    claim("percpu", "squall", Promise::Local),
    claim("percpu", "padded", Promise::Local),
    claim("percpu", "atomic", Promise::Shared),
    claim("percpu", "unpadded", Promise::Shared),
];

/// What the instrument counted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Count {
    threads: u32,
    accesses: f64,
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
            Promise::LocalButForMemory => count.steady < Promise::ZERO && count.transfers <= Promise::MEMORY,
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
    if std::env::consts::ARCH != "x86_64" {
        return Ok(Outcome::Skipped("the instrument runs x86-64 programs".into()));
    }
    for program in ["qemu-x86_64", "cc", "bash"] {
        if shell::which(program).is_none() {
            return Ok(Outcome::Skipped(format!("{program} is not installed")));
        }
    }
    ensure!(
        options.threads.iter().all(|threads| *threads <= VPS),
        "at most {VPS} threads: one on each processor"
    );
    let squall = match &options.squall {
        Some(path) => path.clone(),
        None => build()?,
    };
    println!(
        "{:10} {:18} {:>7} {:>11} {:>16} {:>16}",
        "case", "subject", "threads", "accesses", "write-shared", "transfers <="
    );
    let mut broken = Vec::new();
    for claim in CLAIMS {
        for threads in &options.threads {
            let (case, subject) = (claim.case, claim.subject);
            let mut tries = claim.tries();
            loop {
                let count = count(&squall, claim, *threads, options.ops)?;
                let Count { accesses, steady, transfers, .. } = count;
                let kept = claim.promise.kept(&count);
                tries -= 1;
                let mark = match (kept, tries) {
                    (true, _) => "",
                    (false, 0) => "  BROKEN",
                    (false, _) => "  again",
                };
                println!(
                    "{case:10} {subject:18} {threads:7} {accesses:11.2} {steady:16.4} {transfers:16.4}{mark}"
                );
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

/// Builds `squall` as users do.
pub(crate) fn build() -> Result<PathBuf> {
    shell::run(shell::cargo().args(["build", "--quiet", "--release", "-p", "squall-cli"]))?;
    Ok(shell::target_dir().join("release").join("squall"))
}

/// Runs one loop under the instrument.
fn count(squall: &Path, claim: &Claim, threads: u32, ops: u64) -> Result<Count> {
    let instrument = shell::root().join("tools").join("sharing").join("sharing");
    let mut command = Command::new(instrument);
    command.arg(ops.to_string()).arg(squall);
    command.args(["loop", claim.case, "--subject", claim.subject]);
    command.args(["--threads", &threads.to_string(), "--ops", &ops.to_string()]);
    command.envs(AS_ON_A_LARGE_MACHINE.iter().copied());
    command.env("SQUALL_TOPOLOGY", TOPOLOGY).env("SHARING_DIR", shell::target_dir().join("sharing"));
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} from {command:?}:\n{said}", output.status);
    let count = parse(&said).with_context(|| format!("no count from {command:?}:\n{said}"))?;
    let besides = claim.besides();
    ensure!(
        (threads..=threads + besides).contains(&count.threads),
        "{} threads ran the loop, not {threads}: {command:?}",
        count.threads
    );
    Ok(count)
}

/// The figures in the instrument's line.
fn parse(text: &str) -> Option<Count> {
    let line = text.lines().find_map(|line| line.strip_prefix("sharing: "))?;
    let figure =
        |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Some(Count {
        threads: figure("threads")?.parse().ok()?,
        accesses: figure("accesses_per_op")?.parse().ok()?,
        steady: figure("write_shared_accesses_per_op")?.parse().ok()?,
        transfers: figure("transfers_per_op_at_most")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{CLAIMS, Count, Promise, TOPOLOGY, VPS, parse};

    #[test]
    fn the_instruments_line_is_read() {
        let text = "warning\nsharing: threads=8 ops_per_thread=20000 accesses_per_op=3.01 write_shared_lines=1 \
                    write_shared_accesses_per_op=1.0000 transfers_per_op_at_most=0.9001 hottest=4000a40\n";
        let expected = Count { threads: 8, accesses: 3.01, steady: 1.0, transfers: 0.9001 };
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse("sharing: threads=8\n"), None);
    }

    #[test]
    fn a_promise_is_broken_by_either_figure() {
        let count = |steady, transfers| Count { threads: 2, accesses: 9.0, steady, transfers };
        assert!(Promise::Local.kept(&count(0.0, 0.02)));
        assert!(!Promise::Local.kept(&count(0.0001, 0.0)));
        assert!(!Promise::Local.kept(&count(0.0, 0.0201)));
        assert!(Promise::LocalButForMemory.kept(&count(0.0, 0.1)));
        assert!(!Promise::LocalButForMemory.kept(&count(0.0001, 0.0)));
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
