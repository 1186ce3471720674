//! The directory of a group: its members, names, and owners of shards.
//!
//! Problem: all members must agree on them, also after some have died.
//! Idea: a deterministic state, changed by one sequence of [`Change`]s that the [group](super::group) agrees
//! on. A member applies a change once the group has committed it, so all see equal directories in turn.
//!
//! - I1. `apply` depends on the directory and the change alone. It never fails: a refusal is an outcome.
//! - I2. A shard's epoch grows with every change of its owner or of its target. So the state that one epoch
//!   hands over fits no other one.
//! - I3. The owner of a shard changes in three cases: the target has taken its state over, the owner gives it
//!   up, or the group removes the owner.
//! - I4. A request of a member is applied once. The member has one at a time, with a number.
//! - I5. The directory fits into one frame.
//! - I6. A roster's epoch grows with every change of its members. A member's number is the epoch in which it
//!   joined, so no other member of the group ever has it.
//! - I7. A member of a roster whose node is removed stays, at the node of its *heir*: another member that has
//!   agreed to act for it. An heir acts for itself, too, and leaves after those that it has inherited.
//!
//! Cost: a change of a member takes time in proportion to all names; other changes to one name.
//! Source: Wentzlaff 2012, §3.2.3 (FO-08 to FO-11) and §3.2.4 (FO-13).

use super::guard::Guard;
use super::location::Location;
use super::name::{Name, NameAlias, NameCapability};
use super::{NodeId, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The most voters of a group.
pub(crate) const VOTERS_MAX: usize = 5;
/// The most shards of a fleet.
pub(crate) const SHARDS_MAX: u32 = 4096;
/// The most bytes of a directory (I5). A frame has a MiB.
const BYTES_MAX: usize = 512 << 10;

/// A member of the group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Member {
    /// The endpoint at which it receives.
    pub(crate) endpoint: String,
    pub(crate) location: Location,
    /// Whether it moves its shards away, to be removed.
    pub(crate) leaving: bool,
    /// The number of its last request (I4), and its outcome.
    pub(crate) request: u64,
    pub(crate) outcome: Result<(), Refusal>,
}

/// A service of a node, under a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) node: NodeId,
    /// The number of the service on its node.
    pub(crate) service: u64,
    pub(crate) key: u128,
    /// Whether it moves its shards away, to be removed. In a roster: whether it was asked to leave.
    pub(crate) leaving: bool,
    /// In a roster: the epoch in which it joined. It is the number of the roster's member.
    pub(crate) since: u64,
    /// In a roster: the number of the member that acts for it once its node is removed (I7).
    pub(crate) heir: Option<u64>,
    /// Its own node was removed, and this is the node of its heir.
    pub(crate) inherited: bool,
}

impl Place {
    /// Returns whether a service of a node has registered it there.
    pub(crate) fn is_own(&self, node: NodeId, service: u64) -> bool {
        self.node == node && self.service == service && !self.inherited
    }
}

/// The agreed members of a name, in the order of their joins: the places of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct RosterState {
    /// All members have given this tag.
    pub(crate) tag: u64,
    /// Grows with each change of the members.
    pub(crate) epoch: u64,
}

/// A part of a fleet's state, with one owner at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Shard {
    /// Its owner, if the fleet has members.
    pub(crate) owner: Option<NodeId>,
    /// Grows with each change (I2).
    pub(crate) epoch: u64,
    /// The epoch in which the state began anew, since the owner had died.
    pub(crate) born: u64,
    /// The member that takes the state over.
    pub(crate) target: Option<NodeId>,
}

/// A registered name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) several: bool,
    pub(crate) stateless: bool,
    pub(crate) places: Vec<Place>,
    pub(crate) shards: Vec<Shard>,
    /// Its members leave one by one, by their own decision.
    pub(crate) roster: Option<RosterState>,
}

/// A claim of all names below a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Reservation {
    several: bool,
    /// One for each holder.
    keys: BTreeSet<u128>,
}

/// A change that the group agrees on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    /// Begins the term of a leader.
    Nothing,
    /// Adds a member.
    Join { node: NodeId, endpoint: String, location: Location },
    /// Makes a member a voter.
    Promote { node: NodeId },
    /// Removes a member that died, or has left.
    Remove { node: NodeId },
    /// A member's request (I4).
    Of { node: NodeId, number: u64, request: Request },
}

