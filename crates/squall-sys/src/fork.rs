//! Fork detection: tells whether this process is the child of a fork.
//!
//! Problem: after `fork` only the forking thread exists in the child, but memory still says that the others
//! do. Their operations never end and their locks stay held. So code that could wait for other threads first
//! asks here.
//!
//! - I1. `forked()` is false in the process that called [`arm`] first, in all its threads, and true in every
//!   child made by `fork` after that. A `vfork` or `posix_spawn` child shares the memory and may only exec;
//!   it reads false.
//!
//! Idea: one page marked wipe-on-fork holds a word that is 1; in a child the page is zero. Kernels before
//! 4.14 have no such pages; the process id is compared instead. That misses a child with its ancestor's id in
//! another pid namespace.
//!
//! - I2. [`WORD`] points to a word that is 1 while this process is certainly not such a child. At first that
//!   is a constant word, later the page's. Without a page, it points to a word that is 0, which means that
//!   the process id must be compared.
//!
//! Cost: two loads; without wipe-on-fork pages a system call.
//! Source: madvise(2), MADV_WIPEONFORK.

use crate::padded::CachePadded;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Evidence by which [`forked`] recognises a child; chosen by [`arm`].
enum Witness {
    #[cfg(all(target_os = "linux", not(miri)))]
    Page(&'static AtomicU32),
    #[cfg_attr(miri, allow(dead_code))]
    Pid(u32),
}

static WITNESS: OnceLock<Witness> = OnceLock::new();
static NO: CachePadded<AtomicU32> = CachePadded::new(AtomicU32::new(1));
static PERHAPS: AtomicU32 = AtomicU32::new(0);
/// Pointer to the word that shows a fork (I2). Not public API: the inlined [`forked`] reads it.
#[doc(hidden)]
pub static WORD: CachePadded<AtomicPtr<AtomicU32>> =
    CachePadded::new(AtomicPtr::new((&raw const NO).cast_mut().cast()));

#[cfg(all(target_os = "linux", not(miri)))]
fn make() -> Witness {
    use crate::system;
    let by_pid = || Witness::Pid(std::process::id());
    let Some(length) = system::page_bytes() else { return by_pid() };
    // SAFETY: a new private anonymous mapping at an address of the kernel's choice aliases no other memory.
    let page = unsafe { system::map(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, 0) };
    let Ok(page) = page else { return by_pid() };
    // SAFETY: `page` is the whole of the mapping just made, which no other code knows.
    let advised = unsafe { system::advise(page, length, libc::MADV_WIPEONFORK) };
    if advised.is_err() {
        // SAFETY: the mapping just made; it has no references.
        let _ = unsafe { system::unmap(page, length) };
        return by_pid();
    }
    // SAFETY: 1. the mapping is page aligned, readable, writable and zero, which is a valid `AtomicU32`; 2.
    // it is never unmapped after this point, hence `'static`.
    let word = unsafe { &*page.cast::<AtomicU32>() };
    word.store(1, Ordering::Relaxed);
    Witness::Page(word)
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn make() -> Witness {
    Witness::Pid(std::process::id())
}

/// Makes this process the one for which [`forked`] is false. Only the first call has an effect.
pub fn arm() {
    let witness = WITNESS.get_or_init(make);
    let word: *const AtomicU32 = match witness {
        #[cfg(all(target_os = "linux", not(miri)))]
        Witness::Page(word) => *word,
        Witness::Pid(_) => &PERHAPS,
    };
    // Release: pairs with the read in `forked`, by the dependency of its next read. All callers store the
    // same pointer.
    WORD.store(word.cast_mut(), Ordering::Release);
}

/// True if this process is a fork's child of the process that called [`arm`]. False before any call of `arm`,
/// and in models.
#[inline(always)]
pub fn forked() -> bool {
    if cfg!(loom) {
        return false;
    }
    let word = crate::near_static!(crate::fork::WORD, *mut AtomicU32);
    // SAFETY: one of two statics, or the page, which stays mapped (I2). Relaxed: the word is written once,
    // before `WORD` points to it, or wiped by the kernel during the fork.
    let surely_not = unsafe { &*word }.load(Ordering::Relaxed) != 0;
    !surely_not && perhaps_forked()
}

#[cold]
#[inline(never)]
fn perhaps_forked() -> bool {
    match WITNESS.get() {
        Some(Witness::Pid(pid)) => *pid != std::process::id(),
        #[cfg(all(target_os = "linux", not(miri)))]
        // Read the word again. It was written before `WITNESS`, which was read with Acquire. The dependency
        // alone may not have ordered the first read on every processor.
        Some(Witness::Page(word)) => word.load(Ordering::Relaxed) == 0,
        None => false,
    }
}

/// Lets `child` run in every child of a later fork, on its only thread, before `fork` returns there.
///
/// A child made without `fork` (by `vfork`, `posix_spawn`, `_Fork` or a bare `clone`) does not run it. If the
/// system has no memory to register it, no child does.
pub fn at_fork(child: extern "C" fn()) {
    let _ = crate::pages::at_fork(None, None, Some(child));
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_itself_and_its_parent_stays() {
        assert!(!forked(), "`forked` must be false before `arm`");
        arm();
        arm();
        assert!(!forked());
        if std::env::var_os("SQUALL_TEST_RUNNER").is_some() {
            // User-mode emulation ignores wipe-on-fork.
            return;
        }
        // SAFETY: the child calls only `forked`, which takes no lock, and `_exit`.
        let child = unsafe { libc_fork() };
        if child == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc_exit(i32::from(!forked())) };
        }
        let mut status = -1;
        // SAFETY: our own child, and a place for its status.
        assert_eq!(unsafe { libc_waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child did not notice the fork");
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
