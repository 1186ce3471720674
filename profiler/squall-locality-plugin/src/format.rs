//! The files that the plugin leaves: one log for each process, one table for each thread, and one page for the run.
//!
//! Idea: a program that is killed leaves everything that was counted, because all are shared mappings of files that
//! are changed in place. Nothing has to be flushed, and no callback has to run.
//!
//! - I1. A file begins with a head of [`HEAD_BYTES`]; its first word is [`MAGIC`]. All numbers are little-endian.
//! - I2. A table's head is followed by entries of [`ENTRY_BYTES`]; an entry whose site is zero is empty. The first of them, as many as the
//!   head says, are rows, whose counts belong to the entry of the same line and site, if there is one; of all others no two have both the
//!   same. Each thread writes its own table alone.
//! - I3. A log's head is followed by records: kind and length of the payload, a `u32` each, then the payload, padded to
//!   eight bytes. The head says how many bytes of them there are; the file may be longer.
//! - I4. A process has a number of its own in the run: the kernel's may be used again.
//!
//! Not promised: that a file is whole. A reader takes what it understands, and must bear any bytes.

/// `SQLOCAL` and the version of the format.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SQLOCAL3");
/// Bytes of a file's head.
pub const HEAD_BYTES: usize = 128;
/// Bytes of a table's entry.
pub const ENTRY_BYTES: usize = 64;
/// A line is the address without these bits: 64 bytes.
pub const LINE_BITS: u32 = 6;
/// A site is an instruction's address in these bits, and what kind of instruction it is above them.
pub const SITE_BITS: u32 = 56;

/// Whether this line is in the sample of one in 2^shift. The two that are one line of 128 bytes are in it together.
#[must_use]
pub fn is_sampled(line: u64, shift: u32) -> bool {
    // Another product than the index's, and its high bits, so that neighbours are chosen independently.
    let drawn = (line >> 1).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
    drawn & ((1u64 << (shift & 63)) - 1) == 0
}

/// What a file is.
pub mod file {
    /// A process's log.
    pub const LOG: u32 = 1;
    /// A thread's table.
    pub const TABLE: u32 = 2;
    /// What all processes of the run have in common.
    pub const RUN: u32 = 3;
}

/// When the accesses in a table were made.
pub mod window {
    /// From the thread's start on; no window was open by then.
    pub const WHOLE: u32 = 0;
    /// Between the thread's own marks.
    pub const OWN: u32 = 1;
    /// While any thread was between its marks; this thread never was.
    pub const OTHERS: u32 = 2;
}

/// Kinds of instructions, as far as they matter.
pub mod insn {
    /// Any other.
    pub const PLAIN: u8 = 0;
    /// Reads, changes and writes as one step, whatever was there: add, or, exchange-and-add.
    pub const ATOMIC: u8 = 1;
    /// Exchanges, or compares and exchanges: what locks are taken by.
    pub const EXCHANGE: u8 = 2;
    /// Set besides: the rest of accesses that began in the line before, where they were counted, too.
    pub const CROSSES: u8 = 0x80;
}

/// Kinds of records in a log.
pub mod record {
    /// `guest_base u64, parent pid u32, 0 u32, name of the emulated architecture`.
    pub const INFO: u32 = 1;
    /// `epoch u32, 0 u32, text as of /proc/self/maps`; its addresses are the emulator's.
    pub const MAPS: u32 = 2;
    /// `epoch u32, protection u32, flags u32, thread u32, address u64, length u64, offset u64, path`.
    pub const MMAP: u32 = 3;
    /// `epoch u32, 0 u32, address u64, length u64`: these mappings are about to go.
    pub const MUNMAP: u32 = 4;
    /// `epoch u32, thread u32, site u32, 0 u32, address u64, size u64`.
    pub const ALLOC: u32 = 5;
    /// `epoch u32, thread u32, address u64`.
    pub const FREE: u32 = 6;
    /// `number u32, 0 u32, return addresses u64…`, innermost first.
    pub const SITE: u32 = 7;
    /// `address u64`: threads slept, or woke sleepers, on this word.
    pub const FUTEX: u32 = 8;
    /// `epoch u32, thread u32, path`: the process is about to become another program, which is not seen.
    pub const EXEC: u32 = 9;
    /// `status u32, 0 u32`: the process is about to end by itself.
    pub const EXIT: u32 = 10;
    /// `the thread's number in the kernel u32, 0 u32, address u64`: its stack pointer at its start.
    pub const STACK: u32 = 11;
    /// `shift u32, 0 u32`: from here on one line in 2^shift is kept.
    pub const SAMPLE: u32 = 12;
    /// `0 u32, 0 u32`: the program has the preloaded library.
    pub const PRELOADED: u32 = 13;
    /// `0 u32, 0 u32`: so many blocks came and went that no more of them is written down.
    pub const BLOCKS_CUT: u32 = 14;
    /// `epoch u32, thread u32`: what this thread said last of becoming another program did not come to pass.
    pub const EXEC_FAILED: u32 = 15;
    /// `epoch u32, 0 u32, old address u64, old length u64, address u64, length u64`: a mapping moved, or has another length.
    pub const MREMAP: u32 = 16;
    /// `epoch u32, thread u32, address u64`: what was said last of giving this block back did not come to pass.
    pub const KEPT: u32 = 17;
    /// `process u32, 0 u32, bytes u64`: this process is a copy of that one of the run, from when so many bytes of records were in its
    /// log. Numbers of places that allocate go on from its.
    pub const FORKED: u32 = 18;
}

