//! The interface that processes call, and the object that keeps the books of its callers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use squall::call::caller;

use super::breaks::Break;
use super::processes::THREADS_MAX;
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
}

/// Runs of `enter` for each thread of one process.
#[derive(Debug)]
pub(super) struct Runs {
    pub(super) counts: [AtomicU64; THREADS_MAX],
    /// Whether the ledger has them.
    is_listed: AtomicBool,
}

impl Runs {
    fn new() -> Arc<Runs> {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Arc::new(Runs { counts, is_listed: AtomicBool::new(false) })
    }
}

/// The object of this process.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    broken: Option<Break>,
    processes: Mutex<HashMap<u32, Arc<Runs>>>,
    calls: AtomicU64,
}

/// One call in this many commits the planned break.
const BREAKS_ONE_IN: u64 = 64;

impl Ledger {
    pub(super) fn new(broken: Option<Break>) -> Ledger {
        Ledger { broken, ..Ledger::default() }
    }

    /// Runs of `enter` so far for a process.
    pub(super) fn runs(&self, pid: u32) -> Option<Arc<Runs>> {
        lock(&self.processes).get(&pid).cloned()
    }

    /// Forgets a process that has ended.
    pub(super) fn forget(&self, pid: u32) {
        lock(&self.processes).remove(&pid);
    }

    fn breaks(&self, by: Break) -> bool {
        self.broken == Some(by) && self.calls.load(Ordering::Relaxed).is_multiple_of(BREAKS_ONE_IN)
    }
}

/// The representative: the ledger of the process.
pub(super) struct Keeper(pub(super) Arc<Ledger>);

impl Account for Keeper {
    fn enter(&self, thread: u32) -> u64 {
        let Some(caller) = caller() else { return 0 };
        let runs = Arc::clone(&caller.value(Runs::new));
        // Several threads may list the same runs at first. Acquire: pairs with the Release below.
        if !runs.is_listed.load(Ordering::Acquire) {
            if let Some(pid) = caller.pid() {
                lock(&self.0.processes).insert(pid, Arc::clone(&runs));
            }
            // Release: pairs with the Acquire above.
            runs.is_listed.store(true, Ordering::Release);
        }
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let Some(count) = runs.counts.get(thread as usize) else { return 0 };
        if self.0.breaks(Break::LoseCall) {
            return count.load(Ordering::Relaxed) + 1;
        }
        if self.0.breaks(Break::RunTwice) {
            count.fetch_add(1, Ordering::Relaxed);
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
}
