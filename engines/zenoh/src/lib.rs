//! Zenoh as a transport of `squall-fleet`: peer mode, explicit endpoints, no multicast, no gossip, no shared
//! memory.
//!
//! Problem: Zenoh takes the endpoints to dial when a session opens, and has no stable call to dial later.
//! Idea: one session listens. Each dialled endpoint has a session of its own. A node subscribes to the key of
//! its endpoint in all its sessions, so an answer takes the session that the frame came by.
//!
//! - I1. A frame is one `put` that is dropped when the engine is congested, so a send does not wait.
//! - I2. A session is opened by a thread that then ends. Frames sent before it is open are lost.
//!
//! Not promised: that a frame arrives, in particular before the other side's subscription is known.
//! Cost: about 8 threads of the engine in a process, and one copy of each frame.

use squall_fleet::{Receiver, Transport};
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use zenoh::bytes::ZBytes;
use zenoh::pubsub::Subscriber;
use zenoh::qos::CongestionControl;
use zenoh::{Config, Session, Wait};

/// The time after which a silent connection is dead.
const LEASE: Duration = Duration::from_secs(3);
/// The most endpoints that are dialled. Frames for more are lost.
const DIALS_MAX: usize = 256;

/// Frames over Zenoh between the nodes of a fleet.
#[derive(Debug)]
pub struct Zenoh {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    endpoint: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    receiver: Option<Receiver>,
    /// The session that listens.
    listening: Option<Open>,
    /// The sessions that dial, by endpoint. `None` while one opens.
    dialled: HashMap<String, Option<Open>>,
    opening: Vec<JoinHandle<()>>,
    stopped: bool,
}

#[derive(Debug)]
struct Open {
    session: Session,
    subscriber: Subscriber<()>,
}

impl Zenoh {
    /// Makes a transport that listens at this address, once it is started. The port must not be 0.
    pub fn new(listen: SocketAddr) -> Zenoh {
        let endpoint = format!("tcp/{listen}");
        Zenoh { shared: Arc::new(Shared { endpoint, state: Mutex::default() }) }
    }

    /// Whether some session has a connection.
    pub fn is_connected(&self) -> bool {
        let sessions: Vec<Session> = {
            let state = self.shared.state();
            let open = state.dialled.values().flatten().chain(&state.listening);
            open.map(|open| open.session.clone()).collect()
        };
        sessions.iter().any(|session| session.info().peers_zid().wait().next().is_some())
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session that listens or dials.
    fn open(&self, receiver: Receiver, listen: &[&str], dial: &[&str]) -> zenoh::Result<Open> {
        let session = zenoh::open(config(listen, dial)?).wait()?;
        let receive = move |sample: zenoh::sample::Sample| {
            let from =
                sample.attachment().and_then(|from| from.try_to_string().ok().map(|from| from.into_owned()));
            if let Some(from) = from {
                receiver.receive(&from, &sample.payload().to_bytes());
            }
        };
        let subscriber = session.declare_subscriber(key(&self.endpoint)).callback(receive).wait()?;
        Ok(Open { session, subscriber })
    }

    fn put(&self, session: &Session, to: &str, frame: &[u8]) {
        let put = session.put(key(to), ZBytes::from(frame)).attachment(self.endpoint.as_str());
        // A frame may be lost (I1).
        let _ = put.congestion_control(CongestionControl::Drop).express(true).wait();
    }
}

impl Open {
    fn close(self) {
        // Both fail only if the session has closed already.
        let _ = self.subscriber.undeclare().wait();
        let _ = self.session.close().wait();
    }
}

impl Transport for Zenoh {
    fn endpoint(&self) -> String {
        self.shared.endpoint.clone()
    }

    fn start(&self, receiver: Receiver) -> io::Result<()> {
        let open =
            self.shared.open(receiver.clone(), &[&self.shared.endpoint], &[]).map_err(io::Error::other)?;
        let mut state = self.shared.state();
        state.listening = Some(open);
        state.receiver = Some(receiver);
        Ok(())
    }

    fn send(&self, to: &str, frame: &[u8]) {
        let mut state = self.shared.state();
        let session = match state.dialled.get(to) {
            Some(Some(open)) => open.session.clone(),
            Some(None) => return,
            None => {
                let Some(listening) = &state.listening else { return };
                let session = listening.session.clone();
                // A node that dialled us has subscribed to its key in our session.
                if accepted(&session, to) {
                    session
                } else {
                    if !state.stopped && state.dialled.len() < DIALS_MAX {
                        state.dial(&self.shared, to);
                    }
                    return;
                }
            }
        };
        drop(state);
        self.shared.put(&session, to, frame);
    }

