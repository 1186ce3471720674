//! Sets of virtual processors, in the kernel's format for lists of CPUs.

use std::fmt;
use std::str::FromStr;

use crate::Vp;

const WORD_BITS: usize = u64::BITS as usize;

/// A set of virtual processors: a bitset that is as long as its highest member needs.
///
/// Display and parsing use the kernel's list format: `0-3,8,10-11`. The empty set is the empty string.
///
/// # Cost
/// A membership test is one load. A non-empty set owns one allocation of `highest member / 8` bytes.
///
/// # Example
/// ```
/// use squall::{Vp, VpSet};
///
/// let mut set: VpSet = "0-3,8".parse().unwrap();
/// set.insert(Vp::new(9));
/// assert_eq!(set.to_string(), "0-3,8-9");
/// assert_eq!(set.len(), 6);
/// assert!(set.contains(Vp::new(8)));
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct VpSet {
    /// Never ends in a zero word, so that equal sets compare equal.
    words: Vec<u64>,
}

impl VpSet {
    /// Upper limit of VP indices in a set. Linux is built for at most 8192 processors; the rest is reserve.
    pub const LIMIT: usize = 1 << 16;

    /// Creates an empty set.
    pub const fn new() -> VpSet {
        VpSet { words: Vec::new() }
    }

    /// Creates the set of the VPs `0..count`.
    ///
    /// # Panics
    /// If `count` is above [`VpSet::LIMIT`].
    ///
    /// # Example
    /// ```
    /// use squall::VpSet;
    ///
    /// assert_eq!(VpSet::first_n(4).to_string(), "0-3");
    /// ```
    pub fn first_n(count: usize) -> VpSet {
        (0..count).map(vp).collect()
    }

    /// Inserts `vp`. Returns true if it was absent.
    ///
    /// # Panics
    /// If the VP's index is not below [`VpSet::LIMIT`].
    ///
    /// # Example
    /// ```
    /// use squall::{Vp, VpSet};
    ///
    /// let mut set = VpSet::new();
    /// assert!(set.insert(Vp::new(5)));
    /// assert!(!set.insert(Vp::new(5)));
    /// ```
    pub fn insert(&mut self, vp: Vp) -> bool {
        let (word, bit) = place(vp);
        assert!(vp.index() < Self::LIMIT, "VP {} is beyond VpSet::LIMIT ({})", vp.index(), Self::LIMIT);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let absent = self.words[word] & bit == 0;
        self.words[word] |= bit;
        absent
    }

    /// Removes `vp`. Returns true if it was present.
    ///
    /// # Example
    /// ```
    /// use squall::{Vp, VpSet};
    ///
    /// let mut set: VpSet = "0-3".parse().unwrap();
    /// assert!(set.remove(Vp::new(2)));
    /// assert_eq!(set.to_string(), "0-1,3");
    /// ```
    pub fn remove(&mut self, vp: Vp) -> bool {
        let present = self.contains(vp);
        if present {
            let (word, bit) = place(vp);
            self.words[word] &= !bit;
            self.trim();
        }
        present
    }

    /// True if `vp` is a member. Accepts any VP, also one at or above [`VpSet::LIMIT`].
    pub fn contains(&self, vp: Vp) -> bool {
        let (word, bit) = place(vp);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the member with the lowest index.
    pub fn first(&self) -> Option<Vp> {
        self.iter().next()
    }

    /// Returns the member with the highest index.
    ///
    /// # Example
    /// ```
    /// use squall::{Vp, VpSet};
    ///
    /// let set: VpSet = "2-5,9".parse().unwrap();
    /// assert_eq!((set.first(), set.last()), (Some(Vp::new(2)), Some(Vp::new(9))));
    /// ```
    pub fn last(&self) -> Option<Vp> {
        let top = self.words.last()?;
        Some(vp(self.words.len() * WORD_BITS - 1 - top.leading_zeros() as usize))
    }

    /// Iterates over the members, lowest index first.
    ///
    /// # Example
    /// ```
    /// use squall::VpSet;
    ///
    /// let set: VpSet = "1,4-5".parse().unwrap();
    /// let indices: Vec<usize> = set.iter().map(|vp| vp.index()).collect();
    /// assert_eq!(indices, [1, 4, 5]);
    /// ```
    pub fn iter(&self) -> Iter<'_> {
        Iter { words: &self.words, next_word: 0, bits: 0 }
    }

    /// Returns the members of either set.
    pub fn union(&self, other: &VpSet) -> VpSet {
        let (long, short) = if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        let mut words = long.words.clone();
        words.iter_mut().zip(&short.words).for_each(|(w, s)| *w |= s);
        VpSet { words }
    }

