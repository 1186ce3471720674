//! Bags. Each thread runs on the VP that a test gives it.

use crate::common::{Crew, Stop, VPS, alone, eventually, form, on, virtual_time};
use squall_adapt::control::{self, Verdict};
use squall_adapt::settings;
use squall_core::swap::{Replacement, Swap, swap};
use squall_core::{Handle, Owned, info_of};
use squall_objects::bag::{self, Bag, BagExt, DISTRIBUTED, SHARED, Strategy};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Returns a bag in each form.
pub(crate) fn forms<T: Send + 'static>() -> [Owned<dyn Bag<T>>; 3] {
    on(0, || [bag::shared(), bag::distributed(), bag::adaptive()])
}

fn reps<T: Send + 'static>(handle: Handle<dyn Bag<T>>) -> usize {
    info_of(Handle::id(handle)).unwrap().reps.len()
}

#[test]
fn dp_01_every_form_keeps_each_element_once() {
    let _alone = alone();
    for bag in forms() {
        let handle = bag.handle();
        for vp in 0..VPS {
            on(vp, || handle.put(vp));
            on(vp, || handle.put_batch(vec![vp; 3]));
            on(vp, || handle.put_one(vp));
        }
        assert_eq!((handle.len(), handle.is_empty()), (5 * VPS as usize, false));
        let mut found = Vec::new();
        for vp in (0..VPS).rev() {
            found.extend(on(vp, || handle.get()));
            found.extend(on(vp, || handle.get_one()));
            let some = on(vp, || handle.get_batch(2));
            assert_eq!(some.len(), 2);
            found.extend(some);
        }
        let rest = on(7, || handle.get_batch(usize::MAX));
        assert_eq!(rest.len(), VPS as usize);
        found.extend(rest);
        assert_eq!((on(9, || handle.get()), on(8, || handle.get_batch(1)).len(), handle.len()), (None, 0, 0));
        found.sort_unstable();
        assert_eq!(found, (0..VPS).flat_map(|vp| [vp; 5]).collect::<Vec<_>>());
    }
}

#[test]
fn dp_14_a_vp_of_a_distributed_bag_takes_many_elements_at_once() {
    let _alone = alone();
    let bag = bag::distributed();
    on(0, || bag.put_batch((0..200).collect()));
    assert!(on(9, || bag.get()).is_some());
    assert_eq!((on(9, || bag.local_len()), on(0, || bag.local_len())), (49, 150));
    bag.attributes(|attributes| attributes.set_bulk(10));
    assert!(on(17, || bag.get()).is_some());
    assert_eq!((on(17, || bag.local_len()), bag.len()), (9, 198));
    let counts = bag.counts();
    assert_eq!((counts.demand_transfers, counts.moved), (2, 60));
}

#[test]
fn dp_15_the_thread_does_the_idle_work_after_a_demand_transfer() {
    let _alone = alone();
    assert!(!bag::has_thread());
    let bag = bag::distributed();
    let handle = bag.handle();
    bag.set_strategy(Strategy::BackgroundPull);
    // The clients are silent while the thread works.
    bag.attributes(|attributes| {
        attributes.set_leave_after(0);
        attributes.set_pull_below(200);
    });
    on(9, || handle.put(0));
    on(0, || handle.put_batch((0..2000).collect()));
    assert!(on(9, || handle.get_batch(2)).len() == 2);
    assert_eq!((handle.counts().demand_transfers, handle.counts().pulls), (1, 0));
    assert!(bag::set_thread(true) && bag::has_thread());
    assert!(on(17, || handle.get()).is_some());
    eventually("the thread pulls until each shard has enough", || on(9, || handle.local_len()) >= 200);
    assert!(!bag::set_thread(false));
    assert!(handle.counts().pulls > 0);
    assert_eq!(handle.get_batch(usize::MAX).len(), 1998);
}

#[test]
fn dp_12_all_callers_of_a_shared_bag_use_one_shard() {
    let _alone = alone();
    let bag = on(3, bag::shared);
    on(9, || bag.put_batch((0..200).collect()));
    assert!(on(17, || bag.get()).is_some());
    assert_eq!((on(0, || bag.local_len()), reps(bag.handle()), bag.counts().demand_transfers), (199, 1, 0));
}

