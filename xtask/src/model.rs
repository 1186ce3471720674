//! `cargo run -p xtask -- locality-model`: compares the ranking of the profiler's model with the ranking of
//! measured times.
//!
//! Idea: the model of `squall locality` ranks subjects and claims no times. For each subject and number of
//! threads, `squall loop` is counted under emulation. `squall bench` measures the same subjects in
//! interleaved rounds. For each pair of subjects both methods say which is slower; Kendall's tau compares the
//! answers.
//!
//! - I1. Both methods run the same code: emulation has no restartable sequences, and the measured runs switch
//!   them off.
//! - I2. A pair counts only if measurement separates it. The same subject is slower in all passes but one in
//!   six, and its median is greater by a twentieth or more. Within a pass both run in the same rounds, so
//!   other load affects both.
//! - I3. Every pair that the model ranks the other way round is printed.
//!
//! Not promised: agreement. Only `--at-least` makes disagreement a failure.
//! Source: the rankings of the experiments EX-K1 and EX-T1.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::sharing;
use crate::shell::{self, Outcome};

/// Options of `locality-model`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Cases of `squall bench`
    #[arg(long = "case", default_values = ["percpu", "percpu-paced", "counter"])]
    cases: Vec<String>,
    /// Numbers of threads to measure, at most the number of processors
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<u32>,
    /// Further numbers of threads, computed by the model alone
    #[arg(long, value_delimiter = ',', default_value = "16,64")]
    also: Vec<u32>,
    /// Operations of each thread under emulation
    #[arg(long, default_value_t = 20_000)]
    ops: u64,
    /// Number of times that everything is measured
    #[arg(long, default_value_t = 5)]
    passes: usize,
    /// Measure fewer and shorter rounds
    #[arg(long)]
    quick: bool,
    /// The machine that the model describes
    #[arg(long, default_value = "epyc")]
    model: String,
    /// Fail if the tau of a case is below this
    #[arg(long)]
    at_least: Option<f64>,
    /// Use this `squall` binary instead of building one
    #[arg(long)]
    squall: Option<std::path::PathBuf>,
}

/// One subject of a case, at one number of threads.
#[derive(Clone, Debug, PartialEq)]
struct Ranked {
    subject: String,
    /// Nanoseconds per operation, by the model.
    by_model: f64,
    /// Nanoseconds per operation as measured, in each pass.
    passes: Vec<f64>,
    /// The median of the passes.
    measured: f64,
    /// The spread of the passes, in nanoseconds.
    spread: f64,
}

impl Ranked {
    /// Smaller relative differences do not count.
    const DIFFERENCE_MIN: f64 = 0.05;

    /// Whether the measurements show that this subject is slower than `other`.
    fn is_slower(&self, other: &Ranked) -> bool {
        let pairs = self.passes.iter().zip(&other.passes);
        let against = pairs.filter(|(own, others)| own <= others).count();
        against <= self.passes.len() / 6 && self.measured > other.measured * (1.0 + Ranked::DIFFERENCE_MIN)
    }
}

/// The agreement of two rankings.
#[derive(Debug, Default, PartialEq)]
struct Agreement {
    agree: usize,
    /// Pairs ranked the other way round by the model: the slower subject as measured, then the other.
    disagree: Vec<(String, String)>,
    /// Pairs that are equal in the model although measured times differ.
    equal: Vec<(String, String)>,
    /// Pairs that measurement does not separate.
    unseparated: usize,
}

impl Agreement {
    /// Relative differences of the model up to this count as equal.
    const EQUAL_MAX: f64 = 0.01;

    fn new(subjects: &[Ranked]) -> Agreement {
        let mut found = Agreement::default();
        for (at, one) in subjects.iter().enumerate() {
            for other in &subjects[at + 1..] {
                let (more, less) = if one.measured > other.measured { (one, other) } else { (other, one) };
                let names = || (more.subject.clone(), less.subject.clone());
                if !more.is_slower(less) {
                    found.unseparated += 1;
                } else if (more.by_model - less.by_model).abs() <= Agreement::EQUAL_MAX * more.by_model {
                    found.equal.push(names());
                } else if more.by_model > less.by_model {
                    found.agree += 1;
                } else {
                    found.disagree.push(names());
                }
            }
        }
        found
    }

