//! The skeleton of a stress with threads: it sets up the run, keeps the threads at work, and checks the
//! process at the end.
//!
//! A stress implements [`Workload`]: its world, the bodies of its threads, disturbances, and its own checks.
//! The skeleton supplies everything else.
//!
//! - I1. The random numbers of a thread depend on the run's seed, its worker, and the number of threads that
//!   the worker had before. The supervisor's depend on the seed alone.
//! - I2. The first threads exist before the library is used for the first time. Until then they wait at a
//!   checkpoint.
//! - I3. The first violation ends the run. The process is checked only if no violation was found before.

pub(crate) mod breaks;
pub(crate) mod cleanup;
pub(crate) mod counts;
pub(crate) mod delay;
pub(crate) mod expected_panic;
pub(crate) mod lifecycle;
pub(crate) mod lifetime;
pub(crate) mod placement;
pub(crate) mod places;
pub(crate) mod run_state;
pub(crate) mod store_buffer;
pub(crate) mod supervisor;
pub(crate) mod worker;
pub(crate) mod workload;
pub(crate) mod world;

use std::time::Instant;

use squall::machine;

use crate::run::{Report, Run, Violation, exclusive};
use breaks::Breaks;
use cleanup::ProcessSnapshot;
use placement::choose_machine;
use supervisor::Supervisor;
use workload::Workload;

/// Runs a stress from its start to its report.
pub(crate) fn run<W: Workload>(run: &Run) -> Result<Report, Violation> {
    let _exclusive = exclusive();
    let broken = breaks::asked(W::Break::ALL)?;
    choose_machine(run.real || W::REAL_MACHINE);
    let mut workload = W::new(run, broken)?;
    let run_state = workload.run_state();
    run_state.set_paused(true);
    let mut supervisor = Supervisor::start(run, run_state, workload.workers(), &mut workload)?;
    let before = ProcessSnapshot::take();
    workload.begin(run)?;
    let began = Instant::now();
    run_state.set_paused(false);
    supervisor.run(run, &mut workload);
    let elapsed = began.elapsed();
    supervisor.shut_down(&mut workload);
    let found = || run_state.violation().map_or(Ok(()), |violation| Err(Violation(violation)));
    found()?;
    workload.check(&before).map_err(Violation)?;
    found()?;
    let mut lines = workload.report(elapsed);
    lines.extend(supervisor.lines());
    lines.push(("virtual processors", machine().vps().len() as u64));
    Ok(Report(lines))
}
