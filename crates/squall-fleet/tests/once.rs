//! Calls that are sent again, and run once.
#![cfg(not(loom))]

use squall_core::{CallErrorKind, Handle, Transport, shared};
use squall_fleet::{Caller, Class, Context, Dispatcher, Fate, Inlet, Mailbox, Sender, StubOptions};
use squall_macros::interface;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The hidden modules of the façade.
mod facade {
    pub(crate) use squall_core::__macro;
    pub(crate) mod call {
        pub(crate) use squall_call::__macro;
    }
}

#[interface(crate = crate::facade, remote)]
trait Tickets: Send + Sync {
    fn take(&self, n: u64) -> u64;
}

#[derive(Default)]
struct Numbered(AtomicU64);

impl Tickets for Numbered {
    fn take(&self, n: u64) -> u64 {
        self.0.fetch_add(n, SeqCst) + n
    }
}

/// A limit that no test reaches.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);
/// The method that ends the server, once its begun requests are done.
const DRAIN: u64 = 0;

fn pair() -> (Mailbox, Sender) {
    let mailbox = Mailbox::new();
    let sender = mailbox.sender(mailbox.add_capability().unwrap()).unwrap();
    (mailbox, sender)
}

/// Serves an inlet on a thread of its own: counts the runs, and returns the number of the run and the body.
fn serve(inlet: impl FnOnce() -> Inlet + Send + 'static) -> (JoinHandle<()>, Arc<AtomicU64>) {
    let runs = Arc::new(AtomicU64::new(0));
    let count = runs.clone();
    let server = thread::spawn(move || {
        let mut dispatcher = Dispatcher::new();
        let context: Context = dispatcher.context();
        dispatcher.serve(inlet(), Class::External, move |request| {
            if request.method() == DRAIN {
                context.drain();
            }
            let run = count.fetch_add(1, SeqCst) + 1;
            let context = context.clone();
            async move {
                // Copies come while the call runs.
                context.yield_now().await;
                let reply = [&run.to_le_bytes(), request.body()].concat();
                request.reply(&reply);
            }
        });
        dispatcher.run();
    });
    (server, runs)
}

/// A mailbox in front of another one. `pass` gets each message with its number, and may send any to the
/// other.
fn between(
    to: Sender,
    mut pass: impl FnMut(u64, &[u8], &Sender) + Send + 'static,
) -> (Sender, JoinHandle<()>) {
    let (mut front, sender) = pair();
    let passes = thread::spawn(move || {
        for number in 0.. {
            front.wait().block();
            let message = front.receive().unwrap().to_vec();
            if message.is_empty() {
                return;
            }
            pass(number, &message, &to);
        }
    });
    (sender, passes)
}

fn send(to: &Sender, message: &[u8]) {
    to.wait_to_send(message).block().unwrap();
}

/// Returns a copy of a request with the address of a mailbox that does not exist.
fn with_lost_reply(message: &[u8]) -> Vec<u8> {
    let mut lost = message.to_vec();
    lost[24..40].fill(7);
    lost
}

#[test]
fn copies_run_once_and_each_call_gets_its_result() {
    const CALLS: u64 = 300;
    let (mailbox, sender) = pair();
    let (server, runs) = serve(move || mailbox.into());
    let (front, passes) = between(sender.clone(), |_, message, to| {
        (0..3).for_each(|_| send(to, message));
    });
    let mut caller = Caller::new();
    for n in 1..=CALLS {
        let body = n.to_le_bytes();
        let result = caller.call_once(&front, 1, &body, NEVER).unwrap();
        assert_eq!(result, [body, body].concat(), "the number of the run, and the body");
    }
    assert_eq!(runs.load(SeqCst), CALLS);
    send(&front, b"");
    passes.join().unwrap();
    caller.call_once(&sender, DRAIN, b"", NEVER).unwrap();
    server.join().unwrap();
}

