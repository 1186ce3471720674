//! Directories: one entry for a key, and a part of it in each cluster.

use crate::common::{alone, on};
use squall_core::Owned;
use squall_core::swap::Swap;
use squall_history::maps::random;
use squall_history::rng::Rng;
use squall_history::spec::{At, KeyOp, KeyRet};
use squall_history::{History, logs};
use squall_machine::ClusterSize;
use squall_objects::directory::{self, Directory, OwnedDirectory, Parts, new_directory};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;

const MANY: u64 = if cfg!(miri) { 30 } else { 2_000 };

/// Creates a directory with numbers as entries and counts as parts.
fn counts(size: ClusterSize) -> OwnedDirectory<u64, u64, u64> {
    directory::distributed(size, |_| 0)
}

fn count(of: &OwnedDirectory<u64, u64, u64>, key: u64) -> u64 {
    of.get_or_make(&key, || key * 10, |entry, part| (assert_eq!(*entry, key * 10), *part += 1));
    key
}

fn sum(of: &OwnedDirectory<u64, u64, u64>, key: u64) -> Option<u64> {
    of.gather(&key, 0, |sum, _, part| *sum += *part)
}

#[test]
fn co_54_each_cluster_has_a_part_and_all_have_one_entry() {
    let _alone = alone();
    for (size, clusters) in [
        (ClusterSize::Cpu, 32),
        (ClusterSize::Core, 16),
        (ClusterSize::Cache, 4),
        (ClusterSize::Node, 2),
        (ClusterSize::Machine, 1),
    ] {
        let uses = counts(size);
        let made = AtomicU64::new(0);
        for vp in 0..32 {
            on(vp, || {
                let make = || made.fetch_add(1, Relaxed);
                uses.get_or_make(&7, make, |entry, part| (assert_eq!(*entry, 0), *part += 1));
            });
        }
        let parts = uses.gather(&7, Vec::new(), |parts, _, part| parts.push(*part)).unwrap();
        assert_eq!(parts, vec![32 / clusters as u64; clusters]);
        let sensors = uses.sensors();
        assert_eq!((sensors.keys, sensors.reps, sensors.parts), (1, clusters, clusters));
        assert_eq!((uses.cluster_size(), made.load(Relaxed)), (size, 1));
        // A read makes no part, in any cluster.
        count(&uses, 8);
        (0..32).for_each(|vp| assert_eq!(on(vp, || uses.read(&8, |entry| *entry)), Some(80)));
        assert_eq!(uses.sensors().parts, clusters + 1);
    }
}

#[test]
fn what_is_removed_is_gone_everywhere_with_its_last_sum() {
    let _alone = alone();
    let uses = counts(ClusterSize::Core);
    (0..32).for_each(|vp| _ = on(vp, || count(&uses, 1)));
    assert_eq!((sum(&uses, 1), sum(&uses, 2)), (Some(32), None));
    assert_eq!(uses.remove_with(&1, 0, |sum, _, part| *sum += *part), Some(32));
    assert!(!uses.remove(&1) && uses.is_empty() && !uses.contains_key(&1));
    assert!((0..32).all(|vp| on(vp, || uses.update(&1, |_, _| ())).is_none()));
    // The key's next life starts with empty parts.
    on(5, || count(&uses, 1));
    assert_eq!(sum(&uses, 1), Some(1));
}

#[test]
fn all_keys_are_gathered_visited_kept_and_extended() {
    let _alone = alone();
    let mut uses = counts(ClusterSize::Cache);
    for key in 0..MANY {
        (0..key % 4).for_each(|cache| _ = on(cache as u32 * 8, || count(&uses, key)));
    }
    uses.extend((0..MANY).map(|key| (key, key * 10)));
    assert_eq!(uses.len() as u64, MANY);
    let sums = uses.gather_all(BTreeMap::new(), |sums, key, entry, part| {
        assert_eq!(*entry, key * 10);
        *sums.entry(*key).or_insert(0) += *part;
    });
    assert!(sums.into_iter().eq((0..MANY).map(|key| (key, key % 4)).filter(|(_, uses)| *uses > 0)));
    uses.retain(|key, _| key % 2 == 0);
    let mut seen = Vec::new();
    uses.for_each(|key, entry| seen.push((*key, *entry)));
    seen.sort_unstable();
    assert!(seen.into_iter().eq((0..MANY).step_by(2).map(|key| (key, key * 10))));
    uses.retain(|key, _| *key == 4);
    assert_eq!(format!("{uses:?}"), "{4: 40}");
    uses.clear();
    assert!(uses.is_empty());
}

