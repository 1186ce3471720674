//! One run of the fuzzer: bytes of a peer, read as a frame.

use squall_call::frames::{FRAME_BYTES_MAX, Frame, Hello, VERSION, Wake, Welcome};
use squall_call::layout::{BULK_BYTES, INLINE_BYTES, Slot, segment_bytes};

/// Reads bytes as a frame. The first byte chooses the way: as they are, behind a valid head, or as the fields
/// of a valid frame with one byte changed.
pub(crate) fn any(bytes: &[u8]) {
    let [way, rest @ ..] = bytes else { return };
    match way % 3 {
        0 => read(rest),
        1 => read(&[b"Sq".as_slice(), &[VERSION], rest].concat()),
        _ => changed(rest),
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
