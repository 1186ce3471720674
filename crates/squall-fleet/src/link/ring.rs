//! The ring of a link: messages of one process to another one, in memory that both can write.
//!
//! Problem: each side may be killed at any instruction, and may write anything into the memory at any time.
//! A send and a receive shall cost a copy and one locked instruction. A side that sleeps must be woken.
//!
//! Idea: each side keeps its own position in private memory, and shows it to the other side in a word. It
//! takes the other side's position from that side's word, after a check. Marks of the other side are in the
//! same word. Each change of the word is an exchange, so that it learns the marks in the same step.
//!
//! | bit | in the word `tail`, of the sender | in the word `head`, of the receiver |
//! |---|---|---|
//! | `SLEEPS` | The receiver sleeps on the word. | Threads of the sender sleep on the word. |
//! | `ASKS` | The receiver wants to be told by the socket. | Tasks of the sender want to be told by it. |
//! | `ENDED` | The sender sends no more. | The receiver reads no more. |
//! | `LEFT` | The receiver reads no more. | |
//!
//! - I1. Positions count words of 8 bytes modulo 2^28. A side derives its accesses from its own position, and
//!   from a checked copy of the other one: within one ring behind (sender) or before (receiver) its own. So
//!   each access is within the ring, for all values in the memory.
//! - I2. The receiver copies the length of a message once. It checks the copy against the words that were
//!   published, and copies that many bytes. It never reads a word of the memory twice.
//! - I3. A message is published by its sender's exchange of `tail`, after all its bytes. Messages are sent
//!   one after the other, so all messages before a published one are published. If the sender is killed, the
//!   receiver can read all that were accepted.
//! - I4. The receiver sleeps only if it has put `SLEEPS` into a tail with its own position, in one step. The
//!   next exchange of the tail finds the mark and wakes it. A sender that waits for room does likewise with
//!   the head that left too little room. `ASKS` works in the same way.
//!
//! Not promised: room or wake-ups by a hostile peer. It can leave this side asleep until its process ends,
//! as if it neither sent nor received.
//! Progress: a receive is wait-free, but for a wake-up. Threads that send at once take turns under a lock,
//! for the time of a copy. The process of the other side delays no send and no receive.
//! Linearization: a send at the exchange of the tail, a receive at its read of the tail.
//! Cost: a send makes one exchange, and a copy. A receiver that finds the ring empty, or has read a quarter
//! of it, makes one exchange.
//! Source: Wentzlaff 2012, §3.2.2 (FO-03, FO-12). The words follow `slot.rs` of squall-call.

use crate::sites;
use squall_sys::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const SLEEPS: u32 = 1;
const ASKS: u32 = 2;
const ENDED: u32 = 4;
const LEFT: u32 = 8;
/// Bits below the position.
const BITS: u32 = 4;
/// The bits of a position.
const POSITIONS: u32 = u32::MAX >> BITS;
/// Bytes of a word of the ring, and of the head of a message: its length, and zeros.
const WORD: usize = 8;

/// Largest size of a ring in bytes.
pub(crate) const RING_BYTES_MAX: usize = 16 << 20;

// Positions tell a full ring from an empty one.
const _: () = assert!(RING_BYTES_MAX / WORD < (POSITIONS / 4) as usize);

/// The memory of a ring, and the ways to sleep on it and to wake.
pub(crate) trait Memory {
    /// The word that the sender changes.
    fn tail(&self) -> &AtomicU32;
    /// The word that the receiver changes.
    fn head(&self) -> &AtomicU32;
    /// The size of the ring in bytes: a power of two.
    fn bytes(&self) -> usize;
    /// Copies bytes to the ring, from this offset. They fit.
    fn copy_in(&self, at: usize, bytes: &[u8]);
    /// Copies bytes out of the ring, from this offset. They are there.
    fn copy_out(&self, at: usize, bytes: &mut [u8]);
    /// Fetches the cache lines of so many bytes of the ring, from this offset, for writes to come.
    fn prefetch(&self, _at: usize, _bytes: usize) {}
    /// Sleeps while the word has this value, for `limit` at most. May return early.
    fn sleep(&self, word: &AtomicU32, value: u32, limit: Option<Duration>);
    /// Wakes all threads that sleep on the word.
    fn wake(&self, word: &AtomicU32);
    /// Tells the other process by the socket.
    fn ring(&self);
}

