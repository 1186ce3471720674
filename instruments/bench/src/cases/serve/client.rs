//! One connection, which sends a request and waits for its answer.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::case::Variant;
use crate::cases::map::zipf;

/// Number of keys, all of them present.
const KEYS: u64 = 10_000;
/// Number of drawn requests; a power of two.
const DRAWN: usize = 1 << 17;
/// An answer that takes longer will never come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Mix of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) value_bytes: usize,
    /// Number of `set` requests in a hundred; the others are `get`.
    pub(super) sets_of_100: u64,
}

impl Load {
    /// The mix named by a variant.
    pub(super) fn of(variant: &Variant) -> Load {
        match variant.name {
            "100b-50-50" => Load { value_bytes: 100, sets_of_100: 50 },
            "4k-90-10" => Load { value_bytes: 4096, sets_of_100: 10 },
            _ => Load { value_bytes: 100, sets_of_100: 10 },
        }
    }
}

/// Requests, drawn beforehand.
pub(super) struct Script {
    load: Load,
    /// Twice the key's number, plus one for a `set`.
    drawn: Vec<u32>,
    /// Bytes after the key's number in each value.
    filler: Vec<u8>,
}

impl Script {
    pub(super) fn new(load: Load) -> Arc<Script> {
        let key = zipf(KEYS);
        // The order of kinds is unrelated to that of the keys: Weyl's sequence by the golden ratio.
        let is_set = |i: u64| ((i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) * 100) >> 32 < load.sets_of_100;
        let drawn = (0..DRAWN as u64).map(|i| (key(i) as u32) << 1 | u32::from(is_set(i))).collect();
        Arc::new(Script { load, drawn, filler: vec![b'v'; load.value_bytes - NUMBER_BYTES] })
    }

    /// The text of a key, which also begins its value.
    fn number(&self, key: u32) -> [u8; NUMBER_BYTES] {
        let mut digits = *b"00000000";
        let mut rest = key;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        digits
    }

    fn value(&self, key: u32, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.number(key));
        into.extend_from_slice(&self.filler);
        into.extend_from_slice(b"\r\n");
    }

    fn set(&self, key: u32, noreply: &str, into: &mut Vec<u8>) {
        into.extend_from_slice(b"set key:");
        into.extend_from_slice(&self.number(key));
        // Writing to a vector does not fail.
        let _ = write!(into, " 0 0 {}{noreply}\r\n", self.load.value_bytes);
        self.value(key, into);
    }

    fn answer_to_get(&self, key: u32, into: &mut Vec<u8>) {
        into.extend_from_slice(b"VALUE key:");
        into.extend_from_slice(&self.number(key));
        let _ = write!(into, " 0 {}\r\n", self.load.value_bytes);
        self.value(key, into);
        into.extend_from_slice(b"END\r\n");
    }
}

/// Digits of a key's number.
const NUMBER_BYTES: usize = 8;

/// A connection.
pub(super) struct Client {
    stream: TcpStream,
    script: Arc<Script>,
    /// Index of the next request.
    at: usize,
    request: Vec<u8>,
    expected: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    /// Makes connection `index`; each begins elsewhere in the script.
    pub(super) fn new(address: SocketAddr, script: &Arc<Script>, index: usize) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (request, expected, answer) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Client { stream, script: script.clone(), at: index * (DRAWN / 7), request, expected, answer })
    }

    /// Inserts all keys.
    pub(super) fn fill(&mut self) -> io::Result<()> {
        self.request.clear();
        for key in 0..KEYS as u32 {
            self.script.set(key, " noreply", &mut self.request);
            if self.request.len() > 1 << 16 || key + 1 == KEYS as u32 {
                self.stream.write_all(&self.request)?;
                self.request.clear();
            }
        }
        // Answered once all earlier requests are done.
        self.request.extend_from_slice(b"verbosity 0\r\n");
        self.expected.clear();
        self.expected.extend_from_slice(b"OK\r\n");
        self.exchange()
    }

    /// Sends one request and reads its answer.
    pub(super) fn ask(&mut self) -> io::Result<()> {
        let drawn = self.script.drawn[self.at % DRAWN];
        self.at += 1;
        let key = drawn >> 1;
        self.request.clear();
        self.expected.clear();
        if drawn & 1 == 1 {
            self.script.set(key, "", &mut self.request);
            self.expected.extend_from_slice(b"STORED\r\n");
        } else {
            self.request.extend_from_slice(b"get key:");
            self.request.extend_from_slice(&self.script.number(key));
            self.request.extend_from_slice(b"\r\n");
            self.script.answer_to_get(key, &mut self.expected);
        }
        self.exchange()
    }

    /// Sends the request, and waits for the expected answer.
    fn exchange(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.request)?;
        self.answer.resize(self.expected.len(), 0);
        let mut came = 0;
        while came < self.expected.len() {
            let read = self.stream.read(&mut self.answer[came..])?;
            came += read;
            // Fails at the first wrong byte: the rest of the answer may never come.
            if read == 0 || self.answer[..came] != self.expected[..came] {
                let said = String::from_utf8_lossy(&self.answer[..came.min(100)]).into_owned();
                return Err(io::Error::other(format!("a wrong answer: {said:?}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_proportions_of_the_load() {
        for sets_of_100 in [10, 50] {
            let script = Script::new(Load { value_bytes: 100, sets_of_100 });
            let sets = script.drawn.iter().filter(|drawn| **drawn & 1 == 1).count() as f64;
            assert!((sets / DRAWN as f64 - sets_of_100 as f64 / 100.0).abs() < 0.005);
            assert!(script.drawn.iter().all(|drawn| u64::from(drawn >> 1) < KEYS));
        }
    }

    #[test]
    fn requests_and_answers_have_their_form() {
        let script = Script::new(Load { value_bytes: 10, sets_of_100: 0 });
        let (mut set, mut answer) = (Vec::new(), Vec::new());
        script.set(123, "", &mut set);
        script.answer_to_get(123, &mut answer);
        assert_eq!(set, b"set key:00000123 0 0 10\r\n00000123vv\r\n");
        assert_eq!(answer, b"VALUE key:00000123 0 10\r\n00000123vv\r\nEND\r\n");
    }
}
