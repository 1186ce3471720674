//! The books: the calls that ran, as the members tell them, and the ends of the calls, as the clients see
//! them.
//!
//! - I1. A member tells each run before the client can have its result. So the news of a killed member has
//!   each call that returned.
//! - I2. Each shard has a life, which begins with an empty state. A later life has a larger number. A call
//!   that begins after a result of a life has returned runs in that life or a later one.
//! - I3. In one life of a shard, each result has a count of its own, and later calls have larger counts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::spans::Spans;
use super::state::ShardState;
use crate::run::lock;

/// The shards of the fleet of counters.
pub(super) const SHARDS: u32 = 16;
/// The number that stands for the echo service.
pub(super) const ECHO: u32 = SHARDS;
/// Services and shards that are called.
pub(super) const PLACES: usize = SHARDS as usize + 1;

/// A life of a shard, and a count in it.
pub(super) type Point = (u64, u64);

/// The results that have been seen from one shard.
#[derive(Debug, Default)]
struct Seen {
    newest: Point,
    /// The counts of the newest life.
    counts: Spans,
}

/// Counts of the ends of calls, for people.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) done: AtomicU64,
    pub(super) unsure: AtomicU64,
    pub(super) not_run: AtomicU64,
}

/// Everything that members and clients have told.
#[derive(Debug)]
pub(super) struct Books {
    /// The numbers of the calls that ran, by client and place.
    ran: Mutex<HashMap<(u64, u32), Spans>>,
    /// Lives of shards that began.
    pub(super) lives: AtomicU64,
    seen: [Mutex<Seen>; SHARDS as usize],
    pub(super) ends: Ends,
    wrong: Mutex<Option<String>>,
}

/// The ends of one client's calls of one place.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// The last number given to a call.
    pub(super) last: u64,
    done: Spans,
    unsure: Spans,
    not_run: Spans,
    /// The life of the newest result, and the calls that returned from it.
    life: u64,
    in_life: Spans,
}

impl Account {
    pub(super) fn done(&mut self, number: u64, life: u64) {
        self.done.add(number);
        if self.life != life {
            (self.life, self.in_life) = (life, Spans::default());
        }
        self.in_life.add(number);
    }

    pub(super) fn unsure(&mut self, number: u64) {
        self.unsure.add(number);
    }

    pub(super) fn not_run(&mut self, number: u64) {
        self.not_run.add(number);
    }
}

/// The accounts of one client.
pub(super) type Accounts = [Account; PLACES];

/// The sums of books that balance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Balance {
    /// Calls with a result. Each ran once.
    pub done: u64,
    /// Calls that were told as not run. They did not run.
    pub not_run: u64,
    /// Calls that may have run, and did.
    pub unsure_ran: u64,
    /// Calls that may have run, and did not.
    pub unsure_not_run: u64,
    /// Calls that the living shards have counted.
    pub counted: u64,
    /// Shards that began anew, since their owner died.
    pub lost_shards: u64,
}

impl Balance {
    /// Adds the sums of other books.
    pub(super) fn plus(self, other: &Balance) -> Balance {
        Balance {
            done: self.done + other.done,
            not_run: self.not_run + other.not_run,
            unsure_ran: self.unsure_ran + other.unsure_ran,
            unsure_not_run: self.unsure_not_run + other.unsure_not_run,
            counted: self.counted + other.counted,
            lost_shards: self.lost_shards + other.lost_shards,
        }
    }
}

impl Books {
    pub(super) fn new() -> Books {
        Books {
            ran: Mutex::default(),
            lives: AtomicU64::new(0),
            seen: std::array::from_fn(|_| Mutex::default()),
            ends: Ends::default(),
            wrong: Mutex::new(None),
        }
    }

    /// Notes a broken promise. The first one stays.
    pub(super) fn fail(&self, why: String) {
        lock(&self.wrong).get_or_insert(why);
    }

    pub(super) fn wrong(&self) -> Option<String> {
        lock(&self.wrong).clone()
    }

