//! Deferred calls run once, late enough, outside operations, and are bounded.

use super::alone;
use squall_rcu::{WaitError, barrier, defer, in_operation, pin, reclaim, retire, stats, wait};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const MANY: usize = if cfg!(miri) { 20 } else { 10_000 };

#[test]
fn each_deferred_call_runs_once() {
    let _alone = alone();
    let ran = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for i in 0..MANY {
                    let ran = ran.clone();
                    let call = move || {
                        assert!(!in_operation());
                        ran.fetch_add(1, Ordering::Relaxed);
                    };
                    if i % 3 == 0 { pin(|_| defer(call)) } else { defer(call) }
                }
            });
        }
    });
    barrier().unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 4 * MANY);
    assert_eq!(stats().pending_calls, 0);
    assert_eq!(stats().pending_bytes, 0);
}

#[test]
fn a_barrier_covers_calls_of_other_threads() {
    let _alone = alone();
    let ran = Arc::new(AtomicUsize::new(0));
    let (deferred_tx, deferred) = std::sync::mpsc::channel();
    let (done, done_rx) = std::sync::mpsc::channel::<()>();
    let other = {
        let ran = ran.clone();
        thread::spawn(move || {
            defer(move || {
                ran.fetch_add(1, Ordering::SeqCst);
            });
            deferred_tx.send(()).unwrap();
            // Stays alive and idle, so it never runs its own call.
            done_rx.recv().unwrap();
        })
    };
    deferred.recv().unwrap();
    barrier().unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    done.send(()).unwrap();
    other.join().unwrap();
}

#[test]
fn the_reclaimer_runs_calls_of_an_idle_thread() {
    let _alone = alone();
    let ran = Arc::new(AtomicBool::new(false));
    {
        let ran = ran.clone();
        defer(move || ran.store(true, Ordering::SeqCst));
    }
    // This thread makes no further call of the library, so the reclaimer must run the call.
    let limit = Instant::now() + Duration::from_secs(60);
    while !ran.load(Ordering::SeqCst) {
        assert!(Instant::now() < limit, "a deferred call was not run: {:?}", stats());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(squall_rcu::reclaimer_state(), squall_rcu::ReclaimerState::Running);
}

#[test]
fn a_thread_that_retires_seldom_does_not_hold_on_to_batches() {
    let _alone = alone();
    let live = Arc::new(AtomicUsize::new(0));
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    // Too few calls for a batch, but the thread is never idle for a whole round of the reclaimer. All calls
    // take more than a second. On a loaded machine the reclaimer may run too late, so the thread tries again.
    let (few, pause) = if cfg!(miri) { (2, 600) } else { (120, 9) };
    let ran_soon = (0..100).any(|_| {
        barrier().unwrap();
        (1..=few).any(|retired| {
            live.fetch_add(1, Ordering::SeqCst);
            retire(Box::new(Counted(live.clone())));
            thread::sleep(Duration::from_millis(pause));
            live.load(Ordering::SeqCst) < retired
        })
    });
    assert!(ran_soon, "no call ran before a batch was full");
}

#[test]
fn calls_that_panic_run_once_each() {
    let _alone = alone();
    let count = if cfg!(miri) { 7 } else { 700 };
    let before = stats().panicked;
    let ran: Arc<Vec<AtomicUsize>> = Arc::new((0..count).map(|_| AtomicUsize::new(0)).collect());
    std::panic::set_hook(Box::new(|_| ()));
    for n in 0..count {
        let ran = ran.clone();
        defer(move || {
            ran[n].fetch_add(1, Ordering::Relaxed);
            if n % 3 != 1 {
                // A payload of size zero, since payloads of deferred calls are leaked.
                std::panic::panic_any(());
            }
        });
    }
    barrier().unwrap();
    let _ = std::panic::take_hook();
    assert!(ran.iter().all(|ran| ran.load(Ordering::Relaxed) == 1));
    let panicking = (0..count).filter(|n| n % 3 != 1).count() as u64;
    assert_eq!(stats().panicked, before + panicking);
}

#[test]
fn a_panic_in_a_deferred_call_does_not_stop_the_others() {
    let _alone = alone();
    let before = stats().panicked;
    let ran = Arc::new(AtomicUsize::new(0));
    for i in 0..10 {
        let ran = ran.clone();
        defer(move || {
            ran.fetch_add(1, Ordering::SeqCst);
            if i == 5 {
                // Its payload panics once more when it is dropped.
                struct Again;
                impl Drop for Again {
                    fn drop(&mut self) {
                        panic!("the payload's own");
                    }
                }
                std::panic::panic_any(Again);
            }
        });
    }
    barrier().unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 10);
    assert_eq!(stats().panicked, before + 1);
}

