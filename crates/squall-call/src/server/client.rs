//! The server's side of a connection.
//!
//! - I1. A slot is served by the worker that its desk names, and by no other (`slot/I3`).
//! - I2. The writes of a caller end at most its own connection.
//! - I3. The thread `squall-calls` never runs code of the users here. Values of a client are dropped by
//!   [`workers::retire`].

use rustix::net::Shutdown;
use squall_sys::padded::CachePadded;
use squall_sys::peer::Peer;
use squall_sys::shared::SharedMemory;
use squall_sys::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use squall_sys::sync::{Mutex, OnceLock, StdArc as Arc, lock};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::exported::Exported;
use super::users::{User, Workers};
use super::workers;
use crate::frames::{Differs, FRAME_BYTES_MAX, Frame, FrameError, Hello, Refusal, Wake, Welcome};
use crate::layout::{self, REGION_SLOTS};
use crate::segment::Segment;
use crate::share::Share;
use crate::slot::Desk;
use crate::socket;
use crate::watch::{self, Next, Source, Token};

/// Values of one client, by their types.
pub(super) type Values = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// The desks of one region, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Desks([Desk; REGION_SLOTS as usize]);

/// The parts that exist after the hello.
#[derive(Debug)]
struct Open {
    segment: Segment,
    desks: Box<[Desks]>,
}

/// A connection of a caller's process.
pub(crate) struct Client {
    pub(crate) number: u64,
    /// The caller's process and user, if the kernel knows them: not for a socket pair, where it names the
    /// maker.
    pub(crate) peer: Option<Peer>,
    pub(crate) exported: Arc<Exported>,
    socket: OwnedFd,
    /// The caller's process, if this system names it.
    process: Option<OwnedFd>,
    open: OnceLock<Open>,
    dead: AtomicBool,
    rights: AtomicU64,
    /// Number of slots that wait for a worker.
    pub(super) wanted: AtomicUsize,
    /// The workers of its user.
    pub(super) workers: Arc<Workers>,
    pub(super) share: CachePadded<Mutex<Share>>,
    /// Its values, until they are retired.
    values: CachePadded<Mutex<Option<Values>>>,
    token: OnceLock<Token>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("number", &self.number)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// The last number given to a connection of this process.
static NUMBER: AtomicU64 = AtomicU64::new(0);
/// The time in which a process that connects must say hello.
const HELLO: Duration = Duration::from_secs(5);

impl Client {
    /// Takes a connection on, and watches it. A connection by name has a peer that the kernel knows.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub(crate) fn accept(exported: &Arc<Exported>, socket: OwnedFd, by_name: bool) -> io::Result<()> {
        let peer = if by_name { Some(squall_sys::peer::peer(socket.as_fd())?) } else { None };
        // Relaxed: only the value matters.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
        let user = User::new(peer, number);
        if let Err(refusal) = may_connect(exported, peer, user) {
            refuse(&socket, refusal);
            return Ok(());
        }
        let process = if by_name { socket::process(socket.as_fd())? } else { None };
        let client = Arc::new(Client {
            number,
            peer,
            exported: exported.clone(),
            socket,
            process,
            open: OnceLock::new(),
            dead: AtomicBool::new(false),
            rights: AtomicU64::new(u64::MAX),
            wanted: AtomicUsize::new(0),
            workers: workers::of_user(user),
            share: CachePadded::default(),
            values: CachePadded::new(Mutex::new(Some(Values::new()))),
            token: OnceLock::new(),
        });
        exported.add(user, &client);
        let token = watch::add(client.clone())?;
        let _ = client.token.set(token);
        Ok(())
    }

    /// Number of slots; zero before the hello.
    fn slots(&self) -> u32 {
        self.open.get().map_or(0, |open| open.segment.slots())
    }

    pub(super) fn segment(&self) -> &Segment {
        &self.open.get().expect("a slot is asked for after the hello").segment
    }

    pub(super) fn desk(&self, slot: u32) -> &Desk {
        let open = self.open.get().expect("a slot is asked for after the hello");
        &open.desks[(slot / REGION_SLOTS) as usize].0[(slot % REGION_SLOTS) as usize]
    }

    /// Whether the caller's process is there and the connection is not ended.
    pub(crate) fn is_connected(&self) -> bool {
        !self.dead.load(Ordering::Relaxed)
    }

    /// Methods that this caller may call, as bits.
    pub(crate) fn rights(&self) -> u64 {
        self.rights.load(Ordering::Relaxed) & self.exported.rights()
    }

