//! Facts about the emulated processor: a few instructions, and the numbers of a few system calls.
//!
//! Idea: the plugin interface reports accesses but not the kind of instruction. The first bytes of an
//! instruction suffice to recognise atomics, calls, returns and the two marks.
//!
//! - I1. A mark is a single instruction without effect that no compiler emits.
//!
//! Not promised: a full decoder. An unknown atomic instruction counts as plain.

use crate::format::insn;

/// Architectures of profiled programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// x86-64.
    X86,
    /// aarch64.
    Arm,
}

/// Properties of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Kind, a constant of [`insn`].
    pub kind: u8,
    /// Whether the instruction calls a function.
    pub call: bool,
    /// Whether the instruction returns from a function.
    pub ret: bool,
    /// The mark, if the instruction is one.
    pub mark: Option<Mark>,
}

/// The two marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Opens the window of the thread.
    Begin,
    /// Closes the window of the thread.
    End,
}

/// `nopl 0x01555153(%rax,%rax)`: bytes `S`, `Q`, `U`, then 1 for begin or 2 for end.
const X86_MARK: [u8; 7] = [0x0f, 0x1f, 0x84, 0x00, b'S', b'Q', b'U'];
/// Begin is `movz xzr, #0x5351`, end is `movz xzr, #0x5352`.
const ARM_BEGIN: u32 = 0xd280_0000 | 0x5351 << 5 | 31;
const ARM_END: u32 = 0xd280_0000 | 0x5352 << 5 | 31;

/// Numbers of the observed system calls.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    pub(crate) mmap: i64,
    pub(crate) munmap: i64,
    pub(crate) mremap: i64,
    pub(crate) clone: i64,
    pub(crate) execve: i64,
    pub(crate) execveat: i64,
    pub(crate) exit_group: i64,
    pub(crate) futex: i64,
    pub(crate) prctl: i64,
}

const X86_CALLS: Calls = Calls {
    mmap: 9,
    munmap: 11,
    mremap: 25,
    clone: 56,
    execve: 59,
    execveat: 322,
    exit_group: 231,
    futex: 202,
    prctl: 157,
};
const ARM_CALLS: Calls = Calls {
    mmap: 222,
    munmap: 215,
    mremap: 216,
    clone: 220,
    execve: 221,
    execveat: 281,
    exit_group: 94,
    futex: 98,
    prctl: 167,
};

impl Arch {
    /// Architecture with the emulator's name for it.
    #[must_use]
    pub fn named(name: &str) -> Option<Arch> {
        match name {
            "x86_64" => Some(Arch::X86),
            "aarch64" => Some(Arch::Arm),
            _ => None,
        }
    }

    /// Numbers of its system calls.
    #[must_use]
    pub fn calls(self) -> &'static Calls {
        match self {
            Arch::X86 => &X86_CALLS,
            Arch::Arm => &ARM_CALLS,
        }
    }

    /// Whether a call stores the return address to memory and a return loads it.
    #[must_use]
    pub fn stores_returns(self) -> bool {
        self == Arch::X86
    }

    /// Classifies an instruction by its first bytes.
    #[must_use]
    pub fn decode(self, bytes: &[u8]) -> Decoded {
        match self {
            Arch::X86 => decode_x86(bytes),
            Arch::Arm => match bytes.first_chunk() {
                Some(word) => decode_arm(u32::from_le_bytes(*word)),
                None => Decoded::default(),
            },
        }
    }
}

fn decode_x86(bytes: &[u8]) -> Decoded {
    let plain = Decoded::default();
    if let Some([last, ..]) = bytes.strip_prefix(&X86_MARK) {
        let mark = match last {
            1 => Some(Mark::Begin),
            2 => Some(Mark::End),
            _ => None,
        };
        return Decoded { mark, ..plain };
    }
    let mut locked = false;
    let mut rest = bytes;
    // Prefixes: lock, repeat, segments, sizes; then REX.
    while let [first, tail @ ..] = rest {
        match first {
            0xf0 => locked = true,
            0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0x66 | 0x67 | 0x40..=0x4f => {}
            _ => break,
        }
        rest = tail;
    }
    // Register field of the byte after the opcode, and whether an operand is in memory.
    let field = |at: usize| rest.get(at).map_or(0, |byte| byte >> 3 & 7);
    let memory = |at: usize| rest.get(at).is_some_and(|byte| byte >> 6 != 3);
    match rest {
        [0x86 | 0x87, ..] if memory(1) => Decoded { kind: insn::EXCHANGE, ..plain },
        // cmpxchg, cmpxchg8b and cmpxchg16b.
        [0x0f, 0xb0 | 0xb1, ..] if locked => Decoded { kind: insn::EXCHANGE, ..plain },
        [0x0f, 0xc7, ..] if locked && field(2) == 1 => Decoded { kind: insn::EXCHANGE, ..plain },
        // bts, which some locks use to acquire.
        [0x0f, 0xab, ..] if locked => Decoded { kind: insn::EXCHANGE, ..plain },
        [0x0f, 0xba, ..] if locked && field(2) == 5 => Decoded { kind: insn::EXCHANGE, ..plain },
        [0xe8, ..] => Decoded { call: true, ..plain },
        [0xc2 | 0xc3, ..] => Decoded { ret: true, ..plain },
        [0xff, ..] if field(1) == 2 => Decoded { call: true, ..plain },
        _ if locked => Decoded { kind: insn::ATOMIC, ..plain },
        _ => plain,
    }
}

