//! Messages of single operations, on a network that delivers in turn and takes no time.

use std::collections::VecDeque;

use squall_pool::protocol::{
    Attributes, Command, Completion, MemberId, OpId, Output, Shard, Strategy, Time, View,
};

/// Messages of single operations, without acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A get at a server with an empty shard, if the only element is at the server that is asked last.
    pub worst_get: u64,
    /// A get in an empty pool.
    pub empty_get: u64,
    /// The join of one more server.
    pub join: u64,
}

/// Counts the messages of single operations in a pool of so many servers.
///
/// # Panics
/// `servers` is less than two.
#[must_use]
pub fn costs(strategy: Strategy, servers: usize) -> Costs {
    assert!(servers > 1, "a search needs a second server");
    let mut pool = Quiet::new(strategy, servers);
    // A newcomer counts as filled until its first idle act.
    pool.idle();
    let asker = servers - 1;
    let empty_get = pool.messages(|pool| assert_eq!(pool.get(asker), Completion::Empty));
    // Each search begins at the next server, so each one is once the last.
    let get = |pool: &mut Quiet, holder: usize| {
        pool.add(holder);
        let found = pool.messages(|pool| assert!(matches!(pool.get(asker), Completion::Got(_))));
        pool.idle();
        found
    };
    let holders = (0..servers - 1).flat_map(|holder| std::iter::repeat_n(holder, servers));
    let worst_get = holders.map(|holder| get(&mut pool, holder)).max().unwrap_or(0);
    let join = pool.messages(Quiet::join);
    Costs { worst_get, empty_get, join }
}

struct Quiet {
    attributes: Attributes,
    shards: Vec<Shard>,
    now: Time,
    next_op: u64,
}

impl Quiet {
    fn new(strategy: Strategy, servers: usize) -> Quiet {
        let attributes = Attributes { idle_events: 1, ..Attributes::new(strategy) };
        let mut pool = Quiet { attributes, shards: Vec::new(), now: 0, next_op: 0 };
        (0..servers).for_each(|_| pool.join());
        pool
    }

    fn join(&mut self) {
        let id = self.shards.len() as u64;
        self.shards.push(Shard::new(MemberId(id), 0, self.attributes.clone()));
        let view = View::new(id + 1, (0..=id).map(MemberId).collect());
        let now = self.now;
        self.shards.iter_mut().for_each(|shard| shard.install(now, &view));
        self.rest();
    }

    /// Delivers all frames, and lets pauses pass, until all shards rest. Returns the results.
    fn rest(&mut self) -> Vec<(OpId, Completion)> {
        let (mut frames, mut results) = (VecDeque::new(), Vec::new());
        loop {
            for (from, shard) in self.shards.iter_mut().enumerate() {
                for output in shard.take_outputs() {
                    match output {
                        Output::Send { to, frame } => frames.push_back((from, to.0 as usize, frame)),
                        Output::Completed { op, result } => results.push((op, result)),
                        _ => {}
                    }
                }
            }
            if let Some((from, to, frame)) = frames.pop_front() {
                self.shards[to].receive(self.now, MemberId(from as u64), &frame);
                continue;
            }
            let Some(at) = self.shards.iter().filter_map(Shard::wake_at).min() else { return results };
            self.now = self.now.max(at);
            let now = self.now;
            self.shards.iter_mut().for_each(|shard| shard.tick(now));
        }
    }

    fn command(&mut self, server: usize, command: Command) -> Completion {
        let op = OpId(self.next_op);
        self.next_op += 1;
        self.shards[server].command(self.now, op, command);
        let done = self.rest().pop();
        let (ended, result) = done.expect("a shard that rests has ended its operations");
        assert_eq!(ended, op, "an operation ended twice");
        result
    }

    fn add(&mut self, server: usize) {
        assert_eq!(self.command(server, Command::AddElement(vec![7])), Completion::Added);
    }

    fn get(&mut self, server: usize) -> Completion {
        self.command(server, Command::GetElement { size_max: 1 })
    }

    /// Each shard acts once in idle time.
    fn idle(&mut self) {
        let now = self.now;
        self.shards.iter_mut().for_each(|shard| shard.idle(now));
        self.rest();
    }

    /// Runs `act`, and returns the messages that it took.
    fn messages(&mut self, act: impl FnOnce(&mut Quiet)) -> u64 {
        let count = |pool: &Quiet| pool.shards.iter().map(|shard| shard.counts().messages).sum::<u64>();
        let before = count(self);
        act(self);
        count(self) - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worst case of the seventh strategy does not grow with the servers.
    #[test]
    fn the_seventh_strategy_asks_two_servers_at_most_and_the_sixth_asks_all() {
        for servers in [2, 4, 8, 16] {
            let others = servers as u64 - 1;
            let sixth = costs(Strategy::EstimatedPush, servers);
            assert_eq!(sixth, Costs { worst_get: 2 * others, empty_get: 4 * others, join: 2 }, "{servers}");
            let seventh = costs(Strategy::Directory, servers);
            assert_eq!((seventh.empty_get, seventh.join), (2, 2), "{servers}");
            assert!(seventh.worst_get <= 4, "{servers}: {seventh:?}");
        }
        assert_eq!(costs(Strategy::Directory, 16).worst_get, 4);
    }

    /// The thesis needs a message to each server for a join (DP-10).
    #[test]
    fn a_join_takes_two_messages_with_every_strategy() {
        for strategy in Strategy::ALL {
            assert_eq!(costs(strategy, 8).join, 2, "{strategy:?}");
        }
    }
}
