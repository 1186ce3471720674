//! Wrappers around each method of a representative, and calls that other threads make for their callers.
//!
//! Problem: a policy acts around each call (with a lock, a queue, another thread) in the same way for every
//! interface. Rust cannot implement one trait for all traits.
//! Idea: the macro implements each interface a second time, for [`Around`]. Those methods pass themselves as
//! closures to a [`Wrap`]. Types decide which closures may go to another thread: those with arguments and a
//! result that are `Send`. [`hand_off`] lends such a closure to a thread while its caller waits.
//!
//! - I1. The thread that handed a [`Job`] off stays in `hand_off` until the job has run or was dropped, even
//!   if it panics. So the data on its stack that the job points to exists whenever the job uses it.
//! - I2. One thread at a time uses a job's closure and its result. While another thread has the job, that
//!   thread uses them; before and afterwards, the thread that handed the job off. The latch orders the two.
//! - I3. While a job runs, its thread has the frames of the thread that handed it off. A swap can ask either
//!   thread to return (`frames/I1`, `frames/I2`). A call that may pass a mediator in phase Block on one
//!   thread may pass it on the other. Both may read the frames at the same time, as long as `submit` runs
//!   (`frames/I4`).
//! - I4. A thread that moves state hands no call off (`frames/I3`).
//!
//! Not promised: a way out for the caller of a job that is leaked with `mem::forget`; it waits forever.
//! Cost: objects without a wrapper pay for none of this. A hand-off allocates 24 bytes, and wakes a thread
//! twice.
//! Source: KTK §2.2 and §4 (interception, invocation blocks: KT-08); jobs on the caller's stack: rayon's
//! `StackJob`.

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

/// Code that runs around each call of an object.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall_core::wrap::{Around, Invoked, Refusal, Wrap, wrapped};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// /// Counts the calls.
/// struct Calls(AtomicU64);
/// impl Wrap for Calls {
///     fn around<R>(&self, _: &'static Invoked, f: impl FnOnce() -> R) -> Result<R, Refusal> {
///         self.0.fetch_add(1, Relaxed);
///         Ok(f())
///     }
/// }
///
/// let counter = wrapped::<dyn Counter, _, _>(|_| Around::new(Calls(0.into()), Central::default()))?;
/// counter.add(2);
/// assert_eq!(counter.get(), 2);
/// # Ok::<(), squall::CreateError>(())
/// ```
pub trait Wrap: Send + Sync + 'static {
    /// Makes the call by running `f` on this thread, at once or later; or rejects the call.
    ///
    /// Unless the method is [blocking](Invoked::is_blocking), this runs inside an operation and must not
    /// wait.
    ///
    /// # Errors
    /// [`Refusal`]: the call did not happen.
    fn around<R>(&self, call: &'static Invoked, f: impl FnOnce() -> R) -> Result<R, Refusal>;

    /// Like [`around`](Wrap::around), for a call that another thread may make, for example by [`hand_off`].
    ///
    /// # Errors
    /// [`Refusal`]: the call did not happen.
    #[inline]
    fn around_sent<R: Send>(
        &self,
        call: &'static Invoked,
        f: impl FnOnce() -> R + Send,
    ) -> Result<R, Refusal> {
        self.around(call, f)
    }

    /// Wakes calls that wait in this wrapper, because the object was destroyed or a swap waits for its calls.
    /// Those calls must then ask [`shall_leave`].
    ///
    /// Called repeatedly while a swap waits, inside an operation. It must neither block nor panic. A panic
    /// ends here and is counted with the panics of drops
    /// ([`TableStats::panicked_drops`](crate::observe::tables::TableStats::panicked_drops)).
    fn wake(&self) {}
}

