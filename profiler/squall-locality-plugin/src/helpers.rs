//! Recognises compiler helpers on aarch64: functions for atomic operations, so that a program runs with and
//! without the processor's atomic instructions.
//!
//! Problem: compilers call one of these few functions (`__aarch64_cas4_acq` and others) for nearly every
//! atomic operation. An access attributed to the helper does not show its origin, and no lock could be
//! recognised by its function. Idea: attribute the access to the branch that leads to the helper. A helper
//! begins with three instructions that test for the atomic instruction, using a register reserved for
//! linkers; no other code begins so. A branch to a helper records its own address when it runs. The helper's
//! atomic accesses then count there.
//!
//! - I1. Counts are unchanged; only the attributed instruction address differs.
//!
//! Not promised: helpers called through a pointer or a linker veneer. Their accesses count at the processor's
//! last branch to a helper, or at the helper itself if there was none.
//!
//! Cost: one callback per executed branch to a helper.
//!
//! Source: GCC's `libgcc/config/aarch64/lse.S`, and the compiler runtime of Rust, which is modelled on it.

/// Number of bytes inspected before an instruction; a helper is shorter.
pub(crate) const BEFORE: usize = 64;
/// Number of bytes that identify a helper.
pub(crate) const HEAD: usize = 16;

/// `ret`.
const RETURN: u32 = 0xd65f_03c0;
/// `bti c`, an optional first instruction of a helper.
const LANDING: u32 = 0xd503_245f;

/// Whether the code begins with `adrp x16, …`, `ldrb w16, [x16, …]`, `cbz w16, …`.
fn has_test(words: &[u32]) -> bool {
    let is = |at: usize, mask: u32, value: u32| words.get(at).is_some_and(|word| word & mask == value);
    is(0, 0x9f00_001f, 0x9000_0010) && is(1, 0xffc0_03ff, 0x3940_0210) && is(2, 0xff00_001f, 0x3400_0010)
}

fn words(code: &[u8]) -> Vec<u32> {
    code.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

/// Whether this code, of [`HEAD`] bytes, begins a helper.
pub(crate) fn begins(code: &[u8]) -> bool {
    let words = words(code);
    has_test(words.strip_prefix(&[LANDING]).unwrap_or(&words))
}

/// Whether the instruction after this code lies in a helper: the code contains the head of one, and at most
/// one return after it.
pub(crate) fn is_inside(before: &[u8]) -> bool {
    let words = words(before);
    let mut returns = 0;
    for at in (0..words.len()).rev() {
        if has_test(&words[at..]) {
            return true;
        }
        returns += u32::from(words[at] == RETURN);
        if returns > 1 {
            return false;
        }
    }
    false
}

/// Whether a helper may use this instruction for its operation: an atomic, or half of an exclusive pair.
pub(crate) fn may_be_operation(code: &[u8], is_atomic: bool) -> bool {
    let loads = |word: &u32| word & 0x3f40_0000 == 0x0840_0000;
    is_atomic || words(code).first().is_some_and(loads)
}

/// Target of a direct branch (`b`, `bl`), if the instruction is one.
pub(crate) fn target(address: u64, code: &[u8]) -> Option<u64> {
    let word = *words(code).first()?;
    if word & 0x7c00_0000 != 0x1400_0000 {
        return None;
    }
    // A signed 26-bit distance, in instructions.
    let distance = i64::from((word << 6).cast_signed() >> 6) * 4;
    Some(address.wrapping_add_signed(distance))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiled code of `__aarch64_cas4_acq`.
    const CAS: [u32; 12] = [
        0x9000_01d0,
        0x396a_f210,
        0x3400_0070,
        0x88e0_7c41,
        RETURN,
        0x2a00_03f0,
        0x885f_fc40,
        0x6b10_001f,
        0x5400_0061,
        0x8811_7c41,
        0x35ff_ff91,
        RETURN,
    ];

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn helpers_are_recognised_by_their_head() {
        assert!(begins(&bytes(&CAS[..4])));
        assert!(begins(&bytes(&[&[LANDING], &CAS[..3]].concat())));
        assert!(!begins(&bytes(&CAS[1..5])) && !begins(&bytes(&CAS[..2])) && !begins(&[]));
        // Another register: an ordinary test in the program.
        assert!(!begins(&bytes(&[0x9000_01d1, 0x396a_f231, 0x3400_0071])));
    }

    #[test]
    fn instructions_inside_a_helper_are_recognised() {
        for at in 3..CAS.len() {
            assert!(is_inside(&bytes(&CAS[..at])), "{at}");
        }
        // A function that follows the helper.
        let after = [&CAS[..], &[0xd503_201f, 0xf820_0041]].concat();
        assert!(!is_inside(&bytes(&after)) && !is_inside(&bytes(&CAS[4..])) && !is_inside(&[]));
        let works = |word: u32, is_atomic| may_be_operation(&word.to_le_bytes(), is_atomic);
        // cas, stxr; ldaxr; ldr.
        assert!(
            works(CAS[3], true) && works(CAS[9], true) && works(CAS[6], false) && !works(0xf940_0041, false)
        );
    }

    #[test]
    fn a_direct_branch_has_a_target() {
        let leads = |word: u32| target(0x1000, &word.to_le_bytes());
        // bl 0x1008, b 0xffc, bl to itself, the furthest back; blr, b.eq.
        assert_eq!(leads(0x9400_0002), Some(0x1008));
        assert_eq!(leads(0x17ff_ffff), Some(0xffc));
        assert_eq!(leads(0x9400_0000), Some(0x1000));
        assert_eq!(leads(0x9600_0000), Some(0x1000u64.wrapping_sub(1 << 27)));
        assert_eq!((leads(0xd63f_0100), leads(0x5400_0040), target(0, &[])), (None, None, None));
    }
}
