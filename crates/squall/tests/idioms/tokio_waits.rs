//! Waits of tasks on one thread of Tokio: grace periods, barriers, swaps and the end of an object.

use std::future::Future;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use squall::prelude::*;
use squall::rcu;
use squall::swap::{Replacement, State, StateFormats, Swap, SwapFailure};
use tokio::time::timeout;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(60);

fn on_one_thread(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(test);
}

/// A thread inside an operation, until the result is dropped.
fn reader() -> mpsc::Sender<()> {
    let (leave, leaves) = mpsc::channel::<()>();
    let (enter, entered) = mpsc::channel();
    thread::spawn(move || {
        rcu::pin(|_| {
            enter.send(()).expect("the test waits");
            let _left = leaves.recv();
        });
    });
    entered.recv().expect("the thread enters");
    leave
}

/// Each wait needs another task of its thread: one that lets the reader leave.
#[test]
fn a_wait_for_a_grace_period_blocks_no_task() {
    on_one_thread(async {
        for kind in 0..3 {
            let reader = reader();
            let ran = Arc::new(AtomicU32::new(0));
            let says = ran.clone();
            rcu::defer(move || _ = says.fetch_add(1, Ordering::Relaxed));
            let waits = async move {
                match kind {
                    0 => rcu::wait_async().await,
                    1 => rcu::Marker::set().wait_async().await,
                    _ => rcu::barrier_async().await,
                }
            };
            let waits = tokio::spawn(waits);
            tokio::task::yield_now().await;
            assert!(!waits.is_finished(), "an operation is open");
            drop(reader);
            assert_eq!(timeout(LONG, waits).await.expect("it ends").expect("it does not panic"), Ok(()));
            assert!(kind < 2 || ran.load(Ordering::Relaxed) == 1, "a deferred call has not run");
        }
    });
}

#[test]
fn a_timer_of_the_runtime_limits_a_wait_for_readers() {
    on_one_thread(async {
        let reader = reader();
        timeout(Duration::ZERO, rcu::wait_async()).await.expect_err("an operation is open");
        drop(reader);
        assert_eq!(timeout(LONG, rcu::wait_async()).await, Ok(Ok(())));
    });
}

#[squall::interface]
trait Sleeper: Send + Sync {
    #[blocking]
    fn sleep(&self);
}

struct Bed {
    wakes: Mutex<mpsc::Receiver<()>>,
    asleep: Mutex<mpsc::Sender<()>>,
    dropped: Arc<AtomicU32>,
}

