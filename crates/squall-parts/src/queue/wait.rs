//! Waiting gets: threads and tasks sleep until there is an element, or until the work is done.
//!
//! Problem: a put must find a client that fell asleep, without a fence or a shared write in each put. The
//! client that finishes the last element must find all of them. Idea: a client that goes to sleep queues,
//! makes all processors pass a fence, and looks again. A put executes no fence and reads one word. A woken
//! client looks for an element by itself; no element is handed over.
//!
//! - I1. No element stays in the queue while each waiter sleeps without a wake-up. An arrival looks for
//!   waiters afterwards. A waiter queues, passes a fence on all processors, and then looks for elements. One
//!   of the two sees the other. The arrival wakes one waiter for each element.
//! - I2. A wake-up is not lost. A waiter that leaves, with an element or by being dropped, and finds itself
//!   woken, wakes another one if the queue has elements. So the element that its wake-up announced is looked
//!   for.
//! - I3. No end is missed. A client that finishes an element looks for waiters afterwards, as in I1. If some
//!   wait for the end, it passes a full fence and looks whether the work is done; if so, it wakes them. Of
//!   two clients that finish the last two elements, the fences let at least one see both counts.
//! - I4. No end is early: [`Queue::is_done`] is exact (`queue/I5`).
//! - I5. No waker runs under a lock. A panic of a waker harms neither the client that wakes nor other
//!   waiters.
//!
//! Fairness: the waiter that has slept longest is woken first. Any get may take the element before it.

use super::records::{Ended, waited};
use super::{Client, Queue, sites};
use crate::block::{block, block_for};
use squall_machine::asym;
use squall_sys::fork::forked;
use squall_sys::padded::CachePadded;
use squall_sys::panics::end_panic;
use squall_sys::sync::atomic::{AtomicUsize, Ordering, fence};
use squall_sys::sync::{Mutex, lock};
use squall_sys::trace::Since;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The waiters of a queue.
pub(super) struct Sleepers {
    /// Number of waiters. Read by each put, so it shares its line with data that rarely change.
    waiting: AtomicUsize,
    /// Number of those that also wait for the end. Read by each get.
    ending: AtomicUsize,
    /// Puts and gets execute a full fence.
    fenced: bool,
    list: CachePadded<Mutex<List>>,
}

/// Wakers by their tickets, in the order in which they came.
type Wakers = BTreeMap<u64, Waker>;

struct List {
    for_element: Wakers,
    /// Wakers of waiters for an element or the end.
    for_end: Wakers,
    tickets: u64,
}

impl List {
    fn wakers(&mut self, for_end: bool) -> &mut Wakers {
        if for_end { &mut self.for_end } else { &mut self.for_element }
    }

    /// Removes the waiter that has slept longest.
    fn pop_first(&mut self) -> Option<Waker> {
        let first = |wakers: &Wakers| wakers.first_key_value().map_or(u64::MAX, |(ticket, _)| *ticket);
        let for_end = first(&self.for_end) < first(&self.for_element);
        self.wakers(for_end).pop_first().map(|(_, waker)| waker)
    }
}

impl Sleepers {
    pub(super) fn new() -> Sleepers {
        let list = List { for_element: Wakers::new(), for_end: Wakers::new(), tickets: 0 };
        Sleepers {
            waiting: AtomicUsize::new(0),
            ending: AtomicUsize::new(0),
            fenced: asym::mode() != asym::Mode::Membarrier,
            list: CachePadded::new(Mutex::new(list)),
        }
    }

    /// Runs `f` with the locked list, and publishes the numbers of waiters.
    fn with_list<R>(&self, f: impl FnOnce(&mut List) -> R) -> R {
        let mut list = lock(&self.list, "the list of a queue's waiters");
        let result = f(&mut list);
        // Relaxed: the fences order them, and the lock orders the writers.
        self.waiting.store(list.for_element.len() + list.for_end.len(), Ordering::Relaxed);
        self.ending.store(list.for_end.len(), Ordering::Relaxed);
        result
    }

