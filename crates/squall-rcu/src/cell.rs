//! A pointer that operations read and any thread may replace at any time.

use squall_sys::sync::atomic::{AtomicPtr, Ordering};
use std::fmt;
use std::marker::PhantomData;

use crate::pin::Guard;

/// A shared, replaceable `Box<T>`.
///
/// Readers follow the pointer inside an operation. Writers replace it. A replaced value is dropped once no
/// operation can still see it.
///
/// # Trade
/// A read costs one ordinary load. A replacement costs an allocation and a deferred drop. The drop happens
/// later, possibly on another thread, so `T` must be `Send + Sync + 'static`. The bound on pending memory
/// counts a replaced value with `size_of::<T>()` bytes, without its heap.
///
/// # Example
/// ```
/// use squall::rcu::{Rcu, pin};
/// let limit = Rcu::new(Box::new(10));
/// limit.replace(Box::new(20));
/// assert_eq!(pin(|o| *limit.load(o)), 20);
/// ```
/// A loaded reference cannot leave the operation:
/// ```compile_fail
/// let cell = squall::rcu::Rcu::new(Box::new(1));
/// let leaked: &u32 = squall::rcu::pin(|o| cell.load(o));
/// ```
pub struct Rcu<T: Send + Sync + 'static> {
    // Comes from `Box::into_raw` and is never null. The thread that swaps a pointer out owns it and retires
    // it.
    pointer: AtomicPtr<T>,
    _owns: PhantomData<Box<T>>,
}

// SAFETY: the cell hands out `&T` to any thread and moves `T` to the thread that drops it; `T: Send + Sync`
// permits both.
unsafe impl<T: Send + Sync> Send for Rcu<T> {}
// SAFETY: the argument for `Send` covers `Sync`: `T: Send + Sync`.
unsafe impl<T: Send + Sync> Sync for Rcu<T> {}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// Creates a cell that holds `value`.
    ///
    /// # Example
    /// ```
    /// let cell = squall::rcu::Rcu::new(Box::new(String::from("v1")));
    /// assert_eq!(squall::rcu::pin(|o| cell.load(o).clone()), "v1");
    /// ```
    pub fn new(value: Box<T>) -> Rcu<T> {
        Rcu { pointer: AtomicPtr::new(Box::into_raw(value)), _owns: PhantomData }
    }

    /// Returns the current value, valid until the operation ends.
    ///
    /// # Cost
    /// One load. Wait-free; linearizes at the load.
    /// # Example
    /// ```
    /// let cell = squall::rcu::Rcu::new(Box::new([1, 2, 3]));
    /// let sum: i32 = squall::rcu::pin(|o| cell.load(o).iter().sum());
    /// assert_eq!(sum, 6);
    /// ```
    #[inline(always)]
    pub fn load<'o>(&self, _op: &'o Guard) -> &'o T {
        // Acquire: pairs with the release that published the pointer (the caller's publication of the cell,
        // `replace` or `update`), so the value is fully built.
        let pointer = self.pointer.load(Ordering::Acquire);
        // SAFETY: 1. aligned and initialised: only boxes are stored here. 2. live for `'o`: the thread that
        // removes the value retires it, and the operation that `_op` proves was open before that grace period
        // could begin. 3. never written while it is here: no `&mut T` to it exists.
        unsafe { &*pointer }
    }

    /// Stores `value`. The old value is dropped once no operation can still see it.
    ///
    /// # Cost
    /// One atomic exchange and a [`retire`](crate::retire). Lock-free; linearizes at the exchange.
    /// # Example
    /// ```
    /// let cell = squall::rcu::Rcu::new(Box::new(1));
    /// squall::rcu::pin(|o| {
    ///     let old = cell.load(o);
    ///     cell.replace(Box::new(2));
    ///     // The operation may go on reading the old value.
    ///     assert_eq!((*old, *cell.load(o)), (1, 2));
    /// });
    /// ```
    pub fn replace(&self, value: Box<T>) {
        // AcqRel: the release pairs with the acquire of `load`; the acquire pairs with the release that
        // published the old value, which this thread will drop.
        let old = self.pointer.swap(Box::into_raw(value), Ordering::AcqRel);
        // SAFETY: 1. `old` came from `Box::into_raw`, and the exchange gave it to this thread alone. 2. the
        // exchange cut the only path to it.
        unsafe { crate::retire_raw(old) };
    }

    /// Replaces the value with `f(value)`.
    ///
    /// Calls `f` again if another writer replaced the value first, so `f` may run several times.
    ///
    /// # Cost
    /// The cost of [`Rcu::replace`], plus a call of `f` and an allocation per attempt. Lock-free; linearizes
    /// at the exchange.
    /// # Example
    /// ```
    /// let hits = squall::rcu::Rcu::new(Box::new(0));
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| hits.update(|n| n + 1));
    ///     }
    /// });
    /// assert_eq!(squall::rcu::pin(|o| *hits.load(o)), 4);
    /// ```
    pub fn update(&self, mut f: impl FnMut(&T) -> T) {
        let old = crate::__pin(|o| {
            loop {
                let seen = self.load(o);
                let new = Box::into_raw(Box::new(f(seen)));
                let seen = std::ptr::from_ref(seen).cast_mut();
                // AcqRel and Acquire: as in `replace`. ABA is impossible: `seen` cannot be freed while this
                // operation is open.
                match self.pointer.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(old) => return old,
                    // SAFETY: `new` came from `Box::into_raw` and was not published, so this thread still
                    // owns it.
                    Err(_) => drop(unsafe { Box::from_raw(new) }),
                }
            }
        });
        // SAFETY: as in `replace`: the compare-exchange gave `old` to this thread alone and cut the only path
        // to it.
        unsafe { crate::retire_raw(old) };
    }
}

impl<T: Send + Sync + 'static> Drop for Rcu<T> {
    fn drop(&mut self) {
        // A reader may still hold the value: it borrows from its operation, not from the cell.
        // SAFETY: as in `replace`: the cell is going away, and with it the only path to the value.
        unsafe { crate::retire_raw(*self.pointer.get_mut()) };
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Rcu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::__pin(|o| f.debug_tuple("Rcu").field(self.load(o)).finish())
    }
}
