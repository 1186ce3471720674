//! Handler of memory faults: one for the process, in the thread that faulted.
//!
//! Problem: with [`Features::SIGBUS`](crate::uffd::Features::SIGBUS) a missing page is a signal. A program
//! has one handler per signal, others may have set theirs before, and a handler may call few functions.
//!
//! Idea: one handler asks a function of the program about each fault. The function resolves the fault and
//! answers [`Answer::Resume`], or answers [`Answer::Pass`], which continues as if this module were absent.
//!
//! - I1. A fault that is passed goes to the handler from before. That handler runs under its own mask, and
//!   only once if it asked for that. Without one, the process ends by the signal, with the kernel's account.
//! - I2. Signals that a process sent are passed at once: they have no address.
//! - I3. `errno` of the interrupted code is kept. The module itself neither allocates nor locks, and calls
//!   only functions that are safe in a signal handler.
//!
//! The handler runs on the stack of the thread (no `SA_ONSTACK`). An alternate stack has a few KiB, and a
//! pager's fault path needs more. So a thread must have room on its stack when it touches paged memory. A
//! handler from before runs on that stack, too.
//!
//! The signal is blocked while its handler runs (no `SA_NODEFER`). A handler that faults itself would enter
//! the pager again, perhaps under a lock of the pager, and hang. Instead the kernel ends the process at once,
//! and the core dump shows the place. So a handler never touches paged memory.
//!
//! All other signals that come from outside are blocked too. Otherwise a handler of one of them, such as a
//! profiler's, could touch paged memory while a second fault is fatal. Signals of faulty instructions stay
//! as they are.
//!
//! Not promised: faults of the kernel. A system call on a missing page returns `EFAULT`, and no handler runs.
//! Cost: the signal and the return from its handler, beside the resolution.
//! Source: sigaction(2), rt_tgsigqueueinfo(2).

#[cfg(all(
    target_os = "linux",
    not(miri),
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
#[path = "linux.rs"]
mod imp;

#[cfg(not(all(
    target_os = "linux",
    not(miri),
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
)))]
mod imp {
    use super::{Answer, Fault};
    use std::io;

    /// # Safety
    /// The call is safe.
    pub(super) unsafe fn install(_handler: fn(&Fault) -> Answer, _segv: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

use std::io;

/// Fault of the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// Number of the signal: SIGBUS or SIGSEGV.
    pub signal: i32,
    /// Address of the access.
    pub address: usize,
    /// Code of the signal, for example `BUS_ADRERR`.
    pub code: i32,
    /// True if the access writes. `None` if the processor does not tell.
    pub is_write: Option<bool>,
}

impl Fault {
    /// True if the page is poisoned: by the machine, or by [`Uffd::poison`](crate::uffd::Uffd::poison).
    ///
    /// Always false on kernels without `CONFIG_MEMORY_FAILURE`, whose signal does not tell poison apart.
    pub fn is_poison(&self) -> bool {
        // SIGBUS with `BUS_MCEERR_AR`.
        self.signal == 7 && self.code == 4
    }
}

/// Answer of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// The fault is resolved: the thread repeats its access.
    Resume,
    /// The fault is another's: the handler from before gets it, or the process ends by the signal.
    Pass,
}

/// Installs the handler of SIGBUS for this process, once.
///
/// # Errors
/// `AlreadyExists` after a first call, also one of [`install_with_segv`]. `Unsupported` on systems other than
/// Linux, under Miri, and on processors other than x86-64, aarch64 and riscv64.
///
/// # Safety
/// 1. The handler calls only functions that are safe in a signal handler. It may interrupt any code of the
///    thread that touches faulting memory. So it neither allocates nor takes a lock that this code could
///    hold, and uses no memory that this code is changing.
/// 2. The handler touches no memory that could fault. Such a fault ends the process.
/// 3. No other thread changes the action of the signal during the call.
///
/// A panic of the handler aborts the process.
///
/// # Example
/// ```
/// use squall_sys::fault::{Answer, Fault, install};
///
/// fn handler(_fault: &Fault) -> Answer {
///     Answer::Pass
/// }
///
/// // SAFETY: the handler does no work, and this program has one thread.
/// let installed = unsafe { install(handler) };
/// assert!(installed.is_ok() || !cfg!(target_os = "linux") || cfg!(miri));
/// ```
pub unsafe fn install(handler: fn(&Fault) -> Answer) -> io::Result<()> {
    // SAFETY: passed on.
    unsafe { imp::install(handler, false) }
}

/// Installs the handler of SIGBUS and of SIGSEGV for this process, once.
///
/// A thread that overflows its stack has no room for a handler. The kernel then ends the process by SIGSEGV,
/// without the message of the standard library.
///
/// # Errors
/// Those of [`install`].
///
/// # Safety
/// The contract of [`install`], for both signals.
pub unsafe fn install_with_segv(handler: fn(&Fault) -> Answer) -> io::Result<()> {
    // SAFETY: passed on.
    unsafe { imp::install(handler, true) }
}
