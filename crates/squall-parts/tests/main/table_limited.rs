//! Tests of the table with a limit: it holds at every moment, and the count stays exact after rejections,
//! changes and panics.

use squall_parts::table::{Compute, Computed, Limited, Table};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

#[test]
fn new_keys_beyond_the_limit_are_rejected() {
    let table: Limited<u64, String> = Limited::new(3);
    for key in 0..3 {
        assert_eq!(table.set(key, key.to_string()), Ok(false));
    }
    let full = table.set(3, "3".into()).unwrap_err();
    assert_eq!((full.back, full.exhausted.limit, full.exhausted.taken), ((3, "3".into()), 3, 3));
    assert_eq!(table.try_insert(3, "3".into()).unwrap_err().back, (3, "3".into()));
    assert!(table.compute(3, |there| Compute::Put(format!("{there:?}"))).is_err());
    assert_eq!(table.compute(3, |_| Compute::Keep), Ok(Computed::Kept), "no new key was requested");
    // Present keys change as before.
    assert_eq!((table.set(1, "one".into()), table.try_insert(1, "1".into())), (Ok(true), Ok(false)));
    assert_eq!(table.compute(2, |_| Compute::Put("two".into())), Ok(Computed::Updated));
    assert!(table.update(&0, |_| "zero".into()));
    assert_eq!(table.compute(2, |_| Compute::Remove), Ok(Computed::Removed));
    assert_eq!((table.budget().taken(), table.len()), (2, 2));
    assert_eq!((table.try_insert(5, "5".into()), table.remove(&5)), (Ok(true), Some("5".into())));
    assert!(table.remove(&5).is_none() && !table.delete(&5));
    table.retain(|key, _| *key == 1);
    assert_eq!((table.budget().taken(), table.get_cloned(&1).as_deref()), (1, Some("one")));
    table.budget().set_limit(0);
    assert!(table.set(7, String::new()).is_err() && table.set(1, String::new()) == Ok(true));
    // A table that already has more entries than the limit.
    let table = Limited::with_table(table.into_table(), 0);
    assert!(table.budget().taken() == 1 && table.delete(&1) && table.is_empty());
}

#[test]
fn panics_leave_the_count_right() {
    struct Fragile;
    impl Clone for Fragile {
        fn clone(&self) -> Fragile {
            panic!("as asked")
        }
    }
    let table: Limited<u64, Fragile> = Limited::new(2);
    table.try_insert(1, Fragile).ok().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| table.compute(2, |_| panic!("as asked")))).is_err());
    assert_eq!((table.budget().taken(), table.len()), (1, 1));
    assert!(
        catch_unwind(AssertUnwindSafe(|| table.remove(&1))).is_err(),
        "the value is removed and cannot be cloned"
    );
    assert_eq!((table.budget().taken(), table.len()), (0, 0));
}

/// There are never more entries than the limit, and at the end the count is the number of entries.
#[test]
fn the_limit_always_holds_and_the_count_ends_exact() {
    const MOST: u64 = 20;
    const KEYS: u64 = 64;
    let table: Limited<u64, u64> = Limited::with_table(Table::new(), MOST);
    let (over, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    let rounds: u64 = if cfg!(miri) { 30 } else { 20_000 };
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // The budget never exceeds its limit, and each entry has taken one from it.
                assert!(table.budget().taken() <= MOST);
                thread::yield_now();
            }
        });
        let workers: Vec<_> = (0..3_u64)
            .map(|worker| {
                let (table, refused) = (&table, &refused);
                scope.spawn(move || {
                    let mut draw = worker + 1;
                    for _ in 0..rounds {
                        draw = draw
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let key = (draw >> 33) % KEYS;
                        let done = match (draw >> 40) % 5 {
                            0 => table.set(key, worker).map(drop).map_err(drop),
                            1 => table.try_insert(key, worker).map(drop).map_err(drop),
                            2 => table.compute(key, |_| Compute::Put(worker)).map(drop).map_err(drop),
                            3 => table.compute(key, |_| Compute::Remove).map(drop).map_err(drop),
                            _ => {
                                table.delete(&key);
                                Ok(())
                            }
                        };
                        refused.fetch_add(u64::from(done.is_err()), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        over.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
    let mut entries = 0;
    table.for_each(|_, _| entries += 1);
    assert_eq!((table.budget().taken(), table.len() as u64), (entries, entries));
    assert!(entries <= MOST && (cfg!(miri) || refused.load(Ordering::Relaxed) > 0));
}