/// A member's request to change the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Adds a service under a name.
    Register {
        name: Name,
        service: u64,
        several: bool,
        stateless: bool,
        /// 0: the name has no shards.
        shards: u32,
        /// The tag of a roster, if the name is one.
        roster: Option<u64>,
        /// The key of the new capability.
        key: u128,
        parent: NameCapability,
    },
    /// A member of a roster goes: if an epoch is given, only in that epoch.
    Vacate { name: NameAlias, number: u64, if_epoch: Option<u64> },
    /// Another member of the roster acts for this one once its node is removed (I7).
    SetHeir { name: NameAlias, number: u64, heir: u64 },
    /// Removes the service with this capability. Its shards move away first.
    Unregister { capability: NameCapability },
    /// Claims all longer names: for one holder, or as one of several.
    Reserve { name: Name, several: bool, key: u128, parent: NameCapability },
    /// Ends the right of a holder. The claim ends with the last one: if `if_unused`, only while no name or
    /// claim exists below it.
    Unreserve { capability: NameCapability, if_unused: bool },
    /// The target of a shard has its state.
    Moved { name: NameAlias, shard: u32, epoch: u64 },
    /// The target of a shard cannot be reached. The owner keeps it, until the next change of the fleet.
    Keep { name: NameAlias, shard: u32, epoch: u64 },
    /// The owner of a shard leaves, and no member is left to take the state. It serves no more.
    Abandon { name: NameAlias, shard: u32, epoch: u64 },
    /// The member wants to leave.
    Leave,
}

impl Request {
    /// Returns whether it registers a service with this key.
    pub(crate) fn registers(&self, service: u128) -> bool {
        matches!(self, Request::Register { key, .. } if *key == service)
    }
}

/// The directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Directory {
    /// The key of the capability for the root.
    root: u128,
    pub(crate) members: BTreeMap<NodeId, Member>,
    pub(crate) voters: BTreeSet<NodeId>,
    /// The last epoch of all shards and rosters. A name that comes back begins with later ones.
    epoch: u64,
    names: BTreeMap<Name, Entry>,
    aliases: BTreeMap<NameAlias, Name>,
    reserved: BTreeMap<Name, Reservation>,
}

impl Directory {
    /// The directory of a group with one member.
    pub(crate) fn new(root: u128, node: NodeId, endpoint: String, location: Location) -> Directory {
        let mut directory = Directory::empty();
        directory.root = root;
        directory.join(node, endpoint, location);
        directory.voters.insert(node);
        directory
    }

    /// The directory of a node that has not joined.
    pub(crate) fn empty() -> Directory {
        Directory {
            root: 0,
            members: BTreeMap::new(),
            voters: BTreeSet::new(),
            epoch: 0,
            names: BTreeMap::new(),
            aliases: BTreeMap::new(),
            reserved: BTreeMap::new(),
        }
    }

    /// A copy without the keys of capabilities.
    pub(crate) fn for_others(&self) -> Directory {
        let mut copy = self.clone();
        copy.root = 0;
        copy.reserved.values_mut().for_each(|reservation| reservation.keys.clear());
        copy.names.values_mut().flat_map(|entry| &mut entry.places).for_each(|place| place.key = 0);
        copy
    }

    pub(crate) fn last_epoch(&self) -> u64 {
        self.epoch
    }

    /// Gives an alias to a name, as if the hashes of two names were equal.
    #[cfg(test)]
    pub(crate) fn claim_alias(&mut self, alias: NameAlias, name: Name) {
        self.aliases.insert(alias, name);
    }

    pub(crate) fn reserved(&self) -> impl Iterator<Item = &Name> {
        self.reserved.keys()
    }

    /// Returns whether frames of a node may come from this endpoint. A member may use none of another member.
    /// An endpoint that no member has is allowed: a transport may know a node by a name of its own.
    pub(crate) fn may_speak(&self, node: NodeId, endpoint: &str) -> bool {
        let Some(member) = self.members.get(&node) else { return true };
        member.endpoint == endpoint || self.members.values().all(|other| other.endpoint != endpoint)
    }

    pub(crate) fn entry(&self, alias: NameAlias) -> Option<(&Name, &Entry)> {
        let name = self.aliases.get(&alias)?;
        Some((name, self.names.get(name)?))
    }

