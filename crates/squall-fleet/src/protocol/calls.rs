//! The client's end of calls: names, sessions, and retries.
//!
//! Problem: a call, its answer, or its server can be lost at any time. A call that is sent again must not run
//! again.
//! Idea: a client opens a session with each service or shard. Calls have numbers in it, and the server keeps
//! each result until the client has it. The client sends again until an answer comes. It learns from refusals
//! where the shard is now.
//!
//! - I1. A call that ends with a result has run once.
//! - I2. A call that ends as not run was never sent, or each attempt was refused.
//! - I3. Otherwise the client says that the call may have run. Only a call marked repeatable is then sent to
//!   another server.
//! - I4. Calls that a full session holds back wait in the order of their begins, apart for each shard and
//!   each name without shards. The end of a call wakes the first of them. A call passes no older one that
//!   waits.
//!
//! Source: Birrell and Nelson, *Implementing remote procedure calls*, 1984; Wentzlaff 2012, §3.2.3 and
//! §3.3.1.

use super::answer::{Answer, Fate, Key, Lookup, Part};
use super::directory::Entry;
use super::ended::CERTAIN;
use super::frame::Body;
use super::guard::Guard;
use super::name::{Name, NameAlias};
use super::{LARGEST_BODY, NodeId, OPEN_MAX, Random, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The first wait for an answer. Each further one is twice as long, up to `RETRY_MAX`.
const RETRY: Time = 100_000;
const RETRY_MAX: Time = 1_000_000;
/// A session without calls is used so long: half as long as the server keeps it.
const SESSION_IDLE: Time = 300_000_000;
/// The sessions and choices that a client keeps without need.
const KEPT: usize = 1_024;
/// The wait before a refused call is sent again.
const PAUSE: Time = 10_000;
/// A time that has passed.
const AT_ONCE: Time = 0;

/// A call of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CallId(pub(crate) u64);

/// The destination of a call.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) name: Name,
    /// The shard, if the name is that of a fleet with shards.
    pub(crate) shard: Option<u32>,
    /// Whether it may run twice.
    pub(crate) repeatable: bool,
}

/// A call on its way.
#[derive(Debug)]
struct Call {
    route: Route,
    method: u64,
    body: Vec<u8>,
    deadline: Time,
    /// The key, session and number of the attempts, and the node of the last one.
    sent: Option<Sent>,
    /// The wait for the next answer.
    retry: Time,
    act_at: Time,
    /// Whether a service with the name was found.
    found: bool,
    /// Whether it may have run on a server that was lost.
    uncertain: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    key: Key,
    session: u64,
    number: u64,
    node: NodeId,
    attempts: u32,
    /// The time of the first one.
    first_at: Time,
}

/// An `Open` without an answer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    node: NodeId,
    again_at: Time,
    /// The time between the next question and the one after it.
    pause: Time,
}

#[derive(Debug, Default)]
struct ClientSession {
    id: Option<u64>,
    nonce: u64,
    /// The last question for a number.
    asked: Option<Asked>,
    next: u64,
    used_at: Time,
}

/// The calls without a result, by their session and number.
#[derive(Debug, Default)]
struct OpenCalls(BTreeMap<(u64, u64), CallId>);

impl OpenCalls {
    /// Returns the numbers of a session.
    fn numbers(&self, session: u64) -> impl Iterator<Item = u64> {
        self.0.range((session, 0)..=(session, u64::MAX)).map(|((_, number), _)| *number)
    }

    fn uses(&self, session: u64) -> bool {
        self.numbers(session).next().is_some()
    }
}

/// The calls that wait for room in a session, oldest first for each name and shard (I4).
#[derive(Debug, Default)]
struct WaitingCalls(BTreeSet<(NameAlias, Option<u32>, CallId)>);

