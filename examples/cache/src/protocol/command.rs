//! Parser of one line.

use super::meta::{self, Meta};
use super::{Header, KEY_BYTES_MAX, Line, Refusal};
use crate::item::ITEM_BYTES;

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// `get`, `gets`; `gat` and `gats` with an expiry time. A long line comes in several parts.
    Get {
        /// The keys. The last part of a long line may be empty.
        keys: Keys<'a>,
        /// Whether the client wants the `cas` number of each value.
        cas: bool,
        /// The new expiry time of the found items, if it is to change.
        exptime: Option<i64>,
        /// Whether the line ends with these keys.
        is_last: bool,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`, `ms`, with a value.
    Store {
        /// The words before the value.
        of: Storing<'a>,
        /// The value.
        data: &'a [u8],
    },
    /// A storing request whose value is swallowed.
    Unstored {
        /// The words before the value.
        of: Storing<'a>,
        /// The reason.
        reason: Unstored,
    },
    /// `mg`.
    MetaGet(Meta<'a>),
    /// `md`.
    MetaDelete(Meta<'a>),
    /// `ma`.
    MetaCount(Meta<'a>),
    /// `me`.
    MetaDebug(Meta<'a>),
    /// `mn`.
    MetaNoOp,
    /// `delete`.
    Delete {
        /// The key.
        key: &'a [u8],
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Count {
        /// The key.
        key: &'a [u8],
        /// Whether it is `incr`.
        up: bool,
        /// The delta.
        by: u64,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// The key.
        key: &'a [u8],
        /// The expiry time.
        exptime: i64,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `flush_all`.
    FlushAll {
        /// The delay in seconds, or a date. Zero or less: at once.
        delay: i64,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `stats`.
    Stats {
        /// The kind of statistics, if it is not the usual one.
        of: Option<&'a [u8]>,
        /// The words behind it.
        words: Keys<'a>,
    },
    /// `version`.
    Version,
    /// `verbosity`.
    Verbosity {
        /// The level.
        level: u32,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `cache_memlimit`.
    MemoryLimit {
        /// The limit in MiB.
        mib: u32,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `quit`.
    Quit,
}

/// A storing request without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storing<'a> {
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Plain {
        /// The command.
        verb: Verb,
        /// The key.
        key: &'a [u8],
        /// The client's own flags.
        flags: u32,
        /// The expiry time.
        exptime: i64,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `ms`.
    Meta {
        /// The way the value is stored.
        verb: Verb,
        /// The key and the flags.
        meta: Meta<'a>,
    },
}

impl Storing<'_> {
    /// Whether the client wants no answer, not even to an error.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self, Storing::Plain { noreply: true, .. })
    }

    /// Returns the size that memcached adds to the value when it compares an item with its size limit.
    pub(super) fn item_bytes(&self) -> usize {
        let (key, flags) = match self {
            Storing::Plain { key, flags, .. } => (key.len(), *flags),
            Storing::Meta { meta, .. } => (meta.key_bytes(), meta.options.client_flags),
        };
        ITEM_BYTES + key + if flags == 0 { 0 } else { size_of::<u32>() }
    }
}

/// The reason why a value is not stored, and is swallowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstored {
    /// The item would exceed the size limit.
    TooLarge,
    /// The value cannot be received within the memory limit.
    NoMemory,
}

/// The way a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Always.
    Set,
    /// If the key is absent.
    Add,
    /// If the key is present.
    Replace,
    /// Behind the present value.
    Append,
    /// Before the present value.
    Prepend,
    /// If the present value still has this number.
    Cas(u64),
}

/// Words of a line, such as the keys of a `get`, which have 1 to 250 bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a>(&'a [u8]);

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        word(&mut self.0)
    }
}

/// Returns the next word. Spaces separate words, and no other byte is special.
pub(super) fn word<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let begin = rest.iter().position(|b| *b != b' ')?;
    let from = &rest[begin..];
    let end = from.iter().position(|b| *b == b' ').unwrap_or(from.len());
    let (word, after) = from.split_at(end);
    *rest = after;
    Some(word)
}

/// The least limit that `cache_memlimit` may set. With less, no value could be stored.
const MEMORY_MIB_MIN: u32 = 8;
/// Number of words of the longest command: a `cas` with `noreply`.
const WORDS_MAX: usize = 7;

/// The words behind a command's name.
struct Words<'a> {
    words: [&'a [u8]; WORDS_MAX],
    /// Number of words. One more than there is room for stands for any larger number.
    count: usize,
    /// Whether the last word is `noreply`. It is not counted then.
    noreply: bool,
}

impl<'a> Words<'a> {
    fn of(mut rest: &'a [u8]) -> Words<'a> {
        let (mut words, mut count) = ([&b""[..]; WORDS_MAX], 0);
        while count <= WORDS_MAX
            && let Some(word) = word(&mut rest)
        {
            if count < WORDS_MAX {
                words[count] = word;
            }
            count += 1;
        }
        let noreply = (1..=WORDS_MAX).contains(&count) && words[count - 1] == b"noreply";
        Words { words, count: count - usize::from(noreply), noreply }
    }

    /// Returns the number of words with `noreply`.
    fn all(&self) -> usize {
        self.count + usize::from(self.noreply)
    }

    fn refuse(&self, refusal: Refusal) -> Line<'a> {
        Line::Refused { refusal, noreply: self.noreply, value: None }
    }
}

fn no_command<'a>() -> Line<'a> {
    Line::Refused { refusal: Refusal::NoCommand, noreply: false, value: None }
}

/// Parses a line without its end.
pub(super) fn parse(line: &[u8]) -> Line<'_> {
    if let Some((parsed, rest)) = retrieval(line) {
        return get(parsed, rest);
    }
    let mut rest = line;
    let Some(name) = word(&mut rest) else { return no_command() };
    match name {
        b"set" => store(Verb::Set, rest),
        b"add" => store(Verb::Add, rest),
        b"replace" => store(Verb::Replace, rest),
        b"append" => store(Verb::Append, rest),
        b"prepend" => store(Verb::Prepend, rest),
        // The number is parsed with the other words.
        b"cas" => store(Verb::Cas(0), rest),
        b"delete" => delete(&Words::of(rest)),
        b"incr" => count(&Words::of(rest), true),
        b"decr" => count(&Words::of(rest), false),
        b"touch" => touch(&Words::of(rest)),
        b"flush_all" => flush_all(&Words::of(rest)),
        b"stats" => {
            let of = word(&mut rest);
            Line::Whole(Request::Stats { of, words: Keys(rest) })
        }
        b"version" => Line::Whole(Request::Version),
        b"verbosity" => level(&Words::of(rest), Refusal::BadFormat, |level, noreply| Request::Verbosity {
            level,
            noreply,
        }),
        b"cache_memlimit" => {
            let words = Words::of(rest);
            match level(&words, Refusal::NoCommand, |mib, noreply| Request::MemoryLimit { mib, noreply }) {
                Line::Whole(Request::MemoryLimit { mib, noreply }) if mib < MEMORY_MIB_MIN => {
                    Line::Refused { refusal: Refusal::TooLittleMemory, noreply, value: None }
                }
                line => line,
            }
        }
        b"mg" => meta::with_key(rest, Request::MetaGet),
        b"ms" => meta::store(rest),
        b"md" => meta::with_key(rest, Request::MetaDelete),
        b"ma" => meta::count(rest),
        b"me" => meta::debug(rest),
        b"mn" => Line::Whole(Request::MetaNoOp),
        b"quit" => Line::Whole(Request::Quit),
        // A browser came here by mistake. Its other lines are not meant for a cache.
        _ if line.rsplit(|byte| *byte == b' ').next().is_some_and(|last| last.starts_with(b"HTTP/")) => {
            Line::Whole(Request::Quit)
        }
        _ => no_command(),
    }
}

/// The words of a `get` before its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retrieval {
    pub(super) cas: bool,
    pub(super) exptime: Option<i64>,
}

/// Parses the words before the keys if the line is a `get`, `gets`, `gat` or `gats`. Returns the rest of the
/// line, too. Its last word may be incomplete.
pub(super) fn retrieval(mut line: &[u8]) -> Option<(Result<Retrieval, Refusal>, &[u8])> {
    let (cas, touches) = match word(&mut line)? {
        b"get" => (false, false),
        b"gets" => (true, false),
        b"gat" => (false, true),
        b"gats" => (true, true),
        _ => return None,
    };
    let exptime = if touches { word(&mut line).map(number) } else { None };
    let parsed = match exptime {
        Some(None) => Err(Refusal::BadExptime),
        exptime => Ok(Retrieval { cas, exptime: exptime.flatten() }),
    };
    Some((parsed, line))
}

/// Parses the keys.
fn get<'a>(parsed: Result<Retrieval, Refusal>, rest: &'a [u8]) -> Line<'a> {
    let refused = |refusal| Line::Refused { refusal, noreply: false, value: None };
    let mut keys = Keys(rest).peekable();
    if keys.peek().is_none() {
        return refused(Refusal::NoCommand);
    }
    match parsed {
        Err(refusal) => refused(refusal),
        // Before any answer.
        Ok(_) if !keys.all(is_key) => refused(Refusal::BadFormat),
        Ok(Retrieval { cas, exptime }) => {
            Line::Whole(Request::Get { keys: Keys(rest), cas, exptime, is_last: true })
        }
    }
}

/// Parses a part of the keys of a long line, up to the first that is too long. Returns the number of bytes up
/// to that key, if there is such a key.
pub(super) fn keys(part: &[u8]) -> (Keys<'_>, Option<usize>) {
    let mut rest = part;
    loop {
        let before = part.len() - rest.len();
        match word(&mut rest) {
            Some(key) if is_key(key) => {}
            Some(_) => return (Keys(&part[..before]), Some(before)),
            None => return (Keys(part), None),
        }
    }
}

/// Parses the length of a value. One beyond any machine's memory is rejected.
pub(super) fn length(word: &[u8]) -> Option<usize> {
    number::<u32>(word).filter(|bytes| *bytes <= i32::MAX as u32 - 2).map(|bytes| bytes as usize)
}

/// Parses `<key> <flags> <exptime> <bytes> [<cas>] [noreply]`.
fn store(verb: Verb, rest: &[u8]) -> Line<'_> {
    let words = Words::of(rest);
    let [key, flags, exptime, bytes, unique, ..] = words.words;
    let value = length(bytes).filter(|_| words.count >= 4);
    // Like memcached, allows one word more. A `cas` without its number has the wrong format.
    let most = if matches!(verb, Verb::Cas(_)) { 6 } else { 5 };
    if words.count < 4 || words.all() > most {
        return Line::Refused { refusal: Refusal::NoCommand, noreply: false, value };
    }
    let Some(bytes) = value else { return words.refuse(Refusal::BadFormat) };
    let refused = Line::Refused { refusal: Refusal::BadFormat, noreply: words.noreply, value };
    let (Some(flags), Some(exptime), true) = (number(flags), number(exptime), is_key(key)) else {
        return refused;
    };
    let verb = match verb {
        Verb::Cas(_) => match number(unique) {
            Some(unique) => Verb::Cas(unique),
            None => return refused,
        },
        verb => verb,
    };
    let of = Storing::Plain { verb, key, flags, exptime, noreply: words.noreply };
    Line::WithValue(Header { of, bytes })
}

fn delete<'a>(words: &Words<'a>) -> Line<'a> {
    let [key, time, ..] = words.words;
    match words.count {
        // A key that looks like the word `noreply`.
        0 if words.noreply => Line::Whole(Request::Delete { key, noreply: false }),
        1 if !is_key(key) => words.refuse(Refusal::BadFormat),
        // Old protocols had a time here; old clients still send 0.
        2 if time == b"0" && is_key(key) => Line::Whole(Request::Delete { key, noreply: words.noreply }),
        1 => Line::Whole(Request::Delete { key, noreply: words.noreply }),
        2 | 3 if words.all() <= 3 => words.refuse(Refusal::BadDelete),
        _ => no_command(),
    }
}

/// Parses `<key> <number> [noreply]`. `bad` is the reason if the number is no number.
fn with_number<'a, T: std::str::FromStr>(
    words: &Words<'a>,
    bad: Refusal,
    request: impl FnOnce(&'a [u8], T, bool) -> Request<'a>,
) -> Line<'a> {
    let [key, by, ..] = words.words;
    // Like memcached, allows one word more.
    match words.all() {
        2 | 3 if words.count == 0 || !is_key(key) => words.refuse(Refusal::BadFormat),
        2 | 3 => match number(if words.count > 1 { by } else { b"" }) {
            Some(number) => Line::Whole(request(key, number, words.noreply)),
            None => words.refuse(bad),
        },
        _ => no_command(),
    }
}

fn count<'a>(words: &Words<'a>, up: bool) -> Line<'a> {
    with_number(words, Refusal::BadDelta, |key, by, noreply| Request::Count { key, up, by, noreply })
}

fn touch<'a>(words: &Words<'a>) -> Line<'a> {
    with_number(words, Refusal::BadExptime, |key, exptime, noreply| Request::Touch { key, exptime, noreply })
}

fn flush_all<'a>(words: &Words<'a>) -> Line<'a> {
    let noreply = words.noreply;
    match (words.count, number(words.words[0])) {
        _ if words.all() > 2 => no_command(),
        (0, _) => Line::Whole(Request::FlushAll { delay: 0, noreply }),
        (_, Some(delay)) => Line::Whole(Request::FlushAll { delay, noreply }),
        (_, None) => words.refuse(Refusal::BadExptime),
    }
}

/// Parses a command with one number.
fn level<'a>(words: &Words<'a>, bad: Refusal, request: fn(u32, bool) -> Request<'a>) -> Line<'a> {
    match (words.count, number(words.words[0])) {
        _ if !(1..=2).contains(&words.all()) => no_command(),
        (0, _) | (_, None) => words.refuse(bad),
        (_, Some(level)) => Line::Whole(request(level, words.noreply)),
    }
}

pub(super) fn is_key(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len())
}

/// Parses a word as a number of this type.
pub(crate) fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}
