//! Tests of reserved keys: elements that are handed out empty and filled later.

use squall_history::rng::Rng;
use squall_history::tasks::block_on;
use squall_parts::dhash::{
    Busy, FillError, LocalTable, Locking, Lookup, MasterTable, Reservation, Revoked, Verdict,
};
use std::hash::RandomState;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

type Master = MasterTable<u64, u64, u64>;
type Local = LocalTable<u64, u64, u64>;
type Reserved = Reservation<u64, u64, u64, RandomState>;

/// The number of rounds in most tests.
const MANY: u64 = if cfg!(miri) { 20 } else { 2_000 };

/// Numbers as global parts, and their tenfold as local parts.
fn numbers() -> (Master, [Local; 2]) {
    let master = Master::new(|global| global * 10);
    let locals = [master.local(), master.local()];
    (master, locals)
}

/// Reserves an absent key.
fn reserve(local: &Local, key: u64) -> Reserved {
    local.find_or_reserve(&key, |_, _| ()).unwrap().empty().expect("the key is present")
}

/// Waits until a reservation has this many waiters.
fn await_waiters(reserved: &Reserved, waiters: usize) {
    while reserved.waiters() < waiters {
        thread::yield_now();
    }
}

/// Counts wake-ups.
#[derive(Default)]
struct Bell(AtomicU64);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn co_56_a_key_is_reserved_empty_and_filled_later_by_another_thread() {
    let (master, locals) = numbers();
    let page = reserve(&locals[0], 7);
    assert_eq!((*page.key(), page.waiters(), page.is_revoked()), (7, 0, false));
    // No table shows a half-filled key.
    assert!(locals.iter().all(|local| local.read(&7, |_| ()).is_none() && local.is_empty()));
    assert!(master.read(&7, |_| ()).is_none());
    master.for_each(|_, _| panic!("a reserved key was visited"));
    // The only reservation of the key.
    assert_eq!(locals[0].try_find_or_reserve(&7, |_, _| ()).unwrap_err(), Busy);
    assert_eq!(locals[1].try_find_or_reserve(&7, |_, _| ()).unwrap_err(), Busy);
    assert_eq!(master.try_find_or_reserve(&7, |_| ()).unwrap_err(), Busy);
    thread::spawn(move || page.fill(4).unwrap()).join().unwrap();
    for local in &locals {
        assert_eq!(local.read(&7, |global| *global), Some(4));
        let found = local.find_or_reserve(&7, |global, part| (*global, *part)).unwrap().found();
        assert_eq!(found, Some((4, 40)));
        assert_eq!(local.try_find_or_reserve(&7, |_, part| *part).unwrap().found(), Some(40));
    }
    let found = master.find_or_reserve(&7, |element| *element.global()).unwrap().found();
    assert_eq!(found, Some(4));
}

#[test]
fn co_56_the_filler_locks_its_part_before_any_other_caller() {
    let (master, locals) = numbers();
    let page = reserve(&locals[0], 7);
    // The part is in the place of the thread that fills, and not of the one that reserved.
    let seen = page.fill_and_lock(&locals[1], 4, |global, part| {
        assert_eq!((*global, *part), (4, 40));
        assert_eq!(locals[0].read(&7, |global| *global), Some(4), "full from here");
        std::mem::replace(part, 1)
    });
    assert_eq!(seen, Ok(40));
    assert_eq!([0, 1].map(|at| locals[at].len()), [0, 1]);
    assert_eq!(locals[1].find_and_lock(&7, |_, part| *part), Some(1));
    assert_eq!(master.do_op(&7, Locking::All, 0, |_, _| (), |sum, _, part| *sum += *part), Some(1));
}

/// A function that asks for the key, and returns its global part.
type Way<'a> = dyn Fn(&Master, &Local) -> Option<u64> + Sync + 'a;

