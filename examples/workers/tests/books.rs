//! The books of several processes balance, even if one of them is killed.

#![cfg(target_os = "linux")]

use std::process::Command;

#[track_caller]
fn runs(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_squall-workers"))
        .args(arguments)
        .output()
        .expect("the program starts");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn every_request_is_counted_once() {
    let text = runs(&["--workers", "3", "--requests", "2000"]);
    assert!(text.contains("requests served"), "{text}");
}

#[test]
fn a_killed_worker_does_not_stop_the_drain() {
    for workers in ["1", "2", "3"] {
        runs(&["--workers", workers, "--requests", "600", "--kill"]);
    }
}

#[test]
fn a_worker_without_a_server_fails() {
    let output = Command::new(env!("CARGO_BIN_EXE_squall-workers"))
        .args(["--worker", "squall-workers.nobody"])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.starts_with("squall-workers: ") && text.contains("squall-workers.nobody.requests"),
        "{text}"
    );
}