    /// Returns the members of both sets.
    pub fn intersection(&self, other: &VpSet) -> VpSet {
        Self::trimmed(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// Returns the members of this set that are not in `other`.
    ///
    /// # Example
    /// ```
    /// use squall::VpSet;
    ///
    /// let (all, mine): (VpSet, VpSet) = ("0-7".parse().unwrap(), "2-3,9".parse().unwrap());
    /// assert_eq!(all.difference(&mine).to_string(), "0-1,4-7");
    /// assert_eq!(all.intersection(&mine).to_string(), "2-3");
    /// assert_eq!(all.union(&mine).to_string(), "0-7,9");
    /// ```
    pub fn difference(&self, other: &VpSet) -> VpSet {
        let theirs = other.words.iter().copied().chain(std::iter::repeat(0));
        Self::trimmed(self.words.iter().zip(theirs).map(|(a, b)| a & !b).collect())
    }

    /// True if the two sets share a member.
    pub fn intersects(&self, other: &VpSet) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// True if every member is also in `other`.
    ///
    /// # Example
    /// ```
    /// use squall::VpSet;
    ///
    /// let (inner, outer): (VpSet, VpSet) = ("2-3".parse().unwrap(), "0-7".parse().unwrap());
    /// assert!(inner.is_subset(&outer) && !outer.is_subset(&inner));
    /// ```
    pub fn is_subset(&self, other: &VpSet) -> bool {
        self.words.len() <= other.words.len() && self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }

    fn trimmed(words: Vec<u64>) -> VpSet {
        let mut set = VpSet { words };
        set.trim();
        set
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

fn place(vp: Vp) -> (usize, u64) {
    (vp.index() / WORD_BITS, 1 << (vp.index() % WORD_BITS))
}

/// Converts an index of a set's member to a VP.
fn vp(index: usize) -> Vp {
    assert!(index < VpSet::LIMIT, "VP {index} is beyond VpSet::LIMIT ({})", VpSet::LIMIT);
    Vp::new(index as u32)
}

/// Iterator over the members of a [`VpSet`], lowest index first; created by [`VpSet::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    words: &'a [u64],
    /// Index of the word after the one in `bits`.
    next_word: usize,
    /// Members of the current word that are still to come.
    bits: u64,
}

impl Iterator for Iter<'_> {
    type Item = Vp;

    fn next(&mut self) -> Option<Vp> {
        while self.bits == 0 {
            self.bits = *self.words.get(self.next_word)?;
            self.next_word += 1;
        }
        let bit = self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        Some(vp((self.next_word - 1) * WORD_BITS + bit))
    }
}

impl<'a> IntoIterator for &'a VpSet {
    type Item = Vp;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl FromIterator<Vp> for VpSet {
    fn from_iter<I: IntoIterator<Item = Vp>>(vps: I) -> VpSet {
        let mut set = VpSet::new();
        set.extend(vps);
        set
    }
}

impl Extend<Vp> for VpSet {
    fn extend<I: IntoIterator<Item = Vp>>(&mut self, vps: I) {
        for vp in vps {
            self.insert(vp);
        }
    }
}

impl fmt::Display for VpSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut members = self.iter().map(Vp::index).peekable();
        let mut comma = "";
        while let Some(from) = members.next() {
            let mut to = from;
            while members.next_if_eq(&(to + 1)).is_some() {
                to += 1;
            }
            if from == to {
                write!(f, "{comma}{from}")?;
            } else {
                write!(f, "{comma}{from}-{to}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for VpSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VpSet({self})")
    }
}

/// Error: a text is not a list of processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VpSetError {
    item: String,
    reason: &'static str,
}

impl fmt::Display for VpSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}; a list of processors looks like 0-3,8,10-11", self.item, self.reason)
    }
}

impl std::error::Error for VpSetError {}

impl FromStr for VpSet {
    type Err = VpSetError;

    /// Parses the kernel's list format. White space around the list is ignored; inside it is an error. Items
    /// may come in any order and overlap.
    fn from_str(list: &str) -> Result<VpSet, VpSetError> {
        let mut set = VpSet::new();
        let list = list.trim();
        if list.is_empty() {
            return Ok(set);
        }
        for item in list.split(',') {
            let fail = |reason| VpSetError { item: shorten(item), reason };
            let (from, to) = item.split_once('-').unwrap_or((item, item));
            let (from, to) = (number(from).map_err(fail)?, number(to).map_err(fail)?);
            if from > to {
                return Err(fail("runs backwards"));
            }
            set.extend((from..=to).map(vp));
        }
        Ok(set)
    }
}

/// Parses a number of digits alone, below the limit (`str::parse` would accept a sign).
fn number(digits: &str) -> Result<usize, &'static str> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("is neither a number nor a range");
    }
    match digits.parse::<usize>() {
        Ok(n) if n < VpSet::LIMIT => Ok(n),
        _ => Err("is beyond the largest processor number that is supported, 65535"),
    }
}

/// Returns enough of a malformed text to recognise it.
pub(super) fn shorten(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 40;
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Parses the kernel's mask format (`ff`, `00000001,ffffffff`). Returns the set and the width of the mask in
/// bits.
pub(super) fn parse_mask(mask: &str) -> Result<(VpSet, usize), VpSetError> {
    let mut set = VpSet::new();
    let mut bit = 0;
    for digit in mask.trim().chars().rev().filter(|&c| c != ',') {
        let fail = |reason| VpSetError { item: shorten(mask.trim()), reason };
        let nibble = digit.to_digit(16).ok_or_else(|| fail("is not a mask of processors"))?;
        if bit >= VpSet::LIMIT {
            return Err(fail("is wider than 65536 processors"));
        }
        set.extend((0..4).filter(|i| nibble >> i & 1 == 1).map(|i| vp(bit + i)));
        bit += 4;
    }
    Ok((set, bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_give_members_and_width() {
        let (set, width) = parse_mask("00000001,80000003\n").unwrap();
        assert_eq!((set.to_string().as_str(), width), ("0-1,31-32", 64));
        assert_eq!(parse_mask("3").unwrap(), (VpSet::first_n(2), 4));
        assert_eq!(parse_mask("").unwrap(), (VpSet::new(), 0));
        assert!(parse_mask("0x3").is_err());
        assert!(parse_mask(&"f".repeat(VpSet::LIMIT / 4 + 1)).is_err());
    }

    #[test]
    fn a_long_bad_text_is_shown_in_part() {
        assert_eq!(shorten(&"é".repeat(100)).chars().count(), 41);
        assert_eq!(shorten("short"), "short");
    }
}