/// Places in the head of a file, in bytes.
pub mod head {
    /// `u64`: [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// `u32`: what the file is.
    pub const KIND: usize = 8;
    /// `u32`: the process.
    pub const PID: usize = 12;
    /// `u32`: the thread's number in the kernel.
    pub const TID: usize = 16;
    /// `u32`: the thread's number here, from 0, never used again.
    pub const NUMBER: usize = 20;
    /// `u32`: a constant of `window`.
    pub const WINDOW: usize = 24;
    /// `u32`: one line in 2^shift is in the table.
    pub const SAMPLE: usize = 28;
    /// `u64`: entries of a table; of a log, bytes of records.
    pub const ENTRIES: usize = 32;
    /// `u64`: accesses that are not in the table, for want of room.
    pub const LOST: usize = 40;
    /// `u64`: accesses, those of lines that are not kept included.
    pub const ACCESSES: usize = 48;
    /// `u32`: the epoch of the first access.
    pub const STARTED: usize = 56;
    /// `u32`: the epoch of the thread's end, or 0.
    pub const ENDED: usize = 60;
    /// 16 bytes: the name, padded with zeros.
    pub const NAME: usize = 64;
    /// `u32`: the process's number in the run, never used again.
    pub const PROCESS: usize = 80;
    /// `u32`: of a table, how many of its entries are rows.
    pub const ROWS: usize = 84;
}

/// Places in the page of the run, in bytes: after a head of which only the kind counts, a `u64` each.
pub mod run {
    /// Bytes that are taken by files, and by the indices of tables.
    pub const TAKEN: usize = 128;
    /// As many at most.
    pub const BYTES_MAX: usize = 136;
    /// Entries at most, above which lines are sampled.
    pub const ENTRIES_MAX: usize = 144;
    /// One line in 2^this is kept.
    pub const SAMPLE: usize = 152;
    /// Processes so far.
    pub const PROCESSES: usize = 160;
    /// Bytes of logs.
    pub const LOGS: usize = 168;
    /// Accesses of threads that have no table.
    pub const ACCESSES_UNSEEN: usize = 176;
    /// Threads that have none.
    pub const THREADS_UNSEEN: usize = 184;
    /// Processes that have no log.
    pub const PROCESSES_UNSEEN: usize = 192;
    /// Records for which there was no room.
    pub const RECORDS_LOST: usize = 200;
    /// Entries in the tables of each sample, from 0 to 31.
    pub const ENTRIES: usize = 256;
}

/// Places in an entry, in bytes.
pub mod entry {
    /// `u64`: the line.
    pub const LINE: usize = 0;
    /// `u64`: the instruction, and its kind.
    pub const SITE: usize = 8;
    /// `u64`: reads.
    pub const READS: usize = 16;
    /// `u64`: writes.
    pub const WRITES: usize = 24;
    /// `u64`: a bit for each byte that was read.
    pub const READ_BYTES: usize = 32;
    /// `u64`: a bit for each byte that was written.
    pub const WRITTEN_BYTES: usize = 40;
    /// `u32`: the epoch of the first access.
    pub const FIRST: usize = 48;
    /// `u32`: the epoch of the last.
    pub const LAST: usize = 52;
    /// `u32`: the epoch of the first write, or 0.
    pub const FIRST_WRITE: usize = 56;
    /// `u32`: the epoch of the last, or 0.
    pub const LAST_WRITE: usize = 60;
}

/// What the preloaded library tells the plugin: system calls that do not exist, which the plugin sees and the emulator
/// refuses.
pub mod call {
    /// The first of them. Above all that Linux has, below the bit that marks the calls of another ABI.
    pub const FIRST: i64 = 0x0053_5100;
    /// `(address)`: the plugin stores 1 there, so that the library knows that it is heard.
    pub const HELLO: i64 = FIRST;
    /// `()`: what the thread does from here is for the library, and does not count. It may be said again before it is over.
    pub const QUIET: i64 = FIRST + 1;
    /// `(block, size, place)`: a block is given out, by the place of this number; and the last `QUIET` is over.
    pub const ALLOC: i64 = FIRST + 2;
    /// `(block)`: a block is about to be given back.
    pub const FREE: i64 = FIRST + 3;
    /// `()`: the last `QUIET` is over.
    pub const LOUD: i64 = FIRST + 4;
    /// `(block)`: it was not given back after all.
    pub const KEPT: i64 = FIRST + 5;
    /// `(return addresses, how many, address)`: the plugin stores the number, a `u32`, of the place that allocates and has these.
    pub const PLACE: i64 = FIRST + 6;
    /// The number of a place that is not known.
    pub const NO_PLACE: u32 = u32::MAX;
    /// Return addresses at most.
    pub const FRAMES_MAX: usize = 24;
}
