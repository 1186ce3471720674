//! Shipped calls on a virtual machine of 64 processors. A program of its own, since the machine is set once.
#![cfg(not(loom))]

use squall_machine::{Cluster, ClusterSize, Machine, Vp, machine};
use squall_parts::ship::{
    Choice, Events, PendingCall, PostError, SendError, ShipError, Target, serve, serve_here, ship, ship_all,
    ship_each,
};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

/// Sets the machine, and puts the thread on VP 0. One test runs at a time, since a call to all VPs meets the
/// calls of other tests.
fn on_vp_0() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Later tests find it set.
    let _ = Machine::set_virtual("nodes:2,caches:2,cores:8,threads:2".parse().unwrap());
    assert_eq!(machine().vp_limit(), 64);
    Vp::assign_current(Vp::new(0)).unwrap();
    one
}

fn send<R: Send + 'static>(vp: u32, call: impl FnOnce() -> R + Send + 'static) -> PendingCall<R> {
    ship(Vp::new(vp), call).unwrap()
}

/// A call that occupies the staff of a VP until it is released.
struct Busy(Sender<()>, PendingCall<()>);

impl Busy {
    fn new(vp: u32) -> Busy {
        let ((release, released), (begin, begun)) = (channel(), channel());
        let mut call = send(vp, move || {
            begin.send(()).unwrap();
            released.recv().unwrap();
        });
        // Asks for a server, also if a test lets a thread of its own serve there.
        assert!(call.try_take().is_none());
        begun.recv().unwrap();
        Busy(release, call)
    }

    fn release(self) {
        self.0.send(()).unwrap();
        self.1.wait().unwrap();
    }
}

#[test]
fn to_04_a_call_runs_on_the_processor_of_the_data() {
    let _one = on_vp_0();
    let call = send(5, || (Vp::current(), thread::current().name().map(str::to_owned)));
    assert_eq!(call.wait().unwrap(), (Vp::new(5), Some("squall-ship-5".to_owned())));
    let call = send(5, || panic!("of the test"));
    assert!(matches!(call.wait(), Err(ShipError::Panicked(payload)) if payload.message() == "of the test"));
}

#[test]
fn hu_09_the_processor_of_the_same_position_serves() {
    let _one = on_vp_0();
    for position in [0, 3, 31] {
        Vp::assign_current(Vp::new(position)).unwrap();
        let call = ship((ClusterSize::Node, Cluster::new(1)), Vp::current).unwrap();
        assert_eq!(call.wait().unwrap(), Vp::new(32 + position));
    }
}

#[test]
fn hu_09_an_idle_processor_serves() {
    let _one = on_vp_0();
    let core = (ClusterSize::Core, Cluster::new(4));
    // VPs 8 and 9. The staff of VP 8 is busy.
    let busy = Busy::new(8);
    let idle = Target::from(core).choice(Choice::Idle);
    assert_eq!(ship(idle, Vp::current).unwrap().wait().unwrap(), Vp::new(9));
    busy.release();
}

#[test]
fn a_thread_that_opted_in_serves_when_it_leaves_an_operation() {
    let _one = on_vp_0();
    let over = Arc::new(AtomicBool::new(false));
    // So no thread of the staff takes the call.
    let busy = Busy::new(11);
    let (ready, is_ready) = channel();
    let server = thread::spawn({
        let over = over.clone();
        move || {
            Vp::assign_current(Vp::new(11)).unwrap();
            let serving = serve_here();
            let nested = serve_here();
            drop(nested);
            ready.send(thread::current().id()).unwrap();
            while !over.load(Ordering::Relaxed) {
                squall_rcu::pin(|_| squall_rcu::pin(|_| ()));
                thread::yield_now();
            }
            drop(serving);
        }
    });
    let server_id = is_ready.recv().unwrap();
    let mut call = send(11, || (thread::current().id(), squall_rcu::in_operation()));
    while !call.is_finished() {
        thread::yield_now();
    }
    assert_eq!(call.try_take().unwrap().unwrap(), (server_id, false));
    over.store(true, Ordering::Relaxed);
    server.join().unwrap();
    busy.release();
}

