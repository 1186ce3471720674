//! Format of the plugin's files: one log per process, one table per thread, one page per run.
//!
//! Idea: all files are shared mappings that are changed in place. The counts of a killed program survive
//! without a flush or a callback.
//!
//! - I1. A file begins with a head of [`HEAD_BYTES`]; its first word is [`MAGIC`]. All numbers are
//!   little-endian.
//! - I2. A table's head is followed by entries of [`ENTRY_BYTES`]; an entry whose site is zero is empty. The
//!   head gives the number of leading entries that are rows. A row's counts belong to the entry with the same
//!   line and site, if there is one. Among the other entries, line and site are unique. Only the table's
//!   thread writes a table.
//! - I3. A log's head is followed by records: kind and payload length as `u32`, then the payload, padded to
//!   eight bytes. The head gives the bytes of all records; the file may be longer.
//! - I4. A process has a number that is unique in the run, because the kernel reuses pids.
//!
//! Not promised: that a file is complete. A reader must tolerate arbitrary bytes.

/// `SQLOCAL` and the version of the format.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SQLOCAL3");
/// Bytes of a file's head.
pub const HEAD_BYTES: usize = 128;
/// Bytes of a table's entry.
pub const ENTRY_BYTES: usize = 64;
/// Number of address bits below the line: a line has 64 bytes.
pub const LINE_BITS: u32 = 6;
/// Number of low bits of a site that hold the instruction's address. The kind of instruction is above them.
pub const SITE_BITS: u32 = 56;

/// Whether the line is in the sample of one line in 2^`shift`. Both halves of a line of 128 bytes are sampled
/// together.
#[must_use]
pub fn is_sampled(line: u64, shift: u32) -> bool {
    // The factor differs from that of the index, and the high bits are used, so that neighbours are chosen
    // independently.
    let drawn = (line >> 1).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
    drawn & ((1u64 << (shift & 63)) - 1) == 0
}

/// Kinds of files.
pub mod file {
    /// Log of a process.
    pub const LOG: u32 = 1;
    /// Table of a thread.
    pub const TABLE: u32 = 2;
    /// Page shared by all processes of the run.
    pub const RUN: u32 = 3;
}

/// Time during which the accesses of a table were made.
pub mod window {
    /// Since the thread's start; no window was open.
    pub const WHOLE: u32 = 0;
    /// Between the thread's own marks.
    pub const OWN: u32 = 1;
    /// While any thread was between its marks; this thread never marked.
    pub const OTHERS: u32 = 2;
}

/// Kinds of instructions.
pub mod insn {
    /// Any other instruction.
    pub const PLAIN: u8 = 0;
    /// Atomic read-modify-write that always succeeds: add, or, exchange-and-add.
    pub const ATOMIC: u8 = 1;
    /// Exchange or compare-and-exchange, which locks use to acquire.
    pub const EXCHANGE: u8 = 2;
    /// Flag: second halves of accesses that began in the previous line and were counted there as well.
    pub const CROSSES: u8 = 0x80;
}

/// Kinds of records in a log.
pub mod record {
    /// `guest_base u64, parent pid u32, 0 u32, name of the emulated architecture`.
    pub const INFO: u32 = 1;
    /// `epoch u32, 0 u32, text of /proc/self/maps`; the addresses are those of the emulator.
    pub const MAPS: u32 = 2;
    /// `epoch u32, protection u32, flags u32, thread u32, address u64, length u64, offset u64, path`.
    pub const MMAP: u32 = 3;
    /// `epoch u32, 0 u32, address u64, length u64`: the range is about to be unmapped.
    pub const MUNMAP: u32 = 4;
    /// `epoch u32, thread u32, site u32, 0 u32, address u64, size u64`.
    pub const ALLOC: u32 = 5;
    /// `epoch u32, thread u32, address u64`.
    pub const FREE: u32 = 6;
    /// `number u32, 0 u32, return addresses u64…`, innermost first.
    pub const SITE: u32 = 7;
    /// `address u64`: a thread waited on this futex word or woke its waiters.
    pub const FUTEX: u32 = 8;
    /// `epoch u32, thread u32, path`: the process is about to execute another program, which leaves the
    /// emulator.
    pub const EXEC: u32 = 9;
    /// `status u32, 0 u32`: the process is about to exit.
    pub const EXIT: u32 = 10;
    /// `kernel id of the thread u32, 0 u32, address u64`: the thread's initial stack pointer.
    pub const STACK: u32 = 11;
    /// `shift u32, 0 u32`: from here on one line in 2^`shift` is kept.
    pub const SAMPLE: u32 = 12;
    /// `0 u32, 0 u32`: the preloaded library is present.
    pub const PRELOADED: u32 = 13;
    /// `0 u32, 0 u32`: no more blocks are recorded, for want of room.
    pub const BLOCKS_CUT: u32 = 14;
    /// `epoch u32, thread u32`: the last `EXEC` of this thread failed.
    pub const EXEC_FAILED: u32 = 15;
    /// `epoch u32, 0 u32, old address u64, old length u64, address u64, length u64`: a mapping was moved or
    /// resized.
    pub const MREMAP: u32 = 16;
    /// `epoch u32, thread u32, address u64`: the last `FREE` of this block failed.
    pub const KEPT: u32 = 17;
    /// `process u32, 0 u32, bytes u64`: this process was forked from that process of the run, whose log had
    /// `bytes` bytes of records then. Numbers of allocation sites continue those of the parent.
    pub const FORKED: u32 = 18;
}

