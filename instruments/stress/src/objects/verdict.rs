//! The verdict at the end, when all threads have ended: is all accounted for?

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use squall::rcu::{WaitError, barrier, stats};
use squall::{ObjectInfo, snapshot, tables};

use super::world::World;
use crate::settle::until_nothing_is_left;

/// Barriers after which nothing may be left. What has ended needs a few grace periods, and a run on its VP; a drop may
/// destroy another object in turn.
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
        if now.panicked != self.panicked_calls || now.leaked != self.leaked {
            return Err(format!(
                "{} deferred calls panicked and {} were leaked, and none was to be",
                now.panicked - self.panicked_calls,
                now.leaked - self.leaked
            ));
        }
        let panicked = tables::stats().panicked_drops - self.panicked_drops;
        let planned = world.drop_panics.load(Ordering::Relaxed);
        if panicked != planned {
            return Err(format!("{panicked} drops panicked, of which {planned} were to"));
        }
        Ok(())
    }

    /// What is not yet as it was.
    fn left(&self, world: &World) -> Option<String> {
        if let Some(left) = world.ledger.left() {
            return Some(left);
        }
        let objects = snapshot();
        if objects.len() != self.objects {
            let name = |object: &ObjectInfo| format!("{}#{}", object.interface, object.id);
            let named: Vec<String> = objects.iter().take(4).map(name).collect();
            return Some(format!(
                "{} objects are known, and {} were before: {}",
                objects.len(),
                self.objects,
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
    world.board.slots().for_each(|slot| world.board.wipe(slot));
    barrier()?;
    barrier().map(|_| ())
}