/// Moves elements between threads while `disturb` runs, and checks that all are kept.
fn keeps_all_elements(bag: &Owned<dyn Bag<Arc<u64>>>, disturb: impl FnOnce(&AtomicU64)) {
    const THREADS: u32 = 4;
    const ELEMENTS: u64 = 64;
    let (handle, stop, rounds) = (bag.handle(), AtomicBool::new(false), AtomicU64::new(0));
    on(0, || handle.put_batch((0..ELEMENTS).map(Arc::new).collect()));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (stop, rounds) = (&stop, &rounds);
            scope.spawn(move || {
                for round in (thread..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    // There are more elements than the threads can hold.
                    let one = on(round * 5 % VPS, || handle.get()).expect("the bag is never empty");
                    let some = on(round * 7 % VPS, || handle.get_batch(3));
                    assert_eq!(some.len(), 3, "the bag is never empty");
                    on(round * 3 % VPS, || handle.put(one));
                    on(round % VPS, || handle.put_batch(some));
                    on(round * 11 % VPS, || handle.idle());
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = Stop(&stop);
        disturb(&rounds);
    });
    let mut left: Vec<u64> = handle.get_batch(usize::MAX).iter().map(|element| **element).collect();
    left.sort_unstable();
    assert_eq!(left, (0..ELEMENTS).collect::<Vec<_>>());
}

/// Swaps an object however long its calls take on a busy machine.
pub(crate) fn swap_under_load<T: Send + 'static>(handle: Handle<dyn Bag<T>>, new: Replacement<dyn Bag<T>>) {
    Swap::new(handle).drain_timeout(Duration::from_secs(300)).run(new).expect("no call waits for ever");
}

#[test]
fn swaps_under_load_keep_every_element() {
    let _alone = alone();
    for bag in [bag::shared(), bag::distributed()] {
        keeps_all_elements(&bag, |rounds| {
            for n in 0..40_u64 {
                let new = if n % 2 == 0 { bag::new_distributed() } else { bag::new_shared() };
                on(n as u32 % VPS, || swap_under_load(bag.handle(), new));
                let before = rounds.load(Ordering::Relaxed);
                while rounds.load(Ordering::Relaxed) == before {
                    thread::yield_now();
                }
            }
        });
    }
}

#[test]
fn changes_of_the_strategy_under_load_keep_every_element() {
    let _alone = alone();
    let bag = bag::distributed();
    bag.attributes(|attributes| {
        attributes.set_idle_events(1);
        attributes.set_push_above(4);
        attributes.set_push_margin(1);
        attributes.set_estimate_step(1);
    });
    keeps_all_elements(&bag, |rounds| {
        for strategy in Strategy::ALL.into_iter().cycle().take(60) {
            bag.set_strategy(strategy);
            assert_eq!(bag.strategy(), strategy);
            let before = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
        }
    });
}

/// An element that counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_end_of_a_bag_drops_its_elements_and_refuses_calls() {
    let _alone = alone();
    for bag in forms() {
        let (handle, drops) = (bag.handle(), Arc::new(AtomicUsize::new(0)));
        for vp in [0, 5, 31] {
            on(vp, || handle.put(Counted(drops.clone())));
        }
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        Owned::destroy(bag).wait().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 3);
        assert!(handle.try_get().is_err() && handle.try_len().is_err());
        assert!(handle.try_put(Counted(drops.clone())).is_err());
        assert_eq!(drops.load(Ordering::Relaxed), 4, "the element of the refused call");
    }
}

#[test]
fn a_swap_without_state_makes_an_empty_bag() {
    let _alone = alone();
    let (bag, drops) = (bag::shared(), Arc::new(AtomicUsize::new(0)));
    bag.put(Counted(drops.clone()));
    Swap::new(bag.handle()).without_state().run(bag::new_distributed()).unwrap();
    assert!(bag.get().is_none());
    bag.put(Counted(drops.clone()));
    assert!(bag.get().is_some());
}

#[test]
fn a_swap_keeps_the_strategy_and_its_constants() {
    let _alone = alone();
    let bag = bag::distributed::<u32>();
    bag.set_strategy(Strategy::BulkTransfer);
    bag.attributes(|attributes| attributes.set_bulk(7));
    swap(bag.handle(), bag::new_shared()).unwrap();
    swap(bag.handle(), bag::new_distributed()).unwrap();
    assert_eq!((bag.strategy(), bag.attributes(|attributes| attributes.bulk())), (Strategy::BulkTransfer, 7));
}

/// Four VPs that put and get in turns, each on its own.
fn users(handle: Handle<dyn Bag<u64>>, vps: &[u32]) -> Crew {
    let body = move |calls: u32| {
        for _ in 0..calls / 2 {
            handle.put(1);
            assert!(handle.get().is_some());
        }
    };
    Crew::new(vps, 256, body)
}

