//! Processor time that callers spend in a wrong form while the policy's thread waits for a processor.
//!
//! - I1. Each thread notes its own processor time, and whether the counter is distributed, about every
//!   [`SAMPLE`] of its time. The first note that says so is the time of the change. Each thread's last note
//!   before it counts, so the sum is too small by at most one `SAMPLE` for each processor.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use squall::Handle;
use squall::adapt::engine;
use squall::objects::counter::Counter;

use crate::cases::swap::crew::crew;
use crate::gate::Gate;
use crate::harness::{median, quantile};
use crate::ours_adapt::{Kind, add, checked};
use crate::uncounted::thread_cpu_ns;

const SAMPLE: Duration = Duration::from_micros(100);
/// Calls between two readings of the clock.
const BATCH: u64 = 200;
/// A policy decides within this time, or not at all.
const DECIDES_WITHIN: Duration = Duration::from_secs(10);
/// Rest before a turn. Then callers may pause again for the policy's thread as often as in a new program.
const REST: Duration = Duration::from_secs(10);

/// Result of a turn.
pub(super) struct Busy {
    /// Time from the start to the change of form, and the processor time of all callers in it.
    changed: Option<(Duration, Duration)>,
    pauses: u64,
}

/// State of a thread at some time.
struct Note {
    at: Instant,
    cpu_ns: u64,
    is_grown: bool,
}

impl Note {
    fn now(is_grown: bool) -> Note {
        Note { at: Instant::now(), cpu_ns: thread_cpu_ns(), is_grown }
    }
}

/// Has many threads add to one adaptive counter until it is distributed.
pub(super) fn turn(threads: usize) -> Result<Busy, String> {
    std::thread::sleep(REST);
    let made = Kind::Adaptive.make(1)?;
    let counter = made.first().ok_or("no counter was made")?;
    let shared = counter.class();
    let is_grown = || counter.class() != shared;
    let (begin, is_over) = (Gate::new(threads + 1), AtomicBool::new(false));
    let pauses = engine::pauses();
    let body = |_: usize, _: &Gate| {
        let co = counter.handle();
        // Registers the thread, and misses.
        co.add(0);
        begin.wait();
        work(co, &is_over, is_grown)
    };
    let conduct = || {
        begin.wait();
        let began = Instant::now();
        while !is_grown() && began.elapsed() < DECIDES_WITHIN {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Relaxed: the flag publishes no other data.
        is_over.store(true, Ordering::Relaxed);
    };
    let (all, ()) = crew(threads, body, conduct);
    checked(counter.total(), all.iter().map(|(_, added)| added).sum())?;
    let notes: Vec<Vec<Note>> = all.into_iter().map(|(notes, _)| notes).collect();
    Ok(Busy { changed: changed(&notes), pauses: engine::pauses() - pauses })
}

/// Adds until the turn is over. Returns the thread's notes and its additions.
fn work(co: Handle<dyn Counter>, is_over: &AtomicBool, is_grown: impl Fn() -> bool) -> (Vec<Note>, u64) {
    let mut notes = vec![Note::now(false)];
    let (mut noted, mut added) = (Instant::now(), 0);
    loop {
        let over = is_over.load(Ordering::Relaxed);
        if over || noted.elapsed() >= SAMPLE {
            notes.push(Note::now(is_grown()));
            noted = Instant::now();
        }
        if over {
            return (notes, added);
        }
        added += add(co, BATCH);
    }
}

/// Time from the first note to the change of form, and the threads' processor time in it.
fn changed(notes: &[Vec<Note>]) -> Option<(Duration, Duration)> {
    let began = notes.iter().filter_map(|notes| notes.first()).map(|note| note.at).min()?;
    let at =
        notes.iter().filter_map(|notes| notes.iter().find(|note| note.is_grown)).map(|note| note.at).min()?;
    let spent = |notes: &Vec<Note>| {
        let last = notes.iter().rfind(|note| note.at <= at);
        last.map_or(0, |last| last.cpu_ns - notes[0].cpu_ns)
    };
    Some((at - began, Duration::from_nanos(notes.iter().map(spent).sum())))
}

pub(super) fn metrics(turns: &[Busy]) -> Vec<(String, f64)> {
    let changed: Vec<_> = turns.iter().filter_map(|turn| turn.changed).collect();
    let pauses: Vec<f64> = turns.iter().map(|turn| turn.pauses as f64).collect();
    let ms = |of: fn(&(Duration, Duration)) -> Duration, q| {
        let ms: Vec<f64> = changed.iter().map(|both| of(both).as_secs_f64() * 1e3).collect();
        if ms.is_empty() { 0.0 } else { quantile(&ms, q) }
    };
    let metrics = [
        ("decision_ms", ms(|both| both.0, 0.99)),
        ("decision_ms_p50", ms(|both| both.0, 0.5)),
        ("wrong_form_cpu_ms", ms(|both| both.1, 0.99)),
        ("wrong_form_cpu_ms_p50", ms(|both| both.1, 0.5)),
        ("decisions", changed.len() as f64),
        ("decisions_missed", (turns.len() - changed.len()) as f64),
        ("pauses", median(&pauses)),
    ];
    metrics.map(|(name, value)| (name.to_owned(), value)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_notes_before_the_change_count() {
        let start = Instant::now();
        let note = |ms, cpu_ns, is_grown| Note { at: start + Duration::from_millis(ms), cpu_ns, is_grown };
        let first = vec![note(0, 500, false), note(20, 700, false), note(30, 1000, true)];
        let second = vec![note(5, 50, false), note(25, 80, false), note(40, 90, true)];
        let late = vec![note(35, 7, false), note(36, 9, true)];
        let expected = (Duration::from_millis(30), Duration::from_nanos(500 + 30));
        assert_eq!(changed(&[first, second, late]), Some(expected));
        assert_eq!(changed(&[vec![note(0, 0, false)]]), None);
    }
}
