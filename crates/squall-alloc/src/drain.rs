//! Emptying a VP's magazines from elsewhere.
//!
//! Problem: what a VP caches that has gone quiet is memory that nobody uses, yet its magazines are written without any lock by
//! whoever runs there. Idea: two words that every sequence reads anyway are set so that all find the magazine empty and full; then
//! the kernel is asked to restart what is in flight there.
//!
//! - I1. *Closing is exact.* A sequence that commits after the first restart has read `low` or `high` after it, and left. So from then
//!   on the closer alone reads and writes the count and the slots.
//! - I2. *So is opening.* A sequence reads the count before `low` or `high`. The kernel restarts what is in flight once more between
//!   the store of the new count and the opening, lest one that read the old count finds the magazine open.
//! - I3. One thread at a time empties.
//!
//! Not promised: that a VP's magazines open again at once where the kernel restarted once and then refused [`TRIES_MAX`] times: they stay
//! closed, which is right and slower, until they are emptied again.
//!
//! Where the kernel cannot be asked, only what nobody else could be writing is emptied: nothing, that is, and [`empty`] says so.
//! Cost: two system calls, and an interrupt on that processor each.
//! Source: tcmalloc's `StopCpu`; membarrier(2).

#[cfg(not(loom))]
use crate::classes::COUNT;
#[cfg(not(loom))]
use crate::ground::{Ground, Part};
#[cfg(not(loom))]
use crate::lock::Lock;
#[cfg(not(loom))]
use crate::magazine::Batch;
use crate::magazine::Magazine;
use crate::sites;
use squall_sys::sync::atomic::Ordering;

/// How often the kernel is asked once more that has just said yes.
const TRIES_MAX: usize = 8;

/// Held by who empties (I3).
#[cfg(not(loom))]
pub(crate) static EMPTYING: Lock = Lock::new();

/// Sends home all that `vp` caches. False if that cannot be done here.
#[cfg(not(loom))]
pub(crate) fn empty(ground: &Ground, vp: u32, part: Part) -> bool {
    if !ground.can_restart {
        return false;
    }
    let mut batch = Batch::new();
    let emptied = EMPTYING.with(|| {
        empty_magazines(
            || (0..=COUNT).map(|class| part.magazine(class)),
            || squall_sys::membarrier::restart_on(vp as usize).is_ok(),
            |block| {
                batch.push(block);
                if batch.is_full() {
                    crate::home::send_home(ground, vp, &mut batch);
                }
            },
            || part.open(),
        )
    });
    crate::home::send_home(ground, vp, &mut batch);
    emptied
}

/// Takes all that is in these magazines of one VP, which `restart` restarts the sequences of.
pub(crate) fn empty_magazines<'a, M: Iterator<Item = &'a Magazine>>(
    magazines: impl Fn() -> M,
    restart: impl Fn() -> bool,
    mut take: impl FnMut(*mut u8),
    open: impl Fn(),
) -> bool {
    if !sites::CLOSE.is_weak() {
        magazines().for_each(close);
    }
    // 1. What is in flight there begins again, and finds them closed (I1).
    if !sites::RESTART.is_weak() && !restart() {
        open();
        return false;
    }
    for magazine in magazines() {
        let count = magazine.count.load(Ordering::Relaxed) as usize;
        for index in 0..count {
            // SAFETY: below the count, so within the room.
            take(unsafe { &*Magazine::slot(magazine, index) }.load(Ordering::Relaxed));
        }
        magazine.count.store(0, Ordering::Relaxed);
    }
    // 2. What has read an old count begins again (I2). It was possible a moment ago; if it is refused still, they stay closed.
    if !sites::AGAIN.is_weak() && !(0..TRIES_MAX).any(|_| restart()) {
        return false;
    }
    open();
    true
}

fn close(magazine: &Magazine) {
    // Relaxed, both: the restart orders them before whatever its processor does then.
    magazine.low.store(u32::MAX, Ordering::Relaxed);
    magazine.high.store(0, Ordering::Relaxed);
}