    /// Kendall's tau-b over the pairs that measurement separates: 1 if all agree, -1 if all are the other way
    /// round. Pairs that are equal in the model enlarge its base. Returns `None` if no pair is decided.
    fn tau(&self) -> Option<f64> {
        let decided = (self.agree + self.disagree.len()) as f64;
        let all = decided + self.equal.len() as f64;
        (decided > 0.0).then(|| (self.agree as f64 - self.disagree.len() as f64) / (decided * all).sqrt())
    }
}

/// Counts, measures, compares and prints.
///
/// # Errors
/// If counting or measuring fails although the emulator is installed, or if a tau is below `--at-least`.
pub(crate) fn command(options: &Options) -> Result<()> {
    match run(options)? {
        Outcome::Passed => Ok(()),
        Outcome::Skipped(why) => {
            println!("SKIP: locality-model: {why}");
            Ok(())
        }
    }
}

fn run(options: &Options) -> Result<Outcome> {
    if !sharing::has_emulator() {
        return Ok(Outcome::Skipped("the emulator is not installed".to_owned()));
    }
    ensure!(options.passes > 0, "--passes must be at least 1");
    let here = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    ensure!(
        options.threads.iter().all(|n| (1..=here).contains(n)),
        "--threads must be from 1 to {here} on this machine"
    );
    let squall = match &options.squall {
        Some(path) => path.clone(),
        None => sharing::build()?,
    };
    let mut disagreeing = Vec::new();
    for case in &options.cases {
        let measured = measure(&squall, case, options)?;
        for (threads, times) in &measured {
            let subjects = times
                .iter()
                .map(|(subject, passes)| {
                    let by_model = by_model(&squall, case, subject, *threads, options)?;
                    let (measured, spread) = median_and_spread(passes);
                    let passes = passes.iter().map(|pass| pass.0).collect();
                    Ok(Ranked { subject: subject.clone(), by_model, passes, measured, spread })
                })
                .collect::<Result<Vec<Ranked>>>()?;
            let agreement = print(case, *threads, subjects);
            if let (Some(wanted), Some(tau)) = (options.at_least, agreement.tau())
                && tau < wanted
            {
                disagreeing
                    .push(format!("{case} at {threads} threads has tau {tau:.2}, below --at-least {wanted}"));
            }
        }
        let subjects: Vec<&String> = measured.values().flat_map(BTreeMap::keys).collect();
        print_model_only(&squall, case, &subjects, options)?;
    }
    if !disagreeing.is_empty() {
        bail!("{}", disagreeing.join("; "));
    }
    Ok(Outcome::Passed)
}

/// Prints the subjects of one case, slowest first, and the agreement of the rankings.
fn print(case: &str, threads: u32, mut subjects: Vec<Ranked>) -> Agreement {
    subjects.sort_by(|a, b| b.measured.total_cmp(&a.measured));
    println!("\n{case}, {threads} threads, slowest first as measured");
    println!("{:20} {:>12} {:>12} {:>14}", "", "measured ns", "+-", "by model ns");
    for Ranked { subject, by_model, measured, spread, .. } in &subjects {
        println!("{subject:20} {measured:12.2} {spread:12.2} {by_model:14.2}");
    }
    let found = Agreement::new(&subjects);
    let tau = found.tau().map_or("none".to_owned(), |tau| format!("{tau:.2}"));
    println!(
        "tau {tau}: {} pairs agree, {} disagree, {} are equal in the model, {} are not separated by measurement",
        found.agree,
        found.disagree.len(),
        found.equal.len(),
        found.unseparated
    );
    for (more, less) in &found.disagree {
        println!("  DISAGREES: measured, {more} is slower than {less}; by the model it is faster");
    }
    for (more, less) in &found.equal {
        println!("  equal in the model: measured, {more} is slower than {less}");
    }
    found
}

