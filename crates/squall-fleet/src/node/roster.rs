//! Rosters: agreed members of a name, for protocols that the members run among themselves.
//!
//! Problem: a replicated or distributed object needs more than calls. Its members must agree who they are,
//! and exchange messages of their own. Idea: the directory of the group has them already. A node tells each
//! of its members every roster that the group has agreed on, and carries frames between members.
//!
//! - I1. The functions of one member run one after the other, and in the order of the rosters.
//! - I2. While a member that has not vacated its seat is missing in a roster of others, [`Seat::serves`] is
//!   false for its number: the group waits for the end of its lease. Each number has a lease of its own.
//!
//! Not promised: frames. They may be lost, late, repeated and overtaken.
//! Cost: a hand-over to a thread of the node for each frame and roster.
//! Source: the views of Birman and Joseph, *Exploiting virtual synchrony in distributed systems*, 1987;
//! Wentzlaff 2012, §3.2.4 (FO-13) and §4.3 (DP-08, DP-09).

use super::driver::{Driver, Kind};
use super::{Node, RequestError};
use crate::capability::random;
use crate::protocol::{self, LARGEST_BODY, News, Registration, Time};
use crate::{Name, NameCapability, NodeId};
use squall_sys::sync::{Mutex, MutexGuard, StdArc as Arc, Weak, lock};
use std::fmt;

/// The number of a roster's member. Grows with each join, and never comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberNumber(pub u64);

/// The members of a name, as the group has agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Roster {
    /// Grows with each change of the members.
    pub epoch: u64,
    /// The number of this member.
    pub me: MemberNumber,
    /// Whether this member was asked to leave: its node leaves the group, or a holder of its capability ends
    /// it. It calls [`Seat::vacate`] once it is ready.
    pub leaving: bool,
    /// The members and their nodes, in the order of their joins.
    pub members: Vec<(MemberNumber, NodeId)>,
    /// Members whose nodes were removed from the group, each with its heir, which acts for it:
    /// [`Seat::set_heir`].
    pub inherited: Vec<(MemberNumber, MemberNumber)>,
    /// The heir of this member.
    pub heir: Option<MemberNumber>,
}

impl From<protocol::Roster> for Roster {
    fn from(roster: protocol::Roster) -> Roster {
        let protocol::Roster { epoch, me, leaving, members, inherited, heir } = roster;
        let members = members.into_iter().map(|(number, node)| (MemberNumber(number), node)).collect();
        let pair = |(number, heir)| (MemberNumber(number), MemberNumber(heir));
        let inherited = inherited.into_iter().map(pair).collect();
        Roster { epoch, me: MemberNumber(me), leaving, members, inherited, heir: heir.map(MemberNumber) }
    }
}

/// A member of a roster, as a program writes it. A thread of the node runs one function of it at a time.
pub trait RosterMember: Send + Sync + 'static {
    /// Takes a new roster. Rosters come in the order of their epochs, and some may be left out.
    fn changed(&self, seat: &Seat, roster: &Roster);

    /// Notes that this member has left, as [`Seat::vacate`] has asked for. No function of it follows.
    fn vacated(&self, seat: &Seat);

    /// Notes that the group took the node for dead, so the member's number has ended. If the node joins its
    /// group again, the member joins its roster again: [`changed`](RosterMember::changed) follows with a new
    /// number. A node that is closed drops its members.
    fn removed(&self, seat: &Seat);

    /// Takes a frame of another member. Frames may be lost, late, repeated and overtaken.
    fn receive(&self, seat: &Seat, from: MemberNumber, frame: &[u8]);
}

/// A member, as its node has it.
pub(super) struct ServedMember {
    member: Box<dyn RosterMember>,
    seat: Seat,
}

impl ServedMember {
    pub(super) fn take(&self, news: News) {
        match news {
            News::Changed(roster) => self.member.changed(&self.seat, &roster.into()),
            News::Vacated => self.member.vacated(&self.seat),
            News::Removed => self.member.removed(&self.seat),
        }
    }

    pub(super) fn receive(&self, from: u64, frame: &[u8]) {
        self.member.receive(&self.seat, MemberNumber(from), frame);
    }
}

struct SeatInner {
    driver: Weak<Driver>,
    service: u64,
    name: Name,
    /// A number of this member, and the time of its node's clock until which it serves.
    lease: Mutex<(MemberNumber, Time)>,
}

