//! The bodies of the child processes: clients of the parent's object, and servers of an object of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use rustix::process::Uid;
use rustix::thread::set_thread_uid;
use squall::call::{ExportOptions, ImportError};
use squall::{Handle, Owned};

use super::account::{Account, Keeper, Ledger};
use super::caller::{Calls, Outcome};
use super::nested::{self, Other};
use super::part::{PATIENCE, Part, Role};
use super::processes::{News, Voice, await_end, end_with_parent};
use super::scribble::{memory, scribble, segments};
use super::world::footprint;
use super::{forks, users};
use crate::run::Rng;

/// Hostile words between two looks for new segments.
const WORDS: u64 = 256;

/// Runs a child process of the stress `calls`, until its parent closes its input.
///
/// # Errors
/// The arguments are not those of a child, or the system refuses something.
pub fn child(arguments: &[String]) -> Result<(), String> {
    let part =
        Part::parse(arguments).ok_or("the arguments are not those of a child of `squall stress calls`")?;
    // Descriptors that this process has from others.
    let inherited = footprint().descriptors;
    if part.role == Role::Heir {
        return forks::inherit(&part, inherited);
    }
    if let Some(user) = part.user {
        set_thread_uid(Uid::from_raw(user))
            .map_err(|error| format!("cannot become another user: {error}"))?;
    }
    end_with_parent().map_err(|error| error.to_string())?;
    match part.role {
        Role::Client => call(&part),
        Role::Server | Role::Teller => serve(&part),
        Role::Nester => nest(&part),
        Role::Forker => forks::call_and_fork(&part, inherited),
        Role::Hoarder => users::hoard(&part),
        Role::Stranger => users::knock(&part),
        Role::Heir => Ok(()),
    }
}

fn serve(part: &Part) -> Result<(), String> {
    let silent = Ledger::new(None);
    let ledger = if part.role == Role::Teller { silent.voice(Voice::default()) } else { silent };
    let object: Owned<dyn Account> = squall::shared(Keeper(Arc::new(ledger)));
    let export =
        ExportOptions::new().export(object.handle(), &part.name).map_err(|error| error.to_string())?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        if part.hostile {
            scope.spawn(|| scribble_until(&stop, &mut Rng::new(part.seed, u64::MAX)));
        }
        Voice::default().tell(News::Ready, 0);
        await_end();
        // Relaxed: the flag publishes no other data.
        stop.store(true, Ordering::Relaxed);
    });
    drop(export);
    Ok(())
}

fn call(part: &Part) -> Result<(), String> {
    let options = part.options();
    let began = Instant::now();
    let object = loop {
        match options.import::<dyn Account>(&part.name) {
            Ok(object) => break object,
            // The short limit of a hostile client holds for its import, too.
            Err(ImportError::TimedOut) if part.hostile && began.elapsed() < PATIENCE => {}
            Err(error) => return Err(error.to_string()),
        }
    };
    let (stop, voice) = (AtomicBool::new(false), Voice::default());
    thread::scope(|scope| {
        for index in 0..part.threads {
            let (stop, voice, handle) = (&stop, &voice, object.handle());
            scope.spawn(move || visit(part, index, handle, stop, voice));
        }
        if part.hostile {
            scope.spawn(|| scribble_until(&stop, &mut Rng::new(part.seed, u64::MAX)));
        }
        voice.tell(News::Ready, 0);
        await_end();
        // Relaxed: the flag publishes no other data.
        stop.store(true, Ordering::Relaxed);
    });
    drop(object);
    Ok(())
}

/// Calls until the flag is set.
pub(super) fn visit(part: &Part, index: u32, object: Handle<dyn Account>, stop: &AtomicBool, voice: &Voice) {
    let (mut calls, mut rng) = (Calls::new(object, index), Rng::new(part.seed, u64::from(index)));
    // Relaxed: the flag publishes no other data.
    while !stop.load(Ordering::Relaxed) {
        visit_once(part, (&mut calls, index), &mut rng, stop, voice);
    }
}

/// Makes one call, and tells its outcome.
pub(super) fn visit_once(
    part: &Part,
    (calls, index): (&mut Calls, u32),
    rng: &mut Rng,
    stop: &AtomicBool,
    voice: &Voice,
) {
    match calls.call(rng) {
        Outcome::Entered => voice.tell(News::Done, index as usize),
        Outcome::Unsure => voice.tell(News::Unsure, index as usize),
        Outcome::Other => {}
        _ if part.hostile => thread::yield_now(),
        // The parent may end its own life first.
        Outcome::Gone(_) if stop.load(Ordering::Relaxed) => {}
        Outcome::Gone(_) => voice.wrong("the server is gone, although it serves"),
        Outcome::Wrong(what) => voice.wrong(&what),
    }
}

/// Calls the parent's object, which calls an object of this process.
fn nest(part: &Part) -> Result<(), String> {
    let server = nested::import_unlimited(&part.name).map_err(|error| error.to_string())?;
    let server = server.ok_or("the server is gone, although it serves")?;
    let ledger = Arc::new(Ledger::new(None).other(Other::Server(server.handle())));
    let callback: Owned<dyn Account> = squall::shared(Keeper(Arc::clone(&ledger)));
    let mut rng = Rng::new(part.seed, u64::MAX);
    // With few workers, calls out of calls are refused at times.
    let workers = [1, 4, 64][rng.below(3) as usize];
    let export = ExportOptions::new()
        .calls_per_client(workers)
        .export(callback.handle(), &nested::callback_name(&part.name, std::process::id()))
        .map_err(|error| error.to_string())?;
    let (stop, voice) = (AtomicBool::new(false), Voice::default());
    thread::scope(|scope| {
        for index in 0..part.threads {
            let (stop, voice, ledger, handle) = (&stop, &voice, &ledger, server.handle());
            let mut own = Rng::new(part.seed, u64::from(index));
            scope.spawn(move || {
                let mut lane = nested::Lane::new(handle, index);
                // Relaxed: the flag publishes no other data.
                while !stop.load(Ordering::Relaxed) {
                    match lane.call(ledger, &mut own) {
                        Ok((done, unsure)) => {
                            voice.tell_all(&[(News::Done, done), (News::Unsure, unsure)], index as usize);
                        }
                        Err(what) => voice.wrong(&what),
                    }
                }
            });
        }
        voice.tell(News::Ready, 0);
        await_end();
        stop.store(true, Ordering::Relaxed);
    });
    drop((export, server));
    Ok(())
}

/// Writes hostile words into all segments until the flag is set.
fn scribble_until(stop: &AtomicBool, rng: &mut Rng) {
    let Ok(memory) = memory() else { return };
    while !stop.load(Ordering::Relaxed) {
        let segments = segments().unwrap_or_default();
        if segments.is_empty() {
            thread::yield_now();
            continue;
        }
        for _ in 0..WORDS {
            let segment = segments[rng.below(segments.len() as u64) as usize];
            scribble(&memory, segment, rng);
        }
        thread::yield_now();
    }
}
