//! Tests of ids: an id has one owner, is given out once in a round, and is found if it is free.

use squall_parts::ids::{Ids, NotLent};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

const THREADS: usize = 4;
const TURNS: usize = if cfg!(miri) { 30 } else { 20_000 };

#[test]
fn dp_19_no_id_is_given_out_again_before_all_others_were() {
    let ids = Ids::with_places(64, 4);
    ids.set_batch(10);
    for round in 0..5 {
        let mut seen = [false; 64];
        for turn in 0..64 {
            let id = ids.get(turn % 3).expect("one id is in use");
            assert!(!std::mem::replace(&mut seen[id as usize], true), "{id} twice in round {round}");
            ids.put((turn + 1) % 4, id);
        }
        assert_eq!((ids.free(), ids.round()), (64, round));
    }
}

#[test]
fn a_round_of_many_ids_ends_before_the_last_ones_are_drawn() {
    const IDS: u32 = 4096;
    let ids = Ids::with_places(IDS, 2);
    assert_eq!(ids.batch(), IDS / 2);
    let other = ids.get(1).unwrap();
    ids.put(1, other);
    let mut seen = vec![false; IDS as usize];
    seen[other as usize] = true;
    let mut drawn = 1;
    let next = loop {
        let id = ids.get(0).expect("one id is in use");
        ids.put(0, id);
        if ids.round() == 1 {
            break id;
        }
        assert!(!std::mem::replace(&mut seen[id as usize], true), "{id} twice in a round");
        drawn += 1;
    };
    assert!((IDS / 2..IDS * 3 / 4 + 2).contains(&drawn), "{drawn}");
    assert!(seen[next as usize], "the place has no other ids");
    assert!(!seen[ids.get(1).unwrap() as usize], "an id that was left over is next");
}

#[test]
fn fresh_ids_are_taken_in_batches_and_in_order() {
    let ids = Ids::with_places(1000, 2);
    ids.set_batch(100);
    assert_eq!((ids.get(0), ids.get(1), ids.get(0)), (Some(0), Some(100), Some(1)));
    let mut some = Vec::new();
    assert_eq!(ids.get_batch(1, 150, &mut some), 150);
    assert_eq!((some[0], some[149]), (101, 250));
    assert_eq!(ids.free(), 1000 - 153);
    assert_eq!((ids.limit(), ids.batch()), (1000, 100));
}

#[test]
fn ids_of_another_shard_are_found() {
    let ids = Ids::with_places(10, 3);
    ids.set_batch(10);
    let mut all = Vec::new();
    assert_eq!(ids.get_batch(0, 20, &mut all), 10);
    assert_eq!((ids.get(1), ids.get(2), ids.free()), (None, None, 0));
    ids.put_batch(0, &all);
    let mut again: Vec<u32> = (0..10).map(|turn| ids.get(turn % 3).unwrap()).collect();
    again.sort_unstable();
    assert_eq!(again, Vec::from_iter(0..10));
}

#[test]
fn gathered_ids_are_in_one_shard() {
    let ids = Ids::with_places(12, 4);
    ids.set_batch(3);
    for place in 0..4 {
        let id = ids.get(place).unwrap();
        ids.put((place + 1) % 4, id);
    }
    ids.gather(2);
    let mut all = Vec::new();
    assert_eq!((ids.free(), ids.get_batch(2, 12, &mut all)), (12, 12));
    all.sort_unstable();
    assert_eq!(all, Vec::from_iter(0..12));
}

#[test]
fn no_id_below_a_limit_of_zero() {
    let ids = Ids::with_places(0, 1);
    assert_eq!((ids.get(0), ids.free()), (None, 0));
}

#[test]
fn a_lent_id_is_redeemed_once() {
    let ids = Ids::with_places(100, 1);
    assert_eq!(ids.redeem(5), Err(NotLent::NotLent));
    ids.lend(5);
    assert_eq!((ids.redeem(5), ids.redeem(5)), (Ok(()), Err(NotLent::NotLent)));
    assert_eq!(ids.redeem(100), Err(NotLent::OutOfRange));
}

#[test]
#[should_panic(expected = "id 3 is none of these ids, which are below 3")]
fn an_id_beyond_the_limit_is_refused() {
    Ids::with_places(3, 1).put(0, 3);
}

#[test]
#[should_panic(expected = "the ids have 2 places, and no place 2")]
fn a_place_beyond_the_last_is_refused() {
    Ids::with_places(3, 2).get(2);
}

/// One more id than threads, and each thread holds at most one. So one is always free.
#[test]
fn dp_05_get_finds_an_id_as_long_as_one_is_free() {
    let ids = Ids::with_places(THREADS as u32 + 1, THREADS);
    ids.set_batch(2);
    let owned: [AtomicBool; THREADS + 1] = Default::default();
    let (start, rounds) = (Barrier::new(THREADS), AtomicUsize::new(0));
    thread::scope(|threads| {
        for thread in 0..THREADS {
            let (ids, owned, start, rounds) = (&ids, &owned, &start, &rounds);
            threads.spawn(move || {
                start.wait();
                for turn in 0..TURNS {
                    let id = ids.get(thread).expect("an id was free all the time");
                    assert!(!owned[id as usize].swap(true, SeqCst), "{id} has two owners");
                    owned[id as usize].store(false, SeqCst);
                    ids.put((thread + turn) % THREADS, id);
                    if thread == 0 && turn % 97 == 0 {
                        ids.gather(turn % THREADS);
                    }
                }
                rounds.fetch_max(ids.round() as usize, SeqCst);
            });
        }
    });
    assert_eq!(ids.free(), THREADS + 1);
    assert!(rounds.into_inner() >= TURNS / (THREADS + 1));
}
