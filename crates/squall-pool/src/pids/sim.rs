//! A simulator of rounds: servers and clients over two sets, with each step of a draw and of a free on its
//! own.
//!
//! Each seed is one schedule. Servers are killed at any step, also between the draw of an id and its answer,
//! and new ones join late. A schedule that fails prints its seed.
//!
//! Checked: `rounds/I1` to `rounds/I4`, that each id is in one place, and `pids/I3`. Two twins without a
//! safeguard must fail.

use super::rounds::{Draw, Rounds, Step};
use super::wire::Resting;
use crate::protocol::Random;
use std::collections::BTreeMap;

const SCHEDULES: u64 = 1000;
const STEPS: u64 = 300;

/// A safeguard that a twin lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twin {
    Ships,
    /// A free does not hold the lock of the rounds (`server/S1`).
    WithoutLock,
    /// Clients do not pass rounds on (`server/S3`).
    WithoutSeen,
}

#[derive(Clone, Copy, Debug)]
struct World {
    servers: usize,
    clients: usize,
    /// The calls of all clients that run at a time.
    calls: usize,
    deaths: bool,
    twin: Twin,
}

/// A call on its way.
#[derive(Clone, Copy, Debug)]
enum Call {
    Draw {
        draw: Draw,
        step: Step,
        /// The time at which the draw found its first pool empty.
        found_empty: Option<u64>,
    },
    /// Has the result of a get, and waits for the lock of the rounds.
    Got { draw: Draw, round: u64, found: Option<Resting>, found_empty: Option<u64> },
    /// Has the lock of the rounds, and its id is not in the pool yet.
    Free(Resting),
}

struct Simulator {
    world: World,
    random: Random,
    /// Grows with each step.
    now: u64,
    servers: Vec<Rounds>,
    /// The newest round that each client knows.
    seen: Vec<u64>,
    calls: Vec<(usize, usize, Call)>,
    /// The ids that rest, with the times of their adds.
    pools: [Vec<(Resting, u64)>; 2],
    /// The ids in use, with the rounds of their draws.
    used: Vec<(u32, u64)>,
    /// The last round in which each id was drawn.
    drawn: BTreeMap<u32, u64>,
    /// The times at which each round began, and at which the first server knew that.
    begun: BTreeMap<u64, (u64, u64)>,
    /// The time at which each id came into a pool by its last free.
    freed: BTreeMap<u32, u64>,
    /// The times at which ids came into a pool, and left it.
    rests: Vec<(u64, u64)>,
}

