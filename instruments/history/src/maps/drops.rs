//! Checks that each value is dropped once, and not while a function reads it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::contract::{ConcurrentMap, Load, Maker, Outcome, Step, ensure};
use super::crowd::{Over, crowd, pause};
use super::value::{Counted, Ledger};
use crate::rng::Rng;

/// Number of keys, shared by all threads.
const KEYS: u64 = 32;

/// Applies all operations from many threads. At rest, exactly the values in the map are alive; after its
/// drop, none.
pub(super) fn counted<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let ledger = Ledger::new();
    let map = maker.make::<Counted>();
    crowd(load.threads, |thread| {
        let mut rng = Rng::new(load.seed, thread as u64);
        for round in 0..load.many * 2 {
            let key = rng.below(KEYS);
            once(&map, &ledger, key, &mut rng);
            if round % 512 == 511 {
                map.clear();
            }
            if round % 256 == 255 {
                for key in 1_000..1_100 {
                    map.set(key + thread as u64 * 100, Counted::new(&ledger, key));
                }
                map.retain(&mut |key, value| key < 1_000 || value.number() % 2 == 0);
                map.shrink();
            }
        }
        Ok(())
    })?;
    // While an adaptive map changes its form, there are two copies of each value.
    let mut tries = 3_000;
    let (held, alive) = loop {
        maker.settle();
        let (held, alive) = (map.len(), ledger.alive());
        if alive == held as i64 || tries == 0 {
            break (held, alive);
        }
        tries -= 1;
        thread::sleep(Duration::from_millis(1));
    };
    let wrong = ledger.is_wrong();
    ensure!(!wrong, "a value was dropped twice, or read after it was dropped");
    ensure!(alive == held as i64, "the map holds {held} values, and {alive} are alive");
    drop(map);
    maker.settle();
    let (born, died) = ledger.counts();
    ensure!(born == died && !ledger.is_wrong(), "of {born} values {died} were dropped with the map");
    ensure!(
        Arc::strong_count(&ledger) == 1,
        "{} values still hold the ledger",
        Arc::strong_count(&ledger) - 1
    );
    Ok(())
}

fn once(map: &impl ConcurrentMap<Counted>, ledger: &Arc<Ledger>, key: u64, rng: &mut Rng) {
    let new = || Counted::new(ledger, key);
    match rng.below(11) {
        0 => drop(map.insert(key, new())),
        1 => _ = map.set(key, new()),
        2 => drop(map.try_insert(key, new())),
        3 => drop(map.get_or_insert_with(key, &mut || new())),
        4 => drop(map.remove(key)),
        5 => _ = map.discard(key),
        6 => _ = map.remove_if(key, &mut |value| value.number() == key),
        7 => {
            map.update(key, &mut |value| {
                pause(rng);
                Counted::new(ledger, value.number())
            });
        }
        8 => map.compute(key, &mut |value| {
            pause(rng);
            match value {
                Some(_) if key.is_multiple_of(2) => Step::Remove,
                Some(_) => Step::Keep,
                None => Step::Put(new()),
            }
        }),
        9 => {
            let update = || {
                map.update(key, &mut |value| {
                    let _made = value.clone();
                    resume_unwind(Box::new("planned"))
                })
            };
            drop(catch_unwind(AssertUnwindSafe(update)));
        }
        _ => drop(map.get(key)),
    }
}

/// Some threads replace and remove values while others read them. Values that are read must be alive.
pub(super) fn no_reads_after_drop<M: Maker>(maker: &M, load: &Load) -> Outcome {
    let ledger = Ledger::new();
    let map = maker.make::<Counted>();
    let over = Over::default();
    let threads = load.threads.max(3);
    crowd(threads, |thread| {
        let mut rng = Rng::new(load.seed, thread as u64);
        if thread == 0 {
            let _until = over.until_dropped();
            for round in 0..load.many * 4 {
                let key = rng.below(KEYS);
                match round % 3 {
                    0 => map.discard(key),
                    _ => map.set(key, Counted::new(&ledger, key)),
                };
            }
            return Ok(());
        }
        let mut wrong = None;
        while !over.is_over() {
            let key = rng.below(KEYS);
            let got = map.get(key).map(|value| value.number());
            ensure!(got.is_none_or(|got| got == key), "{got:?} was found at {key}");
            map.update(key, &mut |value| {
                let before = value.number();
                pause(&mut rng);
                Counted::new(&ledger, value.number().max(before))
            });
            map.for_each(&mut |key, value| {
                if value.number() != key {
                    wrong = Some(key);
                }
            });
            ensure!(wrong.is_none(), "iteration showed another key's value at {wrong:?}");
            ensure!(!ledger.is_wrong(), "a value was read after it was dropped");
        }
        Ok(())
    })
}
