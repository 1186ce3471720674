//! The threads of one phase: made, placed, and joined.

use std::time::Instant;

use crate::env;
use crate::gate::{Gate, NoUnwind};
use crate::harness::{Lost, preemptions};
use crate::ours_machine::{assign_vp, is_virtual};
use crate::uncounted::thread_cpu_ns;

/// Runs `body` in each of `threads` threads, and `beside` in the calling one meanwhile. Thread `i` is pinned
/// to processor `i` if all fit, or has VP `i` of a virtual topology. Each thread passes the gate after its
/// own preparation.
pub(in crate::cases) fn crew<R: Send, B>(
    threads: usize,
    body: impl Fn(usize, &Gate) -> R + Sync,
    beside: impl FnOnce() -> B,
) -> (Vec<R>, B) {
    let processors = env::processors();
    let pinned = fit(threads) && !is_virtual();
    let gate = Gate::new(threads);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|index| {
                let (body, gate, processors) = (&body, &gate, &processors);
                scope.spawn(move || {
                    let _guard = NoUnwind;
                    if pinned {
                        env::pin(&processors[index..=index]);
                    }
                    assign_vp(index);
                    body(index, gate)
                })
            })
            .collect();
        let _guard = NoUnwind;
        let done = beside();
        let results = all.into_iter().map(|thread| thread.join().expect("a thread of the crew panicked"));
        (results.collect(), done)
    })
}

/// Nanoseconds of processor time of one of `ops` operations per thread, done by `body`. Threads that
/// outnumber the processors share them.
pub(super) fn timed(threads: usize, ops: u64, body: impl Fn(u64) + Sync) -> f64 {
    let (spans, ()) = crew(
        threads,
        |_, gate| {
            body(ops / 16 + 1);
            gate.wait();
            let began = Instant::now();
            body(ops);
            (began, Instant::now())
        },
        || (),
    );
    let began = spans.iter().map(|span| span.0).min().expect("no thread was measured");
    let ended = spans.iter().map(|span| span.1).max().expect("no thread was measured");
    let at_once = threads.min(env::processors().len());
    (ended - began).as_nanos() as f64 * at_once as f64 / (ops as f64 * threads as f64)
}

/// Whether each of `threads` threads has its own processor.
pub(in crate::cases) fn fit(threads: usize) -> bool {
    threads <= env::processors().len()
}

/// Runs `f` in a thread of a crew, and returns the processor time it lost to other programs.
pub(super) fn watched<R>(f: impl FnOnce() -> R) -> (R, Lost) {
    let (preempted, began, cpu_ns) = (preemptions(), Instant::now(), thread_cpu_ns());
    let result = f();
    let cpu_ns = (thread_cpu_ns() - cpu_ns) as f64;
    let wall_ns = began.elapsed().as_nanos() as f64;
    (result, Lost { wall_ns, cpu_ns, slice_cpu_ns: cpu_ns, preempted: preemptions() > preempted })
}

/// Time for which the calling thread has waited for a processor so far, in microseconds; zero if the kernel
/// does not count it.
pub(in crate::cases) fn run_queue_us() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e3
}
