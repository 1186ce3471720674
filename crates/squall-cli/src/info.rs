//! `squall info`: shows the detected machine, and the mode of each primitive with its reason. Each line for
//! people is followed by its meaning, and by the consequence for a program.
//!
//! Side effects are small. The modes are chosen now if they were not chosen before. Membarrier is called a
//! few dozen times to time it. No thread is started.

use std::time::Instant;

use clap::Args;
use serde_json::{Map, Value, json};
use squall::adapt::engine::{EngineState, thread_state};
use squall::{Handle, Owned, tables};
use squall_bench::env;
use squall_machine::asym::{self, FenceReason};
use squall_machine::pervp::{self, RestartMode};
use squall_machine::try_machine;
use squall_rcu::{ReclaimerState, reclaimer_state, stats};

use crate::info_words;
use crate::output::{Failure, line};

/// Number of timed heavy fences. The median is shown.
const TRIALS: usize = 51;

#[derive(Args)]
pub(crate) struct InfoArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &InfoArgs) -> Result<(), Failure> {
    let info = collect()?;
    if args.json {
        return line(Value::Object(info));
    }
    for (key, value) in &info {
        print(key, key, value)?;
    }
    Ok(())
}

/// Collects all values, in reading order.
fn collect() -> Result<Map<String, Value>, Failure> {
    let machine = try_machine().map_err(|error| Failure::new(error.to_string()))?;
    let found = machine.describe();
    let levels: Vec<Value> = found
        .levels
        .iter()
        .map(|level| {
            json!({
                "name": level.name,
                "clusters": level.clusters_count,
                "vps_min": level.vps_min,
                "vps_max": level.vps_max,
            })
        })
        .collect();
    let mut info = Map::new();
    let mut put = |key: &str, value: Value| info.insert(key.to_owned(), value);
    put("version", json!(env!("CARGO_PKG_VERSION")));
    put("commit", json!(env::COMMIT));
    put("rustc", json!(env::RUSTC));
    put("kernel", json!(env::kernel()));
    put("arch", json!(std::env::consts::ARCH));
    put("cpu", json!(env::cpu_model()));
    put("page_bytes", json!(env::page_bytes()));
    put("vps", json!(found.possible_count));
    put("vp_limit", json!(found.vp_limit));
    put("possible", json!(found.possible));
    put("online", json!(found.online));
    put("allowed", json!(found.allowed));
    put("cpuset", json!(found.cpuset));
    put("quota_cpus", json!(found.quota_cpus));
    put("parallelism", json!(found.parallelism));
    put(
        "topology",
        json!({
            "virtual": found.is_virtual,
            "source": found.source,
            "levels": levels,
            "default_cluster_size": found.default_cluster_size,
            "memory_nodes": found.memory_nodes,
            "kinds": found.kinds,
            "unplaced": found.unplaced,
        }),
    );
    put("rseq", restart());
    put("membarrier", membarrier());
    put("reclaimer", reclaimer());
    put("engine", engine());
    put("may_start", json!(MAY_START));
    put("rcu", rcu());
    put("pervp", per_vp());
    put("objects", objects());
    put("alloc", allocator());
    put("threads", json!(own_threads()));
    put("costs", costs());
    put("warnings", json!(warnings(found.warnings)));
    Ok(info)
}

/// Returns the costs by which adaptive objects choose their form, to a hundredth of a nanosecond.
fn costs() -> Value {
    let costs = squall::adapt::costs::measured();
    let rounded = |ns: f64| json!((ns * 100.0).round() / 100.0);
    json!({
        "multiplication_ns": rounded(costs.multiply_ns),
        "locked_addition_ns": rounded(costs.locked_ns),
        "addition_to_own_vp_ns": rounded(costs.local_add_ns),
        "full_fence_ns": rounded(costs.fence_ns),
        "fences_of_an_operation_ns": rounded(costs.operation_ns),
        "line_transfer_ns": rounded(costs.transfer_ns),
    })
}

/// Returns the warnings about the machine, and about a slow mode of this process.
fn warnings(of_machine: Vec<String>) -> Vec<String> {
    of_machine.into_iter().chain(squall::adapt::costs::warnings()).collect()
}

fn restart() -> Value {
    match pervp::restart_mode() {
        RestartMode::Restartable => json!({ "mode": "restartable", "why": null }),
        RestartMode::Atomic { why } => json!({ "mode": "atomic", "why": why.to_string() }),
    }
}