#[test]
fn co_56_all_that_lock_a_reserved_key_wait_for_the_fill() {
    let ways: [&Way; 8] = [
        &|_, local| local.find_or_reserve(&7, |global, _| *global).unwrap().found(),
        &|_, local| block_on(local.find_or_reserve_async(&7, |global, _| *global)).unwrap().found(),
        &|_, local| Some(local.find_or_allocate_and_lock(&7, || 5, |_, global, _| *global)),
        &|_, local| local.find_and_lock(&7, |global, _| *global),
        &|master, _| master.find_or_reserve(&7, |element| *element.global()).unwrap().found(),
        &|master, _| block_on(master.find_or_reserve_async(&7, |element| *element.global())).unwrap().found(),
        &|master, _| Some(master.find_or_allocate_and_lock(&7, || 5, |_, element| *element.global())),
        &|master, _| master.do_op(&7, Locking::All, 0, |seen, global| *seen = *global, |_, _, _| ()),
    ];
    let (master, locals) = numbers();
    let page = reserve(&locals[0], 7);
    thread::scope(|scope| {
        let waiters = ways.map(|way| {
            let (master, local) = (&master, &locals[1]);
            scope.spawn(move || way(master, local))
        });
        await_waiters(&page, ways.len());
        page.fill(4).unwrap();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Some(4));
        }
    });
}

#[test]
fn co_56_emptying_waits_for_the_fill_and_walks_skip_the_key() {
    let (master, locals) = numbers();
    locals[0].find_or_allocate_and_lock(&1, || 1, |_, _, _| ());
    let page = reserve(&locals[0], 7);
    let mut seen = 0;
    master.do_op_all(Locking::All, (), |(), _, _| seen += 1, |(), _, _, _| ());
    assert_eq!(seen, 1);
    master.retain(|_, _| false);
    master.clear();
    thread::scope(|scope| {
        let emptied = scope.spawn(|| master.empty_data(&7));
        await_waiters(&page, 1);
        page.fill(4).unwrap();
        assert!(emptied.join().unwrap());
    });
    assert!(master.is_empty());
}

#[test]
fn co_56_a_reservation_that_is_dropped_passes_to_a_waiter() {
    let (master, locals) = numbers();
    // A panic of the thread that fills is a drop too.
    for panics in [false, true] {
        let page = reserve(&locals[0], 7);
        thread::scope(|scope| {
            let asks = || match locals[1].find_or_reserve(&7, |global, _| *global).unwrap() {
                Lookup::Found(global) => (Verdict::Found, global),
                Lookup::Empty(page) => {
                    page.fill(4).unwrap();
                    (Verdict::Empty, 4)
                }
            };
            let waiters = [0, 1, 2].map(|_| scope.spawn(asks));
            await_waiters(&page, 3);
            if panics {
                let fills = AssertUnwindSafe(move || {
                    let _page = page;
                    std::panic::resume_unwind(Box::new("the input failed"));
                });
                catch_unwind(fills).unwrap_err();
            } else {
                drop(page);
            }
            let told = waiters.map(|waiter| waiter.join().unwrap());
            assert_eq!(told.iter().filter(|told| told.0 == Verdict::Empty).count(), 1, "{told:?}");
            assert!(told.iter().all(|told| told.1 == 4));
        });
        assert!(master.empty_data(&7));
    }
}

#[test]
fn co_56_an_error_goes_to_all_waiters_and_the_key_stays_absent() {
    let (master, locals) = numbers();
    let page = reserve(&locals[0], 7);
    let told = |error: FillError| {
        let error = error.inner().downcast_ref::<std::io::Error>().unwrap();
        (error.kind(), error.to_string())
    };
    thread::scope(|scope| {
        let blocks = scope.spawn(|| told(locals[1].find_or_reserve(&7, |_, _| ()).unwrap_err()));
        let awaits = scope.spawn(|| told(block_on(master.find_or_reserve_async(&7, |_| ())).unwrap_err()));
        // A caller with a filling closure needs no error: it fills the key itself.
        let fills =
            scope.spawn(|| master.find_or_allocate_and_lock(&7, || 5, |_, element| *element.global()));
        await_waiters(&page, 3);
        page.fail(std::io::Error::new(std::io::ErrorKind::StorageFull, "no room"));
        let error = (std::io::ErrorKind::StorageFull, "no room".to_owned());
        assert_eq!([blocks.join().unwrap(), awaits.join().unwrap()], [error.clone(), error]);
        assert_eq!(fills.join().unwrap(), 5);
    });
    assert!(master.empty_data(&7));
    // An error without waiters is for no caller.
    let page = master.find_or_reserve(&7, |_| ()).unwrap().empty().unwrap();
    page.fail("nobody waits");
    assert!(master.is_empty() && matches!(master.find_or_reserve(&7, |_| ()), Ok(Lookup::Empty(_))));
}