/// Describes the method that is called.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall_core::wrap::{Around, Invoked, Refusal, Wrap};
///
/// struct Print;
/// impl Wrap for Print {
///     fn around<R>(&self, call: &'static Invoked, f: impl FnOnce() -> R) -> Result<R, Refusal> {
///         println!("{}.{} (method {})", call.interface(), call.method(), call.index());
///         Ok(f())
///     }
/// }
/// Around::new(Print, Central::default()).add(1);
/// ```
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

    /// Returns the name of the interface that declares the method.
    #[inline]
    pub fn interface(&self) -> &'static str {
        self.interface
    }

    /// Returns the method's name.
    #[inline]
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Returns the method's index in [`Interface::METHODS`] of that interface.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whether the method is marked `#[blocking]`. Its call then runs outside every operation of this call.
    #[inline]
    pub fn is_blocking(&self) -> bool {
        self.blocking
    }
}

/// A call that a [`Wrap`] rejected, with the reason. Its caller gets a [`CallError`].
///
/// A method with an error type that is `From<CallError>` returns it. The checked form of a method always
/// returns it. Any other method panics with its text.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{CallErrorKind, Handle, Id};
/// use squall_core::wrap::{Around, Invoked, Refusal, Wrap, wrapped};
///
/// struct Closed(Id);
/// impl Wrap for Closed {
///     fn around<R>(&self, _: &'static Invoked, _: impl FnOnce() -> R) -> Result<R, Refusal> {
///         Err(Refusal::new(self.0, "closed"))
///     }
/// }
/// let counter = wrapped::<dyn Counter, _, _>(|handle| Around::new(Closed(Handle::id(handle)), Central::default()))?;
/// assert_eq!(counter.try_get().unwrap_err().reason(), CallErrorKind::Refused("closed"));
/// # Ok::<(), squall::CreateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    id: Id,
    reason: CallErrorKind,
}

impl Refusal {
    /// Rejects a call of this object, for this reason ([`CallErrorKind::Refused`]).
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::{Handle, Id};
    /// use squall_core::wrap::{Around, Invoked, Refusal, Wrap, wrapped};
    ///
    /// struct ReadOnly(Id);
    /// impl Wrap for ReadOnly {
    ///     fn around<R>(&self, call: &'static Invoked, f: impl FnOnce() -> R) -> Result<R, Refusal> {
    ///         if call.method() == "get" { Ok(f()) } else { Err(Refusal::new(self.0, "the counter is read-only")) }
    ///     }
    /// }
    /// let counter = wrapped::<dyn Counter, _, _>(|handle| Around::new(ReadOnly(Handle::id(handle)), Central::default()))?;
    /// assert!(counter.try_add(1).is_err());
    /// assert_eq!(counter.get(), 0);
    /// # Ok::<(), squall::CreateError>(())
    /// ```
    pub fn new(id: Id, why: &'static str) -> Refusal {
        Refusal { id, reason: CallErrorKind::Refused(why) }
    }

    /// Returns the reason.
    pub fn reason(&self) -> CallErrorKind {
        self.reason
    }

    #[cold]
    fn error(self, class: &'static str, call: &Invoked) -> CallError {
        CallError::new(call.interface, Some(class), self.id, call.method, self.reason)
    }
}

/// A representative with a wrapper around each of its methods. It has the interfaces of `T`.
///
/// It derefs to the representative itself. Methods called on the deref target bypass the wrapper.
#[derive(Debug)]
pub struct Around<W, T> {
    wrapper: W,
    inner: T,
}

// An interface may require these traits of every representative. No data here is pinned. The author of a
// wrapper decides about its state after a panic, like the author of any representative.
impl<W, T> Unpin for Around<W, T> {}
impl<W, T> UnwindSafe for Around<W, T> {}
impl<W, T> RefUnwindSafe for Around<W, T> {}

