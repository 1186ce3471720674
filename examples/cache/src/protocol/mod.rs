//! Parser of memcached's text protocol: the bytes of a client become requests. It reads no stream, never
//! waits, and keeps no bytes.
//!
//! A request is a line; a request that stores a value has the value after the line. [`Parser::next`] gets
//! the received bytes that are not used yet. It returns the number of bytes that it used, and the request.
//! It may get the same bytes again with more behind them.
//!
//! - I1. The answers do not depend on the way the bytes were cut on their way.
//! - I2. The parser never asks for more than a line of [`LINE_BYTES_MAX`] and an item of the size that the
//!   server allows. A larger value is answered at once, and swallowed as it comes. The keys of a longer line
//!   are requests of their own, in parts as they come.
//! - I3. The value of a storing request is never parsed as requests if its length can be read, even if the
//!   line has an error.
//!
//! Source: memcached's doc/protocol.txt, and memcached 1.6 itself where that document is silent.

pub mod base64;
mod command;
mod meta;

pub use command::{Keys, Request, Storing, Unstored, Verb};
pub use meta::{Meta, Options};

pub(crate) use command::number;

use command::Retrieval;

/// Maximum size of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;
/// Maximum size of a line, in bytes, except for the commands with any number of keys.
pub const LINE_BYTES_MAX: usize = 8 << 10;

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
    /// More flags than a meta command can have.
    TooManyFlags,
    /// An unknown flag of a meta command.
    NoFlag,
    /// A flag that comes twice, or is no letter.
    TwiceFlag,
    /// Any error in the flags of `ma`.
    BadFlag,
    /// The token of a flag is no number.
    BadToken,
    /// A key that is not base64.
    BadBase64,
    /// An opaque token that is too long.
    LongOpaque,
    /// A mode that is not one letter.
    BadModeLength,
    /// An unknown mode of `ms`.
    BadStoreMode,
    /// An unknown mode of `ma`.
    BadCountMode,
    /// An initial value that is no number.
    BadInitial,
    /// A delta of a meta command that is no number.
    BadMetaDelta,
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
            Refusal::TooManyFlags => b"CLIENT_ERROR options flags are too long\r\n",
            Refusal::NoFlag => b"CLIENT_ERROR invalid flag\r\n",
            Refusal::TwiceFlag => b"CLIENT_ERROR duplicate flag\r\n",
            Refusal::BadFlag => b"CLIENT_ERROR invalid or duplicate flag\r\n",
            Refusal::BadToken => b"CLIENT_ERROR bad token in command line format\r\n",
            Refusal::BadBase64 => b"CLIENT_ERROR error decoding key\r\n",
            Refusal::LongOpaque => b"CLIENT_ERROR opaque token too long\r\n",
            Refusal::BadModeLength => b"CLIENT_ERROR incorrect length for M token\r\n",
            Refusal::BadStoreMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
            Refusal::BadCountMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
            Refusal::BadInitial => b"CLIENT_ERROR invalid numeric initial value\r\n",
            Refusal::BadMetaDelta => b"CLIENT_ERROR invalid numeric delta value\r\n",
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
    /// Whether the bytes are in the middle of a rejected line.
    in_rejected_line: bool,
    /// The bytes are in the middle of a long line of keys.
    in_keys: Option<InKeys>,
    /// Number of bytes that were searched for the end of the line already.
    searched: usize,
    /// Whether the connection's first byte was seen.
    has_begun: bool,
}

/// A long line of keys.
#[derive(Clone, Copy, Debug)]
struct InKeys {
    retrieval: Retrieval,
    /// Whether the line had a key so far.
    has_key: bool,
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

/// The words before a value, and its size.
struct Header<'a> {
    of: Storing<'a>,
    bytes: usize,
}

impl Header<'_> {
    fn exceeds(&self, item_bytes_max: usize) -> bool {
        self.bytes.saturating_add(self.of.item_bytes()) > item_bytes_max
    }
}

/// The end of a line, and of a value.
const END: &[u8] = b"\r\n";

