//! Nodes: the members of a group, and its visitors.

mod driver;
mod growth;
mod key;
mod look;
mod mailboxes;
mod objects;
mod registry;
mod roster;
mod sender;
mod service;
mod show;
mod window;
mod wire;
mod workers;

pub use self::growth::{Growth, GrowthAction, GrowthDecision, GrowthOptions, GrowthReason, NodeLoad};
pub use self::key::{GroupKey, library_secret};
pub use self::mailboxes::NamedSendError;
pub use self::objects::{ExportError, NodeImportError};
pub use self::registry::{NodeInfo, nodes};
pub use self::roster::{MemberNumber, Roster, RosterMember, Seat};
pub use self::sender::{NamedSender, NamedSending};
pub use self::service::{Service, ServiceCall, ShardService};
pub use self::show::{GroupInfo, MemberInfo, ServiceInfo, ShardInfo};

use self::driver::{Driver, Frames, Kind};
use crate::capability::random;
use crate::protocol::{Core, NodeOptions, Registration, Request, Route, Timing};
use crate::transport::Receiver;
use crate::{Fate, Location, Name, NameCapability, NodeId, Refusal, Transport};
use squall_machine::ClusterSize;
use squall_sys::sync::{Condvar, MutexGuard, StdArc as Arc};
use std::fmt;
use std::future::Future;
use std::io;
use std::time::{Duration, Instant};

/// A transport carries frames of so many bytes.
const LARGEST_FRAME: usize = 1 << 20;
/// The most threads that run the services of a node, unless the builder says otherwise.
const WORKERS: usize = 64;

/// Makes nodes.
#[derive(Debug)]
#[must_use = "a builder makes a node by `found`, `join` or `visit`"]
pub struct NodeBuilder {
    key: GroupKey,
    location: Option<Location>,
    workers: usize,
}

impl NodeBuilder {
    /// Begins with the key of the node's group.
    pub fn new(key: GroupKey) -> NodeBuilder {
        NodeBuilder { key, location: None, workers: WORKERS }
    }

    /// Sets the number of the machine, and no part of it. Default: the identity of the running kernel.
    pub fn host(self, host: u64) -> NodeBuilder {
        self.location(Location::of_host(host))
    }

    /// Sets the location of the node. Calls and messages prefer near services.
    ///
    /// Default: the running kernel, and the NUMA node and last-level cache of the processors that the calling
    /// thread may use, if they belong to one. The threads of the node have the same processors. The members
    /// learn the location once, when the node joins.
    pub fn location(mut self, location: Location) -> NodeBuilder {
        self.location = Some(location);
        self
    }

    /// Sets the most threads that run services of the node. Default: 64. Threads are started while all others
    /// are busy.
    pub fn workers(mut self, workers: usize) -> NodeBuilder {
        self.workers = workers;
        self
    }

    /// Makes a new group of this node alone. The capability is the right to all names.
    ///
    /// A member that later loses all others looks for them at `seeds`.
    ///
    /// # Errors
    /// The transport cannot start, the system has no thread left, or it is not Linux.
    /// # Panics
    /// If the system has no random bytes.
    pub fn found(self, transport: impl Transport, seeds: &[&str]) -> io::Result<(Node, NameCapability)> {
        let key = random();
        let node = self.start(transport, true)?;
        let seeds = owned(seeds);
        node.0.drive(|state, now| state.core.found(now, key, seeds));
        Ok((node, NameCapability { name: Name::root(), key }))
    }

    /// Joins the group of the nodes at the endpoints `seeds`. Returns before the node is a member:
    /// [`Node::wait_joined`] waits.
    ///
    /// # Errors
    /// The transport cannot start, the system has no thread left, or it is not Linux.
    /// # Panics
    /// If the system has no random bytes.
    pub fn join(self, transport: impl Transport, seeds: &[&str]) -> io::Result<Node> {
        let node = self.start(transport, true)?;
        let seeds = owned(seeds);
        node.0.drive(|state, now| state.core.join(now, seeds));
        Ok(node)
    }

