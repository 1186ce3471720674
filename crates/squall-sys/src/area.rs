//! The thread's own block: where the number of the processor of a thread is read, in the layout of `struct rseq`.
//!
//! Problem: a thread asks where it runs before every local operation, so the answer has to cost one load, in any crate
//! and without link-time optimisation; std's `thread_local!` is a call there. The kernel keeps such a word up to date
//! in the area that the C library registered for restartable sequences, but not on every platform and not in a virtual
//! topology. Idea: a block of our own of the same layout, so that whoever reads the number needs only the offset of one
//! of the two blocks from the thread pointer, and not to know which it is.
//!
//! - I1. Each thread has one own block for its whole life, at the same offset in all threads ([`own_offset`], never 0).
//!   It begins with both processor numbers negative, and only the thread itself (or its signal handlers) touches it.
//! - I2. `cpu_id` of the own block stays negative but after [`pretend_registered`]: nothing in it stands for a
//!   registration with the kernel, so no restartable sequence commits on the strength of it.
//! - I3. The own block is never registered with the kernel; the C library owns that registration.
//! - I4. Each [`Asker`] has a cache of its own: what one notes there means nothing to the other.
//!
//! Not promised: use from a Rust `dylib`, or from a library that is loaded while the program runs and finds no room
//! left in the static thread-local block (the loader says so).
//! Cost: 32 bytes per thread. [`cpu_id_start`] is one load.
//! Source: rseq(2), `include/uapi/linux/rseq.h`; the offsets below are the kernel's interface.
//!
//! ```text
//! byte  0  cpu_id_start: i32   the processor, a good guess at any time; in a virtual topology, the VP of the thread
//!       4  cpu_id: i32         the processor; negative: no sequence may run
//!       8  rseq_cs: u64        descriptor of the sequence in flight
//!      16  caches              own block only, for each asker two words of 32 bits: the processor found last, and for how many
//!                              more questions that answer serves
//! ```

/// Whether the block is a symbol of our own, read by inline assembly; otherwise std's thread-local storage holds it.
pub const NATIVE: bool = cfg!(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
));

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
))]
mod imp {
    use std::arch::{asm, global_asm};

    // The name holds the version, so that two versions of this crate can be linked into one program.
    global_asm!(
        ".pushsection .tdata.__squall_area_v0_1,\"awT\",%progbits",
        ".p2align 5",
        ".globl __squall_area_v0_1",
        ".hidden __squall_area_v0_1",
        ".type __squall_area_v0_1,%object",
        ".size __squall_area_v0_1, 32",
        "__squall_area_v0_1:",
        ".long -1, -1",
        ".quad 0, 0, 0",
        ".popsection",
    );

    /// One of the two blocks, from byte 0. The kernel's continues differently after byte 16.
    #[repr(C, align(32))]
    pub(super) struct Block {
        pub(super) cpu_id_start: i32,
        pub(super) cpu_id: i32,
        rseq_cs: u64,
        pub(super) caches: [[u32; 2]; super::ASKERS],
    }

    const _: () = assert!(std::mem::size_of::<Block>() == 32);
    const _: () =
        assert!(std::mem::offset_of!(Block, cpu_id) == 4 && std::mem::offset_of!(Block, rseq_cs) == 8);

    #[inline(always)]
    pub(super) fn own_offset() -> isize {
        let offset: isize;
        // SAFETY: reads the offset that the linker or the loader wrote for the symbol defined above.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!(
                "mov {0}, qword ptr [rip + __squall_area_v0_1@GOTTPOFF]",
                out(reg) offset,
                options(pure, readonly, nostack, preserves_flags),
            );
            #[cfg(target_arch = "aarch64")]
            asm!(
                "adrp {0}, :gottprel:__squall_area_v0_1",
                "ldr {0}, [{0}, #:gottprel_lo12:__squall_area_v0_1]",
                out(reg) offset,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        offset
    }

