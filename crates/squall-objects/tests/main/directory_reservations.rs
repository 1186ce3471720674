//! Reservations of directories: keys with entries that are made later.

use crate::common::{alone, on};
use squall_history::tasks::block_on;
use squall_machine::ClusterSize;
use squall_objects::directory::{self, Busy, FillError, Lookup, OwnedDirectory, Parts, Reservation, Revoked};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::thread;

type Uses = OwnedDirectory<u64, u64, u64>;

/// Creates a directory with numbers as entries and counts of uses as parts.
fn uses(size: ClusterSize) -> Uses {
    directory::distributed(size, |_| 0)
}

/// Reserves an absent key.
fn reserve(of: &Uses, key: u64) -> Reservation<u64, u64, u64> {
    of.get_or_reserve(&key, |_, _| ()).unwrap().empty().expect("the key is present")
}

/// Uses a key that another caller fills.
fn await_entry(of: &Uses, key: u64) -> Result<Option<u64>, FillError> {
    of.get_or_reserve(&key, |entry, uses| (*uses += 1, *entry).1).map(Lookup::found)
}

/// Waits until a reservation has this many waiters.
fn await_waiters(reserved: &Reservation<u64, u64, u64>, waiters: usize) {
    while reserved.waiters() < waiters {
        thread::yield_now();
    }
}

#[test]
fn co_56_a_key_is_reserved_in_all_clusters_and_its_entry_is_made_later() {
    let _alone = alone();
    let uses = uses(ClusterSize::Core);
    let page = on(3, || reserve(&uses, 7));
    assert_eq!((*page.key(), page.waiters(), page.is_revoked()), (7, 0, false));
    // In every cluster the key is absent for reads, and reserved for all others.
    for vp in 0..32 {
        on(vp, || {
            assert!(uses.read(&7, |_| ()).is_none());
            assert_eq!(uses.try_get_or_reserve(&7, |_, _| ()).unwrap_err(), Busy);
        });
    }
    uses.for_each(|_, _| panic!("a reserved key was visited"));
    // The part is in the cluster of the thread that fills, and not in that of the one that reserved.
    let filled = on(9, || page.fill_and_update(4, |entry, uses| (*entry, std::mem::replace(uses, 1))));
    assert_eq!(filled, Ok((4, 0)));
    let counts = |uses: &Uses| uses.gather(&7, Vec::new(), |counts, _, count| counts.push(*count));
    assert_eq!(counts(&uses), Some(vec![1]));
    (0..32).for_each(|vp| assert_eq!(on(vp, || await_entry(&uses, 7)).unwrap(), Some(4)));
    assert_eq!(counts(&uses).unwrap().iter().sum::<u64>(), 33);
    assert_eq!(uses.try_get_or_reserve(&7, |entry, _| *entry).unwrap().found(), Some(4));
}

/// Threads and tasks that wait for an entry are outside the call, so that a swap succeeds meanwhile.
#[test]
fn co_56_a_swap_does_not_wait_for_callers_that_wait_for_an_entry() {
    let _alone = alone();
    let uses = uses(ClusterSize::Core);
    let page = on(3, || reserve(&uses, 7));
    thread::scope(|scope| {
        let blocks = scope.spawn(|| await_entry(&uses, 7));
        let awaits = scope.spawn(|| block_on(uses.get_or_reserve_async(&7, |entry, _| *entry)));
        await_waiters(&page, 2);
        for size in [ClusterSize::Cpu, ClusterSize::Node] {
            uses.set_cluster_size(size).unwrap();
        }
        assert_eq!(page.waiters(), 2);
        page.fill(4).unwrap();
        assert_eq!(blocks.join().unwrap().unwrap(), Some(4));
        assert_eq!(awaits.join().unwrap().unwrap().found(), Some(4));
    });
    assert_eq!(uses.gather(&7, 0, |sum, _, uses| *sum += *uses), Some(1));
}