impl Parser {
    /// Returns a parser at the beginning of a connection.
    pub fn new() -> Parser {
        Parser::default()
    }

    /// Returns the next request in `bytes`, or the reason of its rejection. `item_bytes_max` is the size
    /// limit of an item as [`Config`](crate::Config) counts it.
    pub fn next<'a>(&mut self, bytes: &'a [u8], item_bytes_max: usize) -> Parsed<'a> {
        if !self.has_begun && bytes.first() == Some(&BINARY) {
            return Parsed { used: bytes.len(), outcome: Outcome::Request(Request::Quit) };
        }
        self.has_begun |= !bytes.is_empty();
        let mut used = self.swallow.min(bytes.len());
        self.swallow -= used;
        if self.in_rejected_line {
            let end = memchr(b'\n', &bytes[used..]);
            self.in_rejected_line = end.is_none();
            used = end.map_or(bytes.len(), |end| used + end + 1);
        }
        let rest = &bytes[used..];
        if let Some(keys) = self.in_keys {
            return self.more_keys(keys, rest, used);
        }
        let end = memchr(b'\n', &rest[self.searched..]).map(|end| self.searched + end);
        let Some(end) = end.filter(|end| *end <= LINE_BYTES_MAX) else {
            if rest.len() > LINE_BYTES_MAX {
                return self.long_line(rest, used);
            }
            self.searched = rest.len();
            return Parsed { used, outcome: Outcome::Wait { bytes: rest.len() + 1 } };
        };
        self.searched = 0;
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        let after = end + 1;
        match command::parse(line) {
            Line::Whole(request) => Parsed { used: used + after, outcome: Outcome::Request(request) },
            Line::Refused { refusal, noreply, value } => {
                self.swallow = value.map_or(0, |bytes| bytes + END.len());
                Parsed { used: used + after, outcome: Outcome::Refused { refusal, noreply } }
            }
            Line::WithValue(header) if header.exceeds(item_bytes_max) => {
                self.swallow = header.bytes + END.len();
                let request = Request::Unstored { of: header.of, reason: Unstored::TooLarge };
                Parsed { used: used + after, outcome: Outcome::Request(request) }
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

    /// Rejects the storing request whose value [`next`](Parser::next) waits for, and swallows the value as it
    /// comes. `bytes` are the bytes that are not used yet. Returns `None` if no value is awaited.
    pub fn reject_value<'a>(&mut self, bytes: &'a [u8]) -> Option<Parsed<'a>> {
        let end = memchr(b'\n', bytes).filter(|_| self.in_keys.is_none() && !self.in_rejected_line)?;
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        let Line::WithValue(header) = command::parse(line) else { return None };
        (self.searched, self.swallow) = (0, header.bytes + END.len());
        let request = Request::Unstored { of: header.of, reason: Unstored::NoMemory };
        Some(Parsed { used: end + 1, outcome: Outcome::Request(request) })
    }

    /// Begins a line that is too long, except for keys.
    fn long_line<'a>(&mut self, rest: &'a [u8], used: usize) -> Parsed<'a> {
        self.searched = 0;
        match command::retrieval(&rest[..LINE_BYTES_MAX]) {
            // The words before the keys have ended.
            Some((Ok(retrieval), keys)) if !keys.is_empty() => {
                let keys_at = LINE_BYTES_MAX - keys.len();
                let in_keys = InKeys { retrieval, has_key: false };
                self.in_keys = Some(in_keys);
                self.more_keys(in_keys, &rest[keys_at..], used + keys_at)
            }
            Some((Err(refusal), keys)) if !keys.is_empty() => self.reject_line(refusal, used),
            _ => self.reject_line(Refusal::LineTooLong, used),
        }
    }

    fn reject_line<'a>(&mut self, refusal: Refusal, used: usize) -> Parsed<'a> {
        (self.in_rejected_line, self.in_keys) = (true, None);
        Parsed { used, outcome: Outcome::Refused { refusal, noreply: false } }
    }

    /// Returns the keys in `rest`, which begins behind `used` bytes in a long line of keys.
    fn more_keys<'a>(&mut self, in_keys: InKeys, rest: &'a [u8], used: usize) -> Parsed<'a> {
        let Retrieval { cas, exptime } = in_keys.retrieval;
        let end = memchr(b'\n', rest);
        let part = match end {
            Some(end) => rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]),
            // Words that end.
            None => &rest[..rest.iter().rposition(|byte| *byte == b' ').map_or(0, |space| space + 1)],
        };
        let (keys, wrong_at) = command::keys(part);
        let request = |is_last| Outcome::Request(Request::Get { keys, cas, exptime, is_last });
        let has_key = in_keys.has_key || { keys }.next().is_some();
        self.in_keys = Some(InKeys { has_key, ..in_keys });
        match (wrong_at, end) {
            (Some(0), _) => self.reject_line(Refusal::BadFormat, used),
            (Some(wrong_at), _) => Parsed { used: used + wrong_at, outcome: request(false) },
            (None, Some(end)) => {
                self.in_keys = None;
                let refused = Outcome::Refused { refusal: Refusal::NoCommand, noreply: false };
                Parsed { used: used + end + 1, outcome: if has_key { request(true) } else { refused } }
            }
            (None, None) if !part.is_empty() => Parsed { used: used + part.len(), outcome: request(false) },
            // With the end of a line, if it is one.
            (None, None) if rest.len() > KEY_BYTES_MAX + 1 => self.reject_line(Refusal::BadFormat, used),
            (None, None) => Parsed { used, outcome: Outcome::Wait { bytes: rest.len() + 1 } },
        }
    }
}

