//! Hostile frames, and inputs at the wrong time.

use super::message::{Frame, Message};
use super::{Attributes, MemberId, Output, Shard, Strategy, View};

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