    /// Changes the rights of this caller. Running calls go on.
    pub(crate) fn change_rights(&self, change: impl Fn(u64) -> u64) {
        // Relaxed: only the value matters.
        let _ = self.rights.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |rights| Some(change(rights)));
    }

    /// Number of calls served.
    pub(crate) fn calls(&self) -> u64 {
        let Some(open) = self.open.get() else { return 0 };
        open.desks.iter().flat_map(|desks| &desks.0).map(|desk| u64::from(desk.served())).sum()
    }

    /// Ends the connection. A running call ends as soon as its method returns.
    pub(crate) fn end(&self) {
        // In the child of a fork the connection is the parent's.
        if squall_sys::fork::forked() {
            return;
        }
        self.dead.store(true, Ordering::Relaxed);
        if let Some(token) = self.token.get() {
            watch::end(*token);
        }
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// The value of this type that belongs to the client, made by `make` if there is none. Once the client's
    /// values are retired, each one is new.
    pub(crate) fn value<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let key = TypeId::of::<T>();
        let find = |values: &Values| values.get(&key).cloned().and_then(|value| value.downcast::<T>().ok());
        if let Some(found) = lock(&self.values, "the values of a client").as_ref().and_then(find) {
            return found;
        }
        // The users' code runs without the lock. The first value counts.
        let made: Arc<T> = Arc::new(make());
        let mut values = lock(&self.values, "the values of a client");
        let Some(values) = values.as_mut() else { return made };
        let first = find(values);
        first.unwrap_or_else(|| {
            values.insert(key, made.clone());
            made
        })
    }

    /// Takes the values of the client out, for good.
    pub(super) fn take_values(&self) -> Values {
        lock(&self.values, "the values of a client").take().unwrap_or_default()
    }

    /// Answers the first message.
    fn welcome(&self, hello: &Hello<'_>) -> Result<(), Refusal> {
        let exported = &self.exported;
        if !exported.is_open() {
            return Err(Refusal::Ended);
        }
        if hello.interface != exported.interface || hello.schema != exported.schema {
            return Err(Refusal::Schema);
        }
        let regions = hello.regions;
        let bytes = layout::segment_bytes(regions).ok_or(Refusal::Malformed)?;
        let (memory, file) = SharedMemory::create(bytes).map_err(|_| Refusal::Busy)?;
        let segment = Segment::new(memory, regions);
        let desks = (0..regions).map(|_| Desks(std::array::from_fn(|_| Desk::new()))).collect();
        if self.open.set(Open { segment, desks }).is_err() {
            return Err(Refusal::Malformed);
        }
        let object = exported.external_id().bits();
        let welcome = Welcome { object, methods: self.rights(), regions };
        let frame = Frame::Welcome(welcome).encode().map_err(|_| Refusal::Malformed)?;
        socket::send(self.socket.as_fd(), &frame, &[file.as_fd()]).map_err(|_| Refusal::Busy)
    }

    /// Handles a frame of the caller.
    fn told(self: &Arc<Self>, frame: Frame<'_>) -> Next {
        match frame {
            Frame::Hello(hello) => match self.welcome(&hello) {
                Ok(()) => Next::Watch,
                Err(Refusal::Schema) => {
                    let signature = self.exported.signature;
                    tell(&self.socket, &Frame::Differs(Differs { signature }));
                    self.over()
                }
                Err(refusal) => {
                    refuse(&self.socket, refusal);
                    self.over()
                }
            },
            Frame::Wake(Wake { slot }) if slot < self.slots() => {
                workers::send(self, slot);
                Next::Watch
            }
            // A frame that no caller sends.
            _ => self.over(),
        }
    }

    /// Ends the connection from within [`Source::ready`].
    fn over(&self) -> Next {
        self.dead.store(true, Ordering::Relaxed);
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        Next::End
    }

    /// Reads one frame. The caller's descriptors are never received (`socket::receive_bytes`).
    fn read(self: &Arc<Self>, buffer: &mut [u8]) -> Next {
        let bytes = match socket::receive_bytes(self.socket.as_fd(), buffer) {
            Ok(Some(bytes)) => bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let ended = self.process.as_ref().is_some_and(|process| socket::is_readable(process.as_fd()));
                return if ended { self.over() } else { Next::Watch };
            }
            Ok(None) | Err(_) => return self.over(),
        };
        match Frame::decode(&buffer[..bytes]) {
            Ok(frame) => self.told(frame),
            Err(error) => {
                let version = matches!(error, FrameError::Version(_));
                refuse(&self.socket, if version { Refusal::Version } else { Refusal::Malformed });
                self.over()
            }
        }
    }
}

fn may_connect(exported: &Exported, peer: Option<Peer>, user: User) -> Result<(), Refusal> {
    if !exported.is_open() {
        return Err(Refusal::Ended);
    }
    if let (Some(users), Some(peer)) = (&exported.settings.users, peer)
        && peer.uid != 0
        && peer.uid != own_user()
        && !users.contains(&peer.uid)
    {
        return Err(Refusal::Denied);
    }
    if exported.has_room(user) { Ok(()) } else { Err(Refusal::Busy) }
}

/// The user of this process.
pub(super) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn refuse(socket: &OwnedFd, refusal: Refusal) {
    tell(socket, &Frame::Refusal(refusal));
}

fn tell(socket: &OwnedFd, frame: &Frame<'_>) {
    // Errors are ignored: the caller may be gone.
    if let Ok(frame) = frame.encode() {
        let _ = socket::send(socket.as_fd(), &frame, &[]);
    }
}

impl Source for Client {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        std::iter::once(self.socket.as_fd()).chain(self.process.as_ref().map(AsFd::as_fd)).collect()
    }

    /// One frame at a time, so that a caller with many frames delays no other one.
    fn ready(self: Arc<Self>) -> Next {
        // Only a hello is long.
        if self.open.get().is_some() {
            self.read(&mut [0; 64])
        } else {
            self.read(&mut vec![0; FRAME_BYTES_MAX])
        }
    }

    fn tick_after(&self) -> Option<Duration> {
        match self.open.get() {
            None => Some(HELLO),
            Some(_) => workers::needs_ticks(self).then_some(self.exported.settings.idle),
        }
    }

    fn tick(self: Arc<Self>) -> Next {
        if self.open.get().is_none() {
            return self.over();
        }
        workers::tick(&self);
        Next::Watch
    }

    fn drained(&self) -> bool {
        self.dead.store(true, Ordering::Relaxed);
        workers::end(self)
    }
}
