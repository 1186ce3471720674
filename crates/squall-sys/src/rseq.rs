//! Restartable sequences: whether the thread may run them, and how to restart all sequences in flight.
//!
//! A restartable sequence is a short run of instructions that ends in one store. If the kernel preempts or
//! migrates the thread before that store, or delivers a signal to it, the thread continues at the sequence's
//! abort handler instead. So everything that the sequence read of its processor's data still holds at the
//! store, and no lock prefix is needed.
//!
//! The kernel knows one area per thread. glibc (2.35 and later) registers its own at thread start and
//! publishes the offset. This module finds that area and never registers another. musl registers no area, so
//! musl programs have no sequences.
//!
//! Source: rseq(2); Desnoyers, "Restartable sequences", LPC 2015 to 2018; glibc manual, "Restartable
//! Sequences".

use std::fmt;

/// The four bytes before each abort handler, which the kernel compares with those of the registration. On
/// x86-64 they follow `0f b9 3d`, so that disassemblers show one undefined instruction.
#[cfg(not(target_arch = "aarch64"))]
pub const SIGNATURE: u32 = 0x5305_3053;
/// The four bytes before each abort handler, which the kernel compares with those of the registration: `brk
/// #0x45e0`.
#[cfg(target_arch = "aarch64")]
pub const SIGNATURE: u32 = 0xd428_bc00;

/// Reason why the calling thread has no registered area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoArea {
    /// The sequences do not exist for this platform or build.
    Platform,
    /// The C library registers no areas: it is too old, of another kind, or told not to.
    Library,
    /// The C library registers areas, but the kernel refused this thread's. The number is `cpu_id` of its
    /// area.
    Thread(i32),
}

impl fmt::Display for NoArea {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoArea::Platform => f.write_str("no restartable sequences on this platform"),
            NoArea::Library => f.write_str("the C library registered no restartable sequences"),
            NoArea::Thread(id) => write!(f, "the kernel refused restartable sequences (cpu_id {id})"),
        }
    }
}

/// Means by which [`restart_everywhere`] reached the other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restarted {
    /// Membarrier: exact.
    Membarrier,
    /// A visit to every processor that the thread may run on, and a pause. [`restart_everywhere`] states the
    /// remaining risk.
    Visits {
        /// Number of processors visited.
        visited_count: usize,
    },
}

/// Pause of [`restart_everywhere`] without membarrier, in ms. A sequence takes well below a microsecond
/// unless it is preempted, and a preempted one restarts.
const PAUSE_MS: u64 = 20;

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
))]
mod imp {
    use super::NoArea;
    use crate::area;

    /// Returns the addresses of glibc's `__rseq_offset` and `__rseq_size`, or null pointers if the C library
    /// lacks them.
    ///
    /// By `dlsym` instead of a weak reference. A weak reference would be bound to the symbol's version, so a
    /// program built with a new glibc would not start with an old one.
    #[cfg(not(target_feature = "crt-static"))]
    fn symbols() -> (*const isize, *const u32) {
        use std::ffi::{c_char, c_void};
        unsafe extern "C" {
            fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
        }
        // SAFETY: dlsym(3) with RTLD_DEFAULT (null) and a C string; it returns null for an undefined name.
        let find = |name: &std::ffi::CStr| unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
        (find(c"__rseq_offset").cast_const().cast(), find(c"__rseq_size").cast_const().cast())
    }

    #[cfg(target_feature = "crt-static")]
    std::arch::global_asm!(
        ".weak __rseq_offset",
        ".weak __rseq_size",
        ".pushsection .data.rel.ro.__squall_rseq_symbols_v0_1,\"aw\",%progbits",
        ".p2align 3",
        ".globl __squall_rseq_symbols_v0_1",
        ".hidden __squall_rseq_symbols_v0_1",
        "__squall_rseq_symbols_v0_1:",
        ".quad __rseq_offset, __rseq_size",
        ".popsection",
    );

    /// Returns the same addresses in a static program, which has no dynamic symbols: by weak references, null
    /// if undefined.
    #[cfg(target_feature = "crt-static")]
    fn symbols() -> (*const isize, *const u32) {
        unsafe extern "C" {
            #[link_name = "__squall_rseq_symbols_v0_1"]
            static SYMBOLS: [*const u8; 2];
        }
        // SAFETY: the two words defined just above; the linker and the start-up code filled them in.
        let [offset, size] = unsafe { SYMBOLS };
        (offset.cast(), size.cast())
    }

    pub(super) fn registered_area() -> Result<isize, NoArea> {
        let (offset, size) = symbols();
        if offset.is_null() || size.is_null() {
            return Err(NoArea::Library);
        }
        // SAFETY: glibc defines these two objects with these types, writes them before the program's first
        // instruction, and never after that.
        let (offset, size) = unsafe { (*offset, *size) };
        if size == 0 {
            return Err(NoArea::Library);
        }
        // SAFETY: `__rseq_size` is not 0, so every thread has an area at `__rseq_offset`.
        match unsafe { area::cpu_id(offset) } {
            id if id < 0 => Err(NoArea::Thread(id)),
            _ => Ok(offset),
        }
    }
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
)))]
mod imp {
    use super::NoArea;

    pub(super) fn registered_area() -> Result<isize, NoArea> {
        Err(NoArea::Platform)
    }
}

/// Returns the offset of the C library's areas, in bytes from the thread pointer, if the calling thread's
/// area is registered.
///
/// The offset is the same in all threads of the process. Other threads may still lack a registration.
///
/// # Errors
/// [`NoArea`] names the missing part.
pub fn registered_area() -> Result<isize, NoArea> {
    imp::registered_area()
}

/// Restarts all restartable sequences of this process that are in flight. When it returns, each has been
/// restarted or has ended. Sequences that begin later see the caller's stores before the call.
///
/// With membarrier this is exact. Without it, the caller runs once on each processor that it may use, which
/// preempts the thread there, and then pauses. On each processor it waits for its turn behind threads of
/// real-time policies. One risk remains: a sequence on a processor outside the caller's cpuset that neither
/// ends nor is preempted during the pause. That requires a virtual machine with a processor that stands still
/// for that long.
///
/// # Cost
/// About two microseconds with membarrier; otherwise some `10 * cpus` microseconds and the pause. Meant to be
/// called once in the life of a process.
pub fn restart_everywhere(cpus: usize) -> Restarted {
    if crate::membarrier::restart_all().is_ok() {
        return Restarted::Membarrier;
    }
    let mut visited_count = 0;
    if let Ok(before) = crate::affinity::allowed() {
        visited_count = (0..cpus).filter(|&cpu| crate::affinity::restrict_to(&[cpu]).is_ok()).count();
        // The mask was in force a moment ago. If it is refused now, the process's cpuset has changed
        // meanwhile. All processors are then the kernel's own choice.
        if crate::affinity::restrict_to(&before).is_err() {
            let _ = crate::affinity::restrict_to(&(0..cpus).collect::<Vec<_>>());
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(PAUSE_MS));
    Restarted::Visits { visited_count }
}
