//! Waiting gets: threads and tasks sleep until an element comes. Puts pay for them only while they exist.
//!
//! Problem: a put must find a client that fell asleep, without a fence or a shared write in each put.
//! Idea: a client that goes to sleep announces it, makes all processors pass a fence, and looks for an
//! element again. A put executes no fence and reads one word, which changes rarely.
//!
//! - I1. No element stays in a shard while a waiter sleeps. Each arrival, also that of a transfer, looks for
//!   waiters afterwards. A waiter queues, and then looks for elements. One of the two sees the other: there
//!   is a fence between the two steps of each. If the bag was not announced, the arrival's fence is the light
//!   half of an asymmetric one.
//! - I2. An element goes from its shard to the longest waiter under the lock of the queue. So no other look
//!   for waiters meets it on its way.
//! - I3. A wait that is dropped leaves the queue. An element that it was given goes back into the bag.
//! - I4. No waker runs under a lock. A panic of a waker harms neither the client that puts nor other waiters.
//!
//! Fairness: waiters are served in the order in which they came. A plain `get` may take an element before
//! them.

use super::shard::Shard;
use super::{Bag, Client, sites};
use crate::drops::drop_payload;
use squall_machine::asym;
use squall_sys::fork::forked;
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use squall_sys::sync::{Mutex, MutexGuard, StdArc, lock, thread};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// The number of looks in vain after which a bag is no longer announced to have waiters.
const LOOKS: u32 = if cfg!(any(loom, squall_model)) { 1 } else { 64 };

/// The waiters of a bag.
pub(super) struct Waiters<T> {
    /// There may be waiters. Read by each put, so it shares its line with data that rarely change.
    announced: AtomicBool,
    /// Puts execute a full fence.
    fenced: bool,
    queue: CachePadded<Shared<T>>,
}

struct Shared<T> {
    /// The length of the queue.
    waiting: AtomicUsize,
    /// Looks in vain since the last waiter.
    vain: AtomicU32,
    queue: Mutex<Queue<T>>,
}

struct Queue<T> {
    /// By their tickets, in the order in which they came.
    waiting: BTreeMap<u64, StdArc<Place<T>>>,
    tickets: u64,
    closed: bool,
}

/// The place of a waiter.
struct Place<T>(Mutex<State<T>>);

enum State<T> {
    Waiting(Waker),
    Given(T),
    /// The bag was closed, or the element was taken.
    Ended,
}

impl<T> Place<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.0, "the place of a waiter of a bag")
    }

    /// Changes the state of a waiter, and returns its waker.
    fn end(&self, state: State<T>) -> Option<Waker> {
        match std::mem::replace(&mut *self.lock(), state) {
            State::Waiting(waker) => Some(waker),
            State::Given(_) | State::Ended => None,
        }
    }

    /// Takes the element that was given.
    fn take(&self) -> Option<T> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Ended) {
            State::Given(value) => Some(value),
            earlier => {
                *state = earlier;
                None
            }
        }
    }
}

/// Wakes a waiter. A panic of its waker ends here, after the panic hook has reported it (I4).
fn wake(waker: Option<Waker>) {
    let Some(waker) = waker else { return };
    // A model that has failed must not go on.
    if cfg!(loom) {
        return waker.wake();
    }
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        drop_payload(payload);
    }
}

