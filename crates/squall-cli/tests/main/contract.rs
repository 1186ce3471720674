//! The command line as a contract for scripts: names, shapes of rows, streams and exit statuses.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::{self, stderr, stdout};
use serde_json::Value;

fn squall(args: &[&str]) -> Output {
    squall_with(args, &[])
}

fn squall_with(args: &[&str], variables: &[(&str, &str)]) -> Output {
    common::run(common::squall().args(args).envs(variables.iter().copied()))
}

/// Parses every line of stdout as a JSON object.
fn objects(output: &Output) -> Vec<serde_json::Map<String, Value>> {
    let parse = |line: &str| match serde_json::from_str(line) {
        Ok(Value::Object(fields)) => fields,
        other => panic!("not an object: {line:?} ({other:?})"),
    };
    stdout(output).lines().map(parse).collect()
}

#[test]
fn list_names_the_cases_one_on_a_line() {
    let output = squall(&["bench", "--list"]);
    assert!(output.status.success());
    let text = stdout(&output);
    let names: Vec<&str> = text.lines().collect();
    for case in [
        "percpu",
        "rcu-read",
        "rcu-wait",
        "rcu-retire",
        "rcu-idle",
        "swap",
        "cell",
        "map-get",
        "map-mixed",
        "map-churn",
        "map-memory",
        "map-adapt",
        "cache",
        "serve",
        "bag",
        "bag-asym",
        "queue",
        "object-pool",
        "id-pool",
        "page-pool",
        "page-alloc",
        "pool",
        "tsp",
        "call-process",
        "call-counter",
    ] {
        assert!(names.contains(&case), "{case} is not in {names:?}");
    }
}

