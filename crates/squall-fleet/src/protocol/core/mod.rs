//! One node: its part in the group, its services, and its calls.
//!
//! - I1. All that a node does follows from `receive`, `tick` and the calls of its driver, in their order.
//! - I2. A node acts on committed changes alone.
//! - I3. A node that was removed begins again under another number. It keeps no shard and no session, and
//!   registers its services again.
//! - I4. A frame of a member that came from the endpoint of another member is dropped.

mod look;
mod names;
mod output;
mod requests;
mod rosters;
mod sessions;
mod shards;

use self::names::{Known, Names};
pub(crate) use self::output::{News, Output, Registration, Roster};
use self::rosters::LocalMember;
use super::answer::{Answer, Key, Part};
use super::calls::{CallId, Client, Route};
use super::directory::{Directory, Entry, Request};
use super::figures::Counts;
use super::frame::{Body, Frame, Position, State};
use super::group::{ENDPOINT_BYTES_MAX, Group, Timing};
use super::guard::Guard;
use super::location::Location;
use super::name::NameAlias;
use super::serving::{self, Arrived, Handover, Serving};
use super::{AGAIN, LARGEST_BODY, NodeId, Random, Refusal, RunId, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Entries that a client keeps, and endpoints that a node remembers.
const CACHED_MAX: usize = 4_096;
/// Earlier numbers that a node remembers.
const PAST_MAX: usize = 16;
/// The node at an endpoint, of a number that is not known yet.
const ANY: NodeId = NodeId(0);

/// The options of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeOptions {
    pub(crate) group: u128,
    pub(crate) endpoint: String,
    pub(crate) location: Location,
    pub(crate) timing: Timing,
}

