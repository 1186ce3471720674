//! `QueueExt`: the methods of a queue that put, get, take and wait, on its handle.

use squall_core::{CallError, CallErrorKind, Handle};
use squall_parts::queue::{self as parts, Attributes, Wait, WaitTaken};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::actions::{Checked, FinishOne, Get, Put, PutFrom, Take};
use super::forms::Contents;
use super::{End, PutError, Queue, Rejected, Taken, WaitError};
use crate::answers::{panics_in, returns_in};

/// The methods of a queue that put, get, take and wait. Import it to call them on a handle or an owner.
///
/// Each method panics if the object was destroyed and its result holds no [`CallError`].
///
/// # Cost
/// A put or get: an operation, the search for the representative, and the lock of a heap. See
/// [`squall_parts::queue`].
///
/// ```
/// use squall::objects::queue::{self, QueueExt};
///
/// let jobs = queue::strict();
/// jobs.put(1, "a job")?;
/// assert_eq!(jobs.get(), Some((1, "a job")));
/// # Ok::<(), queue::Rejected<&str>>(())
/// ```
pub trait QueueExt<T: Send + 'static>: Copy {
    /// Puts an element. If threads or tasks wait, it wakes the one that has waited longest.
    ///
    /// In the local form the call may have the attribute [`INSERTION`](super::INSERTION).
    ///
    /// # Errors
    /// [`Rejected`], with the element, if the queue is closed.
    /// # Panics
    /// If the object was destroyed.
    fn put(self, priority: u64, value: T) -> Result<(), Rejected<T>>;

    /// Like [`put`](QueueExt::put), but returns an error if the object was destroyed.
    ///
    /// ```
    /// use squall::objects::queue::{self, QueueExt};
    ///
    /// let jobs = queue::strict();
    /// let handle = jobs.handle();
    /// drop(jobs);
    /// assert_eq!(handle.try_put(7, "a job").unwrap_err().into_element(), (7, "a job"));
    /// ```
    ///
    /// # Errors
    /// [`PutError`], with the element.
    fn try_put(self, priority: u64, value: T) -> Result<(), PutError<T>>;

    /// Removes an element, in the order of the queue's form. Returns `None` only if at one moment of the call
    /// the queue was empty.
    ///
    /// # Panics
    /// If the object was destroyed.
    /// # Cost
    /// To find the queue empty takes a look at each heap, apart from the strict form.
    fn get(self) -> Option<(u64, T)>;

    /// Like [`get`](QueueExt::get), but returns an error if the object was destroyed.
    ///
    /// ```
    /// use squall::objects::queue::{self, QueueExt};
    ///
    /// let jobs = queue::strict::<u32>();
    /// let handle = jobs.handle();
    /// assert_eq!(handle.try_get(), Ok(None));
    /// drop(jobs);
    /// assert!(handle.try_get().is_err());
    /// ```
    ///
    /// # Errors
    /// [`CallError`] if the object was destroyed.
    fn try_get(self) -> Result<Option<(u64, T)>, CallError>;

    /// Removes an element; blocks the thread while the queue is empty. The waiter that has waited longest is
    /// woken first; any [`get`](QueueExt::get) may take the element before it. A task uses
    /// [`get_async`](QueueExt::get_async).
    ///
    /// ```
    /// use squall::objects::queue::{self, QueueExt};
    ///
    /// let jobs = queue::strict();
    /// std::thread::scope(|scope| {
    ///     let worker = scope.spawn(|| jobs.get_wait());
    ///     jobs.put(7, "a job").unwrap();
    ///     assert_eq!(worker.join().unwrap(), Ok((7, "a job")));
    /// });
    /// ```
    ///
    /// # Errors
    /// [`WaitError`] if the queue was closed and is empty, or the object was destroyed, also while the call
    /// waits.
    /// # Panics
    /// Within an operation, since an operation must not sleep.
    fn get_wait(self) -> Result<(u64, T), WaitError>;

    /// Like [`get_wait`](QueueExt::get_wait), but returns `None` after `limit`.
    ///
    /// ```
    /// use squall::objects::queue::{self, QueueExt};
    /// use std::time::Duration;
    ///
    /// let jobs = queue::strict::<u32>();
    /// assert_eq!(jobs.get_for(Duration::from_millis(1)), Ok(None));
    /// ```
    ///
    /// # Errors
    /// The errors of [`get_wait`](QueueExt::get_wait).
    /// # Panics
    /// Within an operation, like [`get_wait`](QueueExt::get_wait).
    fn get_for(self, limit: Duration) -> Result<Option<(u64, T)>, WaitError>;

    /// Like [`get_wait`](QueueExt::get_wait), for a task. The future needs no particular runtime. Dropping it
    /// cancels the wait. Each element stays in the queue.
    ///
    /// ```
    /// use squall::objects::queue::{self, QueueExt};
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    ///
    /// let jobs = queue::strict();
    /// let mut job = pin!(jobs.get_async());
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(job.as_mut().poll(&mut context).is_pending());
    /// jobs.put(7, "a job")?;
    /// assert_eq!(job.poll(&mut context), Poll::Ready(Ok((7, "a job"))));
    /// # Ok::<(), queue::Rejected<&str>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`get_wait`](QueueExt::get_wait).
    fn get_async(self) -> impl Future<Output = Result<(u64, T), WaitError>> + Send + 'static;

    /// Removes an element like [`get`](QueueExt::get), but it counts as unfinished until the result is
    /// dropped: see [`Queue::is_done`].
    ///
    /// # Panics
    /// If the object was destroyed.
    fn take(self) -> Option<Taken<T>>;

    /// Like [`take`](QueueExt::take), but returns an error if the object was destroyed.
    ///
    /// # Errors
    /// [`CallError`] if the object was destroyed.
    fn try_take(self) -> Result<Option<Taken<T>>, CallError>;

    /// Takes an element; blocks the thread while the queue is empty and the work is not
    /// [done](Queue::is_done).
    ///
    /// ```
    /// use squall::objects::queue::{self, End, QueueExt};
    ///
    /// let work = queue::local();
    /// work.put(0, "the first node")?;
    /// while let Ok(node) = work.take_wait() {
    ///     if node.priority() < 3 {
    ///         work.put(node.priority() + 1, "another node")?;
    ///     }
    /// }
    /// assert_eq!(work.take_wait().unwrap_err(), End::Done);
    /// # Ok::<(), queue::Rejected<&str>>(())
    /// ```
    ///
    /// # Errors
    /// [`End`] if the work is done, if the queue was closed and is empty, or if the object was destroyed.
    /// # Panics
    /// Within an operation, since an operation must not sleep.
    fn take_wait(self) -> Result<Taken<T>, End>;

    /// Like [`take_wait`](QueueExt::take_wait), for a task. The future needs no particular runtime. Dropping
    /// it cancels the wait. Each element stays in the queue.
    ///
    /// # Errors
    /// The errors of [`take_wait`](QueueExt::take_wait).
    fn take_async(self) -> impl Future<Output = Result<Taken<T>, End>> + Send + 'static;

    /// Calls `f` with the attributes of the queue. They may be changed at any time, and swaps keep them.
    ///
    /// ```
    /// use squall::objects::queue::{self, Insertion, QueueExt};
    ///
    /// let work = queue::local::<u32>();
    /// work.attributes(|attributes| attributes.set_insertion(Insertion::LoadBalance));
    /// assert_eq!(work.attributes(|attributes| attributes.insertion()), Insertion::LoadBalance);
    /// ```
    ///
    /// # Panics
    /// If the object was destroyed.
    fn attributes<R>(self, f: impl FnOnce(&Attributes) -> R) -> R;
}