#[test]
fn a_call_whose_request_or_reply_is_lost_is_sent_again_and_runs_once() {
    let (mailbox, sender) = pair();
    let (server, runs) = serve(move || mailbox.into());
    // Message 0 opens the session. Of the first call, the first copy is lost. Of the second one, the replies
    // to two copies are lost.
    let (front, passes) = between(sender.clone(), |number, message, to| match number {
        1 => {}
        3 | 4 => send(to, &with_lost_reply(message)),
        _ => send(to, message),
    });
    let mut caller = Caller::new();
    assert_eq!(caller.call_once(&front, 1, b"", NEVER).unwrap(), 1_u64.to_le_bytes());
    assert_eq!(caller.call_once(&front, 1, b"", NEVER).unwrap(), 2_u64.to_le_bytes());
    assert_eq!(runs.load(SeqCst), 2);
    send(&front, b"");
    passes.join().unwrap();
    caller.call_once(&sender, DRAIN, b"", NEVER).unwrap();
    server.join().unwrap();
}

#[test]
fn each_fate_says_whether_the_call_may_have_run() {
    let mut caller = Caller::new();
    let (mailbox, gone) = pair();
    drop(mailbox);
    assert_eq!(caller.call_once(&gone, 1, b"", NEVER), Err(Fate::NoService));
    // A server that takes no message.
    let (silent, to_silent) = pair();
    let limit = Duration::from_millis(1);
    assert_eq!(caller.call_once(&to_silent, 1, b"", limit), Err(Fate::NotAccepted));
    drop(silent);
    // The session was opened, and the call ran. Its reply is lost, and the server ends.
    let (mailbox, sender) = pair();
    let (server, runs) = serve(move || mailbox.into());
    let (front, passes) = between(sender.clone(), |number, message, to| match number {
        0 => send(to, message),
        _ => {
            send(to, &with_lost_reply(message));
            Caller::new().call_once(to, DRAIN, b"", NEVER).unwrap();
            while to.send(b"").is_ok() {
                thread::yield_now();
            }
            // The mailbox in front ends too.
            panic!("the server has ended, which the caller learns from its next copy");
        }
    });
    let fate = caller.call_once(&front, 1, b"", NEVER).unwrap_err();
    assert_eq!(fate, Fate::ServerLost);
    assert!(fate.may_have_run());
    assert!(passes.join().is_err());
    server.join().unwrap();
    assert_eq!(runs.load(SeqCst), 2);
}

#[test]
fn another_dispatcher_runs_no_copy_of_a_call_of_the_one_before() {
    let ((first, to_first), (second, to_second)) = (pair(), pair());
    let (first_server, first_runs) = serve(move || first.into());
    let (second_server, second_runs) = serve(move || second.into());
    let later = to_second.clone();
    // The second server takes the mailbox over after the first one has run the call.
    let (front, passes) = between(to_first.clone(), move |number, message, to| match number {
        0 => send(to, message),
        1 => send(to, &with_lost_reply(message)),
        _ => send(&later, message),
    });
    let mut caller = Caller::new();
    assert_eq!(caller.call_once(&front, 1, b"", NEVER), Err(Fate::ServerLost));
    assert_eq!((first_runs.load(SeqCst), second_runs.load(SeqCst)), (1, 0));
    // The next call opens a session with the second one.
    assert_eq!(caller.call_once(&front, 1, b"", NEVER).unwrap(), 1_u64.to_le_bytes());
    // A first copy that meets an unknown session has not run, so it is sent again in a new one.
    send(&front, b"");
    passes.join().unwrap();
    for to in [&to_first, &to_second] {
        caller.call_once(to, DRAIN, b"", NEVER).unwrap();
    }
    first_server.join().unwrap();
    second_server.join().unwrap();
}

#[test]
fn a_drained_server_tells_a_call_that_ran_from_one_that_did_not() {
    let (mailbox, sender) = pair();
    let (server, runs) = serve(move || mailbox.into());
    let mut caller = Caller::new();
    caller.call_once(&sender, 1, b"", NEVER).unwrap();
    let mut other = Caller::new();
    other.call_once(&sender, DRAIN, b"", NEVER).unwrap();
    server.join().unwrap();
    assert_eq!(runs.load(SeqCst), 2);
    assert_eq!(caller.call_once(&sender, 1, b"", NEVER), Err(Fate::NoService));
}

