//! The way of frames between nodes.

use squall_sys::sync::StdArc as Arc;
use std::fmt;
use std::io;

/// Receives the frames of a [`Transport`], on its threads.
#[derive(Clone)]
pub struct Receiver(Arc<dyn Receive>);

/// Takes frames. Its functions run on the transport's threads, at the same time, and do not block.
pub trait Receive: Send + Sync {
    /// Takes a frame. `from` is an endpoint that [`Transport::send`] accepts for an answer. It may be a name
    /// that only this transport knows, if the sender cannot be dialled.
    fn receive(&self, from: &str, frame: &[u8]);

    /// Notes that a run of the transport at an endpoint has ended for certain, as the kernel tells of a
    /// process of this machine. A connection that breaks is no proof. All frames of that run come before, and
    /// frames of a later run at that endpoint come after.
    fn ended(&self, endpoint: &str);
}

impl Receiver {
    /// Makes a receiver.
    pub fn new(receive: impl Receive + 'static) -> Receiver {
        Receiver(Arc::new(receive))
    }

    /// Hands a frame to the node.
    pub fn receive(&self, from: &str, frame: &[u8]) {
        self.0.receive(from, frame);
    }

    /// Tells the node that the transport at an endpoint has ended for certain.
    pub fn ended(&self, endpoint: &str) {
        self.0.ended(endpoint);
    }
}

/// Receives frames alone.
impl<F: Fn(&str, &[u8]) + Send + Sync> Receive for F {
    fn receive(&self, from: &str, frame: &[u8]) {
        self(from, frame);
    }

    fn ended(&self, _: &str) {}
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

/// Carries frames between nodes.
///
/// A frame arrives whole and unchanged, or not at all. It may be lost, late, repeated, and overtaken by
/// others. The protocols of a fleet need no more, so any engine can carry them.
pub trait Transport: Send + Sync + 'static {
    /// Returns the endpoint at which other nodes reach this transport, such as `tcp/10.0.0.1:7447`.
    fn endpoint(&self) -> String;

    /// Begins to receive. Called once, before the first send.
    ///
    /// # Errors
    /// The system has no thread or no socket left.
    fn start(&self, receiver: Receiver) -> io::Result<()>;

    /// Sends a frame. Never blocks for long. A frame that cannot be sent is lost: the node sends again.
    fn send(&self, to: &str, frame: &[u8]);

    /// Ends all connections and threads, and waits for them. The receiver is not called afterwards.
    fn stop(&self);

    /// The largest frame, in bytes.
    fn largest_frame(&self) -> usize {
        1 << 20
    }
}
