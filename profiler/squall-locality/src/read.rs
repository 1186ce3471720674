//! Reading what the plugin left: logs and tables, whatever state they are in.
//!
//! Every number here comes from a file that a killed process may have left half written, so that nothing is believed:
//! lengths are checked, unknown records skipped, and bytes that make no sense end the reading of their file.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;
use squall_locality_plugin::format::{
    ENTRY_BYTES, HEAD_BYTES, MAGIC, SITE_BITS, entry, file, head, record, run, window,
};

/// A file of the plugin's, on disk or in memory.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file on disk, read when it is asked for.
    Path(PathBuf),
    /// Its bytes.
    Bytes(Vec<u8>),
}

impl Source {
    fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Source::Path(path) => Cow::Owned(std::fs::read(path).unwrap_or_default()),
            Source::Bytes(bytes) => Cow::Borrowed(bytes),
        }
    }

    /// As many bytes as a head has, or fewer.
    fn start(&self) -> Cow<'_, [u8]> {
        match self {
            Source::Path(path) => {
                let mut bytes = Vec::new();
                // A file that cannot be read is one without bytes.
                let _ = std::fs::File::open(path)
                    .and_then(|file| file.take(HEAD_BYTES as u64).read_to_end(&mut bytes));
                Cow::Owned(bytes)
            }
            Source::Bytes(bytes) => Cow::Borrowed(bytes.get(..HEAD_BYTES).unwrap_or(bytes)),
        }
    }
}

/// The files in a folder.
///
/// # Errors
/// When the folder cannot be read.
pub fn sources(folder: &Path) -> io::Result<Vec<Source>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)?.flatten().map(|found| found.path()).collect();
    paths.sort();
    Ok(paths.into_iter().map(Source::Path).collect())
}

/// What one instruction of one thread did to one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The address of the line over its 64 bytes.
    pub line: u64,
    /// The address of the instruction.
    pub pc: u64,
    /// What kind of instruction, a constant of the format's `insn`.
    pub kind: u8,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// A bit for each byte that was read.
    pub read_bytes: u64,
    /// A bit for each byte that was written.
    pub written_bytes: u64,
    /// The epochs of the first and last access.
    pub span: (u32, u32),
    /// The same of writes; none, if there is none.
    pub write_span: Option<(u32, u32)>,
}

/// The head of a thread's table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// The process.
    pub pid: u32,
    /// The thread's number in the kernel.
    pub tid: u32,
    /// Its number here.
    pub number: u32,
    /// A constant of the format's `window`.
    pub window: u32,
    /// One line in 2^shift is there.
    pub sample: u32,
    /// Accesses that found no room.
    pub lost: u64,
    /// Accesses.
    pub accesses: u64,
    /// The epoch of its start.
    pub started: u32,
    /// The epoch of its end, if it ended.
    pub ended: Option<u32>,
    /// Its name.
    pub name: String,
}

/// What happened in a process. The fields are those of the format's records.
#[allow(missing_docs, reason = "said where the format is")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Where the emulator keeps the program's memory, the parent, and the architecture.
    Info { guest_base: u64, parent: u32, arch: String },
    /// All mappings, as the kernel lists them.
    Maps { epoch: u32, text: String },
    /// A mapping was made.
    Mmap { epoch: u32, flags: u32, thread: u32, address: u64, length: u64, offset: u64, path: String },
    /// Mappings went.
    Munmap { epoch: u32, address: u64, length: u64 },
    /// A mapping moved, or has another length.
    Mremap { epoch: u32, old: u64, old_length: u64, address: u64, length: u64 },
    /// A block was given out.
    Alloc { epoch: u32, thread: u32, site: u32, address: u64, size: u64 },
    /// A block was given back.
    Free { epoch: u32, address: u64 },
    /// The block that was given back last here was not.
    Kept { address: u64 },
    /// Return addresses of a place that allocates.
    Site { number: u32, frames: Vec<u64> },
    /// Threads slept on this word.
    Futex { address: u64 },
    /// The process became another program.
    Exec { path: String },
    /// The process ended by itself.
    Exit { status: u32 },
    /// A thread's stack pointer at its start; the thread's number is the kernel's.
    Stack { tid: u32, address: u64 },
    /// One line in 2^shift was kept from here on.
    Sample { shift: u32 },
    /// The process is a copy of another of the run, from when so many bytes of records were in its log.
    Forked { process: u32, bytes: u64 },
    /// The preloaded library is there.
    Preloaded,
    /// No more blocks were written down.
    BlocksCut,
}

