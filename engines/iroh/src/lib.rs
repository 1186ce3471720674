//! iroh as a transport of `squall-fleet`: QUIC between nodes that are known by their public keys. No relays,
//! no discovery.
//!
//! An endpoint is written as `iroh/KEY@10.0.0.1:7447`. A connection has a stream in each direction, which
//! begins with the sender's endpoint as its first frame.
//!
//! - I1. The key in a sender's endpoint is the one that the connection has proved.
//! - I2. A send puts the frame into a bounded queue, and a task of the engine writes it. A full queue loses
//!   it.
//!
//! Cost: a runtime of two threads, and a copy of each frame.

use iroh::endpoint::{Connection, QuicTransportConfig, RecvStream, SendStream, presets};
use iroh::{Endpoint, EndpointAddr, EndpointId, RelayMode};
use squall_fleet::{Receiver, Transport};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver as Frames, Sender, channel};

/// The protocol that both sides of a connection speak.
const PROTOCOL: &[u8] = b"squall/1";
/// The largest frame, in bytes.
const FRAME_BYTES: usize = 1 << 20;
/// The most frames that wait for one peer.
const QUEUE_FRAMES: usize = 256;
/// The most peers. Frames for more are lost, and more are not accepted.
const PEERS_MAX: usize = 256;
/// The time after which a silent connection is dead.
const DEAD_AFTER: Duration = Duration::from_secs(3);

/// The reason for the end of a connection.
type Ended = Box<dyn std::error::Error + Send + Sync>;

/// Frames over iroh between the nodes of a fleet.
#[derive(Debug)]
pub struct Iroh {
    shared: Arc<Shared>,
    runtime: Mutex<Option<Runtime>>,
}

#[derive(Debug)]
struct Shared {
    engine: Endpoint,
    endpoint: String,
    receiver: OnceLock<Receiver>,
    peers: Mutex<HashMap<String, Sender<Vec<u8>>>>,
    connections: AtomicUsize,
}

impl Iroh {
    /// Makes a transport with a new key that listens at this address.
    ///
    /// # Errors
    /// The address cannot be bound, or the system has no thread left.
    pub fn new(listen: SocketAddr) -> io::Result<Iroh> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("squall-iroh")
            .enable_all()
            .build()?;
        let settings = QuicTransportConfig::builder()
            .max_idle_timeout(Some(DEAD_AFTER.try_into().map_err(io::Error::other)?))
            .default_path_max_idle_timeout(DEAD_AFTER)
            .keep_alive_interval(DEAD_AFTER / 4)
            .default_path_keep_alive_interval(DEAD_AFTER / 4)
            .build();
        let engine = Endpoint::builder(presets::Minimal)
            .clear_ip_transports()
            .bind_addr(listen)
            .map_err(io::Error::other)?
            .relay_mode(RelayMode::Disabled)
            .transport_config(settings)
            .alpns(vec![PROTOCOL.to_vec()]);
        let engine = runtime.block_on(engine.bind()).map_err(io::Error::other)?;
        let bound = engine.bound_sockets().first().copied().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let shared = Shared {
            endpoint: format!("iroh/{}@{bound}", engine.id()),
            engine,
            receiver: OnceLock::new(),
            peers: Mutex::default(),
            connections: AtomicUsize::new(0),
        };
        Ok(Iroh { shared: Arc::new(shared), runtime: Mutex::new(Some(runtime)) })
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        // Relaxed: the count publishes no other data.
        self.shared.connections.load(Ordering::Relaxed) > 0
    }

    fn runtime(&self) -> MutexGuard<'_, Option<Runtime>> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads an endpoint.
fn parse(endpoint: &str) -> Option<(EndpointId, SocketAddr)> {
    let (key, address) = endpoint.strip_prefix("iroh/")?.split_once('@')?;
    Some((key.parse().ok()?, address.parse().ok()?))
}

