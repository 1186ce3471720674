//! The truth: an index built by one thread with std's map, and the comparison of other indexes with it.
//!
//! - I1. Two indexes are equal if they have the same words, and for each word the same texts with the same
//!   counts. The comparison visits each word of the other index once, and also compares the counters.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use super::keep::{Keep, List, Posting, Words};
use super::words::{self, Hasher, WORD_BYTES_MAX};
use crate::demo::collect::Text;

/// Totals of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) texts: u64,
    pub(crate) bytes: u64,
    /// Occurrences of words in all texts.
    pub(crate) words: u64,
    /// Pairs of a word and a text that contains it.
    pub(crate) postings: u64,
}

/// An index in plain variables.
#[derive(Default)]
pub(super) struct Plain {
    pub(super) words: Words,
    pub(super) totals: Totals,
}

impl Plain {
    /// Builds the index of all texts.
    pub(super) fn build(texts: &[Text]) -> Plain {
        let mut plain = Plain::default();
        (0..).zip(texts).for_each(|(number, text)| plain.add(number, &text.bytes));
        plain
    }

    fn add(&mut self, number: u32, text: &[u8]) {
        let lower = words::lower(text);
        let (found, words) = words::frequencies(&lower, WORD_BYTES_MAX);
        self.totals.texts += 1;
        self.totals.bytes += text.len() as u64;
        self.totals.words += words;
        self.totals.postings += found.len() as u64;
        for (word, count) in found {
            let posting = Posting { text: number, count };
            match self.words.get_mut(word) {
                Some(list) => list.push(posting),
                None => drop(self.words.insert(word.into(), List::new(posting))),
            }
        }
    }
}

/// The expected entry of a word: its number and its sorted texts.
struct Known {
    number: usize,
    texts: Vec<Posting>,
}

/// The index that all others must equal.
pub(super) struct Truth(HashMap<Box<str>, Known, Hasher>);

impl Truth {
    pub(super) fn new(words: Words) -> Truth {
        let known = words.into_iter().enumerate().map(|(number, (word, list))| {
            let mut texts = list.texts();
            texts.sort_unstable();
            (word, Known { number, texts })
        });
        Truth(known.collect())
    }

    /// Iterates over the words.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.keys().map(|word| &**word)
    }

    /// Returns the number of words.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the longest of the words that occur in most texts.
    pub(super) fn common(&self) -> Option<&str> {
        const AMONG: usize = 100;
        let mut words: Vec<(&str, usize)> =
            self.0.iter().map(|(word, known)| (&**word, known.texts.len())).collect();
        // Words with equal numbers of texts are sorted, so that every run chooses the same word.
        words.sort_unstable_by_key(|(word, texts)| (Reverse(*texts), *word));
        words.truncate(AMONG);
        words.into_iter().map(|(word, _)| word).max_by_key(|word| word.len())
    }

    /// Returns a hash of the index that is the same in every run.
    pub(super) fn hash(&self) -> u64 {
        let mut sorted: Vec<(&str, &[Posting])> =
            self.0.iter().map(|(word, known)| (&**word, &known.texts[..])).collect();
        sorted.sort_unstable();
        let mut hasher = DefaultHasher::new();
        sorted.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the first difference between `kept` and the truth, if any (I1).
    pub(super) fn difference<K: Keep + ?Sized>(&self, kept: &K) -> Option<String> {
        let (mut is_seen, mut wrong, mut texts) = (vec![false; self.0.len()], None, Vec::new());
        kept.visit(&mut |word, found| {
            texts.clear();
            texts.extend(found.iter());
            texts.sort_unstable();
            let why = match self.0.get(word) {
                None => "is in no text",
                Some(known) if std::mem::replace(&mut is_seen[known.number], true) => "is there twice",
                Some(known) if texts != known.texts => "has other texts or counts",
                Some(_) => return,
            };
            wrong.get_or_insert_with(|| format!("the word {word:?} {why}"));
        });
        let missing = is_seen.iter().filter(|is_seen| !**is_seen).count();
        wrong.or_else(|| (missing > 0).then(|| format!("{missing} of {} words are missing", self.0.len())))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    type Listed = Vec<(&'static str, Vec<Posting>)>;

    /// An index given as a list, to test wrong ones.
    struct Wrong(Listed);

    impl Keep for Wrong {
        fn post(&self, _: &str, _: Posting) {}

        fn visit(&self, f: &mut dyn FnMut(&str, &List)) {
            self.0.iter().for_each(|(word, texts)| f(word, &List::of(texts)));
        }
    }

    #[test]
    fn every_difference_is_found() {
        let text = |text: &str| Text { path: PathBuf::new(), bytes: text.as_bytes().to_vec() };
        let plain = Plain::build(&[text("a b a"), text(""), text("b")]);
        assert_eq!(plain.totals, Totals { texts: 3, bytes: 6, words: 4, postings: 3 });
        let truth = Truth::new(plain.words);
        let at = |text, count| Posting { text, count };
        let right = || vec![("b", vec![at(2, 1), at(0, 1)]), ("a", vec![at(0, 2)])];
        assert_eq!(truth.difference(&Wrong(right())), None);
        let broken = |how: &dyn Fn(&mut Listed)| {
            let mut index = right();
            how(&mut index);
            truth.difference(&Wrong(index)).unwrap_or_default()
        };
        assert!(broken(&|index| drop(index.pop())).contains("1 of 2 words"));
        assert!(broken(&|index| index.push(("c", vec![at(0, 1)]))).contains("\"c\" is in no text"));
        assert!(broken(&|index| index.push(("a", vec![at(0, 2)]))).contains("\"a\" is there twice"));
        assert!(broken(&|index| index[1].1[0].count += 1).contains("other texts or counts"));
        assert!(broken(&|index| index[0].1.truncate(1)).contains("other texts or counts"));
        assert!(broken(&|index| index[0].1.push(at(2, 1))).contains("other texts or counts"));
    }

    #[test]
    fn the_hash_does_not_depend_on_the_order_of_the_words() {
        let hash = |words: Words| Truth::new(words).hash();
        let at = |text| vec![Posting { text, count: 1 }];
        let of = |words: &[(&str, u32)]| {
            words.iter().map(|(word, text)| (Box::from(*word), List::of(&at(*text)))).collect()
        };
        assert_eq!(hash(of(&[("a", 1), ("b", 2)])), hash(of(&[("b", 2), ("a", 1)])));
        assert_ne!(hash(of(&[("a", 1), ("b", 2)])), hash(of(&[("a", 2), ("b", 1)])));
    }
}
