//! Branches that stay branches.

/// Keeps the branch that contains this call: the compiler cannot replace it by a conditional move.
///
/// A predicted branch lets later instructions begin before its condition is known. A conditional move makes
/// them wait. `std::hint::cold_path` has this purpose too, but needs Rust 1.95, and promises less.
///
/// # Cost
/// No instruction.
#[inline(always)]
pub fn keep() {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    // SAFETY: the assembly is empty.
    unsafe {
        std::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
}
