//! One run of a load: one thread steps the clients of a bag in a fixed order.

use squall_bench::pool::{Load, Size};
use squall_parts::bag::{Bag, Strategy};

/// Idle events of a server in a round in which no request reaches it.
const IDLE_EVENTS: u64 = 100;
/// Idle events that a request takes from its server.
const REQUEST_EVENTS: u64 = 25;
/// Idle events per act of a server, the default of the bag.
const EVENTS_PER_ACT: u64 = 100;

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// Gets of clients.
    pub(super) ops: u64,
    /// Gets that needed another server.
    pub(super) demand: u64,
    /// Questions to other servers during gets.
    pub(super) messages: u64,
    /// Transfers by idle servers.
    pub(super) background: u64,
    /// Gets that found the pool empty. The loads never drain it.
    pub(super) dry: u64,
}

impl Tally {
    /// A count per operation.
    fn per_op(&self, count: u64) -> f64 {
        count as f64 / self.ops as f64
    }

    /// Gets that needed another server, per 1000 operations.
    pub(super) fn demand_per_1000(&self) -> f64 {
        self.per_op(self.demand) * 1000.0
    }

    pub(super) fn messages_per_op(&self) -> f64 {
        self.per_op(self.messages)
    }

    /// Transfers on demand and in the background, per 1000 operations.
    pub(super) fn transfers_per_1000(&self) -> f64 {
        self.per_op(self.demand + self.background) * 1000.0
    }
}

/// The servers and their idle events.
struct Servers {
    bag: Bag<u32>,
    /// Requests served in this round, by server.
    served: Vec<u64>,
    /// Idle events since the last act, by server.
    idle: Vec<u64>,
}

/// A shard is made at the first use of its place. The first one is the center.
fn make_shards(bag: &Bag<u32>, servers: usize) {
    (0..servers).for_each(|server| {
        let _ = bag.client(server);
    });
}

impl Servers {
    fn new(strategy: Strategy, servers: usize) -> Servers {
        let bag = Bag::with_places(servers);
        bag.attributes().set_strategy(strategy);
        // `idle` is called once for a hundred events.
        bag.attributes().set_idle_events(1);
        // Servers of the thesis stay, and keep any number of elements.
        bag.attributes().set_leave_after(0);
        bag.attributes().set_hoard(usize::MAX);
        make_shards(&bag, servers);
        bag.client(0).put_batch(0..Size::Thesis.pages(servers) as u32);
        Servers { bag, served: vec![0; servers], idle: vec![0; servers] }
    }

    fn lens(&self) -> Vec<usize> {
        (0..self.served.len()).map(|server| self.bag.client(server).len()).collect()
    }

    /// Gets a page as a client of this server. Returns whether another server gave it, or an empty option if
    /// the pool was empty.
    fn get(&mut self, server: usize) -> Option<bool> {
        let client = self.bag.client(server);
        self.served[server] += 1;
        if !client.is_empty() {
            return client.get().map(|_| false);
        }
        let before = self.lens();
        client.get()?;
        let giver = self.lens().iter().zip(&before).position(|(now, before)| now < before);
        self.served[giver.expect("a page came from a shard")] += 1;
        Some(true)
    }

    /// Each server is idle for the rest of the round.
    fn end_round(&mut self) {
        for (server, served) in self.served.iter_mut().enumerate() {
            self.idle[server] += IDLE_EVENTS.saturating_sub(REQUEST_EVENTS * *served);
            *served = 0;
            while self.idle[server] >= EVENTS_PER_ACT {
                self.idle[server] -= EVENTS_PER_ACT;
                self.bag.client(server).idle();
            }
        }
    }
}

/// Runs a load.
pub(super) fn run(strategy: Strategy, load: Load, servers: usize, clients: usize) -> Tally {
    let mut it = Servers::new(strategy, servers);
    (0..servers).for_each(|_| it.end_round());
    let (mut tally, mut elsewhere) = (Tally::default(), 0);
    for mut left in load.phases(Size::Thesis, servers, clients) {
        let mut taken = vec![0; servers];
        while left.iter().any(|left| *left > 0) {
            for (client, left) in left.iter_mut().enumerate().filter(|(_, left)| **left > 0) {
                let server = client % servers;
                *left -= 1;
                tally.ops += 1;
                match it.get(server) {
                    Some(is_elsewhere) => {
                        taken[server] += 1;
                        elsewhere += u64::from(is_elsewhere);
                    }
                    None => tally.dry += 1,
                }
            }
            it.end_round();
        }
        for (server, taken) in taken.into_iter().enumerate() {
            it.bag.client(server).put_batch(0..taken);
        }
    }
    let counts = it.bag.counts();
    tally.background = counts.pulls + counts.pushes;
    // With one shard for all, a get of another client is one message to that shard.
    let is_central = strategy == Strategy::Centralized;
    tally.demand = elsewhere;
    tally.messages = if is_central { elsewhere } else { counts.looks };
    tally
}

/// The most questions that a get on an empty shard asks until it finds the only element, over all places of
/// the element, with this many shards.
pub(super) fn worst_looks(strategy: Strategy, servers: usize) -> u64 {
    let looks = |holder: usize| {
        let bag = Bag::with_places(servers);
        bag.attributes().set_strategy(strategy);
        make_shards(&bag, servers);
        bag.client(holder).put(0u32);
        let found = bag.client(0).get();
        assert!(found.is_some(), "the bag has an element");
        bag.counts().looks
    };
    (1..servers).map(looks).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_server_needs_no_other() {
        for strategy in Strategy::ALL {
            let tally = run(strategy, Load::Bimodal, 1, 3);
            assert_eq!((tally.demand, tally.messages, tally.background, tally.dry), (0, 0, 0, 0));
        }
    }

    #[test]
    fn half_of_the_clients_of_two_servers_ask_the_first() {
        let tally = run(Strategy::Centralized, Load::Uniform, 2, 4);
        assert_eq!((tally.demand * 2, tally.messages), (tally.ops, tally.demand));
        let tally = run(Strategy::BulkTransfer, Load::Uniform, 2, 4);
        assert_eq!(tally.demand, (tally.ops / 2).div_ceil(50));
        assert_eq!(tally.messages, tally.demand);
    }
}