#[test]
fn a_deferred_call_may_defer_but_not_wait() {
    let _alone = alone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    {
        let seen = seen.clone();
        defer(move || {
            seen.lock().unwrap().push(wait());
            seen.lock().unwrap().push(barrier().map(|_| ()));
            let seen = seen.clone();
            defer(move || seen.lock().unwrap().push(Ok(())));
        });
    }
    barrier().unwrap();
    barrier().unwrap();
    let expected = [Err(WaitError::InDeferredCall), Err(WaitError::InDeferredCall), Ok(())];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn a_chain_of_drops_does_not_recurse() {
    // Each node retires the next when it is dropped: nested reclamation would overflow the stack.
    struct Node(Option<Box<Node>>);
    impl Drop for Node {
        fn drop(&mut self) {
            if let Some(next) = self.0.take() {
                retire(next);
            }
        }
    }
    let _alone = alone();
    let length = if cfg!(miri) { 20 } else { 20_000 };
    let mut list = None;
    for _ in 0..length {
        list = Some(Box::new(Node(list)));
    }
    retire(list.unwrap());
    while stats().pending_calls > 0 {
        barrier().unwrap();
    }
}

#[test]
fn pending_memory_is_bounded_while_no_reader_stalls() {
    let _alone = alone();
    let begun = Instant::now();
    let peak = (0..MANY * 10)
        .map(|_| {
            retire(Box::new([0_u8; 256]));
            stats_of_this_moment()
        })
        .max();
    // The bound of one thread is 2048 calls and a batch. Threads of other tests are not running. For a grace
    // period that another thread drives, the caller waits 50 ms at most. Then one more batch is pending.
    let late = begun.elapsed().as_millis() as u64 / 50 * 128;
    assert!(peak.unwrap() <= 2048 + 128 + 128 + late, "{peak:?} pending");
}

#[test]
fn a_size_of_more_than_4_gib_counts_as_4_gib() {
    let _alone = alone();
    // Inside an operation, where no thread runs the calls yet.
    let pending = pin(|_| {
        retire(Box::new(0_u64));
        squall_rcu::retire_with_size(Box::new(0_u64), usize::MAX);
        stats().pending_bytes
    });
    assert_eq!(pending, 8 + u64::from(u32::MAX));
    barrier().unwrap();
    assert_eq!(stats().pending_bytes, 0);
}

fn stats_of_this_moment() -> u64 {
    // Reading every record on each call would take long. Every 64th call is enough for a peak of thousands.
    thread_local!(static TURN: Cell<u32> = const { Cell::new(0) });
    TURN.set(TURN.get().wrapping_add(1));
    if TURN.get().is_multiple_of(64) { stats().pending_calls } else { 0 }
}

/// Starts a thread that stays inside an operation until it gets a message.
fn reader() -> (JoinHandle<()>, Sender<()>) {
    let (inside_tx, inside) = channel();
    let (done, done_rx) = channel();
    let reader = thread::spawn(move || {
        pin(|_| {
            inside_tx.send(()).unwrap();
            done_rx.recv().unwrap();
        });
    });
    inside.recv().unwrap();
    (reader, done)
}

#[test]
#[cfg_attr(miri, ignore = "it measures time that Miri does not have")]
fn a_caller_that_retires_too_much_waits_for_a_bounded_time() {
    let _alone = alone();
    let throttled = stats().throttled;
    let (reader, done) = reader();
    // The reader waits for this thread, so an unbounded wait for the reader would be a deadlock.
    (0..3000).for_each(|_| retire(Box::new(0_u64)));
    assert!(stats().throttled > throttled);
    assert!(stats().pending_calls >= 3000 - 128);
    done.send(()).unwrap();
    reader.join().unwrap();
    barrier().unwrap();
    assert_eq!(stats().pending_calls, 0);
}

#[test]
#[cfg_attr(miri, ignore = "it waits for time to pass")]
fn a_closed_batch_leads_to_one_wait_for_the_bound() {
    let _alone = alone();
    // The reclaimer would close batches that are not full.
    squall_rcu::set_reclaimer(false);
    let (reader, done) = reader();
    let throttled = stats().throttled;
    // Values with a drop. 16 batches are within the bound.
    (0..18 * 128).for_each(|n| retire(Box::new(Box::new(n))));
    assert_eq!(stats().throttled - throttled, 2);
    done.send(()).unwrap();
    reader.join().unwrap();
    squall_rcu::set_reclaimer(true);
    barrier().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "it waits for time to pass")]
