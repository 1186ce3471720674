//! Several threads on keys of their own, and on shared keys.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::contract::{ConcurrentMap, Load, Maker, Outcome, Step, ensure, fill};
use super::crowd::{Meeting, crowd, pause};
use crate::rng::Rng;

/// Number of shared keys.
const FEW: u64 = 16;

/// Each thread fills, reads, changes and empties its own range, while the other threads make the map grow and
/// shrink.
pub(super) fn own_ranges<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    let many = load.many;
    crowd(load.threads, |thread| {
        let own = thread as u64 * many..(thread as u64 + 1) * many;
        for round in 0..2 {
            for key in own.clone() {
                ensure!(map.try_insert(key, key).is_ok(), "key {key} was present before its insertion");
                let again = map.try_insert(key, key + 1);
                ensure!(again == Err(key + 1), "the second try_insert of key {key} returned {again:?}");
                ensure!(map.get(key) == Some(key), "key {key} was lost as soon as it was inserted");
            }
            for key in own.clone() {
                ensure!(map.update(key, &mut |value| value + 1), "key {key} was lost before its update");
                let got = map.get(key);
                ensure!(got == Some(key + 1), "the update of key {key} was lost: {got:?}");
            }
            for key in own.clone() {
                let old = map.insert(key, key + 2);
                ensure!(old == Some(key + 1), "insert at {key} replaced {old:?}");
                let old = map.remove(key);
                ensure!(old == Some(key + 2), "remove of {key} took {old:?}");
                ensure!(map.get(key).is_none(), "key {key} is present after its removal");
                ensure!(!map.update(key, &mut |value| value + 1), "key {key} was updated after its removal");
            }
            if round == 0 {
                map.shrink();
            }
        }
        own.clone().try_for_each(|key| {
            ensure!(!map.set(key, key * 3), "key {key} was present after its last removal");
            Ok(())
        })
    })?;
    let all = many * load.threads as u64;
    ensure!(map.len() as u64 == all, "the map holds {} keys, not {all}", map.len());
    (0..all).try_for_each(|key| {
        let got = map.get(key);
        ensure!(got == Some(key * 3), "at the end key {key} holds {got:?}");
        Ok(())
    })
}

/// All threads insert the same key at once: one succeeds. Then all remove it: one succeeds.
pub(super) fn one_winner<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    let keys = load.many.div_ceil(4);
    let threads = load.threads.min(8);
    let meeting = Meeting::new(threads);
    let tallies = || (0..keys).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let (winners, takers) = (tallies(), tallies());
    // Each thread has its own byte, so that the sum identifies the threads.
    let told = |thread: usize| 1 << (8 * thread);
    crowd(threads, |thread| {
        let member = meeting.member();
        for key in 0..keys {
            member.wait();
            if map.try_insert(key, thread as u64).is_ok() {
                winners[key as usize].fetch_add(told(thread), Ordering::Relaxed);
            }
        }
        Ok(())
    })?;
    for (key, winner) in winners.iter().enumerate() {
        let winner = winner.load(Ordering::Relaxed);
        let there = map.get(key as u64);
        let one = there.is_some_and(|thread| winner == told(thread as usize));
        ensure!(one, "winners of key {key}: {winner:#x}, and its value is {there:?}");
    }
    let meeting = Meeting::new(threads);
    crowd(threads, |thread| {
        let member = meeting.member();
        for key in 0..keys {
            member.wait();
            let got = if thread % 2 == 0 { map.remove(key).is_some() } else { map.discard(key) };
            if got {
                takers[key as usize].fetch_add(told(thread), Ordering::Relaxed);
            }
        }
        Ok(())
    })?;
    let one = |taker: &AtomicU64| taker.load(Ordering::Relaxed).count_ones() == 1;
    let not_one = takers.iter().position(|taker| !one(taker));
    ensure!(not_one.is_none(), "key {not_one:?} was not removed by exactly one thread");
    ensure!(map.len() == 0, "all keys were removed, and {} are present", map.len());
    Ok(())
}

/// All threads request the same key at once, each with its own value: all receive the same value.
pub(super) fn one_value_for_all<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    let keys = load.many.div_ceil(4);
    let meeting = Meeting::new(load.threads);
    // The received value plus one.
    let told: Vec<_> = (0..keys).map(|_| AtomicU64::new(0)).collect();
    crowd(load.threads, |thread| {
        let (member, mut rng) = (meeting.member(), Rng::new(load.seed, thread as u64));
        for key in 0..keys {
            member.wait();
            let got = map.get_or_insert_with(key, &mut || {
                pause(&mut rng);
                thread as u64
            });
            let before = told[key as usize].swap(got + 1, Ordering::Relaxed);
            ensure!(before == 0 || before == got + 1, "key {key} returned {} and {got}", before - 1);
        }
        Ok(())
    })?;
    for (key, told) in told.iter().enumerate() {
        let (told, there) = (told.load(Ordering::Relaxed), map.get(key as u64));
        ensure!(
            there.is_some_and(|there| there + 1 == told),
            "key {key} holds {there:?}, and another value was returned"
        );
    }
    Ok(())
}

