//! `squall tour`: two short comparisons on this machine, explained in plain words.

use squall_bench::{Plan, Role, Table, Text, env, run_case};

use crate::bench::{Bar, find};
use crate::output::{Failure, line};

pub(crate) fn run() -> Result<(), Failure> {
    line("Squall: objects of a server that spread over the processors while they run.")?;
    line("A first look at their ground, per-processor data and read-copy-update, on this machine:")?;
    line(env::summary())?;
    let counting = quick("percpu")?;
    line("")?;
    counting.iter().try_for_each(line)?;
    let reading = quick("rcu-read")?;
    line("")?;
    reading.iter().try_for_each(line)?;
    line(
        "\nThese were short runs; figures to quote come from `squall bench CASE`, on a machine that does nothing else.",
    )?;
    line("There is more:")?;
    line("  squall demo PATH...            objects that many threads call, on texts of yours")?;
    line("  squall bench --list            the other cases; --json, --threads 1,2, --quick")?;
    line(
        "  squall info                    the machine that was found, and in which mode each primitive runs",
    )?;
    line("  squall stress objects          tries to break what is promised, for as long as you like")?;
    line(
        "  squall loop CASE --subject S   exactly so many operations, for instruments that count from outside",
    )
}

/// Runs one case quickly; its tables and what they mean, as lines.
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
        lines.push(format!("  (Not here: {name}, {why}.)"));
    }
    Ok(lines)
}

/// Median of `name` in `table`, in nanoseconds.
fn ns(table: &Table, name: &str) -> Option<f64> {
    table.subject(name).map(squall_bench::SubjectResult::median_ns)
}

fn explain_counting(tables: &[Table]) -> Vec<String> {
    let mut lines = vec![
        "  What this means: all threads count into one counter. `atomic` and `mutex` are one shared word; their cost".to_owned(),
        "  grows with every processor that joins in, because the word has to travel between them.".to_owned(),
    ];
    if let (Some(one), Some(many)) = (tables.first(), tables.last())
        && one.threads < many.threads
        && let (Some(atomic_one), Some(atomic_many)) = (ns(one, "atomic"), ns(many, "atomic"))
        && let (Some(ours_one), Some(ours_many)) = (ns(one, "squall"), ns(many, "squall"))
    {
        lines.push(format!(
            "  From 1 to {} threads one addition went from {atomic_one:.1} to {atomic_many:.1} ns with `atomic`, and from \
             {ours_one:.1} to {ours_many:.1} ns with Squall,",
            many.threads
        ));
        lines.push(
            "  whose word is the processor's own and is added to without an atomic instruction.".to_owned(),
        );
    }
    lines.push(
        "  `padded` and `thread-local` give each thread its own word: faster still, but memory and the sum then grow with \
         the threads."
            .to_owned(),
    );
    lines
}

fn explain_reading(tables: &[Table]) -> Vec<String> {
    let mut lines = vec![
        "  What this means: a reader protects what it reads from being freed. That is all the difference between the".to_owned(),
        "  rows; the read itself is the same.".to_owned(),
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
        lines.push(format!("  With {} thread{plural} Squall took {ours:.1} ns.", many.threads));
        if !faster.is_empty() {
            lines.push(format!("  The others took so many times as long: {}.", faster.join(", ")));
        }
        if !slower.is_empty() {
            lines.push(format!("  Not slower than Squall here: {}.", slower.join(", ")));
        }
    }
    lines
}
