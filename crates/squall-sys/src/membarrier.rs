//! `membarrier`: a full memory barrier on every processor that runs a thread of this process.
//!
//! Source: membarrier(2). The private expedited form interrupts exactly the processors that run threads of
//! the caller's process. The restartable-sequence form also restarts the sequences in flight there.

use std::fmt;

/// Reason why `membarrier` cannot be used, or stopped working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The platform has no such call, or the kernel does not know the command.
    Missing,
    /// The kernel answered the registration or the call with this error number. The usual cause is a sandbox.
    Refused(i32),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unavailable::Missing => f.write_str("the kernel does not offer membarrier"),
            Unavailable::Refused(errno) => write!(f, "membarrier was refused (errno {errno})"),
        }
    }
}

impl std::error::Error for Unavailable {}

#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use super::Unavailable;
    use rustix::thread::{Cpuid, MembarrierCommand, membarrier, membarrier_cpu, membarrier_query};

    fn refused(error: rustix::io::Errno) -> Unavailable {
        Unavailable::Refused(error.raw_os_error())
    }

    fn register_command(register: MembarrierCommand, command: MembarrierCommand) -> Result<(), Unavailable> {
        let offered = membarrier_query();
        if !offered.contains_command(register) || !offered.contains_command(command) {
            return Err(Unavailable::Missing);
        }
        membarrier(register).map_err(refused)
    }

    pub(super) fn register() -> Result<(), Unavailable> {
        register_command(MembarrierCommand::RegisterPrivateExpedited, MembarrierCommand::PrivateExpedited)
    }

    pub(super) fn barrier() -> Result<(), Unavailable> {
        membarrier(MembarrierCommand::PrivateExpedited).map_err(refused)
    }

    pub(super) fn register_restart() -> Result<(), Unavailable> {
        register_command(
            MembarrierCommand::RegisterPrivateExpeditedRseq,
            MembarrierCommand::PrivateExpeditedRseq,
        )
    }

    pub(super) fn restart_all() -> Result<(), Unavailable> {
        membarrier(MembarrierCommand::PrivateExpeditedRseq).map_err(refused)
    }

    pub(super) fn restart_on(cpu: usize) -> Result<(), Unavailable> {
        let cpu = u32::try_from(cpu).map_err(|_| Unavailable::Missing)?;
        // SAFETY: the number only selects a processor; the kernel answers a nonexistent one with an error.
        let cpu = unsafe { Cpuid::from_raw(cpu) };
        membarrier_cpu(MembarrierCommand::PrivateExpeditedRseq, cpu).map_err(refused)
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod imp {
    use super::Unavailable;

    pub(super) fn register() -> Result<(), Unavailable> {
        Err(Unavailable::Missing)
    }

    pub(super) fn barrier() -> Result<(), Unavailable> {
        Err(Unavailable::Missing)
    }

    pub(super) fn register_restart() -> Result<(), Unavailable> {
        Err(Unavailable::Missing)
    }

    pub(super) fn restart_all() -> Result<(), Unavailable> {
        Err(Unavailable::Missing)
    }

    pub(super) fn restart_on(_cpu: usize) -> Result<(), Unavailable> {
        Err(Unavailable::Missing)
    }
}

/// Registers this process for [`barrier`].
///
/// # Errors
/// [`Unavailable`] if the kernel lacks the private expedited form or refuses it.
pub fn register() -> Result<(), Unavailable> {
    imp::register()
}

/// Makes every thread of this process pass a full memory barrier before it returns.
///
/// # Errors
/// [`Unavailable`] if the process is not registered, or the call is no longer permitted. The barrier has then
/// not happened.
/// # Cost
/// A system call, and an interrupt on each other processor that runs a thread of this process.
pub fn barrier() -> Result<(), Unavailable> {
    imp::barrier()
}

/// Registers this process for [`restart_all`] and [`restart_on`].
///
/// # Errors
/// [`Unavailable`] if the kernel lacks the restartable-sequence form (before 5.10) or refuses it.
pub fn register_restart() -> Result<(), Unavailable> {
    imp::register_restart()
}

/// Restarts the restartable sequences of this process that are in flight. When it returns, each has been
/// restarted or had ended.
///
/// # Errors
/// [`Unavailable`] if the process is not registered, or the call is no longer permitted.
pub fn restart_all() -> Result<(), Unavailable> {
    imp::restart_all()
}

/// Restarts the restartable sequences of this process that are in flight on processor `cpu`.
///
/// # Errors
/// [`Unavailable`] if the process is not registered, or the call is no longer permitted.
pub fn restart_on(cpu: usize) -> Result<(), Unavailable> {
    imp::restart_on(cpu)
}
