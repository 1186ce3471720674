//! Memory that processes share, safe to use while the other process is hostile. Linux only.
//!
//! Problem: another process may write to the memory at any time, and owns its file too. If it could cut the
//! file short, an access here would end this process by a signal. If it could change bytes during a check,
//! the check would be worthless.
//!
//! Idea: the memory is a file without a name (memfd), of exact size, sealed against every change of size.
//! The kernel keeps seals for the life of the file. The memory is reached as words, which are atomic, and by
//! copies of bytes. The caller checks its copy, which no other process can reach.
//!
//! - I1. The file of a mapping is of tmpfs, has exactly the stated size, and has the seals `SEALS`. So each
//!   page of the mapping stays accessible.
//! - I2. No reference to the bytes of a mapping exists, except to an [`AtomicU32`].
//! - I3. A copy reads each byte of the memory once. The compiler cannot read it again later.
//!
//! A forked child keeps the mapping (no MADV_DONTFORK). Otherwise the addresses could come to hold other
//! memory of the child, and [`SharedMemory::word`] would be unsound there. A layer that hands out calls must
//! refuse them in a child, by [`crate::fork::forked`].
//!
//! Not promised: memory. Pages come into being when they are first touched, and touching one fails like that
//! of any page if there is no memory. With strict accounting (`vm.overcommit_memory=2`) the kernel then sends
//! SIGBUS.
//! Cost: a copy takes one load and one store per 16 bytes on x86-64, and per 8 bytes elsewhere. From 2048
//! bytes, x86-64 has one instruction for it.
//! Source: memfd_create(2), fcntl(2), F_ADD_SEALS.
#![cfg(all(target_os = "linux", not(miri)))]

