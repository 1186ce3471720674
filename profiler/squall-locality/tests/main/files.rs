//! Builds plugin files with arbitrary numbers.

use squall_locality::lines::Rules;
use squall_locality::model::Model;
use squall_locality::read::Source;
use squall_locality::report::{Report, Request, report};
use squall_locality_plugin::format::{ENTRY_BYTES, HEAD_BYTES, MAGIC, SITE_BITS, entry, file, head, record};

/// Default request of a report.
pub(crate) fn request(line_bytes: u32, ops: Option<u64>) -> Request {
    let mut rules = Rules::new(ops, line_bytes);
    rules.with_main = true;
    let mut request = Request::new(rules, Model::preset("server").expect("a known preset"));
    request.command = vec!["program".into(), "<argument>".into()];
    request.pid = 1;
    request.processors = vec![1, 2, 256];
    request.lines_max = 20;
    request
}

/// Accesses of one instruction to one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) line: u64,
    pub(crate) pc: u64,
    pub(crate) kind: u8,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// Touched bytes; they are written if `writes` is not zero.
    pub(crate) bytes: u64,
    pub(crate) epochs: (u32, u32),
}

/// A hundred writes to the first eight bytes of line 1.
pub(crate) const WRITES: Access =
    Access { line: 1, pc: 0x1000, kind: 0, reads: 0, writes: 100, bytes: 0xff, epochs: (1, 9) };

impl Access {
    fn bytes(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let mut long = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        long(entry::LINE, self.line);
        long(entry::SITE, self.pc | u64::from(self.kind) << SITE_BITS);
        long(entry::READS, self.reads);
        long(entry::WRITES, self.writes);
        long(entry::READ_BYTES, if self.reads > 0 { self.bytes } else { 0 });
        long(entry::WRITTEN_BYTES, if self.writes > 0 { self.bytes } else { 0 });
        let mut word = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let (first, last) = self.epochs;
        word(entry::FIRST, first);
        word(entry::LAST, last);
        if self.writes > 0 {
            word(entry::FIRST_WRITE, first);
            word(entry::LAST_WRITE, last);
        }
        bytes
    }
}

/// Head of a file.
pub(crate) fn head_of(kind: u32, pid: u32, number: u32) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    bytes[head::MAGIC..][..8].copy_from_slice(&MAGIC.to_le_bytes());
    set(&mut bytes, head::KIND, kind);
    set(&mut bytes, head::PID, pid);
    set(&mut bytes, head::TID, pid + number);
    set(&mut bytes, head::NUMBER, number);
    bytes[head::ENTRIES..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
    bytes
}

/// Sets a `u32` in a head.
pub(crate) fn set(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..][..4].copy_from_slice(&value.to_le_bytes());
}

/// Table of a thread.
pub(crate) fn table(pid: u32, number: u32, accesses: &[Access]) -> Vec<u8> {
    let mut bytes = head_of(file::TABLE, pid, number);
    bytes.extend(accesses.iter().flat_map(Access::bytes));
    bytes
}

/// Log with these records.
pub(crate) fn log(pid: u32, records: &[(u32, &[u8])]) -> Vec<u8> {
    let mut bytes = head_of(file::LOG, pid, 0);
    for (kind, payload) in records {
        bytes.extend(kind.to_le_bytes());
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(*payload);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    bytes
}

/// Log of a process that exited.
pub(crate) fn whole_log(pid: u32) -> Vec<u8> {
    log(pid, &[(record::EXIT, &[0; 8])])
}

/// Converts files to sources.
pub(crate) fn sources(files: Vec<Vec<u8>>) -> Vec<Source> {
    files.into_iter().map(Source::Bytes).collect()
}

/// Report on a process with one table per list of accesses.
pub(crate) fn look(threads: &[&[Access]], line_bytes: u32, ops: Option<u64>) -> Report {
    let mut files = vec![whole_log(1)];
    files.extend(threads.iter().zip(0..).map(|(accesses, number)| table(1, number, accesses)));
    report(&sources(files), &request(line_bytes, ops))
}
