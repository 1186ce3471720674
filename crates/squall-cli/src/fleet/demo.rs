//! `squall fleet demo`: a fleet of processes grows, shrinks and replaces its dead by its own decision, while
//! threads call it.
//!
//! The demo tells the members whether calls wait, and kills some. The member that decides asks for a further
//! member, or asks one to leave. The demo starts the process.
//!
//! - I1. Each call is compared with the calls that ran. A difference makes the demo fail.
//! - I2. The demo leaves no process, no socket and no shared memory.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use squall::fleet::GroupKey;
use squall_stress::fleets::{Balance, COUNTERS, ECHO_NAME, Group, Grown, Settled, check_gone};

use super::group::KeyArgs;
use super::pages;
use crate::args::parse_count;
use crate::output::{Failure, line};

/// The fewest members. Of three, one can be lost at a time.
const MEMBERS_MIN: u32 = 3;
/// The members by which a busy fleet grows.
const GROWTH: u32 = 2;
/// The longest rest of a client between two calls, and the time between two events.
const REST: Duration = Duration::from_millis(2);
const BETWEEN_EVENTS: Duration = Duration::from_millis(300);

/// Another demo.
#[derive(Subcommand)]
enum Other {
    /// Allocate pages of one segment from a fleet of servers, under four loads, and account for every page.
    Pages(pages::PagesArgs),
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DemoArgs {
    #[command(subcommand)]
    other: Option<Other>,
    /// Number of members at the start. The fleet grows by two, and shrinks again.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=64))]
    members: u32,
    /// Duration of the calls in seconds.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    seconds: u64,
    /// Run for a moment, with three members: each event happens once.
    #[arg(long, conflicts_with_all = ["members", "seconds"])]
    quick: bool,
    /// Number of threads that call.
    #[arg(long, value_name = "N", default_value = "4", value_parser = parse_count)]
    threads: usize,
    /// Seed of the events and of the calls. Without it, a seed is drawn and printed.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    key: KeyArgs,
}

/// An event of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Calls wait, or no call does.
    Busy(bool),
    Kill(u32),
}

pub(super) fn run(args: &DemoArgs) -> Result<(), Failure> {
    if let Some(Other::Pages(args)) = &args.other {
        return pages::run(args);
    }
    let key = args.key.key()?.unwrap_or_else(GroupKey::random);
    let seed = args.seed.unwrap_or_else(squall_stress::draw_seed);
    let (members, seconds) = if args.quick { (MEMBERS_MIN, 0) } else { (args.members, args.seconds) };
    let prefix = format!("demo-{}", std::process::id());
    let began = Instant::now();
    let most = members + GROWTH;
    let mut group = Group::start_growing(key, &prefix, members, most).map_err(Failure::new)?;
    let settled = group.settle().map_err(Failure::new)?;
    line(format_args!(
        "{members} processes serve {COUNTERS}, a fleet with shards, and {ECHO_NAME}, an object. Seed {seed}."
    ))?;
    line(format_args!("endpoints: {}", group.endpoints().join(" ")))?;
    line(format_args!("{} threads of this process call both by their names.", args.threads))?;
    line(format_args!("The fleet chooses its own size: {members} to {most} members."))?;
    group.call(args.threads, seed, REST).map_err(Failure::new)?;
    let mut events =
        Events { began, settled, seed, members, step: 0, is_busy: false, sizes: Sizes::default() };
    events.run(&mut group, Duration::from_secs(seconds))?;
    let balance = group.end().map_err(|why| failed(&why, seed))?;
    check_gone(&prefix).map_err(|why| failed(&why, seed))?;
    tell(&balance, events.sizes)
}

/// The changes of the fleet's size.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    grown: u64,
    shrunk: u64,
    killed: u64,
    replaced: u64,
}

fn failed(why: &str, seed: u64) -> Failure {
    Failure::new(format!("the books do not balance, with seed {seed}: {why}"))
}

fn tell(balance: &Balance, sizes: Sizes) -> Result<(), Failure> {
    let Balance { done, not_run, unsure_ran, unsure_not_run, counted, lost_shards, .. } = *balance;
    line(String::new())?;
    for (text, count) in [
        ("members that the busy fleet started", sizes.grown),
        ("members that the idle fleet asked to leave", sizes.shrunk),
        ("members that were killed", sizes.killed),
        ("members that the fleet started in their place", sizes.replaced),
        ("calls", done + not_run + unsure_ran + unsure_not_run),
        ("  with a result: each ran once", done),
        ("  told as not run: none ran", not_run),
        ("  told as perhaps run: they ran once", unsure_ran),
        ("  told as perhaps run: they did not run", unsure_not_run),
        ("shards that died with their owners", lost_shards),
        ("calls that the living shards count", counted),
    ] {
        line(format_args!("{text:<46} {count:>12}"))?;
    }
    line("The books balance. No process, socket or memory is left.")
}

