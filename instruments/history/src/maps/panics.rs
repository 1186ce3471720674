//! Functions passed by the user that panic.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use super::contract::{ConcurrentMap, Load, Maker, Outcome, ensure, fill};
use super::crowd::crowd;
use crate::rng::Rng;

/// Number of present keys, of twice as many.
const KEYS: u64 = 8;

/// Each passed function panics. The map is unchanged and stays usable. Meanwhile another thread counts in the
/// same keys.
pub(super) fn change_nothing<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let map = maker.make::<u64>();
    fill(&map, 0..KEYS, |_| 0);
    alone(&map)?;
    let planned = AtomicU64::new(0);
    crowd(load.threads.max(2), |thread| {
        let mut rng = Rng::new(load.seed, thread as u64);
        for round in 0..load.many {
            if thread == 0 {
                let key = round % KEYS;
                ensure!(map.update(key, &mut |value| value + 1), "key {key} was lost");
            } else if panics(&map, rng.below(WAYS), rng.below(KEYS)) {
                planned.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    })?;
    ensure!(planned.into_inner() > 0, "no panic came through");
    ensure!(map.len() as u64 == KEYS, "the map holds {} keys, not {KEYS}", map.len());
    (0..KEYS).try_for_each(|key| {
        let right = load.many / KEYS + u64::from(key < load.many % KEYS);
        let got = map.get(key);
        ensure!(got == Some(right), "key {key} holds {got:?}, not {right}");
        Ok(())
    })
}

fn alone(map: &impl ConcurrentMap<u64>) -> Outcome {
    for way in 0..WAYS {
        for key in 0..KEYS {
            ensure!(panics(map, way, key), "the panic of way {way} was swallowed");
            let got = map.get(key);
            ensure!(got == Some(0), "after a panic of way {way} key {key} holds {got:?}");
            let absent = map.get(KEYS + key);
            ensure!(absent.is_none(), "after a panic of way {way} key {} is present", KEYS + key);
        }
        ensure!(map.len() as u64 == KEYS, "after panics of way {way} the map holds {}", map.len());
    }
    Ok(())
}

/// Number of methods that take a function.
const WAYS: u64 = 7;

/// Passes a panicking function. Returns whether the panic reached the caller.
fn panics(map: &impl ConcurrentMap<u64>, way: u64, key: u64) -> bool {
    // `resume_unwind` skips the panic hook, which would print.
    fn planned() -> ! {
        resume_unwind(Box::new("planned"))
    }
    let run = || match way {
        0 => _ = map.update(key, &mut |_| planned()),
        1 => map.compute(key, &mut |_| planned()),
        2 => map.compute(KEYS + key, &mut |_| planned()),
        3 => _ = map.remove_if(key, &mut |_| planned()),
        4 => _ = map.get_or_insert_with(KEYS + key, &mut || planned()),
        5 => map.for_each(&mut |_, _| planned()),
        _ => map.retain(&mut |_, _| planned()),
    };
    catch_unwind(AssertUnwindSafe(run)).is_err()
}
