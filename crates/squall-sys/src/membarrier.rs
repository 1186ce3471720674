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
    use crate::system::{answered, quietly};
    use libc::{c_int, c_long, c_uint};

    /// `MEMBARRIER_CMD_FLAG_CPU`, of linux/membarrier.h: the call is for one processor.
    const ON_CPU: c_uint = 1;

    fn membarrier(command: c_int, flags: c_uint, cpu: c_int) -> Result<c_long, Unavailable> {
        // SAFETY: membarrier(2) takes three numbers, and touches no memory of the program.
        let result =
            quietly(|| answered(unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) }));
        result.map_err(|error| Unavailable::Refused(error.raw_os_error().unwrap_or(0)))
    }

    fn register_command(register: c_int, command: c_int) -> Result<(), Unavailable> {
        let offered = membarrier(libc::MEMBARRIER_CMD_QUERY, 0, 0).unwrap_or(0);
        let needed = c_long::from(register | command);
        if offered & needed != needed {
            return Err(Unavailable::Missing);
        }
        membarrier(register, 0, 0).map(drop)
    }

    pub(super) fn register() -> Result<(), Unavailable> {
        register_command(
            libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
            libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED,
        )
    }

    pub(super) fn barrier() -> Result<(), Unavailable> {
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0).map(drop)
    }

    pub(super) fn register_restart() -> Result<(), Unavailable> {
        register_command(
            libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ,
            libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ,
        )
    }

    pub(super) fn restart_all() -> Result<(), Unavailable> {
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0).map(drop)
    }

    pub(super) fn restart_on(cpu: usize) -> Result<(), Unavailable> {
        // The kernel answers a nonexistent processor with an error.
        let cpu = c_int::try_from(cpu).map_err(|_| Unavailable::Missing)?;
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, ON_CPU, cpu).map(drop)
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

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use std::process::Command;

    /// The kernel refuses a call of an unregistered process. So a call that succeeds there was not made.
    #[test]
    fn each_call_reaches_the_kernel() {
        const CHILD: &str = "SQUALL_TEST_CHILD";
        const NAME: &str = "membarrier::tests::each_call_reaches_the_kernel";
        if std::env::var_os("SQUALL_TEST_RUNNER").is_some() {
            return println!("SKIP: an emulator runs this program");
        }
        if std::env::var_os(CHILD).is_none() {
            // Registrations last as long as the process.
            let mut child = Command::new(std::env::current_exe().unwrap());
            let output = child.args(["--exact", NAME, "--nocapture"]).env(CHILD, "1").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
            return;
        }
        let refused = [barrier(), restart_all(), restart_on(0)];
        if register().is_ok() {
            assert_eq!((refused[0], barrier()), (Err(Unavailable::Refused(libc::EPERM)), Ok(())));
        }
        if register_restart().is_ok() {
            assert_eq!(refused[1..], [Err(Unavailable::Refused(libc::EPERM)); 2]);
            assert_eq!([restart_all(), restart_on(0)], [Ok(()); 2]);
        }
    }
}
