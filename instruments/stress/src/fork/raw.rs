//! The system calls without a safe wrapper: a fork, a time limit of the child, and memory that both processes
//! share. All `unsafe` of this stress is here.

#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of words of a [`Progress`].
const WORDS: usize = 4;

/// Memory that a child shares with its parent.
pub(super) struct Progress(&'static [AtomicU64; WORDS]);

/// The words of a [`Progress`].
#[derive(Clone, Copy)]
pub(super) enum Word {
    /// One plus the number of the call that the child makes or has made last; after the last call, larger
    /// than each number.
    Call,
    /// One plus the number of a call with a wrong result.
    Wrong,
    /// The number of calls that were refused.
    Refused,
    /// The number of calls that were done.
    Done,
}

impl Progress {
    /// # Errors
    /// The error of mmap(2).
    pub(super) fn new() -> io::Result<Progress> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice aliases no other memory.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: 1. the mapping is aligned, large enough and zero, which is a valid value; 2. it is never
        // unmapped.
        Ok(Progress(unsafe { &*page.cast() }))
    }

    pub(super) fn get(&self, word: Word) -> u64 {
        // Relaxed: the parent reads after the child's end, and only the child writes.
        self.0[word as usize].load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, word: Word, value: u64) {
        self.0[word as usize].store(value, Ordering::Relaxed);
    }
}

/// The end of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, with this status.
    With(i32),
    /// By the time limit.
    TooLate,
    /// By another signal.
    BySignal(i32),
}

/// Forks. The child runs `body`, for at most `seconds` together with its end. `body` returns the status, and
/// whether the child ends by `exit`. Waits for the child's end.
///
/// # Errors
/// The error of fork(2) or waitpid(2).
pub(super) fn in_child(seconds: u32, body: impl FnOnce() -> (i32, bool)) -> io::Result<Ended> {
    fork(seconds, body)?.wait()
}

/// A forked child that runs.
pub(crate) struct Forked(libc::pid_t);

/// Forks like [`in_child`], but does not wait.
///
/// # Errors
/// The error of fork(2).
pub(crate) fn fork(seconds: u32, body: impl FnOnce() -> (i32, bool)) -> io::Result<Forked> {
    // SAFETY: the child runs `body`, written for a forked child, on its only thread, and ends.
    unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // The signal has no handler, so it ends the child.
                libc::alarm(seconds);
                match body() {
                    // Not `std::process::exit`: it takes a lock that std holds while a thread starts or ends.
                    (status, true) => libc::exit(status),
                    (status, false) => libc::_exit(status),
                }
            }
            child => Ok(Forked(child)),
        }
    }
}

impl Forked {
    /// Kills the child.
    pub(crate) fn kill(&self) {
        // SAFETY: a child that was not waited for, so the number is still its own. It takes no pointer.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }

    /// Waits for the child's end.
    ///
    /// # Errors
    /// The error of waitpid(2).
    pub(crate) fn wait(self) -> io::Result<Ended> {
        let mut status = 0;
        loop {
            // SAFETY: a child of this process, and our own variable.
            if unsafe { libc::waitpid(self.0, &raw mut status, 0) } == self.0 {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(match libc::WTERMSIG(status) {
            _ if libc::WIFEXITED(status) => Ended::With(libc::WEXITSTATUS(status)),
            libc::SIGALRM => Ended::TooLate,
            signal => Ended::BySignal(signal),
        })
    }
}

/// Descriptors that the planned breaks below touch, at most.
const DESCRIPTORS_MAX: i32 = 256;

/// Ends all connections of this process and of those that it shares sockets with.
pub(crate) fn end_connections() {
    for descriptor in 3..DESCRIPTORS_MAX {
        // SAFETY: it takes no pointer, and fails for a number without a socket.
        unsafe { libc::shutdown(descriptor, libc::SHUT_RDWR) };
    }
}

/// Keeps all descriptors when this process executes a program.
pub(crate) fn keep_descriptors_at_exec() {
    for descriptor in 3..DESCRIPTORS_MAX {
        // SAFETY: it takes no pointer, and fails for a number without a descriptor.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) };
    }
}
