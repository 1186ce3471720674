//! The rosters of a node: agreed members of a name, which send frames to each other.
//!
//! - R1. A member is told the rosters in the order of their epochs. It may miss some.
//! - R2. A frame reaches a member only if this node's directory has its sender in the same roster.
//!
//! Cost: a change of the directory looks at the entries of this node's rosters.

use super::output::{News, Roster};
use super::{Core, Output};
use crate::protocol::directory::{Place, Request};
use crate::protocol::frame::Body;
use crate::protocol::name::NameAlias;
use crate::protocol::{LARGEST_BODY, NodeId, Time};

/// A service of this node that is, or will be, a member of a roster.
#[derive(Debug)]
pub(super) struct LocalMember {
    name: NameAlias,
    /// The last roster that it was told, while it is a member.
    told: Option<Roster>,
    /// Its last number.
    number: u64,
    /// The program has given it up. It leaves as soon as it is a member.
    given_up: bool,
}

impl LocalMember {
    pub(super) fn new(name: NameAlias) -> LocalMember {
        LocalMember { name, told: None, number: 0, given_up: false }
    }
}

impl Core {
    /// The roster of a service, by the directory.
    fn roster_of(&self, service: u64, name: NameAlias) -> Option<Roster> {
        let (_, entry) = self.group.directory.entry(name)?;
        let state = entry.roster?;
        let place = entry.places.iter().find(|place| place.is_own(self.group.me, service))?;
        let members = entry.places.iter().map(|place| (place.since, place.node)).collect();
        let inherited = entry.places.iter().filter(|place| place.inherited);
        let with_heir = |place: &Place| {
            let heir = entry.places.iter().find(|heir| heir.is_own(place.node, place.service))?;
            Some((place.since, heir.since))
        };
        let Place { since: me, leaving, heir, .. } = *place;
        let inherited = inherited.filter_map(with_heir).collect();
        Some(Roster { epoch: state.epoch, me, leaving, members, inherited, heir })
    }

    /// Tells the members of this node the changes (R1).
    pub(super) fn settle_rosters(&mut self) {
        let mut changed = Vec::new();
        for (service, member) in &self.rosters {
            let now = self.roster_of(*service, member.name);
            if now != member.told {
                changed.push((*service, now));
            }
        }
        for (service, roster) in changed {
            let Some(member) = self.rosters.get_mut(&service) else { continue };
            let number = roster.as_ref().map_or(member.number, |roster| roster.me);
            member.number = number;
            member.told.clone_from(&roster);
            if !member.given_up {
                // The group has this node. So the member was removed by its own request.
                let news = roster.map_or(News::Vacated, News::Changed);
                self.outputs.push_back(Output::Roster { service, news });
            } else if let Some(roster) = roster {
                // After those that it has inherited: the directory refuses it before.
                let inherited = roster.inherited.iter().filter(|(_, heir)| *heir == number);
                for number in inherited.map(|(dead, _)| *dead).chain([number]) {
                    let vacate = Request::Vacate { name: member.name, number, if_epoch: None };
                    self.requests.push_back((None, vacate));
                }
            }
        }
    }

    /// Tells all members of this node that their numbers have ended.
    pub(super) fn end_rosters(&mut self) {
        for (service, member) in &mut self.rosters {
            if member.told.take().is_some() && !member.given_up {
                self.outputs.push_back(Output::Roster { service: *service, news: News::Removed });
            }
        }
    }

    /// Sends a frame to another member. Returns false if it is too large. A frame to a member that is not
    /// known is lost, like others.
    pub(crate) fn send_peer(&mut self, now: Time, service: u64, from: u64, to: u64, bytes: Vec<u8>) -> bool {
        if bytes.len() > LARGEST_BODY {
            return false;
        }
        let Some(member) = self.rosters.get(&service) else { return true };
        let (name, Some(roster)) = (member.name, &member.told) else { return true };
        if roster.acts_as(from)
            && let Some(node) = roster.members.iter().find(|(number, _)| *number == to).map(|(_, node)| *node)
        {
            self.send(node, Body::Peer { name, from, to, bytes });
            self.finish(now);
        }
        true
    }

    pub(super) fn receive_peer(&mut self, node: NodeId, name: NameAlias, from: u64, to: u64, bytes: Vec<u8>) {
        let Some((_, entry)) = self.group.directory.entry(name) else { return };
        let is_member =
            |number: u64, node: NodeId| move |place: &&Place| (place.since, place.node) == (number, node);
        let sender = entry.places.iter().find(is_member(from, node));
        let receiver = entry.places.iter().find(is_member(to, self.group.me));
        if let (true, Some(_), Some(place)) = (entry.roster.is_some(), sender, receiver)
            && self.rosters.contains_key(&place.service)
        {
            self.outputs.push_back(Output::Peer { service: place.service, from, bytes });
        }
    }

    /// Removes a member of this node from its roster, by its own decision: if an epoch is given, only while
    /// it is the roster's.
    pub(crate) fn vacate(&mut self, now: Time, service: u64, number: u64, if_epoch: Option<u64>) {
        if let Some(member) = self.rosters.get(&service) {
            self.requests.push_back((None, Request::Vacate { name: member.name, number, if_epoch }));
            self.finish(now);
        }
    }

    /// Lets another member act for one of this node, once the group removes this node.
    pub(crate) fn set_heir(&mut self, now: Time, service: u64, number: u64, heir: u64) {
        if let Some(member) = self.rosters.get(&service) {
            self.requests.push_back((None, Request::SetHeir { name: member.name, number, heir }));
            self.finish(now);
        }
    }

    /// Forgets a member that has left its roster, and registers it no more.
    pub(super) fn vacated(&mut self, name: NameAlias, number: u64) {
        let is_it = |member: &LocalMember| member.name == name && member.number == number;
        let found = self.rosters.iter().find(|(_, member)| is_it(member));
        if let Some(service) = found.map(|(service, _)| *service) {
            self.registrations.retain(|kept| kept.service != service);
            self.ending.retain(|(_, ending)| *ending != service);
            self.rosters.remove(&service);
            self.outputs.push_back(Output::Forget { service });
        }
    }

    /// Notes that the program has given a member up: it is not told of it, and leaves once it is in a roster.
    pub(super) fn give_up_member(&mut self, service: u64) {
        let Some(member) = self.rosters.get_mut(&service) else { return };
        member.given_up = true;
        if let Some(told) = &member.told {
            self.requests
                .push_back((None, Request::Vacate { name: member.name, number: told.me, if_epoch: None }));
        }
    }

    /// Returns until when a member may act for its roster.
    pub(crate) fn member_serves_until(&self, now: Time, service: u64, number: u64) -> Time {
        let told = self.rosters.get(&service).and_then(|member| member.told.as_ref());
        let is_told = told.is_some_and(|told| told.acts_as(number));
        if is_told { now + self.group.lease_left(now) } else { 0 }
    }

    /// Returns whether a service is in a roster now.
    pub(super) fn is_in_roster(&self, service: u64) -> bool {
        self.rosters.get(&service).is_some_and(|member| member.told.is_some())
    }
}
