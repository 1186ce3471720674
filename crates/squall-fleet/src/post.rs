//! The shared part of a mailbox: its lanes, its capabilities and its bell.
//!
//! - I1. A lane belongs to one capability and one cluster. Its number is free again when the receiver has
//!   found it over: closed, and empty.
//! - I2. Each capability can have a lane: a number is kept for one that has no lane yet.
//! - I3. A capability that is removed gets no further lane. Its lanes are closed before the removal returns.
//! - I4. The end of a lane ends the grant that the lane belongs to, and no later grant of the same
//!   capability.

use crate::bell::{Bell, LANES_MAX};
use crate::lane::{Cursor, Lane};
use crate::{Alias, Capability, sites};
use squall_sys::sync::handed::Handed;
use squall_sys::sync::{Arc, Mutex, MutexGuard, lock};
use std::collections::HashMap;

/// In place of a cluster: any lane of the capability, the first one if there are several.
pub(crate) const ANY_CLUSTER: usize = usize::MAX;

/// The lanes of senders of this process.
pub(crate) type OwnLane = Lane<Box<[Handed]>>;

pub(crate) struct Post {
    pub(crate) alias: Alias,
    pub(crate) bell: Bell,
    /// Words of a lane.
    words: usize,
    #[cfg(not(loom))]
    pub(crate) lane_per: squall_machine::ClusterSize,
    #[cfg(not(loom))]
    pub(crate) served_on: crate::blocking::ServedOn,
    table: Mutex<Table>,
}

struct Table {
    /// By number.
    lanes: Vec<Option<Entry>>,
    /// Numbers without a lane.
    unused: Vec<usize>,
    capabilities: HashMap<Capability, Granted>,
    /// The number of capabilities without a lane.
    laneless: usize,
    ended: bool,
}

/// A lane, and the cursor that waits for its receiver.
struct Entry {
    lane: Arc<OwnLane>,
    cursor: Option<Cursor>,
    capability: Capability,
    label: u64,
    once: bool,
}

impl Table {
    /// Returns whether fewer than `limit` numbers are in use, or kept for a capability (I2).
    fn has_number_below(&self, limit: usize) -> bool {
        self.lanes.len() - self.unused.len() + self.laneless < limit
    }
}

struct Granted {
    label: u64,
    once: bool,
    /// By cluster.
    lanes: Vec<(usize, Route)>,
}

/// The way of a sender into a mailbox.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) lane: Arc<OwnLane>,
    /// The number of the lane, for the bell.
    pub(crate) number: usize,
    /// The capability is for one message.
    pub(crate) once: bool,
}

/// Why there is no way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoute {
    Permissions,
    Ended,
}

/// A lane as the receiver takes it over.
pub(crate) struct Arrived {
    pub(crate) lane: Arc<OwnLane>,
    pub(crate) cursor: Cursor,
    pub(crate) label: u64,
    /// The capability is for one message.
    pub(crate) once: bool,
}

impl Entry {
    fn arrive(&mut self) -> Option<Arrived> {
        let (lane, label, once) = (self.lane.clone(), self.label, self.once);
        self.cursor.take().map(|cursor| Arrived { lane, cursor, label, once })
    }
}

impl Post {
    pub(crate) fn new(
        alias: Alias,
        words: usize,
        #[cfg(not(loom))] lane_per: squall_machine::ClusterSize,
    ) -> Post {
        let (lanes, unused, capabilities) = (Vec::new(), Vec::new(), HashMap::new());
        let table = Table { lanes, unused, capabilities, laneless: 0, ended: false };
        let (bell, table) = (Bell::new(), Mutex::new(table));
        Post {
            alias,
            bell,
            words,
            #[cfg(not(loom))]
            lane_per,
            #[cfg(not(loom))]
            served_on: crate::blocking::ServedOn::new(),
            table,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table, "the lanes of a mailbox")
    }

    /// Returns the size of the largest message in bytes.
    #[cfg(not(loom))]
    pub(crate) fn largest(&self) -> usize {
        crate::lane::largest(self.words)
    }

    /// Returns whether senders may use this capability.
    #[cfg(not(loom))]
    pub(crate) fn has(&self, capability: Capability) -> bool {
        self.table().capabilities.contains_key(&capability)
    }

