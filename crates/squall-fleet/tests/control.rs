//! The watchdog of dispatchers, their timers, their end, and handlers by method.
#![cfg(not(loom))]

use squall_fleet::{
    CallFailed, Caller, Class, Condition, Context, Control, Dispatcher, LongSteps, Mailbox, Methods, Request,
    SendError, Sender,
};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(1);

fn pair() -> (Mailbox, Sender) {
    let mailbox = Mailbox::new();
    let sender = mailbox.sender(mailbox.add_capability().unwrap()).unwrap();
    (mailbox, sender)
}

fn poll<T>(run: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
    Pin::new(run).poll(&mut std::task::Context::from_waker(Waker::noop()))
}

/// Polls until no task can run.
fn drive(run: &mut (impl Future<Output = ()> + Unpin)) -> Poll<()> {
    for _ in 0..1_000 {
        if poll(run).is_ready() {
            return Poll::Ready(());
        }
    }
    Poll::Pending
}

/// The bytes of a request for a method, with a reply to `replies`.
fn request(method: u64, replies: &Mailbox) -> Vec<u8> {
    let words = [1, method, 9].map(u64::to_le_bytes).concat();
    let key = replies.add_capability().unwrap();
    [&words[..], &replies.alias().to_bytes(), &key.to_bytes()].concat()
}

/// The reason of the failure that was sent to a mailbox.
fn reason(replies: &mut Mailbox) -> Option<u8> {
    replies.receive().map(|message| {
        assert_eq!(message[0], 4, "a failure");
        message[8]
    })
}

const NO_METHOD: u8 = 1;
const STOPPED: u8 = 3;

/// Takes until the clock goes on.
fn take_time() {
    let begun = Instant::now();
    while begun.elapsed().is_zero() {}
}

#[test]
fn ad_11_a_stuck_task_is_named_while_it_is_stuck() {
    let (give, given) = mpsc::channel::<Control>();
    let (go_on, stuck) = mpsc::channel::<()>();
    let (mailbox, sender) = pair();
    thread::scope(|threads| {
        threads.spawn(move || {
            let mut dispatcher = Dispatcher::new();
            let (control, context) = (dispatcher.context().control(), dispatcher.context());
            let (stuck, give) = (Rc::new(stuck), Rc::new(give));
            dispatcher.serve_named("orders", mailbox, Class::External, move |request| {
                let (stuck, give, control) = (stuck.clone(), give.clone(), control.clone());
                let context = context.clone();
                async move {
                    context.yield_now().await;
                    give.send(control).unwrap();
                    stuck.recv().unwrap();
                    request.reply(b"");
                }
            });
            dispatcher.run();
        });
        let caller = threads.spawn(|| Caller::new().call(&sender, 1, b"").map(<[u8]>::to_vec));
        let control = given.recv().unwrap();
        let first = control.running().unwrap();
        take_time();
        let second = control.running().unwrap();
        assert_eq!((&*first.name, &*second.name), ("orders", "orders"));
        assert!(second.time >= first.time);
        assert!(format!("{control:?}").contains("orders"));
        go_on.send(()).unwrap();
        caller.join().unwrap().unwrap();
        control.stop();
    });
}

/// Returns the long steps, sorted by name, of a dispatcher with one task of each kind.
fn long_steps(limit: Duration) -> (Vec<LongSteps>, u64) {
    let ((by_method, to_methods), (unnamed, to_unnamed)) = (pair(), pair());
    let mut dispatcher = Dispatcher::new();
    dispatcher.watch_steps(limit);
    let context = dispatcher.context();
    let methods = Methods::named("accounts")
        .on_named(1, "move", |_| async { take_time() })
        .on(2, |_| async { take_time() })
        // The handler counts too, not only its task.
        .on(3, |_| {
            take_time();
            async {}
        });
    dispatcher.serve_methods(by_method, Class::External, methods);
    dispatcher.serve(unnamed, Class::External, |_| async { take_time() });
    context.spawn(async { take_time() });
    context.spawn_named("index", async { take_time() });
    dispatcher.idle(async { take_time() });
    for method in [1, 2, 3] {
        to_methods.send(&[2, method, 0].map(u64::to_le_bytes).concat()).unwrap();
    }
    to_unnamed.send(&[2, 1, 0].map(u64::to_le_bytes).concat()).unwrap();
    assert!(drive(&mut Box::pin(dispatcher.run_async())).is_pending());
    let mut long = context.control().long_steps();
    long.sort_by(|a, b| a.name.cmp(&b.name));
    for steps in &mut long {
        steps.name = steps.name.replace(&to_unnamed.mailbox().to_string(), "ALIAS");
    }
    (long, context.stats().long_steps)
}

