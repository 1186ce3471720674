//! Maps as objects: nested calls, destruction, swaps, and implementations of `std`'s traits. Runs on a
//! virtual machine of 32 VPs, where each thread is on the VP that a test gives it.

use crate::common::{Crew, Time, VPS, alone, eventually, on, virtual_time};
use crate::maps::{FORMS, Form, NEW, swap_to};
use squall_adapt::control;
use squall_core::swap::{Swap, SwapReport, swap};
use squall_core::{Handle, ObjectState, Owned, info_of};
use squall_machine::ClusterSize;
use squall_objects::map::{self, Compute, Computed, Map, MapExt, OwnedMap, SHARED, SMALL};
use squall_rcu::ReclaimerState;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

type Co = Handle<dyn Map<u64, u64, RandomState>>;

fn made(form: Form) -> OwnedMap<u64, u64> {
    form.make(RandomState::new())
}

fn filled(form: Form, keys: u64) -> OwnedMap<u64, u64> {
    let map = made(form);
    (0..keys).for_each(|key| _ = map.handle().set(key, key));
    map
}

fn is_swapping(handle: Co) -> bool {
    info_of(Handle::id(handle)).unwrap().state == ObjectState::Swapping
}

fn reps<K, V>(map: &OwnedMap<K, V>) -> usize
where
    K: Eq + Hash + Send + Sync,
    V: Send + Sync,
{
    info_of(Handle::id(map.handle())).unwrap().reps.len()
}

// --- nested calls ---

/// Makes each kind of call inside each closure that a call takes. Keys from 10 on are free.
fn within_each_closure(handle: Co) {
    let calls = || {
        handle.set(10, 10);
        assert_eq!((handle.get(&10), handle.len() > 0), (Some(10), true));
        assert!(handle.update(&10, |value| value + 1));
        let mut seen = 0;
        handle.for_each(|_, _| seen += 1);
        assert!(handle.delete(&10) && seen > 0);
        handle.retain(|key, _| *key < 10);
    };
    let mut closures = 0;
    let mut run = || {
        calls();
        closures += 1;
    };
    assert_eq!(
        handle.with(&1, |value| {
            run();
            *value
        }),
        Some(1)
    );
    assert!(handle.update(&1, |value| {
        run();
        *value
    }));
    assert!(!handle.remove_if(&1, |_| {
        run();
        false
    }));
    assert_eq!(
        handle.compute(1, |value| {
            run();
            assert_eq!(value, Some(&1));
            Compute::Keep
        }),
        Computed::Kept
    );
    assert_eq!(
        handle.compute(9, |value| {
            run();
            assert_eq!(value, None);
            Compute::Keep
        }),
        Computed::Kept
    );
    assert_eq!(
        handle.get_or_insert_with(8, || {
            run();
            8
        }),
        8
    );
    assert!(handle.delete(&8));
    let before = handle.len();
    handle.for_each(|_, _| run());
    handle.retain(|_, _| {
        run();
        true
    });
    assert_eq!(closures, 6 + 2 * before);
}

#[test]
fn every_call_can_be_made_within_every_closure() {
    let _alone = alone();
    for form in FORMS {
        let map = filled(form, 4);
        within_each_closure(map.handle());
        for new in NEW {
            swap_to(map.handle(), new);
            within_each_closure(map.handle());
        }
    }
}

/// Swaps with a long timeout, for a thread that stays in a call.
fn patiently(handle: Co, new: Form) -> SwapReport {
    Swap::new(handle).drain_timeout(Duration::from_secs(60)).run(new.to_come()).unwrap()
}

/// Runs `f` while a swap waits for it in phase `Forward`.
fn while_a_swap_waits(handle: Co, new: Form, f: impl FnOnce()) {
    thread::scope(|scope| {
        let swapped = handle.with(&1, |_| {
            let swapper = scope.spawn(move || patiently(handle, new));
            eventually("the swap begins", || is_swapping(handle));
            f();
            assert!(is_swapping(handle), "it was not waited for");
            swapper
        });
        let report = swapped.expect("the key is there").join().unwrap();
        assert!(report.forwarded > 0);
    });
}

