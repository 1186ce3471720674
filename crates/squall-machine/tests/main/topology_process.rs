//! The process-wide machine, which a process sets once. So every case runs in a process of its own: this test
//! program again, with the environment variable set and one case named.

#![cfg(not(miri))] // Files and processes.

use std::process::Output;

use crate::this_program::this_program;
use squall_machine::topology::VirtualSpec;
use squall_machine::{ClusterSize, Machine, MachineError, machine, try_machine};

const VARIABLE: &str = "SQUALL_TOPOLOGY";
const SIZE_VARIABLE: &str = "SQUALL_CLUSTER_SIZE";
const CASE: &str = "SQUALL_TEST_CASE";

/// Runs `case` in a process in which the variable holds `topology`.
fn run(case: &str, topology: Option<&str>) -> Output {
    run_with(case, topology, None)
}

/// Runs `case` in a process in which the variables hold `topology` and `size`.
fn run_with(case: &str, topology: Option<&str>, size: Option<&str>) -> Output {
    let mut command = this_program();
    command
        .args(["--exact", "topology_process::in_a_process_of_its_own", "--nocapture"])
        .env(CASE, case)
        .env_remove(VARIABLE)
        .env_remove(SIZE_VARIABLE);
    for (variable, value) in [(VARIABLE, topology), (SIZE_VARIABLE, size)] {
        value.map(|value| command.env(variable, value));
    }
    command.output().unwrap()
}

#[track_caller]
fn passes(case: &str, topology: Option<&str>) {
    let output = run(case, topology);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("the case ran"), "{case}: {out}{err}");
}

/// The child's side. In an ordinary run it returns at once.
#[test]
fn in_a_process_of_its_own() {
    let Ok(case) = std::env::var(CASE) else { return };
    let spec: VirtualSpec = "cores:3".parse().unwrap();
    match case.as_str() {
        "virtual" => {
            assert!(machine().is_virtual());
            assert_eq!(machine().vps().to_string(), "0-7");
            assert!(std::ptr::eq(machine(), try_machine().unwrap()));
            assert_eq!(Machine::set_virtual(spec).unwrap_err(), MachineError::InUse { asked: spec });
            assert_eq!(machine().vps().to_string(), "0-7");
        }
        "real" => {
            let read = Machine::read(squall_machine::topology::Reader::system());
            assert_eq!(machine().vps(), read.vps());
            assert_eq!(machine().is_virtual(), read.is_virtual());
        }
        "set" => {
            assert_eq!(Machine::set_virtual(spec).unwrap().vps().to_string(), "0-2");
            assert_eq!(machine().vps().to_string(), "0-2");
            assert!(Machine::set_virtual(spec).unwrap_err().to_string().contains("in use already"));
        }
        "size" => {
            assert_eq!(machine().default_cluster_size(), ClusterSize::Node);
            assert_eq!(machine().cluster_size_or(ClusterSize::Cpu), ClusterSize::Node);
            machine().set_default_cluster_size(ClusterSize::Cache);
            assert_eq!(machine().cluster_size_or(ClusterSize::Cpu), ClusterSize::Cache);
        }
        "no size" => {
            assert_eq!(machine().default_cluster_size(), ClusterSize::Core);
            assert_eq!(machine().cluster_size_or(ClusterSize::Cpu), ClusterSize::Cpu);
        }
        "wrong size" => {
            let error = try_machine().unwrap_err().to_string();
            assert!(error.contains("SQUALL_CLUSTER_SIZE") && error.contains("`huge`"), "{error}");
        }
        "wrong" => {
            let error = try_machine().unwrap_err();
            assert!(matches!(&error, MachineError::Variable { value, .. } if value == "nodes:2,cores:zero"));
            assert!(error.to_string().contains("`cores:zero` has a count that is not a number"), "{error}");
            assert_eq!(try_machine().unwrap_err(), error, "a second call must return the same error");
            assert_eq!(
                Machine::set_virtual(spec).unwrap().vps().len(),
                3,
                "set_virtual must work after a malformed variable"
            );
            assert!(try_machine().is_ok());
        }
        "panic" => {
            machine();
        }
        "race" => {
            let threads: Vec<_> =
                (0..8).map(|_| std::thread::spawn(|| std::ptr::from_ref(machine()).addr())).collect();
            let addresses: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
            assert!(addresses.iter().all(|a| *a == addresses[0]));
        }
        other => panic!("no case {other}"),
    }
    println!("the case ran");
}

#[test]
fn the_variable_makes_the_machine_virtual() {
    passes("virtual", Some("cores:4,threads:2"));
}

#[test]
fn without_a_variable_the_machine_is_real() {
    passes("real", None);
    passes("real", Some(""));
}

#[test]
fn set_virtual_overrides_the_variable() {
    passes("set", None);
    passes("set", Some("cores:4"));
    passes("set", Some("garbage"));
}

#[test]
fn a_malformed_variable_is_an_error_with_the_reason() {
    passes("wrong", Some("nodes:2,cores:zero"));
}

#[test]
fn hu_03_a_variable_sets_the_default_cluster_size_at_start() {
    let cases =
        [("size", Some("node")), ("no size", None), ("no size", Some("")), ("wrong size", Some("huge"))];
    for (case, size) in cases {
        let output = run_with(case, Some("nodes:2,cores:4"), size);
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && out.contains("the case ran"), "{case}: {output:?}");
    }
}

#[test]
fn a_malformed_variable_panics_in_machine() {
    let output = run("panic", Some("nodes:0"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("SQUALL_TOPOLOGY=\"nodes:0\"") && text.contains("at least 1"), "{text}");
}

#[test]
fn racing_first_uses_get_one_machine() {
    passes("race", None);
    passes("race", Some("cores:5"));
}