/// The place of a member in its roster: it sends frames, and leaves.
///
/// A seat does not keep its node alive. Without the node, it does nothing.
#[derive(Clone)]
pub struct Seat(Arc<SeatInner>);

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl Seat {
    /// The most bytes of a frame.
    pub const FRAME_BYTES_MAX: usize = LARGEST_BODY;

    /// Returns the name of the roster.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// Sends a frame from this member, or from one that it has inherited, to another one, perhaps of this
    /// node. Returns false if the frame has
    /// more than [`FRAME_BYTES_MAX`](Seat::FRAME_BYTES_MAX) bytes, and true also if it is lost. A frame from
    /// an earlier number of this member is lost.
    ///
    /// # Cost
    /// The lock of the node.
    pub fn send(&self, from: MemberNumber, to: MemberNumber, frame: Vec<u8>) -> bool {
        let Some(driver) = self.0.driver.upgrade() else { return frame.len() <= LARGEST_BODY };
        driver.drive(|state, now| state.core.send_peer(now, self.0.service, from.0, to.0, frame))
    }

    /// Returns whether this member may act under a number of its own now. Otherwise other members may have a
    /// roster without it.
    ///
    /// # Cost
    /// A read of the clock. Once per lease also the lock of the node: call it without a lock of your own that
    /// the functions of the member take.
    pub fn serves(&self, me: MemberNumber) -> bool {
        if self.serves_still(me) {
            return true;
        }
        let Some(driver) = self.0.driver.upgrade() else { return false };
        let until = driver.drive(|state, now| state.core.member_serves_until(now, self.0.service, me.0));
        *self.lease() = (me, until);
        driver.now() < until
    }

    /// Like [`serves`](Seat::serves), but takes no lock of the node: returns false if the lease that `serves`
    /// has seen is over.
    pub fn serves_still(&self, me: MemberNumber) -> bool {
        let (number, until) = *self.lease();
        let driver = self.0.driver.upgrade().filter(|_| number == me);
        driver.is_some_and(|driver| driver.now() < until)
    }

    fn lease(&self) -> MutexGuard<'_, (MemberNumber, Time)> {
        lock(&self.0.lease, "the lease of a roster's member")
    }

    /// Lets another member act for this one, once the group removes this member's node. The member then stays
    /// in the roster, under its number, at the node of its heir. The heir sends and receives its frames, and
    /// calls [`vacate`](Seat::vacate) for it. An heir cannot leave before.
    ///
    /// A later heir replaces an earlier one. The call has no effect if the heir is at the same node, or is no
    /// member any more. [`Roster::heir`] tells the present one.
    pub fn set_heir(&self, number: MemberNumber, heir: MemberNumber) {
        if let Some(driver) = self.0.driver.upgrade() {
            driver.drive(|state, now| state.core.set_heir(now, self.0.service, number.0, heir.0));
        }
    }

    /// Leaves the roster, or ends an inherited member. With an epoch, only if the roster still has it.
    /// [`RosterMember::vacated`] follows for the own number, or a newer roster.
    pub fn vacate(&self, number: MemberNumber, if_epoch: Option<u64>) {
        if let Some(driver) = self.0.driver.upgrade() {
            driver.drive(|state, now| state.core.vacate(now, self.0.service, number.0, if_epoch));
        }
    }
}

impl Node {
    /// Joins, or begins, the roster of a name. All members give the same tag, for example a hash of their
    /// options. Returns the right to end this member, which asks it to leave.
    ///
    /// The functions of `member` may run before this function returns. A node may have several members.
    ///
    /// # Errors
    /// [`RequestError`]. [`Refusal::NameClash`](crate::Refusal::NameClash) if the name is no roster, or has
    /// another tag.
    /// # Examples
    #[cfg_attr(all(target_os = "linux", not(miri)), doc = "```")]
    #[cfg_attr(not(all(target_os = "linux", not(miri))), doc = "```ignore")]
    /// use squall::fleet::{GroupKey, LocalNetwork, MemberNumber, NodeBuilder, Roster, RosterMember, Seat};
    /// use std::sync::mpsc::{Sender, channel};
    ///
    /// /// Greets the first member, and tells the program of greetings.
    /// struct Greeter(Sender<Vec<u8>>);
    ///
    /// impl RosterMember for Greeter {
    ///     fn changed(&self, seat: &Seat, roster: &Roster) {
    ///         seat.send(roster.me, roster.members[0].0, format!("I am {}", roster.me.0).into_bytes());
    ///     }
    ///     fn vacated(&self, _seat: &Seat) {}
    ///     fn removed(&self, _seat: &Seat) {}
    ///     fn receive(&self, _seat: &Seat, _from: MemberNumber, frame: &[u8]) {
    ///         _ = self.0.send(frame.to_vec());
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let network = LocalNetwork::new();
    /// let (node, root) = NodeBuilder::new(GroupKey::random()).found(network.bind("a")?, &[])?;
    /// let (sender, greetings) = channel();
    /// node.join_roster(&"/greeters".parse()?, &root, 1, Greeter(sender))?;
    /// assert_eq!(greetings.recv()?, b"I am 1");
    /// # Ok(())
    /// # }
    /// ```
    pub fn join_roster(
        &self,
        name: &Name,
        parent: &NameCapability,
        tag: u64,
        member: impl RosterMember,
    ) -> Result<NameCapability, RequestError> {
        // A random number: no other service of the group has it.
        let (service, key) = (random() as u64 | 1, random());
        let driver = Arc::downgrade(&self.0);
        let lease = Mutex::new((MemberNumber(0), 0));
        let inner = SeatInner { driver, service, name: name.clone(), lease };
        let served = ServedMember { member: Box::new(member), seat: Seat(Arc::new(inner)) };
        self.0.add_service(service, Kind::Member(Arc::new(served)));
        self.keep_registered(Registration {
            name: name.clone(),
            service,
            several: true,
            stateless: false,
            shards: 0,
            roster: Some(tag),
            key,
            parent: parent.clone(),
            seen: None,
            register_at: 0,
        })?;
        Ok(NameCapability { name: name.clone(), key })
    }
}
