//! Bags with a limit: a second bag holds the room that is left.
//!
//! - I1. Elements, rooms, and calls in progress add up to the capacity. A put takes a room before it puts,
//!   and a get gives a room back after it took.
//!
//! So both sides have the forms of a bag. A put that finds the bag full waits as a get does that finds it
//! empty.

use squall_core::{CallError, Handle, Interface, Owned};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::ext::put_back;
use super::{Bag, BagExt};

/// Room for one element of a [`BoundedBag`].
#[derive(Debug)]
pub struct Room(());

/// A handle of a bounded bag: `Copy`, for any thread or task. [`BoundedBag`] is its owner.
///
/// # Cost
/// Twice that of a bag.
///
/// ```
/// use squall::objects::bag::BoundedBag;
///
/// let jobs = BoundedBag::adaptive(2);
/// assert_eq!((jobs.try_put("a"), jobs.try_put("b"), jobs.try_put("c")), (Ok(()), Ok(()), Err("c")));
/// let handle = jobs.handle();
/// std::thread::scope(|threads| {
///     threads.spawn(move || handle.put_wait("c"));
///     (0..3).for_each(|_| _ = handle.get_wait().unwrap());
/// });
/// assert!(jobs.is_empty());
/// ```
pub struct BoundedHandle<T: Send + 'static> {
    elements: Handle<dyn Bag<T>>,
    rooms: Handle<dyn Bag<Room>>,
    capacity: usize,
}

impl<T: Send + 'static> BoundedHandle<T> {
    /// Returns the largest number of elements.
    pub fn capacity(self) -> usize {
        self.capacity
    }

    /// Returns the number of elements: an estimate, like [`Bag::len`].
    ///
    /// # Panics
    /// If the bag was destroyed.
    #[track_caller]
    pub fn len(self) -> usize {
        self.elements.len()
    }

    /// Returns whether [`len`](BoundedHandle::len) is 0.
    ///
    /// # Panics
    /// If the bag was destroyed.
    #[track_caller]
    pub fn is_empty(self) -> bool {
        self.elements.is_empty()
    }

    /// Puts an element if there is room.
    ///
    /// # Errors
    /// The element, if at one moment of the call the bag was full, or if the bag was destroyed. An element
    /// whose `get` is still in progress counts.
    pub fn try_put(self, value: T) -> Result<(), T> {
        match self.rooms.try_get() {
            Ok(Some(Room(()))) => self.put(value),
            _ => Err(value),
        }
    }

    /// Puts an element, and blocks the thread until there is room. Calls that wait are served in turn.
    ///
    /// # Errors
    /// The element, if the bag was destroyed.
    /// # Panics
    /// Within an operation, since an operation must not sleep.
    pub fn put_wait(self, value: T) -> Result<(), T> {
        match self.rooms.get_wait() {
            Ok(Room(())) => self.put(value),
            Err(_) => Err(value),
        }
    }

    /// Like [`put_wait`](BoundedHandle::put_wait), for a task. Dropping the future before it is ready drops
    /// the element.
    ///
    /// # Errors
    /// The element, if the bag was destroyed.
    pub async fn put_async(self, value: T) -> Result<(), T> {
        match self.rooms.get_async().await {
            Ok(Room(())) => self.put(value),
            Err(_) => Err(value),
        }
    }

    /// Takes an element: see [`BagExt::get`].
    ///
    /// # Panics
    /// If the bag was destroyed.
    #[track_caller]
    pub fn get(self) -> Option<T> {
        self.elements.get().map(|value| self.took(value))
    }

    /// Takes an element, and blocks the thread until there is one: see [`BagExt::get_wait`].
    ///
    /// # Errors
    /// [`CallError`] if the bag was destroyed.
    /// # Panics
    /// Within an operation, since an operation must not sleep.
    pub fn get_wait(self) -> Result<T, CallError> {
        self.elements.get_wait().map(|value| self.took(value))
    }

    /// Like [`get_wait`](BoundedHandle::get_wait), but returns `None` after `limit`.
    ///
    /// # Errors
    /// [`CallError`] if the bag was destroyed.
    /// # Panics
    /// Within an operation, since an operation must not sleep.
    pub fn get_for(self, limit: Duration) -> Result<Option<T>, CallError> {
        Ok(self.elements.get_for(limit)?.map(|value| self.took(value)))
    }

    /// Like [`get_wait`](BoundedHandle::get_wait), for a task.
    ///
    /// # Errors
    /// [`CallError`] if the bag was destroyed.
    pub async fn get_async(self) -> Result<T, CallError> {
        self.elements.get_async().await.map(|value| self.took(value))
    }

    /// Returns the bag of the elements, for its attributes and counts, and to swap it. A put into it or a get
    /// from it breaks the limit.
    pub fn elements(self) -> Handle<dyn Bag<T>> {
        self.elements
    }

    /// Returns the bag of the rooms, to swap it.
    pub fn rooms(self) -> Handle<dyn Bag<Room>> {
        self.rooms
    }

    /// Puts an element for which the caller has taken a room.
    fn put(self, value: T) -> Result<(), T> {
        put_back(self.elements, value).map_err(|(value, _)| self.took(value))
    }

    /// Gives back the room of an element that was taken.
    fn took(self, value: T) -> T {
        // An error means that the bag was destroyed.
        let _ended = put_back(self.rooms, Room(()));
        value
    }
}

