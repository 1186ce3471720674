//! Cached lists and maps. Each thread runs on the VP that a test gives it.

use crate::common::{Stop, VPS, alone, eventually, on};
use crate::touchy::{Touchy, ends};
use squall_core::swap::{Swap, swap};
use squall_core::{Handle, Owned};
use squall_history::maps::{ConcurrentMap, Held, Load, Maker, Step, checks};
use squall_machine::{ClusterSize, Vp, machine};
use squall_objects::cached::{
    self, CachedList, CachedMap, CachedMapExt, Coherence, Compute, Computed, Form, Items, Sensors,
};
use std::hash::RandomState;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const SIZES: [ClusterSize; 7] = [
    ClusterSize::Cpu,
    ClusterSize::Core,
    ClusterSize::Cache,
    ClusterSize::Node,
    ClusterSize::Machine,
    ClusterSize::fixed(2),
    ClusterSize::fixed(5),
];

fn everywhere(f: impl Fn(u32)) {
    (0..VPS).for_each(|vp| on(vp, || f(vp)));
}

/// Returns forms of every kind.
fn forms() -> Vec<Form> {
    let mut forms = vec![Form::shared()];
    for size in [ClusterSize::Cpu, ClusterSize::Core, ClusterSize::Node, ClusterSize::fixed(5)] {
        forms.push(Form::distributed(size));
        forms.push(Form::distributed(size).updated());
    }
    for form in [
        Form::where_threads_are(ClusterSize::Core, 3),
        Form::where_threads_are(ClusterSize::Cpu, 1),
        Form::on(ClusterSize::Core, [4, 9, 31].map(Vp::new)),
    ] {
        forms.extend([form.clone(), form.updated()]);
    }
    for most in [1, 3] {
        let form = Form::distributed(ClusterSize::Cache).keeping(most);
        forms.extend([form.clone(), form.updated()]);
    }
    forms
}

type MapRef = Handle<dyn CachedMap<u64, u64, RandomState>>;

/// Returns the increments of three counts between two readings.
fn more(before: Sensors, now: Sensors) -> (u64, u64, u64) {
    (now.asked - before.asked, now.changes - before.changes, now.reached - before.reached)
}

#[test]
fn co_43_what_was_looked_up_is_kept_by_its_cluster() {
    let _alone = alone();
    for size in SIZES {
        let clusters = machine().clusters(size).len();
        let (map, list) = (cached::map(Form::distributed(size)), cached::list(Form::distributed(size)));
        let (map, list) = (map.handle(), list.handle());
        let sensors = || (map.sensors(), list.sensors());
        on(0, || (map.insert(7_u64, 70_u64), list.insert((7_u64, 70_u64))));
        // The inserting cluster caches the entry; no other cluster does.
        assert_eq!((map.sensors().copies, list.sensors().copies), (1, 1), "{size}");
        let before = sensors();
        for _ in 0..3 {
            everywhere(|_| {
                assert_eq!(map.get(&7), Some(70));
                assert_eq!(list.find(|item| item.0 == 7, |item| item.1), Some(70));
            });
        }
        let now = sensors();
        let asked = (clusters - 1) as u64;
        assert_eq!((more(before.0, now.0), more(before.1, now.1)), ((asked, 0, 0), (asked, 0, 0)), "{size}");
        for now in [now.0, now.1] {
            assert_eq!((now.copies, now.full, now.reps, now.entries), (clusters, clusters, clusters, 1));
        }
        // A lookup of a missing key searches the store each time.
        everywhere(|_| assert_eq!((map.get(&8), list.find(|item| item.0 == 8, |_| ())), (None, None)));
        assert_eq!(more(now.0, map.sensors()), (u64::from(VPS), 0, 0));
        assert_eq!(more(now.1, list.sensors()), (u64::from(VPS), 0, 0));
    }
}

#[test]
fn co_43_what_was_removed_is_found_by_nobody_and_kept_by_nobody() {
    let _alone = alone();
    for form in forms() {
        let (map, list) = (cached::map(form.clone()), cached::list(form.clone()));
        let (map, list) = (map.handle(), list.handle());
        for round in 0..4 {
            on(round * 5 % VPS, || {
                map.insert(1, round);
                list.insert(round);
            });
            everywhere(|_| {
                assert_eq!(map.get(&1), Some(round));
                assert!(list.find(|item| *item == round, |_| ()).is_some());
            });
            let item = list.get(|_| true).unwrap();
            on(round * 11 % VPS, || {
                assert_eq!(map.remove(&1), Some(round));
                assert!(list.remove(|item| *item == round).unwrap().is_gone());
            });
            assert!(!list.remove_item(&item) && *item == round);
            assert_eq!((map.sensors().copies, list.sensors().copies), (0, 0), "{form:?}");
            everywhere(|_| {
                assert_eq!((map.get(&1), map.remove(&1)), (None, None));
                assert!(list.find(|_| true, |_| ()).is_none() && list.remove(|_| true).is_none());
            });
            assert!(map.is_empty() && list.is_empty());
        }
    }
}

