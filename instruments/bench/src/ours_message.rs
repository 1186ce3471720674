//! Squall's mailbox as a channel of words, and servers behind it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use squall::Owned;
use squall::fleet::{
    Caller, Class, Dispatcher, LinkListener, LinkPort, Mailbox, Sender, connect, connect_link,
};

use crate::work::message::{Channel, Receiving, Sending};
use crate::work::rpc::{Client, Server};

/// A mailbox with the default sizes. Its senders share one capability.
pub(crate) struct Words;

impl Channel for Words {
    type Sender = Sender;
    type Receiver = Mailbox;

    fn new(_: usize) -> (Sender, Mailbox) {
        let mailbox = Mailbox::new();
        let capability = mailbox.add_capability().expect("a new mailbox has no capabilities");
        (mailbox.sender(capability).expect("the capability is new"), mailbox)
    }
}

impl Sending for Sender {
    #[inline(always)]
    fn send(&self, word: u64) {
        let word = word.to_le_bytes();
        if Sender::send(self, &word).is_err() {
            self.wait_to_send(&word).block().expect("the mailbox has gone");
        }
    }
}

impl Receiving for Mailbox {
    #[inline(always)]
    fn receive(&mut self) -> u64 {
        loop {
            if let Some(message) = Mailbox::receive(self) {
                return word_of(&message);
            }
            self.wait().block();
        }
    }
}

/// A server with a dispatcher, called by a blocking caller.
pub(crate) struct Dispatched(Sender);

/// The method that ends a server. All others add one.
const STOP: u64 = 0;

impl Server for Dispatched {
    type Client = (Caller, Sender);

    fn start() -> (Dispatched, JoinHandle<()>) {
        let (sender, mailbox) = Words::new(0);
        let thread = thread::spawn(move || {
            let mut dispatcher = Dispatcher::new();
            let context = dispatcher.context();
            dispatcher.serve(mailbox, Class::External, move |request| {
                let context = context.clone();
                async move {
                    let word = word_of(request.body());
                    if request.method() == STOP {
                        context.stop();
                    }
                    request.reply(&(word + 1).to_le_bytes());
                }
            });
            dispatcher.run();
        });
        (Dispatched(sender), thread)
    }

    fn client(&self) -> (Caller, Sender) {
        (Caller::new(), self.0.clone())
    }

    fn stop(&self) {
        Caller::new().call(&self.0, STOP, &[0; 8]).expect("the server runs");
    }
}

impl Client for (Caller, Sender) {
    fn call(&mut self, word: u64) -> u64 {
        let (caller, to) = self;
        word_of(caller.call(to, 1, &word.to_le_bytes()).expect("the server runs"))
    }
}

/// An interface with one method, of a word each way.
#[squall::interface(remote)]
pub(crate) trait Next: Send + Sync {
    fn next(&self, word: u64) -> u64;
}

struct Plain;

impl Next for Plain {
    fn next(&self, word: u64) -> u64 {
        word + 1
    }
}

/// An object that a dispatcher serves, called through a stub.
pub(crate) struct Stubbed {
    object: Sender,
    /// Ends the server at its first request.
    end: Sender,
}

impl Server for Stubbed {
    type Client = Owned<dyn Next>;

    fn start() -> (Stubbed, JoinHandle<()>) {
        let ((object, mailbox), (end, ends)) = (Words::new(0), Words::new(0));
        let thread = thread::spawn(move || {
            let served = squall::shared::<dyn Next, _>(Plain);
            let mut dispatcher = Dispatcher::new();
            dispatcher.serve_object(mailbox, Class::External, served.handle());
            run_until_asked(dispatcher, ends);
        });
        (Stubbed { object, end }, thread)
    }

    fn client(&self) -> Owned<dyn Next> {
        connect(&self.object).expect("the server runs")
    }

    fn stop(&self) {
        ask_to_end(&self.end);
    }
}

/// An object that a dispatcher serves at a listener of links, called through a stub.
pub(crate) struct Linked {
    /// The name of the listener.
    name: String,
    /// Ends the server at its first request.
    end: Sender,
}

impl Server for Linked {
    type Client = Owned<dyn Next>;

    fn start() -> (Linked, JoinHandle<()>) {
        static LISTENERS: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the number publishes no other data.
        let number = LISTENERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("squall-bench-rpc-{}-{number}", std::process::id());
        let listener = LinkListener::bind(&name).expect("no other listener has this name");
        let (end, ends) = Words::new(0);
        let thread = thread::spawn(move || {
            let served = squall::shared::<dyn Next, _>(Plain);
            let mut dispatcher = Dispatcher::new();
            let port = LinkPort::listen(listener).expect("the system has a thread left");
            dispatcher.serve_object(port, Class::External, served.handle());
            run_until_asked(dispatcher, ends);
        });
        (Linked { name, end }, thread)
    }

    fn client(&self) -> Owned<dyn Next> {
        connect_link(&self.name).expect("the server runs")
    }

    fn stop(&self) {
        ask_to_end(&self.end);
    }
}

/// Runs a dispatcher until a request comes to this mailbox.
fn run_until_asked(mut dispatcher: Dispatcher, ends: Mailbox) {
    let context = dispatcher.context();
    dispatcher.serve(ends, Class::FleetCall, move |request| {
        request.reply(&[]);
        context.stop();
        std::future::ready(())
    });
    dispatcher.run();
}

fn ask_to_end(end: &Sender) {
    Caller::new().call(end, STOP, &[]).expect("the server runs");
}

impl Client for Owned<dyn Next> {
    fn call(&mut self, word: u64) -> u64 {
        self.next(word)
    }
}

fn word_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a message is one word"))
}
