//! `cargo run -p xtask -- locality-model`: holds the order in which the profiler's model has the ways to count against the order of
//! measured times (EX-K1, EX-T1).
//!
//! Idea: the model of `squall locality` ranks, and claims no times. So `squall loop` is counted under emulation for each way to count and each
//! number of threads, `squall bench` measures the same ways in interleaved rounds, and what is compared is of each pair which one is
//! dearer, by Kendall's tau.
//!
//! - I1. Both run the same code: emulation has no restartable sequences, and the measured runs are told not to use them.
//! - I2. A pair counts only where measuring tells it apart: in all passes but one in six the same of the two is dearer, and by the medians
//!   it is so by a twentieth or more. Within a pass both were measured in the same rounds, so that other load is both's.
//! - I3. Every pair that the model has the other way round is printed.
//!
//! Not promised: that they agree. The exit status says so only with `--at-least`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::sharing;
use crate::shell::{self, Outcome};

/// What `locality-model` can be asked for.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Cases of `squall bench`
    #[arg(long = "case", default_values = ["percpu", "percpu-paced", "counter"])]
    cases: Vec<String>,
    /// Numbers of threads that are measured; no more than there are processors
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<u32>,
    /// Numbers of threads that the model is asked for besides
    #[arg(long, value_delimiter = ',', default_value = "16,64")]
    also: Vec<u32>,
    /// Operations of each thread under emulation
    #[arg(long, default_value_t = 20_000)]
    ops: u64,
    /// How often everything is measured
    #[arg(long, default_value_t = 5)]
    passes: usize,
    /// Few and short rounds
    #[arg(long)]
    quick: bool,
    /// The machine of the model
    #[arg(long, default_value = "epyc")]
    model: String,
    /// Fail where tau of a case is less
    #[arg(long)]
    at_least: Option<f64>,
    /// A binary to use in place of the `squall` that is built
    #[arg(long)]
    squall: Option<std::path::PathBuf>,
}

/// One way to count, with so many threads.
#[derive(Clone, Debug, PartialEq)]
struct Way {
    subject: String,
    /// Nanoseconds of an operation, by the model.
    by_model: f64,
    /// The same as measured, in each pass.
    passes: Vec<f64>,
    /// The median of these.
    measured: f64,
    /// How far they lie apart, in nanoseconds.
    spread: f64,
}

impl Way {
    /// Differences that are less than this part are none.
    const PART: f64 = 0.05;

    /// Whether measuring tells that this is dearer than another.
    fn is_dearer(&self, other: &Way) -> bool {
        let pairs = self.passes.iter().zip(&other.passes);
        let against = pairs.filter(|(own, others)| own <= others).count();
        against <= self.passes.len() / 6 && self.measured > other.measured * (1.0 + Way::PART)
    }
}

/// How two orders go together.
#[derive(Debug, Default, PartialEq)]
struct Agreement {
    agree: usize,
    /// Of each pair the dearer as measured, and the other.
    disagree: Vec<(String, String)>,
    /// Pairs that the model has alike, though measured times differ.
    alike: Vec<(String, String)>,
    /// Pairs whose measured times are not told apart.
    untold: usize,
}

impl Agreement {
    /// What the model calls no different.
    const ALIKE: f64 = 0.01;

    fn of(ways: &[Way]) -> Agreement {
        let mut found = Agreement::default();
        for (at, one) in ways.iter().enumerate() {
            for other in &ways[at + 1..] {
                let (more, less) = if one.measured > other.measured { (one, other) } else { (other, one) };
                let names = || (more.subject.clone(), less.subject.clone());
                if !more.is_dearer(less) {
                    found.untold += 1;
                } else if (more.by_model - less.by_model).abs() <= Agreement::ALIKE * more.by_model {
                    found.alike.push(names());
                } else if more.by_model > less.by_model {
                    found.agree += 1;
                } else {
                    found.disagree.push(names());
                }
            }
        }
        found
    }

