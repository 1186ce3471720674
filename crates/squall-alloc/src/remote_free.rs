//! Remote frees: returns blocks to the heaps they came from.
//!
//! - I1. A block is put into the heap it came from, and no other. A batch is sorted, so the lock of each heap
//!   is taken once per batch.
//!
//! Cost: for a batch of one home, the common case, a lookup of each block's home; otherwise a sort.

use crate::classes::BATCH_MAX;
use crate::magazine::Batch;
use crate::sites;

/// The home of an address that is no block.
const NO_HOME: u32 = u32::MAX;

/// Knows the heap of each block.
pub(crate) trait BlockHomes {
    /// Returns the VP that owns the heap of this block, or `None` if the address is no block.
    fn home_of(&self, block: *mut u8) -> Option<u32>;
    /// Returns whether two blocks lie together in memory of one heap. False if their addresses do not show
    /// it.
    fn are_together(&self, block: *mut u8, other: *mut u8) -> bool;
    /// Puts blocks into their heap. `sent_home` is true if a thread of another VP frees them.
    fn put_on(&self, home: u32, blocks: &[*mut u8], sent_home: bool);
    /// Reports an address that is no block.
    fn foreign(&self, block: *mut u8);
}

/// Sends the blocks of a batch, which the VP `from` had, to their heaps, and empties the batch.
pub(crate) fn send_home(homes: &impl BlockHomes, from: u32, batch: &mut Batch) {
    let blocks = batch.blocks();
    let home_of = |block: *mut u8| homes.home_of(block).unwrap_or(NO_HOME);
    let Some((mut last, first)) = blocks.first().map(|block| (*block, home_of(*block))) else { return };
    let mut is_of_first = |block: &*mut u8| {
        let are_together = homes.are_together(std::mem::replace(&mut last, *block), *block);
        are_together || home_of(*block) == first
    };
    if sites::BY_HOME.is_weak() || blocks.iter().all(&mut is_of_first) {
        put(homes, from, first, blocks);
    } else {
        sort_and_put(homes, from, blocks);
    }
    batch.clear();
}

fn put(homes: &impl BlockHomes, from: u32, home: u32, blocks: &[*mut u8]) {
    match home {
        NO_HOME => blocks.iter().for_each(|block| homes.foreign(*block)),
        home => homes.put_on(home, blocks, home != from),
    }
}

/// The number of homes that are gathered one after the other, without an unpredictable branch. The blocks of
/// further homes are sorted.
const GATHERED_MAX: usize = 4;

/// Out of line, because it writes a long array.
#[inline(never)]
fn sort_and_put(homes: &impl BlockHomes, from: u32, blocks: &mut [*mut u8]) {
    let mut by_home = [(0, std::ptr::null_mut()); BATCH_MAX];
    let mut rest = &mut by_home[..blocks.len()];
    for (at, block) in rest.iter_mut().zip(&*blocks) {
        *at = (homes.home_of(*block).unwrap_or(NO_HOME), *block);
    }
    let mut gathered = 0;
    while let Some((home, _)) = rest.first().copied() {
        let count = match gathered < GATHERED_MAX {
            true => gather(rest, home),
            false => rest.partition_point(|(other, _)| *other <= home),
        };
        gathered += 1;
        let (run, others) = rest.split_at_mut(count);
        let of_home = &mut blocks[..count];
        of_home.iter_mut().zip(&*run).for_each(|(at, (_, block))| *at = *block);
        put(homes, from, home, of_home);
        rest = others;
        if gathered == GATHERED_MAX {
            rest.sort_unstable_by_key(|(home, _)| *home);
        }
    }
}

/// Moves the blocks of this home to the front. Returns their number.
fn gather(blocks: &mut [(u32, *mut u8)], home: u32) -> usize {
    let mut count = 0;
    for at in 0..blocks.len() {
        let is_of_home = blocks[at].0 == home;
        blocks.swap(at, count);
        count += usize::from(is_of_home);
    }
    count
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Homes for tests: a block is a number; its last two digits are the home plus one. Zero: no block.
    struct TestHomes(RefCell<Vec<(u32, usize, bool)>>);

    impl BlockHomes for TestHomes {
        fn home_of(&self, block: *mut u8) -> Option<u32> {
            (block.addr() as u32 % 100).checked_sub(1)
        }

        fn are_together(&self, block: *mut u8, other: *mut u8) -> bool {
            block == other
        }

        fn put_on(&self, home: u32, blocks: &[*mut u8], sent_home: bool) {
            let put = blocks.iter().map(|block| (home, block.addr(), sent_home));
            self.0.borrow_mut().extend(put);
        }

        fn foreign(&self, block: *mut u8) {
            self.0.borrow_mut().push((NO_HOME, block.addr(), false));
        }
    }

    #[test]
    fn each_block_of_a_batch_reaches_its_home_once() {
        for homes in [1, 2, 3, 5, 60] {
            let (test_homes, mut batch) = (TestHomes(RefCell::new(Vec::new())), Batch::new());
            for block in 1..=BATCH_MAX {
                batch.push(std::ptr::without_provenance_mut(block * 100 + block * 7 % homes));
            }
            send_home(&test_homes, 1, &mut batch);
            assert!(batch.blocks().is_empty());
            let mut all = test_homes.0.into_inner();
            for (home, block, sent_home) in &all {
                let expected = (*block as u32 % 100).checked_sub(1).unwrap_or(NO_HOME);
                assert_eq!((*home, *sent_home), (expected, ![1, NO_HOME].contains(home)));
            }
            all.sort_unstable_by_key(|(_, block, _)| *block);
            all.dedup_by_key(|(_, block, _)| *block);
            assert_eq!(all.len(), BATCH_MAX);
        }
    }
}
