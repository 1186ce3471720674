//! Something around each method of a representative, and calls that other threads make for their callers.
//!
//! Problem: what a policy does around a call (a lock, a queue, another thread) must be the same for every interface, and a
//! trait cannot be implemented for all traits.
//! Idea: the macro writes each interface a second time, for [`Around`], with methods that hand themselves to a [`Wrap`] as
//! closures. Which of them may go to another thread is decided by types: those whose arguments and result are `Send`.
//! [`hand_off`] lends such a closure to a thread while its caller waits.
//!
//! - I1. Who handed a [`Job`] off stays in `hand_off`, by a panic too, until the job has run or was dropped: so what the job
//!   points to, on that thread's stack, is there whenever it is used.
//! - I2. A job's closure and its result are touched by one thread at a time: by the one that has the job while there is one,
//!   and by the one that handed it off before and after. The latch orders the two.
//! - I3. While a job runs, its thread has the frames of the one that handed it off, as that one has: what a swap may ask of the
//!   one it may ask of the other (`frames/I1`, `frames/I2`), and a call that passes a Block there passes it here. Both may look
//!   at them at the same time, as long as `submit` runs (`frames/I4`).
//! - I4. Who moves state hands nothing off (`frames/I3`).
//!
//! Not promised: that a job which is forgotten lets its caller go; it waits for ever.
//! Cost: an object without a wrapper has none of this. A hand-off allocates 24 bytes, and wakes a thread twice.
//! Source: KTK §2.2 and §4 (interception, invocation blocks: KT-08); jobs on the caller's stack: rayon's `StackJob`.

use squall_sys::sync::thread;
use squall_sys::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, Location, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use crate::call::answer::{Answer, CATCHING};
use crate::call::blocking::Arguments;
use crate::call::error::{CallError, CallErrorKind};
use crate::call::frames;
use crate::call::handle::Handle;
use crate::call::interface::{Counted, Interface, InterfaceOf};
use crate::object::create::Place;
use crate::object::owned::Owned;
use crate::object::replacement::Replacement;
use crate::object::shared::{Describe, Locate, Opaque, Shared, Stated};
use crate::object::state::State;
use crate::protocol::create_error::CreateError;
use crate::protocol::formats::List;
use crate::protocol::id::Id;
use crate::protocol::object::Object;

/// What is done around each call of an object.
pub trait Wrap: Send + Sync + 'static {
    /// Makes the call by running `f`, at once or later, in this thread; or refuses it.
    ///
    /// Unless the method is [blocking](Invoked::is_blocking), this runs inside an operation, and must not wait.
    ///
    /// # Errors
    /// [`Refusal`]: the call did not happen.
    fn around<R>(&self, call: &'static Invoked, f: impl FnOnce() -> R) -> Result<R, Refusal>;

    /// The same, of a call that may be made by another thread, as by [`hand_off`].
    ///
    /// # Errors
    /// As [`around`](Wrap::around).
    #[inline]
    fn around_sent<R: Send>(
        &self,
        call: &'static Invoked,
        f: impl FnOnce() -> R + Send,
    ) -> Result<R, Refusal> {
        self.around(call, f)
    }

    /// The object ends, or a swap waits for its calls: those that wait in it shall ask [`shall_leave`].
    ///
    /// Called again and again while a swap waits, inside an operation: it must not wait long, nor panic. A panic ends here, and
    /// is counted as one of a drop ([`Stats::panicked_drops`](crate::observe::tables::Stats::panicked_drops)).
    fn wake(&self) {}
}

/// A method that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invoked {
    interface: &'static str,
    method: &'static str,
    index: usize,
    blocking: bool,
}

impl Invoked {
    /// Not public: written by the macro.
    #[doc(hidden)]
    pub const fn __new(
        interface: &'static str,
        method: &'static str,
        index: usize,
        blocking: bool,
    ) -> Invoked {
        Invoked { interface, method, index, blocking }
    }

    /// The interface that declares it.
    #[inline]
    pub fn interface(&self) -> &'static str {
        self.interface
    }

    /// Its name.
    #[inline]
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Its place in [`Interface::METHODS`] of that interface.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whether it is marked `#[blocking]`: then its call runs outside every operation of this call.
    #[inline]
    pub fn is_blocking(&self) -> bool {
        self.blocking
    }
}

/// A call that a [`Wrap`] did not make, and why: its caller gets a [`CallError`].
///
/// A method whose error is `From<CallError>` returns it, its checked form does always, and any other method panics with its
/// text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    id: Id,
    reason: CallErrorKind,
}

impl Refusal {
    /// A call of this object was refused, for this reason ([`CallErrorKind::Refused`]).
    pub fn new(id: Id, why: &'static str) -> Refusal {
        Refusal { id, reason: CallErrorKind::Refused(why) }
    }

