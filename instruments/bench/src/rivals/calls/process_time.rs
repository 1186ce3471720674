//! Processor time of another process.

use std::mem::MaybeUninit;

/// Processor time of all threads of the process `pid`, ended ones included, in nanoseconds. `None` if there
/// is no such process.
pub(crate) fn process_ns(pid: u32) -> Option<u64> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let (mut clock, mut time) = (0, MaybeUninit::<libc::timespec>::uninit());
    // SAFETY: the pointer is to a live variable.
    if unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } != 0 {
        return None;
    }
    // SAFETY: the pointer is to a live variable.
    if unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, and has written the time.
    let time = unsafe { time.assume_init() };
    Some(u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?)
}

#[cfg(test)]
mod tests {
    use super::process_ns;

    #[test]
    fn the_time_of_a_process_is_known_while_it_exists() {
        assert!(process_ns(std::process::id()).is_some_and(|ns| ns > 0));
        assert_eq!(process_ns(u32::MAX), None);
    }
}
