//! Service by threads of the program: when they leave an operation, or when they ask.

use super::vps::{VpInbox, existing, inbox_of, is_serving};
use squall_machine::Vp;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

thread_local! {
    /// The inbox that counts the thread among those that serve it.
    static COUNTED: Cell<Option<&'static VpInbox>> = const { Cell::new(None) };
    /// Present while the thread has guards.
    static HOOK: Cell<Option<Hook>> = const { Cell::new(None) };
    /// The guards of the thread.
    static GUARDS: Cell<u32> = const { Cell::new(0) };
}

/// The thread serves until this is dropped, at its end at the latest: a guard may be leaked.
struct Hook(squall_rcu::__OnLeave);

impl Drop for Hook {
    fn drop(&mut self) {
        count_at(None);
    }
}

/// The calling thread serves the inbox of its VP until this is dropped: [`serve_here`].
#[must_use = "the thread serves until this is dropped"]
pub struct Serving {
    _this_thread: PhantomData<*mut ()>,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

/// Lets the calling thread serve calls that were shipped to its VP, until the result is dropped. It serves
/// whenever it returns from an outermost call of an object, or from an outermost
/// [`rcu::pin`](squall_rcu::pin). It does not serve inside a method marked `#[blocking]`. Guards nest.
///
/// A shipped closure then runs between two statements of this thread's own code. So the thread must not call
/// an object, or open an operation, while it holds a lock that a shipped closure takes: the closure would
/// wait for its own thread. Attributes and deadlines that this code gave to its own calls are hidden from the
/// closure. A signal handler that may run on this thread must open no operation.
///
/// While the thread serves nothing, as in a system call, a call may wait until its sender looks for the
/// result. Then another thread serves it.
///
/// # Panics
/// If the thread's operations are refused, as for [`squall::rcu::pin`](squall_rcu::pin).
///
/// # Cost
/// An outermost operation of this thread ends on a slow path, some nanoseconds longer. Other threads are as
/// fast as before.
///
/// # Example
/// ```
/// use squall::ship;
///
/// // A thread of a server, in its own loop.
/// let _serving = ship::serve_here();
/// let requests = squall::objects::counter::distributed();
/// for _ in 0..10 {
///     requests.inc(); // may run shipped calls before it returns
/// }
/// # use squall::prelude::*;
/// ```
pub fn serve_here() -> Serving {
    if GUARDS.get() == 0 {
        HOOK.set(Some(Hook(squall_rcu::__call_on_leave(on_leave).unwrap_or_else(|error| panic!("{error}")))));
        count_at(Some(inbox_of(Vp::current())));
    }
    GUARDS.set(GUARDS.get() + 1);
    Serving { _this_thread: PhantomData }
}

impl Drop for Serving {
    fn drop(&mut self) {
        GUARDS.set(GUARDS.get() - 1);
        if GUARDS.get() == 0 {
            // At the end of a thread the hook may be gone before its last guard.
            let _ = HOOK.try_with(|hook| hook.set(None));
        }
    }
}

/// Counts the thread among those that serve this inbox, and no other one.
fn count_at(inbox: Option<&'static VpInbox>) {
    if let Some(before) = COUNTED.replace(inbox) {
        before.remove_serving();
    }
    if let Some(now) = inbox {
        now.add_serving();
    }
}

/// Runs at the end of each outermost operation of a thread that serves.
fn on_leave() {
    if is_serving() {
        return;
    }
    let vp = Vp::current();
    let inbox = match COUNTED.get() {
        Some(counted) if counted.vp == vp => counted,
        _ => {
            let inbox = inbox_of(vp);
            count_at(Some(inbox));
            inbox
        }
    };
    if inbox.inbox.has_queued() {
        serve_inbox(inbox);
    }
}

#[cold]
fn serve_inbox(inbox: &'static VpInbox) -> usize {
    inbox.serve_some()
}

/// Runs the calls that wait in the inbox of the calling thread's VP now, and returns their number. For the
/// idle hook of an executor. If the hook runs once before the thread sleeps, a call that comes later is not
/// served by it.
///
/// Inside an operation, a method marked `#[blocking]`, a deferred call, a shipped call or a panic it returns
/// 0 at once.
///
/// # Cost
/// Three loads if the inbox is empty.
///
/// # Example
/// ```
/// // With tokio: `Builder::new_multi_thread().on_thread_park(|| { squall::ship::serve(); })`.
/// assert_eq!(squall::ship::serve(), 0);
/// ```
pub fn serve() -> usize {
    match existing(Vp::current()) {
        Some(inbox) if inbox.inbox.has_queued() && !is_serving() && squall_rcu::__may_serve() => {
            serve_inbox(inbox)
        }
        _ => 0,
    }
}
