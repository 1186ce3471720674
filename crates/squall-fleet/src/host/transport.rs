//! The transport of one machine, as programs use it.

use super::peers::Shared;
use super::pieces::FRAME_MAX;
use super::serve::serve;
use super::{ENDPOINTS, GREETING_LIMIT};
use crate::link::{LinkListener, LinkOptions};
use crate::transport::{Receiver, Transport};
use squall_sys::fork;
use squall_sys::sync::StdArc as Arc;
use std::fmt;
use std::io;

/// Carries frames between the processes of one machine, over [links](crate::Link). Linux only.
///
/// Its endpoint is `host/NAME`. The first frame to an endpoint makes a thread connect to it. If that fails,
/// the frames that wait are lost, and so are those in a pause of 10 ms to 1 s after it. A link serves both
/// sides. Only processes of the same user are taken on.
///
/// The receiver learns of the end of a peer once, after all frames of it: when its process has ended, by any
/// signal, or when it has stopped its transport. A peer ends a link for no other reason, unless this side
/// broke the protocol. A link that ends by a fault of the peer is no proof, and is not told. The next send to
/// an endpoint whose link has ended connects anew. A process that restarts under its name is heard after the
/// end of the former one was told.
///
/// A process of this user can send frames in the name of another one. Answers go to the holder of the name,
/// and the end of the liar is not told as the end of the holder. If the pid of a peer is not visible in this
/// pid namespace, its end is told only if this side has connected.
///
/// # Cost
/// Two threads, which sleep while no frame comes, and at most 16 for greetings. Each link has a socket and
/// two lanes of 64 KiB, of which unused pages take no memory. At most 256 links; frames that need a further
/// one are lost. At most 256 frames and 2 MiB wait for a link; later ones are lost. Half frames of all peers
/// take 32 MiB at most. A send copies the frame, and takes two locks of this process for a short time. If the
/// peer sleeps, it makes a system call.
///
/// Source: Wentzlaff 2012, §3.2.2 (FO-12).
///
/// # Example
/// ```
/// use squall::fleet::{HostTransport, Receiver, Transport};
/// use std::sync::Arc;
/// use std::sync::mpsc::channel;
///
/// // Usually in another process.
/// let echo = Arc::new(HostTransport::bind(&format!("docs-echo-{}", std::process::id()))?);
/// let answers = echo.clone();
/// echo.start(Receiver::new(move |from: &str, frame: &[u8]| answers.send(from, frame)))?;
///
/// let visitor = HostTransport::unnamed()?;
/// let (sender, received) = channel();
/// visitor.start(Receiver::new(move |_: &str, frame: &[u8]| sender.send(frame.to_vec()).unwrap()))?;
/// visitor.send(&echo.endpoint(), b"hello");
/// assert_eq!(received.recv().unwrap(), b"hello");
/// visitor.stop();
/// echo.stop();
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct HostTransport(Arc<Shared>);

impl HostTransport {
    /// Takes a name. Processes can connect from now on; they wait for [`start`](Transport::start).
    ///
    /// # Errors
    /// `AddrInUse`, if another transport or [`LinkListener`] of this user has the name. `InvalidInput` with
    /// the reason, if it is empty, above 80 bytes, or has control characters. Errors of the system.
    pub fn bind(name: &str) -> io::Result<HostTransport> {
        let options = LinkOptions::new().limit(GREETING_LIMIT);
        let listener =
            LinkListener::bind_with(name, options.clone()).map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => {
                    let why = format!("another process has the name {name:?}: end it, or take another name");
                    io::Error::new(io::ErrorKind::AddrInUse, why)
                }
                _ => error,
            })?;
        fork::arm();
        Ok(HostTransport(Arc::new(Shared::new(name, random()?, listener, options))))
    }

    /// Takes a random name: for a program that others do not look for.
    ///
    /// # Errors
    /// Errors of the system, for example too many open files.
    pub fn unnamed() -> io::Result<HostTransport> {
        HostTransport::bind(&format!("~{:032x}", random()?))
    }
}

/// Returns a random number.
fn random() -> io::Result<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(u128::from_le_bytes(bytes))
}

impl Transport for HostTransport {
    fn endpoint(&self) -> String {
        format!("{ENDPOINTS}{}", self.0.name)
    }

    /// Begins to receive.
    ///
    /// # Errors
    /// The system has no thread left. `InvalidInput`, if the transport was started or stopped before.
    fn start(&self, receiver: Receiver) -> io::Result<()> {
        let shared = self.0.clone();
        self.0.start(move || serve(&shared, receiver))
    }

    /// Sends a frame. It is lost if it is above 1 MiB, or if the endpoint is not one of this transport.
    fn send(&self, to: &str, frame: &[u8]) {
        // In the child of a fork the locks may be held for ever.
        if frame.len() <= FRAME_MAX && to.starts_with(ENDPOINTS) && !fork::forked() {
            self.0.send(to, frame);
        }
    }

    /// Ends all links and threads, and waits for them. A peer that hangs in a greeting holds it up for a few
    /// seconds at most. If a function of the receiver calls it, the thread of the receiver ends after that. A
    /// later call by another thread waits for that end. Further calls return at once.
    fn stop(&self) {
        if !fork::forked() {
            self.0.stop();
        }
    }

    fn largest_frame(&self) -> usize {
        FRAME_MAX
    }
}

impl Drop for HostTransport {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for HostTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTransport").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}
