//! Where threads run and may run, and who they are.

use std::io;

/// The operating system's id of the calling thread; 0 where there is none.
pub fn thread_id() -> u32 {
    #[cfg(all(target_os = "linux", not(miri)))]
    return rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    #[cfg(not(all(target_os = "linux", not(miri))))]
    0
}

/// The processor the calling thread runs on now; 0 where that cannot be had.
pub fn current_cpu() -> usize {
    #[cfg(all(target_os = "linux", not(miri)))]
    return rustix::thread::sched_getcpu();
    #[cfg(not(all(target_os = "linux", not(miri))))]
    0
}

/// The processors the calling thread may run on.
///
/// # Errors
/// That of sched_getaffinity(2); `Unsupported` where there is no such call.
pub fn allowed() -> io::Result<Vec<usize>> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let set = rustix::thread::sched_getaffinity(None)?;
        Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    Err(io::ErrorKind::Unsupported.into())
}

/// Restricts the calling thread to these processors.
///
/// # Errors
/// That of sched_setaffinity(2): none of them is online and permitted; `Unsupported` where there is no such call.
pub fn restrict_to(cpus: &[usize]) -> io::Result<()> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let mut set = rustix::thread::CpuSet::new();
        for &cpu in cpus.iter().filter(|&&cpu| cpu < rustix::thread::CpuSet::MAX_CPU) {
            set.set(cpu);
        }
        Ok(rustix::thread::sched_setaffinity(None, &set)?)
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = cpus;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Whether thread `id` of this process is running, or would if a processor were free; not if the kernel does not say.
///
/// # Cost
/// A file is opened, read and closed.
pub fn is_runnable(id: u32) -> bool {
    if cfg!(miri) {
        return false;
    }
    let Ok(stat) = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")) else { return false };
    // The name comes before it, in parentheses, and may contain anything.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('R'))
}

/// How long thread `id` of this process has run so far, in ns, if the kernel says.
///
/// # Cost
/// As of [`is_runnable`].
pub fn time_run(id: u32) -> Option<u64> {
    if cfg!(miri) {
        return None;
    }
    let times = std::fs::read_to_string(format!("/proc/self/task/{id}/schedstat")).ok()?;
    times.split_whitespace().next()?.parse().ok()
}

/// The name of thread `id` of this process, as the kernel knows it.
pub fn thread_name(id: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_thread_that_runs_is_told_from_one_that_sleeps_or_is_gone() {
        assert!(is_runnable(thread_id()));
        let (tell, told) = mpsc::channel();
        let (done, wait) = mpsc::channel::<()>();
        let sleeper = std::thread::Builder::new()
            // What follows the name must not be taken from the name.
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
            // It may have been on its way to sleep when it first seemed to.
            let sleeps = || {
                let before = time_run(id);
                let begun = std::time::Instant::now();
                while begun.elapsed().as_millis() < 20 {}
                before == time_run(id)
            };
            assert!((0..100).any(|_| sleeps()), "it sleeps, and its time goes on");
            assert!(time_run(thread_id()) > Some(mine), "this thread ran");
        }
        drop(done);
        sleeper.join().unwrap();
        // A thread is joined a moment before the kernel has forgotten it.
        while is_runnable(id) || time_run(id).is_some() {
            std::thread::yield_now();
        }
    }
}
