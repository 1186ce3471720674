//! From tables to lines: who touches each, who writes it, and what kind of sharing that is.
//!
//! Two figures are those of the founding instrument, and depend on no interleaving:
//!
//! - *Steadily write-shared accesses*: those of threads that touch a line in one per cent of their operations or more, to
//!   lines of which there are two such threads and one of them writes it as often.
//! - *Transfers at most*: a thread can miss on a line at most as often as it touches it, and at most as often as others
//!   write it; summed over threads and lines, without any threshold.
//!
//! Where nobody says how many operations a thread does, often is sixteen times, and one in ten thousand of the thread's accesses, and
//! one in a hundred of those of whoever touches the line most.

use std::collections::HashMap;

use squall_locality_plugin::format::{insn, window};

use crate::read::{self, Entry, Head, Source};

/// A set of bytes in a line of up to 128.
pub type Bytes = u128;

/// A thread that was seen.
#[derive(Clone, Debug)]
pub struct Thread {
    /// What the plugin said of it.
    pub head: Head,
    /// Its accesses that count.
    pub accesses: u64,
    /// Whether its operations are counted: it marked, or nobody did and it is not the first thread, or all are.
    pub works: bool,
}

/// What one thread does to one line.
#[derive(Clone, Debug, Default)]
pub struct Touch {
    /// Its place among the threads.
    pub thread: usize,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
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
        self.reads + self.writes
    }
}

/// What one instruction does to one line, in all threads.
#[derive(Clone, Debug)]
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
    /// All the time.
    Steady,
    /// Now and then.
    Occasional,
    /// In the first tenth of the run, and not often.
    StartUp,
    /// By one thread after the other: no two are busy with it at a time, as far as the clock can tell.
    HandedOver,
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
    /// Accesses of those who touch it often, when it is shared all the time.
    pub steady_accesses: u64,
    /// Of all accesses, those to bytes that nobody shares.
    pub false_accesses: u64,
    /// Transfers that any interleaving can cause.
    pub transfers_at_most: u64,
}

impl Line {
    /// Reads and writes of all threads.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.touches.iter().map(Touch::accesses).sum()
    }
}

/// What is counted, and how.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Operations of each thread, if known.
    pub ops: Option<u64>,
    /// Bytes of a line, 64 or 128.
    pub line_bytes: u32,
    /// Whether the first thread takes part although nobody marked.
    pub with_main: bool,
}

