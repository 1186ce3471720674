//! A thread's operations on a map, and its progress.
//!
//! - I1. Only its own thread inserts and removes the keys of a part.
//! - I2. Every value is 1 when its key is inserted, and each update adds 1.

use std::hint::black_box;

use super::super::keys::{Key, scatter};
use super::super::plan::{Kind, Ring, below, kinds};
use crate::rivals::maps::Mapping;

/// Load of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// All threads read; one operation in a hundred writes.
    ReadMostly,
    /// All threads write; one operation in ten reads.
    WriteHeavy,
    /// The first thread works, with as many reads as writes; the others sleep.
    OneThread,
    /// All threads work, with as many reads as writes.
    AllThreads,
    /// All threads insert new keys, and look up a present key with each.
    Grow,
    /// All threads remove those keys again.
    Shrink,
}

impl Load {
    pub(super) fn is_for(self, thread: usize) -> bool {
        self != Load::OneThread || thread == 0
    }

    /// Whether the load ends when its keys are used up.
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

/// Keys that stay; keys that come and go in mixed loads; keys inserted during growth. Tests have fewer.
const STAY: usize = if cfg!(test) { 512 } else { 8192 };
const COME_AND_GO: usize = STAY / 4;
const GROWN: usize = STAY * 8;
/// Keys that stay in a growing map: fewer.
const STAY_WHERE_IT_GROWS: usize = STAY / 8;
/// Lookups of staying keys, in order; a power of two.
const DRAWN: usize = STAY * 8;

/// The operations, equal for all subjects.
pub(super) struct Deck<K: Key> {
    stay: usize,
    drawn: K::Row,
    ring: K::Row,
    grown: K::Row,
    /// By load: mostly reads, mostly writes, and as many reads as writes.
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

    /// Inserts the initial content, and returns each thread's hand.
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

    /// Checks that the present keys are those inserted and not removed, and that all updates are in the
    /// values.
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
            return Err(format!("{failed} operations had a wrong result"));
        }
        let (expected, found) =
            ((self.stay + own, (self.stay + own) as u64 + updates), (map.len(), map.sum()));
        if expected != found {
            return Err(format!("entries and sum of values are {found:?}, not {expected:?}"));
        }
        Ok(())
    }
}

/// A thread's progress.
pub(super) struct Hand {
    at: usize,
    turns: usize,
    ring: Ring,
    /// Whether its ring holds one key more than at the start.
    one_more: bool,
    /// Its keys in a growing map, from and to, and the number inserted.
    grown: (usize, usize),
    is_in: usize,
    updates: u64,
    failed: u64,
}

/// Operations between two checks of the step.
const BATCH: u64 = 200;

impl Hand {
    /// Does some operations and returns their number; zero if the load is over.
    #[inline]
    pub(super) fn batch<K: Key, M: Mapping<K>>(&mut self, load: Load, map: &M, deck: &Deck<K>) -> u64 {
        self.some(load, map, deck, BATCH)
    }

    /// Does at most `most` operations and returns their number.
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
                // Not checked: a lookup in `scc::HashIndex` may miss a key during its update.
                Kind::Read => {
                    let _ = black_box(map.get(key));
                    true
                }
                Kind::Update => {
                    updates += 1;
                    map.increment(key)
                }
                // By turns, independent of the operations before.
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
