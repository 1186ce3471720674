//! Object pools.

use crate::bag::swap_under_load;
use crate::common::{Stop, VPS, alone, eventually, on};
use squall_core::swap::arbitrate;
use squall_core::{Handle, Owned, info_of};
use squall_objects::bag::{self, Bag};
use squall_objects::pool::{Idle, ObjectPool, PoolBuilder, Pooled};
use std::collections::HashSet;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// Functions that set the form of a pool.
fn forms<T: Send + 'static>() -> [fn(PoolBuilder<T>) -> PoolBuilder<T>; 3] {
    [PoolBuilder::shared, PoolBuilder::distributed, PoolBuilder::adaptive]
}

/// Returns a function that makes numbers, and the number of those made.
fn numbers() -> (impl Fn() -> usize + Send + Sync + 'static, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    (move || count.fetch_add(1, Ordering::Relaxed), made)
}

fn panics<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(f()))).is_err()
}

type Task<'a, T> = Pin<Box<dyn Future<Output = Pooled<T>> + Send + 'a>>;

fn poll<T: Send + 'static>(task: &mut Task<'_, T>) -> Poll<Pooled<T>> {
    task.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn an_object_that_comes_back_is_lent_again_wherever_it_came_back() {
    let _alone = alone();
    for form in forms() {
        let (make, made) = numbers();
        let pool = form(ObjectPool::builder(make)).max_size(2).build();
        let other = pool.get();
        for vp in 0..VPS {
            let object = on(vp, || pool.get());
            assert_eq!(*object, 1);
            on((vp + 9) % VPS, || drop(object));
        }
        assert_eq!((*other, *pool.get()), (0, 1));
        drop(other);
        assert_eq!((pool.idle_len(), made.load(Ordering::Relaxed)), (2, 2));
    }
}

#[test]
fn a_vp_of_a_distributed_pool_keeps_its_last_object_until_the_pool_is_full() {
    const CALLERS: u32 = 4;
    let _alone = alone();
    let (make, made) = numbers();
    let pool = ObjectPool::builder(make).distributed().build();
    let transfers = || pool.handle().counts().demand_transfers;
    on(0, || drop([0, 1, 2].map(|_| pool.get())));
    // VP 1 takes two of the three objects, and VP 2 one of those. VP 3 makes one.
    (0..CALLERS).for_each(|vp| on(vp, || drop(pool.get())));
    assert_eq!((transfers(), made.load(Ordering::Relaxed)), (2, 4));
    (0..100 * CALLERS).for_each(|turn| on(turn % CALLERS, || drop(pool.try_get())));
    assert_eq!((transfers(), made.load(Ordering::Relaxed)), (2, 4), "each VP has an object of its own");

    let (make, made) = numbers();
    let pool = ObjectPool::builder(make).distributed().max_size(2).build();
    for turn in 0..100 * CALLERS {
        on(turn % CALLERS, || assert!(pool.try_get().is_some(), "an object is idle"));
    }
    assert_eq!((pool.idle_len(), made.load(Ordering::Relaxed)), (2, 2));
}

#[test]
fn an_idle_object_of_another_vp_is_lent_before_one_is_made_that_may_fail() {
    let _alone = alone();
    let pool = ObjectPool::builder(|| 7).distributed().build();
    on(0, || drop(pool.get()));
    assert_eq!(on(1, || pool.get_or_try_make(|| Err("not now")).map(|object| *object)), Ok(7));
}

#[test]
fn objects_that_come_back_elsewhere_are_lent_again() {
    let _alone = alone();
    let (make, made) = numbers();
    let pool = ObjectPool::builder(make).distributed().build();
    for _ in 0..100 {
        let object = on(0, || pool.get());
        on(1, || drop(object));
    }
    assert_eq!(made.load(Ordering::Relaxed), 2, "one in use, and one for the other VP");
}

#[test]
fn a_limited_pool_lends_no_more_than_its_size() {
    let _alone = alone();
    for form in forms() {
        let (make, made) = numbers();
        let pool = form(ObjectPool::builder(make)).max_size(3).build();
        let lent: Vec<_> = (0..3).map(|vp| on(vp, || pool.try_get()).unwrap()).collect();
        assert!(pool.try_get().is_none() && pool.get_for(Duration::from_millis(1)).is_none());
        assert_eq!(lent.iter().map(|object| **object).collect::<HashSet<_>>().len(), 3);
        drop(lent);
        let again: Vec<_> = (0..3).map(|vp| on(vp * 9, || pool.get())).collect();
        assert_eq!((again.len(), made.load(Ordering::Relaxed)), (3, 3));
    }
    assert!(panics(|| ObjectPool::builder(|| 0).max_size(0)));
}

#[test]
fn those_who_wait_are_served_in_turn_by_returned_and_by_discarded_objects() {
    let _alone = alone();
    for form in forms() {
        let (make, made) = numbers();
        let pool = form(ObjectPool::builder(make)).max_size(2).build();
        let (one, two) = (pool.get(), pool.get());
        let mut tasks: Vec<Task<'_, usize>> = (0..3).map(|_| Box::pin(pool.get_async()) as _).collect();
        assert!(tasks.iter_mut().all(|task| poll(task).is_pending()));
        drop(one);
        let Poll::Ready(first) = poll(&mut tasks[0]) else { panic!("the first task is served") };
        assert_eq!(*first, 0);
        assert_eq!(Pooled::detach(two), 1);
        let Poll::Ready(second) = poll(&mut tasks[1]) else { panic!("the second task is served") };
        assert_eq!(*second, 2, "a new object in the room of the detached one");
        assert!(poll(&mut tasks[2]).is_pending());
        drop((first, second));
        // The third task was served, and gives its object back.
        drop(tasks);
        assert_eq!((pool.idle_len(), made.load(Ordering::Relaxed)), (2, 3));
    }
}

#[test]
fn later_callers_do_not_overtake_those_who_wait() {
    let _alone = alone();
    for form in forms() {
        let pool = form(ObjectPool::builder(|| 7)).max_size(1).build();
        let one = pool.get();
        let mut first: Task<'_, i32> = Box::pin(pool.get_async());
        assert!(poll(&mut first).is_pending());
        drop(one);
        // The first task has not run.
        assert!(pool.try_get().is_none() && pool.get_for(Duration::from_millis(1)).is_none());
        let mut second: Task<'_, i32> = Box::pin(pool.get_async());
        assert!(poll(&mut second).is_pending());
        let Poll::Ready(object) = poll(&mut first) else { panic!("it is the first") };
        drop(object);
        assert!(pool.try_get().is_none() && poll(&mut second).is_ready());
        assert!(pool.try_get().is_some());
    }
}

#[test]
fn a_wait_with_a_limit_gets_an_object_that_comes_back() {
    let _alone = alone();
    for form in forms() {
        let pool = form(ObjectPool::builder(|| 7)).max_size(1).build();
        let one = pool.get();
        thread::scope(|scope| {
            let waits = scope.spawn(|| pool.get_for(Duration::from_secs(3600)).map(|object| *object));
            eventually("the thread waits", || pool.handle().contents_unarbitrated().0.waiting() == 1);
            drop(one);
            assert_eq!(waits.join().unwrap(), Some(7));
        });
    }
}

#[test]
fn no_object_is_made_while_one_is_idle() {
    let _alone = alone();
    for form in forms() {
        let (bad, (make, made)) = (Arc::new(AtomicBool::new(false)), numbers());
        let fails = bad.clone();
        let make = move || {
            assert!(!fails.load(Ordering::Relaxed), "no object today");
            make()
        };
        let pool = form(ObjectPool::builder(make)).max_size(3).build();
        let [one, two, three] = [0, 1, 2].map(|_| pool.get());
        drop(one);
        // Their rooms come to lie above the object.
        Pooled::detach(two);
        Pooled::detach(three);
        for _ in 0..3 {
            assert_eq!(*pool.get(), 0);
        }
        assert_eq!((made.load(Ordering::Relaxed), pool.idle_len()), (3, 3));
        let one = pool.get();
        bad.store(true, Ordering::Relaxed);
        assert!(panics(|| pool.get()));
        drop(one);
        assert!(panics(|| (pool.get(), pool.get())), "two at once");
        assert_eq!(*pool.get(), 0, "a room of an object that cannot be made hides no other");
        bad.store(false, Ordering::Relaxed);
        let all = [0, 1, 2].map(|_| pool.try_get().unwrap());
        assert!(pool.try_get().is_none());
        drop(all);
    }
}

#[test]
fn a_refused_return_loses_neither_object_nor_room() {
    let _alone = alone();
    for form in forms() {
        let (make, made) = numbers();
        let pool = form(ObjectPool::builder(make)).max_size(2).build();
        let (one, two) = (pool.get(), pool.get());
        let arbiter = arbitrate(pool.handle(), |call| call.refuse("closed")).unwrap();
        drop(one);
        Pooled::detach(two);
        arbiter.detach();
        let both = (pool.try_get().unwrap(), pool.try_get().unwrap());
        assert_eq!((*both.0, *both.1, made.load(Ordering::Relaxed)), (0, 2, 3));
        drop(both);
    }
}

#[test]
fn an_unlimited_pool_keeps_no_rooms() {
    let _alone = alone();
    for form in forms() {
        let bad = Arc::new(AtomicBool::new(false));
        let fails = bad.clone();
        let make = move || assert!(!fails.load(Ordering::Relaxed), "no object today");
        let pool = form(ObjectPool::builder(make)).build();
        Pooled::detach(pool.get());
        bad.store(true, Ordering::Relaxed);
        assert!(panics(|| pool.get()));
        assert_eq!(pool.idle_len(), 0);
    }
}

#[test]
fn a_panic_in_a_function_of_the_pool_leaves_its_room() {
    let _alone = alone();
    for form in forms() {
        let (bad, bad_make) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let (fails, make_fails) = (bad.clone(), bad_make.clone());
        let make = move || assert!(!make_fails.load(Ordering::Relaxed), "no object today");
        let check = move |_: &mut ()| {
            assert!(!fails.load(Ordering::Relaxed), "a bad object");
            true
        };
        let pool = form(ObjectPool::builder(make)).check(check).max_size(1).build();
        drop(pool.get());
        assert!(panics(|| pool.get()), "its check panics");
        bad_make.store(true, Ordering::Relaxed);
        assert!(panics(|| pool.get()), "the object was discarded, and cannot be made");
        assert!(panics(|| pool.try_get()) && panics(|| pool.get_for(Duration::MAX)));
        bad_make.store(false, Ordering::Relaxed);
        drop(pool.get());
        bad.store(false, Ordering::Relaxed);
        let _one = pool.get();
        assert!(pool.try_get().is_none());
    }
}

/// An object with a drop that panics if it is told to.
struct Touchy<'a>(&'a AtomicBool);