impl<T: Send + 'static> Clone for BoundedHandle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + 'static> Copy for BoundedHandle<T> {}

impl<T: Send + 'static> fmt::Debug for BoundedHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedHandle")
            .field("elements", &self.elements)
            .field("rooms", &self.rooms)
            .field("capacity", &self.capacity)
            .finish()
    }
}

/// Owner of a bag with a limit: a put that finds it full fails or waits. Dropping it destroys the bag. It
/// dereferences to the handle.
///
/// ```
/// use squall::objects::bag::BoundedBag;
///
/// let jobs = BoundedBag::shared(1).named("jobs");
/// assert_eq!((jobs.try_put(1), jobs.try_put(2)), (Ok(()), Err(2)));
/// assert_eq!((jobs.get(), jobs.try_put(2)), (Some(1), Ok(())));
/// ```
#[derive(Debug)]
pub struct BoundedBag<T: Send + 'static> {
    elements: Owned<dyn Bag<T>>,
    rooms: Owned<dyn Bag<Room>>,
    handle: BoundedHandle<T>,
}

impl<T: Send + 'static> BoundedBag<T> {
    /// Creates a bag for at most `capacity` elements, in the form of [`shared`](super::shared()).
    ///
    /// # Panics
    /// If the capacity is 0, or the objects cannot be created: see
    /// [`CreateError`](squall_core::CreateError).
    #[track_caller]
    pub fn shared(capacity: usize) -> BoundedBag<T> {
        BoundedBag::of(super::shared(), super::shared(), capacity)
    }

    /// Creates a bag for at most `capacity` elements, in the form of [`distributed`](super::distributed()).
    ///
    /// # Panics
    /// Like [`shared`](BoundedBag::shared).
    #[track_caller]
    pub fn distributed(capacity: usize) -> BoundedBag<T> {
        BoundedBag::of(super::distributed(), super::distributed(), capacity)
    }

    /// Creates an [`adaptive`](super::adaptive()) bag for at most `capacity` elements.
    ///
    /// # Panics
    /// Like [`shared`](BoundedBag::shared).
    #[track_caller]
    pub fn adaptive(capacity: usize) -> BoundedBag<T> {
        BoundedBag::of(super::adaptive(), super::adaptive(), capacity)
    }

    #[track_caller]
    fn of(elements: Owned<dyn Bag<T>>, rooms: Owned<dyn Bag<Room>>, capacity: usize) -> BoundedBag<T> {
        assert!(capacity > 0, "a bounded bag needs room for at least one element");
        rooms.put_batch((0..capacity).map(|_| Room(())).collect());
        let rooms = rooms.part_of(elements.handle());
        let handle = BoundedHandle { elements: elements.handle(), rooms: rooms.handle(), capacity };
        BoundedBag { elements, rooms, handle }
    }

    /// Returns the handle.
    pub fn handle(&self) -> BoundedHandle<T> {
        self.handle
    }

    /// Gives the bag a name for people, and returns its owner: see [`Owned::named`]. The bag of the rooms is
    /// a part of it.
    pub fn named(self, name: impl Into<Arc<str>>) -> BoundedBag<T> {
        let name: Arc<str> = name.into();
        let rooms = self.rooms.named(format!("{name}: rooms"));
        BoundedBag { elements: self.elements.named(name), rooms, ..self }
    }

    /// Declares the bag to be a part of another object, for people, and returns its owner: see
    /// [`Owned::part_of`].
    pub fn part_of<W: ?Sized + Interface>(self, whole: Handle<W>) -> BoundedBag<T> {
        BoundedBag { elements: self.elements.part_of(whole), ..self }
    }
}

impl<T: Send + 'static> Deref for BoundedBag<T> {
    type Target = BoundedHandle<T>;

    fn deref(&self) -> &BoundedHandle<T> {
        &self.handle
    }
}
