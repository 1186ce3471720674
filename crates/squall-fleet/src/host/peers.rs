//! The peers of a transport, and their links.
//!
//! - I1. A life is one transport at an endpoint, with a random number. It has all links with that number. It
//!   ends with its last link. If the end of a link proves the end of the life, the receiver is told once:
//!   its endpoint and number are kept, and later links with both are refused. A number alone proves nothing:
//!   a process chooses it.
//! - I2. A life waits for its turn. Its frames are received after an older life of its endpoint has ended,
//!   and was told. So the end of an old life is never taken for the end of a new one.
//! - I3. A link has one of [`LINKS_MAX`] places from the begin of its greeting to its end.
//! - I4. The lock of the peers is taken before the one of a backlog. No code of the program runs under it.

use super::backlog::{Backlog, Frames, Written};
use super::pieces::{piece_bytes, write_piece};
use super::retries::Retries;
use super::{ENDPOINTS, GREETS_MAX, LINKS_MAX, greet};
use crate::link::{LinkError, LinkListener, LinkOptions, LinkReceiver, LinkRequest, LinkSender, Look};
use crate::tasks::{Queue, Wish};
use crate::waiters::wake;
use squall_call::socket;
use squall_machine::park::EventCount;
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::{Mutex, MutexGuard, StdArc as Arc, lock, thread};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Ended lives that are kept.
const ENDED_MAX: usize = 1024;
/// The time after which a listener that the system refuses is tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// The side of a link that sends.
pub(super) struct Outlet {
    pub(super) sender: LinkSender,
    pub(super) backlog: Backlog,
    pub(super) piece_bytes: usize,
    has_ended: AtomicBool,
}

impl Outlet {
    fn new(sender: LinkSender, frames: Frames) -> Outlet {
        let piece_bytes = piece_bytes(sender.largest_message());
        Outlet { sender, backlog: Backlog::new(frames), piece_bytes, has_ended: AtomicBool::new(false) }
    }

    /// Sends or queues a frame. Returns false if the link has ended.
    fn send(&self, frame: &[u8]) -> bool {
        let sent = self.backlog.send(frame, |piece| {
            let mut sent = 0;
            loop {
                let next = write_piece(piece, frame, sent, self.piece_bytes);
                match self.sender.send(piece) {
                    Ok(()) if next == frame.len() => return Written::All,
                    Ok(()) => sent = next,
                    Err(LinkError::Retry { .. }) => return Written::Part(sent),
                    Err(_) => return Written::Ended,
                }
            }
        });
        if !sent {
            self.end();
        }
        sent
    }

    /// Notes that the link has ended.
    pub(super) fn end(&self) {
        // Relaxed: a send that misses it learns of the end from the link.
        self.has_ended.store(true, Ordering::Relaxed);
        self.backlog.end();
    }
}

/// A link after its greeting.
pub(super) struct Fresh {
    pub(super) endpoint: String,
    pub(super) number: u128,
    pub(super) sender: LinkSender,
    pub(super) receiver: LinkReceiver,
    /// The peer holds the name of the endpoint.
    pub(super) is_proved: bool,
    /// The peer has taken the link on (`greet/I1`).
    pub(super) has_consent: bool,
}

/// A link that the transport's thread serves.
pub(super) struct Served {
    pub(super) endpoint: String,
    pub(super) number: u128,
    pub(super) outlet: Arc<Outlet>,
    pub(super) receiver: LinkReceiver,
    pub(super) is_proved: bool,
    pub(super) has_consent: bool,
}

/// One transport at an endpoint.
struct Life {
    number: u128,
    is_proved: bool,
    outlets: Vec<Arc<Outlet>>,
    /// The end of a link has proved the end of the transport.
    has_ended: bool,
}

/// An endpoint.
#[derive(Default)]
struct Peer {
    /// In the order in which they came.
    lives: Vec<Life>,
    /// Frames that wait while a thread connects.
    dial: Option<Frames>,
    /// Tasks that wait for the turn of their life.
    turns: Vec<Waker>,
}

impl Peer {
    /// Returns the link for a send: one of the newest life that holds the name.
    fn outlet(&self) -> Option<&Arc<Outlet>> {
        let life = self.lives.iter().rfind(|life| life.is_proved)?;
        life.outlets.iter().find(|outlet| !outlet.has_ended.load(Ordering::Relaxed))
    }

