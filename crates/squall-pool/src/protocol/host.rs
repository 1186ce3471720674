//! The shards at one member: its own, those of dead members, and copies of others.
//!
//! Problem: a member that dies takes its elements along, and its peers do not know how transfers with it
//! ended. Idea: a shard is deterministic, so another member can have a copy and feed it with the same inputs.
//! The group lets that member, the *heir*, act for the dead one. Peers see a slow member, which then leaves
//! like others: a leaver loses no element.
//!
//! - I1. A copy begins with all books of a shard, and gets each later input, in order. So it goes through the
//!   same states.
//! - I2. Once a shard has an heir, its outputs wait until the copy has the inputs that led to them. So what
//!   others know of a dead member is in its copy. It is the group that knows of an heir, and of its end.
//! - I3. A shard asks for an heir only after the copy has all inputs whose outputs did not wait.
//! - I4. An heir runs the copy from the view in which it acts for the dead member. The group stops a member
//!   before that view. So one of both runs the shard.
//! - I5. The clock of a copy goes on from its last input.
//! - I6. With copies, a shard leaves only in the view in which it asked to, and never before those that its
//!   member has inherited.
//! - I7. A shard whose copy is behind takes only inputs that change its books: no ticks, no idle events, and
//!   no repeated frames.
//!
//! Not promised: elements of a member that dies while it has no heir. It has none until its first copy is
//! complete, and after its heir has died or left. While a member is cut off from its heir and both are in the
//! view, its operations wait. If it dies or is removed then, each of them may have taken effect or not: an
//! element of such a get, or of one that was given up, may be gone.
//!
//! Cost: without copies, none. With copies, a frame to the heir and an answer for the inputs of a round trip,
//! and one more round trip before each result and frame. Memory for a second copy of each element, and for
//! the inputs that the copy does not have: those of open operations, and one frame of each peer.
//!
//! Source: Schneider, *Implementing fault-tolerant services using the state machine approach*, 1990; outputs
//! wait as in Bressoud and Schneider, *Hypervisor-based fault tolerance*, 1995.

use super::channel::Channel;
use super::guard::Guard;
use super::message::{Begin, Frame, Input, Message};
use super::shard::{Phase, Shard};
use super::{
    Attributes, Command, Completion, Counts, ELEMENT_BYTES_MAX, Element, MemberId, OpId, Output, Time, View,
};
use std::collections::{BTreeMap, VecDeque};

/// The most bytes of a part of a copy.
const PART_BYTES: usize = 256 << 10;
/// The most bytes of inputs in one frame, unless it is one input.
const BATCH_BYTES: usize = 256 << 10;
/// The most bytes of inputs that wait for a copy, before the group is asked for an heir.
const FILL_BYTES: usize = 16 << 20;
/// A member that does not answer for so many intervals of repetition until then gets no copy.
const FILL_RESENDS: Time = 64;
/// The operation that ends an inherited shard. Its result has no caller.
const END_OP: OpId = OpId(u64::MAX);

/// A copy that a shard has at another member, as the shard's host sees it.
#[derive(Debug)]
struct Copying {
    to: MemberId,
    began: Begin,
    channel: Channel,
    /// The last time at which the member has answered, by the clock of this host.
    progress: Time,
    /// Inputs that are not in the channel yet, and about their bytes.
    pending: VecDeque<(Time, Input)>,
    pending_bytes: usize,
    /// The number of inputs so far, and of those in the channel, and of those that the copy has.
    inputs: u64,
    sent: u64,
    taken: u64,
    stage: Stage,
}

impl Copying {
    /// Returns whether outputs wait.
    fn gates(&self) -> bool {
        self.stage != Stage::Filling && !Guard::CopyFirst.is_removed()
    }

    /// Returns whether a copy without an heir yet is hopeless: another member shall have it.
    fn is_stuck(&self, now: Time, resend: Time) -> bool {
        let patience = resend.saturating_mul(FILL_RESENDS);
        self.stage != Stage::Asked
            && (self.pending_bytes > FILL_BYTES || now.saturating_sub(self.progress) > patience)
    }

