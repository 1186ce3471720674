//! The parts of a link that its two halves and the thread `squall-calls` share.
//!
//! - I1. The state leaves `LIVE` once. After that, the thread `squall-calls` wakes all that sleep, until they
//!   have left (`vigil/I2`). A fault in the last messages takes the place of `GONE`, and stays. The end of
//!   the link is then no proof that the peer has ended.
//! - I2. The state becomes `GONE` after the last write of the peer. So a receiver that reads `GONE`, and then
//!   finds the ring empty, has read all messages.

use super::error::{Fault, LinkError, LinkName};
use super::hello::Rings;
use super::memory::{Connected, LOOK, Ring};
use super::ring::{Broken, Memory, Writer};
use super::vigil::Sleepers;
use crate::waiters::{Waiters, wake};
use squall_call::socket;
use squall_call::watch::{self, Next, Source, Token};
use squall_sys::fork;
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicU32, Ordering};
use squall_sys::sync::{Mutex, MutexGuard, OnceLock, StdArc as Arc, lock};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Waker;

/// Both sides use the link.
const LIVE: u32 = 0;
/// The peer's process or its socket has ended, or this side has ended the link.
const GONE: u32 = 1;
/// The peer broke the protocol: this value and the index of a [`Fault`].
const BROKEN: u32 = 2;

pub(crate) struct Joint {
    pub(crate) name: LinkName,
    socket: OwnedFd,
    /// The peer's process, if it is known.
    process: Option<OwnedFd>,
    pub(crate) inbound: Ring,
    pub(crate) outbound: Ring,
    state: CachePadded<AtomicU32>,
    writer: CachePadded<Mutex<Writer>>,
    /// The thread that sleeps on the tail of `inbound`.
    pub(crate) receiver: Sleepers,
    /// Threads that sleep on the head of `outbound`.
    pub(crate) senders: Sleepers,
    /// The task that waits for a message.
    task: Mutex<Option<Waker>>,
    /// The tasks that wait for room.
    pub(crate) room: Waiters,
    /// The halves that were not dropped.
    halves: AtomicU32,
    token: OnceLock<Token>,
}

/// The last number given to a link of this process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Joint {
    /// Makes the joint of two halves, and watches the peer.
    pub(crate) fn new(
        rings: Rings,
        socket: OwnedFd,
        pid: Option<u32>,
        process: Option<OwnedFd>,
    ) -> io::Result<Arc<Joint>> {
        // Relaxed: only the value matters.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let joint = Arc::new(Joint {
            name: LinkName { number, pid },
            socket,
            process,
            inbound: rings.inbound,
            outbound: rings.outbound,
            state: CachePadded::new(AtomicU32::new(LIVE)),
            writer: CachePadded::default(),
            receiver: Sleepers::default(),
            senders: Sleepers::default(),
            task: Mutex::new(None),
            room: Waiters::new(),
            halves: AtomicU32::new(2),
            token: OnceLock::new(),
        });
        let token = watch::add(joint.clone())?;
        // It is set once.
        let _ = joint.token.set(token);
        Ok(joint)
    }

    pub(crate) fn inbound(&self) -> Connected<'_> {
        self.inbound.with(self.socket.as_fd())
    }

    pub(crate) fn outbound(&self) -> Connected<'_> {
        self.outbound.with(self.socket.as_fd())
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer, "the sender's position in a link")
    }

    /// Returns whether the peer is gone, or the link was ended.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        // Acquire: pairs with the Release of `change` (I2).
        self.state.load(Ordering::Acquire) != LIVE
    }

    /// Returns whether the link was ended by a fault of the peer.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= BROKEN
    }

    /// The reason of the end.
    #[cold]
    pub(crate) fn why(&self) -> LinkError {
        let link = self.name;
        match self.state.load(Ordering::Relaxed).checked_sub(BROKEN) {
            Some(index) => LinkError::Broken { link, fault: Fault::ALL[index as usize % Fault::ALL.len()] },
            None => LinkError::PeerGone { link },
        }
    }

    /// Changes the state, if it is `LIVE`.
    fn change(&self, state: u32) {
        // Release: pairs with the Acquire of `has_ended` (I2).
        let _ = self.state.compare_exchange(LIVE, state, Ordering::Release, Ordering::Relaxed);
    }

    /// Ends the link, since the peer broke the protocol. Returns the error.
    #[cold]
    pub(crate) fn break_off(&self, broken: Broken) -> LinkError {
        self.fail(match broken {
            Broken::Tail => Fault::Tail,
            Broken::Length => Fault::Length,
            Broken::Head => Fault::Head,
        });
        self.end();
        self.why()
    }

    fn fail(&self, fault: Fault) {
        let broken = BROKEN + fault as u32;
        self.change(broken);
        // Release: as in `change`. The first fault stays (I1).
        let _ = self.state.compare_exchange(GONE, broken, Ordering::Release, Ordering::Relaxed);
    }

    /// A half was dropped. Ends the link with the second one.
    pub(crate) fn leave(&self) {
        // AcqRel: the second half sees all accesses of the first one as done.
        if self.halves.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end();
        }
    }

    fn end(&self) {
        // In the child of a fork the link is the parent's.
        if fork::forked() {
            return;
        }
        self.change(GONE);
        if let Some(token) = self.token.get() {
            watch::end(*token);
        }
        let _ = socket::shut_down(self.socket.as_fd());
    }

    /// Leaves the waker of the task that waits for a message.
    pub(crate) fn set_task(&self, waker: Option<Waker>) {
        // Wakers are the program's code: they are dropped without the lock.
        let mut waker = waker;
        std::mem::swap(&mut *lock(&self.task, "the task of a link"), &mut waker);
        drop(waker);
    }

    /// Wakes all tasks: the peer has told this side to look.
    fn wake_tasks(&self) {
        let task = lock(&self.task, "the task of a link").take();
        task.into_iter().for_each(wake);
        self.room.wake_all();
    }
}

impl Source for Joint {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        std::iter::once(self.socket.as_fd()).chain(self.process.as_ref().map(AsFd::as_fd)).collect()
    }

    /// Reads one packet, so that a peer with many packets delays no other one.
    fn ready(self: Arc<Self>) -> Next {
        let mut buffer = [0; LOOK.len()];
        match socket::receive_bytes(self.socket.as_fd(), &mut buffer) {
            Ok(Some(length)) if &buffer[..length] == LOOK => {
                self.wake_tasks();
                return Next::Watch;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let has_ended =
                    self.process.as_ref().is_some_and(|process| socket::is_readable(process.as_fd()));
                if !has_ended {
                    return Next::Watch;
                }
            }
            Ok(Some(_)) => self.fail(Fault::Packet),
            Err(error) if error.kind() == ErrorKind::InvalidData => self.fail(Fault::Packet),
            Ok(None) | Err(_) => {}
        }
        self.change(GONE);
        Next::End
    }

    fn drained(&self) -> bool {
        self.change(GONE);
        self.wake_tasks();
        let (inbound, outbound) = (self.inbound(), self.outbound());
        let receiver = self.receiver.wake(|| inbound.wake(inbound.tail()));
        let senders = self.senders.wake(|| outbound.wake(outbound.head()));
        receiver && senders
    }
}
