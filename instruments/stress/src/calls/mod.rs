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
//! - I5. Some clients export an object that our object calls back (`nested`), some fork (`forks`), and some
//!   belong to other users (`users`).
//! - I6. This process calls servers through renewable imports. The servers are killed and started again
//!   (`renewed`).
//! - I7. At the end this process has no descriptor and no mapping more than before, no thread that serves
//!   calls, and no child.
//! - I8. Each planned break must end the run with a violation (`breaks`).

mod account;
mod breaks;
mod caller;
mod child;
mod forks;
mod hoard;
mod nested;
mod part;
mod processes;
mod renewed;
mod scribble;
mod users;
mod world;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};
use squall::call::{Export, ImportOptions, export, import};
use squall::{CallErrorKind, Handle, Owned, Transport};

use crate::run::{Report, Rng, Run, Stress, Violation, exclusive, lock, threads_beyond_processors};
use crate::skeleton::breaks::{Breaks, asked};
use account::{Account, Keeper, Ledger};
use breaks::Break;
use caller::{Calls, Outcome};
use nested::Other;
use part::{PATIENCE, Part, Role};
use processes::{Running, THREADS_MAX};
use users::Users;
use world::{Counts, Footprint, PROCESS_PATIENCE, World, compare, count, end, footprint, life};

pub use child::child;
pub use processes::COMMAND;

pub(super) const STRESS: Stress = Stress {
    name: "calls",
    about: "calls between processes that are killed or hostile are neither lost nor doubled, and nothing remains",
    run,
    threads: threads_beyond_processors,
};

/// Looks for traces of the run at its end, and the time between them.
const LOOKS: u32 = 2_000;
/// Looks after a planned leak: its traces never go away.
const LOOKS_AT_A_LEAK: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// The exports of this process.
struct Exports {
    own: Export,
    /// Absent unless children can belong to other users.
    users: Option<Users>,
}

fn run(run: &Run) -> Result<Report, Violation> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let _exclusive = exclusive();
    let broken = asked(Break::ALL)?;
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let name = format!("stress-{}-{number}", std::process::id());
    let ledger = Arc::new(Ledger::new(broken).other(Other::Caller(name.clone())));
    // Children of killed children are ours then.
    set_child_subreaper(Some(getpid())).map_err(cannot("adopt processes"))?;
    let world = World {
        run,
        broken,
        name,
        ledger: Arc::clone(&ledger),
        counts: Counts::default(),
        violation: Mutex::new(None),
    };
    let object: Owned<dyn Account> = squall::shared(Keeper(ledger));
    // Makes everything that a first connection makes once.
    first_connection(&world, object.handle())?;
    let before = settle(LOOKS, |now| now.mappings == 0 && now.threads == 0);
    let exports = Exports {
        own: export(object.handle(), &world.name).map_err(cannot("export"))?,
        users: Users::new(object.handle(), &world.name).map_err(cannot("export"))?,
    };
    let is_root = exports.users.is_some();
    thread::scope(|scope| {
        scope.spawn(|| change_rights(&world, &exports.own));
        for index in 0..run.threads as u64 {
            let (world, exports) = (&world, &exports);
            scope.spawn(move || {
                let mut rng = run.rng(index + 1);
                while !world.is_over() {
                    let acted = act(world, exports, index % 2 == 0, &mut rng);
                    acted.unwrap_or_else(|what| world.fail(what));
                }
            });
        }
    });
    drop(exports);
    leak(&world).map_err(cannot("start"))?;
    if let Some(what) = lock(&world.violation).take() {
        return Err(Violation(what));
    }
    await_clean(before, broken).map_err(Violation)?;
    drop(object);
    Ok(report(&world.counts, is_root))
}

fn report(counts: &Counts, is_root: bool) -> Report {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let mut lines = vec![
        ("clients", read(&counts.clients)),
        ("servers", read(&counts.servers)),
        ("killed", read(&counts.killed)),
        ("hostile", read(&counts.hostile)),
        ("calls counted", read(&counts.calls)),
        ("calls interrupted", read(&counts.interrupted)),
        ("rights revoked", read(&counts.rights)),
        ("nested levels counted", read(&counts.nested)),
        ("forked children", read(&counts.forked)),
        ("forked survivors", read(&counts.survivors)),
        ("servers restarted", read(&counts.restarts)),
        ("renewals counted", read(&counts.renewed)),
    ];
    if is_root {
        lines.extend([
            ("hoards", read(&counts.hoards)),
            ("largest hoard", read(&counts.most_hoarded)),
            ("strangers refused", read(&counts.strangers)),
        ]);
    } else {
        lines.push(("hoards (only as root)", 0));
    }
    Report(lines)
}

