//! A group of member processes, and its rounds.

use std::collections::BTreeMap;
use std::mem::forget;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use squall::fleet::GroupKey;

use super::books::{Books, Exact, Sums, Verdict};
use super::breaks::Break;
use super::news::{Order, Part};
use super::process::{Answer, Process};
use super::rules::{BETWEEN_LOOKS, MEMBERS_MAX, MEMBERS_MIN, POOLS, now};
use crate::fleets::Ground;
#[cfg(feature = "net")]
use crate::fleets::hosts::network::Network;
use crate::run::Rng;

/// The longest stop of a member, in milliseconds. Its membership ends after about 1.3 s.
const STOP_MS_MAX: u64 = 2_500;
/// The longest cut of a cable, in milliseconds. A silent connection ends after 3 s.
#[cfg(feature = "net")]
const CUT_MS_MAX: u64 = 4_000;
/// The longest work of a round before its disturbance, in milliseconds.
const WORK_MS_MAX: u64 = 200;
/// The longest wait until the stores of resting members have all elements.
const REST_MAX: Duration = Duration::from_secs(2);

/// The disturbance of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// Members join, and leave with their nodes.
    Change,
    /// Members leave pools, and join them again.
    Renew,
    /// All members leave one pool at once while all rest, and join it again.
    End,
    /// A working member dies.
    Kill,
    /// A member dies while all rest.
    KillAtRest,
    /// A working member is stopped for a while.
    Stop,
    /// A member is stopped while all rest.
    StopAtRest,
    /// A member is stopped, and dies.
    StopAndKill,
    /// The cable of a host is cut for a while.
    #[cfg(feature = "net")]
    Cut,
    /// The cable of a host is cut while all rest.
    #[cfg(feature = "net")]
    CutAtRest,
    /// Two hosts are cut off from each other for a while, and reach all others.
    #[cfg(feature = "net")]
    CutPair,
}

/// Numbers of events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) rounds: u64,
    pub(super) joined: u64,
    pub(super) left: u64,
    pub(super) renewed: u64,
    pub(super) ended: u64,
    pub(super) killed: u64,
    pub(super) stopped: u64,
    pub(super) cut: u64,
    pub(super) pairs: u64,
}

impl Counts {
    pub(super) fn plus(self, other: &Counts) -> Counts {
        Counts {
            rounds: self.rounds + other.rounds,
            joined: self.joined + other.joined,
            left: self.left + other.left,
            renewed: self.renewed + other.renewed,
            ended: self.ended + other.ended,
            killed: self.killed + other.killed,
            stopped: self.stopped + other.stopped,
            cut: self.cut + other.cut,
            pairs: self.pairs + other.pairs,
        }
    }
}

/// A group of member processes. The calling thread must outlive it, since members die with the thread that
/// started them.
pub(super) struct Group {
    key: GroupKey,
    ground: Ground,
    root: Option<String>,
    workers: u64,
    broken: Option<Break>,
    books: Arc<Books>,
    members: BTreeMap<u32, Process>,
    /// The place of each member on the ground.
    places: BTreeMap<u32, u32>,
    last: u32,
    rng: Rng,
    pub(super) counts: Counts,
}

impl Group {
    /// Starts a group with as many members.
    pub(super) fn start(
        ground: Ground,
        members: usize,
        workers: u64,
        rng: Rng,
        broken: Option<Break>,
    ) -> Result<Group, String> {
        let mut group = Group {
            key: GroupKey::random(),
            ground,
            root: None,
            workers,
            broken,
            books: Arc::default(),
            members: BTreeMap::new(),
            places: BTreeMap::new(),
            last: 0,
            rng,
            counts: Counts::default(),
        };
        while group.members.len() < members {
            group.join()?;
        }
        group.counts = Counts::default();
        Ok(group)
    }

