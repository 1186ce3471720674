//! Folds the tables of threads into lines: the threads that touch each line, the writers, and the kind of
//! sharing.
//!
//! All figures are sums of counts and are independent of the interleaving:
//!
//! - *Steadily write-shared accesses*, if the operations per thread are known: accesses by threads that touch
//!   the line in more than one per cent of their operations. The line needs two such threads, and one that
//!   writes it that often.
//! - *Write-shared accesses*, if the operations are unknown: all accesses to lines that two threads touch and
//!   one writes, start-up included. No line is called steady then.
//! - *Transfers at most*: a thread misses on a line at most once per own access and at most once per write by
//!   others. The figure sums these bounds over threads and lines, without a threshold.
//!
//! [`Phase`] tells when a line is shared. If the operations are unknown, it uses a coarse clock and enters no
//! figure. A thread then touches a line often if it makes at least 16 accesses to it. These must also be at
//! least 1/10,000 of its accesses and 1/100 of the accesses of the line's busiest thread.
//!
//! Files may contain any number, so sums saturate.

use std::collections::{HashMap, HashSet};

use squall_locality_plugin::format::{insn, window};

use crate::read::{self, Entry, Head, Source};

/// Set of bytes in a line of up to 128 bytes.
pub type Bytes = u128;

/// A thread of the profiled program.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Thread {
    /// Head of the thread's table, as written by the plugin.
    pub head: Head,
    /// Counted accesses.
    pub accesses: u64,
    /// Second halves among them: accesses that began in the previous line and were counted there as well.
    pub crossing: u64,
    /// Number of those accesses that atomic instructions made.
    pub atomics: u64,
    /// Whether the thread works, so that its operations count. If some threads used marks, those threads
    /// work. Otherwise, if the operations per thread are known, the threads with at least as many accesses
    /// work. That usually excludes the first thread. Otherwise all threads work.
    pub works: bool,
}

/// Saturating `sum += count`.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

/// Accesses of one thread to one line.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Touch {
    /// Index of the thread in [`Lines::threads`].
    pub thread: usize,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Accesses of the instruction that accesses the line most, and writes of the instruction that writes it
    /// most: lower bounds for the thread's visits and writing visits.
    pub most: (u64, u64),
    /// Accesses by atomic instructions.
    pub atomics: u64,
    /// Bytes read or written, rare accesses ignored.
    pub read_bytes: Bytes,
    /// Bytes written, rare writes ignored.
    pub written_bytes: Bytes,
    /// Epochs of the first and last access.
    pub span: (u32, u32),
    /// Epochs of the first and last write.
    pub write_span: Option<(u32, u32)>,
    /// Whether the thread touches the line often.
    pub often: bool,
    /// Whether the thread writes the line often.
    pub writes_often: bool,
}

impl Touch {
    /// Reads and writes.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }
}

/// Accesses of one instruction to one line, summed over threads.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Place {
    /// Address of the instruction.
    pub pc: u64,
    /// Kind of the instruction, a constant of [`insn`].
    pub kind: u8,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes touched.
    pub bytes: Bytes,
    /// Threads that run the instruction, as indexes into [`Lines::threads`].
    pub threads: Vec<usize>,
}

/// Time during which a line is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The whole run, by the counts. Requires that the operations per thread are known.
    Steady,
    /// Several threads at the same time, by the clock. Used if the operations are unknown.
    AtOnce,
    /// Rarely, and written also after the first tenth of the run.
    Occasional,
    /// Rarely, and written only in the first tenth of the run.
    StartUp,
    /// One thread after the other: by the clock, no thread writes the line while another uses it.
    HandedOver,
}

impl Phase {
    /// Whether the line is shared as long as the threads work, so that each operation pays for it.
    #[must_use]
    pub fn lasts(self) -> bool {
        matches!(self, Phase::Steady | Phase::AtOnce)
    }
}

/// Kind of sharing of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Threads share the same bytes.
    True,
    /// Threads use different bytes of the line.
    False,
    /// True and false sharing are both present.
    Mixed,
}

