//! A lane: a bounded ring of messages, from the senders of one cluster that hold one capability, to the
//! receiver of a mailbox.
//!
//! Problem: senders must not wait for each other, and each send and each receive may move as few cache lines
//! as possible. The receiver must learn of a message without a fence or a shared write in each send. A
//! capability can end at any moment.
//!
//! Idea: a message is a header and its bytes, in words one behind the other. A sender claims room by one
//! compare-exchange of the tail, copies the bytes, and stores the header last. The receiver clears the words
//! that it has read, so that a word of 0 means "not yet written". Everything that must change together with
//! the claim is a bit of the tail.
//!
//! | bit of the tail | meaning |
//! |---|---|
//! | `QUIET` | The receiver does not look into the lane. The sender that clears the bit rings its bell. |
//! | `CLOSED` | No message is claimed any more: the capability or the mailbox has ended. |
//!
//! - I1. Positions count words and only grow. The receiver has read all words before the head. Senders have
//!   claimed those from the head to the tail, at most as many as the ring has.
//! - I2. A word between head and tail is written by the sender that claimed it, once. It writes the header
//!   last, so the receiver that reads a header sees the whole message.
//! - I3. A word from the tail to one ring behind the head is 0. The receiver clears the words of a message
//!   before it moves the head past them.
//! - I4. While a lane is not quiet, the receiver looks into it. The receiver makes a lane quiet only if it is
//!   empty, in the same step. So the next claim clears the bit, and its sender rings. Later senders need not:
//!   the receiver cannot take their messages before the first one.
//! - I5. A sender that waits for room sets the bit `WANTED` of the head, while the lane is full. The receiver
//!   frees room by an exchange of the head, so it finds the bit, and wakes all that wait.
//! - I6. The thread that closes the lane sets `CLOSED`, and then wakes all that wait under their lock. A wait
//!   looks at the bit under that lock before it begins. So no wait outlives the lane.
//!
//! Order: messages are received in the order of the claims.
//! Progress: send and receive are lock-free in a lane that is not quiet and has no waits for room. A sender
//! that was stopped between claim and header holds up the later messages of its lane, no other lane, and no
//! sender before the lane is full. Waits for room are not fair: a large message may wait while small ones of
//! other threads go on.
//! Linearization: a send at its claim, a receive at its read of the header.
//! Cost: a send makes one compare-exchange, and one store per 8 bytes. Sender and receiver move the lines of
//! the message. A sender reads the head's line when its lane seems full. The receiver writes it once per
//! quarter of the ring, and when it finds the lane empty.
//! Source: Wentzlaff 2012, §3.2.2 (FO-03, FO-05). The ring of words with headers is that of Aeron's
//! many-to-one ring buffer; the bits of tail and head are ours.

use crate::sites;
use crate::waiters::Waiters;
use squall_sys::padded::CachePadded;
use squall_sys::prefetch;
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use squall_sys::sync::handed::Handed;
use std::ops::Deref;
use std::task::Waker;

const QUIET: u64 = 1;
const CLOSED: u64 = 2;
/// Bits of the tail below the position.
const TAIL: u32 = 2;
const WANTED: u64 = 1;
/// Bits of the head below the position.
const HEAD: u32 = 1;

/// Why a lane took no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No room now.
    Full,
    /// The message is larger than the whole lane.
    TooLarge,
    /// The lane was closed.
    Closed,
}

/// A message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Sent {
    /// The receiver looks into the lane.
    Seen,
    /// The lane was quiet: the caller rings the bell (I4).
    Rings,
}

/// A lane over the words `W`.
pub(crate) struct Lane<W> {
    /// Written by senders.
    tail: CachePadded<Tail>,
    /// Written by the receiver: position and `WANTED`.
    head: CachePadded<AtomicU64>,
    /// Read by both.
    words: W,
    room: CachePadded<Waiters>,
}

struct Tail {
    /// Position and bits.
    word: AtomicU64,
    /// A head that a sender has read. The true one may be larger.
    head_seen: AtomicU64,
}

/// The receiver's end of a lane. There is one for each lane.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// The position of the next message.
    at: u64,
    /// The head that senders see.
    freed: u64,
}

