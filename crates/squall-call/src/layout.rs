//! Layout of a segment: the memory that a server and one client share.
//!
//! - I1. A segment is a row of regions, one for each VP of the client. Threads of two VPs write to different
//!   pages of it.
//! - I2. A [`Slot`] lies within the segment that it was made for. So each offset of a slot is within it too.
//!
//! ```text
//! segment   region 0 | region 1 | ...                                      REGION_BYTES each
//! region    16 slots, SLOT_BYTES each | 16 bulk areas, BULK_BYTES each
//! slot      byte  0  call          the client's bell: number of the call, and flags
//!                 4  reply         the server's bell: number of the call, and flags
//!                 8  worker_cpu    processor of the worker plus 1; 0 is none
//!                12  caller_cpu    processor of the caller plus 1; 0 is none
//!                16  object        id of the exported object, low half
//!                20  generation    its high half
//!                24  method        number of the method
//!                28  length        bytes of arguments
//!                32  status        status of the reply
//!                36  reply_length  bytes of the result
//!                64  inline data   arguments, then the result, if they fit
//! ```

/// Slots of a region: calls that threads of one VP of the client can have in flight at once.
pub const REGION_SLOTS: u32 = 16;
/// Size of a slot in bytes.
pub const SLOT_BYTES: usize = 256;
/// Offset of the inline data of a slot.
const INLINE_OFFSET: usize = 64;
/// Largest size in bytes of arguments or a result within the slot.
pub const INLINE_BYTES: usize = SLOT_BYTES - INLINE_OFFSET;
/// Size of the bulk area of a slot, and largest size of arguments or a result, in bytes: 8 KiB, and room for
/// lengths and further arguments.
pub const BULK_BYTES: usize = 8192 + 256;
/// Offset of the first bulk area of a region.
const BULK_OFFSET: usize = REGION_SLOTS as usize * SLOT_BYTES;
/// Size of a region in bytes: whole pages of 4 KiB.
pub const REGION_BYTES: usize = BULK_OFFSET + REGION_SLOTS as usize * BULK_BYTES;
/// Largest number of regions of a segment.
pub const REGIONS_MAX: u32 = 1024;

const _: () = assert!(BULK_OFFSET.is_multiple_of(4096) && REGION_BYTES.is_multiple_of(4096));

/// Returns the size in bytes of a segment with this many regions, if that is 1 to [`REGIONS_MAX`].
pub const fn segment_bytes(regions: u32) -> Option<usize> {
    if regions == 0 || regions > REGIONS_MAX {
        return None;
    }
    (regions as usize).checked_mul(REGION_BYTES)
}

/// One slot of a segment, with the offsets in bytes of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    index: u32,
    /// Offset of the slot.
    at: usize,
}

impl Slot {
    /// Returns the slot with this index in a segment with this many regions, if the segment has one.
    ///
    /// `index` may come from a peer.
    #[inline]
    pub const fn new(index: u32, regions: u32) -> Option<Slot> {
        if regions > REGIONS_MAX || index / REGION_SLOTS >= regions {
            return None;
        }
        let region = (index / REGION_SLOTS) as usize;
        let number = (index % REGION_SLOTS) as usize;
        Some(Slot { index, at: region * REGION_BYTES + number * SLOT_BYTES })
    }

    /// Returns slot `number` of a region, if the segment has it.
    #[inline]
    pub const fn of_region(region: u32, number: u32, regions: u32) -> Option<Slot> {
        if region >= REGIONS_MAX || number >= REGION_SLOTS {
            return None;
        }
        Slot::new(region * REGION_SLOTS + number, regions)
    }

    /// Returns the index of the slot in its segment.
    #[inline]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Returns the region that holds the slot.
    #[inline]
    pub const fn region(self) -> u32 {
        self.index / REGION_SLOTS
    }

    /// Offset of the word that the client changes to call.
    #[inline]
    pub const fn call(self) -> usize {
        self.at
    }

    /// Offset of the word that the server changes to reply.
    #[inline]
    pub const fn reply(self) -> usize {
        self.at + 4
    }

    /// Offset of the word with the worker's processor plus 1.
    #[inline]
    pub const fn worker_cpu(self) -> usize {
        self.at + 8
    }

    /// Offset of the word with the caller's processor plus 1.
    #[inline]
    pub const fn caller_cpu(self) -> usize {
        self.at + 12
    }

