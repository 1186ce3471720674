//! `squall demo index`: many threads build a word index of real texts and query it. Then
//! each map in the comparison builds the same index.
//!
//! - I1. Each index is compared word by word with the one that one thread builds in plain variables. A
//!   difference makes the demo fail, and a wrong index answers no query.

mod build;
mod form;
mod job;
mod keep;
mod live;
mod plain;
mod race;
mod table;
mod words;

use super::collect::Collected;
use crate::output::{Failure, line};
use form::Form;
use job::Job;
use live::{Index, Told};
use race::race;
pub(crate) use words::parse;

/// The form that builds and answers: the adaptive one, which needs no choice.
const SERVES: Form = Form::Adaptive;
/// Maximum number of texts listed in the example answer.
const EXAMPLE_LISTED: usize = 4;

/// Builds the index, shows it, and compares the maps.
///
/// # Errors
/// The texts have no word, or a row differs from the index of one thread.
pub(super) fn show(collected: Collected, threads: usize) -> Result<(), Failure> {
    let job = Job::new(collected, threads)?;
    line(format_args!("{} threads build a word index of {}:", job.threads, said(&job)))?;
    job.limits.iter().try_for_each(|limit| line(format_args!("  ({limit}.)")))?;
    let mut index = Index::build(SERVES, &job, Told::Stdout)?;
    line(format_args!(
        "It took {:.1} ms. One thread with plain variables takes {:.1} ms and builds an identical index.",
        index.time.as_secs_f64() * 1e3,
        job.alone.as_secs_f64() * 1e3
    ))?;
    index.ask()?;
    line(format_args!("After {} swaps, an example query:", index.swaps()))?;
    if let Some(word) = job.truth.common() {
        index.answer(word, EXAMPLE_LISTED)?;
    }
    drop(index);
    let rows = race(&job)?;
    table::print(&rows, &job)?;
    let wrong = rows.into_iter().find_map(|row| Some(format!("{}: {}", row.name, row.wrong?)));
    wrong.map_or(Ok(()), |wrong| Err(Failure::new(wrong)))
}

/// Builds the index and prints the texts that contain each of `words`. The words must come from [`parse`].
pub(super) fn answer(collected: Collected, threads: usize, words: &[String]) -> Result<(), Failure> {
    let job = Job::new(collected, threads)?;
    let index = Index::build(SERVES, &job, Told::Terminal)?;
    line(format_args!("Index of {}, identical to that of one thread.", said(&job)))?;
    job.limits.iter().try_for_each(|limit| line(format_args!("  ({limit}.)")))?;
    words.iter().try_for_each(|word| index.answer(word, usize::MAX))
}

/// Describes the content of the index.
fn said(job: &Job) -> String {
    let mib = job.totals.bytes as f64 / f64::from(1 << 20);
    format!(
        "{} texts ({mib:.1} MiB) with {} words and {} entries",
        job.totals.texts,
        job.truth.len(),
        job.totals.postings
    )
}
