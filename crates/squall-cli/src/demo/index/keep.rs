//! Who keeps an index while many threads build it: maps of ours and of others, each used as one would.
//!
//! What changes of a word is its list of texts, and that changes in place. Maps that let a caller change a value hold the list
//! itself. Ours lend values to be read, so that a list has a lock, and a share in it can be taken out of the map.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use dashmap::DashMap;
use squall::Handle;
use squall::lock::Lock;
use squall::objects::map::{MapExt, Map};

use super::plain::Posting;
use super::words::Hasher;

/// Keeps an index.
pub(super) trait Keep: Sync {
    /// Notes that a word is in a text. Each pair of both is noted once.
    fn post(&self, word: &str, posting: Posting);
    /// Calls `f` for each word with its texts, in any order. Nobody writes meanwhile.
    fn visit(&self, f: &mut dyn FnMut(&str, &[Posting]));
}

/// The texts of a word, in maps of ours.
#[derive(Clone)]
pub(super) struct List(Arc<Lock<Vec<Posting>>>);

/// Any map of ours.
pub(super) type Ours = Handle<dyn Map<Box<str>, List, Hasher>>;

impl List {
    /// A copy of the texts.
    pub(super) fn texts(&self) -> Vec<Posting> {
        self.0.lock().clone()
    }
}

impl Keep for Ours {
    fn post(&self, word: &str, posting: Posting) {
        // A read is an operation, which must not wait: where somebody else is at the list, a share in it is taken out first.
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
                    // Another thread was faster, and nobody takes a word out.
                    self.get(word).expect("it is there").0.lock().push(posting);
                }
            }
        }
    }

    fn visit(&self, f: &mut dyn FnMut(&str, &[Posting])) {
        self.for_each(|word, list| f(word, &list.0.lock()));
    }
}

/// Words and their texts in the map that is written first.
pub(super) type Words = HashMap<Box<str>, Vec<Posting>, Hasher>;

/// Everything behind one lock of std's.
#[derive(Default)]
pub(super) struct Locked(Mutex<Words>);

impl Locked {
    /// Nothing is half done under it when a thread panics.
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
        // First without a key of its own, as most words are there.
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

/// Keeps nothing: what reading and telling words apart costs alone.
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

    /// What four threads post of as many words at once is there, once.
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
        let _alone = crate::alone();
        for form in [Form::Locked, Form::Central, Form::Partitioned, Form::Replicated, Form::Adaptive] {
            keeps(&form.make().co());
        }
        keeps(&Locked::default());
        keeps(&DashMap::<Box<str>, Vec<Posting>, Hasher>::default());
        keeps(&scc::HashMap::<Box<str>, Vec<Posting>, Hasher>::default());
    }
}
