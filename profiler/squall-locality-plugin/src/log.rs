//! The log of a process: records of single events.
//!
//! - I1. The head gives the bytes of records and is updated only when a record is complete. A killed process
//!   therefore leaves whole records.

use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::{HEAD_BYTES, MAGIC, file, head};
use crate::run;
use crate::shared::{Chunk, GRAIN};

/// Bytes of the file's first part, and of its largest part. Each further part doubles the file up to that
/// size.
const HEAD_PART: usize = GRAIN;
const PART_MAX: usize = 4 << 20;

/// A payload under construction, behind the room for its record's header.
#[derive(Debug)]
pub(crate) struct Payload(Vec<u8>);

/// Bytes of a record before its payload.
const BEFORE: usize = 8;
/// Initial capacity; most records fit, so they allocate once.
const MOST: usize = 64;

impl Default for Payload {
    fn default() -> Payload {
        let mut record = Vec::with_capacity(MOST);
        record.resize(BEFORE, 0);
        Payload(record)
    }
}

impl Payload {
    pub(crate) fn u32(mut self, value: u32) -> Payload {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Payload {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Payload {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Log of one process.
#[derive(Debug)]
pub(crate) struct Log {
    name: CString,
    head: Chunk,
    /// Last part of the file; records continue across parts.
    part: Option<Chunk>,
    /// Used bytes of the last part.
    used: usize,
    file_bytes: usize,
    records_bytes: u64,
    stopped: bool,
}

impl Log {
    /// Creates a log in a new file.
    pub(crate) fn create(name: CString, pid: u32, process: u32) -> Result<Log, isize> {
        if !run::current().take_log(HEAD_PART) {
            return Err(crate::sys::EAGAIN);
        }
        // The first part holds the head and then records.
        let part = Chunk::map(&name, 0, HEAD_PART, true)?;
        let mut bytes = [0; HEAD_BYTES];
        bytes[head::MAGIC..][..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[head::KIND..][..4].copy_from_slice(&file::LOG.to_le_bytes());
        bytes[head::PID..][..4].copy_from_slice(&pid.to_le_bytes());
        bytes[head::PROCESS..][..4].copy_from_slice(&process.to_le_bytes());
        // SAFETY: the head lies in the chunk, which only this thread can access yet.
        unsafe { part.start().cast::<[u8; HEAD_BYTES]>().write(bytes) };
        Ok(Log {
            name,
            head: part,
            part: None,
            used: HEAD_BYTES,
            file_bytes: HEAD_PART,
            records_bytes: 0,
            stopped: false,
        })
    }

    /// Appends a record. A record without room is lost and counted, so that the profiled program is not
    /// disturbed.
    pub(crate) fn write(&mut self, kind: u32, payload: Payload) {
        if self.stopped {
            return;
        }
        let mut record = payload.0;
        let length = u32::try_from(record.len() - BEFORE).unwrap_or(u32::MAX);
        record[..4].copy_from_slice(&kind.to_le_bytes());
        record[4..BEFORE].copy_from_slice(&length.to_le_bytes());
        record.resize(record.len().next_multiple_of(8), 0);
        if self.append(&record).is_none() {
            run::current().miss_record();
        }
    }

    /// Bytes of records so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.records_bytes
    }

    /// Stops writing: a forked child that cannot create its own log must not write to the parent's.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    fn append(&mut self, record: &[u8]) -> Option<()> {
        let part = self.part.as_ref().unwrap_or(&self.head);
        let room = part.bytes() - self.used;
        let (now, later) = record.split_at(record.len().min(room));
        let next = if later.is_empty() { None } else { Some(self.next_part(later.len())?) };
        let copy = |from: &[u8], to: &Chunk, at: usize| {
            // SAFETY: the range from `at` lies in the chunk and holds no record yet.
            unsafe { to.start().add(at).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        };
        copy(now, self.part.as_ref().unwrap_or(&self.head), self.used);
        self.used += now.len();
        if let Some(next) = next {
            copy(later, &next, 0);
            self.used = later.len();
            self.part = Some(next);
        }
        self.records_bytes += record.len() as u64;
        // SAFETY: a field of the head, which is mapped and belongs to this process alone.
        let said = unsafe { &*self.head.start().add(head::ENTRIES).cast::<AtomicU64>() };
        // Release: for readers of the file while the process lives. The record is complete before the head
        // counts it.
        said.store(self.records_bytes, Ordering::Release);
        Some(())
    }

    fn next_part(&mut self, wanted: usize) -> Option<Chunk> {
        let bytes = self.file_bytes.min(PART_MAX).max(wanted.next_multiple_of(GRAIN));
        if !run::current().take_log(bytes) {
            return None;
        }
        let Ok(part) = Chunk::map(&self.name, self.file_bytes, bytes, false) else {
            run::current().give(bytes);
            return None;
        };
        self.file_bytes += bytes;
        Some(part)
    }
}
