//! Stress of fleets: member processes join, leave, are killed and are stopped, while clients call.
//!
//! Promised (`squall-fleet`): a call that returns ran once. A call that does not return ran at most once, and
//! not at all if it says so. A shard has one owner at a time, and keeps its state unless its owner dies. Each
//! call ends by its deadline. The group heals, and its directory names the living members alone.
//!
//! - I1. Random choices come from the run's seed. The scheduler's choices do not, such as the call that a
//!   death interrupts.
//! - I2. Members are child processes (`member`). Each tells all calls that it runs, so the news of a killed
//!   member outlives it. Client threads of this process keep the ends of their calls. Both are compared
//!   (`books`).
//! - I3. Before further members die, the group must have healed: it shows the living members, and each shard
//!   has an owner that answers. So a majority of the voters lives.
//! - I4. If no member was killed or stopped in between, each shard has kept its state.
//! - I5. At the end no child, no descriptor, no shared memory, no thread of a node and no socket of the run
//!   remains.
//! - I6. Large runs have several groups at once, one for each four client threads. Most of the time of a
//!   group passes in waits: for leases, and for starts of processes.
//! - I7. Each planned break must end the run with a violation (`breaks`).

mod books;
mod breaks;
mod clients;
mod ground;
mod group;
#[cfg(feature = "net")]
pub(crate) mod hosts;
mod member;
mod process;
mod spans;
mod state;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use squall::fleet::{GroupKey, Name};

use crate::run::{Report, Rng, Run, Stress, Violation, exclusive, threads_beyond_processors};
use crate::skeleton::breaks::{Breaks, asked};
use breaks::Break;

pub use books::Balance;
pub(crate) use ground::Ground;
pub use group::{Group, Grown, Settled};
pub(crate) use member::end_with_parent;
pub use member::member;
pub use process::COMMAND;
pub(crate) use spans::Spans;

pub(super) const STRESS: Stress = Stress {
    name: "fleets",
    about: "calls of a fleet run once, and shards keep their state, while members join, leave, are stopped and killed",
    run,
    threads: threads_beyond_processors,
};

/// The name of the fleet of counters.
pub const COUNTERS: &str = "/counters";
/// The name of the echo.
pub const ECHO_NAME: &str = "/echo";
/// The limit of most calls.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// The longest delay of a call's end beyond its limit, on a loaded machine.
const LATE_MAX: Duration = Duration::from_secs(30);
/// The longest time for anything to end or to heal. It takes seconds at most on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// The fewest and the most members.
const MEMBERS_MIN: usize = 3;
const MEMBERS_MAX: usize = 7;
/// Client threads for each further group.
const CLIENTS: usize = 4;
/// The longest stop of a member, in milliseconds. Its membership ends after about 1.3 s.
const STOP_MS_MAX: u64 = 2_000;
/// The longest rest of a client between two calls.
const REST: Duration = Duration::from_millis(1);
/// Looks for traces of the run at its end, and the time between them.
const LOOKS: u32 = 2_000;
/// Looks after a planned leak: its traces never go away.
const LOOKS_AT_A_LEAK: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Counts {
    joined: u64,
    left: u64,
    killed: u64,
    stopped: u64,
    killed_stopped: u64,
    healed: u64,
}

fn name(text: &str) -> Name {
    text.parse().expect("the names of this module are well formed")
}

