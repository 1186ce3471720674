//! The pattern of a page. Each word of it follows from one write and the number of the page.

use squall::pager::cache::PAGE_BYTES;

/// Number of bytes of a word.
const WORD: usize = 8;
/// Number of words of a page.
pub(super) const WORDS: u64 = (PAGE_BYTES / WORD) as u64;
const WORDS_BITS: u32 = 10;
const FAMILY_BITS: u32 = 16;
const _: () = assert!(WORDS < 1 << WORDS_BITS);

/// The contents of a page: the id of a write, and the number of words that it wrote. Zeros follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    id: u64,
    words: u64,
}

impl Content {
    /// Makes the contents that a write of `words` words leaves in a page of this family of files. `serial`
    /// numbers the writes from 1 on.
    pub(super) fn new(serial: u64, family: u64, words: u64) -> Content {
        if words == 0 { Content::default() } else { Content { id: serial << FAMILY_BITS | family, words } }
    }

    pub(super) fn serial(self) -> u64 {
        self.id >> FAMILY_BITS
    }

    pub(super) fn family(self) -> u64 {
        self.id & ((1 << FAMILY_BITS) - 1)
    }

    pub(super) fn is_zero(self) -> bool {
        self.words == 0
    }

    /// Returns the contents after all words but the first ones became zero.
    pub(super) fn cut(self, words: u64) -> Content {
        if words == 0 { Content::default() } else { Content { words: self.words.min(words), ..self } }
    }

    /// Returns the contents as one word, for an atomic.
    pub(super) fn pack(self) -> u64 {
        self.id << WORDS_BITS | self.words
    }

    pub(super) fn unpack(word: u64) -> Content {
        Content { id: word >> WORDS_BITS, words: word & ((1 << WORDS_BITS) - 1) }
    }

    /// Returns a word of the page.
    fn word(self, page: u64, at: u64) -> u64 {
        match at {
            _ if at >= self.words => 0,
            0 => self.id,
            1 => !page,
            _ => {
                let mixed = (self.id ^ page.rotate_left(32) ^ at << 48).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                mixed ^ mixed >> 29
            }
        }
    }

    /// Writes the contents into a page.
    pub(super) fn write(self, page: u64, into: &mut [u8]) {
        for (at, word) in into.chunks_exact_mut(WORD).enumerate() {
            word.copy_from_slice(&self.word(page, at as u64).to_le_bytes());
        }
    }

    /// Reads the contents of a page.
    ///
    /// # Errors
    /// The page is torn, or belongs elsewhere.
    pub(super) fn read(page: u64, from: &[u8]) -> Result<Content, String> {
        let words: Vec<u64> =
            from.chunks_exact(WORD).map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect();
        let whole = Content { id: words[0], words: if words[0] == 0 { 0 } else { WORDS } };
        if whole.words > 1 && words[1] != !page && words[1] != 0 {
            return Err(format!("page {page} shows page {} of write {}", !words[1], whole.serial()));
        }
        let same = words.iter().enumerate().take_while(|(at, word)| whole.word(page, *at as u64) == **word);
        let count = same.count();
        match words[count.max(1)..].iter().position(|word| *word != 0) {
            None if whole.is_zero() => Ok(Content::default()),
            None => Ok(Content { words: count as u64, ..whole }),
            Some(at) => Err(format!(
                "page {page} is torn: word {} does not belong to write {}",
                count.max(1) + at,
                whole.serial()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_as_it_was_written_and_a_torn_one_is_refused() {
        let mut bytes = vec![0; PAGE_BYTES];
        for page in [0, 1, 77] {
            for words in [0, 1, 3, WORDS - 1, WORDS] {
                let content = Content::new(5, 3, words);
                content.write(page, &mut bytes);
                assert_eq!(Content::read(page, &bytes), Ok(content));
                assert_eq!(Content::unpack(content.pack()), content);
            }
            Content::new(6, 3, WORDS).write(page, &mut bytes[..PAGE_BYTES / 2]);
            let torn = Content::read(page, &bytes).unwrap_err();
            assert!(torn.contains("is torn"), "{torn}");
            assert!(Content::read(page + 1, &bytes).unwrap_err().contains("shows page"));
        }
    }
}