    /// Makes a node that calls services of the group of the nodes at `seeds`, and is no member. It can serve
    /// nothing.
    ///
    /// # Errors
    /// The transport cannot start, or the system has no thread left.
    /// # Panics
    /// If the system has no random bytes.
    pub fn visit(self, transport: impl Transport, seeds: &[&str]) -> io::Result<Node> {
        let node = self.start(transport, false)?;
        let seeds = owned(seeds);
        node.0.drive(|state, _| state.core.visit(seeds));
        Ok(node)
    }

    fn start(self, transport: impl Transport, joins: bool) -> io::Result<Node> {
        if joins && !cfg!(target_os = "linux") {
            // Elsewhere the clock of leases stops while the system is suspended.
            let text = "nodes of this system cannot be members; use `visit`";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        if transport.largest_frame() < LARGEST_FRAME {
            let text = "the transport carries no frames of 1 MiB; use another one";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let transport: Arc<dyn Transport> = Arc::new(transport);
        let location = self.location.unwrap_or_else(location);
        let options = NodeOptions {
            group: self.key.token(),
            endpoint: transport.endpoint(),
            location,
            timing: Timing::LOCAL,
        };
        let [seed, _] = [random(), 0].map(|number| number as u64);
        let driver = Driver::new(transport, self.workers, location.host, |now| Core::new(options, seed, now));
        let driver = Arc::new(driver);
        driver.transport.start(Receiver::new(Frames(Arc::downgrade(&driver))))?;
        let node = Node(driver);
        node.0.start_timer()?;
        node.0.state().number = Some(registry::add(&node.0));
        Ok(node)
    }
}

fn owned(seeds: &[&str]) -> Vec<String> {
    seeds.iter().map(|seed| (*seed).to_owned()).collect()
}

/// The location of the calling thread.
fn location() -> Location {
    let Ok(machine) = squall_machine::try_machine() else { return Location::of_host(host()) };
    let allowed = machine.thread_allowed();
    // A cluster is known by its first processor, which is the same one for all processes of the machine.
    let only = |size| {
        let clusters = machine.clusters(size);
        let mut used = allowed.iter().filter_map(|vp| clusters.get(vp));
        let cluster = used.next()?;
        let first = clusters.members(cluster).first()?;
        used.all(|other| other == cluster).then(|| u32::try_from(first.index()).ok())?
    };
    Location { host: host(), memory: only(ClusterSize::Node), cache: only(ClusterSize::Cache) }
}

/// A number of the running kernel: equal for all processes of a machine.
fn host() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let name: Result<Name, _> = format!("/{}", text.trim()).parse();
    name.map_or(0, |name| name.alias().0 as u64)
}

/// The form of a service under its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameOptions {
    several: bool,
    stateless: bool,
    in_place: bool,
}

impl NameOptions {
    /// One service alone has the name.
    pub fn new() -> NameOptions {
        NameOptions::default()
    }

    /// Several services may have the name. A client keeps to the nearest one (FO-09: MULTIPLE).
    pub fn several(mut self) -> NameOptions {
        self.several = true;
        self
    }

    /// Several services may have the name, and any may serve any call. A client spreads its calls over the
    /// nearest ones (FO-09: STATELESS).
    pub fn stateless(mut self) -> NameOptions {
        (self.several, self.stateless) = (true, true);
        self
    }

    /// Runs the calls of other nodes on the thread that receives them, which saves their hand-over to a
    /// worker. For a service that is quick, and neither waits nor calls other services. Calls of its own node
    /// run on workers.
    ///
    /// While it runs, the thread receives no other frames: over TCP, those of the calling node. A service
    /// that runs for long holds up its clients, and their nodes may take this one for dead. A call that the
    /// service makes may wait for a frame of that thread, and then lasts until its limit.
    ///
    /// [`serve`](Node::serve) and [`serve_object`](Node::serve_object) use the option, and others ignore it.
    ///
    /// # Example
    #[cfg_attr(all(target_os = "linux", not(miri)), doc = "```")]
    #[cfg_attr(not(all(target_os = "linux", not(miri))), doc = "```ignore")]
    /// use squall::fleet::{GroupKey, LocalNetwork, NameOptions, NodeBuilder, ServiceCall};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let network = LocalNetwork::new();
    /// let (node, root) = NodeBuilder::new(GroupKey::random()).found(network.bind("a")?, &[])?;
    /// let count = |call: ServiceCall<'_>| Some(vec![call.body.len() as u8]);
    /// node.serve(&"/count".parse()?, &root, NameOptions::new().in_place(), count)?;
    /// assert_eq!(node.call(&"/count".parse()?, 0, b"hello", Duration::from_secs(60))?, [5]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_place(mut self) -> NameOptions {
        self.in_place = true;
        self
    }

    /// Makes the kind of a service without shards.
    fn kind(self, service: Arc<dyn Service>) -> Kind {
        if self.in_place { Kind::InPlace(service) } else { Kind::Plain(service) }
    }
}

