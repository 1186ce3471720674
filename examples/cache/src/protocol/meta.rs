//! The meta commands: a key, and flags of one letter each, some with a token behind the letter.
//!
//! Source: memcached's doc/protocol.txt of version 1.6.40.

use super::base64::{self, DECODED_BYTES_MAX};
use super::command::{Request, Storing, Verb, is_key, length, number, word};
use super::{Header, Line, Refusal};

/// Maximum number of words of a line, with the command and its key.
const WORDS_MAX: usize = 19;
/// Maximum size of an opaque token with its letter, in bytes.
const OPAQUE_BYTES_MAX: usize = 32;

/// A meta command without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The key as it was sent.
    pub sent_key: &'a [u8],
    /// The words behind it.
    words: &'a [u8],
    /// The meaning of the flags.
    pub options: Options,
}

/// The meaning of the flags that change the way a command works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `b`: the key was sent in base64.
    pub is_binary: bool,
    /// `v`: the client wants the value.
    pub wants_value: bool,
    /// `q`: the client wants no answer in the usual case.
    pub is_quiet: bool,
    /// `u`: the use leaves no trace.
    pub is_unnoticed: bool,
    /// `I`: the item becomes stale.
    pub invalidates: bool,
    /// `x`: the value is removed, and the item stays.
    pub removes_value: bool,
    /// `M`: the mode.
    pub mode: Option<u8>,
    /// `T`: the new expiry time.
    pub exptime: Option<i64>,
    /// `N`: the expiry time of an item that is made because the key is absent.
    pub vivify: Option<i64>,
    /// `R`: the item is to be renewed if it expires within so many seconds.
    pub recache: Option<i64>,
    /// `F`: the client's own flags.
    pub client_flags: u32,
    /// `C`: the number that the present value must have.
    pub cas: Option<u64>,
    /// `E`: the number that the new value gets.
    pub new_cas: Option<u64>,
    /// `D`: the delta.
    pub delta: Option<u64>,
    /// `J`: the number that a made item has.
    pub initial: u64,
}

impl<'a> Meta<'a> {
    /// Returns the flags in the order of the line, each a letter and its token.
    pub fn flags(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut words = self.words;
        std::iter::from_fn(move || word(&mut words)).map(|word| (word[0], &word[1..]))
    }

    /// Returns the key, decoded into `place` if it was sent in base64.
    pub fn key<'b>(&self, place: &'b mut [u8; DECODED_BYTES_MAX]) -> &'b [u8]
    where
        'a: 'b,
    {
        if !self.options.is_binary {
            return self.sent_key;
        }
        base64::decode(self.sent_key, place).expect("the parser has decoded it before")
    }

    /// Returns the size of the key, decoded.
    pub(super) fn key_bytes(&self) -> usize {
        if !self.options.is_binary {
            return self.sent_key.len();
        }
        let padding = self.sent_key.iter().rev().take_while(|byte| **byte == b'=').count();
        self.sent_key.len() / 4 * 3 - padding
    }

    /// Returns the way an `ms` stores its value, if its mode is known.
    pub fn verb(&self) -> Option<Verb> {
        let verb = match self.options.mode {
            None | Some(b'S') => Verb::Set,
            Some(b'E') => Verb::Add,
            Some(b'R') => Verb::Replace,
            Some(b'A') => Verb::Append,
            Some(b'P') => Verb::Prepend,
            Some(_) => return None,
        };
        Some(match (verb, self.options.cas) {
            (Verb::Set | Verb::Replace, Some(unique)) => Verb::Cas(unique),
            _ => verb,
        })
    }

    /// Returns whether an `ma` counts up, if its mode is known.
    pub fn counts_up(&self) -> Option<bool> {
        match self.options.mode {
            None | Some(b'I' | b'+') => Some(true),
            Some(b'D' | b'-') => Some(false),
            Some(_) => None,
        }
    }
}

/// Parses the words behind the name of `mg` and `md`.
pub(super) fn with_key<'a>(rest: &'a [u8], request: fn(Meta<'a>) -> Request<'a>) -> Line<'a> {
    match begin(rest) {
        Ok((key, flags)) => parse(key, flags, 2).map_or_else(refused, |meta| Line::Whole(request(meta))),
        Err(refusal) => refused(refusal),
    }
}

/// Parses `ma <key> <flags>*`.
pub(super) fn count(rest: &[u8]) -> Line<'_> {
    let (key, flags) = match begin(rest) {
        Ok(words) => words,
        Err(refusal) => return refused(refusal),
    };
    match parse(key, flags, 2) {
        Ok(meta) if meta.counts_up().is_none() => refused(Refusal::BadCountMode),
        Ok(meta) => Line::Whole(Request::MetaCount(meta)),
        Err(refusal @ (Refusal::LongOpaque | Refusal::TooManyFlags)) => refused(refusal),
        // memcached gives one reason for all errors in flags.
        Err(_) => refused(Refusal::BadFlag),
    }
}

