//! The state of a pool's member, under the member's lock: its shard, and the operations of the program.
//!
//! - S1. A shard is used only while the seat serves: it is asked under the lock. Frames that
//!   come without a lease are dropped, and operations wait.
//! - S2. An operation is in `ops` from its begin to its result. If it is in `waiting` too, no shard has it.
//!   If its shard was removed, the end of an add is unknown.
//! - S3. A member that was removed keeps the elements of its store, and adds them to the pool again. All
//!   other elements that it counted are those of other members, or lost on their way to it.
//! - S4. A member begins to leave once all elements that it gave to callers are taken, or back in the pool.

use crate::PoolErrorKind;
use crate::pool::Outcome;
use crate::protocol::{
    Attributes, Command, Completion, Counts, Element, MemberId, OpId, Output, Shard, Time, View,
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
    pub(crate) vacate: Option<(MemberNumber, Option<u64>)>,
    pub(crate) wakes: bool,
}

pub(crate) struct State {
    attributes: Attributes,
    /// Elements that were given to callers that have not taken them yet.
    untaken: Arc<AtomicU64>,
    /// The newest roster, perhaps not installed yet.
    roster: Option<Roster>,
    shard: Option<(MemberNumber, Shard)>,
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
            shard: None,
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
        self.shard.as_ref().map(|(_, shard)| shard)
    }

    /// Returns the number under which this member acts.
    pub(crate) fn me(&self) -> Option<MemberNumber> {
        let of_roster = || self.roster.as_ref().map(|roster| roster.me);
        self.shard.as_ref().map(|(me, _)| *me).or_else(of_roster)
    }

    /// Returns whether this member takes operations.
    pub(crate) fn is_open(&self) -> bool {
        self.over.is_none() && !self.leaves
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.shard().is_some_and(Shard::is_ready)
    }

    /// Whether operations wait for a lease or a view.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.shard().map_or(self.counts, |shard| shard.counts().plus(self.counts))
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
    pub(crate) fn withdraw(&mut self, op: OpId) -> Option<Op> {
        let place = self.waiting.iter().position(|waiting| *waiting == op);
        let withdrawn = match place {
            Some(place) => self.waiting.remove(place).is_some(),
            None => self.shard.as_mut().is_some_and(|(_, shard)| shard.cancel(op)),
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
            deeds.vacate = Some((roster.me, None));
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
            let fresh = || (me, Shard::new(MemberId(me.0), 0, attributes.clone()));
            let (_, shard) = self.shard.get_or_insert_with(fresh);
            if shard.epoch() < roster.epoch {
                let members = roster.members.iter().map(|(number, _)| MemberId(number.0)).collect();
                shard.install(now, &View { epoch: roster.epoch, members });
            }
        }
        while let Some((_, shard)) = &mut self.shard
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
                    if self.untaken.load(SeqCst) > 0 {
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
            self.with_shard(|shard| shard.command(now, op, command));
        }
    }

    /// Runs an event of the shard.
    pub(crate) fn with_shard(&mut self, event: impl FnOnce(&mut Shard)) {
        if let Some((_, shard)) = &mut self.shard {
            event(shard);
        }
    }

    /// Collects what the shard has asked for.
    pub(crate) fn collect(&mut self, deeds: &mut Deeds) {
        while let Some((me, outputs)) = self.shard.as_mut().map(|(me, shard)| (*me, shard.take_outputs())) {
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    Output::Send { to, frame } => deeds.frames.push((me, MemberNumber(to.0), frame)),
                    Output::Completed { op, result } => self.complete(op, result, deeds),
                    Output::Ready => deeds.wakes = true,
                    Output::Leave { if_epoch } => deeds.vacate = Some((me, if_epoch)),
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
        let elements = self.shard.as_mut().map(|(_, shard)| shard.salvage()).unwrap_or_default();
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
        if let Some((_, shard)) = &mut self.shard {
            shard.install(now, &View { epoch: epoch.max(shard.epoch()) + 1, members: Vec::new() });
        }
        self.collect(deeds);
        if let Some((_, shard)) = self.shard.take() {
            self.counts = self.counts.plus(shard.counts());
        }
    }

    /// Ends all operations: the member serves no more.
    pub(crate) fn close(&mut self, deeds: &mut Deeds) {
        self.over.get_or_insert(Over::Closed);
        self.waiting.clear();
        self.shard = None;
        let ops: Vec<OpId> = self.ops.keys().copied().collect();
        for op in ops {
            let begun = self.ops.get(&op).is_some_and(|it| it.kind == Kind::Add && it.element.is_none());
            let kind = if begun { PoolErrorKind::Unknown } else { PoolErrorKind::Closed };
            self.end(op, Err(kind), deeds);
        }
        deeds.wakes = true;
    }
}
