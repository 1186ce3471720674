//! The shard of one member: its books, and its inputs.

use super::balance::{Held, Offer};
use super::channel::{Channel, Channels};
use super::guard::Guard;
use super::marks::{Finding, Mark};
use super::message::{Census, Frame, Message};
use super::search::{Search, SizeCount, Wait};
use super::{
    Attributes, Command, Completion, Counts, DISTANCE, ELEMENT_BYTES_MAX, Element, MemberId, OpId, Output,
    Strategy, Time, View,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    /// Outside of the view, or not known to the master.
    Joining,
    Ready,
    /// Gives its elements to others, and refuses theirs.
    Draining,
    /// Has asked the group to remove it.
    Leaving,
    Removed,
}

/// The shard of a pool at one member: the member's elements, and its part in the protocol.
///
/// Each input may produce outputs, which [`take_outputs`](Shard::take_outputs) returns. The driver stops
/// calling a shard when the member has lost its lease.
///
/// # Cost
/// Memory for the elements, and a few hundred bytes for each other member.
///
/// # Example
/// ```
/// use squall::fleet::pool::protocol::{Attributes, Command, Completion, MemberId, OpId, Output, Shard, View};
///
/// let mut shard = Shard::new(MemberId(1), 0, Attributes::default());
/// shard.install(0, &View::new(1, vec![MemberId(1)]));
/// shard.command(0, OpId(1), Command::AddElement(b"seven".to_vec()));
/// shard.command(0, OpId(2), Command::GetElement { size_max: 100 });
/// let got = Output::Completed { op: OpId(2), result: Completion::Got(b"seven".to_vec()) };
/// assert!(shard.take_outputs().contains(&got));
/// ```
#[derive(Debug, Serialize, Deserialize)]
pub struct Shard {
    pub(super) me: MemberId,
    object: u64,
    /// Not in a copy: equal at all members.
    #[serde(skip)]
    pub(super) attributes: Attributes,
    pub(super) view: View,
    pub(super) phase: Phase,
    /// The master that this newcomer has greeted.
    greeted: Option<MemberId>,
    channels: Channels,
    pub(super) shutdown: Option<OpId>,
    /// The view of this member alone in which it asked for its removal.
    end_asked: u64,
    #[serde(skip)]
    outputs: Vec<Output>,
    #[serde(skip)]
    counts: Counts,
    next_id: u64,

    pub(super) store: VecDeque<Element>,
    pub(super) arrivals: u64,
    /// Elements of gives that are not answered for.
    pub(super) giving: u64,
    /// Transfers that this shard has begun, with the copies.
    pub(super) offers: BTreeMap<u64, Offer>,
    /// Transfers of other shards that are not committed.
    pub(super) held: BTreeMap<(MemberId, u64), Held>,
    /// Questions for elements that are not answered.
    pub(super) asks: BTreeMap<u64, MemberId>,
    /// Members with an open question whose deadline has passed.
    pub(super) late: BTreeSet<MemberId>,
    pub(super) pull: Option<MemberId>,
    /// Peers that refused elements of this leaver in this view.
    pub(super) refused: BTreeSet<MemberId>,

    pub(super) waiting: VecDeque<Wait>,
    pub(super) next_ticket: u64,
    pub(super) search: Option<Search>,
    pub(super) retry_at: Option<Time>,
    pub(super) pause: Time,
    /// The factor of the deadlines of searches.
    pub(super) patience: Time,
    pub(super) sizes: BTreeMap<u64, SizeCount>,
    /// The place in the view at which the next search begins.
    pub(super) turn: usize,
    distances: BTreeMap<MemberId, u32>,

    pub(super) idle_events: u32,
    pub(super) acts: u32,
    /// The size that this shard told last.
    pub(super) told: u64,
    pub(super) estimates: BTreeMap<MemberId, u64>,
    pub(super) estimates_changed: bool,

