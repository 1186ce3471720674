//! The bytes of a connection: a hello in each direction, then frames.
//!
//! A hello is [`MAGIC`], the length of an endpoint in one byte, and the endpoint. A frame is its length in
//! four bytes, lowest first, and its content.
//!
//! - I1. A buffer grows only when it is full of received bytes. So a length that a sender claims costs no
//!   memory before the bytes are there.

use std::net::SocketAddr;

/// The first bytes of a hello: the protocol and its version.
pub(crate) const MAGIC: [u8; 8] = *b"squalln1";
/// The first bytes of a greeting on an encrypted connection: the protocol and its version.
pub(crate) const SEALED_MAGIC: [u8; 8] = *b"squallx2";
/// The bytes of a hello before the endpoint.
const HELLO_HEAD: usize = MAGIC.len() + 1;
/// The longest endpoint in a hello, in bytes. An address of version 6 with a scope and a port needs 62.
const ENDPOINT_BYTES_MAX: usize = 64;
/// The most bytes of a hello.
pub(crate) const HELLO_BYTES_MAX: usize = HELLO_HEAD + ENDPOINT_BYTES_MAX;
/// The bytes before a frame's content.
pub(crate) const LENGTH_BYTES: usize = 4;
/// The first size of a buffer, in bytes. A buffer that grew beyond four times this shrinks when it is empty.
const BUFFER_BYTES: usize = 16 << 10;
/// How the endpoints of this transport begin.
const SCHEME: &str = "tcp/";

/// Whether bytes begin as those of the other kind of connection do: `magic` is the one that was expected.
pub(crate) fn is_other_kind(magic: [u8; 8], bytes: &[u8]) -> bool {
    [MAGIC, SEALED_MAGIC].iter().any(|known| *known != magic && bytes.starts_with(known))
}

/// The bytes are no greeting of this version, announce a frame beyond the limit, or do not open with the keys
/// of their connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// Writes an address as an endpoint.
pub(crate) fn endpoint(address: SocketAddr) -> String {
    format!("{SCHEME}{address}")
}

/// Reads an endpoint. Returns `None` if the text is not one of this transport: names of hosts are not looked
/// up.
pub(crate) fn address(endpoint: &str) -> Option<SocketAddr> {
    let address: SocketAddr = endpoint.strip_prefix(SCHEME)?.parse().ok()?;
    (address.port() != 0 && !address.ip().is_unspecified()).then_some(address)
}

/// Returns whether two addresses are of one endpoint. One of version 4 may be written as one of version 6.
/// The number of an interface in an address is that of one machine alone.
pub(crate) fn same_endpoint(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip().to_canonical(), one.port()) == (other.ip().to_canonical(), other.port())
}

/// Makes the hello of an endpoint.
pub(crate) fn hello(endpoint: &str) -> Vec<u8> {
    let length = u8::try_from(endpoint.len()).unwrap_or(0);
    let mut bytes = MAGIC.to_vec();
    bytes.push(length);
    bytes.extend_from_slice(&endpoint.as_bytes()[..usize::from(length)]);
    bytes
}

/// A hello, or the bytes that it lacks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hello<'a> {
    /// The whole hello, with this endpoint.
    Whole(&'a str),
    /// At least this many bytes are missing.
    Lacks(usize),
}

impl Hello<'_> {
    /// Reads a hello from bytes that end with it, or within it.
    pub(crate) fn read(bytes: &[u8]) -> Result<Hello<'_>, Broken> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(Broken);
        }
        let Some(&length) = bytes.get(MAGIC.len()) else { return Ok(Hello::Lacks(HELLO_HEAD - bytes.len())) };
        let whole = HELLO_HEAD + usize::from(length);
        if whole > HELLO_BYTES_MAX || bytes.len() > whole {
            return Err(Broken);
        }
        if bytes.len() < whole {
            return Ok(Hello::Lacks(whole - bytes.len()));
        }
        str::from_utf8(&bytes[HELLO_HEAD..]).map(Hello::Whole).map_err(|_| Broken)
    }
}

/// The length in front of a frame.
pub(crate) fn length(frame: &[u8]) -> [u8; LENGTH_BYTES] {
    u32::try_from(frame.len()).unwrap_or(u32::MAX).to_le_bytes()
}

/// The received bytes of a connection, cut into frames.
#[derive(Debug)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// The received bytes are `start..end`.
    start: usize,
    end: usize,
    /// The largest frame, in bytes.
    largest: usize,
}

impl Frames {
    pub(crate) fn new(largest: usize) -> Frames {
        Frames { bytes: vec![0; BUFFER_BYTES.min(largest + LENGTH_BYTES)], start: 0, end: 0, largest }
    }

