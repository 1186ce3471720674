//! Blocks on their way home.
//!
//! - I1. A block is put into the heap that it is of, and no other. A batch is sorted, so that each heap's lock is taken once for it.
//!
//! Cost: for a batch of one home, which is the common one, a look at where each block leads; otherwise a sort.

use crate::classes::BATCH_MAX;
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
    let blocks = batch.blocks();
    let home_of = |block: *mut u8| homes.home_of(block).unwrap_or(NO_HOME);
    let Some(first) = blocks.first().map(|block| home_of(*block)) else { return };
    if sites::BY_HOME.is_weak() || blocks.iter().all(|block| home_of(*block) == first) {
        put(homes, from, first, blocks);
    } else {
        sort_and_put(homes, from, blocks);
    }
    batch.clear();
}

fn put(homes: &impl Homes, from: u32, home: u32, blocks: &[*mut u8]) {
    match home {
        NO_HOME => blocks.iter().for_each(|block| homes.foreign(*block)),
        home => homes.put_on(home, blocks, home != from),
    }
}

/// Apart from what comes before, as it writes a long array.
#[inline(never)]
fn sort_and_put(homes: &impl Homes, from: u32, blocks: &mut [*mut u8]) {
    let mut by_home = [(0, std::ptr::null_mut()); BATCH_MAX];
    let by_home = &mut by_home[..blocks.len()];
    for (at, block) in by_home.iter_mut().zip(&*blocks) {
        *at = (homes.home_of(*block).unwrap_or(NO_HOME), *block);
    }
    by_home.sort_unstable_by_key(|(home, _)| *home);
    blocks.iter_mut().zip(&*by_home).for_each(|(block, (_, at))| *block = *at);
    let mut rest = &*blocks;
    for run in by_home.chunk_by(|(home, _), (other, _)| home == other) {
        let (of_home, others) = rest.split_at(run.len());
        put(homes, from, run[0].0, of_home);
        rest = others;
    }
}
