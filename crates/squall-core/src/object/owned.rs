//! Ownership of an object: who may end it.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::time::Duration;

use crate::call::handle::Handle;
use crate::call::interface::Interface;
use crate::call::mediated::doomed;
use crate::protocol::destroy::run_drop;
use crate::protocol::id::Id;
use crate::protocol::object::Object;
use crate::protocol::platform::{Platform, Stage};
use crate::protocol::tables::existing;
use crate::protocol::teardown::{Killed, kill};

/// An object's owner. Dropping it destroys the object, and may drop what this thread destroyed *earlier*: do not let go of
/// an owner while holding a lock that the drops of such objects take (see [`Owned::destroy`]).
///
/// References to the object ([`Owned::co`]) may be handed to anyone and outlive it; a call through one then errs.
pub struct Owned<I: ?Sized + Interface> {
    co: Handle<I>,
}

impl<I: ?Sized + Interface> Owned<I> {
    pub(crate) fn new(co: Handle<I>) -> Owned<I> {
        Owned { co }
    }

    /// A reference to the object: `Copy`, 8 bytes, for anyone.
    #[inline(always)]
    pub fn co(&self) -> Handle<I> {
        self.co
    }

    /// Destroys the object: every call that begins after this returned errs.
    ///
    /// Calls under way end in peace; this does not wait for them. Then its representatives are dropped, on the VP or at
    /// least the node that made them where that is possible, after them its root, and its id is free for another
    /// generation. It may be called anywhere, within the object's own methods too.
    ///
    /// Who drops: outside every operation this call may run the drops of objects that this thread destroyed earlier and
    /// whose grace period is over, a batch of 512 at a time, as [`rcu::retire`](squall_rcu::retire) does; what is destroyed
    /// inside an operation, or by a thread that then stops, the thread `squall-reclaim` drops.
    ///
    /// # Cost
    /// In proportion to the representatives and to the VPs that called the object, not to those of the machine.
    /// Progress: lock-free, as long as fewer than about four thousand destructions of this thread wait for their grace period;
    /// beyond that the thread is held up, by up to 50 ms for each 512, so that a stalled reader does not fill the memory
    /// (see [`rcu::retire`](squall_rcu::retire)). In a signal handler that interrupted a registration, and in a forked
    /// child, nothing happens: the object lives on.
    /// # Source
    /// Appavoo 2005, §5.4.3; Tornado §5.3.
    pub fn destroy(this: Owned<I>) -> Destruction {
        let id = this.co.bits_id();
        drop(this);
        Destruction { id }
    }

    /// Gives the object up without ending it: it lives as long as the process.
    pub fn leak(this: Owned<I>) -> Handle<I> {
        let co = this.co;
        std::mem::forget(this);
        co
    }
}

impl<I: ?Sized + Interface> Drop for Owned<I> {
    fn drop(&mut self) {
        end(self.co.bits_id());
    }
}

/// Ends the object of this id, of which the caller is the owner.
fn end(id: Id) {
    if squall_sys::fork::forked() {
        return;
    }
    let Some(tables) = existing() else { return };
    // Within one operation, so that nobody frees it in between. Refused where nothing can be reclaimed anyway.
    let killed = squall_rcu::try_pin(|_| {
        // SAFETY: within an operation.
        let killed = unsafe { kill(tables, id) };
        match killed {
            Killed::Ended { object, drained } => {
                // SAFETY: valid to the end of the operation.
                unsafe { wake(object) };
                drained.then_some(object)
            }
            Killed::Mediated { object, drained, mediator, ownerless } => {
                // SAFETY: as above; taken out of the slot in this operation.
                unsafe {
                    wake(object);
                    doomed(mediator, ownerless);
                }
                drained.then_some(object)
            }
            Killed::Before => None,
        }
    });
    if let Ok(Some(object)) = killed {
        // Outside the operation, so that this thread may do the drops itself when their time has come.
        tables.after_grace_period(object, Stage::Quiet);
    }
}

/// Wakes those who sleep in the methods of an object that ends, or that a swap waits for.
///
/// # Safety
/// It is valid.
#[inline(always)]
pub(crate) unsafe fn wake(object: NonNull<Object>) {
    // SAFETY: the caller's promise.
    unsafe {
        let class = object.as_ref().class;
        if class.sleeps {
            wake_sleepers(object);
        }
    }
}

/// # Safety
/// It is valid.
#[inline(never)]
unsafe fn wake_sleepers(object: NonNull<Object>) {
    // A panic of the author's must not keep what its caller does next from happening: without that the object is for ever.
    // SAFETY: the caller's promise.
    run_drop(|| unsafe { (object.as_ref().class.more.wake)(object) });
}

impl<I: ?Sized + Interface> Deref for Owned<I> {
    type Target = Handle<I>;

    #[inline(always)]
    fn deref(&self) -> &Handle<I> {
        &self.co
    }
}

impl<I: ?Sized + Interface> fmt::Debug for Owned<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned({})", self.co)
    }
}

/// A destruction under way, for those who want to know when it is complete.
#[derive(Clone, Copy, Debug)]
pub struct Destruction {
    id: Id,
}

/// The longest pause between two looks.
const PAUSE_MAX: Duration = Duration::from_millis(5);

impl Destruction {
    /// Whether everything of the object was dropped, and its id is free. What served before it, and was swapped for another
    /// one, may still wait for its own grace period.
    pub fn is_complete(self) -> bool {
        // Acquire: pairs with the release in `Slot::advance`: who sees it complete sees what the drops did.
        existing().is_none_or(|tables| {
            tables.slot(self.id.slot()).generation.load(squall_sys::sync::atomic::Ordering::Acquire)
                != self.id.generation()
        })
    }

    /// Waits until it is complete, doing what can be done here.
    ///
    /// # Errors
    /// [`WaitError`](squall_rcu::WaitError): inside an operation, where it would wait for itself; in a forked child.
    /// # Cost
    /// Grace periods, the drops, and whatever calls that are under way take: a method that never returns, or an
    /// [`RepContext`](crate::RepContext) that somebody keeps, is waited for for ever.
    pub fn wait(self) -> Result<(), squall_rcu::WaitError> {
        let mut pause = Duration::from_micros(50);
        while !self.is_complete() {
            squall_rcu::barrier()?;
            if !self.is_complete() {
                squall_sys::sync::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
        Ok(())
    }
}
