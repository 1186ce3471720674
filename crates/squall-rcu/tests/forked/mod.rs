//! Checks made in the child of a fork.

/// How the child ends.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "not every test program uses both")]
pub(crate) enum End {
    /// By `_exit`, which runs no code of the program.
    AtOnce,
    /// By `exit`, which runs the thread's exit hooks.
    Orderly,
}

/// Runs `check` in a forked child, which then ends by `_exit`. Returns whether the child ended by itself
/// within a minute and `check` returned true.
#[allow(dead_code, reason = "not every test program uses it")]
pub(crate) fn in_forked_child(check: impl FnOnce() -> bool) -> bool {
    in_child_ending(End::AtOnce, check)
}

/// Like [`in_forked_child`], but the child ends as `end` says.
///
/// The child ends even if `check` panics, since the rest of the test would run in it otherwise.
pub(crate) fn in_child_ending(end: End, check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only calls `check`, which is written for a forked child, and ends.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: the signal has no handler, so it ends the child.
            unsafe { libc::alarm(60) };
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
            let code = match result {
                Ok(true) => 0,
                Ok(false) => 1,
                Err(_) => 101,
            };
            // At exit, sanitizers look for threads that the child lacks, and for their memory.
            let end = if cfg!(any(squall_asan, squall_tsan)) { End::AtOnce } else { end };
            match end {
                // SAFETY: ends the child at once.
                End::AtOnce => unsafe { libc::_exit(code) },
                // SAFETY: the child has one thread, so no other thread exits at the same time.
                End::Orderly => unsafe { libc::exit(code) },
            }
        }
        child => {
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: waits for the child just made, and writes to a live variable.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}
