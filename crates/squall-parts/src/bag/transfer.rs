//! Transfers between shards: on demand, by idle clients, and by a shard that leaves.

use super::roster::Changes;
use super::shard::{Locked, Shard};
use super::{Bag, Client, Strategy, in_turn, sites};
use squall_sys::sync::atomic::Ordering;
use squall_sys::sync::recheck;

/// The number of passes in vain after which `get` locks all shards. A model needs few.
const PASSES: u32 = if cfg!(loom) { 2 } else { 16 };

/// The answer of the second pass (`bag/I4`).
enum Second {
    Empty,
    /// A waiter was given an element, and has not taken it.
    Given,
    Arrived,
    InTransit,
}

impl<T> Bag<T> {
    /// Takes an element of any shard, for a client with an empty shard. If `in_turn`, it takes
    /// back no element from waiters.
    #[cold]
    #[inline(never)]
    pub(super) fn get_elsewhere(&self, home: &Shard<T>, in_turn: bool) -> Option<T> {
        let counts = &home.own().counts;
        let mut passes = 0;
        loop {
            // Before the members (`bag/I5`).
            let changes = self.roster.changes();
            // Before the sizes (`bag/I4`).
            let mut arrivals = home.arrivals();
            if !home.is_empty()
                && let Some(value) = home.get(self)
            {
                return Some(value);
            }
            let directory = self.attributes.strategy() == Strategy::Directory;
            if directory && let Some(value) = self.look_up(home) {
                return Some(value);
            }
            for shard in self.peers(home) {
                arrivals = arrivals.wrapping_add(shard.arrivals());
                counts.looks.add(1);
                if directory {
                    shard.enlist(self);
                }
                if !shard.is_empty()
                    && let Some(value) = self.take_one(shard, home)
                {
                    return Some(value);
                }
            }
            match self.second_pass(home, arrivals, changes) {
                Second::Empty => {
                    counts.dry.add(1);
                    return None;
                }
                Second::Given if in_turn => return None,
                Second::Given => {
                    if let Some(value) = self.take_back(home) {
                        return Some(value);
                    }
                }
                Second::InTransit => refuse_forked(),
                // Seldom, since it stops all clients.
                Second::Arrived if passes > 0 && passes % PASSES == 0 => {
                    if let Some(answer) = self.get_locked(home) {
                        counts.dry.add(usize::from(answer.is_none()));
                        return answer;
                    }
                }
                Second::Arrived => {}
            }
            passes += 1;
            recheck::wait(passes);
        }
    }

    /// Takes an element of a shard that the directory names.
    fn look_up(&self, home: &Shard<T>) -> Option<T> {
        let counts = &home.own().counts;
        counts.looks.add(1);
        let others = self.filled.iter().filter(|&place| place != home.index());
        in_turn(home, others.filter_map(|place| self.shard(place))).find_map(|shard| {
            counts.looks.add(1);
            if shard.is_empty() { None } else { self.take_one(shard, home) }
        })
    }

    /// The second pass of `get` after a first one with this sum of arrivals, and this number of changes of
    /// the roster before it.
    fn second_pass(&self, home: &Shard<T>, before: u64, changes: Changes) -> Second {
        if sites::AGAIN.is_weak() {
            return Second::Empty;
        }
        // Before the arrivals (`wait/I2`).
        if self.has_given() {
            return Second::Given;
        }
        let mut arrivals = 0;
        for shard in std::iter::once(home).chain(self.others(home)) {
            if shard.has_inbound() {
                return Second::InTransit;
            }
            // After `inbound` (`bag/I4`).
            arrivals = u64::wrapping_add(arrivals, shard.arrivals());
        }
        // After the members (`bag/I5`).
        let stays = self.roster.is_as(changes) || sites::CHANGES.is_weak();
        if arrivals == before && stays { Second::Empty } else { Second::Arrived }
    }

