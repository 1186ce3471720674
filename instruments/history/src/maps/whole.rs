//! Operations on the whole map: iteration, retention, clearing, length, and one order of all keys.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use super::contract::{ConcurrentMap, Load, Maker, Outcome, empty, ensure, fill};
use super::crowd::{Meeting, Over, crowd, pause};
use crate::rng::Rng;

/// Number of keys that stay present.
const STABLE: u64 = 64;
/// First of the keys that come and go.
const OTHERS: u64 = 10_000;
/// Factor for the rounds of the check in which two threads look for each other's writes. The critical few
/// nanoseconds are rarely hit.
const MEETINGS: u64 = if cfg!(miri) { 10 } else { 60 };
/// Maximum random delay of one of the threads in steps: about as long as a processor may buffer a store.
const LATER_MAX: u64 = 64;

/// One thread iterates while others insert, remove and replace entries. Each key that stays present is
/// visited once, and no foreign entry is visited.
pub(super) fn iteration<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    fill(&map, 0..STABLE, |key| key);
    let over = Over::default();
    crowd(load.threads.max(3), |thread| {
        let mut rng = Rng::new(load.seed, thread as u64);
        if thread == 0 {
            let _until = over.until_dropped();
            return (0..load.many / 4).try_for_each(|_| visit_stable(&map, load.many));
        }
        while !over.is_over() {
            if thread == 1 {
                let key = rng.below(STABLE / 2);
                map.set(key, key + STABLE);
                pause(&mut rng);
            } else {
                fill(&map, OTHERS..OTHERS + load.many / 4, |key| key);
                empty(&map, OTHERS..OTHERS + load.many / 4);
                map.shrink();
            }
        }
        Ok(())
    })
}

fn visit_stable(map: &impl ConcurrentMap<u64>, many: u64) -> Outcome {
    let mut times: BTreeMap<u64, u64> = BTreeMap::new();
    let mut wrong = None;
    map.for_each(&mut |key, value| {
        let right = match key {
            _ if key < STABLE => *value == key || (*value == key + STABLE && key < STABLE / 2),
            _ => *value == key && (OTHERS..OTHERS + many).contains(&key),
        };
        if !right {
            wrong = Some((key, *value));
        }
        if key < STABLE {
            *times.entry(key).or_insert(0) += 1;
        }
    });
    ensure!(wrong.is_none(), "visited {wrong:?}, which was never inserted");
    let not_once: Vec<_> = (0..STABLE).filter(|key| times.get(key) != Some(&1)).collect();
    ensure!(not_once.is_empty(), "keys {not_once:?} stayed present and were not visited exactly once");
    Ok(())
}

/// Each thread inserts its own range, sees all of it, removes it by `retain`, and then sees no part of it.
pub(super) fn retain_own<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    let many = (load.many / 8).max(4);
    crowd(load.threads, |thread| {
        let own = thread as u64 * many..(thread as u64 + 1) * many;
        let seen = || {
            let mut seen = BTreeSet::new();
            map.for_each(&mut |key, _| {
                seen.insert(key);
            });
            seen.range(own.clone()).count() as u64
        };
        for _ in 0..6 {
            fill(&map, own.clone(), |key| key);
            ensure!(seen() == many, "of {many} keys of its own a thread saw {}", seen());
            let mut gone = BTreeSet::new();
            map.retain(&mut |key, _| {
                let is_own = own.contains(&key);
                if is_own {
                    gone.insert(key);
                }
                !is_own
            });
            ensure!(
                gone.len() as u64 == many,
                "of {many} keys of its own a thread was asked about {}",
                gone.len()
            );
            let rest: Vec<_> = own.clone().filter(|key| map.get(*key).is_some()).collect();
            ensure!(rest.is_empty() && seen() == 0, "keys {rest:?} are present after retain removed them");
        }
        Ok(())
    })?;
    ensure!(map.len() == 0, "retain removed all keys, and {} are present", map.len());
    Ok(())
}

/// One thread retains even values while others make all values even. No even value is removed.
pub(super) fn retain_keeps_changed_values<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    let meeting = Meeting::new(load.threads);
    let lost = AtomicU64::new(0);
    crowd(load.threads, |thread| {
        let (member, mut rng) = (meeting.member(), Rng::new(load.seed, thread as u64));
        for _ in 0..load.many / 8 {
            if thread == 0 {
                fill(&map, 0..STABLE, |_| 1);
            }
            member.wait();
            if thread == 0 {
                map.retain(&mut |_, value| {
                    pause(&mut rng);
                    value % 2 == 0
                });
            }
            let others = load.threads as u64 - 1;
            for key in (0..STABLE).filter(|key| key % others + 1 == thread as u64) {
                pause(&mut rng);
                map.set(key, 2);
            }
            member.wait();
            let gone = (0..STABLE).filter(|key| thread == 0 && map.get(*key) != Some(2)).count();
            lost.fetch_add(gone as u64, Ordering::Relaxed);
        }
        Ok(())
    })?;
    let lost = lost.into_inner();
    ensure!(lost == 0, "retain removed {lost} values that the function kept");
    Ok(())
}

