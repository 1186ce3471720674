//! The interface that processes call, and the object that keeps the books of its callers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use squall::call::{Caller, caller};

use super::breaks::Break;
use super::hoard::Hoard;
use super::nested::{self, Levels, Other};
use super::processes::{News, THREADS_MAX, Voice};
use crate::run::lock;

/// The methods that processes call.
#[squall::interface(remote)]
pub(crate) trait Account: Send + Sync {
    /// Adds one to the count of the caller's thread, and returns it.
    fn enter(&self, thread: u32) -> u64;
    /// Returns the bytes, each one larger.
    fn echo(&self, bytes: &[u8]) -> Vec<u8>;
    /// Returns after that many microseconds.
    fn hold(&self, micros: u32) -> u32;
    /// Panics.
    fn fail(&self);
    /// Returns the word. Callers have the right to this method at times.
    fn guarded(&self, word: u64) -> u64;
    /// Counts a level of a nested call, and calls the other process if `depth` is not zero.
    fn nest(&self, thread: u32, depth: u32, word: u64) -> Levels;
    /// Returns when the hoard is over.
    fn park(&self);
}

/// Runs of `enter` for each thread of one process.
#[derive(Debug)]
pub(super) struct Runs {
    pub(super) counts: [AtomicU64; THREADS_MAX],
    /// Whether the ledger has them.
    is_listed: AtomicBool,
}

impl Default for Runs {
    fn default() -> Runs {
        Runs { counts: std::array::from_fn(|_| AtomicU64::new(0)), is_listed: AtomicBool::new(false) }
    }
}

/// The object of this process.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    broken: Option<Break>,
    processes: Mutex<HashMap<u32, Arc<Runs>>>,
    calls: AtomicU64,
    /// Levels of nested calls that ran in this process, if it is a client.
    pub(super) own: Arc<Runs>,
    /// The process that nested calls go to.
    pub(super) other: Other,
    pub(super) hoard: Hoard,
    /// Tells each run of `enter`, so that the count outlives this process.
    voice: Option<Voice>,
    /// The first answer of another process that a method should not have got.
    pub(super) wrong: Mutex<Option<String>>,
}

/// One call in this many commits the planned break.
const BREAKS_ONE_IN: u64 = 64;

impl Ledger {
    pub(super) fn new(broken: Option<Break>) -> Ledger {
        Ledger { broken, ..Ledger::default() }
    }

    /// Sets the process that nested calls go to.
    pub(super) fn other(self, other: Other) -> Ledger {
        Ledger { other, ..self }
    }

    /// Tells each run of `enter` from now on.
    pub(super) fn voice(self, voice: Voice) -> Ledger {
        Ledger { voice: Some(voice), ..self }
    }

    /// Notes an answer that a method should not have got.
    pub(super) fn fail(&self, what: String) {
        lock(&self.wrong).get_or_insert(what);
    }

    /// Runs of `enter` so far for a process.
    pub(super) fn runs(&self, pid: u32) -> Option<Arc<Runs>> {
        lock(&self.processes).get(&pid).cloned()
    }

    /// Returns the counts of the process that calls.
    fn of_caller(&self, caller: &Caller) -> Arc<Runs> {
        let runs = caller.value(Runs::default);
        // Several threads may list the same runs at first. Acquire: pairs with the Release below.
        if !runs.is_listed.load(Ordering::Acquire) {
            if let Some(pid) = caller.pid() {
                lock(&self.processes).insert(pid, Arc::clone(&runs));
            }
            // Release: pairs with the Acquire above.
            runs.is_listed.store(true, Ordering::Release);
        }
        runs
    }

    /// Forgets a process that has ended.
    pub(super) fn forget(&self, pid: u32) {
        lock(&self.processes).remove(&pid);
    }

    pub(super) fn is_broken(&self, by: Break) -> bool {
        self.broken == Some(by)
    }

    /// Whether this call commits the planned break.
    fn breaks(&self, by: Break) -> bool {
        self.is_broken(by) && self.calls.load(Ordering::Relaxed).is_multiple_of(BREAKS_ONE_IN)
    }
}

/// The representative: the ledger of the process.
pub(super) struct Keeper(pub(super) Arc<Ledger>);

impl Account for Keeper {
    fn enter(&self, thread: u32) -> u64 {
        let Some(caller) = caller() else { return 0 };
        if self.0.is_broken(Break::StarveUser) && caller.uid() != Some(own_user()) {
            self.0.hoard.wait();
        }
        let runs = self.0.of_caller(&caller);
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let Some(count) = runs.counts.get(thread as usize) else { return 0 };
        if self.0.breaks(Break::LoseCall) {
            return count.load(Ordering::Relaxed) + 1;
        }
        if self.0.breaks(Break::RunTwice) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(voice) = &self.0.voice {
            voice.tell(News::Done, thread as usize);
            if self.0.calls.load(Ordering::Relaxed).is_multiple_of(4) {
                // Kills come after the run and before the answer, too.
                std::thread::yield_now();
            }
        }
        // Relaxed: the count orders no other data.
        count.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn echo(&self, bytes: &[u8]) -> Vec<u8> {
        let mut echo: Vec<u8> = bytes.iter().map(|byte| byte.wrapping_add(1)).collect();
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        if self.0.breaks(Break::WrongEcho) {
            echo.reverse();
        }
        echo
    }

    fn hold(&self, micros: u32) -> u32 {
        std::thread::sleep(Duration::from_micros(u64::from(micros)));
        micros
    }

    fn fail(&self) {
        crate::skeleton::expected_panic::raise_expected_panic();
    }

    fn guarded(&self, word: u64) -> u64 {
        word
    }

    fn nest(&self, thread: u32, depth: u32, word: u64) -> Levels {
        let Some(caller) = caller() else { return Levels::default() };
        // The callback of a client counts for its threads, over all connections.
        let runs = match &self.0.other {
            Other::Server(_) => self.0.own.clone(),
            _ => self.0.of_caller(&caller),
        };
        let Some(count) = runs.counts.get(thread as usize) else { return Levels::default() };
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        nested::level(&self.0, &caller, count, (thread, depth, word))
    }

    fn park(&self) {
        let Some(uid) = caller().and_then(|caller| caller.uid()) else { return };
        // In a run with that planned break, all users count as one.
        let uid = if self.0.is_broken(Break::IgnoreShares) { 0 } else { uid };
        self.0.hoard.park(uid);
    }
}

/// The user of this process.
pub(super) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}