    /// Returns room for further bytes: at least one. To be called only when `next` has found no whole frame.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > 4 * BUFFER_BYTES {
                self.bytes.truncate(BUFFER_BYTES);
                self.bytes.shrink_to_fit();
            }
        }
        if self.end == self.bytes.len() {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            } else {
                // The buffer is smaller than the largest frame, since it would have been whole (I1).
                let size = (2 * self.bytes.len()).min(self.largest + LENGTH_BYTES);
                self.bytes.resize(size, 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// Notes that `count` bytes were received into the room.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// Returns the next whole frame, if it is there.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Broken> {
        let received = &self.bytes[self.start..self.end];
        let Some((length, rest)) = received.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.largest {
            return Err(Broken);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let first = self.start + LENGTH_BYTES;
        self.start = first + length;
        Ok(Some(&self.bytes[first..first + length]))
    }

    #[cfg(test)]
    fn size(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: usize = 100_000;

    fn fill(frames: &mut Frames, mut bytes: &[u8], step: usize) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        while !bytes.is_empty() {
            let room = frames.room();
            let count = step.min(room.len()).min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            frames.filled(count);
            bytes = &bytes[count..];
            while let Some(frame) = frames.next().unwrap() {
                got.push(frame.to_vec());
            }
        }
        got
    }

    #[test]
    fn frames_are_whole_however_the_bytes_are_cut() {
        let sizes = [0, 1, 3, 5000, BUFFER_BYTES - 4, BUFFER_BYTES, LARGEST, 0, 17, LARGEST];
        let sent: Vec<Vec<u8>> = sizes.iter().map(|&size| (0..size).map(|i| i as u8).collect()).collect();
        let bytes: Vec<u8> =
            sent.iter().flat_map(|frame| length(frame).into_iter().chain(frame.iter().copied())).collect();
        for step in [1, 2, 3, 7, 4096, 60_000, usize::MAX] {
            assert_eq!(fill(&mut Frames::new(LARGEST), &bytes, step), sent, "in steps of {step}");
        }
    }

    #[test]
    fn a_claimed_length_costs_no_memory_and_one_beyond_the_limit_is_refused() {
        let mut frames = Frames::new(LARGEST);
        assert!(fill(&mut frames, &(LARGEST as u32).to_le_bytes(), 4).is_empty());
        assert_eq!(frames.size(), BUFFER_BYTES);
        let mut frames = Frames::new(LARGEST);
        frames.room()[..4].copy_from_slice(&(LARGEST as u32 + 1).to_le_bytes());
        frames.filled(4);
        assert_eq!(frames.next(), Err(Broken));
    }

    #[test]
    fn a_buffer_shrinks_after_a_large_frame() {
        let mut frames = Frames::new(LARGEST);
        let frame = vec![1; LARGEST];
        assert_eq!(fill(&mut frames, &[&length(&frame)[..], &frame].concat(), usize::MAX), [frame]);
        assert!(frames.size() >= LARGEST);
        frames.room();
        assert_eq!(frames.size(), BUFFER_BYTES);
    }

    #[test]
    fn a_hello_is_read_from_each_of_its_parts() {
        let whole = hello("tcp/127.0.0.1:7447");
        assert_eq!(Hello::read(&whole), Ok(Hello::Whole("tcp/127.0.0.1:7447")));
        for known in 0..whole.len() {
            let Ok(Hello::Lacks(missing)) = Hello::read(&whole[..known]) else { panic!("{known} bytes") };
            assert!(missing >= 1 && known + missing <= whole.len(), "{known} bytes");
        }
        assert_eq!(Hello::read(&hello("")), Ok(Hello::Whole("")));
    }

    #[test]
    fn other_bytes_are_no_hello() {
        let long = [&MAGIC[..], &[u8::MAX]].concat();
        let not_text = [&MAGIC[..], &[1, 0xff]].concat();
        let more = [&hello("")[..], &[0]].concat();
        for bytes in [&b"GET / HTTP/1.1"[..], b"squalln2", b"t", &long, &not_text, &more] {
            assert_eq!(Hello::read(bytes), Err(Broken), "{bytes:?}");
        }
    }

    #[test]
    fn an_endpoint_is_an_address_that_can_be_dialled() {
        for text in ["127.0.0.1:1", "[::1]:65535", "[fe80::1%3]:80"] {
            let known: SocketAddr = text.parse().unwrap();
            assert_eq!(address(&endpoint(known)), Some(known));
            assert!(endpoint(known).len() <= ENDPOINT_BYTES_MAX);
        }
        for text in
            ["", "tcp/", "127.0.0.1:1", "tcp/localhost:1", "tcp/0.0.0.0:1", "tcp/1.2.3.4:0", "udp/1.2.3.4:1"]
        {
            assert_eq!(address(text), None, "{text:?}");
        }
    }
}
