//! Fleets that choose their own size.
//!
//! Problem: the members of a fleet know its load, and an operator learns of it late.
//! Idea: one member decides for all, the one with the lowest number. It asks the others for their loads,
//! starts a member by a closure of the program, and asks a member to leave. [`decide`] has the rules.
//!
//! - I1. At most one member decides, as far as the members agree on the directory. If it dies, the next one
//!   goes on with the last size that any living member knows: [`member`] has the rules.
//!   A member decides only under a lease, so not by a directory that it can no longer renew.
//! - I2. A member leaves by the code of its program, in two phases. The one that decides only asks.
//! - I3. The program's closures run on the thread of [`Growth`], without a lock.
//! - I4. A member is started once the others know of it. So the next member to decide waits for it. One that
//!   does not answer delays a start by the start limit at most, and may not know of it. Their answers and the
//!   members are looked at again before the start (`decide`/I8).
//!
//! Not promised: the exact size. While the leader of the group changes, two members may decide at once, and
//! the fleet may have one member too many for a moment.
//! Cost: a thread for each member, and one call of each other member by the one that decides, at each look
//! and before each start.
//! Source: Wentzlaff 2012, §3.2.4 and §3.5.1 (FO-13, FO-14, FO-23).

mod decide;
#[cfg(test)]
mod decide_tests;
mod member;
#[cfg(test)]
mod member_tests;
mod options;

pub use self::options::{GrowthAction, GrowthDecision, GrowthOptions, GrowthReason, NodeLoad};

use self::decide::{Size, Step};
use self::member::{Answer, Answers, Member};
use super::driver::{Driver, Kind};
use super::service::ServiceCall;
use super::{NameOptions, Node, RequestError, block, route, wait_until};
use crate::capability::random;
use crate::handover::Taker;
use crate::{Fate, Name, NameCapability, NodeId, Refusal};
use squall_sys::panics::drop_payload;
use squall_sys::sync::{Condvar, Mutex, MutexGuard, StdArc as Arc, Weak, lock, thread};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The part of the names of members that choose the size of their fleet.
const PART: &str = "growth";
/// The method that tells a member the wanted size. Returns its [`Answer`].
const LOAD: u64 = 0;
/// The method that tells a member the wanted size without it, and asks it to leave.
const LEAVE: u64 = 1;
/// The most decisions that a member remembers.
const HISTORY: usize = 64;

struct State {
    member: Member,
    history: VecDeque<GrowthDecision>,
    ended: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    began: Instant,
    load: Box<dyn Fn() -> NodeLoad + Send + Sync>,
    /// The name of the fleet.
    fleet: Name,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state, "the size of a fleet")
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until `is_over`, at most for `limit`. Returns whether it is over.
    fn wait(&self, limit: Duration, is_over: impl Fn(&State) -> bool) -> bool {
        wait_until(&self.changed, self.state(), limit, is_over)
    }

    /// Serves the calls of the other members.
    fn serve(&self, call: ServiceCall<'_>) -> Option<Vec<u8>> {
        let size: Size = postcard::from_bytes(call.body).ok()?;
        // Others may call before this member knows the members. They repeat it.
        if !self.state().member.is_ready() {
            return None;
        }
        match call.method {
            LOAD => {
                let load = (self.load)();
                let answer = self.state().member.answer(self.now(), call.client, size, load);
                postcard::to_allocvec(&answer).ok()
            }
            LEAVE => {
                self.state().member.ask_to_leave(self.now(), size);
                self.changed.notify_all();
                Some(Vec::new())
            }
            _ => None,
        }
    }

    fn record(&self, decision: GrowthDecision) {
        let mut state = self.state();
        if state.history.len() >= HISTORY {
            state.history.pop_front();
        }
        state.history.push_back(decision);
    }
}

impl Node {
    /// Returns the load of this node, as [`grow`](Node::grow) sees it.
    pub fn load(&self) -> NodeLoad {
        self.0.load()
    }

