//! Size classes: the class that serves a size, and the number of blocks of each class that a VP may cache.
//!
//! Three placements share the classes. *General* blocks (16 bytes to 512 KiB) are packed, as in a global
//! allocator. *Strictly local* blocks have slabs of their own for the sizes that are not whole lines. Their
//! neighbours are then strictly local, too. *Shared* blocks are general blocks of whole pairs of lines.
//!
//! - I1. The size of a class is a multiple of 16. A block that serves an alignment up to a page has a size
//!   that is a multiple of that alignment. Slabs begin at multiples of [`SLAB_BYTES`], so every block lies at
//!   a multiple of its alignment.
//! - I2. If the size of a class is a multiple of [`LINES_BYTES`], its blocks share no pair of lines with any
//!   other block.
//! - I3. A VP caches at most [`BOUND_BYTES`] (bytes of blocks in its magazines and in its outbox).
//! - I4. If the requested size of a strictly local block is a multiple of [`LINE_BYTES`], so is the size of
//!   its class. The block shares no line with any other block.
//!
//! Source: jemalloc for four classes per doubling; Tornado §4 for the second pool of strictly local blocks.

use std::alloc::Layout;

/// Bytes of a unit of slabs, and the alignment of a unit.
pub(crate) const SLAB_BYTES: usize = 1 << SLAB_SHIFT;
/// The binary logarithm of [`SLAB_BYTES`].
pub(crate) const SLAB_SHIFT: u32 = 16;
/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;
/// Bytes of two cache lines, which some processors fetch together.
pub(crate) const LINES_BYTES: usize = 128;
/// Bytes of a step of the tables below.
pub(crate) const STEP_BYTES: usize = 16;
/// The largest size that a table maps to its class.
pub(crate) const SMALL_MAX: usize = 8 << 10;
/// The largest size that comes from slabs. Larger blocks come from the system.
pub(crate) const SLAB_MAX: usize = 512 << 10;
/// The largest strictly local block. Larger ones are blocks of whole lines, from general classes.
pub(crate) const LOCAL_MAX: usize = 1 << 10;
/// The largest alignment of blocks from slabs.
pub(crate) const ALIGN_MAX: usize = 4096;
/// The most blocks that are moved at once.
pub(crate) const BATCH_MAX: usize = if cfg!(loom) { 4 } else { 128 };
/// Number of other VPs' blocks that a VP collects before it sends them home.
pub(crate) const OUTBOX_CAPACITY: usize = if cfg!(miri) { 8 } else { 128 };

/// Bytes of the longest blocks that wait in an outbox.
pub(crate) const OUTBOX_BLOCK_MAX: usize = 4 << 10;

const GENERAL_SMALL: usize = 32;
const GENERAL: usize = GENERAL_SMALL + 24;
/// The number of classes.
pub(crate) const COUNT: usize = GENERAL + LOCAL_SIZES.len();
const LOCAL_SIZES: [usize; 12] = [16, 32, 48, 64, 80, 96, 112, 160, 192, 224, 320, 448];

const fn sizes() -> [usize; COUNT] {
    let mut sizes = [0; COUNT];
    let mut class = 0;
    while class < 8 {
        sizes[class] = STEP_BYTES * (class + 1);
        class += 1;
    }
    while class < GENERAL {
        let (doubling, quarter) = ((class - 8) / 4, (class - 8) % 4 + 1);
        let base = 128 << doubling;
        sizes[class] = base + base / 4 * quarter;
        class += 1;
    }
    while class < COUNT {
        sizes[class] = LOCAL_SIZES[class - GENERAL];
        class += 1;
    }
    sizes
}

/// Bytes of a block, by class.
pub(crate) const SIZES: [usize; COUNT] = sizes();

const fn capacity(size: usize) -> usize {
    let most = match size {
        0..=256 => 256,
        257..=1024 => 128,
        1025..=2048 => 64,
        2049..=4096 => 32,
        4097..=8192 => 16,
        8193..=16384 => 8,
        16385..=32768 => 4,
        32769..=65536 => 2,
        _ => 0,
    };
    if cfg!(miri) && most > 4 { 4 } else { most }
}

const fn capacities() -> [usize; COUNT] {
    let mut capacities = [0; COUNT];
    let mut class = 0;
    while class < COUNT {
        capacities[class] = capacity(SIZES[class]);
        if class >= GENERAL && capacities[class] > 128 {
            capacities[class] = 128;
        }
        class += 1;
    }
    capacities
}

/// The most blocks that a VP caches, by class.
pub(crate) const CAPACITIES: [usize; COUNT] = capacities();

const fn bound() -> usize {
    let (mut bytes, mut class) = (OUTBOX_CAPACITY * OUTBOX_BLOCK_MAX, 0);
    while class < COUNT {
        bytes += CAPACITIES[class] * SIZES[class];
        class += 1;
    }
    bytes
}