    /// Queues a waiter, in its earlier place if it has a ticket. Returns the ticket, and whether the waiter
    /// must look again, because it was not in the list.
    fn add(&self, ticket: Option<u64>, waker: &Waker, for_end: bool) -> (u64, bool) {
        // A clone and a drop of a waker are the program's code, so they run under no lock.
        let waker = waker.clone();
        let (ticket, old) = self.with_list(|list| {
            let ticket = ticket.unwrap_or_else(|| {
                list.tickets += 1;
                list.tickets
            });
            (ticket, list.wakers(for_end).insert(ticket, waker))
        });
        (ticket, old.is_none())
    }

    /// Makes all processors pass a fence (I1).
    fn announce() {
        // Partner: the light or full fence of `has_any`.
        if !sites::ANNOUNCE.is_weak() && asym::heavy().is_err() {
            asym::visit_processors();
        }
    }

    /// Removes a waiter. Returns false if it was woken before.
    fn remove(&self, ticket: u64, for_end: bool) -> bool {
        self.with_list(|list| list.wakers(for_end).remove(&ticket)).is_some()
    }

    /// Reads one of the numbers of waiters after an arrival, an end or a close (I1).
    #[inline]
    fn has_any(&self, number: &AtomicUsize) -> bool {
        if !sites::LOOK.is_weak() {
            // Partner: the heavy fence of `announce`.
            asym::light_or_full(self.fenced);
        }
        number.load(Ordering::Relaxed) != 0
    }
}

/// Wakes a waiter. A panic of its waker ends here, after the panic hook has reported it (I5).
fn wake(waker: Waker) {
    end_panic(move || waker.wake());
}

impl<T> Queue<T> {
    /// Returns the number of waiters that sleep. It may be out of date.
    pub fn waiting(&self) -> usize {
        self.sleepers.waiting.load(Ordering::Relaxed)
    }

    /// Wakes waiters after `count` arrivals (I1).
    #[inline]
    pub(super) fn after_arrival(&self, count: usize) {
        if self.sleepers.has_any(&self.sleepers.waiting) {
            (0..count).for_each(|_| self.wake_one());
        }
    }

    /// Wakes the waiter that has slept longest.
    #[cold]
    fn wake_one(&self) {
        // In a child the waiters do not exist.
        if forked() {
            return;
        }
        self.sleepers.with_list(List::pop_first).into_iter().for_each(wake);
    }

    /// Wakes all waiters after a close.
    pub(super) fn after_close(&self) {
        if self.sleepers.has_any(&self.sleepers.waiting) && !forked() {
            self.wake_all(false);
            self.wake_all(true);
        }
    }

    /// Wakes all waiters of one kind.
    fn wake_all(&self, for_end: bool) {
        let all = self.sleepers.with_list(|list| std::mem::take(list.wakers(for_end)));
        all.into_values().for_each(wake);
    }

    /// Looks for the end after an element was finished (I3).
    #[inline]
    pub(super) fn after_end(&self) {
        if !sites::END.is_weak() && self.sleepers.has_any(&self.sleepers.ending) {
            self.wake_if_done();
        }
    }

    #[cold]
    fn wake_if_done(&self) {
        if !sites::LAST.is_weak() {
            // Partner: this fence, in a client that finishes another element.
            fence(Ordering::SeqCst);
        }
        if self.is_done() && !forked() {
            self.wake_all(true);
        }
    }
}

/// An element that its client has taken and not yet finished. Dropping it finishes it.
///
/// Elements that follow from it are put before it is dropped. A panic that drops it finishes it, too.
pub struct Taken<'a, T> {
    client: Client<'a, T>,
    priority: u64,
    value: ManuallyDrop<T>,
}