impl<'a> Header<'a> {
    fn with(self, value: &'a [u8]) -> Outcome<'a> {
        match value.strip_suffix(END) {
            Some(data) => Outcome::Request(Request::Store { of: self.of, data }),
            None => Outcome::Refused { refusal: Refusal::BadChunk, noreply: self.of.is_silent() },
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

    fn storing(verb: Verb, key: &[u8]) -> Storing<'_> {
        Storing::Plain { verb, key, flags: 0, exptime: 0, noreply: false }
    }

    #[test]
    fn i2_too_large_input_is_answered_at_once_and_swallowed() {
        let mut parser = Parser::new();
        let step = parser.next(b"set k 0 0 5000\r\n", 4000);
        let too_large = Request::Unstored { of: storing(Verb::Set, b"k"), reason: Unstored::TooLarge };
        assert_eq!((step.used, step.outcome), (16, Outcome::Request(too_large)));
        for _ in 0..5 {
            let step = parser.next(&[b'x'; 1000], 4000);
            assert_eq!((step.used, step.outcome), (1000, Outcome::Wait { bytes: 1 }));
        }
        let step = parser.next(b"\r\nversion\r\n", 4000);
        assert_eq!((step.used, step.outcome), (11, Outcome::Request(Request::Version)));
    }

    #[test]
    fn i3_a_value_that_is_rejected_while_it_comes_is_swallowed() {
        let mut parser = Parser::new();
        let begin = b"set k 0 0 9\r\nversi";
        assert_eq!(parser.next(begin, 4000).outcome, Outcome::Wait { bytes: 24 });
        let step = parser.reject_value(begin).expect("it waits for a value");
        let no_memory = Request::Unstored { of: storing(Verb::Set, b"k"), reason: Unstored::NoMemory };
        assert_eq!((step.used, step.outcome), (13, Outcome::Request(no_memory)));
        let step = parser.next(b"versi", 4000);
        assert_eq!((step.used, step.outcome), (5, Outcome::Wait { bytes: 1 }));
        let step = parser.next(b"on\r\n\r\nversion\r\n", 4000);
        assert_eq!((step.used, step.outcome), (15, Outcome::Request(Request::Version)));
        assert!(Parser::new().reject_value(b"version\r").is_none());
        assert!(Parser::new().reject_value(b"version\r\n").is_none());
    }

    #[test]
    fn i2_a_line_without_end_is_answered_once_and_used_up() {
        let mut parser = Parser::new();
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        assert_eq!(parser.next(&long[1..], 1).outcome, Outcome::Wait { bytes: LINE_BYTES_MAX + 1 });
        let refused = Outcome::Refused { refusal: Refusal::LineTooLong, noreply: false };
        let step = parser.next(&long, 1);
        assert_eq!((step.used, step.outcome), (0, refused));
        for _ in 0..2 {
            let step = parser.next(&long, 1);
            assert_eq!((step.used, step.outcome), (long.len(), Outcome::Wait { bytes: 1 }));
        }
        let step = parser.next(b"yy\nversion\r\n", 1);
        assert_eq!((step.used, step.outcome), (12, Outcome::Request(Request::Version)));
    }

    /// Returns the keys of a line, for a cut into pieces of this size, and the refusals.
    fn keys_of(line: &[u8], piece: usize) -> (Vec<Vec<u8>>, Vec<Refusal>) {
        let (mut parser, mut input, mut rest) = (Parser::new(), Vec::new(), line);
        let (mut keys, mut refusals) = (Vec::new(), Vec::new());
        loop {
            let step = parser.next(&input, 1);
            let used = step.used;
            let waits = matches!(step.outcome, Outcome::Wait { .. });
            match step.outcome {
                Outcome::Request(Request::Get { keys: more, .. }) => keys.extend(more.map(<[u8]>::to_vec)),
                Outcome::Request(request) => assert_eq!(request, Request::Version),
                Outcome::Refused { refusal, .. } => refusals.push(refusal),
                Outcome::Wait { .. } => {}
            }
            input.drain(..used);
            assert!(!waits || input.len() <= LINE_BYTES_MAX, "{} bytes wait", input.len());
            if waits && rest.is_empty() {
                assert_eq!(input, b"");
                return (keys, refusals);
            }
            if waits {
                let (more, after) = rest.split_at(piece.min(rest.len()));
                (input, rest) = ([&input[..], more].concat(), after);
            }
        }
    }

    #[test]
    fn i2_the_keys_of_a_long_line_are_parsed_as_they_come() {
        let key = "k".repeat(250);
        let line = |begin: &str, end: &str| {
            format!("{begin} {}{end}\r\nversion\r\n", format!("a {key} ").repeat(100)).into_bytes()
        };
        let expected: Vec<_> =
            [b"a", key.as_bytes()].iter().cycle().take(200).map(|key| key.to_vec()).collect();
        let too_long = "k".repeat(251);
        for piece in [1, 7, 251, 8192, 100_000] {
            let parse = |begin: &str, end: &str| keys_of(&line(begin, end), piece);
            assert_eq!(parse("get", ""), (expected.clone(), vec![]));
            assert_eq!(parse("  gats  77", ""), (expected.clone(), vec![]));
            let (keys, refusals) = parse("gets", "last");
            assert_eq!((keys.len(), &keys[200][..], refusals), (201, &b"last"[..], vec![]));
            // The keys before a wrong one are answered, for any cut.
            assert_eq!(parse("get", &too_long), (expected.clone(), vec![Refusal::BadFormat]));
            assert_eq!(
                parse("get", &format!("{too_long} more")),
                (expected.clone(), vec![Refusal::BadFormat])
            );
            assert_eq!(parse("gat x", ""), (vec![], vec![Refusal::BadExptime]));
            // A word before the keys that does not end in time, and a line without keys.
            let spaces = " ".repeat(LINE_BYTES_MAX);
            let begin = format!("gat{}", &spaces[..LINE_BYTES_MAX - 5]);
            assert_eq!(parse(&format!("{begin}123456"), ""), (vec![], vec![Refusal::LineTooLong]));
            let line = format!("get {spaces}\r\nversion\r\n");
            assert_eq!(keys_of(line.as_bytes(), piece), (vec![], vec![Refusal::NoCommand]));
        }
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