/// A log.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Log {
    /// The process.
    pub pid: u32,
    /// Its number in the run, never used again.
    pub process: u32,
    /// What happened, in order.
    pub events: Vec<Event>,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

fn kind_of(bytes: &[u8]) -> Option<u32> {
    (bytes.len() >= HEAD_BYTES && u64_at(bytes, head::MAGIC) == Some(MAGIC))
        .then(|| u32_at(bytes, head::KIND))
        .flatten()
}

fn head_of(bytes: &[u8]) -> Option<Head> {
    let word = |at| u32_at(bytes, at);
    let name = &bytes.get(head::NAME..)?[..16];
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Some(Head {
        pid: word(head::PID)?,
        tid: word(head::TID)?,
        number: word(head::NUMBER)?,
        window: word(head::WINDOW)?,
        sample: word(head::SAMPLE)?.min(40),
        lost: u64_at(bytes, head::LOST)?,
        accesses: u64_at(bytes, head::ACCESSES)?,
        started: word(head::STARTED)?,
        ended: word(head::ENDED).filter(|epoch| *epoch != 0),
        name: String::from_utf8_lossy(&name[..end]).into_owned(),
    })
}

/// No thread makes more accesses; and sums of a few hundred of them shall not overflow.
const COUNT_MAX: u64 = 1 << 48;

fn entry_of(bytes: &[u8]) -> Option<Entry> {
    let long = |at| u64_at(bytes, at);
    let word = |at| u32_at(bytes, at);
    let site = long(entry::SITE)?;
    let writes = long(entry::WRITES)?;
    let found = Entry {
        line: long(entry::LINE)?,
        pc: site & ((1 << SITE_BITS) - 1),
        kind: (site >> SITE_BITS) as u8,
        reads: long(entry::READS)?.min(COUNT_MAX),
        writes: writes.min(COUNT_MAX),
        read_bytes: long(entry::READ_BYTES)?,
        written_bytes: long(entry::WRITTEN_BYTES)?,
        span: (word(entry::FIRST)?, word(entry::LAST)?),
        write_span: (writes > 0).then_some((word(entry::FIRST_WRITE)?, word(entry::LAST_WRITE)?)),
    };
    (site != 0 && found.reads + found.writes > 0).then_some(found)
}

/// Calls `f` with the head of each table in `sources`, and `each` with each of its entries, when `f` says so.
pub fn tables(sources: &[Source], mut f: impl FnMut(&Head) -> bool, mut each: impl FnMut(&Head, Entry)) {
    for source in sources {
        let bytes = source.bytes();
        if kind_of(&bytes) != Some(file::TABLE) {
            continue;
        }
        let Some(head) = head_of(&bytes) else { continue };
        if !f(&head) {
            continue;
        }
        let said = u64_at(&bytes, head::ENTRIES).unwrap_or(0);
        let said = usize::try_from(said).unwrap_or(usize::MAX);
        let rows = u32_at(&bytes, head::ROWS).unwrap_or(0) as usize;
        let mut entries = bytes[HEAD_BYTES..].chunks_exact(ENTRY_BYTES).take(said);
        let mut waiting = waiting(entries.by_ref().take(rows).filter_map(entry_of));
        for mut entry in entries.filter_map(entry_of) {
            if let Some(row) = waiting.remove(&key(&entry)) {
                entry.join(&row);
            }
            each(&head, entry);
        }
        waiting.into_values().for_each(|row| each(&head, row));
    }
}

/// By what an entry is known: its line, its instruction, and what kind of instruction that is.
type Key = (u64, u64, u8);

fn key(entry: &Entry) -> Key {
    (entry.line, entry.pc, entry.kind)
}

/// Rows, of each line and instruction one; by their order, so that what is made of them has one, too.
fn waiting(rows: impl Iterator<Item = Entry>) -> BTreeMap<Key, Entry> {
    let mut waiting: BTreeMap<Key, Entry> = BTreeMap::new();
    for row in rows {
        waiting.entry(key(&row)).and_modify(|first| first.join(&row)).or_insert(row);
    }
    waiting
}

