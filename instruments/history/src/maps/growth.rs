//! Checks during growth and shrinking of the map.

use super::contract::{ConcurrentMap, Load, Maker, Outcome, empty, ensure, fill};
use super::crowd::{Over, crowd};

/// Number of keys that stay present.
const STABLE: u64 = 64;
/// First of the keys that make the map grow. Keys between the two groups are never present.
const OTHERS: u64 = 10_000;

/// One thread grows and shrinks the map while all others read. Present keys have their values; absent keys
/// stay absent.
pub(super) fn readers<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    fill(&map, 0..STABLE, |key| !key);
    let over = Over::default();
    crowd(load.threads, |thread| {
        if thread == 0 {
            let _until = over.until_dropped();
            (0..4).for_each(|round| grow_and_shrink(&map, load.many, round));
            return Ok(());
        }
        while !over.is_over() {
            for key in 0..STABLE {
                let got = map.get(key);
                ensure!(got == Some(!key), "while the map grew, {got:?} was found at {key}");
                let absent = map.get(STABLE + key);
                ensure!(
                    absent.is_none(),
                    "while the map grew, {absent:?} was found at the absent key {}",
                    STABLE + key
                );
            }
        }
        Ok(())
    })
}

fn grow_and_shrink(map: &impl ConcurrentMap<u64>, many: u64, round: u64) {
    if round % 2 == 1 {
        map.reserve(many as usize);
    }
    fill(map, OTHERS..OTHERS + many, |key| key);
    empty(map, OTHERS..OTHERS + many);
    map.shrink();
}

/// One thread grows and shrinks the map while all others add to each key. No addition is lost.
pub(super) fn updates<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    let rounds = 4;
    let keys = load.many / 2;
    fill(&map, 0..keys, |_| 0);
    crowd(load.threads.max(2), |thread| {
        for round in 0..rounds {
            if thread == 0 {
                grow_and_shrink(&map, load.many, round);
                continue;
            }
            for key in 0..keys {
                ensure!(map.update(key, &mut |value| value + 1), "key {key} was lost");
            }
        }
        Ok(())
    })?;
    let right = rounds * (load.threads.max(2) as u64 - 1);
    ensure!(map.len() as u64 == keys, "the map holds {} keys, not {keys}", map.len());
    (0..keys).try_for_each(|key| {
        let got = map.get(key);
        ensure!(got == Some(right), "key {key} holds {got:?}, not {right}");
        Ok(())
    })
}
