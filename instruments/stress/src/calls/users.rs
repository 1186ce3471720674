//! Clients of other users: a user that hoards workers or connections leaves other users theirs.
//!
//! The stress needs root here. A child becomes another user before its first import.
//!
//! - I1. A *hoarder* makes as many calls as it can that run until the hoard is over. At no time do more than
//!   half of the workers run calls of one user.
//! - I2. Meanwhile a client of another user calls, with exact books.
//! - I3. A user has at most as many connections as the export allows. A user without a right to connect is
//!   refused.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use squall::call::{Export, ExportError, ExportOptions, ImportError, Refusal, with_deadline};
use squall::{CallErrorKind, Handle, Owned, Transport};

use super::account::{Account, Ledger};
use super::breaks::Break;
use super::hoard::SHARE;
use super::part::{PATIENCE, Part, Role};
use super::processes::{News, Running, Voice, await_end};
use super::world::{PROCESS_PATIENCE, World, compare, count, end};
use crate::run::Rng;

/// Users that may connect. No program runs as one of them.
const USERS: [u32; 3] = [61_831, 61_832, 61_833];
/// A user that may not connect.
const STRANGER: u32 = 61_834;
/// Connections of one user, at most.
const CONNECTIONS: usize = 24;
/// Threads of a hoarder.
const THREADS: u32 = 4;
/// Deadline of a hoarder's call: after it, the call goes on in the server, and the thread makes the next one.
const SHORT: Duration = Duration::from_millis(1);
/// Calls without a worker after which a thread of a hoarder tries another connection.
const MISSES: u32 = 10;
/// Calls of the other user that a hoard waits for.
const CALLS: u64 = 10;
/// Longest wait for them in a run with the planned break.
const BROKEN_PATIENCE: Duration = Duration::from_secs(2);

/// The export for other users.
pub(super) struct Users {
    name: String,
    export: Export,
    /// One hoard at a time.
    turn: Mutex<()>,
}

impl Users {
    /// Exports the object for other users. Returns `None` if this process cannot start children of them.
    pub(super) fn new(object: Handle<dyn Account>, base: &str) -> Result<Option<Users>, ExportError> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        if !may_change_user(&read("/proc/self/status"), &read("/proc/self/uid_map")) {
            return Ok(None);
        }
        let name = format!("{base}-users");
        let options = ExportOptions::new().clients_per_user(CONNECTIONS).calls_per_client(2 * SHARE);
        let options = USERS.into_iter().fold(options, ExportOptions::allow_user);
        Ok(Some(Users { export: options.export(object, &name)?, name, turn: Mutex::new(()) }))
    }
}

/// Whether a process with this status and these numbers of users is root, and may become one of [`USERS`].
fn may_change_user(status: &str, uid_map: &str) -> bool {
    const CAP_SETUID: u32 = 7;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let effective = field("Uid:").and_then(|ids| ids.split_whitespace().nth(1)) == Some("0");
    let capabilities = field("CapEff:").and_then(|bits| u64::from_str_radix(bits, 16).ok()).unwrap_or(0);
    let maps = |user: u32| {
        uid_map.lines().any(|line| {
            let numbers: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            matches!(numbers[..], [from, _, length] if (from..from + length).contains(&u64::from(user)))
        })
    };
    effective && capabilities >> CAP_SETUID & 1 == 1 && maps(USERS[0]) && maps(STRANGER)
}

/// Ends the hoard on all ways.
struct Hoarding<'a>(&'a Ledger);

impl Drop for Hoarding<'_> {
    fn drop(&mut self) {
        self.0.hoard.end();
    }
}

/// Lets one or two users hoard while another one calls. Returns whether another hoard was under way.
pub(super) fn with_users(world: &World<'_>, users: &Users, rng: &mut Rng) -> Result<bool, String> {
    let _turn = match users.turn.try_lock() {
        Ok(turn) => turn,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Ok(true),
    };
    let first = rng.below(3) as usize;
    let user = |at: usize| USERS[(first + at) % USERS.len()];
    let shares_count = world.is_broken(Break::IgnoreShares);
    let hoarders = if shares_count || rng.one_in(2) { 2 } else { 1 };
    let calls = if shares_count || rng.one_in(3) { 2 * SHARE as u64 } else { 1 + rng.below(200) };
    let part =
        |role, threads, seed, user| Part { user: Some(user), ..Part::new(role, threads, seed, &users.name) };
    world.ledger.hoard.begin();
    let hoarding = Hoarding(&world.ledger);
    let started: Result<Vec<Running>, String> =
        (0..hoarders).map(|at| start(&part(Role::Hoarder, calls as u32, rng.next(), user(at)))).collect();
    let mut running = started?;
    for hoarder in &mut running {
        hoarder.await_ready(1, PROCESS_PATIENCE)?;
    }
    for at in 0..hoarders {
        let clients = users.export.clients();
        let connections = clients.iter().filter(|client| client.uid() == Some(user(at))).count();
        if connections > CONNECTIONS {
            return Err(format!("one user has {connections} connections, not {CONNECTIONS} at most"));
        }
    }
    let mut victim = start(&part(Role::Client, 3, rng.next(), user(2)))?;
    let pid = victim.pid();
    victim.await_ready(1, PROCESS_PATIENCE)?;
    await_more_calls(world, &victim)?;
    if rng.one_in(4) {
        let mut stranger = start(&part(Role::Stranger, 0, rng.next(), STRANGER))?;
        stranger.await_ready(1, PROCESS_PATIENCE)?;
        end(world, stranger, false)?;
        count(&world.counts.strangers, 1);
    }
    if rng.one_in(2) {
        // The calls of a killed hoarder go on, and count.
        for hoarder in running.drain(..) {
            end(world, hoarder, true)?;
        }
        await_more_calls(world, &victim)?;
    }
    let most = world.ledger.hoard.end();
    drop(hoarding);
    if most > SHARE {
        return Err(format!("{most} calls of one user ran at a time, more than its share of {SHARE}"));
    }
    world.counts.most_hoarded.fetch_max(most as u64, Ordering::Relaxed);
    for hoarder in running {
        end(world, hoarder, rng.one_in(2))?;
    }
    let kill = !rng.one_in(4);
    let ended = end(world, victim, kill)?;
    count(&world.counts.hoards, 1);
    compare(world, pid, &ended, (Role::Client, kill))?;
    Ok(false)
}

