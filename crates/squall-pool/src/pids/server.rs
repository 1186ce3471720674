//! A server of process ids: a member of two pools that exchange their roles.
//!
//! - S1. A free adds its id under the lock of the round. So no id comes into a pool after this server has
//!   seen its end, except from servers that have not.
//! - S2. A call of a client runs once: its number is above that of the last one. A copy of the last one gets
//!   the same reply.

use super::wire::{METHOD, Operation, Reply, Request, Resting};
use super::{PidError, PidErrorKind};
use crate::frames::{decode, encode};
use crate::{Attributes, DistributedPool, PoolError, PoolErrorKind};
use squall_fleet::{Name, NameCapability, NameOptions, Node, ServiceCall};
use squall_machine::park::time_left;
use squall_sys::sync::{Mutex, StdArc as Arc, lock};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, Instant};

/// The time that a pool has to take an id.
const ADD: Duration = Duration::from_secs(5);
/// The longest time that a draw waits in the pools.
const GET_MAX: Duration = Duration::from_secs(30);
/// The most clients of a server.
const CLIENTS_MAX: usize = 1 << 16;

/// Returns a random number.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The last call of a client.
#[derive(Debug)]
struct Last {
    number: u64,
    reply: Reply,
}

#[derive(Debug)]
struct Inner {
    key: u64,
    ids: u32,
    /// Round r draws from pool r mod 2.
    pools: [DistributedPool; 2],
    round: Mutex<u64>,
    clients: Mutex<HashMap<u64, Arc<Mutex<Last>>>>,
}

impl Inner {
    fn pool(&self, round: u64) -> &DistributedPool {
        &self.pools[(round % 2) as usize]
    }

    fn round(&self) -> u64 {
        *lock(&self.round, "the round of process ids")
    }

    /// Learns of a round, and returns the newest one.
    fn advance(&self, round: u64) -> u64 {
        let mut newest = lock(&self.round, "the round of process ids");
        *newest = round.max(*newest);
        *newest
    }

    /// Adds an id to the pool of its round.
    fn rest(&self, resting: Resting) -> Result<(), PoolError> {
        match self.pool(resting.round).add(&resting.to_bytes(), ADD) {
            // The element may still come into the pool, or does.
            Err(PoolError {
                kind: PoolErrorKind::TimedOut { begun: true } | PoolErrorKind::Unknown, ..
            }) => Ok(()),
            result => result,
        }
    }

    /// Draws an id.
    fn draw(&self, limit: Duration) -> Reply {
        let deadline = Instant::now().checked_add(limit);
        let get = |round: u64| {
            let element = self.pool(round).get(time_left(deadline).unwrap_or(limit));
            // Only servers add elements, and all have this form.
            element.map(|bytes| bytes.and_then(|bytes| Resting::from_bytes(&bytes)))
        };
        loop {
            let mut round = self.round();
            let mut drawn = get(round);
            if drawn == Ok(None) {
                // The round is over, if the other pool has ids at all (`pids/I2`).
                drawn = get(round + 1);
                if let Ok(Some(_)) = drawn {
                    round = self.advance(round + 1);
                }
            }
            match drawn {
                Err(_) => return Reply::Busy,
                Ok(None) => return Reply::AllInUse,
                Ok(Some(Resting { id, round: first })) if first <= round => {
                    return Reply::Drawn { id, round };
                }
                Ok(Some(resting)) => {
                    // Another server has begun the round before that of the id.
                    self.advance(resting.round - 1);
                    let _ = self.rest(resting);
                }
            }
        }
    }

    fn free(&self, id: u32, drawn_in: u64) -> Reply {
        if id == 0 || id > self.ids {
            return Reply::OutOfRange;
        }
        let mut newest = lock(&self.round, "the round of process ids");
        *newest = drawn_in.max(*newest);
        // Under the lock (S1).
        match self.rest(Resting { id, round: *newest + 1 }) {
            Ok(()) => Reply::Done,
            Err(_) => Reply::Busy,
        }
    }