    /// Locks all shards and takes an element. Returns `None` without an answer if shards or elements were on
    /// their way meanwhile.
    pub(super) fn get_locked(&self, home: &Shard<T>) -> Option<Option<T>> {
        let changes = self.roster.changes();
        let mut shards: Vec<&Shard<T>> = std::iter::once(home).chain(self.others(home)).collect();
        // One order for all, so that no two calls wait for each other.
        shards.sort_unstable_by_key(|shard| shard.index());
        let mut all: Vec<(&Shard<T>, Locked<'_, T>)> = Vec::with_capacity(shards.len());
        all.extend(shards.into_iter().map(|shard| (shard, shard.lock())));
        let mut free = Vec::new();
        for (shard, elements) in &mut all {
            let (value, old) = shard.pop(elements, self);
            free = old;
            if value.is_some() {
                drop(all);
                drop(free);
                return Some(value);
            }
        }
        let given = self.has_given();
        let in_transit = all.iter().any(|(shard, _)| shard.has_inbound()) && !sites::ALL_INBOUND.is_weak();
        let stays = self.roster.is_as(changes) || sites::ALL_CHANGES.is_weak();
        drop(all);
        drop(free);
        (!in_transit && !given && stays).then_some(None)
    }

    /// Takes an element of `from`, and moves further ones to `home` if the strategy says so.
    fn take_one(&self, from: &Shard<T>, home: &Shard<T>) -> Option<T> {
        let bulk = self.bulk();
        if bulk == 1 {
            let value = from.get(self)?;
            home.own().counts.demand_transfers.add(1);
            return Some(value);
        }
        self.take_bulk(from, home, bulk, 0)
    }

    /// Takes an element of another shard that has several, and leaves at least one there.
    #[cold]
    #[inline(never)]
    pub(super) fn get_spare_elsewhere(&self, home: &Shard<T>) -> Option<T> {
        self.peers(home).find_map(|shard| {
            home.own().counts.looks.add(1);
            if shard.len() > 1 { self.take_bulk(shard, home, self.bulk(), 1) } else { None }
        })
    }

    /// The most elements of a demand transfer.
    fn bulk(&self) -> usize {
        match self.attributes.strategy() {
            Strategy::Centralized | Strategy::Distributed => 1,
            _ => self.attributes.bulk().max(1),
        }
    }

    /// Takes an element of `from`, and moves further ones to `home`: `bulk` in all. Leaves `keep` there.
    fn take_bulk(&self, from: &Shard<T>, home: &Shard<T>, bulk: usize, keep: usize) -> Option<T> {
        let counts = &home.own().counts;
        let mut first = None;
        let (inbound, block) = home.expect(self);
        let moved = self.move_blocks(from, home, block, (bulk, keep), |block| {
            if first.is_none() {
                first = block.pop();
            }
        });
        drop(inbound);
        if first.is_some() {
            counts.demand_transfers.add(1);
            counts.moved.add(moved);
        }
        if moved > 1 && !sites::MOVED.is_weak() {
            self.serve_waiters(home);
        }
        first
    }

    /// Moves up to `max` elements in blocks, but leaves `keep`. Returns their number. `look` sees each block
    /// before it arrives. The caller has counted the transfer in.
    fn move_blocks(
        &self,
        from: &Shard<T>,
        to: &Shard<T>,
        mut block: Vec<T>,
        (max, keep): (usize, usize),
        mut look: impl FnMut(&mut Vec<T>),
    ) -> usize {
        let mut moved = 0;
        while moved < max {
            from.exchange(&mut block, max - moved, keep, self);
            if block.is_empty() {
                break;
            }
            moved += block.len();
            look(&mut block);
            to.put_block(&mut block, self);
            debug_assert!(block.is_empty());
            if from.is_empty() {
                break;
            }
        }
        to.return_block(block);
        moved
    }

    /// Moves up to `bulk` elements. Returns their number.
    fn transfer(&self, from: &Shard<T>, to: &Shard<T>) -> usize {
        let Some((inbound, block)) = to.expect_as_member() else { return 0 };
        let moved = self.move_blocks(from, to, block, (self.attributes.bulk().max(1), 0), |_| ());
        drop(inbound);
        moved
    }

    /// Counts a transfer that was made without demand.
    fn count_move(&self, by: &Shard<T>, moved: usize, pull: bool) {
        if moved > 0 {
            let counts = &by.own().counts;
            if pull {
                counts.pulls.add(1)
            } else {
                counts.pushes.add(1)
            }
            counts.moved.add(moved);
            if !sites::GIFT.is_weak() {
                self.serve_waiters(by);
            }
        }
    }

    /// Moves blocks from a shard that holds too much to the common one.
    #[cold]
    pub(super) fn spill(&self, shard: &Shard<T>) {
        // Not more than is there now, also if others put meanwhile.
        let mut excess = shard.len().saturating_sub(self.attributes.hoard());
        let Some(center) = self.common_shard() else { return };
        if center.index() == shard.index() {
            return;
        }
        while excess > 0 {
            let (inbound, block) = center.expect(self);
            let moved = self.move_blocks(shard, center, block, (super::store::block_len::<T>(), 0), |_| ());
            drop(inbound);
            self.count_move(shard, moved, false);
            if moved == 0 {
                return;
            }
            excess = excess.saturating_sub(moved);
        }
    }

    /// Moves the elements of all other shards to `to`, but not those that clients put meanwhile.
    pub(super) fn gather_at(&self, to: &Shard<T>) {
        for shard in self.others(to) {
            let len = shard.len();
            if len > 0 {
                let (inbound, block) = to.expect(self);
                let moved = self.move_blocks(shard, to, block, (len, 0), |_| ());
                drop(inbound);
                self.count_move(to, moved, true);
            }
        }
    }

    /// Gives the elements of a shard to its peers in turn, and ends its membership. Returns whether it left.
    pub(super) fn leave(&self, shard: &Shard<T>) -> bool {
        if !shard.begin_to_leave() {
            return false;
        }
        while shard.is_leaving() {
            while !shard.is_empty() && shard.is_leaving() {
                let moved = self.peers(shard).map(|peer| self.transfer(shard, peer)).find(|&moved| moved > 0);
                if moved.is_none() && !shard.is_empty() {
                    // The last one, or all others leave too.
                    shard.stay();
                    return false;
                }
                self.count_move(shard, moved.unwrap_or(0), false);
            }
            if shard.end_to_leave(self) {
                shard.own().counts.leaves.add(1);
                return true;
            }
        }
        false
    }

    /// One act of an idle client.
    pub(super) fn balance(&self, shard: &Shard<T>) {
        let strategy = self.attributes.strategy();
        match strategy {
            Strategy::Centralized | Strategy::Distributed | Strategy::BulkTransfer | Strategy::Directory => {}
            Strategy::BackgroundPull => {
                if shard.len() < self.attributes.pull_below()
                    && let Some(peer) = self.peers(shard).next()
                    && !peer.is_empty()
                {
                    self.count_move(shard, self.transfer(peer, shard), true);
                }
            }
            Strategy::BackgroundPush | Strategy::EstimatedPush => {
                let len = shard.len();
                if strategy == Strategy::EstimatedPush {
                    // Relaxed, here and below: an estimate.
                    let told = shard.estimate.load(Ordering::Relaxed);
                    if told.abs_diff(len) >= self.attributes.estimate_step() {
                        shard.estimate.store(len, Ordering::Relaxed);
                        shard.own().counts.estimates.add(1);
                    }
                }
                if len <= self.attributes.push_above() {
                    return;
                }
                let Some(peer) = self.peers(shard).next() else { return };
                let most = len.checked_sub(self.attributes.push_margin());
                let is_far = most.is_some_and(|most| peer.estimate.load(Ordering::Relaxed) <= most);
                if strategy == Strategy::BackgroundPush || is_far {
                    self.count_move(shard, self.transfer(shard, peer), false);
                }
            }
        }
    }

    /// Lets a shard leave that no client has used for many idle acts.
    fn leave_if_unused(&self, shard: &Shard<T>) {
        let limit = self.attributes.leave_after();
        let own = shard.own();
        let (arrivals, len) = (shard.arrivals(), shard.len());
        // Relaxed, not atomic together: threads of one VP share these words, and a step may get lost.
        let same =
            own.seen.0.load(Ordering::Relaxed) == arrivals && own.seen.1.load(Ordering::Relaxed) == len;
        own.seen.0.store(arrivals, Ordering::Relaxed);
        own.seen.1.store(len, Ordering::Relaxed);
        let unused = if same { own.unused.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        own.unused.store(unused, Ordering::Relaxed);
        if limit > 0 && unused >= limit && unused % limit == 0 {
            self.leave(shard);
        }
    }
}

impl<T> Client<'_, T> {
    /// Tells the bag that this client is idle. Once per [`idle_events`](super::Attributes::idle_events)
    /// calls it may move elements between shards, as the strategy says, or let a shard [leave](Client::leave)
    /// unused for [`leave_after`](super::Attributes::leave_after) such acts. An executor calls it
    /// when it has no task to run.
    ///
    /// # Cost
    /// Usually a store to a line of the shard's own. At most one transfer, or a leave.
    pub fn idle(&self) {
        let count = &self.shard.own().idle_events;
        // Relaxed, not atomic together: threads of one VP share the count, and one may get lost.
        let events = count.load(Ordering::Relaxed).wrapping_add(1);
        if events < self.bag.attributes.idle_events().max(1) {
            count.store(events, Ordering::Relaxed);
            return;
        }
        count.store(0, Ordering::Relaxed);
        self.bag.balance(self.shard);
        self.bag.leave_if_unused(self.shard);
    }

    /// Gives the elements of this client's shard to the other shards, in turn, and frees its memory. The
    /// shard takes no part in the bag until its next use. Returns false if it stays: as the last shard with
    /// elements, or because a client put meanwhile.
    ///
    /// # Cost
    /// A transfer for each [`bulk`](super::Attributes::bulk) elements. Waits for transfers to this shard in
    /// progress.
    pub fn leave(&self) -> bool {
        self.bag.leave(self.shard)
    }
}

/// Panics in place of a wait for a transfer that may never end, in the child of a fork.
pub(super) fn refuse_forked() {
    assert!(
        !squall_sys::fork::forked(),
        "the bag has a transfer in progress, and the process is the child of a fork, where its thread may not \
         exist; such a child may only exec"
    );
}