/// The rule that the other side has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// More was published than the ring has room for.
    Tail,
    /// The length of a message is above the bytes that were published.
    Length,
    /// More room was given back than was in use.
    Head,
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no room.
    Full(Seen),
    /// The message is larger than the whole ring.
    TooLarge,
    /// The receiver reads no more.
    Left,
    Broken(Broken),
}

/// A value of the head that left too little room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u32);

/// Marks of a word, for [`tell`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Marks(u32);

/// The result of a look into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// A message was copied to the buffer.
    Message,
    /// There is no message.
    Nothing,
    /// There is no message, and the sender sends no more.
    Ended,
    /// There is no message, and the sender's process has ended.
    Gone,
    Broken(Broken),
}

/// Returns the size in bytes of the largest message of a ring with so many bytes.
pub(crate) fn largest(bytes: usize) -> usize {
    bytes - WORD
}

fn position(word: u32) -> u32 {
    word >> BITS
}

/// Words from one position to another one.
fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & POSITIONS
}

fn advanced(position: u32, words: u32) -> u32 {
    position.wrapping_add(words) & POSITIONS
}

/// Words of a message with so many bytes. At most one ring, so they fit the type.
fn words(bytes: usize) -> u32 {
    1 + bytes.div_ceil(WORD) as u32
}

/// Words of a ring.
fn size(memory: &impl Memory) -> u32 {
    (memory.bytes() / WORD) as u32
}

/// The offset in the ring of a position, in bytes.
fn offset(memory: &impl Memory, position: u32) -> usize {
    (position as usize * WORD) & (memory.bytes() - 1)
}

/// Wakes the other side, as its marks ask for.
#[inline]
pub(crate) fn tell(memory: &impl Memory, word: &AtomicU32, marks: Marks) {
    if marks.0 & (SLEEPS | ASKS) != 0 {
        tell_now(memory, word, marks);
    }
}

#[cold]
fn tell_now(memory: &impl Memory, word: &AtomicU32, marks: Marks) {
    if marks.0 & SLEEPS != 0 {
        memory.wake(word);
    }
    if marks.0 & ASKS != 0 {
        memory.ring();
    }
}

/// The sender's private memory.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    at: u32,
    /// The receiver's position, as of the last check.
    freed: u32,
    /// The receiver reads no more.
    has_left: bool,
}

impl Writer {
    /// Sends a message. The caller passes the marks to [`tell`], with the tail.
    #[inline]
    pub(crate) fn send(&mut self, memory: &impl Memory, message: &[u8]) -> Result<Marks, Refused> {
        if message.len() > largest(memory.bytes()) {
            return Err(Refused::TooLarge);
        }
        if self.has_left {
            return Err(Refused::Left);
        }
        let need = words(message.len());
        if distance(self.freed, self.at) + need > size(memory) {
            self.look_for_room(memory, need)?;
        }
        let length = message.len() as u64;
        memory.copy_in(offset(memory, self.at), &length.to_le_bytes());
        let begin = offset(memory, advanced(self.at, 1));
        let (first, rest) = message.split_at(message.len().min(memory.bytes() - begin));
        memory.copy_in(begin, first);
        if !rest.is_empty() {
            memory.copy_in(0, rest);
        }
        self.at = advanced(self.at, need);
        // Release: pairs with the Acquire of `Reader::receive` (I3).
        let order = sites::LINK_SEND.order(Ordering::Release);
        let marks = memory.tail().swap(self.at << BITS, order);
        // The lines of the next message come while the receiver reads this one.
        memory.prefetch(offset(memory, self.at), need as usize * WORD);
        if marks & LEFT != 0 {
            self.has_left = true;
            return Err(Refused::Left);
        }
        Ok(Marks(marks))
    }

