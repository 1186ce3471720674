//! One lap: threads read all texts once and tell the statistics of every word, line and file.

use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::scan::by_calls;
use super::stats::TextStats;
use crate::demo::collect::Text;

/// How often whoever watches is told.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// What a lap took.
pub(super) struct Lap {
    pub(super) time: Duration,
    /// Calls of the statistics that the threads made, by their own count.
    pub(super) calls: u64,
}

/// Lets `threads` threads read `texts`, each the next one that none has read. `watch` is told how many were begun.
pub(super) fn lap<S: TextStats + ?Sized>(
    stats: &S,
    texts: &[Text],
    threads: usize,
    watch: &mut dyn FnMut(usize),
) -> Lap {
    let watcher = thread::current();
    let next = AtomicUsize::new(0);
    let begin = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (next, begin, watcher) = (&next, &begin, &watcher);
                scope.spawn(move || {
                    begin.wait();
                    let began = Instant::now();
                    let mut calls = 0;
                    while let Some(text) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
                        calls += by_calls(stats, thread, &text.bytes);
                    }
                    let ended = Instant::now();
                    watcher.unpark();
                    (calls, began, ended)
                })
            })
            .collect();
        begin.wait();
        while workers.iter().any(|worker| !worker.is_finished()) {
            watch(next.load(Ordering::Relaxed).min(texts.len()));
            // Sleeps, so as to take no processor from those that read.
            thread::park_timeout(WATCH_INTERVAL);
        }
        // A panic of a thread is a defect of the demo, and goes on here.
        let done =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let done: Vec<(u64, Instant, Instant)> = done.collect();
        // From the first that began to the last that ended: this thread itself may have been late.
        let began = done.iter().map(|(_, began, _)| *began).min();
        let ended = done.iter().map(|(_, _, ended)| *ended).max();
        let time =
            ended.zip(began).map_or(Duration::ZERO, |(ended, began)| ended.saturating_duration_since(began));
        Lap { time, calls: done.iter().map(|(calls, _, _)| calls).sum() }
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::stats::Locked;
    use super::*;

    #[test]
    fn every_text_is_read_once_whatever_the_number_of_threads() {
        let _alone = crate::alone();
        let text = |n| Text { path: PathBuf::new(), bytes: "a bc\n".repeat(n).into_bytes() };
        let texts: Vec<Text> = (0..100).map(text).collect();
        for threads in [1, 3] {
            let stats = Locked::default();
            let lap = lap(&stats, &texts, threads, &mut |_| {});
            let totals = stats.totals();
            assert_eq!((totals.files, totals.lines, totals.words), (100, 4950, 9900));
            assert_eq!(lap.calls, 100 + 4950 + 9900);
            assert_eq!(stats.by_thread().iter().map(|thread| thread.bytes).sum::<u64>(), totals.bytes);
        }
    }
}
