//! Drain: empties the magazines of a VP from a thread on another one.
//!
//! Problem: the cached blocks of a quiet VP are unused memory, but the threads of that VP write its magazines
//! without a lock. Idea: two words that every sequence reads anyway are set so that each magazine looks both
//! empty and full. The kernel then restarts the sequences in flight on that VP.
//!
//! - I1. *Closing is exact.* A sequence that commits after the first restart has read `low` or `high` after
//!   that restart, and left. From then on the closer alone reads and writes the count and the slots.
//! - I2. *Opening is exact.* A sequence reads the count before `low` or `high`. Between the store of the new
//!   count and the opening, the kernel restarts the sequences in flight once more. Otherwise a sequence that
//!   read the old count could find the magazine open.
//! - I3. One thread at a time drains.
//!
//! Not promised: that the magazines of a VP open again at once if the kernel restarts once and then refuses
//! [`TRIES_MAX`] times. They stay closed until the next drain, which is correct and slower.
//!
//! If the kernel cannot restart sequences, [`drain`] returns false at once.
//! Cost: two system calls, each with an interrupt on the processor of the VP.
//! Source: tcmalloc's `StopCpu`; membarrier(2).

#[cfg(not(loom))]
use crate::address_space::AddressSpace;
#[cfg(not(loom))]
use crate::classes::COUNT;
#[cfg(not(loom))]
use crate::lock::Lock;
#[cfg(not(loom))]
use crate::magazine::Batch;
use crate::magazine::Magazine;
#[cfg(not(loom))]
use crate::part::Part;
use crate::sites;
use squall_sys::sync::atomic::Ordering;

/// The attempts at the second restart, after the first one succeeded.
const TRIES_MAX: usize = 8;

/// Held by the thread that drains (I3).
#[cfg(not(loom))]
pub(crate) static DRAINING: Lock = Lock::new();

/// Sends all cached blocks of `vp` home. Returns false if the kernel cannot restart sequences.
#[cfg(not(loom))]
pub(crate) fn drain(space: &AddressSpace, vp: u32, part: Part) -> bool {
    if !space.can_restart {
        return false;
    }
    let mut batch = Batch::new();
    let emptied = DRAINING.with(|| {
        empty_magazines(
            || (0..=COUNT).map(|class| part.magazine(class)),
            || squall_sys::membarrier::restart_on(vp as usize).is_ok(),
            |block| {
                batch.push(block);
                if batch.is_full() {
                    crate::remote_free::send_home(space, vp, &mut batch);
                }
            },
            || part.open(),
        )
    });
    crate::remote_free::send_home(space, vp, &mut batch);
    emptied
}

/// Takes all blocks out of these magazines of one VP. `restart` restarts the sequences in flight on it.
pub(crate) fn empty_magazines<'a, M: Iterator<Item = &'a Magazine>>(
    magazines: impl Fn() -> M,
    restart: impl Fn() -> bool,
    mut take: impl FnMut(*mut u8),
    open: impl Fn(),
) -> bool {
    if !sites::CLOSE.is_weak() {
        magazines().for_each(close);
    }
    // 1. The sequences in flight start over, and find the magazines closed (I1).
    if !sites::RESTART.is_weak() && !restart() {
        open();
        return false;
    }
    for magazine in magazines() {
        let count = magazine.count.load(Ordering::Relaxed) as usize;
        for index in 0..count {
            // SAFETY: below the count, so within the magazine's room.
            take(unsafe { &*Magazine::slot(magazine, index) }.load(Ordering::Relaxed));
        }
        magazine.count.store(0, Ordering::Relaxed);
    }
    // 2. The sequences that read an old count start over (I2). The first restart succeeded a moment ago; if
    //    all of these fail, the magazines stay closed.
    if !sites::AGAIN.is_weak() && !(0..TRIES_MAX).any(|_| restart()) {
        return false;
    }
    open();
    true
}

fn close(magazine: &Magazine) {
    // Relaxed, both: the restart orders them before everything that its processor does afterwards.
    magazine.low.store(u32::MAX, Ordering::Relaxed);
    magazine.high.store(0, Ordering::Relaxed);
}
