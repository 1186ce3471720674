//! Decisions about the size of a fleet, without threads, clocks or calls.
//!
//! Problem: a fleet that follows each change of its load starts and ends members without need. One that keeps
//! its size while a member starts or dies must not start a second one for it.
//! Idea: the size that is *wanted* changes by one, after several equal looks and a pause. The fleet starts a
//! member while it has fewer than wanted. So a grown load and a death lead to the same step.
//!
//! - I1. The wanted size lies between the bounds.
//! - I2. One member starts at a time. The next one starts once it has come. A start that fails, or brings no
//!   member in time, is repeated after a pause that doubles.
//! - I3. By its load the fleet shrinks only if the rest stays below the limits by half. So a shrink alone
//!   never makes it grow.
//! - I4. Two changes by load are at least a pause apart. A change back within four pauses doubles the pause,
//!   up to 32 fold.
//! - I5. A member that is asked to leave does not count. If it stays, it counts again after a time. Until
//!   then the load changes no size, since it is that of more members than stay.
//! - I6. A member of a start that counted as lost makes no fleet larger than wanted, if it comes within 32
//!   start limits. A member is then asked to leave for it.
//! - I7. The size tells of the started members that may still come. Each member of the fleet takes those that
//!   come off by itself. So a member that takes over waits for them, or counts them as lost (I2, I6).
//! - I8. A start that the others were told of happens only if this member still decides, knows no later size,
//!   and a member is still missing. Its time begins there.
//!
//! Cost: a look takes time in proportion to the members.
//! Source: Wentzlaff 2012, §3.2.4 and §3.5.1 (FO-13). The hysteresis is that of `squall-adapt`.

use super::{GrowthAction, GrowthDecision, GrowthOptions, GrowthReason, NodeLoad};
use crate::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The most doublings of a pause.
const DOUBLINGS_MAX: u32 = 5;
/// Pauses after which a change counts as steady.
const STEADY: u32 = 4;
/// Start limits within which the member of a lost start may still come (I6).
const LATE: u32 = 32;

/// A wanted size. Of two, the one with the later change is the greater one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Size {
    /// The number of the change. Zero: the size is not known.
    pub(super) change: u64,
    pub(super) wanted: u32,
    /// Started members that may still come (I7).
    pub(super) coming: u32,
}

impl Size {
    /// Returns the size that is wanted, once it is known.
    pub(super) fn wanted(self) -> Option<u32> {
        (self.change > 0).then_some(self.wanted)
    }
}

/// The next step of the member that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Keep,
    Start,
    AskToLeave(NodeId),
}

/// The sum of the loads of the members between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    calls_per_second: u64,
    waiting: u64,
    refused: u64,
}

/// The starts of members (I2).
#[derive(Debug, Default)]
struct Starts {
    /// The time until which no further start happens.
    after: Option<Duration>,
    /// A started member may still come.
    is_pending: bool,
    /// The others are told of the pending start, and it has not happened yet.
    is_announced: bool,
    /// Starts in a row that failed or were lost.
    failures: u32,
    /// Times until which the members of lost starts may still come (I6).
    lost: VecDeque<Duration>,
    /// Members of lost starts that came, if the fleet is larger than wanted.
    late: u32,
    /// The members at the last look, with those that leave.
    seen: Option<BTreeSet<NodeId>>,
}

impl Starts {
    /// Notes the members. A new one ends the pending start, or else counts as that of a lost one.
    fn see(&mut self, now: Duration, members: BTreeSet<NodeId>) {
        self.lost.retain(|until| now < *until);
        let new = members.iter().filter(|node| self.is_new(**node)).count();
        self.seen = Some(members);
        for _ in 0..new {
            // A start that has not happened yet brings no member.
            if self.is_pending && !self.is_announced {
                self.end();
            } else if self.lost.pop_front().is_some() {
                self.late += 1;
            }
        }
    }

    /// Returns whether a member was missing at the last look.
    fn is_new(&self, node: NodeId) -> bool {
        self.seen.as_ref().is_some_and(|seen| !seen.contains(&node))
    }

    /// The started members that may still come.
    fn coming(&self) -> u32 {
        u32::try_from(self.lost.len()).unwrap_or(u32::MAX).saturating_add(u32::from(self.is_pending))
    }