#[test]
fn ad_11_long_steps_are_counted_by_the_name_of_their_task() {
    let (long, total) = long_steps(Duration::ZERO);
    let names: Vec<&str> = long.iter().map(|steps| &*steps.name).collect();
    let expected = [
        "a spawned task",
        "accounts: method 2",
        "accounts: method 3",
        "accounts: move",
        "idle work",
        "index",
        "requests of mailbox ALIAS",
    ];
    assert_eq!(names, expected);
    assert_eq!(total, long.iter().map(|steps| steps.count).sum::<u64>());
    assert!(long.iter().all(|steps| !steps.longest.is_zero()));
    assert_eq!(long_steps(Duration::MAX), (vec![], 0));
}

#[test]
fn a_dispatcher_sleeps_until_its_timers() {
    let dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    let start = Instant::now();
    let later = context.clone();
    context.spawn(async move { later.sleep(HOUR).await });
    let tasks = context.clone();
    context.spawn(async move {
        for _ in 0..3 {
            tasks.sleep(SHORT).await;
        }
        // Beyond the clock's end.
        let for_ever = tasks.sleep(Duration::MAX);
        tasks.stop();
        for_ever.await;
    });
    dispatcher.run();
    assert!(start.elapsed() >= 3 * SHORT);
    assert_eq!(context.stats().tasks, 0);
}

#[test]
fn the_runtime_of_the_program_sleeps_for_a_dispatcher() {
    let dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    let (asked, rings) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(false)));
    let (tells, looks) = (asked.clone(), rings.clone());
    let mut run = Box::pin(dispatcher.run_async_with(move |at| {
        tells.borrow_mut().push(at);
        let looks = looks.clone();
        std::future::poll_fn(move |_| if looks.take() { Poll::Ready(()) } else { Poll::Pending })
    }));
    // Without a timer, the runtime is not asked.
    assert!(poll(&mut run).is_pending());
    assert!(asked.borrow().is_empty());
    let before = Instant::now();
    let tasks = context.clone();
    context.spawn(async move { tasks.sleep(HOUR).await });
    assert!(poll(&mut run).is_pending());
    assert!(poll(&mut run).is_pending());
    assert_eq!(asked.borrow().len(), 1);
    assert!(asked.borrow()[0] >= before + HOUR);
    // An earlier timer is another alarm.
    let (tasks, done) = (context.clone(), Rc::new(Cell::new(false)));
    let sets = done.clone();
    context.spawn(async move {
        tasks.sleep(HOUR / 2).await;
        sets.set(true);
    });
    assert!(poll(&mut run).is_pending());
    assert_eq!(asked.borrow().len(), 2);
    assert!(asked.borrow()[1] < asked.borrow()[0]);
    // A clock that is early ends no sleep, and is asked again.
    rings.set(true);
    assert!(poll(&mut run).is_pending());
    assert_eq!((asked.borrow().len(), done.get()), (3, false));
    assert_eq!(asked.borrow()[1], asked.borrow()[2]);
    // A dispatcher that ends ends the sleeps of others early.
    let mut sleep = context.sleep(HOUR);
    assert!(poll(&mut sleep).is_pending());
    drop(run);
    assert!(poll(&mut sleep).is_ready());
}

