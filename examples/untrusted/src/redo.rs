//! The interface between host and child, and the decoder.

use serde::{Deserialize, Serialize};

/// Size of a page.
pub(crate) const PAGE: usize = 4096;

/// Why records were not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BadRecord {
    /// The page has another size.
    Page,
    /// A record ends too early.
    Truncated,
    /// A record writes outside the page.
    Outside,
}

/// Applies log records to pages.
#[squall::interface(remote)]
pub(crate) trait Redo: Send + Sync {
    /// Returns the page after these records. A record is an offset of two bytes, a length of one, and so many
    /// bytes.
    fn apply(&self, page: &[u8], records: &[u8]) -> Result<Vec<u8>, BadRecord>;
}

/// The decoder. It has no state.
pub(crate) struct Decoder;

impl Redo for Decoder {
    fn apply(&self, page: &[u8], mut records: &[u8]) -> Result<Vec<u8>, BadRecord> {
        let mut page = page.to_vec();
        if page.len() != PAGE {
            return Err(BadRecord::Page);
        }
        while let [low, high, length, rest @ ..] = records {
            let at = usize::from(u16::from_le_bytes([*low, *high]));
            let (bytes, rest) = rest.split_at_checked(usize::from(*length)).ok_or(BadRecord::Truncated)?;
            let target = page.get_mut(at..at + bytes.len()).ok_or(BadRecord::Outside)?;
            target.copy_from_slice(bytes);
            records = rest;
        }
        if records.is_empty() { Ok(page) } else { Err(BadRecord::Truncated) }
    }
}

/// A record.
pub(crate) fn record(at: u16, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).expect("a record has at most 255 bytes");
    let mut record = at.to_le_bytes().to_vec();
    record.push(length);
    record.extend(bytes);
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_change_the_page_or_are_errors() {
        let page = vec![0; PAGE];
        let two = [record(1, b"ab"), record(4094, b"yz")].concat();
        let changed = Decoder.apply(&page, &two).unwrap();
        assert_eq!((&changed[..4], &changed[4093..]), (&b"\0ab\0"[..], &b"\0yz"[..]));
        assert_eq!(Decoder.apply(&page, &record(4095, b"yz")), Err(BadRecord::Outside));
        assert_eq!(Decoder.apply(&page, &two[..4]), Err(BadRecord::Truncated));
        assert_eq!(Decoder.apply(&page, &two[..2]), Err(BadRecord::Truncated));
        assert_eq!(Decoder.apply(&page[1..], &two), Err(BadRecord::Page));
    }
}
