//! Stress of calls between processes: clients and servers are killed at any moment, and some are hostile.
//!
//! Promised (`squall-call`): a method runs once for each call that returns its result, and at most once for
//! a call that fails. A call of a killed process ends with an error. A hostile peer harms its own calls
//! alone. After either process has ended, the other keeps no trace of the connection.
//!
//! - I1. Random choices come from the run's seed. The scheduler's choices do not, such as the moment at which
//!   a process dies.
//! - I2. This process exports an object that counts calls for each process and thread. Clients are child
//!   processes (`child`). They tell each call that has returned. After a client's death the counts must
//!   agree, but for the call that the death interrupted.
//! - I3. This process calls objects of other child processes, which are killed during its calls.
//! - I4. A hostile child writes random words into all of the memory that it shares (`scribble`). Its own
//!   calls are not judged.
//! - I5. At the end this process has no descriptor and no mapping more than before.
//! - I6. Each planned break must end the run with a violation (`breaks`).

mod account;
mod breaks;
mod caller;
mod child;
mod processes;
mod scribble;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use squall::call::{Export, ImportOptions, export, import};
use squall::{CallErrorKind, Handle, Owned, Transport};

use crate::run::{Report, Rng, Run, Stress, Violation, exclusive, lock, threads_beyond_processors};
use crate::skeleton::breaks::{Breaks, asked};
use account::{Account, Keeper, Ledger};
use breaks::Break;
use caller::{Calls, Outcome};
use child::{HOSTILE_PATIENCE, PATIENCE, Part};
use processes::{Ended, Running, THREADS_MAX};

pub use child::child;
pub use processes::COMMAND;

pub(super) const STRESS: Stress = Stress {
    name: "calls",
    about: "calls between processes that are killed or hostile are neither lost nor doubled, and nothing remains",
    run,
    threads: threads_beyond_processors,
};

/// Longest life of a child, in microseconds.
const LIFE_MAX: u64 = 20_000;
/// Longest time for a child to start or to end. It takes milliseconds on an idle machine.
const PROCESS_PATIENCE: Duration = Duration::from_secs(120);
/// Looks for traces of the run at its end, and the time between them.
const LOOKS: u32 = 2_000;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Counts of the work.
#[derive(Debug, Default)]
struct Counts {
    clients: AtomicU64,
    servers: AtomicU64,
    killed: AtomicU64,
    hostile: AtomicU64,
    calls: AtomicU64,
    interrupted: AtomicU64,
    rights: AtomicU64,
}

fn count(count: &AtomicU64, by: u64) {
    // Relaxed: only the sum matters.
    count.fetch_add(by, Ordering::Relaxed);
}

/// The data that the threads of a run share.
struct World<'a> {
    run: &'a Run,
    broken: Option<Break>,
    name: String,
    ledger: Arc<Ledger>,
    counts: Counts,
    violation: Mutex<Option<String>>,
}

impl World<'_> {
    fn fail(&self, what: String) {
        lock(&self.violation).get_or_insert(what);
    }

    fn is_over(&self) -> bool {
        self.run.is_over() || lock(&self.violation).is_some()
    }

    fn is_broken(&self, by: Break) -> bool {
        self.broken == Some(by)
    }
}

fn run(run: &Run) -> Result<Report, Violation> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let _exclusive = exclusive();
    let broken = asked(Break::ALL)?;
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let ledger = Arc::new(Ledger::new(broken));
    let world = World {
        run,
        broken,
        name: format!("stress-{}-{number}", std::process::id()),
        ledger: Arc::clone(&ledger),
        counts: Counts::default(),
        violation: Mutex::new(None),
    };
    let object: Owned<dyn Account> = squall::shared(Keeper(ledger));
    // Makes everything that a first connection makes once.
    first_connection(&world, object.handle())?;
    let before = settle(|now| now.mappings == 0);
    let exported = export(object.handle(), &world.name).map_err(cannot("export"))?;
    thread::scope(|scope| {
        scope.spawn(|| change_rights(&world, &exported));
        for index in 0..run.threads as u64 {
            let world = &world;
            scope.spawn(move || {
                let mut rng = run.rng(index + 1);
                while !world.is_over() {
                    let made = if index % 2 == 0 {
                        with_client(world, &mut rng)
                    } else {
                        with_server(world, &mut rng)
                    };
                    made.unwrap_or_else(|what| world.fail(what));
                }
            });
        }
    });
    drop(exported);
    if world.is_broken(Break::LeakDescriptor) {
        std::mem::forget(fs::File::open("/proc/self/maps"));
    }
    if let Some(what) = lock(&world.violation).take() {
        return Err(Violation(what));
    }
    await_clean(before).map_err(Violation)?;
    drop(object);
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let counts = &world.counts;
    Ok(Report(vec![
        ("clients", read(&counts.clients)),
        ("servers", read(&counts.servers)),
        ("killed", read(&counts.killed)),
        ("hostile", read(&counts.hostile)),
        ("calls counted", read(&counts.calls)),
        ("calls interrupted", read(&counts.interrupted)),
        ("rights revoked", read(&counts.rights)),
    ]))
}