impl Drop for Touchy<'_> {
    fn drop(&mut self) {
        assert!(!self.0.load(Ordering::Relaxed), "a touchy object");
    }
}

#[test]
fn a_panic_in_the_drop_of_a_discarded_object_leaves_its_room() {
    static TOUCHY: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    for form in forms() {
        let pool = form(ObjectPool::builder(|| Touchy(&TOUCHY))).check(|_| false).max_size(1).build();
        drop(pool.get());
        TOUCHY.store(true, Ordering::Relaxed);
        assert!(panics(|| pool.get()));
        TOUCHY.store(false, Ordering::Relaxed);
        let _one = pool.get();
        assert!(pool.try_get().is_none());
    }
}

#[test]
fn old_and_unfit_objects_are_replaced_and_others_reset() {
    let _alone = alone();
    let (make, made) = numbers();
    let pool = ObjectPool::builder(make).max_age(Duration::ZERO).max_size(1).build();
    for n in 0..3 {
        assert_eq!(*pool.get(), n, "each object is old when it comes back");
    }
    assert_eq!((made.load(Ordering::Relaxed), pool.idle_len()), (3, 1));
    let (make, _) = numbers();
    let pool = ObjectPool::builder(make).max_age(Duration::MAX).build();
    for _ in 0..3 {
        assert_eq!(*pool.get(), 0, "it never grows old");
    }
    let pool = ObjectPool::builder(Vec::new).check(|v: &mut Vec<u8>| v.len() < 3).reset(Vec::clear).build();
    for (len, capacity) in [(2, true), (3, true), (0, false)] {
        let mut object = pool.get();
        assert!(object.is_empty());
        assert_eq!(object.capacity() > 0, capacity && len == 3);
        object.resize(len, 1);
    }
}