impl<T: Send + 'static> QueueExt<T> for Handle<dyn Queue<T>> {
    #[inline]
    #[track_caller]
    fn put(self, priority: u64, value: T) -> Result<(), Rejected<T>> {
        self.__call_action("put_one", Put { callee: self, priority, value }, panics_in!("put"))
    }

    #[inline]
    fn try_put(self, priority: u64, value: T) -> Result<(), PutError<T>> {
        let mut slot = Some(value);
        let put = Checked(PutFrom { callee: self, priority, slot: &mut slot });
        match self.__call_action("put_one", put, returns_in!("put")) {
            Ok(result) => result.map_err(PutError::Closed),
            Err(error) => refuse(error, priority, slot),
        }
    }

    #[inline]
    #[track_caller]
    fn get(self) -> Option<(u64, T)> {
        self.__call_action("get_one", Get, panics_in!("get"))
    }

    #[inline]
    fn try_get(self) -> Result<Option<(u64, T)>, CallError> {
        self.__call_action("get_one", Checked(Get), returns_in!("get"))
    }

    fn get_wait(self) -> Result<(u64, T), WaitError> {
        check_place();
        loop {
            let site = match find(self, "get_wait")? {
                Ok(found) => return Ok(found),
                Err(site) => site,
            };
            if let Ok(found) = site.wait().block() {
                return Ok(found);
            }
            site.check_closed(self, "get_wait", WaitError::Closed)?;
        }
    }

    fn get_for(self, limit: Duration) -> Result<Option<(u64, T)>, WaitError> {
        check_place();
        let Some(deadline) = Instant::now().checked_add(limit) else { return self.get_wait().map(Some) };
        loop {
            let site = match find(self, "get_for")? {
                Ok(found) => return Ok(Some(found)),
                Err(site) => site,
            };
            match site.wait().block_for(deadline.saturating_duration_since(Instant::now())) {
                Ok(found) => return Ok(Some(found)),
                Err(parts::WaitError::TimedOut) => return Ok(None),
                Err(parts::WaitError::Closed) => site.check_closed(self, "get_for", WaitError::Closed)?,
            }
        }
    }

    fn get_async(self) -> impl Future<Output = Result<(u64, T), WaitError>> + Send + 'static {
        wait_async(self)
    }

    #[inline]
    #[track_caller]
    fn take(self) -> Option<Taken<T>> {
        let taken = self.__call_action("take_one", Take, panics_in!("take"));
        taken.map(|taken| Taken::new(self, taken))
    }

    #[inline]
    fn try_take(self) -> Result<Option<Taken<T>>, CallError> {
        let taken = self.__call_action("take_one", Checked(Take), returns_in!("take"))?;
        Ok(taken.map(|taken| Taken::new(self, taken)))
    }

    fn take_wait(self) -> Result<Taken<T>, End> {
        check_place();
        loop {
            let site = match find_taken(self, "take_wait")? {
                Ok(taken) => return Ok(taken),
                Err(site) => site,
            };
            match site.wait_taken().block() {
                Ok((priority, value)) => {
                    return Ok(Taken::new(self, (priority, value, site.contents.number)));
                }
                Err(parts::End::Done) => return Err(End::Done),
                Err(parts::End::Closed) => site.check_closed(self, "take_wait", End::Closed)?,
            }
        }
    }

    fn take_async(self) -> impl Future<Output = Result<Taken<T>, End>> + Send + 'static {
        take_async(self)
    }

    #[track_caller]
    fn attributes<R>(self, f: impl FnOnce(&Attributes) -> R) -> R {
        f(self.contents_unarbitrated().0.attributes())
    }
}

