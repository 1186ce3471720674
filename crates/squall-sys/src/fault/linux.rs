//! The handler of the kernel's signals.

use super::{Answer, Fault};
use crate::system::{answered, quietly};
use libc::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Action of a signal from before.
struct Before {
    signal: c_int,
    action: libc::sigaction,
    /// Set when an action for one time only has run.
    spent: AtomicBool,
}

/// State of the process's handler. It is complete before the kernel knows the handler.
struct Installed {
    handler: fn(&Fault) -> Answer,
    bus: Before,
    segv: Before,
}

/// A signal handler reads it by one load.
static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// Signals of faulty instructions, which stay as they are while the handler runs.
const OF_INSTRUCTIONS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

/// Signals of the kernel's mask.
const SIGNALS: c_int = 64;

/// Installs the handler.
///
/// # Safety
/// The contract of [`super::install`].
pub(super) unsafe fn install(handler: fn(&Fault) -> Answer, segv: bool) -> io::Result<()> {
    let installed = Installed { handler, bus: before(libc::SIGBUS)?, segv: before(libc::SIGSEGV)? };
    if INSTALLED.set(installed).is_err() {
        let why = "this process has a handler of faults: let that one handler serve both";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    let signals: &[c_int] = if segv { &[libc::SIGBUS, libc::SIGSEGV] } else { &[libc::SIGBUS] };
    for signal in signals {
        let mut action = default_action();
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
        action.sa_sigaction = handler as *const () as usize;
        // A signal that a process sent interrupts no system call.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: 1. Both set functions get a set of our own and signals that exist. 2. sigaction(2) with an
        // action of our own, whose handler has the form that `SA_SIGINFO` demands.
        quietly(|| unsafe {
            libc::sigfillset(&raw mut action.sa_mask);
            for signal in OF_INSTRUCTIONS {
                libc::sigdelset(&raw mut action.sa_mask, signal);
            }
            answered(libc::sigaction(*signal, &raw const action, std::ptr::null_mut()))
        })?;
    }
    Ok(())
}

/// Returns the action that ends the process.
fn default_action() -> libc::sigaction {
    // SAFETY: zeros are a valid action: `SIG_DFL`, without flags, with an empty mask.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Returns the present action of a signal.
fn before(signal: c_int) -> io::Result<Before> {
    let mut action = default_action();
    // SAFETY: sigaction(2) that changes no action, and fills a place of our own.
    quietly(|| answered(unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) }))?;
    Ok(Before { signal, action, spent: AtomicBool::new(false) })
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    quietly(|| {
        // The kernel knows the handler only after `set`.
        let Some(installed) = INSTALLED.get() else { return };
        // SAFETY: the kernel passes a filled structure, which lives as long as the handler runs.
        let code = unsafe { (*info).si_code };
        if code > 0 {
            // SAFETY: a signal of the kernel for a fault has an address, and comes with a context.
            let fault = unsafe {
                Fault { signal, address: (*info).si_addr().addr(), code, is_write: is_write(context) }
            };
            if (installed.handler)(&fault) == Answer::Resume {
                return;
            }
        }
        let before = if signal == installed.bus.signal { &installed.bus } else { &installed.segv };
        // SAFETY: both come from the kernel, for the signal of `before`.
        unsafe { pass(before, info, context) }
    });
}

/// Continues as if the action from before were still that of the signal (fault/I1).
///
/// # Safety
/// The kernel gave both pointers to the running handler of the signal.
unsafe fn pass(before: &Before, info: *mut libc::siginfo_t, context: *mut c_void) {
    let action = &before.action;
    // Relaxed: the flag orders no other memory.
    let spent = action.sa_flags & libc::SA_RESETHAND != 0 && before.spent.swap(true, Ordering::Relaxed);
    // SAFETY: as in `on_signal`.
    let sent = unsafe { (*info).si_code } <= 0;
    match action.sa_sigaction {
        // The kernel ignores no fault.
        libc::SIG_IGN if sent => {}
        // SAFETY: passed on.
        libc::SIG_DFL | libc::SIG_IGN => unsafe { end(before.signal, info) },
        // SAFETY: passed on.
        _ if spent => unsafe { end(before.signal, info) },
        // SAFETY: passed on; the action is a function.
        _ => unsafe { call(before, info, context) },
    }
}

