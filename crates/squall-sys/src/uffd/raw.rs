//! Layout and numbers of the kernel's interface of userfaultfd, which the C library lacks.
//!
//! A structure ends with the field that the kernel writes. The kernel leaves that field alone if it refuses a
//! call early, so a caller sets it to 0.
//! Source: include/uapi/linux/userfaultfd.h of Linux 6.8.

use libc::{_IO, _IOR, _IOWR, Ioctl};

/// Version of the interface, of which there is one so far.
pub(super) const VERSION: u64 = 0xaa;
/// Flag of userfaultfd(2): faults of the kernel itself are left out (5.11).
pub(super) const USER_MODE_ONLY: libc::c_int = 1;

pub(super) const REGISTER_MISSING: u64 = 1;
pub(super) const REGISTER_WRITE_PROTECT: u64 = 1 << 1;
pub(super) const REGISTER_MINOR: u64 = 1 << 2;

/// Mode of each operation that resolves faults, but for `WRITE_PROTECT`.
pub(super) const DONT_WAKE: u64 = 1;
/// Mode of `COPY` and `CONTINUE`.
pub(super) const WRITE_PROTECTED: u64 = 1 << 1;
/// Mode of `MOVE`.
pub(super) const ALLOW_HOLES: u64 = 1 << 1;
pub(super) const PROTECT: u64 = 1;
pub(super) const PROTECT_DONT_WAKE: u64 = 1 << 1;

pub(super) const EVENT_PAGE_FAULT: u8 = 0x12;
pub(super) const EVENT_FORK: u8 = 0x13;
pub(super) const EVENT_REMAP: u8 = 0x14;
pub(super) const EVENT_REMOVE: u8 = 0x15;
pub(super) const EVENT_UNMAP: u8 = 0x16;

pub(super) const FAULT_WRITE: u64 = 1;
pub(super) const FAULT_WRITE_PROTECTED: u64 = 1 << 1;
pub(super) const FAULT_MINOR: u64 = 1 << 2;

const TYPE: u32 = 0xaa;
/// Call of /dev/userfaultfd, which takes the flags of userfaultfd(2).
pub(super) const NEW: Ioctl = _IO(TYPE, 0);
pub(super) const API: Ioctl = _IOWR::<Handshake>(TYPE, 0x3f);
pub(super) const REGISTER: Ioctl = _IOWR::<Register>(TYPE, 0);
// The kernel reads the next two, and calls that `_IOR` by mistake.
pub(super) const UNREGISTER: Ioctl = _IOR::<Range>(TYPE, 1);
pub(super) const WAKE: Ioctl = _IOR::<Range>(TYPE, 2);
pub(super) const COPY: Ioctl = _IOWR::<Transfer>(TYPE, 3);
pub(super) const ZERO_PAGE: Ioctl = _IOWR::<Fill>(TYPE, 4);
pub(super) const MOVE: Ioctl = _IOWR::<Transfer>(TYPE, 5);
pub(super) const WRITE_PROTECT: Ioctl = _IOWR::<Protect>(TYPE, 6);
pub(super) const CONTINUE: Ioctl = _IOWR::<Fill>(TYPE, 7);
pub(super) const POISON: Ioctl = _IOWR::<Fill>(TYPE, 8);

/// `struct uffdio_api`.
#[repr(C)]
pub(super) struct Handshake {
    pub(super) version: u64,
    pub(super) features: u64,
    pub(super) calls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) len: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
pub(super) struct Register {
    pub(super) range: Range,
    pub(super) mode: u64,
    pub(super) calls: u64,
}

/// `struct uffdio_copy` and `struct uffdio_move`.
#[repr(C)]
pub(super) struct Transfer {
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) len: u64,
    pub(super) mode: u64,
    pub(super) done: i64,
}

/// `struct uffdio_zeropage`, `struct uffdio_continue` and `struct uffdio_poison`.
#[repr(C)]
pub(super) struct Fill {
    pub(super) range: Range,
    pub(super) mode: u64,
    pub(super) done: i64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
pub(super) struct Protect {
    pub(super) range: Range,
    pub(super) mode: u64,
}

/// `struct uffd_msg`, as words: the code of the event is byte 0, and its values begin at word 1.
pub(super) type Message = [u64; 4];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uffd::Features;