impl WaitingCalls {
    fn first(&self, name: NameAlias, shard: Option<u32>) -> Option<CallId> {
        let mut calls = self.0.range((name, shard, CallId(0))..=(name, shard, CallId(u64::MAX)));
        calls.next().map(|(_, _, id)| *id)
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    random: Random,
    calls: BTreeMap<CallId, Call>,
    open: OpenCalls,
    waiting: WaitingCalls,
    timers: BTreeSet<(Time, CallId)>,
    sessions: BTreeMap<Key, ClientSession>,
    /// The service of a name with several, for services with state.
    chosen: BTreeMap<NameAlias, (NodeId, u64)>,
    last: u64,
    pub(crate) done: Vec<(CallId, Result<Vec<u8>, Fate>)>,
    pub(crate) out: Vec<(NodeId, Body)>,
}

impl Client {
    pub(crate) fn new(random: Random) -> Client {
        Client {
            random,
            calls: BTreeMap::new(),
            open: OpenCalls::default(),
            waiting: WaitingCalls::default(),
            timers: BTreeSet::new(),
            sessions: BTreeMap::new(),
            chosen: BTreeMap::new(),
            last: 0,
            done: Vec::new(),
            out: Vec::new(),
        }
    }

    pub(crate) fn calls_name(&self, name: NameAlias) -> bool {
        self.calls.values().any(|call| call.route.name.alias() == name)
    }

    /// The nodes that calls were sent to.
    pub(crate) fn servers(&self) -> BTreeSet<NodeId> {
        self.calls.values().filter_map(|call| call.sent.map(|sent| sent.node)).collect()
    }

    /// The number of calls that have not ended.
    pub(crate) fn open(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn wake_at(&self) -> Time {
        self.timers.first().map_or(Time::MAX, |(at, _)| *at)
    }

    /// Begins a call. Its result comes in `done`.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        route: Route,
        method: u64,
        body: Vec<u8>,
        deadline: Time,
    ) -> CallId {
        self.last += 1;
        if self.sessions.len() > KEPT {
            let is_used = |id: Option<u64>| id.is_some_and(|id| self.open.uses(id));
            self.sessions.retain(|_, session| is_used(session.id) || now <= session.used_at + SESSION_IDLE);
        }
        if self.chosen.len() > KEPT {
            self.chosen.clear();
        }
        let id = CallId(self.last);
        if body.len() > LARGEST_BODY {
            self.done.push((id, Err(Fate::TooLarge)));
            return id;
        }
        let call = Call {
            route,
            method,
            body,
            deadline,
            sent: None,
            retry: RETRY,
            act_at: now,
            found: false,
            uncertain: false,
        };
        self.timers.insert((now, id));
        self.calls.insert(id, call);
        id
    }

    fn wait(&mut self, id: CallId, until: Time) {
        if let Some(call) = self.calls.get_mut(&id) {
            self.timers.remove(&(call.act_at, id));
            call.act_at = until.min(call.deadline);
            self.timers.insert((call.act_at, id));
        }
    }

    fn end(&mut self, id: CallId, result: Result<Vec<u8>, Fate>) {
        let Some(call) = self.calls.remove(&id) else { return };
        self.timers.remove(&(call.act_at, id));
        if let Some(sent) = call.sent {
            self.forget_attempts(sent);
        }
        if !self.waiting.0.is_empty() {
            self.stop_waiting(call.route.name.alias(), call.route.shard, id);
        }
        self.done.push((id, result));
    }

    /// Forgets the number of a call, so that its session has room for another one.
    fn forget_attempts(&mut self, sent: Sent) {
        self.open.0.remove(&(sent.session, sent.number));
        self.wake_first(sent.key.name, sent.key.shard());
    }

    /// Ends the wait of a call for room. The next one may have been behind it.
    fn stop_waiting(&mut self, name: NameAlias, shard: Option<u32>, id: CallId) {
        if self.waiting.0.remove(&(name, shard, id)) {
            self.wake_first(name, shard);
        }
    }

