//! Mappings in other processes: a client maps a frozen file privately, and this process brings its pages in.
//!
//! Problem: unmodified code of another process shall run on our pages. That process may be killed at any
//! time, may be hostile, and may not hang when we are killed.
//!
//! Idea: the client opens userfaultfd for its own memory, and hands the descriptor over. A thread here reads
//! the client's faults from it. Stores stay in the client, so clients do not trust each other.
//!
//! - I1. A client gets the window for reading alone. It hands its descriptor to this process, and it keeps
//!   another one. So the kernel never gives it zeros for pages that we owe it.
//! - I2. Each client has a thread here, and its faults wait for that thread alone. The thread ends when the
//!   socket does, so a dead client leaves nothing behind.
//! - I3. A page that cannot be brought in is poisoned: its accesses are SIGBUS. If we end, the client poisons
//!   all absent pages. So no thread waits forever.
//! - I4. The child of a fork has no copy of a socket. So each side sees the end of the other one at once.
//!
//! Limits: a client can hold up its thread here, which changes the client's memory. The page of the fault
//! stays pinned meanwhile. No grace period waits, since the change runs outside operations. A client may
//! read all of a mappable file, also parts that are not mapped. A client of the user of this process can open
//! the file for writing through /proc, as it can change this process itself.
//!
//! Cost: two switches between processes for each fault, the kernel's usual one for userfaultfd.
//! Source: userfaultfd(2) with SCM_RIGHTS, as virtual machine monitors restore snapshots.

use rustix::event::{PollFd, PollFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use squall_sys::process_local::ProcessLocal;
use squall_sys::uffd::{Event, Features, OpenError, Options, RangeError, Reason, Uffd};
use squall_sys::window::PrivateSpan;
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::handler::Panicked;
use super::maps::{self, MapError};
use super::private::{Frozen, MODES};
use crate::cache::PAGE_BYTES;
use crate::error::PageFault;
use crate::home::Counted;
use crate::region::Mapping;

/// The first bytes of each message: the protocol and its version.
const MAGIC: [u8; 8] = *b"sqhat\0\0\x01";
/// Length of a message: the magic bytes, the length of the mapping and a place.
const MESSAGE: usize = 24;
/// Time for which each side waits for the other one while a mapping begins.
const PATIENCE: Duration = Duration::from_secs(10);
/// Faults that a client's thread reads at a time.
const EVENTS: usize = 16;

/// A message with up to one descriptor.
fn send(socket: &UnixStream, len: u64, at: u64, descriptor: Option<&OwnedFd>) -> io::Result<()> {
    let mut bytes = [0; MESSAGE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&len.to_le_bytes());
    bytes[16..].copy_from_slice(&at.to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor.as_fd()]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    (&*socket).write_all(&bytes[sent..])
}

/// Receives a message. Returns its numbers and its descriptor.
fn receive(socket: &UnixStream) -> io::Result<(u64, u64, Option<OwnedFd>)> {
    receive_in_time(socket).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(
            ErrorKind::TimedOut,
            format!("the other process did not answer within {} s", PATIENCE.as_secs()),
        ),
        ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "the other process closed the socket before it answered")
        }
        _ => error,
    })
}

fn receive_in_time(mut socket: &UnixStream) -> io::Result<(u64, u64, Option<OwnedFd>)> {
    let mut bytes = [0; MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            descriptor = descriptors.last();
        }
    }
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    socket.read_exact(&mut bytes[received.bytes..])?;
    if bytes[..8] != MAGIC {
        return Err(io::Error::new(ErrorKind::InvalidData, "the other process speaks another protocol"));
    }
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    Ok((number(8), number(16), descriptor))
}

fn set_patience(socket: &UnixStream, patience: Option<Duration>) -> io::Result<()> {
    socket.set_read_timeout(patience)?;
    socket.set_write_timeout(patience)
}

/// The features of a client's descriptor.
fn features() -> Features {
    Features::MINOR_SHMEM | Features::MISSING_SHMEM | Features::POISON
}

// --- the side of the pager ---