use crate::system::{answered, opened, quietly, unmap};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Seals that a file must have: its size never changes, and nobody adds a seal against writing.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A mapping of a sealed file in memory.
#[derive(Debug)]
pub struct SharedMemory {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the value owns its mapping, which belongs to no thread.
unsafe impl Send for SharedMemory {}
// SAFETY: all accesses through a shared reference are atomic operations or copies of which each access is
// atomic or made by assembly (`copy_from`, `copy_to`).
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates zeroed memory of `bytes` bytes, sealed against every change of size. Returns it with its file,
    /// for another process to [`open`](Self::open).
    ///
    /// The file closes on exec. Where the kernel can (6.3), it is also sealed against becoming executable.
    ///
    /// # Errors
    /// The error of memfd_create(2), ftruncate(2), fcntl(2) or mmap(2). `InvalidInput` if `bytes` is 0 or
    /// above the largest size of a file.
    pub fn create(bytes: usize) -> io::Result<(SharedMemory, OwnedFd)> {
        const FLAGS: libc::c_uint = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let length = libc::off_t::try_from(bytes).ok().filter(|length| *length > 0);
        let length = length.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: memfd_create(2) with a C string. It returns a new descriptor or -1.
        let make = |flags| unsafe { opened(|| libc::memfd_create(c"squall".as_ptr(), flags)) };
        let file = match make(FLAGS | libc::MFD_NOEXEC_SEAL) {
            // Kernels before 6.3 do not know the flag.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => make(FLAGS)?,
            result => result?,
        };
        // SAFETY: ftruncate(2) and fcntl(2) on a file of our own. Both take numbers.
        quietly(|| unsafe {
            answered(libc::ftruncate(file.as_raw_fd(), length))?;
            answered(libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS))
        })?;
        let memory = SharedMemory::map(file.as_fd(), bytes)?;
        Ok((memory, file))
    }

    /// Maps the memory of a file that came from another process.
    ///
    /// The file may be closed afterwards.
    ///
    /// # Errors
    /// `InvalidData` with the reason, if `file` is not of exactly `bytes` bytes or lacks a seal: its sender
    /// could then end this process. The error of mmap(2), for example if the file is open for reading only.
    pub fn open(file: BorrowedFd<'_>, bytes: usize) -> io::Result<SharedMemory> {
        check(file, bytes)?;
        SharedMemory::map(file, bytes)
    }

    /// Maps a checked file (I1).
    fn map(file: BorrowedFd<'_>, bytes: usize) -> io::Result<SharedMemory> {
        const USABLE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
        let at = quietly(|| {
            // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
            let at = unsafe {
                libc::mmap(std::ptr::null_mut(), bytes, USABLE, libc::MAP_SHARED, file.as_raw_fd(), 0)
            };
            if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at) }
        })?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedMemory { at, bytes })
    }

    /// Returns the size in bytes. It is never 0.
    #[expect(clippy::len_without_is_empty, reason = "memory without bytes cannot be made")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the word at this offset in bytes. The other process may change it at any time.
    ///
    /// # Panics
    /// Panics if the word is not within the memory, or `offset` is not a multiple of 4.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "offset {offset} of a word in shared memory is no multiple of 4");
        let at = self.place(offset, size_of::<AtomicU32>());
        // SAFETY: 1. `place` checked that the word is within the mapping, which lives as long as `self`, and
        // whose pages stay accessible (I1). 2. A mapping begins at a page, so the word is aligned. 3. Any
        // bytes are a valid word. 4. All accesses of this process to the bytes are atomic or by assembly.
        // Writes of another process act on the same bytes of the machine's memory, as atomic ones or in
        // parts; the compiler assumes nothing about the value of an atomic word.
        unsafe { at.cast::<AtomicU32>().as_ref() }
    }

    /// Copies bytes into the memory, beginning at this offset.
    ///
    /// If another thread or process accesses the same bytes meanwhile, it sees a mix of old and new ones.
    ///
    /// # Panics
    /// Panics if the bytes do not fit within the memory.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let to = self.place(offset, bytes.len());
        // SAFETY: `place` checked the range of the mapping, and `bytes` is private memory of the same length,
        // of which a mapping is never part (I2).
        unsafe { copy_to(to.as_ptr(), bytes.as_ptr(), bytes.len()) }
    }

    /// Copies bytes out of the memory, beginning at this offset.
    ///
    /// If another thread or process writes the same bytes meanwhile, the copy is a mix of old and new ones.
    /// Later writes cannot change the copy: check the copy, and never copy a second time.
    ///
    /// # Panics
    /// Panics if the bytes are not all within the memory.
    #[inline]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.place(offset, bytes.len());
        // SAFETY: as in `copy_in`, in the other direction.
        unsafe { copy_from(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Returns the address of a range of the mapping, after a check of its bounds.
    #[inline]
    fn place(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(fits, "{bytes} bytes at {offset} are not within the {} bytes of shared memory", self.bytes);
        // SAFETY: within the mapping.
        unsafe { self.at.byte_add(offset) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and references to its words have ended. Only a full table of mappings
        // can refuse it; the mapping then stays.
        let _ = unsafe { unmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// Checks that a file is memory of exactly this size, and sealed (I1).
fn check(file: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let refused = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    // SAFETY: fcntl(2) with a descriptor alone.
    let seals = quietly(|| answered(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })).map_err(
        |error| refused(format!("the peer's file cannot be sealed ({error}): it must be a memfd")),
    )?;
    let missing: Vec<&str> = [
        (libc::F_SEAL_SHRINK, "F_SEAL_SHRINK"),
        (libc::F_SEAL_GROW, "F_SEAL_GROW"),
        (libc::F_SEAL_SEAL, "F_SEAL_SEAL"),
    ]
    .into_iter()
    .filter(|(seal, _)| seals & libc::c_long::from(*seal) == 0)
    .map(|(_, name)| name)
    .collect();
    if !missing.is_empty() {
        return Err(refused(format!(
            "the peer's memory lacks {}: the peer could cut it short, so it must add these seals first",
            missing.join(", ")
        )));
    }
    // Pages of hugetlbfs can be given back by the other process, and touching them then sends SIGBUS.
    // SAFETY: fstatfs(2) fills a place of our own, for which zeros are valid too.
    let system = quietly(|| unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        answered(libc::fstatfs(file.as_raw_fd(), &raw mut system)).map(|_| system.f_type)
    })?;
    if system != libc::TMPFS_MAGIC as _ {
        return Err(refused("the peer's memory has huge pages: it must be a memfd of ordinary pages".into()));
    }
    // The size is read last: the seals keep it from now on.
    // SAFETY: fstat(2) fills a place of our own, for which zeros are valid too.
    let length = quietly(|| unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        answered(libc::fstat(file.as_raw_fd(), &raw mut about)).map(|_| about.st_size)
    })?;
    if bytes == 0 || usize::try_from(length) != Ok(bytes) {
        return Err(refused(format!("the peer's memory has {length} bytes, and must have exactly {bytes}")));
    }
    Ok(())
}

/// Bytes that one round of the loop in assembly copies.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 64;
/// Length from which the copy instruction of x86-64 beats that loop: 155 ns against 274 for 8 KiB.
#[cfg(target_arch = "x86_64")]
const LONG: usize = 2048;

/// Copies the beginning of a range by assembly, and returns the number of bytes copied, perhaps 0.
///
/// One side may be memory that others write meanwhile. The compiler cannot look into assembly, so it assumes
/// no access but these, and that all memory may have changed afterwards (I3).
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`, and the ranges do not overlap.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_blocks(from: *const u8, to: *mut u8, len: usize) -> usize {
    if len >= LONG {
        // SAFETY: reads and writes `len` bytes upwards, within both ranges by our caller's contract. The ABI
        // keeps the direction flag clear.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags),
            );
        }
        return len;
    }
    let whole = len - len % BLOCK;
    if whole > 0 {
        // SAFETY: reads and writes `whole` bytes, within both ranges by our caller's contract. `whole` is a
        // positive multiple of `BLOCK`, so that the counter meets 0. The instructions need no alignment.
        unsafe {
            std::arch::asm!(
                "2:",
                "movups {a}, xmmword ptr [{from} + {left}]",
                "movups {b}, xmmword ptr [{from} + {left} + 16]",
                "movups {c}, xmmword ptr [{from} + {left} + 32]",
                "movups {d}, xmmword ptr [{from} + {left} + 48]",
                "movups xmmword ptr [{to} + {left}], {a}",
                "movups xmmword ptr [{to} + {left} + 16], {b}",
                "movups xmmword ptr [{to} + {left} + 32], {c}",
                "movups xmmword ptr [{to} + {left} + 48], {d}",
                "add {left}, 64",
                "jnz 2b",
                from = in(reg) from.wrapping_add(whole),
                to = in(reg) to.wrapping_add(whole),
                left = inout(reg) 0usize.wrapping_sub(whole) => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
    whole
}

/// Other processors copy by words alone.
///
/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_blocks(_from: *const u8, _to: *mut u8, _len: usize) -> usize {
    0
}

/// Copies shared memory to private memory.
///
/// # Safety
/// `len` bytes are readable at `shared`, which is in a mapping. As many are writable at `private`, which no
/// other thread uses.
#[inline]
unsafe fn copy_from(shared: *mut u8, private: *mut u8, len: usize) {
    // SAFETY: the ranges of our caller; a mapping and private memory do not overlap.
    let mut done = unsafe { copy_blocks(shared, private, len) };
    while done < len {
        // SAFETY: 1. `done < len`, and a word is read only if 8 more bytes are within the ranges. 2. The
        // shared word is aligned, and the private one is written without alignment. 3. The shared side is
        // read atomically, since others may write it meanwhile. Relaxed: the protocol above orders copies by
        // its words.
        unsafe {
            let from = shared.add(done);
            let to = private.add(done);
            if len - done >= 8 && from.addr().is_multiple_of(8) {
                let word = AtomicU64::from_ptr(from.cast()).load(Ordering::Relaxed);
                to.cast::<u64>().write_unaligned(word);
                done += 8;
            } else {
                to.write(AtomicU8::from_ptr(from).load(Ordering::Relaxed));
                done += 1;
            }
        }
    }
}

/// Copies private memory to shared memory.
///
/// # Safety
/// `len` bytes are writable at `shared`, which is in a mapping. As many are readable at `private`.
#[inline]
unsafe fn copy_to(shared: *mut u8, private: *const u8, len: usize) {
    // SAFETY: the ranges of our caller; a mapping and private memory do not overlap.
    let mut done = unsafe { copy_blocks(private, shared, len) };
    while done < len {
        // SAFETY: as in `copy_from`, in the other direction.
        unsafe {
            let from = private.add(done);
            let to = shared.add(done);
            if len - done >= 8 && to.addr().is_multiple_of(8) {
                let word = from.cast::<u64>().read_unaligned();
                AtomicU64::from_ptr(to.cast()).store(word, Ordering::Relaxed);
                done += 8;
            } else {
                AtomicU8::from_ptr(to).store(from.read(), Ordering::Relaxed);
                done += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