    pub(super) mark: Mark,
    pub(super) finding: Option<Finding>,
    /// Adds that wait for the mark.
    pub(super) marking: Vec<(OpId, Element)>,
    /// On the master: the members that may have elements.
    pub(super) marks: BTreeSet<MemberId>,
    /// On a master that is about to leave: questions for marks, and the searches of those that find.
    pub(super) unanswered: Vec<(MemberId, Option<u64>)>,
}

impl Shard {
    /// Makes a shard that is not in a view yet. `object` tells pools of a group apart.
    pub fn new(me: MemberId, object: u64, attributes: Attributes) -> Shard {
        Shard {
            me,
            object,
            attributes,
            view: View::default(),
            phase: Phase::Joining,
            greeted: None,
            channels: Channels::new(),
            shutdown: None,
            end_asked: 0,
            outputs: Vec::new(),
            counts: Counts::default(),
            next_id: 1,
            store: VecDeque::new(),
            arrivals: 0,
            giving: 0,
            offers: BTreeMap::new(),
            held: BTreeMap::new(),
            asks: BTreeMap::new(),
            late: BTreeSet::new(),
            pull: None,
            refused: BTreeSet::new(),
            waiting: VecDeque::new(),
            next_ticket: 1,
            search: None,
            retry_at: None,
            pause: 0,
            patience: 1,
            sizes: BTreeMap::new(),
            turn: 0,
            distances: BTreeMap::new(),
            idle_events: 0,
            acts: 0,
            told: 0,
            estimates: BTreeMap::new(),
            estimates_changed: false,
            mark: Mark::Set,
            finding: None,
            marking: Vec::new(),
            marks: BTreeSet::new(),
            unanswered: Vec::new(),
        }
    }

