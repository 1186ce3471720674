//! Bounded channels, as rivals of the mailbox. Their ends block while there is no room, or no word.

use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};

use crossbeam_channel as crossbeam;
use tokio::sync::mpsc as tokio;

use crate::work::message::{Channel, Receiving, Sending};
use crate::work::rpc::{Client, Server};

macro_rules! channel {
    ($name:ident, |$room:ident| $make:expr, $sender:ty: |$from:ident, $word:ident| $send:expr,
     $receiver:ty: |$to:ident| $receive:expr) => {
        pub(crate) struct $name;

        impl Channel for $name {
            type Sender = $sender;
            type Receiver = $receiver;

            fn new($room: usize) -> ($sender, $receiver) {
                $make
            }
        }

        impl Sending for $sender {
            #[inline(always)]
            fn send(&self, $word: u64) {
                let $from = self;
                $send.expect("the receiver has gone");
            }
        }

        impl Receiving for $receiver {
            #[inline(always)]
            fn receive(&mut self) -> u64 {
                let $to = self;
                $receive.expect("the senders have gone")
            }
        }
    };
}

channel!(Crossbeam, |room| crossbeam::bounded(room),
    crossbeam::Sender<u64>: |sender, word| crossbeam::Sender::send(sender, word),
    crossbeam::Receiver<u64>: |receiver| receiver.recv());
channel!(Flume, |room| flume::bounded(room),
    flume::Sender<u64>: |sender, word| flume::Sender::send(sender, word),
    flume::Receiver<u64>: |receiver| receiver.recv());
channel!(Std, |room| mpsc::sync_channel(room),
    mpsc::SyncSender<u64>: |sender, word| mpsc::SyncSender::send(sender, word),
    mpsc::Receiver<u64>: |receiver| receiver.recv());
// The blocking forms enter a runtime, so they are for the case that there is no room, or no word.
channel!(Tokio, |room| tokio::channel(room),
    tokio::Sender<u64>: |sender, word| match sender.try_send(word) {
        Err(tokio::error::TrySendError::Full(word)) => sender.blocking_send(word).ok(),
        other => other.ok(),
    },
    tokio::Receiver<u64>: |receiver| receiver.try_recv().ok().or_else(|| receiver.blocking_recv()));

/// A server behind a pair of channels: one for requests, and one for the replies to its one client.
pub(crate) struct Pair<C: Channel> {
    requests: Mutex<C::Sender>,
    /// Lent to the client.
    replies: Arc<Mutex<Option<C::Receiver>>>,
}

/// The client's ends.
pub(crate) struct Ends<C: Channel> {
    requests: C::Sender,
    replies: Option<C::Receiver>,
    lender: Arc<Mutex<Option<C::Receiver>>>,
}

impl<C: Channel> Server for Pair<C> {
    type Client = Ends<C>;

    fn start() -> (Pair<C>, JoinHandle<()>) {
        let (requests, mut received) = C::new(64);
        let (answers, replies) = C::new(64);
        let thread = thread::spawn(move || {
            loop {
                let word = received.receive();
                if word == u64::MAX {
                    return;
                }
                answers.send(word + 1);
            }
        });
        (Pair { requests: Mutex::new(requests), replies: Arc::new(Mutex::new(Some(replies))) }, thread)
    }

    fn client(&self) -> Ends<C> {
        let replies = self.replies.lock().expect("a thread panicked under the lock").take();
        assert!(replies.is_some(), "a pair has one client at a time");
        let requests = self.requests.lock().expect("a thread panicked under the lock").clone();
        Ends { requests, replies, lender: self.replies.clone() }
    }

    fn stop(&self) {
        self.requests.lock().expect("a thread panicked under the lock").send(u64::MAX);
    }
}

impl<C: Channel> Client for Ends<C> {
    #[inline(always)]
    fn call(&mut self, word: u64) -> u64 {
        self.requests.send(word);
        self.replies.as_mut().expect("lent until the drop").receive()
    }
}

impl<C: Channel> Drop for Ends<C> {
    fn drop(&mut self) {
        *self.lender.lock().expect("a thread panicked under the lock") = self.replies.take();
    }
}
