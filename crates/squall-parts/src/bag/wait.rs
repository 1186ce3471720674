//! Waiting gets: threads and tasks sleep until an element comes. Puts pay for them only while they exist.
//!
//! Problem: a put must find a client that fell asleep, without a fence or a shared write in each put.
//! Idea: a client that goes to sleep announces it, makes all processors pass a fence, and looks for an
//! element again. A put executes no fence and reads one word, which changes rarely.
//!
//! - I1. No element stays in a shard while a waiter sleeps. Each arrival, also that of a transfer, looks for
//!   waiters afterwards. A waiter queues, and then looks for elements. One of the two sees the other: there
//!   is a fence between the two steps of each. If the bag was not announced, the arrival's fence is the light
//!   half of an asymmetric one. A waiter that meets an announcement whose fence may be still to come executes
//!   that fence itself.
//! - I2. An element goes from its shard to the longest waiter under the lock of the queue, and is counted in
//!   `given` before it leaves the shard, until the waiter takes it. A `get` that would say empty takes it
//!   back. It reads the count after its first pass and before the arrivals of the second. If the waiter has
//!   taken the element meanwhile, the bag was empty at that moment, since the second pass found no arrival.
//! - I3. A wait that is dropped leaves the queue. An element that it was given goes back into the bag.
//! - I4. No waker runs under a lock. A panic of a waker harms neither the client that puts nor other waiters.
//!
//! Fairness: waiters are served in the order in which they came. A plain `get` may take an element before
//! them, and the last one that was given.

use super::shard::Shard;
use super::{Bag, Client, sites};
use crate::block::{block, block_for};
use squall_machine::asym;
use squall_sys::fork::forked;
use squall_sys::padded::CachePadded;
use squall_sys::panics::end_panic;
use squall_sys::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use squall_sys::sync::{Mutex, MutexGuard, StdArc, lock};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The number of looks in vain after which a bag is no longer announced to have waiters.
const LOOKS: u32 = if cfg!(any(loom, squall_model)) { 1 } else { 64 };

const SILENT: u32 = 0;
/// The fence of an announcement is still to come.
const ANNOUNCING: u32 = 1;
const ANNOUNCED: u32 = 2;
const EPOCH: u32 = 4;

/// The waiters of a bag.
pub(super) struct Waiters<T> {
    /// Whether there may be waiters: one of [`SILENT`], [`ANNOUNCING`] and [`ANNOUNCED`], and above it the
    /// number of earlier announcements. Read by each put, so it shares its line with data that rarely change.
    announced: AtomicU32,
    /// Puts execute a full fence.
    fenced: bool,
    queue: CachePadded<Shared<T>>,
}

struct Shared<T> {
    /// The length of the queue.
    waiting: AtomicUsize,
    /// Waiters with an element that they have not taken.
    given: AtomicUsize,
    /// Looks in vain since the last waiter.
    vain: AtomicU32,
    queue: Mutex<Queue<T>>,
}

struct Queue<T> {
    /// By their tickets, in the order in which they came.
    waiting: BTreeMap<u64, StdArc<Place<T>>>,
    given: BTreeMap<u64, StdArc<Place<T>>>,
    /// The fence of an announcement failed once, so the announcement stays.
    stays: bool,
    tickets: u64,
    closed: bool,
}

/// The place of a waiter.
struct Place<T>(Mutex<State<T>>);

enum State<T> {
    Waiting(Sleeper),
    Given(T, Sleeper),
    /// The bag was closed, or the element was taken.
    Ended,
}

/// Shared, so that no clone of a waker, which is the program's code, runs under a lock.
type Sleeper = StdArc<Waker>;

impl<T> Place<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.0, "the place of a waiter of a bag")
    }

    /// Gives an element to a waiter. Returns its waker, for the caller to wake.
    fn give(&self, value: T) -> Option<Sleeper> {
        let mut state = self.lock();
        let State::Waiting(sleeper) = &*state else { return None };
        let sleeper = sleeper.clone();
        *state = State::Given(value, sleeper.clone());
        Some(sleeper)
    }

    /// Takes an element back that was given: the waiter waits again, or its wait ends. In one step, since the
    /// waiter may look meanwhile.
    fn take_back(&self, ends: bool) -> Option<(T, Sleeper)> {
        if sites::ONE_STEP.is_weak() {
            let (value, sleeper) = self.take()?;
            *self.lock() = State::Waiting(sleeper.clone());
            return Some((value, sleeper));
        }
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Ended) {
            State::Given(value, sleeper) => {
                if !ends {
                    *state = State::Waiting(sleeper.clone());
                }
                Some((value, sleeper))
            }
            earlier => {
                *state = earlier;
                None
            }
        }
    }

    /// Ends a wait, and returns its waker.
    fn end(&self) -> Option<Sleeper> {
        let mut state = self.lock();
        let State::Waiting(sleeper) = &*state else { return None };
        let sleeper = sleeper.clone();
        *state = State::Ended;
        Some(sleeper)
    }

    /// Takes the element that was given.
    fn take(&self) -> Option<(T, Sleeper)> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Ended) {
            State::Given(value, sleeper) => Some((value, sleeper)),
            earlier => {
                *state = earlier;
                None
            }
        }
    }
}

