//! Ownership and destruction of an object.

use squall_sys::sync::Arc;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::time::Duration;

use crate::call::handle::Handle;
use crate::call::interface::Interface;
use crate::call::mediated::doomed;
use crate::protocol::destroy::run_drop;
use crate::protocol::id::Id;
use crate::protocol::links::set_part_of;
use crate::protocol::names::set_name;
use crate::protocol::object::Object;
use crate::protocol::platform::{Platform, Stage};
use crate::protocol::tables::existing;
use crate::protocol::teardown::{Killed, kill};

/// The owner of an object. Dropping it destroys the object.
///
/// The drop may also run the drops of objects that this thread destroyed *earlier*. So do not drop an owner
/// while you hold a lock that the drops of such objects take. See [`Owned::destroy`].
///
/// Any thread may keep handles to the object ([`Owned::handle`]). They outlive the object; a call through one
/// then fails.
///
/// An `Owned` derefs to its handle. It has no `clone`: several owners of an object would need an `Arc` of
/// one.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// counter.add(1);
/// let handle = counter.handle();
/// drop(counter);
/// assert!(handle.try_add(1).is_err());
/// ```
pub struct Owned<I: ?Sized + Interface> {
    handle: Handle<I>,
}

mod sealed {
    /// Implemented by no type.
    #[diagnostic::on_unimplemented(
        message = "an `Owned` cannot be cloned: a copy of its handle would not keep the object",
        note = "use `owner.handle()` for another reference, or `Arc::new(owner)` for several owners"
    )]
    pub trait CloneOwner {}
}

impl<I: ?Sized + Interface> Owned<I> {
    pub(crate) fn new(handle: Handle<I>) -> Owned<I> {
        Owned { handle }
    }

    /// Refused by the compiler. Without this method `owner.clone()` would copy the handle, since an `Owned`
    /// derefs to it.
    #[doc(hidden)]
    #[expect(clippy::should_implement_trait, reason = "it must not be implemented")]
    pub fn clone(&self) -> Owned<I>
    where
        I: sealed::CloneOwner,
    {
        unreachable!("no type of interface implements `CloneOwner`")
    }

    /// Returns a handle to the object: `Copy`, 8 bytes, for any thread.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// let counter = squall::shared::<dyn Counter, _>(Central::default());
    /// let handle = counter.handle();
    /// std::thread::spawn(move || handle.add(1)).join().unwrap();
    /// assert_eq!(counter.get(), 1);
    /// ```
    #[inline(always)]
    pub fn handle(&self) -> Handle<I> {
        self.handle
    }

    /// Gives the object a name for people, and returns its owner: see [`set_name`](crate::set_name).
    ///
    /// Without effect in a forked child, and in a signal handler that interrupted a slow path of Squall.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// let logins = squall::shared::<dyn Counter, _>(Central::default()).named("GET /login requests");
    /// let handle = logins.handle();
    /// drop(logins);
    /// assert!(handle.try_add(1).unwrap_err().to_string().contains("\"GET /login requests\""));
    /// ```
    pub fn named(self, name: impl Into<Arc<str>>) -> Owned<I> {
        // The object lives, since its owner is here.
        let _ = set_name(self.handle.bits_id(), name);
        self
    }

    /// Declares the object to be a part of another one, for people, and returns its owner: see
    /// [`set_part_of`](crate::set_part_of).
    ///
    /// Without effect if the other object is a part of this one, in a forked child, and in a signal handler
    /// that interrupted a slow path of Squall.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::{Handle, info_of};
    ///
    /// let service = squall::shared::<dyn Counter, _>(Central::default()).named("login service");
    /// let errors = squall::shared::<dyn Counter, _>(Central::default()).part_of(service.handle());
    /// let info = info_of(Handle::id(errors.handle())).unwrap();
    /// assert_eq!(info.part_of, Some(Handle::id(service.handle())));
    /// ```
    pub fn part_of<W: ?Sized + Interface>(self, whole: Handle<W>) -> Owned<I> {
        let _ = set_part_of(self.handle.bits_id(), whole.bits_id());
        self
    }

    /// Destroys the object. Every call that begins after this function returned fails. It may be called
    /// anywhere, even inside a method of the object.
    ///
    /// Calls in progress finish normally; this function does not wait for them. Afterwards the
    /// representatives are dropped, each on a VP of its cluster where that is possible (see
    /// [`Cleanup`](crate::Cleanup)). Then the root is dropped, and the id is free for another generation.
    ///
    /// Outside every operation, this call may run the drops of objects that this thread destroyed earlier and
    /// whose grace period is over, in batches of 512, like [`rcu::retire`](squall_rcu::retire). The thread
    /// `squall-reclaim` drops objects that were destroyed inside an operation, or by a thread that then
    /// sleeps or ends. Threads named `squall-runner` drop the representatives of other VPs.
    ///
    /// # Cost
    /// Proportional to the representatives and to the VPs that called the object, not to the VPs of the
    /// machine. Progress: lock-free while fewer than about 4,000 destructions of this thread wait for their
    /// grace period. Beyond that the thread is delayed by up to 50 ms for each 512, so that a stalled reader
    /// does not exhaust the memory (see [`rcu::retire`](squall_rcu::retire)).
    ///
    /// In a forked child, and in a signal handler that interrupted a registration, the function does nothing,
    /// and the object lives on.
    /// # Source
    /// Appavoo 2005, §5.4.3; Tornado §5.3.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::Owned;
    ///
    /// let counter = squall::shared::<dyn Counter, _>(Central::default());
    /// let destruction = Owned::destroy(counter);
    /// destruction.wait()?; // until everything is dropped
    /// assert!(destruction.is_complete());
    /// # Ok::<(), squall::rcu::WaitError>(())
    /// ```
    pub fn destroy(this: Owned<I>) -> Destruction {
        let id = this.handle.bits_id();
        drop(this);
        Destruction { id }
    }