    fn is_unused(&self) -> bool {
        self.lives.is_empty() && self.dial.is_none()
    }
}

#[derive(Default)]
struct Peers {
    has_started: bool,
    has_stopped: bool,
    /// Holds the name. The thread that accepts has it too.
    listener: Option<Arc<LinkListener>>,
    peers: HashMap<String, Peer>,
    /// Places that are taken.
    links: usize,
    /// Links that the thread has not taken yet.
    fresh: Vec<Served>,
    /// Lives that have ended: their endpoints and numbers.
    ended: VecDeque<(String, u128)>,
    /// Endpoints that wait for a thread that connects.
    dials: VecDeque<String>,
    /// Endpoints that the latest dial did not reach.
    retries: Retries,
    /// Threads that connect.
    connecting: usize,
    /// Threads that greet a process that has connected.
    accepting: usize,
    threads: Vec<thread::JoinHandle<()>>,
    /// The thread that serves links, and runs the functions of the receiver.
    server: Option<thread::ThreadId>,
}

impl Peers {
    /// Returns whether the end of this life was told, or is being told.
    fn has_ended(&self, endpoint: &str, number: u128) -> bool {
        self.ended.iter().any(|(of, ended)| *ended == number && of == endpoint)
    }

    fn forget_unused(&mut self, endpoint: &str) {
        if self.peers.get(endpoint).is_some_and(Peer::is_unused) {
            self.peers.remove(endpoint);
        }
    }

    /// Ends a dial. Frames that still wait are lost.
    fn end_dial(&mut self, endpoint: &str, is_added: bool) {
        if !is_added {
            self.retries.failed(endpoint, Instant::now());
        }
        if let Some(peer) = self.peers.get_mut(endpoint) {
            peer.dial = None;
        }
        self.forget_unused(endpoint);
    }

    /// Takes a link on: the thread is to serve it. Returns it, if it is refused.
    fn add(&mut self, fresh: Fresh) -> Result<(), Fresh> {
        if self.has_stopped || self.has_ended(&fresh.endpoint, fresh.number) {
            return Err(fresh);
        }
        let Fresh { endpoint, number, sender, receiver, is_proved, has_consent } = fresh;
        let peer = self.peers.entry(endpoint.clone()).or_default();
        if is_proved {
            self.retries.reached(&endpoint);
        }
        let waits = if is_proved { peer.dial.as_mut() } else { None };
        let frames = waits.map(std::mem::take).unwrap_or_default();
        let outlet = Arc::new(Outlet::new(sender, frames));
        let life = peer.lives.iter_mut().find(|life| life.number == number && life.is_proved == is_proved);
        match life {
            Some(life) => life.outlets.push(outlet.clone()),
            None => {
                let outlets = vec![outlet.clone()];
                peer.lives.push(Life { number, is_proved, outlets, has_ended: false });
            }
        }
        self.fresh.push(Served { endpoint, number, outlet, receiver, is_proved, has_consent });
        Ok(())
    }

    fn keep(&mut self, thread: thread::JoinHandle<()>) {
        self.threads.retain(|thread| !thread.is_finished());
        self.threads.push(thread);
    }
}

/// The parts of a transport that its threads share.
pub(super) struct Shared {
    pub(super) name: String,
    /// The number of this life.
    pub(super) number: u128,
    pub(super) options: LinkOptions,
    pub(super) queue: Arc<Queue>,
    peers: Mutex<Peers>,
    /// A place for a thread that accepts became free, or the transport stops.
    changed: EventCount,
}

fn spawn(name: &str, act: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(act)
}

impl Shared {
    pub(super) fn new(name: &str, number: u128, listener: LinkListener, options: LinkOptions) -> Shared {
        Shared {
            name: name.to_owned(),
            number,
            options,
            queue: Arc::new(Queue::new()),
            peers: Mutex::new(Peers { listener: Some(Arc::new(listener)), ..Peers::default() }),
            changed: EventCount::new(),
        }
    }

    /// Returns whether the end of this life was told, or is being told (I1).
    pub(super) fn has_ended(&self, endpoint: &str, number: u128) -> bool {
        self.lock().has_ended(endpoint, number)
    }

