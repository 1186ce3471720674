//! The data that the threads of a run share, and the steps that all of them take.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::account::Ledger;
use super::breaks::Break;
use super::nested;
use super::part::Role;
use super::processes::{Ended, Running};
use super::scribble;
use crate::run::{Rng, Run, lock};

/// Longest life of a child, in microseconds.
pub(super) const LIFE_MAX: u64 = 20_000;
/// Longest time for a child to start or to end. It takes milliseconds on an idle machine.
pub(super) const PROCESS_PATIENCE: Duration = Duration::from_secs(120);

/// Counts of the work.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) clients: AtomicU64,
    pub(super) servers: AtomicU64,
    pub(super) killed: AtomicU64,
    pub(super) hostile: AtomicU64,
    pub(super) calls: AtomicU64,
    pub(super) interrupted: AtomicU64,
    pub(super) rights: AtomicU64,
    pub(super) nested: AtomicU64,
    pub(super) forked: AtomicU64,
    pub(super) survivors: AtomicU64,
    pub(super) restarts: AtomicU64,
    pub(super) renewed: AtomicU64,
    pub(super) hoards: AtomicU64,
    pub(super) most_hoarded: AtomicU64,
    pub(super) strangers: AtomicU64,
}

pub(super) fn count(count: &AtomicU64, by: u64) {
    // Relaxed: only the sum matters.
    count.fetch_add(by, Ordering::Relaxed);
}

/// The data that the threads of a run share.
pub(super) struct World<'a> {
    pub(super) run: &'a Run,
    pub(super) broken: Option<Break>,
    pub(super) name: String,
    pub(super) ledger: Arc<Ledger>,
    pub(super) counts: Counts,
    pub(super) violation: Mutex<Option<String>>,
}

impl World<'_> {
    pub(super) fn fail(&self, what: String) {
        lock(&self.violation).get_or_insert(what);
    }

    pub(super) fn is_over(&self) -> bool {
        self.run.is_over() || lock(&self.violation).is_some()
    }

    pub(super) fn is_broken(&self, by: Break) -> bool {
        self.broken == Some(by)
    }

    /// Returns a new name for the object of a server.
    pub(super) fn new_name(&self) -> String {
        static SERVERS: AtomicU64 = AtomicU64::new(0);
        format!("{}-{}", self.name, SERVERS.fetch_add(1, Ordering::Relaxed))
    }
}

pub(super) fn life(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.below(LIFE_MAX))
}

/// Ends a child, at once or in good order.
pub(super) fn end(world: &World<'_>, child: Running, kill: bool) -> Result<Ended, String> {
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

/// Compares the runs of a client with its news. A kill interrupts one call of each thread. Returns the
/// number of runs that the client has told.
pub(super) fn compare(
    world: &World<'_>,
    pid: u32,
    ended: &Ended,
    (role, kill): (Role, bool),
) -> Result<u64, String> {
    let (method, runs_of_call) = match role {
        Role::Nester => ("nest", nested::LEVELS_MAX),
        _ => ("enter", 1),
    };
    let interrupted = if kill { runs_of_call } else { 0 };
    let runs = world.ledger.runs(pid);
    world.ledger.forget(pid);
    let told = ended
        .diary
        .threads
        .iter()
        .map(|told| (told.done.load(Ordering::Relaxed), told.unsure.load(Ordering::Relaxed)));
    let mut all = 0;
    for (thread, (done, unsure)) in told.enumerate() {
        let ran = runs.as_ref().map_or(0, |runs| runs.counts[thread].load(Ordering::Relaxed));
        if !(done..=done + unsure + interrupted).contains(&ran) {
            return Err(format!(
                "`{method}` returned {done} times and failed {unsure} times in thread {thread} of a client, \
                 but ran {ran} times"
            ));
        }
        all += done;
    }
    count(&world.counts.calls, all);
    Ok(all)
}

/// Descriptors of this process, shared mappings of memory files, threads that serve or make calls, and
/// children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footprint {
    pub(super) descriptors: usize,
    pub(super) mappings: usize,
    pub(super) threads: usize,
    pub(super) children: usize,
}

pub(super) fn footprint() -> Footprint {
    let tasks = || fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let read = |path: &std::path::Path| fs::read_to_string(path).unwrap_or_default();
    // The reserved thread of all exports stays.
    let serves = |name: &str| name.starts_with("squall-call") && name != "squall-call-all";
    Footprint {
        descriptors: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        mappings: scribble::segments().map_or(0, |segments| segments.len()),
        threads: tasks().filter(|task| serves(read(&task.path().join("comm")).trim_end())).count(),
        children: tasks().map(|task| read(&task.path().join("children")).split_whitespace().count()).sum(),
    }
}
