//! What was mapped where, and when.
//!
//! An address may be of one mapping after another. Each is known by when it came and when it went, by the plugin's coarse clock, so that
//! a line is told by what was there while it was touched.
//!
//! - I1. Mappings that are there at one time do not overlap: what is mapped over another, or unmapped, takes its part away.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Epochs between which something was.
pub(crate) type Span = (u32, u32);

/// One mapping, or what is left of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The address after its last byte.
    pub(crate) end: u64,
    /// The offset of its first byte in the file.
    pub(crate) offset: u64,
    /// The file; empty for none.
    pub(crate) path: PathBuf,
    /// Whether it was asked for as a stack.
    pub(crate) stack: bool,
    /// When it came.
    pub(crate) from: u32,
}

/// All mappings of a process.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// Those that are there, by their first address.
    now: BTreeMap<u64, Mapping>,
    /// Those that went, or parts of them: first address, mapping, epoch of the end; in the order of their going.
    gone: Vec<(u64, Mapping, u32)>,
}

impl Mappings {
    /// From `epoch` on nothing is mapped there.
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
            // What is left begins at `end`, or ends at `start`: this goes on below the mapping, and ends.
        }
    }

    /// A mapping comes, in the place of what was there.
    pub(crate) fn map(&mut self, start: u64, mapping: Mapping) {
        if mapping.end > start {
            self.unmap(start, mapping.end, mapping.from);
            self.now.insert(start, mapping);
        }
    }

    /// A mapping as the kernel lists it: news only where it says something else than what is known.
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

    /// A mapping goes from one place to another, or gets another length.
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

    /// What is mapped at this address in the end.
    pub(crate) fn at(&self, address: u64) -> Option<(u64, &Mapping)> {
        self.last_before(address.checked_add(1)?).filter(|(_, mapping)| address < mapping.end)
    }

    /// What was mapped at this address meanwhile: the last of several, or where nothing was, what was there at any time.
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
    fn what_is_mapped_after_an_unmap_is_told_by_when() {
        let mut mappings = Mappings::default();
        mappings.map(100, file(200, "/a", 1));
        mappings.unmap(100, 200, 5);
        assert_eq!(name(mappings.at(150)), None);
        mappings.map(120, file(160, "/b", 6));
        let during = |span| name(mappings.during(150, span));
        assert_eq!(during((1, 4)), Some((100, "/a".into())));
        assert_eq!(during((7, 9)), Some((120, "/b".into())));
        // Both: the later one.
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
    fn a_mapping_that_moves_is_still_itself() {
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
    fn what_the_kernel_lists_is_no_news_where_it_is_known() {
        let mut mappings = Mappings::default();
        mappings.map(100, Mapping { stack: true, ..file(300, "", 1) });
        mappings.confirm(100, file(200, "", 7));
        assert_eq!(mappings.at(150).map(|(_, it)| (it.end, it.stack, it.from)), Some((300, true, 1)));
        mappings.confirm(100, file(200, "/a", 8));
        assert_eq!(mappings.at(150).map(|(_, it)| (it.stack, it.from)), Some((false, 8)));
        assert_eq!(mappings.at(250).map(|(start, it)| (start, it.stack)), Some((200, true)));
    }

    #[test]
    fn any_numbers_are_borne() {
        let mut mappings = Mappings::default();
        for (start, end) in [(u64::MAX, 0), (0, u64::MAX), (5, 5), (u64::MAX - 1, u64::MAX)] {
            mappings.map(start, file(end, "/a", 9));
            mappings.unmap(end, start, 0);
            mappings.move_to(start, end, end, start, 3);
            let _ = mappings.during(u64::MAX, (9, 0));
        }
    }
}
