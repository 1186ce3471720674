//! Dispatchers that serve links, and objects that other processes call.
#![cfg(all(target_os = "linux", not(miri), not(loom)))]

#[path = "../../squall-machine/tests/main/this_program.rs"]
mod this_program;

use squall_call::{socket_pair, with_deadline};
use squall_core::{CallErrorKind, Handle, Owned, Transport, shared};
use squall_fleet::{
    Class, Condition, ConnectError, Context, Dispatcher, Link, LinkCallFailed, LinkError, LinkListener,
    LinkOptions, LinkPort, LinkReceiver, LinkRefused, LinkSender, Mailbox, connect, connect_link,
};
use squall_macros::interface;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;
use this_program::this_program;

/// The hidden modules of the façade.
mod facade {
    pub(crate) use squall_core::__macro;
    pub(crate) mod call {
        pub(crate) use squall_call::__macro;
    }
}

#[interface(crate = crate::facade, remote)]
trait Register: Send + Sync {
    fn add(&self, n: u64) -> u64;
    fn text(&self, a: &str) -> String;
    fn process(&self) -> u32;
    fn end_process(&self);
    fn panic(&self);
}

#[interface(crate = crate::facade, remote)]
trait Other: Send + Sync {
    fn other(&self);
}

#[derive(Default)]
struct Here(AtomicU64);

impl Register for Here {
    fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, SeqCst) + n
    }
    fn text(&self, a: &str) -> String {
        a.repeat(2)
    }
    fn process(&self) -> u32 {
        std::process::id()
    }
    fn end_process(&self) {
        std::process::abort();
    }
    fn panic(&self) {
        panic!("asked for");
    }
}

/// Name of the environment variable that makes the test `peer` act: a role and the name of a listener.
const ROLE: &str = "SQUALL_TEST_SERVED";

fn start(role: &str, name: &str) -> Child {
    let mut command = this_program();
    command.args(["--exact", "peer", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, format!("{role} {name}")).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn peer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, name) = role.split_once(' ').unwrap();
    match role {
        "client" => {
            let stub = connect_link::<dyn Register>(name).unwrap();
            check(stub.handle());
            assert_ne!(stub.process(), std::process::id());
        }
        "server" => {
            let object = shared::<dyn Register, _>(Here::default());
            let port = LinkPort::listen(LinkListener::bind(name).unwrap()).unwrap();
            println!("listens");
            let mut dispatcher = Dispatcher::new();
            dispatcher.serve_object(port, Class::External, object.handle());
            dispatcher.run();
        }
        _ => panic!("the role {role}"),
    }
}

/// Starts a process that serves a register, and waits until it listens.
fn server(name: &str) -> Child {
    let mut child = start("server", name);
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().any(|line| line.unwrap().contains("listens")));
    child
}

fn name(of: &str) -> String {
    format!("test-served-{of}-{}", std::process::id())
}

/// Calls an object, wherever it is.
fn check(register: Handle<dyn Register>) {
    let before = register.add(0);
    assert_eq!(register.add(2), before + 2);
    assert_eq!(register.text("ab"), "abab");
    assert_eq!(register.text(&"x".repeat(3000)).len(), 6000);
}

/// Serves an object on a thread of its own, until the context that it returns stops it.
fn serve_at(port: LinkPort, object: Handle<dyn Register>) -> (thread::JoinHandle<()>, Stop) {
    let (sends, control) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut dispatcher = Dispatcher::new();
        dispatcher.serve_object(port, Class::External, object);
        sends.send(dispatcher.context().control()).unwrap();
        dispatcher.run();
    });
    (server, Stop(control.recv().unwrap()))
}

struct Stop(squall_fleet::Control);

