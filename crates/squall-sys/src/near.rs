//! Read of a static without the global offset table, from any crate.
//!
//! Problem: the compiler reads another crate's static through a pointer to it. That is one load more, on a
//! path of a dozen instructions. Idea: the load is written in assembly, which addresses the static by its
//! distance.
//!
//! Not promised: use through a Rust `dylib`, where that distance is unknown.
//! Cost: one load.

/// Loads an eight-byte atomic static, relaxed. `$type` is the type of the value: an integer or a pointer.
#[macro_export]
macro_rules! near_static {
    ($static:path, $type:ty) => {{
        #[cfg(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64"),
            target_pointer_width = "64",
            not(any(miri, squall_tsan))
        ))]
        {
            let value: $type;
            // SAFETY: an aligned eight-byte load of the static, equivalent to a relaxed one.
            unsafe {
                #[cfg(target_arch = "x86_64")]
                ::core::arch::asm!(
                    "mov {0}, qword ptr [rip + {1}]",
                    lateout(reg) value,
                    sym $static,
                    options(pure, readonly, nostack, preserves_flags),
                );
                #[cfg(target_arch = "aarch64")]
                ::core::arch::asm!(
                    "adrp {0}, {1}",
                    "ldr {0}, [{0}, #:lo12:{1}]",
                    lateout(reg) value,
                    sym $static,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            value
        }
        #[cfg(not(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64"),
            target_pointer_width = "64",
            not(any(miri, squall_tsan))
        )))]
        {
            // ThreadSanitizer knows no order by dependency, which a reader of a pointer may rely on.
            #[cfg(squall_tsan)]
            const ORDER: ::core::sync::atomic::Ordering = ::core::sync::atomic::Ordering::Acquire;
            #[cfg(not(squall_tsan))]
            const ORDER: ::core::sync::atomic::Ordering = ::core::sync::atomic::Ordering::Relaxed;
            let value: $type = $static.load(ORDER);
            value
        }
    }};
}
