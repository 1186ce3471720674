//! Eight bits of the hash of each entry of a bucket, all compared at once.
//!
//! Whoever has the bucket's lock stores one of them; who looks loads all, perhaps while one is stored. A byte of them is old or new, and
//! never anything else: what a look needs is said in `bucket`. So they are bytes, of which a look loads sixteen by one instruction of the
//! processor's: Rust has no atomic load of so many, nor one of bytes that are stored one by one. Where we know no such instruction, and for
//! checkers, they are in words, which are loaded one after the other.
//!
//! - I1. A load by an instruction of ours is an access that the compiler does not know: it may be any load that is relaxed, and stays where it
//!   is, behind the load of the bucket's state that acquires. On the processors that we know each byte is loaded once, whole, and not before
//!   what the acquiring load is ordered before.

use crate::table::bucket::SLOTS;
use squall_sys::sync::atomic::Ordering;

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
pub(crate) use at_once::Tags;
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom))))]
pub(crate) use in_words::Tags;

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
mod at_once {
    use super::{Ordering, SLOTS};
    use squall_sys::sync::atomic::AtomicU8;
    use std::arch::asm;

    /// Aligned so that an instruction may have them as its operand.
    #[repr(C, align(16))]
    pub(crate) struct Tags([AtomicU8; SLOTS]);

    const _: () = assert!(SLOTS == 16 && size_of::<Tags>() == 16);

    impl Tags {
        pub(crate) fn new() -> Tags {
            Tags(std::array::from_fn(|_| AtomicU8::new(0)))
        }

        /// Under the lock.
        #[inline(always)]
        pub(crate) fn set(&self, slot: usize, tag: u8) {
            // The remainder: a slot is less, which the compiler does not know.
            self.0[slot % SLOTS].store(tag, Ordering::Relaxed);
        }

        /// The slots whose tag is the topmost byte of the four, a bit for each. `AT`: the tags are so far behind `base`: where that is at hand,
        /// the place of the tags need not be computed.
        ///
        /// # Safety
        /// Tags are there.
        #[cfg(target_arch = "x86_64")]
        #[inline(always)]
        pub(crate) unsafe fn find<const AT: usize>(base: *const u8, above: u32) -> u32 {
            use std::arch::x86_64::{
                _mm_cvtsi32_si128, _mm_movemask_epi8, _mm_shufflelo_epi16, _mm_unpacklo_epi8,
                _mm_unpacklo_epi64,
            };
            // SAFETY: SSE2, which every x86-64 has; the caller, and I1.
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

        /// The same.
        ///
        /// # Safety
        /// The same.
        #[cfg(target_arch = "aarch64")]
        #[inline(always)]
        pub(crate) unsafe fn find<const AT: usize>(base: *const u8, above: u32) -> u32 {
            use std::arch::aarch64::{
                uint8x16_t, vandq_u8, vceqq_u8, vdupq_n_u8, vgetq_lane_u16, vld1q_u8, vpaddq_u8,
                vreinterpretq_u16_u8,
            };
            const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
            // SAFETY: NEON, which every aarch64 of std's has; the caller, and I1.
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
                // A bit of each byte, and eight of them together, thrice by twos.
                let bits = vandq_u8(equal, vld1q_u8(BITS.as_ptr()));
                let bits = vpaddq_u8(bits, bits);
                let bits = vpaddq_u8(bits, bits);
                let bits = vpaddq_u8(bits, bits);
                u32::from(vgetq_lane_u16::<0>(vreinterpretq_u16_u8(bits)))
            }
        }
    }
}

// Where it is not used, a test compares the other one with it.
#[allow(dead_code)]
mod in_words {
    use super::{Ordering, SLOTS};
    use squall_sys::sync::atomic::AtomicU64;

    /// Eight in each.
    #[repr(C)]
    pub(crate) struct Tags([AtomicU64; SLOTS / 8]);

    impl Tags {
        pub(crate) fn new() -> Tags {
            Tags(std::array::from_fn(|_| AtomicU64::new(0)))
        }

        /// Under the lock.
        pub(crate) fn set(&self, slot: usize, tag: u8) {
            let (word, shift) = (&self.0[slot / 8], 8 * (slot % 8));
            let others = word.load(Ordering::Relaxed) & !(0xff << shift);
            word.store(others | u64::from(tag) << shift, Ordering::Relaxed);
        }

        /// The slots whose tag is the topmost byte of the four, a bit for each; perhaps others, which the comparison of keys finds out. `AT`: the
        /// tags are so far behind `base`.
        ///
        /// # Safety
        /// Tags are there.
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

    /// The same of one word.
    fn slots_of(tag: u8, tags: u64) -> u32 {
        /// Every byte the same.
        const BYTES: u64 = 0x0101_0101_0101_0101;
        let differ = tags ^ (BYTES * u64::from(tag));
        // The top bit of each byte that is zero; perhaps of one above such a byte.
        let tops = differ.wrapping_sub(BYTES) & !differ & (BYTES << 7);
        // All of them to the topmost byte.
        ((tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{SLOTS, Tags, in_words};

    /// All slots with the tag, and no other; in words perhaps others, but none below the first of them in a word.
    #[test]
    fn the_slots_of_a_tag_are_found_in_either_way() {
        let (tags, words) = (Tags::new(), in_words::Tags::new());
        let mut random = 1u64;
        let mut now = [0u8; SLOTS];
        for _ in 0..if cfg!(miri) { 40 } else { 10_000 } {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Few values, so that tags meet.
            let (slot, new) = ((random >> 32) as usize % SLOTS, (random >> 60) as u8 & 3);
            now[slot] = new;
            tags.set(slot, new);
            words.set(slot, new);
            for tag in 0..4u8 {
                let right =
                    (0..SLOTS).filter(|slot| now[*slot] == tag).fold(0u32, |bits, slot| bits | 1 << slot);
                let above = u32::from(tag) << 24 | 0x5a_a5a5;
                // SAFETY: they are there.
                let found = unsafe { Tags::find::<0>((&raw const tags).cast(), above) };
                if !cfg!(miri) {
                    assert_eq!(found, right, "{now:?}, {tag}");
                }
                // SAFETY: they are there.
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
