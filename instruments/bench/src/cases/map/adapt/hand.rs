//! What a thread does to a map, and how far it is.
//!
//! - I1. A thread alone puts in and takes out the keys of its own part.
//! - I2. Every value is 1 when its key is put in, and each update adds 1.

use std::hint::black_box;

use super::super::keys::{Key, scatter};
use super::super::plan::{Kind, Ring, below, kinds};
use crate::rivals::maps::Mapping;

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// All read, but for one operation in a hundred.
    ReadMostly,
    /// All write, but for one operation in ten.
    WriteHeavy,
    /// The first reads and writes by halves, the others have nothing to do.
    OneThread,
    /// All do that.
    AllThreads,
    /// All put in keys that were never there, and look for one that is with each.
    Grow,
    /// All take these out again.
    Shrink,
}

impl Load {
    pub(super) fn is_for(self, thread: usize) -> bool {
        self != Load::OneThread || thread == 0
    }

    /// Whether it is over when its keys are.
    pub(super) fn ends(self) -> bool {
        matches!(self, Load::Grow | Load::Shrink)
    }

    /// Writes in a hundred operations.
    fn writes(self) -> usize {
        match self {
            Load::ReadMostly => 1,
            Load::WriteHeavy => 90,
            _ => 50,
        }
    }
}

/// Keys that stay; those that come and go in mixed loads; those that are put in while it grows. Tests have fewer.
const STAY: usize = if cfg!(test) { 512 } else { 8192 };
const COME_AND_GO: usize = STAY / 4;
const GROWN: usize = STAY * 8;
/// Where it grows, fewer stay.
const STAY_WHERE_IT_GROWS: usize = STAY / 8;
/// Keys of those that stay, in the order in which they are asked for; a power of two.
const DRAWN: usize = STAY * 8;

/// What is to be done, the same for all subjects.
pub(super) struct Deck<K: Key> {
    stay: usize,
    drawn: K::Row,
    ring: K::Row,
    grown: K::Row,
    /// By load: read mostly, much written, by halves.
    kinds: [Vec<Kind>; 3],
}

impl<K: Key> Deck<K> {
    pub(super) fn new(grows: bool) -> Deck<K> {
        let stay = if grows { STAY_WHERE_IT_GROWS } else { STAY };
        let (ring, grown) = ((STAY + COME_AND_GO) as u64, (STAY + COME_AND_GO + GROWN) as u64);
        Deck {
            stay,
            drawn: K::row((0..DRAWN as u64).map(|i| below(scatter(i), stay as u64))),
            ring: K::row(STAY as u64..ring),
            grown: K::row(ring..grown),
            kinds: [Load::ReadMostly, Load::WriteHeavy, Load::AllThreads].map(|load| kinds(load.writes())),
        }
    }

    fn kinds(&self, load: Load) -> &[Kind] {
        match load {
            Load::ReadMostly => &self.kinds[0],
            Load::WriteHeavy => &self.kinds[1],
            _ => &self.kinds[2],
        }
    }

    /// Puts in what is there at first; each thread's hand.
    pub(super) fn deal<M: Mapping<K>>(&self, map: &M, threads: usize) -> Vec<Hand> {
        (0..self.stay).for_each(|number| _ = map.insert(K::of(number as u64), 1));
        let hand = |thread| {
            let (first, last) = (thread * COME_AND_GO / threads, (thread + 1) * COME_AND_GO / threads);
            let ring = Ring::new(first, last - first);
            ring.at_first().for_each(|i| _ = map.insert(K::at(&self.ring, i).to_owned(), 1));
            let grown = (thread * GROWN / threads, (thread + 1) * GROWN / threads);
            let at = thread * DRAWN / threads;
            Hand { at, turns: 0, ring, one_more: false, grown, is_in: 0, updates: 0, failed: 0 }
        };
        (0..threads).map(hand).collect()
    }

