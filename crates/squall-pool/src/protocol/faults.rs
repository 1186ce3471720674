//! Hostile frames, inputs at the wrong time, and cut pairs.

use super::message::{Census, Frame, Message};
use super::search::DEADLINE;
use super::{Attributes, Command, Completion, MemberId, OpId, Output, Shard, Strategy, Time, View};
use std::collections::{BTreeSet, VecDeque};

/// A pool of members that all know the one view, over a network that cuts pairs.
struct Pool {
    shards: Vec<Shard>,
    now: Time,
    next_op: u64,
    completed: Vec<(OpId, Completion)>,
    /// Pairs of a sender and a receiver.
    cut: BTreeSet<(usize, usize)>,
    /// Cuts a pair before the next `Count` from one to the other.
    cuts_counts: bool,
}

impl Pool {
    fn new(members: usize, strategy: Strategy) -> Pool {
        let (shards, completed, cut) = Default::default();
        let mut pool = Pool { shards, now: 0, next_op: 1, completed, cut, cuts_counts: false };
        let ids: Vec<MemberId> = (0..members as u64).map(MemberId).collect();
        for id in &ids {
            pool.shards.push(Shard::new(*id, 0, Attributes::new(strategy)));
        }
        let view = View::new(1, ids);
        pool.shards.iter_mut().for_each(|shard| shard.install(0, &view));
        pool.run(0);
        pool
    }

    /// Takes the outputs. Returns the frames between connected pairs.
    fn collect(&mut self) -> Vec<(usize, usize, Vec<u8>)> {
        let mut frames = Vec::new();
        for (from, shard) in self.shards.iter_mut().enumerate() {
            for output in shard.take_outputs() {
                match output {
                    Output::Send { to, frame } => {
                        let to = to.0 as usize;
                        let message = Frame::decode(&frame).unwrap().message;
                        if self.cuts_counts && matches!(message, Some(Message::Count { .. })) {
                            self.cut.insert((from, to));
                        }
                        if !self.cut.contains(&(from, to)) {
                            frames.push((from, to, frame));
                        }
                    }
                    Output::Completed { op, result } => self.completed.push((op, result)),
                    _ => {}
                }
            }
        }
        frames
    }

    /// Lets `time` pass, and then delivers the frames that were sent before.
    fn slowly(&mut self, time: Time) {
        let frames = self.collect();
        let end = self.now + time;
        while let Some(at) = self.shards.iter().filter_map(Shard::wake_at).min().filter(|at| *at < end) {
            self.now = self.now.max(at);
            self.shards.iter_mut().for_each(|shard| shard.tick(at));
        }
        self.now = end;
        for (from, to, frame) in frames {
            self.shards[to].receive(end, MemberId(from as u64), &frame);
        }
    }

    /// Delivers all frames of connected pairs, and lets `time` pass.
    fn run(&mut self, time: Time) {
        let end = self.now + time;
        let mut frames = VecDeque::new();
        for step in 0.. {
            assert!(step < 100_000, "the shards never rest");
            frames.extend(self.collect());
            if let Some((from, to, frame)) = frames.pop_front() {
                self.shards[to].receive(self.now, MemberId(from as u64), &frame);
                continue;
            }
            match self.shards.iter().filter_map(Shard::wake_at).min() {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => break,
            }
            let now = self.now;
            self.shards.iter_mut().for_each(|shard| shard.tick(now));
        }
        self.now = end;
    }

    fn command(&mut self, node: usize, command: Command) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        self.shards[node].command(self.now, op, command);
        op
    }

    fn add(&mut self, node: usize) -> OpId {
        self.command(node, Command::AddElement(self.next_op.to_le_bytes().to_vec()))
    }

    fn get(&mut self, node: usize) -> OpId {
        self.command(node, Command::GetElement { size_max: 8 })
    }

    fn cut(&mut self, one: usize, other: usize) {
        self.cut.extend([(one, other), (other, one)]);
    }

    fn result(&self, op: OpId) -> Option<&Completion> {
        self.completed.iter().find(|(done, _)| *done == op).map(|(_, result)| result)
    }
}

/// Returns the messages for a member among the outputs of a shard.
fn messages(outputs: &[Output], to: u64) -> Vec<Message> {
    let frames = outputs.iter().filter_map(|output| match output {
        Output::Send { to: receiver, frame } if *receiver == MemberId(to) => Frame::decode(frame),
        _ => None,
    });
    frames.filter_map(|frame| frame.message).collect()
}

/// A shard that has not said anything yet to its peers, which the test plays.
struct Alone {
    shard: Shard,
    /// The numbers of the last frames of the peers.
    numbers: [u64; 4],
}