    /// Gives up ownership without destroying the object, which then lives as long as the process.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::Owned;
    ///
    /// let handle = Owned::leak(squall::shared::<dyn Counter, _>(Central::default()));
    /// handle.add(1);
    /// assert_eq!(handle.get(), 1);
    /// ```
    pub fn leak(this: Owned<I>) -> Handle<I> {
        let handle = this.handle;
        std::mem::forget(this);
        handle
    }
}

impl<I: ?Sized + Interface> Drop for Owned<I> {
    fn drop(&mut self) {
        end(self.handle.bits_id());
    }
}

/// Destroys the object of this id. The caller is its owner.
fn end(id: Id) {
    if squall_sys::fork::forked() {
        return;
    }
    let Some(tables) = existing() else { return };
    // Within one operation, so that the object stays valid meanwhile. An error means that reclamation is
    // impossible here anyway.
    let killed = squall_rcu::__try_pin(|_| {
        // SAFETY: within an operation.
        let killed = unsafe { kill(tables, id) };
        match killed {
            Killed::Ended { object, drained } => {
                // SAFETY: valid to the end of the operation.
                unsafe { wake(object) };
                drained.then_some(object)
            }
            Killed::Mediated { object, drained, mediator, ownerless } => {
                // SAFETY: valid to the end of the operation; the mediator was taken out of the slot in this
                // operation.
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
        // Outside the operation, so that this thread may later run the drops itself.
        tables.after_grace_period(object, Stage::Quiet);
    }
}

/// Wakes the threads that sleep in methods of an object that was destroyed, or that a swap waits for.
///
/// # Safety
/// The object is valid.
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

/// Calls the class's `wake`.
///
/// # Safety
/// The object is valid.
#[inline(never)]
unsafe fn wake_sleepers(object: NonNull<Object>) {
    // A panic of the author's code must not stop the caller: its next step lets the object end.
    // SAFETY: the caller's promise.
    run_drop(|| unsafe { (object.as_ref().class.more.wake)(object) });
}

impl<I: ?Sized + Interface> Deref for Owned<I> {
    type Target = Handle<I>;

    #[inline(always)]
    fn deref(&self) -> &Handle<I> {
        &self.handle
    }
}

impl<I: ?Sized + Interface> fmt::Debug for Owned<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned({})", self.handle)
    }
}

/// A destruction in progress. Tells when it is complete.
#[derive(Clone, Copy, Debug)]
pub struct Destruction {
    id: Id,
}

/// The longest pause between two checks.
const PAUSE_MAX: Duration = Duration::from_millis(5);

impl Destruction {
    /// Whether all parts of the object were dropped and its id is free.
    ///
    /// If the object had replaced another one by a swap, that one may still wait for its own grace period.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::Owned;
    ///
    /// let destruction = Owned::destroy(squall::shared::<dyn Counter, _>(Central::default()));
    /// while !destruction.is_complete() {
    ///     squall::rcu::barrier()?; // runs pending drops
    /// }
    /// # Ok::<(), squall::rcu::WaitError>(())
    /// ```
    pub fn is_complete(self) -> bool {
        // Acquire: pairs with the release in `Slot::advance`. A thread that sees the destruction complete
        // sees the effects of the drops.
        existing().is_none_or(|tables| {
            tables.slot(self.id.slot()).generation.load(squall_sys::sync::atomic::Ordering::Acquire)
                != self.id.generation()
        })
    }

    /// Blocks the thread until the destruction is complete. Meanwhile the thread runs pending drops. A task
    /// uses [`wait_async`](Destruction::wait_async).
    ///
    /// # Errors
    /// [`WaitError`](squall_rcu::WaitError) inside an operation, where the call would wait for itself, and in
    /// a forked child.
    /// # Cost
    /// Grace periods, the drops, and the rest of the calls in progress. A method that never returns, or a
    /// [`RepContext`](crate::RepContext) that is kept, delays it forever.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::Owned;
    ///
    /// let counter = squall::shared::<dyn Counter, _>(Central::default());
    /// Owned::destroy(counter).wait()?;
    /// # Ok::<(), squall::rcu::WaitError>(())
    /// ```
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

    /// Waits until the destruction is complete, for a task. The future blocks no thread: the reclaimer thread
    /// runs the pending drops. It needs no particular runtime.
    ///
    /// Dropping the future has no effect on the destruction. While the reclaimer is
    /// [forbidden](squall_rcu::set_reclaimer), a poll runs the pending drops itself, and blocks its thread.
    ///
    /// # Errors
    /// [`WaitError`](squall_rcu::WaitError) in a forked child. While the reclaimer is forbidden, also inside
    /// an operation.
    /// # Cost
    /// That of [`wait`](Destruction::wait). While calls in progress delay the destruction, the reclaimer
    /// looks again every 10 to 40 ms.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::Owned;
    ///
    /// async fn end(counter: Owned<dyn Counter>) -> Result<(), squall::rcu::WaitError> {
    ///     Owned::destroy(counter).wait_async().await
    /// }
    /// ```
    pub async fn wait_async(self) -> Result<(), squall_rcu::WaitError> {
        while !self.is_complete() {
            squall_rcu::barrier_async().await?;
            if !self.is_complete() {
                squall_rcu::__round_async().await?;
            }
        }
        Ok(())
    }
}