#[test]
fn a_call_does_not_depend_on_a_thread_that_opted_in_and_sleeps() {
    let _one = on_vp_0();
    let (end, ended) = channel::<()>();
    let (ready, is_ready) = channel();
    let sleeper = thread::spawn(move || {
        Vp::assign_current(Vp::new(12)).unwrap();
        let _serving = serve_here();
        ready.send(()).unwrap();
        let _ = ended.recv();
    });
    is_ready.recv().unwrap();
    assert_eq!(send(12, || 3).wait().unwrap(), 3);
    let call = send(12, || ());
    while !call.is_finished() {
        thread::yield_now();
    }
    let (done, is_done) = channel();
    send(12, move || done.send(()).unwrap()).detach();
    is_done.recv().unwrap();
    drop(end);
    sleeper.join().unwrap();
}

#[test]
fn serve_runs_waiting_calls_outside_operations() {
    let _one = on_vp_0();
    let busy = Busy::new(13);
    let call = send(13, || thread::current().id());
    Vp::assign_current(Vp::new(13)).unwrap();
    assert_eq!(squall_rcu::pin(|_| serve()), 0);
    assert_eq!((serve(), serve()), (1, 0));
    assert_eq!(call.wait().unwrap(), thread::current().id());
    busy.release();
}

#[test]
fn a_thread_serves_only_where_its_program_leaves_an_operation() {
    let _one = on_vp_0();
    // So no thread of the staff takes the calls.
    let busy = Busy::new(29);
    Vp::assign_current(Vp::new(29)).unwrap();
    let _serving = serve_here();
    let (ran, note) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (call_ran, nested) = (ran.clone(), note.clone());
    let call = move || {
        call_ran.store(true, Ordering::Relaxed);
        nested.store(serve() > 0, Ordering::Relaxed);
    };
    let calls = squall_rcu::without_callbacks(|| squall_rcu::pin(|_| [send(29, call), send(29, || ())]));
    let stays = |state: &str| assert!(serve() == 0 && !ran.load(Ordering::Relaxed), "{state}");
    // An operation of Squall's own.
    squall_rcu::Rcu::new(Box::new(1)).update(|value| value + 1);
    assert!(!ran.load(Ordering::Relaxed));
    squall_rcu::without_callbacks(|| squall_rcu::pin(|_| stays("an operation")));
    squall_rcu::without_callbacks(|| stays("a callback-free scope"));
    squall_rcu::__set_transferring(true);
    squall_rcu::pin(|_| ());
    stays("a transfer");
    squall_rcu::__set_transferring(false);
    struct Unwinds<F: Fn()>(F);
    impl<F: Fn()> Drop for Unwinds<F> {
        fn drop(&mut self) {
            self.0();
        }
    }
    let unwinding = catch_unwind(AssertUnwindSafe(|| {
        let _unwinds = Unwinds(|| stays("a panic"));
        squall_rcu::pin(|_| panic!("of the test"));
    }));
    assert!(unwinding.is_err());
    squall_rcu::pin(|_| ());
    assert!(ran.load(Ordering::Relaxed) && !note.load(Ordering::Relaxed));
    calls.into_iter().for_each(|call| call.wait().unwrap());
    busy.release();
}

#[test]
fn calls_that_wait_for_each_other_in_a_circle_end() {
    let _one = on_vp_0();
    fn around(left: u32) -> u32 {
        match left {
            0 => 0,
            _ => send(14 + left % 3, move || around(left - 1)).wait().unwrap() + 1,
        }
    }
    let calls: Vec<_> = (0..3).map(|at| send(14 + at, || around(9))).collect();
    calls.into_iter().for_each(|call| assert_eq!(call.wait().unwrap(), 9));
}

