//! Sequences of calls against a model of the held blocks; also decoded from bytes, for the fuzzer.

#![allow(dead_code)]

use squall_alloc::{Arena, LocalityAlloc, Placement, decay, trim};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::ptr::NonNull;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Take {
        placement: Placement,
        size: usize,
        align: usize,
    },
    Free(usize),
    /// A free by another thread, which then ends.
    FreeElsewhere(usize),
    Change {
        which: usize,
        size: usize,
    },
    Zeroed {
        size: usize,
    },
    /// Gives idle memory back: some of it, or all.
    Decay,
    Trim,
}

/// Decodes bytes into steps, four bytes each.
fn steps(bytes: &[u8]) -> impl Iterator<Item = Step> {
    bytes.chunks_exact(4).map(|bytes| {
        let [what, shape, low, high] = *bytes else { unreachable!("chunks of four") };
        let number = usize::from(u16::from_le_bytes([low, high]));
        // Up to some MiB, small sizes more often.
        let size = match shape >> 6 {
            0 | 1 => number % 300,
            2 => number % 9000,
            _ => number * 20,
        };
        let placement = match what >> 4 {
            0..6 => Placement::General,
            6..9 => Placement::Local,
            9..12 => Placement::LocalOf(u32::from(what) % 5),
            12..14 => Placement::Shared,
            _ => Placement::Near(u32::from(what) % 5),
        };
        match what & 15 {
            0..7 => Step::Take { placement, size, align: 1 << (shape & 15).min(13) },
            7..10 => Step::Free(number),
            10 => Step::FreeElsewhere(number),
            11 | 12 => Step::Change { which: usize::from(low), size: size.max(1) },
            13 => Step::Zeroed { size: size.max(1) },
            14 => Step::Decay,
            _ => Step::Trim,
        }
    })
}

/// Runs the steps that the bytes encode.
pub(crate) fn alloc(bytes: &[u8]) {
    run(steps(bytes));
}

struct Held {
    block: NonNull<u8>,
    layout: Layout,
    mark: u8,
    general: bool,
}

// SAFETY: a block belongs to its holder, on any thread.
unsafe impl Send for Held {}

impl Held {
    fn new(block: NonNull<u8>, layout: Layout, mark: u8, general: bool) -> Held {
        assert_eq!(block.addr().get() % layout.align(), 0);
        // SAFETY: a block of so many bytes.
        unsafe { block.as_ptr().write_bytes(mark, layout.size()) };
        Held { block, layout, mark, general }
    }

    fn check(&self, size: usize) {
        // SAFETY: a block of so many bytes, written when it was taken.
        let bytes = unsafe { std::slice::from_raw_parts(self.block.as_ptr(), size) };
        assert!(bytes.iter().all(|byte| *byte == self.mark), "{:?}", self.layout);
    }

    fn free(self) {
        self.check(self.layout.size());
        // SAFETY: freed once, for its layout.
        unsafe { Arena::new(Placement::General).free(self.block, self.layout) };
    }
}

/// Runs the steps. Checks that each block keeps its content and that blocks do not overlap. Frees all blocks
/// at the end.
pub(crate) fn run(steps: impl IntoIterator<Item = Step>) {
    let mut held: BTreeMap<usize, Held> = BTreeMap::new();
    for (number, step) in steps.into_iter().enumerate() {
        let mark = number as u8;
        match step {
            Step::Take { placement, size, align } => {
                let layout = Layout::from_size_align(size, align).unwrap();
                let block = Arena::new(placement).allocate(layout).unwrap();
                let general = placement == Placement::General;
                held.insert(block.addr().get(), Held::new(block, layout, mark, general));
            }
            Step::Zeroed { size } => {
                let layout = Layout::from_size_align(size, 8).unwrap();
                // SAFETY: not of size 0.
                let block = NonNull::new(unsafe { LocalityAlloc.alloc_zeroed(layout) }).unwrap();
                // SAFETY: our own block of so many bytes.
                let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), size) };
                assert!(bytes.iter().all(|byte| *byte == 0));
                held.insert(block.addr().get(), Held::new(block, layout, mark, true));
            }
            Step::Free(which) if !held.is_empty() => {
                let key = *held.keys().nth(which % held.len()).unwrap();
                held.remove(&key).unwrap().free();
            }
            Step::FreeElsewhere(which) if !held.is_empty() => {
                let key = *held.keys().nth(which % held.len()).unwrap();
                let held = held.remove(&key).unwrap();
                std::thread::spawn(move || held.free()).join().expect("the freeing thread does not panic");
            }
            Step::Decay => drop(decay()),
            Step::Trim => drop(trim()),
            Step::Change { which, size } if !held.is_empty() => {
                let key = *held.keys().nth(which % held.len()).unwrap();
                let old = held.remove(&key).unwrap();
                if !old.general || old.layout.size() == 0 {
                    old.free();
                    continue;
                }
                // SAFETY: our own block, for its layout; not of size 0.
                let block = unsafe { LocalityAlloc.realloc(old.block.as_ptr(), old.layout, size) };
                let layout = Layout::from_size_align(size, old.layout.align()).unwrap();
                let moved = Held { block: NonNull::new(block).unwrap(), layout, ..old };
                moved.check(old.layout.size().min(size));
                held.insert(moved.block.addr().get(), Held::new(moved.block, layout, mark, true));
            }
            _ => {}
        }
        let mut end = 0;
        for (address, held) in &held {
            assert!(*address >= end, "two blocks overlap");
            end = address + held.layout.size().max(1);
        }
    }
    held.into_values().for_each(Held::free);
}