/// Starts children, and ends them.
fn act(world: &World<'_>, exports: &Exports, calls_us: bool, rng: &mut Rng) -> Result<(), String> {
    if calls_us {
        let role = match rng.below(8) {
            0..4 => Role::Client,
            4..6 => Role::Nester,
            _ => Role::Forker,
        };
        return with_client(world, &exports.own, role, rng);
    }
    match (rng.below(8), &exports.users) {
        (0, Some(users)) if !users::with_users(world, users, rng)? => Ok(()),
        (0..5, _) => with_server(world, rng),
        _ => renewed::with_renewed(world, rng),
    }
}

/// Leaves something behind, in a run with that planned break.
fn leak(world: &World<'_>) -> std::io::Result<()> {
    match world.broken {
        Some(Break::LeakDescriptor) => std::mem::forget(fs::File::open("/proc/self/maps")),
        Some(Break::LeakThread) => {
            let park = || loop {
                thread::park();
            };
            thread::Builder::new().name("squall-call-leak".to_owned()).spawn(park)?;
        }
        Some(Break::LeakProcess) => {
            let part = Part::new(Role::Server, 0, 0, &world.new_name());
            std::mem::forget(Running::start(&part.arguments())?);
        }
        _ => {}
    }
    Ok(())
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

/// Reaps the ended children of killed children. No other child may run.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// Looks until the footprint is `small`, at most so many times, and returns the last one. Dropped objects end
/// meanwhile, also where no thread reclaims.
fn settle(looks: u32, small: impl Fn(&Footprint) -> bool) -> Footprint {
    let mut now = footprint();
    for _ in 0..looks {
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
fn await_clean(before: Footprint, broken: Option<Break>) -> Result<(), String> {
    let clean = |now: &Footprint| {
        reap();
        now.descriptors <= before.descriptors
            && now.mappings <= before.mappings
            && now.threads <= before.threads
            && now.children <= before.children
    };
    let leaks = matches!(
        broken,
        Some(Break::LeakDescriptor | Break::LeakImport | Break::LeakThread | Break::LeakProcess)
    );
    let now = settle(if leaks { LOOKS_AT_A_LEAK } else { LOOKS }, clean);
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

/// Starts a client of our object, ends it, and compares the counts.
fn with_client(world: &World<'_>, export: &Export, role: Role, rng: &mut Rng) -> Result<(), String> {
    let threads = [2, 3, THREADS_MAX as u32][rng.below(3) as usize];
    let hostile = role == Role::Client && rng.one_in(4);
    let part = Part { hostile, ..Part::new(role, threads, rng.next(), &world.name) };
    let mut client = Running::start(&part.arguments()).map_err(|error| format!("cannot start: {error}"))?;
    let pid = client.pid();
    client.await_ready(1, PROCESS_PATIENCE)?;
    thread::sleep(life(rng));
    let kill = !rng.one_in(4);
    let ended = end(world, client, kill)?;
    count(&world.counts.clients, 1);
    count(&world.counts.hostile, u64::from(part.hostile));
    count(&world.counts.forked, ended.diary.forked.load(Ordering::Relaxed));
    if ended.diary.left.load(Ordering::Relaxed) != 0 {
        await_disconnected(export, pid)?;
        count(&world.counts.survivors, 1);
    }
    if part.hostile {
        world.ledger.forget(pid);
        return Ok(());
    }
    let done = compare(world, pid, &ended, (role, kill))?;
    if role == Role::Nester {
        count(&world.counts.nested, done);
    }
    match lock(&world.ledger.wrong).take() {
        Some(what) => Err(what),
        None => Ok(()),
    }
}

/// Waits until an ended client is connected no more, although a forked child of it may have its socket.
fn await_disconnected(export: &Export, pid: u32) -> Result<(), String> {
    for _ in 0..LOOKS {
        if !export.clients().iter().any(|client| client.pid() == Some(pid)) {
            return Ok(());
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    Err("an ended client is still connected, while a forked child of it lives".to_owned())
}

/// Starts a server, calls it, and ends it during the calls.
fn with_server(world: &World<'_>, rng: &mut Rng) -> Result<(), String> {
    let hostile = rng.one_in(3);
    let part = Part { hostile, ..Part::new(Role::Server, 0, rng.next(), &world.new_name()) };
    let mut server = Running::start(&part.arguments()).map_err(|error| format!("cannot start: {error}"))?;
    server.await_ready(1, PROCESS_PATIENCE)?;
    let imported = part.options().import::<dyn Account>(&part.name);
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