/// Prints the costs by the model for numbers of threads that this machine cannot measure.
fn print_model_only(squall: &Path, case: &str, subjects: &[&String], options: &Options) -> Result<()> {
    let mut seen = Vec::new();
    for subject in subjects {
        if !seen.contains(subject) {
            seen.push(subject);
        }
    }
    if options.also.is_empty() {
        return Ok(());
    }
    println!("\n{case}, by the model alone: nanoseconds per operation");
    print!("{:20}", "threads");
    options.also.iter().for_each(|threads| print!(" {threads:>12}"));
    println!();
    for subject in seen {
        print!("{subject:20}");
        for threads in &options.also {
            print!(" {:12.2}", by_model(squall, case, subject, *threads, options)?);
        }
        println!();
    }
    Ok(())
}

/// By number of threads and subject: for each pass the nanoseconds per operation, and the interquartile range
/// of its rounds divided by them.
type Times = BTreeMap<u32, BTreeMap<String, Vec<(f64, f64)>>>;

/// Measures all subjects of a case, interleaved, in several passes.
fn measure(squall: &Path, case: &str, options: &Options) -> Result<Times> {
    let threads: Vec<String> = options.threads.iter().map(u32::to_string).collect();
    let mut times = Times::new();
    for _ in 0..options.passes {
        let mut command = Command::new(squall);
        command.args(["bench", case, "--json", "--threads", &threads.join(",")]).env("SQUALL_RSEQ", "off");
        if options.quick {
            command.arg("--quick");
        }
        for row in shell::output(&mut command)?.lines() {
            let row: serde_json::Value = serde_json::from_str(row).with_context(|| row.to_owned())?;
            if let Some((threads, subject, ns, spread)) = time(&row) {
                times.entry(threads).or_default().entry(subject).or_default().push((ns, spread));
            }
        }
    }
    let whole = times.values().flat_map(BTreeMap::values).all(|passes| passes.len() == options.passes);
    ensure!(whole, "{case}: a pass lacks the time of a subject");
    ensure!(!times.is_empty(), "{case}: squall bench printed no times");
    Ok(times)
}

/// A time in the output of `squall bench`: threads, subject, median, and the interquartile range over it.
fn time(row: &serde_json::Value) -> Option<(u32, String, f64, f64)> {
    let subject = row.get("subject")?.as_str()?;
    let threads = row.get("threads")?.as_u64()?.try_into().ok()?;
    // `percpu-paced` also prints its pause, which is already subtracted from the other subjects.
    (subject != "pause").then_some((
        threads,
        subject.to_owned(),
        row.get("ns_per_op")?.as_f64()?,
        row.get("spread")?.as_f64()?,
    ))
}

/// The median of the passes and their spread. The spread is the interquartile range of their medians, or that
/// of the rounds within the median pass if it is greater. Use five passes or more, so that one disturbed pass
/// has no effect.
fn median_and_spread(passes: &[(f64, f64)]) -> (f64, f64) {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let (count, quarter) = (values.len(), values.len() / 4);
        (values[count / 2], values[count - 1 - quarter] - values[quarter])
    };
    let (median, between) = middle(passes.iter().map(|pass| pass.0).collect());
    let (within, _) = middle(passes.iter().map(|(ns, spread)| (ns * spread).abs()).collect());
    (median, between.max(within))
}

/// Nanoseconds per operation by the model, with this number of threads.
fn by_model(squall: &Path, case: &str, subject: &str, threads: u32, options: &Options) -> Result<f64> {
    let (ops, threads_text) = (options.ops.to_string(), threads.to_string());
    let topology = format!("nodes:1,caches:{},cores:{},threads:1", threads.div_ceil(16), threads.min(16));
    let mut command = Command::new(squall);
    command.args(["locality", "--json", "--no-preload", "--top", "0", "--model", &options.model]);
    command.args(["--ops", &ops, "--processors", &threads_text, "--topology", "nodes:1,caches:1,cores:16"]);
    command.arg("--").arg(squall).args(["loop", case, "--subject", subject]);
    command.args(["--threads", &threads_text, "--ops", &ops]).env("SQUALL_TOPOLOGY", topology);
    command.envs(sharing::AS_ON_A_LARGE_MACHINE.iter().copied());
    let said = shell::output(&mut command)?;
    let report: serde_json::Value =
        serde_json::from_str(&said).context("squall locality printed no report")?;
    let why = &report["incomplete"];
    ensure!(why.as_array().is_some_and(Vec::is_empty), "the count of {case} {subject} is incomplete: {why}");
    report["curve"][0]["ns_per_op"]
        .as_f64()
        .with_context(|| format!("the report has no cost of {case} {subject}"))
}