#[test]
fn a_handle_calls_this_thread_another_thread_and_another_process_alike() {
    let object = shared::<dyn Register, _>(Here::default());
    check(object.handle());
    let (mailbox, name) = (Mailbox::new(), name("alike"));
    let sender = mailbox.sender(mailbox.add_capability().unwrap()).unwrap();
    let port = LinkPort::listen(LinkListener::bind(&name).unwrap()).unwrap();
    let handle = object.handle();
    let (sends, control) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut dispatcher = Dispatcher::new();
        // One dispatcher serves both, in classes of their own.
        dispatcher.serve_object(mailbox, Class::Fleet, handle);
        dispatcher.serve_object(port, Class::External, handle);
        sends.send(dispatcher.context().control()).unwrap();
        dispatcher.run();
    });
    let by_mailbox = connect::<dyn Register>(&sender).unwrap();
    check(by_mailbox.handle());
    let by_link = connect_link::<dyn Register>(&name).unwrap();
    check(by_link.handle());
    let mut client = start("client", &name);
    assert!(client.wait().unwrap().success());
    // Three handles and a process have called one object.
    assert_eq!(object.add(0), 8);
    control.recv().unwrap().stop();
    server.join().unwrap();
}

#[test]
fn threads_call_at_once_and_each_gets_its_own_result() {
    let object = shared::<dyn Register, _>(Here::default());
    let name = name("threads");
    let port = LinkPort::listen(LinkListener::bind(&name).unwrap()).unwrap();
    let (server, stop) = serve_at(port, object.handle());
    let stub = connect_link::<dyn Register>(&name).unwrap();
    let handle = stub.handle();
    thread::scope(|threads| {
        for thread in 0..6 {
            threads.spawn(move || {
                for n in 0..200 {
                    let text = format!("{thread}-{n};");
                    assert_eq!(handle.text(&text), text.repeat(2));
                    handle.add(1);
                }
            });
        }
    });
    assert_eq!(object.add(0), 1200);
    stop.0.stop();
    server.join().unwrap();
}

#[test]
fn a_killed_server_is_told_and_the_next_one_is_found() {
    let name = name("killed");
    let mut first = server(&name);
    let stub = connect_link::<dyn Register>(&name).unwrap();
    assert_eq!(stub.process(), first.id());
    let lost = stub.try_end_process().unwrap_err();
    assert_eq!(lost.reason(), CallErrorKind::Transport(Transport::PeerGone), "{lost}");
    first.wait().unwrap();
    let gone = stub.try_add(1).unwrap_err();
    assert_eq!(gone.reason(), CallErrorKind::Transport(Transport::Disconnected), "{gone}");
    let mut second = server(&name);
    assert_eq!((stub.process(), stub.add(5)), (second.id(), 5));
    second.kill().unwrap();
    second.wait().unwrap();
}

#[test]
fn each_failure_has_its_error() {
    let name = name("failures");
    let error = connect_link::<dyn Register>(&name).unwrap_err();
    assert!(matches!(error, ConnectError::NotLinked { .. }), "{error}");
    let object = shared::<dyn Register, _>(Here::default());
    let port = LinkPort::listen(LinkListener::bind(&name).unwrap()).unwrap();
    let (server, stop) = serve_at(port, object.handle());
    let error = connect_link::<dyn Other>(&name).unwrap_err();
    let ConnectError::OtherInterface { .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains(&name), "{error}");
    let stub = connect_link::<dyn Register>(&name).unwrap();
    let panicked = stub.try_panic().unwrap_err();
    assert_eq!(panicked.reason(), CallErrorKind::Transport(Transport::Panicked), "{panicked}");
    assert_eq!(stub.add(1), 1);
    // In a task, a call would hold up the other tasks.
    let dispatcher = Dispatcher::new();
    let (context, handle) = (dispatcher.context(), stub.handle());
    dispatcher.context().spawn(async move {
        let blocked = handle.try_add(1).unwrap_err();
        assert_eq!(blocked.reason(), CallErrorKind::Transport(Transport::WouldBlock), "{blocked}");
        context.stop();
    });
    dispatcher.run();
    stop.0.stop();
    server.join().unwrap();
    let late = with_deadline(Duration::ZERO, || stub.try_add(1)).unwrap_err();
    assert_eq!(late.reason(), CallErrorKind::Transport(Transport::Busy), "{late}");
    let gone = stub.try_add(1).unwrap_err();
    assert_eq!(gone.reason(), CallErrorKind::Transport(Transport::Disconnected), "{gone}");
    assert_eq!(object.add(0), 1);
}