#[test]
fn calls_that_poll_each_other_in_a_circle_end() {
    let _one = on_vp_0();
    fn around(left: u32) -> u32 {
        let call = match left {
            0 => return 0,
            _ => send(26 + left % 2, move || around(left - 1)),
        };
        let inner = match left % 3 {
            0 => block_on(call),
            1 => {
                while !call.is_finished() {
                    thread::yield_now();
                }
                call.wait()
            }
            _ => taken(call),
        };
        inner.unwrap() + 1
    }
    assert_eq!(taken(send(26, || around(9))).unwrap(), 9);
    // A call to all clusters counts as one, too.
    let all = |_| {
        let mut each = ship_each(ClusterSize::Node, |_| 1);
        loop {
            match each.try_take() {
                Some(each) => return each.results.len(),
                None => thread::yield_now(),
            }
        }
    };
    let each = block_on(ship_each(ClusterSize::Node, all));
    assert!(each.results.into_iter().all(|count| count.unwrap() == 2));
}

fn taken<R: Send + 'static>(mut call: PendingCall<R>) -> Result<R, ShipError> {
    loop {
        match call.try_take() {
            Some(result) => return result,
            None => thread::yield_now(),
        }
    }
}

#[test]
fn a_call_that_no_thread_has_begun_is_cancelled_by_its_drop() {
    let _one = on_vp_0();
    let (busy, runs) = (Busy::new(17), Arc::new(AtomicUsize::new(0)));
    let count = |runs: &Arc<AtomicUsize>| {
        let runs = runs.clone();
        move || runs.fetch_add(1, Ordering::Relaxed)
    };
    drop(send(17, count(&runs)));
    send(17, count(&runs)).detach();
    let last = send(17, count(&runs));
    busy.release();
    last.wait().unwrap();
    // The detached call may run last.
    send(17, || ()).wait().unwrap();
    while Arc::strong_count(&runs) > 1 {
        thread::yield_now();
    }
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[test]
fn a_result_without_an_owner_is_dropped() {
    let _one = on_vp_0();
    let (release, released) = channel();
    let (begin, begun) = channel();
    let held = Arc::new(());
    let result = held.clone();
    let mut call = send(18, move || {
        begin.send(()).unwrap();
        let _: () = released.recv().unwrap();
        result
    });
    assert!(call.wait_timeout(Duration::ZERO).is_none());
    begun.recv().unwrap();
    drop(call);
    release.send(()).unwrap();
    while Arc::strong_count(&held) > 1 {
        thread::yield_now();
    }
}

#[test]
fn a_full_inbox_gives_the_call_back() {
    let _one = on_vp_0();
    let busy = Busy::new(19);
    // The call at work has a slot of the 64.
    let calls: Vec<_> = (1..64).map(|n| send(19, move || n)).collect();
    let Err(SendError::InboxFull(call)) = ship(Vp::new(19), || 64) else { panic!("the inbox had room") };
    assert_eq!(call(), 64);
    let posted = Events::new(1, |_, _: Vec<u32>| ()).post(Vp::new(19), 5);
    assert_eq!(posted, Err(PostError::InboxFull(5)));
    // The other VP of the core has room.
    let idle = Target::from((ClusterSize::Core, Cluster::new(9))).choice(Choice::Idle);
    assert_eq!(ship(idle, Vp::current).unwrap().wait().unwrap(), Vp::new(18));
    busy.release();
    assert!(calls.into_iter().map(|call| call.wait().unwrap()).eq(1..64));
}

#[test]
fn a_wait_inside_an_operation_is_an_error() {
    let _one = on_vp_0();
    let busy = Busy::new(20);
    let call = send(20, || ());
    assert!(matches!(squall_rcu::pin(|_| call.wait()), Err(ShipError::InOperation)));
    busy.release();
    // Also if the result is there. The call stays.
    let mut call = send(0, || 7);
    let result = squall_rcu::pin(|_| call.wait_timeout(Duration::MAX));
    assert!(matches!(result, Some(Err(ShipError::InOperation))));
    assert_eq!(call.wait().unwrap(), 7);
    let each = ship_each(ClusterSize::Machine, |_| ());
    assert!(matches!(squall_rcu::pin(|_| each.wait()), Err(ShipError::InOperation)));
}

#[test]
fn a_wait_where_no_grace_period_may_be_waited_for_is_an_error() {
    let _one = on_vp_0();
    let (send_result, result) = channel();
    let call = send(20, || ());
    squall_rcu::defer(move || send_result.send((call.wait(), ship_all(|_| ()).wait().map(drop))).unwrap());
    squall_rcu::barrier().unwrap();
    let (call, each) = result.recv().unwrap();
    for error in [call.unwrap_err(), each.unwrap_err()] {
        assert!(matches!(error, ShipError::MayNotWait(squall_rcu::WaitError::InDeferredCall)));
    }
}

#[test]
fn a_call_to_the_own_cluster_inside_an_operation_runs_outside_of_it() {
    let _one = on_vp_0();
    let state = || (thread::current().id(), squall_rcu::in_operation());
    let here = thread::current().id();
    let (call, each) =
        squall_rcu::pin(|_| (send(0, state), ship_each(ClusterSize::Machine, move |_| state())));
    let each = each.wait().unwrap().results.pop().unwrap();
    for (ran_on, in_operation) in [call.wait().unwrap(), each.unwrap()] {
        assert!(ran_on != here && !in_operation);
    }
}

/// Wakes a thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let (mut future, waker) = (pin!(future), Waker::from(Arc::new(Unpark(thread::current()))));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn a_call_can_be_awaited() {
    let _one = on_vp_0();
    let sum = async {
        let (first, second) = (send(21, || 1), send(22, || 2));
        first.await.unwrap() + second.await.unwrap()
    };
    assert_eq!(block_on(sum), 3);
    assert_eq!(block_on(ship_each(ClusterSize::Node, |_| ())).results.len(), 2);
}