    pub(crate) fn shard(&self, name: NameAlias, shard: u32) -> Option<&Shard> {
        self.entry(name)?.1.shards.get(shard as usize)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = (&Name, &Entry)> {
        self.names.iter()
    }

    /// Returns whether a member has services, or shards, or is about to get some.
    pub(crate) fn has_places(&self, node: NodeId) -> bool {
        self.names.values().any(|entry| entry.places.iter().any(|place| place.node == node))
    }

    /// Applies a change (I1).
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Nothing => {}
            Change::Join { node, endpoint, location } => self.join(*node, endpoint.clone(), *location),
            Change::Promote { node } => {
                if self.members.contains_key(node) {
                    self.voters.insert(*node);
                }
            }
            Change::Remove { node } => self.remove(*node),
            Change::Of { node, number, request } => {
                let last = match self.members.get(node) {
                    Some(member) => member.request,
                    None => return,
                };
                // A copy of an old request changes nothing (I4).
                if Guard::RequestNumbers.and(*number <= last) {
                    return;
                }
                let outcome = self.handle(*node, request);
                if let Some(member) = self.members.get_mut(node) {
                    member.request = *number;
                    member.outcome = outcome;
                }
            }
        }
    }

    fn join(&mut self, node: NodeId, endpoint: String, location: Location) {
        self.members.entry(node).or_insert(Member {
            endpoint,
            location,
            leaving: false,
            request: 0,
            outcome: Ok(()),
        });
    }

    fn remove(&mut self, node: NodeId) {
        self.members.remove(&node);
        self.voters.remove(&node);
        self.change_entries(|entry| entry.remove_node(node));
    }

    /// Changes all entries, deals their shards out, and forgets those without a place. `change` returns
    /// whether places have changed.
    fn change_entries(&mut self, change: impl Fn(&mut Entry) -> bool) {
        for entry in self.names.values_mut() {
            if change(entry) {
                entry.renew_roster(&mut self.epoch);
            }
            entry.balance(&mut self.epoch);
        }
        self.forget_empty();
    }

    fn forget_empty(&mut self) {
        self.names.retain(|_, entry| !entry.places.is_empty());
        let names = &self.names;
        self.aliases.retain(|_, name| names.contains_key(name));
    }

    fn handle(&mut self, node: NodeId, request: &Request) -> Result<(), Refusal> {
        match request {
            Request::Register { .. } => self.register(node, request),
            Request::Unregister { capability } => self.unregister(capability),
            Request::Reserve { name, several, key, parent } => self.reserve(name, *several, *key, parent),
            Request::Unreserve { capability, if_unused } => self.unreserve(capability, *if_unused),
            Request::Moved { name, shard, epoch } => self.change_shard(*name, *shard, |shard, next| {
                let fits = Guard::EpochOfMove.or(shard.epoch == *epoch) && shard.target == Some(node);
                // Another epoch, and an owner that has the state (I2, I3).
                fits.then_some(Shard { owner: Some(node), epoch: next, target: None, ..shard })
            }),
            Request::Abandon { name, shard, epoch } => self.change_shard(*name, *shard, |shard, next| {
                let fits = shard.epoch == *epoch && shard.owner == Some(node) && shard.target.is_none();
                fits.then_some(Shard { owner: None, epoch: next, born: next, target: None })
            }),
            Request::Keep { name, shard, epoch } => {
                let name = self.aliases.get(name).ok_or(Refusal::NoSuchName)?;
                let entry = self.names.get_mut(name).ok_or(Refusal::NoSuchName)?;
                let shard = entry.shards.get_mut(*shard as usize).ok_or(Refusal::NoSuchName)?;
                if shard.epoch != *epoch || shard.owner != Some(node) {
                    return Err(Refusal::Forbidden);
                }
                shard.target = None;
                // Another epoch: the pieces that the target has fit no later move (I2).
                self.epoch = self.epoch.saturating_add(1);
                shard.epoch = self.epoch;
                // A leaver cannot keep it: the next move begins at once.
                if entry.place_of(node).is_some_and(|place| place.leaving) {
                    entry.balance(&mut self.epoch);
                }
                Ok(())
            }
            Request::Vacate { name, number, if_epoch } => self.vacate(node, *name, *number, *if_epoch),
            Request::SetHeir { name, number, heir } => self.set_heir(node, *name, *number, *heir),
            Request::Leave => {
                self.leave(node);
                Ok(())
            }
        }
    }

    /// Adds a holder of a claim. The first one makes it.
    fn reserve(
        &mut self,
        name: &Name,
        several: bool,
        key: u128,
        parent: &NameCapability,
    ) -> Result<(), Refusal> {
        self.check(name, parent)?;
        if let Some(reservation) = self.reserved.get(name) {
            if reservation.several != several {
                return Err(Refusal::NameClash);
            }
            // A node that begins again may ask again.
            if reservation.keys.contains(&key) {
                return Ok(());
            }
            if !several {
                return Err(Refusal::NameClash);
            }
        }
        self.check_room(32 + name.as_str().len() + KEY_BYTES)?;
        let fresh = || Reservation { several, keys: BTreeSet::new() };
        self.reserved.entry(name.clone()).or_insert_with(fresh).keys.insert(key);
        Ok(())
    }

    fn register(&mut self, node: NodeId, request: &Request) -> Result<(), Refusal> {
        let Request::Register { name, service, several, stateless, shards, roster, key, parent } = request
        else {
            return Ok(());
        };
        self.check(name, parent)?;
        if *shards > SHARDS_MAX || (*shards > 0 && !*several) {
            return Err(Refusal::TooManyShards);
        }
        if roster.is_some() && (*shards > 0 || !*several) {
            return Err(Refusal::NameClash);
        }
        if self.aliases.get(&name.alias()).is_some_and(|other| other != name) {
            return Err(Refusal::NameClash);
        }
        let count = *shards as usize;
        if let Some(entry) = self.names.get(name) {
            let (several, stateless) = (*several, *stateless);
            let tag = entry.roster.map(|roster| roster.tag);
            let equal = (entry.several, entry.stateless, entry.shards.len(), tag)
                == (several, stateless, count, *roster);
            let sharded_twice = count > 0 && entry.place_of(node).is_some();
            if !equal || !several || sharded_twice {
                return Err(Refusal::NameClash);
            }
        }
        // A place, and an entry with its shards. The name is stored twice.
        let entry = 128 + 2 * name.as_str().len() + count * SHARD_BYTES;
        self.check_room(PLACE_BYTES + if self.names.contains_key(name) { 0 } else { entry })?;
        let fresh = || Entry {
            several: *several,
            stateless: *stateless,
            places: Vec::new(),
            shards: vec![Shard { owner: None, epoch: 0, born: 0, target: None }; count],
            roster: roster.map(|tag| RosterState { tag, epoch: 0 }),
        };
        self.aliases.insert(name.alias(), name.clone());
        let entry = self.names.entry(name.clone()).or_insert_with(fresh);
        let leaving = self.members.get(&node).is_some_and(|member| member.leaving);
        let (node, service, key) = (node, *service, *key);
        entry.places.push(Place { node, service, key, leaving, since: 0, heir: None, inherited: false });
        if let Some(epoch) = entry.renew_roster(&mut self.epoch)
            && let Some(place) = entry.places.last_mut()
        {
            place.since = epoch;
        }
        entry.balance(&mut self.epoch);
        self.forget_empty();
        Ok(())
    }

    fn unregister(&mut self, capability: &NameCapability) -> Result<(), Refusal> {
        let entry = self.names.get_mut(&capability.name).ok_or(Refusal::NoSuchName)?;
        let is_it = |place: &Place| place.key == capability.key && !place.inherited;
        let place = entry.places.iter().position(is_it).ok_or(Refusal::Forbidden)?;
        if entry.leave_at_once() {
            entry.places.remove(place);
        } else {
            entry.places[place].leaving = true;
        }
        entry.balance(&mut self.epoch);
        self.forget_empty();
        Ok(())
    }

    /// Removes a member of a roster, as it has asked for.
    fn vacate(
        &mut self,
        node: NodeId,
        name: NameAlias,
        number: u64,
        if_epoch: Option<u64>,
    ) -> Result<(), Refusal> {
        let name = self.aliases.get(&name).ok_or(Refusal::NoSuchName)?;
        let entry = self.names.get_mut(name).ok_or(Refusal::NoSuchName)?;
        let roster = entry.roster.ok_or(Refusal::NoSuchName)?;
        let is_it = |place: &Place| place.since == number && place.node == node;
        let place = entry.places.iter().position(is_it).ok_or(Refusal::NoSuchName)?;
        if if_epoch.is_some_and(|epoch| epoch != roster.epoch) {
            return Err(Refusal::RosterChanged);
        }
        let Place { service, inherited, .. } = entry.places[place];
        let has_inherited = |place: &Place| place.inherited && (place.node, place.service) == (node, service);
        if !inherited && entry.places.iter().any(has_inherited) {
            return Err(Refusal::RosterChanged);
        }
        entry.places.remove(place);
        entry.renew_roster(&mut self.epoch);
        self.forget_empty();
        Ok(())
    }

    fn set_heir(&mut self, node: NodeId, name: NameAlias, number: u64, heir: u64) -> Result<(), Refusal> {
        let name = self.aliases.get(&name).ok_or(Refusal::NoSuchName)?;
        let entry = self.names.get_mut(name).filter(|entry| entry.roster.is_some());
        let entry = entry.ok_or(Refusal::NoSuchName)?;
        let can = |place: &Place| place.since == heir && place.node != node && !place.inherited;
        if !entry.places.iter().any(can) {
            return Err(Refusal::RosterChanged);
        }
        let is_it = |place: &&mut Place| place.since == number && place.node == node;
        entry.places.iter_mut().find(is_it).ok_or(Refusal::NoSuchName)?.heir = Some(heir);
        Ok(())
    }

    /// Replaces a shard, if `change` returns another one for it and the next epoch.
    fn change_shard(
        &mut self,
        name: NameAlias,
        shard: u32,
        change: impl FnOnce(Shard, u64) -> Option<Shard>,
    ) -> Result<(), Refusal> {
        let name = self.aliases.get(&name).ok_or(Refusal::NoSuchName)?;
        let entry = self.names.get_mut(name).ok_or(Refusal::NoSuchName)?;
        let shard = entry.shards.get_mut(shard as usize).ok_or(Refusal::NoSuchName)?;
        *shard = change(*shard, self.epoch.saturating_add(1)).ok_or(Refusal::Forbidden)?;
        self.epoch = self.epoch.saturating_add(1);
        entry.balance(&mut self.epoch);
        self.forget_empty();
        Ok(())
    }

    fn unreserve(&mut self, capability: &NameCapability, if_unused: bool) -> Result<(), Refusal> {
        let name = &capability.name;
        let is_used = self.names.keys().chain(self.reserved.keys()).any(|used| used.is_below(name));
        let reservation = self.reserved.get_mut(name).ok_or(Refusal::NoSuchName)?;
        if !reservation.keys.contains(&capability.key) {
            return Err(Refusal::Forbidden);
        }
        if if_unused && is_used && reservation.keys.len() == 1 {
            return Err(Refusal::InUse);
        }
        reservation.keys.remove(&capability.key);
        if reservation.keys.is_empty() {
            self.reserved.remove(name);
        }
        Ok(())
    }

    fn leave(&mut self, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node) {
            member.leaving = true;
        }
        self.change_entries(|entry| {
            if entry.leave_at_once() {
                return entry.remove_node(node);
            }
            for place in &mut entry.places {
                place.leaving |= place.node == node;
            }
            false
        });
    }

    /// Checks that `parent` is valid, and lets its holder use `name`.
    fn check(&self, name: &Name, parent: &NameCapability) -> Result<(), Refusal> {
        parent.covers(name)?;
        let key = parent.key;
        let valid = (parent.name == Name::root() && key == self.root)
            || self.reserved.get(&parent.name).is_some_and(|reservation| reservation.keys.contains(&key))
            || self
                .names
                .get(&parent.name)
                .is_some_and(|entry| entry.places.iter().any(|place| place.key == key && !place.inherited));
        // A reservation claims all longer names. Only its holder, and those below it, may use them.
        let claimed = self.reserved.keys().any(|claim| name.is_below(claim) && claim.is_below(&parent.name));
        if valid && !claimed { Ok(()) } else { Err(Refusal::Forbidden) }
    }

    /// Checks that the directory still fits into a frame with so many bytes more (I5).
    fn check_room(&self, added: usize) -> Result<(), Refusal> {
        let members: usize = self.members.values().map(|member| 80 + member.endpoint.len()).sum();
        let names: usize = (self.names.iter())
            .map(|(name, entry)| {
                let (places, shards) = (entry.places.len() * PLACE_BYTES, entry.shards.len() * SHARD_BYTES);
                128 + 2 * name.as_str().len() + places + shards
            })
            .sum();
        let claim = |(name, reservation): (&Name, &Reservation)| {
            32 + name.as_str().len() + reservation.keys.len() * KEY_BYTES
        };
        let reserved: usize = self.reserved.iter().map(claim).sum();
        if members + names + reserved + added > BYTES_MAX { Err(Refusal::DirectoryFull) } else { Ok(()) }
    }
}

