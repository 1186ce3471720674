//! The shared memory of a ring.
//!
//! Each process makes the memory of the ring that it receives from, and passes it to the other one. The file
//! is sealed (`squall_sys::shared`), so that neither can cut it short.
//!
//! ```text
//! byte    0  tail           the word of the sender
//!         4  sender_cpu     processor of the sender plus 1; 0 is none
//!       128  head           the word of the receiver
//!       132  receiver_cpu   processor of the receiver plus 1; 0 is none
//!      4096  the ring
//! ```

use super::ring::{Memory, RING_BYTES_MAX};
use squall_call::socket;
use squall_sys::affinity;
use squall_sys::futex;
use squall_sys::prefetch::{self, LINE};
use squall_sys::shared::SharedMemory;
use squall_sys::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

const TAIL: usize = 0;
const SENDER_CPU: usize = 4;
const HEAD: usize = 128;
const RECEIVER_CPU: usize = 132;
const RING: usize = 4096;

/// Most lines that a send fetches for the next one.
const PREFETCHED: usize = 4;

/// Smallest size of a ring in bytes.
pub(crate) const RING_BYTES_MIN: usize = 4096;

/// The packet that tells the other process to look.
pub(crate) const LOOK: &[u8] = b"look";

/// The memory of a ring.
#[derive(Debug)]
pub(crate) struct Ring {
    memory: SharedMemory,
    bytes: usize,
}

/// Returns whether a ring can have this size.
pub(crate) fn is_size(bytes: usize) -> bool {
    bytes.is_power_of_two() && (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&bytes)
}

impl Ring {
    /// Makes the memory of a ring with this size, which [`is_size`] accepts.
    pub(crate) fn create(bytes: usize) -> io::Result<(Ring, OwnedFd)> {
        let (memory, file) = SharedMemory::create(RING + bytes)?;
        Ok((Ring { memory, bytes }, file))
    }

    /// Opens the memory of a ring that the other process has made. The size is one that [`is_size`] accepts.
    pub(crate) fn open(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Ring> {
        Ok(Ring { memory: SharedMemory::open(file, RING + bytes)?, bytes })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The ring, with the socket of its link.
    pub(crate) fn with<'a>(&'a self, socket: BorrowedFd<'a>) -> Connected<'a> {
        Connected { ring: self, socket }
    }

    fn processor(&self, at: usize) -> Option<usize> {
        // Relaxed: a hint. A hostile peer may write any number.
        self.memory.word(at).load(Ordering::Relaxed).checked_sub(1).map(|processor| processor as usize)
    }

    fn set_processor(&self, at: usize) {
        let here = u32::try_from(affinity::current_cpu()).map_or(0, |processor| processor.wrapping_add(1));
        // Relaxed: a hint.
        if self.memory.word(at).load(Ordering::Relaxed) != here {
            self.memory.word(at).store(here, Ordering::Relaxed);
        }
    }

    /// The processor of the last send.
    pub(crate) fn sender(&self) -> Option<usize> {
        self.processor(SENDER_CPU)
    }

    /// Says that the sender runs on this processor.
    pub(crate) fn set_sender(&self) {
        self.set_processor(SENDER_CPU);
    }

    /// The processor of the last wait for a message.
    pub(crate) fn receiver(&self) -> Option<usize> {
        self.processor(RECEIVER_CPU)
    }

    /// Says that the receiver runs on this processor.
    pub(crate) fn set_receiver(&self) {
        self.set_processor(RECEIVER_CPU);
    }
}

/// A ring, with the socket of its link.
#[derive(Clone, Copy)]
pub(crate) struct Connected<'a> {
    ring: &'a Ring,
    socket: BorrowedFd<'a>,
}

impl Memory for Connected<'_> {
    #[inline]
    fn tail(&self) -> &AtomicU32 {
        self.ring.memory.word(TAIL)
    }

    #[inline]
    fn head(&self) -> &AtomicU32 {
        self.ring.memory.word(HEAD)
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.ring.bytes
    }

    #[inline]
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        self.ring.memory.copy_in(RING + at, bytes);
    }

    #[inline]
    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        self.ring.memory.copy_out(RING + at, bytes);
    }

    #[inline]
    fn prefetch(&self, at: usize, bytes: usize) {
        for line in 0..bytes.div_ceil(LINE).min(PREFETCHED) {
            let at = RING + ((at + line * LINE) & (self.ring.bytes - 1));
            prefetch::line_to_write(std::ptr::from_ref(self.ring.memory.word(at)).cast_mut().cast());
        }
    }

    fn sleep(&self, word: &AtomicU32, value: u32, limit: Option<Duration>) {
        futex::wait_shared(word, value, limit);
    }

    fn wake(&self, word: &AtomicU32) {
        futex::wake_shared(word, u32::MAX);
    }

    fn ring(&self) {
        // If the socket is full, the other process has packets to read, and looks. If it is closed, the end
        // of the link tells it.
        let _ = socket::send(self.socket, LOOK, &[]);
    }
}
