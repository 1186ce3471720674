//! Evictions: the draw of some entries, and the removal of one of them.

use squall_parts::table::Sample;
use squall_rcu::pin;
use std::hash::BuildHasher;

use super::{Inner, Key, Room, Value};
use crate::listener::{RemovalCause, Told};
use crate::policy::{Candidate, Eviction, Now, Verdict};
use crate::random;
use crate::stored::{Span, Stored};

/// Entries that an eviction compares.
const DRAWN: usize = 5;
/// Homes of the table that a draw visits before it makes do with fewer entries, but one at least.
const VISITS: usize = 64;
/// Draws of an eviction before it gives up.
const ATTEMPTS: usize = 100;

/// The result of an eviction.
pub(super) enum Evicted {
    /// An entry gave its place.
    Made,
    /// The newcomer is worth less than those that were drawn.
    Refused,
    /// No entry was found.
    Empty,
}

impl<K: Key, V: Value, S: BuildHasher, T: Span> Inner<K, V, S, T> {
    /// Evicts an entry, or finds that the newcomer is worth less.
    pub(super) fn evict(&self, newcomer: Option<Candidate>, told: &mut Told<'_, K, V>) -> Evicted {
        // Another thread may take the victim first.
        for _ in 0..ATTEMPTS {
            let mut draw = Draw::new(self, newcomer, told);
            pin(|guard| self.table.remove_sampled_in(guard, random::next(), &mut draw));
            if draw.is_refused {
                return Evicted::Refused;
            }
            if draw.count == 0 && draw.dead.is_none() {
                return Evicted::Empty;
            }
            let (is_mine, cause) = (draw.is_mine, draw.cause());
            drop(draw);
            if is_mine {
                if let (true, Some(counters)) = (cause.was_evicted(), &self.counters) {
                    counters.evicted();
                }
                return Evicted::Made;
            }
        }
        Evicted::Empty
    }
}

/// Some entries that are drawn, of which the policy chooses one.
struct Draw<'a, 'b, K: Key, V: Value, S: BuildHasher, T: Span> {
    room: Room<'a, K, V, S, T>,
    told: &'a mut Told<'b, K, V>,
    newcomer: Option<Candidate>,
    generation: u32,
    now: u64,
    /// The first `count` are entries, and `indexes` their places among those that were shown.
    drawn: [Candidate; DRAWN],
    indexes: [usize; DRAWN],
    count: usize,
    /// Entries that were shown.
    shown: usize,
    /// A dead entry: it is the victim.
    dead: Option<(usize, RemovalCause)>,
    /// Homes that were shown, and the times that the table ended.
    homes: usize,
    rounds: usize,
    is_refused: bool,
    /// Whether the victim was claimed here.
    is_mine: bool,
}

impl<'a, 'b, K: Key, V: Value, S: BuildHasher, T: Span> Draw<'a, 'b, K, V, S, T> {
    fn new(
        inner: &'a Inner<K, V, S, T>,
        newcomer: Option<Candidate>,
        told: &'a mut Told<'b, K, V>,
    ) -> Draw<'a, 'b, K, V, S, T> {
        Draw {
            room: inner.room(),
            told,
            newcomer,
            generation: inner.generation(),
            now: inner.now(),
            drawn: [Candidate::default(); DRAWN],
            indexes: [0; DRAWN],
            count: 0,
            shown: 0,
            dead: None,
            homes: 0,
            rounds: 0,
            is_refused: false,
            is_mine: false,
        }
    }

    fn cause(&self) -> RemovalCause {
        self.dead.map_or(RemovalCause::Size, |(_, cause)| cause)
    }
}

impl<K: Key, V: Value, S: BuildHasher, T: Span> Sample<K, Stored<V, T>> for Draw<'_, '_, K, V, S, T> {
    fn look(&mut self, key: &K, stored: &Stored<V, T>) -> bool {
        let index = self.shown;
        self.shown += 1;
        if stored.is_claimed() {
            return true;
        }
        if let Some(cause) = stored.cause(self.generation, self.now) {
            self.dead = Some((index, cause));
            return false;
        }
        let hash = self.room.inner.table.hasher().hash_one(key);
        self.drawn[self.count] = Candidate::new(hash, stored.cost, stored.mark_now());
        self.indexes[self.count] = index;
        self.count += 1;
        self.count < DRAWN
    }

    fn next(&mut self, next: Option<u64>) -> Option<u64> {
        self.homes += 1;
        self.rounds += usize::from(next.is_none());
        // A large table with few entries is searched as a whole.
        let goes_on = self.homes < VISITS || self.count == 0 && self.rounds < 2;
        goes_on.then(|| next.unwrap_or(0))
    }

    fn choose(&mut self) -> Option<usize> {
        if let Some((index, _)) = self.dead {
            return Some(index);
        }
        if self.count == 0 {
            return None;
        }
        let inner = self.room.inner;
        let present = Now::from_bits(inner.present());
        match inner.policy.try_choose(self.newcomer, &self.drawn[..self.count], present) {
            Ok(Verdict::Refuse) if self.newcomer.is_some() => {
                self.is_refused = true;
                None
            }
            Ok(Verdict::Evict(index)) => Some(self.indexes[index.min(self.count - 1)]),
            Ok(Verdict::Refuse) | Err(_) => Some(self.indexes[0]),
        }
    }

    fn take(&mut self, key: &K, stored: &Stored<V, T>) -> bool {
        let note = self.told.prepare(key, &stored.value, self.cause());
        self.is_mine = self.room.claim(stored);
        if self.is_mine {
            self.told.add(note);
        }
        self.is_mine
    }
}
