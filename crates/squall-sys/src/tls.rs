//! A thread-local pointer that any crate reads in two instructions, without link-time optimisation.
//!
//! Problem: std's `thread_local!` is not inlined across crates, and its call costs more than everything else
//! on a fast path. Idea: `global_asm!` defines the symbol, and inline assembly reads it in the initial-exec
//! model.
//!
//! - I1. The pointer of a thread holds the address of the initial static until that thread sets it; no other
//!   thread can.
//!
//! Not promised: use through a Rust `dylib`, because the symbol is hidden in the object that is linked. A
//! library that is loaded while the program runs may find no room in the static thread-local block; the
//! loader then reports an error.
//! Cost: two loads; in an executable the linker turns the first into a constant.

/// Defines `current() -> *const T` and `set_current(*const T)` over a thread-local pointer that starts as
/// `&INIT`.
///
/// `$symbol` must be unique in the whole program: put the crate's name and version in it.
#[macro_export]
macro_rules! thread_pointer {
    ($symbol:literal, $type:ty, $init:path) => {
        $crate::__thread_pointer_asm!($symbol, $type, $init);
        $crate::__thread_pointer_std!($symbol, $type, $init);
    };
}

/// Not public: the form over an assembler symbol.
#[doc(hidden)]
#[macro_export]
macro_rules! __thread_pointer_asm {
    ($symbol:literal, $type:ty, $init:path) => {
        #[cfg(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64"),
            target_pointer_width = "64",
            not(miri)
        ))]
        ::core::arch::global_asm!(
            concat!(".pushsection .tdata.", $symbol, ",\"awT\",%progbits"),
            ".p2align 3",
            concat!(".globl ", $symbol),
            concat!(".hidden ", $symbol),
            concat!(".type ", $symbol, ",%object"),
            concat!($symbol, ":"),
            ".quad {init}",
            concat!(".size ", $symbol, ", 8"),
            ".popsection",
            init = sym $init,
        );

        /// Returns the calling thread's pointer.
        #[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
        #[inline(always)]
        pub(crate) fn current() -> *const $type {
            let value: *const $type;
            // SAFETY: reads the eight bytes of this thread's copy of the symbol, at the offset the linker
            // gave it.
            unsafe {
                ::core::arch::asm!(
                    concat!("mov {0}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "mov {0}, qword ptr fs:[{0}]",
                    out(reg) value,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            value
        }

        /// Sets the calling thread's pointer.
        #[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
        pub(crate) fn set_current(value: *const $type) {
            // SAFETY: writes the eight bytes of this thread's copy of the symbol, which no other thread
            // reads.
            unsafe {
                ::core::arch::asm!(
                    concat!("mov {0}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "mov qword ptr fs:[{0}], {1}",
                    out(reg) _,
                    in(reg) value,
                    options(nostack, preserves_flags),
                );
            }
        }

        /// Returns the calling thread's pointer.
        #[cfg(all(target_os = "linux", target_arch = "aarch64", target_pointer_width = "64", not(miri)))]
        #[inline(always)]
        pub(crate) fn current() -> *const $type {
            let value: *const $type;
            // SAFETY: reads the eight bytes of this thread's copy of the symbol, at the offset the linker
            // gave it.
            unsafe {
                ::core::arch::asm!(
                    "mrs {1}, tpidr_el0",
                    concat!("adrp {0}, :gottprel:", $symbol),
                    concat!("ldr {0}, [{0}, #:gottprel_lo12:", $symbol, "]"),
                    "ldr {0}, [{1}, {0}]",
                    out(reg) value,
                    out(reg) _,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            value
        }

        /// Sets the calling thread's pointer.
        #[cfg(all(target_os = "linux", target_arch = "aarch64", target_pointer_width = "64", not(miri)))]
        pub(crate) fn set_current(value: *const $type) {
            // SAFETY: writes the eight bytes of this thread's copy of the symbol, which no other thread
            // reads.
            unsafe {
                ::core::arch::asm!(
                    "mrs {1}, tpidr_el0",
                    concat!("adrp {0}, :gottprel:", $symbol),
                    concat!("ldr {0}, [{0}, #:gottprel_lo12:", $symbol, "]"),
                    "str {2}, [{1}, {0}]",
                    out(reg) _,
                    out(reg) _,
                    in(reg) value,
                    options(nostack, preserves_flags),
                );
            }
        }
    };
}

/// Not public: the form over std's thread-local storage, for other platforms and for Miri.
#[doc(hidden)]
#[macro_export]
macro_rules! __thread_pointer_std {
    ($symbol:literal, $type:ty, $init:path) => {
        #[cfg(not(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64"),
            target_pointer_width = "64",
            not(miri)
        )))]
        mod portable {
            use super::*;
            ::std::thread_local! {
                // No destructor: readable until the thread is gone.
                static POINTER: ::core::cell::Cell<*const $type> = const { ::core::cell::Cell::new(&raw const $init) };
            }

            /// Returns the calling thread's pointer.
            #[inline]
            pub(crate) fn current() -> *const $type {
                POINTER.with(|pointer| pointer.get())
            }

            /// Sets the calling thread's pointer.
            pub(crate) fn set_current(value: *const $type) {
                POINTER.with(|pointer| pointer.set(value));
            }
        }
        #[cfg(not(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64"),
            target_pointer_width = "64",
            not(miri)
        )))]
        pub(crate) use portable::{current, set_current};
    };
}

/// Returns a number that identifies the calling thread among live threads. It is never zero, and a multiple
/// of a word's alignment. A later thread may get the number of a finished one.
///
/// # Cost
/// One load on x86-64, one instruction on aarch64; elsewhere a thread-local access.
#[inline(always)]
pub fn this_thread() -> usize {
    #[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
    {
        let pointer: usize;
        // SAFETY: the ABI stores the thread pointer at its own address, where it stays for the thread's life.
        unsafe {
            ::core::arch::asm!("mov {0}, qword ptr fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
        }
        pointer
    }
    #[cfg(all(target_os = "linux", target_arch = "aarch64", target_pointer_width = "64", not(miri)))]
    {
        let pointer: usize;
        // SAFETY: reads the thread pointer, which stays the same for the thread's life.
        unsafe {
            ::core::arch::asm!("mrs {0}, tpidr_el0", out(reg) pointer, options(pure, nomem, nostack, preserves_flags));
        }
        pointer
    }
    #[cfg(not(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64"),
        target_pointer_width = "64",
        not(miri)
    )))]
    {
        ::std::thread_local! {
            static HERE: u64 = const { 0 };
        }
        HERE.with(|here| ::std::ptr::from_ref(here).addr())
    }
}

#[cfg(test)]
mod tests {
    use super::this_thread;

    #[test]
    fn a_thread_has_one_number_of_its_own() {
        let here = this_thread();
        let there = std::thread::spawn(|| (this_thread(), this_thread())).join().unwrap();
        assert_eq!((here, there.0), (this_thread(), there.1));
        assert!(here != there.0 && here != 0 && here.is_multiple_of(align_of::<usize>()));
    }
}
