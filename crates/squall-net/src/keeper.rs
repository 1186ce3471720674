//! The keeper: the thread that makes connections, and the threads that read them.
//!
//! Problem: dialling, accepting and the rest of a full queue take time, which a sender does not have.
//! Idea: one thread waits for all of it with `poll`. Each connection has a thread that reads, since a
//! blocking read is the fastest way to a frame.
//!
//! - I1. An order for the keeper is put into a list under a lock, and then an event is set. The keeper reads
//!   the event before it empties the list, so it misses no order.
//! - I2. Each reading thread ends when its connection does, and the keeper joins it. So at the keeper's end
//!   all threads have ended, and the receiver is not called any more.
//! - I3. Accepted connections without a whole greeting are at most `half_open`. Each connection has at most
//!   `dead_after` for its greeting, also a dialled one. If there is no room for a further one, the site with
//!   the most of them loses the oldest one of its host with the most. If the site of the new one has as many,
//!   that site alone makes room. A new one of a host with as many as each other host there is refused.
//! - I4. All connections are at most `connections`.
//!
//! Cost: an idle keeper sleeps. It wakes for orders, new connections and the ends of pauses.

use crate::cipher::Opener;
use crate::fault::{ConnectionFault, FaultReason};
use crate::frame::{address, hello};
use crate::greet::{Asked, Greeted, HalfOpen, Secured, greet};
use crate::peer::{Flushed, Link, Peer};
use crate::read::Reading;
use crate::tcp::Settings;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use squall_fleet::Receiver;
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use squall_sys::sync::thread::{Builder, JoinHandle, ThreadId, current};
use squall_sys::sync::{Mutex, StdArc as Arc, lock};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The most peers without a connection. More than these are not remembered, and frames for them are lost.
const PEERS_MAX: usize = 4096;
/// The time after which a peer without a connection is forgotten. Longer than the longest pause.
const FORGET_AFTER: Duration = Duration::from_secs(10);
/// The pause before the next `accept` if the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Unanswered probes after which a silent connection is dead.
const PROBES: u32 = 3;

/// The state that senders, readers and the keeper share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    /// The endpoint of this node.
    pub(crate) endpoint: String,
    peers: Mutex<Peers>,
    orders: Mutex<Orders>,
    event: OwnedFd,
    pub(crate) counts: Counts,
    fault: Mutex<Option<ConnectionFault>>,
}

#[derive(Debug, Default)]
struct Peers {
    by_name: HashMap<Box<str>, Arc<Peer>>,
    /// Whether the transport has stopped, so that no peer is made.
    closed: bool,
}

#[derive(Debug, Default)]
struct Orders {
    dial: Vec<Arc<Peer>>,
    flush: Vec<Arc<Peer>>,
    /// The connections with readers that are about to end.
    ended: Vec<u64>,
    /// The threads of this transport, so that `stop` knows whether one of them calls it.
    threads: Vec<ThreadId>,
    stop: bool,
    /// Whether the event tells of these orders already.
    told: bool,
}

/// Counts of a transport.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// Adds to a count.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    // Relaxed: the counts publish no other data.
    count.fetch_add(more, Ordering::Relaxed);
}

impl Shared {
    pub(crate) fn new(settings: Settings, endpoint: String) -> io::Result<Shared> {
        Ok(Shared {
            settings,
            endpoint,
            peers: Mutex::default(),
            orders: Mutex::default(),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            counts: Counts::default(),
            fault: Mutex::default(),
        })
    }

    /// Notes the fault of a connection with this endpoint or address.
    pub(crate) fn note_fault(&self, remote: &str, reason: FaultReason) {
        let fault = ConnectionFault { local: self.endpoint.clone(), remote: remote.to_owned(), reason };
        *lock(&self.fault, "the latest fault") = Some(fault);
    }

    /// Returns the latest fault.
    pub(crate) fn last_fault(&self) -> Option<ConnectionFault> {
        lock(&self.fault, "the latest fault").clone()
    }

