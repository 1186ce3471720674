//! Runs the example `two_processes`, which starts its own program again.

#[cfg(squall_global_alloc)]
use squall as _;

#[cfg(target_os = "linux")]
#[path = "../examples/two_processes.rs"]
mod two_processes;

fn main() {
    #[cfg(target_os = "linux")]
    two_processes::main().expect("the client and its servers run");
}
