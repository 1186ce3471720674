//! A bag with a limit: a second bag holds the room that is left.
//!
//! - I1. Elements, room, and calls in progress add up to the capacity. A put takes room before it puts, and a
//!   get gives room back after it took.
//!
//! So both sides scale in the same way, and a put that finds no room waits as a get does that finds no
//! element.

use super::{Bag, Closed, Wait, WaitError};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Room for one element.
struct Room;

/// An unordered pool of limited size: a put that finds it full fails or waits.
///
/// # Cost
/// Twice that of a [`Bag`]. Room moves between shards as elements do.
///
/// # Example
/// ```
/// use squall::parts::bag::Bounded;
///
/// let jobs = Bounded::new(2);
/// jobs.try_put("a").unwrap();
/// jobs.try_put("b").unwrap();
/// assert_eq!(jobs.try_put("c"), Err("c"));
/// std::thread::scope(|threads| {
///     threads.spawn(|| jobs.put_wait("c"));
///     (0..3).for_each(|_| _ = jobs.get_wait().unwrap());
/// });
/// assert!(jobs.is_empty());
/// ```
pub struct Bounded<T> {
    elements: Bag<T>,
    room: Bag<Room>,
    capacity: usize,
}

#[cfg(not(loom))]
impl<T> Bounded<T> {
    /// Makes an empty bag for at most `capacity` elements.
    ///
    /// # Panics
    /// If the capacity is 0.
    /// # Cost
    /// Linear in the capacity: about a nanosecond for each element.
    pub fn new(capacity: usize) -> Bounded<T> {
        Bounded::of(Bag::new(), Bag::new(), capacity)
    }
}

impl<T> Bounded<T> {
    fn of(elements: Bag<T>, room: Bag<Room>, capacity: usize) -> Bounded<T> {
        assert!(capacity > 0, "a bounded bag needs room for at least one element");
        room.local().put_batch(std::iter::repeat_with(|| Room).take(capacity));
        Bounded { elements, room, capacity }
    }

    /// Returns the largest number of elements.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of elements, an estimate: see [`Bag::len`].
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Returns whether [`len`](Bounded::len) is 0.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Puts an element if there is room.
    ///
    /// # Errors
    /// The element, if at one moment of the call the bag was full. An element that a `get` is still taking
    /// counts.
    pub fn try_put(&self, value: T) -> Result<(), T> {
        match self.room.local().get() {
            Some(Room) => {
                self.elements.local().put(value);
                Ok(())
            }
            None => Err(value),
        }
    }

    /// Puts an element, and blocks the thread until there is room.
    ///
    /// # Errors
    /// The element, if the bag was closed and is full.
    pub fn put_wait(&self, value: T) -> Result<(), T> {
        match Wait::new(&self.room).block() {
            Ok(Room) => {
                self.elements.local().put(value);
                Ok(())
            }
            Err(Closed) => Err(value),
        }
    }

    /// Puts an element when there is room: a future. Dropping it drops the element.
    ///
    /// # Errors
    /// The element, if the bag was closed and is full.
    pub fn put_async(&self, value: T) -> Put<'_, T> {
        Put { bag: self, value: Some(value), room: Wait::new(&self.room) }
    }

    /// Takes an element: see [`Client::get`](super::Client::get).
    pub fn get(&self) -> Option<T> {
        self.elements.local().get().map(|value| self.took(value))
    }

    /// Takes an element, and blocks the thread until there is one.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn get_wait(&self) -> Result<T, Closed> {
        Wait::new(&self.elements).block().map(|value| self.took(value))
    }

    /// Takes an element, and blocks the thread until there is one, for at most `limit`.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn get_for(&self, limit: Duration) -> Result<T, WaitError> {
        Wait::new(&self.elements).block_for(limit).map(|value| self.took(value))
    }

    /// Takes an element when there is one: a future.
    pub fn get_async(&self) -> Get<'_, T> {
        Get { bag: self, element: Wait::new(&self.elements) }
    }

    /// Ends all waits, now and from now on: see [`Bag::close`].
    pub fn close(&self) {
        self.elements.close();
        self.room.close();
    }

    /// Tells the bag that the calling thread is idle: see [`Client::idle`](super::Client::idle).
    pub fn idle(&self) {
        self.elements.local().idle();
        self.room.local().idle();
    }

    /// Returns the bag of the elements, for its attributes and counts. A put into it or a get from it breaks
    /// the limit.
    pub fn elements(&self) -> &Bag<T> {
        &self.elements
    }

    /// Gives back the room of an element that was taken.
    fn took(&self, value: T) -> T {
        self.room.local().put(Room);
        value
    }
}

impl<T> fmt::Debug for Bounded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, capacity) = (self.len(), self.capacity);
        f.debug_struct("Bounded").field("len", &len).field("capacity", &capacity).finish_non_exhaustive()
    }
}

/// A put that waits for room: see [`Bounded::put_async`].
#[must_use = "a put does nothing until it is awaited"]
pub struct Put<'a, T> {
    bag: &'a Bounded<T>,
    value: Option<T>,
    room: Wait<Room, &'a Bag<Room>>,
}

// The element is moved, never pinned.
impl<T> Unpin for Put<'_, T> {}

impl<T> Future for Put<'_, T> {
    type Output = Result<(), T>;

    /// # Panics
    /// If the put has ended.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), T>> {
        let this = self.get_mut();
        // Before the poll: an ended put must not take room.
        assert!(this.value.is_some(), "the put has ended");
        let answer = Pin::new(&mut this.room).poll(cx);
        answer.map(|room| {
            let value = this.value.take().expect("the put has ended");
            match room {
                Ok(Room) => {
                    this.bag.elements.local().put(value);
                    Ok(())
                }
                Err(Closed) => Err(value),
            }
        })
    }
}

impl<T> fmt::Debug for Put<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Put").field("has_ended", &self.value.is_none()).finish_non_exhaustive()
    }
}

/// A get that waits for an element: see [`Bounded::get_async`].
#[must_use = "a get does nothing until it is awaited"]
pub struct Get<'a, T> {
    bag: &'a Bounded<T>,
    element: Wait<T, &'a Bag<T>>,
}

impl<T> Future for Get<'_, T> {
    type Output = Result<T, Closed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Closed>> {
        let this = self.get_mut();
        Pin::new(&mut this.element).poll(cx).map_ok(|value| this.bag.took(value))
    }
}

impl<T> fmt::Debug for Get<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Get").field("element", &self.element).finish_non_exhaustive()
    }
}
