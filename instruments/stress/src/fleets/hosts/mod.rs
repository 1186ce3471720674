//! Stress of groups between hosts: cables are cut, hosts vanish and come back, while clients call.
//!
//! The hosts are network namespaces with a cable each to one bridge (`network`). Members are processes on
//! them, joined by `squall-net`. Clients of this process call them.
//!
//! Promised (`squall-fleet`): the promises of the stress `fleets`, on a network that loses frames. While a
//! majority of the voters is connected, calls and names go on. A cut host loses its shards to the others, and
//! comes back by itself. A host that knows one endpoint of the group finds all names.
//!
//! - I1. Hosts, members and faults come from the run's seed.
//! - I2. A run is a row of rounds. Each has two to four hosts, and one or two members on each. The first one
//!   has two hosts and the rest of the seed by three, and each next one another number.
//! - I3. After each fault the group must heal within `HEAL`: it shows the living members alone, and each
//!   shard has an owner that answers. While a host is cut or gone, the others must heal without it, unless a
//!   majority of the voters is gone.
//! - I4. A host vanishes only if a majority of the voters is elsewhere, and no earlier fault may still remove
//!   another one. Two hosts cannot tell a death from a cut cable.
//! - I5. Each call ends by its deadline, apart from the delays of a loaded machine.
//! - I6. At the end of a round its books balance, and no process, thread, descriptor, device or namespace
//!   remains.
//! - I7. Each planned break must end the run with a violation (`breaks`).
//!
//! Not promised: a verdict on each round of a machine that starves a member for more than a second. The
//! others may remove it at the moment of a kill, so that a majority of the voters is lost. If the directory
//! shows this, the round is given up, and counted.
//!
//! Without root or the program `ip` the run is skipped: it says so, and why.

mod breaks;
pub(crate) mod network;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use squall::fleet::{GroupKey, NodeId};

use self::breaks::Break;
use self::network::{HOSTS_MAX, Network, remains};
use super::books::Balance;
use super::ground::Ground;
use super::group::{Group, Settled};
use super::{REST, await_clean, settle};
use crate::run::{Report, Rng, Run, Stress, Violation, exclusive, threads_beyond_processors};
use crate::skeleton::breaks::{Breaks, asked};

/// The stress, for the list of all stresses.
pub(crate) const STRESS: Stress = Stress {
    name: "hosts",
    about: "groups heal, and their calls run once, while cables between hosts are cut and hosts vanish",
    run,
    threads: threads_beyond_processors,
};

/// The longest time in which a group heals.
const HEAL: Duration = Duration::from_secs(60);
/// The length of a round.
const ROUND: Duration = Duration::from_secs(20);
/// The longest fault, in milliseconds. A membership ends after about 1.3 s, and a silent connection after 3
/// s.
const FAULT_MS_MAX: u64 = 4_000;
/// The time without a fault after which no member is removed for it.
const QUIET: Duration = Duration::from_secs(2);
/// The numbers of hosts that a round may have, from two on.
const HOST_COUNTS: u32 = HOSTS_MAX - 1;
/// The voters of a group at most.
const VOTERS_MAX: usize = 5;

/// Counts of a run.
#[derive(Default)]
struct Counts {
    rounds: u64,
    /// The rounds of two, three and four hosts.
    rounds_of: [u64; HOST_COUNTS as usize],
    given_up: u64,
    cut: u64,
    healed_without: u64,
    cut_all: u64,
    flapped: u64,
    kept_apart: u64,
    slowed: u64,
    vanished: u64,
    killed: u64,
    left: u64,
    came_back: u64,
    healed: u64,
    longest: Duration,
}

