//! The driver of a node's state machine: it gives it the time and the frames, and executes its outputs.
//!
//! Problem: calls, frames and timers come on many threads. The machine is one state.
//! Idea: the machine lies under one lock, and each thread that has an event runs it. Its outputs are executed
//! after the lock: the same thread sends the frames, and the [workers](super::workers) run the services.
//!
//! - I1. The outputs for one shard are executed in their order: they enter the shard's lane under the lock.
//! - I2. No user code, and no transport, runs under the lock.
//! - I3. A worker is woken after the lock, which it takes first.
//! - I4. The timer thread sleeps until the machine's next time. If an event makes it earlier, its
//!   thread wakes the timer thread.
//! - I5. A panic of the program's code ends one output alone. A frame in a transport that panics is lost.
//!
//! Cost: two locks and the machine's maps for each call, beside the transport. A service costs the hand-over
//! to a worker, unless it runs [in place](super::NameOptions::in_place).

use super::growth::NodeLoad;
use super::mailboxes::ServedMailbox;
use super::roster::ServedMember;
use super::service::{Service, ServiceCall, ShardService};
use super::workers::Workers;
use super::{registry, wait_until};
use crate::handover::{Giver, Taker, handover};
use crate::protocol::{CallId, Core, Directory, NodeFigures, Output, Route, RunId, Time};
use crate::transport::Receive;
use crate::{Fate, NodeId, Refusal, Transport};
use squall_sys::fork::forked;
use squall_sys::panics::{drop_payload, end_panic};
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use squall_sys::sync::{Condvar, Mutex, MutexGuard, StdArc as Arc, Weak, lock, thread};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
#[cfg(not(target_os = "linux"))]
use std::time::Instant;

type Result<T, E = Fate> = std::result::Result<T, E>;

/// A service of this node.
#[derive(Clone)]
pub(super) enum Kind {
    Plain(Arc<dyn Service>),
    /// A service that the thread which received the call runs.
    InPlace(Arc<dyn Service>),
    Sharded(Arc<dyn ShardService>),
    Mailbox(Arc<ServedMailbox>),
    Member(Arc<ServedMember>),
}

/// The receiver of a call's result. Its drop ends the call without a result.
pub(super) trait Caller: Send {
    fn end(self: Box<Self>, result: Result<Vec<u8>>);
}

impl Caller for Giver<Result<Vec<u8>>> {
    fn end(self: Box<Self>, result: Result<Vec<u8>>) {
        self.give(result);
    }
}

/// Work at a time of the node's clock.
pub(super) trait Alarm: Send + Sync {
    fn ring(self: Arc<Self>);
}

pub(super) struct State {
    pub(super) core: Core,
    services: HashMap<u64, Kind>,
    calls: HashMap<CallId, Box<dyn Caller>>,
    /// By their times, and the numbers of their owners.
    alarms: BTreeMap<(Time, usize), Weak<dyn Alarm>>,
    requests: HashMap<u64, Giver<Result<(), Refusal>>>,
    /// Questions without an answer, by ticket.
    pub(super) shows: HashMap<u64, Giver<(Option<NodeId>, Directory)>>,
    pub(super) looks: HashMap<u64, (NodeId, Giver<NodeFigures>)>,
    last_ticket: u64,
    /// Its number in the list of nodes, once it is in it.
    pub(super) number: Option<u64>,
    /// The next tick that the timer thread knows of.
    tick_at: Time,
    pub(super) left: bool,
    /// The transport is stopped.
    pub(super) closed: bool,
}

pub(super) struct Driver {
    pub(super) transport: Arc<dyn Transport>,
    state: Mutex<State>,
    /// The node joined or left, or its next tick is earlier.
    changed: Condvar,
    pub(super) workers: Workers,
    /// The number of the machine.
    pub(super) host: u64,
    clock: Clock,
    /// Calls that services have begun to run.
    runs: AtomicU64,
}

