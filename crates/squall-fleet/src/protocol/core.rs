//! One node: its part in the group, its services, and its calls.
//!
//! - I1. All that a node does follows from `receive`, `tick` and the calls of its driver, in their order.
//! - I2. A node acts on committed changes alone.
//! - I3. A node that was removed begins again under another number. It keeps no shard and no session, and
//!   registers its services again.

use super::calls::{Answer, CallId, Client, Fate, Key, Lookup, Part, Route};
use super::directory::{Entry, Request};
use super::frame::{Body, Frame, Position, State};
use super::group::{Group, Timing};
use super::name::{Name, NameAlias, NameCapability};
use super::serving::{self, Arrived, Handover, PIECE, Serving};
use super::{NodeId, Random, Refusal, Time};
use std::collections::{BTreeMap, VecDeque};

/// The most bytes of the arguments or of the result of a call.
pub(crate) const LARGEST_BODY: usize = (1 << 20) - 1024;
/// Between two attempts of a request, a question or a piece.
const AGAIN: Time = 100_000;
/// Entries that a client keeps, and endpoints that a node remembers.
const CACHED_MAX: usize = 4_096;
/// Earlier numbers that a node remembers.
const PAST_MAX: usize = 16;
/// The node at an endpoint, of a number that is not known yet.
const ANY: NodeId = NodeId(0);

/// A call that a service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunId(pub(crate) u64);

/// The options of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeOptions {
    pub(crate) group: u128,
    pub(crate) endpoint: String,
    pub(crate) host: u64,
    pub(crate) timing: Timing,
}

/// What the driver has to do, in this order.
#[derive(Debug, PartialEq)]
pub(crate) enum Output {
    Send {
        to: String,
        frame: Vec<u8>,
    },
    Run {
        run: RunId,
        service: u64,
        shard: Option<u32>,
        client: NodeId,
        method: u64,
        body: Vec<u8>,
    },
    /// Begin with an empty shard.
    Create {
        service: u64,
        shard: u32,
    },
    /// Begin with a shard that comes from another member.
    Import {
        service: u64,
        shard: u32,
        state: Vec<u8>,
    },
    /// Copy the state of a shard, and call [`Core::exported`]. No call of the shard runs.
    Export {
        service: u64,
        name: NameAlias,
        shard: u32,
        epoch: u64,
    },
    /// Forget a shard.
    Drop {
        service: u64,
        shard: u32,
    },
    Called {
        call: CallId,
        result: Result<Vec<u8>, Fate>,
    },
    /// The outcome of the request with this ticket.
    Requested {
        ticket: u64,
        outcome: Result<(), Refusal>,
    },
    Joined,
    /// The node was removed, and begins again as another one.
    Expelled,
    /// The node has left, or its group has ended.
    Left,
}

/// A service that this node keeps registered.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) name: Name,
    pub(crate) service: u64,
    pub(crate) several: bool,
    pub(crate) stateless: bool,
    pub(crate) shards: u32,
    pub(crate) key: u128,
    pub(crate) parent: NameCapability,
}

impl Registration {
    fn request(&self) -> Request {
        Request::Register {
            name: self.name.clone(),
            service: self.service,
            several: self.several,
            stateless: self.stateless,
            shards: self.shards,
            key: self.key,
            parent: self.parent.clone(),
        }
    }
}

/// The request that the leader is asked for.
#[derive(Debug)]
struct Pending {
    number: u64,
    request: Request,
    /// `None`: of the protocol itself.
    ticket: Option<u64>,
    send_at: Time,
}

/// Known nodes and entries.
#[derive(Debug, Default)]
struct Known {
    endpoints: BTreeMap<NodeId, (String, Option<u64>)>,
    entries: BTreeMap<NameAlias, (Entry, bool)>,
    /// Names to ask for, and when they were asked for.
    asked: BTreeMap<NameAlias, Time>,
}

/// Where a node looks names up: in the directory, or at a member.
struct Names<'a> {
    group: &'a Group,
    host: u64,
    known: &'a mut Known,
}