fn membarrier() -> Value {
    let mode = asym::mode();
    let (name, why) = match mode {
        asym::Mode::Membarrier => ("membarrier", None),
        asym::Mode::Fence(FenceReason::SwitchedOff) => ("fence", Some("SQUALL_MEMBARRIER=off".to_owned())),
        asym::Mode::Fence(FenceReason::Unavailable(why)) => ("fence", Some(why.to_string())),
        asym::Mode::Fence(FenceReason::Slow(ns)) => {
            ("fence", Some(format!("membarrier is slow here: {ns} ns")))
        }
        asym::Mode::Fence(FenceReason::Checker) => ("fence", Some("a memory checker is running".to_owned())),
    };
    // Times a heavy fence while no other thread of this process runs.
    let mut trials_ns: Vec<u64> = (0..TRIALS)
        .filter_map(|_| {
            let start = Instant::now();
            asym::heavy().ok()?;
            u64::try_from(start.elapsed().as_nanos()).ok()
        })
        .collect();
    trials_ns.sort_unstable();
    json!({ "mode": name, "why": why, "idle_ns": trials_ns.get(trials_ns.len() / 2) })
}

fn reclaimer() -> Value {
    let state = match reclaimer_state() {
        ReclaimerState::NotStarted => "not started: no call was deferred yet",
        ReclaimerState::Running => "running",
        ReclaimerState::Off => "off: callers run deferred calls",
        ReclaimerState::Stopping => "switched off: ends the deferred calls that it runs",
        ReclaimerState::Failed => "the system refused the thread: callers run deferred calls",
        _ => "unknown",
    };
    json!({ "name": "squall-reclaim", "state": state })
}

/// The threads that Squall may start: when each starts, and how to do without it.
const MAY_START: [&str; 16] = [
    "squall-reclaim: starts with the first deferred call; to avoid it: SQUALL_RECLAIMER=off",
    "squall-runner: drops representatives on their processors, and ends; to avoid it: SQUALL_RECLAIMER=off",
    "squall-adapt: starts with the first adaptive object; to avoid it: SQUALL_ADAPT=off",
    "squall-invoke: starts with the first asynchronous call without an executor; to avoid it: set_pool_size(0) or set_executor()",
    "squall-call: one per call of a threaded ADT; to avoid it: another kind",
    "squall-calls: answers and watches other processes while an object is exported or imported; to avoid it: do neither",
    "squall-call-N, squall-call-any: serve calls of other processes, on processor N or any, and end; to avoid them: export no object",
    "squall-call-all: serves such calls if no other thread can start; to avoid it: export no object",
    "squall-monitor: runs while the general monitor has subscribers; to avoid it: collect() by hand",
    "squall-browse: runs while the program serves inspection; to avoid it: do not serve",
    "squall-bags: off unless the program calls bag::set_thread(true), or SQUALL_BAGS=on",
    "squall-task: one per live task object; to avoid it: another kind",
    "squall-fleet, squall-fleet-timer: run the services and the timers of a node of a group; to avoid them: make no node",
    "squall-fleet-local: one per transport of a LocalNetwork; to avoid it: another transport",
    "squall-links, squall-accepts: two per HostTransport; to avoid them: another transport",
    "squall-net, squall-net-read: one per TCP transport, and one per connection; to avoid them: another transport",
];

/// Returns the mode of the locality allocator. Each program has its own allocator.
fn allocator() -> Value {
    let mode = match squall::alloc::mode() {
        Some(squall::alloc::Mode::Restartable) => "restartable",
        Some(squall::alloc::Mode::Locked) => "locked: each allocation takes a lock",
        None => "refused by the system",
    };
    json!({ "mode": mode, "vp_cache_bytes_max": squall::alloc::BOUND_BYTES })
}

/// Returns the state of the engine thread, which lets objects adapt.
fn engine() -> Value {
    let state = match thread_state() {
        EngineState::NotStarted => "not started: no adaptive object was created yet",
        EngineState::Running => "running",
        EngineState::Off => "off: objects adapt only when the program calls turn()",
        EngineState::Failed => "refused by the system",
        _ => "unknown",
    };
    json!({ "name": "squall-adapt", "state": state })
}

fn rcu() -> Value {
    let now = stats();
    json!({
        "threads": now.threads,
        "records": now.records,
        "bytes_per_thread": now.bytes_per_thread,
        "pending_calls": now.pending_calls,
        "pending_bytes": now.pending_bytes,
        "grace_periods": now.grace_periods,
        "throttled": now.throttled,
    })
}

