//! The instruments: `squall bench` for times, `squall locality` for counts, each in a child process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::count::Counts;

/// The reason why something could not be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(pub String);

/// The instruments of an experiment.
pub struct Lab<'a> {
    /// Whether few and short rounds suffice.
    pub quick: bool,
    squall: PathBuf,
    step: &'a mut dyn FnMut(&str),
}

impl<'a> Lab<'a> {
    /// A lab that runs the binary `squall` at this path. `step` is told each step in words.
    pub fn new(squall: &Path, quick: bool, step: &'a mut dyn FnMut(&str)) -> Lab<'a> {
        Lab { quick, squall: squall.to_owned(), step }
    }

    /// Tells a step in words.
    pub(crate) fn tell(&mut self, step: &str) {
        (self.step)(step);
    }

    /// Thread counts for timed runs: powers of two up to the number of processors, and that number.
    #[must_use]
    pub fn threads(&self) -> Vec<usize> {
        let processors = squall_bench::env::processors().len();
        let powers = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < processors);
        powers.chain([processors]).collect()
    }

    /// Times a case, in some variant and with these numbers of threads. Empty values mean the defaults.
    ///
    /// # Errors
    /// The bench failed.
    pub fn bench(&mut self, case: &str, variant: &str, threads: &[usize]) -> Result<Times, Missing> {
        self.bench_on("", case, variant, threads)
    }

    /// Times a case as [`bench`](Lab::bench) does, on virtual processors with this topology. An empty text
    /// means the machine's own.
    ///
    /// # Errors
    /// The bench failed.
    pub fn bench_on(
        &mut self,
        topology: &str,
        case: &str,
        variant: &str,
        threads: &[usize],
    ) -> Result<Times, Missing> {
        (self.step)(&format!("time {case} {variant}"));
        let mut args = vec!["bench", case, "--json"];
        if self.quick {
            args.push("--quick");
        }
        if !variant.is_empty() {
            args.extend(["--variant", variant]);
        }
        let list = threads.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        if !list.is_empty() {
            args.extend(["--threads", &list]);
        }
        let environment = [("SQUALL_TOPOLOGY", topology)];
        let text = self.squall(&args, if topology.is_empty() { &[] } else { &environment })?;
        let rows = text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>();
        rows.map(Times).map_err(|error| Missing(format!("squall bench {case}: {error}")))
    }

    /// Counts the accesses of one subject, with exactly `ops` operations in each of `threads` threads. Each
    /// thread has a processor, and all processors are in one node.
    ///
    /// # Errors
    /// No emulator is installed, or the run failed.
    pub fn count(&mut self, loop_: Loop<'_>) -> Result<Counts, Missing> {
        self.count_on(&format!("cores:{}", loop_.threads.next_power_of_two()), loop_)
    }

    /// Counts like [`count`](Lab::count), on a machine of this topology. Thread `i` has processor `i`.
    ///
    /// # Errors
    /// No emulator is installed, or the run failed.
    pub fn count_on(&mut self, topology: &str, loop_: Loop<'_>) -> Result<Counts, Missing> {
        self.count_in(&[("SQUALL_TOPOLOGY", topology)], loop_)
    }

    /// Counts like [`count`](Lab::count), for a loop that allocates. Each thread has its own malloc arena,
    /// and reclaims the memory that it retired, as on a large machine.
    ///
    /// # Errors
    /// No emulator is installed, or the run failed.
    pub fn count_allocating(&mut self, loop_: Loop<'_>) -> Result<Counts, Missing> {
        let topology = format!("cores:{}", loop_.threads.next_power_of_two());
        let own = [("GLIBC_TUNABLES", "glibc.malloc.arena_max=512"), ("SQUALL_RECLAIMER", "off")];
        self.count_in(&[("SQUALL_TOPOLOGY", &topology), own[0], own[1]], loop_)
    }

    fn count_in(&mut self, environment: &[(&str, &str)], loop_: Loop<'_>) -> Result<Counts, Missing> {
        let Loop { case, subject, variant, threads, ops } = loop_;
        (self.step)(&format!("count {case} {variant} {subject}, {threads} threads"));
        let (threads_text, ops_text) = (threads.to_string(), ops.to_string());
        let squall = self.squall.to_string_lossy().into_owned();
        let mut args = vec!["locality", "--json", "--ops", &ops_text, "--processors", &threads_text];
        args.extend(["--timeout", "300", "--top", "4", "--no-preload", "--", &squall, "loop", case]);
        args.extend(["--subject", subject, "--threads", &threads_text, "--ops", &ops_text]);
        if !variant.is_empty() {
            args.extend(["--variant", variant]);
        }
        let text = self.squall(&args, environment)?;
        Counts::parse(&text, threads)
    }

    /// Runs the binary `squall` and returns its stdout.
    fn squall(&self, args: &[&str], environment: &[(&str, &str)]) -> Result<String, Missing> {
        let mut command = Command::new(&self.squall);
        command.args(args).envs(environment.iter().copied()).stdin(Stdio::null());
        let told = |why: String| Missing(format!("`squall {}`: {why}", args.join(" ")));
        let output = command.output().map_err(|error| told(error.to_string()))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
            return Err(told(last.trim_start_matches("squall: ").to_owned()));
        }
        String::from_utf8(output.stdout).map_err(|error| told(error.to_string()))
    }
}

/// An exact loop of `squall loop`.
#[derive(Clone, Copy, Debug)]
pub struct Loop<'a> {
    /// The case.
    pub case: &'a str,
    /// The subject.
    pub subject: &'a str,
    /// The variant, or an empty text.
    pub variant: &'a str,
    /// Number of threads.
    pub threads: usize,
    /// Operations per thread.
    pub ops: u64,
}

/// Rows of a bench.
#[derive(Clone, Debug)]
pub struct Times(pub(crate) Vec<Value>);

impl Times {
    /// Nanoseconds per operation of a subject, or NaN.
    #[must_use]
    pub fn ns(&self, subject: &str, threads: usize) -> f64 {
        self.number("subject", subject, threads, "ns_per_op")
    }

    /// A metric, or NaN.
    #[must_use]
    pub fn metric(&self, metric: &str, threads: usize) -> f64 {
        self.number("metric", metric, threads, "value")
    }

    fn number(&self, key: &str, name: &str, threads: usize, value: &str) -> f64 {
        let is = |row: &&Value| row[key] == name && row["threads"] == threads;
        self.0.iter().find(is).and_then(|row| row[value].as_f64()).unwrap_or(f64::NAN)
    }
}
