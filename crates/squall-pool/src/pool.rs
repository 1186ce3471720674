//! The pool at one member: operations, frames, views and times on many threads, and one shard.
//!
//! Problem: the shard is a state machine. Its inputs come from the program's threads, from the node and from
//! a clock. Idea: it lies under one lock. Each thread with an input runs it, and after the lock sends the
//! frames and hands the results over.
//!
//! - P1. No code of the program, and no lock of the node, is taken under the lock of the member.
//! - P2. An element that was taken out goes to its caller, or back: an [`Outcome`] that is dropped adds it
//!   again. So a get that is given up loses nothing, unless its member is removed while the result waits for
//!   an heir (`host`).
//! - P3. The timer thread sleeps until the next time of the shard. An input that makes it earlier wakes it.
//!
//! Cost: an operation takes the lock twice, and reads two clocks. A member has a thread.

use crate::protocol::{Attributes, Completion, Counts, ELEMENT_BYTES_MAX, Element, MemberId, OpId, Time};
use crate::state::{Deeds, Ended, Kind, Op, Over, State};
use crate::{PoolError, PoolErrorKind};
use squall_fleet::__parts::{Taker, block_for, handover};
use squall_fleet::{MemberNumber, Name, NameCapability, Node, Roster, RosterMember, Seat};
use squall_machine::park::time_left;
use squall_sys::fork::forked;
use squall_sys::sync::atomic::AtomicU64;
use squall_sys::sync::atomic::Ordering::SeqCst;
use squall_sys::sync::{Condvar, Mutex, MutexGuard, OnceLock, StdArc as Arc, Weak, lock, thread};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

mod registry;

pub use registry::{PoolInfo, PoolState, pools};

/// A member without an operation or a frame in this time has an idle event.
const IDLE: Time = 10_000;
/// Idle events without a change of the shard become rarer, up to this factor.
const IDLE_FACTOR_MAX: Time = 64;
/// Operations that wait for a lease are tried again after this time.
const RETRY: Time = 20_000;
/// The time that the master has to greet a new member.
const JOIN: Duration = Duration::from_secs(30);
/// The longest sleep of the timer thread: it holds no member alive.
const NAP: Time = 1_000_000;

/// The result of an operation. Dropped, it gives its element back (P2).
pub(crate) struct Outcome {
    result: Option<Ended>,
    pool: Weak<Inner>,
}

impl Outcome {
    fn take(mut self) -> Ended {
        let result = self.result.take().unwrap_or(Err(PoolErrorKind::Closed));
        if let (Ok(Completion::Got(_)), Some(pool)) = (&result, self.pool.upgrade()) {
            // SeqCst: pairs with the load before a shutdown (`state/S4`).
            pool.untaken.fetch_sub(1, SeqCst);
        }
        result
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if let Some(Ok(Completion::Got(element))) = self.result.take()
            && let Some(pool) = self.pool.upgrade()
        {
            pool.step(|state, _, _| state.put_back(element));
            // SeqCst: pairs with the load before a shutdown. The element is back before (`state/S4`).
            pool.untaken.fetch_sub(1, SeqCst);
        }
    }
}

/// The clock of idle events.
struct Idle {
    at: Time,
    factor: Time,
    /// The length of the shard at the last event.
    len: usize,
}

struct Locked {
    state: State,
    idle: Idle,
    /// The next time at which the member has work, besides idle events.
    wake_at: Time,
    /// The time at which the timer thread wakes.
    timer_at: Time,
}

pub(crate) struct Inner {
    name: Name,
    /// Its number in the list of this process.
    number: OnceLock<u64>,
    locked: Mutex<Locked>,
    changed: Condvar,
    start: Instant,
    seat: OnceLock<Seat>,
    /// Elements that were given to callers that have not taken them yet.
    untaken: Arc<AtomicU64>,
}

