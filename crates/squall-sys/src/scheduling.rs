//! Scheduling policy of the calling thread. Other systems than Linux do not tell.

/// Returns `true` if the calling thread has a real-time policy, or its policy is unknown on Linux.
///
/// Keeps `errno`, and may be called in a signal handler.
///
/// # Cost
/// A system call.
#[cfg(all(target_os = "linux", not(miri)))]
pub fn is_real_time() -> bool {
    // Called directly, because sched_getscheduler(2) of musl always fails.
    // SAFETY: sched_getscheduler(2) for the calling thread.
    is_real_time_policy(crate::system::quietly(|| unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) }))
}

/// Returns `false`.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub fn is_real_time() -> bool {
    false
}

/// Whether an answer of sched_getscheduler(2) is an error or a real-time policy.
#[cfg(all(target_os = "linux", not(miri)))]
fn is_real_time_policy(policy: libc::c_long) -> bool {
    let ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
    !ordinary
        .iter()
        .any(|ordinary| policy & !libc::c_long::from(libc::SCHED_RESET_ON_FORK) == (*ordinary).into())
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_a_real_time_policy_says_so() {
        assert_eq!(
            [-1, 0, 1, 2, 3, 5, 6].map(is_real_time_policy),
            [true, false, true, true, false, false, true]
        );
        let reset = libc::c_long::from(libc::SCHED_RESET_ON_FORK);
        assert_eq!([reset, reset | 1].map(is_real_time_policy), [false, true]);
        let made = || {
            // SAFETY: a structure of integers, all of which may be zero.
            let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
            param.sched_priority = 1;
            // SAFETY: sched_setscheduler(2) for the calling thread, with a parameter of our own.
            let made =
                unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const param) };
            (made == 0, is_real_time())
        };
        // The system may refuse the policy.
        let (made, is) = std::thread::spawn(made).join().unwrap();
        assert_eq!(made, is);
    }
}