    /// Lets the fleet of a name choose its own size. Each member of the fleet calls this with equal options,
    /// and with the capability that it got for its service.
    ///
    /// One member decides. `start` starts a further member: a process, or a machine, that joins the group,
    /// serves the name, and calls this. It runs on the thread `squall-fleet-growth` of the member that
    /// decides, and need not wait until the new member has joined. A member that dies is replaced in the same
    /// way.
    ///
    /// A member that shall leave is asked: see [`Growth::wait_to_leave`].
    ///
    /// # Errors
    /// [`RequestError`], with [`Refusal::NotBelow`] if the name of the fleet is too long: it has at most 200
    /// bytes.
    /// # Examples
    #[cfg_attr(all(target_os = "linux", not(miri)), doc = "```")]
    #[cfg_attr(not(all(target_os = "linux", not(miri))), doc = "```ignore")]
    /// use squall::fleet::{GroupKey, GrowthOptions, LocalNetwork, NameOptions, NodeBuilder, ServiceCall};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let network = LocalNetwork::new();
    /// let (node, root) = NodeBuilder::new(GroupKey::random()).found(network.bind("a")?, &[])?;
    /// let echo = |call: ServiceCall<'_>| Some(call.body.to_vec());
    /// let right = node.serve(&"/echo".parse()?, &root, NameOptions::new().stateless(), echo)?;
    ///
    /// // At least two members. A program starts a process here.
    /// let (started, starts) = std::sync::mpsc::channel();
    /// let options = GrowthOptions::new(2, 8).look_every(Duration::from_millis(10));
    /// let growth = node.grow(&right, options, move || {
    ///     started.send(()).map_err(std::io::Error::other)
    /// })?;
    /// starts.recv()?;
    /// assert_eq!(growth.wanted(), Some(2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn grow(
        &self,
        capability: &NameCapability,
        options: GrowthOptions,
        start: impl FnMut() -> io::Result<()> + Send + 'static,
    ) -> Result<Growth, RequestError> {
        let driver = Arc::downgrade(&self.0);
        let load = move || driver.upgrade().map_or_else(NodeLoad::default, |driver| driver.load());
        self.grow_by(capability, options, load, start)
    }

    /// Like [`grow`](Node::grow), but with a load that the program measures.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn grow_by(
        &self,
        capability: &NameCapability,
        options: GrowthOptions,
        load: impl Fn() -> NodeLoad + Send + Sync + 'static,
        start: impl FnMut() -> io::Result<()> + Send + 'static,
    ) -> Result<Growth, RequestError> {
        let fleet = capability.name().clone();
        let text = format!("{}/{PART}/{:032x}", fleet.as_str(), random());
        let name: Name = text.parse().map_err(|_| RequestError::Refused(Refusal::NotBelow))?;
        let state = State { member: Member::new(options), history: VecDeque::new(), ended: false };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let (began, load) = (Instant::now(), Box::new(load));
        let shared = Arc::new(Shared { state, changed, began, load, fleet });
        let served = shared.clone();
        let service = Kind::Plain(Arc::new(move |call: ServiceCall<'_>| served.serve(call)));
        let name = self.register(&name, capability, NameOptions::new(), 0, service)?;
        let members = self.0.growing(&shared.fleet).into_keys().collect();
        shared.state().member.pass_on(shared.now(), members);
        let (driver, start) = (Arc::downgrade(&self.0), Box::new(start));
        let looker = Looker { driver, shared: shared.clone(), options, start };
        let builder = thread::Builder::new().name("squall-fleet-growth".into());
        let thread = builder.spawn(move || looker.run()).ok();
        let growth = Growth { driver: Arc::downgrade(&self.0), shared, name, thread };
        // Its drop ends the name.
        if growth.thread.is_some() { Ok(growth) } else { Err(RequestError::NoThread) }
    }
}

/// A member's part in the size of its fleet: see [`Node::grow`].
///
/// Dropping it ends its thread, and waits for the closure or the calls that run there. The fleet then
/// replaces this member, as after a death.
pub struct Growth {
    driver: Weak<Driver>,
    shared: Arc<Shared>,
    /// Ends the name at which the others ask.
    name: NameCapability,
    thread: Option<thread::JoinHandle<()>>,
}

impl fmt::Debug for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Growth").field("fleet", &self.shared.fleet).field("wanted", &self.wanted()).finish()
    }
}