/// A write-shared line: several threads touch it, and at least one writes it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Line {
    /// Address of the line.
    pub address: u64,
    /// Accesses of each thread.
    pub touches: Vec<Touch>,
    /// Instructions that access the line, most frequent first.
    pub places: Vec<Place>,
    /// Time of the sharing.
    pub phase: Phase,
    /// Kind of sharing.
    pub sharing: Sharing,
    /// Bytes that one thread writes and another touches.
    pub shared_bytes: Bytes,
    /// Bytes that atomic instructions touch.
    pub atomic_bytes: Bytes,
    /// Bytes touched by exchanges or compare-and-exchanges.
    pub exchanged_bytes: Bytes,
    /// Bytes that threads exchange and release by a plain store, as a lock word.
    pub lock_bytes: Bytes,
    /// Whether two threads touch the line often, and one of them writes it often.
    pub engaged: bool,
    /// The line's part of the run's figure. With known operations: accesses of the threads that touch the
    /// line often, if it is steadily shared, else 0. With unknown operations: all accesses.
    pub write_shared_accesses: u64,
    /// The falsely shared part of them: accesses to bytes that a single thread uses.
    pub false_accesses: u64,
    /// Transfers of the line at most, over all interleavings.
    pub transfers_at_most: u64,
}

impl Line {
    /// Reads and writes of all threads.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.touches.iter().fold(0, |sum, touch| sum.saturating_add(touch.accesses()))
    }

    /// Whether the line enters the run's figures.
    fn counts(&self, rules: Rules) -> bool {
        rules.ops.is_none() || self.engaged
    }
}

/// Rules of counting.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rules {
    /// Operations of each thread, if known.
    pub ops: Option<u64>,
    /// Bytes of a line, 64 or 128.
    pub line_bytes: u32,
    /// Whether the first thread works even if no thread marked.
    pub with_main: bool,
}

impl Rules {
    /// Rules for lines of 64 or 128 bytes. With known operations and no marks, the first thread is left out.
    #[must_use]
    pub const fn new(ops: Option<u64>, line_bytes: u32) -> Rules {
        Rules { ops, line_bytes, with_main: false }
    }
}

/// Counts of one process.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Lines {
    /// Threads of the process.
    pub threads: Vec<Thread>,
    /// Write-shared lines.
    pub shared: Vec<Line>,
    /// Number of touched lines.
    pub touched: u64,
    /// Number of lines that several threads read and none writes.
    pub read_only: u64,
    /// Sampling: one line in 2^`sample` was kept.
    pub sample: u32,
    /// Accesses that found no room.
    pub lost: u64,
    /// Whether a thread opened a window.
    pub windows: bool,
}

