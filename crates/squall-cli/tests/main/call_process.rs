//! The case `call-process`: its rows, and the end of its serving processes.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{self, stderr, stdout};

/// Variable that marks the processes of a test.
const MARK: &str = "SQUALL_TEST_MARK";
/// Longest time for a process to start or to end. It takes milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn bench(mark: &str, variant: &str) -> Command {
    bench_case("call-process", mark, variant)
}

fn bench_case(case: &str, mark: &str, variant: &str) -> Command {
    let mut command = common::squall();
    command.args(["bench", case, "--quick", "--json", "--threads", "1", "--variant", variant]);
    command.env(MARK, mark).stdin(Stdio::null());
    command
}

/// Number of living serving processes with this mark. A process that has ended has no environment.
fn servers(mark: &str) -> usize {
    let marked = format!("{MARK}={mark}");
    let contains = |path: String, text: &str| {
        fs::read(path).is_ok_and(|bytes| bytes.split(|byte| *byte == 0).any(|part| part == text.as_bytes()))
    };
    let folders = fs::read_dir("/proc").expect("there is no /proc").flatten();
    folders
        .filter_map(|folder| folder.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| contains(format!("/proc/{pid}/cmdline"), "__call-server"))
        .filter(|pid| contains(format!("/proc/{pid}/environ"), &marked))
        .count()
}

fn poll(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn messages_between_processes_have_rows() {
    let output = bench_case("message", "message", "process").output().expect("squall cannot be started");
    assert!(output.status.success(), "{}", stderr(&output));
    let rows: Vec<Value> = stdout(&output).lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert!(rows.iter().all(|row| row["case"] == "message" && row["variant"] == "process"));
    let has = |key: &str, name: &str| rows.iter().any(|row| row[key] == name);
    for subject in ["squall", "call-process", "pipe", "unix-socket"] {
        assert!(has("subject", subject), "{subject} in {rows:?}");
    }
    assert!(has("ratio", "squall/call-process"), "{rows:?}");
    assert!(!has("subject", "crossbeam-channel"), "a channel of threads takes part");
}

#[test]
fn each_variant_has_rows_for_the_light_rivals() {
    for variant in ["same-core", "cross-hot", "cross-asleep", "bulk-8k"] {
        let output = bench(variant, variant).output().expect("squall cannot be started");
        assert!(output.status.success(), "{}", stderr(&output));
        let rows: Vec<Value> =
            stdout(&output).lines().map(|row| serde_json::from_str(row).unwrap()).collect();
        assert!(rows.iter().all(|row| row["case"] == "call-process" && row["variant"] == variant));
        let crosses = variant.starts_with("cross");
        if crosses && thread::available_parallelism().map_or(1, usize::from) < 2 {
            continue;
        }
        for subject in ["futex", "pipe", "unix-socket"] {
            let row = rows.iter().find(|row| row["subject"] == subject);
            assert!(row.is_some_and(|row| row["ns_per_op"].as_f64() > Some(0.0)), "{subject} in {rows:?}");
        }
        let spins = rows.iter().any(|row| row["subject"] == "futex-spin");
        assert_eq!(spins, variant == "cross-hot");
        let copies =
            rows.iter().any(|row| row["metric"].as_str().is_some_and(|name| name.contains("copies")));
        assert_eq!(copies, variant == "bulk-8k");
        assert_eq!(servers(variant), 0, "a serving process remains");
    }
}

#[test]
fn a_killed_bench_leaves_no_serving_process() {
    let mark = "killed";
    let mut squall = bench(mark, "same-core").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    poll("no serving process has started", || servers(mark) > 0);
    squall.kill().unwrap();
    squall.wait().unwrap();
    poll("a serving process remains", || servers(mark) == 0);
}
