//! The state of a pool's member, under the member's lock: its shard, and the operations of the program.
//!
//! - S1. A shard is used only while the seat serves: it is asked under the lock. Frames that
//!   come without a lease are dropped, and operations wait. A get may be cancelled at any time.
//! - S2. An operation is in `ops` from its begin to its result. If it is in `waiting` too, no shard has it.
//!   If its shard was removed, the end of an add is unknown.
//! - S3. A member that was removed keeps the elements of its store, and adds them to the pool again. All
//!   other elements that it counted are those of other members, or lost on their way to it or from it. It
//!   has copies of its offers. It drops them, since their receivers may have accepted them. If it has asked
//!   for an heir, it adds none: the heir may have them.
//! - S4. A member begins to leave once all elements in results are taken, or back in the pool.

use crate::PoolErrorKind;
use crate::pool::Outcome;
use crate::protocol::{
    Attributes, Command, Completion, Counts, Element, Host, MemberId, OpId, Output, Shard, Time, View,
};
use squall_fleet::__parts::Giver;
use squall_fleet::{MemberNumber, Roster};
use squall_sys::sync::StdArc as Arc;
use squall_sys::sync::atomic::AtomicU64;
use squall_sys::sync::atomic::Ordering::SeqCst;
use std::collections::{BTreeMap, VecDeque};

/// The end of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Left,
    LastLeft {
        lost: u64,
    },
    /// The node has ended.
    Closed,
}

/// The form of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Add,
    Get { size_max: usize },
    Size,
    Shutdown,
}

/// An operation without a result. Without a giver, it is one of the member itself.
pub(crate) struct Op {
    kind: Kind,
    /// The element of an add that no shard has yet.
    element: Option<Element>,
    giver: Option<Giver<Outcome>>,
}

/// The end of an operation.
pub(crate) type Ended = Result<Completion, PoolErrorKind>;

/// Work after the lock.
#[derive(Default)]
pub(crate) struct Deeds {
    /// From a member of this node, to another one.
    pub(crate) frames: Vec<(MemberNumber, MemberNumber, Vec<u8>)>,
    pub(crate) results: Vec<(Giver<Outcome>, Ended)>,
    pub(crate) vacate: Vec<(MemberNumber, Option<u64>)>,
    /// Members of this node, and their heirs.
    pub(crate) heirs: Vec<(MemberNumber, MemberNumber)>,
    pub(crate) wakes: bool,
}

pub(crate) struct State {
    attributes: Attributes,
    /// Elements that were given to callers that have not taken them yet.
    untaken: Arc<AtomicU64>,
    /// The newest roster, perhaps not installed yet.
    roster: Option<Roster>,
    host: Option<(MemberNumber, Host)>,
    ops: BTreeMap<OpId, Op>,
    waiting: VecDeque<OpId>,
    last_op: u64,
    /// The member leaves, or will leave.
    leaves: bool,
    over: Option<Over>,
    /// The numbers of events of earlier shards.
    counts: Counts,
}

impl State {
    pub(crate) fn new(attributes: Attributes, untaken: Arc<AtomicU64>) -> State {
        State {
            attributes,
            untaken,
            roster: None,
            host: None,
            ops: BTreeMap::new(),
            waiting: VecDeque::new(),
            last_op: 0,
            leaves: false,
            over: None,
            counts: Counts::default(),
        }
    }

    pub(crate) fn over(&self) -> Option<Over> {
        self.over
    }

    pub(crate) fn roster(&self) -> Option<&Roster> {
        self.roster.as_ref()
    }

    pub(crate) fn shard(&self) -> Option<&Shard> {
        self.host().map(Host::own)
    }

    pub(crate) fn host(&self) -> Option<&Host> {
        self.host.as_ref().map(|(_, host)| host)
    }

    /// Returns the number under which this member acts.
    pub(crate) fn me(&self) -> Option<MemberNumber> {
        let of_roster = || self.roster.as_ref().map(|roster| roster.me);
        self.host.as_ref().map(|(me, _)| *me).or_else(of_roster)
    }

    /// Returns whether this member takes operations.
    pub(crate) fn is_open(&self) -> bool {
        self.over.is_none() && !self.leaves
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.shard().is_some_and(Shard::is_ready)
    }

    pub(crate) fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Returns the number of operations without a result.
    pub(crate) fn open_operations(&self) -> usize {
        self.ops.len()
    }

