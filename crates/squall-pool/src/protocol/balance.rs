//! Background transfers: transfers of idle shards and of leavers.
//!
//! - I1. A sender has copies of its offers until they are accepted. It takes back those refused, and those
//!   of a receiver that is out of the view.
//! - I2. A receiver gives out elements of an offer only after `Commit`, or once the sender is out of the
//!   view.
//!   It then has accepted the offer.
//! - I3. A receiver that is out of the view never gave out the offers that its sender takes back: it
//!   had no `Commit`, and had not seen the sender's end.

use super::guard::Guard;
use super::message::Message;
use super::shard::{Phase, Shard};
use super::{Completion, Element, MemberId, OpId, Strategy};
use serde::{Deserialize, Serialize};

/// The sender's side of a transfer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Offer {
    to: MemberId,
    /// Sent by a leaver.
    leaving: bool,
    pub(super) elements: Vec<Element>,
    /// The add that the transfer is a part of.
    pub(super) add: Option<OpId>,
}

/// The receiver's side of a transfer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) elements: Vec<Element>,
    /// Waits for the mark until then.
    pub(super) accepted: bool,
}

impl Shard {
    pub(super) fn offer(&mut self, to: MemberId, elements: Vec<Element>, add: Option<OpId>) {
        let transfer = self.new_id();
        if add.is_none() {
            self.counts_mut().background_transfers += 1;
        }
        let leaving = self.phase != Phase::Ready;
        self.send(to, Message::Offer { transfer, leaving, elements: elements.clone() });
        self.offers.insert(transfer, Offer { to, leaving, elements, add });
    }

    pub(super) fn offered(&mut self, from: MemberId, transfer: u64, leaving: bool, elements: Vec<Element>) {
        if self.pull == Some(from) {
            self.pull = None;
        }
        // Inherited members only give.
        let place = |member| {
            let own = self.view.heir_of(member).is_none() || Guard::InheritedGive.is_removed();
            (own, self.view.members.iter().position(|other| *other == member))
        };
        let takes = match self.phase {
            Phase::Joining | Phase::Ready => true,
            // Of two leavers, the later one takes the elements.
            Phase::Draining => leaving && place(self.me) > place(from),
            Phase::Leaving | Phase::Removed => false,
        };
        if !takes {
            return self.send(from, Message::Refuse { transfer });
        }
        self.held.insert((from, transfer), Held { elements, accepted: false });
        if self.may_hold() {
            self.accept_held();
        } else {
            self.ask_mark();
        }
    }

    /// Accepts all offers that waited for the mark.
    pub(super) fn accept_held(&mut self) {
        let mut accepts = Vec::new();
        for ((from, transfer), held) in &mut self.held {
            if !held.accepted {
                held.accepted = true;
                self.arrivals += held.elements.len() as u64;
                accepts.push((*from, *transfer));
            }
        }
        for (from, transfer) in accepts {
            self.send(from, Message::Accept { transfer });
            if Guard::CommitFirst.is_removed() {
                self.committed(from, transfer);
            }
        }
    }

    /// Removes an offer if its receiver answers.
    fn end_offer(&mut self, from: MemberId, transfer: u64) -> Option<Offer> {
        self.offers.get(&transfer).filter(|offer| offer.to == from)?;
        self.offers.remove(&transfer)
    }

    pub(super) fn accepted(&mut self, from: MemberId, transfer: u64) {
        let Some(offer) = self.end_offer(from, transfer) else { return };
        self.send(from, Message::Commit { transfer });
        if let Some(op) = offer.add {
            self.complete(op, Completion::Added);
        }
    }

    pub(super) fn was_refused(&mut self, from: MemberId, transfer: u64) {
        if let Some(offer) = self.end_offer(from, transfer) {
            if offer.leaving {
                self.refused.insert(from);
            }
            self.take_back(offer);
        }
        self.serve();
    }

    fn take_back(&mut self, offer: Offer) {
        self.store.extend(offer.elements);
        if let Some(op) = offer.add {
            self.complete(op, Completion::Added);
        }
    }

    pub(super) fn committed(&mut self, from: MemberId, transfer: u64) {
        if let Some(held) = self.held.remove(&(from, transfer)) {
            self.store.extend(held.elements);
        }
        self.serve();
    }

