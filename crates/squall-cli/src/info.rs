//! `squall info`: what machine was found and in which mode each primitive runs, and why.
//!
//! Looking changes little: the modes are chosen by it if nobody chose before, no thread is started, and membarrier is
//! called a few dozen times to time it.

use std::time::Instant;

use serde_json::{Map, Value, json};
use squall::adapt::engine::{EngineState, thread_state};
use squall::{Handle, Owned, tables};
use squall_bench::env;
use squall_machine::asym::{self, Why};
use squall_machine::pervp::{self, RestartMode};
use squall_machine::try_machine;
use squall_rcu::{ReclaimerState, reclaimer_state, stats};

use crate::output::{Failure, line};

/// Heavy fences that are timed; the median is shown.
const TRIALS: usize = 51;

pub(crate) fn run(as_json: bool) -> Result<(), Failure> {
    let info = collect()?;
    if as_json {
        return line(Value::Object(info));
    }
    for (key, value) in &info {
        print(key, value, 0)?;
    }
    Ok(())
}

/// Everything, in the order in which people read it.
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
    put("warnings", json!(found.warnings));
    Ok(info)
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
        asym::Mode::Fence(Why::SwitchedOff) => ("fence", Some("SQUALL_MEMBARRIER=off".to_owned())),
        asym::Mode::Fence(Why::Unavailable(why)) => ("fence", Some(why.to_string())),
        asym::Mode::Fence(Why::Slow(ns)) => ("fence", Some(format!("membarrier takes {ns} ns here"))),
        asym::Mode::Fence(Why::Checker) => ("fence", Some("a checker is running".to_owned())),
    };
    // What a heavy fence costs now, with nobody else of this process running.
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
        ReclaimerState::NotStarted => "not started: nothing was deferred yet",
        ReclaimerState::Running => "running",
        ReclaimerState::Off => "off: callers do the work",
        ReclaimerState::Failed => "refused by the system: callers do the work",
        _ => "unknown",
    };
    json!({ "name": "squall-reclaim", "state": state })
}

/// The threads that Squall may start, when, and what does without them.
const MAY_START: [&str; 7] = [
    "squall-reclaim: with the first deferred call; SQUALL_RECLAIMER=off",
    "squall-adapt: with the first adaptive object; SQUALL_ADAPT=off",
    "squall-invoke: with the first asynchronous call that names no executor; set_pool_size(0), set_executor()",
    "squall-call: one for each call of a threaded ADT; another kind",
    "squall-monitor: while somebody subscribes to the general monitor; collect() by hand",
    "squall-browse: while a program serves inspection; do not serve",
    "squall-task: one for each object that is a task, while it lives; another kind",
];

/// How the locality allocator works here, of which each program has its own.
fn allocator() -> Value {
    let mode = match squall::alloc::mode() {
        Some(squall::alloc::Mode::Restartable) => "restartable",
        Some(squall::alloc::Mode::Locked) => "locked: each call takes a lock",
        None => "refused by the system",
    };
    json!({ "mode": mode, "vp_cache_bytes_max": squall::alloc::BOUND_BYTES })
}

/// What the thread does by which objects adapt.
fn engine() -> Value {
    let state = match thread_state() {
        EngineState::NotStarted => "not started: no adaptive object was made yet",
        EngineState::Running => "running",
        EngineState::Off => "off: nothing changes by itself but where the program calls turn()",
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

/// What a process with one object pays for the tables, and what each object, and each VP that calls it, adds to that. The
/// object is made here, called once, and lives as long as the process: its end would start the reclaimer.
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

/// Names of the threads of this process that are Squall's own.
fn own_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("squall-")).collect()
}

/// One value for people; nested ones are indented.
fn print(key: &str, value: &Value, depth: usize) -> Result<(), Failure> {
    let indent = "  ".repeat(depth);
    let name = key.replace('_', " ");
    match value {
        Value::Object(fields) if fields.contains_key("mode") => {
            let text = |key: &str| fields.get(key).filter(|v| !v.is_null()).map(plain);
            let why = text("why").map_or(String::new(), |why| format!(" ({why})"));
            let cost = text("idle_ns").map_or(String::new(), |ns| format!(", {ns} ns when idle"));
            let mode = text("mode").unwrap_or_default();
            line(format_args!("{indent}{name:<22} {mode}{why}{cost}"))
        }
        Value::Object(fields) => {
            line(format_args!("{indent}{name}"))?;
            fields.iter().try_for_each(|(key, value)| print(key, value, depth + 1))
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
            })
        }
        Value::Array(items) if items.is_empty() => line(format_args!("{indent}{name:<22} none")),
        Value::Array(items) => {
            let texts: Vec<String> = items.iter().map(plain).collect();
            line(format_args!("{indent}{name:<22} {}", texts.join(", ")))
        }
        Value::Null => line(format_args!("{indent}{name:<22} none")),
        _ => line(format_args!("{indent}{name:<22} {}", plain(value))),
    }
}

/// A value without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
