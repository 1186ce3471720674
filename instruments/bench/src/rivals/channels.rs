//! Bounded channels, as rivals of the mailbox. Their ends block while there is no room, or no word.

use std::sync::mpsc;

use crossbeam_channel as crossbeam;
use tokio::sync::mpsc as tokio;

use crate::work::message::{Channel, Receiving, Sending};

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