#[test]
fn an_object_that_cannot_be_made_leaves_its_room_to_the_next_caller() {
    let _alone = alone();
    for form in forms() {
        let pool = form(ObjectPool::builder(|| 1)).max_size(1).build();
        assert_eq!(pool.get_or_try_make(|| Err::<u32, _>("no")).unwrap_err(), "no");
        assert!(panics(|| pool.get_or_try_make(|| -> Result<u32, ()> { panic!("no") })));
        let mut failing = Box::pin(pool.get_or_try_make_async(|| async { Err::<u32, _>("no") }));
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(failing.as_mut().poll(&mut context), Poll::Ready(Err("no"))));
        // A task that is cancelled while it makes its object, and one that waits for the room meanwhile.
        let mut making = Box::pin(pool.get_or_try_make_async(std::future::pending::<Result<u32, ()>>));
        assert!(making.as_mut().poll(&mut context).is_pending());
        let mut waiting: Task<'_, u32> = Box::pin(pool.get_async());
        assert!(poll(&mut waiting).is_pending() && pool.try_get().is_none());
        drop(making);
        let Poll::Ready(object) = poll(&mut waiting) else { panic!("the room is free") };
        assert_eq!(*object, 1);
        drop(object);
        assert_eq!(pool.get_or_try_make(|| Err("an idle object is there")).as_deref(), Ok(&1));
    }
}

