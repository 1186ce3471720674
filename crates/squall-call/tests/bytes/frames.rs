//! One run of the fuzzer: bytes of a peer, read as a frame or as arguments.

use std::collections::BTreeMap;

use squall_call::__macro::{Full, Reader, Sink, Writer};
use squall_call::frames::{FRAME_BYTES_MAX, Frame, Hello, SIGNATURE_BYTES_MAX, VERSION, Wake, Welcome};
use squall_call::layout::{BULK_BYTES, INLINE_BYTES, Slot, segment_bytes};

/// Reads bytes as a frame. The first byte chooses the way: as they are, behind a valid head, or as the fields
/// of a valid frame with one byte changed. A fourth way reads them as the arguments of a call.
pub(crate) fn any(bytes: &[u8]) {
    let [way, rest @ ..] = bytes else { return };
    match way % 4 {
        0 => read(rest),
        1 => read(&[b"Sq".as_slice(), &[VERSION], rest].concat()),
        2 => changed(rest),
        _ => arguments(rest),
    }
}

/// Reads bytes that must be a frame within its bounds, or an error with a text.
fn read(bytes: &[u8]) {
    let frame = match Frame::decode(bytes) {
        Ok(frame) => frame,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert!(bytes.len() <= FRAME_BYTES_MAX);
    let again = frame.encode().expect("a frame that was read can be sent");
    assert!(again.len() <= bytes.len(), "the shortest form is longer");
    assert_eq!(Frame::decode(&again), Ok(frame));
    match frame {
        Frame::Hello(Hello { regions, .. }) | Frame::Welcome(Welcome { regions, .. }) => {
            assert!(segment_bytes(regions).is_some());
        }
        Frame::Wake(Wake { slot }) => in_every_segment(slot),
        Frame::Refusal(refusal) => assert!(!refusal.to_string().is_empty()),
        Frame::Differs(differs) => assert!(differs.signature.len() <= SIGNATURE_BYTES_MAX),
    }
}

/// Arguments of most kinds that a call can have.
type Arguments = (
    (u8, i16, u32, u64, i128, bool, char, f64),
    Vec<(Option<String>, Vec<i64>)>,
    BTreeMap<u16, Result<[u8; 3], Option<Option<char>>>>,
    Vec<(Vec<()>, ((), [(); 2]))>,
);

/// A message without a limit.
struct Message(Vec<u8>);

impl Sink for Message {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

fn encoded(arguments: &Arguments) -> Vec<u8> {
    let mut message = Message(Vec::new());
    Writer::new(&mut message).put(arguments).expect("arguments that were read can be sent");
    message.0
}

/// Reads bytes that must be arguments, or an error with a text.
fn arguments(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    match reader.get::<Arguments>() {
        Ok(arguments) => {
            let again = encoded(&arguments);
            assert!(again.len() <= bytes.len(), "the shortest form is longer");
            let read: Arguments = Reader::new(&again).get().expect("the same arguments");
            // Compared as bytes, since no number is equal to a NaN.
            assert_eq!(encoded(&read), again);
        }
        Err(malformed) => assert!(!malformed.to_string().is_empty()),
    }
    let mut reader = Reader::new(bytes);
    if let Ok(read) = reader.get_bytes() {
        assert!(read.len() < bytes.len());
    }
}

/// Checks that a slot is within each segment that has it.
fn in_every_segment(index: u32) {
    for regions in [1, 2, index / 16, index / 16 + 1, 1024] {
        let slot = Slot::new(index, regions);
        let Some(bytes) = segment_bytes(regions) else {
            assert_eq!(slot, None);
            continue;
        };
        assert_eq!(slot.is_some(), index / 16 < regions);
        let Some(slot) = slot else { continue };
        assert!(slot.reply_length() + 4 <= bytes);
        for length in [0, INLINE_BYTES, INLINE_BYTES + 1, BULK_BYTES] {
            let at = slot.data(u32::try_from(length).expect("small")).expect("it fits");
            assert!(at + length <= bytes);
        }
    }
}

/// Builds a frame of these bytes, sends it, and reads it with some bytes changed.
fn changed(bytes: &[u8]) {
    let Some((numbers, rest)) = bytes.split_first_chunk::<14>() else { return };
    let [kind, change, a, b, c, d, wide @ ..] = *numbers;
    let number = u32::from_le_bytes([a, b, c, d]) >> (change % 32);
    let wide = u64::from_le_bytes(wide);
    let middle = rest.len().min(usize::from(a));
    let (interface, signature) = rest.split_at(middle);
    let (Ok(interface), Ok(signature)) = (str::from_utf8(interface), str::from_utf8(signature)) else {
        return;
    };
    let frame = match kind % 3 {
        0 => Frame::Hello(Hello { interface, schema: wide, signature, regions: number }),
        1 => Frame::Welcome(Welcome { object: wide, methods: wide.rotate_left(7), regions: number }),
        _ => Frame::Wake(Wake { slot: number }),
    };
    let Ok(mut sent) = frame.encode() else { return };
    assert_eq!(Frame::decode(&sent), Ok(frame));
    let at = wide as usize % sent.len();
    sent[at] ^= change;
    read(&sent);
    sent.truncate(at);
    read(&sent);
}