#[test]
fn calls_within_calls_go_on_while_a_swap_waits_for_them() {
    let _alone = alone();
    for form in FORMS {
        for new in NEW {
            let map = filled(form, 4);
            while_a_swap_waits(map.handle(), new, || within_each_closure(map.handle()));
            within_each_closure(map.handle());
        }
    }
}

/// Keeps the engine and the reclaimer from waiting for grace periods, until the value is dropped.
struct OnlySwapsWait {
    reclaimer_was_on: bool,
    // Dropped last.
    _time: Time,
}

impl OnlySwapsWait {
    fn begin() -> OnlySwapsWait {
        let _time = virtual_time();
        let reclaimer_was_on = squall_rcu::reclaimer_state() != ReclaimerState::Off;
        squall_rcu::set_reclaimer(false);
        OnlySwapsWait { reclaimer_was_on, _time }
    }
}

impl Drop for OnlySwapsWait {
    fn drop(&mut self) {
        if self.reclaimer_was_on {
            squall_rcu::set_reclaimer(true);
        }
    }
}

/// A thread with an open operation, which keeps a swap in phase `Forward`.
struct Reader {
    leave: Option<mpsc::Sender<()>>,
    /// Grace periods that ended before the operation.
    periods: u64,
}

impl Reader {
    fn start<'scope>(scope: &'scope thread::Scope<'scope, '_>) -> Reader {
        // Without pending calls, no thread begins a grace period before the swap does.
        squall_rcu::barrier().unwrap();
        let ((leave, left), (tell, is_in)) = (mpsc::channel::<()>(), mpsc::channel());
        scope.spawn(move || {
            squall_rcu::pin(|_| {
                tell.send(()).unwrap();
                _ = left.recv();
            });
        });
        is_in.recv().unwrap();
        Reader { leave: Some(leave), periods: 0 }
    }

    /// Waits until a grace period waits for the operation during a swap.
    fn delays(&mut self, handle: Co) {
        eventually("the swap begins", || is_swapping(handle));
        eventually("a grace period begins", || squall_rcu::stats().sleepers > 0);
        self.periods = squall_rcu::stats().grace_periods;
    }

    /// Ends the operation.
    fn leave(&mut self) {
        self.leave = None;
    }

    /// After the end of the operation, waits until `is_so` returns true. Returns false if a later grace
    /// period began instead. The later period waits for the caller's operation, and the swap may need that
    /// period: one that was under way when the swap began does not count for the swap.
    fn ends_before(&self, what: &str, is_so: impl Fn() -> bool) -> bool {
        let is_later = || {
            let stats = squall_rcu::stats();
            stats.grace_periods > self.periods && stats.sleepers > 0
        };
        eventually(what, || is_so() || is_later());
        is_so()
    }
}

/// Makes calls within a call in phase `Block`. Returns false if the swap waited for the call in `Forward`.
fn calls_within_a_call_in_block(form: Form, new: Form) -> bool {
    let map = filled(form, 4);
    let handle = map.handle();
    let mut in_block = false;
    thread::scope(|scope| {
        // Keeps the swap in `Forward` until the call below has begun, so that the swap counts that call.
        let mut reader = Reader::start(scope);
        let swapper = scope.spawn(move || patiently(handle, new));
        reader.delays(handle);
        // No call inside changes this key; otherwise the closure would run again and again.
        let updated = handle.update(&3, |value| {
            reader.leave();
            // In `Forward`, and soon in `Block`, in which other threads wait for this call.
            scope.spawn(move || {
                while is_swapping(handle) {
                    handle.get(&1);
                }
            });
            let parked = || squall_core::__calls_parked(Handle::id(handle));
            in_block = reader.ends_before("a call of another thread waits", || parked() >= Some(1));
            within_each_closure(handle);
            assert!(is_swapping(handle), "this call was not waited for");
            *value
        });
        assert!(updated);
        let report = swapper.join().unwrap();
        assert!(!in_block || report.blocked > 0, "{report:?}");
    });
    assert_eq!((handle.len(), handle.get(&1)), (4, Some(1)));
    in_block
}

