//! The replicated form of the adaptive map, and its changes of form, on a virtual machine of two nodes.
//! Each thread runs on the VP that a test gives it.

use crate::common::{Crew, Stop, Time, eventually, on};
use crate::maps::Form;
use squall_adapt::decision::Verdict;
use squall_adapt::{control, settings};
use squall_core::{Handle, Id};
use squall_history::maps::{ConcurrentMap, Held, Load, Maker, Step, checks};
use squall_objects::map::{Compute, Map, MapExt, OwnedMap, REPLICATED, SHARED, SMALL};
use std::cell::Cell;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Duration;

/// Excludes other tests, and makes the policy assume caches without any room.
fn alone() -> MutexGuard<'static, ()> {
    let alone = crate::common::alone();
    settings::ALL.set(&settings::CACHE, 0).unwrap();
    alone
}

/// Excludes other tests, makes the policy assume caches without any room, and stops the engine's clock.
fn virtual_time() -> Time {
    let time = crate::common::virtual_time();
    settings::ALL.set(&settings::CACHE, 0).unwrap();
    time
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

thread_local! {
    /// Calls made by a thread of a crew.
    static CALLS: Cell<u64> = const { Cell::new(0) };
    /// Key of its next call.
    static KEY: Cell<u64> = const { Cell::new(0) };
}

/// Threads on these VPs that call a map with 64 keys, and the sum of their additions. One in so many calls
/// adds to a key, and the others read.
fn callers(handle: Co, vps: &[u32], one_in: u64) -> (Crew, Arc<AtomicU64>) {
    let added = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&added);
    let body = move |calls| {
        for _ in 0..calls {
            let key = KEY.replace((KEY.get() + 1) % 64);
            CALLS.set(CALLS.get() + 1);
            if CALLS.get().is_multiple_of(one_in) {
                assert!(handle.update(&key, |value| value + 1), "{key} was lost");
                count.fetch_add(1, Ordering::Relaxed);
            }
            handle.get(&key).expect("it stays");
        }
    };
    (Crew::of_threads(vps, CALLS_PER_MS, body), added)
}

/// Calls of each thread in a virtual millisecond.
const CALLS_PER_MS: u32 = 250;

/// Runs `f` with these callers as the load. Returns the sum of their additions.
fn with_callers(time: &mut Time, handle: Co, vps: &[u32], one_in: u64, f: impl FnOnce(&mut Time)) -> u64 {
    let (crew, added) = callers(handle, vps, one_in);
    time.with(crew, f);
    added.load(Ordering::Relaxed)
}

/// Runs `f` while threads on these VPs call the map in real time. Returns the sum of their additions.
fn with_threads(handle: Co, vps: &[u32], one_in: u64, f: impl FnOnce()) -> u64 {
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
                            let before = std::mem::replace(&mut last[key as usize], now);
                            assert!(now >= before, "{key} was {before}, and is {now}");
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
    let mut time = virtual_time();
    let map = on(0, || filled(64));
    assert_eq!(form(&map), SMALL);
    let mut added = with_callers(&mut time, map.handle(), &READERS, 100_000, |time| {
        time.until("it is replicated", || form(&map) == REPLICATED);
        time.until("copies are made", || map.sensors().copies >= 64);
        assert!(map.sensors().reps <= 3, "one for each node, and none for each VP: {:?}", map.sensors());
    });
    let replicated = control::history(id(&map)).into_iter().find(|decision| decision.to == REPLICATED);
    let replicated = replicated.unwrap();
    let readings = replicated.readings();
    assert!(readings.contains(REPLICATED) && readings.contains("read"), "{readings}");
    assert_eq!(sum(&map), added, "an addition was lost");
    added += with_callers(&mut time, map.handle(), &READERS, 1, |time| {
        time.until("it is shared", || form(&map) == SHARED);
    });
    assert_eq!((map.len(), sum(&map)), (64, added), "an addition was lost");
}

#[test]
fn additions_and_reads_during_swaps_by_the_engines_thread_are_kept() {
    let _alone = alone();
    let map = on(0, || filled(64));
    let added = with_threads(map.handle(), &READERS, 100, || {
        let swaps =
            || control::history(id(&map)).into_iter().filter(|d| d.verdict == Verdict::Swapped).count();
        eventually("the map was swapped", || swaps() > 0);
    });
    assert_eq!((map.len(), sum(&map)), (64, added), "an addition was lost");
}

#[test]
fn hu_16_readers_of_a_table_are_sampled_too() {
    let mut time = virtual_time();
    let map = on(0, || filled(64));
    control::swap(id(&map), SHARED).unwrap();
    with_callers(&mut time, map.handle(), &READERS, u64::MAX, |time| {
        time.until("it is replicated", || form(&map) == REPLICATED)
    });
    assert_eq!((map.len(), sum(&map)), (64, 0));
}

#[test]
fn readers_on_one_node_get_no_copies() {
    let mut time = virtual_time();
    let map = on(0, || filled(64));
    with_callers(&mut time, map.handle(), &[0, 1, 5, 9], 100_000, |time| {
        time.until("it is a table", || form(&map) != SMALL);
        time.pass(Duration::from_secs(3));
    });
    let decided = control::history(id(&map));
    assert!(decided.iter().all(|decision| decision.to != REPLICATED), "{decided:?}");
}

