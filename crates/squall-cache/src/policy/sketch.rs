//! A sketch: small counts of the keys that were absent lately, many more keys than it has counters.
//!
//! A key has two counters of four bits in one block of 64 bytes. Its count is the smaller one, and an
//! addition raises the counters that have it. All counts are halved from time to time: a block does so when
//! it is used next.
//!
//! - I1. Counts are estimates: threads that change a block at one moment may lose some. A count is never
//!   above [`MOST`].
//!
//! Cost: half a byte for each counter. An addition touches one cache line, and the number of its block.
//! Source: Cormode and Muthukrishnan 2005 (count-min); Estan and Varghese 2003 (conservative update);
//! Einziger, Friedman and Manes 2017 (halving).

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// The largest count.
pub(super) const MOST: u8 = 15;
/// Words of a block, each of 16 counters.
const WORDS: usize = 8;
/// The counters of a block.
const COUNTERS: usize = WORDS * 16;
/// The lower three bits of each counter.
const HALVES: u64 = 0x7777_7777_7777_7777;

#[repr(align(64))]
#[derive(Default)]
struct Block([AtomicU64; WORDS]);

pub(super) struct Sketch {
    blocks: Box<[Block]>,
    /// The number of halvings that each block has gone through.
    halvings: Box<[AtomicU16]>,
}

/// The place of a counter.
#[derive(Clone, Copy)]
struct Counter {
    word: usize,
    shift: u32,
}

impl Sketch {
    /// Returns a sketch with about this many counters.
    pub(super) fn new(counters: usize) -> Sketch {
        let blocks = counters.div_ceil(COUNTERS).max(1);
        Sketch {
            blocks: (0..blocks).map(|_| Block::default()).collect(),
            halvings: (0..blocks).map(|_| AtomicU16::new(0)).collect(),
        }
    }

    /// Adds one to the count of a key, and returns it.
    pub(super) fn add(&self, hash: u64, halvings: u16) -> u8 {
        let block = self.block(hash, halvings);
        let counters = counters(hash);
        let count = least(block, counters);
        if count >= MOST {
            return count;
        }
        raise(block, counters, count + 1);
        count + 1
    }

    /// Raises the count of a key to this one at least.
    pub(super) fn raise(&self, hash: u64, halvings: u16, count: u8) {
        raise(self.block(hash, halvings), counters(hash), count.min(MOST));
    }

    /// Returns the block of a key, halved as often as the others.
    fn block(&self, hash: u64, halvings: u16) -> &Block {
        let place = ((u128::from(hash) * self.blocks.len() as u128) >> 64) as usize;
        let (block, own) = (&self.blocks[place], &self.halvings[place]);
        // Relaxed, here and below: counts are estimates (I1).
        let before = own.load(Ordering::Relaxed);
        if before != halvings
            && own.compare_exchange(before, halvings, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let times = halvings.wrapping_sub(before).min(4);
            for word in &block.0 {
                let mut halved = word.load(Ordering::Relaxed);
                for _ in 0..times {
                    halved = (halved >> 1) & HALVES;
                }
                word.store(halved, Ordering::Relaxed);
            }
        }
        block
    }
}

/// Returns the counters of a key. The upper bits of the hash choose the block.
fn counters(hash: u64) -> [Counter; 2] {
    let counter = |row: usize| {
        let place = (hash >> (7 * row)) as usize % (COUNTERS / 2) + row * (COUNTERS / 2);
        Counter { word: place / 16, shift: (place % 16 * 4) as u32 }
    };
    [counter(0), counter(1)]
}

fn least(block: &Block, counters: [Counter; 2]) -> u8 {
    let count = |at: Counter| (block.0[at.word].load(Ordering::Relaxed) >> at.shift) as u8 & MOST;
    counters.map(count).into_iter().min().unwrap_or(0)
}

fn raise(block: &Block, counters: [Counter; 2], count: u8) {
    for at in counters {
        let word = &block.0[at.word];
        let now = word.load(Ordering::Relaxed);
        if ((now >> at.shift) as u8 & MOST) < count {
            let raised = now & !(u64::from(MOST) << at.shift) | u64::from(count) << at.shift;
            // One attempt: another thread changes a counter of the word at this moment.
            let _ = word.compare_exchange(now, raised, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash of a number.
    fn hash(n: u64) -> u64 {
        let n = (n ^ n >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (n ^ n >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ n >> 32
    }

    #[test]
    fn counts_are_never_too_small_and_seldom_too_large() {
        let sketch = Sketch::new(7000);
        for round in 1..=4 {
            for n in 0..1000 {
                assert!(sketch.add(hash(n), 0) >= round);
            }
        }
        let wrong = (0..1000).filter(|n| sketch.add(hash(*n), 0) != 5).count();
        assert!(wrong < 100, "{wrong} of 1,000 counts are too large");
        for _ in 0..20 {
            sketch.add(hash(1), 0);
        }
        assert_eq!(sketch.add(hash(1), 0), MOST);
    }

    #[test]
    fn halvings_are_caught_up_with() {
        let sketch = Sketch::new(1);
        sketch.raise(hash(1), 0, 12);
        assert_eq!(sketch.add(hash(1), 0), 13);
        assert_eq!(sketch.add(hash(1), 1), 7);
        sketch.raise(hash(1), 1, 3);
        assert_eq!(sketch.add(hash(1), 3), 2);
        assert_eq!(sketch.add(hash(1), u16::MAX), 1, "no count is left after many halvings");
    }
}
