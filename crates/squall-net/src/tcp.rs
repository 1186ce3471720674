//! The transport.

use crate::cipher::Secret;
use crate::fault::ConnectionFault;
use crate::frame::endpoint;
use crate::keeper::{Keeper, Shared, add};
use crate::peer::Sent;
use squall_fleet::{Receiver, Transport};
use squall_sys::sync::atomic::Ordering;
use squall_sys::sync::thread::JoinHandle;
use squall_sys::sync::{Mutex, StdArc as Arc, lock};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// The largest frame, in bytes.
const FRAME_BYTES: usize = 1 << 20;

/// Limits of [`TcpBuilder::dead_after`]. The kernel counts in milliseconds, and probes after 9 hours at most.
const DEAD_AFTER_MIN: Duration = Duration::from_millis(1);
const DEAD_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) frame_bytes: usize,
    pub(crate) queue_bytes: usize,
    pub(crate) connections: usize,
    pub(crate) half_open: usize,
    pub(crate) dead_after: Duration,
    /// The secret of encrypted connections.
    pub(crate) secret: Option<Secret>,
}

/// Settings of a [`Tcp`] transport.
#[derive(Clone, Debug)]
#[must_use]
pub struct TcpBuilder {
    listen: SocketAddr,
    advertise: Option<SocketAddr>,
    settings: Settings,
}

impl TcpBuilder {
    /// Tells other nodes this address in place of the address to listen at. Needed for a transport that
    /// listens at all addresses of the machine, or behind a translation of addresses. Port 0 stands for the
    /// port that the transport listens at.
    ///
    /// With encryption, other nodes reach this one by this address alone, also as a seed.
    pub fn advertise(mut self, address: SocketAddr) -> TcpBuilder {
        self.advertise = Some(address);
        self
    }

    /// Sets the most bytes of frames that wait for one peer; 4 MiB by default. Further frames are lost.
    pub fn queue_bytes(mut self, bytes: usize) -> TcpBuilder {
        self.settings.queue_bytes = bytes;
        self
    }

    /// Sets the most connections, with those that are being made; 256 by default. Each has a thread.
    pub fn connections(mut self, most: usize) -> TcpBuilder {
        self.settings.connections = most;
        self
    }

    /// Sets the most accepted connections that have not yet said hello; 32 by default.
    ///
    /// If there is no room for a further one, the site with the most of them loses one, and within it the
    /// host with the most. So no site locks others out, but as many sites as `most` can. A host is an address
    /// of version 4, or a network of version 6 with 64 bits. A site is an address of version 4, or a network
    /// of version 6 with 48 bits.
    pub fn half_open(mut self, most: usize) -> TcpBuilder {
        self.settings.half_open = most.max(1);
        self
    }

    /// Sets the time after which a silent connection is dead; 3 seconds by default.
    ///
    /// The time counts from the first byte that the other side does not acknowledge. So a node that reads
    /// nothing for so long, while frames for it wait, loses its connection too. An idle connection is probed,
    /// in whole seconds and at least one. A dial and a hello may take this long.
    ///
    /// A time below 1 ms counts as 1 ms, and one above a day as a day.
    pub fn dead_after(mut self, time: Duration) -> TcpBuilder {
        self.settings.dead_after = time.clamp(DEAD_AFTER_MIN, DEAD_AFTER_MAX);
        self
    }