#[test]
fn swaps_between_the_shared_and_the_replicated_form_keep_the_table() {
    let _time = virtual_time();
    // Values that do not move within the table.
    let map: OwnedMap<u64, Box<u64>> = Form::Adaptive.make(RandomState::new());
    on(0, || (0..5000).for_each(|key| _ = map.set(key, Box::new(key))));
    let id = Handle::id(map.handle());
    control::swap(id, SHARED).unwrap();
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
    let mut time = virtual_time();
    for left in [140_000, 100] {
        let map = on(0, || filled(0));
        on(0, || (0..140_000).for_each(|key| _ = map.set(key, 0)));
        // The map shrinks below the limit of the small form.
        map.retain(|key, _| *key < left);
        assert_eq!((form(&map), map.sensors().spilled), (SMALL, true));
        with_callers(&mut time, map.handle(), &[0, 1], u64::MAX, |time| {
            time.until("it has another form", || form(&map) != SMALL)
        });
        assert_eq!((map.len() as u64, map.sensors().spilled), (left, false));
    }
}

/// Each read of the small form clones the value.
#[test]
fn a_map_of_one_thread_with_expensive_clones_is_a_table() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(100)).unwrap();
    let map: OwnedMap<u64, Vec<u8>> = Form::Adaptive.make(RandomState::new());
    let (handle, id) = (map.handle(), Handle::id(map.handle()));
    on(0, || (0..64).for_each(|key| _ = map.set(key, vec![1; 1000])));
    let body = move |calls: u32| {
        for call in 0..u64::from(calls) {
            assert_eq!(handle.with(&(call % 64), Vec::len), Some(1000));
        }
    };
    let form = || control::status(id).unwrap().form;
    time.with(Crew::of_threads(&[0], CALLS_PER_MS, body), |time| {
        time.until("it is a table", || form() == SHARED);
        time.pass(Duration::from_secs(5));
    });
    let history = control::history(id);
    assert_eq!((form(), history.len()), (SHARED, 1), "it stays a table: {history:?}");
    assert!(map.contains_key(&1) && !map.contains_key(&64));
}

#[test]
fn a_large_table_of_one_thread_stays_one_and_a_small_one_goes_back() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(100)).unwrap();
    let maps = [64, 140_000].map(|entries| {
        let map = on(0, || filled(0));
        on(0, || (0..entries).for_each(|key| _ = map.set(key, 0)));
        control::swap(id(&map), SHARED).unwrap();
        map
    });
    let [small, large] = &maps;
    let handles = [small.handle(), large.handle()];
    let both = move |calls: u32| {
        for call in 0..u64::from(calls) {
            handles.iter().for_each(|handle| assert!(handle.get(&(call % 64)).is_some()));
        }
    };
    time.with(Crew::of_threads(&[0], CALLS_PER_MS, both), |time| {
        time.until("the small one goes back", || form(small) == SMALL);
        // The policy looks at the called map each second, and waits for three quiet rounds.
        time.pass(Duration::from_secs(5));
    });
    let decided = control::history(id(large));
    let swaps = decided.iter().filter(|decision| decision.verdict == Verdict::Swapped).count();
    assert_eq!((form(large), swaps), (SHARED, 0), "{decided:?}");
}

/// Returns the number of swaps to the small form by the policy.
fn folds(map: &OwnedMap<u64, u64>) -> usize {
    let is_fold =
        |decision: &control::Decision| (decision.to, &decision.verdict) == (SMALL, &Verdict::Swapped);
    control::history(id(map)).iter().filter(|decision| is_fold(decision)).count()
}

#[test]
fn a_single_writer_gets_the_lock_without_a_quiet_time() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::QUIET, Duration::from_secs(86_400)).unwrap();
    let map = on(0, || filled(64));
    let mut added = 0;
    for (vps, expected) in [([3, 9].as_slice(), SHARED), (&[3], SMALL), (&[3, 9], SHARED), (&[9], SMALL)] {
        added += with_callers(&mut time, map.handle(), vps, 2, |time| {
            time.until("it has the form for these", || form(&map) == expected);
            // Longer than a cool-down, so that the policy follows the next change at once.
            time.pass(Duration::from_millis(250));
        });
    }
    assert_eq!((sum(&map), folds(&map)), (added, 2));
}

/// Threads of one processor take turns. Each seems to be alone for a while, and takes the lock from the one
/// before. In the end the lock has no owner any more.
#[test]
fn several_threads_of_one_vp_cause_few_swaps() {
    let mut time = virtual_time();
    let map = on(0, || filled(64));
    let (handle, added) = (map.handle(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&added);
    let body = move |calls: u32| {
        for call in 0..u64::from(calls) {
            assert!(handle.update(&(call % 64), |value| value + 1));
        }
        count.fetch_add(calls.into(), Ordering::Relaxed);
    };
    let mut threads = [0, 1].map(|_| Crew::of_threads(&[3], CALLS_PER_MS, body.clone()));
    let mut steps = 0;
    time.engine.set_load(move |span| {
        steps += 1;
        // Turns of 40 milliseconds.
        threads[steps / 40 % 2].work(span);
    });
    time.until("it is a table", || form(&map) == SHARED);
    let began = time.engine.now();
    // Time for ten swaps, if each were made as soon as the first.
    time.pass(Duration::from_secs(4));
    time.engine.clear_load();
    // Times after which the policy takes the threads for one.
    let times = [0.05, 0.2, 0.8, 3.2, 12.8, 51.2, 204.8];
    let needed: f64 = times[..folds(&map).min(times.len())].iter().sum();
    let took = time.engine.now() - began;
    assert!(needed < took.as_secs_f64(), "{:?}", control::history(id(&map)));
    assert_eq!(sum(&map), added.load(Ordering::Relaxed));
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
    let load = Load { many: 150, rounds: 6, ..Load::default() };
    for check in checks::<SteeredMaps>() {
        // At rest there are copies, in the replicated form.
        if check.name != "drops::counted" {
            (check.run)(&SteeredMaps, &load).unwrap_or_else(|what| panic!("{}: {what}", check.name));
        }
    }
}
