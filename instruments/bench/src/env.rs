//! Origin of the figures: machine, kernel, compiler, commit.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that this process may use, in ascending order.
pub fn processors() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
    }
}

/// Restricts the calling thread to `cpus`. Returns whether that worked.
pub(crate) fn pin(cpus: &[usize]) -> bool {
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).is_ok()
}

/// Model of the first processor, as `/proc/cpuinfo` names it.
pub fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Release of the running kernel.
pub fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Size of a page of memory, in bytes.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Commit of this build; ends with `+` if the tree had changes.
pub const COMMIT: &str = env!("SQUALL_COMMIT");

/// Compiler that built this.
pub const RUSTC: &str = env!("SQUALL_RUSTC");

/// One line for the head of a text report.
pub fn summary() -> String {
    format!(
        "{}, {} processors, Linux {}; squall {} at {}, {}",
        cpu_model(),
        processors().len(),
        kernel(),
        env!("CARGO_PKG_VERSION"),
        COMMIT,
        RUSTC
    )
}