    fn stop(&self) {
        let opening = {
            let mut state = self.shared.state();
            state.stopped = true;
            std::mem::take(&mut state.opening)
        };
        for thread in opening {
            // A panic of the thread was printed by it.
            let _ = thread.join();
        }
        let (listening, dialled) = {
            let mut state = self.shared.state();
            state.receiver = None;
            (state.listening.take(), std::mem::take(&mut state.dialled))
        };
        dialled.into_values().flatten().chain(listening).for_each(Open::close);
    }
}

impl State {
    /// Opens a session to an endpoint, in a thread (I2).
    fn dial(&mut self, shared: &Arc<Shared>, to: &str) {
        let Some(receiver) = self.receiver.clone() else { return };
        self.opening.retain(|thread| !thread.is_finished());
        let (own, endpoint) = (Arc::clone(shared), to.to_owned());
        let open = move || {
            let open = own.open(receiver, &[], &[&endpoint]).ok();
            let mut state = own.state();
            match open {
                Some(open) => drop(state.dialled.insert(endpoint, Some(open))),
                None => drop(state.dialled.remove(&endpoint)),
            }
        };
        if let Ok(thread) = Builder::new().name("squall-zenoh".to_owned()).spawn(open) {
            self.dialled.insert(to.to_owned(), None);
            self.opening.push(thread);
        }
    }
}

/// Whether a node with this endpoint has subscribed in our session.
fn accepted(session: &Session, to: &str) -> bool {
    let publisher = session.declare_publisher(key(to)).wait();
    publisher.is_ok_and(|publisher| publisher.matching_status().wait().is_ok_and(|status| status.matching()))
}

/// The key of an endpoint: one segment, in which all but letters and digits are written as numbers.
fn key(endpoint: &str) -> String {
    let mut key = String::from("squall/");
    for byte in endpoint.bytes() {
        if byte.is_ascii_alphanumeric() {
            key.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(key, "_{byte:02x}");
        }
    }
    key
}

fn config(listen: &[&str], dial: &[&str]) -> zenoh::Result<Config> {
    let mut config = Config::default();
    let list = |endpoints: &[&str]| format!("{endpoints:?}");
    let settings = [
        ("mode", "\"peer\"".to_owned()),
        ("listen/endpoints", list(listen)),
        ("listen/exit_on_failure", "true".to_owned()),
        ("connect/endpoints", list(dial)),
        // Dials in the background, again and again.
        ("connect/timeout_ms", "-1".to_owned()),
        ("connect/exit_on_failure", "false".to_owned()),
        (
            "connect/retry",
            "{ period_init_ms: 10, period_max_ms: 1000, period_increase_factor: 2 }".to_owned(),
        ),
        ("scouting/multicast/enabled", "false".to_owned()),
        ("scouting/gossip/enabled", "false".to_owned()),
        ("transport/shared_memory/enabled", "false".to_owned()),
        ("transport/link/tx/lease", LEASE.as_millis().to_string()),
        ("transport/link/tx/keep_alive", "4".to_owned()),
    ];
    for (name, value) in settings {
        config.insert_json5(name, &value)?;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};
    use std::sync::mpsc::channel;
    use std::time::Instant;

    /// The longest wait for anything.
    const PATIENCE: Duration = Duration::from_secs(120);

    /// Starts a transport that passes on its frames.
    fn start() -> (Zenoh, std::sync::mpsc::Receiver<(String, Vec<u8>)>) {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let (sender, frames) = channel();
        let node = Zenoh::new(free);
        node.start(Receiver::new(move |from: &str, frame: &[u8]| {
            let _ = sender.send((from.to_owned(), frame.to_vec()));
        }))
        .unwrap();
        (node, frames)
    }

    #[test]
    fn frames_go_both_ways_over_one_dial() {
        let ((a, at_a), (b, at_b)) = (start(), start());
        let began = Instant::now();
        let arrived = loop {
            assert!(began.elapsed() < PATIENCE, "no frame came");
            a.send(&b.endpoint(), b"question");
            if let Ok(arrived) = at_b.recv_timeout(Duration::from_millis(10)) {
                break arrived;
            }
        };
        assert_eq!(arrived, (a.endpoint(), b"question".to_vec()));
        b.send(&a.endpoint(), b"answer");
        assert_eq!(at_a.recv_timeout(PATIENCE), Ok((b.endpoint(), b"answer".to_vec())));
        assert!(b.shared.state().dialled.is_empty());
        assert!(a.is_connected() && b.is_connected());
        a.stop();
        b.stop();
        assert!(!a.is_connected());
    }

    #[test]
    fn endpoints_have_different_keys() {
        assert_eq!(key("tcp/1.2.3.4:5"), "squall/tcp_2f1_2e2_2e3_2e4_3a5");
        assert_ne!(key("tcp/[::1]:5"), key("tcp/[:1:]:5"));
    }
}