impl<'a, T> Taken<'a, T> {
    pub(super) fn new(client: Client<'a, T>, priority: u64, value: T) -> Taken<'a, T> {
        Taken { client, priority, value: ManuallyDrop::new(value) }
    }

    /// Returns the priority.
    pub fn priority(&self) -> u64 {
        self.priority
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Finishes an element when it is dropped.
struct Finish<'a, T>(Client<'a, T>);

impl<T> Drop for Finish<'_, T> {
    fn drop(&mut self) {
        self.0.finish(1);
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        // The drop of the element may put elements, or panic: it is finished afterwards.
        let _finish = Finish(self.client);
        // SAFETY: the element is not used again.
        unsafe { ManuallyDrop::drop(&mut self.value) };
    }
}

impl<T: fmt::Debug> fmt::Debug for Taken<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken").field("priority", &self.priority).field("value", &*self.value).finish()
    }
}

/// The queue was closed, and a wait found it empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue was closed and is empty")
    }
}

impl std::error::Error for Closed {}

/// The reason why no more elements come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The queue is empty, and each element that was taken is finished.
    Done,
    /// The queue was closed and is empty.
    Closed,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Done => f.write_str("the queue is empty and all elements are finished"),
            End::Closed => Closed.fmt(f),
        }
    }
}

impl std::error::Error for End {}

/// The reason why a wait with a limit ended without an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// The queue was closed, and the wait found it empty.
    Closed,
    /// No element came in time.
    TimedOut,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitError::Closed => Closed.fmt(f),
            WaitError::TimedOut => f.write_str("no element came into the queue in time"),
        }
    }
}

impl std::error::Error for WaitError {}

/// A wait of either kind: the queue, the place, and the ticket.
struct Sleep<T, B: Deref<Target = Queue<T>>> {
    queue: B,
    /// The place whose client gets; that of the calling thread's VP if empty.
    at: Option<usize>,
    for_end: bool,
    ticket: Option<u64>,
    /// Start of the first sleep, if the trace was on.
    since: Since,
}

impl<T, B: Deref<Target = Queue<T>>> Sleep<T, B> {
    fn new(queue: B, at: Option<usize>, for_end: bool) -> Sleep<T, B> {
        Sleep { queue, at, for_end, ticket: None, since: Since::UNKNOWN }
    }

