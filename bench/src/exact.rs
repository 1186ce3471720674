//! Exactly so many operations between two barriers, for instruments that count from outside.

use std::sync::Barrier;
use std::thread::{self, Builder};

use crate::case::{Background, Case, Missing, Setting, Subject, Variant};
use crate::env;
use crate::harness::{Plan, RunError};
use crate::latch::{Door, Latch};
use crate::ours_machine::{assign_vp, is_virtual};

/// Runs exactly `ops` operations of `case` by `subject` in each of `threads` threads, between two barriers.
///
/// No clock is read, and each thread makes its worker (registers, makes its handle) before the first barrier. The
/// calling thread takes no part. On a virtual topology the threads are not pinned, and thread i is given VP i.
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
    let made = (spec.make)(&Setting { threads })
        .map_err(|Missing(why)| RunError(format!("subject {subject} is missing here: {why}")))?;
    between_barriers(&*made, variant, threads, ops)?;
    made.check(ops * threads as u64).map_err(RunError)
}

fn between_barriers(made: &dyn Subject, variant: &Variant, threads: usize, ops: u64) -> Result<(), RunError> {
    let processors = env::processors();
    let readers = (variant.background)(processors.len());
    let pinned = threads + readers <= processors.len() && !is_virtual();
    let (started, begin, end) = (Latch::default(), Barrier::new(threads), Barrier::new(threads));
    let background = Background::new(variant.reading);
    let body = |index: usize| {
        if started.wait() == Door::GoHome {
            return;
        }
        if pinned {
            env::pin(&processors[index..=index]);
        }
        assign_vp(index);
        let mut worker = made.worker(index);
        begin.wait();
        worker(ops);
        end.wait();
    };
    let body = &body;
    thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| made.background(&background));
        }
        background.await_ready(readers);
        let workers: Result<Vec<_>, _> = (0..threads)
            .map(|index| {
                Builder::new().name(format!("loop-{index}")).spawn_scoped(scope, move || body(index))
            })
            .collect();
        started.say(if workers.is_ok() { Door::Open } else { Door::GoHome });
        let result = match workers {
            Ok(workers) => workers.into_iter().try_for_each(|worker| {
                worker.join().map_err(|_| RunError("a thread has panicked".to_owned()))
            }),
            Err(error) => Err(RunError(format!("cannot start {threads} threads: {error}"))),
        };
        background.stop();
        result
    })
}
