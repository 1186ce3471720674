//! Errors of userfaultfd, with the missing grant and the remedy.

use super::Features;
use std::error::Error;
use std::fmt;
use std::io;

/// Error of opening a userfaultfd.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The system is not Linux, or the program runs under Miri.
    Unsupported,
    /// The kernel was built without userfaultfd, or is older than 4.3. Before Linux 6.1, a filter of system
    /// calls (seccomp) that answers `ENOSYS` looks like that, too.
    Absent,
    /// The process lacks each of the grants.
    Denied(Grants),
    /// [`Features::EVENT_FORK`] needs the capability `CAP_SYS_PTRACE`, which the thread lacks.
    ForkEvents,
    /// The kernel lacks some of the wanted features.
    Features {
        /// The wanted features that the kernel lacks.
        missing: Features,
        /// All features of the kernel.
        available: Features,
    },
    /// The kernel refused for another reason, for example a full table of descriptors.
    System(io::Error),
}

/// Grants of userfaultfd as the kernel answered them. Any one of them suffices.
#[derive(Debug)]
#[non_exhaustive]
pub struct Grants {
    /// Error of opening /dev/userfaultfd (6.1), or of its only call.
    pub device: io::Error,
    /// Error of userfaultfd(2).
    pub call: io::Error,
    /// Error of userfaultfd(2) for faults of user code alone (5.11). Every thread has this grant, unless a
    /// filter of system calls takes it away.
    pub user_mode_call: io::Error,
    /// True if the thread has the capability `CAP_SYS_PTRACE`, which suffices for userfaultfd(2).
    pub capability: bool,
    /// Value of `vm.unprivileged_userfaultfd`, if it can be read. The value 1 suffices for userfaultfd(2).
    pub unprivileged: Option<u8>,
    /// True if a filter of system calls (seccomp) must be the cause: the kernel itself would have answered
    /// otherwise.
    pub filtered: bool,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Unsupported => f.write_str("userfaultfd needs Linux: use another kind of memory here"),
            OpenError::Absent => f.write_str(
                "the kernel has no userfaultfd, or a seccomp profile hides it: use Linux 4.3 or later with \
                 CONFIG_USERFAULTFD, and allow userfaultfd(2)",
            ),
            OpenError::Denied(grants) => grants.fmt(f),
            OpenError::ForkEvents => f.write_str(
                "userfaultfd refuses events of fork to a thread without CAP_SYS_PTRACE: add the capability, \
                 or leave EVENT_FORK out",
            ),
            OpenError::Features { missing, available } => write!(
                f,
                "the kernel's userfaultfd lacks {missing} (it has {available}): use a newer kernel, or want \
                 fewer features"
            ),
            OpenError::System(error) => write!(f, "userfaultfd cannot be opened: {error}"),
        }
    }
}

impl fmt::Display for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = if self.capability { "held" } else { "not held" };
        write!(
            f,
            "userfaultfd is refused (/dev/userfaultfd: {}; userfaultfd(2): {}; for user code alone: {}; \
             CAP_SYS_PTRACE: {held}; vm.unprivileged_userfaultfd: ",
            self.device, self.call, self.user_mode_call
        )?;
        match self.unprivileged {
            Some(value) => write!(f, "{value}")?,
            None => f.write_str("unknown")?,
        }
        f.write_str(if self.filtered {
            "): allow userfaultfd(2) in the seccomp profile of the container, or grant access to \
             /dev/userfaultfd"
        } else {
            "): grant access to /dev/userfaultfd, add CAP_SYS_PTRACE, or set vm.unprivileged_userfaultfd to 1"
        })
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OpenError::System(error) => Some(error),
            _ => None,
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> io::Error {
        let kind = match &error {
            OpenError::Unsupported | OpenError::Absent | OpenError::Features { .. } => {
                io::ErrorKind::Unsupported
            }
            OpenError::Denied(_) | OpenError::ForkEvents => io::ErrorKind::PermissionDenied,
            OpenError::System(error) => error.kind(),
        };
        io::Error::new(kind, error)
    }
}

/// Operation on a range of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// [`Uffd::register`](super::Uffd::register).
    Register,
    /// [`Uffd::unregister`](super::Uffd::unregister).
    Unregister,
    /// [`Uffd::wake`](super::Uffd::wake).
    Wake,
    /// [`Uffd::copy`](super::Uffd::copy).
    Copy,
    /// [`Uffd::zero`](super::Uffd::zero).
    Zero,
    /// [`Uffd::resume`](super::Uffd::resume).
    Resume,
    /// [`Uffd::move_pages`](super::Uffd::move_pages).
    Move,
    /// [`Uffd::poison`](super::Uffd::poison).
    Poison,
    /// [`Uffd::write_protect`](super::Uffd::write_protect).
    WriteProtect,
}