/// One thread clears the map while others insert each key once. Earlier keys are gone, later keys are
/// present.
pub(super) fn clear<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    let inserters = load.threads.max(2) - 1;
    let inserted: Vec<_> = (0..inserters).map(|_| AtomicU64::new(0)).collect();
    let key = |thread: usize, at: u64| (thread as u64 * load.many * 4) + at;
    // Acquire: pairs with the Release of the inserters. Counted keys were present.
    let so_far = || inserted.iter().map(|count| count.load(Ordering::Acquire)).collect::<Vec<_>>();
    crowd(inserters + 1, |thread| {
        if let Some(count) = inserted.get(thread) {
            for at in 0..load.many * 4 {
                map.set(key(thread, at), at);
                // Release: pairs with the Acquire in `so_far`.
                count.store(at + 1, Ordering::Release);
            }
            return Ok(());
        }
        for _ in 0..load.many / 20 + 2 {
            let before = so_far();
            map.clear();
            for (thread, before) in before.iter().enumerate() {
                let newest = before.saturating_sub(200)..*before;
                let left = newest.filter(|at| map.get(key(thread, *at)).is_some()).count();
                ensure!(left == 0, "{left} keys survived clear");
            }
        }
        Ok(())
    })?;
    map.clear();
    let mut visited = 0;
    map.for_each(&mut |_, _| visited += 1);
    ensure!(
        map.len() == 0 && visited == 0,
        "after clear, len is {} and {visited} entries are visited",
        map.len()
    );
    ensure!(!map.set(1, 1) && map.get(1) == Some(1), "after clear, the map takes no key");
    Ok(())
}

/// After a load, without writers: `len`, iteration and lookups agree.
pub(super) fn len_at_rest<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    let keys = 200;
    for round in 0..6 {
        crowd(load.threads, |thread| {
            let mut rng = Rng::new(load.seed, round << 8 | thread as u64);
            for _ in 0..load.many / 2 {
                let key = rng.below(keys);
                match rng.below(5) {
                    0 | 1 => _ = map.set(key, key),
                    2 => _ = map.try_insert(key, key),
                    3 => _ = map.discard(key),
                    _ => map.retain(&mut |other, _| other != key),
                }
            }
            Ok(())
        })?;
        let mut visited = BTreeSet::new();
        let mut shown = 0;
        map.for_each(&mut |key, _| {
            shown += 1;
            visited.insert(key);
        });
        let found: BTreeSet<_> = (0..keys).filter(|key| map.get(*key).is_some()).collect();
        let (len, count) = (map.len(), found.len());
        ensure!(visited == found && shown == count, "{count} keys are found, and {shown} visited");
        ensure!(len == count && map.is_empty() == (len == 0), "{count} keys are present, and len is {len}");
        if round == 2 {
            map.shrink();
        }
    }
    Ok(())
}

/// Two threads each write a key, then read the other's. The thread that begins its read last must see the
/// other's write. With this rule the orders per key become one order of all keys. A write that returns while
/// its store is still buffered fails here, if the threads run in parallel and the code is optimised.
pub(super) fn each_sees_the_other<M: Maker>(maker: &M, load: &Load) -> Outcome {
    if !load.one_order {
        return Ok(());
    }
    let map = maker.make::<u64>();
    let rounds = load.many * MEETINGS;
    let at = [AtomicU64::new(0), AtomicU64::new(0)];
    crowd(2, |thread| {
        let (own, other) = (thread as u64, 1 - thread as u64);
        let mut rng = Rng::new(load.seed, own);
        let mut missed = Vec::new();
        for round in 1..=rounds {
            at[thread].store(round, Ordering::Relaxed);
            let mut spins = 0;
            while at[1 - thread].load(Ordering::Relaxed) < round {
                spins += 1;
                if spins % 1_000 == 0 {
                    std::thread::yield_now();
                }
                std::hint::spin_loop();
            }
            for step in 0..rng.below(LATER_MAX) {
                black_box(step);
            }
            map.set(own, round);
            if map.get(other).is_none_or(|seen| seen < round) {
                missed.push(round);
            }
        }
        // Reports misses through unused keys of the map.
        fill(&map, missed.into_iter().map(|round| 2 + round * 2 + own), |_| 1);
        Ok(())
    })?;
    let missed = |round: &u64| map.get(2 + round * 2).is_some() && map.get(3 + round * 2).is_some();
    let both = (1..=rounds).filter(missed).count();
    ensure!(
        both == 0,
        "in {both} of {rounds} rounds two threads each wrote a key, and neither saw the other's write"
    );
    Ok(())
}
