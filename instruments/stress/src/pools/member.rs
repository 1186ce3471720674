//! The body of a member process: a member of each pool, workers that add and get, and a watch over the node.
//!
//! - I1. An add is told before it begins and after its end, a get likewise. One write tells a line, so a
//!   killed process has told it whole or not at all.
//! - I2. The watch tells that the node was a member without a pause: all its members in pools serve and have
//!   their old locations. A node that was removed gets new locations. A node with a lease is not removed.
//! - I3. After a removal the watch adds an element to each pool. The member takes its own elements back
//!   before, so all are in the pools once these adds have returned.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use squall::fleet::pool::{Attributes, DistributedPool, PoolEnd, PoolErrorKind, PoolLocation};
use squall::fleet::{HostTransport, NameCapability, Node, NodeBuilder, Transport};

use super::breaks::Break;
use super::news::{News, Order, Part};
use super::rules::{BETWEEN_LOOKS, PATIENCE, POOLS, Time, attributes, now, pool_name};
use crate::fleets::end_with_parent;
use crate::run::{Rng, lock};

/// The elements of a member, above which its workers take more.
const ELEMENTS_MAX: usize = 60;
/// The most elements that a member adds to a pool when it fills all.
const FILL_MAX: u64 = 9;
/// The longest rest of a worker between two operations, in microseconds.
const REST_US_MAX: u64 = 8_000;
/// The longest limit of an operation that is given up early, in microseconds.
const EARLY_US_MAX: u64 = 10_000;
/// Operations of a worker between two changes of its mood.
const MOOD: u64 = 64;
/// The longest time of one look at the group.
const LOOK: Duration = Duration::from_secs(5);
/// The time between two looks of the watch.
const WATCH: Duration = Duration::from_millis(20);

