//! Intrusive lists of each VP, last in first out.

use super::alloc::{self, OutOfMemory};
use super::word::clear;
use super::{atomic, restart};
use crate::vp::Vp;
use squall_sys::sync::atomic::{AtomicPtr, Ordering};
use std::ptr::{self, NonNull};

/// The link that a node of a [`PerVpList`] begins with or contains.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ListNode {
    pub(super) next: AtomicPtr<ListNode>,
}

impl ListNode {
    /// A link in no list.
    pub const fn new() -> ListNode {
        ListNode { next: AtomicPtr::new(ptr::null_mut()) }
    }
}

/// Two words of each VP: the first node, and the guard of the atomic form of `pop`.
const HEAD_BYTES: usize = 16;

/// A list of nodes of each VP, last in first out, linked through the nodes.
///
/// The safe form is [`PerVpStack`](super::PerVpStack).
///
/// # Cost
/// Sixteen bytes per VP. `push` and `pop`: a handful of plain instructions, no access to a line that another VP writes
/// unless a node came from there. Progress: wait-free but for restarts; the atomic form is lock-free where the processor
/// exchanges 16 bytes. Linearized at the store to the head.
pub struct PerVpList {
    home: NonNull<u64>,
}

// SAFETY: heads and links are accessed atomically or by sequences, from whatever thread (`pervp/I1`); what may be done
// with the nodes is a matter between the callers of the unsafe methods.
unsafe impl Send for PerVpList {}
// SAFETY: as above.
unsafe impl Sync for PerVpList {}

impl PerVpList {
    /// An empty list on every VP.
    ///
    /// # Panics
    /// If there is no address space left; see [`try_new`](PerVpList::try_new).
    pub fn new() -> PerVpList {
        Self::try_new().unwrap_or_else(|error| panic!("{error}"))
    }

    /// An empty list on every VP.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no address space left.
    pub fn try_new() -> Result<PerVpList, OutOfMemory> {
        Ok(PerVpList { home: alloc::allocate(HEAD_BYTES, HEAD_BYTES)?.cast() })
    }

    /// Puts `node` first on the VP where the thread is. What the thread wrote to the node before, who pops it sees.
    ///
    /// # Safety
    /// 1. `node` is valid, in no list, and only this call writes its link until it is popped.
    /// 2. It stays readable while this list lives, even after it is popped: its link may still be read (not used) by a
    ///    thread that lost a race for it. Until then nothing else may write to the link but another `push`.
    #[inline]
    pub unsafe fn push(&self, node: NonNull<ListNode>) {
        // SAFETY: our extent is a head; the rest is passed on.
        unsafe { restart::push(self.home, node) };
    }

    /// Takes the first node on the VP where the thread is, if there is one there.
    ///
    /// # Safety
    /// The contract of [`push`](PerVpList::push) is kept for every node of this list.
    #[inline]
    pub unsafe fn pop(&self) -> Option<NonNull<ListNode>> {
        // SAFETY: our extent is a head; the rest is passed on.
        NonNull::new(unsafe { restart::pop(self.home) })
    }

    /// Takes every node of every VP, first to last within a VP, and gives each to `f`. Nodes may be freed by it.
    ///
    /// If `f` panics, the nodes not yet given stay in the list.
    ///
    /// # Safety
    /// The nodes in the list are valid.
    pub unsafe fn drain(&mut self, mut f: impl FnMut(Vp, NonNull<ListNode>)) {
        for vp in (0..alloc::parts() as u32).map(Vp::new) {
            // SAFETY: our extent is a head, `vp` is below the limit; the word holds a pointer.
            let head: &AtomicPtr<ListNode> =
                unsafe { AtomicPtr::from_ptr(atomic::word(self.home, vp).as_ptr().cast()) };
            // Relaxed, here and below: we have the list to ourselves.
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
        // SAFETY: nobody else has the extent any more, and all of it is words.
        unsafe {
            clear(self.home, HEAD_BYTES / size_of::<u64>());
            alloc::release(self.home.cast(), HEAD_BYTES);
        }
    }
}
