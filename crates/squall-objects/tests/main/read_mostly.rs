//! Read-mostly values. Each thread runs on the VP that a test gives it.

use crate::common::{Crew, Stop, VPS, alone, eventually, on, virtual_time};
use squall_adapt::control;
use squall_core::swap::{Swap, swap};
use squall_core::{Handle, info_of};
use squall_machine::{ClusterSize, Vp, machine};
use squall_objects::read_mostly::{self, COPIED, OwnedReadMostly, ReadMostly, ReadMostlyExt, SHARED};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

const SIZES: [ClusterSize; 7] = [
    ClusterSize::Cpu,
    ClusterSize::Core,
    ClusterSize::Cache,
    ClusterSize::Node,
    ClusterSize::Machine,
    ClusterSize::fixed(2),
    ClusterSize::fixed(5),
];

/// Returns a value in each form.
fn forms<T: Clone + Send + Sync>(value: &T) -> Vec<OwnedReadMostly<T>> {
    let mut forms = vec![read_mostly::shared(value.clone()), read_mostly::adaptive(value.clone())];
    for size in SIZES {
        forms.push(read_mostly::distributed(value.clone(), size));
        forms.push(read_mostly::copied(value.clone(), size));
    }
    forms
}

fn reps<T: Send + Sync>(handle: Handle<dyn ReadMostly<T>>) -> usize {
    info_of(Handle::id(handle)).unwrap().reps.len()
}

#[test]
fn to_04_a_change_reaches_every_replica_before_it_returns() {
    let _alone = alone();
    for value in forms(&0) {
        let handle = value.handle();
        for round in 1..5 {
            for vp in 0..VPS {
                assert_eq!(
                    on(vp, || handle.read_versioned(|value, version| (*value, version))),
                    (round - 1, round)
                );
            }
            let version = on(round as u32 * 7 % VPS, || handle.set(round));
            assert_eq!((version, handle.version()), (round + 1, round + 1));
        }
        assert_eq!(on(3, || handle.get()), 4);
    }
}

#[test]
fn hu_16_each_cluster_that_reads_has_a_replica_and_others_have_none() {
    let _alone = alone();
    for size in SIZES {
        let value = read_mostly::copied(String::from("text"), size);
        let handle = value.handle();
        let readers = [0, 1, 2, 9, 31];
        let clusters = machine().clusters(size);
        let mut read_by: Vec<_> = readers.iter().map(|vp| clusters.cluster_of(Vp::new(*vp))).collect();
        let at: Vec<usize> =
            readers.iter().map(|vp| on(*vp, || handle.read(|text| text.as_ptr().addr()))).collect();
        for (one, two) in [(0, 1), (0, 3), (2, 4), (3, 4)] {
            assert_eq!(read_by[one] == read_by[two], at[one] == at[two], "{size}: a copy for each cluster");
        }
        read_by.sort();
        read_by.dedup();
        assert_eq!((reps(handle), handle.cluster_size()), (read_by.len(), size));
    }
    // Without copies, all clusters share one value.
    let value = read_mostly::distributed(String::from("text"), ClusterSize::Cpu);
    let at = |vp| on(vp, || value.read(|text| text.as_ptr().addr()));
    assert_eq!(at(0), at(31));
}

#[test]
fn a_change_that_comes_too_late_gets_its_value_back_and_update_tries_again() {
    let _alone = alone();
    for value in forms(&String::from("a")) {
        let handle = value.handle();
        assert_eq!(handle.compare_and_update(1, "b".into()).unwrap(), 2);
        let conflict = handle.compare_and_update(1, "c".into()).unwrap_err();
        assert_eq!((&*conflict.value, conflict.version), ("c", 2));
        let mut tries = 0;
        let version = handle.update(|old| {
            tries += 1;
            if tries == 1 {
                // Within the read, so that the first attempt fails.
                handle.set("other".into());
            }
            format!("{old}{tries}")
        });
        assert_eq!((version, tries, handle.get_cloned()), (4, 2, "other2".into()));
    }
}

