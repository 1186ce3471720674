//! A peer: another node, with the connection that frames for it take, and the frames that wait.
//!
//! Problem: a sender must not wait for a slow or absent node, and no frame may arrive in pieces.
//! Idea: the sending thread writes to the socket if it takes bytes now. The rest waits in a bounded queue,
//! and the keeper writes it.
//!
//! - I1. Bytes are written under the lock of the peer, in the order of the queue. A frame that was begun is
//!   finished before the next one, or its connection carries no more bytes.
//! - I2. No call under the lock waits: writes have the flag `DONTWAIT`.
//! - I3. The frames of the queue have at most `queue_bytes`, plus one frame.
//! - I4. A peer that has frames, and no connection, is being dialled or is in the keeper's list.
//! - I5. Frames wait as they are, and are encrypted for the connection that takes them. The records of a
//!   frame are made once for a connection, and forgotten with it.
//!
//! Not promised: that a written frame arrives.
//! Cost: a send to a connected peer takes two uncontended locks and one system call, without a copy unless
//! the connection is encrypted.

use crate::cipher::LinkKeys;
use crate::frame::{LENGTH_BYTES, length};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use squall_sys::sync::{Mutex, MutexGuard, StdArc as Arc, lock};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The pause after the first failed dial, and after the end of a connection that had carried a frame.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// The longest pause between two dials.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// The largest buffer for records that is kept for the next frame, in bytes.
const RECORDS_KEPT: usize = 64 << 10;

/// A connection after its hello.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: u64,
    pub(crate) stream: TcpStream,
    /// The keys, if the connection is encrypted.
    pub(crate) keys: Option<LinkKeys>,
}

impl Link {
    /// Ends the connection. Its reader sees the end, and the keeper collects it.
    pub(crate) fn end(&self) {
        // Fails only if the connection has ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Another node.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The name under which this transport knows the node.
    pub(crate) name: Box<str>,
    /// The address to dial, if the node can be dialled.
    pub(crate) address: Option<SocketAddr>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The connection to write to.
    link: Option<Arc<Link>>,
    /// The connection before it, from which the node may still send.
    older: Option<Arc<Link>>,
    /// The frames that wait, each with its length in front.
    queue: VecDeque<Box<[u8]>>,
    queued_bytes: usize,
    /// The bytes of the first frame, or of its records, that `link` has taken.
    begun: usize,
    /// The records of the first frame for an encrypted `link`, once they are made (I5).
    records: Vec<u8>,
    /// Whether the keeper waits until `link` takes bytes.
    blocked: bool,
    /// Whether the keeper was asked to dial, and has not yet a connection or a failure.
    dialling: bool,
    /// The pause after the latest failure, and its end.
    backoff: Duration,
    retry_at: Option<Instant>,
    /// Whether the transport has forgotten this peer, so that frames need a new one.
    forgotten: bool,
}

/// The result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Sent {
    /// The kernel has the frame, or it is in the queue.
    Taken,
    /// The frame is in the queue, and the keeper must dial.
    Dial,
    /// The frame is in the queue, and the keeper must write when the socket takes bytes.
    Flush,
    /// The frame is lost: the queue is full, or the node cannot be dialled.
    Lost,
    /// The peer was forgotten: look it up again.
    Forgotten,
}

/// The result of writing the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Flushed {
    /// The queue is empty, or this connection is not the one to write to.
    Done,
    /// The socket takes no more bytes now.
    Blocked,
    /// The connection has ended, and the keeper must dial for the queue.
    Broken,
}

/// The consequences of the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Ended {
    /// Whether the keeper must dial for the queue.
    pub(crate) dial: bool,
    /// The number of frames that are lost.
    pub(crate) lost: usize,
}

/// The result of one write.
enum Wrote {
    All,
    Part(usize),
    Broken,
}

impl Peer {
    pub(crate) fn new(name: &str, address: Option<SocketAddr>) -> Peer {
        Peer { name: name.into(), address, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state, "a peer's connection")
    }