    fn connect(&self, client: u64, number: u64) -> Reply {
        let mut clients = lock(&self.clients, "the clients of process ids");
        let is_full = clients.len() >= CLIENTS_MAX;
        match clients.entry(client) {
            Entry::Vacant(_) if is_full => Reply::Full,
            // A late copy of a connect changes no number.
            Entry::Occupied(_) => Reply::OtherServer { server: self.key },
            Entry::Vacant(entry) => {
                entry.insert(Arc::new(Mutex::new(Last { number, reply: Reply::Old })));
                Reply::OtherServer { server: self.key }
            }
        }
    }

    fn answer(&self, Request { client, server, number, operation }: Request) -> Reply {
        if operation == Operation::Connect {
            return self.connect(client, number);
        }
        let known = lock(&self.clients, "the clients of process ids").get(&client).cloned();
        let Some(last) = known.filter(|_| server == self.key) else {
            return Reply::OtherServer { server: self.key };
        };
        // The calls of one client run one after the other.
        let mut last = lock(&last, "the last call of a client of process ids");
        if number <= last.number {
            return if number == last.number { last.reply } else { Reply::Old };
        }
        let reply = match operation {
            Operation::Alloc { limit_ms } => self.draw(Duration::from_millis(limit_ms.into()).min(GET_MAX)),
            Operation::Free { round: u64::MAX, .. } => Reply::OutOfRange,
            Operation::Free { id, round } => self.free(id, round),
            Operation::Close => {
                lock(&self.clients, "the clients of process ids").remove(&client);
                Reply::Done
            }
            Operation::Connect => Reply::Old,
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
    /// # Errors
    /// [`PidErrorKind::NotFirst`], if the fleet has a server. [`PidErrorKind::BadCount`] for 0 ids.
    /// [`PidErrorKind::Pool`], [`PidErrorKind::NotServed`], [`PidErrorKind::LongName`].
    /// # Cost
    /// An add to a pool for each id.
    pub fn found(node: &Node, name: &Name, parent: &NameCapability, ids: u32) -> Result<PidServer, PidError> {
        PidServer::start(node, name, parent, ids, true)
    }

    /// Joins a fleet. `ids` is the number of its founder.
    ///
    /// # Errors
    /// [`PidErrorKind::BadCount`] for 0 ids. [`PidErrorKind::Pool`], [`PidErrorKind::NotServed`],
    /// [`PidErrorKind::LongName`].
    pub fn join(node: &Node, name: &Name, parent: &NameCapability, ids: u32) -> Result<PidServer, PidError> {
        PidServer::start(node, name, parent, ids, false)
    }

    fn start(
        node: &Node,
        name: &Name,
        parent: &NameCapability,
        ids: u32,
        founds: bool,
    ) -> Result<PidServer, PidError> {
        let error = |kind| PidError { fleet: name.clone(), kind };
        if ids == 0 {
            return Err(error(PidErrorKind::BadCount));
        }
        let join = |part: &str| {
            let pool: Name = format!("{name}/{part}").parse().map_err(|_| error(PidErrorKind::LongName))?;
            let pool = DistributedPool::join(node, &pool, parent, Attributes::default());
            pool.map_err(|why| error(PidErrorKind::Pool(why)))
        };
        let pools = [join("even")?, join("odd")?];
        let (round, clients) = (Mutex::new(0), Mutex::new(HashMap::new()));
        let inner = Arc::new(Inner { key: random(), ids, pools, round, clients });
        let leave = || inner.pools.iter().for_each(|pool| _ = pool.shutdown(ADD));
        if founds {
            let here = inner.pools[0].location();
            if inner.pools[0].locations().first().copied() != here {
                leave();
                return Err(error(PidErrorKind::NotFirst));
            }
            for id in 1..=ids {
                if let Err(why) = inner.rest(Resting { id, round: 0 }) {
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
        self.inner.round()
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
    /// server loses them.
    ///
    /// # Errors
    /// [`PidErrorKind::NotServed`]. [`PidErrorKind::Pool`]: the server goes on leaving.
    pub fn shutdown(&self, node: &Node, limit: Duration) -> Result<(), PidError> {
        let ended = node.end_service(&self.capability);
        ended.map_err(|why| self.error(PidErrorKind::NotServed(why)))?;
        for pool in &self.inner.pools {
            pool.shutdown(limit).map_err(|why| self.error(PidErrorKind::Pool(why)))?;
        }
        Ok(())
    }

    fn error(&self, kind: PidErrorKind) -> PidError {
        PidError { fleet: self.fleet.clone(), kind }
    }
}
