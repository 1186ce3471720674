//! Objects that are served at mailboxes, and their stubs.
#![cfg(not(loom))]

use serde::{Deserialize, Serialize};
use squall_call::{Remote, with_deadline};
use squall_core::{CallError, CallErrorKind, Handle, MessageError, Owned, Transport, shared};
use squall_fleet::{
    CallFailed, Caller, Class, ConnectError, Context, Dispatcher, Mailbox, Sender, ServerAddress, connect,
    connect_default, remove_default, set_default,
};
use squall_macros::interface;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The hidden modules of the façade.
mod facade {
    pub(crate) use squall_core::__macro;
    pub(crate) mod call {
        pub(crate) use squall_call::__macro;
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    x: i32,
    y: i32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Failure {
    Odd(u64),
    Lost(String),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        Failure::Lost(error.to_string())
    }
}

#[interface(crate = crate::facade, remote)]
trait Shop: Send + Sync {
    fn nothing(&self);
    fn add(&self, n: u64) -> u64;
    fn numbers(&self, a: u8, b: i128, c: f64) -> (u8, i128, f64);
    fn text(&self, a: &str, b: String, c: Option<&str>) -> String;
    fn bytes(&self, a: &[u8], b: Vec<u8>, c: Box<[u8]>) -> Vec<u8>;
    fn path(&self, a: &Path) -> PathBuf;
    fn points(&self, a: &[Point], b: &Option<Box<Point>>) -> Vec<Point>;
    fn cow<'a>(&self, a: Cow<'a, str>, b: (&'a str, u8)) -> Cow<'static, str>;
    fn map(&self, a: BTreeMap<String, Point>) -> BTreeMap<String, i32>;
    fn halved(&self, n: u64) -> Result<u64, Failure>;
    fn carried(&self, n: u64) -> Result<u64, CallError>;
    fn many(&self, count: usize) -> Vec<u8>;
    fn panic(&self);
    /// Waits until the gate is open.
    fn wait(&self, n: u64) -> u64;
}

/// A gate that a test opens.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicU64,
}

impl Gate {
    fn pass(&self) {
        self.waiting.fetch_add(1, SeqCst);
        drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
    }
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
    fn until_waiting(&self, count: u64) {
        while self.waiting.load(SeqCst) < count {
            thread::yield_now();
        }
    }
}

#[derive(Default)]
struct Here {
    sum: AtomicU64,
    gate: Arc<Gate>,
}

impl Shop for Here {
    fn nothing(&self) {}
    fn add(&self, n: u64) -> u64 {
        self.sum.fetch_add(n, SeqCst) + n
    }
    fn numbers(&self, a: u8, b: i128, c: f64) -> (u8, i128, f64) {
        (a, b, c)
    }
    fn text(&self, a: &str, b: String, c: Option<&str>) -> String {
        format!("{a}{b}{c:?}")
    }
    fn bytes(&self, a: &[u8], b: Vec<u8>, c: Box<[u8]>) -> Vec<u8> {
        [a, &b, &c].concat()
    }
    fn path(&self, a: &Path) -> PathBuf {
        a.join("b")
    }
    fn points(&self, a: &[Point], b: &Option<Box<Point>>) -> Vec<Point> {
        a.iter().cloned().chain(b.as_deref().cloned()).collect()
    }
    fn cow<'a>(&self, a: Cow<'a, str>, b: (&'a str, u8)) -> Cow<'static, str> {
        Cow::Owned(format!("{a}{}", b.0))
    }
    fn map(&self, a: BTreeMap<String, Point>) -> BTreeMap<String, i32> {
        a.into_iter().map(|(key, point)| (key, point.x + point.y)).collect()
    }
    fn halved(&self, n: u64) -> Result<u64, Failure> {
        if n.is_multiple_of(2) { Ok(n / 2) } else { Err(Failure::Odd(n)) }
    }
    fn carried(&self, n: u64) -> Result<u64, CallError> {
        Ok(n)
    }
    fn many(&self, count: usize) -> Vec<u8> {
        vec![7; count]
    }
    fn panic(&self) {
        panic!("asked for");
    }
    fn wait(&self, n: u64) -> u64 {
        self.gate.pass();
        n
    }
}

fn pair() -> (Mailbox, Sender) {
    let mailbox = Mailbox::new();
    let sender = mailbox.sender(mailbox.add_capability().unwrap()).unwrap();
    (mailbox, sender)
}

/// A thread with a dispatcher, which ends when this is dropped.
struct Server {
    end: Sender,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(set_up: impl FnOnce(&mut Dispatcher, Context) + Send + 'static) -> Server {
        let (ends, end) = pair();
        let thread = thread::spawn(move || {
            let mut dispatcher = Dispatcher::new();
            let context = dispatcher.context();
            set_up(&mut dispatcher, context.clone());
            dispatcher.serve(ends, Class::FleetCall, move |_| {
                context.stop();
                std::future::ready(())
            });
            dispatcher.run();
        });
        Server { end, thread: Some(thread) }
    }

