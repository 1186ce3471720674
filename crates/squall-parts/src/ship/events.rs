//! Batched events: values that are posted to a VP, where a handler gets them in batches.
//!
//! Problem: a message that only says that something happened costs as much to ship as a call. Many of them
//! come at once.
//!
//! Idea: each VP has a bounded buffer. The first event in an empty buffer ships one call, which gives the
//! handler all events that are there when it runs. Later events only join the buffer. If there are some when
//! the handler returns, the call runs again, behind the other calls of the inbox (`inbox/I5`).
//!
//! - I1. While a buffer has events, one call for it is on its way or runs. It ends when it finds the buffer
//!   empty, under the buffer's lock. So a VP's events are handled in the order of their posts, by one thread
//!   at a time.
//! - I2. The handler runs under no lock, and never inside a post.
//!
//! Not promised: that a batch is handled on its VP, as for any shipped call.
//! Cost: a lock for each post, and a call for each batch. The post that sends the call holds the lock while
//! it starts a thread, if none serves the VP.
//! Source: Appavoo 2005, §4.2 (CO-65: the Event Manager). Deviation: no timers.

use super::vps::inbox_of;
use squall_machine::{Vp, machine};
use squall_sys::fork::forked;
use squall_sys::padded::CachePadded;
use squall_sys::panics::end_panic;
use squall_sys::sync::{Arc, Mutex, MutexGuard, lock};
use std::fmt;

/// Events of one type, with their handler.
///
/// An event that was posted is handled, also if this is dropped meanwhile. A panic of the handler ends with
/// its batch, after the panic hook has reported it; the events of the batch are lost.
///
/// # Example
/// ```
/// use squall::Vp;
/// use squall::ship::Events;
/// use std::sync::mpsc::channel;
///
/// let (send, receive) = channel();
/// let events = Events::new(64, move |vp: Vp, batch: Vec<u32>| {
///     batch.into_iter().for_each(|event| send.send((vp, event)).unwrap());
/// });
/// let vp = Vp::new(0);
/// (0..10).for_each(|event| events.post(vp, event).unwrap());
/// let received: Vec<_> = receive.iter().take(10).collect();
/// assert!(received.into_iter().eq((0..10).map(|event| (vp, event))));
/// ```
pub struct Events<T: Send + 'static>(Arc<dyn Handle<T>>);

/// Buffers with their handler, without its type.
trait Handle<T>: Send + Sync {
    fn buffer(&self, vp: Vp) -> &Buffer<T>;
    fn capacity(&self) -> usize;
    fn handle(&self, vp: Vp, batch: Vec<T>);
}

struct Shared<T, F> {
    handler: F,
    capacity: usize,
    /// By VP.
    buffers: Box<[Buffer<T>]>,
}

type Buffer<T> = CachePadded<Mutex<State<T>>>;

struct State<T> {
    events: Vec<T>,
    /// A call for this buffer is on its way or runs (I1).
    called: bool,
}

/// The reason why an event was not posted, with the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError<T> {
    /// The buffer of the VP is full.
    BufferFull(T),
    /// The inbox of the VP is full.
    InboxFull(T),
    /// The system refused a thread to handle the event.
    NoThread(T),
    /// The process is the child of a fork, which has no thread to handle the event.
    Forked(T),
}

impl<T> fmt::Display for PostError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PostError::BufferFull(_) => {
                "the event was not posted: the buffer of its VP is full; post it later"
            }
            PostError::InboxFull(_) => "the event was not posted: the inbox of its VP is full; post it later",
            PostError::NoThread(_) => "the event was not posted: no thread could be started to handle it",
            PostError::Forked(_) => "the event was not posted: the child of a fork may only exec",
        })
    }
}

impl<T: fmt::Debug> std::error::Error for PostError<T> {}

impl<T: Send + 'static> Events<T> {
    /// Makes events with a handler, and buffers of `capacity` events for each VP. The handler gets the VP and
    /// the events that were posted to it.
    ///
    /// # Panics
    /// If `capacity` is 0.
    pub fn new(capacity: usize, handler: impl Fn(Vp, Vec<T>) + Send + Sync + 'static) -> Events<T> {
        assert!(capacity > 0, "a buffer of events needs room for one");
        let buffer = |_| CachePadded::new(Mutex::new(State { events: Vec::new(), called: false }));
        let buffers = (0..machine().vp_limit()).map(buffer).collect();
        Events(Arc::new(Shared { handler, capacity, buffers }))
    }

    /// Posts an event to a VP. The handler runs later, also if it is the calling thread's VP: a post may be
    /// made inside an operation, and with locks that the handler takes.
    ///
    /// An event that no thread has handled when the process ends is lost.
    ///
    /// # Errors
    /// [`PostError`], with the event.
    ///
    /// # Panics
    /// If the machine has no such VP.
    pub fn post(&self, vp: Vp, event: T) -> Result<(), PostError<T>> {
        assert!(machine().vps().contains(vp), "this machine has no {vp}");
        if forked() {
            return Err(PostError::Forked(event));
        }
        let to = inbox_of(vp);
        let mut state = lock_of(self.0.buffer(vp));
        if state.called && to.staff.was_refused() {
            // The call may still wait for a thread.
            to.ask();
        }
        if state.events.len() >= self.0.capacity() {
            return Err(PostError::BufferFull(event));
        }
        state.events.push(event);
        if state.called {
            return Ok(());
        }
        // Under the lock, so that the event is still the last one if this fails.
        let events = self.0.clone();
        let sent = to.inbox.send_repeated(move || drain(&events, vp));
        let why = match sent.map(|ticket| to.let_run(ticket)) {
            Ok(true) => {
                state.called = true;
                return Ok(());
            }
            Ok(false) => PostError::NoThread,
            Err(_) => PostError::InboxFull,
        };
        state.events.pop().map_or(Ok(()), |event| Err(why(event)))
    }
}

/// Gives the handler the events of a buffer. Returns whether there are more, and then is called again (I1).
fn drain<T: Send>(events: &Arc<dyn Handle<T>>, vp: Vp) -> bool {
    let batch = std::mem::take(&mut lock_of(events.buffer(vp)).events);
    end_panic(|| events.handle(vp, batch));
    let mut state = lock_of(events.buffer(vp));
    state.called = !state.events.is_empty();
    state.called
}

fn lock_of<T>(buffer: &Buffer<T>) -> MutexGuard<'_, State<T>> {
    lock(buffer, "a buffer of events")
}

impl<T: Send, F: Fn(Vp, Vec<T>) + Send + Sync> Handle<T> for Shared<T, F> {
    fn buffer(&self, vp: Vp) -> &Buffer<T> {
        &self.buffers[vp.index()]
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn handle(&self, vp: Vp, batch: Vec<T>) {
        (self.handler)(vp, batch);
    }
}

impl<T: Send + 'static> fmt::Debug for Events<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("capacity", &self.0.capacity()).finish_non_exhaustive()
    }
}
