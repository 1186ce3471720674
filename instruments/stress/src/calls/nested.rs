//! Nested calls between this process and a client: A calls B, which calls A, and so on.
//!
//! A client calls `nest` of our object. That method calls back an object which the client exports, up to a
//! random depth. A level may have a deadline. Processes are killed in the middle.
//!
//! - I1. Each level counts itself in its own process, and adds its inner levels to its result. So a result
//!   says how many levels ran in each process, and how many more may have run.
//! - I2. The client compares its own count after each call. The server compares its own after the client's
//!   end.
//! - I3. Imports have no limit here: a call out of a call then never waits for workers, but is refused.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use squall::call::{Caller, ImportError, ImportOptions, with_deadline};
use squall::{CallError, CallErrorKind, Handle, Owned, Transport};

use super::account::{Account, Ledger};
use super::breaks::Break;
use super::part::PATIENCE;
use crate::run::{Rng, lock};

/// Levels of a nested call: the numbers of those that ran in the server and in the client, and of those that
/// may have run besides.
pub(super) type Levels = [u32; 4];
/// Places in [`Levels`].
pub(super) const RAN: usize = 0;
pub(super) const MAY_HAVE_RUN: usize = 2;
/// Added to a place for the client's number.
pub(super) const CLIENT: usize = 1;

/// Largest depth of a nested call.
pub(super) const DEPTH_MAX: u64 = 8;
/// Most levels of one call in the server.
pub(super) const LEVELS_MAX: u64 = DEPTH_MAX / 2 + 1;
/// Longest deadline of a level, in microseconds.
const SHORT_MAX: u64 = 400;

/// The process that the next level runs in.
#[derive(Debug, Default)]
pub(super) enum Other {
    /// No process: there are no nested calls.
    #[default]
    Absent,
    /// The caller. It exports a callback under this name and its process number.
    Caller(String),
    /// The server, as this client imported it.
    Server(Handle<dyn Account>),
}

/// The callback of one client. Empty if the client is gone.
#[derive(Default)]
struct Callback(OnceLock<Option<Owned<dyn Account>>>);

/// Returns the name of the callback of the client `pid`.
pub(super) fn callback_name(base: &str, pid: u32) -> String {
    format!("{base}-back-{pid}")
}

