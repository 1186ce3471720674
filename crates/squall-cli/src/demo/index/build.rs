//! Builds an index with many threads. Each thread takes the next free text, counts its words locally, and
//! then posts each word to the shared index. A read-mostly value holds the configuration: the number of
//! working threads and the maximum length of a word. Adaptive counters hold the statistics.
//!
//! - I1. A thread that waits for permission to work is woken before the build ends, even if a worker panics.
//! - I2. Each text is taken by exactly one thread.

use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use squall::objects::counter::{self, Counter};
use squall::objects::read_mostly::{self, OwnedReadMostly, ReadMostlyExt};
use squall::{Handle, Id, Owned};

use super::job::Job;
use super::keep::Keep;
use super::keep::Posting;
use super::plain::Totals;
use super::words::{self, WORD_BYTES_MAX};
use crate::output::Failure;

/// The configuration of a build. It can change during the build.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// Number of threads that may work.
    pub(super) workers: usize,
    pub(super) word_bytes_max: usize,
}

/// Counters of the finished work.
pub(super) struct Statistics {
    texts: Owned<dyn Counter>,
    bytes: Owned<dyn Counter>,
    words: Owned<dyn Counter>,
    postings: Owned<dyn Counter>,
}

impl Statistics {
    fn new() -> Statistics {
        let [texts, bytes, words, postings] = std::array::from_fn(|_| counter::adaptive());
        Statistics { texts, bytes, words, postings }
    }

    pub(super) fn totals(&self) -> Totals {
        let [texts, bytes, words, postings] =
            [&self.texts, &self.bytes, &self.words, &self.postings].map(|counter| counter.handle().total());
        Totals { texts, bytes, words, postings }
    }
}

/// One build: its job, its configuration and its statistics.
pub(super) struct Build<'a> {
    job: &'a Job,
    next: AtomicUsize,
    config: OwnedReadMostly<Config>,
    pub(super) statistics: Statistics,
}

impl<'a> Build<'a> {
    /// Makes a build in which `workers` of the threads may work at first.
    pub(super) fn new(job: &'a Job, workers: usize) -> Build<'a> {
        let config = read_mostly::adaptive(Config { workers, word_bytes_max: WORD_BYTES_MAX });
        Build { job, next: AtomicUsize::new(0), config, statistics: Statistics::new() }
    }

    /// Returns the adaptive objects of the build, with their names.
    pub(super) fn objects(&self) -> Vec<(&'static str, Id)> {
        let Statistics { texts, bytes, words, postings } = &self.statistics;
        vec![
            ("configuration", Handle::id(self.config.handle())),
            ("texts", Handle::id(texts.handle())),
            ("bytes", Handle::id(bytes.handle())),
            ("words", Handle::id(words.handle())),
            ("postings", Handle::id(postings.handle())),
        ]
    }

    /// Lets all threads work.
    pub(super) fn let_all_work(&self) {
        let threads = self.job.threads;
        self.config.handle().update(|config| Config { workers: threads, ..config.clone() });
    }

    /// Builds the index. Calls `watch` once per `interval` and once at the end. If `watch` fails, its error
    /// is returned after the threads have ended.
    ///
    /// Returns the time from the first thread's start to the last thread's end. The calling thread itself may
    /// wake up late.
    pub(super) fn run<K: Keep>(
        &self,
        kept: &K,
        interval: Duration,
        watch: &mut dyn FnMut(&Build<'_>) -> Result<(), Failure>,
    ) -> Result<Duration, Failure> {
        let watcher = thread::current();
        let begin = Barrier::new(self.job.threads + 1);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..self.job.threads)
                .map(|thread| {
                    let (begin, watcher) = (&begin, &watcher);
                    scope.spawn(move || {
                        begin.wait();
                        let began = Instant::now();
                        self.work(kept, thread);
                        let ended = Instant::now();
                        watcher.unpark();
                        (began, ended)
                    })
                })
                .collect();
            begin.wait();
            let mut watched = Ok(());
            // The first thread to end found no text left, or panicked.
            while watched.is_ok() && !workers.iter().any(|worker| worker.is_finished()) {
                // Sleeps, so that the watcher takes no processor time from the builders.
                thread::park_timeout(interval);
                watched = watch(self);
            }
            self.let_all_work();
            let done = workers.into_iter().map(|worker| worker.join());
            let done = done.map(|done| done.unwrap_or_else(|panic| resume_unwind(panic)));
            let done: Vec<(Instant, Instant)> = done.collect();
            watched.and_then(|()| watch(self))?;
            let began = done.iter().map(|(began, _)| *began).min();
            let ended = done.iter().map(|(_, ended)| *ended).max();
            Ok(ended
                .zip(began)
                .map_or(Duration::ZERO, |(ended, began)| ended.saturating_duration_since(began)))
        })
    }

    /// The loop of one thread.
    fn work<K: Keep>(&self, kept: &K, thread: usize) {
        let config = self.config.handle();
        let mut changes = config.subscribe();
        loop {
            let (may, word_bytes_max) =
                config.read(|config| (thread < config.workers, config.word_bytes_max));
            if !may {
                // The value cannot be destroyed while this thread borrows its owner.
                changes.wait().expect("the configuration was destroyed during the build");
                continue;
            }
            match self.job.order.get(self.next.fetch_add(1, Ordering::Relaxed)) {
                Some(number) => self.add(kept, *number, word_bytes_max),
                None => return,
            }
        }
    }

    /// Indexes one text.
    fn add<K: Keep>(&self, kept: &K, number: u32, word_bytes_max: usize) {
        let text = &self.job.texts[number as usize].bytes;
        let lower = words::lower(text);
        let (found, words) = words::frequencies(&lower, word_bytes_max);
        for (word, count) in &found {
            kept.post(word, Posting { text: number, count: *count });
        }
        let Statistics { texts, bytes, words: all, postings } = &self.statistics;
        texts.handle().inc();
        bytes.handle().add(text.len() as u64);
        all.handle().add(words);
        postings.handle().add(found.len() as u64);
    }
}
