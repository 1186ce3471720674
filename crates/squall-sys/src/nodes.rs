//! NUMA nodes of memory: their number, the node of a processor, and the preferred node of pages. Never
//! allocates.
//!
//! Not promised: pages may come from another node than the preferred one, if that node has no free page. On
//! other systems, and under Miri, there are no nodes, and [`prefer`] returns an error.

use std::io;

/// Number of NUMA nodes that [`prefer`] accepts. Nodes have numbers below this.
pub const NODES_MAX: usize = 1024;

#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use super::NODES_MAX;
    use crate::system::{answered, quietly};
    use std::io;

    const WORDS: usize = NODES_MAX / 64;
    /// `MPOL_PREFERRED`, of linux/mempolicy.h.
    const PREFERRED: libc::c_ulong = 1;
    /// `MPOL_DEFAULT`.
    const DEFAULT: libc::c_int = 0;
    /// No flags. Arguments that the kernel takes as a long are passed as one, because syscall(2) does not
    /// check their types.
    const NONE: libc::c_ulong = 0;
    /// `MPOL_F_ADDR`.
    const OF_ADDRESS: libc::c_ulong = 2;

    pub(super) fn has_policy() -> bool {
        let mut mode = DEFAULT;
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: get_mempolicy(2) with a place of our own, and without a set and an address.
        let asked = quietly(|| unsafe {
            answered(libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, none, NONE, none, NONE))
        });
        asked.is_ok() && mode != DEFAULT
    }

    pub(super) fn prefer(at: *mut u8, len: usize, node: usize) -> io::Result<()> {
        let mut nodes = [0u64; WORDS];
        *nodes.get_mut(node / 64).ok_or(io::ErrorKind::InvalidInput)? = 1 << (node % 64);
        // SAFETY: mbind(2) with a set of `NODES_MAX` bits that only the call reads; the kernel expects one
        // bit more than it reads. It decides where future pages come from, and changes no memory contents.
        quietly(|| unsafe {
            answered(libc::syscall(
                libc::SYS_mbind,
                at,
                len,
                PREFERRED,
                nodes.as_ptr(),
                NODES_MAX as libc::c_ulong + 1,
                NONE,
            ))
        })
        .map(drop)
    }

    pub(super) fn preferred(at: *mut u8) -> io::Result<Option<usize>> {
        let (mut mode, mut nodes) = (-1 as libc::c_int, [0u64; WORDS]);
        // SAFETY: get_mempolicy(2) with two places of our own; the second has `NODES_MAX` bits.
        quietly(|| unsafe {
            answered(libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut mode,
                nodes.as_mut_ptr(),
                NODES_MAX as libc::c_ulong,
                at,
                OF_ADDRESS,
            ))
        })?;
        let first = nodes.iter().position(|word| *word != 0);
        Ok(first
            .filter(|_| mode == PREFERRED as libc::c_int)
            .map(|word| word * 64 + nodes[word].trailing_zeros() as usize))
    }

    pub(super) fn exists(path: &std::ffi::CStr) -> bool {
        crate::system::exists(path)
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod imp {
    use std::io;

    pub(super) fn has_policy() -> bool {
        false
    }

    pub(super) fn prefer(_at: *mut u8, _len: usize, _node: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn preferred(_at: *mut u8) -> io::Result<Option<usize>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn exists(_path: &std::ffi::CStr) -> bool {
        false
    }
}

/// Returns the highest possible node number plus one, or `None` if the system does not tell.
pub fn limit() -> Option<usize> {
    crate::pages::limit_in(c"/sys/devices/system/node/possible")
}

/// Returns the node of processor `cpu` among the first `limit` nodes, or `None` if the system does not tell.
///
/// # Cost
/// A system call for each node up to the result.
pub fn of_processor(cpu: usize, limit: usize) -> Option<usize> {
    (0..limit).find(|node| {
        let mut path = Path { bytes: [0; 64], len: 0 };
        // The last byte stays 0.
        let fits = std::fmt::Write::write_fmt(
            &mut path,
            format_args!("/sys/devices/system/cpu/cpu{cpu}/node{node}"),
        );
        fits.is_ok() && std::ffi::CStr::from_bytes_until_nul(&path.bytes).is_ok_and(imp::exists)
    })
}

/// A short text in a fixed buffer.
struct Path {
    bytes: [u8; 64],
    len: usize,
}

impl std::fmt::Write for Path {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).filter(|_| end < 64).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// True if the calling thread has a memory policy of its own, as `numactl` sets for whole programs
/// (set_mempolicy(2)). False if the kernel does not tell.
pub fn has_policy() -> bool {
    imp::has_policy()
}

/// Makes future pages at these addresses come from the memory of `node`, as long as the node has free pages.
///
/// Automatic NUMA balancing no longer moves such pages. If threads move to another node for good, their pages
/// stay behind. The C library's `errno` is preserved.
///
/// # Units
/// `at` and `len` in bytes, both multiples of the page size.
/// # Errors
/// The error of mbind(2): the kernel has no NUMA support, has no such node, or refuses. The preference is
/// then unchanged.
/// # Cost
/// A system call.
pub fn prefer(at: *mut u8, len: usize, node: usize) -> io::Result<()> {
    imp::prefer(at, len, node)
}

/// Returns the preferred node of pages at this address, as set by [`prefer`], or `None` if it was never set.
///
/// # Errors
/// The error of get_mempolicy(2).
pub fn preferred(at: *mut u8) -> io::Result<Option<usize>> {
    imp::preferred(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages;

    #[test]
    fn a_preference_is_kept_and_a_nonexistent_node_is_an_error() {
        const UNIT: usize = pages::UNIT_BYTES;
        let at = pages::map(3 * UNIT, 4096, |_, _| {}).unwrap().as_ptr();
        assert!(prefer(at, 3 * UNIT, NODES_MAX).is_err());
        let all = || {
            [0, UNIT - 1, UNIT, 2 * UNIT - 1, 2 * UNIT].map(|byte| preferred(at.wrapping_add(byte)).unwrap())
        };
        if preferred(at).is_ok() {
            assert_eq!(all(), [None; 5]);
        }
        // The preference covers exactly `UNIT` bytes from there on.
        if prefer(at.wrapping_add(UNIT), UNIT, 0).is_ok() {
            assert_eq!(all(), [None, None, Some(0), Some(0), None]);
        }
        // SAFETY: our own mapping.
        unsafe { pages::unmap(at, 3 * UNIT).unwrap() };
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_refusal_leaves_errno_alone() {
        let at = pages::map(pages::UNIT_BYTES, 4096, |_, _| {}).unwrap().as_ptr();
        // SAFETY: this thread's own `errno`.
        unsafe { libc::__errno_location().write(77) };
        // The first range is not of whole pages; the second address is in no mapping.
        assert!(prefer(at.wrapping_add(1), pages::UNIT_BYTES, 0).is_err());
        assert!(preferred(std::ptr::null_mut()).is_err());
        has_policy();
        // SAFETY: this thread's own `errno`.
        assert_eq!(unsafe { libc::__errno_location().read() }, 77);
        // SAFETY: our own mapping.
        unsafe { pages::unmap(at, pages::UNIT_BYTES).unwrap() };
    }

    #[test]
    fn the_current_processor_has_the_node_that_the_kernel_reports() {
        let Some(limit) = limit() else { return };
        let Some((cpu, node)) = pages::current_place() else { return };
        if let Some(found) = of_processor(cpu, limit) {
            assert_eq!(found, node);
        }
        assert_eq!(of_processor(usize::MAX, limit), None);
    }
}
