//! The truth: the index as one thread builds it with std's map, and how others are compared with it.
//!
//! - I1. Two indexes are the same if they have the same words, and of each the same texts with the same counts: found by walking the
//!   other one, each of its words once, and by the counters that were kept beside it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::{Duration, Instant};

use super::keep::{Keep, Words};
use super::words::{self, Hasher, WORD_BYTES_MAX};
use crate::demo::collect::Text;

/// A word is in a text so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Posting {
    /// Its number among the texts.
    pub(crate) text: u32,
    pub(crate) count: u32,
}

/// What is counted besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) texts: u64,
    pub(crate) bytes: u64,
    /// Words in all texts, each as often as it is there.
    pub(crate) words: u64,
    /// Pairs of a word and a text that has it.
    pub(crate) postings: u64,
}

/// An index in plain variables.
#[derive(Default)]
pub(super) struct Plain {
    pub(super) words: Words,
    pub(super) totals: Totals,
}

impl Plain {
    /// Of all texts; or of the first ones, if that takes longer than `time`.
    pub(super) fn build(texts: &[Text], time: Duration) -> Plain {
        let began = Instant::now();
        let mut plain = Plain::default();
        for (number, text) in (0..).zip(texts) {
            plain.add(number, &text.bytes);
            if began.elapsed() > time {
                break;
            }
        }
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
                None => drop(self.words.insert(word.into(), vec![posting])),
            }
        }
    }
}

/// What a word is compared by: its number among the words, and its texts in their order.
struct Known {
    number: usize,
    texts: Vec<Posting>,
}

/// The index that all others must be.
pub(super) struct Truth(HashMap<Box<str>, Known, Hasher>);

impl Truth {
    pub(super) fn new(words: Words) -> Truth {
        let known = words.into_iter().enumerate().map(|(number, (word, mut texts))| {
            texts.sort_unstable();
            (word, Known { number, texts })
        });
        Truth(known.collect())
    }

    /// The words.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.keys().map(|word| &**word)
    }

    /// How many words there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The longest word of those that are in most texts.
    pub(super) fn common(&self) -> Option<&str> {
        const AMONG: usize = 100;
        let mut words: Vec<(&str, usize)> =
            self.0.iter().map(|(word, known)| (&**word, known.texts.len())).collect();
        // Of words in as many texts, always the same ones.
        words.sort_unstable_by_key(|(word, texts)| (Reverse(*texts), *word));
        words.truncate(AMONG);
        words.into_iter().map(|(word, _)| word).max_by_key(|word| word.len())
    }

    /// A number by which two indexes can be told apart, the same in every run.
    pub(super) fn hash(&self) -> u64 {
        let mut sorted: Vec<(&str, &[Posting])> =
            self.0.iter().map(|(word, known)| (&**word, &known.texts[..])).collect();
        sorted.sort_unstable();
        let mut hasher = DefaultHasher::new();
        sorted.hash(&mut hasher);
        hasher.finish()
    }

    /// What is different in `kept`, if anything (I1).
    pub(super) fn difference<K: Keep + ?Sized>(&self, kept: &K) -> Option<String> {
        let (mut is_seen, mut wrong, mut texts) = (vec![false; self.0.len()], None, Vec::new());
        kept.visit(&mut |word, found| {
            texts.clear();
            texts.extend_from_slice(found);
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
        wrong.or_else(|| (missing > 0).then(|| format!("{missing} of {} words are not there", self.0.len())))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    type Listed = Vec<(&'static str, Vec<Posting>)>;

    /// An index as a list, for one that is wrong.
    struct Wrong(Listed);

    impl Keep for Wrong {
        fn post(&self, _: &str, _: Posting) {}

        fn visit(&self, f: &mut dyn FnMut(&str, &[Posting])) {
            self.0.iter().for_each(|(word, texts)| f(word, texts));
        }
    }

    #[test]
    fn every_difference_is_found() {
        let text = |text: &str| Text { path: PathBuf::new(), bytes: text.as_bytes().to_vec() };
        let plain = Plain::build(&[text("a b a"), text(""), text("b")], Duration::MAX);
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
    fn the_hash_is_that_of_the_words_whatever_their_order() {
        let hash = |words: Words| Truth::new(words).hash();
        let at = |text| vec![Posting { text, count: 1 }];
        let of =
            |words: &[(&str, u32)]| words.iter().map(|(word, text)| (Box::from(*word), at(*text))).collect();
        assert_eq!(hash(of(&[("a", 1), ("b", 2)])), hash(of(&[("b", 2), ("a", 1)])));
        assert_ne!(hash(of(&[("a", 1), ("b", 2)])), hash(of(&[("a", 2), ("b", 1)])));
    }
}
