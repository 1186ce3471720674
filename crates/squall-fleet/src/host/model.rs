//! Models of the frames that wait for a link, and their twins with one weakened site.

use super::backlog::{Backlog, Frames, Rest, Written};
#[cfg(loom)]
use crate::sites;
use squall_machine::unpark::Unpark;
use squall_sys::sync::{Arc, Mutex, lock, thread};
use std::task::Poll;

/// A backlog, and the pieces that were written to its link: the frame and the number of the piece.
struct Link {
    backlog: Backlog,
    pieces: Mutex<Vec<(u8, usize)>>,
}

impl Link {
    fn new() -> Arc<Link> {
        let (backlog, pieces) = (Backlog::new(Frames::default()), Mutex::new(Vec::new()));
        Arc::new(Link { backlog, pieces })
    }

    fn write(&self, frame: u8, piece: usize) {
        lock(&self.pieces, "the pieces of a model").push((frame, piece));
    }

    /// Sends a frame of so many pieces. The lane has room for one.
    fn send(&self, frame: u8, pieces: usize) -> bool {
        self.backlog.send(&vec![frame; pieces], |_| {
            self.write(frame, 0);
            if pieces == 1 { Written::All } else { Written::Part(1) }
        })
    }

    /// Waits for the next frame as the pump does.
    fn next(&self) -> Option<Rest> {
        let waker = Unpark::waker();
        loop {
            match self.backlog.poll_next(&waker) {
                Poll::Ready(rest) => return rest,
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Sends the rest of a frame as the pump does.
    fn pump(&self, rest: &Rest) {
        (rest.sent..rest.frame.len()).for_each(|piece| self.write(rest.frame[0], piece));
    }
}

/// A frame comes while the pump is about to sleep.
fn wakes_the_pump() {
    let link = Link::new();
    let sender = thread::spawn({
        let link = link.clone();
        move || assert!(link.send(1, 2))
    });
    let rest = link.next().unwrap();
    assert_eq!((rest.frame.len(), rest.sent), (2, 1));
    sender.join().unwrap();
}

/// Two threads send, one of them in pieces, and the pump sends the rest.
fn pieces_follow_each_other() {
    let link = Link::new();
    let senders = [(1, 3), (2, 1)].map(|(frame, pieces)| {
        let link = link.clone();
        thread::spawn(move || assert!(link.send(frame, pieces)))
    });
    // One frame waits at least. The other one went before it, waits behind it, or comes later.
    while lock(&link.pieces, "the pieces of a model").len() < 4 {
        match link.backlog.poll_next(&Unpark::waker()) {
            Poll::Ready(rest) => link.pump(&rest.unwrap()),
            Poll::Pending => thread::yield_now(),
        }
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    let pieces = lock(&link.pieces, "the pieces of a model");
    let begin = pieces.iter().position(|piece| *piece == (1, 0)).unwrap();
    assert_eq!(pieces[begin..begin + 3], [(1, 0), (1, 1), (1, 2)]);
    assert!(pieces.contains(&(2, 0)));
}

/// The link ends while the pump is about to sleep.
fn ends() {
    let link = Link::new();
    let ender = thread::spawn({
        let link = link.clone();
        move || link.backlog.end()
    });
    assert!(link.next().is_none());
    assert!(!link.send(1, 1));
    ender.join().unwrap();
}

squall_sys::models! { "host::model":
    wakes_the_pump: BACKLOG_LEFT;
    pieces_follow_each_other: BACKLOG_PUMPS;
    ends: BACKLOG_LEFT;
}
