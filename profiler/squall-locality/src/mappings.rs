//! History of the memory mappings of a process.
//!
//! An address can belong to several mappings, one after the other. Each mapping has the epochs of its start
//! and end on the plugin's coarse clock. A line is attributed to the mapping that existed while it was
//! touched.
//!
//! - I1. Current mappings do not overlap: mapping over or unmapping a range removes that range from older
//!   mappings.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// First and last epoch of a time span.
pub(crate) type Span = (u32, u32);

/// A mapping, or the part of it that is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Address after the last byte.
    pub(crate) end: u64,
    /// Offset of the first byte in the file.
    pub(crate) offset: u64,
    /// Path of the file; empty for anonymous memory.
    pub(crate) path: PathBuf,
    /// Whether it was mapped as a stack (`MAP_STACK`).
    pub(crate) stack: bool,
    /// Epoch of its start.
    pub(crate) from: u32,
}

/// All mappings of a process.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// Current mappings, by first address.
    now: BTreeMap<u64, Mapping>,
    /// Former mappings or parts of mappings: first address, mapping, epoch of the end. Sorted by the time of
    /// removal.
    gone: Vec<(u64, Mapping, u32)>,
}

impl Mappings {
    /// Removes all mappings in this range at `epoch`.
    pub(crate) fn unmap(&mut self, start: u64, end: u64, epoch: u32) {
        while let Some((first, mapping)) = self.last_before(end)
            && mapping.end > start
            && start < end
        {
            let mapping = mapping.clone();
            self.now.remove(&first);
            let part = |from: u64, to: u64| Mapping {
                end: to,
                offset: mapping.offset.saturating_add(from - first),
                ..mapping.clone()
            };
            if first < start {
                self.now.insert(first, part(first, start));
            }
            if end < mapping.end {
                self.now.insert(end, part(end, mapping.end));
            }
            let (from, to) = (first.max(start), end.min(mapping.end));
            self.gone.push((from, part(from, to), epoch));
            // The remaining parts begin at `end` or end at `start`. The next pass looks below this mapping,
            // so the loop ends.
        }
    }

    /// Adds a mapping and removes older mappings in its range.
    pub(crate) fn map(&mut self, start: u64, mapping: Mapping) {
        if mapping.end > start {
            self.unmap(start, mapping.end, mapping.from);
            self.now.insert(start, mapping);
        }
    }

    /// Compares a mapping from the kernel's list with the known ones, and adds it if it differs.
    pub(crate) fn confirm(&mut self, start: u64, mapping: Mapping) {
        let known = self.last_before(start.saturating_add(1)).is_some_and(|(first, known)| {
            let same = known.path == mapping.path
                && (mapping.path.as_os_str().is_empty()
                    || known.offset.saturating_add(start - first) == mapping.offset);
            same && known.end >= mapping.end
        });
        if !known {
            let stack = self
                .last_before(start.saturating_add(1))
                .is_some_and(|(_, known)| known.stack && known.end > start && known.path == mapping.path);
            self.map(start, Mapping { stack: mapping.stack || stack, ..mapping });
        }
    }

    /// Moves or resizes a mapping.
    pub(crate) fn move_to(&mut self, old: u64, old_end: u64, start: u64, end: u64, epoch: u32) {
        let found = self.at(old).map(|(first, mapping)| Mapping {
            end,
            offset: mapping.offset.saturating_add(old - first),
            from: epoch,
            ..mapping.clone()
        });
        if start != old {
            self.unmap(old, old_end, epoch);
        } else if end < old_end {
            self.unmap(end, old_end, epoch);
            return;
        }
        let unknown = Mapping { end, offset: 0, path: PathBuf::new(), stack: false, from: epoch };
        self.map(start, found.unwrap_or(unknown));
    }

    fn last_before(&self, end: u64) -> Option<(u64, &Mapping)> {
        self.now.range(..end).next_back().map(|(start, mapping)| (*start, mapping))
    }

    /// Returns the mapping of this address at the end of the run.
    pub(crate) fn at(&self, address: u64) -> Option<(u64, &Mapping)> {
        self.last_before(address.checked_add(1)?).filter(|(_, mapping)| address < mapping.end)
    }