    /// Wakes the oldest call that waits for room.
    fn wake_first(&mut self, name: NameAlias, shard: Option<u32>) {
        if let Some(first) = self.waiting.first(name, shard) {
            self.wait(first, AT_ONCE);
        }
    }

    /// Returns whether the session of a key takes a further call, as far as it is known.
    fn has_room(&self, key: Key) -> bool {
        let session = self.sessions.get(&key).and_then(|session| session.id);
        // The server drops the frame of a client with more.
        session.is_none_or(|session| self.open.numbers(session).count() < OPEN_MAX)
    }

    /// Ends all calls, of a node that closes.
    pub(crate) fn close(&mut self) {
        let calls: Vec<CallId> = self.calls.keys().copied().collect();
        for id in calls {
            let sent = self.calls[&id].sent.is_some() || self.calls[&id].uncertain;
            self.end(id, Err(if sent { Fate::TimedOut } else { Fate::Closed }));
        }
    }

    /// Acts on all calls at once: the directory has changed.
    pub(crate) fn hurry(&mut self, now: Time) {
        let waiting: Vec<CallId> =
            self.calls.iter().filter(|(_, call)| call.sent.is_none()).map(|(id, _)| *id).collect();
        for id in waiting {
            self.wait(id, now);
        }
    }

    pub(crate) fn tick(&mut self, now: Time, lookup: &mut dyn Lookup) {
        while let Some((at, id)) = self.timers.first().copied()
            && at <= now
        {
            self.act(now, id, lookup);
        }
    }

    /// Sends a call, or sends it again, or gives it up.
    fn act(&mut self, now: Time, id: CallId, lookup: &mut dyn Lookup) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if now >= call.deadline {
            if call.found {
                // The server that the entry names has not answered. The next call shall not trust it.
                lookup.doubt(call.route.name.alias());
            }
            let fate = match (call.sent, call.found) {
                _ if call.uncertain => Fate::TimedOut,
                (Some(_), _) => Fate::TimedOut,
                (None, true) => Fate::NotAccepted,
                (None, false) => Fate::NoService,
            };
            return self.end(id, Err(fate));
        }
        let alias = call.route.name.alias();
        if let Some(sent) = call.sent
            && sent.attempts > 1
        {
            // No answer came to the last one.
            lookup.doubt(alias);
        }
        lookup.want(alias);
        let Some(entry) = lookup.entry(alias) else { return self.wait(id, now + PAUSE) };
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.found = true;
        let (key, node) = match (call.route.shard, call.sent) {
            (Some(shard), _) => {
                let key = Key { name: alias, part: Part::Shard(shard) };
                match entry.shards.get(shard as usize) {
                    Some(at) if at.target.is_none() && at.owner.is_some() => (key, at.owner),
                    Some(_) => (key, None),
                    // The fleet has fewer shards.
                    None => {
                        let sent = call.sent.is_some() || call.uncertain;
                        let fate = if sent { Fate::ServerLost } else { Fate::NoService };
                        return self.end(id, Err(fate));
                    }
                }
            }
            (None, Some(sent))
                if entry
                    .places
                    .iter()
                    .any(|p| sent.key.part == Part::Service(p.service) && p.node == sent.node) =>
            {
                (sent.key, Some(sent.node))
            }
            (None, Some(_)) if !call.route.repeatable => return self.end(id, Err(Fate::ServerLost)),
            (None, sent) => {
                if let Some(sent) = sent {
                    call.sent = None;
                    call.uncertain = true;
                    self.forget_attempts(sent);
                }
                match self.choose(alias, entry, lookup) {
                    Some((node, service)) => (Key { name: alias, part: Part::Service(service) }, Some(node)),
                    None => return self.wait(id, now + PAUSE),
                }
            }
        };
        let Some(node) = node else {
            lookup.doubt(alias);
            return self.wait(id, now + PAUSE);
        };
        if self.send(now, id, key, node) {
            lookup.doubt(alias);
        }
    }