impl Entry {
    /// Adds what another one of the same line and instruction counted.
    fn join(&mut self, other: &Entry) {
        let both = |a: (u32, u32), b: (u32, u32)| (a.0.min(b.0), a.1.max(b.1));
        self.reads = self.reads.saturating_add(other.reads).min(COUNT_MAX);
        self.writes = self.writes.saturating_add(other.writes).min(COUNT_MAX);
        self.read_bytes |= other.read_bytes;
        self.written_bytes |= other.written_bytes;
        self.span = both(self.span, other.span);
        self.write_span = match (self.write_span, other.write_span) {
            (Some(own), Some(others)) => Some(both(own, others)),
            (own, others) => own.or(others),
        };
    }
}

/// The logs in `sources`.
#[must_use]
pub fn logs(sources: &[Source]) -> Vec<Log> {
    let mut logs: Vec<Log> = sources.iter().filter_map(|source| log(source, u64::MAX, |_| true)).collect();
    logs.sort_by_key(|log| log.process);
    logs
}

/// What the first so many bytes of its records say that is wanted, if it is a log.
fn log(source: &Source, bytes_max: u64, is_wanted: fn(&Event) -> bool) -> Option<Log> {
    let bytes = source.bytes();
    if kind_of(&bytes) != Some(file::LOG) {
        return None;
    }
    let said = u64_at(&bytes, head::ENTRIES).unwrap_or(0).min(bytes_max);
    let records = &bytes[HEAD_BYTES..];
    let said = usize::try_from(said).unwrap_or(usize::MAX).min(records.len());
    Some(Log {
        pid: u32_at(&bytes, head::PID)?,
        process: u32_at(&bytes, head::PROCESS)?,
        events: events(&records[..said], is_wanted),
    })
}

/// The logs of those that the process was forked from, up to when it was, the oldest first: of each what it knew of its memory (blocks, who
/// asked for them, and words that were slept upon) and whom it was forked from itself. None where the process is no copy.
///
/// A parent whose log is not there ends the chain: nothing is known of those before it.
#[must_use]
pub fn inherited(log: &Log, by_process: &HashMap<u32, Vec<Source>>) -> Vec<Log> {
    let mut found: Vec<Log> = Vec::new();
    let mut copy = log;
    // A copy has a later number: this ends.
    while let Some((parent, bytes)) = copy.events.iter().find_map(|event| match event {
        Event::Forked { process, bytes } if *process < copy.process => Some((*process, *bytes)),
        _ => None,
    }) {
        let sources = by_process.get(&parent).map_or(&[][..], Vec::as_slice);
        let Some(of_parent) = sources.iter().find_map(|source| self::log(source, bytes, is_inherited)) else {
            break;
        };
        found.push(of_parent);
        copy = &found[found.len() - 1];
    }
    found.reverse();
    found
}

/// Whether a copy of the process has it, too.
fn is_inherited(event: &Event) -> bool {
    matches!(
        event,
        Event::Alloc { .. }
            | Event::Free { .. }
            | Event::Kept { .. }
            | Event::Site { .. }
            | Event::Futex { .. }
            | Event::Forked { .. }
            | Event::Preloaded
            | Event::BlocksCut
    )
}

/// The records that are understood and wanted, in order; of an `exec` that failed, none.
fn events(mut rest: &[u8], is_wanted: fn(&Event) -> bool) -> Vec<Event> {
    let mut events = Vec::new();
    // Where in them each thread's last `exec` is.
    let mut becoming: HashMap<u32, usize> = HashMap::new();
    while let (Some(kind), Some(length)) = (u32_at(rest, 0), u32_at(rest, 4)) {
        let length = length as usize;
        let Some(payload) = rest.get(8..).and_then(|rest| rest.get(..length)) else { break };
        let thread = u32_at(payload, 4).unwrap_or(0);
        if kind == record::EXEC_FAILED {
            if let Some(at) = becoming.remove(&thread) {
                events[at] = None;
            }
        } else if let Some(event) = event(kind, payload).filter(is_wanted) {
            if kind == record::EXEC {
                becoming.insert(thread, events.len());
            }
            events.push(Some(event));
        }
        rest = rest.get(8 + length.next_multiple_of(8)..).unwrap_or(&[]);
    }
    events.into_iter().flatten().collect()
}

