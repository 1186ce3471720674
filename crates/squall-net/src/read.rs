//! The thread that reads a connection, and hands its frames to the receiver.

use crate::cipher::{LinkKeys, Opener, RECORD_BYTES_MAX};
use crate::fault::FaultReason;
use crate::frame::{Broken, Frames, HELLO_BYTES_MAX, Hello, MAGIC, is_other_kind};
use crate::keeper::{Shared, add};
use crate::peer::{BACKOFF_MAX, Link, Peer};
use squall_fleet::Receiver;
use squall_sys::sync::StdArc as Arc;
use std::io::{self, ErrorKind, Read};
use std::time::Instant;

/// The work of a thread that reads a connection.
pub(crate) struct Reading {
    pub(crate) shared: Arc<Shared>,
    pub(crate) link: Arc<Link>,
    pub(crate) peer: Arc<Peer>,
    pub(crate) receiver: Receiver,
    /// The records that came so far, if the connection is encrypted.
    pub(crate) opener: Opener,
}

impl Reading {
    /// Hands frames to the receiver until the connection ends. Returns whether the connection was of use: a
    /// frame came, or the connection stayed longer than the longest pause.
    pub(crate) fn run(mut self, dialled: bool) -> bool {
        self.shared.enter();
        // The keeper has read the hello of a dialling side, and all greetings of an encrypted connection.
        if dialled && self.link.keys.is_none() && self.read_greeting().is_err() {
            return false;
        }
        let began = Instant::now();
        let mut frames = Frames::new(self.shared.settings.frame_bytes);
        let mut received = 0;
        let link = Arc::clone(&self.link);
        match &link.keys {
            // A broken connection ends, as one that the other side has ended.
            None => drop(self.read_frames(&mut frames, &mut received)),
            Some(keys) => drop(self.read_records(keys, &mut frames, &mut received)),
        }
        received > 0 || began.elapsed() > BACKOFF_MAX
    }

    /// Reads the hello of the other side, which has `dead_after` for it (keeper/I3).
    fn read_greeting(&self) -> io::Result<()> {
        let mut stream = &self.link.stream;
        let until = Instant::now() + self.shared.settings.dead_after;
        let mut known = Vec::with_capacity(HELLO_BYTES_MAX);
        // Never more than the hello: frames are read after it.
        loop {
            let missing = match Hello::read(&known) {
                Ok(Hello::Lacks(missing)) => missing,
                Ok(Hello::Whole(_)) => return stream.set_read_timeout(None),
                Err(_) => {
                    if is_other_kind(MAGIC, &known) {
                        self.shared.note_fault(&self.peer.name, FaultReason::Encrypted);
                    }
                    return Err(ErrorKind::InvalidData.into());
                }
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            let mut bytes = [0; HELLO_BYTES_MAX];
            match stream.read(&mut bytes[..missing]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => known.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads until the connection ends.
    fn read_frames(&self, frames: &mut Frames, received: &mut u64) -> Result<(), Broken> {
        while self.read_into(frames) {
            self.deliver(frames, received)?;
        }
        Ok(())
    }

    /// Reads and opens records until the connection ends.
    fn read_records(
        &mut self,
        keys: &LinkKeys,
        frames: &mut Frames,
        received: &mut u64,
    ) -> Result<(), Broken> {
        let mut opener = std::mem::take(&mut self.opener);
        let mut records = Frames::new(RECORD_BYTES_MAX);
        while self.read_into(&mut records) {
            loop {
                let opened = match records.next() {
                    Ok(Some(record)) => opener.open(keys, record),
                    Ok(None) => break,
                    Err(broken) => Err(broken),
                };
                let mut content = opened.inspect_err(|_| {
                    self.shared.note_fault(&self.peer.name, FaultReason::Changed);
                })?;
                while !content.is_empty() {
                    let room = frames.room();
                    let count = room.len().min(content.len());
                    room[..count].copy_from_slice(&content[..count]);
                    frames.filled(count);
                    content = &content[count..];
                    self.deliver(frames, received)?;
                }
            }
        }
        Ok(())
    }

    /// Reads some bytes. Returns false at the end of the connection.
    fn read_into(&self, frames: &mut Frames) -> bool {
        loop {
            match (&self.link.stream).read(frames.room()) {
                Ok(0) => return false,
                Ok(count) => {
                    frames.filled(count);
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// Hands the whole frames to the receiver, and counts them.
    fn deliver(&self, frames: &mut Frames, received: &mut u64) -> Result<(), Broken> {
        while let Some(frame) = frames.next()? {
            *received += 1;
            add(&self.shared.counts.received, 1);
            self.receiver.receive(&self.peer.name, frame);
        }
        Ok(())
    }
}

impl Drop for Reading {
    /// Tells the keeper to join this thread, after a panic of the receiver too.
    fn drop(&mut self) {
        self.link.end();
        self.shared.order_join(self.link.id);
    }
}