    /// Offset of the word with the low half of the object's id.
    #[inline]
    pub const fn object(self) -> usize {
        self.at + 16
    }

    /// Offset of the word with the high half of the object's id.
    #[inline]
    pub const fn generation(self) -> usize {
        self.at + 20
    }

    /// Offset of the word with the number of the method.
    #[inline]
    pub const fn method(self) -> usize {
        self.at + 24
    }

    /// Offset of the word with the length in bytes of the arguments.
    #[inline]
    pub const fn length(self) -> usize {
        self.at + 28
    }

    /// Offset of the word with the status of the reply.
    #[inline]
    pub const fn status(self) -> usize {
        self.at + 32
    }

    /// Offset of the word with the length in bytes of the result.
    #[inline]
    pub const fn reply_length(self) -> usize {
        self.at + 36
    }

    /// Returns the offsets of all words, in their order.
    pub const fn words(self) -> [usize; 10] {
        [
            self.call(),
            self.reply(),
            self.worker_cpu(),
            self.caller_cpu(),
            self.object(),
            self.generation(),
            self.method(),
            self.length(),
            self.status(),
            self.reply_length(),
        ]
    }

    /// Offset of data of this length in bytes: inline if it fits there, else in the slot's bulk area if it
    /// fits there.
    ///
    /// `length` may come from a peer.
    #[inline]
    pub const fn data(self, length: u32) -> Option<usize> {
        if length as usize <= INLINE_BYTES {
            Some(self.at + INLINE_OFFSET)
        } else if length as usize <= BULK_BYTES {
            let number = (self.index % REGION_SLOTS) as usize;
            Some(self.region() as usize * REGION_BYTES + BULK_OFFSET + number * BULK_BYTES)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_has_whole_regions_within_bounds() {
        assert_eq!(REGION_BYTES, 136 * 1024);
        assert_eq!(INLINE_BYTES, 192);
        assert_eq!(segment_bytes(0), None);
        assert_eq!(segment_bytes(1), Some(REGION_BYTES));
        assert_eq!(segment_bytes(REGIONS_MAX), Some(136 << 20));
        assert_eq!(segment_bytes(REGIONS_MAX + 1), None);
        assert_eq!(segment_bytes(u32::MAX), None);
    }

    #[test]
    fn only_slots_of_the_segment_exist() {
        assert_eq!(Slot::new(0, 0), None);
        assert_eq!(Slot::new(32, 2), None);
        assert_eq!(Slot::new(u32::MAX, REGIONS_MAX), None);
        assert_eq!(Slot::new(u32::MAX, u32::MAX), None);
        assert_eq!(Slot::of_region(2, 0, 2), None);
        assert_eq!(Slot::of_region(0, REGION_SLOTS, 2), None);
        assert_eq!(Slot::of_region(u32::MAX, 1, REGIONS_MAX), None);
        let last = Slot::new(31, 2).unwrap();
        assert_eq!(last.index(), 31);
        assert_eq!(Slot::of_region(1, 15, 2), Some(last));
        assert_eq!(last.region(), 1);
    }

    #[test]
    fn the_parts_of_all_slots_are_aligned_apart_and_within_the_segment() {
        let regions = if cfg!(miri) { 2 } else { 5 };
        let bytes = segment_bytes(regions).unwrap();
        let mut parts = Vec::new();
        for index in 0..regions * REGION_SLOTS {
            let slot = Slot::new(index, regions).unwrap();
            let words = slot.words();
            assert!(words.iter().all(|at| at.is_multiple_of(4) && at / 64 == slot.call() / 64));
            parts.extend(words.map(|at| (at, 4)));
            let inline = slot.data(INLINE_BYTES as u32).unwrap();
            let bulk = slot.data(BULK_BYTES as u32).unwrap();
            assert_eq!(slot.data(0), Some(inline));
            assert_eq!(slot.data(INLINE_BYTES as u32 + 1), Some(bulk));
            assert_eq!(slot.data(BULK_BYTES as u32 + 1), None);
            assert_eq!(slot.data(u32::MAX), None);
            assert!(inline.is_multiple_of(64) && bulk.is_multiple_of(64));
            parts.extend([(inline, INLINE_BYTES), (bulk, BULK_BYTES)]);
        }
        parts.sort();
        assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let (at, length) = parts.last().unwrap();
        assert_eq!(at + length, bytes);
    }
}
