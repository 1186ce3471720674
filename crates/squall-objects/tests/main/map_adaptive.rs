//! The replicated form of the adaptive map, and its changes of form, on a virtual machine of two nodes.
//! Each thread runs on the VP that a test gives it.

use crate::common::{eventually, on};
use crate::maps::Form;
use squall_adapt::decision::Verdict;
use squall_adapt::{control, settings};
use squall_core::{Handle, Id};
use squall_history::maps::{ConcurrentMap, Held, Load, Maker, Step, checks};
use squall_objects::map::{Compute, Map, MapExt, OwnedMap, REPLICATED, SHARED, SMALL};
use std::hash::RandomState;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Locks out the other tests, and makes the policy assume caches without any room.
fn alone() -> MutexGuard<'static, ()> {
    let alone = crate::common::alone();
    settings::ALL.set(&settings::CACHE, 0).unwrap();
    alone
}

type Co = Handle<dyn Map<u64, u64, RandomState>>;

fn id(map: &OwnedMap<u64, u64>) -> Id {
    Handle::id(map.handle())
}

fn form(map: &OwnedMap<u64, u64>) -> &'static str {
    control::status(id(map)).expect("it is adaptive").form
}

fn filled(keys: u64) -> OwnedMap<u64, u64> {
    let map = Form::Adaptive.make(RandomState::new());
    (0..keys).for_each(|key| _ = map.set(key, 0));
    map
}

/// Runs `f` while threads on these VPs call the map. One in so many calls adds to a key, and the others
/// read. Returns the sum of the additions.
fn with_callers(handle: Co, vps: &[u32], one_in: u64, f: impl FnOnce()) -> u64 {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (stop, added) = (&AtomicBool::new(false), &AtomicU64::new(0));
    thread::scope(|scope| {
        for vp in vps {
            scope.spawn(move || {
                on(*vp, || {
                    let (mut calls, mut last) = (0_u64, [0; 64]);
                    while !stop.load(Ordering::Relaxed) {
                        for key in 0..64 {
                            calls += 1;
                            if calls.is_multiple_of(one_in) {
                                assert!(handle.update(&key, |value| value + 1), "{key} was lost");
                                added.fetch_add(1, Ordering::Relaxed);
                            }
                            let now = handle.get(&key).expect("it stays");
                            assert!(
                                now >= last[key as usize],
                                "{key} was {}, and is {now}",
                                last[key as usize]
                            );
                            last[key as usize] = now;
                        }
                        // Lets all threads run, on few processors.
                        thread::yield_now();
                    }
                });
            });
        }
        let _stop = Stop(stop);
        f();
    });
    added.load(Ordering::Relaxed)
}

fn sum(map: &OwnedMap<u64, u64>) -> u64 {
    map.fold(0, |sum, _, value| sum + value)
}

const READERS: [u32; 4] = [0, 1, 17, 25];

#[test]
fn hu_16_an_adaptive_map_that_two_nodes_read_beyond_their_caches_has_copies_and_goes_back() {
    let _alone = alone();
    let map = on(0, || filled(64));
    assert_eq!(form(&map), SMALL);
    let mut added = with_callers(map.handle(), &READERS, 100_000, || {
        eventually("it is copied", || form(&map) == REPLICATED);
        eventually("copies are made", || map.sensors().copies >= 64);
        assert!(map.sensors().reps <= 3, "one for each node, and none for each VP: {:?}", map.sensors());
    });
    let copied = || control::history(id(&map)).into_iter().find(|decision| decision.to == REPLICATED);
    eventually("it is told", || copied().is_some());
    let why = copied().unwrap().why;
    assert!(why.contains(REPLICATED) && why.contains("read"), "{why}");
    assert_eq!(sum(&map), added, "an addition was lost");
    added += with_callers(map.handle(), &READERS, 1, || eventually("it goes back", || form(&map) == SHARED));
    assert_eq!((map.len(), sum(&map)), (64, added), "an addition was lost");
}

#[test]
fn hu_16_readers_of_a_table_are_sampled_too() {
    let _alone = alone();
    let map = on(0, || filled(64));
    control::freeze(id(&map), true).unwrap();
    eventually("no other swap is under way", || control::swap(id(&map), SHARED).is_ok());
    control::freeze(id(&map), false).unwrap();
    with_callers(map.handle(), &READERS, u64::MAX, || {
        eventually("it is copied", || form(&map) == REPLICATED)
    });
    assert_eq!((map.len(), sum(&map)), (64, 0));
}

