//! The two system calls that no safe wrapper offers: a handler for a signal, and a signal to one thread. All `unsafe` of
//! this crate is here.

#![allow(unsafe_code)]

use std::io;
use std::ptr;

use rustix::process::{Pid, getpid};

/// Nobody else uses it in this process.
const SIGNAL: libc::c_int = libc::SIGUSR1;

extern "C" fn on_signal(_signal: libc::c_int) {
    // SAFETY: 1. it points to this thread's `errno`, always; 2. nobody else refers to it while the handler runs: what
    // the handler interrupted stands still.
    let errno = unsafe { *libc::__errno_location() };
    super::handle();
    // SAFETY: as above. What was interrupted finds its error number as it was.
    unsafe { *libc::__errno_location() = errno };
}

/// Makes this process answer [`SIGNAL`] by `super::handle`.
///
/// # Errors
/// That of sigaction(2).
pub(super) fn install() -> io::Result<()> {
    // SAFETY: all zero is a valid `sigaction`: no flags, an empty mask, no restorer.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: 1. `action` is initialised, and the old one is not asked for; 2. the handler is a function of the type
    // that goes without SA_SIGINFO, and does only what a handler may: operations of registered threads, which the
    // library allows at any instruction, and atomics (signals/I2); 3. it does not unwind: nothing in it panics, and
    // `extern "C"` would abort.
    let result = unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends [`SIGNAL`] to one thread of this process. One that has ended gets nothing.
pub(in super::super) fn send(thread: Pid) {
    let [process, thread] = [getpid(), thread].map(|pid| libc::c_long::from(pid.as_raw_nonzero().get()));
    // SAFETY: tgkill(2) takes three integers and reads no memory of ours; it fails for a thread that is not of this
    // process, and `install` came before any call of this, so the signal does not end the process.
    let _ = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::c_long::from(SIGNAL)) };
}