    fn join(&mut self) -> Result<(), String> {
        self.last += 1;
        let place = self.free_place();
        let part = Part {
            key: self.key,
            root: self.root.clone(),
            endpoint: self.ground.endpoint(place),
            number: self.last,
            workers: self.workers,
            seed: self.rng.next(),
            broken: self.broken,
            seeds: self.places.values().map(|place| self.ground.endpoint(*place)).collect(),
        };
        let process = Process::start(&self.ground.entry(place), &part, &self.books);
        let process = process.map_err(|error| format!("a member cannot start: {error}"))?;
        let root = process.await_ready();
        self.books.check()?;
        if let Some(root) = root? {
            self.root = Some(root);
        }
        self.members.insert(self.last, process);
        self.places.insert(self.last, place);
        self.counts.joined += 1;
        Ok(())
    }

    /// Returns a place for the next member, on the host with the fewest members.
    fn free_place(&self) -> u32 {
        match &self.ground {
            Ground::Machine(_) => self.last,
            #[cfg(feature = "net")]
            Ground::Hosts(network) => {
                let on = |host: u32| self.places.values().filter(|it| Network::host_of(**it) == host).count();
                let host = network.hosts().min_by_key(|host| on(*host)).unwrap_or(1);
                let taken = |place: &u32| self.places.values().any(|other| other == place);
                let place = Network::member(host, 0);
                if taken(&place) { Network::member(host, 1) } else { place }
            }
        }
    }

    /// Draws a member.
    fn draw(&mut self) -> u32 {
        let at = self.rng.below(self.members.len() as u64) as usize;
        self.members.keys().nth(at).copied().unwrap_or(self.last)
    }

    fn take(&mut self, number: u32) -> Result<Process, String> {
        self.places.remove(&number);
        self.members.remove(&number).ok_or_else(|| format!("there is no member {number}"))
    }

    fn order(&mut self, number: u32, order: Order) -> Result<(), String> {
        self.members.get_mut(&number).map_or(Ok(()), |member| member.order(order))
    }

    fn order_all(&mut self, order: Order) -> Result<(), String> {
        self.members.values_mut().try_for_each(|member| member.order(order))
    }

    /// Orders all members, and waits for all answers.
    fn ask_all(&mut self, order: Order, answer: Answer) -> Result<(), String> {
        self.order_all(order)?;
        let answered = self.members.values().try_for_each(|member| member.await_answer(answer));
        self.books.check().and(answered)
    }

    fn pause_for(&mut self, ms_max: u64) {
        thread::sleep(Duration::from_millis(self.rng.below(ms_max)));
    }

    /// Runs a round: the members work, are disturbed, and rest. Then one empties the pools.
    pub(super) fn round(&mut self, disturbance: Disturbance) -> Result<(), String> {
        while self.members.len() < MEMBERS_MIN {
            self.join()?;
        }
        self.order_all(Order::Work)?;
        self.pause_for(WORK_MS_MAX);
        // All members vote then, so the loss of one leaves a majority.
        self.settle()?;
        let most = self.members.len() as u64;
        match disturbance {
            Disturbance::Change => self.change()?,
            Disturbance::Renew => self.renew()?,
            Disturbance::Kill => {
                let number = self.draw();
                self.kill(number)?;
            }
            Disturbance::Stop => {
                let number = self.draw();
                self.stop(number, 0)?;
            }
            Disturbance::StopAndKill => {
                let number = self.draw();
                self.signal(number, Signal::STOP)?;
                self.pause_for(STOP_MS_MAX);
                self.counts.stopped += 1;
                self.kill(number)?;
            }
            #[cfg(feature = "net")]
            Disturbance::Cut => {
                let number = self.draw();
                self.cut(number, 0)?;
            }
            #[cfg(feature = "net")]
            Disturbance::CutPair => self.cut_pair()?,
            _ => {}
        }
        self.pause_for(WORK_MS_MAX);
        self.ask_all(Order::Rest, Answer::Rested)?;
        let exact = self.disturb_at_rest(disturbance)?;
        self.close(most.max(self.members.len() as u64), exact.as_ref())?;
        self.counts.rounds += 1;
        Ok(())
    }

    /// Lets members join, or leave, or both.
    fn change(&mut self) -> Result<(), String> {
        let joins = if self.members.len() == MEMBERS_MIN { 2 } else { 1 };
        for _ in 0..joins {
            if self.members.len() < MEMBERS_MAX {
                self.join()?;
                self.order(self.last, Order::Work)?;
            }
        }
        for _ in 0..=self.rng.below(2) {
            if self.members.len() > MEMBERS_MIN {
                let number = self.draw();
                self.leave(number)?;
            }
        }
        Ok(())
    }

