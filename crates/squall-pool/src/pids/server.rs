//! A server of process ids: a member of two pools that exchange their roles.
//!
//! - S1. A free adds its id under the lock of the rounds. So this server adds no id to the pool of a round
//!   that it knows of: such an id could miss the round.
//! - S2. A call of a client runs once: its number is above that of the last one. A copy of the last one gets
//!   the same reply.
//! - S3. A request carries the newest round that its client knows, and the server learns it first. So one
//!   client that calls several servers draws from all as from one.
//! - S4. A server that joins learns the key of the fleet and the newest round from another server. An id of
//!   an earlier fleet under the name is refused by its key.
//! - S5. The pools of a fleet have its key as their identity. So no server of another fleet is a member of
//!   them, and no two fleets give out the same free ids.

use super::rounds::{Draw, Rounds, Step};
use super::sessions::{Last, Sessions};
use super::wire::{METHOD, Operation, Reply, Request, Resting};
use super::{PidError, PidErrorKind};
use crate::frames::{decode, encode};
use crate::{Attributes, DistributedPool, PoolError, PoolErrorKind};
use squall_fleet::{Fate, Name, NameCapability, NameOptions, Node, Refusal, RequestError, ServiceCall};
use squall_machine::park::time_left;
use squall_sys::sync::{Mutex, MutexGuard, StdArc as Arc, lock};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, Instant};

/// The time that the pools have to take all ids that a call puts back, or each id of a new fleet.
const ADD: Duration = Duration::from_secs(5);
/// The time that a pool has to take the id of a free, under the lock of the rounds. The client tries again.
const FREE_ADD: Duration = Duration::from_millis(50);
/// The longest time that a draw waits in the pools.
const GET_MAX: Duration = Duration::from_secs(30);
/// The most clients that a server knows.
const CLIENTS_MAX: usize = 1 << 16;
/// No fleet gets to this round. A request with such a one is damaged.
const ROUNDS_MAX: u64 = 1 << 62;
/// The time that the servers of a fleet have to answer one that joins.
const JOIN: Duration = Duration::from_secs(30);

/// Returns a random number.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[derive(Debug)]
struct Inner {
    key: u64,
    /// The key of the fleet.
    fleet: u64,
    ids: u32,
    /// Round r draws from pool r mod 2.
    pools: [DistributedPool; 2],
    rounds: Mutex<Rounds>,
    clients: Mutex<Sessions>,
    /// Ids that draws have put back, and that the pools did not take yet.
    left_over: Mutex<Vec<Resting>>,
}

impl Inner {
    fn pool(&self, round: u64) -> &DistributedPool {
        &self.pools[(round % 2) as usize]
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        lock(&self.rounds, "the rounds of process ids")
    }

    /// Adds an id to the pool of its round.
    fn rest(&self, resting: Resting, limit: Duration) -> Result<(), PoolError> {
        match self.pool(resting.round).add(&resting.to_bytes(), limit) {
            // The element may still come into the pool, or does.
            Err(PoolError {
                kind: PoolErrorKind::TimedOut { begun: true } | PoolErrorKind::Unknown, ..
            }) => Ok(()),
            result => result,
        }
    }

    /// Adds an id and all that are left over, until one add fails or the time is over. The other ids are left
    /// over again.
    fn put_back(&self, resting: Option<Resting>, limit: Duration) {
        let left_over = || lock(&self.left_over, "ids that pools did not take");
        let mut some: Vec<Resting> = left_over().drain(..).chain(resting).collect();
        let deadline = Instant::now().checked_add(limit);
        while let Some(resting) = some.pop() {
            if self.rest(resting, time_left(deadline).unwrap_or(limit)).is_err() {
                some.push(resting);
                break;
            }
        }
        left_over().extend(some);
    }

    /// Draws an id.
    fn draw(&self, limit: Duration) -> Reply {
        let deadline = Instant::now().checked_add(limit);
        let begin = || Draw::begin(*self.rounds());
        self.put_back(None, ADD);
        let (mut draw, mut step) = begin();
        loop {
            match step {
                Step::Get { round } => {
                    let found = match self.pool(round).get(time_left(deadline).unwrap_or(limit)) {
                        Ok(found) => found.and_then(|bytes| Resting::from_bytes(&bytes)),
                        Err(_) => return Reply::Busy,
                    };
                    step = draw.got(&mut self.rounds(), found);
                }
                Step::PutBack(resting) => {
                    self.put_back(Some(resting), ADD);
                    (draw, step) = begin();
                }
                Step::Drawn { id, round } => {
                    return Reply::Drawn { fleet: self.fleet, id, round };
                }
                Step::AllInUse => return Reply::AllInUse,
            }
        }
    }

