//! Operations: spans in which the memory that a thread reads cannot be reclaimed.
//!
//! - I1. A [`Guard`] exists only within the closure of [`pin`], on the thread that called it, while the depth
//!   of that thread's record is not zero.
//!
//! Not promised: service to a signal handler that runs before its thread has registered, or that interrupts a
//! cold path of this crate. Such a handler is refused. A handler on a registered thread may open operations
//! at any other instruction.
//!
//! Cost: entry and exit are two stores and three loads, all to one cache line of the thread's own.

use std::marker::PhantomData;
use std::mem;

use crate::raw::record::{Record, Token, attention};
use crate::registration::{give_back, register_current};
use crate::thread::{
    DOMAIN, PinError, begin_quiet_unregistered, current, end_quiet_unregistered, is_unregistered, own_record,
};

/// Proof that the calling thread is inside an operation: objects reachable when it began are not reclaimed
/// before it ends.
///
/// [`pin`] passes the guard to its closure. The guard is neither `Send` nor `Sync`, and cannot leave the
/// closure.
///
/// It cannot move to another thread:
/// ```compile_fail
/// squall::rcu::pin(|o| std::thread::scope(|s| { s.spawn(|| { let _kept = o; }); }));
/// ```
/// It cannot be returned from the closure:
/// ```compile_fail
/// let kept = squall::rcu::pin(|o| o);
/// ```
/// It cannot be held across an `.await`, even in a future that stays on its thread:
/// ```compile_fail
/// let cell = squall::rcu::Rcu::new(Box::new(1));
/// let future = squall::rcu::pin(|o| async { std::future::ready(()).await; *cell.load(o) });
/// ```
#[derive(Debug)]
pub struct Guard {
    _this_thread: PhantomData<*mut ()>,
}

/// Runs `f` as an operation.
///
/// References that `f` obtains through [`Rcu::load`](crate::Rcu::load) stay valid until `f` returns. So does
/// any other object if its paths are cut before its memory is retired. Operations nest; only the outermost
/// one counts. Keep them short: memory retired by any thread while this operation is open stays allocated
/// until it ends. So `f` must not sleep or wait. In builds with debug assertions an operation that did is
/// reported to the handler of [`on_stall`](crate::on_stall), once per place in the code.
///
/// # Panics
/// Panics if the thread's first operation is refused with a [`PinError`]; later ones cannot fail. Use
/// [`try_pin`] to get the error. A panic in `f` ends the operation and propagates.
/// # Cost
/// About a nanosecond. Only the thread's own cache line is written, except while a grace period waits for
/// this very thread. The first operation of a thread registers it, which takes a lock for a few instructions.
/// Wait-free after the first. A thread that stalls inside delays all reclamation.
/// # Source
/// Appavoo 2005, §5.4.3 (requests); Desnoyers et al. 2012 (read sections without fences).
/// # Example
/// ```
/// let config = squall::rcu::Rcu::new(Box::new(String::from("v1")));
/// let length = squall::rcu::pin(|o| config.load(o).len());
/// assert_eq!(length, 2);
/// ```
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn pin<R>(f: impl FnOnce(&Guard) -> R) -> R {
    match Entered::<true>::new(0) {
        Ok(entered) => f(&entered.guard),
        Err(error) => refuse(error),
    }
}

/// Not public: runs `f` as an operation like [`pin`], at whose end no shipped call runs. For operations that
/// Squall opens itself, perhaps with a lock of its own.
///
/// # Panics
/// As of [`pin`].
#[doc(hidden)]
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn __pin<R>(f: impl FnOnce(&Guard) -> R) -> R {
    match Entered::<false>::new(0) {
        Ok(entered) => f(&entered.guard),
        Err(error) => refuse(error),
    }
}

/// Runs `f` as an operation like [`pin`], but returns an error instead of panicking.
///
/// # Errors
/// [`PinError`] if the operation was refused; `f` was not called.
/// # Example
/// ```
/// let config = squall::rcu::Rcu::new(Box::new(80_u16));
/// let port = squall::rcu::try_pin(|o| *config.load(o))?;
/// assert_eq!(port, 80);
/// # Ok::<(), squall::rcu::PinError>(())
/// ```
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn try_pin<R>(f: impl FnOnce(&Guard) -> R) -> Result<R, PinError> {
    Entered::<true>::new(0).map(|entered| f(&entered.guard))
}

