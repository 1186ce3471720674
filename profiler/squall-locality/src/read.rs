//! Reads the plugin's files: logs and tables.
//!
//! A killed process may leave files half written, so the reader trusts no number. It checks lengths, skips
//! unknown records, and stops reading a file at malformed bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;
use squall_locality_plugin::format::{
    ENTRY_BYTES, HEAD_BYTES, MAGIC, SITE_BITS, entry, file, head, record, run, window,
};

/// A file of the plugin, on disk or in memory.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file on disk, read on demand.
    Path(PathBuf),
    /// The bytes of a file.
    Bytes(Vec<u8>),
}

impl Source {
    fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Source::Path(path) => Cow::Owned(std::fs::read(path).unwrap_or_default()),
            Source::Bytes(bytes) => Cow::Borrowed(bytes),
        }
    }

    /// First bytes of the file, at most the length of a head.
    fn start(&self) -> Cow<'_, [u8]> {
        match self {
            Source::Path(path) => {
                let mut bytes = Vec::new();
                // An unreadable file counts as empty.
                let _ = std::fs::File::open(path)
                    .and_then(|file| file.take(HEAD_BYTES as u64).read_to_end(&mut bytes));
                Cow::Owned(bytes)
            }
            Source::Bytes(bytes) => Cow::Borrowed(bytes.get(..HEAD_BYTES).unwrap_or(bytes)),
        }
    }
}

/// Lists the files in a folder, sorted by path.
///
/// # Errors
/// If the folder cannot be read.
pub fn sources(folder: &Path) -> io::Result<Vec<Source>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)?.flatten().map(|found| found.path()).collect();
    paths.sort();
    Ok(paths.into_iter().map(Source::Path).collect())
}

/// Accesses of one instruction, in one thread, to one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Address of the line divided by 64.
    pub line: u64,
    /// Address of the instruction.
    pub pc: u64,
    /// Kind of the instruction, a constant of the format's `insn`.
    pub kind: u8,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bit mask of bytes read.
    pub read_bytes: u64,
    /// Bit mask of bytes written.
    pub written_bytes: u64,
    /// Epochs of the first and last access.
    pub span: (u32, u32),
    /// Epochs of the first and last write, if there is one.
    pub write_span: Option<(u32, u32)>,
}

/// Head of a thread's table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// Id of the process.
    pub pid: u32,
    /// Kernel id of the thread.
    pub tid: u32,
    /// Number of the thread in its process, from 0.
    pub number: u32,
    /// State of the window, a constant of the format's `window`.
    pub window: u32,
    /// Sampling: one line in 2^`sample` was kept.
    pub sample: u32,
    /// Accesses that found no room.
    pub lost: u64,
    /// Number of accesses.
    pub accesses: u64,
    /// Epoch of the thread's start.
    pub started: u32,
    /// Epoch of the thread's end, if it ended.
    pub ended: Option<u32>,
    /// Name of the thread.
    pub name: String,
}

/// An event of a process. The fields are those of the format's records.
#[allow(missing_docs, reason = "documented with the format")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Address of the program's memory in the emulator, parent process, and architecture.
    Info { guest_base: u64, parent: u32, arch: String },
    /// All mappings, as listed by the kernel.
    Maps { epoch: u32, text: String },
    /// A mapping was created.
    Mmap { epoch: u32, flags: u32, thread: u32, address: u64, length: u64, offset: u64, path: String },
    /// A range was unmapped.
    Munmap { epoch: u32, address: u64, length: u64 },
    /// A mapping was moved or resized.
    Mremap { epoch: u32, old: u64, old_length: u64, address: u64, length: u64 },
    /// A heap block was allocated.
    Alloc { epoch: u32, thread: u32, site: u32, address: u64, size: u64 },
    /// A heap block was freed.
    Free { epoch: u32, address: u64 },
    /// The last free of the block at this address failed; the block still exists.
    Kept { address: u64 },
    /// Return addresses of an allocation site.
    Site { number: u32, frames: Vec<u64> },
    /// A thread slept on this word.
    Futex { address: u64 },
    /// The process executed another program.
    Exec { path: String },
    /// The process exited.
    Exit { status: u32 },
    /// Initial stack pointer of a thread, with the thread's kernel id.
    Stack { tid: u32, address: u64 },
    /// From here on, one line in 2^`shift` was kept.
    Sample { shift: u32 },
    /// The process was forked from another one of the run, whose log had `bytes` bytes of records then.
    Forked { process: u32, bytes: u64 },
    /// The preloaded library was loaded.
    Preloaded,
    /// Later heap blocks were not recorded.
    BlocksCut,
}

