//! Partitions under construction: groups of VPs that belong together, learnt pair by pair and in any order.
//!
//! - I1. Every id points to itself or to a lower id, so following the pointers ends, at the lowest id of the
//!   group.

use super::VpSet;

/// A union-find over the ids `0..limit`.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    lower: Vec<u32>,
}

impl Groups {
    /// Creates one group per id.
    pub(super) fn singletons(limit: usize) -> Groups {
        Groups { lower: (0..limit as u32).collect() }
    }

    /// Returns the lowest id in the group of `id`.
    pub(super) fn label(&self, mut id: u32) -> u32 {
        while self.lower[id as usize] != id {
            id = self.lower[id as usize];
        }
        id
    }

    /// Merges the groups of `a` and `b`.
    pub(super) fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.label(a), self.label(b));
        self.lower[a.max(b) as usize] = a.min(b);
    }

    /// Merges the groups of all `members`.
    pub(super) fn join_all(&mut self, members: &VpSet) {
        let mut ids = members.iter().map(|vp| vp.index() as u32);
        if let Some(first) = ids.next() {
            ids.for_each(|id| self.join(first, id));
        }
    }

    /// Returns the label of every id.
    pub(super) fn labels(&self) -> Vec<u32> {
        (0..self.lower.len() as u32).map(|id| self.label(id)).collect()
    }
}

/// Cuts each `fine` group at the borders of the `coarse` groups. Returns the label of every id in the
/// resulting partition, and whether a group of `possible` ids was cut.
pub(super) fn cut(possible: &VpSet, fine: &[u32], coarse: &[u32]) -> (Vec<u32>, bool) {
    let mut lowest = std::collections::BTreeMap::new();
    let mut labels = fine.to_vec();
    let mut was_cut = false;
    for id in possible.iter().map(|vp| vp.index()) {
        let label = *lowest.entry((fine[id], coarse[id])).or_insert(id as u32);
        was_cut |= label != fine[id];
        labels[id] = label;
    }
    (labels, was_cut)
}
