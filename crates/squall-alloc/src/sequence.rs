//! The restartable sequences on magazines.
//!
//! Module `magazine` states their invariants. The frame is that of `squall-machine`'s `pervp/restart.rs`,
//! with two differences. A thread finds its rseq area by a pointer of its own, because the process may not
//! have areas yet. No operation has an atomic form, so the offset of the areas is read once, before a
//! sequence, and not within it.
//!
//! ```text
//!     descriptor (read-only data): start = 32, length = 33 - 32, abort = 34
//! 34: signature; jump to 31                      the kernel jumps here after an interruption from 32 to 33
//! 31: rseq_cs of the thread's area = descriptor  arm
//! 32: loads and compares; one store              the commit, the last instruction
//! 33:
//! ```
//!
//! - I1. Only the last instruction of a sequence stores to memory that another thread may read before it. An
//!   earlier store goes to a slot above the count, or to memory of the thread itself, and is repeated if the
//!   sequence starts over.
//! - I2. A sequence does not store to a closed magazine at all, so an old count cannot come back
//!   (`drain/I2`).
//!
//! Not promised: use from a library that is unloaded while threads that ran its sequences live.
//! Cost: on x86-64, 12 instructions for `pop`, plus the caller's test of the result; 16 for `push_home` and
//! `push_home_of`.
//! Source: rseq(2); Desnoyers; tcmalloc's `percpu_rseq_x86_64.S`.

/// The used fields of `struct rseq`, and the layout of the area for threads without one.
#[repr(C, align(32))]
pub(crate) struct Area {
    _cpu_id_start: i32,
    _cpu_id: i32,
    _rseq_cs: u64,
    _rest: [u64; 2],
}

/// The area of all threads that have not come to the slow path yet. Its processor number is negative, and no
/// thread reads the descriptor that is armed there.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) static UNREGISTERED: SharedArea = SharedArea(squall_sys::sync::cell::UnsafeCell::new(Area {
    _cpu_id_start: -1,
    _cpu_id: -1,
    _rseq_cs: 0,
    _rest: [0; 2],
}));

/// The type of [`UNREGISTERED`]. It has lines of its own, because threads store to it.
#[repr(C, align(128))]
pub(crate) struct SharedArea(#[allow(dead_code)] squall_sys::sync::cell::UnsafeCell<Area>);
const _: () = assert!(size_of::<SharedArea>() == crate::classes::LINES_BYTES);

// SAFETY: only assembly accesses it, by single aligned loads of constant fields and stores that no thread
// reads.
unsafe impl Sync for SharedArea {}

/// The pointer to the area of the calling thread: [`UNREGISTERED`] until its first slow path.
pub(crate) mod thread_area {
    use super::{SharedArea, UNREGISTERED};
    squall_sys::thread_pointer!("__squall_alloc_area_v0_1", SharedArea, UNREGISTERED);
}

/// Whether this build has sequences.
pub(crate) const SEQUENCES: bool = cfg!(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri),
    not(squall_tsan)
));

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri),
    not(squall_tsan)
))]
pub(crate) use sequences::{pop, pop_many, push, push_here, push_home, push_home_of, push_many};

/// The operations of a build without sequences: each leads to the slow path.
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri),
    not(squall_tsan)
)))]
mod fallback {
    use crate::magazine::{Batch, Magazine};
    use squall_sys::sync::atomic::AtomicPtr;

    /// Like the operation with sequences.
    ///
    /// # Safety
    /// As with sequences.
    #[inline(always)]
    pub(crate) unsafe fn pop(_slot: &AtomicPtr<u8>) -> *mut u8 {
        std::ptr::null_mut()
    }

    /// Like the operation with sequences.
    ///
    /// # Safety
    /// As with sequences.
    #[inline(always)]
    pub(crate) unsafe fn push_home(block: *mut u8, otherwise: unsafe fn(*mut u8)) {
        // SAFETY: passed on.
        unsafe { otherwise(block) };
    }

    /// Like the operation with sequences.
    ///
    /// # Safety
    /// As with sequences.
    #[inline(always)]
    pub(crate) unsafe fn push_home_of(_slot: &AtomicPtr<u8>, block: *mut u8, otherwise: unsafe fn(*mut u8)) {
        // SAFETY: passed on.
        unsafe { otherwise(block) };
    }

    /// Like the operation with sequences.
    ///
    /// # Safety
    /// As with sequences.
    pub(crate) unsafe fn push(_magazine: *const Magazine, _block: *mut u8) -> bool {
        false
    }