    fn free(&self, fleet: u64, id: u32, drawn_in: u64) -> Reply {
        if fleet != self.fleet {
            return Reply::OtherFleet;
        }
        if id == 0 || id > self.ids {
            return Reply::OutOfRange;
        }
        let mut rounds = self.rounds();
        let resting = rounds.rest(id, drawn_in);
        // Under the lock (S1).
        match self.rest(resting, FREE_ADD) {
            Ok(()) => Reply::Done,
            Err(_) => Reply::Busy,
        }
    }

    fn clients(&self) -> MutexGuard<'_, Sessions> {
        lock(&self.clients, "the clients of process ids")
    }

    fn connect(&self, client: u64, number: u64) -> Reply {
        if self.clients().add(client, number) { self.other_server() } else { Reply::Full }
    }

    fn other_server(&self) -> Reply {
        Reply::OtherServer { server: self.key, fleet: self.fleet }
    }

    fn answer(&self, Request { client, server, number, seen, operation }: Request) -> Reply {
        match operation {
            Operation::Connect => return self.connect(client, number),
            Operation::Join => {
                let (fleet, ids, round) = (self.fleet, self.ids, self.rounds().newest());
                return Reply::Fleet { fleet, ids, round };
            }
            Operation::Free { round, .. } if round >= ROUNDS_MAX => return Reply::OutOfRange,
            _ if seen >= ROUNDS_MAX => return Reply::OutOfRange,
            _ => {}
        }
        let known = self.clients().get(client);
        let Some(last) = known.filter(|_| server == self.key) else {
            return self.other_server();
        };
        // The calls of one client run one after the other.
        let mut last = lock(&last, "the last call of a client of process ids");
        if number <= last.number {
            return if number == last.number { last.reply } else { Reply::Old };
        }
        self.rounds().learn(seen);
        let reply = match operation {
            Operation::Alloc { limit_ms } => self.draw(Duration::from_millis(limit_ms.into()).min(GET_MAX)),
            Operation::Free { fleet, id, round } => self.free(fleet, id, round),
            Operation::Close => {
                self.clients().remove(client);
                Reply::Done
            }
            Operation::Connect | Operation::Join => Reply::Old,
        };
        if reply != Reply::Busy {
            *last = Last { number, reply };
        }
        reply
    }
}

/// A server of process ids.
///
/// The servers of a fleet serve one name, and share the free ids by two pools. Clients draw from one, and
/// return ids to the other. When the first is empty, the pools exchange their roles. So an id is reused late.
/// The header of the [module](super) says how late.
///
/// Without a handle the server goes on, until its node leaves the group.
///
/// # Cost
/// Those of two [`DistributedPool`]s.
///
/// Source: Wentzlaff, *fos*, 2012, §5.2 (DP-19).
#[derive(Debug)]
pub struct PidServer {
    inner: Arc<Inner>,
    fleet: Name,
    capability: NameCapability,
}

impl PidServer {
    /// Begins a fleet with the ids from 1 to `ids`, all free. Returns once clients can call.
    ///
    /// After a fleet that lost all its servers, processes may still have ids. Begin a new one only when they
    /// have none.
    ///
    /// # Errors
    /// [`PidErrorKind::NotFirst`], if a fleet has a server, or a server of it still leaves.
    /// [`PidErrorKind::BadCount`] for 0 ids.
    /// [`PidErrorKind::Pool`], [`PidErrorKind::NotServed`], [`PidErrorKind::LongName`].
    /// # Cost
    /// An add to a pool for each id.
    pub fn found(node: &Node, name: &Name, parent: &NameCapability, ids: u32) -> Result<PidServer, PidError> {
        match ids {
            0 => Err(PidError { fleet: name.clone(), kind: PidErrorKind::BadCount }),
            _ => PidServer::start(node, name, parent, (ids, random()), None),
        }
    }