#[test]
fn calls_within_a_call_go_on_when_new_calls_must_wait() {
    let _alone = OnlySwapsWait::begin();
    for (form, new) in FORMS.into_iter().flat_map(|form| NEW.map(|new| (form, new))) {
        // Goes on until the swap was in `Block`.
        while !calls_within_a_call_in_block(form, new) {}
    }
}

/// Whether a form has its entries in one table, which moves unchanged to another such form.
fn has_a_table(form: Form) -> bool {
    matches!(form, Form::Shared | Form::Replicated)
}

/// Swaps a map and clears it while an operation has its store. Returns false if the swap waited for that
/// operation.
fn a_store_outlives_a_swap(form: Form, new: Form) -> bool {
    let map = filled(form, 100);
    let handle = map.handle();
    thread::scope(|scope| {
        let mut reader = Reader::start(scope);
        let swapper = scope.spawn(move || {
            patiently(handle, new);
            if !(has_a_table(form) && has_a_table(new)) {
                handle.clear();
            }
        });
        reader.delays(handle);
        squall_rcu::pin(|guard| {
            let store = handle.read(guard);
            reader.leave();
            if !reader.ends_before("the swap comes and goes", || swapper.is_finished()) {
                return false;
            }
            // A form that cloned the entries left the old structure unchanged. A form that shares the table
            // has continued with it.
            let shares = has_a_table(form) && has_a_table(new);
            assert!(shares || handle.is_empty());
            let seen: Vec<_> =
                (0..100_u64).filter_map(|key| store.read(guard, &key, |value| *value)).collect();
            assert_eq!(seen, (0..100).collect::<Vec<_>>(), "{form:?} to {new:?}");
            true
        })
    })
}

#[test]
fn a_store_from_before_a_swap_keeps_its_entries() {
    let _alone = OnlySwapsWait::begin();
    for (form, new) in FORMS.into_iter().flat_map(|form| NEW.map(|new| (form, new))) {
        // Goes on until an operation has seen the swap come and go.
        while !a_store_outlives_a_swap(form, new) {}
    }
}

#[test]
fn an_update_is_asked_again_if_its_key_was_changed_and_not_for_others() {
    let _alone = alone();
    for form in FORMS {
        let map = filled(form, 4);
        let handle = map.handle();
        let mut asked = 0;
        handle.update(&1, |value| {
            asked += 1;
            if asked == 1 {
                handle.set(1, 7);
            }
            value + 1
        });
        assert_eq!((asked, handle.get(&1)), (2, Some(8)), "{form:?}");
        asked = 0;
        handle.update(&1, |value| {
            asked += 1;
            if asked == 1 {
                handle.delete(&1);
                handle.set(1, value + 5);
            }
            value + 1
        });
        assert_eq!((asked, handle.get(&1)), (2, Some(14)), "{form:?}: it was taken out and put in again");
        // Changes of other keys, also in the same bucket, must not make the closure run again: it would
        // never end.
        asked = 0;
        let done = handle.compute(1, |_| {
            asked += 1;
            (2..100).for_each(|key| _ = handle.set(key, key));
            (2..100).for_each(|key| _ = handle.delete(&key));
            Compute::Remove
        });
        assert_eq!((done, asked, handle.get(&1)), (Computed::Removed, 1, None), "{form:?}");
    }
}

// --- destruction ---

/// A hasher with one hash for all keys.
#[derive(Clone, Default)]
struct One;

