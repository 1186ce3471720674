//! `squall bench`: runs cases and prints their tables.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;
use squall_bench::{Case, Plan, Step, Table, Text, env, rows, run_case};

use crate::args::parse_count;
use crate::output::{Failure, line};
use crate::progress::bar;

#[derive(Args)]
pub(crate) struct BenchArgs {
    /// The cases to run (see --list).
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// List the cases, one per line.
    #[arg(long)]
    list: bool,
    /// Thread counts, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = parse_count)]
    threads: Vec<usize>,
    /// Run only this variant of the case.
    #[arg(long, value_name = "V")]
    variant: Option<String>,
    /// Print one JSON object per line, and no other text, to stdout.
    #[arg(long)]
    json: bool,
    /// Run few and short rounds, for a first look or for CI.
    #[arg(long)]
    quick: bool,
}

#[derive(Args)]
pub(crate) struct LoopArgs {
    /// The case (see `squall bench --list`).
    case: String,
    /// The subject: one of Squall's or a rival.
    #[arg(long, value_name = "S")]
    subject: String,
    /// Number of threads. The main thread runs no operations.
    #[arg(long, default_value = "1", value_parser = parse_count)]
    threads: usize,
    /// Operations per thread.
    #[arg(long, value_name = "K")]
    ops: u64,
    /// The variant of the case.
    #[arg(long, value_name = "V")]
    variant: Option<String>,
}

#[derive(Args)]
pub(crate) struct BrowsedArgs {
    /// The path of its inspection socket.
    #[arg(value_name = "PATH")]
    socket: PathBuf,
    /// Replace a thousand objects each second.
    #[arg(long)]
    churn: bool,
}

#[cfg(feature = "net")]
#[derive(Args)]
pub(crate) struct NetArgs {
    /// The engine, the side and its arguments.
    #[arg(value_name = "WORD")]
    words: Vec<String>,
}

/// Runs a server or a client of the case `net`, until its input ends.
#[cfg(feature = "net")]
pub(crate) fn run_net(args: &NetArgs) -> Result<(), Failure> {
    Ok(squall_bench::net_program(&args.words)?)
}

/// Runs the program that the case `browse` watches, until its input ends.
pub(crate) fn run_browsed(args: &BrowsedArgs) -> Result<(), Failure> {
    Ok(squall_bench::browsed_program(&args.socket, args.churn)?)
}

/// Runs the serving process of the case `call-process`, until its orders end.
pub(crate) fn run_call_server() -> Result<(), Failure> {
    Ok(squall_bench::call_server()?)
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    if args.list {
        return list(args.json);
    }
    if args.cases.is_empty() {
        return Err(Failure::new(format!("no case was named; choose one of: {}", names())));
    }
    let cases = args.cases.iter().map(|name| find(name)).collect::<Result<Vec<_>, _>>()?;
    let plan = Plan { threads: args.threads.clone(), variant: args.variant.clone(), quick: args.quick };
    for case in &cases {
        plan.variants(case)?;
    }
    if !args.json {
        line(env::summary())?;
    }
    for case in cases {
        for (variant, threads) in plan.overruled(case)? {
            eprintln!(
                "squall: case {} {variant} always runs {threads} threads; --threads is ignored",
                case.name
            );
        }
        measure(case, &plan, args.json)?;
    }
    Ok(())
}

/// Runs an exact number of operations of one subject.
pub(crate) fn run_loop(args: &LoopArgs) -> Result<(), Failure> {
    let case = find(&args.case)?;
    squall_bench::run_exact(case, &args.subject, args.variant.as_deref(), args.threads, args.ops)?;
    Ok(())
}

/// Returns the case with this name, or an error that names all cases.
pub(crate) fn find(name: &str) -> Result<&'static Case, Failure> {
    squall_bench::find(name)
        .ok_or_else(|| Failure::new(format!("there is no case {name:?}; choose one of: {}", names())))
}

fn names() -> String {
    squall_bench::all().iter().map(|case| case.name).collect::<Vec<_>>().join(", ")
}

fn list(json: bool) -> Result<(), Failure> {
    for case in squall_bench::all() {
        if json {
            let variants: Vec<_> = case.variants.iter().map(|v| v.name).filter(|n| !n.is_empty()).collect();
            line(serde_json::json!({
                "case": case.name,
                "about": case.about,
                "variants": variants,
                "subjects": case.subject_names(),
            }))?;
        } else if std::io::stdout().is_terminal() {
            line(format_args!("{:<14} {}", case.name, case.about))?;
        } else {
            line(case.name)?;
        }
    }
    Ok(())
}

/// Runs one case and prints each table when it is complete.
fn measure(case: &'static Case, plan: &Plan, json: bool) -> Result<(), Failure> {
    let bar = Bar::new();
    let mut failure = None;
    let mut headed = None;
    let outcome = run_case(case, plan, &mut |step| bar.show(step), &mut |table| {
        let printed = bar
            .suspend(|| print(table, json, headed.replace(table.variant.name) == Some(table.variant.name)));
        printed.map_err(|why| {
            let told = squall_bench::RunError(why.to_string());
            failure = Some(why);
            told
        })
    });
    bar.clear();
    if let Some(failure) = failure {
        return Err(failure);
    }
    for (name, why) in outcome?.missing {
        eprintln!("squall: case {}: {name} is missing: {why}", case.name);
    }
    Ok(())
}

fn print(table: &Table, json: bool, headed: bool) -> Result<(), Failure> {
    if let Some(warning) = Text::warning(table) {
        eprintln!("squall: {warning}");
    }
    if json {
        for row in rows(table) {
            line(serde_json::to_string(&row).map_err(|e| Failure::new(e.to_string()))?)?;
        }
        return Ok(());
    }
    if !headed {
        line(format_args!("\n{}", Text::case(table)))?;
    }
    line(Text::table(table).trim_end())
}

/// A progress bar on a terminal; invisible elsewhere.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Bar {
        Bar(bar(0, "{msg} {wide_bar} {pos}/{len}"))
    }

    pub(crate) fn show(&self, step: Step<'_>) {
        let variant = if step.variant.is_empty() { String::new() } else { format!(" {}", step.variant) };
        self.0.set_message(format!("{}{variant}, {} threads", step.case, step.threads));
        self.0.set_length(step.rounds as u64);
        self.0.set_position(step.round as u64);
    }

    pub(crate) fn suspend<R>(&self, f: impl FnOnce() -> R) -> R {
        self.0.suspend(f)
    }

    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