    /// Why.
    pub fn reason(&self) -> CallErrorKind {
        self.reason
    }

    #[cold]
    fn error(self, class: &'static str, call: &Invoked) -> CallError {
        CallError::new(call.interface, Some(class), self.id, call.method, self.reason)
    }
}

/// A representative with something around each of its methods: it has the interfaces that `T` has.
///
/// It derefs to the representative itself, whose methods are then called without the wrapper.
#[derive(Debug)]
pub struct Around<W, T> {
    wrapper: W,
    inner: T,
}

// An interface may ask for these of all that stands behind it. Nothing here is pinned, and a wrapper that a panic left is the
// business of its author, as any representative is.
impl<W, T> Unpin for Around<W, T> {}
impl<W, T> UnwindSafe for Around<W, T> {}
impl<W, T> RefUnwindSafe for Around<W, T> {}

impl<W: Wrap, T> Around<W, T> {
    /// `inner`, with `wrapper` around each call.
    pub fn new(wrapper: W, inner: T) -> Around<W, T> {
        Around { wrapper, inner }
    }

    /// What is around the calls.
    pub fn wrapper(&self) -> &W {
        &self.wrapper
    }
}

impl<W, T> Deref for Around<W, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

/// Not public: the body of each method of an [`Around`].
#[doc(hidden)]
pub trait Through<W, T, R, F> {
    /// The call.
    #[track_caller]
    fn __squall_around(self, this: &Around<W, T>, call: &'static Invoked, f: F, gone: impl Answer<R>) -> R;
}

/// Not public: the arguments or the result stay with their thread.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Kept;

/// Not public: arguments and result may be sent.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Sent;

impl<W: Wrap, T, R, F: FnOnce(&T) -> R> Through<W, T, R, F> for Kept {
    #[inline(always)]
    #[track_caller]
    fn __squall_around(self, this: &Around<W, T>, call: &'static Invoked, f: F, gone: impl Answer<R>) -> R {
        match this.wrapper.around(call, || f(&this.inner)) {
            Ok(result) => result,
            Err(refusal) => gone.answer(refusal.error(type_name::<T>(), call)),
        }
    }
}

impl<W: Wrap, T: Sync, R: Send, F: FnOnce(&T) -> R + Send> Through<W, T, R, F> for Sent {
    #[inline(always)]
    #[track_caller]
    fn __squall_around(self, this: &Around<W, T>, call: &'static Invoked, f: F, gone: impl Answer<R>) -> R {
        let inner = &this.inner;
        match this.wrapper.around_sent(call, move || f(inner)) {
            Ok(result) => result,
            Err(refusal) => gone.answer(refusal.error(type_name::<T>(), call)),
        }
    }
}

/// Not public: see [`Arguments`].
#[doc(hidden)]
pub trait SentArguments: Sized {
    /// They may be sent.
    #[inline(always)]
    fn __squall_send(self) -> Sent {
        Sent
    }
}
impl<A: Send> SentArguments for Arguments<A> {}

/// Not public: see [`Arguments`].
#[doc(hidden)]
pub trait KeptArguments: Sized {
    /// They stay.
    #[inline(always)]
    fn __squall_send(self) -> Kept {
        Kept
    }
}
impl<A> KeptArguments for &Arguments<A> {}

/// Whether every method of an interface, and of those that it extends, is marked `#[blocking]`.
pub const fn all_blocking<I: ?Sized + Interface>() -> bool {
    <I as Counted>::ALL_BLOCKING
}

// --- objects ---

/// What a class of wrapped values says of their state: what the class of the values says.
#[derive(Debug)]
pub(crate) struct Wrapped<S>(PhantomData<fn(S)>);

/// Where the value in a wrapper lies, if `L` knows where that does.
struct Inside<W, L>(PhantomData<fn(W, L)>);

impl<W: 'static, T: 'static, L: Locate<Around<W, T>>> Locate<T> for Inside<W, L> {
    unsafe fn value(object: NonNull<Object>) -> NonNull<T> {
        // SAFETY: the caller's promise is that of `L`; a field of it is not null.
        unsafe { NonNull::new_unchecked(&raw mut (*L::value(object).as_ptr()).inner) }
    }
}

impl<W: Wrap, T: 'static, S: Describe<T>> Describe<Around<W, T>> for Wrapped<S> {
    const AUTHOR: TypeId = TypeId::of::<T>();
    const WAKES: bool = true;

    fn author() -> &'static str {
        S::author()
    }
    fn formats<L: Locate<Around<W, T>>>(list: &mut List) {
        S::formats::<Inside<W, L>>(list);
    }
    fn moved(value: &Around<W, T>) {
        S::moved(&value.inner);
    }
    fn wake(value: &Around<W, T>) {
        value.wrapper.wake();
    }
}