    /// One poll. `look` returns the answer if there is one.
    fn step<R>(&mut self, waker: &Waker, look: impl Fn(Client<'_, T>) -> Option<R>) -> Poll<R> {
        if let Some(answer) = look(self.queue.client_at(self.at)) {
            self.leave(Ended::Answered);
            return Poll::Ready(answer);
        }
        assert!(!forked(), "a wait for an element of a queue would never end in the child of a fork");
        let (ticket, is_new) = self.queue.sleepers.add(self.ticket, waker, self.for_end);
        self.ticket = Some(ticket);
        if is_new {
            Sleepers::announce();
            if !sites::RECHECK.is_weak()
                && let Some(answer) = look(self.queue.client_at(self.at))
            {
                self.leave(Ended::Answered);
                return Poll::Ready(answer);
            }
        }
        self.queue.client_at(self.at).place.own.counts.sleeps.add(1);
        if !self.since.is_known() {
            self.since = Since::now();
        }
        Poll::Pending
    }

    /// Leaves the list, and passes a wake-up on that it got (I2).
    fn leave(&mut self, ended: Ended) {
        let Some(ticket) = self.ticket.take() else { return };
        if forked() {
            return;
        }
        let was_woken = !self.queue.sleepers.remove(ticket, self.for_end);
        if was_woken && !sites::PASS.is_weak() && self.queue.waiting() != 0 && !self.queue.is_empty() {
            self.queue.wake_one();
        }
        waited(&*self.queue, self.since, ended);
    }

    /// Blocks the thread until `look` has an answer.
    fn block<R>(&mut self, look: impl Fn(Client<'_, T>) -> Option<R>) -> R {
        let found = look(self.queue.client_at(self.at));
        found.unwrap_or_else(|| block(|waker| self.step(waker, &look)))
    }

    /// Blocks the thread until `look` has an answer, for at most `limit`.
    fn block_for<R>(&mut self, limit: Duration, look: impl Fn(Client<'_, T>) -> Option<R>) -> Option<R> {
        let found = look(self.queue.client_at(self.at));
        found.or_else(|| block_for(limit, |waker| self.step(waker, &look)))
    }
}

impl<T, B: Deref<Target = Queue<T>>> Drop for Sleep<T, B> {
    fn drop(&mut self) {
        // A model that has failed must not go on.
        if cfg!(loom) && std::thread::panicking() {
            return;
        }
        self.leave(Ended::GivenUp);
    }
}

/// Returns the answer of a wait for an element.
fn look_for_element<T>(client: Client<'_, T>) -> Option<Result<(u64, T), Closed>> {
    // Before the get: a closed queue that is empty stays so.
    let closed = client.queue.is_closed();
    match client.get() {
        Some(found) => Some(Ok(found)),
        None if closed => Some(Err(Closed)),
        None => None,
    }
}

/// Returns the answer of a wait for an element or for the end.
fn look_for_end<T>(client: Client<'_, T>) -> Option<Result<(u64, T), End>> {
    let closed = client.queue.is_closed();
    match client.take_raw() {
        Some(found) => Some(Ok(found)),
        None if closed => Some(Err(End::Closed)),
        None if client.queue.is_done() => Some(Err(End::Done)),
        None => None,
    }
}

/// A waiting [`get`](Client::get): a future, with forms that block the thread. It borrows the queue or owns
/// it, as an `Arc`.
///
/// Dropping a wait cancels it. No element is lost by that.
///
/// # Cost
/// A get, if there is an element. Otherwise an allocation, a lock for all waits, and a full fence on all
/// processors.
///
/// # Example
/// ```
/// use squall::parts::queue::{Form, Queue, Wait, WaitError};
/// use std::time::Duration;
///
/// let queue = Queue::new(Form::Strict);
/// let waits = Wait::new(&queue).block_for(Duration::from_millis(1));
/// assert_eq!(waits, Err(WaitError::TimedOut));
/// std::thread::scope(|threads| {
///     threads.spawn(|| queue.here().put(1, "job"));
///     assert_eq!(Wait::new(&queue).block(), Ok((1, "job")));
/// });
/// ```
#[must_use = "a wait does nothing until it is awaited or blocks"]
pub struct Wait<T, B: Deref<Target = Queue<T>>>(Sleep<T, B>);

impl<T, B: Deref<Target = Queue<T>>> Wait<T, B> {
    /// Makes a wait. It begins with its first poll, or when it blocks.
    pub fn new(queue: B) -> Wait<T, B> {
        Wait(Sleep::new(queue, None, false))
    }

    /// Makes a wait of the client of a place.
    ///
    /// # Panics
    /// If the queue has no such place: in the first poll.
    pub fn at(queue: B, place: usize) -> Wait<T, B> {
        Wait(Sleep::new(queue, Some(place), false))
    }

    /// Blocks the thread until there is an element.
    ///
    /// # Errors
    /// [`Closed`].
    /// # Panics
    /// In the child of a fork, if it would wait.
    pub fn block(mut self) -> Result<(u64, T), Closed> {
        self.0.block(look_for_element)
    }

    /// Blocks the thread until there is an element, for at most `limit`.
    ///
    /// # Errors
    /// [`WaitError`].
    /// # Panics
    /// In the child of a fork, if it would wait.
    pub fn block_for(mut self, limit: Duration) -> Result<(u64, T), WaitError> {
        match self.0.block_for(limit, look_for_element) {
            Some(answer) => answer.map_err(|Closed| WaitError::Closed),
            None => Err(WaitError::TimedOut),
        }
    }
}

impl<T, B: Deref<Target = Queue<T>> + Unpin> Future for Wait<T, B> {
    type Output = Result<(u64, T), Closed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.step(cx.waker(), look_for_element)
    }
}

impl<T, B: Deref<Target = Queue<T>>> fmt::Debug for Wait<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("is_queued", &self.0.ticket.is_some()).finish_non_exhaustive()
    }
}

