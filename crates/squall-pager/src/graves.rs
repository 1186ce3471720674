//! Slots that their cache has let go of while they were pinned. The thread that drops the last pin frees
//! them.
//!
//! - I1. A slot here is owned by no index. The list frees it when its latch is free.
//! - I2. A slot does not stay here without a pin. *Argument.* `bury` adds the slot, makes a heavy fence, and
//!   looks at the latch. A thread that drops a pin unlocks, makes a light fence, and reads `COUNT`. The
//!   fences are ordered. Either `bury` finds the latch free, or the thread sees the count and looks itself.

use squall_machine::asym;
use squall_rcu::RcuArc;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::slot::{Dirty, Slot, Taken};

static GRAVES: Mutex<Vec<RcuArc<Slot>>> = Mutex::new(Vec::new());
/// The length of the list.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Frees a slot without an index, now or when its last pin is dropped.
pub(crate) fn bury(slot: RcuArc<Slot>) {
    // Outside the lock: replicas that are pinned are buried themselves.
    slot.end_replicas();
    if !matches!(slot.try_take(Dirty::Discard), Taken::Pinned) {
        return;
    }
    {
        let mut graves = GRAVES.lock().unwrap_or_else(PoisonError::into_inner);
        graves.push(slot);
        // Relaxed: the heavy fence orders it (I2).
        COUNT.store(graves.len(), Ordering::Relaxed);
    }
    // Partner: the light fence in `look` (I2). If the kernel refuses the fence, a later look frees the slot.
    let _ = asym::heavy();
    sweep();
}

/// Frees the buried slots that are no longer pinned. Called after each drop of a pin.
#[inline]
pub(crate) fn look() {
    // Partner: the heavy fence in `bury` (I2).
    asym::light_or_full(matches!(asym::mode(), asym::Mode::Fence(_)));
    // Relaxed: the fence orders it.
    if COUNT.load(Ordering::Relaxed) != 0 {
        sweep();
    }
}

#[cold]
fn sweep() {
    let mut freed = Vec::new();
    {
        let mut graves = GRAVES.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = Vec::new();
        for slot in mem::take(&mut *graves) {
            match slot.try_take(Dirty::Discard) {
                Taken::Pinned => left.push(slot),
                taken => freed.push((taken, slot)),
            }
        }
        *graves = left;
        COUNT.store(graves.len(), Ordering::Relaxed);
    }
    // Pages return to their pools, and slots go, after the lock is released.
    drop(freed);
}