impl Shared {
    fn peers(&self) -> MutexGuard<'_, HashMap<String, Sender<Vec<u8>>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections until the engine is closed.
    async fn accept(self: Arc<Shared>) {
        while let Some(incoming) = self.engine.accept().await {
            let shared = Arc::clone(&self);
            tokio::spawn(async move {
                let connection = incoming.accept()?.await?;
                let mut from = connection.accept_uni().await?;
                let name = String::from_utf8(read_frame(&mut from).await?)?;
                // I1.
                if parse(&name).is_none_or(|(key, _)| key != connection.remote_id()) {
                    return Err(Ended::from("the endpoint is not the one of this key"));
                }
                let (sender, frames) = channel(QUEUE_FRAMES);
                {
                    let mut peers = shared.peers();
                    if peers.len() >= PEERS_MAX && !peers.contains_key(&name) {
                        return Err("too many peers".into());
                    }
                    peers.insert(name.clone(), sender.clone());
                }
                shared.carry(&connection, &name, from, frames).await;
                shared.forget(&name, &sender);
                Ok(())
            });
        }
    }

    /// Connects to a peer, and carries its frames until the connection ends.
    async fn dial(self: Arc<Shared>, name: String, sender: Sender<Vec<u8>>, frames: Frames<Vec<u8>>) {
        if let Err(_ended) = self.dialled(&name, frames).await {
            // The frames of the queue are lost with it.
        }
        self.forget(&name, &sender);
    }

    async fn dialled(&self, name: &str, frames: Frames<Vec<u8>>) -> Result<(), Ended> {
        let (key, address) = parse(name).ok_or("no endpoint of this transport")?;
        let to = EndpointAddr::new(key).with_ip_addr(address);
        let connection = self.engine.connect(to, PROTOCOL).await?;
        // Our stream is opened first: the other side answers after it knows our endpoint.
        let mut own = connection.open_uni().await?;
        write_frame(&mut own, self.endpoint.as_bytes()).await?;
        let read = async {
            let mut from = connection.accept_uni().await?;
            read_frame(&mut from).await?;
            self.read(name, from).await
        };
        self.count(&connection, read, write(own, frames)).await;
        Ok(())
    }

    /// Carries the frames of an accepted connection until it ends.
    async fn carry(&self, connection: &Connection, name: &str, from: RecvStream, frames: Frames<Vec<u8>>) {
        let write = async {
            let mut own = connection.open_uni().await?;
            write_frame(&mut own, self.endpoint.as_bytes()).await?;
            write(own, frames).await
        };
        self.count(connection, self.read(name, from), write).await;
    }

    /// Runs both directions until one ends.
    async fn count(
        &self,
        connection: &Connection,
        read: impl Future<Output = Result<(), Ended>>,
        write: impl Future<Output = Result<(), Ended>>,
    ) {
        // Relaxed: the count publishes no other data.
        self.connections.fetch_add(1, Ordering::Relaxed);
        tokio::select! {
            _ = read => {}
            _ = write => {}
        }
        self.connections.fetch_sub(1, Ordering::Relaxed);
        connection.close(0_u32.into(), b"");
    }

    async fn read(&self, name: &str, mut from: RecvStream) -> Result<(), Ended> {
        loop {
            let frame = read_frame(&mut from).await?;
            if let Some(receiver) = self.receiver.get() {
                receiver.receive(name, &frame);
            }
        }
    }

    /// Forgets a peer, unless it has a newer connection.
    fn forget(&self, name: &str, sender: &Sender<Vec<u8>>) {
        let mut peers = self.peers();
        if peers.get(name).is_some_and(|known| known.same_channel(sender)) {
            peers.remove(name);
        }
    }
}

/// Writes the frames of a queue until it is closed.
async fn write(mut to: SendStream, mut frames: Frames<Vec<u8>>) -> Result<(), Ended> {
    while let Some(frame) = frames.recv().await {
        write_frame(&mut to, &frame).await?;
    }
    Ok(())
}

