//! Intrusive lists, one per VP, last in, first out.

use super::alloc::{self, OutOfMemory};
use super::word::clear;
use super::{atomic, restart};
use crate::vp::Vp;
use squall_sys::sync::atomic::{AtomicPtr, Ordering};
use std::ptr::{self, NonNull};

/// Link of a node of a [`PerVpList`]. The node begins with it or contains it.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ListNode {
    pub(super) next: AtomicPtr<ListNode>,
}

impl ListNode {
    /// Creates a link that is in no list.
    pub const fn new() -> ListNode {
        ListNode { next: AtomicPtr::new(ptr::null_mut()) }
    }
}

/// Size of a head: two words per VP, the first node and the guard of the atomic form of `pop`.
const HEAD_BYTES: usize = 16;

/// One intrusive list of nodes per VP, last in, first out.
///
/// [`PerVpStack`](super::PerVpStack) is the safe form.
///
/// # Cost
/// Sixteen bytes per VP. `push` and `pop` are a handful of plain instructions. They access a line that
/// another VP writes only if a node came from that VP. Progress: wait-free except for restarts. The atomic
/// form is lock-free on processors with a 16-byte exchange. Linearized at the store to the head.
///
/// # Example
/// ```
/// use squall::pervp::{ListNode, PerVpList};
/// use std::ptr::NonNull;
///
/// let node = NonNull::from(Box::leak(Box::new(ListNode::new())));
/// let mut list = PerVpList::new();
/// // SAFETY: the node is valid and in no list. It is freed after the list.
/// unsafe { list.push(node) };
/// // SAFETY: the node in the list is valid.
/// unsafe { list.drain(|_vp, drained| assert_eq!(drained, node)) };
/// drop(list);
/// // SAFETY: the node came from a `Box`, and the list is gone.
/// drop(unsafe { Box::from_raw(node.as_ptr()) });
/// ```
pub struct PerVpList {
    home: NonNull<u64>,
}

// SAFETY: heads and links are accessed atomically or by sequences, from any thread (`pervp/I1`). Access to
// the nodes is governed by the contracts of the unsafe methods.
unsafe impl Send for PerVpList {}
// SAFETY: as for `Send`.
unsafe impl Sync for PerVpList {}

impl PerVpList {
    /// Creates an empty list on every VP.
    ///
    /// # Panics
    /// If there is no address space left. [`try_new`](PerVpList::try_new) returns an error instead.
    pub fn new() -> PerVpList {
        Self::try_new().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates an empty list on every VP, like [`new`](PerVpList::new), but reports lack of address space as
    /// an error.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no address space left.
    pub fn try_new() -> Result<PerVpList, OutOfMemory> {
        Ok(PerVpList { home: alloc::allocate(HEAD_BYTES, HEAD_BYTES)?.cast() })
    }

    /// Pushes `node` on the VP where the thread is. A thread that pops the node sees the caller's earlier
    /// writes to it.
    ///
    /// # Safety
    /// 1. `node` is valid and in no list. Only this call writes its link until the node is popped.
    /// 2. The node stays readable while this list lives, even after it is popped. A thread that lost a race
    ///    for it may still read the link, and ignore the result. During that time only another `push` may
    ///    write the link.
    #[inline]
    pub unsafe fn push(&self, node: NonNull<ListNode>) {
        // SAFETY: our extent is a head; the rest is passed on.
        unsafe { restart::push(self.home, node) };
    }

    /// Pops the first node on the VP where the thread is, or returns `None` if that list is empty.
    ///
    /// # Safety
    /// The contract of [`push`](PerVpList::push) is kept for every node of this list.
    #[inline]
    pub unsafe fn pop(&self) -> Option<NonNull<ListNode>> {
        // SAFETY: our extent is a head; the rest is passed on.
        NonNull::new(unsafe { restart::pop(self.home) })
    }

    /// Removes every node of every VP, first to last within a VP, and passes each to `f`, which may free it.
    ///
    /// If `f` panics, the remaining nodes stay in the list.
    ///
    /// # Safety
    /// The nodes in the list are valid.
    pub unsafe fn drain(&mut self, mut f: impl FnMut(Vp, NonNull<ListNode>)) {
        for vp in (0..alloc::parts() as u32).map(Vp::new) {
            // SAFETY: our extent is a head; `vp` is below the limit; the word holds a pointer.
            let head: &AtomicPtr<ListNode> =
                unsafe { AtomicPtr::from_ptr(atomic::word(self.home, vp).as_ptr().cast()) };
            // Relaxed, here and below: we own the list.
            while let Some(node) = NonNull::new(head.load(Ordering::Relaxed)) {
                // SAFETY: a node in the list is valid.
                head.store(unsafe { node.as_ref() }.next.load(Ordering::Relaxed), Ordering::Relaxed);
                f(vp, node);
            }
        }
    }
}

impl Default for PerVpList {
    fn default() -> PerVpList {
        PerVpList::new()
    }
}

impl std::fmt::Debug for PerVpList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PerVpList").finish_non_exhaustive()
    }
}

impl Drop for PerVpList {
    /// Forgets the nodes that are still in the list.
    fn drop(&mut self) {
        // SAFETY: no other thread has the extent any more, and all of it is words.
        unsafe {
            clear(self.home, HEAD_BYTES / size_of::<u64>());
            alloc::release(self.home.cast(), HEAD_BYTES);
        }
    }
}