    /// Chooses a service of a name: the nearest one. A service with state is kept. The others take turns, as
    /// far as their sessions have room.
    fn choose(&mut self, alias: NameAlias, entry: &Entry, lookup: &dyn Lookup) -> Option<(NodeId, u64)> {
        let places = || entry.places.iter().filter(|place| !place.leaving);
        if let Some(chosen) = self.chosen.get(&alias)
            && places().any(|place| (place.node, place.service) == *chosen)
        {
            return Some(*chosen);
        }
        let nearest = places().map(|place| lookup.distance(place.node)).min()?;
        let mut near: Vec<_> = places().filter(|place| lookup.distance(place.node) == nearest).collect();
        if entry.stateless {
            let has_room = |service| self.has_room(Key { name: alias, part: Part::Service(service) });
            let free: Vec<_> = near.iter().copied().filter(|place| has_room(place.service)).collect();
            near = if free.is_empty() { near } else { free };
        }
        let place = near[usize::try_from(self.random.below(near.len() as u64)).unwrap_or(0)];
        let chosen = (place.node, place.service);
        if !entry.stateless {
            self.chosen.insert(alias, chosen);
        }
        Some(chosen)
    }

    /// Returns whether a call that was not sent yet has to wait for room (I4).
    fn waits_for_room(&mut self, id: CallId, key: Key) -> bool {
        let shard = key.shard();
        let first = self.waiting.first(key.name, shard);
        let waits = first.is_some_and(|first| first < id) || !self.has_room(key);
        if waits {
            self.waiting.0.insert((key.name, shard, id));
            self.wait(id, Time::MAX);
        } else {
            self.stop_waiting(key.name, shard, id);
        }
        waits
    }

    /// Sends a call, or asks for a session first. Returns whether the node has left such a question
    /// unanswered, as a node does that has died.
    fn send(&mut self, now: Time, id: CallId, key: Key, node: NodeId) -> bool {
        if self.calls.get(&id).is_some_and(|call| call.sent.is_none()) && self.waits_for_room(id, key) {
            return false;
        }
        let Some(call) = self.calls.get_mut(&id) else { return false };
        let session = self.sessions.entry(key).or_default();
        // The server may forget a session without calls.
        if now > session.used_at + SESSION_IDLE && !session.id.is_some_and(|id| self.open.uses(id)) {
            *session = ClientSession::default();
        }
        session.used_at = now;
        let Some(session_id) = session.id else {
            if session.nonce == 0 {
                session.nonce = self.random.next() | 1;
            }
            let before = session.asked.filter(|asked| asked.node == node);
            let waits = before.is_some_and(|asked| now < asked.again_at);
            let asked = match before {
                Some(asked) if waits => asked,
                Some(asked) => {
                    Asked { node, again_at: now + asked.pause, pause: (2 * asked.pause).min(RETRY_MAX) }
                }
                None => Asked { node, again_at: now + RETRY, pause: 2 * RETRY },
            };
            if !waits {
                session.asked = Some(asked);
                self.out.push((node, Body::Open { key, nonce: session.nonce }));
            }
            self.wait(id, asked.again_at);
            return before.is_some() && !waits;
        };
        let sent = match call.sent {
            Some(sent) => Sent { node, attempts: sent.attempts + 1, ..sent },
            None => {
                let number = session.next;
                session.next += 1;
                call.retry = RETRY;
                Sent { key, session: session_id, number, node, attempts: 1, first_at: now }
            }
        };
        call.sent = Some(sent);
        // The call may be of a session that was lost. Only the server's answer can tell its fate then.
        self.open.0.insert((sent.session, sent.number), id);
        let body = Body::Call {
            key,
            session: sent.session,
            number: sent.number,
            open: self.open.numbers(sent.session).collect(),
            method: call.method,
            body: call.body.clone(),
        };
        let until = now + call.retry;
        call.retry = (call.retry * 2).min(RETRY_MAX);
        self.out.push((node, body));
        self.wait(id, until);
        false
    }

