//! Mixed hashes: the topmost bits select the home, the bits below the row, and lower bits are the tag.

/// Mixes a hash so that similar hashes spread, and the topmost bits depend on all bits: Fibonacci hashing
/// (Knuth 1973, section 6.4). One multiplication suffices, without folding its two halves: only the topmost
/// bits, which select the home, must be good (see [`tag`]). Fewer instructions let a processor overlap more
/// lookups.
#[inline(always)]
pub(crate) fn mix(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the tag of a mixed hash: bits that do not select the home, in slabs of up to 2^32 homes. They
/// depend on the lower half of the hasher's result. If that half is equal for all keys, all keys of a bucket
/// are compared; there is no other harm.
#[inline(always)]
pub(crate) fn tag(mixed: u64) -> u8 {
    (tag_above(mixed) >> 24) as u8
}

/// Returns the tag in the topmost byte, above three other bytes.
#[inline(always)]
pub(crate) fn tag_above(mixed: u64) -> u32 {
    mixed as u32
}
