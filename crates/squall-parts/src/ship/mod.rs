//! Calls that travel to another cluster: a closure runs on a processor of the target, and its result comes
//! back.
//!
//! Problem: an operation that touches many lines of another cluster's memory moves each of them here and,
//! later, back. Moving the operation moves the closure and its result instead: a few lines.
//!
//! Idea: each VP has a bounded inbox (`inbox.rs`). The sender copies its closure into a slot there. A thread
//! on that VP runs it and leaves the result in the same slot, where the sender takes it. A call to the
//! caller's own cluster runs at once.
//!
//! Three kinds of threads serve an inbox:
//!
//! - A thread that has opted in ([`serve_here`]) serves whenever it leaves its outermost operation on that
//!   VP.
//! - Any thread there can call [`serve`], for example in the idle hook of an executor.
//! - Otherwise a thread `squall-ship-N` with the affinity of VP N is made on demand (`staff.rs`). It ends
//!   after a second without calls.
//!
//! - I1. A shipped closure runs at most once, outside every operation. It runs on a thread that serves, or on
//!   the sender's: in `ship` if that is on the target, and in a wait if no other thread can be started.
//! - I2. A call that its sender waits for, polls or detaches is run, or an error tells why not. A call whose
//!   sender drops it before a thread has begun it is cancelled. A call that has not begun when the process
//!   ends is lost.
//! - I3. A shipped closure sees no attributes and no deadlines that the code around it gave to its own calls.
//!
//! Not promised: an order between two calls, even of one sender. The VP: a thread may move after it has taken
//! a call, and a thread of a staff runs elsewhere if its VP is offline or not permitted. The child of a fork
//! gets errors, also a child that a shipped closure made.
//!
//! Cost: a call to the caller's own cluster is a comparison, three loads and a `catch_unwind`. Another one
//! moves the lines of the slot and two words of the inbox, and wakes a thread if no thread there serves by
//! itself. A sender that polls, awaits or detaches its call wakes one in any case.
//! Source: Unrau et al., "Hierarchical Clustering", 1995, §4, §4.1 and §6 (HU-05, HU-08, HU-09, HU-18);
//! Gamsa et al., *Tornado*, 1999, §3.1 and §6 (TO-04). Deviation: threads serve where the papers interrupt a
//! processor.

#[cfg_attr(loom, allow(dead_code))]
mod cargo;
#[cfg(not(loom))]
mod each;
#[cfg(not(loom))]
mod events;
#[cfg(not(loom))]
mod here;
#[cfg_attr(loom, allow(dead_code))]
mod inbox;
#[cfg(all(test, any(loom, squall_model)))]
mod model;
#[cfg(not(loom))]
mod pending;
mod sites;
#[cfg_attr(loom, allow(dead_code))]
mod staff;
#[cfg_attr(loom, allow(dead_code))]
mod tally;
#[cfg(not(loom))]
mod target;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
mod vps;

pub use cargo::INLINE_BYTES;
#[cfg(not(loom))]
pub use each::{Each, PendingEach, ship_all, ship_each};
#[cfg(not(loom))]
pub use events::{Events, PostError};
#[cfg(not(loom))]
pub use here::{Serving, serve, serve_here};
pub use inbox::SLOTS_MAX;
#[cfg(not(loom))]
pub use pending::{Payload, PendingCall, ShipError};
#[cfg(not(loom))]
pub use target::{Choice, Target};
#[cfg(not(loom))]
pub use vps::{set_slots, slots};

#[cfg(not(loom))]
use squall_machine::Vp;
#[cfg(not(loom))]
use squall_rcu::__run_served as run_served;
#[cfg(not(loom))]
use std::fmt;
#[cfg(not(loom))]
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A call that was not sent, with its closure.
#[cfg(not(loom))]
#[non_exhaustive]
pub enum SendError<F> {
    /// The inbox of the target is full: its slots have calls, or results that were not taken.
    InboxFull(F),
    /// The system refused a thread to serve the call.
    NoThread(F),
    /// The process is the child of a fork, which has no thread to serve the call.
    Forked(F),
}

