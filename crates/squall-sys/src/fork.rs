//! Noticing that this process is the child of a fork.
//!
//! After `fork` only the forking thread exists in the child, while the memory still says that the others do: their
//! operations never end and their locks stay held. So everything that could wait for them asks here first.
//!
//! - I1. `forked()` is false in the process that called [`arm`] first, in all its threads, and true in every child made
//!   by `fork` after that. A `vfork` or `posix_spawn` child shares the memory and may only exec; it reads false.
//!
//! Idea: one page marked wipe-on-fork holds a word that is 1; in a child the page is zero. Where the kernel has no such
//! pages (before 4.14), the process id is compared instead, which misses a child that has its ancestor's id in another
//! id namespace.
//!
//! Cost: one load; without wipe-on-fork pages a system call. Source: madvise(2), MADV_WIPEONFORK.

use std::sync::OnceLock;
#[cfg(all(target_os = "linux", not(miri)))]
use std::sync::atomic::{AtomicU32, Ordering};

enum Witness {
    #[cfg(all(target_os = "linux", not(miri)))]
    Page(&'static AtomicU32),
    #[cfg_attr(miri, allow(dead_code))]
    Pid(u32),
}

static WITNESS: OnceLock<Witness> = OnceLock::new();

#[cfg(all(target_os = "linux", not(miri)))]
fn make() -> Witness {
    use rustix::mm;
    let length = rustix::param::page_size();
    // SAFETY: a new private anonymous mapping at an address of the kernel's choice aliases nothing.
    let page = unsafe {
        mm::mmap_anonymous(
            std::ptr::null_mut(),
            length,
            mm::ProtFlags::READ | mm::ProtFlags::WRITE,
            mm::MapFlags::PRIVATE,
        )
    };
    let Ok(page) = page else { return Witness::Pid(std::process::id()) };
    // SAFETY: `page` is the whole of the mapping just made, which nobody else knows.
    let advised = unsafe { mm::madvise(page, length, mm::Advice::LinuxWipeOnFork) };
    if advised.is_err() {
        // SAFETY: as above; nothing refers to it.
        let _ = unsafe { mm::munmap(page, length) };
        return Witness::Pid(std::process::id());
    }
    // SAFETY: 1. the mapping is page aligned, readable, writable and zero, which is a valid `AtomicU32`;
    // 2. it is never unmapped after this point, hence `'static`.
    let word = unsafe { &*page.cast::<AtomicU32>() };
    word.store(1, Ordering::Relaxed);
    Witness::Page(word)
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn make() -> Witness {
    Witness::Pid(std::process::id())
}

/// Makes this process the one for which [`forked`] is false. The first call counts.
pub fn arm() {
    WITNESS.get_or_init(make);
}

/// Whether this process is a fork's child of the one that called [`arm`]. False before any call of `arm`.
#[inline]
pub fn forked() -> bool {
    match WITNESS.get() {
        #[cfg(all(target_os = "linux", not(miri)))]
        // Relaxed: the word is written once, before `WITNESS` was published, or wiped by the kernel during fork.
        Some(Witness::Page(word)) => word.load(Ordering::Relaxed) == 0,
        Some(Witness::Pid(pid)) => *pid != std::process::id(),
        None => false,
    }
}