/// A row and a column are parts of a metric's name. Without `--json` they are one table.
#[test]
fn the_pool_over_messages_prints_a_row_for_each_strategy_and_number_of_servers() {
    let args = ["bench", "pool", "--variant", "find", "--quick"];
    let output = squall(&[&args[..], &["--json"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = objects(&output);
    let value = |metric: &str| {
        let row = rows.iter().find(|row| row["metric"] == metric);
        row.unwrap_or_else(|| panic!("no row {metric}"))["value"].as_f64()
    };
    assert_eq!(value("estimated-push/16/worst_get"), Some(30.0));
    assert_eq!(value("directory/16/worst_get"), Some(4.0));
    assert_eq!((value("directory/8/empty_get"), value("bulk/2/join")), (Some(2.0), Some(2.0)));
    assert!(rows.iter().all(|row| row["case"] == "pool" && row["variant"] == "find"), "{rows:?}");
    let text = stdout(&squall(&args));
    let line = text.lines().find(|line| line.trim_start().starts_with("directory/16 ")).unwrap_or_default();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["directory/16", "4", "2", "2"], "{text}");
}

#[test]
fn bench_prints_rows_for_each_thread_count_and_nothing_else() {
    let output = squall(&["bench", "percpu", "--quick", "--json", "--threads", "1,3"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = objects(&output);
    for threads in [1, 3] {
        let of = |key: &str, name: &str| {
            let row = rows.iter().find(|row| {
                row["case"] == "percpu"
                    && row["threads"] == threads
                    && row.get(key).is_some_and(|v| v == name)
            });
            row.unwrap_or_else(|| panic!("no row with {key} {name} at {threads} threads")).clone()
        };
        for subject in ["squall", "mutex", "atomic", "unpadded", "padded", "locked-add", "thread-local"] {
            let row = of("subject", subject);
            assert!(row["ns_per_op"].as_f64().is_some_and(|ns| ns > 0.0), "{row:?}");
            assert!(row["spread"].as_f64().is_some_and(|spread| spread >= 0.0), "{row:?}");
        }
        for rival in ["locked-add", "contatori", "fast-counter", "best"] {
            let row = of("ratio", &format!("squall/{rival}"));
            assert!(row["value"].as_f64().is_some_and(|value| value > 0.0), "{row:?}");
        }
    }
    assert!(rows.iter().all(|row| !row.contains_key("variant")), "percpu has no variants");
}

#[test]
fn variants_are_in_every_row_and_can_be_chosen() {
    let args = ["bench", "rcu-wait", "--variant", "idle", "--quick", "--json", "--threads", "1"];
    let output = squall(&args);
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = objects(&output);
    assert!(rows.iter().any(|row| row.get("subject").is_some_and(|s| s == "squall-expedited")));
    assert!(rows.iter().all(|row| row["variant"] == "idle"));
    let unknown = squall(&["bench", "rcu-wait", "--variant", "sideways", "--json"]);
    assert!(!unknown.status.success());
    assert!(unknown.stdout.is_empty());
    assert!(stderr(&unknown).contains("busy-reader"), "the error names the variants there are");
}

#[test]
fn retiring_names_its_metrics_by_subject() {
    let output = squall(&["bench", "rcu-retire", "--quick", "--json", "--threads", "2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = objects(&output);
    for subject in ["squall", "crossbeam-epoch"] {
        for metric in ["peak_items", "peak_bytes"] {
            let name = format!("{subject}_{metric}");
            let row = rows.iter().find(|row| row.get("metric").is_some_and(|m| *m == name));
            assert!(row.is_some_and(|row| row["value"].is_number() && row["threads"] == 2), "{name}");
        }
    }
}

#[test]
fn maps_have_a_row_for_each_rival_and_metrics_for_their_memory() {
    const OURS: [&str; 5] =
        ["squall-table", "squall-central", "squall-locked", "squall-replicated", "squall-adaptive"];
    const RIVALS: [&str; 5] = ["dashmap", "papaya", "scc-hashmap", "scc-hashindex", "std-rwlock"];
    let run = |case: &str, variant: &str| {
        let args = ["bench", case, "--variant", variant, "--quick", "--json", "--threads", "2"];
        let output = squall(&args);
        assert!(output.status.success(), "{}", stderr(&output));
        objects(&output)
    };
    for (case, variant) in
        [("map-get", "10k-u64-zipf"), ("map-mixed", "10k-str-uniform-50-50"), ("map-churn", "10k-u64")]
    {
        let rows = run(case, variant);
        for subject in RIVALS.iter().chain(&OURS) {
            let row = rows.iter().find(|row| row.get("subject").is_some_and(|s| s == subject));
            let row = row.unwrap_or_else(|| panic!("{case} has no row of {subject}"));
            assert_eq!((&row["variant"], &row["threads"]), (&Value::from(variant), &Value::from(2)));
        }
        assert!(rows.iter().any(|row| row.get("ratio").is_some_and(|r| r == "squall-central/best")));
    }
    let rows = run("map-memory", "10k-u64");
    for subject in RIVALS.iter().chain(&["squall-table"]) {
        let name = format!("{subject}_bytes_per_entry");
        let row = rows.iter().find(|row| row["metric"] == name).unwrap_or_else(|| panic!("no metric {name}"));
        // A key and a value take at least 16 bytes.
        assert!(row["value"].as_f64().is_some_and(|bytes| bytes >= 16.0), "{row:?}");
    }
}

#[test]
fn serving_has_a_row_for_each_store_and_metrics_for_its_times() {
    let output = squall(&["bench", "serve", "--quick", "--json", "--threads", "2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = objects(&output);
    let value = |key: &str, name: &str| {
        let row = rows.iter().find(|row| row.get(key).is_some_and(|found| found == name));
        let row = row.unwrap_or_else(|| panic!("no row with {key} {name}"));
        assert_eq!((&row["variant"], &row["threads"]), (&Value::from("100b-90-10"), &Value::from(2)));
        row.get("value").or_else(|| row.get("ns_per_op")).and_then(Value::as_f64).expect("a number")
    };
    for subject in ["squall", "dashmap", "papaya", "scc-hashmap"] {
        assert!(value("subject", subject) > 0.0, "{subject}");
        let [p50, p99] = ["p50_us", "p99_us"].map(|name| value("metric", &format!("{subject}_{name}")));
        assert!(0.0 < p50 && p50 <= p99, "{subject}: {p50} and {p99}");
        assert!(value("metric", &format!("{subject}_requests_per_s")) > 0.0, "{subject}");
    }
    for ratio in ["squall/best", "squall/best-store", "squall/best-store-p99"] {
        assert!(value("ratio", ratio) > 0.0, "{ratio}");
    }
    // A missing memcached is reported and is not a failure.
    let told = stderr(&output).contains("memcached is missing");
    assert!(told != rows.iter().any(|row| row.get("subject").is_some_and(|subject| subject == "memcached")));
}

#[test]
fn a_cell_reports_the_cost_of_an_update() {
    let output = squall(&["bench", "cell", "--quick", "--json", "--threads", "2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = objects(&output);
    for metric in ["update_ns", "squall-shared_update_ns", "arc-swap_update_ns", "left-right_update_ns"] {
        let row = rows.iter().find(|row| row.get("metric").is_some_and(|m| m == metric));
        assert!(row.is_some_and(|row| row["value"].as_f64().is_some_and(|ns| ns > 0.0)), "{metric}");
    }
    for subject in ["squall-shared", "squall-adaptive", "squall-embedded", "arc-swap-cache", "tokio-watch"] {
        assert!(rows.iter().any(|row| row.get("subject").is_some_and(|s| s == subject)), "{subject}");
    }
}

#[test]
fn swapping_names_its_metrics_and_moves_every_byte() {
    let of = |variant: &str, topology: &[(&str, &str)]| {
        let args = ["bench", "swap", "--variant", variant, "--quick", "--json", "--threads", "2"];
        let output = squall_with(&args, topology);
        assert!(output.status.success(), "{}", stderr(&output));
        objects(&output)
    };
    let value = |rows: &[serde_json::Map<String, Value>], name: &str| {
        let row = rows.iter().find(|row| row.get("metric").is_some_and(|metric| metric == name));
        let row = row.unwrap_or_else(|| panic!("no metric {name}"));
        assert_eq!(row["threads"], 2);
        row["value"].as_f64().unwrap_or_else(|| panic!("{row:?}"))
    };
    // On a busy machine, a run may be too short for a swap under load.
    let null = (0..10).map(|_| of("null", &[])).find(|rows| value(rows, "busy_swaps") > 0.0);
    let null = null.expect("a run with a swap under load");
    for subject in ["squall", "arc-swap", "std-rwlock"] {
        assert!(null.iter().any(|row| row.get("subject").is_some_and(|s| s == subject)), "{subject}");
    }
    for phase in ["idle", "busy", "attach", "forward", "block", "transfer", "complete"] {
        assert!(value(&null, &format!("{phase}_p50_us")) >= 0.0, "{phase}");
    }
    for metric in ["call_through_ns", "arbitrated_call_ns", "throughput_ratio_read_only"] {
        assert!(value(&null, metric) > 0.0, "{metric}");
    }
    assert!(value(&null, "pause_p999_us") <= value(&null, "pause_max_us"));
    assert!(null.iter().any(|row| {
        row.get("metric").is_some_and(|m| m.as_str().is_some_and(|m| m.contains("busy_hist_us_lt_")))
    }));
    let topology = [("SQUALL_TOPOLOGY", "nodes:1,caches:2,cores:4,threads:1")];
    let spread = of("reps-8-state-64k", &topology);
    assert_eq!((value(&spread, "reps"), value(&spread, "bytes_moved")), (8.0, 65536.0));
}

#[test]
fn an_idle_process_does_not_wake_up() {
    // On a busy machine, a thread may go to sleep so late that this counts as a wake-up. A process that wakes
    // up by itself does so in each run.
    let rests = (0..10).any(|_| {
        let output = squall(&["bench", "rcu-idle", "--quick", "--json", "--threads", "50"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let rows = objects(&output);
        let value = |name: &str| {
            let row = rows.iter().find(|row| row["metric"] == name);
            row.unwrap_or_else(|| panic!("no metric {name}"))["value"].as_f64().expect("a number")
        };
        assert_eq!(value("pending_items"), 0.0);
        assert!(value("registered_threads") >= 50.0);
        assert!(value("bytes_per_thread") > 0.0);
        value("idle_wakeups") == 0.0
    });
    assert!(rests, "it woke up in each run");
}

#[test]
fn loop_runs_any_subject_at_any_thread_count_and_in_a_virtual_topology() {
    for (case, subject) in [
        ("percpu", "squall"),
        ("percpu", "contatori"),
        ("rcu-read", "squall"),
        ("rcu-read", "seize"),
        ("call", "squall-swapped"),
        ("cell", "squall-distributed"),
        ("map-get", "squall-central"),
        ("map-mixed", "papaya"),
        ("map-adapt", "squall-adaptive"),
    ] {
        let args = ["loop", case, "--subject", subject, "--threads", "9", "--ops", "1000"];
        assert!(squall(&args).status.success(), "{args:?}");
        let topology = [("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:2,threads:2")];
        assert!(squall_with(&args, &topology).status.success(), "{args:?} on 16 VPs");
    }
    let nobody = squall(&["loop", "percpu", "--subject", "nobody", "--threads", "1", "--ops", "1"]);
    assert!(!nobody.status.success());
    assert!(stderr(&nobody).contains("locked-add"), "the error names the subjects there are");
}

#[test]
fn info_reports_the_modes_with_their_reasons() {
    let plain = squall(&["info", "--json"]);
    assert!(plain.status.success(), "{}", stderr(&plain));
    let info = &objects(&plain)[0];
    for key in ["vps", "topology", "rseq", "membarrier", "threads", "kernel", "version", "objects"] {
        assert!(info.contains_key(key), "{key}");
    }
    // The command made one object, called it once, and started no thread.
    let looked = &info["objects"];
    assert_eq!(looked["state"], "working");
    assert_eq!((&looked["live"], &looked["misses"]), (&Value::from(1), &Value::from(1)));
    assert!(looked["reserved_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{looked}");
    assert_eq!(info["threads"], Value::Array(Vec::new()));
    let off = squall_with(
        &["info", "--json"],
        &[
            ("SQUALL_RSEQ", "off"),
            ("SQUALL_MEMBARRIER", "off"),
            ("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:4,threads:2"),
        ],
    );
    let info = &objects(&off)[0];
    assert_eq!(info["vps"], 32);
    assert_eq!(info["topology"]["virtual"], true);
    assert_eq!(info["rseq"]["mode"], "atomic");
    assert_eq!(info["membarrier"]["mode"], "fence");
    assert_eq!(info["membarrier"]["why"], "SQUALL_MEMBARRIER=off");
    let words = stdout(&squall(&["info"]));
    assert!(words.contains("membarrier"));
    for sentence in ["is: Restartable sequences", "so: Objects work in this environment."] {
        assert!(words.contains(sentence), "{sentence}: {words}");
    }
}

#[test]
fn info_warns_of_a_slow_mode_and_tells_the_measured_costs() {
    let slow = squall_with(&["info", "--json"], &[("SQUALL_RSEQ", "off"), ("SQUALL_MEMBARRIER", "off")]);
    let info = &objects(&slow)[0];
    let warnings = info["warnings"].to_string();
    for part in ["SQUALL_RSEQ=off", "SQUALL_MEMBARRIER=off", "locked instruction", "full fences"] {
        assert!(warnings.contains(part), "no {part} in {warnings}");
    }
    let costs = &info["costs"];
    assert_eq!(costs["locked_addition_ns"], costs["addition_to_own_vp_ns"], "{costs}");
    assert!(costs["fences_of_an_operation_ns"].as_f64() > Some(0.0), "{costs}");
}

#[test]
fn stress_list_names_the_stresses_one_on_a_line() {
    let output = squall(&["stress", "--list"]);
    assert!(output.status.success());
    let text = stdout(&output);
    let names: Vec<&str> = text.lines().collect();
    let mut expected = vec![
        "percpu",
        "percpu-downgrade",
        "rcu",
        "objects",
        "swap",
        "swap-memory",
        "adapt",
        "locks",
        "alloc",
        "maps",
        "dhash",
        "fork",
        "bags",
        "queue",
        "pager",
        "cache",
        "calls",
        "fleets",
        "pools",
        "ship",
    ];
    if cfg!(feature = "hosts") {
        expected.insert(expected.len() - 2, "hosts");
        expected.insert(expected.len() - 1, "pool-hosts");
    }
    assert_eq!(names, expected);
}

#[test]
fn stress_names_its_replay_and_unknown_names_fail() {
    let args = ["stress", "percpu", "--seconds", "1", "--seed", "7", "--threads", "3"];
    for variables in [
        &[][..],
        &[("SQUALL_RSEQ", "off")][..],
        &[("SQUALL_TOPOLOGY", "nodes:1,caches:1,cores:8,threads:1")][..],
    ] {
        let output = squall_with(&args, variables);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stdout(&output).contains("squall stress percpu --seconds 1 --seed 7 --threads 3"));
    }
    assert!(!squall(&["stress", "nothing"]).status.success());
    assert!(!squall(&["bench", "nothing"]).status.success());
    assert!(!squall(&["bench", "percpu", "--threads", "0"]).status.success());
    assert!(!squall(&["frobnicate"]).status.success());
    assert!(!squall(&["demo", "--threads", "0"]).status.success());
    assert!(!squall(&["demo", "index", "--mib", "0"]).status.success());
    assert!(!squall(&["demo", "index", "--threads", "0"]).status.success());
    assert!(!squall(&["demo", "index", ".", "--query", "two words"]).status.success());
}

/// Runs `locality` if its emulator is installed. Otherwise checks that the error says how to install it.
fn emulated(args: &[&str]) -> Option<Output> {
    let output = squall(args);
    // Messages of the plugin itself do not depend on the installation.
    let said = stderr(&output);
    if said.contains("apt install qemu-user") && !said.contains("squall-locality-plugin: ") {
        assert!(!output.status.success() && output.stdout.is_empty());
        return None;
    }
    Some(output)
}

#[test]
fn locality_counts_a_loop_between_its_marks_and_fails_above_a_limit() {
    let program = env!("CARGO_BIN_EXE_squall");
    let looping = |subject: &'static str| {
        vec!["--", program, "loop", "percpu", "--subject", subject, "--threads", "2", "--ops", "500"]
    };
    let allowed = ["locality", "--json", "--ops", "500", "--fail-above", "0"];
    let Some(padded) = emulated(&[&allowed[..], &looping("padded")].concat()) else { return };
    assert!(padded.status.success(), "{}", stderr(&padded));
    let report = &objects(&padded)[0];
    assert_eq!(report["threads"], 2);
    assert_eq!(report["window"], "marks");
    assert_eq!(report["write_shared_accesses_per_op"], 0.0);
    assert!(report["transfers_per_op_at_most"].is_number() && report["lines"].is_array());
    assert!(report["notes"].to_string().contains("rseq"), "the output says so");
    let Some(shared) = emulated(&[&allowed[..], &looping("atomic")].concat()) else { return };
    assert!(!shared.status.success());
    assert_eq!(objects(&shared)[0]["write_shared_accesses_per_op"], 1.0);
    assert!(stderr(&shared).contains("more than 0"), "{}", stderr(&shared));
}

/// Returns the run folders of the `squall` process `pid`.
fn folders(pid: u32) -> impl Iterator<Item = PathBuf> {
    let places = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
    let entries = places.into_iter().filter_map(|place| std::fs::read_dir(place).ok()).flatten().flatten();
    entries.map(|entry| entry.path()).filter(move |path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(&format!("squall-locality-{pid}-")))
    })
}

#[test]
fn locality_reports_and_cleans_up_after_a_signal() {
    if emulated(&["locality", "--", "true"]).is_none() {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
    command.args(["locality", "--json", "--", "sleep", "1000"]);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = running.id();
    // The log exists once the emulator has started.
    while !folders(pid).any(|folder| folder.join("log-0").exists()) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let told = Command::new("kill").arg(pid.to_string()).status().expect("there is a kill");
    assert!(told.success());
    let output = running.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "it was stopped on purpose: {}", stderr(&output));
    assert_eq!(objects(&output)[0]["outcome"]["stopped"], 15);
    assert_eq!(objects(&output)[0]["incomplete"], Value::Array(Vec::new()));
    assert_eq!(folders(pid).count(), 0);
}

#[test]
fn locality_shows_the_program_the_name_that_was_typed() {
    let Some(output) = emulated(&["locality", "--json", "--", "sh", "-c", "echo name=$0"]) else { return };
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("name=sh\n"), "{}", stderr(&output));
    assert_eq!(objects(&output)[0]["command"][0], "sh");
}

#[test]
fn locality_is_undecided_if_not_everything_was_counted() {
    let program = env!("CARGO_BIN_EXE_squall");
    let status = |options: &[&str], command: &[&str]| {
        let output =
            emulated(&[&["locality", "--fail-above", "1000000"], options, &["--"], command].concat())?;
        Some((output.status.code(), stderr(&output)))
    };
    let looping = |ops: &'static str| {
        vec![program, "loop", "percpu", "--subject", "padded", "--threads", "2", "--ops", ops]
    };
    // The program was killed before its end.
    let Some((code, said)) = status(&["--timeout", "1"], &looping("100000000000")) else { return };
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("is undecided") && said.contains("did not end in time"), "{said}");
    // A child that calls exec is not counted from then on.
    let Some((code, said)) = status(&[], &["sh", "-c", "/bin/true; exit 0"]) else { return };
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("became"), "{said}");
    // Counted to the end; in the second case possibly without a worker thread.
    let Some((code, said)) = status(&["--ops", "500"], &looping("500")) else { return };
    assert_eq!(code, Some(0), "{said}");
    let Some((code, said)) = status(&["--ops", "100000000000"], &looping("500")) else { return };
    assert!(matches!(code, Some(0 | 3)), "{said}");
    assert_eq!(squall(&["locality", "--fail-above", "nan", "--", "true"]).status.code(), Some(1));
}

#[test]
fn locality_kills_all_processes_after_its_timeout() {
    // A unique number of seconds, slept by a process that left its parent, its session and its environment.
    let seconds = (4_000_000 + std::process::id()).to_string();
    let command = format!("(env -i setsid sleep {seconds} &) ; sleep 1000");
    let Some(output) = emulated(&["locality", "--json", "--timeout", "3", "--", "sh", "-c", &command]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("did not end in time"), "{}", stderr(&output));
    let report = &objects(&output)[0];
    assert_eq!(report["outcome"], "timed-out");
    assert!(report["incomplete"].to_string().contains("did not end in time"), "{report:?}");
    // A killed process ends when it runs the next time. If it was not killed, the test hangs.
    let sleeps = || {
        std::fs::read_dir("/proc").expect("processes").flatten().any(|entry| {
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|word| word == seconds.as_bytes())
        })
    };
    while sleeps() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn locality_can_be_ended_while_it_reports_and_cleans_up() {
    use std::os::unix::process::ExitStatusExt;
    if emulated(&["locality", "--", "true"]).is_none() {
        return;
    }
    // A FIFO without a reader: writing the page blocks forever.
    let page = std::env::temp_dir().join(format!("squall-page-{}", std::process::id()));
    assert!(Command::new("mkfifo").arg(&page).status().expect("there is a mkfifo").success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
    command.args(["locality", "--html"]).arg(&page).args(["--", "true"]);
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    while !folders(running.id()).any(|folder| folder.join("log-0").exists()) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // The first signal may arrive before the program has ended, and then ends only the program.
    let status = loop {
        if let Some(status) = running.try_wait().expect("a child") {
            break status;
        }
        let _ = Command::new("kill").arg(running.id().to_string()).status().expect("there is a kill");
        std::thread::sleep(Duration::from_millis(100));
    };
    std::fs::remove_file(&page).expect("it is ours");
    assert_eq!((status.signal(), folders(running.id()).count()), (Some(15), 0));
}

#[test]
fn locality_leaves_ignored_signals_ignored() {
    if emulated(&["locality", "--", "true"]).is_none() {
        return;
    }
    // The shell ignores SIGHUP, and `squall` inherits that. The signal is sent while the program waits for
    // its input.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" locality --json -- cat", env!("CARGO_BIN_EXE_squall")]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn().expect("it starts");
    // The log exists once the emulator has started.
    while !folders(running.id()).any(|folder| folder.join("log-0").exists()) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let told =
        Command::new("kill").args(["-HUP", &running.id().to_string()]).status().expect("there is a kill");
    assert!(told.success());
    // Closes the input, so that the program ends.
    let output = running.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(objects(&output)[0]["outcome"]["exited"], 0);
}

#[test]
fn locality_counts_from_one_signal_to_another() {
    let window = ["--from-signal", "USR1", "--to-signal", "USR2"];
    let wrong = squall(&[&["locality", "--window", "all"], &window[..], &["--", "true"]].concat());
    assert_eq!(wrong.status.code(), Some(2));
    let Some(output) = emulated(&[&["locality", "--json"], &window[..], &["--", "true"]].concat()) else {
        return;
    };
    assert!(output.status.success(), "{}", stderr(&output));
    let report = &objects(&output)[0];
    assert_eq!((&report["window"], &report["accesses"]), (&Value::from("signals"), &Value::from(0)));
    assert!(report["notes"].to_string().contains("no signal began a window"), "{}", report["notes"]);
}

#[test]
fn locality_reports_missing_parts() {
    let no_program = squall(&["locality", "--", "/no/such/program"]);
    assert!(!no_program.status.success() && no_program.stdout.is_empty());
    let no_emulator = squall(&["locality", "--emulator", "/no/such/emulator", "--", "true"]);
    assert!(stderr(&no_emulator).contains("apt install qemu-user"), "{}", stderr(&no_emulator));
    assert!(!squall(&["locality", "--model", "abacus", "--", "true"]).status.success());
}