impl Lookup for Names<'_> {
    fn entry(&mut self, name: NameAlias) -> Option<Entry> {
        if self.group.is_member() {
            return self.group.directory.entry(name).map(|(_, entry)| entry.clone());
        }
        let entry = self.known.entries.get(&name);
        if entry.is_none_or(|(_, doubted)| *doubted) {
            self.known.asked.entry(name).or_insert(0);
        }
        entry.map(|(entry, _)| entry.clone())
    }

    fn doubt(&mut self, name: NameAlias) {
        if let Some((_, doubted)) = self.known.entries.get_mut(&name) {
            *doubted = true;
        }
    }

    fn distance(&self, node: NodeId) -> u8 {
        let member = self.group.directory.members.get(&node).map(|member| member.host);
        let host = member.or_else(|| self.known.endpoints.get(&node).and_then(|(_, host)| *host));
        if node == self.group.me {
            0
        } else if host == Some(self.host) {
            1
        } else {
            2
        }
    }
}

/// A node.
#[derive(Debug)]
pub(crate) struct Core {
    options: NodeOptions,
    random: Random,
    group: Group,
    serving: Serving,
    client: Client,
    known: Known,
    seeds: Vec<String>,
    /// It wants to be a member.
    joins: bool,
    join_at: Time,
    /// It has asked the node that another one took for the leader.
    asked: bool,
    leaves: bool,
    was_member: bool,
    /// Its earlier numbers.
    past: Vec<NodeId>,
    registrations: Vec<Registration>,
    /// When services that lost their names are registered again.
    register_at: Time,
    requests: VecDeque<(Option<u64>, Request)>,
    pending: Option<Pending>,
    last_number: u64,
    settled: Position,
    outputs: VecDeque<Output>,
    /// Frames to itself.
    loopback: VecDeque<Body>,
}

impl Core {
    /// A node that belongs to no group yet.
    pub(crate) fn new(options: NodeOptions, seed: u64, now: Time) -> Core {
        let mut random = Random::new(seed);
        let group = Group::new(NodeId(random.next() | 1), options.timing, Random::new(random.next()), now);
        let client = Client::new(Random::new(random.next()));
        Core {
            options,
            random,
            group,
            serving: Serving::default(),
            client,
            known: Known::default(),
            seeds: Vec::new(),
            joins: false,
            join_at: 0,
            asked: false,
            leaves: false,
            was_member: false,
            past: Vec::new(),
            registrations: Vec::new(),
            register_at: 0,
            requests: VecDeque::new(),
            pending: None,
            last_number: 0,
            settled: Position::default(),
            outputs: VecDeque::new(),
            loopback: VecDeque::new(),
        }
    }

    /// Makes a group of this node alone. `root` is the key of its root capability. It looks for the others at
    /// `seeds` if it loses them.
    pub(crate) fn found(&mut self, now: Time, root: u128, seeds: Vec<String>) {
        self.seeds = seeds;
        self.joins = true;
        self.group.found(now, root, self.options.endpoint.clone(), self.options.host);
        self.finish(now);
    }

    /// Joins the group of the nodes at these endpoints.
    pub(crate) fn join(&mut self, now: Time, seeds: Vec<String>) {
        self.seeds = seeds;
        self.joins = true;
        self.join_at = now;
        self.finish(now);
    }

    /// Calls services of the group of the nodes at these endpoints, and is no member.
    pub(crate) fn visit(&mut self, seeds: Vec<String>) {
        self.seeds = seeds;
    }

