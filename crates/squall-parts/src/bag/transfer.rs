//! Transfers between shards: on demand, and by idle clients.

use super::{Bag, Shard, Strategy, sites};
use squall_sys::sync::atomic::Ordering;
use squall_sys::sync::{hint, thread};

/// The answer of the second pass (`bag/I4`).
enum Second {
    Empty,
    Arrived,
    InTransit,
}

impl<T> Bag<T> {
    /// Takes an element of any shard, for a client with an empty shard.
    #[cold]
    #[inline(never)]
    pub(super) fn get_elsewhere(&self, home: &Shard<T>) -> Option<T> {
        let mut rounds = 0;
        loop {
            let mut arrivals = 0;
            for shard in self.from(home) {
                // Before the size (`bag/I4`).
                arrivals = u64::wrapping_add(arrivals, shard.arrivals());
                if shard.is_empty() {
                    continue;
                }
                if let Some(value) = self.take_one(shard, home) {
                    return Some(value);
                }
            }
            match self.second_pass(arrivals) {
                Second::Empty => return None,
                Second::Arrived => {}
                Second::InTransit => {
                    rounds += 1;
                    wait(rounds);
                }
            }
        }
    }

    /// The second pass of `get` after a first one with this sum of arrivals.
    fn second_pass(&self, before: u64) -> Second {
        if sites::AGAIN.is_weak() {
            return Second::Empty;
        }
        let mut arrivals = 0;
        for shard in self.shards() {
            if shard.has_inbound() {
                return Second::InTransit;
            }
            // After `inbound` (`bag/I4`).
            arrivals = u64::wrapping_add(arrivals, shard.arrivals());
        }
        if arrivals == before { Second::Empty } else { Second::Arrived }
    }

    /// Takes an element of `from`, and moves further ones to `home` if the strategy says so.
    fn take_one(&self, from: &Shard<T>, home: &Shard<T>) -> Option<T> {
        let bulk = match self.attributes.strategy() {
            Strategy::Centralized | Strategy::Distributed => 1,
            _ => self.attributes.bulk(),
        };
        if bulk <= 1 || from.index() == home.index() {
            return from.get();
        }
        let mut taken = Vec::with_capacity(bulk);
        let inbound = home.expect();
        from.take(bulk, &mut taken);
        let value = taken.pop();
        if !taken.is_empty() {
            home.put_all(taken);
        }
        drop(inbound);
        value
    }

    /// Moves up to `bulk` elements.
    fn transfer(&self, from: &Shard<T>, to: &Shard<T>) {
        let mut taken = Vec::with_capacity(self.attributes.bulk().max(1));
        let _inbound = to.expect();
        from.take(self.attributes.bulk().max(1), &mut taken);
        if !taken.is_empty() {
            to.put_all(taken);
        }
    }

    /// Tells the bag that a client of `shard` is idle. Once per
    /// [`idle_events`](super::Attributes::idle_events) calls it may move elements between shards, as the
    /// strategy says. An executor calls it when it has no task to run.
    ///
    /// # Cost
    /// Usually one addition to the shard's line; at most one transfer.
    pub fn idle(&self, shard: &Shard<T>) {
        // Relaxed: a count of no order. Threads of one VP share it.
        let events = shard.idle_events.fetch_add(1, Ordering::Relaxed) + 1;
        if !events.is_multiple_of(self.attributes.idle_events().max(1)) {
            return;
        }
        let strategy = self.attributes.strategy();
        match strategy {
            Strategy::Centralized | Strategy::Distributed | Strategy::BulkTransfer => {}
            Strategy::BackgroundPull => {
                if shard.len() < self.attributes.pull_below()
                    && let Some(peer) = self.next_peer(shard)
                    && !peer.is_empty()
                {
                    self.transfer(peer, shard);
                }
            }
            Strategy::BackgroundPush | Strategy::EstimatedPush => {
                let len = shard.len();
                if strategy == Strategy::EstimatedPush {
                    // Relaxed, here and below: an estimate.
                    let told = shard.estimate.load(Ordering::Relaxed);
                    if told.abs_diff(len) >= self.attributes.estimate_step() {
                        shard.estimate.store(len, Ordering::Relaxed);
                    }
                }
                if len <= self.attributes.push_above() {
                    return;
                }
                let Some(peer) = self.next_peer(shard) else { return };
                let far = || {
                    peer.estimate.load(Ordering::Relaxed) <= len.saturating_sub(self.attributes.push_margin())
                };
                if strategy == Strategy::BackgroundPush || far() {
                    self.transfer(shard, peer);
                }
            }
        }
    }
}

/// Pauses, then yields, until a transfer in progress has ended.
fn wait(round: u32) {
    const PAUSES: u32 = if cfg!(loom) { 0 } else { 64 };
    if round <= PAUSES { hint::spin_loop() } else { thread::yield_now() }
}
