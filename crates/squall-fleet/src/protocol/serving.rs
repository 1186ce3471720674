//! The server's end of calls: sessions, shards, and their handover.
//!
//! - I1. A call runs at most once. Its session remembers the number until the client has the result.
//! - I2. The sessions of a shard travel with its state. If the state is lost, they are lost, and copies of
//!   their calls are refused.
//! - I3. A shard runs calls only on its owner, only while the owner has a lease, and not once its handover
//!   has begun. The handover begins when no call of the shard runs.
//! - I4. A result leaves the node only while it has a lease. So a member thought dead sends no results.
//! - I5. A client opens a session only if it has fewer than there is room for. So one client leaves half of
//!   the room, and each further one half of the rest.
//! - I6. Room is made at the cost of the client with the most sessions. It is asked to end those that it has
//!   not used for the longest time. It ends only sessions of which it has all results.
//! - I7. A call has ended for its client once a frame of a later call lacks it. No frame opens it again. It
//!   does not begin then, and its result is dropped. So a late copy of a frame never passes the next call of
//!   the same caller.
//! - I8. A session remembers calls that run, and results of open calls, of which there are at most
//!   `OPEN_MAX`. So a call that is open for long keeps no memory of the calls that end meanwhile.
//!
//! [`Ended`] remembers sessions after their end. A dispatcher has another memory of calls, `once.rs`. There a
//! caller has one call at a time, may be hostile, and may lose its oldest session to a new one. Here a
//! session has several open calls, and travels with its shard.
//!
//! Not promised: the results of a client that is cut off for `QUIET`, while it has the most sessions and
//! there is no room. It is told that its calls may have run.
//! Cost: a lookup in four ordered maps for each call.
//! Source: Choudhury and Hahne, *Dynamic queue length thresholds for shared-memory packet switches*, 1998
//! (I5).

use super::answer::{Answer, Key, Part};
use super::directory::Shard;
use super::ended::Ended;
use super::guard::Guard;
use super::name::NameAlias;
use super::{AGAIN, NodeId, RunId, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The most sessions of a node. Few in tests, so that schedules use them up.
pub(crate) const SESSIONS_MAX: usize = if cfg!(test) { 16 } else { 65_536 };
/// The most sessions that a client is asked to end at a time.
const RELEASES_MAX: usize = 64;
/// The most calls that run on a node.
const RUNS_MAX: usize = 1_024;
/// A session lives so long without a call.
const IDLE: Time = 600_000_000;
/// A session of the client with the most lives so long without a call, if there is no room. A client that
/// lacks a result asks for it each second.
const QUIET: Time = 30_000_000;
/// The most bytes of results that a session keeps.
const RESULTS_MAX: usize = 4 << 20;
/// The bytes of a piece of a shard's state.
pub(crate) const PIECE: usize = 128 << 10;

/// A client's calls of one service or shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    client: NodeId,
    nonce: u64,
    key: Key,
    /// Calls that run, without a value, and results.
    calls: BTreeMap<u64, Option<Answer>>,
    /// Calls without a result at the client. All others before `told` have ended for it (I7).
    open: BTreeSet<u64>,
    /// The number after the last call that a frame has told of.
    told: u64,
    #[serde(skip)]
    used_at: Time,
}

impl Session {
    fn is_running(&self) -> bool {
        self.calls.values().any(Option::is_none)
    }

    /// Notes the calls that were open for the client when it sent a frame. The client numbers its calls in
    /// their order, so the frame tells of each call up to the last one that is open (I7).
    fn note_open(&mut self, open: &BTreeSet<u64>) {
        let told = open.last().map_or(0, |last| last + 1);
        // Frames overtake each other. A call has ended if one of them tells so.
        let stays = |number: u64| number >= self.told || self.open.contains(&number);
        let is_open =
            |number: u64| Guard::EndedStays.or(stays(number)) && (number >= told || open.contains(&number));
        self.open = self.open.union(open).copied().filter(|number| is_open(*number)).collect();
        self.told = self.told.max(told);
        // A call that runs stays until it ends.
        self.calls.retain(|number, answer| self.open.contains(number) || answer.is_none());
    }
}