#[test]
fn one_node_s_readers_have_no_copies() {
    let _alone = alone();
    let map = on(0, || filled(64));
    with_callers(map.handle(), &[0, 1, 5, 9], 100_000, || {
        eventually("it is a table", || form(&map) != SMALL);
        thread::sleep(Duration::from_millis(300));
    });
    let decided = control::history(id(&map));
    assert!(decided.iter().all(|decision| decision.to != REPLICATED), "{decided:?}");
}

#[test]
fn the_table_moves_between_central_and_copied_as_it_is() {
    let _alone = alone();
    // Values that do not move within the table.
    let map: OwnedMap<u64, Box<u64>> = Form::Adaptive.make(RandomState::new());
    on(0, || (0..5000).for_each(|key| _ = map.set(key, Box::new(key))));
    let id = Handle::id(map.handle());
    control::freeze(id, true).unwrap();
    // A swap that was decided before may be under way.
    eventually("no other swap is under way", || control::swap(id, SHARED).is_ok());
    let place = || on(3, || map.with(&1, |value| std::ptr::from_ref(&**value).addr()).unwrap());
    let before = place();
    for to in [REPLICATED, SHARED, REPLICATED] {
        control::swap(id, to).unwrap();
        // The first read of a node finds the original.
        assert_eq!((control::status(id).unwrap().form, map.len(), place()), (to, 5000, before));
    }
    assert_ne!(place(), before, "the next one finds the copy");
    control::swap(id, SMALL).unwrap();
    assert_eq!((map.len(), map.sensors().copies), (5000, 0));
}

#[test]
fn a_spilled_small_form_becomes_the_shared_form_by_reads_alone() {
    let _alone = alone();
    for left in [140_000, 100] {
        let map = on(0, || filled(0));
        control::freeze(id(&map), true).unwrap();
        on(0, || (0..140_000).for_each(|key| _ = map.set(key, 0)));
        // The map shrinks below the limit of the small form.
        map.retain(|key, _| *key < left);
        thread::sleep(Duration::from_millis(20));
        assert_eq!((form(&map), map.sensors().spilled), (SMALL, true));
        control::freeze(id(&map), false).unwrap();
        with_callers(map.handle(), &[0, 1], u64::MAX, || {
            eventually("it has a form of its own", || form(&map) != SMALL)
        });
        assert_eq!((map.len() as u64, map.sensors().spilled), (left, false));
    }
}

/// Each read of the small form clones the value.
#[test]
fn a_map_of_one_thread_with_expensive_clones_is_a_table() {
    let _alone = alone();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(100)).unwrap();
    // For slow machines.
    settings::ALL.set(&settings::GAIN, Duration::ZERO).unwrap();
    let map: OwnedMap<u64, Vec<u8>> = Form::Adaptive.make(RandomState::new());
    let id = Handle::id(map.handle());
    on(0, || {
        (0..64).for_each(|key| _ = map.set(key, vec![1; 1000]));
        let began = Instant::now();
        let mut since = None;
        // The map becomes a table, and stays one.
        while since.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(2500)) {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", control::history(id));
            (0..64).for_each(|key| assert_eq!(map.with(&key, Vec::len), Some(1000)));
            match (control::status(id).unwrap().form == SHARED, since) {
                (true, None) => since = Some(Instant::now()),
                (is_table, since) => assert!(is_table || since.is_none(), "{:?}", control::history(id)),
            }
        }
        assert!(map.contains_key(&1) && !map.contains_key(&64));
    });
    settings::ALL.unset(settings::GAIN.name()).unwrap();
    settings::ALL.unset(settings::QUIET.name()).unwrap();
}

#[test]
fn a_large_table_of_one_thread_stays_one_and_a_small_one_goes_back() {
    let _alone = alone();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(100)).unwrap();
    let maps = [64, 140_000].map(|entries| {
        let map = on(0, || filled(0));
        control::freeze(id(&map), true).unwrap();
        on(0, || (0..entries).for_each(|key| _ = map.set(key, 0)));
        eventually("no other swap is under way", || control::swap(id(&map), SHARED).is_ok());
        control::freeze(id(&map), false).unwrap();
        map
    });
    let [small, large] = &maps;
    with_callers(large.handle(), &[0], u64::MAX, || {
        _ = with_callers(small.handle(), &[0], u64::MAX, || {
            eventually("the small one goes back", || form(small) == SMALL);
            // The policy looks at the called map each second, and waits for three quiet rounds.
            thread::sleep(Duration::from_millis(2500));
        });
    });
    let decided = control::history(id(large));
    let swaps = decided.iter().filter(|decision| decision.verdict == Verdict::Swapped).count();
    assert_eq!((form(large), swaps), (SHARED, 0), "{decided:?}");
    settings::ALL.unset(settings::QUIET.name()).unwrap();
}