/// Log of a process.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Log {
    /// Id of the process.
    pub pid: u32,
    /// Number of the process in the run; unique.
    pub process: u32,
    /// Events in order.
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

/// Upper limit for a count. No thread makes more accesses, and sums of a few hundred counts cannot overflow.
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

/// Calls `f` with the head of each table in `sources`. If `f` returns true, calls `each` with each entry of
/// the table.
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

/// Identity of an entry: line, instruction address, instruction kind.
type Key = (u64, u64, u8);

fn key(entry: &Entry) -> Key {
    (entry.line, entry.pc, entry.kind)
}

/// Merges the rows of the plugin's waiting area by key. The ordered map makes the result deterministic.
fn waiting(rows: impl Iterator<Item = Entry>) -> BTreeMap<Key, Entry> {
    let mut waiting: BTreeMap<Key, Entry> = BTreeMap::new();
    for row in rows {
        waiting.entry(key(&row)).and_modify(|first| first.join(&row)).or_insert(row);
    }
    waiting
}

impl Entry {
    /// Adds the counts of another entry with the same key.
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

/// Reads all logs in `sources`, ordered by process number.
#[must_use]
pub fn logs(sources: &[Source]) -> Vec<Log> {
    let mut logs: Vec<Log> = sources.iter().filter_map(|source| log(source, u64::MAX, |_| true)).collect();
    logs.sort_by_key(|log| log.process);
    logs
}

/// Reads the wanted events in the first `bytes_max` bytes of records, if `source` is a log.
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

/// Returns the logs of the ancestors of a forked process, oldest first, each up to the fork. Empty if the
/// process was not forked in this run.
///
/// The events are limited to facts about memory that a fork inherits: blocks, allocation sites, futex words.
/// A missing log ends the chain, because each log names the next ancestor.
#[must_use]
pub fn inherited(log: &Log, by_process: &HashMap<u32, Vec<Source>>) -> Vec<Log> {
    let mut found: Vec<Log> = Vec::new();
    let mut copy = log;
    // A child has a higher number than its parent, so the loop ends.
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

/// Whether a forked child inherits the fact.
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

/// Parses the known and wanted records in order. An `exec` that failed is left out.
fn events(mut rest: &[u8], is_wanted: fn(&Event) -> bool) -> Vec<Event> {
    let mut events = Vec::new();
    // Index of each thread's last `exec` in `events`.
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

/// Groups the sources by process number, so that each process reads only its own files.
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

/// Accesses and events of the whole run that were not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Losses {
    /// Accesses of threads without a table, because there were too many threads or no room.
    pub accesses: u64,
    /// Number of threads without a table.
    pub threads: u64,
    /// Number of processes that recorded nothing.
    pub processes: u64,
    /// Records of mappings, blocks and other events for which there was no room.
    pub records: u64,
}

impl Losses {
    /// Whether everything was recorded. Lines left out by sampling are no loss.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Losses::default()
    }
}

/// Sums the losses in `sources`.
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

/// Whether a table counts in a process, given whether windows were opened there.
#[must_use]
pub fn counts(head: &Head, windows: bool) -> bool {
    !windows || head.window != window::WHOLE
}