/// A call that runs.
#[derive(Clone, Copy, Debug)]
struct Run {
    session: u64,
    number: u64,
    key: Key,
}

/// A shard with its state on this node.
#[derive(Debug)]
pub(crate) struct LocalShard {
    /// The epoch in which the state began.
    pub(crate) born: u64,
    pub(crate) service: u64,
    /// Calls that run.
    running: usize,
    pub(crate) handover: Option<Handover>,
    /// The epoch in which this node gives the shard up, and serves no more.
    pub(crate) abandoned: Option<u64>,
}

/// The state of a shard on its way to the target.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(crate) epoch: u64,
    pub(crate) to: NodeId,
    /// Once the service has exported it.
    pub(crate) bytes: Option<Vec<u8>>,
    /// The next piece.
    pub(crate) piece: u32,
    pub(crate) send_at: Time,
    /// When the target last took a piece, or the handover began.
    pub(crate) moved_at: Time,
}

impl LocalShard {
    pub(crate) fn is_running(&self) -> bool {
        self.running > 0
    }
}

impl Handover {
    pub(crate) fn pieces(bytes: &[u8]) -> u32 {
        u32::try_from(bytes.len().div_ceil(PIECE).max(1)).unwrap_or(u32::MAX)
    }
}

/// The state of a shard that this node is to own.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) epoch: u64,
    next: u32,
    pieces: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Incoming {
    pub(crate) fn is_complete(&self) -> bool {
        self.next == self.pieces
    }
}

/// The next step for a call that has arrived.
#[derive(Debug, PartialEq)]
pub(crate) enum Arrived {
    /// The service runs it.
    Run { run: RunId, service: u64, client: NodeId },
    /// The client gets an answer at once.
    Answer(Answer),
    /// No step: the call is a copy of one that runs, or the client has its result.
    Ignore,
}

#[derive(Debug, Default)]
pub(crate) struct Serving {
    sessions: BTreeMap<u64, Session>,
    by_key: BTreeSet<(Key, u64)>,
    /// The number of sessions of each client.
    clients: BTreeMap<NodeId, usize>,
    opened: BTreeMap<u64, u64>,
    /// When room was made for the last time.
    room_at: Time,
    /// Clients that are asked to end sessions.
    pub(crate) releases: Vec<(NodeId, Key, u64)>,
    runs: BTreeMap<RunId, Run>,
    last_run: u64,
    /// Calls and sessions that were refused since there were too many.
    pub(crate) refused: u64,
    /// Sessions that have ended. A copy of one of their calls may have run.
    ended: Ended,
    pub(crate) shards: BTreeMap<(NameAlias, u32), LocalShard>,
    /// Shards with a target, by the last change of the directory.
    pub(crate) moving: BTreeSet<(NameAlias, u32)>,
    /// Shards of fleets that lose their last member, by the last change of the directory.
    pub(crate) given_up: BTreeSet<(NameAlias, u32)>,
    pub(crate) incoming: BTreeMap<(NameAlias, u32), Incoming>,
}