/// The first of a growing list of numbers is removed repeatedly. A thread that has learned of a removal, or
/// has found a later number alone, never finds the removed one.
#[test]
fn co_43_nobody_finds_what_somebody_knows_to_be_gone_across_swaps() {
    let _alone = alone();
    let rounds = if cfg!(debug_assertions) { 1500 } else { 10_000 };
    let list = cached::list(Form::shared());
    let handle = list.handle();
    let (gone, swaps, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    handle.insert(1);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for reader in 0..3 {
            let (gone, stop) = (&gone, &stop);
            scope.spawn(move || {
                for at in (reader..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    on(at * 5 % VPS, || {
                        let known = gone.load(Ordering::Acquire);
                        let found = handle.find(|_| true, |number| *number).expect("there is always one");
                        assert!(found > known, "{found} was found when {known} was known to be gone");
                        // `found - 2` was removed before `found` was inserted.
                        gone.fetch_max(found.saturating_sub(2), Ordering::AcqRel);
                    });
                }
            });
        }
        scope.spawn(|| {
            for form in forms().into_iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                let done = swap(handle, cached::new_list(form)).is_ok();
                swaps.fetch_add(u64::from(done), Ordering::Relaxed);
            }
        });
        // Continues until there were enough swaps too.
        let mut last = 1;
        while last < rounds || swaps.load(Ordering::Relaxed) < 20 {
            let vp = last as u32 * 7 % VPS;
            on(vp, || handle.insert(last + 1));
            let removed = on(vp * 3 % VPS, || handle.remove(|number| *number <= last));
            assert_eq!(removed.as_deref(), Some(&last));
            gone.fetch_max(last, Ordering::AcqRel);
            last += 1;
        }
    });
    assert_eq!(handle.len(), 1);
    // Items that a lookup cached during the swap are gone with the old object.
    let item = handle.get(|_| true).unwrap();
    assert!(handle.remove_item(&item) && handle.is_empty());
}

#[test]
fn co_43_what_conflicts_is_never_there_together() {
    let _alone = alone();
    let rounds = if cfg!(debug_assertions) { 300 } else { 3000 };
    let overlap = |one: &Range<u64>, other: &Range<u64>| one.start < other.end && other.start < one.end;
    for form in [Form::shared(), Form::distributed(ClusterSize::Core)] {
        let list = cached::list(form);
        let handle = list.handle();
        let inserted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                let inserted = &inserted;
                scope.spawn(move || {
                    for round in 0..rounds {
                        on((thread * 9 + round) as u32 % VPS, || {
                            let start = (thread * 3 + round * 7) % 50;
                            let wanted = start..start + 1 + round % 9;
                            match handle.try_insert(wanted.clone(), overlap) {
                                Ok(item) => {
                                    inserted.fetch_add(1, Ordering::Relaxed);
                                    let mut seen = Vec::new();
                                    handle.for_each(|range| seen.push(range.clone()));
                                    let at = seen.iter().filter(|range| overlap(range, &item)).count();
                                    assert_eq!(at, 1, "{item:?} is among {seen:?}");
                                    assert!(handle.remove_item(&item));
                                }
                                Err(back) => assert_eq!(back, wanted),
                            }
                        });
                    }
                });
            }
        });
        assert!(inserted.into_inner() >= 4 && handle.is_empty());
        assert_eq!(handle.sensors().copies, 0);
    }
}

#[test]
fn to_04_copies_are_taken_away_or_given_the_new_value() {
    let _alone = alone();
    for (form, updates) in [
        (Form::distributed(ClusterSize::Core), false),
        (Form::distributed(ClusterSize::Core).updated(), true),
    ] {
        assert_eq!(form.coherence() == Coherence::Update, updates);
        let map = cached::map(form);
        let handle: MapRef = map.handle();
        on(0, || handle.insert(1, 0));
        let readers = [0, 1, 2, 9, 30];
        let clusters = 4;
        for round in 1..5 {
            readers.iter().for_each(|vp| on(*vp, || assert_eq!(handle.get(&1), Some(round - 1))));
            let before = handle.sensors();
            on(17, || assert_eq!(handle.insert(1, round), Some(round - 1)));
            assert_eq!(more(before, handle.sensors()), (0, 1, clusters), "it reaches those who hold a copy");
            if !updates {
                on(17, || assert_eq!(handle.insert(1, round), Some(round)));
                assert_eq!(more(before, handle.sensors()), (0, 2, clusters), "nobody holds a copy any more");
            }
        }
    }
}

#[test]
fn hu_15_a_change_reaches_the_clusters_that_hold_a_copy_and_no_others() {
    let _alone = alone();
    let map = cached::map(Form::distributed(ClusterSize::Cpu));
    let handle: MapRef = map.handle();
    for key in 0..VPS {
        on(key, || handle.insert(u64::from(key), 0));
        // Each key is cached by its inserter, and by as many readers as its number.
        (0..key).for_each(|vp| on(vp, || _ = handle.get(&u64::from(key))));
    }
    for key in 0..VPS {
        let before = handle.sensors();
        on(5, || assert!(handle.update(&u64::from(key), |n| n + 1)));
        assert_eq!(more(before, handle.sensors()), (0, 1, u64::from(key) + 1));
    }
    everywhere(|vp| assert_eq!(handle.get(&u64::from(vp)), Some(1)));
}

