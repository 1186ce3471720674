//! Mappings: memory from the system, and deferred unmapping.
//!
//! Problem: the kernel joins neighbouring mappings, and must split a mapping to unmap a part of it. It
//! refuses if the process has reached its limit of mappings. Idea: a range that could not be unmapped is
//! recorded, its memory is discarded, and the unmapping is retried later.
//!
//! - I1. A range in [`DEFERRED`] is a mapping of ours, or a part of one, without users. A thread that changes
//!   its `at` to [`BUSY`] has it alone.
//!
//! Not promised: room for more than [`DEFERRED_MAX`] such ranges. Beyond them, the memory goes back and the
//! addresses stay. A range that another thread retries during a fork stays mapped in the child.
//! Cost: one load if there are no such ranges.

use squall_sys::pages;
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use std::ptr::NonNull;

const DEFERRED_MAX: usize = 256;
/// Ranges that are retried at a time.
const TRIES_MAX: usize = 8;

struct Range {
    at: AtomicUsize,
    bytes: AtomicUsize,
}

const NONE: usize = 0;
const BUSY: usize = 1;

static DEFERRED: [Range; DEFERRED_MAX] =
    [const { Range { at: AtomicUsize::new(NONE), bytes: AtomicUsize::new(0) } }; DEFERRED_MAX];
/// The number of recorded ranges, and their bytes.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// The number of ended address ranges. The kernel orders an end before the next beginning, in calls that
/// ThreadSanitizer cannot see. This counter shows it that order, and no other.
#[cfg(squall_tsan)]
static ENDS: AtomicUsize = AtomicUsize::new(0);

/// Tells ThreadSanitizer that an address range is about to end.
#[inline]
pub(crate) fn tsan_end() {
    // Release: the accesses to the range pair with the Acquire in `tsan_begin`, when its addresses begin
    // again.
    #[cfg(squall_tsan)]
    ENDS.fetch_add(1, Ordering::Release);
}

/// Tells ThreadSanitizer that an address range has begun.
#[inline]
pub(crate) fn tsan_begin() {
    // Acquire: pairs with the Release in `tsan_end` of every end so far: each increment continues the release
    // sequence.
    #[cfg(squall_tsan)]
    ENDS.load(Ordering::Acquire);
}

/// Maps zeroed memory, or returns `None` if there is no memory.
pub(crate) fn map(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    retry();
    let at = pages::map(bytes, align, defer).ok();
    tsan_begin();
    at
}

/// Unmaps a mapping or a part of one: now, or later if the kernel refuses.
///
/// # Safety
/// The contract of [`pages::unmap`].
pub(crate) unsafe fn unmap(at: *mut u8, bytes: usize) {
    tsan_end();
    // SAFETY: passed on.
    if unsafe { pages::unmap(at, bytes) }.is_err() {
        // SAFETY: as above. If this fails, too, the memory goes back with the addresses.
        let _ = unsafe { pages::discard(at, bytes) };
        defer(at, bytes);
    }
    retry();
}

/// Bytes of the recorded address ranges.
pub(crate) fn deferred_bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

fn defer(at: *mut u8, bytes: usize) {
    for range in &DEFERRED {
        // Relaxed: the range has no user, and its other stores are published by the Release below.
        if range.at.compare_exchange(NONE, BUSY, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            range.bytes.store(bytes, Ordering::Relaxed);
            COUNT.fetch_add(1, Ordering::Relaxed);
            BYTES.fetch_add(bytes, Ordering::Relaxed);
            // Release: pairs with the Acquire in `retry`.
            range.at.store(at.expose_provenance(), Ordering::Release);
            return;
        }
    }
}

/// Tries again to unmap some recorded ranges, until the kernel refuses to unmap one.
#[inline]
pub(crate) fn retry() {
    // Relaxed: a hint.
    if COUNT.load(Ordering::Relaxed) != 0 {
        retry_some();
    }
}

#[cold]
fn retry_some() {
    let noted = DEFERRED.iter().filter_map(|range| {
        let at = range.at.load(Ordering::Relaxed);
        (at > BUSY).then_some((range, at))
    });
    for (range, at) in noted.take(TRIES_MAX) {
        // Acquire: pairs with the Release in `defer`. If it fails, another thread has the range.
        if range.at.compare_exchange(at, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
            continue;
        }
        let bytes = range.bytes.load(Ordering::Relaxed);
        tsan_end();
        // SAFETY: a range without users that we have alone (I1).
        if unsafe { pages::unmap(std::ptr::with_exposed_provenance_mut(at), bytes) }.is_err() {
            // Release: as in `defer`.
            range.at.store(at, Ordering::Release);
            return;
        }
        COUNT.fetch_sub(1, Ordering::Relaxed);
        BYTES.fetch_sub(bytes, Ordering::Relaxed);
        // Relaxed: the next thread that records a range here stores all of it anew.
        range.at.store(NONE, Ordering::Relaxed);
    }
}