impl Serving {
    pub(crate) fn running(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Opens a session with the number `fresh`, or returns the number that an earlier copy has opened.
    pub(crate) fn open(
        &mut self,
        now: Time,
        client: NodeId,
        nonce: u64,
        key: Key,
        fresh: u64,
    ) -> Result<u64, Answer> {
        if let Some(session) = self.opened.get(&nonce) {
            return Ok(*session);
        }
        if !self.has_room(client) {
            self.make_room(now);
        }
        if !self.has_room(client) {
            self.refused += 1;
            return Err(Answer::Busy);
        }
        let session = Session {
            client,
            nonce,
            key,
            calls: BTreeMap::new(),
            open: BTreeSet::new(),
            told: 0,
            used_at: now,
        };
        self.insert(fresh, session);
        Ok(fresh)
    }

    fn insert(&mut self, id: u64, session: Session) {
        *self.clients.entry(session.client).or_default() += 1;
        self.opened.insert(session.nonce, id);
        self.by_key.insert((session.key, id));
        self.sessions.insert(id, session);
    }

    fn remove(&mut self, id: u64) {
        if let Some(session) = self.sessions.remove(&id) {
            self.opened.remove(&session.nonce);
            self.by_key.remove(&(session.key, id));
            leave_client(&mut self.clients, session.client);
        }
    }

    /// Returns whether a client may open one more session (I5).
    fn has_room(&self, client: NodeId) -> bool {
        let own = self.clients.get(&client).copied().unwrap_or(0);
        own < SESSIONS_MAX.saturating_sub(self.sessions.len())
    }

    /// Ends sessions that are not used, and asks the client with the most to end some (I6). Not more often
    /// than clients ask again, since it looks at all sessions.
    fn make_room(&mut self, now: Time) {
        if now < self.room_at + AGAIN {
            return;
        }
        self.room_at = now;
        let Some((most, _)) = self.clients.iter().max_by_key(|(_, count)| **count) else { return };
        let most = *most;
        let ends = |session: &Session| {
            let limit = if session.client == most { QUIET } else { IDLE };
            session.used_at + limit <= now && !session.is_running()
        };
        let ended = self.sessions.iter().filter(|(_, session)| ends(session)).map(|(id, _)| *id);
        self.end_sessions(now, ended.collect());
        let idle = |session: &Session| session.client == most && !session.is_running();
        let idle = self.sessions.iter().filter(|(_, session)| idle(session));
        let mut idle: Vec<(Time, Key, u64)> =
            idle.map(|(id, session)| (session.used_at, session.key, *id)).collect();
        idle.sort_unstable();
        self.releases = idle.into_iter().take(RELEASES_MAX).map(|(_, key, id)| (most, key, id)).collect();
    }

    /// Forgets a session that its client has ended. The client has all its results, so it need not be
    /// remembered as ended: no answer to a copy of a call reaches a call.
    pub(crate) fn released(&mut self, client: NodeId, id: u64) {
        let ends = |session: &Session| session.client == client && !session.is_running();
        if self.sessions.get(&id).is_some_and(ends) {
            self.remove(id);
        }
    }

    /// Decides about a call of a service that this node serves now (I1, I3). `open` has the client's calls
    /// without a result.
    pub(crate) fn arrive(
        &mut self,
        now: Time,
        from: NodeId,
        key: Key,
        session: u64,
        number: u64,
        open: &BTreeSet<u64>,
    ) -> Arrived {
        let full = self.runs.len() >= RUNS_MAX;
        let number_of_session = session;
        let Some(session) = self.sessions.get_mut(&session).filter(|session| session.key == key) else {
            let known = self.ended.may_have(now, number_of_session);
            return Arrived::Answer(Answer::NoSession { known });
        };
        // The number of a session is a secret of its client. A client that begins again keeps its sessions.
        if session.client != from {
            leave_client(&mut self.clients, session.client);
            *self.clients.entry(from).or_default() += 1;
            session.client = from;
        }
        session.used_at = now;
        session.note_open(open);
        match session.calls.get(&number) {
            Some(_) if Guard::Remembered.is_removed() => {}
            Some(Some(answer)) => return Arrived::Answer(answer.clone()),
            Some(None) => return Arrived::Ignore,
            None if Guard::EndedCalls.and(!session.open.contains(&number)) => return Arrived::Ignore,
            None if full => {
                self.refused += 1;
                return Arrived::Answer(Answer::Busy);
            }
            None => {}
        }
        session.calls.insert(number, None);
        self.last_run += 1;
        let run = RunId(self.last_run);
        self.runs.insert(run, Run { session: number_of_session, number, key });
        let service = match key.part {
            Part::Service(service) => service,
            Part::Shard(shard) => match self.shards.get_mut(&(key.name, shard)) {
                Some(local) => {
                    local.running += 1;
                    local.service
                }
                None => 0,
            },
        };
        Arrived::Run { run, service, client: from }
    }

    /// Notes the result of a call. Returns its client, key, session and number.
    pub(crate) fn complete(&mut self, run: RunId, answer: Answer) -> Option<(NodeId, Key, u64, u64)> {
        let Run { session: id, number, key } = self.runs.remove(&run)?;
        self.leave_shard(key);
        let session = self.sessions.get_mut(&id)?;
        if !session.open.contains(&number) {
            session.calls.remove(&number);
            return None;
        }
        session.calls.insert(number, Some(answer));
        // The oldest results go first. A copy of their calls is told so.
        let size = |answer: &Option<Answer>| match answer {
            Some(Answer::Result(bytes)) => bytes.len(),
            _ => 0,
        };
        let mut kept: usize = session.calls.values().map(size).sum();
        for (older, answer) in session.calls.iter_mut() {
            if kept <= RESULTS_MAX || *older == number {
                break;
            }
            kept -= size(answer);
            if answer.is_some() {
                *answer = Some(Answer::Forgotten);
            }
        }
        Some((session.client, key, id, number))
    }

    /// Returns the result of a call again.
    pub(crate) fn answer(&self, session: u64, number: u64) -> Option<&Answer> {
        self.sessions.get(&session)?.calls.get(&number)?.as_ref()
    }

    /// Begins with a shard.
    pub(crate) fn begin(&mut self, name: NameAlias, shard: u32, born: u64, service: u64) {
        self.shards
            .insert((name, shard), LocalShard { born, service, running: 0, handover: None, abandoned: None });
    }

    /// Copies the sessions of a shard (I2).
    pub(crate) fn sessions_of(&self, name: NameAlias, shard: u32) -> Vec<(u64, Session)> {
        let key = Key { name, part: Part::Shard(shard) };
        let of_shard = self.ids_of(key).into_iter();
        of_shard.filter_map(|id| Some((id, self.sessions.get(&id)?.clone()))).collect()
    }

    /// Adds the sessions of a shard that this node now owns.
    pub(crate) fn adopt(&mut self, now: Time, sessions: Vec<(u64, Session)>) {
        for (id, mut session) in sessions {
            session.used_at = now;
            self.ended.remove(id);
            self.remove(id);
            self.insert(id, session);
        }
    }

    /// The sessions of a service or shard.
    fn ids_of(&self, key: Key) -> Vec<u64> {
        self.by_key.range((key, 0)..=(key, u64::MAX)).map(|(_, id)| *id).collect()
    }

    fn end_sessions(&mut self, now: Time, ids: Vec<u64>) {
        for id in ids {
            self.remove(id);
            self.ended.add(now, id);
        }
    }

    /// Begins again, as another node. Calls that run go on, and their results are dropped.
    pub(crate) fn begin_again(&mut self) {
        *self = Serving { last_run: self.last_run, ..Serving::default() };
    }

    /// Returns the key of a call that has not ended.
    pub(crate) fn key(&self, run: RunId) -> Option<Key> {
        self.runs.get(&run).map(|run| run.key)
    }

    /// Forgets a call that has not begun to run. Returns its client, session and number.
    pub(crate) fn cancel(&mut self, run: RunId) -> Option<(NodeId, u64, u64)> {
        let Run { session: id, number, key } = self.runs.remove(&run)?;
        self.leave_shard(key);
        let session = self.sessions.get_mut(&id)?;
        session.calls.remove(&number);
        Some((session.client, id, number))
    }

    fn leave_shard(&mut self, key: Key) {
        if let Part::Shard(shard) = key.part
            && let Some(local) = self.shards.get_mut(&(key.name, shard))
        {
            local.running = local.running.saturating_sub(1);
        }
    }

    /// Forgets a shard with its sessions.
    pub(crate) fn end(&mut self, now: Time, name: NameAlias, shard: u32) -> Option<LocalShard> {
        let key = Key { name, part: Part::Shard(shard) };
        self.end_sessions(now, self.ids_of(key));
        self.moving.remove(&(name, shard));
        self.given_up.remove(&(name, shard));
        self.shards.remove(&(name, shard))
    }

    /// Takes a piece of a shard's state. Returns false if it is not the next one, or was here before.
    pub(crate) fn take_piece(
        &mut self,
        at: (NameAlias, u32),
        epoch: u64,
        piece: u32,
        pieces: u32,
        bytes: &[u8],
    ) -> bool {
        let fresh = || Incoming { epoch, next: 0, pieces, bytes: Vec::new() };
        let incoming = self.incoming.entry(at).or_insert_with(fresh);
        if incoming.epoch != epoch || incoming.pieces != pieces {
            *incoming = fresh();
        }
        if piece == incoming.next && piece < pieces {
            incoming.bytes.extend_from_slice(bytes);
            incoming.next += 1;
        }
        piece < incoming.next
    }
}

fn leave_client(clients: &mut BTreeMap<NodeId, usize>, client: NodeId) {
    if let Some(count) = clients.get_mut(&client) {
        *count -= 1;
        if *count == 0 {
            clients.remove(&client);
        }
    }
}

/// Returns whether `node` owns a shard and keeps it.
pub(crate) fn is_settled_on(shard: &Shard, node: NodeId) -> bool {
    shard.owner == Some(node) && shard.target.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client's open calls.
    fn open(numbers: &[u64]) -> BTreeSet<u64> {
        numbers.iter().copied().collect()
    }

    fn key(shard: u32) -> Key {
        Key { name: NameAlias(1), part: Part::Shard(shard) }
    }

    /// Opens sessions of a client, each with a call that has run, until one is refused. Returns their
    /// numbers.
    fn fill(serving: &mut Serving, now: Time, client: u64) -> Vec<u64> {
        let mut opened = Vec::new();
        for shard in 0.. {
            let number = client << 32 | u64::from(shard);
            let Ok(id) = serving.open(now, NodeId(client), number, key(shard), number) else { break };
            let arrived = serving.arrive(now, NodeId(client), key(shard), id, 0, &open(&[0]));
            let Arrived::Run { run, .. } = arrived else { panic!("{arrived:?}") };
            serving.complete(run, Answer::Dropped);
            opened.push(id);
        }
        opened
    }

    #[test]
    fn a_client_uses_up_its_own_share_alone() {
        let mut serving = Serving::default();
        let counts: Vec<usize> = (1..=4).map(|client| fill(&mut serving, AGAIN, client).len()).collect();
        assert_eq!(counts, [8, 4, 2, 1]);
        // The client with the most is asked for those that it has not used for the longest time.
        let asked: Vec<NodeId> = serving.releases.iter().map(|(client, ..)| *client).collect();
        assert_eq!(asked, [NodeId(1); 8]);
        // It ends four of them, and each client may open a session then.
        for (client, _, id) in serving.releases.drain(..).take(4).collect::<Vec<_>>() {
            serving.released(client, id);
        }
        assert_eq!(fill(&mut serving, AGAIN, 5).len(), 3);
    }

    #[test]
    fn room_is_made_from_the_longest_unused_sessions_without_a_run() {
        let mut serving = Serving::default();
        let ids = fill(&mut serving, AGAIN, 1);
        // The first one was used a moment ago, and a call of the second one runs.
        serving.arrive(AGAIN + 1, NodeId(1), key(0), ids[0], 0, &open(&[0]));
        assert!(matches!(
            serving.arrive(AGAIN, NodeId(1), key(1), ids[1], 1, &open(&[1])),
            Arrived::Run { .. }
        ));
        let now = 2 * AGAIN + 1;
        assert_eq!(serving.open(now, NodeId(1), 99, key(99), 99), Err(Answer::Busy));
        let asked: Vec<u64> = serving.releases.iter().map(|(.., id)| *id).collect();
        assert_eq!(asked, [&ids[2..], &ids[..1]].concat());
        // Only its client ends a session, and none with a call that runs.
        serving.released(NodeId(2), ids[2]);
        serving.released(NodeId(1), ids[1]);
        assert_eq!(serving.sessions.len(), ids.len());
        assert_eq!(serving.answer(ids[2], 0), Some(&Answer::Dropped));
    }

    #[test]
    fn a_client_that_never_answers_loses_unused_sessions_and_copies_of_its_calls_do_not_run() {
        let mut serving = Serving::default();
        let ids = fill(&mut serving, AGAIN, 1);
        assert!(matches!(
            serving.arrive(AGAIN, NodeId(1), key(1), ids[1], 1, &open(&[1])),
            Arrived::Run { .. }
        ));
        let now = QUIET + AGAIN;
        assert_eq!(serving.open(now, NodeId(1), 99, key(99), 99), Ok(99));
        assert_eq!(serving.sessions.keys().copied().collect::<Vec<_>>(), [99, ids[1]]);
        let copy = serving.arrive(now, NodeId(1), key(0), ids[0], 0, &open(&[0]));
        assert_eq!(copy, Arrived::Answer(Answer::NoSession { known: true }));
    }
}
