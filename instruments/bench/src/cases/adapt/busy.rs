//! Processor time that callers spend in a wrong form while the policy's thread waits for a processor.
//!
//! - I1. Each thread notes its own processor time about every [`SAMPLE`] of it. The last note before the swap
//!   counts, so the sum is too small by at most one `SAMPLE` for each processor.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use squall::Handle;
use squall::objects::counter::Counter;

use crate::cases::swap::crew::crew;
use crate::gate::Gate;
use crate::harness::quantile;
use crate::ours_adapt::{Kind, add, checked};
use crate::uncounted::thread_cpu_ns;

const SAMPLE: Duration = Duration::from_micros(100);
/// Calls between two readings of the clock.
const BATCH: u64 = 200;
/// A policy decides within this time, or not at all.
const DECIDES_WITHIN: Duration = Duration::from_secs(10);

/// Result of a turn.
pub(super) struct Busy {
    /// Time from the start to the end of the swap, and the processor time of all callers in it; `None` without a
    /// swap.
    decided: Option<(Duration, Duration)>,
}

/// Time, and the processor time of a thread until then.
type Note = (SystemTime, u64);

/// Has many threads add to one adaptive counter until it is distributed.
pub(super) fn turn(threads: usize) -> Result<Busy, String> {
    let made = Kind::Adaptive.make(1)?;
    let counter = made.first().ok_or("no counter was made")?;
    let (begin, is_over) = (Gate::new(threads + 1), AtomicBool::new(false));
    let body = |_: usize, _: &Gate| {
        let co = counter.handle();
        // Registers the thread, and misses.
        co.add(0);
        begin.wait();
        work(co, &is_over)
    };
    let conduct = || {
        begin.wait();
        let began = Instant::now();
        while counter.swaps().is_empty() && began.elapsed() < DECIDES_WITHIN {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Relaxed: the flag publishes no other data.
        is_over.store(true, Ordering::Relaxed);
    };
    let (all, ()) = crew(threads, body, conduct);
    checked(counter.total(), all.iter().map(|(_, added)| added).sum())?;
    let began = all.iter().filter_map(|(notes, _)| notes.first()).map(|(at, _)| *at).min();
    let decided = counter.swaps().first().map(|swap| swap.at).zip(began);
    let decided = decided.map(|(at, began)| {
        let spent = all.iter().map(|(notes, _)| spent_until(at, notes)).sum();
        (at.duration_since(began).unwrap_or_default(), Duration::from_nanos(spent))
    });
    Ok(Busy { decided })
}

/// Adds until the turn is over. Returns the thread's notes and its additions.
fn work(co: Handle<dyn Counter>, is_over: &AtomicBool) -> (Vec<Note>, u64) {
    let mut notes = vec![(SystemTime::now(), thread_cpu_ns())];
    let (mut noted, mut added) = (Instant::now(), 0);
    while !is_over.load(Ordering::Relaxed) {
        added += add(co, BATCH);
        if noted.elapsed() >= SAMPLE {
            notes.push((SystemTime::now(), thread_cpu_ns()));
            noted = Instant::now();
        }
    }
    (notes, added)
}

/// Processor time of a thread until `at`, in nanoseconds.
fn spent_until(at: SystemTime, notes: &[Note]) -> u64 {
    let last = notes.iter().rfind(|(noted, _)| *noted <= at);
    last.map_or(0, |(_, cpu_ns)| cpu_ns - notes[0].1)
}

pub(super) fn metrics(turns: &[Busy]) -> Vec<(String, f64)> {
    let decided: Vec<_> = turns.iter().filter_map(|turn| turn.decided).collect();
    let ms = |of: fn(&(Duration, Duration)) -> Duration, q| {
        let ms: Vec<f64> = decided.iter().map(|both| of(both).as_secs_f64() * 1e3).collect();
        if ms.is_empty() { 0.0 } else { quantile(&ms, q) }
    };
    let metrics = [
        ("decision_ms", ms(|both| both.0, 0.99)),
        ("decision_ms_p50", ms(|both| both.0, 0.5)),
        ("wrong_form_cpu_ms", ms(|both| both.1, 0.99)),
        ("wrong_form_cpu_ms_p50", ms(|both| both.1, 0.5)),
        ("decisions", decided.len() as f64),
        ("decisions_missed", (turns.len() - decided.len()) as f64),
    ];
    metrics.map(|(name, value)| (name.to_owned(), value)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_note_before_the_swap_counts() {
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        let notes = [(at(10), 500), (at(20), 700), (at(30), 1000)];
        let spent = [5, 10, 29, 30, 99].map(|ms| spent_until(at(ms), &notes));
        assert_eq!(spent, [0, 0, 200, 500, 500]);
    }
}
