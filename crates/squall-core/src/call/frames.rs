//! The calls a thread is in, as far as a swap may have to wait for them.
//!
//! - I1. A [`Frame`] is in its thread's list while the thread is in a call that a swap may have to wait for: one that holds
//!   its object, or that a mediator has counted. So the object is valid while the frame is in the list.
//! - I2. A thread that some swap waits for has a frame of an object before which a swap's mediator stands; so it parks in no
//!   `Block`, and every `Block` ends but for locks of the users' own, for which it has a bound.
//! - I3. Who moves state never parks: it is told so by an error, and the transfer fails. Nor does it wait for a thread that
//!   makes a call for it, which could park.
//! - I4. Of a frame that is in a list nothing changes but `shall`, which is atomic. So several threads may look at it: that
//!   whose call it is, and those that work for it while it stays in the call (`adopt`).
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
    /// It is to be made again: its method was told to return, because a swap waits for it. Relaxed: whoever sets it works for
    /// the call, which reads it when that is done.
    shall: AtomicBool,
}

/// Whether a call can be made again, from its beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// No: its arguments are used up.
    Never,
    /// Yes.
    May,
}

thread_local! {
    // No destructors, so they can be read at any time.
    static FRAMES: Cell<*const Frame> = const { Cell::new(ptr::null()) };
    /// Where a thread that moves state notes that it should have parked; null for others.
    pub(super) static TRANSFER: Cell<*const Cell<bool>> = const { Cell::new(ptr::null()) };
}

/// A frame that is in its thread's list until this is dropped.
#[must_use]
pub(crate) struct InFrame<'a>(&'a Frame);

impl Frame {
    /// The object is valid while the frame is in the list.
    pub(crate) fn new(object: NonNull<Object>, again: Again) -> Frame {
        Frame { object, outer: ptr::null(), again, shall: AtomicBool::new(false) }
    }

    /// Whether its call is to be made again.
    pub(crate) fn is_to_be_again(&self) -> bool {
        self.shall.load(Ordering::Relaxed)
    }

    #[inline(never)]
    pub(crate) fn enter(&mut self) -> InFrame<'_> {
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

/// The innermost call, from `first` on, of which `f` is true.
fn find_call<'a>(first: *const Frame, f: impl Fn(&Object) -> bool) -> Option<&'a Frame> {
    let mut next = first;
    // SAFETY: those in the list are on the stack below us, or of a thread that stays there (`adopt`), and nobody writes to
    // them but by an atomic (I4). Their objects are valid (I1).
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

/// Whether the calling thread is in a call of which `f` is true.
fn in_call(f: impl Fn(&Object) -> bool) -> bool {
    find_call(FRAMES.get(), f).is_some()
}

/// A method of this object that was told to return has slept again instead, and got what it waited for: its result counts.
pub(crate) fn has_gone_on(object: NonNull<Object>) {
    if let Some(frame) = find_call(FRAMES.get(), |called| ptr::eq(called, object.as_ptr())) {
        frame.shall.store(false, Ordering::Relaxed);
    }
}

/// A method of this object is about to sleep, and a swap waits for it. Returns whether it shall return instead, so that its
/// call is made again: not if it cannot be, nor if the call would pass (I2) and be here again at once.
pub(crate) fn shall_begin_again(object: NonNull<Object>) -> bool {
    let Some(frame) = find_call(FRAMES.get(), |called| ptr::eq(called, object.as_ptr())) else {
        return false;
    };
    let shall =
        frame.again != Again::Never && find_call(frame.outer, |object| object.gate.is_swapping()).is_none();
    if shall {
        frame.shall.store(true, Ordering::Relaxed);
    }
    shall
}

/// Whether the innermost call of the object with this id shall return (see [`crate::object::wrap::shall_leave`]).
pub(crate) fn shall_leave(id: Id) -> bool {
    let Some(frame) = find_call(FRAMES.get(), |called| called.id == id) else { return false };
    // SAFETY: valid while its frame is in the list (I1).
    let object = unsafe { frame.object.as_ref() };
    // SAFETY: as above, and not closed: a call is in it.
    object.gate.is_dead() || unsafe { is_waited_for(frame.object) } && shall_begin_again(frame.object)
}

/// The innermost call of the object with this id has gone on.
pub(crate) fn goes_on(id: Id) {
    if let Some(frame) = find_call(FRAMES.get(), |called| called.id == id) {
        has_gone_on(frame.object);
    }
}

/// Whether a swap waits for the calls that hold a representative of this object.
///
/// # Safety
/// It is valid, and not closed.
unsafe fn is_waited_for(object: NonNull<Object>) -> bool {
    // SAFETY: the caller's promise.
    let class = unsafe { object.as_ref() }.class;
    let mut waited = false;
    // SAFETY: as above; each representative has so many headers.
    unsafe {
        (class.for_each_rep)(object, &mut |owner| {
            waited |= (0..class.interfaces).any(|index| header(owner, index).as_ref().is_waited_for());
        });
    }
    waited
}

/// The frames of a thread, for another one that works for it while it stays in their calls.
#[derive(Clone, Copy)]
pub(crate) struct Frames(*const Frame);

/// Those of the calling thread.
pub(crate) fn frames() -> Frames {
    Frames(FRAMES.get())
}

/// The calling thread has these frames, and none of its own, until this is dropped.
#[must_use]
pub(crate) struct Adopted(*const Frame);

/// Takes over the frames of a thread.
///
/// # Safety
/// Until the result is dropped, by the thread that called this, the thread whose frames these are stays in all those calls. It
/// may look at the frames meanwhile, and lend them to others (I4). What it did before is seen here.
pub(crate) unsafe fn adopt(frames: Frames) -> Adopted {
    Adopted(FRAMES.replace(frames.0))
}

impl Drop for Adopted {
    fn drop(&mut self) {
        FRAMES.set(self.0);
    }
}

/// Whether the calling thread is in a call for which some swap waits (I2).
pub(super) fn passes() -> bool {
    in_call(|object| object.gate.is_swapping())
}

/// Whether the calling thread is in a call of the object with this id, as far as it has a frame of it.
pub(crate) fn in_method(id: Id) -> bool {
    in_call(|object| object.id == id)
}

/// Whether the calling thread moves state.
pub(crate) fn in_transfer() -> bool {
    !TRANSFER.get().is_null()
}

/// Runs `f`, which moves state. Returns its result, and whether it called something where others would have parked.
pub(crate) fn transferring<T>(f: impl FnOnce() -> T) -> (T, bool) {
    struct Restore(*const Cell<bool>);
    impl Drop for Restore {
        fn drop(&mut self) {
            TRANSFER.set(self.0);
        }
    }
    let parked = Cell::new(false);
    let restore = Restore(TRANSFER.replace(&raw const parked));
    let result = f();
    drop(restore);
    (result, parked.get())
}