#[test]
fn no_update_is_lost_and_nobody_sees_an_earlier_value_than_anybody_did_before_across_swaps() {
    let _alone = alone();
    const ROUNDS: u64 = 2000;
    const SWAPS: u64 = 20;
    const WRITERS: u32 = 3;
    for value in [
        read_mostly::shared(1),
        read_mostly::copied(1, ClusterSize::Core),
        read_mostly::distributed(1, ClusterSize::Cpu),
    ] {
        let (handle, told, stop) = (value.handle(), AtomicU64::new(0), AtomicBool::new(false));
        let (swaps, mut updates, mut subscription) = (AtomicU64::new(0), 0, handle.subscribe());
        // Continues until there were enough swaps too.
        let goes_on = |done| done < ROUNDS || swaps.load(Ordering::Relaxed) < SWAPS;
        let write =
            || (0..).take_while(|done| goes_on(*done)).inspect(|_| _ = handle.update(|old| old + 1)).count();
        thread::scope(|scope| {
            let _stop = Stop(&stop);
            for reader in 0..4 {
                let (told, stop) = (&told, &stop);
                scope.spawn(move || {
                    for at in (reader..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                        on(at * 5 % VPS, || {
                            let known = told.load(Ordering::Acquire);
                            let seen = handle.read_versioned(|value, version| {
                                assert_eq!(*value, version, "a value of another version");
                                *value
                            });
                            assert!(seen >= known, "{seen} was read after somebody had seen {known}");
                            told.fetch_max(seen, Ordering::AcqRel);
                        });
                    }
                });
            }
            scope.spawn(|| {
                for size in SIZES.into_iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let resized = handle.set_cluster_size(size);
                    let copies = swaps.load(Ordering::Relaxed) % 2 == 0;
                    let kind = if copies {
                        read_mostly::new_copied(size)
                    } else {
                        read_mostly::new_distributed(size)
                    };
                    let other = swap(handle, kind);
                    swaps.fetch_add(u64::from(resized.is_ok()) + u64::from(other.is_ok()), Ordering::Relaxed);
                }
            });
            let writers: Vec<_> =
                (0..WRITERS).map(|writer| scope.spawn(move || on(writer * 11, write))).collect();
            updates = writers.into_iter().map(|writer| writer.join().unwrap() as u64).sum();
        });
        let last = 1 + updates;
        assert_eq!((handle.get(), handle.version()), (last, last), "an update was lost");
        assert_eq!(subscription.wait().unwrap(), last);
    }
}

#[test]
fn to_05_the_cluster_size_is_changed_while_it_is_used_and_the_value_stays() {
    let _alone = alone();
    for value in [read_mostly::shared(vec![1]), read_mostly::copied(vec![1], ClusterSize::Cpu)] {
        let handle = value.handle();
        let mut changes = handle.subscribe();
        let mut version = 1;
        for size in SIZES {
            (0..VPS).for_each(|vp| on(vp, || assert_eq!(handle.read(Vec::len), version as usize)));
            handle.set_cluster_size(size).unwrap();
            assert_eq!((handle.cluster_size(), handle.version()), (size, version));
            assert_eq!(changes.poll_now().unwrap(), None, "a swap is no change");
            (0..VPS).for_each(|vp| on(vp, || assert_eq!(handle.read(Vec::len), version as usize)));
            assert_eq!(reps(handle), machine().clusters(size).len());
            version = handle.update(|old| [&old[..], &[1]].concat());
            assert_eq!(changes.wait().unwrap(), version);
        }
    }
}

#[test]
fn to_05_an_adaptive_value_has_copies_where_its_size_asks_for_them() {
    let _time = virtual_time();
    let value = read_mostly::adaptive(String::from("text"));
    let handle = value.handle();
    let at = |vp| on(vp, || handle.read(|text| text.as_ptr().addr()));
    let is_copied = || at(0) != at(31);
    assert!(!is_copied());
    handle.set_cluster_size(ClusterSize::Node).unwrap();
    assert!(is_copied() && form(&value) == COPIED);
    handle.set_cluster_size(ClusterSize::Core).unwrap();
    assert!(is_copied());
    // With one replica there are no copies: a read sees the value that was set.
    handle.set_cluster_size(ClusterSize::Machine).unwrap();
    let new = String::from("new");
    let there = new.as_ptr().addr();
    handle.set(new);
    assert_eq!((at(0), at(31), form(&value)), (there, there, SHARED));
    // Back again, in a form that the policy made.
    control::swap(Handle::id(handle), COPIED).unwrap();
    handle.set_cluster_size(ClusterSize::Machine).unwrap();
    handle.set_cluster_size(ClusterSize::Cache).unwrap();
    assert!(is_copied());
}

#[test]
fn to_ask_for_the_version_copies_nothing() {
    let _alone = alone();
    let live = Arc::new(AtomicI64::new(0));
    let value = read_mostly::copied(Counted::new(&live), ClusterSize::Cpu);
    let handle = value.handle();
    (0..VPS).for_each(|vp| assert_eq!(on(vp, || handle.version()), 1));
    on(3, || handle.subscribe().poll_now().unwrap());
    assert_eq!(live.load(Ordering::Relaxed), 1, "a copy was made");
    on(3, || handle.read(|_| ()));
    assert_eq!((live.load(Ordering::Relaxed), on(3, || handle.version())), (2, 1));
}

