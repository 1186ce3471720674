//! Swaps and upgrades for tasks.

use crate::tasks::{PATIENCE, Task, bed, sleeps};
use squall_core::swap::{Factory, Replacement, State, StateFormats, Swap, SwapFailure};
use squall_core::{Handle, Owned};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Instant;

#[squall_macros::interface(crate = squall_core)]
trait Counter: Send + Sync {
    fn add(&self, n: u64);
    fn get(&self) -> u64;
}

/// A counter in one of several classes.
#[derive(Default)]
struct Central<const CLASS: u32>(AtomicU64);

impl<const CLASS: u32> Counter for Central<CLASS> {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<const CLASS: u32> State for Central<CLASS> {
    fn formats(formats: &mut StateFormats<'_, Self>) {
        formats.export_part(|this| Ok(this.get())).import_part(|this, n: u64| {
            this.add(n);
            Ok(())
        });
    }
}

fn central<const CLASS: u32>() -> Replacement<dyn Counter> {
    Replacement::swappable(Central::<CLASS>::default())
}

/// A counter with a transfer that tells the test about itself, and then waits for the test.
struct Slow {
    begins: Mutex<mpsc::Sender<()>>,
    may_go_on: Mutex<mpsc::Receiver<()>>,
}

impl Counter for Slow {
    fn add(&self, _: u64) {}
    fn get(&self) -> u64 {
        7
    }
}

impl State for Slow {
    fn formats(formats: &mut StateFormats<'_, Slow>) {
        formats.export_part(|this| {
            this.begins.lock().unwrap().send(())?;
            this.may_go_on.lock().unwrap().recv_timeout(PATIENCE)?;
            Ok(this.get())
        });
    }
}

fn slow() -> (Owned<dyn Counter>, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let ((begins, begun), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel());
    let slow = Slow { begins: begins.into(), may_go_on: may_go_on.into() };
    (squall_core::swappable::<dyn Counter, _>(slow), begun, go_on)
}

/// Polls a swap until its transfer has begun.
fn poll_until<T>(task: &mut Task<'_, T>, begun: &mpsc::Receiver<()>) {
    while begun.try_recv().is_err() {
        assert!(task.poll().is_pending(), "the swap has ended");
        thread::yield_now();
    }
}

/// The transfer needs the thread of the task.
#[test]
fn a_swap_blocks_no_task_while_the_state_moves() {
    let (owned, begun, go_on) = slow();
    let mut swap = Task::new(Swap::new(owned.handle()).run_async(central::<0>()));
    poll_until(&mut swap, &begun);
    assert!(swap.poll().is_pending());
    go_on.send(()).unwrap();
    let report = swap.run().unwrap();
    assert_eq!((report.parts, owned.get()), (1, 7));
}

#[test]
fn a_swap_that_is_dropped_while_the_state_moves_is_rolled_back() {
    let (owned, begun, go_on) = slow();
    let handle = owned.handle();
    let mut swap = Task::new(Swap::new(handle).run_async(central::<0>()));
    poll_until(&mut swap, &begun);
    let bell = swap.bell.clone();
    drop(swap);
    // The reclaimer may still be ringing for the end of the first wait.
    let dropped = Instant::now();
    while Arc::strong_count(&bell) > 1 {
        assert!(dropped.elapsed() < PATIENCE, "a waker was kept");
        thread::yield_now();
    }
    go_on.send(()).unwrap();
    // The first swap rolls back meanwhile.
    let again = loop {
        match Swap::new(handle).without_state().run(central::<0>()) {
            Err(error) if error.failure() == SwapFailure::Busy => thread::yield_now(),
            swapped => break swapped,
        }
    };
    assert_eq!(again.unwrap().from, std::any::type_name::<Slow>());
}

/// The last call needs the thread of the task.
#[test]
fn a_swap_blocks_no_task_while_it_waits_for_the_last_call() {
    let ((first, asleep, wake), (second, ..)) = (bed(), bed());
    let owned = first.create().unwrap();
    let call = sleeps(owned.handle(), &asleep);
    let swap = Swap::new(owned.handle()).without_state().drain_timeout(PATIENCE);
    let mut swap = Task::new(swap.run_async(second));
    assert!(swap.poll().is_pending());
    // Once no call from before is in an operation.
    squall_rcu::wait().unwrap();
    for _ in 0..2 {
        assert!(swap.poll().is_pending());
        thread::yield_now();
    }
    wake.send(()).unwrap();
    swap.run().unwrap();
    call.join().unwrap();
}

#[test]
fn a_task_upgrades_all_objects_of_a_factory() {
    let factory: Factory<dyn Counter> = Factory::new(central::<1>);
    let owned = [factory.create(), factory.create()];
    owned[0].add(3);
    let upgrade = factory.upgrade_async(central::<2>, |swap| swap.timeout(PATIENCE));
    let upgraded = Task::new(upgrade).run().unwrap();
    assert_eq!(upgraded.len(), 2);
    for object in upgraded {
        assert!(owned.iter().any(|owned| Handle::id(owned.handle()) == object.id));
        assert_eq!(object.outcome.unwrap().to, std::any::type_name::<Central<2>>());
    }
    assert_eq!(owned.each_ref().map(|owned| owned.get()), [3, 0]);
}

/// Begins an upgrade, and drops it when it has changed the maker.
#[cfg(all(target_os = "linux", not(miri)))]
fn drop_upgrade(factory: &Factory<dyn Counter>) {
    let (meets, is_first) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(true)));
    let (enters, (leave, leaves)) = (meets.clone(), mpsc::channel::<()>());
    let reader = thread::spawn(move || {
        enters.wait();
        squall_rcu::pin(|_| {
            enters.wait();
            let _left = leaves.recv();
        });
    });
    // The reader enters after the first wait and before the second, so the second does not end.
    let first = is_first.clone();
    let make = move || {
        if first.swap(false, Ordering::Relaxed) {
            meets.wait();
            meets.wait();
        }
        central::<3>()
    };
    let mut dropped = Task::new(factory.upgrade_async(make, |swap| swap));
    while is_first.load(Ordering::Relaxed) {
        assert!(dropped.poll().is_pending(), "an operation is open");
        thread::yield_now();
    }
    drop(dropped);
    leave.send(()).unwrap();
    reader.join().unwrap();
}

/// Alone, since another test forbids the reclaimer. Then a poll within an operation is refused.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_dropped_upgrade_leaves_all_objects_to_the_next_one() {
    if !crate::support::alone("swap_tasks::a_dropped_upgrade_leaves_all_objects_to_the_next_one", &[&[]]) {
        return;
    }
    let factory: Factory<dyn Counter> = Factory::new(central::<1>);
    let before = factory.create();
    before.add(3);
    // This one ends in its first wait.
    let mut early = Task::new(factory.upgrade_async(central::<2>, |swap| swap));
    let polled = squall_rcu::pin(|_| early.poll());
    assert!(polled.is_pending(), "{polled:?}");
    drop(early);
    drop_upgrade(&factory);
    let after = factory.create();
    after.add(4);
    let upgraded = factory.upgrade(central::<4>, |swap| swap).unwrap();
    let from = |owned: &Owned<dyn Counter>| {
        let object = upgraded.iter().find(|object| object.id == Handle::id(owned.handle()));
        object.unwrap().outcome.as_ref().unwrap().from
    };
    assert_eq!(from(&before), std::any::type_name::<Central<1>>());
    assert_eq!(from(&after), std::any::type_name::<Central<3>>(), "the maker did not change");
    assert_eq!((upgraded.len(), before.get(), after.get()), (2, 3, 4));
}
