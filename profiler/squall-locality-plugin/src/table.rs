//! Table of one thread: per line and instruction the number of accesses, their bytes and their time.
//!
//! Problem: every load and store of the program passes here, and the counts must survive a kill. Idea:
//! entries lie in a mapped file and do not move while the thread runs. An index of pointers to them lies in
//! private memory. In front of it, a small direct-mapped cache lets a loop find its entries with one
//! comparison. An entry that is not in this cache is usually in no cache of the processor either. Such
//! accesses wait in rows at the beginning of the file. When the rows are full, all of them are looked up
//! together, so that their memory latencies overlap.
//!
//! - I1. Only the table's thread writes an entry. Pointers in the cache and the index lead to entries of this
//!   table.
//! - I2. Entries are packed: the head gives their number, in order, through the chunks, after the rows.
//! - I3. A table holds only lines of its sample: those whose hash ends in the given number of zeros. A
//!   coarser sample drops the others, so each kept line has been kept from the beginning.
//! - I4. Room for the file and the index is reserved from the run (run/I1), which also counts the entries per
//!   sample. A forked child forgets its parent's tables and returns no room.
//! - I5. Waiting rows are in the file as entries of their own: a row with a non-zero site counts. The waiting
//!   accesses of an entry are younger than those in the entry. An entry in the cache has no waiting row, and
//!   an entry enters the cache only when its row is settled.
//!
//! Not promised:
//!
//! - The accesses of one row (consecutive accesses of one instruction to one line), if the process is killed
//!   while they move to their entry.
//! - A consistent view for a reader of a file whose process still counts, because it outlived the program.
//!   Accesses that move from a row to its entry meanwhile may be seen twice.
//!
//! Cost: a hit in the cache takes one load, two comparisons and four stores to one line of memory.

use std::ffi::CString;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::format::{ENTRY_BYTES, HEAD_BYTES, MAGIC, file, head, is_sampled};
use crate::shared::{Chunk, GRAIN};
use crate::{keeper, run};

/// An entry with the layout of `format::entry`.
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
    /// Bit mask of the accessed bytes.
    pub(crate) bytes: u64,
    pub(crate) store: bool,
    pub(crate) epoch: u32,
}

/// Slots of the cache in front of the index.
const CACHE_SLOTS: usize = 1024;
/// Initial slots of the index.
const INDEX_SLOTS: usize = 1024;
/// Number of rows for waiting accesses.
const ROWS: usize = 128;
/// Offset of the first entry after the rows.
const ENTRIES_AT: usize = HEAD_BYTES + ROWS * ENTRY_BYTES;
/// Bytes of a table's first chunk, head included, and of its largest. Each further chunk is half of the file
/// so far.
const CHUNK_MIN: usize = GRAIN;
const CHUNK_MAX: usize = 16 << 20;
const PAGE: usize = 4096;
/// Bytes of an index slot.
const SLOT_BYTES: usize = size_of::<*mut Entry>();
/// Bytes of private memory of every table.
const FIXED_BYTES: usize = (CACHE_SLOTS + INDEX_SLOTS) * SLOT_BYTES;

