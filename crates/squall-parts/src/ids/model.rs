//! Models of the two promises about ids, and their twins with one weakened site.

use super::Ids;
#[cfg(loom)]
use super::sites;
use squall_sys::sync::Arc;
use squall_sys::sync::atomic::Ordering;
use squall_sys::sync::thread;

/// Ids with shards at all places. The shard of place 1 has these ids to draw; the others are in use.
fn ids(limit: u32, places: usize, free: &[u32]) -> Arc<Ids> {
    prepare(Ids::make(limit, places), free)
}

/// Like [`ids`], with two places, and with rounds that end as soon as an id came back.
fn ids_that_end_early(limit: u32, free: &[u32]) -> Arc<Ids> {
    prepare(Ids { ends_early: true, ..Ids::make(limit, 2) }, free)
}

fn prepare(ids: Ids, free: &[u32]) -> Arc<Ids> {
    let (limit, places) = (ids.limit, ids.shards.len());
    ids.set_batch(limit);
    (0..places).for_each(|place| _ = ids.shard(place));
    (0..limit).for_each(|id| assert_eq!(ids.get(1), Some(id)));
    ids.put_batch(1, free);
    // The next round, in which the returned ids can be drawn.
    ids.round.store(1, Ordering::Relaxed);
    Arc::new(ids)
}

/// A thread returns an id at one place and then takes one at another. An id is free all the time. The other
/// thread looks at the shards in the order of their places.
fn never_none() {
    let ids = ids(2, 3, &[1]);
    let other = {
        let ids = ids.clone();
        thread::spawn(move || {
            ids.put(0, 0);
            ids.shard(1).get(&ids.round)
        })
    };
    let got = ids.get(2);
    assert!(got.is_some(), "none, although an id was free all the time");
    assert_ne!(got, other.join().unwrap());
}

/// A thread moves ids to its shard and takes one. Meanwhile another thread takes the others.
fn moved() {
    let ids = ids(3, 2, &[0, 1, 2]);
    let mover = {
        let ids = ids.clone();
        thread::spawn(move || ids.get(0))
    };
    let (a, b) = (ids.get(1), ids.get(1));
    let c = mover.join().unwrap();
    assert!(a.is_some() && b.is_some() && c.is_some(), "none, although three ids were there for three gets");
    assert!(a != b && b != c && a != c);
    assert_eq!(ids.get(1), None);
}

/// Two threads take and return ids. A thread gets an id again only in a later round.
fn once_a_round() {
    turns(&ids(2, 2, &[0, 1]));
}

fn turns(ids: &Arc<Ids>) {
    let turn = |ids: &Ids, place: usize| {
        let first = ids.get(place).expect("two threads hold at most one id each");
        let round = ids.round();
        ids.put(place, first);
        let second = ids.get(place).expect("two threads hold at most one id each");
        assert!(first != second || ids.round() > round, "{first} twice in round {round}");
    };
    let other = {
        let ids = ids.clone();
        thread::spawn(move || turn(&ids, 0))
    };
    turn(ids, 1);
    other.join().unwrap();
}

/// Rounds end early, with ids left to draw. No id is given out twice in a round.
fn once_a_round_that_ends_early() {
    turns(&ids_that_end_early(3, &[0, 1, 2]));
}

/// A thread ends a round early while another one ends several. An id is free all the time. If the first one
/// did not hold the search lock, it could set the number of the rounds back after two rounds of the other.
fn early_end() {
    let ids = ids_that_end_early(2, &[0, 1]);
    let other = {
        let ids = ids.clone();
        thread::spawn(move || ids.get(0))
    };
    for _ in 0..6 {
        let id = ids.get(1).expect("none, although the other thread holds at most one of two ids");
        ids.put(1, id);
    }
    assert!(other.join().unwrap().is_some(), "none, although an id was free all the time");
}

/// All ids are in use at the end, so no round begins without need.
fn no_idle_round() {
    let ids = ids(1, 2, &[]);
    let before = ids.round();
    assert_eq!(ids.get(0), None);
    assert_eq!(ids.round(), before, "a round without ids began");
}

/// Makes a test of each model, which must hold.
use squall_sys::models;
models! { within 2: never_none moved once_a_round once_a_round_that_ends_early early_end no_idle_round }

#[cfg(loom)]
#[test]
fn twins() {
    use sites::*;
    for (site, model) in [
        (LOOK, "never_none"),
        (AGAIN, "never_none"),
        (HOLD, "moved"),
        (WAIT, "once_a_round"),
        (EARLY, "early_end"),
    ] {
        squall_sys::sync::weaken::twin(site, &[], &format!("ids::model::{model}::holds"));
    }
}