    /// Joins a fleet. `ids` is the number of its founder.
    ///
    /// # Errors
    /// [`PidErrorKind::NoServer`], [`PidErrorKind::TimedOut`], if no server of the fleet answers within 30 s.
    /// [`PidErrorKind::BadCount`] for another number of ids. [`PidErrorKind::NotFirst`], if another fleet has
    /// begun meanwhile: join again. [`PidErrorKind::OtherService`], [`PidErrorKind::Pool`],
    /// [`PidErrorKind::NotServed`], [`PidErrorKind::LongName`].
    pub fn join(node: &Node, name: &Name, parent: &NameCapability, ids: u32) -> Result<PidServer, PidError> {
        let error = |kind| PidError { fleet: name.clone(), kind };
        let deadline = Instant::now().checked_add(JOIN);
        let (client, server, number, seen, operation) = (0, 0, 0, 0, Operation::Join);
        let request = encode(&Request { client, server, number, seen, operation });
        loop {
            // A server that leaves may lose the reply.
            let left = time_left(deadline).filter(|left| !left.is_zero());
            let left = left.ok_or_else(|| error(PidErrorKind::TimedOut))?;
            let reply = match node.call(name, METHOD, &request, left).map_err(|lost| lost.fate) {
                Ok(bytes) => decode(&bytes),
                Err(Fate::Dropped) => None,
                Err(fate) if fate.may_have_run() => continue,
                Err(fate) => return Err(error(PidErrorKind::NoServer(fate))),
            };
            return match reply {
                Some(Reply::Fleet { ids: all, .. }) if all != ids => Err(error(PidErrorKind::BadCount)),
                Some(Reply::Fleet { fleet, round, .. }) => {
                    PidServer::start(node, name, parent, (ids, fleet), Some(round))
                }
                _ => Err(error(PidErrorKind::OtherService)),
            };
        }
    }