/// Microseconds of a clock that runs while the system is suspended: a lease must end there, too.
#[derive(Debug)]
struct Clock {
    #[cfg(not(target_os = "linux"))]
    start: Instant,
}

impl Clock {
    fn new() -> Clock {
        Clock {
            #[cfg(not(target_os = "linux"))]
            start: Instant::now(),
        }
    }

    #[cfg(target_os = "linux")]
    fn now(&self) -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        seconds * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000
    }

    #[cfg(not(target_os = "linux"))]
    fn now(&self) -> Time {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(Time::MAX)
    }
}

/// A call that a service is to run.
struct Begun {
    run: RunId,
    shard: Option<u32>,
    client: NodeId,
    method: u64,
    body: Vec<u8>,
}

std::thread_local! {
    /// The node, service and shard of the function that this thread runs.
    static RUNS: Cell<Option<(usize, u64, u32)>> = const { Cell::new(None) };
}

/// The time in which this thread runs a function of a shard, until it is dropped.
struct RunsShard {
    /// The work of another node may run inside a function.
    before: Option<(usize, u64, u32)>,
}

impl RunsShard {
    fn begin(driver: &Driver, service: u64, shard: u32) -> RunsShard {
        RunsShard { before: RUNS.replace(Some((driver.address(), service, shard))) }
    }
}

impl Drop for RunsShard {
    fn drop(&mut self) {
        RUNS.set(self.before);
    }
}

std::thread_local! {
    /// Whether this thread runs a service in place. Calls that it receives meanwhile go to workers, so the
    /// stack has one service.
    static RUNS_IN_PLACE: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread brings a frame of the transport. Others may hold locks that a service takes.
    static RECEIVES: Cell<bool> = const { Cell::new(false) };
}

/// The time in which this thread runs a service in place, until it is dropped.
struct RunsInPlace;

impl RunsInPlace {
    fn begin() -> RunsInPlace {
        RUNS_IN_PLACE.set(true);
        RunsInPlace
    }
}

impl Drop for RunsInPlace {
    fn drop(&mut self) {
        RUNS_IN_PLACE.set(false);
    }
}

/// Work after the lock.
enum Deed {
    Send {
        to: String,
        frame: Vec<u8>,
    },
    Complete(Box<dyn Caller>, Result<Vec<u8>>),
    Ring(Arc<dyn Alarm>),
    Decide(Giver<Result<(), Refusal>>, Result<(), Refusal>),
    Show(Giver<(Option<NodeId>, Directory)>, (Option<NodeId>, Directory)),
    Look(Giver<NodeFigures>, NodeFigures),
    /// Wakes a worker (I3).
    Wake,
    /// Runs a service on this thread.
    Run(Kind, Begun),
    /// Drops a service, which is the program's code (I2).
    Forget(Kind),
    /// The node has left, and its last frames are sent.
    Leave,
}

impl State {
    pub(super) fn next_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    /// Returns the time of the next tick.
    fn wake_at(&self) -> Time {
        let alarm = self.alarms.first_key_value().map(|((at, _), _)| *at);
        self.core.wake_at().min(alarm.unwrap_or(Time::MAX))
    }

    /// Returns the number of alarms.
    #[cfg(test)]
    pub(super) fn alarms(&self) -> usize {
        self.alarms.len()
    }

    /// Returns a service of this node.
    pub(super) fn service(&self, number: u64) -> Option<&Kind> {
        self.services.get(&number)
    }

    /// Removes a service that has lost its name. A fleet stays, since it still gives its shards away.
    fn forget(&mut self, number: u64) -> Option<Kind> {
        let stays = matches!(self.services.get(&number), Some(Kind::Sharded(_)));
        if stays { None } else { self.services.remove(&number) }
    }

    /// Returns the number of services.
    #[cfg(test)]
    pub(super) fn services(&self) -> usize {
        self.services.len()
    }
}

