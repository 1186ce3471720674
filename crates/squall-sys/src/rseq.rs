//! Restartable sequences: whether this thread may run them, and how to restart all that are in flight.
//!
//! A restartable sequence is a short run of instructions that ends in one store. If the kernel preempts or migrates the
//! thread, or delivers a signal to it, before that store, the thread continues at the sequence's abort handler instead.
//! So what the sequence read of its processor's data still holds at the store: it needs no lock prefix.
//!
//! The kernel knows of one area per thread. glibc (2.35 and later) registers its own at thread start and publishes the
//! offset; this module finds it and never registers another. musl does not register, so there is none there.
//!
//! Source: rseq(2); Desnoyers, "Restartable sequences", LPC 2015 to 2018; glibc manual, "Restartable Sequences".

use std::fmt;

/// The four bytes before each abort handler, which the kernel compares with those of the registration.
/// On x86-64 they follow `0f b9 3d`, so that disassemblers show one undefined instruction.
#[cfg(not(target_arch = "aarch64"))]
pub const SIGNATURE: u32 = 0x5305_3053;
/// The four bytes before each abort handler, which the kernel compares with those of the registration: `brk #0x45e0`.
#[cfg(target_arch = "aarch64")]
pub const SIGNATURE: u32 = 0xd428_bc00;

/// Why the calling thread has no registered area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoArea {
    /// There is no form of the sequences for this platform or build.
    Platform,
    /// The C library registers none: too old, of another kind, or told not to.
    Library,
    /// The C library registers areas, but the kernel refused this thread's. The number is `cpu_id` of its area.
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

/// How [`restart_everywhere`] reached the other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restarted {
    /// By membarrier: exact.
    Membarrier,
    /// By visiting every processor that would have us, and a pause. See there for what remains.
    Visits {
        /// Processors visited.
        visited_count: usize,
    },
}

/// How long [`restart_everywhere`] pauses where it cannot use membarrier, in ms. A sequence takes well below a
/// microsecond unless it is preempted, and a preempted one restarts.
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

    /// The addresses of glibc's `__rseq_offset` and `__rseq_size`, null where the C library has none.
    ///
    /// By `dlsym` and not by a weak reference: that would be bound to the symbol's version, and a program built with a
    /// new glibc would not start with an old one.
    #[cfg(not(target_feature = "crt-static"))]
    fn symbols() -> (*const isize, *const u32) {
        use std::ffi::{c_char, c_void};
        unsafe extern "C" {
            fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
        }
        // SAFETY: dlsym(3) with RTLD_DEFAULT (null) and a C string; it answers null for a name that nobody defines.
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

    /// As above in a static program, which has no dynamic symbols: weak references, null where nobody defines them.
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

/// Where the C library's areas lie, in bytes from the thread pointer, if that of the calling thread is registered.
///
/// The offset holds for all threads of the process; that the others are registered does not follow.
///
/// # Errors
/// [`NoArea`] says what is missing.
pub fn registered_area() -> Result<isize, NoArea> {
    imp::registered_area()
}

/// When this returns, every restartable sequence of this process that was in flight when it began has been restarted
/// or has ended; sequences that begin later see what the caller stored before the call.
///
/// With membarrier this is exact. Without it, the caller runs once on each processor that it can get to, which preempts
/// what ran there (it waits for its turn behind threads of real-time policies), and then pauses. What remains is a sequence that neither ends nor is preempted during that pause, on
/// a processor outside the caller's cpuset: a virtual machine whose processor stands still for as long.
///
/// # Cost
/// About two microseconds with membarrier; otherwise some `10 * cpus` microseconds and the pause. Meant for once in the
/// life of a process.
pub fn restart_everywhere(cpus: usize) -> Restarted {
    if crate::membarrier::restart_all().is_ok() {
        return Restarted::Membarrier;
    }
    let mut visited_count = 0;
    if let Ok(before) = crate::affinity::allowed() {
        visited_count = (0..cpus).filter(|&cpu| crate::affinity::restrict_to(&[cpu]).is_ok()).count();
        // The mask was in force a moment ago. If it is refused now, the processors of the process were changed
        // meanwhile; all of them is then what the kernel itself would choose.
        if crate::affinity::restrict_to(&before).is_err() {
            let _ = crate::affinity::restrict_to(&(0..cpus).collect::<Vec<_>>());
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(PAUSE_MS));
    Restarted::Visits { visited_count }
}
