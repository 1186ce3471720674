//! A shard: the ids of one place, and the word that other threads read without its lock.

use super::sites;
use squall_lock::{VpLock, VpLockGuard};
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::mem;
use std::ops::Range;

/// The free ids of one place.
pub(super) struct Shard {
    inner: VpLock<Inner>,
    /// State of the shard for threads without the lock. Written under the lock.
    words: CachePadded<Words>,
}

struct Words {
    /// See `ids/I3`.
    state: AtomicU64,
    /// The shard's [`Counts`] as a number: a hint.
    counts: AtomicU64,
}

/// The round of a shard and its numbers of ids, each modulo or up to a limit. So they fit into one word.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    round: u8,
    pub(super) draw: usize,
    pub(super) back: usize,
}

impl Counts {
    const BITS: u32 = 28;
    const MOST: usize = (1 << Counts::BITS) - 1;

    fn pack(self) -> u64 {
        let number = |count: usize| count.min(Counts::MOST) as u64;
        u64::from(self.round) << (2 * Counts::BITS) | number(self.draw) << Counts::BITS | number(self.back)
    }

    fn unpack(bits: u64) -> Counts {
        let number = |bits: u64| bits as usize & Counts::MOST;
        Counts {
            round: (bits >> (2 * Counts::BITS)) as u8,
            draw: number(bits >> Counts::BITS),
            back: number(bits),
        }
    }

    /// Returns the counts as they are in this round.
    fn in_round(self, round: u64) -> Counts {
        if self.round == round as u8 { self } else { Counts { draw: self.draw + self.back, back: 0, ..self } }
    }
}

pub(super) struct Inner {
    /// The latest round that this shard knows.
    round: u64,
    /// Ids that were never given out. They are drawn first.
    fresh: Range<u32>,
    /// Further ids for this round. The first one is next: the one that came back earliest.
    draw: VecDeque<u32>,
    /// Ids that came back in `round`, in that order.
    back: VecDeque<u32>,
    /// The shard's word, as stored.
    published: Word,
}

/// A shard's word: its round, and whether it has ids to draw and returned ids.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Word(u64);

impl Word {
    const DRAW: u64 = 1;
    const BACK: u64 = 2;
    const ROUND: u32 = 2;

    /// Returns the word as a number, which grows with each return to a shard without ids to draw.
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether the shard has ids to draw in this round.
    pub(super) fn has_draw(self, round: u64) -> bool {
        self.0 & Word::DRAW != 0 || self.0 & Word::BACK != 0 && self.0 >> Word::ROUND < round
    }

    /// Returns whether the shard has ids that came back in this round.
    pub(super) fn has_back(self, round: u64) -> bool {
        self.0 & Word::BACK != 0 && self.0 >> Word::ROUND == round
    }
}

impl Inner {
    #[inline]
    fn word(&self) -> Word {
        let draw = if self.draw.is_empty() && self.fresh.is_empty() { 0 } else { Word::DRAW };
        let back = if self.back.is_empty() { 0 } else { Word::BACK };
        Word(self.round << Word::ROUND | back | draw)
    }

    /// Takes an id to draw: one that was never given out, or else the one that came back earliest.
    #[inline]
    fn pop(&mut self) -> Option<u32> {
        self.fresh.next().or_else(|| self.draw.pop_front())
    }
}

impl Shard {
    pub(super) fn new(lock: impl FnOnce(Inner) -> VpLock<Inner>) -> Shard {
        let (draw, back, published) = (VecDeque::new(), VecDeque::new(), Word(0));
        let inner = Inner { round: 0, fresh: 0..0, draw, back, published };
        let words = Words { state: AtomicU64::new(0), counts: AtomicU64::new(0) };
        Shard { inner: lock(inner), words: CachePadded::new(words) }
    }