    fn leave(&mut self, number: u32) -> Result<(), String> {
        let mut process = self.take(number)?;
        let left = process.order(Order::Leave).and_then(|()| process.await_left());
        self.books.check().and(left)?;
        self.books.note_left(number);
        self.counts.left += 1;
        Ok(())
    }

    /// Lets some members leave pools at the same time. Each pool keeps a member.
    fn renew(&mut self) -> Result<(), String> {
        let members: Vec<u32> = self.members.keys().copied().collect();
        let stays = self.draw();
        let mut renewing: Vec<u32> = Vec::new();
        for number in members.into_iter().filter(|number| *number != stays) {
            if self.rng.one_in(2) {
                let pool = self.rng.below(POOLS as u64) as usize;
                self.order(number, Order::Renew(pool))?;
                renewing.push(number);
            }
        }
        renewing.into_iter().try_for_each(|number| self.await_renewed(number))
    }

    /// Lets all members leave a pool at once, and join it again.
    fn end_pool(&mut self, pool: usize) -> Result<(), String> {
        self.books.note_end(pool);
        self.ask_all(Order::Quit(pool), Answer::Quit)?;
        self.ask_all(Order::Enter(pool), Answer::Renewed)?;
        self.counts.ended += 1;
        Ok(())
    }

    fn kill(&mut self, number: u32) -> Result<(), String> {
        let process = self.take(number)?;
        let before = now();
        process.kill()?;
        self.books.note_death(number, before, now());
        self.counts.killed += 1;
        self.books.check()
    }

    fn signal(&self, number: u32, signal: Signal) -> Result<(), String> {
        self.members.get(&number).map_or(Ok(()), |member| member.signal(signal))
    }

    /// Stops a member for at least `ms_min` milliseconds.
    fn stop(&mut self, number: u32, ms_min: u64) -> Result<(), String> {
        self.signal(number, Signal::STOP)?;
        thread::sleep(Duration::from_millis(ms_min));
        self.pause_for(STOP_MS_MAX - ms_min);
        self.counts.stopped += 1;
        self.signal(number, Signal::CONT)
    }

    /// Cuts the cable of a member's host for at least `ms_min` milliseconds.
    #[cfg(feature = "net")]
    fn cut(&mut self, number: u32, ms_min: u64) -> Result<(), String> {
        let place = self.places.get(&number).copied();
        let (Ground::Hosts(network), Some(place)) = (self.ground.clone(), place) else { return Ok(()) };
        network.set_cable(Network::host_of(place), false)?;
        thread::sleep(Duration::from_millis(ms_min));
        self.pause_for(CUT_MS_MAX - ms_min);
        self.counts.cut += 1;
        network.set_cable(Network::host_of(place), true)
    }

    /// Cuts the hosts of two members off from each other.
    #[cfg(feature = "net")]
    fn cut_pair(&mut self) -> Result<(), String> {
        let Ground::Hosts(network) = self.ground.clone() else { return Ok(()) };
        let mut hosts: Vec<u32> = network.hosts().collect();
        let mut pair = || hosts.swap_remove(self.rng.below(hosts.len() as u64) as usize);
        let pair = [pair(), pair()];
        for host in pair {
            network.set_apart(host, true)?;
        }
        self.pause_for(CUT_MS_MAX);
        self.counts.pairs += 1;
        pair.into_iter().try_for_each(|host| network.set_apart(host, false))
    }

