//! Attributes lines to objects: heap blocks, static variables, stacks, thread-locals, mapped files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::mappings::{Mapping, Mappings};
use crate::read::{Event, Log};
use crate::symbols::{Frame, Symbols};

/// Linux flag of a mapping for a stack.
const MAP_STACK: u32 = 0x2_0000;
/// Page size in bytes; mappings consist of whole pages.
const PAGE: u64 = 4096;
/// Maximum number of blocks in a line's description.
const BLOCKS_MAX: usize = 4;

/// Object that contains a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Object {
    /// Blocks of the program's allocator.
    Heap {
        /// Blocks by address.
        blocks: Vec<BlockReport>,
    },
    /// Static variables.
    Static {
        /// Path of the binary or library.
        file: PathBuf,
        /// Names of the variables.
        names: Vec<String>,
    },
    /// Stack of a thread.
    Stack {
        /// Kernel id of the thread.
        tid: u32,
    },
    /// Thread-locals, and the C library's data about the thread.
    ThreadLocal {
        /// Kernel id of the thread.
        tid: u32,
    },
    /// A mapped file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Offset of the line in the file.
        offset: u64,
    },
    /// Anonymous memory.
    Anonymous {
        /// First address of the mapping.
        start: u64,
        /// Length of the mapping.
        bytes: u64,
    },
    /// Unknown memory.
    Unknown,
}

/// A heap block in a line's description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BlockReport {
    /// Address of the block.
    pub address: u64,
    /// Length of the block.
    pub bytes: u64,
    /// Process of the allocating thread, if it is an ancestor from which this process was forked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// Number of the allocating thread in its process.
    pub thread: u32,
    /// Stack of the allocation, innermost frame first.
    pub frames: Vec<Frame>,
}

impl BlockReport {
    /// First frame outside the standard library and the allocator.
    #[must_use]
    pub fn allocated_at(&self) -> Option<&Frame> {
        self.frames.iter().find(|frame| !frame.is_library()).or(self.frames.first())
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    size: u64,
    site: u32,
    /// See [`BlockReport::process`].
    process: Option<u32>,
    thread: u32,
    from: u32,
    to: u32,
}

/// Memory layout of a process over its lifetime.
#[derive(Debug, Default)]
pub struct Objects {
    mappings: Mappings,
    /// First address of each file that is mapped from offset 0.
    bases: BTreeMap<PathBuf, u64>,
    stacks: Vec<(u32, u64)>,
    blocks: BTreeMap<u64, Vec<Block>>,
    longest_block: u64,
    sites: HashMap<u32, Vec<u64>>,
    futexes: HashSet<u64>,
}

impl Objects {
    /// Builds the layout from the log of a process and from the logs of its ancestors, oldest first.
    #[must_use]
    pub fn new(log: &Log, inherited: &[Log]) -> Objects {
        let mut objects = Objects::default();
        for parent in inherited {
            objects.note_all(&parent.events, Some(parent.pid));
        }
        objects.note_all(&log.events, None);
        objects
    }

    /// Adds the events of this process, or of its ancestor `process`.
    fn note_all(&mut self, events: &[Event], process: Option<u32>) {
        let objects = self;
        let mut guest_base = 0;
        for event in events {
            match event {
                Event::Info { guest_base: base, .. } => guest_base = *base,
                Event::Maps { epoch, text } => objects.note_maps(text, guest_base, *epoch),
                Event::Mmap { epoch, flags, address, length, offset, path, .. } => {
                    let mapping = Mapping {
                        end: address.saturating_add(length.checked_next_multiple_of(PAGE).unwrap_or(*length)),
                        offset: *offset,
                        path: PathBuf::from(path),
                        stack: flags & MAP_STACK != 0,
                        from: *epoch,
                    };
                    objects.note_base(*address, &mapping);
                    objects.mappings.map(*address, mapping);
                }
                Event::Munmap { epoch, address, length } => {
                    let length = length.checked_next_multiple_of(PAGE).unwrap_or(*length);
                    objects.mappings.unmap(*address, address.saturating_add(length), *epoch);
                }
                Event::Mremap { epoch, old, old_length, address, length } => {
                    let (old_end, end) = (old.saturating_add(*old_length), address.saturating_add(*length));
                    objects.mappings.move_to(*old, old_end, *address, end, *epoch);
                }
                Event::Alloc { epoch, thread, site, address, size } => {
                    objects.longest_block = objects.longest_block.max(*size);
                    let (size, site, thread, from) = (*size, *site, *thread, *epoch);
                    let block = Block { size, site, process, thread, from, to: u32::MAX };
                    objects.blocks.entry(*address).or_default().push(block);
                }
                Event::Free { epoch, address } => {
                    if let Some(block) = objects.blocks.get_mut(address).and_then(|blocks| blocks.last_mut())
                    {
                        block.to = block.to.min(*epoch);
                    }
                }
                Event::Kept { address } => {
                    if let Some(block) = objects.blocks.get_mut(address).and_then(|blocks| blocks.last_mut())
                    {
                        block.to = u32::MAX;
                    }
                }
                Event::Site { number, frames } => {
                    objects.sites.insert(*number, frames.clone());
                }
                Event::Futex { address } => {
                    objects.futexes.insert(*address);
                }
                Event::Stack { tid, address } => objects.stacks.push((*tid, *address)),
                _ => {}
            }
        }
    }

