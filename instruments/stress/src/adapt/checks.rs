//! The checks at the end, after all threads have ended: everything is accounted for, and all objects have
//! shrunk.

use std::fs;
use std::thread;
use std::time::Duration;

use squall::adapt::{control, engine, settings};
use squall::objects::counter;
use squall::policy::attribute;
use squall::{Handle, info_of};

use super::breaks::Break;
use super::operators::Operator;
use super::threads::read_the_log;
use super::world::World;
use crate::run::lock;
use crate::skeleton::cleanup::ProcessSnapshot;

/// Maximum number of polls until all objects have shrunk, and the sleep between two.
const FOLDS: u32 = 3_000;
const FOLD_PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of intervals `NAP` in which the check looks for one without a wake-up of the engine's
/// thread. An interval is longer than the engine's longest sleep with a time limit.
const NAPS: u32 = 60;
const NAP: Duration = Duration::from_millis(400);
/// Maximum number of sleeps in an interval of a run with a planned break.
const LATE: u32 = 500;
/// Number of polls in a run with a planned break.
const SHORT: u32 = 20;

/// Checks the world and the process at the end of a run.
///
/// # Errors
/// Describes the first violation.
pub(super) fn check(world: &'static World, before: &ProcessSnapshot) -> Result<(), String> {
    read_the_log(world);
    world.kinds.end();
    world.invocations.end(world)?;
    thaw(world)?;
    fold(world)?;
    for tracked in world.all() {
        tracked.compare("at the end");
    }
    sleep_soundly(world)?;
    world.run_state.violation().map_or(Ok(()), Err)?;
    let wave = None;
    let mut log = lock(&world.log);
    log.collect(world, wave)?;
    log.compare()?;
    drop(log);
    before.drain(world.run_state, || world.end(), || None)?;
    let _ = settings::ALL.unset("swaps");
    before.check_failures(0)
}

/// Thaws all objects and lets them shrink soon.
fn thaw(world: &'static World) -> Result<(), String> {
    control::freeze_all(false);
    control::dry_run_all(false);
    settings::ALL
        .set(&settings::SWAPS, 1e6)
        .map_err(|error| format!("the budget could not be set: {error}"))?;
    lock(&world.log).judges_budget = false;
    for tracked in world.all() {
        let id = tracked.id();
        if let Some(values) = attribute::values_of(id) {
            for info in values.list() {
                let taken_back = values.unset(&info.path());
                taken_back.map_err(|error| format!("a setting could not be taken back: {error}"))?;
            }
        }
        tracked.cooldown_us.store(1_000, std::sync::atomic::Ordering::Relaxed);
        for (name, text) in [("cooldown", "1ms"), ("quiet", "100ms"), ("freeze", "false")] {
            control::set_attribute(id, name, text)
                .map_err(|error| format!("at the end {name} = {text} was refused: {error}"))?;
        }
    }
    if world.is_broken(Break::KeepGrown)
        && let Some(tracked) = world.all().first()
    {
        let _ = control::swap(tracked.id(), "distributed");
        let _ = control::freeze(tracked.id(), true);
    }
    Ok(())
}

/// Waits until all objects have shrunk, and checks that they use no more memory than new ones.
fn fold(world: &'static World) -> Result<(), String> {
    let rounds = if world.is_broken(Break::KeepGrown) { SHORT } else { FOLDS };
    let grown = || -> Vec<String> {
        let tracked_by_id = world.all();
        let seen = tracked_by_id.iter().filter_map(|tracked| control::status(tracked.id()));
        let grown = seen.filter(|status| status.form != status.forms[0]);
        grown.map(|status| format!("{status:?}")).collect()
    };
    let mut left = grown();
    for _ in 0..rounds {
        if left.is_empty() {
            break;
        }
        if engine::thread_state() != engine::EngineState::Running {
            engine::turn();
        }
        thread::sleep(FOLD_PAUSE);
        left = grown();
    }
    if let Some(first) = left.first() {
        return Err(format!(
            "{} objects do not return to their first form although no thread calls them: {first}",
            left.len()
        ));
    }
    let new = counter::adaptive();
    let bytes = |id| info_of(id).map_or(0, |info| info.bytes);
    let most = bytes(Handle::id(new.handle()));
    for tracked in world.all() {
        let has = bytes(tracked.id());
        if has > most {
            let id = tracked.id();
            return Err(format!(
                "{id} returned to its first form but has {has} bytes; a new object has {most}"
            ));
        }
        if control::status(tracked.id()).is_none() {
            Operator { world }.refused(&tracked, "its status at the end", "there is none");
        }
    }
    Ok(())
}

/// Returns the number of context switches of the engine's thread, or `None` if there is no such thread.
fn switches() -> Option<u64> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    tasks.flatten().find_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let value = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key))?;
            line.split_ascii_whitespace().nth(1)
        };
        let is_it = value("Name:") == Some("squall-adapt");
        let count = |key| value(key).and_then(|count| count.parse::<u64>().ok());
        is_it
            .then(|| Some(count("voluntary_ctxt_switches:")? + count("nonvoluntary_ctxt_switches:")?))
            .flatten()
    })
}

/// Checks that the engine's thread sleeps when all objects have shrunk and are not called.
fn sleep_soundly(world: &'static World) -> Result<(), String> {
    let insomnia = world.is_broken(Break::Insomnia);
    let naps = if insomnia { 3 } else { NAPS };
    // With the planned break, an interval lasts until the engine's thread has run, even on a loaded machine.
    let sleeps = if insomnia { LATE } else { 1 };
    let Some(mut before) = switches() else { return Ok(()) };
    for _ in 0..naps {
        if insomnia && let Some(tracked) = world.all().first() {
            engine::post(tracked.id());
        }
        let mut now = before;
        for _ in 0..sleeps {
            thread::sleep(NAP);
            now = switches().unwrap_or(before);
            if now != before {
                break;
            }
        }
        if now == before {
            return Ok(());
        }
        before = now;
    }
    Err(format!(
        "no object is grown or called, but the engine's thread was woken in each of {naps} intervals"
    ))
}