impl Lines {
    /// Folds the tables of the process `pid`.
    #[must_use]
    pub fn fold(sources: &[Source], pid: u32, rules: Rules) -> Lines {
        let shift = u64::from(rules.line_bytes.ilog2().saturating_sub(6).min(1));
        let mut lines = Lines::from_heads(sources, pid);
        let windows = lines.windows;
        // Per line: its only thread or `SEVERAL`, and whether it is written.
        const SEVERAL: u32 = u32::MAX;
        let mut owners: HashMap<u64, (u32, bool)> = HashMap::new();
        let mut threads: HashMap<u32, usize> = HashMap::new();
        let sample = lines.sample;
        let counts = |head: &Head| head.pid == pid && read::counts(head, windows);
        read::tables(sources, counts, |head, entry| {
            let at = *threads.entry(head.number).or_insert_with(|| {
                let head = head.clone();
                lines.threads.push(Thread { head, accesses: 0, crossing: 0, atomics: 0, works: true });
                lines.threads.len() - 1
            });
            if is_second_half(&entry, rules) {
                return;
            }
            let thread = &mut lines.threads[at];
            add(&mut thread.accesses, entry.reads + entry.writes);
            if entry.kind & insn::CROSSES != 0 {
                add(&mut thread.crossing, entry.reads + entry.writes);
            }
            if kind(&entry) != insn::PLAIN {
                add(&mut thread.atomics, entry.reads + entry.writes);
            }
            if !is_kept(&entry, sample) {
                return;
            }
            let owner = owners.entry(entry.line >> shift).or_insert((head.number, false));
            if owner.0 != head.number {
                owner.0 = SEVERAL;
            }
            owner.1 |= entry.writes > 0;
        });
        for thread in &mut lines.threads {
            if sample > 0 {
                thread.accesses = thread.accesses.max(thread.head.accesses);
            }
        }
        lines.touched = owners.len() as u64;
        lines.read_only = owners.values().filter(|(who, written)| *who == SEVERAL && !written).count() as u64;
        owners.retain(|_, (who, written)| *who == SEVERAL && *written);
        let mut entries: HashMap<u64, Vec<(usize, Entry)>> = HashMap::with_capacity(owners.len());
        read::tables(sources, counts, |head, entry| {
            let line = entry.line >> shift;
            if owners.contains_key(&line) && is_kept(&entry, sample) {
                entries.entry(line).or_default().push((threads[&head.number], entry));
            }
        });
        lines.mark_working(rules);
        let end = entries.values().flatten().map(|(_, entry)| entry.span.1).max().unwrap_or(0);
        let begin = lines.threads.iter().map(|thread| thread.head.started).min().unwrap_or(0);
        let mut shared: Vec<Line> = entries
            .into_iter()
            .filter_map(|(line, entries)| {
                let address = line.checked_shl(6 + shift as u32)?;
                classify(address, &entries, &lines.threads, rules, (begin, end))
            })
            .collect();
        shared.sort_by_key(|line| (std::cmp::Reverse(line.transfers_at_most), line.address));
        lines.shared = shared;
        lines
    }

    /// Reads only the heads of the tables.
    fn from_heads(sources: &[Source], pid: u32) -> Lines {
        let (mut lines, mut heads) = (Lines::default(), Vec::new());
        let note = |head: &Head| {
            if head.pid == pid {
                heads.push(head.clone());
            }
            false
        };
        read::tables(sources, note, |_, _| {});
        lines.windows = heads.iter().any(|head| head.window != window::WHOLE);
        lines.sample = heads.iter().map(|head| head.sample).max().unwrap_or(0);
        for head in heads.iter().filter(|head| read::counts(head, lines.windows)) {
            add(&mut lines.lost, head.lost);
        }
        lines
    }

    /// Accesses to write-shared lines, counted on kept lines.
    #[must_use]
    pub fn write_shared_accesses(&self) -> u64 {
        self.shared.iter().fold(0, |sum, line| sum.saturating_add(line.write_shared_accesses))
    }

    /// Counted accesses of all threads.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.threads.iter().fold(0, |sum, thread| sum.saturating_add(thread.accesses))
    }

    /// Number of working threads.
    #[must_use]
    pub fn working(&self) -> usize {
        self.threads.iter().filter(|thread| thread.works).count()
    }

    /// Number of lines that each kept line stands for.
    #[must_use]
    pub fn one_in(&self) -> u64 {
        1u64 << self.sample.min(40)
    }

    /// Decides which threads work, see [`Thread::works`].
    fn mark_working(&mut self, rules: Rules) {
        let windows = self.windows;
        for thread in &mut self.threads {
            let is_main = thread.head.tid == thread.head.pid;
            thread.works = match rules.ops {
                _ if windows => thread.head.window == window::OWN,
                Some(ops) => thread.accesses >= ops && (rules.with_main || !is_main),
                None => true,
            };
        }
    }
}

/// Kind of the entry's instruction.
fn kind(entry: &Entry) -> u8 {
    entry.kind & !insn::CROSSES
}

/// Whether the entry is the second half of accesses that began in the same line and were counted there. A
/// line of 128 bytes consists of two of the plugin's lines.
fn is_second_half(entry: &Entry, rules: Rules) -> bool {
    rules.line_bytes == 128 && entry.line & 1 == 1 && entry.kind & insn::CROSSES != 0
}