    pub(crate) fn me(&self) -> NodeId {
        self.group.me
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    pub(crate) fn running(&self) -> usize {
        self.serving.running()
    }

    /// Returns whether this node may run the calls of a shard now.
    pub(crate) fn owns(&self, now: Time, name: NameAlias, shard: u32) -> bool {
        let entry = self.group.directory.entry(name);
        let state = entry.and_then(|(_, entry)| entry.shards.get(shard as usize));
        self.group.may_serve(now)
            && state.is_some_and(|state| {
                let local = self.serving.shards.get(&(name, shard));
                serving::is_settled_on(state, self.group.me)
                    && local.is_some_and(|l| l.handover.is_none() && l.abandoned != Some(state.epoch))
            })
    }

    /// Keeps a service registered. The first outcome comes with the ticket.
    pub(crate) fn register(&mut self, now: Time, ticket: u64, registration: Registration) {
        self.requests.push_back((Some(ticket), registration.request()));
        self.registrations.push(registration);
        self.finish(now);
    }

    /// Makes a request once.
    pub(crate) fn request(&mut self, now: Time, ticket: u64, request: Request) {
        if let Request::Unregister { capability } = &request {
            self.registrations.retain(|kept| kept.key != capability.key);
        }
        self.requests.push_back((Some(ticket), request));
        self.finish(now);
    }

    /// Leaves in two phases: the services lose their names and shards, then the node is removed.
    pub(crate) fn leave(&mut self, now: Time) {
        if !std::mem::replace(&mut self.leaves, true) {
            self.registrations.clear();
            self.requests.push_back((None, Request::Leave));
        }
        self.finish(now);
    }

    /// Begins a call. A call of a node that has left fails.
    pub(crate) fn call(
        &mut self,
        now: Time,
        route: Route,
        method: u64,
        body: Vec<u8>,
        deadline: Time,
    ) -> CallId {
        let call = self.client.begin(now, route, method, body, deadline);
        self.finish(now);
        call
    }

    /// Ends all calls of this node.
    pub(crate) fn close(&mut self, now: Time) {
        self.client.close();
        self.finish(now);
    }

    /// Notes the result of a call that a service has run. `None`: the service dropped it.
    pub(crate) fn completed(&mut self, now: Time, run: RunId, result: Option<Vec<u8>>) {
        let answer = match result {
            Some(bytes) if bytes.len() > LARGEST_BODY => Answer::TooLarge,
            Some(bytes) => Answer::Result(bytes),
            None => Answer::Dropped,
        };
        if let Some((client, key, session, number)) = self.serving.complete(run, answer) {
            // Without a lease, another node may own the state (serving: I4).
            let answers = match key.part {
                Part::Service(_) => true,
                Part::Shard(shard) => {
                    let entry = self.group.directory.entry(key.name);
                    let owner = entry.and_then(|(_, entry)| entry.shards.get(shard as usize)?.owner);
                    owner == Some(self.group.me) && self.group.may_serve(now)
                }
            };
            if answers && let Some(answer) = self.serving.answer(session, number).cloned() {
                self.send(client, Body::Answered { session, number, answer });
            }
        }
        self.hand_over(now);
        self.finish(now);
    }

    /// Takes the state of a shard that [`Output::Export`] has asked for.
    pub(crate) fn exported(&mut self, now: Time, name: NameAlias, shard: u32, epoch: u64, service: Vec<u8>) {
        let sessions = self.serving.sessions_of(name, shard);
        let state = State { service, sessions };
        if let Some(local) = self.serving.shards.get_mut(&(name, shard))
            && let Some(handover) = &mut local.handover
            && handover.epoch == epoch
        {
            handover.bytes = Some(postcard::to_allocvec(&state).unwrap_or_default());
            handover.send_at = now;
        }
        self.hand_over(now);
        self.finish(now);
    }

    /// Notes that a node is dead for certain.
    pub(crate) fn died(&mut self, now: Time, node: NodeId) {
        self.note_death(now, node);
        self.finish(now);
    }

    fn note_death(&mut self, now: Time, node: NodeId) {
        self.group.died(now, node);
        let (client, mut names) = self.client_and_names();
        client.lost(now, node, &mut names);
    }

    /// The time of the next [`tick`](Core::tick).
    pub(crate) fn wake_at(&self) -> Time {
        let pending = self.pending.as_ref().filter(|_| self.group.is_member());
        let pending = pending.map_or(Time::MAX, |pending| pending.send_at);
        let join = if self.joins { self.join_at } else { Time::MAX };
        let asks = self.known.asked.values().map(|at| at + AGAIN).min().unwrap_or(Time::MAX);
        let handovers = self.serving.shards.values().filter_map(|local| local.handover.as_ref());
        let hand = handovers.map(|handover| handover.send_at).min().unwrap_or(Time::MAX);
        [pending, join, asks, hand, self.group.wake_at(), self.client.wake_at()]
            .into_iter()
            .min()
            .unwrap_or(0)
    }

    pub(crate) fn tick(&mut self, now: Time) {
        self.group.tick(now);
        if self.joins && now >= self.join_at {
            self.look_for_group(now);
        }
        self.hand_over(now);
        self.finish(now);
    }

    pub(crate) fn take_outputs(&mut self) -> VecDeque<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Receives a frame. `from` is the endpoint to answer to. A frame of another group, of another version,
    /// or for another node, changes nothing.
    pub(crate) fn receive(&mut self, now: Time, from: &str, bytes: &[u8]) {
        let Some(frame) = Frame::decode(bytes) else { return };
        let me = self.group.me;
        if frame.group == self.options.group && self.past.contains(&frame.to) {
            self.remember(frame.from, from);
            return self.send(frame.from, Body::Ended { node: frame.to });
        }
        if frame.group != self.options.group || (frame.to != me && frame.to != ANY) || frame.from == me {
            return;
        }
        self.remember(frame.from, from);
        self.handle(now, frame.from, frame.body);
        self.finish(now);
    }

    fn remember(&mut self, node: NodeId, endpoint: &str) {
        let endpoints = &mut self.known.endpoints;
        if let Some((old, _)) = endpoints.get_mut(&node) {
            if old != endpoint {
                endpoint.clone_into(old);
            }
            return;
        }
        if endpoints.len() >= CACHED_MAX {
            endpoints.pop_first();
        }
        endpoints.insert(node, (endpoint.to_owned(), None));
    }

    fn endpoint(&self, node: NodeId) -> Option<&str> {
        let member = self.group.directory.members.get(&node).map(|member| &*member.endpoint);
        member.or_else(|| self.known.endpoints.get(&node).map(|(endpoint, _)| &**endpoint))
    }

    fn send(&mut self, to: NodeId, body: Body) {
        if to == self.group.me {
            self.loopback.push_back(body);
        } else if let Some(endpoint) = self.endpoint(to) {
            let to_endpoint = endpoint.to_owned();
            self.send_to(to_endpoint, to, body);
        }
    }

    fn send_to(&mut self, endpoint: String, to: NodeId, body: Body) {
        let frame = Frame::new(self.options.group, self.group.me, to, body).encode();
        self.outputs.push_back(Output::Send { to: endpoint, frame });
    }

    fn handle(&mut self, now: Time, from: NodeId, body: Body) {
        match body {
            Body::Join { endpoint, host } => self.receive_join(now, from, endpoint, host),
            Body::Ask { node, endpoint } => {
                self.remember(node, &endpoint);
                // Two nodes that each take the other one for the leader get one answer.
                if self.joins && !std::mem::replace(&mut self.asked, true) {
                    let body = self.question();
                    self.send_to(endpoint, node, body);
                }
            }
            Body::Seek { .. } => {
                if !self.group.is_leader() {
                    self.name_leader(from);
                } else if !self.group.directory.members.contains_key(&from) {
                    self.send(from, Body::NoMember { committed: self.group.committed() });
                }
            }
            Body::NoMember { committed } => {
                let behind = committed > self.group.committed();
                let outside = self.joins && !self.group.is_member();
                if outside || (self.group.is_member() && behind && !self.group.is_leader()) {
                    self.begin_again(now);
                }
            }
            Body::Ended { node } => {
                self.note_death(now, node);
            }
            Body::Propose { number, request } => {
                if self.group.directory.members.contains_key(&from) {
                    self.group.propose(now, from, number, request);
                }
            }
            Body::Resolve { name } => self.resolve(from, name),
            Body::Resolved { name, entry, nodes } => {
                for (node, endpoint, host) in nodes {
                    self.remember(node, &endpoint);
                    if let Some((_, known)) = self.known.endpoints.get_mut(&node) {
                        *known = Some(host);
                    }
                }
                self.known.asked.insert(name, now);
                if entry.is_some() {
                    self.known.asked.remove(&name);
                }
                if self.known.entries.len() >= CACHED_MAX {
                    self.known.entries.pop_first();
                }
                match entry {
                    Some(entry) => drop(self.known.entries.insert(name, (entry, false))),
                    None => drop(self.known.entries.remove(&name)),
                }
                self.client.hurry(now);
            }
            Body::Open { key, nonce } => {
                let session = match self.serves(now, key) {
                    true => self.serving.open(now, from, nonce, key, self.random.next()),
                    false => Err(Answer::NotHere),
                };
                self.send(from, Body::Opened { key, nonce, session });
            }
            Body::Opened { key, nonce, session } => {
                let (client, mut names) = self.client_and_names();
                client.opened(now, key, nonce, session, &mut names);
            }
            Body::Call { key, session, number, low, method, body } => {
                self.receive_call(now, from, key, session, number, low, method, body);
            }
            Body::Answered { session, number, answer } => {
                let (client, mut names) = self.client_and_names();
                client.answered(now, from, session, number, answer, &mut names);
            }
            Body::Handover { name, shard, epoch, piece, pieces, bytes } => {
                let entry = self.group.directory.entry(name);
                let state = entry.and_then(|(_, entry)| entry.shards.get(shard as usize)).copied();
                let expected = state.is_some_and(|state| {
                    state.epoch == epoch && state.target == Some(self.group.me) && state.owner == Some(from)
                });
                if expected && self.serving.take_piece((name, shard), epoch, piece, pieces, &bytes) {
                    self.send(from, Body::Taken { name, shard, epoch, piece });
                }
            }
            Body::Taken { name, shard, epoch, piece } => {
                if let Some(local) = self.serving.shards.get_mut(&(name, shard))
                    && let Some(handover) = &mut local.handover
                    && (handover.epoch, handover.piece) == (epoch, piece)
                {
                    handover.piece += 1;
                    handover.send_at = now;
                    self.hand_over(now);
                }
            }
            body => self.group.receive(now, from, body),
        }
    }

    fn client_and_names(&mut self) -> (&mut Client, Names<'_>) {
        let names = Names { group: &self.group, host: self.options.host, known: &mut self.known };
        (&mut self.client, names)
    }

    fn receive_join(&mut self, now: Time, from: NodeId, endpoint: String, host: u64) {
        if self.group.was_removed(from) {
            // It was added once, and did not hear of it in time.
            self.send(from, Body::NoMember { committed: self.group.committed() });
        } else if !self.group.admit(now, from, endpoint, host) {
            self.name_leader(from);
        }
    }

    /// Tells a node that looks for the leader.
    fn name_leader(&mut self, from: NodeId) {
        let leader = self.group.leader().filter(|_| self.group.is_member());
        if let Some(leader) = leader.filter(|leader| *leader != from)
            && let Some(endpoint) = self.endpoint(leader).map(str::to_owned)
        {
            self.send(from, Body::Ask { node: leader, endpoint });
        }
    }

    fn resolve(&mut self, from: NodeId, name: NameAlias) {
        if !self.group.is_member() {
            return;
        }
        let entry = self.group.directory.entry(name).map(|(_, entry)| entry.clone());
        let of_shards = entry.iter().flat_map(|entry| entry.shards.iter().filter_map(|shard| shard.owner));
        let of_places = entry.iter().flat_map(|entry| entry.places.iter().map(|place| place.node));
        let members = &self.group.directory.members;
        let mut nodes: Vec<NodeId> = of_places.chain(of_shards).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let address = |node: NodeId| members.get(&node).map(|m| (node, m.endpoint.clone(), m.host));
        let nodes = nodes.into_iter().filter_map(address).collect();
        self.send(from, Body::Resolved { name, entry, nodes });
    }

    /// Returns whether this node serves a key now.
    fn serves(&self, now: Time, key: Key) -> bool {
        match key.part {
            Part::Shard(shard) => self.owns(now, key.name, shard),
            Part::Service(service) => {
                let place = |entry: &Entry| {
                    entry.places.iter().any(|place| place.node == self.group.me && place.service == service)
                };
                // Also calls that were sent before it lost its name.
                self.group.directory.entry(key.name).is_some_and(|(_, entry)| place(entry))
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one frame")]
    fn receive_call(
        &mut self,
        now: Time,
        from: NodeId,
        key: Key,
        session: u64,
        number: u64,
        low: u64,
        method: u64,
        body: Vec<u8>,
    ) {
        let arrived = match self.serves(now, key) {
            true => self.serving.arrive(now, from, key, session, number, low),
            false => Arrived::Answer(Answer::NotHere),
        };
        match arrived {
            Arrived::Ignore => {}
            Arrived::Answer(answer) => self.send(from, Body::Answered { session, number, answer }),
            Arrived::Run { run, service, client } => {
                let shard = match key.part {
                    Part::Shard(shard) => Some(shard),
                    Part::Service(_) => None,
                };
                self.outputs.push_back(Output::Run { run, service, shard, client, method, body });
            }
        }
    }

    /// Asks the nodes that it knows for the group: to join it, or since its leader is silent.
    fn look_for_group(&mut self, now: Time) {
        let timing = self.options.timing;
        self.asked = false;
        self.join_at = now + timing.loyal / 2 + self.random.below(timing.loyal / 2);
        let is_member = self.group.is_member();
        if is_member && self.group.silence(now) < timing.lease {
            return;
        }
        let body = self.question();
        let members = self.group.directory.members.iter();
        let others = members.filter(|(node, _)| **node != self.group.me);
        let others: Vec<(NodeId, String)> =
            others.map(|(node, member)| (*node, member.endpoint.clone())).collect();
        for (node, endpoint) in others {
            self.send_to(endpoint, node, body.clone());
        }
        for seed in self.seeds.clone() {
            if seed != self.options.endpoint {
                self.send_to(seed, ANY, body.clone());
            }
        }
    }

    fn question(&self) -> Body {
        if self.group.is_member() {
            Body::Seek { committed: self.group.committed() }
        } else {
            Body::Join { endpoint: self.options.endpoint.clone(), host: self.options.host }
        }
    }

    /// Begins again as another node (I3).
    fn begin_again(&mut self, now: Time) {
        let members = self.group.directory.members.iter();
        let others = members.filter(|(node, _)| **node != self.group.me);
        for endpoint in others.map(|(_, member)| member.endpoint.clone()) {
            if !self.seeds.contains(&endpoint) && self.seeds.len() < 64 {
                self.seeds.push(endpoint);
            }
        }
        if self.past.len() >= PAST_MAX {
            self.past.remove(0);
        }
        self.past.push(self.group.me);
        let me = NodeId(self.random.next() | 1);
        let random = Random::new(self.random.next());
        self.group = Group::new(me, self.options.timing, random, now);
        self.drop_shards();
        self.serving = Serving::default();
        // A request that may be applied already is asked for again: its keys tell.
        if let Some(pending) = self.pending.take()
            && pending.ticket.is_some()
        {
            self.requests.push_front((pending.ticket, pending.request));
        }
        self.last_number = 0;
        self.settled = Position::default();
        self.was_member = false;
        self.join_at = now;
        self.outputs.push_back(Output::Expelled);
        if self.leaves {
            self.end();
        }
    }

    fn drop_shards(&mut self) {
        let shards: Vec<(NameAlias, u32)> = self.serving.shards.keys().copied().collect();
        for (name, shard) in shards {
            if let Some(local) = self.serving.end(name, shard) {
                self.outputs.push_back(Output::Drop { service: local.service, shard });
            }
        }
    }

    fn end(&mut self) {
        self.joins = false;
        self.drop_shards();
        for (ticket, _) in self.requests.drain(..) {
            if let Some(ticket) = ticket {
                self.outputs.push_back(Output::Requested { ticket, outcome: Err(Refusal::NoSuchName) });
            }
        }
        self.outputs.push_back(Output::Left);
    }

    /// Does all that follows from the last event.
    fn finish(&mut self, now: Time) {
        loop {
            self.settle(now);
            self.advance_requests(now);
            let (client, mut names) = self.client_and_names();
            client.tick(now, &mut names);
            for (call, result) in std::mem::take(&mut self.client.done) {
                self.outputs.push_back(Output::Called { call, result });
            }
            for (to, body) in std::mem::take(&mut self.client.out) {
                self.send(to, body);
            }
            for (to, body) in self.group.take_frames() {
                self.send(to, body);
            }
            self.ask_for_names(now);
            let Some(body) = self.loopback.pop_front() else { break };
            self.handle(now, self.group.me, body);
        }
    }

    fn ask_for_names(&mut self, now: Time) {
        if self.known.asked.is_empty() || self.group.is_member() {
            return self.known.asked.clear();
        }
        let client = &self.client;
        self.known.asked.retain(|name, _| client.calls_name(*name));
        let due: Vec<NameAlias> =
            self.known.asked.iter().filter(|(_, at)| now >= **at + AGAIN).map(|(name, _)| *name).collect();
        for name in due {
            self.known.asked.insert(name, now);
            // A seed, or a node that has answered before.
            let known = self.known.endpoints.values().filter(|(_, host)| host.is_some());
            let contacts: Vec<String> =
                self.seeds.iter().cloned().chain(known.map(|(endpoint, _)| endpoint.clone())).collect();
            if !contacts.is_empty() {
                let at = usize::try_from(self.random.below(contacts.len() as u64)).unwrap_or(0);
                self.send_to(contacts[at].clone(), ANY, Body::Resolve { name });
            }
        }
    }

    /// Acts on the changes that were committed since the last time (I2).
    fn settle(&mut self, now: Time) {
        if self.group.committed() == self.settled {
            return;
        }
        self.settled = self.group.committed();
        let is_member = self.group.is_member();
        if is_member && !self.was_member {
            self.was_member = true;
            self.outputs.push_back(Output::Joined);
        }
        if !is_member && self.was_member {
            self.was_member = false;
            match self.leaves {
                true => self.end(),
                false => return self.begin_again(now),
            }
        }
        self.settle_shards(now);
        let members = &self.group.directory.members;
        let lost = self.client.servers().filter(|node| !members.contains_key(node) && is_member);
        for node in lost.collect::<Vec<_>>() {
            let (client, mut names) = self.client_and_names();
            client.lost(now, node, &mut names);
        }
        self.client.hurry(now);
    }

    fn settle_shards(&mut self, now: Time) {
        let me = self.group.me;
        let directory = &self.group.directory;
        let state = |name: NameAlias, shard: u32| {
            directory.entry(name).and_then(|(_, entry)| entry.shards.get(shard as usize)).copied()
        };
        // Shards that went away, or whose state began anew.
        let local = self.serving.shards.iter();
        let gone: Vec<(NameAlias, u32)> = local
            .filter(|((name, shard), local)| {
                state(*name, *shard).is_none_or(|state| state.owner != Some(me) || state.born != local.born)
            })
            .map(|(at, _)| *at)
            .collect();
        for (name, shard) in gone {
            if let Some(local) = self.serving.end(name, shard) {
                self.outputs.push_back(Output::Drop { service: local.service, shard });
            }
        }
        let mine: Vec<(NameAlias, u32, u64, super::directory::Shard)> = (directory.names())
            .flat_map(|(name, entry)| {
                let service = entry.place_of(me).map_or(0, |place| place.service);
                let shards = (0u32..).zip(&entry.shards);
                let owned = shards.filter(|(_, shard)| shard.owner == Some(me));
                owned.map(move |(number, shard)| (name.alias(), number, service, *shard))
            })
            .collect();
        for (name, shard, service, state) in mine {
            if !self.serving.shards.contains_key(&(name, shard)) {
                self.serving.begin(name, shard, state.born, service);
                let incoming = self.serving.incoming.remove(&(name, shard));
                let handed =
                    incoming.filter(|incoming| incoming.is_complete() && incoming.epoch >= state.born);
                let handed = handed.and_then(|incoming| postcard::from_bytes::<State>(&incoming.bytes).ok());
                match handed {
                    Some(State { service: bytes, sessions }) => {
                        self.serving.adopt(now, sessions);
                        self.outputs.push_back(Output::Import { service, shard, state: bytes });
                    }
                    None => self.outputs.push_back(Output::Create { service, shard }),
                }
            }
        }
        let directory = &self.group.directory;
        self.serving.incoming.retain(|(name, shard), incoming| {
            let state = directory.entry(*name).and_then(|(_, entry)| entry.shards.get(*shard as usize));
            state.is_some_and(|state| state.target == Some(me) && state.epoch == incoming.epoch)
        });
        self.hand_over(now);
    }

    /// Moves the shards that have a target: exports each one, and sends its pieces.
    fn hand_over(&mut self, now: Time) {
        let directory = &self.group.directory;
        let mut frames = Vec::new();
        for ((name, shard), local) in &mut self.serving.shards {
            let state = directory.entry(*name).and_then(|(_, entry)| entry.shards.get(*shard as usize));
            let Some(state) = state.filter(|state| state.target.is_some()) else {
                // The move was given up: it serves again.
                local.handover = None;
                continue;
            };
            let to = state.target.unwrap_or(ANY);
            if local.handover.as_ref().is_none_or(|handover| handover.epoch != state.epoch) {
                let handover = Handover { epoch: state.epoch, to, bytes: None, piece: 0, send_at: Time::MAX };
                local.handover = Some(handover);
                // Exported below, once no call runs.
            }
            let Some(handover) = &mut local.handover else { continue };
            if let Some(bytes) = &handover.bytes
                && now >= handover.send_at
            {
                handover.send_at = now + AGAIN;
                let pieces = Handover::pieces(bytes);
                let start = handover.piece as usize * PIECE;
                if handover.piece < pieces {
                    let piece = &bytes[start..bytes.len().min(start + PIECE)];
                    let body = Body::Handover {
                        name: *name,
                        shard: *shard,
                        epoch: handover.epoch,
                        piece: handover.piece,
                        pieces,
                        bytes: piece.to_vec(),
                    };
                    frames.push((handover.to, body));
                } else {
                    // All pieces are there. The target asks the leader.
                    handover.send_at = Time::MAX;
                }
            }
        }
        for (to, body) in frames {
            self.send(to, body);
        }
        let ready: Vec<(NameAlias, u32)> = (self.serving.shards.iter())
            .filter(|((name, shard), local)| {
                let asked = |handover: &Handover| handover.bytes.is_none() && handover.piece == 0;
                local.handover.as_ref().is_some_and(asked) && self.serving.is_idle(*name, *shard)
            })
            .map(|(at, _)| *at)
            .collect();
        for (name, shard) in ready {
            let Some(local) = self.serving.shards.get_mut(&(name, shard)) else { continue };
            let Some(handover) = &mut local.handover else { continue };
            // Marks it as asked for.
            handover.bytes = Some(Vec::new());
            handover.send_at = Time::MAX;
            let (service, epoch) = (local.service, handover.epoch);
            self.outputs.push_back(Output::Export { service, name, shard, epoch });
        }
    }

    /// Brings the next request to the leader, until its outcome is in the directory.
    fn advance_requests(&mut self, now: Time) {
        let me = self.group.me;
        let Some(member) = self.group.directory.members.get(&me) else { return };
        if let Some(pending) = &self.pending
            && member.request >= pending.number
        {
            let outcome = member.outcome;
            if let Some(Pending { ticket, request, .. }) = self.pending.take() {
                if let Request::Register { key, .. } = request
                    && outcome.is_err()
                {
                    match ticket {
                        Some(_) => self.registrations.retain(|kept| kept.key != key),
                        None => self.register_at = now + self.options.timing.lease,
                    }
                }
                if let Some(ticket) = ticket {
                    self.outputs.push_back(Output::Requested { ticket, outcome });
                }
            }
        }
        if self.pending.is_none() {
            let Some((ticket, request)) = self.next_request(now) else { return };
            self.last_number += 1;
            self.pending = Some(Pending { number: self.last_number, request, ticket, send_at: now });
        }
        let Some(pending) = &mut self.pending else { return };
        if now < pending.send_at {
            return;
        }
        pending.send_at = now + AGAIN;
        let (number, request) = (pending.number, pending.request.clone());
        if !self.group.propose(now, me, number, request.clone())
            && let Some(leader) = self.group.leader()
        {
            self.send(leader, Body::Propose { number, request });
        }
    }

    /// The next request: a shard that has arrived, a request of the driver, or a service that is not
    /// registered.
    fn next_request(&mut self, now: Time) -> Option<(Option<u64>, Request)> {
        let directory = &self.group.directory;
        let arrived = self.serving.incoming.iter().find(|((name, shard), incoming)| {
            let state = directory.entry(*name).and_then(|(_, entry)| entry.shards.get(*shard as usize));
            let current = |state: &super::directory::Shard| {
                state.epoch == incoming.epoch && state.target == Some(self.group.me)
            };
            incoming.is_complete() && state.is_some_and(current)
        });
        if let Some(((name, shard), incoming)) = arrived {
            let request = Request::Moved { name: *name, shard: *shard, epoch: incoming.epoch };
            return Some((None, request));
        }
        if let Some(request) = self.requests.pop_front() {
            return Some(request);
        }
        // A shard of a leaver that no other member can take.
        for ((name, shard), local) in &mut self.serving.shards {
            if let Some((_, entry)) = directory.entry(*name)
                && entry.is_last(self.group.me)
                && let Some(state) = entry.shards.get(*shard as usize)
                && serving::is_settled_on(state, self.group.me)
            {
                local.abandoned = Some(state.epoch);
                let request = Request::Abandon { name: *name, shard: *shard, epoch: state.epoch };
                return Some((None, request));
            }
        }
        if now < self.register_at {
            return None;
        }
        let registered = |kept: &Registration| {
            let entry = directory.entry(kept.name.alias());
            entry.is_some_and(|(_, entry)| {
                entry.places.iter().any(|place| place.key == kept.key && place.node == self.group.me)
            })
        };
        let missing = self.registrations.iter().find(|kept| !registered(kept))?;
        Some((None, missing.request()))
    }
}