fn cannot<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> Violation {
    move |error| Violation(format!("cannot {what}: {error}"))
}

fn first_connection(world: &World<'_>, object: Handle<dyn Account>) -> Result<(), Violation> {
    let exported = export(object, &world.name).map_err(cannot("export"))?;
    let imported = import::<dyn Account>(&world.name).map_err(cannot("import"))?;
    imported.try_hold(0).map_err(cannot("call"))?;
    drop((imported, exported));
    Ok(())
}

/// Descriptors of this process, and shared mappings of memory files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Footprint {
    descriptors: usize,
    mappings: usize,
}

fn footprint() -> Footprint {
    Footprint {
        descriptors: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        mappings: scribble::segments().map_or(0, |segments| segments.len()),
    }
}

/// Looks until the footprint is `small`, and returns the last one. Dropped objects end meanwhile, also
/// where no thread reclaims.
fn settle(small: impl Fn(&Footprint) -> bool) -> Footprint {
    let mut now = footprint();
    for _ in 0..LOOKS {
        if small(&now) {
            break;
        }
        let _ = squall_rcu::barrier();
        thread::sleep(BETWEEN_LOOKS);
        now = footprint();
    }
    now
}

/// Waits until the process has no trace of the run.
fn await_clean(before: Footprint) -> Result<(), String> {
    let clean = |now: &Footprint| now.descriptors <= before.descriptors && now.mappings <= before.mappings;
    let now = settle(clean);
    if clean(&now) {
        return Ok(());
    }
    Err(format!("{now:?} remain after the run, {before:?} were there before"))
}

/// Takes a right away and gives it back. A call in between must be denied.
fn change_rights(world: &World<'_>, exported: &Export) {
    let own = match ImportOptions::new().limit(PATIENCE).import::<dyn Account>(&world.name) {
        Ok(own) => own,
        Err(error) => return world.fail(format!("cannot import: {error}")),
    };
    let mut rng = world.run.rng(0);
    while !world.is_over() {
        let mine = exported.clients().into_iter().find(|client| client.pid() == Some(std::process::id()));
        let one = if rng.one_in(2) { mine } else { None };
        let deny = || one.as_ref().map_or_else(|| exported.deny("guarded"), |client| client.deny("guarded"));
        let allow =
            || one.as_ref().map_or_else(|| exported.allow("guarded"), |client| client.allow("guarded"));
        if !world.is_broken(Break::IgnoreRights)
            && let Err(error) = deny()
        {
            return world.fail(format!("a right cannot be revoked: {error}"));
        }
        let word = rng.next();
        match own.try_guarded(word).map_err(|error| error.reason()) {
            Err(CallErrorKind::Transport(Transport::Denied)) => {}
            other => return world.fail(format!("a call without the right to it gave {other:?}")),
        }
        if let Err(error) = allow() {
            return world.fail(format!("a right cannot be given back: {error}"));
        }
        match own.try_guarded(word) {
            Ok(same) if same == word => {}
            other => return world.fail(format!("a call with the right to it gave {other:?}")),
        }
        count(&world.counts.rights, 1);
    }
    if world.is_broken(Break::LeakImport) {
        std::mem::forget(own);
    }
}

fn life(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.below(LIFE_MAX))
}

/// Ends a child, at once or in good order.
fn end(world: &World<'_>, child: Running, kill: bool) -> Result<Ended, String> {
    let ended = if kill { child.kill() } else { child.end(PROCESS_PATIENCE) };
    count(&world.counts.killed, u64::from(kill));
    if let Some(told) = lock(&ended.diary.wrong).take() {
        return Err(format!("in a child: {told}"));
    }
    match &ended.fault {
        Some(fault) => Err(format!("a child ended badly: {fault}")),
        None => Ok(ended),
    }
}