#[test]
fn a_method_that_panics_does_not_run_again() {
    let (mailbox, sender) = pair();
    let runs = Arc::new(AtomicU64::new(0));
    let count = runs.clone();
    let server = thread::spawn(move || {
        let mut dispatcher = Dispatcher::new();
        let context = dispatcher.context();
        dispatcher.serve(mailbox, Class::External, move |request| {
            if request.method() == DRAIN {
                context.drain();
            }
            count.fetch_add(1, SeqCst);
            async move {
                assert!(request.method() == DRAIN, "asked for");
                request.reply(b"");
            }
        });
        dispatcher.run();
    });
    let (front, passes) = between(sender.clone(), |_, message, to| {
        (0..2).for_each(|_| send(to, message));
    });
    let mut caller = Caller::new();
    assert_eq!(caller.call_once(&front, 1, b"", NEVER), Err(Fate::Dropped));
    assert_eq!(runs.load(SeqCst), 1);
    send(&front, b"");
    passes.join().unwrap();
    caller.call_once(&sender, DRAIN, b"", NEVER).unwrap();
    server.join().unwrap();
}

/// Serves an object on a thread of its own, until the sender is dropped and a stop is asked for.
fn serve_object(
    inlet: impl FnOnce() -> Inlet + Send + 'static,
    object: Handle<dyn Tickets>,
) -> (JoinHandle<()>, squall_fleet::Control) {
    let (sends, control) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut dispatcher = Dispatcher::new();
        dispatcher.serve_object(inlet(), Class::External, object);
        sends.send(dispatcher.context().control()).unwrap();
        dispatcher.run();
    });
    (server, control.recv().unwrap())
}

#[test]
fn a_stub_sends_a_call_again_whose_reply_is_lost() {
    let tickets = shared::<dyn Tickets, _>(Numbered::default());
    let (mailbox, sender) = pair();
    let (server, control) = serve_object(move || mailbox.into(), tickets.handle());
    // Message 0 asks for the interface, and message 1 for the session.
    let (front, passes) = between(sender, |number, message, to| match number {
        2 => send(to, &with_lost_reply(message)),
        _ => send(to, message),
    });
    let options = StubOptions::new().retry_after(Duration::from_millis(1));
    let stub = options.connect::<dyn Tickets>(&front).unwrap();
    assert_eq!((stub.take(5), stub.take(1)), (5, 6));
    control.stop();
    server.join().unwrap();
    let gone = stub.try_take(1).unwrap_err();
    assert!(matches!(gone.reason(), CallErrorKind::Transport(Transport::Disconnected | Transport::PeerGone)));
    assert_eq!(tickets.take(0), 6);
    let _ = front.send(b"");
    drop(passes);
}

#[test]
fn a_stub_that_sends_calls_again_tells_why_no_server_takes_one() {
    // The lower half of the method that tells the interface.
    const DESCRIBE: u32 = u32::MAX;
    let mailbox = Mailbox::new();
    let (keys, key) = (mailbox.capabilities(), mailbox.add_capability().unwrap());
    let sender = mailbox.sender(key).unwrap();
    let (sends, control) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut dispatcher = Dispatcher::new();
        // A server of the interface that has none of its methods.
        dispatcher.serve(mailbox, Class::External, |request| async move {
            match request.method() as u32 {
                DESCRIBE => {
                    let schema = request.body().to_vec();
                    request.reply(&schema);
                }
                _ => request.refuse(),
            }
        });
        sends.send(dispatcher.context().control()).unwrap();
        dispatcher.run();
    });
    let stub = StubOptions::new().retry_after(NEVER).connect::<dyn Tickets>(&sender).unwrap();
    let failed = || stub.try_take(1).unwrap_err().reason();
    assert_eq!(failed(), CallErrorKind::Transport(Transport::Unsupported));
    assert!(keys.remove(key));
    assert_eq!(failed(), CallErrorKind::Transport(Transport::Denied));
    control.recv().unwrap().stop();
    server.join().unwrap();
    assert_eq!(failed(), CallErrorKind::Transport(Transport::Disconnected));
}

#[cfg(all(target_os = "linux", not(miri)))]
mod links {
    use super::*;
    use squall_fleet::{Link, LinkListener, LinkPort};
    use std::sync::atomic::AtomicBool;

    fn name(of: &str) -> String {
        format!("test-once-{of}-{}", std::process::id())
    }