impl Alone {
    fn new(me: u64, strategy: Strategy) -> Alone {
        let mut shard = Shard::new(MemberId(me), 0, Attributes::new(strategy));
        shard.install(0, &View::new(1, [0, 1, 2].map(MemberId).into()));
        let mut alone = Alone { shard, numbers: [0; 4] };
        if me != 0 {
            alone.take(0, Message::Welcome);
        }
        assert!(alone.shard.is_ready());
        alone.shard.take_outputs();
        alone
    }

    /// Lets the shard take a message of a peer.
    fn take(&mut self, from: u64, message: Message) {
        let number = self.numbers[from as usize] + 1;
        self.numbers[from as usize] = number;
        let to = self.shard.me;
        let frame = Frame { number, message: Some(message), ..Frame::new(0, to, 1, 0) };
        self.shard.receive(0, MemberId(from), &frame.encode());
    }

    fn command(&mut self, op: u64, command: Command) {
        self.shard.command(0, OpId(op), command);
    }
}

#[test]
fn a_removed_shard_sends_nothing_more() {
    let mut alone = Alone::new(1, Strategy::BulkTransfer);
    alone.shard.install(0, &View::new(2, [0, 2].map(MemberId).into()));
    assert!(alone.shard.take_outputs().contains(&Output::Removed));
    alone.shard.set_locality(0, MemberId(0), MemberId(2), 7);
    alone.shard.set_locality(0, MemberId(1), MemberId(2), 7);
    assert_eq!((alone.shard.take_outputs(), alone.shard.wake_at()), (Vec::new(), None));
}

#[test]
fn a_shard_notes_distances_to_members_of_its_view_alone() {
    let mut alone = Alone::new(1, Strategy::BulkTransfer);
    for to in [0, 2, 3, 4, u64::MAX] {
        alone.take(0, Message::Locality { to: MemberId(to), distance: 1 });
    }
    assert_eq!(alone.shard.distances().collect::<Vec<_>>(), [MemberId(0), MemberId(2)]);
}

fn ended(op: u64, result: Completion) -> Output {
    Output::Completed { op: OpId(op), result }
}

#[test]
fn sizes_that_overflow_are_the_greatest_number() {
    let mut alone = Alone::new(0, Strategy::BulkTransfer);
    alone.command(1, Command::AddElement(vec![1]));
    alone.command(2, Command::Size);
    let [Message::Count { search }] = messages(&alone.shard.take_outputs(), 1)[..] else {
        panic!("a question")
    };
    let census = Census { len: u64::MAX, ..Census::default() };
    alone.take(1, Message::Counted { search, census });
    alone.take(2, Message::Counted { search, census });
    assert!(alone.shard.take_outputs().contains(&ended(2, Completion::Size(u64::MAX))));
}

#[test]
fn an_element_of_a_member_that_was_not_asked_is_dropped() {
    let mut alone = Alone::new(0, Strategy::BulkTransfer);
    alone.command(1, Command::GetElement { size_max: 8 });
    let outputs = alone.shard.take_outputs();
    let (asked, other) = if messages(&outputs, 1).is_empty() { (2, 1) } else { (1, 2) };
    let [Message::Ask { search, .. }] = messages(&outputs, asked)[..] else { panic!("a question") };
    let give = |element, search| {
        let (elements, census) = (vec![vec![element]], Census::default());
        Message::Give { search, elements, census }
    };
    alone.take(other, give(1, search));
    alone.take(asked, give(2, search + 1));
    let outputs = alone.shard.take_outputs();
    assert!(!outputs.iter().any(|output| matches!(output, Output::Completed { .. })), "{outputs:?}");
    assert!(alone.shard.is_empty());
    alone.take(asked, give(3, search));
    assert!(alone.shard.take_outputs().contains(&ended(1, Completion::Got(vec![3]))));
}

/// Only the receiver of an offer ends it. Otherwise a copy would be dropped, or given out twice.
#[test]
fn an_offer_is_answered_by_its_receiver_alone() {
    for refuses in [false, true] {
        let mut alone = Alone::new(1, Strategy::Centralized);
        alone.command(1, Command::AddElement(vec![5]));
        let [Message::Offer { transfer, .. }] = messages(&alone.shard.take_outputs(), 0)[..] else {
            panic!("an offer")
        };
        let answer = || if refuses { Message::Refuse { transfer } } else { Message::Accept { transfer } };
        alone.take(2, answer());
        let outputs = alone.shard.take_outputs();
        assert!(messages(&outputs, 2).is_empty() && !outputs.contains(&ended(1, Completion::Added)));
        assert_eq!((alone.shard.moving(), alone.shard.len()), (1, 0));
        alone.take(0, answer());
        assert!(alone.shard.take_outputs().contains(&ended(1, Completion::Added)));
        assert_eq!((alone.shard.moving(), alone.shard.len()), (0, usize::from(refuses)));
    }
}