#[test]
fn a_form_into_which_no_value_moved_says_so_and_whoever_waits_is_told() {
    let _alone = alone();
    let value = read_mostly::shared(1);
    let handle = value.handle();
    let (mut early, mut waits) = (handle.subscribe(), handle.subscribe());
    let told = thread::spawn(move || waits.wait());
    // Mostly, the thread waits by then. The error does not depend on it.
    thread::sleep(Duration::from_millis(2));
    let swap_without_state = Swap::new(handle).without_state().drain_timeout(Duration::from_secs(60));
    swap_without_state.run(read_mostly::new_shared()).unwrap();
    eventually("who waits is told", || told.is_finished());
    let errors = [
        told.join().unwrap().unwrap_err(),
        early.wait().unwrap_err(),
        handle.try_read(|_| ()).unwrap_err(),
        handle.try_set(2).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("no value moved in"), "{error}");
    }
    // The object without a value cannot be swapped again, since there is no value to move.
    assert!(swap(handle, read_mostly::new_copied(ClusterSize::Core)).is_err());
}

#[test]
fn its_sensors_count_every_change_across_swaps() {
    let _time = virtual_time();
    let value = read_mostly::adaptive(1);
    let handle = value.handle();
    let changes = || handle.sensors().changes;
    assert_eq!(changes(), 0);
    let rounds = if cfg!(debug_assertions) { 2000 } else { 20_000 };
    thread::scope(|scope| {
        for vp in 0..4 {
            scope.spawn(move || on(vp, || (0..rounds).for_each(|_| _ = handle.set(2))));
        }
        let mut known = 0;
        while known < 4 * rounds {
            let now = changes();
            assert!(now >= known, "the changes went back from {known} to {now}");
            known = now;
            // A swap may fail on a busy machine. It counts no change in any case.
            for form in [COPIED, SHARED] {
                _ = control::swap(Handle::id(handle), form);
            }
        }
    });
    assert_eq!(changes() + 1, handle.version());
    control::swap(Handle::id(handle), COPIED).unwrap();
    assert_eq!(changes(), 4 * rounds);
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
fn values_are_dropped_once_through_changes_swaps_and_the_end() {
    let _alone = alone();
    let live = Arc::new(AtomicI64::new(0));
    for value in forms(&Counted::new(&live)) {
        let handle = value.handle();
        for size in SIZES {
            (0..VPS).step_by(3).for_each(|vp| on(vp, || handle.read(|_| ())));
            handle.set(Counted::new(&live));
            on(9, || handle.read(|_| ()));
            handle.set_cluster_size(size).unwrap();
        }
        squall_core::Owned::destroy(value.into_owned()).wait().unwrap();
    }
    // A value that a swap replaced may wait for its own grace period.
    eventually("all are dropped", || {
        squall_rcu::barrier().unwrap();
        live.load(Ordering::Relaxed) == 0
    });
}

/// Implements neither `Clone` nor `Debug`.
struct Plain(u64);

#[test]
fn what_cannot_be_copied_is_shared_or_distributed() {
    let _alone = alone();
    for value in [read_mostly::shared(Plain(1)), read_mostly::distributed(Plain(1), ClusterSize::Core)] {
        (0..VPS).for_each(|vp| on(vp, || assert_eq!(value.read(|plain| plain.0), 1)));
        value.set(Plain(2));
        (0..VPS).for_each(|vp| on(vp, || assert_eq!(value.read(|plain| plain.0), 2)));
    }
}

#[test]
fn a_panic_in_a_closure_leaves_the_value_as_it_was() {
    let _alone = alone();
    for value in forms(&1) {
        let handle = value.handle();
        assert!(catch_unwind(|| handle.read(|_| panic!("as asked"))).is_err());
        assert!(catch_unwind(|| handle.update(|_| panic!("as asked"))).is_err());
        assert!(!squall_rcu::in_operation());
        assert_eq!((handle.get(), handle.update(|old| old + 1), handle.get()), (1, 2, 2));
    }
    let fragile = Arc::new(AtomicBool::new(true));
    struct Fragile(Arc<AtomicBool>);
    impl Clone for Fragile {
        fn clone(&self) -> Fragile {
            assert!(!self.0.load(Ordering::Relaxed), "as asked");
            Fragile(self.0.clone())
        }
    }
    let value = read_mostly::copied(Fragile(fragile.clone()), ClusterSize::Cpu);
    assert!(catch_unwind(AssertUnwindSafe(|| value.read(|_| ()))).is_err());
    fragile.store(false, Ordering::Relaxed);
    value.read(|_| ());
}

#[test]
fn the_value_is_read_and_changed_within_a_read() {
    let _alone = alone();
    for value in forms(&1) {
        let handle = value.handle();
        let inside = handle.read(|old| {
            handle.set(2);
            (*old, handle.get(), handle.compare_and_update(2, 3).unwrap(), *old)
        });
        assert_eq!((inside, handle.get()), ((1, 2, 3, 1), 3));
    }
}

#[test]
fn a_value_that_is_gone_is_an_error_and_its_readers_end_in_peace() {
    let _alone = alone();
    let value = read_mostly::shared(String::from("here"));
    let handle = value.handle();
    handle.read(|text| {
        drop(value);
        assert_eq!(text, "here");
    });
    let error = handle.try_read(|_| ()).unwrap_err();
    assert!(error.to_string().contains(".read()"), "{error}");
    assert!(catch_unwind(|| handle.read(|_| ())).is_err());
    assert!(catch_unwind(|| handle.set_cluster_size(ClusterSize::Cpu)).is_err());
    assert!(handle.try_set("gone".into()).is_err());
}

#[test]
fn who_waits_is_told_of_the_latest_change_and_of_the_end() {
    let _alone = alone();
    for value in forms(&0) {
        let handle = value.handle();
        let mut changes = handle.subscribe();
        assert_eq!(changes.wait_for(Duration::from_millis(1)).unwrap(), None);
        assert_eq!(changes.wait_until(Instant::now()).unwrap(), None);
        for round in 0..3 {
            let told = thread::scope(|scope| {
                let waits = scope.spawn(|| changes.wait().unwrap());
                // Mostly, the thread waits by then. Its result does not depend on it.
                if round == 1 {
                    thread::sleep(Duration::from_millis(2));
                }
                handle.set(round);
                waits.join().unwrap()
            });
            assert_eq!(told, round + 2);
        }
        // Of several changes, the subscriber sees the last.
        (0..10).for_each(|round| _ = handle.set(round));
        assert_eq!((changes.poll_now().unwrap(), changes.poll_now().unwrap()), (Some(14), None));
        assert_eq!(changes.seen(), 14);
        let ended = thread::scope(|scope| {
            let waits = scope.spawn(|| changes.wait());
            thread::sleep(Duration::from_millis(2));
            drop(value);
            waits.join().unwrap()
        });
        assert!(ended.unwrap_err().to_string().contains("version"));
    }
}

/// Counts its wake-ups.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_task_is_woken_by_a_change_and_loses_none_when_it_stops_to_wait() {
    let _alone = alone();
    let value = read_mostly::distributed(1, ClusterSize::Core);
    let mut changes = value.subscribe();
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    let rings = || bell.0.load(Ordering::Relaxed);
    {
        let mut changed = pin!(changes.changed());
        assert!(changed.as_mut().poll(&mut context).is_pending());
        assert!(changed.as_mut().poll(&mut context).is_pending());
        assert_eq!(value.set(2), 2);
        assert_eq!(rings(), 1, "one waker was left, twice");
        value.set(3);
        assert_eq!(rings(), 1, "a waker is used once");
        assert!(matches!(changed.as_mut().poll(&mut context), Poll::Ready(Ok(3))));
    }
    // The future is dropped while it waits, as `select!` does. It is not woken, and later changes are not
    // lost.
    assert!(pin!(changes.changed()).as_mut().poll(&mut context).is_pending());
    value.set(4);
    assert_eq!(rings(), 1);
    assert!(matches!(pin!(changes.changed()).as_mut().poll(&mut context), Poll::Ready(Ok(4))));
    drop(changes);
    assert_eq!(Arc::strong_count(&bell), 2, "nobody keeps the waker");
    // The subscriber does not notice a swap, whether it waits at the time or not.
    let mut changes = value.subscribe();
    let mut changed = pin!(changes.changed());
    assert!(changed.as_mut().poll(&mut context).is_pending());
    swap(value.handle(), read_mostly::new_copied(ClusterSize::Cpu)).unwrap();
    swap(value.handle(), read_mostly::new_shared()).unwrap();
    assert!(changed.as_mut().poll(&mut context).is_pending());
    let before = rings();
    value.set(5);
    assert_eq!(rings(), before + 1);
    assert!(matches!(changed.as_mut().poll(&mut context), Poll::Ready(Ok(5))));
}