    /// Like the operation with sequences.
    ///
    /// # Safety
    /// As with sequences.
    #[inline(always)]
    pub(crate) unsafe fn push_here(_slot: &AtomicPtr<u8>, _block: *mut u8) -> bool {
        false
    }

    /// Like the operation with sequences.
    ///
    /// # Safety
    /// As with sequences.
    pub(crate) unsafe fn pop_many(_magazine: *const Magazine, _batch: &mut Batch, _most: usize) {}

    /// Like the operation with sequences.
    ///
    /// # Safety
    /// As with sequences.
    pub(crate) unsafe fn push_many(_magazine: *const Magazine, _blocks: &[*mut u8]) -> usize {
        0
    }
}
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri),
    not(squall_tsan)
)))]
pub(crate) use fallback::{pop, pop_many, push, push_here, push_home, push_home_of, push_many};

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri),
    not(squall_tsan)
))]
mod sequences {
    use super::thread_area;
    use crate::lookup::{AREA_OFFSET, MAP};
    use crate::magazine::{Batch, Magazine};
    use squall_sys::sync::atomic::AtomicPtr;
    use std::arch::asm;

    /// Frames a sequence from label 32 to label 33; the last instruction before label 33 is the commit. `arm`
    /// stores the address of the descriptor, label 37, as `rseq_cs` of the thread's area. A jump to `33f`
    /// leaves without a commit.
    #[cfg(target_arch = "x86_64")]
    macro_rules! sequence {
        (
            x86_64: {
                before: [$($before:literal),* $(,)?],
                within: [$($within:literal),* $(,)?] $(, changes: [$($changes:tt)*])?
            },
            aarch64: $_other:tt,
            $($operands:tt)*
        ) => {
            asm!(
                ".pushsection .data.rel.ro.squall_rseq,\"aw?\",@progbits",
                ".p2align 5",
                "37:",
                ".long 0, 0",
                ".quad 32f, 33f - 32f, 34f",
                ".popsection",
                ".pushsection .text.unlikely.squall_rseq,\"ax?\",@progbits",
                ".byte 0x0f, 0xb9, 0x3d",
                ".long {signature}",
                "34:",
                "jmp 31f",
                ".popsection",
                $($before,)*
                "32:",
                $($within,)*
                "33:",
                $($operands)*
                signature = const squall_sys::rseq::SIGNATURE,
                $($($changes)*)?
                options(nostack),
            )
        };
    }

    /// Frames a sequence on aarch64.
    #[cfg(target_arch = "aarch64")]
    macro_rules! sequence {
        (
            x86_64: $_other:tt,
            aarch64: { before: [$($before:literal),* $(,)?], within: [$($within:literal),* $(,)?] },
            $($operands:tt)*
        ) => {
            asm!(
                ".pushsection .data.rel.ro.squall_rseq,\"aw?\",%progbits",
                ".p2align 5",
                "37:",
                ".long 0, 0",
                ".quad 32f, 33f - 32f, 34f",
                ".popsection",
                ".pushsection .text.unlikely.squall_rseq,\"ax?\",%progbits",
                ".p2align 2",
                ".inst {signature}",
                "34:",
                "b 31f",
                ".popsection",
                $($before,)*
                "32:",
                $($within,)*
                "33:",
                $($operands)*
                signature = const squall_sys::rseq::SIGNATURE,
                options(nostack),
            )
        };
    }

    /// Frames a sequence of a thread that has a block, and so finds its area by [`AREA_OFFSET`]. On entry
    /// `{tmp}` is the offset of the area (on aarch64 its address), and `{count}` is undefined.
    macro_rules! of_home {
        (
            x86_64: { before: [$($before:literal),* $(,)?], within: $within:tt $(, changes: $changes:tt)? },
            aarch64: { before: [$($arm_before:literal),* $(,)?], within: $arm_within:tt },
            $($operands:tt)*
        ) => {
            sequence! {
                x86_64: {
                    before: [
                        $($before,)*
                        "31:",
                        "mov {tmp}, qword ptr [rip + {area_offset}]",
                        "lea {count}, [rip + 37b]",
                        "mov qword ptr fs:[{tmp} + 8], {count}",
                    ],
                    within: $within $(, changes: $changes)?
                },
                aarch64: {
                    before: [
                        $($arm_before,)*
                        "31:",
                        "adrp {tmp}, {area_offset}",
                        "ldr {tmp}, [{tmp}, #:lo12:{area_offset}]",
                        "mrs {count}, tpidr_el0",
                        "add {tmp}, {tmp}, {count}",
                        "adrp {count}, 37b",
                        "add {count}, {count}, :lo12:37b",
                        "str {count}, [{tmp}, #8]",
                    ],
                    within: $arm_within
                },
                area_offset = sym AREA_OFFSET,
                vp_at = const crate::magazine::VP_AT,
                $($operands)*
            }
        };
    }