/// Makes a link for a dispatcher, and the ends of its peer.
fn pair(lane_bytes: usize) -> (Link, (LinkSender, LinkReceiver)) {
    let (here, there) = socket_pair().unwrap();
    let options = LinkOptions::new().limit(Duration::from_secs(600)).lane_bytes(lane_bytes);
    let other = thread::spawn({
        let options = options.clone();
        move || options.over(there).unwrap()
    });
    let link = options.over(here).unwrap();
    (link, other.join().unwrap().split())
}

/// The bytes of a message with this kind.
fn message(kind: u64, method: u64, token: u64) -> Vec<u8> {
    [kind, method, token].map(u64::to_le_bytes).concat()
}

const REQUEST_TO_A_MAILBOX: u64 = 1;
const EVENT: u64 = 2;
const REQUEST: u64 = 5;
const KEYED_REQUEST: u64 = 13;

/// The kind, the reason, and the token of a reply.
fn reply(receiver: &mut LinkReceiver) -> [u64; 3] {
    let bytes = receiver.receive().unwrap().expect("there is a reply").to_vec();
    [0, 8, 16].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()))
}

/// Polls until no task can run.
fn drive(run: &mut (impl Future<Output = ()> + Unpin)) -> Poll<()> {
    let mut context = std::task::Context::from_waker(Waker::noop());
    for _ in 0..1_000 {
        if std::pin::Pin::new(&mut *run).poll(&mut context).is_ready() {
            return Poll::Ready(());
        }
    }
    Poll::Pending
}

/// Polls until the peer has a reply. The thread of the sockets may have to wake the dispatcher.
fn drive_until_reply(run: &mut (impl Future<Output = ()> + Unpin), peer: &mut LinkReceiver) {
    while !peer.wait().block_for(Duration::ZERO).unwrap() {
        assert!(drive(run).is_pending());
        thread::yield_now();
    }
}

/// A dispatcher that notes the labels of its requests, in their order.
fn noting(dispatcher: &mut Dispatcher, port: LinkPort, class: Class) -> Rc<RefCell<Vec<u64>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let notes = seen.clone();
    dispatcher.serve(port, class, move |request| {
        notes.borrow_mut().push(request.label());
        async move { request.reply(b"") }
    });
    seen
}

#[test]
fn links_take_turns_and_a_flood_holds_up_no_other_link() {
    const FLOOD: usize = 400;
    let mut dispatcher = Dispatcher::new();
    let port = LinkPort::new();
    let mut peers = Vec::new();
    for label in 0..8 {
        let (link, peer) = pair(64 << 10);
        port.adder().add_labelled(link, label).unwrap();
        // The first link floods.
        (0..if label == 0 { FLOOD } else { 1 }).for_each(|_| peer.0.send(&message(EVENT, 1, 0)).unwrap());
        peers.push(peer);
    }
    let seen = noting(&mut dispatcher, port, Class::External);
    assert!(drive(&mut Box::pin(dispatcher.run_async())).is_pending());
    let seen = seen.borrow();
    assert_eq!(seen.len(), FLOOD + 7);
    let last = seen.iter().rposition(|label| *label != 0).unwrap();
    // One turn of the flood, and one message of each other link.
    assert!(last < 16 + 7, "{:?}", &seen[..last]);
}

#[test]
fn a_link_leaves_room_for_the_requests_of_others() {
    let mut dispatcher = Dispatcher::new();
    // Two for each link.
    dispatcher.limit_requests(16);
    let (condition, port) = (Rc::new(Condition::new()), LinkPort::new());
    let ((flooding, mut flood), (link, mut peer)) = (pair(4096), pair(4096));
    port.adder().add_labelled(flooding, 1).unwrap();
    port.adder().add_labelled(link, 2).unwrap();
    (1..=20).for_each(|token| flood.0.send(&message(REQUEST, 1, token)).unwrap());
    (1..=3).for_each(|token| peer.0.send(&message(REQUEST, 1, token)).unwrap());
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (notes, waits) = (seen.clone(), condition.clone());
    dispatcher.serve(port, Class::External, move |request| {
        notes.borrow_mut().push(request.label());
        let condition = waits.clone();
        async move {
            condition.wait().await;
            request.reply(b"");
        }
    });
    let mut run = Box::pin(dispatcher.run_async());
    let of = |label| seen.borrow().iter().filter(|seen| **seen == label).count();
    for requests in (2..=20).step_by(2) {
        assert!(drive(&mut run).is_pending());
        assert_eq!((of(1), of(2)), (requests, requests.min(3)));
        condition.signal_all();
    }
    for (receiver, tokens) in [(&mut flood.1, 20), (&mut peer.1, 3)] {
        for token in 1..=tokens {
            drive_until_reply(&mut run, receiver);
            assert_eq!(reply(receiver)[2], token);
        }
    }
    // A link whose requests have ended is there again.
    peer.0.send(&message(REQUEST, 1, 4)).unwrap();
    while of(2) < 4 {
        assert!(drive(&mut run).is_pending());
        thread::yield_now();
    }
}

