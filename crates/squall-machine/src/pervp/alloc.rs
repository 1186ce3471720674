//! Allocator of per-VP extents: the same offset in one part per VP.
//!
//! A chunk is one mapping, cut into a part of [`PART_BYTES`] per VP. An *extent* is a run of granules at one
//! offset of a chunk. Its home is its address in the part of VP 0; in the part of VP v it is at `home + (v <<
//! SHIFT)`. Offsets are found first-fit in a bitmap of the part's granules, under a lock. Creating and
//! dropping a per-VP object is a cold path, and the bitmap of a chunk has only 1 KiB to search.
//!
//! - I1. A free granule holds zeros in every part. A granule in use belongs to exactly one extent.
//! - I2. Chunks are never unmapped and never move, so an address in a part is valid for the life of the
//!   process.
//! - I3. Only the owner of an extent touches its bytes. So a thread of the VP touches a page of the part
//!   first, and the kernel places it near.
//!
//! Not promised: empty chunks are not returned to the system; the choice of the next extent is unspecified.
//! Cost: address space of [`PART_BYTES`] per VP and chunk; memory only for pages that are touched.
//! Source: the Linux kernel's per-CPU allocator (`mm/percpu.c`), without its page-by-page population.

use super::mode;
use squall_sys::sync::{Mutex, MutexGuard};
use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;

/// Distance between the parts of neighbouring VPs, as a power of two.
#[doc(hidden)]
pub const SHIFT: u32 = if cfg!(miri) { 14 } else { 16 };
/// Size of a part in bytes: the share of a chunk that each VP has.
pub(crate) const PART_BYTES: usize = 1 << SHIFT;
const GRANULE_BYTES: usize = 8;
const GRANULES: usize = PART_BYTES / GRANULE_BYTES;
const MAP_WORDS: usize = GRANULES / 64;
/// Largest alignment of an extent, in bytes: two cache lines, which some processors fetch together.
pub(crate) const ALIGN_MAX: usize = 128;

/// Error: the system has no address space for another chunk of per-VP memory, or the program's allocator has
/// no memory.
#[derive(Debug)]
pub struct OutOfMemory {
    /// Size of the request to the system or the allocator, in bytes.
    pub reserve_bytes: usize,
    /// The system's error.
    pub cause: std::io::Error,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot reserve {} bytes for per-VP data; raise the limit of address space: {}",
            self.reserve_bytes, self.cause
        )
    }
}

impl std::error::Error for OutOfMemory {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Per-VP memory in use by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerVpStats {
    /// Number of mappings made. They are kept for the life of the process.
    pub chunks_count: usize,
    /// Reserved address space, in bytes. Memory is used only for pages that were touched.
    pub reserved_bytes: usize,
    /// Bytes in each VP's parts that belong to live objects.
    pub bytes_per_vp: usize,
}

struct Chunk {
    /// Start of VP 0's part. Its provenance covers the whole chunk.
    base: NonNull<u8>,
    /// Bitmap of granules; a set bit is a granule in use.
    used: [u64; MAP_WORDS],
    used_count: usize,
}

// SAFETY: the pointer is the address of a mapping that every thread may use; the chunk holds no
// thread-specific state.
unsafe impl Send for Chunk {}

static CHUNKS: Mutex<Vec<Chunk>> = Mutex::new(Vec::new());

fn chunks() -> MutexGuard<'static, Vec<Chunk>> {
    // Poison is harmless: a panic under the lock is a failed assertion before any change.
    squall_sys::sync::lock(&CHUNKS, "per-VP memory")
}

impl Chunk {
    fn is_used(&self, granule: usize) -> bool {
        self.used[granule / 64] & (1 << (granule % 64)) != 0
    }

    fn mark(&mut self, first: usize, count: usize, used: bool) {
        for granule in first..first + count {
            assert!(self.is_used(granule) != used, "a per-VP granule was taken or freed twice");
            self.used[granule / 64] ^= 1 << (granule % 64);
        }
        self.used_count = if used { self.used_count + count } else { self.used_count - count };
    }

    /// Finds a free run of `count` granules at a multiple of `align`. Returns its first granule.
    fn find(&self, count: usize, align: usize) -> Option<usize> {
        if GRANULES - self.used_count < count {
            return None;
        }
        let mut first = 0;
        while first + count <= GRANULES {
            if self.used[first / 64] == u64::MAX {
                first = (first / 64 + 1) * 64;
                continue;
            }
            match (first..first + count).rev().find(|&granule| self.is_used(granule)) {
                None => return Some(first),
                // A run that begins at or before a used granule would contain it.
                Some(used) => first = (used + 1).next_multiple_of(align),
            }
        }
        None
    }
}