    /// Serves this object.
    fn of(mailbox: Mailbox, object: Handle<dyn Shop>) -> Server {
        Server::start(move |dispatcher, _| dispatcher.serve_object(mailbox, Class::External, object))
    }

    /// Tells the server to end after the present step.
    fn tell_end(&self) {
        // An event: a head without the address of a reply.
        let mut event = [0; 24];
        event[0] = 2;
        self.end.wait_to_send(&event).block().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended already.
        let mut event = [0; 24];
        event[0] = 2;
        let _ = self.end.send(&event);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn shop() -> (Owned<dyn Shop>, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    (shared(Here { sum: AtomicU64::new(0), gate: gate.clone() }), gate)
}

#[track_caller]
fn fails<T: std::fmt::Debug>(result: Result<T, CallError>, with: Transport) {
    assert_eq!(result.unwrap_err().reason(), CallErrorKind::Transport(with));
}

#[test]
fn every_kind_of_argument_and_result_passes() {
    let ((mailbox, sender), (object, _)) = (pair(), shop());
    let _server = Server::of(mailbox, object.handle());
    let stub = connect::<dyn Shop>(&sender).unwrap();
    stub.nothing();
    assert_eq!((stub.add(1), stub.add(2)), (1, 3));
    assert_eq!(stub.numbers(255, i128::MIN, 0.5), (255, i128::MIN, 0.5));
    assert_eq!(stub.text("a", "b".into(), Some("c")), "abSome(\"c\")");
    assert_eq!(stub.bytes(&[1, 2], vec![3], Box::new([4])), [1, 2, 3, 4]);
    assert_eq!(stub.path(Path::new("a")), Path::new("a/b"));
    let points = [Point { x: 1, y: -2 }, Point { x: 3, y: 4 }];
    assert_eq!(stub.points(&points[..1], &Some(Box::new(points[1].clone()))), points);
    assert_eq!(stub.cow("a".into(), ("b", 0)), "ab");
    assert_eq!(
        stub.map(BTreeMap::from([("p".into(), points[1].clone())])),
        BTreeMap::from([("p".into(), 7)])
    );
    assert_eq!((stub.halved(8), stub.halved(7)), (Ok(4), Err(Failure::Odd(7))));
    assert_eq!(stub.carried(9), Ok(9));
    // The largest messages of calls between processes.
    let large = vec![5; 8192];
    assert_eq!(stub.bytes(&large, Vec::new(), Box::new([])), large);
    assert_eq!(stub.many(8192).len(), 8192);
}

#[test]
fn each_failure_of_the_object_has_its_error_and_ends_one_call() {
    let ((mailbox, sender), (object, _)) = (pair(), shop());
    let _server = Server::of(mailbox, object.handle());
    let stub = connect::<dyn Shop>(&sender).unwrap();
    fails(stub.try_panic(), Transport::Panicked);
    fails(stub.try_many(9000), Transport::BadResult(MessageError::TooLarge));
    fails(
        stub.try_bytes(&[0; 9000], Vec::new(), Box::new([])),
        Transport::BadArguments(MessageError::TooLarge),
    );
    let error = stub.try_panic().unwrap_err();
    assert_eq!((error.interface(), error.method()), ("Shop", "panic"));
    assert_eq!(stub.add(1), 1);
    drop(object);
    fails(stub.try_add(1), Transport::Destroyed);
    assert!(matches!(stub.halved(2), Err(Failure::Lost(text)) if text.contains("destroyed")));
}

#[test]
fn arguments_that_the_mailbox_cannot_take_are_too_large() {
    let mailbox = Mailbox::builder().lane_bytes(1024).build();
    let sender = mailbox.sender(mailbox.add_capability().unwrap()).unwrap();
    let (object, _) = shop();
    let _server = Server::of(mailbox, object.handle());
    let stub = connect::<dyn Shop>(&sender).unwrap();
    fails(
        stub.try_bytes(&[0; 2000], Vec::new(), Box::new([])),
        Transport::BadArguments(MessageError::TooLarge),
    );
    assert_eq!(stub.add(1), 1);
}

#[test]
fn calls_of_a_server_that_ends_return() {
    let ((mailbox, sender), (object, gate)) = (pair(), shop());
    let server = Server::of(mailbox, object.handle());
    let stub = connect::<dyn Shop>(&sender).unwrap();
    thread::scope(|threads| {
        let running = threads.spawn(|| stub.try_wait(4));
        gate.until_waiting(1);
        // It comes before the request that waits in the mailbox, or is not sent.
        server.tell_end();
        let waiting = threads.spawn(|| stub.try_add(1));
        gate.open();
        assert_eq!(running.join().unwrap(), Ok(4));
        fails(waiting.join().unwrap(), Transport::Disconnected);
    });
    drop(server);
    fails(stub.try_add(1), Transport::Disconnected);
    assert_eq!(object.add(0), 0, "no such call ran");
    let error = connect::<dyn Shop>(&sender).unwrap_err();
    assert!(matches!(error, ConnectError::Failed(CallFailed::NotSent(_))), "{error}");
}

mod later {
    #[squall_macros::interface(crate = crate::facade, remote, version = 2)]
    pub(crate) trait Count: Send + Sync {
        fn count(&self) -> u64;
    }
}

#[interface(crate = crate::facade, remote)]
trait Count: Send + Sync {
    fn count(&self) -> u64;
}

struct Seven;

impl Count for Seven {
    fn count(&self) -> u64 {
        7
    }
}

#[test]
fn another_version_of_the_interface_is_an_error() {
    let (mailbox, sender) = pair();
    let object = shared::<dyn Count, _>(Seven);
    let handle = object.handle();
    let _server = Server::start(move |dispatcher, _| {
        dispatcher.serve_object(mailbox, Class::External, handle);
    });
    assert_eq!(connect::<dyn Count>(&sender).unwrap().count(), 7);
    let error = connect::<dyn later::Count>(&sender).unwrap_err();
    let ConnectError::OtherInterface { expected, found, .. } = &error else { panic!("{error}") };
    assert_eq!(*expected, "Count{count()->u64};version=2");
    assert_eq!(*found, "Count{count()->u64};version=1");
    let text = error.to_string();
    assert!(text.contains("has `version=1` and this program's has `version=2`"), "{text}");
    assert!(matches!(connect::<dyn Shop>(&sender), Err(ConnectError::OtherInterface { .. })));
    // A caller that did not ask, with the number of a method of another version.
    let reply = Caller::new().call(&sender, 0, &[]).unwrap().to_vec();
    assert!(reply.len() == 4 && reply != [0; 4], "{reply:?}");
}

#[test]
fn a_mailbox_without_an_object_is_an_error() {
    let ((refuses, to_refuses), (odd, to_odd)) = (pair(), pair());
    let _server = Server::start(move |dispatcher, _| {
        dispatcher.serve(refuses, Class::External, |request| async { request.refuse() });
        dispatcher.serve(odd, Class::External, |request| async move { request.reply(b"?") });
    });
    for sender in [to_refuses, to_odd] {
        let error = connect::<dyn Count>(&sender).unwrap_err();
        assert!(matches!(error, ConnectError::NoObject { .. }), "{error}");
    }
}

#[test]
fn a_removed_capability_denies_its_stub_and_no_other() {
    let (mailbox, other) = pair();
    let key = mailbox.add_capability().unwrap();
    let (sender, capabilities) = (mailbox.sender(key).unwrap(), mailbox.capabilities());
    let (object, _) = shop();
    let _server = Server::of(mailbox, object.handle());
    let [stub, other] = [&sender, &other].map(|sender| connect::<dyn Shop>(sender).unwrap());
    assert_eq!((stub.add(1), other.add(1)), (1, 2));
    capabilities.remove(key);
    fails(stub.try_add(1), Transport::Denied);
    assert_eq!(other.add(1), 3);
    let forged = squall_fleet::Capability::from_bytes([7; 16]);
    assert!(Sender::new(sender.mailbox(), forged).is_err());
}

#[test]
fn any_bytes_are_answered_and_reach_no_method() {
    let ((mailbox, sender), (object, _)) = (pair(), shop());
    let _server = Server::of(mailbox, object.handle());
    let stub = connect::<dyn Shop>(&sender).unwrap();
    let mut caller = Caller::new();
    for method in (0..20).chain([u64::from(u32::MAX), u64::MAX, u64::MAX - 1]) {
        for body in [&[][..], &[0xff; 40], &[0; 16_000]] {
            let reply = caller.call(&sender, method, body).unwrap();
            assert!(reply.len() >= 4 && reply[..4] != [0; 4], "{method}: {reply:?}");
        }
    }
    let half = <dyn Shop as Remote>::SCHEMA >> 32 << 32;
    for method in 0..20 {
        let reply = caller.call(&sender, half | method, &[0xff; 40]).unwrap();
        assert!(reply.len() == 4 && reply != [0; 4], "{method}: {reply:?}");
    }
    assert_eq!(stub.add(1), 1);
}

#[test]
fn many_threads_get_their_own_results() {
    let ((mailbox, sender), (object, _)) = (pair(), shop());
    let _server = Server::of(mailbox, object.handle());
    let stub = connect::<dyn Shop>(&sender).unwrap();
    thread::scope(|threads| {
        for thread in 0..8_u8 {
            let stub = stub.handle();
            threads.spawn(move || {
                for n in 0..300 {
                    assert_eq!(stub.numbers(thread, n, 0.0), (thread, n, 0.0));
                    stub.add(1);
                }
            });
        }
    });
    assert_eq!(object.add(0), 8 * 300);
}

#[test]
fn a_call_ends_at_its_deadline_and_its_late_reply_is_ignored() {
    let ((mailbox, sender), (object, gate)) = (pair(), shop());
    let _server = Server::of(mailbox, object.handle());
    let stub = connect::<dyn Shop>(&sender).unwrap();
    // Without any time, a call does not begin.
    fails(with_deadline(Duration::ZERO, || stub.try_add(1)), Transport::Busy);
    assert_eq!(stub.add(0), 0);
    loop {
        let late = with_deadline(Duration::from_millis(20), || stub.try_wait(1)).unwrap_err();
        match late.reason() {
            CallErrorKind::Transport(Transport::Deadline) => break,
            // This thread did not run for so long.
            CallErrorKind::Transport(Transport::Busy) => {}
            other => panic!("{other}"),
        }
    }
    gate.until_waiting(1);
    gate.open();
    for n in 2..20 {
        assert_eq!(with_deadline(Duration::from_secs(600), || stub.wait(n)), n);
    }
}

#[test]
fn a_call_that_would_block_a_dispatcher_is_an_error() {
    let ((mailbox, sender), (own, to_own), (asks, to_asks)) = (pair(), pair(), pair());
    let (object, _) = shop();
    let _server = Server::of(mailbox, object.handle());
    let stub = connect::<dyn Shop>(&sender).unwrap();
    // In a task, also of another dispatcher.
    let (handle, from) = (stub.handle(), sender.clone());
    let server = Server::start(move |dispatcher, _| {
        dispatcher.serve(asks, Class::External, move |request| {
            fails(handle.try_add(1), Transport::WouldBlock);
            assert!(matches!(connect::<dyn Shop>(&from), Err(ConnectError::WouldBlock { .. })));
            let handle = handle;
            async move {
                fails(handle.try_add(1), Transport::WouldBlock);
                request.reply(b"both");
            }
        });
    });
    assert_eq!(Caller::new().call(&to_asks, 1, b"").unwrap(), b"both");
    drop(server);
    // In the drop of idle work and of a task, outside of any step.
    struct Asks(Handle<dyn Shop>, mpsc::Sender<()>);
    impl Drop for Asks {
        fn drop(&mut self) {
            fails(self.0.try_add(1), Transport::WouldBlock);
            self.1.send(()).unwrap();
        }
    }
    let (told, asked) = mpsc::channel();
    let holding = |asks: Asks| async move {
        std::future::pending::<()>().await;
        drop(asks);
    };
    let mut dispatcher = Dispatcher::new();
    dispatcher.idle(holding(Asks(stub.handle(), told.clone())));
    dispatcher.idle(async {});
    assert!(asked.try_recv().is_ok());
    dispatcher.context().spawn(holding(Asks(stub.handle(), told)));
    drop(dispatcher);
    assert!(asked.try_recv().is_ok());
    // On the thread that serves the object, outside of its tasks.
    let mut dispatcher = Dispatcher::new();
    dispatcher.serve_object(own, Class::External, object.handle());
    let error = connect::<dyn Shop>(&to_own).unwrap_err();
    assert!(matches!(error, ConnectError::WouldBlock { .. }), "{error}");
    // Calls of other servers are free to wait there.
    assert_eq!(stub.add(1), 1);
}

#[interface(crate = crate::facade, remote)]
trait Ball: Send + Sync {
    /// Asks the other side, as often as `depth` says. Each side adds its letter.
    fn ask(&self, depth: u64) -> String;
}

/// A player that asks another one.
struct Player {
    letter: char,
    other: Sender,
    /// Made by the first method that asks.
    stub: Mutex<Option<Owned<dyn Ball>>>,
}

impl Ball for Player {
    fn ask(&self, depth: u64) -> String {
        if depth == 0 {
            return String::new();
        }
        let other = {
            let mut stub = self.stub.lock().unwrap();
            stub.get_or_insert_with(|| connect(&self.other).unwrap()).handle()
        };
        format!("{}{}", other.ask(depth - 1), self.letter)
    }
}

#[test]
fn a_method_calls_back_to_its_caller_to_any_depth() {
    let ((a, to_a), (b, to_b)) = (pair(), pair());
    let player = |letter, other: &Sender| {
        shared::<dyn Ball, _>(Player { letter, other: other.clone(), stub: Mutex::new(None) })
    };
    let (object_a, object_b) = (player('a', &to_b), player('b', &to_a));
    let servers = [(a, object_a.handle()), (b, object_b.handle())].map(|(mailbox, object)| {
        Server::start(move |dispatcher, _| {
            dispatcher.serve_object_on(mailbox, Class::External, object, |work| drop(thread::spawn(work)));
        })
    });
    let stub = connect::<dyn Ball>(&to_a).unwrap();
    assert_eq!(stub.ask(6), "bababa");
    assert_eq!(stub.ask(40).len(), 40);
    drop((stub, servers));
    // The stubs of the players end with them.
    drop((object_a, object_b));
}

#[test]
fn a_method_on_the_dispatchers_thread_calls_no_stub() {
    let ((a, to_a), (b, to_b)) = (pair(), pair());
    let object = shared::<dyn Ball, _>(Player { letter: 'a', other: to_b, stub: Mutex::new(None) });
    let handle = object.handle();
    let _a = Server::start(move |dispatcher, _| dispatcher.serve_object(a, Class::External, handle));
    let _b = Server::start(move |dispatcher, _| dispatcher.serve_object(b, Class::External, handle));
    let stub = connect::<dyn Ball>(&to_a).unwrap();
    assert_eq!(stub.ask(0), "");
    // The method panics, since it cannot connect. Its server does not.
    fails(stub.try_ask(1), Transport::Panicked);
    assert_eq!(stub.ask(0), "");
}

#[test]
fn methods_on_other_threads_run_at_the_same_time_and_dropped_ones_are_errors() {
    let ((mailbox, sender), (drops, to_drops)) = (pair(), pair());
    let (object, gate) = shop();
    let handle = object.handle();
    let _server = Server::start(move |dispatcher, _| {
        dispatcher.serve_object_on(mailbox, Class::External, handle, |work| drop(thread::spawn(work)));
        let connects = AtomicU64::new(0);
        dispatcher.serve_object_on(drops, Class::External, handle, move |work| {
            // The first request asks for the interface.
            if connects.fetch_add(1, SeqCst) == 0 { work() } else { drop(work) }
        });
    });
    let stub = connect::<dyn Shop>(&sender).unwrap();
    thread::scope(|threads| {
        let handle = stub.handle();
        let waiting: Vec<_> = (0..4).map(|n| (n, threads.spawn(move || handle.wait(n)))).collect();
        gate.until_waiting(4);
        fails(stub.try_panic(), Transport::Panicked);
        gate.open();
        waiting.into_iter().for_each(|(n, call)| assert_eq!(call.join().unwrap(), n));
    });
    let dropped = connect::<dyn Shop>(&to_drops).unwrap();
    fails(dropped.try_add(1), Transport::PeerGone);
}

#[test]
fn a_server_that_ends_tells_the_callers_of_methods_that_still_run() {
    let ((mailbox, sender), (object, gate)) = (pair(), shop());
    let handle = object.handle();
    let server = Server::start(move |dispatcher, _| {
        dispatcher.serve_object_on(mailbox, Class::External, handle, |work| drop(thread::spawn(work)));
    });
    let stub = connect::<dyn Shop>(&sender).unwrap();
    thread::scope(|threads| {
        let running = threads.spawn(|| stub.try_wait(4));
        gate.until_waiting(1);
        drop(server);
        fails(running.join().unwrap(), Transport::PeerGone);
        gate.open();
    });
    fails(stub.try_add(1), Transport::Disconnected);
}

#[test]
fn fo_21_an_interface_has_a_default_server_and_a_caller_may_choose_another_one() {
    #[interface(crate = crate::facade, remote)]
    trait Numbered: Send + Sync {
        fn number(&self) -> u64;
    }
    struct Server(u64);
    impl Numbered for Server {
        fn number(&self) -> u64 {
            self.0
        }
    }
    let error = connect_default::<dyn Numbered>().unwrap_err();
    assert!(matches!(error, ConnectError::NoDefault { .. }), "{error}");
    assert!(error.to_string().contains("Numbered"), "{error}");
    let servers: Vec<_> = (1..=2)
        .map(|number| {
            let (mailbox, sender) = pair();
            let object = shared::<dyn Numbered, _>(Server(number));
            let (handle, (sends, control)) = (object.handle(), mpsc::channel());
            let thread = thread::spawn(move || {
                let mut dispatcher = Dispatcher::new();
                dispatcher.serve_object(mailbox, Class::External, handle);
                sends.send(dispatcher.context().control()).unwrap();
                dispatcher.run();
            });
            let control: squall_fleet::Control = control.recv().unwrap();
            (sender, thread, control, object)
        })
        .collect();
    let (first, second) = (&servers[0].0, &servers[1].0);
    assert!(set_default::<dyn Numbered>(first).is_none());
    // Another interface has no part in it.
    assert!(matches!(connect_default::<dyn Shop>(), Err(ConnectError::NoDefault { .. })));
    let default = connect_default::<dyn Numbered>().unwrap();
    let chosen = connect::<dyn Numbered>(second).unwrap();
    assert_eq!((default.number(), chosen.number()), (1, 2));
    let former = set_default::<dyn Numbered>(second).unwrap();
    assert!(matches!(former, ServerAddress::Mailbox(sender) if sender.mailbox() == first.mailbox()));
    // A stub keeps its server.
    assert_eq!((default.number(), connect_default::<dyn Numbered>().unwrap().number()), (1, 2));
    assert!(remove_default::<dyn Numbered>().is_some() && remove_default::<dyn Numbered>().is_none());
    for (_, thread, control, _object) in servers {
        control.stop();
        thread.join().unwrap();
    }
}