#[test]
fn a_higher_class_goes_first_and_the_limit_leaves_requests_in_the_links() {
    let mut dispatcher = Dispatcher::new();
    dispatcher.limit_requests(2);
    let condition = Rc::new(Condition::new());
    let ports = [LinkPort::new(), LinkPort::new()];
    let order = Rc::new(RefCell::new(Vec::new()));
    let mut peers = Vec::new();
    for (port, (class, label)) in ports.into_iter().zip([(Class::External, 1), (Class::FleetCall, 2)]) {
        let (link, peer) = pair(4096);
        for token in 1..=4 {
            peer.0.send(&message(REQUEST, 7, token)).unwrap();
        }
        port.adder().add_labelled(link, label).unwrap();
        peers.push(peer);
        let (order, condition) = (order.clone(), condition.clone());
        dispatcher.serve(port, class, move |request| {
            order.borrow_mut().push(request.label());
            let condition = condition.clone();
            async move {
                condition.wait().await;
                request.reply(b"");
            }
        });
    }
    let mut run = Box::pin(dispatcher.run_async());
    assert!(drive(&mut run).is_pending());
    assert_eq!(*order.borrow(), [2, 2, 1, 1]);
    condition.signal_all();
    assert!(drive(&mut run).is_pending());
    assert_eq!(*order.borrow(), [2, 2, 1, 1, 2, 2, 1, 1]);
    condition.signal_all();
    assert!(drive(&mut run).is_pending());
    for (_, receiver) in &mut peers {
        let tokens: Vec<u64> = (0..4).map(|_| reply(receiver)[2]).collect();
        assert_eq!(tokens, [1, 2, 3, 4]);
        assert!(receiver.receive().unwrap().is_none());
    }
}

#[test]
fn replies_wait_for_a_slow_peer_and_hold_up_no_other_link() {
    const REPLIES: u64 = 200;
    let mut dispatcher = Dispatcher::new();
    let port = LinkPort::new();
    let ((slow_link, mut slow), (link, mut other)) = (pair(4096), pair(4096));
    port.adder().add(slow_link).unwrap();
    port.adder().add(link).unwrap();
    dispatcher.serve(port, Class::External, |request| async move { request.reply(&[1; 200]) });
    let mut run = Box::pin(dispatcher.run_async());
    for token in 0..REPLIES {
        while slow.0.send(&message(REQUEST, 1, token)).is_err() {
            assert!(drive(&mut run).is_pending());
        }
        other.0.send(&message(REQUEST, 1, token)).unwrap();
        drive_until_reply(&mut run, &mut other.1);
        assert_eq!(reply(&mut other.1)[2], token);
    }
    // The slow peer gets its replies in order, once it receives.
    for token in 0..REPLIES {
        drive_until_reply(&mut run, &mut slow.1);
        assert_eq!(reply(&mut slow.1)[2], token);
    }
}

