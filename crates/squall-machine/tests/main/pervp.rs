//! The per-VP operations, with more threads than processors, which move and are preempted. The tests run once
//! in this process (restartable if the machine supports it) and once per other mode, by
//! `pr_02_again_in_every_mode`.

use crate::support::{EXPECT, MODES, Random, again, hop, is_child, roam, slowness};
use squall_machine::pervp::{
    self, CasError, ListNode, PerVp, PerVpList, PerVpMagazine, PerVpStack, PerVpWord, PerVpWords,
};
use squall_machine::{Vp, machine};
use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use squall_sys::sync::thread;
use std::ptr::NonNull;
use std::sync::Barrier;

const THREADS: u64 = if cfg!(miri) { 3 } else { 8 };
const PER_HOP: u64 = 300;

/// Number of operations of each thread of a storm.
fn operations() -> u64 {
    if cfg!(miri) { 60 } else { 60_000 / slowness() }
}

/// Runs `work(thread, operation)` on more threads than processors, which move about.
fn storm(work: impl Fn(u64, u64) + Sync) {
    thread::scope(|scope| {
        for id in 0..THREADS {
            let work = &work;
            scope.spawn(move || {
                let mut random = Random::new(id + 1);
                for operation in 0..operations() {
                    if operation % PER_HOP == 0 {
                        // Half of the threads stay on the scheduler's choice of processor.
                        if id % 2 == 0 {
                            hop(&mut random);
                        } else if operation % (7 * PER_HOP) == 0 {
                            thread::yield_now();
                        }
                    }
                    work(id, operation);
                }
                roam();
            });
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn pr_02_again_in_every_mode() {
    if is_child() {
        return;
    }
    for &(name, value, expect) in MODES {
        again(&[(name, value), (EXPECT, expect)], &["pervp::"]);
    }
}

#[test]
fn the_mode_is_the_requested_one() {
    let mode = pervp::restart_mode();
    match std::env::var(EXPECT) {
        Ok(expect) => assert_eq!(mode.to_string(), expect),
        // The machine decides which of the two modes it is; use must not change it.
        Err(_) => {
            PerVpWord::new().add(1);
            assert_eq!(pervp::restart_mode(), mode);
        }
    }
}

#[test]
fn ex_t1_sums_are_exact() {
    let word = PerVpWord::new();
    let words = PerVpWords::<3>::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                let sum = word.sum();
                // Every word only grows, so the sums that one reader sees never shrink.
                assert!(sum >= last && sum <= THREADS * operations());
                last = sum;
                thread::yield_now();
            }
        });
        storm(|id, operation| {
            word.add(1);
            words.add((operation % 2) as usize, id);
            words.add(2, 1u64.wrapping_neg());
        });
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(word.sum(), THREADS * operations());
    let ids: u64 = (0..THREADS).sum();
    assert_eq!(words.sum(0) + words.sum(1), ids * operations());
    assert_eq!(words.sum(2), (THREADS * operations()).wrapping_neg());
    assert_eq!(
        word.iter().map(|(vp, value)| (vp.index() < machine().vp_limit(), value)).fold(
            0,
            |sum, (ok, value)| {
                assert!(ok);
                sum + value
            }
        ),
        THREADS * operations()
    );
}

#[test]
fn swapped_and_remaining_values_sum_to_the_additions() {
    let word = PerVpWord::new();
    let out = AtomicU64::new(0);
    storm(|id, operation| {
        if (id + operation) % 3 == 0 {
            let (vp, value) = word.swap(0);
            assert!(vp.index() < machine().vp_limit());
            out.fetch_add(value, Ordering::Relaxed);
        } else {
            word.add(7);
        }
    });
    let adds = (0..THREADS).flat_map(|id| (0..operations()).map(move |operation| id + operation));
    let expected = 7 * adds.filter(|turn| turn % 3 != 0).count() as u64;
    assert_eq!(out.into_inner() + word.sum(), expected);
}

#[test]
fn updates_and_compare_and_stores_sum_up() {
    let word = PerVpWord::new();
    let moved = AtomicU64::new(0);
    storm(|_, operation| {
        if operation % 2 == 0 {
            // Two steps in one update, so a reader never sees one alone.
            let stored = word.update(|value| {
                assert_eq!(value % 2, 0);
                Some(value + 2)
            });
            assert!(stored.is_some());
        } else {
            let vp = Vp::current();
            let value = word.load(vp);
            match word.compare_and_store(vp, value, value + 2) {
                Ok(()) => {}
                Err(CasError::Changed(now)) => {
                    assert_ne!(now, value);
                    word.add(2);
                }
                Err(CasError::Elsewhere(here)) => {
                    assert_ne!(here, vp);
                    moved.fetch_add(1, Ordering::Relaxed);
                    word.add(2);
                }
            }
        }
    });
    assert_eq!(word.sum(), 2 * THREADS * operations());
    assert_eq!(word.update(|_| None), None);
}

#[test]
fn a_failed_compare_and_store_names_the_failed_condition() {
    let word = PerVpWord::new();
    // Retried, because the thread may move between two lines.
    let (vp, now) = loop {
        let vp = Vp::current();
        if let Err(CasError::Changed(now)) = word.compare_and_store(vp, 1, 2) {
            break (vp, now);
        }
    };
    assert_eq!((now, word.sum()), (0, 0), "a failed compare-and-store on {vp} changed the word");
    let nowhere = Vp::new(machine().vp_limit() as u32);
    assert!(
        matches!(word.compare_and_store(nowhere, 0, 2), Err(CasError::Elsewhere(here)) if here != nowhere)
    );
    assert_eq!(word.sum(), 0);
}

/// A bounded array per VP under a word of count and version: the shape of a per-processor pool.
#[test]
fn to_09_an_array_by_pairs_loses_and_doubles_nothing() {
    const SLOTS: u64 = 7;
    let pool = PerVpWords::<8>::new();
    let seen: Vec<AtomicU8> = (0..THREADS * operations()).map(|_| AtomicU8::new(0)).collect();
    let take =
        |value: u64| assert_eq!(seen[value as usize].fetch_add(1, Ordering::Relaxed), 0, "popped twice");
    storm(|id, operation| {
        let value = id * operations() + operation;
        loop {
            let vp = Vp::current();
            let key = pool.load(vp, 0);
            let (version, count) = (key >> 8, key & 0xff);
            assert!(count <= SLOTS);
            if count < SLOTS && value.is_multiple_of(2) {
                let new = (version + 1) << 8 | (count + 1);
                let slot = (count + 1) as usize;
                if pool.compare_store_and_store(vp, (0, key, new), (slot, value)).is_ok() {
                    return;
                }
            } else if count > 0 {
                let top = pool.load(vp, count as usize);
                let new = (version + 1) << 8 | (count - 1);
                if pool.compare_and_store(vp, 0, key, new).is_ok() {
                    take(top);
                    break;
                }
            } else {
                break;
            }
        }
        take(value);
    });
    for vp in (0..machine().vp_limit() as u32).map(Vp::new) {
        let count = pool.load(vp, 0) & 0xff;
        (1..=count).for_each(|slot| take(pool.load(vp, slot as usize)));
    }
    assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1), "a value was lost");
}