/// Tells news (I1). The process ends if its parent has closed the pipe.
fn tell(news: &News) {
    let mut out = io::stdout().lock();
    if out.write_all(news.line().as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

fn wrong(why: String) -> ! {
    tell(&News::Wrong(why));
    std::process::exit(1);
}

/// Returns the bytes of an element. Few are long.
fn element(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number, 0);
    let more = if rng.one_in(32) { 20_000 } else { rng.below(64) };
    let filler = (0..more).map(|at| (number.wrapping_add(at) % 251) as u8);
    number.to_le_bytes().into_iter().chain(filler).collect()
}

/// Returns the number of an element, if its bytes are those that were added.
fn number_of(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    (bytes == element(number)).then_some(number)
}

/// The member of one pool.
struct Slot {
    pool: DistributedPool,
    location: Option<PoolLocation>,
    /// The member leaves the pool, and will join it again.
    leaves: bool,
}

/// The orders to the workers.
#[derive(Default)]
struct Shift {
    works: bool,
    busy: usize,
}

struct Crew {
    number: u32,
    broken: Option<Break>,
    slots: Vec<Mutex<Slot>>,
    shift: Mutex<Shift>,
    changed: Condvar,
    /// Elements that this process has added.
    added: AtomicU64,
    /// The last time at which the watch found the node a member (I2).
    calm: AtomicU64,
    leaves: AtomicBool,
}

/// The end of an add.
#[derive(PartialEq, Eq)]
enum Added {
    Yes,
    No,
    Unsure,
}

impl Crew {
    fn pool(&self, pool: usize) -> DistributedPool {
        lock(&self.slots[pool]).pool.clone()
    }

    fn has_break(&self, planned: Break) -> bool {
        self.broken == Some(planned)
    }

    /// Loses an element of a pool: the fault of some planned breaks.
    fn lose(&self, pool: usize) {
        drop(self.pool(pool).get(PATIENCE));
    }

    fn add(&self, pool: usize, limit: Duration) -> Added {
        let of = self.pool(pool);
        // Relaxed: the number alone counts.
        let number = (u64::from(self.number) << 32) | self.added.fetch_add(1, Ordering::Relaxed);
        tell(&News::Add { pool, number, at: now() });
        let result = of.add(&element(number), limit);
        if self.has_break(Break::AddTwice) && number.is_multiple_of(16) {
            drop(of.add(&element(number), PATIENCE));
        }
        match result.map_err(|error| error.kind) {
            Ok(()) if self.has_break(Break::TakeRefused) && number.is_multiple_of(16) => {
                tell(&News::Refused { pool, number });
                Added::No
            }
            Ok(()) => {
                tell(&News::Added { pool, number, at: now() });
                Added::Yes
            }
            Err(PoolErrorKind::TimedOut { .. }) if limit >= PATIENCE => self.late("an add", &of),
            Err(PoolErrorKind::TimedOut { begun: false } | PoolErrorKind::Closed) => {
                tell(&News::Refused { pool, number });
                Added::No
            }
            Err(PoolErrorKind::TimedOut { begun: true } | PoolErrorKind::Unknown) => {
                tell(&News::Unsure { pool, number });
                Added::Unsure
            }
            Err(kind) => wrong(format!("an add to {} ended with {kind:?}", pool_name(pool))),
        }
    }

    /// Tells that an operation has not ended, with the state of all members of this process.
    fn late(&self, what: &str, of: &DistributedPool) -> ! {
        let state = |slot: &Mutex<Slot>| {
            let slot = lock(slot);
            let (pool, leaves) = (&slot.pool, slot.leaves);
            let (members, serves, len) = (pool.locations(), pool.is_serving(), pool.len_here());
            format!(
                "{}: {members:?}, me {:?}, serves {serves}, leaves {leaves}, {len} elements",
                pool.name(),
                pool.location()
            )
        };
        let states: Vec<String> = self.slots.iter().map(state).collect();
        wrong(format!("{what} of {} has not ended within {PATIENCE:?}; {}", of.name(), states.join("; ")))
    }

    /// Takes an element. Returns whether there was one.
    fn get(&self, pool: usize, worker: u64, limit: Duration) -> bool {
        let of = self.pool(pool);
        tell(&News::Get { pool, worker, at: now() });
        match of.get(limit).map_err(|error| error.kind) {
            Ok(Some(bytes)) => {
                let Some(number) = number_of(&bytes) else {
                    wrong(format!("a get of {} returned {} wrong bytes", pool_name(pool), bytes.len()))
                };
                let is_planned = self.has_break(Break::FalseEmpty) && number.is_multiple_of(4);
                if is_planned && lock(&self.shift).works {
                    tell(&News::Empty { pool, worker, at: now() });
                    drop(of.add(&bytes, PATIENCE));
                } else {
                    tell(&News::Got { pool, worker, number });
                }
                return true;
            }
            Ok(None) => tell(&News::Empty { pool, worker, at: now() }),
            Err(PoolErrorKind::TimedOut { .. }) if limit >= PATIENCE => self.late("a get", &of),
            Err(PoolErrorKind::Closed) => tell(&News::Nothing { pool, worker }),
            Err(PoolErrorKind::TimedOut { begun }) => {
                if self.has_break(Break::KeepGivenUp) {
                    self.lose(pool);
                }
                tell(&if begun { News::GivenUp { pool, worker } } else { News::Nothing { pool, worker } });
            }
            Err(kind) => wrong(format!("a get of {} ended with {kind:?}", pool_name(pool))),
        }
        false
    }

    /// The body of a worker.
    fn work(&self, worker: u64, mut rng: Rng) {
        let (mut adds, mut left) = (6, MOOD);
        loop {
            self.begin();
            let pool = rng.below(POOLS as u64) as usize;
            let early = Duration::from_micros(rng.below(EARLY_US_MAX));
            let limit = if rng.one_in(16) { early } else { PATIENCE };
            let is_full = self.pool(pool).len_here() > ELEMENTS_MAX;
            if rng.below(8) < adds && !is_full {
                self.add(pool, limit);
            } else {
                self.get(pool, worker, limit);
            }
            self.end();
            left -= 1;
            if left == 0 {
                (adds, left) = (if rng.one_in(2) { 6 } else { 2 }, MOOD);
            }
            thread::sleep(Duration::from_micros(rng.below(REST_US_MAX)));
        }
    }

    /// Waits until workers may work, and begins an operation.
    fn begin(&self) {
        let mut shift = lock(&self.shift);
        while !shift.works {
            shift = self.changed.wait(shift).unwrap_or_else(|poison| poison.into_inner());
        }
        shift.busy += 1;
    }

    fn end(&self) {
        lock(&self.shift).busy -= 1;
        self.changed.notify_all();
    }

    fn let_work(&self, works: bool) {
        let mut shift = lock(&self.shift);
        shift.works = works;
        self.changed.notify_all();
        while !works && shift.busy > 0 {
            shift = self.changed.wait(shift).unwrap_or_else(|poison| poison.into_inner());
        }
    }

    /// Leaves a pool while the workers use it.
    fn quit(&self, pool: usize) {
        lock(&self.slots[pool]).leaves = true;
        if self.has_break(Break::LoseInLeave) {
            self.lose(pool);
        }
        match self.pool(pool).shutdown(PATIENCE) {
            Ok(PoolEnd::LastLeft { lost }) if lost > 0 => {
                let lost = if self.has_break(Break::MiscountEnd) { lost + 1 } else { lost };
                tell(&News::LostAsLast { pool, lost });
            }
            Ok(_) => {}
            Err(error) => wrong(format!("a member cannot leave: {error}")),
        }
    }

    /// Joins a pool again.
    fn enter(&self, node: &Node, root: &NameCapability, pool: usize) {
        let joined = join(node, root, pool);
        let location = joined.location();
        *lock(&self.slots[pool]) = Slot { pool: joined, location, leaves: false };
        tell(&News::Renewed);
    }

    /// Returns the locations of all members that do not leave, if they all serve.
    fn locations(&self) -> Option<Vec<Option<PoolLocation>>> {
        let look = |slot: &Mutex<Slot>| {
            let slot = lock(slot);
            let location = slot.pool.location();
            (slot.leaves || (location.is_some() && slot.pool.is_serving()))
                .then_some(location.filter(|_| !slot.leaves))
        };
        self.slots.iter().map(look).collect()
    }

    /// Returns whether the members that do not leave have these locations, and those of the slots.
    fn are_known(&self, locations: &[Option<PoolLocation>]) -> bool {
        let known = |(slot, location): (&Mutex<Slot>, &Option<PoolLocation>)| {
            let slot = lock(slot);
            slot.leaves || location.is_none() || slot.location == *location
        };
        self.slots.iter().zip(locations).all(known)
    }

    /// The body of the watch (I2).
    fn watch(&self) {
        // Relaxed: the flag and the time publish no other data.
        while !self.leaves.load(Ordering::Relaxed) {
            thread::sleep(WATCH);
            let at = now();
            let Some(locations) = self.locations() else { continue };
            if locations.iter().all(Option::is_none) {
                continue;
            }
            if self.are_known(&locations) {
                self.note_calm(at);
            } else {
                self.note_removal();
            }
        }
    }

    fn note_calm(&self, at: Time) {
        tell(&News::Calm { at });
        self.calm.store(at, Ordering::Relaxed);
    }

    /// Waits until the elements of this member are back in the pools (I3).
    fn note_removal(&self) {
        let from = self.calm.load(Ordering::Relaxed);
        while !self.leaves.load(Ordering::Relaxed) {
            let before = self.locations().filter(|locations| locations.iter().all(Option::is_some));
            let Some(before) = before else {
                thread::sleep(BETWEEN_LOOKS);
                continue;
            };
            if self.has_break(Break::LoseInStop) {
                (0..POOLS).for_each(|pool| self.lose(pool));
            }
            let all_back = (0..POOLS).all(|pool| self.add(pool, PATIENCE) == Added::Yes);
            let to = now();
            if all_back && self.locations().as_ref() == Some(&before) {
                for (slot, location) in self.slots.iter().zip(before) {
                    lock(slot).location = location;
                }
                tell(&News::Removed { from, to });
                return self.note_calm(to);
            }
        }
    }

    /// Waits until all pools and the group have so many members, and these vote in the group.
    fn settle(&self, node: &Node, members: usize) {
        let began = now();
        let is_whole = |slot: &Mutex<Slot>| lock(slot).pool.locations().len() == members;
        let vote = || {
            node.show(LOOK).is_ok_and(|info| {
                info.members.len() == members && info.members.iter().all(|member| member.votes)
            })
        };
        while self.calm.load(Ordering::Relaxed) <= began
            || !self.slots.iter().all(is_whole)
            || self.locations().is_none_or(|locations| !self.are_known(&locations))
            || !vote()
        {
            thread::sleep(BETWEEN_LOOKS);
        }
        tell(&News::Settled);
    }

    fn obey(&self, order: Order, node: &Node, root: &NameCapability, workers: u64) {
        match order {
            Order::Work => self.let_work(true),
            Order::Rest => {
                self.let_work(false);
                tell(&News::Rested);
            }
            Order::Fill => {
                for pool in 0..POOLS {
                    let more = (u64::from(self.number) + 3 * pool as u64) % FILL_MAX;
                    (0..=more).for_each(|_| _ = self.add(pool, PATIENCE));
                }
                tell(&News::Filled);
            }
            Order::Settle(members) => self.settle(node, members),
            Order::Hold => {
                tell(&News::Held(std::array::from_fn(|pool| self.pool(pool).len_here() as u64)));
            }
            Order::Renew(pool) => {
                self.quit(pool);
                self.enter(node, root, pool);
            }
            Order::Quit(pool) => {
                self.quit(pool);
                tell(&News::Quit);
            }
            Order::Enter(pool) => self.enter(node, root, pool),
            Order::Drain => {
                for pool in 0..POOLS {
                    while self.get(pool, workers, PATIENCE) {}
                }
                tell(&News::Drained);
            }
            Order::Lose => (0..POOLS).for_each(|pool| self.lose(pool)),
            Order::Leave => {
                // Relaxed: it publishes no other data.
                self.leaves.store(true, Ordering::Relaxed);
                if let Err(error) = node.leave(PATIENCE) {
                    wrong(format!("the member cannot leave: {error}"));
                }
                tell(&News::Left { at: now() });
                self.let_work(false);
            }
        }
    }
}

/// Joins a pool. Tries again while the group has no leader.
fn join(node: &Node, root: &NameCapability, pool: usize) -> DistributedPool {
    let deadline = now() + PATIENCE.as_nanos() as Time;
    let attributes: Attributes = attributes(pool);
    loop {
        match DistributedPool::join(node, &pool_name(pool), root, attributes.clone()) {
            Ok(pool) => return pool,
            Err(error) if now() > deadline => wrong(format!("a member cannot join: {error}")),
            Err(_) => thread::sleep(BETWEEN_LOOKS),
        }
    }
}

/// Runs a member process, until its parent closes its input or orders it to leave. Its part is the first
/// line of its input.
///
/// # Errors
/// The input is not that of a member, the member does not join in time, or the system refuses something.
pub fn member() -> Result<(), String> {
    end_with_parent().map_err(|error| error.to_string())?;
    let mut input = io::stdin().lock();
    let mut line = String::new();
    input.read_line(&mut line).map_err(|error| error.to_string())?;
    let part = Part::parse(&line).ok_or("the input is not that of a member of a stress")?;
    let (node, root) = enter(&part)?;
    let slot = |pool| {
        let pool = join(&node, &root, pool);
        Mutex::new(Slot { location: pool.location(), pool, leaves: false })
    };
    let crew = Arc::new(Crew {
        number: part.number,
        broken: part.broken,
        slots: (0..POOLS).map(slot).collect(),
        shift: Mutex::default(),
        changed: Condvar::new(),
        added: AtomicU64::new(0),
        calm: AtomicU64::new(now()),
        leaves: AtomicBool::new(false),
    });
    let spawn = |name: &str, body: Box<dyn FnOnce(&Crew) + Send>| {
        let crew = Arc::clone(&crew);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || body(&crew));
        thread.map(drop).map_err(|error| error.to_string())
    };
    for worker in 0..part.workers {
        let rng = Rng::new(part.seed, worker);
        spawn("stress-worker", Box::new(move |crew| crew.work(worker, rng)))?;
    }
    spawn("stress-watch", Box::new(Crew::watch))?;
    tell(&News::Ready);
    loop {
        line.clear();
        input.read_line(&mut line).map_err(|error| error.to_string())?;
        if line.is_empty() {
            break;
        }
        let order = Order::parse(&line).ok_or_else(|| format!("{line:?} is no order"))?;
        crew.obey(order, &node, &root, part.workers);
        if order == Order::Leave {
            break;
        }
    }
    drop(node);
    Ok(())
}