    /// Finds the peer of this name, or makes it. Returns `None` if that is not possible.
    pub(crate) fn peer(&self, name: &str) -> Option<Arc<Peer>> {
        let mut peers = lock(&self.peers, "the peers");
        if let Some(peer) = peers.by_name.get(name) {
            return Some(Arc::clone(peer));
        }
        if peers.closed || peers.by_name.len() >= PEERS_MAX {
            return None;
        }
        // A name that cannot be dialled belongs to a connection that has ended.
        let peer = Arc::new(Peer::new(name, Some(address(name)?)));
        peers.by_name.insert(name.into(), Arc::clone(&peer));
        Some(peer)
    }

    /// Finds or makes the peer of an accepted connection.
    fn accepted_peer(&self, name: &str, address: Option<SocketAddr>) -> Option<Arc<Peer>> {
        let mut peers = lock(&self.peers, "the peers");
        if peers.closed {
            return None;
        }
        let peer = peers.by_name.entry(name.into()).or_insert_with(|| Arc::new(Peer::new(name, address)));
        Some(Arc::clone(peer))
    }

    /// Removes the peer if it has neither a connection nor frames.
    fn forget_if_idle(&self, peer: &Arc<Peer>) {
        let mut peers = lock(&self.peers, "the peers");
        if peer.forget_if_idle()
            && peers.by_name.get(&peer.name).is_some_and(|known| Arc::ptr_eq(known, peer))
        {
            peers.by_name.remove(&peer.name);
        }
    }

    /// Removes all peers. No further one is made.
    pub(crate) fn close(&self) {
        let peers = {
            let mut peers = lock(&self.peers, "the peers");
            peers.closed = true;
            std::mem::take(&mut peers.by_name)
        };
        for peer in peers.values() {
            add(&self.counts.lost, peer.forget() as u64);
        }
    }

    fn order(&self, give: impl FnOnce(&mut Orders)) {
        let mut orders = lock(&self.orders, "the keeper's orders");
        give(&mut orders);
        if !std::mem::replace(&mut orders.told, true) {
            // Fails only if the event is set already.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    pub(crate) fn order_dial(&self, peer: Arc<Peer>) {
        self.order(|orders| orders.dial.push(peer));
    }

    pub(crate) fn order_flush(&self, peer: Arc<Peer>) {
        self.order(|orders| orders.flush.push(peer));
    }

    pub(crate) fn order_stop(&self) {
        self.order(|orders| orders.stop = true);
    }

    /// Orders the end of a connection with a reader that is about to end.
    pub(crate) fn order_join(&self, id: u64) {
        self.order(|orders| orders.ended.push(id));
    }

    /// Notes that the calling thread belongs to this transport.
    pub(crate) fn enter(&self) {
        let own = current().id();
        lock(&self.orders, "the keeper's orders").threads.push(own);
    }

    /// Whether the calling thread belongs to this transport.
    pub(crate) fn is_inside(&self) -> bool {
        let own = current().id();
        lock(&self.orders, "the keeper's orders").threads.contains(&own)
    }
}

/// A dial in progress.
#[derive(Debug)]
struct Dial {
    stream: TcpStream,
    peer: Arc<Peer>,
    until: Instant,
}

/// A connection that is read.
#[derive(Debug)]
struct Open {
    link: Arc<Link>,
    peer: Arc<Peer>,
    /// Returns whether the connection was of use.
    reader: JoinHandle<bool>,
}

/// The state of the keeper's thread.
#[derive(Debug)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    receiver: Receiver,
    listener: TcpListener,
    accept_after: Option<Instant>,
    half_open: Vec<HalfOpen>,
    dials: Vec<Dial>,
    /// Dialled connections that wait for a greeting.
    asked: Vec<Asked>,
    /// Peers to dial at these times.
    later: Vec<(Arc<Peer>, Instant)>,
    /// Peers to forget at these times, unless they are in use by then.
    idle: Vec<(Arc<Peer>, Instant)>,
    /// Connections that take no bytes now.
    blocked: Vec<(Arc<Peer>, Arc<Link>)>,
    open: HashMap<u64, Open>,
    next_id: u64,
}