    #[cold]
    fn look_for_room(&mut self, memory: &impl Memory, need: u32) -> Result<(), Refused> {
        // Acquire: pairs with the Release of `Reader::free`: the words were read.
        let head = memory.head().load(sites::LINK_ROOM.order(Ordering::Acquire));
        if distance(self.freed, position(head)) > distance(self.freed, self.at) {
            return Err(Refused::Broken(Broken::Head));
        }
        if head & ENDED != 0 {
            self.has_left = true;
            return Err(Refused::Left);
        }
        self.freed = position(head);
        let fits = distance(self.freed, self.at) + need <= size(memory);
        if fits { Ok(()) } else { Err(Refused::Full(Seen(head))) }
    }

    /// Says that this side sends no more. The caller passes the marks to [`tell`], with the tail.
    pub(crate) fn end(&mut self, memory: &impl Memory) -> Marks {
        // Release: the receiver that finds the mark also finds the messages before it.
        Marks(memory.tail().fetch_or(ENDED, Ordering::Release))
    }
}

/// Sender: returns whether the receiver reads no more.
pub(crate) fn has_left(memory: &impl Memory) -> bool {
    memory.head().load(Ordering::Relaxed) & ENDED != 0
}

/// Sender: returns whether the receiver has freed no room since this value of the head.
pub(crate) fn is_head(memory: &impl Memory, seen: Seen) -> bool {
    // Relaxed: a hint.
    let head = memory.head().load(Ordering::Relaxed);
    position(head) == position(seen.0) && head & ENDED == 0
}

/// Sender: marks the head that left too little room, and sleeps until it changes (I4). `must_go` is asked
/// after the mark.
pub(crate) fn sleep_for_room(
    memory: &impl Memory,
    seen: Seen,
    limit: Option<Duration>,
    must_go: impl FnOnce() -> bool,
) {
    if let Some(marked) = mark(memory.head(), seen, SLEEPS)
        && !must_go()
    {
        memory.sleep(memory.head(), marked, limit);
    }
}

/// Sender: asks to be told by the socket when the head that left too little room changes. Returns false if it
/// has changed.
pub(crate) fn ask_for_room(memory: &impl Memory, seen: Seen) -> bool {
    mark(memory.head(), seen, ASKS).is_some()
}

/// Adds a mark to a word, if the word still has this value but for marks of waits. Returns the new value.
fn mark(word: &AtomicU32, seen: Seen, mark: u32) -> Option<u32> {
    if sites::LINK_MARK.is_weak() {
        return Some(seen.0);
    }
    let mut now = seen.0;
    loop {
        let marked = now | mark;
        if marked == now && word.load(Ordering::Relaxed) == now {
            return Some(now);
        }
        // Relaxed: a later exchange of the word finds the mark, and the words themselves order the messages.
        match word.compare_exchange(now, marked, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(marked),
            // Another thread has added a mark. At most two can be added.
            Err(other) if now & !other == 0 && (now ^ other) & !(SLEEPS | ASKS) == 0 => now = other,
            Err(_) => return None,
        }
    }
}

/// The receiver's private memory.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    at: u32,
    /// The position that the sender was shown.
    freed: u32,
    /// The sender's position, as of the last check.
    published: u32,
}

