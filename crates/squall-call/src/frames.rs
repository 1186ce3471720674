//! Frames: the messages that open a connection over a Unix socket, and ask for workers.
//!
//! Problem: the peer may be hostile, or another version of this crate. Any bytes must decode to a frame or to
//! an error that says what is wrong.
//!
//! - I1. Each frame begins with `MAGIC`, then a byte for the version and one for the kind. Every version
//!   keeps this, so that another version is recognised.
//! - I2. A decoded frame keeps the bounds of its fields. Texts are read in place, so decoding allocates no
//!   memory.
//!
//! ```text
//! byte  0  MAGIC
//!       2  VERSION
//!       3  kind     1 Hello, 2 Welcome, 3 Refusal, 4 Wake, 5 Differs
//!       4  body     the fields in their order, in the format of postcard
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::layout::{REGION_SLOTS, REGIONS_MAX};

/// The first two bytes of each frame.
const MAGIC: [u8; 2] = *b"Sq";
/// Version of the frames, and of the protocol of segments.
pub const VERSION: u8 = 1;
/// Bytes of a frame before its body.
const HEAD_BYTES: usize = 4;
/// Largest size of a frame in bytes.
pub const FRAME_BYTES_MAX: usize = 32 * 1024;
/// Largest length in bytes of the name of an interface.
pub const INTERFACE_BYTES_MAX: usize = 256;
/// Largest length in bytes of the signature of an interface.
pub const SIGNATURE_BYTES_MAX: usize = 24 * 1024;

const _: () = assert!(HEAD_BYTES + INTERFACE_BYTES_MAX + SIGNATURE_BYTES_MAX + 64 < FRAME_BYTES_MAX);

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The client's first frame.
    Hello(Hello<'a>),
    /// The server accepts the client. The segment's file comes with the frame.
    Welcome(Welcome),
    /// The server refuses the client, and hangs up.
    Refusal(Refusal),
    /// The client called in a slot without a worker.
    Wake(Wake),
    /// The server refuses the client, since it exports this other interface, and hangs up.
    Differs(Differs<'a>),
}

/// The interface that a client expects, and the size of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello<'a> {
    /// Name of the interface, for people.
    pub interface: &'a str,
    /// Hash of the signature.
    pub schema: u64,
    /// Methods, with the types of their arguments and results.
    pub signature: &'a str,
    /// Regions that the segment shall have: the VPs of the client.
    pub regions: u32,
}

/// The exported object, and the size of the segment that comes with the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Id of the exported object.
    pub object: u64,
    /// Methods that this client may call: bit `n` stands for method `n`.
    pub methods: u64,
    /// Regions of the segment.
    pub regions: u32,
}

/// A request for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// Index of the slot in the segment.
    pub slot: u32,
}

/// The interface that a server exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differs<'a> {
    /// Methods, with the types of their arguments and results.
    pub signature: &'a str,
}

/// Reason of a server to refuse a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// The frames of the client have another version.
    Version,
    /// The client expects another interface, or another version of it.
    Schema,
    /// The export excludes the user of the client.
    Denied,
    /// The export has as many clients as it allows, or the server lacks memory or descriptors.
    Busy,
    /// The export has ended.
    Ended,
    /// The client sent a frame that the server cannot read, or not expect.
    Malformed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Version => {
                "the server uses another version of squall-call: build both programs with the same version"
            }
            Refusal::Schema => {
                "the server's interface differs: build both programs from the same definition of the trait"
            }
            Refusal::Denied => {
                "the server excludes this user: run the client as an allowed user, or allow this one at the export"
            }
            Refusal::Busy => "the server has too many clients or too little memory: try again later",
            Refusal::Ended => "the server ended the export: import the object again once it is exported",
            Refusal::Malformed => "the server could not read this client's request: it may be another program",
        })
    }
}