#[test]
fn hu_16_what_is_invalidated_is_copied_and_what_is_updated_is_one() {
    let _alone = alone();
    let copied = cached::map(Form::distributed(ClusterSize::Core));
    let one = cached::map(Form::distributed(ClusterSize::Core).updated());
    for map in [&copied, &one] {
        map.insert(1, String::from("text"));
    }
    let address =
        |map: &cached::OwnedCachedMap<u64, String>, vp| on(vp, || map.with(&1, |text| text.as_ptr().addr()));
    assert_eq!(address(&copied, 0), address(&copied, 1));
    assert_ne!(address(&copied, 0), address(&copied, 2));
    assert_eq!(address(&one, 0), address(&one, 2));
    // Also after a swap that exchanges the two forms.
    swap(one.handle(), cached::new_map(copied.form())).unwrap();
    assert_ne!(address(&one, 0), address(&one, 2));
    swap(copied.handle(), cached::new_map(copied.form().updated())).unwrap();
    assert_eq!(address(&copied, 0), address(&copied, 2));
}

#[test]
fn to_05_thin_representatives_look_into_a_full_one_and_grow_where_threads_are() {
    let _alone = alone();
    // The places of the threads are known beforehand.
    let map = cached::map(Form::on(ClusterSize::Core, [4, 9].map(Vp::new)));
    let handle: MapRef = map.handle();
    on(4, || handle.insert(1, 10));
    everywhere(|_| assert_eq!(handle.get(&1), Some(10)));
    let now = handle.sensors();
    // The core of VP 9 searched the store once. All others found the entry in the cache of VP 4's core.
    assert_eq!((now.reps, now.full, now.copies, now.asked), (16, 2, 2, 1));
    on(31, || assert_eq!(handle.remove(&1), Some(10)));
    everywhere(|_| assert_eq!(handle.get(&1), None));
    assert_eq!(handle.sensors().copies, 0);

    // The places of the threads are discovered. The object was made in the core of VP 6.
    let map = on(6, || cached::map(Form::where_threads_are(ClusterSize::Core, 5)));
    let handle: MapRef = map.handle();
    on(6, || handle.insert(1, 10));
    let full = || handle.sensors().full;
    for lookup in 0..5 {
        on(20, || assert_eq!(handle.get(&1), Some(10)));
        on(21, || ());
        assert_eq!((full(), handle.sensors().asked), (1, 0), "{lookup}: it is thin");
    }
    // A thread that stays there continues with lookups.
    on(21, || assert_eq!(handle.get(&1), Some(10)));
    assert_eq!((full(), handle.sensors().asked, handle.sensors().copies), (2, 1, 2));
    everywhere(|_| assert_eq!(handle.get(&1), Some(10)));
    assert_eq!((full(), handle.sensors().reps), (2, 16));
}

/// Makes `times` successful lookups from this VP.
fn look_for(map: MapRef, list: Handle<dyn CachedList<u64>>, vp: u32, times: u32) {
    on(vp, || {
        for time in 0..times {
            let key = u64::from(time % 10);
            assert_eq!(map.get(&key), Some(key * 10));
            assert!(list.find(|item| *item == key, |_| ()).is_some());
        }
    });
}

#[test]
fn to_05_a_thread_that_moves_on_takes_its_representative_along() {
    let _alone = alone();
    for update in [false, true] {
        let form = Form::where_threads_are(ClusterSize::Core, 20);
        let form = if update { form.updated() } else { form };
        let (map, list) = on(0, || (cached::map(form.clone()), cached::list(form)));
        let (map, list): (MapRef, Handle<dyn CachedList<u64>>) = (map.handle(), list.handle());
        on(0, || {
            (0..10).for_each(|key| _ = map.insert(key, key * 10));
            (0..10).for_each(|key| _ = list.insert(key));
        });
        look_for(map, list, 2, 60);
        for (round, vp) in (1..).zip([4, 6, 8, 10, 12, 14, 16]) {
            // The home caches all entries, so thin representatives find them there.
            look_for(map, list, 0, 10);
            let before = (map.sensors().asked, list.sensors().asked);
            look_for(map, list, vp, 60);
            // The home, and this cluster: it took over the entries of the old cache without a search of the
            // store.
            for now in [map.sensors(), list.sensors()] {
                assert_eq!((now.full, now.copies, now.thinned), (2, 20, round), "at {vp}");
            }
            assert_eq!((map.sensors().asked, list.sensors().asked), before, "at {vp}");
            // A change finds the entries that were taken over.
            on(30, || assert_eq!(map.insert(3, 31), Some(30)));
            on(vp, || assert_eq!(map.get(&3), Some(31)));
            on(vp, || assert_eq!(map.insert(3, 30), Some(31)));
            on(30, || assert!(list.remove(|item| *item == 5).is_some()));
            on(vp, || assert!(list.find(|item| *item == 5, |_| ()).is_none()));
            on(vp, || _ = list.insert(5));
            // A thread that only passes through makes no representative full or thin.
            for passes in [2, vp, 20, 31] {
                on(passes, || assert_eq!(map.get(&3), Some(30)));
            }
        }
        // A return to the old place takes twice as many lookups.
        look_for(map, list, 2, 30);
        assert_eq!((map.sensors().full, map.sensors().thinned), (2, 7));
        look_for(map, list, 2, 30);
        assert_eq!((map.sensors().full, map.sensors().thinned), (2, 8));
        // Thin representatives found the entries at the home, which stays full.
        look_for(map, list, 0, 10);
        assert_eq!(map.sensors().full, 2);
    }
}

