//! Events that invocations depend on.
//!
//! - I1. An invocation leaves the queue once: released, cancelled, or dropped with the last clone of its
//!   event.
//! - I2. While an event is open or cancelled, its queue is empty.

use std::collections::VecDeque;
use std::fmt;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::InvokeError;
use super::executor::execute;
use super::handle::Runner;

/// Largest number of invocations that wait for one event. Later ones end with [`InvokeError::Full`].
pub const WAITING_MAX: usize = 1 << 16;

/// An event that invocations depend on (see [`event_dependent`](super::event_dependent)). Other threads use
/// it to decide whether, when, and how many of the invocations run. A clone is the same event.
///
/// It begins closed. When the last clone is dropped, waiting invocations end with [`InvokeError::Dropped`].
///
/// ```
/// use squall::policy::invoke::{Event, event_dependent};
/// # #[squall::interface]
/// # trait Mail: Send + Sync { fn send(&self, n: u64) -> u64; }
/// # struct Post;
/// # impl Mail for Post { fn send(&self, n: u64) -> u64 { n } }
/// # let mail: squall::Owned<dyn Mail> = squall::shared(Post);
/// let ready = Event::new();
/// let pending = event_dependent(&ready, mail.handle(), |mail| mail.send(7));
/// assert!(!ready.is_open());
/// assert_eq!(ready.open(), 1);
/// assert_eq!(pending.wait()?, 7);
/// # Ok::<(), squall::policy::invoke::InvokeError>(())
/// ```
#[derive(Clone)]
pub struct Event(Arc<Mutex<State>>);

struct State {
    phase: Phase,
    waiting: VecDeque<Box<dyn Waiting>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    Open,
    Cancelled,
}

/// A waiting invocation, with the type of its result erased.
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
    /// Creates a closed event.
    pub fn new() -> Event {
        Event(Arc::new(Mutex::new(State { phase: Phase::Closed, waiting: VecDeque::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // User code does not run under this lock, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the invocation that has waited longest. Returns `true` if there was one. A signal without a
    /// waiting invocation is lost.
    ///
    /// ```
    /// use squall::policy::invoke::Event;
    ///
    /// let ready = Event::new();
    /// assert!(!ready.signal(), "the queue is empty");
    /// ```
    pub fn signal(&self) -> bool {
        self.signal_many(1) > 0
    }

    /// Releases up to `count` invocations, in order of arrival. Returns how many were released.
    pub fn signal_many(&self, count: usize) -> usize {
        let mut state = self.lock();
        let count = count.min(state.waiting.len());
        let going: Vec<_> = state.waiting.drain(..count).collect();
        drop(state);
        going.into_iter().for_each(|waiting| waiting.go());
        count
    }

    /// Releases all waiting invocations, and lets later ones run at once. Returns how many waited.
    pub fn open(&self) -> usize {
        let waiting = self.set(Phase::Open);
        let count = waiting.len();
        waiting.into_iter().for_each(|waiting| waiting.go());
        count
    }

    /// Makes later invocations wait.
    pub fn close(&self) {
        // While the event was open or cancelled its queue was empty (I2). While it was closed, the queue can
        // stay.
        self.lock().phase = Phase::Closed;
    }

    /// Ends all waiting invocations with [`InvokeError::Cancelled`], and each later one until the event is
    /// opened or closed again. Returns how many waited.
    ///
    /// ```
    /// use squall::policy::invoke::{Event, InvokeError, event_dependent};
    /// # #[squall::interface]
    /// # trait Mail: Send + Sync { fn send(&self, n: u64) -> u64; }
    /// # struct Post;
    /// # impl Mail for Post { fn send(&self, n: u64) -> u64 { n } }
    /// # let mail: squall::Owned<dyn Mail> = squall::shared(Post);
    /// let ready = Event::new();
    /// let pending = event_dependent(&ready, mail.handle(), |mail| mail.send(7));
    /// assert_eq!(ready.cancel(), 1);
    /// assert!(matches!(pending.wait(), Err(InvokeError::Cancelled)));
    /// ```
    pub fn cancel(&self) -> usize {
        let waiting = self.set(Phase::Cancelled);
        let count = waiting.len();
        waiting.into_iter().for_each(|waiting| waiting.cancel(InvokeError::Cancelled));
        count
    }

    fn set(&self, phase: Phase) -> VecDeque<Box<dyn Waiting>> {
        let mut state = self.lock();
        state.phase = phase;
        take(&mut state.waiting)
    }

    /// Returns `true` if invocations run at once.
    pub fn is_open(&self) -> bool {
        self.lock().phase == Phase::Open
    }

    /// Returns the number of waiting invocations.
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    pub(super) fn admit(&self, waiting: Box<dyn Waiting>) {
        let mut state = self.lock();
        match state.phase {
            Phase::Closed if state.waiting.len() < WAITING_MAX => state.waiting.push_back(waiting),
            phase => {
                drop(state);
                match phase {
                    Phase::Open => waiting.go(),
                    Phase::Cancelled => waiting.cancel(InvokeError::Cancelled),
                    Phase::Closed => waiting.cancel(InvokeError::Full),
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
        f.debug_struct("Event").field("phase", &state.phase).field("waiting", &state.waiting.len()).finish()
    }
}