impl Hasher for One {
    fn finish(&self) -> u64 {
        7
    }
    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn a_closure_is_not_asked_again_for_other_keys_of_the_same_hash() {
    let _alone = alone();
    for form in FORMS {
        let map = form.make::<u64, _>(BuildHasherDefault::<One>::default());
        let handle = map.handle();
        (1..4).for_each(|key| _ = handle.set(key, 0));
        let asked = Cell::new(0);
        let others = || {
            asked.set(asked.get() + 1);
            assert!(asked.get() < 10, "asked again for others: {form:?}");
            handle.set(2, 1);
            handle.update(&2, |value| value + 1);
            assert!(handle.delete(&3) && !handle.delete(&4) && handle.try_insert(3, 0).is_ok());
            assert_eq!((handle.insert(3, 1), handle.remove(&5)), (Some(0), None));
        };
        assert!(handle.update(&1, |value| {
            others();
            value + 1
        }));
        let computed = handle.compute(1, |value| {
            others();
            Compute::Put(value.unwrap() + 1)
        });
        assert_eq!((computed, asked.replace(0)), (Computed::Updated, 2), "{form:?}");
        let computed = handle.compute(6, |value| {
            others();
            value.map_or(Compute::Put(6), |_| Compute::Keep)
        });
        assert_eq!((computed, handle.get(&6)), (Computed::Inserted, Some(6)), "{form:?}");
        assert!(handle.remove_if(&1, |value| {
            others();
            *value == 2
        }));
        assert_eq!((asked.get(), handle.len()), (2, 3), "{form:?}");
    }
}

#[test]
fn calls_of_a_destroyed_map_fail_and_its_readers_finish() {
    let _alone = alone();
    for form in FORMS {
        let map = filled(form, 4);
        let handle = map.handle();
        assert_eq!((handle.try_get(&1).unwrap(), handle.try_set(1, 2).unwrap()), (Some(1), true));
        assert_eq!(handle.try_compute(1, |_| Compute::Remove).unwrap(), Computed::Removed);
        assert_eq!(
            (handle.try_delete(&1).unwrap(), handle.try_with(&2, |value| value + 1).unwrap()),
            (false, Some(3))
        );
        let mut map = Some(map);
        handle.with(&2, |value| {
            drop(map.take());
            assert_eq!(*value, 2);
        });
        let mut called = false;
        assert!(handle.try_with(&2, |_| called = true).is_err());
        assert!(
            handle.try_get(&2).is_err() && handle.try_set(2, 2).is_err() && handle.try_delete(&2).is_err()
        );
        let computed = handle.try_compute(2, |_| {
            called = true;
            Compute::Keep
        });
        assert!(computed.is_err() && handle.try_for_each(|_, _| called = true).is_err() && !called);
        let error = catch_unwind(|| handle.get(&2)).unwrap_err();
        let error = error.downcast_ref::<String>().expect("a message");
        assert!(error.contains(".get()"), "{error}");
        assert!(catch_unwind(|| handle.set(2, 2)).is_err() && catch_unwind(|| handle.iter().next()).is_err());
    }
}

#[test]
fn a_form_into_which_no_entries_moved_says_so() {
    let _alone = alone();
    for form in NEW {
        let map = filled(Form::Locked, 4);
        Swap::new(map.handle()).without_state().run(form.to_come()).unwrap();
        let error = map.handle().try_get(&1).unwrap_err();
        assert!(error.to_string().contains("no entries moved in"), "{error}");
        assert!(swap(map.handle(), map::new_shared()).is_err(), "nor do they move on");
        assert!(format!("{map:?}").starts_with("Map("));
    }
}

/// A key or a value with a drop that runs some code.
struct Fuse(u64, Arc<OnceLock<Co2>>);
type Co2 = Handle<dyn Map<Fuse, Fuse, RandomState>>;

thread_local! {
    static BURNS: Cell<bool> = const { Cell::new(false) };
}

impl Clone for Fuse {
    fn clone(&self) -> Fuse {
        Fuse(self.0, self.1.clone())
    }
}
impl PartialEq for Fuse {
    fn eq(&self, other: &Fuse) -> bool {
        self.0 == other.0
    }
}
impl Eq for Fuse {}
impl Hash for Fuse {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl Drop for Fuse {
    fn drop(&mut self) {
        if let Some(handle) = self.1.get()
            && !BURNS.replace(true)
        {
            // Takes the lock of a locked map, and of each bucket.
            let probe = Fuse(self.0, Arc::default());
            let _ = handle.try_delete(&Fuse(1_000 + self.0, Arc::default()));
            let _ = handle.try_with(&probe, |_| ());
            BURNS.set(false);
        }
    }
}

#[test]
fn keys_and_values_are_dropped_under_no_lock() {
    let _alone = alone();
    for form in [Form::Locked, Form::Shared, Form::Partitioned] {
        let known = Arc::new(OnceLock::new());
        let map: OwnedMap<Fuse, Fuse> = match form {
            Form::Locked => map::locked(),
            Form::Partitioned => map::partitioned(3, |number| number as usize),
            _ => map::shared(),
        };
        let handle = map.handle();
        assert!(known.set(handle).is_ok());
        let fuse = |number| Fuse(number, known.clone());
        for _ in 0..2 {
            for key in 0..20 {
                handle.set(fuse(key), fuse(key));
                handle.set(fuse(key), fuse(key));
                drop(handle.insert(fuse(key), fuse(key)));
                drop(handle.try_insert(fuse(key), fuse(key)));
                drop(handle.get_or_insert_with(fuse(key), || fuse(key)));
                handle.update(&fuse(key), |_| fuse(key));
                let mut tries = 0;
                handle.update(&fuse(key), |_| {
                    tries += 1;
                    if tries == 1 {
                        handle.set(fuse(key), fuse(key));
                    }
                    fuse(key)
                });
                let _ = handle.compute(fuse(key), |_| Compute::Put(fuse(key)));
            }
            handle.for_each(|_, _| ());
            handle.retain(|key, _| key.0 % 2 == 0);
            drop(handle.remove(&fuse(0)));
            handle.delete(&fuse(2));
            handle.clear();
        }
        assert!(handle.is_empty());
        swap(handle, map::new_locked()).unwrap();
        handle.set(fuse(1), fuse(1));
        swap(handle, map::new_shared()).unwrap();
        Owned::destroy(map.into_owned()).wait().unwrap();
    }
}

#[test]
fn a_key_or_value_whose_clone_panics_spoils_no_map_and_no_swap() {
    let _alone = alone();
    static FRAGILE: AtomicBool = AtomicBool::new(false);
    struct Fragile;
    impl Clone for Fragile {
        fn clone(&self) -> Fragile {
            assert!(!FRAGILE.load(Ordering::Relaxed), "as asked");
            Fragile
        }
    }
    let maps: [OwnedMap<u64, Fragile>; 3] =
        [map::locked(), map::shared(), map::partitioned(3, |number| number as usize)];
    for map in maps {
        let handle = map.handle();
        (0..10).for_each(|key| _ = handle.set(key, Fragile));
        FRAGILE.store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| handle.get_cloned(&1))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| handle.iter().count())).is_err());
        let _ = swap(handle, map::new_locked()).unwrap_err();
        let _ = swap(handle, map::new_partitioned(2, |key| key as usize, ClusterSize::Core)).unwrap_err();
        assert!(handle.set(1, Fragile) && !handle.set(10, Fragile));
        FRAGILE.store(false, Ordering::Relaxed);
        assert_eq!((handle.len(), handle.iter().count()), (11, 11));
        swap(handle, map::new_locked()).unwrap();
        assert_eq!(handle.len(), 11);
    }
}

