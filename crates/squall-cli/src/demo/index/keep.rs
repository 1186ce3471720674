//! Maps that keep an index while many threads build it: Squall's and the rivals', each used in its usual way.
//!
//! The value of a word is a list of texts, which grows in place. Maps that give mutable access hold the list
//! directly. Squall's maps give shared access to values. Their lists therefore have a lock and are counted
//! references, which can be cloned out of the map.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use dashmap::DashMap;
use squall::Handle;
use squall::lock::Lock;
use squall::objects::map::{Map, MapExt};

use super::words::Hasher;

/// A word occurs `count` times in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Posting {
    /// Number of the text.
    pub(crate) text: u32,
    pub(crate) count: u32,
}

/// A map that keeps an index.
pub(super) trait Keep: Sync {
    /// Records that a text contains a word. Each pair is posted once.
    fn post(&self, word: &str, posting: Posting);
    /// Calls `f` for each word with its texts, in any order. No thread writes meanwhile.
    fn visit(&self, f: &mut dyn FnMut(&str, &[Posting]));
}

/// The texts of a word, in Squall's maps.
#[derive(Clone)]
pub(super) struct List(Arc<Lock<Vec<Posting>>>);

/// Any of Squall's maps.
pub(super) type Ours = Handle<dyn Map<Box<str>, List, Hasher>>;

impl List {
    /// Returns a copy of the texts.
    pub(super) fn texts(&self) -> Vec<Posting> {
        self.0.lock().clone()
    }
}

impl Keep for Ours {
    fn post(&self, word: &str, posting: Posting) {
        // The closure runs inside an operation and must not wait. If the list is locked, clone its reference
        // and push after the lookup.
        let left = self.with(word, |list| match list.0.try_lock() {
            Some(mut texts) => {
                texts.push(posting);
                None
            }
            None => Some(list.clone()),
        });
        match left {
            Some(None) => {}
            Some(Some(list)) => list.0.lock().push(posting),
            None => {
                let list = List(Arc::new(Lock::new(vec![posting])));
                if self.try_insert(word.into(), list).is_err() {
                    // Another thread inserted the word first, and words are never removed.
                    self.get_cloned(word)
                        .expect("the list of a word is missing, although a word is never removed")
                        .0
                        .lock()
                        .push(posting);
                }
            }
        }
    }

    fn visit(&self, f: &mut dyn FnMut(&str, &[Posting])) {
        self.for_each(|word, list| f(word, &list.0.lock()));
    }
}

/// Words and their texts in std's map.
pub(super) type Words = HashMap<Box<str>, Vec<Posting>, Hasher>;

/// std's map behind one std mutex.
#[derive(Default)]
pub(super) struct Locked(Mutex<Words>);

impl Locked {
    /// Ignores poison: a panicking thread leaves the map consistent.
    fn lock(&self) -> MutexGuard<'_, Words> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

impl Keep for Locked {
    fn post(&self, word: &str, posting: Posting) {
        let mut words = self.lock();
        match words.get_mut(word) {
            Some(texts) => texts.push(posting),
            None => drop(words.insert(word.into(), vec![posting])),
        }
    }

    fn visit(&self, f: &mut dyn FnMut(&str, &[Posting])) {
        self.lock().iter().for_each(|(word, texts)| f(word, texts));
    }
}

impl Keep for DashMap<Box<str>, Vec<Posting>, Hasher> {
    fn post(&self, word: &str, posting: Posting) {
        // Looks up without an owned key first, because most words are present.
        match self.get_mut(word) {
            Some(mut texts) => texts.push(posting),
            None => self.entry(word.into()).or_default().push(posting),
        }
    }

    fn visit(&self, f: &mut dyn FnMut(&str, &[Posting])) {
        self.iter().for_each(|entry| f(entry.key(), entry.value()));
    }
}

impl Keep for scc::HashMap<Box<str>, Vec<Posting>, Hasher> {
    fn post(&self, word: &str, posting: Posting) {
        if self.update_sync(word, |_, texts| texts.push(posting)).is_none() {
            self.entry_sync(word.into()).or_default().get_mut().push(posting);
        }
    }

    fn visit(&self, f: &mut dyn FnMut(&str, &[Posting])) {
        self.iter_sync(|word, texts| {
            f(word, texts);
            true
        });
    }
}

/// Keeps no entries. Its row shows the cost of reading and splitting words alone.
pub(super) struct Nothing;

impl Keep for Nothing {
    fn post(&self, word: &str, posting: Posting) {
        std::hint::black_box((word, posting));
    }

    fn visit(&self, _: &mut dyn FnMut(&str, &[Posting])) {}
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::form::Form;
    use super::*;

    /// Four threads post the same words; each posting is there once.
    fn keeps<K: Keep>(kept: &K) {
        const TEXTS: u32 = 200;
        let names: Vec<String> = (0..50).map(|n| format!("word{n}")).collect();
        thread::scope(|scope| {
            for thread in 0..4 {
                let names = &names;
                scope.spawn(move || {
                    for text in (0..TEXTS).filter(|text| text % 4 == thread) {
                        names.iter().for_each(|word| kept.post(word, Posting { text, count: text + 1 }));
                    }
                });
            }
        });
        let mut seen = Vec::new();
        kept.visit(&mut |word, texts| {
            let mut texts = texts.to_vec();
            texts.sort_unstable();
            assert!(
                texts.iter().copied().eq((0..TEXTS).map(|text| Posting { text, count: text + 1 })),
                "{word}"
            );
            seen.push(word.to_owned());
        });
        seen.sort();
        let mut names = names;
        names.sort();
        assert_eq!(seen, names);
    }

    #[test]
    fn what_threads_post_at_once_is_there_once() {
        let _serial = crate::serial::lock();
        for form in [Form::Locked, Form::Shared, Form::Partitioned, Form::Replicated, Form::Adaptive] {
            keeps(&form.make().handle());
        }
        keeps(&Locked::default());
        keeps(&DashMap::<Box<str>, Vec<Posting>, Hasher>::default());
        keeps(&scc::HashMap::<Box<str>, Vec<Posting>, Hasher>::default());
    }
}
