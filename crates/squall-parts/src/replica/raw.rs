//! The protocol of a value with replicas: nodes, words, and the master.
//!
//! Problem: a value is read everywhere and seldom changed. Each cluster reads only a word of its own. Yet no
//! reader may see a value after another one has seen a later one, and no reader may wait for an update.
//! Idea: a word is empty while it is being changed. A reader that finds it empty reads the master's word,
//! which is authoritative. An update empties the words, then stores the new node in the master, then fills
//! the words. So a filled word holds the master's node, and all words are empty while an update stores.
//!
//! - I1. Words and the master's word are changed under the master's lock, or by their exclusive owner.
//! - I2. A node in a word or in the master has a reference for it: `references` counts them, starting with
//!   one for its maker. The holder that drops the last reference gets the node, once, and frees it after a
//!   grace period.
//! - I3. When the master's word changes, every word visited by the walk of this update is empty. It stays
//!   empty until the lock is released, except for the fill by the same update.
//! - I4. A reader that attaches a node notes it under the lock, so that a walk may skip words without a note.
//! - I5. `version` is written before the node is in any word, and grows by one with each update of a master.
//!
//! Linearization: an update takes effect at the store to the master's word (`COMMIT`). A read takes effect at
//! its load of the word if that holds a node, else at its load of the master's word.
//! Proof. (1) Can a read find an old node in its word, although it knows of a later `COMMIT`? It may have
//! made that itself, or another thread has told it. No: the word was emptied before that (I3), so the read
//! sees the empty word or a later node. The old node never comes back: under the lock there is only the new
//! one (I1). (2) Can a read find a node in its word before the `COMMIT` of that node? No: fills and attaches
//! come after it, and a reader that sees them through `FIND` sees the master hold that node or a later one.
//! (3) A read of the master's word is right at its load. (4) Two threads each change one value and then read
//! the other: at least one sees the other's change, by the fences `UPDATE`. (5) Two readers without
//! synchronisation agree on the order of changes of two values. The reason is that stores reach all other
//! processors at once, as on x86-64 and aarch64. The language's memory model alone does not imply this.
//!
//! Alternative: a node with a tag and a pointer to its predecessor. It would cost one more word per node and
//! one more step per read: a reader that met the tag would still have to read the master.
//!
//! A word left out by the walk is not updated: it keeps its old value until a walk visits it. That is a stale
//! answer, and no memory error: the word has a reference to its node (I2).
//!
//! Progress: reads are wait-free; `attach` tries the lock once. Updates block each other. A thread that
//! stalls in an update or in `attach` blocks updates; during that time readers of empty words read the
//! master's word. Cost: a read is one load of the word; an update changes each word twice. Source: TO-04
//! (Tornado, §3.1), HU-17 (Hurricane: passed down the tree of clusters), K42's coordinated swings of all
//! representatives; the order is ours.

use squall_lock::Lock;
use squall_sys::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
use squall_sys::sync::weaken::Site;
use std::ptr::{self, NonNull};

use crate::replica::sites;

/// A value, its version, and its reference count.
#[repr(C)]
pub(crate) struct Node<T> {
    pub(crate) version: u64,
    pub(crate) value: T,
    /// References of words, masters and others (I2). Placed away from the fields that readers read, except
    /// for small values: only updates change it.
    references: AtomicUsize,
    /// The next node in [`DeadNodes`].
    next: AtomicPtr<Node<T>>,
}

impl<T> Node<T> {
    /// Makes a node with one reference, the maker's.
    pub(crate) fn new(version: u64, value: T) -> Box<Node<T>> {
        let next = AtomicPtr::new(ptr::null_mut());
        Box::new(Node { version, value, references: AtomicUsize::new(1), next })
    }

    /// Adds references.
    ///
    /// # Safety
    /// The node has a reference that is not dropped meanwhile.
    pub(crate) unsafe fn add_references(node: NonNull<Node<T>>, more: usize) {
        // Relaxed: there is a reference, as in any reference count.
        // SAFETY: the reference keeps the node valid.
        unsafe { node.as_ref() }.references.fetch_add(more, Ordering::Relaxed);
    }
}

/// Nodes without references, to be freed by the caller after a grace period.
#[must_use]
pub(crate) struct DeadNodes<T>(*mut Node<T>);

impl<T> DeadNodes<T> {
    pub(crate) fn new() -> DeadNodes<T> {
        DeadNodes(ptr::null_mut())
    }