    /// Locks the shard. If it has not seen `round` yet, its returned ids become ids to draw.
    #[inline]
    fn lock(&self, round: &AtomicU64) -> VpLockGuard<'_, Inner> {
        let mut inner = self.inner.lock();
        // Relaxed: coherence is enough (`ids/I2`).
        let round = round.load(Ordering::Relaxed);
        if inner.round < round {
            self.adopt(&mut inner, round);
        }
        inner
    }

    #[cold]
    fn adopt(&self, inner: &mut Inner, round: u64) {
        inner.round = round;
        if inner.draw.is_empty() {
            mem::swap(&mut inner.draw, &mut inner.back);
        } else {
            inner.draw.append(&mut inner.back);
        }
        self.publish(inner);
    }

    /// Publishes the state, if it changed, and the counts.
    #[inline]
    fn publish(&self, inner: &mut Inner) {
        let word = inner.word();
        // The word itself is not read here: loom would take that read for the last access by another thread.
        if inner.published != word {
            inner.published = word;
            // Release: pairs with the Acquire of `word`.
            self.words.state.store(word.0, Ordering::Release);
        }
        if !cfg!(any(loom, squall_model)) {
            let draw = inner.draw.len() + inner.fresh.len();
            let counts = Counts { round: inner.round as u8, draw, back: inner.back.len() };
            // Relaxed: a hint.
            self.words.counts.store(counts.pack(), Ordering::Relaxed);
        }
    }

    /// Returns the numbers of ids in this round. They may be out of date.
    pub(super) fn counts(&self, round: u64) -> Counts {
        // Relaxed: a hint.
        Counts::unpack(self.words.counts.load(Ordering::Relaxed)).in_round(round)
    }

    /// Returns the shard's word.
    pub(super) fn word(&self) -> Word {
        // Acquire: pairs with the Release of `publish` (`ids/I5`).
        Word(self.words.state.load(sites::LOOK.order(Ordering::Acquire)))
    }

    #[inline]
    pub(super) fn get(&self, round: &AtomicU64) -> Option<u32> {
        let mut inner = self.lock(round);
        let id = inner.pop()?;
        self.publish(&mut inner);
        Some(id)
    }

    /// Takes up to `max` ids, and appends them to `into`.
    pub(super) fn take(&self, round: &AtomicU64, max: usize, into: &mut Vec<u32>) {
        // Before the lock: the memory.
        into.reserve(max.min(64));
        let mut inner = self.lock(round);
        let before = into.len();
        let first = inner.fresh.start;
        inner.fresh.start += max.min(inner.fresh.len()) as u32;
        into.extend(first..inner.fresh.start);
        let count = (max - (into.len() - before)).min(inner.draw.len());
        into.extend(inner.draw.drain(..count));
        self.publish(&mut inner);
    }

    /// Takes the greater half of the ids to draw: those that came back earliest.
    pub(super) fn take_half(&self, round: &AtomicU64) -> (Range<u32>, VecDeque<u32>) {
        let mut inner = self.lock(round);
        let middle = inner.fresh.start + inner.fresh.len() as u32 / 2;
        let fresh = middle..inner.fresh.end;
        inner.fresh.end = middle;
        let half = inner.draw.len().div_ceil(2);
        // In bulk, not one by one.
        let rest = inner.draw.split_off(half);
        let draw = mem::replace(&mut inner.draw, rest);
        self.publish(&mut inner);
        (fresh, draw)
    }

    /// Takes all ids: those to draw, and the returned ones.
    pub(super) fn take_all(&self, round: &AtomicU64) -> (Range<u32>, VecDeque<u32>, VecDeque<u32>) {
        let mut inner = self.lock(round);
        let all =
            (mem::replace(&mut inner.fresh, 0..0), mem::take(&mut inner.draw), mem::take(&mut inner.back));
        self.publish(&mut inner);
        all
    }

    /// Puts ids to draw.
    pub(super) fn refill(&self, round: &AtomicU64, fresh: Range<u32>, mut draw: VecDeque<u32>) {
        let mut inner = self.lock(round);
        if inner.fresh.is_empty() {
            inner.fresh = fresh;
        } else {
            inner.draw.extend(fresh);
        }
        inner.draw.append(&mut draw);
        self.publish(&mut inner);
    }

    /// Puts an id back, for a later round.
    #[inline]
    pub(super) fn put(&self, round: &AtomicU64, id: u32) {
        let mut inner = self.lock(round);
        if sites::WAIT.is_weak() {
            inner.draw.push_back(id);
        } else {
            inner.back.push_back(id);
        }
        self.publish(&mut inner);
    }

    /// Puts several ids back, for a later round.
    pub(super) fn put_all(&self, round: &AtomicU64, ids: impl IntoIterator<Item = u32>) {
        let mut inner = self.lock(round);
        inner.back.extend(ids);
        self.publish(&mut inner);
    }

    /// Returns the number of free ids in this shard.
    pub(super) fn count(&self) -> usize {
        let inner = self.inner.lock();
        inner.fresh.len() + inner.draw.len() + inner.back.len()
    }
}