/// Runs the handler from before, under the mask that the kernel would have given it.
///
/// # Safety
/// The contract of [`pass`], and the action is a function.
unsafe fn call(before: &Before, info: *mut libc::siginfo_t, context: *mut c_void) {
    let action = &before.action;
    let mut mask = MaybeUninit::uninit();
    let mut ours = MaybeUninit::uninit();
    // SAFETY: 1. `mask` is initialised by `sigemptyset`, and `ours` by `pthread_sigmask`, which cannot fail
    // with a valid command. 2. The kernel fills one word of the context's mask, which has the signals up to
    // `SIGNALS`; no other word is read. 3. The function has the form that its flags say. It gets the
    // arguments that the kernel would have given it.
    unsafe {
        let interrupted = &raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask;
        libc::sigemptyset(mask.as_mut_ptr());
        for signal in 1..=SIGNALS {
            let deferred = signal == before.signal && action.sa_flags & libc::SA_NODEFER == 0;
            if deferred
                || libc::sigismember(interrupted, signal) == 1
                || libc::sigismember(&raw const action.sa_mask, signal) == 1
            {
                // The C library refuses signals of its own, which it never blocks.
                libc::sigaddset(mask.as_mut_ptr(), signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), ours.as_mut_ptr());
        let function = std::ptr::with_exposed_provenance::<()>(action.sa_sigaction);
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            let function: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                std::mem::transmute(function);
            function(before.signal, info, context);
        } else {
            let function: extern "C" fn(c_int) = std::mem::transmute(function);
            function(before.signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, ours.as_ptr(), std::ptr::null_mut());
    }
}

/// Ends the process by the signal, with the kernel's account of it.
///
/// The signal is queued for this thread, and comes when the handler has returned. Without room in the queue,
/// the thread repeats its access and faults again.
///
/// # Safety
/// The contract of [`pass`].
unsafe fn end(signal: c_int, info: *mut libc::siginfo_t) {
    let default = default_action();
    // SAFETY: 1. sigaction(2) with an action of our own. 2. A thread may send itself any account, and the
    // kernel reads it from the structure that it filled.
    unsafe {
        libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        let thread = libc::syscall(libc::SYS_gettid);
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, libc::getpid(), thread, signal, info);
    }
}

/// Tells whether the interrupted access was a write.
///
/// # Safety
/// `context` is that of a fault, as the kernel gave it to the running handler.
#[cfg(target_arch = "x86_64")]
unsafe fn is_write(context: *mut c_void) -> Option<bool> {
    const PAGE_FAULT: i64 = 14;
    // SAFETY: the context is the kernel's, and has these registers.
    let (trap, error) = unsafe {
        let registers = &raw const (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        ((*registers)[libc::REG_TRAPNO as usize], (*registers)[libc::REG_ERR as usize])
    };
    // Bit 1 of a page fault's error code is the direction.
    (trap == PAGE_FAULT).then_some(error & 2 != 0)
}

/// Tells whether the interrupted access was a write.
///
/// # Safety
/// `context` is that of a fault, as the kernel gave it to the running handler.
#[cfg(target_arch = "aarch64")]
unsafe fn is_write(context: *mut c_void) -> Option<bool> {
    // SAFETY: the records are the last part of the kernel's context. It outlives this call, and no other code
    // uses it meanwhile.
    let records = unsafe {
        let machine = &raw const (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        &*machine.cast::<u8>().add(size_of::<libc::mcontext_t>() - RECORDS).cast::<[u8; RECORDS]>()
    };
    direction(records)
}

/// Bytes for records behind the registers, on aarch64.
#[cfg(any(test, target_arch = "aarch64"))]
const RECORDS: usize = 4096;

/// Reads the direction of an access from the kernel's records.
///
/// Each record begins with its kind and its size. One kind has the exception syndrome next. A data abort
/// (class 0x24, or 0x25 from the kernel's level) has its direction in bit 6 of that.
#[cfg(any(test, target_arch = "aarch64"))]
fn direction(records: &[u8; RECORDS]) -> Option<bool> {
    const SYNDROME: u32 = 0x4553_5201;
    let half = |at: usize| Some(u32::from_ne_bytes(records.get(at..at + 4)?.try_into().ok()?));
    let mut at = 0;
    loop {
        let (kind, bytes) = (half(at)?, half(at + 4)? as usize);
        if kind == SYNDROME {
            // The class and the direction are in the lower half, which is first.
            let syndrome = half(at + 8)?;
            return matches!(syndrome >> 26, 0x24 | 0x25).then_some(syndrome >> 6 & 1 != 0);
        }
        // A record without a kind is the last one. One without a size would never end.
        if kind == 0 || bytes < 8 {
            return None;
        }
        at += bytes;
    }
}

/// Other processors do not tell.
///
/// # Safety
/// The call is safe.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn is_write(_context: *mut c_void) -> Option<bool> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records of the kernel, one after the other: kind, size, and the first word behind them.
    fn records(list: &[(u32, u32, u32)]) -> [u8; RECORDS] {
        let mut bytes = [0; RECORDS];
        let mut at = 0;
        for (kind, size, value) in list {
            for (place, half) in [kind, size, value].into_iter().enumerate() {
                bytes[at + 4 * place..][..4].copy_from_slice(&half.to_ne_bytes());
            }
            at += *size as usize;
        }
        bytes
    }

    #[test]
    fn the_direction_of_a_data_abort_is_found_behind_other_records() {
        const FLOATS: (u32, u32, u32) = (0x4650_8001, 528, 0);
        let syndrome = |value| (0x4553_5201, 16, value);
        assert_eq!(direction(&records(&[FLOATS, syndrome(0x24 << 26 | 1 << 6 | 7)])), Some(true));
        assert_eq!(direction(&records(&[syndrome(0x25 << 26 | 7), FLOATS])), Some(false));
        // An abort of an instruction has no direction.
        assert_eq!(direction(&records(&[syndrome(0x20 << 26 | 1 << 6)])), None);
        assert_eq!(direction(&records(&[FLOATS])), None);
        assert_eq!(direction(&records(&[])), None);
        // Sizes that lead nowhere.
        assert_eq!(direction(&records(&[(1, 0, 0)])), None);
        assert_eq!(direction(&records(&[(1, 4000, 0), (1, 96, 0)])), None);
    }
}