#[test]
fn replies_that_wait_for_a_slow_peer_have_a_limit_of_bytes() {
    const RESULT: usize = 1 << 20;
    let mut dispatcher = Dispatcher::new();
    let (link, mut peer) = pair(4 << 20);
    dispatcher.serve(link, Class::External, |request| async move { request.reply(&vec![1; RESULT]) });
    let context = dispatcher.context();
    let mut run = Box::pin(dispatcher.run_async());
    (1..=40).for_each(|token| peer.0.send(&message(REQUEST, 1, token)).unwrap());
    assert!(drive(&mut run).is_pending());
    let unsent = context.stats().unsent;
    // The lane has room for 3, and 15 wait.
    assert!((22..=25).contains(&unsent), "{unsent}");
    for _ in unsent..40 {
        drive_until_reply(&mut run, &mut peer.1);
        assert_eq!(peer.1.receive().unwrap().map(<[u8]>::len), Some(24 + RESULT));
    }
    assert!(drive(&mut run).is_pending());
    assert!(peer.1.receive().unwrap().is_none());
}

#[test]
fn copies_of_a_call_do_not_wait_for_a_slow_peer() {
    const COPIES: usize = 200;
    let mut dispatcher = Dispatcher::new();
    let (link, mut peer) = pair(4096);
    dispatcher.serve(link, Class::External, |request| async move { request.reply(&[1; 1000]) });
    let mut run = Box::pin(dispatcher.run_async());
    let keyed = |session: u64, number: u64| {
        let key = [session, number].map(u64::to_le_bytes).concat();
        [message(KEYED_REQUEST, 1, 9), key].concat()
    };
    peer.0.send(&keyed(0, 5)).unwrap();
    drive_until_reply(&mut run, &mut peer.1);
    let opened = peer.1.receive().unwrap().unwrap().to_vec();
    let session = u64::from_le_bytes(opened[24..].try_into().unwrap());
    for _ in 0..COPIES {
        while peer.0.send(&keyed(session, 1)).is_err() {
            assert!(drive(&mut run).is_pending());
        }
    }
    assert!(drive(&mut run).is_pending());
    let mut replies = 0;
    while let Some(reply) = peer.1.receive().unwrap() {
        assert_eq!(reply.len(), 1024);
        replies += 1;
        assert!(drive(&mut run).is_pending());
    }
    // As many as the lane has room for, and one that waits.
    assert!((1..=5).contains(&replies), "{replies}");
}

#[test]
fn a_dispatcher_takes_the_message_that_a_wait_has_found_before_the_link_was_added() {
    let mut dispatcher = Dispatcher::new();
    let (mut link, peer) = pair(4096);
    (1..=2).for_each(|label| peer.0.send(&message(EVENT, label, 0)).unwrap());
    link.receiver().wait().block().unwrap();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let notes = seen.clone();
    dispatcher.serve(link, Class::External, move |request| {
        notes.borrow_mut().push(request.method());
        async {}
    });
    assert!(drive(&mut Box::pin(dispatcher.run_async())).is_pending());
    assert_eq!(*seen.borrow(), [1, 2]);
}

#[test]
fn a_flood_of_malformed_messages_holds_up_no_other_link() {
    const FLOOD: u64 = 200;
    let mut dispatcher = Dispatcher::new();
    // Links of the same class, each with a port of its own.
    let ((flooding, flood), (link, peer)) = (pair(64 << 10), pair(4096));
    (0..FLOOD).for_each(|_| flood.0.send(b"").unwrap());
    peer.0.send(&message(EVENT, 1, 0)).unwrap();
    let context = dispatcher.context();
    let seen = Rc::new(RefCell::new(Vec::new()));
    dispatcher.serve(flooding, Class::External, |_| async { panic!("a malformed message") });
    let notes = seen.clone();
    let counts = dispatcher.context();
    dispatcher.serve(link, Class::External, move |_| {
        notes.borrow_mut().push(counts.stats().malformed);
        async {}
    });
    assert!(drive(&mut Box::pin(dispatcher.run_async())).is_pending());
    assert_eq!(context.stats().malformed, FLOOD);
    assert!(seen.borrow()[0] <= 2, "{:?}", seen.borrow());
}

