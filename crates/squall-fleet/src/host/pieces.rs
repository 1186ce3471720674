//! The messages of a link between two transports: a greeting, then frames, whole or in pieces.
//!
//! ```text
//! byte 0  0, a greeting. Then the version, the number of the transport (16 bytes), and its name.
//!         1, a whole frame. Then its bytes.
//!         2, the first piece of a frame. Then the length of the frame (4 bytes), and bytes.
//!         3, a further piece. Then bytes.
//!         4, the consent of the side that connected, after both greetings.
//! ```
//!
//! Integers are in little endian.
//!
//! - I1. The pieces of a frame follow each other on a link, without other messages between them.
//! - I2. The peer may send anything. A message that breaks the format is an error. Memory grows with the
//!   bytes that came, and not with a length in a message.
//! - I3. Half frames of all links take [`HALVES_MAX`] bytes together. A frame beyond it is skipped.

use std::cell::Cell;
use std::rc::Rc;

/// Largest frame in bytes.
pub(crate) const FRAME_MAX: usize = 1 << 20;
/// Largest number of bytes in the half frames of all links.
pub(crate) const HALVES_MAX: usize = 32 << 20;
/// Largest piece of a frame in bytes, also if the lane takes larger messages.
const PIECE_MAX: usize = 16 << 10;
/// The version of the greeting and of the pieces.
const VERSION: u8 = 1;

const GREETING: u8 = 0;
const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const NEXT: u8 = 3;
/// The consent: see [`greet`](super::greet).
pub(crate) const CONSENT: &[u8] = &[4];

/// Writes the greeting of a transport.
pub(crate) fn greeting(number: u128, name: &str) -> Vec<u8> {
    let mut message = vec![GREETING, VERSION];
    message.extend_from_slice(&number.to_le_bytes());
    message.extend_from_slice(name.as_bytes());
    message
}

/// Reads a greeting: the number of the transport, and its name.
pub(crate) fn read_greeting(message: &[u8]) -> Result<(u128, &str), String> {
    let Some((&[GREETING, version], rest)) = message.split_first_chunk() else {
        return Err("the peer sent another message than a greeting: check that it is a HostTransport".into());
    };
    if version != VERSION {
        return Err(format!(
            "the peer speaks version {version} of the transport, and this program version {VERSION}: build both \
             with the same version"
        ));
    }
    match rest.split_first_chunk() {
        Some((number, name)) => match std::str::from_utf8(name) {
            Ok(name) => Ok((u128::from_le_bytes(*number), name)),
            Err(_) => Err("the name in the peer's greeting is no text".into()),
        },
        None => Err("the peer's greeting is too short".into()),
    }
}

/// Returns the size in bytes of the largest piece, with its head, for a lane that takes such messages. Four
/// pieces fit into a lane at once, so that both sides work at the same time.
pub(crate) fn piece_bytes(largest_message: usize) -> usize {
    (largest_message / 4).clamp(64, PIECE_MAX)
}

/// Writes the next piece of a frame of which `sent` bytes were sent. Returns the number of bytes that are
/// sent after it.
pub(crate) fn write_piece(piece: &mut Vec<u8>, frame: &[u8], sent: usize, piece_bytes: usize) -> usize {
    piece.clear();
    if sent > 0 {
        piece.push(NEXT);
    } else if frame.len() < piece_bytes {
        piece.push(WHOLE);
    } else {
        piece.push(FIRST);
        // A frame is far below 4 GiB.
        piece.extend_from_slice(&(frame.len() as u32).to_le_bytes());
    }
    let end = frame.len().min(sent + piece_bytes - piece.len());
    piece.extend_from_slice(&frame[sent..end]);
    end
}

/// A message that breaks the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbage;

/// Bytes of the half frames of all links of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Halves(Rc<Cell<usize>>);

/// Joins the pieces of one link.
#[derive(Debug)]
pub(crate) struct Joiner {
    halves: Halves,
    frame: Vec<u8>,
    /// Bytes of the frame that did not come yet. Above 0 while the frame is a half one.
    missing: usize,
    /// The frame is read, but not kept.
    skips: bool,
}

impl Joiner {
    pub(crate) fn new(halves: Halves) -> Joiner {
        Joiner { halves, frame: Vec::new(), missing: 0, skips: false }
    }