async fn write_frame(to: &mut SendStream, frame: &[u8]) -> Result<(), Ended> {
    let length = u32::try_from(frame.len())?;
    to.write_all(&[&length.to_le_bytes(), frame].concat()).await?;
    Ok(())
}

async fn read_frame(from: &mut RecvStream) -> Result<Vec<u8>, Ended> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await?;
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES {
        return Err("the frame is too large".into());
    }
    let mut frame = vec![0; length];
    from.read_exact(&mut frame).await?;
    Ok(frame)
}

impl Transport for Iroh {
    fn endpoint(&self) -> String {
        self.shared.endpoint.clone()
    }

    fn start(&self, receiver: Receiver) -> io::Result<()> {
        self.shared.receiver.set(receiver).map_err(|_| io::Error::other("the transport has been started"))?;
        let runtime = self.runtime();
        let runtime = runtime.as_ref().ok_or_else(|| io::Error::other("the transport has been stopped"))?;
        runtime.spawn(Arc::clone(&self.shared).accept());
        Ok(())
    }

    fn send(&self, to: &str, frame: &[u8]) {
        if frame.len() > FRAME_BYTES {
            return;
        }
        let mut peers = self.shared.peers();
        let mut frame = frame.to_vec();
        if let Some(sender) = peers.get(to) {
            match sender.try_send(frame) {
                Ok(()) | Err(TrySendError::Full(_)) => return,
                Err(TrySendError::Closed(back)) => frame = back,
            }
        }
        if peers.len() >= PEERS_MAX || parse(to).is_none() {
            return;
        }
        let (sender, frames) = channel(QUEUE_FRAMES);
        // The queue is empty.
        let _ = sender.try_send(frame);
        peers.insert(to.to_owned(), sender.clone());
        drop(peers);
        if let Some(runtime) = self.runtime().as_ref() {
            runtime.spawn(Arc::clone(&self.shared).dial(to.to_owned(), sender, frames));
        }
    }

    fn stop(&self) {
        let Some(runtime) = self.runtime().take() else { return };
        self.shared.peers().clear();
        runtime.block_on(self.shared.engine.close());
        // Dropping the runtime waits for its threads.
        drop(runtime);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// The longest wait for anything.
    const PATIENCE: Duration = Duration::from_secs(120);

    /// Starts a transport that passes on its frames.
    fn start() -> (Iroh, std::sync::mpsc::Receiver<(String, Vec<u8>)>) {
        let (sender, frames) = std::sync::mpsc::channel();
        let node = Iroh::new((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        node.start(Receiver::new(move |from: &str, frame: &[u8]| {
            let _ = sender.send((from.to_owned(), frame.to_vec()));
        }))
        .unwrap();
        (node, frames)
    }

    #[test]
    fn frames_go_both_ways_over_one_connection() {
        let ((a, at_a), (b, at_b)) = (start(), start());
        a.send(&b.endpoint(), b"question");
        assert_eq!(at_b.recv_timeout(PATIENCE), Ok((a.endpoint(), b"question".to_vec())));
        b.send(&a.endpoint(), b"answer");
        assert_eq!(at_a.recv_timeout(PATIENCE), Ok((b.endpoint(), b"answer".to_vec())));
        let large = vec![7; FRAME_BYTES];
        a.send(&b.endpoint(), &large);
        assert!(at_b.recv_timeout(PATIENCE).unwrap().1 == large);
        assert!(a.is_connected() && b.is_connected());
        assert_eq!((a.shared.peers().len(), b.shared.peers().len()), (1, 1));
        a.stop();
        b.stop();
        assert!(!a.is_connected());
    }

    #[test]
    fn an_endpoint_is_a_key_and_an_address() {
        let (a, _frames) = start();
        assert!(parse(&a.endpoint()).is_some());
        for bad in ["", "iroh/", "iroh/x@127.0.0.1:1", "tcp/127.0.0.1:1"] {
            assert!(parse(bad).is_none(), "{bad:?}");
        }
        a.stop();
    }
}
