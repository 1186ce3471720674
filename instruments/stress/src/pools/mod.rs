//! Stress of distributed pools: member processes join, leave, are killed and are stopped, while they add and
//! get.
//!
//! Promised (`squall-pool`): each element goes to one caller. A get finds a pool empty only if it was, at one
//! moment of the call. A member that leaves loses no element, unless it is the last one: then it tells their
//! number. A member that dies loses its own elements, and those on their way to it on demand. A node that was
//! taken for dead adds those of its store again. A get that is given up takes no element. Each operation ends
//! once the group has healed.
//!
//! - I1. Random choices come from the run's seed. The scheduler's choices do not, such as the add that a
//!   death interrupts.
//! - I2. Members are processes. Each has a member of seven pools, one for each strategy. It tells its adds
//!   and gets before and after, so the news of a killed member outlives it (`member/I1`).
//! - I3. A run is a sequence of rounds with one disturbance each. At the end of a round, all members rest and
//!   know each other. One empties the pools, and the books must explain each missing element (`books`).
//! - I4. One member dies or is stopped at a time. Before that, all members vote and have a lease. So most of
//!   the voters live, even if the group removes another member meanwhile.
//! - I5. The stress `pool-hosts` has its members in network namespaces, joined by `squall-net`. There a host
//!   is cut off for a while, and its members go on. Or two hosts are cut off from each other alone. Then gets
//!   in an empty pool wait, and must end after the cut.
//! - I6. At the end no child, no descriptor, no shared memory, no thread and no socket of the run remains.
//! - I7. Large runs have several groups at once, one for each four threads. Most of the time of a group
//!   passes in waits: for leases, and for starts of processes.
//! - I8. Each planned break must end the run with a violation (`breaks`). A run with a break begins with a
//!   disturbance that shows it.

mod books;
mod breaks;
mod group;
mod member;
mod news;
mod process;
mod rules;

use std::fs;
#[cfg(feature = "net")]
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

#[cfg(feature = "net")]
use crate::fleets::hosts::network::{HOSTS_MAX, Network, remains};
use crate::fleets::{Footprint, Ground, await_clean, settle};
use crate::run::{Report, Rng, Run, Stress, Violation, exclusive, threads_beyond_processors};
use crate::skeleton::breaks::{Breaks, asked};
use books::Sums;
use breaks::Break;
use group::{Counts, Disturbance, Group};
use rules::MEMBERS_MIN;

pub use member::member;
pub use process::COMMAND;

pub(super) const STRESS: Stress = Stress {
    name: "pools",
    about: "pools of a fleet lose and double no element, while members join, leave, are stopped and killed",
    run,
    threads: threads_beyond_processors,
};

/// The stress of pools on hosts, for the list of all stresses.
#[cfg(feature = "net")]
pub(super) const ON_HOSTS_STRESS: Stress = Stress {
    name: "pool-hosts",
    about: "pools of a fleet lose and double no element, while cables between hosts are cut and members die",
    run: run_on_hosts,
    threads: threads_beyond_processors,
};

/// Threads for each further group.
const THREADS: usize = 4;

/// The disturbances of rounds. Each comes once in as many rounds.
const DISTURBANCES: [Disturbance; 8] = [
    Disturbance::Change,
    Disturbance::Renew,
    Disturbance::End,
    Disturbance::Kill,
    Disturbance::KillAtRest,
    Disturbance::Stop,
    Disturbance::StopAtRest,
    Disturbance::StopAndKill,
];

/// The disturbances of rounds on hosts. A stopped member leaves its connections as they are.
#[cfg(feature = "net")]
const ON_HOSTS: [Disturbance; 8] = [
    Disturbance::Change,
    Disturbance::Renew,
    Disturbance::End,
    Disturbance::Kill,
    Disturbance::KillAtRest,
    Disturbance::Cut,
    Disturbance::CutAtRest,
    Disturbance::CutPair,
];

fn run(run: &Run) -> Result<Report, Violation> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let _exclusive = exclusive();
    let broken = asked(Break::ALL)?;
    // Relaxed: the number alone counts.
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let prefix = format!("stress-pools-{}-{number}", std::process::id());
    // Makes everything that a first group makes once.
    let warm = Group::start(Ground::Machine(format!("{prefix}-first")), 1, 1, Rng::new(run.seed, 0), None);
    warm.and_then(Group::end).map_err(Violation)?;
    let before = settle(&prefix, |_| false, 20);
    let groups = (run.threads / THREADS).max(1) as u64;
    let workers = (run.threads as u64 / groups).div_ceil(2);
    let failed = AtomicBool::new(false);
    let ends: Vec<Result<(Sums, Counts), String>> = thread::scope(|threads| {
        let running: Vec<_> = (0..groups)
            .map(|group| {
                let (ground, failed) = (Ground::Machine(format!("{prefix}-{group}")), &failed);
                threads.spawn(move || run_group(run, ground, group, workers, &DISTURBANCES, broken, failed))
            })
            .collect();
        let panicked = |_| Err("the thread of a group panicked".to_owned());
        running.into_iter().map(|group| group.join().unwrap_or_else(panicked)).collect()
    });
    let (mut counts, mut sums) = (Counts::default(), Sums::default());
    for end in ends {
        let (books, done) = end.map_err(Violation)?;
        sums = sums.plus(&books);
        counts = counts.plus(&done);
    }
    if broken == Some(Break::LeakDescriptor) {
        std::mem::forget(fs::File::open("/proc/self/maps"));
    }
    check_clean(&prefix, before, broken)?;
    Ok(report(groups, &counts, &sums))
}

