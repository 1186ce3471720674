//! The stages after the grace periods: memory quiet, the drops, and the end of the id.
//!
//! - I1. Drops by users run outside every operation and under no lock: in a deferred call, or in a run on
//!   their VP. A drop that panics is counted and stops no other step.
//! - I2. From `finish` on, `held` of an object counts the representatives that are not dropped, and one for
//!   `finish` itself. The thread that takes it to zero continues with the root.
//! - I3. An object is put into `HELD` before the last of its holds can continue, and taken out before it is
//!   finished. So it is valid while it is found there under the lock.
//!
//! Not promised: that a drop runs on a VP of the representative's cluster. The drop runs elsewhere if the VP
//! for which the representative was made admits no runner for 100 ms, or no more.
//!
//! Source: Appavoo 2005, *Clustered Objects*, §5.4.3 (CO-28, CO-30, CO-31).

use squall_machine::{VpSet, machine};
use squall_rcu::RunOn;
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use squall_sys::sync::{Mutex, MutexGuard, OnceLock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::protocol::class::Class;
use crate::protocol::drop_queue::DropQueue;
use crate::protocol::object::{Object, is_held, wait_for_holds};
use crate::protocol::platform::Stage;
use crate::protocol::reps::Rep;

static DROP_QUEUES: OnceLock<Box<[DropQueue]>> = OnceLock::new();
/// Destroyed objects that a call still holds (I3).
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());
static PANICKED: AtomicU64 = AtomicU64::new(0);

struct Held(NonNull<Object>);

// SAFETY: objects are used from any thread.
unsafe impl Send for Held {}

/// The number of panics in users' drops of representatives and roots, and in other users' code that must not
/// stop Squall.
pub(crate) fn panicked() -> u64 {
    PANICKED.load(Ordering::Relaxed)
}

/// Runs users' drop code (I1), or other users' code that must not stop Squall by a panic.
pub(crate) fn run_drop(drop: impl FnOnce()) {
    let mut drop = Some(drop);
    run_caught(&mut || {
        if let Some(drop) = drop.take() {
            drop();
        }
    });
}

/// The body of [`run_drop`], compiled once.
fn run_caught(drop: &mut dyn FnMut()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(drop)) {
        // The payload's drop is users' code too, and could panic here.
        std::mem::forget(payload);
        PANICKED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Implements [`Platform::after_grace_period`](super::platform::Platform::after_grace_period).
#[inline]
pub(crate) fn after_grace_period(object: NonNull<Object>, stage: Stage) {
    unsafe fn finish_call(object: *mut ()) {
        let Some(object) = NonNull::new(object.cast::<Object>()) else { return };
        lock_held().retain(|held| held.0 != object);
        // SAFETY: the last hold asked for it, once.
        unsafe { finish(object) };
    }
    // SAFETY: the object is not freed before this call runs.
    let class = unsafe { object.as_ref() }.class;
    let call = match stage {
        Stage::Quiet => class.more.quiet,
        Stage::Finish => finish_call,
    };
    // SAFETY: 1. The call runs once, on any thread. 2. The object's entries and its slot were cleared before.
    unsafe { squall_rcu::__defer_object(call, object.as_ptr().cast(), class.object_bytes) };
}

/// Continues with `finish` after the grace period that follows the death, unless a call holds the object.
///
/// # Safety
/// Called once, after that grace period, with an object of this class and its `finish`.
#[inline(always)]
pub(crate) unsafe fn quiet_call(object: *mut (), class: &'static Class, finish: unsafe fn(NonNull<Object>)) {
    let Some(object) = NonNull::new(object.cast::<Object>()) else { return };
    // SAFETY: the grace period has passed. If no call holds the object any more, only this thread continues.
    unsafe {
        if is_held(object, class) {
            wait_for_holders(object);
        } else {
            finish(object);
        }
    }
}

/// Asks the last hold to continue with `finish`, or continues here if no hold is left.
///
/// # Safety
/// Called once, when the grace period after the death has passed.
#[cold]
#[inline(never)]
unsafe fn wait_for_holders(object: NonNull<Object>) {
    let mut list = None;
    // SAFETY: the caller's promise.
    if unsafe { wait_for_holds(object, || list = Some(lock_held())) } {
        drop(list);
        // SAFETY: no call holds the object any more, so only this thread continues.
        unsafe { finish(object) };
    } else if let Some(list) = &mut list {
        list.push(Held(object));
    }
}

/// Calls `f` with each destroyed object that a call still holds.
pub(crate) fn for_each_held(mut f: impl FnMut(NonNull<Object>)) {
    // An object in the list stays valid while the list is locked (I3).
    lock_held().iter().for_each(|held| f(held.0));
}

fn lock_held() -> MutexGuard<'static, Vec<Held>> {
    // Only a failed allocation can panic under this lock, and it leaves the list whole.
    HELD.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Drops the object's representatives.
///
/// # Safety
/// Called once, when memory is quiet.
unsafe fn finish(object: NonNull<Object>) {
    // SAFETY: the object's own function, called once.
    unsafe { (object.as_ref().class.more.finish)(object) }
}

/// Puts `rep` into the drop queue of its VP. Returns whether the queue was empty: then the caller sends a
/// runner to that VP ([`send_runners`]).
///
/// # Safety
/// `rep` belongs to the caller alone, and is counted in `held` (I2).
#[must_use]
pub(crate) unsafe fn queue_drop(rep: NonNull<Rep>) -> bool {
    let queues = DROP_QUEUES.get_or_init(|| (0..machine().vp_limit()).map(|_| DropQueue::new()).collect());
    // SAFETY: the caller's promise; every representative in a queue came through here.
    unsafe { queues[rep.as_ref().vp as usize].push(rep) }
}

/// Sends a runner to each of these VPs, to drop the representatives in its queue.
pub(crate) fn send_runners(vps: &VpSet) {
    if vps.is_empty() {
        return;
    }
    // In a forked child, memory is not reclaimed.
    let _ = squall_rcu::quiescent_do(vps, RunOn::Each, |vp| {
        if let Some(queue) = DROP_QUEUES.get().and_then(|queues| queues.get(vp.index())) {
            // SAFETY: a representative in a queue is valid, and belongs to this thread once taken.
            unsafe { queue.take(|rep| drop_queued(rep)) };
        }
    });
}

/// Drops a representative from a drop queue.
///
/// # Safety
/// `rep` was taken from a drop queue by this thread.
unsafe fn drop_queued(rep: NonNull<Rep>) {
    // SAFETY: `rep` is valid until `drop_rep`, and its object while `held` is not zero (I2).
    unsafe {
        let object = rep.as_ref().owner.object;
        (object.as_ref().class.more.drop_rep)(rep);
        dropped(object, 1);
    }
}

/// Counts `count` of the object's representatives as dropped (I2).
///
/// # Safety
/// They were counted in `held`.
pub(crate) unsafe fn dropped(object: NonNull<Object>, count: u32) {
    // SAFETY: valid while the count is not zero.
    if unsafe { object.as_ref() }.count_down(count) {
        // SAFETY: called once: the count was taken to zero here.
        unsafe { (object.as_ref().class.more.drop_root)(object) };
    }
}