/// The sources of events, in the order of the polled descriptors.
#[derive(Default)]
struct Ready {
    accept: bool,
    half_open: Vec<bool>,
    dials: Vec<bool>,
    asked: Vec<bool>,
    blocked: Vec<bool>,
}

impl Keeper {
    /// Starts the thread.
    pub(crate) fn start(
        shared: Arc<Shared>,
        listener: TcpListener,
        receiver: Receiver,
    ) -> io::Result<JoinHandle<()>> {
        listener.set_nonblocking(true)?;
        let mut keeper = Keeper {
            shared,
            receiver,
            listener,
            accept_after: None,
            half_open: Vec::new(),
            dials: Vec::new(),
            asked: Vec::new(),
            later: Vec::new(),
            idle: Vec::new(),
            blocked: Vec::new(),
            open: HashMap::new(),
            next_id: 0,
        };
        Builder::new().name("squall-net".to_owned()).spawn(move || {
            keeper.shared.enter();
            while keeper.turn() {}
            keeper.end();
        })
    }

    /// Waits for events and handles them. Returns whether to go on.
    fn turn(&mut self) -> bool {
        let ready = self.wait();
        let orders = {
            // Reads the event before the orders (I1). Fails only if the event is not set.
            let _ = rustix::io::read(&self.shared.event, &mut [0_u8; 8]);
            let mut orders = lock(&self.shared.orders, "the keeper's orders");
            orders.told = false;
            let (dial, flush) = (std::mem::take(&mut orders.dial), std::mem::take(&mut orders.flush));
            (dial, flush, std::mem::take(&mut orders.ended), orders.stop)
        };
        let (dial, flush, ended, stop) = orders;
        if stop {
            return false;
        }
        let now = Instant::now();
        // The indices of `ready` hold until the lists change: the later entries first.
        self.write_blocked(&ready.blocked);
        self.read_greetings(&ready.asked, now);
        self.end_dials(&ready.dials, now);
        self.read_hellos(&ready.half_open, now);
        if ready.accept {
            self.accept(now);
        }
        ended.into_iter().for_each(|id| self.collect(id, now));
        for peer in flush {
            if let Some(link) = peer.link() {
                self.flush(peer, link);
            }
        }
        dial.into_iter().for_each(|peer| self.dial(peer, now));
        due(&mut self.later, now).into_iter().for_each(|peer| self.dial(peer, now));
        // A peer in use comes into the list again when its connection or dial ends.
        due(&mut self.idle, now).iter().for_each(|peer| self.shared.forget_if_idle(peer));
        true
    }

