//! The texts to index and the expected result.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::plain::{Plain, Totals, Truth};
use crate::demo::collect::{Collected, Text};

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
    /// Makes a job from the collected texts. If a single-threaded build takes longer than `time`, only the
    /// first texts are kept.
    pub(super) fn of(collected: Collected, threads: usize, time: Duration) -> Job {
        let Collected { mut texts, mut limits, .. } = collected;
        let began = Instant::now();
        let Plain { words, totals } = Plain::build(&texts, time);
        let alone = began.elapsed();
        let left = texts.len() - totals.texts as usize;
        if left > 0 {
            limits.push(format!("{left} texts were left out to keep the demo short"));
        }
        texts.truncate(totals.texts as usize);
        let mut order: Vec<u32> = (0..texts.len() as u32).collect();
        order.sort_by_key(|number| Reverse(texts[*number as usize].bytes.len()));
        Job { texts, order, threads, truth: Truth::new(words), totals, alone, limits }
    }
}
