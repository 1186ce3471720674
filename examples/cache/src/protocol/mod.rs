//! Parser of memcached's text protocol: the bytes of a client become requests. It reads no stream, never
//! waits, and keeps no bytes.
//!
//! A request is a line; a request that stores a value has the value after the line. [`Parser::next`] gets
//! the received bytes that are not used yet. It returns the number of bytes that it used, and the request.
//! It may get the same bytes again with more behind them.
//!
//! - I1. The answers do not depend on the way the bytes were cut on their way.
//! - I2. The parser never asks for more than a line of [`LINE_BYTES_MAX`] and a value of the size that the
//!   server allows. A larger value is answered at once, and swallowed as it comes.
//! - I3. The value of a storing request is never parsed as requests if its length can be read, even if the
//!   line has an error, or is the meta command `ms`, which the server does not know.
//!
//! Source: memcached's doc/protocol.txt, and memcached 1.6 itself where that document is silent.

mod command;

pub use command::{Keys, Request, Verb};

/// Maximum size of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;
/// Maximum size of a line, in bytes: some hundreds of keys.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// The reason why a request is rejected. The text of each is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such command, or not that many words.
    NoCommand,
    /// A word has the wrong format.
    BadFormat,
    /// `delete` with more than a key.
    BadDelete,
    /// The delta is no number.
    BadDelta,
    /// The expiry time is no number.
    BadExptime,
    /// A value that does not end where its length says.
    BadChunk,
    /// A line that is too long.
    LineTooLong,
    /// A memory limit that is too low to store any value.
    TooLittleMemory,
}

impl Refusal {
    /// Returns the answer.
    pub fn text(self) -> &'static [u8] {
        match self {
            Refusal::NoCommand => b"ERROR\r\n",
            Refusal::BadFormat => b"CLIENT_ERROR bad command line format\r\n",
            Refusal::BadDelete => b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
            Refusal::BadDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            Refusal::BadExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            Refusal::BadChunk => b"CLIENT_ERROR bad data chunk\r\n",
            Refusal::LineTooLong => b"CLIENT_ERROR line too long\r\n",
            Refusal::TooLittleMemory => b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
        }
    }
}

/// The meaning of the bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// A request.
    Request(Request<'a>),
    /// A rejected request.
    Refused {
        /// The reason, and so the answer.
        refusal: Refusal,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// More bytes must come first.
    Wait {
        /// Number of bytes beside the used ones, at least one, so far as it is known.
        bytes: usize,
    },
}

/// One step of the parser.
#[derive(Debug)]
pub struct Parsed<'a> {
    /// Bytes from the beginning that are used up.
    pub used: usize,
    /// The meaning of these bytes.
    pub outcome: Outcome<'a>,
}

/// The state of a connection's parser.
#[derive(Debug, Default)]
pub struct Parser {
    /// Remaining bytes of a rejected value.
    swallow: usize,
    /// Whether the bytes are in the middle of a line that was too long.
    in_long_line: bool,
    /// Number of bytes that were searched for the end of the line already.
    searched: usize,
    /// Whether the connection's first byte was seen.
    has_begun: bool,
}

/// The first byte of a connection that speaks memcached's binary protocol.
const BINARY: u8 = 0x80;

/// The meaning of a line.
enum Line<'a> {
    /// A complete request.
    Whole(Request<'a>),
    /// A request with a value after the line.
    WithValue(Header<'a>),
    Refused {
        refusal: Refusal,
        noreply: bool,
        /// Length of a value that follows and is rejected, if its length could be read.
        value: Option<usize>,
    },
}

/// The words before a value.
struct Header<'a> {
    verb: Verb,
    key: &'a [u8],
    flags: u32,
    exptime: i64,
    bytes: usize,
    noreply: bool,
}

/// The end of a line, and of a value.
const END: &[u8] = b"\r\n";

impl Parser {
    /// Returns a parser at the beginning of a connection.
    pub fn new() -> Parser {
        Parser::default()
    }

