//! From tables to lines: who touches each, who writes it, and what kind of sharing that is.
//!
//! All figures are sums of counts, and depend on no interleaving:
//!
//! - *Steadily write-shared accesses*, where it is said how many operations a thread does: those of threads that touch a line in one
//!   per cent of their operations or more, to lines of which there are two such threads and one of them writes it as often.
//! - *Write-shared accesses*, where nobody says that: all accesses to lines that two threads touch and one writes, starting included.
//!   Nothing is called steady then.
//! - *Transfers at most*: a thread can miss on a line at most as often as it touches it, and at most as often as others
//!   write it; summed over threads and lines, without any threshold.
//!
//! When a line is shared ([`Phase`]) goes by a coarse clock where the operations are not said, and is for reading alone: often is then
//! sixteen times, and one in ten thousand of the thread's accesses, and one in a hundred of those of whoever touches the line most.
//!
//! What comes from files is any number: sums stop at the greatest there is.

use std::collections::{HashMap, HashSet};

use squall_locality_plugin::format::{insn, window};

use crate::read::{self, Entry, Head, Source};

/// A set of bytes in a line of up to 128.
pub type Bytes = u128;

/// A thread that was seen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Thread {
    /// What the plugin said of it.
    pub head: Head,
    /// Its accesses that count.
    pub accesses: u64,
    /// Those of them that are the rest of an access that began in the line before, and was counted there, too.
    pub crossing: u64,
    /// Those of them that atomic instructions make.
    pub atomics: u64,
    /// Whether its operations are counted: it marked, or nobody did and it is not the first thread, or all are.
    pub works: bool,
}

/// One more, as far as numbers go.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

/// What one thread does to one line.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Touch {
    /// Its place among the threads.
    pub thread: usize,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Those of the instruction that touches it most, and of the one that writes it most: how often the thread comes to the line, and how
    /// often to write, at least.
    pub most: (u64, u64),
    /// Accesses by atomic instructions.
    pub atomics: u64,
    /// The bytes that it reads and writes, rare accesses aside.
    pub read_bytes: Bytes,
    /// The bytes that it writes, rare writes aside.
    pub written_bytes: Bytes,
    /// The epochs of its first and last access.
    pub span: (u32, u32),
    /// The same of its writes.
    pub write_span: Option<(u32, u32)>,
    /// Whether it does so often.
    pub often: bool,
    /// Whether it writes often.
    pub writes_often: bool,
}

impl Touch {
    /// Reads and writes.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }
}

/// What one instruction does to one line, in all threads.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Place {
    /// Its address.
    pub pc: u64,
    /// What kind it is.
    pub kind: u8,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes that it touches.
    pub bytes: Bytes,
    /// The threads that run it.
    pub threads: Vec<usize>,
}

/// When a line is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// All the time, by the counts alone: only where it is said how many operations a thread does.
    Steady,
    /// By several threads that are busy with it at a time, as far as the clock can tell: where that is not said.
    AtOnce,
    /// Now and then.
    Occasional,
    /// In the first tenth of the run, and not often.
    StartUp,
    /// By one thread after the other: no two are busy with it at a time, as far as the clock can tell.
    HandedOver,
}

impl Phase {
    /// Whether it is shared for as long as the threads work, and so has a price with each operation.
    #[must_use]
    pub fn lasts(self) -> bool {
        matches!(self, Phase::Steady | Phase::AtOnce)
    }
}

/// What is shared of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// The same bytes.
    True,
    /// Different bytes, which happen to be neighbours.
    False,
    /// Both.
    Mixed,
}

/// A line that several threads touch, and that one of them writes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Line {
    /// Its address.
    pub address: u64,
    /// Who touches it.
    pub touches: Vec<Touch>,
    /// From where.
    pub places: Vec<Place>,
    /// When.
    pub phase: Phase,
    /// What.
    pub sharing: Sharing,
    /// Bytes that one thread writes and another touches.
    pub shared_bytes: Bytes,
    /// Bytes that atomic instructions touch.
    pub atomic_bytes: Bytes,
    /// Bytes that are exchanged, or compared and exchanged.
    pub exchanged_bytes: Bytes,
    /// Bytes that are exchanged, and given back by a plain store of the same threads: what a lock's word looks like.
    pub lock_bytes: Bytes,
    /// Whether two threads touch it often, and one of them writes it often.
    pub engaged: bool,
    /// Accesses that the run's figure has of it: where the operations are known, those of the threads that touch it often,
    /// if it is shared steadily; else all.
    pub write_shared_accesses: u64,
    /// Of these, those to bytes that nobody shares.
    pub false_accesses: u64,
    /// Transfers that any interleaving can cause.
    pub transfers_at_most: u64,
}

