//! Events of queues. The sink of the trace belongs to the process, so the test has a process of its own.
#![cfg(not(any(loom, squall_model)))]

use squall_parts::queue::{Closed, Form, Queue, Wait, WaitError};
use squall_sys::trace::{Kind, Subject, install, switch};
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// An event: its kind, its code if it has one, and its quantity.
type Event = (&'static str, Option<&'static str>, u64);

static SEEN: Mutex<Vec<(Subject, Event)>> = Mutex::new(Vec::new());

fn sink(kind: &'static Kind, subject: Subject, [first, second]: [u64; 2]) {
    let event = match kind.code_name(0, first) {
        Some(code) => (kind.name(), Some(code), second),
        None => (kind.name(), None, first),
    };
    SEEN.lock().expect("no thread panics holding it").push((subject, event));
}

/// Takes the events about a queue.
fn take<T>(queue: &Queue<T>) -> Vec<Event> {
    let mut seen = SEEN.lock().expect("no thread panics holding it");
    let (ours, others) = seen.drain(..).partition(|(of, _)| *of == Subject::at(queue));
    *seen = others;
    ours.into_iter().map(|(_, event)| event).collect()
}

fn poll<F: Future + Unpin>(wait: &mut F) -> Poll<F::Output> {
    Pin::new(wait).poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits until a client sleeps.
fn until_asleep<T>(queue: &Queue<T>) {
    while queue.counts().sleeps == 0 {
        thread::yield_now();
    }
}

#[test]
fn kt_18_a_wait_that_slept_and_a_close_are_emitted_once() {
    assert!(install(sink));
    let queue = Queue::new(Form::Strict);
    let mut early = Wait::new(&queue);
    assert!(poll(&mut early).is_pending());
    switch(true);

    // A wait that finds an element does not sleep.
    queue.here().put(1, ()).expect("it is open");
    assert_eq!(Wait::new(&queue).block(), Ok((1, ())));
    assert_eq!(take(&queue), []);
    drop(early);
    assert_eq!(take(&queue), [], "the sleep began before the trace");

    // Polls in vain are one wait.
    let mut wait = Wait::new(&queue);
    assert!(poll(&mut wait).is_pending() && poll(&mut wait).is_pending());
    queue.here().put(2, ()).expect("it is open");
    assert_eq!(poll(&mut wait), Poll::Ready(Ok((2, ()))));
    drop(wait);
    let events = take(&queue);
    assert!(matches!(events[..], [("queue.wait", Some("answered"), _)]), "{events:?}");

    let limit = Duration::from_millis(2);
    assert_eq!(Wait::new(&queue).block_for(limit), Err(WaitError::TimedOut));
    let events = take(&queue);
    let [("queue.wait", Some("given-up"), waited_ns)] = events[..] else { panic!("{events:?}") };
    assert!(u128::from(waited_ns) > 0);

    queue.here().put(3, ()).expect("it is open");
    queue.close();
    queue.close();
    assert_eq!(take(&queue), [("queue.close", None, 1)]);

    // A close answers the threads that sleep.
    let queue: Queue<()> = Queue::new(Form::Local);
    thread::scope(|threads| {
        let waiter = threads.spawn(|| Wait::new(&queue).block());
        until_asleep(&queue);
        queue.close();
        assert_eq!(waiter.join().expect("it does not panic"), Err(Closed));
    });
    let mut events: Vec<_> = take(&queue).into_iter().map(|(kind, code, _)| (kind, code)).collect();
    events.sort_unstable();
    assert_eq!(events, [("queue.close", None), ("queue.wait", Some("answered"))]);
    switch(false);
}