    /// Returns the next request in `bytes`, or the reason of its rejection.
    pub fn next<'a>(&mut self, bytes: &'a [u8], value_bytes_max: usize) -> Parsed<'a> {
        if !self.has_begun && bytes.first() == Some(&BINARY) {
            return Parsed { used: bytes.len(), outcome: Outcome::Request(Request::Quit) };
        }
        self.has_begun |= !bytes.is_empty();
        let mut used = self.swallow.min(bytes.len());
        self.swallow -= used;
        if self.in_long_line {
            let end = memchr(b'\n', &bytes[used..]);
            self.in_long_line = end.is_none();
            used = end.map_or(bytes.len(), |end| used + end + 1);
        }
        let rest = &bytes[used..];
        let Some(end) = memchr(b'\n', &rest[self.searched..]).map(|end| self.searched + end) else {
            if rest.len() > LINE_BYTES_MAX {
                return self.long_line(bytes.len());
            }
            self.searched = rest.len();
            return Parsed { used, outcome: Outcome::Wait { bytes: rest.len() + 1 } };
        };
        self.searched = 0;
        if end > LINE_BYTES_MAX {
            used += end + 1;
            return Parsed {
                used,
                outcome: Outcome::Refused { refusal: Refusal::LineTooLong, noreply: false },
            };
        }
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        let after = end + 1;
        match command::parse(line) {
            Line::Whole(request) => Parsed { used: used + after, outcome: Outcome::Request(request) },
            Line::Refused { refusal, noreply, value } => {
                self.swallow = value.map_or(0, |bytes| bytes + END.len());
                Parsed { used: used + after, outcome: Outcome::Refused { refusal, noreply } }
            }
            Line::WithValue(Header { verb, key, bytes, noreply, .. }) if bytes > value_bytes_max => {
                self.swallow = bytes + END.len();
                Parsed {
                    used: used + after,
                    outcome: Outcome::Request(Request::TooLarge { verb, key, noreply }),
                }
            }
            Line::WithValue(header) => {
                let whole = after + header.bytes + END.len();
                let Some(value) = rest.get(after..whole) else {
                    // The line is parsed again when its value is there. Its end is then found at once.
                    self.searched = end;
                    return Parsed { used, outcome: Outcome::Wait { bytes: whole } };
                };
                Parsed { used: used + whole, outcome: header.with(value) }
            }
        }
    }

    fn long_line<'a>(&mut self, used: usize) -> Parsed<'a> {
        (self.in_long_line, self.searched) = (true, 0);
        Parsed { used, outcome: Outcome::Refused { refusal: Refusal::LineTooLong, noreply: false } }
    }
}

impl<'a> Header<'a> {
    fn with(self, value: &'a [u8]) -> Outcome<'a> {
        let Header { verb, key, flags, exptime, noreply, .. } = self;
        match value.strip_suffix(END) {
            Some(data) => Outcome::Request(Request::Store { verb, key, flags, exptime, data, noreply }),
            None => Outcome::Refused { refusal: Refusal::BadChunk, noreply },
        }
    }
}

/// Returns the index of the first such byte.
fn memchr(byte: u8, bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|b| *b == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i2_too_large_input_is_answered_at_once_and_swallowed() {
        let mut parser = Parser::new();
        let step = parser.next(b"set k 0 0 5000\r\n", 4000);
        let too_large = Request::TooLarge { verb: Verb::Set, key: b"k", noreply: false };
        assert_eq!((step.used, step.outcome), (16, Outcome::Request(too_large)));
        for _ in 0..5 {
            let step = parser.next(&[b'x'; 1000], 4000);
            assert_eq!((step.used, step.outcome), (1000, Outcome::Wait { bytes: 1 }));
        }
        let step = parser.next(b"\r\nversion\r\n", 4000);
        assert_eq!((step.used, step.outcome), (11, Outcome::Request(Request::Version)));
    }

    #[test]
    fn i2_a_line_without_end_is_answered_once_and_used_up() {
        let mut parser = Parser::new();
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        assert_eq!(parser.next(&long[1..], 1).outcome, Outcome::Wait { bytes: LINE_BYTES_MAX + 1 });
        let refused = Outcome::Refused { refusal: Refusal::LineTooLong, noreply: false };
        let step = parser.next(&long, 1);
        assert_eq!((step.used, step.outcome), (long.len(), refused));
        let step = parser.next(&long, 1);
        assert_eq!((step.used, step.outcome), (long.len(), Outcome::Wait { bytes: 1 }));
        let step = parser.next(b"yy\nversion\r\n", 1);
        assert_eq!((step.used, step.outcome), (12, Outcome::Request(Request::Version)));
    }

    #[test]
    fn a_client_of_the_binary_protocol_is_disconnected_at_once() {
        let mut parser = Parser::new();
        assert_eq!(parser.next(b"", 1).outcome, Outcome::Wait { bytes: 1 });
        assert_eq!(parser.next(b"\x80\x0a", 1).outcome, Outcome::Request(Request::Quit));
        // Later it is a byte like others.
        let mut parser = Parser::new();
        assert_eq!(parser.next(b"version\r\n", 1).outcome, Outcome::Request(Request::Version));
        let refused = Outcome::Refused { refusal: Refusal::NoCommand, noreply: false };
        assert_eq!(parser.next(b"\x80\r\n", 1).outcome, refused);
    }

    #[test]
    fn it_says_how_much_is_missing_and_does_not_search_again_where_it_has() {
        let mut parser = Parser::new();
        let step = parser.next(b"set k 0 0 100\r\nabc", 1000);
        assert_eq!((step.used, step.outcome), (0, Outcome::Wait { bytes: 15 + 102 }));
        assert_eq!(parser.searched, 14);
        assert_eq!(Parser::new().next(b"", 1).outcome, Outcome::Wait { bytes: 1 });
    }
}
