//! Shared support of the tests: a child process that runs one test of this program, in another environment.

#![allow(dead_code)]

use std::process::{Command, Output};

const CHILD: &str = "SQUALL_TEST_CHILD";

/// Returns whether this process is such a child.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the test of this name in a child with these environment variables.
pub(crate) fn again(test: &str, variables: &[(&str, &str)]) -> Output {
    let program = std::env::current_exe().expect("the program has a path");
    // An emulated program starts others through the emulator.
    let mut command = match std::env::var("SQUALL_TEST_RUNNER") {
        Ok(runner) => {
            let mut words = runner.split_whitespace();
            let mut command = Command::new(words.next().expect("SQUALL_TEST_RUNNER names a program"));
            command.args(words).arg(program);
            command
        }
        Err(_) => Command::new(program),
    };
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "1");
    command.envs(variables.iter().copied()).output().expect("a child")
}

/// Like [`again`]; the child must pass.
pub(crate) fn must_pass(test: &str, variables: &[(&str, &str)]) {
    let output = again(test, variables);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} {variables:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs `body` in a child of its own. Miri runs it in this process.
pub(crate) fn in_child(test: &str, body: impl FnOnce()) {
    if is_child() || cfg!(miri) { body() } else { must_pass(test, &[]) }
}

/// Runs `body` in a child for each mode: with restartable sequences, and with locks. Miri runs it in this
/// process.
pub(crate) fn in_both_modes(test: &str, body: impl FnOnce()) {
    if is_child() || cfg!(miri) {
        return body();
    }
    must_pass(test, &[]);
    must_pass(test, &[("SQUALL_RSEQ", "off")]);
}

/// Random numbers from a seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
