//! The protocol of a value with replicas: nodes, words, and the master.
//!
//! Problem: a value is read everywhere and changed seldom. Each cluster shall read a word of its own and nothing else, and yet
//! no reader may see a value after another one has seen a later one, and none may wait for an update.
//! Idea: a word that is being changed is empty: who finds it so asks the master's word, which alone says what the value is. An
//! update empties the words, then stores the new node in the master, then fills the words. So a word that is not empty holds
//! what the master holds; and while an update stores, all words are empty.
//!
//! - I1. Words and the master's word are changed under the master's lock, or by who owns them alone.
//! - I2. A node in a word or in the master was kept for it: `keepers` counts them, and is one for whoever made it. Who lets
//!   go last gets the node, once, and frees it when every operation that is open then has ended.
//! - I3. When the master's word changes, every word that the walk of this update gives is empty, and stays so until the
//!   lock is released, but for the fill of that update.
//! - I4. Who attaches a node says so under the lock, so that a walk may leave out the words of which nothing was said.
//! - I5. `version` is written before the node is in any word, and grows by one with each update of a master.
//!
//! Linearization: an update takes effect at the store to the master's word (`COMMIT`). A read takes effect at its load of the
//! word where that holds a node, else at its load of the master's.
//! Proof. (1) A read finds a node in its word, and knows of a later `COMMIT`, its own or one that somebody whom it heard of has
//! seen: no, for the word was emptied before that (I3), so the read sees the empty word or what was put there later, and
//! nobody puts the old node there again (I1: under the lock there is the new one only). (2) A read finds a node in its word before
//! the `COMMIT` of it: no, for filling and attaching come after that, and who sees them by `FIND` sees the master hold that
//! node or a later one. (3) A read that asks the master is right at its load. (4) Two threads each change one value and then
//! read the other: one sees what the other did, by the fences `UPDATE`. (5) Two readers that no synchronisation connects agree on the
//! order of changes of two values because stores reach all other processors at once, as on x86-64 and aarch64; the words of the
//! language alone do not say so.
//!
//! A node with a tag and a pointer to what it replaces would do the same with one word more in each node, and a step more in each
//! read: a reader that met the tag would have to ask the master just so. There is nothing to ask of an empty word.
//!
//! What the walk does not give, is not updated: it goes on with its old value for as long as it is left out. That is a wrong
//! answer, and no wrong memory: the word keeps its node (I2).
//!
//! Progress: reads are wait-free; `attach` tries once. Updates block each other. A thread that stalls in an update, or
//! in `attach`, holds up updates; readers of empty words read the master's meanwhile. Cost: a read is one load of the word; an update changes each word twice.
//! Source: TO-04, HU-17 (told down the tree of clusters), K42's coordinated swings of all reps; the order is ours.

use squall_lock::Lock;
use squall_sys::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
use squall_sys::sync::weaken::Site;
use std::ptr::{self, NonNull};

use crate::replica::sites;

/// A value, its version, and who keeps it.
#[repr(C)]
pub(crate) struct Node<T> {
    pub(crate) version: u64,
    pub(crate) value: T,
    /// Words, masters and others (I2). Apart from what readers read, but for small values: it changes with updates alone.
    keepers: AtomicUsize,
    /// The next one of [`Dead`].
    next: AtomicPtr<Node<T>>,
}

impl<T> Node<T> {
    /// A node that its maker keeps.
    pub(crate) fn new(version: u64, value: T) -> Box<Node<T>> {
        let next = AtomicPtr::new(ptr::null_mut());
        Box::new(Node { version, value, keepers: AtomicUsize::new(1), next })
    }

    /// One keeper more.
    ///
    /// # Safety
    /// The node has a keeper that does not let go meanwhile.
    pub(crate) unsafe fn keep(node: NonNull<Node<T>>, more: usize) {
        // Relaxed: there is a keeper, as with any count of references.
        // SAFETY: kept, so valid.
        unsafe { node.as_ref() }.keepers.fetch_add(more, Ordering::Relaxed);
    }
}

/// Nodes that nobody keeps any more, for the caller to free when their time has come.
#[must_use]
pub(crate) struct Dead<T>(*mut Node<T>);

impl<T> Dead<T> {
    pub(crate) fn new() -> Dead<T> {
        Dead(ptr::null_mut())
    }

