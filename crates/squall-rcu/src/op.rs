//! Operations: the span in which what a thread reads cannot be reclaimed, and the thread's registration that it needs.
//!
//! - I1. A thread's pointer is the address of `UNREGISTERED` or of the record that the domain gave to that thread.
//! - I2. An [`Op`] exists only within the closure of [`op`], on the thread that called it, while the depth of that
//!   thread's record is not zero.
//! - I3. The exit hook of a thread takes its record back. After the hook has run (in a later thread-local destructor) a
//!   record is taken for one outermost operation at a time.
//!
//! Not promised: anything to a signal handler that is the first thing of Squall on its thread, or that interrupts a
//! cold path: it is refused. A handler on a registered thread may open operations at any instruction.
//!
//! Cost: entering and leaving are two stores and three loads to one line of the thread's own.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;

use crate::raw::domain::Domain;
use crate::raw::record::{Record, Token, attention};

/// The process-wide domain.
pub(crate) static DOMAIN: Domain = Domain::new();

/// What a thread's pointer points to until it is registered: nobody's record, whose word says "slow" for ever.
static UNREGISTERED: Record = Record::new();

mod pointer {
    use super::{Record, UNREGISTERED};
    squall_sys::thread_pointer!("__squall_rcu_record_v0_1", Record, UNREGISTERED);
}

thread_local! {
    // No destructor, so it can be read at any time, by a signal handler too.
    static COLD: Cell<bool> = const { Cell::new(false) };
    static EXIT: ExitHook = const { ExitHook };
    // As `COLD`. Quiet scopes that were begun without a record.
    static QUIET: Cell<u32> = const { Cell::new(0) };
}

/// Proof that the calling thread is inside an operation: what was reachable when it began is not reclaimed before it
/// ends. Handed to the closure of [`op`]; neither `Send` nor `Sync`, and cannot leave the closure.
///
/// Not to another thread:
/// ```compile_fail
/// squall_rcu::op(|o| std::thread::scope(|s| { s.spawn(|| { let _kept = o; }); }));
/// ```
/// Not out of the closure:
/// ```compile_fail
/// let kept = squall_rcu::op(|o| o);
/// ```
/// Not across an `.await`, not even in a future that stays on its thread:
/// ```compile_fail
/// let cell = squall_rcu::Rcu::new(Box::new(1));
/// let future = squall_rcu::op(|o| async { std::future::ready(()).await; *cell.load(o) });
/// ```
#[derive(Debug)]
pub struct Op {
    _this_thread: PhantomData<*mut ()>,
}

/// Why an operation could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpError {
    /// This process is the child of a fork and this thread has no registration. Such a child may only exec.
    Forked,
    /// Called from a signal handler that interrupted a cold path of this crate on the same thread.
    Reentrant,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OpError::Forked => {
                "squall-rcu: no operation can be opened in the child of a fork, which may only exec"
            }
            OpError::Reentrant => {
                "squall-rcu: no operation can be opened by a signal handler that interrupted a registration"
            }
        })
    }
}

impl std::error::Error for OpError {}

/// Runs `f` as an operation.
///
/// What `f` reads through [`Rcu::load`](crate::Rcu::load), or by any other path that is cut before the memory is
/// retired, stays valid until `f` returns. Operations nest; only the outermost one counts. Keep them short: no memory
/// retired meanwhile can be reclaimed by anybody before this one ends.
///
/// # Panics
/// Only the first operation of a thread can fail, with [`OpError`]; it panics then (use [`try_op`] to get the error).
/// A panic of `f` ends the operation and goes on.
/// # Cost
/// About a nanosecond; nothing is written that another processor writes, except while a grace period waits for this
/// very thread. The first operation of a thread registers it, which takes a lock for a few instructions.
/// Progress: wait-free after the first. A thread that stalls inside holds up every reclamation.
/// # Source
/// Appavoo 2005, §5.4.3 (requests); Desnoyers et al. 2012 (read sections without fences).
/// # Example
/// ```
/// let config = squall_rcu::Rcu::new(Box::new(String::from("v1")));
/// let length = squall_rcu::op(|o| config.load(o).len());
/// assert_eq!(length, 2);
/// ```
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn op<R>(f: impl FnOnce(&Op) -> R) -> R {
    match Entered::new(0) {
        Ok(entered) => f(&entered.op),
        Err(error) => refuse(error),
    }
}

