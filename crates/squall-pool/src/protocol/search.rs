//! Adds, gets and sizes: the search of a dry shard.
//!
//! Gets wait in a queue. One search at a time serves them all. It asks other members for elements. A search
//! without success ends with a proof, or begins again after a pause.
//!
//! - I1. At most one `Ask` to each member is open. A later search takes the answer of an earlier one's
//!   question: it too shows the member before the second wave.
//! - I2. At most one `Count` of a wave to each member is open. The wave begins once all have answered
//!   their `Ask`, which followed the `Count` of the wave before on the same channel.
//! - I3. A search waits for one member until a deadline. The question then stays open, and the member is
//!   *late* until its answer. Later searches pass it over, and the waves prove no emptiness meanwhile.

use super::guard::Guard;
use super::marks::Mark;
use super::message::{Census, Message};
use super::shard::{Phase, Shard};
use super::{Completion, ELEMENT_BYTES_MAX, Element, MemberId, OpId, Strategy, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The first and the longest pause between two searches.
const PAUSE: Time = 1_000;
const PAUSE_MAX: Time = 64_000;

/// The first deadline of a question of a search, in intervals of repetition. It doubles up to so many
/// times.
pub(super) const DEADLINE: Time = 2;
const PATIENCE_MAX: Time = 16;

/// A get that waits.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Wait {
    pub(super) op: OpId,
    size_max: usize,
    /// Grows with each get.
    pub(super) ticket: u64,
}

/// A `Size` that waits for answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SizeCount {
    pub(super) op: OpId,
    pub(super) open: BTreeSet<MemberId>,
    sum: u64,
}

/// The search of a dry shard, in one view. At `deadline` it goes on without the member that was asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Search {
    /// Strategies 1 to 6, the first wave: asks one member after the other.
    First {
        asked: Option<(u64, MemberId)>,
        deadline: Time,
        left: VecDeque<MemberId>,
        mine: Census,
        wave: BTreeMap<MemberId, Census>,
    },
    /// The second wave. Gets before `until` had begun before it.
    Second { id: u64, deadline: Time, until: u64, mine: Census, wave: BTreeMap<MemberId, Census> },
    /// The seventh strategy: waits for the master, or for the member `asked`.
    Directory { asked: Option<(u64, MemberId)>, deadline: Time, tried: Vec<MemberId> },
}

impl Search {
    /// The time at which the search goes on without an answer. A question to the master has none.
    pub(super) fn deadline(&self) -> Option<Time> {
        match self {
            Search::First { asked, deadline, .. } | Search::Directory { asked, deadline, .. } => {
                asked.map(|_| *deadline)
            }
            Search::Second { deadline, .. } => Some(*deadline),
        }
    }
}

impl Shard {
    pub(super) fn add(&mut self, op: OpId, element: Element) {
        // A waiting get takes it before others can see it.
        if let Some(place) = self.waiting.iter().position(|wait| wait.size_max >= element.len()) {
            if let Some(wait) = self.waiting.remove(place) {
                self.complete(wait.op, Completion::Got(element));
            }
            self.complete(op, Completion::Added);
            return self.serve();
        }
        match self.master() {
            Some(master) if self.attributes.strategy == Strategy::Centralized && master != self.me => {
                self.arrivals += 1;
                self.offer(master, vec![element], Some(op));
            }
            _ if self.may_hold() => {
                self.arrivals += 1;
                self.store.push_back(element);
                self.complete(op, Completion::Added);
                self.serve();
            }
            _ => {
                self.marking.push((op, element));
                self.ask_mark();
            }
        }
    }