impl<T> Waiters<T> {
    pub(super) fn new() -> Waiters<T> {
        let queue = Queue { waiting: BTreeMap::new(), tickets: 0, closed: false };
        Waiters {
            announced: AtomicBool::new(false),
            fenced: asym::mode() != asym::Mode::Membarrier,
            queue: CachePadded::new(Shared {
                waiting: AtomicUsize::new(0),
                vain: AtomicU32::new(0),
                queue: Mutex::new(queue),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        lock(&self.queue.queue, "the queue of a bag's waiters")
    }

    /// Adds a waiter, and passes the fence that I1 asks for. Returns its ticket, or `None` if the bag is
    /// closed.
    fn add(&self, place: StdArc<Place<T>>) -> Option<u64> {
        let mut queue = self.lock();
        if queue.closed {
            return None;
        }
        queue.tickets += 1;
        let ticket = queue.tickets;
        queue.waiting.insert(ticket, place);
        // Relaxed, here and below: the fences order them, and the lock orders the writers.
        self.queue.waiting.store(queue.waiting.len(), Ordering::Relaxed);
        let was_announced = self.announced.load(Ordering::Relaxed);
        self.announced.store(true, Ordering::Relaxed);
        drop(queue);
        if was_announced {
            if !sites::QUEUE.is_weak() {
                // Partner: the fence of `serve_announced`.
                fence(Ordering::SeqCst);
            }
        } else if !sites::ANNOUNCE.is_weak() && asym::heavy().is_err() {
            asym::visit_processors();
        }
        Some(ticket)
    }

    /// Removes a waiter that still waits.
    fn remove(&self, ticket: u64) {
        let mut queue = self.lock();
        let removed = queue.waiting.remove(&ticket);
        self.queue.waiting.store(queue.waiting.len(), Ordering::Relaxed);
        drop(queue);
        // Its waker is dropped here, under no lock.
        drop(removed);
    }

    /// Announces waiters, as a wait does that has ended since.
    #[cfg(all(test, any(loom, squall_model)))]
    pub(super) fn announce(&self) {
        let place = StdArc::new(Place(Mutex::new(State::Ended)));
        self.add(place).into_iter().for_each(|ticket| self.remove(ticket));
    }

    /// Ends the announcement after many looks in vain, so that puts no longer look.
    fn withdraw(&self) {
        let shared = &*self.queue;
        // Not atomic together: any number of looks is right.
        let vain = shared.vain.load(Ordering::Relaxed) + 1;
        shared.vain.store(vain, Ordering::Relaxed);
        if vain >= LOOKS
            && let Ok(queue) = shared.queue.try_lock()
            && queue.waiting.is_empty()
        {
            shared.vain.store(0, Ordering::Relaxed);
            // Under the lock of the queue: the next waiter announces itself again.
            self.announced.store(false, Ordering::Relaxed);
        }
    }
}

impl<T> Bag<T> {
    /// Returns the number of waiting gets. It may be out of date.
    pub fn waiting(&self) -> usize {
        self.waiters.queue.waiting.load(Ordering::Relaxed)
    }

    /// Ends all waits, now and from now on: a wait that finds the bag empty returns [`Closed`]. Put and get
    /// work as before.
    pub fn close(&self) {
        let mut queue = self.waiters.lock();
        queue.closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        self.waiters.queue.waiting.store(0, Ordering::Relaxed);
        drop(queue);
        waiting.into_values().for_each(|place| wake(place.end(State::Ended)));
    }

    /// Returns whether the bag was closed.
    pub fn is_closed(&self) -> bool {
        self.waiters.lock().closed
    }

    /// Looks for waiters after an arrival at `shard` (I1).
    #[inline]
    pub(super) fn serve_waiters(&self, shard: &Shard<T>) {
        if !sites::LOOK.is_weak() {
            // Partner: the fence of `Waiters::add` that announces.
            asym::light_or_full(self.waiters.fenced);
        }
        if self.waiters.announced.load(Ordering::Relaxed) {
            self.serve_announced(shard);
        }
    }

    #[cold]
    #[inline(never)]
    fn serve_announced(&self, shard: &Shard<T>) {
        if !sites::LOOK.is_weak() {
            // Partner: the fence of `Waiters::add` in a bag that was announced.
            fence(Ordering::SeqCst);
        }
        if self.waiters.queue.waiting.load(Ordering::Relaxed) == 0 {
            self.waiters.withdraw();
        } else {
            self.serve(shard);
        }
    }

    /// Gives elements to waiters, as long as there are both.
    fn serve(&self, shard: &Shard<T>) {
        loop {
            let mut queue = self.waiters.lock();
            if queue.waiting.is_empty() {
                return;
            }
            let found = std::iter::once(shard)
                .chain(self.others(shard))
                .find_map(|shard| if shard.is_empty() { None } else { shard.get(self) });
            let Some(value) = found else { return };
            let Some((_, place)) = queue.waiting.pop_first() else { return };
            self.waiters.queue.waiting.store(queue.waiting.len(), Ordering::Relaxed);
            let waker = place.end(State::Given(value));
            drop(queue);
            wake(waker);
        }
    }
}

/// A waiting [`get`](Client::get): a future, with forms that block the thread. It borrows the bag or owns it,
/// as an `Arc`.
///
/// Waits are served in the order of their first poll. Dropping a wait cancels it. An element that it was
/// given goes back.
///
/// ```
/// use squall::parts::bag::{Bag, Wait, WaitError};
/// use std::time::Duration;
///
/// let bag = Bag::new();
/// let waits = Wait::new(&bag).block_for(Duration::from_millis(1));
/// assert_eq!(waits, Err(WaitError::TimedOut));
/// std::thread::scope(|threads| {
///     threads.spawn(|| bag.here().put(5));
///     assert_eq!(Wait::new(&bag).block(), Ok(5));
/// });
/// ```
#[must_use = "a wait does nothing until it is awaited or blocks"]
pub struct Wait<T, B: Deref<Target = Bag<T>>> {
    bag: B,
    queued: Option<Queued<T>>,
}

struct Queued<T> {
    ticket: u64,
    place: StdArc<Place<T>>,
}

/// The bag was closed, and a wait found it empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bag was closed and is empty")
    }
}

impl std::error::Error for Closed {}

/// The reason why a wait with a limit ended without an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// The bag was closed, and the wait found it empty.
    Closed,
    /// No element came in time.
    TimedOut,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitError::Closed => Closed.fmt(f),
            WaitError::TimedOut => f.write_str("no element came into the bag in time"),
        }
    }
}