    /// Lets so many keepers of a node go.
    ///
    /// # Safety
    /// They are the caller's, more than none, and it has taken the node out of their words.
    pub(crate) unsafe fn let_go(&mut self, node: NonNull<Node<T>>, keepers: usize) {
        // SAFETY: kept, by the caller.
        let this = unsafe { node.as_ref() };
        // AcqRel: pairs with itself: who lets go last has seen the node taken out of every word.
        if this.keepers.fetch_sub(keepers, sites::LET_GO.order(Ordering::AcqRel)) == keepers {
            // Relaxed: it is the caller's alone now, but for readers, which do not look at this.
            this.next.store(self.0, Ordering::Relaxed);
            self.0 = node.as_ptr();
        }
    }

    /// Takes one of them: nobody keeps it, no word leads to it, and operations that are open may still read it.
    pub(crate) fn take(&mut self) -> Option<NonNull<Node<T>>> {
        let first = NonNull::new(self.0)?;
        // SAFETY: in the list, so not freed.
        self.0 = unsafe { first.as_ref() }.next.load(Ordering::Relaxed);
        Some(first)
    }
}

/// A replica's word: null, or a node that it keeps.
///
/// It is changed by single steps that read and write, not by a load and a store: the line moves once, and the model checker,
/// which forgets a load that another one follows, sees them.
pub(crate) struct Word<T>(AtomicPtr<Node<T>>);

impl<T> Word<T> {
    pub(crate) fn new() -> Word<T> {
        Word(AtomicPtr::new(ptr::null_mut()))
    }

    /// The node, if it holds one. It is valid to the end of the operation in which this is called.
    #[inline(always)]
    pub(crate) fn find(&self) -> Option<NonNull<Node<T>>> {
        // Acquire: pairs with the releases in `fill` and `attach`: the node is whole, and its update committed.
        NonNull::new(self.0.load(sites::FIND.order(Ordering::Acquire)))
    }

    /// Empties it. Under the lock of its master.
    fn empty(&self, dead: &mut Dead<T>) {
        // Relaxed: who holds the lock sees what others stored under it, and the release of `COMMIT` is behind it.
        if let Some(held) = NonNull::new(self.0.swap(ptr::null_mut(), Ordering::Relaxed)) {
            // SAFETY: kept for the word (I2), and just taken out of it.
            unsafe { dead.let_go(held, 1) };
        }
    }

    /// Gives it a node, if it is empty: then one keeper is the word's. Under the lock of its master.
    fn fill(&self, node: NonNull<Node<T>>, site: Site) -> bool {
        // Release: pairs with the acquire in `find`. Relaxed: a word that is not empty is left alone.
        let release = site.order(Ordering::Release);
        self.0.compare_exchange(ptr::null_mut(), node.as_ptr(), release, Ordering::Relaxed).is_ok()
    }

    /// Lets go of what it holds, at its end.
    pub(crate) fn end(&mut self, dead: &mut Dead<T>) {
        // Acquire: pairs with the release of `fill`, as in `find`.
        if let Some(held) = NonNull::new(self.0.swap(ptr::null_mut(), Ordering::Acquire)) {
            // SAFETY: kept for the word (I2), which is nobody else's.
            unsafe { dead.let_go(held, 1) };
        }
    }
}

/// A copy for one word alone, with a keeper that the word is to have.
#[derive(Debug)]
pub(crate) struct Copied<T> {
    pub(crate) copy: NonNull<Node<T>>,
    /// What it is a copy of.
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

/// What alone says what the value is.
pub(crate) struct Master<T> {
    /// Null, or a node that it keeps.
    current: AtomicPtr<Node<T>>,
    /// The same, for those who hold the lock.
    held: Lock<Held<T>>,
}

struct Held<T>(Option<NonNull<Node<T>>>);

// SAFETY: a pointer, which whoever holds the lock follows as whoever reads `current` does.
unsafe impl<T: Send + Sync> Send for Held<T> {}

impl<T> Master<T> {
    /// A master that takes over the keeper of a node, or has none yet.
    pub(crate) fn new(node: Option<Box<Node<T>>>) -> Master<T> {
        let current = node.map_or(ptr::null_mut(), Box::into_raw);
        Master { current: AtomicPtr::new(current), held: Lock::new(Held(NonNull::new(current))) }
    }

    /// The node, if it has one. It is valid to the end of the operation in which this is called.
    #[inline(always)]
    pub(crate) fn ask(&self) -> Option<NonNull<Node<T>>> {
        // Acquire: pairs with the release of `COMMIT`: the node is whole, and every word was emptied.
        NonNull::new(self.current.load(sites::ASK.order(Ordering::Acquire)))
    }

