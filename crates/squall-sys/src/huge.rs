//! Huge pages, where the kernel gives them to those who ask.

use std::ptr::NonNull;

/// The size from which on it is worth asking: two huge pages of the usual size, of which one at least is whole.
pub const LEAST: usize = 4 << 20;

/// Asks that this memory be of huge pages, as far as it lies in such. For tables in which one looks here and there: where each page
/// is a miss in the processor's table of pages, that costs more than the data. The memory stays as it is; whether the kernel does
/// as it is asked shows in nothing but time. Memory that was never touched then comes in steps of a huge page, cleared when it is
/// touched first.
///
/// Does nothing for less than [`LEAST`], and where there are no huge pages.
///
/// # Safety
/// The memory is the caller's: an allocation, or a part of one.
/// # Cost
/// A system call.
/// # Source
/// madvise(2), MADV_HUGEPAGE.
pub unsafe fn prefer(start: NonNull<u8>, len: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    if len >= LEAST {
        const PAGE: usize = 2 << 20;
        let skip = start.as_ptr().align_offset(PAGE);
        let len = len.saturating_sub(skip) / PAGE * PAGE;
        if len > 0 {
            // SAFETY: a part of the caller's memory, whole pages of every size; advice changes nothing of what is in it.
            let at = unsafe { start.add(skip) };
            // SAFETY: as above.
            let _ =
                unsafe { rustix::mm::madvise(at.as_ptr().cast(), len, rustix::mm::Advice::LinuxHugepage) };
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (start, len);
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_advised_keeps_what_is_in_it() {
        let mut memory = vec![7u8; 3 * LEAST + 5];
        // SAFETY: the vector's own memory.
        unsafe { prefer(NonNull::new(memory.as_mut_ptr()).unwrap(), memory.len()) };
        assert!(memory.iter().all(|&byte| byte == 7));
        memory.fill(8);
        assert!(memory.iter().all(|&byte| byte == 8));
    }
}