impl Inner {
    fn locked(&self) -> MutexGuard<'_, Locked> {
        lock(&self.locked, "the member of a pool")
    }

    fn now(&self) -> Time {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(Time::MAX)
    }

    fn error(&self, kind: PoolErrorKind) -> PoolError {
        PoolError { pool: self.name.clone(), kind }
    }

    /// Gives the member an input. `event` learns the time, and whether the shard may be used.
    fn step<R>(self: &Arc<Self>, event: impl FnOnce(&mut State, Time, bool) -> R) -> R {
        self.step_with(|state, now, serves, _| event(state, now, serves))
    }

    fn step_with<R>(self: &Arc<Self>, event: impl FnOnce(&mut State, Time, bool, &mut Deeds) -> R) -> R {
        let seat = self.seat.get();
        let me = self.locked().state.me();
        // Renews the lease that is read below. It takes the lock of the node (P1).
        seat.zip(me).map(|(seat, me)| seat.serves(me));
        let mut locked = self.locked();
        let Locked { state, idle, wake_at, timer_at } = &mut *locked;
        let now = self.now();
        let lease = seat.zip(state.me()).is_some_and(|(seat, me)| seat.serves_still(me));
        let serves = lease && state.over().is_none();
        let mut deeds = Deeds::default();
        if serves {
            state.advance(now, &mut deeds);
        }
        let result = event(state, now, serves, &mut deeds);
        if serves {
            state.advance(now, &mut deeds);
            state.collect(&mut deeds);
        }
        let len = state.shard().map_or(0, |shard| shard.len());
        if len != idle.len {
            (idle.len, idle.factor) = (len, 1);
            idle.at = now + IDLE;
        }
        let due = state.host().filter(|_| serves).and_then(|host| host.wake_at());
        let retry = if !serves || state.waits() { now + RETRY } else { Time::MAX };
        *wake_at = due.unwrap_or(Time::MAX).min(retry);
        let wakes = (*wake_at).min(idle.at) < *timer_at || deeds.wakes;
        drop(locked);
        if wakes {
            self.changed.notify_all();
        }
        if let Some(seat) = seat {
            for (from, to, frame) in deeds.frames {
                // A shard makes no larger frames than a seat takes.
                let _ = seat.send(from, to, frame);
            }
            for (number, heir) in deeds.heirs {
                seat.set_heir(number, heir);
            }
            for (number, if_epoch) in deeds.vacate {
                seat.vacate(number, if_epoch);
            }
        }
        for (giver, result) in deeds.results {
            giver.give(Outcome { result: Some(result), pool: Arc::downgrade(self) });
        }
        result
    }

    /// Begins an operation.
    fn begin(self: &Arc<Self>, kind: Kind, element: Option<Element>) -> Operation {
        let (giver, taker) = handover();
        let op = self.step(|state, _, _| {
            // In the child of a fork, the threads of the node are those of the parent.
            let opens = state.is_open() && !forked();
            if opens { state.begin(kind, element, Some(giver)) } else { OpId(0) }
        });
        Operation { pool: self.clone(), op, taker }
    }

    /// Ends an operation that no shard has, or a get that waits.
    fn withdraw(&self, op: OpId) -> Option<Op> {
        let mut locked = self.locked();
        let now = self.now();
        locked.state.withdraw(now, op)
    }

    /// Runs an operation on this thread.
    fn run(
        self: &Arc<Self>,
        kind: Kind,
        element: Option<Element>,
        limit: Duration,
    ) -> Result<Completion, PoolError> {
        let mut operation = self.begin(kind, element);
        match block_for(&mut operation, Some(limit)) {
            Some(result) => result,
            None => {
                let begun = !operation.withdraw();
                Err(self.error(PoolErrorKind::TimedOut { begun }))
            }
        }
    }

    /// The timer thread (P3). Ends with the member.
    fn time(pool: &Weak<Inner>) {
        while let Some(pool) = pool.upgrade() {
            let mut locked = pool.locked();
            let now = pool.now();
            let Locked { state, idle, wake_at, timer_at } = &mut *locked;
            if state.over().is_some() {
                return;
            }
            let due = (*wake_at).min(idle.at);
            if due > now {
                *timer_at = due;
                let nap = Duration::from_micros((due - now).min(NAP));
                let waited = pool.changed.wait_timeout(locked, nap);
                drop(waited);
                continue;
            }
            *timer_at = Time::MAX;
            let is_idle = now >= idle.at;
            if is_idle {
                idle.at = now + IDLE * idle.factor;
                idle.factor = (idle.factor * 2).min(IDLE_FACTOR_MAX);
            }
            drop(locked);
            pool.step(|state, now, serves| {
                if serves {
                    state.with_host(|host| {
                        if is_idle {
                            host.idle(now);
                        }
                        host.tick(now);
                    });
                }
            });
        }
    }
}

/// An operation that was begun.
struct Operation {
    pool: Arc<Inner>,
    op: OpId,
    taker: Taker<Outcome>,
}