fn a_thread_that_transfers_state_neither_waits_for_the_bound_nor_runs_drops() {
    struct Transfer(bool);
    impl Drop for Transfer {
        fn drop(&mut self) {
            squall_rcu::__set_transferring(self.0);
        }
    }
    let _alone = alone();
    // Only this thread could run the drops.
    squall_rcu::set_reclaimer(false);
    let dropped = Arc::new(AtomicUsize::new(0));
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let begin = || Transfer(squall_rcu::__set_transferring(true));
    let retire_many = |count: usize| (0..count).for_each(|_| retire(Box::new(Counted(dropped.clone()))));
    let throttled = stats().throttled;
    let transfer = begin();
    retire_many(3000);
    pin(|_| retire_many(3000));
    assert_eq!((stats().throttled - throttled, dropped.load(Ordering::SeqCst)), (0, 0));
    drop(transfer);
    // After the transfer, the next batch leads to the work.
    retire_many(128);
    assert!(dropped.load(Ordering::SeqCst) > 0);
    barrier().unwrap();
    // The first call of a thread, when an ended thread has left more than the bound.
    thread::scope(|scope| {
        let leaving = scope.spawn(|| {
            let _transfer = begin();
            retire_many(3000);
        });
        leaving.join().unwrap();
    });
    let throttled = stats().throttled;
    let transfer = begin();
    retire_many(1);
    assert_eq!((stats().throttled - throttled, stats().pending_calls), (0, 3001));
    drop(transfer);
    squall_rcu::set_reclaimer(true);
    barrier().unwrap();
    assert_eq!(stats().pending_calls, 0);
}

/// The bytes that one thread may have pending, and those that close a batch, as the crate's README says.
const LIMIT_BYTES: u64 = 16 << 20;
const BATCH_BYTES: u64 = 256 << 10;

/// Runs `thread` in `threads` threads, one after the other, while a reader stays inside an operation. Each
/// batch beyond the bound must have cost its thread a wait.
fn short_threads_beside_a_stalled_reader(threads: usize, thread: fn()) {
    let (reader, done) = reader();
    let throttled = stats().throttled;
    for _ in 0..threads {
        thread::spawn(thread).join().unwrap();
        let waits = stats().throttled - throttled;
        let pending = stats().pending_bytes;
        assert!(pending <= LIMIT_BYTES + (1 + waits) * BATCH_BYTES, "{pending} bytes after {waits} waits");
    }
    assert!(stats().throttled > throttled, "the bound was not reached");
    done.send(()).unwrap();
    reader.join().unwrap();
    barrier().unwrap();
    assert_eq!(stats().pending_bytes, 0);
}

fn retire_16_kib(values: usize) {
    (0..values).for_each(|_| retire(Box::new([0_u8; 16 << 10])));
}

#[test]
#[cfg_attr(miri, ignore = "it waits for time to pass")]
fn pending_memory_stays_within_its_bound_when_threads_end() {
    let _alone = alone();
    // Several batches per thread.
    short_threads_beside_a_stalled_reader(12, || retire_16_kib(100));
    // Less than a batch per thread, outside and inside an operation.
    short_threads_beside_a_stalled_reader(120, || retire_16_kib(10));
    short_threads_beside_a_stalled_reader(120, || pin(|_| retire_16_kib(10)));
}

