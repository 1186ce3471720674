//! A pointer that is read inside operations and replaced at any time.

use squall_sync::atomic::{AtomicPtr, Ordering};
use std::fmt;
use std::marker::PhantomData;

use crate::op::Op;

/// A shared, replaceable `Box<T>`: readers follow it inside an operation, writers replace it, and what was replaced is
/// dropped when no reader can still see it.
///
/// # Trade
/// Reading costs an ordinary load. Replacing costs an allocation and a deferred drop, which happens later and maybe on
/// another thread: hence `T: Send + Sync + 'static`.
/// # Example
/// ```
/// use squall_rcu::{Rcu, op};
/// let limit = Rcu::new(Box::new(10));
/// limit.replace(Box::new(20));
/// assert_eq!(op(|o| *limit.load(o)), 20);
/// ```
/// What was loaded cannot leave the operation:
/// ```compile_fail
/// let cell = squall_rcu::Rcu::new(Box::new(1));
/// let leaked: &u32 = squall_rcu::op(|o| cell.load(o));
/// ```
pub struct Rcu<T: Send + Sync + 'static> {
    // From `Box::into_raw`, never null. Whoever swaps a pointer out owns it and retires it.
    pointer: AtomicPtr<T>,
    _owns: PhantomData<Box<T>>,
}

// SAFETY: it hands out `&T` to every thread and moves `T` to whichever thread drops it: `T: Send + Sync` is required.
unsafe impl<T: Send + Sync> Send for Rcu<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Rcu<T> {}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// A cell that holds `value`.
    pub fn new(value: Box<T>) -> Rcu<T> {
        Rcu { pointer: AtomicPtr::new(Box::into_raw(value)), _owns: PhantomData }
    }

    /// The value now, for the rest of the operation.
    ///
    /// # Cost
    /// One load. Wait-free; linearizes at the load.
    #[inline(always)]
    pub fn load<'o>(&self, _op: &'o Op) -> &'o T {
        // Acquire: pairs with the release of `new`'s publication, `replace` and `update`: the value is fully built.
        let pointer = self.pointer.load(Ordering::Acquire);
        // SAFETY: 1. aligned and initialised: only boxes are stored here. 2. live for `'o`: whoever removes it retires
        // it, and the operation that `_op` proves was open before that grace period could begin. 3. never written
        // while it is here: nobody has a `&mut T` to it.
        unsafe { &*pointer }
    }

    /// Puts `value` in; the old value is dropped once no operation can still see it.
    ///
    /// # Cost
    /// One atomic exchange and a [`retire`](crate::retire). Lock-free; linearizes at the exchange.
    pub fn replace(&self, value: Box<T>) {
        // AcqRel: release pairs with the acquire of `load`; acquire with the release that published the old value,
        // which this thread will drop.
        let old = self.pointer.swap(Box::into_raw(value), Ordering::AcqRel);
        // SAFETY: 1. it came from `Box::into_raw`, and the exchange gave it to this thread alone. 2. the exchange cut the
        // only path to it.
        unsafe { crate::retire_raw(old) };
    }

    /// Replaces the value by what `f` makes of it; calls `f` again when another writer was faster.
    ///
    /// # Cost
    /// As [`Rcu::replace`], plus `f` and an allocation for each try. Lock-free; linearizes at the exchange.
    pub fn update(&self, mut f: impl FnMut(&T) -> T) {
        let old = crate::op(|o| {
            loop {
                let seen = self.load(o);
                let new = Box::into_raw(Box::new(f(seen)));
                let seen = std::ptr::from_ref(seen).cast_mut();
                // AcqRel and Acquire: as in `replace`. No ABA: `seen` cannot be freed while this operation is open.
                match self.pointer.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(old) => return old,
                    // SAFETY: `new` was not published, so it is still this thread's.
                    Err(_) => drop(unsafe { Box::from_raw(new) }),
                }
            }
        });
        // SAFETY: as in `replace`.
        unsafe { crate::retire_raw(old) };
    }
}

impl<T: Send + Sync + 'static> Drop for Rcu<T> {
    fn drop(&mut self) {
        // A reader may still hold the value: it borrows from its operation, not from the cell.
        // SAFETY: as in `replace`; the cell is gone, and with it the only path to the value.
        unsafe { crate::retire_raw(*self.pointer.get_mut()) };
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Rcu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::op(|o| f.debug_tuple("Rcu").field(self.load(o)).finish())
    }
}
