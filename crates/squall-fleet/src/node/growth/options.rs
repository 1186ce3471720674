//! Options, loads and decisions of fleets that choose their own size.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The bounds and limits of a fleet that chooses its own size.
///
/// The fleet grows if its members have more calls, or more waiting calls, than the limits for several looks
/// in a row, or refuse calls. It shrinks if half of the limits would suffice without one member.
///
/// # Example
/// ```
/// use squall::fleet::GrowthOptions;
/// use std::time::Duration;
///
/// // Three to twenty members, with at most 5,000 calls a second each.
/// let options = GrowthOptions::new(3, 20).calls_max(5_000).pause(Duration::from_secs(30));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "options do nothing until `Node::grow`"]
pub struct GrowthOptions {
    pub(super) members_min: u32,
    pub(super) members_max: u32,
    pub(super) calls_max: u64,
    pub(super) waiting_max: u64,
    pub(super) looks: u32,
    pub(super) look_every: Duration,
    pub(super) pause: Duration,
    pub(super) start_limit: Duration,
}

impl GrowthOptions {
    /// Begins with the bounds of the size. The smaller one counts as 1 at least, and the larger one as the
    /// smaller one at least.
    pub fn new(members_min: u32, members_max: u32) -> GrowthOptions {
        let members_min = members_min.max(1);
        GrowthOptions {
            members_min,
            members_max: members_max.max(members_min),
            calls_max: u64::MAX,
            waiting_max: 16,
            looks: 3,
            look_every: Duration::from_secs(1),
            pause: Duration::from_secs(10),
            start_limit: Duration::from_secs(30),
        }
    }

    /// Sets the most calls per second and member. Default: no limit, and then the fleet does not shrink by
    /// its load.
    pub fn calls_max(mut self, calls_per_second: u64) -> GrowthOptions {
        self.calls_max = calls_per_second;
        self
    }

    /// Sets the most calls per member that wait for a thread. Default: 16.
    pub fn waiting_max(mut self, calls: u64) -> GrowthOptions {
        self.waiting_max = calls;
        self
    }

    /// Sets the number of equal looks before a change. Default: 3.
    pub fn looks(mut self, looks: u32) -> GrowthOptions {
        self.looks = looks.max(1);
        self
    }

    /// Sets the time between two looks, 1 ms at least. Default: 1 s.
    pub fn look_every(mut self, time: Duration) -> GrowthOptions {
        self.look_every = time.max(Duration::from_millis(1));
        self
    }

    /// Sets the shortest time between two changes by load. A change back soon after doubles it. Default: 10
    /// s.
    pub fn pause(mut self, time: Duration) -> GrowthOptions {
        self.pause = time;
        self
    }

    /// Sets the time in which a started member joins, and an asked one leaves. Default: 30 s.
    pub fn start_limit(mut self, time: Duration) -> GrowthOptions {
        self.start_limit = time;
        self
    }

    /// The time that a member has to answer.
    pub(super) fn answer_limit(&self) -> Duration {
        self.look_every.max(Duration::from_secs(1))
    }
}

/// The load of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// Calls that its services have begun to run, since its start.
    pub calls: u64,
    /// Calls that wait for a thread now.
    pub waiting: u64,
    /// Calls and sessions that were refused since the node had too many, since its start.
    pub refused: u64,
}

/// A step of a fleet that chooses its own size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrowthAction {
    /// The size stays.
    Keep,
    /// A member is started.
    Start,
    /// A member is asked to leave.
    Shrink,
}

/// The reason of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrowthReason {
    /// The members have too many calls.
    ManyCalls,
    /// Too many calls wait for a thread.
    CallsWait,
    /// Members refused calls.
    Refusals,
    /// The rest of the members would have at most half of the limits.
    FewCalls,
    /// The fleet has fewer members than wanted: it is too small, or a member died.
    MemberMissing,
    /// A started member has not joined in time.
    StartLost,
    /// A started member joined after its start counted as lost, so the fleet is larger than wanted.
    StartLate,
    /// The closure that starts members failed.
    StartFailed,
    /// A start did not happen. While the others were told of it, a member came, the size changed, or another
    /// member began to decide.
    StartWithdrawn,
    /// A started member is on its way.
    Starting,
    /// A member leaves.
    Leaving,
    /// A member joined by a command.
    Joined,
    /// The fleet has its largest size.
    AtMost,
    /// The last change is too recent.
    Pause,
    /// The load lies between the limits, or has not done otherwise for long enough.
    Steady,
    /// A member has not told its load twice.
    NoLoad,
}

impl GrowthReason {
    /// Returns whether a kept size is worth a record.
    pub(super) fn is_told(self) -> bool {
        !matches!(
            self,
            GrowthReason::Steady | GrowthReason::NoLoad | GrowthReason::Starting | GrowthReason::Leaving
        )
    }
}

impl fmt::Display for GrowthReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GrowthReason::ManyCalls => "the members have too many calls",
            GrowthReason::CallsWait => "too many calls wait",
            GrowthReason::Refusals => "members refused calls",
            GrowthReason::FewCalls => "fewer members suffice",
            GrowthReason::MemberMissing => "a member is missing",
            GrowthReason::StartLost => "a started member did not join in time",
            GrowthReason::StartLate => "a started member joined too late",
            GrowthReason::StartFailed => "the start of a member failed",
            GrowthReason::StartWithdrawn => "the start of a member was withdrawn",
            GrowthReason::Starting => "a member starts",
            GrowthReason::Leaving => "a member leaves",
            GrowthReason::Joined => "a member joined by a command",
            GrowthReason::AtMost => "the fleet has its largest size",
            GrowthReason::Pause => "the last change is too recent",
            GrowthReason::Steady => "the load is steady",
            GrowthReason::NoLoad => "a member has not told its load",
        })
    }
}

/// A decision about the size of a fleet, with its reason and the readings that it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrowthDecision {
    /// The time since [`Node::grow`](crate::Node::grow).
    pub at: Duration,
    /// The step.
    pub action: GrowthAction,
    /// Its reason.
    pub reason: GrowthReason,
    /// The members, without those that leave.
    pub members: u32,
    /// The wanted size after the decision.
    pub wanted: u32,
    /// Calls per second of all members since the last look.
    pub calls_per_second: u64,
    /// Waiting calls of all members.
    pub waiting: u64,
    /// Refusals of all members since the last look.
    pub refused: u64,
}

impl fmt::Display for GrowthDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.action {
            GrowthAction::Keep => "keeps its size",
            GrowthAction::Start => "starts a member",
            GrowthAction::Shrink => "asks a member to leave",
        };
        let GrowthDecision { reason, members, wanted, calls_per_second, waiting, refused, .. } = self;
        write!(
            f,
            "the fleet {step}: {reason} ({members} members, {wanted} wanted, {calls_per_second} calls/s, \
             {waiting} waiting, {refused} refused)"
        )
    }
}
