//! The verdict at the end, when all threads have ended: is all accounted for?

use std::thread;
use std::time::Duration;

use squall::rcu::{WaitError, barrier, stats};
use squall::{ObjectInfo, snapshot, tables};

use super::world::World;
use crate::settle::until_nothing_is_left;

/// Barriers after which nothing may be left.
const ROUNDS: u32 = 400;
/// Before each, so that threads of the library's own can run.
const PAUSE: Duration = Duration::from_millis(2);

/// The process before the torture began.
pub(super) struct Before {
    objects: usize,
    panicked_drops: u64,
    panicked_calls: u64,
    leaked: u64,
}

impl Before {
    pub(super) fn note() -> Before {
        Before {
            objects: snapshot().len(),
            panicked_drops: tables::stats().panicked_drops,
            panicked_calls: stats().panicked,
            leaked: stats().leaked,
        }
    }

    /// Compares the process with what it was.
    ///
    /// # Errors
    /// What is not as it has to be.
    pub(super) fn compare(&self, world: &'static World) -> Result<(), String> {
        let settle = || {
            settle(world).map_err(|error| format!("at the end: {error}"))?;
            world.trial.accusation().map_or(Ok(()), Err)
        };
        until_nothing_is_left(ROUNDS, settle, || self.left(world))?;
        let now = stats();
        let odd = [
            ("deferred calls panicked", now.panicked - self.panicked_calls),
            ("deferred calls were leaked", now.leaked - self.leaked),
            ("drops panicked", tables::stats().panicked_drops - self.panicked_drops),
        ];
        match odd.into_iter().find(|(_, count)| *count != 0) {
            Some((what, count)) => Err(format!("{count} {what}, and none was to be")),
            None => world.compare_arbiters(),
        }
    }

    /// What is not yet as it was.
    fn left(&self, world: &World) -> Option<String> {
        if let Some(left) = world.left() {
            return Some(left);
        }
        let objects = snapshot();
        if objects.len() != self.objects {
            let name = |object: &ObjectInfo| format!("{}#{}", object.interface, object.id);
            let named: Vec<String> = objects.iter().take(4).map(name).collect();
            let (count, before) = (objects.len(), self.objects);
            return Some(format!(
                "{count} objects are known, and {before} were before: {}",
                named.join(", ")
            ));
        }
        let pending = stats().pending_calls;
        (pending != 0).then(|| format!("{pending} deferred calls are pending"))
    }
}

/// Everything that is pending runs.
fn settle(world: &'static World) -> Result<(), WaitError> {
    thread::sleep(PAUSE);
    world.end();
    barrier()?;
    barrier().map(|_| ())
}