/// Wakes a waiter. A panic of its waker ends here, after the panic hook has reported it (I4).
fn wake(sleeper: Option<Sleeper>) {
    // The drop may be the last of the waker.
    sleeper.into_iter().for_each(|sleeper| end_panic(move || sleeper.wake_by_ref()));
}

impl<T> Waiters<T> {
    pub(super) fn new() -> Waiters<T> {
        let (waiting, given) = (BTreeMap::new(), BTreeMap::new());
        let queue = Queue { waiting, given, stays: false, tickets: 0, closed: false };
        Waiters {
            announced: AtomicU32::new(SILENT),
            fenced: asym::mode() != asym::Mode::Membarrier,
            queue: CachePadded::new(Shared {
                waiting: AtomicUsize::new(0),
                given: AtomicUsize::new(0),
                vain: AtomicU32::new(0),
                queue: Mutex::new(queue),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        lock(&self.queue.queue, "the queue of a bag's waiters")
    }

    /// Publishes the numbers of waiters.
    fn publish(&self, queue: &Queue<T>) {
        let shared = &*self.queue;
        // Relaxed: the fences order it, and the lock orders the writers.
        shared.waiting.store(queue.waiting.len(), Ordering::Relaxed);
        // Release: pairs with the Acquire of `has_given`.
        shared.given.store(queue.given.len(), Ordering::Release);
    }

    /// Adds a waiter. Returns its ticket, and the announcement for [`fence`](Waiters::fence); or `None` if
    /// the bag is closed.
    fn add(&self, place: StdArc<Place<T>>) -> Option<(u64, u32)> {
        let mut queue = self.lock();
        if queue.closed {
            return None;
        }
        queue.tickets += 1;
        let ticket = queue.tickets;
        queue.waiting.insert(ticket, place);
        self.publish(&queue);
        // Relaxed, here and below: the fences order them, and the lock orders the writers but `fence`.
        self.queue.vain.store(0, Ordering::Relaxed);
        let mut announced = self.announced.load(Ordering::Relaxed);
        if announced % EPOCH == SILENT {
            announced += ANNOUNCING;
            self.announced.store(announced, Ordering::Relaxed);
        }
        Some((ticket, announced))
    }

    /// Passes the fence of a new waiter (I1).
    fn fence(&self, announced: u32) {
        if announced % EPOCH == ANNOUNCED {
            if !sites::QUEUE.is_weak() {
                // Partner: the fence of `serve_announced`.
                fence(Ordering::SeqCst);
            }
            return;
        }
        if !sites::ANNOUNCE.is_weak() && asym::heavy().is_err() {
            asym::visit_processors();
            // The next announcement would last as long.
            self.lock().stays = true;
        }
        // It fails if another waiter has done it. The word of a later announcement differs.
        let done = announced - ANNOUNCING + ANNOUNCED;
        let _ = self.announced.compare_exchange(announced, done, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Removes a waiter.
    fn remove(&self, ticket: u64) {
        let mut queue = self.lock();
        let removed = queue.waiting.remove(&ticket).or_else(|| queue.given.remove(&ticket));
        self.publish(&queue);
        drop(queue);
        drop(removed);
    }

    /// Announces waiters, as a wait does that has ended since.
    #[cfg(all(test, any(loom, squall_model)))]
    pub(super) fn announce(&self) {
        let place = StdArc::new(Place(Mutex::new(State::Ended)));
        if let Some((ticket, announced)) = self.add(place) {
            self.fence(announced);
            self.remove(ticket);
        }
    }

    /// Ends the announcement after many looks in vain, so that puts no longer look.
    fn withdraw(&self) {
        let shared = &*self.queue;
        // Not atomic together: any number of looks is right.
        let vain = shared.vain.load(Ordering::Relaxed) + 1;
        shared.vain.store(vain, Ordering::Relaxed);
        if vain < LOOKS {
            return;
        }
        let Ok(queue) = shared.queue.try_lock() else { return };
        let has_waiters = !(queue.waiting.is_empty() && queue.given.is_empty());
        let announced = self.announced.load(Ordering::Relaxed);
        if (has_waiters && !sites::WITHDRAW.is_weak()) || queue.stays || announced % EPOCH != ANNOUNCED {
            return;
        }
        shared.vain.store(0, Ordering::Relaxed);
        // Under the lock of the queue: the next waiter announces itself again.
        self.announced.store((announced - ANNOUNCED).wrapping_add(EPOCH), Ordering::Relaxed);
    }
}

impl<T> Bag<T> {
    /// Returns the number of waiting gets, also of those that were given an element and have not yet taken
    /// it. It may be out of date.
    pub fn waiting(&self) -> usize {
        self.waiters.queue.waiting.load(Ordering::Relaxed) + self.given()
    }

    /// Returns whether [`waiting`](Bag::waiting) is not 0. While it is, the bag is announced to have waiters.
    #[inline]
    pub(super) fn has_waits(&self) -> bool {
        self.waiters.announced.load(Ordering::Relaxed) % EPOCH != SILENT && self.waiting() != 0
    }

    /// Ends all waits, now and from now on: a wait that finds the bag empty returns [`Closed`]. Put and get
    /// work as before.
    pub fn close(&self) {
        let mut queue = self.waiters.lock();
        queue.closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        self.waiters.publish(&queue);
        drop(queue);
        waiting.into_values().for_each(|place| wake(place.end()));
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
        if self.waiters.announced.load(Ordering::Relaxed) % EPOCH != SILENT {
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
        // In a child the waiters do not exist.
        while !forked() {
            let mut queue = self.waiters.lock();
            if queue.waiting.is_empty() {
                return;
            }
            if !sites::GIVEN.is_weak() {
                // Before the removal, which releases it (I2).
                self.waiters.queue.given.store(queue.given.len() + 1, Ordering::Relaxed);
            }
            let found = std::iter::once(shard)
                .chain(self.others(shard))
                .find_map(|shard| if shard.is_empty() { None } else { shard.get(self) });
            let Some(value) = found else {
                self.waiters.publish(&queue);
                return;
            };
            let Some((ticket, place)) = queue.waiting.pop_first() else { return };
            let sleeper = place.give(value);
            queue.given.insert(ticket, place);
            self.waiters.publish(&queue);
            drop(queue);
            wake(sleeper);
        }
    }

    /// Returns the number of elements that waiters were given and have not taken.
    pub(super) fn given(&self) -> usize {
        // Acquire: pairs with the Release of `publish`, and with that of a removal from a shard (I2).
        self.waiters.queue.given.load(Ordering::Acquire)
    }

    /// Returns whether a waiter was given an element that it has not taken.
    pub(super) fn has_given(&self) -> bool {
        self.given() != 0 && !sites::TAKE_BACK.is_weak()
    }

    /// Takes an element back from the waiter that got it last, which waits again.
    pub(super) fn take_back(&self, shard: &Shard<T>) -> Option<T> {
        let mut queue = self.waiters.lock();
        let (ticket, place) = queue.given.pop_last()?;
        let (value, sleeper) = place.take_back(queue.closed)?;
        if queue.closed {
            self.waiters.publish(&queue);
            drop(queue);
            wake(Some(sleeper));
            return Some(value);
        }
        queue.waiting.insert(ticket, place);
        self.waiters.publish(&queue);
        drop(queue);
        // As a new waiter does (I1). Partner: the fence of `serve_announced`.
        fence(Ordering::SeqCst);
        self.serve(shard);
        Some(value)
    }
}

/// A waiting [`get`](Client::get): a future, with forms that block the thread. It borrows the bag or owns it,
/// as an `Arc`.
///
/// Waits are served in the order of their first poll, but a plain get may take an element before them.
/// Dropping a wait cancels it. An element that it was given goes back, and a get that finds the bag empty
/// takes it before that.
///
/// # Cost
/// A get, if there is an element and no other wait. Otherwise an allocation, a lock for all waits, and a full
/// fence on all processors for the first wait after 64 puts without any.
///
/// # Example
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
    /// The place whose client gets; that of the calling thread's VP if empty.
    at: Option<usize>,
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
        Wait { bag, at: None, queued: None }
    }

    /// Makes a wait of the client of a place.
    ///
    /// # Panics
    /// If the bag has no such place: in the first poll.
    pub fn at(bag: B, place: usize) -> Wait<T, B> {
        Wait { bag, at: Some(place), queued: None }
    }

    /// Returns the client that gets.
    fn client(&self) -> Client<'_, T> {
        self.bag.local_at(self.at)
    }

    /// Blocks the thread until there is an element.
    ///
    /// # Errors
    /// [`Closed`].
    /// # Panics
    /// In the child of a fork, if it would wait.
    pub fn block(mut self) -> Result<T, Closed> {
        match self.at_once() {
            Some(value) => Ok(value),
            None => block(|waker| self.step(waker)),
        }
    }

    /// Blocks the thread until there is an element, for at most `limit`.
    ///
    /// # Errors
    /// [`WaitError`].
    /// # Panics
    /// In the child of a fork, if it would wait.
    pub fn block_for(mut self, limit: Duration) -> Result<T, WaitError> {
        if let Some(value) = self.at_once() {
            return Ok(value);
        }
        match block_for(limit, |waker| self.step(waker)) {
            Some(answer) => answer.map_err(|Closed| WaitError::Closed),
            // The wait may have been given an element meanwhile.
            None => self.leave().ok_or(WaitError::TimedOut),
        }
    }

    /// Takes an element if no other wait is before this one.
    fn at_once(&self) -> Option<T> {
        self.client().get_in_turn()
    }

    /// One poll.
    fn step(&mut self, waker: &Waker) -> Poll<Result<T, Closed>> {
        let Some(Queued { ticket, place }) = &self.queued else { return self.begin(waker) };
        let bag = &*self.bag;
        let mut state = place.lock();
        match &*state {
            State::Waiting(sleeper) if sleeper.will_wake(waker) => Poll::Pending,
            State::Waiting(_) => {
                drop(state);
                // A clone is the program's code, so it runs under no lock.
                let new = StdArc::new(waker.clone());
                state = place.lock();
                let old = match &mut *state {
                    State::Waiting(sleeper) => std::mem::replace(sleeper, new),
                    _ => {
                        drop(state);
                        return self.step(waker);
                    }
                };
                drop(state);
                drop(old);
                Poll::Pending
            }
            State::Given(..) => {
                drop(state);
                let ticket = *ticket;
                // Under the lock of the queue, since a get may take the element back (I2).
                let mut queue = bag.waiters.lock();
                if queue.given.remove(&ticket).is_none() {
                    drop(queue);
                    return self.step(waker);
                }
                bag.waiters.publish(&queue);
                let value = place.take();
                drop(queue);
                self.queued = None;
                match value {
                    Some((value, _)) => Poll::Ready(Ok(value)),
                    None => self.begin(waker),
                }
            }
            State::Ended => {
                drop(state);
                self.queued = None;
                Poll::Ready(self.client().get().ok_or(Closed))
            }
        }
    }

    /// The first poll.
    fn begin(&mut self, waker: &Waker) -> Poll<Result<T, Closed>> {
        // A client that would have to wait does not overtake those that wait.
        if let Some(value) = self.at_once() {
            return Poll::Ready(Ok(value));
        }
        let bag = &*self.bag;
        assert!(!forked(), "a wait for an element of a bag would never end in the child of a fork");
        let place = StdArc::new(Place(Mutex::new(State::Waiting(StdArc::new(waker.clone())))));
        let Some((ticket, announced)) = bag.waiters.add(place.clone()) else {
            return Poll::Ready(self.client().get().ok_or(Closed));
        };
        self.queued = Some(Queued { ticket, place });
        bag.waiters.fence(announced);
        if !sites::RECHECK.is_weak() {
            bag.serve(bag.local_at(self.at).shard);
        }
        self.step(waker)
    }

    /// Leaves the queue. Returns the element that the wait was given, if any.
    fn leave(&mut self) -> Option<T> {
        let Queued { ticket, place } = self.queued.take()?;
        if forked() {
            return None;
        }
        self.bag.waiters.remove(ticket);
        place.take().map(|(value, _)| value)
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
            self.client().put(value);
        }
    }
}

impl<T, B: Deref<Target = Bag<T>>> fmt::Debug for Wait<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("is_queued", &self.queued.is_some()).finish_non_exhaustive()
    }
}

impl<T> Client<'_, T> {
    /// Waits until there is an element: see [`Wait`].
    ///
    /// # Errors
    /// [`Closed`].
    pub fn get_wait(&self) -> Result<T, Closed> {
        Wait::at(self.bag, self.shard.index()).block()
    }

    /// Waits until there is an element, for at most `limit`: see [`Wait`].
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn get_for(&self, limit: Duration) -> Result<T, WaitError> {
        Wait::at(self.bag, self.shard.index()).block_for(limit)
    }
}
