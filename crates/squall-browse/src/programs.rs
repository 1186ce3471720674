//! The programs of this user that serve inspection.

use crate::protocol::Hello;

/// Lists the programs of this user that serve inspection at their default path, by process number.
///
/// A program that does not answer within five seconds is left out. Empty on systems other than Linux.
///
/// ```
/// let _server = squall::browse::serve()?;
/// let programs = squall::browse::programs();
/// assert!(programs.iter().any(|program| program.pid == std::process::id()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(all(target_os = "linux", not(miri)))]
pub fn programs() -> Vec<Hello> {
    const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
    let answer = |pid| {
        let target = crate::Target::Process(pid);
        crate::Client::connect_within(&target, TIMEOUT).ok()?.hello().ok()
    };
    let uid = rustix::process::geteuid().as_raw();
    crate::paths::processes(uid).into_iter().filter_map(answer).collect()
}

/// Returns an empty list: no program of this system serves inspection.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub fn programs() -> Vec<Hello> {
    Vec::new()
}
