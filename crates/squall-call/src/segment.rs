//! The shared memory of one connection, as slots.
//!
//! - I1. A hostile peer may have written any number that is read here. Lengths are checked against the area
//!   that they belong to. Bytes are copied out once, and decoded from the copy.

use squall_sys::shared::SharedMemory;
use squall_sys::sync::atomic::Ordering;

use crate::codec::{Full, Sink};
use crate::layout::{self, INLINE_BYTES, REGION_SLOTS, Slot as Offsets};
use crate::slot::Words;

/// A mapped segment.
#[derive(Debug)]
pub(crate) struct Segment {
    memory: SharedMemory,
    regions: u32,
}

impl Segment {
    /// Takes memory with the size of a segment of this many regions.
    ///
    /// # Panics
    /// If the memory has another size.
    pub(crate) fn new(memory: SharedMemory, regions: u32) -> Segment {
        assert_eq!(Some(memory.len()), layout::segment_bytes(regions), "a segment of another size");
        Segment { memory, regions }
    }

    pub(crate) fn regions(&self) -> u32 {
        self.regions
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> u32 {
        self.regions * REGION_SLOTS
    }

    /// Returns the slot with this index.
    ///
    /// # Panics
    /// If the segment has no such slot.
    pub(crate) fn slot(&self, index: u32) -> Slot<'_> {
        let offsets = Offsets::new(index, self.regions).expect("the segment has the slot");
        Slot { memory: &self.memory, offsets }
    }
}

/// A slot of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    memory: &'a SharedMemory,
    offsets: Offsets,
}

/// Bit of a method's number: the caller serves a call itself meanwhile.
pub(crate) const NESTED: u32 = 1 << 31;

/// The head of a call: which method of which object, and the bytes of the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) object: u64,
    pub(crate) method: u32,
    pub(crate) length: u32,
}

impl<'a> Slot<'a> {
    pub(crate) fn words(self) -> Words<'a> {
        Words { call: self.memory.word(self.offsets.call()), reply: self.memory.word(self.offsets.reply()) }
    }

    /// Reads a word other than `call` and `reply`.
    fn load(self, offset: usize) -> u32 {
        // Relaxed: `look` and `answered` order it.
        self.memory.word(offset).load(Ordering::Relaxed)
    }

    /// Writes a word other than `call` and `reply`.
    fn store(self, offset: usize, value: u32) {
        // Relaxed: a Release comes after, in `issue` of the caller or `answer` of the worker.
        self.memory.word(offset).store(value, Ordering::Relaxed);
    }

    /// Caller: writes the head of a call, and the processor on which it runs.
    pub(crate) fn set_head(self, head: Head, processor: usize) {
        self.store(self.offsets.object(), head.object as u32);
        self.store(self.offsets.generation(), (head.object >> 32) as u32);
        self.store(self.offsets.method(), head.method);
        self.store(self.offsets.length(), head.length);
        self.store(self.offsets.caller_cpu(), stored(processor));
    }

    /// Worker: reads the head of a call.
    pub(crate) fn head(self) -> Head {
        Head {
            object: u64::from(self.load(self.offsets.object()))
                | u64::from(self.load(self.offsets.generation())) << 32,
            method: self.load(self.offsets.method()) & !NESTED,
            length: self.load(self.offsets.length()),
        }
    }

    /// The processor of the caller, as the caller wrote it.
    pub(crate) fn caller_cpu(self) -> Option<usize> {
        processor(self.load(self.offsets.caller_cpu()))
    }

    /// Whether the caller says that it serves a call itself.
    pub(crate) fn is_nested(self) -> bool {
        self.load(self.offsets.method()) & NESTED != 0
    }

    /// The processor on which the worker last said that it runs.
    pub(crate) fn worker_cpu(self) -> Option<usize> {
        processor(self.load(self.offsets.worker_cpu()))
    }

    /// Worker: writes the processor on which it runs.
    pub(crate) fn set_worker_cpu(self, processor: usize) {
        let value = stored(processor);
        if self.load(self.offsets.worker_cpu()) != value {
            self.store(self.offsets.worker_cpu(), value);
        }
    }

    /// Worker: writes the head of a reply.
    pub(crate) fn set_status(self, status: u32, length: u32) {
        self.store(self.offsets.status(), status);
        self.store(self.offsets.reply_length(), length);
    }

    /// Caller: reads the head of a reply.
    pub(crate) fn status(self) -> (u32, u32) {
        (self.load(self.offsets.status()), self.load(self.offsets.reply_length()))
    }

    /// Copies `length` bytes of data into `buffer`, and returns them; `None` if it cannot hold so many.
    pub(crate) fn data(self, length: u32, buffer: &mut [u8]) -> Option<&[u8]> {
        let bytes = buffer.get_mut(..length as usize)?;
        self.memory.copy_out(self.offsets.data(length)?, bytes);
        Some(bytes)
    }

    /// Returns the place to write data to.
    pub(crate) fn sink(self) -> SlotSink<'a> {
        SlotSink { slot: self, written: 0 }
    }
}

/// Data of a call or reply, written in place.
///
/// It begins in the slot itself, and moves to the slot's bulk area when it outgrows the slot.
pub(crate) struct SlotSink<'a> {
    slot: Slot<'a>,
    written: usize,
}

impl SlotSink<'_> {
    /// Number of bytes written.
    pub(crate) fn written(&self) -> u32 {
        // At most `BULK_BYTES`.
        self.written as u32
    }
}

impl Sink for SlotSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let Slot { memory, offsets } = self.slot;
        let end = self.written.saturating_add(bytes.len());
        let place = u32::try_from(end).ok().and_then(|end| offsets.data(end)).ok_or(Full)?;
        if end > INLINE_BYTES && self.written <= INLINE_BYTES {
            let mut begun = [0; INLINE_BYTES];
            let begun = &mut begun[..self.written];
            memory.copy_out(offsets.call() + (layout::SLOT_BYTES - INLINE_BYTES), begun);
            memory.copy_in(place, begun);
        }
        memory.copy_in(place + self.written, bytes);
        self.written = end;
        Ok(())
    }
}

/// Encodes a processor for a word of a slot: its number plus 1. Zero means that it is unknown.
fn stored(processor: usize) -> u32 {
    u32::try_from(processor).map_or(0, |processor| processor.wrapping_add(1))
}

/// Decodes the processor in a word of a slot.
fn processor(stored: u32) -> Option<usize> {
    stored.checked_sub(1).map(|processor| processor as usize)
}