/// Returns the error of a put whose call failed.
#[cold]
fn refuse<T>(error: CallError, priority: u64, slot: Option<T>) -> Result<(), PutError<T>> {
    // The slot is full, since the action of a call that fails does not run.
    slot.map_or(Ok(()), |value| Err(PutError::Call { error, priority, value }))
}

/// Finishes an element that was taken from the contents of this number. If the object was destroyed, no
/// client needs to know. A thread that moves state for a swap must not wait for the object: the element is
/// then finished later, on this thread or the reclaimer thread.
#[inline]
pub(super) fn finish<T: Send + 'static>(queue: Handle<dyn Queue<T>>, number: u64) {
    let action = Checked(FinishOne(number));
    let result = queue.__call_action("finish_one_unarbitrated", action, returns_in!("finish"));
    // Another error means that no client of this process waits for the end.
    if result.is_err_and(|error| error.reason() == CallErrorKind::InTransfer) {
        squall_rcu::defer(move || finish(queue, number));
    }
}

/// The place where a call waits.
struct Site<T> {
    contents: Contents<T>,
    /// The place of the strict form, so that a wait adds no other one.
    place: Option<usize>,
}

impl<T: Send + 'static> Site<T> {
    /// Returns the place where a call of this handle waits.
    fn of(handle: Handle<dyn Queue<T>>) -> Result<Site<T>, CallError> {
        handle.try_contents_unarbitrated().map(|(contents, place)| Site { contents, place })
    }

    fn wait(&self) -> Wait<T, Arc<parts::Queue<T>>> {
        let queue = self.contents.queue.clone();
        match self.place {
            Some(place) => Wait::at(queue, place),
            None => Wait::new(queue),
        }
    }

    fn wait_taken(&self) -> WaitTaken<T, Arc<parts::Queue<T>>> {
        let queue = self.contents.queue.clone();
        match self.place {
            Some(place) => WaitTaken::at(queue, place),
            None => WaitTaken::new(queue),
        }
    }

    /// Tells why a wait found the queue closed: `closed` if the program closed it, or the error of a call if
    /// the object was destroyed. After a swap without state, the object has another queue, and the caller
    /// waits there.
    fn check_closed<E: From<CallError>>(
        &self,
        handle: Handle<dyn Queue<T>>,
        method: &'static str,
        closed: E,
    ) -> Result<(), E> {
        let now = Site::of(handle).map_err(|error| E::from(error.__in_method(method)))?;
        if now.contents.number == self.contents.number { Err(closed) } else { Ok(()) }
    }
}

