//! Dispatchers, their tasks, and calls by messages.
#![cfg(not(loom))]

use squall_fleet::{
    CallFailed, Caller, Class, Condition, Context, Dispatcher, Mailbox, Methods, SendError, Sender,
};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

const STOP: u64 = 0;

fn pair() -> (Mailbox, Sender) {
    let mailbox = Mailbox::new();
    let sender = mailbox.sender(mailbox.add_capability().unwrap()).unwrap();
    (mailbox, sender)
}

/// Polls until no task can run.
fn drive(run: &mut (impl Future<Output = ()> + Unpin)) -> Poll<()> {
    let mut context = std::task::Context::from_waker(Waker::noop());
    for _ in 0..10_000 {
        if std::pin::Pin::new(&mut *run).poll(&mut context).is_ready() {
            return Poll::Ready(());
        }
    }
    Poll::Pending
}

/// Serves `mailbox` on this thread until a request for [`STOP`] comes.
fn serve<F: Future<Output = Vec<u8>> + 'static>(
    mailbox: Mailbox,
    method: impl Fn(Context, u64, Vec<u8>) -> F + Clone + 'static,
) {
    let mut dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    dispatcher.serve(mailbox, Class::External, move |request| {
        let (context, method) = (context.clone(), method.clone());
        async move {
            if request.method() == STOP {
                request.reply(b"");
                return context.stop();
            }
            let result = method(context, request.method(), request.body().to_vec()).await;
            request.reply(&result);
        }
    });
    dispatcher.run();
}

