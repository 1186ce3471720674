//! The bodies of the child processes: clients of the parent's object, and servers of an object of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use squall::call::{ExportOptions, ImportError, ImportOptions};
use squall::{Handle, Owned};

use super::account::{Account, Keeper, Ledger};
use super::caller::{Calls, Outcome};
use super::processes::{News, Voice, await_end, end_with_parent};
use super::scribble::{memory, scribble, segments};
use crate::run::Rng;

/// Longest time of a call with an honest peer. It takes microseconds on an idle machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time of a call with a hostile peer, or of one.
pub(super) const HOSTILE_PATIENCE: Duration = Duration::from_millis(50);
/// Hostile words between two looks for new segments.
const WORDS: u64 = 256;

/// The part of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) serves: bool,
    pub(super) hostile: bool,
    /// Calling threads of a client.
    pub(super) threads: u32,
    pub(super) seed: u64,
    /// The name of the exported object.
    pub(super) name: String,
}

impl Part {
    pub(super) fn arguments(&self) -> Vec<String> {
        let role = if self.serves { "server" } else { "client" };
        let manner = if self.hostile { "hostile" } else { "honest" };
        [role, manner]
            .map(str::to_owned)
            .into_iter()
            .chain([self.threads.to_string(), self.seed.to_string(), self.name.clone()])
            .collect()
    }

    fn parse(arguments: &[String]) -> Option<Part> {
        let [role, manner, threads, seed, name] = arguments else { return None };
        Some(Part {
            serves: role == "server",
            hostile: manner == "hostile",
            threads: threads.parse().ok()?,
            seed: seed.parse().ok()?,
            name: name.clone(),
        })
    }
}

/// Runs a child process of the stress `calls`, until its parent closes its input.
///
/// # Errors
/// The arguments are not those of a child, or the system refuses something.
pub fn child(arguments: &[String]) -> Result<(), String> {
    let part =
        Part::parse(arguments).ok_or("the arguments are not those of a child of `squall stress calls`")?;
    end_with_parent().map_err(|error| error.to_string())?;
    if part.serves { serve(&part) } else { call(&part) }
}

fn serve(part: &Part) -> Result<(), String> {
    let object: Owned<dyn Account> = squall::shared(Keeper(Arc::new(Ledger::new(None))));
    let export =
        ExportOptions::new().export(object.handle(), &part.name).map_err(|error| error.to_string())?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        if part.hostile {
            scope.spawn(|| scribble_until(&stop, &mut Rng::new(part.seed, u64::MAX)));
        }
        Voice::default().tell(News::Ready, 0);
        await_end();
        // Relaxed: the flag publishes no other data.
        stop.store(true, Ordering::Relaxed);
    });
    drop(export);
    Ok(())
}

fn call(part: &Part) -> Result<(), String> {
    let limit = if part.hostile { HOSTILE_PATIENCE } else { PATIENCE };
    let options = ImportOptions::new().limit(limit);
    let began = Instant::now();
    let object = loop {
        match options.import::<dyn Account>(&part.name) {
            Ok(object) => break object,
            // The short limit of a hostile client holds for its import, too.
            Err(ImportError::TimedOut) if part.hostile && began.elapsed() < PATIENCE => {}
            Err(error) => return Err(error.to_string()),
        }
    };
    let (stop, voice) = (AtomicBool::new(false), Voice::default());
    thread::scope(|scope| {
        for index in 0..part.threads {
            let (stop, voice, handle) = (&stop, &voice, object.handle());
            scope.spawn(move || visit(part, index, handle, stop, voice));
        }
        if part.hostile {
            scope.spawn(|| scribble_until(&stop, &mut Rng::new(part.seed, u64::MAX)));
        }
        voice.tell(News::Ready, 0);
        await_end();
        // Relaxed: the flag publishes no other data.
        stop.store(true, Ordering::Relaxed);
    });
    drop(object);
    Ok(())
}

/// Calls until the flag is set.
fn visit(part: &Part, index: u32, object: Handle<dyn Account>, stop: &AtomicBool, voice: &Voice) {
    let (mut calls, mut rng) = (Calls::new(object, index), Rng::new(part.seed, u64::from(index)));
    // Relaxed: the flag publishes no other data.
    while !stop.load(Ordering::Relaxed) {
        match calls.call(&mut rng) {
            Outcome::Entered => voice.tell(News::Done, index as usize),
            Outcome::Unsure => voice.tell(News::Unsure, index as usize),
            Outcome::Other => {}
            _ if part.hostile => thread::yield_now(),
            // The parent may end its own life first.
            Outcome::Gone(_) if stop.load(Ordering::Relaxed) => {}
            Outcome::Gone(_) => voice.wrong("the server is gone, although it serves"),
            Outcome::Wrong(what) => voice.wrong(&what),
        }
    }
}

/// Writes hostile words into all segments until the flag is set.
fn scribble_until(stop: &AtomicBool, rng: &mut Rng) {
    let Ok(memory) = memory() else { return };
    while !stop.load(Ordering::Relaxed) {
        let segments = segments().unwrap_or_default();
        if segments.is_empty() {
            thread::yield_now();
            continue;
        }
        for _ in 0..WORDS {
            let segment = segments[rng.below(segments.len() as u64) as usize];
            scribble(&memory, segment, rng);
        }
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_told_in_arguments() {
        let part = Part { serves: true, hostile: false, threads: 3, seed: 9, name: "x".to_owned() };
        assert_eq!(Part::parse(&part.arguments()), Some(part));
        assert_eq!(Part::parse(&[]), None);
    }
}
