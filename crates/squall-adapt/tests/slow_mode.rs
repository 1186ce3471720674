//! With the feature `tracing`, a slow mode of the process is reported once.
#![cfg(all(feature = "tracing", target_os = "linux", not(miri)))]

mod common;

use common::Fields;
use squall_adapt::engine;
use std::process::Command;

/// The mode is chosen once in a process, so a child has the slow one.
#[test]
fn a_slow_mode_is_reported_once() {
    const CHILD: &str = "SQUALL_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let wants = |metadata: &tracing::Metadata<'_>| *metadata.level() == tracing::Level::WARN;
        let printer = Fields { wants, take: |fields| println!("warning {fields}") };
        tracing::subscriber::set_global_default(printer).unwrap();
        engine::start();
        engine::set_thread(false);
        engine::set_thread(true);
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "a_slow_mode_is_reported_once", "--nocapture"]).env(CHILD, "1");
    child.env("SQUALL_RSEQ", "off").env("SQUALL_MEMBARRIER", "off").env_remove("SQUALL_TOPOLOGY");
    let output = child.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let count =
        |of: &str| text.lines().filter(|line| line.starts_with("warning ") && line.contains(of)).count();
    assert_eq!(
        [count("no restartable sequences (SQUALL_RSEQ=off)"), count("SQUALL_MEMBARRIER=off")],
        [1, 1],
        "{text}"
    );
}