    #[inline(always)]
    pub(super) unsafe fn cpu_id_start(offset: isize) -> i64 {
        let id: i64;
        // SAFETY: by this function's contract a block of this thread lies at `offset` from the thread pointer, and its
        // first four bytes are the number. The kernel or a handler of this thread may change it: not `pure`. Its sign is
        // extended here, so that nobody has to who uses it as an index.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!(
                "movsxd {0}, dword ptr fs:[{1}]",
                lateout(reg) id,
                in(reg) offset,
                options(readonly, nostack, preserves_flags),
            );
            #[cfg(target_arch = "aarch64")]
            asm!(
                "mrs {1}, tpidr_el0",
                "ldrsw {0}, [{1}, {2}]",
                lateout(reg) id,
                out(reg) _,
                in(reg) offset,
                options(readonly, nostack, preserves_flags),
            );
        }
        id
    }

    pub(super) fn block(offset: isize) -> *mut Block {
        let thread_pointer: *mut u8;
        // SAFETY: reads the thread pointer, which both ABIs define; on x86-64 its word 0 holds its own address.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!("mov {0}, qword ptr fs:[0]", out(reg) thread_pointer, options(readonly, nostack, preserves_flags));
            #[cfg(target_arch = "aarch64")]
            asm!("mrs {0}, tpidr_el0", out(reg) thread_pointer, options(nomem, nostack, preserves_flags));
        }
        thread_pointer.wrapping_byte_offset(offset).cast()
    }

    pub(super) fn at(offset: isize) -> *mut u8 {
        block(offset).cast()
    }

    /// Runs `f` with the own block of this thread. Volatile accesses: assembly and handlers touch it too.
    pub(super) fn with_own<R>(f: impl FnOnce(*mut Block) -> R) -> R {
        f(block(own_offset()))
    }

    pub(super) unsafe fn cpu_id(offset: isize) -> i32 {
        // SAFETY: by this function's contract a block of this thread lies there; the kernel may change the word.
        unsafe { (&raw const (*block(offset)).cpu_id).read_volatile() }
    }

    pub(super) fn set_own_vp(vp: i32) {
        // SAFETY: the own block of this thread, which no other thread touches (area/I1).
        with_own(|own| unsafe { (&raw mut (*own).cpu_id_start).write_volatile(vp) });
    }

    pub(super) fn own_cache(asker: usize) -> [u32; 2] {
        // SAFETY: the own block of this thread, which no other thread touches (area/I1).
        with_own(|own| unsafe { (&raw const (*own).caches[asker]).read_volatile() })
    }

    pub(super) fn set_own_cache(asker: usize, cache: [u32; 2]) {
        // SAFETY: the own block of this thread, which no other thread touches (area/I1).
        with_own(|own| unsafe { (&raw mut (*own).caches[asker]).write_volatile(cache) });
    }

    pub(super) fn pretend_registered(cpu: i32) {
        // SAFETY: the own block of this thread, which no other thread touches (area/I1).
        with_own(|own| unsafe {
            (&raw mut (*own).cpu_id_start).write_volatile(cpu);
            (&raw mut (*own).cpu_id).write_volatile(cpu);
        });
    }
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
)))]
mod imp {
    use std::cell::Cell;

    thread_local! {
        // No destructor: readable until the thread is gone.
        static VP: Cell<i32> = const { Cell::new(-1) };
        static CACHES: [Cell<[u32; 2]>; super::ASKERS] = const { [const { Cell::new([0; 2]) }; super::ASKERS] };
    }

    pub(super) fn own_offset() -> isize {
        1
    }

    pub(super) fn at(_offset: isize) -> *mut u8 {
        std::ptr::null_mut()
    }

    #[inline]
    pub(super) unsafe fn cpu_id_start(_offset: isize) -> i64 {
        VP.get().into()
    }

    pub(super) unsafe fn cpu_id(_offset: isize) -> i32 {
        -1
    }

    pub(super) fn set_own_vp(vp: i32) {
        VP.set(vp);
    }

    pub(super) fn own_cache(asker: usize) -> [u32; 2] {
        CACHES.with(|caches| caches[asker].get())
    }

    pub(super) fn set_own_cache(asker: usize, cache: [u32; 2]) {
        CACHES.with(|caches| caches[asker].set(cache));
    }

    pub(super) fn pretend_registered(_cpu: i32) {}
}

/// Where the own block lies, in bytes from the thread pointer: the same in all threads, and never 0.
#[inline(always)]
pub fn own_offset() -> isize {
    imp::own_offset()
}

/// `cpu_id_start` of the calling thread's block at `offset`: negative where nobody has filled it in.
///
/// # Safety
/// `offset` is [`own_offset`] or what [`crate::rseq::registered_area`] answered in this process.
/// # Cost
/// One load.
#[inline(always)]
pub unsafe fn cpu_id_start(offset: isize) -> i64 {
    // SAFETY: passed on from this function's contract.
    unsafe { imp::cpu_id_start(offset) }
}

/// `cpu_id` of the calling thread's block at `offset`: negative where this thread may run no restartable sequence.
///
/// # Safety
/// As for [`cpu_id_start`].
pub unsafe fn cpu_id(offset: isize) -> i32 {
    // SAFETY: passed on from this function's contract.
    unsafe { imp::cpu_id(offset) }
}

/// Where the calling thread's block at `offset` lies; null where it is no memory of ours that assembly could use.
pub fn at(offset: isize) -> *mut u8 {
    imp::at(offset)
}

/// Sets what [`cpu_id_start`] answers for the calling thread's own block. Negative: nothing.
pub fn set_own_vp(vp: i32) {
    imp::set_own_vp(vp);
}

/// Who has to ask the kernel where a thread runs, and caches the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Asker {
    /// `squall-machine`: a VP, which in a virtual topology is no processor.
    Machine,
    /// `squall-alloc`, which may know nothing of such a topology.
    Allocator,
}

const ASKERS: usize = 2;

/// The two words that the own block keeps for each asker: a processor, and uses left of the answer.
pub fn own_cache(asker: Asker) -> (u32, u32) {
    imp::own_cache(asker as usize).into()
}

/// Sets the two words of [`own_cache`].
pub fn set_own_cache(asker: Asker, cpu: u32, uses_left: u32) {
    imp::set_own_cache(asker as usize, [cpu, uses_left]);
}

/// For tests: makes the own block look registered on processor `cpu`, so that the instructions of restartable
/// sequences run where the kernel has none. Nothing then restarts them.
///
/// # Safety
/// No other thread of the process runs restartable sequences, and neither do the signal handlers of this one.
#[doc(hidden)]
pub unsafe fn pretend_registered(cpu: i32) {
    imp::pretend_registered(cpu);
}