#[test]
fn hu_18_a_call_to_all_is_passed_on_at_each_level() {
    let _one = on_vp_0();
    let each = ship_all(|vp| (vp, Vp::current())).wait().unwrap();
    let results: Vec<_> = each.results.into_iter().map(|result| result.unwrap()).collect();
    assert!(results.into_iter().eq(machine().vps().iter().map(|vp| (vp, vp))));
    // The other node; one cache of each node; 7 of 8 cores of each cache; one of two threads of each core.
    assert_eq!(each.messages, [0, 1, 2, 28, 32]);
    // Clusters of one size each, without levels between.
    let each = ship_each(ClusterSize::fixed(16), Cluster::index).wait().unwrap();
    assert!(each.results.into_iter().map(|result| result.unwrap()).eq(0..4));
    assert_eq!(each.messages, [0, 3]);
}

#[test]
fn hu_17_the_first_runner_of_a_cluster_tells_the_others() {
    let _one = on_vp_0();
    let senders = Arc::new(Mutex::new(Vec::new()));
    let noted = senders.clone();
    let each = ship_each(ClusterSize::Node, move |node| noted.lock().unwrap().push((node, Vp::current())));
    each.wait().unwrap();
    let mut senders = senders.lock().unwrap().clone();
    senders.sort();
    assert_eq!(senders, [(Cluster::new(0), Vp::new(0)), (Cluster::new(1), Vp::new(32))]);
}

#[test]
fn a_full_cluster_does_not_stop_the_others() {
    let _one = on_vp_0();
    let busy = [Busy::new(40), Busy::new(41)];
    let calls: Vec<_> = (1..64).flat_map(|_| [send(40, || ()), send(41, || ())]).collect();
    let each = ship_each(ClusterSize::Core, |_| ()).wait().unwrap();
    let full: Vec<usize> =
        (0..32).filter(|core| matches!(each.results[*core], Err(ShipError::Full))).collect();
    assert_eq!(full, [20]);
    busy.into_iter().for_each(Busy::release);
    calls.into_iter().for_each(|call| call.wait().unwrap());
}

