//! Bound of the addresses for blocks: the call that sets it, and the text for a program that reached it.

use std::fmt;

use crate::address_space::{GROWTH, READY, SET, SETUP, if_set_up};
use crate::classes::SLAB_BYTES;
use crate::page_pool::{SEGMENT_BYTES, SEGMENT_UNITS};
use squall_sys::pages;
use squall_sys::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The bound that the program set, or 0.
static BOUND: AtomicUsize = AtomicUsize::new(0);

/// Bounds the addresses that the allocator reserves for blocks of up to 512 KiB. Call it before the first
/// allocation.
///
/// The number is rounded up to a power of two, and to at least 4 MiB. Addresses count as virtual memory (VSZ)
/// and towards `ulimit -v`; only touched pages are memory. The environment variable
/// `SQUALL_ALLOC_ARENA_MIB` has precedence. A program with [`LocalityAlloc`](crate::LocalityAlloc) as its
/// global allocator allocates before `main`: set the variable there.
///
/// # Errors
/// [`AlreadyReserved`]: the allocator was used before.
/// # Example
/// ```
/// squall::alloc::reserve_at_most(64 << 20)?;
/// # Ok::<(), squall::alloc::AlreadyReserved>(())
/// ```
pub fn reserve_at_most(bytes: usize) -> Result<(), AlreadyReserved> {
    SETUP.with(|| {
        // Relaxed, both: under the lock, as in `set_up`.
        if READY.load(Ordering::Relaxed) == SET {
            return Err(AlreadyReserved { bytes: if_set_up().map_or(0, |space| space.units * SLAB_BYTES) });
        }
        BOUND.store(bytes.max(1), Ordering::Relaxed);
        Ok(())
    })
}

/// Error: the allocator has reserved its addresses already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyReserved {
    /// Addresses reserved for blocks, in bytes.
    pub bytes: usize,
}

impl fmt::Display for AlreadyReserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} MiB are reserved for blocks already: bound them before the first allocation, or set \
             SQUALL_ALLOC_ARENA_MIB",
            self.bytes >> 20
        )
    }
}

impl std::error::Error for AlreadyReserved {}

/// Returns the bound that the program set.
pub(crate) fn chosen() -> Option<usize> {
    // Relaxed: the caller holds the setup lock.
    Some(BOUND.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
}

/// A block range of which all segments are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    used: usize,
    bound: usize,
}

impl Full {
    /// Returns the state of the block range if no further segment can be made usable.
    pub(crate) fn now() -> Option<Full> {
        let space = if_set_up()?;
        let bound = space.units / SEGMENT_UNITS;
        let used = GROWTH.made();
        (used >= bound).then_some(Full { used: used * SEGMENT_BYTES, bound: bound * SEGMENT_BYTES })
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, bound) = (self.used >> 20, self.bound >> 20);
        write!(
            f,
            "{used} MiB are in use for blocks, and the bound is {bound} MiB: set SQUALL_ALLOC_ARENA_MIB higher"
        )
    }
}

/// Writes once to the standard error that the block range is full, if it is: the program's allocation fails.
#[cold]
pub(crate) fn report_full() {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if let Some(full) = Full::now()
        && !REPORTED.swap(true, Ordering::Relaxed)
    {
        crate::fatal::tell(format_args!("{full}"));
    }
}

/// Returns the bytes that the environment asks for.
pub(crate) fn of_environment() -> Option<usize> {
    let text = std::str::from_utf8(pages::variable(c"SQUALL_ALLOC_ARENA_MIB")?).ok()?;
    Some(text.parse::<usize>().ok()?.clamp(4, 1 << 26) << 20)
}
