//! memcached's text protocol, as far as bytes go: what a client sends becomes requests. Nothing here reads, waits or keeps bytes.
//!
//! A request is a line, and of those that store a value the value after it. [`Parser::next`] is shown what has come and was not used
//! yet, and says how much of it is used up, and for what; it may be shown the same again with more behind it.
//!
//! - I1. What is answered does not depend on how the bytes were cut into pieces on their way.
//! - I2. It never asks for more than a line of [`LINE_BYTES_MAX`] and a value of the size that the server allows: what is larger is
//!   answered at once, and swallowed as it comes.
//! - I3. Of a request that stores a value whose length can be read, the value is not taken for requests, whatever else is wrong.
//!
//! After memcached's doc/protocol.txt, and where that does not say it, memcached 1.6 itself.

mod command;

pub use command::{Keys, Request, Verb};

/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 250;
/// Bytes of a line: some hundreds of keys.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Why a request is not done. The text of each is its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such command, or not so many words.
    NoCommand,
    /// A word is not what it ought to be.
    BadFormat,
    /// `delete` with more than a key.
    BadDelete,
    /// What is to be added is no number.
    BadDelta,
    /// When it is to expire is no number.
    BadExptime,
    /// A value that does not end where its length says.
    BadChunk,
    /// A line without end.
    LineTooLong,
    /// A limit with which nothing could be stored.
    TooLittleMemory,
}

impl Refusal {
    /// The answer.
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

/// What the bytes so far come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// A request.
    Request(Request<'a>),
    /// None, and this is the answer, unless the client wants none.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// More must come first: so many bytes beside those that are used up, at least one.
    Wait {
        /// As far as that is known.
        bytes: usize,
    },
}

/// One step.
#[derive(Debug)]
pub struct Parsed<'a> {
    /// Bytes from the beginning that are not to be shown again.
    pub used: usize,
    /// What they are.
    pub outcome: Outcome<'a>,
}

/// Where in the bytes of one connection we are.
#[derive(Debug, Default)]
pub struct Parser {
    /// Bytes of a value that nobody wants.
    swallow: usize,
    /// Whether a line that was too long is not over yet.
    in_long_line: bool,
    /// Bytes in which the end of the line is not: they need not be looked at again.
    searched: usize,
}

/// What a line says.
enum Line<'a> {
    /// A request that is whole.
    Whole(Request<'a>),
    /// One whose value follows.
    WithValue(Header<'a>),
    Refused {
        refusal: Refusal,
        noreply: bool,
        /// Bytes of a value that follows and nobody wants, where its length could be read.
        value: Option<usize>,
    },
}

/// What stands before a value.
struct Header<'a> {
    verb: Verb,
    key: &'a [u8],
    flags: u32,
    exptime: i64,
    bytes: usize,
    noreply: bool,
}

/// Behind a line, and behind a value.
const END: &[u8] = b"\r\n";

impl Parser {
    /// At the beginning of a connection.
    pub fn new() -> Parser {
        Parser::default()
    }

    /// The next request in `bytes`, or what is wrong with it.
    pub fn next<'a>(&mut self, bytes: &'a [u8], value_bytes_max: usize) -> Parsed<'a> {
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
                    // The line is read again when its value is there: its end is found at once.
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

/// Where the byte is first.
fn memchr(byte: u8, bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|b| *b == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i2_what_is_too_large_is_answered_at_once_and_used_up_as_it_comes() {
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
    fn it_says_how_much_is_missing_and_does_not_search_again_where_it_has() {
        let mut parser = Parser::new();
        let step = parser.next(b"set k 0 0 100\r\nabc", 1000);
        assert_eq!((step.used, step.outcome), (0, Outcome::Wait { bytes: 15 + 102 }));
        assert_eq!(parser.searched, 14);
        assert_eq!(Parser::new().next(b"", 1).outcome, Outcome::Wait { bytes: 1 });
    }
}
