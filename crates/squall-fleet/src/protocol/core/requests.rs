//! The requests of a member to change the directory, one at a time.

use super::{Core, Output, Pending, Registration};
use crate::protocol::directory::{Request, Shard};
use crate::protocol::frame::Body;
use crate::protocol::name::NameCapability;
use crate::protocol::{AGAIN, Time, serving};

impl Core {
    /// Brings the next request to the leader, until its outcome is in the directory.
    pub(super) fn advance_requests(&mut self, now: Time) {
        let me = self.group.me;
        let Some(member) = self.group.directory.members.get(&me) else { return };
        if let Some(pending) = &self.pending
            && member.request >= pending.number
        {
            let outcome = member.outcome;
            if let Some(Pending { ticket, request, .. }) = self.pending.take() {
                if let Request::Register { key, .. } = request
                    && outcome.is_err()
                {
                    match ticket {
                        Some(_) => {
                            for refused in self.registrations.extract_if(.., |kept| kept.key == key) {
                                self.rosters.remove(&refused.service);
                            }
                        }
                        None => self.put_off(now, key),
                    }
                }
                if let (Request::Vacate { name, number, .. }, Ok(())) = (&request, outcome) {
                    self.vacated(*name, *number);
                }
                if let Request::Unregister { capability } = &request {
                    self.forget_ended(|key| key == capability.key);
                }
                if let Some(ticket) = ticket {
                    self.outputs.push_back(Output::Requested { ticket, outcome });
                }
            }
        }
        if self.pending.is_none() {
            let Some((ticket, request)) = self.next_request(now) else { return };
            self.last_number += 1;
            self.pending = Some(Pending { number: self.last_number, request, ticket, send_at: now });
        }
        let Some(pending) = &mut self.pending else { return };
        if now < pending.send_at {
            return;
        }
        pending.send_at = now + AGAIN;
        let (number, request) = (pending.number, pending.request.clone());
        if !self.group.propose(now, me, number, request.clone())
            && let Some(leader) = self.group.leader()
        {
            self.send(leader, Body::Propose { number, request });
        }
    }

    /// Tries a refused registration again after a pause, and after all others: they must not wait for it.
    fn put_off(&mut self, now: Time, key: u128) {
        if let Some(at) = self.registrations.iter().position(|kept| kept.key == key) {
            let mut refused = self.registrations.remove(at);
            refused.register_at = now + self.options.timing.lease;
            self.registrations.push(refused);
        }
    }

    /// Ends a registration without a caller: it was not answered in time.
    pub(crate) fn withdraw(&mut self, now: Time, capability: NameCapability) {
        let kept = self.registrations.iter().find(|kept| kept.key == capability.key);
        if let Some(service) = kept.map(|kept| kept.service) {
            self.give_up_member(service);
        }
        self.give_up(capability.key);
        // It must not come after its end.
        let key = capability.key;
        self.requests.retain(|(_, request)| !request.registers(key));
        self.requests.push_back((None, Request::Unregister { capability }));
        self.finish(now);
    }

    /// Registers a service no more. Its number is kept until the directory has dropped its name.
    pub(super) fn give_up(&mut self, key: u128) {
        let ended = self.registrations.extract_if(.., |kept| kept.key == key);
        self.ending.extend(ended.map(|kept| (key, kept.service)));
    }

    /// Forgets services after the directory has dropped their names, also with the whole node. Members of
    /// rosters still have to leave.
    pub(super) fn forget_ended(&mut self, is_dropped: impl Fn(u128) -> bool) {
        let ending = std::mem::take(&mut self.ending);
        let is_over = |(key, service): &(u128, u64)| is_dropped(*key) && !self.is_in_roster(*service);
        let (ended, ending): (Vec<_>, Vec<_>) = ending.into_iter().partition(is_over);
        self.ending = ending;
        for (_, service) in ended {
            self.rosters.remove(&service);
            self.outputs.push_back(Output::Forget { service });
        }
    }

    /// Returns whether the request has an outcome that its caller does not know yet.
    pub(super) fn has_outcome(&self) -> bool {
        let member = self.group.directory.members.get(&self.group.me);
        member.zip(self.pending.as_ref()).is_some_and(|(member, pending)| member.request >= pending.number)
    }

    /// The next request: a shard that has arrived, a request of the driver, or a service that is not
    /// registered.
    fn next_request(&mut self, now: Time) -> Option<(Option<u64>, Request)> {
        let directory = &self.group.directory;
        let arrived = self.serving.incoming.iter().find(|((name, shard), incoming)| {
            let state = directory.shard(*name, *shard);
            let current =
                |state: &Shard| state.epoch == incoming.epoch && state.target == Some(self.group.me);
            incoming.is_complete() && state.is_some_and(current)
        });
        if let Some(((name, shard), incoming)) = arrived {
            let request = Request::Moved { name: *name, shard: *shard, epoch: incoming.epoch };
            return Some((None, request));
        }
        if let Some(request) = self.requests.pop_front() {
            return Some(request);
        }
        // A shard with a target that cannot be reached.
        let serving::Serving { shards, moving, given_up, .. } = &mut self.serving;
        for (name, shard) in moving.iter() {
            if let Some(handover) = shards.get_mut(&(*name, *shard)).and_then(|local| local.handover.as_mut())
                && handover.bytes.as_ref().is_some_and(|bytes| !bytes.is_empty())
                && now >= handover.moved_at + 5 * self.options.timing.lease
            {
                handover.moved_at = now;
                let epoch = handover.epoch;
                return Some((None, Request::Keep { name: *name, shard: *shard, epoch }));
            }
        }
        // A shard of a leaver that no other member can take.
        for (name, shard) in given_up.iter() {
            if let Some(local) = shards.get_mut(&(*name, *shard))
                && let Some((_, entry)) = directory.entry(*name)
                && entry.is_last(self.group.me)
                && let Some(state) = entry.shards.get(*shard as usize)
                && serving::is_settled_on(state, self.group.me)
            {
                local.abandoned = Some(state.epoch);
                if local.is_running() {
                    continue;
                }
                let request = Request::Abandon { name: *name, shard: *shard, epoch: state.epoch };
                return Some((None, request));
            }
        }
        let registered = |kept: &Registration| {
            let entry = directory.entry(kept.name.alias());
            entry.is_some_and(|(_, entry)| {
                entry.places.iter().any(|place| place.key == kept.key && place.node == self.group.me)
            })
        };
        let me = self.group.me;
        // A service that was registered and is gone was ended with its capability.
        let is_over = |kept: &mut Registration| !registered(kept) && kept.seen == Some(me);
        let over = self.registrations.extract_if(.., is_over);
        for service in over.map(|kept| kept.service).collect::<Vec<_>>() {
            self.rosters.remove(&service);
            self.outputs.push_back(Output::Forget { service });
        }
        for kept in self.registrations.iter_mut().filter(|kept| registered(kept)) {
            kept.seen = Some(me);
        }
        let missing = self.registrations.iter().find(|kept| !registered(kept) && now >= kept.register_at)?;
        Some((None, missing.request()))
    }
}
