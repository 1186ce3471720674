//! `squall tour`: two short comparisons on this machine, with explanations.

use squall_bench::{Plan, Role, Table, Text, env, run_case};

use crate::bench::{Bar, find};
use crate::output::{Failure, line};

pub(crate) fn run() -> Result<(), Failure> {
    line("Squall: shared objects for servers that scale with the number of processors.")?;
    line(
        "This tour measures two of its building blocks on this machine: per-processor data and protected reads (RCU).",
    )?;
    line(env::summary())?;
    let counting = quick("percpu")?;
    line("")?;
    counting.iter().try_for_each(line)?;
    let reading = quick("rcu-read")?;
    line("")?;
    reading.iter().try_for_each(line)?;
    line("\nThese runs were short. For figures to quote, run `squall bench CASE` on an idle machine.")?;
    line("More commands:")?;
    line("  squall demo index PATH...      shared objects at work, on your own texts")?;
    line("  squall bench --list            all benchmark cases; options --json, --threads 1,2, --quick")?;
    line("  squall info                    the detected machine and the mode of each primitive")?;
    line("  squall stress objects          a stress test of the objects; --seconds sets its duration")?;
    line("  squall loop CASE --subject S   an exact number of operations, for external instruments")
}

/// Runs one case quickly. Returns its tables and their explanation, as lines.
fn quick(name: &str) -> Result<Vec<String>, Failure> {
    let case = find(name)?;
    let plan = Plan { threads: Vec::new(), variant: None, quick: true };
    let bar = Bar::new();
    let mut tables = Vec::new();
    let outcome = run_case(case, &plan, &mut |step| bar.show(step), &mut |table| {
        tables.push(table.clone());
        Ok(())
    });
    bar.clear();
    let outcome = outcome?;
    let mut lines = Vec::new();
    if let Some(first) = tables.first() {
        lines.push(Text::case(first));
    }
    for table in &tables {
        lines.push(Text::table(table).trim_end().to_owned());
        lines.extend(Text::warning(table).map(|warning| format!("    {warning}")));
    }
    lines.push(String::new());
    lines.extend(match name {
        "percpu" => explain_counting(&tables),
        _ => explain_reading(&tables),
    });
    for (name, why) in outcome.missing {
        lines.push(format!("  ({name} is not available here: {why}.)"));
    }
    Ok(lines)
}

/// Returns the median of the subject `name` in `table`, in nanoseconds.
fn ns(table: &Table, name: &str) -> Option<f64> {
    table.subject(name).map(squall_bench::SubjectResult::median_ns)
}

fn explain_counting(tables: &[Table]) -> Vec<String> {
    let mut lines = vec![
        "  All threads add to one counter. `atomic` and `mutex` use one shared word. Their cost grows with every".to_owned(),
        "  additional processor, because the cache line of the word moves between the processors.".to_owned(),
    ];
    if let (Some(one), Some(many)) = (tables.first(), tables.last())
        && one.threads < many.threads
        && let (Some(atomic_one), Some(atomic_many)) = (ns(one, "atomic"), ns(many, "atomic"))
        && let (Some(ours_one), Some(ours_many)) = (ns(one, "squall"), ns(many, "squall"))
    {
        lines.push(format!(
            "  From 1 to {} threads, one addition went from {atomic_one:.1} to {atomic_many:.1} ns with `atomic`, and from \
             {ours_one:.1} to {ours_many:.1} ns with Squall.",
            many.threads
        ));
        lines.push(
            "  Squall gives each processor its own word and adds to it without an atomic instruction."
                .to_owned(),
        );
    }
    lines.push(
        "  `padded` and `thread-local` give each thread its own word. That is faster still, but memory and the cost of a \
         sum then grow with the number of threads."
            .to_owned(),
    );
    lines
}

fn explain_reading(tables: &[Table]) -> Vec<String> {
    let mut lines = vec![
        "  A reader must keep the data from being freed while it reads. The rows differ only in the way they do that;".to_owned(),
        "  the read itself is the same.".to_owned(),
    ];
    if let Some(many) = tables.last()
        && let Some(ours) = ns(many, "squall")
    {
        let faster: Vec<String> = many
            .subjects
            .iter()
            .filter(|s| s.role == Role::Rival && s.median_ns() > ours)
            .map(|s| format!("{} {:.1}", s.name, s.median_ns() / ours))
            .collect();
        let slower: Vec<&str> = many
            .subjects
            .iter()
            .filter(|s| s.role == Role::Rival && s.median_ns() <= ours)
            .map(|s| s.name)
            .collect();
        let plural = if many.threads == 1 { "" } else { "s" };
        lines.push(format!("  With {} thread{plural}, Squall took {ours:.1} ns per read.", many.threads));
        if !faster.is_empty() {
            lines.push(format!("  Others took longer, by these factors: {}.", faster.join(", ")));
        }
        if !slower.is_empty() {
            lines.push(format!("  At least as fast as Squall here: {}.", slower.join(", ")));
        }
    }
    lines
}