/// As [`op`], with an error in place of the panic.
///
/// # Errors
/// [`OpError`]; `f` was not called.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn try_op<R>(f: impl FnOnce(&Op) -> R) -> Result<R, OpError> {
    Entered::new(0).map(|entered| f(&entered.op))
}

/// Registers the calling thread, so that its first operation costs no more than the others and may be opened by a
/// signal handler. Does nothing if it is registered.
///
/// # Errors
/// [`OpError`], as for the first operation.
pub fn register() -> Result<(), OpError> {
    try_op(|_| ())
}

/// Whether the calling thread is inside an operation.
///
/// # Cost
/// Two loads.
#[inline]
pub fn in_operation() -> bool {
    current().depth() > 0
}

/// Runs `f`, and meanwhile no deferred call on this thread, nor is this thread made to wait for one: what falls due is caught up
/// with when `f` has returned, or panicked, and this thread is outside every operation.
///
/// For who holds a lock that drops of deferred values may take, and calls what retires, or opens operations, under it: without
/// the reclaimer (see [`set_reclaimer`](crate::set_reclaimer)) deferred calls of users' code run at the end of an operation,
/// and with it in [`retire`](crate::retire). Take the lock within `f`. Scopes nest; the outermost catches up. What is only memory
/// is given back all the same. Keep it short: what `f` retires is pending, beyond every bound.
///
/// [`reclaim`](crate::reclaim()) and [`barrier`](crate::barrier) err within `f`; waiting for a grace period does not.
///
/// # Cost
/// Two additions to the thread's own line, and what was put off.
/// # Example
/// ```
/// use std::sync::Mutex;
/// static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// struct Logged(String);
/// impl Drop for Logged {
///     fn drop(&mut self) { NAMES.lock().unwrap().push(std::mem::take(&mut self.0)); }
/// }
/// // Whatever this thread retired before, its drops do not run here.
/// squall_rcu::quietly(|| {
///     let names = NAMES.lock().unwrap();
///     (0..200).for_each(|n| squall_rcu::retire(Box::new(Logged(n.to_string()))));
///     assert!(names.is_empty());
/// });
/// squall_rcu::barrier().unwrap();
/// assert_eq!(NAMES.lock().unwrap().len(), 200);
/// ```
#[inline]
pub fn quietly<R>(f: impl FnOnce() -> R) -> R {
    let _quiet = __quiet();
    f()
}

/// A quiet scope. Ended by its drop, on its thread; one that is not dropped puts off what its thread has deferred until that ends.
#[doc(hidden)]
#[derive(Debug)]
#[must_use]
pub struct Quiet {
    _this_thread: PhantomData<*mut ()>,
}

/// Not public: [`quietly`], for who ends the scope between the drops of other variables.
#[doc(hidden)]
#[inline(always)]
pub fn __quiet() -> Quiet {
    match own_record() {
        Some(record) => record.begin_quiet(),
        None => begin_quiet_cold(),
    }
    Quiet { _this_thread: PhantomData }
}

#[cold]
#[inline(never)]
fn begin_quiet_cold() {
    // Where it is refused, so are operations.
    let _ = register();
    match own_record() {
        Some(record) => record.begin_quiet(),
        None => QUIET.set(QUIET.get() + 1),
    }
}

impl Drop for Quiet {
    #[inline(always)]
    fn drop(&mut self) {
        match own_record() {
            Some(record) if record.end_quiet() => catch_up(record),
            Some(_) => {}
            // A thread past its exit hook keeps nothing that it could catch up with.
            None => QUIET.set(QUIET.get().saturating_sub(1)),
        }
    }
}

/// What was put off within a quiet scope that is over.
#[cold]
#[inline(never)]
fn catch_up(record: &'static Record) {
    if record.depth() > 0 {
        record.owe(attention::DEFERRED);
    } else {
        crate::defer::after_operation(record);
    }
}

/// Whether the calling thread, whose record this is, is in a quiet scope: then what has fallen due is put off to its end.
pub(crate) fn put_off(record: &Record) -> bool {
    record.put_off() || QUIET.get() > 0
}

/// Whether the calling thread is in a quiet scope.
pub(crate) fn is_quiet() -> bool {
    own_record().is_some_and(Record::is_quiet) || QUIET.get() > 0
}

#[cold]
#[track_caller]
fn refuse(error: OpError) -> ! {
    panic!("{error}")
}

/// The record that the calling thread's pointer points to.
#[inline(always)]
fn current() -> &'static Record {
    // SAFETY: I1, and both live for ever (`registry/I1`; `DOMAIN` and `UNREGISTERED` are statics).
    unsafe { &*pointer::current() }
}

