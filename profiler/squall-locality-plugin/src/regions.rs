//! Regions of the program's address space, each with its owner.
//!
//! - I1. Regions do not overlap, and adjacent regions have different owners. Their number never exceeds that
//!   of the current mappings, however many came and went.

use std::collections::BTreeMap;

/// Owner of the code in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The program and the libraries linked to it.
    Program,
    /// The preloaded library.
    Preload,
}

/// Regions by first address: end and owner.
#[derive(Debug, Default)]
pub(crate) struct Regions(BTreeMap<u64, (u64, Owner)>);

impl Regions {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Owner of the code at this address, if it is mapped.
    pub(crate) fn at(&self, address: u64) -> Option<Owner> {
        let (_, (end, owner)) = self.0.range(..=address).next_back()?;
        (address < *end).then_some(*owner)
    }

    /// Adds a region and replaces older ones in its range.
    pub(crate) fn map(&mut self, mut start: u64, mut end: u64, owner: Owner) {
        if start >= end {
            return;
        }
        self.unmap(start, end);
        if let Some((first, (last, before))) = self.0.range(..start).next_back()
            && *last == start
            && *before == owner
        {
            start = *first;
        }
        if let Some((last, after)) = self.0.get(&end)
            && *after == owner
        {
            let last = *last;
            self.0.remove(&end);
            end = last;
        }
        self.0.insert(start, (end, owner));
    }

    /// Removes a range.
    pub(crate) fn unmap(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        while let Some((&first, &(last, owner))) = self.0.range(..end).next_back()
            && last > start
        {
            self.0.remove(&first);
            if first < start {
                self.0.insert(first, (start, owner));
            }
            if last > end {
                self.0.insert(end, (last, owner));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Owner::{Preload, Program};

    #[test]
    fn a_new_region_replaces_older_ones() {
        let mut regions = Regions::default();
        regions.map(100, 200, Program);
        regions.map(140, 160, Preload);
        let at = |regions: &Regions, addresses: &[u64]| -> Vec<Option<Owner>> {
            addresses.iter().map(|address| regions.at(*address)).collect()
        };
        assert_eq!(at(&regions, &[99, 100, 139]), [None, Some(Program), Some(Program)]);
        assert_eq!(at(&regions, &[140, 159, 160]), [Some(Preload), Some(Preload), Some(Program)]);
        regions.unmap(150, 170);
        assert_eq!(at(&regions, &[149, 150, 169]), [Some(Preload), None, None]);
        assert_eq!(at(&regions, &[170, 199, 200]), [Some(Program), Some(Program), None]);
        regions.unmap(0, u64::MAX);
        assert_eq!((regions.0.len(), regions.at(100)), (0, None));
    }

    #[test]
    fn regions_do_not_accumulate() {
        let mut regions = Regions::default();
        for round in 0..1_000 {
            regions.map(4096, 8192, Program);
            // Adjacent regions with the same owner merge.
            regions.map(8192 + round * 4096, 8192 + (round + 1) * 4096, Program);
            assert_eq!(regions.0.len(), 1);
        }
        for page in 0..1_000 {
            regions.unmap(page * 8192, page * 8192 + 4096);
        }
        assert_eq!(regions.0.len(), 501, "every other page is a hole, up to the end");
        regions.map(0, 4096 * 3_000, Program);
        assert_eq!(regions.0.len(), 1);
    }

    #[test]
    fn any_numbers_are_accepted() {
        let mut regions = Regions::default();
        for (start, end) in [(u64::MAX, 0), (0, u64::MAX), (5, 5), (u64::MAX - 1, u64::MAX)] {
            regions.map(start, end, Program);
            regions.unmap(end, start);
            let _ = (regions.at(u64::MAX), regions.at(0));
        }
    }
}
