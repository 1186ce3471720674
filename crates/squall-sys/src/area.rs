//! Per-thread block with the number of the thread's processor, in the layout of `struct rseq`.
//!
//! Problem: a thread asks for its processor before every local operation. The answer must cost one load, in
//! any crate and without link-time optimisation. From another crate, std's `thread_local!` is a call. The
//! kernel keeps such a word up to date in the area that the C library registered for restartable sequences.
//! But not every platform has that area, and a virtual topology cannot use it.
//!
//! Idea: a block of our own with the same layout. The reader of the number then needs only one offset from
//! the thread pointer: that of the block in use.
//!
//! - I1. Each thread has one own block for its whole life, at the same offset in all threads ([`own_offset`],
//!   never 0). It begins with both processor numbers negative. Only the thread itself (or its signal
//!   handlers) touches it.
//! - I2. `cpu_id` of the own block stays negative, except after [`pretend_registered`]. So the block never
//!   stands for a registration with the kernel, and no restartable sequence commits because of it.
//! - I3. The own block is never registered with the kernel; the C library owns that registration.
//! - I4. Each [`CacheSlot`] belongs to one layer, and the other layer does not use it.
//!
//! Not promised: use from a Rust `dylib`. A library that is loaded while the program runs may find no room in
//! the static thread-local block; the loader then reports an error.
//! Cost: 32 bytes per thread. [`cpu_id_start`] is one load.
//! Source: rseq(2), `include/uapi/linux/rseq.h`; the offsets below are the kernel's interface.
//!
//! ```text
//! byte  0  cpu_id_start: i32   the processor, a good guess at any time; in a virtual topology, the thread's VP
//!       4  cpu_id: i32         the processor; negative: no sequence may run
//!       8  rseq_cs: u64        descriptor of the sequence in flight
//!      16  caches              own block only; two 32-bit words per slot: the processor found last, and the
//!                              number of further uses of that answer
//! ```

/// True if the block is a symbol of our own, read by inline assembly. Otherwise std's thread-local storage
/// holds it.
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
        pub(super) caches: [[u32; 2]; super::CACHE_SLOTS],
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
        // SAFETY: by this function's contract a block of this thread is at `offset` from the thread pointer,
        // and its first four bytes are the number. The kernel or a handler of this thread may change it: not
        // `pure`. The load extends the sign, so that users need no instruction for it when they index by the
        // number.
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
        // SAFETY: reads the thread pointer, which both ABIs define; on x86-64 its word 0 holds its own
        // address.
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
        // SAFETY: by this function's contract a block of this thread is there; the kernel may change the
        // word.
        unsafe { (&raw const (*block(offset)).cpu_id).read_volatile() }
    }

    pub(super) fn set_own_vp(vp: i32) {
        // SAFETY: the own block of this thread, which no other thread touches (area/I1).
        with_own(|own| unsafe { (&raw mut (*own).cpu_id_start).write_volatile(vp) });
    }

    pub(super) fn own_cache(slot: usize) -> [u32; 2] {
        // SAFETY: the own block of this thread, which no other thread touches (area/I1).
        with_own(|own| unsafe { (&raw const (*own).caches[slot]).read_volatile() })
    }

    pub(super) fn set_own_cache(slot: usize, cache: [u32; 2]) {
        // SAFETY: the own block of this thread, which no other thread touches (area/I1).
        with_own(|own| unsafe { (&raw mut (*own).caches[slot]).write_volatile(cache) });
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
        static CACHES: [Cell<[u32; 2]>; super::CACHE_SLOTS] = const { [const { Cell::new([0; 2]) }; super::CACHE_SLOTS] };
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

    pub(super) fn own_cache(slot: usize) -> [u32; 2] {
        CACHES.with(|caches| caches[slot].get())
    }

    pub(super) fn set_own_cache(slot: usize, cache: [u32; 2]) {
        CACHES.with(|caches| caches[slot].set(cache));
    }

    pub(super) fn pretend_registered(_cpu: i32) {}
}

/// Returns the offset of the own block, in bytes from the thread pointer: the same in all threads, and never
/// 0.
#[inline(always)]
pub fn own_offset() -> isize {
    imp::own_offset()
}

/// Returns `cpu_id_start` of the calling thread's block at `offset`. Negative if it was never filled in.
///
/// # Safety
/// `offset` is [`own_offset`], or a result of [`crate::rseq::registered_area`] in this process.
/// # Cost
/// One load.
#[inline(always)]
pub unsafe fn cpu_id_start(offset: isize) -> i64 {
    // SAFETY: passed on from this function's contract.
    unsafe { imp::cpu_id_start(offset) }
}

/// Returns `cpu_id` of the calling thread's block at `offset`. Negative if this thread may run no restartable
/// sequence.
///
/// # Safety
/// The contract of [`cpu_id_start`].
pub unsafe fn cpu_id(offset: isize) -> i32 {
    // SAFETY: passed on from this function's contract.
    unsafe { imp::cpu_id(offset) }
}

/// Returns the address of the calling thread's block at `offset`, or null if assembly cannot use the block on
/// this platform.
pub fn at(offset: isize) -> *mut u8 {
    imp::at(offset)
}

/// Sets the result of [`cpu_id_start`] for the calling thread's own block. A negative `vp` clears it.
pub fn set_own_vp(vp: i32) {
    imp::set_own_vp(vp);
}

/// The slot of a layer that asks the kernel for the thread's processor and caches the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum CacheSlot {
    /// For `squall-machine`, which caches a VP. In a virtual topology a VP is not a processor.
    Machine,
    /// For `squall-alloc`, which caches a processor and knows no virtual topology.
    Allocator,
}

const CACHE_SLOTS: usize = 2;

/// Returns the two words of a slot in the own block: a processor, and the number of uses left.
pub fn own_cache(slot: CacheSlot) -> (u32, u32) {
    imp::own_cache(slot as usize).into()
}

/// Sets the two words of [`own_cache`].
pub fn set_own_cache(slot: CacheSlot, cpu: u32, uses_left: u32) {
    imp::set_own_cache(slot as usize, [cpu, uses_left]);
}

/// For tests: makes the own block look registered on processor `cpu`, so that the instructions of restartable
/// sequences run without kernel support. The kernel then never restarts them.
///
/// # Safety
/// No other thread of the process, and no signal handler of this thread, runs restartable sequences.
#[doc(hidden)]
pub unsafe fn pretend_registered(cpu: i32) {
    imp::pretend_registered(cpu);
}