    /// Sends the next inputs once the copy has those before: one frame at a time carries all that have come
    /// meanwhile.
    fn go_on(&mut self) {
        if !self.channel.is_quiet() {
            return;
        }
        self.taken = self.sent;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some((_, input)) = self.pending.front() {
            let more = input.bytes();
            if !batch.is_empty() && bytes + more > BATCH_BYTES {
                break;
            }
            bytes += more;
            batch.extend(self.pending.pop_front());
        }
        self.pending_bytes -= bytes;
        if !batch.is_empty() {
            self.sent += batch.len() as u64;
            self.channel.push(Message::CopyInputs { inputs: batch });
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The first copy is on its way. Outputs do not wait.
    Filling,
    /// Outputs wait. Those of the first inputs, so many, did not.
    Closing(u64),
    /// The group was asked for the heir.
    Asked,
}

/// A shard that runs here.
#[derive(Debug)]
struct Hosted {
    shard: Shard,
    /// A time of this host, and the time of the shard's clock then (I5).
    clocks: (Time, Time),
    copying: Option<Copying>,
    /// Outputs that wait until the copy has so many inputs.
    waiting: VecDeque<(u64, Output)>,
    /// The number of copies that were begun.
    attempts: u32,
}

impl Hosted {
    fn new(shard: Shard, clocks: (Time, Time)) -> Hosted {
        Hosted { shard, clocks, copying: None, waiting: VecDeque::new(), attempts: 0 }
    }

    fn clock(&self, now: Time) -> Time {
        self.clocks.1.saturating_add(now.saturating_sub(self.clocks.0))
    }

    /// Returns whether outputs wait for the copy (I7).
    fn is_behind(&self) -> bool {
        self.copying.as_ref().is_some_and(|it| it.gates() && it.taken < it.inputs)
    }

    fn wake_at(&self) -> Option<Time> {
        let (here, there) = self.clocks;
        let shard = self
            .shard
            .wake_at()
            .filter(|_| !self.is_behind())
            .map(|at| here.saturating_add(at.saturating_sub(there)));
        let channel = self.copying.as_ref().and_then(|copying| copying.channel.wake_at());
        shard.into_iter().chain(channel).min()
    }
}

/// A copy of another member's shard.
#[derive(Debug)]
struct Copy {
    began: Begin,
    channel: Channel,
    parts: Vec<u8>,
    shard: Option<Shard>,
    /// The time of the last input, by the clock of the shard.
    at: Time,
    /// The number of inputs.
    inputs: u64,
}

/// The part of one member in a pool: its [`Shard`], and with the attribute
/// [`replicated`](Attributes::replicated) also copies of other members' shards.
///
/// It has the inputs of a shard. Its outputs come with the member that they are of: its own, or a dead one
/// for which it acts.
///
/// # Example
/// ```
/// use squall::fleet::pool::protocol::{Attributes, Command, Completion, Host, MemberId, OpId, Output, View};
///
/// let (me, other) = (MemberId(1), MemberId(2));
/// let mut host = Host::new(me, 0, Attributes { replicated: true, ..Attributes::default() });
/// host.install(0, &View::new(1, vec![me, other]), &[other]);
/// host.command(0, OpId(1), Command::AddElement(b"seven".to_vec()));
/// // The copy is not complete yet, so the result does not wait for it.
/// let added = Output::Completed { op: OpId(1), result: Completion::Added };
/// assert!(host.take_outputs().contains(&(me, added)));
/// assert!(!host.has_heir());
/// ```
#[derive(Debug)]
pub struct Host {
    me: MemberId,
    object: u64,
    attributes: Attributes,
    pub(super) view: View,
    /// Members that may have a copy of a shard of this host.
    backups: Vec<MemberId>,
    /// The heir of this member, as the group knows.
    heir: Option<MemberId>,
    /// The own shard, and those of dead members.
    shards: BTreeMap<MemberId, Hosted>,
    copies: BTreeMap<MemberId, Copy>,
    outputs: Vec<(MemberId, Output)>,
    copy_frames: u64,
}

impl Host {
    /// Makes the host of a member that is not in a view yet. `object` tells pools of a group apart.
    pub fn new(me: MemberId, object: u64, attributes: Attributes) -> Host {
        let own = Hosted::new(Shard::new(me, object, attributes.clone()), (0, 0));
        Host {
            me,
            object,
            attributes,
            view: View::default(),
            backups: Vec::new(),
            heir: None,
            shards: BTreeMap::from([(me, own)]),
            copies: BTreeMap::new(),
            outputs: Vec::new(),
            copy_frames: 0,
        }
    }

    /// Returns the shard of the member itself.
    pub fn own(&self) -> &Shard {
        &self.shards[&self.me].shard
    }

    /// Returns what the driver has to do, in this order, and for which member.
    pub fn take_outputs(&mut self) -> Vec<(MemberId, Output)> {
        std::mem::take(&mut self.outputs)
    }

    /// Returns the numbers of events of the member itself since it began.
    pub fn counts(&self) -> Counts {
        Counts { copy_frames: self.copy_frames, ..self.own().counts() }
    }

    /// Returns the number of dead members for which this one acts.
    pub fn inherited(&self) -> usize {
        self.shards.len() - 1
    }

    /// Returns whether another member has a copy of this one, and the group knows it.
    pub fn has_heir(&self) -> bool {
        let copying = self.shards[&self.me].copying.as_ref();
        let asked = copying.filter(|copying| copying.stage == Stage::Asked);
        asked.is_some_and(|copying| Some(copying.to) == self.heir)
    }

    /// Notes the member that the group knows as the heir of this one.
    pub fn note_heir(&mut self, heir: Option<MemberId>) {
        self.heir = heir;
    }

    /// Returns the time of the next [`tick`](Host::tick) that does something.
    pub fn wake_at(&self) -> Option<Time> {
        self.shards.values().filter_map(Hosted::wake_at).min()
    }

    /// Returns whether the result of a get waits for the copy.
    pub fn holds_element(&self) -> bool {
        let mut waiting = self.shards[&self.me].waiting.iter();
        waiting.any(|(_, output)| matches!(output, Output::Completed { result: Completion::Got(_), .. }))
    }

    /// Like [`Shard::command`], for the shard of the member itself.
    pub fn command(&mut self, now: Time, op: OpId, mut command: Command) {
        if let Command::GetElement { size_max } = &mut command {
            // The same number on machines of each width.
            *size_max = ELEMENT_BYTES_MAX.min(*size_max);
        }
        self.input(self.me, now, Input::Command { op, command });
        self.advance(now);
    }

    /// Like [`Shard::cancel`].
    pub fn cancel(&mut self, now: Time, op: OpId) -> bool {
        let cancelled = self.input(self.me, now, Input::Cancel { op });
        self.advance(now);
        cancelled
    }

    /// Like [`Shard::set_locality`].
    pub fn set_locality(&mut self, now: Time, from: MemberId, to: MemberId, distance: u32) {
        self.input(self.me, now, Input::Locality { from, to, distance });
        self.advance(now);
    }

    /// Like [`Shard::idle`].
    pub fn idle(&mut self, now: Time) {
        if !self.shards[&self.me].is_behind() {
            self.input(self.me, now, Input::Idle);
            self.advance(now);
        }
    }

    /// Notes that time has passed.
    pub fn tick(&mut self, now: Time) {
        // A copy needs the ticks that do something.
        let all = !self.attributes.replicated;
        let is_due = |hosted: &Hosted| {
            !hosted.is_behind() && hosted.shard.wake_at().is_some_and(|at| at <= hosted.clock(now))
        };
        let due = self.shards.iter().filter(|(_, hosted)| all || is_due(hosted)).map(|(id, _)| *id);
        for id in due.collect::<Vec<_>>() {
            self.input(id, now, Input::Tick);
        }
        self.advance(now);
    }

    /// Like [`Shard::salvage`]. Elements that an heir may have are not among them.
    pub fn salvage(&mut self) -> Vec<(Option<OpId>, Element)> {
        let Some(own) = self.shards.get_mut(&self.me) else { return Vec::new() };
        let may_be_copied = own.copying.as_ref().is_some_and(|copying| copying.stage == Stage::Asked);
        if may_be_copied { Vec::new() } else { own.shard.salvage() }
    }

    /// Takes a frame of another member, or drops it.
    pub fn receive(&mut self, now: Time, from: MemberId, bytes: &[u8]) {
        if !self.attributes.replicated {
            return self.input_of_own(|shard| shard.receive(now, from, bytes));
        }
        let Some(frame) = Frame::decode(bytes) else { return };
        if frame.object != self.object {
            return;
        }
        match frame.copy {
            Some((of, began)) => self.receive_copy(now, from, (of, began), frame),
            None => match self.shards.get(&frame.to) {
                Some(hosted) if hosted.shard.is_news(from, &frame) => {
                    self.input(frame.to, now, Input::Receive { from, bytes: bytes.to_vec() });
                }
                // Its answer was lost, unless it still waits.
                Some(hosted)
                    if frame.message.is_some()
                        && self.view.members.contains(&from)
                        && !hosted.is_behind() =>
                {
                    let seen = hosted.shard.taken_of(from);
                    let epoch = hosted.shard.epoch();
                    let answer = Frame::new(self.object, from, epoch, seen);
                    self.outputs.push((frame.to, Output::Send { to: from, frame: answer.encode() }));
                }
                _ => return,
            },
        }
        self.advance(now);
    }

    /// Notes a view of the group, as [`Shard::install`]. `backups` are the members that may have a copy of a
    /// shard of this host: living ones at other nodes.
    pub fn install(&mut self, now: Time, view: &View, backups: &[MemberId]) {
        if view.epoch <= self.view.epoch {
            return;
        }
        (self.view, self.backups) = (view.clone(), backups.to_vec());
        if !view.members.contains(&self.me) {
            self.end();
        }
        for id in self.shards.keys().copied().collect::<Vec<_>>() {
            self.drop_copy(id);
        }
        self.take_over(now);
        self.copies.retain(|of, _| view.members.contains(of));
        for id in self.shards.keys().copied().collect::<Vec<_>>() {
            self.input(id, now, Input::Install { view: view.clone() });
        }
        self.shards.retain(|id, _| *id == self.me || view.members.contains(id));
        self.advance(now);
    }

    /// Ends the part of this member: it is out of the view.
    fn end(&mut self) {
        // Other heirs have the shards of dead members, if they had copies again.
        self.shards.retain(|id, _| *id == self.me);
        self.copies.clear();
        let Some(own) = self.shards.get_mut(&self.me) else { return };
        if own.copying.take().is_some_and(|copying| copying.stage == Stage::Asked) {
            // An heir acts for this member, and may not have the inputs that led to these outputs.
            let ended = own.waiting.drain(..).filter_map(|(_, output)| match output {
                Output::Completed { op, .. } => Some(Output::Completed { op, result: Completion::Closed }),
                _ => None,
            });
            let ended = ended.collect();
            self.emit(self.me, ended);
        }
    }

    /// Ends the copy of a shard if its place may have none any more: the group has no such heir (I2).
    fn drop_copy(&mut self, id: MemberId) {
        let Some(hosted) = self.shards.get_mut(&id) else { return };
        if hosted.copying.take_if(|copying| !self.backups.contains(&copying.to)).is_some() {
            let waited = hosted.waiting.drain(..).map(|(_, output)| output).collect();
            self.emit(id, waited);
        }
    }

    /// Begins to act for dead members (I4).
    fn take_over(&mut self, now: Time) {
        for (dead, heir) in self.view.inherited.clone() {
            if heir != self.me || self.shards.contains_key(&dead) {
                continue;
            }
            let copy = self.copies.remove(&dead);
            let Some(Copy { shard: Some(shard), at, .. }) = copy else {
                // No heir without a copy (I3).
                self.outputs.push((dead, Output::Leave { if_epoch: None }));
                continue;
            };
            let leaves = matches!(shard.phase, Phase::Draining | Phase::Leaving);
            self.shards.insert(dead, Hosted::new(shard, (now, at)));
            if !leaves {
                // Before the view, which may bring elements back: its waiting gets have no callers.
                self.input(dead, now, Input::Command { op: END_OP, command: Command::Shutdown });
            }
        }
    }

    /// Runs an input of a shard, and of its copy (I1). Returns whether it cancelled an operation.
    fn input(&mut self, id: MemberId, now: Time, input: Input) -> bool {
        let Some(hosted) = self.shards.get_mut(&id) else { return false };
        let at = hosted.clock(now);
        if let Some(copying) = &mut hosted.copying {
            copying.inputs += 1;
            copying.pending_bytes += input.bytes();
            copying.pending.push_back((at, input.clone()));
        }
        let cancelled = run(&mut hosted.shard, at, input);
        let outputs = hosted.shard.take_outputs();
        match &hosted.copying {
            Some(copying) if copying.gates() => {
                let number = copying.inputs;
                hosted.waiting.extend(outputs.into_iter().map(|output| (number, output)));
            }
            _ => self.emit(id, outputs),
        }
        cancelled
    }

    /// Runs an input of the own shard, without copies.
    fn input_of_own(&mut self, input: impl FnOnce(&mut Shard)) {
        if let Some(own) = self.shards.get_mut(&self.me) {
            input(&mut own.shard);
            let outputs = own.shard.take_outputs();
            self.emit(self.me, outputs);
        }
    }

    fn emit(&mut self, id: MemberId, outputs: Vec<Output>) {
        let own = id == self.me;
        let goes_out = |output: &Output| own || matches!(output, Output::Send { .. } | Output::Leave { .. });
        self.outputs.extend(outputs.into_iter().filter(goes_out).map(|output| (id, output)));
    }

    /// Takes a frame of a copy: a part or an input for a copy here, or an answer.
    fn receive_copy(&mut self, now: Time, from: MemberId, (of, began): (MemberId, Begin), frame: Frame) {
        let resend = self.attributes.resend;
        if let Some(hosted) = self.shards.get_mut(&of) {
            if let Some(copying) = &mut hosted.copying
                && (copying.to, copying.began) == (from, began)
            {
                copying.progress = now;
                copying.channel.answered(now, frame.seen, resend);
            }
            return;
        }
        if from != of || frame.to != self.me || !self.view.members.contains(&of) {
            return;
        }
        let fresh =
            || Copy { began, channel: Channel::default(), parts: Vec::new(), shard: None, at: 0, inputs: 0 };
        let copy = self.copies.entry(of).or_insert_with(fresh);
        if copy.began < began {
            *copy = fresh();
        }
        if copy.began > began {
            return;
        }
        if let Some(message) = frame.message
            && copy.channel.takes(frame.number)
        {
            match message {
                Message::CopyPart { at, bytes, last } if copy.shard.is_none() => {
                    copy.parts.extend(bytes);
                    if last {
                        copy.shard = decode(&std::mem::take(&mut copy.parts), of, &self.attributes);
                        copy.at = at;
                        if copy.shard.is_none() {
                            // Without an answer, another member gets the copy.
                            self.copies.remove(&of);
                            return;
                        }
                    }
                }
                Message::CopyInputs { inputs } => {
                    for (at, input) in inputs {
                        let Some(shard) = &mut copy.shard else { break };
                        (copy.at, copy.inputs) = (at, copy.inputs + 1);
                        run(shard, at, input);
                        // The peers have them from the member itself, or get them again.
                        drop(shard.take_outputs());
                    }
                }
                _ => {}
            }
        }
        let frame = Frame { copy: Some((of, began)), ..Frame::new(self.object, of, self.view.epoch, 0) };
        let mut frames = Vec::new();
        copy.channel.frames(now, resend, &frame, &mut frames);
        self.send(self.me, frames);
    }

    /// The shards that run here: for the simulator.
    #[cfg(test)]
    pub(super) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.values().map(|hosted| &hosted.shard)
    }

    #[cfg(test)]
    pub(super) fn shard_of(&self, member: MemberId) -> Option<&Shard> {
        self.shards.get(&member).map(|hosted| &hosted.shard)
    }

    #[cfg(test)]
    pub(super) fn copy_of(&self, member: MemberId) -> Option<&Shard> {
        self.copies.get(&member).and_then(|copy| copy.shard.as_ref())
    }

    /// The elements in results that wait: with an heir, those of which its copy has taken the inputs.
    #[cfg(test)]
    pub(super) fn waiting_results(&self, heir: Option<&Host>) -> Vec<&Element> {
        let taken = |heir: &Host| heir.copies.get(&self.me).map_or(0, |copy| copy.inputs);
        let inputs = heir.map_or(u64::MAX, taken);
        let waiting = self.shards[&self.me].waiting.iter().take_while(|(number, _)| *number <= inputs);
        let element = |output| match output {
            &Output::Completed { result: Completion::Got(ref element), .. } => Some(element),
            _ => None,
        };
        waiting.filter_map(|(_, output)| element(output)).collect()
    }

    #[cfg(test)]
    pub(super) fn is_quiet(&self) -> bool {
        let quiet = |hosted: &Hosted| hosted.copying.as_ref().is_none_or(|it| it.channel.is_quiet());
        self.shards.values().all(|hosted| hosted.shard.is_quiet() && quiet(hosted))
    }

    fn send(&mut self, from: MemberId, frames: Vec<Frame>) {
        self.copy_frames += frames.len() as u64;
        let sends = frames.iter().map(|frame| Output::Send { to: frame.to, frame: frame.encode() });
        self.outputs.extend(sends.map(|send| (from, send)));
    }

    /// Begins copies, lets outputs go that wait no more, and sends.
    fn advance(&mut self, now: Time) {
        if !self.attributes.replicated {
            return;
        }
        for id in self.shards.keys().copied().collect::<Vec<_>>() {
            self.begin_copy(id, now);
            self.go_on_copying(id, now);
        }
    }

    /// Begins a copy of a shard that has none: at the member before it in the order of joins, or after
    /// hopeless attempts at others.
    fn begin_copy(&mut self, id: MemberId, now: Time) {
        let Some(hosted) = self.shards.get_mut(&id) else { return };
        let resend = self.attributes.resend;
        if hosted.copying.take_if(|copying| copying.is_stuck(now, resend)).is_some() {
            // The group was not asked for an heir.
            let waited = hosted.waiting.drain(..).map(|(_, output)| output).collect();
            self.emit(id, waited);
        }
        let Some(hosted) = self.shards.get_mut(&id) else { return };
        let serves = matches!(hosted.shard.phase, Phase::Ready | Phase::Draining);
        if !serves || hosted.copying.is_some() {
            return;
        }
        let members = &self.view.members;
        let place = members.iter().position(|member| *member == id).unwrap_or(0);
        let before = members[..place].iter().rev().chain(members[place..].iter().rev());
        let may = |member: &&MemberId| **member != id && self.backups.contains(member);
        let places: Vec<MemberId> = before.filter(may).copied().collect();
        let Some(to) = places.get(hosted.attempts as usize % places.len().max(1)).copied() else { return };
        let (mut channel, at) = (Channel::default(), hosted.clock(now));
        // Only a sequence of unknown length has no encoding, and a shard has no such sequence.
        let books = postcard::to_allocvec(&hosted.shard).unwrap_or_default();
        let parts = books.len().div_ceil(PART_BYTES);
        for (index, part) in books.chunks(PART_BYTES).enumerate() {
            let last = index + 1 == parts;
            channel.push(Message::CopyPart { at, bytes: part.to_vec(), last });
        }
        hosted.copying = Some(Copying {
            to,
            began: (self.view.epoch, hosted.attempts),
            channel,
            progress: now,
            pending: VecDeque::new(),
            pending_bytes: 0,
            inputs: 0,
            sent: 0,
            taken: 0,
            stage: Stage::Filling,
        });
        hosted.attempts += 1;
    }

    fn go_on_copying(&mut self, id: MemberId, now: Time) {
        let Some(hosted) = self.shards.get_mut(&id) else { return };
        let (mut outputs, mut frames) = (Vec::new(), Vec::new());
        let mut until = u64::MAX;
        if let Some(copying) = &mut hosted.copying {
            if copying.stage == Stage::Filling && copying.channel.is_quiet() {
                copying.stage = Stage::Closing(copying.inputs);
            }
            copying.go_on();
            let all = |first| copying.taken >= first || Guard::HeirLast.is_removed();
            if matches!(copying.stage, Stage::Closing(first) if all(first)) {
                copying.stage = Stage::Asked;
                outputs.push((id, Output::Heir(copying.to)));
            }
            let copy = Some((id, copying.began));
            let frame = Frame { copy, ..Frame::new(self.object, copying.to, self.view.epoch, 0) };
            copying.channel.frames(now, self.attributes.resend, &frame, &mut frames);
            until = copying.taken;
        }
        let goes = hosted.waiting.iter().take_while(|(number, _)| *number <= until).count();
        let waited: Vec<Output> = hosted.waiting.drain(..goes).map(|(_, output)| output).collect();
        self.emit(id, waited);
        self.outputs.extend(outputs);
        self.send(id, frames);
    }
}

/// Runs an input. Returns whether it cancelled an operation.
fn run(shard: &mut Shard, at: Time, input: Input) -> bool {
    match input {
        Input::Command { op, command } => shard.command(at, op, command),
        Input::Cancel { op } => return shard.cancel(op),
        Input::Receive { from, bytes } => shard.receive(at, from, &bytes),
        Input::Install { view } => shard.install(at, &view),
        Input::Locality { from, to, distance } => shard.set_locality(at, from, to, distance),
        Input::Idle => shard.idle(at),
        Input::Tick => shard.tick(at),
    }
    false
}

/// Returns the shard of a copy.
fn decode(bytes: &[u8], of: MemberId, attributes: &Attributes) -> Option<Shard> {
    let mut shard: Shard = postcard::from_bytes(bytes).ok()?;
    shard.attributes = attributes.clone();
    (shard.me == of).then_some(shard)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: MemberId = MemberId(1);
    const OTHER: MemberId = MemberId(2);

    /// Two members of one pool, with copies at each other. Frames wait until they are carried.
    struct Pair([Host; 2]);

    impl Pair {
        fn new() -> Pair {
            let attributes = Attributes { replicated: true, ..Attributes::default() };
            let mut pair = Pair([ME, OTHER].map(|id| Host::new(id, 0, attributes.clone())));
            pair.install(&View::new(1, vec![ME, OTHER]));
            pair
        }

        fn install(&mut self, view: &View) {
            let living = |id: &MemberId| view.members.contains(id) && view.heir_of(*id).is_none();
            for (host, other) in self.0.iter_mut().zip([OTHER, ME]) {
                let backups: Vec<MemberId> = [other].into_iter().filter(living).collect();
                host.install(view.epoch, view, &backups);
            }
        }

        /// Carries frames until both rest. Returns the other outputs.
        fn rest(&mut self) -> Vec<(MemberId, Output)> {
            let mut others = Vec::new();
            for round in 0..100 {
                for (id, output) in self.0[round % 2].take_outputs() {
                    match output {
                        Output::Send { to, frame } => {
                            let to = self.0[0].view.heir_of(to).unwrap_or(to);
                            self.0[usize::from(to == OTHER)].receive(1, id, &frame);
                        }
                        output => others.push((id, output)),
                    }
                }
            }
            others
        }

        /// Makes the members the heirs of each other.
        fn with_heirs() -> Pair {
            let mut pair = Pair::new();
            let asked = pair.rest();
            for heir in [(ME, Output::Heir(OTHER)), (OTHER, Output::Heir(ME))] {
                assert!(asked.contains(&heir), "{asked:?}");
            }
            pair.0[0].note_heir(Some(OTHER));
            assert!(pair.0[0].has_heir() && !pair.0[1].has_heir());
            pair
        }
    }

    fn add(host: &mut Host, op: u64) {
        host.command(1, OpId(op), Command::AddElement(vec![op as u8; 8]));
    }

    fn completed(op: u64, result: Completion) -> (MemberId, Output) {
        (ME, Output::Completed { op: OpId(op), result })
    }

    fn results(outputs: Vec<(MemberId, Output)>) -> Vec<(MemberId, Output)> {
        outputs.into_iter().filter(|(_, output)| matches!(output, Output::Completed { .. })).collect()
    }

    #[test]
    fn a_result_waits_for_the_heir_at_the_cost_of_two_frames() {
        let mut pair = Pair::with_heirs();
        let frames = |pair: &Pair| pair.0.iter().map(|host| host.counts().copy_frames).sum::<u64>();
        let before = frames(&pair);
        add(&mut pair.0[0], 1);
        let outputs = pair.0[0].take_outputs();
        let [(ME, Output::Send { to: OTHER, frame })] = &outputs[..] else { panic!("{outputs:?}") };
        pair.0[1].receive(1, ME, frame);
        assert_eq!(results(pair.rest()), [completed(1, Completion::Added)]);
        assert_eq!(frames(&pair), before + 2);
        assert_eq!(pair.0[1].copy_of(ME).map(Shard::len), Some(1));
    }

    #[test]
    fn an_heir_has_all_that_others_know_and_gives_it_away() {
        let mut pair = Pair::with_heirs();
        (1..4).for_each(|op| add(&mut pair.0[0], op));
        assert_eq!(results(pair.rest()).len(), 3);
        // The fourth input is lost with the member, and its caller knows of no result.
        add(&mut pair.0[0], 4);
        assert_eq!(results(pair.0[0].take_outputs()), []);
        let view = View { inherited: vec![(ME, OTHER)], ..View::new(2, vec![ME, OTHER]) };
        pair.0[1].install(2, &view, &[]);
        assert_eq!(pair.0[1].inherited(), 1);
        pair.0[0].view = view;
        let outputs = pair.rest();
        assert!(outputs.contains(&(ME, Output::Leave { if_epoch: Some(2) })), "{outputs:?}");
        assert_eq!(pair.0[1].own().len(), 3);
        pair.0[1].install(3, &View::new(3, vec![OTHER]), &[]);
        assert_eq!(pair.0[1].inherited(), 0);
    }

    #[test]
    fn a_removed_member_tells_no_result_that_its_heir_may_not_have() {
        let mut pair = Pair::with_heirs();
        add(&mut pair.0[0], 1);
        assert_eq!(results(pair.rest()), [completed(1, Completion::Added)]);
        pair.0[0].command(1, OpId(2), Command::GetElement { size_max: 100 });
        assert_eq!(results(pair.0[0].take_outputs()), []);
        // The heir may have the element, so it is not added again, either.
        assert_eq!(pair.0[0].salvage(), []);
        pair.0[0].install(2, &View::new(2, vec![OTHER]), &[]);
        assert_eq!(results(pair.0[0].take_outputs()), [completed(2, Completion::Closed)]);
    }

    #[test]
    fn results_go_out_once_the_heir_is_dead() {
        let mut pair = Pair::with_heirs();
        add(&mut pair.0[0], 1);
        assert_eq!(results(pair.0[0].take_outputs()), []);
        pair.0[0].install(2, &View::new(2, vec![ME]), &[]);
        assert_eq!(results(pair.0[0].take_outputs()), [completed(1, Completion::Added)]);
        // Without an heir, a removed member adds its elements again.
        assert_eq!(pair.0[0].salvage().len(), 1);
    }

    /// Adds while the first copy is on its way. Returns whether the copy has the element once the shard asks
    /// for an heir.
    fn copy_is_complete_at_the_question() -> bool {
        let mut pair = Pair::new();
        loop {
            let outputs = pair.0[0].take_outputs();
            if outputs.contains(&(ME, Output::Heir(OTHER))) {
                return pair.0[1].copy_of(ME).map(Shard::len) == Some(1);
            }
            for (id, output) in outputs {
                let Output::Send { frame, .. } = output else { continue };
                if pair.0[0].own().is_ready() && pair.0[0].own().is_empty() {
                    add(&mut pair.0[0], 1);
                }
                pair.0[1].receive(1, id, &frame);
            }
            for (id, output) in pair.0[1].take_outputs() {
                if let Output::Send { to: ME, frame } = output {
                    pair.0[0].receive(1, id, &frame);
                }
            }
        }
    }

    #[test]
    fn a_shard_asks_for_an_heir_once_its_copy_is_complete() {
        assert!(copy_is_complete_at_the_question());
        let without = || Guard::without(Some(Guard::HeirLast), copy_is_complete_at_the_question);
        assert!(!without(), "the test sees no early question");
    }

    /// The older member has inherited the younger one, and leaves, too. Returns the elements at it, once the
    /// dead member has asked for its end.
    fn two_leavers_at_one_host() -> Option<usize> {
        let mut pair = Pair::with_heirs();
        add(&mut pair.0[0], 1);
        add(&mut pair.0[1], 2);
        pair.rest();
        let view = View { inherited: vec![(OTHER, ME)], ..View::new(2, vec![ME, OTHER]) };
        pair.0[0].command(1, OpId(3), Command::Shutdown);
        pair.0[0].install(2, &view, &[]);
        pair.0[1].view = view;
        let outputs = pair.rest();
        let ends = outputs.contains(&(OTHER, Output::Leave { if_epoch: Some(2) }));
        assert!(!outputs.contains(&(ME, Output::Leave { if_epoch: Some(2) })), "the heir leaves first");
        ends.then(|| pair.0[0].own().len())
    }

    #[test]
    fn an_inherited_member_leaves_before_its_heir() {
        assert_eq!(two_leavers_at_one_host(), Some(2));
        let without = Guard::without(Some(Guard::InheritedGive), two_leavers_at_one_host);
        assert_eq!(without, None, "the test sees no leaver that waits for ever");
    }

    /// A third member, without a host.
    const THIRD: MemberId = MemberId(3);

    #[test]
    fn elements_that_come_back_with_the_death_of_a_member_go_to_no_get_of_it() {
        let mut pair = Pair::with_heirs();
        // A get waits at a member that has accepted an offer.
        let copy = pair.0[1].copies.get_mut(&ME).and_then(|copy| copy.shard.as_mut()).unwrap();
        copy.install(1, &View::new(2, vec![ME, OTHER, THIRD]));
        copy.command(1, OpId(1), Command::GetElement { size_max: 100 });
        let held = crate::protocol::balance::Held { elements: vec![vec![7; 8]], accepted: true };
        copy.held.insert((THIRD, 1), held);
        let view = View { inherited: vec![(ME, OTHER)], ..View::new(3, vec![ME, OTHER]) };
        pair.0[1].install(3, &view, &[]);
        pair.0[0].view = view;
        pair.rest();
        assert_eq!(pair.0[1].own().len(), 1);
    }

    #[test]
    fn a_master_that_stays_as_an_heir_answers_for_marks() {
        let mut pair = Pair::with_heirs();
        for _ in 0..100 {
            pair.0[1].idle(1);
            pair.rest();
        }
        pair.0[0].command(1, OpId(1), Command::Shutdown);
        assert!(pair.rest().contains(&(ME, Output::Leave { if_epoch: Some(1) })));
        // The mark was cleared, so the add asks for it.
        add(&mut pair.0[1], 2);
        assert_eq!(results(pair.rest()), []);
        pair.install(&View { inherited: vec![(THIRD, ME)], ..View::new(2, vec![ME, OTHER, THIRD]) });
        let added = Output::Completed { op: OpId(2), result: Completion::Added };
        assert_eq!(results(pair.rest()), [(OTHER, added)]);
    }

    #[test]
    fn a_member_knows_of_elements_in_results_that_wait() {
        let mut pair = Pair::with_heirs();
        add(&mut pair.0[0], 1);
        pair.rest();
        pair.0[0].command(1, OpId(2), Command::GetElement { size_max: usize::MAX });
        assert!(pair.0[0].holds_element());
        assert_eq!(results(pair.rest()), [completed(2, Completion::Got(vec![1; 8]))]);
        assert!(!pair.0[0].holds_element());
    }

    #[test]
    fn repeated_frames_and_times_are_no_inputs_of_a_copy_that_is_behind() {
        let mut pair = Pair::with_heirs();
        add(&mut pair.0[1], 1);
        pair.rest();
        pair.0[0].command(1, OpId(2), Command::GetElement { size_max: 100 });
        let outputs = pair.0[0].take_outputs();
        let [(ME, Output::Send { frame: copy, .. })] = &outputs[..] else { panic!("{outputs:?}") };
        let inputs = |pair: &Pair| pair.0[0].shards[&ME].copying.as_ref().map(|copying| copying.inputs);
        let before = inputs(&pair);
        (0..200).for_each(|_| pair.0[0].idle(2));
        pair.0[0].tick(u64::MAX / 2);
        assert_eq!(inputs(&pair), before);
        pair.0[1].receive(1, ME, copy);
        let got = completed(2, Completion::Got(vec![1; 8]));
        let mut frames = Vec::new();
        let mut all = Vec::new();
        while results(all.clone()) != [got.clone()] {
            for at in [1, 0] {
                for (id, output) in pair.0[at].take_outputs() {
                    match output {
                        Output::Send { to, frame } => {
                            pair.0[usize::from(to == OTHER)].receive(1, id, &frame);
                            frames.push((id, to, frame));
                        }
                        output => all.push((id, output)),
                    }
                }
            }
        }
        pair.rest();
        let before = inputs(&pair);
        for (from, to, frame) in frames {
            pair.0[usize::from(to == OTHER)].receive(2, from, &frame);
        }
        assert_eq!(inputs(&pair), before);
        assert_eq!(results(pair.rest()), []);
    }

    #[test]
    fn a_member_that_does_not_answer_gets_no_copy() {
        let attributes = Attributes { replicated: true, ..Attributes::default() };
        let mut host = Host::new(ME, 0, attributes.clone());
        host.install(0, &View::new(1, vec![ME, OTHER, THIRD]), &[OTHER, THIRD]);
        let to = |host: &Host| host.shards[&ME].copying.as_ref().map(|copying| copying.to);
        let first = to(&host);
        let patience = attributes.resend * FILL_RESENDS;
        host.tick(patience);
        assert_eq!(to(&host), first);
        host.tick(patience + 1);
        assert!(first.is_some() && to(&host).is_some() && to(&host) != first);
        // Nor does one with too many inputs on their way.
        let second = to(&host);
        for op in 0..20 {
            host.command(patience + 1, OpId(op), Command::AddElement(vec![0; 1 << 20 >> 1]));
            host.command(patience + 1, OpId(op + 100), Command::AddElement(vec![0; 1 << 20 >> 1]));
        }
        assert_eq!(to(&host), first);
        assert_ne!(second, first);
    }

    #[test]
    fn a_broken_copy_is_no_shard() {
        let attributes = Attributes::default();
        let shard = Shard::new(ME, 0, attributes.clone());
        let bytes = postcard::to_allocvec(&shard).unwrap();
        assert!(decode(&bytes, ME, &attributes).is_some());
        assert!(decode(&bytes, OTHER, &attributes).is_none());
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len], ME, &attributes).is_none(), "{len} bytes");
        }
    }
}