fn decode_arm(word: u32) -> Decoded {
    let plain = Decoded::default();
    match word {
        ARM_BEGIN => return Decoded { mark: Some(Mark::Begin), ..plain },
        ARM_END => return Decoded { mark: Some(Mark::End), ..plain },
        _ => {}
    }
    let is = |mask: u32, value: u32| word & mask == value;
    // bl, blr; blr with pointer authentication.
    if is(0xfc00_0000, 0x9400_0000) || is(0xffff_fc1f, 0xd63f_0000) || is(0xfeff_f800, 0xd63f_0800) {
        return Decoded { call: true, ..plain };
    }
    // ret, and br through the link register; ret with pointer authentication.
    if is(0xffff_fc1f, 0xd65f_0000) || word == 0xd61f_03c0 || is(0xffff_fbff, 0xd65f_0bff) {
        return Decoded { ret: true, ..plain };
    }
    // Exclusive stores (the writing half of a pair), cas and casp, swp.
    let exclusive =
        is(0x3fe0_0000, 0x0800_0000) || is(0x3fe0_8000, 0x0820_0000) || is(0x3fe0_8000, 0x0820_8000);
    let compares = is(0x3fa0_7c00, 0x08a0_7c00) || is(0xbfa0_7c00, 0x0820_7c00);
    let swaps = is(0x3f20_fc00, 0x3820_8000);
    if exclusive || compares || swaps {
        return Decoded { kind: insn::EXCHANGE, ..plain };
    }
    // Other atomic memory operations: ldadd, ldclr, ldeor, ldset, maximum and minimum.
    if is(0x3f20_8c00, 0x3820_0000) {
        return Decoded { kind: insn::ATOMIC, ..plain };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x86(bytes: &[u8]) -> Decoded {
        Arch::X86.decode(bytes)
    }

    #[test]
    fn marks_are_recognised_by_their_bytes() {
        let mark = |last| x86(&[0x0f, 0x1f, 0x84, 0x00, b'S', b'Q', b'U', last]).mark;
        assert_eq!((mark(1), mark(2), mark(3)), (Some(Mark::Begin), Some(Mark::End), None));
        let arm = |word: u32| Arch::Arm.decode(&word.to_le_bytes()).mark;
        assert_eq!(arm(0xd28a_6a3f), Some(Mark::Begin));
        assert_eq!(arm(0xd28a_6a5f), Some(Mark::End));
        assert_eq!(arm(0xd503_201f), None);
    }

    #[test]
    fn atomic_instructions_are_recognised() {
        // lock xadd, lock inc, lock cmpxchg, xchg with memory, xchg of registers, add to memory.
        assert_eq!(x86(&[0xf0, 0x48, 0x0f, 0xc1, 0x07]).kind, insn::ATOMIC);
        assert_eq!(x86(&[0xf0, 0x48, 0xff, 0x07]).kind, insn::ATOMIC);
        assert_eq!(x86(&[0xf0, 0x0f, 0xb1, 0x0f]).kind, insn::EXCHANGE);
        assert_eq!(x86(&[0x87, 0x07]).kind, insn::EXCHANGE);
        assert_eq!(x86(&[0x48, 0x87, 0xd8]).kind, insn::PLAIN);
        assert_eq!(x86(&[0x48, 0x01, 0x07]).kind, insn::PLAIN);
        let arm = |word: u32| Arch::Arm.decode(&word.to_le_bytes()).kind;
        // ldadd, ldaddal, cas, casal, swp, stxr, stlxr; ldr, str, ldar, stlr.
        assert_eq!(arm(0xf820_0041), insn::ATOMIC);
        assert_eq!(arm(0xf8e0_0041), insn::ATOMIC);
        assert_eq!(arm(0xc8a0_7c41), insn::EXCHANGE);
        assert_eq!(arm(0xc8e0_fc41), insn::EXCHANGE);
        assert_eq!(arm(0xf820_8041), insn::EXCHANGE);
        assert_eq!(arm(0xc802_7c20), insn::EXCHANGE);
        assert_eq!(arm(0xc802_fc20), insn::EXCHANGE);
        assert_eq!(arm(0xf940_0041), insn::PLAIN);
        assert_eq!(arm(0xf900_0041), insn::PLAIN);
        assert_eq!(arm(0xc8df_fc41), insn::PLAIN);
        assert_eq!(arm(0xc89f_fc41), insn::PLAIN);
    }

    #[test]
    fn calls_are_recognised() {
        assert!(x86(&[0xe8, 0, 0, 0, 0]).call);
        assert!(x86(&[0xff, 0xd0]).call);
        assert!(x86(&[0x41, 0xff, 0x54, 0x24, 0x18]).call);
        assert!(!x86(&[0xff, 0xe0]).call);
        assert!(
            !x86(&[0xc3]).call && x86(&[0xc3]).ret && x86(&[0xf3, 0xc3]).ret && !x86(&[0xe8, 0, 0, 0, 0]).ret
        );
        let arm = |word: u32| Arch::Arm.decode(&word.to_le_bytes());
        // blraa, blraaz; ret, br x30, retaa, retab; br x17, b.
        assert!(arm(0xd73f_0822).call && arm(0xd63f_083f).call);
        assert!([0xd65f_03c0, 0xd61f_03c0, 0xd65f_0bff, 0xd65f_0fff].iter().all(|word| arm(*word).ret));
        assert!([0xd61f_0220, 0x1400_0001, 0x9400_0001].iter().all(|word| !arm(*word).ret));
        assert!(Arch::Arm.decode(&0x9400_0001u32.to_le_bytes()).call);
        assert!(Arch::Arm.decode(&0xd63f_0100u32.to_le_bytes()).call);
    }

    #[test]
    fn any_bytes_can_be_decoded() {
        for first in 0..=255 {
            for second in 0..=255 {
                let bytes = [first, second, 0, 0xff];
                for length in 0..=4 {
                    let _ = Arch::X86.decode(&bytes[..length]);
                    let _ = Arch::Arm.decode(&bytes[..length]);
                }
            }
        }
    }
}
