//! Stress of forks: children are forked while other threads write, swap, make and destroy objects.
//!
//! Promised (`squall-core`, "Forked children"): in the child of a fork, a call returns its result
//! or an error and never waits for a thread of the parent. The child ends, also by `exit`, which runs exit
//! hooks and drops. The parent is not affected.
//!
//! - I1. Random choices come from the run's seed, the scheduler's choices do not.
//! - I2. A child makes one call of each kind, in random order (`calls`): each object in each form, each lock,
//!   and reclamation. One half of the children ends by `exit`, the other by `_exit`.
//! - I3. A child writes its progress to memory that it shares with the parent. The kernel kills a child that
//!   has not ended in time, and the parent reports its last call.
//! - I4. The parent's threads record their writes (`writers`). At the end, all objects are compared with
//!   the record.
//! - I5. Each planned break must end the run with a violation (`breaks`).
//!
//! Not checked: children of a thread that is inside an operation; the tests of `squall-rcu` fork there.

mod breaks;
mod calls;
mod child;
mod objects;
pub(crate) mod raw;
mod writers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::run::{Report, Run, Stress, Violation, exclusive, threads_beyond_processors};
use crate::skeleton::breaks::{Breaks, asked};
use crate::skeleton::expected_panic::catch_silently;
use breaks::Break;
use child::{Children, fork_children};
use objects::Objects;
use writers::Writer;

pub(super) const STRESS: Stress = Stress {
    name: "fork",
    about: "in a forked child each call returns a result or an error, and the child ends",
    run,
    threads: threads_beyond_processors,
};

/// The data that the threads of a run share.
struct World {
    broken: Option<Break>,
    objects: Objects,
    stop: AtomicBool,
}

impl World {
    fn is_broken(&self, by: Break) -> bool {
        self.broken == Some(by)
    }
}

fn run(run: &Run) -> Result<Report, Violation> {
    let _exclusive = exclusive();
    let broken = asked(Break::ALL)?;
    // Installs the hook for silent panics before the first child.
    let _ = catch_silently(|| ());
    let world = World { broken, objects: Objects::new(), stop: AtomicBool::new(false) };
    let mut children = Children::default();
    let writers = thread::scope(|scope| {
        let count = run.threads.saturating_sub(2).max(1) as u64;
        let writers: Vec<_> = (0..count)
            .map(|index| {
                let world = &world;
                scope.spawn(move || Writer::new(world, index, count).write(&mut run.rng(index)))
            })
            .collect();
        let shared = &world;
        scope.spawn(move || writers::disturb(shared, &mut run.rng(count)));
        // Not on the first thread of the process, so that the exit hooks of the forking thread run here, too.
        let forking = scope.spawn(|| fork_children(run, &world, &mut children));
        let forked = forking.join().unwrap_or_else(|_| Err(panicked()));
        world.stop.store(true, Ordering::Relaxed);
        let writers: Vec<_> =
            writers.into_iter().map(|writer| writer.join().unwrap_or_else(|_| Err(panicked()))).collect();
        forked.and_then(|()| writers.into_iter().collect::<Result<Vec<Writer<'_>>, Violation>>())
    })?;
    let writes = writers.iter().map(|writer| writer.writes).sum();
    writers::check(&world.objects, &writers)?;
    Ok(Report(vec![
        ("children", children.by_exit + children.at_once),
        ("ended by exit", children.by_exit),
        ("ended by _exit", children.at_once),
        ("calls refused", children.refused),
        ("calls done", children.done),
        ("writes of the parent", writes),
    ]))
}

fn panicked() -> Violation {
    Violation("a thread of the stress panicked".to_owned())
}