#[test]
fn without_a_clock_of_the_runtime_a_dispatcher_is_polled_until_its_timers() {
    let dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    context.clone().spawn(async move {
        context.sleep(SHORT).await;
        context.stop();
    });
    let mut run = Box::pin(dispatcher.run_async());
    while poll(&mut run).is_pending() {}
}

#[test]
fn a_call_in_a_task_ends_at_its_limit() {
    let (mut silent, to_silent) = pair();
    let full = Mailbox::builder().lane_bytes(64).build();
    let to_full = full.sender(full.add_capability().unwrap()).unwrap();
    to_full.send(&[0; 56]).unwrap();
    let dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    let results = Rc::new(RefCell::new(Vec::new()));
    let (tasks, noted, to) = (context.clone(), results.clone(), to_silent.clone());
    context.spawn(async move {
        let late = tasks.call_for(&to, 1, b"", SHORT).await;
        noted.borrow_mut().push(late);
        let unsent = tasks.call_for(&to_full, 1, b"", SHORT).await;
        noted.borrow_mut().push(unsent);
        // A reply in time.
        let done = tasks.call_for(&to, 2, b"", HOUR).await;
        noted.borrow_mut().push(done);
        tasks.stop();
    });
    let mut run = Box::pin(dispatcher.run_async());
    while results.borrow().len() < 2 {
        assert!(poll(&mut run).is_pending());
    }
    let (silent_alias, full_alias) = (to_silent.mailbox(), full.alias());
    assert_eq!(results.borrow()[0], Err(CallFailed::TimedOut { mailbox: silent_alias }));
    let retry = SendError::Retry { mailbox: full_alias };
    assert_eq!(results.borrow()[1], Err(CallFailed::NotSent(retry)));
    // The server replies to both of its requests. The late reply is ignored.
    assert!(drive(&mut run).is_pending());
    for result in [b"late", b"done"] {
        let request = silent.receive().unwrap().to_vec();
        let part = |at: usize| request[at..at + 16].try_into().unwrap();
        let (alias, key) = (squall_fleet::Alias::from_bytes(part(24)), part(40));
        let reply = [&[3, 0].map(u64::to_le_bytes).concat()[..], &request[16..24], result].concat();
        let replies = Sender::new(alias, squall_fleet::Capability::from_bytes(key)).unwrap();
        replies.send(&reply).unwrap();
        let _ = drive(&mut run);
    }
    assert_eq!(results.borrow()[2], Ok(b"done".to_vec()));
    assert_eq!(context.stats().calls, 0);
}

/// A dispatcher with requests that wait for a condition.
fn waiting(mailbox: Mailbox) -> (Dispatcher, Context, Rc<Condition>) {
    let mut dispatcher = Dispatcher::new();
    let condition = Rc::new(Condition::new());
    let waits = condition.clone();
    dispatcher.serve(mailbox, Class::External, move |request| {
        let condition = waits.clone();
        async move {
            condition.wait().await;
            request.reply(b"done");
        }
    });
    let context = dispatcher.context();
    (dispatcher, context, condition)
}

#[test]
fn a_dispatcher_that_drains_ends_the_begun_requests_and_refuses_others() {
    let ((mailbox, sender), (answers, to_answers)) = (pair(), pair());
    let (mut dispatcher, context, condition) = waiting(mailbox);
    // Refusals need no room.
    dispatcher.limit_requests(2);
    let signals = condition.clone();
    dispatcher.serve(answers, Class::FleetReply, move |_| {
        signals.signal();
        async {}
    });
    let mut replies: Vec<Mailbox> = (0..4).map(|_| Mailbox::new()).collect();
    let mut run = Box::pin(dispatcher.run_async());
    for replies in &replies[..3] {
        sender.send(&request(1, replies)).unwrap();
    }
    assert!(drive(&mut run).is_pending());
    assert_eq!(context.stats().requests, 2);
    context.control().drain();
    sender.send(&request(1, &replies[3])).unwrap();
    assert!(drive(&mut run).is_pending());
    // The third one was not begun, and the fourth one came later.
    assert_eq!([reason(&mut replies[2]), reason(&mut replies[3])], [Some(STOPPED); 2]);
    // Answers of the fleet are still received.
    let answer = [2, 1, 0].map(u64::to_le_bytes).concat();
    to_answers.send(&answer).unwrap();
    assert!(drive(&mut run).is_pending());
    to_answers.send(&answer).unwrap();
    assert!(drive(&mut run).is_ready());
    for replies in &mut replies[..2] {
        assert!(replies.receive().unwrap().ends_with(b"done"));
    }
    drop(run);
    assert!(matches!(sender.send(&answer), Err(SendError::InvalidAlias { .. })));
}