/// A master that names the asker, or a stranger, does not stop the search. Answers of others than the master
/// are dropped.
#[test]
fn a_find_that_names_the_asker_is_repeated() {
    for member in [1, 9] {
        let mut alone = Alone::new(1, Strategy::Directory);
        alone.command(1, Command::GetElement { size_max: 8 });
        let [Message::Find { search, .. }] = messages(&alone.shard.take_outputs(), 0)[..] else {
            panic!("a question")
        };
        alone.take(2, Message::At { search, member: MemberId(2) });
        alone.take(2, Message::Nothing { search });
        let outputs = alone.shard.take_outputs();
        assert!(messages(&outputs, 2).is_empty() && !outputs.contains(&ended(1, Completion::Empty)));
        alone.take(0, Message::At { search, member: MemberId(member) });
        let at = alone.shard.wake_at().unwrap();
        alone.shard.take_outputs();
        alone.shard.tick(at);
        let again = messages(&alone.shard.take_outputs(), 0);
        assert!(matches!(again[..], [Message::Find { search: next, .. }] if next > search), "{again:?}");
    }
}

/// Gets that adds serve leave their questions open, and later gets add no more.
#[test]
fn questions_to_a_silent_member_are_few() {
    for (strategy, cuts_counts) in Strategy::ALL.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let mut pool = Pool::new(3, strategy);
        pool.cuts_counts = cuts_counts;
        if !cuts_counts {
            pool.cut(1, 0);
            pool.cut(1, 2);
        }
        // A centralized add is an offer to the silent master, and waits for it.
        let adds = if strategy == Strategy::Centralized { 0 } else { 500 };
        for round in 0..500 {
            let get = pool.get(1);
            pool.run(300_000);
            if adds > 0 && pool.result(get).is_none() {
                pool.add(1);
                pool.run(0);
                assert!(matches!(pool.result(get), Some(Completion::Got(_))), "{strategy:?} {round}");
            }
            let open = [0, 2].map(|peer| pool.shards[1].unanswered(MemberId(peer)));
            assert!(open.iter().all(|open| *open <= 2), "{strategy:?} {round}: {open:?}");
        }
        // The questions that stayed open are answered, and prove that the pool is empty.
        (pool.cuts_counts, pool.cut) = (false, BTreeSet::new());
        let last = pool.get(1);
        pool.run(10_000_000);
        assert_eq!(pool.result(last), Some(&Completion::Empty), "{strategy:?}");
        assert!(pool.shards.iter().all(Shard::is_quiet), "{strategy:?}");
    }
}

/// A cut pair costs one get its deadline, but later gets no time. Other members have elements.
#[test]
fn a_get_passes_over_a_member_that_it_cannot_reach() {
    for strategy in Strategy::ALL {
        // The centralized strategy keeps all elements at the master.
        for (asker, silent) in [(1, 2), (1, 3), (3, 2), (0, 2)] {
            let mut pool = Pool::new(4, strategy);
            let full = (0..4).rev().find(|node| ![asker, silent].contains(node)).unwrap();
            let full = if strategy == Strategy::Centralized { 0 } else { full };
            for node in [silent, full] {
                (0..20).for_each(|_| _ = pool.add(node));
            }
            pool.run(0);
            pool.cut(asker, silent);
            let deadline = DEADLINE * Attributes::new(strategy).resend;
            let first = pool.get(asker);
            pool.run(deadline + 1_000);
            let case = format!("{strategy:?} {asker} {silent}");
            assert!(matches!(pool.result(first), Some(Completion::Got(_))), "{case}");
            for _ in 0..5 {
                // The elements of the last transfer are taken first, so that each get asks.
                while !pool.shards[asker].is_empty() {
                    pool.get(asker);
                }
                if pool.shards[full].is_empty() {
                    (0..20).for_each(|_| _ = pool.add(full));
                    pool.run(0);
                }
                let get = pool.get(asker);
                pool.run(deadline + 1_000);
                assert!(matches!(pool.result(get), Some(Completion::Got(_))), "{case}");
            }
        }
    }
}

/// No proof without the answer of the silent member: its element may be the last one.
#[test]
fn a_get_does_not_find_the_pool_empty_without_an_answer_of_each_member() {
    for strategy in Strategy::ALL.into_iter().filter(|strategy| *strategy != Strategy::Centralized) {
        let mut pool = Pool::new(4, strategy);
        pool.add(2);
        pool.cut(1, 2);
        let get = pool.get(1);
        pool.run(5_000_000);
        assert_eq!(pool.result(get), None, "{strategy:?}");
        // The question that stayed open brings the element.
        pool.cut.clear();
        pool.run(2_000_000);
        assert!(matches!(pool.result(get), Some(Completion::Got(_))), "{strategy:?}");
        let none = pool.get(1);
        pool.run(1_000_000);
        assert_eq!(pool.result(none), Some(&Completion::Empty), "{strategy:?}");
    }
}