/// The share of the pager in a mapping of another process. Dropping it ends the mapping: the client gets
/// SIGBUS for pages that it has not yet touched. The child of a fork has no share.
pub struct Served {
    socket: Arc<ProcessLocal<UnixStream>>,
    state: Arc<State>,
}

/// The state of a mapping, which its owner and the thread of its client share.
#[derive(Default)]
struct State {
    brought: AtomicU64,
    failed: AtomicU64,
    is_over: AtomicBool,
}

impl Served {
    /// Returns the number of pages that were brought in.
    pub fn pages(&self) -> u64 {
        self.state.brought.load(Ordering::Relaxed)
    }

    /// Returns the number of pages that could not be brought in.
    pub fn pages_failed(&self) -> u64 {
        self.state.failed.load(Ordering::Relaxed)
    }

    /// Returns whether the client is gone.
    pub fn is_over(&self) -> bool {
        self.state.is_over.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Served");
        debug.field("pages", &self.pages()).field("pages_failed", &self.pages_failed());
        debug.field("is_over", &self.is_over()).finish()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It fails if the client is gone.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// A client, on its thread.
struct Client {
    frozen: Frozen,
    uffd: Uffd,
    at: usize,
    socket: Arc<ProcessLocal<UnixStream>>,
    state: Arc<State>,
}

/// Serves a client at the other end of a socket, which calls [`attach`](super::attach).
pub(super) fn serve(mapping: Mapping, socket: UnixStream) -> Result<Served, MapError> {
    let system = |error: io::Error| MapError::System(Arc::new(error));
    let frozen = Frozen::new(mapping)?;
    let (socket, state) = (Arc::new(ProcessLocal::new(socket).map_err(system)?), Arc::<State>::default());
    let served = Served { socket: socket.clone(), state: state.clone() };
    let (tell, told) = mpsc::sync_channel(1);
    let run = move || {
        // A descriptor of a hostile client may hold up the thread that closes it. So this thread does all.
        match Client::greet(frozen, socket, state.clone()) {
            Ok(client) => {
                let _counted = Counted::new(client.frozen.home.clone(), |home| &home.clients);
                let _ = tell.send(Ok(()));
                client.run();
                // A client that lives gets no page from now on.
                let _ = client.socket.shutdown(Shutdown::Both);
            }
            Err(error) => drop(tell.send(Err(error))),
        }
        state.is_over.store(true, Ordering::Relaxed);
    };
    let builder = thread::Builder::new().name("squall-client".to_owned());
    squall_sys::signals::without_signals(|| builder.spawn(run)).map_err(system)?;
    match told.recv_timeout(PATIENCE * 3) {
        Ok(Ok(())) => Ok(served),
        Ok(Err(error)) => Err(system(error)),
        Err(_) => Err(system(ErrorKind::TimedOut.into())),
    }
}

impl Client {
    fn greet(frozen: Frozen, socket: Arc<ProcessLocal<UnixStream>>, state: Arc<State>) -> io::Result<Client> {
        set_patience(&socket, Some(PATIENCE))?;
        let (file, place) = match frozen.file() {
            Some((window, place)) => (Some(window.read_only()?), place),
            None => (None, 0),
        };
        send(&socket, frozen.bytes as u64, place as u64, file.as_ref())?;
        let (len, at, descriptor) = receive(&socket)?;
        let invalid = |why| io::Error::new(ErrorKind::InvalidData, why);
        let at = usize::try_from(at).ok().filter(|at| at % PAGE_BYTES == 0);
        let (Some(at), Some(descriptor)) = (at, descriptor) else {
            return Err(invalid("the client sent no descriptor, or no address of a page"));
        };
        if len != frozen.bytes as u64 || at.checked_add(frozen.bytes).is_none() {
            return Err(invalid("the client mapped another length"));
        }
        let uffd = Uffd::from_fd(descriptor)?;
        if uffd.features() != features() {
            return Err(invalid("the client's userfaultfd has other features"));
        }
        send(&socket, len, at as u64, None)?;
        set_patience(&socket, None)?;
        Ok(Client { frozen, uffd, at, socket, state })
    }

    /// Brings pages in until the client is gone, or its share here is dropped.
    fn run(&self) {
        loop {
            let mut polled = [
                PollFd::new(&self.uffd, PollFlags::IN),
                PollFd::new(&**self.socket, PollFlags::IN | PollFlags::RDHUP),
            ];
            match rustix::event::poll(&mut polled, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            // The client sends nothing any more, so every event of the socket is its end.
            if !polled[1].revents().is_empty() || !self.answer() {
                return;
            }
        }
    }

    /// Answers the faults that wait. Returns false if the client is gone.
    fn answer(&self) -> bool {
        let mut events = [const { Event::Empty }; EVENTS];
        let Ok(count) = self.uffd.read_events(&mut events) else { return false };
        events[..count].iter().all(|event| match event {
            Event::PageFault { address, .. } => self.bring(*address),
            // Features that no client of ours enables.
            _ => true,
        })
    }

    fn bring(&self, address: usize) -> bool {
        // A client that registers further addresses waits for itself.
        let Some(offset) = address.checked_sub(self.at).filter(|offset| *offset < self.frozen.bytes) else {
            return true;
        };
        let offset = offset / PAGE_BYTES * PAGE_BYTES;
        let to = self.at + offset;
        let resolve = || loop {
            match self.frozen.resolve_for(&self.uffd, offset, to) {
                Err(PageFault::Mapping(error)) if error.reason() == Reason::Changing => thread::yield_now(),
                done => return done,
            }
        };
        // A panic of the source fails this page alone.
        match catch_unwind(AssertUnwindSafe(resolve)) {
            Ok(Ok(())) => {
                self.state.brought.fetch_add(1, Ordering::Relaxed);
                // Another thread of the client may have brought the page in before.
                self.uffd.wake(to, PAGE_BYTES).is_ok()
            }
            Ok(Err(PageFault::Mapping(error))) if error.reason() == Reason::Ended => false,
            failed => {
                match failed {
                    Ok(Err(error)) => self.tell(to, &error),
                    Err(payload) => {
                        self.tell(to, &Panicked(&*payload));
                        // Its drop may panic too.
                        std::mem::forget(payload);
                    }
                    Ok(Ok(())) => {}
                }
                poison(&self.uffd, to, PAGE_BYTES);
                true
            }
        }
    }

    /// Writes the reason to standard error for which the client will get a signal. A hostile client fails as
    /// often as it likes. So this tells the failures 1, 2, 4, 8 and so on.
    fn tell(&self, to: usize, error: &dyn fmt::Display) {
        let failures = self.state.failed.fetch_add(1, Ordering::Relaxed) + 1;
        if failures.is_power_of_two() {
            maps::tell(to, &Failure(error, failures));
        }
    }
}

/// A failure, and the number of failures of its client.
struct Failure<'a>(&'a dyn fmt::Display, u64);

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (failure {} of a client in another process)", self.0, self.1)
    }
}

