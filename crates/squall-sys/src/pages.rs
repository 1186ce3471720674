//! Address space and pages, straight from the system and without allocating: the base of an allocator.
//!
//! On other systems, and under Miri, the standard library's [`System`](std::alloc::System) allocator takes
//! its place. The program's own allocator is not used, because it may be built on this module. Memory is then
//! never returned, and [`discard`] returns an error.

use std::io;
use std::ptr::NonNull;

/// Unit of page counts, in bytes: 64 KiB, a multiple of every page size in use.
pub const UNIT_BYTES: usize = 1 << 16;

#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use super::NonNull;
    use crate::system::{self, answered, quietly};
    use libc::{MAP_FIXED, MAP_NORESERVE, PROT_NONE};
    use std::io;

    const USABLE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

    fn mapped(at: *mut std::ffi::c_void) -> io::Result<NonNull<u8>> {
        NonNull::new(at.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    pub(super) fn map(
        len: usize,
        align: usize,
        usable: bool,
        mut left: impl FnMut(*mut u8, usize),
    ) -> io::Result<NonNull<u8>> {
        let prot = if usable { USABLE } else { PROT_NONE };
        let more = if align > 4096 { align } else { 0 };
        let total = len.checked_add(more).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new private anonymous mapping, at an address of the kernel's choice: no memory in use is
        // touched.
        let at = unsafe { system::map(std::ptr::null_mut(), total, prot, MAP_NORESERVE)? };
        if more == 0 {
            return mapped(at);
        }
        let skip = at.addr().next_multiple_of(align) - at.addr();
        let used = at.wrapping_byte_add(skip);
        for (end, bytes) in [(at, skip), (used.wrapping_byte_add(len), more - skip)] {
            // SAFETY: an end of the mapping just made, in whole pages, that no other code knows.
            if bytes > 0 && unsafe { system::unmap(end, bytes) }.is_err() {
                left(end.cast(), bytes);
            }
        }
        mapped(used)
    }

    pub(super) fn reserve_at(len: usize, before: usize, multiple: usize) -> io::Result<NonNull<u8>> {
        const TRIES: usize = 64;
        // SAFETY: as in `map`, both; an unwanted mapping is unmapped whole.
        let anywhere =
            |hint: *mut std::ffi::c_void| unsafe { system::map(hint, len, PROT_NONE, MAP_NORESERVE) };
        let fits = |at: *mut std::ffi::c_void| (at.addr() + before).is_multiple_of(multiple);
        let first = anywhere(std::ptr::null_mut())?;
        if fits(first) {
            return mapped(first);
        }
        let mut found = None;
        // Ask for suitable places by address, so that no room is needed beside them. First the nearest ones
        // below, because the kernel allocates downwards; then those above, near libraries and the stack.
        let base = (first.addr() + before) / multiple * multiple;
        let below = (0..TRIES / 2).map(|away| base.checked_sub(away * multiple));
        let above = (1..=TRIES / 2).map(|away| base.checked_add(away * multiple));
        for place in below.chain(above) {
            let hinted = place.and_then(|place| place.checked_sub(before)).filter(|at| *at > 0);
            let Some(hinted) = hinted else { continue };
            let Ok(at) = anywhere(std::ptr::without_provenance_mut(hinted)) else { break };
            if fits(at) {
                found = Some(at);
                break;
            }
            // SAFETY: mapped just now, and no other code knows it. If it fails, some addresses stay reserved.
            let _ = unsafe { system::unmap(at, len) };
        }
        // SAFETY: mapped in this function, and no other code knows it.
        let _ = unsafe { system::unmap(first, len) };
        mapped(found.ok_or(io::ErrorKind::AddrNotAvailable)?)
    }

    pub(super) unsafe fn commit(at: *mut u8, len: usize) -> io::Result<()> {
        // SAFETY: passed on.
        quietly(|| answered(unsafe { libc::mprotect(at.cast(), len, USABLE) })).map(drop)
    }

    pub(super) unsafe fn unmap(at: *mut u8, len: usize) -> io::Result<()> {
        // SAFETY: passed on.
        unsafe { system::unmap(at.cast(), len) }
    }

    pub(super) unsafe fn release_keep_reserved(at: *mut u8, len: usize) -> io::Result<()> {
        // SAFETY: replaces a mapping that is no longer used, by our caller's contract.
        unsafe { system::map(at.cast(), len, PROT_NONE, MAP_NORESERVE | MAP_FIXED) }.map(drop)
    }

    pub(super) unsafe fn remap(at: *mut u8, old: usize, new: usize) -> io::Result<NonNull<u8>> {
        quietly(|| {
            // SAFETY: passed on.
            let to = unsafe { libc::mremap(at.cast(), old, new, libc::MREMAP_MAYMOVE) };
            if to == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { mapped(to) }
        })
    }

    pub(super) unsafe fn discard(at: *mut u8, len: usize) -> io::Result<()> {
        // SAFETY: passed on.
        unsafe { system::advise(at.cast(), len, libc::MADV_DONTNEED) }
    }

    pub(super) unsafe fn advise_table(at: *mut u8, len: usize) {
        for advice in [libc::MADV_NOHUGEPAGE, libc::MADV_DONTDUMP] {
            // SAFETY: passed on; neither advice changes the memory's contents.
            let _ = unsafe { system::advise(at.cast(), len, advice) };
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod imp {
    use super::NonNull;
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::io;

    fn layout(len: usize, align: usize) -> io::Result<Layout> {
        Layout::from_size_align(len.max(1), align.max(4096)).map_err(|_| io::ErrorKind::OutOfMemory.into())
    }

    pub(super) fn map(
        len: usize,
        align: usize,
        _usable: bool,
        _left: impl FnMut(*mut u8, usize),
    ) -> io::Result<NonNull<u8>> {
        // SAFETY: the size is not 0.
        NonNull::new(unsafe { System.alloc_zeroed(layout(len, align)?) })
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    pub(super) fn reserve_at(_len: usize, _before: usize, _multiple: usize) -> io::Result<NonNull<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) unsafe fn commit(_at: *mut u8, _len: usize) -> io::Result<()> {
        Ok(())
    }

    pub(super) unsafe fn unmap(_at: *mut u8, _len: usize) -> io::Result<()> {
        Ok(())
    }

    pub(super) unsafe fn release_keep_reserved(_at: *mut u8, _len: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) unsafe fn remap(at: *mut u8, old: usize, new: usize) -> io::Result<NonNull<u8>> {
        let to = map(new, 4096, true, |_, _| {})?;
        // SAFETY: both are at least that long, and the new one is not shared yet.
        unsafe { std::ptr::copy_nonoverlapping(at, to.as_ptr(), old.min(new)) };
        Ok(to)
    }

    pub(super) unsafe fn discard(_at: *mut u8, _len: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) unsafe fn advise_table(_at: *mut u8, _len: usize) {}
}

/// Reserves address space of `len` bytes at a multiple of `align`. It must not be touched before [`commit`].
///
/// # Units
/// Bytes; both are multiples of the page size, `align` a power of two.
/// # Errors
/// The error of mmap(2).
pub fn reserve(len: usize, align: usize) -> io::Result<NonNull<u8>> {
    // An end that cannot be cut off stays reserved, which costs addresses and no memory.
    imp::map(len, align, false, |_, _| {})
}

/// Reserves address space of `len` bytes such that the byte at offset `before` is at a multiple of
/// `multiple`. `multiple` may be far larger than `len`, even larger than the free address space around the
/// reservation.
///
/// # Errors
/// The error of mmap(2), or `AddrNotAvailable` if no free place was found.
pub fn reserve_at(len: usize, before: usize, multiple: usize) -> io::Result<NonNull<u8>> {
    imp::reserve_at(len, before, multiple)
}

/// Maps zeroed memory of `len` bytes at a multiple of `align`. Pages are allocated at first touch, near the
/// toucher.
///
/// For the alignment more is mapped and cut off again. If the system lacks memory to cut an end off, `left`
/// gets that end, which must still be unmapped.
///
/// # Units
/// Bytes; both are multiples of the page size, `align` a power of two.
/// # Errors
/// The error of mmap(2).
pub fn map(len: usize, align: usize, left: impl FnMut(*mut u8, usize)) -> io::Result<NonNull<u8>> {
    imp::map(len, align, true, left)
}

/// Maps zeroed memory of `len` bytes for a table, like [`map`]. Huge pages are off, because they would tie
/// neighbours to one node. The memory is left out of core dumps.
///
/// # Errors
/// The error of mmap(2).
pub fn map_table(len: usize) -> io::Result<NonNull<u8>> {
    // An end that cannot be cut off is never touched.
    let at = imp::map(len, UNIT_BYTES, true, |_, _| {})?;
    advise_table(at, len);
    Ok(at)
}

/// Gives pages the properties of [`map_table`]: no huge pages, and not in core dumps.
pub fn advise_table(at: NonNull<u8>, len: usize) {
    // SAFETY: advice, which changes no memory contents, and fails for addresses without a mapping.
    unsafe { imp::advise_table(at.as_ptr(), len) };
}

/// Makes reserved pages usable. They read as zeros.
///
/// # Errors
/// The error of mprotect(2): too little memory. The pages are then unchanged.
/// # Safety
/// `at` and `len` are whole pages of one reservation, and no other thread commits them at the same time.
pub unsafe fn commit(at: *mut u8, len: usize) -> io::Result<()> {
    // SAFETY: passed on.
    unsafe { imp::commit(at, len) }
}

/// Reserves address space of `len` bytes for a table, with the properties of [`map_table`]. Only committed
/// pages count against the system's memory commitment.
///
/// # Errors
/// The error of mmap(2).
pub fn reserve_table(len: usize) -> io::Result<NonNull<u8>> {
    let at = reserve(len, UNIT_BYTES)?;
    advise_table(at, len);
    Ok(at)
}

/// Unmaps a mapping, or a part of one.
///
/// # Errors
/// The error of munmap(2). The kernel joins neighbouring mappings, so the call may have to split one, which
/// needs memory. On an error the mapping is unchanged.
/// # Safety
/// `at` and `len` are whole pages of a mapping of [`map`] or [`reserve`] that is no longer used.
pub unsafe fn unmap(at: *mut u8, len: usize) -> io::Result<()> {
    // SAFETY: passed on.
    unsafe { imp::unmap(at, len) }
}

/// Returns the memory of a mapping to the system, but keeps its addresses reserved. Later mappings avoid
/// them, and any access faults.
///
/// # Errors
/// The error of mmap(2), or `Unsupported` on a system without it. The mapping is then unchanged.
/// # Safety
/// The contract of [`unmap`].
pub unsafe fn release_keep_reserved(at: *mut u8, len: usize) -> io::Result<()> {
    // SAFETY: passed on.
    unsafe { imp::release_keep_reserved(at, len) }
}

/// Grows or shrinks a mapping, and moves it if needed. Contents are kept; new bytes read as zeros.
///
/// # Errors
/// The error of mremap(2). The old mapping is then unchanged.
/// # Safety
/// `at` and `old` are a whole mapping of [`map`]. After success the old address is not used again.
pub unsafe fn remap(at: *mut u8, old: usize, new: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: passed on.
    unsafe { imp::remap(at, old, new) }
}

/// Returns pages to the system. They read as zeros from then on, and use memory again when touched.
///
/// # Errors
/// The error of madvise(2), or `Unsupported` on a system without it. The pages are then unchanged.
/// # Safety
/// `at` and `len` are whole committed pages, and their contents are no longer needed.
pub unsafe fn discard(at: *mut u8, len: usize) -> io::Result<()> {
    // SAFETY: passed on.
    unsafe { imp::discard(at, len) }
}

/// Returns the value of an environment variable, without allocating.
///
/// The function reads the C library's own copy. So no thread may change the environment during the call; std
/// requires that of programs, too.
pub fn variable(name: &std::ffi::CStr) -> Option<&'static [u8]> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: getenv(3) with a C string; the result is a C string that lives until the environment is
        // changed.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            (!value.is_null()).then(|| std::ffi::CStr::from_ptr(value).to_bytes())
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = name;
        None
    }
}

/// Returns the calling thread's processor and its NUMA node, both of the same moment, or `None` if the system
/// does not tell.
pub fn current_place() -> Option<(usize, usize)> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let (mut cpu, mut node) = (0u32, 0u32);
        // SAFETY: getcpu(2) with two places of our own; the third argument is unused.
        let failed = unsafe {
            libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, std::ptr::null_mut::<libc::c_void>())
        };
        (failed == 0).then_some((cpu as usize, node as usize))
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    None
}