/// All threads insert unique values at few keys. Each value is replaced once or remains at the end.
pub(super) fn overwritten_once<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    let all = load.many * load.threads as u64;
    let replaced: Vec<_> = (0..all).map(|_| AtomicU64::new(0)).collect();
    // Every thread uses every key.
    let key_of = |value: u64| value / load.threads as u64 % FEW;
    crowd(load.threads, |thread| {
        let mut rng = Rng::new(load.seed, thread as u64);
        for value in (thread as u64..all).step_by(load.threads) {
            pause(&mut rng);
            if let Some(old) = map.insert(key_of(value), value) {
                ensure!(key_of(old) == key_of(value), "{old} was at another key: {}", key_of(value));
                replaced[old as usize].fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    })?;
    for last in (0..FEW).filter_map(|key| map.get(key)) {
        replaced[last as usize].fetch_add(1, Ordering::Relaxed);
    }
    let wrong = replaced.iter().position(|times| times.load(Ordering::Relaxed) != 1);
    ensure!(wrong.is_none(), "value {wrong:?} was not replaced or left exactly once");
    Ok(())
}

/// All threads add to few keys, by update or compute. No addition is lost.
pub(super) fn counted_updates<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    fill(&map, 0..FEW, |_| 0);
    crowd(load.threads, |thread| {
        let mut rng = Rng::new(load.seed, thread as u64);
        for round in 0..load.many * 2 {
            let (key, mut saw) = (round % FEW, 0);
            let there = map.update(key, &mut |value| {
                saw = *value;
                pause(&mut rng);
                value + 1
            });
            ensure!(there, "key {key} was lost");
            ensure!(saw < load.many * 2 * load.threads as u64, "the update saw {saw}");
            add(&map, FEW + key, 1, &mut rng);
        }
        Ok(())
    })?;
    // Number of additions to one key by all threads.
    let right = |key| (load.many * 2 / FEW + u64::from(key < load.many * 2 % FEW)) * load.threads as u64;
    for key in (0..FEW).filter(|key| right(*key) > 0) {
        for (way, got) in [("updated", map.get(key)), ("computed", map.get(FEW + key))] {
            ensure!(got == Some(right(key)), "{way} key {key} holds {got:?}, not {}", right(key));
        }
    }
    Ok(())
}

fn add(map: &impl ConcurrentMap<u64>, key: u64, more: u64, rng: &mut Rng) {
    map.compute(key, &mut |value| {
        pause(rng);
        Step::Put(value.copied().unwrap_or(0) + more)
    });
}

/// All threads insert and remove the same keys in every way. For each key, insertions into an absent key
/// minus removals equal its final presence.
pub(super) fn balanced<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    let balances: Vec<_> = (0..FEW).map(|_| AtomicI64::new(0)).collect();
    crowd(load.threads, |thread| {
        let mut rng = Rng::new(load.seed, thread as u64);
        for _ in 0..load.many * 3 {
            let key = rng.below(FEW);
            pause(&mut rng);
            let change = match rng.below(8) {
                0 => i64::from(map.insert(key, key).is_none()),
                1 => i64::from(!map.set(key, key)),
                2 => i64::from(map.try_insert(key, key).is_ok()),
                3 => compute_other(&map, key, &mut rng),
                4 | 5 => -i64::from(map.remove(key).is_some()),
                6 => -i64::from(map.discard(key)),
                _ => -i64::from(map.remove_if(key, &mut |value| *value == key)),
            };
            balances[key as usize].fetch_add(change, Ordering::Relaxed);
        }
        Ok(())
    })?;
    let mut there_all = 0;
    for (key, balance) in balances.iter().enumerate() {
        let (balance, there) = (balance.load(Ordering::Relaxed), map.get(key as u64).is_some());
        ensure!(
            balance == i64::from(there),
            "key {key}: {balance} more insertions than removals; present: {there}"
        );
        there_all += usize::from(there);
    }
    ensure!(map.len() == there_all, "len is {}, and {there_all} keys are present", map.len());
    Ok(())
}

/// Removes a present key or inserts an absent one. Returns the change of the number of entries.
fn compute_other(map: &impl ConcurrentMap<u64>, key: u64, rng: &mut Rng) -> i64 {
    let mut change = 0;
    map.compute(key, &mut |value| {
        pause(rng);
        change = if value.is_some() { -1 } else { 1 };
        if value.is_some() { Step::Remove } else { Step::Put(key) }
    });
    change
}

/// Some threads add to keys. Others remove values, any or only odd ones, and add them to other keys. The sum
/// is preserved.
pub(super) fn moved_sums<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    let added = AtomicU64::new(0);
    crowd(load.threads, |thread| {
        let mut rng = Rng::new(load.seed, thread as u64);
        for _ in 0..load.many * 2 {
            let (from, to) = (rng.below(FEW), rng.below(FEW));
            let moved = match thread % 3 {
                0 => {
                    added.fetch_add(1, Ordering::Relaxed);
                    Some(1)
                }
                1 => map.remove(from),
                _ => {
                    let mut odd = None;
                    let goes = map.remove_if(from, &mut |value| {
                        odd = Some(*value).filter(|value| value % 2 == 1);
                        pause(&mut rng);
                        odd.is_some()
                    });
                    odd.filter(|_| goes)
                }
            };
            if let Some(moved) = moved {
                add(&map, to, moved, &mut rng);
            }
        }
        Ok(())
    })?;
    let mut sum = 0;
    map.for_each(&mut |_, value| sum += value);
    let added = added.into_inner();
    ensure!(sum == added, "{added} was added, and the sum is {sum}");
    Ok(())
}
