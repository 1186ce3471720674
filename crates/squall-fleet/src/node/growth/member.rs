//! A member's part in the size of its fleet, without threads, clocks or calls.
//!
//! Problem: the member that decides may die between any two calls. The next one then needs the last size, or
//! it replaces members that leave.
//! Idea: each change of the wanted size has a number. All requests and answers carry the size with its
//! number, and each member keeps the one with the highest number.
//!
//! - I1. A member that was asked to leave knows a size without it, and tells each that asks.
//!   A member that counts again, since it has not left in time, is asked no more.
//! - I2. A member that decides and resigns leaves once the next one to decide knows the size without it.
//! - I3. A member that knows no size decides only once it is alone, or once another one has answered.
//! - I4. A member that decides tells the others of a start before it starts a member (`decide`/I7).
//!
//! Cost: a decision takes time in proportion to the members.
//! Source: Wentzlaff 2012, §3.2.4 and §3.5.1 (FO-13).

use super::decide::{Size, Sizer, Step};
use super::{GrowthDecision, GrowthOptions, NodeLoad};
use crate::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Whether a member leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Leaves {
    No,
    /// By its own decision, and the member that decides does not know it yet.
    Resigns,
    /// The member that decides knows it.
    Known,
}

/// The answer of a member to the one that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) load: NodeLoad,
    /// The wanted size that it knows.
    pub(super) size: Size,
    pub(super) leaves: Leaves,
}

/// The answers of the other members; a member that has not answered has `None`.
pub(super) type Answers = BTreeMap<NodeId, Option<Answer>>;

/// The state of a member.
#[derive(Debug)]
pub(super) struct Member {
    sizer: Sizer,
    leaves: Leaves,
    is_asked: bool,
    /// Members to ask to leave. They do not count.
    to_ask: BTreeSet<NodeId>,
}

impl Member {
    pub(super) fn new(options: GrowthOptions) -> Member {
        Member { sizer: Sizer::new(options), leaves: Leaves::No, is_asked: false, to_ask: BTreeSet::new() }
    }

    /// Returns the size that is wanted, once it is known.
    pub(super) fn wanted(&self) -> Option<u32> {
        self.sizer.size().wanted()
    }

    /// Returns whether this member has seen the members, so that it knows those that come.
    pub(super) fn is_ready(&self) -> bool {
        self.sizer.is_ready()
    }

    /// Returns whether this member was asked to leave.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Notes that this member leaves by its own decision.
    pub(super) fn resign(&mut self) {
        if self.leaves == Leaves::No {
            self.leaves = Leaves::Resigns;
        }
    }

    /// Returns whether this member may leave without being replaced.
    pub(super) fn may_leave(&self) -> bool {
        self.leaves == Leaves::Known
    }

    /// Answers the member that decides, `from`.
    pub(super) fn answer(&mut self, now: Duration, from: NodeId, size: Size, load: NodeLoad) -> Answer {
        self.sizer.follow(now, size);
        Answer { load, size: self.sizer.known(from), leaves: self.leaves }
    }

    /// Notes that the member that decides asks this one to leave, for a size without it (I1).
    pub(super) fn ask_to_leave(&mut self, now: Duration, size: Size) {
        self.sizer.follow(now, size);
        (self.is_asked, self.leaves) = (true, Leaves::Known);
    }

    /// Notes that another member decides, and the members.
    pub(super) fn pass_on(&mut self, now: Duration, members: BTreeSet<NodeId>) {
        self.to_ask.clear();
        self.sizer.pass_on(now, members);
    }

    /// Begins a decision of this member. Returns the size to tell the others.
    pub(super) fn begin(&mut self, now: Duration, me: NodeId, members: BTreeSet<NodeId>) -> Size {
        if self.leaves == Leaves::Resigns {
            self.sizer.resigned(now, me);
        }
        self.sizer.begin(now, members)
    }

    fn note_leaves(&mut self, now: Duration, node: NodeId, leaves: Leaves) {
        match leaves {
            Leaves::No => {}
            Leaves::Resigns => {
                self.sizer.resigned(now, node);
                // The request tells it that it may leave.
                self.to_ask.insert(node);
            }
            Leaves::Known => self.sizer.leaves(now, node),
        }
    }

    /// Returns the size to tell the others before a start (I4).
    pub(super) fn size(&self) -> Size {
        self.sizer.size()
    }

    /// Notes the answer of a member that was told of a start.
    pub(super) fn hear(&mut self, now: Duration, node: NodeId, answer: Answer) {
        self.sizer.follow(now, answer.size);
        self.note_leaves(now, node, answer.leaves);
    }

    /// Returns whether a start happens that the others were told of with this size. Else the start is
    /// withdrawn (`decide`/I8).
    pub(super) fn confirm_start(
        &mut self,
        now: Duration,
        me: NodeId,
        members: BTreeSet<NodeId>,
        told: Size,
    ) -> bool {
        let decides = members.first() == Some(&me) && told == self.sizer.size();
        self.sizer.confirm_start(now, members, decides)
    }

    /// Withdraws a start that the others were told of.
    pub(super) fn withdraw_start(&mut self) {
        self.sizer.withdraw_start();
    }

    /// Decides by the answers of the others, which were told a size. Returns the next step, and the decision
    /// if there is something new to record.
    pub(super) fn decide(
        &mut self,
        now: Duration,
        me: NodeId,
        load: NodeLoad,
        told: Size,
        answers: &Answers,
    ) -> (Step, Option<GrowthDecision>) {
        for answer in answers.values().flatten() {
            self.sizer.follow(now, answer.size);
        }
        if self.sizer.size().wanted().is_none()
            && !answers.is_empty()
            && answers.values().all(Option::is_none)
        {
            // The others may know the size (I3).
            return (Step::Keep, None);
        }
        // Those that know a later size have not taken the one that they were told.
        let is_told = told == self.sizer.size();
        for (node, answer) in answers {
            if let Some(answer) = answer {
                self.note_leaves(now, *node, answer.leaves);
            }
        }
        let mut loads: BTreeMap<_, _> =
            answers.iter().map(|(node, answer)| (*node, answer.map(|answer| answer.load))).collect();
        loads.insert(me, Some(load));
        let (step, decision) = self.sizer.look(now, me, &loads);
        // The next one to decide has the lowest number (I2).
        let is_known = match answers.first_key_value() {
            Some((_, answer)) => answer.is_some() && is_told && told.wanted().is_some(),
            None => true,
        };
        if self.leaves == Leaves::Resigns && is_known {
            self.leaves = Leaves::Known;
        }
        if let Step::AskToLeave(node) = step {
            self.to_ask.insert(node);
        }
        self.to_ask.retain(|node| self.sizer.is_leaving(*node));
        (step, decision)
    }

    /// Returns the members to ask to leave, and the size without them.
    pub(super) fn to_ask(&self) -> (BTreeSet<NodeId>, Size) {
        (self.to_ask.clone(), self.sizer.size())
    }

    /// Notes that a member answered the request to leave, or is gone.
    pub(super) fn was_asked(&mut self, node: NodeId) {
        self.to_ask.remove(&node);
    }

    /// Notes that a start failed at once.
    pub(super) fn start_failed(&mut self, now: Duration) {
        self.sizer.start_failed(now);
    }
}