    /// Notes that a call ran.
    pub(super) fn ran(&self, client: u64, place: u32, number: u64) {
        if !lock(&self.ran).entry((client, place)).or_default().add(number) {
            self.fail(format!("call {number} of client {client} to {} ran twice", name(place)));
        }
    }

    /// Returns the newest result of a shard that has been seen.
    pub(super) fn newest(&self, shard: u32) -> Point {
        lock(&self.seen[shard as usize]).newest
    }

    /// Notes a result of a shard. `before` is the newest one that had been seen when the call began.
    pub(super) fn see(&self, shard: u32, before: Point, result: Point) {
        let mut seen = lock(&self.seen[shard as usize]);
        let is_new = if result.0 < seen.newest.0 {
            true
        } else {
            if result.0 > seen.newest.0 {
                seen.counts = Spans::default();
            }
            seen.newest = seen.newest.max(result);
            seen.counts.add(result.1)
        };
        drop(seen);
        if !is_new {
            self.fail(format!("two calls of shard {shard} were the one with count {}: two owners", result.1));
        }
        if result <= before {
            self.fail(format!(
                "a call of shard {shard} got the count {} of life {}, after another one had returned {} of life {}",
                result.1, result.0, before.1, before.0
            ));
        }
    }

    /// Compares the ends of all calls with their runs, and with the states of the shards. All members and
    /// clients have ended.
    pub(super) fn balance(&self, clients: &[Accounts], states: &[ShardState]) -> Result<Balance, String> {
        if let Some(why) = self.wrong() {
            return Err(why);
        }
        let mut sums = Balance::default();
        let ran = lock(&self.ran);
        let nothing = Spans::default();
        for (client, accounts) in clients.iter().enumerate() {
            for (place, account) in (0..).zip(accounts) {
                let ran = ran.get(&(client as u64, place)).unwrap_or(&nothing);
                let call = |number| format!("call {number} of client {client} to {}", name(place));
                if let Some(number) = account.done.numbers().find(|number| !ran.has(*number)) {
                    return Err(format!("{} returned, but did not run", call(number)));
                }
                if let Some(number) = account.not_run.numbers().find(|number| ran.has(*number)) {
                    return Err(format!("{} ran, although it was told as not run", call(number)));
                }
                let ended = |number| account.done.has(number) || account.unsure.has(number);
                if let Some(number) = ran.numbers().find(|number| !ended(*number)) {
                    return Err(format!("{} ran, but was not made", call(number)));
                }
                let unsure_ran = account.unsure.numbers().filter(|number| ran.has(*number)).count() as u64;
                sums.done += account.done.count();
                sums.not_run += account.not_run.count();
                sums.unsure_ran += unsure_ran;
                sums.unsure_not_run += account.unsure.count() - unsure_ran;
            }
        }
        for (shard, state) in (0..).zip(states) {
            compare(shard, state, clients)?;
            sums.counted += state.count;
        }
        sums.lost_shards = self.lives.load(Ordering::Relaxed).saturating_sub(u64::from(SHARDS));
        Ok(sums)
    }
}

/// Compares the state of a shard with the accounts of the clients.
fn compare(shard: u32, state: &ShardState, clients: &[Accounts]) -> Result<(), String> {
    let counted: u64 = state.calls.values().map(Spans::count).sum();
    if counted != state.count {
        return Err(format!("shard {shard} says {} calls, and lists {counted}", state.count));
    }
    let nothing = Spans::default();
    for (client, accounts) in clients.iter().enumerate() {
        let account = &accounts[shard as usize];
        let listed = state.calls.get(&(client as u64)).unwrap_or(&nothing);
        if account.life > state.life {
            return Err(format!("shard {shard} is in an older life than its last result to client {client}"));
        }
        let missed = account.in_life.numbers().find(|number| !listed.has(*number));
        if let Some(number) = missed.filter(|_| account.life == state.life) {
            return Err(format!(
                "call {number} of client {client} returned, but shard {shard} has not counted it"
            ));
        }
        let ended = |number| account.done.has(number) || account.unsure.has(number);
        if let Some(number) = listed.numbers().find(|number| !ended(*number)) {
            return Err(format!(
                "shard {shard} has counted call {number} of client {client}, which did not run"
            ));
        }
    }
    match state.calls.keys().find(|client| **client >= clients.len() as u64) {
        Some(client) => {
            Err(format!("shard {shard} has counted calls of client {client}, which does not exist"))
        }
        None => Ok(()),
    }
}

