//! Exact numbers of messages, on a network that loses no frame and delivers in turn.

use super::{
    Attributes, Command, Completion, Counts, MemberId, OpId, Output, Shard, Strategy, View,
    is_acknowledgement,
};
use std::collections::VecDeque;

/// A pool of members that all know the one view.
struct Pool {
    shards: Vec<Shard>,
    now: u64,
    next_op: u64,
    completed: Vec<(OpId, Completion)>,
    acknowledgements: u64,
}

impl Pool {
    fn new(members: usize, attributes: &Attributes) -> Pool {
        let mut pool =
            Pool { shards: Vec::new(), now: 0, next_op: 1, completed: Vec::new(), acknowledgements: 0 };
        for _ in 0..members {
            pool.join(attributes);
        }
        pool
    }

    fn join(&mut self, attributes: &Attributes) {
        let id = MemberId(self.shards.len() as u64);
        self.shards.push(Shard::new(id, 0, attributes.clone()));
        let members = (0..=id.0).map(MemberId).collect();
        let view = View::new(id.0 + 1, members);
        (0..self.shards.len()).for_each(|node| self.shards[node].install(0, &view));
        self.rest();
    }

    /// Delivers all frames, and lets pauses pass, until all shards rest.
    fn rest(&mut self) {
        let mut frames = VecDeque::new();
        loop {
            for (from, shard) in self.shards.iter_mut().enumerate() {
                for output in shard.take_outputs() {
                    match output {
                        Output::Send { to, frame } => {
                            self.acknowledgements += u64::from(is_acknowledgement(&frame));
                            frames.push_back((from, to.0 as usize, frame));
                        }
                        Output::Completed { op, result } => self.completed.push((op, result)),
                        _ => {}
                    }
                }
            }
            if let Some((from, to, frame)) = frames.pop_front() {
                self.shards[to].receive(self.now, MemberId(from as u64), &frame);
                continue;
            }
            let Some(at) = self.shards.iter().filter_map(Shard::wake_at).min() else { return };
            self.now = self.now.max(at);
            let now = self.now;
            self.shards.iter_mut().for_each(|shard| shard.tick(now));
        }
    }

    fn command(&mut self, node: usize, command: Command) -> Completion {
        let op = OpId(self.next_op);
        self.next_op += 1;
        self.shards[node].command(self.now, op, command);
        self.rest();
        let (done, result) = self.completed.pop().expect("a completion");
        assert_eq!((done, self.completed.len()), (op, 0));
        result
    }

    fn add(&mut self, node: usize) {
        let element = self.next_op.to_le_bytes().to_vec();
        assert_eq!(self.command(node, Command::AddElement(element)), Completion::Added);
    }

    fn get(&mut self, node: usize) -> Completion {
        self.command(node, Command::GetElement { size_max: 8 })
    }

    fn idle(&mut self) {
        let now = self.now;
        self.shards.iter_mut().for_each(|shard| shard.idle(now));
        self.rest();
    }

    fn counts(&self) -> Counts {
        self.shards.iter().map(Shard::counts).fold(Counts::default(), Counts::plus)
    }

    /// Runs `act`, and returns the messages that it took.
    fn messages(&mut self, act: impl FnOnce(&mut Pool)) -> u64 {
        let before = self.counts().messages;
        act(self);
        self.counts().messages - before
    }
}

const MEMBERS: usize = 16;

/// All strategies find the only element at any member, and then the pool is empty.
#[test]
fn dp_12_to_17_each_strategy_finds_the_only_element_and_then_none() {
    for strategy in Strategy::ALL {
        let mut pool = Pool::new(5, &Attributes::new(strategy));
        assert_eq!(pool.get(2), Completion::Empty, "{strategy:?}");
        for (to, from) in [(0, 4), (4, 0), (1, 3), (2, 2)] {
            pool.add(to);
            assert!(matches!(pool.get(from), Completion::Got(_)), "{strategy:?} {to} {from}");
            assert_eq!(pool.get(to), Completion::Empty, "{strategy:?} {to} {from}");
        }
    }
}

/// On a network that loses no frame.
#[test]
fn each_frame_has_a_message_or_only_acknowledges() {
    for strategy in Strategy::ALL {
        let mut pool = Pool::new(3, &Attributes::new(strategy));
        pool.add(0);
        assert!(matches!(pool.get(2), Completion::Got(_)));
        let counts = pool.counts();
        assert!(pool.acknowledgements > 0, "{strategy:?}");
        assert_eq!(counts.frames, counts.messages + pool.acknowledgements, "{strategy:?}");
    }
}

