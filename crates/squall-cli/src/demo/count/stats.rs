//! Statistics of texts behind one interface: a shared object, a distributed object, and adaptive counters.
//! Two plain implementations serve as rivals.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use squall::objects::counter::{self, Counter};
use squall::pervp::BiasedWord;
use squall::{Handle, Id, Owned, RepContext, Root};

/// Counts of one text or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) files: u64,
    /// Lines. A line ends with a line feed or with the text.
    pub(crate) lines: u64,
    /// Words between white space, as in `wc`.
    pub(crate) words: u64,
    pub(crate) bytes: u64,
    /// Length of the longest line in bytes, including its line feed.
    pub(crate) longest_line: u64,
}

impl Totals {
    pub(crate) fn plus(mut self, more: &Totals) -> Totals {
        self.files += more.files;
        self.lines += more.lines;
        self.words += more.words;
        self.bytes += more.bytes;
        self.longest_line = self.longest_line.max(more.longest_line);
        self
    }
}

/// Statistics that many threads update while they read.
#[squall::interface]
pub(crate) trait TextStats: Send + Sync {
    /// Counts one word.
    fn word(&self);
    /// Counts one line of `bytes` bytes.
    fn line(&self, bytes: u64);
    /// Reports that thread number `thread` finished a file with these counts.
    fn file(&self, thread: usize, counted: &Totals);
    /// Returns the totals of all words and lines.
    fn totals(&self) -> Totals;
    /// Returns the counts of the files that each thread reported.
    fn by_thread(&self) -> Vec<Totals>;
}

/// Adds to the entry of a thread. Makes the entry if it is absent.
fn note(threads: &mut Vec<Totals>, thread: usize, counted: &Totals) {
    if threads.len() <= thread {
        threads.resize(thread + 1, Totals::default());
    }
    threads[thread] = threads[thread].plus(counted);
}

fn merge(mut all: Vec<Totals>, some: Vec<Totals>) -> Vec<Totals> {
    some.iter().enumerate().for_each(|(thread, counted)| note(&mut all, thread, counted));
    all
}

/// Locks a mutex and ignores poison: a panicking thread leaves the value consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Raises `word` to at least `value`. Stores only if `value` is larger.
fn raise(word: &AtomicU64, value: u64) {
    if word.load(Ordering::Relaxed) < value {
        word.fetch_max(value, Ordering::Relaxed);
    }
}

/// Five atomic words that all threads update.
#[derive(Default)]
pub(crate) struct Atomics {
    files: AtomicU64,
    lines: AtomicU64,
    words: AtomicU64,
    bytes: AtomicU64,
    longest_line: AtomicU64,
    threads: Mutex<Vec<Totals>>,
}

impl TextStats for Atomics {
    fn word(&self) {
        self.words.fetch_add(1, Ordering::Relaxed);
    }

    fn line(&self, bytes: u64) {
        self.lines.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        raise(&self.longest_line, bytes);
    }

    fn file(&self, thread: usize, counted: &Totals) {
        self.files.fetch_add(1, Ordering::Relaxed);
        note(&mut lock(&self.threads), thread, counted);
    }

    fn totals(&self) -> Totals {
        Totals {
            files: self.files.load(Ordering::Relaxed),
            lines: self.lines.load(Ordering::Relaxed),
            words: self.words.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            longest_line: self.longest_line.load(Ordering::Relaxed),
        }
    }

    fn by_thread(&self) -> Vec<Totals> {
        lock(&self.threads).clone()
    }
}

/// The root of the distributed statistics. Each VP gets its own representative at its first call.
pub(crate) struct Spread;

/// The counts of one VP.
pub(crate) struct Part {
    files: BiasedWord,
    lines: BiasedWord,
    words: BiasedWord,
    bytes: BiasedWord,
    longest_line: AtomicU64,
    threads: Mutex<Vec<Totals>>,
    at: RepContext<Spread>,
}

impl Part {
    fn own(&self) -> Totals {
        Totals {
            files: self.files.load(),
            lines: self.lines.load(),
            words: self.words.load(),
            bytes: self.bytes.load(),
            longest_line: self.longest_line.load(Ordering::Relaxed),
        }
    }
}

impl Root for Spread {
    type Interface = dyn TextStats;
    type Rep = Part;