#[test]
fn objects_outlive_their_pool() {
    let _alone = alone();
    let drops = Arc::new(Mutex::new(0));
    struct Counted(Arc<Mutex<u32>>);
    impl Drop for Counted {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    let shared = drops.clone();
    let pool = ObjectPool::builder(move || Counted(shared.clone())).max_size(2).build();
    let (one, two) = (pool.get(), pool.get());
    drop(pool);
    drop(one);
    assert_eq!(*drops.lock().unwrap(), 1, "there is no pool to return to");
    let two = Pooled::detach(two);
    assert_eq!(*drops.lock().unwrap(), 1);
    drop(two);
    assert_eq!(*drops.lock().unwrap(), 2);
}

#[test]
fn no_object_is_lent_twice_or_lost_while_the_pool_is_swapped() {
    const SIZE: usize = 3;
    let _alone = alone();
    let (make, made) = numbers();
    let pool = ObjectPool::builder(make).max_size(SIZE).distributed().build();
    let (stop, in_use, rounds) = (AtomicBool::new(false), Mutex::new(HashSet::new()), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..SIZE as u32 + 2 {
            let (pool, stop, in_use, rounds) = (&pool, &stop, &in_use, &rounds);
            scope.spawn(move || {
                for round in (thread..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let object = on(round * 5 % VPS, || pool.get());
                    assert!(in_use.lock().unwrap().insert(*object), "lent twice");
                    thread::yield_now();
                    assert!(in_use.lock().unwrap().remove(&*object));
                    if round % 64 == 0 {
                        Pooled::detach(object);
                    } else {
                        on(round * 3 % VPS, || drop(object));
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = Stop(&stop);
        for n in 0..30 {
            let new = if n % 2 == 0 { bag::new_shared() } else { bag::new_distributed() };
            swap_under_load(pool.handle(), new);
            let before = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) < before + 100 {
                thread::yield_now();
            }
        }
    });
    assert!(made.load(Ordering::Relaxed) >= SIZE);
    let all: Vec<_> = (0..SIZE).map(|_| pool.try_get().expect("all came back")).collect();
    assert!(pool.try_get().is_none());
    drop(all);
}

#[test]
fn a_pool_has_the_name_and_the_whole_that_it_was_given() {
    let _alone = alone();
    let whole = bag::shared::<u32>();
    let pool = ObjectPool::new(|| 7_u8).named("buffers").part_of(whole.handle());
    let info = info_of(Handle::id(pool.handle())).unwrap();
    assert_eq!(info.name.as_deref(), Some("buffers"));
    assert_eq!(info.part_of, Some(Handle::id(whole.handle())));
    assert_eq!(info.class, "squall_objects::bag::classes::Shared<squall_objects::pool::Idle<u8>>");
    drop(pool.get());
    let idle: Idle<u8> = pool.handle().get_one().unwrap();
    assert!(format!("{idle:?} {pool:?}").contains("an idle object"));
    let _: &Owned<dyn Bag<u32>> = &whole;
}