#[test]
fn malformed_messages_are_counted_and_a_link_reaches_no_mailbox() {
    let mut dispatcher = Dispatcher::new();
    let (link, peer) = pair(4096);
    let mut replies = Mailbox::new();
    let key = replies.add_capability().unwrap();
    let address = [replies.alias().to_bytes(), key.to_bytes()].concat();
    peer.0.send(&[message(REQUEST_TO_A_MAILBOX, 1, 1), address].concat()).unwrap();
    peer.0.send(b"").unwrap();
    peer.0.send(&message(99, 1, 1)).unwrap();
    peer.0.send(&message(EVENT, 1, 0)).unwrap();
    let port = LinkPort::new();
    port.adder().add(link).unwrap();
    let context = dispatcher.context();
    let seen = noting(&mut dispatcher, port, Class::External);
    // A mailbox knows no way back by a link.
    let mailbox = Mailbox::new();
    let sender = mailbox.sender(mailbox.add_capability().unwrap()).unwrap();
    sender.send(&message(REQUEST, 1, 1)).unwrap();
    dispatcher.serve(mailbox, Class::External, |_| async { panic!("a request without a way back") });
    assert!(drive(&mut Box::pin(dispatcher.run_async())).is_pending());
    assert_eq!((seen.borrow().len(), context.stats().malformed, context.stats().panics), (1, 4, 0));
    assert!(replies.receive().is_none());
}

#[test]
fn the_end_of_a_dispatcher_tells_the_requests_that_it_has_not_begun() {
    let mut dispatcher = Dispatcher::new();
    dispatcher.limit_requests(1);
    let port = LinkPort::new();
    let adder = port.adder();
    let (link, mut peer) = pair(4096);
    adder.add(link).unwrap();
    (1..=3).for_each(|token| peer.0.send(&message(REQUEST, 1, token)).unwrap());
    let context = dispatcher.context();
    dispatcher.serve(port, Class::External, move |_request| {
        let context = context.clone();
        async move {
            context.stop();
            Condition::new().wait().await;
        }
    });
    assert!(drive(&mut Box::pin(dispatcher.run_async())).is_ready());
    // A failure without a reply, and two that say that the server has stopped.
    let told: Vec<[u64; 3]> = (0..3).map(|_| reply(&mut peer.1)).collect();
    assert_eq!(told, [[4, 2, 1], [4, 3, 2], [4, 3, 3]]);
    assert!(peer.1.receive().is_err(), "the link has ended");
    let (link, _peer) = pair(4096);
    let name = link.name();
    assert_eq!(adder.add(link), Err(LinkRefused::Ended { link: name }));
    assert!(adder.has_ended());
}

#[test]
fn a_sleeping_dispatcher_is_woken_by_a_message_a_new_link_and_the_end_of_a_peer() {
    let port = LinkPort::new();
    let adder = port.adder();
    let (link, mut first) = pair(4096);
    adder.add(link).unwrap();
    let server = thread::spawn(move || {
        let mut dispatcher = Dispatcher::new();
        let context = dispatcher.context();
        dispatcher.serve(port, Class::External, move |request| {
            let context: Context = context.clone();
            async move {
                let stops = request.method() == 0;
                request.reply(b"");
                if stops {
                    context.drain();
                }
            }
        });
        dispatcher.run();
    });
    for token in 0..300 {
        first.0.send(&message(REQUEST, 1, token)).unwrap();
        first.1.wait().block().unwrap();
        assert_eq!(reply(&mut first.1)[2], token);
    }
    // Another link is added while it sleeps, and gone before its request is answered.
    let (link, second) = pair(4096);
    second.0.send(&message(EVENT, 1, 0)).unwrap();
    drop(second);
    adder.add(link).unwrap();
    let (link, mut third) = pair(4096);
    adder.add(link).unwrap();
    third.0.send(&message(REQUEST, 0, 9)).unwrap();
    third.1.wait().block().unwrap();
    assert_eq!(reply(&mut third.1), [3, 0, 9]);
    server.join().unwrap();
}