    /// What is there must be what was put in and not taken out, and all updates must be in it.
    pub(super) fn check<'h, M: Mapping<K>>(
        &self,
        map: &M,
        hands: impl Iterator<Item = &'h Hand>,
    ) -> Result<(), String> {
        let (mut own, mut updates, mut failed) = (0, 0, 0);
        for hand in hands {
            own += hand.ring.there() + hand.is_in;
            updates += hand.updates;
            failed += hand.failed;
        }
        if failed > 0 {
            return Err(format!("{failed} operations did not do what they say"));
        }
        let (expected, found) =
            ((self.stay + own, (self.stay + own) as u64 + updates), (map.len(), map.sum()));
        if expected != found {
            return Err(format!("entries and their sum should be {expected:?}, and are {found:?}"));
        }
        Ok(())
    }
}

/// How far a thread is.
pub(super) struct Hand {
    at: usize,
    turns: usize,
    ring: Ring,
    /// Of its ring one more is there than at first.
    one_more: bool,
    /// Its keys where the map grows, from and to, and how many of them are in.
    grown: (usize, usize),
    is_in: usize,
    updates: u64,
    failed: u64,
}

/// Operations between two looks at what is to be done.
const BATCH: u64 = 200;

impl Hand {
    /// Does some operations; how many: none, if the load is over.
    #[inline]
    pub(super) fn batch<K: Key, M: Mapping<K>>(&mut self, load: Load, map: &M, deck: &Deck<K>) -> u64 {
        self.some(load, map, deck, BATCH)
    }

    /// The same, at most so many.
    #[inline]
    pub(super) fn some<K: Key, M: Mapping<K>>(
        &mut self,
        load: Load,
        map: &M,
        deck: &Deck<K>,
        most: u64,
    ) -> u64 {
        let ops = most.min(BATCH);
        if load.ends() { self.move_on(load, map, deck, ops) } else { self.mix(load, map, deck, ops) }
    }

    #[inline]
    fn drawn<'d, K: Key>(&mut self, deck: &'d Deck<K>) -> &'d K::Query {
        self.at += 1;
        K::at(&deck.drawn, self.at & (DRAWN - 1))
    }

    fn move_on<K: Key, M: Mapping<K>>(&mut self, load: Load, map: &M, deck: &Deck<K>, ops: u64) -> u64 {
        let (first, last) = self.grown;
        let left = if load == Load::Grow { last - first - self.is_in } else { self.is_in };
        let moves = left.min(ops.div_ceil(2) as usize);
        let mut failed = 0;
        for _ in 0..moves {
            let done = if load == Load::Grow {
                self.is_in += 1;
                map.insert(K::at(&deck.grown, first + self.is_in - 1).to_owned(), 1)
            } else {
                self.is_in -= 1;
                map.remove(K::at(&deck.grown, first + self.is_in))
            };
            failed += u64::from(!done) + u64::from(map.get(self.drawn(deck)).is_none());
        }
        self.failed += failed;
        ops.min(2 * moves as u64)
    }

    fn mix<K: Key, M: Mapping<K>>(&mut self, load: Load, map: &M, deck: &Deck<K>, ops: u64) -> u64 {
        let kinds = deck.kinds(load);
        let (mut failed, mut updates) = (0, 0);
        for _ in 0..ops {
            let key = self.drawn(deck);
            let done = match kinds[self.turns & (kinds.len() - 1)] {
                // Not checked: of `scc::HashIndex` one may miss a key that is being updated.
                Kind::Read => {
                    let _ = black_box(map.get(key));
                    true
                }
                Kind::Update => {
                    updates += 1;
                    map.increment(key)
                }
                // In turns, whatever was done before.
                Kind::Insert | Kind::Remove => {
                    self.one_more = !self.one_more;
                    if self.one_more {
                        map.insert(K::at(&deck.ring, self.ring.put_in()).to_owned(), 1)
                    } else {
                        map.remove(K::at(&deck.ring, self.ring.take_out()))
                    }
                }
            };
            self.turns += 1;
            failed += u64::from(!done);
        }
        self.failed += failed;
        self.updates += updates;
        ops
    }
}