fn per_vp() -> Value {
    let now = pervp::stats();
    json!({
        "chunks": now.chunks_count,
        "reserved_bytes": now.reserved_bytes,
        "bytes_per_vp": now.bytes_per_vp,
    })
}

/// Returns the memory that the tables take in a process with one object, and the memory that each object and
/// each VP that calls it add. The object is made here, called once, and leaked: destroying it would start the
/// reclaimer.
fn objects() -> Value {
    #[squall::interface]
    trait Nothing: Send + Sync {
        fn nothing(&self);
    }
    impl Nothing for () {
        fn nothing(&self) {}
    }
    let object: Handle<dyn Nothing> = match squall::try_shared(()) {
        Ok(object) => Owned::leak(object),
        Err(error) => return json!({ "state": error.to_string() }),
    };
    let call = object.try_nothing();
    let seen = squall::info_of(Handle::id(object));
    let now = tables::stats();
    json!({
        "state": call.map_or_else(|error| error.to_string(), |()| "working".to_owned()),
        "live": now.objects_count,
        "misses": seen.as_ref().map(|seen| seen.misses),
        "reserved_bytes": now.reserved_bytes,
        "bytes_per_shared_object": seen.as_ref().map(|seen| seen.bytes),
        "table_bytes_per_object": now.slot_bytes,
        "table_bytes_per_object_and_vp": now.entry_bytes,
        "slots_used": now.slots_count,
        "slots_retired": now.retired_count,
    })
}

/// Returns the names of the threads of this process that Squall started.
fn own_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("squall-")).collect()
}

/// Prints one value for people, and the words that explain it. Nested values are indented. `path` contains
/// the keys above this value.
fn print(path: &str, key: &str, value: &Value) -> Result<(), Failure> {
    let indent = "  ".repeat(path.matches('.').count());
    let name = key.replace('_', " ");
    match value {
        Value::Object(fields) if fields.contains_key("mode") => {
            let text = |key: &str| fields.get(key).filter(|v| !v.is_null()).map(plain);
            let why = text("why").map_or(String::new(), |why| format!(" ({why})"));
            let cost = text("idle_ns").map_or(String::new(), |ns| format!(", {ns} ns when idle"));
            let mode = text("mode").unwrap_or_default();
            line(format_args!("{indent}{name:<22} {mode}{why}{cost}"))?;
        }
        Value::Object(fields) => {
            line(format_args!("{indent}{name}"))?;
            return fields.iter().try_for_each(|(key, value)| print(&format!("{path}.{key}"), key, value));
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            line(format_args!("{indent}{name}"))?;
            items.iter().try_for_each(|item| {
                let fields: Vec<String> = item
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(key, value)| format!("{} {}", key.replace('_', " "), plain(value)))
                    .collect();
                line(format_args!("{indent}  {}", fields.join(", ")))
            })?;
        }
        Value::Array(items) if items.is_empty() => line(format_args!("{indent}{name:<22} none"))?,
        Value::Array(items) => {
            let texts: Vec<String> = items.iter().map(plain).collect();
            line(format_args!("{indent}{name:<22} {}", texts.join(", ")))?;
        }
        Value::Null => line(format_args!("{indent}{name:<22} none"))?,
        _ => line(format_args!("{indent}{name:<22} {}", plain(value)))?,
    }
    let Some(words) = info_words::of(path, value) else { return Ok(()) };
    line(format_args!("{indent}    is: {}", words.is))?;
    line(format_args!("{indent}    so: {}", words.means))
}

/// Returns the value as text without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `visit` with the path and value of each line for people.
    fn each_line(path: &str, value: &Value, visit: &mut impl FnMut(&str, &Value)) {
        match value {
            Value::Object(fields) if !fields.contains_key("mode") => {
                fields.iter().for_each(|(key, value)| each_line(&format!("{path}.{key}"), value, visit));
            }
            _ => visit(path, value),
        }
    }

    #[test]
    fn each_line_is_explained_in_two_sentences_that_fit_a_terminal() {
        let Ok(info) = collect() else { panic!("the machine is not found") };
        let mut missing = Vec::new();
        for (key, value) in &info {
            each_line(key, value, &mut |path, value| match info_words::of(path, value) {
                Some(words) => {
                    for text in [words.is, words.means] {
                        assert!(text.ends_with('.') && text.len() <= 100, "{path}: {text}");
                    }
                }
                None => missing.push(path.to_owned()),
            });
        }
        assert!(missing.is_empty(), "lines without words: {missing:?}");
    }
}