fn enter(part: &Part) -> Result<(Node, NameCapability), String> {
    let bad = |error: io::Error| format!("there is no transport {}: {error}", part.endpoint);
    let builder = NodeBuilder::new(part.key);
    #[cfg(feature = "net")]
    if let Some(address) = part.endpoint.strip_prefix("tcp/") {
        let address: std::net::SocketAddr = address.parse().map_err(|error| format!("{address}: {error}"))?;
        let transport = squall_net::Tcp::builder(address).build().map_err(bad)?;
        // Each address is a machine of its own.
        let host = match address.ip() {
            std::net::IpAddr::V4(ip) => u32::from(ip).into(),
            std::net::IpAddr::V6(ip) => u128::from(ip) as u64,
        };
        return enter_by(part, builder.host(host), transport);
    }
    let name = part.endpoint.strip_prefix("host/").ok_or("the endpoint of a member begins with host/")?;
    enter_by(part, builder, HostTransport::bind(name).map_err(bad)?)
}

fn enter_by(
    part: &Part,
    builder: NodeBuilder,
    transport: impl Transport,
) -> Result<(Node, NameCapability), String> {
    let Some(root) = &part.root else {
        let (node, root) = builder.found(transport, &[]).map_err(|error| error.to_string())?;
        tell(&News::Founded(root.to_string()));
        return Ok((node, root));
    };
    let root: NameCapability = root.parse().map_err(|_| "the right to all names is malformed")?;
    let seeds: Vec<&str> = part.seeds.iter().map(String::as_str).collect();
    let node = builder.join(transport, &seeds).map_err(|error| error.to_string())?;
    node.wait_joined(PATIENCE).map_err(|error| format!("the member has not joined: {error}"))?;
    Ok((node, root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_their_bytes() {
        for number in [0, 1, 77, u64::MAX] {
            let mut bytes = element(number);
            assert_eq!(number_of(&bytes), Some(number));
            bytes.push(0);
            assert_eq!(number_of(&bytes), None);
        }
        assert_eq!(number_of(&[0; 7]), None);
    }
}
