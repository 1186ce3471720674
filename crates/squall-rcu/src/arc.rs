//! A shared value that outlives the operations that see it.

use squall_sync::sync::Arc;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::op::Op;

/// An `Arc` whose value may be used for the rest of an operation, also when the `RcuArc` that it was found by goes meanwhile: the
/// drop of each takes effect when the operations that are open have ended, and maybe on another thread.
///
/// # Trade
/// Finding the value costs what it costs with an `Arc`; a drop costs a deferred call.
/// # Example
/// ```
/// use squall_rcu::{RcuArc, op};
/// let (one, other) = (RcuArc::new(7), RcuArc::new(8));
/// let sum = op(|o| {
///     let value = one.lend(o);
///     drop(one);
///     *value + *other
/// });
/// assert_eq!(sum, 15);
/// ```
/// What was lent cannot leave the operation:
/// ```compile_fail
/// let value = squall_rcu::RcuArc::new(1);
/// let leaked: &u32 = squall_rcu::op(|o| value.lend(o));
/// ```
pub struct RcuArc<T: Send + Sync + 'static>(ManuallyDrop<Arc<T>>);

impl<T: Send + Sync + 'static> RcuArc<T> {
    /// The only one of this value.
    pub fn new(value: T) -> RcuArc<T> {
        RcuArc::from(Arc::new(value))
    }

    /// The value, for the rest of the operation.
    ///
    /// # Cost
    /// None. Wait-free.
    #[inline(always)]
    pub fn lend<'o>(&self, _op: &'o Op) -> &'o T {
        let value: *const T = Arc::as_ptr(&self.0);
        // SAFETY: 1. of an `Arc`. 2. live for `'o`: this one's share is given up by a deferred call alone, which comes after every
        // operation that was open when it was deferred; that `_op` proves was open while this one was there. 3. nobody has a
        // `&mut T` while there is a share.
        unsafe { &*value }
    }

    /// One more of the same value, which holds on to it beyond every operation.
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
            // SAFETY: the one call of a `Deferred`, whose data is the share that the drop took out.
            drop(unsafe { Arc::from_raw(data.cast_const().cast::<T>()) });
        }
        // SAFETY: taken once; it is not used after this.
        let share = unsafe { ManuallyDrop::take(&mut self.0) };
        let data = Arc::into_raw(share).cast_mut().cast();
        // SAFETY: once. What it may free, nobody finds by this one any more; others have shares of their own.
        unsafe { crate::defer_raw(give_up::<T>, data, size_of::<T>()) };
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for RcuArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuArc").field(&**self).finish()
    }
}
