//! The two kinds of keys, and rows of them.
//!
//! - I1. Different numbers give different keys, and equal numbers give equal keys.
//!
//! A row holds the keys themselves, one after the other, in the order of their lookups. Reading the next key
//! then adds almost no time to a lookup, because its cache line was prefetched. The loop prefetches
//! explicitly. The processor's own prefetcher guesses by the low bits of load addresses. If the loads of a
//! map share these bits, the row's lines arrive late, and chance slows that map down.

use std::borrow::Borrow;
use std::fmt::Write;
use std::hash::Hash;
use std::hint::black_box;

use squall_sys::prefetch;

/// A key of a map.
pub(crate) trait Key: Borrow<Self::Query> + Clone + Ord + Hash + Send + Sync + 'static {
    /// The form in which a key is looked up.
    type Query: ?Sized + Ord + Hash + ToOwned<Owned = Self>;
    /// Many keys, one after the other.
    type Row: Send + Sync + 'static;

    /// The key with this number.
    fn of(number: u64) -> Self;

    /// A row of the keys with these numbers.
    fn row(numbers: impl Iterator<Item = u64>) -> Self::Row;

    /// The key at `index` of a row.
    fn at(row: &Self::Row, index: usize) -> &Self::Query;
}

/// Keys of a row are prefetched this many bytes ahead: some dozens of operations.
const AHEAD: usize = 8 * prefetch::LINE;

/// Maps a number to one unlike its neighbours. A bijection, so I1 holds (the finalizer of `SplitMix64`).
pub(in crate::cases) fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Eight bytes.
impl Key for u64 {
    type Query = u64;
    type Row = Vec<u64>;

    fn of(number: u64) -> u64 {
        scatter(number)
    }

    fn row(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
        numbers.map(scatter).collect()
    }

    #[inline(always)]
    fn at(row: &Vec<u64>, index: usize) -> &u64 {
        prefetch::line(row.as_ptr().wrapping_add(index).wrapping_byte_add(AHEAD).cast());
        &row[index]
    }
}

/// Common prefix of all strings, as in many real names.
const PREFIX: &str = "session:";
/// Bytes of each string: the prefix and sixteen digits.
const LENGTH: usize = PREFIX.len() + 16;

fn append(text: &mut String, number: u64) {
    write!(text, "{PREFIX}{:016x}", scatter(number)).expect("a string takes what is written");
}

/// Twenty-four bytes.
impl Key for String {
    type Query = str;
    type Row = String;

    fn of(number: u64) -> String {
        let mut text = String::with_capacity(LENGTH);
        append(&mut text, number);
        text
    }

    fn row(numbers: impl Iterator<Item = u64>) -> String {
        let mut text = String::with_capacity(numbers.size_hint().0 * LENGTH);
        numbers.for_each(|number| append(&mut text, number));
        text
    }

    #[inline(always)]
    fn at(row: &String, index: usize) -> &str {
        // A program that reads its keys from elsewhere does not know their length at compile time.
        let length = black_box(LENGTH);
        prefetch::line(row.as_ptr().wrapping_add(index * LENGTH + AHEAD));
        &row[index * LENGTH..][..length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_differ_and_a_number_has_one() {
        let (words, strings) = (u64::row(0..5000), String::row(0..5000));
        let seen: HashSet<&u64> = (0..5000).map(|i| u64::at(&words, i)).collect();
        assert_eq!(seen.len(), 5000);
        let seen: HashSet<&str> = (0..5000).map(|i| String::at(&strings, i)).collect();
        assert_eq!(seen.len(), 5000);
        assert!(seen.iter().all(|text| text.len() == LENGTH && text.starts_with(PREFIX)));
        assert_eq!(*u64::at(&words, 77), u64::of(77));
        assert_eq!(*String::at(&strings, 77), String::of(77));
    }
}