    const CALLS: [(&str, Ioctl); 10] = [
        ("API", API),
        ("REGISTER", REGISTER),
        ("UNREGISTER", UNREGISTER),
        ("WAKE", WAKE),
        ("COPY", COPY),
        ("ZEROPAGE", ZERO_PAGE),
        ("MOVE", MOVE),
        ("WRITEPROTECT", WRITE_PROTECT),
        ("CONTINUE", CONTINUE),
        ("POISON", POISON),
    ];

    /// Bits 0 to 7 are the number of the call, and bits 8 to 15 the type 0xaa. From bit 16 on are the bytes
    /// of the structure. Bit 30 is set if the kernel reads it, and bit 31 if the kernel writes it.
    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
    fn numbers_are_those_of_the_interface() {
        let expected: [u32; 10] = [
            0xc018_aa3f, // 24 bytes, both directions.
            0xc020_aa00,
            0x8010_aa01, // 16 bytes, one direction.
            0x8010_aa02,
            0xc028_aa03,
            0xc020_aa04,
            0xc028_aa05,
            0xc018_aa06,
            0xc020_aa07,
            0xc020_aa08,
        ];
        let found = CALLS.map(|(_, number)| number as u32);
        assert_eq!(found, expected);
        assert_eq!(NEW as u32, 0xaa00);
        assert_eq!(size_of::<Message>(), 32);
    }

    /// Bytes of a structure of the header: each field of a structure that a call takes is a word or a range.
    fn bytes_of(header: &str, name: &str) -> usize {
        let body = header.split_once(&format!("struct {name} {{")).expect(name).1;
        let body = body.split_once("\n};").expect(name).0;
        let fields = body.lines().map(str::trim);
        fields
            .map(|field| match field.split_whitespace().collect::<Vec<_>>()[..] {
                ["__u64" | "__s64", _] => 8,
                ["struct", "uffdio_range", _] => 16,
                _ => 0,
            })
            .sum()
    }

    /// The value of a definition of the header, with its blanks removed.
    fn defined(header: &str, name: &str) -> Option<String> {
        let header = header.replace("\\\n", " ");
        let of = |line: &str| {
            let rest = line.strip_prefix("#define ")?.strip_prefix(name)?;
            rest.starts_with(char::is_whitespace).then(|| rest.split_whitespace().collect::<String>())
        };
        header.lines().find_map(of)
    }

    #[test]
    fn the_header_of_this_machine_agrees() {
        let Ok(header) = std::fs::read_to_string("/usr/include/linux/userfaultfd.h") else {
            println!("skipped: this machine has no header of userfaultfd");
            return;
        };
        let mut seen = 0;
        for (name, number) in CALLS {
            // A header may be older than the call.
            let Some(call) = defined(&header, &format!("UFFDIO_{name}")) else { continue };
            let nr = defined(&header, &format!("_UFFDIO_{name}")).expect(name);
            let nr = u32::from_str_radix(nr.trim_matches(['(', ')']).trim_start_matches("0x"), 16).unwrap();
            let (_, kind) = call.split_once(",struct").expect(name);
            let bytes = bytes_of(&header, kind.trim_end_matches(')')) as u32;
            let read_alone = call.starts_with("_IOR(");
            let direction = if read_alone { _IOR::<()>(TYPE, nr) } else { _IOWR::<()>(TYPE, nr) };
            assert_eq!(number as u32, direction as u32 | bytes << 16, "{name}");
            seen += 1;
        }
        assert!(seen >= 6, "the header defines {seen} calls");
        let mut known = 0;
        for (name, feature) in Features::NAMES {
            let Some(bit) = defined(&header, &format!("UFFD_FEATURE_{name}")) else { continue };
            let bit = bit.trim_matches(['(', ')']).trim_start_matches("1<<").parse::<u32>().unwrap();
            assert_eq!(feature.bits(), 1 << bit, "{name}");
            known += 1;
        }
        assert!(known >= 9, "the header defines {known} features");
    }
}
