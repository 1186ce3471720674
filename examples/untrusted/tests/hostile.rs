//! The program, with an honest child and with a hostile one.
#![cfg(target_os = "linux")]

use std::process::Command;

fn run(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_squall-untrusted")).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {:?}\n{text}\n{errors}", output.status);
    text
}

#[test]
fn an_honest_child_serves_every_call() {
    let text = run(&[]);
    assert!(text.contains("good: 10000") && text.contains("1 children"), "{text}");
}

#[test]
fn a_hostile_child_harms_nobody() {
    let text = run(&["--hostile"]);
    assert!(text.contains("a bad record: Err(Outside)"), "{text}");
}

#[test]
fn a_wrong_argument_is_an_error_that_names_it() {
    let program = env!("CARGO_BIN_EXE_squall-untrusted");
    let output = Command::new(program).arg("--what").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--what"));
}
