//! Tests in processes of their own.
#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "most of these tests run on Linux"))]

use crate::this_program::this_program;
use std::io::Write;

/// Variable set in child processes: the name of the child's test.
const CHILD: &str = "SQUALL_TEST_CHILD";

/// Runs a test of this program again, in one process for each environment. Returns whether this is such a
/// process. `test` is the full name of the test, with its module.
pub(crate) fn alone(test: &str, environments: &[&[(&str, &str)]]) -> bool {
    if std::env::var(CHILD).is_ok_and(|name| name == test) {
        return true;
    }
    for environment in environments {
        let output = this_program()
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(CHILD, test)
            .envs(environment.iter().copied())
            .output()
            .expect("this program starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("running 1 test"), "{test} does not exist");
        assert!(output.status.success(), "{test} under {environment:?}: {}\n{text}{errors}", output.status);
        for line in errors.lines().filter(|line| line.starts_with("SKIP")) {
            // Not by `eprintln`, which the test harness captures.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
    false
}

/// Whether the emulator that runs this program hides the features that forked children need.
pub(crate) fn is_emulated() -> bool {
    std::env::var_os("SQUALL_TEST_RUNNER").is_some()
}
