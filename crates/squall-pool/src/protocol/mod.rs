//! The protocol of a pool that members share by messages, as a state machine without threads, clocks or
//! sockets.
//!
//! Problem: members add and get elements of one unordered pool, and share no memory. Elements move between
//! them. Messages are lost, late, repeated and overtaken. Members join, leave and die. A get must find an
//! element if one exists anywhere, and each element goes to one caller. Idea: each member has a [`Shard`],
//! which is told commands, frames, views and times, and returns frames and completions. A *view* is the list
//! of the members, in the order of their joins. The group agrees on the sequence of views, and stops a member
//! before it is out of the view. The first member is the *master*.
//!
//! Elements on their way:
//!
//! - I1. A channel delivers the messages of a peer in order, each at most once (`channel/I1`).
//! - I2. A *demand transfer* (`Ask`, `Give`) belongs to the asker. The giver counts its elements as moving
//!   until the asker has answered for the frame.
//! - I3. A *background transfer* (`Offer`, `Accept`, `Commit`) leaves copies with the sender until `Accept`.
//!   The receiver keeps the elements apart before `Commit`, or before a view without the sender. The sender
//!   takes its copies back at `Refuse`, or in a view without the receiver. So one of both gives it out.
//! - I4. At each moment an element of the pool is in the store, the offers, the unanswered gives or the
//!   accepted offers of a living member. That is: some member's census counts it.
//! - I5. A shard drops frames of members outside its view, and frames of a later view than its own.
//!
//! *A get that ends as [`Completion::Empty`] is right*: at one moment of the call the pool was empty.
//! Strategies 1 to 6 ask every member twice. In both waves each census is zero, and each member's arrivals
//! are equal. Let T lie between the waves. A member with a census above zero at T had it above zero in the
//! first wave, or elements arrived before the second one. Both contradict the waves, so by I4 the pool was
//! empty. All answers are of one view. A member of a later view greeted the master before it served. The
//! master of the later view is in the earlier one too, and knew the later view then (I5). So it would not
//! have answered in the earlier view after the newcomer's first element.
//!
//! - I6. With the seventh strategy the master has a *mark* for each other member. A member's census is above
//!   zero only while its mark is set. It asks the master before it counts its first element, and clears the
//!   mark only while its census is zero and it awaits no answer. A master begins with all marks set.
//!
//! So the master sees at one moment that the pool is empty: its own census is zero, and no mark is set but
//! that of the asker. An asker that counts no element keeps back its adds until the answer. A master that
//! leaves stops answering these questions once it has asked to leave.
//!
//! With the attribute `replicated`, another member acts for a dead one, which then leaves like others: see
//! [`Host`]. Otherwise the elements of a dead member are lost, and those on their way to it on demand.
//!
//! Not promised: that each operation ends while two members of the view are cut off from each other. A get
//! passes over a late member. The following wait until both are connected, or a view has one of them alone:
//!
//! - Empty results, at each member of the pair. With the seventh strategy, or while elements are on their
//!   way between both, at all members.
//! - A shutdown, at each member of the pair that has asked the other one or offers it elements.
//! - A size, at each member of the pair.
//! - At a member cut off from the master: with the seventh strategy, gets with an empty shard and adds
//!   without a mark. With the first strategy, all gets and adds.
//!
//! Cost, for `s` members. An add and a get with an element at hand send no message. A dry shard sends at most
//! `s - 1` questions until it finds an element, and `2(s - 1)` in an empty pool, with as many answers. With
//! the seventh it is one question to the master, and one to the shard that it names. A shard that has become
//! empty is named until its idle act or its first question. A join costs two messages, a leave the transfer
//! of its elements. Views travel with the beats of the group, so no member sends them to all. The thesis
//! needs `s - 1` messages to join, and `2(s - 1)` to leave.
//!
//! Source: Wentzlaff, *dPool*, 2012, §4 (DP-01 to DP-17). The two waves are those of Mattern, *Algorithms
//! for distributed termination detection*, 1987. Our own: the marks, and transfers that survive deaths.
//!
//! # Example
//! ```
//! use squall::fleet::pool::protocol::{Attributes, Command, Completion, MemberId, OpId, Output, Shard, View};
//!
//! /// Carries frames until all shards rest. Returns the results.
//! fn rest(shards: &mut [Shard; 2]) -> Vec<(OpId, Completion)> {
//!     let mut results = Vec::new();
//!     for round in 0..40 {
//!         let (at, from) = (round % 2, MemberId(round as u64 % 2));
//!         for output in shards[at].take_outputs() {
//!             match output {
//!                 // A real driver sends the frame to the member `to`. It may be lost.
//!                 Output::Send { frame, .. } => shards[1 - at].receive(0, from, &frame),
//!                 Output::Completed { op, result } => results.push((op, result)),
//!                 _ => {}
//!             }
//!         }
//!     }
//!     results
//! }
//!
//! let mut shards = [0, 1].map(|id| Shard::new(MemberId(id), 0, Attributes::default()));
//! let view = View::new(1, vec![MemberId(0), MemberId(1)]);
//! shards.iter_mut().for_each(|shard| shard.install(0, &view));
//! rest(&mut shards);
//!
//! shards[0].command(0, OpId(1), Command::AddElement(b"page 7".to_vec()));
//! shards[1].command(0, OpId(2), Command::GetElement { size_max: 100 });
//! assert!(rest(&mut shards).contains(&(OpId(2), Completion::Got(b"page 7".to_vec()))));
//! ```