#[test]
fn a_drain_waits_for_tasks_and_late_replies_and_for_no_spawned_task() {
    let (mailbox, sender) = pair();
    let mut dispatcher = Dispatcher::new();
    let (context, condition) = (dispatcher.context(), Rc::new(Condition::new()));
    let waits = condition.clone();
    // The task goes on after its reply.
    dispatcher.serve(mailbox, Class::Fleet, move |request| {
        let condition = waits.clone();
        async move {
            request.reply(b"fine");
            condition.wait().await;
        }
    });
    context.spawn(std::future::pending());
    // Room for one reply.
    let mut replies = Mailbox::builder().lane_bytes(64).build();
    let request = request(1, &replies);
    (0..3).for_each(|_| sender.send(&request).unwrap());
    let mut run = Box::pin(dispatcher.run_async());
    assert!(drive(&mut run).is_pending());
    context.drain();
    assert!(drive(&mut run).is_pending());
    condition.signal_all();
    assert!(drive(&mut run).is_pending());
    assert_eq!(context.stats().requests, 0);
    // One was sent, and two wait for room. The end comes with the room for the last one.
    assert!(replies.receive().is_some());
    assert!(drive(&mut run).is_pending());
    assert!(replies.receive().is_some());
    assert!(drive(&mut run).is_ready());
    assert!(replies.receive().is_some());
}

#[test]
fn a_stop_overtakes_a_drain_and_no_wish_shrinks() {
    for wishes in [[Control::drain, Control::stop], [Control::stop, Control::drain]] {
        let (mailbox, sender) = pair();
        let (dispatcher, context, _condition) = waiting(mailbox);
        let mut replies = Mailbox::new();
        sender.send(&request(1, &replies)).unwrap();
        let mut run = Box::pin(dispatcher.run_async());
        assert!(drive(&mut run).is_pending());
        wishes.iter().for_each(|wish| wish(&context.control()));
        assert!(drive(&mut run).is_ready());
        drop(run);
        // The request was begun and dropped.
        assert_eq!(reason(&mut replies), Some(2));
        // After the end of the dispatcher, a wish has no effect.
        wishes.iter().for_each(|wish| wish(&context.control()));
        assert_eq!(context.control().running(), None);
    }
}

#[test]
fn other_threads_wake_drain_and_stop_a_dispatcher_that_sleeps() {
    for wish in [Control::drain, Control::stop] {
        let (give, given) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        thread::scope(|threads| {
            threads.spawn(move || {
                let mut dispatcher = Dispatcher::new();
                give.send(dispatcher.context().control()).unwrap();
                dispatcher.idle(std::future::poll_fn(move |_| {
                    tell.send(()).unwrap();
                    Poll::Pending
                }));
                dispatcher.run();
            });
            let control = given.recv().unwrap();
            for _ in 0..100 {
                told.recv().unwrap();
                control.wake();
            }
            wish(&control);
        });
    }
}