// --- iteration ---

#[test]
fn a_walk_goes_on_through_swaps_and_sees_each_entry_once() {
    let _alone = alone();
    for first in FORMS {
        let map = filled(first, 3000);
        let handle = map.handle();
        let mut news = NEW.into_iter().cycle();
        let (mut keys, mut iter) = (BTreeSet::new(), handle.iter());
        for at in 1.. {
            let Some((key, value)) = iter.next() else { break };
            assert!(key == value && keys.insert(key), "{key} was seen twice");
            if at % 97 == 0 {
                swap_to(handle, news.next().unwrap());
            }
        }
        assert!(keys.into_iter().eq(0..3000), "{first:?}");
    }
}

// --- the partitioned form ---

#[test]
fn co_64_the_first_representatives_hold_the_parts_and_the_others_lead_there() {
    let _alone = alone();
    let map: OwnedMap<u64, u64> = map::partitioned(4, |page| (page >> 4) as usize);
    assert_eq!(reps(&map), 0, "a representative was made before a call");
    on(9, || (0..64).for_each(|page| _ = map.set(page, page)));
    // The holders of the four parts, and the caller's own.
    assert_eq!((reps(&map), on(9, || map.sensors().entries)), (5, 64));
    for vp in 0..VPS {
        on(vp, || (0..64).for_each(|page| assert_eq!(map.get(&page), Some(page))));
    }
    assert_eq!((reps(&map), map.len()), (VPS as usize, 64));
    // With fewer clusters than parts, a representative holds several.
    for (size, clusters) in [(ClusterSize::Node, 2), (ClusterSize::Machine, 1), (ClusterSize::fixed(5), 7)] {
        let map = map::partitioned_with(64, |page| page as usize, size, RandomState::new());
        (0..VPS).for_each(|vp| on(vp, || _ = map.set(u64::from(vp), 0)));
        assert_eq!((reps(&map), map.sensors().reps, map.len()), (clusters, clusters, VPS as usize));
    }
    assert!(catch_unwind(|| map::partitioned::<u64, u64>(0, |_| 0)).is_err());
}