    /// Takes so many started members of another member over: one is pending, and the others are lost (I7).
    fn take_over(&mut self, coming: u32, pending: Duration, lost: Duration) {
        let is_pending = coming > 0;
        *self = Starts {
            after: is_pending.then_some(pending),
            is_pending,
            lost: (1..coming).map(|_| lost).collect(),
            seen: self.seen.take(),
            ..Starts::default()
        };
    }

    /// Counts the pending start as lost. Its member may come until a time.
    fn lose(&mut self, until: Duration) {
        if self.is_pending {
            self.is_pending = false;
            self.failures += 1;
            self.lost.push_back(until);
        }
    }

    /// Ends the pending start, and the row of failures.
    fn end(&mut self) {
        self.withdraw();
        self.failures = 0;
    }

    /// Forgets the pending start.
    fn withdraw(&mut self) {
        (self.after, self.is_pending, self.is_announced) = (None, false, false);
    }
}

/// The state of the decisions.
#[derive(Debug)]
pub(super) struct Sizer {
    options: GrowthOptions,
    /// The size that is wanted (I1).
    size: Size,
    last: BTreeMap<NodeId, NodeLoad>,
    last_at: Option<Duration>,
    /// Looks in a row with a high load, and with a low one.
    high: u32,
    low: u32,
    /// The last change by load, and whether the fleet grew (I4).
    changed: Option<(Duration, bool)>,
    doublings: u32,
    starts: Starts,
    /// Members that were asked to leave or said so, and the time at which they count again (I5).
    leaving: BTreeMap<NodeId, Duration>,
    /// Members that stayed for that time, so that they count.
    stayed: BTreeSet<NodeId>,
    /// The last reason to keep the size, so that it is recorded once.
    held: Option<GrowthReason>,
}

impl Sizer {
    pub(super) fn new(options: GrowthOptions) -> Sizer {
        Sizer {
            options,
            size: Size::default(),
            last: BTreeMap::new(),
            last_at: None,
            high: 0,
            low: 0,
            changed: None,
            doublings: 0,
            starts: Starts::default(),
            leaving: BTreeMap::new(),
            stayed: BTreeSet::new(),
            held: None,
        }
    }

    /// Returns the wanted size with the number of its change.
    pub(super) fn size(&self) -> Size {
        self.size
    }

    /// Returns the size to answer `from` with: without the started members that have come since. `from` may
    /// have come, although the directory of this member does not tell so yet.
    pub(super) fn known(&self, from: NodeId) -> Size {
        let coming = self.size.coming.min(self.starts.coming());
        let coming = coming.saturating_sub(u32::from(self.starts.is_new(from)));
        Size { coming, ..self.size }
    }

    /// Takes the size of another member if it is a later one. Then another member decides, or has decided,
    /// so this one begins afresh. The starts go on if this member knows of as many.
    pub(super) fn follow(&mut self, now: Duration, size: Size) {
        // A member has one pending start, and loses at most one in each start limit.
        let size = Size { wanted: self.bound(size.wanted), coming: size.coming.min(LATE + 1), ..size };
        if size.change > 0 && size > self.size {
            let mut starts = std::mem::take(&mut self.starts);
            if starts.is_announced {
                // The other member decides whether it starts one.
                starts.withdraw();
            }
            if starts.coming() != size.coming {
                starts.take_over(size.coming, now.saturating_add(self.options.start_limit), self.late(now));
            }
            *self = Sizer { size, starts, ..Sizer::new(self.options) };
        }
    }

    /// Notes that another member decides, and the members. A start goes on until its member comes.
    pub(super) fn pass_on(&mut self, now: Duration, members: BTreeSet<NodeId>) {
        let mut starts = std::mem::take(&mut self.starts);
        let fits = u32::try_from(members.len()).is_ok_and(|members| members <= self.size.wanted);
        starts.see(now, members);
        if fits {
            starts.late = 0;
        }
        *self = Sizer { size: self.size, starts, ..Sizer::new(self.options) };
    }

    /// Returns whether the members were seen once.
    pub(super) fn is_ready(&self) -> bool {
        self.starts.seen.is_some()
    }