/// A place, as it is encoded.
const PLACE_BYTES: usize = 76;
/// A key, as it is encoded.
const KEY_BYTES: usize = 19;
/// Two nodes and two epochs at most, as they are encoded.
const SHARD_BYTES: usize = 44;

impl Entry {
    /// Returns whether a place that leaves has nothing to hand over first.
    fn leave_at_once(&self) -> bool {
        self.shards.is_empty() && self.roster.is_none()
    }

    /// Removes the places of a node, or gives them to their heirs. Returns whether it had some.
    fn remove_node(&mut self, node: NodeId) -> bool {
        let before = self.places.clone();
        self.places.retain_mut(|place| {
            if place.node == node {
                let heir = before.iter().find(|other| Some(other.since) == place.heir && other.node != node);
                let Some(heir) = heir else { return false };
                (place.node, place.service, place.leaving) = (heir.node, heir.service, heir.leaving);
                (place.heir, place.inherited) = (None, true);
            }
            true
        });
        self.places != before
    }

    /// Gives a roster the next epoch, and returns it.
    fn renew_roster(&mut self, last_epoch: &mut u64) -> Option<u64> {
        let heirs: BTreeSet<u64> =
            self.places.iter().filter(|place| !place.inherited).map(|place| place.since).collect();
        for place in &mut self.places {
            place.heir = place.heir.filter(|heir| heirs.contains(heir));
        }
        let roster = self.roster.as_mut()?;
        *last_epoch = last_epoch.saturating_add(1);
        roster.epoch = *last_epoch;
        Some(roster.epoch)
    }

