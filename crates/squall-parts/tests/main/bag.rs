//! Tests of the bag: no element is lost or doubled, and it says empty only if it is.

use squall_parts::bag::{Bag, Client, Strategy, Wait};
use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

const THREADS: usize = 4;
const TURNS: usize = if cfg!(miri) { 30 } else { 20_000 };

/// Number of clients with shards of their own. Threads use any of them.
const PLACES: usize = 4;

fn clients<T>(bag: &Bag<T>) -> [Client<'_, T>; PLACES] {
    std::array::from_fn(|place| bag.client(place))
}

/// Strategies that change while clients work.
fn strategies(turn: usize) -> Strategy {
    Strategy::ALL[turn % Strategy::ALL.len()]
}

#[test]
fn dp_12_to_17_each_strategy_finds_the_only_element() {
    for strategy in Strategy::ALL {
        let bag = Bag::with_places(PLACES);
        bag.attributes().set_strategy(strategy);
        for from in clients(&bag) {
            for to in clients(&bag) {
                assert_eq!(to.get(), None);
                from.put(7);
                assert_eq!((bag.len(), to.get(), from.get()), (1, Some(7), None), "{strategy:?}");
            }
        }
    }
}

/// More than two elements for each thread, and each holds at most two: the bag is never empty.
#[test]
fn dp_05_get_finds_an_element_as_long_as_there_is_one() {
    let bag = Bag::with_places(PLACES);
    bag.attributes().set_idle_events(3);
    bag.attributes().set_pull_below(2);
    bag.attributes().set_push_above(1);
    bag.attributes().set_push_margin(1);
    let all = clients(&bag);
    all[0].put_batch(0..=2 * THREADS);
    let start = Barrier::new(THREADS);
    thread::scope(|threads| {
        for thread in 0..THREADS {
            let (bag, start) = (&bag, &start);
            threads.spawn(move || {
                start.wait();
                for turn in 0..TURNS {
                    if thread == 0 && turn % 50 == 0 {
                        bag.attributes().set_strategy(strategies(turn / 50));
                    }
                    let own = all[thread];
                    let element = own.get().expect("an element was in the bag all the time");
                    match turn % 7 {
                        0 => own.idle(),
                        1 => _ = own.leave(),
                        2 if turn % 3 == 0 => bag.gather(turn % PLACES),
                        3 => drop(Wait::new(bag).block_for(Duration::ZERO).map(|it| own.put(it))),
                        _ => {}
                    }
                    // Into any shard, so that elements wander.
                    all[(turn + thread) % PLACES].put(element);
                }
            });
        }
    });
    let mut left = Vec::new();
    assert_eq!(all[1].get_batch(100, &mut left), 2 * THREADS + 1);
    left.sort_unstable();
    assert_eq!(left, (0..=2 * THREADS).collect::<Vec<_>>());
}