    /// Kendall's tau-b over the pairs that measurement tells apart: 1 where all agree, -1 where all are the other way round; those that the
    /// model has alike are in its base. None where there is no pair.
    fn tau(&self) -> Option<f64> {
        let decided = (self.agree + self.disagree.len()) as f64;
        let all = decided + self.alike.len() as f64;
        (decided > 0.0).then(|| (self.agree as f64 - self.disagree.len() as f64) / (decided * all).sqrt())
    }
}

/// Counts, measures, compares and prints.
///
/// # Errors
/// When something cannot be counted or measured though the emulator is here, or agrees less than was asked for.
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
    ensure!(options.passes > 0, "--passes: at least one");
    let here = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    ensure!(options.threads.iter().all(|n| (1..=here).contains(n)), "--threads: from 1 to {here} here");
    let squall = match &options.squall {
        Some(path) => path.clone(),
        None => sharing::build()?,
    };
    let mut too_little = Vec::new();
    for case in &options.cases {
        let measured = measure(&squall, case, options)?;
        for (threads, times) in &measured {
            let ways = times
                .iter()
                .map(|(subject, passes)| {
                    let by_model = by_model(&squall, case, subject, *threads, options)?;
                    let (measured, spread) = together(passes);
                    let passes = passes.iter().map(|pass| pass.0).collect();
                    Ok(Way { subject: subject.clone(), by_model, passes, measured, spread })
                })
                .collect::<Result<Vec<Way>>>()?;
            let agreement = print(case, *threads, ways);
            if let (Some(wanted), Some(tau)) = (options.at_least, agreement.tau())
                && tau < wanted
            {
                too_little.push(format!("{case} at {threads} threads has tau {tau:.2}"));
            }
        }
        let subjects: Vec<&String> = measured.values().flat_map(BTreeMap::keys).collect();
        also(&squall, case, &subjects, options)?;
    }
    if !too_little.is_empty() {
        bail!("{}", too_little.join("; "));
    }
    Ok(Outcome::Passed)
}

/// Prints the ways of one case, dearest first, and how the orders go together.
fn print(case: &str, threads: u32, mut ways: Vec<Way>) -> Agreement {
    ways.sort_by(|a, b| b.measured.total_cmp(&a.measured));
    println!("\n{case}, {threads} threads, dearest first as measured");
    println!("{:20} {:>12} {:>12} {:>14}", "", "measured ns", "+-", "by model ns");
    for Way { subject, by_model, measured, spread, .. } in &ways {
        println!("{subject:20} {measured:12.2} {spread:12.2} {by_model:14.2}");
    }
    let found = Agreement::of(&ways);
    let tau = found.tau().map_or("none".to_owned(), |tau| format!("{tau:.2}"));
    println!(
        "tau {tau}: {} pairs agree, {} disagree, {} are alike to the model, {} are not told apart by measuring",
        found.agree,
        found.disagree.len(),
        found.alike.len(),
        found.untold
    );
    for (more, less) in &found.disagree {
        println!("  DISAGREES: measured, {more} is dearer than {less}; by the model it is cheaper");
    }
    for (more, less) in &found.alike {
        println!("  alike to the model: measured, {more} is dearer than {less}");
    }
    found
}

/// What the model says of more threads than can be measured here.
fn also(squall: &Path, case: &str, subjects: &[&String], options: &Options) -> Result<()> {
    let mut seen = Vec::new();
    for subject in subjects {
        if !seen.contains(subject) {
            seen.push(subject);
        }
    }
    if options.also.is_empty() {
        return Ok(());
    }
    println!("\n{case}, by the model alone: nanoseconds of an operation");
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

/// By number of threads and subject: for each pass nanoseconds, and the interquartile range of its rounds over them.
type Times = BTreeMap<u32, BTreeMap<String, Vec<(f64, f64)>>>;

/// Measures all subjects of a case, interleaved, in some passes.
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
    ensure!(whole, "{case}: not everything was measured in each pass");
    ensure!(!times.is_empty(), "{case} has no times");
    Ok(times)
}