/// Panics when it is woken.
struct Alarm;

impl Wake for Alarm {
    fn wake(self: Arc<Alarm>) {
        panic!("as asked");
    }
}

#[test]
fn a_waker_that_panics_spoils_no_change_and_no_end() {
    let _alone = alone();
    let value = read_mostly::shared(1);
    let (mut bad, mut good, bell) = (value.subscribe(), value.subscribe(), Arc::new(Bell::default()));
    let wakers = [Waker::from(Arc::new(Alarm)), Waker::from(bell.clone())];
    let wait = |bad: &mut read_mostly::Subscription<_>, good: &mut read_mostly::Subscription<_>| {
        assert!(bad.poll_changed(&mut Context::from_waker(&wakers[0])).is_pending());
        assert!(good.poll_changed(&mut Context::from_waker(&wakers[1])).is_pending());
    };
    wait(&mut bad, &mut good);
    assert!(catch_unwind(AssertUnwindSafe(|| value.set(2))).is_err());
    assert_eq!((bell.0.load(Ordering::Relaxed), value.get()), (1, 2), "it was changed, and all were told");
    assert_eq!((bad.poll_now().unwrap(), good.poll_now().unwrap()), (Some(2), Some(2)));
    wait(&mut bad, &mut good);
    let panics = squall_rcu::stats().panicked;
    squall_core::Owned::destroy(value.into_owned()).wait().unwrap();
    eventually("the end is told", || bell.0.load(Ordering::Relaxed) == 2);
    squall_rcu::barrier().unwrap();
    assert_eq!(squall_rcu::stats().panicked, panics, "the end of a value panicked");
}