fn run(run: &Run) -> Result<Report, Violation> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let _exclusive = exclusive();
    let broken = asked(Break::ALL)?;
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let prefix = format!("stress-fleets-{}-{number}", std::process::id());
    // Makes everything that a first group makes once.
    let warm = Group::start(GroupKey::random(), &format!("{prefix}-first"), 1).and_then(Group::end);
    warm.map_err(Violation)?;
    let before = settle(&prefix, |_| false, 20);
    let groups = (run.threads / CLIENTS).max(1) as u64;
    let failed = AtomicBool::new(false);
    let ends: Vec<Result<(Balance, Counts), String>> = thread::scope(|threads| {
        let running: Vec<_> = (1..groups)
            .map(|group| {
                let (prefix, failed) = (format!("{prefix}-{group}"), &failed);
                threads.spawn(move || run_group(run, &prefix, group, groups, broken, failed))
            })
            .collect();
        let first = run_group(run, &format!("{prefix}-0"), 0, groups, broken, &failed);
        let panicked = |_| Err("the thread of a group panicked".to_owned());
        let others = running.into_iter().map(|group| group.join().unwrap_or_else(panicked));
        [first].into_iter().chain(others).collect()
    });
    let (mut counts, mut balance) = (Counts::default(), Balance::default());
    for end in ends {
        let (sums, done) = end.map_err(Violation)?;
        balance = balance.plus(&sums);
        counts = counts.plus(&done);
    }
    let leaks = matches!(broken, Some(Break::LeakProcess | Break::LeakDescriptor | Break::LeakTransport));
    await_clean(&prefix, before, leaks).map_err(Violation)?;
    let books::Balance { done, not_run, unsure_ran, unsure_not_run, counted, lost_shards } = balance;
    Ok(Report(vec![
        ("groups", groups),
        ("joined", counts.joined),
        ("left", counts.left),
        ("killed", counts.killed),
        ("stopped", counts.stopped),
        ("killed while stopped", counts.killed_stopped),
        ("healed", counts.healed),
        ("shards lost", lost_shards),
        ("calls done", done),
        ("calls counted at the end", counted),
        ("calls unsure that ran", unsure_ran),
        ("calls unsure, not run", unsure_not_run),
        ("calls refused", not_run),
    ]))
}

impl Counts {
    fn plus(self, other: &Counts) -> Counts {
        Counts {
            joined: self.joined + other.joined,
            left: self.left + other.left,
            killed: self.killed + other.killed,
            stopped: self.stopped + other.stopped,
            killed_stopped: self.killed_stopped + other.killed_stopped,
            healed: self.healed + other.healed,
        }
    }
}

/// Runs the group with this number of `groups`, and its share of the clients. Sets `failed` at a violation,
/// and ends early if another group has set it.
fn run_group(
    run: &Run,
    prefix: &str,
    number: u64,
    groups: u64,
    broken: Option<Break>,
    failed: &AtomicBool,
) -> Result<(Balance, Counts), String> {
    let mut counts = Counts::default();
    let ended =
        Group::start_broken(GroupKey::random(), prefix, MEMBERS_MIN as u32, broken).and_then(|mut group| {
            // The streams of random numbers: one for the group, and one for each of its clients.
            let streams = (1..=run.threads as u64).filter(|stream| stream % groups == number);
            group.add_clients(streams.map(|stream| run.rng(stream)), REST)?;
            let stream = number << 32;
            disturb(run, stream, &mut group, &mut counts, failed)?;
            if broken == Some(Break::LeakDescriptor) {
                std::mem::forget(fs::File::open("/proc/self/maps"));
            }
            group.end()
        });
    // Relaxed: the flag publishes no other data.
    failed.fetch_or(ended.is_err(), Ordering::Relaxed);
    ended.map(|balance| (balance, counts))
}

/// Disturbs the group until the time is over, or another group has failed.
fn disturb(
    run: &Run,
    stream: u64,
    group: &mut Group,
    counts: &mut Counts,
    failed: &AtomicBool,
) -> Result<(), String> {
    let mut rng = run.rng(stream);
    let mut settled = group.settle()?;
    // Relaxed: the flag publishes no other data.
    while !run.is_over() && !failed.load(Ordering::Relaxed) {
        // Of five voters, two may be lost at a time.
        let most = if group.numbers().len() >= 5 { 2 } else { 1 };
        let mut dies = false;
        for _ in 0..=rng.below(most) {
            dies |= disturb_once(group, counts, &mut rng)?;
        }
        thread::sleep(Duration::from_millis(rng.below(30)));
        let now = group.settle()?;
        counts.healed += 1;
        if !dies {
            group.compare_lives(&settled, &now)?;
        }
        settled = now;
    }
    Ok(())
}