    /// Sleeps until an event, or the next point in time.
    fn wait(&self) -> Ready {
        let now = Instant::now();
        let accepts = self.accept_after.is_none_or(|at| at <= now);
        let mut polled = vec![PollFd::new(&self.shared.event, PollFlags::IN)];
        if accepts {
            polled.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        polled.extend(self.half_open.iter().map(|half| PollFd::new(&half.stream, PollFlags::IN)));
        polled.extend(self.dials.iter().map(|dial| PollFd::new(&dial.stream, PollFlags::OUT)));
        polled.extend(self.asked.iter().map(|asked| PollFd::new(&asked.stream, PollFlags::IN)));
        polled.extend(self.blocked.iter().map(|(_, link)| PollFd::new(&link.stream, PollFlags::OUT)));
        let times = self.half_open.iter().map(|half| half.until);
        let times = times.chain(self.dials.iter().map(|dial| dial.until));
        let times = times.chain(self.asked.iter().map(|asked| asked.until));
        let times = times.chain(self.later.iter().chain(&self.idle).map(|(_, at)| *at));
        let next = times.chain(self.accept_after.filter(|_| !accepts)).min();
        let timeout = next.and_then(|at| Timespec::try_from(at.saturating_duration_since(now)).ok());
        if poll(&mut polled, timeout.as_ref()).is_err() {
            // Interrupted: every list is looked at, and waits again.
            return Ready::default();
        }
        let mut happened = polled.iter().skip(1).map(|fd| !fd.revents().is_empty());
        Ready {
            accept: accepts && happened.next().unwrap_or(false),
            half_open: happened.by_ref().take(self.half_open.len()).collect(),
            dials: happened.by_ref().take(self.dials.len()).collect(),
            asked: happened.by_ref().take(self.asked.len()).collect(),
            blocked: happened.collect(),
        }
    }

    fn write_blocked(&mut self, ready: &[bool]) {
        for (at, (peer, link)) in std::mem::take(&mut self.blocked).into_iter().enumerate() {
            if ready.get(at) == Some(&true) {
                self.flush(peer, link);
            } else if peer.link().is_some_and(|current| current.id == link.id) {
                self.blocked.push((peer, link));
            }
        }
    }

    fn flush(&mut self, peer: Arc<Peer>, link: Arc<Link>) {
        let waits = self.blocked.iter().any(|(_, blocked)| blocked.id == link.id);
        match peer.flush(&link) {
            Flushed::Blocked if !waits => self.blocked.push((peer, link)),
            Flushed::Broken => self.dial(peer, Instant::now()),
            Flushed::Blocked | Flushed::Done => {}
        }
    }

    /// Begins to dial a peer, now or after its pause.
    fn dial(&mut self, peer: Arc<Peer>, now: Instant) {
        let Some(at) = peer.dial_at(now) else { return };
        if at > now {
            return self.later.push((peer, at));
        }
        let begun = match peer.address {
            Some(address) if self.connections() < self.shared.settings.connections => begin_dial(address),
            _ => Err(ErrorKind::Other.into()),
        };
        match begun {
            Ok(stream) => {
                self.dials.push(Dial { stream, peer, until: now + self.shared.settings.dead_after })
            }
            Err(_) => self.fail(peer, now),
        }
    }

    /// The connections, and those that are being made.
    fn connections(&self) -> usize {
        self.open.len() + self.dials.len() + self.asked.len() + self.half_open.len()
    }

    fn fail(&mut self, peer: Arc<Peer>, now: Instant) {
        add(&self.shared.counts.lost, peer.failed(now) as u64);
        self.idle.push((peer, now + FORGET_AFTER));
    }

    fn end_dials(&mut self, ready: &[bool], now: Instant) {
        for (at, dial) in std::mem::take(&mut self.dials).into_iter().enumerate() {
            if ready.get(at) == Some(&true) {
                match finish_dial(&dial.stream).and_then(|()| self.prepare(&dial.stream)) {
                    Ok(()) => self.ask(dial, now),
                    Err(_) => self.fail(dial.peer, now),
                }
            } else if dial.until <= now {
                self.fail(dial.peer, now);
            } else {
                self.dials.push(dial);
            }
        }
    }

    /// Greets the other side of a dialled connection.
    fn ask(&mut self, dial: Dial, now: Instant) {
        let Dial { stream, peer, .. } = dial;
        let (settings, endpoint) = (&self.shared.settings, &self.shared.endpoint);
        let Some(secret) = &settings.secret else {
            return match greet(&stream, &hello(endpoint)) {
                Ok(()) => self.open(stream, peer, None, true, now),
                Err(_) => self.fail(peer, now),
            };
        };
        match Asked::begin(stream, peer, now + settings.dead_after, secret, endpoint) {
            Ok(asked) => self.asked.push(asked),
            Err(peer) => self.fail(peer, now),
        }
    }

    fn read_greetings(&mut self, ready: &[bool], now: Instant) {
        for (at, mut asked) in std::mem::take(&mut self.asked).into_iter().enumerate() {
            match if ready.get(at) == Some(&true) { asked.read() } else { Ok(None) } {
                Ok(Some(secured)) => self.open(asked.stream, asked.peer, Some(secured), true, now),
                Ok(None) if asked.until > now => self.asked.push(asked),
                failed => {
                    if let Err(Some(reason)) = failed {
                        self.shared.note_fault(&asked.peer.name, reason);
                    }
                    self.fail(asked.peer, now);
                }
            }
        }
    }

    /// Sets the options of a connection.
    fn prepare(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        let dead_after = self.shared.settings.dead_after;
        let probe = (dead_after / (PROBES + 1)).max(Duration::from_secs(1));
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, probe)?;
        sockopt::set_tcp_keepintvl(stream, probe)?;
        sockopt::set_tcp_keepcnt(stream, PROBES)?;
        let millis = u32::try_from(dead_after.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(stream, millis)?;
        Ok(())
    }

    fn accept(&mut self, now: Instant) {
        self.accept_after = None;
        // As many as one list holds, so that others get their turn.
        for _ in 0..self.shared.settings.half_open {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    let settings = &self.shared.settings;
                    let until = now + settings.dead_after;
                    let has_room = self.half_open.len() < settings.half_open
                        && self.connections() < settings.connections;
                    if !has_room {
                        // One of the two is refused: the new one, or one that makes room for it.
                        add(&self.shared.counts.refused, 1);
                        let hosts: Vec<Host> =
                            self.half_open.iter().map(|half| Host::of(half.from.ip())).collect();
                        match displaced(&hosts, Host::of(from.ip())) {
                            Some(at) => drop(self.half_open.remove(at)),
                            None => continue,
                        }
                    }
                    self.half_open.push(HalfOpen::new(stream, from, until));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if lacks_resources(&error) => {
                    self.accept_after = Some(now + ACCEPT_PAUSE);
                    return;
                }
                // The connection ended before it was accepted.
                Err(_) => {}
            }
        }
    }