/// The reason why a node has not changed the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The directory refuses it.
    Refused(Refusal),
    /// The node is no member, or has left.
    NoMember,
    /// No leader answered in time. The change may come later.
    TimedOut,
    /// The system has no thread left for [`Node::grow`].
    NoThread,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Refused(refusal) => refusal.fmt(f),
            RequestError::NoMember => f.write_str("the node is no member of its group; join it first"),
            RequestError::NoThread => f.write_str(
                "the system has no thread left for the size of the fleet; end others, or raise the limit",
            ),
            RequestError::TimedOut => f.write_str(
                "no leader answered in time; the change may come later. Look at the key and the seeds, and whether \
                 most voters live",
            ),
        }
    }
}

impl std::error::Error for RequestError {}

/// A call that ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLost {
    /// The name that was called.
    pub name: Name,
    /// The reason.
    pub fate: Fate,
}

impl fmt::Display for CallLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.fate)
    }
}

impl std::error::Error for CallLost {}

/// The time that a change of the directory may take.
const REQUEST: Duration = Duration::from_secs(30);

/// A node of a group: it serves and calls services by their names.
///
/// The members of a group agree on a directory of names, and on the owner of each shard of a fleet. A member
/// that dies is removed, and its shards get other owners. A member that seems dead serves nothing, so a shard
/// never has two owners. A call runs at most once.
///
/// Dropping a node ends it at once, as a death would. [`leave`](Node::leave) moves its shards away first.
///
/// Source: Wentzlaff 2012, §3.2.3 and §3.2.4 (FO-08 to FO-14, FO-23).
///
/// # Cost
/// A timer thread, and up to 64 threads while services run. A member sends and receives about 20 frames a
/// second; the leader does so with each member.
/// # Examples
#[cfg_attr(all(target_os = "linux", not(miri)), doc = "```")]
#[cfg_attr(not(all(target_os = "linux", not(miri))), doc = "```ignore")]
/// use squall::fleet::{GroupKey, LocalNetwork, NameOptions, NodeBuilder, ServiceCall};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Three nodes of one process. `HostTransport` joins processes of a machine.
/// let network = LocalNetwork::new();
/// let key = GroupKey::random();
/// let (first, root) = NodeBuilder::new(key).found(network.bind("a")?, &[])?;
/// let second = NodeBuilder::new(key).join(network.bind("b")?, &["local/a"])?;
/// let client = NodeBuilder::new(key).visit(network.bind("c")?, &["local/a"])?;
///
/// second.wait_joined(Duration::from_secs(60))?;
/// let shout = |call: ServiceCall<'_>| Some(call.body.to_ascii_uppercase());
/// second.serve(&"/shout".parse()?, &root, NameOptions::new(), shout)?;
///
/// let reply = client.call(&"/shout".parse()?, 0, b"hello", Duration::from_secs(60))?;
/// assert_eq!(reply, b"HELLO");
/// # drop(first);
/// # Ok(())
/// # }
/// ```
pub struct Node(Arc<Driver>);

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("id", &self.id()).field("endpoint", &self.endpoint()).finish()
    }
}

impl Node {
    /// Returns the number of this node. A node that was removed and joined again has another one.
    pub fn id(&self) -> NodeId {
        self.0.state().core.me()
    }

    /// Returns the endpoint at which other nodes reach this one.
    pub fn endpoint(&self) -> String {
        self.0.transport.endpoint()
    }