    /// Whether operations wait for a lease or a view.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.host().map_or(self.counts, |host| host.counts().plus(self.counts))
    }

    /// Begins an operation. [`advance`](State::advance) gives it to the shard.
    pub(crate) fn begin(
        &mut self,
        kind: Kind,
        element: Option<Element>,
        giver: Option<Giver<Outcome>>,
    ) -> OpId {
        self.last_op += 1;
        let op = OpId(self.last_op);
        self.leaves |= kind == Kind::Shutdown;
        self.ops.insert(op, Op { kind, element, giver });
        self.waiting.push_back(op);
        op
    }

    /// Ends an operation that no shard has, or a get that waits. Returns whether it was one.
    pub(crate) fn withdraw(&mut self, now: Time, op: OpId) -> Option<Op> {
        let place = self.waiting.iter().position(|waiting| *waiting == op);
        let withdrawn = match place {
            Some(place) => self.waiting.remove(place).is_some(),
            None => self.host.as_mut().is_some_and(|(_, host)| host.cancel(now, op)),
        };
        if withdrawn { self.ops.remove(&op) } else { None }
    }

    /// Adds an element that no caller took. It comes before a shutdown that waits (S4).
    pub(crate) fn put_back(&mut self, element: Element) {
        let op = self.begin(Kind::Add, Some(element), None);
        self.waiting.pop_back();
        self.waiting.push_front(op);
    }

    /// Notes a roster with this member.
    pub(crate) fn note_roster(&mut self, roster: &Roster, deeds: &mut Deeds) {
        if self.over.is_some() {
            // It had given all its elements away when the group took the node for dead.
            deeds.vacate.push((roster.me, None));
            return;
        }
        if roster.leaving {
            self.leave();
        }
        self.roster = Some(roster.clone());
    }

    /// Begins to leave, once.
    pub(crate) fn leave(&mut self) {
        if !self.leaves && self.over.is_none() {
            self.begin(Kind::Shutdown, None, None);
        }
    }

    /// Gives the shard the newest view, and all operations that wait for it. Call it while the seat serves.
    pub(crate) fn advance(&mut self, now: Time, deeds: &mut Deeds) {
        if let Some(roster) = &self.roster {
            let (me, attributes) = (roster.me, &self.attributes);
            let fresh = || (me, Host::new(MemberId(me.0), 0, attributes.clone()));
            let (_, host) = self.host.get_or_insert_with(fresh);
            if host.own().epoch() < roster.epoch {
                let (view, backups) = view_of(roster);
                host.install(now, &view, &backups);
            }
            host.note_heir(roster.heir.map(|heir| MemberId(heir.0)));
        }
        while let Some((_, host)) = &self.host
            && let shard = host.own()
            && (shard.is_ready() || (self.leaves && shard.is_over()))
            && let Some(op) = self.waiting.pop_front()
        {
            let is_over = shard.is_over();
            let Some(begun) = self.ops.get_mut(&op) else { continue };
            let command = match begun.kind {
                Kind::Shutdown => {
                    // Elements that the shard has given to callers are counted first (S4).
                    self.collect(deeds);
                    // SeqCst: pairs with the subtraction of an outcome, which puts its element back first.
                    let held = self.host().is_some_and(Host::holds_element);
                    if held || self.untaken.load(SeqCst) > 0 {
                        return self.waiting.push_front(op);
                    }
                    Command::Shutdown
                }
                _ if is_over => {
                    self.end(op, Err(PoolErrorKind::Closed), deeds);
                    continue;
                }
                Kind::Add => Command::AddElement(begun.element.take().unwrap_or_default()),
                Kind::Get { size_max } => Command::GetElement { size_max },
                Kind::Size => Command::Size,
            };
            self.with_host(|host| host.command(now, op, command));
        }
    }

    /// Runs an event of the member.
    pub(crate) fn with_host(&mut self, event: impl FnOnce(&mut Host)) {
        if let Some((_, host)) = &mut self.host {
            event(host);
        }
    }

    /// Collects what the shard has asked for.
    pub(crate) fn collect(&mut self, deeds: &mut Deeds) {
        while let Some(outputs) = self.host.as_mut().map(|(_, host)| host.take_outputs()) {
            if outputs.is_empty() {
                return;
            }
            for (member, output) in outputs {
                let me = MemberNumber(member.0);
                match output {
                    Output::Send { to, frame } => deeds.frames.push((me, MemberNumber(to.0), frame)),
                    Output::Completed { op, result } => self.complete(op, result, deeds),
                    Output::Ready => deeds.wakes = true,
                    Output::Leave { if_epoch } => deeds.vacate.push((me, if_epoch)),
                    Output::Heir(heir) => deeds.heirs.push((me, MemberNumber(heir.0))),
                    Output::Removed => {}
                }
            }
        }
    }

    fn complete(&mut self, op: OpId, result: Completion, deeds: &mut Deeds) {
        let Some(ended) = self.ops.get(&op) else { return };
        match (ended.kind, &result) {
            (Kind::Shutdown, Completion::Left) => self.over = Some(Over::Left),
            (Kind::Shutdown, Completion::LastLeft { lost }) => {
                self.over = Some(Over::LastLeft { lost: *lost })
            }
            // The next shard of this member goes on with it.
            (Kind::Shutdown, _) => return self.waiting.push_back(op),
            (Kind::Get { .. } | Kind::Size, Completion::Closed) if !self.leaves => {
                return self.waiting.push_back(op);
            }
            _ => {}
        }
        let result = match (ended.kind, result) {
            (Kind::Add, Completion::Closed) => Err(PoolErrorKind::Unknown),
            (_, Completion::Closed) => Err(PoolErrorKind::Closed),
            (_, Completion::TooLarge { size }) => Err(PoolErrorKind::TooLarge { bytes: size }),
            (_, result) => Ok(result),
        };
        self.end(op, result, deeds);
    }

    /// Ends an operation.
    fn end(&mut self, op: OpId, result: Ended, deeds: &mut Deeds) {
        if let Some(giver) = self.ops.remove(&op).and_then(|ended| ended.giver) {
            if let Ok(Completion::Got(_)) = result {
                // SeqCst: pairs with the load in `advance`, which runs under the same lock (S4).
                self.untaken.fetch_add(1, SeqCst);
            }
            deeds.results.push((giver, result));
        }
    }

    /// Notes that this member has left, as its shard has asked for.
    pub(crate) fn vacated(&mut self, now: Time, deeds: &mut Deeds) {
        self.end_shard(now, deeds);
        self.over.get_or_insert(Over::Left);
        self.close(deeds);
    }

    /// Notes that the group took the node for dead (S3).
    pub(crate) fn removed(&mut self, now: Time, deeds: &mut Deeds) {
        let elements = self.host.as_mut().map(|(_, host)| host.salvage()).unwrap_or_default();
        self.end_shard(now, deeds);
        if matches!(self.over, Some(Over::LastLeft { .. })) {
            // The group has not heard of its wish, or another member has joined.
            (self.over, self.leaves) = (None, false);
            self.leave();
        }
        // Before other operations, so that a shutdown comes after them.
        for (op, element) in elements {
            let ended = op.and_then(|op| self.ops.remove(&op).map(|ended| (op, ended)));
            let (op, mut again) = ended.unwrap_or_else(|| {
                self.last_op += 1;
                (OpId(self.last_op), Op { kind: Kind::Add, element: None, giver: None })
            });
            again.element = Some(element);
            self.ops.insert(op, again);
            self.waiting.push_front(op);
        }
        if self.over.is_some() {
            self.close(deeds);
        }
    }

    fn end_shard(&mut self, now: Time, deeds: &mut Deeds) {
        let epoch = self.roster.take().map_or(0, |roster| roster.epoch);
        if let Some((_, host)) = &mut self.host {
            host.install(now, &View::new(epoch.max(host.own().epoch()) + 1, Vec::new()), &[]);
        }
        self.collect(deeds);
        if let Some((_, host)) = self.host.take() {
            self.counts = self.counts.plus(host.counts());
        }
    }

    /// Ends all operations: the member serves no more.
    pub(crate) fn close(&mut self, deeds: &mut Deeds) {
        self.over.get_or_insert(Over::Closed);
        self.waiting.clear();
        self.host = None;
        let ops: Vec<OpId> = self.ops.keys().copied().collect();
        for op in ops {
            let begun = self.ops.get(&op).is_some_and(|it| it.kind == Kind::Add && it.element.is_none());
            let kind = if begun { PoolErrorKind::Unknown } else { PoolErrorKind::Closed };
            self.end(op, Err(kind), deeds);
        }
        deeds.wakes = true;
    }
}

/// Returns the view of a roster, and the members at other nodes that may have copies.
fn view_of(roster: &Roster) -> (View, Vec<MemberId>) {
    let id = |number: &MemberNumber| MemberId(number.0);
    let mut view = View::new(roster.epoch, roster.members.iter().map(|(number, _)| id(number)).collect());
    view.inherited = roster.inherited.iter().map(|(dead, heir)| (id(dead), id(heir))).collect();
    let mine = roster.members.iter().find(|(number, _)| *number == roster.me).map(|(_, node)| *node);
    let is_inherited = |number| roster.inherited.iter().any(|(dead, _)| *dead == number);
    let others = roster.members.iter().filter(|(number, node)| Some(*node) != mine && !is_inherited(*number));
    (view, others.map(|(number, _)| id(number)).collect())
}