fn is_kept(entry: &Entry, sample: u32) -> bool {
    sample == 0 || squall_locality_plugin::format::is_sampled(entry.line, sample)
}

/// Number of accesses that is often for this thread, on a line whose busiest thread makes `most` accesses.
fn often(thread: &Thread, most: u64, rules: Rules) -> u64 {
    match rules.ops {
        Some(ops) => ops / 100 + 1,
        None => (thread.accesses / 10_000).max(most / 100).max(16),
    }
}

fn is_counted(thread: &Thread, windows: bool, rules: Rules) -> bool {
    windows || rules.ops.is_none() || rules.with_main || thread.head.tid != thread.head.pid
}

/// Classifies the line at `address` from all its entries. Returns `None` if the line is not write-shared.
fn classify(
    address: u64,
    entries: &[(usize, Entry)],
    threads: &[Thread],
    rules: Rules,
    run: (u32, u32),
) -> Option<Line> {
    let windows = threads.iter().any(|thread| thread.head.window != window::WHOLE);
    let mut touches: Vec<Touch> = Vec::new();
    let mut by_thread: HashMap<usize, usize> = HashMap::new();
    for (thread, entry) in entries.iter().filter(|(thread, _)| is_counted(&threads[*thread], windows, rules))
    {
        let at = *by_thread.entry(*thread).or_insert_with(|| {
            touches.push(Touch { thread: *thread, span: (u32::MAX, 0), ..Touch::default() });
            touches.len() - 1
        });
        let touch = &mut touches[at];
        if !is_second_half(entry, rules) {
            add(&mut touch.reads, entry.reads);
            add(&mut touch.writes, entry.writes);
            let all = entry.reads + entry.writes;
            touch.most = (touch.most.0.max(all), touch.most.1.max(entry.writes));
            if kind(entry) != insn::PLAIN {
                add(&mut touch.atomics, all);
            }
        }
        touch.span = join(touch.span, entry.span);
        if let Some(span) = entry.write_span {
            touch.write_span = Some(join(touch.write_span.unwrap_or((u32::MAX, 0)), span));
        }
    }
    // A touch that consists of second halves alone has no counted accesses.
    touches.retain(|touch| touch.accesses() > 0);
    touches.sort_by_key(|touch| touch.thread);
    let writes = touches.iter().fold(0u64, |sum, touch| sum.saturating_add(touch.writes));
    if touches.len() < 2 || writes == 0 {
        return None;
    }
    let mut transfers_at_most = 0;
    let most = touches.iter().map(Touch::accesses).max().unwrap_or(0);
    for touch in &mut touches {
        let limit = often(&threads[touch.thread], most, rules);
        touch.often = touch.accesses() >= limit;
        touch.writes_often = touch.writes >= limit;
        add(&mut transfers_at_most, touch.accesses().min(writes - touch.writes));
    }
    let often = touches.iter().filter(|touch| touch.often);
    let engaged = often.clone().count() >= 2 && often.clone().any(|touch| touch.writes_often);
    let mut line = Line {
        address,
        touches,
        places: Vec::new(),
        phase: Phase::Occasional,
        sharing: Sharing::True,
        shared_bytes: 0,
        atomic_bytes: 0,
        exchanged_bytes: 0,
        lock_bytes: 0,
        engaged,
        write_shared_accesses: 0,
        false_accesses: 0,
        transfers_at_most,
    };
    line.set_phase(rules, run);
    line.set_sharing(entries, rules);
    Some(line)
}

fn join(one: (u32, u32), other: (u32, u32)) -> (u32, u32) {
    (one.0.min(other.0), one.1.max(other.1))
}

fn overlap(one: (u32, u32), other: (u32, u32)) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