    fn make_rep(&self, at: RepContext<Spread>) -> Part {
        let word = || BiasedWord::new(at.vp());
        Part {
            files: word(),
            lines: word(),
            words: word(),
            bytes: word(),
            longest_line: AtomicU64::new(0),
            threads: Mutex::default(),
            at,
        }
    }
}

impl TextStats for Part {
    fn word(&self) {
        self.words.add(1);
    }

    fn line(&self, bytes: u64) {
        self.lines.add(1);
        self.bytes.add(bytes);
        raise(&self.longest_line, bytes);
    }

    fn file(&self, thread: usize, counted: &Totals) {
        self.files.add(1);
        note(&mut lock(&self.threads), thread, counted);
    }

    fn totals(&self) -> Totals {
        self.at.gather(Part::own, |one, other| one.plus(&other)).unwrap_or_default()
    }

    fn by_thread(&self) -> Vec<Totals> {
        self.at.gather(|part| lock(&part.threads).clone(), merge).unwrap_or_default()
    }
}

/// Four independent adaptive counters.
pub(crate) struct Adaptive {
    owned: [Owned<dyn Counter>; 4],
    files: Handle<dyn Counter>,
    lines: Handle<dyn Counter>,
    words: Handle<dyn Counter>,
    bytes: Handle<dyn Counter>,
    longest_line: AtomicU64,
    threads: Mutex<Vec<Totals>>,
}

impl Adaptive {
    pub(crate) fn new() -> Adaptive {
        let owned: [Owned<dyn Counter>; 4] = std::array::from_fn(|_| counter::adaptive());
        let [files, lines, words, bytes] = std::array::from_fn(|index| owned[index].handle());
        Adaptive {
            owned,
            files,
            lines,
            words,
            bytes,
            longest_line: AtomicU64::new(0),
            threads: Mutex::default(),
        }
    }

    /// Returns the ids of the counters.
    pub(crate) fn ids(&self) -> [Id; 4] {
        std::array::from_fn(|index| Handle::id(self.owned[index].handle()))
    }
}

impl TextStats for Adaptive {
    #[inline]
    fn word(&self) {
        self.words.inc();
    }

    #[inline]
    fn line(&self, bytes: u64) {
        self.lines.inc();
        self.bytes.add(bytes);
        raise(&self.longest_line, bytes);
    }

    fn file(&self, thread: usize, counted: &Totals) {
        self.files.inc();
        note(&mut lock(&self.threads), thread, counted);
    }

    fn totals(&self) -> Totals {
        Totals {
            files: self.files.total(),
            lines: self.lines.total(),
            words: self.words.total(),
            bytes: self.bytes.total(),
            longest_line: self.longest_line.load(Ordering::Relaxed),
        }
    }

    fn by_thread(&self) -> Vec<Totals> {
        lock(&self.threads).clone()
    }
}

/// The simplest rival: one lock around everything.
#[derive(Default)]
pub(crate) struct Locked(Mutex<(Totals, Vec<Totals>)>);

impl TextStats for Locked {
    fn word(&self) {
        lock(&self.0).0.words += 1;
    }

    fn line(&self, bytes: u64) {
        let (totals, _) = &mut *lock(&self.0);
        totals.lines += 1;
        totals.bytes += bytes;
        totals.longest_line = totals.longest_line.max(bytes);
    }

    fn file(&self, thread: usize, counted: &Totals) {
        let (totals, threads) = &mut *lock(&self.0);
        totals.files += 1;
        note(threads, thread, counted);
    }

    fn totals(&self) -> Totals {
        lock(&self.0).0
    }

    fn by_thread(&self) -> Vec<Totals> {
        lock(&self.0).1.clone()
    }
}

/// Keeps no counts while the threads read. Its row shows the cost of reading alone.
#[derive(Default)]
pub(crate) struct Nothing(Mutex<Vec<Totals>>);

impl TextStats for Nothing {
    fn word(&self) {}

    fn line(&self, _bytes: u64) {}

    fn file(&self, thread: usize, counted: &Totals) {
        note(&mut lock(&self.0), thread, counted);
    }

    fn totals(&self) -> Totals {
        self.by_thread().iter().fold(Totals::default(), Totals::plus)
    }

    fn by_thread(&self) -> Vec<Totals> {
        lock(&self.0).clone()
    }
}