impl Sleeper for Bed {
    fn sleep(&self) {
        self.asleep.lock().expect("no panic").send(()).expect("the test is there");
        let _woken = self.wakes.lock().expect("no panic").recv();
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// The call needs another task of the thread on which the end of the object is awaited.
#[test]
fn a_task_waits_for_the_end_of_an_object_and_its_last_call() {
    on_one_thread(async {
        let ((wake, wakes), (sleeps, asleep)) = (mpsc::channel(), mpsc::channel());
        let dropped = Arc::new(AtomicU32::new(0));
        let bed = Bed { wakes: wakes.into(), asleep: sleeps.into(), dropped: dropped.clone() };
        let owned: Owned<dyn Sleeper> = squall::shared(bed);
        let handle = owned.handle();
        let call = thread::spawn(move || handle.sleep());
        asleep.recv().expect("the call begins");
        let destruction = Owned::destroy(owned);
        let waits = tokio::spawn(destruction.wait_async());
        for _ in 0..2 {
            timeout(LONG, rcu::barrier_async()).await.expect("it ends").expect("grace periods end");
        }
        assert!(!waits.is_finished() && !destruction.is_complete(), "a call is in the object");
        drop(wake);
        assert_eq!(timeout(LONG, waits).await.expect("it ends").expect("it does not panic"), Ok(()));
        assert_eq!((destruction.is_complete(), dropped.load(Ordering::Relaxed)), (true, 1));
        call.join().expect("it does not panic");
    });
}

#[test]
fn a_dropped_wait_leaves_a_destruction_to_itself() {
    on_one_thread(async {
        let owned = squall::objects::counter::shared();
        let reader = reader();
        let destruction = Owned::destroy(owned);
        timeout(Duration::ZERO, destruction.wait_async()).await.expect_err("an operation is open");
        drop(reader);
        assert_eq!(timeout(LONG, destruction.wait_async()).await, Ok(Ok(())));
    });
}

#[squall::interface]
trait Hits: Send + Sync {
    fn add(&self, n: u64);
    fn total(&self) -> u64;
}

#[derive(Default)]
struct OneWord(AtomicU64);

impl Hits for OneWord {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl State for OneWord {
    fn formats(formats: &mut StateFormats<'_, Self>) {
        formats.export_part(|this| Ok(this.total())).import_part(|this, n| {
            this.add(n);
            Ok(())
        });
    }
}

fn other() -> Replacement<dyn Hits> {
    Replacement::swappable(OneWord::default())
}

/// The swap needs another task of its thread: one that lets the reader leave.
#[test]
fn a_swap_blocks_no_task_while_it_waits_for_calls() {
    on_one_thread(async {
        let hits: Owned<dyn Hits> = squall::swappable(OneWord::default());
        let handle = hits.handle();
        handle.add(5);
        let reader = reader();
        let swap = Swap::new(handle).run_async(other());
        drop(Swap::new(handle).run_async(other()));
        let swap = tokio::spawn(swap);
        tokio::task::yield_now().await;
        handle.add(1);
        assert!(!swap.is_finished() && handle.total() == 6, "an operation is open");
        assert_eq!(Swap::new(handle).run(other()).unwrap_err().failure(), SwapFailure::Busy);
        drop(reader);
        let report =
            timeout(LONG, swap).await.expect("it ends").expect("it does not panic").expect("it swaps");
        assert!(report.forwarded > 0 && report.parts == 1);
        assert_eq!(handle.total(), 6);
    });
}

#[test]
fn a_dropped_swap_is_rolled_back() {
    on_one_thread(async {
        let hits: Owned<dyn Hits> = squall::swappable(OneWord::default());
        let handle = hits.handle();
        let reader = reader();
        timeout(Duration::ZERO, Swap::new(handle).run_async(other()))
            .await
            .expect_err("an operation is open");
        handle.add(1);
        let task = tokio::spawn(Swap::new(handle).run_async(other()));
        tokio::task::yield_now().await;
        task.abort();
        assert!(task.await.is_err_and(|error| error.is_cancelled()));
        drop(reader);
        let swapped = timeout(LONG, Swap::new(handle).run_async(other())).await.expect("it ends");
        assert!(swapped.is_ok());
        assert_eq!(handle.total(), 1);
    });
}

#[test]
fn the_end_of_the_object_ends_its_swap() {
    on_one_thread(async {
        let hits: Owned<dyn Hits> = squall::swappable(OneWord::default());
        let reader = reader();
        let swap = tokio::spawn(Swap::new(hits.handle()).run_async(other()));
        tokio::task::yield_now().await;
        let destruction = Owned::destroy(hits);
        drop(reader);
        let swapped = timeout(LONG, swap).await.expect("it ends").expect("it does not panic");
        assert_eq!(swapped.expect_err("the object is gone").failure(), SwapFailure::Destroyed);
        assert_eq!(timeout(LONG, destruction.wait_async()).await, Ok(Ok(())));
    });
}

/// A swap that moves to another thread, which drops it inside an operation.
#[test]
fn a_swap_is_dropped_on_any_thread() {
    let hits: Owned<dyn Hits> = squall::swappable(OneWord::default());
    let handle = hits.handle();
    let reader = reader();
    let mut swap = Box::pin(Swap::new(handle).run_async(other()));
    let polled = swap.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    thread::spawn(move || rcu::pin(|_| drop(swap))).join().expect("it does not panic");
    drop(reader);
    handle.add(1);
    Swap::new(handle).run(other()).expect("the first swap is over");
    assert_eq!(handle.total(), 1);
}
