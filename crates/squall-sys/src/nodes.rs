//! NUMA nodes of memory: which there are, whose a processor is, and where pages are to come from; without allocating.
//!
//! Not promised: that pages come from the node that was asked for. It is a preference: where the node has no free page, another's
//! serves. Where there is no such system (and below Miri) there are no nodes, and [`prefer`] says so.

use std::io;

/// Nodes that a preference can name.
pub const NODES_MAX: usize = 1024;

#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use super::NODES_MAX;
    use std::io;

    const WORDS: usize = NODES_MAX / 64;
    /// `MPOL_PREFERRED`, of linux/mempolicy.h.
    const PREFERRED: libc::c_ulong = 1;
    /// `MPOL_DEFAULT`.
    const DEFAULT: libc::c_int = 0;
    /// No flags. All that the kernel takes as a long is passed as one: syscall(2) says nothing of its arguments' types.
    const NONE: libc::c_ulong = 0;
    /// `MPOL_F_ADDR`.
    const OF_ADDRESS: libc::c_ulong = 2;

    /// Runs `f`, which may fail, and leaves `errno` as it was: whoever allocates may be about to read it.
    fn quietly<R>(f: impl FnOnce() -> R) -> R {
        // SAFETY: the calling thread's own, which lives as long as the thread.
        unsafe {
            let errno = libc::__errno_location();
            let before = errno.read();
            let result = f();
            errno.write(before);
            result
        }
    }

    fn answered(failed: libc::c_long) -> io::Result<()> {
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

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
        // SAFETY: mbind(2) of a set of so many bits, read by the call alone, one more being named than are looked at. It says where
        // pages come from that do not exist yet, and changes nothing that is in memory.
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
    }

    pub(super) fn preferred(at: *mut u8) -> io::Result<Option<usize>> {
        let (mut mode, mut nodes) = (-1 as libc::c_int, [0u64; WORDS]);
        // SAFETY: get_mempolicy(2) with two places of our own, of which the second has so many bits.
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
        rustix::fs::access(path, rustix::fs::Access::EXISTS).is_ok()
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

/// One more than the highest number of a node that the machine may ever have; `None` where it does not tell.
pub fn limit() -> Option<usize> {
    crate::pages::limit_in(c"/sys/devices/system/node/possible")
}

/// The node of this processor, among the first `limit`; `None` where the system does not tell.
///
/// # Cost
/// A system call for each node up to it.
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

/// A short text without allocating.
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

/// Whether the calling thread has a policy of its own for its memory, as `numactl` gives to whole programs: set_mempolicy(2). Not
/// where the kernel does not tell.
pub fn has_policy() -> bool {
    imp::has_policy()
}

/// Has pages of these addresses that are touched from now on come from the memory of `node`, as long as it has any free.
///
/// Such pages are left out of what the kernel moves by itself (automatic NUMA balancing): where threads move to another node for good,
/// their pages stay behind. The C library's `errno` stays as it is.
///
/// # Units
/// Bytes, both of whole pages.
/// # Errors
/// That of mbind(2): the kernel knows no nodes, or not this one, or refuses. Nothing was changed then.
/// # Cost
/// A system call.
pub fn prefer(at: *mut u8, len: usize, node: usize) -> io::Result<()> {
    imp::prefer(at, len, node)
}

/// From which node pages at this address are to come, as [`prefer`] said; `None` if nobody did.
///
/// # Errors
/// That of get_mempolicy(2).
pub fn preferred(at: *mut u8) -> io::Result<Option<usize>> {
    imp::preferred(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages;

    #[test]
    fn a_preference_is_kept_and_one_for_no_node_is_an_error() {
        const UNIT: usize = pages::UNIT_BYTES;
        let at = pages::map(3 * UNIT, 4096, |_, _| {}).unwrap().as_ptr();
        assert!(prefer(at, 3 * UNIT, NODES_MAX).is_err());
        let all = || {
            [0, UNIT - 1, UNIT, 2 * UNIT - 1, 2 * UNIT].map(|byte| preferred(at.wrapping_add(byte)).unwrap())
        };
        if preferred(at).is_ok() {
            assert_eq!(all(), [None; 5]);
        }
        // So many bytes from there on, and no others.
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
        // SAFETY: this thread's own number.
        unsafe { libc::__errno_location().write(77) };
        // Not of whole pages, and of no mapping.
        assert!(prefer(at.wrapping_add(1), pages::UNIT_BYTES, 0).is_err());
        assert!(preferred(std::ptr::null_mut()).is_err());
        has_policy();
        // SAFETY: as above.
        assert_eq!(unsafe { libc::__errno_location().read() }, 77);
        // SAFETY: our own mapping.
        unsafe { pages::unmap(at, pages::UNIT_BYTES).unwrap() };
    }

    #[test]
    fn the_processor_that_we_are_on_has_the_node_that_the_kernel_says() {
        let Some(limit) = limit() else { return };
        let Some((cpu, node)) = pages::current_place() else { return };
        if let Some(found) = of_processor(cpu, limit) {
            assert_eq!(found, node);
        }
        assert_eq!(of_processor(usize::MAX, limit), None);
    }
}
