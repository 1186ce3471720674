//! The safe list of values of each VP.
//!
//! - I1. A node is on `full` with a value, on `spare` without, or held by one call of `push` or `pop`. Nodes are freed
//!   only when the whole stack is dropped, which is what the lists ask of them.

use super::alloc::OutOfMemory;
use super::list::{ListNode, PerVpList};
use crate::vp::Vp;
use squall_sys::sync::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// The link comes first: a pointer to it is a pointer to the node.
#[repr(C)]
struct Node<T> {
    link: ListNode,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// A stack of values of each VP: a cache of objects, a free list, work kept near.
///
/// A value is popped on the VP where it was pushed, or by [`drain`](PerVpStack::drain); a thread that moves finds what
/// is there.
///
/// # Cost
/// `push` and `pop` are two list operations each ([`PerVpList`]) and copy the value; a push that finds no spare node on
/// its VP allocates one. Nodes are kept until the stack is dropped: as many as there ever were values at once on each
/// VP, and at most one more for each time that a thread moved in the midst of a call.
/// # Example
/// ```
/// let cache = squall_machine::pervp::PerVpStack::new();
/// cache.push(String::from("kept near"));
/// // Another VP's stack may be asked if the thread moves in between.
/// if let Some(text) = cache.pop() {
///     assert_eq!(text, "kept near");
/// }
/// ```
///
/// Values go from thread to thread:
/// ```compile_fail,E0277
/// let stack = squall_machine::pervp::PerVpStack::<std::rc::Rc<u8>>::new();
/// ```
pub struct PerVpStack<T: Send> {
    full: PerVpList,
    spare: PerVpList,
    values: PhantomData<T>,
}

// SAFETY: values are moved in and out, by one thread at a time (stack/I1), and shared by none: `T: Send` is enough.
unsafe impl<T: Send> Sync for PerVpStack<T> {}

impl<T: Send> PerVpStack<T> {
    /// An empty stack on every VP.
    ///
    /// # Panics
    /// If there is no address space left; see [`try_new`](PerVpStack::try_new).
    pub fn new() -> PerVpStack<T> {
        Self::try_new().unwrap_or_else(|error| panic!("{error}"))
    }

    /// An empty stack on every VP.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no address space left.
    pub fn try_new() -> Result<PerVpStack<T>, OutOfMemory> {
        Ok(PerVpStack { full: PerVpList::try_new()?, spare: PerVpList::try_new()?, values: PhantomData })
    }

    /// Puts `value` first on the VP where the thread is.
    pub fn push(&self, value: T) {
        // SAFETY: nodes of `spare` are kept as the list asks (stack/I1).
        let node = match unsafe { self.spare.pop() } {
            Some(link) => link.cast::<Node<T>>(),
            None => NonNull::from(Box::leak(Box::new(Node {
                link: ListNode::new(),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            }))),
        };
        // SAFETY: the node is ours alone until it is pushed (stack/I1): nobody else reads or writes its value. The
        // reference is to the value's cell, as another thread may still read the link.
        unsafe { &(*node.as_ptr()).value }.with_mut(|slot| {
            // SAFETY: as above; a `MaybeUninit` may be overwritten.
            unsafe { (*slot).write(value) };
        });
        // SAFETY: 1. the node is valid and in no list. 2. It is freed with the stack (stack/I1).
        unsafe { self.full.push(node.cast()) };
    }

    /// Takes what was pushed last on the VP where the thread is now; `None` if nothing is left there.
    pub fn pop(&self) -> Option<T> {
        // SAFETY: nodes of `full` are kept as the list asks (stack/I1).
        let node = unsafe { self.full.pop() }?.cast::<Node<T>>();
        // SAFETY: a node of `full` holds a value, and it is ours alone since we popped it (stack/I1).
        let value = unsafe { take(node) };
        // SAFETY: 1. the node is valid and in no list. 2. It is freed with the stack (stack/I1).
        unsafe { self.spare.push(node.cast()) };
        Some(value)
    }

    /// Takes the values of all VPs: those of the lowest VP first, and of one VP, the last pushed first.
    pub fn drain(&mut self) -> Vec<(Vp, T)> {
        let mut values = Vec::new();
        // SAFETY: the nodes in `full` are valid and hold values (stack/I1); each leaves the list before `take`. They are
        // freed here: nobody else is in a call, so nobody can still read a link.
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
/// The node holds one, and no other thread uses the node's value.
unsafe fn take<T>(node: NonNull<Node<T>>) -> T {
    // SAFETY: by this function's contract. The reference is to the value's cell, as another thread may still read the
    // link.
    unsafe { &(*node.as_ptr()).value }.with(|slot| {
        // SAFETY: by this function's contract; the caller sees to it that the value is not used again.
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
        // SAFETY: the nodes of `spare` are valid, hold no value, came from a `Box`, and nobody else is in a call.
        unsafe { self.spare.drain(|_, link| drop(Box::from_raw(link.cast::<Node<T>>().as_ptr()))) };
        // The nodes are all freed before the first of the values is dropped: a panic there loses values, not nodes.
        drop(self.drain());
    }
}