fn run(run: &Run) -> Result<Report, Violation> {
    let _exclusive = exclusive();
    let broken = asked(Break::ALL)?;
    if let Err(why) = Network::new(1) {
        eprintln!("squall: stress hosts is skipped: it needs root and the program `ip`: {why}");
        return Ok(Report(vec![("skipped", 1)]));
    }
    // Makes everything that a first group makes once.
    let prefix = format!("stress-hosts-{}", std::process::id());
    Group::start(GroupKey::random(), &prefix, 1).and_then(Group::end).map_err(Violation)?;
    let before = settle(&prefix, |_| false, 20);
    let (mut rng, mut counts) = (run.rng(0), Counts::default());
    let mut sums = Balance::default();
    loop {
        let (balance, _leaked) = round(run, &mut rng, &mut counts, broken).map_err(Violation)?;
        let leaks = broken == Some(Break::LeakProcess);
        await_clean(&prefix, before, leaks).map_err(Violation)?;
        let remains = remains();
        if !remains.is_empty() {
            return Err(Violation(format!("{} remain after the run", remains.join(", "))));
        }
        counts.rounds += 1;
        sums = sums.plus(&balance);
        if run.is_over() {
            break;
        }
    }
    Ok(Report(vec![
        ("rounds", counts.rounds),
        ("rounds of two hosts", counts.rounds_of[0]),
        ("rounds of three hosts", counts.rounds_of[1]),
        ("rounds of four hosts", counts.rounds_of[2]),
        ("rounds given up", counts.given_up),
        ("hosts cut", counts.cut),
        ("healed without a host", counts.healed_without),
        ("all hosts cut", counts.cut_all),
        ("cables that flapped", counts.flapped),
        ("hosts kept apart", counts.kept_apart),
        ("cables slowed", counts.slowed),
        ("hosts vanished", counts.vanished),
        ("members killed", counts.killed),
        ("members left", counts.left),
        ("members came back", counts.came_back),
        ("healed", counts.healed),
        ("longest healing, ms", counts.longest.as_millis() as u64),
        ("shards lost", sums.lost_shards),
        ("calls done", sums.done),
        ("calls counted at the end", sums.counted),
        ("calls unsure that ran", sums.unsure_ran),
        ("calls unsure, not run", sums.unsure_not_run),
        ("calls refused", sums.not_run),
    ]))
}

/// A group on hosts.
struct World<'a> {
    group: Group,
    network: Arc<Network>,
    rng: &'a mut Rng,
    counts: &'a mut Counts,
    settled: Settled,
    broken: Option<Break>,
    /// The nodes that the present fault has killed.
    killed: Vec<NodeId>,
}

/// Runs a group on new hosts, and ends it. Returns the network too if a planned break leaks it.
fn round(
    run: &Run,
    rng: &mut Rng,
    counts: &mut Counts,
    broken: Option<Break>,
) -> Result<(Balance, Option<Arc<Network>>), String> {
    let until = Instant::now() + ROUND;
    let more = (run.seed.wrapping_add(counts.rounds) % u64::from(HOST_COUNTS)) as u32;
    counts.rounds_of[more as usize] += 1;
    let hosts = 2 + more;
    let network = Arc::new(Network::new(hosts)?);
    let mut members: Vec<u32> = network.hosts().map(|host| Network::member(host, 0)).collect();
    // Three members at least: of two, one voter decides alone.
    members.extend(network.hosts().map(|host| Network::member(host, 1)).filter(|_| rng.one_in(2)));
    if members.len() < 3 {
        members.push(Network::member(1, 1));
    }
    let ground = Ground::Hosts(Arc::clone(&network));
    let group = broken.and_then(Break::of_group);
    let mut group = Group::start_on(ground, GroupKey::random(), &members, group)?;
    // A cut that stays need not be looked at for so long.
    group.heal_within(if broken == Some(Break::StayCut) { HEAL / 6 } else { HEAL });
    let settled = group.settle()?;
    group.add_clients((1..=run.threads as u64).map(|stream| run.rng(1000 * counts.rounds + stream)), REST)?;
    let mut world = World { group, network, rng, counts, settled, broken, killed: Vec::new() };
    world.settle_all()?;
    // One fault at least, also in a run of no time.
    loop {
        if let Err(why) = world.disturb() {
            if !world.has_lost_majority() {
                return Err(why);
            }
            world.counts.given_up += 1;
            let World { group, .. } = world;
            group.give_up()?;
            return Ok((Balance::default(), None));
        }
        if run.is_over() || Instant::now() >= until {
            break;
        }
    }
    let World { group, network, .. } = world;
    let balance = group.end()?;
    Ok((balance, Some(network).filter(|_| broken == Some(Break::LeakHost))))
}

