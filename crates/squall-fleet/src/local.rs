//! A transport between the nodes of one process, for tests and examples.

use crate::transport::{Receiver, Transport};
use squall_sys::sync::{Condvar, Mutex, MutexGuard, StdArc as Arc, lock, thread};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;

/// The most frames that wait for a node. Later ones are lost.
const QUEUED_MAX: usize = 4_096;

/// A network of one process. Its endpoints are `local/NAME`.
///
/// [`Node`](crate::Node) has an example.
#[derive(Clone, Default)]
pub struct LocalNetwork(Arc<Mutex<HashMap<String, Arc<Queue>>>>);

impl fmt::Debug for LocalNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalNetwork").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    frames: VecDeque<(String, Vec<u8>)>,
    stopped: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state, "the frames of a node")
    }
}

impl LocalNetwork {
    /// Makes a network without nodes.
    pub fn new() -> LocalNetwork {
        LocalNetwork::default()
    }

    /// Makes a transport with the endpoint `local/NAME`.
    ///
    /// # Errors
    /// The network has a transport with this name.
    pub fn bind(&self, name: &str) -> io::Result<LocalTransport> {
        let endpoint = format!("local/{name}");
        let queue = Arc::new(Queue::default());
        let mut queues = lock(&self.0, "a network");
        if queues.contains_key(&endpoint) {
            let text = format!("the network has a transport named {name:?}; choose another name");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        queues.insert(endpoint.clone(), queue.clone());
        drop(queues);
        Ok(LocalTransport { network: self.clone(), endpoint, queue, thread: Mutex::new(None) })
    }
}

/// The transport of one node in a [`LocalNetwork`]. One thread receives.
pub struct LocalTransport {
    network: LocalNetwork,
    endpoint: String,
    queue: Arc<Queue>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl fmt::Debug for LocalTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTransport").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Transport for LocalTransport {
    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    fn start(&self, receiver: Receiver) -> io::Result<()> {
        let queue = self.queue.clone();
        let run = move || {
            loop {
                let mut state = queue.state();
                let (from, frame) = loop {
                    if state.stopped {
                        return;
                    }
                    match state.frames.pop_front() {
                        Some(frame) => break frame,
                        None => {
                            state = queue.changed.wait(state).unwrap_or_else(|poison| poison.into_inner())
                        }
                    }
                };
                drop(state);
                receiver.receive(&from, &frame);
            }
        };
        let thread = thread::Builder::new().name("squall-fleet-local".into()).spawn(run)?;
        *lock(&self.thread, "the thread of a transport") = Some(thread);
        Ok(())
    }

    fn send(&self, to: &str, frame: &[u8]) {
        let queue = lock(&self.network.0, "a network").get(to).cloned();
        let Some(queue) = queue else { return };
        let mut state = queue.state();
        if state.frames.len() < QUEUED_MAX {
            state.frames.push_back((self.endpoint.clone(), frame.to_vec()));
            drop(state);
            queue.changed.notify_one();
        }
    }

    fn stop(&self) {
        let mut queues = lock(&self.network.0, "a network");
        if queues.get(&self.endpoint).is_some_and(|queue| Arc::ptr_eq(queue, &self.queue)) {
            queues.remove(&self.endpoint);
        }
        drop(queues);
        let mut state = self.queue.state();
        state.stopped = true;
        state.frames.clear();
        drop(state);
        self.queue.changed.notify_all();
        let thread = lock(&self.thread, "the thread of a transport").take();
        // A node may be dropped by a service or a callback on this very thread.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Drop for LocalTransport {
    fn drop(&mut self) {
        self.stop();
    }
}