impl std::error::Error for WaitError {}

impl<T, B: Deref<Target = Bag<T>>> Wait<T, B> {
    /// Makes a wait. It begins with its first poll, or when it blocks.
    pub fn new(bag: B) -> Wait<T, B> {
        Wait { bag, queued: None }
    }

    /// Blocks the thread until there is an element.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn block(mut self) -> Result<T, Closed> {
        loop {
            if let Poll::Ready(answer) = self.step(&Unpark::waker()) {
                return answer;
            }
            thread::park();
        }
    }

    /// Blocks the thread until there is an element, for at most `limit`.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn block_for(mut self, limit: Duration) -> Result<T, WaitError> {
        // A limit beyond the clock's end never passes.
        let Some(end) = Instant::now().checked_add(limit) else {
            return self.block().map_err(|Closed| WaitError::Closed);
        };
        let waker = Unpark::waker();
        loop {
            if let Poll::Ready(answer) = self.step(&waker) {
                return answer.map_err(|Closed| WaitError::Closed);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.leave().ok_or(WaitError::TimedOut);
            }
            park_for(left);
        }
    }

    /// One poll.
    fn step(&mut self, waker: &Waker) -> Poll<Result<T, Closed>> {
        let bag = &*self.bag;
        if self.queued.is_none() {
            // A client that would have to wait does not overtake those who wait.
            if bag.waiting() == 0
                && let Some(value) = bag.local().get()
            {
                return Poll::Ready(Ok(value));
            }
            let place = StdArc::new(Place(Mutex::new(State::Waiting(waker.clone()))));
            let Some(ticket) = bag.waiters.add(place.clone()) else {
                return Poll::Ready(bag.local().get().ok_or(Closed));
            };
            self.queued = Some(Queued { ticket, place });
            if !sites::RECHECK.is_weak() {
                bag.serve(bag.local().shard);
            }
        }
        let Some(Queued { place, .. }) = &self.queued else { return Poll::Pending };
        // A clone is the program's code, and a drop too, so both are under no lock.
        let new = waker.clone();
        let mut state = place.lock();
        let old = match std::mem::replace(&mut *state, State::Ended) {
            State::Waiting(old) => {
                *state = State::Waiting(new);
                old
            }
            State::Given(value) => {
                drop(state);
                self.queued = None;
                return Poll::Ready(Ok(value));
            }
            State::Ended => {
                drop(state);
                self.queued = None;
                return Poll::Ready(bag.local().get().ok_or(Closed));
            }
        };
        drop(state);
        drop(old);
        Poll::Pending
    }

    /// Leaves the queue. Returns the element that the wait was given, if any.
    fn leave(&mut self) -> Option<T> {
        let Queued { ticket, place } = self.queued.take()?;
        if forked() {
            return None;
        }
        self.bag.waiters.remove(ticket);
        place.take()
    }
}

impl<T, B: Deref<Target = Bag<T>> + Unpin> Future for Wait<T, B> {
    type Output = Result<T, Closed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Closed>> {
        self.get_mut().step(cx.waker())
    }
}

impl<T, B: Deref<Target = Bag<T>>> Drop for Wait<T, B> {
    fn drop(&mut self) {
        // A model that has failed must not go on.
        if cfg!(loom) && std::thread::panicking() {
            return;
        }
        if let Some(value) = self.leave()
            && !sites::BACK.is_weak()
        {
            self.bag.local().put(value);
        }
    }
}

impl<T, B: Deref<Target = Bag<T>>> fmt::Debug for Wait<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("is_queued", &self.queued.is_some()).finish_non_exhaustive()
    }
}

/// Wakes a blocked thread.
struct Unpark(thread::Thread);

impl Unpark {
    fn waker() -> Waker {
        Waker::from(StdArc::new(Unpark(thread::current())))
    }
}

impl Wake for Unpark {
    fn wake(self: StdArc<Self>) {
        self.0.unpark();
    }
}

#[cfg(not(loom))]
fn park_for(limit: Duration) {
    thread::park_timeout(limit);
}

/// A model has no time.
#[cfg(loom)]
fn park_for(_: Duration) {
    thread::yield_now();
}

impl<T> Client<'_, T> {
    /// Waits until there is an element: see [`Wait`].
    ///
    /// # Errors
    /// [`Closed`].
    pub fn get_wait(&self) -> Result<T, Closed> {
        Wait::new(self.bag).block()
    }

    /// Waits until there is an element, for at most `limit`: see [`Wait`].
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn get_for(&self, limit: Duration) -> Result<T, WaitError> {
        Wait::new(self.bag).block_for(limit)
    }
}