impl Reader {
    /// Takes the next message, and replaces the content of `buffer` by it.
    #[inline]
    pub(crate) fn receive(&mut self, memory: &impl Memory, buffer: &mut Vec<u8>) -> Look {
        if self.at == self.published {
            // Acquire: pairs with the Release of `Writer::send` (I3).
            let tail = memory.tail().load(sites::LINK_RECEIVE.order(Ordering::Acquire));
            if position(tail) == self.at {
                self.free(memory);
                return if tail & ENDED != 0 { Look::Ended } else { Look::Nothing };
            }
            if distance(self.at, position(tail)) > size(memory) {
                return Look::Broken(Broken::Tail);
            }
            self.published = position(tail);
        }
        // The copy is checked, and the memory is not read again (I2).
        let mut head = [0; WORD];
        memory.copy_out(offset(memory, self.at), &mut head);
        let length = u64::from_le_bytes(head);
        let length = match usize::try_from(length) {
            Ok(length) if length <= largest(memory.bytes()) => length,
            _ => return Look::Broken(Broken::Length),
        };
        if words(length) > distance(self.at, self.published) {
            return Look::Broken(Broken::Length);
        }
        let begin = offset(memory, advanced(self.at, 1));
        buffer.resize(length, 0);
        let (first, rest) = buffer.split_at_mut(length.min(memory.bytes() - begin));
        memory.copy_out(begin, first);
        if !rest.is_empty() {
            memory.copy_out(0, rest);
        }
        self.at = advanced(self.at, words(length));
        // Rarely, since it is a locked instruction: a look at the empty ring frees the rest. Relaxed: a hint.
        // A sender that waits later learns of the room at the next look.
        let is_due = distance(self.freed, self.at) > size(memory) / 4;
        if is_due || memory.head().load(Ordering::Relaxed) & (SLEEPS | ASKS) != 0 {
            self.free(memory);
        }
        Look::Message
    }

    /// Like [`receive`](Reader::receive), from a process that may have ended: `has_ended` tells. All messages
    /// that it sent come before its end.
    #[inline]
    pub(crate) fn receive_from(
        &mut self,
        memory: &impl Memory,
        buffer: &mut Vec<u8>,
        has_ended: impl Fn() -> bool,
    ) -> Look {
        // Before the look: a process that has ended by now sends nothing after it.
        let has_ended_before = !sites::LINK_LAST.is_weak() && has_ended();
        match self.receive(memory, buffer) {
            Look::Nothing if has_ended_before || sites::LINK_LAST.is_weak() && has_ended() => Look::Gone,
            look => look,
        }
    }

    /// Returns whether a look would find a message, or the end.
    #[inline]
    pub(crate) fn has_news(&self, memory: &impl Memory) -> bool {
        // Relaxed: a hint.
        let tail = memory.tail().load(Ordering::Relaxed);
        self.at != self.published || position(tail) != self.at || tail & ENDED != 0
    }

    /// Gives the words that were read back to the sender, and wakes its threads that wait for room.
    #[inline]
    fn free(&mut self, memory: &impl Memory) {
        if self.freed == self.at {
            return;
        }
        self.freed = self.at;
        // Release: pairs with the Acquire of `Writer::look_for_room`.
        let order = sites::LINK_FREE.order(Ordering::Release);
        let marks = memory.head().swap(self.at << BITS, order);
        tell(memory, memory.head(), Marks(marks));
    }

    /// Sleeps until a message may be there (I4). `must_go` is asked after the mark.
    pub(crate) fn sleep(
        &self,
        memory: &impl Memory,
        limit: Option<Duration>,
        must_go: impl FnOnce() -> bool,
    ) {
        if let Some(marked) = self.mark(memory, SLEEPS)
            && !must_go()
        {
            memory.sleep(memory.tail(), marked, limit);
        }
    }

    /// Asks to be told by the socket of the next message. Returns false if there may be one.
    pub(crate) fn ask(&self, memory: &impl Memory) -> bool {
        self.mark(memory, ASKS).is_some()
    }

    fn mark(&self, memory: &impl Memory, wait: u32) -> Option<u32> {
        let tail = memory.tail().load(Ordering::Relaxed);
        let is_empty = self.at == self.published && position(tail) == self.at && tail & ENDED == 0;
        if is_empty { mark(memory.tail(), Seen(tail), wait) } else { None }
    }

    /// Says that this side reads no more, and wakes the sender's threads that wait for room.
    pub(crate) fn end(&mut self, memory: &impl Memory) {
        // Relaxed: a sender that finds a mark reads nothing after it.
        memory.tail().fetch_or(LEFT, Ordering::Relaxed);
        let marks = memory.head().swap(self.freed << BITS | ENDED, Ordering::Relaxed);
        tell(memory, memory.head(), Marks(marks));
    }
}

#[cfg(all(test, not(loom)))]
#[path = "ring_tests.rs"]
mod tests;
