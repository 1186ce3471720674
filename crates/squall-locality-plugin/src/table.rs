//! One thread's table: for each line and each instruction that touched it, how often, which bytes, and when.
//!
//! Problem: this is on the way of every load and store of the program, and what was counted has to outlive a kill. Idea: the
//! entries lie in a mapped file and never move while the thread runs; an index of pointers to them lies in private memory,
//! and in front of it a small cache that is mapped directly, so that a loop finds its entries with one comparison.
//!
//! - I1. An entry is written by its thread alone, and pointers in the cache and the index lead to entries of this table.
//! - I2. Entries are packed: the head's count says how many there are, in order, through the chunks.
//! - I3. A table holds only lines of its sample: those whose hash ends in so many zeros. Raising the sample drops the
//!   others, so that every line that is kept was kept from the beginning.
//!
//! Cost: a hit in the cache is one load, two comparisons and four stores to one line of memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::{ENTRY_BYTES, HEAD_BYTES, MAGIC, file, head, is_sampled};
use crate::shared::Chunk;

/// Entries in all tables of this process.
pub(crate) static ENTRIES: AtomicU64 = AtomicU64::new(0);

/// An entry, as `format::entry` says.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    line: u64,
    site: u64,
    reads: u64,
    writes: u64,
    read_bytes: u64,
    written_bytes: u64,
    first: u32,
    last: u32,
    first_write: u32,
    last_write: u32,
}

const _: () = assert!(size_of::<Entry>() == ENTRY_BYTES);

/// One access to one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) line: u64,
    pub(crate) site: u64,
    /// A bit for each byte.
    pub(crate) bytes: u64,
    pub(crate) store: bool,
    pub(crate) epoch: u32,
}

/// Slots of the cache in front of the index.
const CACHE_SLOTS: usize = 1024;
/// Slots of the first index.
const INDEX_SLOTS: usize = 1024;
/// Bytes of a table's first part, head included, and of its largest.
const CHUNK_MIN: usize = 64 << 10;
const CHUNK_MAX: usize = 16 << 20;