impl Line {
    fn set_phase(&mut self, rules: Rules, run: (u32, u32)) {
        let last =
            self.touches.iter().filter_map(|touch| touch.write_span).map(|span| span.1).max().unwrap_or(0);
        let tenth = run.1.saturating_sub(run.0) / 10;
        let meets = self.is_concurrent();
        self.phase = match (self.engaged, rules.ops) {
            // If the operations are known, the counts alone decide, independent of the schedule.
            (true, Some(_)) => Phase::Steady,
            (true, None) if meets => Phase::AtOnce,
            _ if !meets => Phase::HandedOver,
            _ if last.saturating_sub(run.0) < tenth => Phase::StartUp,
            _ => Phase::Occasional,
        };
        if self.counts(rules) {
            let counted = self.touches.iter().filter(|touch| touch.often || rules.ops.is_none());
            self.write_shared_accesses =
                counted.fold(0, |sum: u64, touch| sum.saturating_add(touch.accesses()));
        }
    }

    /// Whether a thread writes the line during the span of another thread.
    fn is_concurrent(&self) -> bool {
        let mut starts: Vec<u32> = self.touches.iter().map(|touch| touch.span.0).collect();
        let mut ends: Vec<u32> = self.touches.iter().map(|touch| touch.span.1).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        self.touches.iter().any(|touch| {
            let Some(span) = touch.write_span else { return false };
            let begun = starts.partition_point(|start| *start <= span.1);
            let over = ends.partition_point(|end| *end < span.0);
            begun.saturating_sub(over) > usize::from(overlap(touch.span, span))
        })
    }

    /// Computes the shared bytes, the kind of sharing and the instructions. Rare accesses of a thread that
    /// uses the line often are taken as initialisation and ignored.
    fn set_sharing(&mut self, entries: &[(usize, Entry)], rules: Rules) {
        let engaged = self.engaged;
        let at: HashMap<usize, usize> =
            self.touches.iter().enumerate().map(|(at, touch)| (touch.thread, at)).collect();
        let rare = self.rare(entries, &at);
        for (thread, entry) in entries {
            let Some(at) = at.get(thread).copied() else { continue };
            let touch = &mut self.touches[at];
            if entry.reads + entry.writes <= rare[at] || engaged && !touch.often {
                continue;
            }
            let (read, written) =
                (place_bytes(entry, entry.read_bytes, rules), place_bytes(entry, entry.written_bytes, rules));
            touch.read_bytes |= read | written;
            touch.written_bytes |= written;
        }
        let (mut once, mut twice, mut written) = (0, 0, 0);
        for touch in &self.touches {
            twice |= once & touch.read_bytes;
            once |= touch.read_bytes;
            written |= touch.written_bytes;
        }
        self.shared_bytes = twice & written;
        let (mut all, mut apart) = (0u64, 0u64);
        for (thread, entry) in entries.iter().filter(|(_, entry)| !is_second_half(entry, rules)) {
            let Some(touch) = at.get(thread).map(|at| &self.touches[*at]) else { continue };
            if engaged && !touch.often {
                continue;
            }
            let touched = place_bytes(entry, entry.read_bytes | entry.written_bytes, rules);
            let count = entry.reads + entry.writes;
            add(&mut all, count);
            // Bytes that no thread writes count as shared if the thread also uses shared bytes of the line.
            let own = touched & written != 0 || touch.read_bytes & self.shared_bytes == 0;
            if touched & self.shared_bytes == 0 && own {
                add(&mut apart, count);
            }
        }
        self.false_accesses = if self.counts(rules) { apart } else { 0 };
        let (tenth, rest) = (all / 10, all - all / 10);
        self.sharing = match (apart > rest, apart < tenth) {
            (true, _) => Sharing::False,
            (_, true) => Sharing::True,
            _ => Sharing::Mixed,
        };
        let entries: Vec<&(usize, Entry)> =
            entries.iter().filter(|(thread, _)| at.contains_key(thread)).collect();
        self.set_places(&entries, rules);
        self.lock_bytes = lock_bytes(&entries, rules);
    }

