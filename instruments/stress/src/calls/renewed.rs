//! Calls through a renewable import, while its server is ended and started again.
//!
//! - I1. The server tells each run of `enter` before it answers. So the number of runs outlives it.
//! - I2. A thread counts its calls that returned, and those that may have run. The runs must agree.
//! - I3. When the server stays, the second call of each thread at the latest must return.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use squall::call::{ImportOptions, RenewableImport, with_deadline};
use squall::{CallError, CallErrorKind, Handle, Transport};

use super::account::Account;
use super::breaks::Break;
use super::part::{PATIENCE, Part, Role};
use super::processes::{Ended, Running, THREADS_MAX};
use super::world::{PROCESS_PATIENCE, World, count, end, life};
use crate::run::Rng;

/// Most restarts of one server.
const RESTARTS_MAX: u64 = 4;
/// Longest deadline of a call, in microseconds.
const SHORT_MAX: u64 = 2_000;

/// The books of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Books {
    done: u64,
    unsure: u64,
    /// Calls of the present import that returned, and that may have run besides.
    here: (u64, u64),
}

/// One calling thread.
struct Lane<'a> {
    world: &'a World<'a>,
    remote: &'a RenewableImport<dyn Account>,
    first: Handle<dyn Account>,
    thread: u32,
    /// The import of the last call.
    last: Handle<dyn Account>,
    books: Books,
}

impl Lane<'_> {
    /// Makes a call. Returns whether it returned.
    fn call(&mut self, short: Option<Duration>) -> Result<bool, String> {
        let before = self.last;
        let entered = match short {
            Some(short) => with_deadline(short, || self.enter()),
            None => self.enter(),
        };
        if self.last != before {
            // The server counts each connection on its own.
            self.books.here = (0, 0);
        }
        let error = match entered {
            Ok(number) => {
                let (done, unsure) = self.books.here;
                if !(done + 1..=done + 1 + unsure).contains(&number) {
                    return Err(format!(
                        "`enter` returned {number} through a renewable import, not {} to {}",
                        done + 1,
                        done + 1 + unsure
                    ));
                }
                self.books.done += 1;
                self.books.here.0 += 1;
                return Ok(true);
            }
            Err(error) => error,
        };
        if error.may_have_run() && !self.world.is_broken(Break::ForgetUnsure) {
            self.books.unsure += 1;
            self.books.here.1 += 1;
        }
        match error.reason() {
            CallErrorKind::Transport(Transport::Deadline | Transport::Busy) if short.is_some() => Ok(false),
            CallErrorKind::Destroyed
            | CallErrorKind::Transport(
                Transport::PeerGone
                | Transport::Disconnected
                | Transport::NoSuchObject
                | Transport::Destroyed,
            ) => Ok(false),
            _ => Err(format!("a call through a renewable import failed: {error}")),
        }
    }

    fn enter(&mut self) -> Result<u64, CallError> {
        let (thread, last) = (self.thread, &mut self.last);
        if self.world.is_broken(Break::LoseRenewal) {
            return self.first.try_enter(thread);
        }
        self.remote.call(PATIENCE, |object| {
            *last = object;
            object.try_enter(thread)
        })
    }

    /// Calls while the server ends and starts, and then until a call returns.
    fn run(mut self, stays: &AtomicBool, rng: &mut Rng) -> Result<Books, String> {
        // Acquire: pairs with the Release in `with_renewed`.
        while !stays.load(Ordering::Acquire) {
            let short = rng.one_in(8).then(|| Duration::from_micros(rng.below(SHORT_MAX)));
            self.call(short)?;
        }
        if self.call(None)? || self.call(None)? {
            return Ok(self.books);
        }
        Err("a renewable import has not found its server again".to_owned())
    }
}

/// Adds the runs that a server told.
fn add(runs: &mut [u64], ended: &Ended) {
    for (run, told) in runs.iter_mut().zip(&ended.diary.threads) {
        *run += told.done.load(Ordering::Relaxed);
    }
}

fn start(part: &Part) -> Result<Running, String> {
    let mut server = Running::start(&part.arguments()).map_err(|error| format!("cannot start: {error}"))?;
    server.await_ready(1, PROCESS_PATIENCE)?;
    Ok(server)
}

/// Ends the server several times, and starts it again. Returns the last one.
fn restart(
    world: &World<'_>,
    part: &Part,
    mut server: Running,
    runs: &mut [u64],
    rng: &mut Rng,
) -> Result<Running, String> {
    for _ in 0..=rng.below(RESTARTS_MAX) {
        thread::sleep(life(rng));
        add(runs, &end(world, server, !rng.one_in(4))?);
        server = start(part)?;
        count(&world.counts.restarts, 1);
    }
    Ok(server)
}

/// Calls a server through a renewable import, ends and restarts it meanwhile, and compares the runs.
pub(super) fn with_renewed(world: &World<'_>, rng: &mut Rng) -> Result<(), String> {
    let part = Part::new(Role::Teller, 0, rng.next(), &world.new_name());
    let server = start(&part)?;
    let options = ImportOptions::new().limit(PATIENCE);
    let remote = RenewableImport::<dyn Account>::new(options, &part.name, PATIENCE)
        .map_err(|error| format!("cannot import: {error}"))?;
    let stays = AtomicBool::new(false);
    let mut runs = [0; THREADS_MAX];
    let threads = [1, 4, 12][rng.below(3) as usize];
    let (server, books) = thread::scope(|scope| {
        let lanes: Vec<_> = (0..threads)
            .map(|thread| {
                let first = remote.handle();
                let (remote, stays) = (&remote, &stays);
                let lane = Lane { world, remote, first, thread, last: first, books: Books::default() };
                let mut own = Rng::new(rng.next(), u64::from(thread));
                scope.spawn(move || lane.run(stays, &mut own))
            })
            .collect();
        let server = restart(world, &part, server, &mut runs, rng);
        // Release: pairs with the Acquire in `Lane::run`.
        stays.store(true, Ordering::Release);
        let join = |lane: thread::ScopedJoinHandle<'_, Result<Books, String>>| {
            lane.join().unwrap_or_else(|_| Err("a thread of the stress panicked".to_owned()))
        };
        let books: Vec<_> = lanes.into_iter().map(join).collect();
        (server, books.into_iter().collect::<Result<Vec<Books>, String>>())
    });
    // A server that does not start is the cause of all that follows.
    let server = server?;
    let books = books?;
    add(&mut runs, &end(world, server, false)?);
    for (thread, (books, ran)) in books.iter().zip(runs).enumerate() {
        let Books { done, unsure, .. } = *books;
        if !(done..=done + unsure).contains(&ran) {
            return Err(format!(
                "`enter` returned {done} times through a renewable import and may have run {unsure} times \
                 more in thread {thread}, but ran {ran} times"
            ));
        }
        count(&world.counts.calls, done);
        count(&world.counts.renewed, 1);
    }
    Ok(())
}
