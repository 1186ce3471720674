//! Adds, gets and sizes: the search of a dry shard.
//!
//! Gets wait in a queue. One search at a time serves them all. It asks other members for elements. A search
//! without success ends with a proof, or begins again after a pause.
//!
//! - I1. At most one `Ask` to each member is open. A later search takes the answer of an earlier one's
//!   question: it too shows the member before the second wave.
//! - I2. At most one `Count` of a wave to each member is open. The wave begins once all have answered
//!   their `Ask`, which followed the `Count` of the wave before on the same channel.

use super::guard::Guard;
use super::marks::Mark;
use super::message::{Census, Message};
use super::shard::{Phase, Shard};
use super::{Completion, Element, MemberId, OpId, Strategy, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The first and the longest pause between two searches.
const PAUSE: Time = 1_000;
const PAUSE_MAX: Time = 64_000;

/// A get that waits.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) op: OpId,
    size_max: usize,
    /// Grows with each get.
    pub(super) ticket: u64,
}

/// A `Size` that waits for answers.
#[derive(Debug)]
pub(super) struct SizeCount {
    pub(super) op: OpId,
    pub(super) open: BTreeSet<MemberId>,
    sum: u64,
}

/// The search of a dry shard, in one view.
#[derive(Debug)]
pub(super) enum Search {
    /// Strategies 1 to 6, the first wave: asks one member after the other.
    First { asked: u64, left: VecDeque<MemberId>, mine: Census, wave: BTreeMap<MemberId, Census> },
    /// The second wave. Gets before `until` had begun before it.
    Second { id: u64, until: u64, mine: Census, wave: BTreeMap<MemberId, Census> },
    /// The seventh strategy: waits for the master, or for the member `asked`.
    Directory { asked: Option<(u64, MemberId)>, tried: Vec<MemberId> },
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
            self.pause = 0;
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
            self.search = Some(Search::Directory { asked: None, tried: Vec::new() });
            return self.find(now, Vec::new());
        }
        let left: VecDeque<MemberId> = self.peers().into();
        self.search = Some(Search::First { asked: 0, left, mine: self.census(), wave: BTreeMap::new() });
        self.ask_next(now);
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
            let id = self.ask(member);
            if let Some(Search::First { asked, .. }) = &mut self.search {
                *asked = id;
            }
            return;
        }
        let Some(Search::First { mine, wave, .. }) = self.search.take() else { return };
        let empty = |census: &Census| census.is_empty() && census.epoch == self.view.epoch;
        if !empty(&mine) || !wave.values().all(empty) {
            return self.pause_search(now);
        }
        if wave.is_empty() || Guard::SecondWave.is_removed() {
            return self.found_empty(now, self.next_ticket);
        }
        let id = self.new_id();
        let until = if Guard::BeganBefore.is_removed() { u64::MAX } else { self.next_ticket };
        wave.keys().for_each(|peer| self.send(*peer, Message::Count { search: id }));
        self.search = Some(Search::Second { id, until, mine, wave });
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
        let limit = self.attributes.transfer_bytes;
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
        if !elements.is_empty() {
            let counts = self.counts_mut();
            counts.demand_transfers += 1;
            counts.demanded += elements.len() as u64;
            self.arrivals += elements.len() as u64;
            self.store.extend(elements);
            let current = match &self.search {
                Some(Search::First { asked, .. }) => *asked == search,
                Some(Search::Directory { asked, .. }) => asked.is_some_and(|(id, _)| id == search),
                _ => false,
            };
            if current {
                self.search = None;
            }
            return self.serve();
        }
        match &mut self.search {
            Some(Search::First { asked, wave, .. }) if *asked == search => {
                wave.insert(from, census);
                self.ask_next(now);
            }
            Some(Search::Directory { asked, tried }) if *asked == Some((search, from)) => {
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
        let Some(Search::Second { id, until, mine, wave }) = &mut self.search else { return };
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
        self.pause = 0;
        self.seek(now);
    }

    /// Searches again after a pause: elements are on their way.
    pub(super) fn pause_search(&mut self, now: Time) {
        self.search = None;
        self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MAX);
        self.retry_at = Some(now + self.pause + self.me.0 % PAUSE);
    }
}
