//! Command that starts this test program again.

use std::process::Command;

/// Returns a command that runs this test program.
///
/// Under user-mode emulation the kernel cannot start it directly. `SQUALL_TEST_RUNNER="qemu-aarch64 -L …"`
/// then names the program that does, with its arguments.
pub(crate) fn this_program() -> Command {
    let runner = std::env::var("SQUALL_TEST_RUNNER").unwrap_or_default();
    let program = std::env::current_exe().expect("the path of this program").into_os_string();
    let mut words = runner.split_whitespace().map(std::ffi::OsString::from).chain([program]);
    let mut command = Command::new(words.next().expect("at least the program"));
    command.args(words);
    command
}