/// The sources of each process, by its number in the run: what is one for another is not read for it.
#[must_use]
pub fn by_process(sources: &[Source]) -> HashMap<u32, Vec<Source>> {
    let mut found: HashMap<u32, Vec<Source>> = HashMap::new();
    for source in sources {
        let start = source.start();
        if let (Some(_), Some(process)) = (kind_of(&start), u32_at(&start, head::PROCESS)) {
            found.entry(process).or_default().push(source.clone());
        }
    }
    found
}

/// What happened and is not recorded, in the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Losses {
    /// Accesses of threads that have no table: there were too many of them, or no room.
    pub accesses: u64,
    /// Such threads.
    pub threads: u64,
    /// Processes that could not record anything.
    pub processes: u64,
    /// Records of mappings, blocks and the like for which there was no room.
    pub records: u64,
}

impl Losses {
    /// Whether all that happened is recorded, but for lines that are not in the sample.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Losses::default()
    }
}

/// What is not recorded.
#[must_use]
pub fn losses(sources: &[Source]) -> Losses {
    let mut losses = Losses::default();
    for source in sources.iter().filter(|source| kind_of(&source.start()) == Some(file::RUN)) {
        let bytes = source.bytes();
        let long = |at| u64_at(&bytes, at).unwrap_or(0).min(1 << 48);
        losses.accesses += long(run::ACCESSES_UNSEEN);
        losses.threads += long(run::THREADS_UNSEEN);
        losses.processes += long(run::PROCESSES_UNSEEN);
        losses.records += long(run::RECORDS_LOST);
    }
    losses
}

fn event(kind: u32, payload: &[u8]) -> Option<Event> {
    let word = |at| u32_at(payload, at);
    let long = |at| u64_at(payload, at);
    let text = |at: usize| Some(String::from_utf8_lossy(payload.get(at..)?).into_owned());
    Some(match kind {
        record::INFO => Event::Info { guest_base: long(0)?, parent: word(8)?, arch: text(16)? },
        record::MAPS => Event::Maps { epoch: word(0)?, text: text(8)? },
        record::MMAP => Event::Mmap {
            epoch: word(0)?,
            flags: word(8)?,
            thread: word(12)?,
            address: long(16)?,
            length: long(24)?,
            offset: long(32)?,
            path: text(40)?,
        },
        record::MUNMAP => Event::Munmap { epoch: word(0)?, address: long(8)?, length: long(16)? },
        record::MREMAP => Event::Mremap {
            epoch: word(0)?,
            old: long(8)?,
            old_length: long(16)?,
            address: long(24)?,
            length: long(32)?,
        },
        record::ALLOC => Event::Alloc {
            epoch: word(0)?,
            thread: word(4)?,
            site: word(8)?,
            address: long(16)?,
            size: long(24)?,
        },
        record::FREE => Event::Free { epoch: word(0)?, address: long(8)? },
        record::KEPT => Event::Kept { address: long(8)? },
        record::SITE => {
            let frames = payload.get(8..)?.as_chunks().0;
            Event::Site {
                number: word(0)?,
                frames: frames.iter().map(|word| u64::from_le_bytes(*word)).collect(),
            }
        }
        record::FUTEX => Event::Futex { address: long(0)? },
        record::EXEC => Event::Exec { path: text(8)? },
        record::EXIT => Event::Exit { status: word(0)? },
        record::STACK => Event::Stack { tid: word(0)?, address: long(8)? },
        record::SAMPLE => Event::Sample { shift: word(0)? },
        record::FORKED => Event::Forked { process: word(0)?, bytes: long(8)? },
        record::PRELOADED => Event::Preloaded,
        record::BLOCKS_CUT => Event::BlocksCut,
        _ => return None,
    })
}

/// Whether this table counts, in a process where windows were opened or not.
#[must_use]
pub fn counts(head: &Head, windows: bool) -> bool {
    !windows || head.window != window::WHOLE
}
