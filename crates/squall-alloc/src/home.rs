//! Blocks on their way home.
//!
//! - I1. A block is put into the heap that it is of, and no other. A batch is sorted, so that each heap's lock is taken once for it.
//!
//! Cost: for a batch of one home, which is the common one, a look at where each block leads; otherwise a sort.

use crate::magazine::Batch;
use crate::sites;

/// The home of what is no block.
const NO_HOME: u32 = u32::MAX;

/// Who knows where blocks are at home.
pub(crate) trait Homes {
    /// Whose heap this block is of; `None` if it is no block.
    fn home_of(&self, block: *mut u8) -> Option<u32>;
    /// Puts blocks into the heap that they are of; `sent_home`: from elsewhere.
    fn put_on(&self, home: u32, blocks: &[*mut u8], sent_home: bool);
    /// Is told of what is no block.
    fn foreign(&self, block: *mut u8);
}

/// Sends the blocks of a batch, which the VP `from` had, to the heaps that they are of, and empties it.
pub(crate) fn send_home(homes: &impl Homes, from: u32, batch: &mut Batch) {
    let home_of = |block: *mut u8| homes.home_of(block).unwrap_or(NO_HOME);
    let blocks = batch.blocks();
    let Some((first, rest)) = blocks.split_first() else { return };
    let first = home_of(*first);
    if rest.iter().any(|block| home_of(*block) != first) && !sites::BY_HOME.is_weak() {
        blocks.sort_unstable_by_key(|block| home_of(*block));
    }
    let mut left = batch.blocks();
    while let Some(block) = left.first() {
        let home = home_of(*block);
        let (run, others) = left.split_at_mut(left.partition_point(|block| home_of(*block) <= home));
        match home {
            NO_HOME => run.iter().for_each(|block| homes.foreign(*block)),
            home => homes.put_on(home, run, home != from),
        }
        left = others;
    }
    batch.len = 0;
}