#[cfg(not(loom))]
impl<F> SendError<F> {
    /// Returns the closure.
    pub fn into_call(self) -> F {
        match self {
            SendError::InboxFull(call) | SendError::NoThread(call) | SendError::Forked(call) => call,
        }
    }
}

#[cfg(not(loom))]
impl<F> fmt::Debug for SendError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::InboxFull(_) => "InboxFull(..)",
            SendError::NoThread(_) => "NoThread(..)",
            SendError::Forked(_) => "Forked(..)",
        })
    }
}

#[cfg(not(loom))]
impl<F> fmt::Display for SendError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::InboxFull(_) => {
                "the call was not sent: the inbox of its target is full; send it again later"
            }
            SendError::NoThread(_) => {
                "the call was not sent: no thread could be started to serve it; send it again later"
            }
            SendError::Forked(_) => {
                "the call was not sent: the child of a fork has no thread to serve it, and may only exec"
            }
        })
    }
}

#[cfg(not(loom))]
impl<F> std::error::Error for SendError<F> {}

/// Runs `call` on a VP of the target, and returns the pending result. Does not wait, unless the calling
/// thread is on a VP of the target, and outside operations: then `call` runs before this returns.
///
/// Such a call runs with the locks that the caller holds. A caller that holds a lock cannot know on which VP
/// it runs, so the closure must not take that lock. On any VP, the closure sees neither attributes nor
/// deadlines that the caller gave to its own calls. Otherwise the closure is copied into the inbox of the VP
/// that the target's [`Choice`] names. A closure and a result of up to [`INLINE_BYTES`] need no allocation.
///
/// A shipped closure should be short, since other calls to the VP wait meanwhile. It may ship calls itself,
/// and wait for them. A thread there begins the call at once, or, if a thread of the program
/// [serves](serve_here), no later than the caller looks for the result.
///
/// # Errors
/// [`SendError`], with the closure.
///
/// # Panics
/// If the machine has no such cluster. A panic of `call` is an error of its result.
///
/// # Cost
/// On the caller's own cluster: some nanoseconds over the call, and no line that another VP writes. Elsewhere
/// about four moves of a cache line, and the wake-up of a thread if no thread there serves by itself. A wait
/// that sleeps allocates a waker, and [`Choice::Idle`] a list of the VPs of the target.
///
/// # Source
/// Unrau et al. 1995, §4 (HU-05, HU-08); Gamsa et al. 1999, §3.1 (TO-04: function shipping).
///
/// # Example
/// ```
/// use squall::ship::ship;
/// use squall::{Cluster, ClusterSize};
///
/// let call = ship((ClusterSize::Node, Cluster::new(0)), || std::thread::current().id())?;
/// println!("the call ran on {:?}", call.wait()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(not(loom))]
#[track_caller]
pub fn ship<R, F>(target: impl Into<Target>, call: F) -> Result<PendingCall<R>, SendError<F>>
where
    R: Send + 'static,
    F: FnOnce() -> R + Send + 'static,
{
    let (target, here) = (target.into(), Vp::current());
    if target.contains(here) && !squall_rcu::in_operation() {
        return Ok(PendingCall::done(catch_unwind(AssertUnwindSafe(|| run_served(call)))));
    }
    if squall_sys::fork::forked() {
        return Err(SendError::Forked(call));
    }
    target.check();
    target.try_each(here, call, |vp, call| send(vps::inbox_of(vp), call))
}

/// Puts a call into an inbox. Asks for a server if no thread of the program serves there.
#[cfg(not(loom))]
fn send<R, F>(to: &'static vps::VpInbox, call: F) -> Result<PendingCall<R>, SendError<F>>
where
    R: Send + 'static,
    F: FnOnce() -> R + Send + 'static,
{
    let ticket = to.inbox.send(call).map_err(SendError::InboxFull)?;
    let is_served = to.is_served();
    if is_served || to.ask() {
        return Ok(PendingCall::sent(to, ticket, !is_served));
    }
    // SAFETY: the call of this ticket has these types.
    match unsafe { to.inbox.take_call::<R, F>(ticket) } {
        Ok(call) => Err(SendError::NoThread(call)),
        // A thread has begun it after all.
        Err(ticket) => Ok(PendingCall::sent(to, ticket, true)),
    }
}