/// The events of a demo.
struct Events {
    began: Instant,
    settled: Settled,
    seed: u64,
    /// The smallest size.
    members: u32,
    step: u64,
    is_busy: bool,
    sizes: Sizes,
}

impl Events {
    /// Runs events until the time is over, and each kind at least once.
    fn run(&mut self, group: &mut Group, length: Duration) -> Result<(), Failure> {
        let calls_began = Instant::now();
        while self.step < 3 || calls_began.elapsed() < length {
            std::thread::sleep(BETWEEN_EVENTS);
            let step = plan(self.seed, self.step, self.is_busy, &group.numbers());
            self.step += 1;
            self.act(group, step).map_err(|failure| match failure {
                Failure::Message(why) => failed(&why, self.seed),
                other => other,
            })?;
        }
        Ok(())
    }

    fn act(&mut self, group: &mut Group, step: Step) -> Result<(), Failure> {
        match step {
            Step::Busy(is_busy) => {
                self.is_busy = is_busy;
                line(format_args!(
                    "{:7.2} s  {}",
                    self.seconds(),
                    if is_busy { "calls wait" } else { "no call waits" }
                ))?;
                group.set_busy(is_busy).map_err(Failure::new)?;
                let size = if is_busy { self.members + GROWTH } else { self.members };
                while group.numbers().len() != size as usize {
                    let grown = group.await_grown().map_err(Failure::new)?;
                    self.tell(group, grown, false)?;
                }
                Ok(())
            }
            Step::Kill(number) => {
                let began = Instant::now();
                group.kill(number).map_err(Failure::new)?;
                self.sizes.killed += 1;
                self.settle(group, began, &format!("member {number} is killed"), true)?;
                let grown = group.await_grown().map_err(Failure::new)?;
                self.tell(group, grown, true)
            }
        }
    }

    /// Tells a change of size that the fleet has decided.
    fn tell(&mut self, group: &Group, grown: Grown, replaces: bool) -> Result<(), Failure> {
        let began = Instant::now();
        let (count, event) = match (grown, replaces) {
            (Grown::Started(number), true) => {
                (&mut self.sizes.replaced, format!("the fleet replaces it by {number}"))
            }
            (Grown::Started(number), false) => {
                (&mut self.sizes.grown, format!("the fleet starts member {number}"))
            }
            (Grown::Left(number), false) => {
                (&mut self.sizes.shrunk, format!("member {number} leaves when asked"))
            }
            (other, _) => {
                return Err(Failure::new(format!("the fleet does not replace a dead member: {other:?}")));
            }
        };
        *count += 1;
        self.settle(group, began, &event, false)
    }

    fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Waits until the group has healed, and tells the event.
    fn settle(&mut self, group: &Group, began: Instant, event: &str, dies: bool) -> Result<(), Failure> {
        let settled = group.settle().map_err(Failure::new)?;
        let lost = settled.lost_since(&self.settled);
        if !dies {
            group.compare_lives(&self.settled, &settled).map_err(Failure::new)?;
        }
        self.settled = settled;
        let owned: Vec<String> =
            self.settled.shards().iter().map(|(number, count)| format!("{number}:{count}")).collect();
        let (done, unsure, not_run) = group.calls();
        line(format_args!(
            "{:7.2} s  {event:<28} healed in {:>4} ms  {lost:>2} shards lost  shards {}  calls {done} done, \
             {unsure} perhaps run, {not_run} not run",
            self.seconds(),
            began.elapsed().as_millis(),
            owned.join(" ")
        ))
    }
}

/// Chooses an event from the seed. The first three are of each kind.
fn plan(seed: u64, step: u64, is_busy: bool, members: &[u32]) -> Step {
    // A mix of both numbers (SplitMix64).
    let mut mixed = seed.wrapping_add((step + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^= mixed >> 31;
    let member = members[(mixed >> 32) as usize % members.len()];
    let kind = if step < 3 { step } else { mixed % 3 };
    match kind {
        1 if members.len() > MEMBERS_MIN as usize => Step::Kill(member),
        _ => Step::Busy(!is_busy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_follows_from_its_seed_and_kills_none_of_three_members() {
        let walk = |seed| {
            let (mut is_busy, mut steps) = (false, Vec::new());
            for step in 0..200 {
                let members: Vec<u32> = (1..=if is_busy { 5 } else { 3 }).collect();
                let next = plan(seed, step, is_busy, &members);
                match next {
                    Step::Busy(busy) => is_busy = busy,
                    Step::Kill(number) => {
                        assert!(members.contains(&number) && members.len() > 3, "{steps:?}")
                    }
                }
                steps.push(next);
            }
            steps
        };
        assert_eq!(walk(7), walk(7));
        assert_ne!(walk(7), walk(8));
        assert!(matches!(walk(7)[..3], [Step::Busy(true), Step::Kill(_), Step::Busy(false)]));
    }
}
