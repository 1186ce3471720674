//! `Taken`: an element that its client has not finished yet.

use squall_core::Handle;
use std::fmt;
use std::ops::{Deref, DerefMut};

use super::Queue;
use super::ext::finish;

/// An element that its client has taken and not yet finished. Dropping it finishes it.
///
/// Elements that follow from it are put before it is dropped. A panic that drops it finishes it, too. It may
/// be dropped on any thread, and after the object was destroyed.
///
/// ```
/// use squall::objects::queue::{self, Queue, QueueExt};
///
/// let work = queue::strict::<u32>();
/// work.put(1, 10)?;
/// let taken = work.take().unwrap();
/// assert_eq!((taken.priority(), *taken), (1, 10));
/// assert!(work.is_empty() && !work.is_done());
/// drop(taken);
/// assert!(work.is_done());
/// # Ok::<(), queue::Rejected<u32>>(())
/// ```
#[must_use = "an element that is dropped is finished"]
pub struct Taken<T: Send + 'static> {
    priority: u64,
    // Dropped before `finish`: the drop of the element may put elements.
    value: T,
    finish: Finish<T>,
}

/// Finishes an element when it is dropped.
struct Finish<T: Send + 'static> {
    queue: Handle<dyn Queue<T>>,
    /// Number of the contents to which the element belonged.
    number: u64,
}

impl<T: Send + 'static> Drop for Finish<T> {
    fn drop(&mut self) {
        finish(self.queue, self.number);
    }
}

impl<T: Send + 'static> Taken<T> {
    pub(super) fn new(queue: Handle<dyn Queue<T>>, (priority, value, number): (u64, T, u64)) -> Taken<T> {
        Taken { priority, value, finish: Finish { queue, number } }
    }

    /// Returns the priority.
    pub fn priority(&self) -> u64 {
        self.priority
    }

    /// Returns the queue.
    pub fn queue(&self) -> Handle<dyn Queue<T>> {
        self.finish.queue
    }
}

impl<T: Send + 'static> Deref for Taken<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Send + 'static> DerefMut for Taken<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for Taken<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken")
            .field("priority", &self.priority)
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}
