//! Tags: eight hash bits of each entry of a bucket, all compared at once.
//!
//! Problem: a reader must find the slots that may hold its key without loading them all, while a writer
//! stores a tag.
//! Idea: the holder of the bucket's lock stores single bytes; readers load sixteen bytes with one
//! instruction. Each byte that a reader sees is an old or a new tag, which `bucket` tolerates. Rust has
//! neither an atomic load of sixteen bytes nor one of bytes that are stored one by one. So the load is inline
//! assembly. On other architectures and under checkers, tags are packed into words that are loaded one after
//! the other.
//!
//! - I1. The load by inline assembly is an access unknown to the compiler, which may treat it as any relaxed
//!   load. It stays behind the acquire load of the bucket's state. On the supported processors each byte is
//!   loaded once, whole, and not before the memory that the acquire load orders before it.

use squall_sys::sync::atomic::Ordering;

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
pub(crate) use at_once::Tags;
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom))))]
pub(crate) use in_words::Tags;

/// Slots of a bucket: as many as tags are compared at once. More slots mean fewer chains, and a reader of a
/// chain waits for two more lines. By Poisson's law, in a half full table 8 of 1,000 insertions find all
/// sixteen slots taken; with eight slots per bucket it would be 51.
pub(crate) const SLOTS: usize = if cfg!(loom) { 8 } else { 16 };

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
mod at_once {
    use super::{Ordering, SLOTS};
    use squall_sys::sync::atomic::AtomicU8;
    use std::arch::asm;

    /// Aligned so that an SSE instruction can use the tags as a memory operand.
    #[repr(C, align(16))]
    pub(crate) struct Tags([AtomicU8; SLOTS]);

    const _: () = assert!(SLOTS == 16 && size_of::<Tags>() == 16);

    impl Tags {
        pub(crate) fn new() -> Tags {
            Tags(std::array::from_fn(|_| AtomicU8::new(0)))
        }

        /// Stores a tag. The caller holds the lock of the home.
        #[inline(always)]
        pub(crate) fn set(&self, slot: usize, tag: u8) {
            // The remainder removes a bounds check: `slot` is always below `SLOTS`, which the compiler does
            // not know.
            self.0[slot % SLOTS].store(tag, Ordering::Relaxed);
        }

        /// Returns a bit for each slot with the tag in the topmost byte of `above`. The tags lie `AT` bytes
        /// behind `base`, so that their address need not be computed.
        ///
        /// # Safety
        /// `Tags` lie at `base + AT`.
        #[cfg(target_arch = "x86_64")]
        #[inline(always)]
        pub(crate) unsafe fn find<const AT: usize>(base: *const u8, above: u32) -> u32 {
            use std::arch::x86_64::{
                _mm_cvtsi32_si128, _mm_movemask_epi8, _mm_shufflelo_epi16, _mm_unpacklo_epi8,
                _mm_unpacklo_epi64,
            };
            // SAFETY: every x86-64 has SSE2; the caller, and I1.
            unsafe {
                let tag = _mm_cvtsi32_si128(above.cast_signed());
                let tag = _mm_shufflelo_epi16::<0xff>(_mm_unpacklo_epi8(tag, tag));
                let mut equal = _mm_unpacklo_epi64(tag, tag);
                asm!(
                    "pcmpeqb {equal}, xmmword ptr [{base} + {at}]",
                    equal = inout(xmm_reg) equal,
                    base = in(reg) base,
                    at = const AT,
                    options(nostack, preserves_flags, readonly),
                );
                _mm_movemask_epi8(equal).cast_unsigned()
            }
        }

        /// Returns a bit for each slot with the tag in the topmost byte of `above`. The tags lie `AT` bytes
        /// behind `base`.
        ///
        /// # Safety
        /// `Tags` lie at `base + AT`.
        #[cfg(target_arch = "aarch64")]
        #[inline(always)]
        pub(crate) unsafe fn find<const AT: usize>(base: *const u8, above: u32) -> u32 {
            use std::arch::aarch64::{
                uint8x16_t, vandq_u8, vceqq_u8, vdupq_n_u8, vgetq_lane_u16, vld1q_u8, vpaddq_u8,
                vreinterpretq_u16_u8,
            };
            const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
            // SAFETY: every aarch64 target of `std` has NEON; the caller, and I1.
            unsafe {
                let tags: uint8x16_t;
                asm!(
                    "ldr {tags:q}, [{base}, #{at}]",
                    tags = lateout(vreg) tags,
                    base = in(reg) base,
                    at = const AT,
                    options(nostack, preserves_flags, readonly),
                );
                let equal = vceqq_u8(tags, vdupq_n_u8((above >> 24) as u8));
                // Keep one bit per byte, and add pairs three times, so that eight bytes become one byte of
                // bits.
                let bits = vandq_u8(equal, vld1q_u8(BITS.as_ptr()));
                let bits = vpaddq_u8(bits, bits);
                let bits = vpaddq_u8(bits, bits);
                let bits = vpaddq_u8(bits, bits);
                u32::from(vgetq_lane_u16::<0>(vreinterpretq_u16_u8(bits)))
            }
        }
    }
}