/// The result of a look into a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// A message was copied to the buffer.
    Message,
    /// No message is complete.
    Nothing,
}

/// Returns the size of the largest message of a lane with so many words, in bytes.
pub(crate) fn largest(words: usize) -> usize {
    (words - 1) * size_of::<u64>()
}

impl<W: Deref<Target = [Handed]>> Lane<W> {
    /// Makes a quiet, empty lane.
    ///
    /// # Panics
    /// If the number of words is no power of two, or the words are not 0 (debug builds).
    pub(crate) fn new(words: W) -> (Lane<W>, Cursor) {
        assert!(words.len().is_power_of_two(), "a lane of {} words", words.len());
        debug_assert!(words.iter().all(|word| word.get() == 0));
        let tail = Tail { word: AtomicU64::new(QUIET), head_seen: AtomicU64::new(0) };
        let (tail, head) = (CachePadded::new(tail), CachePadded::new(AtomicU64::new(0)));
        (Lane { tail, head, words, room: CachePadded::new(Waiters::new()) }, Cursor { at: 0, freed: 0 })
    }

    fn word(&self, position: u64) -> &Handed {
        // The number of words is a power of two.
        &self.words[(position as usize) & (self.words.len() - 1)]
    }

    /// Sends a message. If it is the `last` one, closes the lane in the same step.
    #[inline]
    pub(crate) fn send(&self, message: &[u8], last: bool) -> Result<Sent, Refused> {
        if message.len() > largest(self.words.len()) {
            return Err(Refused::TooLarge);
        }
        let need = 1 + message.len().div_ceil(8) as u64;
        // Relaxed: the compare-exchange checks it.
        let mut tail = self.tail.word.load(Ordering::Relaxed);
        let at = loop {
            if tail & CLOSED != 0 {
                return Err(Refused::Closed);
            }
            let at = tail >> TAIL;
            // Acquire: pairs with the Release of another sender below, and through it with the receiver's.
            let head = self.tail.head_seen.load(sites::ROOM.order(Ordering::Acquire));
            if at + need > head + self.words.len() as u64 && !self.has_room(at + need) {
                return Err(Refused::Full);
            }
            let claimed = (at + need) << TAIL | if last { CLOSED } else { 0 };
            // Relaxed: the words are handed over by the head, and the message by its header.
            match self.tail.word.compare_exchange_weak(tail, claimed, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break at,
                Err(found) => tail = found,
            }
        };
        // The line of the next messages comes while this one is written.
        prefetch::line_to_write(std::ptr::from_ref(self.word(at + need + 8)).cast_mut().cast());
        for (to, bytes) in (at + 1..).zip(message.chunks(8)) {
            let word = match bytes.try_into() {
                Ok(whole) => u64::from_le_bytes(whole),
                Err(_) => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
            };
            self.word(to).set(word);
        }
        let header = (message.len() as u64) << 1 | 1;
        // Release: pairs with the Acquire of `receive` (I2).
        self.word(at).publish(header, sites::SEND.order(Ordering::Release));
        let rings = tail & QUIET != 0 && !sites::QUIET.is_weak();
        Ok(if rings { Sent::Rings } else { Sent::Seen })
    }

    /// Returns whether the words before position `end` are free, by the true head.
    #[cold]
    fn has_room(&self, end: u64) -> bool {
        // Acquire: pairs with the Release of `free`: the words are cleared (I3).
        let head = self.head.load(sites::ROOM.order(Ordering::Acquire)) >> HEAD;
        // Relaxed: to spare the line a write.
        if self.tail.head_seen.load(Ordering::Relaxed) != head {
            // Release: pairs with the Acquire of other senders in `send`. Two senders may store in either
            // order, so it may go back, and then costs a look at the true head.
            self.tail.head_seen.store(head, sites::ROOM_SEEN.order(Ordering::Release));
        }
        end <= head + self.words.len() as u64
    }