#[test]
fn dp_05_an_element_that_is_too_large_stays() {
    for strategy in Strategy::ALL {
        let mut pool = Pool::new(3, &Attributes::new(strategy));
        assert_eq!(pool.command(1, Command::AddElement(vec![7; 100])), Completion::Added);
        assert_eq!(pool.get(2), Completion::TooLarge { size: 100 });
        assert_eq!(pool.command(0, Command::Size), Completion::Size(1));
        assert_eq!(pool.command(0, Command::GetElement { size_max: 100 }), Completion::Got(vec![7; 100]));
    }
}

/// The worst case: the only element is at the member that is asked last.
#[test]
fn the_seventh_strategy_finds_the_last_element_with_four_messages_and_none_with_two() {
    let worst = |strategy| {
        let mut pool = Pool::new(MEMBERS, &Attributes::new(strategy));
        // Newcomers count as filled until their first idle act.
        (0..100).for_each(|_| pool.idle());
        let none = pool.messages(|pool| assert_eq!(pool.get(3), Completion::Empty));
        let mut most = 0;
        // Each search begins at another member.
        let nodes = (0..MEMBERS).filter(|node| *node != 3);
        for node in nodes.flat_map(|node| std::iter::repeat_n(node, MEMBERS)) {
            pool.add(node);
            let found = pool.messages(|pool| assert!(matches!(pool.get(3), Completion::Got(_))));
            most = most.max(found);
            (0..100).for_each(|_| pool.idle());
        }
        (most, none)
    };
    let others = MEMBERS as u64 - 1;
    assert_eq!(worst(Strategy::EstimatedPush), (2 * others, 4 * others));
    assert_eq!(worst(Strategy::Directory), (4, 2));
}

#[test]
fn dp_08_a_join_takes_two_messages_with_every_strategy() {
    for strategy in Strategy::ALL {
        let attributes = Attributes::new(strategy);
        let mut pool = Pool::new(MEMBERS, &attributes);
        let join = pool.messages(|pool| pool.join(&attributes));
        assert_eq!((join, pool.shards[MEMBERS].is_ready()), (2, true), "{strategy:?}");
    }
}

/// The uniform load of the thesis, smaller: all pages begin at the first member, and each member gets
/// nearly its share. Between two gets there are idle events.
fn uniform(strategy: Strategy) -> Counts {
    let mut attributes = Attributes::new(strategy);
    (attributes.push_above, attributes.pull_below) = (300, 100);
    (attributes.push_margin, attributes.estimate_step, attributes.idle_events) = (64, 16, 1);
    let members = 8;
    let share = 1_000;
    let mut pool = Pool::new(members, &attributes);
    (0..members * share).for_each(|_| pool.add(0));
    let before = pool.counts();
    for round in 0..share - 100 {
        for node in 0..members {
            assert!(matches!(pool.get(node), Completion::Got(_)), "{strategy:?} {round} {node}");
        }
        // The members are busy most of the time.
        if round % 4 == 0 {
            pool.idle();
        }
    }
    let after = pool.counts();
    Counts {
        messages: after.messages - before.messages,
        frames: after.frames - before.frames,
        demanded: after.demanded - before.demanded,
        demand_transfers: after.demand_transfers - before.demand_transfers,
        background_transfers: after.background_transfers - before.background_transfers,
        operations: after.operations - before.operations,
        copy_frames: after.copy_frames - before.copy_frames,
    }
}

/// The ranking of the thesis, §6.3.7, by demand transfers: those are the times for which a client waits.
#[test]
fn ex_d9_the_strategies_rank_as_in_the_thesis_on_the_uniform_load() {
    let counts: Vec<Counts> = Strategy::ALL.iter().map(|strategy| uniform(*strategy)).collect();
    for (strategy, counts) in Strategy::ALL.iter().zip(&counts) {
        println!("{strategy:?}: {counts:?}");
    }
    let Ok([centralized, distributed, bulk, pull, push, estimated, directory]) =
        <[Counts; 7]>::try_from(counts)
    else {
        panic!("seven strategies")
    };
    assert!(directory.demand_transfers <= estimated.demand_transfers);
    assert!(estimated.demand_transfers <= push.demand_transfers);
    assert!(push.demand_transfers < bulk.demand_transfers);
    assert!(bulk.demand_transfers * 8 < distributed.demand_transfers);
    assert!(distributed.demand_transfers <= centralized.demand_transfers);
    // Estimates spare pushes. X-09: a pull spares transfers on demand, but no messages.
    assert!(estimated.background_transfers < push.background_transfers);
    assert!(directory.messages <= estimated.messages);
    assert!(pull.demand_transfers < bulk.demand_transfers && pull.messages > bulk.messages);
}
