//! Checks made in the child of a fork.

/// Runs `check` in a forked child. Returns whether the child ended by itself within a minute and `check`
/// returned true.
///
/// The child ends by `_exit` even if `check` panics, since the rest of the test would run in it otherwise.
pub(crate) fn in_forked_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only calls `check`, which is written for a forked child, and `_exit`.
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
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) }
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