    /// Ends the transfers with a member that is out of the view.
    pub(super) fn settle_transfers(&mut self, gone: MemberId) {
        let back: Vec<u64> =
            self.offers.iter().filter(|(_, offer)| offer.to == gone).map(|(id, _)| *id).collect();
        for id in back {
            if let Some(offer) = self.offers.remove(&id)
                && !Guard::TakeBack.is_removed()
            {
                self.take_back(offer);
            }
        }
        let ended: Vec<(MemberId, u64)> =
            self.held.keys().filter(|(from, _)| *from == gone).copied().collect();
        for key in ended {
            if let Some(held) = self.held.remove(&key)
                && held.accepted
                && !Guard::KeepAccepted.is_removed()
            {
                self.store.extend(held.elements);
            }
        }
    }

    /// The background work of an idle shard, once per many idle events.
    pub(super) fn idle_act(&mut self) {
        self.acts += 1;
        let (len, strategy) = (self.store.len(), self.attributes.strategy);
        if strategy == Strategy::BackgroundPull
            && len < self.attributes.pull_below
            && self.pull.is_none()
            && let Some(peer) = self.peers().first().copied()
        {
            self.pull = Some(peer);
            self.send(peer, Message::Pull { count: self.attributes.batch() as u64 });
        }
        if self.attributes.estimates() {
            self.tell_size();
        }
        if self.attributes.pushes() && len > self.attributes.push_above && self.offers.is_empty() {
            self.push();
        }
        self.unmark();
    }

    /// Tells the master the size if it has changed much; the master tells all.
    fn tell_size(&mut self) {
        let len = self.store.len() as u64;
        if len.abs_diff(self.told) >= self.attributes.estimate_step as u64 {
            self.told = len;
            match self.master() {
                Some(master) if master != self.me => self.send(master, Message::Report { len }),
                _ => self.told_size(self.me, len),
            }
        }
        if self.is_master()
            && self.estimates_changed
            && self.acts.is_multiple_of(self.attributes.broadcast_acts.max(1))
        {
            self.estimates_changed = false;
            let sizes: Vec<(MemberId, u64)> = self.estimates.iter().map(|(id, len)| (*id, *len)).collect();
            for peer in self.view.members.clone() {
                self.send(peer, Message::Estimates { sizes: sizes.clone() });
            }
        }
    }

    pub(super) fn told_size(&mut self, from: MemberId, len: u64) {
        self.estimates.insert(from, len);
        self.estimates_changed = true;
    }

    fn push(&mut self) {
        let most = (self.store.len() as u64).checked_sub(self.attributes.push_margin as u64);
        let by_estimate = self.attributes.estimates();
        let estimate = |peer: &MemberId| self.estimates.get(peer).copied().unwrap_or(0);
        let fits = |peer: &MemberId| !by_estimate || most.is_some_and(|most| estimate(peer) <= most);
        // In turn, from the one after the last receiver.
        let others: Vec<MemberId> = self.view.members.iter().copied().filter(|it| *it != self.me).collect();
        let order = (1..=others.len()).map(|step| (self.turn + step) % others.len());
        let Some(place) = order.filter(|place| fits(&others[*place])).take(1).next() else { return };
        self.turn = place;
        let elements = self.take_batch(self.attributes.batch());
        self.offer(others[place], elements, None);
    }

    pub(super) fn pulled(&mut self, from: MemberId, count: u64) {
        let elements = self.take_batch(count.min(self.attributes.batch() as u64) as usize);
        if elements.is_empty() {
            self.send(from, Message::Dry);
        } else {
            self.offer(from, elements, None);
        }
    }

    pub(super) fn begin_shutdown(&mut self, op: OpId) {
        self.phase = Phase::Draining;
        self.shutdown = Some(op);
        self.search = None;
        self.retry_at = None;
        for wait in std::mem::take(&mut self.waiting) {
            self.complete(wait.op, Completion::Closed);
        }
    }

    /// Gives the elements of a leaver to the others, in turn. Then asks the group to remove it.
    pub(super) fn drain(&mut self) {
        if self.phase != Phase::Draining {
            return;
        }
        let peers = self.peers();
        if peers.is_empty() {
            return self.request_end();
        }
        for peer in peers {
            let free = !self.refused.contains(&peer) && !self.offers.values().any(|offer| offer.to == peer);
            if free && !self.store.is_empty() {
                let elements = self.take_batch(self.attributes.bulk.max(1));
                self.offer(peer, elements, None);
            }
        }
        let moving = !self.offers.is_empty() || !self.held.is_empty() || self.giving > 0;
        let awaits = !self.asks.is_empty() || self.pull.is_some() || !self.marking.is_empty();
        // The last member that takes the elements of those that it has inherited.
        let heir = self.view.inherited.iter().any(|(_, heir)| *heir == self.me);
        if self.store.is_empty() && !heir && Guard::Drained.or(!moving && !awaits) {
            self.request_leave();
        }
    }
}