/// Disturbs the group once. Returns whether a member was killed or stopped.
fn disturb_once(group: &mut Group, counts: &mut Counts, rng: &mut Rng) -> Result<bool, String> {
    let numbers = group.numbers();
    let number = numbers[rng.below(numbers.len() as u64) as usize];
    let (many, few) = (numbers.len() > MEMBERS_MIN, numbers.len() < MEMBERS_MAX);
    match rng.below(16) {
        0 => {
            group.pause(number)?;
            thread::sleep(Duration::from_millis(rng.below(STOP_MS_MAX)));
            if many && rng.one_in(2) {
                group.kill(number)?;
                counts.killed += 1;
                counts.killed_stopped += 1;
            } else {
                group.resume(number)?;
            }
            counts.stopped += 1;
            Ok(true)
        }
        1..3 if many => {
            group.leave(&[number])?;
            counts.left += 1;
            Ok(false)
        }
        8.. if few => {
            group.join()?;
            counts.joined += 1;
            Ok(false)
        }
        _ if many => {
            group.kill(number)?;
            counts.killed += 1;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Traces of a run in this process and on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footprint {
    descriptors: usize,
    mappings: usize,
    /// Threads of nodes and transports.
    threads: usize,
    children: usize,
    /// Sockets of all processes with names of the run.
    sockets: usize,
}

fn footprint(prefix: &str) -> Footprint {
    let tasks = || fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let read = |path: &std::path::Path| fs::read_to_string(path).unwrap_or_default();
    let is_ours =
        |name: &str| ["squall-fleet", "squall-net", "stress-"].iter().any(|ours| name.starts_with(ours));
    let lines = |path: &str, parts: &[&str]| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    };
    Footprint {
        descriptors: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        mappings: lines("/proc/self/maps", &["/memfd:", "s "]),
        threads: tasks().filter(|task| is_ours(&read(&task.path().join("comm")))).count(),
        children: tasks().map(|task| read(&task.path().join("children")).split_whitespace().count()).sum(),
        sockets: lines("/proc/net/unix", &[prefix]),
    }
}

/// Looks until the footprint is clean, and returns the last one. Dropped objects end meanwhile.
pub(crate) fn settle(prefix: &str, is_clean: impl Fn(&Footprint) -> bool, looks: u32) -> Footprint {
    let mut now = footprint(prefix);
    for _ in 0..looks {
        if is_clean(&now) {
            break;
        }
        let _ = squall_rcu::barrier();
        thread::sleep(BETWEEN_LOOKS);
        now = footprint(prefix);
    }
    now
}

/// Waits until no trace of the run is left. With `leaks`, the run has planned a leak.
pub(crate) fn await_clean(prefix: &str, before: Footprint, leaks: bool) -> Result<(), String> {
    let is_clean = |now: &Footprint| {
        now.descriptors <= before.descriptors
            && now.mappings <= before.mappings
            && now.threads <= before.threads
            && now.children <= before.children
            && now.sockets == 0
    };
    let now = settle(prefix, is_clean, if leaks { LOOKS_AT_A_LEAK } else { LOOKS });
    if is_clean(&now) {
        return Ok(());
    }
    Err(format!("{now:?} remain after the run, {before:?} were there before"))
}

/// Waits until this process has no child, and no socket, memory or thread of the groups whose transports have
/// this prefix.
///
/// # Errors
/// Something remains.
pub fn check_gone(prefix: &str) -> Result<(), String> {
    let none = Footprint { descriptors: usize::MAX, mappings: 0, threads: 0, children: 0, sockets: 0 };
    await_clean(prefix, none, false)
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