/// A get that waits for the second wave of a silent member takes elements of the others.
#[test]
fn a_get_leaves_a_second_wave_that_is_not_answered() {
    for strategy in [Strategy::Distributed, Strategy::EstimatedPush] {
        let mut pool = Pool::new(4, strategy);
        pool.cuts_counts = true;
        let get = pool.get(1);
        pool.run(1_000);
        assert_eq!((pool.result(get), pool.cut.len()), (None, 3), "{strategy:?}");
        (pool.cuts_counts, pool.cut) = (false, [(1, 2)].into());
        pool.add(3);
        pool.run(1_000_000);
        assert!(matches!(pool.result(get), Some(Completion::Got(_))), "{strategy:?}");
    }
}

/// Deadlines grow, so a get of an empty pool ends although all answers come after the first deadline.
#[test]
fn a_get_ends_in_a_pool_that_is_slower_than_its_deadline() {
    for strategy in Strategy::ALL {
        let mut pool = Pool::new(4, strategy);
        let get = pool.get(1);
        let late = DEADLINE * Attributes::new(strategy).resend * 2;
        for _ in 0..100 {
            // All frames take this long, and their answers too.
            pool.slowly(late);
        }
        assert_eq!(pool.result(get), Some(&Completion::Empty), "{strategy:?}");
    }
}

/// A get that is given up at any moment holds up no later one, and takes nothing.
#[test]
fn a_cancelled_get_ends_its_search() {
    let strategies = [Strategy::Distributed, Strategy::EstimatedPush, Strategy::Directory];
    for (strategy, moment, added) in
        strategies.iter().flat_map(|it| (0..24).flat_map(move |at| [(*it, at, false), (*it, at, true)]))
    {
        let mut pool = Pool::new(3, strategy);
        // Member 2 has a mark, and its shard is empty again.
        let first = pool.add(2);
        pool.run(0);
        let taken = pool.get(2);
        pool.run(0);
        assert!(pool.completed.iter().any(|(op, _)| *op == first));
        assert!(pool.completed.iter().any(|(op, _)| *op == taken));
        let element = added.then(|| pool.add(2));
        // The master does not hear that member 2 is empty: it is busy.
        pool.cut.insert((2, 0));
        let op = pool.get(1);
        let mut frames = VecDeque::new();
        for _ in 0..moment {
            frames.extend(pool.collect());
            if let Some((from, to, frame)) = frames.pop_front() {
                pool.shards[to].receive(pool.now, MemberId(from as u64), &frame);
            }
        }
        frames.extend(pool.collect());
        let cancelled = pool.shards[1].cancel(op);
        let ended = pool.completed.iter().any(|(ended, _)| *ended == op);
        assert_eq!(cancelled, !ended, "{strategy:?} at {moment}");
        for (from, to, frame) in frames {
            pool.shards[to].receive(pool.now, MemberId(from as u64), &frame);
        }
        pool.cut.clear();
        pool.run(500_000);
        if element.is_none() || !cancelled {
            pool.add(0);
        }
        let later = pool.get(1);
        pool.run(2_000_000);
        let got = pool.completed.iter().find(|(ended, _)| *ended == later).map(|(_, result)| result);
        assert!(matches!(got, Some(Completion::Got(_))), "{strategy:?} at {moment}, {added}: {got:?}");
    }
}

/// The last member with elements tells their number. Members without elements end with `Left`.
#[test]
fn empty_members_that_leave_at_once_say_left() {
    for (strategy, elements) in Strategy::ALL.into_iter().flat_map(|it| [(it, 0), (it, 3)]) {
        let mut pool = Pool::new(2, strategy);
        (0..elements).for_each(|_| _ = pool.add(1));
        pool.run(0);
        // Each has begun to leave before it hears of the other.
        let ends = [0, 1].map(|node| pool.command(node, Command::Shutdown));
        pool.run(0);
        let rests: Vec<u64> = pool.shards.iter().map(|shard| shard.len() as u64).collect();
        // The group removes the members without elements first.
        let stay: Vec<MemberId> = (0..2).map(MemberId).filter(|id| rests[id.0 as usize] > 0).collect();
        for (epoch, members) in [(2, stay), (3, Vec::new())] {
            let view = View::new(epoch, members);
            pool.shards.iter_mut().for_each(|shard| shard.install(0, &view));
            pool.run(0);
        }
        let results = ends.map(|op| pool.result(op).cloned());
        let is_left = |result: &&Option<Completion>| **result == Some(Completion::Left);
        let lefts = results.iter().filter(is_left).count();
        let last = Some(Completion::LastLeft { lost: elements });
        assert_eq!(lefts, if elements == 0 { 2 } else { 1 }, "{strategy:?}: {results:?}");
        assert_eq!(results.contains(&last), elements > 0, "{strategy:?}: {results:?}");
    }
}