/// All that was counted of one process.
#[derive(Clone, Debug, Default)]
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
        let mut lines = Lines::default();
        read::tables(
            sources,
            |head| {
                if head.pid == pid {
                    lines.windows |= head.window != window::WHOLE;
                    lines.sample = lines.sample.max(head.sample);
                }
                false
            },
            |_, _| {},
        );
        let windows = lines.windows;
        // Who touches a line first, and whether anybody else does.
        const SEVERAL: u32 = u32::MAX;
        let mut owners: HashMap<u64, (u32, bool)> = HashMap::new();
        let mut threads: HashMap<u32, usize> = HashMap::new();
        let sample = lines.sample;
        let counts = |head: &Head| head.pid == pid && read::counts(head, windows);
        read::tables(sources, counts, |head, entry| {
            let at = *threads.entry(head.number).or_insert_with(|| {
                lines.lost += head.lost;
                lines.threads.push(Thread { head: head.clone(), accesses: 0, works: true });
                lines.threads.len() - 1
            });
            lines.threads[at].accesses += entry.reads + entry.writes;
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
        touch.reads += entry.reads;
        touch.writes += entry.writes;
        touch.span = join(touch.span, entry.span);
        if let Some(span) = entry.write_span {
            touch.write_span = Some(join(touch.write_span.unwrap_or((u32::MAX, 0)), span));
        }
    }
    touches.sort_by_key(|touch| touch.thread);
    let writes: u64 = touches.iter().map(|touch| touch.writes).sum();
    if touches.len() < 2 || writes == 0 {
        return None;
    }
    let mut transfers_at_most = 0;
    let most = touches.iter().map(Touch::accesses).max().unwrap_or(0);
    for touch in &mut touches {
        let limit = often(&threads[touch.thread], most, rules);
        touch.often = touch.accesses() >= limit;
        touch.writes_often = touch.writes >= limit;
        transfers_at_most += touch.accesses().min(writes - touch.writes);
    }
    let mut line = Line {
        address,
        touches,
        places: Vec::new(),
        phase: Phase::Occasional,
        sharing: Sharing::True,
        shared_bytes: 0,
        atomic_bytes: 0,
        exchanged_bytes: 0,
        steady_accesses: 0,
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
        let often = self.touches.iter().filter(|touch| touch.often);
        let steady = often.clone().count() >= 2 && often.clone().any(|touch| touch.writes_often);
        // Whether somebody writes it while another is busy with it.
        let meets = self.touches.iter().any(|one| {
            one.write_span.is_some_and(|span| {
                self.touches.iter().any(|other| other.thread != one.thread && meet(span, other.span))
            })
        });
        let last =
            self.touches.iter().filter_map(|touch| touch.write_span).map(|span| span.1).max().unwrap_or(0);
        let tenth = run.1.saturating_sub(run.0) / 10;
        self.phase = match (steady, meets) {
            // With the operations known, counts alone decide, whatever the scheduler did.
            (true, meets) if meets || rules.ops.is_some() => Phase::Steady,
            (_, false) => Phase::HandedOver,
            _ if last.saturating_sub(run.0) < tenth => Phase::StartUp,
            _ => Phase::Occasional,
        };
        if self.phase == Phase::Steady {
            self.steady_accesses = self.touches.iter().filter(|touch| touch.often).map(Touch::accesses).sum();
        }
    }

    /// What is shared, and from where. What a thread does rarely to a line that it touches often is how the line was made,
    /// not how it is used, and says nothing of what is shared.
    fn say_what(&mut self, entries: &[(usize, Entry)], rules: Rules) {
        let steady = self.phase == Phase::Steady;
        let at: HashMap<usize, usize> =
            self.touches.iter().enumerate().map(|(at, touch)| (touch.thread, at)).collect();
        for (thread, entry) in entries {
            let Some(touch) = at.get(thread).map(|at| &mut self.touches[*at]) else { continue };
            let rare = entry.reads + entry.writes < touch.accesses().div_ceil(100);
            if rare || steady && !touch.often {
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
        let (mut all, mut apart) = (0, 0);
        for (thread, entry) in entries {
            let Some(touch) = at.get(thread).map(|at| &self.touches[*at]) else { continue };
            if steady && !touch.often {
                continue;
            }
            let touched = place_bytes(entry, entry.read_bytes | entry.written_bytes, rules);
            let count = entry.reads + entry.writes;
            all += count;
            // Bytes that nobody writes go with what else the thread wants of the line.
            let own = touched & written != 0 || touch.read_bytes & self.shared_bytes == 0;
            if touched & self.shared_bytes == 0 && own {
                apart += count;
            }
        }
        self.false_accesses = apart;
        self.sharing = match (apart * 10 > all * 9, apart * 10 < all) {
            (true, _) => Sharing::False,
            (_, true) => Sharing::True,
            _ => Sharing::Mixed,
        };
        self.say_where(entries.iter().filter(|(thread, _)| at.contains_key(thread)), rules);
    }

    /// The instructions, and what the atomic ones touch.
    fn say_where<'a>(&mut self, entries: impl Iterator<Item = &'a (usize, Entry)>, rules: Rules) {
        let mut places: HashMap<u64, Place> = HashMap::new();
        for (thread, entry) in entries {
            let touched = place_bytes(entry, entry.read_bytes | entry.written_bytes, rules);
            if entry.kind != insn::PLAIN {
                self.atomic_bytes |= touched;
            }
            if entry.kind == insn::EXCHANGE {
                self.exchanged_bytes |= touched;
            }
            let place = places.entry(entry.pc).or_insert_with(|| Place {
                pc: entry.pc,
                kind: entry.kind,
                reads: 0,
                writes: 0,
                bytes: 0,
                threads: Vec::new(),
            });
            place.reads += entry.reads;
            place.writes += entry.writes;
            place.bytes |= touched;
            place.threads.push(*thread);
        }
        self.places = places.into_values().collect();
        for place in &mut self.places {
            place.threads.sort_unstable();
            place.threads.dedup();
        }
        self.places.sort_by_key(|place| (std::cmp::Reverse(place.reads + place.writes), place.pc));
    }
}

/// The bytes of a half line, where they are in the line.
fn place_bytes(entry: &Entry, mask: u64, rules: Rules) -> Bytes {
    let upper = rules.line_bytes == 128 && entry.line & 1 == 1;
    Bytes::from(mask) << if upper { 64 } else { 0 }
}