    fn note_maps(&mut self, text: &str, guest_base: u64, epoch: u32) {
        for line in text.lines() {
            let mut words = line.splitn(6, ' ');
            let mut next = || words.next().unwrap_or_default();
            let (range, _, offset) = (next(), next(), next());
            let path = words.nth(2).unwrap_or_default().trim();
            let Some((start, end)) = range.split_once('-') else { continue };
            let number = |text| u64::from_str_radix(text, 16).ok().map(|n: u64| n.wrapping_sub(guest_base));
            let offset = u64::from_str_radix(offset, 16).unwrap_or(0);
            if let (Some(start), Some(end)) = (number(start), number(end)) {
                let mapping = Mapping { end, offset, path: PathBuf::from(path), stack: false, from: epoch };
                self.note_base(start, &mapping);
                self.mappings.confirm(start, mapping);
            }
        }
    }

    fn note_base(&mut self, start: u64, mapping: &Mapping) {
        if mapping.end > start && mapping.offset == 0 && mapping.path.is_absolute() {
            self.bases.entry(mapping.path.clone()).or_insert(start);
        }
    }

    /// Frames of an instruction, innermost first.
    pub fn frames(&self, pc: u64, symbols: &mut Symbols) -> Vec<Frame> {
        let Some((start, mapping)) = self.mappings.during(pc, (0, u32::MAX)) else { return Vec::new() };
        if !mapping.path.is_absolute() {
            return Vec::new();
        }
        symbols.frames(&mapping.path, (pc - start).saturating_add(mapping.offset))
    }

    /// Whether threads slept on a word in these bytes.
    #[must_use]
    pub fn has_sleepers(&self, start: u64, bytes: u64) -> bool {
        (start..start.saturating_add(bytes)).any(|address| self.futexes.contains(&address))
    }

    /// Returns the object that contains the line of `bytes` at `address` during `span`.
    pub fn at(&self, address: u64, bytes: u64, span: (u32, u32), symbols: &mut Symbols) -> Object {
        let blocks = self.blocks_at(address, bytes, span, symbols);
        if !blocks.is_empty() {
            return Object::Heap { blocks };
        }
        let stack = self.stacks.iter().rev().find_map(|(tid, pointer)| {
            let (start, mapping) = self.mappings.during(pointer.saturating_sub(1), span)?;
            (start..mapping.end).contains(&address).then_some((*tid, *pointer, mapping.stack))
        });
        if let Some((tid, pointer, own)) = stack {
            // Above a thread's initial stack pointer lie its thread-locals and the C library's data about it.
            return if own && address >= pointer {
                Object::ThreadLocal { tid }
            } else {
                Object::Stack { tid }
            };
        }
        // Another mapping may have replaced the file.
        let is_there = |path: &PathBuf, base: u64| {
            self.mappings.during(base, span).is_some_and(|(_, mapping)| mapping.path == *path)
        };
        for (path, base) in &self.bases {
            if address >= *base && is_there(path, *base) && symbols.reaches(path, *base, address) {
                let names = symbols.data_in(path, *base, address, bytes);
                return Object::Static { file: path.clone(), names };
            }
        }
        match self.mappings.during(address, span) {
            Some((start, mapping)) if mapping.path.is_absolute() => Object::File {
                path: mapping.path.clone(),
                offset: (address - start).saturating_add(mapping.offset),
            },
            Some((start, mapping)) => Object::Anonymous { start, bytes: mapping.end - start },
            None => Object::Unknown,
        }
    }

    fn blocks_at(
        &self,
        address: u64,
        bytes: u64,
        span: (u32, u32),
        symbols: &mut Symbols,
    ) -> Vec<BlockReport> {
        let end = address.saturating_add(bytes);
        let first = address.saturating_sub(self.longest_block);
        let mut found = Vec::new();
        for (start, blocks) in self.blocks.range(first..end) {
            // The latest block that existed during the span.
            let alive = |block: &&Block| block.from <= span.1 && block.to >= span.0;
            let Some(block) = blocks.iter().rev().find(alive) else { continue };
            if start.saturating_add(block.size) <= address || found.len() == BLOCKS_MAX {
                continue;
            }
            let frames = self.sites.get(&block.site).map(Vec::as_slice).unwrap_or_default();
            // A return address points behind its call.
            let frames =
                frames.iter().flat_map(|frame| self.frames(frame.saturating_sub(1), symbols)).collect();
            let Block { size: bytes, process, thread, .. } = *block;
            found.push(BlockReport { address: *start, bytes, process, thread, frames });
        }
        found
    }

    /// Path for display, without the directories of the registry, the toolchain or the current directory.
    #[must_use]
    pub fn shown(path: &str) -> String {
        for mark in ["/registry/src/", "/rustlib/src/rust/"] {
            if let Some(at) = path.find(mark) {
                let rest = &path[at + mark.len()..];
                return match mark {
                    "/registry/src/" => rest.split_once('/').map_or(rest, |(_, rest)| rest).to_owned(),
                    _ => rest.to_owned(),
                };
            }
        }
        if let Some(rest) = path.strip_prefix("/rustc/") {
            return rest.split_once('/').map_or(rest, |(_, rest)| rest).to_owned();
        }
        match std::env::current_dir() {
            Ok(here) => {
                Path::new(path).strip_prefix(here).map_or(path.to_owned(), |p| p.display().to_string())
            }
            Err(_) => path.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_with_a_failed_free_still_exists() {
        let alloc = Event::Alloc { epoch: 1, thread: 0, site: 0, address: 0x1000, size: 64 };
        let free = Event::Free { epoch: 5, address: 0x1000 };
        let kept = Event::Kept { address: 0x1000 };
        let at_the_end = |events: &[Event]| {
            let log = Log { events: events.to_vec(), ..Log::default() };
            Objects::new(&log, &[]).at(0x1000, 64, (8, 9), &mut Symbols::default())
        };
        assert_eq!(at_the_end(&[alloc.clone(), free.clone()]), Object::Unknown);
        assert!(matches!(at_the_end(&[alloc, free, kept]), Object::Heap { .. }));
    }
}