    /// Kills or stops a resting member, cuts it off, or ends a pool. Returns the elements that go with it.
    fn disturb_at_rest(&mut self, disturbance: Disturbance) -> Result<Option<Exact>, String> {
        let is_at_rest = match disturbance {
            Disturbance::KillAtRest | Disturbance::StopAtRest | Disturbance::End => true,
            #[cfg(feature = "net")]
            Disturbance::CutAtRest => true,
            _ => false,
        };
        if !is_at_rest {
            return Ok(None);
        }
        // Elements of a round of their own, without adds that may have taken effect.
        self.close(self.members.len() as u64, None)?;
        self.ask_all(Order::Fill, Answer::Filled)?;
        self.settle()?;
        let process = self.draw();
        let mut exact = self.measure(process)?;
        if self.broken == Some(Break::LoseBesideDeath)
            && let Some(other) = self.members.keys().copied().find(|number| *number != process)
        {
            self.order(other, Order::Lose)?;
        }
        if disturbance == Disturbance::KillAtRest {
            self.kill(process)?;
            return Ok(Some(exact));
        }
        exact.lost = exact.lost.map(|lost| lost.map(|_| 0));
        match disturbance {
            Disturbance::End => {
                exact.process = None;
                let pool = self.rng.below(POOLS as u64) as usize;
                self.end_pool(pool)?;
            }
            #[cfg(feature = "net")]
            Disturbance::CutAtRest => self.cut(process, STOP_MS_MAX / 2)?,
            _ => self.stop(process, STOP_MS_MAX / 2)?,
        }
        Ok(Some(exact))
    }

    /// Waits until the stores of the resting members have all elements. Returns those of one member.
    fn measure(&mut self, process: u32) -> Result<Exact, String> {
        let began = Instant::now();
        loop {
            let (since, expected) = (now(), self.books.expected());
            self.order_all(Order::Hold)?;
            let (mut sums, mut own) = ([0; POOLS], [0; POOLS]);
            for (number, member) in &self.members {
                let held = member.await_held()?;
                sums.iter_mut().zip(held).for_each(|(sum, held)| *sum += held);
                if *number == process {
                    own = held;
                }
            }
            self.books.check()?;
            let is_whole = |pool: usize| expected[pool] == Some(sums[pool]);
            let all = (0..POOLS).all(|pool| expected[pool].is_none() || is_whole(pool));
            if all || began.elapsed() > REST_MAX {
                let lost = std::array::from_fn(|pool| Some(own[pool]).filter(|_| is_whole(pool)));
                return Ok(Exact { process: Some(process), since, lost });
            }
            thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Empties the pools, and judges the round.
    fn close(&mut self, most: u64, exact: Option<&Exact>) -> Result<(), String> {
        loop {
            self.settle()?;
            let (removals, drained) = (self.books.removals(), now());
            let number = self.draw();
            self.order(number, Order::Drain)?;
            let answer = self.members.get(&number).map(|member| member.await_answer(Answer::Drained));
            self.books.check().and(answer.unwrap_or(Ok(())))?;
            // A removal meanwhile is told before this returns.
            self.settle()?;
            if self.books.removals() != removals {
                continue;
            }
            match self.books.judge(most, exact, drained)? {
                Verdict::Balanced => return Ok(()),
                Verdict::Held(pool) => self.await_given_back(pool)?,
            }
        }
    }

    /// Waits until the gets that were given up have given their elements back: a leaver waits for them.
    fn await_given_back(&mut self, pool: usize) -> Result<(), String> {
        for number in self.members.keys().copied().collect::<Vec<_>>() {
            self.order(number, Order::Renew(pool))?;
            self.await_renewed(number)?;
        }
        self.books.note_given_back(pool);
        Ok(())
    }

    fn await_renewed(&mut self, number: u32) -> Result<(), String> {
        let renewed = self.members.get(&number).map(|member| member.await_answer(Answer::Renewed));
        self.books.check().and(renewed.unwrap_or(Ok(())))?;
        self.counts.renewed += 1;
        Ok(())
    }

    fn settle(&mut self) -> Result<(), String> {
        self.ask_all(Order::Settle(self.members.len()), Answer::Settled)
    }

    /// Ends all members. Returns the sums of the books.
    pub(super) fn end(mut self) -> Result<(Sums, Counts), String> {
        let counts = self.counts;
        while self.members.len() > 1 {
            let number = self.draw();
            self.leave(number)?;
        }
        let number = self.draw();
        let process = self.take(number)?;
        if self.broken == Some(Break::LeakProcess) {
            forget(process);
        } else {
            process.end()?;
        }
        self.books.check()?;
        Ok((self.books.sums(), counts))
    }
}
