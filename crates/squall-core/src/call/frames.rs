//! The calls of a thread that a swap may have to wait for.
//!
//! - I1. A [`Frame`] is in its thread's list while the thread is in a call that a swap may have to wait for:
//!   a call that holds its object, or that a mediator has counted. So the object is valid while the frame is
//!   in the list.
//! - I2. A thread that some swap waits for has a frame of an object with a swap's mediator in front of it.
//!   Such a thread never waits in a `Block`. So every `Block` ends, unless a lock of the users prevents it;
//!   for that case `Block` has a time limit.
//! - I3. A thread that moves state never waits for a swap: its call returns an error, and the transfer fails.
//!   Nor does it hand a call to another thread and wait for that thread, which could wait for the swap.
//! - I4. Of a frame in a list only `shall_repeat` changes, which is atomic. So several threads may read it:
//!   the thread of the call, and the threads that work for it while it stays in the call (`adopt`).
//!
//! Source: tracked calls (CO-37, CO-38).

use squall_sys::sync::atomic::{AtomicBool, Ordering};
use std::cell::Cell;
use std::ptr::{self, NonNull};

use crate::protocol::id::Id;
use crate::protocol::object::{Object, header};

/// A call that a swap may have to wait for (I1, I4).
pub(crate) struct Frame {
    object: NonNull<Object>,
    outer: *const Frame,
    again: Again,
    /// The call must be repeated: its method was told to return, because a swap waits for it. Relaxed: the
    /// thread that sets it works for the call, and the call reads it when that work is done.
    shall_repeat: AtomicBool,
}

/// Whether a call can be repeated from its beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// Cannot be repeated: the call consumes its arguments.
    Never,
    /// Can be repeated.
    May,
}

thread_local! {
    // Without destructors, so a thread can read them at any time.
    static FRAMES: Cell<*const Frame> = const { Cell::new(ptr::null()) };
    /// On a thread that moves state: the place where it notes that it would have waited for a swap. Null on
    /// other threads.
    pub(super) static TRANSFER: Cell<*const Cell<bool>> = const { Cell::new(ptr::null()) };
}

/// Keeps a frame in its thread's list until it is dropped.
#[must_use]
pub(crate) struct InFrame<'a>(&'a Frame);

impl Frame {
    /// Makes a frame. The object is valid while the frame is in the list.
    pub(crate) fn new(object: NonNull<Object>, again: Again) -> Frame {
        Frame { object, outer: ptr::null(), again, shall_repeat: AtomicBool::new(false) }
    }

    /// Whether the call must be repeated.
    pub(crate) fn must_repeat(&self) -> bool {
        self.shall_repeat.load(Ordering::Relaxed)
    }

    #[inline(never)]
    pub(crate) fn enter(&mut self) -> InFrame<'_> {
        squall_rcu::__serve_unless(is_busy);
        self.outer = FRAMES.get();
        FRAMES.set(self);
        InFrame(self)
    }
}

impl Drop for InFrame<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        FRAMES.set(self.0.outer);
    }
}

/// Returns the innermost call, from `first` outwards, that satisfies `f`.
fn find_call<'a>(first: *const Frame, f: impl Fn(&Object) -> bool) -> Option<&'a Frame> {
    let mut next = first;
    // SAFETY: frames in the list are on this thread's stack below us, or on the stack of a thread that stays
    // in their calls (`adopt`). They change only by an atomic store (I4). Their objects are valid (I1).
    unsafe {
        while let Some(frame) = next.as_ref() {
            if f(frame.object.as_ref()) {
                return Some(frame);
            }
            next = frame.outer;
        }
    }
    None
}

/// Whether the calling thread is in a call that satisfies `f`.
fn in_call(f: impl Fn(&Object) -> bool) -> bool {
    find_call(FRAMES.get(), f).is_some()
}

/// Withdraws the request to repeat the call. A method of this object was told to return, but slept again and
/// got its result; that result counts.
pub(crate) fn has_gone_on(object: NonNull<Object>) {
    if let Some(frame) = find_call(FRAMES.get(), |called| ptr::eq(called, object.as_ptr())) {
        frame.shall_repeat.store(false, Ordering::Relaxed);
    }
}