    /// Sends a frame, or puts it into the queue.
    pub(crate) fn send(&self, frame: &[u8], queue_bytes: usize) -> Sent {
        let state = &mut *self.state();
        if state.forgotten {
            return Sent::Forgotten;
        }
        let mut begun = 0;
        if let (Some(link), true) = (&state.link, state.queue.is_empty()) {
            match write_frame(link, &mut state.records, 0, &length(frame), frame) {
                Wrote::All => return Sent::Taken,
                Wrote::Part(count) => begun = count,
                Wrote::Broken => state.lose_link(),
            }
        } else if !state.queue.is_empty() && state.queued_bytes + frame.len() + LENGTH_BYTES > queue_bytes {
            return Sent::Lost;
        }
        if state.link.is_none() && self.address.is_none() {
            return Sent::Lost;
        }
        state.push([&length(frame)[..], frame].concat().into(), begun);
        if state.link.is_none() {
            return if std::mem::replace(&mut state.dialling, true) { Sent::Taken } else { Sent::Dial };
        }
        if std::mem::replace(&mut state.blocked, true) { Sent::Taken } else { Sent::Flush }
    }

    /// Makes `link` the connection to write to, and writes the queue.
    pub(crate) fn connect(&self, link: Arc<Link>) -> Flushed {
        let mut state = self.state();
        if state.forgotten {
            link.end();
            return Flushed::Done;
        }
        state.dialling = false;
        if let Some(previous) = state.link.replace(link) {
            // A frame that was begun cannot be finished there (I1).
            let keep = if state.begun == 0 { Some(previous) } else { previous.end_and_none() };
            if let Some(oldest) = std::mem::replace(&mut state.older, keep) {
                oldest.end();
            }
        }
        state.begin_again();
        state.blocked = false;
        state.flush()
    }

    /// Writes the queue to the connection `link`, if it is still the one to write to.
    pub(crate) fn flush(&self, link: &Link) -> Flushed {
        let mut state = self.state();
        match &state.link {
            Some(current) if current.id == link.id => state.flush(),
            _ => Flushed::Done,
        }
    }

    /// Forgets the connection `id`, which has ended. `proven` says whether it was of use: a frame came, or
    /// the connection stayed for a while. If not, the pause before the next dial grows, as after a failed
    /// one.
    pub(crate) fn disconnected(&self, id: u64, proven: bool, now: Instant) -> Ended {
        let mut state = self.state();
        if state.older.as_ref().is_some_and(|link| link.id == id) {
            state.older = None;
        }
        if state.link.as_ref().is_some_and(|link| link.id == id) {
            state.link = None;
        }
        if state.link.is_some() {
            return Ended { dial: false, lost: 0 };
        }
        state.blocked = false;
        // It cannot have arrived, so it is sent again from its first byte.
        state.begin_again();
        state.backoff = if proven { BACKOFF_MIN } else { state.backoff.longer() };
        state.retry_at = Some(now + state.backoff);
        if self.address.is_none() {
            return Ended { dial: false, lost: state.clear() };
        }
        let dial = !state.queue.is_empty() && !std::mem::replace(&mut state.dialling, true);
        Ended { dial, lost: 0 }
    }

    /// Notes a failed dial. Returns the number of frames that waited for it, which are lost.
    pub(crate) fn failed(&self, now: Instant) -> usize {
        let mut state = self.state();
        state.dialling = false;
        state.backoff = state.backoff.longer();
        state.retry_at = Some(now + state.backoff);
        if state.link.is_some() { 0 } else { state.clear() }
    }

    /// The time of the next dial. `None` if the peer has a connection already.
    pub(crate) fn dial_at(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state();
        if state.link.is_some() {
            state.dialling = false;
            return None;
        }
        Some(state.retry_at.unwrap_or(now))
    }

    /// The connection to write to.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.state().link.clone()
    }

    /// Marks the peer as forgotten if it has no connection and no frames. Returns whether it is.
    pub(crate) fn forget_if_idle(&self) -> bool {
        let mut state = self.state();
        if state.link.is_none() && state.older.is_none() && state.queue.is_empty() && !state.dialling {
            state.forgotten = true;
        }
        state.forgotten
    }

    /// Marks the peer as forgotten, and ends its connections. Returns the number of frames that are lost.
    pub(crate) fn forget(&self) -> usize {
        let mut state = self.state();
        state.forgotten = true;
        for link in [state.link.take(), state.older.take()].into_iter().flatten() {
            link.end();
        }
        state.clear()
    }
}

impl State {
    fn push(&mut self, frame: Box<[u8]>, begun: usize) {
        self.queued_bytes += frame.len();
        self.queue.push_back(frame);
        if begun > 0 {
            self.begun = begun;
        }
    }

    fn pop(&mut self) {
        if let Some(frame) = self.queue.pop_front() {
            self.queued_bytes -= frame.len();
        }
    }

    /// Forgets the part of the first frame that a connection took, which is no longer the one to write to.
    fn begin_again(&mut self) {
        self.begun = 0;
        self.records = Vec::new();
    }

