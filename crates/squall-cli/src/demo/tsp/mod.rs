//! The travelling salesman: threads prove the shortest tour over the queue, with the best tour in a
//! read-mostly value. Then the forms of the queue are compared on a modelled machine, as in KTK's table 3.
//!
//! - I1. A tour is called the optimum only with a proof. Another optimum than the file states is a failure.

mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use clap::Args;
use squall_bench::env;
use squall_tsp::{Form, Instance, Parallel, Progress, Queued, queued, shipped, svg, tsplib};

use crate::output::{Failure, line, printable};
use crate::progress::bar;

/// The instance that is solved if no file is named.
const DEFAULT: &str = "plane16";

#[derive(Args)]
pub(crate) struct TspArgs {
    /// A file of TSPLIB (TSP or ATSP), or the name of an instance of Squall, such as wind14 or gr17.
    #[arg(value_name = "FILE", default_value = DEFAULT)]
    file: PathBuf,
    /// Form of the queue: central, naive, unbalanced, ring, tree, star, all, relaxed, object or adaptive.
    #[arg(long, value_name = "FORM", default_value = "ring", value_parser = parse_form)]
    form: Form,
    /// Number of threads. The default is one per processor, but at least 2.
    #[arg(long, value_name = "N", value_parser = crate::args::parse_count)]
    threads: Option<usize>,
    /// Draw the tour into this file, as SVG.
    #[arg(long, value_name = "OUT")]
    svg: Option<PathBuf>,
}

fn parse_form(text: &str) -> Result<Form, String> {
    let names = || Form::ALL.map(Form::name).join(", ");
    Form::named(text).ok_or_else(|| format!("expected one of {}", names()))
}

/// Reads the file. A name without such a file is that of an instance of ours.
fn read(file: &Path) -> Result<Instance, Failure> {
    let ours = file.to_str().and_then(shipped::find);
    match (tsplib::read(file), ours) {
        (Ok(instance), _) => Ok(instance),
        (Err(tsplib::ReadError::Io { .. }), Some(ours)) if !file.exists() => Ok(ours.instance()),
        (Err(error @ tsplib::ReadError::Io { .. }), None) if !file.exists() => {
            let names = shipped::ALL.iter().map(shipped::Shipped::name).collect::<Vec<_>>().join(", ");
            Err(Failure::new(format!("{error}; name a file of TSPLIB, or one of: {names}")))
        }
        (Err(error), _) => Err(Failure::new(error.to_string())),
    }
}

pub(crate) fn run(args: &TspArgs) -> Result<(), Failure> {
    let instance = read(&args.file)?;
    let threads = args.threads.unwrap_or_else(|| env::processors().len().max(2));
    line(env::summary())?;
    let kind = if instance.is_symmetric() { "symmetric" } else { "asymmetric" };
    line(printable(&format!(
        "{}: {} cities, {kind}. {threads} threads search over the queue in the form {}.",
        instance.name(),
        instance.cities(),
        args.form.name()
    )))?;
    let found = search(&instance, args.form, threads)?;
    let length = found.tour.length();
    let sum = |of: fn(&squall_tsp::Work) -> u64| found.work.iter().map(of).sum::<u64>();
    line(format_args!(
        "The optimum is {length}, proven in {:.1} ms: {} subproblems branched, {} dropped by their bound.",
        found.took.as_secs_f64() * 1e3,
        sum(|work| work.expanded),
        sum(|work| work.pruned)
    ))?;
    let cities = found.tour.cities().iter().map(|city| (city + 1).to_string()).collect::<Vec<_>>();
    line(format_args!("The tour: {}", cities.join(" ")))?;
    match instance.stated_optimum() {
        Some(stated) if stated != length => {
            return Err(Failure::new(format!(
                "the file states the optimum {stated}, and {length} is proven; correct the comment of the file"
            )));
        }
        Some(_) => line("The file states this optimum, too.")?,
        None => {}
    }
    if let Some(file) = &args.svg {
        fs::write(file, svg(&instance, &found.tour))
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", file.display())))?;
        line(printable(&format!("The drawing is {}", file.display())))?;
    }
    table::print(&instance, length)
}

/// Searches, and prints each better tour when it is found.
fn search(instance: &Instance, form: Form, threads: usize) -> Result<Parallel, Failure> {
    let bar = bar(0, "{msg}");
    // The shortest printed length, and the first failure of a print.
    let told = Mutex::new((u64::MAX, Ok(())));
    let report = |at: Progress| {
        bar.set_message(format!("thread {}: {} branched; {} open", at.searcher, at.expanded, at.open));
        bar.tick();
        let mut told = told.lock().unwrap_or_else(|poison| poison.into_inner());
        if at.length < told.0 && told.1.is_ok() {
            told.0 = at.length;
            told.1 = bar.suspend(|| {
                line(format_args!(
                    "  a tour of length {}: found by thread {} in subproblem {}",
                    at.length, at.searcher, at.expanded
                ))
            });
        }
    };
    let queue = Queued::new(form, threads);
    let found = queued(instance, &queue, threads, &report);
    bar.finish_and_clear();
    told.into_inner().unwrap_or_else(|poison| poison.into_inner()).1?;
    for change in queue.changes() {
        line(printable(&format!("  the policy: {change}")))?;
    }
    found.map_err(|error| Failure::new(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_its_name_on_the_command_line() {
        for form in Form::ALL {
            assert_eq!(parse_form(form.name()), Ok(form));
        }
        assert!(parse_form("circle").is_err_and(|error| error.contains("central, naive")));
    }
}
