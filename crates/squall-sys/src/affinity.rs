//! Processors of a thread: the current one, the allowed ones; and the identity and state of threads.

use std::io;

/// Returns the operating system's id of the calling thread, or 0 on a system without ids.
pub fn thread_id() -> u32 {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: gettid(2) has no arguments, and always succeeds. glibc before 2.30 has no function for it.
        let id = unsafe { libc::syscall(libc::SYS_gettid) };
        u32::try_from(id).unwrap_or(0)
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    0
}

/// Returns how often the calling thread has given up its processor to wait, or `None` if the system does not
/// tell.
pub fn voluntary_switches() -> Option<u64> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: plain integers, for which zeros are valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: getrusage(2) writes the structure that it is given.
        let result =
            crate::system::quietly(|| unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) });
        if result == 0 { u64::try_from(usage.ru_nvcsw).ok() } else { None }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    None
}

/// Returns the processor that the calling thread runs on, or 0 if the system does not tell.
pub fn current_cpu() -> usize {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: sched_getcpu(3) has no arguments. It returns -1 if the system does not tell.
        usize::try_from(crate::system::quietly(|| unsafe { libc::sched_getcpu() })).unwrap_or(0)
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    0
}

/// Returns the processors that the calling thread may run on.
///
/// # Errors
/// The error of sched_getaffinity(2); `Unsupported` on a system without that call.
pub fn allowed() -> io::Result<Vec<usize>> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        Ok(crate::system::Cpus::allowed()?.iter().collect())
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    Err(io::ErrorKind::Unsupported.into())
}

/// Restricts the calling thread to the given processors.
///
/// # Errors
/// The error of sched_setaffinity(2), for example if no processor in `cpus` is online and permitted.
/// `Unsupported` on a system without that call.
pub fn restrict_to(cpus: &[usize]) -> io::Result<()> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let mut set = crate::system::Cpus::new();
        for &cpu in cpus {
            set.add(cpu);
        }
        set.restrict()
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = cpus;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// True if thread `id` of this process is running, or ready to run. False if the kernel does not tell.
///
/// # Cost
/// Opens, reads and closes a file.
pub fn is_runnable(id: u32) -> bool {
    if cfg!(miri) {
        return false;
    }
    let Ok(stat) = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")) else { return false };
    // The thread's name comes before it, in parentheses, and may contain any character.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('R'))
}

/// Returns the CPU time of thread `id` of this process, in ns, if the kernel tells.
///
/// # Cost
/// Opens, reads and closes a file.
pub fn time_run(id: u32) -> Option<u64> {
    if cfg!(miri) {
        return None;
    }
    let times = std::fs::read_to_string(format!("/proc/self/task/{id}/schedstat")).ok()?;
    times.split_whitespace().next()?.parse().ok()
}

/// Returns the name of thread `id` of this process, as the kernel knows it.
pub fn thread_name(id: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn running_sleeping_and_finished_threads_are_told_apart() {
        assert!(is_runnable(thread_id()));
        let (tell, told) = mpsc::channel();
        let (done, wait) = mpsc::channel::<()>();
        let sleeper = std::thread::Builder::new()
            // The parser must not take this text for the state that follows the name.
            .name("a) R b".to_owned())
            .spawn(move || {
                tell.send(thread_id()).unwrap();
                let _ = wait.recv();
            })
            .unwrap();
        let id = told.recv().unwrap();
        while is_runnable(id) {
            std::thread::yield_now();
        }
        if let Some(mine) = time_run(thread_id()) {
            // The thread may still have been on its way to sleep when it first looked asleep.
            let sleeps = || {
                let before = time_run(id);
                let begun = std::time::Instant::now();
                while begun.elapsed().as_millis() < 20 {}
                before == time_run(id)
            };
            assert!((0..100).any(|_| sleeps()), "the sleeping thread's CPU time grows");
            assert!(time_run(thread_id()) > Some(mine), "this thread's CPU time did not grow");
        }
        drop(done);
        sleeper.join().unwrap();
        // A join may return a moment before the kernel has removed the thread.
        while is_runnable(id) || time_run(id).is_some() {
            std::thread::yield_now();
        }
    }
}
