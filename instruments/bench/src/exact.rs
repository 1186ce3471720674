//! Runs an exact number of operations between two barriers, for external instruments that count accesses.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread::{self, Builder};

use crossbeam_utils::CachePadded;
use squall_locality_plugin::mark;

use crate::case::{Background, Case, Missing, Setting, Subject, Worker};
use crate::env;
use crate::gate::{Gate, NoUnwind, poll};
use crate::harness::{Plan, RunError};
use crate::ours_machine::{assign_vp, is_virtual};

/// Runs exactly `ops` operations of `case` by `subject` in each of `threads` threads, between two barriers.
///
/// No clock is read. Each thread makes its worker (registers, makes its handle) before the first barrier. The
/// calling thread takes no part. On a virtual topology the threads are not pinned, and thread `i` is given VP
/// `i`.
///
/// Call it once, in a process that then ends. The threads stay asleep and the subject stays alive when it
/// returns, since an instrument would also count their removal.
///
/// # Errors
/// The subject or variant does not exist, the subject is missing here, a thread could not be started, or a
/// result is wrong.
pub fn run_exact(
    case: &'static Case,
    subject: &str,
    variant: Option<&str>,
    threads: usize,
    ops: u64,
) -> Result<(), RunError> {
    let plan = Plan { threads: vec![threads], variant: variant.map(str::to_owned), quick: true };
    let variant = plan.variants(case)?[0];
    let Some(spec) = case.subjects.iter().find(|spec| spec.name == subject) else {
        let names = case.subject_names().join(", ");
        return Err(RunError(format!("case {} has no subject {subject:?} ({names})", case.name)));
    };
    let made = (spec.make)(&Setting { threads, variant, counted: true }).map_err(|Missing(why)| {
        let why = if why.is_empty() { "it takes no part in this variant" } else { &why };
        RunError(format!("subject {subject} is missing here: {why}"))
    })?;
    let processors = env::processors();
    let readers = (variant.background)(processors.len());
    let pinned = threads + readers <= processors.len() && !is_virtual();
    let run: &'static Run = Box::leak(Box::new(Run {
        made,
        ops,
        processors: pinned.then_some(processors),
        ready: CachePadded::new(AtomicUsize::new(0)),
        door: CachePadded::new(AtomicU8::new(SHUT)),
        begin: Gate::new(threads),
        end: Gate::new(threads),
        done: CachePadded::new(AtomicUsize::new(0)),
    }));
    let background = Background::new(variant.reading);
    thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| run.made.background(&background));
        }
        background.await_ready(readers);
        let started = run.start(threads);
        // Release: pairs with the Acquire polls of the threads at the door.
        run.door.store(if started.is_ok() { OPEN } else { GO_HOME }, Ordering::Release);
        if started.is_ok() {
            // Acquire: pairs with the Release of each finished thread, so that `check` reads its counts.
            poll(|| run.done.load(Ordering::Acquire) == threads);
        }
        background.stop();
        started.map_err(|error| RunError(format!("cannot start {threads} threads: {error}")))
    })?;
    run.made.check(ops * threads as u64).map_err(RunError)
}

/// States of the door. Threads wait while it is shut. It opens once all threads were started. If a thread
/// cannot be started, the others end.
const SHUT: u8 = 0;
const OPEN: u8 = 1;
const GO_HOME: u8 = 2;

/// Shared state of the threads of one run. They are started one after the other: a hundred threads that meet
/// in the allocator or in a library's registry would add shared accesses to the counts.
struct Run {
    made: Box<dyn Subject>,
    ops: u64,
    /// Processors for pinning; absent if threads are not pinned.
    processors: Option<Vec<usize>>,
    /// Number of threads that have made their workers.
    ready: CachePadded<AtomicUsize>,
    door: CachePadded<AtomicU8>,
    begin: Gate,
    end: Gate,
    /// Number of threads that have passed the end.
    done: CachePadded<AtomicUsize>,
}

impl Run {
    /// Runs one thread from start to end.
    fn thread(&self, index: usize) {
        let _guard = NoUnwind;
        if let Some(processors) = &self.processors {
            env::pin(&processors[index..=index]);
        }
        assign_vp(index);
        let mut worker = self.made.worker(index);
        // Release: pairs with the Acquire poll of the starting thread.
        self.ready.fetch_add(1, Ordering::Release);
        // Acquire: pairs with the Release store of the starting thread.
        poll(|| self.door.load(Ordering::Acquire) != SHUT);
        if self.door.load(Ordering::Relaxed) == GO_HOME {
            return;
        }
        self.begin.wait();
        operations(&mut worker, self.ops);
        self.end.wait();
        // Release: pairs with the Acquire poll of the starting thread.
        self.done.fetch_add(1, Ordering::Release);
        loop {
            thread::park();
        }
    }

    fn start(&'static self, threads: usize) -> io::Result<()> {
        for index in 0..threads {
            Builder::new().name(format!("loop-{index}")).spawn(move || self.thread(index))?;
            // Acquire: pairs with the Release of the thread that was just started.
            poll(|| self.ready.load(Ordering::Acquire) == index + 1);
        }
        Ok(())
    }
}

/// Runs the operations, between the marks of a second instrument. It is a function of its own, so that an
/// instrument can be told to count in it alone.
#[inline(never)]
fn operations(worker: &mut Worker<'_>, ops: u64) {
    mark::begin();
    worker(ops);
    mark::end();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every available subject of every case and variant does the operations, and passes its own check.
    #[test]
    fn every_subject_runs_and_checks() {
        for case in crate::all() {
            for variant in case.variants {
                let name = (!variant.name.is_empty()).then_some(variant.name);
                for spec in case.subjects {
                    if (spec.make)(&Setting { threads: 2, variant, counted: true }).is_err() {
                        continue;
                    }
                    let ops = match (case.name, spec.name) {
                        ("rcu-wait", _) => 3,
                        // Its regions are mapped beforehand.
                        ("unmap", _) => 40,
                        // These start a thread per operation.
                        ("invoke", "squall-threaded" | "std-thread") => 20,
                        _ => 1_000,
                    };
                    let result = run_exact(case, spec.name, name, 2, ops);
                    assert!(result.is_ok(), "{} {} {}: {result:?}", case.name, variant.name, spec.name);
                }
            }
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
        let case = crate::find("percpu").expect("the case is there");
        let no_subject = run_exact(case, "nobody", None, 1, 1);
        assert!(no_subject.is_err_and(|e| e.0.contains("thread-local")));
        let no_variant = run_exact(case, "squall", Some("upside-down"), 1, 1);
        assert!(no_variant.is_err_and(|e| e.0.contains("has no variant")));
    }
}