/// Allocates an extent of `bytes` bytes at a multiple of `align`, zero in every part. Returns its home.
///
/// # Panics
/// If `bytes` is 0 or more than a part, or `align` is not a power of two up to [`ALIGN_MAX`].
pub(crate) fn allocate(bytes: usize, align: usize) -> Result<NonNull<u8>, OutOfMemory> {
    assert!(
        bytes > 0 && bytes <= PART_BYTES,
        "a per-VP extent of {bytes} bytes was requested; 1 to {PART_BYTES} are possible"
    );
    assert!(
        align.is_power_of_two() && align <= ALIGN_MAX,
        "a per-VP extent with alignment {align} was requested; powers of two up to {ALIGN_MAX} are possible"
    );
    mode::initialise();
    let count = bytes.div_ceil(GRANULE_BYTES);
    let align = (align / GRANULE_BYTES).max(1);
    let mut chunks = chunks();
    for chunk in chunks.iter_mut() {
        if let Some(first) = chunk.find(count, align) {
            chunk.mark(first, count, true);
            return Ok(extent(chunk.base, first));
        }
    }
    chunks.try_reserve(1).map_err(|_| no_memory(size_of::<Chunk>()))?;
    let reserve_bytes = parts() << SHIFT;
    let base = squall_sys::rseq_memory::reserve(reserve_bytes)
        .map_err(|cause| OutOfMemory { reserve_bytes, cause })?;
    let mut chunk = Chunk { base, used: [0; MAP_WORDS], used_count: 0 };
    chunk.mark(0, count, true);
    chunks.push(chunk);
    Ok(extent(base, 0))
}

/// The error for a failed allocation of the program's allocator.
fn no_memory(bytes: usize) -> OutOfMemory {
    OutOfMemory { reserve_bytes: bytes, cause: std::io::ErrorKind::OutOfMemory.into() }
}

/// Moves `value` to the heap.
pub(crate) fn boxed<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        return Ok(Box::new(value));
    }
    // SAFETY: the size is above 0.
    let place = NonNull::new(unsafe { std::alloc::alloc(layout) }).ok_or_else(|| no_memory(layout.size()))?;
    let place = place.cast::<T>().as_ptr();
    // SAFETY: our own block of the layout of a `T`, from the allocator that a box frees to.
    unsafe {
        place.write(value);
        Ok(Box::from_raw(place))
    }
}

fn extent(base: NonNull<u8>, first: usize) -> NonNull<u8> {
    // SAFETY: `first` is a granule of the chunk's first part, so the address is within the mapping.
    unsafe { base.add(first * GRANULE_BYTES) }
}

/// Frees an extent.
///
/// # Safety
/// `home` and `bytes` are those of an extent from [`allocate`]. The extent holds zeros in every part, and no
/// thread uses it any more.
pub(crate) unsafe fn release(home: NonNull<u8>, bytes: usize) {
    // In the child of a fork the lock may be held for ever, so the extent is leaked.
    if squall_sys::fork::forked() {
        return;
    }
    let address = home.addr().get();
    let mut chunks = chunks();
    let chunk = chunks
        .iter_mut()
        .find(|chunk| (chunk.base.addr().get()..chunk.base.addr().get() + PART_BYTES).contains(&address))
        .expect("a per-VP extent was released that lies in no chunk");
    let first = (address - chunk.base.addr().get()) / GRANULE_BYTES;
    chunk.mark(first, bytes.div_ceil(GRANULE_BYTES), false);
}

/// Returns the number of parts of each chunk.
#[inline]
pub(crate) fn parts() -> usize {
    mode::vp_limit()
}

/// Returns the amount of per-VP memory that this process uses.
///
/// # Example
/// ```
/// let _counter = squall::pervp::PerVpWord::new();
/// assert!(squall::pervp::stats().bytes_per_vp >= 8);
/// ```
pub fn stats() -> PerVpStats {
    mode::initialise();
    let chunks = chunks();
    PerVpStats {
        chunks_count: chunks.len(),
        reserved_bytes: chunks.len() * (parts() << SHIFT),
        bytes_per_vp: chunks.iter().map(|chunk| chunk.used_count * GRANULE_BYTES).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk() -> Chunk {
        Chunk { base: NonNull::dangling(), used: [0; MAP_WORDS], used_count: 0 }
    }

    #[test]
    fn extents_are_aligned_and_disjoint() {
        let mut chunk = chunk();
        let mut taken = Vec::new();
        // Mixed sizes and alignments until the chunk is full, then again after freeing every other extent.
        let sizes = [(1, 1), (3, 1), (2, 2), (16, 16), (5, 8), (40, 16)];
        for round in 0..2 {
            for &(count, align) in sizes.iter().cycle() {
                let Some(first) = chunk.find(count, align) else { break };
                assert_eq!(first % align, 0);
                chunk.mark(first, count, true);
                taken.push((first, count));
            }
            let in_use: usize = taken.iter().map(|&(_, count)| count).sum();
            assert_eq!(chunk.used_count, in_use, "round {round}");
            assert_eq!(chunk.used.iter().map(|word| word.count_ones() as usize).sum::<usize>(), in_use);
            let mut index = 0;
            taken.retain(|&(first, count)| {
                index += 1;
                if index % 2 == 0 {
                    chunk.mark(first, count, false);
                }
                index % 2 != 0
            });
        }
        for (first, count) in taken {
            chunk.mark(first, count, false);
        }
        assert_eq!(chunk.used, [0; MAP_WORDS]);
        assert_eq!(chunk.find(GRANULES, 16), Some(0));
    }

    #[test]
    #[should_panic(expected = "taken or freed twice")]
    fn a_granule_is_not_freed_twice() {
        let mut chunk = chunk();
        chunk.mark(7, 1, true);
        chunk.mark(7, 1, false);
        chunk.mark(7, 1, false);
    }
}
