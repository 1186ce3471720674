//! Out of memory at every question to the system: null, and nothing is lost.
#![cfg(not(miri))]

mod support;

use squall_alloc::{Placement, Pool, refuse_after, stats, trim};
use std::alloc::Layout;
use support::{again, in_both_modes, is_child};

const SIZES: [usize; 10] = [0, 16, 100, 1_000, 5_000, 8_192, 30_000, 200_000, 524_288, 2_000_000];

/// Allocates of each size and placement, a few of each; frees all of it. How many were refused.
fn round() -> usize {
    let (mut blocks, mut refused) = (Vec::new(), 0);
    for size in SIZES {
        for placement in [Placement::General, Placement::Local, Placement::Shared, Placement::Near(1)] {
            for _ in 0..3 {
                let layout = Layout::from_size_align(size, 8).unwrap();
                match Pool::new(placement).allocate(layout) {
                    Ok(block) => {
                        // SAFETY: our own block.
                        unsafe { block.write_bytes(1, size) };
                        blocks.push((block, layout));
                    }
                    Err(error) => {
                        assert_eq!(error.layout.size(), size);
                        refused += 1;
                    }
                }
            }
        }
    }
    for (block, layout) in blocks {
        // SAFETY: freed once.
        unsafe { Pool::new(Placement::General).free(block, layout) };
    }
    refused
}

/// Blocks with users, units in slabs, large blocks.
fn held() -> (u64, usize, usize) {
    let stats = stats().expect("the ground is laid");
    let used = stats.vps.iter().flat_map(|vp| &vp.classes).map(|class| class.used_count).sum();
    (used, stats.nodes.iter().map(|units| units.used).sum(), stats.large_count)
}

#[test]
fn at_every_question_the_answer_is_null_and_nothing_is_lost() {
    in_both_modes("at_every_question_the_answer_is_null_and_nothing_is_lost", || {
        round();
        let emptied = trim();
        let before = held();
        for questions in 0.. {
            refuse_after(Some(questions));
            let refused = round();
            refuse_after(None);
            let emptied = trim() && emptied;
            assert!(
                !emptied || held() == before,
                "after {questions} questions: {:?}, not {before:?}",
                held()
            );
            if refused == 0 {
                assert!(questions > 0, "large blocks ask");
                break;
            }
        }
    });
}

#[test]
fn so_it_is_where_there_is_no_ground_yet() {
    if !is_child() {
        for questions in 0..6 {
            let output = again(
                "so_it_is_where_there_is_no_ground_yet",
                &[("SQUALL_TEST_QUESTIONS", &questions.to_string())],
            );
            assert!(output.status.success(), "{questions}: {}", String::from_utf8_lossy(&output.stdout));
        }
        return;
    }
    let questions = std::env::var("SQUALL_TEST_QUESTIONS").unwrap().parse().unwrap();
    let layout = Layout::new::<u64>();
    refuse_after(Some(questions));
    let first = Pool::new(Placement::General).allocate(layout);
    refuse_after(None);
    let second = Pool::new(Placement::General).allocate(layout).expect("now there is memory");
    for block in first.into_iter().chain([second]) {
        // SAFETY: freed once.
        unsafe { Pool::new(Placement::General).free(block, layout) };
    }
    assert_eq!(held().0, 0);
}

#[test]
fn an_arena_that_is_full_is_no_memory() {
    if !is_child() {
        return support::must_pass("an_arena_that_is_full_is_no_memory", &[("SQUALL_ALLOC_ARENA_MIB", "8")]);
    }
    let layout = Layout::new::<[u8; 1000]>();
    let mut blocks = Vec::new();
    while let Ok(block) = Pool::new(Placement::General).allocate(layout) {
        blocks.push(block);
    }
    assert_eq!(blocks.len(), 128 * (65_536 / 1024), "all of the arena is blocks");
    while let Some(block) = blocks.pop() {
        // SAFETY: freed once.
        unsafe { Pool::new(Placement::General).free(block, layout) };
    }
    assert!(Pool::new(Placement::General).allocate(Layout::new::<[u8; 50]>()).is_ok() || !trim());
}

#[test]
fn what_another_node_has_free_is_memory_too() {
    let test = "what_another_node_has_free_is_memory_too";
    if !is_child() {
        let topology = ("SQUALL_TOPOLOGY", "nodes:2,cores:2");
        return support::must_pass(test, &[("SQUALL_ALLOC_ARENA_MIB", "8"), topology]);
    }
    let layout = Layout::new::<[u8; 1024]>();
    for vp in [0, 2, 0] {
        let mut blocks = Vec::new();
        while let Ok(block) = Pool::new(Placement::Near(vp)).allocate(layout) {
            blocks.push(block);
        }
        assert!(blocks.len() > 6_000, "only {} near {vp}, and all pages are free", blocks.len());
        for block in blocks {
            // SAFETY: freed once.
            unsafe { Pool::new(Placement::General).free(block, layout) };
        }
    }
}