    /// Takes a message. Calls `act` with the frame that it completes, if it does.
    ///
    /// # Errors
    /// The message breaks the format.
    pub(crate) fn take(&mut self, message: &[u8], act: impl FnOnce(&[u8])) -> Result<(), Garbage> {
        match message.split_first() {
            Some((&WHOLE, frame)) if self.missing == 0 && frame.len() <= FRAME_MAX => act(frame),
            Some((&FIRST, rest)) if self.missing == 0 => {
                let Some((length, bytes)) = rest.split_first_chunk() else { return Err(Garbage) };
                let length = u32::from_le_bytes(*length) as usize;
                if length > FRAME_MAX || bytes.len() >= length {
                    return Err(Garbage);
                }
                self.missing = length;
                self.keep(bytes);
            }
            Some((&NEXT, bytes)) if !bytes.is_empty() && bytes.len() <= self.missing => {
                self.keep(bytes);
                if self.missing == 0 {
                    let frame = self.forget();
                    if !std::mem::take(&mut self.skips) {
                        act(&frame);
                    }
                }
            }
            _ => return Err(Garbage),
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.missing -= bytes.len();
        let all = self.halves.0.get() + bytes.len();
        if all > HALVES_MAX {
            self.skips = true;
            self.forget();
        }
        if !self.skips {
            self.halves.0.set(all);
            self.frame.extend_from_slice(bytes);
        }
    }

    /// Takes the half frame away.
    fn forget(&mut self) -> Vec<u8> {
        self.halves.0.set(self.halves.0.get() - self.frame.len());
        std::mem::take(&mut self.frame)
    }
}

impl Drop for Joiner {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a frame.
    fn pieces(frame: &[u8], piece_bytes: usize) -> Vec<Vec<u8>> {
        let (mut pieces, mut sent) = (Vec::new(), 0);
        loop {
            let mut piece = Vec::new();
            sent = write_piece(&mut piece, frame, sent, piece_bytes);
            assert!(piece.len() <= piece_bytes);
            pieces.push(piece);
            if sent == frame.len() {
                return pieces;
            }
        }
    }

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 7 + length) as u8).collect()
    }

    #[test]
    fn frames_of_every_size_are_joined_again() {
        let mut joiner = Joiner::new(Halves::default());
        for length in (0..1000).chain([FRAME_MAX - 1, FRAME_MAX]) {
            let frame = content(length);
            let mut joined = Vec::new();
            for piece in pieces(&frame, 64) {
                assert!(joined.is_empty());
                joiner.take(&piece, |frame| joined.push(frame.to_vec())).unwrap();
            }
            assert!(joined == [frame], "a frame of {length} bytes");
        }
        assert_eq!(joiner.halves.0.get(), 0);
    }

    #[test]
    fn garbage_is_an_error_and_takes_no_memory() {
        let halves = Halves::default();
        let too_long = [&[FIRST][..], &(FRAME_MAX as u32 + 1).to_le_bytes()].concat();
        let first = [FIRST, 4, 0, 0, 0, 1];
        let garbage: [&[&[u8]]; 10] = [
            &[&[]],
            &[&[GREETING]],
            &[&[4]],
            &[&[NEXT, 1]],
            &[&[FIRST, 1, 0]],
            &[&[FIRST, 1, 0, 0, 0, 7]],
            &[&too_long],
            &[&first, &[NEXT]],
            &[&first, &[NEXT, 2, 3, 4, 5]],
            &[&first, &[WHOLE]],
        ];
        for messages in garbage {
            let mut joiner = Joiner::new(halves.clone());
            let (last, before) = messages.split_last().unwrap();
            for message in before {
                joiner.take(message, |_| panic!("no frame is whole")).unwrap();
            }
            assert_eq!(joiner.take(last, |_| panic!("no frame is whole")), Err(Garbage), "{messages:?}");
        }
        assert_eq!(halves.0.get(), 0);
    }

    #[test]
    fn half_frames_have_a_bound_and_later_frames_arrive() {
        let halves = Halves::default();
        let frame = content(FRAME_MAX);
        let pieces = pieces(&frame, PIECE_MAX);
        let mut joiners: Vec<Joiner> = (0..40).map(|_| Joiner::new(halves.clone())).collect();
        let mut whole = 0;
        for piece in &pieces {
            for joiner in &mut joiners {
                joiner.take(piece, |joined| whole += usize::from(joined == frame)).unwrap();
                assert!(halves.0.get() <= HALVES_MAX);
            }
        }
        assert!((31..40).contains(&whole), "{whole}");
        assert_eq!(halves.0.get(), 0);
        for joiner in &mut joiners {
            joiner.take(&[WHOLE, 9], |frame| assert_eq!(frame, [9])).unwrap();
        }
    }

    #[test]
    fn a_greeting_is_read_and_others_say_why_not() {
        let message = greeting(7, "echo");
        assert_eq!(read_greeting(&message), Ok((7, "echo")));
        for length in 0..18 {
            assert!(read_greeting(&message[..length]).is_err());
        }
        let mut other = message.clone();
        other[1] = 9;
        assert!(read_greeting(&other).unwrap_err().contains("version 9"));
        let no_text = [&message[..], &[0xff]].concat();
        assert!(read_greeting(&no_text).unwrap_err().contains("no text"));
        assert!(read_greeting(&[WHOLE; 30]).is_err());
    }
}