/// Not public: like [`__pin`], but returns an error instead of panicking.
///
/// # Errors
/// As of [`try_pin`].
#[doc(hidden)]
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn __try_pin<R>(f: impl FnOnce(&Guard) -> R) -> Result<R, PinError> {
    Entered::<false>::new(0).map(|entered| f(&entered.guard))
}

/// Registers the calling thread, unless it is registered already.
///
/// The thread's first operation then costs no more than later ones, and a signal handler may open it.
///
/// # Errors
/// [`PinError`], as for a thread's first operation.
/// # Example
/// ```
/// std::thread::spawn(|| {
///     // Before the thread's first request, and before a signal handler may run on it.
///     squall::rcu::register().unwrap();
/// })
/// .join()
/// .unwrap();
/// ```
pub fn register() -> Result<(), PinError> {
    __try_pin(|_| ())
}

/// Returns whether the calling thread is inside an operation.
///
/// # Cost
/// Two loads.
/// # Example
/// ```
/// use squall::rcu::{in_operation, pin};
/// assert!(!in_operation());
/// assert!(pin(|_| in_operation()));
/// ```
#[inline]
pub fn in_operation() -> bool {
    current().depth() > 0
}

/// Runs `f`, and keeps deferred calls from running on this thread until `f` returns.
///
/// Calls that fall due inside `f` run later: once `f` has returned or panicked, and the thread is outside
/// every operation. The thread is not made to wait for its bound inside `f` either. Scopes nest; the end of
/// the outermost one runs the postponed calls.
///
/// Use it around code that retires values or opens operations while it holds a lock, if the drop of a retired
/// value may take that lock too. With the reclaimer, users' deferred calls can run in
/// [`retire`](crate::retire). Without it (see [`set_reclaimer`](crate::set_reclaimer)) they also run at the
/// end of an operation. Take the lock inside `f`.
///
/// Plain memory is freed inside `f` too. Keep `f` short: the values it retires stay pending beyond every
/// bound.
///
/// [`reclaim`](crate::reclaim()) and [`barrier`](crate::barrier) return an error inside `f`. Waiting for a
/// grace period is allowed.
///
/// # Cost
/// Two additions in the thread's own cache line, and the postponed calls.
/// # Example
/// ```
/// use std::sync::Mutex;
/// static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// struct Logged(String);
/// impl Drop for Logged {
///     fn drop(&mut self) { NAMES.lock().unwrap().push(std::mem::take(&mut self.0)); }
/// }
/// // Whatever this thread retired before, its drops do not run here.
/// squall::rcu::without_callbacks(|| {
///     let names = NAMES.lock().unwrap();
///     (0..200).for_each(|n| squall::rcu::retire(Box::new(Logged(n.to_string()))));
///     assert!(names.is_empty());
/// });
/// squall::rcu::barrier().unwrap();
/// assert_eq!(NAMES.lock().unwrap().len(), 200);
/// ```
#[inline]
pub fn without_callbacks<R>(f: impl FnOnce() -> R) -> R {
    let _quiet = __callback_free();
    f()
}

/// A callback-free scope. It ends when it is dropped, on its thread. If it is leaked, the thread's deferred
/// calls wait until the thread ends.
#[doc(hidden)]
#[derive(Debug)]
#[must_use]
pub struct CallbackFree {
    _this_thread: PhantomData<*mut ()>,
}

/// Not public: opens the scope of [`without_callbacks`] for a caller that must end it between the drops of
/// other variables.
#[doc(hidden)]
#[inline(always)]
pub fn __callback_free() -> CallbackFree {
    match own_record() {
        Some(record) => record.begin_quiet(),
        None => begin_quiet_cold(),
    }
    CallbackFree { _this_thread: PhantomData }
}

#[cold]
#[inline(never)]
fn begin_quiet_cold() {
    // If registration is refused, operations are refused too.
    let _ = register();
    match own_record() {
        Some(record) => record.begin_quiet(),
        None => begin_quiet_unregistered(),
    }
}

impl Drop for CallbackFree {
    #[inline(always)]
    fn drop(&mut self) {
        match own_record() {
            Some(record) if record.end_quiet() => catch_up(record),
            Some(_) => {}
            // A thread past its exit hook keeps no deferred calls, so it has no postponed calls to run.
            None => end_quiet_unregistered(),
        }
    }
}