/// Parses `ms <key> <bytes> <flags>*`. The value is swallowed after an error if its length can be read.
pub(super) fn store(mut rest: &[u8]) -> Line<'_> {
    let Some(key) = word(&mut rest) else { return refused(Refusal::NoCommand) };
    let Some(bytes) = word(&mut rest).and_then(length) else { return refused(Refusal::BadFormat) };
    let refused = |refusal| Line::Refused { refusal, noreply: false, value: Some(bytes) };
    if !is_key(key) {
        return refused(Refusal::BadFormat);
    }
    match parse(key, rest, 3).map(|meta| (meta.verb(), meta)) {
        Ok((Some(verb), meta)) => Line::WithValue(Header { of: Storing::Meta { verb, meta }, bytes }),
        Ok((None, _)) => refused(Refusal::BadStoreMode),
        Err(refusal) => refused(refusal),
    }
}

/// Parses `me <key> [b]`. Further words are ignored.
pub(super) fn debug(mut rest: &[u8]) -> Line<'_> {
    let (key, flag) = (word(&mut rest).unwrap_or_default(), word(&mut rest));
    let flags: &[u8] = if flag == Some(b"b") { b"b" } else { b"" };
    match parse(key, flags, 2) {
        Ok(meta) if is_key(key) => Line::Whole(Request::MetaDebug(meta)),
        _ => refused(Refusal::BadFormat),
    }
}

fn refused<'a>(refusal: Refusal) -> Line<'a> {
    Line::Refused { refusal, noreply: false, value: None }
}

/// Returns the key and the words behind it.
fn begin(mut rest: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    match word(&mut rest) {
        None => Err(Refusal::NoCommand),
        Some(key) if is_key(key) => Ok((key, rest)),
        Some(_) => Err(Refusal::BadFormat),
    }
}

/// Parses the flags, which have `before` words before them. Errors are memcached's: a flag that is unknown or
/// comes twice ends the search, and of other errors the last one counts.
fn parse<'a>(key: &'a [u8], words: &'a [u8], before: usize) -> Result<Meta<'a>, Refusal> {
    let mut meta = Meta { sent_key: key, words, options: Options::default() };
    let flags = || Meta { sent_key: key, words, options: Options::default() }.flags();
    if before + flags().take(WORDS_MAX).count() > WORDS_MAX {
        return Err(Refusal::TooManyFlags);
    }
    let (mut seen, mut wrong) = (0_u128, None);
    for (letter, token) in flags() {
        if letter >= 127 || seen & 1 << letter != 0 {
            return Err(Refusal::TwiceFlag);
        }
        seen |= 1 << letter;
        match meta.options.note(letter, token, key) {
            Ok(()) => {}
            Err(Refusal::NoFlag) => return Err(Refusal::NoFlag),
            Err(Refusal::LongOpaque) if wrong.is_some() => {}
            Err(refusal) => wrong = Some(refusal),
        }
    }
    wrong.map_or(Ok(meta), Err)
}

impl Options {
    fn note(&mut self, letter: u8, token: &[u8], key: &[u8]) -> Result<(), Refusal> {
        let time = || number::<i64>(token).ok_or(Refusal::BadToken);
        let unique = || number::<u64>(token).ok_or(Refusal::BadToken);
        match letter {
            b'b' => {
                self.is_binary = true;
                let is_key = base64::decode(key, &mut [0; DECODED_BYTES_MAX]).is_some();
                return if is_key { Ok(()) } else { Err(Refusal::BadBase64) };
            }
            b'v' => self.wants_value = true,
            b'q' => self.is_quiet = true,
            b'u' => self.is_unnoticed = true,
            b'I' => self.invalidates = true,
            b'x' => self.removes_value = true,
            b'N' => self.vivify = Some(time()?),
            b'T' => self.exptime = Some(time()?),
            b'R' => self.recache = Some(time()?),
            b'F' => self.client_flags = number(token).ok_or(Refusal::BadFormat)?,
            b'C' => self.cas = Some(unique()?),
            b'E' => self.new_cas = Some(unique()?),
            b'J' => self.initial = number(token).ok_or(Refusal::BadInitial)?,
            b'D' => self.delta = Some(number(token).ok_or(Refusal::BadMetaDelta)?),
            b'M' if token.len() != 1 => return Err(Refusal::BadModeLength),
            b'M' => self.mode = Some(token[0]),
            // Its letter counts.
            b'O' if token.len() >= OPAQUE_BYTES_MAX => return Err(Refusal::LongOpaque),
            // Words for proxies, and flags that only change the answer.
            b'O' | b'P' | b'L' | b'c' | b'f' | b'h' | b'k' | b'l' | b's' | b't' => {}
            _ => return Err(Refusal::NoFlag),
        }
        Ok(())
    }
}