/// Offsets in the head of a file, in bytes.
pub mod head {
    /// `u64`: [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// `u32`: a constant of `file`.
    pub const KIND: usize = 8;
    /// `u32`: pid.
    pub const PID: usize = 12;
    /// `u32`: kernel id of the thread.
    pub const TID: usize = 16;
    /// `u32`: number of the thread in its process, from 0, never reused.
    pub const NUMBER: usize = 20;
    /// `u32`: a constant of `window`.
    pub const WINDOW: usize = 24;
    /// `u32`: the table holds one line in 2^this.
    pub const SAMPLE: usize = 28;
    /// `u64`: of a table, its entries including rows; of a log, bytes of records.
    pub const ENTRIES: usize = 32;
    /// `u64`: accesses that are not in the table, for want of room.
    pub const LOST: usize = 40;
    /// `u64`: accesses, including those to lines that are not sampled.
    pub const ACCESSES: usize = 48;
    /// `u32`: epoch of the first access.
    pub const STARTED: usize = 56;
    /// `u32`: epoch of the thread's end, or 0.
    pub const ENDED: usize = 60;
    /// 16 bytes: name, padded with zeros.
    pub const NAME: usize = 64;
    /// `u32`: number of the process in the run, never reused.
    pub const PROCESS: usize = 80;
    /// `u32`: of a table, how many of its entries are rows.
    pub const ROWS: usize = 84;
}

/// Offsets in the page of the run, in bytes. The page has a head with only magic and kind; each field is a
/// `u64`.
pub mod run {
    /// Bytes used by files and by the indexes of tables.
    pub const TAKEN: usize = 128;
    /// Upper limit for the bytes in [`TAKEN`].
    pub const BYTES_MAX: usize = 136;
    /// Number of entries above which lines are sampled.
    pub const ENTRIES_MAX: usize = 144;
    /// One line in 2^this is kept.
    pub const SAMPLE: usize = 152;
    /// Processes so far.
    pub const PROCESSES: usize = 160;
    /// Bytes of logs.
    pub const LOGS: usize = 168;
    /// Accesses of threads without a table.
    pub const ACCESSES_UNSEEN: usize = 176;
    /// Threads without a table.
    pub const THREADS_UNSEEN: usize = 184;
    /// Processes without a log.
    pub const PROCESSES_UNSEEN: usize = 192;
    /// Records for which there was no room.
    pub const RECORDS_LOST: usize = 200;
    /// Not zero while no access counts.
    pub const PAUSED: usize = 208;
    /// Entries in tables of each sample, from 0 to 31.
    pub const ENTRIES: usize = 256;
}

/// Offsets in an entry, in bytes.
pub mod entry {
    /// `u64`: line.
    pub const LINE: usize = 0;
    /// `u64`: site, the address and kind of the instruction.
    pub const SITE: usize = 8;
    /// `u64`: reads.
    pub const READS: usize = 16;
    /// `u64`: writes.
    pub const WRITES: usize = 24;
    /// `u64`: bit mask of bytes read.
    pub const READ_BYTES: usize = 32;
    /// `u64`: bit mask of bytes written.
    pub const WRITTEN_BYTES: usize = 40;
    /// `u32`: epoch of the first access.
    pub const FIRST: usize = 48;
    /// `u32`: epoch of the last access.
    pub const LAST: usize = 52;
    /// `u32`: epoch of the first write, or 0.
    pub const FIRST_WRITE: usize = 56;
    /// `u32`: epoch of the last write, or 0.
    pub const LAST_WRITE: usize = 60;
}

/// Messages of the preloaded library to the plugin: system call numbers that Linux does not have. The plugin
/// sees them, and the kernel rejects them.
pub mod call {
    /// First number: above all Linux system calls, and below the bit that marks calls of another ABI.
    pub const FIRST: i64 = 0x0053_5100;
    /// `(address)`: asks the plugin to store 1 at the address, so that the library knows that the plugin
    /// listens.
    pub const HELLO: i64 = FIRST;
    /// `()`: until the matching end, the thread works for the library and does not count. May nest.
    pub const BEGIN_UNCOUNTED: i64 = FIRST + 1;
    /// `(block, size, site)`: a block was allocated at this allocation site. Also ends the last
    /// `BEGIN_UNCOUNTED`.
    pub const ALLOC: i64 = FIRST + 2;
    /// `(block)`: a block is about to be freed.
    pub const FREE: i64 = FIRST + 3;
    /// `()`: ends the last `BEGIN_UNCOUNTED`.
    pub const END_UNCOUNTED: i64 = FIRST + 4;
    /// `(block)`: the last `FREE` of this block failed.
    pub const FREE_FAILED: i64 = FIRST + 5;
    /// `(return addresses, count, address)`: asks the plugin to store the number (`u32`) of the allocation
    /// site with these return addresses.
    pub const SITE: i64 = FIRST + 6;
    /// Number of an unknown allocation site.
    pub const NO_SITE: u32 = u32::MAX;
    /// Maximum number of return addresses.
    pub const FRAMES_MAX: usize = 24;
}
