//! Transfers between shards: on demand, and by idle clients.

use super::shard::Shard;
use super::{Bag, Client, Strategy, sites};
use squall_sys::sync::atomic::Ordering;
use squall_sys::sync::recheck;

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
            // Before the sizes (`bag/I4`).
            let mut arrivals = home.arrivals();
            if let Some(value) = home.get() {
                return Some(value);
            }
            for shard in self.peers(home) {
                arrivals = arrivals.wrapping_add(shard.arrivals());
                if shard.is_empty() {
                    continue;
                }
                if let Some(value) = self.take_one(shard, home) {
                    return Some(value);
                }
            }
            match self.second_pass(arrivals) {
                Second::Empty => return None,
                Second::InTransit if squall_sys::fork::forked() => refuse(),
                Second::Arrived | Second::InTransit => {
                    rounds += 1;
                    recheck::wait(rounds);
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
            _ => self.attributes.bulk().min(from.len()),
        };
        if bulk <= 1 {
            return from.get();
        }
        let mut taken = Vec::with_capacity(bulk);
        let inbound = home.expect();
        from.take(&mut taken);
        let value = taken.pop();
        if !taken.is_empty() {
            home.put_all(taken);
        }
        drop(inbound);
        value
    }

    /// Moves up to `bulk` elements.
    fn transfer(&self, from: &Shard<T>, to: &Shard<T>) {
        let mut taken = Vec::with_capacity(self.attributes.bulk().min(from.len()).max(1));
        let _inbound = to.expect();
        from.take(&mut taken);
        if !taken.is_empty() {
            to.put_all(taken);
        }
    }

    /// One act of an idle client.
    pub(super) fn balance(&self, shard: &Shard<T>) {
        let strategy = self.attributes.strategy();
        match strategy {
            Strategy::Centralized | Strategy::Distributed | Strategy::BulkTransfer => {}
            Strategy::BackgroundPull => {
                if shard.len() < self.attributes.pull_below()
                    && let Some(peer) = self.peers(shard).next()
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
                let Some(peer) = self.peers(shard).next() else { return };
                let most = len.checked_sub(self.attributes.push_margin());
                let is_far = most.is_some_and(|most| peer.estimate.load(Ordering::Relaxed) <= most);
                if strategy == Strategy::BackgroundPush || is_far {
                    self.transfer(shard, peer);
                }
            }
        }
    }
}

impl<T> Client<'_, T> {
    /// Tells the bag that this client is idle. Once per [`idle_events`](super::Attributes::idle_events)
    /// calls it may move elements between shards, as the strategy says. An executor calls it when it has no
    /// task to run.
    ///
    /// # Cost
    /// Usually a store to a line of the shard's own. At most one transfer.
    pub fn idle(&self) {
        let count = &self.shard.own().idle_events;
        // Relaxed, not atomic together: threads of one VP share the count, and one may get lost.
        let events = count.load(Ordering::Relaxed).wrapping_add(1);
        if events < self.bag.attributes.idle_events().max(1) {
            count.store(events, Ordering::Relaxed);
            return;
        }
        count.store(0, Ordering::Relaxed);
        self.bag.balance(self.shard);
    }
}

/// Panics in place of a wait for a transfer that may never end.
#[cold]
fn refuse() -> ! {
    panic!(
        "the bag has a transfer in progress, and the process is the child of a fork, where its thread may not \
         exist; such a child may only exec"
    )
}