    /// Drops references to a node.
    ///
    /// # Safety
    /// The references belong to the caller, at least one, and it has removed the node from their words.
    pub(crate) unsafe fn release(&mut self, node: NonNull<Node<T>>, references: usize) {
        // SAFETY: the caller has a reference.
        let this = unsafe { node.as_ref() };
        // AcqRel: pairs with itself: the thread that drops the last reference has seen the node removed from
        // every word.
        if this.references.fetch_sub(references, sites::RELEASE.order(Ordering::AcqRel)) == references {
            // Relaxed: only the caller has the node now, besides readers, which do not read this field.
            this.next.store(self.0, Ordering::Relaxed);
            self.0 = node.as_ptr();
        }
    }

    /// Takes a node from the list. The node has no references, and no word holds it; open operations may
    /// still read it.
    pub(crate) fn take(&mut self) -> Option<NonNull<Node<T>>> {
        let first = NonNull::new(self.0)?;
        // SAFETY: in the list, so not freed.
        self.0 = unsafe { first.as_ref() }.next.load(Ordering::Relaxed);
        Some(first)
    }
}

/// The word of a replica: null, or a pointer that owns one of its node's references.
///
/// Each change is one read-modify-write, not a load and a store, so that the cache line moves once. The
/// models need that too: loom forgets a thread's load of a location that the same thread then changes.
pub(crate) struct Word<T>(AtomicPtr<Node<T>>);