/// Returns the process's limit of address space in bytes, or `None` if it is unlimited.
pub fn address_limit() -> Option<usize> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: getrlimit(2) with a place of our own. If it fails, the place keeps its value.
        crate::system::quietly(|| unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) });
        Some(limit.rlim_cur)
            .filter(|bytes| *bytes != libc::RLIM_INFINITY)
            .and_then(|bytes| bytes.try_into().ok())
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    None
}

/// Returns the process's address space in use, in bytes, or `None` if the system does not tell. Never
/// allocates.
pub fn mapped_bytes() -> Option<usize> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let mut text = [0u8; 256];
        let len = crate::system::read_file(c"/proc/self/statm", &mut text).ok()?;
        // The first number counts pages.
        let pages = std::str::from_utf8(&text[..len]).ok()?.split(' ').next()?.parse::<usize>().ok()?;
        pages.checked_mul(crate::system::page_bytes()?)
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    None
}

/// Returns a monotonic time in milliseconds, with a resolution of about ten, without a system call.
pub fn coarse_ms() -> u64 {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: clock_gettime(2) with a clock that Linux has, and a place of our own.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
        now.tv_sec.cast_unsigned() * 1_000 + now.tv_nsec.cast_unsigned() / 1_000_000
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    0
}

/// Returns the machine's memory in bytes, or a guess if the system does not tell.
pub fn memory_bytes() -> usize {
    const GUESS: usize = 1 << 34;
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: sysconf(3) with names that it knows or refuses.
        let (pages, page) =
            unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
        match (usize::try_from(pages), usize::try_from(page)) {
            (Ok(pages), Ok(page)) => pages.saturating_mul(page),
            _ => GUESS,
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    GUESS
}

/// Returns the size of the system's pages in bytes, if the system tells it.
pub fn page_bytes() -> Option<usize> {
    #[cfg(all(target_os = "linux", not(miri)))]
    return crate::system::page_bytes();
    #[cfg(not(all(target_os = "linux", not(miri))))]
    None
}

/// Returns the highest possible processor number plus one, or `None` if the system does not tell.
///
/// A container may show a shorter list than the machine's. So processors that the C library knows, and those
/// that the calling thread may run on, count too.
pub fn processors_limit() -> Option<usize> {
    let limit = limit_in(c"/sys/devices/system/cpu/possible")?;
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: sysconf(3) with a name that it knows or refuses; negative if it refuses.
        let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        let allowed =
            crate::system::Cpus::allowed().map_or(0, |set| set.iter().last().map_or(0, |cpu| cpu + 1));
        Some(limit.max(usize::try_from(configured).unwrap_or(0)).max(allowed))
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    Some(limit)
}

/// Returns the last number in the list in this file, plus one.
pub(crate) fn limit_in(path: &std::ffi::CStr) -> Option<usize> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // The kernel's text is at most a page.
        let mut text = [0u8; 4096];
        let len = crate::system::read_file(path, &mut text).ok()?;
        limit_of(&text[..len])
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = path;
        None
    }
}