    /// Pops the newest block from the magazine of the VP that the thread is on. `slot` holds the address of
    /// that magazine in the part of VP 0. Null if the magazine is empty or the thread has no sequences.
    ///
    /// # Safety
    /// `slot` belongs to a table of bases in `lookup`.
    #[inline(always)]
    pub(crate) unsafe fn pop(slot: &AtomicPtr<u8>) -> *mut u8 {
        let block: *mut u8;
        // SAFETY: 1. The area is that of the thread, or the shared one with a negative number. 2. At the
        // address in `slot`, shifted by a VP number or a negative one of two, there is a magazine or zeros
        // (`address_space/I2`). 3. Only the last instruction stores to memory that others read (I1). 4. Only
        // the outputs and the flags change.
        unsafe {
            sequence! {
                x86_64: {
                    before: [
                        ".pushsection .text.unlikely.squall_rseq,\"ax?\",@progbits",
                        "35:",
                        "xor {block:e}, {block:e}",
                        "jmp 33f",
                        ".popsection",
                        "31:",
                        "lea {tmp}, [rip + 37b]",
                        "mov qword ptr [{area} + 8], {tmp}",
                    ],
                    within: [
                        "movsxd {part}, dword ptr [{area} + 4]",
                        "shl {part}, {shift}",
                        "add {part}, qword ptr [{slot}]",
                        "mov {count:e}, dword ptr [{part}]",
                        "cmp {count:e}, dword ptr [{part} + 4]",
                        "jbe 35b",
                        "mov {block}, qword ptr [{part} + {count} * 8 + 8]",
                        "sub dword ptr [{part}], 1",
                    ]
                },
                aarch64: {
                    before: [
                        "31:",
                        "adrp {tmp}, 37b",
                        "add {tmp}, {tmp}, :lo12:37b",
                        "str {tmp}, [{area}, #8]",
                    ],
                    within: [
                        "ldrsw {part}, [{area}, #4]",
                        "lsl {part}, {part}, #{shift}",
                        "ldr {tmp}, [{slot}]",
                        "add {part}, {part}, {tmp}",
                        "mov {block}, xzr",
                        "ldr {count:w}, [{part}]",
                        "ldr {tmp:w}, [{part}, #4]",
                        "cmp {count:w}, {tmp:w}",
                        "b.ls 33f",
                        "add {tmp}, {part}, {count}, lsl #3",
                        "ldr {block}, [{tmp}, #8]",
                        "sub {count:w}, {count:w}, #1",
                        "str {count:w}, [{part}]",
                    ]
                },
                area = in(reg) thread_area::current(),
                slot = in(reg) slot,
                part = out(reg) _,
                count = out(reg) _,
                tmp = out(reg) _,
                block = out(reg) block,
                shift = const crate::part::PART_SHIFT,
            }
        }
        block
    }

    /// Frames a push, like `of_home!`: `come` puts the address of a magazine of the current VP into
    /// `{magazine}`, and `{block}` is pushed to it if there is room.
    macro_rules! put_in {
        (
            x86_64: { before: [$($before:literal),* $(,)?], come: [$($come:literal),* $(,)?] },
            aarch64: { before: [$($arm_before:literal),* $(,)?], come: [$($arm_come:literal),* $(,)?] },
            $($operands:tt)*
        ) => {
            of_home! {
                x86_64: {
                    before: [$($before),*],
                    within: [
                        $($come,)*
                        "mov {count:e}, dword ptr [{magazine}]",
                        "cmp {count:e}, dword ptr [{magazine} + 8]",
                        "jae {otherwise}",
                        "mov qword ptr [{magazine} + {count} * 8 + 16], {block}",
                        "add dword ptr [{magazine}], 1",
                    ]
                },
                aarch64: {
                    before: [$($arm_before),*],
                    within: [
                        $($arm_come,)*
                        "ldr {count:w}, [{magazine}]",
                        "ldr {tmp:w}, [{magazine}, #8]",
                        "cmp {count:w}, {tmp:w}",
                        "b.hs {otherwise}",
                        "add {tmp}, {magazine}, {count}, lsl #3",
                        "str {block}, [{tmp}, #16]",
                        "add {count:w}, {count:w}, #1",
                        "str {count:w}, [{magazine}]",
                    ]
                },
                count = out(reg) _,
                tmp = out(reg) _,
                $($operands)*
            }
        };
    }

