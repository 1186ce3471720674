//! Exactly so many operations between two barriers, for instruments that count from outside.

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
/// No clock is read, and each thread makes its worker (registers, makes its handle) before the first barrier. The
/// calling thread takes no part. On a virtual topology the threads are not pinned, and thread i is given VP i.
///
/// For one use in a process that then ends: the threads and the subject are left as they are when this returns, the
/// threads asleep. To take them apart is work that an instrument would count.
///
/// # Errors
/// No such subject or variant, a subject that is missing here, a thread that could not be started, or a wrong result.
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
            // Acquire: pairs with the Release of each thread that is done, whose counts `check` reads.
            poll(|| run.done.load(Ordering::Acquire) == threads);
        }
        background.stop();
        started.map_err(|error| RunError(format!("cannot start {threads} threads: {error}")))
    })?;
    run.made.check(ops * threads as u64).map_err(RunError)
}

/// Threads wait until all could be started: then they begin, else they go home.
const SHUT: u8 = 0;
const OPEN: u8 = 1;
const GO_HOME: u8 = 2;

/// What the threads of one run share. They are started one after the other: a hundred threads that meet in the
/// allocator or in a library's registry leave traces in the counts, and those are not what is to be counted.
struct Run {
    made: Box<dyn Subject>,
    ops: u64,
    /// Where to pin, or none.
    processors: Option<Vec<usize>>,
    /// How many have made their workers.
    ready: CachePadded<AtomicUsize>,
    door: CachePadded<AtomicU8>,
    begin: Gate,
    end: Gate,
    /// How many have passed the end.
    done: CachePadded<AtomicUsize>,
}

impl Run {
    /// The life of one thread.
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

/// The operations. A function of its own, so that an instrument can be told to count in it alone; and between the marks of
/// another instrument.
#[inline(never)]
fn operations(worker: &mut Worker<'_>, ops: u64) {
    mark::begin();
    worker(ops);
    mark::end();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every subject of every case and variant that is here does what it is told, and its own check holds.
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
                        // A thread for each.
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
    fn what_does_not_exist_is_an_error_that_names_what_does() {
        let case = crate::find("percpu").expect("the case is there");
        let no_subject = run_exact(case, "nobody", None, 1, 1);
        assert!(no_subject.is_err_and(|e| e.0.contains("thread-local")));
        let no_variant = run_exact(case, "squall", Some("upside-down"), 1, 1);
        assert!(no_variant.is_err_and(|e| e.0.contains("has no variant")));
    }
}
