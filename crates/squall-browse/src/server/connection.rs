//! Connection to one client: its input, cut into requests, and the answer on its way out.
//!
//! - I1. For each client at most one request and one answer are in memory, at any speed of writing and
//!   reading: the server does not read while an answer waits.
//! - I2. A client in the middle of a request, or of reading an answer, has a deadline. A silent client has no
//!   deadline and costs no time.
//! - I3. If the server cannot tell where the next line begins, it says so, and the connection ends.
//!
//! Cost: at most `REQUEST_BYTES_MAX` bytes and one answer for each client. A silent client has no buffers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::protocol::{REQUEST_BYTES_MAX, Refusal, RefusalKind};
use crate::session::Session;

/// State of a client after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Life {
    /// The client stays connected.
    Stays,
    /// The client has gone, or its connection is to be closed.
    Ends,
}

/// Result of reading a client's input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// One line, without its newline.
    Request(Vec<u8>),
    /// The line is not complete yet.
    Nothing,
    /// The input cannot contain further lines.
    Broken(RefusalKind),
    /// The client has closed its side.
    End,
}

/// Connection to one client. See the module.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    input: Vec<u8>,
    /// Position in `input` at which the next request begins.
    begin: usize,
    /// Position in `input` up to which there is no newline of that request.
    searched: usize,
    output: Vec<u8>,
    sent: usize,
    /// `true` if the client will write no more.
    at_end: bool,
    /// `true` if the connection ends after this answer.
    last_answer: bool,
    /// Time since which the client owes the rest of a request, or must read on.
    owes_since: Option<Instant>,
    /// Time of the last input or output.
    pub(super) heard: Instant,
    pub(super) session: Session,
}