impl Driver {
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        workers: usize,
        host: u64,
        make: impl FnOnce(Time) -> Core,
    ) -> Driver {
        let clock = Clock::new();
        let core = make(clock.now());
        let state = State {
            core,
            services: HashMap::new(),
            calls: HashMap::new(),
            alarms: BTreeMap::new(),
            requests: HashMap::new(),
            shows: HashMap::new(),
            looks: HashMap::new(),
            last_ticket: 0,
            number: None,
            tick_at: Time::MAX,
            left: false,
            closed: false,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let (workers, runs) = (Workers::new(workers), AtomicU64::new(0));
        Driver { transport, state, changed, workers, host, clock, runs }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state, "the state of a node")
    }

    /// Returns the time of the machine.
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Returns the load of the node's services.
    pub(super) fn load(&self) -> NodeLoad {
        let refused = self.state().core.refused();
        // Relaxed: a count.
        NodeLoad { calls: self.runs.load(Ordering::Relaxed), waiting: self.workers.waiting(), refused }
    }

    /// Gives the machine an event, and executes its outputs.
    pub(super) fn drive<R>(self: &Arc<Self>, event: impl FnOnce(&mut State, Time) -> R) -> R {
        let mut state = self.state();
        let now = self.clock.now();
        let result = event(&mut state, now);
        let mut deeds = Vec::new();
        for output in state.core.take_outputs() {
            self.take(&mut state, output, &mut deeds);
        }
        while let Some(alarm) = state.alarms.first_entry().filter(|alarm| alarm.key().0 <= now) {
            deeds.extend(alarm.remove().upgrade().map(Deed::Ring));
        }
        let next = state.wake_at();
        let wakes = next < state.tick_at;
        if wakes {
            state.tick_at = next;
        }
        drop(state);
        if wakes {
            self.changed.notify_all();
        }
        self.workers.help();
        // Last, so that the other deeds do not wait for a service.
        let mut runs = Vec::new();
        for deed in deeds {
            // A panic, of a transport for example, ends this deed alone (I5).
            end_panic(|| match deed {
                Deed::Send { to, frame } => self.transport.send(&to, &frame),
                Deed::Complete(caller, result) => caller.end(result),
                Deed::Ring(alarm) => alarm.ring(),
                Deed::Decide(giver, outcome) => giver.give(outcome),
                Deed::Show(giver, shown) => giver.give(shown),
                Deed::Look(giver, figures) => giver.give(figures),
                Deed::Wake => self.workers.wake(),
                Deed::Run(kind, call) => runs.push((kind, call)),
                Deed::Forget(service) => drop(service),
                Deed::Leave => {
                    self.state().left = true;
                    self.changed.notify_all();
                }
            });
        }
        for (kind, call) in runs {
            // A panic ends the call alone.
            end_panic(|| {
                let _runs = RunsInPlace::begin();
                self.run(Some(kind), &call);
            });
        }
        result
    }

    fn take(self: &Arc<Self>, state: &mut State, output: Output, deeds: &mut Vec<Deed>) {
        match output {
            Output::Send { to, frame } => deeds.push(Deed::Send { to, frame }),
            Output::Run { run, service, shard, client, method, body } => {
                let call = Begun { run, shard, client, method, body };
                self.begin_run(state, service, call, deeds);
            }
            Output::Create { service, shard } => {
                self.with_shards(state, deeds, service, shard, move |service, _| service.create(shard));
            }
            Output::Import { service, shard, state: bytes } => {
                self.with_shards(state, deeds, service, shard, move |service, _| {
                    service.import(shard, &bytes)
                });
            }
            Output::Drop { service, shard } => {
                self.with_shards(state, deeds, service, shard, move |service, _| service.forget(shard));
            }
            Output::Export { service, name, shard, epoch } => {
                self.with_shards(state, deeds, service, shard, move |service, driver| {
                    let bytes = catch_unwind(AssertUnwindSafe(|| service.export(shard)));
                    driver.drive(|state, now| match bytes {
                        Ok(bytes) => state.core.exported(now, name, shard, epoch, bytes),
                        Err(payload) => {
                            drop_payload(payload);
                            state.core.export_failed(now, name, shard, epoch);
                        }
                    });
                });
            }
            Output::Called { call, result } => {
                if let Some(caller) = state.calls.remove(&call) {
                    deeds.push(Deed::Complete(caller, result));
                }
            }
            Output::Requested { ticket, outcome } => {
                if let Some(giver) = state.requests.remove(&ticket) {
                    deeds.push(Deed::Decide(giver, outcome));
                }
            }
            Output::Roster { service, news } => {
                self.with_member(state, service, move |served| served.take(news), deeds);
            }
            Output::Peer { service, from, bytes } => {
                self.with_member(state, service, move |served| served.receive(from, &bytes), deeds);
            }
            Output::Forget { service } => deeds.extend(state.forget(service).map(Deed::Forget)),
            Output::Shown { leader, directory } => {
                for (_, giver) in state.shows.drain() {
                    deeds.push(Deed::Show(giver, (leader, directory.clone())));
                }
            }
            Output::Looked { node, figures } => {
                let answered = state.looks.extract_if(|_, (asked, _)| *asked == node);
                deeds.extend(answered.map(|(_, (_, giver))| Deed::Look(giver, (*figures).clone())));
            }
            Output::Joined => self.changed.notify_all(),
            Output::Left => {
                let members = state.services.extract_if(|_, kind| matches!(kind, Kind::Member(_)));
                deeds.extend(members.map(|(_, member)| Deed::Forget(member)));
                deeds.push(Deed::Leave);
            }
        }
    }

    /// Runs a function of a roster's member, after those before it.
    fn with_member(
        self: &Arc<Self>,
        state: &State,
        service: u64,
        work: impl FnOnce(&ServedMember) + Send + 'static,
        deeds: &mut Vec<Deed>,
    ) {
        if let Some(Kind::Member(served)) = state.services.get(&service).cloned()
            && self.workers.queue(Some((service, 0)), Box::new(move || work(&served)))
        {
            deeds.push(Deed::Wake);
        }
    }

    /// Gives a call to a worker, or to this thread after the lock.
    fn begin_run(self: &Arc<Self>, state: &State, service: u64, call: Begun, deeds: &mut Vec<Deed>) {
        let kind = state.services.get(&service).cloned();
        if let Some(kind @ Kind::InPlace(_)) = &kind
            && RECEIVES.get()
            && !RUNS_IN_PLACE.get()
        {
            return deeds.push(Deed::Run(kind.clone(), call));
        }
        let shard = call.shard;
        let lane = match &kind {
            Some(Kind::Mailbox(mailbox)) => Some(mailbox.lane()),
            _ => shard.map(|shard| (service, shard)),
        };
        let driver = self.clone();
        let work = move || {
            let _runs = shard.map(|shard| RunsShard::begin(&driver, service, shard));
            driver.run(kind, &call);
        };
        if self.workers.queue(lane, Box::new(work)) {
            deeds.push(Deed::Wake);
        }
    }

    fn with_shards(
        self: &Arc<Self>,
        state: &State,
        deeds: &mut Vec<Deed>,
        service: u64,
        shard: u32,
        work: impl FnOnce(&dyn ShardService, &Arc<Driver>) + Send + 'static,
    ) {
        if let Some(Kind::Sharded(kind)) = state.services.get(&service).cloned() {
            let driver = self.clone();
            let work = move || {
                let _runs = RunsShard::begin(&driver, service, shard);
                work(&*kind, &driver);
            };
            if self.workers.queue(Some((service, shard)), Box::new(work)) {
                deeds.push(Deed::Wake);
            }
        }
    }

    /// Runs a call of a service, and gives the machine its result. A panic drops the call.
    fn run(self: &Arc<Self>, kind: Option<Kind>, begun: &Begun) {
        let Begun { run, shard, client, method, ref body } = *begun;
        if !self.drive(|state, now| state.core.may_start(now, run)) {
            return;
        }
        // Relaxed: a count.
        self.runs.fetch_add(1, Ordering::Relaxed);
        let mut end = EndOfRun { driver: self, run, result: None };
        let call = ServiceCall { client, method, body };
        end.result = match (kind, shard) {
            (Some(Kind::Plain(service) | Kind::InPlace(service)), None) => service.call(call),
            (Some(Kind::Sharded(service)), Some(shard)) => service.call(shard, call),
            (Some(Kind::Mailbox(mailbox)), None) => mailbox.deliver(self, method, body),
            _ => None,
        };
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns whether this thread runs a function of the shard that a call goes to. The call would begin
    /// after that function.
    pub(super) fn waits_for_itself(&self, route: &Route) -> bool {
        let Some((driver, service, shard)) = RUNS.get() else { return false };
        if driver != self.address() || route.shard != Some(shard) {
            return false;
        }
        let state = self.state();
        let group = state.core.group();
        let entry = group.directory.entry(route.name.alias());
        let place = entry.and_then(|(_, entry)| entry.place_of(group.me));
        place.is_some_and(|place| place.service == service)
    }

    pub(super) fn call(
        self: &Arc<Self>,
        route: Route,
        method: u64,
        body: Vec<u8>,
        limit: Duration,
    ) -> Taker<Result<Vec<u8>>> {
        let (giver, taker) = handover();
        self.begin(route, method, body, limit, Box::new(giver));
        taker
    }

    /// Begins a call. Its caller gets the result, perhaps on this thread.
    pub(super) fn begin(
        self: &Arc<Self>,
        route: Route,
        method: u64,
        body: Vec<u8>,
        limit: Duration,
        caller: Box<dyn Caller>,
    ) {
        let mut caller = Some(caller);
        self.drive(|state, now| {
            if !state.closed
                && !forked()
                && let Some(caller) = caller.take()
            {
                let limit = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
                let call = state.core.call(now, route, method, body, now.saturating_add(limit));
                state.calls.insert(call, caller);
            }
        });
        // Not under the lock (I2).
        if let Some(refused) = caller {
            refused.end(Err(Fate::Closed));
        }
    }

    /// Sets the alarm of an owner, in place of the one at another time.
    pub(super) fn set_alarm(&self, owner: usize, before: Option<Time>, at: Time, alarm: Weak<dyn Alarm>) {
        let mut state = self.state();
        if let Some(before) = before {
            state.alarms.remove(&(before, owner));
        }
        state.alarms.insert((at, owner), alarm);
        let wakes = at < state.tick_at;
        if wakes {
            state.tick_at = at;
        }
        drop(state);
        if wakes {
            self.changed.notify_all();
        }
    }

    pub(super) fn remove_alarm(&self, owner: usize, at: Time) {
        self.state().alarms.remove(&(at, owner));
    }

    /// Makes a request of the directory.
    pub(super) fn request(
        self: &Arc<Self>,
        request: impl FnOnce(&mut Core, Time, u64),
    ) -> Taker<Result<(), Refusal>> {
        let (giver, taker) = handover();
        self.drive(|state, now| {
            let ticket = state.next_ticket();
            state.requests.insert(ticket, giver);
            request(&mut state.core, now, ticket);
        });
        taker
    }

    /// Forgets a service that was not registered.
    pub(super) fn remove_service(&self, number: u64) {
        let service = self.state().services.remove(&number);
        drop(service);
    }

    /// Adds a service before its name is registered.
    pub(super) fn add_service(&self, number: u64, kind: Kind) {
        self.state().services.insert(number, kind);
    }

    /// Waits until `is_over`. Returns false if the limit passes first.
    pub(super) fn wait(&self, limit: Duration, is_over: impl Fn(&State) -> bool) -> bool {
        wait_until(&self.changed, self.state(), limit, is_over)
    }

    /// Runs the machine for a thread without a caller. After a panic, which is a fault of the machine, the
    /// node ends: its calls and waits end, and it sends no more frames.
    fn guard(&self, run: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            drop_payload(payload);
            let mut state = self.state();
            (state.closed, state.left) = (true, true);
            let calls = std::mem::take(&mut state.calls);
            let requests = std::mem::take(&mut state.requests);
            let questions = (std::mem::take(&mut state.shows), std::mem::take(&mut state.looks));
            drop(state);
            drop((calls, requests, questions));
            self.changed.notify_all();
        }
    }

    /// Ends the transport, the calls and the threads.
    pub(super) fn close(self: &Arc<Self>) {
        let mut state = self.state();
        let closed = std::mem::replace(&mut state.closed, true);
        let number = state.number.take();
        drop(state);
        // The threads and connections are those of the parent.
        if closed || forked() {
            return;
        }
        number.into_iter().for_each(registry::remove);
        self.drive(|state, now| state.core.close(now));
        self.transport.stop();
        self.workers.end(Duration::from_secs(10));
        let mut state = self.state();
        let services = std::mem::take(&mut state.services);
        let requests = std::mem::take(&mut state.requests);
        let questions = (std::mem::take(&mut state.shows), std::mem::take(&mut state.looks));
        drop(state);
        // Without a result: the node is closed.
        drop((requests, questions, services));
        self.changed.notify_all();
    }

    /// The timer thread of the node (I4). Ends with the node.
    pub(super) fn start_timer(self: &Arc<Self>) -> std::io::Result<thread::JoinHandle<()>> {
        let driver = Arc::downgrade(self);
        thread::Builder::new().name("squall-fleet-timer".into()).spawn(move || tick(&driver))
    }
}