impl Line {
    /// Reads and writes of all threads.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.touches.iter().fold(0, |sum, touch| sum.saturating_add(touch.accesses()))
    }

    /// Whether the run's figures have it.
    fn counts(&self, rules: Rules) -> bool {
        rules.ops.is_none() || self.engaged
    }
}

/// What is counted, and how.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rules {
    /// Operations of each thread, if known.
    pub ops: Option<u64>,
    /// Bytes of a line, 64 or 128.
    pub line_bytes: u32,
    /// Whether the first thread takes part although nobody marked.
    pub with_main: bool,
}

impl Rules {
    /// For lines of so many bytes, 64 or 128; the first thread aside where operations are known and nobody marked.
    #[must_use]
    pub const fn new(ops: Option<u64>, line_bytes: u32) -> Rules {
        Rules { ops, line_bytes, with_main: false }
    }
}

/// All that was counted of one process.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Lines {
    /// The threads.
    pub threads: Vec<Thread>,
    /// The lines that several threads touch and one writes.
    pub shared: Vec<Line>,
    /// How many lines were touched at all, and how many by several threads that only read.
    pub touched: u64,
    /// Lines that several threads read and nobody writes.
    pub read_only: u64,
    /// One line in 2^shift was kept.
    pub sample: u32,
    /// Accesses that found no room.
    pub lost: u64,
    /// Whether windows were opened.
    pub windows: bool,
}