#[cfg(test)]
mod tests {
    use super::{Agreement, Ranked, median_and_spread, time};

    fn ranked(subject: &str, by_model: f64, measured: f64) -> Ranked {
        let passes = vec![measured, measured + 2.0, measured - 2.0];
        Ranked { subject: subject.to_owned(), by_model, passes, measured, spread: 1.0 }
    }

    #[test]
    fn rankings_are_compared_where_measurement_separates() {
        let subjects = [
            ranked("a", 100.0, 50.0),
            ranked("b", 20.0, 30.0),
            ranked("c", 20.1, 10.0),
            ranked("d", 1.0, 9.8),
        ];
        let found = Agreement::new(&subjects);
        // Slowest is a; b and c are slower than d. The model finds b and c equal. Measurement does not
        // separate c and d.
        assert_eq!((found.agree, found.unseparated), (4, 1));
        assert_eq!((found.disagree.len(), &found.equal[..]), (0, &[("b".to_owned(), "c".to_owned())][..]));
        assert!(found.tau().is_some_and(|tau| (tau - 4.0 / 20f64.sqrt()).abs() < 1e-12));
        let reversed = Agreement::new(&[ranked("a", 1.0, 50.0), ranked("b", 2.0, 30.0)]);
        assert_eq!((reversed.tau(), reversed.disagree.len()), (Some(-1.0), 1));
        assert_eq!(Agreement::new(&[ranked("a", 1.0, 5.0), ranked("b", 2.0, 5.0)]).tau(), None);
    }

    #[test]
    fn a_slower_subject_is_slower_in_nearly_all_passes() {
        let of =
            |passes: &[f64]| Ranked { passes: passes.to_vec(), measured: passes[3], ..ranked("", 1.0, 1.0) };
        let (one, other) = (of(&[9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]), of(&[7.0; 7]));
        assert!(one.is_slower(&other) && !other.is_slower(&one));
        assert!(of(&[1.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]).is_slower(&other));
        assert!(!of(&[1.0, 1.0, 9.0, 9.0, 9.0, 9.0, 9.0]).is_slower(&other));
        assert!(!of(&[7.1; 7]).is_slower(&other));
    }

    #[test]
    fn passes_are_combined() {
        assert_eq!(median_and_spread(&[(10.0, 0.1), (14.0, 0.1), (11.0, 0.1)]), (11.0, 4.0));
        assert_eq!(median_and_spread(&[(10.0, 0.5)]), (10.0, 5.0));
        // One disturbed pass of five has no effect.
        assert_eq!(
            median_and_spread(&[(10.0, 0.1), (11.0, 0.1), (12.0, 0.1), (11.5, 0.1), (90.0, 3.0)]).0,
            11.5
        );
        assert!(
            median_and_spread(&[(10.0, 0.1), (11.0, 0.1), (12.0, 0.1), (11.5, 0.1), (90.0, 3.0)]).1 < 1.3
        );
    }

    #[test]
    fn rows_of_the_bench_are_read() {
        let row = serde_json::json!({"case": "percpu", "subject": "atomic", "threads": 2, "ns_per_op": 3.5, "spread": 0.1});
        assert_eq!(time(&row), Some((2, "atomic".to_owned(), 3.5, 0.1)));
        assert_eq!(
            time(&serde_json::json!({"case": "percpu", "ratio": "a/b", "threads": 2, "value": 1.0})),
            None
        );
        let pause = serde_json::json!({"case": "percpu-paced", "subject": "pause", "threads": 2, "ns_per_op": 3.5, "spread": 0.1});
        assert_eq!(time(&pause), None);
    }
}
