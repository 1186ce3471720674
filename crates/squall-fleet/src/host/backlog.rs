//! The frames that wait for room in a link.
//!
//! Problem: a send must not wait for the peer. Frames of many threads must not mix, since a large frame goes
//! in pieces.
//! Idea: a send writes to the link itself, if no frame waits. The rest goes to a queue. A task of the
//! transport's thread, the pump, sends from it whenever the lane has room.
//!
//! - I1. A thread writes to the link under the lock, and only while no frame waits and the pump is idle.
//!   So the pieces of a frame follow each other.
//! - I2. The pump leaves its waker under the lock under which it found no frame. A thread that adds a frame
//!   takes the waker under that lock. So no frame is left behind.
//! - I3. The queue takes [`FRAMES_MAX`] frames and [`BYTES_MAX`] bytes. Later frames are dropped. A frame
//!   that was begun is added in any case: it is the only one then.
//!
//! Cost: a lock for a send.

use crate::sites;
use crate::waiters::wake;
use squall_sys::sync::{Mutex, MutexGuard, lock};
use std::collections::VecDeque;
use std::task::{Poll, Waker};

/// Largest number of bytes that wait.
pub(crate) const BYTES_MAX: usize = 2 << 20;
/// Largest number of frames that wait.
pub(crate) const FRAMES_MAX: usize = 256;

/// A frame of which some bytes were sent.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) frame: Vec<u8>,
    pub(crate) sent: usize,
}

/// The result of a direct write to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    All,
    /// The lane is full after so many bytes of the frame.
    Part(usize),
    /// The link has ended.
    Ended,
}

/// The frames of one link that wait.
pub(crate) struct Backlog(Mutex<State>);

struct State {
    frames: Frames,
    /// The pump sends a frame.
    is_pumping: bool,
    has_ended: bool,
    pump: Option<Waker>,
    /// A buffer for pieces.
    piece: Vec<u8>,
}

/// Frames in order, with a bound.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    frames: VecDeque<Rest>,
    bytes: usize,
}

impl Frames {
    /// Adds a frame, or drops it if there are too many.
    pub(crate) fn add(&mut self, frame: &[u8]) {
        if self.frames.len() < FRAMES_MAX && self.bytes + frame.len() <= BYTES_MAX {
            self.begun(frame, 0);
        }
    }

    fn begun(&mut self, frame: &[u8], sent: usize) {
        self.bytes += frame.len();
        self.frames.push_back(Rest { frame: frame.to_vec(), sent });
    }

    fn pop(&mut self) -> Option<Rest> {
        let rest = self.frames.pop_front()?;
        self.bytes -= rest.frame.len();
        Some(rest)
    }
}

impl Backlog {
    /// Makes a backlog with frames that came before the link.
    pub(crate) fn new(frames: Frames) -> Backlog {
        let (is_pumping, has_ended, pump, piece) = (false, false, None, Vec::new());
        Backlog(Mutex::new(State { frames, is_pumping, has_ended, pump, piece }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0, "the frames that wait for a link")
    }

    /// Writes a frame to the link with `write`, or queues it. Returns false if the link has ended.
    pub(crate) fn send(&self, frame: &[u8], write: impl FnOnce(&mut Vec<u8>) -> Written) -> bool {
        let mut state = self.lock();
        if state.has_ended {
            return false;
        }
        let waits = !state.frames.frames.is_empty() || state.is_pumping && !sites::BACKLOG_PUMPS.is_weak();
        if waits {
            // The pump takes it after the others.
            state.frames.add(frame);
        } else {
            match write(&mut state.piece) {
                Written::All => return true,
                Written::Part(sent) => state.frames.begun(frame, sent),
                Written::Ended => state.has_ended = true,
            }
        }
        let has_ended = state.has_ended;
        let pump = state.pump.take();
        drop(state);
        pump.into_iter().for_each(wake);
        !has_ended
    }

    /// Returns the next frame for the pump, which has sent the one before. `None` means that the link has
    /// ended.
    pub(crate) fn poll_next(&self, waker: &Waker) -> Poll<Option<Rest>> {
        let mut new = Some(waker.clone());
        let mut state = self.lock();
        state.is_pumping = false;
        if state.has_ended {
            return Poll::Ready(None);
        }
        if let Some(rest) = state.frames.pop() {
            state.is_pumping = true;
            return Poll::Ready(Some(rest));
        }
        if sites::BACKLOG_LEFT.is_weak() {
            drop(state);
            state = self.lock();
        }
        std::mem::swap(&mut state.pump, &mut new);
        drop(state);
        // Wakers are dropped without the lock.
        drop(new);
        Poll::Pending
    }

    /// Notes that the link has ended, and drops the frames.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        let frames = std::mem::take(&mut state.frames);
        let pump = state.pump.take();
        drop(state);
        drop(frames);
        pump.into_iter().for_each(wake);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn full(_: &mut Vec<u8>) -> Written {
        Written::Part(0)
    }

    #[test]
    fn frames_wait_in_order_and_have_a_bound() {
        let backlog = Backlog::new(Frames::default());
        assert!(backlog.send(&[0], |_| Written::All));
        assert!(backlog.poll_next(Waker::noop()).is_pending());
        for number in 0..=u8::MAX {
            assert!(backlog.send(&[number], full));
        }
        // One too many is dropped.
        assert!(backlog.send(&[7], full));
        for number in 0..=u8::MAX {
            let Poll::Ready(Some(rest)) = backlog.poll_next(Waker::noop()) else { panic!("it waits") };
            assert_eq!((rest.frame, rest.sent), (vec![number], 0));
        }
        assert!(backlog.poll_next(Waker::noop()).is_pending());
        for _ in 0..3 {
            assert!(backlog.send(&[1; 1 << 20], full));
        }
        assert_eq!(backlog.lock().frames.bytes, BYTES_MAX);
        backlog.end();
        assert!(!backlog.send(&[0], |_| panic!("the link has ended")));
        assert!(matches!(backlog.poll_next(Waker::noop()), Poll::Ready(None)));
        assert_eq!(backlog.lock().frames.bytes, 0);
    }

    #[test]
    fn a_begun_frame_waits_with_its_place_and_an_end_is_told() {
        let backlog = Backlog::new(Frames::default());
        assert!(backlog.send(&[0; 100], |_| Written::Part(60)));
        let Poll::Ready(Some(rest)) = backlog.poll_next(Waker::noop()) else { panic!("it waits") };
        assert_eq!((rest.frame.len(), rest.sent), (100, 60));
        // The pump has not sent the rest yet.
        assert!(backlog.send(&[1], |_| panic!("the pump sends")));
        assert!(matches!(backlog.poll_next(Waker::noop()), Poll::Ready(Some(_))));
        assert!(backlog.poll_next(Waker::noop()).is_pending());
        assert!(!backlog.send(&[1], |_| Written::Ended));
        assert!(matches!(backlog.poll_next(Waker::noop()), Poll::Ready(None)));
    }
}