/// Makes an object with one representative for everybody, as [`shared_with`](crate::shared_with()), with a wrapper.
///
/// # Errors
/// [`CreateError`]; `make` was not called.
/// # Panics
/// If `make` does: there is no object then.
#[track_caller]
pub fn wrapped<I, W, T>(make: impl FnOnce(Handle<I>) -> Around<W, T>) -> Result<Owned<I>, CreateError>
where
    I: ?Sized + InterfaceOf<Around<W, T>>,
    W: Wrap,
    T: Send + Sync + 'static,
{
    Shared::<Around<W, T>, I, Wrapped<Opaque>>::make_with(Place::Here, make, Location::caller())
}

/// The same, of a value whose state can move, as [`swappable_with`](crate::swappable_with): that of the value inside.
///
/// # Errors
/// As [`wrapped`].
/// # Panics
/// As [`wrapped`].
#[track_caller]
pub fn wrapped_stateful<I, W, T>(
    make: impl FnOnce(Handle<I>) -> Around<W, T>,
) -> Result<Owned<I>, CreateError>
where
    I: ?Sized + InterfaceOf<Around<W, T>>,
    W: Wrap,
    T: State,
{
    Shared::<Around<W, T>, I, Wrapped<Stated>>::make_with(Place::Here, make, Location::caller())
}

impl<I: ?Sized + Interface> Replacement<I> {
    /// As [`Replacement::shared`], with a wrapper.
    #[track_caller]
    pub fn wrapped<W, T>(value: Around<W, T>) -> Replacement<I>
    where
        I: InterfaceOf<Around<W, T>>,
        W: Wrap,
        T: Send + Sync + 'static,
    {
        Replacement::of(Shared::<Around<W, T>, I, Wrapped<Opaque>>::to_come(value, Location::caller()))
    }

    /// As [`Replacement::swappable`], with a wrapper: the state is that of the value inside.
    #[track_caller]
    pub fn wrapped_stateful<W, T: State>(value: Around<W, T>) -> Replacement<I>
    where
        I: InterfaceOf<Around<W, T>>,
        W: Wrap,
    {
        Replacement::of(Shared::<Around<W, T>, I, Wrapped<Stated>>::to_come(value, Location::caller()))
    }
}

// --- waiting ---

/// For a blocking method that waits by means of its own: whether this thread's innermost call of the object `id` shall return
/// now. It shall if the object was destroyed, in the child of a fork, or where a swap waits for the call and it can be made
/// again: then what the method returns is thrown away, and the call is made once more on what serves then. Leave the object
/// as if the method had not begun.
///
/// In the `submit` of [`hand_off`], it is asked only while `submit` has the job: who has it then decides.
///
/// Who waits asks before it sleeps, and again when [`Wrap::wake`] or [`Root::wake`](crate::Root::wake) says so. What
/// [`RepContext::sleep_until`](crate::RepContext::sleep_until) does is this and an event count.
///
/// # Cost
/// In proportion to the object's representatives while a swap waits for it, else a few loads. Wait-free.
pub fn shall_leave(id: Id) -> bool {
    squall_sys::fork::forked() || frames::shall_leave(id)
}

/// The call that was told to leave goes on instead: it got what it waited for, and its result counts.
pub fn goes_on(id: Id) {
    frames::goes_on(id);
}

/// Whether the calling thread moves the state of an object that is being swapped: it runs an export or an import. Then it must
/// not wait for calls that others make, since these may be waiting for the swap: a policy refuses such a call.
///
/// # Cost
/// A load. Wait-free.
pub fn in_transfer() -> bool {
    frames::in_transfer()
}

// --- hand-off ---

/// A call on its way to another thread, whose caller waits until it has [run](Job::run), or was dropped.
pub struct Job {
    slot: NonNull<()>,
    /// Runs what is in the slot.
    ///
    /// # Safety
    /// Once, with that slot, while it is the caller's alone.
    run: unsafe fn(NonNull<()>),
    frames: frames::Frames,
    latch: Arc<Latch>,
    outcome: Outcome,
}

// SAFETY: what it points to is a closure that is `Send`, with a result that is `Send` (`hand_off`), which one thread at a
// time uses (I2), and frames, at which any may look (I3). It runs once, in one thread.
unsafe impl Send for Job {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Waiting,
    Ran,
    Dropped,
}

/// Where the caller waits.
struct Latch {
    outcome: Mutex<Outcome>,
    changed: Condvar,
}