#[test]
fn to_05_what_threads_use_stays_full_while_another_one_moves() {
    let _alone = alone();
    let form = Form::where_threads_are(ClusterSize::Core, 10);
    let (map, list) = on(0, || (cached::map(form.clone()), cached::list(form)));
    let (map, list): (MapRef, Handle<dyn CachedList<u64>>) = (map.handle(), list.handle());
    on(0, || (0..10).for_each(|key| _ = (map.insert(key, key * 10), list.insert(key))));
    let living = [30, 26];
    let live = || living.iter().for_each(|vp| look_for(map, list, *vp, 1));
    (0..20).for_each(|_| live());
    living.iter().for_each(|vp| look_for(map, list, *vp, 10));
    assert_eq!((map.sensors().full, map.sensors().thinned), (3, 0));
    for round in 0..40 {
        let vp = 2 + round * 2 % 20;
        // The other threads look up less often than the moving one, and often enough to stay.
        for _ in 0..400 {
            look_for(map, list, vp, 3);
            live();
        }
        for now in [map.sensors(), list.sensors()] {
            assert_eq!((now.full, now.thinned), (4, u64::from(round)), "in round {round}");
        }
        let before = (map.sensors(), list.sensors());
        living.iter().for_each(|vp| look_for(map, list, *vp, 20));
        let none = (0, 0, 0);
        assert_eq!((more(before.0, map.sensors()), more(before.1, list.sensors())), (none, none));
    }
    // Without a lookup in that time, this one becomes thin too.
    look_for(map, list, 24, 60);
    assert_eq!((map.sensors().full, list.sensors().full), (2, 2));
}

