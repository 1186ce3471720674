//! `squall demo` and `squall demo index`: an index of the words of a tree of real texts, built by many threads, asked, and built again
//! by all who can keep it, for comparison.
//!
//! - I1. Each index is compared with the one that one thread builds in plain variables, word by word; one that differs makes the demo
//!   fail, and nothing is answered from it.

mod build;
mod form;
mod job;
mod keep;
mod live;
mod plain;
mod race;
mod table;
mod words;

use std::time::Duration;

use super::collect::{Collected, Text};
use crate::output::{Failure, line};
use form::Form;
use job::Job;
use live::{Index, Told};
use race::race;
pub(crate) use words::parse;

/// Texts that take one thread longer are left away where the index is only built to be seen.
const PLAIN_TIME_MAX: Duration = Duration::from_millis(250);
/// The form in which the index is built and asked: the one that needs no choice.
const SERVES: Form = Form::Adaptive;
/// Texts that an example of an answer lists.
const EXAMPLE_LISTED: usize = 4;

/// Builds the index, shows it, and compares. Returns the texts for what else is shown, and what is wrong with a row, if anything.
pub(super) fn show(collected: Collected, threads: usize) -> Result<(Vec<Text>, Option<String>), Failure> {
    compare(Job::of(collected, threads, PLAIN_TIME_MAX))
}

/// The same of all texts.
pub(super) fn show_all(collected: Collected, threads: usize) -> Result<(Vec<Text>, Option<String>), Failure> {
    compare(Job::of(collected, threads, Duration::MAX))
}

fn compare(job: Job) -> Result<(Vec<Text>, Option<String>), Failure> {
    line(format_args!("{} threads build an index of {}:", job.threads, said(&job)))?;
    job.limits.iter().try_for_each(|limit| line(format_args!("  ({limit}.)")))?;
    let mut index = Index::build(SERVES, &job, Told::Stdout)?;
    line(format_args!(
        "It took {:.1} ms; one thread takes {:.1} ms in plain variables, and the index is identical to its.",
        index.time.as_secs_f64() * 1e3,
        job.alone.as_secs_f64() * 1e3
    ))?;
    index.ask()?;
    line(format_args!("After {} swaps, an answer:", index.swaps()))?;
    if let Some(word) = job.truth.common() {
        index.answer(word, EXAMPLE_LISTED)?;
    }
    drop(index);
    let rows = race(&job)?;
    table::print(&rows, &job)?;
    let wrong = rows.into_iter().find_map(|row| Some(format!("{}: {}", row.name, row.wrong?)));
    Ok((job.texts, wrong))
}

/// Builds the index, and answers which texts have these words. They are words as [`parse`] returns them.
pub(super) fn answer(collected: Collected, threads: usize, words: &[String]) -> Result<(), Failure> {
    let job = Job::of(collected, threads, Duration::MAX);
    let index = Index::build(SERVES, &job, Told::Terminal)?;
    line(format_args!("Index of {}, identical to that of one thread.", said(&job)))?;
    job.limits.iter().try_for_each(|limit| line(format_args!("  ({limit}.)")))?;
    words.iter().try_for_each(|word| index.answer(word, usize::MAX))
}

/// What is in the index.
fn said(job: &Job) -> String {
    let mib = job.totals.bytes as f64 / f64::from(1 << 20);
    format!(
        "{} texts, {mib:.1} MiB: {} words, {} entries of a word in a text",
        job.totals.texts,
        job.truth.len(),
        job.totals.postings
    )
}