#[test]
fn borrowed_keys_errors_and_panics() {
    let _alone = alone();
    let words = directory::shared::<String, usize, Vec<u8>>(|_| Vec::new());
    let failed = words.try_get_or_make("a", || Err("not now"), |_, _| ());
    assert_eq!((failed, words.contains_key("a")), (Err("not now"), false));
    let panics = || words.get_or_make("a", || std::panic::resume_unwind(Box::new(1)), |_, _| ());
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    assert!(words.is_empty());
    words.get_or_make("a", || 1, |_, part| part.push(1));
    let panics = || {
        words.update("a", |_, part| {
            part.push(2);
            std::panic::resume_unwind(Box::new(1))
        })
    };
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    // The locks are not poisoned.
    assert_eq!(words.update("a", |_, part| part.clone()), Some(vec![1, 2]));
    assert!(words.remove("a") && words.update("a", |_, _| ()).is_none());
    // Calls return errors after the object was destroyed.
    let handle = words.handle();
    drop(words);
    assert!(handle.try_sensors().is_err() && handle.try_cluster_size().is_err());
}

#[test]
fn parts_stay_when_the_size_of_clusters_changes() {
    let _alone = alone();
    let uses = counts(ClusterSize::Cpu);
    let mut expected = 0;
    let sizes = [ClusterSize::Node, ClusterSize::Machine, ClusterSize::Cpu, ClusterSize::Core];
    for size in sizes.into_iter().cycle().take(12) {
        (0..32).for_each(|vp| _ = on(vp, || count(&uses, 1)));
        expected += 32;
        uses.set_cluster_size(size).unwrap();
        assert_eq!((uses.cluster_size(), sum(&uses, 1)), (size, Some(expected)));
    }
    // Tables are reused: there are as many as there were representatives at once.
    let parts = uses.gather(&1, 0, |parts, _, _| *parts += 1).unwrap();
    assert_eq!((parts, uses.sensors().parts), (32, 32));
    // A directory swapped in without state returns errors, and shows them in its debug output.
    Swap::new(uses.handle()).without_state().run(new_directory(ClusterSize::Core)).unwrap();
    assert!(uses.try_sensors().is_err() && format!("{uses:?}").contains("no entries moved in"));
}

/// Entries can be changed while all parts are locked.
type Entries = OwnedDirectory<u64, AtomicU64, u64>;

fn perform(of: &Entries, key: u64, guard: &KeyOp) -> KeyRet {
    let value = |entry: &AtomicU64| entry.load(Relaxed);
    let last = |last: &mut Option<u64>, entry: &AtomicU64, _: &mut u64| *last = Some(value(entry));
    match *guard {
        KeyOp::Get => KeyRet::Value(of.read(&key, value)),
        KeyOp::GetOrInsert(new) => KeyRet::Value(Some(of.get_or_make(
            &key,
            || {
                thread::yield_now();
                AtomicU64::new(new)
            },
            |entry, part| (*part += 1, value(entry)).1,
        ))),
        KeyOp::Remove => KeyRet::Value(of.remove_with(&key, None, last).flatten()),
        KeyOp::Discard => KeyRet::Flag(of.remove(&key)),
        KeyOp::Update(more) => {
            let add = |saw: &mut Option<u64>, entry: &AtomicU64, _: &mut u64| {
                *saw = saw.or_else(|| Some(entry.fetch_add(more, Relaxed)));
            };
            KeyRet::Value(of.gather(&key, None, add).flatten())
        }
        _ => {
            let panics = || of.update(&key, |_, _| std::panic::resume_unwind(Box::new(())));
            KeyRet::Flag(catch_unwind(AssertUnwindSafe(panics)).is_err())
        }
    }
}

