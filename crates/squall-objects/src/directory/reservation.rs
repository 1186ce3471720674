//! `Reservation`: a key of a directory, with an entry that is made later, by any thread or task.

use squall_core::Handle;
use squall_parts::dhash::{self, FillError, Revoked};
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use super::Directory;

/// A reserved key: its entry is made later, by the holder of this.
///
/// The holder may keep it for any time, over an `.await`, and give it to another thread. One of four events
/// ends it:
///
/// | event | key | callers that wait for it |
/// |---|---|---|
/// | [`fill`](Reservation::fill), [`fill_and_update`](Reservation::fill_and_update) | present | find it |
/// | [`fail`](Reservation::fail) | absent | get the error |
/// | drop, also by a panic | absent | one of them reserves it |
/// | [`revoke`](super::Parts::revoke), end of the directory | absent | one of them reserves it, or fails |
///
/// Until then the key is absent for reads and walks. [`Parts::get_or_reserve`](super::Parts::get_or_reserve)
/// waits, and a swap or the end of the directory does not wait for it. Calls that lock the key, such as
/// [`update`](super::Parts::update), [`gather`](super::Parts::gather), [`remove`](super::Parts::remove) and
/// [`get_or_make`](super::Parts::get_or_make), wait too, within their call. Such a caller keeps the directory
/// alive. A swap of the directory waits for it, or gives up after its drain timeout. So a holder should end
/// its reservation by `fill`, `fail` or drop. The end of the directory frees only the callers of
/// `get_or_reserve`.
///
/// The thread or task that holds a reservation must not wait for the same key: it would wait for itself. A
/// reservation that is forgotten keeps its key reserved until it is revoked.
///
/// # Source
/// CO-56 (Appavoo 2005, §4.1.4 and Fig 4.15).
///
/// # Example
/// ```
/// use squall::objects::directory::{self, Lookup, Parts};
///
/// let pages = directory::shared::<u64, Vec<u8>, u64>(|_| 0);
/// let Ok(Lookup::Empty(page)) = pages.get_or_reserve(&7, |_, _| ()) else { unreachable!() };
/// assert!(pages.try_get_or_reserve(&7, |_, _| ()).is_err(), "the page is being read");
/// // Another thread completes the input.
/// std::thread::spawn(move || page.fill(vec![1, 2, 3]).unwrap()).join().unwrap();
/// assert_eq!(pages.read(&7, Vec::len), Some(3));
/// ```
#[must_use = "a reservation that is dropped leaves its key absent"]
pub struct Reservation<K, G, L, S = RandomState>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    pub(super) key: dhash::Reservation<K, G, L, S>,
    pub(super) directory: Handle<dyn Directory<K, G, L, S>>,
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
        self.key.key()
    }

    /// Returns the approximate number of threads and tasks that wait for the key.
    pub fn waiters(&self) -> usize {
        self.key.waiters()
    }

    /// Whether the reservation was revoked, or the directory has ended. A long fill may check it and give up.
    pub fn is_revoked(&self) -> bool {
        self.key.is_revoked()
    }

    /// Fills the key with its entry, and wakes the callers that wait for it. Makes no part. Needs no call of
    /// the directory, so it does not wait for a swap.
    ///
    /// # Errors
    /// [`Revoked`] with the entry.
    ///
    /// # Panics
    /// If the waker of a waiting task panics. The key is then present.
    pub fn fill(self, entry: G) -> Result<(), Revoked<G>> {
        self.key.fill(entry)
    }

    /// Fills the key, and calls `f` with the key's part of this cluster, locked. No other caller locks that
    /// part before.
    ///
    /// # Errors
    /// [`Revoked`] with the entry: the reservation was revoked, or a call of the directory fails, as after
    /// its destruction. `f` did not run, and the key stays absent.
    ///
    /// # Panics
    /// If the function that makes parts panics: the key stays absent. If `f` panics: the key is present. In
    /// debug builds, within a closure of the same directory.
    ///
    /// # Example
    /// ```
    /// use squall::objects::directory::{self, Lookup, Parts};
    ///
    /// let files = directory::shared::<String, u64, u64>(|_| 0);
    /// let open = || match files.get_or_reserve("motd", |file, uses| (*file, { *uses += 1; *uses })) {
    ///     Ok(Lookup::Found(found)) => found,
    ///     Ok(Lookup::Empty(key)) => key.fill_and_update(3, |file, uses| (*file, { *uses += 1; *uses })).unwrap(),
    ///     Err(error) => panic!("{error}"),
    /// };
    /// assert_eq!([open(), open()], [(3, 1), (3, 2)]);
    /// ```
    pub fn fill_and_update<R>(self, entry: G, f: impl FnOnce(&G, &mut L) -> R) -> Result<R, Revoked<G>> {
        let (mut fill, mut filled) = (Some((self.key, entry, f)), None);
        // A call that fails does not run its closure.
        let _ = self.directory.try_with(&mut |tables| {
            filled = fill.take().map(|(key, entry, f)| key.fill_and_lock(tables.here, entry, f));
        });
        match (filled, fill) {
            (Some(filled), _) => filled,
            (None, Some((_, entry, _))) => Err(Revoked(entry)),
            (None, None) => unreachable!("the closure took the entry and has no result"),
        }
    }

    /// Ends the reservation with an error. Callers that wait in a method with `reserve` in its name return
    /// the error. All others find the key absent, and the next caller may reserve it.
    ///
    /// # Panics
    /// If the waker of a waiting task panics. The reservation has then ended.
    ///
    /// # Example
    /// ```
    /// use squall::objects::directory::{self, Lookup, Parts};
    ///
    /// let pages = directory::shared::<u64, u64, ()>(|_| ());
    /// let page = pages.get_or_reserve(&7, |_, _| ()).unwrap().empty().unwrap();
    /// page.fail(std::io::Error::other("the disk is gone"));
    /// assert!(matches!(pages.get_or_reserve(&7, |_, _| ()), Ok(Lookup::Empty(_))));
    /// ```
    pub fn fail(self, error: impl Into<FillError>) {
        self.key.fail(error);
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
        self.key.fmt(f)
    }
}