impl Growth {
    /// Returns the wanted size of the fleet, once it is known.
    pub fn wanted(&self) -> Option<u32> {
        self.shared.state().member.wanted()
    }

    /// Returns the last decisions of this member, with their reasons: at most 64, the newest last.
    pub fn history(&self) -> Vec<GrowthDecision> {
        self.shared.state().history.iter().copied().collect()
    }

    /// Waits until the fleet asks this member to leave. Returns false if the limit passes first.
    ///
    /// The program then calls [`Node::leave`], which moves the shards away first.
    pub fn wait_to_leave(&self, limit: Duration) -> bool {
        self.shared.wait(limit, |state| state.member.is_asked())
    }

    /// Tells the fleet that this member leaves by its own decision, so that it is not replaced. Call it
    /// before [`Node::leave`]. A member that was asked to leave need not.
    ///
    /// Waits for the answer of the member that decides, at its next look.
    ///
    /// # Errors
    /// [`RequestError::TimedOut`]: the fleet may replace this member.
    pub fn resign(&self, limit: Duration) -> Result<(), RequestError> {
        self.shared.state().member.resign();
        let known = self.shared.wait(limit, |state| state.member.may_leave());
        if known { Ok(()) } else { Err(RequestError::TimedOut) }
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.changed.notify_all();
        if let Some(driver) = self.driver.upgrade() {
            driver.drive(|state, now| state.core.withdraw(now, self.name.clone()));
        }
        // The closure of the program may drop it on this very thread.
        if let Some(thread) =
            self.thread.take().filter(|thread| thread.thread().id() != thread::current().id())
        {
            let _ = thread.join();
        }
    }
}

/// The thread of a member.
struct Looker {
    driver: Weak<Driver>,
    shared: Arc<Shared>,
    options: GrowthOptions,
    start: Box<dyn FnMut() -> io::Result<()> + Send>,
}

impl Looker {
    fn run(mut self) {
        while !self.shared.wait(self.options.look_every, |state| state.ended) {
            let Some(driver) = self.driver.upgrade() else { return };
            if driver.is_closed() {
                return;
            }
            self.look(&driver);
        }
    }

    fn look(&mut self, driver: &Arc<Driver>) {
        if !driver.has_lease() {
            return;
        }
        let members = driver.growing(&self.shared.fleet);
        let me = driver.state().core.me();
        let nodes = members.keys().copied().collect();
        if members.first_key_value().is_none_or(|(node, _)| *node != me) {
            return self.shared.state().member.pass_on(self.shared.now(), nodes);
        }
        let size = self.shared.state().member.begin(self.shared.now(), me, nodes);
        let ask = |(node, name): (&NodeId, &Name)| (*node, self.call(driver, name, LOAD, size));
        let asked: Vec<_> = members.iter().filter(|(node, _)| **node != me).map(ask).collect();
        let load = (self.shared.load)();
        let answers: Answers = asked.into_iter().map(|(node, call)| (node, answer(block(call)))).collect();
        // The calls took their time.
        if !driver.has_lease() {
            return;
        }
        let mut state = self.shared.state();
        let (step, decision) = state.member.decide(self.shared.now(), me, load, size, &answers);
        let may_leave = state.member.may_leave();
        drop(state);
        if may_leave {
            self.shared.changed.notify_all();
        }
        decision.into_iter().for_each(|decision| self.shared.record(decision));
        if step == Step::Start {
            let told = self.tell_of_start(driver, me);
            self.start_member(driver, me, told);
        }
        self.ask_to_leave(driver, &members);
    }

    /// Calls a member with a size.
    fn call(
        &self,
        driver: &Arc<Driver>,
        name: &Name,
        method: u64,
        size: Size,
    ) -> Taker<Result<Vec<u8>, Fate>> {
        let body = postcard::to_allocvec(&size).unwrap_or_default();
        driver.call(route(name, None, true), method, body, self.options.answer_limit())
    }