    /// Frames a push to the magazine in `{magazine}`, if the thread is on the VP of that magazine.
    macro_rules! put_in_that {
        (
            x86_64: $before:tt,
            aarch64: $arm_before:tt,
            $($operands:tt)*
        ) => {
            put_in! {
                x86_64: {
                    before: $before,
                    come: [
                        "mov {count:e}, {magazine:e}",
                        "shr {count:e}, {vp_at}",
                        "cmp {count:e}, dword ptr fs:[{tmp} + 4]",
                        "jne {otherwise}",
                    ]
                },
                aarch64: {
                    before: $arm_before,
                    come: [
                        "ldr {tmp:w}, [{tmp}, #4]",
                        "ubfx {count}, {magazine}, #{vp_at}, #16",
                        "cmp {count:w}, {tmp:w}",
                        "b.ne {otherwise}",
                    ]
                },
                $($operands)*
            }
        };
    }

    /// Pushes `block` to the magazine of its home, if the thread is on that VP and there is room; otherwise
    /// calls `otherwise`.
    ///
    /// # Safety
    /// `block` is a block of a slab, without users, and `otherwise` takes it over.
    #[inline(always)]
    pub(crate) unsafe fn push_home(block: *mut u8, otherwise: unsafe fn(*mut u8)) {
        // SAFETY: 1. A block was given out, so `AREA_OFFSET` and `MAP` were set, and `MAP` has a magazine for
        // its unit. 2. The store before the last goes to a slot above the count, which no thread reads, and
        // is repeated if the sequence starts over. The last store is the commit. 3. Only the outputs and the
        // flags change. 4. After the commit the block belongs to the magazine.
        unsafe {
            put_in_that! {
                x86_64: [
                    "mov {magazine}, {block}",
                    "shr {magazine}, {unit}",
                    "mov {tmp}, qword ptr [rip + {map}]",
                    "mov {magazine}, qword ptr [{tmp} + {magazine} * 8]",
                ],
                aarch64: [
                    "lsr {magazine}, {block}, #{unit}",
                    "adrp {tmp}, {map}",
                    "ldr {tmp}, [{tmp}, #:lo12:{map}]",
                    "ldr {magazine}, [{tmp}, {magazine}, lsl #3]",
                ],
                block = in(reg) block,
                magazine = out(reg) _,
                map = sym MAP,
                unit = const crate::classes::SLAB_SHIFT,
                otherwise = label {
                    // SAFETY: passed on.
                    unsafe { otherwise(block) }
                },
            }
        }
    }

    /// Pushes a block of known class to the magazine of its home. `slot` holds the address of the class's
    /// magazine in the part of VP 0.
    ///
    /// The lookup of the block's home decides only whether the block goes to that magazine. The next pop
    /// therefore does not wait for the lookup, a chain of five loads, if a block is freed and allocated again
    /// at once.
    ///
    /// # Safety
    /// The contract of [`push_home`]; `slot` holds the address of a magazine.
    #[inline(always)]
    pub(crate) unsafe fn push_home_of(slot: &AtomicPtr<u8>, block: *mut u8, otherwise: unsafe fn(*mut u8)) {
        // SAFETY: 1. As in `push_home` and `push_here`. `MAP` has the magazine of the block's class
        // and home; if that is the magazine of the current VP, it is the one computed here. 2. to 4. As in
        // `push_home`.
        unsafe {
            put_in! {
                x86_64: {
                    before: [
                        "mov {unit}, {block}",
                        "shr {unit}, {unit_shift}",
                        "mov {to}, qword ptr [rip + {map}]",
                    ],
                    come: [
                        "movsxd {magazine}, dword ptr fs:[{tmp} + 4]",
                        "shl {magazine}, {vp_at}",
                        "add {magazine}, qword ptr [{slot}]",
                        "cmp {magazine}, qword ptr [{to} + {unit} * 8]",
                        "jne {otherwise}",
                    ]
                },
                aarch64: {
                    before: [
                        "lsr {unit}, {block}, #{unit_shift}",
                        "adrp {to}, {map}",
                        "ldr {to}, [{to}, #:lo12:{map}]",
                        "ldr {to}, [{to}, {unit}, lsl #3]",
                    ],
                    come: [
                        "ldrsw {magazine}, [{tmp}, #4]",
                        "ldr {unit}, [{slot}]",
                        "add {magazine}, {unit}, {magazine}, lsl #{vp_at}",
                        "cmp {magazine}, {to}",
                        "b.ne {otherwise}",
                    ]
                },
                block = in(reg) block,
                slot = in(reg) slot,
                magazine = out(reg) _,
                unit = out(reg) _,
                to = out(reg) _,
                map = sym MAP,
                unit_shift = const crate::classes::SLAB_SHIFT,
                otherwise = label {
                    // SAFETY: passed on.
                    unsafe { otherwise(block) }
                },
            }
        }
    }

