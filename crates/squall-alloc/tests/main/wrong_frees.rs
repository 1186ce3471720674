//! Debug mode reports wrong frees and overruns. Without it, a heap notices a block that returns twice.

use super::support::{self, again, is_child};
use squall_alloc::{Arena, Placement};
use std::alloc::Layout;
use std::ptr::NonNull;

const LAYOUT: Layout = Layout::new::<[u64; 5]>();
const POOL: Arena = Arena::new(Placement::General);

/// Runs the test in a child in debug mode, which must end with this message.
fn must_report(test: &str, words: &str) {
    let output = again(test, &[("SQUALL_ALLOC_DEBUG", "1")]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains(words), "{test}: {text}");
}

fn free(block: NonNull<u8>, layout: Layout) {
    // SAFETY: the test breaks the contract on purpose; debug mode checks the block before it touches it.
    unsafe { POOL.free(block, layout) };
}

#[test]
fn a_double_free_is_reported() {
    if is_child() {
        let block = POOL.allocate(LAYOUT).unwrap();
        free(block, LAYOUT);
        return free(block, LAYOUT);
    }
    must_report("wrong_frees::a_double_free_is_reported", "double free of the block at 0x");
}

#[test]
fn a_foreign_free_is_reported() {
    if is_child() {
        free(POOL.allocate(LAYOUT).unwrap(), LAYOUT);
        return free(NonNull::from(&mut [0u64; 5]).cast(), LAYOUT);
    }
    if cfg!(debug_assertions) {
        must_report(
            "wrong_frees::a_foreign_free_is_reported",
            "foreign free: no block of this allocator begins at 0x",
        );
    }
}

#[test]
fn a_free_within_a_block_is_reported() {
    if is_child() {
        let block = POOL.allocate(LAYOUT).unwrap();
        // SAFETY: within the block.
        return free(unsafe { block.add(16) }, LAYOUT);
    }
    must_report("wrong_frees::a_free_within_a_block_is_reported", "foreign free");
}

#[test]
fn an_overrun_is_reported() {
    if is_child() {
        let block = POOL.allocate(LAYOUT).unwrap();
        // SAFETY: a guard lies behind the block.
        unsafe { block.add(LAYOUT.size()).write(1) };
        return free(block, LAYOUT);
    }
    must_report(
        "wrong_frees::an_overrun_is_reported",
        "has 40 bytes, and the guard behind them was written at byte 40",
    );
}

#[test]
fn a_write_to_a_freed_block_is_reported() {
    if is_child() {
        let block = POOL.allocate(LAYOUT).unwrap();
        let keep = POOL.allocate(LAYOUT).unwrap();
        free(block, LAYOUT);
        // SAFETY: the slab is still mapped, because another block of it is in use.
        unsafe { block.add(8).write(1) };
        for _ in 0..10_000 {
            let _ = POOL.allocate(LAYOUT);
        }
        return free(keep, LAYOUT);
    }
    must_report("wrong_frees::a_write_to_a_freed_block_is_reported", "byte 8 of the freed block at 0x");
}

#[test]
fn a_wrong_layout_is_reported() {
    if is_child() {
        return free(POOL.allocate(LAYOUT).unwrap(), Layout::new::<u64>());
    }
    if cfg!(debug_assertions) {
        must_report(
            "wrong_frees::a_wrong_layout_is_reported",
            "was allocated with 40 bytes and is freed with 8",
        );
    }
}

#[test]
fn without_debug_mode_a_double_free_ends_the_program() {
    if is_child() {
        let block = POOL.allocate(LAYOUT).unwrap();
        for _ in 0..1_000 {
            free(block, LAYOUT);
        }
        return;
    }
    let test = "wrong_frees::without_debug_mode_a_double_free_ends_the_program";
    let output = again(test, &[]);
    let text = String::from_utf8_lossy(&output.stderr);
    // If blocks go home at once, the pages of the block may be free by then.
    let told = text.contains("double free") || text.contains("foreign free");
    assert!(!output.status.success() && told, "{text}");
}

const LARGE: Layout = Layout::new::<[u8; 1 << 20]>();

#[test]
fn a_double_free_of_a_large_block_is_reported() {
    if is_child() {
        let block = POOL.allocate(LARGE).unwrap();
        free(block, LARGE);
        // Without kept addresses, it would lie at the address of the first block.
        let _next = POOL.allocate(LARGE).unwrap();
        return free(block, LARGE);
    }
    must_report("wrong_frees::a_double_free_of_a_large_block_is_reported", "double free of the block at 0x");
}

#[test]
fn a_foreign_free_of_a_large_block_is_reported() {
    if is_child() {
        let block = POOL.allocate(LARGE).unwrap();
        // SAFETY: within the block.
        return free(unsafe { block.add(4096) }, LARGE);
    }
    must_report("wrong_frees::a_foreign_free_of_a_large_block_is_reported", "foreign free");
}

#[test]
fn a_wrong_layout_of_a_large_block_is_reported() {
    if is_child() {
        return free(POOL.allocate(LARGE).unwrap(), Layout::new::<[u8; 2 << 20]>());
    }
    must_report(
        "wrong_frees::a_wrong_layout_of_a_large_block_is_reported",
        "was allocated with 1048576 bytes and is freed with 2097152",
    );
}

#[test]
fn correct_frees_pass() {
    if is_child() {
        let mut blocks: Vec<_> = (1..3000)
            .map(|size| {
                let layout = Layout::from_size_align(size * 7, 16).unwrap();
                let placement = [Placement::General, Placement::Local, Placement::Shared][size % 3];
                (Arena::new(placement).allocate(layout).unwrap(), layout)
            })
            .collect();
        for round in 0..3 {
            for (block, layout) in blocks.drain(..).rev().collect::<Vec<_>>() {
                // SAFETY: our own block.
                unsafe { block.write_bytes(round, layout.size()) };
                free(block, layout);
                blocks.push((POOL.allocate(layout).unwrap(), layout));
            }
        }
        return blocks.into_iter().for_each(|(block, layout)| free(block, layout));
    }
    support::must_pass("wrong_frees::correct_frees_pass", &[("SQUALL_ALLOC_DEBUG", "1")]);
}