/// Events with batches that arrive at the receiver.
fn events(capacity: usize) -> (Events<u32>, Receiver<(Vp, Vec<u32>)>) {
    let (send, receive) = channel();
    (Events::new(capacity, move |vp, batch| send.send((vp, batch)).unwrap()), receive)
}

#[test]
fn co_65_events_of_a_processor_come_in_batches_and_in_order() {
    let _one = on_vp_0();
    let (events, batches) = events(16);
    let busy = Busy::new(24);
    (0..16).for_each(|event| events.post(Vp::new(24), event).unwrap());
    assert!(events.post(Vp::new(24), 16).is_err());
    busy.release();
    assert_eq!(batches.recv().unwrap(), (Vp::new(24), (0..16).collect()));
    events.post(Vp::new(0), 7).unwrap();
    assert_eq!(batches.recv().unwrap(), (Vp::new(0), vec![7]));
    // An event is handled also if its `Events` is gone.
    let busy = Busy::new(24);
    events.post(Vp::new(24), 8).unwrap();
    drop(events);
    busy.release();
    assert_eq!(batches.recv().unwrap(), (Vp::new(24), vec![8]));
}

#[test]
fn a_handler_never_runs_on_the_thread_that_posts() {
    let _one = on_vp_0();
    let (send, receive) = channel();
    let lock = Arc::new(Mutex::new(()));
    let taken = lock.clone();
    let events = Events::new(4, move |_, batch: Vec<u32>| {
        let _taken = taken.lock().unwrap();
        send.send((thread::current().id(), squall_rcu::in_operation(), batch)).unwrap();
    });
    let locked = lock.lock().unwrap();
    squall_rcu::pin(|_| events.post(Vp::new(0), 5).unwrap());
    drop(locked);
    let (handled_on, in_operation, batch) = receive.recv().unwrap();
    assert!(handled_on != thread::current().id() && !in_operation && batch == [5]);
}

#[test]
fn events_that_never_end_let_other_calls_run() {
    let _one = on_vp_0();
    let vp = Vp::new(25);
    let (over, endless) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::<Events<u32>>::new()));
    let (is_over, again) = (over.clone(), Arc::downgrade(&endless));
    let (send_begun, begun) = channel();
    let handler = move |vp, batch: Vec<u32>| {
        let _ = send_begun.send(batch.len());
        if let Some(events) = again.upgrade()
            && !is_over.load(Ordering::Relaxed)
        {
            events.get().unwrap().post(vp, 1).unwrap();
        }
    };
    let events = endless.get_or_init(|| Events::new(4, handler));
    events.post(vp, 0).unwrap();
    begun.recv().unwrap();
    send(25, || ()).wait().unwrap();
    // A thread of the program that serves them gets on with its own work, too.
    Vp::assign_current(vp).unwrap();
    serve();
    over.store(true, Ordering::Relaxed);
}

#[test]
fn events_that_come_while_the_handler_runs_are_handled_next() {
    let _one = on_vp_0();
    let ((begin, begun), (release, released)) = (channel(), channel());
    let released = Mutex::new(released);
    let events = Events::new(4, move |_, batch: Vec<u32>| {
        begin.send(batch).unwrap();
        released.lock().unwrap().recv().unwrap();
    });
    events.post(Vp::new(26), 0).unwrap();
    assert_eq!(begun.recv().unwrap(), [0]);
    (1..4).for_each(|event| events.post(Vp::new(26), event).unwrap());
    release.send(()).unwrap();
    assert_eq!(begun.recv().unwrap(), [1, 2, 3]);
    release.send(()).unwrap();
}

#[test]
fn a_panic_of_a_handler_loses_its_batch_alone() {
    let _one = on_vp_0();
    let (begin, begun) = channel();
    let events = Events::new(4, move |_, batch: Vec<u32>| {
        let panics = batch[0] == 0;
        begin.send(batch).unwrap();
        assert!(!panics, "of the test");
    });
    for event in [0, 1, 0, 2] {
        events.post(Vp::new(27), event).unwrap();
        assert_eq!(begun.recv().unwrap(), [event]);
    }
}