#[test]
fn co_56_a_revoked_reservation_returns_its_value() {
    let (master, locals) = numbers();
    let page = reserve(&locals[0], 7);
    assert!(master.revoke(&7) && !master.revoke(&7) && page.is_revoked());
    // The next life begins before the first filler ends.
    let next = reserve(&locals[1], 7);
    assert_eq!(page.fill(4), Err(Revoked(4)));
    next.fill(5).unwrap();
    assert_eq!(master.read(&7, |global| *global), Some(5));
    assert!(!master.revoke(&7) && !master.revoke(&8), "only reservations are revoked");
    assert!(master.empty_data(&7));
    // So with a part in a local table, and for all keys at once.
    let pages = [1, 2, 3].map(|key| reserve(&locals[0], key));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| matches!(locals[1].find_or_reserve(&2, |_, _| ()), Ok(Lookup::Empty(_))));
        await_waiters(&pages[1], 1);
        master.revoke_all();
        assert!(waiter.join().unwrap(), "a waiter of a revoked key reserves it");
    });
    for page in pages {
        assert_eq!(page.fill_and_lock(&locals[0], 4, |_, _| unreachable!()), Err(Revoked(4)));
    }
    assert!(master.is_empty() && locals[0].is_empty());
    // A key that a closure fills is not revoked.
    locals[0].find_or_allocate_and_lock(&7, || (assert!(!master.revoke(&7)), 4).1, |_, _, _| ());
}

#[test]
fn co_56_a_reservation_does_not_keep_its_table() {
    let alive = Arc::new(());
    let held = alive.clone();
    let master = MasterTable::<u64, u64, ()>::new(move |_| _ = &held);
    let local = master.local();
    let pages = [1, 2, 3].map(|key| local.find_or_reserve(&key, |_, ()| ()).unwrap().empty().unwrap());
    drop(master);
    let [first, second, third] = pages;
    first.fill(4).unwrap();
    assert_eq!(local.read(&1, |global| *global), Some(4), "a local table outlives its master");
    drop(local);
    assert_eq!(Arc::strong_count(&alive), 1, "a reservation keeps the table");
    assert!(second.is_revoked());
    assert_eq!(second.fill(4), Err(Revoked(4)));
    third.fail("the table is gone");
}

#[test]
fn co_56_a_fill_that_panics_leaves_the_key_empty() {
    let master = Master::new(|global| if *global == 13 { panic!("no part") } else { *global });
    let other = Master::new(|global| *global);
    let (local, foreign) = (master.local(), other.local());
    let fills = |local: &Local, global: u64| {
        let page = master.find_or_reserve(&7, |_| ()).unwrap().empty().unwrap();
        catch_unwind(AssertUnwindSafe(|| page.fill_and_lock(local, global, |_, _| panic!("with the part"))))
    };
    assert!(fills(&local, 13).is_err() && fills(&foreign, 4).is_err());
    assert!(master.is_empty() && local.is_empty(), "{master:?} {local:?}");
    assert!(fills(&local, 4).is_err());
    assert_eq!(local.find_and_lock(&7, |_, part| *part), Some(4), "the key was full when the closure ran");
}

#[test]
fn co_56_a_task_waits_without_its_thread() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let (master, locals) = numbers();
    let bells = [0, 1].map(|_| Arc::new(Bell::default()));
    let wakers = bells.clone().map(Waker::from);
    let page = is_send(reserve(&locals[0], 7));
    let mut stays = Box::pin(is_send(locals[0].find_or_reserve_async(&7, |global, _| *global)));
    let mut leaves = Box::pin(is_send(master.find_or_reserve_async(&7, |element| *element.global())));
    let poll = |at: usize| Context::from_waker(&wakers[at]);
    assert!(stays.as_mut().poll(&mut poll(0)).is_pending());
    assert!(leaves.as_mut().poll(&mut poll(1)).is_pending());
    assert_eq!(page.waiters(), 2);
    drop(leaves);
    assert_eq!(page.waiters(), 1, "a task that is dropped leaves");
    // The latest waker counts.
    assert!(stays.as_mut().poll(&mut poll(1)).is_pending());
    page.fill(4).unwrap();
    assert_eq!([0, 1].map(|at| bells[at].0.load(SeqCst)), [0, 1]);
    let Poll::Ready(Ok(Lookup::Found(4))) = stays.as_mut().poll(&mut poll(1)) else { panic!() };
    // A task also waits for a key that a closure fills, and is woken when the locks are free.
    let mut waits = Box::pin(locals[1].find_or_reserve_async(&8, |global, _| *global));
    let polls = || {
        thread::scope(|scope| {
            let first = scope.spawn(|| waits.as_mut().poll(&mut poll(0)).is_pending());
            let busy = scope.spawn(|| locals[1].try_find_or_reserve(&8, |_, _| ()).unwrap_err());
            assert_eq!((first.join().unwrap(), busy.join().unwrap()), (true, Busy));
        });
        5
    };
    locals[1].find_or_allocate_and_lock(&8, polls, |verdict, _, _| {
        assert_eq!((verdict, bells[0].0.load(SeqCst)), (Verdict::Empty, 0), "woken under a lock");
    });
    assert_eq!(bells[0].0.load(SeqCst), 1);
    let Poll::Ready(Ok(Lookup::Found(5))) = waits.as_mut().poll(&mut poll(0)) else { panic!() };
}

