//! The restartable sequences on magazines.
//!
//! What they uphold stands in `magazine`. The frame is that of `squall-machine`'s `pervp/restart.rs`, with two differences: a thread
//! finds its area by a pointer of its own where it cannot know yet that the process has areas, and nobody ever needs an atomic form
//! of them, so that the offset of the areas is read once, before a sequence, and not within.
//!
//! ```text
//!     descriptor (read-only data): start = 32, length = 33 - 32, abort = 34
//! 34: signature; jump to 31                      the kernel sends us here if we were disturbed between 32 and 33
//! 31: rseq_cs of the thread's area = descriptor  arm
//! 32: loads and compares; one store              the commit, the last instruction
//! 33:
//! ```
//!
//! - I1. Only the last instruction of a sequence stores to what another thread may read before it; a store before that goes to a
//!   slot above the count, or to the thread's own memory, and is made again if the sequence begins again.
//! - I2. A magazine that is closed is not stored to at all, lest an old count come back (`drain/I2`).
//!
//! Not promised: use from a library that is unloaded while threads that ran its sequences live.
//! Cost: `pop` 12 instructions on x86-64 and the caller's look at what it got, `push_home` and `push_home_of` 16.
//! Source: rseq(2); Desnoyers; tcmalloc's `percpu_rseq_x86_64.S`.

/// Distance of the parts of neighbouring VPs, as a power of two.
pub(crate) const PART_SHIFT: u32 = crate::magazine::VP_AT;
/// `struct rseq` as far as it is used, and where a thread looks that has none.
#[repr(C, align(32))]
pub(crate) struct Area {
    _cpu_id_start: i32,
    _cpu_id: i32,
    _rseq_cs: u64,
    _rest: [u64; 2],
}

/// The area of all threads that have not come to the slow path yet: its number is negative, and what they arm there is nobody's.
pub(crate) static NOBODY: Nobody = Nobody(squall_sys::sync::cell::UnsafeCell::new(Area {
    _cpu_id_start: -1,
    _cpu_id: -1,
    _rseq_cs: 0,
    _rest: [0; 2],
}));

/// See [`NOBODY`]. It has its lines for itself, as it is stored to.
#[repr(C, align(128))]
pub(crate) struct Nobody(#[allow(dead_code)] squall_sys::sync::cell::UnsafeCell<Area>);
const _: () = assert!(size_of::<Nobody>() == crate::classes::LINES_BYTES);

// SAFETY: only assembly accesses it, by single aligned loads of what never changes and stores of what nobody reads.
unsafe impl Sync for Nobody {}

/// The area of the calling thread: [`NOBODY`] until its first slow path.
pub(crate) mod mine {
    use super::{NOBODY, Nobody};
    squall_sys::thread_pointer!("__squall_alloc_area_v0_1", Nobody, NOBODY);
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

/// Not built with sequences: nobody comes here but to be sent away.
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri),
    not(squall_tsan)
)))]
mod none {
    use crate::magazine::{Batch, Magazine};
    use squall_sys::sync::atomic::AtomicPtr;

    /// As with sequences.
    ///
    /// # Safety
    /// As with sequences.
    #[inline(always)]
    pub(crate) unsafe fn pop(_slot: &AtomicPtr<u8>) -> *mut u8 {
        std::ptr::null_mut()
    }

    /// As with sequences.
    ///
    /// # Safety
    /// As with sequences.
    #[inline(always)]
    pub(crate) unsafe fn push_home(block: *mut u8, otherwise: unsafe fn(*mut u8)) {
        // SAFETY: passed on.
        unsafe { otherwise(block) };
    }

    /// As with sequences.
    ///
    /// # Safety
    /// As with sequences.
    #[inline(always)]
    pub(crate) unsafe fn push_home_of(_slot: &AtomicPtr<u8>, block: *mut u8, otherwise: unsafe fn(*mut u8)) {
        // SAFETY: passed on.
        unsafe { otherwise(block) };
    }

    /// As with sequences.
    ///
    /// # Safety
    /// As with sequences.
    pub(crate) unsafe fn push(_magazine: *const Magazine, _block: *mut u8) -> bool {
        false
    }

    /// As with sequences.
    ///
    /// # Safety
    /// As with sequences.
    #[inline(always)]
    pub(crate) unsafe fn push_here(_slot: &AtomicPtr<u8>, _block: *mut u8) -> bool {
        false
    }

    /// As with sequences.
    ///
    /// # Safety
    /// As with sequences.
    pub(crate) unsafe fn pop_many(_magazine: *const Magazine, _batch: &mut Batch, _most: usize) {}

    /// As with sequences.
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
pub(crate) use none::{pop, pop_many, push, push_here, push_home, push_home_of, push_many};

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri),
    not(squall_tsan)
))]
mod sequences {
    use super::{PART_SHIFT, mine};
    use crate::ground::{AREA_OFFSET, MAP};
    use crate::magazine::{Batch, Magazine};
    use squall_sys::sync::atomic::AtomicPtr;
    use std::arch::asm;

    /// Frames a sequence: from label 32 to label 33, which the last instruction before it commits. `arm` stores the address of the
    /// descriptor, label 37, as `rseq_cs` of the thread's area. A jump to `33f` leaves without a commit.
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

    /// As above.
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