fn name(place: u32) -> String {
    if place == ECHO { "the echo".to_owned() } else { format!("shard {place}") }
}

/// The lives of all shards.
pub(super) fn lives(states: &[ShardState]) -> BTreeMap<u32, u64> {
    (0..).zip(states).map(|(shard, state)| (shard, state.life)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Vec<Accounts> {
        vec![std::array::from_fn(|_| Account::default())]
    }

    fn states() -> Vec<ShardState> {
        vec![ShardState { life: 5, ..ShardState::default() }; SHARDS as usize]
    }

    fn wrong(books: &Books, clients: &[Accounts], states: &[ShardState]) -> String {
        books.balance(clients, states).expect_err("the books must not balance")
    }

    #[test]
    fn each_end_of_a_call_is_compared_with_its_run() {
        let (books, mut clients, mut states) = (Books::new(), accounts(), states());
        let account = &mut clients[0][3];
        account.done(1, 5);
        assert!(wrong(&books, &clients, &states).contains("returned, but did not run"));
        books.ran(0, 3, 1);
        assert!(wrong(&books, &clients, &states).contains("has not counted it"));
        states[3].count = 1;
        assert!(wrong(&books, &clients, &states).contains("lists 0"));
        states[3].calls.entry(0).or_default().add(1);
        clients[0][3].unsure(2);
        clients[0][3].unsure(3);
        books.ran(0, 3, 2);
        clients[0][3].not_run(4);
        let balance = books.balance(&clients, &states).expect("the books balance");
        let Balance { done, not_run, unsure_ran, unsure_not_run, counted, lost_shards } = balance;
        assert_eq!((done, not_run, unsure_ran, unsure_not_run, counted, lost_shards), (1, 1, 1, 1, 1, 0));
        books.ran(0, 3, 4);
        assert!(wrong(&books, &clients, &states).contains("told as not run"));
        books.ran(0, 3, 1);
        assert!(wrong(&books, &clients, &states).contains("ran twice"));
    }

    #[test]
    fn a_run_without_a_call_is_found() {
        let (books, clients) = (Books::new(), accounts());
        books.ran(0, ECHO, 1);
        assert!(wrong(&books, &clients, &states()).contains("was not made"));
        let mut other = states();
        (other[2].count, other[2].calls) = (1, [(0, Spans::from_parts([(1, 1)].into_iter()))].into());
        assert!(wrong(&Books::new(), &clients, &other).contains("which did not run"));
        other[2].calls = [(1, Spans::from_parts([(1, 1)].into_iter()))].into();
        assert!(wrong(&Books::new(), &clients, &other).contains("does not exist"));
    }

    #[test]
    fn results_of_a_shard_go_forward() {
        let books = Books::new();
        books.see(0, (0, 0), (5, 1));
        books.see(0, (5, 1), (5, 2));
        // A result of an older life may come late, to a call that began early.
        books.see(0, (0, 0), (4, 9));
        books.see(0, books.newest(0), (6, 1));
        assert_eq!((books.wrong(), books.newest(0)), (None, (6, 1)));
        books.see(0, (6, 1), (5, 3));
        assert!(books.wrong().is_some_and(|why| why.contains("of life 5, after another one had returned")));
        let books = Books::new();
        books.see(0, (0, 0), (5, 1));
        books.see(0, (0, 0), (5, 1));
        assert!(books.wrong().is_some_and(|why| why.contains("two owners")));
    }
}