/// A time in the output of `squall bench`: threads, subject, median, and the interquartile range over it.
fn time(row: &serde_json::Value) -> Option<(u32, String, f64, f64)> {
    let subject = row.get("subject")?.as_str()?;
    let threads = row.get("threads")?.as_u64()?.try_into().ok()?;
    // Of `percpu-paced`, the pause itself: it is subtracted from the others.
    (subject != "pause").then_some((
        threads,
        subject.to_owned(),
        row.get("ns_per_op")?.as_f64()?,
        row.get("spread")?.as_f64()?,
    ))
}

/// The median of passes, and how far they lie apart: the interquartile range of their medians, or of the rounds within the median pass,
/// whichever is more. A pass that others disturbed is one among several, so that there should be five or more.
fn together(passes: &[(f64, f64)]) -> (f64, f64) {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let (count, quarter) = (values.len(), values.len() / 4);
        (values[count / 2], values[count - 1 - quarter] - values[quarter])
    };
    let (median, between) = middle(passes.iter().map(|pass| pass.0).collect());
    let (within, _) = middle(passes.iter().map(|(ns, spread)| (ns * spread).abs()).collect());
    (median, between.max(within))
}

/// Nanoseconds of an operation of one of so many threads, as the model has it.
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
    let report: serde_json::Value = serde_json::from_str(&said).context("no report")?;
    let why = &report["incomplete"];
    ensure!(why.as_array().is_some_and(Vec::is_empty), "{case} {subject} was not counted to the end: {why}");
    report["curve"][0]["ns_per_op"].as_f64().with_context(|| format!("no cost of {case} {subject}"))
}

#[cfg(test)]
mod tests {
    use super::{Agreement, Way, time, together};

    fn way(subject: &str, by_model: f64, measured: f64) -> Way {
        let passes = vec![measured, measured + 2.0, measured - 2.0];
        Way { subject: subject.to_owned(), by_model, passes, measured, spread: 1.0 }
    }

    #[test]
    fn orders_are_compared_where_measurement_tells() {
        let ways = [way("a", 100.0, 50.0), way("b", 20.0, 30.0), way("c", 20.1, 10.0), way("d", 1.0, 9.8)];
        let found = Agreement::of(&ways);
        // a above all, b and c above d; b and c alike to the model; c and d are measured alike.
        assert_eq!((found.agree, found.untold), (4, 1));
        assert_eq!((found.disagree.len(), &found.alike[..]), (0, &[("b".to_owned(), "c".to_owned())][..]));
        assert!(found.tau().is_some_and(|tau| (tau - 4.0 / 20f64.sqrt()).abs() < 1e-12));
        let reversed = Agreement::of(&[way("a", 1.0, 50.0), way("b", 2.0, 30.0)]);
        assert_eq!((reversed.tau(), reversed.disagree.len()), (Some(-1.0), 1));
        assert_eq!(Agreement::of(&[way("a", 1.0, 5.0), way("b", 2.0, 5.0)]).tau(), None);
    }

    #[test]
    fn what_is_dearer_is_so_in_nearly_all_passes() {
        let of = |passes: &[f64]| Way { passes: passes.to_vec(), measured: passes[3], ..way("", 1.0, 1.0) };
        let (one, other) = (of(&[9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]), of(&[7.0; 7]));
        assert!(one.is_dearer(&other) && !other.is_dearer(&one));
        assert!(of(&[1.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]).is_dearer(&other));
        assert!(!of(&[1.0, 1.0, 9.0, 9.0, 9.0, 9.0, 9.0]).is_dearer(&other));
        assert!(!of(&[7.1; 7]).is_dearer(&other));
    }

    #[test]
    fn passes_are_taken_together() {
        assert_eq!(together(&[(10.0, 0.1), (14.0, 0.1), (11.0, 0.1)]), (11.0, 4.0));
        assert_eq!(together(&[(10.0, 0.5)]), (10.0, 5.0));
        // One of five that was disturbed does not count.
        assert_eq!(together(&[(10.0, 0.1), (11.0, 0.1), (12.0, 0.1), (11.5, 0.1), (90.0, 3.0)]).0, 11.5);
        assert!(together(&[(10.0, 0.1), (11.0, 0.1), (12.0, 0.1), (11.5, 0.1), (90.0, 3.0)]).1 < 1.3);
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
