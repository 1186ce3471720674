//! Pools of ids: all forms keep the promises about owners and reuse, across swaps too.

use crate::common::{Crew, alone, form, on, virtual_time};
use squall_adapt::settings;
use squall_core::swap::{Swap, arbitrate, swap};
use squall_core::{Handle, Owned};
use squall_objects::ids::{self, DISTRIBUTED, IdPool, IdPoolExt, NotLent, SHARED};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A constructor of a form.
type Make = fn(u32) -> Owned<dyn IdPool>;

const FORMS: [Make; 3] = [ids::shared, ids::distributed, ids::adaptive];

#[test]
fn dp_19_an_id_is_given_out_again_after_all_others() {
    let _alone = alone();
    for make in FORMS {
        let pool = on(0, || make(100));
        for round in 0..3 {
            let mut seen = [false; 100];
            for turn in 0..100 {
                let id = on(turn % 32, || pool.get()).expect("at most one id is in use");
                assert!(!std::mem::replace(&mut seen[id.value() as usize], true), "twice in a round: {id:?}");
                on((turn * 7) % 32, || drop(id));
            }
            assert_eq!((pool.round(), pool.free()), (round, 100));
        }
    }
}

#[test]
fn a_pool_is_empty_when_all_ids_are_in_use() {
    let _alone = alone();
    for make in FORMS {
        let pool = on(3, || make(40));
        let mut owned = on(4, || pool.get_batch(39));
        owned.push(on(5, || pool.get()).unwrap());
        assert!((0..32).all(|vp| on(vp, || pool.get().is_none())));
        owned.sort_by_key(|id| id.value());
        assert!(owned.iter().map(|id| id.value()).eq(0..40));
        let last = owned.pop().unwrap().value();
        assert_eq!(on(9, || pool.get()).unwrap().value(), last);
        drop(owned);
        assert_eq!((pool.free(), pool.limit()), (40, 40));
    }
}

#[test]
fn a_bare_number_is_taken_back_once() {
    let _alone = alone();
    for make in FORMS {
        let pool = make(70);
        let raw = Vec::from_iter(pool.get_batch(70).into_iter().map(|id| id.into_raw()));
        assert_eq!(pool.free(), 0);
        for id in raw {
            assert_eq!((pool.put_raw(id), pool.put_raw(id)), (Ok(()), Err(NotLent::NotLent)));
        }
        let held = pool.get().unwrap();
        assert_eq!(pool.put_raw(held.value()), Err(NotLent::NotLent), "its guard exists");
        assert_eq!(pool.put_raw(70), Err(NotLent::OutOfRange));
        assert_eq!(pool.free(), 69);
    }
}

#[test]
fn a_pool_that_was_destroyed_gives_no_ids_and_takes_them_quietly() {
    let _alone = alone();
    let pool = ids::distributed(10);
    let (handle, id, raw) = (pool.handle(), pool.get().unwrap(), pool.get().unwrap());
    drop(pool);
    assert_eq!(handle.try_get().unwrap_err().method(), "try_get");
    assert_eq!(raw.into_raw(), 1);
    drop(id);
    let panic = catch_unwind(|| handle.get()).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("get"));
}

#[test]
fn a_swap_without_ids_is_told_to_callers() {
    let _alone = alone();
    let pool = ids::shared(10);
    Swap::new(pool.handle()).without_state().run(ids::new_distributed()).unwrap();
    let error = pool.try_take().unwrap_err();
    assert!(error.to_string().contains("no ids moved in"), "{error}");
}

/// Threads take and return ids while the pool changes form. One more id than they hold exists.
#[test]
fn swaps_keep_all_ids_and_owners() {
    const THREADS: u32 = 4;
    let _alone = alone();
    let pool = ids::shared(2 * THREADS + 1);
    let owned: Vec<AtomicBool> = (0..=2 * THREADS).map(|_| AtomicBool::new(false)).collect();
    let (start, stop) = (Barrier::new(THREADS as usize + 1), AtomicBool::new(false));
    thread::scope(|threads| {
        for thread in 0..THREADS {
            let (handle, owned, start, stop) = (pool.handle(), &owned, &start, &stop);
            threads.spawn(move || {
                start.wait();
                let mut vp = thread;
                while !stop.load(Ordering::Relaxed) {
                    vp = (vp + 5) % 32;
                    let pair = on(vp, || [handle.get(), handle.get()]);
                    for id in pair.into_iter().map(|id| id.expect("an id was free all the time")) {
                        assert!(
                            !owned[id.value() as usize].swap(true, Ordering::SeqCst),
                            "{id:?} has two owners"
                        );
                        owned[id.value() as usize].store(false, Ordering::SeqCst);
                    }
                }
            });
        }
        start.wait();
        let swapped = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..20 {
                swap(pool.handle(), ids::new_distributed()).unwrap();
                swap(pool.handle(), ids::new_shared()).unwrap();
            }
        }));
        stop.store(true, Ordering::Relaxed);
        swapped.unwrap();
    });
    assert_eq!(pool.free(), 2 * THREADS as usize + 1);
    let mut all = Vec::from_iter(pool.take_batch(100));
    all.sort_unstable();
    assert_eq!(all, Vec::from_iter(0..=2 * THREADS));
}

#[test]
fn an_adaptive_pool_grows_where_several_vps_call_and_shrinks_when_it_is_quiet() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(200)).unwrap();
    let pool = on(0, || ids::adaptive(100));
    let (handle, id) = (pool.handle(), Handle::id(pool.handle()));
    let held = pool.get().unwrap();
    let crew = Crew::new(&[0, 1, 2, 3], 256, move |calls| (0..calls).for_each(|_| drop(handle.get())));
    time.with(crew, |time| time.until("the pool is distributed", || form(id) == DISTRIBUTED));
    assert_eq!(pool.free(), 99);
    time.until("the pool shrinks", || form(id) == SHARED);
    drop(held);
    assert_eq!(pool.free(), 100);
}

#[test]
fn an_id_returns_to_a_pool_that_refuses_calls() {
    let _alone = alone();
    for make in FORMS {
        let pool = make(2);
        let (id, lent) = (pool.get().unwrap(), pool.get().unwrap());
        let closed = arbitrate(pool.handle(), |call| call.refuse("closed")).unwrap();
        drop(id);
        let raw = lent.into_raw();
        drop(closed);
        assert_eq!(pool.free(), 1);
        assert!(pool.get().is_some());
        assert_eq!(pool.put_raw(raw), Ok(()));
        assert_eq!((pool.free(), pool.get_batch(3).len()), (2, 2));
    }
}

#[test]
fn the_id_that_came_back_first_is_next() {
    let _alone = alone();
    for make in FORMS {
        let pool = make(100);
        for turn in 0..400 {
            let id = on(0, || pool.get()).expect("at most one id is in use");
            assert_eq!(id.value(), turn % 100, "not the one that is free for the longest time");
            on(0, || drop(id));
        }
        assert_eq!(on(0, || pool.take_batch(3)), [0, 1, 2]);
    }
}
