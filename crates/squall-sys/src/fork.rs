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
//! - I2. [`WORD`] leads to a word that is 1 while this process is surely not such a child: at first one that stays so, then
//!   that of the page. Where there is no page, to a word that is 0, which says that the id must be asked for.
//!
//! Cost: two loads; without wipe-on-fork pages a system call. Source: madvise(2), MADV_WIPEONFORK.

use crate::apart::Apart;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// What [`arm`] has found to tell a child by.
enum Witness {
    #[cfg(all(target_os = "linux", not(miri)))]
    Page(&'static AtomicU32),
    #[cfg_attr(miri, allow(dead_code))]
    Pid(u32),
}

static WITNESS: OnceLock<Witness> = OnceLock::new();
static NO: Apart<AtomicU32> = Apart::new(AtomicU32::new(1));
static PERHAPS: AtomicU32 = AtomicU32::new(0);
/// See I2. Not public: read by the inlined [`forked`].
#[doc(hidden)]
pub static WORD: Apart<AtomicPtr<AtomicU32>> = Apart::new(AtomicPtr::new((&raw const NO).cast_mut().cast()));

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
    let witness = WITNESS.get_or_init(make);
    let word: *const AtomicU32 = match witness {
        #[cfg(all(target_os = "linux", not(miri)))]
        Witness::Page(word) => *word,
        Witness::Pid(_) => &PERHAPS,
    };
    // Release: pairs with the read in `forked` by the dependency of what it reads next. All who come here store the same.
    WORD.store(word.cast_mut(), Ordering::Release);
}

/// Whether this process is a fork's child of the one that called [`arm`]. False before any call of `arm`.
#[inline(always)]
pub fn forked() -> bool {
    let word = crate::near_static!(crate::fork::WORD, *mut AtomicU32);
    // SAFETY: one of two statics, or the page, which stays mapped (I2).
    // Relaxed: the word is written once, before `WORD` led to it, or wiped by the kernel during the fork.
    let surely_not = unsafe { &*word }.load(Ordering::Relaxed) != 0;
    !surely_not && perhaps_forked()
}

#[cold]
#[inline(never)]
fn perhaps_forked() -> bool {
    match WITNESS.get() {
        Some(Witness::Pid(pid)) => *pid != std::process::id(),
        #[cfg(all(target_os = "linux", not(miri)))]
        // Once more: the word is written before `WITNESS`, which was read with acquire, and a dependency alone may not have
        // ordered the first look on every processor.
        Some(Witness::Page(word)) => word.load(Ordering::Relaxed) == 0,
        None => false,
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_itself_and_its_parent_stays() {
        assert!(!forked(), "nobody has armed it");
        arm();
        arm();
        assert!(!forked());
        if std::env::var_os("SQUALL_TEST_RUNNER").is_some() {
            // User-mode emulation ignores wipe-on-fork.
            return;
        }
        // SAFETY: the child calls nothing but `forked`, which takes no lock, and `_exit`.
        let child = unsafe { libc_fork() };
        if child == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc_exit(i32::from(!forked())) };
        }
        let mut status = -1;
        // SAFETY: our own child, and a place for its status.
        assert_eq!(unsafe { libc_waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child took itself for its parent");
        assert!(!forked());
    }

    unsafe extern "C" {
        #[link_name = "fork"]
        fn libc_fork() -> i32;
        #[link_name = "_exit"]
        fn libc_exit(status: i32) -> !;
        #[link_name = "waitpid"]
        fn libc_waitpid(child: i32, status: *mut i32, options: i32) -> i32;
    }
}
