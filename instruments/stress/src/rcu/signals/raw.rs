//! The two system calls without a safe wrapper: a handler for a signal, and a signal to one thread. All
//! `unsafe` of this crate is here.

#![allow(unsafe_code)]

use std::io;
use std::ptr;

use rustix::process::{Pid, getpid};

/// Reserved for this stress in this process.
const SIGNAL: libc::c_int = libc::SIGUSR1;

extern "C" fn on_signal(_signal: libc::c_int) {
    // SAFETY: 1. the pointer refers to this thread's `errno` and is always valid; 2. no other reference to it
    // is in use while the handler runs, because the interrupted code stands still.
    let errno = unsafe { *libc::__errno_location() };
    super::handle();
    // SAFETY: as in the first block. The interrupted code finds its error number unchanged.
    unsafe { *libc::__errno_location() = errno };
}

/// Makes this process handle [`SIGNAL`] by `super::handle`.
///
/// # Errors
/// The error of sigaction(2).
pub(super) fn install() -> io::Result<()> {
    // SAFETY: all zeros is a valid `sigaction`: no flags, an empty mask, no restorer.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: 1. `action` is initialized, and the old action is not requested (null); 2. the handler has the
    // type required without SA_SIGINFO, and does only async-signal-safe work: operations of registered
    // threads, which the library allows at any instruction, and atomics (signals/I2); 3. it does not unwind:
    // no code in it panics, and `extern "C"` would abort.
    let result = unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends [`SIGNAL`] to one thread of this process. A thread that has ended gets no signal.
pub(in super::super) fn send(thread: Pid) {
    let [process, thread] = [getpid(), thread].map(|pid| libc::c_long::from(pid.as_raw_nonzero().get()));
    // SAFETY: tgkill(2) takes three integers and reads no memory of this process. It fails for a thread of
    // another process. `install` was called before, so the signal does not end the process.
    let _ = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::c_long::from(SIGNAL)) };
}