#[test]
fn to_05_a_value_that_somebody_knows_of_is_found_while_representatives_come_and_go() {
    let _alone = alone();
    let rounds: u64 = if cfg!(debug_assertions) { 3000 } else { 30_000 };
    for update in [false, true] {
        let form = Form::where_threads_are(ClusterSize::Cpu, 1);
        let form = if update { form.updated() } else { form };
        let (map, list) = (cached::map(form.clone()), cached::list(form.clone()));
        let (handle, items): (MapRef, Handle<dyn CachedList<u64>>) = (map.handle(), list.handle());
        let (known, stop, swaps) = (AtomicU64::new(1), AtomicBool::new(false), AtomicU64::new(0));
        handle.insert(0, 1);
        items.insert(1);
        let thinned = AtomicU64::new(0);
        thread::scope(|scope| {
            let _stop = Stop(&stop);
            for reader in 0..3_u32 {
                let (known, stop) = (&known, &stop);
                scope.spawn(move || {
                    for at in (reader * 11..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                        // With some lookups in each place, it becomes full and others become thin.
                        for _ in 0..6 {
                            on(at * 5 % VPS, || {
                                let before = known.load(Ordering::Acquire);
                                let found = handle.get(&0).expect("it is always there");
                                assert!(found >= before, "{found} was found when {before} was known");
                                known.fetch_max(found, Ordering::AcqRel);
                                let is_there = items.find(|item| *item >= before, |_| ()).is_some();
                                assert!(is_there, "the item that replaced {before} was not found");
                                handle.get(&(u64::from(at) % 7 + 1));
                            });
                        }
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    thinned.fetch_max(handle.sensors().thinned, Ordering::Relaxed);
                    let swapped = swap(handle, cached::new_map(form.clone())).is_ok()
                        && swap(items, cached::new_list(form.clone())).is_ok();
                    swaps.fetch_add(u64::from(swapped), Ordering::Relaxed);
                    // Lets representatives become full and thin.
                    let next = known.load(Ordering::Relaxed) + 100;
                    while known.load(Ordering::Relaxed) < next && !stop.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            });
            let mut value = 2;
            // Goes on until there were enough swaps, and a representative has become thin.
            let goes_on = || swaps.load(Ordering::Relaxed) < 5 || thinned.load(Ordering::Relaxed) == 0;
            while value < rounds || goes_on() {
                on(value as u32 * 7 % VPS, || {
                    items.insert(value);
                    handle.set(0, value);
                    items.remove(|item| *item < value);
                    // Other keys come and go.
                    let key = value % 7 + 1;
                    handle.insert(key, value);
                    assert_eq!(handle.remove(&key), Some(value));
                    assert_eq!(handle.get(&key), None);
                });
                value += 1;
            }
        });
        everywhere(|_| assert_eq!(handle.get(&0), items.find(|_| true, |item| *item)));
        items.remove(|_| true);
        handle.remove(&0);
        assert_eq!((handle.sensors().copies, items.sensors().copies, handle.len()), (0, 0, 0));
    }
}

#[test]
fn to_05_what_representatives_leave_is_dropped_once() {
    let _alone = alone();
    let live = Arc::new(AtomicI64::new(0));
    for update in [false, true] {
        let form = Form::where_threads_are(ClusterSize::Cpu, 3);
        let form = if update { form.updated() } else { form };
        let (map, list) = (cached::map(form.clone()), cached::list(form));
        let (handle, items) = (map.handle(), list.handle());
        (0..20).for_each(|key| {
            handle.insert(key, Counted::new(&live));
            items.insert(Counted::new(&live));
        });
        for vp in (0..VPS).chain((0..VPS).rev()) {
            on(vp, || {
                for key in 0..20 {
                    handle.with(&key, |_| ());
                    items.find(|_| true, |_| ());
                }
            });
        }
        assert!(handle.sensors().thinned > 20 && items.sensors().thinned > 20);
        let kept = handle.sensors().copies as i64;
        eventually("what thin ones left is dropped", || {
            squall_rcu::barrier().unwrap();
            live.load(Ordering::Relaxed) == 40 + if update { 0 } else { kept }
        });
        Owned::destroy(map.into_owned()).wait().unwrap();
        Owned::destroy(list.into_owned()).wait().unwrap();
        eventually("all are dropped", || {
            squall_rcu::barrier().unwrap();
            live.load(Ordering::Relaxed) == 0
        });
    }
}

#[test]
fn a_cluster_keeps_no_more_than_it_may_and_what_went_is_asked_for_again() {
    let _alone = alone();
    let form = Form::distributed(ClusterSize::Cache).keeping(10);
    assert_eq!((form.most(), Form::shared().most()), (10, usize::MAX));
    for form in [form.clone(), form.updated()] {
        let map = cached::map::<u64, u64>(form.clone());
        on(0, || (0..100).for_each(|key| _ = map.set(key, key)));
        assert_eq!((map.len(), map.sensors().copies), (100, 10));
        on(8, || (0..100).for_each(|key| assert_eq!(map.get(&key), Some(key))));
        assert_eq!(map.sensors().copies, 20, "ten in each of two clusters");
        // Cached, uncached and changed entries are all found.
        everywhere(|vp| _ = map.update(&u64::from(vp), |value| value + 100));
        everywhere(|vp| assert_eq!(map.get(&u64::from(vp)), Some(u64::from(vp) + 100)));
        map.clear();
        assert_eq!((map.len(), map.sensors().copies), (0, 0));
        let list = cached::list(form);
        let items: Vec<_> = on(0, || (0..30).map(|number| list.insert(number)).collect());
        assert_eq!((list.len(), list.sensors().copies), (30, 10));
        on(8, || (0..30).for_each(|number| assert!(list.find(|item| *item == number, |_| ()).is_some())));
        assert_eq!(list.sensors().copies, 20);
        // The last ten are cached, since they were looked up last.
        let asked = list.sensors().asked;
        on(8, || (20..30).for_each(|number| assert!(list.find(|item| *item == number, |_| ()).is_some())));
        assert_eq!(list.sensors().asked, asked);
        assert!(items.iter().all(|item| list.remove_item(item)));
        everywhere(|_| assert!(list.find(|_| true, |_| ()).is_none()));
        assert_eq!((list.len(), list.sensors().copies), (0, 0));
    }
    assert!(catch_unwind(|| Form::shared().keeping(0)).is_err());
}

#[test]
fn x_23_every_form_is_swapped_for_every_other_and_all_stays() {
    let _alone = alone();
    let (map, list) = (cached::map(Form::shared()), cached::list(Form::shared()));
    let (map, list) = (map.handle(), list.handle());
    (0..40).for_each(|n| {
        on(n % VPS, || {
            map.insert(u64::from(n), u64::from(n));
            list.insert(n);
        });
    });
    let mut changes = 0;
    for (round, form) in (1_u64..).zip(forms().into_iter().cycle().take(forms().len() * 2)) {
        swap(map, cached::new_map(form.clone())).unwrap();
        swap(list, cached::new_list(form.clone())).unwrap();
        assert_eq!((map.form(), list.form()), (form.clone(), form.clone()));
        everywhere(|vp| {
            for n in [vp % 40, (vp + 13) % 40] {
                assert_eq!(map.get(&u64::from(n)), Some(u64::from(n) + round - 1), "{form:?}");
                assert_eq!(list.find(|there| *there == n, |there| *there), Some(n));
            }
        });
        (0..40).for_each(|n| on(n % VPS, || assert!(map.update(&u64::from(n), |value| value + 1))));
        assert_eq!((map.len(), list.len()), (40, 40));
        let now = map.sensors().changes;
        assert!(now >= changes + 40, "changes are counted across swaps");
        changes = now;
    }
}

#[test]
fn to_05_the_cluster_size_is_changed_while_it_is_used() {
    let _alone = alone();
    let (map, list) =
        (cached::map(Form::distributed(ClusterSize::Cpu)), cached::list(Form::distributed(ClusterSize::Cpu)));
    let (map, list) = (map.handle(), list.handle());
    map.insert(1, 1);
    list.insert(1);
    for size in SIZES {
        map.set_cluster_size(size).unwrap();
        list.set_cluster_size(size).unwrap();
        everywhere(|_| assert_eq!((map.get(&1), list.find(|_| true, |n| *n)), (Some(1), Some(1))));
        let clusters = machine().clusters(size).len();
        assert_eq!((map.sensors().copies, list.sensors().copies), (clusters, clusters));
        assert_eq!(map.form().cluster_size(), size);
    }
}

#[test]
fn a_form_into_which_nothing_moved_says_so() {
    let _alone = alone();
    let (map, list) = (cached::map::<u64, u64>(Form::shared()), cached::list::<u64>(Form::shared()));
    Swap::new(map.handle()).without_state().run(cached::new_map(Form::shared())).unwrap();
    Swap::new(list.handle()).without_state().run(cached::new_list(Form::shared())).unwrap();
    for error in [map.try_form().unwrap_err(), list.try_form().unwrap_err()] {
        assert!(error.to_string().contains("nothing moved in"), "{error}");
    }
    assert!(swap(map.handle(), cached::new_map(Form::shared())).is_err());
}

// --- the map under the checks for all concurrent maps ---

struct Checked<V: Held> {
    /// Present until the drop.
    map: Option<cached::OwnedCachedMap<u64, V>>,
    /// Number of calls, for a map that is swapped meanwhile.
    calls: Option<AtomicUsize>,
}

impl<V: Held> Drop for Checked<V> {
    /// Returns after the object has ended.
    fn drop(&mut self) {
        if let Some(map) = self.map.take().filter(|_| !squall_rcu::in_operation()) {
            Owned::destroy(map.into_owned()).wait().expect("no operation is open here");
        }
    }
}

impl<V: Held> Checked<V> {
    /// Returns the handle. Swaps the map to another form now and then.
    fn handle(&self) -> Handle<dyn CachedMap<u64, V, RandomState>> {
        const OFTEN: usize = 50;
        let handle = self.map.as_ref().expect("it lives").handle();
        if let Some(calls) = &self.calls {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            if call % OFTEN == OFTEN - 1 && !squall_rcu::in_operation() {
                let forms = forms();
                let _ = swap(handle, cached::new_map(forms[call / OFTEN % forms.len()].clone()));
            }
        }
        handle
    }
}

impl<V: Held> ConcurrentMap<V> for Checked<V> {
    fn get(&self, key: u64) -> Option<V> {
        self.handle().get_cloned(&key)
    }

    fn insert(&self, key: u64, value: V) -> Option<V> {
        self.handle().insert(key, value)
    }

    fn set(&self, key: u64, value: V) -> bool {
        self.handle().set(key, value)
    }

    fn try_insert(&self, key: u64, value: V) -> Result<(), V> {
        self.handle().try_insert(key, value).map_err(|(_, value)| value)
    }

    fn get_or_insert_with(&self, key: u64, make: &mut dyn FnMut() -> V) -> V {
        self.handle().get_or_insert_with(key, make)
    }

    fn remove(&self, key: u64) -> Option<V> {
        self.handle().remove(&key)
    }

    fn discard(&self, key: u64) -> bool {
        self.handle().delete(&key)
    }

    fn remove_if(&self, key: u64, goes: &mut dyn FnMut(&V) -> bool) -> bool {
        self.handle().remove_if(&key, goes)
    }

    fn update(&self, key: u64, change: &mut dyn FnMut(&V) -> V) -> bool {
        self.handle().update(&key, change)
    }

    fn compute(&self, key: u64, step: &mut dyn FnMut(Option<&V>) -> Step<V>) {
        let _ = self.handle().compute(key, |value| match step(value) {
            Step::Keep => Compute::Keep,
            Step::Put(value) => Compute::Put(value),
            Step::Remove => Compute::Remove,
        });
    }

    fn for_each(&self, visit: &mut dyn FnMut(u64, &V)) {
        self.handle().for_each(|key, value| visit(*key, value));
    }

    fn retain(&self, keep: &mut dyn FnMut(u64, &V) -> bool) {
        self.handle().retain(|key, value| keep(*key, value));
    }

    fn clear(&self) {
        self.handle().clear();
    }

    fn len(&self) -> usize {
        self.handle().len()
    }
}

struct Maps {
    form: Form,
    swaps: bool,
}

impl Maker for Maps {
    type Map<V: Held> = Checked<V>;

    fn make<V: Held>(&self) -> Checked<V> {
        Checked { map: Some(cached::map(self.form.clone())), calls: self.swaps.then(AtomicUsize::default) }
    }

    fn settle(&self) {
        // The drop of an object frees entries. Their drop frees lines, and the drop of a line frees values.
        (0..8).for_each(|_| _ = squall_rcu::barrier().expect("no operation is open here"));
    }
}

fn load(part: u64) -> Load {
    let load = Load::default();
    let part = if cfg!(debug_assertions) { part * 4 } else { part };
    Load { many: load.many / part, rounds: load.rounds / part as usize + 4, ..load }
}

/// Runs the checks. Values are cached, so there are more instances than entries.
#[track_caller]
fn passes(maps: &Maps, load: &Load) {
    let copies =
        maps.swaps || (maps.form != Form::shared() && maps.form.coherence() == Coherence::Invalidate);
    for check in checks::<Maps>().into_iter().filter(|check| !copies || check.name != "drops::counted") {
        (check.run)(maps, load).unwrap_or_else(|what| panic!("{} of {:?}: {what}", check.name, maps.form));
    }
}

#[test]
fn co_43_the_map_passes_what_every_map_passes_and_is_linearizable() {
    let _alone = alone();
    for form in [
        Form::shared(),
        Form::distributed(ClusterSize::Cpu),
        Form::distributed(ClusterSize::Cpu).updated(),
        Form::distributed(ClusterSize::Node).updated(),
        Form::where_threads_are(ClusterSize::Cpu, 20),
        Form::where_threads_are(ClusterSize::Cpu, 1).updated(),
    ] {
        passes(&Maps { form, swaps: false }, &load(4));
    }
}

#[test]
fn co_43_the_map_is_linearizable_across_swaps() {
    let _alone = alone();
    let load = Load { threads: 3, ..load(20) };
    passes(&Maps { form: Form::shared(), swaps: true }, &load);
}

/// Counts its live instances.
struct Counted(Arc<AtomicI64>);

impl Counted {
    fn new(live: &Arc<AtomicI64>) -> Counted {
        live.fetch_add(1, Ordering::Relaxed);
        Counted(live.clone())
    }
}

impl Clone for Counted {
    fn clone(&self) -> Counted {
        Counted::new(&self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn values_and_items_are_dropped_once_through_changes_swaps_and_the_end() {
    let _alone = alone();
    let live = Arc::new(AtomicI64::new(0));
    for form in forms() {
        let (map, list) = (cached::map(form.clone()), cached::list(form.clone()));
        let (handle, items) = (map.handle(), list.handle());
        for next in [Form::distributed(ClusterSize::Core).updated(), form] {
            for key in 0..9 {
                on(key * 3, || {
                    handle.insert(key, Counted::new(&live));
                    items.insert(Counted::new(&live));
                });
            }
            everywhere(|vp| {
                handle.with(&(vp % 9), |_| ());
                items.find(|_| true, |_| ());
            });
            (0..4).for_each(|key| assert!(handle.update(&key, Counted::clone)));
            (3..6).for_each(|key| assert!(handle.delete(&key)));
            assert!(handle.try_insert(0, Counted::new(&live)).is_err());
            assert!(items.try_insert(Counted::new(&live), |_, _| true).is_err());
            _ = items.remove(|_| true);
            swap(handle, cached::new_map(next.clone())).unwrap();
            swap(items, cached::new_list(next)).unwrap();
        }
        Owned::destroy(map.into_owned()).wait().unwrap();
        Owned::destroy(list.into_owned()).wait().unwrap();
    }
    // A value that a swap replaced may wait for its own grace period.
    eventually("all are dropped", || {
        squall_rcu::barrier().unwrap();
        live.load(Ordering::Relaxed) == 0
    });
}

#[test]
fn a_panic_in_a_closure_changes_nothing() {
    let _alone = alone();
    for form in forms() {
        let (map, list) = (cached::map(form.clone()), cached::list(form));
        let (map, list): (MapRef, Handle<dyn CachedList<u64>>) = (map.handle(), list.handle());
        map.insert(1, 10);
        list.insert(1);
        let panics = |f: &dyn Fn()| {
            assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
            assert!(!squall_rcu::in_operation());
        };
        everywhere(|_| {
            panics(&|| _ = map.with(&1, |_| panic!("as asked")));
            panics(&|| _ = map.update(&1, |_| panic!("as asked")));
            panics(&|| _ = map.remove_if(&1, |_| panic!("as asked")));
            panics(&|| _ = map.compute(1, |_| panic!("as asked")));
            panics(&|| _ = map.compute(2, |_| panic!("as asked")));
            panics(&|| _ = map.get_or_insert_with(2, || panic!("as asked")));
            panics(&|| map.retain(|_, _| panic!("as asked")));
            panics(&|| _ = list.find(|_| panic!("as asked"), |_| ()));
            panics(&|| _ = list.find(|_| true, |_| panic!("as asked")));
            panics(&|| _ = list.remove(|_| panic!("as asked")));
            panics(&|| _ = list.try_insert(2, |_, _| panic!("as asked")));
        });
        everywhere(|_| {
            assert_eq!((map.get(&1), map.get(&2), map.len()), (Some(10), None, 1));
            assert_eq!((list.find(|_| true, |n| *n), list.len()), (Some(1), 1));
        });
        assert!(map.delete(&1) && list.remove(|_| true).is_some());
    }
}

#[test]
fn a_hash_that_panics_in_a_change_leaves_no_copy_behind() {
    let _alone = alone();
    for form in forms() {
        let map = cached::map(form.clone());
        let handle: Handle<dyn CachedMap<Touchy, u64, RandomState>> = map.handle();
        let agreed = |what: &str| {
            let seen = on(0, || handle.get(&Touchy(1)));
            everywhere(|vp| assert_eq!(handle.get(&Touchy(1)), seen, "{what} from {vp} of {form:?}"));
            seen
        };
        for removes in [false, true] {
            for hashes in 0.. {
                on(9, || handle.insert(Touchy(1), 10));
                assert_eq!(agreed("what was inserted"), Some(10));
                let ended = on(17, || {
                    ends(hashes, || {
                        if removes {
                            handle.delete(&Touchy(1))
                        } else {
                            handle.set(Touchy(1), 11)
                        };
                    })
                });
                let now = agreed("what was changed, or not");
                assert!(now == if removes { None } else { Some(11) } || now == Some(10) && !ended);
                // After the panic, the next change reaches all copies.
                on(30, || handle.insert(Touchy(1), 20));
                assert_eq!(agreed("what was set after"), Some(20));
                on(5, || assert_eq!(handle.remove(&Touchy(1)), Some(20)));
                assert_eq!(agreed("what was removed after"), None);
                assert_eq!((handle.sensors().copies, handle.len()), (0, 0), "{hashes} hashes, {form:?}");
                if ended {
                    break;
                }
            }
        }
    }
}

#[test]
fn an_item_is_removed_from_its_own_list_alone() {
    let _alone = alone();
    for form in forms() {
        let (mine, other) = (cached::list(form.clone()), cached::list(form.clone()));
        let item = mine.insert(1);
        assert!(!other.remove_item(&item) && !item.is_gone());
        everywhere(|_| assert_eq!((mine.len(), mine.find(|_| true, |n| *n)), (1, Some(1))));
        // A swap takes over the items.
        swap(mine.handle(), cached::new_list(form)).unwrap();
        assert!(mine.remove_item(&item) && item.is_gone() && mine.is_empty());
        assert_eq!(mine.sensors().copies, 0);
    }
}

#[test]
fn closures_may_use_what_they_are_called_by() {
    let _alone = alone();
    for form in forms() {
        let (map, list) = (cached::map(form.clone()), cached::list(form));
        let (map, list): (MapRef, Handle<dyn CachedList<u64>>) = (map.handle(), list.handle());
        map.insert(1, 10);
        list.insert(1);
        let inside = map.with(&1, |old| {
            assert!(map.delete(&1));
            map.insert(1, 20);
            (*old, map.get(&1))
        });
        assert_eq!(inside, Some((10, Some(20))));
        // The first attempt fails.
        let mut tries = 0;
        let computed = map.compute(1, |value| {
            tries += 1;
            if tries == 1 {
                map.insert(1, 30);
            }
            Compute::Put(value.unwrap() + 1)
        });
        assert_eq!((computed, map.get(&1), tries), (Computed::Updated, Some(31), 2));
        let found = list.find(
            |number| list.len() == 1 && *number == 1,
            |number| {
                list.insert(2);
                list.remove(|there| there == number).is_some()
            },
        );
        assert_eq!((found, list.len(), list.find(|_| true, |n| *n)), (Some(true), 1, Some(2)));
        // An item that is removed during the search is not found. One that was inserted before the search is
        // found.
        let look = |then: Option<u64>| {
            let item = list.get(|_| true).unwrap();
            let once = AtomicBool::new(true);
            let goes = |_: &u64| {
                if once.swap(false, Ordering::Relaxed) {
                    then.inspect(|number| _ = list.insert(*number));
                    assert!(list.remove_item(&item));
                }
                true
            };
            list.find(goes, |number| *number)
        };
        assert_eq!((look(Some(3)), look(Some(4)), look(None)), (Some(3), Some(4), None));
        // An item inserted during the search for a conflict is examined too.
        list.insert(5);
        let once = AtomicBool::new(true);
        let conflicts = |there: &u64, new: &u64| {
            if once.swap(false, Ordering::Relaxed) {
                list.insert(*new);
            }
            there == new
        };
        assert_eq!((list.try_insert(6, conflicts).is_err(), list.len()), (true, 2));
    }
}

#[test]
fn a_borrowed_form_of_a_key_will_do_and_what_is_there_is_shown() {
    let _alone = alone();
    let mut map = cached::map(Form::distributed(ClusterSize::Core));
    map.extend([("one".to_owned(), 1)]);
    assert_eq!(map.get("one"), Some(1));
    assert!(map.update("one", |n| n + 1) && map.contains_key("one"));
    assert_eq!(format!("{map:?}"), r#"{"one": 2}"#);
    assert_eq!(map.remove("one"), Some(2));
    let mut list = cached::list(Form::shared());
    list.extend(["a", "b"]);
    assert_eq!(format!("{list:?}"), r#"["a", "b"]"#);
}
