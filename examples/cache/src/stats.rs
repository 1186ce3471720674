//! Counters of the server. Each processor counts in words of its own, since each request counts.

use std::sync::{Mutex, MutexGuard, PoisonError};

use squall::Owned;
use squall::objects::counter::{self, Counter};

/// A counted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are memcached's, and its protocol.txt explains them")]
pub enum Fact {
    TotalConnections,
    RejectedConnections,
    IdleKicks,
    CmdSet,
    CmdFlush,
    CmdMeta,
    GetHits,
    GetMisses,
    GetExpired,
    DeleteMisses,
    DeleteHits,
    IncrMisses,
    IncrHits,
    DecrMisses,
    DecrHits,
    CasMisses,
    CasHits,
    CasBadval,
    TouchHits,
    TouchMisses,
    StoreTooLarge,
    StoreNoMemory,
    BytesRead,
    BytesWritten,
    TotalItems,
    Reclaimed,
}

/// All events with their names in `stats`, in the order of the enumeration.
const FACTS: [(Fact, &str); 26] = [
    (Fact::TotalConnections, "total_connections"),
    (Fact::RejectedConnections, "rejected_connections"),
    (Fact::IdleKicks, "idle_kicks"),
    (Fact::CmdSet, "cmd_set"),
    (Fact::CmdFlush, "cmd_flush"),
    (Fact::CmdMeta, "cmd_meta"),
    (Fact::GetHits, "get_hits"),
    (Fact::GetMisses, "get_misses"),
    (Fact::GetExpired, "get_expired"),
    (Fact::DeleteMisses, "delete_misses"),
    (Fact::DeleteHits, "delete_hits"),
    (Fact::IncrMisses, "incr_misses"),
    (Fact::IncrHits, "incr_hits"),
    (Fact::DecrMisses, "decr_misses"),
    (Fact::DecrHits, "decr_hits"),
    (Fact::CasMisses, "cas_misses"),
    (Fact::CasHits, "cas_hits"),
    (Fact::CasBadval, "cas_badval"),
    (Fact::TouchHits, "touch_hits"),
    (Fact::TouchMisses, "touch_misses"),
    (Fact::StoreTooLarge, "store_too_large"),
    (Fact::StoreNoMemory, "store_no_memory"),
    (Fact::BytesRead, "bytes_read"),
    (Fact::BytesWritten, "bytes_written"),
    (Fact::TotalItems, "total_items"),
    (Fact::Reclaimed, "reclaimed"),
];

/// The counters.
#[derive(Debug)]
pub struct Stats {
    counters: Vec<Owned<dyn Counter>>,
    /// Totals at the last reset. A counter that all threads add to cannot be set.
    at_reset: Mutex<[u64; FACTS.len()]>,
}

impl Stats {
    pub(crate) fn new() -> Stats {
        Stats {
            counters: FACTS
                .iter()
                .map(|(_, name)| counter::distributed().named(format!("server.{name}")))
                .collect(),
            at_reset: Mutex::new([0; FACTS.len()]),
        }
    }

    /// Counts one event.
    #[inline]
    pub(crate) fn note(&self, fact: Fact) {
        self.counters[fact as usize].inc();
    }

    /// Counts this many events.
    #[inline]
    pub(crate) fn add(&self, fact: Fact, times: u64) {
        self.counters[fact as usize].add(times);
    }

    /// Returns the number of events since the last reset.
    pub fn total(&self, fact: Fact) -> u64 {
        self.counters[fact as usize].total().wrapping_sub(self.lock()[fact as usize])
    }

    /// Resets all counters.
    pub(crate) fn reset(&self) {
        let mut at_reset = self.lock();
        for (then, counter) in at_reset.iter_mut().zip(&self.counters) {
            *then = counter.total();
        }
    }

    /// Returns all totals with their names.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let gets = self.total(Fact::GetHits) + self.total(Fact::GetMisses);
        let touches = self.total(Fact::TouchHits) + self.total(Fact::TouchMisses);
        let sums = [("cmd_get", gets), ("cmd_touch", touches)];
        sums.into_iter().chain(FACTS.iter().map(|(fact, name)| (*name, self.total(*fact))))
    }

    fn lock(&self) -> MutexGuard<'_, [u64; FACTS.len()]> {
        // After a panic the totals are still valid numbers.
        self.at_reset.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fact_has_its_place_and_a_reset_begins_anew() {
        assert!(FACTS.iter().enumerate().all(|(place, (fact, _))| *fact as usize == place));
        let stats = Stats::new();
        stats.add(Fact::BytesRead, 5);
        stats.note(Fact::GetHits);
        assert_eq!((stats.total(Fact::BytesRead), stats.total(Fact::GetHits)), (5, 1));
        stats.reset();
        stats.add(Fact::BytesRead, 2);
        assert!(stats.all().all(|(name, total)| total == if name == "bytes_read" { 2 } else { 0 }));
    }
}