    /// Adds a capability. Returns false if there are too many, or the mailbox has it.
    pub(crate) fn grant(&self, capability: Capability, label: u64, once: bool) -> bool {
        let mut table = self.table();
        let known = table.capabilities.contains_key(&capability);
        if table.ended || known || !table.has_number_below(LANES_MAX) {
            return false;
        }
        table.laneless += 1;
        table.capabilities.insert(capability, Granted { label, once, lanes: Vec::new() });
        true
    }

    /// Removes a capability, and closes its lanes. Returns false if the mailbox does not have it.
    pub(crate) fn revoke(&self, capability: Capability) -> bool {
        let mut table = self.table();
        let Some(granted) = table.capabilities.remove(&capability) else { return false };
        table.laneless -= usize::from(granted.lanes.is_empty());
        drop(table);
        for (_, route) in granted.lanes {
            route.lane.close();
            // The receiver finds the lane over.
            self.bell.ring(route.number);
        }
        true
    }

    /// Returns the way of a sender of this cluster, and makes its lane at first use. With [`ANY_CLUSTER`],
    /// all ways of a capability are one lane, so their messages have one order.
    pub(crate) fn route(&self, capability: Capability, cluster: usize) -> Result<Route, NoRoute> {
        let mut guard = self.table();
        let table = &mut *guard;
        if table.ended {
            return Err(NoRoute::Ended);
        }
        // One half is for the first lanes of capabilities alone.
        let may_share = !table.has_number_below(LANES_MAX / 2);
        let granted = table.capabilities.get_mut(&capability).ok_or(NoRoute::Permissions)?;
        // A second lane of a capability for one message would take a second message.
        let found =
            granted.lanes.iter().find(|(of, _)| [*of, ANY_CLUSTER].contains(&cluster) || granted.once);
        // Without a number left, the senders of this cluster use the lane of another one.
        let found = found.or_else(|| granted.lanes.first().filter(|_| may_share));
        if let Some((_, route)) = found {
            return Ok(route.clone());
        }
        table.laneless -= usize::from(granted.lanes.is_empty());
        let (lane, cursor) = Lane::new((0..self.words).map(|_| Handed::new(0)).collect());
        let lane = Arc::new(lane);
        let entry = Entry {
            lane: lane.clone(),
            cursor: Some(cursor),
            capability,
            label: granted.label,
            once: granted.once,
        };
        let number = match table.unused.pop() {
            Some(number) => number,
            None => {
                table.lanes.push(None);
                table.lanes.len() - 1
            }
        };
        table.lanes[number] = Some(entry);
        let route = Route { lane, number, once: granted.once };
        granted.lanes.push((cluster, route.clone()));
        Ok(route)
    }

    /// Returns a lane that rang for the first time, for the receiver.
    pub(crate) fn take_over(&self, number: usize) -> Option<Arrived> {
        let mut table = self.table();
        table.lanes.get_mut(number)?.as_mut()?.arrive()
    }

    /// Forgets a lane that is over (I1).
    pub(crate) fn retire(&self, number: usize) {
        let mut table = self.table();
        let Some(entry) = table.lanes[number].take() else { return };
        table.unused.push(number);
        // A capability for one message is used up. Others were removed before, and perhaps granted again.
        let owns = |granted: &Granted| {
            sites::OWN_GRANT.is_weak()
                || granted.lanes.iter().any(|(_, way)| Arc::ptr_eq(&way.lane, &entry.lane))
        };
        let granted = match table.capabilities.get(&entry.capability) {
            Some(granted) if owns(granted) => table.capabilities.remove(&entry.capability),
            _ => None,
        };
        drop(table);
        drop((entry, granted));
    }

    /// Ends the mailbox: closes all lanes. Returns those that the receiver has not taken over.
    pub(crate) fn end(&self) -> Vec<Arrived> {
        let mut table = self.table();
        table.ended = true;
        table.laneless = 0;
        let capabilities = std::mem::take(&mut table.capabilities);
        let lanes = std::mem::take(&mut table.lanes);
        drop(table);
        drop(capabilities);
        let mut new = Vec::new();
        for mut entry in lanes.into_iter().flatten() {
            entry.lane.close();
            new.extend(entry.arrive());
        }
        new
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.table().ended
    }

    /// Returns the numbers of capabilities and of lanes.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let table = self.table();
        (table.capabilities.len(), table.lanes.iter().flatten().count())
    }
}