    pub(super) fn get(&mut self, op: OpId, size_max: usize) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.push_back(Wait { op, size_max, ticket });
        self.serve();
    }

    /// Ends a get that waits, without a completion. Elements that were asked for it come into the store.
    /// Returns false if the operation does not wait.
    pub fn cancel(&mut self, op: OpId) -> bool {
        let Some(place) = self.waiting.iter().position(|wait| wait.op == op) else { return false };
        self.waiting.remove(place);
        // Without a get that waits, the search ends.
        self.serve();
        true
    }

    pub(super) fn size(&mut self, op: OpId) {
        let open: BTreeSet<MemberId> = self.peers().into_iter().collect();
        let id = self.new_id();
        open.iter().for_each(|peer| self.send(*peer, Message::Count { search: id }));
        self.sizes.insert(id, SizeCount { op, open, sum: 0 });
        self.end_sizes();
    }

    /// Ends the sizes that wait for no answer any more.
    pub(super) fn end_sizes(&mut self) {
        let done: Vec<u64> =
            self.sizes.iter().filter(|(_, size)| size.open.is_empty()).map(|(id, _)| *id).collect();
        for id in done {
            if let Some(SizeCount { op, sum, .. }) = self.sizes.remove(&id) {
                self.complete(op, Completion::Size(sum.saturating_add(self.store.len() as u64)));
            }
        }
    }

    /// Serves waiting gets from the store.
    pub(super) fn serve(&mut self) {
        while !self.waiting.is_empty()
            && let Some(element) = self.store.pop_front()
            && let Some(wait) = self.waiting.pop_front()
        {
            let size = element.len();
            if size > wait.size_max {
                // The next get finds another one.
                self.store.push_back(element);
                self.complete(wait.op, Completion::TooLarge { size });
            } else {
                self.complete(wait.op, Completion::Got(element));
            }
        }
        if self.waiting.is_empty() {
            self.search = None;
            self.retry_at = None;
            (self.pause, self.patience) = (0, 1);
        }
    }

    /// Begins a search if gets wait, unless one is under way.
    pub(super) fn seek(&mut self, now: Time) {
        let asked = self.finding.is_some() || self.mark == Mark::Asked;
        let idle = self.search.is_none() && self.retry_at.is_none() && !asked;
        if self.waiting.is_empty() || self.phase != Phase::Ready || !idle {
            return;
        }
        if self.attributes.directory() {
            // The questions to the late members stay open.
            let tried: Vec<MemberId> = self.late.iter().copied().collect();
            self.search = Some(Search::Directory { asked: None, deadline: 0, tried: tried.clone() });
            return self.find(now, tried);
        }
        let mut left = self.peers();
        left.retain(|peer| !self.late.contains(peer));
        let (mine, wave) = (self.census(), BTreeMap::new());
        self.search = Some(Search::First { asked: None, deadline: 0, left: left.into(), mine, wave });
        self.ask_next(now);
    }

    /// Returns the time until which a search waits for a member that it asks now.
    pub(super) fn deadline(&self, now: Time) -> Time {
        now.saturating_add(self.attributes.resend.saturating_mul(DEADLINE * self.patience))
    }

    /// Goes on without an answer at the deadline of the search.
    pub(super) fn go_on_without(&mut self, now: Time) {
        if self.search.as_ref().and_then(Search::deadline).is_none_or(|deadline| now < deadline) {
            return;
        }
        // Slow members answer within a longer one.
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
        match &mut self.search {
            Some(Search::First { asked, .. }) => {
                self.late.extend(asked.take().map(|(_, member)| member));
                self.ask_next(now);
            }
            Some(Search::Directory { asked, tried, .. }) => {
                let late = asked.take().map(|(_, member)| member);
                tried.extend(late);
                let tried = tried.clone();
                self.late.extend(late);
                self.find(now, tried);
            }
            _ => self.pause_search(now),
        }
    }

    /// Asks a member for elements, unless a question to it is open. Returns the open one.
    pub(super) fn ask(&mut self, member: MemberId) -> u64 {
        if let Some((open, _)) = self.asks.iter().find(|(_, asked)| **asked == member) {
            return *open;
        }
        let id = self.new_id();
        self.asks.insert(id, member);
        let count = self.attributes.batch() as u64;
        self.send(member, Message::Ask { search: id, count });
        id
    }

    fn ask_next(&mut self, now: Time) {
        let Some(Search::First { left, .. }) = &mut self.search else { return };
        if let Some(member) = left.pop_front() {
            let (id, until) = (self.ask(member), self.deadline(now));
            if let Some(Search::First { asked, deadline, .. }) = &mut self.search {
                (*asked, *deadline) = (Some((id, member)), until);
            }
            return;
        }
        let Some(Search::First { mine, wave, .. }) = self.search.take() else { return };
        let empty = |census: &Census| census.is_empty() && census.epoch == self.view.epoch;
        let all = wave.len() + 1 == self.view.members.len() || Guard::AllAnswer.is_removed();
        if !all || !empty(&mine) || !wave.values().all(empty) {
            return self.pause_search(now);
        }
        if wave.is_empty() || Guard::SecondWave.is_removed() {
            return self.found_empty(now, self.next_ticket);
        }
        let id = self.new_id();
        let until = if Guard::BeganBefore.is_removed() { u64::MAX } else { self.next_ticket };
        wave.keys().for_each(|peer| self.send(*peer, Message::Count { search: id }));
        let deadline = self.deadline(now);
        self.search = Some(Search::Second { id, deadline, until, mine, wave });
    }

    /// Answers a question for elements.
    pub(super) fn asked(&mut self, from: MemberId, search: u64, count: u64) {
        let elements = self.take_batch(count.min(self.attributes.batch() as u64) as usize);
        let census = self.census();
        let dry = elements.is_empty();
        self.send(from, Message::Give { search, elements, census });
        if dry {
            self.unmark();
        }
    }

    /// Takes up to `count` elements from the store, within the limit of bytes.
    pub(super) fn take_batch(&mut self, count: usize) -> Vec<Element> {
        let mut bytes = 0;
        // A frame carries no more.
        let limit = self.attributes.transfer_bytes.min(ELEMENT_BYTES_MAX);
        let fit = |element: &&Element| {
            let first = bytes == 0;
            bytes += element.len() + 8;
            first || bytes <= limit
        };
        let count = self.store.iter().take(count).take_while(fit).count();
        self.store.drain(..count).collect()
    }

    /// Takes the answer to a question for elements.
    pub(super) fn given(
        &mut self,
        now: Time,
        from: MemberId,
        search: u64,
        elements: Vec<Element>,
        census: Census,
    ) {
        // A stray answer could bring elements to a shard without a mark.
        if self.asks.get(&search) != Some(&from) {
            return;
        }
        self.asks.remove(&search);
        self.late.remove(&from);
        if !elements.is_empty() {
            let counts = self.counts_mut();
            counts.demand_transfers += 1;
            counts.demanded += elements.len() as u64;
            self.arrivals += elements.len() as u64;
            self.store.extend(elements);
            if let Some(Search::First { asked, .. } | Search::Directory { asked, .. }) = &self.search
                && *asked == Some((search, from))
            {
                self.search = None;
            }
            return self.serve();
        }
        match &mut self.search {
            Some(Search::First { asked, left, wave, .. }) => {
                wave.insert(from, census);
                left.retain(|member| *member != from);
                if *asked == Some((search, from)) {
                    self.ask_next(now);
                }
            }
            Some(Search::Directory { asked, tried, .. }) if *asked == Some((search, from)) => {
                *asked = None;
                tried.push(from);
                let tried = tried.clone();
                self.find(now, tried);
            }
            _ => {}
        }
    }

    /// Takes an answer of the second wave, or for a size.
    pub(super) fn counted(&mut self, now: Time, from: MemberId, search: u64, census: Census) {
        if let Some(size) = self.sizes.get_mut(&search)
            && size.open.remove(&from)
        {
            size.sum = size.sum.saturating_add(census.len);
            return self.end_sizes();
        }
        let Some(Search::Second { id, until, mine, wave, .. }) = &mut self.search else { return };
        let Some(first) = wave.get(&from).copied().filter(|_| *id == search) else { return };
        wave.remove(&from);
        let (until, mine, done) = (*until, *mine, wave.is_empty());
        let same = |one: Census, two: Census| {
            two.is_empty() && one.epoch == two.epoch && Guard::EqualArrivals.or(one.arrivals == two.arrivals)
        };
        if !same(first, census) || (done && !same(mine, self.census())) {
            self.search = None;
            return self.pause_search(now);
        }
        if done {
            self.search = None;
            self.found_empty(now, until);
        }
    }

    /// Ends the gets that had begun before the moment at which the pool was empty.
    pub(super) fn found_empty(&mut self, now: Time, until: u64) {
        while self.waiting.front().is_some_and(|wait| wait.ticket < until)
            && let Some(wait) = self.waiting.pop_front()
        {
            self.complete(wait.op, Completion::Empty);
        }
        (self.pause, self.patience) = (0, 1);
        self.seek(now);
    }

    /// Searches again after a pause: elements are on their way.
    pub(super) fn pause_search(&mut self, now: Time) {
        self.search = None;
        self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MAX);
        self.retry_at = Some(now + self.pause + self.me.0 % PAUSE);
    }
}