fn start(part: &Part) -> Result<Running, String> {
    Running::start(&part.arguments()).map_err(|error| format!("cannot start: {error}"))
}

/// Waits until more calls of the other user have returned.
fn await_more_calls(world: &World<'_>, victim: &Running) -> Result<(), String> {
    let began = Instant::now();
    let limit = if world.is_broken(Break::StarveUser) { BROKEN_PATIENCE } else { PATIENCE };
    let enough = victim.diary().done() + CALLS;
    while victim.diary().done() < enough {
        if victim.diary().is_wrong() {
            // The end of the client tells it.
            return Ok(());
        }
        if began.elapsed() > limit {
            return Err("while one user hoards calls, those of another user are not served".to_owned());
        }
        thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// The body of a hoarder: makes calls that do not end, until it gets no more workers or has enough.
pub(super) fn hoard(part: &Part) -> Result<(), String> {
    let options = part.options();
    let (mut objects, parked) = (Vec::<Owned<dyn Account>>::new(), AtomicUsize::new(0));
    loop {
        let object = match options.import(&part.name) {
            Ok(object) => object,
            // Those of an earlier hoarder count until their calls have ended.
            Err(ImportError::Refused(Refusal::Busy)) => break,
            Err(error) => return Err(error.to_string()),
        };
        objects.push(object);
        if objects.len() > CONNECTIONS {
            return Err(format!("a user has made more than {CONNECTIONS} connections"));
        }
        let before = parked.load(Ordering::Relaxed);
        let Some(object) = objects.last().map(Owned::handle) else { break };
        let results: Vec<Result<(), String>> = thread::scope(|scope| {
            let park = || park(object, part.threads as usize, &parked);
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(park)).collect();
            let panicked = |_| Err("a thread of the stress panicked".to_owned());
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
        });
        results.into_iter().collect::<Result<(), String>>()?;
        let now = parked.load(Ordering::Relaxed);
        if now == before || now >= part.threads as usize {
            break;
        }
    }
    Voice::default().tell(News::Ready, 0);
    await_end();
    drop(objects);
    Ok(())
}

/// Makes calls of one connection that do not end.
fn park(object: Handle<dyn Account>, enough: usize, parked: &AtomicUsize) -> Result<(), String> {
    let mut misses = 0;
    while misses < MISSES && parked.load(Ordering::Relaxed) < enough {
        match with_deadline(SHORT, || object.try_park()).map_err(|error| (error.reason(), error)) {
            // The call goes on there.
            Err((CallErrorKind::Transport(Transport::Deadline), _)) => {
                parked.fetch_add(1, Ordering::Relaxed);
                misses = 0;
            }
            Err((CallErrorKind::Transport(Transport::Busy), _)) => misses += 1,
            // The hoard is over.
            Ok(()) => break,
            Err((_, error)) => return Err(format!("a hoarder's call failed: {error}")),
        }
    }
    Ok(())
}

/// The body of a stranger: it must not get in.
pub(super) fn knock(part: &Part) -> Result<(), String> {
    let voice = Voice::default();
    match part.options().import::<dyn Account>(&part.name) {
        Err(ImportError::Refused(Refusal::Denied)) => {
            voice.tell(News::Ready, 0);
            await_end();
            Ok(())
        }
        Ok(_) => voice.wrong("a user without a right to it connected"),
        Err(error) => voice.wrong(&format!("a user without a right to connect got: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_the_whole_system_may_change_its_user() {
        let all = "         0          0 4294967295\n";
        let root = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n";
        assert!(may_change_user(root, all));
        assert!(!may_change_user(root, "0 1000 1\n"));
        assert!(!may_change_user("Uid:\t7\t7\t7\t7\nCapEff:\t000001ffffffffff\n", all));
        assert!(!may_change_user("Uid:\t0\t0\t0\t0\nCapEff:\t000000000000001f\n", all));
        assert!(!may_change_user("", ""));
    }
}