/// Poisons the absent pages of a range. Returns when no thread waits for one of them.
fn poison(uffd: &Uffd, at: usize, len: usize) {
    let mut done = 0;
    while done < len {
        match uffd.poison(at + done, len - done, Options::default()) {
            Ok(_) => return,
            Err(error) => {
                done += error.done();
                match error.reason() {
                    Reason::Changing => {}
                    // It is there.
                    Reason::Present => {
                        let _ = uffd.wake(at + done, PAGE_BYTES);
                        done += PAGE_BYTES;
                    }
                    // The mapping is gone, and its waiters with it.
                    _ => return,
                }
            }
        }
    }
}

// --- the side of the client ---

/// The mapping of a file that another process serves. Dropping it unmaps the addresses, and its changes are
/// lost.
pub struct Attached {
    span: Arc<Lent>,
    socket: Arc<ProcessLocal<UnixStream>>,
    watch: Option<thread::JoinHandle<()>>,
    /// The number of the process that mapped the file. A client may be the child of a fork itself, so it need
    /// not be the first process of the program.
    process: u32,
}

/// The mapping, which the watching thread shares.
struct Lent {
    span: PrivateSpan,
    uffd: Uffd,
    is_lost: AtomicBool,
    /// Set when the mapping is dropped.
    is_dropped: AtomicBool,
}