/// Returns the number of swaps to the small form by the policy.
fn folds(map: &OwnedMap<u64, u64>) -> usize {
    let is_fold =
        |decision: &control::Decision| (decision.to, &decision.verdict) == (SMALL, &Verdict::Swapped);
    control::history(id(map)).iter().filter(|decision| is_fold(decision)).count()
}

#[test]
fn a_single_writer_gets_the_lock_without_a_quiet_time() {
    let _alone = alone();
    settings::ALL.set(&settings::QUIET, Duration::from_secs(86_400)).unwrap();
    settings::ALL.set(&settings::GAIN, Duration::ZERO).unwrap();
    let map = on(0, || filled(64));
    let mut added = 0;
    for (vps, expected) in [([3, 9].as_slice(), SHARED), (&[3], SMALL), (&[3, 9], SHARED), (&[9], SMALL)] {
        added += with_callers(map.handle(), vps, 2, || {
            eventually("it has the form for these", || form(&map) == expected);
            // Longer than a cool-down, so that the policy follows the next change at once.
            thread::sleep(Duration::from_millis(250));
        });
    }
    assert_eq!((sum(&map), folds(&map)), (added, 2));
    settings::ALL.unset(settings::GAIN.name()).unwrap();
    settings::ALL.unset(settings::QUIET.name()).unwrap();
}

/// Threads of one processor take turns. Each seems to be alone for a while, and takes the lock from the one
/// before. In the end the lock has no owner any more.
#[test]
fn several_threads_of_one_vp_cause_few_swaps() {
    let _alone = alone();
    settings::ALL.set(&settings::GAIN, Duration::ZERO).unwrap();
    let map = on(0, || filled(64));
    let (turn, stop, handle) = (&AtomicUsize::new(0), &AtomicBool::new(false), map.handle());
    let began = Instant::now();
    let added: u64 = thread::scope(|scope| {
        let body = |thread: usize| {
            let mut added = 0;
            while !stop.load(Ordering::Relaxed) {
                if turn.load(Ordering::Acquire) % 2 != thread {
                    thread::sleep(Duration::from_micros(100));
                    continue;
                }
                (0..40_000).for_each(|call| assert!(handle.update(&(call % 64), |value| value + 1)));
                added += 40_000;
                turn.fetch_add(1, Ordering::Release);
            }
            added
        };
        let threads = [0, 1].map(|thread| scope.spawn(move || on(3, || body(thread))));
        eventually("it is a table", || form(&map) == SHARED);
        // Time for ten swaps, if each were made as soon as the first.
        thread::sleep(Duration::from_secs(4));
        stop.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    // Times after which the policy takes the threads for one.
    let times = [0.05, 0.2, 0.8, 3.2, 12.8, 51.2, 204.8];
    let needed: f64 = times[..folds(&map).min(times.len())].iter().sum();
    assert!(needed < began.elapsed().as_secs_f64(), "{:?}", control::history(id(&map)));
    assert_eq!(sum(&map), added);
    settings::ALL.unset(settings::GAIN.name()).unwrap();
}

// --- the checks of a concurrent map ---

/// An adaptive map that a test steers into its next form with every few calls.
struct Steered<V: Held> {
    map: OwnedMap<u64, V>,
    calls: AtomicUsize,
}

impl<V: Held> Steered<V> {
    fn handle(&self) -> Handle<dyn Map<u64, V, RandomState>> {
        const NEXT: [&str; 5] = [SHARED, REPLICATED, SHARED, SMALL, REPLICATED];
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        let handle = self.map.handle();
        if calls % 7 == 6 && !squall_rcu::in_operation() {
            // Another swap may be under way.
            let _ = control::swap(Handle::id(handle), NEXT[calls / 7 % NEXT.len()]);
        }
        handle
    }
}
as_checked!(Steered<V>, this => this.handle());

struct SteeredMaps;

impl Maker for SteeredMaps {
    type Map<V: Held> = Steered<V>;

    fn make<V: Held>(&self) -> Steered<V> {
        Steered { map: Form::Adaptive.make(RandomState::new()), calls: AtomicUsize::new(0) }
    }

    fn settle(&self) {
        squall_rcu::barrier().expect("no operation is open here");
    }
}

#[test]
fn an_adaptive_map_passes_every_check_in_its_three_forms() {
    let _alone = alone();
    let load = Load { many: 300, rounds: 12, ..Load::default() };
    for check in checks::<SteeredMaps>() {
        // At rest there are copies, in the replicated form.
        if check.name != "drops::counted" {
            (check.run)(&SteeredMaps, &load).unwrap_or_else(|what| panic!("{}: {what}", check.name));
        }
    }
}