    fn read_hellos(&mut self, ready: &[bool], now: Instant) {
        for (at, mut half) in std::mem::take(&mut self.half_open).into_iter().enumerate() {
            let (secret, endpoint) = (self.shared.settings.secret.as_ref(), &self.shared.endpoint);
            let greeted = if ready.get(at) == Some(&true) { half.read(secret, endpoint) } else { Ok(None) };
            match greeted {
                Ok(Some(greeted)) => self.welcome(half, greeted, now),
                Ok(None) if half.until > now => self.half_open.push(half),
                failed => {
                    if let Err(Some(reason)) = failed {
                        self.shared.note_fault(&half.name(), reason);
                    }
                    add(&self.shared.counts.refused, 1);
                }
            }
        }
    }

    /// Answers the hello of an accepted connection, and begins to read it.
    fn welcome(&mut self, half: HalfOpen, greeted: Greeted, now: Instant) {
        let Greeted { claimed, secured } = greeted;
        // Frames for an endpoint go to the address in it, or to a connection from that address.
        let credible = address(&claimed).filter(|address| same_host(address.ip(), half.from.ip()));
        let peer = match credible {
            Some(_) => self.shared.accepted_peer(&claimed, credible),
            None => self.shared.accepted_peer(&format!("tcp-from/{}#{}", half.from, self.next_id), None),
        };
        let Some(peer) = peer else { return };
        let prepared = self.prepare(&half.stream).and_then(|()| match &secured {
            None => greet(&half.stream, &hello(&self.shared.endpoint)),
            // Answered already.
            Some(_) => Ok(()),
        });
        match prepared {
            Ok(()) => self.open(half.stream, peer, secured, false, now),
            Err(_) => self.shared.forget_if_idle(&peer),
        }
    }

