//! The guard of an object in use.

use squall_core::{CallErrorKind, Handle};
use std::fmt;
use std::ops::{Deref, DerefMut};

use super::Idle;
use crate::bag::Bag;
use crate::bag::put_back;

/// An object of a pool, in a block of its own: so that it moves in a register, and shares no cache line with
/// an object that another thread uses.
#[repr(align(64))]
pub(super) struct Object<T> {
    pub(super) value: T,
    /// Time at which it was made: nanoseconds since the pool was created, or 0 without a maximum age.
    pub(super) made: u64,
}

/// An object in use. Dropping it returns the object to its pool, on any thread.
///
/// It may live across an `.await`, and longer than the pool. `drop(Pooled::detach(object))` discards an
/// object that broke in use. A guard that is leaked ([`std::mem::forget`]) occupies its room in a pool with a
/// maximum size for ever.
///
/// ```
/// use squall::objects::pool::ObjectPool;
///
/// let pool = ObjectPool::new(|| 0);
/// let mut object = pool.get();
/// *object += 1;
/// std::thread::spawn(move || drop(object)).join().unwrap();
/// assert_eq!(*pool.get(), 1);
/// ```
#[must_use = "the object goes back when this is dropped"]
pub struct Pooled<T: Send + 'static> {
    /// Empty only after [`detach`](Pooled::detach), and while the object is made.
    object: Option<Box<Object<T>>>,
    pool: Handle<dyn Bag<Idle<T>>>,
    /// Whether the pool has a maximum size, so that rooms go back too.
    is_limited: bool,
}

impl<T: Send + 'static> Pooled<T> {
    #[inline(always)]
    pub(super) fn new(
        object: Option<Box<Object<T>>>,
        pool: Handle<dyn Bag<Idle<T>>>,
        is_limited: bool,
    ) -> Pooled<T> {
        Pooled { object, pool, is_limited }
    }

    pub(super) fn fill(&mut self, object: Box<Object<T>>) {
        self.object = Some(object);
    }

    /// Takes the object out of the pool. The pool makes another one in its place when it needs one.
    ///
    /// ```
    /// use squall::objects::pool::{ObjectPool, Pooled};
    ///
    /// let pool = ObjectPool::builder(String::new).max_size(1).build();
    /// let one = Pooled::detach(pool.get());
    /// assert_eq!(one, "");
    /// assert!(pool.try_get().is_some());
    /// ```
    pub fn detach(mut this: Pooled<T>) -> T {
        match this.object.take() {
            Some(object) => object.value,
            None => no_object(),
        }
    }
}

impl<T: Send + 'static> Drop for Pooled<T> {
    #[inline]
    fn drop(&mut self) {
        let object = self.object.take();
        if object.is_some() || self.is_limited {
            put(self.pool, Idle(object));
        }
    }
}

/// Puts an object or a room into the pool's bag. If the pool was dropped, it drops the object. In the child
/// of a fork it forgets it, since its drop might act for the parent: on a connection, for instance.
#[inline]
pub(super) fn put<T: Send + 'static>(pool: Handle<dyn Bag<Idle<T>>>, idle: Idle<T>) {
    if let Err((idle, error)) = put_back(pool, idle)
        && error.reason() == CallErrorKind::Forked
    {
        std::mem::forget(idle);
    }
}

impl<T: Send + 'static> Deref for Pooled<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        match &self.object {
            Some(object) => &object.value,
            None => no_object(),
        }
    }
}

impl<T: Send + 'static> DerefMut for Pooled<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.object {
            Some(object) => &mut object.value,
            None => no_object(),
        }
    }
}

/// Not reached: a guard that callers see has its object.
#[cold]
fn no_object() -> ! {
    unreachable!("a guard without an object")
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for Pooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: Send + fmt::Display + 'static> fmt::Display for Pooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