#[test]
fn dp_01_each_element_goes_to_one_client() {
    let bag = Bag::with_places(PLACES);
    let all = clients(&bag);
    let puts = AtomicUsize::new(0);
    let start = Barrier::new(THREADS);
    let taken: Vec<Vec<usize>> = thread::scope(|threads| {
        let spawn = |thread: usize| {
            let (bag, start, puts) = (&bag, &start, &puts);
            threads.spawn(move || {
                let mut got = Vec::new();
                start.wait();
                for turn in 0..TURNS {
                    let own = if turn % 3 == 0 { bag.client(turn % PLACES) } else { all[thread] };
                    match turn % 5 {
                        0 => own.put_batch((0..3).map(|_| puts.fetch_add(1, SeqCst))),
                        1 => own.put(puts.fetch_add(1, SeqCst)),
                        2 => _ = own.get_batch(2, &mut got),
                        3 => own.idle(),
                        _ => got.extend(own.get()),
                    }
                    if turn % 100 == 0 {
                        bag.attributes().set_strategy(strategies(turn / 100 + thread));
                    }
                }
                got
            })
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut seen = HashSet::new();
    let rest = std::iter::from_fn(|| all[0].get());
    taken.into_iter().flatten().chain(rest).for_each(|it| assert!(seen.insert(it), "{it} came twice"));
    assert_eq!(seen.len(), puts.into_inner(), "an element was lost");
}

#[test]
fn dp_12_centralized_clients_put_into_the_first_shard() {
    let bag = Bag::with_places(3);
    bag.attributes().set_strategy(Strategy::Centralized);
    let all = [2, 0, 1].map(|place| bag.client(place));
    all.iter().for_each(|client| client.put(1));
    all[1].put_batch(0..60);
    assert_eq!(all.map(|client| client.len()), [63, 0, 0]);
    assert!(all[2].get().is_some());
}

#[test]
fn bags_of_many_places_find_elements_anywhere() {
    for strategy in Strategy::ALL {
        let bag = Bag::with_places(200);
        bag.attributes().set_strategy(strategy);
        for place in [0, 15, 16, 63, 64, 127, 128, 199] {
            bag.client(place).put(place);
            assert_eq!(bag.client((place + 64) % 200).get(), Some(place), "{strategy:?}");
            assert_eq!(bag.client(place).get(), None);
        }
    }
}

#[test]
fn dp_13_all_peers_are_asked_equally_often() {
    let bag = Bag::with_places(40);
    bag.attributes().set_strategy(Strategy::Distributed);
    let (home, peers) = (bag.client(3), [0, 30, 39].map(|place| bag.client(place)));
    peers.iter().for_each(|peer| peer.put_batch(0..100));
    (0..90).for_each(|_| assert!(home.get().is_some()));
    assert_eq!(peers.map(|peer| peer.len()), [70; 3]);
}

#[test]
fn a_spare_get_leaves_one_element_in_each_other_shard() {
    for strategy in Strategy::ALL {
        let bag = Bag::with_places(4);
        let others = [0, 2, 3].map(|place| bag.client(place));
        others[1].put_batch(0..200);
        others[2].put(200);
        bag.attributes().set_strategy(strategy);
        let mut got = 0;
        while bag.client(1).get_spare().is_some() {
            got += 1;
        }
        assert_eq!((got, others.map(|other| other.len())), (199, [0, 1, 1]), "{strategy:?}");
    }
}

#[test]
fn dp_14_a_bulk_transfer_moves_the_constant_and_its_attribute_changes_it() {
    let bag = Bag::with_places(2);
    let (first, second) = (bag.client(0), bag.client(1));
    bag.attributes().set_strategy(Strategy::BulkTransfer);
    first.put_batch(0..100);
    assert!(second.get().is_some());
    assert_eq!((first.len(), second.len()), (50, 49));
    bag.attributes().set_bulk(10);
    while !second.is_empty() {
        second.get();
    }
    assert!(second.get().is_some());
    assert_eq!((first.len(), second.len()), (40, 9));
    bag.attributes().set_strategy(Strategy::Distributed);
    (0..10).for_each(|_| assert!(second.get().is_some()));
    assert_eq!((first.len(), second.len()), (39, 0));
    bag.attributes().set_strategy(Strategy::BulkTransfer);
    bag.attributes().set_bulk(usize::MAX);
    assert!(second.get().is_some());
    assert_eq!((first.len(), second.len()), (0, 38));
}

#[test]
fn dp_15_to_17_idle_clients_move_elements_at_the_constants() {
    // The first client has `here` elements and is idle; the other has `there`. Returns both sizes after that.
    let idle = |strategy, here: usize, there: usize, events: usize| {
        let bag = Bag::with_places(2);
        let (first, second) = (bag.client(0), bag.client(1));
        bag.attributes().set_strategy(strategy);
        first.put_batch(0..here);
        second.put_batch(0..there);
        (0..events).for_each(|_| first.idle());
        (first.len(), second.len())
    };
    assert_eq!(idle(Strategy::BackgroundPull, 0, 60, 99), (0, 60));
    assert_eq!(idle(Strategy::BackgroundPull, 0, 60, 100), (50, 10));
    assert_eq!(idle(Strategy::BackgroundPull, 1023, 60, 100), (1073, 10));
    assert_eq!(idle(Strategy::BackgroundPull, 1024, 60, 100), (1024, 60));
    assert_eq!(idle(Strategy::BackgroundPull, 0, 0, 200), (0, 0));
    assert_eq!(idle(Strategy::BackgroundPush, 20_000, 0, 100), (20_000, 0));
    assert_eq!(idle(Strategy::BackgroundPush, 20_001, 0, 100), (19_951, 50));
    // Also to a peer that has as many.
    assert_eq!(idle(Strategy::BackgroundPush, 20_001, 30_000, 100), (19_951, 30_050));
    assert_eq!(idle(Strategy::EstimatedPush, 20_001, 0, 100), (19_951, 50));
    assert_eq!(idle(Strategy::BulkTransfer, 20_001, 0, 1000), (20_001, 0));
}

#[test]
fn dp_17_a_push_needs_the_margin_to_the_estimate_that_was_told() {
    // Returns the number of elements that one act of the first client moves. The second has told its size.
    let moved = |here: usize, there: usize, margin: usize| {
        let bag = Bag::with_places(2);
        let (first, second) = (bag.client(0), bag.client(1));
        bag.attributes().set_push_above(100);
        bag.attributes().set_push_margin(margin);
        second.put_batch(0..there);
        (0..100).for_each(|_| second.idle());
        assert_eq!(second.len(), there, "the second client pushed");
        first.put_batch(0..here);
        (0..100).for_each(|_| first.idle());
        here - first.len()
    };
    assert_eq!((moved(700, 0, 600), moved(700, 0, 700), moved(700, 0, 701)), (50, 50, 0));
    assert_eq!(moved(110, 0, 2048), 0, "the margin is larger than the shard");
    // A change of less than 500 was not told.
    assert_eq!((moved(700, 99, 700), moved(700, 99, 701)), (50, 0));
    let bag = Bag::with_places(2);
    let (first, second) = (bag.client(0), bag.client(1));
    second.put_batch(0..600);
    (0..100).for_each(|_| second.idle());
    bag.attributes().set_push_above(0);
    bag.attributes().set_push_margin(500);
    first.put_batch(0..1099);
    (0..100).for_each(|_| first.idle());
    assert_eq!(first.len(), 1099);
    first.put(0);
    (0..100).for_each(|_| first.idle());
    assert_eq!((first.len(), second.len()), (1050, 650));
}

#[test]
fn values_are_dropped_with_the_bag() {
    let value = std::sync::Arc::new(());
    let bag = Bag::with_places(PLACES);
    clients(&bag).iter().for_each(|client| client.put_batch((0..10).map(|_| value.clone())));
    assert_eq!(bag.client(2).get_batch(usize::MAX, &mut Vec::new()), 40);
    bag.client(1).put(value.clone());
    drop(bag);
    assert_eq!(std::sync::Arc::strong_count(&value), 1);
}
