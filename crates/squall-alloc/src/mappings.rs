//! Mappings that come and go.
//!
//! Problem: the kernel joins neighbouring mappings, and has to split one again where a part of it ends; where a process has as many
//! mappings as it may, it refuses. Idea: what could not be ended is noted, without its memory, and tried again later.
//!
//! - I1. A range in [`LATER`] is a mapping of ours, or a part of one, that nobody uses. Whoever changes its `at` to [`BUSY`] has it.
//!
//! Not promised: that more than [`LATER_MAX`] such ranges are noted. Of others the memory goes back, and the addresses do not. One that
//! another thread was trying again during a fork stays mapped in the child.
//! Cost: one load where there are none.

use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::pages;
use std::ptr::NonNull;

const LATER_MAX: usize = 256;
/// Ranges that are tried again at a time.
const TRIES_MAX: usize = 8;

struct Range {
    at: AtomicUsize,
    bytes: AtomicUsize,
}

const NONE: usize = 0;
const BUSY: usize = 1;

static LATER: [Range; LATER_MAX] =
    [const { Range { at: AtomicUsize::new(NONE), bytes: AtomicUsize::new(0) } }; LATER_MAX];
/// How many there are, and their bytes.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// How many address ranges have ended. That an end comes before the next beginning is the kernel's doing, in calls that ThreadSanitizer
/// does not see: it is told so here, and of nothing else that threads do.
#[cfg(squall_tsan)]
static ENDS: AtomicUsize = AtomicUsize::new(0);

/// An address range is about to end.
#[inline]
pub(crate) fn tell_end() {
    // Release: what was done to the addresses pairs with the Acquire in `tell_beginning`, where they begin again.
    #[cfg(squall_tsan)]
    ENDS.fetch_add(1, Ordering::Release);
}

/// An address range has begun.
#[inline]
pub(crate) fn tell_beginning() {
    // Acquire: pairs with the Release in `tell_end`, of every end so far: each adds to the number that the one before left.
    #[cfg(squall_tsan)]
    ENDS.load(Ordering::Acquire);
}

/// Memory of its own, zeroed; `None` if there is none.
pub(crate) fn map(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    again();
    let at = pages::map(bytes, align, note).ok();
    tell_beginning();
    at
}

/// Ends a mapping, or a part of one: now, or when that can be done.
///
/// # Safety
/// As for [`pages::unmap`].
pub(crate) unsafe fn unmap(at: *mut u8, bytes: usize) {
    tell_end();
    // SAFETY: passed on.
    if unsafe { pages::unmap(at, bytes) }.is_err() {
        // SAFETY: as above. If it fails, too, the memory goes with the addresses.
        let _ = unsafe { pages::discard(at, bytes) };
        note(at, bytes);
    }
    again();
}

/// Bytes of addresses that are noted.
pub(crate) fn later_bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

fn note(at: *mut u8, bytes: usize) {
    for range in &LATER {
        // Relaxed: the range is nobody's, and what is stored to it here is read behind the Release below.
        if range.at.compare_exchange(NONE, BUSY, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            range.bytes.store(bytes, Ordering::Relaxed);
            COUNT.fetch_add(1, Ordering::Relaxed);
            BYTES.fetch_add(bytes, Ordering::Relaxed);
            // Release: pairs with the Acquire in `again`.
            range.at.store(at.expose_provenance(), Ordering::Release);
            return;
        }
    }
}

/// Tries some of them again, until one is refused.
#[inline]
pub(crate) fn again() {
    // Relaxed: a hint.
    if COUNT.load(Ordering::Relaxed) != 0 {
        try_again();
    }
}

#[cold]
fn try_again() {
    let noted = LATER.iter().filter_map(|range| {
        let at = range.at.load(Ordering::Relaxed);
        (at > BUSY).then_some((range, at))
    });
    for (range, at) in noted.take(TRIES_MAX) {
        // Acquire: pairs with the Release in `note`. If it fails somebody else has it.
        if range.at.compare_exchange(at, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
            continue;
        }
        let bytes = range.bytes.load(Ordering::Relaxed);
        tell_end();
        // SAFETY: what nobody uses, and we have alone (I1).
        if unsafe { pages::unmap(std::ptr::with_exposed_provenance_mut(at), bytes) }.is_err() {
            // Release: as in `note`.
            range.at.store(at, Ordering::Release);
            return;
        }
        COUNT.fetch_sub(1, Ordering::Relaxed);
        BYTES.fetch_sub(bytes, Ordering::Relaxed);
        // Relaxed: whoever notes something here next stores it all anew.
        range.at.store(NONE, Ordering::Relaxed);
    }
}
