//! Starts the binary as scripts do, independently of the environment of the tests.

pub(crate) mod stress;

use std::process::{Command, Output};

/// Environment variables that would change the tested behavior.
const VARIABLES: [&str; 7] = [
    "SQUALL_RSEQ",
    "SQUALL_MEMBARRIER",
    "SQUALL_TOPOLOGY",
    "SQUALL_RECLAIMER",
    "SQUALL_ADAPT",
    "SQUALL_STALL_MS",
    "SQUALL_STRESS_BREAK",
];

/// Returns a command for the binary, with those variables removed.
pub(crate) fn squall() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
    VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    command
}

/// Runs the command to its end.
pub(crate) fn run(command: &mut Command) -> Output {
    command.output().expect("the binary was built with this test")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}
