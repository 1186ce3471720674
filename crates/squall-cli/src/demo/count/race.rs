//! One lap: threads read all texts once and report every word, line and file to the statistics.

use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::scan::by_calls;
use super::stats::TextStats;
use crate::demo::collect::Text;

/// Interval between two calls of `watch`.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// The result of a lap.
pub(super) struct Lap {
    pub(super) time: Duration,
    /// Calls of the statistics, as the threads counted them.
    pub(super) calls: u64,
}

/// Runs `threads` threads over `texts`. Each thread takes the next text that was not taken. `watch` receives
/// the number of texts taken so far.
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
            // Sleeps, so that the watcher takes no processor time from the readers.
            thread::park_timeout(WATCH_INTERVAL);
        }
        // A panic of a thread is a bug of the demo and is propagated.
        let done =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let done: Vec<(u64, Instant, Instant)> = done.collect();
        // Measured from the first start to the last end, because this thread itself may wake up late.
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
        let _serial = crate::serial::lock();
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