/// The most bytes of free blocks that one VP caches. Blocks of other VPs that wait to be sent home are
/// included.
///
/// # Example
/// ```
/// let stats = squall::alloc::stats().expect("there is memory");
/// for vp in &stats.vps {
///     assert!(vp.cached_bytes() + vp.outbox_bytes_max() <= squall::alloc::BOUND_BYTES as u64);
/// }
/// ```
pub const BOUND_BYTES: usize = bound();
const _: () = assert!(BOUND_BYTES <= 9 << 19);

/// Units of a slab that a VP keeps as a spare when all its blocks are free.
pub(crate) const SPARE_UNITS: usize = if cfg!(loom) { 32 } else { 1 };
/// The most spare slabs of a VP.
pub(crate) const SPARES_MAX: u32 = if cfg!(miri) { 1 } else { 48 };
/// The most bytes of empty slabs that one VP keeps, in addition to its cached blocks.
///
/// # Example
/// ```
/// let stats = squall::alloc::stats().expect("there is memory");
/// assert!(stats.vps.iter().all(|vp| vp.spare_bytes <= squall::alloc::SPARE_BYTES as u64));
/// ```
pub const SPARE_BYTES: usize = SPARES_MAX as usize * SPARE_UNITS * SLAB_BYTES;

/// The number of units of [`SLAB_BYTES`] in a slab of this class, a power of two.
pub(crate) const fn units(class: usize) -> usize {
    match SIZES[class] {
        0..=SMALL_MAX => 1,
        8193..=65536 => 8,
        65537..=131072 => 16,
        _ => 32,
    }
}

const fn counts() -> [u32; COUNT] {
    let mut counts = [0; COUNT];
    let mut class = 0;
    while class < COUNT {
        counts[class] = (units(class) * SLAB_BYTES / SIZES[class]) as u32;
        class += 1;
    }
    counts
}

/// The number of blocks in a slab, by class.
pub(crate) const COUNTS: [u32; COUNT] = counts();

const fn reciprocals() -> [u64; COUNT] {
    let mut reciprocals = [0; COUNT];
    let mut class = 0;
    while class < COUNT {
        reciprocals[class] = (1u64 << 32).div_ceil(SIZES[class] as u64);
        class += 1;
    }
    reciprocals
}

const RECIPROCALS: [u64; COUNT] = reciprocals();

/// Returns the index of the block of a slab that begins at `offset`, or `None` if no block begins there.
/// Avoids a division.
#[inline]
pub(crate) const fn block_at(class: usize, offset: usize) -> Option<usize> {
    let index = ((offset as u64 * RECIPROCALS[class]) >> 32) as usize;
    if index * SIZES[class] == offset && index < COUNTS[class] as usize { Some(index) } else { None }
}

/// The number of slots of the table of general classes. The slot of a size is `size.div_ceil(STEP_BYTES)`.
pub(crate) const GENERAL_SLOTS: usize = SMALL_MAX / STEP_BYTES + 1;
/// The number of slots of the table of strictly local classes.
pub(crate) const LOCAL_SLOTS: usize = LOCAL_MAX / STEP_BYTES + 1;

const fn general_classes() -> [u8; GENERAL_SLOTS] {
    let mut classes = [0; GENERAL_SLOTS];
    let (mut slot, mut class) = (0, 0);
    while slot < GENERAL_SLOTS {
        if slot * STEP_BYTES > SIZES[class] {
            class += 1;
        }
        classes[slot] = class as u8;
        slot += 1;
    }
    classes
}

/// The general class of each slot.
pub(crate) static GENERAL_CLASSES: [u8; GENERAL_SLOTS] = general_classes();

const fn local_classes() -> [u8; LOCAL_SLOTS] {
    let mut classes = [0; LOCAL_SLOTS];
    let mut slot = 0;
    while slot < LOCAL_SLOTS {
        // The smallest class that fits: a strictly local class or one of whole pairs of lines.
        let mut best = COUNT;
        let mut class = 0;
        while class < COUNT {
            let whole = class < GENERAL && SIZES[class].is_multiple_of(LINES_BYTES);
            let fits = SIZES[class] >= slot * STEP_BYTES && (whole || class >= GENERAL);
            if fits && (best == COUNT || SIZES[class] < SIZES[best]) {
                best = class;
            }
            class += 1;
        }
        classes[slot] = best as u8;
        slot += 1;
    }
    classes
}

/// The strictly local class of each slot.
pub(crate) static LOCAL_CLASSES: [u8; LOCAL_SLOTS] = local_classes();

/// Returns whether another VP of the same page pool may keep blocks of this class (`magazine/I2`). Each such
/// block is whole lines of [`LINE_BYTES`], so two users never share one.
pub(crate) const fn may_be_kept(class: usize) -> bool {
    class < GENERAL && SIZES[class].is_multiple_of(LINE_BYTES)
}

/// Returns whether the blocks of this class are strictly local.
pub(crate) const fn is_local(class: usize) -> bool {
    class >= GENERAL
}

/// The slot of a size.
#[inline(always)]
pub(crate) const fn slot(size: usize) -> usize {
    // `div_ceil` would cost two more instructions. A layout ends below the highest address, so the sum fits.
    (size + (STEP_BYTES - 1)) >> STEP_BYTES.trailing_zeros()
}