impl CallbackFree {
    /// Not public: ends the scope, and leaves the postponed calls to the end of the thread's next operation.
    /// For a signal handler. The calls may wait for locks that the interrupted code holds.
    #[doc(hidden)]
    pub fn end_without_calls(self) {
        mem::forget(self);
        match own_record() {
            Some(record) if record.end_quiet() => record.owe(attention::DEFERRED),
            Some(_) => {}
            None => end_quiet_unregistered(),
        }
    }
}

/// Runs the calls that were postponed inside a scope that has ended.
#[cold]
#[inline(never)]
fn catch_up(record: &'static Record) {
    if record.depth() > 0 {
        record.owe(attention::DEFERRED);
    } else {
        crate::defer::after_operation(record);
    }
}

#[cold]
#[track_caller]
fn refuse(error: PinError) -> ! {
    panic!("{error}")
}

/// An open operation on this thread, from which a [`Guard`] is borrowed. Used only by the upper crates of
/// Squall. If it `SERVES`, the thread may run shipped calls at its end, if it is the outermost one.
#[doc(hidden)]
#[derive(Debug)]
#[must_use]
pub struct Entered<const SERVES: bool = true> {
    record: &'static Record,
    token: Token,
    guard: Guard,
    /// Present in an outermost operation that is measured.
    #[cfg(debug_assertions)]
    watch: Option<crate::blocking::Watch>,
}

impl<const SERVES: bool> Entered<SERVES> {
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn new(tag: u64) -> Result<Entered<SERVES>, PinError> {
        let record = current();
        let (record, token) = match record.enter_fast() {
            Some(token) => (record, token),
            None => enter_cold(record, tag)?,
        };
        #[cfg(debug_assertions)]
        let watch = {
            let began = std::panic::Location::caller();
            record.note(began, tag);
            token.is_outermost().then(|| crate::blocking::begin(began, tag)).flatten()
        };
        Ok(Entered {
            record,
            token,
            guard: Guard { _this_thread: PhantomData },
            #[cfg(debug_assertions)]
            watch,
        })
    }

    /// Not public: returns the operation's guard.
    #[doc(hidden)]
    #[inline(always)]
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Not public: returns a number that differs between any two outermost operations of a thread.
    #[doc(hidden)]
    #[inline(always)]
    pub fn turn(&self) -> u64 {
        self.token.turn()
    }
}

/// Not public: opens an operation like [`try_pin`], for callers that run different code on different exits.
///
/// `tag` names the object that the operation belongs to, in the form that the function given to
/// [`__name_tags`](crate::__name_tags) translates; 0 means no object. Builds with debug assertions keep the
/// tag for stall reports. In the child of a fork, an operation of an object is refused.
///
/// # Safety
/// The caller drops the result on this thread, in the reverse order of entries, in every case. So the result
/// must not be stored in a future or passed to other code.
#[doc(hidden)]
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
pub unsafe fn __enter(tag: u64) -> Result<Entered, PinError> {
    Entered::new(tag)
}

impl<const SERVES: bool> Drop for Entered<SERVES> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        let blocked = self.watch.take().and_then(crate::blocking::Watch::end);
        if self.record.leave(self.token) {
            leave_cold(self.record, self.token, SERVES);
        }
        #[cfg(debug_assertions)]
        if let Some(blocked) = blocked {
            blocked.report();
        }
    }
}

#[cold]
#[inline(never)]
fn enter_cold(record: &'static Record, tag: u64) -> Result<(&'static Record, Token), PinError> {
    let record = if is_unregistered(record) { register_current()? } else { record };
    if tag != 0 && squall_sys::fork::forked() {
        return Err(PinError::Forked);
    }
    let token = DOMAIN.enter(record);
    Ok((record, token))
}

#[cold]
#[inline(never)]
fn leave_cold(record: &'static Record, token: Token, serves: bool) {
    let bits = DOMAIN.leave_slow(record, token);
    if bits & attention::DEFERRED != 0 {
        record.clear(attention::DEFERRED);
        crate::defer::after_operation(record);
    }
    if serves && bits & attention::HOOK != 0 {
        crate::leave::call_hook();
    }
    if bits & attention::TEMPORARY != 0 {
        give_back(record);
    }
}