    /// Begins to write to a connection, and to read it.
    fn open(
        &mut self,
        stream: TcpStream,
        peer: Arc<Peer>,
        secured: Option<Secured>,
        dialled: bool,
        now: Instant,
    ) {
        let id = self.next_id;
        self.next_id += 1;
        let (keys, opener) = secured.map_or((None, Opener::default()), |(keys, opener)| (Some(keys), opener));
        let link = Arc::new(Link { id, stream, keys });
        // First, so that an answer to the first frame finds the connection.
        match peer.connect(Arc::clone(&link)) {
            Flushed::Blocked => self.blocked.push((Arc::clone(&peer), Arc::clone(&link))),
            Flushed::Broken => self.dial(Arc::clone(&peer), now),
            Flushed::Done => {}
        }
        let reading = Reading {
            shared: Arc::clone(&self.shared),
            link: Arc::clone(&link),
            peer: Arc::clone(&peer),
            receiver: self.receiver.clone(),
            opener,
        };
        add(&self.shared.counts.connections, 1);
        match Builder::new().name("squall-net-read".to_owned()).spawn(move || reading.run(dialled)) {
            Ok(reader) => {
                self.open.insert(id, Open { link, peer, reader });
            }
            // The system has no thread left. Dropping the reading has ended the connection.
            Err(_) => self.ended(id, peer, false, now),
        }
    }

    /// Joins the reader of a connection that has ended.
    fn collect(&mut self, id: u64, now: Instant) {
        let Some(Open { peer, reader, .. }) = self.open.remove(&id) else { return };
        let proven = self.join(reader);
        self.ended(id, peer, proven, now);
    }

    /// Forgets a connection that has ended, and its peer if it is idle.
    fn ended(&mut self, id: u64, peer: Arc<Peer>, proven: bool, now: Instant) {
        // Relaxed: the counts publish no other data.
        self.shared.counts.connections.fetch_sub(1, Ordering::Relaxed);
        let ended = peer.disconnected(id, proven, now);
        add(&self.shared.counts.lost, ended.lost as u64);
        if ended.dial {
            self.dial(peer, now);
        } else if proven {
            self.shared.forget_if_idle(&peer);
        } else {
            // The peer is kept for its pause.
            self.idle.push((peer, now + FORGET_AFTER));
        }
    }

    fn join(&self, reader: JoinHandle<bool>) -> bool {
        let own = reader.thread().id();
        // A reader that panicked in the receiver had a frame.
        let proven = reader.join().unwrap_or(true);
        lock(&self.shared.orders, "the keeper's orders").threads.retain(|known| *known != own);
        proven
    }