impl Connection {
    /// Creates a connection on a non-blocking socket.
    pub(super) fn new(socket: OwnedFd, session: Session, now: Instant) -> Connection {
        Connection {
            socket,
            input: Vec::new(),
            begin: 0,
            searched: 0,
            output: Vec::new(),
            sent: 0,
            at_end: false,
            last_answer: false,
            owes_since: None,
            heard: now,
            session,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns `true` while an answer is being sent.
    pub(super) fn is_writing(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Returns `true` if `next` may find a request without further reading.
    pub(super) fn has_input(&self) -> bool {
        !self.is_writing() && (self.at_end || self.searched < self.input.len())
    }

    /// Returns `true` if there is neither input nor output pending.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_writing() && !self.holds_input()
    }

    /// Returns the time at which the client has kept the server waiting for too long.
    pub(super) fn deadline(&self, patience: Duration) -> Option<Instant> {
        self.owes_since.map(|since| since + patience)
    }

    /// Reads the client's input, up to the size of a request.
    pub(super) fn read(&mut self, now: Instant) -> Life {
        self.input.drain(..self.begin);
        self.searched -= self.begin;
        self.begin = 0;
        let mut portion = [0; 4096];
        while self.input.len() <= REQUEST_BYTES_MAX {
            match recv(&self.socket, &mut portion[..], RecvFlags::empty()) {
                Ok((0, _)) => {
                    self.at_end = true;
                    break;
                }
                Ok((count, _)) => {
                    self.input.extend_from_slice(&portion[..count]);
                    self.heard = now;
                    self.owes_since.get_or_insert(now);
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => return Life::Ends,
            }
        }
        Life::Stays
    }

    /// Returns the next request in the input.
    pub(super) fn next(&mut self, now: Instant) -> Input {
        let found = self.input[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(offset) = found else {
            self.searched = self.input.len();
            return match (self.input.len() - self.begin, self.at_end) {
                (REQUEST_BYTES_MAX.., _) => Input::Broken(RefusalKind::TooLong),
                (0, true) => Input::End,
                (_, true) => Input::Broken(RefusalKind::BadRequest),
                (_, false) => Input::Nothing,
            };
        };
        let end = self.searched + offset;
        let line = self.begin..end;
        (self.begin, self.searched) = (end + 1, end + 1);
        // The deadline of the next request starts now.
        self.owes_since = self.holds_input().then_some(now);
        if line.len() >= REQUEST_BYTES_MAX {
            return Input::Broken(RefusalKind::TooLong);
        }
        let request = self.input[line].to_vec();
        if !self.holds_input() {
            self.input = Vec::new();
            (self.begin, self.searched) = (0, 0);
        }
        Input::Request(request)
    }

    fn holds_input(&self) -> bool {
        self.begin < self.input.len()
    }

    /// Sends an answer: one line without its newline.
    pub(super) fn answer(&mut self, text: String, now: Instant) -> Life {
        self.output = text.into_bytes();
        self.output.push(b'\n');
        self.sent = 0;
        self.owes_since = Some(now);
        self.write(now)
    }

    /// Sends a refusal, and ends the connection once it is sent.
    pub(super) fn end_with(&mut self, refusal: Refusal, now: Instant) -> Life {
        self.last_answer = true;
        self.answer(super::line::refused(refusal), now)
    }

    /// Sends as much as the client accepts.
    pub(super) fn write(&mut self, now: Instant) -> Life {
        while self.is_writing() {
            // Suppresses the signal that would end a program without a handler for it.
            match send(&self.socket, &self.output[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => {
                    self.sent += count;
                    self.heard = now;
                    self.owes_since = Some(now);
                }
                Err(Errno::AGAIN) => return Life::Stays,
                Err(Errno::INTR) => {}
                Err(_) => return Life::Ends,
            }
        }
        self.output = Vec::new();
        self.sent = 0;
        self.owes_since = self.holds_input().then_some(now);
        if self.last_answer { Life::Ends } else { Life::Stays }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn pair() -> (UnixStream, Connection) {
        let (client, server) = UnixStream::pair().expect("a pair");
        server.set_nonblocking(true).expect("a socket");
        (client, Connection::new(server.into(), Session::default(), Instant::now()))
    }

    fn inputs(connection: &mut Connection) -> Vec<Input> {
        let now = Instant::now();
        assert_eq!(connection.read(now), Life::Stays);
        let mut inputs = Vec::new();
        loop {
            inputs.push(connection.next(now));
            if !matches!(inputs.last(), Some(Input::Request(_))) {
                return inputs;
            }
        }
    }

    #[test]
    fn requests_are_cut_at_the_ends_of_lines_wherever_the_writes_end() {
        let (mut client, mut connection) = pair();
        client.write_all(b"one\ntw").expect("room");
        assert_eq!(inputs(&mut connection), [Input::Request(b"one".to_vec()), Input::Nothing]);
        assert!(connection.deadline(Duration::ZERO).is_some(), "half a request has a deadline");
        client.write_all(b"o\n\n").expect("room");
        let requests = [Input::Request(b"two".to_vec()), Input::Request(Vec::new()), Input::Nothing];
        assert_eq!(inputs(&mut connection), requests);
        assert!(connection.deadline(Duration::ZERO).is_none(), "who says nothing has none");
        client.write_all(b"thr").expect("room");
        drop(client);
        assert_eq!(inputs(&mut connection), [Input::Broken(RefusalKind::BadRequest)]);
    }

    #[test]
    fn a_client_that_was_answered_has_no_buffers() {
        let (mut client, mut connection) = pair();
        let line = "x".repeat(1 << 10);
        for _ in 0..3 {
            client.write_all(format!("{line}\n").as_bytes()).expect("room");
            assert_eq!(inputs(&mut connection), [Input::Request(line.clone().into_bytes()), Input::Nothing]);
            assert_eq!(connection.answer(line.clone(), Instant::now()), Life::Stays);
            assert!(connection.is_idle());
            assert_eq!((connection.input.capacity(), connection.output.capacity()), (0, 0));
        }
    }

    #[test]
    fn the_longest_request_fits_and_one_byte_more_does_not() {
        for (length, fits) in [(REQUEST_BYTES_MAX - 1, true), (REQUEST_BYTES_MAX, false)] {
            let (mut client, mut connection) = pair();
            let mut line = vec![b'x'; length];
            line.push(b'\n');
            let writer = std::thread::spawn(move || client.write_all(&line).map(|()| client));
            let found = loop {
                assert_eq!(connection.read(Instant::now()), Life::Stays);
                match connection.next(Instant::now()) {
                    Input::Nothing => std::thread::yield_now(),
                    found => break found,
                }
            };
            match found {
                Input::Request(line) => assert!(fits && line.len() == length),
                other => assert!(!fits && other == Input::Broken(RefusalKind::TooLong), "{other:?}"),
            }
            drop(connection);
            let _ = writer.join().expect("no panic");
        }
    }

    #[test]
    fn input_stays_in_the_kernel_while_an_answer_is_unread() {
        let (mut client, mut connection) = pair();
        let now = Instant::now();
        assert_eq!(connection.answer("y".repeat(8 << 20), now), Life::Stays);
        assert!(connection.is_writing() && !connection.has_input());
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; (8 << 20) + 1];
            client.read_exact(&mut bytes).map(|()| bytes)
        });
        while connection.is_writing() {
            assert_eq!(connection.write(now), Life::Stays);
            std::thread::yield_now();
        }
        let bytes = reader.join().expect("no panic").expect("all of it");
        assert!(bytes.ends_with(b"y\n") && bytes.iter().filter(|byte| **byte == b'y').count() == 8 << 20);
    }

    #[test]
    fn a_client_that_dies_ends_its_connection_and_no_more() {
        let (client, mut connection) = pair();
        assert_eq!(connection.answer("z".repeat(8 << 20), Instant::now()), Life::Stays);
        drop(client);
        assert_eq!(connection.write(Instant::now()), Life::Ends);
    }
}