    /// Returns whether the node is a member of its group now.
    pub fn is_member(&self) -> bool {
        self.0.state().core.group().is_member()
    }

    /// Waits until the node is a member.
    ///
    /// # Errors
    /// The time is over.
    pub fn wait_joined(&self, limit: Duration) -> Result<(), RequestError> {
        let joined = self.0.wait(limit, |state| state.core.group().is_member() || state.left);
        if joined && !self.0.state().left { Ok(()) } else { Err(RequestError::TimedOut) }
    }

    /// Serves a name. `parent` is the right to name services there, for example the one of
    /// [`found`](NodeBuilder::found). Returns the right to longer names, and to end this service.
    ///
    /// The node registers the service again if it was removed from the group and has joined again.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn serve(
        &self,
        name: &Name,
        parent: &NameCapability,
        options: NameOptions,
        service: impl Service,
    ) -> Result<NameCapability, RequestError> {
        self.register(name, parent, options, 0, options.kind(Arc::new(service)))
    }

    /// Joins, or begins, the fleet of a name. Its state lies in `shards` shards, which the members share
    /// evenly. All members give the same number.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn serve_shards(
        &self,
        name: &Name,
        parent: &NameCapability,
        shards: u32,
        service: impl ShardService,
    ) -> Result<NameCapability, RequestError> {
        let shards = shards.max(1);
        self.register(name, parent, NameOptions::new().several(), shards, Kind::Sharded(Arc::new(service)))
    }

    fn register(
        &self,
        name: &Name,
        parent: &NameCapability,
        options: NameOptions,
        shards: u32,
        kind: Kind,
    ) -> Result<NameCapability, RequestError> {
        let capability = NameCapability { name: name.clone(), key: random() };
        self.register_with(capability, parent, options, shards, kind)
    }

    /// Registers a service with this capability.
    fn register_with(
        &self,
        capability: NameCapability,
        parent: &NameCapability,
        options: NameOptions,
        shards: u32,
        kind: Kind,
    ) -> Result<NameCapability, RequestError> {
        // A random number: no other service of the group has it.
        let service = random() as u64 | 1;
        self.0.add_service(service, kind);
        let NameOptions { several, stateless, .. } = options;
        let NameCapability { name, key } = capability.clone();
        let registration = Registration {
            name,
            service,
            several,
            stateless,
            shards,
            roster: None,
            key,
            parent: parent.clone(),
            seen: None,
            register_at: 0,
        };
        self.keep_registered(registration).map(|()| capability)
    }

    /// Registers a service that was added. If that fails, the service is forgotten.
    fn keep_registered(&self, registration: Registration) -> Result<(), RequestError> {
        let (service, key) = (registration.service, registration.key);
        let capability = NameCapability { name: registration.name.clone(), key };
        let registered = self.ask(|core, now, ticket| core.register(now, ticket, registration));
        if let Err(error) = registered {
            if error == RequestError::TimedOut {
                // It must not come later: its capability is lost.
                self.0.drive(|state, now| state.core.withdraw(now, capability));
            }
            self.0.remove_service(service);
            return Err(error);
        }
        Ok(())
    }

    /// Ends the service of a capability. The shards of a fleet move to the other members first.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn end_service(&self, capability: &NameCapability) -> Result<(), RequestError> {
        let capability = capability.clone();
        self.ask(|core, now, ticket| core.request(now, ticket, Request::Unregister { capability }))
    }

    /// Claims all names below `name`. Only the holder of the capability, or of one below it, can use them
    /// (FO-10).
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn reserve(&self, name: &Name, parent: &NameCapability) -> Result<NameCapability, RequestError> {
        self.reserve_for(name, parent, false)
    }

    /// Claims all names below `name`, as one of several holders. Each call returns another capability, and
    /// [`end_reservation`](Node::end_reservation) ends one alone. The claim ends with the last one (FO-10:
    /// MULTIPLE).
    ///
    /// All holders may use the same names. `parent` is the right to make further holders; a capability of a
    /// holder is not.
    ///
    /// # Errors
    /// [`RequestError`]. [`Refusal::NameClash`] if [`reserve`](Node::reserve) has claimed the names.
    /// # Examples
    #[cfg_attr(all(target_os = "linux", not(miri)), doc = "```")]
    #[cfg_attr(not(all(target_os = "linux", not(miri))), doc = "```ignore")]
    /// use squall::fleet::{GroupKey, LocalNetwork, NodeBuilder};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let network = LocalNetwork::new();
    /// let (node, root) = NodeBuilder::new(GroupKey::random()).found(network.bind("a")?, &[])?;
    /// let disks = node.reserve_several(&"/disks".parse()?, &root)?;
    /// let guest = node.reserve_several(&"/disks".parse()?, &root)?;
    /// node.end_reservation(&guest)?;
    /// // The other holder goes on.
    /// node.reserve(&"/disks/first".parse()?, &disks)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve_several(
        &self,
        name: &Name,
        parent: &NameCapability,
    ) -> Result<NameCapability, RequestError> {
        self.reserve_for(name, parent, true)
    }

    fn reserve_for(
        &self,
        name: &Name,
        parent: &NameCapability,
        several: bool,
    ) -> Result<NameCapability, RequestError> {
        let key = random();
        let request = Request::Reserve { name: name.clone(), several, key, parent: parent.clone() };
        let capability = NameCapability { name: name.clone(), key };
        let reserved = self.ask(|core, now, ticket| core.request(now, ticket, request));
        if reserved == Err(RequestError::TimedOut) {
            // It must not come later: its capability is lost.
            let request = Request::Unreserve { capability: capability.clone(), if_unused: false };
            self.0.drive(|state, now| state.core.request(now, 0, request));
        }
        reserved.map(|()| capability)
    }

    /// Ends a claim, or the right of one of several holders. Names that exist below it stay.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn end_reservation(&self, capability: &NameCapability) -> Result<(), RequestError> {
        let request = Request::Unreserve { capability: capability.clone(), if_unused: false };
        self.ask(|core, now, ticket| core.request(now, ticket, request))
    }

    /// Ends a claim like [`end_reservation`](Node::end_reservation), but only while no name or claim exists
    /// below it. The group checks and ends it in one step, so no name comes in between.
    ///
    /// The right of one of several holders ends in any case, while another holder is left.
    ///
    /// # Errors
    /// [`RequestError`]. [`Refusal::InUse`] if names or claims exist below it: the claim stays.
    /// # Examples
    #[cfg_attr(all(target_os = "linux", not(miri)), doc = "```")]
    #[cfg_attr(not(all(target_os = "linux", not(miri))), doc = "```ignore")]
    /// use squall::fleet::{GroupKey, LocalNetwork, NodeBuilder, Refusal, RequestError};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let network = LocalNetwork::new();
    /// let (node, root) = NodeBuilder::new(GroupKey::random()).found(network.bind("a")?, &[])?;
    /// let disks = node.reserve(&"/disks".parse()?, &root)?;
    /// let first = node.reserve(&"/disks/first".parse()?, &disks)?;
    /// let in_use = Err(RequestError::Refused(Refusal::InUse));
    /// assert_eq!(node.end_reservation_if_unused(&disks), in_use);
    /// node.end_reservation_if_unused(&first)?;
    /// node.end_reservation_if_unused(&disks)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn end_reservation_if_unused(&self, capability: &NameCapability) -> Result<(), RequestError> {
        let request = Request::Unreserve { capability: capability.clone(), if_unused: true };
        self.ask(|core, now, ticket| core.request(now, ticket, request))
    }

    fn ask(&self, request: impl FnOnce(&mut Core, u64, u64)) -> Result<(), RequestError> {
        if self.0.state().left || !self.0.state().core.is_joining() {
            return Err(RequestError::NoMember);
        }
        match block_for(self.0.request(request), Some(REQUEST)) {
            None => Err(RequestError::TimedOut),
            Some(None) => Err(RequestError::NoMember),
            Some(Some(Ok(()))) => Ok(()),
            Some(Some(Err(refusal))) => Err(RequestError::Refused(refusal)),
        }
    }

    /// Calls a service, and blocks until its result is there. The call runs at most once.
    ///
    /// A node has at most 64 calls of one service or shard on their way. A further one waits until one of
    /// them ends, at most for its limit.
    ///
    /// # Errors
    /// [`CallLost`], which tells whether the call may have run.
    pub fn call(&self, name: &Name, method: u64, body: &[u8], limit: Duration) -> Result<Vec<u8>, CallLost> {
        self.call_route(route(name, None, false), method, body, limit)
    }

    /// Makes a call that may run twice. If a server is lost, the call goes to another one.
    ///
    /// # Errors
    /// [`CallLost`].
    pub fn call_repeatable(
        &self,
        name: &Name,
        method: u64,
        body: &[u8],
        limit: Duration,
    ) -> Result<Vec<u8>, CallLost> {
        self.call_route(route(name, None, true), method, body, limit)
    }

    /// Calls the owner of a shard of a fleet. The call runs at most once, also if the shard moves meanwhile.
    ///
    /// # Errors
    /// [`CallLost`]. [`Fate::OwnShard`] at once, if the thread runs a function of the same shard: the calls
    /// of a shard run one after the other. Two shards that call each other wait until their deadlines.
    pub fn call_shard(
        &self,
        name: &Name,
        shard: u32,
        method: u64,
        body: &[u8],
        limit: Duration,
    ) -> Result<Vec<u8>, CallLost> {
        self.call_route(route(name, Some(shard), false), method, body, limit)
    }

    /// Like [`call`](Node::call), but returns a future. Dropping it does not end the call.
    pub fn call_async(
        &self,
        name: &Name,
        method: u64,
        body: &[u8],
        limit: Duration,
    ) -> impl Future<Output = Result<Vec<u8>, CallLost>> + Send + use<> {
        let name = name.clone();
        let taker = self.0.call(route(&name, None, false), method, body.to_vec(), limit);
        async move { ended(&name, taker.await) }
    }

    fn call_route(
        &self,
        route: Route,
        method: u64,
        body: &[u8],
        limit: Duration,
    ) -> Result<Vec<u8>, CallLost> {
        let name = route.name.clone();
        if self.0.waits_for_itself(&route) {
            return Err(CallLost { name, fate: Fate::OwnShard });
        }
        let taker = self.0.call(route, method, body.to_vec(), limit);
        ended(&name, block(taker))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn route(name: &Name, shard: Option<u32>, repeatable: bool) -> Route {
    Route { name: name.clone(), shard, repeatable }
}

fn ended(name: &Name, result: Option<Result<Vec<u8>, Fate>>) -> Result<Vec<u8>, CallLost> {
    let result = result.unwrap_or(Err(Fate::TimedOut));
    result.map_err(|fate| CallLost { name: name.clone(), fate })
}

/// Waits for a future on this thread.
fn block<T>(future: impl Future<Output = T>) -> T {
    block_for(future, None).expect("a wait without a limit ends with a result")
}

/// Waits at a condition variable until `is_over`, at most for `limit`. Returns whether it is over.
fn wait_until<T>(
    changed: &Condvar,
    mut state: MutexGuard<'_, T>,
    limit: Duration,
    is_over: impl Fn(&T) -> bool,
) -> bool {
    let deadline = Instant::now().checked_add(limit);
    while !is_over(&state) {
        // A limit beyond the clock's end never passes.
        let left = squall_machine::park::time_left(deadline).unwrap_or(Duration::from_secs(3600));
        if left.is_zero() {
            return false;
        }
        state = match changed.wait_timeout(state, left) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        };
    }
    true
}

/// Waits for a future on this thread. With a limit, returns `None` if it passes first.
pub fn block_for<T>(future: impl Future<Output = T>, limit: Option<Duration>) -> Option<T> {
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut future = std::pin::pin!(future);
    let waker = squall_machine::unpark::Unpark::waker();
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        if let std::task::Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return Some(result);
        }
        match squall_machine::park::time_left(deadline) {
            None => squall_sys::sync::thread::park(),
            Some(left) if left.is_zero() => return None,
            Some(left) => squall_machine::unpark::park_for(left),
        }
    }
}