#[test]
fn to_09_a_stack_loses_and_doubles_nothing() {
    let mut stack = PerVpStack::new();
    let seen: Vec<AtomicU8> = (0..THREADS * operations()).map(|_| AtomicU8::new(0)).collect();
    let take = |value: Box<u64>| {
        assert_eq!(seen[*value as usize].fetch_add(1, Ordering::Relaxed), 0, "popped twice")
    };
    storm(|id, operation| {
        stack.push(Box::new(id * operations() + operation));
        // Pops come in waves, so that stacks are sometimes deep and sometimes empty. Races need an empty
        // stack or one node.
        let pops = if operation % 200 < 150 { 1 } else { 3 };
        (0..pops).filter_map(|_| stack.pop()).for_each(take);
    });
    let left = stack.drain();
    assert!(left.is_sorted_by_key(|(vp, _)| *vp));
    left.into_iter().for_each(|(_, value)| take(value));
    assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1), "a value was lost");
    assert!(stack.pop().is_none());
}

/// Decodes a number from a pointer that is never dereferenced.
fn number(pointer: NonNull<()>) -> usize {
    pointer.addr().get() - 1
}

#[test]
fn a_magazine_keeps_every_pointer_once_and_its_bound() {
    const CAPACITY: usize = 16;
    let mut magazine = PerVpMagazine::try_new(CAPACITY).unwrap();
    let seen: Vec<AtomicU8> = (0..THREADS * operations()).map(|_| AtomicU8::new(0)).collect();
    let refused = AtomicUsize::new(0);
    let take = |pointer| {
        assert_eq!(seen[number(pointer)].fetch_add(1, Ordering::Relaxed), 0, "popped twice");
    };
    storm(|id, operation| {
        let value = (id * operations() + operation) as usize;
        let pointer = NonNull::new(std::ptr::without_provenance_mut(value + 1)).unwrap();
        let here = Vp::current();
        if !magazine.push_on(here, pointer) {
            refused.fetch_add(1, Ordering::Relaxed);
            take(pointer);
        }
        // Pops come in waves, so that the magazine is sometimes full and sometimes empty.
        let pops = if operation % 200 < 150 { 1 } else { 3 };
        (0..pops).filter_map(|_| magazine.pop()).for_each(take);
        assert!(magazine.len_on(here) <= CAPACITY);
    });
    let mut left = Vec::new();
    magazine.drain(|vp, pointer| left.push((vp, pointer)));
    assert!(left.is_sorted_by_key(|(vp, _)| *vp));
    left.into_iter().for_each(|(_, pointer)| take(pointer));
    assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1), "a value was lost");
    assert!(magazine.pop().is_none());
    let pushed = seen.len() - refused.into_inner();
    assert!(
        pushed > seen.len() / 8,
        "only {pushed} of {} pushes succeeded, too few for this test",
        seen.len()
    );
}