/// Wakers that panic must not leave later reservations without an end.
#[test]
fn co_56_all_reservations_end_even_if_wakers_panic() {
    struct Alarm;
    impl Wake for Alarm {
        fn wake(self: Arc<Alarm>) {
            panic!("woken");
        }
    }
    let (master, locals) = numbers();
    let pages = [1, 2, 3].map(|key| reserve(&locals[0], key));
    let waker = Waker::from(Arc::new(Alarm));
    let mut waits = [&1, &2, &3].map(|key| Box::pin(master.find_or_reserve_async(key, |_| ())));
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert!(catch_unwind(AssertUnwindSafe(|| master.revoke_all())).is_err());
    assert_eq!(pages.each_ref().map(Reservation::is_revoked), [true; 3]);
}

/// A global part with a number of its own. Counts live instances.
struct Life(u64, Arc<AtomicU64>);

impl Drop for Life {
    fn drop(&mut self) {
        assert!(self.1.fetch_sub(1, SeqCst) > 0);
    }
}

/// Each key has one filler at a time, and each filled value ends once: emptied, or left at the end.
#[test]
fn co_56_each_reservation_ends_once_under_load() {
    let (threads, seed) = (4, 20_270_101);
    println!("seed {seed}");
    let [alive, numbers, filled, emptied] = [(); 4].map(|()| Arc::new(AtomicU64::new(0)));
    let master = MasterTable::<u64, Life, u64>::new(|life| life.0);
    let locals = [master.local(), master.local()];
    let new = || {
        alive.fetch_add(1, SeqCst);
        Life(numbers.fetch_add(1, SeqCst), alive.clone())
    };
    thread::scope(|scope| {
        for thread in 0..threads {
            let (master, local, new) = (&master, &locals[thread % 2], &new);
            let (filled, emptied) = (&filled, &emptied);
            scope.spawn(move || {
                let mut rng = Rng::new(seed, thread as u64);
                for _ in 0..MANY {
                    let key = rng.below(3);
                    let look = |life: &Life, part: &mut u64| assert_eq!(life.0, *part, "half a value");
                    let asked = match rng.below(5) {
                        0 => local.find_or_reserve(&key, look).unwrap_or_else(|_| Lookup::Found(())),
                        1 => block_on(local.find_or_reserve_async(&key, look))
                            .unwrap_or_else(|_| Lookup::Found(())),
                        2 => local.try_find_or_reserve(&key, look).unwrap_or_else(|_| Lookup::Found(())),
                        3 => {
                            emptied.fetch_add(u64::from(master.empty_data(&key)), SeqCst);
                            continue;
                        }
                        _ => {
                            if rng.below(4) == 0 {
                                master.revoke(&key);
                            }
                            local.read(&key, |life| assert!(life.0 < u64::MAX));
                            continue;
                        }
                    };
                    let Lookup::Empty(page) = asked else { continue };
                    let ended = match rng.below(5) {
                        0 => page.fill(new()).is_ok(),
                        1 => page.fill_and_lock(local, new(), look).is_ok(),
                        2 => thread::scope(|other| other.spawn(|| page.fill(new()).is_ok()).join().unwrap()),
                        3 => (page.fail("no room"), false).1,
                        _ => (drop(page), false).1,
                    };
                    filled.fetch_add(u64::from(ended), SeqCst);
                }
            });
        }
    });
    assert_eq!(filled.load(SeqCst), emptied.load(SeqCst) + master.len() as u64);
    master.revoke_all();
    master.clear();
    assert!(master.is_empty() && locals.iter().all(LocalTable::is_empty));
    drop((master, locals));
    squall_rcu::barrier().unwrap();
    assert_eq!(alive.load(SeqCst), 0, "each value is dropped once");
}