    /// Ends all connections, and waits for their readers (I2).
    fn end(mut self) {
        self.shared.close();
        let open = std::mem::take(&mut self.open);
        open.values().for_each(|read| read.link.end());
        for read in open.into_values() {
            self.join(read.reader);
            // Relaxed: the counts publish no other data.
            self.shared.counts.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Takes the peers with a time that has come.
fn due(peers: &mut Vec<(Arc<Peer>, Instant)>, now: Instant) -> Vec<Arc<Peer>> {
    peers.extract_if(.., |(_, at)| *at <= now).map(|(peer, _)| peer).collect()
}

/// Whether two addresses are of one host. One of version 4 may be written as one of version 6.
fn same_host(one: IpAddr, other: IpAddr) -> bool {
    one.to_canonical() == other.to_canonical()
}

/// A host, for the limit of connections without a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Host {
    /// Its address of version 4, or its network of version 6 with 48 bits.
    site: u64,
    /// Its address of version 4, or its network of version 6 with 64 bits. One host may have all addresses of
    /// such a network.
    number: u64,
}

impl Host {
    fn of(address: IpAddr) -> Host {
        match address.to_canonical() {
            IpAddr::V4(address) => Host { site: address.to_bits().into(), number: address.to_bits().into() },
            // The networks below 2^32 are reserved, and have the loopback alone.
            IpAddr::V6(address) => {
                let number = (address.to_bits() >> 64) as u64;
                Host { site: number & !0xffff, number }
            }
        }
    }
}

/// Chooses the connection that makes room for one of the host `new` (I3). `hosts` are those of the
/// connections, in the order of their age. Returns `None` if the new one is refused.
fn displaced(hosts: &[Host], new: Host) -> Option<usize> {
    let of_new_site = hosts.iter().filter(|host| host.site == new.site).count();
    let (fullest, most) = most_frequent(hosts.iter().map(|host| host.site))?;
    let site = if most > of_new_site + 1 { fullest } else { new.site };
    let of_new = hosts.iter().filter(|host| **host == new).count();
    let (number, most) =
        most_frequent(hosts.iter().filter(|host| host.site == site).map(|host| host.number))?;
    if site == new.site && most <= of_new + 1 {
        return None;
    }
    hosts.iter().position(|host| *host == Host { site, number })
}

/// Returns the most frequent number and its count: of equal ones, the one that came first.
fn most_frequent(numbers: impl Iterator<Item = u64> + Clone) -> Option<(u64, usize)> {
    let mut counts = HashMap::new();
    numbers.clone().for_each(|number| *counts.entry(number).or_insert(0_usize) += 1);
    let most = counts.values().copied().max()?;
    numbers.into_iter().find(|number| counts.get(number) == Some(&most)).map(|number| (number, most))
}

/// Whether the process or the system has no descriptor or memory for a connection.
fn lacks_resources(error: &io::Error) -> bool {
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    lacks.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Begins to connect, without waiting.
fn begin_dial(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the result of a dial.
fn finish_dial(stream: &TcpStream) -> io::Result<()> {
    sockopt::socket_error(stream)??;
    // A socket that dials a free port of its own host may get that port, and is then connected to itself.
    if stream.local_addr()? == stream.peer_addr()? {
        Err(ErrorKind::ConnectionRefused.into())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_with_the_most_half_open_connections_makes_room() {
        let host = |number: u64| Host { site: number, number };
        let displaced =
            |hosts: &[u64], new| displaced(&hosts.iter().copied().map(host).collect::<Vec<_>>(), host(new));
        assert_eq!(displaced(&[7, 1, 1, 1], 2), Some(1));
        assert_eq!(displaced(&[2, 1, 1, 1], 2), Some(1));
        // Of hosts with equal shares, none loses one to another.
        assert_eq!(displaced(&[2, 2, 1, 1], 2), None);
        assert_eq!(displaced(&[1, 2, 3], 4), None);
        assert_eq!(displaced(&[1, 1, 1], 1), None);
        assert_eq!(displaced(&[], 1), None);
        let mut hosts = vec![1; 32];
        // The new host comes up to its share.
        let mut came = 0;
        while let Some(at) = displaced(&hosts, 2) {
            hosts.remove(at);
            hosts.push(2);
            came += 1;
        }
        assert_eq!((came, hosts.iter().filter(|host| **host == 1).count()), (16, 16));
    }

    #[test]
    fn a_site_with_many_networks_has_the_share_of_one() {
        let of = |text: &str| Host::of(text.parse().unwrap());
        // Each of the networks of one site has one connection.
        let mut hosts: Vec<Host> = (0..32).map(|net| of(&format!("2001:db8:1:{net:x}::1"))).collect();
        let (attacker, other) = (of("2001:db8:1:ffff::1"), of("2001:db8:2:1::1"));
        let mut came = 0;
        while let Some(at) = displaced(&hosts, other) {
            assert_eq!(hosts.remove(at).site, attacker.site);
            hosts.push(other);
            came += 1;
            // It takes none back, with a fresh network either.
            assert_eq!(displaced(&hosts, attacker), None);
        }
        assert_eq!(came, 16);
        assert!(displaced(&hosts, of("10.0.0.1")).is_some());
        // Within a site, the host with the most makes room.
        let hosts = ["2001:db8:2:1::1", "2001:db8:1:2::1", "2001:db8:1:3::1", "2001:db8:1:3::2"].map(of);
        assert_eq!(displaced(&hosts, of("2001:db8:3::1")), Some(2));
        assert_eq!(displaced(&hosts, attacker), Some(2));
        assert_eq!(displaced(&hosts[..3], attacker), None);
    }

    #[test]
    fn a_host_is_an_address_of_version_4_or_a_network_of_version_6() {
        let of = |text: &str| Host::of(text.parse().unwrap());
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.2").site, of("10.0.0.1").site);
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:1"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
        assert_eq!(of("2001:db8:0:1::1").site, of("2001:db8::1").site);
        assert_ne!(of("2001:db8:1::1").site, of("2001:db8::1").site);
    }
}