/// A directory of a file block cache: the clusters that have a copy of each block. All processors search it
/// and add the blocks they load.
#[test]
fn hu_15_a_directory_of_pages_is_spread_over_the_processors_that_search_it_at_once() {
    let _alone = alone();
    let pages: OwnedMap<u64, u32> = map::partitioned(VPS as usize, |page| (page >> 4) as usize);
    let (handle, threads) = (pages.handle(), 8);
    thread::scope(|scope| {
        for cluster in 0..threads {
            scope.spawn(move || {
                on(cluster * 4, || {
                    for page in 0..512 {
                        let copy = 1 << cluster;
                        let _ = handle.compute(page, |copies| Compute::Put(copies.unwrap_or(&0) | copy));
                        assert!(handle.with(&page, |copies| copies & copy != 0).unwrap(), "a copy was lost");
                    }
                });
            });
        }
    });
    assert_eq!(pages.len(), 512);
    pages.for_each(|page, copies| assert_eq!(*copies, (1 << threads) - 1, "of {page}"));
    // A block without a copy is removed.
    (0..threads).for_each(|cluster| {
        pages.for_each(|page, _| _ = handle.update(page, |copies| copies & !(1 << cluster)))
    });
    pages.retain(|_, copies| *copies != 0);
    assert!(pages.is_empty());
}

// --- the adaptive form ---

fn form<V: Send + Sync>(map: &OwnedMap<u64, V>) -> &'static str {
    control::status(Handle::id(map.handle())).expect("it is adaptive").form
}

#[test]
fn co_71_an_adaptive_map_is_a_table_where_several_use_it_and_goes_back() {
    let mut time = virtual_time();
    let map = on(0, || filled(Form::Adaptive, 64));
    assert_eq!((form(&map), reps(&map)), (SMALL, 1));
    let handle = map.handle();
    let before = map.fold(0, |sum, _, value| sum + value);
    let updates = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&updates);
    let body = move |calls| {
        for call in 0..calls {
            let key = u64::from(call) % 64;
            assert!(handle.update(&key, |value| value + 1), "{key} was lost");
            assert!(handle.get(&key).is_some_and(|value| value > key));
        }
        count.fetch_add(calls as usize, Ordering::Relaxed);
    };
    let crew = Crew::of_threads(&[0, 1, 9, 25], 200, body);
    time.with(crew, |time| time.until("it grows", || form(&map) == SHARED));
    let decisions = control::history(Handle::id(handle));
    assert!(decisions.iter().any(|decision| decision.readings().contains("write")), "{decisions:?}");
    time.until("it folds", || form(&map) == SMALL);
    let sum = map.fold(0, |sum, _, value| sum + value);
    assert_eq!((map.len(), sum), (64, before + updates.load(Ordering::Relaxed) as u64), "an update was lost");
}