    /// Returns for each touch the count up to which an instruction is rare: all instructions with at most
    /// that count make less than one per cent of the thread's accesses to the line together.
    fn rare(&self, entries: &[(usize, Entry)], at: &HashMap<usize, usize>) -> Vec<u64> {
        let mut counts: Vec<Vec<u64>> = vec![Vec::new(); self.touches.len()];
        for (thread, entry) in entries {
            if let Some(at) = at.get(thread) {
                counts[*at].push(entry.reads + entry.writes);
            }
        }
        let limit = |counts: &mut Vec<u64>| {
            counts.sort_unstable();
            let all = counts.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
            let (mut rare, mut below) = (0, 0u64);
            for alike in counts.chunk_by(|a, b| a == b) {
                add(&mut below, alike[0].saturating_mul(alike.len() as u64));
                if below >= all.div_ceil(100) {
                    break;
                }
                rare = alike[0];
            }
            rare
        };
        counts.iter_mut().map(limit).collect()
    }

    /// Collects the instructions and the bytes touched by atomic ones.
    fn set_places(&mut self, entries: &[&(usize, Entry)], rules: Rules) {
        let mut places: HashMap<u64, Place> = HashMap::new();
        for (thread, entry) in entries {
            let touched = place_bytes(entry, entry.read_bytes | entry.written_bytes, rules);
            if kind(entry) != insn::PLAIN {
                self.atomic_bytes |= touched;
            }
            if kind(entry) == insn::EXCHANGE {
                self.exchanged_bytes |= touched;
            }
            let place = places.entry(entry.pc).or_insert_with(|| Place {
                pc: entry.pc,
                kind: kind(entry),
                reads: 0,
                writes: 0,
                bytes: 0,
                threads: Vec::new(),
            });
            if !is_second_half(entry, rules) {
                add(&mut place.reads, entry.reads);
                add(&mut place.writes, entry.writes);
            }
            place.bytes |= touched;
            place.threads.push(*thread);
        }
        self.places = places.into_values().collect();
        for place in &mut self.places {
            place.threads.sort_unstable();
            place.threads.dedup();
        }
        self.places
            .sort_by_key(|place| (std::cmp::Reverse(place.reads.saturating_add(place.writes)), place.pc));
    }
}

/// Finds the bytes of lock words: exchanged or compare-exchanged by several threads, and stored plainly by
/// each of them. The plain stores are no more frequent than the exchanges, apart from one initialising store
/// per thread.
///
/// Counters, list heads and swapped pointers are never stored plainly by the threads that exchange them. A
/// lock that is released by an exchange looks like these and is missed.
fn lock_bytes(entries: &[&(usize, Entry)], rules: Rules) -> Bytes {
    // Per set of bytes: the threads that exchange it, and the number of exchanges.
    let mut taken: HashMap<Bytes, (HashSet<usize>, u64)> = HashMap::new();
    for (thread, entry) in entries.iter().filter(|(_, entry)| kind(entry) == insn::EXCHANGE) {
        let bytes = place_bytes(entry, entry.read_bytes | entry.written_bytes, rules);
        let (threads, count) = taken.entry(bytes).or_default();
        threads.insert(*thread);
        add(count, entry.reads.max(entry.writes));
    }
    let mut found = 0;
    for (bytes, (takers, taken)) in taken.into_iter().filter(|(_, (takers, _))| takers.len() >= 2) {
        let (mut givers, mut given) = (HashSet::new(), 0u64);
        for (thread, entry) in entries.iter().filter(|(_, entry)| kind(entry) == insn::PLAIN) {
            let stored = place_bytes(entry, entry.written_bytes, rules);
            if entry.writes > 0 && stored & bytes != 0 && stored & !bytes == 0 && takers.contains(thread) {
                givers.insert(*thread);
                add(&mut given, entry.writes);
            }
        }
        // Allows one initialising store per thread.
        if givers == takers && given <= taken.saturating_add(takers.len() as u64) {
            found |= bytes;
        }
    }
    found
}

/// Maps the byte mask of an entry to bytes of the line; the upper half line shifts by 64.
fn place_bytes(entry: &Entry, mask: u64, rules: Rules) -> Bytes {
    let upper = rules.line_bytes == 128 && entry.line & 1 == 1;
    Bytes::from(mask) << if upper { 64 } else { 0 }
}