/// Forks. The child runs `child`, and ends by `_exit` if that returns.
#[cfg(not(miri))]
fn forked(child: impl FnOnce() -> Option<bool>) -> libc::pid_t {
    // SAFETY: the child makes calls that are errors there, and ends.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: the signal has no handler, so it ends the child.
            unsafe { libc::alarm(60) };
            // A panic must not reach the rest of the test.
            match catch_unwind(AssertUnwindSafe(child)) {
                Ok(None) => 0,
                // SAFETY: ends the child at once.
                Ok(Some(is_right)) => unsafe { libc::_exit(i32::from(!is_right)) },
                // SAFETY: as above.
                Err(_) => unsafe { libc::_exit(101) },
            }
        }
        process => process,
    }
}

/// Waits for a child, and returns whether it ended well.
#[cfg(not(miri))]
fn ended_well(process: libc::pid_t) -> bool {
    let mut status = -1;
    // SAFETY: our own child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(process, &raw mut status, 0) }, process);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// User-mode emulation ignores wipe-on-fork.
#[cfg(not(miri))]
fn is_emulated() -> bool {
    std::env::var_os("SQUALL_TEST_RUNNER").is_some()
}

#[test]
#[cfg(not(miri))]
fn the_child_of_a_fork_gets_errors() {
    let _one = on_vp_0();
    if is_emulated() {
        return;
    }
    // Or the child could open no operation.
    squall_rcu::register().unwrap();
    let (busy, (events, _batches)) = (Busy::new(30), events(1));
    let (mut polled, mut waited) = (send(30, || ()), Some(send(30, || ())));
    let child = forked(|| {
        let is_forked = |result| matches!(result, Err(ShipError::Forked));
        Some(
            matches!(ship(Vp::new(30), || ()), Err(SendError::Forked(_)))
                && matches!(squall_rcu::pin(|_| ship(Vp::new(0), || ())), Err(SendError::Forked(_)))
                && polled.try_take().is_some_and(is_forked)
                && is_forked(waited.take().unwrap().wait())
                && matches!(events.post(Vp::new(30), 1), Err(PostError::Forked(1)))
                && matches!(ship_all(|_| ()).wait(), Err(ShipError::Forked))
                && serve() == 0,
        )
    });
    assert!(ended_well(child));
    busy.release();
    polled.wait().unwrap();
    waited.unwrap().wait().unwrap();
}

#[test]
#[cfg(not(miri))]
fn a_child_that_a_shipped_call_made_runs_no_call_of_its_parent() {
    let _one = on_vp_0();
    // A sanitizer looks for leaks at the end of the child, which has lost the stacks of its threads.
    if is_emulated() || cfg!(any(squall_asan, squall_tsan)) {
        return;
    }
    let mut ends = [0; 2];
    // SAFETY: a place for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let [read, write] = ends;
    // SAFETY: our own pipe, and one byte.
    let note = move || assert_eq!(unsafe { libc::write(write, c"x".as_ptr().cast(), 1) }, 1);
    let fork = move || {
        // In an operation, so that it is queued behind this call.
        let queued = squall_rcu::pin(|_| send(31, note));
        (forked(|| None), queued)
    };
    // The child returns into the thread of the staff, which ends, and the process with it.
    let (child, queued) = send(31, fork).wait().unwrap();
    assert!(ended_well(child));
    queued.wait().unwrap();
    // SAFETY: our own descriptors, and a place for two bytes.
    let count = unsafe {
        libc::close(write);
        libc::read(read, [0_u8; 2].as_mut_ptr().cast(), 2)
    };
    assert_eq!(count, 1, "the child ran a call of its parent");
    // SAFETY: our own descriptor.
    unsafe { libc::close(read) };
}
