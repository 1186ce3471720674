//! `Reservation`: a key whose element is handed out empty, and filled later by any thread or task.
//!
//! - I1. A reservation has one element, which it alone fills. Its drop ends the fill in any case.
//! - I2. A reservation does not keep its table alive. So the end of the table needs no fill to end.
//! - I3. Its methods that run no closure take the locks of the element and of the tables' buckets only. So a
//!   reservation may be filled, failed or dropped anywhere, also within a closure of the same table.

use squall_sys::sync::{Arc, Weak};
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};

use crate::dhash::element::Locked;
use crate::dhash::raw::{DeferredDrops, Element, Shared, run_in_drop, take};
use crate::dhash::reserve::Step;
use crate::dhash::{FillError, LocalTable, MasterTable};
use crate::drops::Drops;

/// The result of a lookup that reserves an absent key.
#[derive(Debug)]
#[must_use = "a reservation that is dropped leaves its key absent"]
pub enum Lookup<R, V> {
    /// The key was present. Contains the result of the caller's closure.
    Found(R),
    /// The key was absent. The caller has to fill it.
    Empty(V),
}

impl<R, V> Lookup<R, V> {
    /// Returns the result of the closure if the key was present.
    pub fn found(self) -> Option<R> {
        match self {
            Lookup::Found(found) => Some(found),
            Lookup::Empty(_) => None,
        }
    }

    /// Returns the reservation if the key was absent.
    pub fn empty(self) -> Option<V> {
        match self {
            Lookup::Found(_) => None,
            Lookup::Empty(reservation) => Some(reservation),
        }
    }
}

/// The key is being filled. Another caller has reserved it, or runs its filling closure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key is being filled: try again later, or wait for the fill")
    }
}

impl std::error::Error for Busy {}

/// A fill that came too late: the reservation was revoked, or its table was dropped. Returns the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoked<G>(pub G);

impl<G> fmt::Display for Revoked<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the key was not filled: its reservation was revoked, or its table was dropped; reserve it again",
        )
    }
}

impl<G: fmt::Debug> std::error::Error for Revoked<G> {}

/// A reserved key: its element is locked and empty until the holder fills it.
///
/// The holder may keep it for any time, over an `.await`, and give it to another thread. One of four events
/// ends it:
///
/// | event | key | callers that wait for it |
/// |---|---|---|
/// | [`fill`](Reservation::fill), [`fill_and_lock`](Reservation::fill_and_lock) | present | find it |
/// | [`fail`](Reservation::fail) | absent | get the error |
/// | drop, also by a panic | absent | one of them reserves it |
/// | [`MasterTable::revoke`] | absent | one of them reserves it, and a later fill returns its value |
///
/// Until then other calls treat the key as follows:
///
/// | call | effect |
/// |---|---|
/// | `read`, `for_each`, `visit_from` | the key is absent |
/// | `find_or_reserve`, `find_or_reserve_async` | waits |
/// | `try_find_or_reserve` | returns [`Busy`] |
/// | all that lock one key, and `empty_data` | waits, then finds the key, or does not |
/// | walks, `do_op_all`, `retain`, `clear` | skips the key |
///
/// Dropping the tables does not wait for reservations. A later fill returns its value.
///
/// The thread or task that holds a reservation must not wait for the same key: it would wait for itself. A
/// reservation that is forgotten keeps its key reserved until it is revoked.
///
/// # Cost
/// Reserving and filling: as for a key that a closure fills, and a second lock of the element.
///
/// # Source
/// CO-56 (Appavoo 2005, §4.1.4 and Fig 4.15).
///
/// # Example
/// ```
/// use squall::parts::dhash::{Lookup, MasterTable};
///
/// let pages = MasterTable::<u64, Vec<u8>, ()>::new(|_| ());
/// let Ok(Lookup::Empty(page)) = pages.find_or_reserve(&7, |_| ()) else { unreachable!() };
/// assert!(pages.try_find_or_reserve(&7, |_| ()).is_err(), "the page is being read");
/// // Another thread completes the input.
/// std::thread::spawn(move || page.fill(vec![1, 2, 3]).unwrap()).join().unwrap();
/// assert_eq!(pages.read(&7, Vec::len), Some(3));
/// ```
#[must_use = "a reservation that is dropped leaves its key absent"]
pub struct Reservation<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    shared: Weak<Shared<K, G, L, S>>,
    element: Arc<Element<K, G>>,
}