    /// Whether an update is under way, or a word is being attached.
    #[cfg(not(loom))]
    pub(crate) fn is_busy(&self) -> bool {
        self.held.is_locked()
    }

    /// The node, with one keeper more, which is the caller's.
    pub(crate) fn share(&self) -> Option<NonNull<Node<T>>> {
        let held = self.held.lock();
        let node = held.0?;
        // SAFETY: kept by the master, which does not let go while the lock is held.
        unsafe { Node::keep(node, 1) };
        Some(node)
    }

    /// Gives an empty word the value, if nobody else is at it: the master's own node, or the copy of a node that is still the
    /// master's. Returns whether it did; then the copy's keeper is the word's, and `note` was called, under the lock still.
    ///
    /// Within the operation in which the original was found, so that its address is not another's.
    pub(crate) fn attach(&self, word: &Word<T>, copy: Option<Copied<T>>, note: impl FnOnce()) -> bool {
        let held = self.held.try_lock();
        let current = match &held {
            Some(held) => held.0,
            None if sites::ATTACH_LOCKED.is_weak() => self.ask(),
            None => None,
        };
        let Some(current) = current else { return false };
        let given = match copy {
            None => {
                // SAFETY: kept by the master, which does not let go while the lock is held.
                unsafe { Node::keep(current, 1) };
                current
            }
            Some(Copied { copy, original }) if original == current => copy,
            Some(_) => return false,
        };
        let attached = word.fill(given, sites::ATTACH);
        if !attached && copy.is_none() {
            // It is not the last: the master keeps the node, too.
            let mut none = Dead::new();
            // SAFETY: from above, and in no word.
            unsafe { none.let_go(given, 1) };
        }
        if sites::NOTE_LOCKED.is_weak() {
            drop(held);
        }
        if attached {
            note();
        }
        attached
    }

    /// Replaces the node, and returns the version of the new one; nothing happens if `admit` says no to the version that there
    /// is. `new` makes it, of a given version, with one keeper, which becomes the master's. `fill`: the words are given it, too.
    ///
    /// The walk is made under the lock. Where it panics, nothing was replaced, or everything but words that are empty now.
    pub(crate) fn replace(
        &self,
        admit: impl FnOnce(u64) -> bool,
        new: impl FnOnce(u64) -> NonNull<Node<T>>,
        walk: &mut Walk<'_, T>,
        fill: bool,
        dead: &mut Dead<T>,
    ) -> Option<u64> {
        let mut held = self.held.lock();
        // SAFETY: kept by the master.
        let version = held.0.map_or(0, |old| unsafe { old.as_ref() }.version);
        if !admit(version) {
            return None;
        }
        let (mut words, late) = (0, sites::EMPTY_FIRST.is_weak());
        let mut empty = |dead: &mut Dead<T>| {
            walk(&mut |word| {
                words += 1;
                word.empty(dead);
            });
        };
        if !late {
            empty(dead);
        }
        let node = new(version + 1);
        // Release: pairs with the acquire in `ask`. Before it, the words were emptied.
        self.current.store(node.as_ptr(), sites::COMMIT.order(Ordering::Release));
        if late {
            empty(dead);
        }
        // Pairs with itself, of who updated another master and then reads this one.
        if !sites::UPDATE.is_weak() {
            fence(Ordering::SeqCst);
        }
        if let Some(old) = held.0.replace(node) {
            // SAFETY: the master's keeper, and its word has another node.
            unsafe { dead.let_go(old, 1) };
        }
        if fill && words > 0 {
            // SAFETY: kept by the master while the lock is held.
            unsafe { Node::keep(node, words) };
            let mut keepers = Keepers { node, left: words, dead };
            walk(&mut |word| keepers.left -= usize::from(keepers.left > 0 && word.fill(node, sites::FILL)));
        }
        Some(version + 1)
    }

    /// Lets go of the node, at its end.
    pub(crate) fn end(&mut self, dead: &mut Dead<T>) {
        if let Some(held) = self.held.get_mut().0.take() {
            // SAFETY: the master's keeper, and nobody else has the master.
            unsafe { dead.let_go(held, 1) };
        }
    }
}

/// Keepers of a node that words were to have: those that no word took, let go.
struct Keepers<'a, T> {
    node: NonNull<Node<T>>,
    left: usize,
    dead: &'a mut Dead<T>,
}

impl<T> Drop for Keepers<'_, T> {
    fn drop(&mut self) {
        if self.left > 0 {
            // SAFETY: ours, and in no word.
            unsafe { self.dead.let_go(self.node, self.left) };
        }
    }
}
