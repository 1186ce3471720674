//! Maps that keep an index while many threads build it: Squall's and the rivals', each used in its usual way.
//!
//! - I1. The value of a word is the same in all maps: a list of texts that is never changed, without a lock.
//!   A new list begins with the new text and goes on with the old list.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use dashmap::DashMap;
use squall::Handle;
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
    fn visit(&self, f: &mut dyn FnMut(&str, &List));
}

/// The texts of a word (I1). A clone costs a counted reference.
#[derive(Clone)]
pub(super) struct List(Option<Arc<Node>>);

struct Node {
    posting: Posting,
    rest: List,
}

impl List {
    /// Makes the list of one text.
    pub(super) fn new(posting: Posting) -> List {
        List(None).and(posting)
    }

    /// Returns a list with one more text.
    fn and(&self, posting: Posting) -> List {
        List(Some(Arc::new(Node { posting, rest: self.clone() })))
    }

    /// Replaces the list by one with one more text, where a map gives mutable access.
    pub(super) fn push(&mut self, posting: Posting) {
        let rest = List(self.0.take());
        self.0 = Some(Arc::new(Node { posting, rest }));
    }

    /// Iterates over the texts, the latest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Posting> + '_ {
        let nodes = std::iter::successors(self.0.as_deref(), |node| node.rest.0.as_deref());
        nodes.map(|node| node.posting)
    }

    /// Returns a copy of the texts.
    pub(super) fn texts(&self) -> Vec<Posting> {
        self.iter().collect()
    }

    /// Makes a list of these texts.
    #[cfg(test)]
    pub(super) fn of(texts: &[Posting]) -> List {
        texts.iter().fold(List(None), |list, posting| list.and(*posting))
    }
}

impl Drop for List {
    /// Frees node after node. The derived drop would recurse, and a long list would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(node) = next.and_then(Arc::into_inner) {
            let Node { mut rest, .. } = node;
            next = rest.0.take();
        }
    }
}

/// Any of Squall's maps.
pub(super) type Ours = Handle<dyn Map<Box<str>, List, Hasher>>;

impl Keep for Ours {
    fn post(&self, word: &str, posting: Posting) {
        // Looks up without an owned key first, because most words are present.
        if !self.update(word, |list| list.and(posting))
            && self.try_insert(word.into(), List::new(posting)).is_err()
        {
            // Another thread inserted the word first, and words are never removed.
            self.update(word, |list| list.and(posting));
        }
    }

    fn visit(&self, f: &mut dyn FnMut(&str, &List)) {
        self.for_each(|word, list| f(word, list));
    }
}

/// Words and their texts in std's map.
pub(super) type Words = HashMap<Box<str>, List, Hasher>;

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
            None => drop(words.insert(word.into(), List::new(posting))),
        }
    }

    fn visit(&self, f: &mut dyn FnMut(&str, &List)) {
        self.lock().iter().for_each(|(word, texts)| f(word, texts));
    }
}

impl Keep for DashMap<Box<str>, List, Hasher> {
    fn post(&self, word: &str, posting: Posting) {
        // Looks up without an owned key first, because most words are present.
        match self.get_mut(word) {
            Some(mut texts) => texts.push(posting),
            None => self.entry(word.into()).or_insert(List(None)).push(posting),
        }
    }

    fn visit(&self, f: &mut dyn FnMut(&str, &List)) {
        self.iter().for_each(|entry| f(entry.key(), entry.value()));
    }
}

impl Keep for scc::HashMap<Box<str>, List, Hasher> {
    fn post(&self, word: &str, posting: Posting) {
        if self.update_sync(word, |_, texts| texts.push(posting)).is_none() {
            self.entry_sync(word.into()).or_insert(List(None)).get_mut().push(posting);
        }
    }

    fn visit(&self, f: &mut dyn FnMut(&str, &List)) {
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

    fn visit(&self, _: &mut dyn FnMut(&str, &List)) {}
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
            let mut texts = texts.texts();
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
    fn a_long_list_is_freed_without_recursion() {
        let mut list = List::new(Posting { text: 0, count: 1 });
        (1..200_000).for_each(|text| list.push(Posting { text, count: 1 }));
        let shared = list.and(Posting { text: 200_000, count: 1 });
        drop(list);
        assert!(shared.iter().map(|posting| posting.text).eq((0..=200_000).rev()));
    }

    #[test]
    fn what_threads_post_at_once_is_there_once() {
        let _serial = crate::serial::lock();
        for form in [Form::Locked, Form::Shared, Form::Partitioned, Form::Replicated, Form::Adaptive] {
            keeps(&form.make().handle());
        }
        keeps(&Locked::default());
        keeps(&DashMap::<Box<str>, List, Hasher>::default());
        keeps(&scc::HashMap::<Box<str>, List, Hasher>::default());
    }
}
