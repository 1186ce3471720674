//! The subjects of `message`: threads send words to one thread that receives them.
//!
//! - I1. The sum of the words that were sent equals the sum of those that were received.
//! - I2. A slice of `ops` operations moves `ops` words. The receiver has taken all of them at its end.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::case::{Make, Missing, Setting, Subject, Worker};

/// Room for the words of one sender.
pub(crate) const ROOM: usize = 1024;

/// A bounded way from many threads to one.
pub(crate) trait Channel: Send + Sync + 'static {
    type Sender: Sending;
    type Receiver: Receiving;

    /// Makes a channel with room for `room` words.
    fn new(room: usize) -> (Self::Sender, Self::Receiver);
}

/// One sender's end. A clone is the end of another sender.
pub(crate) trait Sending: Clone + Send + 'static {
    /// Sends a word. Waits while there is no room.
    fn send(&self, word: u64);
}

/// The receiver's end.
pub(crate) trait Receiving: Send + 'static {
    /// Receives a word. Waits for it if need be.
    fn receive(&mut self) -> u64;
}

/// A channel of which the first thread receives.
struct ToOne<C: Channel> {
    sender: Mutex<C::Sender>,
    receiver: Mutex<C::Receiver>,
    senders: u64,
    sent: CachePadded<AtomicU64>,
    received: CachePadded<AtomicU64>,
}

/// Makes the subject in which the first thread receives and the others send.
pub(crate) const fn to_one<C: Channel>() -> Make {
    fn make<C: Channel>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        let senders = setting.threads - 1;
        let (sender, receiver) = C::new(senders.max(1) * ROOM);
        Ok(Box::new(ToOne::<C> {
            sender: Mutex::new(sender),
            receiver: Mutex::new(receiver),
            senders: senders as u64,
            sent: CachePadded::default(),
            received: CachePadded::default(),
        }))
    }
    make::<C>
}

impl<C: Channel> Subject for ToOne<C> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        if thread == 0 {
            let mut receiver = self.receiver.lock().expect("a thread panicked under the lock");
            if self.senders == 0 {
                // A thread alone does both by turns.
                let sender = self.sender.lock().expect("a thread panicked under the lock").clone();
                return Box::new(move |ops| {
                    for word in 0..ops {
                        sender.send(black_box(word));
                        self.sent.fetch_add(word, Ordering::Relaxed);
                        self.received.fetch_add(receiver.receive(), Ordering::Relaxed);
                    }
                });
            }
            return Box::new(move |ops| {
                let sum = (0..ops).fold(0, |sum: u64, _| sum.wrapping_add(receiver.receive()));
                self.received.fetch_add(sum, Ordering::Relaxed);
            });
        }
        let sender = self.sender.lock().expect("a thread panicked under the lock").clone();
        let number = thread as u64 - 1;
        Box::new(move |ops| {
            // The first senders send the remainder.
            let share = ops / self.senders + u64::from(number < ops % self.senders);
            let mut sum = 0_u64;
            for word in 0..share {
                let word = black_box(word);
                sender.send(word);
                sum = sum.wrapping_add(word);
            }
            self.sent.fetch_add(sum, Ordering::Relaxed);
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        let (sent, received) = (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed));
        if sent == received {
            Ok(())
        } else {
            Err(format!("words of sum {sent} were sent, and {received} received"))
        }
    }
}