impl World<'_> {
    /// Makes one fault, mends it, and waits until the group has healed.
    fn disturb(&mut self) -> Result<(), String> {
        self.killed.clear();
        let all: Vec<u32> = self.network.hosts().collect();
        let host = all[self.rng.below(all.len() as u64) as usize];
        let keeps_lives = match self.rng.below(16) {
            0..4 => self.cut(host)?,
            4..8 => self.vanish(host)?,
            8..10 => self.kill(host)?,
            10 => self.cut_all(&all)?,
            11 => self.flap(host)?,
            12 => self.keep_apart(&all)?,
            13 => self.slow(&all)?,
            _ => self.leave(host)?,
        };
        let before = self.settled.clone();
        self.settle_all()?;
        if keeps_lives {
            self.group.compare_lives(&before, &self.settled)?;
        }
        Ok(())
    }

    fn members_of(&self, host: u32) -> Vec<u32> {
        self.group.numbers().into_iter().filter(|number| Network::host_of(*number) == host).collect()
    }

    fn rest(&mut self, most: u64) {
        thread::sleep(Duration::from_millis(self.rng.below(most)));
    }

    /// Returns whether the voters without these members are a majority.
    fn can_lose(&self, lost: &[u32]) -> bool {
        let voters = self.settled.info.members.iter().filter(|member| member.votes);
        let numbers: Vec<Option<&u32>> = voters.map(|voter| self.settled.members.get(&voter.node)).collect();
        let rest = numbers.iter().filter(|number| number.is_some_and(|number| !lost.contains(number)));
        2 * rest.count() > numbers.len()
    }

    /// Returns whether the members that the present fault has killed were half of the voters, since the group
    /// had removed another one meanwhile.
    fn has_lost_majority(&self) -> bool {
        let Some(info) = self.group.show() else { return false };
        let voters: Vec<_> = info.members.iter().filter(|member| member.votes).collect();
        let living = voters.iter().filter(|voter| !self.killed.contains(&voter.node)).count();
        !self.killed.is_empty() && 2 * living <= voters.len()
    }

    /// Waits until the group has healed, and has all its voters.
    fn settle_all(&mut self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            self.settled = self.group.settle()?;
            let members = &self.settled.info.members;
            let voters = members.iter().filter(|member| member.votes).count();
            if voters == members.len().min(VOTERS_MAX) {
                break;
            }
            if began.elapsed() > HEAL {
                return Err(format!("{voters} of {} members vote {HEAL:?} after a fault", members.len()));
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.counts.healed += 1;
        self.counts.longest = self.counts.longest.max(began.elapsed());
        Ok(())
    }

    /// Waits until the group has healed, and no member is removed for an earlier fault any more.
    fn settle_quietly(&mut self) -> Result<(), String> {
        loop {
            let before = self.settled.members.clone();
            thread::sleep(QUIET);
            self.settle_all()?;
            if self.settled.members == before {
                return Ok(());
            }
        }
    }

    /// Waits until the group has healed without these members, which cannot reach it.
    fn settle_without(&mut self, away: &[u32]) -> Result<(), String> {
        let began = Instant::now();
        self.group.set_away(away.iter().copied().collect());
        let healed = self.group.settle();
        self.group.set_away(BTreeSet::new());
        healed?;
        self.counts.healed_without += 1;
        self.counts.longest = self.counts.longest.max(began.elapsed());
        Ok(())
    }

    /// Cuts the cable of a host for a while.
    fn cut(&mut self, host: u32) -> Result<bool, String> {
        let members = self.members_of(host);
        self.network.set_cable(host, false)?;
        self.counts.cut += 1;
        self.rest(FAULT_MS_MAX);
        if self.can_lose(&members) && self.rng.one_in(2) {
            self.settle_without(&members)?;
        }
        if self.broken == Some(Break::StayCut) {
            return Ok(false);
        }
        self.network.set_cable(host, true)?;
        Ok(false)
    }

    /// Lets a host vanish with all its members, and come back.
    fn vanish(&mut self, host: u32) -> Result<bool, String> {
        self.settle_quietly()?;
        let members = self.members_of(host);
        if !self.can_lose(&members) {
            return Ok(false);
        }
        // No connection is ended: the others see silence.
        self.network.set_cable(host, false)?;
        for member in &members {
            self.group.kill(*member)?;
            let nodes = self.settled.members.iter().filter(|(_, number)| *number == member);
            self.killed.extend(nodes.map(|(node, _)| *node));
            self.counts.killed += 1;
        }
        self.counts.vanished += 1;
        if self.rng.one_in(2) {
            self.settle_without(&[])?;
        }
        self.rest(FAULT_MS_MAX / 4);
        self.network.set_cable(host, true)?;
        self.come_back(&members)
    }

    /// Kills the members of a host, which stays.
    fn kill(&mut self, host: u32) -> Result<bool, String> {
        self.settle_quietly()?;
        let members = self.members_of(host);
        if !self.can_lose(&members) {
            return Ok(false);
        }
        for member in &members {
            self.group.kill(*member)?;
            let nodes = self.settled.members.iter().filter(|(_, number)| *number == member);
            self.killed.extend(nodes.map(|(node, _)| *node));
            self.counts.killed += 1;
        }
        if self.rng.one_in(2) {
            self.settle_without(&[])?;
        }
        self.come_back(&members)
    }

    /// Lets a member of a host leave, and another one take its place.
    fn leave(&mut self, host: u32) -> Result<bool, String> {
        let members = self.members_of(host);
        let member = members[self.rng.below(members.len() as u64) as usize];
        self.group.leave(&[member])?;
        self.counts.left += 1;
        self.come_back(&[member])?;
        Ok(true)
    }

    /// Starts members again. Each knows the endpoint of one member, and so does a new visitor of it.
    fn come_back(&mut self, members: &[u32]) -> Result<bool, String> {
        for member in members {
            let known = self.group.numbers();
            let known = known[self.rng.below(known.len() as u64) as usize];
            self.group.join_at(*member, &[known])?;
            self.group.discover(*member)?;
            self.counts.came_back += 1;
        }
        Ok(false)
    }

    /// Cuts all cables for a while.
    fn cut_all(&mut self, all: &[u32]) -> Result<bool, String> {
        for host in all {
            self.network.set_cable(*host, false)?;
        }
        self.rest(FAULT_MS_MAX);
        for host in all {
            self.network.set_cable(*host, true)?;
        }
        self.counts.cut_all += 1;
        Ok(false)
    }

    /// Cuts a cable several times for moments.
    fn flap(&mut self, host: u32) -> Result<bool, String> {
        for _ in 0..=self.rng.below(8) {
            self.network.set_cable(host, false)?;
            self.rest(100);
            self.network.set_cable(host, true)?;
            self.rest(100);
        }
        self.counts.flapped += 1;
        Ok(false)
    }

    /// Keeps two hosts apart, while this process and the other hosts reach both.
    fn keep_apart(&mut self, all: &[u32]) -> Result<bool, String> {
        let first = self.rng.below(all.len() as u64) as usize;
        let pair = [all[first], all[(first + 1) % all.len()]];
        for host in pair {
            self.network.set_apart(host, true)?;
        }
        self.rest(FAULT_MS_MAX);
        for host in pair {
            self.network.set_apart(host, false)?;
        }
        self.counts.kept_apart += 1;
        Ok(false)
    }

    /// Delays and loses frames for a while, if the kernel can.
    fn slow(&mut self, all: &[u32]) -> Result<bool, String> {
        let mut slowed = Vec::new();
        for host in all {
            if self.network.set_slow(*host, true)? {
                slowed.push(*host);
            }
        }
        self.counts.slowed += slowed.len() as u64;
        if !slowed.is_empty() {
            self.rest(FAULT_MS_MAX);
        }
        for host in slowed {
            self.network.set_slow(host, false)?;
        }
        Ok(false)
    }
}
