//! `squall fleet demo`: a group of processes that join, leave and are killed, while threads call them.
//!
//! - I1. Each call is compared with the calls that ran. A difference makes the demo fail.
//! - I2. The demo leaves no process, no socket and no shared memory.

use std::time::{Duration, Instant};

use clap::Args;
use squall::fleet::GroupKey;
use squall_stress::fleets::{Balance, COUNTERS, ECHO_NAME, Group, Settled, check_gone};

use super::group::KeyArgs;
use crate::args::parse_count;
use crate::output::{Failure, line};

/// The fewest members. Of three, one can be lost at a time.
const MEMBERS_MIN: usize = 3;
/// The longest rest of a client between two calls, and the time between two events.
const REST: Duration = Duration::from_millis(2);
const BETWEEN_EVENTS: Duration = Duration::from_millis(300);

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Number of members at the start.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=64))]
    members: u32,
    /// Duration of the calls in seconds.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    seconds: u64,
    /// Run for a moment, with four members: each event happens once.
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
    Join,
    Leave(u32),
    Kill(u32),
}

pub(super) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let key = args.key.key()?.unwrap_or_else(GroupKey::random);
    let seed = args.seed.unwrap_or_else(squall_stress::draw_seed);
    let (members, seconds) =
        if args.quick { (MEMBERS_MIN as u32 + 1, 0) } else { (args.members, args.seconds) };
    let prefix = format!("demo-{}", std::process::id());
    let began = Instant::now();
    let mut group = Group::start(key, &prefix, members).map_err(Failure::new)?;
    let settled = group.settle().map_err(Failure::new)?;
    line(format_args!(
        "{members} processes serve {COUNTERS}, a fleet with shards, and {ECHO_NAME}, an object. Seed {seed}."
    ))?;
    line(format_args!("endpoints: {}", group.endpoints().join(" ")))?;
    line(format_args!("{} threads of this process call both by their names.", args.threads))?;
    group.call(args.threads, seed, REST).map_err(Failure::new)?;
    let mut events = Events { began, settled, seed, step: 0 };
    events.run(&mut group, Duration::from_secs(seconds))?;
    let balance = group.end().map_err(|why| failed(&why, seed))?;
    check_gone(&prefix).map_err(|why| failed(&why, seed))?;
    tell(&balance)
}

fn failed(why: &str, seed: u64) -> Failure {
    Failure::new(format!("the books do not balance, with seed {seed}: {why}"))
}

fn tell(balance: &Balance) -> Result<(), Failure> {
    let Balance { done, not_run, unsure_ran, unsure_not_run, counted, lost_shards, .. } = *balance;
    line(String::new())?;
    for (text, count) in [
        ("calls", done + not_run + unsure_ran + unsure_not_run),
        ("  with a result: each ran once", done),
        ("  told as not run: none ran", not_run),
        ("  told as perhaps run: they ran once", unsure_ran),
        ("  told as perhaps run: they did not run", unsure_not_run),
        ("shards that died with their owners", lost_shards),
        ("calls that the living shards count", counted),
    ] {
        line(format_args!("{text:<42} {count:>12}"))?;
    }
    line("The books balance. No process, socket or memory is left.")
}

/// The events of a demo.
struct Events {
    began: Instant,
    settled: Settled,
    seed: u64,
    step: u64,
}

impl Events {
    /// Runs events until the time is over, and each kind at least once.
    fn run(&mut self, group: &mut Group, length: Duration) -> Result<(), Failure> {
        let calls_began = Instant::now();
        while self.step < 3 || calls_began.elapsed() < length {
            std::thread::sleep(BETWEEN_EVENTS);
            let step = plan(self.seed, self.step, &group.numbers());
            self.step += 1;
            self.act(group, step).map_err(|failure| match failure {
                Failure::Message(why) => failed(&why, self.seed),
                other => other,
            })?;
        }
        Ok(())
    }

    fn act(&mut self, group: &mut Group, step: Step) -> Result<(), Failure> {
        let began = Instant::now();
        let event = match step {
            Step::Join => format!("member {} joins", group.join().map_err(Failure::new)?),
            Step::Leave(number) => {
                group.leave(&[number]).map_err(Failure::new)?;
                format!("member {number} leaves")
            }
            Step::Kill(number) => {
                group.kill(number).map_err(Failure::new)?;
                format!("member {number} is killed")
            }
        };
        let settled = group.settle().map_err(Failure::new)?;
        let lost = settled.lost_since(&self.settled);
        if !matches!(step, Step::Kill(_)) {
            group.compare_lives(&self.settled, &settled).map_err(Failure::new)?;
        }
        self.settled = settled;
        let owned: Vec<String> =
            self.settled.shards().iter().map(|(number, count)| format!("{number}:{count}")).collect();
        let (done, unsure, not_run) = group.calls();
        line(format_args!(
            "{:7.2} s  {event:<20} healed in {:>4} ms  {lost:>2} shards lost  shards {}  calls {done} done, \
             {unsure} perhaps run, {not_run} not run",
            self.began.elapsed().as_secs_f64(),
            began.elapsed().as_millis(),
            owned.join(" ")
        ))
    }
}

/// Chooses an event from the seed. The first three are of each kind.
fn plan(seed: u64, step: u64, members: &[u32]) -> Step {
    // A mix of both numbers (SplitMix64).
    let mut mixed = seed.wrapping_add((step + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^= mixed >> 31;
    let member = members[(mixed >> 32) as usize % members.len()];
    let kind = if step < 3 { step } else { mixed % 3 };
    match kind {
        _ if step == 0 || members.len() <= MEMBERS_MIN => Step::Join,
        0 => Step::Join,
        1 => Step::Kill(member),
        _ => Step::Leave(member),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_follows_from_its_seed_and_keeps_three_members() {
        let walk = |seed| {
            let mut members: Vec<u32> = (1..=5).collect();
            let mut steps = Vec::new();
            for step in 0..200 {
                let next = plan(seed, step, &members);
                match next {
                    Step::Join => members.push(step as u32 + 6),
                    Step::Kill(number) | Step::Leave(number) => members.retain(|member| *member != number),
                }
                assert!(members.len() >= MEMBERS_MIN, "{steps:?}");
                steps.push(next);
            }
            steps
        };
        assert_eq!(walk(7), walk(7));
        assert_ne!(walk(7), walk(8));
        assert!(matches!(walk(7)[..3], [Step::Join, Step::Kill(_), Step::Leave(_)]));
        // The first three events of a small group are of each kind, too.
        assert_eq!(plan(1, 1, &[1, 2, 3]), Step::Join);
    }
}
