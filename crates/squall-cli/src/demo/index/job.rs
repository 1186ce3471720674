//! What is to be indexed, and what must come of it.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::plain::{Plain, Totals, Truth};
use crate::demo::collect::{Collected, Text};

/// Texts, and the truth about them.
pub(super) struct Job {
    pub(super) texts: Vec<Text>,
    /// The numbers of the texts in the order in which they are taken: the longest first, so that no thread begins a long one when
    /// the others are through.
    pub(super) order: Vec<u32>,
    pub(super) threads: usize,
    pub(super) truth: Truth,
    pub(super) totals: Totals,
    /// How long one thread took.
    pub(super) alone: Duration,
    /// Limits that were reached, as sentences.
    pub(super) limits: Vec<String>,
}

impl Job {
    /// Of what was read; of the first texts, if one thread takes longer than `time` for all.
    pub(super) fn of(collected: Collected, threads: usize, time: Duration) -> Job {
        let Collected { mut texts, mut limits, .. } = collected;
        let began = Instant::now();
        let Plain { words, totals } = Plain::build(&texts, time);
        let alone = began.elapsed();
        let left = texts.len() - totals.texts as usize;
        if left > 0 {
            limits.push(format!("{left} texts were left away, so that this ends soon"));
        }
        texts.truncate(totals.texts as usize);
        let mut order: Vec<u32> = (0..texts.len() as u32).collect();
        order.sort_by_key(|number| Reverse(texts[*number as usize].bytes.len()));
        Job { texts, order, threads, truth: Truth::new(words), totals, alone, limits }
    }
}