/// Hashes line and site; every input bit affects all output bits.
fn hash(line: u64, site: u64) -> u64 {
    let (a, b) = (line ^ 0xa076_1d64_78bd_642f, site ^ 0xe703_7ed1_a0b4_28db);
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// Cache slot of an entry: the high bits of a single product, since every access computes it.
fn cache_slot(line: u64, site: u64) -> usize {
    ((line ^ site.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize & (CACHE_SLOTS - 1)
}

/// Number of lines that are adjacent in the index, for one site. A sequential walk through memory then walks
/// through the index as well.
const RUN: u64 = 16;

/// First index slot to probe.
fn first_slot(line: u64, site: u64, slots: usize) -> usize {
    let run = hash(line / RUN, site) & !(RUN - 1);
    (run + line % RUN) as usize & (slots - 1)
}

/// Next index slot to probe: the corresponding position of the next run. The step is odd, so all slots are
/// visited.
fn next_slot(at: usize, slots: usize) -> usize {
    (at + RUN as usize + 1) & (slots - 1)
}

/// Prefetches an address, which may be invalid.
#[inline]
fn prefetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch loads nothing and accepts any address; every processor of this architecture has it
    // (SSE).
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch loads nothing and accepts any address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) place, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = place;
}

/// Table of one thread.
#[derive(Debug)]
pub(crate) struct Table {
    cache: Box<[*mut Entry; CACHE_SLOTS]>,
    index: Vec<*mut Entry>,
    used: usize,
    /// Rows of the first chunk.
    rows: *mut Entry,
    /// Number of rows that wait to be written.
    waiting: usize,
    sample: u32,
    /// Place for the next entry, and the end of the last chunk.
    next: *mut Entry,
    end: *mut Entry,
    chunks: Vec<Chunk>,
    name: CString,
    file_bytes: usize,
    lost: u64,
    accesses: u64,
}

impl Table {
    /// Creates a table in a new file. Fails with an error number if there is no room or no file.
    pub(crate) fn create(name: CString, sample: u32) -> Result<Table, isize> {
        if !run::current().take(CHUNK_MIN + FIXED_BYTES) {
            return Err(crate::sys::EAGAIN);
        }
        let chunk = match Chunk::map(&name, 0, CHUNK_MIN, true) {
            Ok(chunk) => chunk,
            Err(error) => {
                run::current().give(CHUNK_MIN + FIXED_BYTES);
                return Err(error);
            }
        };
        let start = chunk.start();
        // SAFETY: the chunk is longer than the head and the rows, and both are multiples of an entry's size.
        let (rows, next, end) = unsafe {
            (start.add(HEAD_BYTES).cast(), start.add(ENTRIES_AT).cast(), start.add(chunk.bytes()).cast())
        };
        let table = Table {
            cache: Box::new([std::ptr::null_mut(); CACHE_SLOTS]),
            index: vec![std::ptr::null_mut(); INDEX_SLOTS],
            used: 0,
            rows,
            waiting: 0,
            sample,
            next,
            end,
            chunks: vec![chunk],
            name,
            file_bytes: CHUNK_MIN,
            lost: 0,
            accesses: 0,
        };
        table.set_u64(head::MAGIC, MAGIC);
        table.set_u32(head::KIND, file::TABLE);
        table.set_u32(head::SAMPLE, sample);
        table.set_u32(head::ROWS, ROWS as u32);
        table.store_used();
        Ok(table)
    }

    /// Sample of the table: one line in 2^this is kept.
    pub(crate) fn sample(&self) -> u32 {
        self.sample
    }

    /// Stores a `u32` in the head.
    pub(crate) fn set_u32(&self, at: usize, value: u32) {
        debug_assert!(
            at + 4 <= HEAD_BYTES && at.is_multiple_of(4),
            "offset {at} is not an aligned field of the head"
        );
        // SAFETY: inside the head, which is mapped (shared/I1), and aligned.
        unsafe { self.chunks[0].start().add(at).cast::<u32>().write(value) };
    }

    /// Stores a `u64` in the head.
    pub(crate) fn set_u64(&self, at: usize, value: u64) {
        debug_assert!(
            at + 8 <= HEAD_BYTES && at.is_multiple_of(8),
            "offset {at} is not an aligned field of the head"
        );
        // SAFETY: inside the head, which is mapped (shared/I1), and aligned.
        unsafe { self.chunks[0].start().add(at).cast::<u64>().write(value) };
    }

    /// Stores the number of entries, rows included, in the head.
    fn store_used(&self) {
        self.set_u64(head::ENTRIES, (ROWS + self.used) as u64);
    }

    /// Stores the thread's name in the head.
    pub(crate) fn set_name(&self, name: &[u8]) {
        let mut padded = [0; 16];
        for (to, from) in padded.iter_mut().zip(name) {
            *to = *from;
        }
        // SAFETY: the 16 bytes of the name lie in the head, which is mapped (shared/I1).
        unsafe { self.chunks[0].start().add(head::NAME).cast::<[u8; 16]>().write(padded) };
    }

    /// Counts an access.
    #[inline]
    pub(crate) fn count(&mut self, access: Access) {
        let cached = self.cache[cache_slot(access.line, access.site)];
        self.accesses += 1;
        // SAFETY: a pointer in the cache is null or leads to an entry of this table (I1), and no other
        // reference exists.
        if let Some(entry) = unsafe { cached.as_mut() }
            && entry.line == access.line
            && entry.site == access.site
        {
            entry.add(access);
            return;
        }
        self.count_slow(access);
    }

    /// Counts an access that misses the cache: in the last row if that has the same line and instruction,
    /// else in a new row.
    #[cold]
    #[inline(never)]
    fn count_slow(&mut self, access: Access) {
        if !is_sampled(access.line, self.sample) {
            return;
        }
        if self.waiting > 0 {
            // SAFETY: a waiting row of this table (I5).
            let last = unsafe { &mut *self.rows.add(self.waiting - 1) };
            if last.line == access.line && last.site == access.site {
                last.add(access);
                return;
            }
        }
        if self.waiting == ROWS {
            self.settle_rows();
        }
        let mut row = Entry::of(access.line, 0, access.epoch);
        row.add(access);
        // SAFETY: there are more rows than waiting ones. They lie in the first chunk, which stays mapped, and
        // no other reference to this row exists.
        unsafe {
            let place = self.rows.add(self.waiting);
            place.write(row);
            // Release: a compiler fence, for readers of the file after a kill. A row counts only when it is
            // complete (I5).
            compiler_fence(Ordering::Release);
            (*place).site = access.site;
        }
        self.waiting += 1;
    }

    /// Moves all waiting rows to their entries.
    #[inline(never)]
    fn settle_rows(&mut self) {
        let mut slots = [0; ROWS];
        let slots = &mut slots[..self.waiting];
        for (at, slot) in slots.iter_mut().enumerate() {
            // SAFETY: a waiting row of this table.
            let row = unsafe { &*self.rows.add(at) };
            *slot = first_slot(row.line, row.site, self.index.len());
            prefetch(&raw const self.index[*slot]);
        }
        for slot in slots {
            prefetch(self.index[*slot]);
        }
        for at in 0..self.waiting {
            // SAFETY: a waiting row of this table; its entry is a different place.
            let row = unsafe {
                let place = self.rows.add(at);
                let row = place.read();
                (*place).site = 0;
                row
            };
            // The row's line was dropped by a coarser sample.
            if row.site == 0 {
                continue;
            }
            // Release: a compiler fence as in `count_slow`. Accesses in an entry are in no row (I5).
            compiler_fence(Ordering::Release);
            let Some(entry) = self.find_or_add(&row) else {
                self.lost += row.reads + row.writes;
                self.set_u64(head::LOST, self.lost);
                continue;
            };
            self.cache[cache_slot(row.line, row.site)] = entry;
            // SAFETY: an entry of this table (I1), and no other reference exists.
            unsafe { (*entry).add_all(&row) };
        }
        self.waiting = 0;
    }

    fn find_or_add(&mut self, wanted: &Entry) -> Option<*mut Entry> {
        let mut at = first_slot(wanted.line, wanted.site, self.index.len());
        loop {
            let entry = self.index[at];
            // SAFETY: null or an entry of this table (I1).
            match unsafe { entry.as_ref() } {
                None => break,
                Some(found) if found.line == wanted.line && found.site == wanted.site => return Some(entry),
                Some(_) => at = next_slot(at, self.index.len()),
            }
        }
        // The index is kept sparse, because a strided walk uses few slots of each run.
        if self.used * 4 >= self.index.len() {
            let slots = self.index.len();
            if !run::current().take(slots * SLOT_BYTES) {
                return None;
            }
            self.rebuild_index(2 * slots);
            return self.find_or_add(wanted);
        }
        let entry = self.add(wanted)?;
        self.index[at] = entry;
        Some(entry)
    }

    /// Appends an entry with zero counts. Returns `None` if the file cannot grow.
    fn add(&mut self, wanted: &Entry) -> Option<*mut Entry> {
        if self.next == self.end {
            let bytes = (self.file_bytes / 2).next_multiple_of(CHUNK_MIN).min(CHUNK_MAX);
            if !run::current().take(bytes) {
                return None;
            }
            let Ok(chunk) = Chunk::map(&self.name, self.file_bytes, bytes, false) else {
                run::current().give(bytes);
                return None;
            };
            self.next = chunk.start().cast();
            // SAFETY: the end of the chunk that was just mapped.
            self.end = unsafe { chunk.start().add(chunk.bytes()).cast() };
            self.file_bytes += bytes;
            self.chunks.push(chunk);
        }
        let entry = self.next;
        // SAFETY: `next` is before `end`, both in the last chunk. The chunk's length is a multiple of an
        // entry's size, in the first chunk together with head and rows.
        unsafe {
            entry.write(Entry::of(wanted.line, wanted.site, wanted.first));
            self.next = entry.add(1);
        }
        self.used += 1;
        self.store_used();
        self.set_u64(head::ACCESSES, self.accesses);
        run::current().add_entries(self.sample, 1);
        Some(entry)
    }

    fn rebuild_index(&mut self, slots: usize) {
        let mut index = vec![std::ptr::null_mut::<Entry>(); slots];
        for entry in self.entries() {
            // SAFETY: an entry of this table.
            let (line, site) = unsafe { ((*entry).line, (*entry).site) };
            let mut at = first_slot(line, site, slots);
            while !index[at].is_null() {
                at = next_slot(at, slots);
            }
            index[at] = entry;
        }
        self.index = index;
    }

    /// All entries in order.
    fn entries(&self) -> impl Iterator<Item = *mut Entry> {
        let mut left = self.used;
        self.chunks.iter().enumerate().flat_map(move |(number, chunk)| {
            let skipped = if number == 0 { ENTRIES_AT } else { 0 };
            let count = left.min((chunk.bytes() - skipped) / ENTRY_BYTES);
            left -= count;
            // SAFETY: inside the chunk.
            let first = unsafe { chunk.start().add(skipped).cast::<Entry>() };
            // SAFETY: the chunk holds `count` entries.
            (0..count).map(move |at| unsafe { first.add(at) })
        })
    }

    /// Changes to a coarser sample of one line in 2^`shift` and drops the other lines.
    pub(crate) fn resample(&mut self, shift: u32) {
        if shift <= self.sample {
            return;
        }
        for at in 0..self.waiting {
            // SAFETY: a waiting row of this table.
            unsafe {
                let row = self.rows.add(at);
                if !is_sampled((*row).line, shift) {
                    (*row).site = 0;
                }
            }
        }
        let places: Vec<*mut Entry> = self.entries().collect();
        let mut kept = 0;
        for from in &places {
            // SAFETY: both are entries of this table; the copy goes to the same or an earlier place.
            unsafe {
                if is_sampled((**from).line, shift) {
                    let entry = **from;
                    places[kept].write(entry);
                    kept += 1;
                }
            }
        }
        run::current().remove_entries(self.sample, self.used as u64);
        run::current().add_entries(shift, kept as u64);
        self.used = kept;
        self.sample = shift;
        self.store_used();
        self.set_u32(head::SAMPLE, shift);
        self.cache.fill(std::ptr::null_mut());
        self.truncate();
        let (before, after) = (self.index.len(), (kept * 8).next_power_of_two().max(INDEX_SLOTS));
        let after = after.min(before);
        run::current().give((before - after) * SLOT_BYTES);
        self.rebuild_index(after);
        // Settles the rows last, because they may need the room that was freed.
        self.settle_rows();
    }

    /// Returns the chunks without entries.
    fn truncate(&mut self) {
        let mut end = 0;
        let mut left = self.used;
        let mut keep = 0;
        for (number, chunk) in self.chunks.iter().enumerate() {
            let skipped = if number == 0 { ENTRIES_AT } else { 0 };
            let here = left.min((chunk.bytes() - skipped) / ENTRY_BYTES);
            if number > 0 && left == 0 {
                break;
            }
            left -= here;
            keep += 1;
            end += chunk.bytes();
            // SAFETY: inside the chunk, or its end.
            unsafe {
                let first = chunk.start().add(skipped).cast::<Entry>();
                self.next = first.add(here);
                self.end = chunk.start().add(chunk.bytes()).cast();
            }
        }
        self.chunks.truncate(keep);
        // If the file cannot be cut, its rest is ignored: the head gives the number of entries.
        if end < self.file_bytes && keeper::cut(&self.name, end).is_ok() {
            run::current().give(self.file_bytes - end);
            self.file_bytes = end;
        }
    }

    /// Updates the head.
    pub(crate) fn settle(&self) {
        self.set_u64(head::ACCESSES, self.accesses);
    }

    /// Ends the table with its thread; the file remains, cut to its used length.
    pub(crate) fn end(mut self) -> Ended {
        self.settle_rows();
        run::current().give(self.index.len() * SLOT_BYTES + CACHE_SLOTS * SLOT_BYTES);
        let name = std::mem::take(&mut self.name);
        let mut ended = Ended { name, bytes: self.file_bytes, used: self.used, sample: self.sample };
        drop(self);
        ended.cut();
        ended
    }

    /// Removes the table and its file.
    pub(crate) fn discard(self) {
        run::current().remove_entries(self.sample, self.used as u64);
        run::current().give(self.index.len() * SLOT_BYTES + CACHE_SLOTS * SLOT_BYTES + self.file_bytes);
        keeper::remove(&self.name);
    }

    /// Forgets a table that a forked child inherited; it belongs to the parent (I4).
    pub(crate) fn forget(self) {
        drop(self);
    }
}

/// File of an ended thread.
#[derive(Debug)]
pub(crate) struct Ended {
    name: CString,
    bytes: usize,
    used: usize,
    sample: u32,
}

impl Ended {
    /// Cuts the file after the last entry and returns the room.
    fn cut(&mut self) {
        let end = (ENTRIES_AT + self.used * ENTRY_BYTES).next_multiple_of(PAGE);
        if end < self.bytes && keeper::cut(&self.name, end).is_ok() {
            run::current().give(self.bytes - end);
            self.bytes = end;
        }
    }

    /// Changes the file to a coarser sample of one line in 2^`shift`. A file that cannot be mapped stays
    /// unchanged; its head gives its sample.
    pub(crate) fn resample(&mut self, shift: u32) {
        if shift <= self.sample {
            return;
        }
        let Ok(chunk) = Chunk::map(&self.name, 0, self.bytes, false) else { return };
        let mut kept = 0;
        // SAFETY: the file has this length, with `used` entries after its rows. No other thread writes it,
        // because its thread has ended.
        unsafe {
            let first = chunk.start().add(ENTRIES_AT).cast::<Entry>();
            for at in 0..self.used {
                let entry = first.add(at).read();
                if is_sampled(entry.line, shift) {
                    first.add(kept).write(entry);
                    kept += 1;
                }
            }
            chunk.start().add(head::ENTRIES).cast::<u64>().write((ROWS + kept) as u64);
            chunk.start().add(head::SAMPLE).cast::<u32>().write(shift);
        }
        drop(chunk);
        run::current().remove_entries(self.sample, self.used as u64);
        run::current().add_entries(shift, kept as u64);
        (self.used, self.sample) = (kept, shift);
        self.cut();
    }
}

impl Entry {
    /// Entry with zero counts.
    fn of(line: u64, site: u64, epoch: u32) -> Entry {
        Entry {
            line,
            site,
            reads: 0,
            writes: 0,
            read_bytes: 0,
            written_bytes: 0,
            first: epoch,
            last: epoch,
            first_write: 0,
            last_write: 0,
        }
    }

    /// Adds a later row of the same line and instruction.
    fn add_all(&mut self, row: &Entry) {
        self.last = row.last;
        if row.writes > 0 {
            if self.writes == 0 {
                self.first_write = row.first_write;
            }
            self.last_write = row.last_write;
        }
        self.reads += row.reads;
        self.writes += row.writes;
        self.read_bytes |= row.read_bytes;
        self.written_bytes |= row.written_bytes;
    }

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
    use crate::format;

    fn access(line: u64, site: u64, store: bool) -> Access {
        Access { line, site, bytes: 0xff, store, epoch: 1 }
    }

    fn create(name: &str) -> (Table, std::path::PathBuf) {
        let path = keeper::folder_of_tests().join(name);
        let name = CString::new(name).expect("a name");
        (Table::create(name, 0).expect("a file"), path)
    }

    #[test]
    fn every_access_is_counted_once_through_growth() {
        let (mut table, path) = create("growth");
        for round in 0..3u64 {
            for line in 0..20_000u64 {
                table.count(access(line, 1 + line % 3, round == 0));
            }
        }
        table.settle_rows();
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
        assert_eq!(count, ROWS as u64 + 20_000);
        table.discard();
        assert!(!path.exists());
    }

    #[test]
    fn waiting_rows_are_in_the_file_and_count_once() {
        let (mut table, path) = create("waits");
        let in_file = |path: &std::path::Path| {
            let bytes = std::fs::read(path).expect("the file");
            let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
            (0..long(head::ENTRIES) as usize)
                .map(|entry| HEAD_BYTES + entry * ENTRY_BYTES)
                .filter(|at| long(at + format::entry::SITE) != 0)
                .map(|at| (long(at + format::entry::READS), long(at + format::entry::WRITES)))
                .fold((0, 0), |sum, entry| (sum.0 + entry.0, sum.1 + entry.1))
        };
        // More accesses than rows, so that some wait and some do not. Each line is accessed twice in
        // succession, and some again later.
        let (mut reads, mut writes) = (0, 0);
        for line in (0..300).chain(0..50) {
            for store in [false, true] {
                table.count(access(line, 9, store));
                (reads, writes) = (reads + u64::from(!store), writes + u64::from(store));
                assert_eq!(in_file(&path), (reads, writes), "at line {line}");
            }
        }
        assert!(table.waiting > 0 && table.used < 300);
        table.settle_rows();
        assert_eq!((in_file(&path), table.waiting, table.used), ((reads, writes), 0, 300));
        table.discard();
    }

    #[test]
    fn an_entry_takes_the_epochs_of_its_rows() {
        let (mut table, _) = create("epochs");
        let of = |epoch, store| Access { epoch, ..access(5, 9, store) };
        for counted in [of(3, false), of(4, true), of(6, true), of(7, false)] {
            table.count(counted);
        }
        table.settle_rows();
        // The entry is now in the cache.
        table.count(of(8, true));
        // SAFETY: the only entry of the table.
        let entry = unsafe { *table.entries().next().expect("one") };
        assert_eq!((entry.first, entry.last, entry.first_write, entry.last_write), (3, 8, 4, 8));
        assert_eq!((entry.reads, entry.writes), (2, 3));
        table.discard();
    }

    #[test]
    fn lines_of_any_stride_are_found() {
        for stride in [16, 1 << 10, 1 << 20] {
            let (mut table, _) = create("stride");
            for line in 0..5_000u64 {
                table.count(access(line * stride, 1, true));
            }
            table.settle_rows();
            assert_eq!(table.used, 5_000);
            table.discard();
        }
    }

    #[test]
    fn a_sample_keeps_whole_lines_and_all_their_counts() {
        let (mut table, _) = create("sample");
        for _ in 0..2 {
            for line in 0..50_000u64 {
                table.count(access(line, 7, true));
            }
            table.resample(3);
        }
        table.settle_rows();
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
    #[test]
    fn the_table_of_an_ended_thread_is_cut_and_can_be_sampled() {
        let (mut table, path) = create("ended");
        for line in 0..10_000u64 {
            table.count(access(line, 7, true));
        }
        let mut ended = table.end();
        let length = |path| std::fs::metadata(path).expect("the file").len() as usize;
        assert_eq!(length(&path), (ENTRIES_AT + 10_000 * ENTRY_BYTES).next_multiple_of(PAGE));
        ended.resample(4);
        assert!(ended.used < 1_000 && ended.used > 300, "{} of 10000 is about a sixteenth", ended.used);
        assert_eq!(length(&path), (ENTRIES_AT + ended.used * ENTRY_BYTES).next_multiple_of(PAGE));
        let bytes = std::fs::read(&path).expect("the file");
        for entry in bytes[ENTRIES_AT..].chunks_exact(ENTRY_BYTES).take(ended.used) {
            let line = u64::from_le_bytes(entry[..8].try_into().expect("eight"));
            assert!(is_sampled(line, 4));
        }
    }
}