/// A waiting [`take_raw`](Client::take_raw), which also ends when the work is done: a future, with a form
/// that blocks the thread. The caller [finishes](Client::finish) each element that it returns.
///
/// # Cost
/// That of [`Wait`].
#[must_use = "a wait does nothing until it is awaited or blocks"]
pub struct WaitTaken<T, B: Deref<Target = Queue<T>>>(Sleep<T, B>);

impl<T, B: Deref<Target = Queue<T>>> WaitTaken<T, B> {
    /// Makes a wait. It begins with its first poll, or when it blocks.
    pub fn new(queue: B) -> WaitTaken<T, B> {
        WaitTaken(Sleep::new(queue, None, true))
    }

    /// Makes a wait of the client of a place.
    ///
    /// # Panics
    /// If the queue has no such place: in the first poll.
    pub fn at(queue: B, place: usize) -> WaitTaken<T, B> {
        WaitTaken(Sleep::new(queue, Some(place), true))
    }

    /// Blocks the thread until there is an element, or the end.
    ///
    /// # Errors
    /// [`End`].
    /// # Panics
    /// In the child of a fork, if it would wait.
    pub fn block(mut self) -> Result<(u64, T), End> {
        self.0.block(look_for_end)
    }
}

impl<T, B: Deref<Target = Queue<T>> + Unpin> Future for WaitTaken<T, B> {
    type Output = Result<(u64, T), End>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.step(cx.waker(), look_for_end)
    }
}

impl<T, B: Deref<Target = Queue<T>>> fmt::Debug for WaitTaken<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitTaken").field("is_queued", &self.0.ticket.is_some()).finish_non_exhaustive()
    }
}

impl<'a, T> Client<'a, T> {
    /// Waits until there is an element: see [`Wait`].
    ///
    /// # Errors
    /// [`Closed`].
    pub fn get_wait(&self) -> Result<(u64, T), Closed> {
        Wait::at(self.queue, self.index()).block()
    }

    /// Waits until there is an element, for at most `limit`: see [`Wait`].
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn get_for(&self, limit: Duration) -> Result<(u64, T), WaitError> {
        Wait::at(self.queue, self.index()).block_for(limit)
    }

    /// Waits until there is an element, or until the work is done: see [`Queue::is_done`]. The element counts
    /// as unfinished until the result is dropped.
    ///
    /// # Errors
    /// [`End`].
    ///
    /// # Example
    /// ```
    /// use squall::parts::queue::{End, Form, Queue};
    ///
    /// let work = Queue::new(Form::Local);
    /// work.here().put(3, 3_u32)?;
    /// std::thread::scope(|threads| {
    ///     for _ in 0..2 {
    ///         threads.spawn(|| {
    ///             let client = work.here();
    ///             let end = loop {
    ///                 match client.take_wait() {
    ///                     // Each element leads to a smaller one.
    ///                     Ok(n) if *n > 0 => client.put(n.priority(), *n - 1).unwrap(),
    ///                     Ok(_) => {}
    ///                     Err(end) => break end,
    ///                 }
    ///             };
    ///             assert_eq!(end, End::Done);
    ///         });
    ///     }
    /// });
    /// assert!(work.is_empty());
    /// # Ok::<(), squall::parts::queue::Rejected<u32>>(())
    /// ```
    pub fn take_wait(&self) -> Result<Taken<'a, T>, End> {
        let (priority, value) = WaitTaken::at(self.queue, self.index()).block()?;
        Ok(Taken::new(*self, priority, value))
    }
}