    /// The kind of a request of a link with a key.
    const KEYED: u8 = 13;

    /// Accepts links by the name `front`, until the flag is set, and passes their messages to the first
    /// server and back. The first `lost` copies of calls run, and then their links end in place of the reply.
    /// From then on, links to the first server end with their next call, and new ones lead to the second one.
    fn between(front: &str, lost: u64, backs: [&str; 2], ends: &Arc<AtomicBool>) -> JoinHandle<()> {
        let listener = LinkListener::bind(front).unwrap();
        let (backs, ends, calls) = (backs.map(str::to_owned), ends.clone(), Arc::new(AtomicU64::new(0)));
        thread::spawn(move || {
            let mut threads = Vec::new();
            while !ends.load(SeqCst) {
                let Some(request) = listener.accept_for(Duration::from_millis(10)).unwrap() else { continue };
                let link = request.link().unwrap();
                let is_first = calls.load(SeqCst) < lost;
                let back = backs[usize::from(!is_first)].clone();
                let calls = calls.clone();
                threads.push(thread::spawn(move || pass(link, &back, is_first, lost, &calls)));
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        })
    }

    fn pass(client: Link, back: &str, is_first: bool, lost: u64, calls: &AtomicU64) {
        let (to_client, mut from_client) = client.split();
        let (to_server, mut from_server) = Link::connect(back).unwrap().split();
        while from_client.wait().block().is_ok() {
            let message = from_client.receive().unwrap().unwrap();
            // A stub keeps further links, of calls on other processors.
            if is_first && calls.load(SeqCst) >= lost {
                return;
            }
            // The session of the call, which is 0 for the call that opens one.
            let is_call = message[0] == KEYED && message[24..32] != [0; 8];
            to_server.send(message).unwrap();
            from_server.wait().block().unwrap();
            if is_call && calls.fetch_add(1, SeqCst) < lost {
                return;
            }
            to_client.send(from_server.receive().unwrap().unwrap()).unwrap();
        }
    }

    fn port(name: &str) -> impl FnOnce() -> Inlet + Send + 'static {
        let listener = LinkListener::bind(name).unwrap();
        move || LinkPort::listen(listener).unwrap().into()
    }

    #[test]
    fn a_call_whose_link_ends_is_sent_again_over_a_new_one_and_runs_once() {
        let (front, back) = (name("front"), name("back"));
        let tickets = shared::<dyn Tickets, _>(Numbered::default());
        let (server, control) = serve_object(port(&back), tickets.handle());
        let ends = Arc::new(AtomicBool::new(false));
        let passes = between(&front, 2, [&back, &back], &ends);
        let options = StubOptions::new().retry_after(NEVER);
        let stub = options.connect_link::<dyn Tickets>(&front).unwrap();
        assert_eq!((stub.take(5), stub.take(1)), (5, 6));
        assert_eq!(tickets.take(0), 6);
        drop(stub);
        ends.store(true, SeqCst);
        passes.join().unwrap();
        control.stop();
        server.join().unwrap();
    }

    #[test]
    fn a_server_that_ends_with_a_call_is_told_as_lost() {
        let (front, first, second) = (name("lost-front"), name("lost-first"), name("lost-second"));
        let objects = [(); 2].map(|()| shared::<dyn Tickets, _>(Numbered::default()));
        let servers = [(&first, &objects[0]), (&second, &objects[1])]
            .map(|(name, object)| serve_object(port(name), object.handle()));
        let ends = Arc::new(AtomicBool::new(false));
        let passes = between(&front, 1, [&first, &second], &ends);
        let options = StubOptions::new().retry_after(NEVER);
        let stub = options.connect_link::<dyn Tickets>(&front).unwrap();
        let lost = stub.try_take(5).unwrap_err();
        assert_eq!(lost.reason(), CallErrorKind::Transport(Transport::PeerGone), "{lost}");
        // The next call goes to the server that is there now.
        assert_eq!(stub.take(1), 1);
        assert_eq!(objects.each_ref().map(|object| object.take(0)), [5, 1]);
        drop(stub);
        ends.store(true, SeqCst);
        passes.join().unwrap();
        for (server, control) in servers {
            control.stop();
            server.join().unwrap();
        }
    }
}
