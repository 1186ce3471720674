//! A call on its way: a closure, and later its result, in the memory of a slot.
//!
//! - I1. A [`Cargo`] is empty, or has a call, or has a result. Each function below says which state it needs,
//!   and which one it leaves behind.
//!
//! - I2. A call that says that it runs again stays a call. It is dropped after its last run.
//!
//! Cost: a closure and a result of up to [`INLINE_BYTES`] lie in the slot. A larger one has a block of the
//! program's allocator, made by the sender.
//! Source: Unrau et al. 1995, §4.1 (HU-08): the target allocates a local copy of the message.

use squall_sys::panics::end_panic;
use std::any::Any;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Closures and results of at most this many bytes lie in the slot.
pub const INLINE_BYTES: usize = 96;

/// The payload of a panic.
pub(super) type Panic = Box<dyn Any + Send>;

/// The bytes of a room: those of a result, and a word that tells it from a panic.
const ROOM_BYTES: usize = INLINE_BYTES + 16;

#[repr(align(16))]
struct Room(#[expect(dead_code, reason = "used by its address")] MaybeUninit<[u8; ROOM_BYTES]>);

/// Memory for one call of any type.
pub(super) struct Cargo {
    /// The functions for the types of the call; absent if the cargo is empty.
    kind: Option<&'static Kind>,
    room: Room,
}

/// The functions for one type of closure and result. Each of them has a room as its argument.
struct Kind {
    /// Needs a call. Leaves its result and returns false, or leaves the call and returns true (I2).
    run: unsafe fn(*mut Room) -> bool,
    /// Needs a result, moves it to the second address and leaves nothing.
    take: unsafe fn(*mut Room, *mut ()),
    /// Needs a call and drops it.
    drop_call: unsafe fn(*mut Room),
    /// Needs a result and drops it.
    drop_result: unsafe fn(*mut Room),
}

union Content<F, R> {
    call: ManuallyDrop<F>,
    result: ManuallyDrop<Result<R, Panic>>,
}

/// The kind of closures `F` with results `R`.
struct Of<F, R>(std::marker::PhantomData<(F, R)>);

impl<R, F: FnOnce() -> R> Of<F, R> {
    const ONCE: &'static Kind = &Self::kind(Self::run);

    unsafe fn run(room: *mut Room) -> bool {
        // SAFETY: the room has a call (`Kind`), which is moved out once.
        let (content, call) = unsafe {
            let content = Self::content(room);
            (content, ManuallyDrop::take(&mut (*content).call))
        };
        let result = catch_unwind(AssertUnwindSafe(call));
        // SAFETY: the content is empty now, and its memory is still there.
        unsafe { (&raw mut (*content).result).write(ManuallyDrop::new(result)) };
        false
    }
}

impl<F: FnMut() -> bool> Of<F, ()> {
    const REPEATED: &'static Kind = &Self::kind(Self::run_repeated);

    unsafe fn run_repeated(room: *mut Room) -> bool {
        // SAFETY: the room has a call (`Kind`), and no other thread uses it.
        let content = unsafe { Self::content(room) };
        // SAFETY: as above.
        let again = catch_unwind(AssertUnwindSafe(|| unsafe { (*(&raw mut (*content).call).cast::<F>())() }));
        if let Ok(true) = again {
            return true;
        }
        // SAFETY: as above; the call is moved out once.
        let call = unsafe { ManuallyDrop::take(&mut (*content).call) };
        end_panic(|| drop(call));
        // SAFETY: the content is empty now, and its memory is still there.
        unsafe { (&raw mut (*content).result).write(ManuallyDrop::new(again.map(|_| ()))) };
        false
    }
}

impl<F, R> Of<F, R> {
    const fn kind(run: unsafe fn(*mut Room) -> bool) -> Kind {
        Kind { run, take: Self::take, drop_call: Self::drop_call, drop_result: Self::drop_result }
    }

    const IS_INLINE: bool =
        size_of::<Content<F, R>>() <= size_of::<Room>() && align_of::<Content<F, R>>() <= align_of::<Room>();

    /// Returns the address of the content.
    ///
    /// # Safety
    /// The room has a call or a result of this kind.
    unsafe fn content(room: *mut Room) -> *mut Content<F, R> {
        if Self::IS_INLINE {
            room.cast()
        } else {
            // SAFETY: the room of a larger content has its address (`put`).
            unsafe { room.cast::<*mut Content<F, R>>().read() }
        }
    }

    unsafe fn put(room: *mut Room, call: F) {
        let content = Content { call: ManuallyDrop::new(call) };
        // SAFETY: the caller's promise: the room is the caller's. A content that is inline fits.
        unsafe {
            if Self::IS_INLINE {
                room.cast::<Content<F, R>>().write(content);
            } else {
                room.cast::<*mut Content<F, R>>().write(Box::into_raw(Box::new(content)));
            }
        }
    }

    /// Frees the memory of a content that was moved out or dropped.
    unsafe fn free(content: *mut Content<F, R>) {
        if !Self::IS_INLINE {
            // SAFETY: from `Box::into_raw` in `put`. Dropping a union drops no field.
            drop(unsafe { Box::from_raw(content) });
        }
    }

    unsafe fn take(room: *mut Room, to: *mut ()) {
        // SAFETY: the room has a result (`Kind`). The caller promises that `to` has room for it.
        unsafe {
            let content = Self::content(room);
            to.cast::<Result<R, Panic>>().write(ManuallyDrop::take(&mut (*content).result));
            Self::free(content);
        }
    }

    /// Moves the call out of a room that has one.
    unsafe fn take_call(room: *mut Room) -> F {
        // SAFETY: the room has a call, which is moved out once.
        unsafe {
            let content = Self::content(room);
            let call = ManuallyDrop::take(&mut (*content).call);
            Self::free(content);
            call
        }
    }

    unsafe fn drop_call(room: *mut Room) {
        // SAFETY: the room has a call (`Kind`).
        let call = unsafe { Self::take_call(room) };
        end_panic(|| drop(call));
    }

    unsafe fn drop_result(room: *mut Room) {
        // SAFETY: the room has a result (`Kind`), which is moved out once.
        let result = unsafe {
            let content = Self::content(room);
            let result = ManuallyDrop::take(&mut (*content).result);
            Self::free(content);
            result
        };
        end_panic(|| drop(result));
    }
}

impl Cargo {
    pub(super) const EMPTY: Cargo = Cargo { kind: None, room: Room(MaybeUninit::uninit()) };

    /// Puts a call into an empty cargo.
    pub(super) fn put<R: Send + 'static, F: FnOnce() -> R + Send + 'static>(&mut self, call: F) {
        debug_assert!(self.kind.is_none(), "a call was put into a slot that is in use");
        // SAFETY: the room is empty, and ours.
        unsafe { Of::<F, R>::put(&raw mut self.room, call) };
        self.kind = Some(Of::<F, R>::ONCE);
    }

    /// Puts a call that [runs again](Cargo::run) for as long as it returns true into an empty cargo.
    pub(super) fn put_repeated<F: FnMut() -> bool + Send + 'static>(&mut self, call: F) {
        debug_assert!(self.kind.is_none(), "a call was put into a slot that is in use");
        // SAFETY: the room is empty, and ours.
        unsafe { Of::<F, ()>::put(&raw mut self.room, call) };
        self.kind = Some(Of::<F, ()>::REPEATED);
    }

    fn kind(&self) -> &'static Kind {
        self.kind.expect("a slot has no call")
    }

    /// Runs the call and keeps its result, or its panic. Returns true if it keeps the call instead, which
    /// runs again.
    ///
    /// # Safety
    /// The cargo has a call.
    pub(super) unsafe fn run(&mut self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { (self.kind().run)(&raw mut self.room) }
    }

    /// Takes the call back. Leaves the cargo empty.
    ///
    /// # Safety
    /// The cargo has a call of type `F`, with a result of type `R`.
    pub(super) unsafe fn take_call<R, F>(&mut self) -> F {
        self.kind = None;
        // SAFETY: the caller's promise.
        unsafe { Of::<F, R>::take_call(&raw mut self.room) }
    }

    /// Takes the result. Leaves the cargo empty.
    ///
    /// # Safety
    /// The cargo has a result, of type `R`.
    pub(super) unsafe fn take<R>(&mut self) -> Result<R, Panic> {
        let mut result = MaybeUninit::<Result<R, Panic>>::uninit();
        // SAFETY: the caller's promise; `result` has the type that the function writes.
        unsafe {
            (self.kind().take)(&raw mut self.room, result.as_mut_ptr().cast());
            self.kind = None;
            result.assume_init()
        }
    }

    /// Drops the call, without running it. Leaves the cargo empty.
    ///
    /// # Safety
    /// The cargo has a call.
    pub(super) unsafe fn drop_call(&mut self) {
        let kind = self.kind();
        self.kind = None;
        // SAFETY: the caller's promise.
        unsafe { (kind.drop_call)(&raw mut self.room) };
    }

    /// Drops the result. Leaves the cargo empty.
    ///
    /// # Safety
    /// The cargo has a result.
    pub(super) unsafe fn drop_result(&mut self) {
        let kind = self.kind();
        self.kind = None;
        // SAFETY: the caller's promise.
        unsafe { (kind.drop_result)(&raw mut self.room) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Cargo;
    use std::sync::Arc;

    fn run_and_take<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> R {
        let mut cargo = Cargo::EMPTY;
        cargo.put(call);
        // SAFETY: it has a call, and then its result, of type `R`.
        let (again, result) = unsafe { (cargo.run(), cargo.take::<R>()) };
        assert!(!again);
        result.unwrap()
    }

    fn taken_back<R: Send + 'static, F: FnOnce() -> R + Send + 'static>(cargo: &mut Cargo, call: F) -> F {
        cargo.put(call);
        // SAFETY: it has this call.
        unsafe { cargo.take_call::<R, F>() }
    }

    #[test]
    fn calls_of_every_size_run_and_give_their_result() {
        assert_eq!(run_and_take(|| 7), 7);
        let large = [3_u64; 40];
        assert_eq!(run_and_take(move || large.iter().sum::<u64>()), 120);
        assert_eq!(run_and_take(|| [5_u8; 500])[499], 5);
        #[repr(align(128))]
        struct Aligned(u8);
        assert_eq!(run_and_take(|| Aligned(9)).0, 9);
        run_and_take(|| ());
    }

    #[test]
    fn a_repeated_call_runs_until_it_returns_false_or_panics() {
        for panics in [false, true] {
            let (held, large) = (Arc::new(()), [7_u64; 40]);
            let (count, mut left) = (held.clone(), 3);
            let mut cargo = Cargo::EMPTY;
            cargo.put_repeated(move || {
                let _held = (&held, large);
                left -= 1;
                assert!(left > 0 || !panics, "of the test");
                left > 0
            });
            for again in [true, true, false] {
                assert_eq!(Arc::strong_count(&count), 2);
                // SAFETY: it has a call.
                assert_eq!(unsafe { cargo.run() }, again);
            }
            assert_eq!(Arc::strong_count(&count), 1);
            // SAFETY: it has a result.
            assert_eq!(unsafe { cargo.take::<()>() }.is_err(), panics);
        }
    }

    #[test]
    fn calls_and_results_are_dropped_once() {
        let count = Arc::new(());
        for size in [0, 1] {
            let held = (count.clone(), [[0_u64; 1], [0; 1]][size]);
            let mut cargo = Cargo::EMPTY;
            cargo.put(move || held);
            // SAFETY: it has a call.
            unsafe { cargo.drop_call() };
            assert_eq!(Arc::strong_count(&count), 1);
            let back = count.clone();
            let call = move || back;
            let taken = taken_back(&mut cargo, call);
            assert_eq!((Arc::strong_count(&count), Arc::strong_count(&taken())), (2, 2));
            let (held, large) = (count.clone(), [0_u64; 40]);
            cargo.put(move || (held, large));
            // SAFETY: it has a call, and then its result.
            unsafe {
                cargo.run();
                cargo.drop_result();
            }
            assert_eq!(Arc::strong_count(&count), 1);
            cargo.put(|| panic!("of the test"));
            // SAFETY: it has a call, and then its result.
            let panic = unsafe {
                cargo.run();
                cargo.take::<()>()
            };
            assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"of the test"));
        }
    }
}