/// Returns an element for a call that may wait, or the place where it must wait.
fn find<T: Send + 'static>(
    handle: Handle<dyn Queue<T>>,
    method: &'static str,
) -> Result<Result<(u64, T), Site<T>>, CallError> {
    let find = || match handle.try_get()? {
        Some(found) => Ok(Ok(found)),
        None => Site::of(handle).map(Err),
    };
    find().map_err(|error: CallError| error.__in_method(method))
}

/// Takes an element for a call that may wait, or returns the place where it must wait.
fn find_taken<T: Send + 'static>(
    handle: Handle<dyn Queue<T>>,
    method: &'static str,
) -> Result<Result<Taken<T>, Site<T>>, CallError> {
    let find = || match handle.try_take()? {
        Some(taken) => Ok(Ok(taken)),
        None => Site::of(handle).map(Err),
    };
    find().map_err(|error: CallError| error.__in_method(method))
}

async fn wait_async<T: Send + 'static>(handle: Handle<dyn Queue<T>>) -> Result<(u64, T), WaitError> {
    loop {
        let site = match find(handle, "get_async")? {
            Ok(found) => return Ok(found),
            Err(site) => site,
        };
        if let Ok(found) = site.wait().await {
            return Ok(found);
        }
        site.check_closed(handle, "get_async", WaitError::Closed)?;
    }
}

async fn take_async<T: Send + 'static>(handle: Handle<dyn Queue<T>>) -> Result<Taken<T>, End> {
    loop {
        let site = match find_taken(handle, "take_async")? {
            Ok(taken) => return Ok(taken),
            Err(site) => site,
        };
        match site.wait_taken().await {
            Ok((priority, value)) => return Ok(Taken::new(handle, (priority, value, site.contents.number))),
            Err(parts::End::Done) => return Err(End::Done),
            Err(parts::End::Closed) => site.check_closed(handle, "take_async", End::Closed)?,
        }
    }
}

fn check_place() {
    assert!(
        !squall_rcu::in_operation(),
        "cannot wait for an element inside an operation: wait after the operation has ended"
    );
}
