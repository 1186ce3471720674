//! A process's log: what is not counted but happened once, record by record.
//!
//! - I1. A record is written by one call, so that a process that is killed leaves whole records, the last perhaps excepted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::format::{HEAD_BYTES, MAGIC, file, head};

/// A payload under construction.
#[derive(Debug, Default)]
pub(crate) struct Payload(Vec<u8>);

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

/// The log of one process.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
}

impl Log {
    pub(crate) fn create(path: &Path, pid: u32) -> io::Result<Log> {
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        let mut bytes = [0; HEAD_BYTES];
        bytes[head::MAGIC..][..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[head::KIND..][..4].copy_from_slice(&file::LOG.to_le_bytes());
        bytes[head::PID..][..4].copy_from_slice(&pid.to_le_bytes());
        file.write_all(&bytes)?;
        Ok(Log { file })
    }

    /// Adds a record. A full disk loses it: the program that is looked at shall not suffer.
    pub(crate) fn write(&mut self, kind: u32, payload: Payload) {
        let payload = payload.0;
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let padded = payload.len().next_multiple_of(8);
        let mut record = Vec::with_capacity(8 + padded);
        record.extend_from_slice(&kind.to_le_bytes());
        record.extend_from_slice(&length.to_le_bytes());
        record.extend_from_slice(&payload);
        record.resize(8 + padded, 0);
        let _ = self.file.write_all(&record);
    }
}