    /// Returns whether a place is on its way out, and no other one stays.
    pub(crate) fn is_last(&self, node: NodeId) -> bool {
        self.place_of(node).is_some() && self.places.iter().all(|place| place.leaving)
    }

    pub(crate) fn place_of(&self, node: NodeId) -> Option<&Place> {
        self.places.iter().find(|place| place.node == node)
    }

    /// Deals the shards out: those without an owner at once, others by a move. Moves as few as possible.
    fn balance(&mut self, last_epoch: &mut u64) {
        if self.shards.is_empty() {
            return;
        }
        let mut next_epoch = || {
            *last_epoch = last_epoch.saturating_add(1);
            *last_epoch
        };
        let stays = |entry: &Entry, node| entry.place_of(node).is_some_and(|place| !place.leaving);
        // Shards that each member has, or will have.
        let mut load: BTreeMap<NodeId, usize> =
            self.places.iter().filter(|place| !place.leaving).map(|place| (place.node, 0)).collect();
        for index in 0..self.shards.len() {
            let mut shard = self.shards[index];
            if shard.target.is_some_and(|target| !stays(self, target)) {
                shard = Shard { target: None, epoch: next_epoch(), ..shard };
            }
            if shard.owner.is_some_and(|owner| self.place_of(owner).is_none()) {
                let epoch = next_epoch();
                shard = Shard { owner: None, epoch, born: epoch, target: None };
            }
            if let Some(at) = shard.target.or(shard.owner)
                && let Some(load) = load.get_mut(&at)
            {
                *load += 1;
            }
            self.shards[index] = shard;
        }
        let least = |load: &BTreeMap<NodeId, usize>| {
            load.iter().min_by_key(|(_, shards)| **shards).map(|(node, shards)| (*node, *shards))
        };
        for index in 0..self.shards.len() {
            let shard = self.shards[index];
            let Some((node, _)) = least(&load) else { break };
            let moved = match shard.owner {
                None => {
                    let epoch = next_epoch();
                    Shard { owner: Some(node), epoch, born: epoch, target: None }
                }
                Some(owner) if shard.target.is_none() && !stays(self, owner) => {
                    Shard { target: Some(node), epoch: next_epoch(), ..shard }
                }
                Some(_) => continue,
            };
            *load.entry(node).or_default() += 1;
            self.shards[index] = moved;
        }
        while let Some((low, fewest)) = least(&load) {
            let most = load.iter().max_by_key(|(_, shards)| **shards).map(|(node, shards)| (*node, *shards));
            let Some((high, most)) = most else { break };
            if most <= fewest + 1 {
                break;
            }
            let movable = |shard: &&mut Shard| shard.owner == Some(high) && shard.target.is_none();
            let Some(shard) = self.shards.iter_mut().find(movable) else { break };
            *shard = Shard { target: Some(low), epoch: next_epoch(), ..*shard };
            *load.entry(low).or_default() += 1;
            *load.entry(high).or_default() -= 1;
        }
        let shards = &self.shards;
        self.places.retain(|place| {
            let has = |shard: &Shard| shard.owner == Some(place.node) || shard.target == Some(place.node);
            !place.leaving || shards.iter().any(has)
        });
    }
}