impl Simulator {
    fn new(seed: u64, world: World, ids: u32) -> Simulator {
        let resting = (1..=ids).map(|id| (Resting { id, round: 0 }, 0)).collect();
        Simulator {
            world,
            random: Random(seed),
            now: 0,
            servers: vec![Rounds::new(0); world.servers],
            seen: vec![0; world.clients],
            calls: Vec::new(),
            pools: [resting, Vec::new()],
            used: Vec::new(),
            drawn: BTreeMap::new(),
            rests: Vec::new(),
            begun: BTreeMap::from([(0, (0, 0))]),
            freed: (1..=ids).map(|id| (id, 0)).collect(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn newest(&self) -> u64 {
        *self.begun.keys().last().expect("round 0 has begun")
    }

    /// Whether calls come one after the other, at one server or from one client.
    fn is_single(&self) -> bool {
        self.world.calls == 1 && (self.world.servers == 1 || self.world.clients == 1)
    }

    /// Whether a free has the lock of the rounds of a server.
    fn is_locked(&self, server: usize) -> bool {
        let holds = |(at, _, call): &(usize, usize, Call)| *at == server && matches!(call, Call::Free(_));
        self.world.twin != Twin::WithoutLock && self.calls.iter().any(holds)
    }

    fn begin(&mut self) {
        let (server, client) = (self.below(self.servers.len()), self.below(self.world.clients));
        let frees = !self.used.is_empty() && self.random.below(2) == 0;
        if self.is_locked(server) {
            return;
        }
        let seen = if self.world.twin == Twin::WithoutSeen { 0 } else { self.seen[client] };
        self.servers[server].learn(seen);
        let call = if frees {
            let at = self.below(self.used.len());
            let (id, round) = self.used.swap_remove(at);
            Call::Free(self.servers[server].rest(id, round))
        } else {
            let (draw, step) = Draw::begin(self.servers[server]);
            Call::Draw { draw, step, found_empty: None }
        };
        self.calls.push((server, client, call));
    }

    /// Runs the next step of a call.
    fn advance(&mut self, at: usize) {
        let (server, client, call) = self.calls.swap_remove(at);
        let call = match call {
            Call::Free(resting) => {
                self.freed.insert(resting.id, self.now);
                self.pools[(resting.round % 2) as usize].push((resting, self.now));
                None
            }
            Call::Draw { draw, step: Step::Get { round }, found_empty } => {
                let found = self.take(round);
                let found_empty = found_empty.or_else(|| found.is_none().then_some(self.now));
                Some(Call::Got { draw, round, found, found_empty })
            }
            Call::Got { .. } if self.is_locked(server) => Some(call),
            Call::Got { draw, round, found, found_empty } => {
                Some(self.got(server, draw, round, found, found_empty))
            }
            Call::Draw { step: Step::PutBack(resting), .. } => {
                self.pools[(resting.round % 2) as usize].push((resting, self.now));
                let (draw, step) = Draw::begin(self.servers[server]);
                Some(Call::Draw { draw, step, found_empty: None })
            }
            Call::Draw { step: Step::Drawn { id, round }, .. } => {
                self.used.push((id, round));
                self.seen[client] = self.seen[client].max(round);
                None
            }
            Call::Draw { step: Step::AllInUse, .. } => None,
        };
        self.calls.extend(call.map(|call| (server, client, call)));
    }

    /// Takes any id of a pool.
    fn take(&mut self, round: u64) -> Option<Resting> {
        let pool = (round % 2) as usize;
        let len = self.pools[pool].len();
        let at = self.below(len);
        let (resting, added) = (len > 0).then(|| self.pools[pool].swap_remove(at))?;
        self.rests.push((added, self.now));
        Some(resting)
    }

    fn got(
        &mut self,
        server: usize,
        mut draw: Draw,
        round: u64,
        found: Option<Resting>,
        found_empty: Option<u64>,
    ) -> Call {
        let step = draw.got(&mut self.servers[server], found);
        let newest = self.servers[server].newest();
        if newest > self.newest() {
            // `rounds/I2`.
            assert_eq!(newest, self.newest() + 1, "a server skips rounds");
            let began = found_empty.expect("a draw begins a round after it found the pool empty");
            self.begun.insert(newest, (began, self.now));
        }
        if let Some(resting) = found {
            match step {
                Step::Drawn { id, round } => {
                    // `rounds/I1`.
                    let last = self.drawn.insert(id, round);
                    assert!(last.is_none_or(|last| last < round), "{id} was drawn in {last:?} and {round}");
                    let is_old = self.is_single() && round != self.newest();
                    assert!(!is_old, "a late server draws {id} in {round}, not in {}", self.newest());
                    let is_exact = self.is_single() || self.world.servers == 1;
                    let is_late = round > 0 && self.freed[&id] > self.begun[&round].1;
                    assert!(!is_exact || !is_late, "{id} was freed in round {round}, and drawn in it");
                }
                _ => {
                    // `rounds/I4`.
                    assert!(!self.is_single(), "a late server puts {resting:?} back");
                    let missed = resting.round - 1;
                    assert!(round < missed && missed <= newest, "{resting:?} from the pool of {round}");
                }
            }
        }
        Call::Draw { draw, step, found_empty }
    }

    /// Kills a server, with its calls and some of the ids that rest. Another one joins in its place, with a
    /// round that was new some time ago.
    fn kill(&mut self) {
        let (server, told) = (self.below(self.servers.len()), self.below(self.servers.len()));
        let round = self.servers[told].newest();
        self.calls.retain(|(at, _, _)| *at != server);
        let mut random = self.random.clone();
        self.pools.iter_mut().for_each(|pool| pool.retain(|_| random.below(8) > 0));
        self.random = random;
        self.servers[server] = Rounds::new(round);
    }

    fn check_places(&self, ids: u32) {
        let in_hands = self.calls.iter().filter_map(|(_, _, call)| match call {
            Call::Free(Resting { id, .. }) => Some(*id),
            Call::Got { found, .. } => found.map(|resting| resting.id),
            Call::Draw { step: Step::PutBack(Resting { id, .. }) | Step::Drawn { id, .. }, .. } => Some(*id),
            Call::Draw { .. } => None,
        });
        let resting = self.pools.iter().flatten().map(|(resting, _)| resting.id);
        let mut all: Vec<u32> = self.used.iter().map(|(id, _)| *id).chain(resting).chain(in_hands).collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count, "an id is in two places");
        assert!(count == ids as usize || self.world.deaths, "{count} ids of {ids}");
    }

    /// Runs a schedule. Returns its last round.
    fn run(mut self, ids: u32) -> u64 {
        for _ in 0..STEPS {
            self.now += 1;
            let is_full = self.calls.len() >= self.world.calls;
            match self.random.below(100) {
                0 if self.world.deaths => self.kill(),
                0..40 if !is_full => self.begin(),
                _ if !self.calls.is_empty() => {
                    let at = self.below(self.calls.len());
                    self.advance(at);
                }
                _ => {}
            }
            self.check_places(ids);
        }
        for &(added, taken) in &self.rests {
            // `rounds/I3`.
            let begun = self.begun.values().filter(|(began, _)| (added + 1..taken).contains(began)).count();
            assert!(begun <= 1, "{begun} rounds began while an id rested from {added} to {taken}");
        }
        self.newest()
    }
}

/// Runs all schedules of a world. Returns the number of rounds.
fn run(world: World) -> u64 {
    let schedule = |seed| {
        println!("schedule {seed} of {world:?}");
        let ids = 1 + (seed % 7) as u32;
        Simulator::new(seed, world, ids).run(ids)
    };
    (0..SCHEDULES).map(schedule).sum()
}

const ONE_SERVER: World = World { servers: 1, clients: 3, calls: 3, deaths: false, twin: Twin::Ships };
const ONE_CLIENT: World = World { servers: 4, clients: 1, calls: 1, deaths: false, twin: Twin::Ships };

#[test]
fn dp_19_rounds_keep_their_promises() {
    assert!(run(ONE_SERVER) > SCHEDULES, "rounds begin");
    assert!(run(World { calls: 1, ..ONE_SERVER }) > SCHEDULES, "rounds begin");
    assert!(run(ONE_CLIENT) > SCHEDULES, "rounds begin");
    let many = World { servers: 4, clients: 4, calls: 5, ..ONE_SERVER };
    assert!(run(many) > SCHEDULES, "rounds begin");
    run(World { deaths: true, ..many });
}

#[test]
#[should_panic(expected = "and drawn in it")]
fn without_the_lock_of_a_free_an_id_misses_its_rest() {
    run(World { twin: Twin::WithoutLock, ..ONE_SERVER });
}

#[test]
#[should_panic(expected = "a late server")]
fn without_the_round_of_a_client_a_server_draws_in_an_old_one() {
    run(World { twin: Twin::WithoutSeen, ..ONE_CLIENT });
}