// Builds that use `at_once` still compile this module: a test compares the two.
#[allow(dead_code)]
mod in_words {
    use super::{Ordering, SLOTS};
    use squall_sys::sync::atomic::AtomicU64;

    /// Eight tags per word.
    #[repr(C)]
    pub(crate) struct Tags([AtomicU64; SLOTS / 8]);

    impl Tags {
        pub(crate) fn new() -> Tags {
            Tags(std::array::from_fn(|_| AtomicU64::new(0)))
        }

        /// Stores a tag. The caller holds the lock of the home.
        pub(crate) fn set(&self, slot: usize, tag: u8) {
            let (word, shift) = (&self.0[slot / 8], 8 * (slot % 8));
            let others = word.load(Ordering::Relaxed) & !(0xff << shift);
            word.store(others | u64::from(tag) << shift, Ordering::Relaxed);
        }

        /// Returns a bit for each slot with the tag in the topmost byte of `above`, and perhaps some false
        /// positives, which the key comparison filters. The tags lie `AT` bytes behind `base`.
        ///
        /// # Safety
        /// `Tags` lie at `base + AT`.
        #[inline(always)]
        pub(crate) unsafe fn find<const AT: usize>(base: *const u8, above: u32) -> u32 {
            // SAFETY: the caller.
            let tags = unsafe { &*base.add(AT).cast::<Tags>() };
            let of = |word: usize| {
                slots_of((above >> 24) as u8, tags.0[word].load(Ordering::Relaxed)) << (8 * word)
            };
            (0..SLOTS / 8).map(of).fold(0, |all, some| all | some)
        }
    }

    /// Returns the slots of one word that have this tag, perhaps with false positives.
    fn slots_of(tag: u8, tags: u64) -> u32 {
        /// Multiplying by this copies a byte into all eight bytes.
        const BYTES: u64 = 0x0101_0101_0101_0101;
        let differ = tags ^ (BYTES * u64::from(tag));
        // Sets the top bit of each zero byte, and perhaps of the byte above one.
        let tops = differ.wrapping_sub(BYTES) & !differ & (BYTES << 7);
        // Gather the eight bits in the topmost byte.
        ((tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{SLOTS, Tags, in_words};

    /// `at_once` finds exactly the slots with the tag. `in_words` may find more, but no false one below the
    /// first true one in a word.
    #[test]
    fn both_implementations_find_the_slots_of_a_tag() {
        let (tags, words) = (Tags::new(), in_words::Tags::new());
        let mut random = 1u64;
        let mut now = [0u8; SLOTS];
        for _ in 0..if cfg!(miri) { 40 } else { 10_000 } {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Few values, so that equal tags are common.
            let (slot, new) = ((random >> 32) as usize % SLOTS, (random >> 60) as u8 & 3);
            now[slot] = new;
            tags.set(slot, new);
            words.set(slot, new);
            for tag in 0..4u8 {
                let right =
                    (0..SLOTS).filter(|slot| now[*slot] == tag).fold(0u32, |bits, slot| bits | 1 << slot);
                let above = u32::from(tag) << 24 | 0x5a_a5a5;
                // SAFETY: the tags are at the base.
                let found = unsafe { Tags::find::<0>((&raw const tags).cast(), above) };
                if !cfg!(miri) {
                    assert_eq!(found, right, "{now:?}, {tag}");
                }
                // SAFETY: the tags are at the base.
                let found = unsafe { in_words::Tags::find::<0>((&raw const words).cast(), above) };
                assert_eq!(found & right, right, "{now:?}, {tag}");
                for part in [0xff, 0xff00] {
                    let (found, right) = (found & part, right & part);
                    assert_eq!(found & right.wrapping_sub(1) & !right, 0, "{now:?}, {tag}");
                }
                assert_eq!(found >> SLOTS, 0);
            }
        }
    }
}