    /// Encrypts all connections with the key of the group. Needs the feature `noise`.
    ///
    /// All nodes of the group must do so: a connection between a transport with encryption and one without is
    /// refused. [`Tcp::last_fault`] tells the reason, on both sides.
    ///
    /// # Security
    /// Only holders of the key can make a connection. Others can neither read frames nor change, repeat,
    /// reorder or forge them, and an attempt ends the connection. Each connection has fresh keys. So a key of
    /// the group that leaks later does not open frames that were recorded before. Frames that the group has
    /// sent without encryption do not tell the key.
    ///
    /// Others still see the addresses, and the lengths and times of frames. They can cut connections and hold
    /// up bytes. A holder of the key is trusted: it can claim the endpoint of another node on its own
    /// address, or in the answer to a dial. A node that answers in place of another one with its own endpoint
    /// is refused.
    ///
    /// # Cost
    /// A connection needs one round trip more before its first frame, and four operations on Curve25519. Each
    /// frame is copied and encrypted once on each side, and has 20 bytes more for each 64 KiB.
    ///
    /// Source: Perrin, *The Noise Protocol Framework*, 2018: the pattern `NNpsk0`.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::{GroupKey, NameOptions, NodeBuilder, ServiceCall};
    /// use squall_net::Tcp;
    /// use std::time::Duration;
    ///
    /// let key = GroupKey::random();
    /// let transport = || Tcp::builder("127.0.0.1:0".parse().unwrap()).encrypt(key).build();
    /// let (node, root) = NodeBuilder::new(key).found(transport()?, &[])?;
    /// let shout = |call: ServiceCall<'_>| Some(call.body.to_ascii_uppercase());
    /// node.serve(&"/shout".parse()?, &root, NameOptions::new(), shout)?;
    ///
    /// let client = NodeBuilder::new(key).visit(transport()?, &[&node.endpoint()])?;
    /// assert_eq!(client.call(&"/shout".parse()?, 0, b"hello", Duration::from_secs(60))?, b"HELLO");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "noise")]
    pub fn encrypt(mut self, key: squall_fleet::GroupKey) -> TcpBuilder {
        self.settings.secret = Some(Secret::new(key));
        self
    }

    /// Binds the socket. Connections are accepted after [`Transport::start`].
    ///
    /// # Errors
    /// The address is in use or not of this machine. It stands for all addresses of the machine, and none is
    /// advertised.
    pub fn build(self) -> io::Result<Tcp> {
        let listener = TcpListener::bind(self.listen).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen at {}: {error}", self.listen))
        })?;
        let bound = listener.local_addr()?;
        let mut public = self.advertise.unwrap_or(bound);
        if public.port() == 0 {
            public.set_port(bound.port());
        }
        if public.ip().is_unspecified() {
            let text = format!("{public} is no address that others can dial; call `advertise` with one");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let shared = Arc::new(Shared::new(self.settings, endpoint(public))?);
        Ok(Tcp { shared, state: Mutex::new(State::New(listener)) })
    }
}

/// Frames over TCP between the nodes of a fleet.
///
/// One connection serves both directions: the side that dials tells its endpoint. A connection is made for
/// the first frame, and again for the first frame after its end. Dials that fail are repeated after pauses of
/// 10 ms to 1 s, as long as frames are sent. The pauses also grow for a peer that ends each connection
/// within a second, without a frame. Frames that wait when a dial fails are lost.
///
/// Endpoints are written as `tcp/10.0.0.1:7447` or `tcp/[fd00::1]:7447`. Names of hosts are not looked up.
/// The sender of a frame is known by its endpoint if the connection comes from the address in it. Any other
/// sender has a name that only this transport knows. It is valid until that connection ends.
///
/// Threads: `squall-net` keeps the connections, and `squall-net-read` reads one of them. The receiver runs on
/// the latter, and should not block: it holds up the frames of that connection alone.
///
/// # Security
/// By default, connections are neither encrypted nor authenticated. Any program that reaches the port can
/// send frames, and a program on the address of a node can take its place. Use a network that only the fleet
/// uses, a tunnel, or `TcpBuilder::encrypt` (feature `noise`). Bytes of another protocol end their connection
/// and no other.
///
/// # Cost
/// A send to a connected peer is one system call on the calling thread. A frame is received by one system
/// call, or with others by one.
///
/// # Example
/// ```
/// use squall::fleet::{Receiver, Transport};
/// use squall_net::Tcp;
/// use std::sync::{Arc, mpsc::channel};
///
/// let anywhere = "127.0.0.1:0".parse()?;
/// let server = Arc::new(Tcp::builder(anywhere).build()?);
/// let answers = Arc::downgrade(&server);
/// server.start(Receiver::new(move |from: &str, frame: &[u8]| {
///     if let Some(server) = answers.upgrade() {
///         server.send(from, &frame.to_ascii_uppercase());
///     }
/// }))?;
///
/// let client = Tcp::builder(anywhere).build()?;
/// let (sender, frames) = channel();
/// client.start(Receiver::new(move |_: &str, frame: &[u8]| sender.send(frame.to_vec()).unwrap()))?;
/// client.send(&server.endpoint(), b"hello");
/// assert_eq!(frames.recv()?, b"HELLO");
/// client.stop();
/// server.stop();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Tcp {
    shared: Arc<Shared>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    New(TcpListener),
    Started(JoinHandle<()>),
    Stopped,
}

