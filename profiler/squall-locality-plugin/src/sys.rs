//! Raw system calls for the emulator's threads and the keeper. They do not use `errno`, which is a
//! thread-local.
//!
//! - I1. Functions here neither allocate nor lock nor access a thread-local, because the keeper has no
//!   thread-locals.

use std::ffi::{c_int, c_void};

/// Numbers of the system calls in use.
#[cfg(target_arch = "x86_64")]
pub(crate) mod number {
    pub(crate) const CLOSE: usize = 3;
    pub(crate) const MMAP: usize = 9;
    pub(crate) const SIGPROCMASK: usize = 14;
    pub(crate) const PREAD: usize = 17;
    pub(crate) const PWRITE: usize = 18;
    pub(crate) const FTRUNCATE: usize = 77;
    pub(crate) const PRCTL: usize = 157;
    pub(crate) const FUTEX: usize = 202;
    pub(crate) const OPENAT: usize = 257;
    pub(crate) const UNLINKAT: usize = 263;
    pub(crate) const FALLOCATE: usize = 285;
    pub(crate) const PROCESS_VM_READV: usize = 310;
    pub(crate) const PROCESS_VM_WRITEV: usize = 311;
    pub(crate) const CLOSE_RANGE: usize = 436;
}
/// Numbers of the system calls in use.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) mod number {
    pub(crate) const UNLINKAT: usize = 35;
    pub(crate) const FTRUNCATE: usize = 46;
    pub(crate) const FALLOCATE: usize = 47;
    pub(crate) const OPENAT: usize = 56;
    pub(crate) const CLOSE: usize = 57;
    pub(crate) const PREAD: usize = 67;
    pub(crate) const PWRITE: usize = 68;
    pub(crate) const FUTEX: usize = 98;
    pub(crate) const SIGPROCMASK: usize = 135;
    pub(crate) const PRCTL: usize = 167;
    pub(crate) const MMAP: usize = 222;
    pub(crate) const PROCESS_VM_READV: usize = 270;
    pub(crate) const PROCESS_VM_WRITEV: usize = 271;
    pub(crate) const CLOSE_RANGE: usize = 436;
}

pub(crate) const EINTR: isize = 4;
pub(crate) const EIO: isize = 5;
pub(crate) const EAGAIN: isize = 11;
pub(crate) const ENOSYS: isize = 38;
pub(crate) const EOPNOTSUPP: isize = 95;

pub(crate) const CWD: usize = -100isize as usize;
pub(crate) const READ_AND_WRITE: usize = 2;
pub(crate) const CREATE: usize = 0o100;
pub(crate) const EXCLUSIVE: usize = 0o200;
pub(crate) const CLOSE_ON_EXEC: usize = 0o2_000_000;
pub(crate) const DIRECTORY: usize = if cfg!(target_arch = "x86_64") { 0o200_000 } else { 0o40_000 };

/// Returns the result of the system call, or its error number negated.
///
/// # Safety
/// The requirements of the system call hold.
#[inline]
pub(crate) unsafe fn call(number: usize, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: follows the kernel's calling convention; the caller promises that the call itself is sound.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: follows the kernel's calling convention; the caller promises that the call itself is sound.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = (number, a);
        result = -ENOSYS;
    }
    result
}

/// Sleeps while `word` equals `value`; may return early.
pub(crate) fn sleep_on(word: &std::sync::atomic::AtomicU32, value: u32) {
    // SAFETY: FUTEX_WAIT | FUTEX_PRIVATE_FLAG reads the word, which outlives the call.
    unsafe { call(number::FUTEX, [word.as_ptr() as usize, 128, value as usize, 0, 0, 0]) };
}

/// Wakes all sleepers on `word`.
pub(crate) fn wake(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: FUTEX_WAKE | FUTEX_PRIVATE_FLAG accesses no memory.
    unsafe { call(number::FUTEX, [word.as_ptr() as usize, 129, i32::MAX as usize, 0, 0, 0]) };
}

#[repr(C)]
struct Part {
    start: usize,
    bytes: usize,
}

/// Copies memory of this process, of which any part may be unmapped. Returns the number of copied bytes, or
/// an error number negated.
fn copy(number: usize, own: usize, other: usize, bytes: usize, pid: u32) -> isize {
    let (own, other) = (Part { start: own, bytes }, Part { start: other, bytes });
    let arguments = [pid as usize, &raw const own as usize, 1, &raw const other as usize, 1, 0];
    // SAFETY: both vectors are valid, and `own` is the caller's memory. An unmapped `other` causes only an
    // error.
    unsafe { call(number, arguments) }
}

/// Reads memory of this process at `from`, which may be unmapped.
pub(crate) fn read_memory(pid: u32, from: usize, to: &mut [u8]) -> isize {
    copy(number::PROCESS_VM_READV, to.as_mut_ptr() as usize, from, to.len(), pid)
}

/// Writes memory of this process at `to`, which may be unmapped.
pub(crate) fn write_memory(pid: u32, to: usize, from: &[u8]) -> isize {
    copy(number::PROCESS_VM_WRITEV, from.as_ptr() as usize, to, from.len(), pid)
}

unsafe extern "C" {
    fn clone(
        run: extern "C" fn(*mut c_void) -> c_int,
        stack: *mut c_void,
        flags: c_int,
        argument: *mut c_void,
        ...
    ) -> c_int;
}

/// CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM: shares memory and signal handlers, but not
/// descriptors or directories.
const APART: c_int = 0x100 | 0x800 | 0x1_0000 | 0x4_0000;

/// Starts `run` in a thread of this process with its own copy of the descriptor table, root and working
/// directory. All signals are blocked there. Fails with an error number.
///
/// # Safety
/// `stack` is the end of memory that only this thread uses, as long as it lives. The thread shares the
/// caller's thread-locals. It must not touch them, or call code that touches them.
pub(crate) unsafe fn start_apart(
    run: extern "C" fn(*mut c_void) -> c_int,
    stack: *mut c_void,
) -> Result<(), isize> {
    let (all, mut before) = (u64::MAX, 0u64);
    let mask = |set: *const u64, old: *mut u64| {
        // SAFETY: SIG_SETMASK with a set of eight bytes, the size of the kernel's sets, and room for the old
        // set.
        unsafe { call(number::SIGPROCMASK, [2, set as usize, old as usize, 8, 0, 0]) };
    };
    mask(&raw const all, &raw mut before);
    // SAFETY: the caller promises the stack; the C library's function starts `run` on it.
    let started = unsafe { clone(run, stack, APART, std::ptr::null_mut()) } > 0;
    // The C library's function reports its error in `errno`.
    let why = std::io::Error::last_os_error().raw_os_error();
    mask(&raw const before, std::ptr::null_mut());
    if started { Ok(()) } else { Err(why.map_or(EAGAIN, |why| why as isize)) }
}