#[test]
fn co_56_a_reservation_fails_or_is_dropped_or_revoked() {
    let _alone = alone();
    let uses = uses(ClusterSize::Cpu);
    // An error goes to the waiter, and the key stays absent.
    let page = reserve(&uses, 7);
    thread::scope(|scope| {
        let waits = scope.spawn(|| await_entry(&uses, 7).unwrap_err().to_string());
        await_waiters(&page, 1);
        page.fail("the disk is gone");
        assert_eq!(waits.join().unwrap(), "the key was not filled: the disk is gone");
    });
    assert!(uses.is_empty());
    // A reservation that is dropped passes to the waiter.
    let page = reserve(&uses, 7);
    thread::scope(|scope| {
        let waits = scope.spawn(|| reserve(&uses, 7).fill(5));
        await_waiters(&page, 1);
        drop(page);
        assert_eq!(waits.join().unwrap(), Ok(()));
    });
    assert!(!uses.revoke(&7), "only reservations are revoked");
    assert_eq!(uses.remove_with(&7, 0, |_, _, _| ()), Some(0));
    // A revoked reservation returns its entry.
    let pages = [1, 2].map(|key| reserve(&uses, key));
    assert!(uses.revoke(&1) && !uses.revoke(&1) && uses.revoke(&2));
    let [first, second] = pages;
    assert!(first.is_revoked());
    assert_eq!(first.fill(4), Err(Revoked(4)));
    assert_eq!(second.fill_and_update(4, |_, _| unreachable!()), Err(Revoked(4)));
    assert!(uses.is_empty());
}

/// The end of a directory ends its reservations: a caller that waits fails, and a fill returns its entry.
#[test]
fn co_56_the_end_of_a_directory_ends_its_reservations() {
    let _alone = alone();
    let uses = uses(ClusterSize::Core);
    let handle = uses.handle();
    let [first, second] = [1, 2].map(|key| reserve(&uses, key));
    thread::scope(|scope| {
        let waits = scope.spawn(move || {
            catch_unwind(AssertUnwindSafe(|| handle.get_or_reserve(&1, |_, _| ()).map(|_| ())))
        });
        await_waiters(&first, 1);
        // A call after this must fail, but the reservation holds until the directory is freed.
        drop(uses);
        while !waits.is_finished() {
            squall_rcu::barrier().unwrap();
        }
        let panic = waits.join().unwrap().unwrap_err();
        let message = panic.downcast_ref::<String>().expect("the call panics with a message");
        assert!(message.contains("destroyed"), "{message}");
    });
    assert!(first.is_revoked() && second.is_revoked());
    assert_eq!(first.fill(4), Err(Revoked(4)));
    assert_eq!(second.fill_and_update(4, |_, _| unreachable!()), Err(Revoked(4)));
}

#[test]
fn co_56_a_task_waits_for_an_entry_and_may_leave() {
    #[derive(Default)]
    struct Bell(AtomicU64);
    impl Wake for Bell {
        fn wake(self: Arc<Bell>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let _alone = alone();
    let uses = uses(ClusterSize::Core);
    let page = reserve(&uses, 7);
    let bells = [0, 1].map(|_| Arc::new(Bell::default()));
    let wakers = bells.clone().map(Waker::from);
    let [mut stays, mut leaves] = [0, 1].map(|_| Box::pin(uses.get_or_reserve_async(&7, |entry, _| *entry)));
    assert!(stays.as_mut().poll(&mut Context::from_waker(&wakers[0])).is_pending());
    assert!(leaves.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_pending());
    assert_eq!(page.waiters(), 2);
    drop(leaves);
    assert_eq!(page.waiters(), 1);
    // The task goes on in another thread.
    thread::scope(|scope| scope.spawn(move || page.fill(4)).join().unwrap()).unwrap();
    assert_eq!(bells.map(|bell| bell.0.load(SeqCst)), [1, 0]);
    let found = thread::scope(|scope| scope.spawn(move || block_on(stays)).join().unwrap());
    assert_eq!(found.unwrap().found(), Some(4));
}