    /// Pushes `block` to the magazine of the current VP, if there is room. `slot` holds the address of that
    /// magazine in the part of VP 0. Returns whether it did.
    ///
    /// # Safety
    /// `slot` holds the address of a magazine. `block` is of its class and belongs to the caller alone.
    #[inline(always)]
    pub(crate) unsafe fn push_here(slot: &AtomicPtr<u8>, block: *mut u8) -> bool {
        // SAFETY: 1. A block was given out, so `AREA_OFFSET` was set. At the address in `slot`, shifted by a
        // VP number or a negative one of two, there is a magazine or zeros (`address_space/I2`). 2. to 4. As
        // in `push_home`.
        unsafe {
            put_in! {
                x86_64: {
                    before: [],
                    come: [
                        "movsxd {magazine}, dword ptr fs:[{tmp} + 4]",
                        "shl {magazine}, {vp_at}",
                        "add {magazine}, qword ptr [{slot}]",
                    ]
                },
                aarch64: {
                    before: [],
                    come: [
                        "ldrsw {magazine}, [{tmp}, #4]",
                        "ldr {tmp}, [{slot}]",
                        "add {magazine}, {tmp}, {magazine}, lsl #{vp_at}",
                    ]
                },
                block = in(reg) block,
                slot = in(reg) slot,
                magazine = out(reg) _,
                otherwise = label { return false },
            }
        }
        true
    }

    /// Pushes `block` to this magazine, if the thread is on its VP and there is room. Returns whether it did.
    ///
    /// # Safety
    /// The process runs sequences, the magazine is one of a part, and `block` belongs to the caller alone.
    pub(crate) unsafe fn push(magazine: *const Magazine, block: *mut u8) -> bool {
        // SAFETY: as in `push_home`, but the magazine is given.
        unsafe {
            put_in_that! {
                x86_64: [],
                aarch64: [],
                block = in(reg) block,
                magazine = in(reg) magazine,
                otherwise = label { return false },
            }
        }
        true
    }

    /// Pops up to `most` of the newest blocks from this magazine, if the thread is on the magazine's VP, and
    /// appends them to the batch.
    ///
    /// # Safety
    /// The process runs sequences, the magazine is one of a part, and the batch has room.
    pub(crate) unsafe fn pop_many(magazine: *const Magazine, batch: &mut Batch, most: usize) {
        let room = batch.room(most);
        let taken: usize;
        // SAFETY: 1. The area is the thread's, at the registered offset. 2. Before the last instruction,
        // stores go to the caller's own array, and are repeated if the sequence starts over. The slots below
        // the count are blocks (`magazine/I2`). 3. Only the outputs and the flags change.
        unsafe {
            of_home! {
                x86_64: {
                    before: [],
                    within: [
                        "xor {taken:e}, {taken:e}",
                        "mov {count:e}, {magazine:e}",
                        "shr {count:e}, {vp_at}",
                        "cmp {count:e}, dword ptr fs:[{tmp} + 4]",
                        "jne 33f",
                        "mov {count:e}, dword ptr [{magazine}]",
                        "cmp {count:e}, dword ptr [{magazine} + 4]",
                        "jbe 33f",
                        "mov {taken}, {most}",
                        "cmp {count}, {taken}",
                        "cmovb {taken}, {count}",
                        "sub {count}, {taken}",
                        "lea rsi, [{magazine} + {count} * 8 + 16]",
                        "mov rdi, {room}",
                        "mov rcx, {taken}",
                        "rep movsq",
                        "mov dword ptr [{magazine}], {count:e}",
                    ],
                    changes: [out("rsi") _, out("rdi") _, out("rcx") _,]
                },
                aarch64: {
                    before: [],
                    within: [
                        "mov {taken}, #0",
                        "ldr {tmp:w}, [{tmp}, #4]",
                        "ubfx {count}, {magazine}, #{vp_at}, #16",
                        "cmp {count:w}, {tmp:w}",
                        "b.ne 33f",
                        "ldr {count:w}, [{magazine}]",
                        "ldr {tmp:w}, [{magazine}, #4]",
                        "cmp {count:w}, {tmp:w}",
                        "b.ls 33f",
                        "36:",
                        "cmp {taken}, {most}",
                        "b.hs 35f",
                        "add {tmp}, {magazine}, {count}, lsl #3",
                        "ldr {tmp}, [{tmp}, #8]",
                        "str {tmp}, [{room}, {taken}, lsl #3]",
                        "add {taken}, {taken}, #1",
                        "subs {count}, {count}, #1",
                        "b.ne 36b",
                        "35:",
                        "str {count:w}, [{magazine}]",
                    ]
                },
                magazine = in(reg) magazine,
                room = in(reg) room.as_mut_ptr(),
                most = in(reg) room.len(),
                taken = out(reg) taken,
                count = out(reg) _,
                tmp = out(reg) _,
            }
        }
        // SAFETY: the sequence wrote so many elements.
        unsafe { batch.grow(taken) };
    }