/// Decides whether a method of this object returns instead of sleeping, while a swap waits for it. The call
/// is then repeated.
///
/// Returns false if the call cannot be repeated. Also returns false if the call would pass the mediator (I2),
/// because it would reach this point again at once.
pub(crate) fn shall_begin_again(object: NonNull<Object>) -> bool {
    let Some(frame) = find_call(FRAMES.get(), |called| ptr::eq(called, object.as_ptr())) else {
        return false;
    };
    let repeat =
        frame.again != Again::Never && find_call(frame.outer, |object| object.gate.is_swapping()).is_none();
    if repeat {
        frame.shall_repeat.store(true, Ordering::Relaxed);
    }
    repeat
}

/// Whether the innermost call of the object with this id must return (see
/// [`crate::object::wrap::shall_leave`]).
pub(crate) fn shall_leave(id: Id) -> bool {
    let Some(frame) = find_call(FRAMES.get(), |called| called.id == id) else { return false };
    // SAFETY: valid while its frame is in the list (I1).
    let object = unsafe { frame.object.as_ref() };
    // SAFETY: valid as said above, and not closed, since a call is inside it.
    object.gate.is_dead() || unsafe { is_waited_for(frame.object) } && shall_begin_again(frame.object)
}

/// Withdraws the request to repeat the innermost call of the object with this id.
pub(crate) fn goes_on(id: Id) {
    if let Some(frame) = find_call(FRAMES.get(), |called| called.id == id) {
        has_gone_on(frame.object);
    }
}

/// Whether a swap waits for the calls that hold a representative of this object.
///
/// # Safety
/// The object is valid and not closed.
unsafe fn is_waited_for(object: NonNull<Object>) -> bool {
    // SAFETY: the caller's promise.
    let class = unsafe { object.as_ref() }.class;
    let mut waited = false;
    // SAFETY: the object is valid and not closed; each representative has that many headers.
    unsafe {
        (class.for_each_rep)(object, &mut |owner| {
            waited |= (0..class.interfaces).any(|index| header(owner, index).as_ref().is_waited_for());
        });
    }
    waited
}

/// The frames of a thread, for a second thread that works on behalf of the first. The first thread stays in
/// the calls of these frames meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Frames(*const Frame);

/// Returns the frames of the calling thread.
pub(crate) fn frames() -> Frames {
    Frames(FRAMES.get())
}

/// While it lives, the calling thread has the adopted frames instead of its own.
#[must_use]
pub(crate) struct Adopted(*const Frame);

/// Takes over the frames of a thread.
///
/// # Safety
/// Until the calling thread drops the result, the thread of these frames stays in all their calls. It may
/// read the frames meanwhile, and lend them to other threads (I4). Its earlier writes are visible here.
pub(crate) unsafe fn adopt(frames: Frames) -> Adopted {
    Adopted(FRAMES.replace(frames.0))
}

impl Drop for Adopted {
    fn drop(&mut self) {
        FRAMES.set(self.0);
    }
}

/// Whether the calling thread is in a call that some swap waits for (I2).
pub(super) fn passes() -> bool {
    in_call(|object| object.gate.is_swapping())
}

/// Whether the calling thread has a frame of the object with this id.
pub(crate) fn in_method(id: Id) -> bool {
    in_call(|object| object.id == id)
}

/// Whether the calling thread is in a method that a swap may have to wait for, or moves state. A shipped call
/// must not run there: it would have these calls, and could wait for their end.
fn is_busy() -> bool {
    !FRAMES.get().is_null() || in_transfer()
}

/// Whether the calling thread moves state.
pub(crate) fn in_transfer() -> bool {
    !TRANSFER.get().is_null()
}

/// Runs `f`, which moves state. Returns its result, and whether it made a call that would have waited for a
/// swap.
pub(crate) fn transferring<T>(f: impl FnOnce() -> T) -> (T, bool) {
    struct Restore(*const Cell<bool>);
    impl Drop for Restore {
        fn drop(&mut self) {
            TRANSFER.set(self.0);
        }
    }
    squall_rcu::__serve_unless(is_busy);
    let parked = Cell::new(false);
    let restore = Restore(TRANSFER.replace(&raw const parked));
    let result = f();
    drop(restore);
    (result, parked.get())
}