    /// Returns the mapping of this address during `span`, the latest of several. If the address was unmapped
    /// then, returns its mapping from the end of the run.
    pub(crate) fn during(&self, address: u64, span: Span) -> Option<(u64, &Mapping)> {
        let here = |start: u64, mapping: &Mapping| (start..mapping.end).contains(&address);
        let now = self.at(address);
        if let Some((start, mapping)) = now
            && mapping.from <= span.1
        {
            return Some((start, mapping));
        }
        let gone = self.gone.iter().rev().filter(|(start, mapping, _)| here(*start, mapping));
        let alive = gone.clone().find(|(_, mapping, to)| mapping.from <= span.1 && *to >= span.0);
        alive.map(|(start, mapping, _)| (*start, mapping)).or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(end: u64, path: &str, from: u32) -> Mapping {
        Mapping { end, offset: 0, path: path.into(), stack: false, from }
    }

    fn name(found: Option<(u64, &Mapping)>) -> Option<(u64, String)> {
        found.map(|(start, mapping)| (start, mapping.path.display().to_string()))
    }

    #[test]
    fn mappings_are_distinguished_by_time() {
        let mut mappings = Mappings::default();
        mappings.map(100, file(200, "/a", 1));
        mappings.unmap(100, 200, 5);
        assert_eq!(name(mappings.at(150)), None);
        mappings.map(120, file(160, "/b", 6));
        let during = |span| name(mappings.during(150, span));
        assert_eq!(during((1, 4)), Some((100, "/a".into())));
        assert_eq!(during((7, 9)), Some((120, "/b".into())));
        // Both mappings fall into the span; the later one is returned.
        assert_eq!(during((2, 9)), Some((120, "/b".into())));
        assert_eq!(name(mappings.during(170, (7, 9))), None);
    }

    #[test]
    fn a_hole_leaves_both_sides_with_their_offsets() {
        let mut mappings = Mappings::default();
        mappings.map(1000, file(4000, "/a", 1));
        mappings.unmap(2000, 3000, 2);
        mappings.map(2500, file(2600, "/b", 3));
        assert_eq!(name(mappings.at(1999)), Some((1000, "/a".into())));
        assert_eq!(mappings.at(3000).map(|(start, it)| (start, it.offset)), Some((3000, 2000)));
        assert_eq!(name(mappings.at(2000)), None);
        assert_eq!(name(mappings.at(2500)), Some((2500, "/b".into())));
        mappings.unmap(0, u64::MAX, 4);
        assert!(mappings.now.is_empty());
        assert_eq!(mappings.gone.len(), 4);
    }

    #[test]
    fn a_moved_mapping_keeps_its_file() {
        let mut mappings = Mappings::default();
        mappings.map(100, file(200, "/a", 1));
        mappings.move_to(100, 200, 500, 700, 2);
        assert_eq!(name(mappings.at(150)), None);
        assert_eq!(name(mappings.at(650)), Some((500, "/a".into())));
        mappings.move_to(500, 700, 500, 600, 3);
        assert_eq!(name(mappings.at(650)), None);
        mappings.move_to(9000, 9100, 500, 520, 4);
        assert_eq!(name(mappings.at(510)), Some((500, String::new())));
    }

    #[test]
    fn a_known_mapping_is_confirmed_without_a_change() {
        let mut mappings = Mappings::default();
        mappings.map(100, Mapping { stack: true, ..file(300, "", 1) });
        mappings.confirm(100, file(200, "", 7));
        assert_eq!(mappings.at(150).map(|(_, it)| (it.end, it.stack, it.from)), Some((300, true, 1)));
        mappings.confirm(100, file(200, "/a", 8));
        assert_eq!(mappings.at(150).map(|(_, it)| (it.stack, it.from)), Some((false, 8)));
        assert_eq!(mappings.at(250).map(|(start, it)| (start, it.stack)), Some((200, true)));
    }

    #[test]
    fn any_numbers_are_accepted() {
        let mut mappings = Mappings::default();
        for (start, end) in [(u64::MAX, 0), (0, u64::MAX), (5, 5), (u64::MAX - 1, u64::MAX)] {
            mappings.map(start, file(end, "/a", 9));
            mappings.unmap(end, start, 0);
            mappings.move_to(start, end, end, start, 3);
            let _ = mappings.during(u64::MAX, (9, 0));
        }
    }
}