/// Reason why bytes are no frame, or why a frame cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// The bytes do not begin like a frame.
    NoFrame,
    /// The frame has this other version.
    Version(u8),
    /// The frame has this unknown kind.
    Kind(u8),
    /// The body is not one of its kind, or more bytes follow it.
    Body,
    /// A part of the frame is longer than allowed.
    TooLong {
        /// Name of the part.
        part: &'static str,
        /// Its length in bytes.
        bytes: usize,
        /// Largest length in bytes.
        bytes_max: usize,
    },
    /// The frame has a number of regions that no segment has.
    Regions(u32),
    /// The frame has the index of a slot that no segment has.
    Slot(u32),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::NoFrame => {
                f.write_str("the peer does not speak squall-call: check the name of the export")
            }
            FrameError::Version(version) => write!(
                f,
                "the peer speaks version {version} of squall-call and this program version {VERSION}: build \
                 both with the same version"
            ),
            FrameError::Kind(kind) => write!(f, "the peer sent a frame of the unknown kind {kind}"),
            FrameError::Body => f.write_str("the peer sent a frame with a malformed body"),
            FrameError::TooLong { part, bytes, bytes_max } => {
                write!(f, "a frame's {part} has {bytes} bytes, and at most {bytes_max} are allowed")
            }
            FrameError::Regions(regions) => {
                write!(f, "a frame has {regions} regions, and a segment has 1 to {REGIONS_MAX}")
            }
            FrameError::Slot(slot) => write!(f, "a frame names slot {slot}, which no segment has"),
        }
    }
}

impl std::error::Error for FrameError {}

impl<'a> Frame<'a> {
    /// Returns the bytes of the frame.
    ///
    /// # Errors
    /// [`FrameError`] if a field is out of its bounds.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        self.check()?;
        let bytes = vec![MAGIC[0], MAGIC[1], VERSION, self.kind()];
        let all = match self {
            Frame::Hello(hello) => postcard::to_extend(hello, bytes),
            Frame::Welcome(welcome) => postcard::to_extend(welcome, bytes),
            Frame::Refusal(refusal) => postcard::to_extend(refusal, bytes),
            Frame::Wake(wake) => postcard::to_extend(wake, bytes),
            Frame::Differs(differs) => postcard::to_extend(differs, bytes),
        };
        all.map_err(|_| FrameError::Body)
    }

    /// Reads a frame. The bytes may come from a hostile peer.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are not exactly one frame of this version within its bounds.
    pub fn decode(bytes: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        let (head, body) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(FrameError::NoFrame)?;
        let [magic_0, magic_1, version, kind] = *head;
        if [magic_0, magic_1] != MAGIC {
            return Err(FrameError::NoFrame);
        }
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        at_most("content", bytes.len(), FRAME_BYTES_MAX)?;
        let frame = match kind {
            1 => Frame::Hello(whole(body)?),
            2 => Frame::Welcome(whole(body)?),
            3 => Frame::Refusal(whole(body)?),
            4 => Frame::Wake(whole(body)?),
            5 => Frame::Differs(whole(body)?),
            _ => return Err(FrameError::Kind(kind)),
        };
        frame.check()?;
        Ok(frame)
    }

    fn kind(&self) -> u8 {
        match self {
            Frame::Hello(_) => 1,
            Frame::Welcome(_) => 2,
            Frame::Refusal(_) => 3,
            Frame::Wake(_) => 4,
            Frame::Differs(_) => 5,
        }
    }

    /// Checks the bounds of the fields (I2).
    fn check(&self) -> Result<(), FrameError> {
        let regions = match self {
            Frame::Hello(hello) => {
                at_most("name of an interface", hello.interface.len(), INTERFACE_BYTES_MAX)?;
                at_most("signature", hello.signature.len(), SIGNATURE_BYTES_MAX)?;
                hello.regions
            }
            Frame::Welcome(welcome) => welcome.regions,
            Frame::Refusal(_) => return Ok(()),
            Frame::Differs(Differs { signature }) => {
                return at_most("signature", signature.len(), SIGNATURE_BYTES_MAX);
            }
            Frame::Wake(Wake { slot }) if *slot < REGIONS_MAX * REGION_SLOTS => return Ok(()),
            Frame::Wake(Wake { slot }) => return Err(FrameError::Slot(*slot)),
        };
        if (1..=REGIONS_MAX).contains(&regions) { Ok(()) } else { Err(FrameError::Regions(regions)) }
    }
}