impl<K, G, L, S> Reservation<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Returns the key.
    pub fn key(&self) -> &K {
        self.element.key()
    }

    /// Returns the approximate number of threads and tasks that wait for the key. Threads that wait for it in
    /// a method without `reserve` in its name are counted too.
    ///
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let pages = MasterTable::<u64, u64, ()>::new(|_| ());
    /// let page = pages.find_or_reserve(&7, |_| ()).unwrap().empty().unwrap();
    /// assert_eq!(page.waiters(), 0);
    /// ```
    pub fn waiters(&self) -> usize {
        self.element.waiters()
    }

    /// Whether the reservation was revoked, or its table dropped. A long fill may check it and give up.
    pub fn is_revoked(&self) -> bool {
        !self.element.is_filling() || self.shared.strong_count() == 0
    }

    /// Fills the key with its global part, and wakes the callers that wait for it.
    ///
    /// # Errors
    /// [`Revoked`] with the value.
    ///
    /// # Panics
    /// If the waker of a waiting task panics. The key is then present.
    pub fn fill(self, global: G) -> Result<(), Revoked<G>> {
        match self.shared.upgrade() {
            Some(shared) => shared.fill_reserved(&self.element, global).map_err(Revoked),
            None => Err(Revoked(global)),
        }
    }

    /// Fills the key, and calls `then` with the key's part in `local`, locked. No other caller locks the part
    /// before. `local` is a table of the same master; it need not be the one that returned the reservation.
    ///
    /// # Errors
    /// [`Revoked`] with the value. `then` did not run.
    ///
    /// # Panics
    /// If `local` belongs to another master, or the function that makes local parts panics: the key stays
    /// absent. If `then` panics: the key is present. In debug builds, within a closure of the same table.
    ///
    /// # Example
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let pages = MasterTable::<u64, u64, u32>::new(|_frame| 0);
    /// let here = pages.local();
    /// let page = here.find_or_reserve(&7, |_, _| ()).unwrap().empty().unwrap();
    /// page.fill_and_lock(&here, 4096, |_frame, maps| *maps += 1).unwrap();
    /// assert_eq!(here.find_and_lock(&7, |frame, maps| (*frame, *maps)), Some((4096, 1)));
    /// ```
    pub fn fill_and_lock<R>(
        self,
        local: &LocalTable<K, G, L, S>,
        global: G,
        then: impl FnOnce(&G, &mut L) -> R,
    ) -> Result<R, Revoked<G>> {
        assert!(
            std::ptr::eq(Arc::as_ptr(&local.shared), self.shared.as_ptr()),
            "squall-parts: the local table and the reservation belong to different master tables"
        );
        local.check();
        local.shared.fill_reserved_local(&local.table, &self.element, global, then).map_err(Revoked)
    }

    /// Ends the reservation with an error. Callers that wait in a method with `reserve` in its name return
    /// the error. All others find the key absent, and the next caller may reserve it.
    ///
    /// # Panics
    /// If the waker of a waiting task panics. The reservation has then ended.
    ///
    /// # Example
    /// ```
    /// use squall::parts::dhash::{Lookup, MasterTable};
    /// let pages = MasterTable::<u64, u64, ()>::new(|_| ());
    /// let page = pages.find_or_reserve(&7, |_| ()).unwrap().empty().unwrap();
    /// page.fail(std::io::Error::other("the disk is gone"));
    /// assert!(matches!(pages.find_or_reserve(&7, |_| ()), Ok(Lookup::Empty(_))));
    /// ```
    pub fn fail(self, error: impl Into<FillError>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.end_reserved(&self.element, Some(&error.into()));
        }
    }
}

impl<K, G, L, S> Drop for Reservation<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        if self.element.is_filling()
            && let Some(shared) = self.shared.upgrade()
        {
            run_in_drop(|| _ = shared.end_reserved(&self.element, None));
        }
    }
}

impl<K, G, L, S> fmt::Debug for Reservation<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + fmt::Debug + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("key", self.key()).finish_non_exhaustive()
    }
}

/// Internal: a key that another caller fills. Waits for the end of the fill without the table, so that an
/// object can be swapped or destroyed meanwhile.
///
/// The end of the table alone wakes no waiter: its owner first calls [`MasterTable::revoke_all`].
#[doc(hidden)]
pub struct __Filling<K, G>(Arc<Element<K, G>>);

impl<K, G> __Filling<K, G> {
    /// Waits on this thread.
    ///
    /// # Errors
    /// The error of a reservation that [failed](Reservation::fail).
    ///
    /// # Panics
    /// In the child of a fork. In builds with debug assertions, inside an operation.
    pub fn wait(&self) -> Result<(), FillError> {
        self.0.await_fill().map_or(Ok(()), Err)
    }

    /// Like [`wait`](__Filling::wait), but the task waits.
    ///
    /// # Errors
    /// As [`wait`](__Filling::wait).
    pub async fn filled(&self) -> Result<(), FillError> {
        self.0.filled().await.map_or(Ok(()), Err)
    }
}

