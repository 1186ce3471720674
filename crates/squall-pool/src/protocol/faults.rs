//! Hostile frames, and inputs at the wrong time.

use super::message::{Census, Frame, Message};
use super::{Attributes, Command, Completion, MemberId, OpId, Output, Shard, Strategy, View};

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
        shard.install(0, &View { epoch: 1, members: [0, 1, 2].map(MemberId).into() });
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
    alone.shard.install(0, &View { epoch: 2, members: [0, 2].map(MemberId).into() });
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
    alone.command(1, Command::Add(vec![1]));
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
    alone.command(1, Command::Get { size_max: 8 });
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
        alone.command(1, Command::Add(vec![5]));
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

/// A master that names the asker, or a stranger, does not stop the search. Others than the master name none.
#[test]
fn a_find_that_names_the_asker_is_repeated() {
    for member in [1, 9] {
        let mut alone = Alone::new(1, Strategy::Directory);
        alone.command(1, Command::Get { size_max: 8 });
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