    pub(crate) fn opened(
        &mut self,
        now: Time,
        key: Key,
        nonce: u64,
        opened: Result<u64, Answer>,
        lookup: &mut dyn Lookup,
    ) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        if session.nonce != nonce || session.id.is_some() {
            return;
        }
        session.asked = None;
        let at = match opened {
            Ok(id) => {
                session.id = Some(id);
                now
            }
            Err(answer) => {
                if answer == Answer::NotHere {
                    lookup.doubt(key.name);
                }
                now + PAUSE
            }
        };
        let waiting = |call: &Call| call.sent.is_none() && call.route.name.alias() == key.name;
        let waiting: Vec<CallId> =
            self.calls.iter().filter(|(_, call)| waiting(call)).map(|(id, _)| *id).collect();
        for id in waiting {
            self.wait(id, at);
        }
    }

    /// Ends a session that its server asks back. Returns false if a result of it is missing, or if it opens
    /// now. No call uses it any more then.
    pub(crate) fn release(&mut self, key: Key, id: u64) -> bool {
        let session = self.sessions.get(&key);
        let opens = session.is_some_and(|session| session.id.is_none() && session.nonce != 0);
        if opens || self.open.uses(id) {
            return false;
        }
        if session.is_some_and(|session| session.id == Some(id)) {
            self.sessions.remove(&key);
        }
        true
    }

    pub(crate) fn answered(
        &mut self,
        now: Time,
        from: NodeId,
        session: u64,
        number: u64,
        answer: Answer,
        lookup: &mut dyn Lookup,
    ) {
        let Some(id) = self.open.0.get(&(session, number)).copied() else { return };
        let Some(call) = self.calls.get_mut(&id) else { return };
        let Some(sent) = call.sent else { return };
        let alias = sent.key.name;
        match answer {
            Answer::Result(bytes) => self.end(id, Ok(bytes)),
            Answer::Dropped => self.end(id, Err(Fate::Dropped)),
            Answer::TooLarge | Answer::Forgotten => self.end(id, Err(Fate::NoResult)),
            Answer::Busy => self.wait(id, now + PAUSE),
            Answer::NotHere => {
                lookup.doubt(alias);
                self.wait(id, now + PAUSE);
            }
            Answer::NoSession { known } => {
                // All calls of the session learn it from their own answers.
                let lost = self.sessions.get_mut(&sent.key);
                if let Some(lost) = lost.filter(|lost| lost.id == Some(session)) {
                    *lost = ClientSession::default();
                }
                let is_first =
                    sent.attempts == 1 && sent.node == from && now < sent.first_at + CERTAIN && !known;
                let refused = Guard::FirstAttempt.or(is_first);
                if refused || call.route.repeatable {
                    call.uncertain |= !refused;
                    call.sent = None;
                    call.retry = RETRY;
                    self.forget_attempts(sent);
                    self.wait(id, now);
                } else {
                    self.end(id, Err(Fate::ServerLost));
                }
            }
        }
    }

    /// Notes that a node is dead for certain, or was removed. Its calls need not wait for an answer.
    pub(crate) fn lost(&mut self, now: Time, node: NodeId, lookup: &mut dyn Lookup) {
        self.chosen.retain(|_, (chosen, _)| *chosen != node);
        let calls: Vec<CallId> = (self.calls.iter())
            .filter(|(_, call)| call.sent.is_some_and(|sent| sent.node == node))
            .map(|(id, _)| *id)
            .collect();
        for id in calls {
            if let Some(call) = self.calls.get(&id) {
                let (name, shard) = (call.route.name.alias(), call.route.shard);
                lookup.doubt(name);
                // Another service may be chosen now.
                self.wake_first(name, shard);
            }
            // Not at once: the directory may still name the node.
            let at = self.calls.get(&id).map_or(now, |call| call.act_at.min(now + PAUSE));
            self.wait(id, at);
        }
    }
}