impl Operation {
    /// Ends it if no shard has it.
    fn withdraw(&self) -> bool {
        let withdrawn = self.pool.withdraw(self.op);
        withdrawn.is_some()
    }
}

impl Future for Operation {
    type Output = Result<Completion, PoolError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = Pin::new(&mut self.taker).poll(cx);
        outcome.map(|outcome| {
            let result = outcome.map_or(Err(PoolErrorKind::Closed), Outcome::take);
            result.map_err(|kind| self.pool.error(kind))
        })
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let withdrawn = self.pool.withdraw(self.op);
        drop(withdrawn);
    }
}

/// The member, as its node calls it.
struct Member(Arc<Inner>);

impl RosterMember for Member {
    fn changed(&self, seat: &Seat, roster: &Roster) {
        self.0.seat.get_or_init(|| seat.clone());
        self.0.step_with(|state, _, _, deeds| state.note_roster(roster, deeds));
    }

    fn vacated(&self, _seat: &Seat) {
        self.0.step_with(|state, now, _, deeds| state.vacated(now, deeds));
    }

    fn removed(&self, _seat: &Seat) {
        self.0.step_with(|state, now, _, deeds| state.removed(now, deeds));
    }

    fn receive(&self, _seat: &Seat, from: MemberNumber, frame: &[u8]) {
        self.0.step(|state, now, serves| {
            if serves {
                state.with_host(|host| host.receive(now, MemberId(from.0), frame));
            }
        });
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.step_with(|state, _, _, deeds| state.close(deeds));
    }
}

/// The end of a member that has left its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolEnd {
    /// All its elements are at other members. Members without elements that leave at the same time all end
    /// so, also the last ones of a pool without copies.
    Left,
    /// The member was the last one, and the remaining elements are gone.
    LastLeft {
        /// Their number.
        lost: u64,
    },
}

/// The place of a member, for [`DistributedPool::set_locality`]. Another one after the group took its node
/// for dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolLocation(pub u64);

/// A pool of values that members on several nodes share: an unordered multiset of byte strings.
///
/// Each member keeps the elements that are added at it, and gets take them there. A member without elements
/// takes some of another one. A get finds the pool empty only if at one moment of the call no member had an
/// element, and none was on its way. Each element goes to one caller.
///
/// Clones are handles of one member. Without a handle the member goes on, until its node leaves the group. A
/// member whose node dies loses its elements, unless it [has an heir](DistributedPool::has_heir). A node that
/// was taken for dead and lives adds its elements to the pool again, unless it has asked for an heir.
///
/// # Cost
/// An add and a get with an element at hand take two locks, and send no message. With copies, each waits for
/// the answer of the heir.
/// [`protocol`](crate::protocol) counts the messages of others. A member has a thread, which wakes up to 100
/// times a second while the number of its elements changes, and two times otherwise.
///
/// Source: Wentzlaff, *dPool*, 2012, §4 (DP-01 to DP-17).
/// # Examples
#[cfg_attr(all(target_os = "linux", not(miri)), doc = "```")]
#[cfg_attr(not(all(target_os = "linux", not(miri))), doc = "```ignore")]
/// use squall::fleet::{GroupKey, LocalNetwork, NodeBuilder};
/// use squall::fleet::pool::{Attributes, DistributedPool, PoolEnd};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = Duration::from_secs(60);
/// let network = LocalNetwork::new();
/// let key = GroupKey::random();
/// let (first, root) = NodeBuilder::new(key).found(network.bind("a")?, &[])?;
/// let second = NodeBuilder::new(key).join(network.bind("b")?, &["local/a"])?;
/// second.wait_joined(limit)?;
///
/// let name = "/pages".parse()?;
/// let pool = DistributedPool::join(&first, &name, &root, Attributes::default())?;
/// let other = DistributedPool::join(&second, &name, &root, Attributes::default())?;
/// pool.add(b"page 7", limit)?;
/// // The element comes from the first member.
/// assert_eq!(other.get(limit)?, Some(b"page 7".to_vec()));
/// assert_eq!(other.get(limit)?, None);
///
/// other.add(b"page 8", limit)?;
/// assert_eq!(other.shutdown(limit)?, PoolEnd::Left);
/// assert_eq!(pool.get(limit)?, Some(b"page 8".to_vec()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DistributedPool(Arc<Inner>);