#[test]
fn an_adaptive_bag_grows_where_several_vps_use_it_and_shrinks_when_it_is_quiet() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(200)).unwrap();
    let bag = on(0, bag::adaptive);
    let (handle, id) = (bag.handle(), Handle::id(bag.handle()));
    on(0, || handle.put_batch((0..100).collect()));
    assert_eq!((form(id), reps(handle)), (SHARED, 1));
    time.with(users(handle, &[0, 1, 2, 3]), |time| {
        time.until("the bag is distributed", || form(id) == DISTRIBUTED);
    });
    assert_eq!(handle.len(), 100);
    time.until("the bag shrinks", || form(id) == SHARED);
    assert_eq!(on(9, || handle.get_batch(usize::MAX)).len(), 100);
    let history = control::history(id);
    let [grown, shrunk] = &history[..] else { panic!("{history:?}") };
    assert_eq!((grown.from, grown.to, &grown.verdict), (SHARED, DISTRIBUTED, &Verdict::Swapped));
    assert!(grown.readings().contains("put_one") && grown.readings().contains("foreign"), "{grown}");
    assert_eq!((shrunk.from, shrunk.to, &shrunk.verdict), (DISTRIBUTED, SHARED, &Verdict::Swapped));
}

#[test]
fn an_adaptive_bag_that_one_vp_uses_stays_shared() {
    let mut time = virtual_time();
    let bag = on(5, bag::adaptive);
    let (handle, id) = (bag.handle(), Handle::id(bag.handle()));
    time.with(users(handle, &[5]), |time| time.pass(Duration::from_secs(20)));
    assert_eq!((form(id), control::history(id).len()), (SHARED, 0));
    let sensors = handle.sensors();
    assert!(sensors.local > 0, "one call in 64 is counted: {sensors:?}");
    assert_eq!(sensors.foreign, 0);
}

#[test]
fn an_adaptive_bag_that_one_vp_alone_uses_in_the_end_shrinks() {
    let mut time = virtual_time();
    let bag = on(0, bag::adaptive);
    let (handle, id) = (bag.handle(), Handle::id(bag.handle()));
    time.with(users(handle, &[0, 1, 2, 3]), |time| {
        time.until("the bag is distributed", || form(id) == DISTRIBUTED);
    });
    time.with(users(handle, &[2]), |time| time.until("the bag shrinks", || form(id) == SHARED));
    assert_eq!(handle.sensors().home.map(|home| home.index()), Some(2));
}

#[test]
fn messages_name_the_class_and_the_method_that_was_called() {
    let _alone = alone();
    for (class, bag) in ["Shared", "Distributed", "Shared"].into_iter().zip(forms::<u32>()) {
        let bag = bag.named("buffers");
        let (handle, info) = (bag.handle(), info_of(Handle::id(bag.handle())).unwrap());
        assert_eq!(info.class, format!("squall_objects::bag::classes::{class}<u32>"));
        drop(bag);
        for (text, method) in [
            (handle.try_get().unwrap_err().to_string(), "get"),
            (handle.try_put(1).unwrap_err().to_string(), "put"),
            (handle.try_get_batch(1).unwrap_err().to_string(), "get_batch"),
        ] {
            assert!(text.starts_with(&format!("{handle}.{method}() of \"buffers\", class ")), "{text}");
        }
    }
}

#[test]
fn attributes_are_set_by_name() {
    let _alone = alone();
    for bag in forms::<u64>() {
        let (handle, id) = (bag.handle(), Handle::id(bag.handle()));
        control::set_attribute(id, "strategy", "directory").unwrap();
        control::set_attribute(id, "leave-after", "0").unwrap();
        assert_eq!(handle.attributes(|it| (it.strategy(), it.leave_after())), (Strategy::Directory, 0));
        handle.attributes(|it| it.set_bulk(7));
        let shown = control::attributes(id).unwrap();
        let value = |name: &str| shown.iter().find(|it| it.name == name).map(|it| it.value.as_str());
        assert_eq!(
            (value("strategy"), value("bulk"), value("hoard")),
            (Some("directory"), Some("7"), Some("65536"))
        );
        let error = control::set_attribute(id, "strategy", "random").unwrap_err();
        assert!(error.to_string().contains("background-pull"), "{error}");
        // A swap keeps them.
        swap(handle, bag::new_distributed()).unwrap();
        assert!(control::attributes(id).unwrap().iter().any(|it| it.name == "bulk" && it.value == "7"));
    }
}