#[test]
fn an_adaptive_map_that_grows_large_is_a_table_at_once_and_loses_nothing() {
    let _time = virtual_time();
    const MANY: u64 = 140_000;
    let map = on(0, || made(Form::Adaptive));
    let id = Handle::id(map.handle());
    control::freeze(id, true).unwrap();
    on(0, || (0..MANY).for_each(|key| _ = map.set(key, key)));
    // The map keeps its own form, since swaps are frozen. A later change clones no entry.
    assert_eq!((form(&map), map.len()), (SMALL, MANY as usize));
    for to in [SHARED, SMALL, SHARED] {
        control::swap(id, to).unwrap();
        assert_eq!((form(&map), map.len()), (to, MANY as usize));
        assert!((0..MANY).step_by(7).all(|key| map.get(&key) == Some(key)));
    }
    map.retain(|key, _| *key < 100);
    control::swap(id, SMALL).unwrap();
    assert!(map.into_iter().map(|(key, _)| key).collect::<BTreeSet<_>>().into_iter().eq(0..100));
    // With a known capacity it begins as a table.
    let large = map::adaptive_with::<u64, u64, _>(MANY as usize, RandomState::new());
    assert_eq!((form(&large), large.capacity() >= MANY as usize), (SHARED, true));
}

#[test]
fn the_sensors_of_an_adaptive_map_count_its_calls_and_make_no_representatives() {
    let _time = virtual_time();
    let map = on(0, || filled(Form::Adaptive, 10));
    let id = Handle::id(map.handle());
    control::freeze(id, true).unwrap();
    let seen = |map: &OwnedMap<u64, u64>| {
        let sensors = map.sensors();
        (sensors.here, sensors.elsewhere)
    };
    // Ten calls of one VP, the first one after another VP's call. The thread may soon own the lock.
    let first = seen(&map);
    let unseen = 9 - first.0;
    assert_eq!((first.1, unseen > 0), (1, map.sensors().can_be_owned));
    (0..100).for_each(|key| _ = map.get(&key));
    assert!(seen(&map) == first || unseen == 0);
    let before = seen(&map);
    thread::scope(|threads| {
        threads.spawn(|| on(5, || (0..10).for_each(|key| _ = map.get(&key))));
    });
    assert_eq!(seen(&map), (before.0 + 9, before.1 + 1));
    control::swap(id, SHARED).unwrap();
    on(7, || (0..10).for_each(|key| _ = map.get(&key)));
    let before = seen(&map);
    on(7, || (0..10).for_each(|key| _ = map.set(key, 0)));
    let after = seen(&map);
    assert_eq!((before.0 + before.1, after.0 + after.1), (0, 10), "of a table, writes are counted");
    // Calls of a table within the small form are sampled at random.
    control::swap(id, SMALL).unwrap();
    on(7, || (0..140_000).for_each(|key| _ = map.set(key, 0)));
    let before = seen(&map);
    on(7, || (0..64_000).for_each(|key| _ = map.set(key, 1)));
    let after = seen(&map);
    let counted = after.0 + after.1 - before.0 - before.1;
    assert!(form(&map) == SMALL && (48_000..80_000).contains(&counted), "{counted}");
    let reps = reps(&map);
    (0..VPS).for_each(|vp| on(vp, || control::set_attribute(id, "margin", "2").unwrap()));
    assert_eq!(info_of(id).unwrap().reps.len(), reps, "steering made a representative");
}

// --- trait implementations ---