/// Waits until no trace of the run is left. A planned leak stays, so it is not waited for.
fn check_clean(prefix: &str, before: Footprint, broken: Option<Break>) -> Result<(), Violation> {
    let leaks = matches!(broken, Some(Break::LeakProcess | Break::LeakDescriptor));
    await_clean(prefix, before, leaks).map_err(Violation)
}

fn report(groups: u64, counts: &Counts, sums: &Sums) -> Report {
    Report(vec![
        ("groups", groups),
        ("rounds", counts.rounds),
        ("joined", counts.joined),
        ("left", counts.left),
        ("pools left", counts.renewed),
        ("pools left by all", counts.ended),
        ("killed", counts.killed),
        ("stopped", counts.stopped),
        ("hosts cut", counts.cut),
        ("pairs of hosts cut", counts.pairs),
        ("removed and back", sums.removals),
        ("elements added", sums.added),
        ("elements taken", sums.got),
        ("elements lost by deaths", sums.lost),
        ("elements lost with pools", sums.ended),
        ("losses counted exactly", sums.exact),
        ("found empty", sums.empty),
        ("found empty, compared", sums.compared),
        ("adds refused", sums.refused),
        ("adds unsure", sums.unsure),
    ])
}

/// Runs a group on hosts.
#[cfg(feature = "net")]
fn run_on_hosts(run: &Run) -> Result<Report, Violation> {
    let _exclusive = exclusive();
    let broken = asked(Break::ALL)?;
    let network = match Network::new(HOSTS_MAX) {
        Ok(network) => Arc::new(network),
        Err(why) => {
            eprintln!("squall: stress pool-hosts is skipped: it needs root and the program `ip`: {why}");
            return Ok(Report(vec![("skipped", 1)]));
        }
    };
    let prefix = format!("stress-pool-hosts-{}", std::process::id());
    let warm = Group::start(Ground::Machine(format!("{prefix}-first")), 1, 1, Rng::new(run.seed, 0), None);
    warm.and_then(Group::end).map_err(Violation)?;
    let before = settle(&prefix, |_| false, 20);
    let ground = Ground::Hosts(Arc::clone(&network));
    let workers = (run.threads as u64).div_ceil(2);
    let ended = run_group(run, ground, 0, workers, &ON_HOSTS, broken, &AtomicBool::new(false));
    let (sums, counts) = ended.map_err(Violation)?;
    drop(network);
    check_clean(&prefix, before, broken)?;
    match remains() {
        remains if remains.is_empty() => Ok(report(1, &counts, &sums)),
        remains => Err(Violation(format!("{} remain after the run", remains.join(", ")))),
    }
}

/// Runs the group with this number. Sets `failed` at a violation, and ends early if another group
/// has set it.
fn run_group(
    run: &Run,
    ground: Ground,
    number: u64,
    workers: u64,
    disturbances: &[Disturbance],
    broken: Option<Break>,
    failed: &AtomicBool,
) -> Result<(Sums, Counts), String> {
    let (members, mut rng) = (MEMBERS_MIN, run.rng(number + 1));
    let started = Group::start(ground, members, workers, Rng::new(run.seed, !number), broken);
    let ended = started.and_then(|mut group| {
        let mut next: Vec<Disturbance> = Vec::new();
        if let Some(broken) = broken
            && let Some(shows) = disturbances.iter().find(|disturbance| broken.is_shown_by(**disturbance))
        {
            group.round(*shows)?;
        }
        // Relaxed: the flag publishes no other data.
        while !run.is_over() && !failed.load(Ordering::Relaxed) {
            if next.is_empty() {
                next.extend_from_slice(disturbances);
            }
            let disturbance = next.swap_remove(rng.below(next.len() as u64) as usize);
            group.round(disturbance)?;
        }
        group.end()
    });
    failed.fetch_or(ended.is_err(), Ordering::Relaxed);
    ended
}

#[cfg(test)]
mod tests {
    /// Not a test: the body of a member process of the tests.
    #[test]
    fn child() {
        if std::env::var_os(super::process::VARIABLE).is_none() {
            return;
        }
        // The parent skips everything before this line.
        println!("@@@");
        if let Err(why) = super::member() {
            eprintln!("{why}");
            std::process::exit(2);
        }
        std::process::exit(0);
    }
}