    /// Starts a server. Without a round, it begins the fleet.
    fn start(
        node: &Node,
        name: &Name,
        parent: &NameCapability,
        (ids, fleet): (u32, u64),
        round: Option<u64>,
    ) -> Result<PidServer, PidError> {
        let error = |kind| PidError { fleet: name.clone(), kind };
        // Servers of two fleets would draw each id twice. The directory refuses those of the later one (S5).
        let identity = (fleet ^ fleet >> 32) as u32;
        let join = |part: &str| {
            let pool: Name = format!("{name}/{part}").parse().map_err(|_| error(PidErrorKind::LongName))?;
            let pool = DistributedPool::join_apart(node, &pool, parent, Attributes::default(), identity);
            pool.map_err(|why| match why.kind {
                PoolErrorKind::NotJoined(RequestError::Refused(Refusal::NameClash)) => {
                    error(PidErrorKind::NotFirst)
                }
                _ => error(PidErrorKind::Pool(why)),
            })
        };
        let even = join("even")?;
        let odd = join("odd").inspect_err(|_| _ = even.shutdown(ADD))?;
        let pools = [even, odd];
        let (rounds, clients) =
            (Mutex::new(Rounds::new(round.unwrap_or(0))), Mutex::new(Sessions::new(CLIENTS_MAX)));
        let left_over = Mutex::new(Vec::new());
        let inner = Arc::new(Inner { key: random(), fleet, ids, pools, rounds, clients, left_over });
        let leave = || inner.pools.iter().for_each(|pool| _ = pool.shutdown(ADD));
        if round.is_none() {
            let here = inner.pools[0].location();
            if inner.pools[0].locations().first().copied() != here {
                leave();
                return Err(error(PidErrorKind::NotFirst));
            }
            for id in 1..=ids {
                if let Err(why) = inner.rest(Resting { id, round: 0 }, ADD) {
                    leave();
                    return Err(error(PidErrorKind::Pool(why)));
                }
            }
        }
        let of_calls = inner.clone();
        let service = move |call: ServiceCall<'_>| {
            // Another version, or a stranger: the client learns that the call was dropped.
            let request = (call.method == METHOD).then(|| decode(call.body)).flatten()?;
            Some(encode(&of_calls.answer(request)))
        };
        match node.serve(name, parent, NameOptions::new().several(), service) {
            Ok(capability) => Ok(PidServer { inner, fleet: name.clone(), capability }),
            Err(why) => {
                leave();
                Err(error(PidErrorKind::NotServed(why)))
            }
        }
    }

    /// Returns the name of the fleet.
    pub fn fleet(&self) -> &Name {
        &self.fleet
    }

    /// Returns the newest round that this server has met. The first one is 0.
    pub fn round(&self) -> u64 {
        self.inner.rounds().newest()
    }

    /// Returns an estimate of the number of free ids of the fleet.
    ///
    /// # Errors
    /// [`PidErrorKind::Pool`].
    pub fn free_ids(&self, limit: Duration) -> Result<u64, PidError> {
        let size = |pool: &DistributedPool| pool.size(limit);
        let sizes = size(&self.inner.pools[0]).and_then(|even| Ok(even + size(&self.inner.pools[1])?));
        sizes.map_err(|why| self.error(PidErrorKind::Pool(why)))
    }

    /// Leaves the fleet: takes no more calls, and gives the free ids at this server to the others. The last
    /// server loses them. An id that a draw has put back, and that no pool takes within the limit, is lost.
    ///
    /// # Errors
    /// [`PidErrorKind::NotServed`]. [`PidErrorKind::Pool`]: the server goes on leaving.
    pub fn shutdown(&self, node: &Node, limit: Duration) -> Result<(), PidError> {
        let ended = node.end_service(&self.capability);
        ended.map_err(|why| self.error(PidErrorKind::NotServed(why)))?;
        let deadline = Instant::now().checked_add(limit);
        self.inner.put_back(None, limit);
        for pool in &self.inner.pools {
            pool.shutdown(time_left(deadline).unwrap_or(limit))
                .map_err(|why| self.error(PidErrorKind::Pool(why)))?;
        }
        Ok(())
    }

    fn error(&self, kind: PidErrorKind) -> PidError {
        PidError { fleet: self.fleet.clone(), kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_fleet::{GroupKey, LocalNetwork, NodeBuilder};

    #[test]
    fn a_new_fleet_shares_no_pool_with_the_last_server_of_another() {
        let (network, key, limit) = (LocalNetwork::new(), GroupKey::random(), Duration::from_secs(60));
        let (node, root) = NodeBuilder::new(key).found(network.bind("a").unwrap(), &[]).unwrap();
        let other = NodeBuilder::new(key).join(network.bind("b").unwrap(), &["local/a"]).unwrap();
        other.wait_joined(limit).unwrap();
        let name = "/pids".parse().unwrap();
        let last = PidServer::found(&node, &name, &root, 3).unwrap();
        // The last server leaves, and has left one of both pools.
        node.end_service(&last.capability).unwrap();
        last.inner.pools[0].shutdown(limit).unwrap();
        let refused = PidServer::found(&other, &name, &root, 3).unwrap_err();
        assert_eq!(refused.kind, PidErrorKind::NotFirst);
        // It has left the first pool again.
        last.inner.pools[1].shutdown(limit).unwrap();
        let server = PidServer::found(&node, &name, &root, 3).unwrap();
        assert_eq!(server.free_ids(limit).unwrap(), 3);
        let another =
            PidServer::start(&other, &name, &root, (3, server.inner.fleet ^ 1), Some(0)).unwrap_err();
        assert_eq!(another.kind, PidErrorKind::NotFirst);
    }

    #[test]
    fn a_server_that_leaves_gives_away_the_ids_that_a_pool_did_not_take() {
        let (network, key, limit) = (LocalNetwork::new(), GroupKey::random(), Duration::from_secs(60));
        let (node, root) = NodeBuilder::new(key).found(network.bind("a").unwrap(), &[]).unwrap();
        let other = NodeBuilder::new(key).join(network.bind("b").unwrap(), &["local/a"]).unwrap();
        other.wait_joined(limit).unwrap();
        let name = "/pids".parse().unwrap();
        let stays = PidServer::found(&other, &name, &root, 3).unwrap();
        let leaves = PidServer::join(&node, &name, &root, 3).unwrap();
        let Reply::Drawn { id, .. } = leaves.inner.draw(limit) else { panic!("three ids are free") };
        leaves.inner.left_over.lock().unwrap().push(Resting { id, round: 1 });
        leaves.shutdown(&node, limit).unwrap();
        assert_eq!(stays.free_ids(limit).unwrap(), 3);
    }
}
