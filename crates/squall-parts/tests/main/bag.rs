//! Tests of the bag: no element is lost or doubled, and it says empty only if it is.

use squall_machine::{Vp, machine};
use squall_parts::bag::{Bag, Shard, Strategy};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;

const THREADS: usize = 4;
const TURNS: usize = if cfg!(miri) { 30 } else { 20_000 };

/// All shards that a bag may have here, at most four.
fn shards<T>(bag: &Bag<T>) -> Vec<Arc<Shard<T>>> {
    (0..machine().vp_limit().min(4) as u32).map(|vp| bag.shard(Vp::new(vp))).collect()
}

/// Strategies that change while clients work.
fn strategies(turn: usize) -> Strategy {
    Strategy::ALL[turn % Strategy::ALL.len()]
}

#[test]
fn dp_12_to_17_each_strategy_finds_the_only_element() {
    for strategy in Strategy::ALL {
        let bag = Bag::new();
        bag.attributes().set_strategy(strategy);
        let shards = shards(&bag);
        for from in &shards {
            for to in &shards {
                assert_eq!(bag.get(to), None);
                bag.put(from, 7);
                assert_eq!((bag.len(), bag.get(to), bag.get(from)), (1, Some(7), None), "{strategy:?}");
            }
        }
    }
}

/// One more element than clients, and each client holds at most one: the bag is never empty.
#[test]
fn dp_05_get_finds_an_element_as_long_as_there_is_one() {
    let bag = Bag::new();
    bag.attributes().set_idle_events(3);
    bag.attributes().set_pull_below(2);
    bag.attributes().set_push_above(1);
    bag.attributes().set_push_margin(1);
    let shards = shards(&bag);
    bag.put_batch(&shards[0], 0..=THREADS);
    let start = Barrier::new(THREADS);
    thread::scope(|threads| {
        for client in 0..THREADS {
            let (bag, shards, start) = (&bag, &shards, &start);
            threads.spawn(move || {
                let own = &shards[client % shards.len()];
                start.wait();
                for turn in 0..TURNS {
                    if client == 0 && turn % 50 == 0 {
                        bag.attributes().set_strategy(strategies(turn / 50));
                    }
                    let element = bag.get(own).expect("an element was in the bag all the time");
                    if turn % 7 == 0 {
                        bag.idle(own);
                    }
                    // Into any shard, so that elements wander.
                    bag.put(&shards[(turn + client) % shards.len()], element);
                }
            });
        }
    });
    let mut left = Vec::new();
    while bag.get_batch(&shards[0], 3, &mut left) > 0 {}
    left.sort_unstable();
    assert_eq!(left, (0..=THREADS).collect::<Vec<_>>());
}

#[test]
fn dp_01_each_element_goes_to_one_client() {
    let bag = Bag::new();
    let shards = shards(&bag);
    let puts = AtomicUsize::new(0);
    let start = Barrier::new(THREADS);
    let clients: Vec<Vec<usize>> = thread::scope(|threads| {
        let client = |client: usize| {
            let (bag, shards, start, puts) = (&bag, &shards, &start, &puts);
            threads.spawn(move || {
                let own = &shards[client % shards.len()];
                let mut got = Vec::new();
                start.wait();
                for turn in 0..TURNS {
                    match turn % 5 {
                        0 => bag.put_batch(own, (0..3).map(|_| puts.fetch_add(1, SeqCst))),
                        1 => bag.put(own, puts.fetch_add(1, SeqCst)),
                        2 => _ = bag.get_batch(own, 2, &mut got),
                        3 => bag.idle(own),
                        _ => got.extend(bag.get(own)),
                    }
                    if turn % 100 == 0 {
                        bag.attributes().set_strategy(strategies(turn / 100 + client));
                    }
                }
                got
            })
        };
        let all: Vec<_> = (0..THREADS).map(client).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut seen = HashSet::new();
    let rest = std::iter::from_fn(|| bag.get(&shards[0]));
    clients.into_iter().flatten().chain(rest).for_each(|it| assert!(seen.insert(it), "{it} came twice"));
    assert_eq!(seen.len(), puts.into_inner(), "an element was lost");
}

#[test]
fn dp_14_a_bulk_transfer_moves_the_constant_and_its_attribute_changes_it() {
    let bag = Bag::new();
    let all = shards(&bag);
    let [first, second, ..] = &all[..] else { return };
    bag.attributes().set_strategy(Strategy::BulkTransfer);
    bag.put_batch(first, 0..100);
    assert!(bag.get(second).is_some());
    assert_eq!((first.len(), second.len()), (50, 49));
    bag.attributes().set_bulk(10);
    while !second.is_empty() {
        bag.get(second);
    }
    assert!(bag.get(second).is_some());
    assert_eq!((first.len(), second.len()), (40, 9));
    bag.attributes().set_strategy(Strategy::Distributed);
    (0..9).for_each(|_| assert!(bag.get(second).is_some()));
    assert!(bag.get(second).is_some());
    assert_eq!((first.len(), second.len()), (39, 0));
}

#[test]
fn dp_15_to_17_idle_clients_move_elements_at_the_constants() {
    let move_at = |strategy, elements: usize, events: usize, of_first: bool| {
        let bag = Bag::new();
        let all = shards(&bag);
        let [first, second, ..] = &all[..] else { return None };
        bag.attributes().set_strategy(strategy);
        bag.put_batch(first, 0..elements);
        (0..events).for_each(|_| bag.idle(if of_first { first } else { second }));
        Some(elements - first.len())
    };
    // Not enough processors for two shards.
    let Some(none) = move_at(Strategy::BackgroundPull, 60, 99, false) else { return };
    assert_eq!(none, 0);
    assert_eq!(move_at(Strategy::BackgroundPull, 60, 100, false), Some(50));
    assert_eq!(move_at(Strategy::BackgroundPush, 20_000, 100, true), Some(0));
    assert_eq!(move_at(Strategy::BackgroundPush, 20_001, 100, true), Some(50));
    assert_eq!(move_at(Strategy::EstimatedPush, 20_001, 100, true), Some(50));
    assert_eq!(move_at(Strategy::BulkTransfer, 20_001, 1000, true), Some(0));
}

#[test]
fn dp_17_estimated_pushes_end_at_the_margin() {
    let bag = Bag::new();
    let all = shards(&bag);
    let [first, second, ..] = &all[..] else { return };
    bag.put_batch(first, 0..21_000);
    bag.put_batch(second, 0..19_500);
    (0..100).for_each(|_| bag.idle(second)); // tells its size
    (0..1000).for_each(|_| bag.idle(first));
    assert_eq!((first.len(), second.len()), (21_000, 19_500), "less than the margin lay between them");
    bag.attributes().set_push_margin(1_000);
    (0..100).for_each(|_| bag.idle(first));
    assert_eq!((first.len(), second.len()), (20_950, 19_550));
}