#[test]
fn a_server_calls_back_over_links_to_any_depth() {
    #[interface(crate = crate::facade, remote)]
    trait Tower: Send + Sync {
        fn climb(&self, floors: u32) -> u32;
    }
    struct Floor(String);
    impl Tower for Floor {
        fn climb(&self, floors: u32) -> u32 {
            match floors {
                0 => 0,
                _ => connect_link::<dyn Tower>(&self.0).unwrap().climb(floors - 1) + 1,
            }
        }
    }
    let names = [name("tower-a"), name("tower-b")];
    let objects: Vec<Owned<dyn Tower>> =
        [1, 0].map(|other| shared::<dyn Tower, _>(Floor(names[other].clone()))).into();
    let servers: Vec<_> = names
        .iter()
        .zip(&objects)
        .map(|(name, object)| {
            let port = LinkPort::listen(LinkListener::bind(name).unwrap()).unwrap();
            let (object, (sends, control)) = (object.handle(), mpsc::channel());
            let thread = thread::spawn(move || {
                let mut dispatcher = Dispatcher::new();
                let executor = |work: Box<dyn FnOnce() + Send>| drop(thread::spawn(work));
                dispatcher.serve_object_on(port, Class::External, object, executor);
                sends.send(dispatcher.context().control()).unwrap();
                dispatcher.run();
            });
            (thread, control.recv().unwrap())
        })
        .collect();
    assert_eq!(connect_link::<dyn Tower>(&names[0]).unwrap().climb(6), 6);
    for (thread, control) in servers {
        control.stop();
        thread.join().unwrap();
    }
}

#[test]
fn a_listener_ends_with_its_dispatcher() {
    let name = name("ends");
    for _ in 0..3 {
        // The thread that accepts gives the name back when it ends.
        let listener = loop {
            match LinkListener::bind(&name) {
                Ok(listener) => break listener,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse),
            }
            thread::yield_now();
        };
        let seen = Rc::new(Cell::new(0));
        let mut dispatcher = Dispatcher::new();
        let notes = seen.clone();
        let context = dispatcher.context();
        dispatcher.serve(LinkPort::listen(listener).unwrap(), Class::External, move |_| {
            notes.set(notes.get() + 1);
            context.stop();
            async {}
        });
        let client = thread::spawn({
            let name = name.clone();
            move || Link::connect(&name).unwrap().sender().send(&message(EVENT, 1, 0)).unwrap()
        });
        dispatcher.run();
        client.join().unwrap();
        assert_eq!(seen.get(), 1);
    }
}

/// Serves requests at a listener on a thread of its own: each calls the server of the other name, with the
/// method less by one, and adds its letter.
fn tower(letter: u8, name: &str, other: &str) -> (thread::JoinHandle<()>, squall_fleet::Control) {
    let port = LinkPort::listen(LinkListener::bind(name).unwrap()).unwrap();
    let (other, (sends, control)) = (other.to_owned(), mpsc::channel());
    let thread = thread::spawn(move || {
        let mut dispatcher = Dispatcher::new();
        let context = dispatcher.context();
        let server = Rc::new(RefCell::new(None));
        dispatcher.serve(port, Class::External, move |request| {
            let context = context.clone();
            // Connected when it is first needed: then both listen.
            let connect = || context.add_server(Link::connect(&other).unwrap()).unwrap();
            let server = server.borrow_mut().get_or_insert_with(|| Rc::new(connect())).clone();
            async move {
                let mut result = match request.method() {
                    1 => Vec::new(),
                    method => context.call_link(&server, method - 1, b"").await.unwrap(),
                };
                result.push(letter);
                request.reply(&result);
            }
        });
        sends.send(dispatcher.context().control()).unwrap();
        dispatcher.run();
    });
    (thread, control.recv().unwrap())
}

#[test]
fn tasks_call_each_other_over_links_to_any_depth() {
    let (a, b) = (name("tasks-a"), name("tasks-b"));
    let servers = [tower(b'a', &a, &b), tower(b'b', &b, &a)];
    let dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    let server = context.add_server(Link::connect(&a).unwrap()).unwrap();
    let seen = Rc::new(Cell::new(0));
    let notes = seen.clone();
    dispatcher.context().spawn(async move {
        assert_eq!(context.call_link(&server, 6, b"").await.unwrap(), b"bababa");
        notes.set(context.call_link(&server, 200, b"").await.unwrap().len());
        context.stop();
    });
    dispatcher.run();
    assert_eq!(seen.get(), 200);
    for (thread, control) in servers {
        control.stop();
        thread.join().unwrap();
    }
}