/// The request that the leader is asked for.
#[derive(Debug)]
struct Pending {
    number: u64,
    request: Request,
    /// Without a ticket, the request is one of the protocol.
    ticket: Option<u64>,
    send_at: Time,
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
    /// Whether it wants to be a member.
    joins: bool,
    join_at: Time,
    /// Whether it has asked the node that another one took for the leader.
    asked: bool,
    leaves: bool,
    /// Whether it has left. It is silent then, but for the results of calls that still run.
    ended: bool,
    was_member: bool,
    /// Its earlier numbers.
    past: Vec<NodeId>,
    registrations: Vec<Registration>,
    /// Members of rosters, by their services.
    rosters: BTreeMap<u64, LocalMember>,
    /// Services that give their names up: keys and numbers.
    ending: Vec<(u128, u64)>,
    requests: VecDeque<(Option<u64>, Request)>,
    pending: Option<Pending>,
    last_number: u64,
    settled: Position,
    outputs: VecDeque<Output>,
    counts: Counts,
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
            ended: false,
            was_member: false,
            past: Vec::new(),
            registrations: Vec::new(),
            rosters: BTreeMap::new(),
            ending: Vec::new(),
            requests: VecDeque::new(),
            pending: None,
            last_number: 0,
            settled: Position::default(),
            outputs: VecDeque::new(),
            counts: Counts::default(),
            loopback: VecDeque::new(),
        }
    }

    /// Makes a group of this node alone. `root` is the key of its root capability. It looks for the others at
    /// `seeds` if it loses them.
    pub(crate) fn found(&mut self, now: Time, root: u128, seeds: Vec<String>) {
        self.seeds = seeds;
        self.joins = true;
        self.group.found(now, root, self.options.endpoint.clone(), self.options.location);
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

    /// Returns whether it is a member or will be one.
    pub(crate) fn is_joining(&self) -> bool {
        self.joins && !self.leaves
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

    /// Returns the calls and sessions that were refused since the node had too many.
    pub(crate) fn refused(&self) -> u64 {
        self.serving.refused
    }

    /// Returns whether this node may run the calls of a shard now.
    pub(crate) fn owns(&self, now: Time, name: NameAlias, shard: u32) -> bool {
        let state = self.group.directory.shard(name, shard);
        Guard::LeaseToRun.or(self.group.may_serve(now))
            && state.is_some_and(|state| {
                let local = self.serving.shards.get(&(name, shard));
                let settled = serving::is_settled_on(state, self.group.me)
                    || (Guard::NoRunInHandover.is_removed() && state.owner == Some(self.group.me));
                settled
                    && local.is_some_and(|local| {
                        Guard::NoRunInHandover.or(local.handover.is_none())
                            && Guard::NoRunOnceAbandoned.or(local.abandoned != Some(state.epoch))
                    })
            })
    }

    /// Keeps a service registered. The first outcome comes with the ticket.
    pub(crate) fn register(&mut self, now: Time, ticket: u64, registration: Registration) {
        if registration.roster.is_some() {
            self.rosters.insert(registration.service, LocalMember::new(registration.name.alias()));
        }
        self.requests.push_back((Some(ticket), registration.request()));
        self.registrations.push(registration);
        self.finish(now);
    }

    /// Makes a request once.
    pub(crate) fn request(&mut self, now: Time, ticket: u64, request: Request) {
        if let Request::Unregister { capability } = &request {
            self.give_up(capability.key);
        }
        self.requests.push_back((Some(ticket), request));
        self.finish(now);
    }

    /// Leaves in two phases: the services lose their names and shards, then the node is removed.
    pub(crate) fn leave(&mut self, now: Time) {
        if !std::mem::replace(&mut self.leaves, true) {
            self.registrations.clear();
            self.requests.push_back((None, Request::Leave));
            if !self.group.is_member() {
                self.end(now);
            }
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

    /// Notes the result of a call. Without one, the service dropped the call.
    pub(crate) fn completed(&mut self, now: Time, run: RunId, result: Option<Vec<u8>>) {
        let answer = match result {
            Some(bytes) if bytes.len() > LARGEST_BODY => Answer::TooLarge,
            Some(bytes) => Answer::Result(bytes),
            None => Answer::Dropped,
        };
        if let Some((client, key, session, number)) = self.serving.complete(run, answer)
            && Guard::LeaseToAnswer.or(self.answers(now, key))
            && let Some(answer) = self.serving.answer(session, number).cloned()
        {
            self.send(client, Body::Answered { session, number, answer });
        }
        self.hand_over(now);
        self.finish(now);
    }

    /// Returns whether a service may begin with a call now. Else the call is refused: since it arrived, the
    /// shard has moved, or the lease has ended.
    pub(crate) fn may_start(&mut self, now: Time, run: RunId) -> bool {
        let Some(key) = self.serving.key(run) else { return false };
        if Guard::LeaseToRun.or(self.answers(now, key)) {
            self.counts.add_served();
            return true;
        }
        if let Some((client, session, number)) = self.serving.cancel(run) {
            self.send(client, Body::Answered { session, number, answer: Answer::NotHere });
        }
        self.hand_over(now);
        self.finish(now);
        false
    }

    /// Returns whether results of a key may leave this node: without a lease, another node may own the state.
    fn answers(&self, now: Time, key: Key) -> bool {
        let directory = &self.group.directory;
        match key.part {
            Part::Service(_) => {
                directory.entry(key.name).is_none_or(|(_, entry)| entry.several) || self.group.may_serve(now)
            }
            Part::Shard(shard) => {
                let owner = directory.shard(key.name, shard).and_then(|state| state.owner);
                owner == Some(self.group.me) && self.group.may_serve(now)
            }
        }
    }

    /// Notes that a service could not export a shard. It is asked again after a pause.
    pub(crate) fn export_failed(&mut self, now: Time, name: NameAlias, shard: u32, epoch: u64) {
        if let Some(local) = self.serving.shards.get_mut(&(name, shard))
            && let Some(handover) = &mut local.handover
            && handover.epoch == epoch
        {
            handover.bytes = None;
            handover.send_at = now + self.options.timing.lease;
        }
        self.finish(now);
    }

    /// Takes the state of a shard that [`Output::Export`] has asked for.
    pub(crate) fn exported(&mut self, now: Time, name: NameAlias, shard: u32, epoch: u64, service: Vec<u8>) {
        let mut sessions = self.serving.sessions_of(name, shard);
        if Guard::SessionsTravel.is_removed() {
            sessions.clear();
        }
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

    /// Notes that the node at an endpoint is dead for certain.
    pub(crate) fn endpoint_ended(&mut self, now: Time, endpoint: &str) {
        // Only nodes that were heard from that run: the endpoint may have another node by now.
        let heard = self.known.heard.iter().filter(|(_, from)| *from == endpoint).map(|(node, _)| *node);
        for node in heard.collect::<Vec<_>>() {
            self.known.heard.remove(&node);
            self.known.endpoints.remove(&node);
            self.note_death(now, node);
        }
        self.finish(now);
    }

    /// Notes that a node is dead for certain.
    #[cfg(test)]
    pub(crate) fn died(&mut self, now: Time, node: NodeId) {
        self.note_death(now, node);
        self.finish(now);
    }

    fn note_death(&mut self, now: Time, node: NodeId) {
        self.counts.note_death(node);
        self.group.died(now, node);
        let (client, mut names) = self.client_and_names();
        client.lost(now, node, &mut names);
    }

    /// The time of the next [`tick`](Core::tick).
    pub(crate) fn wake_at(&self) -> Time {
        if self.ended {
            return self.client.wake_at();
        }
        let pending = self.pending.as_ref().filter(|_| self.group.is_member());
        let pending = pending.map_or(Time::MAX, |pending| pending.send_at);
        let join = if self.joins { self.join_at } else { Time::MAX };
        let asks = self.known.asked.values().map(|at| at + AGAIN).min().unwrap_or(Time::MAX);
        let moving = self.serving.moving.iter().filter_map(|at| self.serving.shards.get(at));
        let handovers = moving.filter_map(|local| {
            // The end of the last call begins the export.
            let waits = |handover: &&Handover| handover.bytes.is_some() || !local.is_running();
            local.handover.as_ref().filter(waits)
        });
        let hand = handovers.map(|handover| handover.send_at).min().unwrap_or(Time::MAX);
        [pending, join, asks, hand, self.group.wake_at(), self.client.wake_at()]
            .into_iter()
            .min()
            .unwrap_or(0)
    }

    pub(crate) fn tick(&mut self, now: Time) {
        if self.ended {
            self.client.close();
            return self.finish_calls();
        }
        self.group.tick(now);
        if self.joins && now >= self.join_at {
            self.look_for_group(now);
        }
        self.hand_over(now);
        self.finish(now);
    }

    pub(crate) fn take_outputs(&mut self) -> VecDeque<Output> {
        let outputs = std::mem::take(&mut self.outputs);
        outputs.iter().for_each(|output| self.counts.add(output));
        outputs
    }

    /// Receives a frame. `from` is the endpoint to answer to. A frame of another group, of another version,
    /// or for another node, changes nothing.
    pub(crate) fn receive(&mut self, now: Time, from: &str, bytes: &[u8]) {
        let speaks = |frame: &Frame| self.group.directory.may_speak(frame.from, from);
        let Some(frame) = Frame::decode(bytes).filter(speaks) else { return };
        let me = self.group.me;
        if self.ended && frame.to == me && !self.past.contains(&me) {
            self.past.push(me);
        }
        let tells_end = matches!(frame.body, Body::Ended { .. });
        if frame.group == self.options.group && self.past.contains(&frame.to) && !tells_end {
            self.remember(frame.from, from);
            return self.send(frame.from, Body::Ended { node: frame.to });
        }
        if self.ended {
            return;
        }
        if frame.group != self.options.group || (frame.to != me && frame.to != ANY) || frame.from == me {
            return;
        }
        self.remember(frame.from, from);
        self.known.hear(frame.from, from);
        if let Body::Ended { node } = frame.body {
            // Only the endpoint of the node itself can tell.
            if self.group.directory.members.get(&node).is_some_and(|member| member.endpoint == from) {
                self.note_death(now, node);
            }
        } else {
            self.handle(now, frame.from, frame.body);
        }
        self.finish(now);
    }

    fn remember(&mut self, node: NodeId, endpoint: &str) {
        if endpoint.len() > ENDPOINT_BYTES_MAX {
            return;
        }
        let endpoints = &mut self.known.endpoints;
        if let Some((old, _)) = endpoints.get_mut(&node) {
            endpoint.clone_into(old);
            return;
        }
        if endpoints.len() >= CACHED_MAX {
            endpoints.pop_first();
        }
        endpoints.insert(node, (endpoint.to_owned(), None));
    }

    /// Notes the members that another member has shown, since a visitor may lose its seeds. If they are too
    /// old, the names that it calls bring newer ones.
    fn know_members(&mut self, directory: &Directory) {
        let members = &directory.members;
        self.known.endpoints.retain(|node, (_, location)| location.is_none() || members.contains_key(node));
        for (node, member) in members {
            self.remember_member(*node, &member.endpoint, member.location);
        }
    }

    fn remember_member(&mut self, node: NodeId, endpoint: &str, location: Location) {
        self.remember(node, endpoint);
        if let Some((_, known)) = self.known.endpoints.get_mut(&node) {
            *known = Some(location);
        }
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
            Body::Join { endpoint, location } => self.receive_join(now, from, endpoint, location),
            Body::Ask { node, endpoint } => {
                self.remember(node, &endpoint);
                // Two nodes that each take the other one for the leader get one answer.
                if self.joins && !std::mem::replace(&mut self.asked, true) {
                    let body = self.question();
                    self.send_to(endpoint, node, body);
                }
            }
            Body::Seek { committed } => {
                self.group.learn(now, committed);
                if !self.group.is_leader() {
                    self.name_leader(from);
                } else if !self.group.directory.members.contains_key(&from) {
                    self.send(from, Body::NoMember { committed: self.group.committed() });
                }
            }
            Body::NoMember { committed } => {
                self.group.hear_of_changes(committed);
                let behind = committed > self.group.committed();
                // A leader of an older term has lost its group.
                let leads = self.group.is_leader() && committed.term <= self.group.term();
                let outside = self.joins && !self.group.is_member() && !self.group.stays();
                if outside || (self.group.is_member() && behind && !leads) {
                    self.begin_again(now);
                }
            }
            Body::Propose { number, request } => {
                if self.group.directory.members.contains_key(&from) {
                    self.group.propose(now, from, number, request);
                }
            }
            Body::Show => {
                if self.group.is_member() {
                    let directory = self.group.directory.for_others();
                    self.send(from, Body::Shown { leader: self.group.leader(), directory });
                }
            }
            Body::Shown { leader, directory } => {
                if !self.group.is_member() {
                    self.know_members(&directory);
                }
                self.outputs.push_back(Output::Shown { leader, directory });
            }
            Body::Look => {
                let figures = Box::new(self.figures(now));
                self.send(from, Body::Looked { figures });
            }
            Body::Looked { figures } => self.outputs.push_back(Output::Looked { node: from, figures }),
            Body::Beat(_) | Body::Held { .. } | Body::Vote { .. } | Body::Voted { .. } => {
                self.group.receive(now, from, body);
            }
            body => self.handle_call(now, from, body),
        }
    }

    /// Handles the frames of names, calls and handovers.
    fn handle_call(&mut self, now: Time, from: NodeId, body: Body) {
        match body {
            Body::Resolve { name } => self.resolve(from, name),
            Body::Resolved { name, entry, nodes } => self.resolved(now, name, entry, nodes),
            Body::Open { key, nonce } => self.open(now, from, key, nonce),
            Body::Reclaim { key, session } => self.reclaim(from, key, session),
            Body::Reclaimed { session } => self.serving.released(from, session),
            Body::Opened { key, nonce, session } => {
                let (client, mut names) = self.client_and_names();
                client.opened(now, key, nonce, session, &mut names);
            }
            Body::Call { key, session, number, open, method, body } => {
                self.receive_call(now, from, key, session, number, &open, method, body);
            }
            Body::Answered { session, number, answer } => {
                let (client, mut names) = self.client_and_names();
                client.answered(now, from, session, number, answer, &mut names);
            }
            Body::Peer { name, from: member, to, bytes } => self.receive_peer(from, name, member, to, bytes),
            Body::Handover { name, shard, epoch, piece, pieces, bytes } => {
                let expected = self.group.directory.shard(name, shard).is_some_and(|state| {
                    state.epoch == epoch && state.target == Some(self.group.me) && state.owner == Some(from)
                });
                if expected && self.serving.take_piece((name, shard), epoch, piece, pieces, &bytes) {
                    self.send(from, Body::Taken { name, shard, epoch, piece });
                }
            }
            Body::Taken { name, shard, epoch, piece } => {
                if let Some(local) = self.serving.shards.get_mut(&(name, shard))
                    && let Some(handover) = &mut local.handover
                    && (handover.epoch, handover.piece, handover.to) == (epoch, piece, from)
                    && handover.bytes.as_ref().is_some_and(|bytes| piece < Handover::pieces(bytes))
                    && handover.send_at != Time::MAX
                {
                    handover.piece += 1;
                    handover.moved_at = now;
                    handover.send_at = now;
                    self.hand_over(now);
                }
            }
            _ => {}
        }
    }

    fn client_and_names(&mut self) -> (&mut Client, Names<'_>) {
        let names = Names { group: &self.group, location: self.options.location, known: &mut self.known };
        (&mut self.client, names)
    }

    fn receive_join(&mut self, now: Time, from: NodeId, endpoint: String, location: Location) {
        if self.group.was_removed(from) {
            // It was added once, and did not hear of it in time.
            self.send(from, Body::NoMember { committed: self.group.committed() });
        } else if !self.group.admit(now, from, endpoint, location) {
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

    /// Returns whether this node serves a key now.
    fn serves(&self, now: Time, key: Key) -> bool {
        match key.part {
            Part::Shard(shard) => self.owns(now, key.name, shard),
            Part::Service(service) => {
                let place = |entry: &Entry| {
                    entry.places.iter().any(|place| place.node == self.group.me && place.service == service)
                };
                let entry = self.group.directory.entry(key.name);
                entry.is_some_and(|(_, entry)| place(entry) && (entry.several || self.group.may_serve(now)))
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
        open: &BTreeSet<u64>,
        method: u64,
        body: Vec<u8>,
    ) {
        let arrived = if self.serves(now, key) {
            self.serving.arrive(now, from, key, session, number, open)
        } else {
            Arrived::Answer(Answer::NotHere)
        };
        match arrived {
            Arrived::Ignore => {}
            Arrived::Answer(answer) => self.send(from, Body::Answered { session, number, answer }),
            Arrived::Run { run, service, client } => {
                let shard = key.shard();
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
        if self.group.is_leader() && !is_member || is_member && self.group.silence(now) < timing.lease {
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
        if self.group.is_member() || self.group.stays() {
            Body::Seek { committed: self.group.committed() }
        } else {
            Body::Join { endpoint: self.options.endpoint.clone(), location: self.options.location }
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
        if !Guard::NewNumber.is_removed() {
            self.past.push(self.group.me);
        }
        let fresh = NodeId(self.random.next() | 1);
        let me = if Guard::NewNumber.is_removed() { self.group.me } else { fresh };
        let random = Random::new(self.random.next());
        self.group = Group::new(me, self.options.timing, random, now);
        self.counts.forget_members();
        self.drop_shards(now);
        self.end_rosters();
        self.serving.begin_again();
        // A request that may be applied already is asked for again: its keys tell. One that was given up is
        // not.
        let ends = |request: &Request| self.ending.iter().any(|(key, _)| request.registers(*key));
        if let Some(pending) = self.pending.take()
            && pending.ticket.is_some()
            && !ends(&pending.request)
        {
            self.requests.push_front((pending.ticket, pending.request));
        }
        self.forget_ended(|_| true);
        self.last_number = 0;
        self.settled = Position::default();
        self.was_member = false;
        self.join_at = now;
        if self.leaves {
            self.end(now);
        }
    }

    fn end(&mut self, now: Time) {
        self.joins = false;
        self.ended = true;
        self.client.close();
        // Its last frames still go out, and the news of its end.
        for (to, body) in self.group.take_frames() {
            self.send(to, body);
        }
        let members = self.group.directory.members.keys();
        for node in members.copied().filter(|node| *node != self.group.me).collect::<Vec<_>>() {
            self.send(node, Body::Ended { node: self.group.me });
        }
        self.drop_shards(now);
        self.end_rosters();
        let pending = self.pending.take().and_then(|pending| pending.ticket);
        let waiting = self.requests.drain(..).filter_map(|(ticket, _)| ticket);
        for ticket in pending.into_iter().chain(waiting) {
            self.outputs.push_back(Output::Requested { ticket, outcome: Err(Refusal::NoSuchName) });
        }
        self.outputs.push_back(Output::Left);
    }

    fn finish_calls(&mut self) {
        for (call, result) in std::mem::take(&mut self.client.done) {
            self.outputs.push_back(Output::Called { call, result });
        }
    }

    /// Does all that follows from the last event.
    fn finish(&mut self, now: Time) {
        loop {
            self.settle(now);
            self.advance_requests(now);
            let (client, mut names) = self.client_and_names();
            client.tick(now, &mut names);
            self.finish_calls();
            for (to, body) in std::mem::take(&mut self.client.out) {
                self.send(to, body);
            }
            for (to, body) in self.group.take_frames() {
                self.send(to, body);
            }
            self.ask_for_names(now);
            match self.loopback.pop_front() {
                Some(body) => self.handle(now, self.group.me, body),
                None if self.group.committed() == self.settled && !self.has_outcome() => break,
                None => {}
            }
        }
    }

    /// Acts on the changes that were committed since the last time (I2).
    fn settle(&mut self, now: Time) {
        let is_member = self.group.is_member();
        // A leader that leaves stays until the others know that (`group`/I6).
        let goes = self.was_member && !is_member && !self.group.stays();
        if self.group.committed() == self.settled && !goes {
            return;
        }
        self.settled = self.group.committed();
        let left = self.group.take_left();
        if is_member || self.was_member {
            self.counts.note_members(now, &self.group.directory, &left);
        }
        if is_member && !self.was_member {
            self.was_member = true;
            self.outputs.push_back(Output::Joined);
        }
        if goes {
            self.was_member = false;
            match self.leaves {
                true => self.end(now),
                false => return self.begin_again(now),
            }
        }
        self.settle_shards(now);
        self.settle_rosters();
        let members = &self.group.directory.members;
        let servers = self.client.servers().into_iter();
        let lost = servers.filter(|node| !members.contains_key(node) && is_member);
        for node in lost.collect::<Vec<_>>() {
            let (client, mut names) = self.client_and_names();
            client.lost(now, node, &mut names);
        }
        self.client.hurry(now);
    }
}
