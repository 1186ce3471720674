//! The texts to index and the expected result.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::plain::{Plain, Totals, Truth};
use crate::demo::collect::{Collected, Text};
use crate::output::Failure;

/// The texts, and the correct index of them.
pub(super) struct Job {
    pub(super) texts: Vec<Text>,
    /// Numbers of the texts, longest first. So no thread begins a long text when the other threads are done.
    pub(super) order: Vec<u32>,
    pub(super) threads: usize,
    pub(super) truth: Truth,
    pub(super) totals: Totals,
    /// Time of the single-threaded build.
    pub(super) alone: Duration,
    /// Limits that were reached, as sentences.
    pub(super) limits: Vec<String>,
}

impl Job {
    /// Makes a job from the collected texts.
    ///
    /// # Errors
    /// The texts have no word.
    pub(super) fn new(collected: Collected, threads: usize) -> Result<Job, Failure> {
        let Collected { texts, limits, .. } = collected;
        let began = Instant::now();
        let Plain { words, totals } = Plain::build(&texts);
        let alone = began.elapsed();
        if totals.words == 0 {
            return Err(Failure::new(format!("there is no word to index in {} texts", totals.texts)));
        }
        let mut order: Vec<u32> = (0..texts.len() as u32).collect();
        order.sort_by_key(|number| Reverse(texts[*number as usize].bytes.len()));
        Ok(Job { texts, order, threads, truth: Truth::new(words), totals, alone, limits })
    }
}