/// The calling thread's record, if it is registered.
pub(crate) fn own_record() -> Option<&'static Record> {
    let record = current();
    (!ptr::eq(record, &UNREGISTERED)).then_some(record)
}

/// Calls `f` with the calling thread's record, registering the thread if it is not; past the exit hook the record is
/// taken for this call only.
pub(crate) fn with_record<R>(f: impl FnOnce(&'static Record) -> R) -> Result<R, OpError> {
    if let Some(record) = own_record() {
        return Ok(f(record));
    }
    let record = register_current()?;
    // Operations within `f` must not give it back.
    let temporary = record.clear(attention::TEMPORARY) != 0;
    let result = f(record);
    if temporary {
        give_back(record);
    }
    Ok(result)
}

/// An operation open on this thread. [`Op`] borrows from it; given out to the upper floors of Squall only.
#[doc(hidden)]
#[derive(Debug)]
#[must_use]
pub struct Entered {
    record: &'static Record,
    token: Token,
    op: Op,
}

impl Entered {
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn new(tag: u64) -> Result<Entered, OpError> {
        let record = current();
        let (record, token) = match record.enter_fast() {
            Some(token) => (record, token),
            None => enter_cold(record)?,
        };
        #[cfg(debug_assertions)]
        record.note(std::panic::Location::caller(), tag);
        #[cfg(not(debug_assertions))]
        let _ = tag;
        Ok(Entered { record, token, op: Op { _this_thread: PhantomData } })
    }

    /// Not public: the operation.
    #[doc(hidden)]
    #[inline(always)]
    pub fn op(&self) -> &Op {
        &self.op
    }

    /// Not public: a number that is another one in each operation of a thread that is in no other.
    #[doc(hidden)]
    #[inline(always)]
    pub fn turn(&self) -> u64 {
        self.token.turn()
    }
}

/// Not public: [`try_op`] for a caller that wants to choose what is done behind which way out.
///
/// `tag` says what the operation is inside of, as the function given to [`__name_tags`](crate::__name_tags) reads it; 0 if
/// nothing. Builds with debug assertions keep it for the report of a stall, others ignore it.
///
/// # Safety
/// The result is dropped on this thread, in the order opposite to other entries, whatever happens; so it is kept in no
/// future, and given to nobody.
#[doc(hidden)]
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
pub unsafe fn __enter(tag: u64) -> Result<Entered, OpError> {
    Entered::new(tag)
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        if self.record.leave(self.token) {
            leave_cold(self.record, self.token);
        }
    }
}

#[cold]
#[inline(never)]
fn enter_cold(record: &'static Record) -> Result<(&'static Record, Token), OpError> {
    let record = if ptr::eq(record, &UNREGISTERED) { register_current()? } else { record };
    let token = DOMAIN.enter(record);
    Ok((record, token))
}

#[cold]
#[inline(never)]
fn leave_cold(record: &'static Record, token: Token) {
    let bits = DOMAIN.leave_slow(record, token);
    if bits & attention::DEFERRED != 0 {
        record.clear(attention::DEFERRED);
        crate::defer::after_operation(record);
    }
    if bits & attention::TEMPORARY != 0 {
        give_back(record);
    }
}

/// Registers the calling thread, which is not.
fn register_current() -> Result<&'static Record, OpError> {
    if squall_sys::fork::forked() {
        return Err(OpError::Forked);
    }
    // A handler that comes between here and the end of this function is refused: the lock below may be held by the
    // code that it interrupted.
    if COLD.replace(true) {
        return Err(OpError::Reentrant);
    }
    squall_sys::fork::arm();
    let hooked = EXIT.try_with(|_| ()).is_ok();
    let record = DOMAIN.register(squall_sys::affinity::thread_id(), Domain::fenced());
    if !hooked {
        record.owe(attention::TEMPORARY);
    }
    pointer::set_current(record);
    COLD.set(false);
    Ok(record)
}

/// Takes the calling thread's record back (I3).
fn give_back(record: &'static Record) {
    crate::defer::adopt_from(record);
    // From here a handler registers anew instead of using a record that is not its thread's any more; and is refused,
    // since it would interrupt this.
    COLD.set(true);
    pointer::set_current(&raw const UNREGISTERED);
    DOMAIN.unregister(record);
    COLD.set(false);
}

/// Takes the record back when its thread ends.
struct ExitHook;

impl Drop for ExitHook {
    fn drop(&mut self) {
        if let Some(record) = own_record() {
            give_back(record);
        }
    }
}
