//! `rcu-idle`: the cost of read-copy-update for an idle process.
//!
//! A thousand threads (or the number in `--threads`) are started. Each touches its stack, allocates and frees
//! some items, and sleeps, so that memory kept by stack and allocator is already counted. Then each
//! registers, retires its part of a million items and sleeps again; then everything is reclaimed. After that:
//!
//! - `idle_wakeups`: context switches of any kind, of all tasks of the process within one second, by the
//!   kernel's count in `/proc/self/task/*/status`. The measuring thread, which must wake up to read it, is
//!   left out.
//! - `bytes_per_thread`: memory per registered thread, by the library's account.
//! - `list_bytes`: memory still used by the lists of deferred calls of all threads.
//! - `bytes_per_vp`: memory of the library's per-VP data for each VP.
//! - `rss_bytes_per_thread`: growth of the resident set per thread, from just before the first registration
//!   to the end. It includes all memory that stays: records, lists, and memory that the allocator did not
//!   give back.
//! - `pending_items` after it all, and `retired_items` for the record.
//!
//! Not promised: that the resident set grew by Squall alone. The figure is an upper bound.

use std::fs;
use std::hint::black_box;
use std::thread::{self, Builder};
use std::time::Duration;

use crate::case::{Case, PLAIN, Scale, Setting};
use crate::harness::field;
use crate::latch::{Door, Latch};

pub(super) static CASE: Case = Case {
    name: "rcu-idle",
    about: "wake-ups and memory of an idle process that has registered a thousand threads and reclaimed a million items",
    variants: &[PLAIN],
    subjects: &[],
    scale: Scale::Latency,
    slice_ms: (0, 0),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[1000],
};

/// Items retired by all threads together, in a full and in a quick run.
const ITEMS: (usize, usize) = (1_000_000, 100_000);
/// Time for which the process is left idle.
const IDLE: Duration = Duration::from_secs(1);
/// Time for running work to end before the idle second: until no task has run for this long, or for a limited
/// number of such periods.
const SETTLE: Duration = Duration::from_millis(100);
const SETTLE_MOMENTS_MAX: usize = 20;
/// Stack of each thread, in bytes.
const STACK_BYTES: usize = 256 * 1024;

/// Items that each thread allocates and frees at first.
const WARM_ITEMS: usize = 256;

fn item(n: usize) -> Box<[u64; 8]> {
    Box::new([n as u64; 8])
}

/// Touches the stack pages that the library's slow paths may need.
#[inline(never)]
fn touch_stack() {
    // A build without optimisation has several copies of it.
    black_box([1u8; 32 * 1024]);
}

fn measure(setting: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    let threads = setting.threads;
    let items_each = (if quick { ITEMS.1 } else { ITEMS.0 }).div_ceil(threads);
    let (started, over) = (Latch::default(), Latch::default());
    let body = || {
        touch_stack();
        drop(black_box((0..WARM_ITEMS).map(item).collect::<Vec<_>>()));
        if started.wait() == Door::GoHome {
            return;
        }
        squall_rcu::pin(|_| ());
        (0..items_each).for_each(|n| squall_rcu::retire(item(n)));
        let _ = over.wait();
    };
    thread::scope(|scope| {
        let made: Result<Vec<_>, _> = (0..threads)
            .map(|index| {
                Builder::new().name(format!("idle-{index}")).stack_size(STACK_BYTES).spawn_scoped(scope, body)
            })
            .collect();
        if let Err(error) = made {
            started.open(Door::GoHome);
            return Err(format!("cannot start {threads} threads: {error}"));
        }
        started.await_waiting(threads);
        let result = resident_bytes().and_then(|rss_before| {
            started.open(Door::Open);
            over.await_waiting(threads);
            squall_rcu::barrier().map_err(|error| error.to_string())?;
            settle()?;
            metrics(threads, threads * items_each, rss_before)
        });
        started.open(Door::Open);
        over.open(Door::Open);
        result
    })
}

fn metrics(threads: usize, retired: usize, rss_before: u64) -> Result<Vec<(String, f64)>, String> {
    let before = switches()?;
    thread::sleep(IDLE);
    let wakeups = switches()?.saturating_sub(before);
    let rss = resident_bytes()?;
    let stats = squall_rcu::stats();
    let metric = |name: &str, value: f64| (name.to_owned(), value);
    Ok(vec![
        metric("idle_wakeups", wakeups as f64),
        metric("bytes_per_thread", stats.bytes_per_thread as f64),
        metric("list_bytes", stats.list_bytes as f64),
        metric("bytes_per_vp", squall_machine::pervp::stats().bytes_per_vp as f64),
        metric("rss_bytes_per_thread", rss.saturating_sub(rss_before) as f64 / threads as f64),
        metric("registered_threads", stats.threads as f64),
        metric("retired_items", retired as f64),
        metric("pending_items", stats.pending_calls as f64),
    ])
}

fn settle() -> Result<(), String> {
    let mut before = switches()?;
    for _ in 0..SETTLE_MOMENTS_MAX {
        thread::sleep(SETTLE);
        let now = switches()?;
        if now == before {
            break;
        }
        before = now;
    }
    Ok(())
}

/// Context switches of all tasks of this process except the calling one.
fn switches() -> Result<u64, String> {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let told = |error: std::io::Error| format!("cannot read /proc/self/task: {error}");
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task").map_err(told)? {
        let task = task.map_err(told)?;
        if task.file_name().to_str() == Some(&own) {
            continue;
        }
        let status = fs::read_to_string(task.path().join("status")).map_err(told)?;
        sum += field(&status, "voluntary_ctxt_switches:") + field(&status, "nonvoluntary_ctxt_switches:");
    }
    Ok(sum)
}

/// Resident set of this process, in bytes.
pub(super) fn resident_bytes() -> Result<u64, String> {
    let text =
        fs::read_to_string("/proc/self/statm").map_err(|e| format!("cannot read /proc/self/statm: {e}"))?;
    let pages: u64 = text.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    Ok(pages * crate::env::page_bytes() as u64)
}