/// The longest sleep of a timer thread: it holds no node alive.
const NAP: Duration = Duration::from_secs(1);

fn tick(driver: &Weak<Driver>) {
    // A service would hold up the timers.
    let _no_service = RunsInPlace::begin();
    while let Some(driver) = driver.upgrade() {
        let mut state = driver.state();
        if state.closed {
            return;
        }
        let now = driver.clock.now();
        if state.wake_at() <= now {
            drop(state);
            driver.guard(|| {
                driver.drive(|state, now| {
                    state.core.tick(now);
                    state.tick_at = Time::MAX;
                });
            });
            continue;
        }
        state.tick_at = state.wake_at();
        let left = Duration::from_micros(state.tick_at - now).min(NAP);
        let waited = driver.changed.wait_timeout(state, left);
        drop(waited);
    }
}

/// The end of a run, also by a panic.
struct EndOfRun<'a> {
    driver: &'a Arc<Driver>,
    run: RunId,
    result: Option<Vec<u8>>,
}

impl Drop for EndOfRun<'_> {
    fn drop(&mut self) {
        let (run, result) = (self.run, self.result.take());
        self.driver.drive(|state, now| state.core.completed(now, run, result));
    }
}

/// The receiver of a node's frames. It does not keep the node alive.
pub(super) struct Frames(pub(super) Weak<Driver>);

impl Receive for Frames {
    fn receive(&self, from: &str, frame: &[u8]) {
        if let Some(driver) = self.0.upgrade() {
            let before = RECEIVES.replace(true);
            driver.guard(|| driver.drive(|state, now| state.core.receive(now, from, frame)));
            RECEIVES.set(before);
        }
    }

    fn ended(&self, endpoint: &str) {
        if let Some(driver) = self.0.upgrade() {
            driver.guard(|| driver.drive(|state, now| state.core.endpoint_ended(now, endpoint)));
        }
    }
}
