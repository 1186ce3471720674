//! A shared, reference-counted value that outlives the operations that read it.

use squall_sys::sync::Arc;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::pin::Guard;

/// An `Arc` that lends its value for the rest of an operation, even if the `RcuArc` itself is dropped before
/// the end.
///
/// Dropping an `RcuArc` releases its share of the value once every operation open at that time has ended,
/// possibly on another thread.
///
/// # Trade
/// Reading costs as much as with an `Arc`. Dropping costs a deferred call.
///
/// # Example
/// ```
/// use squall::rcu::{RcuArc, pin};
/// let (one, other) = (RcuArc::new(7), RcuArc::new(8));
/// let sum = pin(|o| {
///     let value = one.lend(o);
///     drop(one);
///     *value + *other
/// });
/// assert_eq!(sum, 15);
/// ```
/// A lent reference cannot leave the operation:
/// ```compile_fail
/// let value = squall::rcu::RcuArc::new(1);
/// let leaked: &u32 = squall::rcu::pin(|o| value.lend(o));
/// ```
pub struct RcuArc<T: Send + Sync + 'static>(ManuallyDrop<Arc<T>>);

impl<T: Send + Sync + 'static> RcuArc<T> {
    /// Creates the first `RcuArc` of `value`.
    ///
    /// # Example
    /// ```
    /// let name = squall::rcu::RcuArc::new(String::from("north"));
    /// assert_eq!(name.len(), 5);
    /// ```
    pub fn new(value: T) -> RcuArc<T> {
        RcuArc::from(Arc::new(value))
    }

    /// Returns the value, valid until the operation ends.
    ///
    /// # Cost
    /// Free: the pointer is computed without a load from memory. Wait-free.
    /// # Example
    /// ```
    /// let name = squall::rcu::RcuArc::new(String::from("north"));
    /// squall::rcu::pin(|o| {
    ///     let lent: &str = name.lend(o);
    ///     drop(name);
    ///     assert_eq!(lent, "north");
    /// });
    /// ```
    #[inline(always)]
    pub fn lend<'o>(&self, _op: &'o Guard) -> &'o T {
        let value: *const T = Arc::as_ptr(&self.0);
        // SAFETY: 1. aligned and initialised: the pointer comes from an `Arc`. 2. live for `'o`: only a
        // deferred call releases this share. That call runs after every operation that was open when it was
        // deferred, and `_op` proves that this operation was open while `self` existed. 3. no `&mut T` exists
        // while a share exists.
        unsafe { &*value }
    }

    /// Returns an `Arc` of the value, which keeps it alive outside operations too.
    ///
    /// # Example
    /// ```
    /// let value = squall::rcu::RcuArc::new(7);
    /// let kept = value.to_arc();
    /// drop(value);
    /// assert_eq!(*kept, 7);
    /// ```
    pub fn to_arc(&self) -> Arc<T> {
        Arc::clone(&self.0)
    }
}

impl<T: Send + Sync + 'static> From<Arc<T>> for RcuArc<T> {
    fn from(value: Arc<T>) -> RcuArc<T> {
        RcuArc(ManuallyDrop::new(value))
    }
}

impl<T: Send + Sync + 'static> Clone for RcuArc<T> {
    fn clone(&self) -> RcuArc<T> {
        RcuArc(self.0.clone())
    }
}

impl<T: Send + Sync + 'static> Deref for RcuArc<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send + Sync + 'static> Drop for RcuArc<T> {
    fn drop(&mut self) {
        unsafe fn give_up<T>(data: *mut ()) {
            // SAFETY: the only call of a `Deferred`; its data is the share that the drop took out.
            drop(unsafe { Arc::from_raw(data.cast_const().cast::<T>()) });
        }
        // SAFETY: taken once; the field is not used afterwards.
        let share = unsafe { ManuallyDrop::take(&mut self.0) };
        let data = Arc::into_raw(share).cast_mut().cast();
        // SAFETY: deferred once. Operations that begin later cannot reach the value through this `RcuArc`;
        // other owners hold shares of their own.
        unsafe { crate::defer_raw(give_up::<T>, data, size_of::<T>()) };
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for RcuArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuArc").field(&**self).finish()
    }
}