/// Returns whether the slot of the size alone gives the class of a layout: all blocks of that class lie at
/// multiples of the alignment.
#[inline(always)]
pub(crate) const fn is_by_size(layout: &Layout) -> bool {
    let (size, align) = (layout.size(), layout.align());
    size <= SMALL_MAX
        && (align <= STEP_BYTES || align <= LINES_BYTES && size.is_multiple_of(align) && size > 0)
}

/// Returns whether the layout alone shows, by [`is_by_size`], that the freeing VP may keep the block. Sizes
/// that are rounded up to a multiple of a line are left out: the branch then stays predictable for random
/// sizes.
#[inline(always)]
pub(crate) const fn is_of_lines(layout: &Layout) -> bool {
    layout.size().is_multiple_of(LINE_BYTES) && is_by_size(layout) && layout.size() > 0
}

/// Returns whether a block of this layout comes from a slab (`raw/I1`). Any other block is a mapping of its
/// own.
#[doc(hidden)]
#[inline(always)]
pub const fn is_of_slab(layout: &Layout) -> bool {
    layout.size() <= SLAB_MAX && layout.align() <= ALIGN_MAX
}

/// The general class for `size` bytes at a multiple of `align`. `size` is at most [`SLAB_MAX`] and `align` at
/// most [`ALIGN_MAX`].
pub(crate) fn general(size: usize, align: usize) -> usize {
    let size = size.next_multiple_of(align.max(1));
    let mut class = if size <= SMALL_MAX {
        GENERAL_CLASSES[slot(size)] as usize
    } else {
        // The doubling that contains the size, and its quarter.
        let doubling = (size - 1).ilog2() - 7;
        let base = 128usize << doubling;
        8 + 4 * doubling as usize + (size - base - 1) / (base / 4)
    };
    while !SIZES[class].is_multiple_of(align) {
        class += 1;
    }
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rise_in_each_pool_and_are_multiples_of_sixteen() {
        assert!(SIZES[..GENERAL].is_sorted_by(|a, b| a < b) && SIZES[GENERAL..].is_sorted_by(|a, b| a < b));
        assert!(SIZES.iter().all(|size| size.is_multiple_of(STEP_BYTES)));
        assert_eq!((SIZES[0], SIZES[GENERAL_SMALL - 1], SIZES[GENERAL - 1]), (16, SMALL_MAX, SLAB_MAX));
    }

    #[test]
    fn every_size_and_alignment_has_the_least_class_that_serves_it() {
        for size in (1..2000).chain((2000..=SLAB_MAX).step_by(97)).chain([SMALL_MAX, SMALL_MAX + 1, SLAB_MAX])
        {
            for align in [1, 8, 16, 32, 64, 128, 1024, ALIGN_MAX] {
                let class = general(size, align);
                assert!(class < GENERAL, "{size} {align}");
                assert!(SIZES[class] >= size && SIZES[class].is_multiple_of(align), "{size} {align}");
                let least = (0..GENERAL).find(|c| SIZES[*c] >= size && SIZES[*c].is_multiple_of(align));
                assert!(SIZES[class] == SIZES[least.unwrap()] || align > 16, "{size} {align}");
            }
        }
        for size in 1..=LOCAL_MAX {
            let class = LOCAL_CLASSES[slot(size)] as usize;
            for align in [16, 32, LINE_BYTES] {
                assert!(!size.is_multiple_of(align) || SIZES[class].is_multiple_of(align), "{size} {align}");
            }
            assert!(SIZES[class] >= size && (class >= GENERAL || SIZES[class].is_multiple_of(LINES_BYTES)));
        }
    }

    #[test]
    fn blocks_of_a_size_class_are_aligned() {
        for align in [1, 2, 16, 32, 64, 128, 256, ALIGN_MAX] {
            for size in 1..=SMALL_MAX + LINES_BYTES {
                let layout = Layout::from_size_align(size, align).unwrap();
                if !is_by_size(&layout) {
                    assert!(
                        size > SMALL_MAX || align > LINES_BYTES || align > STEP_BYTES && size % align > 0
                    );
                    assert!(!is_of_lines(&layout));
                    continue;
                }
                let class = GENERAL_CLASSES[slot(size)] as usize;
                assert!(SIZES[class].is_multiple_of(align.max(STEP_BYTES)), "{size} {align}");
                // A resize in place and the slow path rely on this equality (`raw/I4`).
                assert_eq!(class, general(size, align), "{size} {align}");
                assert_eq!(is_of_lines(&layout), size.is_multiple_of(LINE_BYTES));
                assert!(!is_of_lines(&layout) || may_be_kept(class), "{size} {align}");
            }
        }
    }

    #[test]
    fn a_block_is_found_by_its_offset_and_by_no_other() {
        for class in 0..COUNT {
            for index in 0..COUNTS[class] as usize {
                let offset = index * SIZES[class];
                assert_eq!(block_at(class, offset), Some(index));
                assert_eq!(block_at(class, offset + 1), None);
                assert_eq!(block_at(class, offset + SIZES[class] - 1), None);
            }
            assert_eq!(block_at(class, COUNTS[class] as usize * SIZES[class]), None);
        }
    }
}