    /// Returns the outputs since the last call.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Returns the number of elements in this shard's store.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns whether this shard's store is empty.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Returns the numbers of events since the shard began.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns whether the shard serves commands.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Returns whether the shard has begun to leave, or was removed. It then serves no commands.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Draining | Phase::Leaving | Phase::Removed)
    }

    /// Returns the epoch of the last view.
    pub fn epoch(&self) -> u64 {
        self.view.epoch
    }

    /// Takes the elements that this shard alone has: those of its store, and those of adds that wait, with
    /// their operations. For a driver that finds its member removed by the group: it may add them to the pool
    /// again. The operations get no completion.
    pub fn salvage(&mut self) -> Vec<(Option<OpId>, Element)> {
        let stored = std::mem::take(&mut self.store).into_iter().map(|element| (None, element));
        let waiting = std::mem::take(&mut self.marking).into_iter().map(|(op, element)| (Some(op), element));
        stored.chain(waiting).collect()
    }

    /// Returns the time of the next [`tick`](Shard::tick) that does something.
    pub fn wake_at(&self) -> Option<Time> {
        let channels = self.channels.values().filter_map(Channel::wake_at);
        let deadline = self.search.as_ref().and_then(Search::deadline);
        channels.chain(self.retry_at).chain(deadline).min()
    }

    /// Begins an operation. Its completion is among the outputs, now or later.
    pub fn command(&mut self, now: Time, op: OpId, command: Command) {
        self.counts.operations += 1;
        if self.phase != Phase::Ready {
            return self.complete(op, Completion::Closed);
        }
        match command {
            Command::AddElement(element) if element.len() > ELEMENT_BYTES_MAX => {
                self.complete(op, Completion::NotAdded)
            }
            Command::AddElement(element) => self.add(op, element),
            Command::GetElement { size_max } => self.get(op, size_max),
            Command::Size => self.size(op),
            Command::Shutdown => self.begin_shutdown(op),
        }
        self.go_on(now);
    }

    /// Sets the distance from a member to another one, in any unit. Dry shards ask near ones first.
    /// A removed shard ignores it.
    pub fn set_locality(&mut self, now: Time, from: MemberId, to: MemberId, distance: u32) {
        if self.phase == Phase::Removed {
            return;
        }
        if from == self.me {
            self.distances.insert(to, distance);
        } else {
            self.send(from, Message::Locality { to, distance });
        }
        self.go_on(now);
    }

    /// Notes that the member has no other work.
    pub fn idle(&mut self, now: Time) {
        self.idle_events += 1;
        if self.idle_events >= self.attributes.idle_events.max(1) {
            self.idle_events = 0;
            if self.phase == Phase::Ready {
                self.idle_act();
            }
            self.go_on(now);
        }
    }

    /// Notes that time has passed.
    pub fn tick(&mut self, now: Time) {
        if self.retry_at.is_some_and(|at| now >= at) {
            self.retry_at = None;
        }
        self.go_on_without(now);
        self.go_on(now);
    }

    /// Takes a frame of another member, or drops it.
    pub fn receive(&mut self, now: Time, from: MemberId, bytes: &[u8]) {
        let Some(frame) = Frame::decode(bytes) else { return };
        let stranger = from == self.me || !self.view.members.contains(&from);
        if frame.object != self.object
            || frame.to != self.me
            || self.phase == Phase::Removed
            || Guard::MembersOnly.and(stranger)
            || Guard::ViewFirst.and(frame.epoch > self.view.epoch)
        {
            return;
        }
        let resend = self.attributes.resend;
        let channel = self.channels.entry(from).or_default();
        for message in channel.answered(now, frame.seen, resend) {
            if let Message::Give { elements, .. } = message {
                self.giving -= elements.len() as u64;
            }
        }
        if let Some(message) = frame.message
            && channel.takes(frame.number)
        {
            self.take(now, from, message);
        }
        self.go_on(now);
    }

    /// Returns whether a frame would change the books. Others repeat messages that were taken, or come
    /// too early.
    pub(super) fn is_news(&self, from: MemberId, frame: &Frame) -> bool {
        let number = frame.message.as_ref().map(|_| frame.number);
        let news = |channel: &Channel| channel.is_news(number, frame.seen);
        self.view.members.contains(&from)
            && frame.epoch <= self.view.epoch
            && self.channels.get(&from).is_none_or(news)
    }

    /// Returns the number of the last message that was taken of a member.
    pub(super) fn taken_of(&self, from: MemberId) -> u64 {
        self.channels.get(&from).map_or(0, Channel::taken)
    }

    fn take(&mut self, now: Time, from: MemberId, message: Message) {
        let by_master = self.master() == Some(from);
        match message {
            Message::Hello => self.send(from, Message::Welcome),
            Message::Welcome => self.welcomed(from),
            Message::Ask { search, count } => self.asked(from, search, count),
            Message::Give { search, elements, census } => self.given(now, from, search, elements, census),
            Message::Count { search } => {
                let census = self.census();
                self.send(from, Message::Counted { search, census });
            }
            Message::Counted { search, census } => self.counted(now, from, search, census),
            Message::Pull { count } => self.pulled(from, count),
            Message::Dry => self.pull = None,
            Message::Offer { transfer, leaving, elements } => self.offered(from, transfer, leaving, elements),
            Message::Accept { transfer } => self.accepted(from, transfer),
            Message::Refuse { transfer } => self.was_refused(from, transfer),
            Message::Commit { transfer } => self.committed(from, transfer),
            Message::Report { len } => self.told_size(from, len),
            Message::Estimates { .. } if !by_master => {}
            Message::Estimates { sizes } => self.estimates = sizes.into_iter().collect(),
            Message::Locality { to, distance } if self.view.members.contains(&to) => {
                self.distances.insert(to, distance);
            }
            Message::Locality { .. } => {}
            Message::Find { search, sure, tried } => self.find_for(from, search, sure, &tried),
            Message::At { .. } | Message::Nothing { .. } | Message::Busy { .. } | Message::Marked
                if !by_master => {}
            Message::At { search, member } => self.found_at(now, search, member),
            Message::Nothing { search } => self.found_nothing(now, search),
            Message::Busy { search } => self.found_busy(now, search),
            Message::Mark => self.set_mark_of(from),
            Message::Marked => self.marked(),
            Message::Unmark => _ = self.marks.remove(&from),
            // For the host of the shard.
            Message::CopyPart { .. } | Message::CopyInputs { .. } => {}
        }
    }

    /// Notes a view of the group. Views come in their order; some may be left out.
    pub fn install(&mut self, now: Time, view: &View) {
        if view.epoch <= self.view.epoch || self.phase == Phase::Removed {
            return;
        }
        let before = std::mem::replace(&mut self.view, view.clone());
        if !self.view.members.contains(&self.me) {
            if before.members.contains(&self.me) {
                self.remove_me(&before);
            }
            return;
        }
        // The search asks in one view alone.
        self.search = None;
        self.retry_at = None;
        self.refused.clear();
        if self.phase == Phase::Leaving && self.attributes.replicated {
            // The view has changed before the group could remove it.
            self.phase = Phase::Draining;
            self.answer_late();
        }
        let members = &self.view.members;
        let gone: Vec<_> = before.members.iter().filter(|member| !members.contains(member)).collect();
        gone.into_iter().for_each(|gone| self.forget(*gone));
        self.change_master(&before);
        self.greet();
        self.serve();
        self.go_on(now);
    }

    fn greet(&mut self) {
        let Some(master) = self.master() else { return };
        if self.phase != Phase::Joining {
            return;
        }
        if master == self.me || Guard::Welcome.is_removed() {
            self.serve_now();
        } else if self.greeted != Some(master) {
            self.greeted = Some(master);
            self.send(master, Message::Hello);
        }
    }

    fn welcomed(&mut self, from: MemberId) {
        if self.phase == Phase::Joining && self.master() == Some(from) {
            self.serve_now();
        }
    }

    fn serve_now(&mut self) {
        self.phase = Phase::Ready;
        self.outputs.push(Output::Ready);
        self.marked();
    }

    /// Forgets a member that is out of the view.
    fn forget(&mut self, gone: MemberId) {
        if let Some(channel) = self.channels.remove(&gone) {
            self.giving -= channel.unanswered().map(Message::given).sum::<u64>();
        }
        self.settle_transfers(gone);
        self.asks.retain(|_, asked| *asked != gone);
        self.late.remove(&gone);
        self.pull = self.pull.filter(|asked| *asked != gone);
        self.estimates.remove(&gone);
        self.distances.remove(&gone);
        self.marks.remove(&gone);
        let sizes = self.sizes.values_mut();
        sizes.for_each(|size| _ = size.open.remove(&gone));
        self.end_sizes();
    }

    fn remove_me(&mut self, before: &View) {
        let result = match self.phase {
            Phase::Leaving => Completion::Left,
            _ if self.end_asked == before.epoch => Completion::LastLeft { lost: self.store.len() as u64 },
            _ => Completion::Closed,
        };
        self.phase = Phase::Removed;
        self.channels.clear();
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|wait| wait.op);
        let marking = std::mem::take(&mut self.marking).into_iter().map(|(op, _)| op);
        let adds = self.offers.values_mut().filter_map(|offer| offer.add.take());
        let sizes = std::mem::take(&mut self.sizes).into_values().map(|size| size.op);
        let ops: Vec<OpId> = waiting.chain(marking).chain(adds).chain(sizes).collect();
        ops.into_iter().for_each(|op| self.complete(op, Completion::Closed));
        if let Some(op) = self.shutdown.take() {
            self.complete(op, result);
        }
        self.outputs.push(Output::Removed);
    }

    /// Does all that can be done now, and sends.
    fn go_on(&mut self, now: Time) {
        self.drain();
        self.seek(now);
        let (object, epoch) = (self.object, self.view.epoch);
        let mut frames = Vec::new();
        for (to, channel) in &mut self.channels {
            channel.frames(now, self.attributes.resend, &Frame::new(object, *to, epoch, 0), &mut frames);
        }
        self.counts.frames += frames.len() as u64;
        let sends = frames.iter().map(|frame| Output::Send { to: frame.to, frame: frame.encode() });
        self.outputs.extend(sends);
    }

    pub(super) fn send(&mut self, to: MemberId, message: Message) {
        if self.view.members.contains(&to) && to != self.me {
            self.giving += message.given();
            let more = self.channels.entry(to).or_default().push(message);
            self.counts.messages += u64::from(more);
        }
    }

    pub(super) fn complete(&mut self, op: OpId, result: Completion) {
        self.outputs.push(Output::Completed { op, result });
    }

    pub(super) fn request_leave(&mut self) {
        self.phase = Phase::Leaving;
        // With copies, it may become the heir of another member meanwhile, and stay.
        let only_now = self.attributes.replicated && !Guard::LeaveByEpoch.is_removed();
        self.outputs.push(Output::Leave { if_epoch: only_now.then_some(self.view.epoch) });
    }

    /// Asks the group to remove this member if it is still the only one.
    pub(super) fn request_end(&mut self) {
        let epoch = self.view.epoch;
        if self.end_asked != epoch {
            self.end_asked = epoch;
            self.outputs.push(Output::Leave { if_epoch: Some(epoch) });
        }
    }

    pub(super) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    pub(super) fn master(&self) -> Option<MemberId> {
        self.view.members.first().copied()
    }

    pub(super) fn is_master(&self) -> bool {
        self.master() == Some(self.me)
    }

    /// Returns the other members, in turn. The next call begins one later.
    pub(super) fn peers(&mut self) -> Vec<MemberId> {
        let members = &self.view.members;
        let others: Vec<MemberId> = members.iter().copied().filter(|member| *member != self.me).collect();
        self.turn = (self.turn + 1) % others.len().max(1);
        let mut peers: Vec<MemberId> =
            others[self.turn..].iter().chain(&others[..self.turn]).copied().collect();
        peers.sort_by_key(|peer| self.distances.get(peer).copied().unwrap_or(DISTANCE));
        if self.attributes.strategy == Strategy::Centralized {
            peers.sort_by_key(|peer| Some(*peer) != self.master());
        }
        peers
    }

    /// Elements on their way for which this shard answers (`protocol/I4`).
    pub(super) fn moving(&self) -> u64 {
        let offered = self.offers.values().map(|offer| offer.elements.len() as u64).sum::<u64>();
        let held = self.held.values().filter(|held| held.accepted);
        let held = held.map(|held| held.elements.len() as u64).sum::<u64>();
        let count = |guard: Guard, number| if guard.is_removed() { 0 } else { number };
        count(Guard::CountOffered, offered)
            + count(Guard::CountHeld, held)
            + count(Guard::CountGiven, self.giving)
    }

    pub(super) fn census(&self) -> Census {
        Census {
            epoch: self.view.epoch,
            len: self.store.len() as u64,
            moving: self.moving(),
            arrivals: self.arrivals,
        }
    }

    pub(super) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// All elements that are physically here, and count: for the simulator.
    #[cfg(test)]
    pub(super) fn all_elements(&self) -> Vec<&Element> {
        let offered = self.offers.values().flat_map(|offer| &offer.elements);
        let held = self.held.values().filter(|held| held.accepted).flat_map(|held| &held.elements);
        let given = self.channels.values().flat_map(Channel::unanswered).flat_map(Message::elements);
        self.store.iter().chain(offered).chain(held).chain(given).collect()
    }

    /// The elements on their way to a member on demand: for the simulator.
    #[cfg(test)]
    pub(super) fn given_to(&self, member: MemberId) -> Vec<&Element> {
        let channel = self.channels.get(&member);
        channel.into_iter().flat_map(Channel::unanswered).flat_map(Message::elements).collect()
    }

    /// The number of messages that a member may not have.
    #[cfg(test)]
    pub(super) fn unanswered(&self, member: MemberId) -> usize {
        self.channels.get(&member).map_or(0, |channel| channel.unanswered().count())
    }

    /// The members to which the shard knows distances.
    #[cfg(test)]
    pub(super) fn distances(&self) -> impl Iterator<Item = MemberId> {
        self.distances.keys().copied()
    }

    #[cfg(test)]
    pub(super) fn is_quiet(&self) -> bool {
        self.channels.values().all(Channel::is_quiet)
    }
}