#[test]
fn it_is_filled_from_iterators_and_shown_as_std_s() {
    let _alone = alone();
    let mut map: OwnedMap<u64, &str> = [(1, "one"), (2, "two")].into_iter().collect();
    map.extend([(3, "three")]);
    (&map).extend([(4, "four")]);
    let mut entries: Vec<_> = (&map).into_iter().collect();
    entries.sort_unstable();
    assert_eq!(entries, [(1, "one"), (2, "two"), (3, "three"), (4, "four")]);
    let keys: BTreeSet<_> = map.keys().collect();
    let values: BTreeSet<_> = map.values().collect();
    assert!(keys.into_iter().eq(1..=4) && values.len() == 4 && map.count() == 4);
    map.retain(|key, _| *key == 2);
    assert_eq!(format!("{map:?}"), r#"{2: "two"}"#);
    let empty = OwnedMap::<u64, u64>::default();
    assert!(empty.is_empty() && format!("{empty:?}") == "{}");
    fn sent<T: Send + Sync>(_: &T) {}
    sent(&map);
    sent(&map.handle());
}

#[test]
fn an_entry_works_like_std_s() {
    let _alone = alone();
    for form in FORMS {
        let map = made(form);
        let handle = map.handle();
        assert_eq!(
            (*handle.entry(1).or_default(), *handle.entry(1).or_insert(7), *handle.entry(1).key()),
            (0, 0, 1)
        );
        assert_eq!(*handle.entry(1).and_modify(|value| *value += 5).or_insert_with(|| 9), 5);
        assert_eq!(*handle.entry(2).and_modify(|value| *value += 5).or_insert_with(|| 9), 9);
        assert_eq!(
            (handle.insert(2, 3), handle.insert(4, 3), handle.remove(&2), handle.remove(&2)),
            (Some(9), None, Some(3), None)
        );
        assert_eq!((handle.try_insert(1, 8), handle.try_insert(3, 8)), (Err((1, 8)), Ok(())));
        assert!(
            handle.contains_key(&3) && !handle.contains_key(&2) && handle.remove_if(&3, |value| *value == 8)
        );
        handle.reserve(1000);
        assert!(handle.capacity() >= 1000, "{form:?} has room for {}", handle.capacity());
        handle.shrink_to_fit();
        assert!(handle.capacity() < 1000 && handle.len() == 2);
    }
}

#[test]
fn keys_are_looked_for_in_any_borrowed_form() {
    let _alone = alone();
    let maps: [OwnedMap<String, usize>; 4] =
        [map::shared(), map::locked(), map::adaptive(), map::partitioned(5, |number| number as usize)];
    for map in maps {
        let texts: Vec<String> = (0..200).map(|number| format!("key {number}")).collect();
        let std: HashMap<String, usize> = texts.iter().map(|text| (text.clone(), text.len())).collect();
        std.iter().for_each(|(text, length)| _ = map.set(text.clone(), *length));
        assert!(texts.iter().all(|text| map.get(text.as_str()) == std.get(text).copied()));
        assert!(map.update("key 7", |length| length + 1) && map.get("key 7") == Some(6));
        assert!(map.delete("key 7") && map.get("key 7").is_none() && map.remove("none").is_none());
        let sorted: BTreeMap<String, usize> = map.iter().collect();
        assert_eq!(sorted.len(), 199);
    }
}

/// A key without `Clone` and `Debug`.
#[derive(PartialEq, Eq, Hash)]
struct Plain(u64);

#[test]
fn types_without_clone_fit_a_shared_map() {
    let _alone = alone();
    let map: OwnedMap<Plain, Plain> = map::shared();
    assert!(!map.set(Plain(1), Plain(2)) && map.set(Plain(1), Plain(3)));
    assert_eq!(map.with(&Plain(1), |value| value.0), Some(3));
    swap(map.handle(), map::new_shared()).unwrap();
    assert!(map.update(&Plain(1), |value| Plain(value.0 + 1)));
    assert_eq!(map.with(&Plain(1), |value| value.0), Some(4));
    let visited = AtomicUsize::new(0);
    map.for_each(|_, _| _ = visited.fetch_add(1, Ordering::Relaxed));
    assert_eq!(visited.into_inner(), 1);
}

#[cfg(feature = "serde")]
#[test]
fn it_is_written_and_read_as_std_s() {
    let _alone = alone();
    let map: OwnedMap<String, u32> = serde_json::from_str(r#"{"a":1,"b":2}"#).unwrap();
    assert_eq!((map.len(), map.get("a"), map.get("b")), (2, Some(1), Some(2)));
    map.delete("a");
    assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"b":2}"#);
    assert!(serde_json::from_str::<OwnedMap<String, u32>>("[1]").is_err());
}
