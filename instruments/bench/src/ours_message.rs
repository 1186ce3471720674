//! Squall's mailbox as a channel of words.

use squall::fleet::{Mailbox, Sender};

use crate::work::message::{Channel, Receiving, Sending};

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
                return u64::from_le_bytes(message[..].try_into().expect("a message is one word"));
            }
            self.wait().block();
        }
    }
}