mod attributes;
mod balance;
mod channel;
#[cfg(test)]
mod counts;
#[cfg(test)]
mod faults;
mod guard;
mod host;
mod marks;
mod message;
mod search;
mod shard;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod twins;

#[cfg(test)]
pub(crate) use sim::Random;

pub use attributes::{Attributes, Strategy};
pub use host::Host;
pub use message::is_acknowledgement;
pub use shard::Shard;

use serde::{Deserialize, Serialize};

/// Microseconds of a member's own clock.
pub type Time = u64;

/// An element: a value of any size.
pub type Element = Vec<u8>;

/// The most bytes of an element.
pub const ELEMENT_BYTES_MAX: usize = (1 << 20) - (4 << 10);

/// The distance of two members, unless the program sets another one.
pub const DISTANCE: u32 = 10_000;

/// The number of a member. New with each start, so it never stands for another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(pub u64);

/// The number that a program gives to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OpId(pub u64);

/// The members of a pool, as the group has agreed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Grows with each change. The first view has 1.
    pub epoch: u64,
    /// The members, in the order of their joins. The first one is the master.
    pub members: Vec<MemberId>,
    /// Members that died, each with the member that has its copy and acts for it.
    pub inherited: Vec<(MemberId, MemberId)>,
}

impl View {
    /// Returns a view in which each member acts for itself.
    #[must_use]
    pub fn new(epoch: u64, members: Vec<MemberId>) -> View {
        View { epoch, members, inherited: Vec::new() }
    }

    fn heir_of(&self, member: MemberId) -> Option<MemberId> {
        self.inherited.iter().find(|(dead, _)| *dead == member).map(|(_, heir)| *heir)
    }
}

/// An operation of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Adds an element.
    AddElement(Element),
    /// Takes an element of at most so many bytes.
    GetElement {
        /// The most bytes.
        size_max: usize,
    },
    /// Asks for the number of elements.
    Size,
    /// Leaves the pool.
    Shutdown,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The element is in the pool.
    Added,
    /// The element has more than [`ELEMENT_BYTES_MAX`] bytes, and was not added.
    NotAdded,
    /// An element, which no other caller gets.
    Got(Element),
    /// At one moment of the call the pool was empty.
    Empty,
    /// The element that was found is larger than the caller allows. It stays in the pool.
    TooLarge {
        /// Its bytes.
        size: usize,
    },
    /// An estimate of the number of elements. Elements on their way are not in it.
    Size(u64),
    /// The shard has left. All its elements are at other members. Shards without elements that leave at the
    /// same time all end so, also the last ones of a pool without copies.
    Left,
    /// The last shard has left, and the remaining elements are gone.
    LastLeft {
        /// Their number.
        lost: u64,
    },
    /// The shard is not a member: it has not joined yet, leaves, or was removed. An add that was begun before
    /// may still take effect.
    Closed,
}

/// A request of a shard to its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a shard relies on its driver"]
pub enum Output {
    /// Send a frame. It may be lost.
    Send {
        /// The receiver.
        to: MemberId,
        /// The frame.
        frame: Vec<u8>,
    },
    /// An operation has ended.
    Completed {
        /// The operation.
        op: OpId,
        /// Its result.
        result: Completion,
    },
    /// The shard serves now.
    Ready,
    /// Ask the group to remove this member from the view.
    Leave {
        /// Only if this is still the newest view. Otherwise the member stays: it was the last one, or may
        /// have become an heir.
        if_epoch: Option<u64>,
    },
    /// The member is out of the view.
    Removed,
    /// Tell the group that this member has the copy, and may act for the other one once that dies.
    Heir(MemberId),
}

/// Numbers of events since a shard began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages, without repetitions and without frames that only acknowledge.
    pub messages: u64,
    /// Frames.
    pub frames: u64,
    /// Elements that came by demand transfers.
    pub demanded: u64,
    /// Demand transfers that brought elements.
    pub demand_transfers: u64,
    /// Background transfers that were begun here.
    pub background_transfers: u64,
    /// Operations that began.
    pub operations: u64,
    /// Frames for copies, also their acknowledgements.
    pub copy_frames: u64,
}

impl Counts {
    /// Returns the sums.
    #[must_use]
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            messages: self.messages + other.messages,
            frames: self.frames + other.frames,
            demanded: self.demanded + other.demanded,
            demand_transfers: self.demand_transfers + other.demand_transfers,
            background_transfers: self.background_transfers + other.background_transfers,
            operations: self.operations + other.operations,
            copy_frames: self.copy_frames + other.copy_frames,
        }
    }
}
