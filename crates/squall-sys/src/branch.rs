//! Branches that stay branches.

/// Marks the branch that contains this call as unlikely, and keeps it a branch.
///
/// The compiler could replace the branch by a conditional move. Later instructions then wait for the
/// condition, which a predicted branch lets them pass. Before Rust 1.95 the branch is kept, but may lie in
/// the way of the likely path.
///
/// # Cost
/// No instruction.
#[inline(always)]
pub fn unlikely() {
    #[cfg(squall_cold_path)]
    #[allow(clippy::incompatible_msrv, reason = "the build script asked the compiler")]
    std::hint::cold_path();
    #[cfg(all(not(squall_cold_path), any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    // SAFETY: the assembly is empty.
    unsafe {
        std::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
}