fn form<T: Send + Sync>(value: &OwnedReadMostly<T>) -> &'static str {
    control::status(Handle::id(value.handle())).expect("it is adaptive").form
}

#[test]
fn hu_16_an_adaptive_value_is_copied_where_several_clusters_read_what_changes_and_goes_back() {
    let mut time = virtual_time();
    let value = on(0, || read_mostly::adaptive([0; 32]));
    assert_eq!((form(&value), value.cluster_size()), (SHARED, ClusterSize::Machine));
    let handle: Handle<dyn ReadMostly<[u64; 32]>> = value.handle();
    // All threads read, and the one on VP 0 changes the value now and then.
    let body = move |calls| {
        for call in 0..calls {
            handle.read(|value| assert_eq!(value[0], value[31]));
            if call % 8 == 0 && Vp::current() == Vp::new(0) {
                handle.update(|old| [old[0] + 1; 32]);
            }
        }
    };
    let readers = [0, 1, 2, 3, 8, 9, 10, 11, 24, 25, 26, 27];
    time.with(Crew::new(&readers, 200, body), |time| time.until("it grows", || form(&value) == COPIED));
    assert_eq!(value.cluster_size(), ClusterSize::Cache);
    let decisions = control::history(Handle::id(handle));
    assert!(decisions.iter().any(|decision| decision.readings().contains("find")), "{decisions:?}");
    time.until("it folds", || form(&value) == SHARED);
    assert_eq!(value.read(|value| value[0]) + 1, value.version(), "an update was lost");
}

#[test]
fn an_adaptive_value_that_nobody_changes_is_left_alone() {
    let mut time = virtual_time();
    let value = read_mostly::adaptive(1);
    (0..VPS).for_each(|vp| on(vp, || (0..1000).for_each(|_| _ = value.get())));
    time.pass(Duration::from_secs(2));
    let id = Handle::id(value.handle());
    assert_eq!((control::history(id).len(), form(&value)), (0, SHARED));
    control::swap(id, COPIED).unwrap();
    assert_eq!((form(&value), value.get()), (COPIED, 1));
    control::swap(id, SHARED).unwrap();
    assert_eq!((form(&value), value.get(), value.version()), (SHARED, 1, 1));
}

#[test]
fn it_is_made_of_a_value_and_shown_as_one() {
    let _alone = alone();
    let value: OwnedReadMostly<u32> = 7.into();
    assert_eq!(format!("{value:?}"), "ReadMostly { version: 1, value: 7, .. }");
    assert!(OwnedReadMostly::<Vec<u8>>::default().read(Vec::is_empty));
    fn sent<T: Send + Sync>(_: &T) {}
    sent(&value);
    sent(&value.subscribe());
}

#[cfg(feature = "serde")]
#[test]
fn it_is_written_and_read_as_its_value() {
    let _alone = alone();
    let value: OwnedReadMostly<Vec<u32>> = serde_json::from_str("[1,2]").unwrap();
    assert_eq!(value.get_cloned(), [1, 2]);
    assert_eq!(serde_json::to_string(&value).unwrap(), "[1,2]");
}