impl Latch {
    fn lock(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn set(&self, outcome: Outcome) {
        *self.lock() = outcome;
        // One waits at most.
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut outcome = self.lock();
        while *outcome == Outcome::Waiting {
            outcome = self.changed.wait(outcome).unwrap_or_else(|poison| poison.into_inner());
        }
    }
}

impl Job {
    /// Makes the call. Its panic goes to the caller that waits, not on from here.
    pub fn run(mut self) {
        // SAFETY: the frames are those of a thread that stays in `hand_off`, and so in the calls below that, until this is
        // dropped (I1), which is later than `adopted`. Whoever gave us the job made what that thread did before seen here.
        let adopted = unsafe { frames::adopt(self.frames) };
        // SAFETY: 1. Once: it takes `self`, and `hand_off` makes one job for a slot. 2. The slot is there (I1), and ours (I2).
        unsafe { (self.run)(self.slot) };
        drop(adopted);
        self.outcome = Outcome::Ran;
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // From here on the slot and the frames may be gone.
        self.latch.set(self.outcome);
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

/// A call that [`hand_off`] did not have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRun;

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what was to run the call dropped it, or it was made by what moves an object's state")
    }
}

impl std::error::Error for NotRun {}

/// What a job works on: on the stack of the thread that waits for it.
struct Slot<F, R> {
    f: Option<F>,
    result: Option<thread::Result<R>>,
}

/// Gives `f`, which may borrow from this thread's stack, to `submit` as a [`Job`] for any thread, and waits until that has run
/// or was dropped.
///
/// The job's thread counts as being in the calls that this one is in: it passes where this one would, and a swap that waits for
/// this one's call can have it left there.
///
/// # Errors
/// [`NotRun`]: the job was dropped; or the calling thread [moves state](in_transfer), and `submit` was not called, since the
/// job's thread could have to wait for the swap that waits for it.
/// # Panics
/// As `f` does, with its payload; as `submit` does, when the job is over; inside an operation, where nothing may wait.
/// # Cost
/// An allocation, and as long as the job takes. Blocking.
pub fn hand_off<R: Send>(f: impl FnOnce() -> R + Send, submit: impl FnOnce(Job)) -> Result<R, NotRun> {
    /// Waits, by a panic too.
    struct UntilOver<'a>(&'a Latch);
    impl Drop for UntilOver<'_> {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    /// # Safety
    /// As `Job::run`.
    unsafe fn run<F: FnOnce() -> R, R>(slot: NonNull<()>) {
        // SAFETY: the caller's promise: a slot of these types, which nobody else uses now.
        let slot = unsafe { slot.cast::<Slot<F, R>>().as_mut() };
        if let Some(f) = slot.f.take() {
            slot.result = Some(catch_unwind(AssertUnwindSafe(f)));
        }
    }
    fn job<F: FnOnce() -> R + Send, R: Send>(slot: *mut Slot<F, R>, latch: Arc<Latch>) -> Option<Job> {
        let slot = NonNull::new(slot)?.cast();
        Some(Job { slot, run: run::<F, R>, frames: frames::frames(), latch, outcome: Outcome::Dropped })
    }
    assert!(
        !squall_rcu::in_operation(),
        "a call was handed to another thread inside an operation, where nothing may wait"
    );
    if in_transfer() {
        return Err(NotRun);
    }
    let mut slot = Slot { f: Some(f), result: None };
    let latch = Arc::new(Latch { outcome: Mutex::new(Outcome::Waiting), changed: Condvar::new() });
    let Some(job) = job(&raw mut slot, Arc::clone(&latch)) else { return Err(NotRun) };
    let over = UntilOver(&latch);
    submit(job);
    drop(over);
    match slot.result {
        Some(Ok(result)) => Ok(result),
        Some(Err(payload)) => resume_unwind(payload),
        None => Err(NotRun),
    }
}

// --- calls whose errors are wanted ---

/// What came of something that did not return.
pub enum Caught {
    /// A call of its did not happen, and had no way to say so but a panic.
    Call(CallError),
    /// It panicked, with this payload.
    Panicked(Box<dyn Any + Send>),
}

impl fmt::Debug for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caught::Call(error) => f.debug_tuple("Call").field(error).finish(),
            Caught::Panicked(_) => f.debug_tuple("Panicked").finish_non_exhaustive(),
        }
    }
}

/// Runs `f`. A call in it that errs by a panic, since its method has no way to return the error, gives the [`CallError`],
/// and no panic hook runs for it; any other panic its payload.
///
/// # Errors
/// [`Caught`].
pub fn catching<R>(f: impl FnOnce() -> R) -> Result<R, Caught> {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            CATCHING.set(self.0);
        }
    }
    let _restore = Restore(CATCHING.replace(true));
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| match payload.downcast::<CallError>() {
        Ok(error) => Caught::Call(*error),
        Err(payload) => Caught::Panicked(payload),
    })
}