/// Returns the last number of a rising list of ranges, plus one. A list that does not end with a newline is
/// incomplete and rejected.
#[cfg_attr(any(not(target_os = "linux"), miri), allow(dead_code))]
fn limit_of(list: &[u8]) -> Option<usize> {
    let list = std::str::from_utf8(list.strip_suffix(b"\n")?).ok()?;
    let last = list.rsplit([',', '-']).next()?;
    last.parse::<usize>().ok()?.checked_add(1)
}

/// Writes a message to standard error unchanged, without a lock and without allocating.
pub fn write_stderr(message: &[u8]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: write(2) of `message.len()` bytes of the slice. An error is ignored, because there is no
        // other place to report it.
        let _ = unsafe { libc::write(2, message.as_ptr().cast(), message.len()) };
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        use std::io::Write;
        let _ = std::io::stderr().write_all(message);
    }
}

/// Function that runs at a fork.
type AtFork = Option<extern "C" fn()>;

/// Registers up to three functions with fork. `prepare` runs before every fork of this process, in the
/// forking thread; then `parent` runs in the parent and `child` in the child.
///
/// # Errors
/// The error of pthread_atfork(3).
pub fn at_fork(prepare: AtFork, parent: AtFork, child: AtFork) -> io::Result<()> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        unsafe extern "C" {
            fn pthread_atfork(prepare: AtFork, parent: AtFork, child: AtFork) -> std::ffi::c_int;
        }
        // SAFETY: three functions that live as long as the program.
        match unsafe { pthread_atfork(prepare, parent, child) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = (prepare, parent, child);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_pages_read_as_zeros_and_can_be_discarded() {
        let len = 4 * UNIT_BYTES;
        let at = reserve(len, 2 * UNIT_BYTES).unwrap().as_ptr();
        assert_eq!(at.addr() % (2 * UNIT_BYTES), 0);
        // SAFETY: our own reservation.
        unsafe {
            commit(at, UNIT_BYTES).unwrap();
            assert_eq!(at.read(), 0);
            at.write(7);
            if discard(at, UNIT_BYTES).is_ok() {
                assert_eq!(at.read(), 0);
            }
            unmap(at, len).unwrap();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no such file")]
    fn reserved_space_counts_as_mapped() {
        const LEN: usize = 1 << 30;
        let before = mapped_bytes().unwrap();
        let at = reserve(LEN, UNIT_BYTES).unwrap().as_ptr();
        let with = mapped_bytes().unwrap();
        // SAFETY: our own reservation.
        unsafe { unmap(at, LEN) }.unwrap();
        // Other tests map and unmap little at the same time.
        assert!(with >= before + LEN / 2, "{before}, then {with}");
    }

    #[test]
    fn a_mapping_keeps_its_contents_when_it_grows() {
        // SAFETY: our own mapping; its old address is not used again.
        unsafe {
            let at = map(UNIT_BYTES, 4096, |_, _| {}).unwrap().as_ptr();
            at.write(7);
            let longer = remap(at, UNIT_BYTES, 8 * UNIT_BYTES).unwrap().as_ptr();
            assert_eq!((longer.read(), longer.add(7 * UNIT_BYTES).read()), (7, 0));
            unmap(longer, 8 * UNIT_BYTES).unwrap();
        }
    }

    #[test]
    fn the_machine_has_processors_and_memory() {
        assert!(memory_bytes() > 0);
        if let (Some(limit), Some((cpu, _))) = (processors_limit(), current_place()) {
            assert!(cpu < limit);
        }
    }

    #[test]
    fn an_incomplete_list_of_processors_is_rejected() {
        assert_eq!(limit_of(b"0\n"), Some(1));
        assert_eq!(limit_of(b"0-3\n"), Some(4));
        assert_eq!(limit_of(b"0-3,8-11,130\n"), Some(131));
        for text in [&b""[..], b"\n", b"0-3", b"0-3,13", b"0-\n", b"none\n"] {
            assert_eq!(limit_of(text), None);
        }
    }

    #[test]
    fn forbidden_addresses_are_not_mapped_again() {
        let at = map(UNIT_BYTES, 4096, |_, _| {}).unwrap().as_ptr();
        // SAFETY: our own mapping.
        if unsafe { release_keep_reserved(at, UNIT_BYTES) }.is_err() {
            return;
        }
        let next = map(UNIT_BYTES, 4096, |_, _| {}).unwrap().as_ptr();
        assert_ne!(next, at);
        // SAFETY: our own mappings, both.
        unsafe {
            unmap(next, UNIT_BYTES).unwrap();
            unmap(at, UNIT_BYTES).unwrap();
        }
    }

    #[test]
    fn a_place_at_a_multiple_is_found_without_room_beside_it() {
        const MULTIPLE: usize = 1 << 32;
        let places: Vec<_> =
            (0..4).filter_map(|_| reserve_at(4 * UNIT_BYTES, UNIT_BYTES, MULTIPLE).ok()).collect();
        assert!(cfg!(any(miri, not(target_os = "linux"))) || places.len() == 4);
        for at in places {
            assert_eq!((at.addr().get() + UNIT_BYTES) % MULTIPLE, 0);
            // SAFETY: our own reservation.
            unsafe { unmap(at.as_ptr(), 4 * UNIT_BYTES).unwrap() };
        }
    }

    #[test]
    fn the_clock_goes_on() {
        let before = coarse_ms();
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(coarse_ms() > before || cfg!(any(miri, not(target_os = "linux"))));
    }
}