    /// Takes the next message, and replaces the content of `buffer` by it. The caller owns the cursor of this
    /// lane.
    #[inline]
    pub(crate) fn receive(&self, cursor: &mut Cursor, buffer: &mut Vec<u8>) -> Look {
        // Acquire: pairs with the Release of `send` (I2).
        let header = self.word(cursor.at).poll(sites::RECEIVE.order(Ordering::Acquire));
        if header == 0 {
            self.free(cursor);
            return Look::Nothing;
        }
        let len = (header >> 1) as usize;
        let end = cursor.at + 1 + len.div_ceil(8) as u64;
        buffer.clear();
        for from in cursor.at + 1..end {
            let word = self.word(from);
            buffer.extend_from_slice(&word.get().to_le_bytes());
            if !sites::CLEAR.is_weak() {
                word.set(0);
            }
        }
        buffer.truncate(len);
        if !sites::CLEAR.is_weak() {
            self.word(cursor.at).set(0);
        }
        cursor.at = end;
        // Rarely, since it is a locked instruction: the lane that is found empty frees the rest. Relaxed: a
        // hint. A sender that waits later learns of the room at the next look.
        let rarely = cursor.at - cursor.freed > self.words.len() as u64 / 4;
        if rarely || self.head.load(Ordering::Relaxed) & WANTED != 0 {
            self.free(cursor);
        }
        Look::Message
    }

    /// Gives the words that were read back to the senders, and wakes those that wait for room.
    pub(crate) fn free(&self, cursor: &mut Cursor) {
        if cursor.freed == cursor.at {
            return;
        }
        cursor.freed = cursor.at;
        // Release: pairs with the Acquire of `has_room` (I3).
        let before = self.head.swap(cursor.at << HEAD, sites::FREE.order(Ordering::Release));
        if before & WANTED != 0 && !sites::TELL.is_weak() {
            self.room.wake_all();
        }
    }

    /// Makes the lane quiet, if it is empty (I4). Returns whether it is quiet now. All words are free then.
    pub(crate) fn quiet(&self, cursor: &mut Cursor) -> bool {
        self.free(cursor);
        if sites::EMPTY.is_weak() {
            self.tail.word.fetch_or(QUIET, Ordering::Relaxed);
            return true;
        }
        // Relaxed: a later message is seen by its ring.
        let mut tail = self.tail.word.load(Ordering::Relaxed);
        while tail >> TAIL == cursor.at {
            let (quiet, order) = (tail | QUIET, Ordering::Relaxed);
            match self.tail.word.compare_exchange_weak(tail, quiet, order, order) {
                Ok(_) => return true,
                Err(found) => tail = found,
            }
        }
        false
    }

    /// Returns whether the lane was closed, and has no message left: no sender uses it any more.
    pub(crate) fn is_over(&self, cursor: &Cursor) -> bool {
        let tail = self.tail.word.load(Ordering::Relaxed);
        tail & CLOSED != 0 && tail >> TAIL == cursor.at
    }

    /// Refuses further messages. Those that were accepted are still received. The caller rings the bell.
    pub(crate) fn close(&self) {
        // Relaxed: a sender finds the bit by its compare-exchange.
        self.tail.word.fetch_or(CLOSED, Ordering::Relaxed);
        if !sites::CLOSE_TELLS.is_weak() {
            self.room.wake_all();
        }
    }

    /// Leaves a waker for the next time that room for `bytes` bytes may be free (I5). Returns its ticket for
    /// [`forget`](Lane::forget), or `None` if the caller has to try again.
    pub(crate) fn wait_for_room(&self, bytes: usize, waker: &Waker) -> Option<u64> {
        let need = 1 + bytes.div_ceil(8) as u64;
        self.room.add(waker, || {
            // Relaxed: a hint, except for the bits. The exchange below checks the head.
            let head = self.head.load(Ordering::Relaxed);
            let tail = self.tail.word.load(Ordering::Relaxed);
            let full = (tail >> TAIL) + need > (head >> HEAD) + self.words.len() as u64;
            let closed = tail & CLOSED != 0 && !sites::WAIT_OPEN.is_weak();
            if closed || !full && !sites::WANTED.is_weak() {
                return false;
            }
            let wanted = head | WANTED;
            if sites::WANTED.is_weak() {
                return true;
            }
            self.head.compare_exchange(head, wanted, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        })
    }

    /// Takes a waker back.
    pub(crate) fn forget(&self, ticket: u64) {
        self.room.remove(ticket);
    }
}