    /// Notes the members before a decision. Returns the size to tell them.
    pub(super) fn begin(&mut self, now: Duration, members: BTreeSet<NodeId>) -> Size {
        self.starts.see(now, members);
        self.count_starts();
        self.size
    }

    /// Notes the started members that may still come in the size (I7).
    fn count_starts(&mut self) {
        let coming = self.starts.coming();
        if self.size.change > 0 && self.size.coming != coming {
            self.size = Size { change: self.size.change.saturating_add(1), coming, ..self.size };
        }
    }

    /// The time until which the member of a lost start may come.
    fn late(&self, now: Duration) -> Duration {
        now.saturating_add(self.options.start_limit.saturating_mul(LATE))
    }

    /// Changes the wanted size.
    fn want(&mut self, wanted: u32) {
        let wanted = self.bound(wanted);
        if self.size.wanted() != Some(wanted) {
            self.size = Size { change: self.size.change.saturating_add(1), wanted, ..self.size };
        }
    }

    /// Wants one member fewer, if the size is known.
    fn want_fewer(&mut self) {
        if let Some(wanted) = self.size.wanted() {
            self.want(wanted.saturating_sub(1));
        }
    }

    /// Notes that a member leaves. The wanted size is already without it.
    pub(super) fn leaves(&mut self, now: Duration, node: NodeId) {
        if !self.stayed.contains(&node) {
            self.leaving.entry(node).or_insert(now.saturating_add(self.options.start_limit));
        }
    }

    /// Notes that a member leaves by its own decision. It is not replaced.
    pub(super) fn resigned(&mut self, now: Duration, node: NodeId) {
        if self.leaving.insert(node, now.saturating_add(self.options.start_limit)).is_none() {
            self.want_fewer();
        }
    }

    /// Returns whether a member does not count, since it leaves (I5).
    pub(super) fn is_leaving(&self, node: NodeId) -> bool {
        self.leaving.contains_key(&node)
    }

    /// Looks at the members again, once the others know of the start. Returns whether it happens now. Else it
    /// is withdrawn (I8).
    pub(super) fn confirm_start(&mut self, now: Duration, members: BTreeSet<NodeId>, decides: bool) -> bool {
        let stay = members.iter().filter(|node| !self.leaving.contains_key(node)).count();
        let lacks = u32::try_from(stay).is_ok_and(|stay| stay < self.size.wanted);
        self.starts.see(now, members);
        let starts = self.starts.is_announced && decides && lacks;
        if starts {
            self.starts.is_announced = false;
            // The others were told meanwhile.
            self.starts.after = Some(self.start_until(now));
            self.count_starts();
        } else {
            self.withdraw_start();
        }
        starts
    }

    /// Withdraws the start that the others were told of.
    pub(super) fn withdraw_start(&mut self) {
        if self.starts.is_announced {
            self.starts.withdraw();
        }
        self.count_starts();
    }

    /// Notes that a start failed at once.
    pub(super) fn start_failed(&mut self, now: Duration) {
        self.starts.failures += 1;
        self.starts.is_pending = false;
        self.starts.after = Some(now.saturating_add(self.pause(self.starts.failures)));
    }

    fn bound(&self, size: u32) -> u32 {
        size.clamp(self.options.members_min, self.options.members_max)
    }

    fn pause(&self, doublings: u32) -> Duration {
        self.options.pause.saturating_mul(2_u32.pow(doublings.min(DOUBLINGS_MAX)))
    }