impl Attached {
    /// Returns the first address.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.span.span.at()
    }

    /// Returns the length in bytes, a multiple of the page size.
    #[expect(clippy::len_without_is_empty, reason = "a mapping without bytes cannot be made")]
    pub fn len(&self) -> usize {
        self.span.span.len()
    }

    /// Returns whether the pager is gone. Pages that were absent then are lost: touching one is SIGBUS.
    pub fn is_lost(&self) -> bool {
        // Acquire: pairs with the Release in `watch`: the absent pages are poisoned.
        self.span.is_lost.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Attached");
        debug.field("at", &self.as_ptr()).field("len", &self.len()).field("is_lost", &self.is_lost()).finish()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // The child of a fork has no mapping, and no thread to wait for.
            std::mem::forget(self.watch.take());
            return;
        }
        // Relaxed: read too late, the thread poisons pages that no thread touches.
        self.span.is_dropped.store(true, Ordering::Relaxed);
        let _ = self.socket.shutdown(Shutdown::Both);
        // The thread ends then. It has panicked at worst.
        let _ = self.watch.take().map(thread::JoinHandle::join);
    }
}

/// Waits for the end of the pager, and poisons the pages that it still owes (I3).
fn watch(lent: &Lent, mut socket: &UnixStream) {
    let mut byte = [0];
    while socket.read(&mut byte).is_err_and(|error| error.kind() == ErrorKind::Interrupted) {}
    if lent.is_dropped.load(Ordering::Relaxed) {
        return;
    }
    poison(&lent.uffd, lent.span.at().addr().get(), lent.span.len());
    // Release: pairs with the Acquire in `is_lost`.
    lent.is_lost.store(true, Ordering::Release);
}

/// Maps the file that the process at the other end of a socket serves.
pub(super) fn attach(socket: UnixStream) -> Result<Attached, AttachError> {
    let socket = Arc::new(ProcessLocal::new(socket)?);
    set_patience(&socket, Some(PATIENCE))?;
    let (len, place, file) = receive(&socket)?;
    let (Ok(len), Ok(place)) = (usize::try_from(len), usize::try_from(place)) else {
        return Err(io::Error::from(ErrorKind::InvalidData).into());
    };
    let uffd = Uffd::open(features()).map_err(AttachError::Refused)?;
    let span = PrivateSpan::map(file.as_ref().map(AsFd::as_fd), place, len)?;
    let modes = squall_sys::uffd::Modes { minor: file.is_some(), ..MODES };
    let at = span.at().addr().get();
    // SAFETY: a new mapping. Users agreed to faults, and the descriptor stays open as long as the mapping.
    unsafe { uffd.register(at, len, modes) }.map_err(AttachError::Register)?;
    let handed = uffd.as_fd().try_clone_to_owned()?;
    send(&socket, len as u64, at as u64, Some(&handed))?;
    receive(&socket)?;
    set_patience(&socket, None)?;
    let lent =
        Arc::new(Lent { span, uffd, is_lost: AtomicBool::new(false), is_dropped: AtomicBool::new(false) });
    let (watched, watching) = (lent.clone(), socket.clone());
    let builder = thread::Builder::new().name("squall-client".to_owned());
    let watch = squall_sys::signals::without_signals(|| builder.spawn(move || watch(&watched, &watching)))?;
    Ok(Attached { span: lent, socket, watch: Some(watch), process: std::process::id() })
}

/// The reason why a served file cannot be mapped.
#[derive(Debug)]
#[non_exhaustive]
pub enum AttachError {
    /// The system refuses userfaultfd, or lacks a feature of it.
    Refused(OpenError),
    /// The addresses could not be registered.
    Register(RangeError),
    /// The other process ended or is no pager, or the system refused the mapping.
    System(io::Error),
}

impl From<io::Error> for AttachError {
    fn from(error: io::Error) -> AttachError {
        AttachError::System(error)
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot map the pager's file: ")?;
        match self {
            AttachError::Refused(error) => error.fmt(f),
            AttachError::Register(error) => error.fmt(f),
            AttachError::System(error) => error.fmt(f),
        }
    }
}

impl Error for AttachError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            AttachError::Refused(error) => Some(error),
            AttachError::Register(error) => Some(error),
            AttachError::System(error) => Some(error),
        }
    }
}