#[test]
fn a_call_over_a_link_ends_with_the_link_and_by_no_other_link() {
    let dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    let ((link, mut peer), (other_link, other)) = (pair(4096), pair(4096));
    let (server, other_server) = (context.add_server(link).unwrap(), context.add_server(other_link).unwrap());
    let link = server.name();
    let results = Rc::new(RefCell::new(Vec::new()));
    let notes = results.clone();
    dispatcher.context().spawn(async move {
        for method in [1, 2, 3] {
            let result = context.call_link(&server, method, b"abc").await;
            notes.borrow_mut().push(result);
        }
        let _other_server = other_server;
        Condition::new().wait().await;
    });
    let mut run = Box::pin(dispatcher.run_async());
    // The other process answers in place of the first one, by the same token.
    while !peer.1.wait().block_for(Duration::ZERO).unwrap() {
        assert!(drive(&mut run).is_pending());
    }
    let request = peer.1.receive().unwrap().unwrap().to_vec();
    assert_eq!(request, [message(REQUEST, 1, 1), b"abc".to_vec()].concat());
    other.0.send(&[message(3, 0, 1), b"forged".to_vec()].concat()).unwrap();
    // A failure that never travels.
    peer.0.send(&message(4, u64::MAX, 1)).unwrap();
    for _ in 0..100 {
        assert!(drive(&mut run).is_pending());
        thread::yield_now();
    }
    assert!(results.borrow().is_empty());
    peer.0.send(&[message(3, 0, 1), b"right".to_vec()].concat()).unwrap();
    while results.borrow().is_empty() {
        assert!(drive(&mut run).is_pending());
        thread::yield_now();
    }
    // The peer ends with the second call, and the third one is not sent.
    drop(peer);
    while results.borrow().len() < 3 {
        assert!(drive(&mut run).is_pending());
        thread::yield_now();
    }
    let results = results.borrow();
    assert_eq!(results[0].as_deref(), Ok(&b"right"[..]));
    assert_eq!(results[1], Err(LinkCallFailed::LinkEnded { link }));
    assert!(results[1].as_ref().unwrap_err().may_have_run());
    assert_eq!(results[2], Err(LinkCallFailed::NotSent(LinkError::Ended { link })));
}

#[test]
fn a_call_over_a_link_ends_at_its_limit_and_its_late_reply_ends_no_other() {
    let dispatcher = Dispatcher::new();
    let context = dispatcher.context();
    let (link, mut peer) = pair(4096);
    let server = context.add_server(link).unwrap();
    let link = server.name();
    let results = Rc::new(RefCell::new(Vec::new()));
    let notes = results.clone();
    dispatcher.context().spawn(async move {
        // The lane has room for the first one alone.
        for (bytes, limit) in [(3000, 20), (3000, 20), (1, 3_600_000)] {
            let limit = Duration::from_millis(limit);
            let result = context.call_link_for(&server, 1, &vec![7; bytes], limit).await;
            notes.borrow_mut().push(result);
        }
        Condition::new().wait().await;
    });
    let mut run = Box::pin(dispatcher.run_async());
    let mut drive_until = |count| {
        while results.borrow().len() < count {
            assert!(drive(&mut run).is_pending());
            thread::yield_now();
        }
    };
    drive_until(2);
    // The replies of the late and of the third call.
    assert!(peer.1.wait().block_for(Duration::ZERO).unwrap());
    assert_eq!(peer.1.receive().unwrap().unwrap().len(), message(REQUEST, 1, 1).len() + 3000);
    for token in [1, 2, 3] {
        peer.0.send(&[message(3, 0, token), token.to_string().into_bytes()].concat()).unwrap();
    }
    drive_until(3);
    let results = results.borrow();
    assert_eq!(results[0], Err(LinkCallFailed::TimedOut { link }));
    assert_eq!(results[1], Err(LinkCallFailed::NotSent(LinkError::Retry { link })));
    assert_eq!(
        results.iter().map(|it| it.as_ref().is_err_and(|e| e.may_have_run())).collect::<Vec<_>>(),
        [true, false, false]
    );
    assert_eq!(results[2].as_deref(), Ok(&b"3"[..]));
}
