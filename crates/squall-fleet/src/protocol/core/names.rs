//! Names and endpoints of other nodes, as a node knows them.

use super::{ANY, CACHED_MAX, Core};
use crate::protocol::answer::{Key, Lookup, Part};
use crate::protocol::directory::Entry;
use crate::protocol::frame::Body;
use crate::protocol::group::Group;
use crate::protocol::location::Location;
use crate::protocol::name::NameAlias;
use crate::protocol::{AGAIN, NodeId, Time};
use std::collections::BTreeMap;

/// Known nodes and entries.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) endpoints: BTreeMap<NodeId, (String, Option<Location>)>,
    /// Nodes that were heard, and the endpoints of their frames.
    pub(super) heard: BTreeMap<NodeId, String>,
    pub(super) entries: BTreeMap<NameAlias, (Entry, bool)>,
    /// Names to ask for, and when they were asked for.
    pub(super) asked: BTreeMap<NameAlias, Time>,
}

impl Known {
    /// Notes a frame of a node.
    pub(super) fn hear(&mut self, node: NodeId, from: &str) {
        if self.heard.get(&node).is_some_and(|known| known == from) {
            return;
        }
        if self.heard.len() >= CACHED_MAX {
            self.heard.pop_first();
        }
        self.heard.insert(node, from.to_owned());
    }
}

/// Where a node looks names up: in the directory, or at a member.
pub(super) struct Names<'a> {
    pub(super) group: &'a Group,
    pub(super) location: Location,
    pub(super) known: &'a mut Known,
}

impl Lookup for Names<'_> {
    fn want(&mut self, name: NameAlias) {
        let doubted = |(_, doubted): &(Entry, bool)| *doubted;
        if !self.group.is_member() && self.known.entries.get(&name).is_none_or(doubted) {
            self.known.asked.entry(name).or_insert(0);
        }
    }

    fn entry(&self, name: NameAlias) -> Option<&Entry> {
        if self.group.is_member() {
            return self.group.directory.entry(name).map(|(_, entry)| entry);
        }
        self.known.entries.get(&name).map(|(entry, _)| entry)
    }

    fn doubt(&mut self, name: NameAlias) {
        if let Some((_, doubted)) = self.known.entries.get_mut(&name) {
            *doubted = true;
        }
    }

    fn distance(&self, node: NodeId) -> u8 {
        if node == self.group.me {
            return 0;
        }
        let member = self.group.directory.members.get(&node).map(|member| member.location);
        let location = member.or_else(|| self.known.endpoints.get(&node).and_then(|(_, known)| *known));
        location.map_or(Location::FARTHEST, |location| self.location.distance(location))
    }
}

impl Core {
    /// Answers a node that asks for a name.
    pub(super) fn resolve(&mut self, from: NodeId, name: NameAlias) {
        if !self.group.is_member() {
            return;
        }
        let entry = self.group.directory.entry(name).map(|(_, entry)| entry.clone());
        let of_shards = entry.iter().flat_map(|entry| entry.shards.iter().filter_map(|shard| shard.owner));
        let of_places = entry.iter().flat_map(|entry| entry.places.iter().map(|place| place.node));
        let members = &self.group.directory.members;
        let mut nodes: Vec<NodeId> = of_places.chain(of_shards).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let address = |node: NodeId| members.get(&node).map(|m| (node, m.endpoint.clone(), m.location));
        let nodes = nodes.into_iter().filter_map(address).collect();
        self.send(from, Body::Resolved { name, entry, nodes });
    }

    /// Takes the answer to a question for a name.
    pub(super) fn resolved(
        &mut self,
        now: Time,
        name: NameAlias,
        entry: Option<Entry>,
        nodes: Vec<(NodeId, String, Location)>,
    ) {
        for (node, endpoint, location) in nodes {
            self.remember_member(node, &endpoint, location);
        }
        self.known.asked.insert(name, now);
        if entry.is_some() {
            self.known.asked.remove(&name);
        }
        if self.known.entries.len() >= CACHED_MAX {
            self.known.entries.pop_first();
        }
        match entry {
            Some(entry) => drop(self.known.entries.insert(name, (entry, false))),
            None => drop(self.known.entries.remove(&name)),
        }
        self.client.hurry(now);
    }

    /// Returns the service that this node runs under a name now, if there is one alone.
    pub(crate) fn service_here(&self, now: Time, name: NameAlias) -> Option<u64> {
        let (_, entry) = self.group.directory.entry(name)?;
        let mut here = entry.places.iter().filter(|place| place.node == self.group.me);
        let service = here.next()?.service;
        let key = Key { name, part: Part::Service(service) };
        (here.next().is_none() && self.serves(now, key)).then_some(service)
    }

    /// The endpoints of seeds, and of members that other members have named.
    pub(super) fn contacts(&self) -> Vec<String> {
        let known = self.known.endpoints.values().filter(|(_, location)| location.is_some());
        self.seeds.iter().cloned().chain(known.map(|(endpoint, _)| endpoint.clone())).collect()
    }

    /// Asks for the names that calls wait for.
    pub(super) fn ask_for_names(&mut self, now: Time) {
        if self.known.asked.is_empty() || self.group.is_member() {
            return self.known.asked.clear();
        }
        let client = &self.client;
        self.known.asked.retain(|name, _| client.calls_name(*name));
        let due: Vec<NameAlias> =
            self.known.asked.iter().filter(|(_, at)| now >= **at + AGAIN).map(|(name, _)| *name).collect();
        for name in due {
            self.known.asked.insert(name, now);
            let contacts = self.contacts();
            if !contacts.is_empty() {
                let at = usize::try_from(self.random.below(contacts.len() as u64)).unwrap_or(0);
                self.send_to(contacts[at].clone(), ANY, Body::Resolve { name });
            }
        }
    }
}