/// Reason for which an operation on a range of pages ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// `EEXIST`: the first page that is not done is already present.
    Present,
    /// `ENOENT`: the range is not within one registered mapping, or a page to move does not exist.
    Absent,
    /// `EAGAIN`: the process changes its mappings, and waits until a thread reads the event. Read the events,
    /// then repeat the rest.
    Changing,
    /// `EBUSY`: another descriptor has registered the range, or a page to move is shared or pinned.
    Busy,
    /// `EFAULT`: the source of a copy cannot be read, or the file has no page to resume with.
    Unbacked,
    /// `ENOMEM`: memory, page tables or mappings of the process are exhausted.
    NoMemory,
    /// `EPERM`: the file of the mapping may not be written.
    Forbidden,
    /// `ESRCH`: the process of the memory has ended.
    Ended,
    /// `EINVAL`: the range is not of whole pages, or the memory, its registration or the kernel lacks the
    /// operation or one of its options.
    Invalid,
    /// Another error, by its number.
    Other(i32),
}

/// Error of an operation on a range of pages, with the number of bytes that are done.
///
/// The done bytes are the first ones of the range, and each of their pages was done once. The pages after
/// them are unchanged. [`Uffd::write_protect`](super::Uffd::write_protect) is the exception.
///
/// An error is plain data, so that a signal handler can have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeError {
    pub(super) operation: Operation,
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) done: usize,
    pub(super) reason: Reason,
}

impl RangeError {
    /// Returns the operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the number of bytes that were done before the error.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Returns the reason.
    pub fn reason(&self) -> Reason {
        self.reason
    }
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RangeError { operation, at, len, done, reason } = *self;
        write!(f, "userfaultfd: {operation:?} of {len} bytes at {at:#x} ended after {done} bytes: ")?;
        f.write_str(match reason {
            Reason::Present => "the next page is present: skip it",
            Reason::Absent if operation == Operation::Move => {
                "the next page to move does not exist: allow holes, or move existing pages"
            }
            Reason::Absent => "the range is not within one registered mapping: register it first",
            Reason::Changing => "the process changes its mappings: read the events, then repeat the rest",
            Reason::Busy if operation == Operation::Move => {
                "the next page to move is shared or pinned: copy it"
            }
            Reason::Busy => "another descriptor has registered the range: unregister it there first",
            Reason::Unbacked if operation == Operation::Resume => {
                "the file has no such page: write the page first"
            }
            Reason::Unbacked => "the next page of the source cannot be read: map it first",
            Reason::NoMemory => "memory or mappings are exhausted: free some, then repeat the rest",
            Reason::Forbidden => "the file of the mapping may not be written: open it for writing",
            Reason::Ended => "the process of the memory has ended: drop the descriptor",
            Reason::Invalid => {
                "the kernel finds it invalid: check that it is of whole pages, of a registered mode, and of \
                 a kind of memory with that operation and its options"
            }
            Reason::Other(error) => return write!(f, "error {error}"),
        })
    }
}

impl Error for RangeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_each_grant_and_the_remedy() {
        let refused = |filtered| {
            OpenError::Denied(Grants {
                device: io::ErrorKind::PermissionDenied.into(),
                call: io::ErrorKind::PermissionDenied.into(),
                user_mode_call: io::ErrorKind::InvalidInput.into(),
                capability: false,
                unprivileged: Some(0),
                filtered,
            })
        };
        let text = refused(false).to_string();
        for part in ["/dev/userfaultfd: permission denied", "CAP_SYS_PTRACE: not held", "userfaultfd: 0)"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(text.ends_with("or set vm.unprivileged_userfaultfd to 1"), "{text}");
        assert!(refused(true).to_string().contains("seccomp"));
        assert_eq!(io::Error::from(refused(true)).kind(), io::ErrorKind::PermissionDenied);
        let missing = Features::MOVE | Features::POISON;
        let error = OpenError::Features { missing, available: Features::SIGBUS };
        assert!(error.to_string().contains("lacks POISON, MOVE (it has SIGBUS)"), "{error}");
    }

    #[test]
    fn a_range_error_tells_how_much_is_done_and_why_the_rest_is_not() {
        let error = RangeError {
            operation: Operation::Copy,
            at: 0x7000,
            len: 0x4000,
            done: 0x2000,
            reason: Reason::Present,
        };
        let expected = "userfaultfd: Copy of 16384 bytes at 0x7000 ended after 8192 bytes: the next page is \
                        present: skip it";
        assert_eq!(error.to_string(), expected);
    }
}
