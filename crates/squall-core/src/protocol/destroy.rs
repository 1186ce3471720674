//! What follows the grace periods: memory quiet, the drops, and the end of the id.
//!
//! - I1. Users' drops run outside every operation and under no lock, in a deferred call or a run on their VP; one that
//!   panics is counted and stops nothing.
//! - I2. `held` of an object counts, from `finish` on, the representatives that are not dropped, and one for `finish`
//!   itself; whoever takes it to zero goes on to the root.
//! - I3. An object is put into `HELD` before the last of its holds can go on, and taken out before it is finished; so it is
//!   valid while it is seen there under the lock.
//!
//! Not promised: that a drop runs on the VP that made the representative. It does where a thread may run there, or on
//! its node at least; else anywhere. Source: CO-28, CO-30, CO-31.

use squall_machine::{ClusterSize, Vp, VpSet, machine};
use squall_rcu::Where;
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
/// Objects that were destroyed and that a call still holds (I3).
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());
static PANICKED: AtomicU64 = AtomicU64::new(0);

struct Held(NonNull<Object>);

// SAFETY: objects are used from any thread.
unsafe impl Send for Held {}

/// Drops of representatives and roots, and other code of their authors where it must stop nothing, that panicked.
pub(crate) fn panicked() -> u64 {
    PANICKED.load(Ordering::Relaxed)
}

/// Runs a drop of the author's (I1), or what else of theirs must stop nothing by a panic.
pub(crate) fn run_drop(drop: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(drop)) {
        // Its own drop is the author's code too, and could panic here.
        std::mem::forget(payload);
        PANICKED.fetch_add(1, Ordering::Relaxed);
    }
}

/// See [`crate::protocol::object::Platform::after_grace_period`].
#[inline]
pub(crate) fn after_grace_period(object: NonNull<Object>, stage: Stage) {
    unsafe fn finish_call(object: *mut ()) {
        let Some(object) = NonNull::new(object.cast::<Object>()) else { return };
        lock_held().retain(|held| held.0 != object);
        // SAFETY: the last hold asked for it, once.
        unsafe { finish(object) };
    }
    // SAFETY: it is not freed before this call runs.
    let class = unsafe { object.as_ref() }.class;
    let call = match stage {
        Stage::Quiet => class.more.quiet,
        Stage::Finish => finish_call,
    };
    // SAFETY: 1. once, anywhere. 2. Its entries and its slot were cleared before.
    unsafe { squall_rcu::__defer_object(call, object.as_ptr().cast(), class.object_bytes) };
}

/// What classes do when the grace period after the death has passed: goes on to `finish`, unless a call holds the object.
///
/// # Safety
/// Once, then, with an object of this class, whose `finish` it is.
#[inline(always)]
pub(crate) unsafe fn quiet_call(object: *mut (), class: &'static Class, finish: unsafe fn(NonNull<Object>)) {
    let Some(object) = NonNull::new(object.cast::<Object>()) else { return };
    // SAFETY: after the grace period that was asked for; and if no call holds it any more, this is the one that goes on.
    unsafe {
        if is_held(object, class) {
            wait_for_holders(object);
        } else {
            finish(object);
        }
    }
}

/// # Safety
/// Once, when the grace period after the death has passed.
#[cold]
#[inline(never)]
unsafe fn wait_for_holders(object: NonNull<Object>) {
    let mut list = None;
    // SAFETY: the caller's promise.
    if unsafe { wait_for_holds(object, || list = Some(lock_held())) } {
        drop(list);
        // SAFETY: no call holds it any more, so this is the one that goes on.
        unsafe { finish(object) };
    } else if let Some(list) = &mut list {
        list.push(Held(object));
    }
}

/// Calls `f` with each object that was destroyed and that a call still holds.
pub(crate) fn for_each_held(mut f: impl FnMut(NonNull<Object>)) {
    // What is in the list stays valid while it is locked (I3).
    lock_held().iter().for_each(|held| f(held.0));
}

fn lock_held() -> MutexGuard<'static, Vec<Held>> {
    // Nothing panics under this lock but a failed allocation, which leaves the list whole.
    HELD.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// # Safety
/// Once, when memory is quiet.
unsafe fn finish(object: NonNull<Object>) {
    // SAFETY: the object's own function, once.
    unsafe { (object.as_ref().class.more.finish)(object) }
}

/// Whether drops that belong to `vp` may run where this thread is: there, or on its node.
pub(crate) fn is_near(vp: Vp) -> bool {
    let here = Vp::current();
    if here == vp {
        return true;
    }
    let nodes = machine().clusters(ClusterSize::Node);
    nodes.get(here).is_some() && nodes.get(here) == nodes.get(vp)
}

/// Leaves `rep` for its VP, and sends somebody there.
///
/// # Safety
/// It is the caller's alone, counted in `held` (I2).
pub(crate) unsafe fn queue_drop(rep: NonNull<Rep>) {
    let queues = DROP_QUEUES.get_or_init(|| (0..machine().vp_limit()).map(|_| DropQueue::new()).collect());
    // SAFETY: the caller's promise.
    let vp = unsafe { rep.as_ref() }.vp;
    // SAFETY: as above; what is in graves came through here.
    if !unsafe { queues[vp as usize].push(rep) } {
        return;
    }
    let there: VpSet = [Vp::new(vp)].into_iter().collect();
    // In a forked child nothing is reclaimed.
    let _ = squall_rcu::quiescent_do(&there, Where::Each, |vp| {
        if let Some(queue) = DROP_QUEUES.get().and_then(|queues| queues.get(vp.index())) {
            // SAFETY: what is in a grave is valid, and ours once taken.
            unsafe { queue.take(|rep| drop_queued(rep)) };
        }
    });
}

/// # Safety
/// Taken from a grave.
unsafe fn drop_queued(rep: NonNull<Rep>) {
    // SAFETY: valid until `drop_rep`, and its object until `held` says otherwise (I2).
    unsafe {
        let object = rep.as_ref().owner.object;
        (object.as_ref().class.more.drop_rep)(rep);
        dropped(object, 1);
    }
}

/// `count` of the object's representatives are dropped (I2).
///
/// # Safety
/// They were counted.
pub(crate) unsafe fn dropped(object: NonNull<Object>, count: u32) {
    // SAFETY: valid while the count is not zero.
    if unsafe { object.as_ref() }.count_down(count) {
        // SAFETY: once: the count was taken to zero here.
        unsafe { (object.as_ref().class.more.drop_root)(object) };
    }
}