    /// Looks at the members and their loads; a member that has not answered has no load. Returns the next
    /// step, and the decision if there is something new to record.
    pub(super) fn look(
        &mut self,
        now: Duration,
        me: NodeId,
        loads: &BTreeMap<NodeId, Option<NodeLoad>>,
    ) -> (Step, Option<GrowthDecision>) {
        let late = self.leaving.iter().filter(|(_, until)| now >= **until).map(|(node, _)| *node);
        self.stayed.extend(late);
        self.stayed.retain(|node| loads.contains_key(node));
        self.leaving.retain(|node, until| loads.contains_key(node) && now < *until);
        self.starts.see(now, loads.keys().copied().collect());
        let stays = |node: &&NodeId| !self.leaving.contains_key(node);
        let members = u32::try_from(loads.keys().filter(stays).count()).unwrap_or(u32::MAX);
        let (sum, calls) = self.measure(now, loads);
        let (action, reason, leaver) = self.decide(now, me, members, loads, sum, &calls);
        self.count_starts();
        let step = match (action, leaver) {
            (GrowthAction::Start, _) => Step::Start,
            (GrowthAction::Shrink, Some(node)) => Step::AskToLeave(node),
            _ => Step::Keep,
        };
        let is_new = action != GrowthAction::Keep || (self.held != Some(reason) && reason.is_told());
        self.held = Some(reason);
        let Sum { calls_per_second, waiting, refused } = sum.unwrap_or_default();
        let wanted = self.size.wanted;
        let decision =
            GrowthDecision { at: now, action, reason, members, wanted, calls_per_second, waiting, refused };
        (step, is_new.then_some(decision))
    }

    fn decide(
        &mut self,
        now: Duration,
        me: NodeId,
        members: u32,
        loads: &BTreeMap<NodeId, Option<NodeLoad>>,
        sum: Option<Sum>,
        calls: &BTreeMap<NodeId, u64>,
    ) -> (GrowthAction, GrowthReason, Option<NodeId>) {
        if self.size.wanted().is_none() {
            self.want(members);
        }
        let wanted = self.size.wanted;
        if members < wanted {
            (self.high, self.low) = (0, 0);
            self.starts.late = 0;
            return match self.starts.after {
                Some(after) if now < after => (GrowthAction::Keep, GrowthReason::Starting, None),
                _ => {
                    let reason = match self.starts.is_pending {
                        true => GrowthReason::StartLost,
                        false => GrowthReason::MemberMissing,
                    };
                    self.starts.lose(self.late(now));
                    self.start(now);
                    (GrowthAction::Start, reason, None)
                }
            };
        }
        // A member that stays may have taken the place of a started one.
        self.starts.lose(self.late(now));
        self.starts.end();
        let others = loads.keys().filter(|node| **node != me && !self.leaving.contains_key(node));
        // The member with the fewest calls; of equal ones the last.
        let least = others.copied().rev().min_by_key(|node| calls.get(node).copied().unwrap_or(0));
        if members == wanted {
            self.starts.late = 0;
        } else if let (Some(late), Some(_)) = (self.starts.late.checked_sub(1), least) {
            self.starts.late = late;
            return self.shrink(now, GrowthReason::StartLate, least);
        } else {
            // It joined by a command.
            self.want(members);
            if members <= self.options.members_max {
                return (GrowthAction::Keep, GrowthReason::Joined, None);
            }
            return self.shrink(now, GrowthReason::AtMost, least);
        }
        if !self.leaving.is_empty() {
            (self.high, self.low) = (0, 0);
            return (GrowthAction::Keep, GrowthReason::Leaving, None);
        }
        let Some(sum) = sum else { return (GrowthAction::Keep, GrowthReason::NoLoad, None) };
        self.by_load(now, members, sum, least)
    }

    /// Decides by the load of a fleet that has the wanted size (I3, I4).
    fn by_load(
        &mut self,
        now: Duration,
        members: u32,
        sum: Sum,
        least: Option<NodeId>,
    ) -> (GrowthAction, GrowthReason, Option<NodeId>) {
        let GrowthOptions { calls_max, waiting_max, looks, members_min, members_max, .. } = self.options;
        let above = |limit: u64, value: u64, members: u32| value > limit.saturating_mul(u64::from(members));
        let cause = if sum.refused > 0 {
            Some(GrowthReason::Refusals)
        } else if above(waiting_max, sum.waiting, members) {
            Some(GrowthReason::CallsWait)
        } else if above(calls_max, sum.calls_per_second, members) {
            Some(GrowthReason::ManyCalls)
        } else {
            None
        };
        let rest = members - 1;
        let fits = |limit: u64, value: u64| !above(limit / 2, value, rest);
        // Without a limit of calls, no load tells that fewer members suffice.
        let is_low = calls_max < u64::MAX
            && cause.is_none()
            && fits(waiting_max, sum.waiting)
            && fits(calls_max, sum.calls_per_second);
        self.high = if cause.is_some() { self.high + 1 } else { 0 };
        self.low = if is_low { self.low + 1 } else { 0 };
        if let Some(cause) = cause {
            return match () {
                () if members >= members_max => (GrowthAction::Keep, GrowthReason::AtMost, None),
                () if self.high < looks => (GrowthAction::Keep, GrowthReason::Steady, None),
                () if !self.may_change(now) => (GrowthAction::Keep, GrowthReason::Pause, None),
                () => {
                    self.change(now, true);
                    self.want(members + 1);
                    self.start(now);
                    (GrowthAction::Start, cause, None)
                }
            };
        }
        match least {
            Some(_) if members > members_min && self.low >= looks => {
                if !self.may_change(now) {
                    return (GrowthAction::Keep, GrowthReason::Pause, None);
                }
                self.change(now, false);
                self.shrink(now, GrowthReason::FewCalls, least)
            }
            _ => (GrowthAction::Keep, GrowthReason::Steady, None),
        }
    }