/// Imports an object without a limit for its calls. Returns `None` if no process exports it.
pub(super) fn import_unlimited(name: &str) -> Result<Option<Owned<dyn Account>>, ImportError> {
    let began = Instant::now();
    loop {
        match ImportOptions::new().import::<dyn Account>(name) {
            Ok(object) => return Ok(Some(object)),
            Err(ImportError::NoServer { .. } | ImportError::Closed) => return Ok(None),
            Err(ImportError::TimedOut) if began.elapsed() < PATIENCE => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the numbers of levels in the server and in the client that a call of this depth has. The first
/// level runs in the client if `in_client`.
fn levels_of(depth: u32, in_client: bool) -> [u32; 2] {
    let (here, there) = (depth / 2 + 1, depth.div_ceil(2));
    if in_client { [there, here] } else { [here, there] }
}

/// Adds the outcome of the call of a level. `short` tells whether it had a deadline of its own.
///
/// # Errors
/// The call failed in a way in which it must not.
pub(super) fn add(
    levels: &mut Levels,
    answer: Result<Levels, CallError>,
    (depth, in_client): (u32, bool),
    is_short: bool,
    may_end: bool,
) -> Result<(), String> {
    let most = levels_of(depth, in_client);
    let error = match answer {
        Ok(more) => {
            if (0..2).any(|at| more[at].saturating_add(more[at + MAY_HAVE_RUN]) > most[at]) {
                return Err(format!("a call of depth {depth} returned the levels {more:?}"));
            }
            levels.iter_mut().zip(more).for_each(|(level, more)| *level += more);
            return Ok(());
        }
        Err(error) => error,
    };
    if error.may_have_run() {
        (0..2).for_each(|at| levels[at + MAY_HAVE_RUN] += most[at]);
    }
    match error.reason() {
        // Without a deadline, a call out of a call is refused at once.
        CallErrorKind::Transport(Transport::Busy) => Ok(()),
        CallErrorKind::Transport(Transport::Deadline) if is_short => Ok(()),
        CallErrorKind::Transport(
            Transport::PeerGone | Transport::Disconnected | Transport::NoSuchObject | Transport::Destroyed,
        ) if may_end => Ok(()),
        _ => Err(format!("a nested call failed: {error}")),
    }
}

/// Makes a nested call, with a short deadline at random. Returns whether it had one.
pub(super) fn call(
    object: Handle<dyn Account>,
    thread: u32,
    depth: u32,
    rng: &mut Rng,
) -> (Result<Levels, CallError>, bool) {
    let is_short = rng.one_in(8);
    let (short, word) = (Duration::from_micros(rng.below(SHORT_MAX)), rng.next());
    let nest = || object.try_nest(thread, depth, word);
    (if is_short { with_deadline(short, nest) } else { nest() }, is_short)
}

/// The body of a level: counts it, and calls the next one.
pub(super) fn level(
    ledger: &Ledger,
    caller: &Caller,
    count: &AtomicU64,
    (thread, depth, word): (u32, u32, u64),
) -> Levels {
    let is_client = matches!(ledger.other, Other::Server(_));
    // Relaxed: the answer orders the count before its reader.
    count.fetch_add(1 + u64::from(ledger.is_broken(Break::NestTwice)), Ordering::Relaxed);
    let mut levels = Levels::default();
    levels[RAN + usize::from(is_client) * CLIENT] = 1;
    let Some(depth) = depth.checked_sub(1) else { return levels };
    let callback;
    let next = match &ledger.other {
        Other::Server(server) => *server,
        Other::Caller(base) => {
            callback = caller.value(Callback::default);
            let import = || {
                import_unlimited(&callback_name(base, caller.pid()?)).unwrap_or_else(|error| {
                    ledger.fail(format!("cannot import a callback: {error}"));
                    None
                })
            };
            let Some(object) = callback.0.get_or_init(import) else { return levels };
            object.handle()
        }
        Other::Absent => return levels,
    };
    let (answer, is_short) = call(next, thread, depth, &mut Rng::new(word, u64::from(depth)));
    // The server outlives its clients.
    if let Err(what) = add(&mut levels, answer, (depth, !is_client), is_short, !is_client) {
        ledger.fail(what);
    }
    levels
}

/// One calling thread of a client.
pub(super) struct Lane {
    object: Handle<dyn Account>,
    thread: u32,
    /// Levels in the client that ran, and that may have run besides.
    ran: u64,
    unsure: u64,
}

impl Lane {
    pub(super) fn new(object: Handle<dyn Account>, thread: u32) -> Lane {
        Lane { object, thread, ran: 0, unsure: 0 }
    }

    /// Makes a nested call of a random depth. Returns the number of its levels in the server that ran, and of
    /// those that may have run besides.
    ///
    /// # Errors
    /// A wrong answer, or a wrong number of levels in this process.
    pub(super) fn call(&mut self, ledger: &Ledger, rng: &mut Rng) -> Result<(u32, u32), String> {
        let depth = rng.below(DEPTH_MAX + 1) as u32;
        let (answer, is_short) = call(self.object, self.thread, depth, rng);
        let whole = levels_of(depth, false).iter().sum::<u32>();
        if matches!(&answer, Ok(levels) if levels.iter().sum::<u32>() > whole) {
            return Err(format!("a call of depth {depth} returned {answer:?}"));
        }
        let mut levels = Levels::default();
        add(&mut levels, answer, (depth, false), is_short, false)?;
        if let Some(what) = lock(&ledger.wrong).take() {
            return Err(what);
        }
        self.ran += u64::from(levels[RAN + CLIENT]);
        self.unsure += u64::from(levels[MAY_HAVE_RUN + CLIENT]);
        let ran = ledger.own.counts[self.thread as usize].load(Ordering::Relaxed);
        if !(self.ran..=self.ran + self.unsure).contains(&ran) {
            return Err(format!(
                "{} levels of nested calls ran in a client and {} may have run, but it counted {ran}",
                self.ran, self.unsure
            ));
        }
        Ok((levels[RAN], levels[MAY_HAVE_RUN]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_alternate_between_the_processes() {
        assert_eq!(levels_of(0, false), [1, 0]);
        assert_eq!(levels_of(1, false), [1, 1]);
        assert_eq!(levels_of(1, true), [1, 1]);
        assert_eq!(levels_of(4, false), [3, 2]);
        assert_eq!(levels_of(4, true), [2, 3]);
        assert_eq!(u64::from(levels_of(DEPTH_MAX as u32, false)[0]), LEVELS_MAX);
    }

    #[test]
    fn more_levels_than_a_call_has_are_wrong() {
        let mut levels = [1, 0, 0, 0];
        assert_eq!(add(&mut levels, Ok([1, 1, 0, 1]), (2, true), false, false), Ok(()));
        assert_eq!(levels, [2, 1, 0, 1]);
        assert!(add(&mut levels, Ok([2, 1, 0, 0]), (2, true), false, false).is_err());
    }
}
