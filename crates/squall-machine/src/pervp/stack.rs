//! The safe per-VP list of values.
//!
//! - I1. A node is on `full` with a value, on `spare` without a value, or held by one call of `push` or
//!   `pop`. Nodes are freed only when the stack is drained or dropped, as the lists require.

use super::alloc::OutOfMemory;
use super::list::{ListNode, PerVpList};
use crate::vp::Vp;
use squall_sys::sync::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A node. The link is its first field, so a pointer to the link is a pointer to the node.
#[repr(C)]
struct Node<T> {
    link: ListNode,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// One stack of values per VP: a cache of objects, a free list, or local work.
///
/// [`pop`](PerVpStack::pop) takes from the VP where the thread is now, so a thread that moved finds that VP's
/// values. [`drain`](PerVpStack::drain) takes from all VPs.
///
/// # Cost
/// `push` and `pop` are two list operations each ([`PerVpList`]) and copy the value. A push that finds no
/// spare node on its VP allocates one. Nodes are kept until the stack is drained or dropped. Each VP keeps
/// one node per value of its largest stack so far, plus at most one per move of a thread during a call.
/// # Example
/// ```
/// let cache = squall::pervp::PerVpStack::new();
/// cache.push(String::from("kept near"));
/// // The thread may have moved to another VP, where the stack is empty.
/// if let Some(text) = cache.pop() {
///     assert_eq!(text, "kept near");
/// }
/// ```
///
/// Values move between threads, so `T` must be `Send`:
/// ```compile_fail,E0277
/// let stack = squall::pervp::PerVpStack::<std::rc::Rc<u8>>::new();
/// ```
pub struct PerVpStack<T: Send> {
    full: PerVpList,
    spare: PerVpList,
    values: PhantomData<T>,
}

// SAFETY: values are moved in and out by one thread at a time (stack/I1), and never shared: `T: Send` is
// enough.
unsafe impl<T: Send> Sync for PerVpStack<T> {}

impl<T: Send> PerVpStack<T> {
    /// Creates an empty stack on every VP.
    ///
    /// # Panics
    /// If there is no address space left. [`try_new`](PerVpStack::try_new) returns an error instead.
    pub fn new() -> PerVpStack<T> {
        Self::try_new().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates an empty stack on every VP, like [`new`](PerVpStack::new), but reports lack of address space
    /// as an error.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no address space left.
    pub fn try_new() -> Result<PerVpStack<T>, OutOfMemory> {
        Ok(PerVpStack { full: PerVpList::try_new()?, spare: PerVpList::try_new()?, values: PhantomData })
    }

    /// Pushes `value` on the VP where the thread is.
    ///
    /// # Example
    /// ```
    /// let stack = squall::pervp::PerVpStack::new();
    /// std::thread::scope(|scope| {
    ///     for id in 0..4 {
    ///         let stack = &stack;
    ///         scope.spawn(move || stack.push(id));
    ///     }
    /// });
    /// let mut stack = stack;
    /// assert_eq!(stack.drain().len(), 4);
    /// ```
    pub fn push(&self, value: T) {
        // SAFETY: nodes of `spare` are kept as the list requires (stack/I1).
        let node = match unsafe { self.spare.pop() } {
            Some(link) => link.cast::<Node<T>>(),
            None => NonNull::from(Box::leak(Box::new(Node {
                link: ListNode::new(),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            }))),
        };
        // SAFETY: this thread owns the node until it pushes it (stack/I1), so no other thread accesses the
        // value. The reference covers only the value's cell, because another thread may still read the link.
        unsafe { &(*node.as_ptr()).value }.with_mut(|slot| {
            // SAFETY: exclusive, as stated before `with_mut`; a `MaybeUninit` may be overwritten.
            unsafe { (*slot).write(value) };
        });
        // SAFETY: 1. the node is valid and in no list. 2. It is freed with the stack (stack/I1).
        unsafe { self.full.push(node.cast()) };
    }

    /// Pops the value pushed last on the VP where the thread is now. Returns `None` if that VP's stack is
    /// empty.
    ///
    /// # Example
    /// ```
    /// let buffers = squall::pervp::PerVpStack::<Vec<u8>>::new();
    /// let mut buffer = buffers.pop().unwrap_or_default(); // reuse a local buffer, or make one
    /// buffer.clear();
    /// buffers.push(buffer);
    /// ```
    pub fn pop(&self) -> Option<T> {
        // SAFETY: nodes of `full` are kept as the list requires (stack/I1).
        let node = unsafe { self.full.pop() }?.cast::<Node<T>>();
        // SAFETY: a node of `full` holds a value, and this thread owns the node since it popped it
        // (stack/I1).
        let value = unsafe { take(node) };
        // SAFETY: 1. the node is valid and in no list. 2. It is freed with the stack (stack/I1).
        unsafe { self.spare.push(node.cast()) };
        Some(value)
    }

    /// Removes and returns the values of all VPs, lowest VP first, and last pushed first within a VP.
    ///
    /// # Example
    /// ```
    /// let mut stack = squall::pervp::PerVpStack::new();
    /// stack.push('a');
    /// for (vp, value) in stack.drain() {
    ///     println!("{value} was pushed on {vp}");
    /// }
    /// ```
    pub fn drain(&mut self) -> Vec<(Vp, T)> {
        let mut values = Vec::new();
        // SAFETY: the nodes in `full` are valid and hold values (stack/I1); each leaves the list before
        // `take`. They are freed here: `&mut self` excludes concurrent calls, so no thread can still read a
        // link.
        unsafe {
            self.full.drain(|vp, link| {
                let node = link.cast::<Node<T>>();
                let value = take(node);
                drop(Box::from_raw(node.as_ptr()));
                values.push((vp, value));
            });
        }
        values
    }
}

/// Moves the value out of a node.
///
/// # Safety
/// The node holds a value, and no other thread accesses it.
unsafe fn take<T>(node: NonNull<Node<T>>) -> T {
    // SAFETY: by this function's contract. The reference covers only the value's cell, because another thread
    // may still read the link.
    unsafe { &(*node.as_ptr()).value }.with(|slot| {
        // SAFETY: by this function's contract; the caller does not use the value in the node again.
        unsafe { (*slot).assume_init_read() }
    })
}

impl<T: Send> Default for PerVpStack<T> {
    fn default() -> PerVpStack<T> {
        PerVpStack::new()
    }
}

impl<T: Send> std::fmt::Debug for PerVpStack<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PerVpStack").finish_non_exhaustive()
    }
}

impl<T: Send> Drop for PerVpStack<T> {
    fn drop(&mut self) {
        // SAFETY: the nodes of `spare` are valid, hold no value, came from a `Box`, and no other thread is in
        // a call.
        unsafe { self.spare.drain(|_, link| drop(Box::from_raw(link.cast::<Node<T>>().as_ptr()))) };
        // All nodes are freed before the first value is dropped, so a panic in a value's `drop` leaks values,
        // not nodes.
        drop(self.drain());
    }
}