    /// Asks members to leave. Those that do not answer are asked again at the next look.
    fn ask_to_leave(&self, driver: &Arc<Driver>, members: &BTreeMap<NodeId, Name>) {
        let (to_ask, size) = self.shared.state().member.to_ask();
        for node in to_ask {
            let call = members.get(&node).map(|name| self.call(driver, name, LEAVE, size));
            if call.is_none_or(|call| matches!(block(call), Some(Ok(_)))) {
                self.shared.state().member.was_asked(node);
            }
        }
    }

    /// Tells the others that a member is about to be started (I4), and returns the size that they were told.
    /// Repeats it for those that do not answer, until they are gone, the start limit is over, or a later size
    /// is known.
    fn tell_of_start(&self, driver: &Arc<Driver>, me: NodeId) -> Size {
        let size = self.shared.state().member.size();
        let until = self.shared.now().saturating_add(self.options.start_limit);
        let mut told = BTreeSet::from([me]);
        loop {
            let mut others = driver.growing(&self.shared.fleet);
            others.retain(|node, _| !told.contains(node));
            let tell = |(node, name): (&NodeId, &Name)| (*node, self.call(driver, name, LOAD, size));
            let calls: Vec<_> = others.iter().map(tell).collect();
            for (node, call) in calls {
                if let Some(answer) = answer(block(call)) {
                    told.insert(node);
                    self.shared.state().member.hear(self.shared.now(), node, answer);
                }
            }
            let all = others.keys().all(|node| told.contains(node));
            let is_old = self.shared.state().member.size() != size;
            let is_over = all || is_old || driver.is_closed() || self.shared.now() >= until;
            if is_over || self.shared.wait(self.options.look_every, |state| state.ended) {
                return size;
            }
        }
    }

    /// Starts a member, if this one still decides by the size that it has told the others, and a member is
    /// still missing.
    fn start_member(&mut self, driver: &Arc<Driver>, me: NodeId, told: Size) {
        let members = driver.growing(&self.shared.fleet).into_keys().collect();
        // Without a lease, the members may be old.
        let has_lease = driver.has_lease();
        let mut state = self.shared.state();
        let starts = if has_lease && !state.ended {
            state.member.confirm_start(self.shared.now(), me, members, told)
        } else {
            state.member.withdraw_start();
            false
        };
        drop(state);
        if !starts {
            return self.record_start(GrowthReason::StartWithdrawn);
        }
        let failed = match catch_unwind(AssertUnwindSafe(&mut self.start)) {
            Ok(result) => result.is_err(),
            Err(payload) => {
                drop_payload(payload);
                true
            }
        };
        if failed {
            self.shared.state().member.start_failed(self.shared.now());
            self.record_start(GrowthReason::StartFailed);
        }
    }

    /// Records the end of the start that was decided last.
    fn record_start(&self, reason: GrowthReason) {
        let last = self.shared.state().history.back().copied();
        if let Some(last) = last {
            let at = self.shared.now();
            self.shared.record(GrowthDecision { at, action: GrowthAction::Keep, reason, ..last });
        }
    }
}

/// Reads the answer of a member.
fn answer(bytes: Option<Result<Vec<u8>, Fate>>) -> Option<Answer> {
    postcard::from_bytes(&bytes?.ok()?).ok()
}

impl Driver {
    /// Returns whether this node may serve.
    fn has_lease(&self) -> bool {
        self.state().core.group().may_serve(self.now())
    }

    /// Returns the members of a fleet that choose its size, and the names at which they are asked.
    fn growing(&self, fleet: &Name) -> BTreeMap<NodeId, Name> {
        let state = self.state();
        let directory = &state.core.group().directory;
        let is_part = |name: &Name| {
            let rest = name.as_str().strip_prefix(fleet.as_str()).and_then(|rest| rest.strip_prefix('/'));
            rest.and_then(|rest| rest.strip_prefix(PART)).is_some_and(|rest| rest.starts_with('/'))
        };
        let parts = directory.names().filter(|(name, _)| is_part(name));
        parts.filter_map(|(name, entry)| Some((entry.places.first()?.node, name.clone()))).collect()
    }
}