    /// Pushes the first of these blocks to this magazine, as many as there is room for, if the thread is on
    /// its VP. Returns their number.
    ///
    /// # Safety
    /// The process runs sequences, the magazine is one of a part, and the blocks, at least one, belong to the
    /// caller alone.
    pub(crate) unsafe fn push_many(magazine: *const Magazine, blocks: &[*mut u8]) -> usize {
        debug_assert!(!blocks.is_empty());
        let put: usize;
        // SAFETY: 1. The area is the thread's, at the registered offset. 2. Before the last instruction,
        // stores go to slots above the count and below `high`. No thread reads these, and the stores are
        // repeated if the sequence starts over. 3. Only the outputs and the flags change.
        unsafe {
            of_home! {
                x86_64: {
                    before: [],
                    within: [
                        "xor {put:e}, {put:e}",
                        "mov {count:e}, {magazine:e}",
                        "shr {count:e}, {vp_at}",
                        "cmp {count:e}, dword ptr fs:[{tmp} + 4]",
                        "jne 33f",
                        "mov {count:e}, dword ptr [{magazine}]",
                        // A closed magazine must not be stored to, not even with its present count.
                        "mov {tmp:e}, dword ptr [{magazine} + 8]",
                        "sub {tmp:e}, {count:e}",
                        "jbe 33f",
                        "mov {put}, {most}",
                        "cmp {tmp}, {put}",
                        "cmovb {put}, {tmp}",
                        "lea rdi, [{magazine} + {count} * 8 + 16]",
                        "mov rsi, {blocks}",
                        "mov rcx, {put}",
                        "rep movsq",
                        "add {count:e}, {put:e}",
                        "mov dword ptr [{magazine}], {count:e}",
                    ],
                    changes: [out("rsi") _, out("rdi") _, out("rcx") _,]
                },
                aarch64: {
                    before: [],
                    within: [
                        "mov {put}, #0",
                        "ldr {tmp:w}, [{tmp}, #4]",
                        "ubfx {count}, {magazine}, #{vp_at}, #16",
                        "cmp {count:w}, {tmp:w}",
                        "b.ne 33f",
                        "ldr {count:w}, [{magazine}]",
                        "ldr {tmp:w}, [{magazine}, #8]",
                        "cmp {count:w}, {tmp:w}",
                        "b.hs 33f",
                        "36:",
                        "ldr {tmp}, [{blocks}, {put}, lsl #3]",
                        "add {count}, {count}, #2",
                        "str {tmp}, [{magazine}, {count}, lsl #3]",
                        "sub {count}, {count}, #1",
                        "add {put}, {put}, #1",
                        "cmp {put}, {most}",
                        "b.hs 35f",
                        "ldr {tmp:w}, [{magazine}, #8]",
                        "cmp {count:w}, {tmp:w}",
                        "b.lo 36b",
                        "35:",
                        "str {count:w}, [{magazine}]",
                    ]
                },
                magazine = in(reg) magazine,
                blocks = in(reg) blocks.as_ptr(),
                most = in(reg) blocks.len(),
                put = out(reg) put,
                count = out(reg) _,
                tmp = out(reg) _,
            }
        }
        put
    }
}