/// The answer to a caller that reserves an absent key.
type Answer<R, K, G, L, S, E> = Result<Lookup<R, Reservation<K, G, L, S>>, E>;

/// Returns the result of an attempt, or the element that another caller fills.
fn lookup<K, G, L, S, R>(
    shared: &Arc<Shared<K, G, L, S>>,
    step: Step<R, K, G>,
) -> Answer<R, K, G, L, S, Arc<Element<K, G>>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    match step {
        Step::Found(found) => Ok(Lookup::Found(found)),
        Step::Reserved(element) => Ok(Lookup::Empty(Reservation { shared: Arc::downgrade(shared), element })),
        Step::Filling(element) => Err(element),
    }
}

/// Makes attempts until one has a result. The thread waits while another caller fills the key.
fn retry<K, G, L, S, R>(
    shared: &Arc<Shared<K, G, L, S>>,
    mut step: impl FnMut() -> Step<R, K, G>,
) -> Answer<R, K, G, L, S, FillError>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    loop {
        match lookup(shared, step()) {
            Ok(lookup) => return Ok(lookup),
            Err(element) => element.await_fill().map_or(Ok(()), Err)?,
        }
    }
}

/// Like [`retry`], but the task waits.
async fn retry_async<K, G, L, S, R>(
    shared: &Arc<Shared<K, G, L, S>>,
    mut step: impl FnMut() -> Step<R, K, G>,
) -> Answer<R, K, G, L, S, FillError>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    loop {
        match lookup(shared, step()) {
            Ok(lookup) => return Ok(lookup),
            Err(element) => element.filled().await.map_or(Ok(()), Err)?,
        }
    }
}

impl<K, G, L, S> MasterTable<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn step<Q, R>(
        &self,
        key: &Q,
        then: &mut Option<impl FnOnce(Locked<'_, K, G, L, S>) -> R>,
    ) -> Step<R, K, G>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        let mut deferred = DeferredDrops::new();
        self.check();
        let mut locked =
            Some(|element: &Arc<_>| take(then)(Locked::new(&self.shared, element, &mut deferred)));
        self.shared.reserve(key, &mut locked)
    }

    /// Locks the key's element and calls `then` with it, if the key is present. Otherwise reserves the key.
    /// Waits while another caller fills the key. See [`LocalTable::find_or_reserve`].
    ///
    /// # Errors
    /// [`FillError`]: this call waited for a reservation, and its holder [failed](Reservation::fail).
    ///
    /// # Panics
    /// As [`LocalTable::find_or_reserve`].
    pub fn find_or_reserve<Q, R>(
        &self,
        key: &Q,
        then: impl FnOnce(Locked<'_, K, G, L, S>) -> R,
    ) -> Answer<R, K, G, L, S, FillError>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        let mut then = Some(then);
        retry(&self.shared, || self.step(key, &mut then))
    }

    /// Like [`find_or_reserve`](MasterTable::find_or_reserve), but does not wait for a fill.
    ///
    /// # Errors
    /// [`Busy`]: another caller fills the key.
    pub fn try_find_or_reserve<Q, R>(
        &self,
        key: &Q,
        then: impl FnOnce(Locked<'_, K, G, L, S>) -> R,
    ) -> Answer<R, K, G, L, S, Busy>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        lookup(&self.shared, self.step(key, &mut Some(then))).map_err(|_| Busy)
    }

    /// Like [`find_or_reserve`](MasterTable::find_or_reserve), but the task waits, and not the thread. The
    /// thread waits only for closures that run under the element's lock.
    ///
    /// # Errors
    /// As [`find_or_reserve`](MasterTable::find_or_reserve).
    pub async fn find_or_reserve_async<Q, R>(
        &self,
        key: &Q,
        then: impl FnOnce(Locked<'_, K, G, L, S>) -> R,
    ) -> Answer<R, K, G, L, S, FillError>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        let mut then = Some(then);
        retry_async(&self.shared, || self.step(key, &mut then)).await
    }

    /// Ends the key's reservation, if it has one, without waiting for its holder. Returns whether it had one.
    /// The key is then absent, and a fill by the holder returns its value. A key that a closure fills is not
    /// changed.
    ///
    /// For an eviction or an invalidation: a key that is present needs
    /// [`empty_data`](MasterTable::empty_data).
    ///
    /// # Example
    /// ```
    /// use squall::parts::dhash::{MasterTable, Revoked};
    /// let pages = MasterTable::<u64, u64, ()>::new(|_| ());
    /// let page = pages.find_or_reserve(&7, |_| ()).unwrap().empty().unwrap();
    /// assert!(pages.revoke(&7) && !pages.revoke(&7));
    /// assert_eq!(page.fill(4096), Err(Revoked(4096)));
    /// ```
    pub fn revoke<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.shared.revoke(key)
    }

    /// Ends the reservations of all keys that are reserved from begin to end, like
    /// [`revoke`](MasterTable::revoke). For an object that ends: its waiting callers go on.
    ///
    /// # Panics
    /// If a waker or a key panics. The other reservations end before the panic goes on.
    ///
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let pages = MasterTable::<u64, u64, ()>::new(|_| ());
    /// let page = pages.find_or_reserve(&7, |_| ()).unwrap().empty().unwrap();
    /// pages.revoke_all();
    /// assert!(page.is_revoked());
    /// ```
    pub fn revoke_all(&self) {
        let (mut from, mut found) = (Some(0), Vec::new());
        // A waker that panics must not leave the later reservations, whose waiters sleep, without an end.
        let mut ends = Drops::default();
        while let Some(at) = from {
            from = self.shared.visit_from(at, &mut found);
            ends.each(found.drain(..), |element| _ = self.shared.end_reserved(&element, None));
        }
    }
}