/// Starts a client of our object, ends it, and compares the counts.
fn with_client(world: &World<'_>, rng: &mut Rng) -> Result<(), String> {
    let threads = [1, 3, THREADS_MAX as u32][rng.below(3) as usize];
    let part =
        Part { serves: false, hostile: rng.one_in(4), threads, seed: rng.next(), name: world.name.clone() };
    let mut client = Running::start(&part.arguments()).map_err(|error| format!("cannot start: {error}"))?;
    client.await_ready(1, PROCESS_PATIENCE)?;
    thread::sleep(life(rng));
    let pid = client.pid();
    let ended = end(world, client, !rng.one_in(4))?;
    count(&world.counts.clients, 1);
    count(&world.counts.hostile, u64::from(part.hostile));
    let runs = world.ledger.runs(pid);
    world.ledger.forget(pid);
    if part.hostile {
        return Ok(());
    }
    let told = ended
        .diary
        .threads
        .iter()
        .map(|told| (told.done.load(Ordering::Relaxed), told.unsure.load(Ordering::Relaxed)));
    for (thread, (done, unsure)) in told.enumerate() {
        let ran = runs.as_ref().map_or(0, |runs| runs.counts[thread].load(Ordering::Relaxed));
        if !(done..=done + unsure + 1).contains(&ran) {
            return Err(format!(
                "`enter` returned {done} times and failed {unsure} times in thread {thread} of a client, \
                 but ran {ran} times"
            ));
        }
        count(&world.counts.calls, done);
    }
    Ok(())
}

/// Starts a server, calls it, and ends it during the calls.
fn with_server(world: &World<'_>, rng: &mut Rng) -> Result<(), String> {
    static SERVERS: AtomicU64 = AtomicU64::new(0);
    let name = format!("{}-{}", world.name, SERVERS.fetch_add(1, Ordering::Relaxed));
    let part = Part { serves: true, hostile: rng.one_in(3), threads: 0, seed: rng.next(), name };
    let mut server = Running::start(&part.arguments()).map_err(|error| format!("cannot start: {error}"))?;
    server.await_ready(1, PROCESS_PATIENCE)?;
    let limit = if part.hostile { HOSTILE_PATIENCE } else { PATIENCE };
    let imported = ImportOptions::new().limit(limit).import::<dyn Account>(&part.name);
    let imported = match imported {
        Ok(imported) => imported,
        // A hostile server may spoil the first words.
        Err(_) if part.hostile => return end(world, server, true).map(drop),
        Err(error) => return Err(format!("cannot import from a child: {error}")),
    };
    let ends = AtomicBool::new(false);
    let threads = [1, 4, 24][rng.below(3) as usize];
    let kill = !rng.one_in(4);
    thread::scope(|scope| {
        for index in 0..threads {
            let (mut own, object) = (Rng::new(rng.next(), u64::from(index)), imported.handle());
            let (part, ends) = (&part, &ends);
            scope.spawn(move || {
                call_until_gone(world, (part, kill), Calls::new(object, index), ends, &mut own)
            });
        }
        thread::sleep(life(rng));
        // Release: pairs with the Acquire in `call_until_gone`.
        ends.store(true, Ordering::Release);
        end(world, server, kill)
    })?;
    count(&world.counts.servers, 1);
    count(&world.counts.hostile, u64::from(part.hostile));
    Ok(())
}

fn call_until_gone(
    world: &World<'_>,
    (part, kill): (&Part, bool),
    mut calls: Calls,
    ends: &AtomicBool,
    rng: &mut Rng,
) {
    loop {
        match calls.call(rng) {
            Outcome::Gone(unsure) => {
                count(&world.counts.interrupted, u64::from(unsure));
                // Acquire: pairs with the Release in `with_server`.
                if !part.hostile && !ends.load(Ordering::Acquire) {
                    world.fail("a call failed as if the server had ended".to_owned());
                }
                return;
            }
            Outcome::Wrong(what) if !part.hostile => {
                // Acquire: pairs with the Release in `with_server`.
                let state = match (ends.load(Ordering::Acquire), kill) {
                    (false, _) => "that serves",
                    (true, false) => "that was asked to end",
                    (true, true) => "that was killed",
                };
                return world.fail(format!("a call of a child {state}: {what}"));
            }
            Outcome::Entered => count(&world.counts.calls, 1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    /// Not a test: the body of a child process of the tests.
    #[test]
    fn child() {
        let Ok(arguments) = std::env::var(super::processes::VARIABLE) else { return };
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        // The parent skips everything before this line.
        println!("@@@");
        if let Err(why) = super::child(&arguments) {
            eprintln!("{why}");
            std::process::exit(2);
        }
        std::process::exit(0);
    }
}