#[test]
fn a_magazine_is_last_in_first_out_and_bounded_per_vp() {
    let magazine = PerVpMagazine::try_new(3).unwrap();
    let pointer = |n: usize| NonNull::new(std::ptr::without_provenance_mut(n + 1)).unwrap();
    let absent = Vp::new(machine().vp_limit() as u32);
    assert!(!magazine.push_on(absent, pointer(9)), "pushed on a nonexistent VP");
    // Retried until the thread stayed on one VP for the whole round.
    for round in 0.. {
        while magazine.pop().is_some() {}
        let here = Vp::current();
        let put: Vec<bool> = (0..4).map(|n| magazine.push_on(here, pointer(n))).collect();
        let taken: Vec<usize> = (0..4).filter_map(|_| magazine.pop()).map(number).collect();
        if Vp::current() == here && put == [true, true, true, false] && taken == [2, 1, 0] {
            break;
        }
        assert!(round < 10_000, "never in order: {put:?} {taken:?}");
    }
}

/// Few nodes that come back at once, often in another order. A pop that trusts a stale read pops one of them
/// twice (the ABA problem). In a virtual topology all threads share a VP.
#[test]
fn a_reused_node_is_popped_once() {
    #[repr(C)]
    struct Node {
        link: ListNode,
        is_held: AtomicBool,
    }
    const NODES: usize = 4;
    let turns = if cfg!(miri) { 40 } else { 300_000 / slowness() };
    let nodes: Vec<NonNull<Node>> = (0..NODES)
        .map(|_| Box::new(Node { link: ListNode::new(), is_held: AtomicBool::new(false) }))
        .map(|node| NonNull::from(Box::leak(node)))
        .collect();
    let mut list = PerVpList::new();
    // SAFETY: here and below, valid nodes that are in no list, and are freed after the list.
    nodes.iter().for_each(|node| unsafe { list.push(node.cast()) });
    let pop = || {
        // SAFETY: the nodes of this list are kept as the list requires.
        let node = unsafe { list.pop() }?.cast::<Node>();
        // SAFETY: a node of ours; the field is atomic.
        assert!(!unsafe { &(*node.as_ptr()).is_held }.swap(true, Ordering::Relaxed), "handed out twice");
        Some(node)
    };
    let push = |node: NonNull<Node>| {
        // SAFETY: a node of ours; the field is atomic.
        assert!(unsafe { &(*node.as_ptr()).is_held }.swap(false, Ordering::Relaxed));
        // SAFETY: a valid node that is in no list, and is freed after the list.
        unsafe { list.push(node.cast()) };
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let _ = Vp::assign_current(Vp::new(0));
                for _ in 0..turns {
                    let (first, second) = (pop(), pop());
                    first.into_iter().for_each(&push);
                    second.into_iter().for_each(&push);
                }
            });
        }
    });
    let mut left = Vec::new();
    // SAFETY: the nodes in the list are valid.
    unsafe { list.drain(|_, node| left.push(node.cast())) };
    drop(list);
    let sorted = |mut nodes: Vec<NonNull<Node>>| {
        nodes.sort_unstable();
        nodes
    };
    assert_eq!(sorted(left), sorted(nodes.clone()));
    // SAFETY: each came from a `Box` above, and the list is gone.
    nodes.into_iter().for_each(|node| drop(unsafe { Box::from_raw(node.as_ptr()) }));
}