#[test]
fn a_wake_without_idle_work_keeps_no_dispatcher_awake() {
    let dispatcher = Dispatcher::new();
    let control = dispatcher.context().control();
    let (flag, waker) = woken();
    let mut run = Box::pin(dispatcher.run_async());
    let mut poll = || run.as_mut().poll(&mut std::task::Context::from_waker(&waker));
    assert!(poll().is_pending());
    control.wake();
    assert!(flag.take());
    assert!(poll().is_pending());
    // It sleeps again, and does not wake itself.
    assert!(!flag.take());
}

/// A waker, and whether it was called.
fn woken() -> (std::sync::Arc<Flag>, Waker) {
    let flag = std::sync::Arc::new(Flag(std::sync::atomic::AtomicBool::new(false)));
    (flag.clone(), Waker::from(flag))
}

struct Flag(std::sync::atomic::AtomicBool);

impl Flag {
    fn take(&self) -> bool {
        self.0.swap(false, std::sync::atomic::Ordering::SeqCst)
    }
}

impl std::task::Wake for Flag {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

/// A request that the thread drops outside of its dispatcher makes room there, and lets it end.
#[test]
fn a_request_that_ends_elsewhere_wakes_its_dispatcher() {
    let (mailbox, sender) = pair();
    let mut dispatcher = Dispatcher::new();
    dispatcher.limit_requests(1);
    let kept: Rc<RefCell<Vec<Request>>> = Rc::default();
    let keeps = kept.clone();
    dispatcher.serve(mailbox, Class::External, move |request| {
        keeps.borrow_mut().push(request);
        async {}
    });
    let context = dispatcher.context();
    let event = [2, 1, 0].map(u64::to_le_bytes).concat();
    (0..2).for_each(|_| sender.send(&event).unwrap());
    let (flag, waker) = woken();
    let mut run = Box::pin(dispatcher.run_async());
    let mut poll = || run.as_mut().poll(&mut std::task::Context::from_waker(&waker));
    for _ in 0..2 {
        assert!(poll().is_pending());
        assert_eq!(kept.borrow().len(), 1);
        assert!(!flag.take());
        kept.take();
        assert!(flag.take());
    }
    sender.send(&event).unwrap();
    assert!(poll().is_pending());
    context.drain();
    assert!(poll().is_pending());
    flag.take();
    kept.take();
    assert!(flag.take());
    assert!(poll().is_ready());
}

#[test]
fn fo_16_methods_have_handlers_of_their_own_and_others_are_refused() {
    let (mailbox, sender) = pair();
    let mut dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    let methods = Methods::new()
        .on(1, |request| async move { request.reply(b"one") })
        .on(2, |request| async move { request.reply(b"two") });
    assert!(format!("{methods:?}").contains("[1, 2]"));
    dispatcher.serve_methods(mailbox, Class::External, methods);
    let mut replies = [1, 2, 3].map(|method| {
        let replies = Mailbox::new();
        sender.send(&request(method, &replies)).unwrap();
        replies
    });
    let mut run = Box::pin(dispatcher.run_async());
    assert!(drive(&mut run).is_pending());
    assert!(replies[0].receive().unwrap().ends_with(b"one"));
    assert!(replies[1].receive().unwrap().ends_with(b"two"));
    assert_eq!(reason(&mut replies[2]), Some(NO_METHOD));
    assert_eq!((context.stats().requests, context.stats().tasks), (0, 0));
}

#[test]
#[should_panic(expected = "method 7 has a handler already")]
fn a_method_is_added_once() {
    let _ = Methods::new().on(7, |_| async {}).on(7, |_| async {});
}

#[test]
fn a_dropped_sleep_leaves_no_timer() {
    let dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    let asked = Rc::new(Cell::new(0));
    let counts = asked.clone();
    let mut run = Box::pin(dispatcher.run_async_with(move |_| {
        counts.set(counts.get() + 1);
        std::future::pending()
    }));
    {
        let mut sleep = pin!(context.sleep(HOUR));
        assert!(sleep.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop())).is_pending());
    }
    assert!(drive(&mut run).is_pending());
    assert_eq!(asked.get(), 0);
}