    fn lock(&self) -> MutexGuard<'_, Peers> {
        lock(&self.peers, "the peers of a transport")
    }

    pub(super) fn send(self: &Arc<Shared>, to: &str, frame: &[u8]) {
        let mut peers = self.lock();
        loop {
            if peers.has_stopped {
                return;
            }
            let Some(outlet) = peers.peers.get(to).and_then(Peer::outlet).cloned() else { break };
            drop(peers);
            if outlet.send(frame) {
                return;
            }
            drop(outlet);
            peers = self.lock();
        }
        if let Some(frames) = peers.peers.get_mut(to).and_then(|peer| peer.dial.as_mut()) {
            frames.add(frame);
            return;
        }
        if peers.links == LINKS_MAX || !peers.retries.may_begin(to, Instant::now()) {
            return;
        }
        peers.links += 1;
        let mut frames = Frames::default();
        frames.add(frame);
        peers.peers.entry(to.to_owned()).or_default().dial = Some(frames);
        if peers.connecting == GREETS_MAX {
            peers.dials.push_back(to.to_owned());
            return;
        }
        peers.connecting += 1;
        let (shared, first) = (self.clone(), to.to_owned());
        // Under the lock, so that a stop finds the thread.
        match spawn("squall-connects", move || shared.connect_all(first)) {
            Ok(thread) => peers.keep(thread),
            Err(_) => {
                peers.connecting -= 1;
                peers.links -= 1;
                peers.end_dial(to, false);
            }
        }
    }

    /// Connects to an endpoint, and to those that wait for it.
    fn connect_all(&self, first: String) {
        let mut next = Some(first);
        while let Some(endpoint) = next.take() {
            let name = endpoint.strip_prefix(ENDPOINTS).unwrap_or_default();
            // Frames to an endpoint without a transport are lost. The sender learns that from silence.
            let fresh = greet::connect(self, name).ok();
            self.add(fresh, |peers, is_added| {
                peers.end_dial(&endpoint, is_added);
                next = peers.dials.pop_front();
                peers.connecting -= usize::from(next.is_none());
            });
        }
    }

    /// Ends a greeting: takes the link on, or frees its place. Calls `act` under the lock, with
    /// whether the link was taken on.
    fn add(&self, fresh: Option<Fresh>, act: impl FnOnce(&mut Peers, bool)) {
        let mut peers = self.lock();
        let added = fresh.map(|fresh| peers.add(fresh));
        let is_added = matches!(added, Some(Ok(())));
        peers.links -= usize::from(!is_added);
        act(&mut peers, is_added);
        drop(peers);
        if is_added {
            self.queue.wake_idle();
        }
        // A refused link ends here, without the lock.
        drop(added);
    }

    /// Accepts processes that connect, until the transport stops.
    fn accept_all(self: &Arc<Shared>, listener: &LinkListener) {
        // A day: a stop ends the wait.
        const WAIT: Duration = Duration::from_secs(24 * 60 * 60);
        loop {
            let seen = self.changed.prepare();
            let peers = self.lock();
            if peers.has_stopped {
                return;
            }
            let is_full = peers.accepting == GREETS_MAX;
            drop(peers);
            if is_full {
                self.changed.wait(seen, None);
                continue;
            }
            match listener.look() {
                Ok(Look::Request(request)) => self.accept(request),
                Ok(Look::Refused) => {}
                // A stop makes it readable, so that this thread looks again.
                Ok(Look::Nothing) => {
                    let _ = socket::wait_until_readable(listener.as_fd(), Instant::now() + WAIT);
                }
                // Too many open files, for example. The process still waits.
                Err(_) => self.changed.wait(seen, Some(PAUSE)),
            }
        }
    }

    /// Takes on a process that has connected, or refuses it.
    fn accept(self: &Arc<Shared>, request: LinkRequest) {
        let mut peers = self.lock();
        if peers.has_stopped || peers.links == LINKS_MAX || request.uid() != socket::own_user() {
            return;
        }
        let shared = self.clone();
        let accepts = move || {
            let fresh = greet::accept(&shared, request).ok();
            shared.add(fresh, |peers, _| peers.accepting -= 1);
            shared.changed.signal(1);
        };
        // Without a thread the process is refused. Under the lock, so that a stop finds the thread.
        if let Ok(thread) = spawn("squall-accepts", accepts) {
            peers.links += 1;
            peers.accepting += 1;
            peers.keep(thread);
        }
    }

    /// Returns the links that are new.
    pub(super) fn take_fresh(&self) -> Vec<Served> {
        std::mem::take(&mut self.lock().fresh)
    }

    /// Waits for the turn of a life (I2).
    pub(super) fn poll_turn(&self, served: &Served, waker: &Waker) -> Poll<()> {
        let mut peers = self.lock();
        let Some(peer) = peers.peers.get_mut(&served.endpoint) else { return Poll::Ready(()) };
        match peer.lives.iter().find(|life| life.is_proved) {
            Some(life) if served.is_proved && life.number != served.number => {
                peer.turns.push(waker.clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Notes the end of a link, after all its frames. Calls `tell`, if it is the proved end of a life (I1).
    pub(super) fn end(&self, served: Served, is_proof: bool, tell: impl FnOnce(&str)) {
        let Served { endpoint, number, outlet, receiver, is_proved, .. } = served;
        outlet.end();
        let is_this = |life: &Life| life.number == number && life.is_proved == is_proved;
        let mut peers = self.lock();
        peers.links -= 1;
        let peer = peers.peers.get_mut(&endpoint);
        let Some(life) = peer.and_then(|peer| peer.lives.iter_mut().find(|life| is_this(life))) else {
            return;
        };
        life.outlets.retain(|other| !Arc::ptr_eq(other, &outlet));
        life.has_ended |= is_proof && is_proved;
        let (is_last, has_ended) = (life.outlets.is_empty(), life.has_ended);
        if is_last && has_ended {
            if peers.ended.len() == ENDED_MAX {
                peers.ended.pop_front();
            }
            peers.ended.push_back((endpoint.clone(), number));
            drop(peers);
            // The life keeps its place meanwhile, so that no later one has its turn.
            tell(&endpoint);
            peers = self.lock();
        }
        let mut turns = Vec::new();
        if is_last && let Some(peer) = peers.peers.get_mut(&endpoint) {
            peer.lives.retain(|life| !is_this(life));
            turns = std::mem::take(&mut peer.turns);
        }
        peers.forget_unused(&endpoint);
        drop(peers);
        turns.into_iter().for_each(wake);
        drop((outlet, receiver));
    }

    /// Starts the thread that serves links, and the one that accepts processes.
    pub(super) fn start(self: &Arc<Shared>, serve: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut peers = self.lock();
        let listener = peers.listener.clone().filter(|_| !std::mem::replace(&mut peers.has_started, true));
        let Some(listener) = listener else {
            let why = format!("the transport {ENDPOINTS}{} was started or stopped before", self.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        let server = spawn("squall-links", serve)?;
        peers.server = Some(server.thread().id());
        peers.threads.push(server);
        let shared = self.clone();
        peers.threads.push(spawn("squall-accepts", move || shared.accept_all(&listener))?);
        Ok(())
    }

    /// Ends all links and threads, and waits for them. The thread that serves links does not wait for itself,
    /// and leaves its handle to a later stop by another thread.
    pub(super) fn stop(&self) {
        let own = thread::current().id();
        let mut peers = self.lock();
        peers.has_stopped = true;
        peers.dials.clear();
        // An earlier stop may have the handles, and wait for this thread.
        let is_own = peers.server == Some(own);
        let threads: Vec<_> = peers.threads.extract_if(.., |thread| thread.thread().id() != own).collect();
        let listener = peers.listener.take();
        drop(peers);
        // Wakes the thread that accepts.
        let _ = listener.map(|listener| socket::shut_down(listener.as_fd()));
        self.changed.signal(u32::MAX);
        self.queue.ask(Wish::Stop);
        for thread in threads {
            // A panic was reported by the panic hook.
            let _ = thread.join();
        }
        let mut peers = self.lock();
        let (lives, fresh) = (std::mem::take(&mut peers.peers), std::mem::take(&mut peers.fresh));
        drop(peers);
        drop(fresh);
        for outlet in lives.into_values().flat_map(|peer| peer.lives).flat_map(|life| life.outlets) {
            outlet.end();
            // Other threads send at most. They hold the link for the time of a copy.
            while !is_own && Arc::strong_count(&outlet) > 1 {
                thread::yield_now();
            }
        }
    }
}