impl<K, G, L, S> LocalTable<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn step<Q, R>(&self, key: &Q, then: &mut Option<impl FnOnce(&G, &mut L) -> R>) -> Step<R, K, G>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        self.check();
        self.shared.reserve_local(&self.table, key, then)
    }

    /// Internal: one attempt of [`find_or_reserve`](LocalTable::find_or_reserve). Takes `then` if the key is
    /// present.
    ///
    /// # Errors
    /// The key that another caller fills.
    #[doc(hidden)]
    pub fn __find_or_reserve<Q, R>(
        &self,
        key: &Q,
        then: &mut Option<impl FnOnce(&G, &mut L) -> R>,
    ) -> Answer<R, K, G, L, S, __Filling<K, G>>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        lookup(&self.shared, self.step(key, then)).map_err(__Filling)
    }

    /// Locks the key's replica in this table and calls `then` with its parts, if the key is present anywhere.
    /// Otherwise reserves the key. Of all callers that ask for an absent key, exactly one gets a
    /// [`Reservation`]. The others wait until it ends.
    ///
    /// # Errors
    /// [`FillError`]: this call waited for a reservation, and its holder [failed](Reservation::fail).
    ///
    /// # Panics
    /// If `then` panics. If the call must wait in the child of a fork. In debug builds, if it must wait
    /// inside an operation, and within a closure of the same table.
    ///
    /// # Cost
    /// A hit: as [`find_or_allocate_and_lock`](LocalTable::find_or_allocate_and_lock).
    /// # Source
    /// CO-55, CO-56.
    /// # Example
    /// ```
    /// use squall::parts::dhash::{Lookup, MasterTable};
    /// let files = MasterTable::<String, u64, u64>::new(|_handle| 0);
    /// let here = files.local();
    /// let open = || match here.find_or_reserve("motd", |handle, uses| (*handle, *uses)) {
    ///     Ok(Lookup::Found(found)) => found,
    ///     Ok(Lookup::Empty(file)) => file.fill_and_lock(&here, 3, |handle, uses| (*handle, *uses)).unwrap(),
    ///     Err(error) => panic!("{error}"),
    /// };
    /// assert_eq!([open(), open()], [(3, 0), (3, 0)]);
    /// ```
    pub fn find_or_reserve<Q, R>(
        &self,
        key: &Q,
        then: impl FnOnce(&G, &mut L) -> R,
    ) -> Answer<R, K, G, L, S, FillError>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        let mut then = Some(then);
        retry(&self.shared, || self.step(key, &mut then))
    }

    /// Like [`find_or_reserve`](LocalTable::find_or_reserve), but does not wait for a fill.
    ///
    /// # Errors
    /// [`Busy`]: another caller fills the key.
    pub fn try_find_or_reserve<Q, R>(
        &self,
        key: &Q,
        then: impl FnOnce(&G, &mut L) -> R,
    ) -> Answer<R, K, G, L, S, Busy>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        lookup(&self.shared, self.step(key, &mut Some(then))).map_err(|_| Busy)
    }

    /// Like [`find_or_reserve`](LocalTable::find_or_reserve), but the task waits, and not the thread. The
    /// thread waits only for closures that run under the key's locks.
    ///
    /// # Errors
    /// As [`find_or_reserve`](LocalTable::find_or_reserve).
    pub async fn find_or_reserve_async<Q, R>(
        &self,
        key: &Q,
        then: impl FnOnce(&G, &mut L) -> R,
    ) -> Answer<R, K, G, L, S, FillError>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        let mut then = Some(then);
        retry_async(&self.shared, || self.step(key, &mut then)).await
    }
}
