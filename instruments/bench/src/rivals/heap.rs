//! What the C library's allocator has handed out: for `map-memory`, which counts what a map takes, whoever allocates it.
//!
//! Rust's default allocator is the C library's `malloc`. It keeps count by itself, so nothing is put in the way of allocations,
//! which other cases of this program measure. What it adds to each allocation, and what it rounds up, is in its count, and is paid.

/// The same of ours, where all tests are to run on it.
#[cfg(squall_global_alloc)]
pub(crate) fn bytes() -> Option<usize> {
    let stats = squall::alloc::stats()?;
    let classes = stats.vps.iter().flat_map(|vp| &vp.classes);
    let of_slabs = classes.map(|class| class.used_count as usize * class.block_bytes).sum::<usize>();
    Some(of_slabs + stats.large_bytes)
}

/// Bytes handed out and not given back, its own of each allocation included; none where the C library does not say.
#[cfg(all(target_env = "gnu", not(squall_global_alloc)))]
pub(crate) fn bytes() -> Option<usize> {
    // SAFETY: `mallinfo2` takes nothing, and asks for nothing: it takes the allocator's own locks to read its counts.
    let info = unsafe { libc::mallinfo2() };
    // Of all arenas, and what it mapped on its own for large allocations.
    Some(info.uordblks + info.hblkhd)
}

/// Bytes handed out and not given back; none where the C library does not say.
#[cfg(not(any(target_env = "gnu", squall_global_alloc)))]
pub(crate) fn bytes() -> Option<usize> {
    None
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_out_is_counted_small_or_large() {
        // Other tests allocate meanwhile: less than this at any time.
        const OTHERS: usize = 512 << 20;
        let before = bytes().expect("glibc says");
        let large = std::hint::black_box(vec![0u8; 2 * OTHERS]);
        assert!(bytes().expect("it says it again") + OTHERS > before + large.len());
    }
}
