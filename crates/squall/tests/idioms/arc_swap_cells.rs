//! `arc_swap::ArcSwap`.

use arc_swap::ArcSwap;
use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};

/// A value is replaced as a whole, and readers keep the one that they have.
#[test]
fn a_reader_keeps_its_value() {
    let theirs = ArcSwap::from_pointee(vec![1]);
    let before = theirs.load_full();
    theirs.store(vec![2].into());
    let ours = read_mostly::shared(vec![1]);
    let kept = ours.get_cloned();
    ours.set(vec![2]);
    assert_eq!((*before).clone(), kept);
    assert_eq!((**theirs.load()).clone(), ours.get_cloned());
    ours.read(|value| {
        ours.set(vec![3]);
        assert_eq!(value, &[2], "the value stays during the read");
    });
}

/// `rcu` there and `update` here lose no change.
#[test]
fn updates_lose_no_change() {
    let rounds: u64 = if cfg!(miri) { 20 } else { 2_000 };
    let (theirs, ours) = (ArcSwap::from_pointee(0), read_mostly::shared(0));
    let handle = ours.handle();
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| (0..rounds).for_each(|_| _ = theirs.rcu(|n| **n + 1)));
            threads.spawn(move || (0..rounds).for_each(|_| _ = handle.update(|n| n + 1)));
        }
    });
    assert_eq!((**theirs.load(), ours.get()), (rounds * 2, rounds * 2));
}