impl<T> Word<T> {
    pub(crate) fn new() -> Word<T> {
        Word(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the node, if the word holds one. It is valid until the end of the caller's operation.
    #[inline(always)]
    pub(crate) fn find(&self) -> Option<NonNull<Node<T>>> {
        // Acquire: pairs with the releases in `fill` and `attach`: the node is complete, and its update
        // committed.
        NonNull::new(self.0.load(sites::FIND.order(Ordering::Acquire)))
    }

    /// Empties the word. The caller holds its master's lock.
    fn empty(&self, dead: &mut DeadNodes<T>) {
        // Relaxed: the lock's holder sees stores made under it, and the release of `COMMIT` comes after it.
        if let Some(held) = NonNull::new(self.0.swap(ptr::null_mut(), Ordering::Relaxed)) {
            // SAFETY: the word's reference (I2), which was just taken out of it.
            unsafe { dead.release(held, 1) };
        }
    }

    /// Stores a node if the word is empty, and then takes over one reference. The caller holds its master's
    /// lock.
    fn fill(&self, node: NonNull<Node<T>>, site: Site) -> bool {
        // Release: pairs with the acquire in `find`. Relaxed: a filled word is left alone.
        let release = site.order(Ordering::Release);
        self.0.compare_exchange(ptr::null_mut(), node.as_ptr(), release, Ordering::Relaxed).is_ok()
    }

    /// Drops the word's reference, at the end of its life.
    pub(crate) fn end(&mut self, dead: &mut DeadNodes<T>) {
        // Acquire: pairs with the release of `fill`, as in `find`.
        if let Some(held) = NonNull::new(self.0.swap(ptr::null_mut(), Ordering::Acquire)) {
            // SAFETY: the word's reference (I2), and the word has no other user.
            unsafe { dead.release(held, 1) };
        }
    }
}

/// A copy of a node for one word, with a reference for that word.
#[derive(Debug)]
pub(crate) struct Copied<T> {
    pub(crate) copy: NonNull<Node<T>>,
    /// The node that was copied.
    pub(crate) original: NonNull<Node<T>>,
}

impl<T> Clone for Copied<T> {
    fn clone(&self) -> Copied<T> {
        *self
    }
}
impl<T> Copy for Copied<T> {}

/// A walk over the words of a master: it calls its argument with each.
pub(crate) type Walk<'a, T> = dyn FnMut(&mut dyn FnMut(&Word<T>)) + 'a;

/// The authoritative copy of the value.
pub(crate) struct Master<T> {
    /// Null, or a node with a reference for the master.
    current: AtomicPtr<Node<T>>,
    /// A second pointer to that node, for holders of the lock.
    held: Lock<Held<T>>,
}

struct Held<T>(Option<NonNull<Node<T>>>);

// SAFETY: a pointer, followed by the lock's holder just as by readers of `current`.
unsafe impl<T: Send + Sync> Send for Held<T> {}

impl<T> Master<T> {
    /// Makes a master that takes over the reference of a node, or has no node yet.
    pub(crate) fn new(node: Option<Box<Node<T>>>) -> Master<T> {
        let current = node.map_or(ptr::null_mut(), Box::into_raw);
        Master { current: AtomicPtr::new(current), held: Lock::new(Held(NonNull::new(current))) }
    }

    /// Returns the node, if the master has one. It is valid until the end of the caller's operation.
    #[inline(always)]
    pub(crate) fn node(&self) -> Option<NonNull<Node<T>>> {
        // Acquire: pairs with the release of `COMMIT`: the node is complete, and every word was emptied.
        NonNull::new(self.current.load(sites::READ_MASTER.order(Ordering::Acquire)))
    }

    /// Whether an update is under way, or a word is being attached.
    #[cfg(not(loom))]
    pub(crate) fn is_busy(&self) -> bool {
        self.held.is_locked()
    }

    /// Returns the node with one more reference, the caller's.
    pub(crate) fn share(&self) -> Option<NonNull<Node<T>>> {
        let held = self.held.lock();
        let node = held.0?;
        // SAFETY: the master has a reference, and keeps it while the lock is held.
        unsafe { Node::add_references(node, 1) };
        Some(node)
    }

    /// Fills an empty word, unless another thread holds the lock. The word gets the master's own node, or a
    /// copy of a node that the master still has. Returns whether it filled the word. In that case the word
    /// has taken over the copy's reference, and `attach` has called `note` under the lock.
    ///
    /// Called within the operation in which the original was found, so that its address cannot be that of
    /// another node.
    pub(crate) fn attach(&self, word: &Word<T>, copy: Option<Copied<T>>, note: impl FnOnce()) -> bool {
        let held = self.held.try_lock();
        let current = match &held {
            Some(held) => held.0,
            None if sites::ATTACH_LOCKED.is_weak() => self.node(),
            None => None,
        };
        let Some(current) = current else { return false };
        let given = match copy {
            None => {
                // SAFETY: the master has a reference, and keeps it while the lock is held.
                unsafe { Node::add_references(current, 1) };
                current
            }
            Some(Copied { copy, original }) if original == current => copy,
            Some(_) => return false,
        };
        let attached = word.fill(given, sites::ATTACH);
        if !attached && copy.is_none() {
            // This is not the last reference: the master has one, too.
            let mut none = DeadNodes::new();
            // SAFETY: the reference added above, which no word has taken over.
            unsafe { none.release(given, 1) };
        }
        if sites::NOTE_LOCKED.is_weak() {
            drop(held);
        }
        if attached {
            note();
        }
        attached
    }

    /// Replaces the node and returns the new version, unless `admit` rejects the current one. `new` makes the
    /// node of a given version, with one reference, which the master takes over. With `fill`, the words get
    /// the node too.
    ///
    /// The walk is made under the lock. If it panics, either the master is unchanged, or the replacement is
    /// complete except that some words are empty.
    pub(crate) fn replace(
        &self,
        admit: impl FnOnce(u64) -> bool,
        new: impl FnOnce(u64) -> NonNull<Node<T>>,
        walk: &mut Walk<'_, T>,
        fill: bool,
        dead: &mut DeadNodes<T>,
    ) -> Option<u64> {
        let mut held = self.held.lock();
        // SAFETY: the master has a reference.
        let version = held.0.map_or(0, |old| unsafe { old.as_ref() }.version);
        if !admit(version) {
            return None;
        }
        let (mut words, late) = (0, sites::EMPTY_FIRST.is_weak());
        let mut empty = |dead: &mut DeadNodes<T>| {
            walk(&mut |word| {
                words += 1;
                word.empty(dead);
            });
        };
        if !late {
            empty(dead);
        }
        let node = new(version + 1);
        // Release: pairs with the acquire in `node`. The words were emptied before.
        self.current.store(node.as_ptr(), sites::COMMIT.order(Ordering::Release));
        if late {
            empty(dead);
        }
        // Pairs with itself, in a thread that updated another master and then reads this one.
        if !sites::UPDATE.is_weak() {
            fence(Ordering::SeqCst);
        }
        if let Some(old) = held.0.replace(node) {
            // SAFETY: the master's reference, and its word has another node.
            unsafe { dead.release(old, 1) };
        }
        if fill && words > 0 {
            // SAFETY: the master has a reference while the lock is held.
            unsafe { Node::add_references(node, words) };
            let mut references = SpareReferences { node, left: words, dead };
            walk(&mut |word| {
                references.left -= usize::from(references.left > 0 && word.fill(node, sites::FILL))
            });
        }
        Some(version + 1)
    }

    /// Drops the master's reference, at the end of its life.
    pub(crate) fn end(&mut self, dead: &mut DeadNodes<T>) {
        if let Some(held) = self.held.get_mut().0.take() {
            // SAFETY: the master's reference, and the master has no other user.
            unsafe { dead.release(held, 1) };
        }
    }
}

/// References meant for words. The drop releases those that no word has taken over.
struct SpareReferences<'a, T> {
    node: NonNull<Node<T>>,
    left: usize,
    dead: &'a mut DeadNodes<T>,
}

impl<T> Drop for SpareReferences<'_, T> {
    fn drop(&mut self) {
        if self.left > 0 {
            // SAFETY: references of this value, which no word has taken over.
            unsafe { self.dead.release(self.node, self.left) };
        }
    }
}
