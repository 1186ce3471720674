//! Bytes handed out by the C library's allocator, for `map-memory`.
//!
//! Rust's default allocator is the C library's `malloc`, which keeps its own account. So allocations, which
//! other cases of this program measure, need no hook. The account includes the overhead of each allocation
//! and its rounding.

/// Bytes handed out by our allocator, if all tests are to run on it.
#[cfg(squall_global_alloc)]
pub(crate) fn bytes() -> Option<usize> {
    let stats = squall::alloc::stats()?;
    let classes = stats.vps.iter().flat_map(|vp| &vp.classes);
    let of_slabs = classes.map(|class| class.used_count as usize * class.block_bytes).sum::<usize>();
    Some(of_slabs + stats.large_bytes)
}

/// Bytes handed out and not given back, with the overhead of each allocation; absent if the C library keeps
/// no account.
#[cfg(all(target_env = "gnu", not(squall_global_alloc)))]
pub(crate) fn bytes() -> Option<usize> {
    // SAFETY: `mallinfo2` has no condition: it takes the allocator's own locks to read its counts.
    let info = unsafe { libc::mallinfo2() };
    // All arenas, plus separate mappings for large allocations.
    Some(info.uordblks + info.hblkhd)
}

/// Bytes handed out and not given back; absent if the C library keeps no account.
#[cfg(not(any(target_env = "gnu", squall_global_alloc)))]
pub(crate) fn bytes() -> Option<usize> {
    None
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_allocations_are_counted() {
        // Upper bound of the bytes that other tests allocate meanwhile.
        const OTHERS: usize = 512 << 20;
        let before = bytes().expect("glibc says");
        let large = std::hint::black_box(vec![0u8; 2 * OTHERS]);
        assert!(bytes().expect("it says it again") + OTHERS > before + large.len());
    }
}