/// Reads a value that takes all the bytes.
fn whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(FrameError::Body),
    }
}

fn at_most(part: &'static str, bytes: usize, bytes_max: usize) -> Result<(), FrameError> {
    if bytes <= bytes_max { Ok(()) } else { Err(FrameError::TooLong { part, bytes, bytes_max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame<'static>> {
        let hello = Hello { interface: "Counter", schema: u64::MAX, signature: "Counter{}", regions: 1 };
        vec![
            Frame::Hello(hello),
            Frame::Hello(Hello { interface: "", schema: 0, signature: "", regions: REGIONS_MAX }),
            Frame::Welcome(Welcome { object: u64::MAX, methods: 5, regions: 64 }),
            Frame::Refusal(Refusal::Version),
            Frame::Refusal(Refusal::Schema),
            Frame::Refusal(Refusal::Denied),
            Frame::Refusal(Refusal::Busy),
            Frame::Refusal(Refusal::Ended),
            Frame::Refusal(Refusal::Malformed),
            Frame::Wake(Wake { slot: 0 }),
            Frame::Wake(Wake { slot: REGIONS_MAX * REGION_SLOTS - 1 }),
            Frame::Differs(Differs { signature: "Counter{}" }),
        ]
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        for frame in frames() {
            let bytes = frame.encode().unwrap();
            assert_eq!(Frame::decode(&bytes), Ok(frame));
        }
    }

    #[test]
    fn the_bytes_of_each_kind_stay_the_same() {
        let hello = Hello { interface: "C", schema: 300, signature: "S{}", regions: 2 };
        let welcome = Welcome { object: 1, methods: 3, regions: 128 };
        let expected: [(Frame<'_>, &[u8]); 5] = [
            (Frame::Hello(hello), b"Sq\x01\x01\x01C\xAC\x02\x03S{}\x02"),
            (Frame::Welcome(welcome), b"Sq\x01\x02\x01\x03\x80\x01"),
            (Frame::Refusal(Refusal::Denied), b"Sq\x01\x03\x02"),
            (Frame::Wake(Wake { slot: 16 }), b"Sq\x01\x04\x10"),
            (Frame::Differs(Differs { signature: "S{}" }), b"Sq\x01\x05\x03S{}"),
        ];
        for (frame, bytes) in expected {
            assert_eq!(frame.encode().unwrap(), bytes);
        }
    }

    #[test]
    fn every_shorter_or_longer_frame_is_an_error() {
        for frame in frames() {
            let mut bytes = frame.encode().unwrap();
            for length in 0..bytes.len() {
                let expected = if length < HEAD_BYTES { FrameError::NoFrame } else { FrameError::Body };
                assert_eq!(Frame::decode(&bytes[..length]), Err(expected), "{length} bytes of {frame:?}");
            }
            bytes.push(0);
            assert_eq!(Frame::decode(&bytes), Err(FrameError::Body));
        }
    }

    #[test]
    fn another_beginning_version_or_kind_is_an_error_of_its_own() {
        assert_eq!(Frame::decode(b"GET / HTTP/1.1\r\n\r\n"), Err(FrameError::NoFrame));
        assert_eq!(Frame::decode(b"Sq\x02\x01newer"), Err(FrameError::Version(2)));
        assert_eq!(Frame::decode(b"Sq\x01\x00"), Err(FrameError::Kind(0)));
        assert_eq!(Frame::decode(b"Sq\x01\x06"), Err(FrameError::Kind(6)));
        assert_eq!(Frame::decode(b"Sq\x01\x03\x06"), Err(FrameError::Body));
        let text = FrameError::Version(2).to_string();
        assert!(text.contains("version 2") && text.contains("version 1"));
    }

    #[test]
    fn fields_out_of_bounds_are_errors_in_both_directions() {
        let hello = Hello { interface: "C", schema: 0, signature: "S", regions: 1 };
        let name = "n".repeat(INTERFACE_BYTES_MAX + 1);
        let signature = "s".repeat(SIGNATURE_BYTES_MAX + 1);
        let longest = Hello { interface: &name[1..], signature: &signature[1..], ..hello };
        let longest = Frame::Hello(longest).encode().unwrap();
        assert!(longest.len() < FRAME_BYTES_MAX && Frame::decode(&longest).is_ok());
        let too_long = |part, bytes, bytes_max| FrameError::TooLong { part, bytes, bytes_max };
        let cases = [
            (
                Frame::Hello(Hello { interface: &name, ..hello }),
                too_long("name of an interface", name.len(), INTERFACE_BYTES_MAX),
            ),
            (
                Frame::Hello(Hello { signature: &signature, ..hello }),
                too_long("signature", signature.len(), SIGNATURE_BYTES_MAX),
            ),
            (
                Frame::Differs(Differs { signature: &signature }),
                too_long("signature", signature.len(), SIGNATURE_BYTES_MAX),
            ),
            (Frame::Hello(Hello { regions: 0, ..hello }), FrameError::Regions(0)),
            (Frame::Hello(Hello { regions: REGIONS_MAX + 1, ..hello }), FrameError::Regions(REGIONS_MAX + 1)),
            (
                Frame::Welcome(Welcome { object: 0, methods: 0, regions: u32::MAX }),
                FrameError::Regions(u32::MAX),
            ),
            (
                Frame::Wake(Wake { slot: REGIONS_MAX * REGION_SLOTS }),
                FrameError::Slot(REGIONS_MAX * REGION_SLOTS),
            ),
        ];
        for (frame, expected) in cases {
            assert_eq!(frame.encode(), Err(expected.clone()));
            // A peer does not check.
            let mut bytes = vec![MAGIC[0], MAGIC[1], VERSION, frame.kind()];
            bytes.extend(match &frame {
                Frame::Hello(hello) => postcard::to_allocvec(hello).unwrap(),
                Frame::Welcome(welcome) => postcard::to_allocvec(welcome).unwrap(),
                Frame::Refusal(refusal) => postcard::to_allocvec(refusal).unwrap(),
                Frame::Wake(wake) => postcard::to_allocvec(wake).unwrap(),
                Frame::Differs(differs) => postcard::to_allocvec(differs).unwrap(),
            });
            assert_eq!(Frame::decode(&bytes), Err(expected));
        }
        let endless = [b"Sq\x01\x01", [0; FRAME_BYTES_MAX].as_slice()].concat();
        assert!(matches!(Frame::decode(&endless), Err(FrameError::TooLong { part: "content", .. })));
        // A text that claims to be longer than all memory.
        let claim = b"Sq\x01\x01\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01";
        assert_eq!(Frame::decode(claim), Err(FrameError::Body));
    }

    #[test]
    fn changed_bytes_never_panic() {
        for frame in frames() {
            let bytes = frame.encode().unwrap();
            for at in 0..bytes.len() {
                for value in if cfg!(miri) { [0, 0x80, 0xFF].as_slice() } else { &ALL } {
                    let mut changed = bytes.clone();
                    changed[at] = *value;
                    if let Ok(frame) = Frame::decode(&changed) {
                        assert!(Frame::decode(&frame.encode().unwrap()) == Ok(frame));
                    }
                }
            }
        }
    }

    const ALL: [u8; 256] = {
        let mut all = [0; 256];
        let mut at = 0;
        while at < 256 {
            all[at] = at as u8;
            at += 1;
        }
        all
    };

    #[test]
    fn each_refusal_says_what_to_do() {
        for frame in frames() {
            if let Frame::Refusal(refusal) = frame {
                assert!(refusal.to_string().contains(": "), "{refusal}");
            }
        }
    }
}