impl Lines {
    /// Folds the tables of one process.
    #[must_use]
    pub fn fold(sources: &[Source], pid: u32, rules: Rules) -> Lines {
        let shift = u64::from(rules.line_bytes.ilog2().saturating_sub(6).min(1));
        let mut lines = Lines::of_heads(sources, pid);
        let windows = lines.windows;
        // Who touches a line first, and whether anybody else does.
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
            if is_rest(&entry, rules) {
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
        lines.say_who_works(rules);
        let end = entries.values().flatten().map(|(_, entry)| entry.span.1).max().unwrap_or(0);
        let begin = lines.threads.iter().map(|thread| thread.head.started).min().unwrap_or(0);
        let mut shared: Vec<Line> = entries
            .into_iter()
            .filter_map(|(line, entries)| {
                let address = line.checked_shl(6 + shift as u32)?;
                judge(address, &entries, &lines.threads, rules, (begin, end))
            })
            .collect();
        shared.sort_by_key(|line| (std::cmp::Reverse(line.transfers_at_most), line.address));
        lines.shared = shared;
        lines
    }

    /// What the heads of the tables say, before any entry is read.
    fn of_heads(sources: &[Source], pid: u32) -> Lines {
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

    /// Accesses to lines that are write-shared, of those that were kept.
    #[must_use]
    pub fn write_shared_accesses(&self) -> u64 {
        self.shared.iter().fold(0, |sum, line| sum.saturating_add(line.write_shared_accesses))
    }

    /// Accesses that count, of all threads.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.threads.iter().fold(0, |sum, thread| sum.saturating_add(thread.accesses))
    }

    /// Threads whose operations count.
    #[must_use]
    pub fn working(&self) -> usize {
        self.threads.iter().filter(|thread| thread.works).count()
    }

    /// How many lines each line that was kept stands for.
    #[must_use]
    pub fn one_in(&self) -> u64 {
        1u64 << self.sample.min(40)
    }

    /// Which threads are those whose operations are counted.
    fn say_who_works(&mut self, rules: Rules) {
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

/// The kind of its instruction.
fn kind(entry: &Entry) -> u8 {
    entry.kind & !insn::CROSSES
}

/// Whether this is the rest of accesses that began in the same line, where they were counted: a line of 128 bytes has two of the
/// plugin's.
fn is_rest(entry: &Entry, rules: Rules) -> bool {
    rules.line_bytes == 128 && entry.line & 1 == 1 && entry.kind & insn::CROSSES != 0
}

fn is_kept(entry: &Entry, sample: u32) -> bool {
    sample == 0 || squall_locality_plugin::format::is_sampled(entry.line, sample)
}

/// What is often for this thread, on a line that somebody touches `most` times.
fn often(thread: &Thread, most: u64, rules: Rules) -> u64 {
    match rules.ops {
        Some(ops) => ops / 100 + 1,
        None => (thread.accesses / 10_000).max(most / 100).max(16),
    }
}

fn is_counted(thread: &Thread, windows: bool, rules: Rules) -> bool {
    windows || rules.ops.is_none() || rules.with_main || thread.head.tid != thread.head.pid
}

/// One line, of which `entries` are all that is known.
fn judge(
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
        if !is_rest(entry, rules) {
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
    // Of one that is left with the rest of accesses alone, nothing was counted.
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
    line.say_when(rules, run);
    line.say_what(entries, rules);
    Some(line)
}

fn join(one: (u32, u32), other: (u32, u32)) -> (u32, u32) {
    (one.0.min(other.0), one.1.max(other.1))
}

fn meet(one: (u32, u32), other: (u32, u32)) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

impl Line {
    fn say_when(&mut self, rules: Rules, run: (u32, u32)) {
        let last =
            self.touches.iter().filter_map(|touch| touch.write_span).map(|span| span.1).max().unwrap_or(0);
        let tenth = run.1.saturating_sub(run.0) / 10;
        let meets = self.meets();
        self.phase = match (self.engaged, rules.ops) {
            // With the operations known, counts alone decide, whatever the scheduler did.
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

    /// Whether somebody writes it while another is busy with it.
    fn meets(&self) -> bool {
        let mut starts: Vec<u32> = self.touches.iter().map(|touch| touch.span.0).collect();
        let mut ends: Vec<u32> = self.touches.iter().map(|touch| touch.span.1).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        self.touches.iter().any(|touch| {
            let Some(span) = touch.write_span else { return false };
            let begun = starts.partition_point(|start| *start <= span.1);
            let over = ends.partition_point(|end| *end < span.0);
            begun.saturating_sub(over) > usize::from(meet(touch.span, span))
        })
    }

    /// What is shared, and from where. What a thread does rarely to a line that it touches often is how the line was made,
    /// not how it is used, and says nothing of what is shared.
    fn say_what(&mut self, entries: &[(usize, Entry)], rules: Rules) {
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
        for (thread, entry) in entries.iter().filter(|(_, entry)| !is_rest(entry, rules)) {
            let Some(touch) = at.get(thread).map(|at| &self.touches[*at]) else { continue };
            if engaged && !touch.often {
                continue;
            }
            let touched = place_bytes(entry, entry.read_bytes | entry.written_bytes, rules);
            let count = entry.reads + entry.writes;
            add(&mut all, count);
            // Bytes that nobody writes go with what else the thread wants of the line.
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
        self.say_where(&entries, rules);
        self.lock_bytes = lock_bytes(&entries, rules);
    }

    /// For each touch, the count up to which an instruction is rare: all that are no more often come to less than one per cent of
    /// what the thread does to the line, however many they are.
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

    /// The instructions, and what the atomic ones touch.
    fn say_where(&mut self, entries: &[&(usize, Entry)], rules: Rules) {
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
            if !is_rest(entry, rules) {
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

/// The bytes that are taken and given back: exchanged (or compared and exchanged) by several threads, each of which stores to them
/// plainly, too, and together no oftener than they exchange them, making it aside. A counter that is kept by compare-and-exchange, the head of a list or a
/// pointer that is swapped are never stored to plainly by those who exchange them; but a lock that is given back by an exchange
/// looks the same as those, and is not among what this finds.
fn lock_bytes(entries: &[&(usize, Entry)], rules: Rules) -> Bytes {
    // Of each set of bytes, the threads that exchange it, and how often.
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
        // Whoever made it may have stored once more.
        if givers == takers && given <= taken.saturating_add(takers.len() as u64) {
            found |= bytes;
        }
    }
    found
}

/// The bytes of a half line, where they are in the line.
fn place_bytes(entry: &Entry, mask: u64, rules: Rules) -> Bytes {
    let upper = rules.line_bytes == 128 && entry.line & 1 == 1;
    Bytes::from(mask) << if upper { 64 } else { 0 }
}
