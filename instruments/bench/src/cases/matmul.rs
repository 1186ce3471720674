//! `matmul`: threads multiply matrices. The right factor is in a cached map, with a copy in each cluster that
//! reads it.
//!
//! One operation is a round. Each thread replaces its block of rows of the right factor, and waits for the
//! others. Then it multiplies its rows of the left factor by all blocks. The first reader in a cluster copies
//! a block into the memory of the cluster. A variant sets the processors of a cluster. Source: Unrau et al.
//! 1995, figure 11.
//!
//! The case compares cluster sizes, so it has no rival. The wait is not counted.
//!
//! - I1. Each round's product is compared with one that was computed without the map.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cluster_size::{SIZES, size_of};
use crate::case::{Case, Make, Scale, Spec, Subject, Worker};
use crate::gate::Gate;
use crate::ours_cluster::Blocks;
use crate::uncounted::uncounted;

pub(super) static CASE: Case = Case {
    name: "matmul",
    about: "one product of a thread's rows and a matrix in a cached map, of which the thread replaced a block",
    variants: SIZES,
    subjects: &[Spec::ours("squall", multiplying())],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};

/// Rows of a block, of each matrix.
const ROWS: usize = 4;
/// Columns of the right factor.
const COLUMNS: usize = 32;

/// A block of the right factor: rows one after the other.
pub(crate) type Block = [u64; ROWS * COLUMNS];

/// The right factor's block with this number, in this round.
fn block(number: usize, round: u64) -> Block {
    std::array::from_fn(|at| black_box(round) + (number * 7 + at) as u64 % 5)
}

/// Adds the product of four rows and one block to the result. `row` is the number of the first row.
fn multiply(result: &mut Block, row: usize, number: usize, block: &Block) {
    for i in 0..ROWS {
        for k in 0..ROWS {
            let factor = ((row + i) * 3 + number * ROWS + k) as u64 % 7;
            for (sum, value) in result[i * COLUMNS..][..COLUMNS].iter_mut().zip(&block[k * COLUMNS..]) {
                *sum = sum.wrapping_add(factor.wrapping_mul(*value));
            }
        }
    }
}

/// The sum of a thread's rows of the product, computed without the map.
fn expected(thread: usize, threads: usize, round: u64) -> u64 {
    let mut result = [0; ROWS * COLUMNS];
    (0..threads).for_each(|number| multiply(&mut result, thread * ROWS, number, &block(number, round)));
    sum(&result)
}

fn sum(result: &Block) -> u64 {
    result.iter().fold(0, |sum, value| sum.wrapping_add(*value))
}

struct Multiplying {
    threads: usize,
    blocks: Blocks,
    gate: Gate,
    wrong: AtomicU64,
}

const fn multiplying() -> Make {
    |setting| {
        let (threads, size) = (setting.threads, size_of(setting)?);
        let (blocks, gate) = (Blocks::new(size), Gate::new(threads));
        Ok(Box::new(Multiplying { threads, blocks, gate, wrong: AtomicU64::new(0) }))
    }
}

impl Subject for Multiplying {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let (row, mut round) = (thread * ROWS, 0);
        // Makes the representative of the thread's cluster.
        self.blocks.set(thread, block(thread, round));
        self.blocks.with(thread, |own| assert_eq!(own[0], block(thread, 0)[0]));
        Box::new(move |ops| {
            let mut wrong = 0;
            for _ in 0..ops {
                round += 1;
                self.blocks.set(thread, block(thread, round));
                uncounted(|| self.gate.wait());
                let mut result = [0; ROWS * COLUMNS];
                // Each thread begins with its own block, so that they do not all read one block at a time.
                for at in 0..self.threads {
                    let number = (thread + at) % self.threads;
                    self.blocks.with(number, |block| multiply(&mut result, row, number, block));
                }
                uncounted(|| {
                    wrong += u64::from(sum(&result) != expected(thread, self.threads, round));
                    self.gate.wait();
                });
            }
            self.wrong.fetch_add(wrong, Ordering::Relaxed);
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        let wrong = self.wrong.load(Ordering::Relaxed);
        if wrong == 0 { Ok(()) } else { Err(format!("{wrong} products are wrong")) }
    }
}