#[test]
fn calls_of_many_threads_get_their_own_results() {
    let (mailbox, sender) = pair();
    thread::scope(|threads| {
        threads
            .spawn(|| serve(mailbox, |_, method, body| async move { [vec![method as u8], body].concat() }));
        let callers: Vec<_> = (1..=8_u64)
            .map(|method| {
                let sender = sender.clone();
                threads.spawn(move || {
                    let mut caller = Caller::new();
                    for n in 0..500_u64 {
                        let body = n.to_le_bytes();
                        let result = caller.call(&sender, method, &body).unwrap();
                        assert_eq!(result, [&[method as u8], &body[..]].concat());
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        Caller::new().call(&sender, STOP, b"").unwrap();
    });
}

#[test]
fn a_calls_b_calls_a_to_any_depth() {
    let ((a, to_a), (b, to_b)) = (pair(), pair());
    // Each calls the other one with a number less by one, and adds its own letter.
    let server = |letter: u8, other: Sender| {
        move |context: Context, method: u64, _: Vec<u8>| {
            let other = other.clone();
            async move {
                let mut result = vec![];
                if method > 1 {
                    result = context.call(&other, method - 1, b"").await.unwrap();
                }
                result.push(letter);
                result
            }
        }
    };
    thread::scope(|threads| {
        let (for_a, for_b) = (to_b.clone(), to_a.clone());
        threads.spawn(|| serve(a, server(b'a', for_a)));
        threads.spawn(|| serve(b, server(b'b', for_b)));
        let mut caller = Caller::new();
        assert_eq!(caller.call(&to_a, 6, b"").unwrap(), b"bababa");
        assert_eq!(caller.call(&to_a, 100, b"").unwrap().len(), 100);
        caller.call(&to_a, STOP, b"").unwrap();
        caller.call(&to_b, STOP, b"").unwrap();
    });
}

#[test]
fn the_limit_holds_requests_back_and_no_replies() {
    const REQUESTS: usize = 5;
    let ((mailbox, sender), (wakes, waker)) = (pair(), pair());
    let (running, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let condition = Rc::new(Condition::new());
    let mut dispatcher = Dispatcher::new();
    dispatcher.limit_requests(2);
    let (now, peak, waits) = (running.clone(), most.clone(), condition.clone());
    dispatcher.serve(mailbox, Class::External, move |request| {
        let (running, most, condition) = (now.clone(), peak.clone(), waits.clone());
        async move {
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            condition.wait().await;
            running.set(running.get() - 1);
            request.reply(b"");
        }
    });
    let signals = condition.clone();
    dispatcher.serve(wakes, Class::FleetReply, move |_| {
        signals.signal();
        async {}
    });
    let (replies, reply_to) = pair();
    let mut request = request(1, &replies);
    let mut run = Box::pin(dispatcher.run_async());
    (0..REQUESTS).for_each(|_| sender.send(&request).unwrap());
    let mut replies = replies;
    for handled in 0..REQUESTS {
        assert!(drive(&mut run).is_pending());
        assert_eq!(running.get(), 2.min(REQUESTS - handled));
        // An event for the condition.
        request.truncate(24);
        request[0] = 2;
        waker.send(&request).unwrap();
        assert!(drive(&mut run).is_pending());
        assert!(replies.receive().is_some() && replies.receive().is_none());
    }
    assert_eq!((running.get(), most.get()), (0, 2));
    drop(reply_to);
}

/// The bytes of a request for a method, with a reply to `replies`.
fn request(method: u64, replies: &Mailbox) -> Vec<u8> {
    let words = [1, method, 9].map(u64::to_le_bytes).concat();
    let key = replies.add_capability().unwrap();
    [&words[..], &replies.alias().to_bytes(), &key.to_bytes()].concat()
}

#[test]
fn dropped_refused_and_panicking_requests_are_told_apart() {
    let (mailbox, sender) = pair();
    let alias = sender.mailbox();
    thread::scope(|threads| {
        threads.spawn(|| {
            let mut dispatcher = Dispatcher::new();
            let context = dispatcher.context();
            dispatcher.serve(mailbox, Class::External, move |request| {
                let context = context.clone();
                assert!(request.method() != 4, "a handler panics before its task");
                async move {
                    match request.method() {
                        1 => drop(request),
                        2 => panic!("a task panics"),
                        3 => request.refuse(),
                        // Larger than the caller's mailbox.
                        5 => request.reply(&[0; 1 << 20]),
                        STOP => {
                            request.reply(b"");
                            context.stop();
                        }
                        _ => request.reply(b"fine"),
                    }
                }
            });
            dispatcher.run();
        });
        let mut caller = Caller::new();
        for method in [1, 2, 4] {
            let failed = caller.call(&sender, method, b"").unwrap_err();
            assert_eq!(failed, CallFailed::NoReply { mailbox: alias }, "{method}");
            assert!(failed.may_have_run());
        }
        let failed = caller.call(&sender, 5, b"").unwrap_err();
        assert_eq!(failed, CallFailed::ResultTooLarge { mailbox: alias });
        let failed = caller.call(&sender, 3, b"").unwrap_err();
        assert_eq!(failed, CallFailed::NoMethod { mailbox: alias, method: 3 });
        assert!(!failed.may_have_run());
        assert_eq!(caller.call(&sender, 6, b"").unwrap(), b"fine");
        caller.call(&sender, STOP, b"").unwrap();
    });
    let failed = Caller::new().call(&sender, 6, b"").unwrap_err();
    assert_eq!(failed, CallFailed::NotSent(SendError::InvalidAlias { mailbox: alias }));
}

#[test]
fn requests_that_a_stopped_server_has_not_begun_did_not_run() {
    let (mailbox, sender) = pair();
    let replies: Vec<Mailbox> = (0..2).map(|_| Mailbox::new()).collect();
    for replies in &replies {
        sender.send(&request(1, replies)).unwrap();
    }
    let mut dispatcher = Dispatcher::new();
    // One at a time, so that the second one is still in the mailbox at the end.
    dispatcher.limit_requests(1);
    let context = dispatcher.context();
    dispatcher.serve(mailbox, Class::External, move |_request| {
        let context = context.clone();
        async move {
            context.stop();
            Condition::new().wait().await;
        }
    });
    assert!(drive(&mut Box::pin(dispatcher.run_async())).is_ready());
    let reasons: Vec<u8> = replies.into_iter().map(|mut replies| replies.receive().unwrap()[8]).collect();
    // The first one was begun and dropped, the second one was not begun.
    assert_eq!(reasons, [2, 3]);
}

#[test]
fn malformed_messages_are_counted_and_forged_replies_are_ignored() {
    let (mailbox, sender) = pair();
    let mut dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    let numbers = Rc::new(RefCell::new(Vec::new()));
    let seen = numbers.clone();
    dispatcher.serve(mailbox, Class::External, move |request| {
        seen.borrow_mut().push(request.method());
        async move { request.reply(b"to an address that does not exist") }
    });
    sender.send(b"").unwrap();
    sender.send(&[1; 55]).unwrap();
    let forged = [&[1, 77, 3].map(u64::to_le_bytes).concat()[..], &[5; 32]].concat();
    sender.send(&forged).unwrap();
    let stats = Rc::new(Cell::new(None));
    let known = stats.clone();
    dispatcher.idle(async move {
        known.set(Some(context.stats()));
        context.stop();
    });
    assert!(drive(&mut Box::pin(dispatcher.run_async())).is_ready());
    assert_eq!(*numbers.borrow(), [77]);
    let stats = stats.get().unwrap();
    assert_eq!((stats.malformed, stats.panics, stats.tasks, stats.calls), (2, 0, 0, 0));
}

#[test]
fn idle_work_runs_only_when_nothing_else_can() {
    let (mailbox, sender) = pair();
    let log = Rc::new(RefCell::new(String::new()));
    let mut dispatcher = Dispatcher::new();
    let (context, writes) = (dispatcher.context(), log.clone());
    let tasks = context.clone();
    dispatcher.serve(mailbox, Class::External, move |request| {
        let (context, log) = (tasks.clone(), writes.clone());
        async move {
            log.borrow_mut().push(char::from(request.body()[0]));
            context.yield_now().await;
            log.borrow_mut().push(char::from(request.body()[0].to_ascii_uppercase()));
        }
    });
    let (writes, again) = (log.clone(), sender.clone());
    let events = |letter: u8| [&[2, 1, 0].map(u64::to_le_bytes).concat()[..], &[letter]].concat();
    let another = events(b'c');
    dispatcher.idle(async move {
        writes.borrow_mut().push('.');
        again.send(&another).unwrap();
        context.yield_now().await;
        writes.borrow_mut().push('!');
        context.stop();
    });
    sender.send(&events(b'a')).unwrap();
    sender.send(&events(b'b')).unwrap();
    assert!(drive(&mut Box::pin(dispatcher.run_async())).is_ready());
    let log = log.borrow();
    // Both requests are through before the first dot, and the third one before the end.
    assert!(log.ends_with(".cC!"), "{log}");
    let mut before: Vec<char> = log[..4].chars().collect();
    before.sort_unstable();
    assert_eq!(before, ['A', 'B', 'a', 'b'], "{log}");
}

#[test]
fn a_condition_wakes_in_order_and_loses_no_signal() {
    let dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    let (condition, log) = (Rc::new(Condition::new()), Rc::new(RefCell::new(Vec::new())));
    for n in 0..3 {
        let (condition, log) = (condition.clone(), log.clone());
        context.spawn(async move {
            condition.wait().await;
            log.borrow_mut().push(n);
        });
    }
    let mut run = Box::pin(dispatcher.run_async());
    assert!(drive(&mut run).is_pending());
    assert!(condition.signal());
    assert!(drive(&mut run).is_pending());
    assert_eq!(*log.borrow(), [0]);
    // A wait that was signalled and is then dropped passes the signal on.
    {
        let mut given_up = pin!(condition.wait());
        let mut task = std::task::Context::from_waker(Waker::noop());
        assert!(given_up.as_mut().poll(&mut task).is_pending());
        condition.signal_all();
    }
    assert!(drive(&mut run).is_pending());
    assert_eq!(*log.borrow(), [0, 1, 2]);
    assert!(!condition.signal());
}

/// Counts the requests of clients that were begun before the first one had its reply from another server of
/// the same dispatcher.
fn begun_before_the_first_reply(requests_first: bool) -> usize {
    let ((clients, from_client), (inner, to_inner)) = (pair(), pair());
    let mut dispatcher = Dispatcher::new();
    if requests_first {
        dispatcher.__requests_first();
    }
    let (context, begun) = (dispatcher.context(), Rc::new(Cell::new(0)));
    let first = Rc::new(Cell::new(None));
    dispatcher.serve(inner, Class::FleetCall, |request| async move { request.reply(b"") });
    let (counts, result) = (begun.clone(), first.clone());
    dispatcher.serve(clients, Class::External, move |_request| {
        counts.set(counts.get() + 1);
        let (context, to_inner, begun, first) =
            (context.clone(), to_inner.clone(), counts.clone(), result.clone());
        async move {
            context.call(&to_inner, 1, b"").await.unwrap();
            first.set(first.get().or(Some(begun.get())));
        }
    });
    let event = [2, 1, 0].map(u64::to_le_bytes).concat();
    (0..200).for_each(|_| from_client.send(&event).unwrap());
    assert!(drive(&mut Box::pin(dispatcher.run_async())).is_pending());
    assert_eq!(begun.get(), 200);
    first.get().unwrap()
}

#[test]
fn fo_17_replies_come_before_requests() {
    assert_eq!(begun_before_the_first_reply(false), 1);
    // With the priorities reversed, the first reply waits behind all requests.
    assert_eq!(begun_before_the_first_reply(true), 200);
}

#[test]
fn a_call_with_a_limit_ends_and_its_late_reply_is_ignored() {
    let (mailbox, sender) = pair();
    let alias = sender.mailbox();
    let mut caller = Caller::new();
    let late = caller.call_for(&sender, 1, b"", Duration::from_millis(1)).unwrap_err();
    assert_eq!(late, CallFailed::TimedOut { mailbox: alias });
    thread::scope(|threads| {
        threads.spawn(|| serve(mailbox, |_, method, _| async move { vec![method as u8] }));
        assert_eq!(caller.call_for(&sender, 2, b"", Duration::MAX).unwrap(), [2]);
        caller.call(&sender, STOP, b"").unwrap();
    });
}

/// A message without a reply.
fn event(method: u64) -> Vec<u8> {
    [2, method, 0].map(u64::to_le_bytes).concat()
}

#[test]
fn a_client_that_takes_no_replies_harms_no_other() {
    let (mailbox, sender) = pair();
    let mut dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    dispatcher.serve(mailbox, Class::External, |request| async move {
        let body = request.body().to_vec();
        request.reply(&body);
    });
    let mut run = Box::pin(dispatcher.run_async());
    // Room for two replies.
    let mut hoard = Mailbox::builder().lane_bytes(64).build();
    let greedy = request(1, &hoard);
    for _ in 0..3_000 {
        sender.send(&greedy).unwrap();
        assert!(drive_some(&mut run).is_pending());
    }
    let mut honest = Mailbox::new();
    sender.send(&request(2, &honest)).unwrap();
    assert!(drive_some(&mut run).is_pending());
    assert!(honest.receive().is_some());
    let stats = context.stats();
    assert_eq!((stats.requests, stats.tasks), (0, 1));
    // All but those in the mailbox, in the hands of the task, and in the list.
    assert_eq!(stats.unsent, 3_000 - 2 - 1 - 1_024);
    let mut late = 0;
    while hoard.receive().is_some() {
        late += 1;
        assert!(drive_some(&mut run).is_pending());
    }
    assert_eq!(late, 2 + 1 + 1_024);
    assert_eq!(context.stats().tasks, 0);
}

#[test]
fn a_reply_that_is_too_large_fails_also_behind_replies_that_wait() {
    let (mailbox, sender) = pair();
    let mut dispatcher = Dispatcher::new();
    dispatcher.serve(mailbox, Class::External, |request| async move {
        let body = vec![0; request.method() as usize];
        request.reply(&body);
    });
    let mut run = Box::pin(dispatcher.run_async());
    // Room for two empty replies.
    let mut replies = Mailbox::builder().lane_bytes(64).build();
    let mut asks = request(0, &replies);
    (0..4).for_each(|_| sender.send(&asks).unwrap());
    asks[8..16].copy_from_slice(&1_000_u64.to_le_bytes());
    sender.send(&asks).unwrap();
    assert!(drive_some(&mut run).is_pending());
    let mut kinds = Vec::new();
    while let Some(reply) = replies.receive().map(|reply| reply.to_vec()) {
        // A reply has no reason. The reason 4 is a result that is too large.
        kinds.push((reply[0], reply[8]));
        assert!(drive_some(&mut run).is_pending());
    }
    assert_eq!(kinds, [(3, 0), (3, 0), (3, 0), (3, 0), (4, 4)]);
}

/// Polls a few times.
fn drive_some(run: &mut (impl Future<Output = ()> + Unpin)) -> Poll<()> {
    let mut context = std::task::Context::from_waker(Waker::noop());
    (0..4).fold(Poll::Pending, |poll, _| {
        if poll.is_ready() { poll } else { std::pin::Pin::new(&mut *run).poll(&mut context) }
    })
}

#[test]
fn a_flood_of_replies_holds_up_no_task() {
    let (mailbox, sender) = pair();
    let mut dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    let flood = sender.clone();
    // Each event makes another one.
    dispatcher.serve(mailbox, Class::FleetReply, move |_| {
        flood.send(&event(1)).unwrap();
        async {}
    });
    (0..100).for_each(|_| sender.send(&event(1)).unwrap());
    let done = Rc::new(Cell::new(false));
    let (sets, stops) = (done.clone(), context.clone());
    context.spawn(async move {
        sets.set(true);
        stops.stop();
    });
    assert!(drive(&mut Box::pin(dispatcher.run_async())).is_ready());
    assert!(done.get());
}

/// Waits for a time, as the waker of a client that takes long.
struct WaitsUntil(Instant);

impl Wake for WaitsUntil {
    fn wake(self: Arc<Self>) {
        while Instant::now() < self.0 {}
    }
}

/// Lets a timer become due in a flood of messages without tasks. Returns whether its task runs before the
/// dispatcher is polled again.
fn timer_fires_in_a_flood(message: &[u8]) -> bool {
    let ((mailbox, sender), (mut replies, _)) = (pair(), pair());
    let mut dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    dispatcher.serve_methods(mailbox, Class::External, Methods::named("none"));
    let at = Instant::now() + Duration::from_millis(50);
    context.clone().spawn(async move {
        context.sleep(at.saturating_duration_since(Instant::now())).await;
        context.stop();
    });
    let mut run = Box::pin(dispatcher.run_async());
    let mut task = std::task::Context::from_waker(Waker::noop());
    if run.as_mut().poll(&mut task).is_ready() {
        // The machine was so slow that the timer was due at once.
        return true;
    }
    // The answer to the first request takes until the timer is due, after the dispatcher has read the clock.
    let first = request(1, &replies);
    let waker = Waker::from(Arc::new(WaitsUntil(at)));
    let mut reply = pin!(replies.wait());
    assert!(reply.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    sender.send(&first).unwrap();
    (0..200).for_each(|_| sender.send(message).unwrap());
    run.as_mut().poll(&mut task).is_ready()
}

#[test]
fn a_flood_without_tasks_holds_up_no_timer() {
    assert!(timer_fires_in_a_flood(b"malformed"));
    assert!(timer_fires_in_a_flood(&event(7)));
}

#[test]
fn mailboxes_of_one_class_take_turns() {
    let mut dispatcher = Dispatcher::new();
    let log = Rc::new(RefCell::new(String::new()));
    let mut senders = Vec::new();
    for letter in ['a', 'b'] {
        let (mailbox, sender) = pair();
        let log = log.clone();
        dispatcher.serve(mailbox, Class::External, move |_| {
            log.borrow_mut().push(letter);
            async {}
        });
        (0..3).for_each(|_| sender.send(&event(1)).unwrap());
        senders.push(sender);
    }
    assert!(drive(&mut Box::pin(dispatcher.run_async())).is_pending());
    assert_eq!(*log.borrow(), "ababab");
}

#[test]
fn another_server_cannot_end_a_call() {
    let ((victim, to_victim), (other, to_other)) = (pair(), pair());
    let (mut victim, mut other) = (victim, other);
    let dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    let results = Rc::new(RefCell::new(Vec::new()));
    for to in [to_victim, to_other] {
        let (context, results) = (context.clone(), results.clone());
        context.clone().spawn(async move {
            let result = context.call(&to, 1, b"").await;
            results.borrow_mut().push(result);
        });
    }
    let mut run = Box::pin(dispatcher.run_async());
    assert!(drive(&mut run).is_pending());
    let (of_victim, of_other) = (victim.receive().unwrap().to_vec(), other.receive().unwrap().to_vec());
    // The other server replies to the call of the first one, with its own key.
    let reply = |token: &[u8], body: &[u8]| [&3_u64.to_le_bytes(), &[0; 8], token, body].concat();
    let by = |request: &[u8]| {
        let part = |at: usize| request[at..at + 16].try_into().unwrap();
        let (alias, key) = (squall_fleet::Alias::from_bytes(part(24)), part(40));
        Sender::new(alias, squall_fleet::Capability::from_bytes(key)).unwrap()
    };
    by(&of_other).send(&reply(&of_victim[16..24], b"forged")).unwrap();
    assert!(drive(&mut run).is_pending());
    assert!(results.borrow().is_empty());
    by(&of_victim).send(&reply(&of_victim[16..24], b"right")).unwrap();
    // A second reply changes nothing.
    by(&of_victim).send(&reply(&of_victim[16..24], b"again")).unwrap();
    assert!(drive(&mut run).is_pending());
    assert_eq!(*results.borrow(), [Ok(b"right".to_vec())]);
}

#[test]
fn calls_end_with_their_dispatcher() {
    let (_mailbox, sender) = pair();
    let alias = sender.mailbox();
    let dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    let mut call = pin!(context.call(&sender, 1, b""));
    let mut task = std::task::Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut task).is_pending());
    drop(dispatcher);
    assert_eq!(call.poll(&mut task), Poll::Ready(Err(CallFailed::Ended { mailbox: alias })));
    // Later ones do not begin.
    let late = pin!(context.call(&sender, 1, b"")).poll(&mut task);
    assert!(matches!(late, Poll::Ready(Err(CallFailed::NotSent(_)))));
}

#[test]
fn other_threads_wake_tasks_and_idle_work() {
    let (to, from) = mpsc::channel::<Waker>();
    let (mailbox, sender) = pair();
    thread::scope(|threads| {
        threads.spawn(move || {
            let mut dispatcher = Dispatcher::new();
            let context = dispatcher.context();
            // Gives its waker away and waits to be polled again.
            let waits_once = |to: mpsc::Sender<Waker>| async move {
                let mut asked = false;
                std::future::poll_fn(|task| {
                    if std::mem::replace(&mut asked, true) {
                        return Poll::Ready(());
                    }
                    to.send(task.waker().clone()).unwrap();
                    Poll::Pending
                })
                .await;
            };
            let (task, idle, stops) = (to.clone(), to, context.clone());
            context.spawn(async move {
                for _ in 0..200 {
                    waits_once(task.clone()).await;
                }
            });
            dispatcher.idle(async move {
                for _ in 0..200 {
                    waits_once(idle.clone()).await;
                }
                drop(idle);
                // The end comes by a request.
                std::future::pending::<()>().await;
            });
            dispatcher.serve(mailbox, Class::External, move |request| {
                stops.stop();
                async move { request.reply(b"") }
            });
            dispatcher.run();
        });
        // Until both have dropped their ends. Idle work may be polled for another reason before its wake-up.
        from.into_iter().for_each(Waker::wake);
        Caller::new().call(&sender, STOP, b"").unwrap_err();
    });
}

#[test]
fn junk_does_not_extend_the_limit_of_a_call() {
    let (mut mailbox, sender) = pair();
    let alias = sender.mailbox();
    thread::scope(|threads| {
        threads.spawn(move || {
            mailbox.wait().block();
            let request = mailbox.receive().unwrap().to_vec();
            let part = |at: usize| request[at..at + 16].try_into().unwrap();
            let (alias, key) = (squall_fleet::Alias::from_bytes(part(24)), part(40));
            let junk = Sender::new(alias, squall_fleet::Capability::from_bytes(key)).unwrap();
            // Until the caller has gone.
            while junk.wait_to_send(b"junk").block().is_ok() {}
        });
        let mut caller = Caller::new();
        let late = caller.call_for(&sender, 1, b"", Duration::from_millis(20)).unwrap_err();
        assert_eq!(late, CallFailed::TimedOut { mailbox: alias });
        drop(caller);
    });
}