impl fmt::Debug for DistributedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedPool").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl DistributedPool {
    /// Makes a member of the pool of a name, perhaps the first one. All members have equal attributes.
    /// `parent` is the right to names there. Returns once the member serves.
    ///
    /// # Errors
    /// [`PoolErrorKind::NotJoined`], also for other attributes than those of the pool, and if no leader
    /// answers within 30 s; [`PoolErrorKind::TimedOut`] if the master does not answer within 30 s;
    /// [`PoolErrorKind::NoThread`].
    pub fn join(
        node: &Node,
        name: &Name,
        parent: &NameCapability,
        attributes: Attributes,
    ) -> Result<DistributedPool, PoolError> {
        DistributedPool::join_apart(node, name, parent, attributes, 0)
    }

    /// Like `join`, and refuses members with another identity like those with other attributes.
    pub(crate) fn join_apart(
        node: &Node,
        name: &Name,
        parent: &NameCapability,
        attributes: Attributes,
        identity: u32,
    ) -> Result<DistributedPool, PoolError> {
        let tag = attributes.tag() ^ u64::from(identity);
        let untaken = Arc::new(AtomicU64::new(0));
        let locked = Locked {
            state: State::new(attributes, untaken.clone()),
            idle: Idle { at: IDLE, factor: 1, len: 0 },
            wake_at: Time::MAX,
            timer_at: Time::MAX,
        };
        let (locked, changed) = (Mutex::new(locked), Condvar::new());
        let (start, seat, number) = (Instant::now(), OnceLock::new(), OnceLock::new());
        let inner = Arc::new(Inner { name: name.clone(), number, locked, changed, start, seat, untaken });
        registry::add(&inner);
        let of_thread = Arc::downgrade(&inner);
        let builder = thread::Builder::new().name("squall-pool".into());
        if builder.spawn(move || Inner::time(&of_thread)).is_err() {
            return Err(inner.error(PoolErrorKind::NoThread));
        }
        let pool = DistributedPool(inner);
        let joined = node.join_roster(name, parent, tag, Member(pool.0.clone()));
        joined.map_err(|error| pool.0.error(PoolErrorKind::NotJoined(error)))?;
        match pool.wait(JOIN, |state| state.is_ready() || state.over().is_some()) {
            true if !pool.is_over() => Ok(pool),
            true => Err(pool.0.error(PoolErrorKind::Closed)),
            false => {
                // Its handle is lost, so it leaves as soon as it can.
                pool.0.step(|state, _, _| state.leave());
                Err(pool.0.error(PoolErrorKind::TimedOut { begun: true }))
            }
        }
    }

    fn wait(&self, limit: Duration, is_over: impl Fn(&State) -> bool) -> bool {
        let deadline = Instant::now().checked_add(limit);
        let mut locked = self.0.locked();
        while !is_over(&locked.state) {
            let left = time_left(deadline).unwrap_or(Duration::from_secs(3600));
            if left.is_zero() {
                return false;
            }
            locked = match self.0.changed.wait_timeout(locked, left) {
                Ok((locked, _)) => locked,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        true
    }

    /// Returns the name of the pool.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// Adds an element: a copy of the bytes.
    ///
    /// # Errors
    /// [`PoolErrorKind::LargeElement`], [`PoolErrorKind::TimedOut`], [`PoolErrorKind::Unknown`],
    /// [`PoolErrorKind::Closed`].
    pub fn add(&self, element: &[u8], limit: Duration) -> Result<(), PoolError> {
        self.check(element)?;
        self.0.run(Kind::Add, Some(element.to_vec()), limit).map(drop)
    }

    /// Adds an element, like [`add`](DistributedPool::add). The future may be dropped: the element then comes
    /// into the pool, unless the member had no lease.
    pub fn add_async(&self, element: &[u8]) -> impl Future<Output = Result<(), PoolError>> + Send + use<> {
        let begun = self.check(element).map(|()| self.0.begin(Kind::Add, Some(element.to_vec())));
        async move { begun?.await.map(drop) }
    }

    fn check(&self, element: &[u8]) -> Result<(), PoolError> {
        let bytes = element.len();
        match bytes > ELEMENT_BYTES_MAX {
            true => Err(self.0.error(PoolErrorKind::LargeElement { bytes })),
            false => Ok(()),
        }
    }

    fn is_over(&self) -> bool {
        self.0.locked().state.over().is_some()
    }

    /// Takes an element, or finds the pool empty.
    ///
    /// # Errors
    /// [`PoolErrorKind::TimedOut`], [`PoolErrorKind::Closed`].
    pub fn get(&self, limit: Duration) -> Result<Option<Element>, PoolError> {
        self.get_at_most(ELEMENT_BYTES_MAX, limit)
    }

    /// Takes an element of at most so many bytes, or finds the pool empty.
    ///
    /// # Errors
    /// [`PoolErrorKind::TooLarge`], [`PoolErrorKind::TimedOut`], [`PoolErrorKind::Closed`].
    pub fn get_at_most(&self, size_max: usize, limit: Duration) -> Result<Option<Element>, PoolError> {
        self.0.run(Kind::Get { size_max }, None, limit).map(found)
    }

    /// Takes an element, like [`get`](DistributedPool::get). An element counts as taken once it is found,
    /// also while the future is not polled. If the future is dropped, the element is added again.
    pub fn get_async(&self) -> impl Future<Output = Result<Option<Element>, PoolError>> + Send + use<> {
        let begun = self.0.begin(Kind::Get { size_max: ELEMENT_BYTES_MAX }, None);
        async move { begun.await.map(found) }
    }

    /// Returns an estimate of the number of elements: the sum of what the members answer one after the other.
    ///
    /// # Errors
    /// [`PoolErrorKind::TimedOut`], [`PoolErrorKind::Closed`].
    pub fn size(&self, limit: Duration) -> Result<u64, PoolError> {
        self.0.run(Kind::Size, None, limit).map(|completion| match completion {
            Completion::Size(size) => size,
            _ => 0,
        })
    }

    /// Returns the number of elements at this member.
    pub fn len_here(&self) -> usize {
        self.0.locked().state.shard().map_or(0, |shard| shard.len())
    }

    /// Returns whether the member serves now: it is in the pool, and its node has a lease.
    pub fn is_serving(&self) -> bool {
        let me = self.0.locked().state.me();
        let serves = self.0.seat.get().zip(me).is_some_and(|(seat, me)| seat.serves(me));
        serves && self.0.locked().state.is_ready()
    }

    /// Returns whether another member has a complete copy of this one, and would act for it: then the death
    /// of this member loses no element. False without the attribute [`replicated`](Attributes::replicated),
    /// and while the member does not serve.
    pub fn has_heir(&self) -> bool {
        self.is_serving() && self.0.locked().state.host().is_some_and(|host| host.has_heir())
    }

    /// Leaves the pool: gives all elements to other members, and then the member's place up. Elements that
    /// futures of gets hold are waited for. If it is called again, it waits for the same end.
    ///
    /// # Errors
    /// [`PoolErrorKind::TimedOut`]: the member goes on leaving. [`PoolErrorKind::Closed`]: its node ended
    /// first.
    pub fn shutdown(&self, limit: Duration) -> Result<PoolEnd, PoolError> {
        self.0.step(|state, _, _| state.leave());
        if !self.wait(limit, |state| state.over().is_some()) {
            return Err(self.0.error(PoolErrorKind::TimedOut { begun: true }));
        }
        match self.0.locked().state.over() {
            Some(Over::Left) => Ok(PoolEnd::Left),
            Some(Over::LastLeft { lost }) => Ok(PoolEnd::LastLeft { lost }),
            Some(Over::Closed) | None => Err(self.0.error(PoolErrorKind::Closed)),
        }
    }

    /// Returns the place of this member. `None` while it is not in the pool.
    pub fn location(&self) -> Option<PoolLocation> {
        self.0.locked().state.roster().map(|roster| PoolLocation(roster.me.0))
    }

    /// Returns the places of all members that this one knows, in the order of their joins. The first one is
    /// the master.
    pub fn locations(&self) -> Vec<PoolLocation> {
        let locked = self.0.locked();
        let members = locked.state.roster().into_iter().flat_map(|roster| &roster.members);
        members.map(|(number, _)| PoolLocation(number.0)).collect()
    }

    /// Tells the member `from` its distance to the member `to`, in any unit. A member without elements asks
    /// near ones first. Each distance is 10,000 otherwise. A hint: it may be lost.
    pub fn set_locality(&self, from: PoolLocation, to: PoolLocation, distance: u32) {
        self.0.step(|state, now, serves| {
            if serves {
                state.with_host(|host| host.set_locality(now, MemberId(from.0), MemberId(to.0), distance));
            }
        });
    }

    /// Returns the numbers of events at this member.
    pub fn counts(&self) -> Counts {
        self.0.locked().state.counts()
    }
}

fn found(completion: Completion) -> Option<Element> {
    match completion {
        Completion::Got(element) => Some(element),
        _ => None,
    }
}