#[test]
fn a_stack_is_last_in_first_out_per_vp() {
    let stack = PerVpStack::new();
    // Retried until the thread stayed on one VP for the whole round. Failed rounds leave values behind.
    for round in 0.. {
        let base = round * 10;
        let vp = Vp::current();
        (base..base + 4).for_each(|value| stack.push(value));
        let popped: Vec<i32> = (0..4).filter_map(|_| stack.pop()).collect();
        if Vp::current() == vp && popped == [base + 3, base + 2, base + 1, base] {
            break;
        }
        assert!(round < 10_000, "never in order: {popped:?}");
    }
}

#[test]
fn a_dropped_stack_drops_its_values() {
    let held = Arc::new(());
    let stack = PerVpStack::new();
    thread::scope(|scope| {
        for id in 0..4 {
            let (stack, held) = (&stack, &held);
            scope.spawn(move || {
                hop(&mut Random::new(id));
                (0..100).for_each(|_| stack.push(Arc::clone(held)));
                (0..30).for_each(|_| drop(stack.pop()));
                roam();
            });
        }
    });
    assert!(Arc::strong_count(&held) > 1);
    drop(stack);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn threads_that_come_and_go_leave_exact_sums() {
    let word = PerVpWord::new();
    let rounds = if cfg!(miri) { 4 } else { 100 };
    for _ in 0..rounds {
        thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(|| word.add(1)))));
    }
    assert_eq!(word.sum(), 8 * rounds);
}

#[test]
fn pr_02_values_are_made_where_they_are_asked_for() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Value(Vp, [u8; 40]);
    impl Drop for Value {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let values = PerVp::new(|vp| {
        MADE.fetch_add(1, Ordering::Relaxed);
        Value(vp, [vp.index() as u8; 40])
    });
    assert_eq!(values.iter().count(), 0);
    storm(|_, _| {
        let value = values.here();
        assert_eq!(value.1, [value.0.index() as u8; 40]);
        assert!(std::ptr::eq(values.get(value.0).expect("made"), value));
    });
    let live = values.iter().count();
    assert!(live >= 1 && values.iter().all(|(vp, value)| vp == value.0));
    // The values of makers that lost a race are dropped; the winners' values are live.
    assert_eq!(MADE.load(Ordering::Relaxed) - DROPPED.load(Ordering::Relaxed), live);
    assert!(values.get(Vp::new(machine().vp_limit() as u32)).is_none());
    drop(values);
    assert_eq!(MADE.load(Ordering::Relaxed), DROPPED.load(Ordering::Relaxed));
}

/// Makers that all wait for each other inside `init`: one value per VP survives, in the room or on the heap.
#[test]
fn one_of_several_racing_makers_wins() {
    fn race<T: Send + Sync + 'static>(value: impl Fn(Arc<()>) -> T + Send + Sync + 'static) {
        const MAKERS: usize = 4;
        let held = Arc::new(());
        let barrier = Arc::new(Barrier::new(MAKERS));
        let values = {
            let (held, barrier) = (Arc::clone(&held), Arc::clone(&barrier));
            PerVp::new(move |_| {
                barrier.wait();
                value(Arc::clone(&held))
            })
        };
        thread::scope(|scope| {
            for _ in 0..MAKERS {
                scope.spawn(|| {
                    values.here();
                });
            }
        });
        // One reference here, one in the closure, one in each value that was kept.
        assert_eq!(Arc::strong_count(&held), 2 + values.iter().count());
        drop(values);
        assert_eq!(Arc::strong_count(&held), 1);
    }
    // Each maker makes a value, with or without a virtual topology: four threads without a value yet, on
    // different VPs or together on one.
    race(|held| held);
    race(|held| (held, [0u8; 5000]));
}

#[test]
fn a_maker_that_panics_leaves_no_value() {
    let values = PerVp::new(|_| -> u8 { panic!("no value today") });
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        values.here();
    }));
    assert!(outcome.is_err());
    assert_eq!(values.iter().count(), 0);
}
