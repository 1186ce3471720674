//! Service by threads of the program: when they leave an operation, or when they ask.

use super::vps::{VpInbox, existing, inbox_of};
use squall_machine::Vp;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

thread_local! {
    /// The inbox that counts the thread among those that serve it.
    static COUNTED: Cell<Option<&'static VpInbox>> = const { Cell::new(None) };
    /// Present while the thread has guards.
    static HOOK: Cell<Option<squall_rcu::__OnLeave>> = const { Cell::new(None) };
    /// The guards of the thread.
    static GUARDS: Cell<u32> = const { Cell::new(0) };
    /// The thread runs calls.
    static BUSY: Cell<bool> = const { Cell::new(false) };
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

/// Lets the calling thread serve calls that were shipped to its VP, whenever it leaves its outermost
/// operation, until the result is dropped. Guards nest.
///
/// A shipped closure then runs between two statements of this thread's own code, or where it enters a method
/// marked `#[blocking]`. So the thread must not call an object, or open an operation, while it holds a lock
/// that a shipped closure takes: the closure would wait for its own thread. A signal handler that may run on
/// this thread must open no operation.
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
        HOOK.set(Some(squall_rcu::__call_on_leave(on_leave).unwrap_or_else(|error| panic!("{error}"))));
        count_at(Some(inbox_of(Vp::current())));
    }
    GUARDS.set(GUARDS.get() + 1);
    Serving { _this_thread: PhantomData }
}

impl Drop for Serving {
    fn drop(&mut self) {
        GUARDS.set(GUARDS.get() - 1);
        if GUARDS.get() == 0 {
            HOOK.set(None);
            count_at(None);
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
    // A call that runs here leaves operations, too.
    if BUSY.get() {
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
    let busy = BUSY.replace(true);
    let count = inbox.serve_some();
    BUSY.set(busy);
    count
}

/// Runs the calls that wait in the inbox of the calling thread's VP now, and returns their number. For the
/// idle hook of an executor.
///
/// Inside an operation it returns 0 at once.
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
        Some(inbox) if inbox.inbox.has_queued() && may_serve() => serve_inbox(inbox),
        _ => 0,
    }
}

/// Returns whether the thread may run users' code here. A child of a fork has copies of its parent's calls.
fn may_serve() -> bool {
    !squall_rcu::in_operation() && !squall_sys::fork::forked()
}