    /// Announces a start. [`Sizer::confirm_start`] follows.
    fn start(&mut self, now: Duration) {
        (self.starts.is_pending, self.starts.is_announced) = (true, true);
        self.starts.after = Some(self.start_until(now));
    }

    /// Returns the time until which no start follows one that happens now.
    fn start_until(&self, now: Duration) -> Duration {
        let failures = self.starts.failures;
        let pause = if failures > 0 { self.pause(failures) } else { Duration::ZERO };
        now.saturating_add(self.options.start_limit.max(pause))
    }

    fn shrink(
        &mut self,
        now: Duration,
        reason: GrowthReason,
        least: Option<NodeId>,
    ) -> (GrowthAction, GrowthReason, Option<NodeId>) {
        let Some(node) = least else { return (GrowthAction::Keep, reason, None) };
        if reason == GrowthReason::FewCalls {
            self.want_fewer();
        }
        self.leaving.insert(node, now.saturating_add(self.options.start_limit));
        (GrowthAction::Shrink, reason, least)
    }

    fn may_change(&self, now: Duration) -> bool {
        self.changed.is_none_or(|(at, _)| now.saturating_sub(at) >= self.pause(self.doublings))
    }

    /// Notes a change by load (I4).
    fn change(&mut self, now: Duration, grew: bool) {
        if let Some((at, before)) = self.changed {
            let steady = now.saturating_sub(at) >= self.pause(self.doublings).saturating_mul(STEADY);
            self.doublings = match (steady, grew == before) {
                (true, _) => 0,
                (false, true) => self.doublings,
                (false, false) => (self.doublings + 1).min(DOUBLINGS_MAX),
            };
        }
        self.changed = Some((now, grew));
        (self.high, self.low) = (0, 0);
    }

    /// Returns the load since the last look, if all members have answered twice, and the calls of each
    /// member.
    fn measure(
        &mut self,
        now: Duration,
        loads: &BTreeMap<NodeId, Option<NodeLoad>>,
    ) -> (Option<Sum>, BTreeMap<NodeId, u64>) {
        let before = std::mem::take(&mut self.last);
        let since = self.last_at.replace(now).map(|at| now.saturating_sub(at));
        let (mut sum, mut all, mut calls) = (Sum::default(), true, BTreeMap::new());
        let mut total: u64 = 0;
        for (node, load) in loads {
            let Some(load) = load else {
                all = false;
                continue;
            };
            self.last.insert(*node, *load);
            let Some(before) = before.get(node) else {
                all = false;
                continue;
            };
            let of_node = load.calls.saturating_sub(before.calls);
            calls.insert(*node, of_node);
            total = total.saturating_add(of_node);
            sum.waiting = sum.waiting.saturating_add(load.waiting);
            sum.refused = sum.refused.saturating_add(load.refused.saturating_sub(before.refused));
        }
        let millis = since.map_or(0, |since| since.as_millis());
        if !all || millis == 0 {
            return (None, calls);
        }
        let rate = u128::from(total) * 1000 / millis;
        sum.calls_per_second = u64::try_from(rate).unwrap_or(u64::MAX);
        (Some(sum), calls)
    }
}