    /// Ends the connection that a write found broken. The next dial comes after the present pause.
    fn lose_link(&mut self) {
        if let Some(link) = self.link.take() {
            link.end();
        }
        // A frame that was begun is sent again from its first byte.
        self.begin_again();
        self.blocked = false;
        self.backoff = self.backoff.max(BACKOFF_MIN);
        self.retry_at = Some(Instant::now() + self.backoff);
    }

    fn clear(&mut self) -> usize {
        self.queued_bytes = 0;
        self.begin_again();
        std::mem::take(&mut self.queue).len()
    }

    fn flush(&mut self) -> Flushed {
        let Some(link) = self.link.clone() else { return Flushed::Done };
        while let Some(frame) = self.queue.front() {
            match write_frame(&link, &mut self.records, self.begun, frame, &[]) {
                Wrote::All => {
                    self.pop();
                    self.begun = 0;
                }
                Wrote::Part(begun) => {
                    self.begun = begun;
                    self.blocked = true;
                    return Flushed::Blocked;
                }
                // The reader may be held up in the receiver, so the queue does not wait for its end.
                Wrote::Broken => {
                    self.lose_link();
                    return match std::mem::replace(&mut self.dialling, true) {
                        true => Flushed::Done,
                        false => Flushed::Broken,
                    };
                }
            }
        }
        self.blocked = false;
        Flushed::Done
    }
}

impl Link {
    fn end_and_none(&self) -> Option<Arc<Link>> {
        self.end();
        None
    }
}

/// The next pause after this one.
trait Longer {
    fn longer(self) -> Self;
}

impl Longer for Duration {
    fn longer(self) -> Duration {
        (2 * self).clamp(BACKOFF_MIN, BACKOFF_MAX)
    }
}

/// Writes as much of a frame as the connection takes now, from the byte `begun` of its bytes or records. The
/// frame is `first` and `second`. Returns the bytes that it has taken so far.
fn write_frame(link: &Link, records: &mut Vec<u8>, begun: usize, first: &[u8], second: &[u8]) -> Wrote {
    let wrote = match &link.keys {
        None => write(&link.stream, &first[begun..], second),
        Some(keys) => {
            if records.is_empty() && keys.seal(&[first, second].concat(), records).is_err() {
                return Wrote::Broken;
            }
            write(&link.stream, &records[begun..], &[])
        }
    };
    match wrote {
        Wrote::Part(count) => Wrote::Part(begun + count),
        Wrote::All | Wrote::Broken => {
            records.clear();
            records.shrink_to(RECORDS_KEPT);
            wrote
        }
    }
}