/// Spreads lines and sites over slots: the high bits are good.
fn hash(line: u64, site: u64) -> u64 {
    (line ^ site.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Lines that lie side by side in the index, for one site: a program that walks through memory walks through it, too.
const RUN: u64 = 16;

/// Where the index is looked into first.
fn first_slot(line: u64, site: u64, slots: usize) -> usize {
    let run = hash(line / RUN, site) >> 24;
    (run * RUN + line % RUN) as usize & (slots - 1)
}

/// And where next: about the same place of the next run. The step is odd, so that every slot is come by.
fn next_slot(at: usize, slots: usize) -> usize {
    (at + RUN as usize + 1) & (slots - 1)
}

/// One thread's table.
#[derive(Debug)]
pub(crate) struct Table {
    cache: Box<[*mut Entry; CACHE_SLOTS]>,
    index: Vec<*mut Entry>,
    used: usize,
    sample: u32,
    /// Where the next entry goes, and where the last chunk ends.
    next: *mut Entry,
    end: *mut Entry,
    chunks: Vec<Chunk>,
    file: File,
    path: PathBuf,
    file_bytes: usize,
    lost: u64,
    accesses: u64,
}

impl Table {
    /// A new one, in a file that must not exist.
    pub(crate) fn create(path: &Path, sample: u32) -> io::Result<Table> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let chunk = Chunk::map(&file, 0, CHUNK_MIN)?;
        let start = chunk.start();
        // SAFETY: the chunk is longer than its head, of which entries are a multiple.
        let (next, end) = unsafe { (start.add(HEAD_BYTES).cast(), start.add(chunk.bytes()).cast()) };
        let table = Table {
            cache: Box::new([std::ptr::null_mut(); CACHE_SLOTS]),
            index: vec![std::ptr::null_mut(); INDEX_SLOTS],
            used: 0,
            sample,
            next,
            end,
            chunks: vec![chunk],
            file,
            path: path.to_path_buf(),
            file_bytes: CHUNK_MIN,
            lost: 0,
            accesses: 0,
        };
        table.set_u64(head::MAGIC, MAGIC);
        table.set_u32(head::KIND, file::TABLE);
        table.set_u32(head::SAMPLE, sample);
        Ok(table)
    }

    /// Stores a number in the head.
    pub(crate) fn set_u32(&self, at: usize, value: u32) {
        debug_assert!(at + 4 <= HEAD_BYTES && at.is_multiple_of(4), "a field of the head");
        // SAFETY: within the head, which is mapped (shared/I1), and aligned as it is.
        unsafe { self.chunks[0].start().add(at).cast::<u32>().write(value) };
    }

    /// Stores a long number in the head.
    pub(crate) fn set_u64(&self, at: usize, value: u64) {
        debug_assert!(at + 8 <= HEAD_BYTES && at.is_multiple_of(8), "a field of the head");
        // SAFETY: as in `set_u32`.
        unsafe { self.chunks[0].start().add(at).cast::<u64>().write(value) };
    }

    /// Stores the thread's name in the head.
    pub(crate) fn set_name(&self, name: &[u8]) {
        let mut padded = [0; 16];
        for (to, from) in padded.iter_mut().zip(name) {
            *to = *from;
        }
        // SAFETY: the name's 16 bytes lie in the head, which is mapped (shared/I1).
        unsafe { self.chunks[0].start().add(head::NAME).cast::<[u8; 16]>().write(padded) };
    }

    /// Counts an access. With `room` below, entries of all tables, no entry is added beyond it.
    #[inline]
    pub(crate) fn count(&mut self, access: Access) {
        let hash = hash(access.line, access.site);
        let cached = self.cache[(hash >> 54) as usize & (CACHE_SLOTS - 1)];
        self.accesses += 1;
        // SAFETY: a pointer in the cache is null or leads to an entry of ours (I1), which nobody else refers to.
        if let Some(entry) = unsafe { cached.as_mut() }
            && entry.line == access.line
            && entry.site == access.site
        {
            entry.add(access);
            return;
        }
        self.count_slowly(access, hash);
    }

    #[cold]
    #[inline(never)]
    fn count_slowly(&mut self, access: Access, hash: u64) {
        if !is_sampled(access.line, self.sample) {
            return;
        }
        let Some(entry) = self.find_or_add(access) else {
            self.lost += 1;
            self.set_u64(head::LOST, self.lost);
            return;
        };
        self.cache[(hash >> 54) as usize & (CACHE_SLOTS - 1)] = entry;
        // SAFETY: as in `count`.
        unsafe { (*entry).add(access) };
    }

    fn find_or_add(&mut self, access: Access) -> Option<*mut Entry> {
        let mut at = first_slot(access.line, access.site, self.index.len());
        loop {
            let entry = self.index[at];
            // SAFETY: null or an entry of ours (I1).
            match unsafe { entry.as_ref() } {
                None => break,
                Some(found) if found.line == access.line && found.site == access.site => return Some(entry),
                Some(_) => at = next_slot(at, self.index.len()),
            }
        }
        let entry = self.add(access)?;
        self.index[at] = entry;
        // Sparse, since what walks with a stride meets in few of the slots of each run.
        if self.used * 4 > self.index.len() {
            self.rebuild_index(self.index.len() * 2);
        }
        Some(entry)
    }

    /// A new entry without a count; none where the file cannot grow.
    fn add(&mut self, access: Access) -> Option<*mut Entry> {
        if self.next == self.end {
            let bytes = self.file_bytes.clamp(CHUNK_MIN, CHUNK_MAX);
            let chunk = Chunk::map(&self.file, self.file_bytes, bytes).ok()?;
            self.next = chunk.start().cast();
            // SAFETY: the end of what was just mapped.
            self.end = unsafe { chunk.start().add(chunk.bytes()).cast() };
            self.file_bytes += bytes;
            self.chunks.push(chunk);
        }
        let entry = self.next;
        // SAFETY: `next` is before `end`, both in the last chunk, whose length is a multiple of an entry's (with the head's,
        // in the first one).
        unsafe {
            entry.write(Entry {
                line: access.line,
                site: access.site,
                reads: 0,
                writes: 0,
                read_bytes: 0,
                written_bytes: 0,
                first: access.epoch,
                last: access.epoch,
                first_write: 0,
                last_write: 0,
            });
            self.next = entry.add(1);
        }
        self.used += 1;
        self.set_u64(head::ENTRIES, self.used as u64);
        self.set_u64(head::ACCESSES, self.accesses);
        ENTRIES.fetch_add(1, Ordering::Relaxed);
        Some(entry)
    }

    fn rebuild_index(&mut self, slots: usize) {
        let mut index = vec![std::ptr::null_mut::<Entry>(); slots];
        for entry in self.entries() {
            // SAFETY: an entry of ours.
            let (line, site) = unsafe { ((*entry).line, (*entry).site) };
            let mut at = first_slot(line, site, slots);
            while !index[at].is_null() {
                at = next_slot(at, slots);
            }
            index[at] = entry;
        }
        self.index = index;
    }

    /// All entries, in order.
    fn entries(&self) -> impl Iterator<Item = *mut Entry> {
        let mut left = self.used;
        self.chunks.iter().enumerate().flat_map(move |(number, chunk)| {
            let skipped = if number == 0 { HEAD_BYTES } else { 0 };
            let count = left.min((chunk.bytes() - skipped) / ENTRY_BYTES);
            left -= count;
            // SAFETY: within the chunk.
            let first = unsafe { chunk.start().add(skipped).cast::<Entry>() };
            // SAFETY: `count` entries fit.
            (0..count).map(move |at| unsafe { first.add(at) })
        })
    }

    /// Keeps one line in 2^shift from here on, and of those there are. Shrinks the index, not the file.
    pub(crate) fn resample(&mut self, shift: u32) {
        if shift <= self.sample {
            return;
        }
        let places: Vec<*mut Entry> = self.entries().collect();
        let mut kept = 0;
        for from in &places {
            // SAFETY: both are entries of ours; a copy onto itself or an earlier one.
            unsafe {
                if is_sampled((**from).line, shift) {
                    let entry = **from;
                    places[kept].write(entry);
                    kept += 1;
                }
            }
        }
        ENTRIES.fetch_sub((self.used - kept) as u64, Ordering::Relaxed);
        self.used = kept;
        self.sample = shift;
        self.set_u64(head::ENTRIES, kept as u64);
        self.set_u32(head::SAMPLE, shift);
        self.cache.fill(std::ptr::null_mut());
        self.truncate();
        self.rebuild_index((kept * 8).next_power_of_two().max(INDEX_SLOTS));
    }

    /// Gives back the chunks that hold nothing.
    fn truncate(&mut self) {
        let mut end = 0;
        let mut left = self.used;
        let mut keep = 0;
        for (number, chunk) in self.chunks.iter().enumerate() {
            let skipped = if number == 0 { HEAD_BYTES } else { 0 };
            let here = left.min((chunk.bytes() - skipped) / ENTRY_BYTES);
            if number > 0 && left == 0 {
                break;
            }
            left -= here;
            keep += 1;
            end += chunk.bytes();
            // SAFETY: within the chunk, or its end.
            unsafe {
                let first = chunk.start().add(skipped).cast::<Entry>();
                self.next = first.add(here);
                self.end = chunk.start().add(chunk.bytes()).cast();
            }
        }
        self.chunks.truncate(keep);
        self.file_bytes = end;
        // What cannot be cut off is read as empty: the head says how many there are.
        let _ = self.file.set_len(end as u64);
    }

    /// Writes down what the head does not yet say.
    pub(crate) fn settle(&self) {
        self.set_u64(head::ACCESSES, self.accesses);
    }

    /// The thread is over: its file remains.
    pub(crate) fn end(self) -> PathBuf {
        self.path
    }

    /// Removes it and its file.
    pub(crate) fn discard(self) {
        ENTRIES.fetch_sub(self.used as u64, Ordering::Relaxed);
        // It may be gone: whoever started us has given up.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Keeps one line in 2^shift of those in the file of a thread that ended. A file that cannot be read stays as it is: its
/// head says what sample it is.
pub(crate) fn resample_file(path: &Path, shift: u32) {
    let Ok(mut bytes) = std::fs::read(path) else { return };
    let count =
        |bytes: &[u8]| bytes.get(head::ENTRIES..)?.first_chunk().map(|n| u64::from_le_bytes(*n) as usize);
    let Some(count) = count(&bytes) else { return };
    let Some(end) = count.checked_mul(ENTRY_BYTES).and_then(|n| n.checked_add(HEAD_BYTES)) else { return };
    if end > bytes.len() {
        return;
    }
    let mut to = HEAD_BYTES;
    for from in (HEAD_BYTES..end).step_by(ENTRY_BYTES) {
        let line = bytes[from..].first_chunk().map_or(0, |line| u64::from_le_bytes(*line));
        if is_sampled(line, shift) {
            bytes.copy_within(from..from + ENTRY_BYTES, to);
            to += ENTRY_BYTES;
        }
    }
    let kept = (to - HEAD_BYTES) / ENTRY_BYTES;
    bytes.truncate(to);
    bytes[head::ENTRIES..][..8].copy_from_slice(&(kept as u64).to_le_bytes());
    bytes[head::SAMPLE..][..4].copy_from_slice(&shift.to_le_bytes());
    if std::fs::write(path, bytes).is_ok() {
        ENTRIES.fetch_sub((count - kept) as u64, Ordering::Relaxed);
    }
}

impl Entry {
    #[inline]
    fn add(&mut self, access: Access) {
        self.last = access.epoch;
        if access.store {
            if self.writes == 0 {
                self.first_write = access.epoch;
            }
            self.writes += 1;
            self.written_bytes |= access.bytes;
            self.last_write = access.epoch;
        } else {
            self.reads += 1;
            self.read_bytes |= access.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(line: u64, site: u64, store: bool) -> Access {
        Access { line, site, bytes: 0xff, store, epoch: 1 }
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("squall-table-{}-{name}", std::process::id()))
    }

    #[test]
    fn every_access_is_counted_once_through_growth() {
        let path = path("growth");
        let mut table = Table::create(&path, 0).expect("a file");
        for round in 0..3u64 {
            for line in 0..20_000u64 {
                table.count(access(line, 1 + line % 3, round == 0));
            }
        }
        let (mut reads, mut writes) = (0, 0);
        for entry in table.entries() {
            // SAFETY: an entry of the table.
            let entry = unsafe { &*entry };
            reads += entry.reads;
            writes += entry.writes;
        }
        assert_eq!((table.used, reads, writes), (20_000, 40_000, 20_000));
        let bytes = std::fs::read(&path).expect("the file");
        let count = u64::from_le_bytes(bytes[head::ENTRIES..head::ENTRIES + 8].try_into().expect("eight"));
        assert_eq!(count, 20_000);
        table.discard();
        assert!(!path.exists());
    }

    #[test]
    fn lines_of_any_stride_find_their_place() {
        for stride in [16, 1 << 10, 1 << 20] {
            let path = path("stride");
            let mut table = Table::create(&path, 0).expect("a file");
            for line in 0..5_000u64 {
                table.count(access(line * stride, 1, true));
            }
            assert_eq!(table.used, 5_000);
            table.discard();
        }
    }

    #[test]
    fn a_sample_keeps_whole_lines_and_all_their_counts() {
        let path = path("sample");
        let mut table = Table::create(&path, 0).expect("a file");
        for _ in 0..2 {
            for line in 0..50_000u64 {
                table.count(access(line, 7, true));
            }
            table.resample(3);
        }
        let mut kept = 0;
        for entry in table.entries() {
            // SAFETY: an entry of the table.
            let entry = unsafe { &*entry };
            assert!(is_sampled(entry.line, 3));
            assert_eq!(entry.writes, 2);
            kept += 1;
        }
        assert!((50_000 / 10..50_000 / 6).contains(&kept), "{kept} of 50000 is about an eighth");
        table.discard();
    }
}
