//! Events that invocations depend on.
//!
//! - I1. An invocation leaves the line once: let go, cancelled, or dropped with the last handle of its event.
//! - I2. While an event is open or cancelled nothing waits for it.

use std::collections::VecDeque;
use std::fmt;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::InvokeError;
use super::executor::execute;
use super::handle::Runner;

/// The most invocations that wait for one event; later ones end with [`InvokeError::Full`].
pub const WAITING_MAX: usize = 1 << 16;

/// Something that invocations depend on ([`event_dependent`](super::event_dependent)): others decide by it whether they run,
/// when, and how many. Cloning gives another handle of the same event.
///
/// It begins closed. When its last handle is dropped, what waits ends with [`InvokeError::Dropped`].
#[derive(Clone)]
pub struct Event(Arc<Mutex<State>>);

struct State {
    gate: Gate,
    waiting: VecDeque<Box<dyn Waiting>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Closed,
    Open,
    Cancelled,
}

/// An invocation that waits, whatever its result is.
pub(super) trait Waiting: Send {
    fn go(self: Box<Self>);
    fn cancel(self: Box<Self>, error: InvokeError);
}

impl<R: Send + 'static> Waiting for Runner<R> {
    fn go(self: Box<Self>) {
        execute(self.into_work());
    }
    fn cancel(self: Box<Self>, error: InvokeError) {
        self.give_up(error);
    }
}

impl Event {
    /// A closed one.
    pub fn new() -> Event {
        Event(Arc::new(Mutex::new(State { gate: Gate::Closed, waiting: VecDeque::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing of the users' runs under it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the invocation that waits longest run; whether there was one. What is not waited for is not remembered.
    pub fn signal(&self) -> bool {
        self.signal_many(1) > 0
    }

    /// Lets so many run, in the order in which they came; how many there were.
    pub fn signal_many(&self, count: usize) -> usize {
        let mut state = self.lock();
        let count = count.min(state.waiting.len());
        let going: Vec<_> = state.waiting.drain(..count).collect();
        drop(state);
        going.into_iter().for_each(|waiting| waiting.go());
        count
    }

    /// Lets all run that wait, and from now on each at once; how many waited.
    pub fn open(&self) -> usize {
        let waiting = self.set(Gate::Open);
        let count = waiting.len();
        waiting.into_iter().for_each(|waiting| waiting.go());
        count
    }

    /// From now on they wait.
    pub fn close(&self) {
        // While it was open or cancelled nothing waited (I2); while it was closed all may go on waiting.
        self.lock().gate = Gate::Closed;
    }

    /// Ends all that wait with [`InvokeError::Cancelled`], and each that comes until it is opened or closed again; how many
    /// waited.
    pub fn cancel(&self) -> usize {
        let waiting = self.set(Gate::Cancelled);
        let count = waiting.len();
        waiting.into_iter().for_each(|waiting| waiting.cancel(InvokeError::Cancelled));
        count
    }

    fn set(&self, gate: Gate) -> VecDeque<Box<dyn Waiting>> {
        let mut state = self.lock();
        state.gate = gate;
        take(&mut state.waiting)
    }

    /// Whether invocations run at once.
    pub fn is_open(&self) -> bool {
        self.lock().gate == Gate::Open
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    pub(super) fn admit(&self, waiting: Box<dyn Waiting>) {
        let mut state = self.lock();
        match state.gate {
            Gate::Closed if state.waiting.len() < WAITING_MAX => state.waiting.push_back(waiting),
            gate => {
                drop(state);
                match gate {
                    Gate::Open => waiting.go(),
                    Gate::Cancelled => waiting.cancel(InvokeError::Cancelled),
                    Gate::Closed => waiting.cancel(InvokeError::Full),
                }
            }
        }
    }
}

impl Default for Event {
    fn default() -> Event {
        Event::new()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Event").field("gate", &state.gate).field("waiting", &state.waiting.len()).finish()
    }
}