/// Writes as much as the socket takes now.
fn write(stream: &TcpStream, first: &[u8], second: &[u8]) -> Wrote {
    let whole = first.len() + second.len();
    let mut wrote = 0;
    while wrote < whole {
        let parts = if wrote < first.len() {
            [&first[wrote..], second]
        } else {
            [&second[wrote - first.len()..], &[]]
        };
        let slices = parts.map(IoSlice::new);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(stream, &slices, &mut SendAncillaryBuffer::default(), flags) {
            Ok(0) => return Wrote::Broken,
            Ok(count) => wrote += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Wrote::Part(wrote),
            Err(_) => return Wrote::Broken,
        }
    }
    Wrote::All
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener};

    /// Makes a connection, and its other end.
    fn link(id: u64) -> (Arc<Link>, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Arc::new(Link { id, stream, keys: None }), listener.accept().unwrap().0)
    }

    fn peer() -> Peer {
        Peer::new("tcp/127.0.0.1:1", Some((Ipv4Addr::LOCALHOST, 1).into()))
    }

    #[test]
    fn a_frame_that_was_begun_is_sent_again_whole() {
        const FRAME: usize = 1 << 20;
        for replaced in [false, true] {
            let peer = peer();
            let (first, mut at_first) = link(1);
            assert_eq!(peer.connect(Arc::clone(&first)), Flushed::Done);
            let mut taken = 0;
            while peer.send(&vec![taken; FRAME], usize::MAX) == Sent::Taken {
                taken += 1;
            }
            assert!(peer.state().begun > 0, "the socket took whole frames only");
            if !replaced {
                assert!(peer.disconnected(1, true, Instant::now()).dial);
                first.end();
            }
            let (second, mut at_second) = link(2);
            // The socket may take the whole frame.
            let _ = peer.connect(second);
            let mut frame = vec![0; LENGTH_BYTES + FRAME];
            at_second.read_exact(&mut frame[..LENGTH_BYTES + 8]).unwrap();
            assert_eq!(frame[..LENGTH_BYTES], (FRAME as u32).to_le_bytes());
            assert_eq!(frame[LENGTH_BYTES..][..8], [taken; 8]);
            // The first connection has whole frames, and a part that is never finished.
            let mut rest = Vec::new();
            at_first.read_to_end(&mut rest).unwrap();
            assert_eq!(rest.len() / frame.len(), usize::from(taken));
            assert_ne!(rest.len() % frame.len(), 0);
        }
    }

    #[test]
    fn a_failed_dial_loses_its_frames_and_doubles_the_pause() {
        let (peer, now) = (peer(), Instant::now());
        assert_eq!(peer.dial_at(now), Some(now));
        for pause in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            assert_eq!(peer.send(b"one", 100), Sent::Dial);
            assert_eq!(peer.send(b"two", 100), Sent::Taken);
            assert_eq!(peer.failed(now), 2);
            assert_eq!(peer.dial_at(now), Some(now + Duration::from_millis(pause)));
        }
        assert_eq!(peer.send(b"one", 100), Sent::Dial);
        assert_eq!(peer.connect(link(1).0), Flushed::Done);
        assert!(!peer.disconnected(1, true, now).dial);
        assert_eq!(peer.dial_at(now), Some(now + BACKOFF_MIN));
    }

    #[test]
    fn a_peer_that_ends_each_connection_at_once_is_dialled_after_longer_pauses() {
        let (peer, now) = (peer(), Instant::now());
        for (id, pause) in (1..).zip([10, 20, 40, 80, 160, 320, 640, 1000, 1000]) {
            let (link, _other) = link(id);
            assert_eq!(peer.connect(link), Flushed::Done);
            assert!(!peer.disconnected(id, false, now).dial);
            assert_eq!(peer.dial_at(now), Some(now + Duration::from_millis(pause)));
        }
        assert_eq!(peer.connect(link(100).0), Flushed::Done);
        assert!(!peer.disconnected(100, true, now).dial);
        assert_eq!(peer.dial_at(now), Some(now + BACKOFF_MIN));
    }

    /// The reader of the connection may be held up in the receiver, and sees its end later.
    #[test]
    fn a_queue_does_not_wait_for_the_reader_of_a_broken_connection() {
        let peer = peer();
        let (first, _other) = link(1);
        assert_eq!(peer.connect(Arc::clone(&first)), Flushed::Done);
        while peer.send(&[0; 1 << 20], usize::MAX) == Sent::Taken {}
        first.end();
        assert_eq!(peer.flush(&first), Flushed::Broken);
        assert!(peer.dial_at(Instant::now()).is_some());
        // Dialled once, and the late end of the connection makes no difference.
        assert_eq!(peer.send(b"two", usize::MAX), Sent::Taken);
        assert_eq!(peer.disconnected(1, true, Instant::now()), Ended { dial: false, lost: 0 });
        let (second, mut at_second) = link(2);
        let _ = peer.connect(second);
        let mut length = [0; LENGTH_BYTES];
        at_second.read_exact(&mut length).unwrap();
        assert_eq!(length, (1_u32 << 20).to_le_bytes());
    }

    #[test]
    fn a_queue_is_bounded_and_takes_one_frame_of_any_size() {
        let peer = peer();
        assert_eq!(peer.send(&[0; 1000], 100), Sent::Dial);
        assert_eq!(peer.send(b"", 100), Sent::Lost);
        assert_eq!(peer.failed(Instant::now()), 1);
        assert_eq!(peer.send(&[0; 46], 100), Sent::Dial);
        assert_eq!(peer.send(&[0; 46], 100), Sent::Taken);
        assert_eq!(peer.send(b"", 100), Sent::Lost);
    }

    #[test]
    fn a_peer_in_use_is_not_forgotten() {
        let peer = peer();
        assert_eq!(peer.send(b"one", 100), Sent::Dial);
        assert!(!peer.forget_if_idle());
        let (link, _other) = link(1);
        assert_eq!(peer.connect(link), Flushed::Done);
        assert!(!peer.forget_if_idle());
        assert_eq!(peer.disconnected(1, true, Instant::now()), Ended { dial: false, lost: 0 });
        assert!(peer.forget_if_idle());
        assert_eq!(peer.send(b"two", 100), Sent::Forgotten);
    }
}