impl<W: Wrap, T> Around<W, T> {
    /// Puts `wrapper` around each call of `inner`.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall_core::wrap::{Around, Invoked, Refusal, Wrap};
    ///
    /// struct Plain;
    /// impl Wrap for Plain {
    ///     fn around<R>(&self, _: &'static Invoked, f: impl FnOnce() -> R) -> Result<R, Refusal> {
    ///         Ok(f())
    ///     }
    /// }
    /// let around = Around::new(Plain, Central::default());
    /// around.add(1);
    /// assert_eq!(around.get(), 1);
    /// ```
    pub fn new(wrapper: W, inner: T) -> Around<W, T> {
        Around { wrapper, inner }
    }

    /// Returns the wrapper.
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
    /// Makes the call.
    #[track_caller]
    fn __squall_around(self, this: &Around<W, T>, call: &'static Invoked, f: F, gone: impl Answer<R>) -> R;
}

/// Not public: the arguments or the result stay with their thread.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Kept;

/// Not public: arguments and result may be sent to another thread.
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

/// Not public: implemented if all arguments are `Send`.
#[doc(hidden)]
pub trait SentArguments: Sized {
    /// Selects [`Sent`].
    #[inline(always)]
    fn __squall_send(self) -> Sent {
        Sent
    }
}
impl<A: Send> SentArguments for Arguments<A> {}

/// Not public: implemented for every `&Arguments`, and therefore found only where [`SentArguments`] is not
/// implemented.
#[doc(hidden)]
pub trait KeptArguments: Sized {
    /// Selects [`Kept`].
    #[inline(always)]
    fn __squall_send(self) -> Kept {
        Kept
    }
}
impl<A> KeptArguments for &Arguments<A> {}

/// Whether every method of an interface, and of those that it extends, is marked `#[blocking]`.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// assert!(!squall_core::wrap::all_blocking::<dyn Counter>());
/// ```
pub const fn all_blocking<I: ?Sized + Interface>() -> bool {
    <I as Counted>::ALL_BLOCKING
}

// --- objects ---

/// The state of wrapped values, as described by `S` for the values inside.
#[derive(Debug)]
pub(crate) struct Wrapped<S>(PhantomData<fn(S)>);

/// Finds the value inside a wrapper, where `L` finds the wrapper.
struct Inside<W, L>(PhantomData<fn(W, L)>);

impl<W: 'static, T: 'static, L: Locate<Around<W, T>>> Locate<T> for Inside<W, L> {
    unsafe fn value(object: NonNull<Object>) -> NonNull<T> {
        // SAFETY: the caller's promise is that of `L`; a field of a valid object is not null.
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

/// Makes an object with one representative and a wrapper around its methods, like
/// [`shared_with`](crate::shared_with()).
///
/// # Errors
/// [`CreateError`]; `make` was not called.
/// # Panics
/// If `make` panics; then no object is made.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall_core::wrap::{Around, Invoked, Refusal, Wrap, wrapped};
///
/// struct OneAtATime(std::sync::Mutex<()>);
/// impl Wrap for OneAtATime {
///     fn around<R>(&self, _: &'static Invoked, f: impl FnOnce() -> R) -> Result<R, Refusal> {
///         let _held = self.0.lock().unwrap();
///         Ok(f())
///     }
/// }
/// let counter = wrapped::<dyn Counter, _, _>(|_| Around::new(OneAtATime(Default::default()), Central::default()))?;
/// counter.add(1);
/// # Ok::<(), squall::CreateError>(())
/// ```
#[track_caller]
pub fn wrapped<I, W, T>(make: impl FnOnce(Handle<I>) -> Around<W, T>) -> Result<Owned<I>, CreateError>
where
    I: ?Sized + InterfaceOf<Around<W, T>>,
    W: Wrap,
    T: Send + Sync + 'static,
{
    Shared::<Around<W, T>, I, Wrapped<Opaque>>::make_with(Place::Here, make, Location::caller())
}

/// Like [`wrapped`], for a value whose state can move as with [`swappable_with`](crate::swappable_with). The
/// state is that of the value inside the wrapper.
///
/// # Errors
/// [`CreateError`]; `make` was not called.
/// # Panics
/// If `make` panics; then no object is made.
#[track_caller]
pub fn wrapped_swappable<I, W, T>(
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
    /// Makes a replacement like [`Replacement::shared`], with a wrapper.
    #[track_caller]
    pub fn wrapped<W, T>(value: Around<W, T>) -> Replacement<I>
    where
        I: InterfaceOf<Around<W, T>>,
        W: Wrap,
        T: Send + Sync + 'static,
    {
        Replacement::of(Shared::<Around<W, T>, I, Wrapped<Opaque>>::to_come(value, Location::caller()))
    }

    /// Makes a replacement like [`Replacement::swappable`], with a wrapper. The state is that of the value
    /// inside the wrapper.
    #[track_caller]
    pub fn wrapped_swappable<W, T: State>(value: Around<W, T>) -> Replacement<I>
    where
        I: InterfaceOf<Around<W, T>>,
        W: Wrap,
    {
        Replacement::of(Shared::<Around<W, T>, I, Wrapped<Stated>>::to_come(value, Location::caller()))
    }
}

// --- waiting ---

/// Whether this thread's innermost call of the object `id` must return now. For blocking methods that wait by
/// other means than [`RepContext::sleep_until`](crate::RepContext::sleep_until).
///
/// The call must return if the object was destroyed, in the child of a fork, and if a swap waits for the call
/// and can repeat it. In the last case the method's result is discarded, and the call runs again on the
/// implementation that serves after the swap. Leave the object as if the method had not begun.
///
/// A method asks before it sleeps, and again when [`Wrap::wake`] or [`Root::wake`](crate::Root::wake) runs.
/// (`sleep_until` is this function and an event count.) In the `submit` of [`hand_off`], ask only while
/// `submit` has the job: the thread with the job decides afterwards.
///
/// # Cost
/// A few loads. While a swap waits for the object, proportional to the object's representatives. Wait-free.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall_core::wrap::shall_leave;
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// assert!(!shall_leave(squall::Handle::id(counter.handle()))); // this thread is in no call of it
/// ```
pub fn shall_leave(id: Id) -> bool {
    squall_sys::fork::forked() || frames::shall_leave(id)
}

/// Withdraws the effect of [`shall_leave`]: the call got its result after all, and the result counts.
pub fn goes_on(id: Id) {
    frames::goes_on(id);
}

/// Whether the calling thread runs an export or an import of a swap. It must then not wait for calls of other
/// threads, since those may wait for the swap. A policy rejects calls of such a thread that would wait.
///
/// # Cost
/// A load. Wait-free.
///
/// ```
/// assert!(!squall_core::wrap::in_transfer());
/// ```
pub fn in_transfer() -> bool {
    frames::in_transfer()
}

// --- hand-off ---

/// A call on its way to another thread. Its caller waits until the job has [run](Job::run) or was dropped.
pub struct Job {
    slot: NonNull<()>,
    /// Runs the closure in the slot.
    ///
    /// # Safety
    /// Called once, with that slot, while the slot belongs to the caller alone.
    run: unsafe fn(NonNull<()>),
    frames: frames::Frames,
    latch: Arc<Latch>,
    outcome: Outcome,
}

// SAFETY: the job points to a `Send` closure with a `Send` result (`hand_off`), which one thread at a time
// uses (I2). It also points to frames, which any of these threads may read (I3). It runs once, on one thread.
unsafe impl Send for Job {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Waiting,
    Ran,
    Dropped,
}

/// The place where the caller waits.
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
        // At most one thread waits.
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
    /// Makes the call. A panic of the method goes to the waiting caller, not to this thread.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall_core::wrap::hand_off;
    /// use std::sync::mpsc;
    ///
    /// let (jobs, work) = mpsc::channel::<squall_core::wrap::Job>();
    /// let worker = std::thread::spawn(move || work.into_iter().for_each(|job| job.run()));
    /// let text = String::from("borrowed");
    /// let length = hand_off(|| text.len(), |job| jobs.send(job).unwrap());
    /// assert_eq!(length, Ok(8));
    /// drop(jobs);
    /// worker.join().unwrap();
    /// ```
    pub fn run(mut self) {
        // SAFETY: the frames belong to a thread that stays in `hand_off`, and so in the calls below it, until
        // this job is dropped (I1). That is later than the drop of `adopted`. The hand-over of the job made
        // that thread's earlier writes visible here.
        let adopted = unsafe { frames::adopt(self.frames) };
        // SAFETY: 1. Once: this method takes `self`, and `hand_off` makes one job for a slot. 2. The slot
        // exists (I1) and is ours (I2).
        unsafe { (self.run)(self.slot) };
        drop(adopted);
        self.outcome = Outcome::Ran;
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // After this the slot and the frames may be gone.
        self.latch.set(self.outcome);
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

/// The error of a call that [`hand_off`] could not have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRun;

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the job was dropped before it ran, or this thread moves the state of an object; make the call again",
        )
    }
}

impl std::error::Error for NotRun {}

/// The closure and the result of a job, on the stack of the thread that waits for it.
struct Slot<F, R> {
    f: Option<F>,
    result: Option<thread::Result<R>>,
}

/// Passes `f` to `submit` as a [`Job`] for any thread, and waits until the job has run or was dropped. `f`
/// may borrow from this thread's stack.
///
/// The job's thread counts as being in the calls of this thread. A mediator lets it pass wherever it would
/// let this thread pass. A swap that waits for this thread's call can make the job's method return early.
///
/// # Errors
/// [`NotRun`] if the job was dropped. Also if the calling thread [moves state](in_transfer): then `submit`
/// was not called, because the job's thread might have to wait for the swap that waits for it.
/// # Panics
/// With the payload of `f` if `f` panics. If `submit` panics, when the job is over. Inside an operation,
/// where waiting is not allowed.
/// # Cost
/// An allocation, and the duration of the job. Blocking.
///
/// ```
/// use squall_core::wrap::hand_off;
///
/// let text = String::from("borrowed");
/// let length = hand_off(|| text.len(), |job| {
///     std::thread::spawn(|| job.run());
/// });
/// assert_eq!(length, Ok(8));
/// assert!(hand_off(|| (), drop).is_err()); // the job was dropped
/// ```
pub fn hand_off<R: Send>(f: impl FnOnce() -> R + Send, submit: impl FnOnce(Job)) -> Result<R, NotRun> {
    /// Waits for the job, even while unwinding.
    struct UntilOver<'a>(&'a Latch);
    impl Drop for UntilOver<'_> {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    /// Runs the closure in the slot.
    ///
    /// # Safety
    /// The conditions of `Job::run` hold.
    unsafe fn run<F: FnOnce() -> R, R>(slot: NonNull<()>) {
        // SAFETY: the caller's promise: a slot of these types, which no other code uses now.
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
        "a call cannot be handed to another thread inside an operation, where waiting is not allowed; mark the method #[blocking]"
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

// --- catching errors ---

/// The outcome of a closure that panicked inside [`catching`].
pub enum Caught {
    /// A call did not happen, and its method could report that only by a panic.
    Call(CallError),
    /// The closure panicked, with this payload.
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

/// Runs `f` and catches panics. If a call in `f` fails, and its method can report that only by a panic, the
/// result is the [`CallError`], and no panic hook runs. For any other panic the result is its payload.
///
/// # Errors
/// [`Caught`].
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall_core::wrap::{Caught, catching};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let handle = counter.handle();
/// drop(counter);
/// match catching(|| handle.get()) {
///     Err(Caught::Call(error)) => assert_eq!(error.method(), "get"),
///     other => panic!("{other:?}"),
/// }
/// ```
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
