//! The elements of an object and their waiters, which the object's forms share.
//!
//! Problem: a swap must lose neither elements nor waiting threads. Idea: the forms are ways to use one
//! collection. Each root has a reference to it, and a swap hands a reference to the next root.
//!
//! - I1. The roots that an object has had share its collection. The drop of the last one closes it.
//! - I2. A root gets its collection once: from a swap, or by making one for its first representative.
//! - I3. The destruction of the object closes the collection. A swap leaves its waits alone.
//!
//! Cost: on the path of a call, at most a pointer to follow. A representative keeps a reference of its own.

use squall_core::swap::Format;
use squall_core::{Handle, Interface, class_of};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Elements and their waiters, or a reference to them.
pub(crate) trait Collection: Send + Sync + 'static {
    /// Ends all waits. A second close has no effect.
    fn close(&self);
}

/// A reference of a root or of a representative to the collection. The drop of the last one closes it (I1).
pub(crate) struct Shared<C: Collection>(Arc<CloseOnDrop<C>>);

struct CloseOnDrop<C: Collection>(C);

impl<C: Collection> Drop for CloseOnDrop<C> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<C: Collection> Shared<C> {
    pub(crate) fn new(collection: C) -> Shared<C> {
        Shared(Arc::new(CloseOnDrop(collection)))
    }
}

impl<C: Collection> Clone for Shared<C> {
    fn clone(&self) -> Shared<C> {
        Shared(self.0.clone())
    }
}

impl<C: Collection> Deref for Shared<C> {
    type Target = C;

    #[inline(always)]
    fn deref(&self) -> &C {
        &self.0.0
    }
}

impl<C: Collection> Collection for Shared<C> {
    fn close(&self) {
        (**self).close();
    }
}

impl<C: Collection> Format for Shared<C> {}

/// The reference in a root. `C` may have data of the root beside it.
pub(crate) struct SharedCell<I: ?Sized + Interface, C> {
    /// Empty in a replacement, until a swap moves the state in.
    collection: OnceLock<C>,
    /// Handle of the object, set when the first representative is made.
    handle: OnceLock<Handle<I>>,
}

impl<I: ?Sized + Interface, C: Collection> SharedCell<I, C> {
    pub(crate) fn new() -> SharedCell<I, C> {
        SharedCell { collection: OnceLock::new(), handle: OnceLock::new() }
    }

    /// Sets the handle of the object.
    pub(crate) fn set_handle(&self, handle: Handle<I>) {
        self.handle.get_or_init(|| handle);
    }

    /// Returns the collection, if the root has one.
    pub(crate) fn get(&self) -> Option<&C> {
        self.collection.get()
    }

    /// Returns the collection. `make` makes one if no swap moved one in.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> C) -> &C {
        self.collection.get_or_init(make)
    }

    /// Takes the collection that a swap moves in. It fails if the root has one.
    pub(crate) fn take_over(&self, collection: C) -> Result<(), &'static str> {
        let again = "the replacement already has elements; make a new one for each swap";
        self.collection.set(collection).map_err(|_| again)
    }

    /// Closes the collection if the object was destroyed (I3). For [`Root::wake`](squall_core::Root::wake).
    pub(crate) fn wake(&self) {
        if let (Some(handle), Some(collection)) = (self.handle.get(), self.get())
            && class_of(Handle::id(*handle)).is_none()
        {
            collection.close();
        }
    }
}