#[test]
#[cfg_attr(miri, ignore = "it waits for time to pass")]
fn pending_memory_stays_within_its_bound_when_destructors_of_threads_retire() {
    struct Late(fn());
    impl Drop for Late {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    thread_local!(static LATE: Cell<Option<Late>> = const { Cell::new(None) });
    // Its destructor runs after that of a value initialised later, which is the crate's exit hook.
    fn at_the_end(late: fn()) {
        LATE.set(Some(Late(late)));
        squall_rcu::register().unwrap();
    }
    let _alone = alone();
    short_threads_beside_a_stalled_reader(12, || at_the_end(|| retire_16_kib(100)));
    short_threads_beside_a_stalled_reader(120, || at_the_end(|| retire_16_kib(10)));
    short_threads_beside_a_stalled_reader(12, || {
        at_the_end(|| (0..100).for_each(|_| pin(|_| retire_16_kib(1))));
    });
}

#[test]
#[cfg_attr(miri, ignore = "it starts a hundred threads")]
fn without_the_reclaimer_a_new_thread_frees_what_ended_threads_left() {
    let _alone = alone();
    squall_rcu::set_reclaimer(false);
    for _ in 0..240 {
        thread::spawn(|| retire_16_kib(10)).join().unwrap();
    }
    let pending = stats().pending_bytes;
    squall_rcu::set_reclaimer(true);
    assert!(pending <= LIMIT_BYTES + BATCH_BYTES, "{pending} bytes are pending");
}

#[test]
#[cfg_attr(miri, ignore = "it starts many threads")]
fn without_the_reclaimer_a_retirement_runs_no_drops_of_ended_threads() {
    static LOCK: Mutex<usize> = Mutex::new(0);
    struct Locks;
    impl Drop for Locks {
        fn drop(&mut self) {
            *LOCK.try_lock().expect("a drop ran under the lock that it takes") += 1;
        }
    }
    let _alone = alone();
    squall_rcu::set_reclaimer(false);
    let panicked = stats().panicked;
    let all_retired = Barrier::new(30);
    // More than the bound, and less than a batch per thread.
    thread::scope(|scope| {
        let retire = || {
            (0..100).for_each(|_| retire(Box::new(Locks)));
            all_retired.wait();
        };
        let threads: Vec<_> = (0..30).map(|_| scope.spawn(retire)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let lock = LOCK.lock().unwrap();
    // The first call of this thread, closed batches, and the end of an operation.
    (0..1000).for_each(|n: u64| retire(Box::new(n)));
    pin(|_| (0..1000).for_each(|n: u64| retire(Box::new(n))));
    assert_eq!((stats().panicked - panicked, *lock), (0, 0));
    drop(lock);
    barrier().unwrap();
    assert_eq!(*LOCK.lock().unwrap(), 3000);
    squall_rcu::set_reclaimer(true);
}

#[test]
#[cfg_attr(miri, ignore = "affinity is the real machine's")]
fn a_quiescent_do_is_done_though_the_reclaimer_is_forbidden_meanwhile() {
    let _alone = alone();
    let vps = squall_machine::machine().vps().clone();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut allowed = false;
            while !stop.load(Ordering::Relaxed) {
                squall_rcu::set_reclaimer(allowed);
                allowed = !allowed;
            }
        });
        for _ in 0..3000 {
            squall_rcu::quiescent_do(&vps, squall_rcu::RunOn::Any, |_| ()).unwrap().wait().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    squall_rcu::set_reclaimer(true);
}

#[test]
fn reclaim_runs_ripe_calls_without_waiting() {
    let _alone = alone();
    let ran = Arc::new(AtomicUsize::new(0));
    {
        let ran = ran.clone();
        defer(move || {
            ran.fetch_add(1, Ordering::SeqCst);
        });
    }
    let limit = Instant::now() + Duration::from_secs(60);
    while ran.load(Ordering::SeqCst) == 0 {
        reclaim().unwrap();
        assert!(Instant::now() < limit);
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[test]
#[cfg_attr(miri, ignore = "affinity is the real machine's")]
fn co_69_quiescent_do_runs_on_each_vp_after_the_operations_before_it() {
    let _alone = alone();
    let vps = squall_machine::machine().vps().clone();
    let (inside_tx, inside) = std::sync::mpsc::channel();
    let (asked, is_asked) = std::sync::mpsc::channel::<()>();
    let over = Arc::new(AtomicBool::new(false));
    let reader = {
        let over = over.clone();
        thread::spawn(move || {
            pin(|_| {
                inside_tx.send(()).unwrap();
                is_asked.recv().unwrap();
                over.store(true, Ordering::SeqCst);
            });
        })
    };
    inside.recv().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let pending = {
        let (seen, over) = (seen.clone(), over.clone());
        squall_rcu::quiescent_do(&vps, squall_rcu::RunOn::Each, move |vp| {
            assert!(over.load(Ordering::SeqCst), "ran before an earlier operation had ended");
            seen.lock().unwrap().push((vp, squall_machine::Vp::current()));
        })
        .unwrap()
    };
    // A correct library passes however short this wait is: the operation is still open.
    assert_eq!(squall_rcu::wait_until(Instant::now() + Duration::from_millis(2)), Err(WaitError::Timeout));
    asked.send(()).unwrap();
    let outcome = pending.wait().unwrap();
    reader.join().unwrap();
    assert_eq!(outcome.panicked, 0);
    assert_eq!(outcome.placed + outcome.displaced, vps.len());
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), vps.len());
    // On platforms that do not read the VP from the kernel each time, the value may date from before the
    // move.
    let exact = squall_machine::pervp::restart_mode() == squall_machine::pervp::RestartMode::Restartable;
    if exact && outcome.displaced == 0 {
        assert!(seen.iter().all(|(asked, was)| asked == was), "{seen:?}");
    }
    let any = squall_rcu::quiescent_do(&vps, squall_rcu::RunOn::Any, |_| ()).unwrap().wait().unwrap();
    assert_eq!(any.placed + any.displaced, 1);
}