/// Each call takes effect at one moment, from any cluster, for one key and for all keys, across swaps.
#[test]
fn histories_of_many_clusters_are_linearizable_across_swaps() {
    let _alone = alone();
    let entries: Entries = directory::distributed(ClusterSize::Cpu, |_| 0);
    let (threads, calls, rounds) = (4, 7, if cfg!(miri) { 2 } else { 300 });
    let (meeting, over, swaps) = (Barrier::new(threads), AtomicBool::new(false), AtomicU64::new(0));
    let seed = 20_260_211;
    println!("seed {seed}");
    let work = |mut log: random::MapLog, thread: usize| {
        let mut rng = Rng::new(seed, thread as u64);
        for round in 0..rounds {
            // A busy machine may run the swapping thread late. Without calls, its swap succeeds.
            while round + 1 == rounds && swaps.load(Relaxed) == 0 {
                thread::yield_now();
            }
            meeting.wait();
            for call in 0..calls {
                let new = ((round * calls + call) * threads + thread) as u64;
                let op = match rng.below(10) {
                    0..3 => KeyOp::Get,
                    3..6 => KeyOp::GetOrInsert(new),
                    6 => KeyOp::Remove,
                    7 => KeyOp::Discard,
                    8 => KeyOp::Update(new),
                    _ => KeyOp::UpdateAndPanic,
                };
                let (at, vp) = (At { key: rng.below(2), op }, rng.below(32) as u32);
                on(vp, || _ = log.call(at, |at| perform(&entries, at.key, &at.op)));
            }
        }
        log
    };
    let history = thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (logs(threads, calls * rounds).into_iter().enumerate())
            .map(|(thread, log)| scope.spawn(move || work(log, thread)))
            .collect();
        scope.spawn(|| {
            for size in [ClusterSize::Core, ClusterSize::Cpu, ClusterSize::Node].into_iter().cycle() {
                if over.load(Relaxed) {
                    break;
                }
                swaps.fetch_add(u64::from(entries.set_cluster_size(size).is_ok()), Relaxed);
                thread::yield_now();
            }
        });
        let logs = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        over.store(true, Relaxed);
        History::from_logs(logs)
    });
    random::check(&history, true).unwrap();
}

/// The total of the counts equals the results of the removals and of the last question, in any interleaving.
#[test]
fn each_count_is_in_one_sum_across_removals_and_swaps() {
    let _alone = alone();
    let uses = counts(ClusterSize::Core);
    let (keys, threads, over) = (4_u64, if cfg!(miri) { 2 } else { 4 }, AtomicBool::new(false));
    let summed = AtomicU64::new(0);
    let seed = 20_260_508;
    println!("seed {seed}");
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (uses, summed) = (&uses, &summed);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed, thread);
                    for _ in 0..MANY {
                        let (key, vp) = (rng.below(keys), rng.below(32) as u32);
                        on(vp, || match rng.below(16) {
                            0 => {
                                let last = uses.remove_with(&key, 0, |sum, _, part| *sum += *part);
                                summed.fetch_add(last.unwrap_or(0), Relaxed);
                                count(uses, key);
                            }
                            1 => _ = (sum(uses, key), count(uses, key)),
                            2 => {
                                _ = (uses.read(&key, |entry| assert_eq!(*entry, key * 10)), count(uses, key))
                            }
                            _ => _ = count(uses, key),
                        });
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            for size in [ClusterSize::Cpu, ClusterSize::Node].into_iter().cycle() {
                if over.load(Relaxed) {
                    break;
                }
                // A swap that times out on callers leaves the directory unchanged.
                let _ = uses.set_cluster_size(size);
                thread::yield_now();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        over.store(true, Relaxed);
    });
    let left = uses.gather_all(0, |sum, _, _, part| *sum += *part);
    assert_eq!(summed.load(Relaxed) + left, threads * MANY);
}

#[test]
fn entries_and_parts_are_dropped_once_each_and_may_use_the_directory_then() {
    let _alone = alone();
    struct Counted(Arc<AtomicU64>, Option<squall_core::Handle<dyn Directory<u64, Counted, Counted, Hasher>>>);
    type Hasher = std::hash::RandomState;
    impl Counted {
        fn new(alive: &Arc<AtomicU64>) -> Counted {
            alive.fetch_add(1, SeqCst);
            Counted(alive.clone(), None)
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            assert!(self.0.fetch_sub(1, SeqCst) > 0);
            if let Some(directory) = self.1 {
                // The object may be destroyed by now.
                let _ = catch_unwind(AssertUnwindSafe(|| directory.update(&1, |_, _| ())));
            }
        }
    }
    let alive = Arc::new(AtomicU64::new(0));
    let parts = alive.clone();
    let objects: OwnedDirectory<u64, Counted, Counted> =
        directory::distributed(ClusterSize::Cpu, move |_| Counted::new(&parts));
    let handle = objects.handle();
    for round in 0..MANY / 20 {
        for vp in 0..4 {
            on(vp, || objects.get_or_make(&1, || Counted::new(&alive), |_, part| part.1 = Some(handle)));
        }
        assert!(objects.remove(&1), "round {round}");
    }
    let owned: Owned<dyn Directory<_, _, _, _>> = objects.into_owned();
    Owned::destroy(owned).wait().unwrap();
    squall_rcu::barrier().unwrap();
    assert_eq!(alive.load(SeqCst), 0);
}