    /// As `sequence!`, of a thread that has a block and so finds its area by [`AREA_OFFSET`]; `{tmp}` is then the offset of the area,
    /// on aarch64 its address, and `{count}` whatever it is.
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

    /// Takes the block that was put in last from the magazine of the VP where the thread is, whose place in the part of VP 0 is in
    /// `slot`. Null if there is none, or the thread has no sequences.
    ///
    /// # Safety
    /// `slot` is one of `ground`'s.
    #[inline(always)]
    pub(crate) unsafe fn pop(slot: &AtomicPtr<u8>) -> *mut u8 {
        let block: *mut u8;
        // SAFETY: 1. the area is that of the thread, or nobody's, whose number is negative. 2. At the address from `slot`, shifted
        // by a VP's number or a negative one of two, there is a magazine or zeros (`ground`). 3. Only the last instruction stores
        // to what others read (I1). 4. Only the outputs and the flags change.
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
                area = in(reg) mine::current(),
                slot = in(reg) slot,
                part = out(reg) _,
                count = out(reg) _,
                tmp = out(reg) _,
                block = out(reg) block,
                shift = const PART_SHIFT,
            }
        }
        block
    }

    /// As `of_home!`: comes to a magazine of the VP where the thread is, in `{magazine}`, and puts `{block}` into it if there is room.
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

    /// The same of a magazine that is in `{magazine}` already, if the thread is on the VP whose that is.
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

    /// Puts `block` into the magazine that its address leads to, if the thread is on the VP whose that is and there is room;
    /// otherwise calls `otherwise`.
    ///
    /// # Safety
    /// `block` is a block of a slab that nobody uses any more, and `otherwise` takes it over.
    #[inline(always)]
    pub(crate) unsafe fn push_home(block: *mut u8, otherwise: unsafe fn(*mut u8)) {
        // SAFETY: 1. a block was given out, so `AREA_OFFSET` and `MAP` were set, and the unit it lies in leads to a magazine. 2. The
        // store before the last is to a slot above the count, which nobody reads, and is made again if the sequence begins again;
        // the last is the commit. 3. Only the outputs and the flags change. 4. Past it the block is the magazine's.
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

    /// The same of a block whose class is known: the place of that one's magazine in the part of VP 0 is in `slot`. Where the block leads
    /// decides only whether it goes there, and not where; so the next to take one does not wait until what the last one led to is
    /// known, which is a chain of five loads where a block is freed at once and taken again.
    ///
    /// # Safety
    /// As of [`push_home`]; the place is that of a magazine.
    #[inline(always)]
    pub(crate) unsafe fn push_home_of(slot: &AtomicPtr<u8>, block: *mut u8, otherwise: unsafe fn(*mut u8)) {
        // SAFETY: 1. as in `push_home`, and in `push_here`; where the block leads is a magazine of its class and home, so if that is the one
        // of the VP where the thread is, it is the one here. 2. to 4. As in `push_home`.
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

    /// Puts `block` into the magazine of the VP where the thread is, whose place in the part of VP 0 is in `slot`, if there is room.
    /// Returns whether it did.
    ///
    /// # Safety
    /// The place is that of a magazine, and `block` one of its class that nobody else has.
    #[inline(always)]
    pub(crate) unsafe fn push_here(slot: &AtomicPtr<u8>, block: *mut u8) -> bool {
        // SAFETY: 1. a block was given out, so `AREA_OFFSET` was set; at the place, shifted by a VP's number or a negative one of two,
        // there is a magazine or zeros (`ground/I2`). 2. to 4. As in `push_home`.
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

    /// Puts `block` into this magazine if the thread is on its VP and there is room. Returns whether it did.
    ///
    /// # Safety
    /// The process runs sequences, the magazine is one of a part, and `block` is nobody else's.
    pub(crate) unsafe fn push(magazine: *const Magazine, block: *mut u8) -> bool {
        // SAFETY: as in `push_home`, but that the magazine is given.
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

    /// Takes up to `most` blocks, those put in last, from this magazine if the thread is on its VP, to behind those in the batch.
    ///
    /// # Safety
    /// The process runs sequences, the magazine is one of a part; the batch has room.
    pub(crate) unsafe fn pop_many(magazine: *const Magazine, batch: &mut Batch, most: usize) {
        let room = batch.room(most);
        let taken: usize;
        // SAFETY: 1. the area is the thread's, at the offset that was found. 2. Until the last instruction, stores go to the
        // caller's own array, and are made again if the sequence begins again; slots below the count are blocks (`magazine/I2`). 3. Only the
        // outputs and the flags change.
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
        // SAFETY: the sequence wrote so many there.
        unsafe { batch.grow(taken) };
    }

    /// Puts the first of these blocks into this magazine, as many as there is room for, if the thread is on its VP. Returns how many.
    ///
    /// # Safety
    /// The process runs sequences, the magazine is one of a part, and the blocks, which are not none, are nobody else's.
    pub(crate) unsafe fn push_many(magazine: *const Magazine, blocks: &[*mut u8]) -> usize {
        debug_assert!(!blocks.is_empty());
        let put: usize;
        // SAFETY: 1. the area is the thread's, at the offset that was found. 2. Until the last instruction, stores go to slots above
        // the count and below `high`, which nobody reads, and are made again if the sequence begins again. 3. Only the outputs and
        // the flags change.
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
                        // One that is closed must not be stored to, not even what is there.
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