/// Counts of a [`Tcp`] transport since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpStats {
    /// Frames that the kernel or a queue took.
    pub sent: u64,
    /// Frames that were handed to the receiver.
    pub received: u64,
    /// Frames that were not sent: their queue was full, or their peer could not be reached.
    pub lost: u64,
    /// Connections that are open now, each with one thread.
    pub connections: u64,
    /// Accepted connections that were closed, because of a limit or because they sent no hello.
    pub refused: u64,
}

impl Tcp {
    /// Makes the settings of a transport that listens at this address. Port 0 stands for any free port.
    pub fn builder(listen: SocketAddr) -> TcpBuilder {
        let settings = Settings {
            frame_bytes: FRAME_BYTES,
            queue_bytes: 4 << 20,
            connections: 256,
            half_open: 32,
            dead_after: Duration::from_secs(3),
            secret: None,
        };
        TcpBuilder { listen, advertise: None, settings }
    }

    /// Returns the latest connection that failed since its sides do not agree on encryption, or since its
    /// bytes were changed, if there was one.
    pub fn last_fault(&self) -> Option<ConnectionFault> {
        self.shared.last_fault()
    }

    /// Returns the counts.
    pub fn stats(&self) -> TcpStats {
        let counts = &self.shared.counts;
        // Relaxed: the counts publish no other data.
        let [sent, received, lost, connections, refused] =
            [&counts.sent, &counts.received, &counts.lost, &counts.connections, &counts.refused]
                .map(|count| count.load(Ordering::Relaxed));
        TcpStats { sent, received, lost, connections, refused }
    }
}

impl Transport for Tcp {
    fn endpoint(&self) -> String {
        self.shared.endpoint.clone()
    }

    fn start(&self, receiver: Receiver) -> io::Result<()> {
        let mut state = lock(&self.state, "the state of the transport");
        match std::mem::replace(&mut *state, State::Stopped) {
            State::New(listener) => {
                *state = State::Started(Keeper::start(Arc::clone(&self.shared), listener, receiver)?);
                Ok(())
            }
            other => {
                *state = other;
                let text =
                    format!("the transport {} has been started; make another one", self.shared.endpoint);
                Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
            }
        }
    }

    fn send(&self, to: &str, frame: &[u8]) {
        let settings = &self.shared.settings;
        let mut sent = Sent::Lost;
        if frame.len() <= settings.frame_bytes {
            while let Some(peer) = self.shared.peer(to) {
                sent = peer.send(frame, settings.queue_bytes);
                match sent {
                    Sent::Forgotten => continue,
                    Sent::Dial => self.shared.order_dial(peer),
                    Sent::Flush => self.shared.order_flush(peer),
                    Sent::Taken | Sent::Lost => {}
                }
                break;
            }
        }
        let counts = &self.shared.counts;
        let taken = matches!(sent, Sent::Taken | Sent::Dial | Sent::Flush);
        add(if taken { &counts.sent } else { &counts.lost }, 1);
    }

    /// Ends all connections and threads, and waits for them. Called by the receiver, it does not wait.
    fn stop(&self) {
        self.shared.order_stop();
        if self.shared.is_inside() {
            return;
        }
        let mut state = lock(&self.state, "the state of the transport");
        if let State::Started(keeper) = std::mem::replace(&mut *state, State::Stopped) {
            // A panic of the keeper was printed by its thread.
            let _ = keeper.join();
        }
        self.shared.close();
    }

    fn largest_frame(&self) -> usize {
        self.shared.settings.frame_bytes
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.stop();
    }
}
